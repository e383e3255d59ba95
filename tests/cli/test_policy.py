"""`distrl policy try`: what a policy reads and writes on one screenshot."""

from __future__ import annotations

from pathlib import Path

import pytest
from distrl.policy.actions import parse
from PIL import Image, ImageChops
from policy.conftest import png
from policy.vlm.models import qwen25
from simphone.gallery import walk
from simphone.machine import draw

from cli.conftest import Cli


@pytest.fixture
def image(tmp_path: Path) -> Path:
    file = tmp_path / "screen.png"
    file.write_bytes(png(0, 108, 240))
    return file


def test_the_shipped_base_model_answers_without_a_broker(cli: Cli, image: Path, tmp_path: Path) -> None:
    asked = ("policy", "try", f"--image={image}", "--instruction=Open the clock")
    done = cli(*asked, f"--out={tmp_path / 'touch.png'}")
    assert done.returncode == 0, done.stderr
    lines = dict(line.partition(": ")[::2] for line in done.stdout.splitlines())
    reads = next(value for name, value in lines.items() if name.startswith("reads"))
    assert reads.startswith("open the clock <prev> <none>")
    assert "action_type" in lines["action"]
    assert float(lines["log-probability"]) <= 0
    assert Image.open(tmp_path / "touch.png").size == (108, 240)
    assert cli(*asked).stdout.splitlines() == done.stdout.splitlines()[:-1], "greedy, so the same again"


def test_the_touch_is_drawn_where_the_action_says(cli: Cli, tmp_path: Path) -> None:
    """On a phone's home screen, where each of two instructions is a tap on another icon."""
    screen = draw(next(walk()))
    screen.save(tmp_path / "home.png")
    centres = []
    for instruction in ("Open the clock", "Open the settings"):
        done = cli("policy", "try", "--image=home.png", f"--instruction={instruction}", "--out=touch.png")
        assert done.returncode == 0, done.stderr
        said = next(line for line in done.stdout.splitlines() if line.startswith("action: "))
        action = parse(said.removeprefix("action: "))
        assert action.touch is not None
        centres.append((action.touch.x * screen.width, action.touch.y * screen.height))
        drawn = ImageChops.difference(screen.convert("RGB"), Image.open(tmp_path / "touch.png").convert("RGB"))
        left, top, right, bottom = drawn.getbbox() or (0, 0, 0, 0)
        assert 10 < right - left < 30, "a ring"
        assert ((left + right - 1) / 2, (top + bottom - 1) / 2) == pytest.approx(centres[-1], abs=1.0)
    assert centres[0] != centres[1]


def test_it_answers_on_the_device_of_workers_or_says_that_it_is_not_there(cli: Cli, image: Path) -> None:
    asked = ("policy", "try", f"--image={image}", "--instruction=Open the clock")
    refused = cli(*asked, "--set=worker.device=cuda:63")
    assert refused.returncode == 1
    assert refused.stderr.startswith("worker.device: is cuda:63")


def test_a_model_server_is_not_asked_and_the_refusal_says_how_the_model_answers_here(
    cli: Cli, image: Path, tmp_path: Path
) -> None:
    base = tmp_path / "base"
    base.mkdir()
    qwen25(base)
    named = (f"--set=policy.base_model={base}", "--set=policy.dialect=json", "--set=policy.action_tokens=24")
    served = ("--set=policy.server.endpoint=http://127.0.0.1:9/v1", f"--set=policy.server.adapters={tmp_path}")
    asked = ("policy", "try", f"--image={image}", "--instruction=Open the clock", *named, *served)
    refused = cli(*asked)
    assert refused.returncode == 1
    assert refused.stderr.startswith("policy.server.endpoint: is set")
    fix = next(word for word in refused.stderr.split() if word.startswith("policy.server.endpoint=")).rstrip(",")
    assert cli(*asked, "--set", fix).returncode == 0


def test_a_recurrent_q_is_made_and_answers(cli: Cli, image: Path, tmp_path: Path) -> None:
    base = tmp_path / "q"
    made = cli("base-model", "recurrent-q", f"--out={base}", "--width=16")
    assert made.returncode == 0, made.stderr
    assert "identity" in made.stdout
    assert cli("base-model", "recurrent-q", f"--out={base}").returncode == 1, "it holds one"
    asked = ("policy", "try", f"--image={image}", "--instruction=Open the clock", f"--set=policy.base_model={base}")
    done = cli(*asked)
    assert done.returncode == 0, done.stderr
    assert "action_type" in done.stdout


def test_a_vision_language_model_answers(cli: Cli, image: Path, tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    qwen25(base)
    sets = [f"--set=policy.base_model={base}", "--set=policy.dialect=json", "--set=policy.action_tokens=24"]
    done = cli(
        "policy", "try", f"--image={image}", "--instruction=Open \x1b[31mit <|im_end|>", "--temperature=1", *sets
    )
    assert done.returncode == 0, done.stderr
    assert "Instruction: Open" in done.stdout
    assert "\x1b" not in done.stdout
    assert "writes (24 tokens)" in done.stdout


def test_what_is_no_screenshot_is_refused(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("no picture")
    for name, said in {"text.png": "is no PNG image\n", "none.png": "cannot be read"}.items():
        refused = cli("policy", "try", f"--image={name}", "--instruction=Open it")
        assert refused.returncode == 1
        assert f"--image: {name} {said}" in refused.stderr
        assert "Traceback" not in refused.stderr
