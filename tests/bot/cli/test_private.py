"""What each command shows of private answers. A command that is not in the table fails the test."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest
import typer
from typer.testing import CliRunner

from bot.cli.command_line import command_line
from bot.incidents.exclusions import propose_within
from bot.incidents.ledger import Ledger
from bot.incidents.resolution import Closing
from bot.render.report_json import dumps
from bot.runtime.paths import database_url
from bot.store.packed_reports import Origin
from tests.support.bot_samples import FALLEN_GPU

app = command_line()

NOW = datetime.now(UTC)
WEEK = "{}-W{:02}".format(*NOW.isocalendar())
# Commands that print what is stored, with words that make them print all of it: they leave out what is private.
LISTS = {
    "incidents list": ("--json",),
    "incidents handover": ("--since", "2d", "--json"),
    "nodes excluded": ("--json",),
    "nodes lemons": ("--json",),
    "digest": ("--week", WEEK, "--json", "--by-hand"),
    "rules stats": (),
    "rules proposals": (),
}
SHOWN = {"incidents list", "incidents handover", "nodes excluded", "digest"}  # with what is shared
# Commands that take seconds: tests/bot/slack/test_private.py tests what they read
SLOW = {"rules advise", "rules propose"}
# Commands for an incident or exclusion that the operator names by its number
BY_NUMBER = {
    "incidents show", "incidents close", "incidents ack", "incidents assign", "incidents snooze", "incidents merge",
    "incidents reopen", "nodes exclude", "nodes confirm", "nodes refuse", "nodes lift", "store pin", "store unpin", "store unpack",
}  # fmt: skip
# Commands that print no stored incident, or only how many there are
OTHERS = {
    "pages",  # runs until it is stopped; tests/bot/pages has its lists
    "diagnose", "watch", "serve", "logs", "evaluate", "backfill", "demo", "rules list", "rules faults", "rules actions", "rules show", "rules lint",
    "rules test", "rules lock", "rules docs", "rules new", "rules diff", "rules backtest", "baselines list",
    "baselines keep", "baselines drop", "store show", "store tidy", "config check", "config example", "config schema",
    "mutes list", "mutes add", "mutes end",
}  # fmt: skip
MARKER = "secret-job"


@pytest.fixture
def stored(monkeypatch, tmp_path, cache, known) -> None:
    """A shared incident, and a private one that is closed and proposed an exclusion, as an earlier version did."""
    del known
    monkeypatch.setenv("SIGNALBOX_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("SIGNALBOX_CACHE", str(cache))
    monkeypatch.delenv("SIGNALBOX_DATABASE", raising=False)
    with Ledger(database_url()) as ledger:
        for name, private_to in (("shared-job", None), (MARKER, "U0ADA")):
            job = replace(FALLEN_GPU.job, id=f"id-{name}", name=name, owner=name)
            exclude = (replace(FALLEN_GPU.decision.exclude[0], node=f"node-{name}"),)
            decision = replace(FALLEN_GPU.decision, exclude=exclude)
            report = replace(FALLEN_GPU, id=name, job=job, decision=decision)
            origin = Origin(private_to=private_to)
            number = ledger.incidents.add(dumps(report), report, name.encode(), None, NOW, origin=origin)
            with ledger.database.session(write=True) as session:
                propose_within(session, report, tenant="default", cluster=None, incident=number, now=NOW)
            closing = Closing("ada", "cli", "wrong", "fault", "disk_full", nodes=(f"node-{name}",), note=name)
            ledger.closings.annotate(number, "default", name, closing, NOW)


def run(*words: str) -> str:
    """What a command prints, or the words of its error."""
    done = CliRunner().invoke(app, list(words))
    return f"{done.output}\n{done.exception or ''}"


def test_every_command_is_in_the_table():
    """A new one says here whether it shows stored incidents."""

    def names(command: object, path: tuple[str, ...] = ()) -> Iterator[str]:
        for name, below in getattr(command, "commands", {}).items():
            if below.hidden:
                continue  # an old name
            yield from names(below, (*path, name)) if getattr(below, "commands", None) else (" ".join((*path, name)),)

    assert sorted(names(typer.main.get_command(app))) == sorted({*LISTS, *SLOW, *BY_NUMBER, *OTHERS})


@pytest.mark.usefixtures("stored")
@pytest.mark.parametrize("command", LISTS)
def test_lists_leave_out_what_is_private(command):
    """Whatever they print is passed on."""
    told = run(*command.split(), *LISTS[command])
    assert MARKER not in told
    assert "shared-job" in told or command not in SHOWN


@pytest.mark.usefixtures("stored")
def test_the_operator_can_ask_for_it():
    """Who runs commands on the database can read it; it says that it is private."""
    assert "shared-job" in run("incidents", "list")
    told = run("incidents", "list", "--private")
    assert "private to U0ADA" in told
    assert MARKER in told
    assert "private to U0ADA" in run("incidents", "show", "2")
