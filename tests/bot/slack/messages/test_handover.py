"""`/signalbox handover` and `/signalbox digest`: visible to the requester, within the limits of Slack."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from bot.incidents.handover import (
    Handover,
    HandoverIncident,
    HandoverNode,
    HandoverProposal,
    HandoverSection,
    PendingWork,
)
from bot.slack.blocks.limits import MESSAGE_BLOCKS, WHOLE, weight
from bot.slack.messages.handover import message_of
from bot.slack.parsing.commands import read_shift
from kb.errors import UnreadableInput
from tests.support.common.slack_actions import only, text_of
from tests.support.slack_reading import read
from tests.support.slack_stage import ADA, CHANNEL

NOW = datetime(2026, 11, 16, 6, tzinfo=UTC)
NONE = HandoverSection()


def line(number: int, told: str = "GPU 3 fell off the bus", **more: object) -> HandoverIncident:
    """Return an incident in a list."""
    return HandoverIncident(number, "llm-70b", "gpu_fell_off_bus", told, NOW - timedelta(hours=number), **more)  # type: ignore[arg-type]


QUIET = Handover("default", NOW - timedelta(hours=12), NOW, NONE, NONE, (), 0, NONE, PendingWork(), NONE, NONE, NONE)


def test_a_quiet_shift_is_short():
    """The headline, what there is none of, and where longer lists are."""
    assert read(message_of(QUIET).blocks) == (
        "# Handover, last 12 h\n"
        "*No open incidents, no excluded nodes, 0 new, 0 closed*\n"
        "(As of 2026-11-16 06:00:00Z) (For longer lists, run `signalbox incidents handover`)\n"
    )


def test_a_busy_shift_says_all_of_it():
    """Lists are limited and give the number of further items; people are named."""
    bar = HandoverNode("gpu-017", "main", "barred", "GPU 3 left the bus twice", NOW, NOW + timedelta(days=2))
    found = Handover(
        "default",
        NOW - timedelta(hours=8),
        NOW,
        open=HandoverSection(9, tuple(line(n, assignee="U0ADA" if n == 1 else None) for n in range(1, 9))),
        snoozed=NONE,
        barred=(bar,),
        more_barred=0,
        watched=HandoverSection(1, (line(3, "no rank has made a step since 05:40"),)),
        waiting=PendingWork(
            (HandoverProposal("nccl-timeout", "asked", "grace"),), 0, (), 0, HandoverSection(2, ()), queued=3, failed=1
        ),
        new=NONE,
        closed=HandoverSection(1, (line(4, "disk_full", state="closed", by="ana"),)),
        changed=NONE,
    )
    assert read(message_of(found).blocks) == (
        "# Handover, last 8 h\n"
        "*9 open incidents, 1 excluded node, 0 new, 1 closed*\n"
        "*Open: 9*\n"
        "• 1 llm-70b: GPU 3 fell off the bus (@U0ADA)\n"
        + "".join(f"• {n} llm-70b: GPU 3 fell off the bus\n" for n in range(2, 7))
        + "… and 3 more\n"
        "*Excluded nodes: 1*\n"
        "  • gpu-017 (main) until 2026-11-18 06:00Z: GPU 3 left the bus twice\n"
        "*To watch: still running when diagnosed: 1*\n"
        "• 3 llm-70b: no rank has made a step since 05:40\n"
        "*Waiting for people or workers*\n"
        "  • rule nccl-timeout, asked, proposed by grace\n"
        "  • 2 incidents waiting for somebody to confirm the cause\n"
        "  • diagnoses: 3 queued, 1 failed\n"
        "*Closed: 1*\n"
        "• 4 llm-70b: disk_full (ana)\n"
        "(As of 2026-11-16 06:00:00Z) (For longer lists, run `signalbox incidents handover`)\n"
    )


def test_whatever_is_in_it_slack_takes_it():
    """Twenty-five long, hostile lines of everything."""
    bad = "<!channel> *bold* `" + "é" * 300
    lines = HandoverSection(5000, tuple(line(n, bad, by="<@U1>", assignee=bad) for n in range(25)))
    nodes = tuple(HandoverNode(bad, bad, "barred", bad, NOW) for _ in range(25))
    waiting = PendingWork(
        tuple(HandoverProposal(bad, "failed", bad, error=bad) for _ in range(25)), 9, nodes, 9, lines, 1, 2, 3
    )
    message = message_of(Handover(bad, NOW, NOW, lines, lines, nodes, 99, lines, waiting, lines, lines, lines))
    assert len(message.blocks) <= MESSAGE_BLOCKS
    assert weight(list(message.blocks)) <= WHOLE


def test_the_span_of_a_shift():
    """Twelve hours by default; an invalid span is explained."""
    assert [read_shift(text) for text in ("", "8h", "since 2d here", "HERE", "30 min")] == [
        43_200.0,
        28_800.0,
        172_800.0,
        43_200.0,
        1_800.0,
    ]
    with pytest.raises(UnreadableInput):
        read_shift("long")


@pytest.mark.slow  # incidents/test_handover.py, test_the_digest_in_slack
def test_the_handover_in_slack(play):
    """Shown only to the requester, at once; with `here` to everyone."""
    play.diagnose()
    assert play.workspace.command(ADA, CHANNEL, "/signalbox", "handover 8h").acknowledged
    assert play.ephemerals()[-1].startswith("Handover, last 8 h: 1 open incident")
    play.workspace.command(ADA, CHANNEL, "/signalbox", "handover here")
    assert play.answers()[-1].text.startswith("Handover, last 12 h")
    play.workspace.command(ADA, CHANNEL, "/signalbox", "handover soon")
    assert "not a time span" in play.ephemerals()[-1]
    play.workspace.click(ADA, CHANNEL, only(play.answers()[:1]).ts, "right")
    play.settle()
    play.workspace.command(ADA, CHANNEL, "/signalbox", "handover")
    closed = text_of(play.workspace.ephemerals(CHANNEL, ADA)[-1]).partition("Closed: 1")[2]
    assert play.known.rulebook.faults["data_error"].title in closed
    assert "data_error" not in closed


def test_the_digest_in_slack(play):
    """A worker computes it, and only the requester gets it; an invalid week is reported at once."""
    play.diagnose()
    play.workspace.command(ADA, CHANNEL, "/signalbox", "digest now")
    assert play.ephemerals()[-1].startswith("Preparing the digest for")
    play.settle()
    told = play.workspace.ephemerals(CHANNEL, ADA)[-1]
    assert told.text.startswith("Training job failures, week")
    assert "only to you" in text_of(told)
    play.workspace.click(ADA, CHANNEL, told.ts, "digest_open")
    play.settle()
    assert "lm-tiny" in text_of(play.workspace.ephemerals(CHANNEL, ADA)[-1])
    play.workspace.command(ADA, CHANNEL, "/signalbox", "digest 2026-W99")
    assert "no week" in play.ephemerals()[-1]
    assert only(play.answers()).text.startswith("🔴")
