"""What tests do again and again with the same result, done once a process: scanning the logs of a job, judging it, drawing its picture."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TypeVar
from unittest import mock

from bot.diagnosis import diagnose, scan_pool
from bot.diagnosis.scan_pool import ScanTask
from bot.pages import attachments as page_attachments
from bot.render.pictures.raster import png
from bot.rulebase.loader import Knowledge
from bot.slack.delivery import attachments
from kb.diagnosis import engine
from kb.diagnosis.engine import identified
from kb.facts.evidence import Evidence
from kb.facts.history import History
from kb.report import Report
from kb.rulebase.rule import Rulebook
from kb.scanning.matcher import Matcher
from kb.scanning.summary import StreamSummary
from kb.timeline import curves as drawn_curves
from kb.timeline.curves import Curves

_T = TypeVar("_T")


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


@contextmanager
def judged_once() -> Iterator[None]:
    """Judge the same evidence with the same rules and history once, and make the curves of its page once.

    Jobs that differ by their name only share an answer, if that says the name nowhere but where it names the job.
    """
    judge, draw = engine.diagnose, drawn_curves.curves
    reports, drawings = dict[object, Report](), dict[object, Curves]()

    def judged(evidence: Evidence, rulebook: Rulebook, history: History | None = None) -> Report:
        name, folder = evidence.job.name, evidence.bundle

        def do() -> Report:
            return judge(evidence, rulebook, history)

        key = pickle.dumps((rulebook.digest, _unnamed(evidence), history))
        found = _once(reports, key, (name, folder), do, _without_name)
        return identified(replace(found, job=replace(found.job, name=name), bundle=folder))

    def drawn(evidence: Evidence, report: Report, *, lines: int, columns: int) -> Curves:
        def do() -> Curves:
            return draw(evidence, report, lines=lines, columns=columns)

        key = pickle.dumps((_unnamed(evidence), _without_name(report), lines, columns))
        return _once(drawings, key, (evidence.job.name, evidence.bundle), do, lambda made: made)

    with mock.patch.object(diagnose, "diagnose", judged), mock.patch.object(page_attachments, "curves", drawn):
        yield


def _unnamed(evidence: Evidence) -> Evidence:
    return replace(evidence, job=replace(evidence.job, name=None), bundle=None)


def _without_name(report: Report) -> Report:
    return replace(report, id="", job=replace(report.job, name=None), bundle=None)


def _once(
    kept: dict[object, _T], key: bytes, names: tuple[str | None, ...], do: Callable[[], _T], strip: Callable[[_T], _T]
) -> _T:
    """Return what is kept for the key, for other names too where what `strip` leaves of it has none of these names."""
    for each in (key, (key, names)):
        if each in kept:
            return kept[each]
    made = do()
    told = repr(strip(made))
    kept[(key, names) if any(name and name in told for name in names) else key] = made
    return made
