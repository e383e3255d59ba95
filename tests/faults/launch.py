"""Runs the real commands as children of one warm process, so that a role starts in a tenth of a second.

A script, run with its own pipes: a JSON line asks, a JSON line answers.

    {"start": [arguments of distrl], "log": FILE, "point": NAME or null, "nth": 1, "clock": FILE or null}
                   -> {"pid": PID}
    {"poll": PID}  -> {"code": null or exit code}

Each child is a fork that has only imported modules: no client, no thread. It runs `distrl.cli.main.main` as a person's
command would, in a session of its own, and dies with this process. `point` names where it kills itself: points.py.
`clock`: a file with the seconds that the child's own clock is ahead.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import sys
import traceback
from functools import partial
from pathlib import Path
from typing import Any

# What the roles import when they start is imported once, here.
import distrl.broker.consumer
import distrl.demonstrations.scripted
import distrl.evaluate.run
import distrl.feeder.run
import distrl.learner.run
import distrl.policy.autoui.policy
import distrl.policy.vlm.policy
import distrl.store.s3
import distrl.worker.run
import points  # beside this script, whose folder is the first that is looked in
from distrl.cli.main import main

PR_SET_PDEATHSIG = 1
SHORTEST_SESSION_S = 6.0
"""The shortest that a broker allows: a killed worker's tasks go to the others as soon as can be."""


def serve() -> None:
    distrl.worker.run.TaskConsumer = partial(distrl.worker.run.TaskConsumer, session_timeout_s=SHORTEST_SESSION_S)
    for line in sys.stdin:
        asked = json.loads(line)
        answer = {"pid": start(asked)} if "start" in asked else {"code": poll(asked["poll"])}
        print(json.dumps(answer), flush=True)


def start(asked: dict[str, Any]) -> int:
    pid = os.fork()
    if pid == 0:
        run(asked)
    return pid


def poll(pid: int) -> int | None:
    """The exit code, negative for a signal; None while it runs. Once it has been told, the pid may be another's."""
    found, status = os.waitpid(pid, os.WNOHANG)
    return None if found == 0 else os.waitstatus_to_exitcode(status)


def run(asked: dict[str, Any]) -> None:
    """The child: never returns."""
    code = 1
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        nothing = os.open(os.devnull, os.O_RDONLY)
        log = os.open(asked["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for source, target in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        if asked["point"]:
            points.POINTS[asked["point"]](asked["nth"])
        if asked["clock"]:
            points.shift_clock(Path(asked["clock"]))
        sys.argv = ["distrl", *asked["start"]]
        main()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    gc.freeze()
    serve()
    os._exit(0)  # not by way of every library's own leave-taking
