"""What launchers, schedulers and shells print when a task ends: srun, mpirun, PALS, pdsh, DeepSpeed, Slurm, signals."""

from __future__ import annotations

from dataclasses import replace

from kb.model import Scalar, Structure
from kb.parsers.logs.lines import line_at, lines_from, number, on_line, plain, resource, shown_part, text
from kb.parsers.logs.prefixes import peel
from kb.parsers.reader import Reader
from kb.parsers.signals import NAMES, NUMBERS, WORDS, signal_of_status
from kb.regex.lazy import lazy_compile

# the C library's names; both upper and lower case occur; Slurm writes the last one
_WORDS = {word.shell.lower(): name for name, word in WORDS.items()} | {"out of memory": "SIGKILL"}
_WORD = "|".join([*(word.shell for word in WORDS.values()), "Out Of Memory"]).encode()

_SRUN = lazy_compile(
    rb"(?:srun|mpirun|launch|error): (?:error: )?([\w.-]{1,64}): tasks? ([\d,\[\]-]{1,200}): "
    rb"(?:Exited with exit code (\d{1,6})|(" + _WORD + rb"))"
)
_NOTICED = lazy_compile(
    rb"process rank (\d{1,7}) with PID (\d{1,9}) on node ([\w.-]{1,64}) exited on\s+signal (\d{1,3})"
)
_DETECTED = lazy_compile(rb"exited with non-zero status")
_PROCESS_NAME = lazy_compile(rb"Process name: *\[[^\]\n]{1,80}\]?,(\d{1,7})\]")
_EXIT_CODE = lazy_compile(rb"Exit code: *(-?\d{1,6})")
_WORLD = b"MPI_COMM_WORLD"
_ABORTED = lazy_compile(rb"MPI_ABORT was invoked on rank (\d{1,7}) in communicator (\w{1,64})")
_CALLED = lazy_compile(rb"application called MPI_Abort\(([\w=]{1,64}), (-?\d{1,10})\) - process (\d{1,7})")
_UNREAD = lazy_compile(rb"ORTE_ERROR_LOG: Data unpack .{1,80}show_help\.c")
_ERROR_CODE = lazy_compile(rb"(?i)^\s*(?:with )?errorcode:? (-?\d{1,10})")
_HYDRA = lazy_compile(
    rb"=\s+(?:(?:RANK (\d{1,7}) )?PID (\d{1,9}) RUNNING AT ([\w.-]{1,64})|EXIT CODE: (-?\d{1,6})"
    rb"|KILLED BY SIGNAL: (\d{1,3}))"
)
_PALS = lazy_compile(
    rb"(?:([\w.-]{1,64}): )?rank (\d{1,7}) (?:died from signal (\d{1,3})|exited with code (-?\d{1,6}))"
)
# a launcher of the site's own: `member 3 on node-b (pid 3560) left with status 21 after 3.0s`, `rank 5 was killed by signal 9`
_OWN = lazy_compile(
    rb"(?i)(?:^|[\s\"'\]|:>])(?:(?P<sure>rank|member|replica|trainer|peer|(?:worker|process|task|proc|child) (?=\d{1,6} (?:on |\(pid)))[ #=]{0,2})"
    rb"(?P<rank>\d{1,6})(?: on (?P<node>[\w.-]{1,64}))?(?:,? \(?pid[ =:]{0,2}(?P<pid>\d{1,9})\)?)?,? (?:has |was |is )?"
    rb"(?:(?:left|exited|ended|died|terminated|failed|finished|quit|returned|stopped|gone) (?:with |by )(?:an? |non-?zero )?"
    rb"|(?:killed|ended|terminated|stopped) (?:with |by |due to |from ))"
    rb"(?:(?:exit |return )?(?:status|code|value) ?[=:]? ?(?P<code>-?\d{1,6})|(?:the )?signal ?[=:]? ?(?:(?P<number>\d{1,3})|(?P<name>SIG[A-Z]{2,6}[12]?))\b)"
)
_STOPS = lazy_compile(
    rb"(?i)\b(?:stopping|terminating|killing|signal{1,2}ing|shutting down|tearing down|sen(?:t|ding) SIG[A-Z]+ to)\b.{0,60}"
    rb"\b(?:remaining|others?|rest|all|members|workers|ranks|processes|everyone|gang|group)\b"
)
_KILLING = lazy_compile(rb"Killing subprocess (\d{1,9})")
_RETURNED = lazy_compile(rb"exits with return code = (-?\d{1,6})")
_PDSH = lazy_compile(rb"(?:pdsh@)?[\w.-]{1,64}: ([\w.-]{1,64}): (?:ssh|mcmd) exited with exit code (\d{1,6})")
_SHELL = lazy_compile(
    rb"(?:\S{1,200}: line \d{1,7}: +(\d{1,9}) +)?(" + _WORD + rb")(?: +\(core dumped\))?(?:$| {2,}| [^\s:]{1,400} )"
)
# of fish, with the command in quotes before it
_FISH = lazy_compile(
    rb"^fish: (?:Process (\d{1,9}), |Job \d{1,6}, ).{1,400} terminated by signal (SIG[A-Z]{2,6}[12]?)\b"
)
_ENDED = lazy_compile(
    rb"\*\*\* (JOB|STEP) (\S{1,80}) ON (\S{1,80}) CANCELLED AT (\S{1,40})(?: DUE TO ([A-Za-z][\w ]{1,60}?)(?:,[^*]{0,120})?)? ?\*\*\*"
)

_NAME = rb"SIG[A-Z]{2,6}[12]?"
_SIGNALLED = (
    lazy_compile(rb"Process (?P<pid>\d{1,9}) got signal: (?P<number>\d{1,3})"),
    lazy_compile(rb"Caught signal (?P<number>\d{1,3})\b"),
    lazy_compile(rb"Sending process (?P<pid>\d{1,9}) closing signal (?:Signals\.)?(?P<name>" + _NAME + rb")"),
    lazy_compile(rb"Received (?:Signals\.)?(?:(?P<name>" + _NAME + rb")|(?P<number>\d{1,3})) death signal"),
    lazy_compile(rb"\(pid (?P<pid>\d{1,9})\) is killed by signal: (?P<word>" + _WORD + rb")"),
    lazy_compile(rb"\*\*\* (?P<name>" + _NAME + rb") (?:\(@0x[0-9a-f]{1,16}\) )?received "),
    lazy_compile(
        rb"[Rr]eceiv(?:ed|ing) (?:a |the |an )?(?:termination |exit )?(?:signal:? )?(?:Signals\.)?"
        rb"(?:(?P<name>" + _NAME + rb")|signal:? (?P<number>\d{1,3})\b)"
    ),
    lazy_compile(rb"[Rr]eceived signal:? (?P<number>\d{1,3})\b"),
)
_UCX = lazy_compile(rb"\[([\w.-]{1,64}):(\d{1,9}):[^\]\n]{1,40}\] Caught signal")


def signal_name(word: bytes | None = None, value: int | None = None) -> str:
    """Return the signal's name from its number or the C library's description; empty if it is not a signal."""
    if value is not None:
        return NAMES.get(abs(value), "")
    return _WORDS.get(text(word).lower(), "")


def _line_and_message(window: bytes, at: int) -> tuple[bytes, bytes]:
    """Return the line without colours, and its message without prefixes."""
    line = line_at(window, at)[0]
    return plain(line), plain(line[peel(line).end :])


def _task(raw: bytes) -> Scalar:
    single = number(raw)
    return text(raw, 200) if single is None else single


def _ended(
    window: bytes,
    at: int,
    launcher: str,
    *,
    task: Scalar = None,
    node: bytes | None = None,
    code: int | None = None,
    signal: str = "",
    pid: int | None = None,
    end: int | None = None,
) -> tuple[Structure, ...]:
    signal = signal or signal_of_status(code)
    prefix = peel(line_at(window, at)[0])
    rank = task if isinstance(task, int) and launcher in {"mpirun", "pals", "own"} else None
    fields: dict[str, Scalar] = {
        "task": task,
        "node": text(node, 64) or prefix.node,
        "exitcode": code,
        "signal": signal,
        "launcher": launcher,
    }
    who = resource(prefix, node=text(node, 64) or None, rank=rank, pid=pid)
    return (on_line("launcher_exit", window, at, fields, end=end, who=who),)


def _read_srun(window: bytes, at: int) -> tuple[Structure, ...]:
    found = _SRUN.search(_line_and_message(window, at)[0])
    if found is None:
        return ()
    return _ended(
        window,
        at,
        "srun",
        task=_task(found[2]),
        node=found[1],
        code=number(found[3]),
        signal=signal_name(found[4]),
    )


def _read_mpirun(window: bytes, at: int) -> tuple[Structure, ...]:
    # older versions break the sentence over two lines
    line, after = line_at(window, at)
    found = _NOTICED.search(line) or _NOTICED.search(line + b" " + line_at(window, after)[0])
    if found:
        return _ended(
            window,
            at,
            "mpirun",
            task=number(found[1]),
            node=found[3],
            signal=signal_name(value=number(found[4])),
            pid=number(found[2]),
        )
    return _detected(window, at) if _DETECTED.search(line) else ()


def _detected(window: bytes, at: int) -> tuple[Structure, ...]:
    task: int | None = None
    for _, after, line in lines_from(window, at, 10):
        name, code = _PROCESS_NAME.search(line), _EXIT_CODE.search(line)
        task = number(name[1]) if name else task
        if code:
            return _ended(window, at, "mpirun", task=task, code=number(code[1]), end=after)
    return ()


def _read_abort(window: bytes, at: int) -> tuple[Structure, ...]:
    """Read that a rank called MPI_Abort, or that mpirun could not read such a message of a process that ended.

    A rank of a different communicator than the world's is no rank of the job.
    """
    line, after = line_at(window, at)
    stated, called = _ABORTED.search(line), _CALLED.search(line)
    if _UNREAD.search(line):
        return _ended(window, at, "mpirun")
    if called:
        rank = number(called[3]) if called[1] == _WORLD else None
        return _ended(window, at, "mpirun", task=rank, code=number(called[2]))
    if stated is None:
        return ()
    codes = (_ERROR_CODE.search(below) for _, _, below in lines_from(window, after, 3))
    code = next((number(found[1]) for found in codes if found), None)
    rank = number(stated[1]) if stated[2] == _WORLD else None
    return _ended(window, at, "mpirun", task=rank, code=1 if code is None else code)


def _read_hydra(window: bytes, at: int) -> tuple[Structure, ...]:
    task, pid, node = None, None, None
    for _, after, line in lines_from(window, at, 8):
        found = _HYDRA.search(line)
        if found is None:
            continue
        if found[3]:
            task, pid, node = number(found[1]), number(found[2]), found[3]
            continue
        code, sent = number(found[4]), number(found[5])
        # hydra prints a bare signal number as the exit code
        sent = code if sent is None and code in {6, 7, 9, 11, 15} else sent
        signal = "" if sent is None else signal_name(value=sent)
        return _ended(window, at, "mpirun", task=task, node=node, code=code, signal=signal, pid=pid, end=after)
    return ()


def _read_pals(window: bytes, at: int) -> tuple[Structure, ...]:
    found = _PALS.search(_line_and_message(window, at)[0])
    if found is None:
        return ()
    signal = signal_name(value=number(found[3])) if found[3] else ""
    return _ended(window, at, "pals", task=number(found[2]), node=found[1], code=number(found[4]), signal=signal)


def _read_own(window: bytes, at: int) -> tuple[Structure, ...]:
    line, _ = _line_and_message(window, at)
    found = _OWN.search(line)
    if found is None or _PALS.search(line) or peel(line).rank is not None or b"DataLoader" in line:
        return ()  # a rank tells of its own children
    value = number(found["number"])
    name = text(found["name"]) or (signal_name(value=value) if value is not None else "")
    code = number(found["code"])
    if code == 0 or (value is not None and not 0 < value < 65):
        return ()
    if name in {"SIGTERM", "SIGKILL", "SIGINT"} and _STOPS.search(window, 0, at):  # the launcher ended it itself
        return ()
    return _ended(
        window,
        at,
        "own",
        task=number(found["rank"]),
        node=found["node"],
        code=code,
        signal=name or (f"SIG{value}" if value is not None else ""),
        pid=number(found["pid"]),
    )


def _read_killing(window: bytes, at: int) -> tuple[Structure, ...]:
    found = _KILLING.search(_line_and_message(window, at)[0])
    return _ended(window, at, "deepspeed", task=number(found[1]), pid=number(found[1])) if found else ()


def _read_returned(window: bytes, at: int) -> tuple[Structure, ...]:
    line, _ = _line_and_message(window, at)
    returned, shell = _RETURNED.search(line), _PDSH.search(line)
    if returned:  # the command in the line is that of the last process started, whichever ended
        return _ended(window, at, "deepspeed", code=number(returned[1]))
    return _ended(window, at, "pdsh", node=shell[1], code=number(shell[2])) if shell else ()


def _read_shell(window: bytes, at: int) -> tuple[Structure, ...]:
    line, message = _line_and_message(window, at)
    fish = _FISH.match(message)
    if fish:
        return _ended(window, at, "shell", signal=text(fish[2]), pid=number(fish[1]))
    found = _SHELL.match(message.rstrip()) or _SHELL.match(line.rstrip())
    if found is None or (found[1] is None and found.end() < len(message.rstrip())):
        return ()
    return _ended(window, at, "shell", signal=signal_name(found[2]), pid=number(found[1]))


def _read_slurm_end(window: bytes, at: int) -> tuple[Structure, ...]:
    line, _ = _line_and_message(window, at)
    found = _ENDED.search(line)
    if found is None:
        return ()
    fields: dict[str, Scalar] = {
        "what": text(found[1]),
        "job": text(found[2]),
        "node": text(found[3]),
        "at": text(found[4]),
        "why": text(found[5]),
    }
    # the named batch host only says where the message comes from
    made = on_line("slurm_end", window, at, fields)
    # a plain cancellation has an empty reason, which a rule can match; a progress bar may come before on the same line
    return (replace(made, line=text(shown_part(line, found.start())), fields={"why": "", **made.fields}),)


def _read_signal(window: bytes, at: int) -> tuple[Structure, ...]:
    line, _ = _line_and_message(window, at)
    found = next((match for match in (form.search(line) for form in _SIGNALLED) if match), None)
    if found is None:
        return ()
    parts = found.groupdict()
    value = number(parts.get("number"))
    name = text(parts.get("name")) or signal_name(parts.get("word"), value)
    value = NUMBERS.get(name) if value is None else value
    if value is None or not 0 < value < 65:
        return ()
    reported = _UCX.search(line)
    pid = number(parts.get("pid")) or (number(reported[2]) if reported else None)
    prefix = peel(line)
    fields: dict[str, Scalar] = {
        "signal": name or f"SIG{value}",
        "number": value,
        "pid": pid if pid is not None else prefix.pid,
        "from": "agent" if b"closing signal" in line else "",
    }
    who = resource(prefix, node=text(reported[1]) if reported else None, pid=pid)
    return (on_line("signal", window, at, fields, who=who),)


READERS: tuple[Reader, ...] = (
    Reader(name="srun", trigger=r"error: .*: tasks? [\d,\[\]-]+: ", read=_read_srun, after=1024, keep=256),
    Reader(
        name="mpirun",
        trigger=r"noticed that process rank |exited with non-zero status",
        read=_read_mpirun,
        after=2048,
    ),
    Reader(
        name="mpi_abort",
        trigger=r"MPI_ABORT was invoked on rank \d|application called MPI_Abort\(|ORTE_ERROR_LOG: Data unpack ",
        read=_read_abort,
        after=1024,
    ),
    Reader(name="hydra", trigger=r"BAD TERMINATION OF ONE OF YOUR", read=_read_hydra, after=2048),
    Reader(
        name="pals",
        trigger=r"rank \d+ (?:died from signal|exited with code) ",
        read=_read_pals,
        after=1024,
    ),
    Reader(
        name="own_launcher",
        trigger=r"(?:left|exited|ended|died|terminated|failed|finished|quit|returned|stopped|killed) (?:with|by|due to|from) "
        r"(?:an? |the |non-?zero )?(?:exit |return )?(?:status|code|value|signal)[ =:]+(?:-?\d|SIG)",
        read=_read_own,
        before=4096,
        after=1024,
        keep=256,
    ),
    Reader(name="deepspeed_kill", trigger=r"Killing subprocess \d", read=_read_killing, after=1024, keep=16),
    Reader(
        name="deepspeed_launcher",
        trigger=r"exits with return code = |: (?:ssh|mcmd) exited with exit code ",
        read=_read_returned,
        after=4096,
    ),
    Reader(
        name="shell",
        trigger=r"Killed|Terminated|Segmentation fault|Bus error|Aborted|Illegal instruction|Floating point exception"
        r"|fish: .*terminated by signal SIG",
        read=_read_shell,
        after=1024,
    ),
    Reader(name="slurm_end", trigger=r"\*\*\* (?:JOB|STEP) .*CANCELLED AT ", read=_read_slurm_end, after=4096),
    Reader(
        name="signal",
        trigger=r"got signal: \d|Caught signal \d|closing signal |death signal|killed by signal: "
        r"|[Rr]eceiv(?:ed|ing) .*(?:SIG[A-Z]|signal:? \d)|SIG[A-Z]+ .*received ",
        read=_read_signal,
        after=2048,
        keep=128,
    ),
)
