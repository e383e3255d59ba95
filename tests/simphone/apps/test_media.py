import pytest
from phone_hand import back, brought, opened, rows, said, touch
from simphone.apps.media import EVERY, following
from simphone.machine import fresh
from simphone.state import words_of


def test_a_song_plays_pauses_and_goes_on_to_the_next() -> None:
    state = brought(opened("media", {"song": "neon sky"}), "row neon sky")
    state = touch(state, "row neon sky")
    data = state.of("media")
    assert (state.screen, data["track"], data["playing"]) == ("media/player", "neon sky", True)
    assert {"playing", "neon sky"} <= set(said(state))
    state = touch(state, "pause")
    assert state.of("media")["playing"] is False
    after = following(state)
    state = touch(state, "next")
    assert (state.of("media")["track"], state.of("media")["playing"]) == (after, True)


def test_after_the_last_song_comes_the_first() -> None:
    state = opened("media")
    songs = words_of(state.of("media")["songs"])
    state = touch(brought(state, f"row {songs[-1]}"), f"row {songs[-1]}", "next")
    assert state.of("media")["track"] == songs[0]


def test_what_plays_goes_on_beside_the_lists_and_is_opened_from_there() -> None:
    state = touch(opened("media"), "video")
    state = touch(state, f"row {rows(state)[0]}")
    listed = back(state)
    assert listed.screen == "media/video"
    assert touch(listed, "pause").of("media")["playing"] is False
    assert touch(listed, "music", "track").screen == "media/player"


def test_both_lists_are_left_by_one_back() -> None:
    assert back(touch(opened("media"), "video", "music", "video", "music")).app == "launcher"


@pytest.mark.parametrize("kind", ["song", "video"])
def test_a_setup_says_what_is_there(kind: str) -> None:
    for seed in range(20):
        listed = words_of(fresh(seed, {"media": {kind: EVERY[kind][-1]}}, 0.0).data["media"][f"{kind}s"])
        assert EVERY[kind][-1] in listed
        assert len(set(listed)) == len(listed)
