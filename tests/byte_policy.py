"""A second family of policies, of the tests alone: it reads and writes bytes, with a GRU, and knows no T5 and no words.

    config.json   {"format": "bytes/1", "width": 16, "seed": 0}   all there is of a base model: its weights are random

It is found as a user's own would be, by an entry point (`install`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from distrl import config as settings
from distrl.errors import PolicyError
from distrl.images import ImageError, opened
from distrl.policy.actions import to_text
from distrl.policy.adapters import LoraAdapter
from distrl.policy.files import identity_of
from distrl.policy.protocol import ImageFeatures, SampledAction, Score
from distrl.policy.registry import PolicyFamily
from distrl.policy.sampling import FULL, Choose, Sampling, drawing, drawn_from, entropies, repeating, scores
from distrl.types import Action, ActionKind, Point, ScreenSize, Step
from PIL import Image
from torch import Tensor, nn

FORMAT = "bytes/1"
PAD, END, FIRST = 0, 1, 2
"""Ids; FIRST is that of the byte 0."""
VOCABULARY = FIRST + 256
LONGEST_PROMPT, LONGEST_ACTION = 200, 48
COLUMNS, ROWS = 4, 8
"""Grey cells that a screenshot is reduced to."""
FORM = re.compile(r"(tap|swipe|type|back|home|enter|complete) (\d\d?,\d\d?|-) (\d\d?,\d\d?|-) (.*)", re.DOTALL)
"""An action as text: its kind, where it touches and lifts in hundredths of the screen, what it types."""


class ByteTokenizer:
    def encode_prompt(self, instruction: str, earlier: Sequence[Action], screen: ScreenSize) -> tuple[int, ...]:
        said = [instruction, *(_written(action) for action in earlier[-1:])]
        return (*_ids("\n".join(said))[: LONGEST_PROMPT - 1], END)

    def encode_action(self, action: Action, screen: ScreenSize) -> tuple[int, ...]:
        ids = (*_ids(_written(action)), END)
        if action.kind is ActionKind.INVALID or len(ids) > LONGEST_ACTION:
            raise PolicyError("action", f"{action} is none, or too long", "shorten its text")
        return ids

    def decode_action(self, ids: Sequence[int], screen: ScreenSize) -> Action:
        text = self.text(ids)
        found = FORM.fullmatch(text)
        if found is None:
            return Action(ActionKind.INVALID, text=text)
        touch, lift = (
            None if at == "-" else Point(*(int(part) / 99 for part in at.split(","))) for at in found.group(2, 3)
        )
        return Action(ActionKind(found[1]), touch=touch, lift=lift, text=found[4])

    def text(self, ids: Sequence[int]) -> str:
        return bytes(i - FIRST for i in ids if i >= FIRST).decode(errors="replace")

    def accepts(self, step: Step, index: int = 0) -> bool:
        fits = 0 < len(step.prompt_ids) <= LONGEST_PROMPT and 0 < len(step.action_ids) <= LONGEST_ACTION
        return fits and all(PAD < token < VOCABULARY for token in (*step.prompt_ids, *step.action_ids))

    def unknown_words(self, texts: Iterable[str]) -> tuple[str, ...]:
        return ()


class ByteModel(nn.Module):
    def __init__(self, width: int, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embed = nn.Embedding(VOCABULARY, width)
        self.see = nn.Linear(1, width)
        self.reader = nn.GRU(width, width, batch_first=True)
        self.writer = nn.GRU(width, width, batch_first=True)
        self.q = nn.Linear(width, width)
        self.v = nn.Linear(width, VOCABULARY)

    def read(self, cells: Tensor, prompts: Tensor) -> tuple[Tensor, Tensor]:
        """States (B, N + L, d) and mask (B, N + L). cells: (B, N, 1)."""
        states = torch.cat([self.see(cells), self.reader(self.embed(prompts))[0]], dim=1)
        return states, torch.cat([prompts.new_ones(cells.shape[:2]), (prompts != PAD).long()], dim=1)

    def logits(self, states: Tensor, mask: Tensor, written: Tensor) -> Tensor:
        """(B, T, V) of each token of `written` (B, T), given those before it."""
        begin = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        before = torch.cat([written.new_full((len(written), 1), END), written[:, :-1]], dim=1)
        found: Tensor = self.v(torch.tanh(self.q(self.writer(self.embed(before), begin[None].contiguous())[0])))
        return found.index_fill(-1, torch.tensor([PAD]), -1e9)


class BytePolicy:
    def __init__(self, directory: Path, chosen: settings.PolicySettings, seed: int) -> None:
        described = json.loads((directory / "config.json").read_text())
        with torch.random.fork_rng(devices=[]):
            self.model = ByteModel(described["width"], described["seed"]).eval()
        self.tokenizer = ByteTokenizer()
        self.base_sha256 = _identity(directory)
        self.width = int(described["width"])
        self._adapter = LoraAdapter(self.model, chosen.lora_targets or ("q", "v"), chosen, self.base_sha256, seed)

    @property
    def device(self) -> torch.device:
        return self.model.embed.weight.device

    @property
    def earlier_screens(self) -> int:
        return 0

    @property
    def looks_beside(self) -> bool:
        return True

    def place(self, device: torch.device) -> None:
        assert device.type == "cpu", "it is for tests on the CPU"

    def save_memory(self) -> bool:
        return False

    def image_features(self, png: bytes) -> ImageFeatures:
        try:
            picture = opened(png)
        except ImageError as error:
            raise PolicyError("screenshot", str(error), "show it a PNG") from None
        grey = np.asarray(picture.convert("L").resize((COLUMNS, ROWS), Image.Resampling.BOX), dtype=np.float32)
        return ImageFeatures(torch.tensor(grey / 255).reshape(-1, 1), ScreenSize(*picture.size))

    def decide(
        self,
        pngs: Sequence[bytes],
        prompts: Sequence[tuple[int, ...]],
        sampling: Sampling | None,
        seeds: Sequence[int],
        earlier: Sequence[Sequence[bytes]] = (),
    ) -> list[SampledAction]:
        return [
            self._write(self.image_features(png), prompt, sampling, choose)
            for png, prompt, choose in zip(pngs, prompts, drawing(sampling, seeds), strict=True)
        ]

    def repeat(self, steps: Sequence[Step], features: Sequence[ImageFeatures], sampling: Sampling) -> list[float]:
        choices = repeating([step.action_ids for step in steps])
        return [
            self._write(screen, step.prompt_ids, sampling, choose).logprob
            for step, screen, choose in zip(steps, features, choices, strict=True)
        ]

    def score(self, steps: Sequence[Step], features: Sequence[ImageFeatures], sampling: Sampling = FULL) -> Score:
        written = _padded([step.action_ids for step in steps])
        states, mask = self.model.read(
            torch.stack([each.tokens for each in features]), _padded([step.prompt_ids for step in steps])
        )
        drawn = (written != PAD).float()
        logits = self.model.logits(states, mask, written)
        return Score(*scores(logits, written, drawn, sampling), states, mask)

    def embed_actions(self, actions: Sequence[tuple[int, ...]]) -> Tensor:
        table = self.model.embed.weight.detach()
        return torch.stack([table[list(ids)].mean(0) for ids in actions])

    def parameters(self) -> dict[str, nn.Parameter]:
        return self._adapter.parameters()

    @contextmanager
    def dropout(self) -> Iterator[None]:
        yield

    def adapter(self) -> bytes:
        return self._adapter.to_bytes()

    def load(self, adapter: bytes) -> None:
        self._adapter.load(adapter)

    def _write(
        self, screen: ImageFeatures, prompt: tuple[int, ...], sampling: Sampling | None, choose: Choose
    ) -> SampledAction:
        ids: list[int] = []
        total = entropy = 0.0
        with torch.no_grad():
            states, mask = self.model.read(screen.tokens[None], torch.tensor([prompt]))
            while len(ids) < LONGEST_ACTION and END not in ids:
                every = drawn_from(self.model.logits(states, mask, torch.tensor([[*ids, END]]))[:, -1], sampling)
                token = choose(every[0])
                total += float(every[0, token])
                entropy += float(entropies(every)[0])
                ids.append(token)
        action = self.tokenizer.decode_action(ids, screen.size)
        return SampledAction(tuple(ids), action, to_text(action), total, entropy / len(ids))


def _written(action: Action) -> str:
    points = ("-" if at is None else f"{round(at.x * 99)},{round(at.y * 99)}" for at in (action.touch, action.lift))
    return " ".join((action.kind.value, *points, action.text))


def _point(text: str) -> Point | None:
    return None if text == "-" else Point(*(int(part) / 99 for part in text.split(",")))


def _ids(text: str) -> list[int]:
    return [FIRST + byte for byte in text.encode()]


def _padded(rows: Sequence[Sequence[int]]) -> Tensor:
    longest = max(map(len, rows), default=0)
    return torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in rows], dtype=torch.long)


def _identity(directory: Path) -> str:
    return identity_of([directory / "config.json"])


FAMILY = PolicyFamily(lambda directory, chosen: ByteTokenizer(), BytePolicy, _identity)


def save(directory: Path, width: int = 16, seed: int = 0) -> Path:
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps({"format": FORMAT, "width": width, "seed": seed}))
    return directory


def install(site: Path) -> Path:
    """A folder that, on sys.path, offers the family as an installed package would."""
    about = site / "byte_policy-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: byte-policy\nVersion: 1\n")
    (about / "entry_points.txt").write_text(f"[distrl.policies]\n{FORMAT} = byte_policy:FAMILY\n")
    return site
