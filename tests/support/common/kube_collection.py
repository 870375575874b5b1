"""Collections from a cluster of the double."""

from __future__ import annotations

from connectors.base.contract import Bounds, CollectionRequest, Deadline, JobQuery
from connectors.kubernetes.connector import Kubernetes
from kb.model import Job, JobRecord, Window
from tests.doubles.kubernetes import serving
from tests.support.common.kubernetes_settings import settings
from tests.support.contract.subject import END, Memory
from tests.support.kube_objects import START

WINDOW = Window(START - 60, END)


def collected(cluster, *, seconds=20.0, job="llm-7b", bounds=None, window=WINDOW, **more):
    """What a collection writes, and the gaps."""
    with serving(cluster) as url:
        deadline = Deadline.within(seconds)
        spool = Memory(deadline)
        asked = CollectionRequest(
            JobRecord(Job(id=job, name=job), "test"),
            window,
            deadline,
            bounds=bounds or Bounds(),
            **more.pop("asked", {}),
        )
        gaps = tuple(Kubernetes(settings(url, **more)).collect(asked, spool))
    return spool, gaps


def found(cluster, text, *, namespace=None, **more):
    """The jobs found by a name."""
    with serving(cluster) as url:
        query = JobQuery(text, WINDOW, namespace=namespace)
        return Kubernetes(settings(url, **more)).find(query, Deadline.within(60))
