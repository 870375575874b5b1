"""Identities of people: looked up once an hour, remembered while Slack is down, and unknown by default."""

from __future__ import annotations

from typing import cast

from slack_sdk import WebClient
from slack_sdk.errors import SlackApiError

from bot.policy.permissions import Profile
from bot.slack.people import FRESH, OLDEST, PAUSE, Directory, profile_of


class Client:
    """A client whose `users.info` gives what a test says, and counts."""

    def __init__(self):
        self.user = {"id": "U0ADA", "team_id": "T0OWN"}
        self.calls = 0

    def api_call(self, method, *, data):
        """Answer, or fail if there is no such user."""
        assert (method, data) == ("users.info", {"user": "U0ADA"})
        self.calls += 1
        if self.user is None:
            raise SlackApiError("", {"error": "internal_error"})
        return {"user": self.user}


def directory():
    """A directory, its client, and the list whose item is the time."""
    client, clock = Client(), [0.0]
    return Directory(cast("WebClient", client), lambda: clock[0]), client, clock


def test_each_person_is_looked_up_once_an_hour():
    """Afterwards again: somebody may have become a guest."""
    people, client, clock = directory()
    assert people("U0ADA") == people("U0ADA") == Profile(frozenset({"T0OWN"}))
    assert client.calls == 1
    client.user = {**client.user, "is_restricted": True}
    clock[0] += FRESH
    assert people("U0ADA") == Profile(frozenset({"T0OWN"}), guest=True)
    assert client.calls == 2


def test_while_slack_is_down_the_last_answer_counts_for_a_day():
    """And the next deliveries do not wait for the same timeout."""
    people, client, clock = directory()
    known = people("U0ADA")
    client.user = None
    clock[0] += FRESH
    assert people("U0ADA") == people("U0ADA") == known
    assert client.calls == 2
    clock[0] += PAUSE
    assert people("U0ADA") == known
    assert client.calls == 3
    clock[0] = OLDEST
    assert people("U0ADA") is None


def test_whom_slack_never_named_is_nobody():
    """Until it does."""
    people, client, clock = directory()
    found, client.user = client.user, None
    assert people("U0ADA") is None
    assert people("U0ADA") is None
    assert client.calls == 1
    client.user = found
    clock[0] += PAUSE
    assert people("U0ADA") is not None


def test_users_of_the_api():
    """Guests, strangers, members of an organisation, deactivated users, and ids that are not users."""
    assert profile_of({"team_id": "T1", "is_ultra_restricted": True}) == Profile(frozenset({"T1"}), guest=True)
    assert profile_of({"team_id": "T1", "is_stranger": True}) == Profile(frozenset({"T1"}), guest=True)
    organisation = {"enterprise_id": "E1", "teams": ["T1", "T2"]}
    assert profile_of({"team_id": "T9", "enterprise_user": organisation}) == Profile(
        frozenset({"T9", "E1", "T1", "T2"})
    )
    assert profile_of({"team_id": "T1", "deleted": True}) is None
    assert profile_of({}) == Profile(frozenset())
    assert profile_of(None) is None
