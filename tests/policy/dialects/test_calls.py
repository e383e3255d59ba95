from __future__ import annotations

import pytest
from distrl.policy.dialects.calls import Call, quoted, read_call
from hypothesis import given
from hypothesis import strategies as st


@given(st.text(), st.sampled_from("'\""), st.sampled_from(["", " ", "\n"]))
def test_a_quoted_text_is_read_to_the_letter(text: str, quote: str, space: str) -> None:
    call = f"f({space}a{space}={space}{quoted(text, quote)}{space},b=[1,{space}2]{space})"
    assert read_call(call, 0) == (Call("f", {"a": text, "b": (1.0, 2.0)}), len(call))


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("f()", {}),
        ("f( )", {}),
        ("f(a=(1,2,3,4))", {"a": (1.0, 2.0, 3.0, 4.0)}),
        ("f(a=[-1.5, 2])", {"a": (-1.5, 2.0)}),
        (r"f(a='\\\'\n\t\q\x4')", {"a": "\\'\n\t\\q\\x4"}),
        ("f(a='it's')", {"a": "it's"}),
        ('f(a="")', {"a": ""}),
    ],
)
def test_what_a_call_is(text: str, arguments: dict[str, object]) -> None:
    assert read_call("… " + text + " …", 2) == (Call("f", arguments), 2 + len(text))


@pytest.mark.parametrize(
    "text",
    [
        *("f", "f(", "f (a='b')", "f(a)", "f('b')", "f(a='b'", "f(a='b)", "f(a='b\\')", "f(a='b',)", "f(a='b' c='d')"),
        *("f(a=1)", "f(a=[1])", "f(a=[1,2)", "f(a=[1,2,3,4,5])", "f(a=[1e3,2])", "f(a=[1,[2]])", "f(a=g())", "f(a=b)"),
        *("f(a='b', a='b')", "f(**a)", "1(a='b')", "f(a=f'b')", "f(a='b'+'c')", 'f(a="b"c")'),
        f"f(a=[{'9' * 21},1])",
    ],
)
def test_what_a_call_is_not(text: str) -> None:
    with pytest.raises(ValueError, match=r"call|twice"):
        read_call(text, 0)
