"""What stands out in a run, known failure or not, as lines of a terminal."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bot.render import phrases
from bot.render.text_format import tail
from bot.render.text_page import LISTED, MARGIN, TextPage, Weight
from kb.report import leaves_open

if TYPE_CHECKING:
    from kb.report import Indicator, Indicators, Report


def add_indicators(page: TextPage, report: Report) -> None:
    """Add the lines, places, stages and steps that stand out: a few of each, all of them if verbose."""
    found = report.indicators if page.verbose else _not_quoted(report)
    groups = (
        ("Lines", found.events),
        (phrases.places(found), found.nodes),
        ("Stages", found.stages),
        ("Steps", found.iterations),
    )
    if phrases.nothing_stands_out(found):
        return
    with page.weighing(Weight.FINDING):
        page.gap()
        page.text(phrases.standing_out(report), "title")
    first = True
    for label, items in groups:
        kept = items if page.verbose else items[:LISTED]
        for number, item in enumerate(kept):
            with page.weighing(Weight.FINDING if first else Weight.MORE_EVIDENCE):
                _indicator(page, "" if number else label, item)
            first = False
        if len(kept) < len(items):
            with page.weighing(Weight.MORE_EVIDENCE):
                page.field("", f"... and {len(items) - len(kept)} more", "quiet")
    with page.weighing(Weight.MORE_EVIDENCE):
        page.field("Compared", f"with {found.compared_with}" if found.compared_with else "", "quiet")


def comparison_not_shown(report: Report) -> str:
    """Return where to see a comparison that was asked for, if the answer does not show it: a rule explains the failure."""
    if report.verdict != "fault" or leaves_open(report) or not report.indicators.compared_with:
        return ""
    return (
        f"compared with {report.indicators.compared_with}; a rule explains the failure, so only -v shows what differs"
    )


def _not_quoted(report: Report) -> Indicators:
    """Return what stands out without the lines that the first diagnosis quotes and that have no reason of their own."""
    quoted = {(item.source, item.text.strip()) for item in (report.diagnoses[0].evidence if report.diagnoses else ())}
    events = [
        item
        for item in report.indicators.events
        if item.why or item.evidence is None or (item.evidence.source, item.evidence.text.strip()) not in quoted
    ]
    return replace(report.indicators, events=tuple(events))


def _indicator(page: TextPage, label: str, item: Indicator) -> None:
    if item.evidence is None:
        page.field(label, f"{item.what}{tail(item.why)}")
        return
    page.field(label, f"{phrases.source(item.evidence)}{tail(item.why)}", "quiet")
    page.quote(item.evidence.text or item.what, MARGIN + 2)
