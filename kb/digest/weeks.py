"""ISO weeks in a team's time zone, and when their digest is due. A week across a clock change has 167 or 169 hours."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo

from kb.errors import UnreadableInput

LATE = timedelta(days=3)  # how long after its time a digest is still sent
ON_TIME = timedelta(hours=1)
_NAME = re.compile(r"([0-9]{4})-?[Ww]([0-9]{1,2})\Z")


@dataclass(frozen=True, slots=True, order=True)
class Week:
    """A week by ISO 8601: it begins on Monday, and week 1 contains the year's first Thursday."""

    year: int
    number: int

    def __post_init__(self) -> None:
        try:
            date.fromisocalendar(self.year, self.number, 1)
            date.fromisocalendar(self.year, self.number, 7)
        except ValueError as error:
            raise UnreadableInput(f"there is no week {self.number} in {self.year}") from error

    def __str__(self) -> str:
        return f"{self.year}-W{self.number:02}"

    @property
    def monday(self) -> date:
        """Its first day."""
        return date.fromisocalendar(self.year, self.number, 1)

    def start(self, zone: tzinfo) -> float:
        """Monday 00:00 in the zone, seconds since the epoch."""
        monday = self.monday
        return datetime(monday.year, monday.month, monday.day, tzinfo=zone).timestamp()

    def end(self, zone: tzinfo) -> float:
        """The next Monday 00:00, which belongs to the following week."""
        return self.shifted(1).start(zone)

    def shifted(self, weeks: int) -> Week:
        """The week that many weeks later. Raises UnreadableInput at the ends of the calendar."""
        try:
            return _of(self.monday + timedelta(weeks=weeks))
        except OverflowError as error:
            raise UnreadableInput(f"there is no week {weeks} weeks after {self}") from error


@dataclass(frozen=True, slots=True)
class DueDigest:
    """A digest that is due: its week, since when it is due, and whether it is late."""

    week: Week
    due: datetime
    late: bool = False


def week_of(at: datetime, zone: tzinfo) -> Week:
    """The week that a time lies in, by the calendar of the zone."""
    return _of(at.astimezone(zone).date())


def week_named(name: str) -> Week:
    """The week with a name like 2026-W47.

    Raises:
        UnreadableInput: it is not such a name, or the year has no such week.
    """
    found = _NAME.match(name.strip()[:20])
    if found is None or not 1 < int(found[1]) < 9999:
        raise UnreadableInput(f"{name[:40]!r} is not a week: write it like 2026-W47")
    return Week(int(found[1]), int(found[2]))


def due(now: datetime, zone: tzinfo, weekday: int = 1, hour: int = 9) -> DueDigest | None:
    """The digest that is due now: of the last whole week, from its day and hour on, up to three days late.

    Args:
        now: A time with a zone.
        zone: The team's.
        weekday: 1 for Monday to 7 for Sunday.
        hour: 0 to 23 in local time. An hour that a clock change skips means the next one; of a repeated hour, the first.
    """
    today = now.astimezone(zone).date()
    for back in (0, 1):
        week = _of(today - timedelta(weeks=back))
        day = date.fromisocalendar(week.year, week.number, weekday)
        at = datetime(day.year, day.month, day.day, hour, tzinfo=zone).astimezone(UTC)
        if at <= now:
            return DueDigest(week.shifted(-1), at, now - at > ON_TIME) if now - at <= LATE else None
    return None


def _of(day: date) -> Week:
    year, number, _ = day.isocalendar()
    return Week(year, number)
