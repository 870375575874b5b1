"""Permissions: deploy/kubernetes grants what is asked, nothing else, and a missing permission is named."""

from dataclasses import replace

import pytest

from connectors.base.contract import Deadline, JobQuery, SourceFailed
from connectors.base.http import Login
from connectors.kubernetes.connector import Kubernetes
from tests.doubles.kubernetes import TOKEN, serving
from tests.support.common.kube_collection import WINDOW, collected
from tests.support.common.kube_rights import rules_of, used_by
from tests.support.common.kube_scenes import dead_node, pytorch_cluster
from tests.support.common.kubernetes_settings import DEPLOY, settings
from tests.support.kube_objects import owner, pod, thing


@pytest.fixture(autouse=True)
def _token(monkeypatch):
    monkeypatch.setenv("KUBE_TOKEN", TOKEN)


def test_the_documented_roles_are_enough():
    """With the rights in deploy/kubernetes/cluster.yaml, and no others, no request is refused, and `check` says so."""
    cluster = pytorch_cluster()
    _, gaps = collected(cluster)
    assert [gap.code for gap in gaps] == ["events_expired"]
    with serving(cluster) as url:
        checked = Kubernetes(settings(url)).check(Deadline.within(60))
    assert (checked.works, checked.change) == (True, "")


def test_the_documented_role_of_one_namespace_is_enough():
    """With the rights in deploy/kubernetes/namespaced.yaml, its single namespace is read, without nodes."""
    cluster = pytorch_cluster(manifest="namespaced.yaml")
    spool, gaps = collected(cluster, namespaces=("ml",), nodes=False)
    assert [gap.code for gap in gaps] == ["events_expired"]
    assert (len(spool.logs), sorted(spool.parts)) == (3, ["events.json", "pods.json"])
    with serving(cluster) as url:
        assert Kubernetes(settings(url, namespaces=("ml",), nodes=False)).check(Deadline.within(60)).works


def test_every_right_of_the_roles_is_used():
    """The file grants no unneeded right: without any one of them something is missing."""
    cluster = pytorch_cluster()
    rules = list(cluster.rights)
    with serving(cluster) as url:
        connector = Kubernetes(settings(url))
        for index, (space, rule) in enumerate(rules):
            for verb in rule["verbs"]:
                kept = {**rule, "verbs": [item for item in rule["verbs"] if item != verb]}
                cluster.rights = [*rules[:index], (space, kept), *rules[index + 1 :]]
                checked = connector.check(Deadline.within(60))
                assert f"{verb} {rule['resources'][0]}" in checked.words


def test_a_right_that_is_lacking_is_named():
    """Without the right to read logs there are gaps, the rest is there, and `check` says what to do."""
    cluster = pytorch_cluster(1)
    cluster.rights = [
        (space, rule) for space, rule in cluster.rights if rule["resources"] not in (["pods/log"], ["nodes"])
    ]
    spool, gaps = collected(cluster)
    assert ("pods.json" in spool.parts, spool.logs) == (True, {})
    assert sorted(gap.code for gap in gaps) == ["events_expired", "source_forbidden", "source_forbidden"]
    with serving(cluster) as url:
        checked = Kubernetes(settings(url)).check(Deadline.within(60))
    assert not checked.works
    assert checked.words == "the server denies: get pods/log anywhere, list nodes anywhere"


@pytest.mark.parametrize(
    ("manifest", "more"),
    [("cluster.yaml", {}), ("namespaced.yaml", {"namespaces": ("ml",), "nodes": False})],
)
def test_each_rule_is_used_by_a_request(manifest, more):
    """What is asked in a diagnosis and in a list of recent jobs is what the file grants, no more and no less."""
    cluster = dead_node()
    cluster.rights = []
    cluster.allow(DEPLOY / manifest)
    with serving(cluster) as url:
        source = Kubernetes(settings(url, **more))
        assert source.find(JobQuery("llm-7b", WINDOW), Deadline.within(20))
        source.recent(WINDOW, Deadline.within(20))
    collected(cluster, **more)
    assert used_by(path for _, path, _ in cluster.seen) == rules_of(DEPLOY / manifest)


@pytest.mark.parametrize(
    ("resource", "words", "parts"),
    [
        ("pytorchjobs", "list pytorchjobs.kubeflow.org in all namespaces", {"events.json", "pods.json", "nodes.json"}),
        ("pods", "list pods in namespace ml", {"events.json"}),
        ("pods/log", "get pods/log in namespace ml", {"events.json", "pods.json", "nodes.json"}),
        ("events", "list events in namespace ml", {"pods.json", "nodes.json"}),
        ("nodes", "list nodes of the cluster", {"pods.json", "events.json"}),
        ("leases", "get leases.coordination.k8s.io in namespace kube-node-lease", {"pods.json", "events.json"}),
    ],
)
def test_the_missing_permission_is_named(resource, words, parts):
    """Without one permission the gap says who lacks which verb on what; the rest is there."""
    cluster = dead_node()
    cluster.rights = [
        (space, {**rule, "resources": [item for item in rule["resources"] if item != resource]})
        for space, rule in cluster.rights
    ]
    spool, gaps = collected(cluster, job_labels=("training.kubeflow.org/job-name",))
    gap = next(item for item in gaps if item.code == "source_forbidden")
    assert f"system:serviceaccount:signalbox:signalbox lacks permission to {words}; deploy/" in gap.reason
    assert parts <= spool.parts.keys()
    assert "no_pods" not in [item.code for item in gaps]


def test_an_owner_that_may_not_be_read():
    """A Job whose JobSet is forbidden is the job itself, with a gap."""
    cluster = pytorch_cluster()
    above = [owner("jobset.x-k8s.io/v1alpha2", "JobSet", "tune")]
    cluster.add(
        thing("jobset.x-k8s.io/v1alpha2", "JobSet", "tune"),
        thing("batch/v1", "Job", "tune-node-0", ownerReferences=above),
        pod("tune-node-0-0-abcde", {"job-name": "tune-node-0"}),
    )
    cluster.rights = [(space, rule) for space, rule in cluster.rights if rule["resources"] != ["jobsets"]]
    spool, gaps = collected(cluster, job="tune-node-0")
    assert "list jobsets.jobset.x-k8s.io in namespace ml" in " ".join(gap.reason for gap in gaps)
    assert "pods.json" in spool.parts


def test_logins_that_are_refused(monkeypatch):
    """A wrong or expired token, and none: the message says what to renew, and shows no secret."""
    with serving(pytorch_cluster()) as url:
        for token in ("expired-token", ""):
            monkeypatch.setenv("KUBE_TOKEN", token or TOKEN)
            chosen = settings(url)
            if not token:
                chosen = replace(chosen, endpoint=replace(chosen.endpoint, login=Login()))
            with pytest.raises(SourceFailed, match="renew the token") as failed:
                Kubernetes(chosen).find(JobQuery("llm-7b", WINDOW), Deadline.within(60))
            assert failed.value.kind == "unauthorised"
            assert not token or token not in str(failed.value)
