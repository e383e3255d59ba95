"""The learner's memory with a full buffer of a large model's screens: `bench/scale.py memory`.

The screens are synthetic, so that none has to be drawn, stored or looked at; what is behind them is the learner's own.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from distrl.algorithms.descent import passes
from distrl.config import Config, load
from distrl.learner.fold import fold
from distrl.learner.state import LearnerState
from distrl.policy.autoui.base import save_base
from distrl.policy.autoui.model import AutoUIModel, Shape
from distrl.policy.autoui.tokenizer import WordTokenizer
from distrl.policy.feature_folder import FeatureFolder
from distrl.policy.feature_store import FeatureStore
from distrl.policy.features import Features
from distrl.policy.protocol import ImageFeatures, trajectory_steps
from distrl.types import Action, ActionKind, LoggedTrajectory, LogPosition, ObjectRef, ScreenSize, Update, Watermark
from generator import trajectory

WORDS = WordTokenizer(("red", "shoes"))
LARGE = Shape(len(WORDS.tokens), 512, 1024, (8, 8, 8, 8), d_model=768, d_ff=64, layers=1, heads=1, d_kv=64, dropout=0.0)
"""512 image tokens of 768 numbers, 1.57 MB a screen in float32, as of an AutoUI of full size. The transformer behind
them is small: what a model's weights and activations take comes on top, whatever the buffer holds."""

TOKENS = (LARGE.grid[0] * LARGE.grid[1], LARGE.d_model)
"""The shape of a screen's features."""

RUN, MAKER = "bench", "memory"
"""Folders in --kept."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--transitions", type=int, default=10_000, help="in the buffer, each with a screen of its own")
    parser.add_argument("--precision", choices=("float32", "float16"), default="float16")
    parser.add_argument("--features-mb", type=int, help="learner.features_mb; its default if not given")
    parser.add_argument("--kept", type=Path, help="learner.features_kept: also measures a start that finds all of them")
    parser.add_argument("--directory", type=Path, help="learner.features_directory; its default if not given")


def measure(given: argparse.Namespace) -> Mapping[str, float]:
    """A restored learner folds one update over a full buffer and reads every screen once, as scoring all does."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        config = _large(Path(folder), given)
        state = _restored(config, given.transitions)
        again = None if given.kept is None else _restored(config, given.transitions)
    if given.kept is not None:
        state.features.keep_in(FeatureFolder(given.kept, RUN, MAKER))
    end = given.transitions + 10 * config.learner.trajectories_per_update
    window = [logged(first, 10) for first in range(given.transitions, end, 10)]
    update = Update(state.u, (Watermark("trajectories", 0, end),), "", 0)
    begun, began = _status(), time.perf_counter()
    fold(state, window, update, lambda ref: ref.sha256.encode(), config)
    state.forget_screens()
    folded = time.perf_counter() - began
    steps = [step for each in state.held() for step in trajectory_steps(each.trajectory)]
    began = time.perf_counter()
    for rows in passes([each.step for each in steps]):
        torch.stack(
            [each.tokens for each in state.features.of([steps[row] for row in rows])]
        ).float()  # as a pass of the policy takes them
    read = time.perf_counter() - began
    store, ended = state.features.store, _status()
    start = {} if again is None else _start(again, given.kept)
    return {
        "transitions": state.transitions,
        "a screen, MB": store.get(steps[-1].step.screenshot.sha256).nbytes / 1e6,
        "features in memory, MB": store.held_bytes / 1e6,
        "features in the file, MB": store.file_bytes / 1e6,
        "loading and one update, s": folded,
        "reading every screen once, s": read,
        "resident before, MB": begun["VmRSS"],
        "peak resident (VmHWM), MB": ended["VmHWM"],
        "at the end: anonymous, MB": ended["RssAnon"],
        "at the end: of files, MB": ended["RssFile"],
        "at the end: shared, MB": ended["RssShmem"],
        **start,
    }


def _start(state: LearnerState, kept: Path) -> Mapping[str, float]:
    """Loads the buffer's features from the folder that an earlier start left, beside a plain reading of its files.

    Both find the files in the kernel's cache, as far as it holds them.
    """
    state.features.keep_in(FeatureFolder(kept, RUN, MAKER))
    files = list(kept.glob(f"{RUN}/{MAKER}/*/*"))
    began = time.perf_counter()
    count = sum(len(file.read_bytes()) for file in files)
    plain = time.perf_counter() - began
    left = [ref for ref in state.screens(state.held()) if not state.features.needs_image(ref)]
    began = time.perf_counter()
    state.features.load(left, _not_there, state.context.compute)
    loaded = time.perf_counter() - began
    return {
        "kept features, MB": count / 1e6,
        "reading their files, s": plain,
        "loading them at a start, s": loaded,
        "ratio to reading the files": loaded / plain,
    }


def _not_there(ref: ObjectRef) -> bytes:
    raise AssertionError(f"{ref.key} was kept and is fetched")


def save_large(directory: Path) -> None:
    torch.manual_seed(0)
    save_base(directory, AutoUIModel(LARGE), WORDS, {"how": "random"})


def _large(folder: Path, given: argparse.Namespace) -> Config:
    save_large(folder / "base")
    sets = [
        f"policy.base_model={folder / 'base'}",
        f"policy.image_precision={given.precision}",
        f"algorithm.replay.capacity={given.transitions}",
        "algorithm.minibatches=2",
        "algorithm.critic_warmup_updates=0",
        "warmup.updates=0",
    ]
    sets += [] if given.features_mb is None else [f"learner.features_mb={given.features_mb}"]
    sets += [] if given.directory is None else [f"learner.features_directory={given.directory}"]
    return load(sets=sets, environ={})


def _restored(config: Config, transitions: int) -> LearnerState:
    """A state after one update whose buffer is full and whose features are not loaded, as after a restart."""
    before = LearnerState(config)
    log = [logged(number, 10) for number in range(0, transitions, 10)]
    for each in log:
        before.algorithm.memory.admit(each)
    state = LearnerState.restore(config, before.meta() | {"u": 1}, before.tensors(), log)
    noise = torch.randn(TOKENS)
    precision = torch.float16 if config.policy.image_precision == "float16" else torch.float32

    def embed(name: bytes) -> ImageFeatures:
        tokens = (noise * (1 + int(name, 16) / 16**64)).to(precision)  # others for each screen, in no time
        return ImageFeatures(tokens, ScreenSize(1, 1))

    store = FeatureStore(config.learner.features_mb << 20, config.learner.features_directory)
    state.features = Features(embed, config.learner.torch_threads, store)
    return state


def logged(first: int, steps: int) -> LoggedTrajectory:
    """A trajectory of `steps` screens that no other has, numbered from `first`, at the offset `first`."""
    made = trajectory(first, random.Random(first))
    names = [f"{number:064x}" for number in range(first, first + steps)]
    prompt, back = WORDS.encode_prompt("red shoes", []), Action(ActionKind.BACK)
    every = tuple(
        replace(
            made.steps[0],
            screenshot=ObjectRef(f"screenshots/2026-01-01/{name}.png", name, 3000),
            prompt_ids=prompt,
            action_ids=WORDS.encode_action(back),
            action=back,
        )
        for name in names
    )
    return LoggedTrajectory(LogPosition("trajectories", 0, first), replace(made, steps=every))


def _status() -> dict[str, float]:
    """The memory of this process in MB, as /proc/self/status names it: VmHWM is the peak of VmRSS, which is RssAnon +
    RssFile + RssShmem. What the kernel caches of files that are read, and not mapped, belongs to no process."""
    lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    return {words[0].rstrip(":"): int(words[1]) * 1024 / 1e6 for words in lines if words[-1] == "kB"}
