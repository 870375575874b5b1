"""`signalbox logs` as its users run it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bot.cli import logs as module
from bot.config.settings import Cluster, Config, Connector
from bot.diagnosis.job import JobRequest
from bot.live.log_view import LineFilter
from bot.rulebase.loader import Knowledge
from connectors.base.http import Endpoint
from connectors.log_stores.loki import LokiSettings
from tests.doubles.loki import LokiDouble, Stream, serving
from tests.support.paths import ROOT

CONFIG = """\
version: 1
clusters:
  lab:
    connectors:
      files: {{type: folders, pattern: '{folder}/jobs/{{name}}-{{id}}'}}
"""


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Two ranks' logs of a job."""
    folder = tmp_path / "jobs/llm-12"
    folder.mkdir(parents=True)
    for rank in (0, 1):
        lines = "".join(f"2026-11-20 03:04:{2 * step + rank:02d} step {step}\n" for step in range(3))
        (folder / f"rank-{rank}.log").write_text(lines + "odd \x1b[2J\x07\n" * rank)
    return folder


def test_columns(signalbox, logs: Path) -> None:
    """The day once, then clock, rank and text; what would move the cursor is escaped."""
    ran = signalbox("logs", "--logs", logs, "--since", "3s")
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.decode().splitlines() == [
        "-- 2026-11-20 (UTC)",
        "03:04:02     rank 0  step 1",
        "03:04:03     rank 1  step 1",
        "03:04:04     rank 0  step 2",
        "03:04:05     rank 1  step 2",
        "03:04:05     rank 1  odd \\x1b[2J\\x07",
    ]


def test_json(signalbox, logs: Path) -> None:
    """One object a line."""
    ran = signalbox("logs", "--logs", logs, "--json", "--rank", "1", "--grep", "step 1")
    assert [json.loads(line) for line in ran.out.splitlines()] == [
        {
            "time": "2026-11-20T03:04:03Z",
            "rank": 1,
            "node": None,
            "source": "rank-1.log",
            "line": 2,
            "text": "2026-11-20 03:04:03 step 1",
        }
    ]


@pytest.mark.usefixtures("logs")
def test_a_job(signalbox, tmp_path: Path) -> None:
    """Through the connectors, by name or id; a mistyped one names what may have been meant."""
    config = tmp_path / "signalbox.yaml"
    config.write_text(CONFIG.format(folder=tmp_path))
    ran = signalbox("logs", "12", "--config", config, "--rank", "0")
    assert [line.split(b"  ")[-1] for line in ran.out.splitlines()[1:]] == [b"step 0", b"step 1", b"step 2"]
    wrong = signalbox("logs", "llm-21", "--config", config)
    assert (wrong.status, "did you mean llm (12)" in wrong.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "nothing to read; give a JOB"),
        (("12",), "no connector is configured"),
        (("a", "b"), "give a single JOB"),
        (("--bundle", "/nothing"), "no such folder"),
        (("--logs", "/nothing"), "no such file or folder"),
        (("--logs", ".", "--since", "soon"), "--since 'soon': expected a duration"),
        (("--logs", ".", "--rank", "x"), "--rank 'x'"),
        (("--logs", ".", "--grep", "(?=x)"), "lookaround"),
    ],
)
def test_bad_usage(signalbox, words: tuple[str, ...], told: str) -> None:
    """One line says what to do."""
    ran = signalbox("logs", *words)
    assert (ran.status, ran.out, told in ran.err, ran.err.count("\n")) == (
        2,
        b"",
        True,
        1 + (told == "no connector is configured"),
    )


def test_nobody_reads(logs: Path) -> None:
    """`| head` ends it without a word."""
    (logs / "rank-0.log").write_text("line\n" * 500_000)
    words = f"{sys.executable} -m bot.cli.main logs --logs {logs} | head -1"
    ran = subprocess.run(["bash", "-c", f"set -o pipefail; {words}"], capture_output=True, cwd=ROOT, check=False)
    assert (ran.returncode, ran.stderr) == (0, b"")


def test_following_ends_with_an_interrupt(logs: Path) -> None:
    """What is written appears; Ctrl-C ends it quietly."""
    words = [sys.executable, "-m", "bot.cli.main", "logs", "--logs", str(logs), "--follow"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as child:
        shown = [child.stdout.readline() for _ in range(8)]
        with (logs / "rank-0.log").open("a") as handle:
            handle.write("2026-11-20 03:05:00 more\n")
        assert child.stdout.readline() == b"03:05:00     rank 0  more\n"
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=90)
    assert (shown[0], child.returncode, errors) == (b"-- 2026-11-20 (UTC)\n", 130, b"")


def test_a_silent_job_is_followed(known: Knowledge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job whose last line is an hour old: that line is printed, then nothing, then each new line, once."""
    monkeypatch.setattr(module, "POLL", 0.0)
    now = time.time_ns()
    old = [(now - 3600 * 10**9, "old")]
    complaints: list[str] = []
    with serving(LokiDouble([Stream({"job": "llm", "rank": "0"}, old)])) as double:
        store = Connector("loki", "loki", LokiSettings(Endpoint(double.url)))
        config = Config((Cluster("east", connectors=(store,)),))
        request = module.request_of("llm", "default", None, None, None)
        assert isinstance(request, JobRequest)
        following = module._JobLogs(known, config, request, tmp_path / "spool", complaints.append)
        looks = following.follow(LineFilter(), from_start=False)
        assert [line.text for line in next(looks)] == ["old"]
        before = len(double.asked)
        double.streams = [Stream({"job": "llm", "rank": "0"}, [*old, (time.time_ns(), "new")])]
        assert [line.text for line in next(looks)] == ["new"]
        windows = [int(asked["end"]) - int(asked["start"]) for _, asked in double.asked[before:] if "start" in asked]
    assert max(windows) <= 600 * 10**9
    assert len(complaints) <= 1
