"""Collective libraries and their watchdog: c10d's ProcessGroupNCCL, NCCL (and RCCL) lines, NET/IB completions."""

from __future__ import annotations

import re

from kb.model import Scalar, Structure
from kb.parsers.logs.lines import line_at, number, on_line, plain, resource, text
from kb.parsers.logs.prefixes import peel
from kb.parsers.logs.speakers import speaker
from kb.parsers.reader import Reader
from kb.regex.lazy import lazy_compile

# [PG ID 0 PG GUID 0(default_pg) Rank 9], [PG 0 (default_pg) Rank 37], [PG 0 Rank 25], [Rank 5]
# "[PG ID 1 PG GUID 7(tp) Rank 0]": the id counts the groups of one process, only the GUID is the same on all ranks of a group
_GROUP = lazy_compile(rb"\[(?:PG (?:ID \d{1,9} ?PG GUID |ID )?([^\s\](]{1,40})(?:[^\]\n]{0,120}?) )?Rank (\d{1,7})\]")
_WORK = lazy_compile(rb"WorkNCCL\(([^\n]{0,400}?)\) ran for (\d{1,15}) milliseconds")
_PAIR = lazy_compile(rb"(SeqNum|OpType|NumelIn|NumelOut|Timeout\(ms\))=(-?\w{1,40})")
_STATUS = lazy_compile(
    rb"[Ll]ast enqueued (?:NCCL )?work: (-?\d{1,15}), last completed (?:NCCL )?work: (-?\d{1,15})", re.IGNORECASE
)
_AT = lazy_compile(rb"(?:at work(?: sequence id)?|at NCCL work): (-?\d{1,15})")
_FROM = lazy_compile(rb"due to [^\n]{0,80}? from +(this local rank|rank +(\d{1,7}))")
_LINE = lazy_compile(
    rb"([\w.-]{1,64}):(\d{1,9}):\d{1,9} \[(-?\d{1,4})\] (?:([^\s:]{1,120}:\d{1,6}) (?:\(([^)\n]{1,120})\) )?)?"
    rb"[NR]CCL (WARN|INFO) ?"
)
_INIT = lazy_compile(
    rb"comm (0x[0-9a-fA-F]{1,16}) rank (\d{1,7}) n[rR]anks (\d{1,7})(?: cudaDev (\d{1,3}))?(?: nvmlDev \d{1,3})?"
    rb"(?: busId ([0-9a-fA-F:.]{1,16}))?(?: (?:commId|commHash) (0x[0-9a-fA-F]{1,16}))?"
)
_PEER = lazy_compile(rb"from peer (?!with\b)(\S{1,80})")
_ERROR = lazy_compile(rb"with (?:status ?= ?(?:(IBV_WC_\w{1,40})\()?|error )(\d{1,4})\b")
_OPCODE = lazy_compile(rb"opcode[= ](\w{1,40}(?:\(\d{1,4}\))?)")
_VENDOR = lazy_compile(rb"vendor[_ ]err[= ](\w{1,12})")
_HCA = lazy_compile(rb"\bhca (\S{1,40})")
# names of work completion statuses, in the order of the verbs header
_STATUS_NAMES = (
    *("SUCCESS", "LOC_LEN_ERR", "LOC_QP_OP_ERR", "LOC_EEC_OP_ERR", "LOC_PROT_ERR", "WR_FLUSH_ERR", "MW_BIND_ERR"),
    *("BAD_RESP_ERR", "LOC_ACCESS_ERR", "REM_INV_REQ_ERR", "REM_ACCESS_ERR", "REM_OP_ERR", "RETRY_EXC_ERR"),
    *("RNR_RETRY_EXC_ERR", "LOC_RDD_VIOL_ERR", "REM_INV_RD_REQ_ERR", "REM_ABORT_ERR", "INV_EECN_ERR"),
    *("INV_EEC_STATE_ERR", "FATAL_ERR", "RESP_TIMEOUT_ERR", "GENERAL_ERR"),
)


def _group(line: bytes, before: int) -> tuple[str, int | None]:
    """Return the process group and the rank in it, from the last bracket before `before` with a group, else a rank."""
    named, rank = "", None
    for found in _GROUP.finditer(line, 0, before):
        named = text(found[1], 40) or named
        rank = number(found[2])
    return named, rank


def _read_watchdog(window: bytes, at: int) -> tuple[Structure, ...]:
    line = plain(line_at(window, at)[0])
    work = _WORK.search(line)
    if work is None:
        return ()
    pairs = dict(_PAIR.findall(work[1]))
    group, rank = _group(line, work.start())
    fields: dict[str, Scalar] = {
        "pg": group,
        "pg_rank": rank,
        "seq": number(pairs.get(b"SeqNum")),
        "op": text(pairs.get(b"OpType")),
        "numel_in": number(pairs.get(b"NumelIn")),
        "numel_out": number(pairs.get(b"NumelOut")),
        "timeout_ms": number(pairs.get(b"Timeout(ms)")),
        "ran_ms": number(work[2]),
    }
    return (on_line("watchdog", window, at, fields),)


def _read_status(window: bytes, at: int) -> tuple[Structure, ...]:
    line = plain(line_at(window, at)[0])
    status = _STATUS.search(line)
    if status is None:
        return ()
    group, rank = _group(line, status.start())
    work, sender = _AT.search(line), _FROM.search(line)
    own = peel(line).rank
    fields: dict[str, Scalar] = {
        "pg": group,
        "pg_rank": rank,
        "at": number(work[1]) if work else None,
        "enqueued": number(status[1]),
        "completed": number(status[2]),
        "from_rank": (number(sender[2]) if sender[2] else own) if sender else None,
    }
    return (on_line("watchdog_status", window, at, fields),)


def _spoken(line: bytes, level: bytes) -> re.Match[bytes] | None:
    """Return the header of a line of the library itself, at that level."""
    head = _LINE.search(line[:1024])
    return head if head and head[6] == level else None


def _read_warn(window: bytes, at: int) -> tuple[Structure, ...]:
    line = plain(line_at(window, at)[0])
    head = _spoken(line, b"WARN")
    if head is None:
        return ()
    fields: dict[str, Scalar] = {
        "host": text(head[1], 64),
        "pid": number(head[2]),
        "device": number(head[3]),
        "source": text(head[4], 120),
        "function": text(head[5], 120),
        "message": text(line[head.end() :]),
    }
    return (on_line("nccl_warn", window, at, fields, who=speaker(line, peel(line))),)


def _read_init(window: bytes, at: int) -> tuple[Structure, ...]:
    line = plain(line_at(window, at)[0])
    head, init = _spoken(line, b"INFO"), _INIT.search(line)
    if init is None or b"Init COMPLETE" not in line:
        return ()
    host, pid = (text(head[1], 64), number(head[2])) if head else ("", None)
    fields: dict[str, Scalar] = {
        "host": host,
        "pid": pid,
        "comm_rank": number(init[2]),
        "nranks": number(init[3]),
        "device": number(init[4]),
        "bus": text(init[5], 16),
        # the id links the ranks of one communicator; older lines have only an address, valid within one process
        "comm": text(init[6] or init[1], 20),
    }
    who = resource(peel(line), node=host or None, pid=pid)
    return (on_line("nccl_init", window, at, fields, who=who),)


def _read_completion(window: bytes, at: int) -> tuple[Structure, ...]:
    line = plain(line_at(window, at)[0])
    start = line.find(b"Got completion")
    error = _ERROR.search(line, max(start, 0))
    if start < 0 or error is None:
        return ()
    peer, opcode, vendor, hca = (found.search(line, start) for found in (_PEER, _OPCODE, _VENDOR, _HCA))
    status = number(error[2]) or 0
    known = f"IBV_WC_{_STATUS_NAMES[status]}" if status < len(_STATUS_NAMES) else ""
    fields: dict[str, Scalar] = {
        "peer": text(peer[1]) if peer else "",
        "status": status,
        "status_name": text(error[1]) or known,
        "opcode": text(opcode[1]) if opcode else "",
        "vendor": text(vendor[1]) if vendor else "",
        "hca": text(hca[1]) if hca else "",
    }
    head = _LINE.search(line[:1024])
    who = resource(peel(line), node=text(head[1], 64), pid=number(head[2])) if head else resource(peel(line))
    return (on_line("ib_completion", window, at, fields, who=who),)


READERS: tuple[Reader, ...] = (
    Reader(name="watchdog", trigger=r"\) ran for \d+ milliseconds", read=_read_watchdog, after=4096, keep=64),
    Reader(
        name="watchdog_status",
        trigger=r"[Ll]ast enqueued (?:NCCL )?work: -?\d",
        read=_read_status,
        after=4096,
        keep=256,
    ),
    Reader(name="nccl_warn", trigger=r"[NR]CCL WARN", read=_read_warn, after=2048, keep=256),
    Reader(name="nccl_init", trigger=r"Init COMPLETE", read=_read_init, after=2048, keep=64),
    Reader(
        name="ib_completion", trigger=r"Got completion .*(?:error|status)", read=_read_completion, after=2048, keep=256
    ),
)
