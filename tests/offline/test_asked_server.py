"""`distrl policy check` against a model server: it is asked for recorded decisions again, and what is planted is
found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import factories
import pytest
from distrl.errors import DistrlError
from distrl.offline.asked_server import AskedServer
from distrl.offline.mismatch import EXACT, Checked, Report, report
from distrl.policy.sampling import Sampling
from distrl.rollout.episode import sampling_seed
from distrl.rollout.served.names import name_of
from distrl.types import LoggedTrajectory, LogPosition, Version
from learner.world import Screens
from model_server import ModelServer, model_server
from policy.vlm.models import qwen25
from rollout.served.world import RUN, TAP, Learned, learned, processes, seen

SAMPLING = Sampling(0.8, top_p=0.95, top_k=40)
PLACE = "distrl.r.trajectories/0/1#2"


class World:
    """A learner with two versions, a server, and what was acted through it: two episodes of three steps."""

    def __init__(self, base: Path, folder: Path, server: ModelServer) -> None:
        self.server, self.screens = server, Screens()
        self.learner: Learned = learned(base, folder)
        self.start = processes(base, folder / "adapters", server)
        self.adapters: dict[str, bytes] = {}
        self.versions: dict[str, Version] = {}
        for number in (1, 2):
            version, adapter = self.learner.version(number)
            self.adapters[version.adapter.sha256] = adapter
            self.versions[version.adapter.sha256] = version
        self.records = [self._acted(number, version) for number, version in enumerate(self.versions.values())]
        server.events.clear()

    def _acted(self, number: int, version: Version) -> LoggedTrajectory:
        steps = []
        with self.start(SAMPLING) as policy:
            policy.swap(version, self.adapters[version.adapter.sha256])
            for step in range(3):
                observed = seen(step, f"t{number}")
                made = policy.decide(observed)
                steps.append(
                    factories.step(
                        screenshot=self.screens.keep(observed.png),
                        prompt_ids=made.prompt_ids,
                        action_ids=made.action_ids,
                        action=TAP,  # as `seen` says of the steps before
                        logprob=made.logprob,
                        version=version.version,
                        version_sha256=version.adapter.sha256,
                    )
                )
        task = factories.task(f"t{number}", instruction="open the settings")
        played = replace(factories.trajectory(task, steps), attempt_id="a")
        return LoggedTrajectory(LogPosition("distrl.r.trajectories", 0, number), played)

    def checked(self) -> Report:
        with self.start(SAMPLING) as policy:
            asked = AskedServer(policy, self.versions.get)
            learner = self.learner.policy
            check = Checked(learner, learner, SAMPLING, self.screens, self.adapters.__getitem__, 4, asked)
            return report(check.play(self.records), check)

    def change(self, number: int, place: int, **what: object) -> None:
        """Step `place` of record `number`."""
        logged = self.records[number]
        steps = list(logged.trajectory.steps)
        steps[place] = replace(steps[place], **what)  # type: ignore[arg-type]
        self.records[number] = replace(logged, trajectory=replace(logged.trajectory, steps=tuple(steps)))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelServer]:
    base = tmp_path_factory.mktemp("base")
    qwen25(base)
    with model_server(base) as server:
        yield server


@pytest.fixture
def world(running: ModelServer, tmp_path: Path) -> Iterator[World]:
    yield World(running.directory, tmp_path, running)
    running.reset()


def test_a_server_at_equal_weights_agrees_with_the_learner(world: World) -> None:
    """Each step is asked for under the adapter of its own version, loaded under its name and unloaded afterwards."""
    found = world.checked()
    assert set(found.by_name) == {"learner and worker", "learner and record", "learner and server", "server and record"}
    for each in found.by_name.values():
        assert (each.steps, each.beyond) == (6, 0)
    found.refuse_above(EXACT)
    assert found.skipped == 0
    loaded = [name for what, name in world.server.events if what == "load"]
    assert loaded == [name_of(RUN, version) for version in world.versions.values()]
    assert not world.server.adapters


def test_a_planted_difference_is_found_at_its_place(world: World) -> None:
    world.server.misreported[sampling_seed("t1", "a", 2)] = 0.02
    found = world.checked()
    for name in ("learner and server", "server and record"):
        each = found.by_name[name]
        assert (each.steps, each.beyond, each.worst) == (6, 1, PLACE)
        assert each.largest == pytest.approx(0.02, abs=EXACT)
    assert found.by_name["learner and record"].beyond == found.by_name["learner and worker"].beyond == 0


def test_a_server_that_draws_otherwise_today_is_scored_by_what_it_writes(world: World) -> None:
    """The record is of another draw: the learner scores the answer of today."""
    first = world.records[0].trajectory.steps[0]
    recorded = next(each for each in world.records[1].trajectory.steps if each.action_ids != first.action_ids)
    world.change(0, 0, action_ids=recorded.action_ids)
    found = world.checked()
    assert (found.by_name["learner and server"].steps, found.by_name["learner and server"].beyond) == (6, 0)
    assert found.by_name["server and record"].steps == 5
    assert found.by_name["learner and record"].beyond == 1


def test_a_prompt_that_these_settings_do_not_spell_is_not_asked(world: World) -> None:
    """The server would read another one; learner and worker play what is recorded."""
    prompt = world.records[0].trajectory.steps[1].prompt_ids
    world.change(0, 1, prompt_ids=(*prompt, prompt[-1]))
    found = world.checked()
    assert found.by_name["learner and worker"].steps == 6
    assert found.by_name["learner and server"].steps == 5


def test_steps_without_a_version_are_not_asked(world: World) -> None:
    gone = next(iter(world.versions))
    del world.versions[gone]
    found = world.checked()
    assert found.by_name["learner and worker"].steps == 6
    assert found.by_name["learner and server"].steps == 3


@pytest.mark.parametrize(("wrong", "message"), [("processed", "certain"), ("runtime_updates", "load_lora_adapter")])
def test_a_server_that_is_set_up_wrong_ends_the_check(world: World, wrong: str, message: str) -> None:
    setattr(world.server, wrong, False)
    with pytest.raises(DistrlError, match=message):
        world.checked()
