from __future__ import annotations

import io
import struct
import zlib
from contextlib import nullcontext

import pytest
from distrl.device.screenshot import BlackImageError, BrokenImageError, OversizedImageError, verified
from distrl.errors import PolicyError, StoreError
from distrl.images import MAX_PIXELS, opened
from distrl.offline.runs import decoded_png
from distrl.policy.screenshot import decoded
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

REFUSALS = (OversizedImageError, PolicyError, StoreError, ValueError)


def png(width: int = 24, height: int = 40) -> bytes:
    picture = io.BytesIO()
    image = Image.new("RGB", (width, height), (200, 30, 30))
    image.putpixel((3, 5), (1, 2, 3))
    image.save(picture, "PNG")
    return picture.getvalue()


WHOLE = png()


def test_a_whole_picture_passes_with_its_size() -> None:
    shot = verified(WHOLE)
    assert (shot.png, shot.width, shot.height) == (WHOLE, 24, 40)


@given(st.integers(0, len(WHOLE) - 1))
def test_no_prefix_of_a_picture_passes(length: int) -> None:
    with pytest.raises(BrokenImageError):
        verified(WHOLE[:length])


@given(at=st.integers(0, len(WHOLE) - 1), flip=st.integers(1, 255))
def test_no_picture_with_a_changed_byte_passes(at: int, flip: int) -> None:
    with pytest.raises(BrokenImageError):
        verified(WHOLE[:at] + bytes([WHOLE[at] ^ flip]) + WHOLE[at + 1 :])


@pytest.mark.parametrize("profile", [b"", b"icc\0"])
def test_a_colour_profile_that_ends_too_soon_is_a_broken_picture(profile: bytes) -> None:
    """Its checksum is right; Pillow raises IndexError for it behind the picture's data."""
    chunk = b"iCCP" + profile
    chunk = struct.pack(">I", len(profile)) + chunk + struct.pack(">I", zlib.crc32(chunk))
    with pytest.raises(BrokenImageError):
        verified(WHOLE[:-12] + chunk + WHOLE[-12:])


def test_a_header_that_claims_all_memory_is_refused_before_decoding() -> None:
    header = b"IHDR" + struct.pack(">II5B", 2**31 - 1, 2**31 - 1, 8, 2, 0, 0, 0)
    bomb = WHOLE[:12] + header + struct.pack(">I", zlib.crc32(header)) + WHOLE[33:]
    with pytest.raises(OversizedImageError, match=f"at most {MAX_PIXELS:,}"):
        verified(bomb)


@pytest.mark.parametrize(("height", "taken"), [(MAX_PIXELS // 8000, True), (MAX_PIXELS // 8000 + 1, False)])
def test_worker_policy_judge_and_notebooks_take_the_same_sizes(height: int, taken: bool) -> None:
    """A screenshot that one took and another refused would spoil every episode it is in."""
    large = drawn(Image.new("1", (8000, height), 1))
    for take in (verified, decoded, opened, lambda png: decoded_png(png, "a.png")):
        with nullcontext() if taken else pytest.raises(REFUSALS, match="pixels"):
            take(large)


def drawn(image: Image.Image) -> bytes:
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "1", "P"])
def test_a_black_picture_is_none_however_it_is_written(mode: str) -> None:
    with pytest.raises(BlackImageError, match="all 24 x 40 pixels"):
        verified(drawn(Image.new("RGB", (24, 40)).convert(mode)))


def test_a_black_picture_may_be_transparent() -> None:
    with pytest.raises(BlackImageError):
        verified(drawn(Image.new("RGBA", (24, 40), (0, 0, 0, 0))))


@given(
    x=st.integers(0, 23),
    y=st.integers(0, 39),
    channel=st.integers(0, 2),
    value=st.integers(1, 255),
    mode=st.sampled_from(["RGB", "RGBA"]),
)
def test_one_pixel_that_is_not_black_makes_a_picture(x: int, y: int, channel: int, value: int, mode: str) -> None:
    image = Image.new("RGB", (24, 40))
    image.putpixel((x, y), tuple(value if each == channel else 0 for each in range(3)))
    png = drawn(image.convert(mode))
    assert verified(png).png == png
