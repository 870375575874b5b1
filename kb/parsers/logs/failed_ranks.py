"""What launchers print that name the rank which ended first, before they stop the others.

Each form is a fact of one launcher's source: Paddle, Composer, Lightning, Horovod, MindSpore's msrun, DLRover, and tables
of tasks. `launcher` is `first` in the structures: the named process ended by itself.
"""

from __future__ import annotations

from kb.model import Scalar, Structure
from kb.parsers.logs.lines import line_at, lines_from, number, on_line, plain, resource
from kb.parsers.logs.prefixes import peel
from kb.parsers.reader import Reader
from kb.regex.lazy import lazy_compile

_MOST = 16  # ranks of one line
_TABLE = 256  # lines of a table of failed processes
_FORMS = (
    lazy_compile(rb"trainer process with rank=(?P<ranks>\[?\d{1,6}(?:, ?\d{1,6}){0,15}\]?) was aborted"),
    lazy_compile(rb"\bRank (?P<ranks>\d{1,6}) crashed with exit code (?P<code>-?\d{1,6})"),
    lazy_compile(
        rb"\[rank: (?P<ranks>\d{1,6})\] Child process with PID (?P<pid>\d{1,9}) terminated with code (?P<code>-?\d{1,6})"
    ),
    lazy_compile(rb"after failure of Process (?P<ranks>\d{1,6})\b"),
    lazy_compile(rb"UpdateTopoState\] The node: (?P<ranks>\d{1,6}) is timed out"),
    lazy_compile(
        rb"^\s*(?:TASK|[Tt]ask|RANK|[Rr]ank) #?(?P<ranks>\d{1,6}): +(?:failed|FAILED|crashed)\b.{0,80}\bexit(?:[ _]?code)?[=: ]{1,2}(?P<code>-?\d{1,6})"
    ),
)
_NAME = lazy_compile(rb"^\s*Process name: (?P<ranks>\d{1,6})\s*$")
_CODE = lazy_compile(rb"^\s*Exit code: (-?\d{1,6})")
_ENTRY = lazy_compile(rb'^ {1,8}"(\d{1,6})": \{')
_STATUS = lazy_compile(rb'^ {1,16}"exitcode": (-?\d{1,6})')
_DIGITS = lazy_compile(rb"\d{1,6}")


def _read_sentence(window: bytes, at: int) -> tuple[Structure, ...]:
    """Read a sentence that names the rank."""
    line = plain(line_at(window, at)[0])
    said = line[peel(line).end :]
    found = next((match for form in _FORMS if (match := form.search(line) or form.search(said))), None)
    if found is None:
        return ()
    parts = found.groupdict()
    ranks = _DIGITS.findall(parts["ranks"])[:_MOST]
    return tuple(_ended(window, at, int(rank), number(parts.get("code")), number(parts.get("pid"))) for rank in ranks)


def _read_name(window: bytes, at: int) -> tuple[Structure, ...]:
    """Read Horovod's two lines: the process's number and its status."""
    line, after = line_at(window, at)
    found, code = _NAME.search(line), _CODE.search(line_at(window, after)[0])
    return (_ended(window, at, int(found["ranks"]), number(code[1]), None),) if found and code else ()


def _read_table(window: bytes, at: int) -> tuple[Structure, ...]:
    """Read DLRover's table of failed processes: JSON, an entry per rank."""
    found: list[Structure] = []
    rank: tuple[int, int] | None = None
    for start, _, line in lines_from(window, line_at(window, at)[1], _TABLE):
        entry, status = _ENTRY.match(line), _STATUS.match(line)
        rank = (start, int(entry[1])) if entry else rank
        if rank is not None and status is not None:
            found.append(_ended(window, rank[0], rank[1], number(status[1]), None))
            rank = None
        if line.startswith(b"}"):
            break
    return tuple(found[:_MOST])


def _ended(window: bytes, at: int, rank: int, code: int | None, pid: int | None) -> Structure:
    fields: dict[str, Scalar] = {"task": rank, "exitcode": code, "launcher": "first"}
    prefix = peel(line_at(window, at)[0])
    return on_line("launcher_exit", window, at, fields, who=resource(prefix, rank=rank, pid=pid))


READERS: tuple[Reader, ...] = (
    Reader(
        name="rank_ended",
        trigger=r"trainer process with rank=\[?\d|Rank \d+ crashed with exit code|\] Child process with PID \d+ terminated with code"
        r"|after failure of Process \d|UpdateTopoState\] The node: \d|(?:TASK|[Tt]ask|RANK|[Rr]ank) #?\d+: +(?:failed|FAILED|crashed)",
        read=_read_sentence,
        after=1024,
        keep=64,
    ),
    Reader(name="rank_ended_horovod", trigger=r"Process name: \d", read=_read_name, after=1024, keep=64),
    Reader(name="rank_ended_table", trigger=r"\bfails: \{", read=_read_table, after=16 * 1024, keep=16),
)
