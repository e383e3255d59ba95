"""Plays tasks by a faultless script on simulated phones behind a real adb server, to test a phone profile.

This process serves the phones, on free ports. Nothing is published, and no screenshot is stored.
"""

from __future__ import annotations

import hashlib
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from simphone.fleet import PhoneProfile
from simphone.serve import PhonesInThread

from distrl.config import Config, EmulatorSettings
from distrl.errors import ConfigError, DeviceError
from distrl.policy.actions import to_text
from distrl.rollout.actor_pool import new_attempt_id, play_all
from distrl.rollout.episode import Decision, Episode, Observation, Phone
from distrl.rollout.phones import Phones
from distrl.rollout.wiring import TRUTH
from distrl.stack import ports
from distrl.stack.phones import as_config_error, fleet_of
from distrl.tasks.oracle import ImperfectScript
from distrl.types import SCRIPTED, ObjectRef, Outcome, Task, Trajectory

NAME = "oracle_smoke_test"


@dataclass(frozen=True, slots=True)
class SmokeTest:
    """The result; each task was played once."""

    outcomes: Mapping[Outcome, int]
    steps: int
    """Of the episodes that were not interrupted."""
    seconds: float
    """From the start of the first episode to the end of the last."""

    @property
    def ended(self) -> int:
        return sum(count for outcome, count in self.outcomes.items() if outcome is not Outcome.INTERRUPTED)


class Oracle:
    """A Decider that makes no mistake. It taps the exact middle of each widget, which a policy may not be able to."""

    earlier_screens: Final = 0

    def __init__(self) -> None:
        self._script = ImperfectScript(0, random_share=0.0, stop_share=0.0)

    def decide(self, observation: Observation) -> Decision:
        """Raises DeviceError where the phone does not offer its state."""
        state = observation.truth()
        if state is None:
            raise DeviceError("devices", "the phone offers no state, which the script needs", "use simulated phones")
        action, _ = self._script.act(observation.task, state)
        return Decision(action, to_text(action), (), (), 0.0, SCRIPTED, "")


def oracle_smoke_test(
    config: Config, profile: PhoneProfile, tasks: Sequence[Task], stop: threading.Event, seen: Callable[[], None]
) -> SmokeTest:
    """Play the tasks on config.phones.count phones of a profile. seen: called after each task. Ends early at `stop`.

    Unlike in a run, an interrupted task is not played again. Raises ConfigError before anything starts where
    phones.count is 0, and DeviceError where no phone can be leased.
    """
    with tempfile.TemporaryDirectory() as directory:
        settings = _with_phones(config, profile, Path(directory))
        with as_config_error(), PhonesInThread(fleet_of(settings.phones)), Phones(settings, stop) as phones:
            return _play(settings, phones, tasks, stop, seen)


def _play(
    config: Config, phones: Phones, tasks: Sequence[Task], stop: threading.Event, seen: Callable[[], None]
) -> SmokeTest:
    episode = Episode(NAME, _forget, TRUTH)
    played: list[Trajectory] = []

    def play(task: Task, phone: Phone) -> Trajectory:
        return episode.run(task, new_attempt_id(), phone, Oracle())

    def keep(trajectory: Trajectory) -> None:
        played.append(trajectory)
        seen()

    began = time.monotonic()
    play_all(
        tasks,
        phones,
        play,
        keep,
        worker=NAME,
        retries=0,
        drain_s=config.worker.drain_timeout_s,
        stop=stop,
        give_up=threading.Event(),
    )
    ended = [len(each.steps) for each in played if each.outcome is not Outcome.INTERRUPTED]
    return SmokeTest(Counter(each.outcome for each in played), sum(ended), time.monotonic() - began)


def _with_phones(config: Config, profile: PhoneProfile, directory: Path) -> Config:
    """The settings with phones of one profile on free ports and no other phones, all apps allowed, and a lease
    directory of its own, since leases of the configured phones do not concern these.
    """
    count = config.phones.count
    if not count:
        raise ConfigError("phones.count", "0 phones can play no task", "set phones.count to 1 or more")
    first = ports.draw("phones.base_port", count=count)
    phones = config.phones.model_copy(update={"profiles": (profile,), "base_port": first, "evaluation_count": 0})
    addresses = tuple(f"{ports.HOST}:{port}" for port in range(first, first + count))
    devices = config.devices.model_copy(
        update={
            "addresses": addresses,
            "serials": (),
            "emulators": EmulatorSettings(),
            "allowed_packages": (),
            "directory": directory,
        }
    )
    return config.model_copy(update={"phones": phones, "devices": devices})


def _forget(png: bytes) -> ObjectRef:
    digest = hashlib.sha256(png).hexdigest()
    return ObjectRef(f"forgotten/{digest}", digest, len(png))
