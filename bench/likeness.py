"""Measures how well the fault library recognizes failures: leave-one-out over the rules' examples and folders of cases.

Each example is an incident that people closed as its rule's class; each is then looked up among all others. Coverage:
the share for which the library names anything; right: of those, the share whose nearest match was closed as the same
class (or an accepted one). Without the rule's own other examples it must be silent or name the same class: `strangers`
counts that. Cases of real runs (`--runs`, from bench/runs/build.py) are strangers if they are of the same framework, so
each framework's incidents are asked for among those of the others.

    .venv/bin/python bench/likeness.py [--cases ../shared/benchmark/cases] [--runs DIR…] [--blind]

`--blind`: patterns of the bare lines, as if no rule matched the failure.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from bot.diagnosis.diagnose import diagnose_paths
from bot.rulebase.loader import Knowledge, default_folder, knowledge
from kb.errors import SignalboxError
from kb.precedents.signature import FaultLibrary, KnownIncident, Signature, signature_of
from kb.report import Indicator, Indicators


@dataclass(frozen=True)
class Example:
    """A failure with its class; `kin`: the key shared by examples of one rule."""

    name: str
    kin: str
    fault: str
    accept: frozenset[str]
    pattern: Signature


def pattern(known: Knowledge, path: Path, *, blind: bool) -> Signature:
    """Return the pattern of a log; `blind`: of its quoted lines, without rule results."""
    report = diagnose_paths(known, [path], workers=1).report
    if blind and report.verdict == "fault":
        lines = tuple(Indicator(item.text, "", item) for item in report.diagnoses[0].evidence)
        report = replace(report, verdict="no_match", diagnoses=(), indicators=Indicators(lines))
    return signature_of(report)


def of_rules(known: Knowledge, *, blind: bool) -> Iterator[Example]:
    """Yield the logs on which rules must speak."""
    for rule in sorted(default_folder().glob("*/*/rule.yaml")):
        fault = str(yaml.safe_load(rule.read_text("utf-8")).get("fault"))
        for log in sorted(rule.parent.glob("match/*")):  # a fallback rule has none
            if log.is_file():
                found = pattern(known, log, blind=blind)
                if found.events:
                    yield Example(f"{rule.parent.name}/{log.name}", rule.parent.name, fault, frozenset({fault}), found)


def of_cases(known: Knowledge, folder: Path, *, blind: bool) -> Iterator[Example]:
    """Recorded incidents with their class; those of a framework are kin."""
    for case in sorted(path.parent for path in folder.glob("*/case.yaml")):
        told = yaml.safe_load((case / "case.yaml").read_text("utf-8"))
        if told["label"] == "healthy":
            continue
        try:
            found = pattern(known, case / "logs", blind=blind)
        except SignalboxError:
            continue
        if found.events:
            label = str(told["label"])
            kin = str(told.get("framework", case.name))
            yield Example(case.name, kin, label, frozenset({label, *told.get("accept", ())}), found)


def measure(examples: list[Example], *, kin: bool) -> tuple[int, int, int, float]:
    """Return numbers asked, answered, right, and the mean similarity of wrong ones. `kin`: with the rule's own."""
    entries = {n: KnownIncident(n, item.pattern, item.fault, item.fault) for n, item in enumerate(examples)}
    library = FaultLibrary(entries.values())
    told = right = 0
    wrong: list[float] = []
    for number, item in enumerate(examples):
        left_out = frozenset(
            n for n, other in enumerate(examples) if n == number or (not kin and other.kin == item.kin)
        )
        found = library.alike(item.pattern, but=left_out, most=1)
        if not found:
            continue
        told += 1
        fault = found[0].known.fault or ""
        other = examples[found[0].known.incident]
        if fault in item.accept or item.fault in other.accept:
            right += 1
        else:
            wrong.append(found[0].similarity)
            print(f"  {item.name} ({item.fault}) ~ {other.name} ({fault}) {found[0].similarity:.2f}")
    return len(examples), told, right, sum(wrong) / len(wrong) if wrong else 0.0


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=Path)
    parser.add_argument("--runs", type=Path, nargs="+")
    parser.add_argument("--blind", action="store_true")
    told = parser.parse_args()
    known = knowledge()
    sets = {}
    if told.runs is not None:
        sets["real runs"] = [case for folder in told.runs for case in of_cases(known, folder, blind=told.blind)]
    else:
        sets["examples of rules"] = list(of_rules(known, blind=told.blind))
    if told.cases is not None:
        among = next(iter(sets))
        sets[f"cases among the {among}"] = [*sets[among], *of_cases(known, told.cases, blind=told.blind)]
    for name, examples in sets.items():
        for kin in (True, False):
            asked, named, right, mean = measure(examples, kin=kin)
            who = "with kin" if kin else "strangers"
            share = f"{right / named:.1%}" if named else "-"
            print(
                f"{name}, {who}: {asked} asked, {named} told ({named / asked:.1%}), {right} right ({share}); wrong at {mean:.2f}"
            )


if __name__ == "__main__":
    main()
