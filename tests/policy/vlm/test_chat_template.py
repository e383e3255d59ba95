"""A chat template of the run's own: what prompts are made of it, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from distrl.config import PolicySettings, load
from distrl.errors import ConfigError, PolicyError
from distrl.policy.registry import base_sha256, tokenizer_of
from distrl.runs.settings import learning_fingerprint, run_settings
from distrl.types import ScreenSize

from policy.vlm.models import CHATML, FAMILIES

SCREEN = ScreenSize(64, 128)
MARKS = {"qwen25": "<|image_pad|>", "smolvlm": "<image>", "gemma3": "<start_of_image>", "internvl": "<IMG_CONTEXT>"}
PLAIN = (
    "{% for m in messages %}[{{ m.role }}] {% for c in m.content %}"
    "{% if c.type == 'image' %}IMAGE{% else %}{{ c.text }}{% endif %}{% endfor %}\n{% endfor %}[answer] "
)


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def directory(family: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp(family)
    FAMILIES[family](made)
    return made


def settings(directory: Path, **more: Any) -> PolicySettings:
    chosen = {"dialect": "json", "action_tokens": 24, "system_prompt": "Act."} | more
    return PolicySettings(base_model=directory, **chosen)


def prompt(chosen: PolicySettings) -> str:
    tokenizer = tokenizer_of(chosen)
    return tokenizer.text(tokenizer.encode_prompt("open it", [], SCREEN))


def test_prompts_are_those_of_the_setting_and_the_model_stays_the_one_it_is(family: str, directory: Path) -> None:
    own, chosen = settings(directory), settings(directory, chat_template=PLAIN.replace("IMAGE", MARKS[family]))
    found = prompt(chosen)
    assert "[system] Act.[user] " in found
    assert "Instruction: open it" in found
    assert found.endswith("[answer] ")
    assert "[answer]" not in prompt(own)
    assert base_sha256(chosen) == base_sha256(own)


def test_a_model_without_a_template_takes_that_of_the_setting(directory: Path, family: str) -> None:
    file = directory / "chat_template.jinja"
    text = file.read_text()
    file.unlink()
    try:
        with pytest.raises(PolicyError, match=r"(?s)no chat template.*set policy\.chat_template"):
            prompt(settings(directory))
        without = prompt(settings(directory, chat_template=text))
    finally:
        file.write_text(text)
    assert without == prompt(settings(directory))


@pytest.mark.parametrize(
    ("template", "fault"),
    [
        ("{% for m in messages %}", "fails"),
        ("{{ raise_exception('never') }}", r"fails \(never\)"),
        (PLAIN.replace("for m in messages", "for m in messages if m.role == 'nobody'"), "leaves out what it is given"),
        (PLAIN.replace("{{ c.text }}", "text"), "leaves out what it is given"),
        (PLAIN.replace("IMAGE", ""), "marks no image"),
    ],
)
def test_a_template_that_cannot_prompt_is_refused_by_its_setting(directory: Path, template: str, fault: str) -> None:
    with pytest.raises(PolicyError, match=fault) as error:
        tokenizer_of(settings(directory, chat_template=template))
    assert error.value.where == "policy.chat_template"
    assert "unset it" in error.value.hint


def test_one_that_shows_one_screenshot_of_several_is_refused(directory: Path, family: str) -> None:
    once = "{% if loop.first %}IMAGE{% endif %}"
    template = PLAIN.replace("IMAGE", once).replace("IMAGE", MARKS[family])
    tokenizer_of(settings(directory, chat_template=template))
    with pytest.raises(PolicyError, match=r"policy\.chat_template: marks 1 of 3 images"):
        tokenizer_of(settings(directory, chat_template=template, history_screens=2))


def test_it_is_recorded_as_text_and_belongs_to_the_run() -> None:
    here, other = load(environ={}), load(sets=[f"policy.chat_template={CHATML}"], environ={})
    assert run_settings(other)["policy.chat_template"] == CHATML
    assert json.loads(json.dumps(run_settings(other))) == run_settings(other)
    assert learning_fingerprint(other) != learning_fingerprint(here)
    assert "chat_template" in here.tree(with_secrets=False)["policy"]


def test_a_model_server_has_its_own() -> None:
    server = {"endpoint": "http://models:8000/v1", "adapters": "/adapters"}
    sets = [f"policy.server.{name}={value}" for name, value in server.items()]
    load(sets=[*sets, "policy.base_model=/model"], environ={})
    with pytest.raises(ConfigError, match=r"(?s)policy\.chat_template is another one: unset it"):
        load(sets=[*sets, "policy.base_model=/model", f"policy.chat_template={CHATML}"], environ={})
