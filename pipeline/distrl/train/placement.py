"""Which phones each role of a run gets, where all roles run on one machine. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from distrl.config import Config
from distrl.errors import ConfigError

WORKERS = 2


@dataclass(frozen=True, slots=True)
class Placement:
    """The `--set` arguments that give each role its phones."""

    workers: tuple[tuple[str, ...], ...]
    evaluator: tuple[str, ...] | None
    """None: no phone is left for an evaluator."""
    demonstrator: tuple[str, ...] | None
    """None: the phones are not the simulated ones of the local stack, so the script cannot demonstrate on them."""


def place(config: Config, *, own: bool, workers: int, evaluation: int) -> Placement:
    """Split the phones of `config`: the last `evaluation` go to the evaluator, the others to the workers in turn.

    own: whether they are the simulated phones of the local stack. Emulators are started by the role that drives them,
    so one worker gets all. Raises ConfigError where no phone is left to train on.
    """
    devices = config.devices
    if devices.emulators.count:
        if evaluation:
            raise ConfigError(
                "--evaluation-phones",
                "emulators are started by the one worker that drives them",
                "leave it out, and evaluate with `distrl evaluate` and emulators of its own",
            )
        return Placement(((),), None, None)
    phones = [("addresses", each) for each in devices.addresses] + [("serials", each) for each in devices.serials]
    if evaluation >= len(phones):
        raise ConfigError(
            "devices.addresses",
            f"{len(phones)} phones are named, and {evaluation} of them evaluate: none is left to train on",
            "name more phones, or take fewer with --evaluation-phones",
        )
    training, held_out = phones[: len(phones) - evaluation], phones[len(phones) - evaluation :]
    shares = [training[index::workers] for index in range(workers) if training[index::workers]]
    return Placement(
        tuple(_sets(share) for share in shares),
        _sets(held_out) if held_out else None,
        _sets(training) if own else None,
    )


def why_fewer(config: Config, placement: Placement, *, own: bool, workers: int) -> str:
    """A message why fewer than `workers` start, and how to give the others phones; empty where all start."""
    start = len(placement.workers)
    if start >= workers:
        return ""
    if config.devices.emulators.count:
        why = "the emulators of a machine have one worker"
    else:
        why = f"each needs a phone to train on; {'raise phones.count' if own else 'name more in devices.addresses'}"
    return f"{start} of {workers} workers start: {why}"


def _sets(phones: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    kinds = {kind: [name for each, name in phones if each == kind] for kind in ("addresses", "serials")}
    return tuple(f"devices.{kind}={json.dumps(names)}" for kind, names in kinds.items())
