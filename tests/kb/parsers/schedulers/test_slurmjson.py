"""sacct's JSON of old and new parsers, and host lists."""

import json

import pytest

from kb.model import Job
from kb.parsers.schedulers.hostlists import MAX_NODES, hostlist
from kb.parsers.schedulers.slurmjson import event_of_state, read_slurm

START, END = 1_790_900_000, 1_790_942_400


def number(value, infinite=False):
    """A number as newer parsers write it."""
    return {"set": value is not None, "infinite": infinite, "number": value or 0}


def new(state=("FAILED",), code=1, signal=None, **more):
    """A job as v0.0.40 and later write it."""
    return {
        "job_id": 4711,
        "name": "pretrain",
        "cluster": "west",
        "user": "ada",
        "partition": "gpu",
        "nodes": "gpu-a[001-002],gpu-b07",
        "restart_cnt": 0,
        "state": {"current": list(state), "reason": "None"},
        "exit_code": {
            "status": ["ERROR"],
            "return_code": number(code),
            "signal": {"id": number(signal), "name": ""},
        },
        "time": {"submission": START - 60, "start": START, "end": END, "limit": number(2880)},
        "tres": {
            "allocated": [
                {"type": "gres", "name": "gpu", "count": 24},
                {"type": "gres", "name": "gpu:h100", "count": 24},
            ]
        },
        "failed_node": "",
        "steps": [],
    } | more


def old(state="FAILED", **more):
    """A job as v0.0.37 to v0.0.39 write it."""
    return {
        "job_id": 4711,
        "name": "pretrain",
        "cluster": "west",
        "association": {"user": "ada"},
        "partition": "gpu",
        "nodes": "gpu-a[001-002],gpu-b07",
        "restart_cnt": 0,
        "state": {"current": state, "reason": "None"},
        "exit_code": {"status": "ERROR", "return_code": 1},
        "time": {"submission": START - 60, "start": START, "end": END, "limit": 2880},
        "tres": {"allocated": [{"type": "gres", "name": "gpu", "count": 24}]},
    } | more


def answer(*jobs, job_id=None):
    """What is read of these jobs, with no gaps."""
    found, gaps = read_slurm(
        json.dumps({"meta": {"plugin": {}}, "jobs": jobs, "errors": []}).encode(), "slurm.json", job_id
    )
    assert gaps == ()
    return found


@pytest.mark.parametrize("form", [new, old])
def test_a_job_of_either_form(form):
    """Lists or words, plain numbers or sets: the job is the same."""
    (run,) = answer(form()).runs
    assert (run.job.id, run.job.name, run.job.cluster, run.job.owner, run.job.gpus) == (
        "4711",
        "pretrain",
        "west",
        "ada",
        24,
    )
    assert (run.job.state, run.job.start, run.job.end, run.job.attempt) == ("FAILED", START, END, 0)
    assert (run.states, run.reason, run.exit_code, run.signal) == (("FAILED",), "", 1, None)
    assert (run.limit, run.submitted, run.partition) == (172_800.0, START - 60, "gpu")
    assert run.nodes == ("gpu-a001", "gpu-a002", "gpu-b07") == tuple(run.job.nodes)


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("COMPLETED", "completed"),
        ("FAILED", "exit"),
        ("TIMEOUT", "time_limit"),
        ("DEADLINE", "time_limit"),
        ("CANCELLED", "cancelled"),
        ("PREEMPTED", "preemption"),
        ("NODE_FAIL", "node_failure"),
        ("BOOT_FAIL", "node_failure"),
        ("OUT_OF_MEMORY", "oom_kill"),
        ("PENDING", "not_scheduled"),
        ("RUNNING", "running"),
        ("REVOKED", "cancelled"),
        ("RESV_DEL_HOLD", "not_scheduled"),
        ("REQUEUE_FED", "requeued"),
        ("EXPEDITING", "requeued"),
        ("POWER_UP_NODE", "running"),
        ("STAGE_OUT", "running"),
        ("STOPPED", "running"),
        ("STRANGE", "state"),
    ],
)
def test_states(state, kind):
    """Each base state gives its kind, in either form, with the fields of the job."""
    for rulebook in (new((state,)), old(state)):
        (event,) = answer(rulebook).events
        assert (event.kind, event.reason) == (kind, state)
        assert (event.fields["job"], event.fields["limit"], event.fields["nodes"]) == ("4711", 172_800.0, 3)


def test_a_cancelled_job_names_who_cancelled_it():
    """`CANCELLED by 1000`, and flags added to the base state, are split."""
    run = answer(old("CANCELLED by 1000", kill_request_user="root")).runs[0]
    assert (run.job.state, run.killed_by) == ("CANCELLED", "root")
    assert answer(new(("RUNNING", "COMPLETING"))).events[0].kind == "running"


def test_signals_of_either_form():
    """The number of the signal is read from both forms; none is None."""
    assert answer(new(signal=9)).runs[0].signal == 9
    assert (
        answer(old(exit_code={"status": "SIGNALED", "return_code": 0, "signal": {"signal_id": 9, "name": "Killed"}}))
        .runs[0]
        .signal
        == 9
    )
    assert "signal 9" in answer(new(signal=9)).events[0].message


def test_no_limit_no_end_no_nodes():
    """What is unset, unbounded or zero is not known, and is never a number; a running job has no end."""
    waits = new(
        ("PENDING",),
        nodes="None assigned",
        time={"start": number(None), "end": 0, "limit": number(None, infinite=True)},
    )
    run = answer(waits).runs[0]
    assert (run.job.start, run.job.end, run.limit, run.nodes) == (None, None, None, ())
    assert answer(new(("RUNNING",))).runs[0].job.end is None


def test_the_node_that_failed():
    """The node that failed the job is a separate event, with that node."""
    events = answer(new(("NODE_FAIL",), failed_node="gpu-a002")).events
    assert [(event.kind, event.resource.node) for event in events] == [
        ("node_failure", "gpu-a002"),
        ("node_failure", None),
    ]


def test_restarts_and_earlier_runs():
    """Runs of a requeued job come oldest first, and a restart is reported."""
    first = new(("NODE_FAIL",), time={"submission": START, "start": START, "end": START + 50})
    second = new(("COMPLETED",), restart_cnt=1, time={"submission": START + 60, "start": START + 70, "end": END})
    found = answer(second, first)
    assert [run.job.state for run in found.runs] == ["NODE_FAIL", "COMPLETED"]
    assert [event.kind for event in found.events] == ["node_failure", "requeued", "completed"]


def test_steps_that_ended_badly():
    """Steps that failed are reported with number, code, signal and node; successful ones and those cancelled with the job are not."""

    def step(number_, state, **more):
        return {
            "step": {"id": number_, "name": "train"},
            "state": state,
            "exit_code": {
                "status": ["SIGNALED"],
                "return_code": number(0),
                "signal": {"id": number(11), "name": "SEGV"},
            },
            "time": {"start": number(START), "end": number(END - 5)},
            "nodes": {"count": 1, "range": "gpu-a002", "list": ["gpu-a002"]},
            "tasks": {"count": 8},
        } | more

    events = answer(new(steps=[step("4711.0", ["FAILED"]), step("4711.batch", "COMPLETED")])).events
    assert [event.kind for event in events] == ["exit", "exit"]
    assert (events[0].resource.node, events[0].time) == ("gpu-a002", END - 5)
    assert {key: events[0].fields[key] for key in ("step", "signal", "tasks", "exit_code")} == {
        "step": "4711.0",
        "signal": 11,
        "tasks": 8,
        "exit_code": 0,
    }
    assert [event.kind for event in answer(new(("CANCELLED",), steps=[step("4711.0", ["CANCELLED"])])).events] == [
        "cancelled"
    ]
    inner = step(
        "",
        ["OUT_OF_MEMORY"],
        step={"id": {"job_id": 4711, "step_id": "batch"}, "name": "batch"},
        nodes={"range": "gpu-a[001-002]"},
    )
    first = answer(new(steps=[inner])).events[0]
    assert (first.kind, first.fields["step"], first.fields["nodes"]) == ("oom_kill", "batch", 2)


def test_a_job_of_slurmrestd():
    """The controller's own form, with flat names, is read as well."""
    flat = {
        "job_id": 12,
        "job_state": ["TIMEOUT"],
        "state_reason": "TimeLimit",
        "user_name": "ada",
        "start_time": number(START),
        "end_time": number(END),
        "time_limit": number(60),
        "nodes": "n1",
        "tres_alloc_str": "cpu=8,gres/gpu=4,gres/gpu:a100=4",
    }
    found = answer(flat)
    run = found.runs[0]
    assert (run.job.state, run.job.owner, run.job.start, run.limit, run.reason, run.job.gpus) == (
        "TIMEOUT",
        "ada",
        START,
        3600.0,
        "TimeLimit",
        4,
    )
    assert (found.events[0].kind, found.events[0].reason, found.events[0].resource.node) == (
        "time_limit",
        "TimeLimit",
        "n1",
    )


def test_only_the_job_that_was_asked_for():
    """Other jobs of the answer are left out; tasks of an array belong to it; no job is a gap."""
    other = new(job_id=9)
    task = new(job_id=4713, array={"job_id": 4711, "task_id": number(2)})
    assert [run.job.id for run in answer(new(), other, task, job_id="4711").runs] == ["4711", "4713"]
    found, gaps = read_slurm(json.dumps({"jobs": [other]}).encode(), "x", "4711")
    assert found.runs == ()
    assert [gap.code for gap in gaps] == ["slurm-no-job"]


def test_ids_of_arrays_and_parts():
    """A task or a part alone, or all of them by the id that they share."""
    tasks = [new(job_id=20 + at, array={"job_id": 20, "task_id": number(at)}) for at in range(2)]
    parts = [new(job_id=30 + at, het={"job_id": 30, "job_offset": number(at)}) for at in range(2)]
    jobs = [*tasks, *parts, new()]
    shown = {
        asked: [run.shown_id for run in answer(*jobs, job_id=asked).runs]
        for asked in ("20", "20_1", "30", "30+1", "21", "30+1.0", "4711.batch")
    }
    assert shown == {
        "20": ["20_0", "20_1"],
        "20_1": ["20_1"],
        "30": ["30+0", "30+1"],
        "30+1": ["30+1"],
        "21": ["20_1"],
        "30+1.0": ["30+1"],
        "4711.batch": ["4711"],
    }


@pytest.mark.parametrize(
    ("told", "ended"),
    [
        (1792, (7, None)),
        (11, (0, 11)),
        (-1, (None, None)),
        ({"status": "SUCCESS", "return_code": 0}, (None, None)),
        ({"status": "ERROR", "return_code": 3}, (3, None)),
    ],
)
def test_exit_codes_of_22_05(told, ended):
    """The controller reports a wait status; accounting's success for a failed job is ignored."""
    (run,) = answer(old(exit_code=told)).runs
    assert (run.exit_code, run.signal) == ended


def step_of(tasks, nodes, layout, **more):
    """A step of so many tasks."""
    place = {"count": len(nodes), "list": list(nodes)}
    return (
        {"step": {"id": 0, "name": "x"}, "state": "COMPLETED", "nodes": place, "tasks": {"count": tasks}}
        | more
        | {"task": {"distribution": layout}}
    )


@pytest.mark.parametrize(
    ("tasks", "layout", "by_node"),
    [
        (4, "Block", {"n1": (0, 1), "n2": (2, 3)}),
        (4, "Cyclic,Block", {"n1": (0, 2), "n2": (1, 3)}),
        (2, "Unknown", {"n1": (0,), "n2": (1,)}),
        (4, "Plane", {}),
        (5, "Block", {}),
        (10**9, "Block", {}),
    ],
)
def test_tasks_by_node(tasks, layout, by_node):
    """Which tasks run on which node, as far as the layout shows; the widest step counts."""
    (run,) = answer(new(steps=[step_of(1, ["n1"], "Block"), step_of(tasks, ["n1", "n2"], layout)])).runs
    assert dict(run.tasks) == by_node


@pytest.mark.parametrize(
    ("state", "kind", "shown"),
    [
        (["DOWN*", "DRAIN"], "node_failure", "DOWN+DRAIN+NOT_RESPONDING"),
        (["IDLE", "DRAIN"], "cordoned", "DRAIN+IDLE"),
        ("mixed", None, ""),
        (["ALLOCATED", "MAINTENANCE"], "cordoned", "ALLOCATED+MAINTENANCE"),
        (None, None, ""),
        ([1, "x"], None, ""),
    ],
)
def test_nodes_beside_the_jobs(state, kind, shown):
    """Nodes that are down or kept back are events with the reason given; those in order say nothing."""
    node = {"name": "gpu-b07", "state": state, "reason": "Xid 79", "reason_changed_at": number(END)}
    found, gaps = read_slurm(json.dumps({"jobs": [new()], "nodes": [node, 3]}).encode(), "slurm.json")
    events = [event for event in found.events if event.kind in {"node_failure", "cordoned"}]
    assert gaps == ()
    told = [(event.kind, event.time, event.resource.node, event.message) for event in events]
    assert told == ([(kind, float(END), "gpu-b07", f"gpu-b07 is {shown}: Xid 79")] if kind else [])


def test_a_cut_answer():
    """The complete jobs of a truncated answer are kept, and a gap reports it."""
    text = json.dumps({"jobs": [new(job_id=at) for at in range(8)]}, indent=1)
    found, gaps = read_slurm(text[: len(text) // 2].encode(), "x")
    assert [run.job.id for run in found.runs] == ["0", "1", "2"]
    assert [gap.code for gap in gaps] == ["slurm-cut"]


@pytest.mark.parametrize(
    "data", [b"", b"sacct: error: slurmdbd", b'{"jobs": {}}', b'{"jobs": [{"a": 1}]}', b"[" * 99_999]
)
def test_rubbish_is_a_gap(data):
    """What holds no jobs gives no value and a gap."""
    assert read_slurm(data, "x")[0] is None
    assert [gap.code for gap in read_slurm(data, "x")[1]] == ["slurm-unreadable"]


def test_fields_of_wrong_types_do_no_harm():
    """A job with parts of the wrong type still gives the parts that are readable."""
    odd = {
        "job_id": [1],
        "state": 3,
        "time": "x",
        "exit_code": [],
        "tres": 9,
        "steps": {"a": 1},
        "nodes": 5,
        "restart_cnt": "x",
    }
    found = answer(
        odd, {"job_id": 3, "state": {"current": [1, None]}, "exit_code": {"return_code": {"set": True, "number": "y"}}}
    )
    assert [event.kind for event in found.events] == ["state", "state"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ("n1",)),
        ("n[1-3]", ("n1", "n2", "n3")),
        ("gpu-a[008-010,012],login", ("gpu-a008", "gpu-a009", "gpu-a010", "gpu-a012", "login")),
        ("r[1-2]n[01-02]", ("r1n01", "r1n02", "r2n01", "r2n02")),
        ("r1[0-1]-ib", ("r10-ib", "r11-ib")),
        ("n1,n1", ("n1",)),
        ("", ()),
        ("(null)", ()),
        ("n[", ()),
        ("n[x,2]", ("n2",)),
        ("n[3-1]", ()),
    ],
)
def test_host_lists(text, names):
    """Short forms are expanded, zeros are kept, and invalid ones are left out."""
    assert hostlist(text) == names


@pytest.mark.parametrize(
    "text",
    ["n[0-999999999]", ",".join(["a[1-20000]"] * 6000), "a[0-99]" * 8, "[" * 60_000, "n[0-9][0-9][0-9][0-9][0-9]"],
)
def test_hostile_host_lists_are_bounded(text):
    """No list makes more names than there may be, or takes long."""
    assert len(hostlist(text)) <= MAX_NODES


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("TIMEOUT", "time_limit"),
        ("CANCELLED by 1001", "cancelled"),
        ("PREEMPTED", "preemption"),
        ("NODE_FAIL", "node_failure"),
        ("OUT_OF_MEMORY", "oom_kill"),
        ("FAILED", None),
        ("COMPLETED", None),
        ("RUNNING", None),
        ("on its way", None),
        ("", None),
        (None, None),
    ],
)
def test_the_event_of_a_bare_state(state, kind):
    """Only a state that gives the reason of the end becomes an event."""
    found = event_of_state(Job(id="77", state=state, end=12.0), "job.yaml")
    assert (found and (found.kind, found.source, found.time)) == (kind and (kind, "job.yaml", 12.0))
