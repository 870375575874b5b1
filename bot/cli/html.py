"""HTML pages from the command line: `diagnose --html FILE` and `incidents show ID --html FILE`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from bot.cli.console import STDOUT, say
from bot.incidents.ledger import Ledger
from bot.pages.attachments import read
from bot.pages.incident import incident_page, words_of
from bot.pages.incident_status import about_of
from bot.render.report_json import from_json
from bot.retention.evidence import EvidenceLocation
from bot.rulebase.loader import Knowledge, knowledge
from bot.runtime.paths import database_url
from bot.store.incidents import IncidentRecord
from kb.errors import SignalboxError
from kb.report import Report


def write_answer(known: Knowledge, report: Report, kept: Mapping[str, bytes], file: Path) -> None:
    """Write the page of a new answer.

    Raises:
        SignalboxError: the page cannot be written.
    """
    _write(file, incident_page(report, read(kept.get), words=words_of(known)))


def write_incident(record: IncidentRecord, where: EvidenceLocation, file: Path) -> None:
    """Write the page of an incident, with its history. `file`: `-` for stdout.

    Raises:
        SignalboxError: the report is not readable, the store cannot be used, or the page cannot be written.
    """
    incident = record.incident
    with Ledger(database_url()) as ledger:
        kept = read(lambda name: ledger.incidents.kept(incident.id, name))
        about = about_of(ledger, incident, where.words, datetime.now(UTC))
    made = incident_page(from_json(record.report_json), kept, about, words_of(knowledge()))
    if file == STDOUT:
        say(made, end="")
    else:
        _write(file, made)


def _write(file: Path, page: str) -> None:
    try:
        file.write_text(page, encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SignalboxError(f"{file}: cannot write the page: {reason}") from error
