"""Templates of messages, and the forms in which loggers print them.

A template holds `@{name}`, a value of the case, or something drawn: `@{int:1-9}`, `@{real:0.1-2}`, `@{hex:12}`,
`@{of:a|b|c}`. Times are seconds since 1970, UTC; a form prints them in its node's zone.
"""

# ruff: noqa: PLR0917 - what is said has a place, a time, a voice and words, always in this order

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from random import Random
from typing import Any

LEVELS = ("error", "warning", "info", "debug")
_FIELD = re.compile(r"@\{(\w+)(?::([^}]*))?\}")


def fill(text: str, values: Mapping[str, Any], chance: Random) -> str:
    """The text of a template.

    Raises:
        KeyError: it names a value that there is not.
    """

    def one(match: re.Match[str]) -> str:
        name, spec = match[1], match[2]
        if spec is None:
            return str(values[name])
        if name == "int":
            low, high = spec.split("-")
            return str(chance.randint(int(low), int(high)))
        if name == "real":
            low, high = spec.split("-")
            return f"{chance.uniform(float(low), float(high)):.2f}"
        if name == "hex":
            return f"{chance.getrandbits(4 * int(spec)):0{spec}x}"
        if name == "of":
            return chance.choice(spec.split("|"))
        return format(values[name], spec)

    return _FIELD.sub(one, text)


@lru_cache(maxsize=65536)
def _second(second: int, zone: int) -> tuple[str, ...]:
    at = datetime.fromtimestamp(second, UTC) + timedelta(hours=zone)
    return (
        at.strftime("%Y-%m-%d %H:%M:%S"), at.strftime("%m/%d/%Y %H:%M:%S"), at.strftime("%m%d %H:%M:%S"),
        at.strftime("%b %d %H:%M:%S"), at.strftime("%Y-%m-%dT%H:%M:%S"), at.strftime("%Y-%m-%d-%H:%M:%S"),
        at.strftime("%Y-%m-%d_%H:%M:%S"), at.strftime("%m-%d %H:%M:%S"), at.strftime("%Y/%m/%d %H:%M:%S"),
    )  # fmt: skip


def plain(at: float, zone: int) -> str:
    """2026-11-03 04:12:55."""
    return _second(int(at), zone)[0]


def millis(at: float, zone: int, mark: str = ",") -> str:
    """2026-11-03 04:12:55,120."""
    return f"{_second(int(at), zone)[0]}{mark}{int(at % 1 * 1000):03d}"


def american(at: float, zone: int) -> str:
    """11/03/2026 04:12:55."""
    return _second(int(at), zone)[1]


def google(at: float, zone: int, digits: int = 6) -> str:
    """1103 04:12:55.120934."""
    return f"{_second(int(at), zone)[2]}.{int(at % 1 * 1e9):09d}"[: 14 + digits]


def syslog(at: float, zone: int) -> str:
    """Nov 03 04:12:55."""
    return _second(int(at), zone)[3]


def iso(at: float, zone: int, digits: int = 3) -> str:
    """2026-11-03T04:12:55.120Z, or with the offset of the zone."""
    tail = "Z" if zone == 0 else f"{zone:+03d}:00"
    return f"{_second(int(at), zone)[4]}.{f'{int(at % 1 * 1e9):09d}'[:digits]}{tail}"


def dashed(at: float, zone: int) -> str:
    """2026-11-03-04:12:55.120.934, as CANN prints it."""
    digits = f"{int(at % 1 * 1e6):06d}"
    return f"{_second(int(at), zone)[5]}.{digits[:3]}.{digits[3:]}"


def underlined(at: float, zone: int) -> str:
    """2026-11-03_04:12:55."""
    return _second(int(at), zone)[6]


def short(at: float, zone: int) -> str:
    """11-03 04:12:55."""
    return _second(int(at), zone)[7]


def slashed(at: float, zone: int) -> str:
    """2026/11/03 04:12:55."""
    return _second(int(at), zone)[8]


_LONG = {"error": "ERROR", "warning": "WARNING", "info": "INFO", "debug": "DEBUG"}
_LETTER = {"error": "E", "warning": "W", "info": "I", "debug": "D"}


def logged(  # noqa: C901, PLR0911, PLR0912 - a table
    form: str, level: str, at: float, zone: int, who: Mapping[str, Any], module: str, text: str
) -> str:
    """A line of a Python logger in one of the `FORMS`. `who`: host, rank, local, pid."""
    name, stem = _LONG[level], module.rsplit(".", 1)[-1]
    line = 20 + sum(map(ord, stem)) % 700
    match form:
        case "deepspeed":
            return f"[{millis(at, zone)}] [{name}] [{stem}.py:{line}:{_verb(stem)}] {text}"
        case "hf":
            return f"[{name}|{stem}.py:{line}] {millis(at, zone)} >> {text}"
        case "accelerate":
            return f"{american(at, zone)} - {name} - {module} - {text}"
        case "titan":
            return f"[titan] {millis(at, zone)} - root - {name} - {text}"
        case "nemo":
            return f"[NeMo {_LETTER[level]} {plain(at, zone)} {stem}:{line}] {text}"
        case "swift":
            return f"[{name}:swift] {text}"
        case "megatron":
            return f"{name}:{module}:{text}" if level != "info" else f"[{millis(at, zone, '.')}] {text}"
        case "mindspeed":
            return f"{plain(at, zone)} - {stem}[{who['pid']}] - {name} - rank{who['rank']}: {text}"
        case "plain":
            return f"{millis(at, zone)} {name} [{who['host']}/r{who['rank']}] {module}: {text}"
        case "loguru":
            return f"{millis(at, zone, '.')} | {name:<8} | {module}:{_verb(stem)}:{line} - {text}"
        case "json":
            told = {
                "ts": iso(at, zone),
                "lvl": name.lower(),
                "rank": who["rank"],
                "src": f"{stem}.py:{line}",
                "msg": text,
            }
            return json.dumps(told, ensure_ascii=False)
        case "logfmt":
            return f"t={iso(at, zone)} lvl={'warn' if level == 'warning' else level} host={who['host']} rank={who['rank']} mod={stem} msg={json.dumps(text)}"
        case "bracket":
            return f"[{short(at, zone)}][{stem}][{name[0]}] {text}"
        case _:
            raise ValueError(form)


def _verb(stem: str) -> str:
    return ("run", "step", "_write", "log_dist", "forward", "poll", "__init__")[sum(map(ord, stem)) % 7]


def agent_line(form: str, level: str, at: float, zone: int, host: str, text: str) -> str:
    """A line of the platform's own program on a node."""
    match form:
        case "klog":
            return f"{_LETTER[level]}{google(at, zone)}       1 {('health', 'sync', 'probe')[len(text) % 3]}.go:{40 + len(text)}] {text}"
        case "json":
            return json.dumps(
                {
                    "level": "warn" if level == "warning" else level,
                    "time": iso(at, 0),
                    "node": host,
                    "component": "node-agent",
                    "msg": text,
                }
            )
        case "logfmt":
            return f'time="{iso(at, zone)}" level={level} msg={json.dumps(text)} component=agent'
        case _:
            return f"{slashed(at, zone)} {level.upper()[:4]} nodeagent: {text}"


def kernel_line(form: str, at: float, zone: int, host: str, boot: float, text: str) -> str:
    """A line of the kernel as its log, the journal or `dmesg -T` shows it."""
    if form == "seconds":
        return f"[{at - boot:12.6f}] {text}"
    if form == "human":
        when = datetime.fromtimestamp(int(at), UTC) + timedelta(hours=zone)
        return f"[{when.strftime('%a %b %d %H:%M:%S %Y')}] {text}"
    return f"{syslog(at, zone)} {host} kernel: {text}"


def glog_line(level: str, at: float, zone: int, rank: int, place: str, text: str) -> str:
    """A line of libtorch."""
    return f"[rank{rank}]:[{_LETTER[level]}{google(at, zone, 9)} {place}] {text}"


def elastic_line(level: str, at: float, zone: int, pid: int, place: str, text: str) -> str:
    """A line of torchrun."""
    return f"{_LETTER[level]}{google(at, zone, 6)} {pid} torch/distributed/elastic/{place}] {text}"


def nccl_line(level: str, at: float, zone: int, who: Mapping[str, Any], place: str, text: str) -> str:
    """A line of NCCL; what is wrong comes as WARN with its place, everything else as INFO or TRACE."""
    head = f"{who['host']}:{who['pid']}:{who['pid'] + 212 + who['local']} [{who['local']}] "
    if level == "warning":
        return f"\n[{plain(at, zone)}] {head}{place} NCCL WARN {text}"
    return f"{head}NCCL {'INFO' if level == 'info' else 'TRACE'} {text}"


def cann_line(level: str, at: float, zone: int, who: Mapping[str, Any], module: str, text: str) -> str:
    """A line of CANN (HCCL, RUNTIME, ASCENDCL ...)."""
    return f"[{_LONG[level]}] {module}({who['pid']},python3):{dashed(at, zone)} {text}"
