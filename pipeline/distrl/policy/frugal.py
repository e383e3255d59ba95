"""Saves memory for large models: frozen weights of half the size, and layers that are computed a second time for their
gradient."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer


def cast_frozen(module: nn.Module, dtype: torch.dtype) -> None:
    """Cast the weights of `module` that are not trained, except those that a model of the library wants in float32,
    such as a router to experts. Buffers stay as they are: position encodings need float32."""
    wide = getattr(module, "_keep_in_fp32_modules_strict", None) or ()
    stays = [re.compile(rf"(^|\.){re.escape(name)}($|\.)") for name in wide]
    for name, parameter in module.named_parameters():
        if any(each.search(name) for each in stays):
            continue
        if parameter.is_floating_point() and not parameter.requires_grad:
            parameter.data = parameter.data.to(dtype)


def recompute_layers(module: nn.Module) -> bool:
    """Make each layer of a transformer keep its input only and compute the rest again for the gradient. Returns whether
    there was a layer that did not do so yet.

    Not by the library's own switch: that does nothing while a model is not in training mode, as without dropout.
    The same kernels run on the same input, with the same random numbers, so the gradient is the same bit for bit.
    """
    found: list[Any] = [layer for layer in module.modules() if isinstance(layer, GradientCheckpointingLayer)]
    layers = [layer for layer in found if not isinstance(layer.forward, partial)]
    for layer in layers:
        # Not by its own method, which holds the layer: nobody would free its weights but a collection of all garbage.
        layer.forward = partial(_recomputed, weakref.ref(layer))
    return bool(layers)


def _recomputed(layer: Callable[[], nn.Module | None], *given: Any, **named: Any) -> Any:
    whole = layer()
    assert whole is not None, "it is called by itself"
    forward = partial(type(whole).forward, whole)
    if not torch.is_grad_enabled():
        return forward(*given, **named)
    return checkpoint(forward, *given, use_reentrant=False, **named)
