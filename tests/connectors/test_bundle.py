"""job.yaml of a bundle: what is read of it, and that no content of it does harm."""

from __future__ import annotations

import os
import time

import pytest

from connectors.bundle import LARGEST, read_job
from kb.model import Job

ORDINARY = """\
id: 5512
name: moe-pretrain
cluster: east
framework: megatron
world_size: 16
attempt: 2
state: FAILED
start: 2026-03-04T05:06:07Z
end: '2026-03-04T06:00:00+01:00'
collected_at: 1772600000.5
nodes: {gpu-31: [0, 1], gpu-32: [2, 3]}
owner: mei
log_interval: 10
checkpoint_interval: 500
gpus: 16
"""


def job(folder, text):
    """What is read of such a job.yaml, and the reasons of its gaps."""
    data = text if isinstance(text, bytes) else text.encode()
    (folder / "job.yaml").write_bytes(data)
    read, gaps = read_job(folder)
    assert all(gap.code == "job_unreadable" for gap in gaps)
    return read, [gap.reason for gap in gaps]


def test_an_ordinary_job_is_read(tmp_path):
    """All that a job.yaml may say, times in any form as seconds."""
    assert job(tmp_path, ORDINARY) == (
        Job(
            id="5512",
            name="moe-pretrain",
            cluster="east",
            framework="megatron",
            world_size=16,
            attempt=2,
            state="FAILED",
            start=1772600767.0,
            end=1772600400.0,
            collected_at=1772600000.5,
            nodes={"gpu-31": (0, 1), "gpu-32": (2, 3)},
            owner="mei",
            log_interval=10,
            checkpoint_interval=500,
            gpus=16,
        ),
        [],
    )


def test_no_file_and_an_empty_file_are_no_gaps(tmp_path):
    """A hand-made folder of logs has no job.yaml, and that is well."""
    assert read_job(tmp_path) == (Job(), ())
    assert job(tmp_path, "") == (Job(), [])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("- a\n- b", "not a mapping"),
        ("just words", "not a mapping"),
        ("a: &x 1\nb: *x", "aliases are not allowed"),
        ("a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]", "aliases are not allowed"),
        ("id: 1\n\tname: x", "cannot start any token"),
        (b"id: \x00\x01", "special characters are not allowed"),
        ("[" * 50_000, "recursion"),
        ("start: !!timestamp never", "not usable"),
        ("id: !!bool maybe", "not usable"),
        ("id: !!int ''", "not usable"),
        ("id: !!python/object/apply:os.system [id]", "could not determine a constructor"),
        ("? [a]\n: b", "unhashable"),
        ("start: 2026-99-99", "month must be"),
        ("id: " + "9" * 5000, "digits"),
        ("id: 'open", "unexpected end"),
        ("#" * (LARGEST + 1), "larger than"),
    ],
)
def test_what_cannot_be_used_is_a_gap_and_no_job(tmp_path, text, reason):
    """Garbage, bombs and tags that run code give a gap of one line."""
    read, reasons = job(tmp_path, text)

    assert read == Job()
    assert len(reasons) == 1
    assert reason in reasons[0]
    assert "\n" not in reasons[0]
    assert len(reasons[0]) < 400


@pytest.mark.parametrize(
    "line",
    [
        "start: .inf",
        "start: .nan",
        "start: 1e300",
        "start: -5",
        "start: true",
        "start: '0001-01-01T00:00:00+23:59'",
        "start: 0001-01-01 00:00:00 +23:59",
        "start: 9999-12-31T23:59:59-23:00",
        "start: tomorrow",
        "world_size: -1",
        "world_size: 1000000000000000000000000",
        "world_size: eight",
        "world_size: true",
        "name: [a]",
        "nodes: [a, b]",
        "nodes: {a: 5}",
    ],
)
def test_values_of_no_sense_are_left_out(tmp_path, line):
    """One bad value costs itself, not the others."""
    assert job(tmp_path, f"owner: mei\n{line}\n") == (Job(owner="mei"), [])


def test_ranks_are_numbers(tmp_path):
    """Of a node's list only what can be a rank is kept."""
    read, _ = job(tmp_path, "nodes: {a: [0, -1, x, true, 1.5, 99999999999999999999, 7]}")

    assert read.nodes == {"a": (0, 7)}


def test_bytes_that_are_no_utf8_are_replaced(tmp_path):
    """A name in another encoding is shown as well as it can be."""
    read, reasons = job(tmp_path, "name: Gerät\nid: 7\n".encode("latin-1"))

    assert (read.id, read.name, reasons) == ("7", "Ger\ufffdt", [])


def test_a_pipe_or_folder_for_a_file_is_a_gap(tmp_path):
    """A job.yaml that is a FIFO is not waited for."""
    os.mkfifo(tmp_path / "job.yaml")

    assert [gap.reason for gap in read_job(tmp_path)[1]] == ["not usable: it is no file"]


def test_the_largest_file_is_read_in_seconds(tmp_path):
    """Ten thousand ranks fit, and the most that is read does not take long."""
    nodes = "".join(f"  gpu-{n}: [{', '.join(str(8 * n + r) for r in range(8))}]\n" for n in range(1250))
    begun = time.perf_counter()

    read, reasons = job(tmp_path, f"world_size: 10000\nnodes:\n{nodes}")

    assert reasons == []
    assert read.nodes["gpu-1249"] == tuple(range(9992, 10_000))
    assert time.perf_counter() - begun < 10
