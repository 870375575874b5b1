"""The text of a pull request: content of incidents is always plain text."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from bot.forges.pull_request_body import BEGIN, END, LONGEST, BodyContent, body_of, hidden, plain, renewed, title_of

EVIL = [
    "@everyone look",
    "cc @acme/team",
    "fixes #12",
    "closes acme/rules#3",
    "resolves GH-4",
    "see !5 and ~bug and %milestone and &7 and $9",
    "/merge",
    "/close\n/approve",
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<!-- signalbox:deadbeef --> -->",
    "<details><summary>x</summary>",
    "[click](https://evil.example) ![x](https://evil.example/x.png)",
    "https://evil.example/?q=1 www.evil.example mail@evil.example",
    "``` \n@everyone\n```",
    "| a | b |\n|---|---|",
    "# heading\n- [x] done",
    "deadbeefdeadbeefdeadbeefdeadbeefdeadbeef",
    "${{ github.token }} $(id) `id`",
    "on: push\njobs:\n  x:\n    runs-on: self-hosted",
    "\u202eevil \u200b \x1b[31mred",
    "Co-authored-by: x <x@y>\n\nSigned-off-by: z",
    "[skip ci] [ci skip] Draft: WIP:",
    "\\`x\\` &#64;everyone &commat;everyone",
    BEGIN,
    END,
]
TOLD = BodyContent("signalbox:1", "nic-flaps", "The NIC flaps", "rdma_link", "U0ADA")


def outside(body: str) -> str:
    """What of a body a forge reads as Markdown: without blocks and spans of code."""
    kept, fence = [], ""
    for line in body.splitlines():
        ticks = line[: len(line) - len(line.lstrip("`"))]
        if fence:
            fence = "" if line.strip() == fence else fence
        elif len(ticks) >= 3:
            fence = ticks
        else:
            kept.append(re.sub(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", "CODE", line))
    assert fence == ""
    return "\n".join(kept)


ACTS = [
    r"@[A-Za-z0-9]",
    r"(?<!&)#\d",
    r"\bGH-\d",
    r"[!~%$^]\w",
    r"(?m)^\s*/\w",
    r"<(?!!-- (?:signalbox: (?:from|to) here|signalbox:1) -->)[A-Za-z/!]",
    r"(?<!\\)\]\(",
    r"://",
    r"\bwww\.",
    r"\b[0-9a-f]{7,40}\b",
    r"\$\{\{",
    r"[\u202e\x1b]",
]


@pytest.mark.parametrize("text", EVIL)
def test_no_text_of_an_incident_acts(text):
    """No mention, reference, address, HTML or command gets into the body, whatever text it comes from; our markers stay unique."""
    told = replace(
        TOLD, title=text, fault=text, who=text, why=text, patterns=[text], lines=[text, text], silent=[text],
        figures=[(text, text)], notes=[text], incidents=[1],
    )  # fmt: skip
    body = body_of(told, "A note of ours.")
    read = outside(body)
    assert [pattern for pattern in ACTS if re.search(pattern, read)] == [], read
    assert (body.startswith(BEGIN), body.endswith(END), read.count(hidden("signalbox:1"))) == (True, True, 1)
    tables = [line for line in read.splitlines() if line.startswith("|")]
    assert [line.count("|") for line in tables] == [3, 3, 3]


@pytest.mark.parametrize("text", EVIL)
def test_a_title_is_of_plain_words(text):
    """It becomes a commit's message when it is merged: nothing closes an issue, skips a check or makes a draft."""
    title = title_of("nic-flaps", text)
    assert re.fullmatch(r"Rule nic-flaps(?:: [A-Za-z0-9 .,;()'+=_-]*)?", title), title
    assert not re.match(r"(?i)\W*(?:draft|wip)\b", plain(text, 100))
    assert not re.search(r"(?i)\bgh-\d|\[|@|#|://", title)


def test_what_a_reviewer_reads():
    """In the order of a hurry: what failed, the evidence, the rule, the figures, open questions, how to try, accept and reject it."""
    told = replace(
        TOLD, why="the switch port was bad", patterns=["link (?P<port>\\w+) down"], lines=["link p1 down"],
        silent=["link p1 up"], figures=[("Matches", "2: no. 4, no. 7")], notes=["one incident alone supports it"],
        incidents=[4, 7], passed=True, questions=["Does it occur elsewhere?"], switch="git switch --detach signalbox/rule/nic-flaps",
    )  # fmt: skip
    assert (
        body_of(told)
        == f"""{BEGIN}
**`nic-flaps`** names `rdma_link`: The NIC flaps

**What failed.** the switch port was bad
Incidents: 4, 7.
Requested by `U0ADA`.

**Evidence** (secrets, names, hosts and ids are replaced; numbers are as logged)

```text
link p1 down
```

**The rule** looks for

```text
link (?P<port>\\w+) down
```

and is silent on, for example

```text
link p1 up
```

**What it would have changed, and how it was tested**

| Figure |  |
| --- | --- |
| Matches | 2: no. 4, no. 7 |

No confirmed answer gets worse, no log of a successful run matches, and none of these figures speaks against the rule.

**Open questions**
- Does it occur elsewhere?

**Note.**
- one incident alone supports it

**To try it** from this branch, on its own logs and on one of yours:

```text
git switch --detach signalbox/rule/nic-flaps
signalbox rules test nic-flaps --drafts --rules rules
signalbox rules test nic-flaps --drafts --rules rules --on failed.log
```

**To accept:** review `rule.yaml`, fix it in this branch if needed, and merge. A rule with status draft or shadow does not appear in answers yet.
**To wait:** leave it open. When another incident is closed with the same cause, a new proposal updates this branch.
**To reject:** close this pull request. The same pattern is not proposed again.
After somebody commits to this branch, Signalbox only comments here.

<!-- signalbox:1 -->
{END}"""
    )


def test_the_evidence_is_five_lines():
    """However many lines the rule matches."""
    body = body_of(
        replace(TOLD, lines=[f"link p{at} down" for at in range(9)], silent=[f"p{at} up" for at in range(19)])
    )
    assert [f"link p{at} down" in body for at in (4, 5)] == [True, False]
    assert [f"p{at} up" in body for at in (9, 10)] == [True, False]  # each behind what it tests


def test_secrets_are_masked():
    """Whoever wrote them there."""
    told = replace(TOLD, why="password=hunter2hunter2", lines=["Authorization: Bearer abcdef0123456789abcdef"])
    assert "hunter2" not in body_of(told)
    assert "abcdef0123456789abcdef" not in body_of(told)


def test_a_body_is_bounded():
    """Long texts are cut; the required parts stay."""
    told = replace(
        TOLD,
        why="x" * 10**6,
        lines=["`" * 5000] * 10**4,
        figures=[("x" * 9999, "y" * 9999)] * 300,
        notes=["@" * 999] * 30,
    )
    body = body_of(told)
    assert len(body) < LONGEST
    assert body.endswith(f"{hidden('signalbox:1')}\n{END}")


def test_what_people_wrote_around_it_stays():
    """Our part is replaced; where it is gone, the new one is all."""
    old, new = body_of(TOLD), body_of(replace(TOLD, title="Another"))
    assert renewed(f"Ada: read this\n{old}\nBob: done", new) == f"Ada: read this\n{new}\nBob: done"
    assert renewed("only Ada's words", new) == new
    assert renewed(old, old) == old
