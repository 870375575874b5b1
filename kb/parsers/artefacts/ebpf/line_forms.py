"""The line formats of the programs, and the values in them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any, Final

import msgspec

from kb.parsers.schedulers.jsondocs import mapping


def decode_object(text: str) -> Mapping[str, Any]:
    """Decode a JSON object; an empty mapping for anything else."""
    try:
        return mapping(msgspec.json.decode(text.encode("utf-8", "replace")))
    except (msgspec.MsgspecError, RecursionError):
        return {}


# --- line by line ------------------------------------------------------------------------------------------------------

TICK_LINE = re.compile(r"^tick (\d{1,12}) (\d{1,20})\s*$")
OUR_BANNER = re.compile(r"^signalbox (\w{1,20}) \d{1,3}\s*$")
DSTATE_LINE = re.compile(r"^dstate (\d{1,9}) (\d{1,9}) (\d{1,18}) us ([^\n]{0,64})\n(.{0,8000})", re.DOTALL)
TEXT_MAP = re.compile(r"^@(\w{0,60})(?:\[([^\n]{0,300})\])?:(?: (-?\d{1,20}|[^\n]{1,200}))?$")
TEXT_BUCKET = re.compile(r"^[\[(](-?\d{1,18}[KMGT]?|\.\.\.)(?:, (-?\d{1,18}[KMGT]?|\.\.\.))?[\])] {1,20}(\d{1,18}) \|")
BCC_HEAD = re.compile(r"^ {1,16}([nmu]?secs) {1,16}: count")
BCC_BUCKET = re.compile(r"^ {0,16}(\d{1,19}) -> (\d{1,19}) {1,16}: (\d{1,18}) ")
FOLDED = re.compile(r"^([^;\n]{1,64})((?:;[^;\n]{0,512}){1,300}) (\d{1,18})$")
STACK_FRAME = re.compile(r"^ {4,16}(?:(?:0x)?[0-9a-f]{8,16} )?([A-Za-z_\[<~.$][^\n]{0,300}?)(?:\+0x[0-9a-f]{1,8})?$")
STACK_WHO = re.compile(r"^ {4}- {1,20}(\S[^\n]{0,40}?) \((\d{1,9})\)\s*$")
STACK_TIME = re.compile(r"^ {8}(\d{1,18})\s*$")
BIOSNOOP = re.compile(
    r"^(\d{1,9}\.\d{1,9}) {1,12}(\S[^\n]{0,16}?) {1,12}(\d{1,9}) {1,12}(\S{1,32}) {1,12}([RW]) {1,12}(\S{1,20}) {1,12}(\d{1,12}) {1,12}(\d{1,9}\.\d{1,6})\s*$"
)
BANNER = re.compile(
    r"^(?: {4,16}--?\s*$|Tracing |Attach(?:ing|ed) |Press |Detaching|WARNING|ERROR|TIME\(s\)|pid = |tid = |\s*$)"
)
BCC_UNITS: Final[Mapping[str, str]] = {"usecs": "us", "nsecs": "ns", "msecs": "ms", "secs": "s"}
_SUFFIX: Final[Mapping[str, int]] = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
UNENDED_MAPS: Final[Mapping[str, tuple[str, str]]] = {
    "blocked_ns": ("d_state", ""),
    "in_call_ns": ("stuck_call", "in_call"),
    "in_collective_ns": ("stuck_call", "collective"),
    "in_backward_ns": ("stuck_call", "backward"),
    "in_forward_ns": ("stuck_call", "forward"),
}


def finite_number(value: Any) -> float | None:
    """Return a number as float; None for booleans, text and out-of-range values."""
    right = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e19
    return float(value) if right else None


def is_stats(value: Mapping[str, Any]) -> bool:
    """Whether a map's value is what bpftrace's stats() prints."""
    return value.keys() >= {"count", "average"}


def tick_period(ticks: Sequence[float]) -> float:
    """Return the median time between ticks in seconds; 0 for fewer than two ticks."""
    return median(later - earlier for earlier, later in pairwise(ticks)) if len(ticks) > 1 else 0.0


def parse_pid(text: str) -> int | None:
    """Parse a process or thread id; None if the text is not one."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def unit_of_map(name: str) -> str:
    """Return the unit in which a map counts, from the end of its name."""
    return next((unit for unit in ("us", "ns", "ms") if name.endswith(f"_{unit}")), "count")


def function_of_probe(text: str) -> str:
    """Return the function of a probe's name: `uretprobe:/lib/x.so:f` is f."""
    return text.rpartition(":")[2][:200]


def bucket_bound(text: str) -> float:
    """Parse a bound of a text histogram, such as `4K`; `...` is 0."""
    if text == "...":
        return 0.0
    return float(text[:-1]) * _SUFFIX[text[-1]] if text[-1] in _SUFFIX else float(text)
