"""A TCP proxy in front of a broker that may be cut, and may swallow one answer.

Kafka's frames: a length (int32), then for a request its API key (int16), version (int16) and correlation id (int32),
for an answer the correlation id. Brokers name themselves in their answers as host and port; both have a fixed size
here, so that the proxy puts its own port in the place of the broker's and clients stay with it.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading

from distrl.config import Config
from distrl.stack import ports

HOST = "127.0.0.1"
PRODUCE, METADATA, END_TRANSACTION = 0, 3, 26
DUPLICATE_SEQUENCE_NUMBER = 46


class Proxy:
    """One listener; two threads for each connection. `close` ends all."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._open = True
        self._swallow: tuple[int, bytes] | None = None
        self._then_cut = False
        self.swallowed = threading.Event()
        self._forgetful: bytes | None = None
        self._alone = False
        self.port = ports.draw("a test")  # no ephemeral one: while it is cut, another process could be given it
        self._listener = socket.create_server((HOST, self.port))
        self._real = HOST.encode() + struct.pack(">i", target)
        self._ours = HOST.encode() + struct.pack(">i", self.port)
        self._accept(self._listener)

    def swallow_answer(self, naming: bytes, key: int = PRODUCE, then_cut: bool = False) -> None:
        """The next answer to a request of API `key` that holds `naming` is lost, and its connection breaks; or all."""
        self._swallow, self._then_cut = (key, naming), then_cut

    def forget_places(self, topic: bytes) -> None:
        """From now on, what is written to the first partition of this topic's full name is acknowledged as by a broker
        that holds the record already, from an earlier try, and no longer knows at which offset."""
        self._forgetful = topic

    def leave_out_brokers(self, leave_out: bool = True) -> None:
        """From now on, no broker is named where the cluster is asked for: so does one that has just started and does
        not know itself yet."""
        self._alone = leave_out

    def cut(self) -> None:
        """Break every connection and refuse new ones, as a broker does that is gone."""
        with self._lock:
            self._open = False
            broken, self._sockets = self._sockets, set()
        for each in (self._listener, *broken):  # a listener that is closed alone still takes who comes next
            _break(each)

    def hint(self) -> None:
        self._open = True
        self._listener = socket.create_server((HOST, self.port))
        self._accept(self._listener)

    def close(self) -> None:
        self.cut()

    def _accept(self, listener: socket.socket) -> None:
        def loop() -> None:
            with contextlib.suppress(OSError):  # closed
                while True:
                    client, _ = listener.accept()
                    self._join(client)

        threading.Thread(target=loop, daemon=True).start()

    def _join(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection((HOST, self._target), timeout=5.0)
        except OSError:
            client.close()
            return
        server.settimeout(None)
        lost: set[int] = set()
        forgotten: set[int] = set()
        asking: set[int] = set()
        with self._lock:
            if is_open := self._open:
                self._sockets |= {client, server}
        if not is_open:  # cut, while it was made
            client.close()
            server.close()
            return
        for source, sink, answers in ((client, server, False), (server, client, True)):
            threading.Thread(
                target=self._pump, args=(source, sink, answers, lost, forgotten, asking), daemon=True
            ).start()

    def _pump(
        self,
        source: socket.socket,
        sink: socket.socket,
        answers: bool,
        lost: set[int],
        forgotten: set[int],
        asking: set[int],
    ) -> None:
        with contextlib.suppress(OSError):
            while (frame := _read_frame(source)) is not None:
                if answers:
                    if int.from_bytes(frame[:4], "big") in lost:
                        if self._then_cut:
                            self.cut()
                        self.swallowed.set()
                        break
                    frame = frame.replace(self._real, self._ours)
                    if int.from_bytes(frame[:4], "big") in forgotten:
                        frame = _without_place(frame, self._forgetful or b"")
                    if self._alone and int.from_bytes(frame[:4], "big") in asking:
                        frame = _without_brokers(frame)
                else:
                    self._note(frame, lost, forgotten, asking)
                sink.sendall(struct.pack(">i", len(frame)) + frame)
        for each in (source, sink):
            _break(each)
        with self._lock:
            self._sockets -= {source, sink}

    def _note(self, request: bytes, lost: set[int], forgotten: set[int], asking: set[int]) -> None:
        key, _, correlation = struct.unpack(">hhi", request[:8])
        if self._swallow is not None and self._swallow[0] == key and self._swallow[1] in request:
            self._swallow = None
            lost.add(correlation)
        if key == PRODUCE and self._forgetful is not None and self._forgetful in request:
            forgotten.add(correlation)
        if key == METADATA:
            asking.add(correlation)


def _without_place(answer: bytes, topic: bytes) -> bytes:
    """A produce answer (version 9 to 12): after the topic's name, the count of partitions (one byte), the partition
    (int32), the error (int16) and the base offset (int64)."""
    at = answer.index(topic) + len(topic) + 1 + 4
    return answer[:at] + struct.pack(">hq", DUPLICATE_SEQUENCE_NUMBER, -1) + answer[at + 10 :]


def _without_brokers(answer: bytes) -> bytes:
    """A metadata answer (version 9 to 13) whose array of brokers is empty. Before it: the correlation id, no tagged
    fields (one byte), the throttle time (int32). A broker: its id (int32), its host, its port (int32), its rack (null:
    one byte) and no tagged fields. Lengths are one byte here, and one more than what they count."""
    begin = at = 4 + 1 + 4
    count = answer[at] - 1
    at += 1
    for _ in range(count):
        at += 4
        at += answer[at] + 4 + 1 + 1
    return answer[:begin] + b"\x01" + answer[at:]


def _read_frame(source: socket.socket) -> bytes | None:
    head = _read(source, 4)
    return None if head is None else _read(source, int.from_bytes(head, "big"))


def _read(source: socket.socket, size: int) -> bytes | None:
    found = b""
    while len(found) < size:
        more = source.recv(size - len(found))
        if not more:
            return None
        found += more
    return found


def _break(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()


def behind(proxy: Proxy, config: Config, **kafka: float) -> Config:
    """The settings of a role that reaches its broker through the proxy; others of `kafka` by name."""
    changed = config.kafka.model_copy(update={"bootstrap": f"{HOST}:{proxy.port}"} | kafka)
    return config.model_copy(update={"kafka": changed})
