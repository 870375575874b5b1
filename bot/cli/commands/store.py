"""`signalbox store`: stored reports and evidence: usage and retention, clean-up, pins, unpacking a bundle."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from bot.cli.console import complain, refuse, say, say_json, shell_user
from bot.cli.options import ConfigFile

if TYPE_CHECKING:
    from bot.retention.sweep import SweepResult
    from bot.store.incidents import IncidentStore

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Incident = Annotated[int, typer.Argument(metavar="ID", help="The incident number, as shown by `incidents list`.")]


@app.command()
def show(config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Show what is stored, where, how much, and for how long."""
    from bot.collection.collect import marks, spool_of
    from bot.config.file import read
    from bot.retention.evidence import counts
    from bot.retention.sweep import packs_in, packs_of

    known = read(config)
    spool, gaps = spool_of(known.collect)
    packs = packs_of(known.retention)
    with _store() as store:
        rows = counts(store.database)
    bundles = [mark.bytes for _, mark in marks(spool, 2)]
    packed = [path.stat().st_size for path in packs_in(packs)]
    warnings = [*_warnings(), *(gap.reason for gap in gaps)]
    for words in warnings:
        complain(words)
    days = {name: getattr(known.retention, name) / 86400 for name in ("hot", "archive", "reports")}
    body: dict[str, Any] = {
        "database": _database(),
        **rows,
        "spool": str(spool),
        "bundles": len(bundles),
        "bundle_bytes": sum(bundles),
        "packs": str(packs),
        "pack_files": len(packed),
        "pack_bytes": sum(packed),
        "days": days,
        "warnings": warnings,
    }
    if as_json:
        _json(body)
        return
    _say(f"Database   {_database()}")
    _say(f"           {_many(rows['incidents'], 'incident')}, {rows['open']:,} not closed, {rows['pinned']:,} pinned; "
         f"{_many(rows['reports'], 'report')}, kept for {days['reports']:g} days")  # fmt: skip
    _say(f"Bundles    {spool}")
    _say(f"           {_many(len(bundles), 'bundle')}, {_size(sum(bundles))} of at most {_size(known.collect.keep)} "
         f"a tenant; packed after {days['hot']:g} days")  # fmt: skip
    _say(f"Packs      {packs}")
    _say(f"           {_many(len(packed), 'pack')}, {_size(sum(packed))}; removed after {days['archive']:g} days")


@app.command()
def tidy(config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Pack old evidence and remove expired data now, as `signalbox serve` does daily. Exits 1 if anything failed."""
    from bot.collection.collect import spool_of
    from bot.config.file import read
    from bot.retention.sweep import tidy as tidy_up

    known = read(config)
    with _store() as store:
        swept = tidy_up(store.database, spool_of(known.collect)[0], datetime.now(UTC), known.retention)
    if as_json:
        from dataclasses import asdict

        _json(asdict(swept))
    else:
        _say("\n".join(sentences(swept)) or "Nothing to do.")
    for words in swept.trouble:
        complain(words)
    raise typer.Exit(1 if swept.trouble else 0)


def sentences(result: SweepResult) -> list[str]:
    """What a clean-up did, in sentences."""
    lines = []
    if result.bundles:
        lines.append(
            f"{_many(result.bundles, 'bundle')} packed, from {_size(result.packed_from)} to {_size(result.packed_to)}."
        )
    if result.unwanted:
        lines.append(f"{_many(result.unwanted, 'folder')} removed that no incident refers to.")
    if result.packs:
        lines.append(f"{_many(result.packs, 'expired pack')} removed.")
    if result.evicted:
        lines.append(
            f"{_many(result.evicted, 'bundle')} had been removed to make room for newer ones; their incidents now say so."
        )
    if result.freed:
        lines.append(f"{_size(result.freed)} freed.")
    if result.reports:
        lines.append(f"{_many(result.reports, 'expired report')} removed.")
    lines += [f"{_many(count, 'row')} of {name} removed." for name, count in result.rows.items() if name != "reply_to"]
    return lines


@app.command()
def pin(incident_id: Incident, as_json: AsJson = False) -> None:
    """Keep everything of an incident, regardless of age."""
    _pin(incident_id, pinned=True, as_json=as_json)


@app.command()
def unpin(incident_id: Incident, as_json: AsJson = False) -> None:
    """Let the usual retention apply to an incident again."""
    _pin(incident_id, pinned=False, as_json=as_json)


def _pin(incident_id: int, *, pinned: bool, as_json: bool) -> None:
    from bot.retention.evidence import evidence
    from bot.retention.evidence import pin as set_pin

    with _store() as store:
        if not set_pin(store.database, incident_id, datetime.now(UTC), shell_user(), pinned=pinned):
            _unknown(incident_id)
        where = evidence(store.database, incident_id)
    if where is None:
        _unknown(incident_id)
    if as_json:
        _json({"incident": incident_id, "pinned": pinned, "evidence": where.state, "where": where.where})
        return
    verb = "is pinned: nothing of it is removed" if pinned else "is unpinned: the usual retention applies"
    _say(f"Incident {incident_id} {verb}; {where.words}.")


@app.command()
def unpack(
    incident_id: Incident,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder.")],
    as_json: AsJson = False,
) -> None:
    """Unpack an incident's bundle, to diagnose it again with `signalbox diagnose --bundle DIR`."""
    from bot.live.bundle_writer import fresh_folder
    from bot.retention.archive import unpack as take_out
    from bot.retention.evidence import evidence

    with _store() as store:
        found = evidence(store.database, incident_id)
    if found is None:
        _unknown(incident_id)
    if found.state != "packed" or found.where is None:
        hint = f"; `signalbox diagnose --bundle {found.where}` reads it" if found.state == "folder" else ""
        refuse(f"incident {incident_id}: {found.words}{hint}")
    count = take_out(Path(found.where), fresh_folder(folder))
    if as_json:
        _json({"incident": incident_id, "folder": str(folder), "files": count})
        return
    _say(f"{_many(count, 'file')} unpacked. To diagnose again: `signalbox diagnose --bundle {folder}`.")


def _store() -> IncidentStore:
    from bot.runtime.paths import database_url
    from bot.store.incidents import IncidentStore

    return IncidentStore(database_url())


def _database() -> str:
    from sqlalchemy.engine import make_url

    from bot.runtime.paths import database_url

    return make_url(database_url()).render_as_string(hide_password=True)


def _warnings() -> list[str]:
    from bot.runtime.filesystem_type import database_warning
    from bot.runtime.paths import database_url, sqlite_file

    path = sqlite_file(database_url())
    words = database_warning(path) if path is not None else None
    return [words] if words is not None else []


def _unknown(incident_id: int) -> NoReturn:
    refuse(f"there is no incident {incident_id}; see `signalbox incidents list`")


def _say(words: str) -> None:
    from bot.render.text_format import shown

    say("\n".join(shown(line) for line in words.split("\n")))


def _json(body: dict[str, Any]) -> None:
    import msgspec

    say_json(msgspec.json.encode(body))


def _many(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _size(count: int) -> str:
    size, unit = float(count), "bytes"
    for bigger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, bigger
    return f"{size:.3g} {unit}" if unit != "bytes" else f"{count} bytes"
