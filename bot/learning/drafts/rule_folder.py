"""Write a candidate as a rule folder: rule.yaml, logs on which it must fire, and near misses on which it must not.

Everything is written by a YAML dumper, in a fixed alphabet, so that no text from an incident can break out of its place. The
folder is tested before it is returned: tests that the rule fails are removed or reported.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from bot.learning.drafts.anonymise import Anonymiser, english, words_of
from bot.learning.drafts.edge_logs import EdgeLogs, edge_logs_of
from bot.learning.drafts.rule_logs import RuleTester, frame_of, kept_words, match_logs, silent_logs
from bot.rulebase.loader import Knowledge
from bot.runtime.redaction import redact_bytes
from kb.errors import Fault
from kb.learning.cases import MINER, Candidate
from kb.learning.rule_texts import steps_of
from kb.learning.tokenizer import tokens
from kb.rulebase.lint import lint
from kb.rulebase.rule import Rulebook
from kb.rulebase.rulebook import Loaded

MOST_STEPS = 5
SAID = 600  # characters of texts by people
_WORD = re.compile(r"[A-Za-z]{3,40}")
_NAMES = re.compile(r"\(\?P<(\w+)>")
_SEVERITY = {
    "hardware": "critical",
    "network": "high",
    "platform": "high",
    "software": "high",
    "training": "medium",
    "none": "medium",
}


@dataclass(frozen=True, slots=True)
class DraftFolder:
    """The files of a learned rule, by path below the rules folder, and what a person still has to add.

    `said`: what people said when they closed the incidents, without anything that must not leave the site. `edge`: the result
    on rewordings of the event. `evidence`: the deciding lines, anonymised.
    """

    candidate: Candidate
    files: Mapping[str, bytes]
    missing: tuple[str, ...] = ()
    said: str = ""
    edge: EdgeLogs = field(default_factory=EdgeLogs)
    evidence: tuple[str, ...] = ()

    @property
    def folder(self) -> str:
        """Return the rule's folder below the rules folder."""
        return f"{self.candidate.family}/{self.candidate.id}"


def draft(
    candidate: Candidate,
    texts: Mapping[int, Mapping[str, str]],
    knowledge: Knowledge,
    base: Mapping[str, str],
    *,
    names: Iterable[str] = (),
    link: Callable[[int], str] | None = None,
) -> DraftFolder:
    """Return the folder of a candidate.

    Args:
        candidate: what was mined.
        texts: incident → its texts by source, for the context of the decisive lines.
        knowledge: the rule base, for its words.
        base: the vocabulary files of the rules folder (faults.yaml, actions.yaml, VERSION).
        names: hosts and people that must not appear in any file.
        link: where people read an incident; without it references say `incident:<number>`.
    """
    book = knowledge.rulebook
    cleaner = Anonymiser(words_of(book), frozenset(name.lower() for name in names))
    keep = kept_words(candidate.match)
    people = _statements(candidate, book, cleaner, keep | _shared_words(candidate, cleaner.names))
    values = _values(candidate, book, people, link or (lambda number: f"incident:{number}"))
    text, leak = _hidden(dumped(values))
    judge = RuleTester(candidate, text, base)
    match = match_logs(candidate, texts, cleaner, keep, judge)
    silent = silent_logs(candidate, texts, cleaner, keep, judge)
    edge = edge_logs_of(
        candidate.events, cleaner, keep, judge.speaks, numbers=candidate.numbers, frame=frame_of(candidate.match)
    )
    match |= edge.match
    silent |= edge.silent
    root = f"{candidate.family}/{candidate.id}"
    files = {"rule.yaml": text.encode(), **match, **silent}
    missing = [*leak, *(str(fault) for fault in _lint(candidate, judge.loaded, [*match, *silent]))]
    said = _said(people)
    whole = {f"{root}/{name}": data for name, data in files.items()}
    return DraftFolder(candidate, whole, tuple(missing), said, edge, _evidence(candidate, cleaner, keep))


def _said(people: _Statements) -> str:
    """The cause, and apart from it what was done: a reviewer must not take one for the other."""
    done = " ".join(step["text"] for step in people.steps)
    return " ".join(part for part in (people.cause, f"What was done: {done}" if done else "") if part)


def _evidence(candidate: Candidate, cleaner: Anonymiser, keep: frozenset[str]) -> tuple[str, ...]:
    """The deciding lines, anonymised: the first of each incident, then others, without repetition."""
    own = [[line for lines in streams.values() for line in lines] for streams in candidate.lines.values()]
    ordered = [*(lines[0] for lines in own if lines), *(line for lines in own for line in lines[1:])]
    return tuple(dict.fromkeys(cleaner.line(line, keep).strip() for line in ordered))


def dumped(values: Mapping[str, Any]) -> str:
    """Encode values as YAML: printable ASCII only, everything else escaped."""
    return yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=False, width=118, default_flow_style=False)


def _hidden(text: str) -> tuple[str, list[str]]:
    """The rule's text, and a note if a pattern contained what looks like a secret: it is masked and therefore matches nothing."""
    hidden = redact_bytes(text.encode(), emails=True).decode()
    return hidden, [] if hidden == text else [
        "rule.yaml: a pattern contains what looks like a secret, which is masked: rewrite the pattern"
    ]


# -- rule.yaml -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Statements:
    """What people said, without anything that must not leave the site: about the cause, and the steps that they took."""

    cause: str = ""
    steps: tuple[dict[str, str], ...] = ()


def _statements(candidate: Candidate, book: Rulebook, cleaner: Anonymiser, keep: frozenset[str]) -> _Statements:
    steps, more = steps_of([cleaner.words(item, keep) for item in candidate.actions], book.actions, english())
    notes = [said for item in candidate.notes if (said := cleaner.words(item, keep))]
    causes = dict.fromkeys((*notes, *more))
    cause = " ".join(f"{said[:1].upper()}{said[1:]}{'' if said[-1] in '.!?' else '.'}" for said in causes)
    return _Statements(
        cause[:SAID].strip(), tuple({"action": step.action, "text": step.text[:SAID]} for step in steps[:MOST_STEPS])
    )


def _values(candidate: Candidate, book: Rulebook, people: _Statements, link: Callable[[int], str]) -> dict[str, Any]:
    fault = book.faults[candidate.fault]
    many = len(candidate.support)
    runs = f"The {many} runs that it was learned from" if many > 1 else "The run that it was learned from"
    values: dict[str, Any] = {
        "format": 1,
        "id": candidate.id,
        "title": candidate.title,
        "fault": candidate.fault,
        "role": candidate.role,
        "status": "draft",
        "severity": _SEVERITY[fault.domain],
        "summary": _summary(candidate),
        "cause": people.cause or f"Not known yet: the close-outs name the class {candidate.fault} and no cause.",
        "impact": f"{runs} continued, but degraded." if fault.outlives else f"{runs} failed.",
        "match": {name: _plain(item) for name, item in candidate.match.items()},
    }
    if candidate.when is not None:
        values["when"] = candidate.when
    values["remediation"] = people.steps or _usual_step(candidate, book)
    values["references"] = [{"url": link(number), "shows": "what it was closed as"} for number in candidate.support[:5]]
    if candidate.remarks:
        values["known_problems"] = [remark[:400] for remark in candidate.remarks]
    values["provenance"] = "learned"
    values["learned"] = {
        "incidents": list(candidate.support),
        "miner": MINER,
        "support": many,
        "asked": len(candidate.asked),
        "counter_examples": len(candidate.counter),
        "tried": candidate.tried,
    }
    return values


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: dict(item) if isinstance(item, Mapping) else item for name, item in values.items()}


def _summary(candidate: Candidate) -> str:
    named = sorted({name for name in _NAMES.findall(str(candidate.match)) if name not in ("rank", "node", "step")})[:2]
    clauses = "".join(f"[?, {name} {{{name}}}]" for name in named)
    return f"{candidate.title}[? (rank {{rank}})][? on {{node}}]{clauses}."


def _usual_step(candidate: Candidate, book: Rulebook) -> list[dict[str, str]]:
    """The first step that most rules for the fault advise, for a rule whose incidents name none."""
    counts = Counter(
        rule.remediation[0].action for rule in book.rules if rule.fault == candidate.fault and rule.remediation
    )
    action = min(counts, key=lambda count: (-counts[count], count)) if counts else "look_at_logs"
    return [{"action": action, "text": f"{book.actions[action].title}."}]


def _shared_words(candidate: Candidate, names: frozenset[str]) -> frozenset[str]:
    """The words that the decisive lines of all incidents contain: those of the event, which its texts may repeat. Names are none."""
    each = [
        frozenset(
            part
            for lines in own.values()
            for line in lines
            for token in tokens(line, names)
            if token.kind == "word"
            for part in _WORD.findall(token.text)
        )
        for own in candidate.lines.values()
    ]
    return frozenset.intersection(*each) if each else frozenset()


def _lint(candidate: Candidate, loaded: Loaded, logs: Sequence[str]) -> list[Fault]:
    """Return the findings of `rules lint` on the folder."""
    path = f"{candidate.family}/{candidate.id}/rule.yaml"
    own = [fault for fault in loaded.faults if fault.file == path]
    return [*own, *lint(loaded.rulebook, {candidate.id: logs}, loaded.positions)]
