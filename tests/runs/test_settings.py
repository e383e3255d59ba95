"""A learning setting that is not the run's is named, with both values and the flag that goes on."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Annotated, Any, ClassVar

import brought_algorithm
import pytest
from distrl.broker.duplicates import IdSet
from distrl.broker.journal import History
from distrl.broker.reader import RawRecord
from distrl.config import Config, LearnerSettings, Section, ServerSettings, load
from distrl.config.effects import Effect, When
from distrl.errors import BrokerError, ConfigError, WireError
from distrl.learner.recover import Log, recover, snapshot, unfolded
from distrl.learner.state import LearnerState
from distrl.runs import recorded
from distrl.runs.recorded import RecordedSettings, base_tree, completed, refuse_other_settings
from distrl.runs.settings import BASE_SHA256, differences, learned, learning_fingerprint, run_settings
from distrl.store.checkpoints import save_checkpoint
from distrl.store.objects import open_store
from distrl.types import LogPosition, Settings
from learner.world import Screens, save_tiny_base, update_of, windows
from learner.world import config as small
from pydantic import SecretStr


def changed(config: Config, section: str, **values: object) -> Config:
    return config.model_copy(update={section: getattr(config, section).model_copy(update=values)})


def record(values: dict[str, Any], fingerprint: str = "", *, is_change: bool = False) -> Settings:
    texts = {path: json.dumps(value) for path, value in values.items()}
    return Settings(1, "learner", "process 1", (), "0.1", fingerprint, is_change, texts)


Holds = Callable[[RecordedSettings | None], None]


@pytest.fixture
def log_holds(monkeypatch: pytest.MonkeyPatch) -> Holds:
    """What the run's topic holds; tests/integration/test_run_settings.py reads a real one."""
    return lambda found: monkeypatch.setattr(recorded, "recorded", lambda _: found)


@pytest.fixture
def begun(tmp_path: Path, log_holds: Holds) -> Config:
    """The settings of a run whose learner has started once."""
    save_tiny_base(tmp_path / "base")
    config = small(tmp_path / "base", f"store.url=file://{tmp_path / 'objects'}")
    log_holds(RecordedSettings((record(run_settings(config), learning_fingerprint(config)),)))
    return config


def refused(fingerprint: str, config: Config) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        refuse_other_settings(fingerprint, config, "update 3 in the journal")
    return caught.value


def test_a_checkpoint_of_other_settings_is_refused_with_the_settings_and_both_values(begun: Config) -> None:
    store = open_store(begun.store)
    save_checkpoint(store, begun.run, *snapshot(LearnerState(begun), IdSet()))
    other = changed(changed(begun, "algorithm", gamma=0.5), "learner", seed=7, checkpoint_every=9)
    with pytest.raises(ConfigError) as caught:
        recover(other, store, history=History(), log=Log({}, ""))
    assert caught.value.where == "algorithm.gamma, learner.seed", "checkpoint_every changes no result"
    assert "algorithm.gamma is 0.5 here and 0.97 there; learner.seed is 7 here and 0 there" in caught.value.what
    assert "--set algorithm.gamma=0.97 --set learner.seed=0" in caught.value.hint


def test_a_journal_of_other_settings_is_refused_with_the_setting(begun: Config) -> None:
    window = windows(Screens(), begun, 1)[0]
    update = update_of(0, window, (), begun)
    other = changed(begun, "algorithm", entropy=0.25)
    entropy = r"algorithm\.entropy"
    with pytest.raises(ConfigError, match=rf"^{entropy}: update 0 .* {entropy} is 0\.25 here and 0\.002 there"):
        unfolded([update], LearnerState(other), other)


def test_the_flags_of_the_advice_go_on(begun: Config) -> None:
    fingerprint = learning_fingerprint(begun)
    other = changed(begun, "policy", lora_targets=("q",), base_model=None)
    words = shlex.split(refused(fingerprint, other).hint.removesuffix(", or choose a new `run`"))
    flags = [word for word in words if "=" in word]
    assert {flag.partition("=")[0] for flag in flags} == {"policy.lora_targets", "policy.base_model"}
    whole = load(sets=flags, environ={}).policy
    assert (whole.lora_targets, whole.base_model) == (begun.policy.lora_targets, begun.policy.base_model)


def test_equal_settings_are_no_matter_whatever_the_log_knows(begun: Config, log_holds: Holds) -> None:
    log_holds(None)
    refuse_other_settings(learning_fingerprint(begun), begun, "a checkpoint")


def test_a_run_whose_settings_the_log_does_not_know_is_refused_all_the_same(begun: Config) -> None:
    assert "other settings under policy, warmup, algorithm or learner" in refused("0" * 64, begun).what


def test_a_log_that_cannot_be_read_hides_no_refusal(begun: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_: Config) -> None:
        raise BrokerError("kafka.bootstrap", "no answer", "start it")

    monkeypatch.setattr(recorded, "recorded", away)
    assert "other settings" in refused("0" * 64, begun).what


def test_the_first_record_and_every_change_count_and_a_second_first_one_does_not() -> None:
    found = RecordedSettings(
        (
            record({"learner.seed": 1, "feeder.max_lag": 4}, "one"),
            record({"learner.seed": 2, "feeder.max_lag": 9}, "two"),
            record({"feeder.max_lag": 2}, "one", is_change=True),
            record({"learner.seed": 3}, "three", is_change=True),
        )
    )
    assert found.values == {"learner.seed": 3, "feeder.max_lag": 2}
    assert found.with_fingerprint("one") == {"learner.seed": 1, "feeder.max_lag": 2}
    assert found.with_fingerprint("two") == {}


def test_an_incomplete_copy_has_the_settings_that_are_copied_already_and_is_base_of_nothing(begun: Config) -> None:
    marker = record({recorded.INCOMPLETE: True}, is_change=True)
    first = record(run_settings(begun))
    for copied in ((), (first,), (first, record({"feeder.max_lag": 2}, is_change=True))):
        found = RecordedSettings((marker, *copied))
        assert found.history == copied
        with pytest.raises(ConfigError, match=f"^run {begun.run}: is an incomplete copy at the broker "):
            base_tree(found, begun)
        assert not RecordedSettings((*copied, record({}))).is_incomplete_copy


def test_what_belongs_to_a_machine_or_is_secret_is_not_in_the_log(begun: Config) -> None:
    mine = load(
        sets=[
            "kafka.bootstrap=10.9.8.7:9092",
            "kafka.security_protocol=SASL_SSL",
            "kafka.sasl_username=mine-alone",
            "kafka.sasl_password=mine-alone",
            "kafka.client.ssl.key.password=mine-alone",
            "store.url=s3://127.0.0.1:9000/mine-alone",
            "store.access_key=mine-alone",
            "store.secret_key=mine-alone",
            "adb.host=mine-alone",
            "devices.addresses=[10.9.8.7:5555]",
            "devices.directory=/mine-alone",
            "worker.name=mine-alone",
            "evaluate.name=mine-alone",
            "judge.endpoint=http://10.9.8.7/v1",
            "judge.model=mine-alone",
            "judge.api_key=mine-alone",
            "stack.directory=/mine-alone",
        ],
        environ={},
    )
    text = json.dumps(run_settings(mine))
    assert "mine-alone" not in text
    assert "10.9.8.7" not in text


@pytest.mark.parametrize(
    ("url", "is_shared"),
    [
        ("s3://objects.example:9000/runs", True),
        ("s3s://10.9.8.7/runs", True),
        ("s3://127.0.0.1:9000/runs", False),
        ("s3://localhost:9000/runs", False),
        ("s3://[::1]:9000/runs", False),
        ("file:///shared/objects", False),
    ],
)
def test_a_store_that_other_machines_reach_is_in_the_log_without_its_keys(
    begun: Config, url: str, is_shared: bool
) -> None:
    mine = load(sets=[f"store.url={url}", "store.access_key=key", "store.secret_key=mine-alone"], environ={})
    values = run_settings(mine)
    assert values.get("store.url") == (url if is_shared else None)
    assert not {"store.access_key", "store.secret_key"} & values.keys()
    read = load(environ={}, base=base_tree(RecordedSettings((record(values),)), begun))
    assert (read.store.url == url) is is_shared


def test_settings_from_the_log_are_the_base_of_those_given(begun: Config) -> None:
    found = RecordedSettings((record(run_settings(changed(begun, "feeder", max_lag=2, curriculum=True))),))
    tree = base_tree(found, begun)
    assert load(environ={}, base=tree).shared() == changed(begun, "feeder", max_lag=2, curriculum=True).shared()
    mine = load(sets=["feeder.max_lag=7"], environ={"DISTRL_LEARNER__SEED": "5"}, base=tree)
    found_differences = differences(found.values, run_settings(mine))
    assert [str(each) for each in found_differences] == [
        "feeder.max_lag is 7 here and 2 there",
        "learner.seed is 5 here and 0 there",
    ]
    assert [each.path for each in learned(found_differences, mine)] == ["learner.seed"]


def test_a_base_model_beside_where_the_run_was_begun_is_found_from_elsewhere(
    begun: Config, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert begun.policy.base_model is not None
    monkeypatch.chdir(begun.policy.base_model.parent)
    relative = changed(begun, "policy", base_model=Path(begun.policy.base_model.name))
    made = record(run_settings(relative))
    monkeypatch.chdir(tmp_path.parent)
    assert load(environ={}, base=base_tree(RecordedSettings((made,)), begun)).policy == begun.policy


def test_another_algorithm_than_the_runs_takes_none_of_its_settings(begun: Config) -> None:
    tree = base_tree(RecordedSettings((record(run_settings(begun)),)), begun)
    other = load(sets=["algorithm.type=filtered_bc"], environ={}, base=tree)
    assert other.algorithm == load(sets=["algorithm.type=filtered_bc"], environ={}).algorithm
    assert other.policy == begun.policy


def test_an_algorithm_of_the_run_that_is_not_the_default_is_taken_whole(begun: Config) -> None:
    filtered = load(sets=["algorithm.type=filtered_bc", "algorithm.lr=0.5"], environ={})
    tree = base_tree(RecordedSettings((record(run_settings(filtered)),)), begun)
    assert load(environ={}, base=tree).algorithm == filtered.algorithm


def test_a_run_whose_algorithm_was_changed_has_the_settings_of_the_new_one_alone(begun: Config) -> None:
    others = [
        load(sets=["algorithm.type=grpo", "algorithm.lr=0.5"], environ={}),
        load(sets=["algorithm.gamma=0.5"], environ={}),
    ]
    records = [record(run_settings(begun))]
    for other in others:
        there = RecordedSettings(tuple(records)).values
        changes = {path: each for path, each in run_settings(other).items() if there.get(path) != each}
        records.append(record(changes, is_change=True))  # as earlier versions did; today's have the whole algorithm
        found = RecordedSettings(tuple(records))
        for here in (begun, *others):
            assert load(environ={}, base=base_tree(completed(found, here), here)).algorithm == other.algorithm
    assert found.values["policy.lora_rank"] == others[-1].policy.lora_rank


BOMB = "[" + ", ".join(["&a0 [x]", *(f"&a{n + 1} [{', '.join([f'*a{n}'] * 10)}]" for n in range(20))]) + "]"


@pytest.mark.parametrize(
    "values",
    [
        {"algorithm.type": "x", "algorithm": 1},
        {"algorithm.type": "x", "algorithm.type.y": 1},
        {"algorithm.type": BOMB},
        {"algorithm.type": "[" * 3000},
        {"algorithm.type": {"a": 1}},
    ],
    ids=["no name", "within a setting", "an alias bomb", "nested", "no text"],
)
def test_whatever_a_record_holds_a_process_ends_with_the_setting_or_goes_on(
    begun: Config, values: dict[str, Any]
) -> None:
    found = RecordedSettings((record(run_settings(begun)), record(values, is_change=True)))
    with suppress(ConfigError):
        load(environ={}, base=base_tree(completed(found, begun), begun))


def test_a_value_that_is_no_json_is_no_record(begun: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    spoilt = Settings(1, "feeder", "process 1", (), "0.1", "", False, {"feeder.max_lag": "{"})
    monkeypatch.undo()
    with monkeypatch.context() as patched:
        patched.setattr(recorded, "LogReader", lambda *_: nullcontext(Holding()))
        patched.setattr(recorded, "decoded", lambda raw, kind: spoilt)
        with pytest.raises(WireError, match=r"t\[0\] offset 7: feeder\.max_lag: is no JSON") as refused:
            recorded.recorded(begun)
    assert f"`distrl runs repair {begun.run}`" in refused.value.hint


class Holding:
    """A reader of one record."""

    def to_end(self) -> list[list[RawRecord]]:
        return [[RawRecord(LogPosition("t", 0, 7), None, b"", 0)]]


@pytest.mark.parametrize("path", ["learner.depth", "algorithm.depth", "policy.depth"])
def test_a_learning_setting_of_a_newer_version_is_refused_with_that_version(begun: Config, path: str) -> None:
    found = RecordedSettings((record(run_settings(begun) | {path: 3}),))
    with pytest.raises(ConfigError, match=r"(?s)depth.*\(it is 3\).*use version 0\.1"):
        base_tree(found, begun)


@pytest.mark.parametrize("path", ["feeder.depth", "nowhere.depth"])
def test_another_setting_of_a_newer_version_is_left_out(begun: Config, path: str) -> None:
    found = RecordedSettings((record(run_settings(begun) | {path: 3}),))
    assert load(environ={}, base=base_tree(found, begun)).shared() == begun.shared()


def test_a_base_model_that_has_moved_is_no_difference(begun: Config, tmp_path: Path) -> None:
    save_tiny_base(tmp_path / "moved")
    moved = changed(begun, "policy", base_model=tmp_path / "moved")
    assert differences(run_settings(begun), run_settings(moved)) == []
    assert run_settings(moved)[BASE_SHA256] == run_settings(begun)[BASE_SHA256]


class NewerLearner(LearnerSettings):
    """As of a later version, which learns in another way by default."""

    noise: Annotated[float, Effect(When.LATER, before=0.0)] = 0.5


class LaterLearner(LearnerSettings):
    """As of one still later, with another default."""

    noise: Annotated[float, Effect(When.LATER, before=0.0)] = 0.9


def upgraded(config: Config, learner: type[LearnerSettings], **values: object) -> Config:
    return config.model_copy(update={"learner": learner(**config.learner.model_dump(), **values)})


def test_a_run_goes_on_where_a_setting_was_added_whatever_its_default_is_or_becomes(begun: Config) -> None:
    old = RecordedSettings((record(run_settings(begun), learning_fingerprint(begun)),))
    for learner in (NewerLearner, LaterLearner):
        here = upgraded(begun, learner)
        assert here.learner.noise > 0
        found = completed(old, here)
        assert base_tree(found, here)["learner"]["noise"] == 0.0
        on = upgraded(begun, learner, noise=found.values["learner.noise"])
        assert learning_fingerprint(on) == learning_fingerprint(begun)
        assert differences(found.values, run_settings(on)) == []
        assert [str(each) for each in differences(found.values, run_settings(here))] == [
            f"learner.noise is {here.learner.noise} here and 0.0 there"
        ]


def test_each_other_value_of_an_added_setting_has_a_fingerprint_of_its_own(begun: Config) -> None:
    made = [learning_fingerprint(upgraded(begun, NewerLearner, noise=noise)) for noise in (0.0, 0.1, 0.5)]
    assert len({*made, learning_fingerprint(begun)}) == 3
    assert learning_fingerprint(upgraded(begun, LaterLearner)) not in made, "a new default is no old run's"
    assert learning_fingerprint(upgraded(begun, LaterLearner, noise=0.5)) == made[2]


def test_a_recorded_value_wins_over_the_one_from_before(begun: Config) -> None:
    here = upgraded(begun, NewerLearner, noise=0.2)
    found = completed(RecordedSettings((record(run_settings(here), learning_fingerprint(here)),)), here)
    assert (found.unrecorded, found.values["learner.noise"]) == ({}, 0.2)


class Deeper(Section):
    effect: ClassVar[Effect | None] = Effect(When.LATER, before=0)

    one: int = 0
    other: int = 0


class NestedLearner(LearnerSettings):
    deeper: Deeper = Deeper()


BEGUN_WITH = {
    "aride": "e8f1587c8400b92d55e899da1ae7c0c01a8915301de8f093c65b6279d47f5129",
    "cloning": "d8547baff9e17b6bdfbd1048883856e057f6406b7337ad9f8bdbf75f5845e90b",
    "digirl": "5bb6fa09d5128fb4921c1abfc0f98c21e79224b11a0cbc8ea061d663129d3104",
    "filtered_bc": "39073672388a8f585fe87d5e99bd3a8086bafe157599ee83f1e8e33c6e8a9dcc",
    "vtrace": "82a01036cc8fabc3355e534c81df4ff07b142ae33662f6b738720953268639a3",
    "vtrace algorithm.lr=1e-3": "d68b1dc198d64339c6c64c8387381c04d7a2027279297574dfba519241c3d921",
}
"""Algorithm, and what was another default when runs of it were begun -> fingerprint. Runs were begun with these, and
another one here ends them all. A setting that is added names its value in them (Effect.before), a default that is
changed is in their recorded settings, and a base model that is shipped anew begins new ones."""


@pytest.mark.parametrize("algorithm", BEGUN_WITH)
def test_runs_that_were_begun_go_on(algorithm: str) -> None:
    here = load(sets=f"algorithm.type={algorithm}".split(), environ={})
    assert learning_fingerprint(here) == BEGUN_WITH[algorithm]


def test_a_model_server_may_come_and_go_in_a_run(begun: Config) -> None:
    server = ServerSettings(endpoint="http://models:8000/v1", api_key=SecretStr("key"), timeout_s=1.0)
    served = changed(begun, "policy", server=server)
    assert learning_fingerprint(served) == learning_fingerprint(begun)
    assert run_settings(served) == run_settings(begun)


def test_a_whole_section_that_was_added_leaves_the_fingerprint_as_it_was(begun: Config) -> None:
    assert learning_fingerprint(upgraded(begun, NestedLearner)) == learning_fingerprint(begun)
    set_ = upgraded(begun, NestedLearner, deeper=Deeper(other=1))
    assert learning_fingerprint(set_) != learning_fingerprint(begun)


@pytest.fixture
def brought_run(begun: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """The settings of a run whose algorithm another package brings, in the folder `site`."""
    brought_algorithm.use(brought_algorithm.install(tmp_path / "site"), monkeypatch)
    sets = (f"algorithm.type={brought_algorithm.TYPE}", "algorithm.beta=0.5", "algorithm.replay.capacity=60")
    return begun.model_copy(update={"algorithm": load(sets=sets, environ={}).algorithm})


def test_the_code_of_another_packages_algorithm_is_recorded_with_the_settings_and_compared(
    brought_run: Config,
    tmp_path: Path,
    log_holds: Holds,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    log, site = list[Settings](), tmp_path / "site"

    def append(config: Config, role: str, sources: object, values: dict[str, Any], *, is_change: bool) -> None:
        log.append(record(values, learning_fingerprint(config), is_change=is_change))
        log_holds(RecordedSettings(tuple(log)))

    monkeypatch.setattr(recorded, "append", append)
    monkeypatch.setattr(recorded, "learned_with", lambda _: None)
    recorded.join(brought_run, None, "learner", ())
    (first,) = log
    code = json.loads(first.settings["plugin.algorithm"])
    assert code.startswith("users_awr 1 (files ")
    assert caplog.messages == []
    brought_algorithm.edit(site, "np.minimum", "np.fmin")
    brought_algorithm.use(site, monkeypatch)
    again = brought_run.model_copy(update={"algorithm": load(base=brought_run.model_dump(), environ={}).algorithm})
    for role in ("worker", "learner", "worker"):
        recorded.join(again, recorded.recorded(again), role, ())
    assert [f"of {code} in run" in each for each in caplog.messages] == [True, True]
    assert [list(each.settings) for each in log[1:]] == [["plugin.algorithm"]]
    assert log[1].fingerprint == first.fingerprint, "nothing is refused"


def test_a_process_takes_a_brought_algorithm_from_the_log(brought_run: Config) -> None:
    """Whatever its own settings have; those that its version of the package has anew are the run's defaults."""
    found = completed(RecordedSettings((record(run_settings(brought_run)),)), load(environ={}))
    assert load(environ={}, base=base_tree(found, load(environ={}))).algorithm == brought_run.algorithm
    assert load(environ={}, base=base_tree(found, brought_run)).algorithm == brought_run.algorithm


def test_a_setting_that_the_package_here_does_not_have_is_put_down_to_the_package(brought_run: Config) -> None:
    code = "users_awr 2 (files abc)"
    values = {**run_settings(brought_run), "plugin.algorithm": code, "algorithm.newer": 1}
    with pytest.raises(ConfigError) as caught:
        base_tree(RecordedSettings((record(values),)), brought_run)
    assert caught.value.where == "algorithm.newer"
    assert "which this version of the package that brings its algorithm does not have" in caught.value.what
    assert caught.value.hint == f"use {code}, or choose a new `run`"


def test_without_its_package_the_run_is_refused_with_how_it_is_found(
    brought_run: Config, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = RecordedSettings((record(run_settings(brought_run)),))
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each != str(tmp_path / "site")])
    here = load(environ={})
    with pytest.raises(ConfigError) as caught:
        load(environ={}, base=base_tree(completed(found, here), here))
    assert caught.value.where == "algorithm.type"
    assert "by its entry point 'users_awr.awr' in the group distrl.algorithms" in caught.value.hint


@pytest.mark.parametrize("path", ["plugin.policy", "plugin.algorithm"])
@pytest.mark.parametrize(("before", "warned"), [("users_family 1 (sources abc)", 0), ("users_family 1 (files abc)", 1)])
def test_other_code_of_a_package_is_warned_of_and_recorded_unless_earlier_software_has_recorded_it(
    before: str,
    warned: int,
    path: str,
    begun: Config,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    here, appended = "users_family 1 (files def)", list[object]()
    monkeypatch.setattr(recorded, "plugin_code", lambda _: {path: here})
    monkeypatch.setattr(recorded, "append", lambda config, role, sources, values, is_change: appended.append(values))
    found = RecordedSettings((record({**run_settings(begun), path: before}),))
    for role in ("worker", "learner"):
        caplog.clear()
        recorded.join(begun, found, role, ())
        assert len(caplog.messages) == warned
        assert (
            f"the {path.removeprefix('plugin.')} is of {here} here, and of {before} in run" in caplog.text
        ) == warned
        assert ("every file of the package counts" in caplog.text) == (warned and role == "worker")
    assert appended == [{path: here}]
