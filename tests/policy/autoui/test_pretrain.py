from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import mean

import pytest
from distrl.errors import PolicyError
from distrl.policy.autoui.base import load_base
from distrl.policy.autoui.pretraining.examples import Asking, copy_example
from distrl.policy.autoui.pretraining.recipe import Recipe, Stage
from distrl.policy.autoui.pretraining.screens import draw_screens, phone_language, phone_tokenizer
from distrl.policy.autoui.pretraining.train import train
from simphone.words import ALL

TINY = Recipe(
    threads=1,
    screens_to_touch=24,
    reading=Stage(3, 8, 4e-3),
    acting=Stage(3, 8, 3e-3),
    tower=(8, 16, 16, 16),
    d_model=32,
    d_ff=32,
)
FORBIDDEN = frozenset({("red", "lamp")})


def test_equal_seeds_make_equal_models_and_the_recipe_is_written_beside_them(tmp_path: Path) -> None:
    first = train(tmp_path / "first", TINY, FORBIDDEN)
    again = train(tmp_path / "again", TINY, FORBIDDEN)
    other = train(tmp_path / "other", replace(TINY, seed=1), FORBIDDEN)
    assert first.base_sha256 == again.base_sha256 != other.base_sha256
    assert load_base(tmp_path / "first").sha256 == first.base_sha256
    assert "red lamp" in (tmp_path / "first" / "recipe.json").read_text()
    assert [loss["update"] for loss in first.losses] == [3, 3], "one line for each stage's last update"


def test_the_tower_learns_to_spell_and_then_to_read(tmp_path: Path) -> None:
    reading = Stage(400, 16, 4e-3, warmup=5)
    report = train(tmp_path / "longer", replace(TINY, free_to_read=0.0, reading=reading), FORBIDDEN)
    spell, read = ([losses[name] for losses in report.losses if "read" in losses] for name in ("spell", "read"))
    assert spell[1] < 0.2 * spell[0], "after 100 updates"
    frequencies = mean(read[:3])  # which words are frequent is learned at once, and says nothing about a screen
    assert mean(read[-3:]) < 0.92 * frequencies


def test_a_model_can_be_made_with_more_words_which_it_reads_on_screens_and_copies(tmp_path: Path) -> None:
    more = ("norway", "taxi.com", "zebra")
    report = train(tmp_path / "more", TINY, FORBIDDEN, more, more[:2])
    base = load_base(tmp_path / "more")
    codec = base.tokenizer
    assert (base.sha256, codec.words) == (report.base_sha256, (*phone_tokenizer().words, *more))
    assert set(ALL) < set(codec.words)
    screens = draw_screens(600, Random(0), FORBIDDEN, 1.0, more)
    assert set(more) <= {word for screen in screens for target in screen.targets for word in target.words}
    language = phone_language(FORBIDDEN, more[:2], more)
    typed = {copy_example(Asking(codec, language, Random(n), clutter=0.0), 0).action for n in range(400)}
    copied = {word for ids in typed for word in codec.decode_action(ids).text.split()}
    assert set(more[:2]) <= copied
    assert "zebra" in language.fillers
    assert "zebra" not in copied


def test_a_model_is_never_written_over(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "model.safetensors").write_bytes(b"mine")
    with pytest.raises(PolicyError):
        train(tmp_path / "kept", TINY, FORBIDDEN)
    assert (tmp_path / "kept" / "model.safetensors").read_bytes() == b"mine"
