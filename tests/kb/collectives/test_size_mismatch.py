"""A rank that received more than it had room for decides for the side with the smaller of two sizes."""

import pytest

from kb.collectives.analyse import judge
from kb.collectives.size_mismatch import Overrun, overrun_in, settle_sizes
from tests.support.collective_samples import named, retired

GLOO_SAYS = (
    "what():  [enforce fail at pair.cc:456] op.preamble.length <= op.nbytes. 2304 vs 2048. Received data size doesn't"
)
NCCL_SAYS = "NCCL WARN Message truncated : received 1152 bytes instead of 1024"


def test_lengths_are_read_out_of_messages():
    """Messages of gloo and NCCL; a message that fits, or contains no lengths, counts as none."""
    assert overrun_in(4, GLOO_SAYS) == Overrun(4, 2304, 2048)
    assert overrun_in(5, NCCL_SAYS) == Overrun(5, 1152, 1024)
    assert overrun_in(6, "op.preamble.length <= op.nbytes. 8 vs 8") is None
    assert overrun_in(7, "Connection reset by peer") is None


def test_who_got_too_much_sides_with_the_smaller():
    """Two equal sides, and a third rank without a dump received nine eighths of its room: the larger side is wrong."""
    verdict = settle_sizes(judge(retired(4096, 4608)), [Overrun(2, 2304, 2048)])
    (culprit,) = verdict.culprits

    assert (culprit.rank, culprit.score, verdict.communicators[0].mismatch.tied) == (1, 0.85, False)
    assert (
        culprit.reasons[1]
        == "rank 2 received 2304 bytes where its own operation expects 2048, which confirms the smaller size"
    )


@pytest.mark.parametrize(
    "told",
    [[], [Overrun(0, 2304, 2048)], [Overrun(1, 2304, 2048)], [Overrun(2, 4096, 2048)]],
    ids=["nothing said", "by the smaller itself", "by the larger", "of another operation"],
)
def test_lengths_that_do_not_tell_settle_nothing(told):
    """No matching third rank: both sides are named as before."""
    before = judge(retired(4096, 4608))

    assert settle_sizes(before, told) == before
    assert sorted(named(before)) == [0, 1]
