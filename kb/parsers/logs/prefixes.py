"""Parses the prefixes that launchers, collectors and loggers put before a message, and the process they identify.

`[rank3]:` is the global rank, in any of its spellings; `[default5]:`, `[GPU5]` and `[host1:5]` name the local rank; `12: `
(srun -l) is a task id, taken as the rank. Levels and module names stay with the message, unless they share a bracket
with a timestamp (glog, NeMo, HF). `[Rank 5]` in c10d's own messages is the rank in a process group and stays, too.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from kb.parsers.logs.timestamps import STAMP, find_time, is_glog, midnight_of, stamp_time
from kb.regex.lazy import lazy_compile

MAX_PREFIXES = 8
MAX_BYTES = 512
HEAD = 256  # bytes of a line from which prefixes are read if nothing else of it is needed


class Prefix(NamedTuple):
    """Where the message begins (`end`, a byte index), and the values of the prefixes before it.

    `rank` is global, `local_rank` within the node, `node` a host, pod or address, `time` seconds since the epoch, UTC.
    """

    end: int = 0
    rank: int | None = None
    local_rank: int | None = None
    node: str | None = None
    pid: int | None = None
    time: float | None = None


_NOTHING = Prefix()

# The start of a line with a prefix; most lines have none and are skipped here. A level in brackets is none.
_GATE = lazy_compile(
    rb"(?!\[[A-Z]{1,12}\])[\x1b\[(<\r:\d]| {1,6}\d|[IWEFDC]\d|[a-z][a-z0-9.-]{1,80}(?:: | {1,30}\||/\d{1,4} \[| [a-z][\w-]{0,40} \[)"
    rb"|[a-z][\w-]{0,80}\.\d{1,4}\.[a-z0-9]{7,30}@|[a-z]\w{0,40}(?:\.[\w-]{1,40}){2,8} \d{1,6}: |(?:[Rr]ank|RANK)[ =_-]?\d|process_index="
    rb"|(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun|Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) "
)
# Words that look like host names but are not: programs, and counters of a run.
_NO_HOST = (
    rb"(?:nvidia|slurm[a-z]{0,6}|srun|sbatch|kubelet|containerd|dockerd|systemd|sshd|step|epoch|iter(?:ation)?|rank|layer|stage|phase"
    rb"|run|task|attempt|trial|fold|batch|seed|ckpt|checkpoint|gpt|bert|utf|sha|cuda|torch|python|thread|process|proc|block|head|expert"
    rb"|part|shard|chunk)-"
)
# a progress bar that another process's message follows without a line break, drawn by tqdm or one of its kind
_BAR = lazy_compile(
    rb"[^\n]{0,400}?(?:it/s|s/it)(?:[^\]\n]{0,300}\](?: ?(?=\[(?:rank|default|\d{4}-)|\([\w ]{1,60}pid=|Traceback \()"
    rb"|(?:\x1b\[[0-9;]{0,8}[A-Za-z])?(?=[\w(<{]|\[\w))|(?=\[rank\d))"
)
# what must follow a form that ordinary text has, too
_THEN_RANK = rb"(?=\[(?:rank|default)[ =:_]?\d|\[\d{1,3}\]:)"
# the words of c10d's watchdog, whose `[Rank 5]` counts within a process group
OF_GROUP = rb"(?!:? ?(?:[Ww]atchdog|NCCL|Found|Timeout|Some|First|Last|Received|Observed|Exception|Heartbeat|Rank \d))"
_RANK = (
    rb"(?:(?:global|world|GLOBAL|WORLD)[_ ])?(?:rank|RANK)(?:[ =_-]|: ?)?(?P<rank>\d{1,6})(?:/\d{1,6})?(?:[,; |]{1,2}local_rank[ =:]\d{1,3})?[\])>][:|]? ?"
    rb"|Rank ?(?P<group_rank>\d{1,6})(?:/\d{1,6})?[\])>]" + OF_GROUP + rb"[:|]? ?"
)
# Every form starts with its own class of bytes, so most forms reject a line without a prefix at once.
_PIECE = lazy_compile(
    rb"(?P<ansi>(?:\x1b\[[0-9;?]{0,12}[A-Za-z]|\[[0-9;]{1,9}m|\r)+) ?"
    rb"|[\[(<](?:(?:\w{1,10}=)?(?P<of_rank>(?=\w{0,63}[\d.-]|localhost)[A-Za-z][\w.-]{0,63}) ?[ /|:,] ?"
    rb"|(?:[A-Za-z]{0,8}[=:]?\d{1,6}[ ,|]){1,5})?(?:" + _RANK + rb")"
    rb"|(?:[Rr]ank|RANK)(?:: {0,3}|[ =_-])?(?P<bare_rank>\d{1,6})(?:/\d{1,6})?(?:: | {0,12}\| ?| - |> | {1,2}(?=(?i:debug|info|warn(?:ing)?|error|critical|fatal)\b))"
    rb"|(?:(?P<key_rank>(?:rank|RANK)=\d{1,6})(?:,? local_rank=\d{1,3}[,:]?|:)|(?P<env_rank>RANK=\d{1,6})(?! [A-Z_]{2,40}=)(?= (?:[A-Z\[]|step|epoch|iter|loss|  ))|(?P<jax_key>process_index=\d{1,6}),?) "
    rb"|rank(?P<composer>\d{1,6})\[(?P<composer_pid>\d{1,9})\](?:\[[\w-]{1,40}\])?: ?"  # Composer's loggers
    rb"|\((?:worker|rank|process)_(?P<in_parentheses>\d{1,6})\) ?: ?"
    rb"|\[(?:(?:[Ll]ocal[_ ][Rr]ank|LOCAL_RANK)[ =:_]{0,2}|(?:GPU|gpu|NPU|npu|cuda|xla|hpu|xpu)[ :=#]?)(?P<local_rank>\d{1,3})\](?:\{\d{1,2}\})?:? ?"
    rb"|\[[Rr](?P<letter>\d{1,6})\]:? ?"
    rb"|\[(?:jax )?[Pp]roc(?:ess)?(?:_index|_id)?[ =:](?P<process>\d{1,6})(?:/\d{1,6})?\]:? ?"
    rb"|\[[A-Za-z_]\w{0,30}?(?P<local>\d{1,4})\]: ?"
    rb"|\[(?P<bracket_host>(?=\w{0,63}[\d.-])[a-z][\w.-]{0,63})\] ?"
    + _THEN_RANK
    + rb"|(?P<lane>\d{1,6}) ?\| ?(?=\[(?:rank|default|\d{4}-)|\d{4}-\d\d|Traceback \()"
    rb"|\[(?P<prepended>\d{1,6})\]:? (?=Traceback \(|  File |\[rank|<\d{1,3}>1 \d{4}-|[A-Z]\w{2,40}(?:Error|Exception): )"
    rb"|\[actor=(?P<actor>[^\]\n]{1,240})\] ?"  # Monarch
    rb"|\[(?P<no_role>\d{1,3})\]:(?=\S|  )"  # torchrun's tee of a role without a name, as torchx starts it
    rb"|\[\d\d:\d\d:\d\d(?:[.,]\d{1,6})?\] ?(?=\[)"
    rb"|\d\d:\d\d:\d\d(?:[.,]\d{1,6})? (?=(?:[Rr]ank|RANK)[ =._-]?\d{1,6} {0,12}\| )"  # foreman and its kind
    rb"|<(?:trace|debug|info|warning|error|critical)> {1,8}(?=\[\d{4}-)"  # Determined
    rb"|(?P<syslog><\d{1,3}>1 )(?=\d{4}-\d\d-\d\dT)"
    rb"|[IWEF]0000 00:00:(?P<epoch>\d{10}(?:\.\d{1,9})?) {1,8}\d{1,9} [^\]\n]{1,160}\] ?"
    rb"|\[(?P<tee>(?![A-Z]+:|[\w.-]{1,60}\.(?:py|cc|cpp|cu|h|go|rs):)(?=\w{0,63}[\d.-]|localhost)[A-Za-z][\w.-]{0,63}):(?P<tee_local>1[0-5]|\d)\]:? ?"
    rb"|\[(?:[\w.@-]{1,80},)?(?:mpirank:)?(?P<mpi>\d{1,6})(?:,(?P<mpi_at>[\w.-]{1,64}))?\](?:\[(?P<mpi_host>[\w.-]{1,64}):(?P<mpi_pid>\d{1,9})\])?<std(?:out|err|diag)>: ?"
    rb"|\[pod/(?P<pod>[\w.-]{1,80})(?:/[\w.-]{1,80})?\] ?"
    rb"|\[ {0,7}\d{1,9}\.\d{6}\](?P<dmesg> )"
    rb"| {0,6}\d{1,6}: (?=slurmstepd-[A-Za-z])"  # it labels as task 0 what the daemon says of the whole step
    rb"| {0,6}(?P<srun>\d{1,6}):(?:[ \t]|(?=[\r\n])|\Z)"
    rb"|\d{1,7}\.\d{1,4}s\t(?P<kaggle>\d{1,9})\t"
    rb"|\((?:[\w.:-]{1,80}(?:\((?:rank=(?P<worker_rank>\d{1,6}))?[^()\n]{0,60}\))?[ ,] ?)?(?:rank=(?P<ray_rank>\d{1,6}),? )?"
    rb"(?:node_rank=\d{1,6},? )?pid=(?P<ray_pid>\d{0,10})(?:, ip=(?P<ray_ip>[0-9A-Fa-f.:]{1,45}))?(?:, \w{1,20}=[\w-]{1,64}){0,4}\) ?"
    rb"|\((?:raylet|autoscaler|gcs_server)(?:, ip=(?P<raylet_ip>[0-9A-Fa-f.:]{1,45}))?[^)\n]{0,60}\) ?"
    rb"|(?P<open>\[(?:[A-Z]{4,8}\|[\w./-]{1,60}:\d{1,6}\] |NeMo [A-Z] )?)?"
    rb"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) )?(?P<stamp>" + STAMP + rb")"
    rb"|: "
    + _THEN_RANK  # a host whose name was lost
    + rb"|[a-z][\w.-]{0,40}/\d{1,4} "
    + _THEN_RANK  # torchx: role and replica
    + rb"|(?P<stern>[a-z][a-z0-9.-]{0,80}) [a-z][\w-]{0,40} "
    + _THEN_RANK  # stern: pod and container
    + rb"|(?P<pals_host>(?=[\w-]{0,40}\d)[a-z][\w-]{0,40}(?:\.[\w-]{1,40}){2,8}) (?P<pals>\d{1,6}): "  # mpiexec --label
    rb"|(?P<host_of>(?=[\w.-]{0,62}\d[\w.-]{0,30}rank|localhost)[a-z][\w.-]{0,62}?)[._/-]rank[_-]?(?P<host_rank>\d{1,6})(?:: | {1,30}\| )"
    rb"|[a-z][\w-]{0,80}\.\d{1,4}\.[a-z0-9]{7,30}@[\w.-]{1,64} {1,30}\| ?"  # a task of a Docker service
    rb"|slurm(?:step)?d-(?P<slurmd>[A-Za-z][\w.-]{0,62}): "
    rb"|(?P<host>(?!" + _NO_HOST + rb")[a-z][a-z0-9.-]{0,62}-(?:[a-z]{0,8}\d{1,6}|[a-z])(?:-[a-z0-9]{1,10})?"
    rb"|(?:node|host|nid|worker|master|gpu|dgx|hgx|compute|cn)[a-z0-9.-]{0,40}\d{1,6}[a-z]?"
    rb"|(?:\d{1,3}\.){3}\d{1,3})(?:: | {1,30}\| )"
)
_OF_DIMENSION = lazy_compile(rb"'\w{1,30}': (\d{1,6})/(\d{1,6})")  # of `trainer{'hosts': 1/2, 'gpus': 3/8}`
# the groups of a rank, which takes precedence over a task's number before it, and of such numbers
_RANKS = ("rank", "group_rank", "bare_rank", "key_rank", "env_rank", "composer", "letter", "host_rank")
_TASKS = ("mpi", "srun", "process", "lane", "prepended", "pals", "jax_key", "in_parentheses", "actor")
_PLAIN_TAIL = lazy_compile(
    rb"(?:\]:? ?| - | \| |: |[ \t]|\Z|(?=[\r\n]))"
    rb"(?:std(?:out|err) [FP](?: |\Z)"
    rb"|(?:\[[0-9a-f]{8}\]|[0-9a-f]{8})(?: \[rank=(?P<rank>\d{1,6})\])?(?: \[[A-Z]{4,12}\])? \|\|(?: |\Z)"  # Determined: container
    rb"|(?P<host>[\w.-]{1,64}) (?:kernel|[\w./-]{1,40}\[(?P<pid>\d{1,8})\]): ?)?"
)
# the kernel's own lines name no host: these are followed by a driver or a device
_OF_KERNEL = lazy_compile(rb"\]:? ?|[ \t]|")
_SYSLOG_TAIL = lazy_compile(
    rb"\]? ?(?:(?P<host>[\w.-]{1,64}) (?:[\w./@-]{0,32}\brank[_.-]?(?P<rank>\d{1,6})(?:\[\d{1,8}\])?|[\w./@-]{1,40}(?:\[(?P<pid>\d{1,8})\])?): ?)?"
)
# the rest of a header of RFC 5424: time, host, program, process, kind of message, and data that may name the rank
_RFC5424 = lazy_compile(
    rb"(?P<time>\S{10,40}) (?:-|(?P<host>[\w.:-]{1,64})) \S{1,48} (?:(?P<pid>\d{1,9})|\S{1,64}) \S{1,32} "
    rb"(?:-|\[(?:[^\]\n]{0,200}? rank=\"(?P<rank>\d{1,6})\")?[^\]\n]{0,300}\])(?: |\Z|(?=[\r\n]))"
)
_BRACKET_TAIL = lazy_compile(rb"(?:[^\]\n]{0,120}[ _]rank[:= ]?(?P<rank>\d{1,6})(?=[ \]]))?[^\]\n]{0,160}\]:? ?")
_HF_TAIL = lazy_compile(rb" >> ?")
# The commonest start of a line, which `_PIECE` would match as `stamp` with nothing after the fraction; read without its other forms.
_ISO_START = lazy_compile(
    rb"(\[)?((?:19|20)\d\d-\d\d-\d\d)[ T]((?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d)[.,](\d{1,9})(?=\]| - | [^APUG+-])"
)


def peel(line: bytes, year: int | None = None, *, behind_bar: bool = True) -> Prefix:
    """Remove the prefixes of a line, left to right: at most 8, within 512 bytes.

    `year` applies to timestamps without one; without it, such a timestamp is removed but yields no time. `behind_bar`:
    a progress bar that is before the prefixes is removed, too.
    """
    return _peeled(line[: 3 * MAX_BYTES], year, behind_bar)


@lru_cache(maxsize=1024)
def _peeled(line: bytes, year: int | None, behind_bar: bool) -> Prefix:
    """See `peel`. Cached: in a storm, several readers and their windows ask for the same line."""
    found = _NOTHING
    if behind_bar and b"it" in line and (b"it/s" in line or b"s/it" in line):
        bar = _BAR.match(line, 0, 2 * MAX_BYTES)
        found = Prefix(bar.end()) if bar else _NOTHING
    limit = min(len(line), found.end + MAX_BYTES)
    kernel, pieces = False, MAX_PREFIXES
    if found.end == 0 and (start := _ISO_START.match(line, 0, limit)) is not None:
        found = _after_iso_start(start, line, limit)
        if found.end == 0:
            return found
        kernel, pieces = b" kernel:" in line[start.end() : found.end], MAX_PREFIXES - 1
    for _ in range(pieces):
        match = _PIECE.match(line, found.end, limit) if _GATE.match(line, found.end, limit) else None
        if match is None or (kernel and match["host"]):
            break
        if match["group_rank"] and b".cpp:" in line[: found.end]:  # c10d counts ranks within a process group
            break
        after = _take(found, match, line, year, limit)
        if after.end == found.end:  # a timestamp inside other text: its time counts, the text stays
            return after
        kernel = kernel or _of_kernel(match, line[match.end() : after.end])
        found = after
    return found


@lru_cache(maxsize=8)
def peel_head(head: bytes) -> Prefix:
    """Remove the prefixes within the first HEAD bytes of a line. Cached: several readers ask for the same line."""
    return peel(head, behind_bar=False)


def _after_iso_start(match: re.Match[bytes], line: bytes, limit: int) -> Prefix:
    """Return the prefix that `_take_stamp` would."""
    opened, date, clock, fraction = match.groups()
    second = _second(date, clock)
    time = None if second is None else second + int(fraction) / 10 ** len(fraction)
    tail = _PLAIN_TAIL.match(line, match.end(), limit)
    if tail is None or (opened and b"]" not in tail[0]):
        return Prefix(time=time)
    if tail.lastindex is None:
        return Prefix(tail.end(), None, None, None, None, time)
    rank, host, pid = tail.groups()
    return Prefix(tail.end(), int(rank) if rank else None, None, _text(host), int(pid) if pid else None, time)


@lru_cache(maxsize=64)
def _second(date: bytes, clock: bytes) -> float | None:
    """Return a second since the epoch, None if there is no such day. Cached: many lines are of the same second."""
    midnight = midnight_of(int(date[:4]), int(date[5:7]), int(date[8:]))
    return None if midnight is None else float(midnight + int(clock[:2]) * 3600 + int(clock[3:5]) * 60 + int(clock[6:]))


def _of_kernel(match: re.Match[bytes], tail: bytes) -> bool:
    """Whether a kernel message follows, in which a driver's name looks like a host's."""
    return match["dmesg"] is not None or (match["stamp"] is not None and (b" kernel:" in tail or _is_dmesg(match)))


def _is_dmesg(match: re.Match[bytes]) -> bool:
    """Whether a timestamp is that of `dmesg -T`: in brackets, with the year last."""
    return match["stamp"] is not None and match["open"] == b"[" and match["name_y"] is not None


def _take(found: Prefix, match: re.Match[bytes], line: bytes, year: int | None, limit: int) -> Prefix:
    if match["stamp"]:
        return _take_stamp(found, match, line, year, limit)
    if match["syslog"]:
        return _take_rfc5424(found, match.end(), line, limit)
    rank, local, node, pid = found.rank, found.local_rank, found.node, found.pid
    if told := next(filter(None, match.group(*_RANKS)), None):
        rank, node = int(told.rpartition(b"=")[2]), _text(match["of_rank"] or match["host_of"]) or node
        pid = int(match["composer_pid"]) if match["composer_pid"] else pid
    elif told := match["local"] or match["local_rank"] or match["no_role"]:
        local = int(told)
    elif match["tee"]:  # a custom tee around torchrun: [host:local rank]
        local, node = int(match["tee_local"]), _text(match["tee"])
    elif match["ray_pid"]:
        pid = int(match["ray_pid"])
        node = _text(match["ray_ip"]) or node
        told = match["worker_rank"] or match["ray_rank"]
        rank = int(told) if told and rank is None else rank
    elif match["raylet_ip"]:
        node = _text(match["raylet_ip"])
    elif task := next(filter(None, match.group(*_TASKS)), None):
        rank = _number(task) if rank is None else rank
        node, pid = (
            _text(match["mpi_host"] or match["mpi_at"] or match["pals_host"]) or node,
            int(match["mpi_pid"]) if match["mpi_pid"] else pid,
        )
    elif match["epoch"]:
        return Prefix(match.end(), rank, local, node, pid, float(match["epoch"]))
    else:
        node = (
            _text(match["host"] or match["pod"] or match["slurmd"] or match["stern"] or match["bracket_host"]) or node
        )
    return Prefix(match.end(), rank, local, node, pid, found.time)


def _number(task: bytes) -> int | None:
    """Return the number of a task, or that of a Monarch actor in its mesh: its place along each dimension is behind its name."""
    told = task.rpartition(b"=")[2]
    if told.isdigit() and len(told) < 7:
        return int(told)
    number = None
    for place, size in _OF_DIMENSION.findall(task.rpartition(b"{")[2]):
        number = (number or 0) * int(size) + int(place)
    return number


def _take_rfc5424(found: Prefix, start: int, line: bytes, limit: int) -> Prefix:
    header = _RFC5424.match(line, start, limit)
    if header is None:
        return Prefix(start, *found[1:])
    time, host, pid, rank = header.groups()
    return Prefix(
        header.end(),
        int(rank) if rank and found.rank is None else found.rank,
        found.local_rank,
        _text(host) or found.node,
        int(pid) if pid else found.pid,
        find_time(time),
    )


def _take_stamp(found: Prefix, match: re.Match[bytes], line: bytes, year: int | None, limit: int) -> Prefix:
    time = stamp_time(match, year)
    if time is None:
        time = found.time
    tail = _tail_form(match).match(line, match.end(), limit)
    if tail is None or (match["open"] == b"[" and b"]" not in tail[0]):
        return Prefix(found.end, found.rank, found.local_rank, found.node, found.pid, time)
    if tail.lastindex is None:
        return Prefix(tail.end(), found.rank, found.local_rank, found.node, found.pid, time)
    said = tail.groupdict()
    host, pid, rank = said.get("host"), said.get("pid"), said.get("rank")
    return Prefix(
        tail.end(),
        int(rank) if rank else found.rank,
        found.local_rank,
        _text(host) or found.node,
        int(pid) if pid else found.pid,
        time,
    )


def _tail_form(match: re.Match[bytes]) -> re.Pattern[bytes]:
    opened = match["open"] or b""
    if opened.startswith(b"[NeMo") or is_glog(match):
        return _BRACKET_TAIL
    if opened.endswith(b"] "):
        return _HF_TAIL
    if _is_dmesg(match):
        return _OF_KERNEL
    if match["name_m"]:
        return _SYSLOG_TAIL
    return _PLAIN_TAIL


def _text(raw: bytes | None) -> str | None:
    return raw.decode("utf-8", "replace") if raw else None
