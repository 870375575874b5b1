"""Who wrote a line, beyond its prefixes."""

import pytest

from kb.model import Resource
from kb.parsers.logs.prefixes import peel
from kb.parsers.logs.speakers import speaker, writer


@pytest.mark.parametrize(
    ("line", "rank"),
    [
        (b"[rank3]: oops", 3),
        (b"2027-02-09 17:40:08 [ERROR] [engine.py:12] [Rank 3] oops", 3),
        (b"2027-02-09 17:40:08 - ERROR - rank3 - oops", 3),
        (b"2027-02-09 17:40:08 | ERROR | rank=3 | oops", 3),
        (b'{"level": "ERROR", "rank": 3, "message": "oops"}', 3),
        (b'{"level": "ERROR", "process_index": 3, "message": "oops"}', 3),
        (b'{"level": "ERROR", "RANK": "3", "message": "oops"}', 3),
        (b"02-09 17:40:08.467 CRITICAL R03 engine: oops", 3),
        (b"2027-02-09T17:40:08Z [info     ] mesh ready   [trainer] rank=3", 3),
        (
            b"\x1b[2m2027-02-09T17:40:08Z\x1b[0m done \x1b[36mstep\x1b[0m=\x1b[35m9\x1b[0m \x1b[36mrank\x1b[0m=\x1b[35m3\x1b[0m",
            3,
        ),
        (b"ERROR:rank3:oops", 3),
        (b"[ERROR] 2027-02-09-17:40:08 (PID:812, Device:1, RankID:3) ERR00100 oops", 3),
        (b"ts=2027-02-09T17:40:08Z level=error rank=3 msg=oops", 3),
        (b"level=info r=16 rank=oops", None),
        (b"2027-02-09 17:40:08 ERROR no reply from rank=3", None),
        (b"2027-02-09 17:40:08 ERROR R2D2 oops", None),
        (b"2027-02-09 17:40:08 ERROR lost rank 3 of 8", None),
        (b"2027-02-09 17:40:08 ERROR oops", None),
    ],
)
def test_speaker(line: bytes, rank: int | None) -> None:
    """A prefix counts first, then a rank in brackets or in a column of its own, then the fields of JSON."""
    assert speaker(line, peel(line)).rank == rank


@pytest.mark.parametrize(
    ("line", "rank"),
    [
        (b"2027-02-09 17:40:08 [ERROR] [engine.py:12] [Rank 3] oops", 3),
        (b"2027-02-09 17:40:08 | ERROR | rank=3 | oops", 3),
        (b"[rank1]: lost its peer (rank 3)", 1),
        (b"the store lost its peer (rank 3)", None),
        (b"oops: lost [Rank 3] early", None),
        (b"[E ProcessGroupNCCL.cpp:9] [Rank 3] NCCL watchdog thread oops", None),
    ],
)
def test_the_writer_of_a_line_is_named_in_its_header(line: bytes, rank: int | None) -> None:
    """A rank in brackets behind the first words of a message is one that the message is about."""
    assert writer(line, peel(line)).rank == rank


def test_a_line_of_nccl_names_its_host_process_and_gpu() -> None:
    """GPU 0 tells no local rank: it may be the only one that each process sees."""
    first, second = (f"gpu-7:812:830 [{gpu}] net.cc:9 NCCL WARN oops".encode() for gpu in (0, 3))

    assert speaker(first, peel(first)) == Resource(node="gpu-7", pid=812)
    assert speaker(second, peel(second)) == Resource(node="gpu-7", pid=812, local_rank=3)


@pytest.mark.parametrize(
    "line",
    [
        b"[1696243200.123456] [gpu-node-07:5123 :0]  ib_mlx5_log.c:177  UCX  ERROR Transport retry count exceeded",
        b"[gpu-node-07:5123 :0:5199] ucp_worker.c:1888 UCX  FATAL failed to progress",
    ],
)
def test_lines_of_ucx_name_host_and_process(line: bytes) -> None:
    """They stand in brackets before the place in the source."""
    assert speaker(line, peel(line)) == Resource(node="gpu-node-07", pid=5123)
