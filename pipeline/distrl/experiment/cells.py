"""The cells of an experiment, each an arm under a seed: computed in processes of their own, and persisted one by one.

A cell's file appears whole as soon as its process is done, so an experiment that is killed goes on with the others. It
names what its figures depend on; a file of other settings is computed again.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from distrl.errors import ComputeError
from distrl.experiment.base_models import grounded
from distrl.experiment.compute import CellResult, compute
from distrl.experiment.plan import FORMAT, Cell
from distrl.experiment.spent import FOLDER as SPENT
from distrl.experiment.spent import Spent, by_other_code, code_version, note, timed
from distrl.experiment.warmup import FOLDER as WARMUPS
from distrl.experiment.warmup import adapter_file, shared, warm_up
from distrl.files import make_folder, write
from distrl.processor import processor
from distrl.runs.plugin_code import plugin_code

FOLDER: Final = "cells"
ENDED_S: Final = 0.5
"""How long a killed parent may take to end once its end of the pipe is closed."""
TEMPORARY: Final = "distrl-experiment-"
"""How the name of the temporary folder of an experiment's processes begins."""

OnCell = Callable[[Cell], None]


def persisted(cell: Cell, out: Path) -> CellResult | None:
    """What an earlier call has computed of the cell; None where its file is missing, damaged or of other settings."""
    try:
        found = json.loads((out / FOLDER / cell.file).read_bytes())
        return dict(found["result"]) if found["fingerprint"] == cell.fingerprint else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def code_of(cells: Sequence[Cell]) -> str:
    """`code_version`, after the code of other packages that bring policies or algorithms of arms that learn. Raises
    PolicyError where a base model cannot be read."""
    learning = {(cell.base_model, cell.arm.name): cell for cell in cells if cell.arm.learns}
    plugins = {code for cell in learning.values() for code in plugin_code(cell.config).values()}
    return ", ".join([*sorted(plugins), code_version()])


def persisted_by_other_code(cells: Sequence[Cell], out: Path, code: str) -> dict[str, int]:
    """How many of the persisted cells and warm-ups, which are not computed again, were made by other code than `code`;
    by that code (`by_other_code`)."""
    there = [cell.file for cell in cells if persisted(cell, out) is not None]
    warmups = {file for cell in cells if shared(cell) and (file := adapter_file(cell, out)).exists()}
    return by_other_code(out, [*there, *map(_warmup_note, warmups)], code)


def results(cells: Sequence[Cell], out: Path, on_cell: OnCell, processes: int | None = None) -> list[CellResult]:
    """The result of each cell, in their order; computes and persists those that are not there.

    on_cell: called with each cell once its result is there. processes: how many at once; the cores there are if None.
    Raises ConfigError where `out` cannot be written, ComputeError where a process was killed, and what a cell raised.
    """
    make_folder(out / FOLDER)
    make_folder(out / SPENT)
    spent = partial(Spent, code=code_of(cells), format=FORMAT, processor=processor())
    found = {cell: result for cell in cells if (result := persisted(cell, out)) is not None}
    for cell in found:
        on_cell(cell)
    missing = sorted((cell for cell in cells if cell not in found), key=_work, reverse=True)
    if missing:
        spawn = multiprocessing.get_context("spawn")
        # A pipe: a process that is killed while it waits for an Event leaves `set` waiting for ever.
        watched, held = spawn.Pipe(duplex=False)
        with (
            tempfile.TemporaryDirectory(prefix=TEMPORARY) as temporary,
            watched,
            held,
            ProcessPoolExecutor(processes or _cores(), spawn, _end_with_parent, (watched, temporary)) as pool,
        ):
            try:
                warmed = _warmed(missing, out, pool, spent)
                with _sigint_blocked():
                    coming: dict[Future[tuple[CellResult, float]], Cell] = {
                        pool.submit(timed, compute, grounded(cell, out), warmed.get(cell)): cell for cell in missing
                    }
                for future in as_completed(coming):
                    cell = coming[future]
                    found[cell], processor_s = future.result()
                    note(out, cell.file, spent(processor_s))
                    _persist(cell, found[cell], out)
                    on_cell(cell)
            except BaseException as error:
                held.close()
                pool.shutdown(wait=False, cancel_futures=True)
                if isinstance(error, BrokenProcessPool):
                    raise ComputeError(
                        "distrl experiment",
                        f"one of {processes or _cores()} processes that compute cells has ended unexpectedly, as "
                        "where memory runs out or somebody kills it",
                        "give the same command again, which goes on with the cells that are missing; --processes 1 "
                        "computes one at a time",
                    ) from None
                raise
    return [found[cell] for cell in cells]


def noted(cells: Sequence[Cell], out: Path) -> list[str]:
    """The names under which `spent` has what the cells and their warm-ups took."""
    warmups = {_warmup_note(adapter_file(cell, out)) for cell in cells if shared(cell)}
    return [*(cell.file for cell in cells), *sorted(warmups)]


def _warmup_note(file: Path) -> str:
    return f"warmup-{file.stem}.json"


def _warmed(
    cells: Sequence[Cell], out: Path, pool: ProcessPoolExecutor, spent: Callable[[float], Spent]
) -> dict[Cell, Path]:
    """The file of the weights after the warm-up of each cell that learns; computes and persists those that are not
    there. spent: what is noted of a warm-up that took so many processor seconds."""
    files = {cell: adapter_file(cell, out) for cell in cells if shared(cell)}
    if files:
        make_folder(out / WARMUPS)
    makers = {file: cell for cell, file in files.items() if not file.exists()}
    with _sigint_blocked():
        coming = [(file, pool.submit(timed, warm_up, cell, file)) for file, cell in makers.items()]
    for file, each in coming:
        note(out, _warmup_note(file), spent(each.result()[1]))
    return files


@contextmanager
def _sigint_blocked() -> Iterator[None]:
    """Processes that begin within the block get no SIGINT, which a terminal sends to all of them: they would print
    tracebacks, and end with their parent anyway. This process gets it after the block."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def as_json(content: Any) -> bytes:
    """Equal content gives equal bytes."""
    return (json.dumps(content, indent=1, allow_nan=False) + "\n").encode()


def _persist(cell: Cell, result: CellResult, out: Path) -> None:
    content = {"arm": cell.arm.name, "seed": cell.seed, "fingerprint": cell.fingerprint, "result": result}
    write(out / FOLDER / cell.file, as_json(content))


def _work(cell: Cell) -> float:
    """Grows with what a cell takes: the largest begin first, so that none is left alone at the end."""
    return cell.arm.phones * cell.until * (0.5 if cell.arm.synchronous else 1.0)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _end_with_parent(watched: Connection, temporary: str) -> None:
    """In a process of the pool: ends it in the middle of a cell once the other end of `watched` is closed, which its
    parent has, or the system where that was killed.

    temporary: the folder for its temporary files, such as every version of a learning arm. The parent removes it; where
    it was killed, those that it leaves do.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None
    tempfile.tempdir = temporary

    def watch() -> None:
        watched.poll(None)
        parent.join(ENDED_S)
        if not parent.is_alive():
            shutil.rmtree(temporary, ignore_errors=True)
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()
