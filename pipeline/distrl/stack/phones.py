"""The simulated phones as a child process, which runs `distrl phones`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from simphone.fleet import FleetSettings, SettingError

from distrl.config import ENV_PREFIX, Config, PhoneSettings
from distrl.errors import ConfigError
from distrl.stack.part import Part, Site
from distrl.stack.ports import HOST
from distrl.stack.processes import start
from distrl.stack.serving import serve

NAME = "phones"
READY_S = 60.0
STOP_S = 10.0
Share = Literal["all", "training", "evaluation"]
"""Which of a stack's phones. Only one process can have a phone, so each role takes its own share."""
HINT = "read its log; set phones.base_port to the first of a free range of ports"


def start_phones(site: Site, phones: PhoneSettings) -> Part:
    """Start every phone, from phones.base_port on, and wait until all ports are open. Raises StackError, also where
    something else listens there, be it phones."""
    sets = [
        flag
        for name, value in phones.model_dump(mode="json").items()
        for flag in ("--set", f"phones.{name}={json.dumps(value)}")
    ]
    line = [sys.executable, "-m", "distrl.cli.main", "phones", *sets]
    # Without variables: what they say of other sections may be sound only over a file or flags that it is not given.
    child = start(NAME, line, site.directory, without=ENV_PREFIX)
    ports = range(phones.base_port, phones.base_port + total(phones))
    last = ports[-1]  # they are opened in order
    serve(child, ports, lambda: child.listens(last), site, ready_s=READY_S, stop_s=STOP_S, hint=HINT)
    return Part(NAME, f"{HOST}:{phones.base_port}-{last}", settings(phones), child)


def total(phones: PhoneSettings) -> int:
    return phones.count + phones.evaluation_count


@contextmanager
def as_config_error() -> Iterator[None]:
    """Raises simphone's SettingError as a ConfigError with the setting's path."""
    try:
        yield
    except SettingError as error:
        raise ConfigError(f"phones.{error.setting}", error.what, error.hint) from error


def fleet_of(phones: PhoneSettings) -> FleetSettings:
    """All phones of `phones` for simphone: the training phones first, then the evaluator's.

    Raises SettingError if there is no phone, or no port for each.
    """
    return FleetSettings(count=total(phones), **phones.model_dump(exclude={"count", "evaluation_count"}))


def settings(phones: PhoneSettings) -> dict[str, object]:
    """The settings that a running part is compared by; not the first port, which may differ if it was in use."""
    return phones.model_dump(mode="json", exclude={"base_port"})


def fill(config: Config, part: Part, share: Share = "all") -> Config:
    """`config` with the addresses of the phones, the training phones first, then the evaluator's, and with the settings
    that they were started with.

    A gesture on a simulated phone has its effect when its command returns, so there is no wait after it.
    """
    first, _, last = part.where.rpartition(":")[2].partition("-")
    addresses = tuple(f"{HOST}:{port}" for port in range(int(first), int(last) + 1))
    known = {name: value for name, value in part.settings.items() if name in PhoneSettings.model_fields}
    started = PhoneSettings.model_validate(known | {"base_port": int(first)})
    training = started.count
    chosen = {"all": addresses, "training": addresses[:training], "evaluation": addresses[training:]}[share]
    update = {
        "devices": config.devices.model_copy(update={"addresses": chosen, "settle_unchanged_s": 0.0}),
        "phones": started,
    }
    return config.model_copy(update=update)
