"""Each role gets phones of its own: two processes on one phone would spoil each other's episodes."""

from __future__ import annotations

import json
import socket
import threading
from dataclasses import fields
from pathlib import Path

import pytest
from distrl.config import Config, PhoneSettings, load
from distrl.errors import ConfigError
from distrl.stack import phones, ports
from distrl.stack.part import Part, Site
from distrl.stack.processes import find_all, stop_all
from distrl.stack.serving import PortTakenError
from simphone.fleet import FleetSettings
from simphone.serve import PhonesInThread


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


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="plain"):
        Config.model_validate({"phones": {"profiles": ["haunted"]}})


def test_every_setting_of_the_phones_reaches_them_and_the_defaults_are_the_same() -> None:
    assert {field.name for field in fields(FleetSettings)} == set(PhoneSettings.model_fields) - {"evaluation_count"}
    assert phones.fleet_of(PhoneSettings(count=5, evaluation_count=3)) == FleetSettings()
    assert phones.fleet_of(PhoneSettings(seed=4, profiles=("torn",))) == FleetSettings(
        count=12, seed=4, profiles=("torn",)
    )


def test_what_a_fleet_refuses_is_named_by_its_path_in_the_settings() -> None:
    many = PhoneSettings(count=512, evaluation_count=512, base_port=60000).model_copy(update={"count": 6000})
    with pytest.raises(ConfigError, match=r"^phones\.base_port: 6512 phones .* above 65535"), phones.as_config_error():
        phones.fleet_of(many)


def test_a_port_in_use_is_named_by_its_path_in_the_settings() -> None:
    port = ports.draw("the tests", count=1)
    settings = PhoneSettings(count=1, evaluation_count=0, base_port=port)
    with (
        socket.create_server((ports.HOST, port)),
        pytest.raises(ConfigError, match=rf"^phones\.base_port: port {port} .*in use"),
        phones.as_config_error(),
        PhonesInThread(phones.fleet_of(settings)),
    ):
        pass


def test_other_phones_at_the_port_are_not_taken_for_those_that_were_asked_for(tmp_path: Path) -> None:
    """Another stack's, of another number and generation: nothing tells them apart but whose process has the port."""
    base = ports.draw("the tests", count=2)
    site = Site(tmp_path, tmp_path, threading.Event(), lambda text: None)
    with (
        PhonesInThread(FleetSettings(count=1, base_port=base + 1, generation=2)),
        pytest.raises(PortTakenError, match=rf"^phones: port {base + 1} of 127\.0\.0\.1 was taken by"),
    ):
        phones.start_phones(site, PhoneSettings(count=2, evaluation_count=0, base_port=base))
    assert f"port {base + 1} of 127.0.0.1, for simulated phone sim1, is in use" in (tmp_path / "phones.log").read_text()
    assert find_all(tmp_path) == []


def test_that_gestures_take_effect_at_once_is_said_of_these_phones_alone() -> None:
    """Recorded for the run, it would be taken by workers with phones of their own."""
    filled = phones.fill(Config(), stack_of(2, 1))
    assert filled.devices.settle_unchanged_s == 0.0
    assert "devices.settle_unchanged_s" not in filled.shared()


def test_variables_of_other_sections_do_not_keep_the_phones_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may be sound only with a file or flags, which the phones' process is not given."""
    monkeypatch.setenv("DISTRL_ALGORITHM__GROUP_SIZE", "4")
    site = Site(tmp_path, tmp_path, threading.Event(), lambda text: None)
    settings = PhoneSettings(count=1, evaluation_count=0, base_port=ports.draw("the tests", count=1))
    part = phones.start_phones(site, settings)
    assert part.child is not None
    stop_all([part.child], 10.0)
