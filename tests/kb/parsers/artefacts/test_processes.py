"""processes.json: what a watch saw of processes that ended alone."""

from __future__ import annotations

import json

import pytest

from kb.model import Event, Resource
from kb.parsers.artefacts.processes import Ended, read_processes, written

KILLED = Ended(3, 4711, 1780000000.5, "SIGKILL", "gpu-31", 7)


def test_what_is_written_is_read_as_events():
    """Who, when and how, with the others that ran on."""
    events, gaps = read_processes(written((KILLED, Ended(4, 4712, 1780000001.0))), "processes.json")
    assert gaps == ()
    assert events == (
        Event(
            "processes.json",
            1780000000.5,
            "process_end",
            "SIGKILL",
            "rank 3: process 4711 ended by SIGKILL, while 7 other ranks kept running",
            Resource(node="gpu-31", rank=3, pid=4711),
            {"signal": "SIGKILL", "pid": 4711, "others": 7},
        ),
        Event(
            "processes.json",
            1780000001.0,
            "process_end",
            "gone",
            "rank 4: process 4712 is gone for an unknown reason, while 0 other ranks kept running",
            Resource(rank=4, pid=4712),
            {"signal": "", "pid": 4712, "others": 0},
        ),
    )


@pytest.mark.parametrize(
    "odd",
    [{}, {"rank": "3"}, 7, {"rank": -1, "pid": 1, "time": 1.0}, {"rank": 1, "pid": 1, "time": "now"}, None],
)
def test_an_entry_that_is_none_costs_itself_only(odd):
    """The other entries are read, and the number left out is reported."""
    good = {"rank": 3, "pid": 4711, "time": 1780000000.5, "how": "exit 1", "new_field": True}
    events, gaps = read_processes(json.dumps({"ended": [odd, good]}).encode(), "processes.json")
    assert [event.message for event in events] == [
        "rank 3: process 4711 ended: exit 1, while 0 other ranks kept running"
    ]
    assert [(gap.code, gap.reason) for gap in gaps] == [("processes_left_out", "1 entry is unusable")]


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b'{"ended": 3}', b"\xff", b"[" * 100_000])
def test_what_is_no_such_file_is_a_gap(data):
    """Nothing is read of it."""
    events, gaps = read_processes(data, "processes.json")
    assert events is None
    assert [gap.code for gap in gaps] == ["processes_unreadable"]
