"""The digest as text for a terminal, with every figure, its n, and its meaning."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from bot.digest import lead, phrases
from bot.digest.tiles import tiles
from bot.render.columns import Column, aligned
from bot.render.text_format import many, shown
from kb.digest.definitions import DEFINITIONS, LABELS
from kb.digest.digest import Breakdown, Digest
from kb.digest.recovery_times import TERMS

_WIDTH = 100


def text(digest: Digest, *, meanings: bool = False) -> str:
    """The digest as text. `meanings`: explain each figure at the end."""
    lines = [f"Failures of training jobs, week {digest.week} ({phrases.span(digest)})"]
    lines += [line for note in phrases.notes(digest) for line in _wrapped(note)]
    lines += ["", *(line for sentence in lead.sentences(digest) for line in _sentence(sentence)), *_actions(digest), ""]
    if digest.failures:
        lines += [f"{tile.name:<18} {tile.value:>10}  {tile.told}" for tile in tiles(digest)]
        lines += ["", *_news(digest), *_classes(digest), *_recovery(digest)]
    if any(trend_point.failures for trend_point in digest.trend):
        lines += [*_trend(digest), *_nodes(digest), *_record(digest), *_open(digest)]
    if digest.failures:
        lines += [*_cuts(digest.cuts, digest.failures)]
    lines += ["", *_wrapped(DEFINITIONS["few"] + " " + DEFINITIONS["share"])]
    if meanings:
        lines += ["", "What the figures mean"]
        lines += [line for name, item in DEFINITIONS.items() for line in _wrapped(f"{LABELS.get(name, name)}: {item}")]
    return "\n".join(shown(line).rstrip() for line in lines)


def _actions(digest: Digest) -> Iterator[str]:
    rows = [(action.owner, action.told) for action in lead.actions(digest)]
    yield from _table("What to do", ("<owner", "<action"), rows)


def _news(digest: Digest) -> Iterator[str]:
    found = list(phrases.news(digest))
    if not found:
        yield f"New in {digest.week}: nothing that the previous seven weeks did not have"
    for kind, names in found:
        yield from _wrapped(f"New in {digest.week}: {names}" if kind == "new" else f"New {kind}: {names}")


def _classes(digest: Digest) -> Iterator[str]:
    dear = phrases.dearest_first(digest.classes)
    rows = [
        (
            phrases.lost(item.gpu_hours),
            str(item.failures),
            str(item.before),
            item.domain.replace("none", "-"),
            item.title,
        )
        for item in dear
    ]
    yield from _table("By class", (">GPU-hours lost", ">failures", ">before", "<owner", "<class"), rows)


def _recovery(digest: Digest) -> Iterator[str]:
    found = digest.recovery
    yield from (
        "",
        f"Time to recover ({found.interruptions} of {digest.failures} failures were followed by another attempt)",
    )
    yield from (f"  {name:<16} {phrases.spread(getattr(found, name))}" for name in TERMS)
    yield f"  {'total':<16} {phrases.spread(found.whole)}"
    yield from _wrapped(f"Ineffective training time: {phrases.formula(digest)}", "  ")
    rows = [(phrases.gpus(job_size), str(job_size.runs), phrases.hours(job_size.to_failure.total), phrases.rate(job_size.to_failure))
            for job_size in digest.sizes]  # fmt: skip
    yield from _table("Mean time to failure by size", ("<size", ">attempts", ">hours run", "<to failure"), rows)


def _trend(digest: Digest) -> Iterator[str]:
    rows = [
        (
            trend_point.week,
            str(trend_point.failures),
            phrases.lost(trend_point.gpu_hours),
            phrases.rate(trend_point.between),
            f"{trend_point.unknown.hits} of {trend_point.unknown.n}",
            "left out" if trend_point.effective is None else phrases.fine(trend_point.effective),
        )
        for trend_point in reversed(digest.trend)
    ]
    heads = ("<week", ">failures", ">GPU-hours lost", ">between failures", ">no cause named", ">effective")
    yield from _table("Eight weeks", heads, rows)


def _nodes(digest: Digest) -> Iterator[str]:
    rows = [
        (
            node.name,
            *(str(count or ".") for count in node.weeks),
            str(node.jobs),
            f"{node.score:.1f}",
            "lemon" * node.lemon,
        )
        for node in digest.offenders.nodes
    ]
    weeks = (f">{phrases.short_week(trend_point.week)}" for trend_point in digest.trend)
    heads = ("<node", *weeks, ">jobs", ">score", "<")
    yield from _table("Nodes in hardware and network failures, or named by people (jobs per week)", heads, rows)


def _record(digest: Digest) -> Iterator[str]:
    this, long = digest.record, digest.long_record
    rows = [
        ("no cause named", phrases.share(digest.unknown), phrases.share(phrases.unknown_of(digest))),
        ("closed by people", phrases.share(this.closed), phrases.share(long.closed)),
        ("correct, top answer", phrases.share(this.top1), phrases.share(long.top1)),
        ("correct, top three", phrases.share(this.top3), phrases.share(long.top3)),
        ("correctly none", phrases.share(this.abstained), phrases.share(long.abstained)),
    ]
    yield from _table("Accuracy", ("<figure", f"<{digest.week}", f"<{long.weeks} weeks"), rows)
    fired = [(str(rule_line.fired), phrases.share(rule_line.wrong), rule_line.rule) for rule_line in digest.fired]
    yield from _table("Rules most often ranked first", (">times", "<wrong, 8 weeks", "<rule"), fired)
    wrong = [(phrases.share(rule_line.wrong), rule_line.rule) for rule_line in digest.wrong]
    yield from _table("Rules most often wrong", ("<wrong, 8 weeks", "<rule"), wrong)
    if digest.thinly_judged:
        yield f"  {many(digest.thinly_judged, 'rule')} with fewer than five judgements {'is' if digest.thinly_judged == 1 else 'are'} omitted."


def _open(digest: Digest) -> Iterator[str]:
    yield from ("", f"Unresolved: {digest.open_week} from {digest.week}, {digest.open_all} from eight weeks")
    rows = [
        (str(item.incident), "-" if item.gpu_hours is None else phrases.hours(item.gpu_hours), item.job, item.title)
        for item in digest.open
    ]
    yield from _table("", (">incident", ">GPU-hours", "<job", "<class"), rows)


def _cuts(cuts: Iterable[Breakdown], failures: int) -> Iterator[str]:
    for cut in cuts:
        rows = [(str(line.failures), phrases.lost(line.gpu_hours), line.value) for line in cut.lines]
        if rows:
            yield from _table(f"By {cut.name}", (">failures", ">GPU-hours lost", f"<{cut.name}"), rows)
        if cut.rest:
            yield f"  {cut.rest} other failures are omitted."
        if cut.unknown:
            yield from ([] if rows else [""])
            yield f"  {cut.unknown} of {failures} failures: {cut.name} unknown."


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Columns as wide as their contents; the last one extends to the end of the line. Each head starts with its alignment, < or >."""
    if not rows:
        return
    if title:
        yield from ("", title)
    columns = [Column(shown(head[1:]), right=head[0] == ">") for head in heads]
    yield from (f"  {line}" for line in aligned(columns, [[shown(cell) for cell in row] for row in rows]))


def _sentence(text: str) -> list[str]:
    return textwrap.wrap(shown(text), _WIDTH, break_on_hyphens=False)


def _wrapped(line: str, indent: str = "") -> list[str]:
    return textwrap.wrap(shown(line), _WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ")
