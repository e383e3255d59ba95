"""Each role gets phones of its own: two processes on one phone would spoil each other's episodes."""

from __future__ import annotations

from distrl.config import Config, load
from distrl.stack import phones
from distrl.stack.part import Part


def stack_of(training: int, evaluation: int) -> Part:
    """The phones as they were started, whatever the settings of the command that looks for them are."""
    settings = load(sets=[f"phones.count={training}", f"phones.evaluation_count={evaluation}"], environ={}).phones
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
