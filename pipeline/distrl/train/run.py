"""Trains on this machine until Ctrl-C: starts the servers that are not configured, and supervises all roles.

Everything learned is in the log and the store, so the same command continues the run.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from rich.console import Console

from distrl.algorithms.registry import refuse_other_policy
from distrl.broker import topic_admin
from distrl.broker.versions import lineage
from distrl.config import Config
from distrl.errors import StackError
from distrl.policy.registry import tokenizer_of
from distrl.rollout.vocabulary import refuse_unknown_words
from distrl.runs.joined import Given, over_recorded
from distrl.runs.recorded import base_tree, recorded
from distrl.stack.kafka import may_hold_runs
from distrl.stack.local import LocalStack
from distrl.tasks.lists import suite_of
from distrl.train.folder import RunFolder, alone, folder_of, link_to_stack, refuse_second
from distrl.train.placement import WORKERS, Placement, place, why_fewer
from distrl.train.roles import Roles, running, stop_left, stop_left_on_stack
from distrl.train.servers import Servers
from distrl.train.watch import watch
from distrl.types import Split


def train(
    config: Config,
    given: Given,
    out: Path,
    console: Console,
    workers: int | None,
    evaluation: int | None,
    owner: str = "distrl train",
) -> None:
    """Train until KeyboardInterrupt. workers: as in `placed`.

    Raises as `prepared`; StackError where a role cannot be started.
    """
    with prepared(config, given, out, console, owner) as (settings, folder, stack):
        own = not config.devices.named
        count = settings.phones.evaluation_count if own and evaluation is None else evaluation or 0
        placement = placed(settings, console, workers, own=own, evaluation=count)
        if placement.demonstrator is None and settings.warmup.demonstrations and not lineage(settings):
            console.print(
                f"the learner waits for {settings.warmup.demonstrations} demonstrations; record them with "
                "`distrl phones play --record`, or set warmup.demonstrations=0",
                soft_wrap=True,
            )
        with roles_of(settings, given, folder, stack) as roles:
            try:
                start_all(roles, placement)
                watch(settings, roles, console, lambda: None)
            finally:
                stop_in_order(roles, placement, console)


def roles_of(settings: Config, given: Given, folder: RunFolder, stack: LocalStack) -> AbstractContextManager[Roles]:
    """The roles of a run that is `prepared`. Roles and servers that end are started again."""

    def renewed() -> Config:
        return over_recorded(settings, given)[0]

    return running(settings, folder.logs, Servers(stack), folder.settings, renewed=renewed)


@contextmanager
def prepared(
    config: Config, given: Given, out: Path, console: Console, owner: str
) -> Iterator[tuple[Config, RunFolder, LocalStack]]:
    """The settings with all endpoints, the run's folder, and the servers. Servers that were started for the block are
    stopped after it. The topics exist, and the settings include those in the run's log.

    config: the given settings, which lead to the run's log. given: applies the given settings over those of the log.
    Raises ConfigError if the suite lacks tasks of a split, the algorithm cannot train the policy, or the base model
    lacks words of the suite that is demonstrated or fed. Without a log this is checked before anything starts, else
    once the settings in the log are known. Raises StackError if somebody else trains in `out` or on the stack, and if
    the disk is full.
    """
    folder = folder_of(config, out)
    refuse_second(config, out)
    if not may_hold_runs(config):
        _sound(given({}))
    try:
        with alone(config, out, owner):
            folder.make()
            stop_left_on_stack(config)
            link_to_stack(config, out)
            stop_left(out)
            stack = LocalStack(_without_phones(config), owner=owner)
            with console.status("starting Kafka, the object store and adb"):
                settings = stack.up(reuse=True)
            try:
                # The settings of the phones are in the run's log too, so phones start only now.
                found = recorded(settings)
                config = _sound(given({} if found is None else base_tree(found, settings)))
                stack = LocalStack(config, owner=owner)
                with console.status("starting the phones"):
                    settings = stack.up(reuse=True)
                topic_admin.ensure(settings)
                yield settings, folder, stack
            finally:
                with console.status("stopping"):
                    stack.down_own()
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StackError(
                str(error.filename or folder.path),
                f"{error.strerror}: the files of the run cannot be written",
                "free disk space there, then run the same command again: it continues the run",
            ) from error
        raise


def _without_phones(config: Config) -> Config:
    none = config.phones.model_copy(update={"count": 0, "evaluation_count": 0})
    return config.model_copy(update={"phones": none})


def _sound(config: Config) -> Config:
    """Returns `config`. Raises ConfigError for settings with which no role could work."""
    suite = suite_of(config.feeder)
    for split in Split:
        suite.task(0, 0, split)
    tokenizer = tokenizer_of(config.policy)
    refuse_other_policy(config, tokenizer)
    if config.warmup.demonstrations or not config.feeder.tasks:
        refuse_unknown_words(config.feeder, tokenizer)
    return config


def placed(settings: Config, console: Console, workers: int | None, *, own: bool, evaluation: int) -> Placement:
    """As `place`. Says so where fewer workers start. workers: None: at most WORKERS, without a message."""
    placement = place(settings, own=own, workers=workers or WORKERS, evaluation=evaluation)
    if workers is not None and (why := why_fewer(settings, placement, own=own, workers=workers)):
        console.print(why, soft_wrap=True)
    return placement


def start_all(roles: Roles, placement: Placement) -> None:
    """Start every role of a run, including the demonstrator if the script can demonstrate on these phones."""
    roles.start("learner", "learner", stays=True)
    if placement.demonstrator is not None:
        roles.start("demonstrate", "demonstrate", sets=placement.demonstrator)
    for index, sets in enumerate(placement.workers):
        roles.start(f"worker-{index}", "worker", sets=[f"worker.name=worker-{index}", *sets], stays=True)
    if placement.evaluator is not None:
        roles.start("evaluator", "evaluate", sets=placement.evaluator, stays=True)
    roles.start("feeder", "feed", stays=True)


def stop_in_order(roles: Roles, placement: Placement, console: Console) -> None:
    """Stop what begins work before what finishes it, so that the learner has every trajectory when it stops."""
    with console.status("the workers finish their episodes"):
        roles.stop("feeder", "evaluator", "demonstrate")
        roles.stop(*(f"worker-{index}" for index in range(len(placement.workers))))
        roles.stop("learner")
