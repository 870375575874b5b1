"""Words of the decisive line that any rule's sentences can use: the other end of a connection, how it failed, a path, memory.

Captures of the rule take precedence. Only what the line states is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from kb.diagnosis.context.error_names import of_error
from kb.diagnosis.context.named_words import listed, message_names, message_shapes
from kb.diagnosis.context.package_names import package_of
from kb.facts.patterns.signals import Signal
from kb.parsers.logs.progress.quantities import memory_of
from kb.regex.lazy import lazy_compile

_END = lazy_compile(
    r"\((?P<host>[\w.-]{1,120}), (?P<port>\d{2,5})\)|\bto (?:address |host |bind to )?\[?(?P<host2>[\w.:-]{1,80}?)\]?:(?P<port2>\d{2,5})\b"
    r"|\bhost=[\"'](?P<host3>[\w.-]{1,120})[\"'], port=(?P<port3>\d{2,5})"
)
_PORT = lazy_compile(r"\bport[\"'=:\[( ]{1,4}(\d{2,5})\b")
_ANY_HOST = frozenset({"::", "0.0.0.0", "*"})  # noqa: S104 - compared, not bound to
_WORKER_IP = lazy_compile(r"\b(?:Worker IP address:|ip[:=]|at IP address) ?((?:\d{1,3}\.){3}\d{1,3})")
_WORKER_PID = lazy_compile(r"\b(?:Worker PID|pid)[:=] ?(\d{1,9})\b")
_ENDED = lazy_compile(r"\bWorker IP address: (\S{3,45}) Worker port: \d{1,6} Worker PID: (\d{1,9})\b")
_WORKER_CLASS = lazy_compile(
    r"\bclass_name: ([A-Za-z_][\w.]{0,80})|\bray::([A-Za-z_]\w{0,80})\.\w|\(([A-Za-z_]\w{0,80}) pid=\d"
)
_PATH = lazy_compile(
    r"[\"'\u2018](/[^\"'\u2019\n]{1,300})[\"'\u2019]|\[Errno \d{1,3}\] [^:'\"\n]{3,80}: b?[\"']([^\"'\n]{1,300})[\"']"
    r"|(?:^|[\s:=])(/[\w./@%+=-]{2,200}): (?:\w[\w ]{0,40}: )?[Nn]o space left"
)
_MISSING = lazy_compile(
    r"does not appear to have (?:a file|files) named ([\w./-]{1,120}\w)"
    r"|(?:No such file or directory|Is a directory|[Nn]ot found|do(?:es)? not exist|doesn't exist)(?: at)?[:( ]{1,3}b?(?:[\"']([^\"'\n]{1,200})[\"']|([./~][\w./~@%+=-]{1,200}))"
    r"|[\"']([^\"'\n]{1,200})[\"'] (?:is |was )?(?:not found|does not exist|doesn't exist)"
    r"|(?<![\w\"'])([.~]?/[\w./~@%+=-]{1,200}) (?:is |was )?(?:not found|does not exist|doesn't exist|: No such file)"
)
_NOT_SERVED = lazy_compile(
    r"\b404\b[^\n]{0,160}?(?:\b[uU][rR][lL]:? .?|\bGET |\bPOST |\bHEAD )(https?://[\w./%:@+-]{1,300}\w)"
)
_TEMPORARY = lazy_compile(r"(?:^|/)tmp[a-z0-9_]{8}/")  # as Python's tempfile names them
_DEVICE = lazy_compile(
    r"\b(?P<address>(?:[0-9a-fA-F]{4}|[0-9a-fA-F]{8}):[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.\d)?)\b|\bGPU[ -]?(?P<number>\d{1,2})\b"
    r"|(?:\bdevice ordinal[: ]{1,2}|\b(?:cuda|hip|npu|xpu):)(?P<ordinal>\d{1,2})\b"
    r"|\bhabanalabs (?P<gaudi>hl\d{1,2})\b|(?<![\w:])(?P<bus>[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.\d) (?:VGA compatible|3D|Display|Processing)\b"
)
_SERVICE = lazy_compile(
    r"\bhttps?://(?:[^/@\s\"']{1,80}@)?([\w.-]{1,120}(?::\d{1,5})?)|\bhost=[\"']([\w.-]{1,120})[\"'], port="
)
_LOOPBACK = lazy_compile(r"(?i)(?:localhost(?:\.localdomain)?|127(?:\.\d{1,3}){3})(?::\d{1,5})?")
_REPOSITORY = lazy_compile(
    r"\bhttps?://huggingface\.co/(?:api/)?(?:datasets/|models/|spaces/)?([\w.-]{1,80}/[\w.-]{1,80}?)(?=/|[.\s\"')]|$)"
    r"|\b(?:repo|model|dataset) [\"']?([\w.-]{1,80}/[\w.-]{1,80}\w)[\"']? is (?:gated|restricted)"
)
_NAMED = (
    ("path", _PATH),
    ("worker_ip", _WORKER_IP),
    ("worker_pid", _WORKER_PID),
    ("worker_class", _WORKER_CLASS),
    ("service", _SERVICE),
    ("repository", _REPOSITORY),
    ("url", _NOT_SERVED),
)
_WAYS = ("name", "no_route", "refused", "timed_out", "tls", "broken")  # the first of those that are stated counts
_CONNECTION = lazy_compile(
    r"(?i)(?P<name>name resolution|name or service not known|getaddrinfo|nodename nor servname|could not translate host)"
    r"|(?P<no_route>\[Errno (?:101|113)\]|network is unreachable|no route to\b)"
    r"|(?P<refused>\[Errno 111\]|connection refused)|(?P<timed_out>\[Errno 110\]|timed? ?out)|(?P<tls>\bssl|sslerror|certificate)"
    r"|(?P<broken>reset by peer|connection aborted|remote ?disconnected|incomplete ?read|broken pipe|eof occurred|closed connection)"
)
_SIZE = r"[\d.]{1,9} ?(?:[KMGT]i?B|bytes)"
_MEMORY = lazy_compile(
    rf"[Tt]ried to allocate (?P<asked>{_SIZE})|(?P<size>{_SIZE}) total capacity|total capac[a-z]{{0,3}} of (?P<size2>{_SIZE})"
    rf"|(?P<free>{_SIZE}) (?:is )?free|available memory is only (?P<free2>{_SIZE})|\bthis process has (?P<used>{_SIZE}) memory in use"
    rf"|(?P<allocated>{_SIZE}) already allocated|(?P<reserved>{_SIZE}) reserved in total by PyTorch|(?P<held>{_SIZE}) is allocated by PyTorch"
    rf"|(?P<cap>{_SIZE}) allowed\b|(?P<unused>{_SIZE}) is reserved by PyTorch but unallocated"
)
_NUMBERED = lazy_compile(rf"\bProcess (?:\d{{1,9}} )?has (?P<used>{_SIZE}) memory in use")
_SAID = lazy_compile(
    r"Assertion `(?P<asserted>[^`\n]{3,200})['`] failed"
    r"|\b[A-Z]\w{0,60}(?:Error|Exception|Failure)(?:\([\w. ]{1,60}\))?: (?P<raised>\S[^\n]{2,400})"
    r"|\berror: (?P<printed>(?:unrecognized|argument|the following|ambiguous|invalid|no such option)\b[^\n]{2,400})"
)
# of a message about shapes: two lists, products or counts
_SIZES = lazy_compile(
    r"[\[(]\d{1,12}(?:, ?\d{0,12}){0,12}[\])]|\b\d{1,9}x\d{1,9}\b|\b(?:size|length|shape|dim(?:ension)?)(?: of)? \(?\d{1,12}|\bgot \d{1,12}"
)
_PASSED_ON = lazy_compile(r"Caught \w{1,80} in (?:replica|DataLoader worker|pin memory thread)")
_RAISES = lazy_compile(r"\s{0,80}raise [\w.]{1,120}\(")
_SOURCE = 400  # bytes from a `raise` in a traceback to the exception's own line
_LEADS_ON = (":", ",", "(", "[", "{", "=", "\\")  # ends of a line of a message that another one continues
_SHORT = 160  # characters of a message within a sentence
_UNITS = {"b": 1 / 1073741824, "K": 1 / 1048576, "M": 1 / 1024, "G": 1.0, "T": 1024.0}
_PID_DIGITS = 8  # hexadecimal digits of a process id
_DEVICES = 4  # devices that are named
_CONTEXT = 1.5  # GiB that a process may hold besides what PyTorch allocates, at most
_SHARE = 0.05  # of the memory of a process: what is reserved and unused is worth an allocator setting
_MOST = 0.5  # of the device: if so much lies outside this process, that explains the failure
_OTHERS = 1.0  # GiB that the driver may hold besides what the processes report
_BESIDES = (
    4.0  # GiB that the context, collective and kernel libraries of a process may hold besides PyTorch's allocator
)


def of_lines(signals: Sequence[Signal], asked: AbstractSet[str]) -> Mapping[str, str]:
    """Return those of the words that are asked for and that the line or the message of the first signal states, by name.

    Of devices, all that any signal names.
    """
    first = signals[0]
    text = f"{first.line}\n{first.captures.get('message', '')}"[:4000]
    found: dict[str, str] = {}
    if asked & {"to_host", "to_port"}:
        found["to_host"], found["to_port"] = _end(text)
    for name, shown in _NAMED:
        if name in asked and (stated := shown.findall(first.line) or shown.findall(text)):
            found[name] = max(stated[-1]) if name == "path" else _first(stated[0])  # of a copy, the target
    if "endpoint" in asked and (services := _SERVICE.findall(first.line) or _SERVICE.findall(text)):
        found["endpoint"] = "loopback" if _LOOPBACK.fullmatch(_first(services[0])) else ""
    if "sender_uid" in asked:
        found["sender_uid"] = _sender(first.captures.get("address", ""))
    for name, stated_by in (
        ("connection", _connection),
        ("memory_of", memory_of),
        ("free", _free),
        ("package", _package),
        ("missing", missing_in),
        ("temp", _temporary),
        ("sizes", _sizes),
    ):
        if name in asked:
            found[name] = stated_by(text)
    if asked & {"memory", "unused", "foreign", "cap", "holder"}:
        found |= _memory(signals)
    if "device_name" in asked:
        found["device_name"] = _devices(signals)
    return {**found, **_of_messages(signals, asked)}


def _of_messages(signals: Sequence[Signal], asked: AbstractSet[str]) -> Mapping[str, str]:
    """Return what the message of an exception says, and what it names as absent."""
    found: dict[str, str] = {}
    if asked & {"absent", "absent_name", "absent_from"}:
        raised = ((item.captures.get("type", ""), item.captures.get("message", "")) for item in _raised(signals))
        found |= next(filter(None, (of_error(kind, message) for kind, message in raised)), {})
    if "says" in asked:
        found["says"] = next(filter(None, map(_said, _raised(signals))), "")
    for name, read in (("named", message_names), ("shapes", message_shapes)):
        if name in asked:
            texts = (_message(item) or (item.line if name == "shapes" else "") for item in _raised(signals))
            found[name] = next(filter(None, map(read, texts)), "")
    return found


def _first(groups: str | tuple[str, ...]) -> str:
    return groups if isinstance(groups, str) else max(groups)


def with_end(words: Mapping[str, str], others: Iterable[Signal]) -> Mapping[str, str]:
    """Return the words with the other end of the connection that other lines state, if they agree, where the first states none."""
    if words.get("to_port", "-"):
        return words
    ends = {_end(signal.line[:4000]) for signal in others} - {("", "")}
    return {**words, **dict(zip(("to_host", "to_port"), ends.pop(), strict=True))} if len(ends) == 1 else words


def with_worker(words: Mapping[str, str], others: Iterable[Signal], asked: AbstractSet[str]) -> Mapping[str, str]:
    """Return the words with the process that ended as the daemon of its node tells it, where the first line names none and all that tell agree."""
    if "worker_pid" not in asked or "worker_pid" in words:
        return words
    told = {ended.groups() for signal in others if (ended := _ENDED.search(signal.line[:4000]))}
    return {**words, **dict(zip(("worker_ip", "worker_pid"), told.pop(), strict=True))} if len(told) == 1 else words


def _connection(text: str) -> str:
    """Return the way in which a connection failed; empty if none is stated."""
    stated = {match.lastgroup for match in _CONNECTION.finditer(text)}
    return next((way for way in _WAYS if way in stated), "")


def _package(text: str) -> str:
    """Return the package that a message names as missing or too old; empty without one."""
    return package_of([text]) or ""


def missing_in(text: str) -> str:
    """Return what a message names as missing; empty without it."""
    named = _MISSING.search(text)
    return next(filter(None, named.groups()), "") if named is not None else ""


def _temporary(text: str) -> str:
    """Return "yes" if what a message names as missing lies in a folder that a program made for itself."""
    return "yes" if _TEMPORARY.search(missing_in(text)) else ""


def _sizes(text: str) -> str:
    """Return "yes" if a message states at least two different sizes."""
    return "yes" if len({stated[0] for stated in _SIZES.finditer(text)}) > 1 else ""


def _free(text: str) -> str:
    """Return the first free amount of memory that is stated; empty without one."""
    amounts = (match["free"] or match["free2"] for match in _MEMORY.finditer(text))
    return next((free for free in amounts if free and _gib(free) is not None), "")


def _device(text: str) -> str:
    """Return the GPU that a text names first, as it names it; empty if it names none."""
    stated = _DEVICE.search(text)
    if stated is None:
        return ""
    if stated["gaudi"]:
        return f"Gaudi {stated['gaudi']}"
    if stated["bus"]:  # as lspci lists it
        return f"GPU {stated['bus']}"
    return (
        f"GPU {stated['ordinal']} as its process counts them" if stated["ordinal"] else f"GPU {stated[1] or stated[2]}"
    )


def _devices(signals: Iterable[Signal]) -> str:
    """Return the devices that the lines of a fault name, the first few by name; empty without any."""
    names = dict.fromkeys(
        filter(None, (_device(f"{item.line}\n{item.captures.get('message', '')}"[:4000]) for item in signals))
    )
    shown, left = list(names)[:_DEVICES], len(names) - _DEVICES
    return f"{', '.join(shown)} and {left} more" if left > 0 else listed(shown)


def _raised(signals: Sequence[Signal]) -> list[Signal]:
    """Return the signals that may say what failed: the first, or those of what it only passes on or raises."""
    first = signals[0]
    passes = _PASSED_ON.match(first.captures.get("message", ""))
    after = sorted((item for item in signals if item.stream == first.stream), key=lambda item: item.offset)
    after = [item for item in after if item.offset > first.offset]
    if passes is not None:  # the exception of a helper process or thread
        kind = first.captures.get("type")
        return [*[item for item in after if item.captures.get("type") == kind][:1], first]
    if _RAISES.match(first.line):  # the exception's own line follows its source
        return [item for item in after if item.offset - first.offset < _SOURCE][:1]
    return [first]


def _said(first: Signal) -> str:
    """Return what the exception or the check of a line says, on one line and cut at a word; empty if it says nothing."""
    words = " ".join(_own_lines(_message(first)).split())
    if len(words) > _SHORT:
        return f"{words[:_SHORT].rpartition(' ')[0] or words[:_SHORT]} ..."
    return words.rstrip(".:;, ") if len(words) > 2 else ""


def _own_lines(message: str) -> str:
    """Return the lines of a message that are surely its own: the first, and further ones as long as one leads to the next.

    A line leads on if it ends with a colon, a comma or an open bracket, or an indented line is the next or the one after.
    Others may be what the program printed at its end.
    """
    lines = message.strip().split("\n")
    indented = [line[:1] in (" ", "\t") for line in lines]
    kept = 1
    while kept < len(lines) and (lines[kept - 1].rstrip().endswith(_LEADS_ON) or any(indented[kept : kept + 2])):
        kept += 1
    return "\n".join(lines[:kept])


def _message(first: Signal) -> str:
    """Return the message of an exception or a check, whole; empty if its line has none."""
    stated = _SAID.search(first.line)
    return first.captures.get("message") or (next(filter(None, stated.groups())) if stated is not None else "")


def _sender(address: str) -> str:
    """Return the user id of the process that sent a signal; empty if unknown.

    What a signal handler prints as an address holds it above the process id, 32 bits each (siginfo_t is a union).
    """
    return str(int(address[:-8], 16)) if len(address) > _PID_DIGITS else ""


def _end(text: str) -> tuple[str, str]:
    found = _END.search(text)
    if found is not None:
        host, end = (part for part in found.groups() if part)
        return "" if host in _ANY_HOST else host, end
    port = _PORT.search(text)
    return "", port[1] if port else ""


def _memory(signals: Sequence[Signal]) -> Mapping[str, str]:
    """Return what the first message of a fault with figures of device memory shows.

    "capped" (the process may use no more than a part), "fragmented", "others" (processes), "pieces" (as much is free, but not
    in one piece), or "full" of this process; and who holds it, this process alone ("own") or "others" as well, where the message counts all that a process holds.
    """
    texts = (f"{item.line}\n{item.captures.get('message', '')}"[:4000] for item in signals)
    return next(filter(None, map(_memory_in, texts)), {})


def _memory_in(text: str) -> Mapping[str, str]:
    sizes: dict[str, float] = {}
    for found in _MEMORY.finditer(text):
        for name, value in found.groupdict().items():
            if value and (gib := _gib(value)) is not None:
                sizes.setdefault(name.rstrip("2"), gib)
    if not {"asked", "free"} <= sizes.keys():
        return {}
    asked, free = sizes["asked"], sizes["free"]
    reserved = sizes.get("reserved")  # as releases before 2.1 state it: without what lies outside the allocator
    held = sizes.get("used", _of_own_number(text, sizes)) if reserved is None else reserved
    unused = sizes.get("unused") if reserved is None else max(0.0, reserved - sizes.get("allocated", reserved))
    foreign = None if held is None or "size" not in sizes else sizes["size"] - free - held
    whole = foreign is not None and (reserved is None or foreign <= _OTHERS)  # else the rest can be of either
    holder = {"holder": "others" if (foreign or 0.0) > _OTHERS else "own"} if whole else {}
    if "cap" in sizes and free > asked:
        return {**holder, "memory": "capped", "cap": f"{sizes['cap']:.2f} GiB"}
    if foreign is not None and foreign > (_OTHERS if reserved is None else _BESIDES):
        holder["foreign"] = f"{foreign:.2f} GiB"
    mostly_own = (foreign or 0.0) <= _MOST * sizes.get("size", 0.0)
    if (
        mostly_own
        and unused is not None
        and free + unused > asked
        and unused >= _SHARE * (held or sizes.get("size", 0.0))
    ):
        return {**holder, "memory": "fragmented", "unused": f"{unused:.2f} GiB"}
    if "foreign" in holder:
        return {**holder, "memory": "others"}
    if free >= asked:
        return {**holder, "memory": "pieces"}
    return {**holder, "memory": "full"} if whole else {}


def _of_own_number(text: str, sizes: Mapping[str, float]) -> float | None:
    """Return what this process holds if a message names it by its number: it has room for what PyTorch holds, and little more.

    In a container, PyTorch cannot tell its own number from those of others.
    """
    needed = sizes.get("held", 0.0) + sizes.get("unused", 0.0)
    rooms = {gib for item in _NUMBERED.finditer(text) if (gib := _gib(item["used"])) is not None and gib >= needed}
    fitting = [gib for gib in rooms if gib - needed <= _CONTEXT] or list(rooms)
    return fitting[0] if len(fitting) == 1 else None


def _gib(size: str) -> float | None:
    number, unit = size[: -len(size.lstrip("0123456789. "))], size.lstrip("0123456789. ")[0]
    try:
        return float(number) * _UNITS[unit]
    except ValueError:
        return None
