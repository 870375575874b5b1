"""Iteration lines of forms that no format knows are read where nothing else is, from what is kept of a log."""

from __future__ import annotations

import math

import pytest

from kb.facts.steps.unread_forms import with_unread
from kb.model import ProgressPoint, SourceKind, StreamRef
from kb.scanning.summary import TEXT, StreamSummary


def read(lines: list[str], *, kind: SourceKind = "job", points: tuple[ProgressPoint, ...] = ()) -> list[ProgressPoint]:
    """The points of a log, as far as its ends are kept."""
    text = "\n".join([*lines, ""])
    raw = text.encode()
    tail = raw[max(0, len(raw) - TEXT) :].decode("utf-8", "ignore")
    summary = StreamSummary(
        StreamRef("r.log", kind=kind),
        size=len(raw),
        head=raw[:TEXT].decode("utf-8", "ignore"),
        tail=tail,
        tail_offset=len(raw) - len(tail.encode()),
    )
    series = summary.series.__class__(points=points, seen=len(points))
    return list(with_unread(summary, series).points)


@pytest.mark.parametrize(
    "line",
    [
        "Étape {step}/90 : perte={loss}, taux d'apprentissage {rate}, durée {ms} ms",
        "08:00:{step:02d} rang-2 Schritt {step} Verlust {loss} Lernrate {rate} {ms}ms",
        "[워커] 스텝 {step} 손실 {loss} 학습률 {rate} ({ms} ms)",
        '{{"upd": 7, "update": {step}, "nll": {loss}, "lr": {rate}, "ms": {ms}}}',
        "upd | {step} of 90 | objective {loss} | lr {rate} | {ms} ms/it",
    ],
)
def test_values_by_their_names(line: str) -> None:
    """A step, a loss, a learning rate, a time; in the words of several languages."""
    steps = [3, 6, 9, 12, 15]
    found = read([line.format(step=step, loss=f"{step / 8:.4f}", rate="2.5e-04", ms=100 + step) for step in steps])
    assert [p.step for p in found] == steps
    assert [p.loss for p in found] == [pytest.approx(step / 8, abs=1e-3) for step in steps]
    assert {p.learning_rate for p in found} == {2.5e-4}
    assert [p.seconds for p in found] == [pytest.approx((100 + step) / 1000) for step in steps]


def test_a_loss_that_is_no_number() -> None:
    """It is read as such: what the log says, not as if nothing were there."""
    values = ["0.5", "0.4", "0.3", "nan", "nan", "nan"]
    found = read([f"paso {10 * (at + 1)} pérdida={value}" for at, value in enumerate(values)])
    assert [math.isnan(p.loss or 0.0) for p in found] == [False] * 3 + [True] * 3


def test_lines_with_nothing_but_the_time_of_a_step() -> None:
    """Each is one step, whose number is not known."""
    found = read([f"10:0{at}:00 Iteration took {30 + at}.5 s." for at in range(5)])
    assert [(p.step, p.seconds) for p in found] == [(None, 30.5 + at) for at in range(5)]


@pytest.mark.parametrize(
    "lines",
    [
        [f"validación en el paso {at}: pérdida {at / 7:.3f}" for at in range(3, 30, 3)],  # of held-out data
        [f"paso {at}: pérdida 0.5" for at in (9, 6, 3, 9, 6, 3)],  # it counts nothing
        [f"paso {at} pérdida 0.{at}" for at in (3, 6, 9)],  # too few
        [f"attempt {at}: objective unreachable, retry in {at}.5 s" for at in range(1, 9)],
        [f"shard {at} took 3.5 s" for at in range(9)],
        [f"step {at} of the install took 3 tries" for at in range(9)],
        ["perte du lien au pas 3"] * 6,
    ],
)
def test_other_lines_count_no_steps(lines: list[str]) -> None:
    """Neither evaluations nor retries nor single words are steps."""
    assert read(lines) == []


def test_what_a_format_knows_is_not_read_again() -> None:
    """Nor are logs of other kinds."""
    lines = [f"paso {at} pérdida=0.{at}" for at in range(2, 12, 2)]
    known = (ProgressPoint(0, step=4, loss=1.0, format="step_loss"),)
    assert read(lines, points=known) == list(known)
    assert read(lines, kind="kernel") == []


def test_of_a_long_log_only_the_end_is_read() -> None:
    """Between both ends something may have changed: what the first lines say may be of long ago."""
    lines = [f"paso {at} pérdida=0.{at}" for at in range(2, 10_000, 2)]
    found = read(lines)
    assert found[-1].step == 9998
    assert (found[0].step or 0) > 8000


def test_what_a_rank_worked_itself_is_no_time_of_the_step() -> None:
    """All ranks wait for the slowest, whose own time tells it."""
    found = read([f"strand {at} loss 0.{at} own {40 + at} ms" for at in range(4, 24, 4)])
    assert [p.compute for p in found] == [pytest.approx((40 + at) / 1000) for at in range(4, 24, 4)]
    assert {p.seconds for p in found} == {None}
