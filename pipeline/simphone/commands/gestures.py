"""`input`: taps, swipes, keys and text. Typed text is only data and never parsed.

Text replaces what the field held, so that an agent can correct a mistake; `input keyboard text`, which is the same to
Android, goes on with the text before it, of which a line may hold but a part.
"""

from __future__ import annotations

from typing import Final

from simphone.commands.base import CommandError, CommandResult, Invocation
from simphone.commands.keys import BY_CODE, BY_NAME
from simphone.handset import Handset
from simphone.machine import Key, Swipe, Tap, Text

SWIPE_MS: Final = 300
"""Android's default duration of a swipe."""
LONGEST_SWIPE_MS: Final = 10_000
MOST_KEYS: Final = 512
"""Most keys of one command: drivers clear fields with hundreds of DEL."""
SOURCES: Final = frozenset({"touchscreen", "keyboard", "mouse", "stylus", "touchpad", "dpad", "trackball", "joystick",
                            "gamepad", "touchnavigation", "rotaryencoder"})  # fmt: skip
KEYBOARD: Final = "keyboard"
TYPING: Final = (("input", "text"), ("input", KEYBOARD, "text"))
DISPLAYS: Final = frozenset({"0", "DEFAULT_DISPLAY", "INVALID_DISPLAY"})
USAGE: Final = (
    "usage: input [SOURCE] [-d 0] tap X Y | swipe X0 Y0 X1 Y1 [MS] | draganddrop X0 Y0 X1 Y1 [MS] | "
    "text TEXT | keyevent [--longpress] CODE …"
)


async def run_input(phone: Handset, call: Invocation) -> CommandResult:
    args = list(call.args)
    source = args.pop(0) if args and args[0] in SOURCES else ""
    if len(args) > 1 and args[0] == "-d":
        if args[1] not in DISPLAYS:
            raise CommandError(f"there is no display {args[1]!r}; this phone has display 0")
        del args[:2]
    match args:
        case ["tap", x, y]:
            await phone.act(Tap(_pixel(x), _pixel(y)))
        case ["swipe" | "draganddrop", x0, y0, x1, y1, *rest] if len(rest) <= 1:
            milliseconds = min(_pixel(rest[0]), LONGEST_SWIPE_MS) if rest else SWIPE_MS
            swipe = Swipe(_pixel(x0), _pixel(y0), _pixel(x1), _pixel(y1))
            await phone.act(swipe, max(0, milliseconds) / 1000)
        case ["text", *pieces] if pieces:
            text = "".join(piece.replace("%s", " ") for piece in pieces)
            await phone.act(Text(phone.entry + text if source == KEYBOARD else text))
        case ["keyevent", "--longpress" | "--doubletap" | "--async", *codes] if codes:
            await _press(phone, codes)
        case ["keyevent", *codes] if codes:
            await _press(phone, codes)
        case _:
            raise CommandError(USAGE)
    return CommandResult()


async def _press(phone: Handset, codes: list[str]) -> None:
    """Checks all keys before the first is pressed."""
    if len(codes) > MOST_KEYS:
        raise CommandError(f"{len(codes)} keys; at most {MOST_KEYS} are pressed at once")
    for key in [_key(code) for code in codes]:
        await phone.act(Key(key))


def _pixel(word: str) -> int:
    """A coordinate (or a number of milliseconds); fractions are dropped, as by Android."""
    try:
        return int(float(word))
    except (ValueError, OverflowError) as error:
        raise CommandError(f"{word!r} is no number") from error


def _key(code: str) -> str:
    """The name of a key given by number, by name or with Android's prefix."""
    numbered = code.isascii() and code.isdecimal()
    name = BY_CODE.get(int(code[:6]), "") if numbered else code.removeprefix("KEYCODE_")
    if name not in BY_NAME:
        raise CommandError(f"unknown key {code!r}; text is typed with `input text`")
    return "ENTER" if name == "NUMPAD_ENTER" else name


COMMANDS = {"input": run_input}
