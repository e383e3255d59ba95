"""How often a version does what people did: its greedy decision on each step of recorded episodes, matched with theirs.

Teacher-forced: a decision reads the screen, the recorded actions before it and, where the policy reads any, their
screens, whatever it would have done there. Actions without a counterpart are in no prompt; the step itself counts, and
cannot match. The metric is that of Android in the Wild (matching.py), for AndroidControl too, whose boxes are not read.
No phone is needed, and nothing is written.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from distrl.config import Config
from distrl.errors import ConfigError, PolicyError
from distrl.evaluate.curves import wilson
from distrl.evaluate.matching import Gestures, matches, padded
from distrl.policy.actions import NAMES
from distrl.policy.protocol import Tokenizer
from distrl.policy.registry import tokenizer_of
from distrl.recordings.episode import EPISODES, Dataset, RecordedEpisode, Unreadable
from distrl.recordings.folder import Found
from distrl.rollout.decider import PolicyEndedError, VersionedDecider
from distrl.rollout.episode import Observation
from distrl.rollout.serving import refuse_other_base, serving
from distrl.store.adapters import read_adapter
from distrl.store.objects import open_store
from distrl.types import Action, Point, Split, Task, Version

log = logging.getLogger(__name__)

AT_ONCE: Final = 8
"""Steps that are decided together: they do not depend on each other."""
DRAWS: Final = 2_000
"""Resamples of the bootstrap."""
ATTEMPT: Final = "recorded"
NOWHERE: Final = Point(-1.0, -1.0)

Interval = tuple[float, float]


@dataclass
class Matched:
    """What became of the steps of a folder under one version."""

    version: int
    dataset: Dataset
    episodes: list[tuple[int, int]] = field(default_factory=list)
    """Of each episode, how many of its steps match, and how many it has."""
    steps: Counter[str] = field(default_factory=Counter)
    """By the type of the recorded action."""
    matched: Counter[str] = field(default_factory=Counter)
    """Those of them that match."""
    impossible: Counter[str] = field(default_factory=Counter)
    """Those of them whose action has no counterpart here."""
    skipped: Counter[str] = field(default_factory=Counter)
    """What was skipped of the folder, and why -> how many."""
    unknown_goals: int = 0
    """Episodes in whose goal the base model reads <unk>."""

    def add(self, episode: RecordedEpisode, does_match: Sequence[bool]) -> None:
        self.episodes.append((sum(does_match), len(does_match)))
        for step, match in zip(episode.steps, does_match, strict=True):
            self.steps[step.type] += 1
            self.matched[step.type] += match
            self.impossible[step.type] += step.action is None

    @property
    def match(self) -> float:
        """Share of the steps that match."""
        return self.matched.total() / self.steps.total()

    @property
    def match_of_possible(self) -> float | None:
        """The same, of the steps whose action has a counterpart; None without any."""
        possible = self.steps.total() - self.impossible.total()
        return self.matched.total() / possible if possible else None

    @property
    def partial(self) -> float:
        """The mean over episodes of the share of an episode's steps that match."""
        return float(np.mean([matched / steps for matched, steps in self.episodes]))

    @property
    def complete(self) -> int:
        """Episodes all of whose steps match."""
        return sum(matched == steps for matched, steps in self.episodes)

    def intervals(self) -> tuple[Interval, Interval] | None:
        """The 95 % percentile intervals of `match` and `partial`, by a bootstrap over episodes, as the steps of one are
        not independent; None with fewer than two. Equal figures give equal intervals."""
        if len(self.episodes) < 2:
            return None
        counts = np.asarray(self.episodes, np.float64)
        rng = np.random.Generator(np.random.PCG64(len(counts)))
        drawn = np.empty((DRAWS, 2))
        for row in drawn:
            matched, steps = counts[rng.integers(0, len(counts), len(counts))].T
            row[:] = matched.sum() / steps.sum(), (matched / steps).mean()
        (low, least), (high, most) = np.quantile(drawn, (0.025, 0.975), axis=0)
        return (float(low), float(high)), (float(least), float(most))

    def as_json(self) -> dict[str, Any]:
        intervals = self.intervals() or (None, None)
        return {
            "version": self.version,
            "dataset": self.dataset.value,
            "episodes": len(self.episodes),
            "steps": self.steps.total(),
            "match": self.match,
            "match_interval": intervals[0],
            "match_of_possible": self.match_of_possible,
            "partial_match": self.partial,
            "partial_match_interval": intervals[1],
            "complete_match": self.complete / len(self.episodes),
            "complete_match_interval": wilson(self.complete, len(self.episodes)),
            "by_type": {
                name: {
                    "steps": steps,
                    "matched": self.matched[name],
                    "without_counterpart": self.impossible[name],
                }
                for name, steps in sorted(self.steps.items())
            },
            "passed_over": dict(sorted(self.skipped.items())),  # scripts read this name
            "goals_with_unknown_words": self.unknown_goals,
        }


def match_versions(
    config: Config, versions: Sequence[Version], dataset: Dataset, read: Callable[[], Iterable[Found]]
) -> Iterator[Matched]:
    """What each version matches, one after another. read: gives the folder's episodes from the beginning.

    Raises PolicyError where a version belongs to another base model, StoreError where its weights are gone, ConfigError
    where the folder has no episode that can be read.
    """
    store, tokenizer = open_store(config.store), tokenizer_of(config.policy)
    with serving(config, sampling=None) as policy, ThreadPoolExecutor(AT_ONCE) as pool:
        for version in versions:
            refuse_other_base(version, policy.base_sha256)
        for version in versions:
            policy.decider.swap(version, read_adapter(store, config.run, version))
            result = Matched(version.version, dataset)
            for found in read():
                _take(found, policy.decider, tokenizer, pool, result)
            if not result.episodes:
                why = "; ".join(f"{number} {why}" for why, number in result.skipped.most_common(3))
                raise ConfigError(
                    "--episodes",
                    f"nothing can be read as {dataset.value}: {why or 'there is no record'}",
                    "name the format with --format, or fetch the files again; the log says what is wrong with each",
                )
            yield result


def _take(
    found: Found, decider: VersionedDecider, tokenizer: Tokenizer, pool: ThreadPoolExecutor, result: Matched
) -> None:
    if isinstance(found, Unreadable):
        result.skipped[f"{found.what}: cannot be read"] += 1
        log.warning("skipped: %s", found)
        return

    def decide(observation: Observation) -> Action:
        with decider.episode():
            return decider.decide(observation).action

    try:
        chosen = list(pool.map(decide, observations(found, decider.earlier_screens)))
    except PolicyEndedError:
        raise
    except PolicyError as error:  # such as a prompt that is longer than what the model reads
        result.skipped[f"{EPISODES}: the base model cannot read a step"] += 1
        log.warning("skipped: %s: %s", found.where, error)
        return
    result.add(found, do_match(found, chosen))
    result.unknown_goals += bool(tokenizer.unknown_words([found.goal]))


def observations(episode: RecordedEpisode, earlier_screens: int) -> list[Observation]:
    """What a policy sees at each step. earlier_screens: how many before the present one it reads."""
    name = episode.dataset.value
    task = Task(f"{name}-{episode.episode_id}", name, name, Split.TEST, episode.goal, len(episode.steps), 0)
    before: list[tuple[Action, bytes]] = []
    found = []
    for index, step in enumerate(episode.steps):
        actions = tuple(action for action, _ in before)
        pngs = tuple(png for _, png in before[max(0, len(before) - earlier_screens) :])
        found.append(Observation(task, ATTEMPT, index, step.png, actions, lambda: None, pngs))
        if step.action is not None:
            before.append((step.action, step.png))
    return found


def do_match(episode: RecordedEpisode, chosen: Sequence[Action]) -> list[bool]:
    """Whether each chosen action does what the recorded one did."""
    boxes = padded([step.boxes for step in episode.steps])
    recorded = gestures([step.action for step in episode.steps], [step.type for step in episode.steps])
    return [bool(each) for each in matches(gestures(chosen), recorded, boxes)]


def gestures(actions: Sequence[Action | None], types: Sequence[str] = ()) -> Gestures:
    """Actions as AitW writes them. types: the recorded types, by which actions without a counterpart here are named;
    those match nothing."""
    touch, lift, names = [], [], []
    for at, action in enumerate(actions):
        start = action.touch if action is not None else None
        end = action.lift if action is not None else None
        start = start or NOWHERE
        end = end or start
        touch.append((start.y, start.x))
        lift.append((end.y, end.x))
        names.append(f"no {types[at]}" if action is None else NAMES[action.kind])
    return Gestures.of(np.reshape(touch, (-1, 2)), np.reshape(lift, (-1, 2)), names)
