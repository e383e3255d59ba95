"""The dialects by the name that a setting gives them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from distrl.policy.dialects.autoui import AutoUI
from distrl.policy.dialects.grid import pixels, thousandths
from distrl.policy.dialects.mobile_use import MobileUse
from distrl.policy.dialects.open_autoglm import OpenAutoGLM
from distrl.policy.dialects.plain_json import PlainJson
from distrl.policy.dialects.protocol import Dialect
from distrl.policy.dialects.ui_tars import UITars

DIALECTS: Final[Mapping[str, Dialect]] = MappingProxyType(
    {
        "autoui": AutoUI(),
        "json": PlainJson(),
        "open-autoglm": OpenAutoGLM(),
        "qwen25-mobile-use": MobileUse(pixels),
        "qwen3-mobile-use": MobileUse(thousandths),
        "ui-tars-1.0": UITars(thousandths, swipe="scroll"),
        "ui-tars-1.5": UITars(pixels, swipe="drag"),
    }
)
