"""Flight Recorder dumps: the values read from each version and format, and robustness against hostile ones."""

import json
import os
import pickle
import struct
from dataclasses import replace

import pytest

from kb.model import Frame
from kb.parsers.artefacts.flight.dump import DumpLimits
from kb.parsers.artefacts.flight.plain_pickle import refusal
from kb.parsers.artefacts.flight.read import read_dump
from kb.parsers.artefacts.flight.trace import rank_of

MADE = 1_795_000_000_000_000_000


def entry(**more):
    """An NCCL entry as torch 2.13 writes it into a pickle."""
    return {
        "record_id": 40,
        "pg_id": 3,
        "process_group": ("21", "TENSOR_GROUP"),
        "collective_seq_id": 17,
        "p2p_seq_id": 0,
        "op_id": 17,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": MADE,
        "time_discovered_started_ns": MADE + 5_000_000,
        "time_discovered_completed_ns": None,
        "duration_ms": 1.5,
        "input_sizes": [[6, 320]],
        "input_dtypes": ["BFloat16"],
        "output_sizes": [[6, 320]],
        "output_dtypes": ["BFloat16"],
        "state": "started",
        "timeout_ms": 600000,
        "is_p2p": False,
        "retired": False,
        "thread_id": "140001",
        "thread_name": "trainer",
        "frames": [
            {"name": "step", "filename": "/srv/t.py", "line": 88},
            {"name": "main", "filename": "/srv/t.py", "line": 9},
        ],
    } | more


def dump(entries=(), **more):
    """An NCCL dump with two groups."""
    return {
        "version": "2.10",
        "pg_config": {
            "0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"},
            "21": {"name": "21", "desc": "TENSOR_GROUP", "ranks": "[2, 3]"},
        },
        "pg_status": {
            "0": {"last_enqueued_collective": 8, "last_started_collective": 8, "last_completed_collective": 8},
            "3": {"last_enqueued_collective": 17, "last_started_collective": 17, "last_completed_collective": 16},
        },
        "comm_lib_version": "2.27.5",
        "entries": list(entries),
    } | more


def pickled(value, protocol=2):
    """The value as a pickle."""
    return pickle.dumps(value, protocol=protocol)


def codes(gaps):
    """The kinds of gaps."""
    return [gap.code for gap in gaps]


def test_a_pickle_is_read_whole():
    """The trace has an entry's group, number, operation, sizes, times in seconds, limits and stack."""
    trace, gaps = read_dump(pickled(dump([entry()])), "dumps/_dump_2")
    (one,) = trace.entries

    assert gaps == ()
    assert (trace.rank, trace.version, trace.backend, trace.inferred_groups) == (2, "2.10", "nccl", False)
    assert trace.groups == {"0": (0, 1, 2, 3), "21": (2, 3)}
    assert trace.group_names == {"0": "default_pg", "21": "TENSOR_GROUP"}
    assert trace.status == {"0": (8, 8, 8), "21": (17, 17, 16)}
    assert (one.pg, one.seq, one.op, one.state, one.p2p) == ("21", 17, "all_reduce", "started", False)
    assert (one.input_sizes, one.output_sizes, one.dtypes) == (((6, 320),), ((6, 320),), ("BFloat16",))
    assert (one.created, one.completed, one.timeout_ms, one.duration_ms) == (MADE / 1e9, None, 600000.0, 1.5)
    assert trace.time == one.started == (MADE + 5_000_000) / 1e9
    assert one.frames == (Frame("step", "/srv/t.py", 88), Frame("main", "/srv/t.py", 9))


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_binary_protocol_is_read(protocol):
    """What another program wrote with Python's own pickler is read too."""
    trace, gaps = read_dump(pickled(dump([entry()]), protocol), "_dump_3")

    assert (trace.rank, len(trace.entries), gaps) == (3, 1, ())


def test_json_says_the_same_as_the_pickle():
    """Counters as text and zeros for unknown times are read as what they mean; JSON has no stacks."""
    plain = dump([entry(time_discovered_completed_ns=0)])
    del plain["entries"][0]["frames"]
    plain["pg_status"] = {k: {n: str(v) for n, v in item.items()} for k, item in plain["pg_status"].items()}
    from_json, _ = read_dump(json.dumps(plain).encode(), "x_2")
    from_pickle, _ = read_dump(pickled(dump([entry(frames=[])])), "x_2")

    assert from_json == from_pickle


def test_gloo_without_groups_is_marked_as_inferred():
    """A gloo dump has no members: the trace says so, and groups are numbered by its entries."""
    made = [
        entry(
            pg_id=0, process_group=("0", "default_pg"), profiling_name="gloo:barrier", state="scheduled", retired=True
        ),
        entry(pg_id=1, process_group=("5", "undefined"), profiling_name="gloo:all_gather", state="scheduled"),
    ]
    config = {"": {"name": "", "desc": "", "ranks": "[]"}}
    status = {
        str(n): {"last_enqueued_collective": n, "last_started_collective": -1, "last_completed_collective": 0}
        for n in (0, 1)
    }
    trace, gaps = read_dump(pickled(dump(made, pg_config=config, pg_status=status)), "dump_1.pickle")

    assert (trace.backend, trace.groups, trace.inferred_groups, trace.rank) == ("gloo", {}, True, 1)
    assert codes(gaps) == ["groups_inferred"]
    assert trace.status == {"0": (0, -1, 0), "5": (1, -1, 0)}
    assert [item.retired for item in trace.entries] == [True, False]


def test_sends_and_receives_tell_both_ends():
    """`send a->b` and `recv a<-b` give source and destination, and count by their own number."""
    made = [
        entry(profiling_name="nccl:send 1->2", is_p2p=True, p2p_seq_id=9),
        entry(profiling_name="nccl:recv 3<-0", is_p2p=True, p2p_seq_id=10),
    ]
    trace, _ = read_dump(pickled(dump(made)), "_dump_2")

    assert [(item.op, item.peer, item.seq, item.p2p) for item in trace.entries] == [
        ("send", (1, 2), 9, True),
        ("recv", (0, 3), 10, True),
    ]


def test_old_versions_are_read():
    """Version 1 has `seq_id` and no groups; what it lacks is empty."""
    old = {
        "version": "1.5",
        "entries": [
            {"pg_id": 2, "seq_id": 4, "profiling_name": "nccl:broadcast", "state": "completed", "input_sizes": [[3]]}
        ],
    }
    trace, gaps = read_dump(pickled(old), "nccl_trace_rank_11")

    assert (trace.rank, trace.entries[0].pg, trace.entries[0].seq, trace.entries[0].op) == (11, "2", 4, "broadcast")
    assert codes(gaps) == ["groups_inferred"]


def test_an_unknown_version_is_read_and_reported():
    """An unknown version is read as far as possible, with a gap."""
    trace, gaps = read_dump(pickled(dump([entry()], version="7.0")), "_dump_2")

    assert (len(trace.entries), codes(gaps)) == (1, ["dump_version_unknown"])


def test_an_empty_ring_still_names_its_counters():
    """With no entry to explain them, the dump's numbers of groups are matched with their names in the order of both."""
    trace, _ = read_dump(pickled(dump()), "_dump_3")

    assert trace.status == {"0": (8, 8, 8), "21": (17, 17, 16)}


def test_counters_that_cannot_be_named_keep_their_number():
    """More groups than counters and no entries: nothing is guessed."""
    one = dump()
    one["pg_config"]["9"] = {"name": "9", "desc": "DATA_GROUP", "ranks": "[1, 3]"}
    trace, _ = read_dump(pickled(one), "_dump_3")

    assert set(trace.status) == {"#0", "#3"}


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("_dump_14", 14),
        ("a7/nccl_trace_rank_3", 3),
        ("dump-5.json", 5),
        ("rank2.20261103.pickle", 2),
        ("trace_12.json.gz", 12),
        ("dump", None),
    ],
)
def test_the_rank_stands_in_the_name(name, rank):
    """After the word rank, else at the end of the name."""
    assert rank_of(name) == rank


def test_a_wrong_rank_in_the_name_is_reported():
    """A rank that is in none of the dump's own groups is contradicted; where they leave one rank only, that is it."""
    made = dump([entry()])
    made["pg_config"]["30"] = {"name": "30", "desc": "DATA_GROUP", "ranks": "[1, 3]"}
    trace, gaps = read_dump(pickled(made), "_dump_0")
    nameless, _ = read_dump(pickled(made), "dump")

    assert (trace.rank, codes(gaps), nameless.rank) == (3, ["dump_rank_contradicted"], 3)


@pytest.mark.parametrize(
    ("name", "inside", "taken"),
    [("_dump_2", 2, 2), ("_dump_3", 2, 2), ("_dump_3", 5, 3), ("_dump_7", 3, 3), ("_dump_7", 5, None)],
    ids=["alike", "both fit", "the name fits", "the content fits", "neither fits"],
)
def test_name_and_content_that_disagree_are_reported(name, inside, taken):
    """The content goes before the name, unless the groups contradict it; where they contradict both, the rank is unknown."""
    trace, gaps = read_dump(pickled(dump([entry()], rank=inside)), name)

    assert trace.rank == taken
    assert codes(gaps) == ([] if name == f"_dump_{inside}" else ["dump_rank_contradicted"])


def test_a_recorder_that_held_nothing_is_a_gap():
    """Without operations and counters the recorder was off, and does not show where its rank is."""
    trace, gaps = read_dump(pickled(dump(pg_status={})), "_dump_2")
    bent, others = read_dump(pickled(dump(pg_status=[1])), "_dump_2")

    assert (trace.entries, codes(gaps)) == ((), ["dump_empty"])
    assert (bent.entries, codes(others)) == ((), ["dump_partial", "dump_empty"])


class Evil:
    """Calls a program when it is loaded by the default loader."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (self.path,))


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_that_calls_code_is_refused(tmp_path, protocol):
    """No part of it is loaded, wherever the call is in the dump and whatever the protocol."""
    made = dump([entry(frames=[Evil(str(tmp_path / "ran"))])])
    trace, gaps = read_dump(pickled(made, protocol), "_dump_1")

    assert trace is None
    assert codes(gaps) in (["dump_refused"], ["dump_unreadable"])  # protocols 0 and 1 have no head to know them by
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "body",
    [
        b"cos\nsystem\n.",
        b"\x8c\x02os\x8c\x06system\x93.",
        b"]\x82\x01.",
        b"X\x01\x00\x00\x00aQ.",
        b"Pabc\n.",
        b"]}b.",
        b"]r\xff\xff\xff\x7f.",
        b"\x8a\xff" + b"\x01" * 255 + b".",
        b"\x8b\xff\xff\xff\x7f.",
        b"\x97.",
    ],
    ids=[
        "global",
        "stack-global",
        "extension",
        "persistent",
        "persistent-text",
        "build",
        "memo",
        "long",
        "long4",
        "buffer",
    ],
)
def test_opcodes_beyond_plain_values_are_refused(body):
    """Whatever names classes, asks for persistent ids, sets state or reserves room is refused before anything is built."""
    assert refusal(b"\x80\x02" + body)


def test_plain_pickles_pass_the_walk():
    """Text, numbers, containers and shared values of every binary protocol are let through."""
    shared = ["a" * 300, -5, 2**40, 1.5, None, True, (1, 2, 3, 4), {"k": (1,)}, 70_000, ()]
    for protocol in (2, 3, 4, 5):
        assert refusal(pickled([shared, shared, {"x": shared}], protocol)) == "", protocol


def test_every_cut_of_a_dump_is_a_gap():
    """A dump cut anywhere gives no trace and one gap, never an exception."""
    for data in (pickled(dump([entry()])), json.dumps(dump([entry()])).encode()):
        for length in range(len(data)):
            trace, gaps = read_dump(data[:length], "_dump_2")
            assert (trace, len(gaps)) == (None, 1), length


def test_every_broken_byte_is_survived():
    """With any one byte changed a dump is read or refused, and nothing raises."""
    data = pickled(dump([entry()]))
    read = 0
    for place in range(2, len(data)):
        for value in (0x00, 0x2E, 0x5D, 0x71, 0xFF):
            trace, gaps = read_dump(data[:place] + bytes([value]) + data[place + 1 :], "_dump_2")
            assert trace is not None or gaps
            read += trace is not None

    assert read > len(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b"\x80\x02K\x01.",
        b"{" * 100_000,
        b'{"entries":' + b"[" * 100_000,
        b'{"entries": 5, "x": 1}',
        b"garbage",
    ],
)
def test_what_is_no_dump_is_a_gap(data):
    """Garbage, depth and other values give no trace with entries and do not raise."""
    trace, gaps = read_dump(data, "_dump_1")

    assert trace is None or not trace.entries
    assert gaps


def test_deep_nesting_is_bounded():
    """A hundred thousand nested lists in place of sizes cost one entry and no recursion."""
    deep = b"\x80\x02}X\x07\x00\x00\x00entries]}X\x0b\x00\x00\x00input_sizes" + b"]" * 100_000 + b"a" * 99_999 + b"sas."
    trace, gaps = read_dump(deep, "_dump_1")

    assert trace is not None
    assert trace.entries == ()
    assert "dump_partial" in codes(gaps)


def test_malformed_parts_are_dropped_and_counted():
    """A malformed entry, group or counter is skipped alone."""
    made = dump([entry(), entry(input_sizes="no"), 7, entry(collective_seq_id="x")])
    made["pg_status"]["4"] = [1]
    made["pg_config"]["40"] = {"name": "40", "desc": "D", "ranks": "[2, 'x']"}
    trace, gaps = read_dump(pickled(made), "_dump_2")

    assert len(trace.entries) == 1
    assert codes(gaps) == ["dump_partial", "group_unreadable"]
    assert gaps[0].reason.startswith("4 parts")


def test_stamps_and_numbers_out_of_range_are_unknown():
    """An implausible time counts as unknown."""
    made = dump([entry(time_created_ns=10**400, time_discovered_started_ns=-5)])
    trace, _ = read_dump(pickled(made, 4), "_dump_2")
    assert trace is None  # a number of 167 bytes is refused

    made = dump([entry(time_created_ns=10**25, time_discovered_started_ns=-5)])
    trace, _ = read_dump(pickled(made), "_dump_2")
    assert [(item.created, item.started) for item in trace.entries] == [(None, None)]


def test_limits_cut_with_a_gap():
    """Too large a file is not read; of too many entries the last are kept; stacks are cut; containers are counted first."""
    data = pickled(dump([entry(collective_seq_id=n) for n in range(50)]))
    small = DumpLimits(size=len(data) - 1)
    few = DumpLimits(entries=3, frames=1)

    assert [codes(read_dump(data, "_dump_2", small)[1]), read_dump(data, "_dump_2", small)[0]] == [
        ["dump_too_large"],
        None,
    ]
    trace, gaps = read_dump(data, "_dump_2", few)
    assert ([item.seq for item in trace.entries], codes(gaps)) == ([47, 48, 49], ["dump_cut"])
    assert {len(item.frames) for item in trace.entries} == {1}
    assert codes(read_dump(data, "_dump_2", replace(few, containers=20))[1]) == ["dump_refused"]


def test_stacks_of_finished_operations_can_be_left_out():
    """Who only needs what pends asks for no more."""
    made = dump([entry(state="completed"), entry()])
    trace, _ = read_dump(pickled(made), "_dump_2", DumpLimits(finished_frames=False))

    assert [len(item.frames) for item in trace.entries] == [0, 2]


def test_a_memo_bomb_is_not_expanded():
    """Lists that hold each other ten times over, fifty deep, stay shared and give no entry."""
    body = b"]q\x00"
    for index in range(1, 50):
        body += b"]q" + bytes([index]) + b"(" + (b"h" + bytes([index - 1])) * 10 + b"e"
    data = b"\x80\x02}X\x07\x00\x00\x00entries" + body + b"s."
    trace, gaps = read_dump(data, "_dump_1")

    assert trace is None or trace.entries == ()
    assert gaps


def test_a_frame_longer_than_the_file_is_cut_off():
    """A length beyond the end of the file does not cause further reading or allocation."""
    assert refusal(b"\x80\x02X" + struct.pack("<I", 1 << 31) + b"abc") == "it is truncated: the pickle has no end"
