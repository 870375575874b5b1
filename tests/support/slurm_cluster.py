"""A real Slurm on this machine: controller, two nodes, accounting in MariaDB and slurmrestd, all in a temporary folder.

Ports, sockets, keys, database and control groups are its own, so that it disturbs no other. Debian's packages, run as root; where they are
missing, or this is not root, tests that want it are skipped, saying so.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.ports import kept_ports

NODES = ("gpu01", "gpu02")
PACKAGES = "slurm-wlm slurmdbd slurmrestd slurm-wlm-jwt-plugin mariadb-server munge"
PROGRAMS = ("slurmctld", "slurmd", "slurmdbd", "slurmrestd", "munged", "mariadbd", "mariadb-install-db", "sacct")
CONTROLLERS = tuple(Path("/sys/fs/cgroup", name) for name in ("freezer", "memory"))  # of cgroup v1
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
SECONDS = 90.0  # for any one part to come up
FINAL = {
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL"),
    *("OUT_OF_MEMORY", "PREEMPTED", "SPECIAL_EXIT", "TIMEOUT"),
}

SLURM = """
ClusterName=west
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={at}/munge.sock
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key={at}/jwt.key
CredType=cred/munge
SlurmctldPort={controller}
SlurmctldPidFile={at}/slurmctld.pid
SlurmctldLogFile={at}/slurmctld.log
StateSaveLocation={at}/state
SlurmdPidFile={at}/slurmd-%n.pid
SlurmdLogFile={at}/slurmd-%n.log
SlurmdSpoolDir={at}/spool-%n
SlurmdParameters=config_overrides
KillWait=1
MinJobAge=600
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
DefMemPerCPU=50
ReturnToService=2
ProctrackType=proctrack/{tracking}
TaskPlugin=task/{tasks}
JobAcctGatherType=jobacct_gather/linux
MpiDefault=none
SwitchType=switch/none
TopologyPlugin=topology/tree
JobRequeue=1
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={accounting}
AccountingStoragePass={at}/munge.sock
NodeName=gpu01 NodeHostname={host} NodeAddr=127.0.0.1 Port={gpu01} CPUs=16 RealMemory=4000 State=UNKNOWN
NodeName=gpu02 NodeHostname={host} NodeAddr=127.0.0.1 Port={gpu02} CPUs=16 RealMemory=4000 State=UNKNOWN
PartitionName=train Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
ACCOUNTING = """
AuthType=auth/munge
AuthInfo=socket={at}/munge.sock
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key={at}/jwt.key
DbdAddr=127.0.0.1
DbdHost={host}
DbdPort={accounting}
SlurmUser=root
LogFile={at}/slurmdbd.log
PidFile={at}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database}
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm
"""
CGROUPS = """
CgroupPlugin=cgroup/v1
CgroupMountpoint={at}/cgroup
ConstrainRAMSpace=yes
ConstrainSwapSpace=yes
AllowedSwapSpace=0
"""
SWITCHES = "SwitchName=leaf1 Nodes=gpu01\nSwitchName=leaf2 Nodes=gpu02\nSwitchName=spine Switches=leaf[1-2]\n"
FIRST = """
CREATE DATABASE slurm;
CREATE USER slurm@'127.0.0.1' IDENTIFIED BY 'slurm';
GRANT ALL ON slurm.* TO slurm@'127.0.0.1';
"""


@dataclass
class RealSlurm:
    """The cluster: its folder, its slurm.conf, whether its memory limits are kept, ports, slurmrestd's address and a token."""

    at: Path
    conf: str
    limits: bool
    ports: dict[str, int]
    rest: str = ""
    token: str = ""
    ids: dict[str, str] = field(default_factory=dict)  # of the jobs that a test started, by its names for them
    _running: list[subprocess.Popen] = field(default_factory=list)

    def run(self, *words: str) -> str:
        """What a command prints."""
        done = subprocess.run(
            words, env=self.environment, capture_output=True, text=True, timeout=60, check=False, cwd=self.at / "out"
        )
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout

    @property
    def environment(self) -> dict[str, str]:
        """The environment in which Slurm's programs find this cluster and no other."""
        return {**os.environ, "SLURM_CONF": self.conf, "PATH": PATH}

    def submit(self, *words: str) -> str:
        """The id of a new batch job."""
        return self.run("sbatch", "--parsable", *words).strip()

    def wait(self, job: str, *states: str, seconds: float = SECONDS) -> str:
        """Wait until the accounting has the last run of a job in one of these states."""
        end = time.monotonic() + seconds
        state = ""
        while time.monotonic() < end:
            rows = self.run("sacct", "-X", "-n", "-D", "-P", f"--jobs={job}", "--format=State").split("\n")
            state = (rows[-2] if len(rows) > 1 else "").partition(" ")[0]
            if state in states:
                return state
            assert not self._ended_otherwise(job, states), self.told(f"job {job} ended, not as {states}")
            time.sleep(0.2)
        raise AssertionError(self.told(f"job {job} is {state!r}, not {states}"))

    def _ended_otherwise(self, job: str, states: tuple[str, ...]) -> bool:
        """Whether the job will not reach any of these states: the controller, ahead of the accounting, has it in another final one."""
        told = self.run("scontrol", "--oneliner", "show", "job", job.partition("+")[0])
        now = {word.partition("=")[2] for word in told.split() if word.startswith("JobState=")}
        return bool(now) and now <= FINAL and not now & set(states)

    def told(self, trouble: str) -> str:
        """What is wrong, with the ends of the logs of all daemons."""
        logs = sorted((*self.at.glob("*.log"), *self.at.glob("*.out")))
        ends = [f"{log.name}:\n{log.read_text(errors='replace')[-2000:]}" for log in logs]
        return "\n\n".join((trouble, *ends))

    def start(self, name: str, *words: str, environment: dict[str, str] | None = None) -> None:
        """Start a daemon that stays in the foreground."""
        with (self.at / f"{name}.out").open("wb") as out:
            self._running.append(
                subprocess.Popen(words, env=environment or self.environment, stdout=out, stderr=subprocess.STDOUT)
            )

    def stop(self) -> None:
        """End all jobs, then all daemons, the last started first."""
        with suppress(AssertionError, subprocess.TimeoutExpired, OSError):
            self.run("scancel", "--user=root", "--full")
            _until(lambda: not self.run("squeue", "--noheader", "--states=running,completing"), seconds=10)
        for item in reversed(self._running):
            item.terminate()
            with suppress(subprocess.TimeoutExpired):
                item.wait(10)
            if item.poll() is None:
                item.kill()
                item.wait(10)


@contextmanager
def real_slurm(*more: str) -> Iterator[RealSlurm]:
    """A cluster for a while. `more`: lines for its slurm.conf."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]
    if missing:
        pytest.skip(f"no {', '.join(missing)}: apt-get install {PACKAGES}")
    if os.geteuid() != 0:
        pytest.skip("a Slurm of one's own needs root")
    with ExitStack() as stack:
        at = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))  # short: names of sockets are bounded
        stack.callback(shutil.rmtree, at, ignore_errors=True)
        limits = stack.enter_context(_control_groups(at))
        ports = stack.enter_context(kept_ports("controller", "accounting", "database", "rest", *NODES))
        cluster = RealSlurm(at, str(at / "slurm.conf"), limits, ports)
        stack.callback(cluster.stop)
        try:
            _up(cluster, more)
        except AssertionError as error:
            raise AssertionError(cluster.told(str(error))) from error
        yield cluster


@contextmanager
def _control_groups(at: Path) -> Iterator[bool]:
    """Give the cluster control groups of its own, below which Slurm makes those of its jobs; whether this machine lets us.

    Slurm names them by node, user and job only: in common ones, the end of a job of one cluster kills the job of the
    same number of another.
    """
    own = [place / at.name for place in CONTROLLERS]
    (at / "cgroup").mkdir()
    try:
        for place in own:
            place.mkdir()
            (at / "cgroup" / place.parent.name).symlink_to(place)
    except OSError:
        yield False
    else:
        yield True
    finally:
        for place in own:
            with suppress(AssertionError):  # the next cluster has other names
                _until(lambda place=place: _removed(place), seconds=10)


def _removed(group: Path) -> bool:
    """Whether a control group and those below it are gone; what still runs there is killed."""
    for folder, _, _ in os.walk(group, topdown=False):
        with suppress(OSError):
            for pid in Path(folder, "cgroup.procs").read_text().split():
                os.kill(int(pid), signal.SIGKILL)
        with suppress(OSError):  # busy until what was killed is gone
            Path(folder).rmdir()
    return not group.exists()


def _up(cluster: RealSlurm, more: tuple[str, ...]) -> None:
    at, ports = cluster.at, cluster.ports
    words = {"at": at, "host": os.uname().nodename.partition(".")[0], **ports}
    words |= {"tracking": "cgroup", "tasks": "cgroup"} if cluster.limits else {"tracking": "linuxproc", "tasks": "none"}
    at.chmod(0o755)
    for folder in ("state", "db", "tables", "out", *(f"spool-{node}" for node in NODES)):
        (at / folder).mkdir()
    texts = {
        "slurm.conf": SLURM,
        "slurmdbd.conf": ACCOUNTING,
        "cgroup.conf": CGROUPS,
        "topology.conf": SWITCHES,
        "first.sql": FIRST,
    }
    for name, text in texts.items():
        (at / name).write_text(text.format(**words))
    with (at / "slurm.conf").open("a") as conf:
        conf.writelines(f"{line}\n" for line in more)
    for name in ("jwt.key", "munge.key"):
        (at / name).write_bytes(os.urandom(64))
    for name in ("jwt.key", "munge.key", "slurmdbd.conf"):
        (at / name).chmod(0o600)
    _storage(cluster, ports)
    cluster.start("slurmdbd", "slurmdbd", "-D")
    _listening(ports["accounting"])
    cluster.run("sacctmgr", "--immediate", "add", "cluster", "west")
    cluster.start("slurmctld", "slurmctld", "-D")
    _listening(ports["controller"])
    for node in NODES:
        cluster.start(node, "slurmd", "-D", "-N", node)
    _until(lambda: cluster.run("sinfo", "-N", "-h", "-o", "%T").count("idle") == len(NODES))


def _storage(cluster: RealSlurm, ports: dict[str, int]) -> None:
    at = cluster.at
    # its own folder for temporary tables: a server that starts deletes those of all others in it
    plain = ("--no-defaults", "--user=root", f"--datadir={at}/db", f"--tmpdir={at}/tables")
    cluster.run("mariadb-install-db", *plain, "--skip-test-db", "--auth-root-authentication-method=normal")
    cluster.start(
        *(
            "mariadbd",
            "mariadbd",
            *plain,
            f"--port={ports['database']}",
            "--bind-address=127.0.0.1",
            "--skip-name-resolve",
        ),
        *(f"--socket={at}/sql.sock", f"--pid-file={at}/sql.pid", f"--init-file={at}/first.sql"),
        *("--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=64M"),
    )
    places = [
        f"--{name}={at}/munge.{end}" for name, end in (("socket", "sock"), ("key-file", "key"), ("pid-file", "pid"))
    ]
    places += [f"--log-file={at}/munge.log", f"--seed-file={at}/munge.seed"]
    cluster.start("munged", "munged", "--foreground", "--force", *places)
    _listening(ports["database"])
    _until((at / "munge.sock").exists)


def with_rest(cluster: RealSlurm) -> None:
    """Start slurmrestd for the cluster, and fetch a token for root. It only accepts tokens, so it runs as a user without rights."""
    port = cluster.ports["rest"]
    words = ("slurmrestd", "-a", "rest_auth/jwt", "-u", "nobody", f"127.0.0.1:{port}")
    cluster.start("slurmrestd", *words, environment={**cluster.environment, "SLURM_JWT": "daemon"})
    _listening(port)
    cluster.rest = f"http://127.0.0.1:{port}"
    cluster.token = cluster.run("scontrol", "token", "lifespan=600").strip().partition("=")[2]


def _listening(port: int) -> None:
    def reached() -> bool:
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", port)) == 0

    _until(reached)


def _until(holds, seconds: float = SECONDS) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "a part of Slurm did not come up"
        time.sleep(0.05)
