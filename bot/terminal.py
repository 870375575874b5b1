"""A report as text for a terminal: what a tired person understands in ten seconds, the decision first.

`plain` gives the text and needs no library; `render` prints the same lines with styles to a rich console. All text of
a report goes through `shown`, so nothing in a log line can move the cursor, hide or reorder text. Own words are ASCII.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from bot.reportjson import iso
from kb.report import ranges

if TYPE_CHECKING:
    from rich.console import Console

    from kb.model import Attempt, Gap
    from kb.report import Decision, Diagnosis, EvidenceItem, Indicator, Report, StackBranch, Suspect

WIDTH = 80
_WIDEST = 100  # longer lines are hard to read
_NARROWEST = 40
_MARGIN = 14  # columns of the labels
_DIAGNOSES = 3
_QUOTES = (5, 2, 2)  # evidence items shown of the first, second and third diagnosis
_QUOTED = 300  # characters shown of one line of evidence
_QUOTED_LINES = 6  # lines shown of one item of evidence
_LISTED = 5  # gaps, indicators of one kind
_BRANCHES = 8  # of merged stacks
_BETWEEN = 3  # frames named between the first and the last of a branch
_WRAPPERS = re.compile(
    r"(?:^|\.)(?:wrapper|wrapped|inner|_fn|<lambda>|decorate_context|_call_impl|_wrapped_call_impl|\.\.\.)$"
)
_WHO = _MARGIN - 4  # columns of the margin that name who is in a branch
_DEEPEST = 6  # branches further in are not indented more

_STYLES = {"head": "bold", "title": "bold", "label": "dim", "quiet": "dim", "alarm": "yellow"}
_COLOUR = re.compile("\x1b\\[[0-9;:]{0,32}m")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of output: a label in the margin, text, and how it is printed (a key of the styles, empty for plain)."""

    text: str
    label: str = ""
    style: str = ""

    def __str__(self) -> str:
        return self.label + self.text


def show(report: Report, verbose: bool = False) -> None:
    """Print the report to stdout: with styles where that is a terminal, as plain text where it is not."""
    if sys.stdout.isatty():
        from rich.console import Console  # noqa: PLC0415 - slow to import, and not needed in a pipe

        render(report, Console(), verbose)
    else:
        sys.stdout.write(plain(report, WIDTH, verbose, sys.stdout.encoding or "utf-8"))


def render(report: Report, console: Console, verbose: bool = False) -> None:
    """Print the report to the console, in its width and, where it has them, its styles."""
    from rich.text import Text  # noqa: PLC0415 - slow to import, and not needed for `plain`

    for line in lines(report, console.width, verbose):
        text = Text()
        for part, style in ((line.label, _STYLES["label"]), (line.text, _STYLES.get(line.style, ""))):
            text.append(_encodable(part, console.encoding), style)
        console.print(text, soft_wrap=True, highlight=False)


def plain(report: Report, width: int = WIDTH, verbose: bool = False, encoding: str = "utf-8") -> str:
    """The report as text without styles, for pipes and files, each line ended; `encoding` is what the reader takes."""
    return "".join(f"{_encodable(str(line), encoding)}\n" for line in lines(report, width, verbose))


def shown(text: str) -> str:
    """The text with everything escaped that is not seen as it is: controls, bidi marks, zero-width characters.

    Colour sequences are dropped; tabs, line ends and odd spaces become spaces.
    """
    return "".join(map(_visible, _COLOUR.sub("", text).rstrip("\r\n")))


def _visible(character: str) -> str:
    if character.isprintable():
        return character
    if character in "\t\n" or unicodedata.category(character) == "Zs":
        return " "
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _encodable(text: str, encoding: str) -> str:
    try:
        return text.encode(encoding, "backslashreplace").decode(encoding)
    except LookupError:
        return text.encode("ascii", "backslashreplace").decode()


# --- the page --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Page:
    """Lines as they come about, wrapped to the width. Everything added goes through `shown`."""

    width: int
    verbose: bool
    lines: list[Line] = field(default_factory=list)

    def gap(self) -> None:
        if self.lines and str(self.lines[-1]):
            self.lines.append(Line(""))

    def text(self, text: str, style: str = "", indent: int = 0, hang: int = 0) -> None:
        """A paragraph; `hang` is what the lines after the first are indented further."""
        for number, part in enumerate(_wrapped(shown(text), self.width - indent - hang)):
            self.lines.append(Line(" " * (indent + (hang if number else 0)) + part, style=style))

    def field(self, label: str, text: str, style: str = "", indent: int = 0) -> None:
        """A labelled paragraph, its text indented further. Nothing where the text is empty."""
        if not text:
            return
        for number, part in enumerate(_wrapped(shown(text), self.width - _MARGIN - indent)):
            margin = f"   {shown(label)}" if number == 0 else ""
            self.lines.append(Line(" " * indent + part, f"{margin:<{_MARGIN}}", style))

    def command(self, command: str) -> None:
        """A command to copy: never broken, as a broken one does something else."""
        for part in command.splitlines():
            self.lines.append(Line(f"{'':{_MARGIN}}$ {shown(part)}"))

    def quote(self, text: str, indent: int) -> None:
        """Lines of a log, cut unless all is asked for."""
        parts = [part for part in text.splitlines() if part.strip()]
        kept = parts if self.verbose else parts[:_QUOTED_LINES]
        for part in kept:
            inset = min(len(part) - len(part.lstrip(" ")), 8)  # a traceback keeps its shape
            self.text(_cut(shown(part), None if self.verbose else _QUOTED), indent=indent + inset, hang=2)
        if len(kept) < len(parts):
            self.text(f"... {_many(len(parts) - len(kept), 'more line')}", "quiet", indent)

    def listed(self, items: Sequence[str], indent: int = 3) -> None:
        """One item a line, the first few unless all is asked for."""
        kept = items if self.verbose else items[:_LISTED]
        for item in kept:
            self.text(f"- {item}", indent=indent, hang=2)
        if len(kept) < len(items):
            self.text(f"... and {len(items) - len(kept)} more", "quiet", indent)


def lines(report: Report, width: int = WIDTH, verbose: bool = False) -> list[Line]:
    """The report as lines of at most `width` columns (40 to 100), but for commands, which are never broken."""
    page = _Page(min(max(width, _NARROWEST), _WIDEST), verbose)
    _decision(page, report)
    _about(page, report)
    if report.verdict != "fault":
        _indicators(page, report)
    _diagnoses(page, report)
    _stacks(page, report.hang.stacks)
    if report.verdict == "fault" and (verbose or all(item.band == "weak" for item in report.diagnoses)):
        _indicators(page, report)
    _not_seen(page, report)
    _versions(page, report)
    return page.lines


# --- what to do ------------------------------------------------------------------------------------------------------

_ADVICE = {
    "requeue": "Requeue as it is",
    "requeue_without": "Requeue",
    "restart_in_place": "Restart in place, on the same nodes",
    "resubmit": "Submit anew with the change named below",
    "fix_first": "Do not requeue: mend the cause first",
    "wait": "Do not requeue yet: wait until the outside trouble is over",
}
_NO_ADVICE = {
    "fault": "No advice",
    "no_fault": "Nothing to do: nothing failed",
    "no_match": "No advice: something failed, and no rule says what",
    "insufficient_evidence": "No advice: not enough was seen to say what happened",
}


def _decision(page: _Page, report: Report) -> None:
    decision = report.decision
    head = _ADVICE.get(decision.advice) or _NO_ADVICE.get(report.verdict, "No advice")
    if report.verdict == "no_fault" and report.hang.lone is not None:
        head = "Look closer and stop nothing yet: it is suspected to hang, and that is not sure"
    if decision.exclude:
        bare = decision.advice.startswith("requeue") or decision.advice in ("restart_in_place", "resubmit")
        head += f"{' ' if bare else '; leave out '}{'without ' if bare else ''}{_few(_names(decision))}"
    page.text(f"{head}{_price(decision)}", "head")
    for exclusion in decision.exclude[: None if page.verbose else _DIAGNOSES]:
        whom = "for the whole cluster" if exclusion.scope == "cluster" else "for this job only"
        page.text(f"{exclusion.node}, {whom}{_tail(exclusion.why)}", indent=3, hang=2)
    if page.verbose or not report.diagnoses:
        page.text(decision.why, indent=3, hang=2)


def _names(decision: Decision) -> list[str]:
    return list(dict.fromkeys(exclusion.node for exclusion in decision.exclude))


def _price(decision: Decision) -> str:
    """From where, what it costs, who owns it: the rest of the first line."""
    price = "" if decision.from_checkpoint is None else f", from checkpoint {decision.from_checkpoint}"
    lost = [] if decision.steps_lost is None else [f"{_many(decision.steps_lost, 'step')} lost"]
    if decision.gpu_hours_lost is not None:
        lost.append(f"{decision.gpu_hours_lost:.1f} GPU hours")
    if lost:
        price += f"; {lost[0]}" + (f" ({lost[1]})" if len(lost) > 1 else "")
    owner = "" if decision.owner in ("none", "") else f" Owner: {decision.owner}."
    return f"{price}.{owner}"


# --- what ran, and what happened -------------------------------------------------------------------------------------


def _about(page: _Page, report: Report) -> None:
    page.gap()
    page.text(report.summary)
    page.gap()
    job = report.job
    parts = [
        job.name or "",
        f"job {job.id}" if job.id else "",
        f"attempt {job.attempt}" if job.attempt is not None else "",
        _many(job.nodes, "node") if job.nodes is not None else "",
        _many(job.gpus, "GPU") if job.gpus is not None else "",
        f"of {job.owner}" if job.owner else "",
        f"state {job.state}" if job.state else "",
    ]
    page.field("Job", _joined(parts))
    before = job.attempts[:-1]
    if before:
        ends = Counter((one.state or "of unknown end").lower() for one in before)
        page.field(
            "Before",
            f"{_many(len(before), 'earlier attempt')}: {_few([f'{count} {end}' for end, count in ends.items()])}",
        )
    if page.verbose:
        page.listed([_attempt(one) for one in job.attempts], _MARGIN)
    page.field("Phase", _joined([report.phase, *_progress(report)]))
    page.field("Hang", _hang(report))
    if report.hang.lone is not None and report.hang.advice:
        page.text("To be sure, one of these:", indent=_MARGIN)
        page.listed(report.hang.advice, _MARGIN)
    if page.verbose:
        page.listed([f"{vote.probe}: {_VOTES[vote.vote]}{_tail(vote.detail)}" for vote in report.hang.votes], _MARGIN)


def _attempt(one: Attempt) -> str:
    """A run with its times: how long it waited, how long it took to start, how long it ran."""
    steps = (
        ("queued", one.queued), ("scheduled", one.scheduled), ("initialised", one.initialised),
        ("first iteration", one.first_iterated), ("last iteration", one.last_iterated), ("stopped", one.stopped),
    )  # fmt: skip
    times = [f"{word} {iso(round(when))}" for word, when in steps if when is not None]
    end = _joined(
        [
            one.state or "",
            one.reason,
            f"exit {one.exit_code}" if one.exit_code else "",
            f"signal {one.signal}" if one.signal else "",
        ]
    )
    return f"attempt {one.number}: {_joined([end, *times])}"


def _progress(report: Report) -> Iterator[str]:
    progress = report.progress
    if progress.stage:
        yield f"stage {progress.stage}"
    if progress.last_iteration is not None:
        total = f" of {progress.total_iterations}" if progress.total_iterations else ""
        yield f"last iteration {progress.last_iteration}{total}{_at(progress.last_progress)}"
    elif progress.last_progress is not None:
        yield f"last progress{_at(progress.last_progress)}"
    if progress.last_checkpoint is not None:
        yield f"last checkpoint {progress.last_checkpoint}"


_VOTES = {"yes": "yes", "no": "no", "not_observable": "not observable"}


def _hang(report: Report) -> str:
    lone = report.hang.lone is not None
    if not report.hang.votes or not (report.hang.called or lone or report.phase == "hung"):
        return ""
    head = "called" if report.hang.called else "suspected" if lone else "not called"
    votes = [f"{vote.probe} {_VOTES[vote.vote]}" for vote in report.hang.votes]
    return f"{head}: {', '.join(votes)}"


# --- why -------------------------------------------------------------------------------------------------------------


def _diagnoses(page: _Page, report: Report) -> None:
    kept = report.diagnoses if page.verbose else report.diagnoses[:_DIAGNOSES]
    if kept and report.verdict != "fault":
        page.gap()
        page.text("Nearest known faults:", "title")
    for place, diagnosis in enumerate(kept):
        page.gap()
        _diagnosis(page, diagnosis, _QUOTES[min(place, len(_QUOTES) - 1)])
    rest = report.diagnoses[len(kept) :]
    if rest:
        page.gap()
        page.text(f"Also found: {_few([f'{item.fault} ({item.band})' for item in rest])}", "quiet", hang=2)


def _diagnosis(page: _Page, diagnosis: Diagnosis, quotes: int) -> None:
    role = "" if diagnosis.role == "root_cause" else f", {diagnosis.role}"
    page.text(f"{diagnosis.rank}. {diagnosis.title} ({diagnosis.fault}{role})", "title", hang=3)
    reasons = diagnosis.reasons if page.verbose else diagnosis.reasons[:3]
    page.field("Confidence", f"{diagnosis.band}{_tail('; '.join(reasons))}")
    page.field("Suspects", _suspects(diagnosis.suspects))
    page.field("Where", _joined(_place(diagnosis)))
    if page.verbose:
        page.field("Cause", diagnosis.cause)
        page.field("Impact", diagnosis.impact)
    _evidence(page, diagnosis.evidence, quotes)
    page.field("Explains", _explains(diagnosis, page.verbose))
    _remedy(page, diagnosis)
    if page.verbose:
        page.field("Rule", f"{diagnosis.rule}, version {diagnosis.rule_version}, confidence {diagnosis.confidence:.2f}")


def _place(diagnosis: Diagnosis) -> Iterator[str]:
    if diagnosis.stage:
        yield f"stage {diagnosis.stage}"
    if diagnosis.iteration is not None:
        yield f"iteration {diagnosis.iteration}"
    if diagnosis.first_seen is not None:
        yield f"first seen {_clock(diagnosis.first_seen)}"


def _evidence(page: _Page, items: Sequence[EvidenceItem], quotes: int) -> None:
    kept = items if page.verbose else items[:quotes]
    for number, item in enumerate(kept):
        page.field("" if number else "Evidence", _source(item), "quiet")
        page.quote(item.text, _MARGIN + 2)
    if len(kept) < len(items):
        page.field("", f"... and {len(items) - len(kept)} more", "quiet")


def _source(item: EvidenceItem) -> str:
    line = f":{item.line}" if item.line is not None else ""
    at = f" at byte {item.offset}" if item.line is None and item.offset is not None else ""
    who = _joined([f"rank {item.rank}" if item.rank is not None else "", item.node or ""])
    return f"{item.source}{line}{at}{f' ({who})' if who else ''}"


def _explains(diagnosis: Diagnosis, verbose: bool) -> str:
    folded = [
        f"{item.fault} x{item.count}{f' on ranks {item.ranks}' if item.ranks else ''}" for item in diagnosis.explains
    ]
    return "; ".join(folded) if verbose else _few(folded, "; ", 3)


_GRADES = {
    "look": "changes nothing",
    "safe": "touches this job only",
    "disruptive": "others feel it",
}


def _remedy(page: _Page, diagnosis: Diagnosis) -> None:
    for number, step in enumerate(diagnosis.remediation if page.verbose else diagnosis.remediation[:1]):
        label = "Then" if number else "Do first"
        grade = f"[{step.grade}: {_GRADES.get(step.grade, '')}]"
        page.field(label, f"{step.text} {grade}", "alarm" if step.grade == "disruptive" else "")
        page.command(step.command or "")
        page.field("", f"Check: {step.verify}" if step.verify else "")


# --- where the ranks stand -------------------------------------------------------------------------------------------


def _stacks(page: _Page, branches: Sequence[StackBranch]) -> None:
    """The merged stacks: a line a branch, who is in it at the left, its frames outermost first."""
    if not branches:
        return
    seen = sum(branch.ranks for branch in branches if branch.depth == 0)
    page.gap()
    page.text(f"Where the {_many(seen, 'rank')} stand (merged stacks, outermost frame first):", "title")
    kept = branches if page.verbose else branches[:_BRANCHES]
    for branch in kept:
        who = _inside(branch)
        frames = _path(branch.frames, page.verbose)
        more = f" ... and {_many(branch.folded, 'branch', 'branches')} further in" if branch.folded else ""
        text = f"{branch.inside}: {frames}{more}" if len(who) > _WHO else f"{frames}{more}"
        page.field(
            who if len(who) <= _WHO else _many(branch.ranks, "rank"), text, indent=2 * min(branch.depth, _DEEPEST)
        )
    if len(kept) < len(branches):
        page.field("", f"... and {_many(len(branches) - len(kept), 'more branch', 'more branches')}", "quiet")


def _inside(branch: StackBranch) -> str:
    """The ranks of a branch, by those that are not in it where these are fewer to name."""
    if not branch.outside:
        return f"all {branch.ranks}" if branch.ranks > 1 else f"rank {branch.inside}"
    if len(branch.outside) < len(branch.inside):
        return f"not {branch.outside}"
    return f"{'rank' if branch.ranks == 1 else 'ranks'} {branch.inside}"


def _path(frames: Sequence[str], verbose: bool) -> str:
    """The frames of a branch: where it begins, the names of the last ones before it ends, and where it ends."""
    if verbose or len(frames) < 3:
        return " > ".join(frames)
    names = [frame.partition(" (")[0] for frame in frames[1:-1]]
    between = [name for name in names if not _WRAPPERS.search(name)]
    cut = ["..."] if len(between) > _BETWEEN else []
    return " > ".join([frames[0], *cut, *between[-_BETWEEN:], frames[-1]])


# --- who -------------------------------------------------------------------------------------------------------------


def _suspects(suspects: Sequence[Suspect]) -> str:
    """Suspects by kind: ranks as ranges with their nodes, the rest by name, each kind with the first reason."""
    kinds = dict.fromkeys(suspect.kind for suspect in suspects)
    groups = [[suspect for suspect in suspects if suspect.kind == kind] for kind in kinds]
    return "; ".join(f"{_group(group)}{_reason(group)}" for group in groups)


def _group(group: Sequence[Suspect]) -> str:
    kind = group[0].kind
    if kind == "rank":
        return _ranks(group)
    if kind == "job":
        return "the job as a whole"
    return _few(list(dict.fromkeys(f"{kind} {_thing(suspect)}".rstrip() for suspect in group)))


def _ranks(group: Sequence[Suspect]) -> str:
    ranks = sorted({suspect.rank for suspect in group if suspect.rank is not None})
    nodes = list(dict.fromkeys(suspect.node for suspect in group if suspect.node))
    text = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranges(ranks)}" if ranks else "a rank"
    if len(group) == 1 and group[0].local_rank is not None:
        text += f" (local rank {group[0].local_rank})"
    pods = f" in pod {group[0].pod}" if len(group) == 1 and group[0].pod else ""
    return f"{text}{f' on {_few(nodes)}' if nodes else ''}{pods}"


def _thing(suspect: Suspect) -> str:
    """A node, GPU, port or switch by its names."""
    if suspect.gpu is None:
        return suspect.node or ""
    gpu = suspect.gpu
    names = [name for name in (gpu.pci, gpu.uuid) if name]
    index = str(gpu.index) if gpu.index is not None else ""
    other = (f"({', '.join(names)})" if index else ", ".join(names)) if names else ""
    text = " ".join(part for part in (index, other) if part)
    return f"{text}{f' of {suspect.node}' if suspect.node else ''}"


def _reason(group: Sequence[Suspect]) -> str:
    return f" ({group[0].why})" if group[0].why else ""


# --- what stands out, and what was not seen --------------------------------------------------------------------------


def _indicators(page: _Page, report: Report) -> None:
    found = report.indicators
    groups = (("Lines", found.events), ("Nodes", found.nodes), ("Stages", found.stages), ("Steps", found.iterations))
    if not any(items for _, items in groups):
        return
    page.gap()
    named = "No rule says what failed; these stand out:" if report.verdict == "no_match" else "These stand out:"
    page.text(named, "title")
    for label, items in groups:
        kept = items if page.verbose else items[:_LISTED]
        for number, item in enumerate(kept):
            _indicator(page, "" if number else label, item)
        if len(kept) < len(items):
            page.field("", f"... and {len(items) - len(kept)} more", "quiet")


def _indicator(page: _Page, label: str, item: Indicator) -> None:
    if item.evidence is None:
        page.field(label, f"{item.what}{_tail(item.why)}")
        return
    page.field(label, f"{_source(item.evidence)}{_tail(item.why)}", "quiet")
    page.quote(item.evidence.text or item.what, _MARGIN + 2)


def _not_seen(page: _Page, report: Report) -> None:
    if not report.gaps and not report.not_evaluated:
        return
    page.gap()
    needed = report.verdict in ("insufficient_evidence", "no_match")
    page.text("Not seen, and would help:" if needed else "Not seen:", "title")
    page.listed(_folded(report.gaps))
    needs = Counter(item.needs for item in report.not_evaluated).most_common()
    if needs:
        by_need = _few([f"{need} ({count})" for need, count in needs], limit=None if page.verbose else _LISTED)
        page.text(f"- {_many(len(report.not_evaluated), 'rule')} not judged, for want of: {by_need}", indent=3, hang=2)


def _folded(gaps: Sequence[Gap]) -> list[str]:
    """The gaps in their order, those that differ in their source alone as one line."""
    alike: dict[Gap, list[str]] = {}
    for gap in gaps:
        alike.setdefault(replace(gap, source=""), []).append(gap.source)
    return [_missing(replace(gap, source=_few(sources))) for gap, sources in alike.items()]


def _missing(gap: Gap) -> str:
    scope = f" ({gap.scope})" if gap.scope else ""
    amount = f", {gap.got} of {gap.asked}" if gap.got and gap.asked else ""
    effect = f"; cannot tell: {gap.rules_out}" if gap.rules_out else ""
    return f"{gap.source}{scope}: {gap.reason}{amount}{effect}"


def _versions(page: _Page, report: Report) -> None:
    page.gap()
    versions = report.versions
    read = f"{_many(report.streams, 'source')}, {_size(report.bytes_read)} read" if report.streams else ""
    page.text(_joined([f"Report {report.id[:12]}", f"rulebook {versions.rulebook}", read]), "quiet")


# --- words -----------------------------------------------------------------------------------------------------------


def _wrapped(text: str, width: int) -> Iterator[str]:
    """The text in lines of at most `width` columns, broken at spaces; a word that is too long is broken anywhere.

    A character counts as one column, as two where East Asian width says so. Marks that take no room count as one: a
    pile of them is then a long line and not an endless one.
    """
    line, used = "", 0
    for word in text.split():
        size = _columns(word)
        if line and used + 1 + size <= width:
            line, used = f"{line} {word}", used + 1 + size
            continue
        if line:
            yield line
        while size > width:
            head = _head(word, width)
            yield head
            word = word[len(head) :]  # noqa: PLW2901 - the rest of the word is the word now
            size = _columns(word)
        line, used = word, size
    if line:
        yield line


def _columns(text: str) -> int:
    return len(text) if text.isascii() else sum(map(_column, text))


def _column(character: str) -> int:
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _head(word: str, width: int) -> str:
    used = 0
    for place, character in enumerate(word):
        used += _column(character)
        if used > width:
            return word[:place]
    return word


def _cut(text: str, limit: int | None) -> str:
    if limit is None or len(text) <= limit:
        return text
    return f"{text[:limit]} ... ({len(text) - limit} more characters)"


def _few(items: Sequence[str], glue: str = ", ", limit: int | None = 4) -> str:
    kept = items[:limit]
    rest = f" and {len(items) - len(kept)} more" if len(kept) < len(items) else ""
    return f"{glue.join(kept)}{rest}"


def _joined(parts: Iterable[str]) -> str:
    return ", ".join(part for part in parts if part)


def _tail(reason: str) -> str:
    return f": {reason}" if reason else ""


def _many(count: int, thing: str, things: str = "") -> str:
    return f"{count} {thing if count == 1 else things or thing + 's'}"


def _size(count: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


def _at(time: float | None) -> str:
    return f" at {_clock(time)}" if time is not None else ""


def _clock(time: float) -> str:
    """A time to the second, UTC."""
    text = iso(time)
    return f"{text[:10]} {text[11:19]}Z" if text else "an unknown time"
