"""Whatever an app sends is rejected as Slack does, or accepted and can be shown and used."""

from __future__ import annotations

import contextlib
import copy
import random

import pytest

from bot.demo.fakeslack.methods import METHODS, call
from bot.demo.fakeslack.rate_limits import unlimited
from bot.demo.fakeslack.ui.serve import create_app
from bot.demo.fakeslack.values import SCOPES, ApiError, App, NotPossible
from bot.demo.fakeslack.views import elements
from tests.support.fakeslack_apps import ALERTS, ANN, asked, modal, plain, pressed, section, workspace

STRANGE = (
    None,
    True,
    0,
    -1,
    1e308,
    "",
    "x",
    "\ud800",
    "x" * 4000,
    [],
    {},
    [None],
    [[]],
    {"type": "x"},
    {"type": []},
    [{}],
    "[]",
    "{}",
)
OPTION = {"text": plain("one"), "value": "1", "description": plain("first")}
GROUPS = [{"label": plain("g"), "options": [OPTION]}]
BLOCKS = [
    {"type": "header", "text": plain("h"), "block_id": "b0"},
    {"type": "section", "text": plain("s"), "fields": [plain("f")], "accessory": {"type": "overflow", "action_id": "o", "options": [OPTION]}},
    {**section("t"), "accessory": {"type": "multi_static_select", "action_id": "m", "options": [OPTION], "initial_options": [OPTION]}},
    {"type": "context", "elements": [plain("c"), {"type": "image", "image_url": "https://x", "alt_text": "a"}]},
    {
        "type": "actions",
        "elements": [
            {
                **pressed("b", "b", "v"),
                "confirm": {"title": plain("t"), "text": plain("t"), "confirm": plain("y"), "deny": plain("n")},
            },
            {"type": "static_select", "action_id": "s", "option_groups": GROUPS, "placeholder": plain("p"), "initial_option": OPTION},
            {"type": "external_select", "action_id": "e", "min_query_length": 1},
            {"type": "checkboxes", "action_id": "c", "options": [OPTION]},
            {"type": "datepicker", "action_id": "d", "initial_date": "2026-01-01"},
        ],
    },
    {
        "type": "rich_text",
        "elements": [
            {"type": "rich_text_preformatted", "elements": [{"type": "text", "text": "p"}], "border": 1},
            {
                "type": "rich_text_list",
                "style": "bullet",
                "indent": 1,
                "elements": [
                    {
                        "type": "rich_text_section",
                        "elements": [
                            {"type": "text", "text": "t", "style": {"bold": True}},
                            {"type": "link", "url": "https://x", "text": "l"},
                            {"type": "date", "timestamp": 1, "format": "{date}", "fallback": "d"},
                        ],
                    }
                ],
            },
        ],
    },
    {"type": "image", "slack_file": {"id": "F1"}, "alt_text": "a", "title": plain("t")},
    {"type": "table", "rows": [[{"type": "raw_text", "text": "x"}]], "column_settings": [None, {"align": "left", "is_wrapped": True}]},
    asked("n", "N", {"type": "number_input", "is_decimal_allowed": True, "min_value": "0", "initial_value": "1"}),
]  # fmt: skip
VIEW = {
    **modal("h"),
    "close": plain("c"),
    "clear_on_close": True,
    "external_id": "x",
    "blocks": [*modal("h")["blocks"], *(item for item in BLOCKS if item["type"] != "table")],
}
VIEW["blocks"] = [{**item, "block_id": f"b{index}"} for index, item in enumerate(VIEW["blocks"])]


def places(value):
    """Return each container in a structure, with each of its keys."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield value, key
            yield from places(item)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield value, index
            yield from places(item)


def bent(chance, sound):
    """Return a copy with one to three changes."""
    copied = copy.deepcopy({"it": sound})
    for _ in range(chance.choice((0, 1, 1, 1, 2))):
        where, key = chance.choice(list(places(copied)))
        kind = chance.random()
        if kind < 0.2 and where is not copied:
            del where[key]
        elif kind < 0.3 and isinstance(where, dict):
            where[chance.choice(("colour", "text", "type", "options", "elements", "initial_option"))] = chance.choice(
                STRANGE
            )
        else:
            where[key] = copy.deepcopy(chance.choice((*STRANGE, where[key], plain("p"), OPTION)))
    return copied["it"]


@pytest.mark.quick(1)
@pytest.mark.parametrize("seed", range(2))
def test_bent_blocks_are_refused_or_can_be_shown_and_worked(seed):
    """300 messages and views, some invalid: validation, page and payloads never crash."""
    made = workspace(rates=unlimited())
    made.connect()
    client = create_app(made).test_client()
    chance = random.Random(seed)
    taken = 0
    for _ in range(300):
        block = bent(chance, chance.choice(BLOCKS))
        with contextlib.suppress(ApiError):
            call(made.state, "chat.postMessage", {"channel": ALERTS, "text": "x", "blocks": [block]})
            message = made.messages(ALERTS)[-1]
            taken += 1
            assert client.get(f"/at/{ANN}/{ALERTS}").status_code == 200
            for name, element in ((pair["block_id"], el) for pair, el in elements(list(message.blocks))):
                with contextlib.suppress(NotPossible):
                    made.click(ANN, ALERTS, message.ts, element["action_id"], "1", block_id=name)
            made.state.drop(message)
        view = (
            bent(chance, VIEW)
            if chance.random() < 0.5
            else {**VIEW, "blocks": [bent(chance, item) for item in VIEW["blocks"]]}
        )
        with contextlib.suppress(ApiError, NotPossible):
            call(made.state, "views.open", {"trigger_id": made.state.trigger(ANN), "view": view})
            taken += 1
            assert client.get(f"/at/{ANN}/{ALERTS}").status_code == 200
            made.submit(ANN, {})
    assert taken > 30


@pytest.mark.quick(1)
@pytest.mark.parametrize("seed", range(2))
def test_strange_arguments_are_refused_or_taken(seed):
    """Any method with any arguments gives a JSON response with `ok`, over HTTP."""
    made = workspace(
        rates=unlimited(), app=App(scopes=(*SCOPES, "files:read", "im:write", "team:read", "reactions:write"))
    )
    client = create_app(made, pages=False).test_client()
    chance = random.Random(seed)
    sane = {
        "channel": ALERTS,
        "user": ANN,
        "user_id": ANN,
        "text": "x",
        "usergroup": "S0ONCALL",
        "view": VIEW,
        "length": 3,
    }
    for _ in range(1500):
        name = chance.choice(list(METHODS))
        given = {
            key: sane[key] if key in sane and chance.random() < 0.6 else chance.choice(STRANGE)
            for key in METHODS[name].arguments.split()
            if chance.random() < 0.8
        }
        answer = client.post(
            f"/api/{name}",
            json={key: value for key, value in given.items() if value != "\ud800"},
            headers={"Authorization": f"Bearer {made.app.bot_token}"},
        )
        assert (answer.status_code, type(answer.get_json()["ok"])) == (200, bool)
