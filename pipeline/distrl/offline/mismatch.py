"""How far learner and worker differ: recorded actions, scored as each of the two computes them.

A learner reads a whole action in one pass; a worker writes it token after token, with keys and values kept, and takes
logarithms in float64. At equal weights and equal sampling both must come to the same log-probability, and to the one
that the worker recorded: else ρ is wrong in every update, without an error anywhere. A model server is asked for the
same decisions again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from typing import Any, Final

import numpy as np
import torch

from distrl.compute import on_threads
from distrl.errors import PolicyError
from distrl.offline.asked_server import AskedServer
from distrl.policy.protocol import ImageFeatures, Policy, TrajectoryStep, trajectory_steps
from distrl.policy.sampling import Sampling, by_episode
from distrl.rollout.episode import Observation
from distrl.store.objects import CorruptObjectError, MissingObjectError, is_reference
from distrl.types import LoggedTrajectory, LogPosition, ObjectRef, Step

EXACT: Final = 1e-4
"""What ρ = 1 means in this project, in nats."""
SHARES: Final = (0.5, 0.9, 0.99)


@dataclass(frozen=True, slots=True)
class Again:
    """The answer that a server gave when it was asked for a recorded decision again: its log-probabilities in nats.
    repeated: it is the recorded action, token for token."""

    learner: float
    server: float
    repeated: bool


@dataclass(frozen=True, slots=True)
class Played:
    """Step `number` of a record: log-probabilities of its action in nats. recorded: None where no policy acted. again:
    None where no server was asked."""

    position: LogPosition
    number: int
    learner: float
    worker: float
    recorded: float | None
    again: Again | None = None

    @property
    def place(self) -> str:
        """TOPIC/PARTITION/OFFSET#STEP."""
        at = self.position
        return f"{at.topic}/{at.partition}/{at.offset}#{self.number}"


@dataclass(frozen=True, slots=True)
class Differences:
    """|difference| of two log-probabilities over the steps; infinite where only one holds an action for possible.

    quantiles: share of SHARES -> nats. worst: place of the largest. beyond: how many are above EXACT.
    """

    steps: int
    quantiles: dict[float, float]
    largest: float
    worst: str
    beyond: int


@dataclass(frozen=True, slots=True)
class _Sample:
    logged: LoggedTrajectory
    placed: TrajectoryStep

    @property
    def step(self) -> Step:
        return self.placed.step


@dataclass(frozen=True, slots=True)
class _Seen:
    """A step that can be played. pngs: the screenshots that it reads, its own last."""

    sample: _Sample
    pngs: list[bytes]

    @property
    def step(self) -> Step:
        return self.sample.step

    def observation(self) -> Observation:
        """What the step was decided on."""
        trajectory, number = self.sample.logged.trajectory, self.sample.placed.index
        previous = tuple(step.action for step in trajectory.steps[:number])
        *earlier, png = self.pngs
        return Observation(trajectory.task, trajectory.attempt_id, number, png, previous, lambda: None, tuple(earlier))


class Checked:
    """The policies of a learner and of a worker, of one base model; they may be one where both compute alike.

    image: PNG bytes. adapter: of a step's version, by its sha256. Both raise MissingObjectError for what is gone: those
    steps are counted in `skipped`, as are what is no image and actions that this policy cannot have written. rows: of a
    batch. server: asked again for each step whose prompt these settings reproduce. threads: of torch, on which the
    learner
    and the worker compute; on others the sums are rounded in other places.
    """

    def __init__(
        self,
        learner: Policy,
        worker: Policy,
        sampling: Sampling,
        image: Callable[[ObjectRef], bytes],
        adapter: Callable[[str], bytes],
        rows: int,
        server: AskedServer | None = None,
        threads: tuple[int, int] = (1, 1),
    ) -> None:
        self._threads = threads
        self._learner, self._worker, self._sampling = learner, worker, sampling
        self._image, self._adapter, self._rows, self._server = image, adapter, rows, server
        self.skipped = 0

    def play(self, trajectories: Iterable[LoggedTrajectory]) -> Iterator[Played]:
        samples = (_Sample(logged, each) for logged in trajectories for each in trajectory_steps(logged.trajectory))
        for sha256, some in groupby(samples, lambda sample: sample.step.version_sha256):
            try:
                adapter = self._adapter(sha256)
            except MissingObjectError:
                self.skipped += sum(1 for _ in some)
                continue
            for policy in (self._learner, self._worker):
                policy.load(adapter)
            server = self._server if self._server is not None and self._server.load(sha256, adapter) else None
            usable = self._seen(some)
            while batch := list(islice(usable, self._rows)):
                task_ids = [seen.sample.logged.trajectory.task_id for seen in batch]
                for sampling, places in by_episode(self._sampling, task_ids).items():
                    played = self._played([batch[place] for place in places], sampling)
                    yield from (each for _, each in played) if server is None else self._again(server, played, sampling)

    def _seen(self, samples: Iterable[_Sample]) -> Iterator[_Seen]:
        """The steps that can be played."""
        for sample in samples:
            step = sample.step
            refs = [*sample.placed.earlier_screens(self._learner.earlier_screens), step.screenshot]
            if not (self._learner.tokenizer.accepts(step, sample.placed.index) and all(map(is_reference, refs))):
                self.skipped += 1
                continue
            try:
                pngs = [self._image(ref) for ref in refs]
            except (MissingObjectError, CorruptObjectError):
                self.skipped += 1
                continue
            yield _Seen(sample, pngs)

    def _played(self, batch: list[_Seen], sampling: Sampling) -> list[tuple[_Seen, Played]]:
        try:
            return list(zip(batch, self._scored(batch, sampling), strict=True))
        except PolicyError:  # one is no image, or was not written so: the others can still be played
            if len(batch) > 1:
                return [played for each in batch for played in self._played([each], sampling)]
            self.skipped += 1
            return []

    def _scored(self, batch: list[_Seen], sampling: Sampling) -> Iterator[Played]:
        steps, pngs = [seen.step for seen in batch], [seen.pngs for seen in batch]
        with torch.no_grad(), on_threads(self._threads[1]):
            worker = self._worker.repeat(steps, _features(self._worker, pngs), sampling)
        for seen, one, other in zip(batch, self._by_learner(steps, pngs, sampling), worker, strict=True):
            logged, step = seen.sample.logged, seen.step
            recorded = None if logged.trajectory.is_expert else step.logprob
            yield Played(logged.position, seen.sample.placed.index, one, other, recorded)

    def _again(self, server: AskedServer, played: list[tuple[_Seen, Played]], sampling: Sampling) -> Iterator[Played]:
        """`played`, with the server's answers for the steps whose recorded prompt these settings reproduce."""
        observed = {each.place: seen.observation() for seen, each in played if self._reproduces(seen)}
        answers = dict(zip(observed, server.decide(list(observed.values())), strict=True))
        other = {
            each.place: (replace(seen.step, action_ids=answers[each.place].action_ids), seen.pngs)
            for seen, each in played
            if each.place in answers and answers[each.place].action_ids != seen.step.action_ids
        }
        steps, pngs = [step for step, _ in other.values()], [pngs for _, pngs in other.values()]
        scores = dict(zip(other, self._by_learner(steps, pngs, sampling) if other else [], strict=True))
        for _, each in played:
            if each.place not in answers:
                yield each
                continue
            learner, repeated = scores.get(each.place, each.learner), each.place not in other
            yield replace(each, again=Again(learner, answers[each.place].logprob, repeated))

    def _by_learner(self, steps: list[Step], pngs: list[list[bytes]], sampling: Sampling) -> list[float]:
        with torch.no_grad(), on_threads(self._threads[0]):
            scored = self._learner.score(steps, _features(self._learner, pngs), sampling)
        found: list[float] = scored.logprob.cpu().tolist()
        return found

    def _reproduces(self, seen: _Seen) -> bool:
        """Whether these settings make the recorded prompt from the step's task and actions."""
        observation = seen.observation()
        try:
            prompt = self._learner.tokenizer.encode_prompt(
                observation.task.instruction, observation.previous, observation.screen()
            )
        except PolicyError:
            return False
        return prompt == seen.step.prompt_ids


def _features(policy: Policy, pngs: Iterable[Sequence[bytes]]) -> list[ImageFeatures]:
    """What a policy makes of the screenshots that each step reads, its own last."""
    seen = [[policy.image_features(png) for png in each] for each in pngs]
    return [own._replace(earlier=tuple(earlier)) for *earlier, own in seen]


@dataclass(frozen=True, slots=True)
class Report:
    """by_name: the differences of each comparison for which there are steps."""

    by_name: dict[str, Differences]
    skipped: int

    def as_json(self) -> dict[str, Any]:
        """Numbers that are not finite are null."""
        compared = {
            name: {
                "steps": each.steps,
                "quantiles": {f"{share:g}": _finite(value) for share, value in each.quantiles.items()},
                "largest": _finite(each.largest),
                "worst": each.worst,
                "beyond": each.beyond,
            }
            for name, each in self.by_name.items()
        }
        return {"differences": compared, "exact": EXACT, "skipped": self.skipped}

    def refuse_above(self, threshold: float) -> None:
        """Raises PolicyError for nothing played, and where a difference is above `threshold`, in nats."""
        if not self.by_name:
            raise PolicyError("policy", "no step could be played", "name another range, run or --topic")
        for name, each in self.by_name.items():
            if each.largest > threshold:
                raise PolicyError(
                    each.worst,
                    f"{name} differ by {each.largest:.3g} nats, more than {threshold:g}",
                    "docs/policies.md says what may differ; where that is meant, raise --threshold",
                )


def report(played: Iterable[Played], checked: Checked) -> Report:
    """The report on all of `played`, which `checked` gives."""
    found = list(played)
    compared = {
        "learner and worker": differences((each.place, each.learner, each.worker) for each in found),
        "learner and record": differences(
            (each.place, each.learner, each.recorded) for each in found if each.recorded is not None
        ),
        "learner and server": differences(
            (each.place, each.again.learner, each.again.server) for each in found if each.again is not None
        ),
        "server and record": differences(
            (each.place, each.again.server, each.recorded)
            for each in found
            if each.again is not None and each.again.repeated and each.recorded is not None
        ),
    }
    return Report({name: each for name, each in compared.items() if each is not None}, checked.skipped)


def differences(played: Iterable[tuple[str, float, float]]) -> Differences | None:
    """The differences of (place, one, other); None without any."""
    found = [(place, _apart(one, other)) for place, one, other in played]
    if not found:
        return None
    nats = np.array([each for _, each in found])
    worst, largest = max(found, key=lambda each: each[1])
    quantiles = {share: float(np.quantile(nats, share, method="higher")) for share in SHARES}
    return Differences(len(found), quantiles, largest, worst, int((nats > EXACT).sum()))


def _apart(one: float, other: float) -> float:
    difference = 0.0 if one == other else abs(one - other)
    return float("inf") if np.isnan(difference) else difference


def _finite(nats: float) -> float | None:
    return nats if np.isfinite(nats) else None
