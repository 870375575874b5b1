"""A delivery is answered as soon as its listener acknowledges, however late, and whatever the listener does afterwards."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from bot.slack.early_ack import EarlyAck
from tests.support.slack_stage import ADA, CHANNEL


@pytest.fixture
def early():
    """What makes listeners, and the errors that came too late to be answered."""
    with ThreadPoolExecutor(2) as executor:
        app: Any = SimpleNamespace(listener_runner=SimpleNamespace(listener_executor=executor))
        failed: list[Exception] = []
        yield EarlyAck(app, failed.append), failed


def test_the_answer_does_not_wait_for_what_follows_the_acknowledgement(early):
    """The listener goes on in its thread."""
    make, _ = early
    go_on, over, acks = threading.Event(), threading.Event(), []

    def listener(ack):
        ack("told")
        go_on.wait()
        over.set()

    make(listener)(ack=acks.append)
    assert acks == ["told"]
    assert not over.is_set()
    go_on.set()
    over.wait()


def test_an_error_before_the_acknowledgement_is_raised(early):
    """Bolt answers with an error then."""
    make, failed = early

    def listener(**_):
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        make(listener)(ack=print)
    assert failed == []


def test_an_error_after_the_acknowledgement_is_reported(early):
    """It is too late to answer with it."""
    make, failed = early
    acks = []

    def listener(ack):
        ack("told")
        raise ValueError("late")

    make(listener)(ack=acks.append)
    make._app.listener_runner.listener_executor.shutdown(wait=True)
    assert acks == ["told"]
    assert [str(error) for error in failed] == ["late"]


def test_a_listener_that_never_acknowledges_ends_the_wait(early):
    """As for one that Bolt runs itself."""
    make, failed = early
    make(lambda **_: None)(ack=print)
    assert failed == []


def test_a_late_acknowledgement_is_still_an_acknowledgement(play):
    """Bolt would answer 404 if the listener took longer than its limit, here no time at all."""
    for listener in play.replicas[0].app._listeners:
        listener.ack_timeout = 0
    delivery = play.workspace.command(ADA, CHANNEL, "/diagnose", "demo")
    assert delivery.acknowledged
    assert play.ephemerals() == ["Diagnosing demo. I'll post the result here."]


def test_the_token_is_verified_at_the_start_and_not_by_deliveries(play):
    """A burst after the start would otherwise send as many calls of auth.test."""
    before = [call.method for call in play.workspace.traffic].count("auth.test")
    play.workspace.command(ADA, CHANNEL, "/diagnose", "demo")
    assert before > 0
    assert [call.method for call in play.workspace.traffic].count("auth.test") == before
