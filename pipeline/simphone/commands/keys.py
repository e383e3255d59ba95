"""The keys of `input keyevent`: numbers and names as android.view.KeyEvent has them, without KEYCODE_.

Only keys that drivers press. No letters and digits: this phone's fields take text only from `input text`, and a key
that is accepted and types nothing would mislead.
"""

from __future__ import annotations

from typing import Final

BY_NAME: Final[dict[str, int]] = {
    "SOFT_LEFT": 1, "SOFT_RIGHT": 2, "HOME": 3, "BACK": 4, "CALL": 5, "ENDCALL": 6, "DPAD_UP": 19, "DPAD_DOWN": 20,
    "DPAD_LEFT": 21, "DPAD_RIGHT": 22, "DPAD_CENTER": 23, "VOLUME_UP": 24, "VOLUME_DOWN": 25, "POWER": 26,
    "CAMERA": 27, "CLEAR": 28, "ALT_LEFT": 57, "ALT_RIGHT": 58, "SHIFT_LEFT": 59, "SHIFT_RIGHT": 60, "TAB": 61,
    "EXPLORER": 64, "ENVELOPE": 65, "ENTER": 66, "DEL": 67, "HEADSETHOOK": 79, "MENU": 82, "NOTIFICATION": 83,
    "SEARCH": 84, "MEDIA_PLAY_PAUSE": 85, "MEDIA_STOP": 86, "MEDIA_NEXT": 87, "MEDIA_PREVIOUS": 88, "MUTE": 91,
    "PAGE_UP": 92, "PAGE_DOWN": 93, "ESCAPE": 111, "FORWARD_DEL": 112, "CTRL_LEFT": 113, "CTRL_RIGHT": 114,
    "MOVE_HOME": 122, "MOVE_END": 123, "NUMPAD_ENTER": 160, "VOLUME_MUTE": 164, "APP_SWITCH": 187,
    "BRIGHTNESS_DOWN": 220, "BRIGHTNESS_UP": 221, "SLEEP": 223, "WAKEUP": 224, "SOFT_SLEEP": 276,
}  # fmt: skip
BY_CODE: Final[dict[int, str]] = {code: name for name, code in BY_NAME.items()}
