"""What an answer would do to the one who believes it: failures called healthy, symptoms in place of their cause, harmful advice.

A wrong answer is worse than none, so these are counted beside right and wrong, each with the 95 % Wilson interval.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TypedDict

from bot.authoring.cases import LabelledCase
from kb.digest.statistics import wilson
from kb.regex.lazy import lazy_compile
from kb.report import Report
from kb.rulebase.rule import FaultClass

# Running a program again cures what any of these would cure: the more a restart changes, the more it cures. Other nodes
# cure what the same nodes would; time cures what a repeat at once would. Nothing here cures what needs fix_first alone.
CURED_BY: Mapping[str, frozenset[str]] = {
    "restart_in_place": frozenset({"restart_in_place"}),
    "requeue": frozenset({"restart_in_place", "requeue"}),
    "wait": frozenset({"restart_in_place", "requeue", "wait"}),
    "requeue_without": frozenset({"restart_in_place", "requeue", "requeue_without"}),
    "resubmit": frozenset({"restart_in_place", "requeue", "requeue_without", "resubmit"}),
}

_FUNCTION = lazy_compile(r"^((?:[0-9a-f]{1,8}:)?[0-9a-f]{2}:[0-9a-f]{2})\.[0-9a-f]$")  # of a PCI address


@dataclass(frozen=True, slots=True)
class Harm:
    """What an answer does, each None if the case does not count for it.

    called_healthy: a failure got the verdict no_fault.
    symptom_led: a symptom came first while the cause has lines in the logs and none of them was quoted.
    repeats: following the advice would repeat a failure that repeats.
    stops_healthy: the advice would stop a healthy job, or run it again.
    harmful: one of the last two.
    advice_accepted: an expert would accept the advice.
    abstained: a failure got neither a fault nor the unknown failure that it is.
    needle_quoted: the first diagnosis quotes a decisive line.
    rank_first: the first rank among the suspects is the one at fault, if the case names a single one; for a node or GPU,
        the first suspect is on it.
    end_recognized: a healthy run whose logs prove its end got the verdict no_fault.
    """

    called_healthy: bool | None = None
    symptom_led: bool | None = None
    repeats: bool | None = None
    stops_healthy: bool | None = None
    harmful: bool | None = None
    advice_accepted: bool | None = None
    abstained: bool | None = None
    needle_quoted: bool | None = None
    rank_first: bool | None = None
    end_recognized: bool | None = None


class Share(TypedDict):
    """`count` of `n` with the ends of the 95 % Wilson interval; `share` is 0, and the interval 0 to 1, if n is 0."""

    count: int
    n: int
    share: float
    low: float
    high: float


TITLES = {
    "called_healthy": "failures called healthy",
    "symptom_led": "symptom led over its cause",
    "repeats": "advice repeats the failure",
    "stops_healthy": "advice stops a healthy job",
    "harmful": "harmful advice",
    "advice_accepted": "advice accepted",
    "abstained": "abstained on a failure",
    "needle_quoted": "decisive line quoted",
    "rank_first": "rank at fault named first",
    "end_recognized": "proven end recognized",
}
WORSE = ("called_healthy", "symptom_led", "repeats", "stops_healthy", "abstained")  # each of these is listed by case


def harm(
    case: LabelledCase,
    report: Report,
    faults: Mapping[str, FaultClass],
    *,
    right: bool,
    needle: bool | None,
    own_lines: Callable[[], bool],
) -> Harm:
    """Judge an answer. `right`: top-1; `needle`: whether a decisive line is quoted; `own_lines`: whether the logs hold any."""
    healthy, advice = case.label == "healthy", report.decision.advice
    accepted = advice in case.advice if case.advice else None
    if healthy:
        stops = None if accepted is None else advice != "none" and not accepted
        ended = report.verdict == "no_fault" if case.proven_end else None
        return Harm(stops_healthy=stops, harmful=stops, advice_accepted=accepted, end_recognized=ended)
    repeats = None if accepted is None else advice in CURED_BY and not CURED_BY[advice] & set(case.advice)
    return Harm(
        called_healthy=report.verdict == "no_fault" and "healthy" not in case.accept,
        symptom_led=_symptom_led(case, report, faults, needle, own_lines) and not right
        if _is_cause(case, faults)
        else None,
        repeats=repeats,
        harmful=repeats,
        advice_accepted=accepted,
        abstained=report.verdict in ("insufficient_evidence", "no_match") and not right,
        needle_quoted=needle,
        rank_first=_rank_first(case, report),
    )


def _is_cause(case: LabelledCase, faults: Mapping[str, FaultClass]) -> bool:
    """Whether the label is a cause, known or not, with lines or ranks of its own."""
    known = faults.get(case.label)
    cause = case.label == "unknown" or (known is not None and not known.symptom)
    return cause and bool(case.needle or case.ranks)


def _symptom_led(
    case: LabelledCase,
    report: Report,
    faults: Mapping[str, FaultClass],
    needle: bool | None,
    own_lines: Callable[[], bool],
) -> bool:
    first = report.diagnoses[0] if report.diagnoses else None
    if first is None or first.fault == "unknown" or not (first.fault in faults and faults[first.fault].symptom):
        return False
    quoted = needle if case.needle else any(item.rank in case.ranks for item in first.evidence)
    return not quoted and own_lines()


def _rank_first(case: LabelledCase, report: Report) -> bool | None:
    if len(case.ranks) != 1:  # what several share is often what all do, and then naming none is right
        return None
    suspects = report.diagnoses[0].suspects if report.diagnoses else ()
    (wanted,) = case.ranks
    if isinstance(wanted, int):
        numbers = (suspect.local_rank if suspect.rank is None else suspect.rank for suspect in suspects)
        return next((number for number in numbers if number is not None), None) == wanted
    first = suspects[0] if suspects else None
    said = (first.node, first.gpu.pci if first.gpu else None) if first else ()
    return _place_name(wanted) in {_place_name(name) for name in said if name}


def _place_name(name: str) -> str:
    """Return a node's name or a GPU's PCI address in one spelling: `PCI:0000:CB:00.0` is `0000:cb:00`."""
    return _FUNCTION.sub(r"\1", name.lower().removeprefix("pci:"))


def shares(harms: Sequence[Harm]) -> dict[str, Share]:
    """How often each holds, of the cases that count for it."""
    return {field.name: _share([getattr(item, field.name) for item in harms]) for field in fields(Harm)}


def _share(values: Sequence[bool | None]) -> Share:
    known = [value for value in values if value is not None]
    count, n = sum(known), len(known)
    low, high = wilson(count, n)
    return Share(count=count, n=n, share=round(count / n, 4) if n else 0.0, low=round(low, 4), high=round(high, 4))


def table(found: Mapping[str, Share]) -> list[str]:
    """The shares as lines for people."""
    return [f"{'harm':28}{'':>12}{'95 % interval':>24}", *(_row(TITLES[name], share) for name, share in found.items())]


def _row(title: str, share: Share) -> str:
    counted = f"{share['count']} of {share['n']}"
    if not share["n"]:
        return f"{title:28}{counted:>12}"
    return f"{title:28}{counted:>12}{share['share']:9.1%}{share['low']:8.1%} to{share['high']:7.1%}"
