"""The worker role: tasks in, episodes on phones, trajectories out, newer weights as they are published.

Threads: the calling one works (work.py), one serves the policy, one follows the versions, one serves the broker's
acknowledgements, and with judge.validity some judge actions (action_judge.py). At `stop` no further task is taken, and
running episodes have worker.drain_timeout_s to end. After that they are abandoned; their tasks are uncommitted and will
be delivered to another worker.
"""

from __future__ import annotations

import logging
import threading

from distrl.broker.consumer import TaskConsumer
from distrl.broker.dead_letters import DeadLetters
from distrl.broker.producer import RecordProducer
from distrl.broker.versions import VersionFollower
from distrl.clock import SYSTEM_CLOCK
from distrl.config import Config
from distrl.policy.sampling import Sampling
from distrl.rollout.back_pressure import Retry
from distrl.rollout.phones import Phones
from distrl.rollout.reload import Reloader, wait_first
from distrl.rollout.serving import refuse_other_base, serving
from distrl.rollout.wiring import TRUTH, fallback_judge_of, judge_of, screenshot_store
from distrl.store.objects import open_store
from distrl.supervised import StoppableThread
from distrl.telemetry.monitor import Monitor
from distrl.telemetry.tracing import OFF, Tracer
from distrl.worker.work import Worker

log = logging.getLogger(__name__)


def run_worker(config: Config, stop: threading.Event, monitor: Monitor | None = None, tracer: Tracer = OFF) -> None:
    """Work until `stop`. Raises DistrlError where it cannot go on: no broker, no phone, refused credentials."""
    monitor = monitor or Monitor()
    give_up = threading.Event()
    retry = Retry(give_up)
    store = open_store(config.store)
    with (
        RecordProducer(config, config.worker.name) as producer,
        VersionFollower(config) as versions,
        serving(config, Sampling.of(config.worker)) as policy,
    ):
        first = wait_first(versions, stop, monitor)
        if first is None:
            return
        refuse_other_base(first, policy.base_sha256)  # before it takes tasks that it could never play
        monitor.waits_for("its phones")
        dead_letters = DeadLetters.of(config, producer)
        reloader = Reloader(versions, store.get, policy.base_sha256, policy.decider, SYSTEM_CLOCK)
        following = StoppableThread(reloader.run, "versions")

        def check() -> None:
            following.check()
            policy.decider.check()

        try:
            with Phones(config, stop) as phones, TaskConsumer(config, dead_letters) as tasks:
                judge = judge_of(config, store)
                worker = Worker(
                    config,
                    policy.decider,
                    reloader,
                    phones,
                    screenshot_store(store, config.run, retry),
                    TRUTH,
                    producer.publish,
                    retry,
                    give_up,
                    fallback_judge=fallback_judge_of(judge),
                    actions_judge=judge,
                    image=store.get,
                    monitor=monitor,
                    tracer=tracer,
                )
                worker.work(tasks, stop, check)
        finally:
            give_up.set()
            following.stop(policy.decider.close)  # closing ends a slow load at a server within the grace period
