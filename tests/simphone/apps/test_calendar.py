import datetime

import pytest
from phone_hand import back, opened, rows, said, swipe, touch, write
from simphone.apps.calendar import DATES, YEAR, planned
from simphone.machine import fresh, widgets
from simphone.state import words_of


def test_the_dates_are_those_of_the_year() -> None:
    first = datetime.date(YEAR, 1, 1)
    every = [first + datetime.timedelta(days) for days in range(366)]
    assert [f"{day:%b}".lower() + f" {day.day}" for day in every] == list(DATES)


def test_a_month_begins_on_its_weekday_and_a_swipe_turns_it() -> None:
    state = opened("calendar")
    columns = []
    for month in range(1, 13):
        days = [element for element in widgets(state) if element.kind == "day"]
        columns.append(days[0].box[0] // 18)
        name = said(state)[0].split()[0]
        assert len(days) == sum(date.startswith(name) for date in DATES)
        assert state.of("calendar")["month"] == month
        state = swipe(state, "left")
    assert columns == [datetime.date(YEAR, month, 1).weekday() for month in range(1, 13)]
    assert state.of("calendar")["month"] == 12
    assert swipe(state, "right").of("calendar")["month"] == 11
    assert swipe(opened("calendar"), "right").of("calendar")["month"] == 1


def test_a_new_event_is_on_its_day_and_marks_it() -> None:
    state = write(touch(swipe(opened("calendar"), "left"), "day 14", "new"), "team dinner", "save")
    assert (state.screen, state.toast) == ("calendar/day", "saved")
    assert words_of(state.of("calendar")["events"])[-1] == "feb 14: team dinner"
    assert "team dinner" in rows(state)
    month = back(state)
    assert "14" in [element.label for element in widgets(month) if element.on]


def test_an_event_is_deleted_once_that_is_confirmed_and_another_of_that_name_stays() -> None:
    state = touch(opened("calendar", {"event": "club trip", "date": "jan 9"}), "day 9")
    state = write(touch(state, "new"), "club trip")
    state = touch(state, "row club trip", "cancel")
    assert rows(state).count("club trip") == 2
    state = touch(state, "row club trip", "delete")
    assert rows(state).count("club trip") == 1
    assert state.toast == "deleted"


@pytest.mark.parametrize("seed", range(5))
def test_a_setup_plans_an_event_once(seed: int) -> None:
    state = fresh(seed, {"calendar": {"event": "book party", "date": "jul 3"}}, 0.0)
    assert planned(state, "jul 3").count("book party") == 1
    assert sum(event.endswith(": book party") for event in words_of(state.of("calendar")["events"])) == 1
    with pytest.raises(ValueError, match="together with an event"):
        fresh(seed, {"calendar": {"date": "jul 3"}}, 0.0)
    with pytest.raises(ValueError, match="none of jan 1"):
        fresh(seed, {"calendar": {"event": "book party", "date": "feb 30"}}, 0.0)
