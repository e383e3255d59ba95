"""Each role gets phones of its own: two processes on one phone would spoil each other's episodes."""

from __future__ import annotations

import json

from distrl.config import Config, load
from distrl.stack import phones
from distrl.stack.part import Part


def stack_of(training: int, evaluation: int, *sets: str) -> Part:
    """The phones as they were started, whatever the settings of the command that looks for them are."""
    sets = (f"phones.count={training}", f"phones.evaluation_count={evaluation}", *sets)
    settings = load(sets=sets, environ={}).phones
    last = settings.base_port + phones.total(settings) - 1
    return Part(phones.NAME, f"127.0.0.1:{settings.base_port}-{last}", phones.settings(settings))


def test_worker_and_evaluator_share_no_phone_and_together_have_all() -> None:
    part = stack_of(3, 2)
    every, training, evaluation = (
        phones.fill(Config(), part, share).devices.addresses for share in ("all", "training", "evaluation")
    )
    assert (len(training), len(evaluation)) == (3, 2)
    assert training + evaluation == every


def test_the_counts_are_those_that_the_phones_were_started_with() -> None:
    filled = phones.fill(Config(), stack_of(2, 0), "evaluation")
    assert (filled.phones.count, filled.phones.evaluation_count) == (2, 0)
    assert filled.devices.addresses == ()


def test_what_the_phones_are_like_is_what_they_were_started_with() -> None:
    part = stack_of(2, 1, "phones.generation=3", "phones.profiles=[torn, plain]", "phones.popup_probability=0.5")
    kept = Part(part.name, part.where, json.loads(json.dumps(part.settings)))
    filled = phones.fill(load(sets=["phones.generation=1"], environ={}), kept).phones
    assert phones.settings(filled) == part.settings
    assert (filled.generation, filled.profiles) == (3, ("torn", "plain"))
