"""Numbers with their n."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kb.digest.repeat_offenders import lemon_score
from kb.digest.statistics import Rate, Share, Spread, Sum, rate, share, spread, total


def test_too_few_cases_give_no_share():
    """Under five there are counts alone."""
    assert share(3, 4) == Share(3, 4)
    assert spread([1.0, 2.0, 3.0, 4.0]) == Spread(4)
    assert rate(168.0, 4) == Rate(168.0, 4, None)


def test_enough_cases_give_their_share():
    """Share with Wilson's interval, median, nine-tenths mark and mean."""
    found = share(9, 10)
    assert (found.hits, found.n, found.value) == (9, 10, 0.9)
    assert (found.low, found.high) == (pytest.approx(0.59585, abs=1e-5), pytest.approx(0.98212, abs=1e-5))
    assert spread([5.0, 1.0, 2.0, 3.0, 100.0]) == Spread(5, 3.0, 100.0, 22.2)
    assert spread(float(item) for item in range(1, 11)) == Spread(10, 5.5, 9.0, 5.5)
    assert rate(169.0, 13) == Rate(169.0, 13, 13.0)


def test_a_sum_says_of_how_many():
    """What is not known counts nothing, and is counted."""
    assert total([1.5, None, 2.0]) == Sum(3.5, 2, 3)
    assert total([]) == Sum(0.0, 0, 0)


@given(st.integers(1, 40), st.floats(0.01, 30), st.integers(1, 5000))
def test_the_lemon_score_is_the_tail_of_poisson(jobs, mean, fleet):
    """The score is -log10 of the fleet times the chance of so many or more, worked out from the other end."""
    below = math.fsum(math.exp(-mean) * mean**count / math.factorial(count) for count in range(jobs))
    tail = 1 - below
    found = lemon_score(jobs, mean * fleet, fleet)
    assert found >= 0
    if tail > 1e-9:  # beyond, the subtraction has no digits left
        assert found == pytest.approx(max(0.0, -math.log10(fleet * tail)), abs=1e-4)


def test_the_lemon_score_of_nothing():
    """No jobs, no nodes: no score."""
    assert (lemon_score(0, 5, 5), lemon_score(3, 3, 0)) == (0.0, 0.0)
