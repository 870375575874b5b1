"""Write a candidate as a rule folder: rule.yaml, logs on which it must fire, and near misses on which it must not.

A YAML dumper writes everything, from a fixed alphabet, so that no text of an incident can break out of its place. The folder is
tested before it is returned: tests that the rule fails are removed or reported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
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
from kb.learning.regex_generalisation import aligned
from kb.parsers.logs.prefixes import peel
from kb.rulebase.lint import lint
from kb.rulebase.rule import Rulebook
from kb.rulebase.rulebook import Loaded, load
from kb.scanning.plan import plan

MOST_LOGS = 4
AROUND = 2  # context lines on each side
SAID = 600  # characters of people's texts
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
    """The files of a learned rule by path below the rules folder, and what a person still has to add.

    `said`: what people said when they closed the incidents, with nothing in it that must not leave.
    """

    candidate: Candidate
    files: Mapping[str, bytes]
    missing: tuple[str, ...] = ()
    said: str = ""

    @property
    def folder(self) -> str:
        """Return its folder below the rules folder."""
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
        texts: incident → its texts by source, for the context of the lines that decide.
        knowledge: the rule base, for its words.
        base: the vocabulary files of the rules folder (faults.yaml, actions.yaml, VERSION).
        names: hosts and people that may stand in no file.
        link: where people read an incident; without it references say `incident:<number>`.
    """
    book = knowledge.rulebook
    cleaner = Anonymiser(words_of(book), frozenset(name.lower() for name in names))
    statement = "; ".join(dict.fromkeys(told for item in candidate.said if (told := cleaner.words(item))))[
        :SAID
    ].strip()
    values = _values(candidate, book, statement, link or (lambda number: f"incident:{number}"))
    text, leak = _hidden(dumped(values))
    judge = _RuleTester(candidate, text, base)
    keep = kept_words(candidate.match)
    match = _match_logs(candidate, texts, cleaner, keep, judge)
    silent = _silent_logs(candidate, texts, cleaner, keep, judge)
    root = f"{candidate.family}/{candidate.id}"
    files = {"rule.yaml": text.encode(), **match, **silent}
    missing = [*leak, *(str(fault) for fault in _lint(candidate, judge.loaded, [*match, *silent]))]
    return DraftFolder(candidate, {f"{root}/{name}": data for name, data in files.items()}, tuple(missing), statement)


def dumped(values: Mapping[str, Any]) -> str:
    """Encode values as YAML: printable ASCII only, everything else escaped."""
    return yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=False, width=118, default_flow_style=False)


def _hidden(text: str) -> tuple[str, list[str]]:
    """The rule's text, and a word for a person where a pattern held what looks like a secret: it is masked, so finds nothing."""
    hidden = redact_bytes(text.encode(), emails=True).decode()
    return hidden, [] if hidden == text else [
        "rule.yaml: a pattern contains what looks like a secret, which is masked: rewrite the pattern"
    ]


# -- rule.yaml -----------------------------------------------------------------------------------------------------------


def _values(candidate: Candidate, book: Rulebook, statement: str, link: Callable[[int], str]) -> dict[str, Any]:
    fault = book.faults[candidate.fault]
    many = len(candidate.support)
    lines = (
        "these lines"
        if any("structure" not in entry and "series" not in entry for entry in candidate.match.values())
        else "this"
    )
    cause = f"{fault.title}. {many} resolved {'incidents' if many > 1 else 'incident'} of this fault had {lines}"
    values: dict[str, Any] = {
        "format": 1,
        "id": candidate.id,
        "title": candidate.title,
        "fault": candidate.fault,
        "role": candidate.role,
        "status": "draft",
        "severity": _SEVERITY[fault.domain],
        "summary": _summary(candidate),
        "cause": f"{cause}. People said: {statement}." if statement else f"{cause}; no further cause is known.",
        "impact": "The run continues, but degraded."
        if fault.outlives
        else "The run ends, or its other ranks wait until they time out.",
        "match": {name: _plain(item) for name, item in candidate.match.items()},
    }
    if candidate.when is not None:
        values["when"] = candidate.when
    values["remediation"] = _remediation(candidate, book, statement)
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
    holes = "".join(f", {name} {{{name}|unknown}}" for name in named)
    return f"{candidate.title} (rank {{rank|unknown}}, node {{node|unknown}}{holes})."


def _remediation(candidate: Candidate, book: Rulebook, statement: str) -> list[dict[str, str]]:
    """The first step that most rules of the fault advise, and what people did."""
    alike = [rule for rule in book.rules if rule.fault == candidate.fault and rule.remediation]
    counts: dict[str, int] = {}
    for rule in alike:
        counts[rule.remediation[0].action] = counts.get(rule.remediation[0].action, 0) + 1
    action = min(counts, key=lambda count: (-counts[count], count)) if counts else "look_at_logs"
    first = f"{book.actions[action].title}; start with the quoted lines on {{node|the node}}."
    steps = [{"action": action, "text": first}]
    if statement:
        steps.append(
            {
                "action": "look_at_logs",
                "text": f"Check whether it matches the incidents that the rule was learned from: {statement}.",
            }
        )
    return steps


def kept_words(match: Mapping[str, Mapping[str, Any]]) -> frozenset[str]:
    """The words that a rule looks for by the values of its `match`; they stay in its logs."""
    found: set[str] = set()
    for values in match.values():
        test = values.get("exception") or {}
        for text in (values.get("literal"), values.get("regex"), test.get("type"), test.get("message")):
            plain = re.sub(r"\(\?P<\w+>|\\[a-zA-Z]|\[[^\]]*\]|\{[\d,]*\}", " ", text or "").replace("\\", "")
            found |= {piece.word for piece in aligned([plain]) if piece.word}
    return frozenset(found)


# -- logs ----------------------------------------------------------------------------------------------------------------


class _RuleTester:
    """Tests logs with the rule alone."""

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


def _vocabularies(base: Mapping[str, str]) -> dict[str, str]:
    return {name: base[name] for name in ("VERSION", "faults.yaml", "actions.yaml") if name in base}


def _match_logs(
    candidate: Candidate,
    texts: Mapping[int, Mapping[str, str]],
    cleaner: Anonymiser,
    keep: frozenset[str],
    judge: _RuleTester,
) -> dict[str, bytes]:
    """Return one log per incident, all different; of a single incident, also a variant with other numbers."""
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
    """Return only the exceptions, each with a traceback header, which the parser requires."""
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
    judge: _RuleTester,
) -> dict[str, bytes]:
    """Return near misses, and the incident's other lines without the decisive ones."""
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
