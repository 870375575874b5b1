"""The number of ranks of a job as its logs state it, where neither the job's description nor NCCL does."""

from __future__ import annotations

from kb.facts.job_facts import Facts
from kb.regex.lazy import lazy_compile

MOST_KNOWN = 2 / 3  # share of the ranks whose logs must be there, for the others to be known by what these announce
_ANNOUNCED = lazy_compile(
    r"\b([Rr]ank|[Ww]orker|[Pp]rocess|[Mm]ember|JAX process|MEMBER)[:= #]{1,2}(\d{1,6}) ?(?:/| of ) ?(\d{1,6})\b"
)
_STATED = lazy_compile(
    r"store_based_barrier_key:1 with (\d{1,6}) nodes|\busing world size: ?(\d{1,6})\b"
    r"|All distributed processes registered\. Starting with (\d{1,6}) processes"
)
_STATING = (
    "store_based_barrier_key:1 with",
    "using world size",
    "All distributed processes registered",
)  # of `_STATED`


def stated_world(facts: Facts) -> int:
    """Return the number of ranks that the starts and ends of the logs state; 0 if none does, or if they contradict each other.

    Either PyTorch or the framework states it, or each rank announces itself, as in `rank 3 of 8`; a rank's own log may be
    missing if all others are those of the ranks that they announce.
    """
    found: dict[int, set[int]] = {}
    stated: set[int] = set()
    own: list[bool] = []
    for stream in facts.of_kind("job"):
        kept = f"{stream.summary.head}\n{stream.summary.tail}"
        if any(words in kept for words in _STATING):
            stated |= {int(next(filter(None, sizes))) for sizes in _STATED.findall(kept)}
        announced = _ANNOUNCED.findall(kept)
        for word, number, world in announced:
            found.setdefault(int(world), set()).add(int(number) - (word.startswith("MEMBER")))
        own.append({int(number) for _, number, _ in announced} == {stream.summary.ref.resource.rank})
    if len(stated) == 1:
        return stated.pop()
    if stated or len(found) != 1:
        return 0
    (world, ranks), *_ = found.items()
    known = all(own) and len(own) >= MOST_KNOWN * world and max(ranks) < world
    return world if known or ranks == set(range(world)) else 0
