"""What the paper's policy reads and writes: AutoUI's text, in the pieces of T5's own tokenizer.

    prompt = "Previous Actions: " (action " ")* "Goal: " instruction "</s>"
    action = plan? "Action Decision: " four quoted fields "</s>"

as cooelf/Auto-GUI has them, utils_data.py of commit 26ea0f2e659e6ce16a60410990a8ff7ca1f7fddb. A plan names the kinds of
this action and of those to come; parsing skips it. Demonstrations are written without one, since it would reveal later
actions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, cast

from transformers import AutoTokenizer

from distrl.config import PolicySettings
from distrl.errors import PolicyError
from distrl.policy.actions import to_text
from distrl.policy.autoui.tokenizer import END, PAD
from distrl.policy.dialects.registry import DIALECTS
from distrl.policy.files import HINT
from distrl.policy.special_tokens import special_tokens, without
from distrl.types import Action, ActionKind, ScreenSize, Step

PROMPT_LENGTH: Final = 512
"""Most ids of a prompt, its end included, as AutoUI was trained."""
DECISION: Final = "Action Decision: "


class T5Tokenizer:
    """Immutable. Coordinates are written as shares of the screen, so its size is not used.

    Raises PolicyError where the directory has no tokenizer, or one that counts its first ids otherwise than T5.
    """

    def __init__(self, directory: Path, settings: PolicySettings) -> None:
        library = cast(Any, AutoTokenizer)
        try:
            self._tokenizer: Any = library.from_pretrained(directory, local_files_only=True, trust_remote_code=False)
            self.size = len(self._tokenizer)
            ends = (self._tokenizer.pad_token_id, self._tokenizer.eos_token_id)
        except Exception as error:  # what a stranger's files raise can be anything
            raise PolicyError(str(directory), f"has no tokenizer of a T5 ({error!r:.200})", HINT) from None
        if ends != (PAD, END):
            raise PolicyError(str(directory), f"its padding and end are the ids {ends}, and T5's {(PAD, END)}", HINT)
        self.action_length = settings.action_tokens
        """Most ids of an action, its end included."""
        self._history = settings.history
        self._dialect = DIALECTS["autoui"]
        self._specials = special_tokens(self._tokenizer)

    def encode_prompt(
        self, instruction: str, earlier: Sequence[Action], screen: ScreenSize | None = None
    ) -> tuple[int, ...]:
        """The last `policy.history` actions, or as many of them as there is room for, and the instruction.

        Raises PolicyError for an instruction that leaves room for nothing else.
        """
        goal = self._ids(f"Goal: {self._plain(instruction)}")
        for count in range(min(self._history, len(earlier)), -1, -1):
            recent = earlier[len(earlier) - count :]
            done = " ".join(["Previous Actions:", *(self._plain(to_text(action)) for action in recent)])
            ids = (*self._ids(done), *goal, END)
            if len(ids) <= PROMPT_LENGTH:
                return ids
        raise PolicyError(
            "instruction", f"makes a prompt of {len(ids)} tokens, more than {PROMPT_LENGTH}", "shorten it"
        )

    def encode_action(self, action: Action, screen: ScreenSize | None = None) -> tuple[int, ...]:
        """Raises PolicyError for an action without a form, one that is too long, and text that T5 cannot spell."""
        size = screen or _ANY
        ids = self._ids(DECISION + self._dialect.write(action, size))
        found = self.decode_action(ids, size)
        if found.kind is not action.kind or (action.kind is ActionKind.TYPE and found.text != action.text):
            raise PolicyError("action", f"'{action.text:.40}' cannot be spelled in T5's vocabulary", "type other text")
        if len(ids) >= self.action_length:
            raise PolicyError(
                "action", f"takes {len(ids) + 1} tokens", "shorten its text, or raise policy.action_tokens"
            )
        return (*ids, END)

    def decode_action(self, ids: Sequence[int], screen: ScreenSize | None = None) -> Action:
        ended = ids[:-1] if ids and ids[-1] == END else ids
        return self._dialect.parse(self.text(ended), screen or _ANY)

    def text(self, ids: Sequence[int]) -> str:
        """Special tokens too: an answer that holds one is no action."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def accepts(self, step: Step, index: int = 0) -> bool:
        fits = 0 < len(step.prompt_ids) <= PROMPT_LENGTH and 0 < len(step.action_ids) <= self.action_length
        return fits and all(PAD < token < self.size for token in (*step.prompt_ids, *step.action_ids))

    def unknown_words(self, texts: Iterable[str]) -> tuple[str, ...]:
        """None: it spells words in pieces."""
        return ()

    def _plain(self, text: str) -> str:
        """`text` in one line, without the special tokens that it spells: an instruction must not end the prompt."""
        return " ".join(without(text, self._specials).split())

    def _ids(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer(text, add_special_tokens=False)["input_ids"])


_ANY: Final = ScreenSize(1, 1)
"""Stands for a size that is not used."""
