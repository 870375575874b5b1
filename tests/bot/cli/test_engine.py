"""`diagnose --engine`: a cluster gives the same answer as this host; a missing engine is reported at once."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bot.cli.command_line import command_line

app = command_line()

SKIPPED = "SKIPPED: Ray is not installed (pip install 'signalbox[ray]')"


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A failed run of three nodes; one says what no rule knows."""
    logs = tmp_path / "bundle" / "logs"
    logs.mkdir(parents=True)
    for node in range(3):
        lines = [
            f"2026-03-01 10:{step // 6:02d}:{step % 6 * 10:02d} step {step}/600 loss 2.{step:03d}" for step in range(60)
        ]
        (logs / f"node{node}.log").write_text(
            "\n".join([*lines, *["2026-03-01 10:11:05 frobnicator: phase lock is gone"] * (node == 1), ""]), "utf-8"
        )
    (logs.parent / "job.yaml").write_text("name: llm\nstate: FAILED\n", "utf-8")
    return logs.parent


def asked(bundle: Path, engine: str) -> tuple[str, ...]:
    """The words of a comparison by an engine."""
    return ("diagnose", "--bundle", str(bundle), "--deep", "--engine", engine, "--no-store", "--json", "--workers", "2")


@pytest.mark.skipif(find_spec("ray") is None, reason=SKIPPED)
def test_ray_gives_the_answer_of_this_host(signalbox, bundle):
    """A Ray of two workers, started for it, says what two processes say, and writes nothing else to stdout."""
    ours, rays = (signalbox(*asked(bundle, engine)) for engine in ("local", "ray"))
    reports = [json.loads(ran.out) for ran in (ours, rays)]
    for report in reports:
        report.pop("timing")
    assert reports[0] == reports[1]
    assert "frobnicator" in reports[0]["indicators"]["events"][0]["what"]


def test_ray_that_is_missing_is_reported_before_anything_is_read(bundle, monkeypatch):
    """The message names what to install."""
    monkeypatch.setitem(sys.modules, "ray", None)
    ran = CliRunner().invoke(app, asked(bundle, "ray"))
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert "--engine ray needs Ray: pip install 'signalbox[ray]'" in ran.stderr


@pytest.mark.skipif(find_spec("ray") is None, reason=SKIPPED)
def test_a_cluster_that_does_not_answer_is_reported(signalbox, bundle):
    """Within seconds, with its address; nothing hangs."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    ran = signalbox(*asked(bundle, "ray"), env={"RAY_ADDRESS": address})
    assert (ran.status, ran.out) == (2, b"")
    assert f"Ray cannot be started or reached at {address} (RAY_ADDRESS)" in ran.err


@pytest.mark.slow  # diagnosis/test_comparison.py
def test_a_person_sees_how_much_was_compared(signalbox, bundle):
    """The progress line shows the bytes that are read once, for rules and comparison, and is removed at the end."""
    terminal, behind = os.openpty()
    words = signalbox.words(asked(bundle, "local"))
    ran = subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=behind, env=signalbox.environment(), cwd=signalbox.cwd
    )
    os.close(behind)
    told = b""
    while piece := read_some(terminal):
        told += piece
    assert ran.wait(60) == 0
    assert b" MB read" in told
    assert told.endswith(b"\r\x1b[0K")


def read_some(terminal: int) -> bytes:
    """What comes next; nothing once the other side is closed, which Linux calls an error."""
    try:
        return os.read(terminal, 4096)
    except OSError:
        return b""


def test_an_engine_of_another_name_is_refused(bundle):
    """With the two that there are."""
    ran = CliRunner().invoke(app, asked(bundle, "spark"))
    assert ran.exit_code == 2
    assert "'local', 'ray'" in ran.stderr
