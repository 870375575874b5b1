"""Messages and views fitted into Slack limits: texts are cut with a note, ids never."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.slack.blocks.builders import actions, button, choice, header, note, overflow, plain, section
from bot.slack.blocks.limits import WHOLE, DoesNotFit, Message, cut, fit, fit_view, length, weight
from tests.support.block_limits import faults_of_message, faults_of_view, units


@given(st.text(), st.integers(60, 400), st.integers(0, 3))
def test_a_cut_text_keeps_its_limit_and_tells_what_is_left_out(text: str, limit: int, beyond: int):
    """The kept part and the reported count add up to the whole; short texts stay unchanged."""
    short = cut(text * 20, limit, beyond)
    head, mark, rest = short.rpartition(" … (")
    assert units(short) <= limit
    if mark and rest.endswith(" more characters)"):
        left = int(rest.removesuffix(" more characters)"))
        # a space before the mark may be gone
        assert len(head) + left == len(text * 20) + beyond
    else:
        assert short == text * 20


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        ("abcdef", 6, "abcdef"),
        ("abcdefg", 6, "abcde…"),
        ("🔥🔥🔥🔥", 6, "🔥🔥…"),
        ("ab&amp;cd", 6, "ab…"),
    ],
)
def test_short_limits_end_in_an_ellipsis_and_split_nothing(text: str, limit: int, expected: str):
    """No surrogate pair and no entity is split."""
    assert cut(text, limit) == expected


def test_lengths_are_utf_16_units():
    """A character beyond the basic plane counts twice."""
    assert (length("a"), length("é"), length("🔥")) == (1, 1, 2)


def test_too_many_blocks_leave_the_buttons_and_say_how_many_are_gone():
    """The last note and row stay; the middle is dropped from its end."""
    blocks = (*(section(f"row {number}") for number in range(80)), note("foot"), actions(button("right", "Right", "h")))
    fitted = fit(Message("text", blocks))
    assert len(fitted.blocks) == 50
    assert fitted.blocks[-3]["elements"][0]["text"] == "… 33 more parts are left out for their length; Evidence has all"
    assert [block["type"] for block in fitted.blocks[-2:]] == ["context", "actions"]
    assert faults_of_message(fitted.text, fitted.blocks) == []


def test_the_sum_of_a_message_is_kept():
    """Slack rejects a message whose total is too long, however short its blocks."""
    fitted = fit(Message("text", tuple(section("z" * 2900) for _ in range(9))))
    assert weight(fitted.blocks) <= WHOLE
    assert [block["type"] for block in fitted.blocks] == ["section"] * 3 + ["context"]


def test_texts_are_cut_wherever_they_stand():
    """Headings, buttons, options, notes, paragraphs and the fallback."""
    long = "w " * 4000
    raw = {"type": "plain_text", "text": long, "emoji": False}
    option = {"text": raw, "value": "v", "description": raw}
    row = actions(
        {"type": "button", "action_id": "a", "text": raw}, {"type": "overflow", "action_id": "b", "options": [option]}
    )
    blocks = (
        {"type": "header", "text": raw},
        {"type": "context", "elements": [raw]},
        {"type": "section", "text": {"type": "mrkdwn", "text": long}},
        row,
    )
    fitted = fit(Message(long, blocks))
    assert faults_of_message(fitted.text, fitted.blocks) == []
    assert length(fitted.text) <= 600


@pytest.mark.parametrize(
    ("block", "words"),
    [
        (
            actions({"type": "button", "action_id": "a" * 256, "text": plain("x")}),
            "block 0, actions, button: action_id has 256",
        ),
        (actions({"type": "button", "action_id": "a", "text": plain("x"), "value": "v" * 2001}), "value has 2001"),
        (actions(overflow("more", [choice(str(n), "x") for n in range(6)])), "6 options, at most 5"),
        (actions(overflow("more", [choice("v" * 151, "x")])), "value has 151 characters, at most 150"),
        (actions(*(button(f"a{n}", "x", "h") for n in range(26))), "26 elements, at most 25"),
    ],
)
def test_what_machines_read_is_never_cut(block: dict, words: str):
    """An id, value or menu that is too long is a bug, reported with its place."""
    with pytest.raises(DoesNotFit, match=words):
        fit(Message("text", (block,)))


def test_an_empty_fallback_is_filled():
    """Slack requires one, and screen readers read it."""
    assert fit(Message(" ", (header("x"),))).text == "Signalbox"


def test_a_view_keeps_its_limits():
    """A title is cut, private metadata is not."""
    view = {"type": "modal", "title": plain("t" * 80, 80), "blocks": [section("x")] * 120, "private_metadata": "m"}
    assert faults_of_view(fit_view(view)) == []
    with pytest.raises(DoesNotFit, match="private_metadata has 3001"):
        fit_view(view | {"private_metadata": "m" * 3001})
