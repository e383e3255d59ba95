from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import cast

import factories
import numpy as np
import pytest
from distrl.config import Config, load
from distrl.demonstrations.recorded import demonstration_of
from distrl.errors import ConfigError, PolicyError
from distrl.evaluate import recorded as module
from distrl.evaluate.recorded import Matched, do_match, match_versions, observations
from distrl.learner.state import LearnerState
from distrl.policy.registry import tokenizer_of
from distrl.recordings.episode import Dataset, RecordedEpisode, RecordedStep, Unreadable
from distrl.recordings.folder import Found, dataset_of, episodes, files_of
from distrl.rollout.decider import PolicyEndedError, VersionedDecider
from distrl.rollout.episode import Decision, Observation
from distrl.store.adapters import put_adapter
from distrl.store.objects import open_store
from distrl.types import Action, ActionKind, Point, Version
from hypothesis import given
from hypothesis import strategies as st
from learner.world import RUN, Screens, folded, learning, logged
from recording_files import HEIGHT, WIDTH, android_control, example, write

CLICK = {"action_type": "click", "x": WIDTH // 2, "y": HEIGHT // 4}
SCROLL = {"action_type": "scroll", "direction": "down"}
BACK = {"action_type": "navigate_back"}
OPEN = {"action_type": "open_app", "app_name": "Settings"}
GOAL = "turn on wifi"
UPDATES = 30


def episode(
    actions: Sequence[Action | None], boxes: tuple[tuple[float, float, float, float], ...] = ()
) -> RecordedEpisode:
    steps = tuple(RecordedStep(b"%d" % at, "any", action, boxes) for at, action in enumerate(actions))
    return RecordedEpisode(Dataset.AITW, "1", "turn on wifi", steps, None, "file, record 0")


def tap(x: float, y: float) -> Action:
    return Action(ActionKind.TAP, Point(x, y))


POINTS = st.builds(Point, st.floats(0, 1), st.floats(0, 1))
ACTIONS = st.one_of(
    st.builds(Action, st.just(ActionKind.TAP), POINTS),
    st.builds(Action, st.just(ActionKind.TYPE), text=st.text()),
    st.builds(Action, st.sampled_from([ActionKind.BACK, ActionKind.HOME, ActionKind.ENTER, ActionKind.COMPLETE])),
)


@given(st.lists(st.none() | ACTIONS, min_size=1, max_size=6))
def test_who_does_what_was_done_matches_but_where_there_is_no_counterpart(recorded: list[Action | None]) -> None:
    chosen = [action or Action(ActionKind.INVALID, text="open_app") for action in recorded]
    assert do_match(episode(recorded), chosen) == [action is not None for action in recorded]


def test_a_tap_far_away_matches_within_one_element_alone() -> None:
    recorded = [tap(0.1, 0.5)]
    assert do_match(episode(recorded), [tap(0.2, 0.5)]) == [True]
    assert do_match(episode(recorded), [tap(0.9, 0.5)]) == [False]
    assert do_match(episode(recorded, ((0.45, 0.05, 0.1, 0.9),)), [tap(0.9, 0.5)]) == [True]


def test_swipes_match_along_one_axis_and_a_text_whatever_it_is() -> None:
    up = Action(ActionKind.SWIPE, Point(0.5, 0.8), Point(0.5, 0.2))
    down = Action(ActionKind.SWIPE, Point(0.4, 0.1), Point(0.5, 0.9))
    left = Action(ActionKind.SWIPE, Point(0.8, 0.5), Point(0.2, 0.5))
    typed = Action(ActionKind.TYPE, text="cats")
    found = do_match(episode([up, up, up, typed]), [down, left, tap(0.5, 0.8), Action(ActionKind.TYPE, text="dogs")])
    assert found == [True, False, False, True]


def test_a_decision_reads_what_was_done_before_and_the_screens_of_that() -> None:
    actions = [None, tap(0.1, 0.1), Action(ActionKind.BACK), None, Action(ActionKind.HOME)]
    seen = observations(episode(actions), earlier_screens=1)
    assert [each.png for each in seen] == [b"0", b"1", b"2", b"3", b"4"]
    done = [action for action in actions if action is not None]
    assert [each.previous for each in seen] == [(), (), (done[0],), tuple(done[:2]), tuple(done[:2])]
    assert [each.earlier for each in seen] == [(), (), (b"1",), (b"2",), (b"2",)]
    assert [each.earlier for each in observations(episode(actions), 0)] == [()] * 5


def test_the_figures_of_a_report() -> None:
    result = Matched(3, Dataset.AITW)
    result.add(episode([tap(0.1, 0.1)] * 4), [True] * 4)
    assert result.intervals() is None
    result.add(episode([tap(0.1, 0.1), None]), [False, False])
    assert (result.match, result.match_of_possible, result.partial, result.complete) == (4 / 6, 4 / 5, 0.5, 1)
    intervals = result.intervals()
    assert intervals == ((0.0, 1.0), (0.0, 1.0))
    assert result.as_json()["by_type"] == {"any": {"steps": 6, "matched": 4, "without_counterpart": 1}}


@given(st.lists(st.integers(1, 9).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), min_size=2, max_size=20))
def test_intervals_are_shares_and_the_same_again(counts: list[tuple[int, int]]) -> None:
    result = Matched(0, Dataset.AITW, counts)
    found = result.intervals()
    assert found is not None
    for low, high in found:
        assert 0 <= low <= high <= 1
    assert result.intervals() == found


def test_an_interval_narrows_with_more_episodes() -> None:
    rng = np.random.default_rng(0)
    counts = [(int(rng.integers(0, 6)), 5) for _ in range(400)]
    widths = []
    for some in (counts[:25], counts):
        found = Matched(0, Dataset.AITW, some).intervals()
        assert found is not None
        widths.append(found[0][1] - found[0][0])
    assert widths[1] < widths[0] / 3


@pytest.fixture
def settings(tmp_path: Path) -> Config:
    """The shipped base model, and a warm-up of seconds."""
    sections = {name: each for name, each in learning(tmp_path).items() if name != "policy"}
    tree = {"run": RUN, "store": {"url": f"file://{tmp_path}/objects"}, **sections}
    return load(sets=[f"warmup.updates={UPDATES}", "warmup.minibatches=4", "warmup.lr=0.005"], environ={}, base=tree)


def published(state: LearnerState, settings: Config, number: int) -> Version:
    ref = put_adapter(open_store(settings.store), settings.run, state.policy.adapter())
    return replace(
        factories.version(number, update=state.u, adapter=ref, published_at=0),
        base_model_sha256=state.policy.base_sha256,
    )


def test_a_version_that_was_warmed_up_on_episodes_does_what_they_do(tmp_path: Path, settings: Config) -> None:
    """The real fold and the real decisions: from the base model to one that matches what it has cloned."""
    (tmp_path / "data").mkdir()
    records = [example(android_control(number, [OPEN, SCROLL, BACK], GOAL)) for number in range(6)]
    write(tmp_path / "data" / "file", [*records, example({"screenshots": []})])
    files = files_of(tmp_path / "data")

    def read() -> list[Found]:
        return list(episodes(files, dataset_of(files)))

    held, state = Screens(), LearnerState(settings)
    tokenizer = state.policy.tokenizer
    before = published(state, settings, 0)
    found = [each for each in read() if isinstance(each, RecordedEpisode)]
    demos = logged([demonstration_of(each, tokenizer, held.keep) for each in found])
    folded(state, [demos, *[[] for _ in range(UPDATES - 1)]], held, settings)
    first, last = match_versions(settings, [before, published(state, settings, 1)], Dataset.ANDROID_CONTROL, read)
    assert (first.version, last.version) == (0, 1)
    assert (last.steps.total(), last.skipped, last.unknown_goals) == (18, {"episodes: cannot be read": 1}, 0)
    assert first.match < last.match == 2 / 3
    assert last.match_of_possible == 1.0
    assert last.matched == {"open_app": 0, "scroll": 6, "navigate_back": 6}
    assert last.complete == 0
    assert json.loads(json.dumps(last.as_json()))["match"] == last.match
    expected = []
    for each in found:
        seen = observations(each, 0)
        prompts = [tokenizer.encode_prompt(GOAL, one.previous, one.screen()) for one in seen]
        chosen = state.policy.decide([one.png for one in seen], prompts, None, [0] * len(seen))
        expected.append((sum(do_match(each, [one.action for one in chosen])), len(seen)))
    assert last.episodes == expected


def test_what_cannot_be_measured_is_refused(settings: Config) -> None:
    version = published(LearnerState(settings), settings, 0)
    with pytest.raises(ConfigError, match="nothing can be read as aitw: 1 episodes: cannot be read"):
        list(match_versions(settings, [version], Dataset.AITW, lambda: [Unreadable("file, record 0", "why")]))
    with pytest.raises(PolicyError, match="belongs to base model"):
        list(match_versions(settings, [replace(version, base_model_sha256="0" * 64)], Dataset.AITW, list))


class Shy:
    """A decider that reads no long instruction, and whose thread may have ended."""

    earlier_screens = 0

    def __init__(self, ended: bool = False) -> None:
        self._ended = ended

    def episode(self) -> AbstractContextManager[None]:
        return nullcontext()

    def decide(self, observation: Observation) -> Decision:
        if self._ended:
            raise PolicyEndedError("worker", "the policy's thread has ended", "start it again")
        if len(observation.task.instruction) > 20:
            raise PolicyError("an instruction", "takes more tokens than a prompt has", "shorten it")
        return Decision(Action(ActionKind.BACK), "", (), (), 0.0, 0, "")


def test_an_episode_that_the_model_cannot_read_is_counted_and_the_others_are_measured(settings: Config) -> None:
    tokenizer, result = tokenizer_of(settings.policy), Matched(0, Dataset.AITW)
    short = episode([Action(ActionKind.BACK)])
    with ThreadPoolExecutor(2) as pool:
        for each in (replace(short, goal="turn on wifi " * 9), short):
            module._take(each, cast(VersionedDecider, Shy()), tokenizer, pool, result)
        with pytest.raises(PolicyEndedError):
            module._take(short, cast(VersionedDecider, Shy(ended=True)), tokenizer, pool, result)
    assert result.episodes == [(1, 1)]
    assert result.skipped == {"episodes: the base model cannot read a step": 1}
