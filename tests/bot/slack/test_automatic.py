"""Automatic answers: their channel and thread, and what is not posted."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime

import pytest

from bot.queue.payloads import DiagnosePayload
from bot.slack.forms.close_out import UNTIL
from tests.support.common.slack_actions import form, only, option, press, text_of
from tests.support.slack_stage import ADA, BUNDLES, CHANNEL, GRACE, OTHER, stage

TENANT = f"""\
    announce: {CHANNEL}
    subscriptions: [{{to: {OTHER}, names: ["other-*"]}}, {{to: {GRACE}, names: ["page-*"]}}]
    people: {{users: {{ada: {ADA}}}, groups: {{user: S0ONCALL}}}}
    cap: {{posts: 3, span: 1h}}
"""


@pytest.fixture
def play(tmp_path, known, monkeypatch):
    """A stage that posts failures automatically."""
    with stage(tmp_path, known, f"sqlite:///{tmp_path / 'signalbox.db'}", monkeypatch.setenv, tenant=TENANT) as one:
        yield one


def ended(play, name, job=None, *, source="demo", why="job ended: FAILED", who="ada"):
    """Let a job fail as its scheduler reports it."""
    folder = play.runs / f"{name}-{job or 1}"
    shutil.copytree(BUNDLES[source], folder)
    told = folder / "job.yaml"
    lines = [line for line in told.read_text().splitlines() if not line.startswith(("id:", "name:"))]
    told.write_text("\n".join([f"id: '{job or name}'", f"name: {name}", f"owner: {who}", *lines]) + "\n")
    # each run wrote its own: the same bytes would be the same report
    with (folder / "logs" / "node-a.log").open("a") as handle:
        handle.write(f"job {job or name} of {name} is over\n")
    order = DiagnosePayload(job or name, "default", "main", None, why, "scheduler")
    play.ledger.enqueue(order.request(), datetime.now(UTC), 0.0)
    play.settle()


def test_a_failure_is_reported_in_the_channel(play):
    """With its trigger, its files, and a mention of the owner in the first post."""
    ended(play, "llm-70b")
    answer = only(play.answers())
    assert "llm-70b" in answer.text
    assert "job ended: FAILED" in text_of(answer)
    posted = only([call for call in play.workspace.traffic if call.method == "chat.postMessage"])
    assert "S0ONCALL" in json.dumps(posted.arguments)
    assert len(play.workspace.files) == 2


def test_nothing_is_reported_of_a_run_that_is_well(play):
    """It is only stored as an incident."""
    ended(play, "fine-run", source="fine")
    assert play.answers() == []
    assert [incident.verdict for incident in play.ledger.incidents.list()] == ["no_fault"]


def test_subscriptions(play):
    """Subscribers get it where they want; the default channel does not."""
    ended(play, "other-7b")
    ended(play, "page-me")
    assert play.answers() == []
    assert "other-7b" in only(play.answers(OTHER)).text
    direct = only([channel for channel in play.workspace.state.channels.values() if channel.direct])
    assert "page-me" in only(play.answers(direct.id)).text


def test_attempts_are_one_thread_with_a_count(play):
    """The second failure of a job is in the first one's thread; both show the number of failures."""
    ended(play, "llm-70b", "101")
    with play.ledger.database.session(write=True) as session:
        from sqlalchemy import delete

        from bot.store.tables import FlapRow

        session.execute(delete(FlapRow))  # as if the next one were another kind of failure
    ended(play, "llm-70b", "102")
    head = only(play.answers())
    below = [
        message
        for message in play.workspace.thread(CHANNEL, head.ts)
        if message.by_app and message.ts != head.ts and not message.files
    ]
    assert "Failed 2 times in a row" in text_of(only(below))
    assert "1 later attempt failed too" in text_of(head)
    assert len({incident.chain for incident in play.ledger.incidents.list()}) == 1


def test_the_same_failure_again_is_counted_in_place(play):
    """No new message within the hour."""
    ended(play, "llm-70b", "101")
    ended(play, "llm-70b", "102")
    answer = only(play.answers())
    assert len(play.workspace.thread(CHANNEL, answer.ts)) <= 2
    assert "2 times" in text_of(answer)


@pytest.mark.slow  # policy/test_notifications.py
def test_a_channel_gets_no_more_than_its_share(play):
    """Further failures are listed in one message, which grows."""
    for number in range(6):
        ended(play, f"run-{number}", who=f"user{number}")
    answers = play.answers()
    assert len(answers) == 4
    rest = only([answer for answer in answers if "not posted separately" in answer.text])
    assert "3 more failures" in rest.text
    assert "run-5" in text_of(rest)


def test_what_is_muted_is_not_reported_and_asking_still_answers(play):
    """A rule is muted from its message; the next failure of another job with that rule is not posted."""
    ended(play, "llm-70b")
    answer = only(play.answers())
    press(play, answer.ts, "more", value=option(answer, "mute_rule"))
    form(play)
    play.workspace.submit(ADA, {"until": next(iter(UNTIL)), "where": "everywhere"})
    play.settle()
    ended(play, "other-7b")
    ended(play, "llm-13b")
    assert len(play.answers()) == 1
    assert play.answers(OTHER) == []
    play.diagnose("llm-13b")
    assert len(play.answers()) == 2


def test_one_who_asks_meanwhile_and_the_channel_both_have_it(play):
    """The scheduler's and a person's request share a task; each is answered."""
    shutil.copytree(BUNDLES["demo"], play.runs / "twice")
    order = DiagnosePayload("twice", "default", None, None, "job ended: FAILED", "scheduler")
    play.ledger.enqueue(order.request(), datetime.now(UTC), 0.0)
    play.workspace.command(ADA, OTHER, "/diagnose", "twice")
    play.settle()
    assert len(play.ledger.incidents.list()) == 1
    assert len(play.answers()) == 1
    assert len(play.answers(OTHER)) == 1


@pytest.mark.slow  # policy/test_notifications.py
def test_quiet_start(tmp_path, known, monkeypatch):
    """During the rollout everything goes to one channel, without mentions."""
    quiet = TENANT + f"    quiet: {{channel: {OTHER}, close_outs: 1, precision: 0.1}}\n"
    with stage(tmp_path, known, f"sqlite:///{tmp_path / 'signalbox.db'}", monkeypatch.setenv, tenant=quiet) as play:
        ended(play, "llm-70b")
        assert play.answers() == []
        answer = only(play.answers(OTHER))
        posted = only([call for call in play.workspace.traffic if call.method == "chat.postMessage"])
        assert "S0ONCALL" not in json.dumps(posted.arguments)
        play.workspace.click(ADA, OTHER, answer.ts, "right")
        play.settle()
        ended(play, "llm-13b", who="eve")
        assert "llm-13b" in only(play.answers()).text


def test_a_rule_that_is_often_wrong_is_marked_until_it_was_looked_at(tmp_path, known, monkeypatch):
    """After three wrong answers; the review of an admin removes the mark."""
    tenant = f"    verbs: {{admin: [{GRACE}]}}\n    bar: {{precision: 0.7, close_outs: 3}}\n"
    with stage(tmp_path, known, f"sqlite:///{tmp_path / 'signalbox.db'}", monkeypatch.setenv, tenant=tenant) as play:
        for number in range(5):
            ended(play, f"run-{number}")
        for incident in play.ledger.incidents.list():
            from bot.incidents.resolution import Closing

            said = Closing(GRACE, "slack", "wrong", "no_rule")
            play.ledger.closings.annotate(incident.id, "default", f"k{incident.id}", said, datetime.now(UTC))
        ended(play, "run-9")
        play.diagnose("run-9")
        assert "right in 0 of 5" in text_of(only(play.answers()))
        rule = play.ledger.incidents.list()[0].rule
        play.workspace.command(GRACE, CHANNEL, "/signalbox", f"rules looked {rule}")
        play.senders[0].composer.cards._records.clear()
        play.diagnose("run-9", channel=OTHER)
        assert "right in 0 of" not in text_of(only(play.answers(OTHER)))
