"""An instruction must not spell a token that ends its turn."""

from __future__ import annotations

from types import SimpleNamespace

from distrl.policy.special_tokens import special_tokens, without
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken

TOKENS = ("<end>", "<e>", "<image>")


def test_an_added_token_that_is_text_is_none_and_neither_is_an_empty_one() -> None:
    added = [AddedToken("<e>", special=True), AddedToken("<tool_call>", special=False), AddedToken("", special=True)]
    tokenizer = SimpleNamespace(added_tokens_decoder=dict(enumerate(added)))
    assert special_tokens(tokenizer, ["<image>", "", "<end>"]) == ("<image>", "<end>", "<e>")


@given(st.lists(st.sampled_from((*TOKENS, "<", "e", "<en", "nd>", ">", "open"))).map("".join))
def test_a_text_spells_no_special_token_also_where_removing_one_makes_another(text: str) -> None:
    left = without(text, TOKENS)
    assert not any(each in left for each in TOKENS)
    assert left == text or any(each in text for each in TOKENS)
