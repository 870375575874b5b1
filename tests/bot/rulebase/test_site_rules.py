"""Rules that a site writes itself over series, stacks and collectives, from the YAML to the report."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bot.authoring.selftest import RuleTest, run
from bot.diagnosis.diagnose import diagnose_bundle
from bot.rulebase.loader import Knowledge, knowledge

START = 1_804_000_000

HEAD = """format: 1
id: {id}
title: What our site looks for
fault: {fault}
role: root_cause
status: experimental
severity: high
summary: "{summary}"
cause: ours
impact: ours
"""
TAIL = """remediation:
  - {action: look_at_logs, text: Look at it.}
references:
  - {url: "https://example.org/runbook", shows: what we do}
"""
SERIES = """match:
  budget:
    series: {metric: gpu_memory_share, above: $percent, steps: 20, at_end: true}
  slow:
    series: {metric: throughput, below: 0.8, of: mean, points: 3, after: 5}
params: {percent: 90}
when: {all: [budget, slow]}
"""
STACKS = """match:
  held:
    structure: {kind: stack_outlier, fields: {frame: 'lease_wait .*'}}
"""
COLLECTIVES = """match:
  silent:
    structure: {kind: collective_culprit, fields: {why: missing, group: 'data_parallel.*'}}
"""


def stamp(seconds: float) -> str:
    """A time as logs have it."""
    return f"{datetime.fromtimestamp(START + seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"


def job(folder: Path, *, world: int, seconds: float) -> None:
    """The job's own file: a run that is not over."""
    samples = {str(turn): stamp(seconds - 25 * (3 - turn)) for turn in (1, 2, 3)}
    told = {"id": "9", "world_size": world, "state": "RUNNING", "collected_at": stamp(seconds), "samples": samples}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "job.yaml").write_text(json.dumps(told))


def steps(folder: Path, count: int, *, slow_from: int = 10**9) -> None:
    """Lines of steps, ten seconds each."""
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    lines = [
        f"{stamp(10 * at)} step {at} loss: 2.5 tps: {9000 if at < slow_from else 6000}" for at in range(1, count + 1)
    ]
    (folder / "logs" / "rank-0.log").write_text("\n".join(lines) + "\n")


def memory(folder: Path, used: int) -> None:
    """Used and free memory of two GPUs, of 80 GB each."""
    (folder / "metrics").mkdir(parents=True, exist_ok=True)
    for name, value in (("FB_USED", used), ("FB_FREE", 80_000 - used)):
        rows = [
            {
                "metric": {"__name__": f"DCGM_FI_DEV_{name}", "Hostname": "node-a", "gpu": str(gpu)},
                "values": [[START + 10 * at, str(value)] for at in range(40)],
            }
            for gpu in (0, 1)
        ]
        answer = {"status": "success", "data": {"resultType": "matrix", "result": rows}}
        (folder / "metrics" / f"{name.lower()}.json").write_text(json.dumps(answer))


def full_and_slow(folder: Path) -> None:
    """Memory over the budget, and a rate that fell."""
    job(folder, world=1, seconds=400)
    steps(folder, 39, slow_from=30)
    memory(folder, 75_000)


def full(folder: Path) -> None:
    """Memory over the budget at the usual rate."""
    job(folder, world=1, seconds=400)
    steps(folder, 39)
    memory(folder, 75_000)


def frame(name: str, file: str, line: int) -> dict[str, Any]:
    """One frame as py-spy writes it."""
    return {"name": name, "filename": file, "short_filename": None, "line": line, "locals": None}


WAITS = [frame("all_reduce", "/env/torch/distributed/distributed_c10d.py", 2806), frame("fit", "/srv/fit.py", 40)]


def stacks(folder: Path, odd: str) -> None:
    """Rank 1 is in a function of ours, the others are in a collective, in three samples."""
    for turn in (1, 2, 3):
        (folder / "stacks" / str(turn)).mkdir(parents=True, exist_ok=True)
        for rank in range(4):
            frames = [frame(odd, "/srv/lease.py", 12), frame("fit", "/srv/fit.py", 31)] if rank == 1 else WAITS
            thread = {"pid": 50 + rank, "thread_id": 7, "thread_name": "MainThread", "active": False, "frames": frames}
            (folder / "stacks" / str(turn) / f"rank-{rank}.json").write_text(json.dumps([thread]))


def ring(folder: Path, group: str) -> None:
    """Rank 1 has not queued the reduction in which the other three wait."""
    (folder / "flight_recorder").mkdir(parents=True, exist_ok=True)
    for rank in range(4):
        last = 8 if rank == 1 else 9
        entries = [
            {
                "record_id": seq,
                "pg_id": 0,
                "process_group": ["0", group],
                "collective_seq_id": seq,
                "p2p_seq_id": 0,
                "op_id": seq,
                "profiling_name": "nccl:all_reduce",
                "time_created_ns": int((START + 10 * seq) * 1e9),
                "input_sizes": [[64]],
                "input_dtypes": ["Float"],
                "output_sizes": [[64]],
                "output_dtypes": ["Float"],
                "state": "completed" if seq < 9 else "started",
                "retired": seq < 9,
                "is_p2p": False,
                "timeout_ms": 1_800_000,
                "frames": [],
            }
            for seq in range(1, last + 1)
        ]
        dump = {
            "version": "2.10",
            "pg_config": {"0": {"name": "0", "desc": group, "ranks": "[0, 1, 2, 3]"}},
            "pg_status": {"0": {"last_enqueued_collective": last, "last_started_collective": last, "last_completed_collective": 8}},
            "entries": entries,
        }  # fmt: skip
        (folder / "flight_recorder" / f"rank_{rank}.json").write_text(json.dumps(dump))


def held(folder: Path, odd: str = "lease_wait") -> None:
    """A hang in which rank 1 is in a function of ours."""
    job(folder, world=4, seconds=700)
    steps(folder, 9)
    stacks(folder, odd)


def missing(folder: Path, group: str = "data_parallel_0") -> None:
    """A hang in which rank 1 never joined."""
    held(folder, "other")
    ring(folder, group)


CASES = {
    "our-memory-budget": ("throughput_drop", SERIES, "{who} is over {value}", full_and_slow, full),
    "our-lease-held": ("deadlock", STACKS, "Rank {rank} in {frame}", held, lambda folder: held(folder, "train_loop")),
    "our-group-waits": (
        "collective_desync",
        COLLECTIVES,
        "Rank {rank} left {group}",
        missing,
        lambda folder: missing(folder, "expert_0"),
    ),
}


WRONG = {
    "none": ("{metric: loss}", "a series test needs exactly one of change, above, below"),
    "two": ("{metric: loss, above: 1, below: 2}", "a series test needs exactly one of change, above, below"),
    "change": ("{metric: loss, change: brokn}", "no change 'brokn'"),
    "number": ("{metric: loss, change: broken, params: {abov: 5}}", "no number of this change 'abov'"),
    "points": (
        "{metric: loss, change: broken, points: 5}",
        "points, steps, seconds, of and at_end require above or below",
    ),
    "parameter": ("{metric: loss, above: $much}", "no parameter 'much' under params"),
    "params": ("{metric: loss, above: 1, params: {share: 5}}", "params requires change"),
    "text": ("{metric: loss, above: 1, of: median, points: many}", "points"),
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An overlay with three rules that are right, and some that are not."""
    folder = tmp_path_factory.mktemp("overlay") / "site"
    texts = {
        name: HEAD.format(id=name, fault=item[0], summary=item[2]) + item[1] + TAIL for name, item in CASES.items()
    }
    for name, (body, _) in WRONG.items():
        head = HEAD.format(id=f"wrong-{name}", fault="loss_spike", summary="ours")
        texts[f"wrong-{name}"] = head + f"match:\n  odd:\n    series: {body}\n" + TAIL
    for name, text in texts.items():
        (folder / "rules" / "ours" / name).mkdir(parents=True)
        (folder / "rules" / "ours" / name / "rule.yaml").write_text(text)
    (folder / "site.yaml").write_text("version: 1\n")
    return folder


@pytest.fixture(scope="module")
def known(site: Path) -> Knowledge:
    """The rule base with that overlay over it."""
    return knowledge(site=site)


@pytest.mark.parametrize("name", CASES)
def test_a_sites_own_rule_over_series_stacks_or_collectives(known: Knowledge, tmp_path: Path, name: str) -> None:
    """It speaks on the bundle that it should, by `rules test` and in the report, and not on its near miss."""
    *_, speaks, silent = CASES[name]
    matcher = known.matcher()
    for make, expected in ((speaks, True), (silent, False)):
        folder = tmp_path / str(expected)
        make(folder)
        assert run(known, matcher, RuleTest(name, folder, expected)).passed
        assert (name in [diagnosis.rule for diagnosis in diagnose_bundle(known, folder).report.diagnoses]) == expected


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_series_is_reported_where_it_stands(known: Knowledge, name: str) -> None:
    """With the rule's file and line; the rule is left out, the others work on."""
    told = [fault.line for fault in known.faults if f"wrong-{name}/" in fault.file and WRONG[name][1] in fault.message]
    assert told[:1] == [13]
    assert f"wrong-{name}" not in [rule.id for rule in known.rulebook.rules]
