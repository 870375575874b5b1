"""The times of lines whose timestamp's place is known. Lines of one minute differ in their seconds only, so the rest is read once."""

from __future__ import annotations

import re

from kb.parsers.logs.timestamps import find_time
from kb.templates.structured_lines import Range

MOST = 10_000  # minutes that are remembered
_SECONDS = re.compile(rb":([0-5]\d)(?!\d)(?:[.,](\d{1,9}))?((?: [AP]M\b)?(?:Z|(?: ?UTC| ?GMT)\b| ?[+-]\d\d:?\d\d)?)")


class StampTimes:
    """Reads the times of a stream's lines. `year`: of timestamps without one."""

    def __init__(self, year: int | None) -> None:
        self._year = year
        self._minutes: dict[tuple[bytes, bytes], float | None] = {}  # None: the seconds there are not those of the time

    def time(self, line: bytes, stamp: Range | None) -> float | None:
        """Return a line's time in seconds since the epoch, as `find_time` does. `stamp`: the place of its timestamp down to its minutes."""
        if stamp is None:
            return None
        rest = _SECONDS.match(line, stamp[1])
        if rest is None:
            return find_time(line, self._year)
        second, fraction, zone = rest.groups()
        key = line[stamp[0] : stamp[1]], zone
        minute = self._minutes.get(key, -1.0)
        if minute == -1.0:
            minute = self._minute(line, int(second))
            if len(self._minutes) > MOST:
                self._minutes.clear()
            self._minutes[key] = minute
        if minute is None:
            return find_time(line, self._year)
        whole = minute + int(second)
        return whole + int(fraction) / 10 ** len(fraction) if fraction else whole

    def _minute(self, line: bytes, second: int) -> float | None:
        """When the minute of a line began, if the line's time has these seconds."""
        time = find_time(line, self._year)
        if time is None:
            return None
        minute, rest = divmod(time, 60)
        return minute * 60 if int(rest) == second else None
