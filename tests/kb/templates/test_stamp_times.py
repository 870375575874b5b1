"""Times read from a known place are those that `find_time` reads from the whole line."""

import pytest

from kb.parsers.logs.timestamps import find_time
from kb.templates.stamp_times import StampTimes

LINES = [
    b"2026-11-03 04:10:01,456 [rank 5] step 18002",
    b"2026-11-03 04:10:59.999999 [rank 5] step 18003",
    b"2026-11-03 04:10:07 no fraction",
    b"2026-11-03T04:10:07Z a zone",
    b"2026-11-03T04:10:07.25+05:30 another, in the same minute of the clock",
    b"2026-11-03T04:10:08.25 +0100 one more",
    b"11/03/2026 04:10:01 AM in the morning",
    b"11/03/2026 04:10:01 PM in the afternoon",
    b"I1103 04:10:01.000001 glog names no year",
    b"Nov  3 04:10:01 host1 trainer[7]: syslog",
    b"host1: 2026-11-03 04:10:61 no such second",
]


def minutes_of(line: bytes) -> tuple[int, int]:
    """The place of the line's time down to its minutes."""
    end = line.index(b":10") + 3
    return line.index(b"1"), end


@pytest.mark.parametrize("year", [None, 2026])
def test_times_are_those_of_whole_lines(year: int | None) -> None:
    """Zones, halves of the day and dates without a year included."""
    times = StampTimes(year)
    for line in [*LINES, *LINES]:  # the second time the minute is known
        assert times.time(line, minutes_of(line)) == find_time(line, year), line


def test_seconds_of_another_clock_in_the_line_do_not_count() -> None:
    """A shipper's time comes first; the place is that of the program's own."""
    times = StampTimes(2026)
    for second in range(20, 24):
        line = b"2026-11-03T04:12:%dZ {2026-11-03 04:10:05 step 7}" % second
        assert times.time(line, (line.index(b"{") + 1, line.index(b"04:10") + 5)) == find_time(line)


def test_lines_without_a_place_have_no_time() -> None:
    """Wherever else a time may stand."""
    assert StampTimes(2026).time(b"2026-11-03 04:10:01 step", None) is None
