"""`signalbox store`, as people run it."""

from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner, Result

from bot.cli.command_line import command_line
from bot.collection.collect import CollectionMark, mark_of
from bot.render.report_json import dumps
from bot.runtime.paths import database_url, sqlite_file
from bot.store.incidents import IncidentStore
from tests.support.bot_samples import FALLEN_GPU
from tests.support.paths import DEMO

app = command_line()

OLD = datetime.now(UTC) - timedelta(days=20)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state folder, with an incident of twenty days ago and its bundle."""
    monkeypatch.setenv("SIGNALBOX_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("SIGNALBOX_CONFIG", "")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    monkeypatch.delenv("SIGNALBOX_DATABASE", raising=False)
    folder = tmp_path / "state" / "spool" / "default" / "run-01" / "run-1"
    shutil.copytree(DEMO, folder)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    mark = CollectionMark(OLD.timestamp(), (0.0, 1.0), size, {})
    mark_of(folder).write_bytes(msgspec.json.encode(mark))
    with IncidentStore(database_url()) as store:
        store.add(dumps(FALLEN_GPU), FALLEN_GPU, b"", str(folder), OLD)
    return tmp_path / "state"


def run(*words: str) -> Result:
    """Run it."""
    return CliRunner().invoke(app, ["store", *words])


def test_from_folder_to_pack_and_back(state: Path, tmp_path: Path) -> None:
    """Tidied, the bundle is packed; taken out, it is what it was, file by file."""
    done = run("tidy")
    assert done.exit_code == 0
    assert done.output.startswith("1 bundle packed, from ")
    assert not (state / "spool" / "default" / "run-01" / "run-1").exists()
    assert run("tidy").output == "Nothing to do.\n"
    done = run("unpack", "1", str(tmp_path / "out"))
    count = sum(path.is_file() for path in DEMO.rglob("*"))
    assert done.output == (
        f"{count} files unpacked. To diagnose again: `signalbox diagnose --bundle {tmp_path / 'out'}`.\n"
    )
    for path in DEMO.rglob("*"):
        if path.is_file():
            assert (tmp_path / "out" / path.relative_to(DEMO)).read_bytes() == path.read_bytes()
    again = run("unpack", "1", str(tmp_path / "out"))
    assert isinstance(again.exception, Exception)
    assert "not empty; choose a new folder" in str(again.exception)


def test_what_is_pinned_is_not_tidied(state: Path) -> None:
    """Pinned, the bundle stays a folder; unpinned, it ages."""
    folder = state / "spool" / "default" / "run-01" / "run-1"
    assert run("pin", "1").output == f"Incident 1 is pinned: nothing of it is removed; its evidence is in {folder}.\n"
    assert run("tidy").output == "Nothing to do.\n"
    done = run("unpack", "1", "/nowhere")
    assert done.exit_code == 2
    assert f"its evidence is in {folder}; `signalbox diagnose --bundle {folder}` reads it" in done.output
    told = json.loads(run("unpin", "1", "--json").output)
    assert told == {"incident": 1, "pinned": False, "evidence": "folder", "where": str(folder)}
    assert json.loads(run("tidy", "--json").output)["bundles"] == 1


@pytest.mark.parametrize("words", [("pin", "7"), ("unpin", "7"), ("unpack", "7", "/nowhere")])
def test_an_incident_that_is_not_there(state: Path, words: tuple[str, ...]) -> None:
    """The error says where to read the numbers."""
    assert state.exists()
    done = run(*words)
    assert done.exit_code == 2
    assert done.output == "signalbox: there is no incident 7; see `signalbox incidents list`\n"


def test_show_says_what_is_kept(state: Path) -> None:
    """Where, how much, and for how long; for people and as JSON."""
    told = json.loads(run("show", "--json").output)
    size = told.pop("bundle_bytes")
    assert size > 10_000
    assert told == {
        "database": f"sqlite:///{state}/signalbox.db",
        "incidents": 1,
        "open": 1,
        "pinned": 0,
        "packed": 0,
        "reports": 1,
        "spool": str(state / "spool"),
        "bundles": 1,
        "packs": str(state / "archive"),
        "pack_files": 0,
        "pack_bytes": 0,
        "days": {"hot": 14.0, "archive": 180.0, "reports": 730.0},
        "warnings": [],
    }
    text = run("show").output
    assert "1 incident, 1 not closed, 0 pinned; 1 report, kept for 730 days" in text
    assert "of at most 20 GiB a tenant; packed after 14 days" in text


def test_a_database_on_a_network_file_system_is_warned_of(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On stderr, by `store show`; the same by `serve`."""
    mounts = state.parent / "proc" / "self" / "mounts"
    mounts.parent.mkdir(parents=True)
    mounts.write_text(f"x / ext4 rw 0 0\nfiler:/x {os.path.realpath(state)} nfs4 rw 0 0\n")
    monkeypatch.setattr("psutil.PROCFS_PATH", str(state.parent / "proc"))
    done = run("show")
    assert f"signalbox: {state}/signalbox.db is on nfs4, a network file system" in done.stderr
    assert done.exit_code == 0


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:////srv/s.db", Path("/srv/s.db")),
        ("sqlite+pysqlite:////srv/s.db?timeout=3", Path("/srv/s.db")),
        ("sqlite:///here.db", Path("here.db")),
        ("sqlite://", None),
        ("sqlite:///:memory:", None),
        ("postgresql+psycopg://u@h/db", None),
        ("no url", None),
    ],
)
def test_the_file_of_a_database(url: str, path: Path | None) -> None:
    """Only SQLite has one."""
    assert sqlite_file(url) == path
