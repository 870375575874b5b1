"""What a cause implies for the answer, and the words for close-outs."""

import pytest

from bot.policy.resolution_codes import VERDICTS, implied, nameless


@pytest.mark.parametrize(
    ("cause", "fault", "found", "verdict"),
    [
        ("shown", "disk_full", ["disk_full", "nccl_timeout"], "right"),
        ("fault", "nccl_timeout", ["disk_full", "nccl_timeout"], "right_not_first"),
        ("fault", "oom", ["disk_full"], "wrong"),
        ("fault", "oom", [], "wrong"),
        ("no_rule", None, ["disk_full"], "wrong"),
        ("no_rule", None, [], "abstained_rightly"),
        ("no_failure", None, ["disk_full"], "wrong"),
        ("no_failure", None, [], "abstained_rightly"),
        ("unknown", None, ["disk_full"], "not_looked_at"),
        (None, None, [], "not_looked_at"),
    ],
)
def test_a_cause_says_whether_the_bot_was_right(cause, fault, found, verdict):
    """By the rank of the named fault; giving no cause is right if no rule fits."""
    assert implied(cause, fault, found) == verdict
    assert verdict in VERDICTS


def test_causes_without_a_fault_have_words():
    """A cause with a fault is named by the fault."""
    assert [nameless(text) for text in ("no_rule", "no_failure", "unknown", "fault", "shown", None)] == [
        "no rule fits", "nothing failed", "unknown cause", None, None, None,
    ]  # fmt: skip
