"""The columns of an exported Parquet file. Whoever reads such files names them, so each kind's are written out here."""

from __future__ import annotations

from dataclasses import field, make_dataclass

import pytest
from distrl.offline.columns import TIME as MOMENT
from distrl.offline.columns import columns_of, schema_of
from distrl.types import (
    Action,
    Draws,
    Evaluation,
    Figures,
    Heartbeat,
    Record,
    Settings,
    Snapshot,
    Step,
    Task,
    Trajectory,
    Update,
    Version,
)
from wire.records import KINDS

TIME = "timestamp[ms, tz=UTC]"
INTEGERS = "list<item: int64>"
TEXTS = "map<string, string>"
REF = "struct<key: string, sha256: string, size: int64>"
MARK = "topic: string, partition: int64"

PLACE = f"topic string | partition int32 | offset int64 | timestamp {TIME} | key binary"
EVALUATED = "evaluation_id string | evaluated_version int64 | evaluated_sha256 string"
ATTEMPT = (
    f"task_id string | suite string | family string | split string | instruction string | params {TEXTS} | "
    f"phone_seed int64 | max_steps int64 | fed_at {TIME} | fed_version int64 | attempt_id string | worker string | "
    f"device string | outcome string | outcome_source string | note string | is_expert bool | started_at {TIME} | "
    f"finished_at {TIME} | validity_source string | final_restless bool | steps int32 | final_screenshot_key string | "
    "final_screenshot_sha256 string | "
    "unmet list<item: struct<path: string, rule: string, wanted: string, found: string>> | final_state string | "
    "reason string"
)
STEP = (
    "step int32 | screenshot_key string | screenshot_sha256 string | screenshot_size int64 | "
    f"prompt_ids {INTEGERS} | action_ids {INTEGERS} | action string | touch_x double | touch_y double | "
    f"lift_x double | lift_y double | typed string | action_text string | logprob double | "
    f"version int64 | version_sha256 string | at {TIME} | phone_ms double | adb_ms double | policy_ms double | "
    "publish_ms double | valid bool | held_back string | restless bool | entropy double"
)
COLUMNS: dict[type[Record] | None, str] = {
    Trajectory: f"{PLACE} | {ATTEMPT} | {STEP}",
    Evaluation: f"{PLACE} | {EVALUATED} | {ATTEMPT} | {STEP}",
    Task: f"{PLACE} | task_id string | suite string | family string | split string | instruction string | "
    f"max_steps int64 | phone_seed int64 | params {TEXTS} | setup string | fed_at int64 | fed_version int64",
    Version: f"{PLACE} | version int64 | parent int64 | update int64 | base_model_sha256 string | adapter {REF} | "
    f"config_fingerprint string | published_at int64 | supersedes {INTEGERS}",
    Update: f"{PLACE} | u int64 | watermarks list<item: struct<{MARK}, offset: int64>> | config_fingerprint string | "
    f"journalled_at int64 | put_aside list<item: struct<{MARK}, offsets: {INTEGERS}>> | window_sha256 string | "
    "log_id string | version int64 | void string | "
    f"skipped list<item: struct<{MARK}, offset: int64, sha256: string, reason: string>> | device string",
    Heartbeat: f"{PLACE} | process string | role string | at int64 | version int64 | version_sha256 string | "
    "metrics map<string, double> | "
    "devices list<item: struct<serial: string, state: string, counters: map<string, int64>>> | "
    f"partitions {INTEGERS}",
    Settings: f"{PLACE} | at int64 | role string | process string | sources list<item: string> | software string | "
    f"fingerprint string | is_change bool | settings {TEXTS}",
    Snapshot: f"{PLACE} | at int64 | format int64 | "
    f"covered list<item: struct<{MARK}, last: int64, sha256: string>> | feeder binary | view binary",
    Draws: f"{PLACE} | u int64 | phase string | journalled_at int64 | trajectories list<item: struct<{MARK}, "
    "offset: int64, steps: list<item: struct<step: int64, times: int64, value: double, advantage: double, "
    "td_error: double, ratio: double, priority: double>>>>",
    Figures: f"{PLACE} | u int64 | journalled_at int64 | at int64 | metrics map<string, double>",
    None: f"{PLACE} | headers list<item: struct<name: string, value: binary>> | value binary",
}


@pytest.mark.parametrize("kind", [*KINDS, None], ids=lambda kind: kind.__name__ if kind else "no record")
def test_the_columns_of_a_kind_keep_their_names_types_and_order(kind: type[Record] | None) -> None:
    """A new field's column may come among them, and needs no line here."""
    held, found = COLUMNS[kind].split(" | "), [f"{column.name} {column.type}" for column in schema_of(kind)]
    assert [column for column in found if column in held] == held


@pytest.mark.parametrize("kind", [Trajectory, Evaluation])
def test_a_row_of_a_step_has_no_column_that_was_never_there(kind: type[Record]) -> None:
    assert not {"setup", "final_screenshot_size", "task", "trajectory", "action_kind"} & set(schema_of(kind).names)


@pytest.mark.parametrize("kind", KINDS)
def test_no_two_columns_share_a_name(kind: type[Record]) -> None:
    """Broken by a new field that is called as another one of its row: a line in NAMED of offline/columns.py."""
    names = schema_of(kind).names
    assert sorted(set(names)) == sorted(names)


def test_a_new_field_is_a_column_behind_the_others() -> None:
    action = make_dataclass("Action", [("force", float, field(default=0.5))], bases=(Action,), frozen=True)
    new = [("action", action), ("held_at", int, field(default=3))]
    step = make_dataclass("Step", new, bases=(Step,), frozen=True)
    names = [column.name for column in columns_of(Step)]
    grown = columns_of(step)
    names.insert(names.index("typed") + 1, "force")
    assert [column.name for column in grown] == [*names, "held_at"]
    assert grown[-1].type == MOMENT
