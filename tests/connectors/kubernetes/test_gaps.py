"""What is gone, or not the only one of its name: pods, a whole job, their logs."""

import pytest

from connectors.base.contract import SourceFailed
from kb.parsers.schedulers.kubernetes import read_kubernetes
from tests.doubles.kubernetes import TOKEN
from tests.support.common.kube_collection import collected, found
from tests.support.common.kube_scenes import pods_gone, pytorch_cluster
from tests.support.kube_objects import START, condition, event, iso, pod, thing


@pytest.fixture(autouse=True)
def _token(monkeypatch):
    monkeypatch.setenv("KUBE_TOKEN", TOKEN)


def codes(gaps):
    """The codes, without the window of events."""
    return sorted(gap.code for gap in gaps if gap.code != "events_expired")


def test_pods_that_are_gone():
    """Fewer pods than the specification asks for: how many, which ones events name, and that their logs are gone."""
    spool, gaps = collected(pods_gone())
    assert codes(gaps) == ["logs_gone", "pods_gone"]
    words = {gap.code: (gap.reason, gap.scope, gap.got) for gap in gaps}
    assert words["pods_gone"] == (
        "2 of 3 pods do not exist: they were deleted, or never created; Kubernetes deletes a pod's log and exit code with it",
        "llm-7b-worker-2",
        "1 pods",
    )
    assert words["logs_gone"][0] == "2 of 3 pods do not exist, and neither do their logs here"
    kinds = [item.kind for item in read_kubernetes(spool.parts["events.json"], "events.json")[0]]
    assert sorted(kinds) == ["eviction", "node_failure", "warning"]


def test_a_replaced_pod_is_gone():
    """All places are taken, and events name a pod that was replaced."""
    cluster = pytorch_cluster()
    job = cluster.objects["kubeflow.org", "pytorchjobs"][0]
    cluster.add(event(job, "SuccessfulCreatePod", "Created pod: llm-7b-worker-1-old"))
    _, gaps = collected(cluster)
    (gap,) = [item for item in gaps if item.code == "pods_gone"]
    assert (gap.scope, gap.reason.startswith("1 of 4 pods no longer exist;")) == ("llm-7b-worker-1-old", True)


@pytest.mark.parametrize(
    ("spec", "status", "pods"),
    [
        ({"completions": 4, "parallelism": 4, "completionMode": "Indexed"}, {"startTime": iso(START)}, 4),
        ({"completions": 400, "parallelism": 2, "completionMode": "Indexed"}, {"startTime": iso(START)}, 2),
        ({"completions": 4, "parallelism": 4, "completionMode": "Indexed", "suspend": True}, {}, 0),
        ({"completions": 4, "parallelism": 4, "completionMode": "Indexed"}, {}, 0),
        ({"parallelism": 3}, {"startTime": iso(START)}, 1),
    ],
)
def test_pods_that_are_not_missed(spec, status, pods):
    """Complete, one after another, suspended, not begun, or of no fixed number: no pod is called gone."""
    cluster = pytorch_cluster()
    running = {"conditions": [condition("Running")]} if status else {}
    cluster.add(thing("batch/v1", "Job", "sweep", spec, {**running, **status}))
    label = "batch.kubernetes.io/job-completion-index"
    cluster.add(*(pod(f"sweep-{at}", {"job-name": "sweep", label: str(at)}) for at in range(pods)))
    _, gaps = collected(cluster, job="sweep")
    assert not {"pods_gone", "logs_gone"} & set(codes(gaps))


def test_a_job_that_is_gone():
    """Of a job that was deleted, its own events and those of its pods are left. A Service of that name was no job."""
    cluster = pods_gone()
    cluster.objects["kubeflow.org", "pytorchjobs"].clear()
    cluster.objects["", "pods"].clear()
    cluster.add(event(thing("v1", "Service", "llm-8b"), "Sync", "not ours", number=8))
    with pytest.raises(SourceFailed, match="there is no job of this name"):
        collected(cluster, job="llm-8b")
    (job,) = found(cluster, "llm-7b")
    assert (job.job.id, job.job.framework, job.job.end, job.labels) == (
        "ml/llm-7b",
        "PyTorchJob",
        START + 2950,
        {"kind": "PyTorchJob"},
    )
    assert found(cluster, "other/llm-7b") == found(cluster, "llm-8b") == ()
    spool, gaps = collected(cluster)
    (gap,) = gaps
    assert (gap.code, gap.scope, gap.got) == ("job_gone", "llm-7b", "2 events")
    events = read_kubernetes(spool.parts["events.json"], "events.json")[0]
    assert sorted((item.kind, item.fields["name"]) for item in events) == [
        ("eviction", "llm-7b-worker-2"),
        ("warning", "llm-7b"),
    ]
    with pytest.raises(SourceFailed, match="there is no job of this name"):
        collected(cluster, asked={"kinds": frozenset({"logs"})})


@pytest.mark.parametrize("name", ["llm-7b,involvedObject.kind!=Pod", "LLM", "llm 7b", "../llm-7b", "x" * 300])
def test_a_hostile_name_of_a_job_that_is_gone(name):
    """What is no name of an object is not asked."""
    cluster = pods_gone()
    with pytest.raises(SourceFailed, match="there is no job of this name"):
        collected(cluster, job=name)
    assert not [query for _, path, query in cluster.seen if path.endswith("/events")]


def test_the_workload_of_kueue():
    """Events of the object through which Kueue admits and evicts a job belong to it."""
    cluster = pytorch_cluster()
    job = cluster.objects["kubeflow.org", "pytorchjobs"][0]
    admitted = thing("v1", "Workload", "pytorchjob-llm-7b-4f2aa")
    cluster.add(
        event(job, "CreatedWorkload", "Created Workload: ml/pytorchjob-llm-7b-4f2aa", number=1),
        event(admitted, "EvictedDueToPreempted", "Preempted to accommodate a workload", number=2),
        event(thing("v1", "Workload", "another"), "EvictedDueToPreempted", "not ours", number=3),
    )
    spool, _ = collected(cluster)
    events = read_kubernetes(spool.parts["events.json"], "events.json")[0]
    assert [(item.kind, item.fields["name"]) for item in events if item.kind == "preemption"] == [
        ("preemption", "pytorchjob-llm-7b-4f2aa")
    ]


def test_namesakes():
    """Of two jobs of one name in two namespaces, the one that ran in the window is read, and a gap names the other."""
    cluster = pytorch_cluster()
    status = {"conditions": [condition("Running", START + 90_000)], "startTime": iso(START + 90_000)}
    cluster.add(thing("kubeflow.org/v1", "PyTorchJob", "llm-7b", status=status, namespace="dev", uid="dev"))
    spool, gaps = collected(cluster)
    (gap,) = [item for item in gaps if item.code == "job_ambiguous"]
    assert gap.scope == "dev/llm-7b"
    assert gap.reason.startswith(
        "2 workloads have this name; PyTorchJob ml/llm-7b was read, which ran most of the window;"
    )
    assert len(spool.logs) == 3
    assert [job.job.id for job in found(cluster, "llm-7b")] == ["dev/llm-7b", "ml/llm-7b"]
