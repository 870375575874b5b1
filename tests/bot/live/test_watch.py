"""Watching a job: the hang called, the fault reported in time, the evidence stored; on a simulated clock."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml

from bot.cli.watch import Screen, params, seconds, status
from bot.diagnosis.diagnose import diagnose_bundle
from bot.live import probe_cycle
from bot.live.log_follower import LogFollower
from bot.live.probe_cycle import ProbeSources
from bot.live.watch import Watch, WatchEvent, WatchPlan
from connectors.host.kernel_log import KernelLog
from connectors.host.nccl_ras import RasSource
from connectors.host.processes import ProcessSelector
from kb.errors import UnreadableInput
from kb.hangs.votes import RULE
from kb.model import StreamRef
from kb.scanning.scanner import scan
from tests.support.common.watched_job import START, Job, news, watched
from tests.support.nccl_ras_samples import document, four

TRACE = (
    b"Traceback (most recent call last):\n"
    b'  File "/opt/job/pretrain.py", line 71, in <module>\n    main()\n'
    b'  File "/opt/job/pretrain.py", line 44, in main\n    loss.backward()\n'
    b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.25 GiB. GPU 1 has a total capacity of 79.10 GiB "
    b"of which 1.02 GiB is free. Process 5150 has 78.07 GiB memory in use.\n"
)

LAUNCHER = (
    b"E0528 20:28:11.173000 16734 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: -9) local_rank: 1 "
    b"(pid: 101) of binary: /usr/bin/python\n"
    b"torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
    + b"=" * 60
    + b"\ntrain.py FAILED\n"
    + b"-" * 60
    + b"\nRoot Cause (first observed failure):\n[0]:\n  time      : 2026-05-28_20:28:10\n  host      : gpu-a07\n"
    b"  rank      : 1 (local_rank: 1)\n  exitcode  : -9 (pid: 101)\n  error_file: <N/A>\n"
    b"  traceback : Signal 9 (SIGKILL) received by PID 101\n" + b"=" * 60 + b"\n"
)


# Hangs


def test_a_hang_is_called_within_five_minutes_and_diagnosed(known, tmp_path):
    """Silence and stacks agree: the bundle is begun at the first vote, and the answer names the hang."""
    job = Job(tmp_path / "logs", hangs_at=START + 90)
    ran = watched(known, job, tmp_path / "kept")
    assert ran.outcome.called == "hang"
    assert ran.first("called").time - job.hangs_at <= 300
    assert ran.first("bundle").time < ran.first("called").time
    report = ran.outcome.answer.report
    assert (report.verdict, report.phase, report.hang.called) == ("fault", "hung", True)
    assert diagnose_bundle(known, tmp_path / "kept").report.hang.called
    described = yaml.safe_load((tmp_path / "kept/job.yaml").read_text())
    assert described["world_size"] == 4
    assert described["nodes"] == {"gpu-a07": [0, 1, 2, 3]}
    assert len(list((tmp_path / "kept/stacks").iterdir())) >= 3
    assert status(ran.outcome) == 1


@pytest.mark.slow  # test_a_hang_is_called_within_five_minutes_and_diagnosed
def test_logs_without_any_time_fall_silent_too(known, tmp_path):
    """A log's last line is as old as its last byte, whether it has a stamp or not."""
    job = Job(tmp_path / "logs", hangs_at=START + 90, stamped=False)
    ran = watched(known, job, tmp_path / "kept")
    assert ran.first("called").time - job.hangs_at <= 300
    assert ran.outcome.answer.report.hang.called
    again = diagnose_bundle(known, tmp_path / "kept").report.hang  # bundle.yaml says when each file was written
    age = int(ran.clock.time - job.hangs_at) + 1
    assert f"the last line is {age} s old" in {vote.probe: vote.detail for vote in again.votes}["silence"]


@pytest.mark.slow  # test_a_hang_is_called_within_five_minutes_and_diagnosed
def test_a_job_says_itself_how_long_silence_may_last(known, tmp_path):
    """`--param` holds while it is watched and in the bundle that is kept: silence of four minutes is none here."""
    job = Job(tmp_path / "logs", hangs_at=START + 90)
    numbers = params(["hang-called.silence_least=400", "hang-called.silence_most=600"])
    ran = watched(known, job, tmp_path / "kept", params=numbers)
    assert 400 < ran.first("called").time - job.hangs_at <= 440
    described = yaml.safe_load((tmp_path / "kept/job.yaml").read_text())
    assert described["params"] == {"hang-called": {"silence_least": 400.0, "silence_most": 600.0}}
    assert diagnose_bundle(known, tmp_path / "kept").report.hang.called


def test_with_ras_answers_it_is_called_within_a_minute(known, tmp_path):
    """Stacks and RAS agree long before silence would."""
    answers = tmp_path / "ras"
    answers.mkdir()
    job = Job(tmp_path / "logs", hangs_at=START + 90)

    def ras(now):
        if int(now) % 10 == 0:
            number = int(min(now, job.hangs_at) - START)
            path = answers / f"{int(now)}.json"
            path.write_bytes(document(four((number, number, number - (now > job.hangs_at), number))))
            os.utime(path, (now, now))

    ran = watched(known, job, tmp_path / "kept", also=ras, ras=RasSource(str(answers)))
    assert ran.first("called").time - job.hangs_at <= 60
    votes = {
        vote["probe"]: vote["vote"]
        for vote in [news_item for news_item in ran.news if news_item.event == "votes"][-1].fields["votes"]
    }
    assert votes == {"silence": "no", "stacks": "yes", "spin": "not_observable", "collective": "yes"}
    assert len(list((tmp_path / "kept/ras").iterdir())) >= 3


def test_where_only_one_probe_can_see_nothing_is_called(known, tmp_path):
    """Without py-spy, silence alone is a suspicion: the evidence is stored, the missing tool named, the status undecided."""
    job = Job(tmp_path / "logs", hangs_at=START + 60, spy=False)
    ran = watched(known, job, tmp_path / "kept", limit=600.0)
    assert (ran.outcome.called, status(ran.outcome)) == ("", 16)
    assert "pip install py-spy" in ran.first("gap").text
    assert ran.outcome.folder == tmp_path / "kept"
    last = [news_item for news_item in ran.news if news_item.event == "votes"][-1]
    assert last.fields["suspected"]
    assert "py-spy" in " ".join(last.fields["advice"])


def test_a_healthy_job_is_left_alone(known, tmp_path):
    """For a job that continues, nothing is called and nothing is written."""
    ran = watched(known, Job(tmp_path / "logs"), tmp_path / "kept", limit=400.0)
    assert (ran.outcome.called, ran.events()) == ("", [])
    assert not (tmp_path / "kept").exists()


# Faults


def test_a_fatal_line_is_reported_within_thirty_seconds(known, tmp_path):
    """A rank's out-of-memory error is reported at once, called when the stacks agree, and the answer names the rank."""
    job = Job(tmp_path / "logs", hangs_at=START + 70, lines={START + 71: (1, TRACE)})
    ran = watched(known, job, tmp_path / "kept")
    told = ran.first("fault")
    assert told.time - (START + 71) <= 30
    assert (told.fields["fault"], told.fields["rank"]) == ("cuda_oom", 1)
    assert (ran.outcome.called, status(ran.outcome)) == ("fatal", 1)
    report = ran.outcome.answer.report
    assert (report.diagnoses[0].fault, report.phase) == ("cuda_oom", "hung")  # its processes run on
    assert ran.clock.time - told.time <= 60  # three rounds of stacks


@pytest.mark.slow  # test_errors_that_a_job_logs_while_it_works_are_not_called
def test_an_error_that_the_run_lives_with_is_not_called(known, tmp_path):
    """A traceback followed by further steps is reported and withdrawn."""
    job = Job(tmp_path / "logs", lines={START + 60: (1, TRACE)})
    ran = watched(known, job, tmp_path / "kept", limit=300.0)
    assert ran.outcome.called == ""
    assert ran.events() in ([], ["fault", "bundle", "went_on"])


def test_an_xid_of_the_kernel_is_reported_within_thirty_seconds(known, tmp_path):
    """New lines of the kernel log are judged with everything else."""
    ring = tmp_path / "ring"
    ring.touch()

    def kernel(now):
        if int(now) == int(START) + 130:
            stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
            ring.write_text(
                f"{stamp},000100+00:00 NVRM: Xid (PCI:0000:3b:00): 79, pid=4100, GPU has fallen off the bus.\n"
            )

    job = Job(tmp_path / "logs", hangs_at=START + 131)
    log = KernelLog(START, command=("cat", str(ring)), files=())
    ran = watched(known, job, tmp_path / "kept", also=kernel, kernel=log)
    told = ran.first("fault")
    assert told.time - (START + 130) <= 30
    assert (told.fields["rule"], told.fields["node"]) == ("nvidia-xid", "gpu-a07")
    assert ran.outcome.called == "fatal"
    assert ran.outcome.answer.report.diagnoses[0].suspects[0].node == "gpu-a07"


@pytest.mark.slow  # test_an_xid_of_the_kernel_is_reported_within_thirty_seconds
def test_a_fault_that_the_kernel_tells_is_not_called_while_steps_come_on(known, tmp_path):
    """It is reported, since it may be the job's; the job continues, so it has not failed."""
    ring = tmp_path / "ring"
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(START + 40))
    ring.write_text(
        f"{stamp},000100+00:00 train[77]: segfault at 0 ip 00007f40e8785ad8 sp 00007ffd error 4 in libc.so.6\n"
    )
    log = KernelLog(START, command=("cat", str(ring)), files=())
    ran = watched(known, Job(tmp_path / "logs"), tmp_path / "kept", limit=200.0, kernel=log)
    assert (ran.outcome.called, ran.events()[:2]) == ("", ["fault", "bundle"])


def test_what_the_kernel_tells_of_others_processes_is_not_this_job_s(tmp_path):
    """A crash of another's process on the same host, or its end for lack of memory, its limit's or the host's."""
    ring = tmp_path / "ring"
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(START + 40)) + ",000100+00:00 "
    before = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(START - 40)) + ",000100+00:00 "
    ring.write_text(
        f"{before}train[79]: segfault at 0 ip 00007f40e8785ad8 sp 00007ffd error 4 in libc.so.6\n"
        f"{stamp}train[77]: segfault at 0 ip 00007f40e8785ad8 sp 00007ffd error 4 in libc.so.6\n"
        f"{stamp}traps: train[77] trap divide error ip:55d sp:7ff error:0\n"
        f"{stamp}oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=/other,task=python3,pid=77,uid=0\n"
        f"{stamp}Memory cgroup out of memory: Killed process 77 (python3) total-vm:63kB\n"
        f"{stamp}Out of memory: Killed process 77 (python3) total-vm:63kB\n"
        f"{stamp}CPU: 1 UID: 0 PID: 77 Comm: python3 Not tainted 6.8.0 #1\n"
        f"{stamp}train[78]: segfault at 0 ip 00007f40e8785ad8 sp 00007ffd error 4 in libc.so.6\n"
    )
    log = KernelLog(START, command=("cat", str(ring)), files=())
    assert log.poll(others={77})
    assert [line.split(b" ", 1)[1][:14] for line in log.text.splitlines()] == [b"train[78]: seg"]
    ring.write_text(
        ring.read_text()
        + f"{stamp}Out of memory: Killed process 81 (ray) total-vm:63kB\n"  # as short-lived as a look's distance
        + f"{stamp}Out of memory: Killed process 80 (train) total-vm:63kB\n"
    )
    assert log.poll(others={77}, ours={78, 80})
    assert [line.rsplit(b"(", 1)[1][:5] for line in log.text.splitlines()[1:]] == [b"train"]


def test_processes_that_vanish_with_a_fault_are_a_fault(known, tmp_path):
    """When all are gone the last words count, and the bundle holds the stacks from before."""
    job = Job(tmp_path / "logs", ends_at=START + 130, lines={START + 129.5: (3, TRACE)})
    ran = watched(known, job, tmp_path / "kept")
    assert ran.outcome.called == "fatal"
    assert ran.outcome.answer.report.diagnoses[0].fault == "cuda_oom"
    assert "gone" in ran.events()
    assert any((tmp_path / "kept/stacks").iterdir())
    # the traceback says how its process ended
    assert "exits_unknown" not in {gap.code for gap in ran.outcome.answer.report.gaps}


def test_processes_that_vanish_quietly_end_the_watch(known, tmp_path):
    """A job whose last line is a step is not known to have completed: the watch ends with a separate status."""
    job = Job(tmp_path / "logs", ends_at=START + 100)
    ran = watched(known, job, tmp_path / "kept")
    assert (ran.outcome.called, status(ran.outcome)) == ("ended", 16)
    assert "whether it completed cannot be told" in ran.outcome.why
    assert ran.outcome.answer.report.verdict in ("insufficient_evidence", "no_fault")
    assert not ran.outcome.answer.report.hang.called
    assert ran.clock.time < START + 200


def test_a_job_that_ends_well_ends_the_watch_with_0(known, tmp_path):
    """Its processes are gone, and its log says that the training is done."""
    done = b"2026-05-28 20:29:00 INFO Training completed after 190 steps\n"
    job = Job(tmp_path / "logs", ends_at=START + 100, lines={START + 99.5: (0, done)})
    ran = watched(known, job, tmp_path / "kept")
    assert (ran.outcome.called, status(ran.outcome)) == ("", 0)
    assert "the run completed" in ran.outcome.why
    assert "INFO Training completed after 190 steps" in ran.outcome.why
    assert ran.outcome.folder is None  # nothing was lost that anybody would look at


@pytest.mark.slow  # test_a_watch_of_a_job_that_is_over_says_so
def test_the_launcher_is_heard_out(known, tmp_path):
    """What torchrun prints twenty seconds after the last rank ended decides how the job ended."""
    job = Job(tmp_path / "logs", ends_at=START + 100, lines={START + 121: (0, LAUNCHER)}, launcher_ends_at=START + 122)
    ran = watched(known, job, tmp_path / "kept")
    assert (ran.outcome.called, status(ran.outcome)) == ("fatal", 1)
    assert ran.outcome.answer.report.phase == "failed"


def test_a_watch_of_a_job_that_is_over_says_so(known, tmp_path):
    """Watched again after it ended, with no process: it had failed before the watch began."""
    job = Job(tmp_path / "logs", ends_at=START - 30, lines={START - 20: (0, LAUNCHER)})
    ran = watched(known, job, tmp_path / "kept")
    assert (ran.outcome.called, status(ran.outcome)) == ("fatal", 1)
    assert ran.outcome.why.startswith("the run had failed before the watch began")
    assert ran.first("over").text == "the run had failed before the watch began"  # also where the fault was shown


def test_a_fault_from_before_the_watch_is_dated_so_without_a_launcher(known, tmp_path):
    """No line says that the job ended: only its fault is old, and nobody has written since."""
    job = Job(tmp_path / "logs", ends_at=START - 30, lines={START - 29: (1, TRACE)})
    ran = watched(known, job, tmp_path / "kept")
    assert (ran.outcome.called, status(ran.outcome)) == ("fatal", 1)
    assert ran.first("over").text.startswith("the fault was in the logs before the watch began")


def test_a_sign_of_a_hang_at_the_end_of_the_time_is_not_passed_over(known, tmp_path):
    """The logs of a job that runs elsewhere, or is over, have been silent for an hour: nothing proves either."""
    job = Job(tmp_path / "logs", ends_at=START - 30)
    ran = watched(known, job, tmp_path / "kept", limit=300.0)
    assert (ran.outcome.called, status(ran.outcome)) == ("", 16)
    assert ran.outcome.why.startswith("time is up; one sign of a hang was seen")
    assert ran.outcome.why.endswith("none of its processes was seen on this host")


def test_errors_that_a_job_logs_while_it_works_are_not_called(known, tmp_path):
    """A traceback, then two minutes without a line while stacks move: its processes run, so nothing is called."""
    job = Job(tmp_path / "logs", lines={START + 60: (1, TRACE)}, quiet=(START + 61, START + 200))
    ran = watched(known, job, tmp_path / "kept", limit=300.0)
    assert ran.outcome.called == ""
    assert ran.events() == ["fault", "bundle", "went_on"]


@dataclass
class Restarted(Job):
    """A job whose launcher starts all processes again, faster than the watch looks."""

    again: float = START + 63

    def ranks(self, wanted):
        """As Job, with other processes after the restart."""
        found, gaps = super().ranks(wanted)
        later = 100 if self.time >= self.again else 0
        return tuple(replace(rank, main=replace(rank.main, pid=rank.main.pid + later)) for rank in found), gaps

    def alive(self, process):
        """As Job; the processes of the attempt before are gone."""
        gone = 100 <= process.pid < 200 and self.time >= self.again
        return super().alive(process) and not gone


def test_a_crash_that_was_over_before_the_watch_saw_it_is_no_trouble_of_the_new_attempt(known, tmp_path, monkeypatch):
    """The processes have written nothing yet since their launcher started them again."""
    job = Restarted(tmp_path / "logs", lines={START + 60.5: (1, TRACE)}, quiet=(START + 61, START + 110))
    monkeypatch.setattr(probe_cycle, "process_started", lambda process: job.again if process.pid >= 200 else START - 60)
    ran = watched(known, job, tmp_path / "kept", limit=300.0)
    assert (ran.outcome.called, "degraded" in ran.events()) == ("", False)


@pytest.mark.slow  # test_a_crash_that_was_over_before_the_watch_saw_it_is_no_trouble_of_the_new_attempt
@pytest.mark.parametrize("again", [START + 63, START + 75], ids=["between two cycles", "after the fault was seen"])
def test_an_attempt_that_starts_slowly_is_not_called_for_the_fault_of_the_one_before(
    known, tmp_path, monkeypatch, again
):
    """Its processes write a line, then nothing for minutes while a busy machine connects them: silence alone is no end."""
    first = b"Setting OMP_NUM_THREADS environment variable for each process to be 1\n"
    lines = {START + 60.5: (1, TRACE), again + 0.1: (0, first)}
    job = Restarted(tmp_path / "logs", lines=lines, quiet=(START + 61, again + 150), again=again, spy=False)
    monkeypatch.setattr(probe_cycle, "process_started", lambda process: again if process.pid >= 200 else START - 60)
    ran = watched(known, job, tmp_path / "kept", limit=300.0)
    assert ran.outcome.called == ""


@pytest.mark.slow  # test_a_healthy_job_is_left_alone
def test_a_long_checkpoint_is_not_called_while_its_writer_works(known, tmp_path):
    """Twenty times as long as those before it: no fault of a job whose rank 0 writes on."""
    lines = {}
    for step, begun in ((120, 20.0), (130, 30.0), (140, 40.0)):
        lines[START + begun + 0.2] = (0, b"saving checkpoint at iteration %d to /ckpt\n" % step)
        lines[START + begun + 0.9] = (0, b"successfully saved checkpoint at iteration %d to /ckpt\n" % step)
    lines[START + 60.2] = (0, b"saving checkpoint at iteration 160 to /ckpt\n")
    job = Job(tmp_path / "logs", lines=lines, quiet=(START + 61, START + 500))
    ran = watched(known, job, tmp_path / "kept", limit=480.0)
    assert (ran.outcome.called, status(ran.outcome)) == ("", 0)
    assert "fault" not in ran.events()


# Bad surroundings


@pytest.mark.slow  # test_log_view.py
def test_a_folder_that_vanishes_ends_nothing(known, tmp_path):
    """The watch continues, reports that the logs are gone, and keeps the lines it has read."""
    job = Job(tmp_path / "logs", hangs_at=START + 60)

    def remove(now):
        if now == START + 100:
            shutil.rmtree(job.logs)

    ran = watched(known, job, tmp_path / "kept", also=remove)
    assert "no such file or folder" in ran.first("gap").text
    assert ran.outcome.called == "hang"


def test_a_bundle_that_cannot_be_written_does_not_stop_the_call(known, tmp_path):
    """Without a writable folder, the diagnosis uses what was observed."""
    (tmp_path / "kept").write_bytes(b"a file is in the way")
    ran = watched(known, Job(tmp_path / "logs", hangs_at=START + 60), tmp_path / "kept")
    assert "cannot be written" in ran.first("gap").text
    assert ran.outcome.folder is None
    assert ran.outcome.answer.report.hang.called


def test_secrets_and_bounds_hold_in_the_copy(known, tmp_path, monkeypatch):
    """A long log keeps its beginning and end with a note about the omitted part; secrets are masked."""
    monkeypatch.setattr("bot.live.bundle_writer.MOST_LOG", 20_000)
    monkeypatch.setattr("bot.live.bundle_writer.LEAST_LOG", 20_000)
    job = Job(tmp_path / "logs", hangs_at=START + 60)
    path = job.logs / "rank-0.log"
    path.write_bytes(b"export password=hunter2secret\n" + b"x = 1\n" * 20_000 + path.read_bytes())
    os.utime(path, (START, START))
    watched(known, job, tmp_path / "kept")
    copy = (tmp_path / "kept/logs/rank-0.log").read_bytes()
    assert b"hunter2" not in copy
    assert b"bytes of this log are left out here" in copy
    assert len(copy) < 25_000
    assert yaml.safe_load((tmp_path / "kept/bundle.yaml").read_text())["files"]["logs/rank-0.log"]["left_out"] > 50_000


@pytest.mark.slow  # test_sigterm_ends_it_cleanly
def test_somebody_who_stops_it_keeps_the_bundle(known, tmp_path):
    """An interrupt between the first vote and the call leaves a whole bundle."""
    job = Job(tmp_path / "logs", hangs_at=START + 40)
    ran = watched(known, job, tmp_path / "kept", stop_at=START + 130)
    assert (ran.outcome.interrupted, ran.outcome.called) == (True, "")
    assert status(ran.outcome, signal.SIGTERM) == 143
    assert diagnose_bundle(known, tmp_path / "kept").report.job.ranks == 4


# Logs that grow


@pytest.mark.slow  # test_rotation_keeps_what_was_seen
def test_pieces_give_what_the_whole_gives(known, tmp_path):
    """However a log comes, its summary has the hits, structures and steps of a scan of the whole."""
    chance = random.Random(7)
    steps = b"".join(b"2026-05-28 20:%02d:%02d INFO step %d | loss: 1.5\n" % (i // 60, i % 60, i) for i in range(3000))
    text = steps + TRACE + steps[:90_000] + TRACE * 2 + b"step 9 | loss: 0.5"
    path = tmp_path / "rank-0.log"
    path.touch()
    following = LogFollower(known, tmp_path)
    at = 0
    while at < len(text):
        piece = text[at : at + chance.randrange(1, 30_000)]
        with path.open("ab") as handle:
            handle.write(piece)
        at += len(piece)
        following.look(START)
    [found] = following.streams
    whole = scan(known.plan, known.matcher(), StreamRef("rank-0.log"), [text], 2026)
    assert {key: hits.count for key, hits in found.hits.items()} == {
        key: hits.count for key, hits in whole.hits.items()
    }
    assert [(structure.kind, structure.offset, structure.line) for structure in found.structures] == [
        (structure.kind, structure.offset, structure.line) for structure in whole.structures
    ]
    assert found.series.last.offset == whole.series.last.offset
    assert found.series.seen >= 1000


def test_rotation_keeps_what_was_seen(known, tmp_path):
    """A log that is moved away keeps its summary under its new name; the new one begins again."""
    path = tmp_path / "rank-0.log"
    path.write_bytes(b"step 1 | loss: 2.0\n" + TRACE)
    following = LogFollower(known, tmp_path)
    following.look(START)
    path.rename(tmp_path / "rank-0.log.1")
    path.write_bytes(b"step 2 | loss: 1.0\n")
    assert following.look(START + 20)
    by_name = {stream.ref.uri: stream for stream in following.streams}
    assert [structure.kind for structure in by_name["logs/rank-0.log.1"].structures] == ["exception"]
    assert by_name["logs/rank-0.log"].structures == ()
    assert not following.look(START + 40)


def test_a_log_that_shrinks_is_read_anew(known, tmp_path):
    """A truncated and rewritten log counts as a new text, which is reported."""
    path = tmp_path / "rank-0.log"
    path.write_bytes(TRACE * 3)
    following = LogFollower(known, tmp_path)
    following.look(START)
    path.write_bytes(b"step 2 | loss: 1.0\n")
    assert following.look(START + 20)
    following.look(START + 40)
    assert following.streams[0].structures == ()
    assert "shrunk" in [gap.code for gap in following.gaps]


# What is shown


class Terminal(io.StringIO):
    """A terminal that remembers."""

    def isatty(self):
        """It is one."""
        return True


def test_a_terminal_has_one_line_that_changes_and_elsewhere_only_changes_are_shown():
    """On a terminal, votes are drawn over each other; in a file, a line is written when they change. Text cannot move the cursor."""
    live, plain = Terminal(), io.StringIO()
    for out in (live, plain):
        screen = Screen(out, as_json=False)
        screen.tell(news(changed=True))
        screen.tell(news(changed=False))
        screen.tell(news("fault", "bad \x1b[2J line"))
    assert live.getvalue().count("\n") == 1
    assert plain.getvalue().count("silence no") == 1
    assert "\x1b[2J" not in live.getvalue() + plain.getvalue()


def test_a_fault_is_announced_once():
    """The call of a fault that was announced adds nothing; that of a hang does."""
    out = io.StringIO()
    screen = Screen(out, as_json=False)
    screen.tell(news("fault", "rank 1: ECC error"))
    screen.tell(WatchEvent("called", START, "fatal: rank 1: ECC error", {"called": "fatal"}))
    screen.tell(WatchEvent("called", START, "hang: silence", {"called": "hang"}))
    assert out.getvalue().count("ECC error") == 1
    assert "CALLED: hang: silence" in out.getvalue()


def test_json_is_one_object_a_line(known, tmp_path):
    """Every news and the report are lines of JSON."""
    ran = watched(known, Job(tmp_path / "logs", hangs_at=START + 40), tmp_path / "kept")
    out = io.StringIO()
    screen = Screen(out, as_json=True)
    for news_item in ran.news:
        screen.tell(news_item)
    screen.end(ran.outcome, START)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [pair["event"] for pair in lines[-3:]] == ["called", "report", "end"]
    assert lines[-2]["report"]["schema"] == "signalbox.report/1"
    assert lines[-1]["called"] == "hang"


@pytest.mark.parametrize(("text", "value"), [("90", 90.0), ("20s", 20.0), ("10m", 600.0), ("1.5h", 5400.0)])
def test_spans_of_time(text, value):
    """Spans are read with their unit."""
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["", "ten", "-5s", "5 weeks", "1e9m"])
def test_what_is_no_span_of_time_is_refused(text):
    """Anything else is bad usage."""
    with pytest.raises(UnreadableInput):
        seconds(text)


# The command


def test_bad_usage_is_one_line(signalbox, tmp_path):
    """A target that cannot be watched is an error, with status 2."""
    used = tmp_path / "used"
    used.mkdir()
    (used / "x").touch()
    logs = tmp_path / "logs"
    logs.mkdir()
    for words in (
        [],
        ["--logs", tmp_path / "none"],
        ["--pids", "12,x"],
        ["--pids-of", "("],
        ["--logs", logs, "--save", used],
        ["--logs", logs, "--save", logs / "kept"],
    ):
        ran = signalbox("watch", *words)
        assert (ran.status, ran.err.count("\n")) == (2, 1), words


def test_a_watch_ends_with_its_time(signalbox, tmp_path):
    """`--for` over and nothing found: status 0, and JSON says how it ended."""
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "rank-0.log").write_bytes(b"step 1 | loss: 2.0\n")
    ran = signalbox("watch", "j1", "--logs", logs, "--for", "1s", "--every", "1", "--no-kernel", "--json")
    assert ran.status == 0
    assert json.loads(ran.out.splitlines()[-1])["text"].startswith("time is up")


def test_a_fault_at_the_end_of_the_time_is_not_passed_over(signalbox, tmp_path):
    """Nothing called it within the time, but neither was nothing found."""
    logs = tmp_path / "logs"
    logs.mkdir()
    line = "RuntimeError: CUDA error: an illegal memory access was encountered\n"
    (logs / "rank-0.log").write_text(
        f'Traceback (most recent call last):\n  File "/run/train.py", line 3, in <module>\n{line}'
    )
    ran = signalbox("watch", "j1", "--logs", logs, "--for", "1s", "--every", "1", "--no-kernel", "--json")
    assert ran.status == 16
    assert json.loads(ran.out.splitlines()[-1])["text"].startswith("time is up; a fault was seen")


def test_sigterm_ends_it_cleanly(signalbox, tmp_path):
    """A signal ends the watch at once, with the shell's status for it and the bundle kept."""
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "rank-0.log").write_bytes(b"step 1 | loss: 2.0\n" + TRACE)
    words = signalbox.words(
        ["watch", "--logs", logs, "--until-hang", "--no-kernel", "--save", tmp_path / "kept", "--json"]
    )
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=signalbox.environment(), cwd=signalbox.cwd) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if json.loads(line)["event"] == "bundle":
                break
        child.send_signal(signal.SIGTERM)
        rest = child.stdout.read().splitlines()
        assert child.wait(30) == 143
    assert json.loads(rest[-1])["event"] == "end"
    assert (tmp_path / "kept/logs/rank-0.log").is_file()


def test_a_real_hang_of_real_processes(known, tmp_path):
    """Three real processes, one in a lock, two in a queue: called from their logs and real stacks."""
    spy = shutil.which("py-spy") or shutil.which(str(Path(sys.executable).with_name("py-spy")))
    if spy is None:
        pytest.skip("py-spy is not installed here")
    from bot.cli.watch import WallClock
    from connectors.host.processes import Host

    quick = {"silence_least": 6.0, "silence_most": 6.0, "stack_apart": 1.0, "starting": 6.0, "loading": 6.0}
    rules = tuple(
        replace(rule, params={**rule.params, **quick}) if rule.id == RULE else rule for rule in known.rulebook.rules
    )
    quicker = replace(known, rulebook=replace(known.rulebook, rules=rules))
    logs = tmp_path / "logs"
    logs.mkdir()
    script = tmp_path / "train_three.py"
    script.write_text(
        "import os, queue, sys, threading, time\n"
        "rank = os.environ['RANK']\n"
        "with open(f'{sys.argv[1]}/rank-{rank}.log', 'a', buffering=1) as log:\n"
        "    for step in range(1, 21):\n"
        "        time.sleep(0.05)\n"
        "        log.write(f'step {step} | loss: {9 / step:.3f} | lr: 1e-4\\n')\n"
        "def wait_in_lock():\n    lock = threading.Lock()\n    lock.acquire()\n    lock.acquire()\n"
        "def wait_in_queue():\n    queue.Queue().get()\n"
        "wait_in_lock() if rank == '1' else wait_in_queue()\n"
    )
    children = [
        subprocess.Popen([sys.executable, str(script), str(logs)], env={"RANK": str(rank), "WORLD_SIZE": "3"})
        for rank in range(3)
    ]
    try:
        told: list[WatchEvent] = []
        wanted = ProcessSelector(pids=tuple(child.pid for child in children))
        sources = ProbeSources(Host(py_spy=spy), logs, wanted)
        outcome = Watch(quicker, WatchPlan(tmp_path / "kept", 1.0, 90.0), WallClock(), sources, told.append).run()
    finally:
        for child in children:
            child.kill()
            child.wait()
    if any("CAP_SYS_PTRACE" in watch_event.text for watch_event in told):
        pytest.skip("py-spy may not read processes here")
    assert outcome.called == "hang"
    assert len(list((tmp_path / "kept/stacks").rglob("rank-1.json"))) >= 3
    assert "wait_in_lock" in max((tmp_path / "kept/stacks").rglob("rank-1.json")).read_text()
