"""People who wait learn within ten seconds that the worker of their diagnosis died or is silent, and nothing slow delays it."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import pytest

from bot.notify.lost_workers import SILENT_AFTER
from bot.notify.outbox import enqueue_item
from bot.queue.worker import BEAT
from bot.server.serve import DIES_AGAIN
from bot.slack.delivery.sender import EDITS, IDLE, SETTLE
from bot.store.change_watch import ACTIVE, SOON
from tests.support.common.slack_actions import only, text_of
from tests.support.slack_reading import read
from tests.support.slack_stage import ADA, CHANNEL, stage

STOPPED = "The worker stopped unexpectedly. Another one takes over (try 2)."
SILENT = "The worker has not reported for some seconds. If it stays silent, another one takes over."


@pytest.fixture
def play(tmp_path, known, monkeypatch):
    """A stage with one sender."""
    with stage(tmp_path, known, f"sqlite:///{tmp_path / 'signalbox.db'}", monkeypatch.setenv) as made:
        yield made


def begun(play, monkeypatch, name="gone:1"):
    """Ask for a diagnosis whose worker dies after it collected the logs."""
    play.workspace.command(ADA, CHANNEL, "/diagnose", "demo")

    def killed(*_args, **_more):
        raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        dying.setattr("bot.handlers.diagnose.diagnose_bundle", killed)
        with pytest.raises(KeyboardInterrupt):
            play.work(name)
    assert play.ledger.tasks.heartbeat(
        1, name, datetime.now(UTC) + timedelta(minutes=1)
    )  # however slow this machine is
    play.send()
    assert "worker" not in said(play)


def said(play):
    """The words of the message that answers the request."""
    return read(only(play.answers()).blocks)


def test_told_within_ten_seconds():
    """By its service, which looks every second; else by the missing heartbeats, of which several may be late."""
    assert DIES_AGAIN + SETTLE + IDLE < 3
    assert SILENT_AFTER + SOON + IDLE < 10
    assert SILENT_AFTER + SOON + SETTLE < ACTIVE  # it still looks every second then: the last heartbeat was a change
    assert SILENT_AFTER >= 4 * BEAT


def test_a_killed_worker_is_replaced_and_the_message_says_so(play, monkeypatch):
    """At once, not after its heartbeats are missed; the answer follows in the same message."""
    begun(play, monkeypatch)
    assert not play.work()
    assert len(play.ledger.tasks.release(lambda name: name == "gone:1", datetime.now(UTC))) == 1
    play.send()
    assert STOPPED in said(play)
    play.settle()
    assert "rank 5" in text_of(only(play.answers()))


def test_a_worker_of_a_lost_host_is_silent_before_another_takes_over(play, monkeypatch):
    """The message says so, takes it back when the worker reports again, and names the next try."""
    begun(play, monkeypatch, "elsewhere:1")
    (sender,) = play.senders
    start = datetime.now(UTC) + timedelta(minutes=2)
    play.ledger.tasks.heartbeat(1, "elsewhere:1", start)
    for seconds, words in ((SILENT_AFTER - 1, ""), (SILENT_AFTER + 1, SILENT)):
        sender.clock = lambda seconds=seconds: start + timedelta(seconds=seconds)
        play.send()
        assert ("worker" in said(play)) == bool(words)
        assert words in said(play)
    play.ledger.tasks.heartbeat(1, "elsewhere:1", start + timedelta(seconds=SILENT_AFTER + 4))
    sender.clock = lambda: start + timedelta(seconds=SILENT_AFTER + 5)
    play.send()
    assert "worker" not in said(play)
    play.ledger.tasks.reclaim(start + timedelta(minutes=5))
    sender.clock = lambda: start + timedelta(minutes=5)
    play.send()
    assert STOPPED in said(play)
    assert SILENT not in said(play)


@pytest.mark.slow  # test_a_killed_worker_is_replaced_and_the_message_says_so
def test_who_has_no_message_yet_is_told_once(play):
    """The worker died before it found the job."""
    play.workspace.command(ADA, CHANNEL, "/diagnose", "demo")
    play.ledger.tasks.claim("gone:1", datetime.now(UTC))
    play.ledger.tasks.release(lambda name: name == "gone:1", datetime.now(UTC))
    for _ in range(3):
        play.send()
    assert [text for text in play.ephemerals() if "worker" in text] == [STOPPED]
    play.settle()
    assert "rank 5" in text_of(only(play.answers()))


def test_many_progress_edits_do_not_delay_it(play, monkeypatch):
    """The limit of edits is for progress only."""
    begun(play, monkeypatch)
    (sender,) = play.senders
    sender._edits = [datetime.now(UTC).timestamp()] * EDITS
    play.ledger.tasks.release(lambda name: name == "gone:1", datetime.now(UTC))
    play.send()
    assert STOPPED in said(play)


def test_a_slow_upload_delays_no_message(play):
    """It waits in a thread of its own."""
    (sender,) = play.senders
    began, over = threading.Event(), threading.Event()

    def slow(_item):
        began.set()
        assert over.wait(60)

    sender.more = {"slow": slow}
    now = datetime.now(UTC)
    play.ledger.database.write(lambda session: enqueue_item(session, "slow", "default", "slow", {}, now=now))
    ended = threading.Event()
    running = threading.Thread(target=sender.run, args=(ended.is_set,))
    running.start()
    try:
        assert began.wait(60)
        play.workspace.command(ADA, CHANNEL, "/diagnose", "demo")
        while play.work():
            pass
        assert play.workspace.until(lambda: any("rank 5" in text_of(answer) for answer in play.answers()), 60.0)
        assert not over.is_set()
    finally:
        over.set()
        ended.set()
        running.join()


def test_the_message_that_a_killed_sender_was_editing_is_free_at_once(play, monkeypatch):
    """When its successor starts."""
    begun(play, monkeypatch)
    now = datetime.now(UTC) + timedelta(minutes=1)
    assert len(play.ledger.tasks.release(lambda name: name == "gone:1", now)) == 1
    play.ledger.lost_workers.show(now)
    editing = play.ledger.messages.claim_message(now)
    assert editing is not None
    assert editing.ts is not None
    assert play.ledger.messages.claim_message(now) is None
    assert play.ledger.messages.release_edits() == 1
    again = play.ledger.messages.claim_message(now)
    assert again is not None
    assert again.id == editing.id
