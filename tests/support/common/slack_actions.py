"""What people do in the Slack of the tests, and what they read there."""

from __future__ import annotations

import json

from tests.support.slack_stage import ADA, CHANNEL


def press(play, ts, action, user=ADA, value=None):
    """Press a button and run everything that follows."""
    delivery = play.workspace.click(user, CHANNEL, ts, action, value)
    play.settle()
    return delivery


def form(play, user=ADA):
    """Return the form that opens, shortly after the acknowledgement."""
    return play.workspace.until(lambda: play.workspace.modal(user))


def only(items):
    """Return the only item."""
    [one] = items
    return one


def option(message, verb):
    """Return the value of an overflow option."""
    menus = [element for block in message.blocks if block["type"] == "actions" for element in block["elements"]]
    menu = only([item for item in menus if item["type"] == "overflow"])
    return only([item["value"] for item in menu["options"] if item["value"].startswith(verb)])


def text_of(message):
    """Return the text of a message's blocks."""
    return json.dumps(message.blocks, ensure_ascii=False)
