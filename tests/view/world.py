"""A run on a real broker for the tests of `distrl view`: versions, updates, all kinds of episodes, hostile text."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable
from dataclasses import dataclass, replace

import factories
from distrl.broker import topic_admin
from distrl.broker.dead_letters import error_headers
from distrl.broker.journal import Journal
from distrl.broker.producer import RecordProducer
from distrl.broker.topics import topic_name
from distrl.config import Config
from distrl.errors import WireError
from distrl.judge import verdict_log
from distrl.judge.question import Verdict
from distrl.runs.recorded import append, join
from distrl.runs.settings import learning_fingerprint
from distrl.store.folders import VERDICTS
from distrl.store.objects import ObjectStore, open_store
from distrl.types import (
    Action,
    ActionKind,
    DrawnStep,
    DrawnTrajectory,
    Draws,
    Evaluation,
    Heartbeat,
    LogPosition,
    ObjectRef,
    Outcome,
    Point,
    Split,
    Trajectory,
    Unmet,
    Update,
    Watermark,
)
from PIL import Image

HOSTILE = "<script>alert(1)</script>\x00\x1b[2J\u202e\u2066 \"'&<img src=x onerror=alert(1)>"
BEGAN = 1_760_000_000_000
"""ms since the epoch, of the first episode."""
APART_MS = 10_000
TAP = Action(ActionKind.TAP, Point(0.25, 0.5))
SWIPE = Action(ActionKind.SWIPE, Point(0.5, 0.9), Point(0.5, 0.1))
TYPE = Action(ActionKind.TYPE, text=HOSTILE)
DONE = Action(ActionKind.COMPLETE)
OUTCOMES = (Outcome.SUCCESS, Outcome.FAILURE, Outcome.FAILURE, Outcome.INTERRUPTED)
UPDATES = 6
DEMONSTRATIONS = 1
"""Those that the first update folds."""
GAMMAS = (0.97, 0.9)
"""`algorithm.gamma` of versions 0 and 1, and of version 2."""
DRAWN = 17
"""Offset of the trajectory that updates draw."""
JUDGED = (("vlm:a-model", Outcome.SUCCESS, "the alarm is set"), ("vlm:an-other", Outcome.FAILURE, HOSTILE))
"""What judges said of trajectory DRAWN, beside an object that is no verdict."""


@dataclass(frozen=True)
class World:
    """What `publish` wrote."""

    config: Config
    trajectories: tuple[Trajectory, ...]
    evaluations: tuple[Evaluation, ...]


def png(grey: int) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (54, 120), (grey % 256, 90, 160)).save(out, "PNG")
    return out.getvalue()


def screen(store: ObjectStore, grey: int) -> ObjectRef:
    return store.put("screenshots", png(grey), "png")


def episode(store: ObjectStore, number: int, actions: Iterable[Action] = (TAP, SWIPE, TYPE, DONE)) -> Trajectory:
    """Trajectory `number`: four steps of version `number // 8`, or hostile text in every place where it is 5."""
    outcome = OUTCOMES[number % 4]
    began = BEGAN + number * APART_MS
    shot = screen(store, number)
    steps = [
        factories.step(
            action,
            screenshot=shot,
            version=number // 8,
            at=began + 1_000 * place,
            logprob=-0.5 * place,
            entropy=0.25 * place if place else None,
            policy_ms=40.0 + number,
            adb_ms=10.0,
        )
        for place, action in enumerate(actions)
    ]
    unmet = (Unmet("clock.alarms", "equals", '["8 am"]', "[]"),) if outcome is Outcome.FAILURE else ()
    said = HOSTILE if number == 5 else f"set alarm {number} to 100%"
    made = factories.trajectory(
        factories.task(f"task-{number}", family="alarms" if number % 2 else "toggle", instruction=said),
        steps,
        worker=f"worker-{number % 2}",
        device=f"127.0.0.1:{26000 + number % 3}",
        final_screenshot=shot,
        outcome=outcome,
        unmet=unmet,
        started_at=began,
        finished_at=began + 5_000,
    )
    return (
        replace(
            made,
            note=HOSTILE,
            reason=HOSTILE,
            device=HOSTILE,
            worker=HOSTILE,
            task=replace(made.task, task_id="evil/" + HOSTILE, suite=HOSTILE, family=HOSTILE),
        )
        if number == 5
        else made
    )


def publish(config: Config, count: int = 24) -> World:
    """Write the run: a demonstration, `count` trajectories, three versions, six updates, evaluations, dead letters."""
    topic_admin.ensure(config)
    join(config, None, "learner", ("a test",))
    later = config.model_copy(update={"algorithm": config.algorithm.model_copy(update={"gamma": GAMMAS[1]})})
    append(later, "learner", ("a test",), {"algorithm.gamma": GAMMAS[1]}, is_change=True)
    store = open_store(config.store)
    played = tuple(episode(store, number) for number in range(count))
    said = verdict_log.Episode(VERDICTS.of(config.run), "trajectories", 0, DRAWN)
    for source, outcome, reason in JUDGED:
        verdict_log.put(store, said, verdict_log.Said(source, Verdict(outcome, reason)))
    store.put_named(f"{said.prefix}spoilt.json", b"[[[")
    evaluations = tuple(evaluated(store, version, number) for version in (0, 2) for number in range(8))
    with RecordProducer(config, "a-test") as producer:
        waiting = [producer.publish("trajectories", each.task_id, each) for each in played]
        shown = replace(episode(store, 200), is_expert=True, task=factories.task("demo-1"))
        waiting.append(producer.publish("demonstrations", "demo-1", shown))
        waiting += [producer.publish("evaluations", str(each.version), each) for each in evaluations]
        for u in range(UPDATES):
            metrics = {"update": float(u + 1), "policy_loss": 1.0 / (u + 1), "broken": float("nan")}
            beat = Heartbeat("learner@here", "learner", BEGAN + u * 40_000, 0, None, metrics)
            waiting.append(producer.publish("heartbeats", beat.process, beat))
        waiting += [producer.publish("draws", str(each.u), each) for each in drawn()]
        for each in waiting:
            each.result(30)
        letter(config, producer, 77)
        letter(config, producer, 77)
    with Journal(config) as journal:
        for u in range(UPDATES):
            folded = {"trajectories": min(count, 4 * (u + 1)), "demonstrations": DEMONSTRATIONS}
            marks = tuple(Watermark(topic_name(config.run, topic), 0, end) for topic, end in folded.items())
            journal.append(Update(u, marks, "f", BEGAN + u * 40_000))
        for number in range(3):
            publish_version(journal, number, learning_fingerprint(config if number < 2 else later))
    return World(config, played, evaluations)


def drawn() -> list[Draws]:
    """The first two steps of trajectory DRAWN by the last two updates, and a record of numbers that are none."""
    odd = DrawnStep(2, 1, float("nan"), float("inf"), float("-inf"), 1e308, 0.0)
    return [
        Draws(
            u,
            "a-ride",
            BEGAN + u * 40_000,
            (DrawnTrajectory("trajectories", 0, DRAWN, (DrawnStep(0, u, 0.5, -0.25, 0.125, 1.5, u / 2), odd)),),
        )
        for u in (UPDATES - 2, UPDATES - 1)
    ]


def publish_version(journal: Journal, number: int, fingerprint: str) -> None:
    adapter = ObjectRef("adapters/a", hashlib.sha256(str(number).encode()).hexdigest(), 1000 + number)
    at = BEGAN + number * 8 * APART_MS
    journal.publish_version(
        factories.version(
            number, update=2 * number + 1, adapter=adapter, published_at=at, config_fingerprint=fingerprint
        )
    )


def evaluated(store: ObjectStore, version: int, number: int) -> Evaluation:
    """Validation of a version: one of four succeeds under 0, three of four under 2."""
    won = (number % 4 == 0) if version == 0 else (number % 4 != 0)
    made = episode(store, 100 + number)
    steps = tuple(replace(step, version=version) for step in made.steps)
    task = factories.task(f"validation-{number}", split=Split.VALIDATION)
    outcome = Outcome.SUCCESS if won else Outcome.FAILURE
    return Evaluation(version, "b" * 64, f"{version}-{number}", replace(made, task=task, steps=steps, outcome=outcome))


def letter(config: Config, producer: RecordProducer, offset: int) -> None:
    """A dead letter of the record that was at `offset` of the trajectories."""
    origin = LogPosition(topic_name(config.run, "trajectories"), 0, offset)
    headers = error_headers(origin, WireError("record", HOSTILE, "fix it"))
    producer.publish_bytes(topic_name(config.run, "trajectories.dlq"), b"key", b"no record", headers).result(30)
