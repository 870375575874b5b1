"""A job in the labels and wrappings of log shippers, read by the configuration that is the example for each."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from connectors.base.contract import Bounds, CollectionRequest, Deadline, JobQuery
from connectors.log_stores.loki import Loki
from kb.model import Prefilter, Window
from tests.doubles.loki import LokiDouble, Stream, serving
from tests.support import loki_server, stored_logs
from tests.support.contract.subject import Memory
from tests.support.paths import BUNDLES
from tests.support.pulled_lines import asked_of, first, refilled_by
from tests.support.shipped_layouts import LAYOUTS, Origin

NS = 1_000_000_000
BEGIN = 1_780_000_200 * NS
JOB = "llm-7b"
SAMPLE = "lab-segfault"


def job_lines(rank: int) -> list[tuple[int, str]]:
    """Some lines of a rank: plain, JSON of the program, and one that the runtime cuts."""
    texts = [f"[rank{rank}]: step {rank} of 7", '{"level": "error", "msg": "shard 7 refused"}', "x" * 40_000, "end"]
    return [(BEGIN + (4 * number + rank) * NS, text) for number, text in enumerate(texts)]


def labelled(name: str) -> Iterator[Stream]:
    """The streams of a layout as Loki keeps them: dots of OTLP's attributes become underscores, some become metadata."""
    for rank in range(2):
        labels, entries = LAYOUTS[name].stream(Origin(JOB, rank, "gpu-a"), job_lines(rank))
        if LAYOUTS[name].otlp:
            labels = {key.replace(".", "_"): value for key, value in labels.items()}
            node = {"k8s_node_name": labels.pop("k8s_node_name")}
            entries = [(at, line, {**{key.replace(".", "_"): value for key, value in told.items()}, **node}) for at, line, told in entries]  # fmt: skip
        yield Stream(labels, entries)


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_lines_are_those_of_the_program(name: str) -> None:
    """Found by its label, without the wrapping, whole, with the node they came from."""
    with serving(LokiDouble(list(labelled(name)))) as double:
        loki = Loki(LAYOUTS[name].settings(double.url))
        window = Window(BEGIN / NS - 60, BEGIN / NS + 60)
        (record,) = loki.find(JobQuery(JOB, window), Deadline.within(20))
        spool = Memory(Deadline.within(20))
        gaps = list(loki.collect(CollectionRequest(record, window, spool.deadline, Prefilter(), Bounds()), spool))
    assert gaps == []
    written = b"".join(spool.logs.values()).decode().splitlines()
    texts = sorted(line.partition("Z ")[2] for line in written if not line.startswith("{"))
    assert texts == sorted(text for rank in range(2) for _, text in job_lines(rank) if not text.startswith("{"))
    assert sum('"msg": "shard 7 refused"' in line for line in written) == 2
    assert {told["resource"].node for told in spool.told.values()} == {"gpu-a"}


@pytest.fixture(scope="module")
def server() -> Iterator[loki_server.LokiServer]:
    """A real server that keeps a job in every layout."""
    held = stored_logs.streams(BUNDLES / SAMPLE)
    with tempfile.TemporaryDirectory() as folder, loki_server.running(Path(folder)) as found:
        for name, layout in LAYOUTS.items():
            for labels, lines in held:
                rank = int(labels["rank"]) if "rank" in labels else None
                stream = layout.stream(Origin(f"{JOB}-{name}", rank, labels.get("node", "node-0")), lines)
                found.push_otlp([stream]) if layout.otlp else found.push([stream])
        found.flush()
        yield found


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_same_diagnosis_as_from_the_files(server: loki_server.LokiServer, name: str, tmp_path: Path) -> None:
    """On a real Loki, OTLP by its own endpoint."""
    held = stored_logs.streams(BUNDLES / SAMPLE)
    loki = Loki(LAYOUTS[name].settings(server.url))
    asked: Any = replace(asked_of(held), record=stored_logs.record(f"{JOB}-{name}"))
    refilled_by(BUNDLES / SAMPLE, tmp_path / "refilled", lambda spool: loki.collect(asked, spool))
    assert first(tmp_path / "refilled") == first(BUNDLES / SAMPLE)
