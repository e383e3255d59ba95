"""The keyboards of a simulated phone: Android's own, and ADBKeyBoard where it is installed.

ADBKeyBoard (github.com/senzhk/ADBKeyBoard) types the text of a broadcast while it is selected; otherwise the text is
lost, and the broadcast is still reported as completed.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import MutableMapping
from typing import Final

OWN: Final = "com.android.inputmethod.latin/.LatinIME"
SERVICE: Final = "com.android.adbkeyboard/.AdbIME"
ACTION: Final = "ADB_INPUT_B64"
SELECTED: Final = ("secure", "default_input_method")
"""The setting with the selected keyboard."""


class Keyboards:
    """service: whether ADBKeyBoard is installed. settings: the phone's, which store the selected one.

    Changed by the thread that serves the phone.
    """

    def __init__(self, settings: MutableMapping[tuple[str, str], str], *, service: bool) -> None:
        self._settings = settings
        self.enabled = (OWN, SERVICE) if service else (OWN,)
        settings[SELECTED] = OWN

    @property
    def selected(self) -> str:
        return self._settings.get(SELECTED, "null")

    def select(self, name: str) -> None:
        """Raises ValueError for a keyboard that is not enabled, as Android does."""
        if name not in self.enabled:
            raise ValueError(f"Unknown input method {name} cannot be selected for user #0")
        self._settings[SELECTED] = name

    def heard(self, action: str, package: str, message: str | None) -> str | None:
        """The text that a broadcast to `package` ("" for all) has the selected keyboard type, if it does.

        message: its extra `msg`. Raises ValueError if it is not text.
        """
        if self.selected != SERVICE or action != ACTION or message is None:
            return None
        if package not in ("", SERVICE.partition("/")[0]):
            return None
        try:
            return base64.b64decode(message, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError) as error:
            raise ValueError(f"the keyboard breaks on {message[:40]!r}: {error}") from error
