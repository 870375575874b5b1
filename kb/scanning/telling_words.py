"""A few words for log stores in which each word of a search costs time: nearly every failure has one on its deciding lines.

The words are case-sensitive. Most lack their first letter, so that one word finds both `Error` and `error`, or `Failed`
and `failed`. `choose` takes them greedily from a pool; `python bench/telling_words.py` measures which failures they
keep.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

MOST = 40

# Chosen by hand on the examples of the rules and the benchmark. `choose` with a pool of a thousand words of these examples keeps all of
# the benchmark, but 5 to 10 points less of runs that it had not seen: words that are common in failures generalise better than rare ones.
TELLING_WORDS = (
    "rror",
    "ERR",
    "ailed",
    "fail",
    "xception",
    "raceback",
    "atal",
    "CRIT",
    "NCCL WARN",
    "Warning",
    "not ",
    "nable to",
    "imeout",
    "imed out",
    "TIMEOUT",
    "illed",
    "KILL",
    "SIG",
    "ignal",
    "xit",
    "bort",
    "NVRM",
    "DOWN",
    "erminat",
    "nterrupt",
    "reempt",
    "orrupt",
    "ismatch",
    "issing",
    "nvalid",
    "xpected",
    "xceed",
    "nsufficient",
    "limit",
    "atchdog",
    "o such",
    "unhealthy",
    "eadlock",
    "lready",
    "lost",
)


def has_telling_word(text: str) -> bool:
    """Return whether a line would be found."""
    return any(word in text for word in TELLING_WORDS)


def may_be_found(runs: Collection[str]) -> bool:
    """Return whether a line with these lower-case runs of characters has a telling word, assuming that its case fits."""
    return any(word.lower() in run for run in runs for word in TELLING_WORDS)


def choose(
    pool: Sequence[str],
    failures: Sequence[tuple[str, str]],
    usual: Sequence[str],
    *,
    most: int = MOST,
    shun: float = 200.0,
) -> tuple[str, ...]:
    """Return at most so many words of a pool that keep most failures, each class counting alike, and few usual lines.

    `failures`: class, and the deciding lines as one text. `usual`: lines of healthy runs. `shun`: by how much a word loses
    that is on all of them.
    """
    classes = Counter(name for name, _ in failures)
    found = {word: {at for at, (_, text) in enumerate(failures) if word in text} for word in pool}
    costs = {word: 1 + shun * sum(word in line for line in usual) / max(1, len(usual)) for word in pool}
    weights = [1 / classes[name] + 0.3 * len(classes) / len(failures) for name, _ in failures]
    left, taken = set(range(len(failures))), list[str]()
    while left and len(taken) < most:
        best = max(found, key=lambda word: sum(weights[at] for at in found[word] & left) / costs[word])
        if not found[best] & left:
            break
        taken.append(best)
        left -= found[best]
    return tuple(taken)


def kept(words: Collection[str], failures: Sequence[tuple[str, str]]) -> Mapping[str, float]:
    """Return the share of the failures of each class whose deciding lines have one of the words."""
    classes = Counter(name for name, _ in failures)
    had = Counter(name for name, text in failures if any(word in text for word in words))
    return {name: had[name] / number for name, number in classes.items()}
