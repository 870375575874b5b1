"""The store of incidents, on real SQLite files."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest

from bot.render.report_json import dumps
from bot.runtime import paths
from bot.store.database import SCHEMA_VERSION, StoreError
from bot.store.incidents import Incident, IncidentFilter, IncidentStore, remember
from bot.store.packed_reports import REPLAY_BYTES
from tests.support.bot_samples import FALLEN_GPU, HEALTHY, UNKNOWN
from tests.support.common.incident_samples import NOW, put
from tests.support.paths import ROOT


def test_an_incident_is_kept_with_what_people_look_for(url):
    """The latest list shows job, verdict, first fault and rule of the added incident, with its time in UTC."""
    with IncidentStore(url) as store:
        put(store, FALLEN_GPU, bundle="night-run", now=NOW.astimezone(timezone(timedelta(hours=5))))
        actual = store.list()

    expected = Incident(
        id=1,
        created_at=NOW,
        report_id="b7f3a91c02d85e64",
        fingerprint="4ac1",
        rulebook_digest="sha256:5f0c",
        job_id="47110",
        job_name="llm-70b",
        bundle="night-run",
        verdict="fault",
        phase="failed",
        fault="gpu_fell_off_bus",
        rule="xid-catalogue",
        summary=FALLEN_GPU.summary,
        owner="ana",
        gpus=64,
        gpu_hours_lost=9.64,
        nodes=("gpu-017",),
    )
    assert (expected,) == actual
    assert actual[0].created_at.tzinfo == UTC


def test_report_and_replay_come_back_whole(url):
    """What was stored is there in another session, byte for byte."""
    with IncidentStore(url) as store:
        number = put(store, FALLEN_GPU, b"one\ntwo\n")
    with IncidentStore(url) as store:
        record = store.get(number)

    assert dumps(FALLEN_GPU) == record.report_json
    assert (record.replay, record.replay_size, record.replay_cut) == (b"one\ntwo\n", 8, False)


def test_a_report_without_diagnosis_has_no_fault(url):
    """Where nothing was diagnosed, fault and rule are empty."""
    with IncidentStore(url) as store:
        put(store, UNKNOWN)
        (incident,) = store.list()

    assert (incident.fault, incident.rule, incident.verdict) == (None, None, "no_match")


def test_the_same_report_is_the_same_incident(url):
    """Added again, even later and with other text, a report gives its first number and changes nothing."""
    with IncidentStore(url) as store:
        first = put(store, FALLEN_GPU, b"text\n")
        other = put(store, HEALTHY)
        again = put(store, FALLEN_GPU, b"else\n", now=NOW + timedelta(days=1))

        assert (first, first) == (again, store.list()[1].id)
        assert other != first
        assert store.get(first).replay == b"text\n"


def test_the_list_is_newest_first_and_bounded(url):
    """The list is ordered by time and limited, and `since` leaves out what is older."""
    with IncidentStore(url) as store:
        for hour in (2, 0, 3, 1):
            put(store, replace(HEALTHY, id=f"r{hour}"), now=NOW + timedelta(hours=hour))

        assert [item.report_id for item in store.list()] == ["r3", "r2", "r1", "r0"]
        assert [item.report_id for item in store.list(limit=2)] == ["r3", "r2"]
        assert [item.report_id for item in store.list(wanted=IncidentFilter(since=NOW + timedelta(hours=2)))] == [
            "r3",
            "r2",
        ]
        assert store.list(limit=0) == ()


@pytest.mark.parametrize("number", [2, 0, -1, 2**70])
def test_what_is_not_there_is_none(url, number):
    """A number that no incident has gives nothing, however odd it is."""
    with IncidentStore(url) as store:
        put(store, HEALTHY)

        assert store.get(number) is None


def test_a_long_replay_is_cut_at_a_line_end_and_says_so(url):
    """Of a long text whole lines up to 256 KB are kept, with the size that it had."""
    text = b"".join(b"line %06d of the run\n" % number for number in range(40_000))
    with IncidentStore(url) as store:
        record = store.get(put(store, HEALTHY, text))

    assert (True, len(text)) == (record.replay_cut, record.replay_size)
    assert record.replay.endswith(b"run\n")
    assert text.startswith(record.replay)
    assert REPLAY_BYTES - 23 < len(record.replay) <= REPLAY_BYTES


def test_a_replay_of_one_endless_line_is_cut_too(url):
    """Without line ends, the text is cut at 256 KB."""
    with IncidentStore(url) as store:
        record = store.get(put(store, HEALTHY, b"x" * (REPLAY_BYTES + 5)))

    assert (record.replay_cut, len(record.replay)) == (True, REPLAY_BYTES)


def test_names_that_are_no_unicode_are_kept_readable(url):
    """File names with undecodable bytes and texts with NUL do not stop the store."""
    with IncidentStore(url) as store:
        put(store, replace(HEALTHY, summary="nul \0 here"), bundle="run-\udcff")
        (incident,) = store.list()

    assert (incident.bundle, incident.summary) == ("run-?", "nul ? here")


def test_a_time_without_a_zone_is_refused(url):
    """A naive time would be another time elsewhere."""
    with IncidentStore(url) as store, pytest.raises(StoreError, match="zone"):
        put(store, HEALTHY, now=datetime(2026, 3, 2, 8, 30))  # noqa: DTZ001


@pytest.mark.slow  # bot/store/test_unsaved.py, bot/queue
def test_two_processes_add_at_once(tmp_path, url):
    """Two processes that open a new database at the same time both get their reports in; a shared one is in once."""
    go = tmp_path / "go"
    code = f"""
import sys, time
from dataclasses import replace
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})
from tests.support.bot_samples import HEALTHY
from tests.support.common.incident_samples import NOW, put
from bot.store.incidents import IncidentStore
print("ready", flush=True)
while not Path({str(go)!r}).exists():
    time.sleep(0.001)
with IncidentStore({url!r}) as store:
    for number in range(15):
        put(store, replace(HEALTHY, id=f"{{sys.argv[1]}}-{{number}}"))
        put(store, replace(HEALTHY, id=f"both-{{number}}"))
"""
    workers = [
        subprocess.Popen([sys.executable, "-c", code, name], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for name in "ab"
    ]
    for worker in workers:
        assert worker.stdout.readline() == "ready\n"
    go.touch()
    errors = [worker.communicate(timeout=60)[1] for worker in workers]

    with IncidentStore(url) as store:
        kept = {incident.report_id for incident in store.list(limit=100)}
        count = len(store.list(limit=100))
    assert errors == ["", ""]
    assert kept == {f"{name}-{number}" for name in ("a", "b", "both") for number in range(15)}
    assert len(kept) == count


def test_the_file_is_private_and_in_wal_mode(tmp_path, url):
    """The folder and the file are for this user alone, readers do not block writers, and the version is written down."""
    with IncidentStore(url):
        pass
    path = tmp_path / "state" / "signalbox.db"

    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("SELECT version FROM schema_version").fetchall() == [(SCHEMA_VERSION,)]
    assert (path.parent.stat().st_mode & 0o777, path.stat().st_mode & 0o777) == (0o700, 0o600)


def test_a_store_that_works_gives_no_warning(url):
    """`remember` keeps the report and says nothing."""
    assert remember(HEALTHY, b"text\n", "b", url=url, now=NOW) is None
    with IncidentStore(url) as store:
        assert [item.bundle for item in store.list()] == ["b"]


def _in_the_way(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    return f"sqlite:///{tmp_path}/file/signalbox.db"


def _no_database(tmp_path):
    (tmp_path / "junk.db").write_bytes(b"this is no database at all\n" * 400)
    return f"sqlite:///{tmp_path}/junk.db"


@pytest.mark.parametrize(
    "place",
    [
        _in_the_way,
        _no_database,
        lambda tmp_path: f"sqlite:///{tmp_path}",
        lambda _: "sqlite:////proc/signalbox/signalbox.db",
        lambda _: "no url at all",
        lambda _: "nosuchdatabase://u:" + "geheim@host/db",
    ],
)
def test_a_store_that_cannot_be_used_is_one_line(tmp_path, place):
    """Whatever is wrong with the place, `remember` gives one line of warning, without any password."""
    warning = remember(HEALTHY, b"", None, url=place(tmp_path), now=NOW)

    assert "not stored" in warning
    assert "\n" not in warning
    assert "geheim" not in warning


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    """A read-only folder gives a warning; nothing is raised."""
    folder = tmp_path / "shut"
    folder.mkdir(mode=0o500)
    # As root no folder is shut, so the child steps down once it has imported all that it needs.
    code = (
        f"import os, sys; sys.path.insert(0, {str(ROOT)!r});"
        "from tests.support.bot_samples import HEALTHY; from bot.store.incidents import remember;"
        "os.geteuid() or os.setuid(65534);"
        f"print(remember(HEALTHY, b'', None, url='sqlite:///{folder}/s.db'))"
    )
    probe = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    assert "not stored" in probe.stdout
    assert probe.stdout.count("\n") == 1


def test_a_locked_store_is_one_line(tmp_path, url, monkeypatch):
    """A database that another holds gives a warning after a bounded wait."""
    with IncidentStore(url):
        pass
    monkeypatch.setattr("bot.store.database._BUSY_SECONDS", 0.05)
    with closing(sqlite3.connect(tmp_path / "state" / "signalbox.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")

        assert "locked" in remember(HEALTHY, b"", None, url=url, now=NOW)


def test_the_folders_are_moved_by_the_environment(tmp_path, monkeypatch):
    """State and cache go where the environment says; an empty value counts as none; the database can be elsewhere."""
    monkeypatch.delenv("SIGNALBOX_DATABASE", raising=False)
    monkeypatch.setenv("SIGNALBOX_STATE", str(tmp_path / "s"))
    monkeypatch.setenv("SIGNALBOX_CACHE", "~/cache-of-signalbox")
    monkeypatch.setenv("HOME", str(tmp_path))

    assert (tmp_path / "s", tmp_path / "cache-of-signalbox") == (paths.state_dir(), paths.cache_dir())
    assert paths.database_url() == f"sqlite:///{tmp_path}/s/signalbox.db"

    monkeypatch.setenv("SIGNALBOX_STATE", "")
    monkeypatch.delenv("SIGNALBOX_CACHE")
    monkeypatch.setenv("SIGNALBOX_DATABASE", "sqlite://")

    assert paths.state_dir().name == "signalbox"
    assert paths.cache_dir().name == "signalbox"
    assert paths.database_url() == "sqlite://"
