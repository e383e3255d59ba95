"""A model's own processor: its chat template, its tokenizer, and the tokens that stand for a screenshot.

The number of those tokens follows from the screenshot's size. A prompt is recorded with one placeholder in their place,
and `layout` says what it stands for: so a record is short, and is read again exactly, since both sides of it were split
into tokens apart (special tokens begin and end it).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, cast

from PIL import Image
from torch import Tensor
from transformers import AutoImageProcessor, AutoProcessor

from distrl.errors import PolicyError
from distrl.policy.files import HINT
from distrl.types import ScreenSize

PROBE: Final = ScreenSize(64, 128)
"""Size of the blank image that is shown to a processor to see what it writes around one."""
GRID: Final = "image_grid_thw"
"""What the Qwen family calls the rows and columns of an image's patches."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What stands for a screenshot of one size in a prompt."""

    ids: tuple[int, ...]
    inputs: Mapping[str, Tensor]
    """What the model's forward pass has to know of the image beside its tokens; of a batch of one."""
    seen: ScreenSize
    """The image's size as the model sees it, after resizing."""


class Processor:
    """Raises PolicyError where the directory has no processor of images and text, or one that marks no image."""

    def __init__(self, directory: Path, max_pixels: int) -> None:
        """max_pixels: larger screenshots are scaled down to it, before the model's own resizing."""
        try:
            whole, images = cast(Any, AutoProcessor), cast(Any, AutoImageProcessor)
            found = whole.from_pretrained(directory, local_files_only=True, trust_remote_code=False)
            # Pillow's resizing gives the same bytes on every machine: worker and learner need not be of one kind
            found.image_processor = images.from_pretrained(
                directory, local_files_only=True, trust_remote_code=False, backend="pil"
            )
        except (OSError, ValueError, ImportError, AttributeError, TypeError, KeyError) as error:
            raise PolicyError(str(directory), f"has no processor of images and text ({error!r:.200})", HINT) from None
        self._processor: Any = found
        self._tokenizer: Any = found.tokenizer
        self._max_pixels = max_pixels
        self._where = str(directory)
        if self._tokenizer.chat_template is None and found.chat_template is None:
            raise PolicyError(self._where, "has no chat template", "name a model that was tuned to follow instructions")
        self.size = len(self._tokenizer)
        """Of the vocabulary."""
        self.soft_id: int = found.image_token_id
        """The token whose embeddings are replaced by the image's."""
        self._specials = tuple(sorted((str(each) for each in self._tokenizer.get_added_vocab()), key=len, reverse=True))
        self._system_role = self._takes_a_system_role()
        self._marker = self._marker_in(self._rendered("", ""))
        self.marker_id: int = self._tokenizer.convert_tokens_to_ids(self._marker)
        """The placeholder in a recorded prompt."""
        before, after = self._around_an_image()
        self._written_marker = f"{before}{self._marker}{after}"
        self.layout = lru_cache(maxsize=32)(self._layout)

    def fitted(self, size: ScreenSize) -> ScreenSize:
        """`size`, scaled down to at most `max_pixels` in its proportions."""
        scale = math.sqrt(min(1.0, self._max_pixels / (size.width * size.height)))
        return ScreenSize(max(1, int(size.width * scale)), max(1, int(size.height * scale)))

    def images(self, picture: Image.Image) -> Mapping[str, Tensor]:
        """What the model's vision part takes."""
        fitted = self.fitted(ScreenSize(*picture.size))
        if picture.size != fitted:
            picture = picture.resize(fitted, Image.Resampling.BOX)
        return dict(self._processor.image_processor(images=[picture], return_tensors="pt"))

    def prompt(self, system: str, user: str) -> tuple[int, ...]:
        """The ids of a conversation that shows one image and asks `user`, up to the answer; the image as one
        placeholder. Neither text can hold a special token."""
        text = self._rendered(self.plain(system), self.plain(user))
        return self.ids(text.replace(self._marker, self._written_marker, 1))

    def plain(self, text: str) -> str:
        """`text` without the special tokens that it spells: an instruction must not end its own turn."""
        while found := next((each for each in self._specials if each in text), None):
            text = text.replace(found, "")  # what is left may spell another one
        return text

    def ids(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def text(self, ids: Sequence[int]) -> str:
        """Special tokens are written as they are: an answer that holds one is no action."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def _layout(self, size: ScreenSize) -> Layout:
        fitted = self.fitted(size)
        found = self._shown(self._marker, fitted)
        ids = found.pop("input_ids")[0].tolist()
        first, last = self._ends(ids)
        seen = fitted
        if GRID in found:
            patch = self._processor.image_processor.patch_size
            _, rows, columns = found[GRID][0].tolist()
            seen = ScreenSize(columns * patch, rows * patch)
        return Layout(tuple(ids[first : last + 1]), {name: found[name] for name in (GRID,) if name in found}, seen)

    def _shown(self, text: str, size: ScreenSize) -> dict[str, Tensor]:
        """What the processor makes of a text with one image: a blank one, as only its size counts."""
        blank = Image.new("RGB", size)
        return dict(self._processor(text=[text], images=[blank], return_tensors="pt", add_special_tokens=False))

    def _ends(self, ids: Sequence[int]) -> tuple[int, int]:
        """Where the tokens for an image begin and end: at the first and the last special token."""
        special = {self._tokenizer.convert_tokens_to_ids(each) for each in self._specials}
        places = [place for place, each in enumerate(ids) if each in special]
        if not places or self.soft_id not in ids:
            raise PolicyError(self._where, "its processor writes no tokens for an image", HINT)
        return places[0], places[-1]

    def _around_an_image(self) -> tuple[str, str]:
        """Text that the processor writes before and after an image's tokens. Gemma has blank lines there."""
        ids = self._shown(self._marker, PROBE)["input_ids"][0].tolist()
        first, last = self._ends(ids)
        return self.text(ids[:first]), self.text(ids[last + 1 :])

    def _takes_a_system_role(self) -> bool:
        """Some templates refuse a system prompt; it then goes before the user's text."""
        try:
            self._apply([_message("system", "a"), _message("user", "b", image=True)])
        except Exception:  # what a template raises is its own affair
            return False
        return True

    def _rendered(self, system: str, user: str) -> str:
        if self._system_role:
            return self._apply([_message("system", system), _message("user", user, image=True)])
        return self._apply([_message("user", f"{system}\n\n{user}", image=True)])

    def _apply(self, conversation: list[dict[str, Any]]) -> str:
        return str(self._processor.apply_chat_template(conversation, add_generation_prompt=True, tokenize=False))

    def _marker_in(self, rendered: str) -> str:
        """The token that the template writes for an image."""
        for name in ("boi_token", "image_token"):
            token = getattr(self._processor, name, None)
            if token and rendered.count(token) == 1:
                return str(token)
        raise PolicyError(self._where, "its chat template marks no image", "name a vision-language model")


def _message(role: str, text: str, *, image: bool = False) -> dict[str, Any]:
    shown = [{"type": "image"}] if image else []
    return {"role": role, "content": [*shown, {"type": "text", "text": text}]}
