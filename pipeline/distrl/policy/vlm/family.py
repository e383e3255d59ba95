"""What the registry needs of this family."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from distrl import config as settings
from distrl.errors import PolicyError
from distrl.policy.actions import to_text
from distrl.policy.dialects.protocol import Dialect
from distrl.policy.dialects.registry import DIALECTS
from distrl.policy.protocol import Policy, Tokenizer
from distrl.policy.registry import PolicyFamily
from distrl.policy.vlm.directory import end_ids, files, identity, model_type
from distrl.types import Action, ActionKind, Point, ScreenSize

if TYPE_CHECKING:
    from distrl.policy.vlm.tokenizer import VlmTokenizer

TRAINED_ON: Final = {"qwen2_5_vl": "qwen25-mobile-use", "qwen3_vl": "qwen3-mobile-use"}
"""The dialect that models of a type were trained to act in; all others write plain JSON."""

PROBE: Final = ScreenSize(1080, 2400)
"""A phone's screen, whose coordinates have the most digits."""
EACH_KIND: Final = (
    Action(ActionKind.TAP, touch=Point(0.5, 0.75)),
    Action(ActionKind.SWIPE, touch=Point(0.75, 0.5), lift=Point(0.25, 0.5)),
    Action(ActionKind.TYPE, text="Red shoes"),
    *map(Action, (ActionKind.BACK, ActionKind.HOME, ActionKind.ENTER, ActionKind.COMPLETE)),
)
"""What our phones do."""


def dialect_of(directory: Path, chosen: str | None) -> Dialect:
    """The dialect that is chosen, or that of the model's type. Raises PolicyError for an unknown one."""
    name = chosen or TRAINED_ON.get(model_type(directory), "json")
    if name not in DIALECTS:
        raise PolicyError("policy.dialect", f"{name!r:.60} is unknown", f"one of {', '.join(sorted(DIALECTS))}")
    return DIALECTS[name]


def _vlm_tokenizer(directory: Path, chosen: settings.PolicySettings) -> VlmTokenizer:
    from distrl.policy.vlm.processor import Processor
    from distrl.policy.vlm.tokenizer import VlmTokenizer

    files(directory)
    processor = Processor(directory, chosen.max_pixels, chosen.chat_template, 1 + chosen.history_screens)
    if chosen.system_prompt is not None and (mark := processor.mark_in(chosen.system_prompt)) is not None:
        raise PolicyError(
            "policy.system_prompt",
            f"has the text {mark!r}, by which this model's prompts say where a screenshot is",
            "say it in other words",
        )
    ends = end_ids(directory)
    if not ends or max(ends) >= processor.size:
        raise PolicyError(
            str(directory),
            f"names no token of its tokenizer that ends an answer{f' (it names {ends[0]})' if ends else ''}",
            "set eos_token_id in generation_config.json",
        )
    tokenizer = VlmTokenizer(processor, dialect_of(directory, chosen.dialect), chosen, ends)
    refuse_unwritable(tokenizer)
    return tokenizer


def refuse_unwritable(tokenizer: Tokenizer) -> None:
    """Raises PolicyError where a kind of action cannot be written and read again: by a dialect without it, in too few
    tokens, or by a tokenizer that spoils the text."""
    for action in EACH_KIND:
        try:
            read = tokenizer.decode_action(tokenizer.encode_action(action, PROBE), PROBE)
            why = "" if (read.kind, read.text) == (action.kind, action.text) else f"it is read as {to_text(read):.200}"
        except PolicyError as error:
            if error.where == "policy.action_tokens":
                raise
            why = error.what
        if why:
            raise PolicyError(
                "policy.dialect",
                f"the model cannot write the action {action.kind.value} ({why})",
                "choose another dialect (docs/policies.md)",
            )


def _tokenizer(directory: Path, chosen: settings.PolicySettings) -> Tokenizer:
    return _vlm_tokenizer(directory, chosen)


def _policy(directory: Path, chosen: settings.PolicySettings, seed: int) -> Policy:
    from distrl.policy.vlm.model import VisionLanguageModel
    from distrl.policy.vlm.policy import VlmPolicy

    before = identity(directory)  # policy_of looks again once all is loaded
    tokenizer = _vlm_tokenizer(directory, chosen)
    model = VisionLanguageModel(directory, tokenizer.processor)
    return VlmPolicy(model, tokenizer, chosen, before, seed)


VLM: Final = PolicyFamily(_tokenizer, _policy, identity, reads_earlier_screens=True)
