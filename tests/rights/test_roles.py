"""The table of rights: what must never be in it, and what every run needs of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from distrl.appagent import identity
from distrl.broker.topics import TOPICS
from distrl.errors import ConfigError
from distrl.rights.roles import ROLES, GroupRight, ObjectRight, TopicRight, role_named
from distrl.rights.table import markdown, rows, written_into
from distrl.store.folders import AGENTS, FOLDERS, RUNS, SCREENSHOTS

ROOT = Path(__file__).parents[2]
TRUTH = ("versions", "updates")


@pytest.mark.parametrize("right", TopicRight)
def test_every_topic_is_made_written_and_read_by_somebody(right: TopicRight) -> None:
    assert {topic for topic in TOPICS if any(role.may(right, topic) for role in ROLES.values())} == set(TOPICS)


@pytest.mark.parametrize("topic", TRUTH)
def test_versions_and_updates_are_the_learners_alone(topic: str) -> None:
    assert [name for name, role in ROLES.items() if role.may(TopicRight.WRITE, topic)] == ["learner"]


def test_weights_and_checkpoints_are_the_learners_alone() -> None:
    for folder in ("adapters", "runs"):
        writers = [name for name, role in ROLES.items() if role.may_object(ObjectRight.PUT, FOLDERS[folder])]
        assert writers == ["learner"]


def test_tasks_are_the_feeders_but_for_what_an_operator_publishes_again() -> None:
    assert [name for name, role in ROLES.items() if role.may(TopicRight.WRITE, "tasks")] == ["operator", "feeder"]


def test_a_viewer_reads_everything_of_a_run_and_changes_nothing() -> None:
    viewer = ROLES["viewer"]
    assert {topic for topic in TOPICS if viewer.may(TopicRight.READ, topic)} == set(TOPICS)
    assert not viewer.topics[TopicRight.WRITE] | viewer.topics[TopicRight.MAKE] | viewer.transactional_ids
    assert viewer.group == {GroupRight.ASK}
    assert not viewer.objects[ObjectRight.PUT] | viewer.objects[ObjectRight.DELETE]


def test_who_puts_may_look_whether_it_is_there() -> None:
    """The client does so before it uploads 256 KB or more."""
    for role in ROLES.values():
        assert role.objects.get(ObjectRight.PUT, frozenset()) <= role.objects.get(ObjectRight.GET, frozenset())


def test_an_evaluator_may_judge() -> None:
    """What `distrl judge` reads and stores."""
    role = ROLES["evaluator"]
    assert all(role.may(TopicRight.READ, topic) for topic in ("trajectories", "settings"))
    assert all(role.may_object(ObjectRight.GET, FOLDERS[name]) for name in ("screenshots", "verdicts"))
    assert role.may_object(ObjectRight.PUT, FOLDERS["verdicts"])
    assert "`distrl judge`" in role.does


def test_every_folder_is_of_one_run_but_for_what_says_nothing_of_a_run() -> None:
    assert [folder.name for folder in FOLDERS.values() if folder.is_shared] == ["agents", "check"]
    assert SCREENSHOTS.of("mine") == "screenshots/mine"
    assert RUNS.of("mine") == "runs/mine"
    assert identity.key("0" * 64).startswith(f"{AGENTS.of('mine')}/")


def test_a_role_that_there_is_not_is_refused() -> None:
    with pytest.raises(ConfigError, match="no role 'root'") as refused:
        role_named("root")
    assert "operator, feeder" in refused.value.hint


def test_the_page_has_the_table() -> None:
    page = (ROOT / "docs" / "security.md").read_text()
    assert written_into(page) == page, "run `python -m distrl.rights`"
    assert markdown() in page
    assert all(len(row) == 1 + len(ROLES) for row in rows())


def test_a_page_without_the_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="has no"):
        written_into("# Security\n")
