"""A model's own processor: its chat template, its tokenizer, and the tokens that stand for a screenshot.

The number of those tokens follows from the screenshot's size. A prompt is recorded with one placeholder in their place,
and `layout` says what it stands for: so a record is short, and is read again exactly, since the text before and after a
screenshot is tokenized separately (special tokens begin and end it). Several screenshots stand one behind the other,
oldest first.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final, cast

from PIL import Image
from torch import Tensor
from transformers import AutoConfig, AutoImageProcessor, AutoProcessor

from distrl.errors import PolicyError
from distrl.policy.files import HINT, parsed, read
from distrl.policy.special_tokens import special_tokens, without
from distrl.policy.vlm.directory import PREPROCESSOR
from distrl.text import first_line
from distrl.types import ScreenSize

LOG = logging.getLogger("distrl.policy.vlm.processor")

PROBE: Final = ScreenSize(64, 128)
"""Size of the blank image that is shown to a processor to see what it writes around one."""
MOST_ASPECT: Final = 100
"""Of a screen's sides. Models refuse strips (Qwen: 200), and one that a model refused would end the learner."""
PICTURES: Final = ("image_token", "boi_token", "eoi_token", "video_token")
"""Names of the tokens of pictures in processors, which tokenizers do not always mark as special."""
OF_TEXT: Final = frozenset({"input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids"})
"""What a processor makes of the text, beside what it makes of the images."""
TODAY: Final = "{% macro strftime_now(format) %}26 Jul 2024{% endmacro %}"
"""Put before each template in place of the library's function of that name: a prompt must be the same if a run goes on
at another day."""
GRID: Final = "image_grid_thw"
"""What the Qwen family calls the rows and columns of an image's patches."""
THINK: Final = "<think>"
PARTS_PRINTED: Final = re.compile(r"""['"]type['"]: ?['"]text['"]""")
"""In a prompt whose template has printed a list of parts, as Python or as JSON."""


class SystemForm(Enum):
    """How a chat template is given the system prompt; the first that it takes is used."""

    PARTS = auto()
    """A message whose content is a list of parts, as that of the user."""
    IN_USERS = auto()
    """Before the user's text."""
    STRING = auto()
    """A message whose content is a string."""


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

    def __init__(self, directory: Path, max_pixels: int, template: str | None = None, images: int = 1) -> None:
        """max_pixels: larger screenshots are scaled down to it, before the model's own resizing. template: in place of
        the model's own chat template. images: most of one prompt."""
        self._where, self._max_pixels = str(directory), max_pixels
        try:
            self._open(directory, template, images)
        except PolicyError:
            raise
        except Exception as error:  # what a stranger's files and template raise can be anything
            for file in sorted(directory.glob("*.json")):
                parsed(read(file), file)  # one of them may be the cause, and the library does not name it
            what = f"has no processor of images and text ({first_line(error)})"
            raise PolicyError(self._where, what, f"{HINT}; tokenizer.json and {PREPROCESSOR[0]} belong to it") from None

    def _open(self, directory: Path, template: str | None, images: int) -> None:
        whole, image = cast(Any, AutoProcessor), cast(Any, AutoImageProcessor)
        self._processor: Any = whole.from_pretrained(directory, local_files_only=True, trust_remote_code=False)
        # Pillow's resizing gives the same bytes on every machine: worker and learner need not be of one kind
        self._processor.image_processor = image.from_pretrained(
            directory, local_files_only=True, trust_remote_code=False, backend="pil"
        )
        if self._processor.image_processor.backend != "pil":
            LOG.warning(
                "%s has no version for Pillow: workers and learner on machines of different kinds may see slightly "
                "different pixels, and their probabilities then differ (docs/policies.md)",
                type(self._processor.image_processor).__name__,
            )
        self._tokenizer: Any = self._processor.tokenizer
        own = self._processor.chat_template or self._tokenizer.chat_template
        if isinstance(own, dict):  # a model may have others beside it, as for tools
            own = own.get("default")
        if template is None and own is None:
            raise PolicyError(
                self._where,
                "has no chat template",
                "name a model that was tuned to follow instructions, or set policy.chat_template",
            )
        self._template: str = own if template is None else template
        self._is_own = template is None
        self.size = len(self._tokenizer)
        """Of the vocabulary."""
        config: Any = cast(Any, AutoConfig).from_pretrained(directory, local_files_only=True, trust_remote_code=False)
        self.soft_id: int = getattr(config, "image_token_id", self._processor.image_token_id)
        """The token whose embeddings are replaced by the image's. Gemma's processor gives that name to another one."""
        self.vocabulary: int = config.get_text_config().vocab_size
        """How many ids the model has: more than there are tokens, for round numbers."""
        named = (getattr(self._processor, name, None) for name in PICTURES)
        self._specials = special_tokens(self._tokenizer, (str(each) for each in named if isinstance(each, str)))
        faults = {form: self._fault(form) for form in SystemForm}
        usable = [form for form, fault in faults.items() if not fault]
        if not usable:
            raise self._refused(faults[SystemForm.IN_USERS])
        self._system_form = usable[0]
        rendered = self._rendered("", "")
        self.opens_thought = rendered.rstrip().endswith(THINK)
        """Whether a prompt ends within a thought, which the answer goes on with and closes."""
        self._begin = self._begin_of(rendered)
        self._marker = self._marker_in(rendered)
        if (shown := self._rendered("", "", images).count(self._marker)) != images:
            raise self._refused(f"marks {shown} of {images} images")
        self.marker_id: int = self._tokenizer.convert_tokens_to_ids(self._marker)
        """The placeholder in a recorded prompt."""
        before, after = self._around_an_image()
        self._written_marker = f"{before}{self._marker}{after}"
        self.layout = lru_cache(maxsize=32)(self._layout)
        self._special_count = lru_cache(maxsize=128)(self._count_specials)

    def fitted(self, size: ScreenSize) -> ScreenSize:
        """`size`, scaled down to at most `max_pixels` in its proportions. Raises PolicyError for a strip."""
        if max(size) > MOST_ASPECT * min(size):
            raise PolicyError(
                "screenshot",
                f"is {size.width}x{size.height}, longer than {MOST_ASPECT} times its width",
                "check the device and its screen size",
            )
        scale = math.sqrt(min(1.0, self._max_pixels / (size.width * size.height)))
        return ScreenSize(max(1, int(size.width * scale)), max(1, int(size.height * scale)))

    def scaled(self, picture: Image.Image) -> Image.Image:
        """The picture of the size `fitted`, as the model's own processor is given it."""
        fitted = self.fitted(ScreenSize(*picture.size))
        return picture if picture.size == fitted else picture.resize(fitted, Image.Resampling.BOX)

    def resized(self, picture: Image.Image) -> Image.Image:
        """The picture for the processor of another process, resized to `Layout.seen` as the model's own would do it.

        Libraries resize with other roundings: torchvision and Pillow differ by a grey level here and there, which moved
        actions of a random model by up to 0.6 nats (docs/serving.md). A processor leaves a picture of that size alone.
        """
        scaled, seen = self.scaled(picture), self.layout(ScreenSize(*picture.size)).seen
        if scaled.size == seen:
            return scaled
        return scaled.resize(seen, Image.Resampling(self._processor.image_processor.resample))

    def images(self, picture: Image.Image) -> Mapping[str, Tensor]:
        """What the model's vision part takes."""
        # By the whole processor, as for `layout`: some give their image processor settings that its file does not have
        # (InternVL: crop_to_patches; Pixtral: the size of merged patches), and the numbers of tokens would differ.
        found = self._shown(self._marker, self.scaled(picture))
        return {name: value for name, value in found.items() if name not in OF_TEXT}

    def prompt(self, system: str, user: str, images: int = 1) -> tuple[int, ...]:
        """The ids of a conversation that shows `images` images and asks `user`, up to the answer; each image as one
        placeholder.

        Raises PolicyError where `user` spells a special token: `plain` what others wrote.
        """
        ids = self._prompt(system, user, images)
        if sum(each in self._special_ids for each in ids) != self._special_count(system, images):
            raise PolicyError("instruction", f"spells a special token ({user!r:.200})", "leave it out")
        return ids

    def _prompt(self, system: str, user: str, images: int) -> tuple[int, ...]:
        text = self._rendered(system, user, images).replace(self._marker, self._written_marker, images)
        return (*self._begin, *self.ids(text))

    def _count_specials(self, system: str, images: int) -> int:
        return sum(each in self._special_ids for each in self._prompt(system, "", images))

    def filled(self, ids: Sequence[int], layouts: Sequence[Layout]) -> tuple[int, ...]:
        """What the model reads of a recorded prompt, with what stands for each screenshot in its placeholder's place.

        Raises PolicyError for other numbers of placeholders and screenshots.
        """
        if (places := ids.count(self.marker_id)) != len(layouts):
            raise PolicyError(
                "screenshots",
                f"are {len(layouts)}, and the prompt is of {places}",
                "give the policy the screenshots of policy.history_screens that the prompt was made for",
            )
        shown = iter(layouts)
        return tuple(token for each in ids for token in (next(shown).ids if each == self.marker_id else (each,)))

    def messages(self, system: str, user: str, images: int = 1) -> list[dict[str, Any]]:
        """The conversation that `prompt` spells, as chat endpoints take it; images are the parts of type `image`, in
        contents that are lists."""
        return _conversation(system, user, self._system_form, images)

    @property
    def begins(self) -> bool:
        """Whether the tokenizer puts a token before what the chat template has written."""
        return bool(self._begin)

    def undrawn(self, vocabulary: int) -> list[int]:
        """Of a model with that many ids: those of pictures, and of no token, which no action may hold."""
        return sorted({self.soft_id, self.marker_id, *range(self.size, vocabulary)})

    def ends(self, ids: Sequence[int]) -> tuple[int, ...]:
        """`ids`, which end an answer; first that which the chat template writes after one."""
        word = "answer"
        try:
            text = self._apply([_message("user", "question", images=1), _message("assistant", word)], ask=False)
        except Exception:  # a template that shows no answers
            return tuple(ids)
        written = next((each for each in self.ids(text.rpartition(word)[2]) if each in ids), ids[0])
        return (written, *(each for each in ids if each != written))

    def mark_in(self, text: str) -> str | None:
        """The text by which a prompt says where a screenshot is, if `text` has it."""
        return self._marker if self._marker in text else None

    def plain(self, text: str) -> str:
        """`text` without the special tokens that it spells: an instruction must not end its own turn."""
        return without(text, self._specials)

    def ids(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def text(self, ids: Sequence[int]) -> str:
        """Special tokens are written as they are: an answer that holds one is no action."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def _layout(self, size: ScreenSize) -> Layout:
        fitted = self.fitted(size)
        found = self._shown(self._marker, _blank(fitted))
        ids = found.pop("input_ids")[0].tolist()
        first, last = self._ends(ids)
        seen = fitted
        if GRID in found:
            patch = self._processor.image_processor.patch_size
            _, rows, columns = found[GRID][0].tolist()
            seen = ScreenSize(columns * patch, rows * patch)
        return Layout(tuple(ids[first : last + 1]), {name: found[name] for name in (GRID,) if name in found}, seen)

    def _shown(self, text: str, picture: Image.Image) -> dict[str, Tensor]:
        """What the processor makes of a text with one image."""
        # padding: False, because a tokenizer that begins to pad is changed, while other threads use it
        return dict(
            self._processor(text=[text], images=[picture], return_tensors="pt", add_special_tokens=False, padding=False)
        )

    def _ends(self, ids: Sequence[int]) -> tuple[int, int]:
        """Where the tokens for an image begin and end: at the first and the last special token."""
        places = [place for place, each in enumerate(ids) if each in self._special_ids]
        if not places or self.soft_id not in ids:
            raise PolicyError(self._where, "its processor writes no tokens for an image", HINT)
        return places[0], places[-1]

    def _around_an_image(self) -> tuple[str, str]:
        """Text that the processor writes before and after an image's tokens. Gemma has blank lines there."""
        ids = self._shown(self._marker, _blank(PROBE))["input_ids"][0].tolist()
        first, last = self._ends(ids)
        return self.text(ids[:first]), self.text(ids[last + 1 :])

    @cached_property
    def _special_ids(self) -> frozenset[int]:
        return frozenset(self._tokenizer.convert_tokens_to_ids(each) for each in self._specials)

    def _begin_of(self, rendered: str) -> tuple[int, ...]:
        """What the tokenizer puts before a text by itself, where the template has not done so, as the library does."""
        if self._tokenizer.bos_token and rendered.startswith(self._tokenizer.bos_token):
            return ()
        bare, whole = self.ids("a"), tuple(self._tokenizer("a")["input_ids"])
        return whole[: whole.index(bare[0])]

    def _fault(self, form: SystemForm) -> str:
        """Why the template cannot be used so; empty where it writes what it is given. Some refuse a system prompt, some
        leave it out, and some take content for a string and print the list of its parts."""
        try:
            text = self._apply(_conversation("distrl-system", "distrl-user", form))
        except Exception as error:  # what a template raises is its own affair
            return f"fails ({first_line(error)})"
        if PARTS_PRINTED.search(text):
            return "prints the list of a message's parts in place of their text"
        return "" if "distrl-system" in text and "distrl-user" in text else "leaves out what it is given"

    def _refused(self, fault: str) -> PolicyError:
        """Of the chat template, which is the model's own or the run's."""
        if self._is_own:
            return PolicyError(self._where, f"its chat template {fault}", f"{HINT}, or set policy.chat_template")
        return PolicyError(
            "policy.chat_template",
            fault,
            "correct it after the model's own (chat_template.jinja), or unset it to use that",
        )

    def _rendered(self, system: str, user: str, images: int = 1) -> str:
        return self._apply(_conversation(system, user, self._system_form, images))

    def _apply(self, conversation: list[dict[str, Any]], ask: bool = True) -> str:
        return str(
            self._tokenizer.apply_chat_template(
                conversation,
                chat_template=TODAY + self._template,
                add_generation_prompt=ask,
                tokenize=False,
            )
        )

    def _marker_in(self, rendered: str) -> str:
        """The token that the template writes for an image."""
        for name in ("boi_token", "image_token"):
            token = getattr(self._processor, name, None)
            if token and rendered.count(token) == 1:
                return str(token)
        raise self._refused("marks no image")


def _blank(size: ScreenSize) -> Image.Image:
    """For what depends on the size of an image alone."""
    return Image.new("RGB", size)


def _conversation(system: str, user: str, form: SystemForm, images: int = 1) -> list[dict[str, Any]]:
    match form:
        case SystemForm.PARTS:
            return [_message("system", system), _message("user", user, images)]
        case SystemForm.IN_USERS:
            return [_message("user", f"{system}\n\n{user}", images)]
        case SystemForm.STRING:
            return [{"role": "system", "content": system}, _message("user", user, images)]


def _message(role: str, text: str, images: int = 0) -> dict[str, Any]:
    shown = [{"type": "image"} for _ in range(images)]
    return {"role": role, "content": [*shown, {"type": "text", "text": text}]}
