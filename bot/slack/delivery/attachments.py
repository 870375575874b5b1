"""The files in the thread of an answer: the full report as text, and the rank timeline as an image."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bot.incidents.ledger import Ledger
from bot.render.pictures.raster import png
from bot.render.pictures.timeline import loads
from bot.render.pictures.timeline_svg import draw
from bot.render.pictures.timeline_words import alt_text
from bot.render.report_json import from_json
from bot.render.terminal import plain
from bot.render.text_page import Reading
from bot.runtime.redaction import redact
from kb.errors import SignalboxError
from kb.model import NOT_FAILED

TIMELINE = "timeline"
_WIDTH = 100
_ODD = re.compile(r"[^A-Za-z0-9._-]+")
_ALT = 1900  # Slack accepts 2,000 characters


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file to upload."""

    name: str
    title: str
    content: bytes
    alt: str = ""


def attachments(ledger: Ledger, incident: int, *, asked: bool = False) -> list[Attachment]:
    """Return the files of an incident. If nothing failed, there are none unless somebody asked for them."""
    record = ledger.incidents.answer(incident)
    if record is None:
        return []
    report = from_json(record.report_json)
    if report.verdict in NOT_FAILED and not report.hang.suspected and not asked:
        return []
    stem = _ODD.sub("-", report.job.name or report.job.id or "job").strip("-")[:60] or "job"
    text = redact(plain(report, _WIDTH, Reading(verbose=True))).encode("utf-8", "replace")
    files = [Attachment(f"{stem}-evidence.txt", f"Evidence of incident {incident}", text)]
    kept = ledger.incidents.kept(incident, TIMELINE)
    picture = None if kept is None else _picture(kept, stem)
    return [picture, *files] if picture is not None else files


def _picture(kept: bytes, stem: str) -> Attachment | None:
    """Return the timeline as an image; None if it is empty or was written by an older version."""
    try:
        timeline = loads(kept)
    except SignalboxError:
        return None
    if not timeline.rows:
        return None
    return Attachment(f"{stem}-timeline.png", "Rank timeline", png(draw(timeline)), redact(alt_text(timeline))[:_ALT])
