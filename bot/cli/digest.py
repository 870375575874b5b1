"""`signalbox digest`: the figures of a week; and `signalbox demo --fill`, which makes up incidents for it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from bot.cli.console import STDOUT, Progress, say, say_json
from bot.digest.codec import dumps
from bot.digest.phrases import zone_named
from bot.digest.terminal import text
from bot.render.text_format import many
from bot.rulebase.loader import knowledge
from bot.runtime.paths import config_path, database_url
from bot.store.database import Database
from bot.store.digest_rows import compute, made_by_hand
from kb.digest.digest import Digest
from kb.digest.weeks import week_named, week_of


def run(
    week: str | None,
    tenant: str,
    zone: str | None,
    html: Path | None,
    *,
    as_json: bool,
    meanings: bool,
    by_hand: bool = False,
) -> None:
    """Compute and print the digest; by default, of the last full week. `html`: `-` for stdout.

    Raises:
        SignalboxError: the week or time zone does not exist, or the store cannot be read.
    """
    where = zone_named(zone or digest_zone(tenant))
    now = datetime.now(UTC)
    wanted = week_of(now, where).shifted(-1) if week is None else week_named(week)
    with Database(database_url()) as store:
        digest = compute(store, tenant, wanted, where, until=now, faults=knowledge().rulebook.faults, by_hand=by_hand)
        left_out = 0 if by_hand else made_by_hand(store, tenant, wanted, where)
        this_week = week_of(now, where)
        newer = 0 if week is not None or digest.failures else made_by_hand(store, tenant, this_week, where)
    if left_out:
        say(
            f"{many(left_out, 'failure')} diagnosed from files, not from a cluster: not counted. --by-hand counts {'it' if left_out == 1 else 'them'}.",
            err=True,
        )
    if newer:
        say(
            f"{many(newer, 'failure')} of the current week {'was' if newer == 1 else 'were'} diagnosed from files: "
            f"`signalbox digest --week {this_week} --by-hand` counts {'it' if newer == 1 else 'them'}.",
            err=True,
        )
    if html is not None:
        _write(digest, html)
    if as_json:
        say_json(dumps(digest))
    elif html is None:
        say(text(digest, meanings=meanings))


def fill(days: int, seed: int) -> None:
    """Fill this user's store with made-up incidents.

    Raises:
        SignalboxError: the store has real incidents.
    """
    from bot.demo.sample_incidents import fill_store as make

    with Database(database_url()) as store, Progress("days of incidents", days) as bar:
        count = make(store, knowledge().rulebook, datetime.now(UTC), days=days, seed=seed, tell=bar.tell)
    say(f"Added {many(count, 'made-up incident')} over {many(days, 'day')} to the store, each marked as such. Try:")
    for words in ("signalbox digest", "signalbox digest --html digest.html", "signalbox incidents list"):
        say(f"  {words}")


def _write(digest: Digest, file: Path) -> None:
    from bot.digest.html import page

    if file == STDOUT:
        say(page(digest).decode(), end="")
    else:
        file.write_bytes(page(digest))
        say(f"written: {file}", err=True)


def digest_zone(tenant: str) -> str:
    """The tenant's time zone; UTC if none is configured."""
    if config_path() is None:
        return "UTC"
    from bot.config.file import read

    known = read().tenants_of_chat.get(tenant)
    return known.zone if known is not None else "UTC"
