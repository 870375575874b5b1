"""Every delivery twice, to two replicas at once, on a real PostgreSQL: each has its effect once."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import func
from sqlmodel import col, select

from bot.handlers.diagnose import DiagnoseHandler
from bot.incidents.ledger import Ledger
from bot.queue.payloads import DIAGNOSE
from bot.queue.tasks import LOST_AFTER
from bot.queue.worker import run
from bot.slack.delivery.compose import Composer
from bot.slack.delivery.sender import Sender
from bot.store.tables import AnnotationRow, IncidentRow, MuteRow, OutboxRow, PostingRow, RequestRow, WorkRow
from tests.support.common.slack_actions import form, only, option, press, text_of
from tests.support.kill_points import is_answer, prepare
from tests.support.slack_stage import ADA, CHANNEL, GRACE, stage

pytestmark = pytest.mark.parametrize("database", ["postgresql"], indirect=True)


@pytest.fixture
def play(tmp_path, known, monkeypatch, database):
    """Two replicas that receive everything twice."""
    with stage(tmp_path, known, database, monkeypatch.setenv, replicas=2, duplicate=True) as one:
        yield one


def counts(ledger, *tables):
    """Return the number of rows per table."""
    with ledger.database.session() as session:
        return {table.__tablename__: session.exec(select(func.count()).select_from(table)).one() for table in tables}


def left(play):
    """Return what is unsent, for the report of a failing test."""
    with play.ledger.database.session() as session:
        return [
            (row.method, row.state, row.tries, row.error, str(row.lease_until))
            for row in session.exec(select(OutboxRow))
            if row.state != "sent"
        ]


def answered_by_both(delivery):
    """Whether both replicas received and acknowledged it."""
    return [answer.error for answer in delivery.answers] == [None, None]


def test_every_gesture_once(play, tmp_path):
    """A command, button, form, mute, mention and shortcut: one row each, and at most one message."""
    assert answered_by_both(play.diagnose())
    answer = only(play.answers())
    tables = (IncidentRow, WorkRow, RequestRow, PostingRow)
    first = counts(play.ledger, *tables)
    assert (first["incident"], first["work"], first["request"]) == (1, 1, 1)
    assert [file.name for file in play.workspace.files] == ["lm-tiny-timeline.png", "lm-tiny-evidence.txt"]

    assert answered_by_both(press(play, answer.ts, "wrong"))
    form(play)
    assert answered_by_both(play.workspace.submit(ADA, {"cause": "no_rule", "note": "once"}))
    play.settle()
    assert [(annotation.said.verdict, annotation.said.note) for annotation in play.ledger.closings.annotations(1)] == [
        ("wrong", ""),
        ("wrong", "once"),
    ]

    assert answered_by_both(press(play, answer.ts, "more", value=option(only(play.answers()), "mute_rule")))
    form(play)
    assert answered_by_both(play.workspace.submit(ADA, {"until": "1d", "where": "channel"}))
    assert counts(play.ledger, MuteRow) == {"mute": 1}

    assert answered_by_both(press(play, answer.ts, "more", value=option(only(play.answers()), "again")))
    assert len(play.answers()) == 2
    assert sum("Running again" in text for text in play.ephemerals()) == 1

    head, _ = play.workspace.say(ADA, CHANNEL, "what is with demo?")
    assert answered_by_both(play.workspace.mention(ADA, CHANNEL, "diagnose fine", head.ts))
    play.settle()
    assert (
        len([message for message in play.workspace.thread(CHANNEL, head.ts) if message.by_app and message.edited]) == 1
    )

    prepare(tmp_path, "other")
    alert, _ = play.workspace.say(GRACE, CHANNEL, "GPUHang: job_name=other is silent")
    assert answered_by_both(play.workspace.shortcut(ADA, CHANNEL, alert.ts, "diagnose_message"))
    play.settle()
    assert (
        len([message for message in play.workspace.thread(CHANNEL, alert.ts) if message.by_app and message.edited]) == 1
    )

    before = len(play.workspace.ephemerals(CHANNEL, ADA))
    play.diagnose("lm-tny")
    offered = play.workspace.ephemerals(CHANNEL, ADA)[before + 1 :]
    first = next(block["block_id"] for block in only(offered).blocks if "pick_job" in str(block))
    assert answered_by_both(play.workspace.click(ADA, CHANNEL, only(offered).ts, "pick_job", block_id=first))
    play.settle()
    assert counts(play.ledger, IncidentRow) == {"incident": 3}
    assert len(play.answers()) == 3  # the job's name is another wish than its other name
    assert all(call.status == 200 for call in play.workspace.traffic)


@pytest.mark.slow  # test_every_gesture_once
def test_at_the_same_moment(play, tmp_path, known):
    """Many people act at once, everything twice, with two workers and two senders."""
    jobs = [f"job-{number}" for number in range(4)]
    for job in jobs:
        prepare(tmp_path, job)
    over = threading.Event()
    with ExitStack() as ledgers, ThreadPoolExecutor(20) as pool, ExitStack() as ends:
        ends.callback(over.set)  # first of all: then the pool waits for those at work, then their ledgers are closed
        url = str(play.ledger.database._engine.url)
        for sender in play.senders:
            ledger = ledgers.enter_context(Ledger(url))
            answering = DiagnoseHandler(ledger, known, play.config)
            pool.submit(run, url, {DIAGNOSE: answering.do}, over.is_set, idle=0.05)
            composer = Composer(ledger, known, play.config)
            pool.submit(Sender(ledger, sender.client, composer, pace=0.0).run, over.is_set)
        asked = [
            pool.submit(play.workspace.command, user, CHANNEL, "/diagnose", job)
            for job in jobs
            for user in (ADA, GRACE)
        ]
        assert all(answered_by_both(item.result()) for item in asked)
        assert play.workspace.until(
            lambda: all(any(is_answer(answer, job) for answer in play.answers()) for job in jobs), 60.0
        )
        assert play.workspace.until(lambda: len(play.workspace.files) == 8, 60.0), left(play)
        found = [next(answer for answer in play.answers() if is_answer(answer, job)) for job in jobs]
        pressed = [
            pool.submit(play.workspace.click, user, CHANNEL, item.ts, "right")
            for item in found
            for user in (ADA, GRACE)
        ]
        assert all(answered_by_both(item.result()) for item in pressed)
        assert play.workspace.until(lambda: all("closed" in text_of(answer) for answer in play.answers()), 60.0)
        over.set()
    assert sorted(job for job in jobs for answer in play.answers() if job in answer.text) == jobs
    assert len(play.answers()) == 4
    assert counts(play.ledger, IncidentRow, WorkRow, AnnotationRow) == {"incident": 4, "work": 4, "annotation": 8}
    assert sorted(Counter(file.name for file in play.workspace.files).values()) == [1] * 8
    with play.ledger.database.session() as session:
        states = session.exec(select(OutboxRow.state, func.count()).group_by(col(OutboxRow.state))).all()
    assert [state for state, _ in states] == ["sent"]


def test_a_worker_that_was_only_slow(play):
    """Another worker retried its task; its late result is ignored."""
    play.workspace.command(ADA, CHANNEL, "/diagnose", "demo")
    now = datetime.now(UTC)
    slow = play.ledger.tasks.claim("slow", now)
    play.ledger.tasks.reclaim(now + timedelta(seconds=LOST_AFTER + 1))
    found = play.answering.do(slow)
    play.settle()
    assert not play.ledger.tasks.complete(slow.id, "slow", now, found.result, found.within)
    play.settle()
    assert len(play.answers()) == 1
    assert counts(play.ledger, IncidentRow, WorkRow) == {"incident": 1, "work": 1}


def test_a_sender_that_was_only_slow(play):
    """Another sender posted meanwhile; the late opening text is deleted, and one answer remains."""
    play.workspace.command(ADA, CHANNEL, "/diagnose", "demo")
    play.work()
    slow, other = play.senders
    late = datetime.now(UTC) + timedelta(minutes=2)
    posting = play.ledger.messages.claim_message(slow.clock())
    other.clock = lambda: late
    for _ in range(20):
        other.step()
    slow._post(posting, datetime.now(UTC))
    play.settle()
    assert "rank 5" in text_of(only(play.answers()))
    assert [call.method for call in play.workspace.traffic].count("chat.delete") == 1


def test_a_database_that_gives_up(play):
    """One of two deadlocked transactions is retried, and both succeed."""
    play.diagnose()
    play.diagnose("fine")
    both = threading.Barrier(2, timeout=60)

    def crossing(first, second, waits):
        """Lock two rows in this order; the first time after the other thread has its first lock."""

        def do(session):
            session.get(IncidentRow, first, with_for_update=True)
            if waits:
                waits.pop()
                both.wait()
            session.get(IncidentRow, second, with_for_update=True)
            return first

        return play.ledger.database.write(do)

    with ThreadPoolExecutor(2) as pool:
        done = [pool.submit(crossing, 1, 2, [None]), pool.submit(crossing, 2, 1, [None])]
        assert [item.result() for item in done] == [1, 2]
