"""A report as text for a terminal, readable in ten seconds: the decision comes first.

`plain` returns the text and needs no library; `render` prints the same lines, styled, on a terminal. All text of a
report goes through `shown`, so nothing in a log line can move the cursor, or hide or reorder text. Own wording is
ASCII.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from bot.render import phrases, text_format
from bot.render.report_json import iso
from bot.render.text_format import few, joined, many, shown, tail
from bot.render.text_wrap import wrapped
from kb.regex.lazy import lazy_compile
from kb.values import dataclass

if TYPE_CHECKING:
    from bot.render.rich_console import Console
    from kb.model import Attempt
    from kb.report import Diagnosis, EvidenceItem, Indicator, Report, StackBranch, TimeZone

WIDTH = 80
_WIDEST = 100  # longer lines are hard to read
_NARROWEST = 40
_MARGIN = 14  # columns for the labels
_DIAGNOSES = 3
_EXPLAINED = 3
_QUOTES = (5, 2, 2)  # evidence items shown for the first, second and third diagnosis
_QUOTED = 300  # characters shown per line of evidence
_QUOTED_LINES = 6  # lines shown per evidence item
_LISTED = 5  # gaps, indicators of one kind
_BRANCHES = 8  # of merged stacks
_BETWEEN = 3  # frames named between the first and the last of a branch
_WRAPPERS = lazy_compile(
    r"(?:^|\.)(?:wrapper|wrapped|inner|_fn|<lambda>|decorate_context|_call_impl|_wrapped_call_impl|\.\.\.)$"
)
_WHO = _MARGIN - 4  # columns of the margin for the ranks of a branch
_DEEPEST = 6  # deeper branches are not indented further


@dataclass(frozen=True, slots=True)
class OutputLine:
    """One line of output: a label in the margin, the text, and its style (one of bot.render.rich_console, empty for plain)."""

    text: str
    label: str = ""
    style: str = ""

    def __str__(self) -> str:
        return self.label + self.text


def show(report: Report, verbose: bool = False) -> None:
    """Print the report to stdout: styled on a terminal, plain otherwise."""
    if sys.stdout.isatty():
        from bot.render.rich_console import console_of  # noqa: PLC0415 - slow to import, and not needed in a pipe

        render(report, console_of(sys.stdout), verbose)
    else:
        sys.stdout.write(plain(report, WIDTH, verbose, sys.stdout.encoding or "utf-8"))


def render(report: Report, console: Console, verbose: bool = False) -> None:
    """Print the report to the console, at its width and with the styles it supports."""
    from bot.render.rich_console import draw_lines  # noqa: PLC0415 - slow to import, and not needed for `plain`

    draw_lines(
        (
            ((_encodable(line.label, console.encoding), "label"), (_encodable(line.text, console.encoding), line.style))
            for line in lines(report, console.width, verbose)
        ),
        console,
    )


def plain(report: Report, width: int = WIDTH, verbose: bool = False, encoding: str = "utf-8") -> str:
    """Return the report as plain text for pipes and files, each line ended by a newline; `encoding` is the reader's."""
    return "".join(f"{_encodable(str(line), encoding)}\n" for line in lines(report, width, verbose))


def _encodable(text: str, encoding: str) -> str:
    try:
        return text.encode(encoding, "backslashreplace").decode(encoding)
    except LookupError:
        return text.encode("ascii", "backslashreplace").decode()


# --- the page --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Page:
    """The lines so far, wrapped to the width. All added text goes through `shown`."""

    width: int
    verbose: bool
    lines: list[OutputLine] = field(default_factory=list)

    def gap(self) -> None:
        if self.lines and str(self.lines[-1]):
            self.lines.append(OutputLine(""))

    def text(self, text: str, style: str = "", indent: int = 0, hang: int = 0) -> None:
        """Add a paragraph; `hang` is the extra indent of the lines after the first."""
        for number, part in enumerate(wrapped(shown(text), self.width - indent - hang)):
            self.lines.append(OutputLine(" " * (indent + (hang if number else 0)) + part, style=style))

    def field(self, label: str, text: str, style: str = "", indent: int = 0) -> None:
        """Add a paragraph with a label in the margin. Adds nothing for an empty text."""
        if not text:
            return
        for number, part in enumerate(wrapped(shown(text), self.width - _MARGIN - indent)):
            margin = f"   {shown(label)}" if number == 0 else ""
            self.lines.append(OutputLine(" " * indent + part, f"{margin:<{_MARGIN}}", style))

    def command(self, command: str) -> None:
        """Add a command to copy. It is never wrapped: a wrapped command does something else."""
        for part in command.splitlines():
            self.lines.append(OutputLine(f"{'':{_MARGIN}}$ {shown(part)}"))

    def quote(self, text: str, indent: int) -> None:
        """Add log lines, cut unless verbose."""
        parts = [part for part in text.splitlines() if part.strip()]
        kept = parts if self.verbose else parts[:_QUOTED_LINES]
        for part in kept:
            inset = min(len(part) - len(part.lstrip(" ")), 8)  # a traceback keeps its shape
            self.text(text_format.cut(shown(part), None if self.verbose else _QUOTED), indent=indent + inset, hang=2)
        if len(kept) < len(parts):
            self.text(f"... {many(len(parts) - len(kept), 'more line')}", "quiet", indent)

    def listed(self, items: Sequence[str], indent: int = 3) -> None:
        """Add one item per line, only the first few unless verbose."""
        kept = items if self.verbose else items[:_LISTED]
        for item in kept:
            self.text(f"- {item}", indent=indent, hang=2)
        if len(kept) < len(items):
            self.text(f"... and {len(items) - len(kept)} more", "quiet", indent)


def lines(report: Report, width: int = WIDTH, verbose: bool = False) -> list[OutputLine]:
    """The report as lines of at most `width` columns (40 to 100), except for commands, which are never wrapped."""
    page = _Page(min(max(width, _NARROWEST), _WIDEST), verbose)
    _decision(page, report)
    _about(page, report)
    if not report.diagnoses:
        _memory(page, report)
        _indicators(page, report)
    _diagnoses(page, report)
    if report.diagnoses:
        _memory(page, report)
    _stacks(page, report.hang.stacks)
    unsure = report.verdict != "fault" or all(item.band == "weak" for item in report.diagnoses)
    if report.diagnoses and (verbose or unsure):
        _indicators(page, report)
    _missing(page, report)
    _versions(page, report)
    return page.lines


# --- what to do ------------------------------------------------------------------------------------------------------


def _decision(page: _Page, report: Report) -> None:
    decision = report.decision
    page.text(f"{phrases.decided(report)} {phrases.owned(decision)}", "head")
    for exclusion in phrases.excluded(decision)[: None if page.verbose else _DIAGNOSES]:
        page.text(exclusion, indent=3, hang=2)
    page.text(phrases.reason(decision), indent=3, hang=2)


# --- what ran, and what happened -------------------------------------------------------------------------------------


def _about(page: _Page, report: Report) -> None:
    page.gap()
    page.text(report.summary)
    page.gap()
    job = report.job
    page.field("Job", phrases.job_facts(job))
    page.field("Before", phrases.attempts_before(job))
    if page.verbose:
        page.listed([_attempt(attempt) for attempt in job.attempts], _MARGIN)
    page.field("Phase", joined([report.phase, *phrases.progress(report)]))
    page.field("Hang", phrases.hang(report))
    if report.hang.lone is not None and report.hang.advice:
        page.text("To confirm, do one of these:", indent=_MARGIN)
        page.listed(report.hang.advice, _MARGIN)
    if page.verbose:
        page.listed(
            [f"{vote.probe}: {phrases.VOTES[vote.vote]}{tail(vote.detail)}" for vote in report.hang.votes], _MARGIN
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


def _diagnoses(page: _Page, report: Report) -> None:
    kept = report.diagnoses if page.verbose else report.diagnoses[:_DIAGNOSES]
    for place, diagnosis in enumerate(kept):
        page.gap()
        _diagnosis(page, diagnosis, _QUOTES[min(place, len(_QUOTES) - 1)], report.time_zone)
    rest = report.diagnoses[len(kept) :]
    if rest:
        page.gap()
        page.text(f"Also found: {few([f'{item.fault} ({item.band})' for item in rest])}", "quiet", hang=2)


def _diagnosis(page: _Page, diagnosis: Diagnosis, quotes: int, zone: TimeZone) -> None:
    role = "" if diagnosis.role == "root_cause" else f", {diagnosis.role}"
    page.text(f"{diagnosis.rank}. {diagnosis.title} ({diagnosis.fault}{role})", "title", hang=3)
    page.field("Confidence", phrases.confidence(diagnosis, None if page.verbose else 3))
    page.field("Suspects", phrases.suspected(diagnosis.suspects))
    page.field("Where", joined(phrases.place(diagnosis, zone)))
    if page.verbose:
        page.field("Cause", diagnosis.cause)
        page.field("Impact", diagnosis.impact)
    _evidence(page, diagnosis.evidence, quotes)
    explained = phrases.explains(diagnosis, None if page.verbose else _EXPLAINED)
    page.field("Also", f"explains: {explained}" if explained else "")
    _remedy(page, diagnosis)
    if page.verbose and diagnosis.known:
        page.field("Rule", f"{diagnosis.rule}, version {diagnosis.rule_version}, confidence {diagnosis.confidence:.2f}")


def _evidence(page: _Page, items: Sequence[EvidenceItem], quotes: int) -> None:
    kept = items if page.verbose else items[:quotes]
    for number, item in enumerate(kept):
        page.field("" if number else "Evidence", phrases.source(item), "quiet")
        page.quote(item.text, _MARGIN + 2)
    if len(kept) < len(items):
        page.field("", f"... and {len(items) - len(kept)} more", "quiet")


def _remedy(page: _Page, diagnosis: Diagnosis) -> None:
    for number, step in enumerate(diagnosis.remediation if page.verbose else diagnosis.remediation[:1]):
        label = "Then" if number else "Do first"
        page.field(label, f"{step.text} {phrases.grade(step)}", "alarm" if step.grade == "disruptive" else "")
        page.command(step.command or "")
        page.field("", f"Check: {step.verify}" if step.verify else "")


# --- where the ranks are ---------------------------------------------------------------------------------------------


def _stacks(page: _Page, branches: Sequence[StackBranch]) -> None:
    """The merged stacks, a line per branch: its ranks on the left, then its frames, outermost first."""
    if not branches:
        return
    seen = sum(branch.ranks for branch in branches if branch.depth == 0)
    page.gap()
    page.text(
        f"Where the {many(seen, 'rank')} {'is' if seen == 1 else 'are'} (merged stacks, outermost frame first):",
        "title",
    )
    kept = branches if page.verbose else branches[:_BRANCHES]
    for branch in kept:
        who = _inside(branch)
        frames = _path(branch.frames, page.verbose)
        more = f" ... and {many(branch.folded, 'nested branch', 'nested branches')}" if branch.folded else ""
        text = f"{branch.inside}: {frames}{more}" if len(who) > _WHO else f"{frames}{more}"
        page.field(
            who if len(who) <= _WHO else many(branch.ranks, "rank"), text, indent=2 * min(branch.depth, _DEEPEST)
        )
    if len(kept) < len(branches):
        page.field("", f"... and {many(len(branches) - len(kept), 'more branch', 'more branches')}", "quiet")


def _inside(branch: StackBranch) -> str:
    """Return the ranks of a branch; the ranks outside it where that is shorter."""
    if not branch.outside:
        return f"all {branch.ranks}" if branch.ranks > 1 else f"rank {branch.inside}"
    if len(branch.outside) < len(branch.inside):
        return f"not {branch.outside}"
    return f"{'rank' if branch.ranks == 1 else 'ranks'} {branch.inside}"


def _path(frames: Sequence[str], verbose: bool) -> str:
    """Return the frames of a branch: the first, the names of the last few before the end, and the last."""
    if verbose or len(frames) < 3:
        return " > ".join(frames)
    names = [frame.partition(" (")[0] for frame in frames[1:-1]]
    between = [name for name in names if not _WRAPPERS.search(name)]
    cut = ["..."] if len(between) > _BETWEEN else []
    return " > ".join([frames[0], *cut, *between[-_BETWEEN:], frames[-1]])


# --- what stands out, and what is missing ----------------------------------------------------------------------------


def _memory(page: _Page, report: Report) -> None:
    """Add the suggestions of past runs: as the first lead if no rule matches, else as a hint."""
    found = phrases.remembered(report)
    if found:
        page.gap()
        page.text(phrases.REMEMBERED, "title")
        page.listed(found)


def _indicators(page: _Page, report: Report) -> None:
    found = report.indicators
    groups = (
        ("Lines", found.events),
        (phrases.places(found), found.nodes),
        ("Stages", found.stages),
        ("Steps", found.iterations),
    )
    if phrases.nothing_stands_out(found):
        return
    page.gap()
    page.text(phrases.standing_out(report), "title")
    for label, items in groups:
        kept = items if page.verbose else items[:_LISTED]
        for number, item in enumerate(kept):
            _indicator(page, "" if number else label, item)
        if len(kept) < len(items):
            page.field("", f"... and {len(items) - len(kept)} more", "quiet")


def _indicator(page: _Page, label: str, item: Indicator) -> None:
    if item.evidence is None:
        page.field(label, f"{item.what}{tail(item.why)}")
        return
    page.field(label, f"{phrases.source(item.evidence)}{tail(item.why)}", "quiet")
    page.quote(item.evidence.text or item.what, _MARGIN + 2)


def _missing(page: _Page, report: Report) -> None:
    if not report.gaps and not report.not_evaluated:
        return
    page.gap()
    page.text(phrases.MISSING, "title")
    page.listed(phrases.folded(report.gaps))
    unjudged = phrases.not_judged(report.not_evaluated, None if page.verbose else _LISTED)
    if unjudged:
        page.text(f"- {unjudged}", indent=3, hang=2)


def _versions(page: _Page, report: Report) -> None:
    page.gap()
    page.text(phrases.versions(report), "quiet")
