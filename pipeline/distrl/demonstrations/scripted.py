"""Warm-up demonstrations: a deliberately imperfect script plays tasks on simulated phones.

They are published as trajectories to the demonstrations topic, with the script's log-probabilities. Ids are demo-0,
demo-1, …; each is always the same task with the same draws, so a role that was stopped goes on with the ids that are
not in the topic. They are published in the order of their ids, whichever phone is faster: the warm-up draws by
position, so a seed always has the same version 0. One that cannot be played ends the role, and none behind it is
published.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, Final, Protocol

from distrl.broker.producer import RecordProducer
from distrl.broker.reader import LogReader
from distrl.config import Config
from distrl.demonstrations.reorder import InOrder
from distrl.errors import ConfigError, DeviceError, PolicyError
from distrl.policy.actions import to_text
from distrl.policy.protocol import Tokenizer
from distrl.policy.registry import tokenizer_of
from distrl.rollout.actor_pool import new_attempt_id, play_all, publish_or_drop_steps
from distrl.rollout.back_pressure import Retry
from distrl.rollout.decider import PolicyEndedError
from distrl.rollout.episode import Decision, Episode, Observation, Phone
from distrl.rollout.phones import Phones
from distrl.rollout.vocabulary import refuse_unknown_words
from distrl.rollout.wiring import TRUTH, screenshot_store
from distrl.store.objects import open_store
from distrl.tasks.demonstration import SCRIPTED_ID
from distrl.tasks.held_out import held_out
from distrl.tasks.oracle import ImperfectScript
from distrl.tasks.suite import suite_named
from distrl.telemetry.monitor import Monitor, Report
from distrl.types import SCRIPTED, Action, Outcome, Split, Task, Trajectory

log = logging.getLogger(__name__)

NAME = "demonstrate"
MOST_SKIPPED: Final = 50
"""Tasks looked at for each that is demonstrated."""
RETRIES = 3
"""How often an interrupted demonstration is played again before this role fails with DeviceError."""


class Script(Protocol):
    def act(self, task: Task, state: Mapping[str, Any]) -> tuple[Action, float]: ...


class Scripted:
    """A Decider that asks a script. The script needs the phone's state, which real phones do not offer.

    Actions are rounded to what tokens can express: a tap goes to the middle of its cell, as the policy's would.
    """

    earlier_screens: Final = 0

    def __init__(self, script: Script, tokenizer: Tokenizer) -> None:
        self._script = script
        self._tokenizer = tokenizer

    def decide(self, observation: Observation) -> Decision:
        """Raises DeviceError where the phone offers no state, PolicyEndedError for an action that has no tokens: it has
        none in another attempt either."""
        state = observation.truth()
        if state is None:
            raise DeviceError("devices", "a real phone offers no state, which the script needs", "use simulated phones")
        wanted, logprob = self._script.act(observation.task, state)
        screen = observation.screen()
        try:
            action_ids = self._tokenizer.encode_action(wanted, screen)
        except PolicyError as error:
            raise PolicyEndedError(
                "policy",
                f"{observation.task.task_id} (`{observation.task.instruction}`) needs the action `{to_text(wanted)}`, "
                f"and this policy cannot write it: {error.what}",
                f"{error.hint}; or demonstrate another feeder.suite",
            ) from None
        action = self._tokenizer.decode_action(action_ids, screen)
        prompt = self._tokenizer.encode_prompt(observation.task.instruction, observation.previous, screen)
        return Decision(action, to_text(action), prompt, action_ids, logprob, SCRIPTED, "")


def run_demonstrations(config: Config, count: int, stop: threading.Event, monitor: Monitor | None = None) -> None:
    """Publish demonstrations until the topic has `count`, those of people and of earlier runs of this role included;
    then return.

    Raises DeviceError at the first that could not be played after retries; PolicyError for one that needs an action
    which the policy cannot write; ConfigError, before anything is played, where the base model lacks words of the
    suite.
    """
    monitor = monitor or Monitor()
    tokenizer = tokenizer_of(config.policy)
    if count:
        refuse_unknown_words(config.feeder, tokenizer)
    known = ids_in_topic(config)
    tasks = [task for task in demonstration_tasks(config, count) if task.task_id not in known]
    tasks = tasks[: max(0, count - len(known))]  # others may be of people, whom no script is to water down
    log.info("%d demonstrations wanted, %d are there", count, count - len(tasks))
    if not tasks:
        return
    give_up = threading.Event()
    retry = Retry(give_up)
    episode = Episode(NAME, screenshot_store(open_store(config.store), config.run, retry), TRUTH, is_expert=True)
    written = 0
    monitor.waits_for("its phones")
    with RecordProducer(config, NAME) as producer, Phones(config, stop) as phones:

        def publish(trajectory: Trajectory) -> None:
            nonlocal written
            publish_or_drop_steps(
                retry,
                f"publishing {trajectory.task_id}",
                lambda record: producer.publish("demonstrations", record.task_id, record),
                trajectory,
            )
            written += 1

        def turn() -> None:
            monitor.progress()
            monitor.ready()
            monitor.show(Report(metrics={"demonstrations": float(written)}, devices=phones.health()))

        published = InOrder((task.task_id for task in tasks), publish)

        def play(task: Task, phone: Phone) -> Trajectory:
            return episode.run(task, new_attempt_id(), phone, Scripted(ImperfectScript(script_seed(task)), tokenizer))

        def keep(trajectory: Trajectory) -> None:
            if trajectory.outcome is Outcome.INTERRUPTED:
                raise DeviceError(
                    trajectory.device,
                    f"{trajectory.task_id} could not be played: {trajectory.note}",
                    "fix the phones, then run `distrl demonstrate` again: it goes on where it was",
                )
            published.put(trajectory.task_id, trajectory)

        turn()
        play_all(
            tasks,
            phones,
            play,
            keep,
            worker=NAME,
            retries=RETRIES,
            drain_s=config.worker.drain_timeout_s,
            stop=stop,
            give_up=give_up,
            turn=turn,
        )


def demonstration_tasks(config: Config, count: int) -> list[Task]:
    """Training tasks under another seed than the feeder's, so that no demonstrated task is fed in the same way. Of a
    run with feeder.tasks none that its list holds out: their numbers are skipped.

    Raises ConfigError where the list holds out nearly all of the suite.
    """
    suite, seed = suite_named(config.feeder.suite), _number(f"demonstrations {config.learner.seed}")
    refused = held_out(config.feeder) if config.feeder.tasks else None  # a suite holds out none of its own
    every = (
        replace(suite.task(at, seed, Split.TRAIN), task_id=f"{SCRIPTED_ID}{at}") for at in range(MOST_SKIPPED * count)
    )
    found = list(islice((each for each in every if refused is None or refused.why(each.instruction) is None), count))
    if len(found) < count:
        raise ConfigError(
            "feeder.tasks",
            f"holds out what suite {suite.name} trains on: it has {len(found)} tasks to demonstrate that are not in "
            f"its validation or test rows, and {count} are wanted",
            "name another feeder.suite, whose tasks are demonstrated, or lower warmup.demonstrations",
        )
    return found


def script_seed(task: Task) -> int:
    """The script's seed for one demonstration, equal in every attempt."""
    return _number(f"script {task.task_id} {task.phone_seed}")


def ids_in_topic(config: Config) -> set[str]:
    """The ids of the demonstrations that are published; they are the records' keys."""
    with LogReader(config, "demonstrations") as reader:
        return {(raw.key or b"").decode(errors="replace") for batch in reader.to_end() for raw in batch}


def _number(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
