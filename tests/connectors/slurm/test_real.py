"""Slurm as packaged by Debian: real jobs that end in every way, found and described by commands and by slurmrestd."""

import json
import time
from dataclasses import replace

import pytest

from bot.backfill.past_jobs import past_jobs
from bot.config.settings import Cluster, Connector
from connectors.base.contract import CollectionRequest, Deadline, JobQuery, SourceFailed
from connectors.base.http import Endpoint
from connectors.base.secret import Secret
from connectors.slurm.connector import Slurm, SlurmSettings
from kb.model import Job, JobRecord, Window
from kb.parsers.schedulers.slurmjson import read_slurm
from tests.support.contract.subject import Memory
from tests.support.slurm_cluster import NODES, real_slurm, with_rest

ODD = 'pre\'train "%j",{x}'
FAILS = 'srun bash -c "sleep 1; if [ \\$SLURM_PROCID = 3 ]; then exit 7; fi; sleep 2"'


@pytest.fixture(scope="module")
def cluster():
    """A cluster on which one job of each kind has run; `ids` maps each kind to its job id."""
    with real_slurm() as one:
        with_rest(one)
        ids = {}
        # the controller looks at limits every 30 s; nothing in the accounting has been known to be quicker
        ids["late"] = one.submit("-J", "late", "--wrap", "sleep 600")
        one.wait(ids["late"], "RUNNING")
        one.run("scontrol", "update", f"jobid={ids['late']}", "EndTime=now+2seconds")
        ids["good"] = one.submit("-J", "pretrain", "--wrap", "true")
        one.wait(ids["good"], "COMPLETED")
        ids["failed"] = one.submit(
            *(
                "-J",
                "pretrain",
                "-N2",
                "--ntasks-per-node=2",
                "-o",
                "%x-%j-%u.out",
                "-e",
                "err-%5j-%%.txt",
                "--wrap",
                FAILS,
            )
        )
        ids["odd"] = one.submit("-J", ODD, "--wrap", "exit 5")
        ids["broken"] = one.submit("-J", "two\nlines", "--wrap", "exit 6")
        ids["array"] = one.submit("-J", "sweep", "--array=1-2", "--wrap", "exit $SLURM_ARRAY_TASK_ID")
        ids["het"] = one.submit("-J", "parts", "-N1", ":", "-N1", "--wrap", "srun --het-group=0,1 true; exit 4")
        ids["crashed"] = one.submit("-J", "crashed", "--wrap", "kill -SEGV $$")
        ids["again"] = one.submit("-J", "again", "--requeue", "--wrap", "[ $SLURM_RESTART_COUNT ] && exit 9; sleep 600")
        ids["memory"] = one.submit(
            *("-J", "memory", "--mem=64", "--wrap", "srun python3 -c 'print(len(bytearray(600 << 20)))'")
        )
        ids["stopped"] = one.submit("-J", "stopped", "--wrap", "srun sleep 600")
        one.wait(ids["stopped"], "RUNNING")
        one.wait(ids["again"], "RUNNING")
        one.run("scancel", ids["stopped"])
        one.run("scontrol", "requeue", ids["again"])
        one.wait(ids["again"], "PENDING")
        one.run("scontrol", "update", f"jobid={ids['again']}", "StartTime=now")
        one.run("scontrol", "update", "nodename=gpu02", "state=drain", "reason=fan 3 [is] loud")
        for name, states in (
            ("failed", ("FAILED",)),
            ("odd", ("FAILED",)),
            ("broken", ("FAILED",)),
            ("array", ("FAILED",)),
            ("het", ("FAILED",)),
            ("crashed", ("FAILED", "CANCELLED")),
            ("again", ("FAILED",)),
            ("stopped", ("CANCELLED",)),
            ("memory", ("FAILED", "COMPLETED")),
        ):
            one.wait(ids[name], *states)
        one.ids = ids
        yield one


@pytest.fixture
def slurm(cluster, monkeypatch):
    """The connector by commands."""
    monkeypatch.setenv("PATH", cluster.environment["PATH"])
    return Slurm(SlurmSettings(conf=cluster.conf, outputs=(str(cluster.at),)))


@pytest.fixture
def rest(cluster, monkeypatch):
    """The connector by slurmrestd, whose version it finds out."""
    monkeypatch.setenv("TOKEN_OF_SLURM", cluster.token)
    return Slurm(
        SlurmSettings(
            rest=Endpoint(cluster.rest),
            rest_user="root",
            rest_token=Secret(env="TOKEN_OF_SLURM"),
            outputs=(str(cluster.at),),
        )
    )


def found(slurm, text, **more):
    """What a query finds in the last hour."""
    now = time.time()
    return slurm.find(JobQuery(text, Window(now - 3600, now + 60), **more), Deadline.within(30))


def test_a_failed_job(cluster, slurm):
    """State, exit code of the step that failed, nodes with their ranks, switches, output files, the last good run."""
    (record,) = found(slurm, cluster.ids["failed"])
    (attempt,) = record.attempts
    job = record.job
    assert (job.id, job.name, job.owner, job.cluster, job.state) == (
        *(cluster.ids["failed"], "pretrain", "root", "west"),
        "FAILED",
    )
    assert (dict(job.nodes), job.world_size) == ({"gpu01": (0, 1), "gpu02": (2, 3)}, 4)
    assert (attempt.number, attempt.state, attempt.exit_code, attempt.signal, attempt.nodes) == (
        0,
        "FAILED",
        7,
        None,
        NODES,
    )
    assert attempt.queued <= attempt.scheduled == job.start <= attempt.stopped == job.end
    assert record.topology == {
        "gpu01": {"leaf": "leaf1", "spine": "spine"},
        "gpu02": {"leaf": "leaf2", "spine": "spine"},
    }
    out = cluster.at / "out"
    # the name with the number filled up with zeros is what Slurm wrote; both are there
    assert record.paths == (f"{out}/pretrain-{job.id}-root.out", f"{out}/err-{int(job.id):05}-%.txt")
    assert sorted(record.paths) == sorted(str(path) for path in out.iterdir() if str(path) in record.paths)
    assert record.last_good == cluster.ids["good"]
    assert [(member.name, member.node, member.rank) for member in record.members] == [
        (f"{job.id}.{rank}", f"gpu0{rank // 2 + 1}", rank) for rank in range(4)
    ]


def test_out_of_memory(cluster, slurm):
    """A step that exceeds the job's memory is reported, where the kernel enforces the limit that Slurm set."""
    if not cluster.limits:
        pytest.skip("no memory controller of cgroup v1 here: Slurm 22.05 cannot keep limits")
    (record,) = found(slurm, cluster.ids["memory"])
    if record.job.state == "COMPLETED":
        pytest.skip("this kernel did not keep the limit that Slurm set")
    answer, _ = collected(slurm, cluster.ids["memory"])
    killed = [event for event in answer.events if event.kind == "oom_kill"]
    assert [(item.fields["step"], item.resource.node) for item in killed] == [("0", record.attempts[-1].nodes[0])]
    assert "Detected 1 oom" in (cluster.at / "out" / f"slurm-{cluster.ids['memory']}.out").read_text()


def test_a_requeued_job_has_its_attempts(cluster, slurm):
    """Runs under one id are attempts, oldest first, each with its own times and end."""
    (record,) = found(slurm, cluster.ids["again"])
    assert [(attempt.number, attempt.state) for attempt in record.attempts] == [(0, "REQUEUED"), (1, "FAILED")]
    assert (record.attempts[1].exit_code, record.job.attempt) == (9, 1)
    assert record.attempts[0].stopped <= record.attempts[1].scheduled


def test_arrays_and_jobs_of_several_parts(cluster, slurm):
    """A task of an array and a part are jobs of their own; the id of a job of parts is all of them; a step is its job."""
    base, het = cluster.ids["array"], cluster.ids["het"].partition("+")[0]
    assert [group.job.id for group in found(slurm, f"{base}_2")] == [f"{base}_2"]
    assert {group.job.id for group in found(slurm, base)} == {f"{base}_1", f"{base}_2"}
    (whole,) = found(slurm, het)
    assert (whole.job.id, whole.job.state, len(whole.job.nodes)) == (het, "FAILED", len(whole.members))
    assert [group.job.id for group in found(slurm, f"{het}+1")] == [f"{het}+1"]
    assert [group.job.id for group in found(slurm, f"{cluster.ids['failed']}.0")] == [cluster.ids["failed"]]
    assert [group.job.id for group in found(slurm, f"{cluster.ids['failed']}.batch")] == [cluster.ids["failed"]]


@pytest.mark.parametrize("way", ["slurm", "rest"])
def test_by_name_newest_first(cluster, way, request):
    """Jobs of one name come newest first, those of another user not."""
    one = request.getfixturevalue(way)
    assert [record.job.id for record in found(one, "pretrain")] == [cluster.ids["failed"], cluster.ids["good"]]
    assert found(one, "pretrain", user="ada") == ()
    assert found(one, "PRETRAIN") == ()


@pytest.mark.parametrize("way", ["slurm", "rest"])
@pytest.mark.parametrize(("text", "job"), [(ODD, "odd"), ("two\nlines", "broken")])
def test_odd_names(cluster, way, request, text, job):
    """Quotes, commas, percent signs and line breaks in a name find that job and no other."""
    assert [record.job.id for record in found(request.getfixturevalue(way), text)] == [cluster.ids[job]]


@pytest.mark.parametrize("way", ["slurm", "rest"])
def test_no_name_becomes_another_query_either_way(way, request):
    """A list of names, a pattern and an option are the names of no jobs."""
    one = request.getfixturevalue(way)
    assert [found(one, text) for text in ("pretrain,late", "pre%", "--help", "1&state=ALL")] == [()] * 4


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    "text",
    ["", "--help", "--state=ALL", "pretrain,late", "pre%", "*", "' or '1'='1", "1,2", "1;2", "-1", "x" * 5000, "%"],
)
def test_no_name_becomes_another_query(slurm, text):
    """Text that is not the name of a job finds nothing, whatever it means to a shell, a database or sacct."""
    assert found(slurm, text) == ()


@pytest.mark.parametrize("way", ["slurm", "rest"])
def test_what_ran_lately(way, request):
    """The jobs of a window, each once, newest first."""
    now = time.time()
    listed = request.getfixturevalue(way).recent(Window(now - 3600, now + 60), Deadline.within(30))
    assert {job_summary.name for job_summary in listed} >= {"late", "pretrain", "sweep", "parts", "again"}
    assert len({job_summary.id for job_summary in listed}) == len(listed)
    assert [job_summary.start or 0 for job_summary in listed] == sorted(
        (job_summary.start or 0 for job_summary in listed), reverse=True
    )


def collected(slurm, job_id):
    """What a collection gives: slurm.json as it is read, and the gaps."""
    deadline = Deadline.within(30)
    shelf = Memory(deadline)
    gaps = tuple(slurm.collect(CollectionRequest(JobRecord(Job(id=job_id), "slurm"), Window(0, 1), deadline), shelf))
    return read_slurm(shelf.parts["slurm.json"], "slurm.json", job_id)[0] if shelf.parts else None, gaps


def test_collected_by_commands(cluster, slurm):
    """The part of the bundle describes every run and step, and the node that was drained since, with the reason."""
    answer, gaps = collected(slurm, cluster.ids["failed"])
    assert gaps == ()
    told = [(event.kind, event.resource.node, event.reason) for event in answer.events]
    assert ("exit", None, "FAILED") in told
    assert ("cordoned", "gpu02", "fan 3 [is] loud") in told
    assert [event.fields.get("exit_code") for event in answer.events if event.kind == "exit"] == [7, 7, 7]


def test_collected_by_slurmrestd(cluster, rest):
    """The same by slurmrestd, but for the exit codes, which its v0.0.38 leaves out: they are not known, and not 0."""
    answer, gaps = collected(rest, cluster.ids["failed"])
    assert gaps == ()
    assert ("cordoned", "gpu02", "fan 3 [is] loud") in [
        (event.kind, event.resource.node, event.reason) for event in answer.events
    ]
    assert {event.fields.get("exit_code") for event in answer.events if event.kind == "exit"} == {None}
    (record,) = found(rest, cluster.ids["failed"])
    assert (record.job.state, dict(record.job.nodes)) == ("FAILED", {"gpu01": (0, 1), "gpu02": (2, 3)})
    assert record.attempts[-1].exit_code == 7  # of the controller, while it remembers
    assert (record.last_good, len(record.paths)) == (cluster.ids["good"], 2)


@pytest.mark.parametrize("way", ["slurm", "rest"])
@pytest.mark.parametrize("job_id", ["99999999", "no-such-job", "1;id", "--help"])
def test_no_such_job(way, request, job_id):
    """An unknown id is a gap, and no part is written."""
    answer, gaps = collected(request.getfixturevalue(way), job_id)
    assert (answer, [gap.code for gap in gaps]) == (None, ["slurm-no-job"])


@pytest.mark.parametrize("way", ["slurm", "rest"])
def test_it_can_be_tried(way, request):
    """`config check` reports what answered and what was sent."""
    checked = request.getfixturevalue(way).check(Deadline.within(30))
    assert checked.works, checked
    assert checked.sent


def test_a_wrong_token_is_reported(rest, monkeypatch):
    """A wrong token goes on to the controller, whose refusal comes as a failure with words."""
    monkeypatch.setenv("TOKEN_OF_SLURM", "x.y.z")
    checked = rest.check(Deadline.within(20))
    assert not checked.works
    assert "x.y.z" not in json.dumps([checked.words, checked.sent, checked.change])


def test_through_a_shell_at_another_host(cluster, slurm):
    """Where the words go through a shell at the other end they are quoted into one: a name does no more than here."""
    through = Slurm(replace(slurm.settings, via=("sh", "-c"), shell=True))  # noqa: S604 - what is tried
    marked = cluster.at / "marked"
    assert found(through, f"x; touch {marked}") == found(through, f"$(touch {marked})") == ()
    assert not marked.exists()
    assert [group.job.id for group in found(through, ODD)] == [cluster.ids["odd"]]


def test_without_slurm(tmp_path, monkeypatch):
    """Where the commands are missing, the failure says what to do."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SourceFailed) as raised:
        found(Slurm(SlurmSettings()), "1")
    assert raised.value.kind == "not_configured"
    assert "via" in raised.value.hint


@pytest.mark.parametrize(
    ("name", "ended"),
    [
        ("late", ("TIMEOUT", None, 15)),
        ("stopped", ("CANCELLED", None, 15)),
        ("crashed", ("FAILED", None, 11)),
        ("odd", ("FAILED", 5, None)),
        ("broken", ("FAILED", 6, None)),
        ("good", ("COMPLETED", None, None)),
    ],
)
def test_how_jobs_end(cluster, slurm, name, ended):
    """Each end comes with Slurm's own word, exit code and signal."""
    if name == "late":
        cluster.wait(cluster.ids[name], "TIMEOUT", seconds=180)
    # the accounting has the state first, and the signal once the batch script is gone (KillWait is half a minute)
    end = time.monotonic() + 90
    while True:
        (record,) = found(slurm, cluster.ids[name])
        last = record.attempts[-1]
        told = (record.job.state, last.exit_code or None, last.signal)
        if told == ended or time.monotonic() > end:
            break
        time.sleep(0.5)
    assert told == ended


def test_a_backfill_sees_the_bad_ends(cluster, slurm):
    """Each job that failed is found, including the runs of the requeued one; completed and cancelled jobs are distinguished."""
    bad = {"failed", "odd", "broken", "het", "again"}
    cluster_ = Cluster("west", connectors=(Connector("slurm", "slurm", slurm.settings),))
    now = time.time()
    past = past_jobs((cluster_,), now - 2 * 86400, now + 60)
    found = {job.job: job for job in past.jobs}
    assert past.troubles == ()
    assert {cluster.ids[name] for name in bad} <= set(found)
    assert not {cluster.ids[name] for name in ("good", "stopped")} & set(found)
    assert f"{cluster.ids['array']}_1" in found
    assert found[cluster.ids["odd"]].how == "FAILED, exit code 5"
    assert {job.job for job in past_jobs((cluster_,), now - 86400, now + 60, pattern="pre*").jobs} == {
        cluster.ids["failed"],
        cluster.ids["odd"],
    }
