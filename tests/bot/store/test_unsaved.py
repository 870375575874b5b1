"""Many writers at once lose nothing, and what a store refuses is taken in later. Real processes on real SQLite files."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
from contextlib import closing
from dataclasses import replace

import msgspec
import pytest

from bot.render.report_json import dumps
from bot.store import unsaved
from bot.store.incidents import IncidentStore, remember
from tests.support.bot_samples import FALLEN_GPU
from tests.support.common.incident_samples import NOW

WRITERS = 20


def _write(url, number, gate, warnings):
    gate.wait()
    warning = remember(replace(FALLEN_GPU, id=f"{number:016x}"), b"text\n", None, url=url, now=NOW)
    if warning:
        warnings.put(warning)


@pytest.mark.slow  # test_what_a_locked_store_refuses_is_taken_in_by_the_next_command
@pytest.mark.parametrize("fresh", [True, False])
def test_twenty_writers_at_once_lose_nothing(tmp_path, fresh):
    """All incidents are stored, in a new store as in an old one: without a warning, and without files left next to the store."""
    url = f"sqlite:///{tmp_path}/s.db"
    if not fresh:
        with IncidentStore(url):
            pass
    context = multiprocessing.get_context("fork")
    gate, warnings = context.Barrier(WRITERS), context.Queue()
    writers = [context.Process(target=_write, args=(url, number, gate, warnings)) for number in range(WRITERS)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()

    assert [writer.exitcode for writer in writers] == [0] * WRITERS
    assert warnings.empty()
    with closing(sqlite3.connect(tmp_path / "s.db")) as connection:
        assert connection.execute("SELECT count(*) FROM incident").fetchone() == (WRITERS,)


def test_what_a_locked_store_refuses_is_taken_in_by_the_next_command(tmp_path, monkeypatch):
    """The warning names the file, the next incident brings the refused one with it, and no file is left next to the store."""
    url = f"sqlite:///{tmp_path}/s.db"
    with IncidentStore(url):
        pass
    monkeypatch.setattr("bot.store.database._BUSY_SECONDS", 0.01)
    monkeypatch.setattr("bot.store.database._PAUSES", (0.01,))
    with closing(sqlite3.connect(tmp_path / "s.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        warning = remember(FALLEN_GPU, b"one\n", "night-run", url=url, now=NOW)
    [refused] = unsaved.folder(url).iterdir()

    assert str(refused) in warning
    assert refused.stat().st_mode & 0o777 == 0o600
    assert remember(replace(FALLEN_GPU, id="0" * 16), b"two\n", None, url=url, now=NOW) is None

    with IncidentStore(url) as store:
        found = {incident.report_id: incident for incident in store.list()}
        assert found[FALLEN_GPU.id].bundle == "night-run"
        assert found[FALLEN_GPU.id].created_at == NOW
        assert store.get(found[FALLEN_GPU.id].id).replay == b"one\n"
    assert list(unsaved.folder(url).iterdir()) == []


def test_a_claim_of_a_process_that_is_gone_is_taken_up(tmp_path):
    """A command that died between claiming and storing loses nothing; one that still runs keeps its claim."""
    url = f"sqlite:///{tmp_path}/s.db"
    gone = multiprocessing.get_context("fork").Process(target=int)
    gone.start()
    gone.join()
    for owner in (gone.pid, os.getppid()):
        path = unsaved.put(url, str(owner).encode())
        path.rename(path.with_name(f"{path.name}.taken{owner}"))
    kept: list[bytes] = []

    def keep(packed: bytes) -> bool:
        kept.append(packed)
        return True

    assert unsaved.take_in(url, keep) == 1
    assert kept == [str(gone.pid).encode()]


def test_an_answer_that_was_printed_is_stored_though_its_command_was_killed(tmp_path):
    """It was written before it was printed; other commands leave it alone while this one lives, and it is stored once."""
    url = f"sqlite:///{tmp_path}/s.db"
    packed = {
        "report": dumps(FALLEN_GPU),
        "replay": b"one\n",
        "bundle": "night-run",
        "now": NOW.isoformat(),
        "tenant": "research",
        "cluster": None,
    }
    with multiprocessing.get_context("fork").Pool(1) as pool:
        promised = pool.apply(unsaved.promise, (url, msgspec.msgpack.encode(packed)))
        assert remember(replace(FALLEN_GPU, id="0" * 16), b"two\n", None, url=url, now=NOW) is None
        assert promised.exists()
    assert remember(replace(FALLEN_GPU, id="1" * 16), b"three\n", None, url=url, now=NOW) is None

    assert not promised.exists()
    with IncidentStore(url) as store:
        found = {incident.report_id: incident for incident in store.list()}
        killed = found[f"research:{FALLEN_GPU.id}"]
        assert (len(found), killed.tenant, killed.bundle, killed.created_at) == (3, "research", "night-run", NOW)
        assert store.get(killed.id).replay == b"one\n"


def test_a_promise_is_removed_once_it_is_kept(tmp_path):
    """It is removed whether the incident goes into the store or, if the store refuses it, into a file."""
    url = f"sqlite:///{tmp_path}/s.db"
    for number, place in enumerate((url, "sqlite:////proc/none/s.db")):
        promised = unsaved.promise(url, b"")
        warning = remember(replace(FALLEN_GPU, id=f"{number:016x}"), b"x", None, url=place, now=NOW, promised=promised)
        assert (warning is None) == (place == url)
        assert promised.exists() == (place != url)


def test_a_file_that_nobody_can_read_holds_up_no_other(tmp_path):
    """It stays where it is."""
    url = f"sqlite:///{tmp_path}/s.db"
    for packed in (b"", b"\x80", b"\xc1", msgspec.msgpack.encode({"row": 1}), msgspec.msgpack.encode([1])):
        unsaved.put(url, packed)
    assert remember(FALLEN_GPU, b"x", None, url="sqlite:////proc/none/s.db", now=NOW) is not None
    assert remember(FALLEN_GPU, b"x", None, url=url, now=NOW) is None
    assert sorted(path.suffix for path in unsaved.folder(url).iterdir()) == [".incident"] * 5
