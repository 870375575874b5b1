"""Commands and their children: their output, what stops them, and what they leave behind."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from connectors.base.commands import run_bounded, run_group
from tests.support.ended import gone


def shell(text: str) -> list[str]:
    """Return a command for a script."""
    return ["/bin/sh", "-c", text]


def test_nothing_waits_for_a_grandchild_that_holds_the_output() -> None:
    """The output of the command is complete when the command ends; what it left behind is killed."""
    began = time.monotonic()
    done = run_group(shell("sleep 60 & echo $!"), 30)
    assert (done.status, done.late) == (0, False)
    assert time.monotonic() - began < 25
    assert gone(int(done.output))


def test_a_grandchild_that_ignores_sigterm_is_killed_with_its_parent() -> None:
    """Also if the parent itself obeys."""
    done = run_group(shell("(trap '' TERM; sleep 60) & echo $!; sleep 60"), 2.0)
    assert done.late
    assert gone(int(done.output))


def test_a_command_that_prints_without_end_is_stopped() -> None:
    """Before its time is over, so that it does not fill the disk."""
    done = run_group(["yes"], 60, most=1000)
    assert (done.long, done.late, len(done.output)) == (True, False, 1000)


def test_input_environment_status_and_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    """As given, and as they came."""
    monkeypatch.setenv("OURS", "1")
    done = run_group(
        shell("cat; echo $OURS $THEIRS; echo first >&2; echo last >&2; kill -9 $$"),
        30,
        given=b"in ",
        env={"THEIRS": "2"},
    )
    assert (done.status, done.output, done.said_last) == (-9, b"in 2\n", b"first\nlast\n")


def test_a_command_that_cannot_be_run_is_reported() -> None:
    """In words."""
    assert run_bounded(["/none"], 1).trouble == "cannot be run: No such file or directory"
    assert "cannot be run" in run_bounded(["a\0b"], 1).trouble


def test_children_are_collected() -> None:
    """No zombie stays."""
    done = run_group(shell("echo $$"), 30)
    assert not Path(f"/proc/{int(done.output)}").exists()
