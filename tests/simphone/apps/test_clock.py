from phone_hand import WAIT, back, opened, said, touch
from simphone.machine import Key, draw, reduce
from simphone.state import State


def later(state: State, events: int) -> State:
    for _ in range(events):
        state = reduce(state, WAIT)
    return state


def test_the_stopwatch_counts_a_second_an_event_wherever_one_is() -> None:
    state = touch(opened("clock"), "stopwatch", "start")
    assert state.of("clock")["watching"] is True
    begun = state.of("clock")["watched"]
    state = later(reduce(state, Key("HOME")), 71)
    assert state.of("clock")["watched"] == begun + 72
    state = touch(state, "clock", "stopwatch")
    assert f"01:{begun + 14:02}" in said(state)
    stopped = later(touch(state, "stop"), 3)
    assert stopped.of("clock")["watched"] == state.of("clock")["watched"]
    assert touch(stopped, "reset").of("clock")["watched"] == 0


def test_a_timer_says_when_it_has_run_down() -> None:
    state = touch(opened("clock"), "timer", "start")
    assert (state.toast, state.of("clock")["left"]) == ("choose a time", 0)
    state = touch(state, "1 min", "start")
    left = int(str(state.of("clock")["left"]))
    state = later(reduce(state, Key("HOME")), left - 2)
    assert (state.dialog, state.of("clock")["left"]) == ("", 1)
    state = later(state, 1)
    assert (state.dialog, state.screen, state.of("clock")["left"]) == ("clock/up", "launcher/home", 0)
    assert touch(state, "ok").dialog == ""


def test_a_timer_waits_until_another_dialog_is_closed() -> None:
    state = touch(opened("clock"), "timer", "1 min", "start").remember("clock", left=1)
    state = reduce(later(State.from_json({**state.to_json(), "dialog": "sale"}), 5), Key("BACK"))
    assert state.dialog == "clock/up"


def test_a_timer_is_stopped_or_set_to_another_time() -> None:
    state = touch(opened("clock"), "timer", "3 min", "start")
    assert touch(state, "stop").of("clock")["left"] == 0
    assert touch(state, "10 min").of("clock")["left"] == 0
    assert touch(state, "10 min").of("clock")["minutes"] == "10"


def test_stopwatch_and_timer_lie_behind_the_face_and_leave_the_alarms_alone() -> None:
    state = touch(opened("clock"), "alarm", "7 am", "clock", "timer")
    assert state.of("clock")["alarms"] == ("7 am",)
    assert back(state).screen == "clock/face"
    assert draw(state).tobytes() != draw(back(state)).tobytes()
