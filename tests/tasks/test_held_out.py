"""What a person asks for in their own words is none of the tasks that policies are measured on."""

from __future__ import annotations

from pathlib import Path

import pytest
from distrl.config import Config
from distrl.errors import ConfigError
from distrl.tasks.held_out import HeldOut, held_out
from distrl.tasks.suite import suites
from distrl.types import Split

BUILT_IN = held_out(Config().feeder)


def refuses(found: HeldOut, instruction: str) -> bool:
    try:
        found.refuse(instruction, "record")
    except ConfigError:
        return True
    return False


@pytest.mark.parametrize("name", sorted(suites()))
def test_every_held_out_instruction_is_refused_however_it_is_spelt_and_no_training_one(name: str) -> None:
    said = suites()[name].said
    for split in (Split.VALIDATION, Split.TEST):
        assert all(refuses(BUILT_IN, each) for each in said(split))
        assert all(refuses(BUILT_IN, f"  {each.upper()}! ".replace(" ", "  ")) for each in said(split))
    assert [each for each in said(Split.TRAIN) if refuses(BUILT_IN, each)] == []


def test_of_a_list_its_own_held_out_rows_are_refused_and_nothing_else(tmp_path: Path) -> None:
    for split, said in (("train", "open mail"), ("val", "Open the Map"), ("test", "call bob")):
        (tmp_path / f"own_{split}.txt").write_text(f"{said}\n")
    config = Config.model_validate({"feeder": {"tasks": sorted(tmp_path.iterdir())}})
    found = held_out(config.feeder)
    asked = ["open mail", "open  the MAP", "call bob.", "call bob now", suites()["home"].said(Split.TEST)[0]]
    assert [refuses(found, each) for each in asked] == [False, True, True, False, False]


def test_who_is_refused_sees_why() -> None:
    said = suites()["webshop"].said(Split.TEST)[0]
    with pytest.raises(ConfigError) as refused:
        held_out(Config().feeder).refuse(said, "--instruction")
    assert refused.value.where == "--instruction"
    assert "a policy is measured on it" in refused.value.what
