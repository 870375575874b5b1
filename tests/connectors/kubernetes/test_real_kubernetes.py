"""The connector against a real API server (SIGNALBOX_TEST_KUBERNETES names a kube-apiserver binary or a kubeconfig).

The clusters of the double are created in it, and what the connector makes of both is compared: where the real server
differs, the double has to learn.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml

from connectors.base.contract import Bounds, CollectionRequest, Deadline, JobQuery, SourceFailed
from connectors.base.http import HttpClient, HttpRequest
from connectors.bundles.description import read_job
from connectors.kubernetes.connector import Kubernetes
from kb.model import Gap, Job, JobRecord, Window
from kb.parsers.schedulers.kubernetes import read_kubernetes
from tests.doubles.kubelet import Line
from tests.doubles.kubernetes import TOKEN, Cluster, serving
from tests.support import kube_server, stored_logs
from tests.support.certificates import certificate
from tests.support.common.kube_rights import rules_of, used_by
from tests.support.common.kube_scenes import SCENES, dead_node, pods_gone, pytorch_cluster
from tests.support.common.kubernetes_settings import DEPLOY, settings
from tests.support.contract.subject import END, Memory, Subject, hasty
from tests.support.contract.suite import Contract
from tests.support.kube_objects import START, condition, ended, event, iso, kubeflow, node, owner, pod, thing
from tests.support.kube_server import KubeServer, Loaded
from tests.support.paths import BUNDLES
from tests.support.pulled_lines import first

WINDOW = Window(START - 60, END)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeServer]:
    """The server, with the permissions that deploy/kubernetes documents."""
    with kube_server.running(tmp_path_factory.mktemp("kubernetes")) as found:
        found.apply(DEPLOY / "cluster.yaml")
        found.space("kube-node-lease")
        yield found


@pytest.fixture(autouse=True)
def _token(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The token of the documented service account."""
    if "api" in request.fixturenames:
        monkeypatch.setenv("KUBE_TOKEN", request.getfixturevalue("api").account_token())


class Recording(HttpClient):
    """A client that remembers its requests, and may do something before each. Its retries do not wait long."""

    def __init__(self, server: KubeServer, before: Callable[[HttpRequest], None] = lambda _: None) -> None:
        super().__init__(
            settings(server.url, ca_file=server.ca and str(server.ca)).endpoint,
            sleep=lambda seconds: time.sleep(min(seconds, 0.2)),
        )
        self.calls: list[HttpRequest] = []
        self.before = before

    @contextmanager
    def stream(self, call: HttpRequest, deadline: Deadline) -> Iterator[Any]:
        """Remember the request."""
        self.calls.append(call)
        self.before(call)
        with super().stream(call, deadline) as response:
            yield response


def connector(server: KubeServer, client: HttpClient | None = None, **more: Any) -> Kubernetes:
    """The connector with the documented account."""
    chosen = settings(server.url, ca_file=server.ca and str(server.ca), **more)
    return Kubernetes(chosen, client or Recording(server))


def collected(source: Kubernetes, job: str, *, window: Window = WINDOW, **more: Any) -> tuple[Memory, list[Gap]]:
    """What a collection writes, and the gaps."""
    deadline = Deadline.within(60)
    spool = Memory(deadline)
    record = more.pop("record", None) or JobRecord(Job(id=job, name=job), "test")
    return spool, list(source.collect(CollectionRequest(record, window, deadline, **more), spool))


# -- the double and the real one -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("scene", SCENES)
def test_the_double_and_the_real_one_agree(api: KubeServer, scene: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same logs, parts, gaps and record, whichever of the two was asked."""
    loaded = kube_server.load(api, SCENES[scene]())
    source = connector(api)
    (record,) = source.find(JobQuery(loaded.there("llm-7b"), WINDOW), Deadline.within(60))
    spool, gaps = collected(source, loaded.there("llm-7b"), bounds=Bounds(log_bytes=4 << 20))
    monkeypatch.setenv("KUBE_TOKEN", TOKEN)
    cluster = SCENES[scene]()
    with serving(cluster) as url:
        other = Kubernetes(settings(url))
        (expected,) = other.find(JobQuery("llm-7b", WINDOW), Deadline.within(60))
        double, wanted = collected(other, "llm-7b", bounds=Bounds(log_bytes=4 << 20))
    assert {path: loaded.here(data.decode()) for path, data in spool.logs.items()} == {
        path: data.decode() for path, data in double.logs.items()
    }
    assert spool.parts.keys() == double.parts.keys()
    assert sorted(_worded(gap, loaded) for gap in gaps) == sorted(_worded(gap) for gap in wanted)
    for name in spool.parts:
        assert _events(spool.parts[name], name, loaded) == _events(double.parts[name], name)
    assert (record.job.state, record.job.world_size, record.job.start, record.job.end) == (
        expected.job.state,
        expected.job.world_size,
        expected.job.start,
        expected.job.end,
    )
    assert [loaded.here(member.name) for member in record.members] == [member.name for member in expected.members]


def _worded(gap: Gap, loaded: Loaded | None = None) -> str:
    """A gap without times, addresses and what an error says about them."""
    text = f"{gap.code} {gap.reason} {gap.scope} {gap.got if gap.code != 'events_expired' else ''}"
    return re.sub(r"Get \"https.*", "…", loaded.here(text) if loaded else text)


def _events(part: bytes, name: str, loaded: Loaded | None = None) -> list[tuple[object, ...]]:
    """What the reader of bundles makes of a part, without times that the server sets."""
    text = loaded.here(part.decode()) if loaded else part.decode()
    found = read_kubernetes(text.encode(), name)[0]
    return sorted(
        (item.kind, item.reason, item.message, str(item.resource), item.fields.get("count")) for item in found
    )


# -- permissions ---------------------------------------------------------------------------------------------------------


def test_each_rule_is_used_and_each_request_is_allowed(api: KubeServer) -> None:
    """What the connector asks is what deploy/kubernetes/cluster.yaml grants, and the server refuses none of it."""
    loaded = kube_server.load(api, dead_node())
    client = Recording(api)
    source = connector(api, client)
    assert source.find(JobQuery(loaded.there("llm-7b"), WINDOW), Deadline.within(60))
    source.recent(WINDOW, Deadline.within(60))
    _, gaps = collected(source, loaded.there("llm-7b"))
    assert sorted(gap.code for gap in gaps) == ["events_expired", "source_server_error"]
    assert used_by(call.path for call in client.calls) == rules_of(DEPLOY / "cluster.yaml")
    checked = source.check(Deadline.within(30))
    assert (checked.works, checked.change) == (True, "")


def test_each_rule_of_a_single_namespace(api: KubeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for deploy/kubernetes/namespaced.yaml, with the account that it creates."""
    loaded = kube_server.load(api, pytorch_cluster())
    api.apply(DEPLOY / "namespaced.yaml", loaded.namespace)
    monkeypatch.setenv("KUBE_TOKEN", api.account_token(loaded.namespace))
    client = Recording(api)
    source = connector(api, client, namespaces=(loaded.namespace,), nodes=False)
    assert source.find(JobQuery(loaded.there("llm-7b"), WINDOW), Deadline.within(60))
    source.recent(WINDOW, Deadline.within(60))
    spool, gaps = collected(source, loaded.there("llm-7b"))
    assert ([gap.code for gap in gaps], len(spool.logs)) == (["events_expired"], 3)
    assert used_by(call.path for call in client.calls) == rules_of(DEPLOY / "namespaced.yaml")
    with pytest.raises(SourceFailed, match=r"lacks permission to list \S+ in all namespaces"):
        connector(api).find(JobQuery(loaded.there("llm-7b"), WINDOW), Deadline.within(60))


@pytest.mark.parametrize(
    ("resource", "words", "kept"),
    [
        ("pytorchjobs", "list pytorchjobs.kubeflow.org in all namespaces", {"events.json", "pods.json", "nodes.json"}),
        ("pods", "list pods in namespace", {"events.json"}),
        ("pods/log", "get pods/log in namespace", {"events.json", "pods.json", "nodes.json"}),
        ("events", "list events in namespace", {"pods.json", "nodes.json"}),
        ("nodes", "list nodes of the cluster", {"pods.json", "events.json"}),
        ("leases", "get leases.coordination.k8s.io in namespace", {"pods.json", "events.json"}),
    ],
)
def test_a_missing_permission_is_named(
    api: KubeServer, resource: str, words: str, kept: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without one permission the gap names verb, resource and account; everything else is there."""
    loaded = kube_server.load(api, dead_node())
    space = api.space(f"lacks-{loaded.mark}")
    for document in yaml.safe_load_all((DEPLOY / "cluster.yaml").read_text()):
        if document["kind"] == "Namespace":
            continue
        for rule in document.get("rules", ()):
            rule["resources"] = [item for item in rule["resources"] if item != resource]
        rules = [rule for rule in document.get("rules", ()) if rule["resources"]]
        text = json.dumps(document | ({"rules": rules} if "rules" in document else {}))
        text = text.replace('"namespace": "signalbox"', f'"namespace": "{space}"')
        text = re.sub(r'"name": "(signalbox-\w+)"', rf'"name": "\1-{loaded.mark}"', text)
        api.create(json.loads(text))
    monkeypatch.setenv("KUBE_TOKEN", api.account_token(space))
    source = connector(api, job_labels=("training.kubeflow.org/job-name",))
    spool, gaps = collected(source, loaded.there("llm-7b"))
    gap = next(item for item in gaps if item.code == "source_forbidden")
    assert f"system:serviceaccount:{space}:signalbox lacks permission to {words}" in gap.reason
    assert kept <= spool.parts.keys()
    assert bool(spool.logs) == (resource not in {"pods", "pods/log"})


def test_tokens_and_certificates_that_are_not_accepted(
    api: KubeServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An expired, a wrong and a missing token, and a CA of another server: each message says what to renew."""
    tokens = ["wrong", "a.b.c"]
    if api.etcd:
        tokens.append(api.expired_token())
    for token in tokens:
        monkeypatch.setenv("KUBE_TOKEN", token)
        with pytest.raises(SourceFailed, match="token or certificate, which may have expired; renew") as failed:
            connector(api).find(JobQuery("llm-7b", WINDOW), Deadline.within(20))
        assert failed.value.kind == "unauthorised"
        assert token not in str(failed.value)
    certificate(tmp_path / "other.pem", "127.0.0.1")
    stranger = Kubernetes(settings(api.url, ca_file=str(tmp_path / "other.pem")))
    with pytest.raises(SourceFailed, match=r"certificate is not trusted.*ca_file") as failed:
        stranger.find(JobQuery("llm-7b", WINDOW), Deadline.within(60))
    assert failed.value.kind == "unreachable"


# -- lists ---------------------------------------------------------------------------------------------------------------


def test_lists_whose_token_expired(api: KubeServer) -> None:
    """Compacted between two pages, the list starts again; no event is lost or doubled."""
    cluster = pytorch_cluster(1)
    worker = cluster.objects["", "pods"][0]
    cluster.add(*(event(worker, "BackOff", f"number {at}", number=at) for at in range(1100)))
    loaded = kube_server.load(api, cluster)
    compacted: list[str] = []

    def compact(call: HttpRequest) -> None:
        if "continue" in dict(call.pairs()) and not compacted:
            compacted.append(call.path)
            api.compact()
            time.sleep(1)

    spool, gaps = collected(connector(api, Recording(api, compact)), loaded.there("llm-7b"))
    assert compacted
    events = read_kubernetes(spool.parts["events.json"], "events.json")[0]
    assert sorted(int(item.message.split()[1]) for item in events) == list(range(1100))
    assert "events_cut" not in [gap.code for gap in gaps]


def test_events_of_both_apis(api: KubeServer) -> None:
    """An event that a component recorded through events.k8s.io/v1, with a series, counts as often as it happened."""
    loaded = kube_server.load(api, pytorch_cluster(1))
    name = loaded.there("llm-7b-worker-0")
    item = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.1", "namespace": loaded.namespace},
        "eventTime": iso(START + 100).replace("Z", ".000000Z"),
        "series": {"count": 7, "lastObservedTime": iso(START + 200).replace("Z", ".000000Z")},
        "reportingController": "kubelet",
        "reportingInstance": loaded.there("node-0"),
        "action": "Unhealthy",
        "reason": "Unhealthy",
        "regarding": {"kind": "Pod", "namespace": loaded.namespace, "name": name, "apiVersion": "v1"},
        "note": "Readiness probe failed",
        "type": "Warning",
    }
    api.create(item)
    spool, _ = collected(connector(api), loaded.there("llm-7b"))
    (probe,) = read_kubernetes(spool.parts["events.json"], "events.json")[0] or ()
    assert (probe.kind, probe.time, probe.fields["count"], probe.fields["first"]) == (
        "probe_failed",
        START + 200,
        7,
        START + 100,
    )
    assert (probe.message, probe.resource.node) == ("Readiness probe failed", loaded.there("node-0"))


# -- jobs and pods that are gone -----------------------------------------------------------------------------------------


def test_a_job_that_is_gone(api: KubeServer) -> None:
    """Deleted with its pods, a job leaves its events: they are collected, and a gap says what is lost."""
    loaded = kube_server.load(api, pods_gone())
    api.ask("DELETE", f"/apis/kubeflow.org/v1/namespaces/{loaded.namespace}/pytorchjobs/{loaded.there('llm-7b')}")
    path = f"/api/v1/namespaces/{loaded.namespace}/pods"
    api.ask("DELETE", f"{path}/{loaded.there('llm-7b-worker-0')}?gracePeriodSeconds=0")
    spool, gaps = collected(connector(api), loaded.there("llm-7b"))
    assert [(gap.code, gap.got) for gap in gaps] == [("job_gone", "2 events")]
    (record,) = connector(api).find(JobQuery(loaded.there("llm-7b"), WINDOW), Deadline.within(30))
    assert (record.namespace, record.job.framework, record.job.end) == (loaded.namespace, "PyTorchJob", START + 2950)
    events = read_kubernetes(spool.parts["events.json"], "events.json")[0]
    assert sorted((item.kind, loaded.here(str(item.fields["name"]))) for item in events) == [
        ("eviction", "llm-7b-worker-2"),
        ("warning", "llm-7b"),
    ]


def test_a_pod_that_terminates(api: KubeServer) -> None:
    """A pod whose deletion was requested keeps its log; pods.json says when."""
    loaded = kube_server.load(api, pytorch_cluster(1))
    path = f"/api/v1/namespaces/{loaded.namespace}/pods/{loaded.there('llm-7b-worker-0')}"
    held = api.ask("GET", path)
    api.ask("PUT", path, held | {"metadata": held["metadata"] | {"finalizers": ["signalbox.test/kept"]}})
    api.ask("DELETE", path)
    spool, gaps = collected(connector(api), loaded.there("llm-7b"))
    assert [gap.code for gap in gaps] == ["events_expired"]
    (item,) = json.loads(spool.parts["pods.json"])["items"]
    assert item["metadata"]["deletionTimestamp"]
    assert spool.logs["logs/kubernetes/rank-0.log"].count(b"\n") == 5
    held = api.ask("GET", path)
    api.ask("PUT", path, held | {"metadata": held["metadata"] | {"finalizers": []}})


def test_namesakes(api: KubeServer) -> None:
    """Two jobs of one name, with pods of one name, in two namespaces: the one that ran in the window, and a gap."""
    first = kube_server.load(api, pytorch_cluster(1))
    later = pytorch_cluster(1)
    later.objects["kubeflow.org", "pytorchjobs"][0]["status"] = {
        "conditions": [condition("Running", START + 90_000)],
        "startTime": iso(START + 90_000),
    }
    other = kube_server.load(api, later, namespace=f"other-{first.mark}", mark=first.mark)
    spool, gaps = collected(connector(api), first.there("llm-7b"))
    (gap,) = [item for item in gaps if item.code == "job_ambiguous"]
    assert (gap.scope, "name the job as namespace/name" in gap.reason) == (
        f"{other.namespace}/{first.there('llm-7b')}",
        True,
    )
    assert first.namespace.encode() in spool.parts["pods.json"]
    assert other.namespace.encode() not in spool.parts["pods.json"]


def test_owners(api: KubeServer) -> None:
    """Every kind of workload is found by its own name and by that of what it created, with the pods of its label."""
    space = api.space(f"owners-{uuid4().hex[:6]}")

    def made(version: str, kind: str, name: str, *above: dict[str, Any], **more: Any) -> dict[str, Any]:
        references = [
            owner(item["apiVersion"], item["kind"], item["metadata"]["name"]) | {"uid": item["metadata"]["uid"]}
            for item in above
        ]
        item = thing(version, kind, name, more.get("spec"), more.get("status"), namespace=space)
        item["metadata"] = {"name": name, "namespace": space, "ownerReferences": references}
        return {"apiVersion": version, "kind": kind} | api.create(item)

    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]}}
    train = made("trainer.kubeflow.org/v1alpha1", "TrainJob", "tune")
    jobset = made("jobset.x-k8s.io/v1alpha2", "JobSet", "tune", train)
    made("batch/v1", "Job", "tune-node-0", jobset, spec={"template": template, "parallelism": 1})
    made("kubeflow.org/v1", "MPIJob", "horovod")
    made("batch.volcano.sh/v1alpha1", "Job", "gang")
    ray = made("ray.io/v1alpha1", "RayJob", "rl", status={"rayClusterName": "rl-x7", "jobStatus": "RUNNING"})
    made("ray.io/v1alpha1", "RayCluster", "rl-x7", ray)
    made("batch/v1", "Job", "plain", spec={"template": template})
    labels = {
        "tune": ("jobset.sigs.k8s.io/jobset-name", "tune"),
        "horovod": ("training.kubeflow.org/job-name", "horovod"),
        "gang": ("volcano.sh/job-name", "gang"),
        "rl": ("ray.io/cluster", "rl-x7"),
        "plain": ("job-name", "plain"),
    }
    for name, (label, value) in labels.items():
        api.create(pod(f"{name}-pod", {label: value}, namespace=space, node=None, state={"waiting": {"reason": "x"}}))
    source = connector(api)
    found = {}
    for name in (*labels, "tune-node-0", "rl-x7"):
        (record,) = source.find(JobQuery(f"{space}/{name}", WINDOW), Deadline.within(30))
        found[name] = (record.job.name, record.job.framework, [member.name for member in record.members])
    assert found == {
        "tune": ("tune", "TrainJob", ["tune-pod"]),
        "tune-node-0": ("tune", "TrainJob", ["tune-pod"]),
        "horovod": ("horovod", "MPIJob", ["horovod-pod"]),
        "gang": ("gang", "VolcanoJob", ["gang-pod"]),
        "rl": ("rl", "RayJob", ["rl-pod"]),
        "rl-x7": ("rl", "RayJob", ["rl-pod"]),
        "plain": ("plain", "Job", ["plain-pod"]),
    }


# -- whole diagnoses -----------------------------------------------------------------------------------------------------

SAMPLE = ("lab-disk-full", "lab-segfault", "lab-error")


def stored(api: KubeServer, bundle: Path) -> tuple[str, str]:
    """Create a failed PyTorchJob whose pods wrote the logs of a bundle; return its namespace and name."""
    job, _ = read_job(bundle)
    mark = uuid4().hex[:6]
    space, name = api.space(f"ml-{mark}"), f"llm-{mark}"
    start, end = job.start or 0.0, job.end or 0.0
    lines: dict[tuple[str, int], list[Line]] = {}
    places: dict[tuple[str, int], str] = {}
    for number, (where, ranks) in enumerate(job.nodes.items()):
        api.node(node(where))
        places |= {("worker", rank): where for rank in ranks} | {("launcher", number): where}
    for labels, entries in stored_logs.streams(bundle):
        of = ("worker", int(labels["rank"])) if "rank" in labels else ("launcher", [*job.nodes].index(labels["node"]))
        lines.setdefault(of, []).extend(Line(at / stored_logs.NS, text) for at, text in entries)
    status = {"conditions": [condition("Failed", end)], "startTime": iso(start)}
    spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": job.world_size}}}
    api.create(thing("kubeflow.org/v1", "PyTorchJob", name, spec, status, namespace=space))
    for (role, index), where in places.items():
        item = pod(
            f"{name}-{role}-{index}",
            kubeflow(name, role, index),
            namespace=space,
            node=where,
            state=ended(1, start=start, end=end),
            env={"PET_NPROC_PER_NODE": "1"},
            created=start,
        )
        api.create(item)
        key = space, item["metadata"]["name"], "pytorch", "current"
        api.kubelet.logs[key] = sorted(lines.get((role, index), []), key=lambda line: line.at)
    return space, name


@pytest.mark.parametrize("name", SAMPLE)
def test_the_same_diagnosis_as_from_the_files(api: KubeServer, name: str, tmp_path: Path) -> None:
    """`signalbox diagnose JOB` with a kubeconfig: verdict, fault, ranks and nodes are those of the bundle itself."""
    space, job = stored(api, BUNDLES / name)
    kubeconfig = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "east", "user": "me"}}],
        "clusters": [{"name": "east", "cluster": {"server": api.url, "certificate-authority": str(api.ca)}}],
        "users": [{"name": "me", "user": {"token": api.account_token()}}],
    }
    (tmp_path / "kubeconfig").write_text(json.dumps(kubeconfig))
    connectors = {"kube": {"type": "kubernetes", "kubeconfig": str(tmp_path / "kubeconfig")}}
    (tmp_path / "signalbox.yaml").write_text(
        json.dumps(
            {"version": 1, "clusters": {"east": {"connectors": connectors}}, "collect": {"spool": str(tmp_path)}}
        )
    )
    words = [
        "diagnose",
        "--job",
        f"{space}/{job}",
        "--config",
        str(tmp_path / "signalbox.yaml"),
        "--json",
        "--no-store",
    ]
    ran = subprocess.run(
        [sys.executable, "-m", "bot.cli", *words],
        env={**os.environ, "SIGNALBOX_STATE": str(tmp_path / "state")},
        capture_output=True,
        check=False,
        timeout=240,
    )
    assert ran.returncode == 0, ran.stderr.decode()
    report = json.loads(ran.stdout)
    verdict, _, faults, suspects = first(BUNDLES / name)
    assert (report["verdict"], [item["fault"] for item in report["diagnoses"][:1]]) == (verdict, faults)
    found = [
        sorted(
            (it["kind"], it.get("node") or "", -1 if it.get("rank") is None else it["rank"]) for it in item["suspects"]
        )
        for item in report["diagnoses"][:1]
    ]
    assert found == suspects


# -- load ----------------------------------------------------------------------------------------------------------------


def many(workers: int = 64) -> Cluster:
    """A failed job of many pods on eight nodes."""
    cluster = pytorch_cluster(workers)
    for at, item in enumerate(cluster.objects["", "pods"]):
        item["spec"]["nodeName"] = f"node-{at % 8}"
    cluster.objects["", "nodes"] = cluster.objects["", "nodes"][:8]
    return cluster


def test_requests_for_a_job_of_64_pods(api: KubeServer) -> None:
    """A diagnosis finds the job once, reads its pods and nodes once, and each log once."""
    loaded = kube_server.load(api, many())
    client = Recording(api)
    source = connector(api, client)
    (record,) = source.find(JobQuery(loaded.there("llm-7b"), WINDOW), Deadline.within(60))
    finding = len(client.calls)
    collected(source, "", record=record, kinds=frozenset({"events"}))
    spool, _ = collected(source, "", record=record, kinds=frozenset({"logs"}))
    assert len(spool.logs) == 64
    logs = sum(call.path.endswith("/log") for call in client.calls)
    assert (finding, logs, len(client.calls)) == (19, 64, 85)


def test_priority_and_fairness(api: KubeServer) -> None:
    """A level that lets one request through at a time refuses parallel lists with 429: they are repeated, nothing is lost.

    Logs are never refused so: the server counts them as long-running.
    """
    loaded = kube_server.load(api, pytorch_cluster())
    flow = "flowcontrol.apiserver.k8s.io/v1"
    limited = {"nominalConcurrencyShares": 0, "lendablePercent": 0, "borrowingLimitPercent": 0}
    level = {"type": "Limited", "limited": {**limited, "limitResponse": {"type": "Reject"}}}
    resources = {"apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}
    rule = {
        "subjects": [{"kind": "ServiceAccount", "serviceAccount": {"namespace": "signalbox", "name": "signalbox"}}],
        "resourceRules": [{"verbs": ["*"], **resources}],
    }
    name = f"none-{loaded.mark}"
    spec = {"priorityLevelConfiguration": {"name": name}, "matchingPrecedence": 2, "rules": [rule]}
    schema = {"apiVersion": flow, "kind": "FlowSchema", "metadata": {"name": name}, "spec": spec}
    held = {"apiVersion": flow, "kind": "PriorityLevelConfiguration", "metadata": {"name": name}, "spec": level}
    for item in (held, schema):
        api.create(item)

    end = time.monotonic() + 60
    while not api.metric("apiserver_flowcontrol_rejected_requests_total", name):  # until it applies
        assert time.monotonic() < end
        spool, gaps = collected(connector(api), loaded.there("llm-7b"))
        assert (len(spool.logs), [gap.code for gap in gaps]) == (3, ["events_expired"])
    for item in (schema, held):
        api.ask("DELETE", f"{kube_server.path_of(item)}/{name}")


# -- the contract ----------------------------------------------------------------------------------------------------------


@contextmanager
def _contract_server() -> Iterator[str]:
    """A real server with the job of the contract, behind plain HTTP."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder, kube_server.running(Path(folder)) as found:
        found.apply(DEPLOY / "cluster.yaml")
        kube_server.load(found, pytorch_cluster(), namespace=f"contract-{os.getpid()}", mark="7b")
        os.environ["KUBE_TOKEN"] = found.account_token()
        try:
            with kube_server.without_tls(found) as url:
                yield url
        finally:
            del os.environ["KUBE_TOKEN"]


def quick(url: str) -> Kubernetes:
    """The connector, with a client that never waits long."""
    chosen = settings(url)
    return Kubernetes(chosen, hasty(chosen.endpoint))


@pytest.mark.skipif(not kube_server.named(), reason=f"{kube_server.VARIABLE} names no Kubernetes API server")
class TestContract(Contract):
    """The contract suite of all connectors."""

    subject = Subject("real kubernetes", _contract_server, quick, window=WINDOW)
