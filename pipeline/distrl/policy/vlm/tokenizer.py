"""Prompts and actions of a vision-language model, in the dialect that it writes actions in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from distrl.config import PolicySettings
from distrl.errors import PolicyError
from distrl.policy.dialects.protocol import Dialect
from distrl.policy.vlm.processor import THINK, Processor
from distrl.types import Action, ActionKind, ScreenSize, Step

END_OF_THOUGHT: Final = "</think>\n\n"
"""Before a demonstrated action where the prompt has begun a thought: none is demonstrated."""
LONGEST_PROMPT: Final = 8192
"""Most recorded ids of a prompt, in which a screenshot is one. A record may hold any number."""


class VlmTokenizer:
    """Immutable. ends: the ids that end an answer."""

    def __init__(self, processor: Processor, dialect: Dialect, settings: PolicySettings, ends: Sequence[int]) -> None:
        self.processor = processor
        self.ends = processor.ends(ends)
        self.action_length = settings.action_tokens
        """Most ids of an action, its end included."""
        self._dialect = dialect
        self.earlier_screens = settings.history_screens
        """Most screenshots of a prompt before the present one."""
        self._history = settings.history
        self._system_prompt = settings.system_prompt

    def encode_prompt(self, instruction: str, earlier: Sequence[Action], screen: ScreenSize) -> tuple[int, ...]:
        """The system prompt, one placeholder for each screenshot, the instruction, and the last actions."""
        ids = self.processor.prompt(*self.conversation(instruction, earlier, screen))
        if len(ids) > LONGEST_PROMPT:
            raise PolicyError(
                "instruction", f"makes a prompt of {len(ids)} tokens, more than {LONGEST_PROMPT}", "shorten it"
            )
        return ids

    def conversation(self, instruction: str, earlier: Sequence[Action], screen: ScreenSize) -> tuple[str, str, int]:
        """The system prompt, the user's text, and how many screenshots stand beside it."""
        seen = self.processor.layout(screen).seen
        recent = earlier[max(0, len(earlier) - self._history) :]
        done = [
            f"{number}. {self._mention(action, seen)}"
            for number, action in enumerate(recent, len(earlier) - len(recent) + 1)
        ]
        goal = self.processor.plain(instruction)
        before = min(self.earlier_screens, len(earlier))
        asked = ["Instruction: " + goal, "Actions so far:", *(done or ["none"])]
        if before:
            numbers = range(len(earlier) - before + 1, len(earlier) + 1)
            asked.append(f"Screens: {', '.join(f'before action {number}' for number in numbers)}, now")
        return self._system_prompt or self._dialect.instructions(seen), "\n".join(asked), 1 + before

    def encode_action(self, action: Action, screen: ScreenSize) -> tuple[int, ...]:
        """Raises PolicyError for an action without a form in the dialect, and for one that is too long."""
        text = self._dialect.write(action, self.processor.layout(screen).seen)
        ids = self.processor.ids(END_OF_THOUGHT + text if self.processor.opens_thought else text)
        named = f"{action.kind.value} {action.text[:40]!r}" if action.text else action.kind.value
        if self.processor.plain(text) != text:
            raise PolicyError("action", f"{named} holds a special token", "write its text in other words")
        if len(ids) >= self.action_length:
            raise PolicyError(
                "policy.action_tokens",
                f"is {self.action_length}, and the action {named} takes {len(ids) + 1} tokens",
                "raise it, choose a dialect that writes less (policy.dialect), or shorten the action's text",
            )
        return (*ids, self.ends[0])

    def decode_action(self, ids: Sequence[int], screen: ScreenSize) -> Action:
        written = ids[:-1] if ids and ids[-1] in self.ends else ids
        text, seen = self.processor.text(written), self.processor.layout(screen).seen
        found = self._dialect.parse(THINK + text if self.processor.opens_thought else text, seen)
        # Special tokens are not typed: no later prompt could tell of them as they were.
        refused = found.kind is ActionKind.TYPE and self.processor.plain(found.text) != found.text
        unread = found.kind is ActionKind.INVALID and self.processor.opens_thought
        return Action(ActionKind.INVALID, text=text) if refused or unread else found

    def text(self, ids: Sequence[int]) -> str:
        return self.processor.text(ids)

    def accepts(self, step: Step, index: int = 0) -> bool:
        """Its ids are of this vocabulary, all screenshots are read and none is written, and neither part is too
        long."""
        fits = len(step.prompt_ids) <= LONGEST_PROMPT and 0 < len(step.action_ids) <= self.action_length
        known = all(0 <= token < self.processor.size for token in (*step.prompt_ids, *step.action_ids))
        images = {self.processor.marker_id, self.processor.soft_id}
        read = [token for token in step.prompt_ids if token in images]
        screens = 1 + min(self.earlier_screens, index)
        return fits and known and read == [self.processor.marker_id] * screens and images.isdisjoint(step.action_ids)

    def unknown_words(self, texts: Iterable[str]) -> tuple[str, ...]:
        """None: such vocabularies spell every text."""
        return ()

    def _mention(self, action: Action, seen: ScreenSize) -> str:
        try:
            return self._dialect.write(replace(action, text=self.processor.plain(action.text)), seen)
        except PolicyError:
            return "an answer that was no action"
