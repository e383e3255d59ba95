"""`distrl`: every command, and the one place where an expected error becomes a message and an exit code."""

from __future__ import annotations

import errno
import logging
import os
import sys
from typing import NoReturn

import typer

from distrl.cli import (
    ablate,
    appagent,
    base_model,
    configuration,
    demo,
    devices,
    dlq,
    emulators,
    experiment,
    failures,
    judge,
    lineage,
    phones,
    policy,
    replay,
    rights,
    roles,
    runs,
    schemas,
    scores,
    show,
    skip,
    stack,
    tail,
    tasks,
    topics,
    track,
    train,
    view,
)
from distrl.cli.common import note
from distrl.errors import DistrlError
from distrl.policy.hub import offline_by_default
from distrl.telemetry import logs

log = logging.getLogger(__name__)

UNUSABLE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.EEXIST}
"""Errors of a file or folder that a person named, or that is another user's."""
FULL = {errno.ENOSPC, errno.EDQUOT}
ELSEWHERE = "make it one that this user can write, or name another, as by --out or stack.directory"

app = typer.Typer(
    name="distrl",
    help="Asynchronous distributed reinforcement learning for phone agents, with Kafka as the source of truth.",
    epilog="Settings come from --config FILE, then variables like DISTRL_KAFKA__BOOTSTRAP, then --set; the later wins. "
    "Exit status: 0 done, 1 an error that is explained, 2 a wrong command line, 130 interrupted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for room in (
    stack,
    train,
    roles,
    devices,
    demo,
    ablate,
    experiment,
    replay,
    lineage,
    failures,
    show,
    view,
    judge,
    scores,
    skip,
    track,
):
    room.register(app)
app.add_typer(runs.app, name="runs")
app.add_typer(phones.app, name="phones")
app.add_typer(topics.app, name="topics")
app.add_typer(rights.app, name="rights")
app.add_typer(tasks.app, name="tasks")
app.add_typer(configuration.app, name="config")
app.add_typer(tail.app, name="tail")
app.add_typer(dlq.app, name="dlq")
app.add_typer(schemas.app, name="schemas")
app.add_typer(base_model.app, name="base-model")
app.add_typer(policy.app, name="policy")
app.add_typer(emulators.app, name="emulators")
app.add_typer(appagent.app, name="appagent")


def main() -> None:
    """Run the command line. Exit 0: done; 1: an expected error, explained; 2: usage; 130: interrupted."""
    # The tokenizers' thread pool is not used and warns after a fork.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    offline_by_default(os.environ)
    try:
        app()
    except DistrlError as error:
        _end(error)
    except OSError as error:
        if error.errno not in FULL and (error.filename is None or error.errno not in UNUSABLE):
            raise
        log.debug("%s cannot be used", error.filename, exc_info=True)
        if error.filename is None:  # of a write, which names no file
            _end(DistrlError("this machine", f"a file cannot be written ({error.strerror})", "free disk space"))
        fix = "free disk space there" if error.errno in FULL else ELSEWHERE
        _end(DistrlError(str(error.filename), f"cannot be used ({error.strerror})", fix))
    except KeyboardInterrupt:
        sys.exit(130)


def _end(error: DistrlError) -> NoReturn:
    if logs.configured_as_json():
        log.critical("%s", error)
    else:
        note(str(error), "red")
    sys.exit(1)


if __name__ == "__main__":
    main()
