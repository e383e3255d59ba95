"""The HTTP API of `distrl view`, and the pages: docs/view.md. Handlers parse a request, query the index or the log, and
answer."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from distrl.errors import DistrlError
from distrl.images import ImageError, size
from distrl.judge.verdict_log import Episode, said_of
from distrl.offline.find_episode import SEARCHED, place_of
from distrl.runs.recorded import settings_behind
from distrl.store.folders import VERDICTS
from distrl.store.objects import CorruptObjectError, is_reference
from distrl.view import queries
from distrl.view import series as charts
from distrl.view.answers import NotThereError, answer, explained, refusal
from distrl.view.drawn import draws_of
from distrl.view.episode import episode, screen_of, task
from distrl.view.events import counts_of, events_of
from distrl.view.filters import EPISODES, PAGE, EpisodeFilter, Page, number, only_known
from distrl.view.guard import PROBES
from distrl.view.index import DEAD_LETTERS, StaleIndexError
from distrl.view.reports import Reports
from distrl.view.runs import Runs, ShownRun

FOR_EVER: Final = "private, max-age=31536000, immutable"
NO_REPORTS: Final = Reports()
VERSION: Final = re.compile(r"[0-9]{1,15}")


def application(runs: Runs, closing: Callable[[], bool], reports: Reports = NO_REPORTS) -> Starlette:
    """The ASGI application. closing: whether the server is stopping, so that streams of events end, too."""
    api = _Api(runs, reports)
    run = "/api/runs/{run}"
    routes: list[BaseRoute] = [
        *(Route(path, _alive) for path in PROBES),
        _Answer("/api/runs", api.runs, "again"),
        _Answer(run, api.run),
        _Answer(f"{run}/series", api.series, "from", "to"),
        _Answer(f"{run}/versions", api.versions, *PAGE),
        _Answer(f"{run}/versions/{{version}}", api.version),
        _Answer(f"{run}/trajectories", api.trajectories, *EPISODES, *PAGE),
        _Answer(f"{run}/failures", api.failures, "version"),
        _Answer(f"{run}/devices", api.devices),
        _Answer(f"{run}/dead-letters", api.dead_letters, *PAGE),
        _Answer(f"{run}/counts", api.counts),
        _Answer(f"{run}/events", events_of(runs, closing)),
        _Answer(f"{run}/tasks/{{task_id:path}}", api.task),
        _Answer(f"{run}/images/{{topic}}/{{place}}/{{which}}", api.image, "sha256"),
        _Answer(f"{run}/verdicts/{{topic}}/{{place}}", api.verdicts),
        _Answer(f"{run}/{DEAD_LETTERS}/{{place}}", api.dead_letter),
        _Answer(f"{run}/{{topic}}/{{place}}", api.episode),
        _Answer("/api/reports", api.reports),
        _Answer("/api/reports/{report}", api.report),
        Mount("/", _Pages(directory=Path(str(files("distrl.view"))) / "static", html=True, check_dir=False)),
    ]
    handlers: dict[Any, Any] = {
        DistrlError: lambda request, error: explained(error),
        StaleIndexError: _being_made,
        HTTPException: _refused,
    }
    return Starlette(routes=routes, exception_handlers=handlers)


class _Answer(Route):
    """An answer of the API. A parameter of any other name is refused: a filter with a typo would choose everything."""

    def __init__(self, path: str, endpoint: Callable[[Request], Any], *parameters: str) -> None:
        super().__init__(path, endpoint)
        self._parameters = parameters

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        only_known(QueryParams(scope["query_string"]), self._parameters)
        await super().handle(scope, receive, send)


class _Pages(StaticFiles):
    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        """Browsers ask each time whether a file is still the same: another version of DistRL has other pages."""
        found = super().file_response(*args, **kwargs)
        found.headers["Cache-Control"] = "no-cache"
        return found


async def _alive(request: Request) -> Response:
    """Takes no thread of the pool: all of them may be waiting for a broker that does not answer."""
    return answer({"ok": True})


def _being_made(request: Request, error: Exception) -> Response:
    return refusal(503, "the index of this run is being made", "ask again in a moment")


def _refused(request: Request, error: HTTPException) -> Response:
    return refusal(error.status_code, f"{request.url.path[:200]}: {error.detail}", "the pages begin at /")


class _Api:
    """Each method is a handler, which runs in a thread of the server's pool."""

    def __init__(self, runs: Runs, reports: Reports) -> None:
        self._runs, self._reports = runs, reports

    def runs(self, request: Request) -> Response:
        shown, failed = self._runs.all()
        if "again" not in request.query_params:  # else a page that polls the list would have the logs read without end
            for each in shown:
                each.follower.refresh()
        problems = [{"run": name, "error": f"{e.where}: {e.what}", "fix": e.hint} for name, e in failed.items()]
        return answer({"runs": [_row(each) for each in shown], "problems": problems})

    def run(self, request: Request) -> Response:
        shown = self._of(request)
        indexing, failure = shown.follower.indexing, shown.follower.failure
        with shown.index() as index:
            details = queries.run_details(index)
        if failure is not None:
            details["notes"].append(f"the log is not read now: {failure.where}: {failure.what} ({failure.hint})")
        progress = {"done": indexing.done, "total": indexing.total} if indexing is not None else None
        return answer({**_row(shown), **details, "indexing": progress})

    def counts(self, request: Request) -> Response:
        return answer(counts_of(self._of(request)))

    def series(self, request: Request) -> Response:
        since, to = number(request.query_params, "from"), number(request.query_params, "to")
        with self._of(request).index() as index:
            return answer(charts.series(index, since, to))

    def versions(self, request: Request) -> Response:
        page = Page.of(request.query_params)
        with self._of(request).index() as index:
            return answer(charts.versions(index, page))

    def version(self, request: Request) -> Response:
        shown, text = self._of(request), request.path_params["version"]
        with shown.index() as index:
            found = charts.version(index, int(text)) if VERSION.fullmatch(text) else None
        if found is None:
            raise NotThereError(
                f"version {text[:40]}", f"run {shown.config.run} has no such version", "see its versions"
            )
        settings = settings_behind(found["fingerprint"], shown.config)
        return answer({**found, "settings": settings or None})

    def trajectories(self, request: Request) -> Response:
        wanted, page = EpisodeFilter.of(request.query_params), Page.of(request.query_params)
        with self._of(request).index() as index:
            return answer(queries.episodes(index, wanted, page))

    def failures(self, request: Request) -> Response:
        version = number(request.query_params, "version", least=-2)
        with self._of(request).index() as index:
            return answer(queries.failures(index, version))

    def devices(self, request: Request) -> Response:
        with self._of(request).index() as index:
            return answer(charts.devices(index))

    def dead_letters(self, request: Request) -> Response:
        page = Page.of(request.query_params)
        with self._of(request).index() as index:
            return answer(queries.dead_letters(index, page))

    def dead_letter(self, request: Request) -> Response:
        shown, text = self._of(request), request.path_params["place"]
        place = place_of(text)
        with shown.index() as index:
            found = queries.dead_letter(index, *place) if place is not None else None
        if found is None:
            raise NotThereError(f"{DEAD_LETTERS}/{text[:40]}", "no dead letter is there", "see the list: dead-letters")
        return answer(found)

    def task(self, request: Request) -> Response:
        shown, task_id = self._of(request), request.path_params["task_id"]
        with shown.index() as index:
            attempts = queries.task_attempts(index, task_id)
        if not attempts:
            raise NotThereError(
                "task", f"run {shown.config.run} has no episode of {task_id[:200]!r}", "search the trajectories"
            )
        first = attempts[0]
        found = shown.episode(first["topic"], first["partition"], first["offset"])
        return answer({"task": task(found.trajectory.task), "attempts": attempts})

    def episode(self, request: Request) -> Response:
        shown = self._of(request)
        topic, partition, offset = _place(request)
        found = shown.episode(topic, partition, offset)
        with shown.index() as index:
            before, after = queries.neighbours(index, topic, partition, offset)
            known = {
                "previous": before,
                "next": after,
                "learned_in": queries.learned_in(index, topic, offset),
                "lag": queries.lag(index, topic, partition, offset),
            }
            published, drawn = queries.published(index), draws_of(index, topic, partition, offset)
        return answer(episode(shown.config.run, found, published, drawn, known))

    def verdicts(self, request: Request) -> Response:
        """The verdicts that `distrl judge` has stored. No part of the episode's answer, which needs no object store."""
        shown = self._of(request)
        said, spoilt = said_of(shown.store, Episode(VERDICTS.of(shown.config.run), *_place(request)))
        rows = [
            {"source": each.source, "outcome": each.verdict.outcome.value, "reason": each.verdict.reason}
            for each in said
        ]
        return answer({"verdicts": rows, "spoilt": spoilt})

    def image(self, request: Request) -> Response:
        shown = self._of(request)
        topic, partition, offset = _place(request)
        which = request.path_params["which"]
        ref = screen_of(shown.episode(topic, partition, offset).record, which)
        if ref is None:
            where = f"{partition}:{offset}/{which[:20]}"
            raise NotThereError(
                where, "the episode has no such step", "steps are counted from 0; the last screen is final"
            )
        if not is_reference(ref):
            raise CorruptObjectError(
                f"object {ref.key}", "is no valid name of one", "check the worker that recorded it"
            )
        same = request.query_params.get("sha256") == ref.sha256
        headers = {"ETag": f'"{ref.sha256}"', "Cache-Control": FOR_EVER if same else "private, no-cache"}
        if f'"{ref.sha256}"' in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        png = shown.store.get(ref)
        try:
            size(png)
        except ImageError as error:
            raise CorruptObjectError(f"object {ref.key}", str(error), "check the worker that recorded it") from error
        return Response(png, media_type="image/png", headers=headers)

    def reports(self, request: Request) -> Response:
        return answer({"reports": self._reports.all()})

    def report(self, request: Request) -> Response:
        return answer(self._reports.get(request.path_params["report"]))

    def _of(self, request: Request) -> ShownRun:
        return self._runs.get(request.path_params["run"])


def _row(shown: ShownRun) -> dict[str, Any]:
    """A run in the list of runs; without counts while it has no index."""
    config = shown.config
    base = config.policy.base_model
    names = {
        "run": config.run,
        "algorithm": config.algorithm.type,
        "base_model": str(base) if base else "shipped",
        "reading": shown.follower.reading,
    }
    try:
        with shown.index() as index:
            return {**names, **queries.run_row(index)}
    except (StaleIndexError, DistrlError):
        return {**names, **queries.EMPTY_RUN}


def _place(request: Request) -> tuple[str, int, int]:
    topic, text = request.path_params["topic"], request.path_params["place"]
    place = place_of(text)
    if topic not in SEARCHED or place is None:
        raise NotThereError(f"{topic[:40]}/{text[:40]}", "is no episode", f"name {'|'.join(SEARCHED)}/PARTITION:OFFSET")
    return topic, *place
