"""`signalbox digest` and `signalbox demo --fill` as people run them."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from bot.digest.codec import loads
from kb.digest.weeks import week_of


def test_fill_then_read(signalbox):
    """An empty store is filled, says so, and gives a digest as text, numbers and page; the fill is the same each time."""
    filled = signalbox("demo", "--fill", "--days", "30")
    assert filled.status == 0
    assert b"made-up incidents over 30 days to the store" in filled.out
    told = signalbox("digest", "--zone", "Europe/Berlin")
    assert told.status == 0
    assert b"Time to recover" in told.out
    assert b"Sample data: these eight weeks contain " in told.out
    numbers = signalbox("digest", "--json", "--html", "week.html", "--zone", "Europe/Berlin")
    digest = loads(numbers.out)
    assert f"Failures of training jobs, week {digest.week}" in told.out.decode()
    assert digest.failures > 0
    assert (signalbox.cwd / "week.html").read_text("utf-8").startswith("<!doctype html>")
    listed = signalbox("incidents", "list", "--json")
    assert all(json.loads(line)["summary"].startswith("(Made up) ") for line in listed.out.splitlines())
    again = signalbox("demo", "--fill", "--days", "3")
    assert again.status == 0  # made-up ones may be added to made-up ones


def test_a_store_with_incidents_of_its_own_is_not_filled(signalbox):
    """Made-up incidents would spoil the figures of real ones."""
    (signalbox.cwd / "a.log").write_text("RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n" * 3)
    assert signalbox("diagnose", "--logs", "a.log", "--json").report["verdict"] == "fault"
    ran = signalbox("demo", "--fill")
    assert ran.status == 2
    assert "has real incidents" in ran.err
    assert b"Sample data" not in signalbox("digest").out


def test_what_is_wrong_is_reported_in_a_line(signalbox):
    """No such week, no such time zone."""
    week, zone = signalbox("digest", "--week", "2026-47"), signalbox("digest", "--zone", "Berlin")
    assert (week.status, zone.status) == (2, 2)
    assert "write it like 2026-W47" in week.err
    assert "Europe/Berlin" in zone.err


def test_an_empty_store_has_a_digest(signalbox):
    """It says that there was nothing."""
    ran = signalbox("digest", "--week", "2026-W47")
    assert ran.status == 0
    assert "No failures are known in 2026-W47: no jobs were diagnosed." in ran.out.decode()


def test_what_people_diagnose_from_files_is_counted_only_on_request(signalbox):
    """A manager's mail does not hold somebody's exercise; the page can go to a pipe."""
    (signalbox.cwd / "a.log").write_text("RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n" * 3)
    signalbox("diagnose", "--logs", "a.log")
    week = week_of(datetime.now(UTC), UTC)
    plain, whole = (signalbox("digest", "--json", "--week", str(week), *more) for more in ((), ("--by-hand",)))

    assert (loads(plain.out).failures, loads(whole.out).failures) == (0, 1)
    assert "1 failure diagnosed from files, not from a cluster: not counted. --by-hand counts it." in plain.err
    assert "by-hand" not in whole.err
    last = signalbox("digest", "--html", "-")
    assert last.out.startswith(b"<!doctype html>")
    assert f"`signalbox digest --week {week} --by-hand` counts it." in last.err
    assert not (signalbox.cwd / "-").exists()
