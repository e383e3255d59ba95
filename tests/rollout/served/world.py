"""A model server, processes that act through it, and versions whose weights matter."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import factories
import torch
from distrl.config import PolicySettings
from distrl.policy.registry import base_sha256, policy_of, tokenizer_of
from distrl.policy.sampling import FULL, Sampling
from distrl.policy.vlm.chat import ChatForm
from distrl.policy.vlm.policy import VlmPolicy
from distrl.policy.vlm.tokenizer import VlmTokenizer
from distrl.rollout.episode import Observation
from distrl.rollout.served.policy import ServedPolicy
from distrl.types import Action, ActionKind, ObjectRef, Point, Version
from model_server import ModelServer
from policy.conftest import png

RUN = "served"
TAP = Action(ActionKind.TAP, touch=Point(0.25, 0.5))
SIZES = [(64, 128), (300, 150)]
"""Of the screenshots; the second is scaled down before it is sent."""


def settings(directory: Path, folder: Path, url: str, history_screens: int = 0, **server: Any) -> PolicySettings:
    return PolicySettings.model_validate(
        {
            "base_model": directory,
            "dialect": "json",
            "action_tokens": 24,
            "lora_rank": 4,
            "system_prompt": "Act.",
            "max_pixels": 20_000,
            "history_screens": history_screens,
            "server": {"endpoint": url, "adapters": folder, "timeout_s": 20.0, "wait_s": 30.0} | server,
        }
    )


@dataclass
class Learned:
    """What a learner publishes, and what it would score by."""

    policy: VlmPolicy

    def version(self, number: int, scale: float = 0.1) -> tuple[Version, bytes]:
        """Changes the weights with the number and the scale alone."""
        torch.manual_seed(number)
        with torch.no_grad():
            for parameter in self.policy.parameters().values():
                parameter.copy_(torch.randn_like(parameter) * scale)
        data = self.policy.adapter()
        sha256 = hashlib.sha256(data).hexdigest()
        ref = ObjectRef(f"adapters/{RUN}/{sha256}.safetensors", sha256, len(data))
        return factories.version(number, base_model_sha256=self.policy.base_sha256, adapter=ref), data


def learned(directory: Path, folder: Path, history_screens: int = 0) -> Learned:
    made = policy_of(settings(directory, folder, "http://127.0.0.1:1/v1", history_screens))
    assert isinstance(made, VlmPolicy)
    return Learned(made)


def form_of(chosen: PolicySettings) -> ChatForm:
    tokenizer = tokenizer_of(chosen)
    assert isinstance(tokenizer, VlmTokenizer)
    return ChatForm(tokenizer)


def process(chosen: PolicySettings, sampling: Sampling | None = FULL) -> ServedPolicy:
    return ServedPolicy(form_of(chosen), chosen, base_sha256(chosen), RUN, sampling=sampling)


@contextmanager
def leaving(made: ServedPolicy) -> Iterator[ServedPolicy]:
    try:
        yield made
    finally:
        made.leave()


Process = Callable[..., AbstractContextManager[ServedPolicy]]


def processes(directory: Path, folder: Path, server: ModelServer) -> Process:
    """Makes processes that share a server and a folder."""

    def start(sampling: Sampling | None = FULL, **more: Any) -> AbstractContextManager[ServedPolicy]:
        return leaving(process(settings(directory, folder, server.url, **more), sampling))

    return start


def seen(step: int = 0, name: str = "t", history_screens: int = 0) -> Observation:
    task = factories.task(name, instruction="open the settings")
    *earlier, now = (png(each, *SIZES[each % len(SIZES)]) for each in range(max(0, step - history_screens), step + 1))
    return Observation(task, "a", step, now, (TAP,) * step, lambda: None, tuple(earlier))
