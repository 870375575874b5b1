"""How programs state that a signal ended a process: each form, for each signal, and lines that only look alike."""

from __future__ import annotations

import re

import pytest

from kb.parsers.signals import NUMBERS, WORDS, signal_of_status
from kb.rulebase.checks import SIGNAL_CAPTURES, unsafe_regex, wrong_regex
from kb.rulebase.signal_texts import USUAL, Teller, statements

SEGFAULT = {
    "torchrun": "traceback : Signal 11 (SIGSEGV) received by PID 4120",
    "subprocess": "subprocess.CalledProcessError: Command 'x' died with <Signals.SIGSEGV: 11>.",
    "DeepSpeed": "[launch.py:325:sigkill_handler] ['python', 't.py'] exits with return code = -11",
    "a launcher": "worker 3 was terminated by signal 11",
    "a launcher by name": "task 3 exited on signal SIGSEGV",
    "slurmctld": "_job_complete: JobId=55 WTERMSIG 11",
    "slurmctld, of a shell": "_job_complete: JobId=55 WEXITSTATUS 139",
    "an exit code": "container trainer exited with exit code 139",
    "a negative one": "worker exitcode: -11",
    "a capital": "Exit Code: 139",
    "docker": "trainer-0 exited (139) 3 minutes ago",
    "Python": "Fatal Python error: Segmentation fault",
    "UCX": "[n1:42:0:42] Caught signal 11 (Segmentation fault: address not mapped)",
    "glog": "*** SIGSEGV (@0x0) received by PID 7 (TID 0x7f) from PID 0; stack trace: ***",
    "abseil": "*** SIGSEGV received at time=1772000000 on cpu 3 ***",
    "Paddle": "FatalError: `Segmentation fault` is detected by the operating system.",
    "gdb": "Program received signal SIGSEGV, Segmentation fault.",
    "a core file": "bash: line 4: 812 Segmentation fault      (core dumped) python t.py",
    "a shell": "/job.sh: line 12: 3345 Segmentation fault      python train.py",
    "srun": "srun: error: n3: task 5: Segmentation fault",
    "a shell without a script": "Segmentation fault",
    "zsh": "zsh: segmentation fault  python train.py",
}


@pytest.mark.parametrize("line", SEGFAULT.values(), ids=SEGFAULT)
def test_each_form_is_recognised(line: str) -> None:
    """Whoever reports the end of the process, the signal is found; the same line does not speak of another signal."""
    assert re.search(statements(["SIGSEGV"], USUAL), line)
    assert re.search(statements(["SIGFPE", "SIGSEGV"], USUAL), line)
    assert not re.search(statements(["SIGABRT", "SIGKILL"], USUAL), line)


@pytest.mark.parametrize(
    "line",
    [
        "exit code 1390",
        "return code = -110",
        "Caught signal 110",
        "step 139 | loss 2.11",
        "with code 1",
        "a Segmentation fault was fixed in this release",
    ],
)
def test_other_numbers_and_prose_are_no_signal(line: str) -> None:
    """A longer number and a sentence about signals state none."""
    assert not re.search(statements(["SIGSEGV"], USUAL), line)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("Fatal Python error: Segmentation fault", "handler"),
        ("Program received signal SIGSEGV", "debugger"),
        ("Segmentation fault (core dumped)", "dumped"),
    ],
)
def test_the_teller_is_captured(line: str, named: str) -> None:
    """Texts of rules depend on whether a handler, a debugger or a core file is mentioned."""
    found = re.search(statements(["SIGSEGV"], USUAL), line)
    assert found is not None
    assert {name for name, value in found.groupdict().items() if value} == {named}
    assert named in SIGNAL_CAPTURES


@pytest.mark.parametrize("name", WORDS)
def test_every_signal_gives_a_regex_for_the_scan(name: str) -> None:
    """Of each signal and each teller, the regex is in the safe subset and of bounded size."""
    tellers: tuple[Teller, ...] = (*USUAL, "agent", "trainer", "stopping")
    for asked in (tellers, *([teller] for teller in tellers)):
        regex = statements([name], asked)
        assert not unsafe_regex(regex), (asked, regex)
        assert not wrong_regex(regex)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("process finished with exit code -1073741819 (0xC0000005)", True),
        ("exit status 3221225477", True),
        ("Exit code: 0xC0000005", True),
        ("read 3221225477 bytes", False),
    ],
)
def test_statuses_of_windows(line: str, expected: bool) -> None:
    """Windows' status counts as a number of either sign or in hexadecimal, behind a word that says what it is."""
    assert bool(re.search(statements(["SIGSEGV"], ["windows"]), line)) == expected


@pytest.mark.parametrize(
    ("status", "signal"),
    [(-11, "SIGSEGV"), (139, "SIGSEGV"), (137, "SIGKILL"), (1, ""), (0, ""), (128, ""), (255, ""), (None, "")],
)
def test_the_signal_of_a_status(status: int | None, signal: str) -> None:
    """A negative exit code and a shell's status above 128 stand for a signal; other statuses do not."""
    assert signal_of_status(status) == signal


def test_signals_have_their_numbers() -> None:
    """The numbers are those of Linux on x86 and Arm."""
    assert [NUMBERS[name] for name in ("SIGHUP", "SIGBUS", "SIGSEGV", "SIGTERM", "SIGXCPU", "SIGXFSZ")] == [
        1,
        7,
        11,
        15,
        24,
        25,
    ]
