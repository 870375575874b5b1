"""Training jobs of Kubernetes: states, ranks, attempts, times."""

import pytest

from kb.model import Attempt, Member
from kb.parsers.schedulers.pods import read_pod
from kb.parsers.schedulers.workloads import KINDS, PODS, Site, outline, stem, workload
from tests.support.kube_objects import START, condition, ended, kubeflow, node, pod, running, thing

KIND = {entry.word: entry for entry in KINDS}


def read(kind, item, pods, *, nodes=(), site=None):
    """A workload with its pods."""
    return workload(kind, item, [read_pod(entry) for entry in pods], nodes, site)


def ranks(kind, item, pods, **more):
    """The ranks by pod, and what of them is inferred."""
    found = read(kind, item, pods, **more)
    by_pod = {}
    for member in found.record.members:
        by_pod.setdefault(member.name, []).append(member.rank)
    return by_pod, found.ranks.inferred


def pytorch(workers, masters=1, **spec):
    """A PyTorchJob's specification."""
    groups = {"Worker": {"replicas": workers}} | ({"Master": {"replicas": masters}} if masters else {})
    return {"pytorchReplicaSpecs": groups, **spec}


def test_master_and_workers():
    """The master is rank 0 and the workers follow, also where the master's pod is gone."""
    item = thing("kubeflow.org/v1", "PyTorchJob", "llm", pytorch(2))
    pods = [pod(f"llm-worker-{at}", kubeflow("llm", "worker", at), env={"PET_NPROC_PER_NODE": "2"}) for at in (0, 1)]
    master = pod("llm-master-0", kubeflow("llm", "master", 0), env={"PET_NPROC_PER_NODE": "2"})
    workers = {"llm-worker-0": [2, 3], "llm-worker-1": [4, 5]}
    said = "the groups of pods in the order in which the job lists them"
    assert ranks(KIND["PyTorchJob"], item, [*pods, master]) == ({**workers, "llm-master-0": [0, 1]}, said)
    assert ranks(KIND["PyTorchJob"], item, pods) == (workers, "")


@pytest.mark.parametrize(
    ("spec", "more", "site", "inferred"),
    [
        ({}, {"args": ["--nproc_per_node=4", "train.py"]}, None, ""),
        ({}, {"args": ["torchrun --nnodes 2 --nproc-per-node 4 train.py"]}, None, ""),
        ({}, {"args": ["--nproc_per_node=gpu"], "gpus": 4}, None, ""),
        ({"nprocPerNode": "4"}, {}, None, ""),
        ({}, {}, Site(processes=4), ""),
        ({"nprocPerNode": "auto"}, {"gpus": 4}, None, "as many processes in each pod as it has GPUs"),
    ],
)
def test_processes_of_a_pod(spec, more, site, inferred):
    """Arguments, specification or site give the number of ranks in a pod; otherwise its GPUs do, marked as inferred."""
    item = thing("kubeflow.org/v1", "PyTorchJob", "llm", pytorch(2, 0, **spec))
    pods = [pod(f"llm-worker-{at}", kubeflow("llm", "worker", at), **more) for at in (0, 1)]
    expected = {"llm-worker-0": [0, 1, 2, 3], "llm-worker-1": [4, 5, 6, 7]}
    assert ranks(KIND["PyTorchJob"], item, pods, site=site) == (expected, inferred)


def test_the_environment_wins():
    """A node rank in the environment is believed before any label."""
    item = thing("batch/v1", "Job", "llm")
    pods = [
        pod(
            f"llm-{at}",
            {"batch.kubernetes.io/job-completion-index": str(at)},
            env={"GROUP_RANK": str(1 - at), "NPROC_PER_NODE": "1"},
        )
        for at in (0, 1)
    ]
    assert ranks(KIND["Job"], item, pods) == ({"llm-0": [1], "llm-1": [0]}, "")


def test_a_launcher_has_no_rank():
    """Of an MPIJob the workers hold the ranks, as many as they have slots."""
    spec = {"slotsPerWorker": 2, "mpiReplicaSpecs": {"Launcher": {"replicas": 1}, "Worker": {"replicas": 2}}}
    item = thing("kubeflow.org/v2beta1", "MPIJob", "llm", spec)
    pods = [pod(f"llm-worker-{at}", kubeflow("llm", "worker", at)) for at in (0, 1)]
    pods.append(
        pod(
            "llm-launcher-x",
            {"training.kubeflow.org/job-name": "llm", "training.kubeflow.org/replica-type": "launcher"},
        )
    )
    assert ranks(KIND["MPIJob"], item, pods)[0] == {
        "llm-worker-0": [0, 1],
        "llm-worker-1": [2, 3],
        "llm-launcher-x": [None],
    }


def jobset_pod(role, group, index):
    """A JobSet's pod."""
    labels = {
        "jobset.sigs.k8s.io/jobset-name": "llm",
        "jobset.sigs.k8s.io/replicatedjob-name": role,
        "jobset.sigs.k8s.io/job-index": str(group),
        "batch.kubernetes.io/job-completion-index": str(index),
    }
    return pod(f"llm-{role}-{group}-{index}-abcde", labels, env={"NPROC_PER_NODE": "1"})


def test_replicated_jobs_follow_each_other():
    """A JobSet's ranks run through its jobs in the order of the specification, and that is inferred."""
    parts = [
        {"name": "slice", "replicas": 2, "template": {"spec": {"parallelism": 2, "completions": 2}}},
        {"name": "extra", "replicas": 1, "template": {"spec": {"parallelism": 1}}},
    ]
    item = thing("jobset.x-k8s.io/v1alpha2", "JobSet", "llm", {"replicatedJobs": parts})
    pods = [jobset_pod("extra", 0, 0), *(jobset_pod("slice", group, index) for group in (1, 0) for index in (0, 1))]
    found, inferred = ranks(KIND["JobSet"], item, pods)
    assert found == {
        "llm-extra-0-0-abcde": [4],
        "llm-slice-0-0-abcde": [0],
        "llm-slice-0-1-abcde": [1],
        "llm-slice-1-0-abcde": [2],
        "llm-slice-1-1-abcde": [3],
    }
    assert inferred == "the groups of pods in the order in which the job lists them"


def test_volcano_tasks():
    """A Volcano job's tasks follow each other; the master of an MPI job holds no rank."""
    tasks = [{"name": "master", "replicas": 1}, {"name": "worker", "replicas": 2}]
    labels = [("master", 0), ("worker", 0), ("worker", 1)]
    pods = [
        pod(
            f"llm-{task}-{at}",
            {"volcano.sh/task-spec": task, "volcano.sh/task-index": str(at)},
            env={"NPROC_PER_NODE": "1"},
        )
        for task, at in labels
    ]
    torch = thing("batch.volcano.sh/v1alpha1", "Job", "llm", {"tasks": tasks, "plugins": {"pytorch": []}})
    assert ranks(KIND["VolcanoJob"], torch, pods)[0] == {"llm-master-0": [0], "llm-worker-0": [1], "llm-worker-1": [2]}
    mpi = thing("batch.volcano.sh/v1alpha1", "Job", "llm", {"tasks": tasks, "plugins": {"mpi": []}})
    assert ranks(KIND["VolcanoJob"], mpi, pods)[0] == {"llm-master-0": [None], "llm-worker-0": [0], "llm-worker-1": [1]}


def test_ray_gives_no_ranks():
    """Ray hands out ranks at run time: nothing is claimed."""
    pods = [pod(f"llm-{at}", {"ray.io/node-type": "worker"}, gpus=8) for at in (0, 1)]
    assert ranks(KIND["RayJob"], thing("ray.io/v1", "RayJob", "llm"), pods) == ({"llm-0": [None], "llm-1": [None]}, "")


def test_two_pods_that_claim_one_rank():
    """If two pods claim the same ranks, no ranks are reported."""
    pods = [pod(f"llm-{at}", {}, env={"RANK": "0"}) for at in (0, 1)]
    assert ranks(PODS, thing("v1", "Pod", "llm"), pods) == ({"llm-0": [None], "llm-1": [None]}, "")


@pytest.mark.parametrize(
    ("kind", "status", "state", "reason"),
    [
        ("PyTorchJob", {"conditions": [condition("Created"), condition("Running")]}, "RUNNING", ""),
        (
            "PyTorchJob",
            {"conditions": [condition("Running", status="False"), condition("Failed", reason="JobFailed")]},
            "FAILED",
            "JobFailed",
        ),
        ("Job", {"conditions": [condition("Failed", reason="DeadlineExceeded")]}, "TIMEOUT", "DeadlineExceeded"),
        ("Job", {"conditions": [condition("Complete")], "completionTime": "2025-11-13T03:00:00Z"}, "COMPLETED", ""),
        (
            "JobSet",
            {"conditions": [condition("Completed", reason="AllJobsCompleted")]},
            "COMPLETED",
            "AllJobsCompleted",
        ),
        ("TrainJob", {"conditions": [condition("Suspended", reason="Suspended")]}, "SUSPENDED", "Suspended"),
        ("VolcanoJob", {"state": {"phase": "Aborted"}}, "CANCELLED", ""),
        ("VolcanoJob", {"state": {"phase": "Restarting"}}, "RUNNING", ""),
        (
            "RayJob",
            {"jobStatus": "RUNNING", "jobDeploymentStatus": "Failed", "reason": "DeadlineExceeded"},
            "TIMEOUT",
            "DeadlineExceeded",
        ),
        ("RayJob", {"jobStatus": "STOPPED"}, "CANCELLED", ""),
        ("RayCluster", {"state": "ready"}, "RUNNING", ""),
        ("Job", {}, "PENDING", ""),
    ],
)
def test_states(kind, status, state, reason):
    """Each kind's state is mapped to one of Slurm's, and its own word is kept."""
    found = read(KIND[kind], thing("x/v1", KIND[kind].kind, "llm", status=status), [])
    last = found.record.attempts[-1]
    assert (found.record.job.state or last.state or "PENDING", last.reason) == (state, reason)


def test_a_restarted_container():
    """The run before the restart is a separate attempt, with its end; earlier ones are unknown."""
    item = thing("kubeflow.org/v1", "PyTorchJob", "llm", pytorch(1, 0), {"conditions": [condition("Running")]})
    killed = ended(137, "OOMKilled", START + 60, START + 600)
    one = pod("llm-worker-0", kubeflow("llm", "worker", 0), last=killed, restarts=2, state=running(START + 620))
    assert read(KIND["PyTorchJob"], item, [one]).record.attempts == (
        Attempt(
            1,
            "OUT_OF_MEMORY",
            "OOMKilled",
            exit_code=137,
            signal=9,
            queued=START,
            scheduled=START + 10,
            initialised=START + 60,
            stopped=START + 600,
            nodes=("node-a",),
        ),
        Attempt(
            2,
            "RUNNING",
            queued=START,
            scheduled=START + 10,
            initialised=START + 620,
            nodes=("node-a",),
        ),
    )


def test_pods_that_failed_and_their_successors():
    """A failed pod kept next to its successor is the earlier attempt; the first one to fail is named."""
    labels = {"batch.kubernetes.io/job-completion-index": "0"}
    other = {"batch.kubernetes.io/job-completion-index": "1"}
    pods = [
        pod("llm-0-aaaaa", labels, state=ended(1, end=START + 500)),
        pod("llm-1-aaaaa", other, state=ended(143, end=START + 520), node="node-b"),
        pod("llm-0-bbbbb", labels, state=ended(0, start=START + 560), created=START + 550),
        pod("llm-1-bbbbb", other, state=ended(0, start=START + 560), created=START + 550, node="node-b"),
    ]
    item = thing("batch/v1", "Job", "llm", status={"conditions": [condition("Complete")]})
    found = read(KIND["Job"], item, pods).record
    told = [
        (attempt.number, attempt.state, attempt.exit_code, attempt.initialised, attempt.stopped, attempt.nodes)
        for attempt in found.attempts
    ]
    assert told == [
        (0, "FAILED", 1, START + 60, START + 520, ("node-a", "node-b")),
        (1, "COMPLETED", 0, START + 560, START + 3000, ("node-a", "node-b")),
    ]
    assert found.job.nodes == {"node-a": (0,), "node-b": (1,)}
    assert (found.job.start, found.job.end, found.job.attempt) == (START + 60, START + 3000, 1)


def test_a_preempted_pod():
    """A preempted pod is reported as such, for any exit code."""
    gone = condition("DisruptionTarget", reason="PreemptionByScheduler")
    one = pod("llm-worker-0", kubeflow("llm", "worker", 0), state=ended(143), conditions=[gone])
    item = thing("kubeflow.org/v1", "PyTorchJob", "llm", pytorch(1, 0), {"conditions": [condition("Failed")]})
    last = read(KIND["PyTorchJob"], item, [one]).record.attempts[-1]
    assert (last.state, last.reason, last.exit_code, last.signal) == ("PREEMPTED", "PreemptionByScheduler", 143, 15)


def test_attempts_of_a_jobset_are_counted_by_its_label():
    """A JobSet makes all its pods again; its label says how often."""
    one = jobset_pod("node", 0, 0)
    one["metadata"]["labels"]["jobset.sigs.k8s.io/restart-attempt"] = "3"
    found = read(KIND["JobSet"], thing("jobset.x-k8s.io/v1alpha2", "JobSet", "llm"), [one]).record
    assert [attempt.number for attempt in found.attempts] == [3]


def test_members_and_topology():
    """Each rank is a member with pod, node and local rank; node labels give the topology."""
    item = thing("kubeflow.org/v1", "PyTorchJob", "llm", pytorch(1, 0), labels={"owner": "ada"})
    one = pod("llm-worker-0", kubeflow("llm", "worker", 0), args=["--nproc_per_node=2"], gpus=2)
    labels = {"topology.kubernetes.io/zone": "z1", "nvidia.com/gpu.clique": "u.1", "site/rack": "r7"}
    found = read(
        KIND["PyTorchJob"],
        item,
        [one],
        nodes=[node("node-a", labels=labels)],
        site=Site(topology={"rack": "site/rack"}),
    )
    assert found.record.members == (
        Member("llm-worker-0", "node-a", 0, 0, "pytorch"),
        Member("llm-worker-0", "node-a", 1, 1, "pytorch"),
    )
    assert found.record.topology == {"node-a": {"zone": "z1", "nvlink_domain": "u.1", "rack": "r7"}}
    assert (found.record.job.owner, found.record.job.gpus, found.record.job.world_size) == ("ada", 2, 2)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("llm-7b-0042", "llm-7b"),
        ("llm-7b-run3", "llm-7b"),
        ("llm-7b-x8k2p", "llm-7b"),
        ("llm-7b-2026-11-20", "llm-7b"),
        ("llm", "llm"),
        ("a-1", "a-1"),
        ("pretrain-large", "pretrain-large"),
    ],
)
def test_the_common_part_of_names(name, short):
    """Runs of one job differ in numbers and hashes behind the name."""
    assert stem(name) == short


def test_rubbish_does_no_harm():
    """Objects of wrong types give a record of nothing."""
    odd = {
        "metadata": [],
        "spec": {"containers": [{"env": "x", "args": [1, {}], "name": 5}]},
        "status": {"conditions": 3, "containerStatuses": [{"state": 3, "name": "5"}]},
    }
    found = read(
        KIND["Job"],
        {"metadata": 3, "spec": [], "status": {"conditions": [3, {"type": [1], "status": "True"}]}},
        [odd, {}],
    )
    assert found.record.job.name == ""
    assert len(found.record.members) == 2


@pytest.mark.parametrize(
    ("version", "kind", "status", "restarts"),
    [
        ("jobset.x-k8s.io/v1alpha2", "JobSet", {"restarts": 2}, 2),
        ("jobset.x-k8s.io/v1alpha2", "JobSet", {"restarts": 0}, None),
        ("batch.volcano.sh/v1alpha1", "Job", {"retryCount": 1}, 1),
        ("ray.io/v1", "RayJob", {"failed": 1}, 1),
        ("batch/v1", "Job", {"failed": 3}, None),
        ("kubeflow.org/v1", "PyTorchJob", {"restarts": 1}, None),
        ("jobset.x-k8s.io/v1alpha2", "JobSet", {"restarts": "many"}, None),
    ],
)
def test_restarts_that_a_controller_counts(version, kind, status, restarts):
    """Those of the whole job; a plain Job counts pods."""
    assert outline(thing(version, kind, "llm", status=status)).restarts == restarts


@pytest.mark.parametrize(
    ("word", "spec", "size"),
    [
        ("PyTorchJob", pytorch(3), 4),
        ("PyTorchJob", pytorch(3, elasticPolicy={"minReplicas": 1, "maxReplicas": 3}), 0),
        ("MPIJob", {"mpiReplicaSpecs": {"Launcher": {"replicas": 1}, "Worker": {"replicas": 8}}}, 8),
        ("JobSet", {"replicatedJobs": [{"name": "w", "replicas": 2, "template": {"spec": {"parallelism": 4}}}]}, 8),
        ("Job", {"completions": 4, "parallelism": 4, "completionMode": "Indexed"}, 4),
        ("Job", {"completions": 4, "parallelism": 2, "completionMode": "Indexed"}, 0),
        ("RayCluster", {"workerGroupSpecs": [{"replicas": 4}]}, 0),
    ],
)
def test_how_many_pods_a_specification_asks_for(word, spec, size):
    """The pods with ranks at the same time; none where the number may change."""
    found = read(KIND[word], thing("x/v1", word, "llm", spec), [pod("llm-worker-0", kubeflow("llm", "worker", 0))])
    assert found.size == size


@pytest.mark.parametrize(
    ("init", "own", "odd"),
    [
        ("running", {"waiting": {"reason": "PodInitializing"}}, ("wait",)),
        ("running", running(), ()),
        ("terminated", {"waiting": {"reason": "PodInitializing"}}, ()),
    ],
)
def test_an_init_container_that_is_waited_for(init, own, odd):
    """It counts until the main container has begun; a sidecar runs all the time and does not count."""
    item = pod("llm-worker-0", {}, state=own)
    item["spec"]["initContainers"] = [{"name": "side", "restartPolicy": "Always"}, {"name": "wait"}]
    states = {"running": running(), "terminated": ended()}
    item["status"]["initContainerStatuses"] = [
        {"name": "side", "state": running()},
        {"name": "wait", "state": states[init]},
    ]
    assert read_pod(item).odd == odd
