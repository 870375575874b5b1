"""Bundles with bad Flight Recorder dumps, diagnosed as users do: each is a gap in the report, none changes who is named."""

import json
import os
import pickle
from types import MappingProxyType

import pytest

from bot.diagnosis.diagnose import diagnose_bundle
from tests.support.common.recorder_dumps import MADE, Evil, dump

STEPS = "".join(f"2026-11-18 10:5{minute}:00 rank 0 step {minute} loss 3.2\n" for minute in range(9))


def as_json(rank, /, **other):
    """One good dump with parts of another sort."""
    return json.dumps(dump(rank) | other).encode()


def stamped(rank, ahead):
    """A dump with a clock so many seconds ahead; its operations ended at the same time for all ranks."""
    made = dump(rank)
    for entry in made["entries"]:
        entry["time_created_ns"] += int(ahead * 1e9)
        if entry["state"] == "completed":
            entry["time_discovered_completed_ns"] = MADE + entry["collective_seq_id"] * 10**9 + int(ahead * 1e9)
    return json.dumps(made).encode()


def diagnosed(known, folder, dumps, sizes=MappingProxyType({})):
    """Who is named, and the gaps of the dumps by code, of a bundle of four ranks of which rank 2 stopped."""
    (folder / "logs").mkdir()
    (folder / "flight_recorder").mkdir()
    (folder / "logs" / "rank-0.err").write_text(STEPS, "utf-8")
    (folder / "job.yaml").write_text(
        "id: j\nworld_size: 4\nstate: RUNNING\ncollected_at: '2026-11-18T12:00:00Z'\n", "utf-8"
    )
    (folder / "bundle.yaml").write_text("format: 1\nsources:\n- {source: logs, asked: all, got: 1 file}\n", "utf-8")
    for name, data in dumps.items():
        (folder / "flight_recorder" / name).write_bytes(data)
    for name, size in sizes.items():
        os.truncate(folder / "flight_recorder" / name, size)
    report = diagnose_bundle(known, folder, workers=1).report
    told = {gap.code: gap for gap in report.gaps if "flight" in gap.source or gap.source == "Flight Recorder dumps"}
    return [who.rank for who in report.diagnoses[0].suspects], told


GOOD = {f"dump_rank_{rank}": as_json(rank) for rank in range(4)}
BAD = {
    "half of one": ({"dump_rank_0": GOOD["dump_rank_0"][:300]}, {"dump_unreadable", "ranks_without_dump"}),
    "half of a pickle": (
        {"dump_rank_0": pickle.dumps(dump(0), protocol=2)[:300]},
        {"dump_refused", "ranks_without_dump"},
    ),
    "another version": ({"dump_rank_1": as_json(1, version="9.7")}, {"dump_version_unknown"}),
    "no version": ({"dump_rank_1": as_json(1, version=None)}, {"dump_version_unknown"}),
    "name 3, content 5": ({"dump_rank_3": as_json(3, rank=5)}, {"dump_rank_contradicted"}),
    "a rank below 0": ({"dump_rank_3": as_json(3, rank=-3)}, {"dump_rank_contradicted"}),
    "a rank beyond all numbers": ({"dump_rank_3": as_json(3, rank=10**18)}, {"dump_rank_contradicted"}),
    "a rank beyond the world": ({"dump_rank_77": as_json(1)}, {"dump_rank_contradicted", "dump_rank_unknown"}),
    "beyond the world, of groups of its own": (
        {"dump_rank_77": as_json(1, pg_config={"0": {"name": "0", "desc": "x", "ranks": "[77]"}})},
        {"ranks_unknown"},
    ),
    "two of one rank": ({"other_rank_1": GOOD["dump_rank_1"]}, {"dump_duplicate"}),
    "nothing in it": ({"dump_rank_0": as_json(0, entries=[], pg_status={})}, {"dump_empty"}),
    "parts of another form": (
        {"dump_rank_0": as_json(0, entries=None, pg_config=None, pg_status=[1])},
        {"dump_partial", "dump_empty"},
    ),
    "no end of brackets": ({"dump_rank_0": b'{"entries":' + b"[" * 100_000}, {"dump_unreadable", "ranks_without_dump"}),
    "clocks apart": (
        {f"dump_rank_{rank}": stamped(rank, 300.0 * (rank == 3)) for rank in range(4)},
        {"clocks_apart"},
    ),
}


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", BAD)
def test_a_bad_dump_is_a_gap(name, known, tmp_path):
    """The report names what is wrong with it, and still names the rank that stopped."""
    dumps, codes = BAD[name]
    ranks, told = diagnosed(known, tmp_path, GOOD | dumps)

    assert (ranks, set(told)) == ([2], codes)


def test_no_code_of_a_dump_runs(known, tmp_path):
    """A pickle that calls a function of the system is refused before it is loaded."""
    marker = tmp_path / "ran"
    ranks, told = diagnosed(
        known, tmp_path, GOOD | {"dump_rank_0": pickle.dumps({"entries": [Evil(str(marker))]}, protocol=4)}
    )

    assert (ranks, set(told), marker.exists()) == ([2], {"dump_refused", "ranks_without_dump"}, False)


def test_a_dump_of_two_gib_is_not_read(known, tmp_path):
    """A sparse file of that size costs a gap."""
    ranks, told = diagnosed(known, tmp_path, GOOD, sizes={"dump_rank_1": 2 << 30})

    assert (ranks, set(told)) == ([2], {"dump_too_large", "ranks_without_dump"})


def test_ranks_that_one_source_has_and_another_has_not(known, tmp_path):
    """A rank with a log but no dump is reported, and not named as the one that stopped."""
    ranks, told = diagnosed(known, tmp_path, {name: data for name, data in GOOD.items() if not name.endswith("1")})

    assert (ranks, told["ranks_without_dump"].got) == ([2], "3 of 4")
