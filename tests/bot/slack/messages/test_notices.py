"""Slack messages other than answers."""

from __future__ import annotations

from random import Random

import pytest

from bot.slack.blocks.limits import Message
from bot.slack.messages.notices import (
    Candidate,
    Held,
    SourceState,
    collecting,
    held_back,
    not_collected,
    not_done,
    recent_jobs,
    refused,
    reminder,
    unknown_job,
    usage,
)
from bot.slack.messages.replies import opening_words, request_accepted, text_reply
from kb.model import Gap
from tests.support.block_limits import faults_of_message, texts
from tests.support.hostile_reports import SECRETS, text
from tests.support.slack_reading import read

SOURCES = (
    SourceState("slurm", "came", "8 nodes"),
    SourceState("loki", "failed", "timed out after 20 s"),
    SourceState("events", "empty", "nothing"),
    SourceState("prometheus"),
)
GAP = Gap("denied", "loki", "403: token is wrong", rules_out="whether it knows the job")


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (
            collecting("llm-7b", SOURCES, asked_by="U1"),
            """\
# ⏳ llm-7b: collecting 3/4
✓ slurm: 8 nodes
*✗ loki*: timed out after 20 s
○ events: nothing
… prometheus
Asked by @U1
(The result appears here within 60 s, based on what has arrived by then)
""",
        ),
        (
            collecting("llm-7b", (), why="Asked by the alert JobHung", seconds=20),
            """\
# ⏳ llm-7b: looking for the job
Asked by the alert JobHung
(The result appears here within 20 s, based on what has arrived by then)
""",
        ),
        (
            not_collected("llm-7b", "No source gave anything in 60 s", "error e81f", "h", [GAP]),
            """\
# ❔ llm-7b: no data could be collected
*No source gave anything in 60 s*
  • loki: 403: token is wrong; cannot tell: whether it knows the job
(For details, search for “error e81f” in the log of the service.)
[Run again]
""",
        ),
        (
            not_done("The form could not be kept.", "work 17"),
            "*The form could not be kept.*\n(For details, search for “work 17” in the log of the service.)\n",
        ),
        (request_accepted("llm-7b"), "Diagnosing llm-7b. I'll post the result here.\n"),
        (request_accepted("llm-7b", private=True), "Diagnosing llm-7b. I'll send the result only to you.\n"),
        (
            request_accepted("llm-7b", there=True, link_to="https://acme.slack.com/p1"),
            (
                "llm-7b is already being diagnosed in this channel, or was a moment ago: see the answer "
                "<https://acme.slack.com/p1>. To diagnose it again, use “Run again” in its menu.\n"
            ),
        ),
        (
            opening_words("llm-7b", "job ended: FAILED, exit code 1", ["S0OPS"]),
            "llm-7b failed. I'll post the diagnosis here. @S0OPS\njob ended: FAILED, exit code 1\n",
        ),
        (
            unknown_job("lm7b", [Candidate("c1", "llm-7b", "4711, failed 2 h ago")], [GAP]),
            """\
*No job “lm7b” found.*
Did you mean one of these?
llm-7b (4711, failed 2 h ago) [Diagnose]
*Unavailable sources:*
  • loki: 403: token is wrong; cannot tell: whether it knows the job
(Usage: /diagnose JOB [last 2h] [state FAILED] [private] [deep])
""",
        ),
        (
            recent_jobs([]),
            "*None of your jobs failed recently.*\n(Usage: /diagnose JOB [last 2h] [state FAILED] [private] [deep])\n",
        ),
        (
            usage("“lst” is not understood."),
            "*“lst” is not understood.*\nUsage: /diagnose JOB [last 2h] [state FAILED] [private] [deep]\n",
        ),
        (
            refused("diagnose", "S0OPS", "in this channel"),
            "You don't have permission to diagnose in this channel.\nAsk @S0OPS for access.\n",
        ),
        (refused("mute", None), "You don't have permission to mute.\nAsk your Signalbox admin for access.\n"),
        (
            held_back([Held("a", "Disk full", "https://x.example/1"), Held("b", "Disk full")]),
            """\
*2 more failures this hour, not posted separately:*
*• a*: Disk full page <https://x.example/1>
*• b*: Disk full
(/signalbox incidents lists them all. /diagnose JOB shows a single job.)
""",
        ),
        (
            reminder("llm-7b", "U1", "h"),
            "@U1 *What was the cause of the failure of llm-7b?*\n[Close out] [Later] [Not needed]\n",
        ),
    ],
)
def test_each_notice_as_text(message: Message, told: str):
    """The whole message."""
    assert read(message.blocks) == told
    assert faults_of_message(message.text, message.blocks) == []


def test_long_lists_say_how_many_are_left_out():
    """Sources and failures."""
    assert "… and 8 more sources\n" in read(collecting("x", [SourceState(f"s{n}") for n in range(20)]).blocks)
    assert "… and 3 more\n" in read(held_back([Held(f"j{n}", "x") for n in range(13)]).blocks)


@pytest.mark.slow  # forms/test_close_out.py, test_hostile_reports_break_no_limit_mention_nobody_and_keep_their_secrets
def test_notices_of_hostile_texts_fit():
    """Whatever the names and messages of jobs, sources and errors."""
    chance = Random(17)
    for _ in range(40):
        many = chance.choice((0, 1, 6, 120))
        sources = [
            SourceState(text(chance), chance.choice(("waiting", "came", "failed")), text(chance)) for _ in range(many)
        ]
        gaps = [Gap(text(chance), text(chance), text(chance), rules_out=text(chance)) for _ in range(many)]
        candidates = [Candidate("h", text(chance), text(chance)) for _ in range(many)]
        for message in (
            collecting(text(chance), sources, asked_by=text(chance)),
            not_collected(text(chance), text(chance), text(chance), "h", gaps),
            not_done(text(chance), text(chance)),
            request_accepted(text(chance), there=chance.random() < 0.5, link_to=text(chance)),
            opening_words(text(chance), text(chance), [text(chance), "U1"]),
            text_reply(text(chance)),
            unknown_job(text(chance), candidates, gaps),
            recent_jobs(candidates),
            usage(text(chance)),
            refused("diagnose", text(chance), text(chance)),
            held_back([Held(text(chance), text(chance), text(chance)) for _ in range(many)]),
            reminder(text(chance), text(chance), "h"),
        ):
            assert faults_of_message(message.text, message.blocks) == []
            assert [secret for secret in SECRETS if secret in "".join(texts(message.body))] == []
