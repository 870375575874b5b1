"""Block Kit validation: each limit of the Slack documentation, one step on either side."""

from __future__ import annotations

import pytest

from bot.demo.fakeslack.blockkit.messages import message_blocks, view
from bot.demo.fakeslack.values import ApiError
from tests.support.fakeslack_apps import answer, asked, modal, plain, pressed, section


def option(text="a", value="v", **more):
    """Return an option."""
    return {"text": plain(text), "value": value, **more}


def options(count):
    """Return this many options."""
    return [option(value=f"v{number}") for number in range(count)]


def actions(*elements):
    """An actions block."""
    return {"type": "actions", "elements": list(elements)}


def rich(*pieces):
    """A rich_text block."""
    return {"type": "rich_text", "elements": list(pieces)}


def pre(text):
    """Return a preformatted element."""
    return {"type": "rich_text_preformatted", "elements": [{"type": "text", "text": text}]}


def select(**more):
    """A static_select."""
    return {"type": "static_select", "action_id": "s", **more}


def table(rows, columns=2):
    """A table of cells "x"."""
    return {"type": "table", "rows": [[{"type": "raw_text", "text": "x"}] * columns] * rows}


def image(**more):
    """An image block."""
    return {"type": "image", "image_url": "https://x/y.png", "alt_text": "x", **more}


SOUND = {
    "section of 3000": [section("x" * 3000)],
    "50 blocks": [{"type": "divider"}] * 50,
    "10 fields of 1300": [{"type": "section", "fields": [plain("x" * 1300)] * 10}],
    "header of 150": [{"type": "header", "text": plain("x" * 150)}],
    "context of 10": [{"type": "context", "elements": [plain("x")] * 10}],
    "25 buttons": [actions(*(pressed("x" * 75, f"a{number}", "v" * 2000) for number in range(25)))],
    "overflow of 5": [actions({"type": "overflow", "action_id": "o", "options": options(5)})],
    "select of 100": [actions(select(options=options(100)))],
    "groups": [actions(select(option_groups=[{"label": plain("g"), "options": options(2)}]))],
    "preformatted": [rich(pre("<!channel> `x` *y*"))],
    "table of 100 by 20": [table(100, 20)],
    "image": [image(title=plain("t"))],
    "image of a file": [{"type": "image", "slack_file": {"id": "F1"}, "alt_text": ""}],
    "an answer": answer("4127"),
    "no blocks": [],
}


@pytest.mark.parametrize("name", SOUND)
def test_what_the_documentation_allows_passes(name):
    """Blocks at their limits are accepted."""
    message_blocks(SOUND[name])


UNSOUND = {
    "section of 3001": ([section("x" * 3001)], "must be less than 3001 characters [json-pointer:/blocks/0/text/text]"),
    "UTF-16 units count": (
        [section("😀" * 1501)],
        "must be less than 3001 characters [json-pointer:/blocks/0/text/text]",
    ),
    "empty text": ([section("")], "must be more than 0 characters [json-pointer:/blocks/0/text/text]"),
    "lone surrogate": ([section("\ud800")], "must be valid Unicode [json-pointer:/blocks/0/text/text]"),
    "51 blocks": ([{"type": "divider"}] * 51, "no more than 50 items allowed [json-pointer:/blocks]"),
    "11 fields": (
        [{"type": "section", "fields": [plain("x")] * 11}],
        "no more than 10 items allowed [json-pointer:/blocks/0/fields]",
    ),
    "field of 2001": (
        [{"type": "section", "fields": [plain("x" * 2001)]}],
        "must be less than 2001 characters [json-pointer:/blocks/0/fields/0/text]",
    ),
    "section of nothing": ([{"type": "section"}], "must define either `text` or `fields` [json-pointer:/blocks/0]"),
    "header of 151": (
        [{"type": "header", "text": plain("x" * 151)}],
        "must be less than 151 characters [json-pointer:/blocks/0/text/text]",
    ),
    "header in mrkdwn": (
        [{"type": "header", "text": {"type": "mrkdwn", "text": "x"}}],
        "must be one of: plain_text [json-pointer:/blocks/0/text/type]",
    ),
    "context of 11": (
        [{"type": "context", "elements": [plain("x")] * 11}],
        "no more than 10 items allowed [json-pointer:/blocks/0/elements]",
    ),
    "26 buttons": (
        [actions(*(pressed("x", f"a{number}", "v") for number in range(26)))],
        "no more than 25 items allowed [json-pointer:/blocks/0/elements]",
    ),
    "button text of 76": (
        [actions(pressed("x" * 76, "a", "v"))],
        "must be less than 76 characters [json-pointer:/blocks/0/elements/0/text/text]",
    ),
    "button value of 2001": (
        [actions(pressed("x", "a", "v" * 2001))],
        "must be less than 2001 characters [json-pointer:/blocks/0/elements/0/value]",
    ),
    "action_id of 256": (
        [actions(pressed("x", "a" * 256, "v"))],
        "must be less than 256 characters [json-pointer:/blocks/0/elements/0/action_id]",
    ),
    "same action_id": (
        [actions(pressed("x", "a", "v"), pressed("y", "a", "w"))],
        "`action_id` must be unique in a block: a [json-pointer:/blocks/0]",
    ),
    "same block_id": (
        [{**section("x"), "block_id": "b"}, {**section("y"), "block_id": "b"}],
        "`block_id` must be unique [json-pointer:/blocks/1/block_id]",
    ),
    "overflow of 6": (
        [actions({"type": "overflow", "action_id": "o", "options": options(6)})],
        "no more than 5 items allowed [json-pointer:/blocks/0/elements/0/options]",
    ),
    "overflow of none": (
        [actions({"type": "overflow", "action_id": "o", "options": []})],
        "no fewer than 1 items allowed [json-pointer:/blocks/0/elements/0/options]",
    ),
    "select of 101": (
        [actions(select(options=options(101)))],
        "no more than 100 items allowed [json-pointer:/blocks/0/elements/0/options]",
    ),
    "option label of 76": (
        [actions(select(options=[option("x" * 76)]))],
        "must be less than 76 characters [json-pointer:/blocks/0/elements/0/options/0/text/text]",
    ),
    "option value of 151": (
        [actions(select(options=[option(value="x" * 151)]))],
        "must be less than 151 characters [json-pointer:/blocks/0/elements/0/options/0/value]",
    ),
    "options alike": (
        [actions(select(options=[option(), option()]))],
        "options must have unique values [json-pointer:/blocks/0/elements/0/options]",
    ),
    "a strange beginning": (
        [actions(select(options=[option()], initial_option=option("b", "w")))],
        "must exactly match one of the provided options [json-pointer:/blocks/0/elements/0/initial_option]",
    ),
    "options and groups": (
        [actions(select(options=[option()], option_groups=[]))],
        "must define either `options` or `option_groups` [json-pointer:/blocks/0/elements/0]",
    ),
    "11 checkboxes": (
        [actions({"type": "checkboxes", "action_id": "c", "options": options(11)})],
        "no more than 10 items allowed [json-pointer:/blocks/0/elements/0/options]",
    ),
    "a multi-select among actions": (
        [actions({"type": "multi_static_select", "action_id": "m", "options": options(1)})],
        "unsupported type: multi_static_select [json-pointer:/blocks/0/elements/0]",
    ),
    "a text input among actions": (
        [actions({"type": "plain_text_input", "action_id": "t"})],
        "unsupported type: plain_text_input [json-pointer:/blocks/0/elements/0]",
    ),
    "confirm title of 101": (
        [
            actions(
                {
                    **pressed("x", "a", "v"),
                    "confirm": {
                        "title": plain("x" * 101),
                        "text": plain("x"),
                        "confirm": plain("y"),
                        "deny": plain("n"),
                    },
                }
            )
        ],
        "must be less than 101 characters [json-pointer:/blocks/0/elements/0/confirm/title/text]",
    ),
    "unknown field": (
        [{**section("x"), "colour": "red"}],
        "invalid additional property: colour [json-pointer:/blocks/0]",
    ),
    "unknown block": ([{"type": "marquee"}], "unsupported type: marquee [json-pointer:/blocks/0]"),
    "no type": ([{"text": plain("x")}], "missing required field: type [json-pointer:/blocks/0]"),
    "alt text missing": (
        [{"type": "image", "image_url": "https://x"}],
        "missing required field: alt_text [json-pointer:/blocks/0]",
    ),
    "image of a strange address": (
        [image(image_url="javascript:1")],
        "must be a valid URL [json-pointer:/blocks/0/image_url]",
    ),
    "image of two places": (
        [image(slack_file={"id": "F1"})],
        "must define either `image_url` or `slack_file` [json-pointer:/blocks/0]",
    ),
    "empty preformatted": (
        [rich(pre(""))],
        "must be more than 0 characters [json-pointer:/blocks/0/elements/0/elements/0/text]",
    ),
    "a mention in preformatted": (
        [rich({"type": "rich_text_preformatted", "elements": [{"type": "user", "user_id": "U1"}]})],
        "unsupported type: user [json-pointer:/blocks/0/elements/0/elements/0]",
    ),
    "a list in a list": (
        [rich({"type": "rich_text_list", "style": "bullet", "elements": [{"type": "rich_text_list"}]})],
        "unsupported type: rich_text_list [json-pointer:/blocks/0/elements/0/elements/0]",
    ),
    "101 rows": ([table(101)], "no more than 100 items allowed [json-pointer:/blocks/0/rows]"),
    "21 columns": ([table(1, 21)], "no more than 20 items allowed [json-pointer:/blocks/0/rows/0]"),
    "two tables": ([table(1), table(1)], "only one table allowed [json-pointer:/blocks]"),
    "emoji in mrkdwn": (
        [{"type": "section", "text": {"type": "mrkdwn", "text": "x", "emoji": True}}],
        "only allowed in plain_text [json-pointer:/blocks/0/text/emoji]",
    ),
    "markdown of 12,001": (
        [{"type": "markdown", "text": "x" * 7000}, {"type": "markdown", "text": "x" * 5001}],
        "markdown must be less than 12001 characters in all blocks [json-pointer:/blocks]",
    ),
}


@pytest.mark.parametrize("name", UNSOUND)
def test_what_the_documentation_forbids_is_refused_with_its_place(name):
    """Blocks one step over a limit are rejected as invalid_blocks, with the reason and a JSON pointer."""
    blocks, reason = UNSOUND[name]
    with pytest.raises(ApiError) as caught:
        message_blocks(blocks)
    assert (caught.value.error, caught.value.messages) == ("invalid_blocks", (reason,))
    assert caught.value.body()["response_metadata"] == {"messages": [f"[ERROR] {reason}"]}


def test_all_faults_of_a_message_are_reported_at_once():
    """Two mistakes give two reasons."""
    with pytest.raises(ApiError) as caught:
        message_blocks([section(""), {"type": "header", "text": plain("x" * 151)}])
    assert len(caught.value.messages) == 2


@pytest.mark.parametrize("blocks", ["text", {"type": "divider"}, [1], ["[]"]])
def test_blocks_that_are_no_list_of_objects_have_a_bad_format(blocks):
    """Twice-encoded and bare blocks are distinguished from invalid ones."""
    with pytest.raises(ApiError, match="invalid_blocks_format"):
        message_blocks(blocks)


@pytest.mark.parametrize(("last", "error"), [(1200, None), (1201, "msg_blocks_too_long")])
def test_the_sum_of_text_is_limited(last, error):
    """13,200 characters in all blocks together pass, one more does not."""
    blocks = [section("x" * 3000)] * 4 + [section("x" * last)]
    if error is None:
        message_blocks(blocks)
    else:
        with pytest.raises(ApiError, match=error):
            message_blocks(blocks)


def test_views_at_their_limits_pass():
    """A modal with 24 characters of title and 3000 of metadata, and a Home tab of 100 blocks."""
    view({**modal("x" * 3000), "title": plain("x" * 24)})
    view({"type": "home", "blocks": [{"type": "divider"}] * 100})


BAD_VIEWS = {
    "title of 25": (
        {**modal("h"), "title": plain("x" * 25)},
        "must be less than 25 characters [json-pointer:/view/title/text]",
    ),
    "metadata of 3001": (modal("x" * 3001), "must be less than 3001 characters [json-pointer:/view/private_metadata]"),
    "submit of 25": (
        {**modal("h"), "submit": plain("x" * 25)},
        "must be less than 25 characters [json-pointer:/view/submit/text]",
    ),
    "callback_id of 256": (
        {**modal("h"), "callback_id": "x" * 256},
        "must be less than 256 characters [json-pointer:/view/callback_id]",
    ),
    "101 blocks": (
        {"type": "home", "blocks": [{"type": "divider"}] * 101},
        "no more than 100 items allowed [json-pointer:/view/blocks]",
    ),
    "inputs that cannot be sent": (
        {key: value for key, value in modal("h").items() if key != "submit"},
        "missing required field: submit [json-pointer:/view]",
    ),
    "a Home tab with a title": (
        {"type": "home", "title": plain("x"), "blocks": [section("x")]},
        "only allowed in modals [json-pointer:/view/title]",
    ),
    "a modal without a title": (
        {"type": "modal", "blocks": [section("x")]},
        "missing required field: title [json-pointer:/view]",
    ),
    "a table": ({"type": "home", "blocks": [table(1)]}, "unsupported type: table [json-pointer:/view/blocks/0]"),
    "no blocks": ({"type": "home", "blocks": []}, "no fewer than 1 items allowed [json-pointer:/view/blocks]"),
    "a number input that does not say of what kind": (
        {**modal("h"), "blocks": [asked("n", "N", {"type": "number_input"})]},
        "missing required field: is_decimal_allowed [json-pointer:/view/blocks/0/element]",
    ),
    "max_length of 3001": (
        {**modal("h"), "blocks": [asked("n", "N", {"type": "plain_text_input", "max_length": 3001})]},
        "must be an integer from 1 to 3000 [json-pointer:/view/blocks/0/element/max_length]",
    ),
    "label of 2001": (
        {**modal("h"), "blocks": [asked("n", "N" * 2001, {"type": "plain_text_input"})]},
        "must be less than 2001 characters [json-pointer:/view/blocks/0/label/text]",
    ),
    "a button as input": (
        {**modal("h"), "blocks": [asked("n", "N", {"type": "button", "text": plain("x")})]},
        "unsupported type: button [json-pointer:/view/blocks/0/element]",
    ),
}


@pytest.mark.parametrize("name", BAD_VIEWS)
def test_unsound_views_are_refused_with_their_place(name):
    """Views are rejected as invalid_arguments."""
    source, reason = BAD_VIEWS[name]
    with pytest.raises(ApiError) as caught:
        view(source)
    assert (caught.value.error, caught.value.messages) == ("invalid_arguments", (reason,))


def test_a_view_of_more_than_250_kilobytes_is_too_large():
    """Slack's limit for a whole view."""
    with pytest.raises(ApiError, match="view_too_large"):
        view({"type": "home", "blocks": [section("x" * 3000)] * 90})
