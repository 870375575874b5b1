"""How programs state that a signal ended a process or was sent to it: the regex of a pattern `signal: SIGSEGV|SIGFPE`.

One table of the statements, with holes for what kb.parsers.signals knows of each signal, so that each statement is
recognised for every signal whose rule asks for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

from kb.parsers.signals import NUMBERS, SHELL_STATUS, WORDS

Teller = Literal["parent", "status", "handler", "shell", "agent", "trainer", "stopping", "windows"]
USUAL: Final[tuple[Teller, ...]] = ("parent", "status", "handler", "shell")

# holes: {name} SIGSEGV, {number} 11, {status} 139, {word} of the shell, {lower} of zsh, {paddle}'s words
_STATEMENTS: Final[Mapping[Teller, tuple[str, ...]]] = {
    # whoever waited for the process
    "parent": (
        r"Signal {number} \({name}\) received by PID",  # torchrun
        r"died with <Signals\.{name}: {number}>",  # Python's subprocess
        r"return code = -{number}\b",  # DeepSpeed
        r"(?:ended|killed|stopped|died|terminated|exited) (?:by|with|on|from) signal (?:{number}\b|{name}\b)",
        r"job_complete: Job(?:Id|ID)=\S{1,40} .{0,60}(?:WTERMSIG {number}|WEXITSTATUS {status})\b",  # slurmctld
    ),
    "status": (
        r"(?:exit|with) (?:code|status)[:=]? {0,8}(?:{status}|-{number})\b",
        r"(?:exit_code|exit_status|exitcode|exitCode)[ :=]{0,3}(?:{status}|-{number})\b",
        r"(?:Exit Code|Exit code|ExitCode|Exitcode|Exit Status|Exit status)[ :=]{0,9}(?:{status}|-{number})\b",
        r"exited \({status}\)",
    ),
    # what runs in the process itself, or debugs it
    "handler": (
        r"(?P<handler>Fatal Python error): {word}",
        r"[Cc]aught signal {number}\b",  # UCX and others
        r"\*\*\* {name} (?:\(@0x[0-9a-f]{1,16}\) )?received\b",  # glog and abseil
        r"`{paddle}` is detected by the operating system",
        r"(?P<debugger>Program) received signal {name}\b",
    ),
    "shell": (
        r"{word} +\((?P<dumped>core dumped)\)",
        r"line \d{1,7}: {1,8}\d{2,10} {word} {2,40}\S",
        r"task \d+(?:[-,\d]*): {word}",
        r"^{word}\s*$",
        r"zsh: {lower}",
    ),
    # a launcher that was asked to end, and a trainer
    "agent": (
        r"got signal: {number}\b",
        r"Received (?:Signals\.)?(?:{name}|{number})(?:: {number})? death signal",
    ),
    "trainer": (
        r"[mM]ain process received {name}, exiting",
        r"exiting program after receiving {name}\b",
        r"Received {name}(?:,|:| -) .{0,60}(?:sav|stop|exit|shut|terminat)",
        r"Bypassing {name}\b",
        r"preemption_(?:notifier|sync_manager)\.cc:\d+\] .{0,60}{name} caught",
    ),
    # a launcher that passes it on
    "stopping": (r"closing signal (?:Signals\.)?(?:{name}|{number})\b",),
}
# what stands before a status of Windows
_BEFORE_STATUS: Final = r"(?:[Ee]xit|[Rr]eturn|[Cc]ode|[Ss]tatus|[Tt]erminated)[^\n\d]{0,30}"


def statements(signals: Sequence[str], tellers: Iterable[Teller]) -> str:
    """Return the regex of the statements that one of the signals, such as SIGSEGV, ended a process or was received.

    Named groups: `handler`, `debugger` and `dumped` (a core file) where the statement says so.
    """
    words = [WORDS[name] for name in signals]
    numbers = [NUMBERS[name] for name in signals]
    holes = {
        "{name}": _one_of(signals),
        "{number}": _one_of(numbers),
        "{status}": _one_of(SHELL_STATUS + number for number in numbers),
        "{word}": _one_of(word.shell for word in words).replace("Floating point", "Floating[ -]point"),
        "{lower}": _one_of(word.shell.lower() for word in words),
        "{paddle}": _one_of(word.paddle for word in words if word.paddle),
    }
    forms = [
        form
        for teller in tellers
        for form in _STATEMENTS.get(teller, ())
        if "{paddle}" not in form or holes["{paddle}"]
    ]
    if "windows" in tellers:
        forms.append(_of_windows(status for word in words for status in word.windows))
    return "|".join(_filled(form, holes) for form in forms)


def _filled(form: str, holes: Mapping[str, str]) -> str:
    for name, regex in holes.items():
        form = form.replace(name, regex)
    return form


def _of_windows(statuses: Iterable[str]) -> str:
    """Return the regex of Windows statuses as programs write them: as a signed or unsigned number, or in hexadecimal."""
    written: list[str] = []
    for status in statuses:
        value = int(status, 16)
        written += [f"-{2**32 - value}", str(value), f"0[xX][cC]{status[1:]}"]
    return rf"{_BEFORE_STATUS}(?:{'|'.join(written)})\b"


def _one_of(values: Iterable[object]) -> str:
    given = [str(value) for value in values]
    return given[0] if len(given) == 1 else f"(?:{'|'.join(given)})" if given else ""
