"""Answers as the models' own repositories show them, and near misses. The sources stand beside each parser."""

from __future__ import annotations

import pytest
from distrl.policy.autoui.tokenizer import SINGLES
from distrl.policy.dialects.registry import DIALECTS
from distrl.types import Action, ActionKind, Point, ScreenSize

SIZE = ScreenSize(1000, 2000)
BACK, HOME, ENTER, COMPLETE = (
    Action(kind) for kind in (ActionKind.BACK, ActionKind.HOME, ActionKind.ENTER, ActionKind.COMPLETE)
)


def tap(x: float, y: float) -> Action:
    return Action(ActionKind.TAP, touch=Point(x, y))


def swipe(x0: float, y0: float, x1: float, y1: float) -> Action:
    return Action(ActionKind.SWIPE, touch=Point(x0, y0), lift=Point(x1, y1))


def typed(text: str) -> Action:
    return Action(ActionKind.TYPE, text=text)


def call(arguments: str) -> str:
    return f'<tool_call>\n{{"name": "mobile_use", "arguments": {arguments}}}\n</tool_call>'


QWEN = {
    call('{"action": "click", "coordinate": [500, 500]}'): tap(0.5, 0.5),
    call('{"action": "click", "coordinate": [500.5, 5e2]}'): tap(0.5005, 0.5),
    call('{"action": "click", "coordinate": [400, 100, 600, 300]}'): tap(0.5, 0.2),
    call('{"action": "swipe", "coordinate": [500, 800], "coordinate2": [500, 200]}'): swipe(0.5, 0.8, 0.5, 0.2),
    call('{"action": "type", "text": "caf\\u00e9\\n"}'): typed("café\n"),
    call('{"action": "type", "text": "two\nlines"}'): typed("two\nlines"),
    call('{"action": "system_button", "button": "Back"}'): BACK,
    call('{"action": "system_button", "button": "Home"}'): HOME,
    call('{"action": "system_button", "button": "enter"}'): ENTER,
    call('{"action": "key", "text": "KEYCODE_BACK"}'): BACK,
    call('{"action": "key", "text": "enter"}'): ENTER,
    call('{"action": "terminate", "status": "success"}'): COMPLETE,
    'Thought: To search, I tap the bar.\nAction: "I tap {it}."\n'
    + call('{"action": "click", "coordinate": [0, 0]}'): tap(0, 0),
    "<think>\nmaybe <tool_call>?\n</think>\n\n" + call('{"action": "system_button", "button": "Back"}'): BACK,
    '```json\n{"name": "mobile_use", "arguments": {"action": "click", "coordinate": [0, 0]}}\n```': tap(0, 0),
    ' {"name": "mobile_use", "arguments": {"action": "click", "coordinate": [0, 0]}} ': tap(0, 0),
}
QWEN_REFUSED = [
    call('{"action": "terminate", "status": "failure"}'),
    call('{"action": "long_press", "coordinate": [1, 1], "time": 2}'),
    call('{"action": "wait", "time": 2}'),
    call('{"action": "open", "text": "Settings"}'),
    call('{"action": "answer", "text": "42"}'),
    call('{"action": "key", "text": "volume_up"}'),
    call('{"action": "system_button", "button": "Menu"}'),
    call('{"action": "click", "coordinate": [1, 1], "coordinate2": [2, 2]}'),
    call('{"action": "click", "action": "type", "coordinate": [1, 1]}'),
    call('{"action": "click", "coordinate": [1]}'),
    call('{"action": "click", "coordinate": [1, 1, 1]}'),
    call('{"action": "click", "coordinate": [600, 1, 400, 3]}'),
    call('{"action": "click", "coordinate": ["1", "1"]}'),
    call('{"action": "click", "coordinate": "(1, 1)"}'),
    call('{"action": "click"}'),
    call('{"action": "swipe", "coordinate": [1, 1]}'),
    call('{"action": "type", "text": 5}'),
    call('{"action": "type", "text": "\\ud83d"}'),
    call("[]"),
    call('{"action": "click", "coordinate": [1, 1]}').removesuffix("\n</tool_call>"),
    call('{"action": "click", "coordinate": [1, 1]}') + "\nI tapped it.",
    call('{"action": "click", "coordinate": [1, 1]}').replace("mobile_use", "computer_use"),
    '```json\n{"name": "mobile_use", "arguments": {"action": "click", "coordinate": [0, 0]}}',
    '{"action": "click", "coordinate": [0, 0]}',
]

UI_TARS = {
    "Thought: I tap it.\nAction: click(start_box='(500,500)')": tap(0.5, 0.5),
    "Thought: 点击。\nAction: click(start_box='<|box_start|>(500,500)<|box_end|>')": tap(0.5, 0.5),
    "Action: click(point='<point>500 500</point>')": tap(0.5, 0.5),
    "Action: click(start_box='[400, 100, 600, 300]')": tap(0.5, 0.2),
    'click(start_box="(500.5, 500)")': tap(0.5005, 0.5),
    "Action: drag(start_box='(500,800)', end_box='(500,200)')": swipe(0.5, 0.8, 0.5, 0.2),
    "Action: drag(start_point='<point>500 800</point>', end_point='<point>500 200</point>')": swipe(0.5, 0.8, 0.5, 0.2),
    "Action: scroll(start_box='(500,800)', end_box='(500,200)')": swipe(0.5, 0.8, 0.5, 0.2),
    "Action: scroll(start_box='(500,500)', direction='down')": SINGLES["<swipe_up>"],
    "Action: scroll(point='<point>500 500</point>', direction='left')": SINGLES["<swipe_right>"],
    "Action: scroll(direction='up')": SINGLES["<swipe_down>"],
    "Action: scroll(direction='right')": SINGLES["<swipe_left>"],
    "Action: type(content='I\\'m here\\n')": typed("I'm here\n"),
    "Action: type(content='I'm here')": typed("I'm here"),
    'Action: type(content="I\'m \\u0041\\x42 C:\\dir")': typed("I'm AB C:\\dir"),
    "Action: type(content='two\nlines')": typed("two\nlines"),
    "Action: press_back()": BACK,
    "Action: press_home()": HOME,
    "Action: press_enter()": ENTER,
    "Action: hotkey(key='enter')": ENTER,
    "Action: finished(content='All done.')": COMPLETE,
    "Action: finished()": COMPLETE,
    "```\nThought: it works\nAction: press_back()\n```": BACK,
    "Thought: 我点击Action: press_back()": BACK,
    "我点击press_back()": BACK,
    "Thought: the type(s) of it. Action: press_back( )": BACK,
}
UI_TARS_REFUSED = [
    "Action: long_press(start_box='(500,500)')",
    "Action: long_press(start_box='(500,500)', time='')",
    "Action: left_double(start_box='(500,500)')",
    "Action: open_app(app_name='Settings')",
    "Action: wait()",
    "Action: call_user()",
    "Action: hotkey(key='ctrl c')",
    "Action: scroll(direction='sideways')",
    "Action: scroll(start_box='(5000,1)', direction='down')",
    "Action: click(start_box='(500,500)', end_box='(1,1)')",
    "Action: click(start_box='(500,500)', point='(1,1)')",
    "Action: click(start_box='(500,500)', start_box='(500,500)')",
    "Action: click(start_box='(500,500)') press_back()",
    "Action: click(start_box='(500,500)')\n\nclick(start_box='(500,500)')",
    "Thought: click(start_box='(1,1)') or not.\nAction: press_back()",
    "Action: click(start_box='500,500')",
    "Action: click(start_box='(500)')",
    "Action: click(start_box='(500,500')",
    "Action: click(start_box='<point>1.2.3.4 .</point>')",
    "Action: click(start_box=(500,500))",
    "Action: click('(500,500)')",
    "Action: press_back(x='1')",
    "Action: press_back",
    "Action: type(content='a', b')",
    "Action: type(content='a' b')",
    "Action: I tap it.",
    "Thought: I wait.",
    "Action: __import__('os')",
]

AUTOGLM = {
    '<think>\nI tap.\n</think>\n<answer>\ndo(action="Tap", element=[500,500])\n</answer>': tap(0.5, 0.5),
    'I tap.\ndo(action="Tap", element=[499, 182])': tap(0.499, 0.182),
    "do(action='Tap', element=(400,100,600,300))": tap(0.5, 0.2),
    '<answer>do(action="Swipe", start=[500,800], end=[500,200])</answer>': swipe(0.5, 0.8, 0.5, 0.2),
    'do(action="Type", text="Hello World")': typed("Hello World"),
    'do(action="Type", text="I\'m here")': typed("I'm here"),
    'do(action="Type_Name", text="张三")': typed("张三"),
    'do(action="Back")': BACK,
    '<think>do(action="Home")?</think><answer>do(action="Back")</answer>': BACK,
    'do(action="Home") ': HOME,
    '我点击do(action="Home")': HOME,
    'do(action="Enter")': ENTER,
    '```\ndo(action="Home")\n```': HOME,
    'finish(message="任务完成。")': COMPLETE,
    "finish()": COMPLETE,
}
AUTOGLM_REFUSED = [
    'do(action="Tap", element=[500,500], message="重要操作")',
    'do(action="Long Press", element=[500,500])',
    'do(action="Double Tap", element=[500,500])',
    'do(action="Launch", app="Settings")',
    'do(action="Wait", duration="2 seconds")',
    'do(action="Take_over", message="log in")',
    'do(action="Note", message="True")',
    'do(action="Call_API", instruction="sum up")',
    'do(action="Interact")',
    'do(action="Tap", element="[500,500]")',
    'do(action="Tap", element=[[500,500]])',
    'do(action="Tap", element=[500;500])',
    'do(action="Tap", element=[500,500)',
    'do(action="Tap", element=[1001,500])',
    'do(action="tap", element=[500,500])',
    "do(element=[500,500])",
    'do(action="Back")\ndo(action="Home")',
    'do(action="Type", text="say "hi" now")',
    'do(action="Type", text="a")\ndo(action="Back")',
    '<answer>do(action="Back")',
    '<answer>do(action="Back")</answer><answer>do(action="Back")</answer>',
    '<think>do(action="Back")',
    "finish",
]

JSON = {
    '{"action": "tap", "point": [500, 500]}': tap(0.5, 0.5),
    '{"action": "tap", "point": [400, 100, 600, 300]}': tap(0.5, 0.2),
    '{"action": "swipe", "from": [500, 800], "to": [500, 200]}': swipe(0.5, 0.8, 0.5, 0.2),
    'I type it.\n{"action": "type", "text": "{\\"action\\": \\"back\\"}"}': typed('{"action": "back"}'),
    '```json\n{\n  "action": "back"\n}\n```': BACK,
    '{"action": "home"}\n': HOME,
    '{"action": "enter"}': ENTER,
    '{"action": "complete"}': COMPLETE,
}
JSON_REFUSED = [
    '{"action": "tap", "point": [500, 500], "text": ""}',
    '{"action": "tap", "point": {"x": 1, "y": 1}}',
    '{"action": "back"} {"action": "back"}',
    '[{"action": "back"}]',
    '{"action": "invalid"}',
    '{"action": ["back"]}',
    "{'action': 'back'}",
    '{"action": "back"',
    "null",
]

NOWHERE = '"touch_point": "[-1.0, -1.0]", "lift_point": "[-1.0, -1.0]"'
AUTOUI = {
    '"action_type": "DUAL_POINT", "touch_point": "[0.5000, 0.2500]", "lift_point": "[0.5000, 0.2500]", '
    '"typed_text": ""': tap(0.25, 0.5),
    'Action Plan: [PRESS_HOME]; Action Decision: "action_type": "PRESS_HOME", ' + NOWHERE + ', "typed_text": ""': HOME,
    '```\n"action_type": "TYPE", ' + NOWHERE + ', "typed_text": "hi"\n```': typed("hi"),
}
AUTOUI_REFUSED = [
    '"action_type": "STATUS_TASK_IMPOSSIBLE", ' + NOWHERE + ', "typed_text": ""',
    '```\n"action_type": "PRESS_HOME", ' + NOWHERE + ', "typed_text": ""',
    '"action_type": "TYPE", ' + NOWHERE + ', "typed_text": "\\ud83d"',
]

ANSWERS = {
    "qwen3-mobile-use": QWEN,
    "ui-tars-1.0": UI_TARS,
    "open-autoglm": AUTOGLM,
    "json": JSON,
    "autoui": AUTOUI,
}
REFUSED = {
    "qwen3-mobile-use": QWEN_REFUSED,
    "qwen25-mobile-use": QWEN_REFUSED,
    "ui-tars-1.0": UI_TARS_REFUSED,
    "ui-tars-1.5": UI_TARS_REFUSED,
    "open-autoglm": AUTOGLM_REFUSED,
    "json": JSON_REFUSED,
    "autoui": AUTOUI_REFUSED,
}


@pytest.mark.parametrize(
    ("name", "text", "action"),
    [(name, text, action) for name, all_ in ANSWERS.items() for text, action in all_.items()],
)
def test_answers_are_read(name: str, text: str, action: Action) -> None:
    assert DIALECTS[name].parse(text, SIZE) == action


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, all_ in REFUSED.items() for text in all_])
def test_what_is_no_action_of_ours_or_not_one_is_invalid(name: str, text: str) -> None:
    assert DIALECTS[name].parse(text, SIZE) == Action(ActionKind.INVALID, text=text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("qwen25-mobile-use", call('{"action": "click", "coordinate": [639, 1095]}')),
        ("ui-tars-1.5", "Thought: I tap it.\nAction: click(start_box='(639,1095)')"),
    ],
)
def test_absolute_coordinates_are_pixels_of_the_image(name: str, text: str) -> None:
    assert DIALECTS[name].parse(text, ScreenSize(728, 1288)) == tap(639 / 728, 1095 / 1288)
    assert DIALECTS[name].parse(text, ScreenSize(638, 1288)).kind is ActionKind.INVALID


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("autoui", next(iter(AUTOUI))),
        ("json", '{"action": "tap", "point": [250, 500]}'),
        ("open-autoglm", '<answer>do(action="Tap", element=[250,500])</answer>'),
        ("qwen25-mobile-use", call('{"action": "click", "coordinate": [250, 1000]}')),
        ("qwen3-mobile-use", call('{"action": "click", "coordinate": [250, 500]}')),
        ("ui-tars-1.0", "Action: click(start_box='(250,500)')"),
        ("ui-tars-1.5", "Action: click(start_box='(250,1000)')"),
    ],
)
def test_a_tap_is_written_as_the_model_does(name: str, text: str) -> None:
    assert DIALECTS[name].write(tap(0.25, 0.5), SIZE) == text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ui-tars-1.0", "Action: scroll(start_box='(500,800)', end_box='(500,200)')"),
        ("ui-tars-1.5", "Action: drag(start_box='(500,1600)', end_box='(500,400)')"),
    ],
)
def test_each_ui_tars_has_its_own_call_for_a_swipe(name: str, text: str) -> None:
    assert DIALECTS[name].write(swipe(0.5, 0.8, 0.5, 0.2), SIZE) == text
