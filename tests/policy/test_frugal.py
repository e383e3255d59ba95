from __future__ import annotations

import torch
from distrl.policy.frugal import cast_frozen
from torch import nn


class Routed(nn.Module):
    """As a model of the library that has experts."""

    _keep_in_fp32_modules_strict = ("gate", "bias.of_expert")

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.gated, self.trained = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)
        self.bias = nn.ParameterDict({"of_expert": torch.zeros(2), "of_experts": torch.zeros(2)})
        self.register_buffer("places", torch.zeros(2))


def test_what_a_model_wants_in_float32_stays_and_what_is_trained_and_its_buffers() -> None:
    model = Routed().requires_grad_(False)
    model.trained.requires_grad_(True)
    cast_frozen(model, torch.bfloat16)
    half = {name for name, each in model.state_dict().items() if each.dtype == torch.bfloat16}
    assert half == {"gated.weight", "gated.bias", "bias.of_experts"}
