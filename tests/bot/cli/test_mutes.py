"""`signalbox mutes`: what *Mute* in Slack does, from the shell."""

from __future__ import annotations

import json

import pytest
from sqlmodel import select
from typer.testing import CliRunner

from bot.cli.commands.mutes import app
from bot.runtime.paths import database_url
from bot.store.database import Database
from bot.store.tables import AuditRow

pytestmark = pytest.mark.usefixtures("own_store")


def run(*words: str) -> str:
    """What it prints; an error's words where it is one that a person can fix."""
    done = CliRunner().invoke(app, list(words))
    return done.output if done.exception is None else str(done.exception)


def test_a_rule_is_muted_listed_and_posted_again() -> None:
    """Who did it stands in the list and in the audit log, as for a mute from Slack."""
    assert run("list") == "Nothing is muted.\n"
    assert "rule nvidia-xid are off until" in run("add", "rule", "nvidia-xid", "--for", "7d", "--reason", "soak test")
    (mute,) = (json.loads(line) for line in run("list", "--json").splitlines())
    assert [mute[name] for name in ("id", "kind", "what", "channel", "by", "why")] == [
        1, "rule", "nvidia-xid", None, "ana", "soak test",
    ]  # fmt: skip
    assert run("end", "1") == "Automatic posts about rule nvidia-xid are on again.\n"
    assert run("list") == "Nothing is muted.\n"
    with Database(database_url()) as database, database.session() as session:
        rows = [(row.who, row.verb, row.what) for row in session.exec(select(AuditRow))]
    assert rows == [("ana", "mute", "rule nvidia-xid"), ("ana", "mute", "end mute of rule nvidia-xid")]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("add", "rule", "nvidia-xidd", "--for", "7d"), "did you mean nvidia-xid?"),
        (("add", "team", "red", "--for", "7d"), "expected rule, job or node"),
        (("add", "node", "gpu-017", "--for", "91d"), "at most 90 days"),
        (("end", "7"), "no mute 7 is active"),
    ],
)
def test_a_mute_that_would_do_nothing_is_refused(words: tuple[str, ...], expected: str) -> None:
    """A rule that does not exist is a typing error; the answer has the rule that was meant."""
    assert expected in run(*words)
    assert run("list") == "Nothing is muted.\n"
