"""Cases with known causes: case.yaml, the file of labels beside a set, and the advice that an expert accepts for each class.

docs/evaluation.md describes the format.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, get_args

import yaml

from connectors.bundles.streams import StreamReader, discover
from kb.errors import UnreadableInput
from kb.model import Verdict
from kb.report import Advice

ACCEPTED_ADVICE = Path(__file__).with_name("accepted_advice.yaml")
_ADVICE: frozenset[str] = frozenset(get_args(Advice))
_VERDICTS: frozenset[str] = frozenset(get_args(Verdict))
_NO_CASE = (OSError, yaml.YAMLError, AttributeError, LookupError, TypeError, ValueError, RecursionError)


@dataclass(frozen=True, slots=True)
class LabelledCase:
    """A case with its known cause.

    `ranks`: who is at fault: ranks, or the names of nodes and the PCI addresses of GPUs where no rank is known.
    `advice`: what an expert accepts; empty if neither the case nor its class says. `proven_end`: whether the logs of a
    healthy run prove that it completed; None if nobody has judged that. `verdict`: the verdicts that an expert accepts,
    where not the class alone decides; empty if the class does.
    """

    id: str
    label: str
    accept: tuple[str, ...]
    needle: tuple[str, ...]
    ranks: tuple[int | str, ...]
    source: str = ""
    advice: tuple[str, ...] = ()
    proven_end: bool | None = None
    verdict: tuple[str, ...] = ()

    @property
    def may_abstain(self) -> bool:
        """Whether `insufficient_evidence` is the honest answer, or one of several."""
        return "insufficient_evidence" in self.verdict or (self.label == "healthy" and self.proven_end is False)


def read_case(folder: Path) -> LabelledCase:
    """Read case.yaml.

    Raises:
        UnreadableInput: the file cannot be read, or is not the description of a case.
    """
    path = folder / "case.yaml"
    try:
        raw = yaml.safe_load(path.read_text("utf-8", errors="replace"))
        return LabelledCase(
            str(raw["id"]),
            str(raw["label"]),
            tuple(str(item) for item in raw.get("accept") or ()),
            tuple(str(item) for item in raw.get("needle") or ()),
            tuple(raw.get("ranks") or ()),
            str(raw.get("source") or raw["id"]),
            _choices(raw, "advice", _ADVICE),
            _proven_end(raw),
            _choices(raw, "verdict", _VERDICTS),
        )
    except _NO_CASE as error:
        raise UnreadableInput(f"{path}: no usable case: {' '.join(str(error).split())[:300]}") from error


def read_labels(path: Path) -> dict[str, Mapping[str, Any]]:
    """Read what a file says of cases by id: `advice` and `proven_end`, which replace those of case.yaml.

    Raises:
        UnreadableInput: the file cannot be read, or a value is none of these.
    """
    try:
        raw = yaml.safe_load(path.read_text("utf-8", errors="replace"))
        labels: dict[str, Mapping[str, Any]] = {}
        for case, fields in raw["cases"].items():
            if unknown := sorted(str(name) for name in fields if name not in ("advice", "proven_end")):
                raise ValueError(f"{case}: unknown field {unknown[0]}; known are advice and proven_end")
            read = {"advice": _choices(fields, "advice", _ADVICE), "proven_end": _proven_end(fields)}
            labels[str(case)] = {name: read[name] for name in fields}
    except _NO_CASE as error:
        raise UnreadableInput(f"{path}: no usable labels: {' '.join(str(error).split())[:300]}") from error
    return labels


@cache
def accepted_by_class() -> Mapping[str, tuple[str, ...]]:
    """The advice that an expert accepts for a failure of each class."""
    raw = yaml.safe_load(ACCEPTED_ADVICE.read_text("utf-8"))
    return {fault: _choices({"advice": advice}, "advice", _ADVICE) for fault, advice in raw["classes"].items()}


def completed(case: LabelledCase, labels: Mapping[str, Mapping[str, Any]]) -> LabelledCase:
    """Return the case with what the labels say of it, and the advice of its class if nothing else says any."""
    case = replace(case, **labels.get(case.id, {}))
    return case if case.advice else replace(case, advice=accepted_by_class().get(case.label, ()))


def holds_own_lines(folder: Path, case: LabelledCase) -> bool:
    """Whether the logs of a case hold a line with one of its needles or, if it has none, a log of a rank at fault."""
    needles = [needle.encode() for needle in case.needle]
    streams = discover([folder], bundle=True).streams
    if not needles:
        return any(stream.resource.rank in case.ranks for stream in streams)
    longest = max(map(len, needles))
    for stream in streams:
        end = b""
        for block in StreamReader(stream):
            text = end + block
            if any(needle in text for needle in needles):
                return True
            end = text[-longest:]
    return False


def _choices(fields: Mapping[str, Any], name: str, known: frozenset[str]) -> tuple[str, ...]:
    raw = fields.get(name)
    if raw is None:
        return ()
    if not isinstance(raw, list) or not raw:
        raise ValueError(f"{name} must be a list of some of {', '.join(sorted(known))}")
    for choice in raw:
        if choice not in known:
            raise ValueError(f"{name} {choice!r} is unknown; known are {', '.join(sorted(known))}")
    return tuple(raw)


def _proven_end(fields: Mapping[str, Any]) -> bool | None:
    proven = fields.get("proven_end")
    if proven is not None and not isinstance(proven, bool):
        raise ValueError("proven_end must be true or false")
    return proven
