"""Global ranks of the processes that NCCL RAS names."""

from kb.hangs.nccl_ras.world import world_ranks
from tests.support.nccl_ras_samples import communicator, rank, report


def test_world_ranks_by_address_by_log_and_by_pid():
    """Global ranks come from a communicator of the world's size, from NCCL's own lines, and from a pid that is unique."""
    world = report(
        communicator("0x1", 2, [rank(0, 500), rank(1, 501)]), communicator("0x2", 2, [rank(0, 501), rank(1, 500)])
    )
    assert world_ranks([world], 2) == {}
    plain = report(communicator("0x1", 2, [rank(0, 500), rank(1, 501)]))
    assert world_ranks([plain], 2) == {("10.7.0.1", 500): 0, ("10.7.0.1", 501): 1}
    assert world_ranks([plain], 64, {("10.7.0.1", 500): 8, ("gpu-a", 501): 9}) == {
        ("10.7.0.1", 500): 8,
        ("10.7.0.1", 501): 9,
    }
    assert world_ranks([plain], 64, {("gpu-a", 501): 9, ("gpu-b", 501): 17}) == {}
