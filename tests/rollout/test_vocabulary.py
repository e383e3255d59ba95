"""What a base model lacks of a suite is told before anything starts."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest
from distrl.config import Config
from distrl.demo.run import run_demo
from distrl.demonstrations.scripted import run_demonstrations
from distrl.errors import ConfigError
from distrl.policy.autoui.base import load_base, save_base
from distrl.policy.autoui.model import AutoUIModel, Shape
from distrl.policy.autoui.pretraining.screens import phone_tokenizer
from distrl.policy.autoui.tokenizer import WordTokenizer
from distrl.policy.registry import SHIPPED
from distrl.rollout.vocabulary import (
    refuse_unknown_words,
    warn_unknown_words,
    words_of_all_suites,
    words_of_file,
    words_to_type,
)
from distrl.tasks.suite import suites
from rich.console import Console
from simphone import words

HOME = WordTokenizer(words.ALL)
EVERY = phone_tokenizer(words_of_all_suites(phone_tokenizer()))


def config(suite: str) -> Config:
    return Config.model_validate({"feeder": {"suite": suite}})


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A demo that runs in this checkout holds the lock of its stack."""
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))


@pytest.mark.parametrize("suite", sorted(suites()))
def test_the_shipped_base_model_lacks_no_word_of_any_suite(suite: str) -> None:
    shipped = load_base(SHIPPED).tokenizer
    refuse_unknown_words(config(suite).feeder, shipped)
    assert shipped.tokens == EVERY.tokens, "one that is made has the same"
    if suite == "home":
        return
    with pytest.raises(ConfigError) as refused:
        refuse_unknown_words(config(suite).feeder, HOME)
    assert f"words of suite {suite}: " in refused.value.what
    assert "base-model train --out DIR" in refused.value.hint


def test_what_people_type_are_words_of_entities_and_not_of_instructions() -> None:
    typed = words_to_type()
    assert {"ocean", "walmart.com", "weather", "of", "lamp", "peru"} <= set(typed)
    assert not {"the", "open", "how", "search"} & set(typed)
    assert len(set(typed)) == len(typed)


def test_words_of_a_file_are_learned_once_and_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("Water the plants!\nopen the taxi app x3 <tap>\n")
    assert words_of_file(tmp_path / "mine.txt", EVERY) == ("plants", "taxi", "water", "<tap>", "x3")
    (tmp_path / "picture").write_bytes(b"\x89PNG\xff")
    for path in (tmp_path / "picture", tmp_path / "none", tmp_path):
        with pytest.raises(ConfigError, match="--words"):
            words_of_file(path, EVERY)
    (tmp_path / "long").write_text(" ".join(f"word{number}" for number in range(5_000)))
    with pytest.raises(ConfigError, match="5000 more words"):
        words_of_file(tmp_path / "long", EVERY)


def test_the_words_that_are_lacking_are_named_once_and_in_order() -> None:
    said = ["Open the browser and visit Norway at 12", "norway"]
    assert HOME.unknown_words(said) == ("norway", "visit", "12")


def test_demonstrations_and_the_demo_are_refused_before_a_broker_is_asked(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    few = tmp_path_factory.mktemp("base")
    save_base(few, AutoUIModel(Shape(len(HOME.tokens), 128, 256, (8, 8, 8, 8), 32, 32, 1, 2)), HOME, {})
    given = Config.model_validate(
        {
            "feeder": {"suite": "general"},
            "policy": {"base_model": str(few)},
            "stack": {"directory": tmp_path / "stack"},
        }
    )
    with pytest.raises(ConfigError, match="words of suite general"):
        run_demonstrations(given, 1, threading.Event())
    with pytest.raises(ConfigError, match="words of suite general"):
        run_demo(given, lambda base: given, 0.1, tmp_path, 0.0, Console())
    assert list(tmp_path.iterdir()) == []


def test_a_policy_that_acts_is_warned_of_only_where_the_suite_is_named(caplog: pytest.LogCaptureFixture) -> None:
    small = WordTokenizer(words.ALL[:9])
    with caplog.at_level(logging.WARNING):
        warn_unknown_words(Config().feeder, small)
        warn_unknown_words(config("general").feeder.model_copy(update={"tasks": (Path("mine.txt"),)}), small)
        assert "lacks" not in caplog.text
        warn_unknown_words(config("general").feeder, small)
    assert "lacks" in caplog.text


def test_nobody_is_refused_for_words_of_demonstrations_that_are_not_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who brings a list and a base model of its own has no word of the suites."""
    (tmp_path / "own_train.txt").write_text("a\n")
    (tmp_path / "own_test.txt").write_text("b\n")
    (tmp_path / "own_val.txt").write_text("c\n")
    given = Config.model_validate(
        {
            "feeder": {"suite": "general", "tasks": sorted(tmp_path.iterdir())},
            "warmup": {"demonstrations": 0, "updates": 0},
        }
    )
    started: list[Config] = []

    def start(config: Config, owner: str) -> None:
        started.append(config)
        raise RuntimeError("the stack")

    monkeypatch.setattr("distrl.train.run.LocalStack", start)
    with pytest.raises(RuntimeError, match="the stack"):
        run_demo(given, lambda base: given, 0.1, tmp_path, 0.0, Console())
    assert [each.feeder for each in started] == [given.feeder]
