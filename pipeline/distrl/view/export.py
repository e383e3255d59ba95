"""`distrl view --export`: the pages and the answers of their API as files, for any server of files.

    index.html, …                          the pages, as the package has them
    manifest.json                          what is in it, and when it was made
    data/runs.json                         the answers, each as the API gives it
    data/reports.json, data/reports.d/ID.json
    data/RUN/{run,series,failures,devices,versions,dead-letters,trajectories}.json
    data/RUN/{versions,failures}/N.json    those of version N
    data/RUN/TOPIC/PARTITION-OFFSET.json   an episode
    images/SHA256.png                      each screenshot once

Every answer comes from the application that `distrl view` serves; static/lib/exported.js finds it again. The same
indexes, log and options give the same bytes, but for `made_at` of the manifest. No name of a file is a record's text: a
run's name is one that settings allow, and topics, partitions and offsets are of the log. No name begins with a
character that generators of static sites leave out, as Jekyll does `~`, `_`, `.` and `#`.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version as installed
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from distrl.config import RUN_NAME
from distrl.errors import ConfigError, DistrlError, StoreError
from distrl.offline.find_episode import SEARCHED
from distrl.offline.new_folder import FolderFormat, NewFolder
from distrl.view.app import NO_REPORTS, application
from distrl.view.export_run import Answers, RunExport
from distrl.view.in_process import InProcess
from distrl.view.reports import Reports
from distrl.view.runs import Runs

REPORTS: Final = "reports.d"
"""Folder of the reports, beside those of the runs; no run can have this name."""
FORMAT: Final = FolderFormat(
    "distrl-pages/1",
    re.compile(
        r"(index\.html|icon\.svg|style\.css|app\.js|(lib|components|pages)/[a-z][a-z-]*\.js|vendor/[a-z]+/[A-Za-z][A-Za-z.]*"
        rf"|images/[0-9a-f]{{64}}\.png|data/(runs|reports)\.json|data/{re.escape(REPORTS)}/[0-9a-f]+\.json"
        rf"|data/{RUN_NAME.pattern}/(run|series|failures|devices|versions|dead-letters|trajectories)\.json"
        rf"|data/{RUN_NAME.pattern}/(versions|failures)/[0-9]+\.json"
        rf"|data/{RUN_NAME.pattern}/(verdicts/)?({'|'.join(SEARCHED)})/[0-9]+-[0-9]+\.json)"
    ),
)
SERVED: Final = '<meta name="distrl-answers" content="api">'
"""In index.html: where the pages ask. An export has EXPORTED in its place."""
EXPORTED: Final = SERVED.replace("api", "files")
Progress = Callable[[str, int, int], None]
"""Called with (run, episodes written, episodes of it that are exported)."""


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written."""

    runs: int
    episodes: int
    screenshots: int
    absent: int
    """Screenshots that the store has no more, or that are no images."""
    left_out: Mapping[str, DistrlError]
    """Runs that are not in it, and why."""


def export(
    runs: Runs,
    place: Path,
    most: int | None,
    force: bool,
    made_at: int,
    progress: Progress = lambda *_: None,
    reports: Reports = NO_REPORTS,
    every_run: bool = True,
) -> Exported:
    """Write the folder `place`: of each run the `most` episodes that ended last (None: all). made_at: ms of the epoch.

    Of the runs, those whose log was read to its end by now. every_run: raise what keeps one from being exported; else
    it is left out, unless there is no other. Raises ConfigError where the folder may not be written, StoreError where
    it cannot be, and what ends an answer; then nothing is left behind.
    """
    with (
        NewFolder(place, FORMAT, force) as folder,
        TemporaryDirectory(prefix="distrl-view-") as still,
        InProcess(application(runs, lambda: True, reports)) as asked,
    ):
        names, failed = _frozen(runs, Path(still), every_run)
        try:
            _copy_pages(folder.partial)
            answers = Answers(asked, folder.partial)
            written = [RunExport(answers, name, most).write(progress) for name in names]
            answers.write("data/runs.json", answers.ask("runs"))
            write_reports(answers)
            folder.commit(
                {
                    "made_at": made_at,
                    "episodes": "all" if most is None else most,
                    "runs": {each.run: each.to_dict() for each in written},
                    "not_exported": [f"{name}: {failed[name].what}" for name in sorted(failed)],
                    "written_by": {"distrl": installed("distrl")},
                }
            )
        except OSError as error:
            raise folder.not_written(error) from error
    return Exported(
        len(written),
        sum(each.episodes for each in written),
        len(answers.images),
        sum(each.absent for each in written),
        failed,
    )


def _frozen(runs: Runs, folder: Path, every_run: bool) -> tuple[list[str], dict[str, DistrlError]]:
    """The runs that are exported, each as it is now, and why others are not. From here on, `runs` shows no other."""
    shown, failed = runs.all()
    names = []
    for each in shown:
        try:
            if not each.follower.caught_up.is_set():  # a run that has come to be since the indexes were waited for
                raise StoreError(
                    f"run {each.config.run}", "its log was not read to its end when the export began", "export again"
                )
            if each.follower.failure is not None:
                raise each.follower.failure
            each.freeze(folder)
            names.append(each.config.run)
        except DistrlError as error:
            if every_run:
                raise
            failed[each.config.run] = error
    if not names:
        raise next(
            iter(failed.values()),
            ConfigError(
                "--export", "no run can be exported", "`distrl runs ls` lists those of the broker; name one with --run"
            ),
        )
    runs.narrow(names, failed)
    return names, failed


def write_reports(answers: Answers) -> None:
    """Those that can be read; the list says of the others why they cannot be."""
    listed = answers.ask("reports")
    answers.write("data/reports.json", listed)
    for each in listed["reports"]:
        answers.copy(f"reports/{each['id']}", f"data/{REPORTS}/{each['id']}.json")


def _copy_pages(folder: Path) -> None:
    """The pages, with EXPORTED in index.html. Their policy stands there, too, as no server sends one."""
    shutil.copytree(Path(str(files("distrl.view"))) / "static", folder, dirs_exist_ok=True)
    page = folder / "index.html"
    text = page.read_text(encoding="utf-8")
    if text.count(SERVED) != 1:
        raise AssertionError(f"index.html must have {SERVED} once")
    page.write_text(text.replace(SERVED, EXPORTED), encoding="utf-8")
