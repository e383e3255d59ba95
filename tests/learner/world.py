"""A base model of random weights, screens of noise and trajectories made of them: enough to fold."""

from __future__ import annotations

import hashlib
import io
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import factories
import numpy as np
import torch
from distrl.config import Config, load
from distrl.errors import StoreError
from distrl.learner.fold import fold
from distrl.learner.state import LearnerState
from distrl.policy.autoui.base import save_base
from distrl.policy.autoui.model import AutoUIModel, Shape
from distrl.policy.autoui.tokenizer import WordTokenizer
from distrl.policy.recurrent_q.directory import EYES, Described, make
from distrl.policy.recurrent_q.tokenizer import GridTokenizer
from distrl.policy.registry import tokenizer_of
from distrl.runs.settings import learning_fingerprint
from distrl.store.objects import ObjectStore
from distrl.types import (
    LoggedTrajectory,
    LogPosition,
    ObjectRef,
    Outcome,
    ScreenSize,
    Step,
    Trajectory,
    Update,
    Watermark,
)
from PIL import Image

WORDS = ("red", "shoes", "blue", "lamp", "search", "for", "touch")
RUN = "fold"
DEMONSTRATIONS, TRAJECTORIES = f"distrl.{RUN}.demonstrations", f"distrl.{RUN}.trajectories"
CODEC = WordTokenizer(WORDS)


def save_tiny_base(directory: Path) -> None:
    torch.manual_seed(3)
    model = AutoUIModel(Shape(len(CODEC.tokens), 64, 128, (8, 8, 16), d_model=32, d_ff=64, heads=2))
    save_base(directory, model, CODEC, {"how": "random"})


def q_base(directory: Path, eyes: Path, *, width: int = 8, recurrent: bool = True) -> Path:
    """A recurrent Q that sees by the base model in `eyes`."""
    make(directory, eyes, Described(width, recurrent))
    return directory


def read_by(tokenizer: GridTokenizer, logged: LoggedTrajectory) -> LoggedTrajectory:
    """The trajectory with the prompts that a recurrent Q reads."""
    steps = logged.trajectory.steps
    actions, instruction = [step.action for step in steps], logged.trajectory.task.instruction
    prompts = [
        tokenizer.encode_prompt(instruction, actions[:index], ScreenSize(64, 128)) for index in range(len(steps))
    ]
    read = tuple(replace(step, prompt_ids=prompt) for step, prompt in zip(steps, prompts, strict=True))
    return replace(logged, trajectory=replace(logged.trajectory, steps=read))


def config(directory: Path, *sets: str) -> Config:
    """Small everything: three warm-up updates, one of the critics alone, minibatches of eight."""
    return load(sets=sets, environ={}, base={"run": RUN, **learning(directory, checkpoint_every=2)})


def learning(
    base_model: Path, *, warmup_updates: int = 3, trajectories: int = 4, capacity: int = 60, checkpoint_every: int = 3
) -> dict[str, dict[str, Any]]:
    """The sections that the fold reads, small: one update of the critics alone, minibatches of eight."""
    return {
        "policy": {"base_model": str(base_model), "lora_rank": 2, "lora_alpha": 4},
        "warmup": {"demonstrations": 6, "updates": warmup_updates, "minibatches": 2, "batch_size": 8},
        "algorithm": {
            "minibatches": 2,
            "batch_size": 8,
            "critic_warmup_updates": 1,
            "replay": {"capacity": capacity, "refresh_within": 2, "refresh_share": 0.5},
        },
        "learner": {"trajectories_per_update": trajectories, "checkpoint_every": checkpoint_every},
    }


class Screens:
    """Screenshots of noise by reference, and who asked for which. `gone` are missing from the store."""

    def __init__(self) -> None:
        self.known: dict[str, bytes] = {}
        self.gone: set[str] = set()

    def make(self, seed: int, store: ObjectStore | None = None) -> ObjectRef:
        pixels = np.random.default_rng(seed).integers(0, 256, (128, 64, 3), dtype=np.uint8)
        out = io.BytesIO()
        Image.fromarray(pixels).save(out, "PNG")
        return self.keep(out.getvalue(), store)

    def plain(self, shade: int) -> ObjectRef:
        out = io.BytesIO()
        Image.new("RGB", (64, 128), (shade, shade, shade)).save(out, "PNG")
        return self.keep(out.getvalue())

    def keep(self, data: bytes, store: ObjectStore | None = None) -> ObjectRef:
        name = hashlib.sha256(data).hexdigest()
        self.known[name] = data
        if store is not None:
            return store.put("screenshots", data, "png")
        return ObjectRef(f"screenshots/{name}.png", name, len(data))

    def __call__(self, ref: ObjectRef) -> bytes:
        if ref.sha256 in self.gone:
            raise StoreError(ref.key, "is not in the store", "put it there")
        return self.known[ref.sha256]


def trajectory(
    screens: Screens,
    seed: int,
    *,
    steps: int | None = None,
    outcome: Outcome | None = None,
    expert: bool = False,
    task_id: str | None = None,
    phone_seed: int | None = None,
    store: ObjectStore | None = None,
) -> Trajectory:
    rule = random.Random(seed)
    count = rule.randint(1, 6) if steps is None else steps
    task = factories.task(
        task_id or f"{'demo' if expert else 'task'}-{seed}",
        family="any",
        instruction="search for red shoes",
        max_steps=8,
        phone_seed=seed if phone_seed is None else phone_seed,
    )
    made = [_step(screens, rule, store) for _ in range(count)]
    return factories.trajectory(
        task,
        made,
        attempt_id=f"a{seed}",
        final_screenshot=None,
        is_expert=expert,
        outcome=outcome or rule.choice([Outcome.SUCCESS, Outcome.FAILURE]),
        outcome_source="truth",
    )


def _step(screens: Screens, rule: random.Random, store: ObjectStore | None) -> Step:
    ids = rule.choice(
        [[*CODEC.encode_action(action)] for action in (CODEC.decode_action((10, 1)), CODEC.decode_action((13, 1)))]
        + [[6, 16 + rule.randrange(8), 24 + rule.randrange(16), 1]]
    )
    action = CODEC.decode_action(ids)
    return factories.step(
        action,
        screenshot=screens.make(rule.randrange(20), store),
        action_ids=tuple(ids),
        action_text=repr(action),
        prompt_ids=CODEC.encode_prompt("search for red shoes", []),
        logprob=-3.0 * rule.random(),
        version_sha256="",
    )


def logged(trajectories: Sequence[Trajectory], begin: int = 0) -> list[LoggedTrajectory]:
    """The trajectories at consecutive offsets of their topic."""
    return [
        LoggedTrajectory(LogPosition(DEMONSTRATIONS if t.is_expert else TRAJECTORIES, 0, begin + i), t)
        for i, t in enumerate(trajectories)
    ]


def windows(screens: Screens, settings: Config, updates: int, episodes: int = 1) -> list[list[LoggedTrajectory]]:
    """The windows of the first `updates` updates: demonstrations first, then four trajectories at a time, `episodes`
    of each task; with the prompts of a recurrent Q where the settings name one."""
    demos = logged([trajectory(screens, seed, expert=True) for seed in range(settings.warmup.demonstrations)])
    found = []
    for u in range(updates):
        per_update = settings.learner.trajectories_per_update
        begin = (u - settings.warmup.updates) * per_update
        new = range(begin, begin + per_update) if begin >= 0 else ()
        found.append(
            (demos if u == 0 else [])
            + logged([trajectory(screens, 1000 + seed, phone_seed=seed // episodes) for seed in new], max(begin, 0))
        )
    tokenizer = tokenizer_of(settings.policy) if _is_q(settings.policy.base_model) else None
    if isinstance(tokenizer, GridTokenizer):
        return [[read_by(tokenizer, each) for each in window] for window in found]
    return found


def _is_q(base_model: Path | None) -> bool:
    return base_model is not None and (base_model / EYES).is_dir()


def update_of(u: int, window: Sequence[LoggedTrajectory], before: Sequence[Watermark], settings: Config) -> Update:
    marks = {mark.topic: mark.offset for mark in before}
    for item in window:
        marks[item.position.topic] = item.position.offset + 1
    return Update(
        u,
        tuple(Watermark(topic, 0, offset) for topic, offset in sorted(marks.items())),
        learning_fingerprint(settings),
        0,
    )


def folded(
    state: LearnerState, records: Sequence[list[LoggedTrajectory]], screens: Screens, settings: Config
) -> LearnerState:
    """Fold the windows that `state` has not folded."""
    for window in records[state.u :]:
        fold(state, window, update_of(state.u, window, state.watermarks, settings), screens, settings)
    return state
