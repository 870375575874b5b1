"""Values of Slurm's JSON as older and newer data parsers write them: numbers, times, states, exit codes."""

from __future__ import annotations

import re
from typing import Any

from kb.parsers.schedulers.jsondocs import integer, mapping, string


def pair(job: int | None, number: int | None) -> tuple[int, int] | None:
    """Return job and number if both are set."""
    return (job, number) if job and number is not None else None


def number_of(value: Any) -> int | None:
    """Return a plain number, or that of `{set, infinite, number}`; None if it is not set or infinite."""
    if isinstance(value, dict):
        return (
            integer(value.get("number"))
            if value.get("set") is not False and value.get("infinite") is not True
            else None
        )
    return integer(value)


def time_of(value: Any) -> float | None:
    """Return a time; None for Slurm's 0, which means not yet."""
    number = number_of(value)
    return float(number) if number is not None and 0 < number < 1 << 33 else None


def states_of(value: Any) -> tuple[str, ...]:
    """Return the states from a word, several in one string, or a list."""
    if isinstance(value, list):
        return tuple(word.upper()[:40] for word in value[:16] if isinstance(word, str))
    # `CANCELLED by 1000`
    return tuple(re.split(r"[\s,+|]+", string(value, 200).upper().partition(" BY ")[0].strip())) if value else ()


def exit_of(value: Any) -> tuple[int | None, int | None]:
    """Return the exit code and the signal; no signal is None. A plain number is the controller's wait status."""
    code = mapping(value)
    if not code:
        status = number_of(value)
        return (None, None) if status is None or status < 0 else (status >> 8 & 0xFF, status & 0x7F or None)
    signal = mapping(code.get("signal"))
    number = number_of(signal.get("id")) if "id" in signal else number_of(signal.get("signal_id"))
    return number_of(code.get("return_code")), number or None
