"""The first line of an answer: the culprit and the cause, and how grave it is. It says nothing that the report does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from bot.render.completion import certainty
from bot.render.decisions import unfailed
from bot.render.excerpt import code_in, condensed, excerpt
from bot.render.phrases import group_text, source, suspected, suspects_label
from bot.render.text_format import few, shown
from kb.regex.lazy import lazy_compile
from kb.report import ONE_END, REPORTED, WAITING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kb.report import Diagnosis, Report, Suspect

Tone = Literal["alarm", "watch", "calm"]

_RANKS = ("Rank", "Ranks")  # titles of rules that say what one rank does, or several do, begin so
_PAST = frozenset({"called", "missed", "never", "ran", "timed"})  # the same for one rank and for several
_SUSPECT = "Suspect "
_ARTICLES = ("A", "An", "The")
_OTHER_DEVICES = lazy_compile(r"\b(?:Intel|XPU|NPU|TPU|Gaudi|Neuron|Ascend|AMD|HIP|ROCm|MPS)\b")  # than NVIDIA's
_WORD = lazy_compile(r"\w+")
_STEM = 5  # letters that forms of one word share
_FILLER = lazy_compile(
    r"a|an|the|this|that|these|it|its|of|to|in|on|at|by|for|with|from|and|or|is|are|was|were|be|been|has|have|had|can|cannot|could"
    r"|did|does|do|not|no|failed|fails|one|some|because|yet|usable|enough|use|used|rank|ranks|node|nodes|job|process|processes|run|ended"
    r"|died|reached|reach|raised|rejected|detected"
)
_KEY = 280  # characters of the line that shows the cause
_NODES = 3  # named in a headline


def headline(report: Report) -> str:
    """Return the culprit, as far as known, and the cause; the report's summary if no rule gives a cause."""
    first = report.diagnoses[0] if report.diagnoses else None
    if report.verdict != "fault" or first is None or not first.known:
        state = unfailed(report)
        return report.summary or f"{state[:1].upper()}{state[1:]}."
    who = culprit(first)
    if not who:
        return f"{first.title}{_elsewhere(first)}"
    subject, _, does = first.title.partition(" ")
    number = who.partition(" ")[0]
    if number in _RANKS and (subject == number or (subject in _RANKS and does.partition(" ")[0] in _PAST)):
        return f"{who} {does}"
    if who.startswith(_SUSPECT):  # the lines are those of others
        return f"{first.title} ({who[:1].lower()}{who[1:]})"
    article, _, rest = first.title.partition(" ")
    title = f"{article.lower()} {rest}" if article in _ARTICLES else first.title
    return f"{who}: {title}"


def class_tag(report: Report) -> str:
    """Return the class of the cause in brackets, to follow the headline; empty if the class has the name of another vendor's device."""
    first = report.diagnoses[0] if report.verdict in ("fault", "no_match") and report.diagnoses else None
    if first is None or not first.known or (first.fault.startswith("cuda_") and _OTHER_DEVICES.search(first.title)):
        return ""
    return f" [{first.fault}]"


def explanation(report: Report) -> str:
    """Return what the headline does not say: the summary, without a title at its beginning; empty if it says nothing more."""
    first = report.diagnoses[0] if report.diagnoses else None
    if report.verdict != "fault" or first is None or not first.known:
        return ""
    summary = first.summary if report.summary.startswith(first.title) else report.summary
    return summary if _stems(summary) - _stems(headline(report)) else ""


def _stems(text: str) -> set[str]:
    """Return the beginnings of the words that say something, and all numbers."""
    words = [word for word in _WORD.findall(text.lower()) if not _FILLER.fullmatch(word)]
    return {word[:_STEM] if word.isalpha() else word for word in words}


def key_lines(report: Report) -> list[tuple[str, str]]:
    """Return where the line is that shows the cause best, and its text, cut; of a series, its first and last line.

    Empty if no log line shows it. Of a block, the last line is taken: of an exception, that is its message.
    """
    first = report.diagnoses[0] if report.verdict == "fault" and report.diagnoses else None
    items = [item for item in first.evidence if item.text.strip()] if first is not None else []
    kept = items[:1] if not items or items[0].kind != "series" else [items[0], *items[1:][-1:]]
    return [
        (source(item), excerpt(line, code_in(line, _KEY), _KEY)[0])
        for item in kept
        for line in [condensed(shown(_told_by(item.text.strip().splitlines())))]
        if item.line is not None or item.offset is not None
    ]


def _told_by(lines: Sequence[str]) -> str:
    """Return the line that tells, of a block the last one; what only announces the next lines is before them."""
    return " ".join(line.strip() for line in lines) if lines[0].rstrip().endswith(":") else lines[-1].strip()


def culprit(diagnosis: Diagnosis) -> str:
    """Return the suspects of the leading kind: `Rank 5 on node-b`. Empty for the whole job, and if nobody is accused.

    If the quoted lines are those of other ranks, the suspects are called so.
    """
    suspects = diagnosis.suspects
    group = [suspect for suspect in suspects if suspect.kind == suspects[0].kind and _is_accused(suspect)]
    if not group or group[0].kind == "job":
        return ""
    if all(suspect.why == ONE_END for suspect in group):
        return _connection([suspect.node or f"rank {suspect.rank}" for suspect in group])
    if group[0].kind == "node":
        return few(list(dict.fromkeys(suspect.node for suspect in group if suspect.node)), limit=_NODES)
    if group[0].kind == "gpu":
        return few(list(dict.fromkeys(_gpu(suspect) for suspect in group)), limit=_NODES)
    who = group_text(group, _NODES)
    if group[0].kind == "rank" and _quotes_others(diagnosis):
        return f"{_SUSPECT}{who}"
    return f"{who[:1].upper()}{who[1:]}"


def _elsewhere(diagnosis: Diagnosis) -> str:
    """Return who ran into it: ` (reported by rank 3 on node-b)`. Empty if somebody is accused, or if nobody reports it."""
    group = [suspect for suspect in diagnosis.suspects if suspect.kind == diagnosis.suspects[0].kind]
    if not group or any(suspect.why != REPORTED for suspect in diagnosis.suspects):
        return ""
    more = f" and {len(group) - _NODES} more" if len(group) > _NODES else ""
    return f" (reported by {group_text(group[:_NODES], _NODES)}{more})"


def _connection(ends: list[str]) -> str:
    """Return both ends of a connection; the one that is unknown is the process that reports the other."""
    return f"Between {ends[0]} and {ends[1] if len(ends) > 1 else 'the peer that reports it'}"


def _gpu(suspect: Suspect) -> str:
    """Return a GPU by one of its identifiers."""
    gpu = suspect.gpu
    name = "" if gpu is None else str(gpu.index) if gpu.index is not None else gpu.pci or gpu.uuid or ""
    return f"{f'GPU {name}'.strip()}{f' on {suspect.node}' if suspect.node else ''}"


def _is_accused(suspect: Suspect) -> bool:
    if suspect.why in (WAITING, REPORTED):
        return False
    numbered = suspect.rank is not None or suspect.local_rank is not None
    return numbered if suspect.kind == "rank" else bool(suspect.node or suspect.gpu)


def _quotes_others(diagnosis: Diagnosis) -> bool:
    """Whether no quoted line is of a suspected rank; of a symptom, whether the first is not."""
    writers = [item.rank for item in diagnosis.evidence if item.rank is not None]
    writers = writers[:1] if diagnosis.role == "symptom" else writers
    return bool(writers) and {suspect.rank for suspect in diagnosis.suspects}.isdisjoint(writers)


def at_fault(report: Report) -> list[tuple[str, str]]:
    """Return what or who is at fault, and how sure that is, each with its label; of a completed run, how sure its end is."""
    if sure := certainty(report):
        return [("Confidence", sure)]
    first = report.diagnoses[0] if report.verdict in ("fault", "no_match") and report.diagnoses else None
    if first is None:
        return []
    culprit = first.lies_in or suspected(first.suspects)
    label = "At fault" if first.lies_in else suspects_label(first)
    return [*([(label, culprit)] if culprit else []), ("Confidence", first.band)]


def tone(report: Report) -> Tone:
    """Return how grave the answer is: the job failed or hangs; it is slower, unclear or over; nothing is wrong."""
    if report.verdict == "no_fault":
        return "watch" if report.hang.called or report.hang.suspected else "calm"
    over = report.phase in ("degraded", "stopped", "completed") or report.decision.advice == "none"
    return "watch" if over or report.verdict != "fault" else "alarm"
