"""Next steps for an unknown failure: what to read, whom to ask, which known faults are similar, what to collect."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from kb.diagnosis.first_unexplained import Unexplained
from kb.diagnosis.nearest_faults import NearFault
from kb.parsers.logs.error_lines import message_of
from kb.regex.lazy import lazy_compile
from kb.rulebase.rule import RemediationStep

_LEARN = "Once you know the cause, make a rule of it for your site, so that the next run is explained at once. `signalbox rules faults` lists the fault classes."
_NEW_RULE = "signalbox rules new my-rule --site site --family site --fault {nearest|unknown} --title 'What happened' --regex {regex} --log {source}"
_OF_LAUNCHER = lazy_compile(r"(?i)\W{0,8}exit_?(?:code|status)?\W{0,8}")  # words of a launcher's table, in every report
SEARCHED = 60  # number of characters of the line to search for
# A piece between two matches needs no escapes and is not a value that masking hides.
_MARKS = lazy_compile(r"[:=\"'{}\[\]\\]")
# what a launcher says of a process whose own log states why it ended
_ELSEWHERE = lazy_compile(
    r"(?i)\b(?:check|see|look (?:at|in(?:to)?)|refer to|inspect|read) (?:its|their|the (?:worker|trainer|process|task|rank|child|node)(?:'s|s'?)?(?: own)?) (?:log|output|stderr|error file)s?\b"
)
_READ_OTHER = (
    "This line refers to another log, that of the process which ended, and says nothing of the cause itself. Find that log where the launcher "
    "writes the output of its processes, read its end, and diagnose it with this one."
)
# what differs from run to run: addresses, codes of digits and letters, numbers
_VARIES = lazy_compile(r"(\b0[xX][0-9a-fA-F]+\b|\b(?=[a-zA-Z]*\d)(?=\d*[a-zA-Z])[0-9a-zA-Z]{3,}\b|\d+)")
_LIBRARY = lazy_compile(r"(?:site|dist)-packages/|/lib/python3|^<")
_FRAME = lazy_compile(
    r"(?P<folder>(?:[^:\n]*/)?)(?P<file>[^:/\n]{1,200}):(?P<number>\d{1,9}) in (?P<function>.{1,200})"
)


def words_of(
    found: Unexplained, where: str, source: str, near: Sequence[NearFault], given: Mapping[str, bool]
) -> Mapping[str, str]:
    """Return the values for the holes in the steps' texts. `where` is the rank or node, `source` the path of the log.

    `given`: whether the logs have the exit status of the process ("exited"), and a kernel log ("kernel").
    """
    event = found.event
    frame = None if _LIBRARY.search(event.frame) else _FRAME.fullmatch(event.frame)
    searched = max(_MARKS.split(message_of(event.line)), key=len).strip()[:SEARCHED].strip()
    searched = "" if _OF_LAUNCHER.fullmatch(searched) else searched
    known = {
        "where": where,
        "source": source,
        "searched": searched,
        "regex": _regex_of(searched),
        "raised": event.name if event.kind == "exception" else "",
        "folder": (frame["folder"].rstrip("/") or ("/" if frame["folder"] else ".")) if frame else "",
        "file": frame["file"] if frame else "",
        "number": frame["number"] if frame else "",
        "function": frame["function"] if frame else "",
        "status": event.name if event.kind in ("end", "exit") and event.name.isdigit() else "",
        "near": "; ".join(f"{item.fault} ({item.title}: {', '.join(item.shared[:3])})" for item in near),
        "nearest": near[0].fault if near else "",
        "elsewhere": "yes" if _ELSEWHERE.search(event.line) else "",
        **{name: "yes" if holds else "" for name, holds in given.items()},
    }
    return {name: value for name, value in known.items() if value}


def _regex_of(text: str) -> str:
    """Return a regex for a piece of a line, in which numbers and codes may differ."""
    parts = enumerate(_VARIES.split(text))  # every other one varies
    return "".join(_same_kind(part) if place % 2 else _escaped(part) for place, part in parts)


def _same_kind(value: str) -> str:
    """Return a regex for values like this one: an address, a number, or a code of digits and letters."""
    if value[:2] in ("0x", "0X"):
        return r"0[xX][0-9a-fA-F]+"
    return r"\d+" if value.isdigit() else r"\w+"


def _escaped(text: str) -> str:
    return re.sub(r"\\([ -])", r"\1", re.escape(text))


def steps(known: Mapping[str, str]) -> Iterator[RemediationStep]:
    """Yield the steps that suit what is known about the failure, as texts whose holes are filled from the same values."""
    command = "grep -n -B 40 -F -- {searched} {source}" if {"searched", "source"} <= known.keys() else None
    if "elsewhere" in known:
        yield _step("look_at_logs", _READ_OTHER, None)
    else:
        text = "Find the cause before restarting: read the log of {where} back from this line."
        yield _step("look_at_logs", text, command)
        yield _question(known)
    if "near" in known:
        text = "Compare with the known faults that share the rarest words with these lines: {near}."
        yield _step("run_check", text, "signalbox rules list --fault {nearest}")
    status = "" if "exited" in known else "the exit status of {where} and "
    if "kernel" not in known:
        text = f"If the lines do not explain it, collect {status}the kernel log of {'its node' if status else 'the node of {where}'}."
        yield _step("collect_evidence", text, "dmesg -T | tail -n 200")
    elif status:
        yield _step("collect_evidence", "If the lines do not explain it, collect the exit status of {where}.", None)
    if command is not None:
        yield RemediationStep("fix_code", _LEARN, "safe", command=_NEW_RULE)


def _question(known: Mapping[str, str]) -> RemediationStep:
    """Return a question for someone who knows the program, if the event names a place in the code to ask about."""
    if "file" in known:
        fails = "raise {raised}" if "raised" in known else "fail there"
        return _step(
            "run_check",
            f"Ask the author of {{function}} ({{file}}, line {{number}}) what can make it {fails}, and what changed there since the last good run.",
            "git -C {folder} log -n 5 --oneline -- {file}",
        )
    if "status" in known:
        text = (
            "Ask the author of the program what exit status {status} means, and what changed since the last good run."
        )
        return _step("run_check", text, 'grep -rnE "exit\\(" --include=*.py .')
    text = "Ask the author of the program what causes it to print this line, and what changed in code, data and settings since the last good run."
    return _step("run_check", text, "git log -n 5 --oneline")


def _step(action: str, text: str, command: str | None) -> RemediationStep:
    return RemediationStep(action, text, "look", command=command)
