"""How settings are chosen: the very fold of the learner on in-process phones, scored on the validation split.

No broker, no adb, no store: an update is `trajectories_per_update` episodes under weights that lag by `--lag`
versions, then one fold. Prints a line every `--every` updates. Never looks at the test split.

    python bench/learning.py --seed 0 --updates 60 --set algorithm.entropy=0.004
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import time
from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np
import torch
from distrl.algorithms.episodes import step_at
from distrl.config import Config, load
from distrl.images import size
from distrl.learner.fold import fold
from distrl.learner.state import LearnerState
from distrl.policy import protocol
from distrl.policy.actions import to_text
from distrl.policy.registry import policy_of
from distrl.policy.sampling import Sampling, each_by_episode
from distrl.runs.settings import learning_fingerprint
from distrl.tasks.gestures import event_of
from distrl.tasks.oracle import ImperfectScript
from distrl.tasks.outcome import succeeded
from distrl.tasks.suite import suites
from distrl.types import (
    Action,
    ActionKind,
    LoggedTrajectory,
    LogPosition,
    ObjectRef,
    Outcome,
    Split,
    Step,
    Task,
    Trajectory,
    Update,
    Watermark,
)
from simphone.machine import PhoneMachine

Objects = dict[str, bytes]
SHOWN = (
    "policy_loss",
    "value_loss",
    "entropy",
    "ratio",
    "clipped",
    "value_accuracy",
    "critic_sample_share",
    "groups",
    "groups_alike",
    "td_error",
    "demonstrated",
    "skipped",
    "buffer",
)
Choose = Callable[
    [list[Task], list[PhoneMachine], list[list[Step]]], list[tuple[tuple[int, ...], tuple[int, ...], Action, float]]
]


def keep(objects: Objects, png: bytes) -> ObjectRef:
    name = hashlib.sha256(png).hexdigest()
    objects[name] = png
    return ObjectRef(f"screenshots/{name}.png", name, len(png))


def episodes(
    tasks: Sequence[Task], choose: Choose, objects: Objects, popups: float, expert: bool, generation: int = 0
) -> list[Trajectory]:
    """Play the tasks side by side, one decision a round, on phones of that generation of the UI."""
    phones = [PhoneMachine(task.phone_seed, popups, generation) for task in tasks]
    for phone, task in zip(phones, tasks, strict=True):
        phone.reset(task.phone_seed, json.loads(task.setup))
    steps: list[list[Step]] = [[] for _ in tasks]
    live = list(range(len(tasks)))
    while live:
        chosen = choose([tasks[i] for i in live], [phones[i] for i in live], [steps[i] for i in live])
        for i, (prompt, ids, action, logprob) in zip(live, chosen, strict=True):
            shot = keep(objects, phones[i].png())
            steps[i].append(Step(shot, prompt, ids, action, to_text(action), logprob, 0, "", 0))
            if (event := event_of(action)) is not None:
                phones[i].apply(event)
        live = [
            i for i in live if len(steps[i]) < tasks[i].max_steps and steps[i][-1].action.kind != ActionKind.COMPLETE
        ]
    return [
        Trajectory(
            task,
            "a",
            "bench",
            "bench",
            tuple(taken),
            keep(objects, phone.png()),
            Outcome.SUCCESS if succeeded(task, phone.state()) else Outcome.FAILURE,
            "ground-truth",
            "",
            expert,
            0,
            0,
        )
        for task, phone, taken in zip(tasks, phones, steps, strict=True)
    ]


def policy(agent: protocol.Policy, sampling: Sampling | None, seed: int, objects: Objects) -> Choose:
    """objects: those that the episodes are kept in, for a policy that reads earlier screens."""
    rule = np.random.default_rng(seed)

    def choose(tasks, phones, steps):  # type: ignore[no-untyped-def]
        pngs = [phone.png() for phone in phones]
        prompts = [
            agent.tokenizer.encode_prompt(task.instruction, [step.action for step in taken], size(png))
            for task, taken, png in zip(tasks, steps, pngs, strict=True)
        ]
        seeds = rule.integers(2**62, size=len(tasks)).tolist()
        last = [taken[max(0, len(taken) - agent.earlier_screens) :] for taken in steps]
        earlier = [[objects[step.screenshot.sha256] for step in taken] for taken in last]

        def decide(own, rows):
            shown, read, drawn, before = ([each[row] for row in rows] for each in (pngs, prompts, seeds, earlier))
            return agent.decide(shown, read, own, drawn, before)

        decided = each_by_episode(sampling, [task.task_id for task in tasks], decide)
        return [(p, d.action_ids, d.action, d.logprob) for p, d in zip(prompts, decided, strict=True)]

    return choose


def script(agent: protocol.Policy, seed: int) -> Choose:
    scripts: dict[str, ImperfectScript] = {}

    def choose(tasks, phones, steps):  # type: ignore[no-untyped-def]
        found = []
        for task, phone, taken in zip(tasks, phones, steps, strict=True):
            one = scripts.setdefault(task.task_id, ImperfectScript(task.phone_seed ^ seed))
            action, logprob = one.act(task, phone.state())
            screen = size(phone.png())
            prompt = agent.tokenizer.encode_prompt(task.instruction, [step.action for step in taken], screen)
            found.append((prompt, agent.tokenizer.encode_action(action, screen), action, logprob))
        return found

    return choose


def evaluate(
    agent: protocol.Policy, config: Config, split: Split, count: int, sampling: Sampling | None = None
) -> tuple[float, str]:
    suite = suites()[config.feeder.suite]
    tasks = [suite.task(index, 0, split) for index in range(count)]
    objects: Objects = {}
    found = episodes(tasks, policy(agent, sampling, 1, objects), objects, config.phones.popup_probability, False)
    families: dict[str, list[bool]] = defaultdict(list)
    for trajectory in found:
        families[trajectory.task.family].append(trajectory.outcome is Outcome.SUCCESS)
    text = " ".join(f"{name}={np.mean(won):.2f}" for name, won in sorted(families.items()))
    return float(np.mean([won for each in families.values() for won in each])), text


def calibration(state: LearnerState, config: Config) -> str:
    """V(s_0) of the buffer's trajectories beside what it estimates, the mean of γ^H · success."""
    entries = [entry for buffer in state.algorithm.memory.buffers.values() for entry in buffer.entries]
    gamma = getattr(config.algorithm, "gamma", 1.0)
    truth = [gamma ** (len(entry) - 1) * (entry.logged.trajectory.outcome is Outcome.SUCCESS) for entry in entries]
    found = state.algorithm.values([step_at(entry, 0) for entry in entries]) if entries else None
    return "" if found is None else f"V(s0)={np.mean(found):.3f} true={np.mean(truth):.3f}"


class Run:
    def __init__(self, config: Config) -> None:
        self.config = config
        self.state = LearnerState(config)
        self.actor = policy_of(config.policy)
        self.objects: Objects = {}
        self.ends = {"demonstrations": 0, "trajectories": 0}

    def fold(self, topic: str, records: Sequence[Trajectory]) -> dict[str, float]:
        begin = self.ends[topic]
        window = [
            LoggedTrajectory(
                LogPosition(topic, 0, begin + i),
                dataclasses.replace(r, task=dataclasses.replace(r.task, task_id=f"{topic}-{begin + i}")),
            )
            for i, r in enumerate(records)
        ]
        self.ends[topic] += len(records)
        marks = tuple(Watermark(name, 0, end) for name, end in sorted(self.ends.items()))
        update = Update(self.state.u, marks, learning_fingerprint(self.config), 0)
        return dict(fold(self.state, window, update, lambda ref: self.objects[ref.sha256], self.config))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--updates", type=int, default=60, help="A-RIDE updates, the critics' own included")
    parser.add_argument("--lag", type=int, default=1)
    parser.add_argument("--every", type=int, default=20)
    parser.add_argument("--episodes", type=int, default=128)
    parser.add_argument("--set", action="append", default=[])
    given = parser.parse_args()
    config = load(sets=[f"learner.seed={given.seed}", *given.set], environ={})
    torch.set_num_threads(config.learner.torch_threads)
    run, suite, popups = Run(config), suites()[config.feeder.suite], config.phones.popup_probability
    began = time.monotonic()
    tasks = [suite.task(index, 1000 + given.seed, Split.TRAIN) for index in range(config.warmup.demonstrations)]
    demos = episodes(tasks, script(run.state.policy, given.seed), run.objects, 0.0, True)
    done = np.mean([demo.outcome is Outcome.SUCCESS for demo in demos])
    print(f"demonstrations: success {done:.2f}, {time.monotonic() - began:.1f} s", flush=True)
    for u in range(config.warmup.updates):
        metrics = run.fold("demonstrations", demos if u == 0 else [])
    adapters = [run.state.policy.adapter()]
    print(f"cloned: loss {metrics.get('clone_loss', 0):.3f}, {time.monotonic() - began:.1f} s", flush=True)
    recent: list[bool] = []
    spent = {"act": 0.0, "fold": 0.0}
    for update in range(given.updates + 1):
        if update % given.every == 0:
            run.actor.load(adapters[-1])
            score, families = evaluate(run.actor, config, Split.VALIDATION, given.episodes)
            shown = " ".join(f"{name}={metrics[name]:.3f}" for name in SHOWN if name in metrics)
            print(
                f"u={update} n={run.ends['trajectories']} validation={score:.3f} "
                f"train={np.mean(recent[-160:] or [0]):.2f} {families} {shown} {calibration(run.state, config)} "
                f"act={spent['act']:.0f}s fold={spent['fold']:.0f}s",
                flush=True,
            )
        tick = time.monotonic()
        run.actor.load(adapters[max(0, len(adapters) - 1 - given.lag)])
        first = run.ends["trajectories"]
        numbers = range(first, first + config.learner.trajectories_per_update)
        tasks = [suite.task(number // config.episodes_per_task, given.seed, Split.TRAIN) for number in numbers]
        new = episodes(
            tasks,
            policy(run.actor, Sampling.of(config.worker), given.seed * 10**6 + update, run.objects),
            run.objects,
            popups,
            False,
        )
        recent += [t.outcome is Outcome.SUCCESS for t in new]
        tock = time.monotonic()
        metrics = run.fold("trajectories", new)
        spent["act"] += tock - tick
        spent["fold"] += time.monotonic() - tock
        adapters.append(run.state.policy.adapter())


if __name__ == "__main__":
    main()
