"""Checks a rule file beyond its shape: known words, regexes that compile, holes that can be filled.

The checks use the file's tree, so each fault has its place in the file. A file with the wrong shape is checked as
far as possible.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from kb.errors import Fault
from kb.metrics.series_detectors.detect import DETECTORS, JOB_DETECTORS
from kb.regex.hazards import exponential_parts
from kb.regex.pattern import compiled
from kb.regex.re_tree import parsed, strictly_parsed
from kb.rulebase import patterns
from kb.rulebase.circumstances import CIRCUMSTANCES
from kb.rulebase.rule import Condition, Past, row_keys
from kb.rulebase.texts import HOLE, conditions, requirements_of
from kb.rulebase.yaml_nodes import Node, nearest
from kb.values import dataclass

MAX_REGEX = 2000
MAX_TEXT = 4000  # the schema rejects longer ones; checking them here would only cost time
ALWAYS = frozenset({"rank", "node", "iteration", "stage", "gpu", "pattern"})
OWNERS = frozenset({"user", "hardware", "network", "storage", "platform", "none"})
EXCEPTION_CAPTURES = frozenset({"type", "message", "last_frame"})
SIGNAL_CAPTURES = frozenset({"handler", "debugger", "dumped"})
CLASSIFIED_CAPTURES = frozenset({"class", "traits", "sure", "second"})
STRUCTURES: Mapping[str, frozenset[str]] = {
    kind: frozenset(names.split())
    for kind, names in {
        "exception": "type module message frames last_frame chain chained has_traceback thread",
        "elastic_failure": "name root time host rank local_rank exitcode signal pid error_file traceback",
        "elastic_exit": "exitcode signal local_rank pid binary",
        "launcher_exit": "task node exitcode signal launcher",
        "watchdog": "pg pg_rank seq op numel_in numel_out timeout_ms ran_ms",
        "watchdog_status": "pg pg_rank at enqueued completed from_rank",
        "nccl_warn": "host pid device source function message",
        "nccl_init": "host pid comm_rank nranks device bus comm",
        "ib_completion": "peer status status_name opcode vendor hca",
        "xid": "pci xid pid process detail unit severity link status",
        "sxid": "switch pci sxid severity link detail",
        "oom_kill": "constraint cgroup process pid rss_kb events",
        "hung_task": "process pid seconds",
        "slurm_end": "what job node at why",
        "signal": "signal number pid from",
        "native_crash": "signal what type message where frames library function",
        "error_line": "level type message where thread",
        "checkpoint": "event iteration path",
        "run_end": "how iteration",
        "stack_dump": "tool pid thread frames",
        "p2p_bandwidth": "source target with_peer without_peer collapsed",
        "recovery": "",
        "job_id": "id",
        "process_start": "rank local_rank pid node",
        "progress": "seen last",
        "hang": "state votes probes ranks blocked_on",
        "stack_outlier": "class shared sure activity frame context place caller others alone",
        "collective_culprit": "why op seq group score place state differs ran others",
        "peer_outlier": "metric way size place standing field times value usual often group",
        "slow_phase": "phase seconds usual step",
        "off_plan": "what value planned step",
        "platform_event": "kind reason exit_code signal container restarts count check gpu states metric "
        "object pod condition taint resource problem",
    }.items()
}
DETECTOR_CAPTURES: Mapping[str, frozenset[str]] = {
    "loss_not_finite": frozenset({"value"}),
    "collective_behind": frozenset({"behind", "waited", "reached", "all_behind", "number", "behind_waits", "own_wait"}),
    "collectives_differ": frozenset({"differing", "collectives", "number", "others"}),
    "loss_turned_nan": frozenset(),
    "loss_spike": frozenset({"level", "value", "end"}),
    "throughput_drop": frozenset({"level", "value", "pace"}),
    "straggler_step": frozenset({"level", "value", "pace"}),
    "memory_growth": frozenset({"rate"}),
    "lr_off_schedule": frozenset({"value"}),
}
SERIES_CAPTURES = frozenset({"metric", "value", "level", "since", "who"})
SERIES_NUMBERS = ("above", "below", "points", "steps", "seconds", "after")
CHANGES: Mapping[str, tuple[str, ...]] = {
    "slower": ("share", "past", "least_past", "warm_up"),
    "decline": ("share", "blocks"),
    "drop": ("share", "logged"),
    "broken": ("above", "warm_up"),
    "not_finite": (),
    "jump": ("times", "logged"),
    "growth": ("a_step", "window"),
    "off_schedule": ("steps",),
}  # of kb.metrics.change_points, with the parameters of each
_LISTED = ("action", "fault")  # vocabularies that a command lists
PROSE = ("summary", "cause", "impact", "because")
FILLED = ("text", "command", "verify", "escalate")


@dataclass(frozen=True, slots=True)
class Words:
    """The words that a rule may use: fault classes, actions, and the ids of all rules."""

    faults: Collection[str]
    actions: Collection[str]
    rules: Collection[str]


def check_rule(node: Node, words: Words, *, sound: bool = False) -> Iterator[Fault]:
    """Return all faults in a rule's words, regexes and holes. Conditions are checked elsewhere.

    `sound`: the regexes of the patterns are known to have none.
    """
    captured = set(ALWAYS)
    yield from check_patterns(node, sound=sound)
    for _, pattern in _items(node, "match"):
        captured |= captures(pattern)
    table = node.get("table")
    if table is not None:
        yield from _unknown_name(table.get("key"), captured, "captured name")
        captured |= {"key", "title"}
        yield from _rows_of_patterns(node, table)
    for part in (node, *_rows(table)):
        yield from _unknown_name(part.get("fault"), words.faults, "fault")
        yield from _texts(part, captured, words)
    yield from _unknown_name(node.get("owner"), OWNERS, "owner")
    yield from _links(node, words)


def check_generic(node: Node, words: Words) -> Iterator[Fault]:
    """Return all faults in what a class of faults.yaml says and advises where only the class is known."""
    generic = node.get("generic")
    if generic is not None:
        yield from _texts(generic, ALWAYS | {"type"}, words)  # `type`: of the exception, if it is one


def check_patterns(node: Node, *, sound: bool = False) -> Iterator[Fault]:
    """Return all faults in the patterns under a node's `match`. `sound`: their regexes are known to have none."""
    for name, pattern in _items(node, "match"):
        if not sound:
            yield from _regexes(name, pattern)
        yield from _vocabulary(pattern, node)


def check_regex(place: Node | None, *, on_lines: bool = False) -> Iterator[Fault]:
    """Yield a fault if a full-syntax regex cannot be used, or can take forever on some line.

    `on_lines`: the regex is applied to log lines, which are bytes.
    """
    text = place.text() if place is not None else None
    if place is None or text is None:
        return
    if message := wrong_regex(text) or (wrong_on_bytes(text) if on_lines else "") or slow_regex(text):
        yield place.fault(message)


def check_history(node: Node, condition: Condition, words: Words) -> Iterator[Fault]:
    """Yield a fault if a condition refers to an unknown past fault or rule. `node` is the condition's node."""
    if isinstance(condition, Past):
        for name, known, what in ((condition.fault, words.faults, "fault"), (condition.rule, words.rules, "rule")):
            if name is not None and name not in known:
                yield node.fault(f"no {what} {name[:60]!r}", nearest(name, known))


def captures(pattern: Node) -> frozenset[str]:
    """Return the names that a pattern can capture."""
    found = set(_groups(pattern.get("regex")))
    if pattern.get("signal") is not None:
        found |= SIGNAL_CAPTURES
    exception = pattern.get("exception")
    if exception is not None:
        found |= EXCEPTION_CAPTURES | _groups(exception.get("message"))
        classified = exception.get("classified")
        if classified is not None and classified.value is True:
            found |= CLASSIFIED_CAPTURES
    structure = pattern.get("structure")
    if structure is not None:
        found |= frozenset().union(*(STRUCTURES.get(kind, ()) for kind in _kinds(structure)))
    detect = pattern.get("detect")
    if detect is not None:
        found |= DETECTOR_CAPTURES.get(_word(detect.get("name")), frozenset())
    if pattern.get("series") is not None:
        found |= SERIES_CAPTURES
    plugin = pattern.get("plugin")
    named = plugin.get("captures") if plugin is not None else None
    found |= {_word(part) for part in (named.parts() if named is not None else ())}
    return frozenset(found)


def wrong_regex(regex: str) -> str:
    """Return why a regex with full Python syntax cannot be used; empty if it can."""
    if len(regex) > MAX_REGEX:
        return f"a regular expression of more than {MAX_REGEX} characters"
    try:
        strictly_parsed(regex)
        if "(?<" in regex:
            re.compile(regex)  # finds what the parser does not: a look-behind of varying width
    except (re.error, RecursionError, OverflowError, ValueError, Warning) as error:
        return f"not a regular expression: {error}"
    return ""


def wrong_on_bytes(regex: str) -> str:
    """Return why a regex cannot be used on UTF-8 lines; empty if it can."""
    try:
        parsed(regex.encode())
    except (re.error, UnicodeEncodeError) as error:
        return f"not a regular expression for lines in UTF-8: {error}; write characters themselves, not as \\u…, and no ranges of them"
    return ""


def slow_regex(regex: str) -> str:
    """Return why a regex is exponential or too large, and what to write instead; empty if it is neither."""
    try:
        if "{" in regex:
            compiled(regex)
        return next(map(str, exponential_parts(regex)), "")
    except (re.error, RecursionError, OverflowError, ValueError) as error:
        return str(error) or "it is nested too deeply"


def unsafe_regex(regex: str, ignore_case: bool = False) -> tuple[str, ...]:
    """Yield the faults of a regex that is searched for in every line (kb.rulebase.patterns.check)."""
    if message := wrong_regex(regex):
        return (message,)
    try:
        return patterns.check(regex, ignore_case)
    except RecursionError:
        return ("it is nested too deeply",)


def _regexes(name: str, pattern: Node) -> Iterator[Fault]:
    regex = pattern.get("regex")
    if regex is not None and regex.text() is not None:
        folded = pattern.get("ignore_case")
        for message in unsafe_regex(str(regex.value), folded is not None and folded.value is True):
            yield regex.fault(f"pattern {name!r}: {message}")
    for key in ("confirm", "not_line"):
        for fault in check_regex(pattern.get(key), on_lines=True):
            yield replace(fault, message=f"pattern {name!r}: {fault.message}")
    places = []
    for key in ("exception", "where"):
        places += [child for _, child in _items(pattern, key)]
    for key in ("fields", "not_fields"):
        places += [child for _, child in _items(pattern.get("structure"), key)]
    for place in places:
        for fault in check_regex(place):
            yield replace(fault, message=f"pattern {name!r}: {fault.message}")


def _vocabulary(pattern: Node, node: Node) -> Iterator[Fault]:
    structure, detect = pattern.get("structure"), pattern.get("detect")
    if structure is not None:
        yield from _structure(structure)
    if detect is not None:
        yield from _unknown_name(detect.get("name"), (*DETECTORS, *JOB_DETECTORS), "detector")
    series = pattern.get("series")
    if series is not None:
        yield from _series(series)
    given = {name for name, _ in _items(node, "params")}
    numbers = [value for part in (detect, series, pattern.get("plugin")) for _, value in _items(part, "params")]
    numbers += [one for name in SERIES_NUMBERS if series is not None and (one := series.get(name)) is not None]
    for value in numbers:
        if (text := value.text()) is not None and text[1:] not in given:
            yield value.fault(f"no parameter {text[1:41]!r} under params", nearest(text[1:], given))


def _structure(structure: Node) -> Iterator[Fault]:
    """Yield faults in the kinds of a structure, and in the names of its fields, which every kind must have."""
    kind = structure.get("kind")
    unknown = [name for name in _kinds(structure) if name not in STRUCTURES]
    if kind is not None and unknown:
        yield kind.fault(f"no kind of structure {unknown[0][:60]!r}", nearest(unknown[0], STRUCTURES))
        return
    fields = (
        frozenset.intersection(*(STRUCTURES[name] for name in _kinds(structure))) if kind is not None else frozenset()
    )
    for group in ("fields", "not_fields"):
        for name, _ in _items(structure, group):
            if name not in fields:
                yield _unknown_key(structure.get(group), name, "field", fields)


def _kinds(structure: Node) -> tuple[str, ...]:
    return tuple(_word(structure.get("kind")).split("|"))


def _series(series: Node) -> Iterator[Fault]:
    """Yield faults in the words of a series test. A metric of the bundle may have any name."""
    change = series.get("change")
    yield from _unknown_name(change, CHANGES, "change")
    numbers = CHANGES.get(_word(change))
    for name, _ in _items(series, "params") if numbers is not None else ():
        if name not in (numbers or ()):
            yield _unknown_key(series.get("params"), name, "number of this change", numbers or ())


def _unknown_key(node: Node | None, name: str, what: str, known: Collection[str]) -> Fault:
    if node is None:
        return Fault("", 1, 1, f"no {what} {name[:40]!r}")
    return node.key_fault(name, f"no {what} {name[:40]!r}", nearest(name, known))


def _texts(part: Node, captured: Collection[str], words: Words) -> Iterator[Fault]:
    """Yield faults in the holes, conditions and actions of a rule or row."""
    texts = [part.get(key) for key in ("title", *PROSE, "lies_in")]
    known = {*captured, *CIRCUMSTANCES}
    remediation = part.get("remediation")
    for step in remediation.parts() if remediation is not None else ():
        yield from _unknown_name(step.get("action"), words.actions, "action")
        texts += [step.get(key) for key in FILLED]
        for name, regex in _items(step, "only"):
            if name not in known:
                yield _unknown_key(step.get("only"), name, "captured name", known)
            yield from check_regex(regex)
    for node in texts:
        if node is None:
            continue
        text = _word(node)[:MAX_TEXT]
        for message in unknown_conditions(text, captured):
            yield node.fault(message, "names of captures, and of circumstances: " + ", ".join(CIRCUMSTANCES))
        for hole in HOLE.finditer(text):
            if hole[1] not in known:
                hint = (
                    nearest(hole[1], known)
                    or "a hole is the name of a capture, or one of rank, node, iteration, stage, gpu"
                )
                yield node.fault(f"nothing captures {{{hole[1][:40]}}}", hint)


def unknown_conditions(text: str, captured: Collection[str]) -> Iterator[str]:
    """Yield what is wrong with the conditions of a text: a name or a value that does not exist, or one that is cut."""
    if text.count("[if ") != sum(1 for _ in conditions(text)):
        yield "a condition is written [if name=value: text], without brackets inside"
    for condition in conditions(text):
        for name, _, values in requirements_of(condition):
            known = CIRCUMSTANCES.get(name)
            if name not in captured and known is None:
                yield f"no capture or circumstance {name[:40]!r}"
            elif name not in captured and known and not set(values) <= set(known):
                yield f"{name} is one of {', '.join(known)}"


def _rows_of_patterns(node: Node, table: Node) -> Iterator[Fault]:
    """Yield a fault for each row that no pattern selects, if the pattern's name is the key."""
    if _word(table.get("key")) == "pattern":
        known = [name for name, _ in _items(node, "match")]
        for written, _ in _items(table, "rows"):
            for name in row_keys(written):
                if name not in known:
                    yield _unknown_key(table.get("rows"), written, "pattern", known)


def _links(node: Node, words: Words) -> Iterator[Fault]:
    explains = node.get("explains")
    for part in explains.parts() if explains is not None else ():
        yield from _unknown_name(part, {*words.faults, *words.rules}, "fault or rule")
    for relation, item in _items(node, "related"):
        if relation != "renamed":  # an id from before a rename is no longer a rule
            yield from _unknown_name(item, words.rules, "rule")
    deprecated = node.get("deprecated")
    if deprecated is not None:
        yield from _unknown_name(deprecated.get("replaced_by"), words.rules, "rule")


def _unknown_name(node: Node | None, known: Collection[str], what: str) -> Iterator[Fault]:
    text = node.text() if node is not None else None
    if node is not None and text is not None and text not in known:
        listed = f"`signalbox rules {what}s` lists them" if what in _LISTED else ""
        yield node.fault(f"no {what} {text[:60]!r}", nearest(text, known) or listed)


def _items(node: Node | None, key: str) -> tuple[tuple[str, Node], ...]:
    child = node.get(key) if node is not None else None
    return tuple(child.items()) if child is not None else ()


def _rows(table: Node | None) -> tuple[Node, ...]:
    default = table.get("default") if table is not None else None
    return (*(row for _, row in _items(table, "rows")), *((default,) if default is not None else ()))


def _word(node: Node | None) -> str:
    return (node.text() if node is not None else None) or ""


def _groups(node: Node | None) -> frozenset[str]:
    text = _word(node)
    return frozenset() if "(?P<" not in text or wrong_regex(text) else patterns.groups(text)
