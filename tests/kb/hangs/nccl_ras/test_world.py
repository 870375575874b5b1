"""Global ranks of the processes that NCCL RAS names."""

from kb.hangs.nccl_ras.world import init_ranks, world_ranks
from kb.model import Resource, Structure
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


def test_ranks_from_nccls_own_lines():
    """A communicator of the world's size numbers the world; a process that is told two ways is left out."""

    def init(host, pid, comm_rank, nranks, rank=None):
        fields = {"host": host, "pid": pid, "comm_rank": comm_rank, "nranks": nranks}
        return Structure("nccl_init", 0, 1, "", fields, Resource(rank=rank))

    lines = [init("a", 1, 0, 4), init("a", 2, 1, 2, rank=3), init("b", 3, 1, 4), init("b", 3, 2, 4), init("c", 4, 0, 2)]
    assert init_ranks(lines, 4) == {("a", 1): 0, ("a", 2): 3}
