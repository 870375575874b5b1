"""Tests a drafted rule at the edge of its event: other forms of it, which it must match, and the component in health.

What passes becomes logs of the rule, so that later changes are tested by it too; what does not becomes a question.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bot.learning.drafts.anonymise import Anonymiser
from kb.learning.events import raised
from kb.learning.precision import HitRate
from kb.learning.rewordings import Edge, EventWords, Rewording, edge_of

BELOW, OVERCOME, HEALTHY = "said below error level", "overcome by the program", "the opposite of the event"
# kinds of near misses that differ from the event in one thing only → that thing. The others share too few of its words to test anything.
_TESTS = {
    "a level in brackets": BELOW, "a level before a colon": BELOW, "a level as a field": BELOW, "a level in JSON": BELOW,
    "a retry at error level": OVERCOME, "a recovery at error level": OVERCOME, "a fallback at error level": OVERCOME,
    "a retry with the same words": OVERCOME, "success": HEALTHY,
}  # fmt: skip
# what a near miss differs in → the log that holds such lines
_SILENT = {HEALTHY: "healthy", BELOW: "below-error", OVERCOME: "overcome"}
ENOUGH = 0.8  # share of the variations that a rule must match
MOST_WRITTEN = 8  # forms of an event that become logs of the rule
MOST_EVENTS = 8  # incidents whose events are reworded
SHOWN = 160  # characters of a line in a question
ANY_CLASS = "RuntimeError"  # for an exception whose class must not leave
# kinds of texts, those first that differ most from the others
_UNLIKE = {
    kind: place
    for place, kind in enumerate(
        (
            "other numbers, units and ids", "JSON", "key and value", "Kubernetes", "class renamed", "logged without a traceback", "glog",
            "prefix of torchrun", "class of another module", "Python logging", "process of a pool", "behind another's words", "wrapped at 80 columns",
        )
    )
}  # fmt: skip
Speaks = Callable[[Mapping[str, bytes]], bool]


@dataclass(frozen=True, slots=True)
class EdgeShare:
    """How a rule does on texts made from incidents: right on `hits` of `n`.

    `incidents`: those on all of whose texts it is right. They are the independent trials: an interval over the texts would claim
    more than the incidents know. `failed`: the texts on which it is wrong, one of each kind.
    """

    hits: int = 0
    n: int = 0
    incidents: HitRate = field(default_factory=lambda: HitRate(0, 0))
    failed: tuple[Rewording, ...] = ()

    @property
    def words(self) -> str:
        """The share, with the interval that so few incidents deserve."""
        if not self.n:
            return "none made"
        many = "incident" if self.incidents.n == 1 else "incidents"
        whole = f"{self.incidents.hits} of {self.incidents.n} {many} without exception"
        return f"{self.hits} of {self.n}; {whole} (95 %: {self.incidents.low:.0%} to {self.incidents.high:.0%})"


@dataclass(frozen=True, slots=True)
class EdgeLogs:
    """The result at the edge, and the logs for `match/` and `silent/`, by path below the rule's folder."""

    variations: EdgeShare = field(default_factory=EdgeShare)
    near: EdgeShare = field(default_factory=EdgeShare)
    match: Mapping[str, bytes] = field(default_factory=dict)
    silent: Mapping[str, bytes] = field(default_factory=dict)
    by_test: Mapping[str, int] = field(default_factory=dict)

    @property
    def figures(self) -> tuple[tuple[str, str], ...]:
        """Rows for a table; none for a rule that no single line decides."""
        if not self.variations.n:
            return ()
        return (
            ("Variations of the event that it matches", self.variations.words),
            (
                "Lines that differ from the event in one thing only, on which it is silent",
                f"{self.near.words}: {self.tested}",
            ),
        )

    @property
    def tested(self) -> str:
        """What the near misses differ in, with the number of each."""
        return ", ".join(f"{count} {what}" for what, count in self.by_test.items()) or "none"

    @property
    def against(self) -> tuple[str, ...]:
        """What speaks against the rule, each a sentence."""
        return tuple(self._against())

    def _against(self) -> Iterator[str]:
        alarms, found = self.near.n - self.near.hits, self.variations
        if alarms:
            whats = ", ".join(dict.fromkeys(_TESTS[item.kind] for item in self.near.failed))
            yield f"It also matches {alarms} of {self.near.n} lines that are no failure ({whats})."
        if found.hits < ENOUGH * found.n:
            yield f"It matches only {found.hits} of {found.n} variations of its own event."

    @property
    def questions(self) -> tuple[str, ...]:
        """What a reviewer should decide, each a sentence."""
        return tuple(self._asked())

    def _asked(self) -> Iterator[str]:
        if self.variations.failed:
            kinds = ", ".join(item.kind for item in self.variations.failed)
            yield f"It does not match the event in these forms: {kinds}. Do they occur here?"
        if self.near.failed:
            kinds = ", ".join(item.kind for item in self.near.failed)
            line = self.near.failed[0].text[:SHOWN]
            yield f"It also matches lines that are no failure ({kinds}), such as {line!r}. Does such a line occur here?"


def edge_logs_of(
    events: Mapping[int, EventWords],
    cleaner: Anonymiser,
    keep: frozenset[str],
    speaks: Speaks,
    *,
    numbers: bool = False,
    frame: str = "main",
) -> EdgeLogs:
    """Test a rule at the edge of its event.

    Args:
        events: incident → what its decisive line says.
        cleaner: removes from it what must not leave the site.
        keep: words that the rule looks for.
        speaks: whether the rule fires on some streams.
        numbers: the rule asks for the numbers of the event, so they are not varied.
        frame: the function that an exception must come from.
    """
    words = list(dict.fromkeys(_clean(event, cleaner, keep) for event in list(events.values())[:MOST_EVENTS]))
    edges = [_placed(edge_of(event, numbers=not numbers), frame) for event in words if event.message or event.exception]
    variations = [[(item, _fires(item, speaks)) for item in edge.variations] for edge in edges]
    near = [[(item, not _fires(item, speaks)) for item in edge.near if item.kind in _TESTS] for edge in edges]
    counts = Counter(_TESTS[item.kind] for own in near for item, _ in own)
    return EdgeLogs(
        _share(variations),
        _share(near),
        dict(_match_logs(variations, speaks)),
        dict(_silent_logs(near, speaks)),
        {what: counts[what] for what in _SILENT if counts[what]},
    )


def _clean(event: EventWords, cleaner: Anonymiser, keep: frozenset[str]) -> EventWords:
    message = cleaner.line(event.message, keep).encode("ascii", "replace").decode()
    if not event.exception:
        return EventWords(message)
    names = (cleaner.line(event.exception, keep), cleaner.line(event.exception.rpartition(".")[2], keep), ANY_CLASS)
    return EventWords(message, next(name for name in names if raised(f"{name}: x") is not None))


def _placed(edge: Edge, frame: str) -> Edge:
    """The edge with tracebacks that come from a function."""
    found = tuple(Rewording(item.kind, item.text.replace(", in main", f", in {frame}", 1)) for item in edge.variations)
    return Edge(found, edge.near)


def _data(text: str) -> bytes:
    return f"{text}\n".encode("ascii", "replace")


def _fires(item: Rewording, speaks: Speaks) -> bool:
    return speaks({"part-0.log": _data(item.text)})


def _share(tried: Sequence[Sequence[tuple[Rewording, bool]]]) -> EdgeShare:
    texts = [pair for own in tried for pair in own]
    failed = {item.kind: item for item, right in texts if not right}
    whole = [all(right for _, right in own) for own in tried if own]
    return EdgeShare(
        sum(right for _, right in texts), len(texts), HitRate(sum(whole), len(whole)), tuple(failed.values())
    )


def _match_logs(tried: Sequence[Sequence[tuple[Rewording, bool]]], speaks: Speaks) -> Iterator[tuple[str, bytes]]:
    """Logs of some kinds of texts that the rule matches, from one incident after the other.

    Every kind is counted; a reviewer reads these, so they are few and as different as possible.
    """
    by_kind: dict[str, list[Rewording]] = {}
    for own in tried:
        for item, right in own:
            if right:
                by_kind.setdefault(item.kind, []).append(item)
    spread = sorted(by_kind.items(), key=lambda pair: _UNLIKE.get(pair[0], len(_UNLIKE)))[:MOST_WRITTEN]
    for index, (kind, items) in enumerate(spread):
        name = f"reworded-{'-'.join(re.findall('[a-z0-9]+', kind.lower()))}.log"
        data = _data(items[index % len(items)].text)
        if speaks({name: data}):
            yield f"match/{name}", data


def _silent_logs(tried: Sequence[Sequence[tuple[Rewording, bool]]], speaks: Speaks) -> Iterator[tuple[str, bytes]]:
    """The near misses on which the rule is silent, a log for each thing that they differ in; those of the first incident, since others differ in numbers."""
    right = [item for own in reversed(tried) for item, silent in own if silent]
    each = {(item.kind, item.text.startswith("2026-")): item for item in right}.values()
    for what, name in _SILENT.items():
        texts = dict.fromkeys(item.text for item in each if _TESTS[item.kind] == what)
        data = _data("\n".join(texts))
        if texts and not speaks({f"{name}.log": data}):
            yield f"silent/{name}.log", data


def tests_what(path: str) -> str:
    """What the lines of a silent log differ from the event in, by the log's path; empty for other logs."""
    return next((what for what, name in _SILENT.items() if path.endswith(f"/silent/{name}.log")), "")
