"""The watchdog's lines, NCCL's own, and InfiniBand completions."""

import pytest

from kb.parsers.logs.nccl import READERS
from tests.support.parsing import one, structures

HEAD = "[rank21]:[E502 03:04:05.114205330 ProcessGroupNCCL.cpp:683] "


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        (
            (
                "[E ProcessGroupNCCL.cpp:566] [Rank 2] Watchdog caught collective operation timeout: "
                "WorkNCCL(OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1803211 milliseconds before timing out."
            ),
            {"pg_rank": 2, "op": "ALLREDUCE", "timeout_ms": 1800000, "ran_ms": 1803211},
        ),
        (
            (
                "[E ProcessGroupNCCL.cpp:821] [Rank 4] Watchdog caught collective operation timeout: "
                "WorkNCCL(SeqNum=71, OpType=BROADCAST, Timeout(ms)=600000) ran for 600411 milliseconds before timing out."
            ),
            {"pg_rank": 4, "seq": 71, "op": "BROADCAST", "timeout_ms": 600000, "ran_ms": 600411},
        ),
        (
            HEAD
            + "[PG ID 2 PG GUID 9(tensor) Rank 5] Process group watchdog thread terminated with exception: [Rank 5] "
            "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=812, OpType=_REDUCE_SCATTER_BASE, "
            "NumelIn=4096, NumelOut=512, Timeout(ms)=600000) ran for 600071 milliseconds before timing out.",
            {
                "pg": "9",
                "pg_rank": 5,
                "seq": 812,
                "op": "_REDUCE_SCATTER_BASE",
                "numel_in": 4096,
                "numel_out": 512,
                "timeout_ms": 600000,
                "ran_ms": 600071,
            },
        ),
        (
            "WorkNCCL(OpType=ALLGATHER, Timeout(ms)=1800000) ran for 1800902 milliseconds",
            {"op": "ALLGATHER", "timeout_ms": 1800000, "ran_ms": 1800902},
        ),
    ],
)
def test_watchdog(line, fields):
    """A collective's timeout is read in every wording, with what it says and nothing made up."""
    assert one(READERS, line + "\n", "watchdog").fields == fields


def test_watchdog_rank_is_the_global_one():
    """The rank comes from the line's prefix; the bracket's is the rank inside the group."""
    line = HEAD + "[Rank 5] Watchdog: WorkNCCL(SeqNum=8, OpType=SEND, Timeout(ms)=10) ran for 11 milliseconds\n"
    found = one(READERS, line, "watchdog")
    assert (found.resource.rank, found.fields["pg_rank"]) == (21, 5)


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        (
            HEAD
            + "[PG 0 (default_pg) Rank 21] Exception (either an error or timeout) detected by watchdog at work: 90, "
            "last enqueued NCCL work: 92, last completed NCCL work: 89.",
            {"pg": "0", "pg_rank": 21, "at": 90, "enqueued": 92, "completed": 89},
        ),
        (
            HEAD + "[PG ID 3 PG GUID 3 Rank 1]  failure detected by watchdog at work sequence id: 7 PG status: "
            "last enqueued work: 9, last completed work: -1",
            {"pg": "3", "pg_rank": 1, "at": 7, "enqueued": 9, "completed": -1},
        ),
        (
            HEAD + "[PG ID 0 PG GUID 0(default_pg) Rank 21] Received a dump signal due to a collective timeout from  "
            "rank 4 and we will try our best to dump the debug info. Last enqueued NCCL work: 90, last completed NCCL work: 89.",
            {"pg": "0", "pg_rank": 21, "enqueued": 90, "completed": 89, "from_rank": 4},
        ),
        (
            HEAD
            + "[PG ID 0 PG GUID 0(default_pg) Rank 21] Received a dump signal due to a collective timeout from this "
            "local rank and we will try. Last enqueued NCCL work: 90, last completed NCCL work: 89.",
            {"pg": "0", "pg_rank": 21, "enqueued": 90, "completed": 89, "from_rank": 21},
        ),
        (
            HEAD + "[Rank 3] Timeout at NCCL work: 12, last enqueued NCCL work: 13, last completed NCCL work: 11.",
            {"pg_rank": 3, "at": 12, "enqueued": 13, "completed": 11},
        ),
    ],
)
def test_watchdog_status(line, fields):
    """Where a rank stood is read in each wording."""
    assert one(READERS, line + "\n", "watchdog_status").fields == fields


@pytest.mark.parametrize(
    ("line", "source", "function"),
    [
        ("cn-b7:812:990 [3] net.cc:626 NCCL WARN Error: no plugin", "net.cc:626", None),
        (
            "[2026-05-02 03:04:05] cn-b7:812:990 [3] transport/net_ib/p2p.cc:688 (ncclIbTest) NCCL WARN Error: no plugin",
            "transport/net_ib/p2p.cc:688",
            "ncclIbTest",
        ),
        ("cn-b7:812:990 [3] NCCL WARN Error: no plugin", None, None),
        ("cn-b7:812:990 [3] src/net.cc:626 RCCL WARN Error: no plugin", "src/net.cc:626", None),
    ],
)
def test_warn(line, source, function):
    """A WARN line contains the writer, the source location, and the message."""
    found = one(READERS, line + "\n", "nccl_warn")
    assert (found.fields["host"], found.fields["pid"], found.fields["device"]) == ("cn-b7", 812, 3)
    assert (found.fields.get("source"), found.fields.get("function")) == (source, function)
    assert found.fields["message"] == "Error: no plugin"
    assert (found.resource.node, found.resource.pid) == ("cn-b7", 812)


def test_warn_in_prose_is_none():
    """A line that only speaks of such warnings is none."""
    assert structures(READERS, "set NCCL_DEBUG to see NCCL WARN lines\n") == []


@pytest.mark.parametrize(
    ("tail", "comm"),
    [
        ("busId 8a000 - Init COMPLETE", "0x55c1f0"),
        ("nvmlDev 3 busId 8a000 commId 0x77ab - Init COMPLETE", "0x77ab"),
    ],
)
def test_init(tail, comm):
    """A communicator's end of init gives its rank, size, device, and the id that links its ranks."""
    found = one(READERS, f"cn-b7:812:990 [3] NCCL INFO comm 0x55c1f0 rank 11 nranks 64 cudaDev 3 {tail}\n")
    assert found.fields == {
        "host": "cn-b7",
        "pid": 812,
        "comm_rank": 11,
        "nranks": 64,
        "device": 3,
        "bus": "8a000",
        "comm": comm,
    }


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        (
            "NET/IB : Got completion from peer 10.4.3.9<41007> with error 12, opcode 0, len 0, vendor err 129 (Recv)",
            {
                "peer": "10.4.3.9<41007>",
                "status": 12,
                "status_name": "IBV_WC_RETRY_EXC_ERR",
                "opcode": "0",
                "vendor": "129",
            },
        ),
        (
            "NET/IB: Got completion from peer cn-b9<41007> with status=4 opcode=1 len=0 vendor err 81 (Send) hca mlx5_2",
            {
                "peer": "cn-b9<41007>",
                "status": 4,
                "status_name": "IBV_WC_LOC_PROT_ERR",
                "opcode": "1",
                "vendor": "81",
                "hca": "mlx5_2",
            },
        ),
        (
            (
                "NET/IB: Got completion from peer 10.4.3.9<41007> with status=IBV_WC_WR_FLUSH_ERR(5) opcode=IBV_WC_SEND(0) "
                "vendor_err=249  localGid ::1 remoteGids::2 hca mlx5_4"
            ),
            {
                "peer": "10.4.3.9<41007>",
                "status": 5,
                "status_name": "IBV_WC_WR_FLUSH_ERR",
                "opcode": "IBV_WC_SEND(0)",
                "vendor": "249",
                "hca": "mlx5_4",
            },
        ),
    ],
)
def test_completion(text, fields):
    """A failed work completion is read in its three generations."""
    line = f"cn-b7:812:990 [3] transport/net_ib.cc:1295 NCCL WARN {text}\n"
    found = one(READERS, line, "ib_completion")
    assert found.fields == fields
    assert found.resource.node == "cn-b7"
