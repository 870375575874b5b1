"""The lines of a job as log shippers bring them into Loki: labels, wrapping and metadata, each with the example for its shipper.

Facts on the layouts are from the documentation of each shipper: Docker's json-file driver and Loki's logging driver, the CRI log
format, `journalctl -o json`, Loki's OTLP endpoint, the Helm charts of Alloy and Promtail, and the outputs of Vector, Fluent Bit and
Logstash.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bot.config.file import load
from bot.config.single_examples import example_for
from connectors.log_stores.loki_settings import LokiSettings

NS = 1_000_000_000
PIECE = 16 << 10  # bytes after which the runtimes cut a line
Lines = Sequence[tuple[int, str]]
Stream = tuple[dict[str, str], list[tuple[Any, ...]]]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a log comes from. Without a rank it is the launcher's."""

    job: str
    rank: int | None
    node: str

    @property
    def pod(self) -> str:
        """The pod of the rank."""
        return f"{self.job}-launcher" if self.rank is None else f"{self.job}-worker-{self.rank}"

    def labels(self, node: str = "node", **more: str) -> dict[str, str]:
        """The labels that the examples for Kubernetes ask for."""
        return {
            "job_name": self.job,
            "namespace": "ml",
            node: self.node,
            "pod": self.pod,
            "container": "trainer",
            **more,
        }

    def kubernetes(self) -> dict[str, Any]:
        """What filters add to a record."""
        return {"pod_name": self.pod, "namespace_name": "ml", "host": self.node, "container_name": "trainer"}


@dataclass(frozen=True, slots=True)
class Layout:
    """One layout. `example`: the shipper whose example configuration fits it; `otlp`: pushed to the OTLP endpoint."""

    example: str
    stream: Callable[[Origin, Lines], Stream]
    otlp: bool = False

    def settings(self, url: str) -> LokiSettings:
        """The settings of the Loki connector in the shipper's example, for this server."""
        text = example_for(self.example).replace("https://loki.example.org", url, 1 << 10)
        (cluster,) = load(text, Path(f"{self.example}.yaml")).clusters
        (settings,) = (item.settings for item in cluster.connectors if item.type == "loki")
        assert isinstance(settings, LokiSettings)
        return settings


def _iso(at: int) -> str:
    return f"{datetime.fromtimestamp(at // NS, UTC):%Y-%m-%dT%H:%M:%S}.{at % NS:09d}Z"


def _cut(line: str) -> Iterable[tuple[str, bool]]:
    """The pieces of a line, and whether more follows; every seventh line counts as long, so that short logs have some."""
    size = PIECE if len(line) > PIECE else max(1, len(line) // 2) if len(line) % 7 == 0 else len(line) or 1
    pieces = [line[at : at + size] for at in range(0, len(line), size)] or [""]
    return ((piece, number < len(pieces) - 1) for number, piece in enumerate(pieces))


def docker(who: Origin, lines: Lines) -> Stream:
    """Docker's JSON files, read without unwrapping."""
    labels = {"job": who.job, "host": who.node, "container_name": who.pod}
    labels |= {} if who.rank is None else {"rank": str(who.rank)}
    entries = [
        (at + part, json.dumps({"log": piece + ("" if more else "\n"), "stream": "stderr", "time": _iso(at)}))
        for at, line in lines
        for part, (piece, more) in enumerate(_cut(line))
    ]
    return labels, entries


def cri(who: Origin, lines: Lines) -> Stream:
    """The runtime's log files, read by Promtail without its stage `cri`; long lines come in pieces."""
    entries = [
        (at + part, f"{_iso(at)} stderr {'P' if more else 'F'} {piece}")
        for at, line in lines
        for part, (piece, more) in enumerate(_cut(line))
    ]
    return who.labels("node_name", job="ml/trainer", filename=f"/var/log/pods/{who.pod}/0.log"), entries


def journal(who: Origin, lines: Lines) -> Stream:
    """The journal's entries as JSON."""
    entries = [
        (
            at,
            json.dumps(
                {
                    "MESSAGE": line,
                    "PRIORITY": "6",
                    "_HOSTNAME": who.node,
                    "_SYSTEMD_UNIT": f"{who.job}.service",
                    "_PID": str(4000 + (who.rank or 0)),
                    "__REALTIME_TIMESTAMP": str(at // 1000),
                }
            ),
        )
        for at, line in lines
    ]
    return {
        "job": "systemd-journal",
        "unit": who.job,
        "hostname": who.node,
    }, entries  # the ranks of a node share a stream


def metadata(who: Origin, lines: Lines) -> Stream:
    """Only job and namespace are labels; the rest is structured metadata."""
    labels = who.labels()
    streams = {name: labels.pop(name) for name in ("job_name", "namespace")}
    return streams, [(at, line, labels) for at, line in lines]


def alloy(who: Origin, lines: Lines) -> Stream:
    """Plain lines with the labels of pods."""
    return who.labels(job="ml/trainer", service_name="trainer"), list(lines)


def vector(who: Origin, lines: Lines) -> Stream:
    """Vector's events as JSON."""
    kubernetes = {"pod_name": who.pod, "pod_namespace": "ml", "pod_node_name": who.node, "container_name": "trainer"}
    entries = [
        (
            at,
            json.dumps(
                {
                    "file": f"/var/log/pods/{who.pod}/0.log",
                    "kubernetes": kubernetes,
                    "message": line,
                    "source_type": "kubernetes_logs",
                    "stream": "stderr",
                    "timestamp": _iso(at),
                }
            ),
        )
        for at, line in lines
    ]
    return who.labels(), entries


def fluent_bit(who: Origin, lines: Lines) -> Stream:
    """Fluent Bit's records as JSON."""
    entries = [
        (at, json.dumps({"stream": "stderr", "_p": "F", "log": line, "kubernetes": who.kubernetes()}))
        for at, line in lines
    ]
    return who.labels(), entries


def filebeat(who: Origin, lines: Lines) -> Stream:
    """Filebeat's events, through Logstash."""
    more = {
        "agent": {"type": "filebeat"},
        "ecs": {"version": "8.0.0"},
        "input": {"type": "filestream"},
        "stream": "stderr",
    }
    entries = [(at, json.dumps({"@timestamp": _iso(at), "message": line, **more})) for at, line in lines]
    return who.labels(), entries


def otlp(who: Origin, lines: Lines) -> Stream:
    """Resource attributes and bodies, for the OTLP endpoint."""
    attributes = {
        "k8s.job.name": who.job,
        "k8s.namespace.name": "ml",
        "k8s.node.name": who.node,
        "k8s.pod.name": who.pod,
        "k8s.container.name": "trainer",
    }
    return attributes, [(at, line, {"log.iostream": "stderr"}) for at, line in lines]


LAYOUTS: Mapping[str, Layout] = {
    "docker": Layout("docker", docker),
    "cri": Layout("promtail", cri),
    "journal": Layout("journal", journal),
    "metadata": Layout("alloy", metadata),
    "otlp": Layout("otel", otlp, otlp=True),
    "alloy": Layout("alloy", alloy),
    "vector": Layout("vector", vector),
    "fluent-bit": Layout("fluent-bit", fluent_bit),
    "filebeat": Layout("filebeat", filebeat),
}


def otlp_body(streams: Iterable[Stream]) -> dict[str, Any]:
    """Return an export request in OTLP's JSON form."""

    def pairs(told: Mapping[str, str]) -> list[dict[str, Any]]:
        return [{"key": key, "value": {"stringValue": value}} for key, value in told.items()]

    return {
        "resourceLogs": [
            {
                "resource": {"attributes": pairs(attributes)},
                "scopeLogs": [
                    {
                        "scope": {"name": "filelog"},
                        "logRecords": [
                            {"timeUnixNano": str(at), "body": {"stringValue": line}, "attributes": pairs(told)}
                            for at, line, told in entries
                        ],
                    }
                ],
            }
            for attributes, entries in streams
        ]
    }
