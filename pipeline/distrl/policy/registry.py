"""The families of policies. A base model's config.json names its family, or is that of a vision-language model of the
Hugging Face library.

Another package adds a family with an entry point of the group `distrl.policies`: its name is the format that the
family's base models have in their config.json, its object is a `PolicyFamily`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from distrl import config as settings
from distrl import plugins
from distrl.errors import PolicyError
from distrl.policy.autoui.directory import FORMAT
from distrl.policy.autoui_t5.directory import FORMAT as T5_FORMAT
from distrl.policy.files import CONFIG, HINT, parsed, read
from distrl.policy.hub import located
from distrl.policy.protocol import Policy, Tokenizer
from distrl.policy.recurrent_q.directory import FORMAT as Q_FORMAT

if TYPE_CHECKING:
    import torch

SHIPPED: Final = Path(__file__).parent / "autoui" / "shipped"
"""The tiny base model that comes with the package."""

ASKED_LATER: Final = {
    "earlier_screens": (
        "does not say how many earlier screenshots a decision reads",
        "let it say 0, and take `earlier` in `decide` and `index` in its tokenizer's `accepts`",
    ),
    "looks_beside": ("does not say whether it may look at a screenshot while it is trained", "let it say False"),
}
"""Members that were added to the protocol later -> what a policy without one lacks, and how to add it."""


TRAINED: Final = "torch.float32"
"""Weights that are trained: NumPy, and so a checkpoint, has no bfloat16."""


@dataclass(frozen=True, slots=True)
class PolicyFamily:
    """What a family does with the directory of a base model. Each raises PolicyError where the directory is spoilt.

    tokenizer: needs no torch. policy: with a fresh adapter, which changes nothing and depends on the seed alone.
    identity: sha256 (hex) of all that decides what the base model does. reads_earlier_screens: whether its decisions
    read `policy.history_screens` screenshots before the present one.
    """

    tokenizer: Callable[[Path, settings.PolicySettings], Tokenizer]
    policy: Callable[[Path, settings.PolicySettings, int], Policy]
    identity: Callable[[Path], str]
    reads_earlier_screens: bool = False


def tokenizer_of(policy: settings.PolicySettings) -> Tokenizer:
    """The tokenizer of the base model that the settings name, or of the shipped one. Raises PolicyError."""
    directory = _directory(policy)
    found = _able_family(directory, policy).tokenizer(directory, policy)
    plugins.refuse_lacking(found, Tokenizer, PolicyError)
    return found


def policy_of(policy: settings.PolicySettings, seed: int = 0, device: torch.device | None = None) -> Policy:
    """The base model that the settings name, with an adapter that changes nothing yet. Raises PolicyError, and
    ComputeError where it does not fit into the memory of `device`.

    device: where it computes; None is the CPU.
    """
    directory = _directory(policy)
    family = _able_family(directory, policy)
    found = family.policy(directory, policy, seed)
    for name, (lacks, fix) in ASKED_LATER.items():
        if not hasattr(found, name):  # another package's, of before that was asked
            raise PolicyError(
                f"{type(found).__module__}.{type(found).__name__}",
                f"{lacks} (Policy.{name})",
                f"{fix}: distrl.policy.protocol",
            )
    plugins.refuse_lacking(found, Policy, PolicyError)
    plugins.refuse_lacking(found.tokenizer, Tokenizer, PolicyError)
    for name, parameter in found.parameters().items():
        if str(parameter.dtype) != TRAINED:
            raise PolicyError(
                f"{type(found).__module__}.{type(found).__name__}",
                f"trains {name} in {parameter.dtype}, which no checkpoint can hold",
                "keep what is trained in torch.float32, whatever the frozen weights are in",
            )
    if (identity := family.identity(directory)) != found.base_sha256:
        raise PolicyError(
            str(directory),
            f"has changed while it was loaded: it is {identity[:12]} now, and what was loaded {found.base_sha256[:12]}",
            "start this again once all of the model is there; where it never changed, it is of another package, whose "
            "policy names it otherwise than its family: Policy.base_sha256",
        )
    if device is not None:
        from distrl.accelerator import placing

        with placing(device):
            found.place(device)
    return found


def base_sha256(policy: settings.PolicySettings) -> str:
    """The identity of the base model that the settings name. Raises PolicyError."""
    directory = _directory(policy)
    return _family(directory).identity(directory)


def package_of(policy: settings.PolicySettings) -> str:
    """The package, by its name at import, whose code reads the base model that the settings name. Raises PolicyError
    where two have its format."""
    name = _format(_directory(policy))
    plugin = None if name in FAMILIES else plugins.entry(plugins.POLICIES, name, PolicyError)
    return plugins.OURS if plugin is None else plugins.package_of(plugin)


def _directory(policy: settings.PolicySettings) -> Path:
    return SHIPPED if policy.base_model is None else located(policy.base_model)


def _able_family(directory: Path, policy: settings.PolicySettings) -> PolicyFamily:
    """Raises PolicyError for one that cannot do what the settings ask for."""
    family = _family(directory)
    if policy.history_screens and not family.reads_earlier_screens:
        raise PolicyError(
            "policy.history_screens",
            f"is {policy.history_screens}, and the policy in {directory} reads one screenshot, or all",
            "set it to 0, or name a vision-language model or the paper's AutoUI in policy.base_model",
        )
    return family


def _family(directory: Path) -> PolicyFamily:
    name = _format(directory)
    if name in FAMILIES:
        return FAMILIES[name]()
    plugin = plugins.entry(plugins.POLICIES, name, PolicyError)
    if plugin is None and _is_vision_language(name):
        from distrl.policy.vlm.family import VLM

        return VLM
    if plugin is None:
        known = ", ".join(sorted({*FAMILIES, *plugins.names(plugins.POLICIES)}))
        raise PolicyError(
            str(directory / CONFIG),
            f"is of format {name!r:.60}, which no policy reads",
            f"formats: {known}, or a vision-language model of Hugging Face; {HINT}. One of another package is found "
            f"where that package is installed, by its entry point {name!r:.60} in the group {plugins.POLICIES}",
        )
    return plugins.instance(plugin, PolicyFamily, PolicyError)


def _format(directory: Path) -> str:
    """What the base model's config says of its family."""
    found = parsed(read(directory / CONFIG), directory / CONFIG)
    return str(found.get("format") or found.get("model_type"))


def _is_vision_language(model_type: str) -> bool:
    """Whether the transformers library has models of that type that read images and text."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

    return model_type in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES


def _autoui() -> PolicyFamily:
    from distrl.policy.autoui.family import AUTOUI

    return AUTOUI


def _autoui_t5() -> PolicyFamily:
    from distrl.policy.autoui_t5.family import AUTOUI_T5

    return AUTOUI_T5


def _recurrent_q() -> PolicyFamily:
    from distrl.policy.recurrent_q.family import RECURRENT_Q

    return RECURRENT_Q


FAMILIES: Final[Mapping[str, Callable[[], PolicyFamily]]] = {
    FORMAT: _autoui,
    T5_FORMAT: _autoui_t5,
    Q_FORMAT: _recurrent_q,
}
"""Those of this package, by the format of their base models."""
