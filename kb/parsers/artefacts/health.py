"""Results of hardware checks as files: `dcgmi diag` (text, JSON), nccl-tests, ibstat, `nvidia-smi -q`, gpud's JSON.

Only failed checks become an `Event` of kind `health_check`: `reason` is what failed (`memory`, `nvlink`, `pcie`,
`thermal`, `power`, `recovery`, `port`, `bandwidth`, `wrong_results`, `other`), the message is the tool's own. A check
that passed, was skipped or only warned yields no event.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from kb.model import Event, Gap, Resource, Scalar
from kb.parsers.schedulers.jsondocs import MAX_BYTES, mapping, objects, string

MAX_EVENTS: Final = 1000  # of one file
MESSAGE: Final = 500
_CLASSES: Final = (
    ("memory", r"(?i)ecc|remap|retired? page|page retire|memory|\bdbe\b|xid (?:48|63|64|94|95)\b"),
    ("nvlink", r"(?i)nv-?link|nv-?switch|fabric"),
    ("pcie", r"(?i)pci"),
    ("thermal", r"(?i)therm|temperature|slowdown"),
    ("power", r"(?i)power"),
    ("port", r"(?i)infiniband|\bib\b|mlx|\bport\b"),
)


def read_health(
    data: bytes, source: str, node: str | None = None, time: float | None = None
) -> tuple[tuple[Event, ...] | None, tuple[Gap, ...]]:
    """Read one results file. None if no known tool wrote it: it may still be a log. Never raises."""
    if len(data) > MAX_BYTES:
        return None, (Gap("health-too-large", source, f"more than {MAX_BYTES >> 20} MiB", asked=str(len(data))),)
    found = _found(data)
    if found is None:
        return None, ()
    events: list[Event] = []
    for check, reason, gpu, message in found:
        if len(events) == MAX_EVENTS:
            return tuple(events), (
                Gap("health-too-many", source, f"more than {MAX_EVENTS} failures", got=str(MAX_EVENTS)),
            )
        fields: dict[str, Scalar] = {"check": check, "gpu": gpu}
        text = " ".join(f"{check}: {message}".split())[:MESSAGE]
        events.append(Event(source, time, "health_check", reason, text, Resource(node=node, gpu=gpu or None), fields))
    return tuple(events), ()


_Failure = tuple[str, str, str, str]  # check, class, GPU, words


def _found(data: bytes) -> Iterator[_Failure] | None:
    if data.lstrip()[:1] in (b"{", b"["):
        try:
            document = msgspec.json.decode(data)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return None
        return _of_json(document)
    text = data.decode("utf-8", "replace")
    for mark, read in _TEXTS:
        if re.search(mark, text):
            return read(text)
    return None


def _class(*words: str) -> str:
    """Return the subject of a check, from the first known word in its name."""
    return next((name for word in words for name, means in _CLASSES if re.search(means, word)), "other")


# -- JSON ----------------------------------------------------------------------------------------------------------------


def _of_json(document: Any) -> Iterator[_Failure] | None:
    top = mapping(document)
    diagnostic = mapping(top.get("DCGM Diagnostic") or top.get("DCGM GPU Diagnostic"))
    if diagnostic:
        return _dcgm_json(diagnostic)
    if isinstance(document, list) and any("component" in entry and "states" in entry for entry in objects(document, 4)):
        return _gpud(document)
    return None


def _dcgm_json(diagnostic: Mapping[str, Any]) -> Iterator[_Failure]:
    for category in objects(diagnostic.get("test_categories"), 64):
        for test in objects(category.get("tests"), 256):
            name = string(test.get("name"), 80) or "test"
            for result in objects(test.get("results"), 4096):
                if string(result.get("status"), 20).lower() not in {"fail", "failed"}:
                    continue
                gpu = string(result.get("gpu_id", result.get("gpu_ids", result.get("entity_id"))), 60)
                warned = result.get("warnings")
                lines = [string(w.get("warning"), MESSAGE) for w in objects(warned, 16)]
                words = "; ".join(filter(None, lines)) or string(warned, MESSAGE) or "failed"
                yield f"dcgmi diag {name}", _class(words, name), gpu, words


def _gpud(told: Any) -> Iterator[_Failure]:
    for part in objects(told, 512):
        name = string(part.get("component"), 80)
        for state in objects(part.get("states"), 256):
            health = string(state.get("health"), 20).lower()
            if health in {"unhealthy", "degraded"}:
                words = string(state.get("reason"), MESSAGE) or string(state.get("error"), MESSAGE) or health
                yield f"gpud {name}", _class(name, words), "", words


# -- text ----------------------------------------------------------------------------------------------------------------

_DIAG_ROW = re.compile(r"(?m)^\| {0,4}(\S[^|\n]{0,60}?) {0,60}\| (Fail|FAIL)\b([^|\n]{0,200})\|?")
_DIAG_MORE = re.compile(r"^\|[^|\n]{0,80}\|[ ]?([^|\n]{1,300}?)[ ]*\|?$")


def _dcgm_text(text: str) -> Iterator[_Failure]:
    for row in _DIAG_ROW.finditer(text):
        words = []
        for line in text[row.end() : row.end() + 8192].split("\n")[1:16]:
            more = _DIAG_MORE.match(line)
            if more is None or re.match(r"\| {0,4}\S[^|]{0,60}\| (?:Pass|Fail|Skip)", line):
                break
            words.append(more[1].strip())
        said = " ".join(filter(None, [row[3].strip(" -"), *words])) or "failed"
        gpu = re.search(r"GPUs?:? ?(\d{1,3}(?:, ?\d{1,3}){0,15})", said)
        yield f"dcgmi diag {row[1]}", _class(said, row[1]), gpu[1] if gpu else "", said


def _nccl_tests(text: str) -> Iterator[_Failure]:
    wrong = re.search(r"(?m)^# Out of bounds values ?: (\d{1,12}) FAILED.*$", text)
    if wrong and int(wrong[1]):
        yield "nccl-tests", "wrong_results", "", wrong[0].strip("# ")
    failed = re.search(r"(?m)^\S{0,80} ?Test NCCL failure .{0,300}$|^.{0,80}: Test failure .{0,200}$", text)
    if failed:
        yield "nccl-tests", "bandwidth", "", failed[0]


_CA = re.compile(r"(?m)^CA '([\w.-]{1,40})'")
_PORT = re.compile(r"(?m)^[ \t]{1,8}Port (\d{1,3}):[ \t]*$")
_TOLD = re.compile(r"(?m)^[ \t]{1,16}(State|Physical state|Rate|SM lid): {0,4}(\S[^\n]{0,60})$")


def _ibstat(text: str) -> Iterator[_Failure]:
    for name, part in _sections(_CA, text):
        for number, port in _sections(_PORT, part):
            fields = dict(_TOLD.findall(port))
            state, physical = fields.get("State", "Active"), fields.get("Physical state", "Disabled")
            # a port that is disabled, or never met a subnet manager, is part of the node's design
            if state != "Active" and physical != "Disabled" and fields.get("SM lid") != "0":
                words = (
                    f"{name} port {number}: State: {state}, Physical state: {physical}, Rate: {fields.get('Rate', '?')}"
                )
                yield "ibstat", "port", "", words


def _sections(head: re.Pattern[str], text: str) -> Iterator[tuple[str, str]]:
    """Yield the sections of a text that begin with a header line, each with the name in its header."""
    marks = list(head.finditer(text))[:256]
    for mark, end in zip(marks, [*(item.start() for item in marks[1:]), len(text)], strict=True):
        yield mark[1], text[mark.end() : end].replace("\r", "")


_GPU = re.compile(r"(?m)^GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)")
_SMI: Final = (
    ("memory", r"Remapping Failure Occurred\s+: Yes"),
    ("memory", r"(?:SRAM|DRAM) Uncorrectable\S*\s+: [1-9]\d{0,9}\b"),
    ("recovery", r"GPU Recovery Action\s+: (?:Reset|Reboot|GPU Reset|Node Reboot|Drain P2P|Drain and Reset)"),
    ("thermal", r"HW Thermal Slowdown\s+: Active"),
    ("power", r"HW Power Brake Slowdown\s+: Active"),
)


def _smi(text: str) -> Iterator[_Failure]:
    for name, part in _sections(_GPU, text):
        volatile = part.partition("Aggregate")[0]  # aggregate counts cover the GPU's whole life
        for reason, means in _SMI:
            found = re.search(means, volatile if "Uncorrectable" in means else part)
            if found:
                yield "nvidia-smi -q", reason, name, found[0]


_TEXTS: Final = (
    (r"(?m)^\| Diagnostic +\| Result|Successfully ran diagnostic for group", _dcgm_text),
    (r"(?m)^# nThread \d+|^# Out of bounds values|^# Avg bus bandwidth", _nccl_tests),
    (r"(?m)^CA '[\w.-]{1,40}'\s*$", _ibstat),
    (r"(?m)^=+NVSMI LOG=+", _smi),
)
