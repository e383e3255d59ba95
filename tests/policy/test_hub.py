"""Base models by their names on a hub: fetched once, whole, by revision; what cannot be fetched says what to do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from distrl.config import PolicySettings
from distrl.errors import PolicyError
from distrl.policy.hub import BY_DEFAULT, NAME, OFFLINE, downloaded, located, offline_by_default
from distrl.policy.registry import base_sha256
from distrl.policy.vlm.directory import DECIDING, identity
from hub import Hub, commit_of, served
from huggingface_hub import constants

from policy.conftest import png
from policy.vlm.models import smolvlm

MODEL = "people/phone-agent"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("hub") / "one"
    directory.mkdir()
    smolvlm(directory)
    (directory / "README.md").write_text("nothing that decides what it does")
    (directory / "modeling_evil.py").write_text("raise SystemExit('code of the model was run')")
    (directory / "pytorch_model.bin").write_bytes(b"pickled")
    (directory / "original").mkdir()
    (directory / "original" / "weights.safetensors").write_bytes(b"the same in another form")
    return directory


@pytest.fixture(scope="module")
def newer(model: Path) -> Path:
    directory = shutil.copytree(model, model.parent / "two")
    (directory / "generation_config.json").write_text("{}")
    return directory


@pytest.fixture
def hub(model: Path) -> Iterator[Hub]:
    downloaded.cache_clear()
    with served(Hub({(MODEL, "main"): model})) as found:
        yield found


def test_the_files_that_decide_are_fetched_and_no_others(hub: Hub, model: Path, tmp_path: Path) -> None:
    found = downloaded(f"{MODEL}@main", hub.url, tmp_path)
    names = {path.relative_to(found) for path in found.rglob("*") if path.is_file()}
    assert names == {Path(path.name) for path in model.iterdir() if path.suffix in DECIDING}
    assert identity(found) == identity(model)
    assert not any(name in asked for name in ("README", "evil", ".bin", "original/w") for asked in hub.asked)


def test_a_second_process_fetches_no_file_and_a_commit_needs_no_hub(hub: Hub, model: Path, tmp_path: Path) -> None:
    first = downloaded(f"{MODEL}@main", hub.url, tmp_path)
    hub.asked.clear()
    downloaded.cache_clear()
    assert downloaded(f"{MODEL}@main", hub.url, tmp_path) == first
    assert not any("/resolve/" in asked for asked in hub.asked)
    hub.asked.clear()
    assert downloaded(f"{MODEL}@{commit_of(model)}", hub.url, tmp_path) == first
    assert hub.asked == []


def test_a_branch_that_moves_is_another_model_and_the_old_commit_is_still_the_old_one(
    hub: Hub, model: Path, newer: Path, tmp_path: Path
) -> None:
    first = downloaded(f"{MODEL}@main", hub.url, tmp_path)
    hub.revisions[MODEL, "main"] = newer
    downloaded.cache_clear()
    second = downloaded(f"{MODEL}@main", hub.url, tmp_path)
    assert identity(second) == identity(newer) != identity(first)
    assert downloaded(f"{MODEL}@{commit_of(model)}", hub.url, tmp_path) == first


def test_a_download_that_breaks_off_goes_on_and_ends_whole(hub: Hub, model: Path, tmp_path: Path) -> None:
    hub.breaks_off = {"model.safetensors"}
    assert identity(downloaded(f"{MODEL}@main", hub.url, tmp_path)) == identity(model)
    assert hub.breaks_off == set()


@pytest.mark.parametrize(
    ("name", "status", "code", "says"),
    [
        (MODEL, 403, "GatedRepo", "agreed to its terms.*hf auth login"),
        (MODEL, 404, "RepoNotFound", "not on the hub, or is private.*correct the name"),
        (MODEL, 401, "RepoNotFound", "not on the hub, or is private.*correct the name"),
        (MODEL, 501, "", "cannot be fetched.*name the directory in policy.base_model"),
    ],
)
def test_what_the_hub_refuses_names_the_fix(
    hub: Hub, tmp_path: Path, name: str, status: int, code: str, says: str
) -> None:
    hub.refuses = {name: (status, code)}
    with pytest.raises(PolicyError, match=rf"(?s)policy.base_model={name}@main.*{says}"):
        downloaded(f"{name}@main", hub.url, tmp_path)


def test_a_revision_that_does_not_exist_is_refused(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"(?s)has no revision 'v9'.*commit of it after the @"):
        downloaded(f"{MODEL}@v9", hub.url, tmp_path)


def test_a_hub_that_is_away_is_refused_and_what_was_fetched_is_found_without_it(
    hub: Hub, model: Path, tmp_path: Path
) -> None:
    first, nobody = downloaded(f"{MODEL}@main", hub.url, tmp_path), hub.url.rsplit(":", 1)[0] + ":9"
    downloaded.cache_clear()
    assert downloaded(f"{MODEL}@main", nobody, tmp_path) == first
    with pytest.raises(PolicyError, match=r"(?s)cannot be fetched.*correct the network"):
        downloaded("people/another@main", nobody, tmp_path)


def test_a_cache_that_cannot_be_written_is_refused(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PolicyError, match=r"(?s)cannot be kept.*set HF_HOME"):
        downloaded(f"{MODEL}@main", hub.url, tmp_path / "file")


@pytest.mark.parametrize(
    "text", ["/models/a@b", "a@b", "a/b/c@main", "../b@main", "a/b@", "a/b@-x", "a/b@é", "a b/c@d"]
)
def test_other_texts_are_directories(text: str) -> None:
    assert NAME.fullmatch(text) is None
    assert located(Path(text)) == Path(text)


def test_a_name_without_a_revision_is_no_directory_and_says_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PolicyError, match=r"(?s)is no directory here, and names no revision.*Qwen/Qwen2.5-VL@main"):
        located(Path("Qwen/Qwen2.5-VL"))
    (tmp_path / "models" / "own").mkdir(parents=True)
    assert located(Path("models/own")) == Path("models/own")


def test_a_directory_of_that_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "people").mkdir()
    (tmp_path / f"{MODEL}@main").symlink_to(model)
    assert located(Path(f"{MODEL}@main")) == Path(f"{MODEL}@main")
    assert base_sha256(PolicySettings(base_model=Path(f"{MODEL}@main"))) == identity(model)


def test_the_library_is_online_within_a_download_alone_and_reports_nothing(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would ask for a list of agents, to say which one has started this process."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", False)
    monkeypatch.setenv(BY_DEFAULT, "1")
    downloaded(f"{MODEL}@main", hub.url, tmp_path)
    assert constants.HF_HUB_OFFLINE, "again"
    with pytest.raises(PolicyError, match="has no revision"):
        downloaded(f"{MODEL}@v9", hub.url, tmp_path)
    assert constants.HF_HUB_OFFLINE, "after what failed, too"
    assert not constants.HF_HUB_DISABLE_TELEMETRY
    assert all(f"/{MODEL}/" in asked for asked in hub.asked)


@pytest.mark.parametrize("name", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
@pytest.mark.parametrize("value", ["0", "1"])
def test_what_a_user_has_set_stands_in_every_process(name: str, value: str) -> None:
    chosen, unset = {name: value}, dict[str, str]()
    offline_by_default(chosen)
    assert chosen == {name: value}
    offline_by_default(unset)
    assert unset == {OFFLINE: "1", BY_DEFAULT: "1"}
    offline_by_default(inherited := dict(unset))
    assert inherited == unset, "a role that a command starts may download as the command may"


Distrl = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def distrl(hub: Hub, tmp_path: Path) -> Distrl:
    """Runs the installed command with the hub on loopback and an empty cache."""
    (tmp_path / "screen.png").write_bytes(png(0, 108, 240))
    chosen = {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", BY_DEFAULT, "HF_HUB_DISABLE_TELEMETRY"}
    environ = {name: value for name, value in os.environ.items() if name not in chosen}

    def run(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
        line = [str(Path(sys.executable).with_name("distrl")), *words]
        where = environ | {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home")} | more
        return subprocess.run(line, env=where, cwd=tmp_path, capture_output=True, text=True)

    return run


def test_a_command_downloads_the_model_of_that_name_and_asks_nothing_else(
    distrl: Distrl, hub: Hub, model: Path, tmp_path: Path
) -> None:
    asked = ("policy", "try", "--image=screen.png", "--instruction=Open it", "--set=policy.action_tokens=24")
    done = distrl(*asked, f"--set=policy.base_model={MODEL}@main")
    assert done.returncode == 0, done.stderr
    assert "log-probability" in done.stdout
    assert hub.asked
    assert all(f"/{MODEL}/" in each for each in hub.asked)
    (found,) = (tmp_path / "home" / "hub" / f"models--{MODEL.replace('/', '--')}" / "snapshots").iterdir()
    assert identity(found) == identity(model)


def test_a_command_says_that_there_is_no_such_revision(distrl: Distrl) -> None:
    refused = distrl("config", "check", f"--set=policy.base_model={MODEL}@v9")
    assert refused.returncode == 1
    assert f"policy.base_model={MODEL}@v9: has no revision 'v9'" in refused.stderr
    assert "name a branch, a tag or a commit" in refused.stderr


def test_a_command_of_a_user_who_is_offline_asks_no_hub(distrl: Distrl, hub: Hub) -> None:
    refused = distrl("config", "check", f"--set=policy.base_model={MODEL}@main", HF_HUB_OFFLINE="1")
    assert refused.returncode == 1
    assert "HF_HUB_OFFLINE forbids to fetch it" in refused.stderr
    assert "hint: unset it, or download it elsewhere" in refused.stderr
    assert hub.asked == []
