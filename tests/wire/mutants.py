"""Decodes mutants of good records under a hard limit of memory; run in a process of its own by test_mutants.py.

    python -m tests.wire.mutants COUNT SEED

Prints a JSON object: how many were read (`older`: as a version that is not the newest), refused, and the longest
decoding, in seconds of the processor: a busy machine may let the process stand still. Ends with a traceback where
anything but a record or a WireError comes out, and that includes a MemoryError.
"""

from __future__ import annotations

import json
import resource
import struct
import sys
import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import fastavro
import numpy as np
from distrl.errors import WireError
from distrl.types import Record
from distrl.wire.codec import HEADER_BYTES, decode, encode
from distrl.wire.convert import NAMES
from distrl.wire.decoder import Decoder, decoder
from distrl.wire.schemas import Schema, catalogue

from tests.wire.records import EXAMPLES, KINDS
from tests.wire.write_fixtures import fixture

ROOM_BYTES = 64 * 1024 * 1024
"""What decoding may take beyond what the process has: far more than a mutant has bytes, far less than it may claim."""

KIND_OF = {NAMES[kind]: kind for kind in KINDS}
NEWEST = {schema.header for schema in catalogue().newest.values()}
DECODERS = {schema.header: decoder(schema.parsed) for schema in catalogue().by_fingerprint.values()}
OLDER = [schema for schema in catalogue().by_fingerprint.values() if schema.header not in NEWEST]
GOOD = [
    *((type(record), encode(record)) for record in EXAMPLES),
    *((KIND_OF[schema.record], fixture(schema).read_bytes()) for schema in OLDER),
]
"""What is mutated: records of every version that has landed."""
Mutate = Callable[[np.random.Generator, bytes], bytes]


def varint(number: int) -> bytes:
    """Avro's variable-length zig-zag form of a 64-bit integer."""
    rest = ((number << 1) ^ (number >> 63)) & (2**64 - 1)
    out = bytearray()
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*out, rest])


CLAIMS = [varint(n) for n in (-(2**63), -(2**31), -2, -1, 0, 1, 2**20, 2**31, 2**32, 2**40, 2**62, 2**63 - 1)]


def flipped(rng: np.random.Generator, good: bytes) -> bytes:
    data = np.frombuffer(good, np.uint8).copy()
    for bit in rng.integers(0, 8 * len(data), rng.integers(1, 9)):
        data[bit >> 3] ^= 1 << (bit & 7)
    return data.tobytes()


def cut(rng: np.random.Generator, good: bytes) -> bytes:
    return good[: rng.integers(0, len(good))]


def grown(rng: np.random.Generator, good: bytes) -> bytes:
    return good + rng.bytes(rng.integers(1, 64))


def spliced(rng: np.random.Generator, good: bytes) -> bytes:
    """A stretch of one record in the place of a stretch of another."""
    _, other = GOOD[rng.integers(len(GOOD))]
    (a, b), (c, d) = (sorted(rng.integers(HEADER_BYTES, len(each) + 1, 2)) for each in (good, other))
    return good[:a] + other[c:d] + good[b:]


def claiming(rng: np.random.Generator, good: bytes) -> bytes:
    """A length, a count or an index that claims anything up to 64 bits, and either sign."""
    at = rng.integers(HEADER_BYTES, len(good))
    return good[:at] + CLAIMS[rng.integers(len(CLAIMS))] + good[at + 1 :]


def noise_after_the_header(rng: np.random.Generator, good: bytes) -> bytes:
    return good[:HEADER_BYTES] + rng.bytes(rng.integers(0, 256))


def noise(rng: np.random.Generator, _: bytes) -> bytes:
    return rng.bytes(rng.integers(0, 256))


MUTATIONS: tuple[Mutate, ...] = (flipped, cut, grown, spliced, claiming, noise_after_the_header, noise)


def mutant(rng: np.random.Generator) -> tuple[type[Record], bytes]:
    """A mutant, and what a reader expects it to be: mostly its own kind."""
    kind, good = GOOD[rng.integers(len(GOOD))]
    if rng.integers(16) == 0:
        kind = KINDS[rng.integers(len(KINDS))]
    return kind, MUTATIONS[rng.integers(len(MUTATIONS))](rng, good)


def by_writing_again(schema: Schema, body: bytes) -> str | None:
    """What fastavro reads in `body`, None where that would not be written as it is there: the canonical form's meaning,
    held against the decoder. As text, in which NaN equals NaN.
    """
    source, out = BytesIO(body), BytesIO()
    try:
        datum = fastavro.schemaless_reader(source, schema.parsed, None)
        fastavro.schemaless_writer(out, schema.parsed, datum)
    except (EOFError, IndexError, TypeError, ValueError, OverflowError, KeyError, struct.error):
        return None
    return repr(datum) if out.getvalue() == body else None


def by_decoder(decode: Decoder, body: bytes) -> str | None:
    """As `by_writing_again`, by a decoder of ours."""
    try:
        datum, end = decode(body, 0)
    except (IndexError, ValueError, struct.error):
        return None
    return repr(datum) if end == len(body) else None


def limit_memory() -> None:
    """Let this process grow by ROOM_BYTES and no more. Raises RuntimeError where the system does not hold it to it."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + ROOM_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    try:
        bytes(2 * ROOM_BYTES)
    except MemoryError:
        return
    raise RuntimeError("the limit of memory does not hold")


def main(count: int, seed: int) -> dict[str, float]:
    rng = np.random.default_rng(seed)
    limit_memory()
    read, older, slowest = 0, 0, 0.0
    for _ in range(count):
        kind, payload = mutant(rng)
        header, body = payload[:HEADER_BYTES], payload[HEADER_BYTES:]
        if header in DECODERS:
            schema = catalogue().by_fingerprint[header[2:]]
            assert by_decoder(DECODERS[header], body) == by_writing_again(schema, body), "two readers, one verdict"
        began = time.process_time()
        try:
            record = decode(payload, kind)
        except WireError:
            continue
        finally:
            slowest = max(slowest, time.process_time() - began)
        if header in NEWEST:
            assert len(encode(record)) == len(payload), "what is read says all that is there"
        else:
            older += 1
        read += 1
    return {"read": read, "older": older, "refused": count - read, "slowest_s": slowest}


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), int(sys.argv[2]))))
