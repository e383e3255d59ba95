"""Persists the finished arms of an ablation beside its report, so that an interrupted one goes on where it was.

An arm's fold is saved under the sha256 of everything that determines it: settings, the records of the range, the first
state, the base model, this code, and the processor and packages that do the sums. A file of that name is therefore the
fold, bit for bit; otherwise the arm is folded again. The adapter is written first, the file that names it last. Its
name has a part of that sha256, and not the arm's number in the plan: another plan may have the same arms elsewhere.

The success on phones is a file of its own, whose name adds what was played and where. So playing again, or playing
something else, folds no arm again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from distrl.accelerator import gpu
from distrl.files import write
from distrl.offline.ablation.arms import Arm
from distrl.offline.ablation.fold import Folded, Identity
from distrl.offline.ablation.log import Branch, RunLog
from distrl.offline.ablation.report import Evaluated, Result
from distrl.offline.estimates import Estimate
from distrl.plugins import files_sha256, sources_sha256
from distrl.processor import processor_and_packages
from distrl.runs.plugin_code import packages
from distrl.runs.settings import learning_fingerprint
from distrl.wire.codec import encode

log = logging.getLogger(__name__)

FORMAT: Final = 3
FOLDER: Final = "arms"
ADAPTERS: Final = "adapters"


class PersistedArms:
    """The persisted arms in the folder of one report.

    asked: what determines an arm's success besides the arm (`played_on`, JSON-able); None where nothing is played.
    checkpoint: whether the run has a checkpoint of the range's last update, to compare the baseline with.
    """

    def __init__(self, folder: Path, run_log: RunLog, asked: object, *, checkpoint: bool = False) -> None:
        self._root, self._folder = folder, folder / FOLDER
        self._asked = asked
        self._checkpoint = checkpoint
        self._versions = _versions(run_log)
        self._common = {
            "format": FORMAT,
            "range": range_digest(run_log),
            "machine": processor_and_packages(),
        }

    def file(self, arm: Arm) -> Path:
        """The file of the arm's fold."""
        config = arm.config
        parts = {
            **self._common,
            "code": code_digest(packages(config).values()),
            "run": config.run,
            "sets": arm.sets,
            "versions": None if arm.sets else self._versions,
            "settings": learning_fingerprint(config),
            "threads": config.learner.torch_threads,
            "gpu": gpu(config.learner.device, "learner.device"),
        }
        return self._folder / f"{_sha256(parts)}.json"

    def adapter(self, arm: Arm) -> str:
        """Path of the arm's adapter within the report's folder."""
        name = re.sub(r"[^A-Za-z0-9._=-]+", "_", arm.name)[:80]
        return f"{ADAPTERS}/{name}-{self.file(arm).stem[:12]}.safetensors"

    def success_file(self, folded: Folded) -> Path:
        """The file of a folded arm's success."""
        return self.file(folded.arm).with_suffix(f".{_sha256([folded.adapter_sha256, self._asked])}.json")

    def files(self, arm: Arm) -> list[Path]:
        """All files of the arm: its fold, its adapter, and its success in everything that was played."""
        file = self.file(arm)
        return [file, self._root / self.adapter(arm), *self._folder.glob(f"{file.stem}.*.json")]

    def save_fold(self, result: Result) -> None:
        """Save an arm's fold and its adapter. Raises ConfigError where the folder cannot be written."""
        write(self._root / self.adapter(result.folded.arm), result.folded.adapter)
        _write(self.file(result.folded.arm), _to_json(result))

    def save_success(self, folded: Folded, evaluated: Evaluated) -> None:
        """Save the success of a folded arm. Raises ConfigError where the folder cannot be written.

        Not saved with episodes without an outcome, as where a phone was lost: playing again may give them one.
        """
        if evaluated.others:
            log.info(
                "%s: %s episodes without an outcome, so its success is not saved",
                folded.arm.name,
                evaluated.others,
            )
            return
        _write(self.success_file(folded), asdict(evaluated))

    def find(self, arm: Arm) -> Result | None:
        """The persisted result of the arm; None where its fold or its adapter is missing or damaged.

        Also None for a baseline that was not compared with a checkpoint where the run has one now. (A comparison made
        stays valid once the learner deletes the checkpoint.) `evaluated` is None where the success is missing or
        damaged, or nothing is played.
        """
        file = self.file(arm)
        try:
            content, weights = file.read_bytes(), (self._root / self.adapter(arm)).read_bytes()
        except OSError:
            return None
        body = _read(content)
        result = None if body is None else _from_json(arm, weights, body)
        if result is None:
            log.warning("%s is damaged, or its adapter is: the arm %s is folded again", file, arm.name)
            return None
        if self._checkpoint and _lacks_checkpoint(result):
            return None
        return replace(result, evaluated=None if self._asked is None else self._success(result.folded))

    def _success(self, folded: Folded) -> Evaluated | None:
        file = self.success_file(folded)
        try:
            content = file.read_bytes()
        except OSError:
            return None
        body = _read(content)
        if body is None:
            log.warning("%s is damaged: the arm %s is played again", file, folded.arm.name)
            return None
        return Evaluated(**body)


def range_digest(run_log: RunLog) -> str:
    """sha256 over what every arm reads: the first state, and the records of each update."""
    total = hashlib.sha256()
    total.update(repr(run_log.range).encode())
    for part in [] if run_log.begin is None else _branch(run_log.begin):
        total.update(part)
    for update, window in run_log.windows:
        total.update(repr((update.u, update.watermarks, update.put_aside, len(window))).encode())
    for logged in [*run_log.records, *run_log.held_out]:
        total.update(repr(logged.position).encode())
        total.update(encode(logged.trajectory))
    return total.hexdigest()


def _versions(run_log: RunLog) -> list[tuple[int, str]]:
    """The published versions that the baseline is compared with: those of the range's updates."""
    folded = run_log.range
    return sorted((update, sha256) for update, sha256 in run_log.versions.items() if folded.first <= update < folded.to)


def _lacks_checkpoint(result: Result) -> bool:
    return result.identity is not None and result.identity.checkpoint is None


def _branch(branch: Branch) -> Iterator[bytes]:
    yield json.dumps([branch.u, branch.meta], sort_keys=True).encode()
    for name, value in sorted(branch.tensors.items()):
        yield f"{name} {value.dtype.str} {value.shape}\n".encode()
        yield np.ascontiguousarray(value).tobytes()
    for logged in branch.held:
        yield encode(logged.trajectory)


def code_digest(others: Iterable[str]) -> str:
    """sha256 over the sources of distrl and simphone, and the files of the `others`, packages that bring the policy or
    the algorithm: another version may fold or play differently."""
    ours, theirs = sources_sha256("distrl", "simphone"), [files_sha256(package) for package in sorted({*others})]
    return _sha256([ours, *theirs]) if theirs else ours


def _sha256(parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _write(file: Path, body: dict[str, Any]) -> None:
    encoded = json.dumps(body).encode()
    write(file, hashlib.sha256(encoded).hexdigest().encode() + b"\n" + encoded)


def _read(content: bytes) -> dict[str, Any] | None:
    """The body that `_write` wrote; None where it is damaged."""
    sha256, _, body = content.partition(b"\n")
    if hashlib.sha256(body).hexdigest().encode() != sha256:
        return None
    found: dict[str, Any] = json.loads(body)
    return found


def _to_json(result: Result) -> dict[str, Any]:
    """Fold and identity. JSON keeps floats exactly."""
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
