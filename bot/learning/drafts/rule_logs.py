"""The logs of a learned rule: excerpts of its incidents on which it must fire, and near misses on which it must not.

Each log is anonymised, and tried with the rule alone before it is kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from bot.authoring.selftest import evidence_of
from bot.learning.drafts.anonymise import Anonymiser
from bot.rulebase.loader import Knowledge, engine
from kb.diagnosis.findings import find
from kb.facts.history import History
from kb.facts.job_facts import Facts
from kb.learning.cases import Candidate
from kb.learning.events import raised
from kb.parsers.logs.prefixes import peel
from kb.rulebase.rulebook import load
from kb.scanning.plan_builder import plan

MOST_LOGS = 4
_WORD = re.compile(r"[A-Za-z_]+(?:\d+_?[A-Za-z_]+)*")
AROUND = 2  # context lines on each side
MOST_FRAMES = 24  # lines of a traceback that are kept with its last one


def kept_words(match: Mapping[str, Mapping[str, Any]]) -> frozenset[str]:
    """The words that a rule looks for, taken from the values of its `match`. They stay in its logs."""
    found: set[str] = set()
    for values in match.values():
        test = values.get("exception") or {}
        for text in (values.get("literal"), values.get("regex"), test.get("type"), test.get("message")):
            for first in (r"\2", r"\1"):
                cased = re.sub(r"\[([A-Z])([a-z])\]", first, text or "")
                plain = re.sub(r"\(\?P<\w+>|\\[a-zA-Z]|\[[^\]]*\]|\{[\d,]*\}", " ", cased).replace("\\", "")
                found |= set(_WORD.findall(plain))
    return frozenset(found)


def frame_of(match: Mapping[str, Mapping[str, Any]]) -> str:
    """The function that an exception must come from by the values of a rule's `match`; "main" if any will do."""
    tests = [values.get("exception") or {} for values in match.values()]
    asked = next((str(test["frame"]) for test in tests if "frame" in test), "")
    function = re.search(r"\w{3,60}(?=\$$)", asked)
    return "main" if function is None else function[0]


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


def _vocabularies(base: Mapping[str, str]) -> dict[str, str]:
    return {name: base[name] for name in ("VERSION", "faults.yaml", "actions.yaml") if name in base}


def match_logs(
    candidate: Candidate,
    texts: Mapping[int, Mapping[str, str]],
    cleaner: Anonymiser,
    keep: frozenset[str],
    judge: RuleTester,
) -> dict[str, bytes]:
    """Return one log per incident, all different. A single incident also gets a variant, if its line has other numbers to show."""
    made: list[dict[str, bytes]] = []
    frame = frame_of(candidate.match)
    for number in candidate.support:
        streams = excerpt(candidate.lines.get(number, {}), texts.get(number, {}), cleaner, keep)
        made += [
            stream
            for stream in (streams, retold(streams, frame))
            if stream and judge.speaks(stream) and stream not in made
        ][:1]
    found = _numbered(made[:MOST_LOGS], "")
    if len(made) == 1:
        other = {name: _renumbered(data) for name, data in made[0].items()}
        said = [event.message.encode("ascii", "replace") for event in candidate.events.values()]
        differs = not said or any(_renumbered(message) != message for message in said)
        made_up = [other] if differs and other != made[0] and judge.speaks(other) else []
        found |= _numbered(made_up, "variation-")  # nobody takes it for a second sighting
    return found


def _numbered(logs: Sequence[Mapping[str, bytes]], kind: str) -> dict[str, bytes]:
    """The files of some logs under match/. `kind`: what comes before the number of each."""
    found: dict[str, bytes] = {}
    for index, streams in enumerate(logs, start=1):
        if len(streams) == 1:
            name, data = next(iter(streams.items()))
            found[f"match/{'dmesg-' if name.startswith('dmesg') else ''}{kind}{index}.log"] = data
        else:
            found |= {f"match/{kind}{index}/{name}": data for name, data in streams.items()}
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
            around = all_lines[max(0, at - _before(all_lines, at)) : at + AROUND + 1] if at >= 0 else [line]
            wanted += [text for text in around if text.strip() and text not in wanted]
        clean = [cleaner.line(line, keep) for line in wanted]
        found[_file_name(source, index)] = ("\n".join(clean) + "\n").encode("ascii", "replace")
    return found


def _before(lines: Sequence[str], at: int) -> int:
    """How many lines of context come before one: as far as to the head of the traceback that it ends, if it is near."""
    near = range(at - 1, max(-1, at - MOST_FRAMES), -1)
    head = next((place for place in near if "Traceback (most recent call last)" in lines[place]), None)
    framed = head is not None and all(
        line.lstrip("[]rank0123456789: ").startswith(("File ", "Traceback")) or "  " in line for line in lines[head:at]
    )
    return max(AROUND, at - head) if head is not None and framed else AROUND


def _file_name(source: str, index: int) -> str:
    """Return a file name with only what a reader needs: whether it is a kernel log, and which rank wrote it."""
    name = source.rpartition("/")[2].lower()
    rank = re.search(r"rank[-_]?(\d{1,5})", name)
    if name.startswith(("dmesg", "kern")):
        return f"dmesg-node-{index}.log"
    return f"rank-{rank[1]}.log" if rank is not None else f"part-{index}.log"


def retold(streams: Mapping[str, bytes], frame: str = "main") -> dict[str, bytes]:
    """Return only the exceptions, each with the traceback header that the parser requires."""
    head = (
        b'Traceback (most recent call last):\n  File "/path/train.py", line 10, in '
        + frame.encode()
        + b"\n    step()\n"
    )
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
    return re.sub(rb"(?<![\w.:-])\d{3,6}(?![\w.:-])", lambda hit: bytes(49 + (item - 47) % 9 for item in hit[0]), data)


def silent_logs(
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
