"""Determines what a run did that made no step: it gathered its processes, built its parts, or read data or a checkpoint.

The report of the failure says it by its words, by what raised it, and by how many processes had come together. Where it does not, the
lines before it may: a start reads data in a loop, each part of which prints the same line.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from kb.anomalies.core.run import LineRef, RunEvent, RunProfile
from kb.anomalies.core.severity_words import is_body, is_consequence, is_raised
from kb.parsers.logs.progress.repeated_lines import states_value

LOOP = 3  # lines of a speaker
MOSTLY = 0.5  # share of the ranks whose last lines tell
USUAL = 0.7  # share of the ranks or nodes that print a line which shows that the program ran
SEVERAL = 2  # such lines
LAST = 3  # reports of the failure whose words are read
LONGEST = 400  # characters of a line that are read
_OF_WORLD = r"(?<![\w.:-])(\d{1,6}) ?(?:/|of|out of) ?%d(?![\w.-]|/)"
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")  # within the name of a class
_JOINS = re.compile(
    r"(?i)(?<![a-z])(?:re)?join(?:s|ed|ing)?(?![a-z])|rendezvous|(?<![a-z])(?:handshake|admission|membership)(?![a-z])"
)
_READS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "checkpoint_load",
        re.compile(
            r"(?i)check_?point|(?<![a-z])(?:ckpts?|snapshots?|restor(?:e|es|ed|ing)|resum(?:e|es|ed|ing)|state_?dicts?|weights"
            r"|(?:optimi[sz]er|adam)[ _]?(?:states?|moments?)|moments?|pretrained)(?![a-z])"
        ),
    ),
    (
        "data_load",
        re.compile(
            r"(?i)data_?(?:set|loader|source|file)|(?<![a-z])(?:shards?|corpus|catalog(?:ue)?s?|manifests?|samples?|records?|episodes?|frames"
            r"|partitions?|tokeni[sz]er|vocab\w*|loader)(?![a-z])"
        ),
    ),
)
_BUILDS = re.compile(r"(?i)^(?:build|make|create|construct|setup|set_up|init|configure|wire)")


def startup_stage(
    run: RunProfile,
    reports: Sequence[tuple[str, LineRef]],
    told: str,
    *,
    raised: bool,
    usual: Collection[str],
) -> str:
    """The stage of a run without steps.

    `reports`: the texts of the failure, the surest first; `told`: the stage that its other lines indicate; `raised`: an exception of its own
    ended it; `usual`: the events that a good run has, too.
    """
    texts = [_HUMP.sub(" ", text[:LONGEST]) for text, _ in reports[:LAST]]
    if _is_short(run, texts):
        return "launch"
    own = texts[:1] + [
        text for text, (_, spot) in zip(texts[1:], reports[1:LAST], strict=True) if spot.node == reports[0][1].node
    ]
    if any(_JOINS.search(text) for text in own):
        return "launch"
    read = next((stage for stage, words in _READS if any(map(words.search, own))), None)
    if read is not None:
        return read
    if told not in ("launch", "init"):
        return told
    functions = [frame.partition(" ")[0] for _, spot in reports[:1] for frame in _frames(run, spot)]
    if any(map(_BUILDS.search, functions)) or (raised and _has_begun(run, usual)):
        return "init"
    loops = told == "launch" and not raised and _reads_in_loop(run, reports[0][1] if reports else None, usual)
    return "data_load" if loops else told


def _has_begun(run: RunProfile, usual: Collection[str]) -> bool:
    """Whether nearly all ranks or nodes printed several usual lines, so that the program ran."""
    wanted = USUAL * len(run.heard)
    kinds = (event for event in run.events.values() if len(event.nodes) >= wanted and _is_calm(event, usual))
    return sum(1 for _ in kinds) >= SEVERAL


def _is_calm(event: RunEvent, usual: Collection[str]) -> bool:
    alarming = event.level in ("warning", "error", "critical") or is_body(event.text) or is_consequence(event.text)
    return event.id in usual and not alarming


def _frames(run: RunProfile, spot: LineRef) -> Iterable[str]:
    return next(
        (item.frames for item in run.stacks if (item.spot.source, item.spot.offset) == (spot.source, spot.offset)), ()
    )


def _is_short(run: RunProfile, texts: Sequence[str]) -> bool:
    """Whether the reports, or the last lines of ranks again and again, say that fewer processes than all have come together."""
    world = len(run.ranks)
    stated = run.settings.get("world_size") or ""
    world = int(stated) if stated.isdigit() else world
    if world < 2:
        return False
    short = re.compile(_OF_WORLD % world)
    raised = (spot.text for event in run.events.values() if is_raised(event.text) for spot in _lasts(event))
    if any(_counts_less(short, text, world) for text in (*texts, *raised)):
        return True
    waits = (
        spots
        for event in run.events.values()
        for seen in event.nodes.values()
        if seen.count >= LOOP and len(spots := seen.spots[-LOOP:]) == LOOP
    )
    return any(
        len({_counted(short, spot.text) for spot in spots}) == 1 and _counts_less(short, spots[0].text, world)
        for spots in waits
    )


def _lasts(event: RunEvent) -> list[LineRef]:
    return [seen.spots[-1] for seen in event.nodes.values()]


def _counted(short: re.Pattern[str], text: str) -> str:
    found = short.search(text)
    return found[1] if found else ""


def _counts_less(short: re.Pattern[str], text: str, world: int) -> bool:
    found = short.search(text)
    return found is not None and world <= 2 * int(found[1]) < 2 * world


def _reads_in_loop(run: RunProfile, spot: LineRef | None, usual: Collection[str]) -> bool:
    """Whether the last usual line before the failure, on its rank or most ranks, is one of several alike, without a value."""
    last: dict[str, tuple[int, bool]] = {}
    for event in run.events.values():
        if not _is_calm(event, usual):
            continue
        loops = _is_loop(event)
        for node, seen in event.nodes.items():
            if node not in run.ranks:
                continue
            for at in seen.spots:
                if spot is None or at.source != spot.source or at.offset < spot.offset:
                    last[node] = max(last.get(node, (-1, False)), (at.offset, loops))
    if spot is not None and spot.node in last:
        return last[spot.node][1]
    found = Counter(loops for _, loops in last.values())
    return found[True] > MOSTLY * found.total()


def _is_loop(event: RunEvent) -> bool:
    texts = [spot.text for spot in _lasts(event)]
    return max(seen.count for seen in event.nodes.values()) >= LOOP and not all(map(states_value, texts))
