"""Many dumps, read in child processes: their results, and the cost of a hostile dump."""

import json
import os
import pickle
import sys
import time
from dataclasses import replace

import pytest

from bot.diagnosis import flight_recorder_pool
from bot.diagnosis.flight_recorder_pool import PoolLimits, read_dumps
from kb.collectives.analyse import judge, judge_rings
from kb.collectives.trace import digest
from kb.parsers.artefacts.flight.dump import DumpLimits
from kb.parsers.artefacts.flight.read import read_dump
from tests.support.common.recorder_dumps import Evil, dump


@pytest.fixture
def folder(tmp_path):
    """Four dumps, JSON and pickle mixed."""
    for rank in range(4):
        made = dump(rank)
        data = pickle.dumps(made, protocol=2) if rank % 2 else json.dumps(made).encode()
        (tmp_path / f"_dump_{rank}").write_bytes(data)
    return tmp_path


def trace_of(path, **limits):
    """What the reader makes of a dump."""
    trace, _ = read_dump(path.read_bytes(), str(path), DumpLimits(**limits))
    assert trace is not None
    return trace


def codes(gaps):
    """The kinds of gaps."""
    return [gap.code for gap in gaps]


def test_digests_come_back_as_they_were_made(folder):
    """What the children send is what the reader and the digest give here, in the order of the paths."""
    rings, gaps = read_dumps(folder.iterdir())
    here = [digest(trace_of(path, finished_frames=False)) for path in sorted(folder.iterdir())]

    assert list(rings) == here
    assert gaps == ()
    assert rings[1].oldest.frames[0].line == 3


def test_the_verdict_is_that_over_the_traces(folder):
    """Reading in child processes does not change the report."""
    rings, _ = read_dumps(folder.iterdir())
    traces = [trace_of(path) for path in folder.iterdir()]

    assert judge_rings(rings) == judge(traces)
    assert [culprit.rank for culprit in judge_rings(rings).culprits] == [2]


def test_no_dumps_start_no_child(monkeypatch):
    """An empty folder costs nothing."""
    monkeypatch.setattr(flight_recorder_pool, "_started", lambda _: pytest.fail("a child was started"))

    assert read_dumps([]) == ((), ())


def test_bad_dumps_are_gaps_and_the_others_are_read(folder):
    """Code in a pickle, half a dump, an empty one, a folder, a pipe, a lost path: each is a gap, no code runs."""
    (folder / "_dump_4").write_bytes(pickle.dumps({"entries": [Evil(str(folder / "ran"))]}, protocol=4))
    whole = (folder / "_dump_0").read_bytes()
    (folder / "_dump_5").write_bytes(whole[: len(whole) // 2])
    (folder / "_dump_6").write_bytes(b"")
    (folder / "_dump_7").mkdir()
    os.mkfifo(folder / "_dump_8")
    rings, gaps = read_dumps([*folder.iterdir(), folder / "_dump_9"])

    assert [ring.rank for ring in rings] == [0, 1, 2, 3]
    assert codes(gaps) == ["dump_refused"] + ["dump_unreadable"] * 5
    assert not (folder / "ran").exists()


def test_a_huge_dump_is_not_read(folder):
    """A file of two GiB costs a gap and no memory: no more than the limit is read of it."""
    with (folder / "_dump_4").open("wb") as file:
        file.write(b'{"entries": [')
        file.truncate(2 << 30)
    rings, gaps = read_dumps(folder.iterdir(), PoolLimits(limits=DumpLimits(size=1 << 20)))

    assert (len(rings), codes(gaps)) == (4, ["dump_too_large"])


def endless():
    """A pickle of plain values whose key takes for ever to hash: a tuple of tuples, twice the same, sixty deep."""
    level = "h{0}h{0}\x86q{1}0"
    body = ")q\x000" + "".join(level.format(chr(n), chr(n + 1)) for n in range(60)) + "h" + chr(60)
    return b"\x80\x02}" + body.encode("latin-1") + b"K\x01s."


def test_a_dump_that_stalls_its_reader_is_a_gap(folder):
    """The child is replaced within the time limit; its remaining dumps are read by the next one."""
    (folder / "_dump_00").write_bytes(endless())
    began = time.monotonic()
    rings, gaps = read_dumps(folder.iterdir(), PoolLimits(seconds=1.0))

    assert ([ring.rank for ring in rings], codes(gaps)) == ([0, 1, 2, 3], ["dump_stalled_reader"])
    assert gaps[0].source.endswith("_dump_00")
    assert time.monotonic() - began < 20


def test_a_dump_that_takes_too_much_memory_is_a_gap(folder):
    """A pickle that builds more than the child may hold is given up, the others are read."""
    (folder / "_dump_4").write_bytes(b"\x80\x02](" + b"G\x3f\xf0\x00\x00\x00\x00\x00\x01" * 6_000_000 + b"e.")
    rings, gaps = read_dumps(folder.iterdir(), PoolLimits(memory=320 << 20))

    assert len(rings) == 4
    assert len(gaps) == 1
    assert gaps[0].code in {"dump_unreadable", "dump_too_large", "dump_killed_reader"}


def test_children_that_die_leave_gaps(folder, monkeypatch):
    """Where no child lives long enough to read anything, every dump is a gap and the reading ends."""
    monkeypatch.setattr(sys, "executable", "/bin/false")
    rings, gaps = read_dumps(folder.iterdir())

    assert (rings, codes(gaps)) == ((), ["dump_killed_reader"] * 4)


def test_the_number_of_lost_children_is_bounded(folder, monkeypatch):
    """After too many lost children the rest stays unread, which is reported once."""
    monkeypatch.setattr(flight_recorder_pool, "DEATHS", 1)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    rings, gaps = read_dumps(folder.iterdir())

    assert rings == ()
    assert "dumps_not_read" in codes(gaps)


def test_time_for_all_is_bounded(folder):
    """When the time is up, the dumps that were read count and the others are one gap."""
    rings, gaps = read_dumps(folder.iterdir(), PoolLimits(budget=0.0))

    assert (rings, codes(gaps)) == ((), ["dumps_not_read"])
    assert gaps[0].reason.startswith("4 dumps")


def test_like_gaps_are_counted(tmp_path):
    """Of many gaps of one kind a few are listed; the last one gives the number of the others."""
    for rank in range(30):
        (tmp_path / f"_dump_{rank}").write_bytes(b"no dump")
    _, gaps = read_dumps(tmp_path.iterdir())

    assert codes(gaps) == ["dump_unreadable"] * flight_recorder_pool.ALIKE
    assert "and 22 more dumps" in gaps[-1].reason


def test_numbers_that_do_not_fit_are_a_gap(tmp_path):
    """A size beyond 64 bits cannot be sent back, and costs its dump alone."""
    made = dump(1)
    made["entries"][-1]["input_sizes"] = [[2**90]]
    (tmp_path / "_dump_1").write_bytes(pickle.dumps(made, protocol=2))
    rings, gaps = read_dumps(tmp_path.iterdir())

    assert len(rings) + len(gaps) == 1


def test_children_are_gone_afterwards(folder, monkeypatch):
    """Both children end with the reading, also when its caller stops listening."""
    started = []
    start = flight_recorder_pool._started

    def kept(bounds):
        child = start(bounds)
        started.append(child.process)
        return child

    monkeypatch.setattr(flight_recorder_pool, "_started", kept)
    read_dumps(folder.iterdir(), replace(PoolLimits(), seconds=5.0))

    assert len(started) == flight_recorder_pool.CHILDREN
    assert all(process.returncode is not None for process in started)
