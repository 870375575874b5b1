"""Kubernetes: jobs, pods, events and logs, against a strict API server that grants what the documented roles grant."""

import base64
import json
import time
from pathlib import Path

import pytest

from connectors.base.budget import Load
from connectors.base.contract import Bounds, Deadline, JobQuery, JobSummary, SourceFailed
from connectors.kubernetes.api import selector
from connectors.kubernetes.auth import from_kubeconfig, in_cluster
from connectors.kubernetes.connector import Kubernetes, KubernetesSettings
from kb.model import Resource, Window
from kb.parsers.logs.prefixes import peel
from kb.parsers.schedulers.kubernetes import read_kubernetes
from tests.doubles.kubernetes import TOKEN, serving
from tests.support.common.kube_collection import WINDOW, collected, found
from tests.support.common.kube_scenes import pytorch_cluster, restarted
from tests.support.common.kubernetes_settings import settings
from tests.support.contract.subject import Subject, hasty
from tests.support.contract.suite import Contract
from tests.support.kube_objects import START, condition, event, node, owner, pod, thing


@pytest.fixture(autouse=True)
def _token(monkeypatch):
    monkeypatch.setenv("KUBE_TOKEN", TOKEN)


def quick(url):
    """The connector, with a client that never waits long."""
    told = settings(url)
    return Kubernetes(told, hasty(told.endpoint))


class TestContract(Contract):
    """Kubernetes under the contract of all connectors."""

    subject = Subject(
        "kubernetes",
        double=lambda: serving(pytorch_cluster()),
        build=quick,
        window=WINDOW,
    )


# -- jobs --------------------------------------------------------------------------------------------------------------


def test_a_job_with_its_ranks_nodes_and_end():
    """A failed job shows which pod failed, why, where, and when."""
    (one,) = found(pytorch_cluster(), "llm-7b")
    assert (one.job.id, one.job.state, one.job.attempt, one.job.world_size, one.namespace) == (
        "ml/llm-7b",
        "FAILED",
        0,
        3,
        "ml",
    )
    assert one.job.nodes == {"node-0": (0,), "node-1": (1,), "node-2": (2,)}
    (attempt,) = one.attempts
    assert (attempt.reason, attempt.exit_code, attempt.signal) == ("Error", 143, 15)
    assert (attempt.queued, attempt.scheduled, attempt.initialised, attempt.stopped) == (
        START - 30,
        START + 10,
        START + 60,
        START + 3000,
    )
    assert one.labels == {"kind": "PyTorchJob", "training.kubeflow.org/job-name": "llm-7b"}


@pytest.mark.parametrize(
    ("text", "namespace", "names"),
    [
        ("ml/llm-7b", None, ["ml/llm-7b"]),
        ("PyTorchJob/llm-7b", None, ["ml/llm-7b"]),
        ("jobset/llm-7b", None, []),
        ("llm-7b", "ml", ["ml/llm-7b"]),
        ("llm-7b", "other", []),
        ("other/llm-7b", None, []),
        ("llm-7", None, []),
        ("LLM-7B", None, []),
        ("llm-7b,other", None, []),
    ],
)
def test_names_of_jobs(text, namespace, names):
    """A name is exact, and may include its namespace or kind."""
    assert [group.job.id for group in found(pytorch_cluster(), text, namespace=namespace)] == names


def test_what_controls_a_job_is_the_job():
    """The Job that a JobSet made for a TrainJob is found as the TrainJob."""
    cluster = pytorch_cluster()
    cluster.add(
        thing("trainer.kubeflow.org/v1alpha1", "TrainJob", "tune", {"trainer": {"numNodes": 1, "numProcPerNode": 1}}),
        thing(
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            "tune",
            ownerReferences=[owner("trainer.kubeflow.org/v1alpha1", "TrainJob", "tune")],
        ),
        thing("batch/v1", "Job", "tune-node-0", ownerReferences=[owner("jobset.x-k8s.io/v1alpha2", "JobSet", "tune")]),
        pod(
            "tune-node-0-0-abcde",
            {"jobset.sigs.k8s.io/jobset-name": "tune", "jobset.sigs.k8s.io/replicatedjob-name": "node"},
            container="node",
        ),
    )
    for name in ("tune", "tune-node-0"):
        (one,) = found(cluster, name)
        assert (one.job.id, one.job.framework, [member.name for member in one.members]) == (
            "ml/tune",
            "TrainJob",
            ["tune-node-0-0-abcde"],
        )


def test_a_ray_jobs_pods_are_those_of_its_cluster():
    """A RayJob's pods carry its cluster's name, except the one that submitted it."""
    cluster = pytorch_cluster()
    cluster.add(
        thing("ray.io/v1", "RayJob", "rl", status={"rayClusterName": "rl-x7", "jobStatus": "RUNNING"}),
        pod("rl-x7-head", {"ray.io/cluster": "rl-x7", "ray.io/node-type": "head"}, container="ray-head"),
        pod("rl-abcde", {"job-name": "rl"}, container="ray-job-submitter"),
    )
    (one,) = found(cluster, "rl")
    assert {member.name for member in one.members} == {"rl-x7-head", "rl-abcde"}


def test_pods_that_nothing_controls():
    """Bare pods are found by a label of the site, or one by its own name."""
    cluster = pytorch_cluster()
    cluster.add(
        *(pod(f"free-{at}", {"team/run": "exp-9"}, env={"RANK": str(at), "NPROC_PER_NODE": "1"}) for at in (0, 1))
    )
    (one,) = found(cluster, "exp-9", job_labels=("team/run",))
    assert [(member.name, member.rank) for member in one.members] == [("free-0", 0), ("free-1", 1)]
    assert [group.job.name for group in found(cluster, "free-1")] == ["free-1"]
    assert found(cluster, "exp-9") == ()


def test_other_namespaces_do_not_exist():
    """If only some namespaces are configured, no other one is queried or known."""
    cluster = pytorch_cluster(manifest="namespaced.yaml")
    assert [group.job.id for group in found(cluster, "llm-7b", namespaces=("ml",), nodes=False)] == ["ml/llm-7b"]
    assert found(cluster, "other/llm-7b", namespaces=("ml",), nodes=False) == ()
    assert not [path for _, path, _ in cluster.seen if path != "/apis" and "/namespaces/ml/" not in path]


def test_the_last_good_run():
    """The run with the same name except for its number that completed last before this one began."""
    cluster = pytorch_cluster(job="llm-7b-12")
    for number, kind, end in (
        (9, "Succeeded", -9000),
        (10, "Succeeded", -5000),
        (11, "Failed", -2000),
        (13, "Succeeded", 9000),
    ):
        status = {
            "conditions": [condition(kind, START + end)],
            "completionTime": condition(kind, START + end)["lastTransitionTime"],
        }
        cluster.add(thing("kubeflow.org/v1", "PyTorchJob", f"llm-7b-{number}", status=status))
    assert [group.last_good for group in found(cluster, "llm-7b-12")] == ["ml/llm-7b-10"]


def test_jobs_of_a_window():
    """Jobs that ran in the window are listed newest first, without those created by other objects."""
    cluster = pytorch_cluster()
    cluster.add(
        thing("batch/v1", "Job", "old", status={"conditions": [condition("Complete", START - 9000)]}),
        thing("batch/v1", "Job", "child", ownerReferences=[owner("jobset.x-k8s.io/v1alpha2", "JobSet", "x")]),
        thing("batch/v1", "Job", "new", creationTimestamp="2025-11-13T02:20:00Z"),
    )
    with serving(cluster) as url:
        listed = Kubernetes(settings(url)).recent(WINDOW, Deadline.within(60))
    assert [job_summary.name for job_summary in listed] == ["new", "llm-7b"]
    assert listed[1] == JobSummary("ml/llm-7b", "llm-7b", "FAILED", START + 30, START + 3000, None, "ml")


# -- evidence ----------------------------------------------------------------------------------------------------------


def test_logs_by_rank():
    """Each pod's log is stored under its rank, each line with its time; the speaker is recorded."""
    spool, gaps = collected(pytorch_cluster())
    assert set(spool.logs) == {f"logs/kubernetes/rank-{at}.log" for at in range(3)}
    lines = spool.logs["logs/kubernetes/rank-1.log"].splitlines()
    assert lines[0] == b"2025-11-13T02:14:20.000000000Z worker 1 step 0"
    assert peel(lines[0]).time == START + 60
    assert spool.told["logs/kubernetes/rank-1.log"]["resource"] == Resource(
        node="node-1", rank=1, container="llm-7b-worker-1"
    )
    assert [gap.code for gap in gaps] == ["events_expired"]


def test_pods_and_nodes_as_a_bundle_has_them():
    """pods.json and nodes.json have the form that the reader of bundles expects, without environment, arguments or annotations."""
    spool, _ = collected(pytorch_cluster())
    kinds = [item.kind for item in read_kubernetes(spool.parts["pods.json"], "pods.json")[0]]
    assert sorted(set(kinds)) == ["exit", "oom_kill", "pod"]
    assert read_kubernetes(spool.parts["nodes.json"], "nodes.json") == ((), ())
    assert not [
        word
        for word in (b"hf_secret", b"HF_TOKEN", b"annotations")
        if any(word in part for part in spool.parts.values())
    ]


def test_a_node_that_is_gone():
    """A node that is not ready is reported with its taints and its last lease; its pod's log is a gap, the others are there."""
    cluster = pytorch_cluster()
    cluster.objects["", "nodes"][1] = node(
        "node-1", ready=False, taints=[{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]
    )
    lease = thing(
        "coordination.k8s.io/v1",
        "Lease",
        "node-1",
        {"holderIdentity": "node-1", "renewTime": "2025-11-13T03:02:00.000000Z"},
    )
    lease["metadata"]["namespace"] = "kube-node-lease"
    cluster.add(lease)
    cluster.dead_nodes.add("node-1")
    spool, gaps = collected(cluster)
    told = read_kubernetes(spool.parts["nodes.json"], "nodes.json")[0]
    assert [(item.kind, item.resource.node) for item in told] == [
        ("node_failure", "node-1"),
        ("node_failure", "node-1"),
        ("lease", "node-1"),
    ]
    assert set(spool.logs) == {"logs/kubernetes/rank-0.log", "logs/kubernetes/rank-2.log"}
    (gap,) = [item for item in gaps if item.code == "source_server_error"]
    assert (gap.scope, "no route to host" in gap.reason) == ("llm-7b-worker-1", True)


@pytest.mark.parametrize(("others", "lists", "names"), [(300, 1, 0), (1500, 1, 20), (0, 1, 0)])
def test_nodes_of_a_large_cluster(others, lists, names):
    """Of many nodes, one page is read, and those of the job that it lacks by name: not all pages of a large cluster."""
    cluster = pytorch_cluster(20)
    cluster.add(*(node(f"a-{at:04d}") for at in range(others)))
    spool, _ = collected(cluster, asked={"kinds": frozenset({"events"})})
    asked = [query.get("fieldSelector") for _, path, query in cluster.seen if path == "/api/v1/nodes"]
    assert (asked.count(None), len(asked) - asked.count(None)) == (lists, names)
    assert len(json.loads(spool.parts["nodes.json"])["items"]) == 20


def test_the_run_before_the_restart_comes_first():
    """For a restarted container both runs are there, in order of time."""
    spool, _ = collected(restarted())
    assert [line[31:] for line in spool.logs["logs/kubernetes/rank-0.log"].splitlines()] == [
        b"RuntimeError: first",
        b"started again",
    ]


def test_a_previous_log_that_is_gone():
    """If the node no longer keeps the earlier log, a gap says so and the rest is there."""
    cluster = restarted()
    cluster.kubelet.odd_logs["llm-7b-worker-0"] = "unable to retrieve container logs for containerd://4f2"
    spool, gaps = collected(cluster)
    assert spool.logs == {}
    assert [gap.code for gap in gaps if gap.code.startswith("logs")] == ["logs_lost"]


def test_nodes_whose_clock_zone_is_not_utc():
    """A node that writes timestamps in its own zone is read in UTC."""
    cluster = pytorch_cluster(1)
    cluster.kubelet.zones["llm-7b-worker-0"] = 8
    spool, _ = collected(cluster)
    assert spool.logs["logs/kubernetes/rank-0.log"].startswith(b"2025-11-13T02:14:20.000000000Z worker 0 step 0\n")


def test_a_long_log_keeps_both_its_ends():
    """If the limit cuts a log, its newest lines are fetched in addition, nothing is duplicated, and a gap says what is missing."""
    cluster = pytorch_cluster(1)
    one = cluster.objects["", "pods"][0]
    cluster.log(one, [(START + 60 + step / 10, f"step {step} {'x' * 90}") for step in range(4000)])
    spool, gaps = collected(cluster, bounds=Bounds(log_bytes=64 << 10))
    steps = [int(line.split()[2]) for line in spool.logs["logs/kubernetes/rank-0.log"].splitlines()]
    assert (steps[0], steps[-1], len(set(steps)) == len(steps), steps == sorted(steps)) == (0, 3999, True, True)
    assert steps[-200:] == list(range(3800, 4000))
    assert [gap.reason for gap in gaps if gap.code == "logs_cut"] == [
        "1 of 1 logs: longer than 65,536 bytes: the middle is missing"
    ]


def test_only_lines_of_the_window():
    """Lines before and after the window are left out."""
    spool, _ = collected(pytorch_cluster(1), window=Window(START + 61, START + 63))
    assert [line[-6:] for line in spool.logs["logs/kubernetes/rank-0.log"].splitlines()] == [b"step 1", b"step 2"]


def test_of_many_pods_the_odd_ones_are_fetched_whole():
    """Beyond 64 pods those that failed are fetched completely, of the others the ends; everything stays within the limits."""
    cluster = pytorch_cluster(100)
    pods = cluster.objects["", "pods"]
    for at, item in enumerate(pods):
        if at != 90:
            item["status"]["phase"] = "Running"
            item["status"]["containerStatuses"][0]["state"] = {"running": {"startedAt": "2025-11-13T02:14:20Z"}}
        cluster.log(item, [(START + 60 + step, f"step {step}") for step in range(1000)])
    spool, gaps = collected(cluster)
    counts = {path: data.count(b"\n") for path, data in spool.logs.items()}
    assert counts["logs/kubernetes/rank-90.log"] == 1000
    assert sorted(counts.values()) == [200] * 36 + [1000] * 64
    assert "36 of 100 logs: of pods beyond the first 64, only the last 200 lines were requested" in [
        gap.reason for gap in gaps
    ]
    logs = [query for _, path, query in cluster.seen if path.endswith("/log")]
    assert len(logs) == 100
    assert sum(int(query["limitBytes"]) for query in logs) <= Bounds().log_bytes


def test_deep_fetches_all_lines():
    """If everything is requested, no pod's log is cut down to its end."""
    cluster = pytorch_cluster(1)
    cluster.log(cluster.objects["", "pods"][0], [(START + 60 + step / 10, "x") for step in range(9000)])
    spool, _ = collected(cluster, asked={"deep": True})
    assert spool.logs["logs/kubernetes/rank-0.log"].count(b"\n") == 9000


def test_events_of_the_job_and_its_nodes_only():
    """Events about the job, its pods (including deleted ones) and its nodes are kept; those of others are not."""
    cluster = pytorch_cluster()
    job, worker = cluster.objects["kubeflow.org", "pytorchjobs"][0], cluster.objects["", "pods"][0]
    stranger = pod("llm-7b-eval-worker-0", {})
    gone = pod("llm-7b-worker-9", {})
    cluster.add(
        event(job, "SuccessfulCreatePod", "Created pod: llm-7b-worker-9", number=1),
        event(gone, "Evicted", "The node was low on resource: memory.", number=2),
        event(worker, "Killing", "Stopping container pytorch", number=3),
        event(stranger, "OOMKilling", "not ours", number=4),
        event(node("node-1"), "NodeNotReady", "Node node-1 status is now: NodeNotReady", namespace="default"),
        event(node("node-77"), "NodeNotReady", "not ours", namespace="default"),
    )
    spool, _ = collected(cluster)
    told = read_kubernetes(spool.parts["events.json"], "events.json")[0]
    assert [(item.kind, item.fields["name"]) for item in told] == [
        ("kill", "llm-7b-worker-0"),
        ("eviction", "llm-7b-worker-9"),
        ("warning", "llm-7b"),
        ("node_failure", "node-1"),
    ]


def test_many_events_come_page_by_page():
    """Nothing is lost or duplicated at page borders, even if the server expires the list in between."""
    cluster = pytorch_cluster(1)
    worker = cluster.objects["", "pods"][0]
    cluster.add(*(event(worker, "BackOff", f"number {at}", number=at) for at in range(1300)))
    cluster.expire_after = 1
    spool, _ = collected(cluster)
    told = read_kubernetes(spool.parts["events.json"], "events.json")[0]
    assert sorted(int(item.message.split()[1]) for item in told) == list(range(1300))
    refused = [query for _, path, query in cluster.seen if path.endswith("ml/events")]
    assert [("continue" in query) for query in refused] == [False, True, True, False, True, True]


def test_too_many_events_are_cut():
    """Beyond the limit on pages a gap says how many were read."""
    cluster = pytorch_cluster(1)
    cluster.add(*(event(cluster.objects["", "pods"][0], "BackOff", "x", number=at) for at in range(1300)))
    _, gaps = collected(cluster, bounds=Bounds(pages=4))
    (gap,) = [item for item in gaps if item.code == "events_cut"]
    assert (gap.scope, gap.reason, gap.got) == ("events in ml", "more than 2 pages of 500", "1000 events")


def test_events_are_kept_an_hour():
    """A window that begins before the server's retention is a gap; one within it is not."""
    now = time.time()
    _, gaps = collected(pytorch_cluster(1), window=Window(now - 7200, now))
    (gap,) = [item for item in gaps if item.code == "events_expired"]
    assert gap.reason == "Kubernetes keeps events for 1 h"
    _, gaps = collected(pytorch_cluster(1), window=Window(now - 600, now))
    assert "events_expired" not in [item.code for item in gaps]


def test_what_is_inferred_is_reported():
    """Ranks that are known only by convention are marked so."""
    cluster = pytorch_cluster(1)
    one = cluster.objects["", "pods"][0]
    one["spec"]["containers"][0]["env"] = []
    _, gaps = collected(cluster)
    assert [gap.reason for gap in gaps if gap.code == "ranks_inferred"] == [
        "nothing tells which ranks run in which pod; assumed as many processes in each pod as it has GPUs"
    ]


def test_throttling_is_waited_for():
    """A server that is too busy is asked again after the time that it requests."""
    cluster = pytorch_cluster(1)
    cluster.throttled = 1
    spool, _ = collected(cluster)
    assert spool.logs


# -- the double is strict ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"labelSelector": "a b=c"}, "unable to parse requirement"),
        ({"labelSelector": "a=b,,c"}, "expected: identifier after ','"),
        ({"labelSelector": "a=b}|x"}, "valid label"),
        ({"fieldSelector": "spec.image=x"}, "field label not supported"),
        ({"fieldSelector": "metadata.name"}, "invalid selector"),
        ({"limit": "many"}, "ParseInt"),
        ({"continue": "rubbish"}, "continue key is not valid"),
    ],
)
def test_bad_requests_are_refused(params, words):
    """The double refuses what a real server refuses."""
    cluster = pytorch_cluster(1)
    code, told, _ = cluster.answer(
        "GET",
        f"/api/v1/pods?{'&'.join(f'{k}={v}' for k, v in params.items())}".replace(" ", "%20"),
        {"authorization": f"Bearer {TOKEN}"},
        b"",
    )
    assert (code, told["kind"], told["status"]) == (400, "Status", "Failure")
    assert words in told["message"]


@pytest.mark.parametrize("name", ["a=b", "a,b", "a b", "", "a)", "a\n", "é", "x" * 64])
def test_values_that_no_label_has(name):
    """A string that is not a valid label value makes no selector."""
    assert selector("app", name) is None


# -- logins ------------------------------------------------------------------------------------------------------------


def kubeconfig(folder, user, **cluster):
    """A kubeconfig file."""
    told = {
        "current-context": "main",
        "contexts": [{"name": "main", "context": {"cluster": "east", "user": "me"}}],
        "clusters": [{"name": "east", "cluster": {"server": "https://10.0.0.1:6443", **cluster}}],
        "users": [{"name": "me", "user": user}],
    }
    path = folder / "config"
    path.write_text(json.dumps(told))
    return path


def test_a_token_in_a_kubeconfig(tmp_path):
    """A token in the file is read again each time, and shown nowhere."""
    path = kubeconfig(tmp_path, {"token": "first"})
    endpoint = from_kubeconfig(str(path), None, Load(), (), tmp_path)
    assert (endpoint.url, endpoint.login.token.value()) == ("https://10.0.0.1:6443", "first")
    kubeconfig(tmp_path, {"token": "second"})
    assert endpoint.login.token.value() == "second"
    assert "first" not in repr(endpoint)


def test_certificates_in_a_kubeconfig(tmp_path):
    """Certificate and key, in the file or next to it, become one private file; so does the CA."""
    (tmp_path / "me.key").write_text("KEY\n")
    inside = {"client-certificate-data": base64.b64encode(b"CERT\n").decode(), "client-key": "me.key"}
    path = kubeconfig(tmp_path, inside, **{"certificate-authority-data": base64.b64encode(b"CA\n").decode()})
    endpoint = from_kubeconfig(str(path), "main", Load(), (), tmp_path)
    assert endpoint.client_cert is not None
    assert endpoint.ca_file is not None
    assert Path(endpoint.client_cert).read_text() == "CERT\n\nKEY\n"
    assert Path(endpoint.ca_file).read_text() == "CA\n"
    assert Path(endpoint.client_cert).stat().st_mode & 0o077 == 0


def test_a_plugin_is_run_only_where_it_is_allowed(tmp_path):
    """A command that provides tokens is run only if the settings name it, and its token is kept until it expires."""
    script = tmp_path / "login"
    count = tmp_path / "count"
    told = {"kind": "ExecCredential", "status": {"token": "given", "expirationTimestamp": "2999-01-01T00:00:00Z"}}
    script.write_text(f"#!/bin/sh\necho x >> {count}\necho '{json.dumps(told)}'\n")
    script.chmod(0o755)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(script), "args": ["get"]}}
    path = kubeconfig(tmp_path, user)
    with pytest.raises(SourceFailed, match="which is not allowed"):
        from_kubeconfig(str(path), None, Load(), (), tmp_path)
    token = from_kubeconfig(str(path), None, Load(), (str(script),), tmp_path).login.token
    assert [token.value(), token.value(), count.read_text()] == ["given", "given", "x\n"]


@pytest.mark.parametrize(
    ("user", "cluster", "words"),
    [
        ({"exec": {"command": "/bin/login", "env": [{"name": "LD_PRELOAD", "value": "x"}]}}, {}, "LD_PRELOAD"),
        ({"exec": {"command": ["x"]}}, {}, "malformed"),
        ({"token": "x"}, {"insecure-skip-tls-verify": True}, "disables the TLS verification"),
        ({"username": "me", "password": "secret"}, {}, "uses a password"),
        ({"auth-provider": {"name": "gcp"}}, {}, "auth-provider"),
        ({"client-certificate-data": "%"}, {}, "not base64"),
        ({"token": "x"}, {"server": "file:///etc/passwd"}, "not a server address"),
    ],
)
def test_kubeconfigs_that_are_refused(tmp_path, user, cluster, words):
    """Unsafe, outdated or broken settings are refused in words that contain no secret."""
    path = kubeconfig(tmp_path, user, **cluster)
    with pytest.raises(SourceFailed, match=words) as failed:
        from_kubeconfig(str(path), None, Load(), ("/bin/login",), tmp_path)
    assert "secret" not in str(failed.value)


@pytest.mark.parametrize(
    "text", ["", "- 1", "{", "current-context: 5", "x: !!python/object:os.system {}", "a: &a [*a]"]
)
def test_rubbish_for_a_kubeconfig(tmp_path, text):
    """A file that is not a kubeconfig is refused."""
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(SourceFailed):
        from_kubeconfig(str(path), None, Load(), (), tmp_path)


def test_within_a_cluster(tmp_path, monkeypatch):
    """In a pod the service account's files tell how to reach the server; the token is read again each time."""
    (tmp_path / "token").write_text("one\n")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    endpoint = in_cluster(Load(), tmp_path)
    assert (endpoint.url, endpoint.ca_file) == ("https://[fd00::1]:443", str(tmp_path / "ca.crt"))
    (tmp_path / "token").write_text("two\n")
    assert endpoint.login.token.value() == "two"
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    with pytest.raises(SourceFailed, match="kubeconfig:"):
        in_cluster(Load(), tmp_path)


def test_a_connector_with_a_kubeconfig(tmp_path):
    """The file's server is asked with the file's token."""
    with serving(pytorch_cluster(1)) as url:
        path = kubeconfig(tmp_path, {"token": TOKEN}, server=url)
        jobs = Kubernetes(KubernetesSettings(kubeconfig=str(path))).find(
            JobQuery("llm-7b", WINDOW), Deadline.within(60)
        )
    assert [job.job.id for job in jobs] == ["ml/llm-7b"]
