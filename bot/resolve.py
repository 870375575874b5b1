"""Fills in what only a look at the source tells: the line numbers of the few lines shown. Redacts them on the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from bot.redact import redact
from connectors.files import Reading, is_plain
from kb.model import StreamRef
from kb.report import Diagnosis, EvidenceItem, Indicators, Report

SHOWN = 512
MOST = 1 << 30  # a line number further in than this is not worth the reading


def resolve(report: Report, root: Path | None) -> Report:
    """The report with line numbers and redacted texts. `root`: the folder that sources are relative to."""
    number = _Lines(root)

    def item(one: EvidenceItem) -> EvidenceItem:
        text = number.text(one) if one.kind == "series" else one.text
        return replace(one, line=number.of(one), text=redact(text))

    diagnoses = tuple(_diagnosis(one, item) for one in report.diagnoses)
    events = tuple(
        replace(one, what=redact(one.what), evidence=item(one.evidence) if one.evidence else None)
        for one in report.indicators.events
    )
    indicators = Indicators(events, report.indicators.nodes, report.indicators.stages, report.indicators.iterations)
    return replace(report, diagnoses=diagnoses, indicators=indicators, summary=redact(report.summary))


def _diagnosis(one: Diagnosis, item: Callable[[EvidenceItem], EvidenceItem]) -> Diagnosis:
    return replace(one, summary=redact(one.summary), evidence=tuple(item(e) for e in one.evidence))


class _Lines:
    """Line numbers by source and offset; each source is read once, as far as its furthest line shown."""

    def __init__(self, root: Path | None) -> None:
        self._root = root
        self._known: dict[tuple[str, int], int | None] = {}

    def of(self, one: EvidenceItem) -> int | None:
        if one.offset is None or one.offset > MOST:
            return None
        key = (one.source, one.offset)
        if key not in self._known:
            self._known[key] = self._count(*key)
        return self._known[key]

    def text(self, one: EvidenceItem) -> str:
        """The line itself where a series is the evidence; the finding in words where it cannot be read."""
        path = self._root / one.source if self._root else Path(one.source)
        ref = StreamRef(str(path))
        if one.offset is None or not is_plain(ref):
            return one.text
        line = next(iter(Reading(ref, one.offset, one.offset + SHOWN)), b"").replace(b"\r", b"\n").partition(b"\n")[0]
        return line.decode("utf-8", "replace").strip() or one.text

    def _count(self, source: str, offset: int) -> int | None:
        path = self._root / source if self._root else Path(source)
        reading = Reading(StreamRef(str(path)))
        seen, lines = 0, 1
        for block in reading:
            wanted = min(len(block), offset - seen)
            lines += block.count(b"\n", 0, wanted)
            seen += wanted
            if seen >= offset:
                return lines
        return lines if seen >= offset and not reading.gaps else None
