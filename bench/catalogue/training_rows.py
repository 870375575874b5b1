"""The rows that the classifier learns from: error sites, what the interpreter raises itself, and the rules' own examples."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Final

import yaml

from bench.catalogue.linear_model import Examples
from bot.authoring import selftest
from bot.rulebase.loader import Knowledge, default_folder
from kb.classifier.areas import LIBRARY, STANDARD, Areas
from kb.classifier.classify import NOTHING_AROUND, Around, error_text
from kb.classifier.stages import stage_of
from kb.classifier.traits import OWN, ErrorText, said, stem, traits
from kb.diagnosis.findings import find
from kb.facts.job_facts import Facts
from kb.facts.patterns.classification import STATED
from kb.parsers.logs.error_lines import message_of

HERE: Final = Path(__file__).parent
NONE: Final = "none"  # label of sites that are no failure of a run
CLASSIFIED: Final = "classified-error"  # the rule whose examples carry their class in the file name
DECIDED: Final = {"both": 1.0, "third": 0.7}  # weight of a label, by who decided: two readers, or a third
PLACELESS: Final = 0.5  # weight of a site's copy without its place, for logs without a traceback
INTERPRETER: Final = 6.0
OWN_EXAMPLE: Final = 2.0
TITLE: Final = 0.5
LIFT: Final = 0.4  # 0: a row counts as its weight says; 1: every class counts the same in all
PYTHON: Final = ("/**", ".py", "*")  # ends of patterns that match files of Python
NATIVE: Final = frozenset(
    {
        "src",
        "pkg",
        "xla",
        "opal",
        "aten",
        "ompi",
        "prov",
        "core",
        "c10",
        "csrc",
        "cmd",
        "providers",
        "kernel-open",
        "internal",
        "caffe2",
    }
)
MOST_EXAMPLES: Final = 2  # of a finding: a table has many rows
# exceptions of C++ as Python shows them
TYPES: Final = {
    "runtime_error": "RuntimeError", "logic_error": "RuntimeError", "invalid_argument": "ValueError", "out_of_range": "IndexError",
    "type_error": "TypeError", "bad_alloc": "MemoryError", "ArgumentParser.error": "", "CHECK": "", "TF_RET_CHECK": "",
}  # fmt: skip
ELSEWHERE: Final = {
    "own": (
        ("", ""),
        *((OWN, name) for name in ("", "<module>", "main", "train", "forward", "compute_loss", "evaluate")),
    ),
    "data": (("data", ""), ("tokenizer", "")),
    "checkpoint": (("checkpoint", ""), (OWN, "load_checkpoint"), (OWN, "load_state_dict")),
    "saving": (("checkpoint", "save_checkpoint"), (OWN, "save_checkpoint")),
    "other": (("trainer", ""), ("model", ""), (LIBRARY, ""), (STANDARD, ""), ("sharding", ""), ("config", "")),
}  # column of interpreter.tsv → areas and functions that its class holds for
IMPORTED: Final = ("model", "config", LIBRARY, STANDARD)


@dataclass(frozen=True, slots=True)
class Row:
    """An error with its class, the weight of that label, and the project or source it is from."""

    error: ErrorText
    label: str
    weight: float
    group: str


def examples(rows: Sequence[Row], concepts: Mapping[str, Sequence[str]]) -> Examples:
    """Return rows as traits. `concepts`: as `concept_rows` gives them."""
    return Examples(
        tuple(traits(row.error, concepts) for row in rows),
        tuple(row.label for row in rows),
        tuple(row.weight for row in rows),
        tuple(row.group for row in rows),
    )


def area_rows() -> list[tuple[str, str]]:
    """Return the path patterns of areas.yaml with their areas, in its order: of the projects, then of other libraries."""
    document = yaml.safe_load((HERE / "areas.yaml").read_text("utf-8"))
    entries = [entry for project in document["projects"].values() for entry in project["paths"]]
    pairs = [pair for entry in (*entries, *document["libraries"]) for pair in entry.items()]
    return [
        (pattern, area)
        for pattern, area in pairs
        if area and pattern.endswith(PYTHON) and pattern.partition("/")[0] not in NATIVE
    ]


@lru_cache(maxsize=1)
def packages() -> dict[str, str]:
    """Return the kind of each package of areas.yaml by its first folder."""
    document = yaml.safe_load((HERE / "areas.yaml").read_text("utf-8"))
    return {name: kind for kind, names in sorted(document["packages"].items()) for name in names}


def concept_rows() -> dict[str, tuple[str, ...]]:
    """Return the concepts of concepts.yaml by the stems of their words."""
    document = yaml.safe_load((HERE / "concepts.yaml").read_text("utf-8"))
    found: dict[str, dict[str, None]] = {}
    for concept, words in document.items():
        for word in words:
            found.setdefault(stem(word), {})[concept] = None
    return {word: tuple(named) for word, named in sorted(found.items())}


def sites() -> list[Row]:
    """Return a row for each site of the catalogue."""
    labels = {row["id"]: row for row in _table("labels.tsv")}
    return [_site(row, labels[row["id"]]) for row in _table("sites.tsv")]


def without_place(row: Row) -> Row:
    """Return a site as a log without a traceback shows it."""
    error = replace(row.error, path="", function="", area="", callers=(), stage="", importing=False, package="")
    return replace(row, error=error, weight=row.weight * PLACELESS)


def lifted(rows: Sequence[Row]) -> list[Row]:
    """Return rows with those of rare classes raised by a power of their rarity (`LIFT`); the sum of the weights stays."""
    mass: Counter[str] = Counter()
    for row in rows:
        mass[row.label] += row.weight
    mean = mass.total() / len(mass)
    raised = [row.weight * (mean / mass[row.label]) ** LIFT for row in rows]
    scale = mass.total() / sum(raised)
    return [replace(row, weight=weight * scale) for row, weight in zip(rows, raised, strict=True)]


def interpreter() -> Iterator[Row]:
    """Yield rows for what Python raises itself, which stands in no library's source, and for types that say their class."""
    for row in _table("interpreter.tsv"):
        for column, places in ELSEWHERE.items():
            for area, function in places:
                yield Row(_raised_at(row, area, function), row[column], INTERPRETER / len(places), "interpreter")
        if row["other"] == "code_bug":  # in a package that is imported, it doesn't fit what else is installed
            for area in IMPORTED:
                error = ErrorText(row["type"], *said(row["words"]), area=area, importing=True)
                yield Row(error, "dependency", INTERPRETER / len(IMPORTED), "interpreter")
    anywhere = [place for places in ELSEWHERE.values() for place in places]
    for row in _table("types.tsv"):
        for place in anywhere:
            yield Row(_raised_at(row, *place), row["class"], INTERPRETER / len(anywhere), "types")


def _raised_at(row: Mapping[str, str], area: str, function: str) -> ErrorText:
    error = ErrorText(row["type"], *said(row["words"]), area=area, function=function, callers=(function,))
    return replace(error, stage=stage_of(area, function))


def own_examples(known: Knowledge, areas: Areas) -> Iterator[Row]:
    """Yield rows for the exceptions and lines that rules find in their own logs, and for the rules' titles."""
    rules = {rule.id: rule for rule in known.rulebook.rules}
    matcher = known.matcher()
    # without the classifier's own answers, which would depend on the weights of the last training
    others = replace(known.rulebook, rules=tuple(rule for rule in known.rulebook.rules if rule.id != CLASSIFIED))
    for rule in rules.values():
        if rule.role != "context" and rule.id != CLASSIFIED and rule.status != "deprecated":
            said_of = (rule.title, *(row.title for row in (rule.table.rows.values() if rule.table else ())))
            yield from (Row(ErrorText("", *said(text)), rule.fault, TITLE, rule.id) for text in said_of if text)
    for test in selftest.tests_of(default_folder(), tuple(rules.values())):
        if not test.speaks or rules[test.rule].role == "context" or rules[test.rule].status == "deprecated":
            continue
        evidence, history = selftest.evidence_at(known, matcher, test.path)
        facts = Facts(evidence)
        if test.rule == CLASSIFIED:
            yield from _named_in_file(facts, areas, test.path)
            continue
        for finding in find(others, facts, history).findings:
            if finding.rule.id == test.rule:
                for signal in finding.signals[:MOST_EXAMPLES]:
                    raised = _raised(facts, signal.stream, signal.offset)
                    around = Around(signal.stage if signal.stage in STATED else "")
                    bare = ErrorText("", *said(message_of(signal.line)), stage=around.stage)
                    error = bare if raised is None else _text(areas, raised, around)
                    yield Row(error, finding.fault.id, OWN_EXAMPLE, test.rule)


def _named_in_file(facts: Facts, areas: Areas, path: Path) -> Iterator[Row]:
    label = path.name.partition(".")[0]
    raised = [(int(item.fields.get("chain") or 0), item) for _, item in facts.structures("exception")]
    first = min((place for place, _ in raised), default=0)  # more than 0 where the log begins within a chain
    for place, item in raised:
        if place == first:
            yield Row(_text(areas, item.fields), label, OWN_EXAMPLE, CLASSIFIED)


def _raised(facts: Facts, stream: int, offset: int) -> Mapping[str, object] | None:
    found = [item for item in facts.streams[stream].exceptions if item.offset == offset]
    return found[0].fields if found else None


def _text(areas: Areas, fields: Mapping[str, object], around: Around = NOTHING_AROUND) -> ErrorText:
    said_of = (str(fields.get(name) or "") for name in ("type", "message", "frames"))
    return error_text(areas, *said_of, around)


def _site(row: Mapping[str, str], label: Mapping[str, str]) -> Row:
    function = row["function"].rpartition(".")[2]
    kind = TYPES.get(row["exception"], row["exception"])
    error = ErrorText(
        kind,
        tuple(row["words"].split()),
        tuple(row["codes"].split()),
        row["path"],
        function,
        row["area"],
        callers=(function,),
        handled=tuple(row["handles"].split()),
        stage=stage_of(row["area"], function),
        importing=row["path"].endswith(".py") and not function,
        package=Areas((), packages()).kind(row["path"]) if row["path"].endswith(".py") else "",
    )
    return Row(error, label["class"], DECIDED[label["decided"]], row["project"])


def _table(name: str) -> Iterator[dict[str, str]]:
    with (HERE / name).open(encoding="utf-8", newline="") as handle:
        yield from csv.DictReader(handle, delimiter="\t", quoting=csv.QUOTE_NONE)
