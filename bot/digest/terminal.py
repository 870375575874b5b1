"""The digest as text for a terminal, with every figure, its n, and its meaning."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from bot.digest import phrases
from bot.digest.html import tiles
from bot.render.phrases import shown
from kb.digest.definitions import DEFINITIONS
from kb.digest.digest import Breakdown, Digest
from kb.digest.recovery_times import TERMS

_WIDTH = 100


def text(digest: Digest, *, meanings: bool = False) -> str:
    """The digest as text. `meanings`: explain each figure at the end."""
    lines = [f"Failures of training jobs, week {digest.week} ({phrases.span(digest)})"]
    lines += [one for one in (phrases.unfinished(digest),) if one]
    lines += ["" if digest.failures else phrases.none_at_all(digest)]
    if digest.failures:
        lines += [f"{one.name:<18} {one.value:>10}  {one.told}" for one in tiles(digest)]
        lines += ["", *_news(digest), *_classes(digest), *_recovery(digest)]
    if any(one.failures for one in digest.trend):
        lines += [*_trend(digest), *_nodes(digest), *_record(digest), *_open(digest)]
    if digest.failures:
        lines += [*_cuts(digest.cuts, digest.failures)]
    lines += ["", *_wrapped(DEFINITIONS["few"] + " " + DEFINITIONS["share"])]
    if meanings:
        lines += ["", "What the figures mean"]
        lines += [line for name, one in DEFINITIONS.items() for line in _wrapped(f"{name.replace('_', ' ')}: {one}")]
    return "\n".join(shown(line).rstrip() for line in lines)


def _news(digest: Digest) -> Iterator[str]:
    found = list(phrases.news(digest))
    if not found:
        yield "New this week: nothing new compared with the seven weeks before"
    for kind, names in found:
        yield from _wrapped(f"New this week: {names}" if kind == "new" else f"New {kind}: {names}")


def _classes(digest: Digest) -> Iterator[str]:
    dear = sorted(digest.classes, key=lambda one: (-one.gpu_hours.value, one.fault))
    rows = [
        (phrases.lost(one.gpu_hours), str(one.failures), str(one.before), one.domain.replace("none", "-"), one.title)
        for one in dear
    ]
    yield from _table("By class", (">GPU-hours lost", ">failures", ">before", "<acts", "<class"), rows)


def _recovery(digest: Digest) -> Iterator[str]:
    found = digest.recovery
    yield from (
        "",
        f"Time to recover ({found.interruptions} of {digest.failures} failures were followed by another attempt)",
    )
    yield from (f"  {name:<16} {phrases.spread(getattr(found, name))}" for name in TERMS)
    yield f"  {'total':<16} {phrases.spread(found.whole)}"
    yield from _wrapped(f"Ineffective training time: {phrases.formula(digest)}", "  ")
    rows = [(phrases.gpus(one), str(one.runs), phrases.hours(one.to_failure.total), phrases.rate(one.to_failure))
            for one in digest.sizes]  # fmt: skip
    yield from _table("Mean time to failure by size", ("<size", ">attempts", ">hours run", "<to failure"), rows)


def _trend(digest: Digest) -> Iterator[str]:
    rows = [
        (
            one.week,
            str(one.failures),
            phrases.lost(one.gpu_hours),
            phrases.rate(one.between),
            f"{one.unknown.hits} of {one.unknown.n}",
            "left out" if one.effective is None else phrases.fine(one.effective),
        )
        for one in reversed(digest.trend)
    ]
    heads = ("<week", ">failures", ">GPU-hours lost", ">between failures", ">no diagnosis", ">effective")
    yield from _table("Eight weeks", heads, rows)


def _nodes(digest: Digest) -> Iterator[str]:
    rows = [
        (one.name, *(str(count or ".") for count in one.weeks), str(one.jobs), f"{one.score:.1f}", "lemon" * one.lemon)
        for one in digest.offenders.nodes
    ]
    weeks = (f">{phrases.short_week(one.week)}" for one in digest.trend)
    heads = ("<node", *weeks, ">jobs", ">score", "<")
    yield from _table("Nodes named in hardware and network failures, jobs by week", heads, rows)


def _record(digest: Digest) -> Iterator[str]:
    this, long = digest.record, digest.long_record
    rows = [
        ("no diagnosis", phrases.share(digest.unknown), phrases.share(phrases.unknown_of(digest))),
        ("closed by people", phrases.share(this.closed), phrases.share(long.closed)),
        ("correct, top answer", phrases.share(this.top1), phrases.share(long.top1)),
        ("correct, top three", phrases.share(this.top3), phrases.share(long.top3)),
        ("correctly none", phrases.share(this.abstained), phrases.share(long.abstained)),
    ]
    yield from _table("Accuracy", ("<figure", "<this week", f"<{long.weeks} weeks"), rows)
    fired = [(str(one.fired), phrases.share(one.wrong), one.rule) for one in digest.fired]
    yield from _table("Rules most often ranked first", (">times", "<wrong, 8 weeks", "<rule"), fired)
    wrong = [(phrases.share(one.wrong), one.rule) for one in digest.wrong]
    yield from _table("Rules most often wrong", ("<wrong, 8 weeks", "<rule"), wrong)
    if digest.thinly_judged:
        yield f"  {digest.thinly_judged} rules with fewer than five judgements are omitted."


def _open(digest: Digest) -> Iterator[str]:
    yield from ("", f"Unresolved: {digest.open_week} from this week, {digest.open_all} from eight weeks")
    rows = [
        (str(one.incident), "-" if one.gpu_hours is None else phrases.hours(one.gpu_hours), one.job, one.title)
        for one in digest.open
    ]
    yield from _table("", (">incident", ">GPU-hours", "<job", "<class"), rows)


def _cuts(cuts: Iterable[Breakdown], failures: int) -> Iterator[str]:
    for cut in cuts:
        rows = [(str(one.failures), phrases.lost(one.gpu_hours), one.value) for one in cut.lines]
        if rows:
            yield from _table(f"By {cut.name}", (">failures", ">GPU-hours lost", f"<{cut.name}"), rows)
        if cut.rest:
            yield f"  {cut.rest} other failures are omitted."
        if cut.unknown:
            yield from ([] if rows else [""])
            yield f"  {cut.unknown} of {failures} failures: {cut.name} unknown."


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Columns as wide as they need, the last one to the end of the line; each head begins with where it stands, < or >."""
    if not rows:
        return
    if title:
        yield from ("", title)
    clean = [[shown(cell) for cell in row] for row in ([one[1:] for one in heads], *rows)]
    widths = [max(map(len, column)) for column in zip(*clean, strict=True)]
    for row in clean:
        cells = (f"{cell:{head[0]}{width}}" for cell, head, width in zip(row, heads, widths, strict=True))
        yield f"  {'  '.join(cells)}"


def _wrapped(line: str, indent: str = "") -> list[str]:
    return textwrap.wrap(shown(line), _WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ")
