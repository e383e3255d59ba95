"""What an ablation has done, kept beside its report, so that one that was interrupted goes on where it was.

An arm's fold is kept under the sha256 of all that it follows from: settings, the records of the range, the state that
it begins with, the base model, this code, and the processor and the packages that do its sums. What is found under that
name is therefore the fold, bit for bit; anything else is folded anew. The adapter is written first, and what names it
last.

Its success on phones is a file of its own beside the fold, under what it follows from in addition: what was played, and
where. So whatever becomes of the playing, or is asked of it next, no arm is folded again for it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import platform
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import PIL
import simphone
import torch

import distrl
from distrl.evaluate.curves import Score
from distrl.learner.run_settings import learning_fingerprint
from distrl.offline.ablation.arms import Arm
from distrl.offline.ablation.fold import Folded, Identity
from distrl.offline.ablation.log import Branch, RunLog
from distrl.offline.ablation.report import Evaluated, Result
from distrl.offline.estimates import Estimate
from distrl.offline.files import write
from distrl.wire.codec import encode

log = logging.getLogger(__name__)

FORMAT: Final = 2
FOLDER: Final = "arms"
CPUINFO: Final = Path("/proc/cpuinfo")


class KeptArms:
    """The kept arms of one report's folder.

    asked: what an arm's success follows from beside the arm (JSON-able), None where nothing is played. checkpoint:
    whether the run has one of the range's last update, which the baseline can be held against.
    """

    def __init__(self, folder: Path, range_: RunLog, asked: object, *, checkpoint: bool = False) -> None:
        self._folder = folder / FOLDER
        self._asked = asked
        self._checkpoint = checkpoint
        self._versions = _versions(range_)
        self._common = {
            "format": FORMAT,
            "range": range_digest(range_),
            "code": code_digest(),
            "machine": machine(),
        }

    def file(self, arm: Arm) -> Path:
        """Where the arm's fold is kept, or would be."""
        config = arm.config
        parts = {
            **self._common,
            "run": config.run,
            "sets": arm.sets,
            "versions": None if arm.sets else self._versions,
            "settings": learning_fingerprint(config),
            "threads": config.learner.torch_threads,
        }
        return self._folder / f"{_sha256(parts)}.json"

    def success_file(self, folded: Folded) -> Path:
        """Where the success of a folded arm is kept, or would be."""
        return self.file(folded.arm).with_suffix(f".{_sha256([folded.adapter_sha256, self._asked])}.json")

    def files(self, arm: Arm) -> list[Path]:
        """All that is kept of the arm: its fold, and its success in whatever was asked before."""
        file = self.file(arm)
        return [file, *self._folder.glob(f"{file.stem}.*.json")]

    def keep_fold(self, result: Result) -> None:
        """Keep an arm's fold once its adapter is written. Raises ConfigError where the folder cannot be written."""
        _write(self.file(result.folded.arm), _to_json(result))

    def keep_success(self, folded: Folded, evaluated: Evaluated) -> None:
        """Keep what a folded arm was played for. Raises ConfigError where the folder cannot be written.

        Success with episodes that nobody could judge, as where a phone was lost, is not: playing again may judge them.
        """
        if evaluated.score.others:
            log.info(
                "%s: %s episodes without an outcome, so its success is not kept",
                folded.arm.name,
                evaluated.score.others,
            )
            return
        _write(self.success_file(folded), asdict(evaluated))

    def find(self, arm: Arm, adapter: Path) -> Result | None:
        """What is kept of the arm, with its adapter from that file; None where either is missing or damaged.

        None too of a baseline for which the run had no checkpoint, where it has one now. What was compared with one
        stays true when the learner has deleted it. Without success where that is missing or damaged, or none is asked.
        """
        file = self.file(arm)
        try:
            kept, weights = file.read_bytes(), adapter.read_bytes()
        except OSError:
            return None
        body = _read(kept)
        result = None if body is None else _from_json(arm, weights, body)
        if result is None:
            log.warning("%s is damaged, or its adapter is: the arm %s is folded anew", file, arm.name)
            return None
        if self._checkpoint and _lacks_checkpoint(result):
            return None
        return replace(result, evaluated=None if self._asked is None else self._success(result.folded))

    def _success(self, folded: Folded) -> Evaluated | None:
        file = self.success_file(folded)
        try:
            kept = file.read_bytes()
        except OSError:
            return None
        body = _read(kept)
        if body is None:
            log.warning("%s is damaged: the arm %s is played again", file, folded.arm.name)
            return None
        return Evaluated(**body | {"score": Score(**body["score"])})


def range_digest(range_: RunLog) -> str:
    """sha256 over all that every arm reads: the state that it begins with, the updates and the records of each."""
    total = hashlib.sha256()
    total.update(repr(range_.span).encode())
    for part in [] if range_.begin is None else _branch(range_.begin):
        total.update(part)
    for update, window in range_.windows:
        total.update(repr((update.u, update.watermarks, update.put_aside, len(window))).encode())
    for logged in [*range_.records, *range_.held_out]:
        total.update(repr(logged.position).encode())
        total.update(encode(logged.trajectory))
    return total.hexdigest()


def _versions(range_: RunLog) -> list[tuple[int, str]]:
    """The published versions that the baseline is held against: what the run makes of later updates is no matter."""
    span = range_.span
    return sorted((update, sha256) for update, sha256 in range_.versions.items() if span.first <= update < span.to)


def _lacks_checkpoint(result: Result) -> bool:
    return result.identity is not None and result.identity.checkpoint is None


def _branch(branch: Branch) -> Iterator[bytes]:
    yield json.dumps([branch.u, branch.meta], sort_keys=True).encode()
    for name, value in sorted(branch.tensors.items()):
        yield f"{name} {value.dtype.str} {value.shape}\n".encode()
        yield np.ascontiguousarray(value).tobytes()
    for logged in branch.held:
        yield encode(logged.trajectory)


def machine() -> list[str]:
    """What decides on this machine how a sum is rounded and a screenshot decoded: processor and packages.

    The number of threads does too, and is a setting.
    """
    processor = [platform.machine(), _processor(), torch.backends.cpu.get_cpu_capability()]
    return [*processor, torch.__version__, np.__version__, PIL.__version__]


def _processor() -> str:
    """The model of the processor as Linux names it; empty where it names none."""
    try:
        lines = CPUINFO.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


@cache
def code_digest() -> str:
    """sha256 over the sources of distrl and its phones: another version may fold, or play, otherwise."""
    total = hashlib.sha256()
    for package in (distrl, simphone):
        root = Path(str(package.__file__)).parent
        for file in sorted(root.rglob("*.py")):
            total.update(f"{root.name}/{file.relative_to(root)}\n".encode())
            total.update(hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()


def _sha256(parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _write(file: Path, kept: dict[str, Any]) -> None:
    body = json.dumps(kept).encode()
    write(file, hashlib.sha256(body).hexdigest().encode() + b"\n" + body)


def _read(kept: bytes) -> dict[str, Any] | None:
    """What `_write` wrote; None where it is damaged."""
    sha256, _, body = kept.partition(b"\n")
    if hashlib.sha256(body).hexdigest().encode() != sha256:
        return None
    found: dict[str, Any] = json.loads(body)
    return found


def _to_json(result: Result) -> dict[str, Any]:
    """Fold and identity. Floats are written so that they are read back to the last bit."""
    folded, identity = result.folded, result.identity
    return {
        "adapter": folded.adapter_sha256,
        "updates": [[u, dict(metrics)] for u, metrics in folded.updates],
        "trajectories": folded.trajectories,
        "digests": dict(folded.digests),
        "base_sha256": folded.base_sha256,
        "estimates": {on: {name: asdict(each) for name, each in of.items()} for on, of in folded.estimates.items()},
        "diverged": folded.diverged,
        "seconds": folded.seconds,
        "identity": None if identity is None else [list(identity.versions.items()), identity.checkpoint],
    }


def _from_json(arm: Arm, weights: bytes, found: dict[str, Any]) -> Result | None:
    """None where `weights` are not the adapter's."""
    if hashlib.sha256(weights).hexdigest() != found["adapter"]:
        return None
    folded = Folded(
        arm,
        [(u, metrics) for u, metrics in found["updates"]],
        found["trajectories"],
        found["digests"],
        weights,
        found["base_sha256"],
        {on: {name: Estimate(**each) for name, each in of.items()} for on, of in found["estimates"].items()},
        found["diverged"],
        found["seconds"],
    )
    identity = found["identity"]
    return Result(folded, identity=None if identity is None else Identity(dict(identity[0]), identity[1]))
