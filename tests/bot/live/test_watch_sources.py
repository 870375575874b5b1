"""What a watch looks at besides logs and stacks: recorders, processes that end, metrics; each with the real thing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, replace

import pytest
import yaml

from bot.cli.watch import WallClock
from bot.diagnosis.diagnose import diagnose_bundle
from bot.live.metrics_poller import MetricsPoller
from bot.live.probe_cycle import ProbeCycle, ProbeSources
from bot.live.watch import Watch, WatchPlan
from connectors.base.contract import CheckResult, Deadline, EvidenceKind, SourceFailed
from connectors.base.http import Endpoint, HttpClient
from connectors.host.flight_recorder import RecorderSource, request_dumps
from connectors.host.process_table import Process
from connectors.host.processes import Host, ProcessSelector, RankProcess
from connectors.metrics.prometheus import SPIN_GPU, SPIN_NODE, Prometheus
from kb.model import Gap, JobRecord
from kb.model import Job as NamedJob
from tests.support.common.recorder_dumps import dump
from tests.support.common.watched_job import START, Job, watched
from tests.support.prometheus_server import line, needed, serving


def dumped(path, rank, at, stopped=2):
    """A rank's dump whose operations were queued at a time; the file is as old as the steered clock says."""
    made = dump(rank, stopped=stopped)
    for entry in made["entries"]:
        entry["time_created_ns"] = int(at * 1e9) + entry["collective_seq_id"]
    path.write_text(json.dumps(made))


# Flight Recorder


def test_dumps_that_appear_are_a_vote_and_name_the_rank(known, tmp_path):
    """A watchdog's dumps make the collective probe see; copied, with when they were written, they say the same again."""
    job = Job(tmp_path / "logs", hangs_at=START + 60)
    folder = tmp_path / "dumps"
    folder.mkdir()

    def writes(now):
        if now == START + 100:
            for rank in range(4):
                dumped(folder / f"trace_{rank}", rank, START + 60)
                os.utime(folder / f"trace_{rank}", (now, now))

    ran = watched(known, job, tmp_path / "kept", also=writes, recorder=RecorderSource(START, {str(folder / "trace_")}))
    votes = {vote["probe"]: vote for vote in [new for new in ran.news if new.event == "votes"][-1].fields["votes"]}
    assert (votes["collective"]["vote"], ran.outcome.called) == ("yes", "hang")
    assert "has been pending for 40 s" in votes["collective"]["detail"]
    assert ran.first("called").time - job.hangs_at <= 100
    kept = tmp_path / "kept"
    assert {f"trace_{rank}" for rank in range(4)} == {path.name for path in (kept / "flight_recorder").iterdir()}
    written = yaml.safe_load((kept / "bundle.yaml").read_text())["files"]["flight_recorder/trace_0"]["written"]
    assert written == time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(START + 100))
    again = diagnose_bundle(known, kept).report
    assert again.hang.called
    assert [vote.detail for vote in again.hang.votes if vote.probe == "collective"] == [votes["collective"]["detail"]]
    assert again.diagnoses[0].suspects[0].rank == 2


@pytest.mark.slow  # test_dumps_that_appear_are_a_vote_and_name_the_rank
def test_a_dump_of_a_job_that_goes_on_grows_no_older(known, tmp_path):
    """What was pending when a healthy rank was dumped is not pending for minutes later."""
    job = Job(tmp_path / "logs")
    folder = tmp_path / "dumps"
    folder.mkdir()

    def writes(now):
        if now == START + 100:
            dumped(folder / "trace_0", 0, now - 1)
            os.utime(folder / "trace_0", (now, now))

    ran = watched(
        known, job, tmp_path / "kept", limit=300.0, also=writes, recorder=RecorderSource(START, {str(folder)})
    )
    seen = [{vote["probe"]: vote["vote"] for vote in new.fields["votes"]} for new in ran.news if new.event == "votes"]
    assert {item["collective"] for item in seen} == {"no", "not_observable"}
    assert ran.events() == []


def test_old_and_half_written_dumps_wait(tmp_path):
    """A dump of an earlier run is another story; one that still grows is taken when it is whole, and once."""
    source = RecorderSource(START, {str(tmp_path / "trace_")})
    for name, age in (("trace_0", -3600), ("trace_1", 99), ("trace_2", 90), ("other_3", 90)):
        (tmp_path / name).write_bytes(b"{}")
        os.utime(tmp_path / name, (START + age, START + age))
    assert [item.path.name for item in source.poll(START + 100)[0]] == ["trace_2"]
    (tmp_path / "trace_1").write_bytes(b"{} ")
    os.utime(tmp_path / "trace_1", (START + 119, START + 119))
    assert source.poll(START + 120)[0] == ()
    assert [item.path.name for item in source.poll(START + 121)[0]] == ["trace_1"]
    assert source.poll(START + 140) == ((), ())


def test_a_dump_is_asked_for_by_pipe(tmp_path):
    """A request goes into each rank's pipe; without a reader, or if it is not a pipe, nothing blocks or is written."""
    os.mkfifo(tmp_path / "fr_0.pipe")
    os.mkfifo(tmp_path / "fr_1.pipe")
    (tmp_path / "fr_2.pipe").write_text("mine")
    (tmp_path / "fr_3.pipe").symlink_to(tmp_path / "fr_2.pipe")
    reader = os.open(tmp_path / "fr_0.pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        gaps = request_dumps(tmp_path / f"fr_{rank}.pipe" for rank in range(5))
        assert os.read(reader, 128)
    finally:
        os.close(reader)
    told = {gap.source.rsplit("/", 1)[-1] for gap in gaps}
    assert told == {"fr_1.pipe", "fr_2.pipe", "fr_3.pipe", "fr_4.pipe"}
    assert (tmp_path / "fr_2.pipe").read_text() == "mine"


def test_only_silent_ranks_are_asked_and_only_where_it_is_wanted(known, tmp_path, monkeypatch):
    """No dumps are requested while logs grow; during silence each rank gets one request per minute."""
    os.mkfifo(tmp_path / "fr_0.pipe")
    reader = os.open(tmp_path / "fr_0.pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        for wanted, words in ((False, 0), (True, 2)):
            job = Job(tmp_path / f"logs-{wanted}", hangs_at=START + 40, spy=False)
            mains = job.ranks(None)[0]
            piped = tuple(replace(rank, main=replace(rank.main, pipe=str(tmp_path / "fr_"))) for rank in mains)
            monkeypatch.setattr(job, "ranks", lambda _wanted, piped=piped: (piped, ()))
            sources = ProbeSources(
                job, job.logs, ProcessSelector(pattern="x"), recorder=RecorderSource(START), ask=wanted
            )
            looking = ProbeCycle(known, sources, lambda: False)
            for now in range(int(START), int(START) + 180, 20):
                while job.time < now:
                    job.live(job.time + 1)
                looking.look(float(now))
            try:
                heard = os.read(reader, 1024)
            except BlockingIOError:
                heard = b""
            assert heard.count(b"\n") == words
    finally:
        os.close(reader)


# Processes that end


@dataclass
class Ends:
    """A host of four ranks, some of which end at a time, and how."""

    at: dict[int, float]
    how: str = ""
    name: str = "gpu-a07"
    time: float = START
    others: frozenset[int] = frozenset()
    ours: frozenset[int] = frozenset()

    def ranks(self, _wanted):
        """As connectors.host.processes.Host."""
        mains = (Process(100 + rank, 1, "sleeping", rank=rank, world_size=4) for rank in range(4))
        return tuple(RankProcess(rank, main) for rank, main in enumerate(mains) if self.alive(main)), ()

    def alive(self, process):
        """Likewise."""
        return self.time < self.at.get(process.rank, float("inf"))

    def ended(self, _process):
        """Likewise."""
        return self.how

    def stacks(self, _ranks, _stopping, **_how):
        """Likewise."""
        return (), ()


def ends(known, host, until):
    """Return the reports about ended processes, from polls 5 s apart."""
    looking = ProbeCycle(known, ProbeSources(host, wanted=ProcessSelector(pattern="x")), lambda: False)
    while host.time <= START + until:
        looking.look(host.time)
        host.time += 5
    return [(item.rank, item.how, item.others) for item in looking.ended]


def test_a_process_that_ends_alone_is_reported(known):
    """At once if the cause is known; after a delay if it is unknown and other ranks continue."""
    assert ends(known, Ends({2: START + 10}, "SIGKILL"), 10) == [(2, "SIGKILL", 3)]
    assert ends(known, Ends({2: START + 10}), 20) == []
    assert ends(known, Ends({2: START + 10}), 25) == [(2, "gone", 3)]


def test_the_end_of_a_job_is_no_process_that_ended_alone(known):
    """No event is reported if all processes end at once, one check apart, or if all but the one that still writes end."""
    assert ends(known, Ends(dict.fromkeys(range(4), START + 10)), 60) == []
    assert ends(known, Ends({0: START + 10, 1: START + 14, 2: START + 14, 3: START + 14}), 60) == []
    assert ends(known, Ends(dict.fromkeys((1, 2, 3), START + 10)), 60) == []
    assert ends(known, Ends({2: START + 10}, "exit 0"), 60) == []


def test_a_real_process_that_dies_is_named_and_how(known, tmp_path):
    """SIGSEGV in one of four real processes: reported within seconds, called, stored, and found again in the bundle."""
    logs = tmp_path / "logs"
    logs.mkdir()
    script = tmp_path / "train_four.py"
    script.write_text(
        "import os, sys, time\n"
        "with open(f'{sys.argv[1]}/rank-{os.environ[\"RANK\"]}.log', 'a', buffering=1) as log:\n"
        "    for step in range(1, 41):\n"
        "        time.sleep(0.05)\n"
        "        log.write(f'step {step} | loss: {9 / step:.3f} | lr: 1e-4\\n')\n"
        "time.sleep(120)\n"
    )
    children = [
        subprocess.Popen([sys.executable, str(script), str(logs)], env={"RANK": str(rank), "WORLD_SIZE": "4"})
        for rank in range(4)
    ]

    def tell(new):
        told.append(new)
        if new.event == "votes" and not children[2].returncode and len(told) > 2:
            children[2].send_signal(signal.SIGSEGV)

    told = []
    try:
        sources = ProbeSources(
            Host(py_spy="/no/py-spy"), logs, ProcessSelector(pids=tuple(child.pid for child in children))
        )
        outcome = Watch(known, WatchPlan(tmp_path / "kept", 1.0, 60.0), WallClock(), sources, tell).run()
    finally:
        for child in children:
            child.kill()
            child.wait()
    gone = next(new for new in told if new.event == "gone")
    assert (gone.fields["rank"], gone.fields["how"]) == (2, "SIGSEGV")
    fault = next(new for new in told if new.event == "fault")
    assert fault.time - gone.time < 40
    assert outcome.called == "fatal"
    for report in (outcome.answer.report, diagnose_bundle(known, tmp_path / "kept").report):
        first = report.diagnoses[0]
        assert (first.fault, first.suspects[0].rank, first.role) == ("segfault", 2, "root_cause")


def test_how_a_process_ended_is_read_while_its_parent_has_not_asked():
    """A signal by its name, a status by its number; nothing once it is taken."""
    host = Host()
    for words, how in (
        (["-c", "import os; input(); os.kill(os.getpid(), 9)"], "SIGKILL"),
        (["-c", "input(); raise SystemExit(3)"], "exit 3"),
    ):
        with subprocess.Popen([sys.executable, *words], stdin=subprocess.PIPE) as child:
            [[one], _] = host.ranks(ProcessSelector(pids=(child.pid,)))
            child.stdin.write(b"\n")
            child.stdin.close()
            os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
            assert (host.alive(one.main), host.ended(one.main)) == (False, how)
            child.wait()
            assert host.ended(one.main) == ""


# Metrics


def spinning(hangs):
    """Forty minutes of eight GPUs on one node, which spin and move nothing from a time on."""
    for tick in range(160):
        at = START - 1200 + 15 * tick
        stuck = at >= hangs
        for gpu in range(8):
            who = {"Hostname": "gpu-a07", "gpu": str(gpu)}
            yield line("DCGM_FI_DEV_GPU_UTIL", 100 if stuck else 98, at, **who)
            yield line("DCGM_FI_PROF_SM_ACTIVE", 0.08 if stuck else 0.71, at, **who)
        for way in ("transmitted", "received"):
            port = {"instance": "gpu-a07:9100", "device": "mlx5_0", "port": "1"}
            yield line(
                f"node_infiniband_port_data_{way}_bytes_total", 2e10 * (min(at, hangs) - START + 1200), at, **port
            )


@pytest.mark.slow  # kb/hangs/test_votes.py
def test_gpus_that_spin_while_nothing_moves_are_a_vote(known, tmp_path):
    """With a real Prometheus and silent logs: called, stored in the bundle, and the same vote from there."""
    needed()
    job = Job(tmp_path / "logs", hangs_at=START + 120, spy=False)
    with serving(tmp_path / "prometheus", list(spinning(START + 120))) as address:
        source = Prometheus(HttpClient(Endpoint(address)), gpu=SPIN_GPU, node=SPIN_NODE, side_by_side=1)
        metrics = MetricsPoller(source, patience=20.0)
        ran = watched(known, job, tmp_path / "kept", metrics=metrics, limit=600.0)
    votes = [{vote["probe"]: vote["vote"] for vote in new.fields["votes"]} for new in ran.news if new.event == "votes"]
    assert (votes[3]["spin"], "yes" in {vote["spin"] for vote in votes}) == ("no", True)
    assert ran.outcome.called == "hang"
    assert {"dcgm_fi_prof_sm_active.json"} < {path.name for path in (tmp_path / "kept/metrics").iterdir()}


class MetricsOnly:
    """A metrics source without checks."""

    provides: frozenset[EvidenceKind] = frozenset({"metrics"})

    def check(self, _deadline: Deadline) -> CheckResult:
        """It is not asked for."""
        raise NotImplementedError


def test_a_dead_source_of_metrics_holds_nothing_up(known, tmp_path):
    """It is a gap, and the hang is called without it."""

    class Dead(MetricsOnly):
        def collect(self, _asked, _spool):
            raise SourceFailed("unreachable", "it cannot be reached")

    job = Job(tmp_path / "logs", hangs_at=START + 60)
    ran = watched(known, job, tmp_path / "kept", metrics=MetricsPoller(Dead(), patience=20.0))
    assert ran.outcome.called == "hang"
    assert "cannot be reached" in ran.first("gap").text


def test_a_slow_source_is_not_waited_for():
    """Its answer comes at a later look."""
    over = threading.Event()

    class Slow(MetricsOnly):
        def collect(self, _asked, spool):
            over.wait(60)
            spool.write("metrics/x.json", b"{}")
            return [Gap("late", "metrics", "late")]

    record = JobRecord(NamedJob(id="1"), "test")
    metering = MetricsPoller(Slow(), patience=0.01)
    assert metering.look(START, record) is None
    over.set()
    while (found := metering.look(START + 1, record)) is None:
        time.sleep(0.05)
    assert found == ({"metrics/x.json": b"{}"}, (Gap("late", "metrics", "late"),))
    assert metering.look(START + 2, record) is None
