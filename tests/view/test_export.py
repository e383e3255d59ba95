"""What an export needs no run for: the application is asked without a socket, and only files of its own are there."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path

import msgspec
import pytest
from distrl.config import RUN_NAME, Config, load
from distrl.errors import BrokerError, ConfigError, StoreError
from distrl.view import export as exports
from distrl.view import follow
from distrl.view.app import application
from distrl.view.export import EXPORTED, FORMAT, REPORTS, SERVED, export
from distrl.view.export_run import Answers
from distrl.view.in_process import InProcess
from distrl.view.reports import Reports
from distrl.view.runs import Runs
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

from view.exporting import contents
from view.reporting import write_reports

STATIC = Path(exports.__file__).parent / "static"


def test_the_application_is_asked_as_over_http() -> None:
    def said(request: Request) -> JSONResponse:
        return JSONResponse({"path": request.path_params["path"], **request.query_params}, 418)

    def streamed(request: Request) -> StreamingResponse:
        return StreamingResponse([b"a", b"b"])

    app = Starlette(routes=[Route("/parts", streamed), Route("/said/{path:path}", said)])
    with InProcess(app) as asked:
        found = asked.get("/said/a%2Fb%20%C3%A9?x=1%262&y=")
        assert (found.status, found.body) == (418, '{"path":"a/b é","x":"1&2","y":""}'.encode())
        assert asked.get("/parts").body == b"ab"
        assert asked.get("/none").status == 404


def test_an_error_of_a_handler_is_raised() -> None:
    def broken(request: Request) -> JSONResponse:
        raise RuntimeError("a defect")

    with InProcess(Starlette(routes=[Route("/", broken)])) as asked, pytest.raises(RuntimeError, match="a defect"):
        asked.get("/")


def test_every_file_of_the_pages_is_one_of_the_format() -> None:
    names = [path.relative_to(STATIC).as_posix() for path in STATIC.rglob("*") if path.is_file()]
    assert len(names) > 30
    assert [name for name in names if not FORMAT.files.fullmatch(name)] == []


@pytest.mark.parametrize(
    "name",
    [
        "notes.txt", "data/RUN/run.json", "data/demo/../x.json", "data/demo/tasks/a.json", "images/a.png",
        "data/demo/trajectories/0-1.json.bak", "data/demo/versions/../../x.json", "data/notes/todo.json",
        "data/demo/versions/-1.json", "data/~reports/0a.json", "data/-demo/run.json", ".nojekyll", "CNAME", ".git/HEAD",
    ],
)  # fmt: skip
def test_what_no_export_writes_is_none_of_its_files(name: str) -> None:
    assert FORMAT.files.fullmatch(name) is None


def test_reports_lie_where_the_pages_look_and_where_static_site_generators_leave_them(tmp_path: Path) -> None:
    folders = write_reports(tmp_path / "in")
    with (
        Runs(list, lambda name: pytest.fail(name)) as runs,
        InProcess(application(runs, lambda: True, Reports(folders))) as asked,
    ):
        exports.write_reports(Answers(asked, tmp_path / "out"))
        listed = json.loads(asked.get("/api/reports").body)["reports"]
        readable = [each["id"] for each in listed if each["problem"] is None]
        wanted = {f"data/{REPORTS}/{each}.json": asked.get(f"/api/reports/{each}").body for each in readable}
    files = contents(tmp_path / "out")
    assert len(wanted) == 2
    assert files.pop("data/reports.json") == msgspec.json.encode({"reports": listed})
    assert files == wanted
    assert [name for name in files if not FORMAT.files.fullmatch(name)] == []
    assert RUN_NAME.fullmatch(REPORTS) is None
    assert f'"{REPORTS}"' in (STATIC / "lib" / "exported.js").read_text()


@given(st.from_regex(FORMAT.files, fullmatch=True))
def test_no_name_is_one_that_jekyll_leaves_out(name: str) -> None:
    assert [part for part in name.split("/") if part[0] in "~_.#" or part[-1] == "~"] == []


def test_the_pages_say_where_their_answers_are_and_carry_their_policy() -> None:
    page = (STATIC / "index.html").read_text()
    assert page.count(SERVED) == 1
    assert SERVED != EXPORTED
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert {"default-src 'none'", "script-src 'self'", "form-action 'none'"} <= set(policy[1].split("; "))
    assert "unsafe" not in policy[1]


def away(timeout_s: float, name: str = "away") -> Config:
    """A run on a broker that does not answer."""
    sets = [f"run={name}", "kafka.bootstrap=127.0.0.1:1", f"kafka.connect_timeout_s={timeout_s}"]
    return load(sets=sets, environ={})


@pytest.mark.parametrize("every_run", [True, False])
def test_where_no_run_can_be_read_it_says_why_and_leaves_no_folder(tmp_path: Path, every_run: bool) -> None:
    with Runs(lambda: ["away"], lambda name: away(0.1)) as runs:
        assert runs.get("away").follower.caught_up.wait(30)
        with pytest.raises(BrokerError, match=r"127\.0\.0\.1:1"):
            export(runs, tmp_path / "shared", None, False, 0, every_run=every_run)
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_is_not_read_to_its_end_is_not_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began = threading.Event()

    def identity(config: Config) -> dict[str, str]:
        began.wait(60)
        raise BrokerError("kafka.bootstrap", "is away", "look at it")

    monkeypatch.setattr(follow, "identity", identity)
    with Runs(lambda: ["away"], lambda name: away(0.1)) as runs:
        with pytest.raises(StoreError, match="not read to its end"):
            export(runs, tmp_path / "shared", None, False, 0)
        began.set()
    assert list(tmp_path.iterdir()) == []


def test_a_broker_without_a_run_leaves_no_folder(tmp_path: Path) -> None:
    with Runs(list, lambda name: pytest.fail(name)) as runs, pytest.raises(ConfigError, match="no run"):
        export(runs, tmp_path / "shared", None, False, 0)
    assert list(tmp_path.iterdir()) == []
