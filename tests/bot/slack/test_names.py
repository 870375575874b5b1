"""Names instead of ids: read from Slack once, shown on pages and in the terminal."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from bot.incidents.names import FRESH, names, store_names, unnamed, with_names
from bot.pages.incident_status import about_of
from bot.slack.groups import read_names
from tests.support.common.slack_actions import only, press
from tests.support.slack_stage import ADA, GRACE


@pytest.mark.slow  # test_only_known_ids_are_replaced
def test_ids_of_people_become_names_on_the_page(play):
    """Of who acknowledged it, closed it, or has it; read from Slack once a week."""
    play.diagnose()
    answer = only(play.answers())
    press(play, answer.ts, "ack", GRACE)
    press(play, answer.ts, "right", ADA)
    database, now = play.ledger.database, datetime.now(UTC)
    assert unnamed(database, now) == (ADA, GRACE)
    client = play.senders[0].client
    read_names(database, client)
    assert names(database) == {ADA: "ada", GRACE: "grace"}
    assert unnamed(database, now) == ()
    assert unnamed(database, now + FRESH + timedelta(minutes=1)) == (ADA, GRACE)
    incident = only(play.ledger.incidents.list())
    about = about_of(play.ledger, incident, "", now)
    assert [step.step.who for step in about.steps] == ["grace"]
    assert [annotation.said.who for annotation in about.said] == ["ada"]


@pytest.mark.slow  # test_people.py
def test_whom_slack_does_not_know_is_not_asked_for_again(play):
    """A deleted account keeps its id."""
    play.diagnose()
    press(play, only(play.answers()).ts, "ack", GRACE)
    play.workspace.trouble("users.info", "error", error="user_not_found")
    read_names(play.ledger.database, play.senders[0].client)
    assert names(play.ledger.database) == {}
    assert unnamed(play.ledger.database, datetime.now(UTC)) == ()


def test_only_known_ids_are_replaced():
    """Words and unknown ids stay; a name is one line without secrets."""
    known = {"U0ADA123": "ada"}
    text = "assigned to U0ADA123, by U0EVE999 on UBUNTU2204"
    assert with_names(text, known) == "assigned to ada, by U0EVE999 on UBUNTU2204"
    assert with_names(text, {}) == text


def test_a_name_is_stored_clean(play):
    """Control characters and secrets are no names."""
    database, now = play.ledger.database, datetime.now(UTC)
    store_names(database, {"U0AAAAAA": " Ada \n L. ", "U0BBBBBB": "a\u202eb", "U0CCCCCC": "x" * 500}, now)
    assert names(database) == {"U0AAAAAA": "Ada L.", "U0CCCCCC": "x" * 80}
