import pytest
from phone_hand import back, brought, opened, rows, said, swipe, touch, write
from simphone.apps.sites import OFFERED, address, deals, found, price
from simphone.lexicon import SHOP_SITES
from simphone.machine import draw, widgets
from simphone.state import State, words_of


def at(site: str, answer: str = "accept", seed: int = 0) -> State:
    return touch(write(opened("browser", seed=seed), site), answer)


@pytest.mark.parametrize("site", SHOP_SITES)
def test_a_site_is_opened_by_its_address_and_first_of_all_asks_for_cookies(site: str) -> None:
    state = write(opened("browser"), site, "go")
    assert (state.screen, state.of("browser")["site"]) == ("browser/site", site)
    assert {element.target for element in widgets(state)} == {"accept", "refuse"}
    assert swipe(state, "up").of("browser") == state.of("browser")
    for answer, said_so in (("accept", "accepted"), ("refuse", "refused")):
        inside = touch(state, answer)
        assert inside.of("browser")["cookies"] == (f"{site} {said_so}",)
        again = write(back(inside), site)
        assert "field" in {element.target for element in widgets(again)}, "it asks once"
    assert back(state).screen == "browser/home"


def test_the_sites_look_unlike_each_other() -> None:
    assert len({draw(at(site)).tobytes() for site in SHOP_SITES}) == len(SHOP_SITES)


@pytest.mark.parametrize(
    ("typed", "site"),
    [
        ("costco.com", "costco.com"),
        ("https://www.Costco.com/", "costco.com"),
        ("WWW.ebay.com", "ebay.com"),
        ("costco", ""),
        ("ebay.com shoes", ""),
        ("", ""),
    ],
)
def test_only_an_address_leads_to_a_site(typed: str, site: str) -> None:
    assert address(typed) == site


def test_any_other_query_has_the_results_that_it_always_had() -> None:
    state = write(opened("browser"), "costco")
    assert (state.screen, state.of("browser")["query"]) == ("browser/results", "costco")
    assert swipe(state, "up").screen == "browser/results"


@pytest.mark.parametrize("site", SHOP_SITES)
def test_the_best_match_is_first_until_the_results_are_sorted_by_price(site: str) -> None:
    state = write(at(site), "Onyx Kettle", "go")
    assert rows(state)[0] == "onyx kettle"
    listed = found(state)
    assert len(set(listed)) == len(listed) == OFFERED
    seen = rows(state)
    for _ in range(2):
        state = swipe(state, "up")
        seen += [name for name in rows(state) if name not in seen]
    assert tuple(seen) == listed
    cheapest = touch(state, "price")
    prices = [price(site, ware) for ware in found(cheapest)]
    assert prices == sorted(prices)
    assert rows(cheapest)[0] == found(cheapest)[0], "sorted, and back at the top"
    assert sorted(found(cheapest)) == sorted(listed)
    assert rows(touch(cheapest, "best")) == list(listed[:5])


def test_what_is_added_lies_in_the_cart_of_that_site_with_its_price() -> None:
    state = touch(write(at("newegg.com"), "kite drone"), "row kite drone", "add")
    assert (state.screen, state.toast) == ("browser/ware", "added")
    assert state.of("browser")["cart"] == ("newegg.com kite drone",)
    state = touch(state, "cart")
    assert rows(state) == ["kite drone"]
    assert f"cart ${price('newegg.com', 'kite drone')}" in said(state)
    other = touch(write(back(back(back(back(state)))), "walmart.com"), "accept", "cart")
    assert rows(other) == []


def test_what_lies_in_the_cart_is_removed_once_that_is_confirmed() -> None:
    state = touch(write(at("ebay.com"), "kite drone"), "row kite drone", "add", "add", "cart")
    assert len(words_of(touch(state, "row kite drone", "cancel").of("browser")["cart"])) == 2
    state = touch(state, "row kite drone", "remove")
    assert (state.toast, state.of("browser")["cart"]) == ("removed", ("ebay.com kite drone",))


def test_a_site_offers_something_before_anything_was_asked() -> None:
    state = at("bestbuy.com")
    ware = deals(state)[0]
    state = touch(state, f"row {ware}")
    assert (state.screen, state.of("browser")["ware"]) == ("browser/ware", ware)


def test_shelves_differ_from_phone_to_phone_and_prices_do_not() -> None:
    one, other = (write(at("costco.com", seed=seed), "tent") for seed in (1, 2))
    assert found(one) != found(other)
    for ware in ("nova tent", "kite tent"):
        pages = (touch(brought(state, f"row {ware}"), f"row {ware}") for state in (one, other))
        assert all(f"${price('costco.com', ware)}" in said(page) for page in pages)
