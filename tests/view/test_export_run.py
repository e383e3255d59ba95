"""What an export of one run leaves out, and that nothing leads there; the answers are scripted, so no run is needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from distrl.view.export_run import Answers, RunExport, WrittenRun
from distrl.view.in_process import InProcess
from distrl.view.queries import LISTED
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from view.exporting import contents

GONE = JSONResponse({"error": "it is gone", "fix": ""}, 404)
UNREADABLE = JSONResponse({"error": "it is no record", "fix": ""}, 422)


def api(readable: list[bool], versions: list[int]) -> Starlette:
    """A run with an episode at each offset of a partition, and these versions."""
    rows = [dict.fromkeys(LISTED) | place(offset) | {"finished_at": offset} for offset in range(len(readable))]

    def of_run(request: Request) -> JSONResponse:
        return JSONResponse({"notes": [], "read_up_to": {"trajectories": {"0": len(readable)}}})

    def listed(request: Request) -> JSONResponse:
        first = int(request.query_params["offset"])
        found = {"trajectories": rows, "versions": [{"version": n} for n in versions], "dead-letters": []}
        every = found[request.url.path.rpartition("/")[2]]
        return JSONResponse({"total": len(every), "rows": every[first:]})

    def episode(request: Request) -> JSONResponse:
        offset = int(request.path_params["offset"])
        if not readable[offset]:
            return GONE if offset % 2 else UNREADABLE
        before, after = (f"0:{each}" if each in range(len(readable)) else None for each in (offset - 1, offset + 1))
        return JSONResponse({"steps": [], "final": {"image": None}, "previous": before, "next": after})

    def version(request: Request) -> JSONResponse:
        number = int(request.path_params["version"])
        return JSONResponse({"version": number}) if number >= 0 else GONE

    def failures(request: Request) -> JSONResponse:
        of = request.query_params.get("version")
        return JSONResponse({"of": of, "classes": [{"examples": rows}], "conditions": []})

    run = "/api/runs/demo"
    return Starlette(
        routes=[
            Route(run, of_run),
            *(Route(f"{run}/{name}", listed) for name in ("trajectories", "versions", "dead-letters")),
            *(Route(f"{run}/{name}", lambda request: JSONResponse({})) for name in ("series", "devices")),
            Route(f"{run}/failures", failures),
            Route(f"{run}/versions/{{version}}", version),
            Route(f"{run}/trajectories/0:{{offset}}", episode),
            Route(f"{run}/verdicts/trajectories/0:{{offset}}", lambda request: JSONResponse({"verdicts": []})),
        ]
    )


def place(offset: int) -> dict[str, Any]:
    return {"topic": "trajectories", "partition": 0, "offset": offset}


def written(folder: Path, application: Starlette, most: int | None = None) -> tuple[WrittenRun, dict[str, Any]]:
    """Path below data/demo/ -> content, of all that was written."""
    with InProcess(application) as asked:
        done = RunExport(Answers(asked, folder), "demo", most).write(lambda *_: None)
    return done, {name.removeprefix("data/demo/"): json.loads(body) for name, body in contents(folder).items()}


SOME: SearchStrategy[tuple[list[bool], int | None]] = st.tuples(
    st.lists(st.booleans(), min_size=1, max_size=6), st.none() | st.integers(0, 6)
)


@given(SOME)
def test_nothing_leads_to_an_episode_that_is_not_written(
    tmp_path_factory: pytest.TempPathFactory, given_run: tuple[list[bool], int | None]
) -> None:
    readable, most = given_run
    done, files = written(tmp_path_factory.mktemp("export"), api(readable, [3]), most)
    wanted = range(0 if most is None else max(0, len(readable) - most), len(readable))
    there = [offset for offset in wanted if readable[offset]]
    assert (done.episodes, done.unreadable, done.of) == (len(there), len(wanted) - len(there), len(readable))
    assert [row[LISTED.index("offset")] for row in files["trajectories.json"]["rows"]] == there
    for name in ("failures.json", "failures/3.json"):
        assert [each["offset"] for each in files[name]["classes"][0]["examples"]] == there
    for offset in range(len(readable)):
        assert (f"trajectories/0-{offset}.json" in files) == (offset in there)
    for offset in there:
        found = files[f"trajectories/0-{offset}.json"]
        assert found["previous"] == (f"0:{offset - 1}" if offset - 1 in there else None)
        assert found["next"] == (f"0:{offset + 1}" if offset + 1 in there else None)


def test_a_version_that_has_no_page_is_left_out(tmp_path: Path) -> None:
    _, files = written(tmp_path, api([True], [2, 0, -1]))
    assert files["versions.json"] == {"total": 2, "rows": [{"version": 2}, {"version": 0}]}
    assert {name for name in files if name.startswith("versions/")} == {"versions/2.json", "versions/0.json"}
    assert {name: found["of"] for name, found in files.items() if name.startswith("failures")} == {
        "failures.json": None, "failures/2.json": "2", "failures/0.json": "0"
    }  # fmt: skip
