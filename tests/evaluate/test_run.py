from __future__ import annotations

from dataclasses import replace

import pytest
from distrl.chat.endpoint import Counted
from distrl.config import Config
from distrl.errors import ConfigError
from distrl.evaluate import policies
from distrl.evaluate.curves import SuccessRate
from distrl.evaluate.play import evaluation_tasks
from distrl.evaluate.policies import PolicyId
from distrl.evaluate.prompted import AgentScore
from distrl.evaluate.run import SKEW_MS, VersionScore, begins_at, cut_off, named
from distrl.types import PROMPTED, Evaluation, Split

from .world import evaluation, task, trajectory, version

LINEAGE = [version(0, 4), version(1, 5), version(12, 16)]


def test_evaluation_tasks_are_the_same_whatever_the_runs_seed() -> None:
    other = Config.model_validate({"learner": {"seed": 5}})
    assert evaluation_tasks(Config(), Split.TEST, 20) == evaluation_tasks(other, Split.TEST, 20)
    assert evaluation_tasks(Config(), Split.TEST, 30)[:20] == evaluation_tasks(Config(), Split.TEST, 20)


def test_evaluation_tasks_are_of_their_split_and_no_other_has_their_ids() -> None:
    test, validation = (evaluation_tasks(Config(), split, 50) for split in (Split.TEST, Split.VALIDATION))
    assert {task.split for task in test} == {Split.TEST}
    assert not {task.task_id for task in test} & {task.task_id for task in validation}


@pytest.mark.parametrize(
    ("wanted", "numbers"), [("first,last", [0, 12]), ("1", [1]), (" 12 , 0 ", [12, 0]), ("0,first,0", [0])]
)
def test_versions_are_named_by_number_or_place(wanted: str, numbers: list[int]) -> None:
    assert [found.version for found in named(wanted, LINEAGE)] == numbers


@pytest.mark.parametrize("wanted", ["2", "newest", "", "1,,2"])
def test_a_version_that_is_not_there_is_refused_with_what_there_is(wanted: str) -> None:
    with pytest.raises(ConfigError, match="no version"):
        named(wanted, LINEAGE)


def test_a_run_without_versions_says_so() -> None:
    with pytest.raises(ConfigError, match="published no version"):
        named("last", [])


VALIDATION = [task(f"v-{n}", split=Split.VALIDATION) for n in range(4)]


def played(number: int, *tasks: int, by: str = "evaluator") -> list[Evaluation]:
    return [evaluation(number, trajectory(VALIDATION[n], worker=by)) for n in tasks]


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ([], 7),
        (played(0, 0, 1, 2, 3, by="evaluator-by-hand"), 7),
        (played(9, 0, 1, 2, 3, by="evaluator-by-hand"), 7),
        (played(9, 0, 1, by="evaluator-by-hand"), 7),
        (played(0, 0, by="evaluator-by-hand"), 7),
        ([evaluation(9, trajectory(task("t-0")))], 7),
        ([evaluation(PROMPTED, trajectory(VALIDATION[0]))], 7),
        (played(9, 0, 1), 9),
        (played(7, 2), 7),
        (played(7, 2, by="evaluator-by-hand"), 7),
        (played(7, 2, 3, by="evaluator-by-hand"), None),
        (played(7, 3, 2), None),
    ],
)
def test_a_version_that_was_cut_off_is_found_whatever_a_person_evaluated_since(
    others: list[Evaluation], expected: int | None
) -> None:
    before = [*played(6, 0, 1, 2, 3), *played(3, 0, by="evaluator-by-hand"), *played(7, 0, 1)]
    assert cut_off([*before, *others], VALIDATION) == expected


def test_where_only_a_person_evaluated_nothing_was_cut_off() -> None:
    assert cut_off(played(0, 0, 1, by="evaluator-by-hand"), VALIDATION) is None
    assert cut_off([], VALIDATION) is None


def test_a_score_reads_as_a_sentence() -> None:
    assert str(VersionScore(3, Split.TEST, SuccessRate(10, 5, 1))) == (
        "version 3, test: 5 of 10 = 50.0% (95 %: 23.7% to 76.3%), 1 without an outcome"
    )


def test_where_no_outcome_is_known_no_score_is_reported_and_what_has_none_is() -> None:
    unknown = SuccessRate(0, 0, 128)
    assert str(VersionScore(3, Split.TEST, unknown)) == "version 3, test: -, 128 without an outcome"
    agent = AgentScore("m", "ab" * 32, Split.TEST, unknown, 2, {}, Counted())
    assert str(agent) == (
        "m (abababababab), test: -, 128 without an outcome; 2 tasks have no record yet, and the same command plays them"
    )
    assert "5 of 10 = 50.0% (95 %: 23.7% to 76.3%), 1 without an outcome" in str(
        replace(agent, score=SuccessRate(10, 5, 1))
    )
    page = policies.as_html({PolicyId(3, "s"): unknown}, {})
    assert "<td>version 3</td><td>-</td><td>-</td><td>0 of 0</td><td>128</td>" in page


def test_a_stopped_evaluation_says_how_many_tasks_are_left() -> None:
    score = SuccessRate(9, 9)
    left = "; 119 tasks have no record yet"
    assert str(VersionScore(12, Split.TEST, score, 119)) == f"version 12, test: {score}{left}"
    assert str(VersionScore(12, Split.TEST, score)) == f"version 12, test: {score}"


def test_evaluations_of_a_copied_run_are_looked_for_before_the_copy_of_its_version() -> None:
    """Where copying adapters takes longer than clocks may differ, evaluations are further back than the record says."""
    made = replace(version(3, 7), published_at=2 * SKEW_MS)
    assert begins_at(made, 9 * SKEW_MS) == SKEW_MS
    assert begins_at(made, made.published_at + 50) == SKEW_MS
    assert begins_at(replace(made, published_at=5 * SKEW_MS), 2 * SKEW_MS) == SKEW_MS, "a learner's clock may be ahead"
    assert begins_at(made, None) == begins_at(replace(made, published_at=1), 5 * SKEW_MS) == 0
