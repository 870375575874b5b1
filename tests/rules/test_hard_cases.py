"""Roles on the hard cases: the first cause, though something else is louder, nearer to the end, or named by a launcher."""

from __future__ import annotations

import pytest

from bot.authoring.selftest import evidence_of
from bot.rulebase.loader import knowledge
from kb.diagnosis.engine import diagnose
from kb.report import Report
from kb.scanning.matcher import Matcher

KNOWN = knowledge()


@pytest.fixture(scope="module")
def engine() -> Matcher:
    """The whole base's patterns, compiled once."""
    return KNOWN.matcher()


def diagnosed(engine: Matcher, **streams: str) -> Report:
    """The report on streams by name: `rank_3="…"` is rank-3.log, `node_a_dmesg` is node-a-dmesg.log."""
    texts = {f"{name.replace('_', '-')}.log": text.encode() for name, text in streams.items()}
    return diagnose(evidence_of(KNOWN, engine, texts), KNOWN.rulebook)


def first(report: Report) -> tuple[str, str]:
    """Verdict and first fault."""
    return report.verdict, report.diagnoses[0].fault if report.diagnoses else ""


STEPS = "".join(
    f"2025-04-02 11:{at:02d}:00,101 - INFO - step {at * 10} | loss: {3 - at / 50:.4f} | lr: 3.0e-4 | grad_norm: 0.9\n"
    for at in range(20)
)
ABORT = (
    "[rank{rank}]:[E402 11:30:07.551120331 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=4411, OpType=ALLREDUCE, NumelIn=1048576, NumelOut=1048576, Timeout(ms)=600000) ran for "
    "600021 milliseconds before timing out.\n"
    "[rank{rank}]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2060, remote process exited "
    "or there was a network error, NCCL version 2.21.5\n"
)
BLOCK = (
    "E0402 11:20:31.118000 4410 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: {code}) "
    "local_rank: {rank} (pid: 45{rank}1) of binary: /usr/bin/python3\n"
    "============================================================\n"
    "pretrain.py FAILED\n"
    "------------------------------------------------------------\n"
    "Failures:\n  <NO_OTHER_FAILURES>\n"
    "------------------------------------------------------------\n"
    "Root Cause (first observed failure):\n"
    "[0]:\n  time      : 2025-04-02_11:20:30\n  host      : node-b\n  rank      : {rank} (local_rank: {rank})\n"
    "  exitcode  : {code} (pid: 45{rank}1)\n  error_file: <N/A>\n"
    "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html\n"
    "============================================================\n"
)


def raised(message: str, frame: str = "pretrain.py", rank: int = 0) -> str:
    """A traceback as a rank prints it."""
    mark = f"[rank{rank}]: "
    return (
        f"{mark}Traceback (most recent call last):\n"
        f'{mark}  File "/opt/llm/{frame}", line 212, in train_step\n{mark}    out = self.step(batch)\n{mark}{message}\n'
    )


def test_the_launchers_root_cause_may_be_a_victim(engine: Matcher) -> None:
    """Its block names the first process that it saw end: rank 6, aborted by its watchdog; the key error is rank 2's."""
    report = diagnosed(
        engine,
        rank_2=STEPS + raised("KeyError: 'position_ids'", rank=2),
        rank_6=ABORT.format(rank=6),
        launcher=BLOCK.format(rank=6, code=-6),
    )
    assert first(report) == ("fault", "code_bug")
    assert report.diagnoses[0].suspects[0].rank == 2


def test_one_ranks_python_error_stands_before_63_peers_nccl_errors(engine: Matcher) -> None:
    """The many are folded under the one, with who they are."""
    peers = {f"rank_{rank}": ABORT.format(rank=rank) for rank in range(64) if rank != 17}
    report = diagnosed(engine, rank_17=STEPS + raised("ZeroDivisionError: division by zero", rank=17), **peers)
    assert first(report) == ("fault", "code_bug")
    assert report.diagnoses[0].suspects[0].rank == 17
    assert "0-16,18-63" in {explained.ranks for explained in report.diagnoses[0].explains}


def test_a_full_disk_stands_before_the_checkpoint_that_it_spoiled(engine: Matcher) -> None:
    """What is to be fixed is the disk."""
    text = (
        STEPS
        + "OSError: [Errno 28] No space left on device\n\nDuring handling of the above exception, another exception occurred:\n\n"
        + raised("RuntimeError: [enforce fail at inline_container.cc:626] . unexpected pos 704 vs 598", "checkpoint.py")
    )
    assert first(diagnosed(engine, rank_0=text)) == ("fault", "disk_full")


def test_an_error_page_stands_before_the_decoder_that_choked_on_it(engine: Matcher) -> None:
    """The hub answered 502; that JSON could not be read from it is the consequence."""
    text = (
        "huggingface_hub.utils._errors.HfHubHTTPError: 502 Server Error: Bad Gateway for url: "
        "https://huggingface.co/api/datasets/acme/corpus\n\n"
        "During handling of the above exception, another exception occurred:\n\n"
        + raised("json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)", "data.py")
    )
    assert first(diagnosed(engine, rank_0=text)) == ("fault", "external_network")


@pytest.mark.parametrize(
    ("reason", "fault"),
    [
        (
            "slurmstepd: error: *** JOB 7712 ON node-a CANCELLED AT 2025-04-02T11:20:30 DUE TO PREEMPTION ***\n",
            "preempted",
        ),
        (
            "slurmstepd: error: *** JOB 7712 ON node-a CANCELLED AT 2025-04-02T11:20:30 DUE TO TIME LIMIT ***\n",
            "time_limit",
        ),
    ],
)
def test_sigterm_with_a_reason_is_that_reason(engine: Matcher, reason: str, fault: str) -> None:
    """The signal itself proves nothing; its sender may."""
    agent = "torch.distributed.elastic.multiprocessing.api.SignalException: Process 4410 got signal: 15\n"
    assert first(diagnosed(engine, train=STEPS + reason + agent)) == ("fault", fault)


def test_sigterm_without_a_reason_is_not_called_likely(engine: Matcher) -> None:
    """The run was stopped by an unknown sender."""
    agent = (
        "W0402 11:20:30.118000 4410 torch/distributed/elastic/agent/server/api.py:704] Received Signals.SIGTERM death "
        "signal, shutting down workers\n"
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 4410 got signal: 15\n"
    )
    report = diagnosed(engine, train=STEPS + agent)
    assert report.verdict in ("fault", "no_match")
    assert all(diagnosis.band != "likely" for diagnosis in report.diagnoses)


def test_a_rank_with_another_sequence_number_is_the_one(engine: Matcher) -> None:
    """All others wait in collective 4411; rank 3 never came beyond 4410."""
    waits = (
        "[rank{rank}]:[E402 11:30:07.551120331 ProcessGroupNCCL.cpp:1784] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] "
        "Exception (either an error or timeout) detected by watchdog at work: {seq}, last enqueued NCCL work: {seq}, "
        "last completed NCCL work: 4410.\n"
    )
    ranks = {
        f"rank_{rank}": ABORT.format(rank=rank) + waits.format(rank=rank, seq=4411) for rank in range(8) if rank != 3
    }
    report = diagnosed(engine, rank_3=STEPS + waits.format(rank=3, seq=4410), **ranks)
    assert report.verdict == "fault"
    assert report.diagnoses[0].suspects[0].rank == 3


def test_a_stuck_watchdog_is_a_symptom(engine: Matcher) -> None:
    """The heartbeat monitor aborts a process whose watchdog cannot move; it does not say why."""
    text = STEPS + (
        "[rank5]:[E402 11:40:07.551120331 ProcessGroupNCCL.cpp:1375] [PG ID 0 PG GUID 0(default_pg) Rank 5] First PG on "
        "this rank that detected no heartbeat of its watchdog.\n"
        "[rank5]:[F402 11:40:07.551120332 ProcessGroupNCCL.cpp:1413] [PG ID 0 PG GUID 0(default_pg) Rank 5] [PG ID 0 PG "
        "GUID 0(default_pg) Rank 5] Terminating the process after attempting to dump debug info, due to ProcessGroupNCCL "
        "watchdog hang.\n"
    )
    report = diagnosed(engine, rank_5=text)
    assert report.verdict == "fault"
    assert all(diagnosis.band != "likely" for diagnosis in report.diagnoses)


def test_the_kernel_log_names_what_the_jobs_log_cannot(engine: Matcher) -> None:
    """The program saw an illegal access and a lost peer; the kernel of node-b saw its GPU leave the bus."""
    report = diagnosed(
        engine,
        rank_1=STEPS + raised("RuntimeError: CUDA error: unspecified launch failure", rank=1),
        rank_2=ABORT.format(rank=2),
        node_b_dmesg=(
            "[Wed Apr  2 11:20:29 2025] NVRM: GPU at PCI:0000:9d:00: GPU-1f0c\n"
            "[Wed Apr  2 11:20:29 2025] NVRM: Xid (PCI:0000:9d:00): 79, pid=4511, name=python, GPU has fallen off the bus.\n"
        ),
    )
    assert first(report) == ("fault", "gpu_fell_off_bus")
    assert report.diagnoses[0].suspects[0].node == "node-b"


def test_memory_errors_of_the_attempt_before_stand_before_the_out_of_memory(engine: Matcher) -> None:
    """Tests of the rule out-of-memory-on-suspect-gpu have the whole of it; here: without history it is plain."""
    report = diagnosed(
        engine, node_a=STEPS + raised("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
    )
    assert first(report) == ("fault", "cuda_oom")


def test_the_only_rank_that_prints_its_number_is_not_the_one_that_was_killed(engine: Matcher) -> None:
    """DeepSpeed logs with rank 0 only; the launcher of worker-2 reports the kill, and no rank there is known."""
    step = "node-1: [2026-11-03 10:00:10,000] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=0, lr=[1e-05], mom=[(0.9, 0.95)]\n"
    end = (
        "node-2: [2026-11-03 10:00:24,000] [INFO] [launch.py:319:sigkill_handler] Killing subprocess 9876\n"
        "node-2: [2026-11-03 10:00:24,100] [ERROR] [launch.py:325:sigkill_handler] ['/usr/bin/python', '-u', 'fit.py',"
        " '--local_rank=1'] exits with return code = -9\n"
    )
    [suspect] = diagnosed(engine, launcher=step + end).diagnoses[0].suspects
    assert (suspect.kind, suspect.rank, suspect.node) == ("node", None, "node-2")


@pytest.mark.parametrize("alone", [True, False])
def test_the_task_that_the_launcher_did_not_stop_is_the_rank(engine: Matcher, alone: bool) -> None:
    """The oom event names a node; of its tasks, one ran out of memory and the others were stopped for it."""
    lines = "".join(f"{rank}: step {step} loss 2.{step}\n" for step in range(1, 6) for rank in range(16))
    text = (
        "slurmstepd: error: Detected 1 oom_kill event in StepId=991.0. Some of the step tasks have been OOM Killed.\n"
        f"srun: error: node-b: task{'' if alone else 's'} 9{'' if alone else ',11'}: Out Of Memory\n"
        "srun: Terminating StepId=991.0\nsrun: error: node-a: tasks 0-7: Terminated\n"
        "srun: error: node-b: tasks 8,10,12-15: Terminated\n"
    )
    leading = diagnosed(engine, slurm=lines + text).diagnoses[0]
    assert leading.fault == "host_oom"
    assert (leading.suspects[0].rank, leading.suspects[0].node) == (9 if alone else None, "node-b")


def test_that_a_rank_logs_a_save_accuses_nobody(engine: Matcher) -> None:
    """Only rank 0 logs; the rank whose collective timed out in the save waits, for whom is unknown."""
    save = "[rank0]: 2025-04-02 11:20:02,123 - root - INFO - Saving the checkpoint (or staging if async is enabled).\n"
    steps = "".join(f"[rank0]: {line}\n" for line in STEPS.splitlines())
    leading = diagnosed(engine, torchrun=steps + save + ABORT.format(rank=5)).diagnoses[0]
    assert leading.fault == "checkpoint_save"
    assert 0 not in {suspect.rank for suspect in leading.suspects}


def test_a_call_that_was_refused_is_no_wait(engine: Matcher) -> None:
    """nccl-tests name the node that had the error; nothing in the line waits for a peer."""
    report = diagnosed(
        engine,
        test="nid006352: Test NCCL failure common.cu:958 'invalid usage (run with NCCL_DEBUG=WARN for details)'\n",
    )
    assert [item.why for item in report.diagnoses[0].suspects if "waiting" in item.why] == []


def test_steps_after_a_loss_that_was_bad_from_the_start_are_not_denied(engine: Matcher) -> None:
    """The last line that states it ends the log; the first one stands before all steps."""
    steps = "".join(f"step {at:05d}/00050 ({2 * at}.00%) | loss: nan | lrm: 1.00 | dt: 8.1ms\n" for at in range(50))
    report = diagnosed(engine, run="Step 00000 | Validation bpb: nan\n" + steps + "wandb:      train/loss nan\n")
    assert report.diagnoses[0].fault == "loss_not_finite"
    assert "no step was logged after it" not in report.diagnoses[0].reasons


def test_a_crash_that_a_launcher_reports_late_is_not_in_the_teardown(engine: Matcher) -> None:
    """It stopped the other ranks first, in a run without a step: what the process did is unknown."""
    text = (
        "W0402 11:20:31.001000 4410 torch/distributed/elastic/multiprocessing/api.py:900] Sending process 4512 closing signal SIGTERM\n"
        "E0402 11:20:31.118000 4410 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -11) local_rank: 0 (pid: 4511) of binary: /usr/bin/python3\n"
    )
    leading = diagnosed(engine, launcher=text).diagnoses[0]
    assert (leading.fault, leading.stage) == ("segfault", None)
