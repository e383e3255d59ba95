from simphone.apps.search import likest, matches

NAMES = ("old park", "hill cafe", "hill park", "north bakery")


def test_names_that_share_a_word_are_found_and_the_likest_is_first() -> None:
    assert matches("Hill  PARK", NAMES) == ("hill park", "old park", "hill cafe")
    assert matches("cafes", NAMES) == matches("", NAMES) == ()


def test_all_names_are_kept_where_the_rest_is_wanted_too() -> None:
    assert likest("cafe", NAMES) == ("hill cafe", "old park", "hill park", "north bakery")
