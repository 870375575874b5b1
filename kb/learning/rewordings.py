"""The edge of a learned pattern: the same event in other forms, on which it must match, and lines of a healthy run that resemble it.

They are generated from the messages of the incidents, so that a pattern is tested before anyone reads it.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

from kb.anomalies.core.severity_words import is_bad
from kb.learning.tokenizer import LEADING

MOST_WORDS = 6  # of the part of a message that names the component
MOST_NAMED = 2  # words that name a thing, one more if "of" stands between them
COLUMNS = 80
WRAPPED = f"wrapped at {COLUMNS} columns"
_NUMBER = re.compile(r"(?<![\w.:])(?<![Ee]rrno )\d{1,9}(?![\w.]|:[0-9A-Fa-f]{2}\b)")
_PCI = re.compile(
    r"(?<![\w:])(?P<domain>[0-9A-Fa-f]{4,8}:)?(?P<bus>[0-9A-Fa-f]{2})(?P<rest>:[01][0-9A-Fa-f]\.[0-7])(?!\w)"
)
_HEX = re.compile(r"\b(?=[0-9a-f-]*\d)(?=[0-9a-f-]*[a-f])[0-9a-f]{8}[0-9a-f-]{0,32}\b")
_UNIT = re.compile(r"(?<![\w.])(\d{1,9}(?:\.\d{1,6})?)( ?)(TiB|GiB|MiB|TB|GB|MB|s|ms)\b")
# the same amount in the next smaller unit
_SMALLER = {
    "TiB": ("GiB", 1024), "GiB": ("MiB", 1024), "MiB": ("KiB", 1024), "TB": ("GB", 1000), "GB": ("MB", 1000), "MB": ("kB", 1000),
    "s": ("ms", 1000), "ms": ("us", 1000),
}  # fmt: skip
_CAUSED = "\n\nThe above exception was the direct cause of the following exception:\n\n"
_GROUP = "  + Exception Group Traceback (most recent call last):\n  | ExceptionGroup: unhandled errors (1 sub-exception)\n  +-+---------------- 1 ----------------\n"
_WORD = re.compile(r"[A-Za-z][\w-]*")
_HAPPENS = re.compile(r"(?i)is|are|was|were|has|had|have|belongs?|\w{3,}ed")
_PLAIN_FIRST = re.compile(r"[A-Za-z][a-z]+(?![\w.])")  # no name of a program or a variable
_REASON = re.compile(r"[,;:(]| (?:by|because|since|after|as|due)\b")  # where a line begins to tell why, or how much
_VALUE = re.compile(r"[\d'\"]")
_SUFFIX = re.compile(r"(?:Error|Exception)$")
_OPPOSITES = {
    "failed": "succeeded", "failure": "success", "fail": "succeed", "fails": "succeeds", "cannot": "can", "can't": "can", "could not": "could",
    "unable": "able", "refused": "accepted", "refusing": "agreeing", "rejected": "accepted", "denied": "granted", "lost": "restored",
    "missing": "present", "invalid": "valid", "expired": "renewed", "timed out": "completed", "aborted": "completed", "closed": "opened",
    "unreachable": "reachable", "mismatch": "match", "mismatched": "matching", "corrupt": "intact", "corrupted": "intact", "stale": "fresh",
    "exceeded": "kept", "exhausted": "available", "broken": "fine", "dead": "alive", "not found": "found", "no longer": "again", "violated": "kept",
    "out of order": "in order", "unexpected": "expected", "stuck": "running", "unavailable": "available", "diverged": "agree", "error": "ok",
    "quarantined": "released", "overlaps": "follows", "overlap": "follow", "given up": "complete", "used up": "available", "fragmented": "compact",
    "differs": "matches", "differ": "match", "detached": "attached", "attached twice": "attached", "has no": "has", "have no": "have", "turned away": "admitted",
    "fenced": "opened", "overdue": "on time", "is full": "has room", "is not": "is", "are not": "are", "was not": "was", "were not": "were", "did not": "did",
    "does not": "does", "do not": "do", "rewound": "advanced", "blocked": "allowed", "dropped": "kept", "stopped": "started", "skipped": "taken",
    "otherwise than": "as", "never": "always", "shrank": "grew", "withdrawn": "granted", "revoked": "granted", "inconsistent": "consistent",
}  # fmt: skip
SHARE = re.compile(r"(?<![\w.])(\d{1,9}) of (\d{1,9})(?![\w.])")
_BAD = re.compile(rf"(?i)\b(?:{'|'.join(sorted(map(re.escape, _OPPOSITES), key=len, reverse=True))})\b")


@dataclass(frozen=True, slots=True)
class EventWords:
    """What the decisive line of an incident says. `exception`: the full class name if the message is that of a Python exception."""

    message: str
    exception: str = ""


@dataclass(frozen=True, slots=True)
class Rewording:
    """A text of lines, and in a few words how it is written (`kind`)."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Edge:
    """Texts of one event: `variations` report it again, `near` report that the same component is fine."""

    variations: tuple[Rewording, ...] = ()
    near: tuple[Rewording, ...] = ()


def edge_of(event: EventWords, *, numbers: bool = True) -> Edge:
    """The edge of an event. `numbers`: they may vary."""
    other = _varied(event.message) if numbers else event.message
    made = _raised(event, other) if event.exception else _written(event.message, other)
    return Edge(_distinct(made), _distinct(_near(event.message)))


def healthy_twins(message: str) -> tuple[str, ...]:
    """Messages of the same component in health: the opposite, slowness, a retry, its words in a path."""
    return tuple(dict.fromkeys(item.text for item in _twins(message)))


def _distinct(made: Iterator[Rewording]) -> tuple[Rewording, ...]:
    return tuple({item.text: item for item in made}.values())


# -- variations ----------------------------------------------------------------------------------------------------------


def _written(message: str, other: str) -> Iterator[Rewording]:
    """A line as launchers, logging frameworks and log shippers write it. `other`: the message with other values."""
    yield Rewording("as it is", message)
    if other != message:
        yield Rewording("other numbers, units and ids", other)
    yield Rewording("prefix of torchrun", f"[rank7]: {other}")
    yield Rewording("prefix of srun", f" 7: {message}")
    yield Rewording("prefix of Ray", f"(worker pid=811, ip=192.0.2.7) {other}")
    yield Rewording("time and level", f"2026-03-11T10:31:12.104Z ERROR {message}")
    yield Rewording("Python logging", f"2026-03-11 10:31:12,104 - worker - CRITICAL - {other}")
    yield Rewording("level first", f"ERROR:worker:{message}")
    yield Rewording("brackets", f"[2026-03-11 10:31:12,104][worker][ERROR] - {other}")
    yield Rewording("bars", f"2026-03-11 10:31:12.104 | ERROR    | worker:main:93 - {message}")
    yield Rewording("glog", f"E0311 10:31:12.104000 811 worker.cc:93] {message}")
    yield Rewording("syslog", f"Mar 11 10:31:12 node-a worker[811]: {other}")
    record = {"time": "2026-03-11T10:31:12Z", "severity": "ERROR", "message": message}
    yield Rewording("JSON", json.dumps(record))
    yield Rewording("JSON, message first", json.dumps({"msg": other, "level": "error", "rank": 12, "host": "node-a"}))
    yield Rewording(
        "Docker's JSON", json.dumps({"log": f"ERROR {other}\n", "stream": "stderr", "time": "2026-03-11T10:31:12Z"})
    )
    yield Rewording("journal's JSON", json.dumps({"PRIORITY": "3", "MESSAGE": message, "_PID": "811"}))
    yield Rewording("JSON, as the error of a record", json.dumps({"level": "error", "msg": "stopped", "error": other}))
    yield Rewording("Kubernetes", f"2026-03-11T10:31:12.104512893Z stderr F {message}")
    yield Rewording("tag of Open MPI", f"[1,7]<stderr>:ERROR {other}")
    yield Rewording("c10d", f"[rank7]:[E311 10:31:12.104512893 worker.cpp:93] {message}")
    yield Rewording("log4j", f"2026-03-11 10:31:12,104 ERROR [main] com.vendor.Worker (Worker.java:93): {other}")
    yield Rewording("fields behind it", f"2026-03-11T10:31:12.104512Z ERROR worker::io: {message} attempt=3 rank=7")
    yield Rewording("colours", f"\x1b[31mERROR\x1b[0m {other}")
    yield Rewording("behind another's words", f"2026-03-11 10:31:12,104 ERROR main: run stopped: {message}")
    if _PLAIN_FIRST.match(message):
        yield Rewording("other case of its first letter", f"ERROR: {message[:1].swapcase()}{message[1:]}")
    quoted = message.replace("\\", "\\\\").replace('"', '\\"')
    yield Rewording("key and value", f'time="2026-03-11T10:31:12Z" level=error msg="{quoted}" rank=12')
    if len(message) > COLUMNS:
        yield Rewording(WRAPPED, "\n".join(textwrap.wrap(message, COLUMNS)))


def _raised(event: EventWords, other: str) -> Iterator[Rewording]:
    """An exception as Python, launchers and loggers print it."""
    head = 'Traceback (most recent call last):\n  File "/path/train.py", line 10, in main\n    step()'
    bare = event.exception.rpartition(".")[2]
    told = _said(event.exception, event.message)
    whole, changed = f"{head}\n{told}", f"{head}\n{_said(event.exception, other)}"
    yield Rewording("traceback alone", f"{head}\n{told}")
    if changed != whole:
        yield Rewording("other numbers, units and ids", changed)
    yield Rewording("prefix of torchrun", _prefixed("[rank7]: ", changed))
    yield Rewording("prefix of srun", _prefixed("12: ", f"{head}\n{told}"))
    yield Rewording("prefix of Ray", _prefixed("(worker pid=811, ip=192.0.2.7) ", changed))
    yield Rewording("class without its module", f"{head}\n{_said(bare, other)}")
    yield Rewording("class of another module", f"{head}\n{_said(f'vendor.core.errors.{bare}', event.message)}")
    renamed = _SUFFIX.sub(lambda hit: "Exception" if hit[0] == "Error" else "Error", bare)
    if renamed != bare and bare not in ("Error", "Exception"):
        yield Rewording("class renamed", f"{head}\n{_said(f'vendor.{renamed}', event.message)}")
    record = {"level": "error", "msg": "uncaught exception", "exc_info": f"{head}\n{told}"}
    yield Rewording("JSON", json.dumps(record))
    yield Rewording("Kubernetes", _prefixed("2026-03-11T10:31:12.104512893Z stderr F ", changed))
    yield Rewording("process of a pool", f"Process SpawnProcess-3:\n{head}\n{told}")
    yield Rewording("cause of another", f"{changed}{_CAUSED}{head}\nRuntimeError: run stopped")
    yield Rewording("group of exceptions", f"{_GROUP}{_prefixed('    | ', whole)}\n    +----")
    yield Rewording(
        "task of Ray",
        f"ray.exceptions.RayTaskError({bare}): ray::step() (pid=811, ip=192.0.2.7)\n{_body(head)}\n{told}",
    )
    if event.message:
        yield Rewording(
            "logged with its class behind other words", f"CRITICAL:root:caught {_said(bare, other)}; giving up"
        )
        yield Rewording("logged without a traceback", f"2026-03-11 10:31:12,104 ERROR worker: {_said(bare, other)}")
    if len(told) > COLUMNS:
        yield Rewording(WRAPPED, "\n".join([head, *textwrap.wrap(told, COLUMNS)]))


def _body(head: str) -> str:
    """The frames of a traceback without its first line."""
    return head.partition("\n")[2]


def _said(name: str, message: str) -> str:
    return f"{name}: {message}" if message else name


def _prefixed(prefix: str, text: str) -> str:
    return "\n".join(f"{prefix}{line}" for line in text.split("\n"))


def _varied(message: str) -> str:
    """The message with other numbers and ids, and amounts in another unit."""
    other = _HEX.sub(lambda hit: hit[0][::-1] if "-" not in hit[0] else hit[0].replace("1", "2"), message)
    none = {hit.start() for hit in SHARE.finditer(other) if hit[1] == "0"}  # none of them: three would be no failure
    other = _NUMBER.sub(lambda hit: hit[0] if hit.start() in none else str(int(hit[0]) + 3), other)
    other = _UNIT.sub(_in_smaller, other)
    return _PCI.sub(lambda hit: f"{hit['domain'] or ''}{(int(hit['bus'], 16) + 3) % 256:02x}{hit['rest']}", other)


def _in_smaller(hit: re.Match[str]) -> str:
    unit, times = _SMALLER[hit[3]]
    return f"{float(hit[1]) * times:.0f}{hit[2]}{unit}"


# -- near misses ---------------------------------------------------------------------------------------------------------


def _near(message: str) -> Iterator[Rewording]:
    """Lines of a healthy run, as a logging framework writes them; success also without a level."""
    for twin in _twins(message):
        level = "WARNING" if twin.kind in ("slowness", "a retry", "a retry with the same words") else "INFO"
        yield Rewording(twin.kind, f"2026-03-11 10:31:12,104 {level} {twin.text}")
        if twin.kind == "success":
            yield twin
    if len(_WORD.findall(message)) > 2:
        yield from _harmless(message)


def _harmless(message: str) -> Iterator[Rewording]:
    """The same words at a level below error, as programs write levels, and at error level with what the program did about it."""
    quoted = message.replace("\\", "\\\\").replace('"', '\\"')
    yield Rewording("a level in brackets", f"[2026-03-11 10:31:12] [info] {message}")
    yield Rewording("a level before a colon", f"worker: debug: {message}")
    yield Rewording("a level as a field", f'time="2026-03-11T10:31:12Z" level=info msg="{quoted}"')
    yield Rewording("a level in JSON", json.dumps({"lvl": "warn", "ts": 1773225072.1, "msg": message}))
    yield Rewording("a retry at error level", f"2026-03-11 10:31:12,104 ERROR worker: {message}; will retry (1 of 3)")
    yield Rewording("a recovery at error level", f"2026-03-11 10:31:12,104 ERROR worker: recovered from: {message}")
    yield Rewording(
        "a fallback at error level", f"2026-03-11 10:31:12,104 ERROR worker: {message}, falling back to the last one"
    )


def _twins(message: str) -> Iterator[Rewording]:
    fine = _success(message)
    if fine:
        yield Rewording("success", fine)
    begin = component_of(message)
    if begin:
        yield Rewording("slowness", f"{begin} is slow: took 12 s")
        yield Rewording("a retry", f"{begin}: attempt 1 of 3 did not work, retrying in 5 s")
        yield Rewording("a normal end", f"{begin}: done")
        yield Rewording("a report of another rank", f"watchdog: rank 5 reports that {begin} is fine")
    words = [word.lower() for word in _WORD.findall(message)][:MOST_WORDS]
    if len(words) > 1:
        yield Rewording("its words in a path", f"reading /data/{words[0]}/{'-'.join(words[1:])}.json")
        yield Rewording("its words in a setting", f"config: retry_on_{'_'.join(words).replace('-', '_')}=true")
    if len(words) > 2:
        yield Rewording("a retry with the same words", f"{message}; retrying (attempt 1 of 3)")


def _success(message: str) -> str:
    """The message with the opposite of what it says is wrong, without what it says of the reason; empty if it has no such word."""
    bad = _BAD.search(message)
    if bad is None:
        return ""
    behind = message[bad.end() :]
    ends = _REASON.search(behind)
    return (
        f"{message[: bad.start()]}{_OPPOSITES[bad[0].lower()]}{behind[: ends.start()] if ends is not None else behind}"
    )


def component_of(message: str) -> str:
    """The words before the first that says what happened to it, or that something is wrong, without those that only lead to it.

    If there are more words than a name has, or words after a value, they say what happened.
    """
    place = len(message)
    for hit in _WORD.finditer(message):
        if is_bad(hit[0]) or _BAD.fullmatch(hit[0]) or (hit.start() and _HAPPENS.fullmatch(hit[0])):
            place = hit.start()
            break
    named = message[:place].partition(": ")[0].split()
    words = named[: MOST_NAMED + 1 if named[1:2] and named[1] in ("of", "for") else MOST_NAMED]
    words = [
        *takewhile(lambda word: not _VALUE.search(word), words[:1]),
        *takewhile(lambda word: word.isalpha() or word.isdigit(), words[1:]),
    ]
    while words and words[-1].strip(" ,;:-(").lower() in LEADING:
        words.pop()
    return " ".join(words).strip(" ,;:-(") if len(words) > 1 else ""
