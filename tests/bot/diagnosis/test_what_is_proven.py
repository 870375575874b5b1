"""What an answer may claim of a run that had trouble and went on, ended, or simply stops, with the rule base that ships."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import pytest

from bot.diagnosis.diagnose import diagnose_paths
from bot.render.decisions import decided
from bot.rulebase.loader import Knowledge
from kb.report import Report

START = ("2026-10-07 08:00:01 INFO launch: run mixer-3b, 8 processes", "2026-10-07 08:00:09 INFO data: 4 shards opened")
END = (
    "2026-10-07 09:10:00 INFO train: final model written to out/last",
    "2026-10-07 09:10:01 INFO train: training completed",
)


def steps(first: int, last: int, hour: int = 8) -> list[str]:
    """Lines of every tenth step, ten seconds apart, of 400 planned ones."""
    return [
        f"2026-10-07 {hour:02d}:{10 + step // 60:02d}:{step % 60:02d} INFO train: step {step}/400 loss {2.4 - step / 1000:.3f} lr 2.0e-04"
        for step in range(first, last + 1, 10)
    ]


def diagnosed(known: Knowledge, folder: Path, logs: Sequence[Sequence[str]]) -> Report:
    """The report on logs, one a rank."""
    for rank, lines in enumerate(logs):
        (folder / f"rank-{rank}.log").write_text("\n".join(lines) + "\n")
    return diagnose_paths(known, [folder], workers=1).report


# helpers

HELPERS = [
    "[monitor] tensorboard exited with code -9, restarted",
    "[watch] exporter killed by signal 9",
    "data server (pid 771) was killed by signal 9",
    "./start.sh: line 12: 20931 Killed                  node_exporter --web.listen-address :9100",
    "WARNING sidecar exited with exit code 137",
    "worker 3 exited with code -9, restarted",
    "[82345.1] Out of memory: Killed process 4411 (tensorboard) total-vm:1024kB, anon-rss:500kB, file-rss:0kB",
]


@pytest.mark.parametrize("line", HELPERS)
def test_the_end_of_a_helper_is_no_failure_of_a_run_that_completed(known, tmp_path, line) -> None:
    """Wherever it stands: what ran beside the training leaves its result alone."""
    report = diagnosed(known, tmp_path, [[*START, *steps(10, 400), *END], [*START, line]])
    assert (report.verdict, report.phase) == ("no_fault", "completed")


@pytest.mark.parametrize("line", HELPERS)
def test_a_log_that_stops_at_the_end_of_a_helper_proves_no_completion(known, tmp_path, line) -> None:
    """Nothing says that the run came to its end."""
    report = diagnosed(known, tmp_path, [[*START, *steps(10, 200), line]])
    assert report.verdict != "no_fault"
    assert report.phase != "completed"


def test_a_killed_training_process_is_no_helper(known, tmp_path) -> None:
    """Its command names a helper's folder only."""
    killed = "./start.sh: line 12: 20931 Killed                  python train.py --tensorboard-dir out/tb"
    report = diagnosed(known, tmp_path, [[*START, *steps(10, 400), *END], [*START, killed]])
    assert (report.verdict, report.diagnoses[0].fault) == ("fault", "killed")


def test_source_code_that_a_run_prints_is_no_last_word(known, tmp_path) -> None:
    """A `raise` without an exception is text, such as a sample."""
    sample = ("sample 4:", "    try:", "        raise RuntimeError(f'bad {path}') from error")
    report = diagnosed(known, tmp_path, [[*START, *steps(10, 400), *END], [*START, *sample]])
    assert report.verdict == "no_fault"


# plot and tracking servers

PRINTED = (
    "Exception in user code:",
    "-" * 60,
    "Traceback (most recent call last):",
    '  File "/opt/env/lib/python3.10/site-packages/urllib3/connection.py", line 198, in _new_conn',
    "    sock = connection.create_connection(",
    "ConnectionRefusedError: [Errno 111] Connection refused",
    "",
    "During handling of the above exception, another exception occurred:",
    "",
    "Traceback (most recent call last):",
    '  File "/opt/env/lib/python3.10/site-packages/visdom/__init__.py", line 711, in _send',
    "    return self._handle_post(",
    "requests.exceptions.ConnectionError: HTTPConnectionPool(host='plots', port=8097): Max retries exceeded with url: /events",
)
IN_THREAD = (
    "Exception in thread Thread-4 (log_loop):",
    "Traceback (most recent call last):",
    '  File "/usr/lib/python3.11/threading.py", line 1045, in _bootstrap_inner',
    "    self.run()",
    '  File "/opt/env/lib/python3.11/site-packages/mlflow/utils/async_logging/async_logging_queue.py", line 190, in _log',
    "    raise MlflowException(text)",
    "mlflow.exceptions.MlflowException: API request to http://track:5000/api/2.0/mlflow/runs/log-batch failed with exception Max retries exceeded",
)
TRACKERS = [
    PRINTED,
    IN_THREAD,
    ("wandb: ERROR Error while calling W&B API: internal server error (<Response [500]>)",),
    ("2026-10-07 08:30:00 ERROR mlflow.tracking: could not log metrics: [Errno 111] Connection refused",),
    ("2026-10-07 08:30:00 COMET ERROR: failed to send metrics, connection timed out",),
    ("2026-10-07 08:30:00 ERROR aim.ext.transport: failed to connect to remote host: Connection refused",),
]


@pytest.mark.parametrize("lines", TRACKERS)
@pytest.mark.parametrize("after", [(), steps(210, 220), END], ids=["last", "steps", "end"])
def test_a_client_of_a_tracking_server_that_reports_its_own_error_fails_no_run(known, tmp_path, lines, after) -> None:
    """It handled the error; whether the run completed is another question."""
    report = diagnosed(known, tmp_path, [[*START, *steps(10, 400 if after is END else 200), *lines, *after]])
    assert report.verdict == ("no_fault" if after is END else "insufficient_evidence")


def test_a_client_whose_error_reaches_the_program_ends_it(known, tmp_path) -> None:
    """Then the traceback starts in the program."""
    frames = ('  File "/app/train.py", line 9, in <module>', "    vis.line(y, x)")
    lines = [*PRINTED[:9], PRINTED[9], *frames, *PRINTED[10:]]
    report = diagnosed(known, tmp_path, [[*START, *steps(10, 200), *lines]])
    assert (report.verdict, report.diagnoses[0].fault) == ("fault", "external_network")


def test_a_server_that_refuses_the_account_is_named(known, tmp_path) -> None:
    """The client's thread reports it, and the run shuts down."""
    lines = (*IN_THREAD[:-1], "wandb.errors.CommError: permission denied (Error 403: Forbidden), connection closed")
    frames = [
        line.replace("mlflow/utils/async_logging/async_logging_queue", "wandb/sdk/internal/sender") for line in lines
    ]
    report = diagnosed(known, tmp_path, [[*START, *frames]])
    assert (report.verdict, report.diagnoses[0].fault) == ("fault", "access_denied")


# counts of nothing


@pytest.mark.parametrize(
    "line",
    [
        "slurmstepd: info: Detected 0 oom_kill events in StepId=55102.batch.",
        "pods: Running 8, OOMKilled: 0, Evicted: 0",
        "sweep of the cluster: 0 nodes failed",
        "(raylet) node_manager.cc:3065: 0 Workers (tasks / actors) killed due to memory pressure (OOM), 1 Workers crashed",
    ],
)
def test_none_is_no_failure(known, tmp_path, line) -> None:
    """A count of 0 reports that nothing happened."""
    assert diagnosed(known, tmp_path, [[*START, *steps(10, 200), line]]).verdict == "insufficient_evidence"


# attempts in one log

PREEMPTED = "slurmstepd: error: *** JOB 4471 ON node-3 CANCELLED AT 2026-10-07T08:20:00 DUE TO PREEMPTION ***"
RESUMED = "2026-10-07 09:00:00 INFO train: resuming from checkpoint out/step-200"


@pytest.mark.parametrize("again", [(*START, RESUMED), (RESUMED,), START], ids=["all", "resumed", "start"])
def test_an_attempt_that_makes_a_step_after_another_was_preempted_is_not_preempted(known, tmp_path, again) -> None:
    """What ended the first attempt is behind the run; nothing shows yet how it ends."""
    report = diagnosed(known, tmp_path, [[*START, *steps(10, 200), PREEMPTED, *again, *steps(210, 220, hour=9)]])
    assert report.verdict == "insufficient_evidence"
    ended = diagnosed(known, tmp_path, [[*START, *steps(10, 200), PREEMPTED, *again, *steps(210, 400, hour=9), *END]])
    assert (ended.verdict, ended.phase) == ("no_fault", "completed")


def test_a_bar_at_zero_is_no_step_of_another_attempt(known, tmp_path) -> None:
    """The launcher starts again after a crash, and has nothing to do."""
    crash = (
        "Traceback (most recent call last):",
        '  File "/app/train.py", line 9, in <module>',
        "    fit()",
        "KeyError: 'mask'",
    )
    logs = [*START, *steps(10, 200), *crash, *START, "0it [00:00, ?it/s]", "nothing launched"]
    assert diagnosed(known, tmp_path, [logs]).diagnoses[0].fault == "code_bug"


def test_the_last_attempt_counts(known, tmp_path) -> None:
    """A second preemption is the last word of the log."""
    logs = [*START, *steps(10, 200), PREEMPTED, *START, RESUMED, *steps(210, 300, hour=9), PREEMPTED]
    assert diagnosed(known, tmp_path, [logs]).diagnoses[0].fault == "preempted"


CRASH = [
    "[rank1]: Fatal Python error: Segmentation fault",
    "",
    "[rank1]: Current thread 0x00007f1200000000 (most recent call first):",
    '[rank1]:   File "/src/mixer/kernels.py", line 88 in fused',
]
LOST = "[rank0]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.3.0.8]:4711"


def test_a_crash_leads_where_the_next_attempt_makes_hardly_a_step_and_only_loses_a_peer(known, tmp_path) -> None:
    """The second attempt says nothing of its cause: that of the first is the likeliest."""
    logs = [*START, *steps(10, 200), *CRASH, *START, RESUMED, *steps(210, 210, hour=9), LOST]
    assert diagnosed(known, tmp_path, [logs]).diagnoses[0].fault == "segfault"


@pytest.mark.parametrize(
    ("ended", "last"), [(CRASH, 300), ([PREEMPTED], 210)], ids=["worked-on-for-long", "cured-by-a-repeat"]
)
def test_what_ended_an_attempt_stays_behind(known, tmp_path, ended, last) -> None:
    """Where the next attempt worked for long, or where a repeat cures it, it is no cause of the next end."""
    logs = [*START, *steps(10, 200), *ended, *START, RESUMED, *steps(210, last, hour=9), LOST]
    assert diagnosed(known, tmp_path, [logs]).diagnoses[0].fault == "peer_failure"


NOTICE = "2026-10-07 08:13:21 WARNING node: reclaim notice: this machine goes back to its owner in 30 s"
KILLED = "2026-10-07 {} ERROR launcher: rank 0 on node-3 (pid 881) was ended by signal 9 after 220.1s"


@pytest.mark.parametrize(("end", "fault"), [("08:13:52", "preempted"), ("09:40:00", "killed")])
def test_a_process_that_works_on_after_its_notice_was_reclaimed_if_it_is_killed_soon(
    known, tmp_path, end, fault
) -> None:
    """Steps between the notice and the end of the machine do not show that the run survived it."""
    last = steps(210, 240) if fault == "preempted" else [*steps(210, 240), *steps(250, 400, hour=9)]
    report = diagnosed(known, tmp_path, [[*START, *steps(10, 200), NOTICE, *last, KILLED.format(end)]])
    assert report.diagnoses[0].fault == fault


MPI_ABORTED = [
    "MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD\nwith errorcode 21.",
    "Abort(21) on node 3 (rank 3 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 21) - process 3",
]
UNREAD = "[n4:5689] [[314,0],0] ORTE_ERROR_LOG: Data unpack would read past end of buffer in file ../orte/util/show_help.c at line 501"


@pytest.mark.parametrize("end", [*MPI_ABORTED, UNREAD], ids=["open-mpi", "mpich", "unread"])
def test_what_a_rank_says_before_it_aborts_its_mpi_job_is_quoted(known, tmp_path, end) -> None:
    """No rule knows its reason; mpirun names its rank, unless it cannot even print its own message."""
    said = "the counts of shard 7 differ from its manifest by 2"
    (tmp_path / "mpirun.log").write_text("\n".join([*START, *steps(10, 200), said, end]) + "\n")
    report = diagnosed(known, tmp_path, [])
    first = report.diagnoses[0]
    assert (report.verdict, first.fault) == ("no_match", "unknown")
    assert said in [item.text for item in first.evidence]
    assert [suspect.rank for suspect in first.suspects] == ([] if end == UNREAD else [3])


def test_what_a_process_prints_again_and_again_starts_no_attempt(known, tmp_path) -> None:
    """The driver of a cluster prints lines of its workers late, so steps may stand after the crash that ended them."""
    worker, other = "(Worker pid=812) ", "(Worker pid=655) "
    beats = [
        f"{other}the registry cannot be reached, asking again",
        f"{other}no reply of the registry, continuing to monitor",
    ]
    made = [f"{worker}step {step}/60 loss 3.{step}" for step in (10, 20)]
    late = f"{worker}step 20/60 loss 2.9 [repeated 3x across cluster]"
    crash = [f"(Worker pid=913) {line[9:]}" for line in CRASH if line]
    report = diagnosed(known, tmp_path, [[*beats * 4, *made, *crash, *beats, late]])
    assert report.diagnoses[0].fault == "segfault"


# who is at fault


def of_rank(rank: int, *more: str) -> list[str]:
    """The log of a rank of four that announces itself."""
    return [f"2026-10-07 08:00:01 INFO mesh: member {rank} of 4, host node-3", *START, *steps(10, 200), *more]


def test_the_rank_whose_log_is_missing_is_the_suspect_where_all_others_lost_a_peer(known, tmp_path) -> None:
    """The others state the size of the job; the log of the last rank was not collected."""
    report = diagnosed(known, tmp_path, [of_rank(rank, LOST.replace("rank0", f"rank{rank}")) for rank in range(3)])
    assert [suspect.rank for suspect in report.diagnoses[0].suspects] == [3]


WAITED = "[rank{}]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 12000ms for recv operation to complete"
DUMPED = [
    "Timeout (0:00:05)!",
    "Thread 0x00007f4642bf7b80 (most recent call first):",
    '  File "/usr/lib/python3.11/selectors.py", line 468 in select',
    '  File "/src/mixer/broker.py", line 31 in ask_for_shard',
    '  File "/src/mixer/train.py", line 118 in run',
]


def test_where_the_suspect_of_a_wait_stands_is_quoted(known, tmp_path) -> None:
    """Its stack ends its log: the innermost frame of the run's own code tells what it waits for."""
    logs = [of_rank(rank, *(DUMPED if rank == 2 else [WAITED.format(rank)])) for rank in range(4)]
    first = diagnosed(known, tmp_path, logs).diagnoses[0]
    assert [suspect.rank for suspect in first.suspects] == [2]
    assert any("ask_for_shard" in item.text for item in first.evidence)


def test_the_rank_that_a_launcher_had_to_stop_is_the_suspect_where_all_others_timed_out(known, tmp_path) -> None:
    """That it was stopped tells no more of it than its silence."""
    lines = [line for rank in range(4) for line in of_rank(rank)]
    ends = [
        "============================================================",
        "train.py FAILED",
        "------------------------------------------------------------",
        "Failures:",
        *(
            f"[{at}]:\n  time      : 2026-10-07_08:20:0{at}\n  host      : node-3\n  rank      : {rank} (local_rank: {rank})\n"
            f"  exitcode  : {code} (pid: 88{rank})\n  error_file: <N/A>\n  traceback : {told}"
            for at, (rank, code, told) in enumerate(
                [(1, 1, "see above"), (2, -15, "Signal 15 (SIGTERM) received by PID 882"), (3, 1, "see above")], 1
            )
        ),
        "------------------------------------------------------------",
        "Root Cause (first observed failure):",
        (
            "[0]:\n  time      : 2026-10-07_08:20:00\n  host      : node-3\n  rank      : 0 (local_rank: 0)\n  exitcode  : 1 (pid: 880)\n"
            "  error_file: <N/A>\n  traceback : see above"
        ),
        "============================================================",
    ]
    (tmp_path / "train.log").write_text("\n".join([*lines, *map(WAITED.format, (0, 1, 3)), *ends]) + "\n")
    assert [suspect.rank for suspect in diagnosed(known, tmp_path, []).diagnoses[0].suspects] == [2]


def test_a_logged_traceback_is_of_the_rank_of_its_record(known, tmp_path) -> None:
    """A logger writes the traceback right below its line, without its prefix."""
    said = [
        "Traceback (most recent call last):",
        '  File "/src/t.py", line 9, in <module>',
        "    slot()",
        "t.Tide: slot 26 ends early",
    ]
    lines = [f"10-07 08:00:0{at} INFO    R0{rank} engine: member {rank} of 3" for at, rank in enumerate((0, 1, 2))]
    raised = ["10-07 08:10:00 CRITICAL R01 engine: the loop ended", *said]
    (tmp_path / "train.log").write_text("\n".join([*lines, *steps(10, 50), *raised]) + "\n")
    first = diagnosed(known, tmp_path, []).diagnoses[0]
    assert [suspect.rank for suspect in first.suspects] == [1]
    assert any("slot 26 ends early" in item.text for item in first.evidence)


def test_records_that_are_set_aside_again_and_again_end_no_run(known, tmp_path) -> None:
    """Also if a container's log has each line as JSON, with the blank lines of loguru, and ends with such a traceback."""
    told = [
        "",
        "Traceback (most recent call last):",
        "",
        '> File "/src/clinic.py", line 10, in look',
        "    parse(text)",
        "    └ <function parse>",
        "",
        '  File "/src/clinic.py", line 5, in parse',
        "    return int(text, 16)",
        "",
        "ValueError: invalid literal for int() with base 16: '0x1zz'",
    ]
    records = [
        [f"10-07 08:{at}:00.078 ERROR   clinic: record {at} is broken, set aside", *told[1:]] for at in (10, 11, 12)
    ]
    lines = [
        json.dumps({"log": f"{line}\n", "stream": "stderr", "time": f"2026-10-07T08:13:{at:02d}.906Z"})
        for at, line in enumerate(chain(*records))
    ]
    report = diagnosed(known, tmp_path, [[*START, *steps(10, 400), *END], lines])
    assert (report.verdict, report.phase) == ("no_fault", "completed")


# what a completed run left


def test_a_completed_run_that_did_not_save_its_model_is_to_be_checked(known, tmp_path) -> None:
    """It ended well, and says itself that its result is missing."""
    said = "2026-10-07 09:09:59 INFO engine: Did not save the model out/weights.bin because gathering is off"
    report = diagnosed(known, tmp_path, [[*START, *steps(10, 400), said, END[1]]])
    assert report.verdict == "no_fault"
    assert "model_not_saved" in {gap.code for gap in report.gaps}
    assert "whether its model was saved" in decided(report)
    assert decided(diagnosed(known, tmp_path, [[*START, *steps(10, 400), *END]])) == "Nothing to do."
