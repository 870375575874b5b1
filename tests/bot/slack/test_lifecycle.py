"""The incident lifecycle in Slack: the menu of a message, the forms, the edited message."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from bot.store.incident_state import state_of
from tests.support.common.slack_actions import form, only, press, text_of
from tests.support.slack_reading import read
from tests.support.slack_stage import ADA, CHANNEL, EVE, GRACE, stage


def take(play, verb, user=ADA, number=-1):
    """Choose from the menu of an answer."""
    message = play.answers()[number]
    (menu,) = [element for block in message.blocks if block["type"] == "actions" for element in block["elements"]
               if element["action_id"] == "life"]  # fmt: skip
    value = only([option["value"] for option in menu["options"] if option["value"].startswith(verb)])
    delivery = play.workspace.click(user, CHANNEL, message.ts, "life", value)
    play.settle()
    return delivery


def state(play):
    """Return the state of the newest incident."""
    return state_of(play.ledger.incidents.list()[0], datetime.now(UTC))


def test_acknowledged_with_one_choice(play):
    """The same message says who has it, nothing new is posted, and the button disappears."""
    play.diagnose()
    assert '"ack"' in text_of(only(play.answers()))
    assert press(play, only(play.answers()).ts, "ack").acknowledged
    told = text_of(only(play.answers()))
    assert "Acknowledged" in told
    assert f'"user_id": "{ADA}"' in told
    assert state(play) == "acknowledged"
    assert '"ack"' not in told


@pytest.mark.slow  # test_acknowledged_with_one_choice
def test_who_acknowledged_it_is_named_and_not_the_assignee(play):
    """The one who pressed the button last; the assignee is named too."""
    play.diagnose()
    assign(play, GRACE)
    press(play, only(play.answers()).ts, "ack")
    told = read(only(play.answers()).blocks)
    assert f"*Acknowledged* by @{ADA}, assigned to @{GRACE}" in told


def assign(play, to, note="", user=ADA):
    """Assign the only incident."""
    take(play, "assign", user)
    form(play, user)
    play.workspace.submit(user, {"assignee": to, "note": note})
    play.settle()


@pytest.mark.slow  # test_given_to_somebody
def test_an_assignee_is_told(play):
    """In a direct message with a button that opens the incident; who takes it for themselves gets none."""
    play.diagnose()
    assign(play, ADA)
    assert not [channel for channel in play.workspace.state.channels.values() if channel.direct]
    assign(play, GRACE, "knows the fabric")
    direct = only([channel for channel in play.workspace.state.channels.values() if channel.direct])
    message = only(play.answers(direct.id))
    told = read(message.blocks)
    assert f"@{ADA} assigned incident" in told
    assert "knows the fabric" in told
    play.workspace.click(GRACE, direct.id, message.ts, "open_incident")
    play.settle()
    opened = play.workspace.ephemerals(direct.id, GRACE) or play.answers(direct.id)[1:]
    assert "rank 5" in text_of(opened[-1])


def test_given_to_somebody(play):
    """Through a form with the people of the workspace."""
    play.diagnose()
    take(play, "assign")
    form(play)
    play.workspace.submit(ADA, {"assignee": GRACE, "note": "knows the fabric"})
    play.settle()
    assert play.ledger.incidents.list()[0].assignee == GRACE
    assert "Assigned" in text_of(only(play.answers()))


@pytest.mark.slow  # test_acknowledged_with_one_choice, incidents/test_lifecycle.py
def test_put_off(play):
    """It leaves the lists until then, and can be unsnoozed."""
    play.diagnose()
    take(play, "snooze")
    form(play)
    play.workspace.submit(ADA, {"span": "4h"})
    play.settle()
    assert "Snoozed until" in text_of(only(play.answers()))
    assert state(play) == "snoozed"
    play.workspace.command(ADA, CHANNEL, "/signalbox", "incidents")
    play.send()
    assert "none" in play.ephemerals()[-1]
    take(play, "reopen")
    assert state(play) == "open"


@pytest.mark.slow  # incidents/test_lifecycle.py, test_private.py
def test_merged_and_both_sides_say_so(play):
    """The likely incident is offered; a wrong number is reported at its field, and the form stays open."""
    play.diagnose("demo")
    play.diagnose("fine")
    first, second = play.ledger.incidents.list()[1].id, play.ledger.incidents.list()[0].id
    take(play, "merge", number=1)
    form(play)
    play.workspace.submit(ADA, {"other": "#99"})
    assert "no incident 99" in play.workspace.modal(ADA).errors["other"]
    play.workspace.submit(ADA, {"near": str(first), "other": ""})
    play.settle()
    whole, part = (text_of(answer) for answer in play.answers())
    assert f"incident {second}" in whole
    assert f"Merged into incident {first}" in part
    assert state(play) == "merged"
    take(play, "reopen", number=1)
    assert state(play) == "open"
    assert "Merged" not in text_of(play.answers()[1])


@pytest.mark.slow  # incidents/test_lifecycle.py
def test_reopened(play):
    """The close-out disappears, and the full answer is back."""
    play.diagnose()
    play.workspace.click(ADA, CHANNEL, only(play.answers()).ts, "right", None)
    play.settle()
    assert state(play) == "closed"
    take(play, "reopen", GRACE)
    told = text_of(only(play.answers()))
    assert "Reopened" in told
    assert "Closed by" not in told
    assert state(play) == "open"


@pytest.mark.slow  # test_rights.py
def test_who_may_not_is_reported_so(tmp_path, known, monkeypatch):
    """Only to that person; the message stays unchanged."""
    url, only_ada = f"sqlite:///{tmp_path / 'signalbox.db'}", "    verbs: {annotate: [U0ADA]}"
    with stage(tmp_path, known, url, monkeypatch.setenv, tenant=only_ada) as play:
        play.diagnose()
        press(play, only(play.answers()).ts, "ack", EVE)
        assert state(play) == "open"
        assert "You don't have permission" in play.ephemerals(EVE)[-1]


def test_delivered_twice_to_two_replicas_it_is_one_step(tmp_path, known, monkeypatch):
    """Menus and forms alike: Slack redelivers what it believes was lost."""
    url = f"sqlite:///{tmp_path / 'signalbox.db'}"
    with stage(tmp_path, known, url, monkeypatch.setenv, replicas=2, duplicate=True) as play:
        play.diagnose()
        incident = play.ledger.incidents.list()[0].id
        press(play, only(play.answers()).ts, "ack")
        take(play, "assign")
        form(play)
        play.workspace.submit(ADA, {"assignee": GRACE})
        play.settle()
        assert [(step.step.verb, step.step.assignee) for step in play.ledger.lifecycle.steps(incident)] == [
            ("ack", ADA),
            ("assign", GRACE),
        ]
        assert len(play.answers()) == 1
