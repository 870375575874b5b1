"""The edge of a learned pattern: the same event in other forms, on which it must match, and lines of a healthy run that resemble it.

They are made by rule from the messages of the incidents, so that a pattern is tested before anyone reads it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from kb.anomalies.core.severity_words import is_bad

MOST_WORDS = 6  # of the part of a message that names the component
_NUMBER = re.compile(r"(?<![\w.])\d{1,9}(?![\w.])")
_WORD = re.compile(r"[A-Za-z][\w-]*")
_OPPOSITES = {
    "failed": "succeeded", "failure": "success", "fail": "succeed", "fails": "succeeds", "cannot": "can", "can't": "can", "could not": "could",
    "unable": "able", "refused": "accepted", "refusing": "agreeing", "rejected": "accepted", "denied": "granted", "lost": "restored",
    "missing": "present", "invalid": "valid", "expired": "renewed", "timed out": "completed", "aborted": "completed", "closed": "opened",
    "unreachable": "reachable", "mismatch": "match", "mismatched": "matching", "corrupt": "intact", "corrupted": "intact", "stale": "fresh",
    "exceeded": "kept", "exhausted": "available", "broken": "fine", "dead": "alive", "not found": "found", "no longer": "again", "violated": "kept",
    "out of order": "in order", "unexpected": "expected", "stuck": "running", "unavailable": "available", "diverged": "agree", "error": "ok",
}  # fmt: skip
_BAD = re.compile(rf"(?i)\b(?:{'|'.join(sorted(map(re.escape, _OPPOSITES), key=len, reverse=True))})\b")


@dataclass(frozen=True, slots=True)
class Edge:
    """Texts of one event: `variations` report it again, `near` report that the same component is fine. Each is a text of lines."""

    variations: tuple[str, ...] = ()
    near: tuple[str, ...] = ()


def edge_of(message: str, exception: str = "") -> Edge:
    """The edge of a message. `exception`: the full class name if the message is that of a Python exception."""
    near = tuple(dict.fromkeys(_near(message)))
    return Edge(tuple(dict.fromkeys(_raised(exception, message) if exception else _written(message))), near)


def healthy_twins(message: str) -> tuple[str, ...]:
    """Messages of the same component in health: the opposite, slowness, a retry, its words in a path."""
    return tuple(dict.fromkeys(_twins(message)))


def _twins(message: str) -> list[str]:
    found = []
    fine = _BAD.sub(lambda hit: _OPPOSITES[hit[0].lower()], message)
    if fine != message:
        found.append(fine)
    begin = _component(message)
    if begin:
        found += [
            f"{begin} is slow: took 12 s",
            f"{begin}: attempt 1 of 3 did not work, retrying in 5 s",
            f"{begin}: done",
        ]
    words = [word.lower() for word in _WORD.findall(message)][:MOST_WORDS]
    if len(words) > 1:
        found.append(f"reading /data/{words[0]}/{'-'.join(words[1:])}.json")
    return found


def _component(message: str) -> str:
    """The words before the first that says that something is wrong."""
    place = len(message)
    for hit in _WORD.finditer(message):
        if is_bad(hit[0]) or _BAD.fullmatch(hit[0]):
            place = hit.start()
            break
    words = message[:place].split()
    return " ".join(words[:MOST_WORDS]).strip(" ,;:-(") if len(words) > 1 else ""


def _near(message: str) -> list[str]:
    twins = _twins(message)
    return [f"2026-03-11 10:31:12,104 INFO {twin}" for twin in twins] + twins[:1]


def _written(message: str) -> list[str]:
    other = _renumbered(message)
    return [
        message,
        f"[rank7]: {other}",
        f"2026-03-11T10:31:12.104Z ERROR {message}",
        f"2026-03-11 10:31:12,104 - worker - CRITICAL - {other}",
        json.dumps({"time": "2026-03-11T10:31:12Z", "severity": "ERROR", "message": message}),
        json.dumps({"msg": other, "level": "error", "rank": 12, "host": "node-a"}),
        f"E0311 10:31:12.104000 811 worker.cc:93] {message}",
    ]


def _raised(exception: str, message: str) -> list[str]:
    head = 'Traceback (most recent call last):\n  File "/path/train.py", line 10, in main\n    step()'
    other = _renumbered(message)
    traced = [*head.split("\n"), f"{exception}: {message}"]
    return [
        "\n".join(traced),
        "\n".join(f"[rank7]: {line}" for line in [*head.split("\n"), f"{exception}: {other}"]),
        "\n".join(f"12: {line}" for line in traced),
        f"{head}\n{exception.rpartition('.')[2]}: {other}",
        json.dumps({"level": "error", "msg": "uncaught exception", "exc_info": f"{head}\n{exception}: {message}"}),
    ]


def _renumbered(message: str) -> str:
    return _NUMBER.sub(lambda hit: str(int(hit[0]) + 3), message)
