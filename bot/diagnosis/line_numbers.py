"""Adds the line numbers of the few lines shown, which only the source contains, and masks secrets in the whole report."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from bot.runtime.redaction.structure import redacted
from connectors.bundles.streams import StreamReader, is_plain
from kb.model import StreamRef
from kb.report import EvidenceItem, Report

SHOWN = 512
BLOCK = 256 * 1024  # bytes read at once, which the processor's cache holds
MOST = 1 << 30  # a line further into the source is not worth reading for its number


def resolve(report: Report, root: Path | None) -> Report:
    """Return the report with line numbers, and secrets masked in all of its texts. `root`: the folder that sources are relative to."""
    number = _Lines(root, _shown(report))

    def item(evidence_item: EvidenceItem) -> EvidenceItem:
        text = number.text(evidence_item) if evidence_item.kind == "series" else evidence_item.text
        return replace(evidence_item, line=number.of(evidence_item), text=text)

    diagnoses = tuple(
        replace(diagnosis, evidence=tuple(item(e) for e in diagnosis.evidence)) for diagnosis in report.diagnoses
    )
    events = tuple(
        replace(event, evidence=item(event.evidence) if event.evidence else None) for event in report.indicators.events
    )
    indicators = replace(report.indicators, events=events)
    return redacted(replace(report, diagnoses=diagnoses, indicators=indicators))


def _shown(report: Report) -> Iterator[EvidenceItem]:
    for diagnosis in report.diagnoses:
        yield from diagnosis.evidence
    yield from (event.evidence for event in report.indicators.events if event.evidence)


class _Lines:
    """Line numbers by source and offset; each source is read once, up to the last line shown."""

    def __init__(self, root: Path | None, items: Iterable[EvidenceItem]) -> None:
        self._root = root
        wanted: dict[str, set[int]] = {}
        for item in items:
            if item.offset is not None and item.offset <= MOST:
                wanted.setdefault(item.source, set()).add(item.offset)
        self._known = {source: self._count(source, sorted(offsets)) for source, offsets in wanted.items()}

    def of(self, evidence_item: EvidenceItem) -> int | None:
        return (
            None
            if evidence_item.offset is None
            else self._known.get(evidence_item.source, {}).get(evidence_item.offset)
        )

    def text(self, evidence_item: EvidenceItem) -> str:
        """Return the line itself if the evidence is a series, or the finding in words if the line cannot be read."""
        ref = self._ref(evidence_item.source)
        if evidence_item.offset is None or not is_plain(ref):
            return evidence_item.text
        line = (
            next(iter(StreamReader(ref, evidence_item.offset, evidence_item.offset + SHOWN)), b"")
            .replace(b"\r", b"\n")
            .partition(b"\n")[0]
        )
        return line.decode("utf-8", "replace").strip() or evidence_item.text

    def _ref(self, source: str) -> StreamRef:
        return StreamRef(str(self._root / source if self._root else Path(source)))

    def _count(self, source: str, offsets: list[int]) -> dict[int, int]:
        """Return offset → line number, for the lines that still exist in the source."""
        found: dict[int, int] = {}
        left = deque(offsets)
        start, lines = 0, 1
        for block in StreamReader(self._ref(source), block=BLOCK):
            at, stop = 0, start + len(block)
            while left and left[0] < stop:
                offset = left.popleft()
                lines += block.count(b"\n", at, offset - start)
                at = offset - start
                found[offset] = lines
            if not left:
                break
            lines += block.count(b"\n", at)
            start = stop
        return found
