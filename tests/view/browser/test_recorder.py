"""Demonstrations by hand in a real browser: the page of `distrl phones play --record`, with a real broker and store."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import factories
import pytest
from device.conftest import adb, phone, session, start_phones, timeouts
from distrl import config as settings
from distrl.broker import topic_admin
from distrl.broker.producer import RecordProducer
from distrl.broker.reader import LogReader, decoded
from distrl.config import Config
from distrl.demonstrations import human
from distrl.demonstrations.human import NAME, Recorder, offered_tasks
from distrl.device.allow_list import PackageAllowList
from distrl.device.play import PlayServer
from distrl.device.session import AdbSession
from distrl.policy.autoui.tokenizer import WordTokenizer
from distrl.rollout.episode import Episode
from distrl.rollout.phones import SessionPhone
from distrl.rollout.wiring import TRUTH
from distrl.store.objects import open_store
from distrl.tasks.held_out import held_out
from distrl.types import ActionKind, ObjectRef, Outcome, Trajectory
from playwright.sync_api import Browser, Locator, Page, expect
from simphone.serve import SimulatedPhone
from simphone.words import ALL

from view.browser.conftest import DESKTOP, opened_at
from view.browser.test_phone import at, centre
from view.browser.watched import Watched

__all__ = ["adb", "phone", "session", "start_phones", "timeouts"]

HOSTILE = "look at <img src=x onerror=alert(1)> </p><script>alert(2)</script>"
WORDS = WordTokenizer([*ALL, *(word for word in HOSTILE.split() if word not in ALL)])
"""Of a base model that was made with `--words` of such a text, so that the instruction is taken."""
UNKNOWN = "<svg/onload=alert(3)>"
WAIT_S = 1.0
"""For an acknowledgement that does not come."""


@pytest.fixture
def run(broker: str, tmp_path: Path) -> Config:
    """A run whose topics are not made yet: until they are, its broker takes nothing."""
    given = [
        f"run=played-{uuid.uuid4().hex[:8]}",
        f"kafka.bootstrap={broker}",
        f"store.url=file://{tmp_path / 'store'}",
    ]
    return settings.load(sets=given, environ={})


@pytest.fixture
def play(browser: Browser, session: AdbSession, run: Config) -> Iterator[Watched]:
    store = open_store(run.store)

    def keep(png: bytes) -> ObjectRef:
        return store.put("screenshots", png, "png", "2026-01-01")

    with RecordProducer(run, NAME) as producer:
        recorder = Recorder(
            SessionPhone(session, PackageAllowList(session, run.devices)),
            WORDS,
            Episode(NAME, keep, TRUTH, is_expert=True),
            [factories.task("t", instruction=HOSTILE), *offered_tasks(run)],
            held_out(run.feeder),
            lambda record: producer.publish("demonstrations", record.task_id, record),
        )
        with PlayServer(session, recorder=recorder) as server:
            yield from opened_at(browser, server.address, DESKTOP)


@pytest.fixture
def alerts(play: Watched) -> list[str]:
    """What a script of a text would show."""
    shown: list[str] = []

    def noted(message: str, close: Callable[[], None]) -> None:
        shown.append(message)
        close()

    play.page.on("dialog", lambda dialog: noted(dialog.message, dialog.dismiss))
    return shown


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def state(page: Page) -> Locator:
    return page.locator("#now")


def record(page: Page, instruction: str) -> None:
    page.get_by_label("Instruction").fill(instruction)
    press(page, "Record")


def published(run: Config) -> list[Trajectory]:
    with LogReader(run, "demonstrations", follows=False) as reader:
        return [decoded(raw, Trajectory) for batch in reader.to_end() for raw in batch]


def test_a_demonstration_is_recorded_done_and_in_the_log_and_a_discarded_one_is_not(
    play: Watched, run: Config, phone: SimulatedPhone, alerts: list[str]
) -> None:
    topic_admin.ensure(run)
    page = play.open("")
    expect(state(page)).to_have_text("Nothing is recorded now. ")
    expect(page.get_by_role("button", name="Done")).to_be_disabled()
    assert page.get_by_label("Task").locator("option").all_text_contents()[:2] == ["a task of your own:", HOSTILE]

    page.get_by_label("Task").select_option(index=2)
    press(page, "Record")
    chosen = offered_tasks(run)[0]
    expect(state(page)).to_have_text(f"Recording: {chosen.instruction}\n0 of {chosen.max_steps} steps. ")
    press(page, "Home")
    expect(state(page)).to_contain_text("\n1 of ")
    press(page, "Discard")
    expect(state(page)).to_have_text("Nothing is recorded now. ")

    page.get_by_label("Task").select_option(index=0)
    record(page, HOSTILE)
    expect(state(page)).to_have_text(f"Recording: {HOSTILE}\n0 of 30 steps. ")
    expect(page.get_by_label("Instruction")).to_be_disabled()
    page.mouse.click(*at(page.get_by_alt_text("the phone's screen"), centre(phone, "browser")))
    expect(state(page)).to_contain_text("\n1 of 30 steps.")
    assert phone.machine.focus().startswith("com.sim.browser/")
    press(page, "Home")
    expect(state(page)).to_contain_text("\n2 of 30 steps.")
    play.shot("recorder")
    assert play.violations() == []
    press(page, "Done")
    expect(state(page)).to_contain_text("The last one was published at offset 0: success, says person.")
    expect(page.get_by_role("button", name="Record")).to_be_enabled()
    (made,) = published(run)
    assert (made.task.instruction, made.is_expert, made.outcome) == (HOSTILE, True, Outcome.SUCCESS)
    assert [step.action.kind for step in made.steps] == [ActionKind.TAP, ActionKind.HOME, ActionKind.COMPLETE]

    record(page, HOSTILE)
    press(page, "Home")
    expect(state(page)).to_contain_text("\n1 of 30 steps.")
    press(page, "Could not do it")
    expect(state(page)).to_contain_text("The last one was published at offset 1: failure, says person.")
    assert (alerts, page.locator("img").count(), page.locator("script").count()) == ([], 1, 1)


def test_what_the_model_the_store_or_the_broker_refuses_is_on_the_page_and_loses_nothing(
    play: Watched,
    run: Config,
    phone: SimulatedPhone,
    alerts: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play.allowed = ("the server responded with a status of 409", "the server responded with a status of 503")
    page = play.open("")
    said = page.get_by_role("alert")
    expect(state(page)).to_have_text("Nothing is recorded now. ")
    record(page, f"look at {UNKNOWN}")
    expect(said).to_contain_text(f" of the instruction: {UNKNOWN}\n  hint: ")
    expect(state(page)).to_have_text("Nothing is recorded now. ")

    record(page, "look at the clock")
    expect(state(page)).to_have_text("Recording: look at the clock\n0 of 30 steps. ")
    expect(said).to_have_text("")
    before, store = phone.machine.state(), tmp_path / "store"
    store.write_text("no folder, so nothing can be put into it")
    press(page, "Home")
    expect(said).to_contain_text("store")
    expect(state(page)).to_contain_text("\n0 of 30 steps.")
    assert phone.machine.state() == before, "nothing was done"
    store.unlink()
    press(page, "Home")
    expect(state(page)).to_contain_text("\n1 of 30 steps.")
    expect(said).to_have_text("")

    with monkeypatch.context() as short:
        short.setattr(human, "ACKNOWLEDGE_S", WAIT_S)
        press(page, "Done")
        expect(said).to_contain_text("demonstrations: not acknowledged within 1 s\n  hint: press done again")
    expect(state(page)).to_contain_text("2 of 30 steps. No further step: press done or discard.")
    play.shot("recorder-refused")
    press(page, "Discard")
    expect(said).to_contain_text("it waits for Kafka, and is published as soon as that answers")
    topic_admin.ensure(run)
    press(page, "Done")
    expect(state(page)).to_contain_text("The last one was published at offset 0: success, says person.")
    expect(said).to_have_text("")
    assert [each.task.instruction for each in published(run)] == ["look at the clock"]
    assert alerts == []
