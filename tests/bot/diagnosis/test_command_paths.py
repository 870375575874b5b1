"""Commands name logs so that they run as they are pasted: with the folder of a bundle, or absolute for a reader elsewhere."""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

from bot.diagnosis.command_paths import runnable, with_folder
from bot.diagnosis.diagnose import diagnose_bundle, diagnose_paths
from kb.report import RemedyStep
from tests.support.bot_samples import FALLEN_GPU

LOG = """Traceback (most recent call last):
  File "/x/train.py", line 3, in <module>
    build()
mylib.WidgetError: shelf gone
"""


def _commands(report):
    return [step.command for item in report.diagnoses for step in item.remediation if step.command]


def test_commands_of_a_bundle_run_as_pasted(known, tmp_path, monkeypatch):
    """From the folder of whoever asks, and from any other folder where that is wanted; a name with a space is quoted."""
    (tmp_path / "my run/logs").mkdir(parents=True)
    (tmp_path / "my run/logs/rank0.log").write_text(LOG)
    monkeypatch.chdir(tmp_path)
    answer = diagnose_bundle(known, Path("my run"), workers=1)
    [bare, near, far] = (
        next(item for item in _commands(report) if item.startswith("grep"))
        for report in (answer.report, runnable(answer), runnable(answer, anywhere=True))
    )
    assert bare.endswith(" logs/rank0.log")
    assert near.endswith(" 'my run/logs/rank0.log'")
    for command, folder in ((near, tmp_path), (far, "/")):
        ran = subprocess.run(shlex.split(command), cwd=folder, capture_output=True, check=False)
        assert b"shelf gone" in ran.stdout


def test_commands_of_logs_are_absolute_only_for_readers_elsewhere(known, tmp_path, monkeypatch):
    """A path that was typed runs where it was typed; what came by standard input has none."""
    (tmp_path / "err.log").write_text(LOG)
    monkeypatch.chdir(tmp_path)
    typed = diagnose_paths(known, [Path("err.log")], workers=1)
    assert runnable(typed).diagnoses == typed.report.diagnoses
    assert any(item.endswith(f" {tmp_path}/err.log") for item in _commands(runnable(typed, anywhere=True)))
    piped = diagnose_paths(known, [tmp_path], root=tmp_path, workers=1)
    assert runnable(piped, anywhere=True) is piped.report


def test_only_whole_words_that_are_files_get_a_folder(tmp_path):
    """Neither part of another path nor a name that is no file."""
    (tmp_path / "a.log").write_text("x")
    steps = tuple(
        RemedyStep("run_check", "look", "Do.", command=text) for text in ("cat a.log | wc", "cat x/a.log b.log")
    )
    report = replace(FALLEN_GPU, diagnoses=(replace(FALLEN_GPU.diagnoses[0], remediation=steps),))
    found = with_folder(report, tmp_path, ["a.log", "b.log"])
    assert _commands(found) == [f"cat {tmp_path}/a.log | wc", "cat x/a.log b.log"]


def test_a_log_with_the_name_of_a_program_is_not_run(tmp_path):
    """Logs come from elsewhere, and a command of the rules names the program itself."""
    (tmp_path / "dmesg").write_text("x")
    texts = ("dmesg -T | grep Xid", "sudo dmesg -T; dmesg", "grep Xid dmesg")
    steps = tuple(RemedyStep("run_check", "look", "Do.", command=text) for text in texts)
    report = replace(FALLEN_GPU, diagnoses=(replace(FALLEN_GPU.diagnoses[0], remediation=steps),))
    assert _commands(with_folder(report, tmp_path, ["dmesg"])) == [*texts[:2], f"grep Xid {tmp_path}/dmesg"]
