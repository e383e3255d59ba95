"""Names of adapters at a server.

    <run>-v<version>-<first 8 digits of the sha256 of its bytes>

A server caches what it has computed under a name, and vLLM keeps using the cache after other weights are loaded under
the same name (https://github.com/vllm-project/vllm/issues/42125). So a name stands for one adapter for ever.
"""

from __future__ import annotations

import re

from distrl.types import Version

DIGITS = 8


def name_of(run: str, version: Version) -> str:
    return f"{run}-v{version.version}-{version.adapter.sha256[:DIGITS]}"


def is_of(run: str, name: str) -> bool:
    """Whether `name` is of an adapter of `run`, and not of a run whose name begins alike."""
    return re.fullmatch(rf"{re.escape(run)}-v[0-9]+-[0-9a-f]{{{DIGITS}}}", name) is not None
