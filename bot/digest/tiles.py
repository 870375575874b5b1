"""The headline figures of the digest, each with its change since the previous week."""

from __future__ import annotations

from dataclasses import dataclass

from bot.digest import phrases
from bot.render.text_format import joined, many
from kb.digest.digest import Digest
from kb.digest.statistics import Sum


@dataclass(frozen=True, slots=True)
class FigureTile:
    """A headline figure with its change since the previous week."""

    name: str
    value: str
    told: str


def tiles(digest: Digest) -> list[FigureTile]:
    """The four headline figures."""
    this, before = digest.this, digest.before
    lost, ineffective = digest.gpu_hours, digest.ineffective
    between, ratio = this.between.value, ineffective.effective
    return [
        FigureTile(
            "Failures",
            str(digest.failures),
            f"{phrases.arrow(digest.failures, before.failures)}, of {digest.jobs} jobs",
        ),
        FigureTile(
            "GPU-hours lost",
            phrases.amount(lost),
            joined([_moved(lost, before.gpu_hours), f"n = {lost.n} of {lost.of}"]),
        ),
        FigureTile(
            "Between failures",
            "-" if between is None else f"{phrases.hours(between)} h",
            f"not enough data (n = {this.between.n})"
            if between is None
            else joined([phrases.moved(between, before.between.value) or "mean", f"n = {this.between.n}"]),
        ),
        FigureTile(
            "Effective ratio",
            "-" if ratio is None else phrases.fine(ratio),
            f"not enough data (n = {ineffective.known})"
            if ratio is None
            else f"of {many(ineffective.jobs, 'interrupted job')}, n = {ineffective.known}",
        ),
    ]


def _moved(now: Sum, before: Sum) -> str:
    """The change of a sum since the previous week, where both are known."""
    return phrases.arrow(now.value, before.value) if all(item.n or not item.of for item in (now, before)) else ""
