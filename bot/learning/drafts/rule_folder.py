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

from bot.authoring.selftest import evidence_of
from bot.learning.drafts.anonymise import Anonymiser, words_of
from bot.rulebase.loader import Knowledge, engine
from bot.runtime.redaction import redact_bytes
from kb.diagnosis.findings import find
from kb.errors import Fault
from kb.facts.history import History
from kb.facts.job_facts import Facts
from kb.learning.cases import MINER, Candidate
from kb.learning.events import raised
from kb.learning.precision import HitRate
from kb.learning.regex_generalisation import aligned
from kb.learning.rule_texts import steps_of
from kb.learning.tokenizer import tokens
from kb.parsers.logs.prefixes import peel
from kb.rulebase.lint import lint
from kb.rulebase.rule import Rulebook
from kb.rulebase.rulebook import Loaded, load
from kb.scanning.plan_builder import plan

MOST_LOGS = 4
MOST_STEPS = 5
AROUND = 2  # context lines on each side
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
class EdgeResult:
    """On how many rewordings of its event a rule fires, of how many: `variations` should be all, `near` none."""

    variations: HitRate = field(default_factory=lambda: HitRate(0, 0))
    near: HitRate = field(default_factory=lambda: HitRate(0, 0))


@dataclass(frozen=True, slots=True)
class DraftFolder:
    """The files of a learned rule, by path below the rules folder, and what a person still has to add.

    `said`: what people said when they closed the incidents, without anything that must not leave the site. `edge`: the result
    on rewordings of the event.
    """

    candidate: Candidate
    files: Mapping[str, bytes]
    missing: tuple[str, ...] = ()
    said: str = ""
    edge: EdgeResult = field(default_factory=EdgeResult)

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
    match = _match_logs(candidate, texts, cleaner, keep, judge)
    silent = _silent_logs(candidate, texts, cleaner, keep, judge)
    root = f"{candidate.family}/{candidate.id}"
    files = {"rule.yaml": text.encode(), **match, **silent}
    missing = [*leak, *(str(fault) for fault in _lint(candidate, judge.loaded, [*match, *silent]))]
    said = " ".join([people.cause, *(step["text"] for step in people.steps)]).strip()
    edge = EdgeResult(judge.share(candidate.edge.variations), judge.share(candidate.edge.near))
    return DraftFolder(candidate, {f"{root}/{name}": data for name, data in files.items()}, tuple(missing), said, edge)


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
    steps, more = steps_of([cleaner.words(item, keep) for item in candidate.actions], book.actions)
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


def kept_words(match: Mapping[str, Mapping[str, Any]]) -> frozenset[str]:
    """The words that a rule looks for, taken from the values of its `match`. They stay in its logs."""
    found: set[str] = set()
    for values in match.values():
        test = values.get("exception") or {}
        for text in (values.get("literal"), values.get("regex"), test.get("type"), test.get("message")):
            plain = re.sub(r"\(\?P<\w+>|\\[a-zA-Z]|\[[^\]]*\]|\{[\d,]*\}", " ", text or "").replace("\\", "")
            found |= {piece.word for piece in aligned([plain]) if piece.word}
    return frozenset(found)


# -- logs ----------------------------------------------------------------------------------------------------------------


class RuleTester:
    """Tests logs with this rule only."""

    def __init__(self, candidate: Candidate, text: str, base: Mapping[str, str]) -> None:
        live = text.replace("\nstatus: draft\n", "\nstatus: experimental\n", 1)
        self.loaded = load({**_vocabularies(base), f"{candidate.family}/{candidate.id}/rule.yaml": live})
        book = self.loaded.rulebook
        made = plan(book)
        self._knowledge = Knowledge(book, made, None)
        self._matcher = engine()(made.patterns)

    def speaks(self, streams: Mapping[str, bytes]) -> bool:
        """Whether the rule fires on some streams."""
        evidence = evidence_of(self._knowledge, self._matcher, streams)
        return bool(find(self._knowledge.rulebook, Facts(evidence), History()).findings)

    def share(self, texts: Sequence[str]) -> HitRate:
        """On how many of some texts the rule fires, each a log of its own."""
        return HitRate(
            sum(self.speaks({"rank-7.log": f"{text}\n".encode("utf-8", "replace")}) for text in texts), len(texts)
        )


def _vocabularies(base: Mapping[str, str]) -> dict[str, str]:
    return {name: base[name] for name in ("VERSION", "faults.yaml", "actions.yaml") if name in base}


def _match_logs(
    candidate: Candidate,
    texts: Mapping[int, Mapping[str, str]],
    cleaner: Anonymiser,
    keep: frozenset[str],
    judge: RuleTester,
) -> dict[str, bytes]:
    """Return one log per incident, all different. A single incident also gets a variant with other numbers."""
    made: list[dict[str, bytes]] = []
    frame = next(
        (str(test["frame"]) for entry in candidate.match.values() if "frame" in (test := entry.get("exception") or {})),
        "",
    )
    for number in candidate.support:
        streams = excerpt(candidate.lines.get(number, {}), texts.get(number, {}), cleaner, keep)
        made += [
            stream
            for stream in (streams, retold(streams, frame))
            if stream and judge.speaks(stream) and stream not in made
        ][:1]
    if len(made) == 1:
        other = {name: _renumbered(data) for name, data in made[0].items()}
        made += [other] if other != made[0] and judge.speaks(other) else []
    found: dict[str, bytes] = {}
    for index, streams in enumerate(made[:MOST_LOGS], start=1):
        if len(streams) == 1:
            name, data = next(iter(streams.items()))
            found[f"match/{'dmesg-' if name.startswith('dmesg') else ''}{index}.log"] = data
        else:
            found |= {f"match/{index}/{name}": data for name, data in streams.items()}
    return found


def excerpt(
    lines: Mapping[str, Sequence[str]], texts: Mapping[str, str], cleaner: Anonymiser, keep: frozenset[str]
) -> dict[str, bytes]:
    """Return the decisive lines of an incident with some context, anonymised, by stream."""
    found: dict[str, bytes] = {}
    for index, (source, own) in enumerate(list(lines.items())[:3]):
        all_lines = texts.get(source, "").split("\n")
        wanted: list[str] = []
        for line in own[:4]:
            at = all_lines.index(line) if line in all_lines else -1
            around = all_lines[max(0, at - AROUND) : at + AROUND + 1] if at >= 0 else [line]
            wanted += [text for text in around if text.strip() and text not in wanted]
        clean = [cleaner.line(line, keep) for line in wanted]
        found[_file_name(source, index)] = ("\n".join(clean) + "\n").encode("ascii", "replace")
    return found


def _file_name(source: str, index: int) -> str:
    """Return a file name with only what a reader needs: whether it is a kernel log, and which rank wrote it."""
    name = source.rpartition("/")[2].lower()
    rank = re.search(r"rank[-_]?(\d{1,5})", name)
    if name.startswith(("dmesg", "kern")):
        return f"dmesg-node-{index}.log"
    return f"rank-{rank[1]}.log" if rank is not None else f"part-{index}.log"


def retold(streams: Mapping[str, bytes], frame: str = "") -> dict[str, bytes]:
    """Return only the exceptions, each with the traceback header that the parser requires."""
    function = re.search(r"\w{3,60}(?=\$$)", frame)
    where = function[0].encode() if function is not None else b"main"
    head = b'Traceback (most recent call last):\n  File "/path/train.py", line 10, in ' + where + b"\n    step()\n"
    found = {}
    for name, data in streams.items():
        messages = [line[peel(line).end :].strip() for line in data.splitlines()]
        told = [
            head + message + b"\n" for message in messages if raised(message.decode("ascii", "replace")) is not None
        ]
        if told:
            found[name] = b"".join(told)
    return found


def _renumbered(data: bytes) -> bytes:
    """Return the log with other numbers, except those in names and short codes."""
    return re.sub(rb"(?<![\w.])\d{3,6}(?![\w.])", lambda hit: bytes(49 + (item - 47) % 9 for item in hit[0]), data)


def _silent_logs(
    candidate: Candidate,
    texts: Mapping[int, Mapping[str, str]],
    cleaner: Anonymiser,
    keep: frozenset[str],
    judge: RuleTester,
) -> dict[str, bytes]:
    """Return near misses, and the lines of the incident without the decisive ones."""
    logs = [cleaner.line(line, keep) for line in candidate.near]
    found = [
        fromkey
        for fromkey in dict.fromkeys(logs)
        if fromkey.strip() and not judge.speaks({"near.log": f"{fromkey}\n".encode("ascii", "replace")})
    ]
    made = {
        f"silent/near-{index}.log": f"{item}\n".encode("ascii", "replace") for index, item in enumerate(found, start=1)
    }
    for number in candidate.support[:1]:
        own = {line for lines in candidate.lines.get(number, {}).values() for line in lines}
        rest = [
            line
            for text in texts.get(number, {}).values()
            for line in text.split("\n")
            if line.strip() and line not in own
        ]
        clean = ("\n".join(cleaner.line(line, keep) for line in rest[:12]) + "\n").encode("ascii", "replace")
        if rest and not judge.speaks({"rest.log": clean}):
            made["silent/rest.log"] = clean
    return made


def _lint(candidate: Candidate, loaded: Loaded, logs: Sequence[str]) -> list[Fault]:
    """Return the findings of `rules lint` on the folder."""
    path = f"{candidate.family}/{candidate.id}/rule.yaml"
    own = [fault for fault in loaded.faults if fault.file == path]
    return [*own, *lint(loaded.rulebook, {candidate.id: logs}, loaded.positions)]
