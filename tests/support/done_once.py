"""What tests do again and again with the same result, done once a process: scanning the logs of a job, drawing its picture."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from unittest import mock

from bot.diagnosis import scan_pool
from bot.diagnosis.scan_pool import ScanTask
from bot.render.pictures.raster import png
from bot.rulebase.loader import Knowledge
from bot.slack.delivery import attachments
from kb.scanning.matcher import Matcher
from kb.scanning.summary import StreamSummary


@contextmanager
def scanned_once() -> Iterator[None]:
    """Scan each log once: files of one name and content, of one rank and read with the same rules, have the same summary."""
    scan, kept = scan_pool._scan, dict[object, StreamSummary]()

    def scanned(knowledge: Knowledge, matcher: Matcher, task: ScanTask) -> StreamSummary:
        path = Path(task.ref.uri)
        if not path.is_file():
            return scan(knowledge, matcher, task)
        named = replace(task, index=0, ref=replace(task.ref, uri=path.name))
        key = (knowledge.rulebook.digest, named, path.read_bytes())
        if key not in kept:
            found = scan(knowledge, matcher, task)
            if found.gaps:
                return found
            kept[key] = found
        return replace(kept[key], ref=task.ref)

    with mock.patch.object(scan_pool, "_scan", scanned):
        yield


@contextmanager
def drawn_once() -> Iterator[None]:
    """Draw each picture that is attached to an answer once."""
    with mock.patch.object(attachments, "png", cache(png)):
        yield
