"""job.yaml of a bundle: what is read from it, and that no content of it does harm."""

from __future__ import annotations

import os
import time

import pytest

from connectors.bundles.description import LARGEST, LARGEST_DESCRIPTION, BundleDescription, read_description, read_job
from kb.model import Attempt, Gap, Job, Resource

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
    """Return what is read from a job.yaml of this text, and the reasons of its gaps."""
    data = text if isinstance(text, bytes) else text.encode()
    (folder / "job.yaml").write_bytes(data)
    read, gaps = read_job(folder)
    assert all(gap.code == "job_unreadable" for gap in gaps)
    return read, [gap.reason for gap in gaps]


def test_an_ordinary_job_is_read(tmp_path):
    """Everything that a job.yaml may contain, with times in any form as seconds."""
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
    """A folder of logs made by hand has no job.yaml, which is fine."""
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
        ("start: !!timestamp never", "invalid"),
        ("id: !!bool maybe", "invalid"),
        ("id: !!int ''", "invalid"),
        ("id: !!python/object/apply:os.system [id]", "could not determine a constructor"),
        ("? [a]\n: b", "unhashable"),
        ("start: 2026-99-99", "month must be"),
        ("id: " + "9" * 5000, "digits"),
        ("id: 'open", "unexpected end"),
        ("#" * (LARGEST + 1), "larger than"),
    ],
)
def test_what_cannot_be_used_is_a_gap_and_no_job(tmp_path, text, reason):
    """Garbage, bombs and tags that run code yield a gap of one line."""
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
    """A bad value is dropped without the others."""
    assert job(tmp_path, f"owner: mei\n{line}\n") == (Job(owner="mei"), [])


def test_ranks_are_numbers(tmp_path):
    """Only possible ranks are kept of a node's list."""
    read, _ = job(tmp_path, "nodes: {a: [0, -1, x, true, 1.5, 99999999999999999999, 7]}")

    assert read.nodes == {"a": (0, 7)}


def test_bytes_that_are_no_utf8_are_replaced(tmp_path):
    """A name in another encoding is shown as well as possible."""
    read, reasons = job(tmp_path, "name: Gerät\nid: 7\n".encode("latin-1"))

    assert (read.id, read.name, reasons) == ("7", "Ger\ufffdt", [])


def test_a_pipe_or_folder_for_a_file_is_a_gap(tmp_path):
    """A job.yaml that is a FIFO is not waited for."""
    os.mkfifo(tmp_path / "job.yaml")

    assert [gap.reason for gap in read_job(tmp_path)[1]] == ["cannot be read: a pipe, not a regular file"]


def test_the_largest_file_is_read_in_seconds(tmp_path):
    """Ten thousand ranks fit, and the largest accepted file is read quickly."""
    nodes = "".join(f"  gpu-{n}: [{', '.join(str(8 * n + r) for r in range(8))}]\n" for n in range(1250))
    begun = time.process_time()

    read, reasons = job(tmp_path, f"world_size: 10000\nnodes:\n{nodes}")

    assert reasons == []
    assert read.nodes["gpu-1249"] == tuple(range(9992, 10_000))
    assert time.process_time() - begun < 10


# bundle.yaml


def written(folder, text):
    """Return what is read from a bundle.yaml of this text, and the reasons of its gaps."""
    (folder / "bundle.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    told, gaps = read_description(folder)
    assert all(gap.code == "bundle_unreadable" for gap in gaps)
    return told.written, [gap.reason for gap in gaps]


def test_it_tells_when_files_were_written(tmp_path):
    """By their paths in the bundle; entries without a usable time are left out; a bundle without the file yields nothing."""
    assert read_description(tmp_path) == (BundleDescription(), ())
    text = """\
format: 1
files:
  logs/rank-0.log: {bytes: 12, written: '2026-03-04T05:06:07.500000Z'}
  logs/rank-1.log: {bytes: 12, written: 2026-03-04T05:06:07Z}
  logs/rank-2.log: {bytes: 12}
  logs/rank-3.log: yesterday
  4: {written: .inf}
"""
    assert written(tmp_path, text) == ({"logs/rank-0.log": 1772600767.5, "logs/rank-1.log": 1772600767.0}, [])


def test_ten_thousand_files_are_no_trouble_and_aliases_are_refused_there_too(tmp_path):
    """Larger ones are read by the faster parser, which is equally strict."""
    many = "".join(f"  logs/n-{at // 8}/rank-{at}.log: {{written: 2026-03-04T05:06:07Z}}\n" for at in range(10_240))
    times, reasons = written(tmp_path, f"files:\n{many}")
    assert (len(times), reasons) == (10_240, [])
    assert written(tmp_path, f"files:\n{many}a: &x [1]\nb: *x\n") == ({}, ["invalid: aliases are not allowed"])


@pytest.mark.parametrize(
    "text",
    ["- a list", "files: [1, 2]", "files: {a: {written: [1]}}", b"\xff\xfe", "{" * 5000, "!!python/name:os.system"],
)
def test_any_content_of_it_is_survived(tmp_path, text):
    """It yields nothing, with a gap if it is not YAML that describes a bundle."""
    assert written(tmp_path, text)[0] == {}


def test_a_description_that_is_too_large_is_a_gap(tmp_path):
    """It is not read."""
    (tmp_path / "bundle.yaml").write_bytes(b"#" * (LARGEST_DESCRIPTION + 1))
    assert "larger than" in read_description(tmp_path)[1][0].reason


def test_it_tells_who_spoke_and_what_was_missing(tmp_path):
    """Node and rank of a file whose name does not show them, and the collector's gaps; anything else is left out."""
    (tmp_path / "bundle.yaml").write_text("""\
files:
  logs/a.log: {source: loki, node: n1, rank: 3, query: '{job="x"}'}
  logs/b.log: {rank: -1, node: [n2], written: 1772600000}
gaps:
- {code: source_timeout, source: loki, reason: it did not answer, rules_out: what it says, other: 1}
- {code: x, source: y}
- nothing
""")
    told, gaps = read_description(tmp_path)
    assert gaps == ()
    assert told.speakers == {"logs/a.log": Resource(node="n1", rank=3)}
    assert told.gaps == (Gap("source_timeout", "loki", "it did not answer", rules_out="what it says"),)


def test_it_tells_of_the_attempts(tmp_path):
    """The runs of the job in order with their times; entries that are not attempts are left out."""
    (tmp_path / "job.yaml").write_text("""\
id: 7
last_good: 5
attempts:
- {number: 2, state: FAILED, exit_code: 1, queued: '2026-03-04T05:06:07Z', stopped: soon, nodes: [a, b]}
- {number: 1, state: NODE_FAIL, signal: 9, first_iterated: 1772600767}
- {state: FAILED}
- nothing
""")
    job, gaps = read_job(tmp_path)
    assert gaps == ()
    assert job == Job(
        id="7",
        last_good="5",
        attempts=(
            Attempt(1, "NODE_FAIL", signal=9, first_iterated=1772600767.0),
            Attempt(2, "FAILED", exit_code=1, queued=1772600767.0, nodes=("a", "b")),
        ),
    )
