"""Names in the commands of a remedy."""

from __future__ import annotations

import pytest

from kb.diagnosis.suspects.commands import filled, library_in, on_windows, slurm_job, with_hints
from kb.report import Suspect

ON_A = (Suspect("job"), Suspect("rank", "node-a", rank=3, pod="train-3"), Suspect("node", "node-b"))


@pytest.mark.parametrize(
    ("command", "suspects", "job", "told"),
    [
        ("ping <node>; ssh <node> uptime", ON_A, None, "ping node-a; ssh node-a uptime"),
        ("kubectl describe pod <pod>", ON_A, None, "kubectl describe pod train-3"),
        ("sacct -j <job>", (), "4711", "sacct -j 4711"),
        ("py-spy dump --pid <pid>", ON_A, "4711", "py-spy dump --pid <pid>"),
        ("ping <node>", (), None, "ping <node>"),
        (None, ON_A, "4711", None),
    ],
)
def test_known_names_are_filled_in(command, suspects, job, told):
    """The first suspect that has one; what is unknown stays a placeholder."""
    assert filled(command, suspects, job) == told


@pytest.mark.parametrize(
    ("lines", "job"),
    [
        (["slurmstepd: error: Detected 1 oom_kill event in StepId=191.batch. Some of the step tasks"], "191"),
        (["slurmstepd: error: *** JOB 8123 ON cn-4 CANCELLED AT 2026-01-01T00:00:00 ***"], "8123"),
        (["slurmstepd: error: *** STEP 7.0 ON a CANCELLED ***", "slurmstepd: error: *** JOB 8 ON a CANCELLED ***"], None),
        (["loader: StepId=12 read"], None),
    ],
)  # fmt: skip
def test_the_lines_of_slurm_name_the_job(lines, job):
    """Only where they agree: a log can hold the lines of two jobs."""
    assert slurm_job(lines) == job


@pytest.mark.parametrize(
    "name", ["a; rm -rf ~", "$(id)", "`id`", "-oProxyCommand=id", "a b", "a\nb", "x" * 300, "a|b", "..", ""]
)
def test_a_name_that_a_shell_could_run_is_not_filled_in(name):
    """Logs are hostile, and a person copies the command."""
    assert filled("ssh <node>", (Suspect("node", name),), name) == "ssh <node>"


def test_what_to_put_in_is_said_for_what_stays():
    """Once each, and nothing for a command that is complete."""
    assert with_hints("Look.", "df -h /data") == with_hints("Look.", None) == "Look."
    assert with_hints("Look.", "file <file>; jq . <file>; ls <mount>") == (
        "Look. Replace <file> with the file that the traceback leads to, and <mount> with the mount point of the file system."
    )


@pytest.mark.parametrize(
    ("command", "kept"),
    [
        ('python -c "import torch; print(torch.__version__)"', 'python -c "import torch; print(torch.__version__)"'),
        ("free -g; nvidia-smi -L; df -h", "nvidia-smi -L"),
        ("dmesg -T | grep Xid", None),
        (None, None),
    ],
)
def test_windows_gets_whole_commands_that_it_has(command, kept):
    """A semicolon within quotes does not end a command."""
    assert on_windows(command) == kept


def test_the_library_that_a_message_names_is_filled_in() -> None:
    """Only where it names one."""
    lines = ["(libfit.so) is not configured: libfit.so: cannot open shared object file"]

    assert filled("ldd <file.so>", (), None, library=library_in(lines)) == "ldd libfit.so"
    assert (
        filled("ldd <file.so>", (), None, library=library_in([*lines, "libother.so.2: not found"])) == "ldd <file.so>"
    )
