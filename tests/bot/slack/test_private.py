"""`/diagnose JOB private`: what it leaves, who finds it, and what happens when others ask for the same job."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from sqlmodel import select

from bot.backfill.run import _existing_incident
from bot.config.chat import Grafana
from bot.incidents.grafana import annotation
from bot.incidents.handover import dumps as handover_json
from bot.incidents.handover import handover
from bot.incidents.lifecycle import LifecycleStep
from bot.incidents.resolution import IncidentNotFound
from bot.learning.drafts.cases import gathered
from bot.learning.outcomes import told_within
from bot.store.digest_reading import rows_between
from bot.store.incidents import IncidentFilter
from bot.store.tables import BarRow, GoodEndRow, WorkRow
from bot.store.visibility import OPERATOR, Viewer
from connectors.base.http import Endpoint
from tests.support.common.slack_actions import only, option, press, text_of
from tests.support.slack_stage import ADA, CHANNEL, GRACE


@pytest.fixture
def asked(play):
    """Ada asked privately; no other request was made."""
    play.diagnose("demo private")
    return play


def direct(play):
    """The direct messages of the only person who has any."""
    return only([channel for channel in play.workspace.state.channels.values() if channel.direct])


def listed(play, user):
    """What `/signalbox incidents` shows to somebody."""
    play.workspace.command(user, CHANNEL, "/signalbox", "incidents")
    return text_of(play.workspace.ephemerals(CHANNEL, user)[-1])


def home(play, user):
    """What the Home tab shows to somebody."""
    play.workspace.open_home(user)
    play.send()
    return json.dumps(play.workspace.home(user).source)


def test_only_who_asked_finds_it(asked):
    """In lists and on the Home tab."""
    assert "private" in listed(asked, ADA)
    assert "lm-tiny" in home(asked, ADA)
    assert "lm-tiny" not in listed(asked, GRACE)
    assert "lm-tiny" not in home(asked, GRACE)


@pytest.mark.slow  # test_only_who_asked_finds_it
def test_others_who_ask_get_an_answer_of_their_own(asked):
    """No task and no incident is shared, also where the private one came first."""
    asked.workspace.command(GRACE, CHANNEL, "/diagnose", "demo")
    assert asked.ephemerals(GRACE) == ["Diagnosing demo. I'll post the result here."]
    asked.settle()
    assert "Only you see this" not in text_of(only(asked.answers()))
    every = asked.ledger.incidents.list(9, IncidentFilter(viewer=OPERATOR))
    assert sorted(str(item.private_to) for item in every) == ["None", ADA]
    assert len({item.id for item in every}) == 2
    with asked.ledger.database.session() as session:
        assert len(session.exec(select(WorkRow.id).where(WorkRow.kind == "diagnose")).all()) == 2
    assert "lm-tiny" in listed(asked, GRACE)


def test_running_it_again_keeps_it_private(asked):
    """The answer goes to the same direct messages and appears in no list."""
    first = only(asked.answers(direct(asked).id))
    asked.workspace.click(ADA, direct(asked).id, first.ts, "more", option(first, "again"))
    asked.settle()
    assert len(asked.answers(direct(asked).id)) == 2
    assert asked.answers() == []
    assert "lm-tiny" not in listed(asked, GRACE)


@pytest.mark.slow  # test_only_who_asked_finds_it
def test_it_can_be_closed_by_who_asked(asked):
    """Through the buttons of its message; nothing about it goes elsewhere."""
    answer = only(asked.answers(direct(asked).id))
    asked.workspace.click(ADA, direct(asked).id, answer.ts, "right")
    asked.settle()
    assert asked.ledger.incidents.answer(1).incident.closed_at is not None
    assert annotation(Grafana(Endpoint("http://127.0.0.1:1")), asked.ledger, 1) is None


def test_it_leaves_nothing_that_others_see(asked):
    """Handover, digest, advice, rule proposals, backfills, node exclusions, good runs."""
    now = datetime.now(UTC) + timedelta(minutes=1)
    database = asked.ledger.database
    told = handover_json(handover(database, "default", now - timedelta(days=1), now))
    assert b"lm-tiny" not in told
    assert b'"count":1' not in told
    with database.session() as session:
        span = (now - timedelta(days=1), now)
        assert rows_between(session, "default", *span, until=now) == []
        assert len(rows_between(session, "default", *span, until=now, viewer=Viewer(ADA))) == 1
        assert told_within(session, "default") == {}
        incident = asked.ledger.incidents.answer(1).incident
        at = (incident.ended_at or incident.created_at).timestamp()
        job = type("Past", (), {"job": incident.job_id, "ended": at})()
        assert _existing_incident(session, "default", job) is None
        assert session.exec(select(BarRow.id)).first() is None
        assert session.exec(select(GoodEndRow.id)).first() is None
    assert gathered(asked.url, 1, "default") is None
    assert gathered(asked.url, 1, "default", viewer=Viewer(ADA)) is not None


@pytest.mark.slow  # test_it_leaves_nothing_that_others_see
def test_it_is_merged_with_nothing_that_others_see(asked):
    """The whole would be named in its parts."""
    asked.diagnose(user=GRACE)
    step = LifecycleStep("merge", GRACE, "slack", other=1)
    with pytest.raises(IncidentNotFound, match="no incident 1 to merge into"):
        asked.ledger.lifecycle.step(2, "default", "k", step, datetime.now(UTC))
    step = LifecycleStep("merge", ADA, "slack", other=2)
    with pytest.raises(IncidentNotFound, match="no incident 2 to merge into"):
        asked.ledger.lifecycle.step(1, "default", "k", step, datetime.now(UTC))


def test_a_choice_among_jobs_stays_private(play):
    """Where the name was not clear, the one that is picked is diagnosed privately too."""
    play.diagnose("lm-tny private")
    offered = play.workspace.ephemerals(CHANNEL, ADA)[-1]
    press(play, offered.ts, "pick_job")
    assert play.answers() == []
    assert only(play.ledger.incidents.list(9, IncidentFilter(viewer=OPERATOR))).private_to == ADA
