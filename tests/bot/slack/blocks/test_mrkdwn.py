"""Untrusted text in Slack: shown literally, without markup, mentions or secrets."""

from __future__ import annotations

import re
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.slack.blocks.builders import bullets, link, mention, paragraph, plain, preformatted, rich, words
from bot.slack.blocks.mrkdwn import escaped, listed, quoted, safe
from tests.support.block_limits import INVISIBLE, MARKUP, units
from tests.support.hostile_reports import SECRETS, text


@given(st.text(st.characters(exclude_categories=())), st.integers(60, 300))
def test_no_text_is_markup_or_longer_than_asked(told: str, limit: int):
    """Entities count in full, and none is split."""
    line = escaped(told, limit)
    assert (MARKUP.search(line), INVISIBLE.search(line), "\n" in line) == (None, None, False)
    assert units(line) <= limit


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ("<!channel> & <@U1>", "&lt;!channel&gt; &amp; &lt;@U1&gt;"),
        ("&lt;!here&gt;", "&amp;lt;!here&amp;gt;"),
        ("a\r\n\tb  c", "a\\x0d b c"),
        ("\u202eexe\u200b\ud800\x00", "\\u202eexe\\u200b\\ud800\\x00"),
        ("\x1b[31mred\x1b[0m", "red"),
    ],
)
def test_hostile_characters_are_seen(told: str, expected: str):
    """Invisible characters appear as escapes, markup as entities."""
    assert escaped(told, 300) == expected


@pytest.mark.parametrize("secret", SECRETS[:-1])
@pytest.mark.parametrize("hidden", ["{}", "\x1b[1m{}", "a={} b", "\n{}\n"])
def test_secrets_are_masked(secret: str, hidden: str):
    """Even with a colour sequence in the middle."""
    middle = len(secret) // 2
    for word in (secret, f"{secret[:middle]}\x1b[0m{secret[middle:]}"):
        told = hidden.format(word)
        assert secret not in f"{safe(told, 300)}{escaped(told, 300)}{quoted(told, 5, 300)}"


def test_a_secret_at_the_place_of_the_cut_is_masked_first():
    """Not even half of a secret is shown."""
    told = "x" * 200 + " " + SECRETS[0]
    assert SECRETS[0][:10] not in safe(told, 235)


def test_a_line_of_a_megabyte_is_cut_with_its_length():
    """The count is that of the whole line."""
    line = safe("y" * 1_000_000, 100)
    assert line == "y" * (100 - len(" … (1000000 more characters)")) + " … (999928 more characters)"


def test_quoted_lines_keep_their_indents_and_say_how_many_are_left_out():
    """Blank lines are dropped."""
    assert quoted("a\n\n    b\nc\nd", 2, 80) == "a\n    b\n… 2 more lines"


def test_a_list_says_how_many_are_left_out():
    """Only if some are left out."""
    assert (listed(["a", "b", "c"], 2), listed(["a"], 2)) == (["a", "b", "… and 1 more"], ["a"])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("U012AB", [{"type": "user", "user_id": "U012AB"}]),
        ("S012AB", [{"type": "usergroup", "usergroup_id": "S012AB"}]),
        ("<!channel>", [{"type": "text", "text": "<!channel>"}]),
        ("Ulrike", [{"type": "text", "text": "Ulrike"}]),
    ],
)
def test_only_ids_of_slack_are_mentions(name: str, expected: list):
    """A scheduler's login is plain text."""
    assert mention(name) == expected


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "https://x y", "https://x>|evil", None, "", "https://" + "a" * 3000, "http:///x"]
)
def test_what_is_no_address_of_the_web_is_no_link(url: str | None):
    """Other addresses stay plain text."""
    assert link(url, "page") == []


def test_empty_parts_make_no_block():
    """Slack rejects empty texts and lists."""
    assert rich(paragraph(words("")), bullets([], 10), preformatted("\n \n", 3, 80)) == []
    assert plain("\n")["text"] == "-"


def test_hostile_lines_in_a_box_are_as_they_are():
    """Rich text has no markup: backticks and asterisks stay."""
    chance = Random(3)
    for _ in range(200):
        for part in preformatted(text(chance), 4, 200):
            (run,) = part["elements"]
            assert re.fullmatch(r"[^\x00-\x09\x0b-\x1f]+", run["text"])
            assert max(len(line) for line in run["text"].split("\n")) <= 200
