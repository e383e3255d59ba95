"""How words find themselves on a screen. The words and the screens here are drawn: nothing has been trained."""

import copy
import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from distrl.policy.autoui.model import SOUGHT, AutoUIModel, Beside, Fusion, Shape, VisionTower
from distrl.policy.autoui.tokenizer import PAD
from torch import nn

WIDTH, WORDS = 64, 40
PAIRS = tuple(itertools.product((10, 11, 12), (20, 21, 22)))
"""Nine labels of two words, each of which stands in three."""
GRID = (len(PAIRS), 4)


@pytest.fixture
def fusion() -> Fusion:
    torch.manual_seed(0)
    return Fusion(WORDS, WIDTH)


def screen(fusion: Fusion) -> torch.Tensor:
    """(1, rows, 4, d): in each row a label, its first word in the first cell and its second in the second one."""
    content = torch.zeros(1, *GRID, WIDTH)
    for row, pair in enumerate(PAIRS):
        for column, word in enumerate(pair):
            content[0, row, column] = fusion.lexicon[word]
    return content


def rows_found(fusion: Fusion, sentence: list[int]) -> torch.Tensor:
    """(L, rows): how much of each row every word of the sentence takes up."""
    rows, columns = GRID
    places = torch.eye(rows, WIDTH).repeat_interleave(columns, dim=0)
    prompt = torch.tensor([sentence])
    words = torch.zeros(1, len(sentence), WIDTH)
    return fusion(words, prompt, screen(fusion), places)[0, :, :rows].detach()


@pytest.mark.parametrize("row", range(len(PAIRS)))
def test_a_pair_of_words_finds_the_row_where_both_stand(fusion: Fusion, row: int) -> None:
    found = rows_found(fusion, [5, *PAIRS[row], 6, PAD, PAD])
    assert found[1:3].argmax(dim=1).tolist() == [row, row], "each of the two words stands in two other rows as well"
    assert (found[1:3, row] > 0.6).all()


def test_a_word_that_is_not_on_the_screen_finds_no_place(fusion: Fusion) -> None:
    assert rows_found(fusion, [5, 6, 7]).max() < 0.3, "and of one that is there more than 0.6 lies in its row"


def test_a_word_looks_for_others_only_as_it_has_learned_to() -> None:
    torch.manual_seed(0)
    fusion = Fusion(WORDS, WIDTH, seeks=True)
    sentence = [5, *PAIRS[4], 6]
    torch.manual_seed(0)
    assert torch.equal(rows_found(fusion, sentence), rows_found(Fusion(WORDS, WIDTH), sentence)), "nothing learned yet"
    assert fusion.seeks is not None
    with torch.no_grad():
        fusion.seeks[5] = fusion.lexicon[10] / SOUGHT
    found = rows_found(fusion, [5, 6])
    assert found[0, :3].sum() > 0.6, "the rows where the other one stands"
    assert found[1].max() < 0.3


def test_padding_changes_no_word(fusion: Fusion) -> None:
    short = rows_found(fusion, [10, 21])
    assert torch.allclose(rows_found(fusion, [10, 21, PAD, PAD, PAD])[:2], short, atol=1e-6)


def test_a_token_stands_for_the_pixels_that_its_shape_says() -> None:
    shape = Shape(WORDS, 128, 256, (8, 16), d_model=32, d_ff=32, heads=2)
    assert shape.grid == (32, 16)
    features = AutoUIModel(shape).features(torch.zeros(3, 256, 128, dtype=torch.uint8))
    assert features.shape == (1, 32 * 16, 32)


def test_a_convolution_of_tokens_sees_further_along_their_row_alone() -> None:
    torch.manual_seed(0)
    tokens, marked = torch.zeros(2, 1, 16, 5, 9)
    marked[..., 2, 4] = 1
    for layers, seen in ((1, 3), (2, 5)):
        along = nn.Sequential(*(Beside(16) for _ in range(layers)))
        for layer in along:
            layer.norm = nn.Identity()  # which sees all tokens, as every normalisation of the tower does
        with torch.no_grad():
            changed = (along(marked) - along(tokens)).abs().amax((0, 1)) > 0
        assert changed.any(1).tolist() == [False, False, True, False, False]
        assert int(changed.sum()) == seen


def test_a_token_of_two_words_says_so_where_reading_is_sharp() -> None:
    """Of 500 words in 96 dimensions the other 498 have half of the odds at a sharpness of 1."""
    odds = []
    for sharpness in (1.0, 2.0):
        torch.manual_seed(0)
        fusion = Fusion(500, 96, sharpness)
        both = F.layer_norm(fusion.lexicon[10] + fusion.lexicon[20], (96,))
        odds.append(float(fusion.read(both).softmax(-1)[[10, 20]].sum()))
    assert odds[0] < 0.7
    assert odds[1] > 0.95


def test_a_model_of_before_reading_could_be_sharp_reads_with_equal_bits() -> None:
    torch.manual_seed(0)
    fusion, content = Fusion(500, 96), torch.randn(3, 128, 96)
    assert torch.equal(fusion.read(content), content @ fusion.lexicon.T / math.sqrt(96))


@pytest.mark.parametrize("tower", [(8,), (8, 8, 16), (16, 32, 64, 96)])
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_how_pixels_and_weights_lie_in_memory_changes_no_bit(tower: tuple[int, ...], rows: int) -> None:
    """A loaded base model has its weights as its pixels lie; it was trained, and acted before, with them otherwise."""
    torch.manual_seed(0)
    plain = VisionTower(Shape(8, 64, 128, tower, d_model=32, beside=1)).eval()
    packed = copy.deepcopy(plain).to(memory_format=torch.channels_last)
    lines = torch.randint(0, 256, (rows, 128, 64, 3), dtype=torch.uint8).permute(0, 3, 1, 2)
    with torch.no_grad():
        expected = plain(lines.contiguous())
        assert torch.equal(packed(lines), expected)
        assert torch.equal(packed(lines.contiguous()), expected)
