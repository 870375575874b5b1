"""Test logs for a changed rule: anonymised lines from the incidents behind the change.

Each log is tested: the changed rule is silent on logs for `silent/` and fires on logs for `match/`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bot.authoring.selftest import findings_on, run, tests_of
from bot.learning.drafts.anonymise import Anonymiser, words_of
from bot.learning.drafts.edge_logs import EdgeLogs, Speaks, edge_logs_of
from bot.learning.drafts.edits import VOCABULARY
from bot.learning.drafts.rule_logs import excerpt, frame_of, kept_words, retold
from bot.learning.replay.trial import RuleFiles
from bot.rulebase.loader import Knowledge
from bot.runtime.redaction import redact
from kb.errors import RuleError
from kb.learning.cases import Case
from kb.learning.discriminating_patterns import MinedPattern, told_of
from kb.learning.negative_corpus import line_at
from kb.learning.yaml_edits import value_of
from kb.regex.pattern import compiled
from kb.rulebase.rule import Rule
from kb.rulebase.rulebook import load
from kb.scanning.plan_builder import plan

MOST_LOGS = 2
MOST_LINES = 4  # decisive lines per source


def cleaner_of(base: RuleFiles, cases: Sequence[Case]) -> Anonymiser:
    """Return the anonymiser for lines that learned rules use (`bot.learning.drafts.rule_folder`)."""
    return Anonymiser(words_of(base.known.rulebook), frozenset().union(*(case.names for case in cases)))


def fit(found: MinedPattern, names: Collection[str]) -> bool:
    """Whether a pattern may go into a rule: it contains nothing that looks like a secret, and no names from the incidents."""
    plain = re.sub(r"\[[A-Z]([a-z])\]", r"\1", found.search).replace("\\", "").lower()
    held = any(re.search(rf"(?<![a-z0-9]){re.escape(name)}(?![a-z0-9])", plain) for name in names)
    return not held and redact(found.search) == found.search


class SingleRuleScan:
    """A single rule, active regardless of its status.

    Raises:
        RuleError: the text of the rule has errors.
    """

    def __init__(self, base: RuleFiles, rule: Rule, text: str) -> None:
        words = {name: base.files[name] for name in VOCABULARY if name in base.files}
        others = frozenset(item.id for item in base.known.rulebook.rules) - {rule.id}
        loaded = load({**words, rule.file: text}, others=others)
        if faults := [fault for fault in loaded.faults if fault.file == rule.file]:
            raise RuleError(faults)
        own = replace(
            loaded.rulebook, rules=tuple(replace(item, status="experimental") for item in loaded.rulebook.rules)
        )
        self._known = Knowledge(own, plan(own), None)
        self._matcher = self._known.matcher()

    def lines(self, streams: Mapping[str, bytes]) -> tuple[str, ...]:
        """Return the lines on which the rule fires."""
        heard = findings_on(self._known, self._matcher, streams)
        return tuple(dict.fromkeys(signal.line for finding in heard for signal in finding.signals))

    def failed(self, rules: Path) -> Iterator[str]:
        """Return the tests in its folder that the rule fails."""
        for test in tests_of(rules, self._known.rulebook.rules):
            if not run(self._known, self._matcher, test).passed:
                yield f"{test.path.parent.name}/{test.path.name}"


def silent_logs(base: RuleFiles, rule: Rule, text: str, found: MinedPattern, cases: Sequence[Case]) -> dict[str, str]:
    """Return logs on which a narrowed rule is silent, by path: lines on which it used to fire, with the lines that now silence it."""
    was, will = SingleRuleScan(base, rule, base.files[rule.file]), SingleRuleScan(base, rule, text)
    cleaner, keep = cleaner_of(base, cases), kept_words(value_of(text, "match"))
    made: dict[str, dict[str, bytes]] = {}
    for case in cases[:MOST_LOGS]:
        spoke = was.lines({name: item.encode() for name, item in case.texts.items()})
        streams = excerpt(_lines(case, found, spoke), case.texts, cleaner, keep)
        raised = retold(streams)
        whole = {name: data + raised.get(name, b"") for name, data in streams.items()}
        able = [stream for stream in (streams, whole) if stream and not will.lines(stream)]
        best = next((entry for entry in able if was.lines(entry)), able[0] if able else None)
        if best is not None:
            made[f"silent/advised-{case.id}"] = best
    return _files(rule, made)


def match_logs(base: RuleFiles, rule: Rule, text: str, found: MinedPattern, cases: Sequence[Case]) -> dict[str, str]:
    """Return logs on which a widened rule fires, by path: lines from the incidents that it missed."""
    was, will = SingleRuleScan(base, rule, base.files[rule.file]), SingleRuleScan(base, rule, text)
    cleaner, keep = cleaner_of(base, cases), kept_words(value_of(text, "match"))
    made: dict[str, dict[str, bytes]] = {}
    for case in (item for item in cases if item.id in found.support):
        streams = excerpt(_lines(case, found, ()), case.texts, cleaner, keep)
        able = [
            stream for stream in (streams, retold(streams)) if stream and will.lines(stream) and not was.lines(stream)
        ]
        if able and able[0] not in made.values() and len(made) < MOST_LOGS:
            made[f"match/advised-{case.id}"] = able[0]
    return _files(rule, made)


def widened_edge(
    base: RuleFiles, rule: Rule, text: str, found: MinedPattern, cases: Sequence[Case]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return logs at the edge of the event for which a rule is widened, by path, and what the test at that edge says, as sentences."""
    will = SingleRuleScan(base, rule, text)
    edge = _edge(base, text, found, cases, lambda streams: bool(will.lines(streams)))
    made = {name.replace("/", "/advised-", 1): data for name, data in (*edge.match.items(), *edge.silent.items())}
    return _placed(rule, made), _sentences(edge, "it matches", "it is silent")


def narrowed_edge(
    base: RuleFiles, rule: Rule, text: str, found: MinedPattern, cases: Sequence[Case]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """The same for the event that silences a narrowed rule: it must do so in all its forms, but not in its healthy forms.

    Each log has a line on which the rule fires, as the rule is silent without one.
    """
    was, will = SingleRuleScan(base, rule, base.files[rule.file]), SingleRuleScan(base, rule, text)
    own = _own_line(was, will, cleaner_of(base, cases), kept_words(value_of(text, "match")), cases)
    if own is None:
        return {}, ()

    def with_own(streams: Mapping[str, bytes]) -> dict[str, bytes]:
        return {name: own + data for name, data in streams.items()}

    edge = _edge(base, text, found, cases, lambda streams: not will.lines(with_own(streams)))
    made = {name.replace("match/", "silent/advised-", 1): own + data for name, data in edge.match.items()}
    made |= {name.replace("silent/", "match/advised-", 1): own + data for name, data in edge.silent.items()}
    return _placed(rule, made), _sentences(edge, "they silence it", "it still fires")


def _edge(base: RuleFiles, text: str, found: MinedPattern, cases: Sequence[Case], speaks: Speaks) -> EdgeLogs:
    keep = kept_words(value_of(text, "match"))
    return edge_logs_of(
        told_of(found.event),
        cleaner_of(base, cases),
        keep,
        speaks,
        numbers=found.numbers,
        frame=frame_of({"": found.values}),
    )


def _own_line(
    was: SingleRuleScan, will: SingleRuleScan, cleaner: Anonymiser, keep: frozenset[str], cases: Sequence[Case]
) -> bytes | None:
    """Return a line of the incidents on which the rule fires, now and before, anonymised; None if no line suffices."""
    for case in cases[:MOST_LOGS]:
        for line in was.lines({name: item.encode() for name, item in case.texts.items()})[:MOST_LINES]:
            data = f"{cleaner.line(line, keep)}\n".encode("ascii", "replace")
            if was.lines({"part-0.log": data}) and will.lines({"part-0.log": data}):
                return data
    return None


def _sentences(edge: EdgeLogs, variations: str, near: str) -> tuple[str, ...]:
    if not edge.variations.n:
        return ()
    told = (f"of the variations of that line, {variations} on {edge.variations.words}",)
    return (*told, f"of its near misses, {near} on {edge.near.words}", *edge.questions)


def _placed(rule: Rule, made: Mapping[str, bytes]) -> dict[str, str]:
    home = rule.file.rpartition("/")[0]
    return {f"{home}/{name}": data.decode("ascii") for name, data in made.items()}


def _lines(case: Case, found: MinedPattern, spoke: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the decisive lines of an incident by source: lines that match the pattern, and lines on which the rule fired."""
    quoted = {}
    for source, text in case.texts.items():
        hits = [
            line_at(text, hit.start()) for hit, _ in zip(compiled(found.search).finditer(text), range(2), strict=False)
        ]
        own = [line for line in text.split("\n") if any(word.strip() and word.strip() in line for word in spoke)]
        lines = tuple(dict.fromkeys((*own[: MOST_LINES - len(hits)], *hits)))
        if lines:
            quoted[source] = lines
    return quoted


def _files(rule: Rule, made: Mapping[str, Mapping[str, bytes]]) -> dict[str, str]:
    """Return the files of a log below the rule's folder; if an incident has several logs, they form a folder."""
    home = rule.file.rpartition("/")[0]
    found = {}
    for place, streams in made.items():
        if len(streams) == 1:
            name, data = next(iter(streams.items()))
            kind, _, log = place.partition("/")
            found[f"{home}/{kind}/{'dmesg-' if name.startswith('dmesg') else ''}{log}.log"] = data.decode("ascii")
        else:
            found |= {f"{home}/{place}/{name}": data.decode("ascii") for name, data in streams.items()}
    return found
