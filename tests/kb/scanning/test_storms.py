"""Logs in which rules hit many lines: the short ways that they take give what a look at each line gives."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from kb.model import Resource, StreamRef
from kb.scanning import scanner, staged_matcher
from kb.scanning.line_access import line_at
from kb.scanning.matcher import HyperscanMatcher, ScanPattern
from kb.scanning.scanner import scan
from kb.scanning.staged_matcher import StagedMatcher
from kb.scanning.structure_collector import PLACES_A_SHAPE, SHAPES, _new_of_shapes, _ReadPlaces
from tests.support.kb_samples import PLAN, matcher

FORMS = (
    "[rank{n}]: Traceback (most recent call last):", "Watchdog caught collective {n} on {w}", "{w} {n}", "", "x" * 60 + "{n}", "\x00{n}\x00", "{n}",
)  # fmt: skip


def storm(chance: random.Random, lines: int, words: int) -> bytes:
    """Lines of few forms with other numbers, and with some of so many words."""
    names = ["".join(chance.choices("abcdefgh", k=5)) for _ in range(words)]
    return "\n".join(
        chance.choice(FORMS).format(n=chance.randrange(10_000), w=chance.choice(names)) for _ in range(lines)
    ).encode()


def one_by_one(state: _ReadPlaces, data: bytes, starts: list[int], enough: int, keep: int) -> list[int]:
    """What is new, with a look at every line."""
    new = []
    for start in starts:
        if state.parsed >= keep:
            break
        shape = line_at(data, start)[:96].translate(None, b"0123456789")[:48]
        seen = state.shapes.get(shape, 0)
        if seen < enough and (seen or len(state.shapes) < SHAPES):
            state.shapes[shape] = seen + 1
            state.parsed += 1
            new.append(start)
    return new


@pytest.mark.parametrize("seed", range(12))
def test_lines_of_known_shapes_are_passed_over_together(seed: int) -> None:
    """Block by block, whether shapes are few or too many, and whether or not the log has zero bytes."""
    chance = random.Random(seed)
    quick, slow = _ReadPlaces(), _ReadPlaces()
    for _ in range(4):
        data = storm(chance, 400, chance.choice((1, 8, 200)))
        starts = [0, *(at + 1 for at, byte in enumerate(data) if byte == 10)]
        starts = starts[:: chance.choice((1, 2))]
        keep = chance.choice((40, 10_000))
        expected = one_by_one(slow, data, starts, PLACES_A_SHAPE, keep)
        found = list(_new_of_shapes(quick, data, starts, PLACES_A_SHAPE, keep)) if quick.parsed < keep else []
        assert (expected, slow) == (found, quick)


@pytest.mark.quick(1)
@pytest.mark.parametrize("seed", range(2))
def test_storms_that_come_and_go_are_read_the_same_in_one_stage(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small blocks with many hits, with words but no hits, and with nothing, in any order."""
    for module, name, value in (
        (scanner, "WORK", 32_000),
        (scanner, "AFTER", 8000),
        (scanner, "BEFORE", 4000),
        (staged_matcher, "FEW", 0),
    ):
        monkeypatch.setattr(module, name, value)
    chance = random.Random(seed)
    kinds = (
        "[rank3]: RuntimeError: out of memory. Tried to allocate 2.0 GiB\n", "Connection closed by peer\n", "out of memory soon\n", "step {}\n",
    )  # fmt: skip
    text = "".join(
        f"{number} {line}" for line in chance.choices(kinds, k=30) for number in range(chance.randrange(100, 2000))
    ).encode()
    ref = StreamRef("logs/rank-3.log", Resource(rank=3))
    dense: list[int] = []

    def whole(patterns: Sequence[ScanPattern]) -> HyperscanMatcher:
        dense.append(len(patterns))
        return HyperscanMatcher(patterns)

    for cut in (10_000 + seed, 50_000):
        blocks = [text[at : at + cut] for at in range(0, len(text), cut)]
        expected = scan(PLAN, matcher(), ref, blocks)
        assert scan(PLAN, StagedMatcher(PLAN.patterns, None, whole), ref, blocks) == expected
        assert expected.hits["oom#line"].count > 100
    assert len(dense) == 2
