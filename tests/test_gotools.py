"""Programs built from Go modules: once for a user, whole or not at all, and what is said where it cannot be."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import gotools
import pytest
from gotools import ToolError, folder, go, tool

needs_go = pytest.mark.kubernetes
MAIN = 'package main\n\nimport "fmt"\n\nfunc main() { fmt.Println("hello") }\n'

EDIT = """
import sys
from pathlib import Path

folder = Path(sys.argv[1])
(folder / "word").mkdir()
(folder / "word" / "go.mod").write_text("module word.test/word\\n")
(folder / "word" / "word.go").write_text('package word\\n\\nconst Word = "edited"\\n')
wanted = f"require word.test/word v0.0.0\\n\\nreplace word.test/word => {folder}/word\\n"
(folder / "go.mod").write_text((Path(__file__).parent / "go.mod").read_text() + wanted)
"""


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Modules of the test's own, and a cache of its own."""
    monkeypatch.setenv("DISTRL_STACK__CACHE", str(tmp_path / "cache"))
    write(tmp_path / "tools", MAIN)
    return tmp_path / "tools"


def write(tools: Path, main: str) -> None:
    (tools / "hello").mkdir(parents=True, exist_ok=True)
    (tools / "hello" / "go.mod").write_text("module distrl.tools/hello\n\ngo 1.24\n")
    (tools / "hello" / "main.go").write_text(main)


@needs_go
def test_a_program_is_built_once_and_runs(tools: Path) -> None:
    said: list[str] = []
    program = tool("hello", tools=tools, say=said.append)
    assert subprocess.run([program], capture_output=True, text=True, check=True).stdout == "hello\n"
    assert [line.split()[0] for line in said] == ["building", "built"]
    assert tool("hello", tools=tools, say=said.append) == program
    assert len(said) == 2


@needs_go
def test_two_processes_build_it_once(tools: Path) -> None:
    asked = f"import gotools, pathlib; gotools.tool('hello', tools=pathlib.Path({str(tools)!r}))"
    command = [sys.executable, "-c", asked]
    here = Path(gotools.__file__).parent
    both = [subprocess.Popen(command, cwd=here, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = "".join(each.communicate(timeout=300)[1] for each in both)
    assert [each.returncode for each in both] == [0, 0], said
    assert said.count("built hello") == 1


@needs_go
def test_other_source_is_another_program(tools: Path) -> None:
    before = tool("hello", tools=tools)
    write(tools, MAIN.replace("hello", "hello again"))
    after = tool("hello", tools=tools)
    assert after != before
    assert subprocess.run([after], capture_output=True, text=True, check=True).stdout == "hello again\n"


@needs_go
def test_a_module_may_have_words_for_the_linker(tools: Path) -> None:
    write(tools, MAIN.replace('"hello"', "word").replace("func", 'var word = "hello"\n\nfunc'))
    (tools / "hello" / "ldflags").write_text("-X main.word=linked\n")
    assert subprocess.run([tool("hello", tools=tools)], capture_output=True, text=True, check=True).stdout == "linked\n"


@needs_go
def test_a_module_may_be_built_from_an_edited_copy_of_another(tools: Path) -> None:
    write(tools, MAIN.replace('"hello"', "word.Word").replace('import "fmt"', 'import (\n"fmt"\n"word.test/word"\n)'))
    (tools / "hello" / "edit.py").write_text(EDIT)
    assert subprocess.run([tool("hello", tools=tools)], capture_output=True, text=True, check=True).stdout == "edited\n"


@needs_go
def test_an_edit_that_fails_says_why(tools: Path) -> None:
    (tools / "hello" / "edit.py").write_text("raise ValueError('no such case')\n")
    with pytest.raises(ToolError, match=r"hello could not be built, since .*edit\.py failed:\n(.*\n)*.*no such case"):
        tool("hello", tools=tools)


def test_kubernetes_says_the_version_that_is_pinned() -> None:
    """Charts may ask for a version of Kubernetes."""
    module = gotools.TOOLS / "kubernetes"
    pinned = re.search(r"k8s\.io/kubernetes v(\d+)\.(\d+)\.(\d+)\n", (module / "go.mod").read_text())
    assert pinned is not None
    major, minor, patch = pinned.groups()
    words = (module / "ldflags").read_text().split()[1::2]
    said = {name.rpartition(".")[2]: value for name, value in (word.split("=") for word in words)}
    assert said == {"gitVersion": f"v{major}.{minor}.{patch}", "gitMajor": major, "gitMinor": minor}


@needs_go
def test_a_build_that_fails_says_why_and_leaves_nothing(tools: Path) -> None:
    write(tools, MAIN.replace("fmt.Println", "fmt.Printline"))
    with pytest.raises(ToolError, match=r"hello could not be built in .*\n(.*\n)*.*undefined: fmt\.Printline"):
        tool("hello", tools=tools)
    assert not folder("hello", tools).exists()
    assert [path for path in folder("hello", tools).parent.iterdir() if path.is_dir()] == []


def test_without_go_the_error_names_it(tools: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert go() is None
    with pytest.raises(ToolError, match=r"^hello is built with Go, and Go \(.*\) is not on the PATH$"):
        tool("hello", tools=tools)


def test_a_test_asks_for_a_program_by_a_fixture_of_its_name() -> None:
    assert gotools.wanted(["tmp_path", "helm_unittest", "helm"]) == ["helm", "helm-unittest"]


def test_each_module_pins_what_goes_into_it() -> None:
    modules = [path.parent for path in gotools.TOOLS.glob("*/go.mod")]
    assert {module.name for module in modules} >= {"helm", "helm-unittest"}
    assert [module.name for module in modules if not (module / "go.sum").is_file()] == []


def test_without_go_a_session_says_how_many_tests_it_left_out(tmp_path: Path) -> None:
    here = Path(__file__)
    asked = [sys.executable, "-m", "pytest", "-q", "-n", "0", here.name, "-k", "built_once or asks_for"]
    path = os.pathsep.join(each for each in os.environ["PATH"].split(os.pathsep) if not (Path(each) / "go").exists())
    done = subprocess.run(
        asked,
        cwd=here.parent,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "LEFT OUT: 1 tests of the Kubernetes side, because Go (1.26 or newer" in done.stdout
    assert "1 passed, 1 skipped" in done.stdout


def test_a_session_names_only_what_it_left_out() -> None:
    both = gotools.left_out(3, rights=2)
    assert both.startswith("LEFT OUT: 5 tests of the Kubernetes side and of rights in the object store, because Go (")
    assert gotools.left_out(0, rights=2).startswith("LEFT OUT: 2 tests of rights in the object store, because Go (")


def test_ci_refuses_a_machine_without_go(tmp_path: Path) -> None:
    for name in ("bash", "dirname"):
        (tmp_path / name).symlink_to(shutil.which(name) or name)
    run = Path(__file__).parents[1] / ".ci" / "run"
    done = subprocess.run(
        [tmp_path / "bash", run], env={"PATH": str(tmp_path)}, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert gotools.NO_GO in done.stderr
