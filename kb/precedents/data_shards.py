"""Finds which parts of the data a run was reading when it ended, by the file names in its lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from kb.facts.evidence import Evidence
from kb.report import Report
from kb.scanning.summary import tail_lines

MOST = 16
LAST_LINES = 40  # of each log
MOST_LOGS = 256
LONGEST = 160  # characters of a name

_WORD = re.compile(r"[\w@+=%.-]{4,400}")
_ENDING = re.compile(
    r"\.(?:tar(?:\.gz|\.zst)?|tgz|parquet|jsonl?(?:\.gz|\.zst)?|arrow|tfrecords?|mds(?:\.zstd?)?|bin|idx|np[yz]|h5|hdf5"
    r"|csv(?:\.gz)?|txt(?:\.gz)?|zst|recordio)\Z"
)
_NUMBERED = re.compile(
    r"(?i)\b(?P<kind>(?:data[ _-]?)?(?:shard|chunk))(?:[ _-]?(?:id|index|no\.?|number))?[ =:#_-]{0,2}(?P<number>\d{1,9})(?![\w-]|\.\w)"
)
# what a run writes or loads besides its data
_OTHER = re.compile(
    r"(?i)model|optim|checkpoint|ckpt|global_?step|distcp|safetensors|weights|tokenizer|vocab|merges|config|trainer_state|rng_state"
    r"|(?:^|[_.-])log|stack|dump|trace|profil|events|requirements|metrics|wandb|core\.\d"
)
_DIGITS = re.compile(r"\d+")


def shards_of(report: Report, evidence: Evidence) -> tuple[str, ...]:
    """The parts of the data named by the deciding lines, and those at which logs that walk through the data stopped."""
    found = dict.fromkeys(decisive(report))
    for stream in evidence.streams[:MOST_LOGS]:
        if stream.ref.kind == "job":
            last = _last([line for _, line in tail_lines(stream)][-LAST_LINES:])
            found.update(dict.fromkeys(last))
    return tuple(found)[:MOST]


def decisive(report: Report) -> tuple[str, ...]:
    """The parts of the data named by the lines that decide or stand out."""
    texts = [item.text for diagnosis in report.diagnoses[:2] for item in diagnosis.evidence]
    texts += [sign.evidence.text if sign.evidence is not None else sign.what for sign in report.indicators.events]
    return tuple(dict.fromkeys(name for text in texts for name in named(text)))[:MOST]


def named(text: str) -> list[str]:
    """The parts of the data that a text names, in order."""
    words = (word.strip(".=").rpartition("=")[2] for word in _WORD.findall(text[:4096]))
    found = [item for item in words if _DIGITS.search(item) and _ENDING.search(item) and not _OTHER.search(item)]
    found += [f"{match['kind'].lower()} {int(match['number'])}" for match in _NUMBERED.finditer(text[:4096])]
    return [shard[-LONGEST:] for shard in dict.fromkeys(found)]


def _last(lines: Sequence[str]) -> list[str]:
    """The last part named, if the lines name several in turn: a file named once may be any file."""
    names = [item for line in lines for item in named(line)]
    kinds: dict[str, set[str]] = {}
    for name in names:
        kinds.setdefault(_DIGITS.sub("#", name), set()).add(name)
    walked = [name for name in names if len(kinds[_DIGITS.sub("#", name)]) > 1]
    return walked[-1:]


def in_common(of: Iterable[Iterable[str]]) -> tuple[str, ...]:
    """The names that all have, in the order of the first."""
    first, *others = [tuple(group) for group in of] or [()]
    return tuple(item for item in first if all(item in other for other in others))
