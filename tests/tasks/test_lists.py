from __future__ import annotations

import json
import logging
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from distrl.config import Config, FeederSettings
from distrl.device import session
from distrl.errors import ConfigError
from distrl.evaluate.play import evaluation_tasks, warn_left_out
from distrl.feeder.facts import TaskFacts
from distrl.feeder.run import new_state
from distrl.feeder.state import FeederState
from distrl.tasks import lists, row
from distrl.tasks.formats import FORMATS, MAX_LINE
from distrl.tasks.list_report import done_at_the_start, overlaps, shares, unknown_words
from distrl.tasks.lists import ListSuite, TaskList, read_lists, suite_of, task_of
from distrl.tasks.outcome import CHECK, succeeded
from distrl.tasks.row import MAX_INSTRUCTION
from distrl.tasks.suite import suites
from distrl.types import Split, Task
from hypothesis import given
from hypothesis import strategies as st
from simphone.machine import fresh
from simphone.words import ALL

EXAMPLE = Path(__file__).parents[2] / "docs" / "lists" / "example.jsonl"
ON = {"app": "settings", "path": "on", "contains": "wifi sync"}


def read(tmp_path: Path, content: str | bytes, name: str = "mine_train.jsonl") -> TaskList:
    file = tmp_path / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_lists([file], 20)


def jsonl(*rows: object) -> str:
    return "".join(f"{json.dumps(each)}\n" for each in rows)


def said(found: TaskList) -> list[tuple[int, str]]:
    return [(each.line, each.what) for each in found.problems]


# What a file may look like


def test_a_row_of_our_own_form_says_everything(tmp_path: Path) -> None:
    setup = {"settings": {"show": "wifi sync", "on": False}}
    full = {
        "instruction": " turn  it on ",
        "suite": "s-1",
        "split": "test",
        "steps": 7,
        "family": "f",
        "check": ON,
        "setup": setup,
    }
    (found,) = read(tmp_path, jsonl(full)).rows
    assert (found.instruction, found.suite, found.split, found.steps, found.family) == (
        "turn it on",
        "s-1",
        Split.TEST,
        7,
        "f",
    )
    assert (json.loads(found.check), json.loads(found.setup), found.line) == (ON, setup, 1)


def test_csv_is_the_same_with_json_in_its_cells(tmp_path: Path) -> None:
    text = (
        "instruction,split,steps,check,setup\r\n"
        '"say ""hi"",\nthen stop",test,5,"[{""screen"": ""notes/list""}]",\r\n'
        "\r\n"
        "go,train,,,{}\r\n"
    )
    first, second = read(tmp_path, text, "mine.csv").rows
    assert (first.instruction, first.line, first.split, first.steps) == ('say "hi", then stop', 2, Split.TEST, 5)
    assert json.loads(first.check) == [{"screen": "notes/list"}]
    assert (second.instruction, second.line, second.split, second.steps, second.check) == (
        "go",
        5,
        Split.TRAIN,
        20,
        "",
    )


def test_episodes_of_android_in_the_wild_are_rows(tmp_path: Path) -> None:
    episode = {
        "goal_info": "open a new tab",
        "episode_id": 17,
        "dataset": "google_apps",
        "episode_length": 4,
        "step_id": 0,
    }
    (found,) = read(tmp_path, jsonl(episode), "aitw_val.jsonl").rows
    assert (found.instruction, found.suite, found.split) == ("open a new tab", "google_apps", Split.VALIDATION)
    assert found.params == (("episode_id", "17"),)


def test_a_text_is_an_instruction_a_line_and_the_files_name_says_the_rest(tmp_path: Path) -> None:
    found = read(tmp_path, "What's the news?\n\n  Open\u00a0maps \r\n", "general_test.txt").rows
    assert [(each.instruction, each.line) for each in found] == [("What's the news?", 1), ("Open maps", 3)]
    assert {(each.suite, each.family, each.split) for each in found} == {("general-list", "general-list", Split.TEST)}


def test_lines_that_end_by_a_carriage_return_alone_are_no_single_task(tmp_path: Path) -> None:
    found = read(tmp_path, "open a\ropen b\ropen c\r", "x_train.txt")
    assert [each.what for each in found.problems] == ["has a carriage return in it; end lines by LF or CRLF"]
    assert found.rows == ()


def test_a_field_twice_in_the_json_of_a_table_is_refused_as_in_json_itself(tmp_path: Path) -> None:
    check = '"{""app"":""notes"",""path"":""notes"",""contains"":""x"",""contains"":""y""}"'
    found = read(tmp_path, f"instruction,check\ngo,{check}\n", "x_train.csv")
    assert [each.what for each in found.problems] == ["`check`: an object names a field twice"]


def test_templates_of_android_world_are_filled_in(tmp_path: Path) -> None:
    tasks = [
        {
            "task_name": "Add",
            "task_template": 'Add "{who}", {number} {who}.',
            "difficulty": "easy",
            "tags": [],
            "optimal_steps": "5",
            "complexity": 1.29,
            "params": {"who": "Ann {x}", "number": 3, "seed": [1]},
        },
        {"task": "Go", "goal": "Go home", "max_steps": "8", "params": {}},
    ]
    first, second = read(tmp_path, "\ufeff" + json.dumps(tasks, indent=1), "android_world_test.json").rows
    assert (first.instruction, first.steps, first.family) == ('Add "Ann {x}", 3 Ann {x}.', 12, "Add")
    assert dict(first.params) == {"who": "Ann {x}", "number": "3", "seed": "[1]"}
    assert (second.instruction, second.steps, second.family, second.suite) == ("Go home", 8, "Go", "android_world")
    assert first.line == 2
    assert second.line == json.dumps(tasks, indent=1).splitlines().index(" {", 2) + 1


@pytest.mark.parametrize(
    ("name", "suite", "split"),
    [
        ("general_train.txt", "general-list", Split.TRAIN),
        ("web-shopping.TEST.txt", "web-shopping", Split.TEST),
        ("val.txt", "list", Split.VALIDATION),
        ("latest_validation_v2.txt", "latest_v2", Split.VALIDATION),
        ("my tasks_train.txt", "my-tasks", Split.TRAIN),
    ],
)
def test_the_name_of_a_file_says_suite_and_split(tmp_path: Path, name: str, suite: str, split: Split) -> None:
    (found,) = read(tmp_path, "go", name).rows
    assert (found.suite, found.split) == (suite, split)


@pytest.mark.parametrize("name", sorted(suites()))
def test_a_list_is_never_taken_for_the_built_in_suite_of_its_name(tmp_path: Path, name: str) -> None:
    (found,) = read(tmp_path, jsonl({"instruction": "go", "suite": name, "family": "alarm", "split": "train"})).rows
    assert (found.suite, found.family) == (f"{name}-list", "alarm")
    task = ListSuite("mine", [found]).task(0, 0, Split.TRAIN)
    assert succeeded(task, fresh(0, {}, 0.0).to_json()) is None


@pytest.mark.parametrize("name", ["general.txt", "train_test.txt", "latest.txt"])
def test_a_row_whose_split_nobody_says_is_refused(tmp_path: Path, name: str) -> None:
    assert said(read(tmp_path, "go", name)) == [(1, "no split: state `split`, or name the file like general_train.txt")]


# What is wrong is told, all of it

BAD = [
    ({"instruction": ""}, "no instruction"),
    ({"split": "train"}, "no instruction"),
    ({"instruction": "x", "chek": {}}, "no field 'chek'"),
    ({"instruction": "x", "goal": "y"}, "say the same thing"),
    ({"instruction": 3}, "is no text"),
    ({"instruction": "x" * (MAX_INSTRUCTION + 1)}, "2001 characters"),
    ({"instruction": "a\x1b[2Jb"}, "U+001B"),
    ({"instruction": "a\u202eb"}, "U+202E"),
    ({"instruction": "\ud800"}, "U+D800"),
    ({"instruction": "x", "split": "dev"}, "none of train, validation, test"),
    ({"instruction": "x", "split": 1}, "none of train"),
    ({"instruction": "x", "suite": "a b"}, "no name of a suite"),
    ({"instruction": "x", "family": "../x"}, "no name of a family"),
    *(({"instruction": "x", "steps": steps}, "1 to 200 steps")
      for steps in (0, -1, 201, 2.5, "many", True, [3], 10**400, float("nan"), float("inf"))),
    ({"instruction": "x", "complexity": 0.01}, "1 to 200 steps"),
    ({"instruction": "x", "steps": 3, "complexity": 1}, "say the same thing"),
    ({"instruction": "x", "check": "{"}, "no JSON"),
    ({"instruction": "x", "check": {"app": "mail"}}, "exactly the fields"),
    ({"instruction": "x", "setup": []}, "no object"),
    ({"instruction": "x", "setup": {"camera": {}}}, "no such app"),
    ({"instruction": "x", "setup": {"settings": {"show": "tea"}}}, "none of"),
    ({"instruction": "x", "setup": {"settings": {"show": "wifi sync", "on": "off"}}}, "neither true nor false"),
    ({"instruction": "x", "setup": {"packages": ["a; reboot"]}}, "Android packages"),
    ({"instruction": "x", "setup": {"a": "b" * 5_000}}, "at most 4000"),
    ({"instruction": "x", "params": {"check": "1"}}, "no name of a parameter"),
    ({"instruction": "x", "params": {f"p{n}": 1 for n in range(33)}}, "at most 32"),
    ({"template": "add {who}", "params": {"what": "x"}}, "nothing for {who}"),
    ({"template": "{a.__class__}", "params": {"a": "x"}}, "nothing for {a.__class__}"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "what"), BAD)
def test_a_bad_row_is_refused_with_its_line_and_the_reason(
    tmp_path: Path, fields: dict[str, object], what: str
) -> None:
    found = read(tmp_path, jsonl({"instruction": "fine"}, fields, {"instruction": "fine, too"}))
    ((line, told),) = said(found)
    assert line == 2
    assert what in told
    assert len(found.rows) == 2


@pytest.mark.parametrize(
    ("name", "content", "lines"),
    [
        ("a_train.jsonl", b'{"instruction": "x"}\n[]\n{"a": 1, "a": 2}\n\xff\n{"instruction', [2, 3, 4, 5]),
        ("a_train.jsonl", b"[" * 60_000, [1]),
        ("a_train.jsonl", b"x" * (MAX_LINE + 1) + b'\n{"instruction": "x"}', [1]),
        ("a_train.txt", b"x\n\xff\x00\ny\x00\n", [2, 3]),
        ("a_train.csv", b"instruction,instruction\nx,y\n", [1]),
        ("a_train.csv", b"instruction,steps\nx\ny,2,3\nz,4\n", [2, 3]),
        ("a_train.csv", b'instruction\nx\n"y', [3]),
        ("a_train.csv", b"instruction\nx\n\xff\n", [3]),
        ("a_train.csv", b"text\nx\n", [2]),
        ("a_train.json", b'[{"goal": "x"},\n3,\n{"goal": "y"}\n', [2, 4]),
        ("a_train.json", b'[{"goal": "x"}] 3', [1]),
        ("a_train.json", b'{"goal": "x"}', [1]),
        ("a_train.json", b'\n[{"goal": "x"}\n{"goal": "y"}]', [3]),
        ("a_train.json", b"[" * 100_000, [1]),
        ("a_train.json", b"[]", [0]),
        ("a_train.txt", b"", [0]),
        ("a_train.yaml", b"x", [0]),
    ],
)
def test_every_problem_of_a_file_is_reported_with_its_line(
    tmp_path: Path, name: str, content: bytes, lines: list[int]
) -> None:
    assert [each.line for each in read(tmp_path, content, name).problems] == lines


def test_an_empty_file_beside_others_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a_train.txt").write_text("go")
    (tmp_path / "b_test.txt").write_text("\n")
    found = read_lists([tmp_path / "a_train.txt", tmp_path / "b_test.txt"], 20)
    assert [str(each) for each in found.problems] == [f"{tmp_path / 'b_test.txt'}: holds no task"]


def test_a_file_that_is_missing_a_folder_or_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder.txt").mkdir()
    monkeypatch.setattr("distrl.tasks.lists.MAX_FILE", 3)
    (tmp_path / "large_train.txt").write_text("four")
    found = read_lists([tmp_path / name for name in ("none.txt", "folder.txt", "large_train.txt")], 20)
    assert [each.what for each in found.problems] == [
        "cannot be read (No such file or directory)",
        "cannot be read (Is a directory)",
        "has more than 3 bytes",
    ]


def test_too_many_rows_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distrl.tasks.formats.MAX_ROWS", 3)
    assert read(tmp_path, "a\nb\nc", "x_train.txt").problems == ()
    assert said(read(tmp_path, "a\nb\nc\nd", "x_train.txt")) == [(0, "has more than 3 rows")]


def test_what_is_reported_of_hostile_text_is_printable(tmp_path: Path) -> None:
    found = read(tmp_path, jsonl({"instruction": "x", "setup": {"\x1b]0;title\x07": {}}}, {"\x1b[2J": 1}))
    assert len(found.problems) == 2
    assert all(str(each).isprintable() for each in found.problems)


@given(st.sampled_from(sorted(FORMATS)), st.binary(max_size=200))
def test_any_bytes_are_a_list_or_problems_with_a_reason(suffix: str, data: bytes) -> None:
    _holds_its_promise(suffix, data)


rows = st.dictionaries(
    st.sampled_from([*row.KNOWN, "x"]),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("train"),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=8), inner, max_size=2),
        max_leaves=4,
    ),
    max_size=5,
)  # fmt: skip


@given(st.lists(rows | st.fixed_dictionaries({"instruction": st.text(), "split": st.sampled_from(["train", "test"])})))
def test_any_rows_are_a_list_or_problems_with_a_reason(given: list[dict[str, object]]) -> None:
    _holds_its_promise(".jsonl", jsonl(*given).encode())
    _holds_its_promise(".json", json.dumps(given).encode())


def _holds_its_promise(suffix: str, data: bytes) -> None:
    """Each row is within bounds and gives tasks; each problem is a line of text."""
    with tempfile.TemporaryDirectory() as folder:
        found = read(Path(folder), data, f"any_train{suffix}")
    assert found.rows or found.problems
    assert all(str(each).isprintable() and each.what for each in found.problems)
    suite = ListSuite("any", found.rows)
    for each in found.rows:
        assert each.instruction.isprintable()
        assert 1 <= len(each.instruction) <= MAX_INSTRUCTION
        assert 1 <= each.steps <= row.MAX_STEPS
        suite.task(0, 0, each.split)


# What is fed


def three(tmp_path: Path) -> ListSuite:
    made = [{"instruction": f"do {n}", "check": ON} for n in range(5)] + [{"instruction": "do 1", "check": ON}]
    held = [{"instruction": f"hold {n}", "split": "test"} for n in range(3)]
    return ListSuite("three", read(tmp_path, jsonl(*made, *held)).rows)


def test_training_goes_through_the_list_again_and_again_each_round_in_another_order(tmp_path: Path) -> None:
    suite = three(tmp_path)
    played = [suite.task(index, 3, Split.TRAIN) for index in range(60)]
    rounds = [tuple(task.instruction for task in played[begin : begin + 6]) for begin in range(0, 60, 6)]
    once = Counter({f"do {n}": 2 if n == 1 else 1 for n in range(5)})
    assert all(Counter(each) == once for each in rounds)
    assert len(set(rounds)) > 5
    assert len({task.task_id for task in played}) == len({task.phone_seed for task in played}) == 60
    assert played == [suite.task(index, 3, Split.TRAIN) for index in range(60)]
    assert [suite.task(index, 4, Split.TRAIN).instruction for index in range(60)] != [t.instruction for t in played]
    assert json.loads(played[0].params[CHECK]) == ON


def test_held_out_tasks_keep_the_order_of_the_list_and_begin_again_after_its_end(tmp_path: Path) -> None:
    suite = three(tmp_path)
    played = [suite.task(index, 7, Split.TEST) for index in range(7)]
    assert [task.instruction for task in played] == [f"hold {n % 3}" for n in range(7)]
    assert len({task.task_id for task in played}) == 7
    assert len({task.phone_seed for task in played}) == 7


def test_a_list_that_grows_keeps_the_ids_of_what_it_had(tmp_path: Path) -> None:
    """A feeder that starts again with a longer list feeds what is new, and nothing twice in a round."""
    short, long = [{"instruction": f"do {n}"} for n in range(4)], [{"instruction": f"do {n}"} for n in range(-2, 4)]
    before, after = (ListSuite("s", read(tmp_path, jsonl(*each)).rows) for each in (short, long))
    first = {before.task(n, 0, Split.TRAIN).task_id: before.task(n, 0, Split.TRAIN) for n in range(4)}
    second = {after.task(n, 0, Split.TRAIN).task_id: after.task(n, 0, Split.TRAIN) for n in range(6)}
    assert first.items() <= second.items()


def test_the_feeder_feeds_the_list_and_each_row_once_before_any_twice(tmp_path: Path) -> None:
    (tmp_path / "t_train.txt").write_text("a\nb\nc\nd\n")
    config = Config.model_validate({"feeder": {"tasks": str(tmp_path / "t_train.txt"), "task_steps": 9}})
    state = new_state(config)
    fed = []
    for _ in range(8):
        task = state._next()
        state.facts.see_task(task)
        fed.append(task)
    assert Counter(task.instruction for task in fed[:4]) == Counter("abcd")
    assert Counter(task.instruction for task in fed) == Counter("abcd" * 2)
    assert {(task.suite, task.max_steps) for task in fed} == {("t", 9)}


@pytest.mark.parametrize("stopped_at", [0, 3, 19])
def test_a_row_that_comes_in_the_middle_of_a_run_is_fed_once_a_round_like_the_others(
    tmp_path: Path, stopped_at: int
) -> None:
    """stopped_at: of round 30, tasks that were fed when the feeder stopped; where none was, round 29 is the newest."""
    rows = [f"do {n}\n" for n in range(20)]
    (before := tmp_path / "t_train.txt").write_text("".join(rows))
    (tmp_path / "later").mkdir()
    (after := tmp_path / "later" / "t_train.txt").write_text("".join([*rows, "do what is new\n", "do more\n"]))

    def state_of(file: Path, facts: TaskFacts | None = None) -> FeederState:
        config = Config.model_validate({"feeder": {"tasks": str(file), "task_steps": 9}})
        state = new_state(config, facts)
        state.find_next()
        return state

    def fed(state: FeederState, count: int) -> list[Task]:
        found = []
        for _ in range(count):
            found.append(state._next())
            state.facts.see_task(found[-1])
        return found

    begun = state_of(before)
    fed(begun, 20 * 30 + stopped_at)
    again = state_of(after, begun.facts)
    rest = fed(again, (20 - stopped_at) % 20 + 2)
    next_round = fed(again, 22)
    for tasks in (rest, next_round):
        assert {"do what is new", "do more"} <= {task.instruction for task in tasks}
        assert len({task.instruction for task in tasks}) == len(tasks), "each row once"
    assert len(again.facts.fed) == 20 * 30 + stopped_at + len(rest) + 22, "nothing is fed twice"


def test_a_split_that_the_list_lacks_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "t_test.txt").write_text("a\n")
    config = Config.model_validate({"feeder": {"tasks": [tmp_path / "t_test.txt"]}})
    with pytest.raises(ConfigError, match=r"t_test.txt has no train task"):
        new_state(config)
    with pytest.raises(ConfigError, match="has no validation task"):
        evaluation_tasks(config, Split.VALIDATION, 3)
    assert len(evaluation_tasks(config, Split.TEST, 3)) == 3


@pytest.mark.parametrize(
    ("tasks", "missing"),
    [
        (2, "is of webshop-list"),
        (3, "is of webshop-list/buy, webshop-list/find"),
        (4, "is of webshop-list/find"),
        (5, None),
        (9, None),
    ],
)
def test_what_of_a_list_no_evaluation_would_play_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, tasks: int, missing: str | None
) -> None:
    rows = [("general", "sort"), ("general", "sort"), ("webshop", "sort"), ("webshop", "buy"), ("webshop", "find")]
    lines = [
        json.dumps({"instruction": f"do {n}", "suite": suite, "family": family, "split": "validation"})
        for n, (suite, family) in enumerate(rows)
    ]
    (tmp_path / "mine.jsonl").write_text("\n".join(lines))
    config = Config.model_validate({"feeder": {"tasks": [tmp_path / "mine.jsonl"]}})
    with caplog.at_level(logging.WARNING, "distrl"):
        warn_left_out(config, Split.VALIDATION, tasks, "evaluate.validation_episodes")
    found = [record.getMessage() for record in caplog.records]
    assert len(found) == (missing is not None)
    if missing is not None:
        assert f"{missing}, so none" in found[0]
        assert "evaluate.validation_episodes" in found[0]


def test_a_wrong_list_is_refused_with_its_rows_and_where_to_see_all(tmp_path: Path) -> None:
    (tmp_path / "t_train.jsonl").write_text("[]\n" * 30)
    with pytest.raises(ConfigError) as refused:
        suite_of(FeederSettings(tasks=(tmp_path / "t_train.jsonl",)))
    assert "wrong in 30 places" in refused.value.what
    assert f"{tmp_path / 't_train.jsonl'}:20: is no JSON object" in refused.value.what
    assert refused.value.what.endswith("and 10 more")
    assert "distrl tasks check" in refused.value.hint


def test_a_list_is_not_weighed_by_family() -> None:
    with pytest.raises(ValueError, match=r"feeder.tasks is fed in rounds"):
        Config.model_validate({"feeder": {"tasks": "x.jsonl", "curriculum": True}})


# What a person should know of it


def test_what_training_and_held_out_splits_share_is_counted_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = jsonl(
        {"instruction": "Go to ebay.com, search for 'usb-c', and stop"},
        {"instruction": "Set an alarm for 7"},
        {"template": "call {who}", "params": {"who": "Ann"}},
        {"instruction": "What's up?"},
        {"instruction": "set an  ALARM for 7", "split": "test"},
        {"instruction": "go to ebay.com, search for 'lamp', and stop", "split": "test"},
        {"template": "Call {who}", "params": {"who": "Bea"}, "split": "test"},
        {"instruction": "What's new? It's cold", "split": "test"},
        {"instruction": "set an alarm for 8", "split": "val"},
    )
    test, validation = overlaps(read(tmp_path, text, "shared_train.jsonl").rows)
    assert (test.split, test.rows) == (Split.TEST, 4)
    assert [each.line for each in test.identical] == [5]
    assert [each.line for each in test.alike] == [6, 7]
    assert (validation.split, len(validation.identical), len(validation.alike)) == (Split.VALIDATION, 0, 1)
    with caplog.at_level(logging.INFO):
        suite_of(FeederSettings(tasks=(tmp_path / "shared_train.jsonl",)))
    # Other threads of this process may log, too.
    logged = [(each.levelname, each.getMessage()) for each in caplog.records if each.name == lists.log.name]
    assert logged == [
        ("INFO", "shared_train.jsonl: 9 tasks, 0 of them duplicates"),
        ("WARNING", "shared_train.jsonl: 1 of 4 test tasks have an instruction that training has, 2 more its template"),
        (
            "INFO",
            "shared_train.jsonl: 0 of 1 validation tasks have an instruction that training has, 1 more its template",
        ),
    ]


def test_duplicates_are_counted_and_stay(tmp_path: Path) -> None:
    found = read(tmp_path, "a\nb\na\n a\n", "x_train.txt")
    assert (len(found.rows), found.duplicates) == (4, 2)
    other = read(tmp_path, jsonl({"instruction": "a"}, {"instruction": "a", "steps": 3}))
    assert other.duplicates == 0
    episodes = read(tmp_path, jsonl(*({"goal_info": "a", "episode_id": each} for each in (1, 2, 2))))
    assert episodes.duplicates == 2, "of which episode it is, it does not ask"
    assert [task_of(each, 1, 0).task_id for each in episodes.rows] == [
        "mine-train-1-34d1dce7c315e081-0000",
        "mine-train-1-29a21722be39d512-0000",
        "mine-train-1-29a21722be39d512-1-0000",
    ], "records name these"


def test_a_check_that_holds_before_anything_is_done_is_found(tmp_path: Path) -> None:
    setup = {"settings": {"show": "wifi sync", "on": False}}
    empty = {"app": "notes", "path": "notes", "lacks": "tea"}
    found = read(
        tmp_path,
        jsonl(
            {"instruction": "a", "check": ON},
            {"instruction": "b", "check": ON, "setup": setup},
            {"instruction": "c", "check": empty},
            {"instruction": "d"},
            {"instruction": "e", "check": empty, "setup": {"packages": ["com.a"]}},
        ),
    )
    assert [each.instruction for each in done_at_the_start(found.rows)] == ["a", "c"]


def test_unknown_words_are_counted(tmp_path: Path) -> None:
    found = read(tmp_path, "turn on tea\ntea time\n", "x_train.txt")
    counted = unknown_words(found.rows, lambda text: [word for word in text.split() if word not in ALL])
    assert counted == {"tea": 2, "time": 1}


def test_the_example_is_sound(tmp_path: Path) -> None:
    found = read_lists([EXAMPLE], 20)
    assert found.problems == ()
    assert {each.split for each in found.rows} == set(Split)
    assert all(each.rows == each.checked for each in shares(found.rows))
    assert [one.identical for one in overlaps(found.rows)] == [(), ()]
    assert done_at_the_start(found.rows) == []
    assert unknown_words(found.rows, lambda text: [word for word in text.split() if word not in ALL]) == {}


def test_packages_are_named_here_as_the_phones_take_them() -> None:
    assert row.PACKAGE.pattern == session.PACKAGE.pattern
