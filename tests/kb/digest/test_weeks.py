"""Weeks by the team's calendar, and when a digest is due."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kb.digest.weeks import LATE, DueDigest, Week, due, week_named, week_of
from kb.errors import UnreadableInput

BERLIN, LORD_HOWE, NEW_YORK = ZoneInfo("Europe/Berlin"), ZoneInfo("Australia/Lord_Howe"), ZoneInfo("America/New_York")
TIMES = st.datetimes(datetime(2000, 1, 1), datetime(2060, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
ZONES = st.sampled_from([BERLIN, LORD_HOWE, NEW_YORK, ZoneInfo("Asia/Kathmandu"), ZoneInfo("Pacific/Apia")])


@pytest.mark.parametrize(
    ("week", "zone", "hours"),
    [
        ("2026-W42", BERLIN, 168),
        ("2026-W43", BERLIN, 169),
        ("2026-W13", BERLIN, 167),
        ("2026-W44", NEW_YORK, 169),
        ("2026-W10", NEW_YORK, 167),
        ("2026-W14", LORD_HOWE, 168.5),
        ("2026-W40", LORD_HOWE, 167.5),
    ],
)
def test_a_week_is_as_long_as_the_clock_on_the_wall_says(week, zone, hours):
    """When clocks change a week has an hour more or less, in Lord Howe half an hour."""
    one = week_named(week)
    assert hours == (one.end(zone) - one.start(zone)) / 3600


def test_the_first_week_has_the_first_thursday():
    """ISO 8601: the first days of January may belong to the last week of the year before."""
    assert str(week_of(datetime(2027, 1, 3, 12, tzinfo=UTC), BERLIN)) == "2026-W53"
    assert str(week_of(datetime(2027, 1, 3, 23, 30, tzinfo=UTC), BERLIN)) == "2027-W01"
    assert Week(2026, 53).shifted(1) == Week(2027, 1)
    assert Week(2026, 53).monday == date(2026, 12, 28)


@pytest.mark.parametrize(
    "name", ["2025-W53", "2026-W00", "2026-W54", "W47", "2026-47", "", "2026-W4\uff17", "9999-W52"]
)
def test_what_is_no_week_is_reported(name):
    """A name that is none, or a week that the year does not have, is an error and no other week."""
    with pytest.raises(UnreadableInput):
        week_named(name)


@given(TIMES, ZONES)
def test_every_time_lies_in_its_week(at, zone):
    """Weeks follow each other without gap, and a name leads back to its week."""
    week = week_of(at, zone)
    assert week.start(zone) <= at.timestamp() < week.end(zone)
    assert week.end(zone) == week.shifted(1).start(zone)
    assert week_named(str(week)) == week


def test_due_on_monday_at_nine_by_the_clock_of_the_team():
    """Before and after the change of clocks nine is another hour in UTC."""
    summer, winter = datetime(2026, 10, 19, 7, tzinfo=UTC), datetime(2026, 10, 26, 8, tzinfo=UTC)
    assert due(summer, BERLIN) == DueDigest(Week(2026, 42), summer)
    assert due(winter, BERLIN) == DueDigest(Week(2026, 43), winter)
    assert due(winter - timedelta(seconds=1), BERLIN) is None


def test_an_hour_that_the_clocks_leave_out_comes_after():
    """On a Sunday in March the hour from two to three does not exist: it is due at three."""
    at = datetime(2026, 3, 29, 1, tzinfo=UTC)
    assert due(at, BERLIN, 7, 2) == DueDigest(Week(2026, 12), at)
    assert due(at - timedelta(seconds=1), BERLIN, 7, 2) is None


@given(TIMES, ZONES, st.integers(1, 7), st.integers(0, 23))
def test_late_up_to_three_days(now, zone, weekday, hour):
    """What is due is of the week before, not in the future, not older than three days; after an hour it is called late."""
    found = due(now, zone, weekday, hour)
    if found is None:
        return
    assert found.due <= now <= found.due + LATE
    assert found.late == (now - found.due > timedelta(hours=1))
    assert found.week == week_of(found.due, zone).shifted(-1)
    local = found.due.astimezone(zone)
    assert local.isoweekday() == weekday
    assert local.hour in (hour, (hour + 1) % 24)


@given(TIMES, ZONES, st.integers(1, 7), st.integers(0, 23))
def test_each_week_is_due_once(now, zone, weekday, hour):
    """In the seven days from any time on, something is due at some of its hours, and of at most two weeks."""
    seen = {
        found.week for step in range(0, 7 * 24, 3) if (found := due(now + timedelta(hours=step), zone, weekday, hour))
    }
    assert 1 <= len(seen) <= 2
