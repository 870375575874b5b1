"""Logs of pods: nodes that cannot be reached, long lines, init containers, rotation, a server that is too busy."""

import pytest

from connectors.base.contract import Bounds
from connectors.base.http import TRIES, HttpClient
from kb.model import Window
from tests.doubles.kubernetes import TOKEN, Refused
from tests.support.common.kube_collection import collected
from tests.support.common.kube_scenes import odd_lines, pytorch_cluster, waiting
from tests.support.kube_objects import START


@pytest.fixture(autouse=True)
def _token(monkeypatch):
    monkeypatch.setenv("KUBE_TOKEN", TOKEN)


def test_a_node_that_cannot_be_reached_is_one_reason():
    """Of twenty pods on a dead node, one is asked for and the others are not; the gap names the node and the cause."""
    cluster = pytorch_cluster(40)
    for at, item in enumerate(cluster.objects["", "pods"]):
        item["spec"]["nodeName"] = f"node-{at % 2}"
    cluster.objects["", "nodes"] = cluster.objects["", "nodes"][:2]
    cluster.dead_nodes.add("node-1")
    spool, gaps = collected(cluster)
    (gap,) = [item for item in gaps if item.code == "source_server_error"]
    assert gap.reason.startswith(
        "20 of 40 logs could not be fetched: the API server cannot reach the kubelet of node-1, which has the log:"
    )
    assert gap.reason.endswith("dial tcp 10.0.0.9:10250: connect: no route to host")
    assert len(spool.logs) == 20
    asked = {path for _, path, _ in cluster.seen if path.endswith("/log")}
    assert len(asked) == 21


def test_lines_of_256_kilobytes():
    """Of lines that exceed the limit, the end of the newest is there, and no line is doubled."""
    spool, gaps = collected(odd_lines(), bounds=Bounds(log_bytes=4 << 20))
    lines = [line[31:] for line in spool.logs["logs/kubernetes/rank-0.log"].splitlines()]
    steps = [int(line.split(b" ")[0]) for line in lines[:-1]]
    assert steps == list(range(len(steps)))
    assert set(lines[0][2:]) == set(lines[-1]) == set(b"x")
    assert spool.logs["logs/kubernetes/rank-0.log"].splitlines()[-1][:30] == b"2025-11-13T02:14:49.000000000Z"
    assert "1 of 2 logs: longer than 2,097,152 bytes: the middle is missing" in [gap.reason for gap in gaps]


@pytest.mark.parametrize("old", [False, True])
def test_lines_in_parts(old):
    """A line that the container runtime wrote in parts is one line, also where the kubelet puts a time before each part."""
    cluster = pytorch_cluster(1)
    text = "".join(f"{at:07d} " for at in range(5000))
    cluster.log(cluster.objects["", "pods"][0], [(START + 70, text), (START + 71, "next")])
    if old:
        cluster.kubelet.old.add("llm-7b-worker-0")
    spool, gaps = collected(cluster)
    assert [line[31:].decode() for line in spool.logs["logs/kubernetes/rank-0.log"].splitlines()] == [text, "next"]
    assert [gap.code for gap in gaps] == ["events_expired"]


def test_the_limit_on_lines_counts_parts():
    """Where long lines use up the limit on lines, a gap says that earlier ones are missing."""
    cluster = pytorch_cluster(1)
    cluster.log(cluster.objects["", "pods"][0], [(START + 60 + at, "x" * 40_000) for at in range(50)])
    spool, gaps = collected(cluster, bounds=Bounds(log_lines=60))
    assert spool.logs["logs/kubernetes/rank-0.log"].count(b"\n") == 20
    assert "1 of 1 logs: only the last 60 lines were requested" in [gap.reason for gap in gaps]


def test_lines_out_of_order():
    """Lines are in order of their times, in UTC, without carriage returns and zeros."""
    spool, _ = collected(odd_lines(), bounds=Bounds(log_bytes=4 << 20))
    assert spool.logs["logs/kubernetes/rank-1.log"].decode().splitlines() == [
        "2025-11-13T02:14:25.000000000Z früher 你好",
        "2025-11-13T02:14:26.000000000Z <&>",
        "2025-11-13T02:14:30.000000000Z späte",
    ]


def test_an_init_container_that_is_waited_for():
    """The log of an init container that still runs is there; that of a sidecar is not."""
    spool, _ = collected(waiting())
    assert set(spool.logs) == {"logs/kubernetes/rank-0.wait-for-master.log"}


def test_a_rotated_log():
    """A log that begins long after its container, in a window that begins before, lacks its first lines."""
    cluster = pytorch_cluster(2)
    first, second = cluster.objects["", "pods"]
    cluster.log(first, [(START + 1000, "x")])
    cluster.log(second, [(START + 70, "x")])
    _, gaps = collected(cluster)
    (gap,) = [item for item in gaps if item.code == "logs_rotated"]
    assert (gap.scope, gap.rules_out) == ("llm-7b-worker-0", "what was logged before")
    _, gaps = collected(cluster, window=Window(START + 900, START + 2000))
    assert "logs_rotated" not in [item.code for item in gaps]


def test_a_busy_server_is_asked_for_fewer_logs_at_a_time(monkeypatch):
    """Logs that were refused with 429 until the client gave up are asked for again, few at a time."""
    cluster = pytorch_cluster(12)
    answer = cluster.kubelet.text
    tries = {}

    def busy(namespace, pod, container, query):
        tries[pod] = tries.get(pod, 0) + 1
        if tries[pod] <= TRIES + 1:
            raise Refused(429, "TooManyRequests", "too many requests, please try again later")
        return answer(namespace, pod, container, query)

    monkeypatch.setattr(type(cluster.kubelet), "text", lambda _, *asked: busy(*asked))
    monkeypatch.setitem(HttpClient.__init__.__kwdefaults__, "sleep", lambda _seconds: None)
    spool, gaps = collected(cluster)
    assert len(spool.logs) == 12
    assert "source_rate_limited" not in [gap.code for gap in gaps]
    assert max(tries.values()) > TRIES
