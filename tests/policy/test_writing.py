"""Writing row by row, and T5's decoder that keeps what it has read and written."""

from __future__ import annotations

import math

import pytest
import torch
from distrl.policy.autoui.t5 import ActingT5, T5Decoder
from distrl.policy.sampling import Sampling, drawing
from distrl.policy.writing import write
from torch import Tensor
from transformers import T5Config, T5ForConditionalGeneration
from transformers.modeling_outputs import BaseModelOutput

END = 1


class Table:
    """The next token's logits depend on the last token alone. lengths: rows of each pass."""

    def __init__(self, rows: int, logits: Tensor) -> None:
        self._rows, self._logits = rows, logits
        self.lengths: list[int] = []

    def first(self) -> Tensor:
        return self.following(torch.zeros(self._rows, dtype=torch.long))

    def following(self, tokens: Tensor) -> Tensor:
        assert len(tokens) == self._rows
        self.lengths.append(len(tokens))
        return self._logits[tokens]

    def keep(self, rows: Tensor) -> None:
        self._rows = len(rows)


@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_a_row_that_has_ended_leaves_the_batch_and_changes_no_other(temperature: float) -> None:
    torch.manual_seed(0)
    table, sampling = torch.randn(8, 8), Sampling(temperature)
    together = Table(12, table)
    found = write(together, ends=(END,), most=9, sampling=sampling, choices=drawing(sampling, range(12)))
    assert together.lengths == [sum(len(row.ids) > place for row in found) for place in range(len(together.lengths))]
    assert together.lengths[0] > together.lengths[-1]
    logp = (table.double() / temperature).log_softmax(-1)
    for seed, row in enumerate(found):
        alone = write(Table(1, table), ends=(END,), most=9, sampling=sampling, choices=drawing(sampling, [seed]))
        assert alone == [row]
        assert END not in row.ids[:-1]
        assert row.ids[-1] == END or len(row.ids) == 9
        expected = sum(logp[before, token].item() for before, token in zip((0, *row.ids), row.ids, strict=False))
        assert math.isclose(row.logprob, expected, abs_tol=1e-9)


def test_the_likeliest_tokens_need_no_seed() -> None:
    table = torch.tensor([[0.0, 1.0, 2.0], [0.0, 0.0, 0.0], [0.0, 3.0, 2.0]])
    (row,) = write(Table(1, table), ends=(END,), most=5, sampling=None, choices=drawing(None, [7]))
    assert row.ids == (2, 1)


@pytest.mark.parametrize(
    "more",
    [{}, {"feed_forward_proj": "gated-gelu"}, {"num_decoder_layers": 1, "relative_attention_num_buckets": 4}],
)
def test_a_decoder_that_remembers_computes_what_the_whole_pass_does(more: dict[str, object]) -> None:
    """Over more tokens than there are buckets of places, with padded prompts, after rows have left."""
    torch.manual_seed(0)
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_heads": 4, "num_layers": 2, "vocab_size": 30}
    t5 = T5ForConditionalGeneration(T5Config(**(sizes | {"pad_token_id": 0} | more))).eval()
    states, tokens = torch.randn(3, 7, 16), torch.randint(2, 30, (3, 12))
    mask = (torch.arange(7) < torch.tensor([7, 4, 5])[:, None]).long()
    with torch.no_grad():
        for parameter in t5.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
        expected = t5(
            encoder_outputs=BaseModelOutput(last_hidden_state=states),
            attention_mask=mask,
            decoder_input_ids=torch.cat([torch.zeros(3, 1, dtype=torch.long), tokens], dim=1),
        ).logits
        decoder = T5Decoder(ActingT5(t5), states, mask, 13, lambda logits: logits)
        rows = torch.arange(3)
        assert torch.allclose(decoder.first(), expected[:, 0], atol=1e-4)
        for place in range(12):
            if place == 4:
                rows = torch.tensor([0, 2])
                decoder.keep(rows)
            found = decoder.following(tokens[rows, place])
            assert torch.allclose(found, expected[rows, place + 1], atol=1e-4), place


def test_half_precision_is_decoded_in_half_precision() -> None:
    torch.manual_seed(0)
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_heads": 4, "num_layers": 2, "vocab_size": 30}
    t5 = T5ForConditionalGeneration(T5Config(**sizes, pad_token_id=0)).eval().to(torch.bfloat16)
    states, mask = torch.randn(2, 7, 16, dtype=torch.bfloat16), torch.ones(2, 7, dtype=torch.long)
    with torch.no_grad():
        expected = t5(
            encoder_outputs=BaseModelOutput(last_hidden_state=states),
            attention_mask=mask,
            decoder_input_ids=torch.tensor([[0, 5], [0, 9]]),
        ).logits.float()
        decoder = T5Decoder(ActingT5(t5), states, mask, 2, lambda logits: logits.float())
        for place, found in enumerate((decoder.first(), decoder.following(torch.tensor([5, 9])))):
            assert (found - expected[:, place]).abs().max() < 0.03 * expected.abs().max()
