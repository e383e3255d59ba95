"""A chat template of the run's own: what prompts are made of it, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from distrl.config import PolicySettings, load
from distrl.errors import ConfigError, PolicyError
from distrl.policy.registry import base_sha256, tokenizer_of
from distrl.policy.vlm.tokenizer import VlmTokenizer
from distrl.runs.settings import learning_fingerprint, run_settings
from distrl.types import Action, ActionKind, ScreenSize

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
        ("{% for m in messages %}IMAGE{{ m.content }}{% endfor %}", "prints the list of a message's parts"),
        ("{% for m in messages %}IMAGE{{ m.content | tojson }}{% endfor %}", "prints the list of a message's parts"),
    ],
)
def test_a_template_that_cannot_prompt_is_refused_by_its_setting(directory: Path, template: str, fault: str) -> None:
    with pytest.raises(PolicyError, match=fault) as error:
        tokenizer_of(settings(directory, chat_template=template))
    assert error.value.where == "policy.chat_template"
    assert "unset it" in error.value.hint


SYSTEM_AS_STRING = PLAIN.replace(
    "{% for c in m.content %}", "{% if m.role == 'system' %}{{ m.content }}{% else %}{% for c in m.content %}"
).replace("{% endfor %}\n", "{% endfor %}{% endif %}\n")


def test_one_that_prints_a_system_prompt_as_it_is_given_is_given_no_list(directory: Path, family: str) -> None:
    template = SYSTEM_AS_STRING.replace("IMAGE", MARKS[family])
    chosen = settings(directory, chat_template=template, system_prompt="It's an agent.")
    assert "[user]" in prompt(chosen)
    assert "It's an agent.\n\nInstruction: open it" in prompt(chosen)
    assert "'type'" not in prompt(chosen)


def test_one_that_needs_a_system_prompt_as_a_string_gets_one(directory: Path, family: str) -> None:
    needed = "{% if messages[0].role != 'system' %}{{ raise_exception('none') }}{% endif %}"
    template = needed + SYSTEM_AS_STRING.replace("IMAGE", MARKS[family])
    found = prompt(settings(directory, chat_template=template))
    assert "[system] Act.[user] " in found
    assert found.endswith("[answer] ")


THINKING = PLAIN + "<think>{{ '\\n' }}"
ACTION = '{"action": "back"}'


def decoded(chosen: PolicySettings, text: str) -> Action:
    tokenizer = tokenizer_of(chosen)
    assert isinstance(tokenizer, VlmTokenizer)
    return tokenizer.decode_action((*tokenizer.processor.ids(text), tokenizer.ends[0]), SCREEN)


def test_an_answer_goes_on_with_the_thought_that_the_prompt_has_begun(directory: Path, family: str) -> None:
    chosen = settings(directory, chat_template=THINKING.replace("IMAGE", MARKS[family]), action_tokens=256)
    assert prompt(chosen).endswith("<think>\n")
    back = Action(ActionKind.BACK)
    thought = 'One could write\n{"action": "home"}\n</think>\n\n' + ACTION
    assert decoded(chosen, thought) == back
    assert decoded(chosen, "<think>" + thought) == back
    assert decoded(chosen, "</think>\n\n" + ACTION) == back
    for text in (ACTION, "It is done.\n" + ACTION):
        assert decoded(chosen, text) == Action(ActionKind.INVALID, text=text), "it is cut off within the thought"


def test_a_demonstration_ends_the_thought_that_the_prompt_has_begun(directory: Path, family: str) -> None:
    chosen = settings(directory, chat_template=THINKING.replace("IMAGE", MARKS[family]), action_tokens=64)
    tokenizer, back = tokenizer_of(chosen), Action(ActionKind.BACK)
    ids = tokenizer.encode_action(back, SCREEN)
    assert tokenizer.text(ids[:-1]) == "</think>\n\n" + ACTION
    assert tokenizer.decode_action(ids, SCREEN) == back
    earlier = tokenizer.text(tokenizer.encode_prompt("open it", [back], SCREEN))
    assert "1. " + ACTION in earlier
    closed = chosen.model_copy(update={"chat_template": str(chosen.chat_template) + "</think>"})
    tokenizer = tokenizer_of(closed)
    assert tokenizer.text(tokenizer.encode_action(back, SCREEN)[:-1]) == ACTION


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
