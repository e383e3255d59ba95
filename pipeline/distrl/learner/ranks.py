"""One fold on several ranks: rank 0 says what to do with the state, every rank does it with its own.

    rank 0:   log ─▶ journal ─▶ Leader.fold ─┬─▶ fold ─▶ same weights? ─▶ publish, checkpoint
    others:                       follow     └─▶ fold ─▶ same weights?

Only rank 0 reads the log and writes anything. The others get its state as it is recovered, and each journalled update
with its window; their state is never saved. Within a fold, shards, passes and screenshots are split (compute.py).
Screenshots are assigned as rank 0 reads of them, and each rank fetches its own beside what it computes.

A StoreError of an order is raised on every rank alike, and rank 0 may give it again. After any other error a rank ends,
and so do all: the next start repeats the update.
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
from distrl.config import Config
from distrl.errors import ConfigError, PolicyError, StoreError
from distrl.learner.ahead import LookAhead
from distrl.learner.fold import fold, usable_of
from distrl.learner.screens import Screens
from distrl.learner.state import LearnerState
from distrl.policy.feature_folder import FeatureFolder, maker_of
from distrl.policy.features import Images
from distrl.policy.plugin import plugin_code
from distrl.ranks.group import Ranks
from distrl.runs.settings import learning_fingerprint
from distrl.telemetry.monitor import Monitor
from distrl.types import LoggedTrajectory, ObjectRef, Update

LOG = logging.getLogger("distrl.learner.ranks")

T = TypeVar("T")

CALL_S: Final = 2.0
"""Between two calls of ranks that have nothing to do: so soon rank 0 sees that one of them is gone or asks to stop."""


LOADED: Final = 16
"""Screenshots whose features a rank loads between two looks at the log."""


@dataclass(frozen=True, slots=True)
class Begin:
    """Take this state."""

    meta: Mapping[str, Any]
    tensors: Mapping[str, NDArray[Any]]
    records: Sequence[LoggedTrajectory]
    keep_features: bool
    """Whether features are kept for the next start, as rank 0 does: not while the log is only verified, since what that
    state does not hold would be removed from the folder of the learner that is at work."""


@dataclass(frozen=True, slots=True)
class Want:
    """Fetch those of these screenshots whose owner you are, without waiting for them."""

    refs: Sequence[ObjectRef]
    owners: Sequence[int]
    """Ranks."""


@dataclass(frozen=True, slots=True)
class Load:
    """Load the features of these screenshots."""

    refs: Sequence[ObjectRef]


@dataclass(frozen=True, slots=True)
class Fold:
    window: Sequence[LoggedTrajectory]
    update: Update


@dataclass(frozen=True, slots=True)
class Forget:
    """Forget the features of screenshots that neither the state nor `but` holds."""

    but: Sequence[LoggedTrajectory]


@dataclass(frozen=True, slots=True)
class Call:
    """Answer; there is nothing to do."""


@dataclass(frozen=True, slots=True)
class End:
    """Return; it is not answered."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Of one rank, once it has done what it was told."""

    stop: bool
    """Whether it was asked to stop, as by SIGTERM."""
    digest: str = ""
    """Of what must be the same on every rank now."""


class Leader:
    """Rank 0's side. With one rank it does what it is told and nothing more. One thread."""

    _state: LearnerState
    """From `begin` on."""

    def __init__(
        self,
        config: Config,
        ranks: Ranks,
        images: Images,
        stop: threading.Event,
        progress: Callable[[], object] = lambda: None,
    ) -> None:
        """stop: set where another rank was asked to stop. progress: called with each screenshot that this rank loads:
        the first fold of a start may load those of the whole buffer."""
        self._config, self._ranks, self._stop, self._progress = config, ranks, stop, progress
        self._ahead = LookAhead(images)
        self._screens = self._ahead.screens
        self._called = SYSTEM_CLOCK.ticks()
        self._wanted: dict[ObjectRef, None] = {}
        """The ranks have not heard of these yet."""
        self._coming: dict[ObjectRef, None] = {}
        """Fetched by several ranks, and not loaded; in order."""
        self._owners: dict[ObjectRef, int] = {}
        self._turn = count()

    def begin(self, state: LearnerState) -> None:
        """Go on with `state`, on every rank."""
        self._state = state
        self._wanted, self._coming, self._owners = {}, {}, {}
        self._screens.keep(())
        state.features.assign_by(self._screens.__contains__)
        state.features.report_to(self._progress)
        alone = self._ranks.world == 1  # several look at theirs when all load them
        self._ahead.look_for(state.features if alone and state.policy.looks_beside else None)
        state.context.compute.split_among(self._ranks)
        if self._ranks.world > 1:
            order = Begin(state.meta(), state.tensors(), state.held(), state.features.is_kept)
            self._give(order, lambda: None, lambda: _digest_of_all(state))
            LOG.info("%d ranks go on after %d updates", self._ranks.world, state.u)
        self.want(state.screens(state.held()))
        self._fetch()

    def want(self, refs: Iterable[ObjectRef]) -> None:
        """Screenshots that will be loaded. One rank fetches them from now on, several from their next order on."""
        self._wanted |= dict.fromkeys(_unknown(self._state, refs))
        if self._ranks.world == 1:
            self._fetch()

    def load_arrived(self) -> bool:
        """Load the features of some screenshots that are wanted and need not be waited for. False where there are none.

        Raises StoreError where one could not be fetched.
        """
        self._fetch()
        most = LOADED * self._ranks.world
        if self._ranks.world == 1:
            found = self._screens.arrived(most)
        else:
            found = list(islice(self._coming, most))
            if any(map(self._screens.is_coming, found)):  # about as far as the others'
                return False
            for ref in found:
                del self._coming[ref]
        wanted = _unknown(self._state, found)
        if wanted:
            self._give(Load(wanted), lambda: _load(self._state, wanted, self._screens))
        self._screens.forget(found)
        return bool(found)

    def fold(self, window: Sequence[LoggedTrajectory], update: Update) -> Metrics:
        """`fold` on every rank. Raises as it does, and PolicyError where the weights are not the same after it, or not
        finite: no worker would load them, and no later update makes them finite again."""
        self.want(self._state.screens(usable_of(self._state, window)))
        self._fetch()
        act = lambda: fold(self._state, window, update, self._screens, self._config)  # noqa: E731
        metrics = self._give(Fold(window, update), act, lambda: weights_digest(self._state))
        if not self._state.is_finite:
            raise PolicyError(
                f"update {update.u}",
                "has made weights that are not finite, as every start would from this log; nothing of it is published",
                "begin a new run with smaller steps (algorithm.lr, algorithm.critic_lr, warmup.lr), or correct the "
                "policy's score; `distrl ablate --set algorithm.lr=...` tries settings on this log",
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
        """Look after the other ranks, unless they were heard of within CALL_S."""
        if SYSTEM_CLOCK.ticks() - self._called >= CALL_S:
            self._give(Call(), lambda: None)

    def end(self) -> None:
        """Let the other ranks return."""
        self._ranks.send(End())

    def close(self) -> None:
        """Fetch and look at no more, however it ended: what waits for a store that hangs would keep the process."""
        self._ahead.close()

    def _fetch(self) -> None:
        """Have every rank fetch its own of what is wanted; what has failed, again."""
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
    """Do what rank 0 says until it ends; the other side of Leader. stop: passed on to rank 0, which decides."""
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
    """Do it; returns the digest to compare."""
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
    """Use the folder of features that outlives this process, where one is set. Raises ConfigError."""
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
    plugins = ranks.gather(plugin_code(config.policy) or "DistRL")
    if other := _unlike_rank_0(plugins):
        raise ConfigError(
            "policy.base_model",
            f"its policy is of {plugins[other[0]]} on rank {', '.join(map(str, other))}, and of {plugins[0]} on rank 0",
            "install the same package on the host of every rank",
        )


def _unlike_rank_0(found: Sequence[object]) -> list[int]:
    """The ranks whose value is another than rank 0's. found: of every rank, in order."""
    return [rank for rank, each in enumerate(found) if each != found[0]]


def weights_digest(state: LearnerState) -> str:
    """sha256 (hex) of every trained weight: some milliseconds for ten million."""
    total = hashlib.sha256()
    for parameter in state.parameters():
        total.update(np.ascontiguousarray(parameter.detach().cpu().numpy()).data)
    return total.hexdigest()


def _digest_of_all(state: LearnerState) -> str:
    return " ".join(state.digests().values())


def _want(state: LearnerState, order: Want, screens: Screens, ranks: Ranks) -> None:
    """Fetch those that are this rank's and whose features are not kept."""
    mine = (ref for ref, owner in zip(order.refs, order.owners, strict=True) if owner == ranks.rank)
    screens.want(ref for ref in mine if state.features.needs_image(ref))


def _forget(state: LearnerState, but: Sequence[LoggedTrajectory], screens: Screens) -> None:
    screens.keep(ref for ref in _shown(but) if not state.features.knows(ref))
    state.forget_screens(but)


def _shown(trajectories: Iterable[LoggedTrajectory]) -> Iterator[ObjectRef]:
    return (step.screenshot for logged in trajectories for step in logged.trajectory.steps)


def _unknown(state: LearnerState, refs: Iterable[ObjectRef]) -> list[ObjectRef]:
    """Those whose features are not loaded, each once."""
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
