"""How every policy writes actions: token by token, a batch at a time, until each row has ended."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from distrl.policy.sampling import Choose, Sampling, drawn_from, entropies


class Decoder(Protocol):
    """The rows of one batch, with the keys and values of all that was read and written. B rows, V tokens."""

    def first(self) -> Tensor:
        """(B, V) logits of each row's first token."""
        ...

    def following(self, tokens: Tensor) -> Tensor:
        """(B, V) logits of the token after `tokens` (B,), the last that were written."""
        ...

    def keep(self, rows: Tensor) -> None:
        """Forget all rows but these, by their present places, in order."""
        ...


class Written(NamedTuple):
    """ids: as drawn, with the end token where it was drawn. logprob: summed over them, entropy: mean, both in nats."""

    ids: tuple[int, ...]
    logprob: float
    entropy: float


def write(
    decoder: Decoder, *, ends: Collection[int], most: int, sampling: Sampling | None, choices: Sequence[Choose]
) -> list[Written]:
    """One row for each of `choices`: at most `most` ids, of which only the last may be one of `ends`.

    A row that has ended leaves the batch. Its tokens are chosen for it alone, and their probabilities are computed in
    float64. sampling: as in `Policy.decide`.
    """
    ids: list[list[int]] = [[] for _ in choices]
    logprobs = [0.0 for _ in choices]
    entropy_sums = [0.0 for _ in choices]
    rows = list(range(len(choices)))
    with torch.no_grad():
        logits = decoder.first()
        while True:
            logp = drawn_from(logits, sampling)
            for row, each, entropy in zip(rows, logp, entropies(logp).tolist(), strict=True):
                token = choices[row](each)
                ids[row].append(token)
                logprobs[row] += float(each[token])
                entropy_sums[row] += entropy
            going = [place for place, row in enumerate(rows) if ids[row][-1] not in ends and len(ids[row]) < most]
            if not going:
                return [
                    Written(tuple(each), logprob, total / len(each))
                    for each, logprob, total in zip(ids, logprobs, entropy_sums, strict=True)
                ]
            if len(going) < len(rows):
                decoder.keep(torch.tensor(going, device=logits.device))
                rows = [rows[place] for place in going]
            logits = decoder.following(torch.tensor([ids[row][-1] for row in rows], device=logits.device))
