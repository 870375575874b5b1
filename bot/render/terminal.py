"""A report as text for a terminal, readable in ten seconds: the cause and the culprit come first, then what to do.

`plain` returns the text and needs no library; `render` prints the same lines, styled, on a terminal. All text of a
report goes through `shown`, so nothing in a log line can move the cursor, or hide or reorder text. Own wording is
ASCII.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from bot.render import decisions, phrases
from bot.render.commands import host_of
from bot.render.completion import certainty
from bot.render.headline import class_tag, explanation, headline, tone
from bot.render.hyperlinks import file_address, shows_links
from bot.render.indicators_text import add_indicators
from bot.render.report_json import iso
from bot.render.text_fit import fitted
from bot.render.text_format import few, joined, tail
from bot.render.text_page import LISTED, LONE_ROWS, MARGIN, OutputLine, Reading, TextPage, Weight
from bot.render.text_wrap import last_folders
from kb.report import leaves_open

if TYPE_CHECKING:
    from bot.render.rich_console import Console
    from kb.model import Attempt, Gap
    from kb.report import Diagnosis, EvidenceItem, Report, TimeZone

WIDTH = 80
_WIDEST = 100  # longer lines are hard to read
_NARROWEST = 40
_AROUND = 3  # rows of a terminal that are not the answer's: the command, the number of the incident, the next prompt
_LEFT_OUT = {
    Weight.EVIDENCE: "the rest of the evidence",
    Weight.FINDING: "what happened",
    Weight.SUSPECTS: "who is at fault",
    Weight.REASON: "why so",
    Weight.PHASE: "phase and progress",
    Weight.CONFIDENCE: "reasons",
    Weight.MISSING: "missing evidence",
    Weight.PICTURE: "heat map",
    Weight.JOB: "job",
    Weight.CHECK: "check",
    Weight.EXCLUSIONS: "nodes to exclude",
    Weight.MORE_EVIDENCE: "more evidence",
    Weight.EXPLAINS: "what it explains",
    Weight.OTHERS: "other findings",
}  # what is named if the screen is too small for it
_DIAGNOSES = 3
_EXPLAINED = 3
_QUOTES = (5, 2, 2)  # evidence items shown for the first, second and third diagnosis


def show(report: Report, reading: Reading | None = None, above: int = 0) -> None:
    """Print the report to stdout: styled and fitted to the screen on a terminal, plain and whole otherwise.

    `above`: rows of the screen that other output takes.
    """
    reading = reading or Reading()
    if sys.stdout.isatty():
        import shutil  # noqa: PLC0415 - imports bz2 and lzma

        from bot.render.rich_console import console_of  # noqa: PLC0415 - slow to import, and not needed in a pipe

        rows = None if reading.verbose else shutil.get_terminal_size().lines - _AROUND - above
        render(report, console_of(sys.stdout), replace(reading, rows=rows))
    else:
        sys.stdout.write(plain(report, WIDTH, reading, sys.stdout.encoding or "utf-8"))


def show_diagnosis(diagnosis: Diagnosis, zone: TimeZone, reading: Reading) -> None:
    """Print one diagnosis of a report: its title, its first step, and what it rests on."""
    page = TextPage(WIDTH, reading)
    page.text(f"{diagnosis.title}{f' [{diagnosis.fault}]' if diagnosis.known else ''}", "title")
    _remedy(page, diagnosis)
    _grounds(page, diagnosis, _QUOTES[0], zone)
    sys.stdout.write("".join(f"{_encodable(str(line), sys.stdout.encoding or 'utf-8')}\n" for line in page.lines))


def render(report: Report, console: Console, reading: Reading | None = None) -> None:
    """Print the report to the console, at its width and with the styles it supports."""
    from bot.render.rich_console import draw_lines  # noqa: PLC0415 - slow to import, and not needed for `plain`

    linked = shows_links(os.environ)
    draw_lines(
        (
            (
                (_encodable(line.label, console.encoding), "label", ""),
                *(
                    (_encodable(text, console.encoding), style, line.link if linked else "")
                    for style, text in line.spans or ((line.style, line.text),)
                ),
            )
            for line in lines(report, console.width, reading)
        ),
        console,
    )


def plain(report: Report, width: int = WIDTH, reading: Reading | None = None, encoding: str = "utf-8") -> str:
    """Return the report as plain text for pipes and files, each line ended by a newline; `encoding` is the reader's."""
    return "".join(f"{_encodable(str(line), encoding)}\n" for line in lines(report, width, reading))


def _encodable(text: str, encoding: str) -> str:
    try:
        return text.encode(encoding, "backslashreplace").decode(encoding)
    except LookupError:
        return text.encode("ascii", "backslashreplace").decode()


# --- the report ------------------------------------------------------------------------------------------------------


def lines(report: Report, width: int = WIDTH, reading: Reading | None = None) -> list[OutputLine]:
    """The report as lines of at most `width` columns (40 to 100), except for commands, which are never wrapped."""
    page = TextPage(min(max(width, _NARROWEST), _WIDEST), reading or Reading())
    _write(page, report)
    kept, left_out = fitted(page.lines, page.reading.rows, max(width, _NARROWEST))
    names = [_LEFT_OUT[weight] for weight in left_out if weight in _LEFT_OUT]
    return [*kept, OutputLine(f"-v also shows: {few(names, limit=3)}", style="quiet")] if names else kept


def _write(page: TextPage, report: Report) -> None:
    first = _lead(report)
    _head(page, report)
    with page.weighing(Weight.SUSPECTS):
        page.gap()
    if first is not None:
        _remedy(page, first)
        _grounds(page, first, _QUOTES[0], report.time_zone)
    page.field("Confidence", certainty(report))
    told, command = decisions.how_to_settle(report)
    page.field("Do first", f"{told} (read-only)" if told and command else told)
    page.command(command)
    if page.reading.heat is not None:
        from bot.render.heat_text import add_heat  # noqa: PLC0415 - few answers have one

        add_heat(page, page.reading.heat)
    _about(page, report)
    if not report.diagnoses:
        _memory(page, report)
        add_indicators(page, report)
    with page.weighing(Weight.OTHERS):
        _diagnoses(page, report, 1 if first is not None else 0)
        if report.diagnoses:
            _memory(page, report)
        if report.hang.stacks:
            from bot.render.stacks_text import add_stacks  # noqa: PLC0415 - few answers have some

            add_stacks(page, report.hang.stacks)
    unsure = report.verdict != "fault" or leaves_open(report)
    if report.diagnoses and (page.verbose or unsure):
        add_indicators(page, report)
    _missing(page, report)
    _versions(page, report)


def _lead(report: Report) -> Diagnosis | None:
    """Return the diagnosis that the headline names; None if there is none."""
    return report.diagnoses[0] if report.verdict in ("fault", "no_match") and report.diagnoses else None


# --- what happened, and what to do -----------------------------------------------------------------------------------


def _head(page: TextPage, report: Report) -> None:
    """Add the cause and the culprit, then the decision with its owner and its reasons."""
    decision, first = report.decision, _lead(report)
    page.text(f"{headline(report)}{class_tag(report)}", tone(report))
    if tone(report) == "calm":
        page.text(decisions.decided(report), "head")
        return
    if told := explanation(report):
        with page.weighing(Weight.FINDING):
            page.text(told)
    page.told(decisions.decided(report), "head", decisions.owned(decision))
    with page.weighing(Weight.REASON):
        page.text(decisions.reason(decision))
    with page.weighing(Weight.EXCLUSIONS):
        for exclusion in decisions.excluded(decision, first.title if first is not None else "")[
            : None if page.verbose else _DIAGNOSES
        ]:
            page.text(exclusion, indent=3, hang=2)


# --- what ran --------------------------------------------------------------------------------------------------------


def _about(page: TextPage, report: Report) -> None:
    job = report.job
    with page.weighing(Weight.JOB):
        page.field("Job", phrases.job_facts(job))
        for number, (name, url) in enumerate(page.reading.consoles):
            page.address("" if number else "Open", name, url)
        page.field("Before", phrases.attempts_before(job))
        if page.verbose:
            page.listed([_attempt(attempt) for attempt in job.attempts], MARGIN)
    with page.weighing(Weight.PHASE):
        unknown = report.phase == "unknown"
        page.field(
            "Progress" if unknown else "Phase", joined(["" if unknown else report.phase, *phrases.progress(report)])
        )
        page.field("Hang", phrases.hang(report))
    if report.hang.lone is not None and report.hang.advice:
        page.text("To confirm, do one of these:", indent=MARGIN)
        page.listed(report.hang.advice, MARGIN)
    if page.verbose:
        page.listed(
            [f"{vote.probe}: {phrases.VOTES[vote.vote]}{tail(vote.detail)}" for vote in report.hang.votes], MARGIN
        )


def _attempt(attempt: Attempt) -> str:
    """Return an attempt with its state and the times of its stages."""
    steps = (
        ("queued", attempt.queued), ("scheduled", attempt.scheduled), ("initialised", attempt.initialised),
        ("first iteration", attempt.first_iterated), ("last iteration", attempt.last_iterated), ("stopped", attempt.stopped),
    )  # fmt: skip
    times = [f"{word} {iso(round(when))}" for word, when in steps if when is not None]
    end = joined(
        [
            attempt.state or "",
            attempt.reason,
            f"exit {attempt.exit_code}" if attempt.exit_code else "",
            f"signal {attempt.signal}" if attempt.signal else "",
        ]
    )
    return f"attempt {attempt.number}: {joined([end, *times])}"


# --- why -------------------------------------------------------------------------------------------------------------


def _diagnoses(page: TextPage, report: Report, shown_already: int) -> None:
    """Add the diagnoses after those that the head of the report covers."""
    kept = report.diagnoses if page.verbose else report.diagnoses[:_DIAGNOSES]
    for place, diagnosis in enumerate(kept[shown_already:], shown_already):
        page.gap()
        role = "" if diagnosis.role == "root_cause" else f", {diagnosis.role}"
        page.text(f"{diagnosis.rank}. {diagnosis.title} ({diagnosis.fault}{role})", "title", hang=3)
        _grounds(page, diagnosis, _QUOTES[min(place, len(_QUOTES) - 1)], report.time_zone)
        _remedy(page, diagnosis)
    rest = report.diagnoses[len(kept) :]
    if rest:
        page.gap()
        page.text(f"Also found: {few([f'{item.fault} ({item.band})' for item in rest])}", "quiet", hang=2)


def _grounds(page: TextPage, diagnosis: Diagnosis, quotes: int, zone: TimeZone) -> None:
    """Add what the diagnosis rests on: suspects, confidence, lines, and the symptoms that it explains."""
    with page.weighing(Weight.SUSPECTS):
        page.field("At fault", diagnosis.lies_in)
        page.field(phrases.suspects_label(diagnosis), phrases.suspected(diagnosis.suspects))
    _confidence(page, diagnosis)
    with page.weighing(Weight.CONFIDENCE):
        if page.verbose or diagnosis.rank > 1 or diagnosis.first_seen is not None:  # else, the progress says it
            page.field("Where", joined(phrases.place(diagnosis, zone)))
    if page.verbose:
        page.field("Cause", diagnosis.cause)
        page.field("Impact", diagnosis.impact)
    _evidence(page, diagnosis, quotes)
    with page.weighing(Weight.EXPLAINS):
        page.field("Explains", phrases.explains(diagnosis, None if page.verbose else _EXPLAINED))
    if page.verbose and diagnosis.known:
        page.field("Rule", f"{diagnosis.rule}, version {diagnosis.rule_version}, confidence {diagnosis.confidence:.2f}")


def _confidence(page: TextPage, diagnosis: Diagnosis) -> None:
    """Add the confidence, which always stays, and its reasons: on its line if they fit there, else on lines that may go."""
    told = phrases.confidence(diagnosis, None if page.verbose else 3)
    if page.verbose or len(told) <= page.width - MARGIN:
        page.field("Confidence", told)
        return
    page.field("Confidence", diagnosis.band)
    with page.weighing(Weight.CONFIDENCE):
        page.field("", told.removeprefix(f"{diagnosis.band}. "))


def _evidence(page: TextPage, diagnosis: Diagnosis, quotes: int) -> None:
    items = diagnosis.evidence if page.verbose else _distinct(diagnosis.evidence)
    kept = items if page.verbose else items[:quotes]
    find, root = page.reading.telling, page.reading.root
    telling = None if find is None else partial(find, diagnosis)
    for number, item in enumerate(kept):
        with page.weighing(Weight.MORE_EVIDENCE if number else Weight.EVIDENCE):
            fits = page.verbose or page.reading.rows is None
            where = phrases.source(item) if fits else last_folders(phrases.source(item), page.width - MARGIN)
            page.field("" if number else "Evidence", where, "quiet", link=file_address(root, item.source))
            lone = len(diagnosis.evidence) == 1 and "\n" not in item.text.strip()
            page.quote(item.text, MARGIN + 2, telling, *([LONE_ROWS] if lone else []))
    if len(kept) < len(diagnosis.evidence):
        with page.weighing(Weight.MORE_EVIDENCE):
            page.field("", f"... and {len(diagnosis.evidence) - len(kept)} more", "quiet")


def _distinct(items: Sequence[EvidenceItem]) -> list[EvidenceItem]:
    """Return the items without those whose text is part of another one's: a launcher repeats the lines of its ranks."""
    texts = [item.text.strip() for item in items]
    return [
        item
        for place, item in enumerate(items)
        if not any(
            texts[place] in other and (texts[place] != other or at < place)
            for at, other in enumerate(texts)
            if at != place
        )
    ]


def _remedy(page: TextPage, diagnosis: Diagnosis) -> None:
    for number, step in enumerate(diagnosis.remediation if page.verbose else diagnosis.remediation[:1]):
        label = "Then" if number else "Do first"
        page.field(
            label, f"{step.text} {phrases.grade(step)}".rstrip(), "caution" if step.grade == "disruptive" else ""
        )
        page.command(step.command or "", host_of(step, diagnosis))
        with page.weighing(Weight.CHECK):
            page.field("", f"Check: {step.verify}" if step.verify else "")


# --- what past runs suggest, and what is missing ---------------------------------------------------------------------


def _memory(page: TextPage, report: Report) -> None:
    """Add the suggestions of past runs: as the first lead if no rule matches, else as a hint."""
    found = phrases.remembered(report)
    if not found:
        return
    with page.weighing(Weight.EXPLAINS):
        page.gap()
        page.text(phrases.REMEMBERED, "title")
        page.listed(found)


def _missing(page: TextPage, report: Report) -> None:
    """Add the missing evidence: one line, all of it if verbose, or where the answer is that there is too little."""
    for said in decisions.contradictions(report):
        with page.weighing(Weight.MISSING):
            page.gap()
            page.text(said, hang=2)
    gaps = decisions.missing_evidence(report) if page.verbose else decisions.further_gaps(report)
    if not gaps and not report.not_evaluated:
        return
    with page.weighing(Weight.MISSING):
        page.gap()
        if page.verbose or report.verdict == "insufficient_evidence":
            _all_missing(page, report, gaps)
        else:
            page.text(phrases.missing_in_short(report), "quiet", hang=2)


def _all_missing(page: TextPage, report: Report, gaps: Sequence[Gap]) -> None:
    page.text(phrases.missing_heading(gaps), "title")
    page.listed(phrases.folded(gaps))
    unjudged = phrases.not_judged(report.not_evaluated, None if page.verbose else LISTED)
    if unjudged:
        page.text(f"- {unjudged}", indent=3, hang=2)


def _versions(page: TextPage, report: Report) -> None:
    with page.weighing(Weight.VERSIONS):
        if page.verbose or not (report.gaps or report.not_evaluated):
            page.gap()
        page.text(phrases.versions(report), "quiet")
