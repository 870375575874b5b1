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
            _failures(digest),
        ),
        FigureTile(
            "GPU-hours lost",
            phrases.amount(lost),
            joined([_moved(digest, lost, before.gpu_hours), f"n = {lost.n} of {lost.of}"]),
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


def _failures(digest: Digest) -> str:
    """The change of their number since the previous week, how many jobs had one, and how many jobs completed or were stopped."""
    change = phrases.arrow(digest.failures, digest.before.failures) if digest.new.compared else ""
    well = (
        f"; {many(digest.ran_well.of, 'job')} completed or {'was' if digest.ran_well.of == 1 else 'were'} stopped"
        if digest.ran_well.of
        else ""
    )
    return joined([change, f"in {many(digest.jobs, 'job')}"]) + well


def _moved(digest: Digest, now: Sum, before: Sum) -> str:
    """The change of a sum since the previous week, where both are known."""
    known = digest.new.compared and all(item.n or not item.of for item in (now, before))
    return phrases.arrow(now.value, before.value) if known else ""
