"""Whether two revisions learn the same from one log, bit for bit.

    python bench/same_bits.py --against main~3

A log is made once for a seed (kept under --directory): demonstrations, then trajectories of scripts that err, among
them interrupted and unjudged ones, episodes that the step limit cut off, screens that never rested, repeated task ids,
a screenshot that is no image, and records that nobody can read. This work tree folds it, and so does a work tree of the
other revision, each with its own code: through the warm-up, the critics' own updates and A-RIDE, once with a state
that goes through a checkpoint on the way; screenshots are looked at ahead, as a learner does. Every published version
and the final state are compared, tensor by tensor.

A tensor may have another name and a version's file another form; its numbers may not differ. Ends with 1 where they do.
The other revision is folded by its own copy of this script, which knows the names of its settings.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import revision
import safetensors.numpy
from distrl.broker.reader import RawRecord
from distrl.broker.topics import topic_name
from distrl.config import Config, PolicySettings, load
from distrl.errors import WireError
from distrl.learner.fold import usable_of
from distrl.learner.publish import publishes
from distrl.learner.ranks import Leader
from distrl.learner.reading import TOPICS, pending_log_at, take
from distrl.learner.skipped import SkippedRecords
from distrl.learner.state import LearnerState
from distrl.policy.actions import to_text
from distrl.policy.protocol import Tokenizer
from distrl.policy.registry import tokenizer_of
from distrl.ranks.group import ALONE
from distrl.runs.settings import learning_fingerprint
from distrl.store.objects import ObjectStore, open_store
from distrl.tasks.gestures import event_of
from distrl.tasks.oracle import ImperfectScript
from distrl.tasks.outcome import succeeded
from distrl.tasks.suite import suites
from distrl.types import ActionKind, LogPosition, Outcome, Split, Step, Task, Trajectory, Update
from distrl.wire.codec import encode
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from simphone.machine import PhoneMachine

Arrays = dict[str, NDArray[Any]]

RUN = "same-bits"
DEMONSTRATIONS, TRAJECTORIES = 24, 448
SETTINGS = (
    "warmup.demonstrations=24",
    "warmup.updates=6",
    "warmup.minibatches=4",
    "warmup.batch_size=16",
    "algorithm.critic_warmup_updates=4",
    "algorithm.minibatches=2",
    "algorithm.batch_size=16",
    "algorithm.replay.capacity=600",
    "algorithm.truncation=bootstrap",
    "learner.trajectories_per_update=4",
    "learner.publish_every=3",
    "learner.rebuild_window=20000",
)
"""Of this revision. Small batches, so that more than a hundred updates take a minute or two; a buffer that is filled
more than once; every reading of the log."""
CHECKPOINT_AT = 40
"""Updates after which the state goes through a checkpoint."""
AHEAD = 16
"""Pending trajectories whose screenshots are looked at while an update is folded: those of the next windows, too."""


def settings(store: Path) -> Config:
    return load(sets=[f"run={RUN}", f"store.url=file://{store}", *SETTINGS], environ={})


def write_log(directory: Path, seed: int) -> None:
    """Make the log: `objects/`, and for each topic a line per record, its key and value in hex."""
    config = settings(directory / "objects")
    store, tokenizer = open_store(config.store), tokenizer_of(PolicySettings())
    rule = random.Random(seed)
    for name, count in zip(TOPICS, (DEMONSTRATIONS, TRAJECTORIES), strict=True):
        lines = []
        for index in range(count):
            trajectory = episode(index, name == "demonstrations", tokenizer, store, rule)
            lines += [record for each in spoilt(trajectory, index, store, rule) for record in each]
        (directory / f"{name}.hex").write_text("".join(f"{key.hex()} {value.hex()}\n" for key, value in lines))


def episode(index: int, expert: bool, tokenizer: Tokenizer, store: ObjectStore, rule: random.Random) -> Trajectory:
    """A script that errs, on a phone in this process."""
    task = suites()["home"].task(index, 4000 + expert, Split.TRAIN)
    task = dataclasses.replace(task, task_id=f"{'demo' if expert else 'task'}-{index}")
    phone, script = PhoneMachine(task.phone_seed, 0.1), ImperfectScript(task.phone_seed ^ rule.getrandbits(20))
    phone.reset(task.phone_seed, json.loads(task.setup))
    steps: list[Step] = []
    while len(steps) < task.max_steps and (not steps or steps[-1].action.kind is not ActionKind.COMPLETE):
        action, logprob = script.act(task, phone.state())
        prompt = tokenizer.encode_prompt(task.instruction, [step.action for step in steps])
        shot = store.put("screenshots", phone.png(), "png")
        steps.append(
            Step(
                shot,
                prompt,
                tokenizer.encode_action(action),
                action,
                to_text(action),
                logprob - rule.random(),
                0,
                "",
                len(steps),
                restless=rule.random() < 0.05,
            )
        )
        if (event := event_of(action)) is not None:
            phone.apply(event)
    outcome = Outcome.SUCCESS if succeeded(task, phone.state()) else Outcome.FAILURE
    final = store.put("screenshots", phone.png(), "png")
    return Trajectory(task, "a", "w", "d", tuple(steps), final, outcome, "ground-truth", "", expert, 0, 0)


def spoilt(
    trajectory: Trajectory, index: int, store: ObjectStore, rule: random.Random
) -> Iterator[list[tuple[bytes, bytes]]]:
    """The records that stand in the log for one trajectory: now and then one that is not to be learned from."""
    key, plain = trajectory.task_id.encode(), trajectory
    if index % 9 == 4:
        yield [(b"noise", rule.randbytes(40))]
    if index % 11 == 5:
        away = dataclasses.replace(plain, outcome=Outcome.INTERRUPTED, task=_renamed(plain.task, "-interrupted"))
        yield [(away.task_id.encode(), encode(away))]
    if index % 13 == 6:
        plain = dataclasses.replace(plain, outcome=Outcome.UNKNOWN)
    if index % 17 == 7:
        torn = store.put("screenshots", b"no image" + rule.randbytes(8), "png")
        steps = (*plain.steps[:-1], dataclasses.replace(plain.steps[-1], screenshot=torn))
        plain = dataclasses.replace(plain, steps=steps)
    if index % 5 == 2 and len(plain.steps) > 1:  # cut off by the limit, before the policy said that it was done
        short = dataclasses.replace(plain.task, max_steps=len(plain.steps) - 1)
        plain = dataclasses.replace(plain, task=short, steps=plain.steps[:-1], outcome=Outcome.FAILURE)
    yield [(key, encode(plain))]
    if index % 19 == 8:
        yield [(key, encode(dataclasses.replace(plain, attempt_id="again")))]


def _renamed(task: Task, more: str) -> Task:
    return dataclasses.replace(task, task_id=task.task_id + more)


def fold_log(directory: Path, out: Path) -> None:
    """Fold the log with this revision's code. Writes `version-<update>.npz` and `state.npz`."""
    out.mkdir(parents=True, exist_ok=True)
    config = settings(directory / "objects")
    store = open_store(config.store)
    state = LearnerState(config)
    pending_log, aside = pending_log_at(config, ()), SkippedRecords(())
    for name in TOPICS:
        for offset, line in enumerate((directory / f"{name}.hex").read_text().splitlines()):
            key, value = (bytes.fromhex(part) for part in line.split(" "))
            raw = RawRecord(LogPosition(topic_name(RUN, name), 0, offset), key, value, 0)
            try:
                take(raw, pending_log, aside)
            except WireError:
                aside.add(raw.position)
    skipped = 0.0
    leader = Leader(config, ALONE, store.get, threading.Event())
    leader.begin(state)
    while (due := pending_log.due(state.u, config)) is not None:
        update = Update(state.u, due, learning_fingerprint(config), 0, aside.due(due))
        leader.want(state.screens(usable_of(state, pending_log.pending[:AHEAD])))
        skipped += leader.fold(pending_log.window(due), update)["skipped"]
        aside.journalled(update)
        pending_log.folded(due)
        leader.forget(pending_log.pending)
        if publishes(state.u, config):
            np.savez(out / f"version-{state.u - 1:05}.npz", **numbers(safetensors.numpy.load(state.policy.adapter())))
        if state.u == CHECKPOINT_AT:
            state = LearnerState.restore(config, state.meta(), state.tensors(), state.held())
            leader.begin(state)
    leader.close()
    np.savez(out / "state.npz", **numbers(state.tensors()))
    print(json.dumps({"updates": state.u, "skipped": skipped, "duplicates": pending_log.duplicates}))


def numbers(tensors: Mapping[str, NDArray[Any]]) -> Arrays:
    return {name.replace("/", "|"): np.asarray(value) for name, value in tensors.items()}


def compare(here: Path, there: Path) -> list[tuple[str, str, bool]]:
    """(file, what was found, whether the numbers are equal) of each file of either side."""
    files = sorted({path.name for side in (here, there) for path in side.glob("*.npz")})
    return [(name, *_compared(here / name, there / name)) for name in files]


def _compared(here: Path, there: Path) -> tuple[str, bool]:
    if not (here.exists() and there.exists()):
        return f"only {'here' if here.exists() else 'there'}", False
    ours, theirs = (dict(np.load(path)) for path in (here, there))
    if ours.keys() == theirs.keys():
        differing = sorted(name for name in ours if _digest(ours[name]) != _digest(theirs[name]))
        return (f"differ: {', '.join(differing)[:200]}" if differing else f"{len(ours)} tensors"), not differing
    mine, yours = (Counter(map(_digest, side.values())) for side in (ours, theirs))
    if mine == yours:
        return f"{len(ours)} tensors, {len(ours.keys() - theirs.keys())} under other names", True
    only = [len(ours.keys() - theirs.keys()), len(theirs.keys() - ours.keys())]
    return f"{(mine - yours).total()} tensors only here, {(yours - mine).total()} only there; names {only}", False


def _digest(value: NDArray[Any]) -> str:
    return hashlib.sha256(f"{value.dtype.str} {value.shape}".encode() + value.tobytes()).hexdigest()


def fold_with(tree: Path, log: Path, out: Path, python: str) -> None:
    """Run the script of `tree` with the code of `tree`."""
    environ = os.environ | {"PYTHONPATH": str(tree / "pipeline")}
    script = [python, str(tree / "bench" / "same_bits.py"), "--fold", str(log), "--out", str(out)]
    said = subprocess.run(script, cwd=tree, env=environ, check=True, capture_output=True, text=True).stdout
    print(f"{out.name}: {said.splitlines()[-1]}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", help="the other revision, as git names it")
    parser.add_argument("--seed", type=int, default=0, help="of the log")
    parser.add_argument("--directory", type=Path, default=Path("out/same-bits"), help="where the log is kept")
    parser.add_argument("--python", default=sys.executable, help="interpreter with the other revision's packages")
    parser.add_argument("--fold", type=Path, help="only fold the log in this directory, with this revision's code")
    parser.add_argument("--out", type=Path, help="with --fold: where versions and state go")
    given = parser.parse_args(arguments)
    if given.fold is not None and given.out is not None:
        fold_log(given.fold, given.out)
        return 0
    if given.against is None:
        parser.error("--against REV is needed, the revision to compare with")
    log = given.directory.absolute() / f"log-{given.seed}"
    if not (log / "trajectories.hex").exists():
        (log / "objects").mkdir(parents=True, exist_ok=True)
        print(f"making the log in {log}", flush=True)
        write_log(log, given.seed)
    with tempfile.TemporaryDirectory() as temporary, revision.checkout(given.against) as tree:
        here, there = Path(temporary) / "here", Path(temporary) / "there"
        fold_with(revision.ROOT, log, here, sys.executable)
        fold_with(tree, log, there, given.python)
        found = compare(here, there)
    table = Table(title=f"this work tree against {given.against}")
    for column in ("file", "found", "equal"):
        table.add_column(column)
    for name, what, equal in found[-1:] + [row for row in found[:-1] if not row[2]]:
        table.add_row(name, what, "yes" if equal else "NO")
    Console().print(table)
    versions = [equal for name, _, equal in found if name.startswith("version")]
    print(f"{sum(versions)} of {len(versions)} versions equal; final state {'equal' if found[0][2] else 'NOT equal'}")
    return 0 if all(equal for _, _, equal in found) else 1


if __name__ == "__main__":
    sys.exit(main())
