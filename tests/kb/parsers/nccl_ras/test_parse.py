"""NCCL RAS: JSON, its broken form, text, the monitor."""

import pytest

from kb.model import Resource
from kb.parsers.nccl_ras.answers import read_ras
from kb.parsers.nccl_ras.monitor import read_ras_monitor
from tests.support.nccl_ras_samples import (
    INCOMPLETE,
    MISMATCH,
    START,
    communicator,
    document,
    four,
    gone,
    rank,
    report,
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
def test_the_broken_form_is_repaired_and_reported(missing):
    """Answers whose missing_ranks lack commas are read whole, with a gap that says so."""
    size = 1 + len(missing)
    read, gaps = read_ras(document(communicator("0xb2", size, [rank(0, 500)], missing)), "ras/2.json")
    assert [gap.code for gap in gaps] == ["ras-repaired"]
    assert [item.state for item in read.communicators[0].ranks] == ["running", "missing", "dead"][:size]


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
    assert all(len(item.ranks) == 4 for item in read.communicators)
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
    """Text that is not an answer of RAS gives no value and one gap."""
    read, gaps = read_ras(data, "x")
    assert read is None
    assert [gap.code for gap in gaps] == ["ras-unreadable"]


def test_odd_communicators_are_left_out():
    """A communicator with a rank twice, a rank outside, or text for a number is left out and counted."""
    twice = communicator("0x1", 2, [rank(0, 1), rank(0, 2)])
    outside = communicator("0x2", 2, [rank(5, 1)])
    words = communicator("0x3", 2, [rank(0, 1)]).replace('"pid": 1', '"pid": "one"')
    read, gaps = read_ras(document(twice, outside, words, four([1, 1])), "x")
    assert [item.id for item in read.communicators] == ["a1"]
    assert (gaps[0].code, gaps[0].got) == ("ras-odd-communicator", "3")


def test_timeouts_are_reported():
    """Processes that did not answer in time are a gap."""
    read, gaps = read_ras(document(four([1]), timeouts=3), "x")
    assert read.timeouts == 3
    assert [gap.code for gap in gaps] == ["ras-timeouts"]


def test_text_of_a_mismatch():
    """The text form names the communicator, the number of ranks in each state, and the ranks that differ."""
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
    assert [(event.kind, event.reason, event.time) for event in events] == [("ras_peer", "PEER_DEAD", 1_791_000_306.0)]
    assert events[0].resource == Resource(node="10.7.0.2", pid=7212, gpu="4")
    body = '{\n  "timestamp": "2026-10-03 04:05:06",\n  "group": "LIFECYCLE",\n  "event": "PEER_DEAD",\n  "peer": {\n    "host": "10.7.0.2",\n    "pid": 7212,\n    "cuda_devs": [4],\n    "nvml_devs": [4]\n  },\n  "details": ""\n}\n'
    again, _ = read_ras_monitor((body + body).encode(), "x")
    assert [(item.reason, item.resource, item.time) for item in again] == [
        (event.reason, event.resource, event.time) for event in events * 2
    ]
    assert read_ras_monitor(b"nothing\n{\n", "x")[0] is None
    events, gaps = read_ras_monitor(text.encode() + b"\n" * 200_000, "x")
    assert events is not None
    assert (len(events), [gap.code for gap in gaps]) == (1, ["ras-cut"])
