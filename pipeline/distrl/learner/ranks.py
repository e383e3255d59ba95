"""One fold on several ranks: rank 0 sends orders, and every rank carries them out on its own copy of the state.

    rank 0:   log ─▶ journal ─▶ Leader.fold ─┬─▶ fold ─▶ same weights? ─▶ publish, checkpoint
    others:                       follow     └─▶ fold ─▶ same weights?

Only rank 0 reads the log and writes anything. It sends its recovered state to the others, then each journalled update
with its window; their states are never saved. Within a fold, each shard, pass and screenshot is assigned to one rank
(compute.py). Screenshots are assigned as soon as rank 0 reads a record that names them, and each rank fetches its own
while it computes.

If an order ends with StoreError, it does so on every rank, and rank 0 may send it again. After any other error all
ranks end; the next start repeats the update.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import count, islice
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from distrl.algorithms.protocol import Metrics
from distrl.clock import SYSTEM_CLOCK
from distrl.config import Config, PluginSettings
from distrl.config.algorithm_plugins import package_of
from distrl.errors import ConfigError, PolicyError, StoreError
from distrl.learner.ahead import LookAhead
from distrl.learner.fold import fold, usable_of
from distrl.learner.screens import Screens
from distrl.learner.state import LearnerState
from distrl.plugins import ALL_FILES
from distrl.policy.feature_folder import FeatureFolder, maker_of
from distrl.policy.features import Images
from distrl.ranks.group import Ranks
from distrl.runs.plugin_code import SETTING, plugin_code, plugin_files, what
from distrl.runs.settings import learning_fingerprint
from distrl.telemetry.monitor import Monitor
from distrl.types import LoggedTrajectory, ObjectRef, Update

LOG = logging.getLogger("distrl.learner.ranks")

T = TypeVar("T")

CALL_S: Final = 2.0
"""Interval of `Call` orders while the ranks have nothing else to do: the longest until rank 0 notices that one of them
has ended or asks to stop."""

LOADED: Final = 16
"""Screenshots whose features a rank loads before rank 0 reads the log again."""


@dataclass(frozen=True, slots=True)
class Begin:
    """Restore this state and work on it."""

    meta: Mapping[str, Any]
    tensors: Mapping[str, NDArray[Any]]
    records: Sequence[LoggedTrajectory]
    keep_features: bool
    """Whether features are persisted for the next start, as on rank 0. Not while a log is only verified: that would
    remove features from the folder of the running learner."""


@dataclass(frozen=True, slots=True)
class Want:
    """Start to fetch those of these screenshots that this rank owns, without waiting for them."""

    refs: Sequence[ObjectRef]
    owners: Sequence[int]
    """The rank that fetches each of `refs`."""


@dataclass(frozen=True, slots=True)
class Load:
    """Load the features of these screenshots."""

    refs: Sequence[ObjectRef]


@dataclass(frozen=True, slots=True)
class Fold:
    """Fold this update."""

    window: Sequence[LoggedTrajectory]
    update: Update


@dataclass(frozen=True, slots=True)
class Forget:
    """Forget the features of screenshots that neither the state nor `but` holds."""

    but: Sequence[LoggedTrajectory]


@dataclass(frozen=True, slots=True)
class Call:
    """Only answer, to show that this rank is there."""


@dataclass(frozen=True, slots=True)
class End:
    """Stop following. It is not answered."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one rank answers once it has carried out an order."""

    stop: bool
    """Whether this rank was asked to stop, as by SIGTERM."""
    digest: str = ""
    """Digest of what must be equal on all ranks after the order."""


class Leader:
    """Rank 0's side: sends each order and carries it out here too. With one rank nothing is sent. One thread."""

    _state: LearnerState
    """Set by `begin`."""

    def __init__(
        self,
        config: Config,
        ranks: Ranks,
        images: Images,
        stop: threading.Event,
        progress: Callable[[], object] = lambda: None,
    ) -> None:
        """stop: set where another rank was asked to stop. progress: called with each screenshot that this rank loads,
        since the first fold after a start may load those of the whole buffer."""
        self._config, self._ranks, self._stop, self._progress = config, ranks, stop, progress
        self._ahead = LookAhead(images)
        self._screens = self._ahead.screens
        self._called = SYSTEM_CLOCK.ticks()
        self._wanted: dict[ObjectRef, None] = {}
        """Wanted screenshots that the ranks were not asked to fetch yet."""
        self._coming: dict[ObjectRef, None] = {}
        """Screenshots that several ranks fetch and that are not loaded yet, in order."""
        self._owners: dict[ObjectRef, int] = {}
        self._turn = count()

    def begin(self, state: LearnerState) -> None:
        """Continue with `state` on every rank."""
        self._state = state
        self._wanted, self._coming, self._owners = {}, {}, {}
        self._screens.keep(())
        state.features.assign_by(self._screens.__contains__)
        state.features.report_to(self._progress)
        alone = self._ranks.world == 1  # several ranks compute features only in `Load` and `Fold`, all at once
        self._ahead.look_for(state.features if alone and state.policy.looks_beside else None)
        state.context.compute.split_among(self._ranks)
        if self._ranks.world > 1:
            order = Begin(state.meta(), state.tensors(), state.held(), state.features.is_kept)
            self._give(order, lambda: None, lambda: _digest_of_all(state))
            LOG.info("%d ranks go on after %d updates", self._ranks.world, state.u)
        self.want(state.screens(state.held()))
        self._fetch()

    def want(self, refs: Iterable[ObjectRef]) -> None:
        """Note screenshots that will be loaded. A single rank starts to fetch them now, several with the next order."""
        self._wanted |= dict.fromkeys(_unknown(self._state, refs))
        if self._ranks.world == 1:
            self._fetch()

    def load_arrived(self) -> bool:
        """Load the features of some wanted screenshots that have arrived. Returns False where none has.

        Raises StoreError where one could not be fetched.
        """
        self._fetch()
        most = LOADED * self._ranks.world
        if self._ranks.world == 1:
            found = self._screens.arrived(most)
        else:
            found = list(islice(self._coming, most))
            if any(map(self._screens.is_coming, found)):  # the other ranks fetch at about the same pace
                return False
            for ref in found:
                del self._coming[ref]
        wanted = _unknown(self._state, found)
        if wanted:
            self._give(Load(wanted), lambda: _load(self._state, wanted, self._screens))
        self._screens.forget(found)
        return bool(found)

    def fold(self, window: Sequence[LoggedTrajectory], update: Update) -> Metrics:
        """`fold` on every rank. Raises what `fold` raises, and PolicyError where the weights differ between ranks or
        are not finite: no worker would load such weights, and no later update makes them finite again."""
        self.want(self._state.screens(usable_of(self._state, window)))
        self._fetch()
        act = lambda: fold(self._state, window, update, self._screens, self._config)  # noqa: E731
        metrics = self._give(Fold(window, update), act, lambda: weights_digest(self._state))
        if not self._state.is_finite:
            raise PolicyError(
                f"update {update.u}",
                "has made weights that are not finite, and would again after a restart; they are not published",
                "begin a new run with smaller steps (algorithm.lr, algorithm.critic_lr, warmup.lr), or correct the "
                f"policy's score{_or_algorithm(self._config)}; `distrl ablate --set algorithm.lr=...` tries settings "
                "on this log",
            )
        return metrics

    def forget(self, but: Sequence[LoggedTrajectory]) -> None:
        """`LearnerState.forget_screens` on every rank."""
        self._give(Forget(but), lambda: _forget(self._state, but, self._screens))
        later = set(_shown(but))
        self._wanted, self._coming = (
            {ref: None for ref in refs if ref in later and not self._state.features.knows(ref)}
            for refs in (self._wanted, self._coming)
        )
        self._owners = {ref: owner for ref, owner in self._owners.items() if ref in later}

    def call(self) -> None:
        """Check that the other ranks still answer, unless they have within CALL_S."""
        if SYSTEM_CLOCK.ticks() - self._called >= CALL_S:
            self._give(Call(), lambda: None)

    def end(self) -> None:
        """Let the other ranks return."""
        self._ranks.send(End())

    def close(self) -> None:
        """End fetching and computing ahead. Call it however the run ended: a request to a store that hangs would keep
        the process alive."""
        self._ahead.close()

    def _fetch(self) -> None:
        """Have every rank fetch the wanted screenshots that it owns, and retry those that failed."""
        if not self._wanted:
            return
        refs, self._wanted = list(self._wanted), {}
        for ref in refs:
            if ref not in self._owners:
                self._owners[ref] = next(self._turn) % self._ranks.world
        order = Want(refs, [self._owners[ref] for ref in refs])
        self._give(order, lambda: _want(self._state, order, self._screens, self._ranks))
        if self._ranks.world > 1:
            self._coming |= dict.fromkeys(refs)

    def _give(self, order: object, act: Callable[[], T], digest: Callable[[], str] = lambda: "") -> T:
        if self._ranks.world == 1:
            return act()
        self._ranks.send(order)
        result = act()
        self._called = SYSTEM_CLOCK.ticks()
        answers = _agreed(self._ranks, Answer(self._stop.is_set(), digest()))
        if any(answer.stop for answer in answers):
            self._stop.set()
        return result


def follow(config: Config, ranks: Ranks, images: Images, stop: threading.Event, monitor: Monitor) -> None:
    """Carry out rank 0's orders until `End`: the other side of Leader. stop: reported to rank 0, which decides."""
    with closing(Screens(images)) as screens:
        _follow(config, ranks, screens, stop, monitor)


def _follow(config: Config, ranks: Ranks, screens: Screens, stop: threading.Event, monitor: Monitor) -> None:
    state: LearnerState | None = None
    monitor.waits_for("rank 0")
    while not isinstance(order := ranks.receive(), End):
        monitor.progress()
        digest = ""
        try:
            if isinstance(order, Begin):
                state = None  # its memory is free before the next one is made
                state = LearnerState.restore(config, order.meta, order.tensors, order.records)
                if order.keep_features:
                    keep_features(state, config)
                state.context.compute.split_among(ranks)
                state.features.assign_by(screens.__contains__)
                state.features.report_to(monitor.progress)
                screens.keep(())
                digest = _digest_of_all(state)
                monitor.ready()
            elif state is not None:
                digest = _obey(order, state, screens, config, ranks)
        except StoreError as error:
            if isinstance(order, Begin):
                raise
            LOG.error("rank 0 tries again: %s", error)
            continue
        _agreed(ranks, Answer(stop.is_set(), digest))


def _obey(order: object, state: LearnerState, screens: Screens, config: Config, ranks: Ranks) -> str:
    """Carry out `order`; returns the digest to compare."""
    match order:
        case Want():
            _want(state, order, screens, ranks)
        case Load(refs):
            _load(state, refs, screens)
        case Fold(window, update):
            fold(state, window, update, screens, config)
            return weights_digest(state)
        case Forget(but):
            _forget(state, but, screens)
        case _:
            assert isinstance(order, Call)
    return ""


def keep_features(state: LearnerState, config: Config) -> None:
    """Persist features in learner.features_kept, if set, so that the next start finds them. Raises ConfigError."""
    if (folder := config.learner.features_kept) is not None:
        maker = maker_of(state.policy, config.policy, config.learner.torch_threads)
        state.features.keep_in(FeatureFolder(folder, config.run, maker))


def refuse_other_settings(config: Config, ranks: Ranks) -> None:
    """Raises ConfigError, on every rank, where two of them would fold differently."""
    found = ranks.gather((config.run, learning_fingerprint(config)))
    if other := _unlike_rank_0(found):
        raise ConfigError(
            "settings",
            f"those of rank {', '.join(map(str, other))} are not those of rank 0 (run {found[0][0]})",
            "give every rank the same --config, --set and DISTRL_* variables, and the same base model",
        )
    here = plugin_code(config)
    for path, setting in SETTING.items():
        plugins = ranks.gather(here.get(path, "DistRL"))
        if other := _unlike_rank_0(plugins):
            files = ranks.gather(plugin_files(config, path))
            raise ConfigError(
                setting,
                f"its {what(path)} is of {plugins[other[0]]} on rank {', '.join(map(str, other))}, and of {plugins[0]} "
                f"on rank 0{_first_unlike(files[0], files[other[0]])}",
                f"install the same package on the host of every rank; {ALL_FILES}",
            )


def _or_algorithm(config: Config) -> str:
    """What else may be wrong with weights that are not finite."""
    if isinstance(config.algorithm, PluginSettings):
        return f" or the algorithm ({config.algorithm.type} of the package {package_of(config.algorithm)})"
    return ""


def _first_unlike(here: Mapping[str, str], there: Mapping[str, str]) -> str:
    """Names the first file that differs; empty where none does, as with another version. here: file -> sha256."""
    unlike = sorted(name for name in {*here, *there} if here.get(name) != there.get(name))
    return f"; the first file that differs is {unlike[0]}" if unlike else ""


def _unlike_rank_0(found: Sequence[object]) -> list[int]:
    """The ranks whose value differs from rank 0's. found: the value of each rank, by rank."""
    return [rank for rank, each in enumerate(found) if each != found[0]]


def weights_digest(state: LearnerState) -> str:
    """sha256 (hex) over all trained weights; takes some milliseconds for ten million."""
    total = hashlib.sha256()
    for parameter in state.parameters():
        total.update(np.ascontiguousarray(parameter.detach().cpu().numpy()).data)
    return total.hexdigest()


def _digest_of_all(state: LearnerState) -> str:
    return " ".join(state.digests().values())


def _want(state: LearnerState, order: Want, screens: Screens, ranks: Ranks) -> None:
    """Start to fetch the screenshots that this rank owns and whose features are not persisted."""
    mine = (ref for ref, owner in zip(order.refs, order.owners, strict=True) if owner == ranks.rank)
    screens.want(ref for ref in mine if state.features.needs_image(ref))


def _forget(state: LearnerState, but: Sequence[LoggedTrajectory], screens: Screens) -> None:
    screens.keep(ref for ref in _shown(but) if not state.features.knows(ref))
    state.forget_screens(but)


def _shown(trajectories: Iterable[LoggedTrajectory]) -> Iterator[ObjectRef]:
    return (step.screenshot for logged in trajectories for step in logged.trajectory.steps)


def _unknown(state: LearnerState, refs: Iterable[ObjectRef]) -> list[ObjectRef]:
    """The screenshots of `refs` whose features are not loaded, each once."""
    return list({ref.sha256: ref for ref in refs if not state.features.knows(ref)}.values())


def _load(state: LearnerState, refs: Sequence[ObjectRef], screens: Screens) -> None:
    state.features.load(refs, screens, state.context.compute)


def _agreed(ranks: Ranks, answer: Answer) -> list[Answer]:
    """Every rank's answer. Raises PolicyError, on all of them, where their weights differ."""
    answers = ranks.gather(answer)
    if other := _unlike_rank_0([answer.digest for answer in answers]):
        raise PolicyError(
            f"rank {', '.join(map(str, other))} of {ranks.world}",
            f"has other weights than rank 0 after the same update ({answers[other[0]].digest[:12]}, rank 0 "
            f"{answers[0].digest[:12]}); none of them were published",
            "give all ranks one kind of processor and the same packages; the next start repeats the update",
        )
    return answers
