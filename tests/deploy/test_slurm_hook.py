"""deploy/slurm on a real Slurm: jobs that fail reach a real server at once, others do not, and no job is held up."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from waitress.server import create_server

from bot.config.settings import Webhook
from bot.policy.job_end import JobWatcherSettings, as_of
from bot.queue.tasks import TaskQueue
from bot.server.job_watcher import JobWatcher, WatchedScheduler, ask_of, job_ends_of
from bot.server.webhooks import app
from connectors.base.contract import Deadline, JobQuery
from connectors.base.secret import Secret
from connectors.slurm.connector import Slurm, SlurmSettings
from kb.model import Window
from tests.support.common.job_watcher_shelf import Shelf
from tests.support.paths import ROOT
from tests.support.slurm_cluster import RealSlurm, real_slurm

SCRIPT = ROOT / "deploy" / "slurm" / "signalbox-epilog.sh"
SECRET = 'odd "secret\\ of $(the) test'  # noqa: S105 - of the test
ODD = 'it\'s "odd"\n@&job=1'


@dataclass
class Site:
    """A server of ours, and the folders of the script: one for each way in which Slurm can call it."""

    url: str
    epilog: Path
    completion: Path

    def jobs(self, tenant: str = "epilog") -> dict[str, str]:
        """The jobs in the work list: id → why. Each way has its own tenant."""
        with TaskQueue(self.url) as works:
            found = [works.work(number) for number in range(1, 1 + sum(works.counts().values()))]
        told = [json.loads(item.payload) for item in found]
        assert all((item["cluster"], item["source"]) == ("west", "scheduler") for item in told)
        return {item["job"]: item["why"] for item in told if item["tenant"] == tenant}


@contextmanager
def site(folder: Path) -> Iterator[Site]:
    """A real server, and the script installed as the document says."""
    url = f"sqlite:///{folder / 'state' / 'signalbox.db'}"
    own = Site(url, folder / "epilog", folder / "completion")
    hooks = {}
    for place in (own.epilog, own.completion):
        place.mkdir()
        secret = place / "signalbox-secret"
        secret.write_text(f"{SECRET}\n")
        secret.chmod(0o600)
        hooks[place.name] = Webhook(place.name, Secret(file=str(secret)), cluster="west")
        shutil.copy2(SCRIPT, place)
    server = create_server(app(lambda: TaskQueue(url), hooks), host="127.0.0.1", port=0, threads=4)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    for place in (own.epilog, own.completion):
        settings(place, f"http://127.0.0.1:{server.effective_port}/hooks/ended/{place.name}")
    try:
        yield own
    finally:
        server.close()
        thread.join(10)


def settings(folder: Path, address: str) -> None:
    """Write the script's settings."""
    (folder / "signalbox-epilog.conf").write_text(
        f"SIGNALBOX_URL={address}\nSIGNALBOX_SECRET_FILE={folder / 'signalbox-secret'}\n"
    )


def until(what: Callable[[], object], seconds: float = 90.0) -> None:
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.1)


def ran(cluster: RealSlurm) -> dict[str, str]:
    """One job of each kind, ended: name → id."""
    ids = {
        "good": cluster.submit("-J", "good", "--wrap", "true"),
        "bad": cluster.submit("-J", ODD, "--wrap", "exit 3"),
        "killed": cluster.submit("-J", "killed", "--wrap", "kill -SEGV $$"),
        "array": cluster.submit("-J", "sweep", "--array=1-2", "--wrap", "exit $((SLURM_ARRAY_TASK_ID - 1))"),
        "parts": cluster.submit("-J", "parts", "-N1", ":", "-N1", "--wrap", "exit 4").partition("+")[0],
        "again": cluster.submit("-J", "again", "--requeue", "--wrap", "exit 77"),
        "stopped": cluster.submit("-J", "stopped", "--wrap", "srun sleep 600"),
        "lost": cluster.submit("-J", "lost", "--requeue", "--wrap", "sleep 600"),
    }
    for name in ("stopped", "lost"):
        cluster.wait(ids[name], "RUNNING")
    cluster.run("scancel", ids["stopped"])
    for name in ("bad", "parts", "stopped"):
        cluster.wait(ids[name], "FAILED", "CANCELLED")
    [node] = cluster.run("squeue", "-h", "-j", ids["lost"], "-o", "%N").split()
    cluster.run("scontrol", "update", f"nodename={node}", "state=down", "reason=gone")
    for name in ("lost", "again"):
        cluster.wait(ids[name], "PENDING")  # they were requeued
    return ids


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RealSlurm, Site, dict[str, str]]]:
    """A cluster whose controller calls the script at the end of each job, and one job of each kind that has ended."""
    with (
        site(tmp_path_factory.mktemp("site")) as own,
        real_slurm(
            "RequeueExit=77",
            f"EpilogSlurmctld={own.epilog / SCRIPT.name}",
            "JobCompType=jobcomp/script",
            f"JobCompLoc={own.completion / SCRIPT.name}",
        ) as slurm,
    ):
        yield slurm, own, ran(slurm)


def test_a_job_that_fails_is_reported_at_once(cluster) -> None:
    """Failed jobs, tasks of arrays and jobs of parts come, by the ids that people use; good and stopped ones do not."""
    _, own, ids = cluster
    wanted = {
        ids["bad"]: "job ended: exit code 3",
        ids["killed"]: "job ended: signal 11",
        f"{ids['array']}_2": "job ended: exit code 1",
        ids["parts"]: "job ended: exit code 4",
        ids["again"]: "job ended: exit code 77",
    }
    until(lambda: own.jobs().keys() >= wanted.keys())
    assert {job: why for job, why in own.jobs().items() if job != ids["lost"]} == wanted


def test_by_job_completion(cluster) -> None:
    """As jobcomp/script the same file knows the state too, so also that a node failed under a job."""
    _, own, ids = cluster
    wanted = {
        ids["bad"]: "job ended: FAILED, exit code 3",
        ids["killed"]: "job ended: FAILED, signal 11",
        f"{ids['array']}_2": "job ended: FAILED, exit code 1",
        ids["parts"]: "job ended: FAILED, exit code 4",
        ids["again"]: "job ended: FAILED, exit code 77",
        ids["lost"]: "job ended: NODE_FAIL",
    }
    until(lambda: own.jobs("completion").keys() >= wanted.keys())
    assert own.jobs("completion") == wanted


def test_the_look_at_the_accounting_finds_the_rest(cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job reported by the hook is not queried again; a node failure without exit code is found despite a requeue."""
    slurm, own, ids = cluster
    monkeypatch.setenv("PATH", slurm.environment["PATH"])
    place, shelf = WatchedScheduler("epilog", "west", "slurm", Slurm(SlurmSettings(conf=slurm.conf))), Shelf()
    shelf.add([place.marker])  # of an earlier start
    until(lambda: len(own.jobs()) >= 5)
    before = own.jobs()
    watch = JobWatcher((place,), ask_of(lambda: TaskQueue(own.url)), shelf, lambda _: None, JobWatcherSettings())
    watch.look(time.time())
    assert (place.failures, own.jobs()) == (0, {**before, ids["lost"]: "job ended: NODE_FAIL"})


def test_the_run_that_ended_is_meant(cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job that lost its node waits again; as of its end it failed, on the node that it had."""
    slurm, _, ids = cluster
    monkeypatch.setenv("PATH", slurm.environment["PATH"])
    finder, now = Slurm(SlurmSettings(conf=slurm.conf)), time.time()
    [record] = finder.find(JobQuery(ids["lost"], Window(now - 3600, now + 60)), Deadline.within(30))
    [listed] = [
        job_summary
        for job_summary in finder.recent(Window(now - 3600, now + 60), Deadline.within(30))
        if job_summary.id == ids["lost"]
    ]
    [ending] = job_ends_of("epilog", "west", listed, now)
    was = as_of(record, ending.ended)
    assert record.job.state != "NODE_FAIL"
    assert (was.job.state, was.job.end, len(was.job.nodes)) == ("NODE_FAIL", ending.ended, 1)


# -- the script by itself ------------------------------------------------------------------------------------------------


def run(folder: Path, **told: str) -> subprocess.CompletedProcess[str]:
    """The script as Slurm starts it: nothing but its own variables."""
    return subprocess.run(
        ["/bin/sh", str(folder / SCRIPT.name)], env=told, capture_output=True, text=True, timeout=60, check=False
    )


def test_good_ends_send_nothing(tmp_path: Path) -> None:
    """Not even a connection: most jobs end well."""
    shutil.copy2(SCRIPT, tmp_path)
    (tmp_path / "signalbox-secret").write_text(SECRET)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.5)
        settings(tmp_path, f"http://127.0.0.1:{server.getsockname()[1]}/")
        for told in (
            {"SLURM_JOB_ID": "1", "SLURM_JOB_EXIT_CODE2": "0:0"},
            {"JOBID": "1", "JOBSTATE": "COMPLETED", "EXITCODE": "0:0"},
            {"JOBID": "1", "JOBSTATE": "CANCELLED", "EXITCODE": "0:15"},
            {"JOBID": "1", "JOBSTATE": "PREEMPTED", "EXITCODE": "0:15"},
            {"SLURM_JOB_EXIT_CODE2": "1:0"},
            {},
        ):
            done = run(tmp_path, **told)
            assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        with pytest.raises(TimeoutError):
            server.accept()


def test_a_server_that_is_silent_holds_up_nothing(tmp_path: Path) -> None:
    """The script is over at once, with status 0, and the secret is on no command line meanwhile."""
    shutil.copy2(SCRIPT, tmp_path)
    (tmp_path / "signalbox-secret").write_text(SECRET)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        settings(tmp_path, f"http://127.0.0.1:{server.getsockname()[1]}/")
        done = run(tmp_path, SLURM_JOB_ID="1", SLURM_JOB_EXIT_CODE2="1:0")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        caller, _ = server.accept()
        with caller:
            lines = [command_line(path) for path in Path("/proc").glob("[0-9]*/cmdline")]
            assert [line for line in lines if SECRET.encode()[:11] in line] == []
            caller.settimeout(60)
            assert b"Authorization: Bearer " + SECRET.encode() in caller.recv(65536)


def command_line(path: Path) -> bytes:
    """The command line of a process; empty if it has ended."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize("lacking", ["signalbox-epilog.conf", "signalbox-secret"])
def test_without_its_settings(tmp_path: Path, lacking: str) -> None:
    """It does nothing, without an error."""
    shutil.copy2(SCRIPT, tmp_path)
    (tmp_path / "signalbox-secret").write_text(SECRET)
    settings(tmp_path, "http://127.0.0.1:9/")
    (tmp_path / lacking).unlink()
    done = run(tmp_path, SLURM_JOB_ID="1", SLURM_JOB_EXIT_CODE2="1:0")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_it_is_executable_and_plain() -> None:
    """Slurm starts the file itself; a plain sh must read it."""
    assert os.access(SCRIPT, os.X_OK)
    shell = shutil.which("dash") or "/bin/sh"
    assert subprocess.run([shell, "-n", str(SCRIPT)], check=False).returncode == 0
