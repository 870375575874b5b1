"""Finds problems in valid rules: too few tests, weak or slow patterns, unused parts, missing references.

The loader rejects rules that cannot be used; the linter reports problems that a reviewer would reject.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from kb.errors import Fault
from kb.regex.hazards import hazards
from kb.regex.sure_groups import sure_groups
from kb.rulebase.checks import FILLED, PROSE, slow_regex, unsafe_regex, wrong_regex
from kb.rulebase.condition_parts import names, walk
from kb.rulebase.patterns import literal_regex
from kb.rulebase.rule import All, Any, Name, Pattern, Rule, Rulebook, TableRow
from kb.rulebase.rulebook import Positions
from kb.rulebase.texts import gaps, in_every_case

MATCH_TESTS = 2
SILENT_TESTS = 1
TITLE = 80
UNWRITTEN = "Not known yet."  # of a scaffold
_LINK = re.compile(
    r"incident:[0-9]{1,18}\Z|https?://[A-Za-z0-9][A-Za-z0-9.-]*\.[A-Za-z]{2,}(?::[0-9]{1,5})?(?:[/?#][!-~]*)?\Z"
)


def lint(
    rulebook: Rulebook,
    tests: Mapping[str, Sequence[str]],
    positions: Positions | None = None,
    empty: Mapping[str, Collection[str]] | None = None,
    *,
    own: Collection[str] = (),
) -> tuple[Fault, ...]:
    """Check all rules.

    Args:
        rulebook: the rules.
        tests: rule id → names of its tests, relative to its folder ("match/a.log", "silent/b/rank-0.log").
        positions: the places of the rules' parts (`Loaded.positions`); without them, faults are reported at line 1.
        empty: rule id → its tests that contain no text.
        own: ids of a site's own rules, which need no public page and fewer tests (`recommended` has advice for them).
    """
    places = positions or Positions()
    found: list[Fault] = []
    for rule in rulebook.rules:
        found += _texts(rule, places, referenced=rule.id not in own)
        found += () if rule.id in own else _unwritten(rule, places)
        found += _holes(rule, places)
        found += () if rule.id in own else _tests(rule, places, tests.get(rule.id, ()))
        found += _empty_tests(rule, places, (empty or {}).get(rule.id, ()))
        excepted = [item.condition for item in rule.not_when]
        excepted += [site_exception.condition for site_exception in rule.site if site_exception.condition is not None]
        used = names(rule.when).union(*(names(item) for item in excepted))
        for pattern in rule.patterns:
            if pattern.name not in used:
                found.append(
                    places.fault(
                        rule,
                        f"match.{pattern.name}",
                        f"the condition in `when` does not use the pattern {pattern.name!r}",
                    )
                )
            found += _pattern(rule, pattern, places)
    found += _duplicates(rulebook, places)
    return tuple(sorted(set(found)))


def recommended(
    rulebook: Rulebook, tests: Mapping[str, Sequence[str]], positions: Positions, own: Collection[str]
) -> tuple[Fault, ...]:
    """Advice for a site's own rules: they work as they are. `tests`, `positions`: as for `lint`; `own`: their ids."""
    found: list[Fault] = []
    for rule in rulebook.rules:
        if rule.id in own:
            found += _tests(rule, positions, tests.get(rule.id, ()))
            found += _unwritten(rule, positions)
        if rule.id in own and rule.status == "draft":
            found.append(
                positions.fault(
                    rule, "status", "a draft rule never fires", "set it to experimental once the tests pass"
                )
            )
    return tuple(sorted(found))


def _unwritten(rule: Rule, places: Positions) -> Iterator[Fault]:
    """Yield a fault for each text of an active rule that is still the scaffold's."""
    for name in PROSE if rule.status not in ("draft", "deprecated") else ():
        if getattr(rule, name) == UNWRITTEN:
            yield places.fault(
                rule, name, f"{name} is still {UNWRITTEN!r}", "write what you know, for whoever reads the answer"
            )


def _texts(rule: Rule, places: Positions, *, referenced: bool = True) -> Iterator[Fault]:
    if _length(rule.title) > TITLE:
        yield places.fault(rule, "title", f"the title has {len(rule.title)} characters, more than {TITLE}")
    rows = tuple(rule.table.rows.items()) if rule.table else ()
    sourced = any(row.reference for _, row in rows)
    for key, row in rows:
        if sourced and row.reference is None:
            yield places.fault(rule, f"table.rows.{key}", "no reference", "other rows of this table have one")
        if _length(row.title) > TITLE:
            path = f"table.rows.{key}.title"
            yield places.fault(rule, path, f"the title has {len(row.title)} characters, more than {TITLE}")
    if rule.status == "deprecated":
        return
    if not rule.remediation and not (rows and all(row.remediation or row.ignore for _, row in rows)):
        yield places.fault(rule, "remediation", "no remediation", "add what a person can do now")
    if not rule.references and referenced:
        yield places.fault(rule, "references", "no reference", "add a public page that supports the rule")
    for index, reference in enumerate(rule.references):
        if _LINK.match(reference.url) is None:
            path = f"references.{index}.url"
            yield places.fault(
                rule,
                path,
                f"{reference.url[:80]!r} is not a link",
                "http:// or https:// and a host, or incident:<number>",
            )


def _length(title: str) -> int:
    """Return the length of a title, with the longest of its alternatives."""
    return max(map(len, in_every_case(title).split(" / ")))


def _holes(rule: Rule, places: Positions) -> Iterator[Fault]:
    """Yield a fault for each hole that leaves a gap in its text if no line fills it."""
    table = rule.table
    sure = {"pattern", "key", "title"} | ({table.key} if table else set()) | _always_captured(rule)
    parts: dict[str, Rule | TableRow] = {"": rule}
    parts |= {f"table.rows.{key}.": row for key, row in (table.rows.items() if table else ())}
    if table and table.default:
        parts["table.default."] = table.default
    for path, part in parts.items():
        texts = {name: getattr(part, name) or "" for name in PROSE}
        for number, item in enumerate(part.remediation):
            texts |= {f"remediation.{number}.{name}": getattr(item, name) or "" for name in FILLED}
        for name, text in texts.items():
            for hole in gaps(text, sure):
                hint = "give it a default, {name|default}, or a clause, [? of {name}]"
                yield places.fault(rule, path + name, f"{{{hole}}} may be unknown", hint)


def _always_captured(rule: Rule) -> frozenset[str]:
    """Return what each line captures on which the rule can match; nothing if it also matches on what is not a line."""
    used = names(rule.when)
    if not all(isinstance(part, Name | All | Any) for part in walk(rule.when)):
        return frozenset()
    patterns = [pattern for pattern in rule.patterns if pattern.name in used]
    found = [_captured(pattern) for pattern in patterns]
    return frozenset.intersection(*found) if found else frozenset()


def _captured(pattern: Pattern) -> frozenset[str]:
    regex = pattern.exception.message if pattern.exception is not None else pattern.regex
    if regex is None or wrong_regex(regex):
        return frozenset()
    return sure_groups(regex, pattern.ignore_case)


def _tests(rule: Rule, places: Positions, given: Sequence[str]) -> Iterator[Fault]:
    if rule.status == "deprecated":
        return
    for folder, least in (("match", MATCH_TESTS), ("silent", SILENT_TESTS)):
        # the files of a bundle share a folder and count as one test
        have = {tuple(parts[:2]) for name in given if (parts := name.split("/"))[0] == folder and len(parts) > 1}
        if len(have) < least:
            yield places.fault(rule, "id", f"{len(have)} of at least {least} tests under {folder}/")


def _empty_tests(rule: Rule, places: Positions, empty: Collection[str]) -> Iterator[Fault]:
    for name in sorted(empty) if rule.status != "deprecated" else ():
        yield places.fault(rule, "id", f"test {name[:100]} is empty")


def _pattern(rule: Rule, pattern: Pattern, places: Positions) -> Iterator[Fault]:
    path = f"match.{pattern.name}"
    for key, regex in (("regex", pattern.regex), ("literal", pattern.literal)):
        if regex is not None:
            written = regex if key == "regex" else literal_regex(regex)
            messages = unsafe_regex(written, pattern.ignore_case) or _polynomial(written, pattern.ignore_case)
            for message in messages:
                yield places.fault(rule, f"{path}.{key}", f"pattern {pattern.name!r}: {message}")
    for key, regex in _full_syntax(pattern):
        if message := _weak(
            regex, whole=key.startswith("structure") or key in ("exception.type", "exception.not_type")
        ):
            yield places.fault(rule, f"{path}.{key}", f"pattern {pattern.name!r}: {message}")


def _full_syntax(pattern: Pattern) -> Iterator[tuple[str, str]]:
    """Return the regexes that are tried only on some lines; keys are their paths in the rule."""
    found: list[tuple[str, str | None]] = [
        ("confirm", pattern.confirm),
        ("not_line", pattern.not_line),
        ("where.last_frame", pattern.where.last_frame),
    ]
    test = pattern.exception
    if test is not None:
        found += [
            ("exception.type", test.type),
            ("exception.message", test.message),
            ("exception.frame", test.frame),
            ("exception.last_frame", test.last_frame),
            ("exception.not_type", test.not_type),
            ("exception.not_message", test.not_message),
            ("exception.not_frame", test.not_frame),
            ("exception.not_last_frame", test.not_last_frame),
        ]
    if pattern.structure is not None:
        found += [(f"structure.fields.{name}", item) for name, item in pattern.structure.fields.items()]
        found += [(f"structure.not_fields.{name}", item) for name, item in pattern.structure.not_fields.items()]
    return ((key, regex) for key, regex in found if regex is not None)


def _weak(regex: str, *, whole: bool) -> str:
    """Return the weaknesses of a regex with full syntax. `whole`: it must match the whole text, which may be empty."""
    if message := wrong_regex(regex) or slow_regex(regex):
        return message
    if not whole and re.search(regex, "") is not None:
        return "it matches the empty string, so it tests nothing"
    return next(iter(_polynomial(regex, whole=whole)), "")


def _polynomial(regex: str, ignore_case: bool = False, *, whole: bool = False) -> tuple[str, ...]:
    return tuple(map(str, hazards(regex, ignore_case, whole=whole)))


def _duplicates(rulebook: Rulebook, places: Positions) -> Iterator[Fault]:
    first: dict[object, Rule] = {}
    for rule in rulebook.rules:
        if rule.status == "deprecated":
            continue
        for pattern in rule.patterns:
            text = pattern.regex or pattern.literal or pattern.exception
            if text is None:
                continue
            other = first.setdefault((text, pattern.ignore_case, pattern.where), rule)
            if other is not rule:
                message = f"pattern {pattern.name!r} has the same text as one of {other.id}"
                yield places.fault(rule, f"match.{pattern.name}", message, "two rules would match the same line")
