"""Metrics from a real Prometheus: only the job's own series, in pieces, and as medians where there are too many."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from bot.diagnosis.diagnose import diagnose_bundle
from connectors.base.contract import CollectionRequest, Deadline
from connectors.base.http import Endpoint, HttpClient
from connectors.metrics import prometheus as module
from connectors.metrics.prometheus import Prometheus
from kb.model import Job, JobRecord, Member, Window
from kb.parsers.artefacts.promql.answer import read_prometheus
from tests.support.contract.subject import Memory, Subject
from tests.support.contract.suite import Contract
from tests.support.prometheus_server import line, needed, serving

BEGIN = 1_780_000_200.0
SPAN = 3600.0
WINDOW = Window(BEGIN, BEGIN + SPAN)
EAST = ("gpu-n1", "gpu-n2")


def samples() -> Iterator[str]:
    """One hour of two pod jobs (both spellings of labels), a Slurm job, an unassigned GPU, and the ports of their nodes."""
    for at in (BEGIN + 30 * tick for tick in range(121)):
        for node in EAST:
            for gpu in range(4):
                slow = node == "gpu-n2" and gpu == 3
                who = {"Hostname": node, "gpu": str(gpu), "UUID": f"{node}-{gpu}", "instance": "10.0.0.9:9400"}
                mine = {"namespace": "east", "pod": f"fit-{node[-1]}", **who}
                yield line("DCGM_FI_DEV_GPU_UTIL", 40 if slow else 97, at, **mine)
                yield line("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 0.5, at, **mine)
                yield line("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", (at - BEGIN) if slow else 0, at, **mine)
            for way in ("transmitted", "received"):
                port = {"instance": f"{node}:9100", "device": "mlx5_0", "port": "1"}
                yield line(f"node_infiniband_port_data_{way}_bytes_total", 1e9 * (at - BEGIN), at, **port)
        other = {"exported_namespace": "west", "exported_pod": "fit-1", "pod": "dcgm-exporter-x", "namespace": "gpu"}
        yield line("DCGM_FI_DEV_GPU_UTIL", 55, at, hostname="gpu-n3", gpu="0", **other)
        yield line("DCGM_FI_DEV_GPU_UTIL", 66, at, Hostname="gpu-n4", gpu="0", hpc_job="771")
        yield line("node_load1", 3, at, instance="gpu-n4:9100")
        yield line("DCGM_FI_DEV_GPU_UTIL", 77, at, Hostname="gpu-n5", gpu="0")
        yield from faults(at)
    yield line("node_load1", 1, time.time() - 60, instance="gpu-n9:9100")


def faults(at: float) -> Iterator[str]:
    """Three jobs of the north, each with a fault after 50 minutes that only an exporter shows."""
    late = at >= BEGIN + 3000
    for job, metric, value in (("xid", "DCGM_FI_DEV_XID_ERRORS", 79), ("remap", "DCGM_FI_DEV_ROW_REMAP_PENDING", 1)):
        for gpu in range(2):
            who = {"namespace": "north", "pod": f"{job}-0", "Hostname": f"gpu-{job}", "gpu": str(gpu)}
            yield line("DCGM_FI_DEV_GPU_UTIL", 97, at, **who)
            yield line(metric, value if late and gpu else 0, at, **who)
    who = {"namespace": "north", "pod": "oom-0", "node": "gpu-oom"}
    yield line("DCGM_FI_DEV_GPU_UTIL", 97, at, gpu="0", Hostname="gpu-oom", namespace="north", pod="oom-0")
    yield line("container_oom_events_total", 1 if late else 0, at, container="main", **who)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that has them."""
    needed()
    with serving(tmp_path_factory.mktemp("prometheus"), list(samples())) as found:
        yield found


def series(shelf, metric):
    """Node and GPU or port of each series of a metric, with its last value and how many points it has."""
    found = {}
    for path, body in sorted(shelf.parts.items()):
        read, _ = read_prometheus(body, path)
        for item in read or ():
            if item.metric == metric:
                found[item.resource.node, item.resource.gpu or item.part] = (item.values[-1], len(set(item.times)))
    return found


@contextmanager
def double() -> Iterator[str]:
    """A real server with a little."""
    needed()
    with TemporaryDirectory() as folder, serving(Path(folder), list(few())) as found:
        yield found


def few() -> Iterator[str]:
    """One GPU of a pod, and its node's load, for ten minutes and now."""
    for at in (*(BEGIN + 30 * tick for tick in range(21)), time.time() - 60):
        yield line("DCGM_FI_DEV_GPU_UTIL", 97, at, Hostname="gpu-n1", gpu="0", namespace="east", pod="fit-1")
        yield line("node_load1", 1, at, instance="gpu-n1:9100")


class TestContract(Contract):
    """The contract of all connectors, with a real Prometheus behind the hostile server."""

    subject = Subject(
        "prometheus",
        double,
        lambda url: Prometheus(HttpClient(Endpoint(url), sleep=lambda seconds: time.sleep(min(seconds, 0.05)))),
        record=lambda name: pods("east", name),
        job="fit-1",
        window=Window(BEGIN, BEGIN + 600),
    )


def pods(namespace, *names, nodes=()):
    """A job of Kubernetes."""
    job = Job(id=f"{namespace}/fit", nodes=dict.fromkeys(nodes, ()))
    return JobRecord(job, "kubernetes", namespace, members=tuple(Member(name) for name in names))


def collected(address, record, window=WINDOW, **settings):
    """What is collected of a job: the spool and the gaps by code."""
    deadline = Deadline.within(30)
    shelf = Memory(deadline)
    source = Prometheus(HttpClient(Endpoint(address)), **{"least_step": 30.0, **settings})
    gaps = source.collect(CollectionRequest(record, window, deadline), shelf)
    return shelf, {gap.code: gap for gap in gaps}


def test_a_job_gets_its_own_gpus_and_the_ports_of_its_nodes(address):
    """By its pods; its nodes are learned from its GPUs; what the exporter does not collect is reported."""
    shelf, gaps = collected(address, pods("east", "fit-1", "fit-2"))
    util = series(shelf, "gpu_util")
    assert {(node, str(gpu)) for node in EAST for gpu in range(4)} == set(util)
    assert util["gpu-n2", "3"] == (40.0, 121)
    assert {(node, "mlx5_0/1") for node in EAST} == set(series(shelf, "rdma_tx"))
    assert {"metrics/dcgm_fi_dev_gpu_util.json", "metrics/dcgm_fi_prof_pipe_tensor_active.json"} < set(shelf.parts)
    assert shelf.told["metrics/dcgm_fi_dev_gpu_util.json"]["unit"] == "%"
    assert gaps == {}


def test_both_spellings_of_labels_are_found(address):
    """An exporter that Prometheus relabels and one in lower case; the exporter's own pod is not the job's."""
    shelf, gaps = collected(address, pods("west", "fit-1"))
    assert series(shelf, "gpu_util") == {("gpu-n3", "0"): (55.0, 121)}
    assert "metric_not_collected" in gaps


def test_a_job_of_slurm_is_found_by_its_number(address):
    """dcgm-exporter's `hpc_job`; and the node's load by the node that this shows."""
    shelf, _ = collected(address, JobRecord(Job(id="771"), "slurm"))
    assert series(shelf, "gpu_util") == {("gpu-n4", "0"): (66.0, 121)}
    assert series(shelf, "load") == {("gpu-n4", ""): (3.0, 121)}


def test_where_no_series_has_the_job_s_name_its_nodes_stand_for_it(address):
    """This is reported, since on a shared node it may be another job's work."""
    shelf, gaps = collected(address, JobRecord(Job(id="9", nodes={"gpu-n5": (0,)}), "slurm"))
    assert series(shelf, "gpu_util") == {("gpu-n5", "0"): (77.0, 121)}
    assert "whichever job they belong to" in gaps["metrics_by_node"].reason


def test_a_site_names_its_own_labels(address):
    """`labels` apply to every query, `job_labels` identify a job."""
    shelf, _ = collected(address, pods("east", "fit-1"), labels={"gpu": "2"}, job_labels={"namespace": "namespace"})
    assert {("gpu-n1", "2"), ("gpu-n2", "2")} == set(series(shelf, "gpu_util"))


@pytest.mark.parametrize(
    "name", [".*", 'x"} or DCGM_FI_DEV_GPU_UTIL{pod!="', "fit-1|fit-2", "fit-.", "a\\", "a\nb", "\udcff", "ü" * 300]
)
def test_names_are_never_part_of_a_query(address, name):
    """A pod, namespace or job with any name selects exactly that name, and the server accepts it."""
    for record in (pods("east", name), pods(name, "fit-1"), JobRecord(Job(id=name, nodes={name: (0,)}), "slurm")):
        shelf, gaps = collected(address, record)
        assert shelf.parts == {}
        assert {code for code in gaps if code.startswith("source_")} == set()


def test_a_job_without_a_name_is_not_everybody(address):
    """An empty name selects nothing; an empty label would match every series that lacks it."""
    for record in (JobRecord(Job(), "slurm"), pods("east", ""), pods("", "fit-1")):
        shelf, gaps = collected(address, record)
        assert (shelf.parts, "metrics_no_nodes" in gaps) == ({}, True)


def test_a_long_window_is_asked_for_in_pieces(address, monkeypatch):
    """If there are more points than the server returns at once, all are fetched; those at the seams twice."""
    monkeypatch.setattr("connectors.metrics.promql_builder.MOST_POINTS", 50)
    shelf, _ = collected(address, pods("east", "fit-1"), gpu=("DCGM_FI_DEV_GPU_UTIL",), node=())
    bodies = [json.loads(body) for path, body in sorted(shelf.parts.items())]
    times = [time for chunk in bodies for time, _ in chunk["data"]["result"][0]["values"]]
    assert len(bodies) == 3
    assert (len(set(times)), len(times) - len(set(times))) == (121, 2)


def test_the_server_s_own_limit_of_points_is_kept(address):
    """A day at a step of five seconds is 17,280 points a series."""
    window = Window(BEGIN - 23 * SPAN, BEGIN + SPAN)
    source = Prometheus(HttpClient(Endpoint(address)))
    bodies = list(source.query_range('node_load1{instance="gpu-n4:9100"}', window, 5.0, Deadline.within(30)))
    assert len(bodies) == 2
    assert all(json.loads(body)["status"] == "success" for body in bodies)


def test_too_many_series_come_as_medians_and_extremes(address, monkeypatch):
    """The server computes each node's median; the outlying GPU is fetched separately; counters become rates."""
    monkeypatch.setattr(module, "MOST_SERIES", 4)
    monkeypatch.setattr(module, "EXTREMES", 1)
    shelf, gaps = collected(address, pods("east", "fit-1", "fit-2"))
    util = series(shelf, "gpu_util")
    assert {key: last for key, (last, _) in util.items() if not key[1]} == {("gpu-n1", ""): 97.0, ("gpu-n2", ""): 97.0}
    assert util["gpu-n2", "3"][0] == 40.0
    assert len(util) == 4
    ecc = series(shelf, "ecc_single_bit")
    assert pytest.approx(ecc["gpu-n2", "3"][0]) == 1.0
    assert ecc["gpu-n1", ""][0] == 0.0
    assert gaps["metric_medians"].asked == "8"


def test_check_says_what_there_is(address):
    """A working server is reported with its series, a failing one with what to change."""
    deadline = Deadline.within(60)
    good = Prometheus(HttpClient(Endpoint(address))).check(deadline)
    assert (good.works, good.words) == (True, "1 series of node_load1")
    none = Prometheus(HttpClient(Endpoint(address)), labels={"cluster": "nowhere"}).check(deadline)
    assert (none.works, "correct `labels`" in none.change) == (False, True)
    dead = Prometheus(HttpClient(Endpoint("http://127.0.0.1:9"), sleep=lambda _: None)).check(deadline)
    assert (dead.works, dead.sent != "") == (False, True)
    assert dataclasses.asdict(dead)["change"]


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        ("xid", ("gpu_fell_off_bus", "Xid 79 on GPU 1 of gpu-xid")),
        ("remap", ("gpu_fault", "a memory row waits to be remapped at the next GPU reset: row_remap_pending went from 0 to 1 on GPU 1")),
        ("oom", ("host_oom", "On gpu-oom, a process was killed because memory ran out or a memory limit was exceeded")),
    ],
)  # fmt: skip
def test_a_fault_that_only_an_exporter_shows_is_named(address, tmp_path, known, job, expected):
    """With its node and GPU; the log ends at the same time without a word."""
    shelf, _ = collected(address, pods("north", f"{job}-0"))
    (tmp_path / "logs").mkdir()
    at = (datetime.fromtimestamp(BEGIN + 10 * step, UTC) for step in range(302))
    log = "".join(f"{time:%Y-%m-%d %H:%M:%S} INFO step {step}/9000 loss 2.{step:03}\n" for step, time in enumerate(at))
    shelf.parts["logs/rank-0.log"] = (
        log.encode() + b"2026-05-28 21:20:20 ERROR [rank0]: NCCL error: remote process exited\n"
    )
    for path, body in shelf.parts.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(body)
    (tmp_path / "job.yaml").write_text(f"id: north/{job}\n")
    report = diagnose_bundle(known, tmp_path, workers=1).report
    first = report.diagnoses[0]
    assert (first.fault, [suspect.node for suspect in first.suspects]) == (expected[0], [f"gpu-{job}"])
    assert expected[1] in first.summary
