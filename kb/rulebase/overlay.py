"""A site's additions to the unchanged rule base: exceptions with reason and expiry, parameter values, its own rules.

The folder holds `site.yaml` and `rules/<family>/<id>/rule.yaml`; docs/site-overlay.md explains both. An invalid part is
skipped and reported; the base still works.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import field, replace

from kb.errors import Fault
from kb.rulebase.build import pattern
from kb.rulebase.checks import check_patterns, check_regex
from kb.rulebase.conditions import ConditionParser
from kb.rulebase.rule import Condition, Pattern, Rule, SiteException, SiteFiles
from kb.rulebase.schema.site_file import SiteExceptionFile, SiteFile
from kb.rulebase.schema.validation import check
from kb.rulebase.yaml_nodes import Node, nearest, parse
from kb.values import dataclass

NAME = "site.yaml"


@dataclass(frozen=True, slots=True)
class Overlay:
    """The contents of site.yaml: the parameter values and exceptions of each rule id, with their places."""

    params: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    exceptions: Mapping[str, tuple[tuple[Node, SiteExceptionFile], ...]] = field(default_factory=dict)
    node: Node | None = None
    faults: tuple[Fault, ...] = ()


def read(site: SiteFiles, known: Collection[str]) -> Overlay:
    """Read site.yaml. `known` holds the ids of all rules; any other id is a fault."""
    text = site.files.get(NAME)
    if text is None:
        return Overlay()
    node, wrong = parse(text, f"{site.root}/{NAME}")
    if node is None:
        return Overlay(faults=wrong)
    model, more = check(SiteFile, node)
    faults = [*wrong, *more]
    if model is None or faults:
        return Overlay(faults=tuple(faults))
    exceptions: dict[str, tuple[tuple[Node, SiteExceptionFile], ...]] = {}
    for place, item in zip(_at(node, "exceptions").parts(), model.exceptions, strict=True):
        if item.rule in known:
            exceptions[item.rule] = (*exceptions.get(item.rule, ()), (place, item))
        else:
            faults.append(place.key_fault("rule", f"no rule {item.rule!r}", nearest(item.rule, known)))
    params = {}
    for name, numbers in model.params.items():
        if name in known:
            params[name] = dict(numbers)
        else:
            faults.append(_at(node, "params").key_fault(name, f"no rule {name!r}", nearest(name, known)))
    return Overlay(params, exceptions, node, tuple(faults))


def numbers(overlay: Overlay, rule: str, known: Collection[str]) -> tuple[dict[str, float], list[Fault]]:
    """Return the site's numbers for the parameters of a rule."""
    given = overlay.params.get(rule, {})
    node = _at(overlay.node, "params", rule)
    faults = [
        node.key_fault(name, f"rule {rule!r} has no parameter {name!r}", nearest(name, known) or _those(known))
        for name in given
        if name not in known
    ]
    return {name: value for name, value in given.items() if name in known}, faults


def number_fault(overlay: Overlay, rule: str, faults: Collection[Fault]) -> Fault:
    """Return the fault for a rule that cannot use the site's numbers and therefore keeps its own."""
    first = min(faults)
    return _at(overlay.node, "params", rule).fault(
        f"rule {rule!r} cannot use these numbers and keeps its own: {first.message}"
    )


def excepted(rule: Rule, overlay: Overlay, today: str | None) -> tuple[Rule, list[Fault]]:
    """Return a rule with the site's exceptions that apply on the day `today` (ISO date; None: all apply)."""
    faults: list[Fault] = []
    found: list[SiteException] = []
    patterns = list(rule.patterns)
    for place, item in overlay.exceptions.get(rule.id, ()):
        if today is not None and item.expires < today:
            faults.append(expired(place, item.expires, rule.id))
            continue
        own, condition, wrong = _condition(place, item, patterns)
        wrong += [fault for key in ("lines", "nodes", "jobs") for fault in check_regex(place.get(key))]
        faults += wrong
        if not wrong:
            patterns += own
            found.append(
                SiteException(item.reason, item.expires, item.owner, item.lines, item.nodes, item.jobs, condition)
            )
    return replace(rule, site=tuple(found), patterns=tuple(patterns)), faults


def expired(place: Node, day: str, rule: str) -> Fault:
    """Return the fault for an expired exception."""
    message = f"the exception to {rule!r} expired on {day}; the rule is active again"
    return place.key_fault("expires", message, "review it: renew it with a reason, or remove it")


def _condition(
    place: Node, item: SiteExceptionFile, known: list[Pattern]
) -> tuple[list[Pattern], Condition | None, list[Fault]]:
    """Return an exception's patterns, and its condition, which can use them and the rule's patterns."""
    faults = list(check_patterns(place))
    taken = {pattern.name for pattern in known}
    match = _at(place, "match")
    faults += [
        match.key_fault(name, f"the rule already has a pattern {name!r}", "rename this one")
        for name in item.match
        if name in taken
    ]
    own = [pattern(name, file, {}) for name, file in item.match.items() if name not in taken]
    when = place.get("if")
    if when is None:
        return own, None, faults
    parser = ConditionParser([*taken, *item.match], {})
    condition = parser.parse(when)
    return own, condition, [*faults, *parser.faults]


def _those(known: Collection[str]) -> str:
    return f"it has: {', '.join(sorted(known))}" if known else "it has none"


def _at(node: Node | None, *path: str) -> Node:
    """Return the node at a path, or its deepest existing ancestor."""
    found = node if node is not None else Node(NAME, 1, 1, None)
    for key in path:
        found = found.get(key) or found
    return found


def same_id(paths: Mapping[str, str], base: Collection[str], nodes: Mapping[str, Node | None]) -> Iterator[Fault]:
    """Return a fault for each site rule (id → path) whose id is already in the base."""
    for name, path in paths.items():
        if name in base:
            message = f"the rule base already has a rule {name!r}"
            hint = "choose another id; to silence or tune the existing rule, use exceptions or params in site.yaml"
            node = nodes.get(name)
            place = node.get("id") if node is not None else None
            yield place.fault(message, hint) if place is not None else Fault(path, 1, 1, message, hint)
