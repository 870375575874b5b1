"""NCCL RAS: JSON, its broken form, text, the monitor, and what several answers tell together."""

import pytest

from kb.model import Resource, Structure
from kb.readers.ras import (
    RasReport,
    init_ranks,
    pending,
    read_ras,
    read_ras_monitor,
    world_ranks,
)

START = 1_793_000_000.0
OPS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")


def rank(number, pid, counts=(0, 0, 0, 0, 9), *, init=0, **flags):
    """One rank as NCCL prints it."""
    status = {"finalize_called": "false", "destroy_flag": "false", "abort_flag": "false"} | flags
    lines = [f'"init_state": {init}', '"async_error": 0', *(f'"{name}": {value}' for name, value in status.items())]
    return (
        f'        {{\n          "rank": {number},\n          "host": "10.7.0.1",\n          "pid": {pid},\n'
        f'          "cuda_dev": {number % 8},\n          "nvml_dev": {number % 8},\n          "status": {{\n'
        + ",\n".join(f"            {line}" for line in lines)
        + '\n          },\n          "collective_counts": {\n'
        + ",\n".join(f'            "{op}": {count}' for op, count in zip(OPS, counts, strict=True))
        + "\n          }\n        }"
    )


def gone(number, pid, *, dead=False, unresponsive=True, comma=","):
    """One missing rank; 2.28.7 to 2.28.9 leave the comma before the status out."""
    return (
        f'        {{\n          "rank": {number},\n          "host": "10.7.0.1",\n          "pid": {pid},\n'
        f'          "cuda_dev": {number % 8},\n          "nvml_dev": {number % 8}{comma}\n          "status": {{\n'
        f'            "unresponsive": {str(unresponsive).lower()},\n'
        f'            "considered_dead": {str(dead).lower()}\n          }}\n        }}'
    )


def communicator(key, size, ranks, missing=()):
    """One communicator as NCCL prints it."""
    return (
        f'    {{\n      "hash": "{key}",\n      "secondary_hash": "0x91:0x92",\n      "size": {size},\n'
        f'      "ranks_count": {len(ranks)},\n      "missing_ranks_count": {len(missing)},\n      "ranks": [\n'
        + ",\n".join(ranks)
        + '\n      ],\n      "missing_ranks": [\n'
        + ",\n".join(missing)
        + "\n      ]\n    }"
    )


def document(*communicators, stamp="2026-10-03 04:05:06", timeouts=0):
    """A whole answer."""
    return (
        '{\n  "nccl_version": "2.29.3",\n  "cuda_runtime_version": 12090,\n  "cuda_driver_version": 13000,\n'
        f'  "timestamp": "{stamp}",\n  "communicators_count": {len(communicators)},\n  "communicators": [\n'
        + ",\n".join(communicators)
        + f'\n  ],\n  "ras": {{\n    "collection_time_sec": 0.125,\n    "timeouts_count": {timeouts}\n  }}\n}}\n'
    ).encode()


def report(*communicators, at=0.0):
    """An answer read at a time."""
    read, _ = read_ras(document(*communicators), "ras/x.json", START + at)
    assert read is not None
    return read


def four(counts, key="0xa1", first=500, **more):
    """A communicator of four whose ranks have launched this many all-reduces."""
    return communicator(
        key, len(counts), [rank(at, first + at, (0, 0, 0, 0, count), **more) for at, count in enumerate(counts)]
    )


def test_an_answer_in_json():
    """JSON gives version, time, and each rank with its place, state and counts."""
    read, gaps = read_ras(document(communicator("0x0a1", 2, [rank(0, 500)], [gone(1, 501, dead=True)])), "ras/1.json")
    assert gaps == ()
    assert (read.version, read.form, read.communicators_count, read.collection_seconds) == ("2.29.3", "json", 1, 0.125)
    assert read.time == 1_791_000_306.0
    (one,) = read.communicators
    assert (one.id, one.size, one.partial) == ("a1", 2, False)
    assert [(here.rank, here.pid, here.gpu, here.state) for here in one.ranks] == [
        (0, 500, 0, "running"),
        (1, 501, 1, "dead"),
    ]
    assert dict(one.ranks[0].counts)["AllReduce"] == 9
    assert [(level.op, level.count, level.ranks) for level in one.levels if level.count] == [("AllReduce", 9, 1)]


def test_the_callers_time_is_better():
    """The stamp has no zone, so a time that the caller gives is taken instead."""
    assert report(four([1]), at=7).time == START + 7


@pytest.mark.parametrize(
    "missing", [[gone(1, 501, comma="")], [gone(1, 501, comma=""), gone(2, 502, comma="", dead=True)]]
)
def test_the_broken_form_is_repaired_and_told(missing):
    """Answers whose missing_ranks lack commas are read whole, with a gap that says so."""
    size = 1 + len(missing)
    read, gaps = read_ras(document(communicator("0xb2", size, [rank(0, 500)], missing)), "ras/2.json")
    assert [gap.code for gap in gaps] == ["ras-repaired"]
    assert [one.state for one in read.communicators[0].ranks] == ["running", "missing", "dead"][:size]


def test_a_comma_missing_between_missing_ranks_too():
    """A comma that lacks between two objects is put back as well."""
    data = document(communicator("0xb2", 3, [rank(0, 500)], [gone(1, 501), gone(2, 502)]))
    data = data.replace(b"}\n        },\n        {", b"}\n        }\n        {")
    read, gaps = read_ras(data, "x")
    assert [gap.code for gap in gaps] == ["ras-repaired"]
    assert len(read.communicators[0].ranks) == 3


@pytest.mark.parametrize("part", [0.55, 0.7, 0.97])
def test_a_cut_answer_keeps_whole_communicators(part):
    """Of an answer that breaks off the communicators that are whole are kept, and the gap says that it was cut."""
    data = document(*(four([3, 3, 3, 3], key=f"0xc{at}") for at in range(8)))
    read, gaps = read_ras(data[: int(len(data) * part)], "x")
    assert gaps[0].code == "ras-cut"
    assert 4 <= len(read.communicators) <= 8
    assert all(len(one.ranks) == 4 for one in read.communicators)
    assert read.version == "2.29.3"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"communicators": 3}',
        b'{"communicators": [1, 2' + b"[" * 50_000,
        b'{"hash"' * 20_000,
        b"\xff\xfe\x00junk",
        b"Connection refused\n",
    ],
)
def test_rubbish_is_a_gap(data):
    """What is no answer of RAS gives no value and one gap."""
    read, gaps = read_ras(data, "x")
    assert read is None
    assert [gap.code for gap in gaps] == ["ras-unreadable"]


def test_odd_communicators_are_left_out():
    """A communicator with a rank twice, a rank outside, or text for a number is left out and counted."""
    twice = communicator("0x1", 2, [rank(0, 1), rank(0, 2)])
    outside = communicator("0x2", 2, [rank(5, 1)])
    words = communicator("0x3", 2, [rank(0, 1)]).replace('"pid": 1', '"pid": "one"')
    read, gaps = read_ras(document(twice, outside, words, four([1, 1])), "x")
    assert [one.id for one in read.communicators] == ["a1"]
    assert (gaps[0].code, gaps[0].got) == ("ras-odd-communicator", "3")


def test_timeouts_are_told():
    """Processes that did not answer in time are a gap."""
    read, gaps = read_ras(document(four([1]), timeouts=3), "x")
    assert read.timeouts == 3
    assert [gap.code for gap in gaps] == ["ras-timeouts"]


TABLE = """NCCL version 2.27.5 compiled with CUDA 12.9
CUDA runtime version 12090, driver version 13000

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      2          8            1         16       16

Communicators... (1.25s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         2       7-8        16        16   RUNNING  {errors}
    1         8         2         1         2        16   RUNNING      OK

"""
MISMATCH = (
    TABLE.format(errors="MISMATCH")
    + """Errors
======

Warnings
========

#0-0 (00d4c1b2a3948576) MISMATCH
  Communicator ranks have different AllReduce operation counts
  14 ranks have launched up to operation 812
  Rank 3 has launched up to operation 811 -- GPU 3 managed by process 7103 on node 10.7.0.1
  Rank 9 has not launched any operations -- GPU 1 (NVML 5) managed by process 7209 on node 10.7.0.2

"""
)
INCOMPLETE = (
    TABLE.format(errors="INCOMPLETE")
    + """Errors
======

DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 7212 on node 10.7.0.2 managing GPU 4

#0-0 (d4c1b2a3948576) INCOMPLETE
  Missing communicator data from 2 ranks
  Rank 12 -- GPU 4 managed by process 7212 on node 10.7.0.2
  Rank 13 -- [process information not found]

Warnings
========

TIMEOUT
  Encountered 2 communication timeouts while gathering communicator data

"""
)


def test_text_of_a_mismatch():
    """The text form names the communicator, how many ranks are where, and the ranks that stand out."""
    read, gaps = read_ras(MISMATCH.encode(), "ras/1.txt", START)
    assert [gap.code for gap in gaps] == ["ras-text"]
    assert (read.version, read.form, read.communicators_count, read.collection_seconds) == ("2.27.5", "text", 9, 1.25)
    (one,) = read.communicators
    assert (one.id, one.size, one.partial) == ("d4c1b2a3948576", 16, True)
    assert [(level.count, level.ranks) for level in one.levels] == [(0, 1), (811, 1), (812, 14)]
    assert [(here.rank, here.host, here.pid, here.gpu) for here in one.ranks] == [
        (3, "10.7.0.1", 7103, 3),
        (9, "10.7.0.2", 7209, 5),
    ]


def test_text_of_missing_and_dead_ranks():
    """Missing ranks are read from both releases' wording, and the process that is called dead is dead."""
    read, _ = read_ras(INCOMPLETE.encode(), "x")
    assert read.dead == (("10.7.0.2", 7212),)
    assert read.timeouts == 2
    assert [(here.rank, here.state) for here in read.communicators[0].ranks] == [(12, "dead"), (13, "missing")]
    old = INCOMPLETE.replace("  Rank 13 -- [process information not found]", "  The missing ranks: 13,15")
    read, _ = read_ras(old.encode(), "x")
    assert [here.rank for here in read.communicators[0].ranks] == [12, 13, 15]


def test_a_hostile_list_of_missing_ranks_is_bounded():
    """Ranges as wide as a number can be are cut to the ranks that there may be, however many lines have one."""
    rows = "    0         1         2       7-8   9999999   9999999   RUNNING  INCOMPLETE\n"
    read, _ = read_ras((rows + "#0-0 (ab) INCOMPLETE\n" + "  The missing ranks: 0-9999999\n" * 50).encode(), "x")
    assert 0 < len(read.communicators[0].ranks) <= 500_000


def test_the_monitor():
    """Events of the monitor are read from text and from JSON, with the process they are about."""
    text = "RAS Monitor Mode\n[2026-10-03 04:05:06] PEER_DEAD: Process 7212 on node 10.7.0.2 managing GPU 4\n"
    events, gaps = read_ras_monitor(text.encode(), "ras/monitor.txt")
    assert gaps == ()
    assert [(one.kind, one.reason, one.time) for one in events] == [("ras_peer", "PEER_DEAD", 1_791_000_306.0)]
    assert events[0].resource == Resource(node="10.7.0.2", pid=7212, gpu="4")
    body = '{\n  "timestamp": "2026-10-03 04:05:06",\n  "group": "LIFECYCLE",\n  "event": "PEER_DEAD",\n  "peer": {\n    "host": "10.7.0.2",\n    "pid": 7212,\n    "cuda_devs": [4],\n    "nvml_devs": [4]\n  },\n  "details": ""\n}\n'
    again, _ = read_ras_monitor((body + body).encode(), "x")
    assert [(one.reason, one.resource, one.time) for one in again] == [
        (one.reason, one.resource, one.time) for one in events * 2
    ]
    assert read_ras_monitor(b"nothing\n{\n", "x")[0] is None


def test_one_answer_is_not_enough():
    """One answer, answers without times, or answers close together tell nothing, and say so."""
    assert pending([report(four([5, 4, 5, 5]))]).vote == "not_observable"
    assert pending([RasReport("a"), RasReport("b")]).vote == "not_observable"
    close = pending([report(four([5, 4, 5, 5]), at=0), report(four([5, 4, 5, 5]), at=8)])
    assert (close.vote, close.span) == ("not_observable", 8.0)


def test_ranks_apart_that_do_not_move_are_pending():
    """Counts that differ and stand still for half a minute are a pending collective, and the one behind is named."""
    polls = [
        report(four(counts), at=at)
        for at, counts in ((0, [4, 4, 4, 4]), (10, [5, 4, 5, 5]), (45, [5, 4, 5, 5]), (60, [5, 4, 5, 5]))
    ]
    vote = pending(polls, world_size=4)
    assert (vote.vote, vote.age, vote.span, vote.polls) == ("yes", 50.0, 60.0, 4)
    (one,) = vote.pending
    assert (one.kind, one.op, one.since, one.waiting, one.ahead) == ("behind", "AllReduce", START + 10, 3, False)
    assert [(place.rank, place.world_rank, place.pid, place.lag) for place in one.odd] == [(1, 1, 501, 1)]
    assert [(suspect.place.world_rank, suspect.state, suspect.lacks, suspect.waits) for suspect in vote.suspects] == [
        (1, "behind", 1, 0)
    ]
    assert vote == pending(polls[::-1], world_size=4)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([5, 4, 5, 5], [6, 5, 6, 6]),
        ([5, 5, 5, 5], [5, 5, 5, 5]),
        ([5, 4, 5, 5], [5, 5, 5, 5]),
        ([9, 8, 9, 9], [1, 0, 1, 1]),
    ],
    ids=["moves", "even", "caught up", "made anew"],
)
def test_what_moves_or_is_even_is_not_pending(first, second):
    """A mismatch that moves on is work, and ranks that are level wait for nobody that RAS knows."""
    assert pending([report(four(first)), report(four(second), at=60)]).vote == "no"


def test_a_communicator_that_is_torn_down_is_not_pending():
    """Ranks that leave a communicator at different times are no hang."""
    leaving = communicator("0xa1", 2, [rank(0, 500), rank(1, 501, finalize_called="true", counts=(0, 0, 0, 0, 8))])
    assert pending([report(leaving), report(leaving, at=90)]).vote == "no"


def test_missing_and_dead_ranks():
    """A rank that does not answer while the others stand still is pending; what it had launched before makes it certain."""
    before = report(four([7, 7, 7, 7]))
    ranks = [rank(at, 500 + at, (0, 0, 0, 0, 8)) for at in (0, 1, 3)]
    stuck = [report(communicator("0xa1", 4, ranks, [gone(2, 502, dead=at > 50)]), at=at) for at in (20, 60)]
    vote = pending([before, *stuck])
    (one,) = vote.pending
    assert (vote.vote, one.kind, one.certain, one.age) == ("yes", "missing", True, 40.0)
    assert [place.rank for place in one.dead] == [2]
    assert [(suspect.state, suspect.place.pid) for suspect in vote.suspects] == [("dead", 502)]
    assert not pending(stuck).pending[0].certain


def test_the_rank_missing_in_several_is_the_source():
    """Who lacks in two communicators and waits in none comes before one that is behind only because it waits."""
    data = communicator("0x1", 2, [rank(0, 500, (0, 0, 0, 0, 5)), rank(1, 501, (0, 0, 0, 0, 4))])
    # 501 waits for 503 here, and 502 too in the third
    tensor = communicator("0x2", 2, [rank(0, 501, (0, 0, 3, 0, 0)), rank(1, 503, (0, 0, 2, 0, 0))])
    other = communicator("0x3", 2, [rank(0, 502, (0, 0, 0, 3, 0)), rank(1, 503, (0, 0, 0, 2, 0))])
    vote = pending([report(data, tensor, other), report(data, tensor, other, at=31)])
    assert [(one.place.pid, one.lacks, one.waits) for one in vote.suspects] == [(503, 2, 0), (501, 1, 1)]
    assert "process 503 on 10.7.0.1" in vote.detail


def test_one_rank_ahead_of_all_others_is_the_odd_one():
    """A rank that launched what no other did is named, not the many that did not."""
    vote = pending([report(four([9, 8, 8, 8])), report(four([9, 8, 8, 8]), at=60)])
    assert (vote.pending[0].ahead, [place.rank for place in vote.pending[0].odd]) == (True, [0])


def test_other_operations_in_the_same_number_disagree():
    """Ranks that launched as many operations, but others, disagree; the fewer are odd."""
    ranks = [rank(at, 500 + at, (0, 0, 2, 0, 6)) for at in (0, 1, 2)]
    torn = communicator("0xa1", 4, [*ranks, rank(3, 503, (0, 0, 3, 0, 5))])
    vote = pending([report(torn), report(torn, at=60)])
    assert vote.pending[0].kind == "disagree"
    assert [place.rank for place in vote.pending[0].odd] == [3]


def test_a_communicator_that_does_not_come_up():
    """A communicator in its start is given two minutes; then those that have not joined are missing."""
    rising = communicator("0xa1", 3, [rank(0, 500, init=7), rank(1, 501, init=7)], [gone(2, 502, unresponsive=False)])
    assert pending([report(rising), report(rising, at=60)]).vote == "no"
    vote = pending([report(rising), report(rising, at=130)])
    assert (vote.pending[0].kind, [place.rank for place in vote.pending[0].missing]) == ("init", [2])


def test_text_answers_vote_too():
    """Two text answers that say the same name the ranks furthest behind."""
    polls = [read_ras(MISMATCH.encode(), f"ras/{at}.txt", START + at)[0] for at in (0, 40)]
    vote = pending(polls, world_size=16)
    assert (vote.vote, vote.pending[0].op) == ("yes", "AllReduce")
    assert [(one.place.world_rank, one.place.pid) for one in vote.suspects] == [(9, 7209)]


def test_a_process_that_works_elsewhere_is_marked():
    """A rank that is behind here and still launches operations elsewhere is told so."""
    polls = [report(four([5, 4, 5, 5]), four([at, at], key="0xb", first=501), at=at) for at in (0, 40)]
    assert [place.moves for place in pending(polls).pending[0].odd] == [True]


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
