"""What is kept and for how long, on both kinds of database: packed, removed, pinned, killed in the middle, twice at once."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlmodel import SQLModel, col, select

from bot.collection.collect import CollectionMark, ProtectedBundles, evicted_of, mark_of, marks, prune
from bot.config.settings import Retention
from bot.render.report_json import dumps
from bot.retention import sweep
from bot.retention.archive import contents, pack
from bot.retention.evidence import EvidenceLocation, counts, evidence, pin, spared
from bot.retention.rows import prune_rows
from bot.retention.sweep import SweepResult, daily, packs_of, tidy
from bot.store.incidents import IncidentStore
from bot.store.tables import (
    AuditRow,
    ChoiceRow,
    ClaimRow,
    IncidentRow,
    MuteRow,
    OutboxRow,
    RequestRow,
    SeenRow,
    WorkRow,
)
from tests.support.bot_samples import FALLEN_GPU

NOW = datetime(2026, 11, 22, 6, 0, tzinfo=UTC)
NOTHING = SweepResult()


@dataclass
class Site:
    """A store, a spool and a clock."""

    store: IncidentStore
    spool: Path
    settings: Retention

    def bundle(self, name: str, days: float, *, size: int = 1000, incident: bool = True) -> tuple[int, Path]:
        """A finished bundle of so many days ago, and the incident that it gave (0 without one)."""
        at = NOW - timedelta(days=days)
        folder = self.spool / "default" / f"{name}-0123" / f"{name}-{at:%Y-%m-%dT%H-%M-%SZ}"
        (folder / "logs").mkdir(parents=True)
        (folder / "logs" / "a.log").write_bytes(b"x" * size)
        (folder / "bundle.yaml").write_bytes(b"format: 1\n")
        mark = CollectionMark(at.timestamp(), (0.0, 1.0), size, {"a": "logs"})
        mark_of(folder).write_bytes(msgspec.json.encode(mark))
        return (self.incident(name, days, str(folder)) if incident else 0), folder

    def incident(self, name: str, days: float, bundle: str | None) -> int:
        """An incident of so many days ago."""
        report = replace(FALLEN_GPU, id=name)
        return self.store.add(dumps(report), report, b"text\n", bundle, NOW - timedelta(days=days))

    def tidy(self, now: datetime = NOW) -> SweepResult:
        """One round."""
        return tidy(self.store.database, self.spool, now, self.settings)

    def archive(self, number: int) -> Path:
        """Return the path of the pack of an incident."""
        with self.store.database.session() as session:
            return Path(str(session.get_one(IncidentRow, number).archive))

    def state(self, number: int) -> str:
        """Where its evidence is."""
        return evidence(self.store.database, number).state

    def packs(self) -> list[str]:
        """The names of all files among the packs."""
        return sorted(path.name for path in packs_of(self.settings).rglob("*") if path.is_file())


@pytest.fixture
def site(database: str, tmp_path: Path) -> Iterator[Site]:
    """An empty one, on each kind of database."""
    spool = tmp_path / "spool"
    spool.mkdir()
    with IncidentStore(database) as store:
        yield Site(store, spool, Retention(packs=str(tmp_path / "packs")))


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Site]:
    """An empty one on SQLite, for what does not depend on the database."""
    (tmp_path / "spool").mkdir()
    with IncidentStore(f"sqlite:///{tmp_path}/s.db") as store:
        yield Site(store, tmp_path / "spool", Retention(packs=str(tmp_path / "packs")))


def test_a_bundle_lives_as_long_as_is_reported(site: Site) -> None:
    """Hot: a folder; then packed; then gone, and the incident says when and why; its report stays, until that goes too."""
    number, folder = site.bundle("run", 0)
    day = timedelta(days=1)
    assert (site.tidy(NOW + 13 * day), site.state(number)) == (NOTHING, "folder")

    told = site.tidy(NOW + 15 * day)
    assert (told.bundles, told.packed_from, told.trouble) == (1, 1000, [])
    pack_file = packs_of(site.settings) / "default" / "run-0123" / f"{folder.name}.tar.zst"
    assert evidence(site.store.database, number) == EvidenceLocation(
        "packed", str(pack_file), f"its evidence is packed in {pack_file}"
    )
    size = pack_file.stat().st_size
    assert told.packed_to == size
    assert set(contents(pack_file)) == {"bundle.yaml", "logs/a.log"}
    assert not folder.exists()
    assert not mark_of(folder).exists()
    assert (site.tidy(NOW + 179 * day), site.state(number)) == (NOTHING, "packed")

    told = site.tidy(NOW + 181 * day)
    assert (told.packs, told.freed, site.packs()) == (1, size, [])
    words = "its evidence was removed on 2027-05-22: its retention of 180 days expired (retention: archive)"
    assert evidence(site.store.database, number) == EvidenceLocation("gone", None, words)
    assert site.store.get(number).replay == b"text\n"

    assert site.tidy(NOW + 731 * day) == replace(NOTHING, reports=1)
    assert site.store.get(number) is None
    assert [item.summary for item in site.store.list()] == [FALLEN_GPU.summary]
    assert site.state(number) == "gone"
    assert site.tidy(NOW + 731 * day) == NOTHING


def test_what_is_pinned_stays_whatever_its_age(site: Site) -> None:
    """Pinned while hot it stays a folder; pinned when packed it stays packed; unpinned it ages as the others."""
    early, folder = site.bundle("early", 0)
    late, _ = site.bundle("late", 0)
    assert pin(site.store.database, early, NOW, "me")
    site.tidy(NOW + timedelta(days=20))
    assert pin(site.store.database, late, NOW, "me")
    old = NOW + timedelta(days=4000)
    assert replace(site.tidy(old), rows={}) == NOTHING
    assert (site.state(early), site.state(late)) == ("folder", "packed")
    assert site.store.get(early) is not None
    assert counts(site.store.database) == {"incidents": 2, "open": 2, "pinned": 2, "packed": 1, "reports": 2}
    for number in (early, late):
        assert pin(site.store.database, number, NOW, "me", pinned=False)
    told = site.tidy(old)
    assert (told.bundles, told.packs, told.reports) == (1, 2, 2)
    assert not folder.exists()
    assert not pin(site.store.database, 99, NOW, "me")
    assert not pin(site.store.database, 2**70, NOW, "me")


def test_pinning_is_written_down(small: Site) -> None:
    """Who pinned what, and when."""
    number, _ = small.bundle("run", 0)
    pin(small.store.database, number, NOW, "me")
    pin(small.store.database, number, NOW, "you", pinned=False)
    with small.store.database.session() as session:
        rows = session.exec(select(AuditRow).order_by(col(AuditRow.id))).all()
        found = [(row.who, row.verb, row.what, row.tenant, row.allowed) for row in rows]
    assert found == [("me", "pin", "incident 1", "default", True), ("you", "unpin", "incident 1", "default", True)]


def test_a_bundle_of_several_incidents_ages_with_the_youngest(site: Site) -> None:
    """It is packed when the latest incident is no longer hot, and kept while one is pinned; then all have the path of the pack."""
    first, folder = site.bundle("run", 30)
    second = site.incident("again", 5, str(folder))
    assert (site.tidy(), site.state(first)) == (NOTHING, "folder")
    pin(site.store.database, first, NOW, "me")
    assert (site.tidy(NOW + timedelta(days=10)), site.state(first)) == (NOTHING, "folder")
    pin(site.store.database, first, NOW, "me", pinned=False)
    assert site.tidy(NOW + timedelta(days=10)).bundles == 1
    assert [site.state(first), site.state(second)] == ["packed", "packed"]


def test_folders_of_people_are_never_touched(small: Site, tmp_path: Path) -> None:
    """A bundle that a user put outside of the spool stays, whatever its age and that of its incident."""
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "a.log").write_text("x")
    beside = tmp_path / "spool-of-mine"
    beside.mkdir()
    numbers = [small.incident("one", 900, str(mine)), small.incident("two", 900, str(beside))]
    without = small.incident("three", 900, None)
    assert small.tidy() == replace(NOTHING, reports=3)
    assert ((mine / "a.log").exists(), beside.exists()) == (True, True)
    assert [small.state(number) for number in (*numbers, without)] == ["folder", "folder", "none"]
    shutil.rmtree(mine)
    assert (
        evidence(small.store.database, numbers[0]).words
        == f"its evidence was in {mine}, which does not exist on this host"
    )


def test_what_no_incident_needs_goes_with_time(small: Site) -> None:
    """Bundles without incidents after `hot`; unfinished ones, parts of packs and empty places after a day."""
    _, wanted = small.bundle("new", 13, incident=False)
    _, unwanted = small.bundle("old", 15, incident=False)
    half = small.spool / "default" / "dead-0123" / "dead-1"
    fresh = small.spool / "default" / "busy-0123" / "busy-1"
    for folder in (half, fresh):
        folder.mkdir(parents=True)
        (folder.parent / "lock").touch()
        (folder / "a.log").write_text("xyz")
    part = packs_of(small.settings) / "default" / "run-0123" / "run.tar.zst.host-1-00ff.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"12")
    for path in (half, part, half.parent):
        os.utime(path, (NOW.timestamp() - 90_000,) * 2)
    for path in (fresh, fresh.parent, unwanted.parent):
        os.utime(path, (NOW.timestamp(),) * 2)
    assert small.tidy() == replace(NOTHING, unwanted=2, freed=1000 + 3 + 2)
    assert [path.exists() for path in (wanted, unwanted, half, fresh, part)] == [True, False, False, True, False]
    os.utime(half.parent, (NOW.timestamp() - 90_000,) * 2)
    small.tidy()
    assert [path.exists() for path in (half.parent, fresh.parent)] == [False, True]


# -- killed in the middle ------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """The process is gone."""


STEPS = {
    "before the pack has its name": "bot.retention.archive.os.replace",
    "when the pack is there, before it is recorded": "bot.retention.sweep._Sweep._record",
    "when it is recorded, before the folder goes": "bot.retention.sweep._remove",
    "when the mark is gone, before the folder goes": "bot.retention.sweep.shutil.rmtree",
}


@pytest.mark.quick(1)
@pytest.mark.parametrize("step", STEPS)
def test_a_round_that_is_killed_loses_nothing(small: Site, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Wherever it broke off, the evidence was there at that moment, and the next round ends the work."""
    number, folder = small.bundle("run", 20)

    def dies(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(STEPS[step], dies)
        with pytest.raises(Killed):
            small.tidy()
    assert (folder / "logs" / "a.log").exists()
    assert small.state(number) == "folder"
    later = NOW + timedelta(days=400)  # long enough for all that was left half done
    small.settings = replace(small.settings, archive=500 * 86400.0)
    told = small.tidy(later)
    assert (told.trouble, folder.exists(), small.state(number)) == ([], False, "packed")
    assert set(contents(small.archive(number))) == {"bundle.yaml", "logs/a.log"}
    assert len(small.packs()) == 1


def test_half_a_folder_never_takes_the_place_of_its_pack(small: Site) -> None:
    """Files that are lost between two rounds are in the pack still."""
    number, folder = small.bundle("run", 20)
    target = packs_of(small.settings) / "default" / "run-0123" / f"{folder.name}.tar.zst"
    pack(folder, target)
    (folder / "logs" / "a.log").unlink()
    assert small.tidy().bundles == 1
    assert set(contents(target)) == {"bundle.yaml", "logs/a.log"}
    assert small.state(number) == "packed"


def test_a_pack_whose_removal_was_killed_goes_the_next_day(small: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database says that it is gone, the file is there: the next round removes it."""
    number, _ = small.bundle("run", 20)
    small.tidy()
    late = NOW + timedelta(days=200)
    with monkeypatch.context() as patch:
        patch.setattr("bot.retention.sweep._Sweep._unlink", lambda *_: (_ for _ in ()).throw(Killed()))
        with pytest.raises(Killed):
            small.tidy(late)
    assert len(small.packs()) == 1
    small.tidy(late)
    assert (small.packs(), small.state(number)) == ([], "gone")


def test_a_database_restored_from_a_backup_finds_its_packs(small: Site) -> None:
    """Incidents that the database lists as hot get the paths of their packs."""
    number, _ = small.bundle("run", 20)
    small.tidy()
    with small.store.database.session(write=True) as session:
        session.get(IncidentRow, number).archive = None
    assert small.state(number) == "elsewhere"
    assert small.tidy() == NOTHING
    assert small.state(number) == "packed"


def test_packs_that_no_incident_knows_go_with_time(small: Site) -> None:
    """Where the database was lost, packs are kept for their time and then removed."""
    stray = packs_of(small.settings) / "default" / "x-0123" / "x.tar.zst"
    stray.parent.mkdir(parents=True)
    stray.write_bytes(b"1234")
    os.utime(stray, (NOW.timestamp() - 179 * 86400,) * 2)
    assert small.tidy() == NOTHING
    assert small.tidy(NOW + timedelta(days=2)) == replace(NOTHING, packs=1, freed=4)


def test_one_bundle_that_cannot_be_packed_does_not_stop_the_others(
    small: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the disk is full, for example, the failure is reported, the folder stays, and the next bundle is packed."""
    bad, folder = small.bundle("bad", 20)
    good, _ = small.bundle("good", 20)
    taken = pack

    def fails(source: Path, target: Path, **more: Any) -> int:
        if source == folder:
            target.parent.mkdir(parents=True)
            target.mkdir()  # what stands in the way
        return taken(source, target, **more)

    monkeypatch.setattr(sweep, "pack", fails)
    told = small.tidy()
    assert (told.bundles, len(told.trouble)) == (1, 1)
    assert "cannot be written" in told.trouble[0]
    assert (small.state(bad), small.state(good)) == ("folder", "packed")


# -- two at once ---------------------------------------------------------------------------------------------------------


def test_of_two_replicas_one_tidies_each_day(site: Site, tmp_path: Path) -> None:
    """Whoever comes first; the next day again; hosts with spools of their own each have their turn."""
    site.bundle("run", 20)
    assert daily(site.store.database, site.spool, NOW, site.settings).bundles == 1
    assert daily(site.store.database, site.spool, NOW + timedelta(hours=3), site.settings) is None
    assert daily(site.store.database, site.spool, NOW + timedelta(days=1), site.settings) == NOTHING
    assert daily(site.store.database, tmp_path / "other host", NOW, site.settings) == NOTHING
    with site.store.database.session() as session:
        assert [row.state for row in session.exec(select(ClaimRow))] == ["done"] * 3


def test_two_rounds_at_once_end_well(site: Site) -> None:
    """Side by side they pack each bundle once, and nothing is lost."""
    numbers = [site.bundle(f"run{number}", 20, size=200_000)[0] for number in range(12)]
    results: list[SweepResult] = []
    pair = [threading.Thread(target=lambda: results.append(site.tidy())) for _ in range(2)]
    for item in pair:
        item.start()
    for item in pair:
        item.join()
    assert len(results) == 2
    site.tidy()
    assert {site.state(number) for number in numbers} == {"packed"}
    for number in numbers:
        assert set(contents(site.archive(number))) == {"bundle.yaml", "logs/a.log"}
    assert list(marks(site.spool, 2)) == []
    assert len(site.packs()) == 12


# -- eviction ------------------------------------------------------------------------------------------------------------


def test_eviction_takes_closed_ones_first_and_pinned_ones_never(site: Site) -> None:
    """Closed and old bundles go first, then hot and open ones; pinned ones stay even if the spool is too full."""
    pinned, folder_pinned = site.bundle("pinned", 60)
    pin(site.store.database, pinned, NOW, "me")
    closed, folder_closed = site.bundle("closed", 1)
    with site.store.database.session(write=True) as session:
        session.get(IncidentRow, closed).closed_at = NOW
    opened, folder_open = site.bundle("open", 10)
    kept = spared(site.store.database, NOW, site.settings)
    assert kept == ProtectedBundles(frozenset({str(folder_pinned)}), frozenset({str(folder_open)}))
    prune(site.spool / "default", 2500, spare=lambda: kept)
    assert [item.exists() for item in (folder_pinned, folder_open, folder_closed)] == [True, True, False]
    prune(site.spool / "default", 0, spare=lambda: kept)
    assert [item.exists() for item in (folder_pinned, folder_open, folder_closed)] == [True, False, False]
    assert site.tidy() == replace(NOTHING, evicted=2)
    words = "its evidence was removed on 2026-11-22: it was evicted to make room for newer bundles (collect: keep)"
    assert [evidence(site.store.database, item).words for item in (closed, opened)] == [words] * 2
    assert not evicted_of(folder_open).exists()
    assert site.tidy() == NOTHING


# -- rows ----------------------------------------------------------------------------------------------------------------


def rows_of(at: datetime, name: str) -> list[SQLModel]:
    """One row of each table that is pruned, of a time."""
    base: dict[str, Any] = {"tenant": "default"}
    work: dict[str, Any] = {"kind": "diagnose", "payload": "{}", "created_at": at, "asked_at": at, **base}
    out: dict[str, Any] = {"method": "m", "payload": "{}", "created_at": at, "ready_at": at, **base}
    return [
        SeenRow(key=name, at=at),
        ChoiceRow(handle=name, payload="{}", created_at=at, **base),
        OutboxRow(key=name, state="sent", **out),
        OutboxRow(key=f"{name}-waiting", state="waiting", **out),
        WorkRow(key=name, state="done", done_at=at, **work),
        WorkRow(key=f"{name}-failed", state="failed", done_at=at, **work),
        WorkRow(key=f"{name}-open", state="waiting", **work),
        MuteRow(key=name, kind="rule", what="r", until=at, at=at, who="me", **base),
        AuditRow(at=at, who="me", verb="ask", what="job", allowed=True, **base),
        ClaimRow(kind="digest", period=name, at=at, who="me"),
        RequestRow(key=name, work_id=1, channel="C", who="U", reply_to="https://x", created_at=at, **base),
    ]


@pytest.mark.quick("sqlite")
@pytest.mark.parametrize(
    ("days", "gone"),
    [
        (0.02, {}),
        (0.03, {"reply_to": 1}),
        (7.1, {"seen": 1, "choice": 1, "reply_to": 1}),
        (30.1, {"seen": 1, "choice": 1, "reply_to": 1, "outbox": 1, "work": 2}),
        (90.1, {"seen": 1, "choice": 1, "reply_to": 1, "outbox": 1, "work": 2, "mute": 1}),
        (
            400.1,
            {"seen": 1, "choice": 1, "reply_to": 1, "outbox": 1, "work": 2, "mute": 1, "audit": 1, "claim": 1},
        ),
    ],
)
def test_rows_go_when_they_are_old(site: Site, days: float, gone: dict[str, int]) -> None:
    """Each table has its own retention time; unsent messages, open tasks and new rows stay."""
    with site.store.database.session(write=True) as session:
        session.add_all([*rows_of(NOW - timedelta(days=days), "old"), *rows_of(NOW, "new")])
    assert prune_rows(site.store.database, NOW) == gone
    assert prune_rows(site.store.database, NOW) == {}
    with site.store.database.session() as session:
        left = {row.key: row.reply_to for row in session.exec(select(RequestRow))}
    assert left == {"old": None if "reply_to" in gone else "https://x", "new": "https://x"}


def test_settings_that_contradict_each_other_are_refused() -> None:
    """Each span is at least as long as the one before, and folders are whole paths."""
    assert asdict(Retention())["hot"] == 14 * 86400
    contradictions: list[dict[str, Any]] = [{"hot": 200 * 86400.0}, {"reports": 86400.0}]
    for wrong in contradictions:
        with pytest.raises(ValueError, match="follow each other"):
            Retention(**wrong)
    with pytest.raises(ValueError, match="is not an absolute path"):
        Retention(packs="relative")
