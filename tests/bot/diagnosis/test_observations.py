"""What comparisons showed of a job is kept with its incident and read again."""

from __future__ import annotations

import pytest

from bot.diagnosis.evidence import from_bundle
from bot.diagnosis.observations import dumps, loads, observed
from kb.errors import UnreadableInput
from kb.learning.cases import Observation
from tests.support.paths import BUNDLES


@pytest.mark.quick("lab-slow-rank", "lab-nan")
@pytest.mark.parametrize(
    ("bundle", "expected"),
    [
        ("lab-asleep", Observation("stack_outlier", {"class": "deadlock", "shared": "no", "activity": "user", "frame": "ShardList.wait_for_new_shard_list (acts.py:93)"})),
        ("lab-order", Observation("collective_culprit", {"why": "out_of_order", "op": "all_reduce"})),
        ("lab-rate", Observation("off_plan", {"what": "learning_rate"})),
        ("lab-slow-rank", Observation("peer_outlier", {"metric": "compute_time", "way": "above", "standing": "yes"})),
        ("lab-nan", Observation("series", {"metric": "loss", "change": "not_finite"})),
    ],
)  # fmt: skip
def test_where_ranks_stood_and_how_series_changed_is_observed(known, bundle, expected):
    """Of real recordings; and it comes back from its bytes."""
    found = observed(from_bundle(known, BUNDLES / bundle, workers=1))
    assert expected in found
    assert loads(dumps(found)) == found


def test_a_healthy_run_shows_nothing(known):
    """No outlier, no change."""
    assert observed(from_bundle(known, BUNDLES / "lab-well-uneven", workers=1)) == ()


def test_where_nothing_was_kept_nothing_was_observed():
    """Incidents of before have none."""
    assert loads(None) == ()


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff", b"[1]", b"[" * 100_000, b'[["a", {"b": 1}]]', b" " * 300_000])
def test_what_cannot_be_read_is_refused(data):
    """With an error of ours."""
    with pytest.raises(UnreadableInput):
        loads(data)
