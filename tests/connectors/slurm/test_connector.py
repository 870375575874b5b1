"""Slurm without a Slurm: newer versions' JSON by a double of slurmrestd, newer columns by a double of sacct, file patterns."""

import time

import pytest

from connectors.base.contract import CollectionRequest, Deadline, JobQuery, JobSummary
from connectors.base.http import Endpoint, Login
from connectors.base.secret import Secret
from connectors.slurm.connector import Slurm, SlurmSettings
from connectors.slurm.records import expanded, outputs, switches
from kb.model import Attempt, Job, JobRecord, Window
from kb.parsers.schedulers.slurmjson import SlurmRun, read_slurm
from tests.doubles.slurmrestd import END, START, TOKEN, USER, VERSION, slurmrestd
from tests.support.contract.subject import Memory, Subject, hasty
from tests.support.contract.suite import Contract

RUN = SlurmRun(
    Job(id="12", name="a/b", owner="ada"),
    nodes=("gpu-1.west", "gpu-2"),
    tasks={"gpu-1.west": (0, 1), "gpu-2": (2, 3)},
    folder="/scratch/ada",
)
# of Slurm 24.11, which has more columns than 22.05; it prints what it is asked for, in that order
SACCT = r"""#!/bin/sh
case "$1" in
  --helpformat) echo "JobID JobIDRaw JobName User Cluster Partition NodeList NTasks Layout Reason ExitCode Submit Eligible Start End
    TimelimitRaw AllocTRES WorkDir Restarts StdOut StdErr FailedNode State"; exit;;
  --version) echo "slurm 24.11.5"; exit;;
esac
for word in "$@"; do case "$word" in --delimiter=*) d="${word#--delimiter=}";; --format=*) f="${word#--format=}";; esac; done
case "$f" in *Restarts,StdOut,StdErr,FailedNode,State) ;; *) echo "sacct: error: not all columns" >&2; exit 1;; esac
row() { first=1; for cell in "$@"; do [ $first ] || printf '%s' "$d"; first=; printf '%s' "$cell"; done; printf '\n'; }
row 9 9 train ada west gpu "n[1-2]" "" "" None 0:0 100 101 110 200 60 cpu=4,gres/gpu=4 /w 1 /w/%j.out "" n2 NODE_FAIL
row 9.0 9.0 python "" west "" "n[1-2]" 4 Cyclic "" 0:9 110 110 110 200 "" cpu=4 "" "" "" "" "" FAILED
"""


def restd(url, client=None):
    """The connector for a slurmrestd."""
    settings = SlurmSettings(
        rest=Endpoint(url),
        rest_user=USER,
        rest_token=Secret(env="TOKEN_OF_DOUBLE"),
        rest_version=VERSION,
        outputs=("/scratch",),
    )
    return Slurm(settings, client)


def quick(url):
    """A connector whose client logs in by itself and has short delays."""
    login = Login(
        headers={"X-SLURM-USER-NAME": USER}, secret_headers={"X-SLURM-USER-TOKEN": Secret(env="TOKEN_OF_DOUBLE")}
    )
    return restd(url, hasty(Endpoint(url, login=login)))


class TestContract(Contract):
    """What every connector over HTTP does."""

    subject = Subject("slurm", slurmrestd, quick, lambda name: JobRecord(Job(id=name, name=name), "slurm"), job="4711")

    @pytest.fixture(autouse=True)
    def token(self, monkeypatch):
        """The token, where the settings say."""
        monkeypatch.setenv("TOKEN_OF_DOUBLE", TOKEN)


@pytest.fixture
def rest(monkeypatch):
    """The connector for the double."""
    monkeypatch.setenv("TOKEN_OF_DOUBLE", TOKEN)
    with slurmrestd() as url:
        yield restd(url)


def found(slurm, text, **more):
    """What a query finds around the double's jobs."""
    return slurm.find(JobQuery(text, Window(START - 20_000, END + 60), **more), Deadline.within(60))


def test_a_job_of_a_newer_version(rest):
    """Lists of states, numbers with their bounds, signals by name: the record is that of any other version."""
    (record,) = found(rest, "4711")
    assert (record.job.state, record.job.gpus, record.job.world_size, record.last_good) == ("FAILED", 16, 16, "4700")
    assert dict(record.job.nodes) == {"gpu-1": tuple(range(8)), "gpu-2": tuple(range(8, 16))}
    assert record.attempts == (
        Attempt(
            0,
            "FAILED",
            "NonZeroExitCode",
            1,
            queued=START - 60.0,
            scheduled=float(START),
            stopped=float(END),
            nodes=("gpu-1", "gpu-2"),
        ),
    )
    assert record.paths == ("/scratch/ada/llm-7b-4711.out",)


def test_names_and_what_ran(rest):
    """A name finds its jobs, newest first; another user's are none of them."""
    assert [group.job.id for group in found(rest, "llm-7b")] == ["4711", "4700"]
    assert found(rest, "llm-7b", user="eve") == ()
    assert [job_summary.id for job_summary in rest.recent(Window(START, END), Deadline.within(60))] == ["4711"]


def test_what_is_listed_of_a_job(rest):
    """Who, where, how large, and how each of its runs ended."""
    (run,) = found(rest, "4711")[0].attempts
    assert rest.recent(Window(START, END), Deadline.within(60)) == (
        JobSummary(
            *("4711", "llm-7b", "FAILED", float(START), float(END), "ada"),
            partition="train",
            gpus=16,
            attempt=0,
            runs=(run,),
        ),
    )


def test_the_version_is_found_out(rest):
    """Without a version in the settings, the newest at which the server answers is taken."""
    bare = Slurm(SlurmSettings(rest=rest.settings.rest, rest_user=USER, rest_token=rest.settings.rest_token))
    assert bare.check(Deadline.within(60)).words.startswith(f"slurmrestd {VERSION}")


def test_nodes_and_their_reasons(rest):
    """A node that is down is reported with its reason and start time."""
    deadline = Deadline.within(60)
    shelf = Memory(deadline)
    assert (
        rest.collect(CollectionRequest(JobRecord(Job(id="4711"), "slurm"), Window(START, END), deadline), shelf) == ()
    )
    answer, _ = read_slurm(shelf.parts["slurm.json"], "slurm.json", "4711")
    (down,) = [event for event in answer.events if event.resource.node == "gpu-2"]
    assert (down.kind, down.reason, down.time) == ("node_failure", "Xid 79", END + 30.0)
    assert down.message == "gpu-2 is DOWN+DRAIN+NOT_RESPONDING: Xid 79"


def test_columns_of_newer_versions(tmp_path, monkeypatch):
    """Restarts, output files and the node that failed are asked for where sacct has them."""
    (tmp_path / "sacct").write_text(SACCT)
    (tmp_path / "scontrol").write_text("#!/bin/sh\necho slurm_load_jobs error: Invalid job id specified >&2; exit 1\n")
    for name in ("sacct", "scontrol"):
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (record,) = Slurm(SlurmSettings(outputs=("/w",))).find(JobQuery("9", Window()), Deadline.within(60))
    assert (record.job.attempt, record.job.state, record.paths) == (1, "NODE_FAIL", ("/w/9.out",))
    assert dict(record.job.nodes) == {"n1": (0, 2), "n2": (1, 3)}
    assert (record.attempts[-1].signal, record.topology, record.last_good) == (9, {}, None)


def test_commands_that_hang_are_left(tmp_path, monkeypatch):
    """A command has its time, and the deadline."""
    (tmp_path / "sacct").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "sacct").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    began = time.monotonic()
    checked = Slurm(SlurmSettings()).check(Deadline.within(0.5))
    assert time.monotonic() - began < 40
    assert (checked.works, "timed out after" in checked.words) == (False, True)


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("%j.out", ("12.out",)),
        ("%5j-%A_%a", ("00012-12_4294967294",)),
        ("%x/%u-%N-%n", ("a/b/ada-gpu-1-0",)),
        ("%t.log", ("0.log", "1.log", "2.log", "3.log")),
        ("100%%-%J", ("100%-12",)),
        ("%q%", ("%q%",)),
        ("\\%j", ("%j",)),
    ],
)
def test_patterns_of_file_names(pattern, names):
    """Each of sbatch's placeholders is filled in, with its width; other characters stay."""
    assert expanded(pattern, RUN) == names


@pytest.mark.parametrize(
    ("told", "folders", "paths"),
    [
        (("out-%j",), ("/scratch",), ("/scratch/ada/out-12",)),
        (("/scratch/x/%j", "/etc/shadow"), ("/scratch/",), ("/scratch/x/12",)),
        (("../../etc/passwd", "/scratch/../etc/passwd", "/scratchy/x"), ("/scratch",), ()),
        (("/scratch/a\nb",), ("/scratch",), ()),
        ((), ("/scratch",), ("/scratch/ada/slurm-12.out",)),
        (("out-%j",), (), ()),
        (("out-%j",), ("scratch",), ()),
    ],
)
def test_only_files_in_allowed_folders(told, folders, paths):
    """Files outside of the allowed folders are not named, also if the path climbs out; without allowed folders, none are."""
    shown = SlurmRun(Job(id="12"), outputs=told)
    assert outputs(RUN, shown, folders) == paths


def test_switches():
    """Leaf and spine of the tree plugin, blocks of the block plugin; other text is nothing."""
    tree = "SwitchName=l1 Level=0 LinkSpeed=1 Nodes=n[1-2]\nSwitchName=s Level=1 LinkSpeed=1 Nodes=n[1-2] Switches=l[1-2]\n"
    assert switches(tree) == {"n1": {"leaf": "l1", "spine": "s"}, "n2": {"leaf": "l1", "spine": "s"}}
    assert switches("BlockName=b1 BlockIndex=0 Nodes=n[1-2] BlockSize=2\n") == {
        "n1": {"nvlink_domain": "b1"},
        "n2": {"nvlink_domain": "b1"},
    }
    assert switches("slurm_load_topo error") == {}
