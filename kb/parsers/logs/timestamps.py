"""Timestamps of log lines: text in, seconds since the epoch out.

A timestamp without a zone is read as UTC (only the caller knows the zone of its source). A timestamp without a year
needs the caller's year. Bare hours and minutes (`[04:12:55]`) are not a timestamp.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache

from kb.regex.lazy import lazy_compile

HEAD = 128  # a timestamp is within this many bytes of a line's start

_MONTHS = (b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec")

# The date in nine formats, then the time. With a year of two digits, it comes first (`23-05-18`), as BasicSR logs it.
# `re` allows each group name only once; `_date` joins them again.
STAMP = (
    rb"(?:"
    rb"(?<!\d)(?P<iso_y>(?:19|20)\d\d)[-/](?P<iso_m>\d\d)[-/](?P<iso_d>\d\d)[T \t_-]"
    rb"|(?<![0-9])(?:(?<![A-Za-z])(?P<compact_l>[IWEFDC]))?(?P<compact_y>20\d\d)(?P<compact_m>\d\d)(?P<compact_d>\d\d)[-T_ ]"
    rb"|(?<![\d/-])(?P<us_m>\d\d?)/(?P<us_d>\d\d?)/(?P<us_y>20\d\d),? "
    rb"|(?<![\w/.:-])(?P<late_y>[12]\d)-(?P<late_m>0[1-9]|1[0-2])-(?P<late_d>0[1-9]|[12]\d|3[01]) "
    rb"|(?<![\w/.:-])(?P<dot_d>[0-3]\d)\.(?P<dot_m>[01]\d)\.(?P<dot_y>20\d\d),? "  # German and Russian: the day comes first
    rb"|(?<![\w/.:-])(?P<clf_d>[0-3]\d)[/-](?P<clf_m>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[/-](?P<clf_y>20\d\d)[ :T]"  # as web servers write it
    rb"|(?<![A-Za-z0-9])[IWEFDC](?P<glog_m>1[0-2]|0?[1-9])(?P<glog_d>[0-3]\d) "
    rb"|(?<![\d/-])(?P<short_m>\d\d)[-/](?P<short_d>\d\d) "
    rb"|(?<![A-Za-z])(?P<name_m>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) {1,2}(?P<name_d>\d\d?) "
    rb")"
    rb"(?P<hour>[01]?\d|2[0-3]):(?P<minute>[0-5]\d):(?P<second>[0-5]\d)(?!\d)"
    rb"(?:[.,](?P<fraction>\d{1,9}))?"
    rb"(?: (?P<half>[AP]M)\b)?"
    rb"(?P<zone>Z|(?: ?UTC| ?GMT)\b| ?[+-]\d\d:?\d\d(?![\d:]))?"
    rb"(?(name_m)(?:(?<=[0-9CT])(?: [A-Z]{3,4})? (?P<name_y>20\d\d)(?![\d-]))?)"  # after other dates it is a process
)
_STAMP = lazy_compile(STAMP)
# Seconds since the epoch, of the years 2017 to 2033. Other numbers of ten digits are counts, so a fraction or a key is needed.
EPOCH = (
    rb"(?:^[\[(]?|\"(?:ts|time|timestamp|@timestamp|t)\": ?\"?|(?<!\w)(?:ts|time|t)=\"?)(%s(?:\.\d{1,9})?)(?![\w.])"
    rb"|(?<![\w.+-])(%s\.\d{3,9})(?!\d)"
)
_EPOCH = lazy_compile(EPOCH % ((rb"(?:1[5-9]|20)\d{8}",) * 2))
_WITH_YEAR = tuple((f"{form}_y", f"{form}_m", f"{form}_d") for form in ("iso", "compact", "us", "late", "dot"))
_CLOCK = lazy_compile(rb":[0-5]\d:[0-5]\d")  # a quick test; most lines have none
_DATE_WIDTH = 24  # no date with its hour is longer


def find_time(text: bytes, year: int | None = None) -> float | None:
    """Return the first timestamp in the first 128 bytes, as seconds since the epoch.

    None if there is none, its date does not exist, or it has no year and `year` is not given.
    """
    clock = _CLOCK.search(text, 0, HEAD)
    match = None if clock is None else _STAMP.search(text, max(0, clock.start() - _DATE_WIDTH), HEAD)
    return _epoch_time(text) if match is None else stamp_time(match, year)


def _epoch_time(text: bytes) -> float | None:
    """Return a time that is written as seconds since the epoch, with a fraction, at the start or under a key of its own."""
    match = _EPOCH.search(text, 0, HEAD)
    return None if match is None else float(match[1] or match[2])


def states_zone(line: bytes) -> bool | None:
    """Whether a timestamp in the first 128 bytes of a line states its zone; None if there is no timestamp."""
    stamps = list(_stamps(line))
    return any(stamp["zone"] for stamp in stamps) if stamps else None


def _stamps(line: bytes) -> Iterator[re.Match[bytes]]:
    """Yield the timestamps in the first 128 bytes; each is looked for only where a clock's time is."""
    at = 0
    while clock := _CLOCK.search(line, at, HEAD):
        match = _STAMP.search(line, max(at, clock.start() - _DATE_WIDTH), HEAD)
        if match is None:
            return
        yield match
        at = match.end()


def stamp_time(match: re.Match[bytes], year: int | None = None) -> float | None:
    """Return the time of a match of `STAMP`."""
    date = _date(match, year)
    day = None if date is None else midnight_of(*date)
    if day is None:
        return None
    hours, minute, second, half, fraction, zone = match.group("hour", "minute", "second", "half", "fraction", "zone")
    hour = int(hours)
    if half:
        hour = hour % 12 + (12 if half == b"PM" else 0)
    stamp = float(day + hour * 3600 + int(minute) * 60 + int(second))
    return stamp + (int(fraction) / 10 ** len(fraction) if fraction else 0.0) - _zone_seconds(zone)


@lru_cache(maxsize=64)
def midnight_of(year: int, month: int, day: int) -> int | None:
    """Return the start of a day in seconds since the epoch, or None if there is none. Cached: logs have few days."""
    try:
        return int(datetime(year, month, day, tzinfo=UTC).timestamp())
    except ValueError:
        return None


def is_glog(match: re.Match[bytes]) -> bool:
    """Whether a match of `STAMP` is in glog's format, with a level letter before the date."""
    return match["glog_m"] is not None or match["compact_l"] is not None


def _date(match: re.Match[bytes], year: int | None) -> tuple[int, int, int] | None:
    for names in _WITH_YEAR:  # no generator: this runs for most lines that are read
        told, month, day = match.group(*names)
        if told:
            return int(told) + (2000 if len(told) < 3 else 0), int(month), int(day)
    if match["clf_y"]:
        return int(match["clf_y"]), _MONTHS.index(match["clf_m"]) + 1, int(match["clf_d"])
    if match["name_y"]:
        year = int(match["name_y"])
    if year is None:
        return None
    if match["name_m"]:
        return year, _MONTHS.index(match["name_m"]) + 1, int(match["name_d"])
    form = "glog" if match["glog_m"] else "short"
    return year, int(match[f"{form}_m"]), int(match[f"{form}_d"])


def _zone_seconds(zone: bytes | None) -> int:
    if not zone:
        return 0
    digits = zone.strip().replace(b":", b"")
    if len(digits) != 5 or digits[:1] not in b"+-":
        return 0
    seconds = int(digits[1:3]) * 3600 + int(digits[3:5]) * 60
    return -seconds if digits[:1] == b"-" else seconds
