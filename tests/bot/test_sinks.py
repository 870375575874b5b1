"""No secret comes out anywhere: one table over every place where text leaves, whatever part of a job it was planted in.

The places are grouped by where they get their text. Those that show a report, a store or a bundle are given one full of planted
secrets. The tables of commands, columns, routes and writers are compared with what the program registers, so that a new one that is
not here fails.
"""

from __future__ import annotations

import ast
import gzip
import json
import logging
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any

import pytest
import typer.main
import zstandard
from flask import Flask
from sqlmodel import SQLModel
from typer.testing import CliRunner

from bot.cli import console
from bot.cli.command_line import command_line
from bot.collection.bundle_writer import BundleWriter
from bot.diagnosis.line_numbers import resolve
from bot.digest.html import page as digest_page
from bot.forges.base import PlanRefused, PullRequestPlan, without_secrets
from bot.incidents.ledger import Ledger
from bot.incidents.resolution import Closing, annotate_within
from bot.live.bundle_writer import LiveBundle
from bot.pages.incident import incident_page, words_of
from bot.pages.overview import overview_page
from bot.pages.routes import pages
from bot.pages.signed_links import PageLinks
from bot.render.report_json import dumps
from bot.render.terminal import plain
from bot.render.text_page import Reading
from bot.runtime import logging as service_log
from bot.runtime import metrics
from bot.slack.delivery.masked_client import MaskedClient, masked_texts
from bot.slack.messages.answer import answer_message
from bot.store.digest_rows import compute
from bot.store.incidents import remember
from bot.store.packed_reports import Origin, file
from bot.store.report_writes import add_within
from bot.store.tables import MaskedText
from kb.digest.weeks import week_of
from kb.model import Gap, Job, JobRecord, StreamRef, Window
from kb.report import Hang, Report, Versions
from tests.support import hostile_reports
from tests.support.filled_store import BOOK
from tests.support.planted_secrets import EVERYTHING, PLANTS, TOKEN, come_out

app = command_line()

ROOT = Path(__file__).parents[2]
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.fixture
def raw(monkeypatch) -> list[Report]:
    """Reports with all secrets in every text, as no code of ours would make them."""
    monkeypatch.setattr(hostile_reports, "text", lambda _chance: EVERYTHING)
    versions = Versions("1", "1", "d", "c")
    made = (
        replace(hostile_reports.report(Random(seed)), id="r", fingerprint="f", versions=versions) for seed in range(30)
    )
    found = [report for report in made if report.diagnoses and _shows(report)][:2]
    assert sum(len(report.diagnoses) for report in found) >= 2
    return found


def _shows(report: Report) -> bool:
    """Whether its numbers are such as can be shown: impossible ones have their own tests."""
    try:
        plain(report, 100, Reading(verbose=True))
    except (ValueError, OverflowError):
        return False
    return True


def test_the_plants_are_found():
    """The planted secrets occur in the planted text; otherwise the table would pass for any output."""
    assert come_out(EVERYTHING) == list(PLANTS)


# --- a report ----------------------------------------------------------------------------------------------------------


def _slack(report: Report) -> str:
    message = answer_message(report, hostile_reports.card(Random(3)))
    return json.dumps(masked_texts({"text": message.text, "blocks": list(message.blocks)}), ensure_ascii=False)


REPORT_PLACES: dict[str, Callable[[Report], str]] = {
    "json": lambda report: dumps(resolve(report, None)).decode(),
    "terminal": lambda report: plain(resolve(report, None), 100, Reading(verbose=True)),
    "page": incident_page,
    "slack": _slack,
}


@pytest.mark.parametrize("place", REPORT_PLACES)
def test_a_report_shows_none(raw, place):
    """Wherever in the report it is: names, reasons, commands, gaps, the text of a line."""
    for report in raw:
        assert come_out(REPORT_PLACES[place](report)) == []


# --- the database ------------------------------------------------------------------------------------------------------

# Columns that hold only what the service itself writes, or what must stay whole to be of use.
OWN = {
    "*": [
        "tenant",
        "key",
        "handle",
        "state",
        "fault",
        "rule",
        "verdict",
        "phase",
        "fingerprint",
        "rulebook_digest",
        "report_id",
        "chain",
        "once",
        "method",
        "kind",
        "verb",
        "source",
        "channel",
        "thread_ts",
        "ts",
        "version",
        "meaning",
        "group_id",
        "members",
        "period",
        "week",
        "branch",
        "forge",
        "url",
        "head",
        "etag",
        "advice",
        "archive",
        "name",
        "cause",
    ],
    "posting": ["asked_by"],
    "request": ["who", "reply_to"],  # an address of Slack, valid for half an hour
    "outbox": ["payload"],  # likewise; its texts pass the client
    "choice": ["payload"],  # the exact names that a button stands for
    "work": ["payload", "worker", "spooled"],  # the job as it was asked for
    "baseline": ["family"],
    "bar": ["scope"],
    "incident": ["bundle"],  # where the evidence lies
    "draft": ["who"],
    "seen": [],
}


def test_every_text_column_masks_or_is_our_own():
    """A new column of text is either of the type that masks, or is added above with a reason."""
    for table in SQLModel.metadata.tables.values():
        for column in table.columns:
            if column.type.python_type is str and not isinstance(column.type, MaskedText):
                assert column.name in (*OWN["*"], *OWN.get(table.name, ())), f"{table.name}.{column.name}"


def _stored(path: Path) -> str:
    """Everything in a database, unpacked."""
    found = []
    with sqlite3.connect(path) as base:
        for (table,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for row in base.execute(f'SELECT * FROM "{table}"'):  # noqa: S608 - its own names
                for value in row:
                    packed = isinstance(value, bytes)
                    found.append(zstandard.decompress(value).decode("utf-8", "replace") if packed else str(value))
    return "\n".join(found)


def _fill(ledger: Ledger, reports: list[Report]) -> None:
    """Reports as the diagnosis makes them, with all that people and schedulers add."""
    origin = Origin(cluster=TOKEN, partition=EVERYTHING, framework=EVERYTHING, image=EVERYTHING, ended_at=NOW)
    said = Closing(EVERYTHING, "cli", "wrong", "unknown", nodes=(EVERYTHING,), action=EVERYTHING, note=EVERYTHING)
    with ledger.database.session(write=True) as session:
        for place, report in enumerate(reports):
            made = replace(resolve(report, None), id=f"r{place}", fingerprint="f", verdict="fault", bundle=None)
            number = add_within(session, file(dumps(made), made, b"", None, NOW, origin=origin))
            annotate_within(session, number, "default", key=f"k{place}", said=said, now=NOW)


def test_the_database_holds_none(raw, tmp_path):
    """Neither columns, compressed content, nor files put next to a database that refuses them contain a secret."""
    url = f"sqlite:///{tmp_path}/signalbox.db"
    with Ledger(url) as ledger:
        _fill(ledger, raw)
    assert come_out(_stored(tmp_path / "signalbox.db")) == []

    beside = tmp_path / "beside"
    beside.mkdir()
    (beside / "signalbox.db").write_bytes(b"no database" * 1000)
    warning = remember(
        resolve(raw[0], None), b"", None, url=f"sqlite:///{beside}/signalbox.db", origin=Origin(image=EVERYTHING)
    )
    files = [path.read_bytes().decode("latin-1") for path in beside.rglob("*") if path.is_file()]
    assert come_out("\n".join([*files, warning or ""])) == []


# --- the command line --------------------------------------------------------------------------------------------------

# Commands that show what is stored, with their arguments; all others show reports (above), logs (their own tests), or rules.
STORED: dict[str, tuple[str, ...]] = {
    "incidents list": (), "incidents show": ("1",), "incidents handover": (), "digest": ("--week", "2026-W47"), "nodes barred": (),
    "nodes lemons": (), "baselines list": (), "store show": (), "rules proposals": (), "mutes list": (),
}  # fmt: skip
OTHERS = frozenset(
    """diagnose watch serve logs evaluate backfill demo|rules list|rules show|rules lint|rules test|rules lock|rules docs|rules new
    rules diff|rules stats|rules advise|rules backtest|rules propose|incidents close|incidents ack|incidents assign|incidents snooze
    incidents merge|incidents reopen|nodes bar|nodes confirm|nodes refuse|nodes lift|nodes exclude|nodes excluded|baselines keep|baselines drop|mutes add|mutes end|store tidy
    store pin|store unpin|store unpack|pages|config check|config example|config schema|rules faults|rules actions""".replace(
        "\n", "|"
    ).split("|")
)


def _commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield " ".join(words), command
    for name, sub in (inner or {}).items():
        yield from _commands(sub, (*words, name))


def test_every_command_is_in_the_table():
    """A new command says here what it shows."""
    others = {word for words in OTHERS for word in (words.split() if words.startswith("diagnose") else [words.strip()])}

    assert {name for name, _ in _commands(typer.main.get_command(app))} == {*STORED, *others}


@pytest.mark.parametrize("as_json", [False, True])
def test_no_command_shows_what_an_older_version_stored(raw, tmp_path, monkeypatch, as_json):
    """A store from before the masks holds secrets in the open."""
    monkeypatch.setenv("SIGNALBOX_STATE", str(tmp_path))
    monkeypatch.setattr("bot.store.tables.columns.redact", lambda text: text)
    monkeypatch.setattr("bot.store.packed_reports.redacted", lambda row: row)
    with Ledger(f"sqlite:///{tmp_path}/signalbox.db") as ledger, monkeypatch.context() as open_report:
        open_report.setattr(f"{__name__}.resolve", lambda report, _root: report)
        _fill(ledger, raw)
    assert come_out(_stored(tmp_path / "signalbox.db")) == list(PLANTS)

    for name, words in STORED.items():
        ran = CliRunner().invoke(app, [*name.split(), *words, *(["--json"] if as_json else [])])
        assert (ran.exception, come_out(ran.output)) == (None, []), name


# Modules of the command line that write without `say`, and how they mask instead.
WRITERS = {
    "console.py": "say itself", "logs.py": "lines are masked where they are read", "watch.py": "Screen masks", "main.py": "no text",
    "diagnose.py": "no text", "backfill.py": "progress is masked",
}  # fmt: skip


def test_commands_print_through_the_console():
    """`say` and `say_json` mask; nothing else in the command line writes."""
    for path in sorted((ROOT / "bot/cli").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            writes = called in ("print", "typer.echo", "typer.secho", "click.echo", "draw_table", "draw_lines") or called.endswith((".stdout.write", ".stderr.write", ".buffer.write"))  # fmt: skip
            assert not writes or path.name in WRITERS, f"{path}: {called}"


def test_errors_and_tracebacks_are_masked(capsys, monkeypatch):
    """What a command complains of, and what nothing caught, in any thread."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    console.mask_uncaught()
    console.complain(f"GET {EVERYTHING}: 401")
    sys.excepthook(ValueError, ValueError(EVERYTHING), None)
    console.say(EVERYTHING)
    console.say_json(json.dumps({EVERYTHING: [EVERYTHING], "password": "hunter22x"}).encode())

    shown = capsys.readouterr()
    assert come_out(shown.out + shown.err) == []
    assert "hunter22x" not in shown.out
    assert "ValueError" in shown.err


# --- pages, Slack, digests ---------------------------------------------------------------------------------------------


def test_pages_show_none(raw, tmp_path, known, monkeypatch):
    """Lists and digests of an old store, through every route that is registered."""
    served = Flask("test")
    monkeypatch.setattr("bot.store.tables.columns.redact", lambda text: text)
    monkeypatch.setattr("bot.store.packed_reports.redacted", lambda row: row)
    with Ledger(f"sqlite:///{tmp_path}/signalbox.db") as ledger:
        _fill(ledger, raw)
        link = PageLinks("https://signalbox.example", "k" * 48, 3600.0)
        served.register_blueprint(pages(ledger, known, link))
        assert {rule.endpoint for rule in served.url_map.iter_rules()} == {
            "static", "incident_pages.home", "incident_pages.page", "incident_pages.drawn",
        }  # fmt: skip
        listed = overview_page(
            ledger.database, "default", {}, NOW, words=words_of(known), to=lambda _number: "https://x/i/7"
        )
        digest = compute(ledger.database, "default", week_of(NOW, UTC), UTC, until=NOW, faults=BOOK.faults)

    assert come_out(listed) == []
    assert come_out(digest_page(digest).decode()) == []


def test_everything_for_slack_passes_the_client_that_masks(monkeypatch):
    """There is no other client, and the content of an acknowledgement is masked by the same function."""
    sent: list[Any] = []
    monkeypatch.setattr("slack_sdk.WebClient.api_call", lambda _self, method, **given: sent.append((method, given)))
    view = {"type": "modal", "title": {"type": "plain_text", "text": EVERYTHING}, "private_metadata": TOKEN}
    client = MaskedClient("x")
    client.chat_postMessage(channel="C1", text=EVERYTHING, blocks=[{"type": "section", "text": {"text": EVERYTHING}}])
    client.views_open(trigger_id="1", view=view)
    client.api_call("files.getUploadURLExternal", data={"filename": f"{TOKEN}.txt", "alt_txt": EVERYTHING})

    assert come_out(json.dumps([given for _, given in sent]).replace(TOKEN, "", 1)) == []  # what Slack only hands back
    for path in sorted((ROOT / "bot").rglob("*.py")):
        source = path.read_text()
        if "WebClient(" not in source and "ack(" not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            assert called != "WebClient" or "fakeslack" in str(path), path
            if (
                called == "ack"
                and isinstance(node, ast.Call)
                and (node.keywords or node.args)
                and "demo" not in path.parts
            ):
                assert path.name in ("base.py", "early_ack.py") or any(  # early_ack passes on what a listener gave
                    word in ast.unparse(node) for word in ("masked_texts", "fault_options", "options=[]")
                ), path


# --- bundles -----------------------------------------------------------------------------------------------------------


def _everything_below(folder: Path) -> str:
    return "\n".join(
        f"{path.relative_to(folder)}\n{path.read_text()}" for path in sorted(folder.rglob("*")) if path.is_file()
    )


def test_a_saved_bundle_holds_none(tmp_path):
    """Neither in logs and parts nor in names of files, descriptions and gaps."""
    writer = BundleWriter(tmp_path / "bundle", 1 << 20)
    spool = writer.share("logs", 1 << 20)
    spool.append("logs/rank-0.log", f"{EVERYTHING}\n".encode())
    spool.append(f"logs/rank-1-{TOKEN}.log", f"{EVERYTHING}\n".encode() * 200)
    spool.write("metrics/loss.json", json.dumps({"metric": {"job": EVERYTHING}}).encode())
    spool.describe("logs/rank-0.log", query=EVERYTHING)
    job = Job(id=TOKEN, name=TOKEN, args=EVERYTHING, owner=EVERYTHING, image=EVERYTHING, nodes={TOKEN: (0,)})
    record = JobRecord(job, "slurm", partition=EVERYTHING, topology={TOKEN: {"rack": EVERYTHING}})
    writer.finish(record, Window(0, 1), 1.0, {"loki": EVERYTHING}, [Gap("failed", TOKEN, EVERYTHING, asked=EVERYTHING)])

    assert come_out(_everything_below(tmp_path / "bundle")) == []
    assert len(list((tmp_path / "bundle/logs").iterdir())) == 2


def test_a_live_bundle_holds_none(tmp_path):
    """Nor do logs that were packed when they were copied, stacks, and answers of other tools."""
    source = tmp_path / "job"
    source.mkdir()
    (source / f"rank-0-{TOKEN}.log").write_text(f"{EVERYTHING}\n")
    (source / "rank-1.log.gz").write_bytes(gzip.compress(f"{EVERYTHING}\nend\n".encode()))
    live = LiveBundle(tmp_path / "bundle", source)
    live.begin(1.0)
    live.logs([(StreamRef(str(path)), 1.0) for path in sorted(source.iterdir())], ("dmesg.log", EVERYTHING.encode()))
    live.answers("ras", {"1": EVERYTHING.encode()})
    live.parts({"stacks/1/rank-0.json": json.dumps({"locals": EVERYTHING}).encode()})
    live.describe(Job(id=TOKEN, nodes={TOKEN: (0,)}), Hang(), [Gap("x", TOKEN, EVERYTHING)])

    found = _everything_below(tmp_path / "bundle")
    assert come_out(found) == []
    assert "end" in found


# --- pull requests, logs, metrics ---------------------------------------------------------------------------------------


def test_a_pull_request_holds_none():
    """Its texts are masked; files and a branch with a secret are refused, since a mask would change what they mean."""
    plan = PullRequestPlan(
        "m", "signalbox/rule/x", None, EVERYTHING, EVERYTHING, EVERYTHING, {"a/b/rule.yaml": b"id: x"}, NOW
    )

    clean = without_secrets(plan)

    assert come_out(f"{clean.title}\n{clean.body}\n{clean.message}") == []
    with pytest.raises(PlanRefused):
        without_secrets(replace(plan, files={"a/b/match/x.log": EVERYTHING.encode()}))
    with pytest.raises(PlanRefused):
        without_secrets(replace(plan, branch=f"signalbox/rule/{TOKEN}"))
    made = [path for path in sorted((ROOT / "bot").rglob("*.py")) if "PullRequestPlan(\n" in path.read_text()]
    assert [path.name for path in made] == ["pull_request.py"]


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_service_log_holds_none(form):
    """Messages, their arguments, the text and the traceback of an exception, and the context of a line."""
    handlers, level = logging.getLogger().handlers[:], logging.getLogger().level
    out = StringIO()
    try:
        service_log.begin(form, "web", out)
        with service_log.about(job=EVERYTHING):
            logging.getLogger("x").error("failed: %s", EVERYTHING, exc_info=RuntimeError(EVERYTHING))
    finally:
        logging.getLogger().handlers[:] = handlers
        logging.getLogger().setLevel(level)

    assert come_out(out.getvalue()) == []
    assert "RuntimeError" in out.getvalue()


def test_metrics_have_labels_of_closed_lists_only():
    """A label with a name from a cluster could contain anything."""
    labels = {label for table in (metrics.COUNTED, metrics.TIMED) for _, names, *_ in table.values() for label in names}

    assert labels == {
        "verdict",
        "rule",
        "connector",
        "outcome",
        "method",
        "endpoint",
        "status",
        "post",
        "kind",
        "step",
        "why",
    }
