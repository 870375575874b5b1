"""Write a candidate as a rule folder: rule.yaml, logs on which it must fire, and near misses on which it must not.

Everything is written by a YAML dumper, in a fixed alphabet, so that no text from an incident can break out of its place. The
folder is tested before it is returned: tests that the rule fails are removed or reported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from bot.learning.drafts.anonymise import Anonymiser, words_of
from bot.learning.drafts.edge_logs import EdgeLogs, edge_logs_of
from bot.learning.drafts.neighbours import Example, Neighbours, neighbours_of
from bot.learning.drafts.rule_logs import RuleTester, frame_of, kept_words, match_logs, silent_logs
from bot.learning.drafts.statements import (
    Statements,
    cause_of,
    circumstances,
    impact,
    statements,
    steps,
    told,
    unread_question,
)
from bot.rulebase.loader import Knowledge
from bot.runtime.redaction import redact_bytes
from kb.errors import Fault
from kb.learning.cases import MINER, Candidate
from kb.learning.tokenizer import tokens
from kb.rulebase.lint import lint
from kb.rulebase.rule import Rulebook
from kb.rulebase.rulebook import Loaded

SHOWN_LINES = 3  # of evidence, before the line that stands before the deciding one
_WORD = re.compile(r"[A-Za-z]{3,40}")
# the place of a program's name in a line; packages with dots may name who wrote them
_PROGRAM = re.compile(
    r"\"(?:logger|component|module|service|subsystem)\": ?\"([A-Za-z_]\w{2,30})\""
    r"|\b(?:logger|component|module|service|subsystem)=([A-Za-z_]\w{2,30})(?=\s)"
    r"|\b(?:ERROR|CRITICAL|FATAL|SEVERE)[\])]?[\s:|-]{1,4}([a-z_]\w{2,30})(?=: |::| - )|\] \[([a-z_]\w{2,30})\] \["
)
_HOLE = re.compile(
    r"\{\w+\|\.\.\.\}|\[\?[^][{}<>`|]*(?:\{\w+\}[^][{}<>`|]*)+\]"
)  # a value, or a clause that is left out with its values
REFERENCE = "a resolved incident that it was learned from"
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
    on rewordings of the event. `evidence`: the deciding lines, anonymised. `neighbours`: the result on the nearest failures of other rules. `before`: see `said_before` of `Candidate`.
    `unborne`: a question about what people said of one incident only; `unread`: one about close-outs that could not be taken over.
    """

    candidate: Candidate
    files: Mapping[str, bytes]
    missing: tuple[str, ...] = ()
    said: str = ""
    edge: EdgeLogs = field(default_factory=EdgeLogs)
    evidence: tuple[str, ...] = ()
    neighbours: Neighbours = field(default_factory=Neighbours)
    before: str = ""
    unborne: str = ""
    unread: str = ""

    @property
    def questions(self) -> tuple[str, ...]:
        """What a reviewer should decide, each a sentence."""
        first = f"Right before it, all incidents say: {self.before}. Is that the failure, and this line what follows?"
        own = self.candidate.questions
        return (
            *own,
            *([first] if self.before else []),
            *(question for question in (self.unborne, self.unread) if question),
            *self.edge.questions,
            *self.neighbours.questions,
        )

    @property
    def figures(self) -> tuple[tuple[str, str], ...]:
        """Rows for a table: how independent the incidents are, the edge of the event, and the nearest other failures."""
        spread = self.candidate.spread
        own = (("Incidents that it was learned from", f"{len(self.candidate.support)}: {spread}"),) if spread else ()
        return (*own, *self.edge.figures, *self.neighbours.figures)

    @property
    def against(self) -> tuple[str, ...]:
        """What its own tests say against the rule, each a sentence."""
        return (*self.edge.against, *self.neighbours.against)

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
    examples: Sequence[Example] = (),
) -> DraftFolder:
    """Return the folder of a candidate.

    Args:
        candidate: what was mined.
        texts: incident → its texts by source, for the context of the decisive lines.
        knowledge: the rule base, for its words.
        base: the vocabulary files of the rules folder (faults.yaml, actions.yaml, VERSION).
        names: hosts and people that must not appear in any file.
        link: where people read an incident; without it references say `incident:<number>`.
        examples: lines of the test logs of all rules, the nearest of which become tests.
    """
    book = knowledge.rulebook
    cleaner = Anonymiser(words_of(book), frozenset(name.lower() for name in names))
    keep = kept_words(candidate.match) | _programs(candidate, cleaner.names)
    people = statements(candidate, book, cleaner, keep | _shared_words(candidate, cleaner.names))
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
    said_so = [event.message for event in candidate.events.values()]
    neighbours = neighbours_of(said_so, examples, judge.speaks)
    silent |= neighbours.logs
    root = f"{candidate.family}/{candidate.id}"
    files = {"rule.yaml": text.encode(), **match, **silent}
    missing = [*leak, *(str(fault) for fault in _lint(candidate, judge.loaded, [*match, *silent]))]
    said = told(people)
    whole = {f"{root}/{name}": data for name, data in files.items()}
    evidence = _evidence(candidate, cleaner, keep)
    before = [cleaner.line(candidate.before, keep)] if candidate.before else []
    evidence = (*evidence[:SHOWN_LINES], *before, *evidence[SHOWN_LINES:])
    said_before = cleaner.line(candidate.said_before, keep)
    return DraftFolder(
        candidate,
        whole,
        tuple(missing),
        said,
        edge,
        evidence,
        neighbours,
        said_before,
        circumstances(people),
        unread_question(people),
    )


def rule_text(candidate: Candidate, book: Rulebook) -> str:
    """Return a candidate as rule.yaml, with nothing that people said: enough to try its patterns."""
    return dumped(
        _values(candidate, book, Statements(many=len(candidate.support)), lambda number: f"incident:{number}")
    )


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


def _values(candidate: Candidate, book: Rulebook, people: Statements, link: Callable[[int], str]) -> dict[str, Any]:
    fault = book.faults[candidate.fault]
    many = len(candidate.support)
    values: dict[str, Any] = {
        "format": 1,
        "id": candidate.id,
        "title": candidate.title,
        "fault": candidate.fault,
        "role": candidate.role,
        "status": "draft",
        "severity": _SEVERITY[fault.domain],
        "summary": _summary(candidate),
        "cause": cause_of(candidate, people),
        "impact": impact(candidate, fault),
        "match": {name: _plain(item) for name, item in candidate.match.items()},
    }
    if candidate.when is not None:
        values["when"] = candidate.when
    values["remediation"] = steps(candidate, people)
    values["references"] = [{"url": link(number), "shows": REFERENCE} for number in candidate.support[:5]]
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
    """What the line says, with its values; the title if no single line decides."""
    sentence = _sentence(candidate.said)
    if sentence:
        rank = "" if "{rank}" in sentence else "[? (rank {rank})]"
        node = "" if "{node}" in sentence else "[? on {node}]"
        return f"{sentence}{rank}{node}."
    names = captured_names(str(candidate.match)) - {"rank", "node", "step"}
    named = sorted(name for name in names if not name.startswith("value_"))[:2]
    clauses = "".join(f"[?, {name} {{{name}}}]" for name in named)
    return f"{candidate.title}[? (rank {{rank}})][? on {{node}}]{clauses}."


def captured_names(regexes: str) -> frozenset[str]:
    """The names that regexes capture, also of one that is not complete."""
    return frozenset(_NAMES.findall(regexes))


def _sentence(said: str) -> str:
    """What a line says as the text of a rule; empty if its marks could be taken for those of a text."""
    said = re.sub(r"\{(rank|node)\|\.\.\.\}", r"{\1}", said)
    bare = re.sub(r"\{(?:rank|node)\}", "", _HOLE.sub("", said))
    if not said or re.search(r"[{}\[\]<>`|]", bare):
        return ""
    plain = re.sub(r" (?=[:,;])", "", said.strip(" ,;:!-"))
    plain = plain if plain.endswith("...") else plain.rstrip(".")
    first = re.match(
        r"[a-z]+(?:-[a-z]+)*(?= (?!\{pci)|$)", plain
    )  # no program's name before the device that it speaks of
    return f"{plain[:1].upper()}{plain[1:]}" if first is not None else plain


def _programs(candidate: Candidate, names: frozenset[str]) -> frozenset[str]:
    """The names of programs and modules that wrote the deciding lines of all incidents, if they are several: they say what failed."""
    each = [
        frozenset(
            name
            for lines in own.values()
            for line in lines
            for hit in _PROGRAM.finditer(line)
            for name in hit.groups()
            if name
        )
        for own in candidate.lines.values()
    ]
    shared = frozenset.intersection(*each) if len(each) > 1 else frozenset()
    return frozenset(name for name in shared if name.lower() not in names)


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
