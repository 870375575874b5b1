"""Each change is reported where it begins, and healthy runs have none."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kb.metrics.change_points.learning_rate import off_schedule
from kb.metrics.change_points.memory import memory_growth
from kb.metrics.change_points.step_time import decline, slower, throughput_drop
from kb.metrics.change_points.track import Track, track
from kb.metrics.change_points.training import gradient_jump, loss_broken


def paces(count: int, sigma: float = 0.02, seed: int = 1, level: float = 6.0) -> np.ndarray:
    """Seconds of steps with noise, the first twenty slow."""
    chance = np.random.default_rng(seed)
    values = level * (1 + sigma * chance.standard_normal(count))
    values[:20] *= 1 + 2 * np.exp(-np.arange(20) / 4)
    return values


def test_steps_that_become_a_twentieth_slower_are_reported_within_ten_steps() -> None:
    """A lasting rise of 5 % at 2 % noise is reported soon, with its start."""
    waits = []
    for seed in range(20):
        values = paces(800, seed=seed)
        values[600:] *= 1.05
        (found,) = slower(track("seconds", values))
        waits.append(found.found - 600 + 1)
        assert abs(found.since - 600) <= 6
        assert found.size == pytest.approx(0.05, abs=0.035)

    assert min(waits) >= 1
    assert sorted(waits)[17] <= 10


def test_a_healthy_day_of_steps_is_quiet() -> None:
    """Noise, warm-up, single late steps and short spells are not a slowdown."""
    values = paces(14_400)
    values[777::991] *= 2.5
    for begin in (3000, 7000, 11_000):
        values[begin : begin + 4] *= 1.12

    assert slower(track("seconds", values)) == ()


@pytest.mark.parametrize("logged", [True, False])
def test_evaluations_and_checkpoints_are_no_slowing(logged: bool) -> None:
    """Steps that contain one are known or isolated; neither is a change."""
    values = paces(4000)
    values[199::200] += 90.0
    values[149::150] += 20.0
    known = values > 10 if logged else None

    assert slower(track("seconds", values, skip=known)) == ()


def test_missing_steps_and_nan_are_skipped() -> None:
    """A missing value is not a fast step, and the step named is the logged one."""
    values = paces(800)
    values[600:] *= 1.3
    values[50::7] = math.nan
    (found,) = slower(track("seconds", values, np.arange(800) * 10))

    assert 5900 <= found.since <= 6050


def test_a_change_is_reported_once_and_a_second_one_again() -> None:
    """After a change the new level is the usual one."""
    values = paces(1500)
    values[500:] *= 1.2
    values[1000:] *= 1.2
    found = slower(track("seconds", values))

    assert [round(series_change.since, -1) for series_change in found] == [500, 1000]


def test_steps_that_become_faster_are_fine() -> None:
    """An improvement is not a fault."""
    values = paces(800)
    values[400:] *= 0.8

    assert slower(track("seconds", values)) == ()


def test_a_slow_decline_of_a_twentieth_is_reported() -> None:
    """Steps that grow slower by a little each are seen over the whole run."""
    values = paces(6000) * (1 + 0.09 * np.clip((np.arange(6000) - 2000) / 4000, 0, 1))
    found = decline(track("seconds", values))

    assert found is not None
    assert found.size >= 0.05
    assert 2000 <= found.since <= 5000


def test_a_throughput_that_declines_is_reported_downwards() -> None:
    """Where lower is worse the sign says so."""
    values = 1e5 / paces(6000) * (1 - 0.1 * np.arange(6000) / 6000)
    found = decline(track("throughput", values), higher_is_worse=False)

    assert found is not None
    assert -0.12 < found.size < -0.05


@pytest.mark.parametrize("amount", [0.0, 0.02])
def test_a_level_that_wanders_is_no_decline(amount: float) -> None:
    """Noise and a turn of two per cent are healthy, as is a dip that is over."""
    values = paces(6000) * (1 + amount * np.sin(np.arange(6000) / 700))
    values[3000:3400] *= 1.2

    assert decline(track("seconds", values)) is None


@pytest.mark.parametrize("length", [60, 200])
def test_a_short_series_has_no_decline(length: int) -> None:
    """A few steps are not a trend, however steep."""
    assert decline(track("seconds", paces(length) * np.linspace(1, 1.5, length))) is None


@pytest.mark.parametrize(
    "course",
    [
        np.repeat([1.0, 1.3], 300),  # one leap
        np.concatenate([np.full(200, 1.0), np.full(200, 20.0), np.full(200, 22.0)]),  # other work
        1 + 0.3 * np.repeat([0.0, 0.3, 0.6, 0.1, 0.5, 1.0], 100),  # much of it taken back on the way
    ],
)
def test_what_does_not_go_up_bit_by_bit_is_no_decline(course: np.ndarray) -> None:
    """A leap, or a level that goes up and down, is another kind of change, however far it ends from its best."""
    assert decline(track("seconds", paces(600) * course)) is None


def test_a_throughput_under_seven_tenths_for_three_lines_is_reported_once() -> None:
    """Two lines are not enough, three are, and it is reported once."""
    values = np.full(100, 400.0)
    values[40:42] = 200.0
    values[60:80] = 240.0
    (found,) = throughput_drop(track("throughput", values))

    assert (found.since, found.found) == (60, 62)
    assert found.size == pytest.approx(-0.4)


def losses(count: int = 400, seed: int = 2) -> np.ndarray:
    """A loss that falls and is noisy."""
    chance = np.random.default_rng(seed)
    return 2.0 + 8.0 * np.exp(-np.arange(count) / 60) + 0.05 * chance.standard_normal(count)


def test_a_healthy_loss_is_quiet() -> None:
    """The first steep fall, noise and one spike that heals are none."""
    values = losses()
    values[250] = 4.0

    assert loss_broken(track("loss", values)) is None


@pytest.mark.parametrize(
    ("put", "kind", "since"),
    [
        (lambda v: v.__setitem__(slice(300, None), math.nan), "not_finite", 300),
        (lambda v: v.__setitem__(slice(399, None), math.inf), "not_finite", 399),
        (lambda v: v.__setitem__(350, 5e4), "above", 350),
        (lambda v: v.__setitem__(slice(300, None), 2.0 + np.arange(100) % 5), "variance", 300),
    ],
)
def test_a_loss_that_is_lost_is_reported(put: Callable[[Any], None], kind: str, since: int) -> None:
    """NaN, a loss above a thousand, and one that jumps about each have their kind."""
    values = losses()
    put(values)
    found = loss_broken(track("loss", values))

    assert found is not None
    assert found.kind == kind
    assert abs(found.since - since) <= 4


def test_a_noisy_loss_within_the_range_that_it_had_before_is_not_lost() -> None:
    """Ten low values in a row make its level look low and calm."""
    chance = np.random.default_rng(4)
    values = chance.choice([0.03, 0.06, 0.11, 0.14], size=400)
    values[200:214] = 0.03
    values[214:220] = 0.14

    assert loss_broken(track("loss", values)) is None
    values[214:] = chance.choice([0.03, 0.9, 2.5], size=186)
    assert loss_broken(track("loss", values)) is not None


def test_a_single_nan_that_heals_is_no_broken_loss() -> None:
    """One skipped step is how half precision finds its scale."""
    values = losses()
    values[120] = math.nan

    assert loss_broken(track("loss", values)) is None


def test_a_gradient_norm_of_many_times_the_usual_is_reported() -> None:
    """Three lines on end are a jump, one is a clipped step."""
    values = np.full(200, 0.4)
    values[100] = 30.0
    quiet = gradient_jump(track("grad_norm", values))
    values[150:] = 9.0
    found = gradient_jump(track("grad_norm", values))

    assert quiet is None
    assert found is not None
    assert (found.kind, found.since) == ("jump", 150)


def test_a_gradient_norm_that_stays_nan_is_reported() -> None:
    """Eight on end, not the one of an overflow."""
    values = np.full(200, 0.4)
    values[[20, 60]] = math.nan
    quiet = gradient_jump(track("grad_norm", values))
    values[180:] = math.nan
    found = gradient_jump(track("grad_norm", values))

    assert quiet is None
    assert found is not None
    assert found.since == 180


@pytest.mark.parametrize("every", [1, 10])
def test_memory_that_grows_with_each_step_is_reported_whatever_is_logged(every: int) -> None:
    """Windows count steps, not lines."""
    steps = np.arange(0, 400, every)
    found = memory_growth(track("memory", (30e9 + 80e6 * steps).astype(float), steps))

    assert found is not None
    assert found.kind == "growth"
    assert "80 MB a step" in found.text


def test_memory_that_is_released_or_levels_off_is_fine() -> None:
    """A sawtooth and a cache that fills are not leaks."""
    steps = np.arange(400)
    saw = track("memory", (30e9 + 80e6 * (steps % 50)).astype(float), steps)
    fills = track("memory", 60e9 - 20e9 * np.exp(-steps / 20), steps)

    assert memory_growth(saw) is None
    assert memory_growth(fills) is None


def cosine(count: int = 1000, warm: int = 100, peak: float = 3e-4, least: float = 3e-5) -> np.ndarray:
    """A warm-up and a cosine to a tenth."""
    at = np.arange(count)
    turned = least + 0.5 * (peak - least) * (1 + np.cos(np.pi * np.clip((at - warm) / (count - 200 - warm), 0, 1)))
    return np.where(at < warm, peak * (at + 1) / warm, turned)


@pytest.mark.parametrize(
    "rate",
    [
        cosine(),
        np.minimum(np.arange(1, 500) / 100, 1.0) * 1e-4,
        np.full(300, 1e-4),
        np.where(np.arange(600) < 300, 1e-3, 1e-4),
        np.maximum(1.0 - np.arange(500) / 400, 0.0) * 1e-4,
        np.tile(cosine(300, 1), 3),
    ],
)
def test_usual_schedules_are_on_schedule(rate: np.ndarray) -> None:
    """Cosine, constant, steps, linear to 0, restarts."""
    assert off_schedule(track("learning_rate", rate)) is None


def test_a_rate_that_stops_half_way_down_is_stuck() -> None:
    """It fell with every line and then did not."""
    rate = cosine()
    rate[400:] = rate[400]
    found = off_schedule(track("learning_rate", rate))

    assert found is not None
    assert (found.kind, found.since) == ("stuck", 400)


def test_a_rate_of_zero_a_leap_and_a_rate_off_the_expected_one_are_reported() -> None:
    """Each with its kind and step."""
    zero, leap, off = cosine(), cosine(), cosine()
    zero[300:] = 0.0
    leap[500:] *= 10.0
    off[600:] *= 1.2
    kinds = [
        off_schedule(track("learning_rate", zero)),
        off_schedule(track("learning_rate", leap)),
        off_schedule(track("learning_rate", off), expected=track("learning_rate", cosine())),
    ]

    assert [(kind.kind, kind.since) for kind in kinds if kind] == [("zero", 300), ("leap", 500), ("off", 600)]


def test_parts_of_different_length_are_refused() -> None:
    """A caller's mistake is an error."""
    with pytest.raises(ValueError, match="one length"):
        track("loss", [1.0, 2.0], [1])


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=12), st.integers(0, 60), st.booleans())
def test_any_numbers_are_looked_at_without_an_exception(some: list[float], times: int, plain: bool) -> None:
    """Garbage in a series, short or long, raises nothing and warns of nothing."""
    values = ([6.0, 6.5, 5.5] * 40 if plain else []) + some * times
    series = track("x", values)
    looks: list[object] = [item(series) for item in (decline, loss_broken, gradient_jump, memory_growth, off_schedule)]
    looks += [slower(series), throughput_drop(series)]

    assert len(looks) == 7
    assert isinstance(series, Track)


def test_a_rate_that_was_always_zero_left_no_schedule() -> None:
    """A short log with nothing but zeros shows the setting; a long one is strange."""
    zeros = np.zeros(200)

    assert off_schedule(track("learning_rate", zeros[:12], np.arange(12) * 5)) is None
    assert off_schedule(track("learning_rate", zeros)) is not None
