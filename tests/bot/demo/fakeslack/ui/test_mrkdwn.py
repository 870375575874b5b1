"""Markup as HTML: correct rendering, and hostile text stays text."""

from __future__ import annotations

import random
from html.parser import HTMLParser

import pytest

from bot.demo.fakeslack.ui.mrkdwn import Names, mrkdwn, rich_text
from bot.demo.fakeslack.values import Channel, User, UserGroup

NAMES = Names(
    {"U1": User("U1", "ann")}, {"C1": Channel("C1", "alerts")}, {"S1": UserGroup("S1", "hw-oncall", "Hardware on call")}
)
SHOWN = {
    "*bold* _italic_ ~gone~ `code *x*`": "<b>bold</b> <i>italic</i> <s>gone</s> <code>code *x*</code>",
    "*Job `a` of <@U1>*": '<b>Job <code>a</code> of <span class="mention">@ann</span></b>',
    "2*3*4 and snake_case_name": "2*3*4 and snake_case_name",
    "* no* and **": "* no* and **",
    "one\ntwo": "one<br>two",
    "> said\n> so\nnot": "<blockquote>said<br>so</blockquote>not",
    "&gt; said": "<blockquote>said</blockquote>",
    "```\na < b\n  c\n```": "<pre>a &lt; b\n  c</pre>",
    "<https://x.org/a?b=1&amp;c=2|the page>": (
        '<a href="https://x.org/a?b=1&amp;c=2" rel="noopener noreferrer nofollow" target="_blank">the page</a>'
    ),
    "<#C1> <#C9|old> <!subteam^S1|@x> <!here>": (
        '<span class="mention">#alerts</span> <span class="mention">#old</span> '
        '<span class="mention">@hw-oncall</span> <span class="mention loud">@here</span>'
    ),
    "<!date^1780000000^{time}|03:12>": "<time>20:26</time>",
    "<!date^1780000000^on {date_num} at {time_secs}^https://x.example|03:12>": "<time>on 2026-05-28 at 20:26:40</time>",
    "<!date^1780000000^{date_short_pretty} {time}|03:12>": "<time>May 28, 2026 20:26</time>",
    "<!date^soon^{time}|03:12>": "<time>03:12</time>",
    "<!date^1780000000^{era}|03:12>": "<time>03:12</time>",
    "a &lt;b&gt; &amp;amp; c": "a &lt;b&gt; &amp;amp; c",
    ":warning: :no_such_thing:": "⚠️ :no_such_thing:",
    "<script>alert(1)</script>": "&lt;script&gt;alert(1)&lt;/script&gt;",
    "<javascript:alert(1)|click>": "click",
    '<https://x" onclick="y|z>': (
        '<a href="https://x&#34; onclick=&#34;y" rel="noopener noreferrer nofollow" target="_blank">z</a>'
    ),
    "\ue0000\ue001 *\ue0001\ue001*": "0 <b>1</b>",
}


@pytest.mark.parametrize("text", SHOWN)
def test_mrkdwn_is_shown_as_slack_shows_it(text):
    """Markup becomes HTML, everything else is escaped."""
    assert str(mrkdwn(text, NAMES)) == SHOWN[text]


class Strict(HTMLParser):
    """Accepts only the tags and attributes that markup can become, each closed."""

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attrs):
        """A tag that may be there."""
        assert tag in {
            "b",
            "i",
            "s",
            "u",
            "code",
            "pre",
            "br",
            "blockquote",
            "a",
            "span",
            "time",
            "p",
            "ul",
            "ol",
            "li",
        }
        for name, value in attrs:
            assert name in {"class", "href", "rel", "target"}
            assert name != "href" or value.startswith(("https://", "http://", "mailto:"))
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        """Each is closed, the last first."""
        assert self.open.pop() == tag


PIECES = (
    "*", "_", "~", "`", "```", "<", ">", "|", "&lt;", "&amp;", ":", "warning", "\n", " ", "a", "@U1", "!here", "https://x",
    "javascript:1", "\ue000", "\ue001", "0", "<script>", "onclick=", '"', "'", "&gt;", "<@U1>", "<!subteam^S1|x>", "\ue002",
)  # fmt: skip


def test_no_words_become_mark_up_of_their_own():
    """3,000 hostile strings give only our few tags, well nested, with harmless addresses."""
    chance = random.Random(7)
    for _ in range(3000):
        text = "".join(chance.choices(PIECES, k=chance.randint(1, 25)))
        strict = Strict()
        strict.feed(str(mrkdwn(text, NAMES)))
        strict.close()
        assert strict.open == [], text


def test_rich_text_parses_nothing():
    """Text stays text; styles nest; names are looked up."""
    leaf = {"type": "text", "text": "*x* <!channel> <b>", "style": {"bold": True, "code": True}}
    block = {
        "type": "rich_text",
        "elements": [
            {"type": "rich_text_section", "elements": [leaf, {"type": "user", "user_id": "U1"}]},
            {"type": "rich_text_preformatted", "elements": [{"type": "text", "text": "<script>"}]},
            {
                "type": "rich_text_list",
                "style": "ordered",
                "elements": [
                    {"type": "rich_text_section", "elements": [{"type": "link", "url": "javascript:1", "text": "here"}]}
                ],
            },
        ],
    }
    assert str(rich_text(block, NAMES)) == (
        "<p><b><code>*x* &lt;!channel&gt; &lt;b&gt;</code></b>"
        '<span class="mention">@ann</span></p><pre>&lt;script&gt;</pre><ol class="indent0"><li><p>here</p></li></ol>'
    )
