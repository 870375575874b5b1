"""Scores predictions against the truth of a set: the measures of L4, each with its 95 % interval (bootstrap over cases).

    python bench/l4set/score.py --truth DIR/truth.json --predictions FILE [--top K] [--json]

FILE holds, by case: {"lines": [["logs/a.log", 812], ...], "nodes": ["a", ...], "stage": "iterating", "iteration": 1198}, lines and
nodes with the likeliest first, stage and iteration null for "none". A case that is not in it counts as an answer of nothing.
README.md defines the measures.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

NEAR = 5  # lines before or after the last one before a silence
WINDOW = 10  # iterations
FIVE = 5  # lines, as many as an engineer is shown
MANY = 8  # nodes, from which on the first five are not most of them
DRAWS = 1000


class Malformed(Exception):  # noqa: N818 - what it says
    """A file that is not of the form asked; says where."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a reader says of one case."""

    lines: tuple[tuple[str, int], ...] = ()
    nodes: tuple[str, ...] = ()
    stage: str | None = None
    iteration: int | None = None


@dataclass(frozen=True, slots=True)
class Tally:
    """One case, counted. `said` and `said_leniently`: lines that count as told, without neutral ones and without consequences too.

    Counts of what a case does not have (faulty nodes, an iteration) are None.
    """

    case: str
    symptom: str
    hits: int = 0
    said: int = 0
    said_leniently: int = 0
    lines_found: int = 0
    lines: int = 0
    events_found: int = 0
    events: int = 0
    top1: bool | None = None
    top5: bool | None = None
    top1_many: bool | None = None
    top5_many: bool | None = None
    no_node: bool | None = None
    stage: bool | None = None
    iteration: bool | None = None
    five: bool | None = None
    healthy_lines: int | None = None
    healthy_nodes: int | None = None


def read_predictions(text: str, cases: Mapping[str, Any]) -> dict[str, Prediction]:
    """Predictions by case.

    Raises:
        Malformed: it is no JSON of the form above, or names a case that there is not.
    """
    try:
        told = json.loads(text)
    except json.JSONDecodeError as error:
        raise Malformed(f"predictions: line {error.lineno}: {error.msg}") from error
    if not isinstance(told, dict):
        raise Malformed("predictions: an object by case is needed")
    strangers = sorted(set(told) - set(cases))
    if strangers:
        raise Malformed(f"predictions: {strangers[0]!r} is no case of this set")
    return {name: _prediction(name, one) for name, one in told.items()}


def _prediction(name: str, told: Any) -> Prediction:
    if not isinstance(told, dict):
        raise Malformed(f"{name}: an object is needed")
    lines, nodes = told.get("lines", []), told.get("nodes", [])
    if not isinstance(lines, list) or not all(
        isinstance(one, list) and len(one) == 2 and isinstance(one[0], str) and type(one[1]) is int for one in lines
    ):
        raise Malformed(f"{name}: `lines` are pairs of a file and a line number")
    if not isinstance(nodes, list) or not all(isinstance(one, str) for one in nodes):
        raise Malformed(f"{name}: `nodes` are names")
    stage, iteration = told.get("stage"), told.get("iteration")
    if not (stage is None or isinstance(stage, str)) or not (iteration is None or type(iteration) is int):
        raise Malformed(f"{name}: `stage` is a word or null, `iteration` a number or null")
    return Prediction(
        tuple(dict.fromkeys((one[0], one[1]) for one in lines)), tuple(dict.fromkeys(nodes)), stage, iteration
    )


def tally(case: str, truth: Mapping[str, Any], said: Prediction, top: int | None = None) -> Tally:
    """Count one case. `top`: only so many of the first lines are looked at."""
    lines = said.lines[:top]
    if truth["symptom"] == "healthy":
        return Tally(case, "healthy", healthy_lines=len(lines), healthy_nodes=len(said.nodes))
    wanted = [[(file, line) for file, line in event["lines"]] for event in truth["events"]]
    loose = [event["kind"] == "absence" for event in truth["events"]]
    hits = {line for line in lines if any(_is(line, group, far) for group, far in zip(wanted, loose, strict=True))}
    rest = [line for line in lines if line not in hits and not _within(line, truth["neutral"])]
    hard = [line for line in rest if not _within(line, truth["cascade"])]
    found = [any(_is(line, group, far) for line in hits) for group, far in zip(wanted, loose, strict=True)]
    single = {line for group in wanted for line in group}
    covered = {
        line
        for group, far in zip(wanted, loose, strict=True)
        for line in group
        if any(_is(hit, [line], far) for hit in hits)
    }
    nodes, iteration = set(truth["nodes"]), truth["iteration"]
    top1, top5 = (bool(nodes & set(said.nodes[:most])) if nodes else None for most in (1, 5))
    many = truth["node_count"] >= MANY
    return Tally(
        case, truth["symptom"], hits=len(hits), said=len(hits) + len(rest), said_leniently=len(hits) + len(hard),
        lines_found=len(covered), lines=len(single), events_found=sum(found), events=len(found),
        top1=top1, top5=top5, top1_many=top1 if many else None, top5_many=top5 if many else None,
        no_node=None if nodes else not said.nodes, stage=said.stage == truth["stage"],
        iteration=None if iteration is None else said.iteration is not None and abs(said.iteration - iteration) <= truth.get("window", WINDOW),
        five=bool(hits & set(lines[:FIVE])) if found else None,
    )  # fmt: skip


def _is(line: tuple[str, int], group: Sequence[tuple[str, int]], far: bool) -> bool:
    return any(line[0] == file and abs(line[1] - number) <= (NEAR if far else 0) for file, number in group)


def _within(line: tuple[str, int], spans: Mapping[str, Any]) -> bool:
    return any(first <= line[1] <= last for first, last in spans.get(line[0], ()))


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _f1(precision: float | None, recall: float | None) -> float | None:
    if precision is None and recall is None:
        return None
    precision, recall = precision or 0.0, recall or 0.0
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def _precision(tallies: Sequence[Tally]) -> float | None:
    return _ratio(sum(one.hits for one in tallies), sum(one.said for one in tallies))


def _lenient(tallies: Sequence[Tally]) -> float | None:
    return _ratio(sum(one.hits for one in tallies), sum(one.said_leniently for one in tallies))


def _recall(tallies: Sequence[Tally]) -> float | None:
    return _ratio(sum(one.events_found for one in tallies), sum(one.events for one in tallies))


def _line_recall(tallies: Sequence[Tally]) -> float | None:
    return _ratio(sum(one.lines_found for one in tallies), sum(one.lines for one in tallies))


def _mean_f1(tallies: Sequence[Tally]) -> float | None:
    each = [_f1(_precision([one]), _recall([one])) for one in tallies if one.events]
    return _ratio(sum(value or 0.0 for value in each), len(each))


def _share(name: str) -> Callable[[Sequence[Tally]], float | None]:
    def one(tallies: Sequence[Tally]) -> float | None:
        known = [getattr(tally, name) for tally in tallies if getattr(tally, name) is not None]
        return _ratio(sum(known), len(known))

    return one


def _false(name: str) -> Callable[[Sequence[Tally]], float | None]:
    def one(tallies: Sequence[Tally]) -> float | None:
        known = [getattr(tally, name) for tally in tallies if getattr(tally, name) is not None]
        return _ratio(sum(count > 0 for count in known), len(known))

    return one


MEASURES: dict[str, Callable[[Sequence[Tally]], float | None]] = {
    "lines: precision": _precision,
    "lines: recall of events": _recall,
    "lines: F1": lambda tallies: _f1(_precision(tallies), _recall(tallies)),
    "lines: F1, mean over cases": _mean_f1,
    "lines: one of the first five is telling": _share("five"),
    "lines: recall of single lines": _line_recall,
    "lines: F1 of single lines": lambda tallies: _f1(_precision(tallies), _line_recall(tallies)),
    "lines: precision, consequences let pass": _lenient,
    "lines: F1, consequences let pass": lambda tallies: _f1(_lenient(tallies), _recall(tallies)),
    "node: top-1": _share("top1"),
    "node: top-5": _share("top5"),
    "node: top-1 of eight or more": _share("top1_many"),
    "node: top-5 of eight or more": _share("top5_many"),
    "node: none named where none is faulty": _share("no_node"),
    "stage": _share("stage"),
    "iteration within the window": _share("iteration"),
    "healthy: pairs with a false line": _false("healthy_lines"),
    "healthy: pairs with a false node": _false("healthy_nodes"),
}


def score(
    truth: Mapping[str, Any], predictions: Mapping[str, Prediction], top: int | None = None
) -> dict[str, tuple[float, float, float] | None]:
    """Each measure as value, low and high end of its 95 % interval; None where no case bears on it."""
    tallies = [
        tally(name, one, predictions.get(name, Prediction()), top) for name, one in sorted(truth["cases"].items())
    ]
    chance = Random(7)
    draws = [chance.choices(tallies, k=len(tallies)) for _ in range(DRAWS)]
    found: dict[str, tuple[float, float, float] | None] = {}
    for name, measure in MEASURES.items():
        value = measure(tallies)
        values = sorted(one for one in map(measure, draws) if one is not None)
        found[name] = (
            None
            if value is None or not values
            else (value, values[int(0.025 * len(values))], values[int(0.975 * (len(values) - 1))])
        )
    return found


def render(found: Mapping[str, tuple[float, float, float] | None]) -> str:
    """A table."""
    width = max(map(len, found))
    return "\n".join(
        f"{name:<{width}}  {'   -' if value is None else f'{value[0]:.3f}  [{value[1]:.3f}, {value[2]:.3f}]'}"
        for name, value in found.items()
    )


def main() -> None:
    """Read, score, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--truth", type=Path, required=True)
    parser.add_argument("--predictions", type=Path, required=True)
    parser.add_argument("--top", type=int, help="look at so many lines of a case at most")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    truth = json.loads(args.truth.read_text("utf-8"))
    try:
        predictions = read_predictions(args.predictions.read_text("utf-8"), truth["cases"])
    except Malformed as error:
        sys.exit(str(error))
    found = score(truth, predictions, args.top)
    print(json.dumps(found, indent=1) if args.json else render(found))


if __name__ == "__main__":
    main()
