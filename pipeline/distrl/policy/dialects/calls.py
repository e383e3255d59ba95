r"""Actions written as one call: name(argument='text', other=[1, 2]).

A scanner and not Python's own: nothing is evaluated or nested, and each character is looked at a bounded number of
times. Values are strings in ' or ", and lists or tuples of two to four numbers. In a string \n, \r, \t, \\, \', \",
\xhh and \uhhhh are escapes, and any other backslash is itself. An apostrophe between two letters, as in 'I'm here',
ends no string: models forget to escape it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

Value = str | tuple[float, ...]

NUMBER: Final = r"-?[0-9]{1,20}(?:\.[0-9]{1,20})?"
NUMBERS: Final = rf"{NUMBER}(?:\s*,\s*{NUMBER}){{1,3}}"
"""Two to four of them, with commas between."""

_HEAD: Final = re.compile(r"([A-Za-z_]\w*)\(\s*")
_ARGUMENT: Final = re.compile(
    r"([A-Za-z_]\w*)\s*=\s*(?:"
    r"'((?:[^'\\]|\\.|(?<=\w)'(?=\w))*+)'"
    r'|"((?:[^"\\]|\\.)*+)"'
    rf"|\[\s*({NUMBERS})\s*\]|\(\s*({NUMBERS})\s*\))\s*(,\s*|\))",
    re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPED: Final = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", "'": "'", '"': '"'}


class Call(NamedTuple):
    name: str
    arguments: Mapping[str, Value]


def call_marker(*names: str) -> str:
    """A pattern of where a call of one of `names` begins: not a word with a parenthesis in a thought, as type(s).

    To be compiled with re.ASCII: a Chinese thought may end right before it, without a space or a full stop.
    """
    return rf"\b(?:{'|'.join(names)})\((?=\s*(?:\w+\s*=|\)))"


def read_call(text: str, start: int) -> tuple[Call, int]:
    """The call that begins at `start`, and where it ends. Raises ValueError where none does, or it is not finished."""
    head = _HEAD.match(text, start)
    if head is None:
        raise ValueError("no call")
    at = head.end()
    arguments: dict[str, Value] = {}
    if text.startswith(")", at):
        return Call(head[1], arguments), at + 1
    while found := _ARGUMENT.match(text, at):
        name, single, double, listed, tupled, next_ = found.groups()
        if name in arguments:
            raise ValueError(f"{name} occurs twice")
        arguments[name] = _value(single, double, listed or tupled)
        at = found.end()
        if next_ == ")":
            return Call(head[1], arguments), at
    raise ValueError("no call, or half of one")


def numbers_of(text: str) -> tuple[float, ...]:
    """All numbers in `text`, in order."""
    return tuple(float(number) for number in re.findall(NUMBER, text))


def quoted(text: str, quote: str) -> str:
    """`text` as a string of a call; `read_call` gives it again."""
    for plain, escape in (("\\", "\\\\"), (quote, "\\" + quote), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
        text = text.replace(plain, escape)
    return quote + text + quote


def _value(single: str | None, double: str | None, numbers: str | None) -> Value:
    if numbers is not None:
        return numbers_of(numbers)
    return _ESCAPE.sub(_unescaped, single if single is not None else double or "")


def _unescaped(found: re.Match[str]) -> str:
    code = found[1] or found[2]
    return chr(int(code, 16)) if code else _ESCAPED.get(found[3], found[0])
