"""One run in an export: which answers are asked for, and what differs between an answer and its file.

Lists are whole, as the browser filters them; pictures are named by their content; and nothing leads to an episode that
was left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, quote, urlsplit

import msgspec

from distrl.errors import StoreError
from distrl.view.filters import MOST_ROWS
from distrl.view.in_process import InProcess
from distrl.view.queries import LISTED

MOST_LETTERS: Final = 5_000
"""Dead letters of a run, the newest: each may have a long reason, and nobody reads more."""
GONE: Final = (404, 422)
"""Statuses of what is gone or cannot be read: an export goes on without it."""
LINKS: Final = ("previous", "next")
"""Fields of an episode that lead to the ones beside it in its partition."""
Row = dict[str, Any]
Place = tuple[str, int, int]


class Answers:
    """Asks the application and writes files into `folder`. Of one thread."""

    def __init__(self, application: InProcess, folder: Path) -> None:
        self._application, self._folder = application, folder
        self.images: set[str] = set()
        """sha256 of each screenshot that is written."""

    def ask(self, path: str) -> Any:
        """The answer at api/PATH. Raises StoreError where it is an error."""
        found, error = self.ask_for(path)
        if error is not None:
            raise error
        return found

    def ask_for(self, path: str) -> tuple[Any, StoreError | None]:
        """The answer at api/PATH, or why there is none: it is gone. Raises StoreError for other errors."""
        body, error = self._body(path)
        return None if body is None else msgspec.json.decode(body), error

    def copy(self, path: str, name: str) -> None:
        """Write the answer at api/PATH as it is, unless it is gone. Raises StoreError for other errors, OSError."""
        body, _ = self._body(path)
        if body is not None:
            self.write(name, body)

    def _body(self, path: str) -> tuple[bytes | None, StoreError | None]:
        reply = self._application.get(f"/api/{path}")
        if reply.status == 200:
            return reply.body, None
        error = _error(path, reply.body)
        if reply.status in GONE:
            return None, error
        raise error

    def rows(self, path: str, most: int | None) -> tuple[list[Row], int]:
        """Rows of a list, page by page until it has `most`, and how many there are."""
        rows: list[Row] = []
        upto = ""
        while True:
            joint = "&" if "?" in path else "?"
            found = self.ask(f"{path}{joint}limit={MOST_ROWS}&offset={len(rows)}{upto}")
            rows += found["rows"]
            upto = f"&upto={found['upto']}" if "upto" in found else ""
            if not found["rows"] or (most is not None and len(rows) >= most):
                return rows[:most], found["total"]

    def image(self, address: str) -> tuple[str | None, str]:
        """(address of the file, "") of the screenshot at an address of the API; (None, why) for one that is gone."""
        (named,) = parse_qs(urlsplit(address).query, keep_blank_values=True)["sha256"]
        if named not in self.images:
            reply = self._application.get(f"/{address}")
            if reply.status in GONE:
                return None, _error(address, reply.body).what
            if reply.status != 200:
                raise _error(address, reply.body)
            named = hashlib.sha256(reply.body).hexdigest()
            self.images.add(named)
            self.write(f"images/{named}.png", reply.body)
        return f"images/{named}.png", ""

    def write(self, name: str, content: Any) -> None:
        """name: a path in the folder. content: bytes, or what is written as JSON. Raises OSError."""
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else msgspec.json.encode(content))

    def written(self, name: str) -> Any:
        """What was written as JSON. name: as of `write`. Raises OSError."""
        return msgspec.json.decode((self._folder / name).read_bytes())


@dataclass(frozen=True, slots=True)
class WrittenRun:
    """What is in the export of one run."""

    run: str
    episodes: int
    of: int
    """Episodes that the log holds."""
    unreadable: int
    absent: int
    """Screenshots, counted at each step that has one."""
    read_up_to: dict[str, dict[str, int]]
    """Topic -> partition -> the offset after the last record that the export knows."""

    def to_dict(self) -> dict[str, Any]:
        found = asdict(self)
        del found["run"]
        return found


class RunExport:
    """Writes one run. most: how many episodes, those that ended last; None: all."""

    def __init__(self, answers: Answers, run: str, most: int | None) -> None:
        self._answers, self._run, self._most = answers, run, most
        self._absent = 0

    def write(self, progress: Callable[[str, int, int], None]) -> WrittenRun:
        """Raises StoreError, OSError."""
        wanted, of = self._wanted()
        beside: dict[Place, set[Place]] = {}
        for number, row in enumerate(wanted):
            progress(self._run, number, len(wanted))
            if (found := self._episode(_place(row))) is not None:
                beside[_place(row)] = found
        progress(self._run, len(wanted), len(wanted))
        places = set(beside)
        for place, linked in beside.items():
            if not linked <= places:
                self._unlink(place, places)
        listed = [row for row in wanted if _place(row) in places]
        rows = [[row[name] for name in LISTED] for row in listed]
        self._file("trajectories", {"columns": LISTED, "rows": rows})
        self._failures("failures", "/failures", places)
        for name in ("series", "devices"):
            self._file(name, self._ask(f"/{name}"))
        self._versions(places)
        letters, all_letters = self._answers.rows(f"runs/{self._run}/dead-letters", MOST_LETTERS)
        self._file("dead-letters", {"total": len(letters), "rows": letters})
        about = self._ask("")
        done = WrittenRun(self._run, len(listed), of, len(wanted) - len(listed), self._absent, about["read_up_to"])
        about["notes"] += _notes(done, all_letters - len(letters))
        self._file("run", about)
        return done

    def _wanted(self) -> tuple[list[Row], int]:
        """The rows of the exported episodes, oldest first, and how many episodes there are.

        A page more is asked for than is wanted: those that ended in the same ms come in the order of the index, and
        which of them are exported is to follow from the log alone.
        """
        more = None if self._most is None else self._most + MOST_ROWS
        rows, of = self._answers.rows(f"runs/{self._run}/trajectories?sort=finished_at&order=desc", more)
        rows.sort(key=lambda row: (row["finished_at"], *_place(row)))
        return (rows if self._most is None else rows[max(0, len(rows) - self._most) :]), of

    def _episode(self, place: Place) -> set[Place] | None:
        """Write it; returns the places that it links to. None where its record is gone, or unreadable."""
        topic, partition, offset = place
        found, error = self._answers.ask_for(f"runs/{self._run}/{topic}/{partition}:{offset}")
        if error is not None:
            return None
        for each in (*found["steps"], found["final"]):
            if each["image"] is not None:
                each["image"], each["image_absent"] = self._answers.image(each["image"])
                self._absent += each["image"] is None
        self._file(_episode_file(place), found)
        self._file(f"verdicts/{_episode_file(place)}", self._ask(f"/verdicts/{topic}/{partition}:{offset}"))
        return {_linked(topic, found[name]) for name in LINKS if found[name] is not None}

    def _unlink(self, place: Place, places: set[Place]) -> None:
        """Have a written episode lead to those at `places` alone."""
        found = self._answers.written(self._name(_episode_file(place)))
        for name in LINKS:
            if found[name] is not None and _linked(place[0], found[name]) not in places:
                found[name] = None
        self._file(_episode_file(place), found)

    def _failures(self, name: str, path: str, places: set[Place]) -> None:
        found = self._ask(path)
        for each in (*found["classes"], *found["conditions"]):
            each["examples"] = [row for row in each["examples"] if _place(row) in places]
        self._file(name, found)

    def _versions(self, places: set[Place]) -> None:
        """Those that have a page: a record may have a number that no version has."""
        rows, _ = self._answers.rows(f"runs/{self._run}/versions", None)
        shown = []
        for row in rows:
            found, _ = self._answers.ask_for(f"runs/{self._run}/versions/{row['version']}")
            if found is not None:
                self._file(f"versions/{row['version']}", found)
                self._failures(f"failures/{row['version']}", f"/failures?version={row['version']}", places)
                shown.append(row)
        self._file("versions", {"total": len(shown), "rows": shown})

    def _ask(self, path: str) -> Any:
        return self._answers.ask(f"runs/{quote(self._run)}{path}")

    def _file(self, name: str, content: Any) -> None:
        self._answers.write(self._name(name), content)

    def _name(self, name: str) -> str:
        return f"data/{self._run}/{name}.json"


def _place(row: Row) -> Place:
    return row["topic"], row["partition"], row["offset"]


def _linked(topic: str, link: str) -> Place:
    """link: PARTITION:OFFSET."""
    partition, offset = map(int, link.split(":"))
    return topic, partition, offset


def _episode_file(place: Place) -> str:
    topic, partition, offset = place
    return f"{topic}/{partition}-{offset}"


def _notes(done: WrittenRun, letters: int) -> list[str]:
    """What a reader of the export must know, a line each."""
    found = []
    if done.episodes + done.unreadable < done.of:
        found.append(f"this export has the {done.episodes} episodes that ended last, of {done.of}")
    if done.unreadable:
        found.append(f"{done.unreadable} episodes are not in this export: their records are gone, or cannot be read")
    if done.absent:
        found.append(f"{done.absent} steps have no screenshot here: the store had none, or no image")
    if letters:
        found.append(f"{letters} older dead letters are not in this export")
    return found


def _error(path: str, body: bytes) -> StoreError:
    """The error that an answer holds."""
    found = msgspec.json.decode(body)
    return StoreError(f"export of {path[:200]}", found["error"], found["fix"] or "try again")
