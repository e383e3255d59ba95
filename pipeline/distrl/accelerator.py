"""The processor that a process computes on: a CPU, or a GPU through CUDA.

On one kind of processor the same log gives the same bits. On a GPU this takes deterministic kernels, products without
TF32, and cuBLAS workspaces of a fixed size, which must be set before cuBLAS starts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

import torch

from distrl.errors import ComputeError, ConfigError
from distrl.ranks.place import place_of
from distrl.text import first_line

CPU: Final = torch.device("cpu")

WORKSPACES: Final = "CUBLAS_WORKSPACE_CONFIG"
"""The environment variable that cuBLAS reads when it starts."""
DETERMINISTIC: Final = (":4096:8", ":16:8")
"""Values of WORKSPACES with which products are the same each time, by NVIDIA's documentation; the first is the faster
one."""

DETERMINISM: Final = "deterministic"
"""Part of torch's message about an operation without a deterministic kernel."""
CPU_MEMORY: Final = "DefaultCPUAllocator"
"""Part of torch's message where the CPU's memory is not enough; the error is a plain RuntimeError."""

PIXELS: Final = "policy.max_pixels"
SMALLER_PROMPTS: Final = f"a lower {PIXELS} or policy.history_screens"
HALF: Final = "policy.precision=bfloat16"
MORE: Final = "this run goes on where there is more memory on the same kind of processor"
"""Parts of the hints below."""


def device_of(chosen: str, setting: str) -> torch.device:
    """The device `chosen` by `setting`: auto, cpu, cuda or cuda:N. auto is the first GPU, or the CPU where there is
    none; of several ranks on a machine, each has the GPU of its number.

    Raises ConfigError where it is not there. A process asks before it computes anything.
    """
    if chosen == "cpu" or (chosen == "auto" and not torch.cuda.is_available()):
        return CPU
    if not torch.cuda.is_available():
        built = "finds no GPU" if torch.version.cuda else "is built without CUDA"
        raise ConfigError(setting, f"is {chosen}, and torch {torch.__version__} {built}", f"set {setting}=cpu or auto")
    device = torch.device(f"cuda:{_own_gpu()}" if chosen in ("auto", "cuda") else chosen)
    if (device.index or 0) >= (there := torch.cuda.device_count()):
        raise ConfigError(
            setting,
            f"is {chosen}, here {device}, and there are {there} GPUs",
            f"set {setting}=cuda:0 where each rank sees a GPU of its own alone, and start no more ranks on a machine "
            "than it has GPUs",
        )
    _make_exact()
    return device


def _own_gpu() -> int:
    """The number of this rank on its machine; 0 without ranks."""
    place = place_of(os.environ)
    return 0 if place is None else place.local_rank


def kind_of(device: torch.device) -> str:
    """What the bits of a result depend on: "cpu", or the GPU's name."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def gpu(chosen: str, setting: str) -> str:
    """The name of the GPU that `setting` chooses, which decides bits besides `processor_and_packages`; "" on the CPU.
    Raises ConfigError as `device_of`."""
    device = device_of(chosen, setting)
    return "" if device == CPU else kind_of(device)


@contextmanager
def explained(pass_rows: int) -> Iterator[None]:
    """Within, torch's errors about too little memory and about a missing deterministic kernel become a ComputeError.

    pass_rows: with a learner.microbatch below this number every pass is smaller.
    """
    fewer = pass_rows // 2
    where, lower = ("learner.microbatch", f"learner.microbatch={fewer}") if fewer else (PIXELS, SMALLER_PROMPTS)
    try:
        with enough_memory(where, "for a pass of the model", f"start a new run with {lower}, or {HALF}; {MORE}"):
            yield
    except RuntimeError as error:
        if _lacks_kernel(error):
            raise ComputeError(
                "learner.device",
                f"torch has no deterministic kernel there for a part of this model ({first_line(error)})",
                "set learner.device=cpu in a new run, or use another base model",
            ) from error
        raise


def is_explained(error: Exception) -> bool:
    """Whether `explained` says what fixes it."""
    return isinstance(error, RuntimeError) and (is_out_of_memory(error) or _lacks_kernel(error))


def placing(device: torch.device) -> AbstractContextManager[None]:
    """As `enough_memory`, for moving a model to `device`."""
    hint = f"begin a run with {HALF}, which takes half, or set the learner.device or worker.device of this process to "
    return enough_memory("policy.base_model", f"on {device} for the model", f"{hint}cpu or a GPU with more memory")


def looking() -> AbstractContextManager[None]:
    """As `enough_memory`, for the features of one screenshot."""
    return enough_memory(PIXELS, "to look at a screenshot", f"start a new run with a lower {PIXELS}, or {HALF}; {MORE}")


def deciding(rows: int) -> AbstractContextManager[None]:
    """As `enough_memory`, for `rows` actions that are decided at once."""
    fewer = "give this process fewer phones, whose decisions share a batch; " if rows > 1 else ""
    return enough_memory(
        "worker.device",
        f"to decide {rows} actions at once" if rows > 1 else "to decide an action",
        f"{fewer}set worker.device to cpu or a GPU with more memory, or start a new run with {SMALLER_PROMPTS}, or "
        f"{HALF}",
    )


@contextmanager
def enough_memory(where: str, doing: str, hint: str) -> Iterator[None]:
    """Within, torch's errors about too little memory become a ComputeError."""
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise ComputeError(where, f"memory is not enough {doing} ({first_line(error)})", hint) from error


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether torch says that there is not enough memory, on a GPU or on the CPU."""
    return isinstance(error, torch.OutOfMemoryError) or CPU_MEMORY in str(error)


def _lacks_kernel(error: RuntimeError) -> bool:
    """Whether torch says that it has no deterministic kernel."""
    return DETERMINISM in str(error)


def _make_exact() -> None:
    """Have CUDA compute the same each time, in full float32. Raises ConfigError where WORKSPACES has another value."""
    if (found := os.environ.setdefault(WORKSPACES, DETERMINISTIC[0])) not in DETERMINISTIC:
        raise ConfigError(
            WORKSPACES,
            f"is {found}, with which products of matrices differ from run to run",
            f"leave it unset, or set it to {DETERMINISTIC[0]}",
        )
    cudnn: Any = torch.backends.cudnn
    for products in (torch.backends.cuda.matmul, cudnn.conv, cudnn.rnn):
        products.fp32_precision = "ieee"
    torch.backends.cudnn.benchmark = False
