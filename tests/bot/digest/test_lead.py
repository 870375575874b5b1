"""What a digest says first: three sentences and the actions, on every surface; what is unknown is never called zero."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from zoneinfo import ZoneInfo

import pytest

from bot.digest import lead
from bot.digest.charts import drawn
from bot.digest.codec import dumps, loads
from bot.digest.html import page
from bot.digest.terminal import text
from bot.slack.messages.digest import message_of
from kb.digest.digest import FaultTitle
from kb.digest.figures import figures
from kb.digest.rows import AttemptTimes, DigestRow
from kb.digest.weeks import Week
from tests.support.block_limits import faults_of_message
from tests.support.slack_reading import read

BERLIN, WEEK = ZoneInfo("Europe/Berlin"), Week(2026, 47)
START, END = WEEK.start(BERLIN), WEEK.shifted(1).start(BERLIN)
CLASSES = {"xid": FaultTitle("A GPU failed", "hardware"), "disk": FaultTitle("The disk was full", "platform")}


def failure(number, fault="xid", *, at=START + 3600.0, **more):
    """A failed job."""
    row = DigestRow(number, at, at, "fault", "failed", job=f"j{number}", fault=fault, rule=fault, cluster="main")
    return row._replace(**more)


def digest_of(*rows):
    """The digest of these rows."""
    return figures(rows, WEEK, BERLIN, until=END, classes=CLASSES)


COSTLY = (
    failure(1, lost=2.0, gpus=64),
    failure(2, lost=1.0, gpus=64),
    failure(3, "disk", lost=0.5, gpus=8),
    failure(4, "disk"),
    failure(9, "disk", at=START - 86400.0),
)


def test_three_sentences():
    """What cost most, what changed, what to do first; a lower bound is called one."""
    assert lead.sentences(digest_of(*COSTLY)) == (
        "“A GPU failed” cost most: 192 GPU-hours, 98\u00a0% of the known loss.",
        "There were 4 failures, 3 more than in the week before; new: “A GPU failed”.",
        "To do first: fix “A GPU failed”: 2 failures, 192 GPU-hours (hardware).",
    )


def test_a_cause_whose_failures_are_all_closed_is_nothing_to_do():
    """Of others, it says how many are open."""
    done = {"closed": True, "cause": "shown", "said_fault": "xid"}
    first, second, *others = COSTLY
    assert lead.sentences(digest_of(first._replace(**done), second, *others))[2] == (
        "To do first: fix “A GPU failed”: 2 failures (1 open), 192 GPU-hours (hardware)."
    )
    closed = digest_of(first._replace(**done), second._replace(**done), *others)
    assert [action.told for action in lead.actions(closed) if "A GPU failed" in action.told] == []


def test_actions_have_owners():
    """Expensive causes belong to their domain; open failures to who is on call, the most expensive first."""
    found = [(action.owner, action.told) for action in lead.actions(digest_of(*COSTLY))]
    assert found == [
        ("hardware", "fix “A GPU failed”: 2 failures, 192 GPU-hours"),
        ("platform", "fix “The disk was full”: 2 failures, at least 4.0 GPU-hours (n = 1 of 2)"),
        ("on call", "confirm the cause of 5 failures, starting with incident 1 (j1)"),
    ]


def test_a_tie_names_no_single_cause():
    """Of causes with as many failures, none was most frequent."""
    told = lead.sentences(digest_of(failure(1), failure(2, "disk")))[0]
    assert (
        told == "No cause stands out, 1 failure each: “The disk was full”, “A GPU failed”; what they cost is unknown."
    )


def test_made_up_incidents_are_called_sample_data_everywhere():
    """Figures are what people pass on: text, page and message say that they are no measurements; others say nothing of it."""
    real = digest_of(*COSTLY)
    for digest, expected in ((replace(real, made_up=31), True), (real, False)):
        surfaces = [text(digest), page(digest).decode(), read(message_of(dumps(digest)).blocks)]
        assert [("Sample data: these eight weeks contain 31 made-up incidents" in item) for item in surfaces] == [
            expected
        ] * 3


def test_runs_without_a_failure_are_not_said_to_have_succeeded():
    """How one of them ended may be unclear."""
    unclear = failure(1, None)._replace(verdict="insufficient_evidence", phase="unknown", rule=None)
    told = lead.sentences(digest_of(unclear))[0]
    assert "1 job was diagnosed, and no failure was found in it." in told


def test_what_nobody_knows_is_called_unknown():
    """In the sentences, in every table and figure, on every surface."""
    digest = digest_of(failure(1), failure(2), failure(3, "disk"))
    assert lead.sentences(digest)[0] == "“A GPU failed” was most frequent: 2 of 3 failures; what they cost is unknown."
    shown = [text(digest), html.unescape(page(digest).decode()), read(message_of(dumps(digest)).blocks)]
    for surface in shown:
        assert "unknown" in surface
        assert not re.search(r"(?<![\d.,])0\.0 (?:GPU-hours|\(n)", surface)
        assert "0.0 (n = 0" not in surface


def test_the_pictures_draw_no_zero_for_what_is_unknown():
    """The bar of a cause, and of a week, says that its cost is unknown."""
    half = digest_of(failure(1), failure(2), failure(3, "disk", lost=1.0, gpus=8))
    none = digest_of(failure(1), failure(2))
    for name, digest, count in (("pareto", half, 1), ("trend", half, 0), ("pareto", none, 1), ("trend", none, 1)):
        assert drawn(digest, name, "light").count(">unknown<") == count, name


def test_a_good_week_says_how_much_ran_well():
    """Where it is known; a job counts once, by its latest report."""
    run = AttemptTimes(1, scheduled=START, stopped=START + 7200.0)
    good = DigestRow(1, START + 7200, START + 7200, "no_fault", "completed", job="a", gpus=8, runs=(run,))
    again = good._replace(id=2, at=START + 9000)
    unsized = good._replace(id=3, job="b", gpus=None)
    undecided = good._replace(id=4, job="c", verdict="insufficient_evidence", phase="running")
    digest = digest_of(good, again, unsized, undecided)
    assert (digest.ran_well.value, digest.ran_well.n, digest.ran_well.of) == (16.0, 1, 2)
    assert lead.sentences(digest)[0].endswith(
        " 2 jobs completed or were stopped after at least 16.0 GPU-hours (n = 1 of 2)."
    )
    assert lead.sentences(digest)[1:] == ("There is no earlier week to compare with.", "There is nothing to do.")


@pytest.mark.parametrize("rows", [(), COSTLY, (failure(1),)], ids=["nothing", "costly", "unknown cost"])
def test_all_surfaces_begin_with_the_same(rows):
    """The page, the terminal and Slack, within the limits of Slack, with the ISO week and its days."""
    digest = digest_of(*rows)
    message = message_of(dumps(digest), "h")
    assert faults_of_message(message.text, message.blocks) == []
    told = [text(digest), html.unescape(page(digest).decode()), read(message.blocks)]
    for surface in (" ".join(each.split()) for each in told):
        places = [surface.index(" ".join(sentence.split())) for sentence in lead.sentences(digest)]
        assert places == sorted(places)
        assert all(action.told in surface for action in lead.actions(digest))
        assert "2026-W47" in surface
        assert "Mon 16 Nov to Sun 22 Nov 2026" in surface
    assert " ".join(lead.sentences(digest)[0].split()) in message.text


def test_numbers_of_an_earlier_version_are_read():
    """They have no figure for what ran well."""
    digest = digest_of(*COSTLY)
    old = re.sub(rb'"ran_well":\{[^}]*\},?', b"", dumps(digest))
    assert b"ran_well" not in old
    assert loads(old) == replace(digest, ran_well=loads(old).ran_well)
    assert loads(old).ran_well.of == 0
