"""A real Loki for tests and benchmarks, from the binary or address in SIGNALBOX_TEST_LOKI.

A binary is started as one process that listens on 127.0.0.1 only and stores everything in a temporary folder. An address
is used as it is: its limits cannot be changed, and what was pushed stays there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest

from tests.support.ports import kept_ports
from tests.support.shipped_layouts import otlp_body

VARIABLE = "SIGNALBOX_TEST_LOKI"
OTLP_BATCH = 5000  # entries in one export
BATCH = 1_500_000  # bytes of lines in one push; the server takes 4 MiB of protobuf
READY = 120.0  # seconds until the rings of a single process are active
FLUSHED = 4.0  # seconds until the index knows what was flushed
Entry = Sequence[Any]  # time in nanoseconds, line, and optionally structured metadata


def named() -> bool:
    """Return whether a server is named at all."""
    return bool(os.environ.get(VARIABLE))


def given() -> str:
    """Return the binary or address; skip and say why without one."""
    found = os.environ.get(VARIABLE, "")
    if not found:
        pytest.skip(f"{VARIABLE} names no Loki (a binary, or an address such as http://127.0.0.1:3100)")
    if not found.startswith(("http://", "https://")) and shutil.which(found) is None:
        pytest.skip(f"{VARIABLE}: {found} is not an executable file")
    return found


@dataclass(slots=True)
class LokiServer:
    """A running server. `process` is None behind an address."""

    url: str
    process: subprocess.Popen[bytes] | None = None
    words: list[str] = field(default_factory=list)
    folder: Path | None = None

    def cpu_seconds(self) -> float:
        """Return the processor time that the server has used."""
        if self.process is None:
            return 0.0
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0  # it was killed
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def push(
        self, streams: Iterable[tuple[Mapping[str, str], Sequence[Entry]]], headers: Mapping[str, str] | None = None
    ) -> int:
        """Store lines and return their number. `streams`: labels and entries."""
        count = size = 0
        batch: list[dict[str, Any]] = []
        for labels, entries in streams:
            values: list[list[Any]] = []
            batch.append({"stream": dict(labels), "values": values})
            for at, line, *metadata in entries:
                values.append([str(at), line, *metadata])
                count += 1
                size += len(line) + 40
                if size > BATCH:
                    self._send(batch, headers)
                    size, values = 0, []
                    batch = [{"stream": dict(labels), "values": values}]
        self._send(batch, headers)
        return count

    def _send(self, batch: Sequence[Mapping[str, Any]], headers: Mapping[str, str] | None) -> None:
        body = json.dumps({"streams": [item for item in batch if item["values"]]}).encode()
        request = Request(f"{self.url}/loki/api/v1/push", body, {"Content-Type": "application/json", **(headers or {})})  # noqa: S310
        try:
            with urlopen(request, timeout=120):  # noqa: S310 - our own server
                return
        except HTTPError as error:
            raise AssertionError(f"push: {error.code} {error.read()[:500]!r}") from error

    def push_otlp(self, streams: Iterable[tuple[Mapping[str, str], Sequence[Entry]]]) -> int:
        """Store lines through the OTLP endpoint and return their number. `streams`: resource attributes and entries."""
        count = 0
        for attributes, entries in streams:
            for first in range(0, len(entries), OTLP_BATCH):
                part = [(dict(attributes), list(map(tuple, entries[first : first + OTLP_BATCH])))]
                body = json.dumps(otlp_body(part)).encode()
                request = Request(f"{self.url}/otlp/v1/logs", body, {"Content-Type": "application/json"})  # noqa: S310
                with urlopen(request, timeout=120):  # noqa: S310 - our own server
                    count += len(part[0][1])
        return count

    def flush(self) -> None:
        """Write what is in memory to chunks in the store: only then lines with old times are found."""
        with urlopen(Request(f"{self.url}/flush", b"", method="POST"), timeout=120):  # noqa: S310 - our own server
            time.sleep(FLUSHED)

    def kill(self) -> None:
        """End the server at once, as a crash does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(20)

    def start(self, *, wait: bool = True) -> None:
        """Start the server again, over what it stored."""
        assert self.folder is not None
        with (self.folder / "loki.log").open("ab") as log:  # some of its folders are relative to where it runs
            self.process = subprocess.Popen(self.words, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=log)
        if wait:
            _wait(self.url, self.process)


@contextmanager
def running(
    folder: Path, limits: Mapping[str, object] | None = None, *, tenants: bool = False, binary: str | None = None
) -> Iterator[LokiServer]:
    """Yield a server with these limits. `tenants`: X-Scope-OrgID is required."""
    found = binary or given()
    if found.startswith("http"):
        if limits or tenants:
            pytest.skip(f"{VARIABLE} is an address: its limits cannot be changed")
        yield LokiServer(found.rstrip("/"))
        return
    folder.mkdir(parents=True, exist_ok=True)
    found = str(Path(shutil.which(found) or found).absolute())
    path = folder / "loki.json"  # JSON is YAML
    words = [found, f"-config.file={path}", "-log.level=error", "-config.expand-env=false"]
    with kept_ports("http", "grpc") as ports:
        path.write_text(json.dumps(_config(folder, ports["http"], ports["grpc"], limits or {}, tenants=tenants)))
        server = LokiServer(f"http://127.0.0.1:{ports['http']}", words=words, folder=folder)
        server.start()
        try:
            yield server
        finally:
            server.kill()


def _config(folder: Path, http: int, grpc: int, limits: Mapping[str, object], *, tenants: bool) -> dict[str, Any]:
    local = "127.0.0.1"
    return {
        "auth_enabled": tenants,
        "server": {
            "http_listen_address": local,
            "http_listen_port": http,
            "grpc_listen_address": local,
            "grpc_listen_port": grpc,
            "grpc_server_max_recv_msg_size": 64 << 20,
            "grpc_server_max_send_msg_size": 64 << 20,
        },
        "common": {
            "instance_addr": local,
            "path_prefix": str(folder),
            "storage": {
                "filesystem": {"chunks_directory": str(folder / "chunks"), "rules_directory": str(folder / "rules")}
            },
            "replication_factor": 1,
            "ring": {"kvstore": {"store": "inmemory"}},
        },
        "schema_config": {
            "configs": [
                {
                    "from": "2020-10-24",
                    "store": "tsdb",
                    "object_store": "filesystem",
                    "schema": "v13",
                    "index": {"prefix": "index_", "period": "24h"},
                }
            ]
        },
        "analytics": {"reporting_enabled": False},
        "querier": {"query_ingesters_within": "0s"},  # lines with old times are found before they are flushed
        "limits_config": {
            "reject_old_samples": False,
            "creation_grace_period": "2h",
            "ingestion_rate_mb": 4096,
            "ingestion_burst_size_mb": 4096,
            "per_stream_rate_limit": "4GB",
            "per_stream_rate_limit_burst": "4GB",
            "volume_enabled": True,
            **limits,
        },
    }


def _wait(address: str, server: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + READY
    while time.monotonic() < end and server.poll() is None:
        try:
            with urlopen(f"{address}/ready", timeout=5):  # noqa: S310 - our own server
                return
        except (URLError, OSError):
            time.sleep(0.2)
    raise AssertionError(f"Loki did not become ready (exit status {server.poll()})")
