"""A learning setting that is not the run's is named, with both values and the flag that goes on."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from distrl.broker.duplicates import IdSet
from distrl.broker.journal import History
from distrl.config import Config, load
from distrl.errors import ConfigError, StoreError
from distrl.learner.recover import Log, checkpoint, recover, unfolded
from distrl.learner.run_settings import learning_fingerprint, record_settings, refuse_other_settings
from distrl.learner.state import LearnerState
from distrl.store.objects import ObjectStore, open_store

from learner.world import Screens, update_of, windows


def with_store(config: Config, folder: Path) -> Config:
    return config.model_copy(update={"store": config.store.model_copy(update={"url": f"file://{folder}"})})


def changed(config: Config, section: str, **values: object) -> Config:
    return config.model_copy(update={section: getattr(config, section).model_copy(update=values)})


@pytest.fixture
def begun(settings: Config, tmp_path: Path) -> Config:
    """The settings of a run whose learner has started once."""
    config = with_store(settings, tmp_path)
    record_settings(config, open_store(config.store))
    return config


def refused(fingerprint: str, config: Config) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        refuse_other_settings(fingerprint, config, "update 3 in the journal")
    return caught.value


def test_a_checkpoint_of_other_settings_is_refused_with_the_settings_and_both_values(begun: Config) -> None:
    store = open_store(begun.store)
    checkpoint(begun, store, LearnerState(begun), IdSet())
    other = changed(changed(begun, "algorithm", gamma=0.5), "learner", seed=7)
    with pytest.raises(ConfigError) as caught:
        recover(other, store, history=History(), log=Log({}, ""))
    assert caught.value.where == "algorithm.gamma, learner.seed"
    assert "algorithm.gamma is 0.5 here and 0.97 there; learner.seed is 7 here and 0 there" in caught.value.what
    assert "--set algorithm.gamma=0.97 --set learner.seed=0" in caught.value.hint


def test_a_journal_of_other_settings_is_refused_with_the_setting(begun: Config, screens: Screens) -> None:
    window = windows(screens, begun, 1)[0]
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


def test_equal_settings_are_no_matter_whatever_the_store_knows(begun: Config, tmp_path: Path) -> None:
    refuse_other_settings(learning_fingerprint(begun), with_store(begun, tmp_path / "none"), "a checkpoint")


@pytest.mark.parametrize("spoilt", [None, b"[]", b"{", b"\xff"])
def test_a_run_whose_settings_the_store_does_not_know_is_refused_all_the_same(
    begun: Config, spoilt: bytes | None
) -> None:
    if spoilt is not None:
        open_store(begun.store).put_named(f"runs/{begun.run}/learning-settings/{'0' * 64}.json", spoilt)
    assert "other settings under policy, warmup, algorithm or learner" in refused("0" * 64, begun).what


class Away:
    """A store that does not answer."""

    def get_named(self, key: str) -> bytes | None:
        raise StoreError("store.url", "no answer", "start it")


def test_a_store_that_is_away_hides_no_refusal(begun: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distrl.learner.run_settings.open_store", lambda _: Away())
    assert "other settings" in refused("0" * 64, begun).what


def test_settings_are_recorded_once(begun: Config) -> None:
    store: ObjectStore = open_store(begun.store)
    keys = list(store.list("runs/"))
    record_settings(begun, store)
    record_settings(changed(begun, "worker", temperature=2.0), store)
    assert list(store.list("runs/")) == keys
    record_settings(changed(begun, "algorithm", gamma=0.5), store)
    assert len(list(store.list("runs/"))) == len(keys) + 1
