"""`signalbox baselines`: the good runs that failed ones are compared with, one per job family."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bot.cli.console import say, say_json, say_table

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

Tenant = Annotated[str, typer.Option("--tenant", help="Whose runs.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list")
def list_baselines(tenant: Tenant = "default", as_json: AsJson = False) -> None:
    """List the stored good runs, newest first; with --json, one object per line."""
    import msgspec

    from bot.render.columns import Column
    from bot.runtime.paths import database_url
    from bot.store.baselines import listed
    from bot.store.database import Database

    with Database(database_url()) as store:
        found = listed(store, tenant)
    if as_json:
        for item in found:
            say_json(msgspec.json.encode(item))
        return
    if not found:
        say("No baselines yet. Jobs that complete are added automatically; `signalbox baselines keep BUNDLE` adds one.")
        return
    unusable = "written by another version; unusable until a new run is stored"
    rows = [
        (
            f"{item.at:%Y-%m-%d %H:%M}Z",
            item.family,
            f"{item.bytes / 1e3:.0f} kB",
            item.label if item.readable else f"{item.label}: {unusable}",
        )
        for item in found
    ]
    heads = (Column("STORED"), Column("FAMILY (name|framework|image)"), Column("SIZE", right=True), Column("RUN"))
    say_table(heads, rows)


@app.command()
def keep(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="A folder with logs/ and job.yaml.")],
    tenant: Tenant = "default",
) -> None:
    """Store a bundle as the baseline of its job family, replacing the previous one. Refuses failed runs."""
    from bot.handlers.keep_baseline import keep_bundle
    from bot.rulebase.loader import knowledge
    from bot.runtime.paths import database_url
    from bot.store.database import Database
    from kb.errors import SignalboxError

    if not bundle.is_dir():
        raise SignalboxError(f"{bundle}: there is no such folder")
    with Database(database_url()) as store:
        kept = keep_bundle(store, knowledge(), bundle, tenant=tenant, label=str(bundle.resolve()))
    if kept.startswith("not "):
        raise SignalboxError(f"{bundle}: {kept}")
    _say(f"{kept[:1].upper()}{kept[1:]}.")


@app.command()
def drop(
    family: Annotated[str, typer.Argument(metavar="FAMILY", help="The family, as shown by `baselines list`.")],
    tenant: Tenant = "default",
) -> None:
    """Delete the baseline of a job family."""
    from bot.runtime.paths import database_url
    from bot.store.baselines import drop as forget
    from bot.store.database import Database
    from kb.errors import SignalboxError

    with Database(database_url()) as store:
        if not forget(store, family, tenant=tenant):
            raise SignalboxError(f"no baseline for {family[:200]!r}; see `signalbox baselines list`")
    _say(f"Deleted: {family}")


def _say(text: str) -> None:
    from bot.render.text_format import shown

    say(shown(text))
