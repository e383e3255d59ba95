"""A model by script, which looks only at the request: it touches the listed element that the task names.

It knows no phone, no state and no task but what the prompt says; it fails where the prompt does not say enough.
"""

from __future__ import annotations

import base64
import io
import json
import re
from typing import Any

from distrl.appagent import prompt
from PIL import Image

Asked = dict[str, Any]


def about(asked: Asked) -> dict[str, Any]:
    """The data of the prompt."""
    told: dict[str, Any] = json.loads(asked["messages"][1]["content"][0]["text"])
    return told


def rules(asked: Asked) -> str:
    said: str = asked["messages"][0]["content"]
    return said


def pictures(asked: Asked) -> list[Image.Image]:
    urls = [part["image_url"]["url"] for part in asked["messages"][1]["content"][1:]]
    assert all(url.startswith("data:image/png;base64,") for url in urls)
    return [Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))).convert("RGB") for url in urls]


def acts(action: str, done: str = "something") -> str:
    return f"Observation: a screen\nThought: as asked\nAction: {action}\nSummary: {done}"


def answer(asked: Asked) -> str:
    """What it says to any of the prompts."""
    if rules(asked) == prompt.REFLECT:
        return reflect(about(asked))
    if rules(asked) == prompt.ON_GRID:
        return acts("home()")
    if rules(asked) == prompt.ON_ELEMENTS:
        return act(about(asked))
    return "OK"


def act(told: dict[str, Any]) -> str:
    """Opens the app that the task names, finds the switch that it names by swiping, and sees to it."""
    task, listed = told["task"], told["elements"]
    named = [each for each in listed if each["text"] and each["text"] in task]
    switches = [each for each in listed if "on" in each]
    if not switches:
        return acts(f"tap({named[0]['number']})" if named else "home()", "opened the app")
    wanted = next((each for each in switches if each["text"] in task), None)
    if wanted is None:
        return acts(f'swipe({switches[0]["number"]}, "up", "long")', "looked further down")
    if wanted["on"] is bool(re.search(r"\bon\b", task)):
        return acts("FINISH", "the switch is as asked")
    return acts(f"tap({wanted['number']})", "flipped the switch")


def reflect(told: dict[str, Any]) -> str:
    what = "opens an app" if told["element"]["kind"] == "TextView" else "is flipped by a touch"
    return f"Decision: SUCCESS\nThought: fine\nDocumentation: The element {what}."
