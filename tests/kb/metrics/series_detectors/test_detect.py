"""Detectors: each speaks on a clear case and is silent on what healthy runs show."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kb.metrics.series_detectors.detect import DETECTORS, detect
from kb.metrics.series_detectors.finding import SeriesFinding
from kb.metrics.series_detectors.watchdog import collective_behind, collectives_differ
from kb.model import RESIZED, ProgressPoint, Resource, Structure
from kb.scanning.summary import POINTS

NONE: dict[str, float] = {}
NAN = math.nan


def series(field: str, values: list[float], *, first: int = 1, **parts: object) -> list[ProgressPoint]:
    """Points with one measured value each, a step apart."""
    return [
        ProgressPoint(200 * n, first + n, **{field: value, **parts})  # type: ignore[arg-type]
        for n, value in enumerate(values)
    ]


def one(name: str, points: list[ProgressPoint], **params: float) -> SeriesFinding | None:
    """What a detector finds in the points."""
    found = detect(name, points, params)
    assert len(found) <= 1
    return found[0] if found else None


def noisy(level: float, noise: float, count: int, seed: int = 1) -> list[float]:
    """Values about a level."""
    chance = random.Random(seed)
    return [level + chance.gauss(0.0, noise) for _ in range(count)]


# A healthy run of some length, in everything that is logged.


def healthy(seed: int, count: int = 400) -> list[ProgressPoint]:
    """First steps that differ, warm-up, noise of small batches, evaluations and checkpoints that take longer."""
    chance = random.Random(seed)
    points = []
    for step in range(count):
        loss = 2.0 + 9.0 * math.exp(-step / 15) + abs(chance.gauss(0.0, 0.25))
        slow = 40.0 if step == 0 else 6.0 if step % 50 == 49 else 3.0 if step % 20 == 19 else 0.0
        points.append(
            ProgressPoint(
                200 * step,
                step,
                loss=loss,
                grad_norm=abs(chance.gauss(1.0, 0.4)) + (math.inf if step < 3 else 0.0),
                seconds=2.5 + abs(chance.gauss(0.0, 0.1)) + slow,
                learning_rate=1e-4 * min(1.0, step / 100),
                memory=3e10 + 2e9 * min(step, 5) + chance.gauss(0.0, 1e8),
                loss_scale=max(4096.0, 2.0 ** (32 - min(step, 32))) * (2 if step > 300 else 1),
            )
        )
    return points


@pytest.mark.quick("-0-", "-5-")
@pytest.mark.parametrize("name", sorted(DETECTORS))
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("format_", ["megatron", "hf", "tqdm"])
def test_a_healthy_run_is_left_in_peace(name: str, seed: int, format_: str) -> None:
    """No detector speaks on first steps, warm-up, small batches, evaluations and checkpoints, whole or cut short."""
    points = [replace(point, format=format_, total=400) for point in healthy(seed)]
    for part in (points, points[:7], points[:60], points[100:], points[::10]):
        assert one(name, part) is None


@settings(deadline=None, max_examples=40)
@given(
    st.sampled_from(sorted(DETECTORS)),
    st.lists(
        st.builds(
            ProgressPoint,
            st.integers(0, 10**9),
            st.none() | st.integers(-5, 10**6),
            loss=st.none() | st.floats(),
            grad_norm=st.none() | st.floats(),
            seconds=st.none() | st.floats(),
            learning_rate=st.none() | st.floats(),
            memory=st.none() | st.floats(),
            loss_scale=st.none() | st.floats(),
            format=st.sampled_from(("megatron", "tqdm", "")),
        ),
        max_size=70,
    ),
)
def test_a_detector_answers_on_whatever_numbers(name: str, points: list[ProgressPoint]) -> None:
    """Nan, infinities, negative and missing values give an answer about one of the points, never an error."""
    found = one(name, points)
    assert found is None or (found.point in points or any(found.point is p for p in points))


@pytest.mark.parametrize("name", sorted(DETECTORS))
def test_validation_lines_are_no_training_steps(name: str) -> None:
    """A validation loss of nan, or one that takes long, is not looked at."""
    bad = series("loss", [NAN] * 30, seconds=900.0, learning_rate=0.0, validation=True)
    assert one(name, bad) is None


# loss_not_finite


def test_a_loss_that_becomes_nan_and_stays_so() -> None:
    """The first bad step is named."""
    found = one("loss_not_finite", series("loss", [3.0, 2.9, 2.8, NAN, NAN, NAN]))
    assert found is not None
    assert (found.point.step, found.text) == (4, "loss is nan at step 4")


def test_a_loss_that_is_infinite_at_the_very_end() -> None:
    """A last word counts, though it is one step only."""
    assert one("loss_not_finite", series("loss", [3.0, 2.9, math.inf])) is not None


@pytest.mark.parametrize(
    "values", [[3.0, NAN, 2.9, 2.8], [NAN, 3.0, 2.8], [3.0, NAN, 2.9, NAN, 2.8, 2.7], [3.0, 2.0], []]
)
def test_a_passing_nan_is_a_skipped_step(values: list[float]) -> None:
    """Single non-finite steps are skipped and the run continues."""
    assert one("loss_not_finite", series("loss", values)) is None


def test_a_gradient_norm_that_stays_infinite() -> None:
    """A loss that looks well does not hide a gradient that is not finite for many steps; a few steps do not count."""
    assert one("loss_not_finite", series("grad_norm", [1.0, *[math.inf] * 8], loss=2.0)) is not None
    assert one("loss_not_finite", series("grad_norm", [1.0, *[math.inf] * 5, 1.0], loss=2.0)) is None
    assert one("loss_not_finite", series("grad_norm", [1.0, NAN, NAN, 1.0], loss=2.0), gradient_steps=2) is not None


# loss_spike


def test_a_loss_that_jumps_and_stays_up() -> None:
    """The finding has the step, the earlier level and the peak."""
    values = [*noisy(2.0, 0.02, 60), 5.1, 6.4, 5.9, 5.5]
    found = one("loss_spike", series("loss", values, first=1000))
    assert found is not None
    assert found.point.step == 1060
    assert dict(found.captures)["value"] == "6.4"
    assert [point.loss for point in found.more] == [6.4]


@pytest.mark.parametrize(
    "values",
    [
        [*noisy(2.0, 0.02, 60), 7.0, 2.0, 2.0, 2.0],  # back at once: one bad batch
        noisy(2.0, 0.4, 400),  # small batches
        [*noisy(2.0, 0.02, 60), 2.4, 2.4, 2.4],  # a rise below what counts
        [*noisy(2.0, 0.02, 60), 5.0, NAN, NAN],  # the loss that ends as nan says more
    ],
)
def test_noise_and_single_steps_are_no_spike(values: list[float]) -> None:
    """A loss that comes back, or that is as noisy as ever, is left in peace."""
    assert one("loss_spike", series("loss", values, first=1000)) is None


@pytest.mark.parametrize("rise", [[900.0, 880.0, 860.0, 850.0], [1.4, 3.2, 7.3, 15.0, 32.0, 65.0, 130.0]])
def test_a_rise_after_a_steady_fall_begins_at_the_turn(rise: list[float]) -> None:
    """Its level is the last loss of the fall, which the log has, and no median of what it fell through."""
    fall = [4.3 - 0.2 * at for at in range(20)]
    found = one("loss_spike", series("loss", [*fall, *rise], first=1000))
    assert found is not None
    assert (found.point.step, dict(found.captures)["level"]) == (1020, "0.5")


@pytest.mark.parametrize(
    ("rise", "end"),
    [([900.0, 880.0, 860.0, 850.0], "far"), ([900.0, 880.0, 9.0, 8.0], "above"), ([9.0, 8.8, 8.6, 8.5], "above")],
)
def test_a_loss_that_stays_a_hundred_times_its_level_is_far(rise: list[float], end: str) -> None:
    """Such weights do not come back; a loss that falls again or rose less may."""
    found = one("loss_spike", series("loss", [*noisy(2.0, 0.02, 60), *rise], first=1000))
    assert found is not None
    assert dict(found.captures)["end"] == end


def test_a_short_log_gives_the_last_loss_of_its_fall() -> None:
    """With three or four falling losses before the rise, their median is no loss that stood there last."""
    found = one("loss_spike", series("loss", [9.6, 8.6, 7.5, 6.9, 10400.0, 4.8e9, 7.7e12], first=1000))
    assert found is not None
    assert dict(found.captures)["level"] == "6.9"


def test_the_first_steps_may_jump() -> None:
    """Until the loss has settled nothing is a spike; the site may say how long that takes."""
    points = series("loss", [*[2.0] * 20, 9.0, 9.0, 9.0, 9.0], first=10)
    assert one("loss_spike", points) is None
    assert one("loss_spike", points, first_step=20) is not None


# throughput_drop and straggler_step


def test_steps_that_become_slower_for_good() -> None:
    """The finding has the first slow step and both levels."""
    found = one("throughput_drop", series("seconds", [*noisy(1.0, 0.02, 40), *noisy(2.5, 0.05, 10)]))
    assert found is not None
    assert found.point.step == 41
    assert dict(found.captures)["level"].startswith(("1", "0.99"))
    assert found.text.startswith("a step takes 2.")


@pytest.mark.parametrize(
    "values",
    [
        [30.0, 12.0, *noisy(1.0, 0.05, 40)],  # first steps
        [9.0 if n % 25 == 24 else 1.0 for n in range(100)],  # evaluations
        [*[1.0] * 40, *[2.5] * 5, *[1.0] * 10],  # slow for a while
        [*[1.0] * 40, *[1.3] * 40],  # not slow enough
        [1.0, 1.0, 5.0, 5.0, 5.0],  # too few to tell
    ],
)
def test_passing_slowness_is_no_drop(values: list[float]) -> None:
    """Warm-up, evaluations, checkpoints and slow spells that end are left in peace."""
    assert one("throughput_drop", series("seconds", values)) is None


def test_a_progress_bar_whose_rate_settles() -> None:
    """A bar's rate is an average since it began: only the ends of bars are compared, and one bar proves nothing."""
    rising = [0.2 + 1.8 * (1 - math.exp(-n / 30)) for n in range(200)]
    assert one("throughput_drop", series("seconds", rising, format="tqdm", total=200)) is None
    bars = [
        replace(p, offset=p.offset + 10**6 * bar, seconds=(p.seconds or 0.0) * (4.0 if bar >= 5 else 1.0))
        for bar in range(10)
        for p in series("seconds", rising, format="tqdm", total=200)
    ]
    found = one("throughput_drop", bars)
    assert found is not None
    assert found.point.offset >= 5 * 10**6


def test_progress_bars_of_other_lengths() -> None:
    """Bars of different lengths are different work, so slower later ones prove nothing."""
    bars = [
        replace(p, offset=p.offset + 10**6 * bar)
        for bar in range(12)
        for p in series("seconds", [1.0 if bar < 6 else 3.0] * 10, format="tqdm", total=10 + bar % 6)
    ]
    assert one("throughput_drop", bars) is None


def test_bars_that_begin_anew_count_once() -> None:
    """Two trainers with bars of equal length in one file: a slower second one proves nothing."""
    drawn = [step for step in range(1, 61) for _ in range(2 if step % 10 == 0 else 1)]
    bars = [
        ProgressPoint(10**6 * bar + 200 * at, step, seconds=0.1 * (1 + bar), format="tqdm", total=60)
        for bar in range(2)
        for at, step in enumerate(drawn)
    ]
    scored = [
        ProgressPoint(10**6 * bar + 200 * at + 1, 4, seconds=0.02, format="tqdm", total=4)
        for bar in range(2)
        for at in (12, 24, 36, 48, 60)
    ]
    assert one("throughput_drop", sorted([*bars, *scored], key=lambda p: p.offset)) is None


def test_a_single_bar_in_pieces_that_becomes_slower() -> None:
    """Evaluations break one bar into pieces: those that end late and slow are a drop."""
    whole = series("seconds", [0.1] * 40 + [0.4] * 20, format="tqdm", total=60)
    evaluations = [
        replace(p, offset=point.offset + 1)
        for point in whole
        for p in series("seconds", [0.02] * 4, format="tqdm", total=4)[-1:]
    ]
    found = one("throughput_drop", sorted([*whole, *evaluations], key=lambda p: p.offset))
    assert found is not None
    assert found.point.step == 41


def test_a_loss_that_is_finite_again_for_long() -> None:
    """A first try that went to nan and a second one that trains: the run is well. Too few steps prove nothing."""
    assert one("loss_not_finite", series("loss", [math.nan] * 3 + [4.0] * 150)) is None
    assert one("loss_not_finite", series("loss", [math.nan] * 3 + [4.0] * 20)) is not None
    assert one("loss_not_finite", series("loss", [math.nan] * 3 + [4.0] * 150 + [math.nan])) is not None


def test_evaluation_bars_between_iteration_lines() -> None:
    """Bars between iteration lines measure something else, so slower lines prove nothing."""
    fast = [replace(p, offset=p.offset + 10**7) for p in series("seconds", [0.03] * 40, format="tqdm", total=40)]
    lines = series("seconds", [0.07] * 30, format="json")
    last = [replace(p, offset=p.offset + 2 * 10**7) for p in series("seconds", [0.07] * 4, format="json")]
    bars = [replace(p, offset=p.offset + 10**5 * bar) for bar in range(8) for p in fast]
    assert one("throughput_drop", [*lines, *bars, *last]) is None


def test_one_slow_node_makes_even_steps_a_little_slower() -> None:
    """A few percent on very even steps is reported, with the amount."""
    found = one("straggler_step", series("seconds", [*[10.0, 10.02] * 10, *[10.9, 10.95] * 5]))
    assert found is not None
    assert found.point.step == 21
    assert dict(found.captures)["pace"] == "A step takes 10.93 s instead of 10.01 s"


@pytest.mark.parametrize(
    "values",
    [
        [*[10.0, 10.4] * 10, *[10.9] * 5],  # not so even
        [*[10.0] * 10, 10.9, *[10.0] * 5],  # one slow step
        [*[0.5] * 10, *[0.55] * 10],  # steps too short to tell
        [*[10.0] * 10, *[10.2] * 10],  # too little
        [10.0, 10.0, 11.0],  # too few
    ],
)
def test_uneven_steps_tell_of_no_straggler(values: list[float]) -> None:
    """What noise can do is not a slow node."""
    assert one("straggler_step", series("seconds", values)) is None


# memory, learning rate, loss scale


def test_memory_that_grows_without_end() -> None:
    """The finding has the rate per step."""
    found = one("memory_growth", series("memory", [2e10 + 2e8 * n for n in range(100)]))
    assert found is not None
    assert dict(found.captures) == {"rate": "200"}


@pytest.mark.parametrize(
    "values",
    [
        [min(6e10, 1e10 + 1e10 * n) for n in range(100)],  # the caches of the first steps
        [2e10 + 2e9 * (n % 20) for n in range(100)],  # released again and again
        [2e10 + 1e6 * n for n in range(100)],  # too slow to matter
        [2e10 + 5e9 * n for n in range(15)],  # too few
    ],
)
def test_memory_that_settles_is_left_in_peace(values: list[float]) -> None:
    """Growth at the start, sawteeth and creeping are healthy."""
    assert one("memory_growth", series("memory", values)) is None


def test_a_learning_rate_that_is_zero_and_stays_so() -> None:
    """A scheduler that never starts, or that ran out."""
    found = one("lr_stuck", series("learning_rate", [0.0] * 80))
    assert found is not None
    assert found.point.step == 6


@pytest.mark.parametrize(
    "values",
    [
        [*[0.0] * 60, *[1e-5] * 40],  # a warm-up that is printed with few digits
        [1e-5 * (1 - n / 99) for n in range(100)],  # it ends at zero
        [0.0] * 30,  # too few
    ],
)
def test_a_warm_up_is_no_stuck_learning_rate(values: list[float]) -> None:
    """Zero at the start of a warm-up or at the very end of a schedule is meant so."""
    assert one("lr_stuck", series("learning_rate", values)) is None


# lr_off_schedule


def rates(values: list[float], *, first: int = 1, every: int = 10, total: int | None = None) -> list[ProgressPoint]:
    """Learning rates, logged every so many steps."""
    return [
        ProgressPoint(200 * n, first + every * n, learning_rate=value, total=total, format="megatron")
        for n, value in enumerate(values)
    ]


def test_a_warm_up_begun_again_deep_in_the_run() -> None:
    """A rate that rises from nothing at step 24,010 forgot where it was."""
    found = one("lr_off_schedule", rates([1e-6 * n for n in range(1, 30)], first=24010, total=60000))
    assert found is not None
    assert found.point.step == 24010


def test_a_rate_that_reaches_zero_long_before_the_end() -> None:
    """A cosine that was stepped once for each process ends at an eighth of the run."""
    values = [1e-5 * (1 + math.cos(math.pi * n / 40)) for n in range(40)] + [0.0] * 60
    found = one("lr_off_schedule", rates(values, total=3200))
    assert found is not None
    assert found.point.step == 401


def test_a_cosine_that_is_stepped_past_its_length() -> None:
    """It climbs again, as smoothly as it fell."""
    found = one("lr_off_schedule", rates([1e-5 * (1 + math.cos(math.pi * n / 50)) for n in range(90)]))
    assert found is not None
    assert found.point.step == 501


def test_steps_done_again_with_another_rate() -> None:
    """The same steps after a resume must have the rates that they had."""
    before = rates([3e-4 - 1e-7 * n for n in range(60)], first=4000, total=9000)
    again = [
        replace(point, offset=point.offset + 50_000, learning_rate=1e-4) for point in before if (point.step or 0) > 4400
    ]
    found = one("lr_off_schedule", [*before, *again])
    assert found is not None
    assert found.point.step == 4410


@pytest.mark.parametrize(
    "points",
    [
        rates([1e-6 * n for n in range(1, 100)], total=5000),  # the warm-up at the start
        rates([1e-6 * (240 + n) for n in range(40)], first=2400, total=60000),  # the rest of a long one
        rates([2e-4 - 1e-8 * n for n in range(40)], first=24010, total=60000),  # it goes on with its decay
        rates([1e-5 * (1 - n / 99) for n in range(100)], total=1000),  # zero at its planned end
        rates([*[1e-5] * 50, *[0.0] * 40], total=4000),  # frozen at once by a phase, not run out
        [p for n in range(9) for p in rates([1e-6 * (50 * n + m) for m in range(50)], every=1, total=50)],  # epochs
        rates([1e-5 * abs(1 - (n % 100) / 50) for n in range(100)]),  # a triangle
    ],
)
def test_schedules_as_they_are_planned(points: list[ProgressPoint]) -> None:
    """Warm-ups, decays, their ends and epochs are not faults."""
    assert one("lr_off_schedule", points) is None


def test_a_rate_that_swings_far_below_its_level() -> None:
    """Samples a second that go up and down, and never come near their old level again."""
    low = [70.0 + 18.0 * math.sin(n / 3) for n in range(40)]
    found = one("throughput_drop", series("throughput", [120.0, *noisy(120.0, 1.0, 40), *low]))
    assert found is not None


def test_the_onset_of_a_divergence_is_shown() -> None:
    """The leap is shown with the first record above the level."""
    values = [*noisy(2.0, 0.01, 60), 2.3, 2.7, 3.6, *[7.0] * 20]
    found = one("loss_spike", series("loss", values, first=1000, format="megatron"))
    assert found is not None
    assert 1060 in [point.step for point in (found.point, *found.more)]


def test_a_loss_scale_that_falls_to_its_floor() -> None:
    """Halved step by step down to one, it stays there."""
    found = one("loss_scale_minimum", series("loss_scale", [65536.0, 4096.0, 64.0, 2.0, 1.0, 1.0, 1.0]))
    assert found is not None
    assert found.point.step == 5


@pytest.mark.parametrize(
    "values",
    [
        [2.0**32, 2.0**20, 2.0**16, 2.0**16, 2.0**16],  # the search at the start
        [1.0] * 20,  # no loss scaling
        [64.0, 1.0, 1.0],  # too short to tell
        [64.0, 1.0, 1.0, 1.0, 2.0, 4.0],  # it recovers
    ],
)
def test_a_loss_scale_above_its_floor_is_left_in_peace(values: list[float]) -> None:
    """Falling at the start is how a scale is found."""
    assert one("loss_scale_minimum", series("loss_scale", values)) is None


@pytest.mark.parametrize("name", sorted(DETECTORS))
def test_the_longest_series_is_looked_at(name: str) -> None:
    """A series as long as is ever kept gives an answer, also where many points look bad on their own."""
    points = [replace(p, seconds=10.0 if n % 2 else 1.0) for n, p in enumerate(healthy(3, POINTS))]
    assert one(name, points) is None


# collective_behind


def status(rank: int | None, enqueued: int, completed: int, pg: str = "0", **fields: str) -> tuple[int, Structure]:
    """What a rank's watchdog says of its last works."""
    values = {"pg": pg, "enqueued": str(enqueued), "completed": str(completed), **fields}
    return (rank or 0, Structure("watchdog_status", 100, 150, "last enqueued", values, Resource(rank=rank)))


def test_the_rank_that_never_joined_the_collective() -> None:
    """All wait in work 42 but rank 2, which is at 41."""
    found = collective_behind([status(rank, 43, 41) for rank in (0, 1, 3)] + [status(2, 41, 41)])
    assert [dict(behind_rank.captures) for behind_rank in found] == [
        {"behind": "2", "waited": "42", "reached": "41", "all_behind": "rank 2", "number": "one"}
    ]
    assert found[0].status.resource.rank == 2


def test_all_ranks_that_are_behind_are_named_in_one_sentence() -> None:
    """Each of several ranks that are behind carries the whole list, so that no sentence names one of them alone."""
    found = collective_behind([status(rank, 43, 41) for rank in (1, 2, 3, 6)] + [status(r, 41, 41) for r in (0, 4, 5)])
    assert [dict(behind_rank.captures)["all_behind"] for behind_rank in found] == ["ranks 0,4-5"] * 3


@pytest.mark.parametrize(
    "statuses",
    [
        [],
        [status(0, 43, 41)],
        [status(rank, 43, 41) for rank in range(4)],  # all wait in the same one
        [status(rank, 41, 41) for rank in range(4)],  # none waits
        [status(0, 43, 41, "0"), status(1, 20, 20, "1")],  # other groups count for themselves
        [status(None, 43, 41), status(1, 41, 41)],  # nobody knows whose the first is
        [status(0, 43, 41), (0, Structure("watchdog_status", 1, 2, "", {"enqueued": "x"}, Resource(rank=1)))],
    ],
)
def test_ranks_that_are_level_or_not_known_are_not_behind(statuses: list[tuple[int, Structure]]) -> None:
    """No rank is blamed if all are in the same state, or too little is known."""
    assert collective_behind(statuses) == ()


def timeout(rank: int, seq: int, pg: str = "0", op: str = "ALLREDUCE") -> tuple[int, Structure]:
    """What a rank's watchdog reports as timed out."""
    return (rank, Structure("watchdog", 10, 50, "ran for", {"pg": pg, "seq": seq, "op": op}, Resource(rank=rank)))


def test_a_timeout_tells_where_a_rank_without_a_status_waits() -> None:
    """Rank 0 times out in 2667, rank 1 still waits in 2635: it never joined 2667."""
    found = collective_behind([status(1, 2635, 2634)], [timeout(0, 2667, op="_REDUCE_SCATTER_BASE"), timeout(1, 2635)])
    waits = {"behind_waits": "yes", "own_wait": "ALLREDUCE 2635"}
    assert [dict(behind_rank.captures) for behind_rank in found] == [
        {"behind": "1", "waited": "2667", "reached": "2635", "all_behind": "rank 1", "number": "one", **waits}
    ]


def test_a_rank_behind_that_waits_as_well_says_in_what() -> None:
    """Both sides time out, in different collectives of one group; a rank without a timeout of its own says nothing of it."""
    both = collective_behind([status(1, 2635, 2634)], [timeout(0, 2667), timeout(1, 2635, op="BROADCAST")])
    one = collective_behind([status(1, 2635, 2634)], [timeout(0, 2667), timeout(1, 2635, pg="7")])
    assert dict(both[0].captures)["own_wait"] == "BROADCAST 2635"
    assert "behind_waits" not in dict(one[0].captures)


@pytest.mark.parametrize(
    "other",
    [
        timeout(0, 2635),  # the same collective
        timeout(0, 2667, pg="7"),  # another group
        timeout(0, 2667, pg=""),  # a group that the line does not name
        timeout(0, 2667, op="SEND"),  # counted apart
        timeout(1, 2667),  # its own
    ],
)
def test_a_timeout_that_cannot_be_compared_puts_no_rank_behind(other: tuple[int, Structure]) -> None:
    """Numbers count within one group, and point-to-point work apart from collectives."""
    assert collective_behind([status(1, 2635, 2634)], [other]) == ()


def test_the_rank_in_the_group_stands_in_for_the_global_one() -> None:
    """Where lines have no prefix the watchdog's own rank is used."""
    found = collective_behind([status(None, 9, 7, pg_rank="0"), status(None, 7, 7, pg_rank="5")])
    assert [dict(behind_rank.captures)["behind"] for behind_rank in found] == ["5"]


# Lines beside the iteration lines.


def beside(format_: str, field: str, values: list[float], *, first: int = 100) -> list[ProgressPoint]:
    """Points of lines that name no step."""
    return [
        ProgressPoint(first + 200 * n, **{field: value}, format=format_, validation=True)  # type: ignore[arg-type]
        for n, value in enumerate(values)
    ]


def mixed(*lists: list[ProgressPoint]) -> list[ProgressPoint]:
    """Points of several kinds in the order of the log."""
    return sorted((point for points in lists for point in points), key=lambda point: point.offset)


def test_a_rate_that_falls_for_good() -> None:
    """If a program logs only rates, a lasting fall is reported with both levels."""
    values = [900.0, 1510.0, 1495.0, 1502.0, 1520.0, 1490.0, 1505.0, 610.0, 600.0, 605.0]
    found = one("throughput_drop", series("throughput", values, first=10))
    assert found is not None
    assert found.point.step == 17
    assert dict(found.captures)["pace"] == "The rate fell from 1504 to 605 per second"


def test_a_rate_that_collapses_at_the_very_end() -> None:
    """Two points are enough where the second is slower still, and lines that repeat a step count once."""
    steps = series("throughput", [80.0, 95.0, 94.0, 96.0, 95.0, 94.0, 46.0, 22.0])
    doubled = [replace(p, offset=p.offset + extra) for p in steps for extra in (0, 1)]
    found = one("throughput_drop", doubled)
    assert found is not None
    assert found.point.step == 7


@pytest.mark.parametrize(
    "values",
    [
        [900.0, 1500.0, 1490.0, 1510.0, 700.0, 1500.0, 1505.0, 1495.0, 690.0],  # slow where something is saved
        [900.0, 1500.0, 700.0, 1510.0, 690.0, 1500.0, 705.0, 690.0, 695.0],  # never even
        [400.0, 1500.0, 1490.0, 1510.0, 1500.0, 1100.0, 1120.0, 1110.0],  # a quarter slower
        [1500.0, 700.0, 705.0, 710.0, 700.0, 702.0],  # the first point is no measure
        [1500.0, 1490.0, 1510.0, 1500.0, 1495.0, 700.0, 690.0],  # two slow points that stay level
    ],
)
def test_a_rate_that_dips_is_left_in_peace(values: list[float]) -> None:
    """Dips, noise, a slow end of two points are what healthy runs show."""
    assert one("throughput_drop", series("throughput", values)) is None


def test_rates_on_lines_of_their_own() -> None:
    """Rates on separate lines are used if the loss lines have none."""
    losses = series("loss", [2.0] * 12)
    rates = beside("rate", "throughput", [3.0, 5.2, 5.1, 5.2, 5.2, 5.1, 5.2, 2.0, 2.1, 2.0, 2.0])
    assert one("throughput_drop", mixed(losses, rates)) is not None
    timed = series("seconds", [1.0] * 12)
    assert one("throughput_drop", mixed(timed, rates)) is None


def test_longer_steps_that_do_more_work_are_no_slow_down() -> None:
    """Where as much is done a second as before, steps take longer on purpose; where less is, they are slower."""
    seconds = [*noisy(2.0, 0.02, 40), *noisy(4.0, 0.02, 40)]
    steady = series("seconds", seconds, throughput=400.0)
    assert one("throughput_drop", steady) is None
    falling = [replace(p, throughput=400.0 if p.offset < 8000 else 200.0) for p in steady]
    assert one("throughput_drop", falling) is not None
    slightly = series("seconds", [*noisy(20.0, 0.02, 40), *noisy(21.5, 0.02, 40)], throughput=400.0)
    assert one("straggler_step", slightly) is None
    assert one("straggler_step", [replace(p, throughput=None) for p in slightly]) is not None


def test_steps_are_not_compared_over_a_change_of_their_size() -> None:
    """A line about another sequence or batch size splits the series; a later slowdown is still reported."""
    seconds = [*noisy(2.0, 0.02, 40), *noisy(4.0, 0.02, 40)]
    line = ProgressPoint(200 * 40 - 50, format=RESIZED, validation=True)
    points = sorted([*series("seconds", seconds), line], key=lambda p: p.offset)
    assert one("throughput_drop", points) is None
    worse = series("seconds", [*seconds, *noisy(9.0, 0.02, 20)])
    found = one("throughput_drop", sorted([*worse, line], key=lambda p: p.offset))
    assert found is not None
    assert found.point.step == 81


def test_runs_of_other_lengths_in_one_file_are_apart() -> None:
    """A file that also contains a second run with another number of steps is not a run that slowed down or diverged."""
    small = series("seconds", noisy(0.2, 0.002, 30), first=200, total=1000, loss=0.2)
    large = [
        replace(p, offset=p.offset + 90_000)
        for p in series("seconds", noisy(1.4, 0.02, 60), first=10_000, total=50_000, loss=4.5)
    ]
    for name in ("throughput_drop", "loss_spike"):
        assert one(name, [*small, *large]) is None
        assert one(name, [replace(p, total=50_000) for p in (*small, *large)]) is not None


@pytest.mark.parametrize(
    ("lengths", "expected"), [((8, 60, 25, 12, 40, 30), False), ((30,) * 6, True), ((30, 30, 30, 60, 60, 60), True)]
)
def test_many_runs_in_one_file_are_no_epochs(lengths: tuple[int, ...], *, expected: bool) -> None:
    """Each begins to count again, wherever the one before stopped; epochs, of much the same length, are compared."""
    points: list[ProgressPoint] = []
    for number, length in enumerate(lengths):
        seconds = noisy(0.5 if number < 3 else 1.6, 0.01, length)
        points += [replace(p, offset=200 * (len(points) + at)) for at, p in enumerate(series("seconds", seconds))]
    assert (one("throughput_drop", points) is not None) == expected


@pytest.mark.parametrize("peak", [[9.0, 6.0, 3.5], [900.0], [9.0, 8.0, 7.5, 6.0, 5.0, 3.5]])
def test_a_spike_that_the_run_got_over_is_no_fault(peak: list[float]) -> None:
    """Back at its level within a few records, and calm from there on to the end."""
    values = [*noisy(2.4, 0.02, 60), *peak, *noisy(2.4, 0.02, 60)]
    assert one("loss_spike", series("loss", values, first=1000)) is None
    assert one("loss_spike", series("loss", [*values[:-60], *noisy(5.5, 0.02, 60)], first=1000)) is not None


def test_the_first_rates_of_a_bar_are_no_straggler() -> None:
    """A bar's rate is an average that settles slowly; lines with the same times tell of one."""
    values = [3.31, 3.31, 3.62, 3.6, 3.61]
    assert one("straggler_step", series("seconds", values, format="tqdm", total=9)) is None
    assert one("straggler_step", series("seconds", values, format="megatron", first=4000, total=9000)) is not None


def test_a_sum_over_an_epoch_is_no_spike_among_the_losses_of_steps() -> None:
    """A line of another form says another quantity; only forms that are usual at that place are compared."""
    steps = series("loss", noisy(0.9, 0.01, 60), first=1000, format="iter_loss")
    epoch = ProgressPoint(200 * 60, loss=4100.0, epoch=1.0, format="epoch_loss")
    assert one("loss_spike", [*steps, epoch]) is None
    assert one("loss_spike", [*steps, replace(epoch, format="iter_loss")]) is not None


def test_a_loss_that_turns_in_a_log_of_few_lines() -> None:
    """A straight fall, then a straight rise to many times the minimum, is a divergence even if each record covers many steps."""
    values = [14.0, 11.0, 4.0, 2.2, 1.6, 4.9, 8.2, 11.1]
    spaced = [replace(p, step=60 * n) for n, p in enumerate(series("loss", values))]
    found = one("loss_spike", spaced)
    assert found is not None
    assert found.point.step == 300
    for other in ([14.0, 11.0, 4.0, 2.2, 1.6, 1.8, 2.0, 2.3], [14.0, 4.0, 11.0, 2.2, 1.6, 4.9, 3.2, 11.1]):
        assert one("loss_spike", [replace(p, loss=loss) for p, loss in zip(spaced, other, strict=True)]) is None


def test_a_single_leap_of_the_loss() -> None:
    """A hundred times all earlier values is reported even if the next step is normal."""
    values = [-4.0, -4.4, -4.3, 4191.0, -2.4, -2.9]
    found = one("loss_spike", series("loss", values, first=5000))
    assert found is not None
    assert found.point.step == 5003


@pytest.mark.parametrize(
    "values",
    [
        [0.0004, 0.0005, 0.0004, 0.09, 0.0005, 0.0004],  # small numbers leap easily
        [4.0, 4.4, 4.3, 60.0, 4.4, 4.1],  # not a hundred times
        [90.0, 4.4, 4.3, 1191.0, 4.4, 4.1],  # nor of the largest of them
    ],
)
def test_smaller_leaps_come_and_go(values: list[float]) -> None:
    """One step of a few times the level is noise."""
    assert one("loss_spike", series("loss", values, first=5000)) is None


def test_another_kind_of_line_is_no_leap() -> None:
    """A sum over an epoch is not held against the losses of its steps."""
    steps = series("loss", [1.0, 1.1, 1.0, 1.05], first=500, format="step_loss")
    total = [ProgressPoint(10_000, loss=900.0, format="epoch_loss")]
    assert one("loss_spike", [*steps, *total]) is None


def test_a_short_log_that_ends_with_loss_0_and_a_gradient_of_nan() -> None:
    """Two such lines at its end are enough where the loss has become exactly 0; where it lives, or they pass, they are not."""
    assert one("loss_not_finite", series("grad_norm", [NAN, NAN], loss=0.0)) is not None
    assert one("loss_not_finite", series("grad_norm", [NAN, NAN], loss=1.4)) is None
    assert one("loss_not_finite", series("grad_norm", [NAN, NAN, 1.0], loss=0.0)) is None


def test_a_gradient_that_is_nan_where_a_late_log_ends() -> None:
    """Few lines are enough where their steps say that the run was long under way."""
    points = series("grad_norm", [3.1, 4.2, NAN], first=8000, loss=1.4)
    assert one("loss_not_finite", points) is not None
    assert one("loss_not_finite", series("grad_norm", [3.1, 4.2, NAN], first=1, loss=1.4)) is None


def test_infinite_then_nan_shows_both() -> None:
    """The first bad point is the finding, shown with the first nan and the last point."""
    found = one("loss_not_finite", series("loss", [2.0, 2.1, math.inf, NAN, NAN, NAN]))
    assert found is not None
    assert (found.point.step, [p.step for p in found.more]) == (3, [4, 6])


def test_a_loss_scale_halved_on_and_on() -> None:
    """Falls far below one, with no training after them, end a run in half precision."""
    falls = beside("loss_scale", "loss_scale", [0.25 / 2**n for n in range(10)])
    found = one("loss_scale_minimum", falls)
    assert found is not None
    assert dict(found.captures)["value"] == f"{0.25 / 2**9:g}"
    assert one("loss_scale_minimum", beside("loss_scale", "loss_scale", [2.0, 1.0, 1.0, 1.0, 1.0, 1.0])) is not None


@pytest.mark.parametrize(
    ("scales", "later"),
    [
        ([2.0 ** (32 - n) for n in range(20)], 0),  # the search at the start
        ([65536.0, 32768.0, 16384.0], 10),
        ([0.5 / 2**n for n in range(6)], 100),  # the run came through
    ],
)
def test_a_loss_scale_that_finds_its_place(scales: list[float], later: int) -> None:
    """Falls from a huge scale, and falls after which training continued, are not faults."""
    falls = beside("loss_scale", "loss_scale", scales)
    steps = [ProgressPoint(50_000 + n, n, loss=2.0) for n in range(later)]
    assert one("loss_scale_minimum", [*falls, *steps]) is None


def test_memory_beside_the_iterations_that_grows_evenly() -> None:
    """A linear rise over training steps is reported at the highest line."""
    losses = series("loss", [2.0] * 9)
    found = one("memory_growth", mixed(losses, beside("used RSS", "memory", [10.0 + n for n in range(9)])))
    assert found is not None
    assert found.point.memory == 18.0


@pytest.mark.parametrize(
    ("checks", "expected"),
    [([2.0, 5.4], True), ([2.0, 2.2], False), ([], False), ([5.4, 2.0], False), ([2.0, NAN], False)],
)
def test_training_and_validation_loss_that_climb_together_diverge(checks: list[float], expected: bool) -> None:
    """Ten records suffice where both rise to a multiple; the training loss alone may belong to a task that gets harder."""
    values = [2.0, 2.2, 2.5, 2.9, 3.4, 3.3, 4.6, 5.4, 6.3, 7.2]
    checked = [replace(p, offset=2000 * n, validation=True) for n, p in enumerate(series("loss", checks), 1)]
    found = one("loss_spike", [*series("loss", values), *checked])
    assert (found is not None) == expected
    assert one("loss_spike", [*series("loss", [2.0 + 0.03 * n for n in range(10)]), *checked]) is None


def test_samples_of_a_watcher_that_climb() -> None:
    """In a log with memory only, a few samples that climb to the end are reported."""
    assert one("memory_growth", beside("used Mem", "memory", [1.0, 6.0, 8.0, 10.0])) is not None
    assert one("memory_growth", beside("used Mem", "memory", [1.0, 6.0, 8.0, 8.0])) is None


@pytest.mark.parametrize(
    "values",
    [
        [10.0 + 8.0 * (1 - 0.6**n) for n in range(14)],  # a cache fills
        [10.0, 20.0, 11.0, 21.0, 12.0, 22.0, 13.0, 23.0],  # released each time
        [100.0 + 0.5 * n for n in range(10)],  # a few percent
        [10.0, 20.0, 30.0],
    ],
)
def test_memory_in_use_that_levels_off(values: list[float]) -> None:
    """Caches that fill and memory that is freed again are not leaks."""
    losses = series("loss", [2.0] * len(values))
    assert one("memory_growth", mixed(losses, beside("used RSS", "memory", values))) is None


def between_bars(lines: list[ProgressPoint]) -> list[ProgressPoint]:
    """The lines with a bar that measures nothing drawn before and after each."""
    drawn = [
        replace(p, offset=p.offset + by, loss=None, grad_norm=None, format="tqdm") for p in lines for by in (-50, 50)
    ]
    return sorted([*lines, *drawn], key=lambda p: p.offset)


def test_a_gradient_norm_that_stays_nan_between_the_drawings_of_a_bar() -> None:
    """The trainer prints 0 for a loss that is nan; the gradient norm says it, and bars in between do not end its run."""
    lines = series("loss", [4.1, 4.0, 4.1, 4.0, 0.0, 0.0, 0.0], format="hf_dict")
    lines = [replace(p, grad_norm=NAN if p.loss == 0.0 else 0.8) for p in lines]
    found = one("loss_not_finite", between_bars(lines))
    assert found is not None
    assert (found.point.step, found.captures) == (5, (("value", "nan"),))
    assert one("loss_not_finite", between_bars(lines[:4])) is None


def climbing(count: int, since: int, rate: float, noise: float, seed: int = 3) -> list[float]:
    """Losses of small batches that fall slowly, then climb at a steady rate."""
    chance = random.Random(seed)
    return [2.3 * 0.995 ** min(n, since) + chance.gauss(0, noise) + rate * max(0, n - since) for n in range(count)]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("count", "since", "rate"), [(12, 6, 1.0), (25, 10, 0.3), (60, 20, 0.15), (600, 300, 0.02)])
def test_a_loss_that_climbs_to_the_end_of_a_short_run(count: int, since: int, rate: float, seed: int) -> None:
    """It is also reported within the first steps, despite the noise of small batches."""
    found = one("loss_spike", series("loss", climbing(count, since, rate, 0.1, seed)))
    assert found is not None
    assert since - 0.1 * count <= (found.point.step or 0) <= since + 0.3 * count


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    "values",
    [
        [2.3] * 60,
        [2.3 * 0.98**n for n in range(60)],
        [2.3 * 0.98**n for n in range(40)] + [2.3 - 0.01 * n for n in range(40)],
        [0.2 + 7 * (1 - 0.9**n) for n in range(60)],
        [0.02 * n for n in range(60)],
        [9 * 0.9**n for n in range(40)] + [0.9] * 20,
    ],
    ids=["flat", "falling", "harder data", "a queue that fills", "a loss from 0", "settled"],
)
def test_losses_that_rise_for_good_reasons_do_not_climb(values: list[float], seed: int) -> None:
    """Noise, data of another kind, and losses that start low because their task is not complete yet."""
    chance = random.Random(seed)
    assert one("loss_spike", series("loss", [value + chance.gauss(0, 0.1) for value in values])) is None


def test_a_loss_that_leaves_its_first_value_with_its_gradient() -> None:
    """It jumps up within a few steps and stays there, no longer climbing; a queue of negatives that fills has calm gradients."""
    values = [199.9, 384.4, 510.3, 476.1, 503.0, 413.6, 359.3, 349.8, 361.2, 436.9, 450.7, 500.1]
    wild = [31.5, 40.7, 67.7, 61.0, 162.0, 82.0, 98.0, 72.9, 79.3, 125.8, 138.8, 132.1]
    points = [replace(p, grad_norm=norm) for p, norm in zip(series("loss", values), wild, strict=True)]
    found = one("loss_spike", points)
    assert found is not None
    assert found.point.step == 2
    assert one("loss_spike", [replace(p, grad_norm=30.0) for p in points]) is None
    assert one("loss_spike", [replace(p, grad_norm=None) for p in points]) is None
    assert one("loss_spike", [*points, replace(points[0], offset=10_000, step=13)]) is None


def decaying(count: int, peak: float = 3e-3) -> list[float]:
    """A cosine from its peak to nothing."""
    return [peak * (1 + math.cos(math.pi * n / count)) / 2 for n in range(count)]


def test_a_learning_rate_that_jumps_back_to_its_peak_and_stays_there() -> None:
    """A schedule that was lost; also where lines name the fraction of an epoch. One that restarts goes down again."""
    rates = [*decaying(28)[:18], *[3e-3] * 10]
    for parts in ({}, {"total": 28}):
        found = one("lr_off_schedule", series("learning_rate", rates, **parts))
        assert found is not None
        assert (found.point.step, found.captures) == (19, (("value", "0.003"),))
    lines = [replace(p, total=28, epoch=(p.step or 0) / 8) for p in series("learning_rate", rates)]
    assert one("lr_off_schedule", lines) is not None
    assert one("lr_off_schedule", series("learning_rate", [*decaying(28)[:18], *decaying(28)[:10]])) is None
    assert one("lr_off_schedule", series("learning_rate", [*decaying(28)[:18], *[5e-4] * 10])) is None
    assert one("lr_off_schedule", series("learning_rate", [n / 10 * 3e-3 for n in range(10)] + [3e-3] * 18)) is None


def uneven(level: float, count: int, seed: int) -> list[float]:
    """Rates that swing by half about a level."""
    chance = random.Random(seed)
    return [level * chance.uniform(0.5, 1.5) for _ in range(count)]


def test_an_uneven_rate_that_falls_to_a_fraction_for_good() -> None:
    """However uneven it was: no later rate comes near the last ones before."""
    found = one("throughput_drop", series("throughput", uneven(1000.0, 25, 3) + uneven(100.0, 15, 4)))
    assert found is not None
    assert found.point.step == 26


def test_an_uneven_rate_that_comes_back_has_not_fallen() -> None:
    """A stretch of slow steps with faster ones after it has passed."""
    values = uneven(1000.0, 25, 3) + uneven(100.0, 15, 4) + uneven(1000.0, 3, 5)
    assert one("throughput_drop", series("throughput", values)) is None


def test_a_single_bar_that_slows_to_a_fraction() -> None:
    """The rate of a bar is a moving average: many points on end count, a pause that passes does not."""
    slow = [0.07, 0.15, 0.27, 0.33] + [0.45] * 30
    found = one("throughput_drop", series("seconds", [0.02] * 100 + slow, format="tqdm", total=180))
    assert found is not None
    assert found.point.step == 101
    pause = [0.07, 0.15, 0.09, 0.05, 0.03]
    assert (
        one("throughput_drop", series("seconds", [0.02] * 100 + pause + [0.02] * 20, format="tqdm", total=180)) is None
    )
    assert one("throughput_drop", series("seconds", [0.02] * 100 + [0.15] * 4, format="tqdm", total=180)) is None


def test_a_loss_that_explodes_among_the_first_steps() -> None:
    """A hundred times all that the run began with, for good; a bad batch passes."""
    falling = [4.0 - 0.3 * n for n in range(12)]
    found = one(
        "loss_spike", series("loss", [*falling, 2380.0, 404.0, 201.0, 66.3, 22.5, 9.2, 7.6, 5.4, 4.9, 4.4, 3.9])
    )
    assert found is not None
    assert found.point.step == 13
    assert one("loss_spike", series("loss", [*falling, 2380.0, 0.7, 0.6, 0.6, 0.5])) is None
    assert one("loss_spike", series("loss", [4.0, 900.0, 11.0, 7.0, 5.0, 4.0, 3.0])) is None
    few = [0.9, 0.8, 0.5, 0.4]  # enough before a loss that stays a hundred times as high until the end
    assert one("loss_spike", series("loss", [*few, 340.0, 380.0, 150.0])) is not None
    assert one("loss_spike", series("loss", [*few, 340.0, 380.0])) is None
    assert one("loss_spike", series("loss", [*few, 340.0, 380.0, 60.0])) is None


def test_a_bar_whose_moving_average_recovers_after_an_evaluation() -> None:
    """The pause lowers the rate, which then climbs; the full bar shows the mean with all pauses."""
    rates = [14.0, 28.0, 36.0, 31.0, 28.0, 28.0, 29.0, 28.0, 28.0, 28.0, 28.0]
    rates += [1.3, 1.6, 2.0, 2.8, 2.8, 4.3, 4.3, 5.7, 7.3]
    bars = series("seconds", [1.0 / rate for rate in rates], format="tqdm", total=len(rates) + 1)
    full = replace(bars[-1], offset=9000, step=len(rates) + 1, seconds=1.0 / 2.4)
    assert one("throughput_drop", [*bars, full]) is None
    fallen = [1.0 / rate for rate in (*rates[:11], 1.3, 1.2, 1.3, 1.3, 1.2, 1.3, 1.2, 1.3, 1.3)]
    assert one("throughput_drop", series("seconds", fallen, format="tqdm", total=99)) is not None


def test_a_step_as_slow_as_earlier_ones_names_no_straggler() -> None:
    """An even stretch between slower ones, as on a machine that is shared."""
    slow, even = [11.0, 11.02] * 15, [10.0, 10.02] * 10
    assert one("straggler_step", series("seconds", [*even, *[10.9, 10.95] * 5])) is not None
    assert one("straggler_step", series("seconds", [*slow, *even, *[10.9, 10.95] * 5])) is None


def test_the_loss_of_the_next_stage_of_training_did_not_leave_its_level() -> None:
    """Its steps are counted from the start again, without a total; one that goes on from a checkpoint is the same run."""
    first = series("loss", noisy(1.0, 0.02, 300))
    fresh = [replace(p, offset=p.offset + 90_000) for p in series("loss", noisy(3.0, 0.02, 120), first=200)]
    again = [replace(p, offset=p.offset + 90_000) for p in series("loss", noisy(3.0, 0.02, 120), first=1)]
    assert one("loss_spike", [*first, *fresh]) is not None
    assert one("loss_spike", [*first, *again]) is None


def test_a_bar_that_passes_over_the_steps_of_an_earlier_run_did_not_slow_down() -> None:
    """Its pace at first is that of passing over them."""
    paces = [0.02 * 1.3**n for n in range(20)]
    own = [
        ProgressPoint(40 * n, 1600 + 2 * n, 3200, seconds=min(pace, 4.0), format="tqdm")
        for n, pace in enumerate([*paces, *[4.0] * 300], 1)
    ]
    assert one("throughput_drop", own) is not None
    assert one("throughput_drop", [ProgressPoint(0, 0, 3200, format="tqdm"), *own]) is None


def test_a_jump_from_which_the_run_recovered_long_ago() -> None:
    """It took many steps to come back and went on for many more: its log is about something else than the jump."""
    jump = [50.0 - 0.45 * n for n in range(100)]
    log = [*noisy(3.0, 0.05, 100), *jump]
    assert one("loss_spike", series("loss", [*log, *noisy(2.9, 0.05, 15)], first=1000)) is not None
    assert one("loss_spike", series("loss", [*log, *noisy(2.9, 0.05, 80)], first=1000)) is None
    assert one("loss_spike", series("loss", [*log, *noisy(4.5, 0.05, 80)], first=1000)) is not None


def test_the_last_loss_alone_is_no_jump() -> None:
    """The next one may be back; an excerpt of a few lines was chosen for what it shows."""
    calm = noisy(2.0, 0.02, 60)
    assert one("loss_spike", series("loss", [*calm, 7.0, 7.2], first=1000)) is None
    assert one("loss_spike", series("loss", [*calm, 7.0, 7.2, 7.1], first=1000)) is not None
    assert one("loss_spike", series("loss", [*calm[:8], 7.0, 7.2], first=1000)) is not None


def test_the_next_of_several_trainings_begins_at_a_high_loss() -> None:
    """Its epochs begin again although the first one did not reach its second; those of an evaluation go on."""

    def run(levels: list[float], first: int, epoch: float) -> list[ProgressPoint]:
        points = series("loss", levels, first=first)
        return [replace(p, offset=p.offset + 200 * first, epoch=epoch + 0.01 * n) for n, p in enumerate(points)]

    calm, high = noisy(0.45, 0.01, 30), noisy(0.85, 0.01, 30)
    assert one("loss_spike", [*run(calm, 500, 0.6), *run([5.2, 3.5, *high], 530, 0.01)]) is None
    assert one("loss_spike", [*run(calm, 500, 0.6), *run([5.2, 3.5, *high], 530, 0.9)]) is not None


# collectives_differ


def sized(rank: int, size: int, seq: int = 7, **fields: str) -> tuple[int, Structure]:
    """A timeout with the size of its collective."""
    stream, item = timeout(rank, seq, **fields)
    return (stream, replace(item, fields={**item.fields, "numel_in": str(size)}))


def test_the_rank_with_another_size_under_the_same_number() -> None:
    """Three ranks reduce a bucket, one a counter."""
    (found,) = collectives_differ([sized(0, 708), sized(1, 708), sized(2, 1), sized(3, 708)])
    assert found.stream == 2
    assert dict(found.captures) == {
        "differing": "rank 2", "collectives": "ALLREDUCE of 708 and ALLREDUCE of 1", "number": "7", "others": "yes",
    }  # fmt: skip


def test_of_two_ranks_neither_is_the_odd_one() -> None:
    """Without a usual collective, both are returned; another operation is enough."""
    found = collectives_differ([sized(0, 5, op="BROADCAST", pg=""), sized(1, 5, pg="")])
    assert [dict(rank.captures)["differing"] for rank in found] == ["ranks 0-1", "ranks 0-1"]


@pytest.mark.parametrize(
    "timeouts",
    [
        [sized(0, 9), sized(1, 9)],
        [sized(0, 9), sized(1, 1, pg="2")],
        [sized(0, 9), sized(1, 1, seq=8)],
        [sized(0, 9, op="ALLTOALL_BASE"), sized(1, 1, op="ALLTOALL_BASE")],
        [sized(0, 9, op="COALESCED"), sized(1, 1, op="COALESCED")],
        [sized(0, 9, pg=""), sized(0, 9, seq=8, pg=""), sized(1, 1, pg="")],
    ],
    ids=["alike", "other group", "other number", "uneven by nature", "point to point", "unnamed groups"],
)
def test_timeouts_that_show_no_difference(timeouts: list[tuple[int, Structure]]) -> None:
    """The same collective, other groups or numbers, or sizes that may differ."""
    assert collectives_differ(timeouts) == ()


def passed_by(
    *, op: str = "_ALLGATHER_BASE", at: int = 126, pg: str = "0"
) -> tuple[list[tuple[int, Structure]], list[tuple[int, Structure]]]:
    """Rank 0 waits in an all-reduce, number 122; rank 1 has completed that number and waits in a later one."""
    timeouts = [sized(0, 9, seq=122, pg=""), sized(1, 9, seq=at, op=op, pg="")]
    return timeouts, [status(0, 127, 121, pg), status(1, 128, at - 1, pg)]


def test_a_rank_that_completed_the_number_of_another_ran_other_collectives() -> None:
    """None of them completes without all ranks; the statuses name the group that the timeouts do not."""
    timeouts, statuses = passed_by()
    (found,) = collectives_differ(timeouts, statuses)
    assert dict(found.captures) == {
        "differing": "rank 0",
        "collectives": "rank 0 in ALLREDUCE 122 and rank 1 in _ALLGATHER_BASE 126",
        "others": "yes",
    }


@pytest.mark.parametrize(
    "change",
    [{"op": "ALLREDUCE"}, {"op": "BROADCAST"}, {"op": "SEND"}, {"at": 123}, {"pg": ""}],
    ids=["same operation", "one that a rank completes alone", "point to point", "the next one", "unknown group"],
)
def test_what_may_be_a_rank_left_behind(change: dict[str, Any]) -> None:
    """Then the order of the collectives may be the same on all."""
    timeouts, statuses = passed_by(**change)
    assert collectives_differ(timeouts, statuses) == ()


def test_waits_of_two_groups_are_not_compared() -> None:
    """Both count from one: the timeout is of the group that it names."""
    timeouts = [sized(0, 9, seq=5, pg="2"), sized(1, 9, seq=9, op="_ALLGATHER_BASE", pg="1")]
    assert collectives_differ(timeouts, [status(0, 9, 4, "1"), status(1, 12, 8, "1")]) == ()


def clocked(gaps: list[float], *, start: float = 1.8e9, **parts: object) -> list[ProgressPoint]:
    """Points without step times, ten steps apart, by the seconds between their lines."""
    times = [start + sum(gaps[: at + 1]) for at in range(len(gaps))]
    return [
        ProgressPoint(200 * at, 10 * (at + 1), time=time, loss=1.0, format="step_loss", **parts)  # type: ignore[arg-type]
        for at, time in enumerate(times)
    ]


class TestClock:
    """The times of iteration lines, where they state no step time."""

    def test_steps_that_follow_each_other_more_slowly(self) -> None:
        """To the end of the log, by far more than what an evaluation costs."""
        found = one("throughput_drop", clocked([4.02] * 20 + [16.03] * 8))
        assert found is not None
        assert found.point.step == 210
        assert dict(found.captures)["pace"] == "A step takes 1.603 s instead of 0.402 s"

    @pytest.mark.parametrize(
        "gaps",
        [
            [4.02] * 20 + [9.03] * 8,  # half as fast: evaluations may have become longer
            [4.02] * 20 + [60.5] + [4.02] * 8,  # one pause
            ([4.02] * 4 + [30.0]) * 6,  # a save every fifty steps
            [4.02] * 20 + [16.03] * 3,  # too short to be there to stay
        ],
    )
    def test_pauses_are_no_slowdown(self, gaps: list[float]) -> None:
        """Between two lines a run may also evaluate or save."""
        assert one("throughput_drop", clocked(gaps)) is None

    def test_a_clock_of_whole_seconds_is_too_coarse_for_short_steps(self) -> None:
        """One second and three are the same clock, read at other moments."""
        assert one("throughput_drop", clocked([1.0] * 20 + [3.0] * 8)) is None
        assert one("throughput_drop", clocked([30.0] * 20 + [120.0] * 8)) is not None

    def test_stated_times_count_more(self) -> None:
        """A line that gives its step time is believed, whatever was done between the lines."""
        assert one("throughput_drop", clocked([4.02] * 20 + [16.03] * 8, seconds=0.4)) is None

    def test_each_step_counts_once(self) -> None:
        """However many ranks print it."""
        points = clocked([4.02] * 20 + [16.03] * 8)
        four = [
            replace(p, offset=p.offset + rank, rank=rank, time=(p.time or 0.0) + rank / 500)
            for p in points
            for rank in range(4)
        ]
        found = one("throughput_drop", four)
        assert found is not None
        assert found.point.step == 210

    def test_a_count_that_begins_again_is_no_pause(self) -> None:
        """The time from one run to the next is no step's."""
        points = clocked([4.02] * 20)
        again = clocked([4.02] * 20, start=1.8e9 + 5000)
        assert one("throughput_drop", points + [replace(p, offset=p.offset + 9000) for p in again]) is None


def test_the_end_of_a_fast_spell_is_no_slowdown() -> None:
    """The run is as fast as it was before, for whatever reason it was faster in between."""
    usual, fast = noisy(140.0, 2.0, 80), noisy(510.0, 5.0, 25)
    assert one("throughput_drop", series("throughput", [*usual, *fast, *usual[:30]])) is None
    assert one("throughput_drop", series("throughput", [*fast, *usual[:30]])) is not None


@pytest.mark.parametrize(
    ("values", "level"),
    [
        ([1.6, 1.4, 3.3, 6.4, 5.5, 4.9, 4.9, 4.6], "1.4"),  # doubles, and stays there
        ([1.13, 0.92, 2.3, 95.8], "0.9"),  # ends at many times all others
        ([2.1e-4, 1.6e-4, 6.1e-5, 87.3, 87.3], "6.1"),
    ],
)
def test_a_loss_that_leaves_its_level_for_good_in_an_excerpt(values: list[float], level: str) -> None:
    """Too few records for any other shape."""
    found = one("loss_spike", series("loss", values, first=14_100, format="lines"))
    assert found is not None
    assert dict(found.captures)["level"].startswith(level)


@pytest.mark.parametrize(
    "values",
    [
        [1.6, 1.4, 3.3, 6.4, 5.5, 1.9],  # it came back
        [1.6, 1.4, 2.3, 2.4, 2.5, 2.2],  # less than twice its level
        [1.1, 0.9, 2.3, 12.0],  # one bad batch
        [0.9, 1.1, 2.6, 2.4],  # too few to show that it stays
    ],
)
def test_a_loss_of_an_excerpt_that_may_come_back(values: list[float]) -> None:
    """Or that rose by what noise explains."""
    assert one("loss_spike", series("loss", values, first=14_100, format="lines")) is None
