"""Kernel and cgroup lines: NVIDIA Xid and SXid, the OOM killer, blocked tasks."""

from __future__ import annotations

from dataclasses import replace

from kb.model import Resource, Scalar, Structure
from kb.parsers.logs.lines import line_at, lines_from, number, on_line, plain, resource, text
from kb.parsers.logs.prefixes import peel
from kb.parsers.reader import Reader
from kb.regex.lazy import lazy_compile

_PCI = rb"(?:PCI:)?([0-9a-fA-F]{1,8}(?::[0-9a-fA-F]{2}){1,2}(?:\.[0-9a-fA-F])?)"
# People redact the address before they share a log; a GPU instance (MIG) stands behind it.
_HIDDEN_PCI = rb"(?:" + _PCI + rb"|PCI:([^)\s]{1,24}))"
_XID = lazy_compile(rb"(?<!S)Xid \(" + _HIDDEN_PCI + rb"(?: GPU-I:\d{1,3})?\)[^:\n]{0,40}: (\d{1,4})\b,? ?(.*)")
_XID_PROCESS = lazy_compile(rb"pid='?([^,'\n]{1,40})'?(?:, name=([^,\n]{1,80}))?(?:, |$)")
_NVLINK5 = lazy_compile(
    rb"([A-Z][A-Z0-9_/]{2,40})\s+(Nonfatal|Non-fatal|Fatal)\s+(?:XC\d\s+)?(?:i\d{1,3}\s+)?Link\s+(-?\d{1,4})"
    rb"(?:\s+\((0x[0-9a-fA-F]{1,8})\s+(0x[0-9a-fA-F]{1,8}))?"
)
_OFF_BUS = lazy_compile(
    rb"GPU (?:at )?" + _PCI + rb"[^\n]{0,200}?(?:has |is )?fallen off the bus|NVRM: The NVIDIA GPU " + _PCI
)
_FALLEN = b"fallen off the bus"
_SXID = lazy_compile(
    rb"nvidia-nvswitch(\d{1,3}): SXid \(" + _PCI + rb"\): (\d{1,6}), (?:(Fatal|Non-fatal|Nonfatal)(?:, )?)?(.*)"
)
_LINK = lazy_compile(rb"Link (\d{1,4})")

_OOM_KILL = lazy_compile(rb"oom-kill:constraint=(?:CONSTRAINT_)?(\w{1,40})([^\n]{0,2000})")
_OOM_PAIR = lazy_compile(rb",(oom_memcg|task_memcg|task|pid)=([^,\n]{0,400})")
_KILLED = lazy_compile(
    rb"(Memory cgroup out of memory|Out of memory[^:\n]{0,40}):? Kill(?:ed)? process (\d{1,9}),? ?\((.{1,80}?)\)(?:[ ,]|$)"
)
_RSS = lazy_compile(rb"(anon|file|shmem)-rss:(\d{1,15})kB")
_SLURM = lazy_compile(rb"Detected ([1-9]\d{0,8}) oom[-_]kill event(?:\(s\)|s)? in (\S{1,80}?)\.(?:\s|$)")
_K8S = lazy_compile(rb"(?<!\b0 )\bOOMKilled\b(?![\"']?[=:]? ?(?:false|False|0\b))")
_BLOCKED = lazy_compile(
    rb"task (\S.{0,63}?):(\d{1,9}) (?:.{0,80} )?blocked (?:in I/O wait )?for more than (\d{1,9}) seconds"
)
_CONSTRAINTS = {"MEMCG": "memcg", "NONE": "host", "CPUSET": "cpuset", "MEMORY_POLICY": "policy"}


def _line(window: bytes, at: int) -> bytes:
    return plain(line_at(window, at)[0])


def _who(line: bytes, gpu: str = "", pid: int | None = None) -> Resource:
    return replace(resource(peel(line), pid=pid), gpu=gpu or None)


def _read_xid(window: bytes, at: int) -> tuple[Structure, ...]:
    line = _line(window, at)
    found = _XID.search(line)
    if found is None:
        return ()
    pci = text(found[1] or found[2])
    process = _XID_PROCESS.search(found[4])
    rest = found[4][process.end() :] if process else found[4]
    link = _NVLINK5.search(rest)
    pid = number(process[1]) if process else None
    fields: dict[str, Scalar] = {
        "pci": pci,
        "xid": number(found[3]),
        "pid": text(process[1], 40) if process else "",
        "process": text(process[2], 80) if process else "",
        "detail": text(rest),
    }
    if link:
        fields |= {
            "unit": text(link[1]),
            "severity": text(link[2]),
            "link": number(link[3]),
            "status": text(link[5]),
        }
    return (on_line("xid", window, at, fields, who=_who(line, pci if found[1] else "", pid)),)


def _read_off_bus(window: bytes, at: int) -> tuple[Structure, ...]:
    """Read the loss of a GPU without an Xid line: one line, or two of which the second has `fallen off the bus`."""
    line = _line(window, at)
    found = _OFF_BUS.search(line)
    if found is None or b"Xid" in line:
        return ()
    pci = text(found[1] or found[2]).removesuffix(".0")  # as Xid lines write it: both forms occur in one log
    end = None
    if _FALLEN not in line:
        ends = [after for _, after, later in lines_from(window, at, 4) if _FALLEN in later and b"Xid" not in later]
        if not ends:
            return ()
        end = ends[0]
    fields: dict[str, Scalar] = {"pci": pci, "xid": 79, "detail": "GPU has fallen off the bus"}
    return (on_line("xid", window, at, fields, end=end, who=_who(line, pci)),)


def _read_sxid(window: bytes, at: int) -> tuple[Structure, ...]:
    line = _line(window, at)
    found = _SXID.search(line)
    if found is None:
        return ()
    link = _LINK.search(found[5])
    fields: dict[str, Scalar] = {
        "switch": number(found[1]),
        "pci": text(found[2]),
        "sxid": number(found[3]),
        "severity": text(found[4]),
        "link": number(link[1]) if link else None,
        "detail": text(found[5]),
    }
    return (on_line("sxid", window, at, fields, who=_who(line)),)


def _read_oom(window: bytes, at: int) -> tuple[Structure, ...]:
    line = _line(window, at)
    fields = _oom_summary(line) or _oom_killed(line) or _oom_slurm(line)
    if not fields and _K8S.search(line):
        fields = {"constraint": "memcg"}
    if not fields:
        return ()
    pid = fields.get("pid")
    return (on_line("oom_kill", window, at, fields, who=_who(line, pid=pid if isinstance(pid, int) else None)),)


def _oom_summary(line: bytes) -> dict[str, Scalar]:
    found = _OOM_KILL.search(line)
    if found is None:
        return {}
    pairs = {pair[1]: pair[2] for pair in _OOM_PAIR.finditer(found[2])}
    constraint = text(found[1])
    return {
        "constraint": _CONSTRAINTS.get(constraint, constraint.lower()),
        "cgroup": text(pairs.get(b"task_memcg") or pairs.get(b"oom_memcg")),
        "process": text(pairs.get(b"task")),
        "pid": number(pairs.get(b"pid")),
    }


def _oom_killed(line: bytes) -> dict[str, Scalar]:
    found = _KILLED.search(line)
    if found is None:
        return {}
    resident = [int(kilobytes) for _, kilobytes in _RSS.findall(line)]
    return {
        "constraint": "memcg" if found[1].startswith(b"Memory cgroup") else "host",
        "process": text(found[3]),
        "pid": number(found[2]),
        "rss_kb": sum(resident) if resident else None,
    }


def _oom_slurm(line: bytes) -> dict[str, Scalar]:
    found = _SLURM.search(line)
    return {"constraint": "slurm", "cgroup": text(found[2]), "events": number(found[1])} if found else {}


def _read_blocked(window: bytes, at: int) -> tuple[Structure, ...]:
    line = _line(window, at)
    found = _BLOCKED.search(line)
    if found is None:
        return ()
    fields: dict[str, Scalar] = {
        "process": text(found[1]),
        "pid": number(found[2]),
        "seconds": number(found[3]),
    }
    return (on_line("hung_task", window, at, fields, who=_who(line, pid=number(found[2]))),)


READERS: tuple[Reader, ...] = (
    Reader(name="xid", trigger=r"Xid \((?:PCI:[^)\s]|[0-9a-fA-F])", read=_read_xid, after=1024, keep=256),
    Reader(
        name="off_bus",
        trigger=r"GPU .*fallen off the bus|NVRM: The NVIDIA GPU ",
        read=_read_off_bus,
        after=2048,
    ),
    Reader(name="sxid", trigger=r"SXid \(", read=_read_sxid, after=1024, keep=256),
    Reader(
        name="oom_kill",
        trigger=r"oom-kill:constraint=|[Oo]ut of memory.{0,60}: Kill|oom[-_]kill event|OOMKilled",
        read=_read_oom,
        after=4096,
    ),
    Reader(name="hung_task", trigger=r"blocked .{0,20}for more than \d+ seconds", read=_read_blocked, after=1024),
)
