"""Who is on call: from a PagerDuty schedule and a Slack user group, and nobody where it is not known."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from typer.testing import CliRunner

from bot.cli.command_line import command_line
from bot.config.chat import OnCall, PagerDuty, Tenant
from bot.config.settings import Config
from bot.incidents.ledger import Ledger
from bot.incidents.on_call import GROUP_OLDEST, OLDEST, on_call, refresh_on_call, scheduled
from bot.slack.groups import groups_of
from bot.slack.messages.answer import answer_message
from bot.slack.messages.card import Card, IncidentStatus
from bot.store.tables import MembersRow
from connectors.base.contract import SourceFailed
from connectors.base.secret import Secret
from tests.doubles.pagerduty import Account, Shift, served
from tests.support.block_limits import faults_of_message
from tests.support.bot_samples import FALLEN_GPU
from tests.support.slack_reading import read

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
SHIFTS = [
    Shift("PROTA", "PBACK", "Bob Back", level=2),
    Shift("PROTA", "PADA", "Ada First"),
    Shift("PROTA", "PADA", "Ada First", policy="PANOTHER"),
    Shift("POTHER", "PEVE", "Eve Elsewhere"),
]


@pytest.fixture
def ledger(tmp_path):
    """An empty store."""
    with Ledger(f"sqlite:///{tmp_path / 'signalbox.db'}") as made:
        yield made


@pytest.fixture
def account():
    """An account with three people on call."""
    return Account(shifts=list(SHIFTS))


@pytest.fixture
def schedule(account, monkeypatch):
    """A schedule of the account; Ada is known in Slack."""
    monkeypatch.setenv("PAGERDUTY_TOKEN", account.key)
    with served(account) as address:
        yield PagerDuty("PROTA", Secret(env="PAGERDUTY_TOKEN"), address, {"PADA": "U0ADA"})


def test_people_of_the_schedule_by_level(schedule):
    """Each once, with their Slack user where it is known."""
    assert scheduled(schedule) == ["U0ADA", "Bob Back"]


def test_it_is_read_every_five_minutes(ledger, account, schedule):
    """And not more often; the last answer is shown for an hour if PagerDuty is down, then nobody."""
    rota = OnCall(pagerduty=schedule)
    for seconds in (0, 60, 299):
        refresh_on_call(ledger.database, [rota, None], NOW + timedelta(seconds=seconds))
    assert len(account.seen) == 1
    assert on_call(ledger.database, rota, NOW) == ("U0ADA", "Bob Back")
    account.shifts = []
    refresh_on_call(ledger.database, [rota], NOW + timedelta(seconds=301))
    assert on_call(ledger.database, rota, NOW) == ()
    assert on_call(ledger.database, None, NOW) == ()


def test_a_rota_that_cannot_be_read_names_nobody_after_an_hour(ledger, account, schedule, monkeypatch):
    """The shift may have changed."""
    monkeypatch.setattr("connectors.base.http.PAUSE", 0.0)
    rota = OnCall(pagerduty=schedule)
    refresh_on_call(ledger.database, [rota], NOW)
    account.down = True
    refresh_on_call(ledger.database, [rota], NOW + OLDEST / 2)
    assert on_call(ledger.database, rota, NOW + OLDEST / 2) == ("U0ADA", "Bob Back")
    assert on_call(ledger.database, rota, NOW + OLDEST + timedelta(seconds=1)) == ()


def test_a_wrong_key_is_explained_and_never_shown(schedule, monkeypatch):
    """As by every source."""
    monkeypatch.setenv("PAGERDUTY_TOKEN", "u+wrong-key-of-twenty")
    with pytest.raises(SourceFailed, match="401") as failed:
        scheduled(schedule)
    assert "wrong-key" not in str(failed.value)


def test_the_check_says_who_is_on_call_or_what_is_wrong(account, schedule, tmp_path, monkeypatch):
    """`signalbox config check` tries the schedule."""
    settings = {"schedule": "PROTA", "token": {"env": "PAGERDUTY_TOKEN"}, "url": schedule.url}
    path = tmp_path / "signalbox.yaml"
    path.write_text(json.dumps({"version": 1, "tenants": {"default": {"on_call": {"pagerduty": settings}}}}))
    for status, told in (
        (0, "works  tenants/default/on_call (pagerduty): on call now: Ada First, Bob Back"),
        (1, "FAILS"),
    ):
        result = CliRunner().invoke(command_line(), ["config", "check", "--config", str(path)])
        assert (result.exit_code, told in result.output) == (status, True), result.output
        monkeypatch.setenv("PAGERDUTY_TOKEN", "u+wrong-key-of-twenty")
    assert len(account.seen) == 2
    assert "wrong-key" not in result.output


def test_a_slack_group(ledger):
    """Its members are read with those of the access rights."""
    rota = OnCall(group="S0ONCALL")
    assert groups_of(Config(tenants_of_chat={"default": Tenant(on_call=rota)})) == ("S0ONCALL",)
    with ledger.database.session(write=True) as session:
        session.merge(MembersRow(group_id="S0ONCALL", members='["U0GRACE"]', at=NOW))
    assert on_call(ledger.database, rota, NOW) == ("U0GRACE",)
    assert on_call(ledger.database, rota, NOW + GROUP_OLDEST + timedelta(seconds=1)) == ()


def test_a_failure_shows_who_is_on_call_until_somebody_has_it():
    """As a mention where the person is known in Slack."""
    card = Card("h", on_call=("U0ADA", "Bob <!channel>"))
    message = answer_message(FALLEN_GPU, card)
    assert faults_of_message(message.text, message.blocks) == []
    assert "*On call: *@U0ADA, Bob <!channel>" in read(message.blocks)
    taken = answer_message(FALLEN_GPU, Card("h", on_call=("U0ADA",), life=IncidentStatus(acked=True, acked_by="U0EVE")))
    assert "On call" not in read(taken.blocks)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (OnCall, "exactly one"),
        (lambda: OnCall(group="oncall"), "is not the ID of a user group"),
        (lambda: PagerDuty("../users", Secret(env="X")), "is not the ID of a schedule"),
        (lambda: PagerDuty("PROTA", Secret(env="X"), "ftp://x"), "is no address"),
        (lambda: PagerDuty("PROTA", Secret(env="X"), people={"P1": "ada"}), "is not the ID of a Slack user"),
    ],
)
def test_a_wrong_configuration_is_explained(make, told):
    """When it is read."""
    with pytest.raises(ValueError, match=told):
        make()
