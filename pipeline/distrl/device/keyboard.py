"""Types a model's text on a phone, literally: no character is lost, and none is executed by a shell.

`input text` types printable ASCII and reads %s as a space. It cannot type the two characters "%s", so text with them is
split between the two into two commands. Other text goes through ADBKeyBoard, an input method that types the text of a
broadcast (github.com/senzhk/ADBKeyBoard), in base64, so that no shell sees it.
"""

from __future__ import annotations

import base64
import logging
import re
import shlex
import time
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from distrl.device.adb_protocol import Deadline
from distrl.device.errors import ActionRefused, DeviceGarbage, DeviceRefused
from distrl.errors import DeviceError

log = logging.getLogger(__name__)

MAX_CHARACTERS: Final = 2000
"""More than any field needs; a command line is limited too."""
PIECE_CHARACTERS: Final = 200
"""Most characters of one `input text`, which has the deadline of one operation. After a time-out the phone still types
the rest of a command, so a command is short."""
COMMANDS_PER_LINE: Final = 4
"""Most commands of one operation: a phone may take a second to begin one."""
BEGIN: Final = "input text"
GO_ON: Final = "input keyboard text"
"""The same as BEGIN to Android, where the keyboard is the source unless another one is named. A simulated phone
replaces a field's text with BEGIN and appends to it with GO_ON."""
PACKAGE: Final = "com.android.adbkeyboard"
SERVICE: Final = f"{PACKAGE}/.AdbIME"
UP_S: Final = 2.0
"""Longest wait for the service to be bound to a text field. If no field has the focus it never is, and the text is
lost, as with `input text`."""
PUT_BACK_S: Final = 2.0
"""Deadline of selecting the phone's own keyboard after a failure, which may have used up the operation's time."""
POLL_S: Final = 0.02
NOTE: Final = "/data/local/tmp/distrl-keyboard"
"""File on the phone that names its own keyboard while ADBKeyBoard is selected, for who comes after a process that was
killed meanwhile."""
_UNTYPABLE = re.compile(r"[^\x20-\x7e]")
_BETWEEN = re.compile(r"(?<=%)(?=s)")
_METHOD = re.compile(r"[A-Za-z][\w.]*/[\w.$]+", re.ASCII)
_SELECTED = re.compile(r"\bmCurId=(\S+)")
_BOUND = re.compile(r"\bmBoundToMethod=(true|false)")
"""In one line before Android 15."""
_WORDS = 200


class UntypableError(ValueError):
    """Text that cannot be typed; the message has the position and the reason."""

    hint = ""
    """What helps, whichever way the text is typed; empty where that depends on the way."""


class TooLongError(UntypableError):
    """More text than is typed at once, whatever it is."""

    hint = "type less at once"


def typing_lines(text: str) -> list[str]:
    """The command lines that type `text` with `input text`, one after the other; none for an empty text. Raises
    UntypableError."""
    _check_length(text)
    if found := _UNTYPABLE.search(text):
        raise UntypableError(
            f"character {found.start()} ({found.group()!a}) cannot be typed with `input text`; printable ASCII can"
        )
    every = [text[at : at + PIECE_CHARACTERS] for at in range(0, len(text), PIECE_CHARACTERS)]
    lines = [line for piece in every for line in _piece_lines(piece)]
    return [_command_line(GO_ON if number else BEGIN, line) for number, line in enumerate(lines)]


def _piece_lines(text: str) -> list[list[str]]:
    """What the commands of each line type."""
    parts = [part for part in _BETWEEN.split(text) if part]
    return [parts[at : at + COMMANDS_PER_LINE] for at in range(0, len(parts), COMMANDS_PER_LINE)]


def _command_line(command: str, parts: list[str]) -> str:
    return " && ".join(f"{command} {shlex.quote(part.replace(' ', '%s'))}" for part in parts)


def broadcast_line(text: str) -> str:
    """The command line that has ADBKeyBoard type `text`: any Unicode and newlines. Else raises UntypableError."""
    _check_length(text)
    for at, character in enumerate(text):
        kind = unicodedata.category(character)
        if (kind == "Cc" and character != "\n") or kind == "Cs":
            what = "a control character" if kind == "Cc" else "a lone surrogate"
            raise UntypableError(f"character {at} ({character!a}) is {what}, which cannot be typed")
    coded = base64.b64encode(text.encode()).decode()
    return f"am broadcast -a ADB_INPUT_B64 -p {PACKAGE} --es msg {shlex.quote(coded)}"


class KeyboardService:
    """ADBKeyBoard on one phone. ask: runs a command that must succeed, and returns its output. adb: the command line
    that reaches the phone, for hints.

    The phone's own keyboard is restored after each text. If the phone fails in between, call `put_back` later. Its
    first call also restores the keyboard that a process has left which was killed in between.
    """

    def __init__(self, ask: Callable[[str, Deadline], str], serial: str, adb: str) -> None:
        self._ask = ask
        self._serial = serial
        self._adb = adb
        self._previous: str | None = None
        self._is_note_read = False

    def type_text(self, text: str, deadline: Deadline) -> None:
        """Raises ActionRefused for text that the phone cannot type; nothing was typed. DeviceRefused if ADBKeyBoard is
        missing for text that `input text` could type: that is the setting's fault, not the text's.
        """
        try:
            line = broadcast_line(text)
        except UntypableError as error:
            raise ActionRefused(self._serial, str(error), error.hint or "type text and newlines only") from error
        if not text:
            return
        if SERVICE not in self._ask("ime list -s", deadline).split():
            refused = ActionRefused if _UNTYPABLE.search(text) else DeviceRefused
            raise refused(
                self._serial,
                f"this text cannot be typed with `input text`, and {SERVICE} is not an enabled keyboard",
                f"install ADBKeyBoard (github.com/senzhk/ADBKeyBoard): `{self._adb} install ADBKeyboard.apk`, then "
                f"`{self._adb} shell ime enable {SERVICE}`; or type printable ASCII only",
            )
        self._select(deadline)
        try:
            reply = self._ask(line, deadline)
            if "Broadcast completed" not in reply:
                raise DeviceGarbage(self._serial, f"`am broadcast` answered {reply[:_WORDS]!r}")
        except DeviceError:
            with suppress(DeviceError):  # the first is what went wrong; `put_back_keyboard` tries again
                self.put_back(Deadline(PUT_BACK_S))
            raise
        self.put_back(deadline)

    def put_back(self, deadline: Deadline) -> None:
        """Select the phone's own keyboard again, if we or a process before us have selected another one.

        If the phone refuses it, as if it was uninstalled, it is given up: a retry would not help.
        """
        if not self._is_note_read:
            noted = self._ask(f"cat {NOTE} 2>/dev/null || true", deadline).strip()
            if noted and self._previous is None:
                if _METHOD.fullmatch(noted) and self._selected(deadline) == SERVICE:
                    self._previous = noted
                else:  # a person has selected another one since
                    self._ask(f"rm -f {NOTE}", deadline)
            self._is_note_read = True
        if self._previous is not None:
            try:
                self._set(self._previous, deadline)
            except DeviceRefused as error:
                log.warning("%s keeps %s: %s; %s", self._serial, SERVICE, error.what, error.hint)
            self._ask(f"rm -f {NOTE}", deadline)
            self._previous = None

    def _select(self, deadline: Deadline) -> None:
        own = self._selected(deadline)
        if own == SERVICE:
            return
        if _METHOD.fullmatch(own):  # "null" if none was ever chosen
            # A phone that is full can type all the same.
            self._ask(f"echo {shlex.quote(own)} > {NOTE} || rm -f {NOTE}", deadline)
            self._previous = own
        self._set(SERVICE, deadline)
        until = Deadline(min(UP_S, deadline.remaining() / 2))
        while until.remaining() > 0 and not self._bound(deadline):
            time.sleep(POLL_S)

    def _selected(self, deadline: Deadline) -> str:
        return self._ask("settings get secure default_input_method", deadline).strip()

    def _set(self, method: str, deadline: Deadline) -> None:
        reply = self._ask(f"ime set {shlex.quote(method)}", deadline)
        if f"{method} selected" not in reply:  # Android before 8 exits with 0 all the same
            what = f"the keyboard {method} cannot be selected: {reply.strip()[:_WORDS]}"
            raise DeviceRefused(
                self._serial,
                what,
                f"see `{self._adb} shell ime list -a`; `{self._adb} shell ime set ID` selects another",
            )

    def _bound(self, deadline: Deadline) -> bool:
        state = self._ask("dumpsys input_method", deadline)
        selected, bound = _SELECTED.search(state), _BOUND.search(state)
        return selected is not None and selected[1] == SERVICE and bound is not None and bound[1] == "true"


def _check_length(text: str) -> None:
    if len(text) > MAX_CHARACTERS:
        raise TooLongError(f"{len(text)} characters to type; at most {MAX_CHARACTERS} are typed at once")
