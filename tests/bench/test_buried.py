"""How the benchmark's cases are buried: what decides a job's shape, and that its texts hold together."""

from __future__ import annotations

import random
import re
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bot.authoring.cases import LabelledCase
from kb.parsers.logs.progress.formats import read_line
from kb.parsers.logs.timestamps import find_time
from tests.support.paths import ROOT

sys.path.insert(0, str(ROOT / "bench"))  # scripts beside each other, no package
import buried
import buried_text

NOON = datetime(2025, 4, 9, 12, tzinfo=UTC).timestamp()
OOM = b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.\n"
CASE = LabelledCase("made", "cuda_oom", (), ("out of memory",), ())


def job(case: LabelledCase = CASE, *files: buried.Own, **options: object) -> buried.Burial:
    """A burial of these files; of an out-of-memory line where none is given."""
    own = files or (buried.classify("train.log", OOM),)
    return buried.plan(case, "Megatron-LM", own, ranks=8, seed=3, **options)


def iterations(text: bytes) -> list[int]:
    """The steps of a text's iteration lines."""
    return [point.step for line in text.splitlines() if (point := read_line(line)) and point.step is not None]


def written(burial: buried.Burial, folder: Path) -> dict[str, bytes]:
    """The logs of a small job."""
    buried.write(burial, folder, 160_000, 8)
    return {path.name: path.read_bytes() for path in (folder / "logs").iterdir()}


@pytest.mark.parametrize(
    ("name", "part", "ranks"),
    [
        ("rank-25.log", "rank", (25,)),
        ("ranks-1-2-6.log", "ranks", (1, 2, 6)),
        ("train.log", "rank", ()),
        ("slurm-4711.out", "job", ()),
        ("dmesg-node-3.log", "kernel", ()),
        ("nvidia-smi.log", "dump", ()),
        ("pyspy-six.log", "dump", ()),
    ],
)
def test_a_file_is_reported_by_its_name(name: str, part: str, ranks: tuple[int, ...]) -> None:
    """A file's name shows whether it is of a rank, several ranks, the job or the kernel, or an unchanged dump."""
    assert buried.classify(name, b"") == buried.Own(name, part, b"", ranks)


def test_the_rank_is_the_one_that_the_case_names() -> None:
    """A file's name goes before the case's ranks, those before the lines; a rank that the job lacks names none."""
    text = b"[rank2]: Traceback (most recent call last):\n"
    assert job(CASE, buried.classify("rank-5.log", text)).rank == 5
    assert job(replace(CASE, ranks=(6,)), buried.classify("train.log", text)).rank == 6
    assert job(replace(CASE, ranks=(784,)), buried.classify("train.log", text)).rank == 2
    assert job(CASE, buried.classify("train.log", b"[default3]: gone\n")).rank == 3


@pytest.mark.parametrize(
    ("label", "text", "stage"),
    [
        ("loss_spike", b" iteration     7000/  159576 | lm loss: 6.4E+00 |\n", "own"),
        ("cuda_init", b"RuntimeError: invalid device ordinal\n", "meeting"),
        ("nccl_bootstrap", b"NCCL WARN Bootstrap : no socket interface found\n", "joining"),
        ("code_bug", b"KeyError: 'labels'\n", "first_step"),
        ("cuda_oom", OOM, "running"),
    ],
)
def test_how_far_a_job_got(label: str, text: bytes, stage: str) -> None:
    """A case's own iterations decide first, then the nature of its fault."""
    assert buried.stage_of(label, text) == stage


def test_only_a_run_that_ended_is_torn_down() -> None:
    """A spike, a hang with stack samples and an unraised NaN continue; a time limit stops the run, others crash it."""
    stack = buried.classify("pyspy-1.log", b"")
    assert buried.ending_of("loss_spike", b"", ()) == "none"
    assert buried.ending_of("deadlock", b"", (stack,)) == "none"
    assert buried.ending_of("loss_not_finite", b"loss: nan\n", ()) == "none"
    assert buried.ending_of("loss_not_finite", b"FloatingPointError: loss is nan\n", ()) == "crash"
    assert buried.ending_of("time_limit", b"", ()) == "stopped"
    assert buried.ending_of("cuda_oom", b"", ()) == "crash"


def test_the_span_of_a_text() -> None:
    """First and last stamp count; a stamp weeks before the last one is no clock of this run."""
    text = b"[2025-04-09 12:00:00] a\n[2025-04-09 12:30:00] b\n"
    assert buried.span(text, random.Random(1)) == (NOON, NOON + 1800)
    assert buried.span(b"[2024-01-01 00:00:00] built\n" + text, random.Random(1)) == (NOON, NOON + 1800)
    first, last = buried.span(b"no clock\n", random.Random(1))
    assert first == last


def test_slots_are_filled() -> None:
    """Time, step, rank and host take their values from the run."""
    template = buried_text.Template.of(f"{buried_text.at(60)} \x01n2\x02 {buried_text.RANK} {buried_text.HOST}")
    assert template.fill(NOON, 40, 11) == b"2025-04-09 12:01:00 42 11 gpu-a001"


@pytest.mark.quick(2)
@pytest.mark.parametrize("voice", buried_text.VOICES, ids=lambda voice: voice.name)
def test_iterations_stand_only_where_asked(voice: buried_text.Voice, monkeypatch: pytest.MonkeyPatch) -> None:
    """A framework's iteration line is one that the product reads, and quiet ranks have none in either phase."""
    monkeypatch.setattr(buried_text, "BLOCK_BYTES", 60_000)
    make = buried_text.block.__wrapped__
    steps = iterations(make(voice, "run", iterations=True, variant=0).fill(NOON, 1))
    assert len(steps) > 50
    assert steps == sorted(steps)
    for phase in ("run", "prepare"):
        assert not iterations(make(voice, phase, iterations=False, variant=0).fill(NOON, 1))


@pytest.mark.slow  # test_iterations_stand_only_where_asked
def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    """Two writings of one job are equal; another seed gives another job."""
    first = written(job(), tmp_path / "a")
    assert first == written(job(), tmp_path / "b")
    other = buried.plan(CASE, "Megatron-LM", job().files, ranks=8, seed=4)
    assert first != written(other, tmp_path / "c")


def test_the_case_is_the_end_of_its_ranks_log_and_nothing_before_it_is_later(tmp_path: Path) -> None:
    """The case's text is complete at the end of one log; healthy text is earlier, teardown later than its timestamp."""
    text = b"[2025-04-09 12:00:00] ERROR worker: " + OOM
    logs = written(job(CASE, buried.classify("rank-3.log", text)), tmp_path)
    assert logs["rank-3.log"].endswith(text)
    healthy = logs["rank-3.log"].removesuffix(text).splitlines()
    assert max(when for line in healthy if (when := find_time(line, 2025)) is not None) <= NOON
    assert not [name for name, log in logs.items() if name != "rank-3.log" and b"out of memory. Tried" in log]
    assert len([name for name in logs if re.fullmatch(r"rank-\d\.log", name)]) == 8


def test_a_series_of_the_case_is_the_only_one(tmp_path: Path) -> None:
    """Where the case has iteration lines, no other line of the job is one."""
    own = b" iteration  7000/ 159576 | lm loss: 6.4E+00 |\n iteration  7010/ 159576 | lm loss: 1.1E+01 |\n"
    logs = written(job(replace(CASE, label="loss_spike"), buried.classify("train.log", own)), tmp_path)
    assert [step for log in logs.values() for step in iterations(log)] == [7000, 7010]


def test_one_rank_trains_until_the_failure_and_nobody_says_more_than_left_in(tmp_path: Path) -> None:
    """A crash in training leaves one rank's iterations; a part that is left out is nowhere."""
    logs = written(job(), tmp_path / "whole")
    assert len([name for name, log in logs.items() if b"lm loss" in log]) == 1
    burial = job(without=frozenset(buried_text.PARTS))
    logs = written(burial, tmp_path / "bare")
    assert not [name for name, log in logs.items() if b"Watchdog caught" in log or b"requests.exceptions" in log]


def test_every_version_of_torch_tears_down_in_its_own_words() -> None:
    """The ranks' last words differ by version, end where the state says, and name no rank but their own."""
    for torch in buried_text.TORCHES:
        end = buried_text.Teardown(64, "training", torch, watchdog=True, srun=True)
        said = b"".join(end.of_rank(random.Random(rank), rank).fill(NOON, rank=rank) for rank in range(64))
        assert (b"[rank" in said) == (torch in {"2.3", "2.6"})
        assert b"Watchdog caught collective operation timeout" in said
        for rank in range(64):
            own = end.of_rank(random.Random(rank), rank).fill(NOON).decode()
            assert {int(item) for item in re.findall(r"\[[Rr]ank ?(\d+)\]", own)} <= {rank}
    stopped = buried_text.Teardown(8, "stopped", "2.6", watchdog=True, srun=True)
    assert {b"SIGTERM" in stopped.of_rank(random.Random(n), 0).fill(NOON) for n in range(40)} == {True, False}


def test_torchruns_block_names_a_rank_that_is_not_at_fault() -> None:
    """The launcher's root cause is the first to be seen, here a wrong one; srun's lines have the right one among others."""
    end = buried_text.Teardown(64, "training", "2.1", watchdog=True, srun=False)
    block = buried_text.job_end(random.Random(1), end, 12, [40, 41]).fill(NOON).decode()
    assert re.search(r"Root Cause.*\n\[0\]:\n.*\n.*\n  rank      : 40 \(local_rank: 0\)", block)
    assert "rank      : 12 " not in block
    lines = buried_text.job_end(random.Random(1), replace(end, srun=True), 12, [40]).fill(NOON).decode()
    assert "task 12: Exited with exit code 1" in lines
