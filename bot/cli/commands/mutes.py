"""`signalbox mutes`: what is not posted automatically for a while, as *Mute* in Slack does it."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from bot.cli.console import say, say_json, say_table
from bot.cli.options import Note

if TYPE_CHECKING:
    from bot.policy.notifications import Mute

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

Tenant = Annotated[str, typer.Option("--tenant", help="Whose mutes.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_KINDS = ("rule", "job", "node")


@app.command("list")
def list_mutes(tenant: Tenant = "default", as_json: AsJson = False) -> None:
    """List what is muted, the mute that ends first at the top; with --json, one object per line."""
    from bot.notify.mutes import MuteStore
    from bot.render.columns import Column
    from bot.runtime.paths import database_url

    with MuteStore(database_url()) as store:
        found = store.listed(tenant, datetime.now(UTC))
    if as_json:
        for number, mute in found:
            say_json(_json(number, mute))
    elif not found:
        say("Nothing is muted.")
    else:
        columns = (
            Column("id", right=True), Column("kind"), Column("what"), Column("until"), Column("channel"), Column("by"),
            Column("note"),
        )  # fmt: skip
        say_table(columns, [_row(number, mute) for number, mute in found])


@app.command()
def add(
    kind: Annotated[str, typer.Argument(metavar="rule|job|node", help="What is muted.")],
    what: Annotated[
        str, typer.Argument(metavar="NAME", help="The id of the rule, the job's name or id (a pattern), or the node.")
    ],
    span: Annotated[str, typer.Option("--for", metavar="8h", help="How long, such as 8h or 7d; at most 90 days.")],
    channel: Annotated[
        str | None, typer.Option("--channel", metavar="ID", help="Only in this Slack channel; by default, everywhere.")
    ] = None,
    note: Note = "",
    tenant: Tenant = "default",
) -> None:
    """Stop automatic posts about a rule, job or node until a time. Diagnoses still report it.

    To silence a rule in diagnoses too, add an exception to the site overlay (docs/site-overlay.md).
    """
    from bot.cli.incident_actions import span_seconds
    from bot.cli.incident_close import login
    from bot.notify.mutes import MuteStore
    from bot.policy.notifications import Mute
    from bot.runtime.paths import database_url

    _known(kind, what)
    now = datetime.now(UTC)
    until = now + timedelta(seconds=span_seconds(span, "--for"))
    wanted = Mute(kind, what, until.timestamp(), tenant, channel, login(), note)  # type: ignore[arg-type]
    with MuteStore(database_url()) as store:
        number = store.add_from_shell(f"cli:{secrets.token_hex(16)}", wanted, now)
    say(f"Automatic posts about {kind} {what} are off until {_minute(wanted.until)}.")
    say(f"To post them again: signalbox mutes end {number}")
    if kind == "rule":
        say(
            "Diagnoses still report it. To silence the rule itself, add an exception to your site overlay (docs/site-overlay.md)."
        )


@app.command()
def end(
    number: Annotated[int, typer.Argument(metavar="ID", help="The number, as shown by `mutes list`.")],
    tenant: Tenant = "default",
) -> None:
    """End a mute now."""
    from bot.cli.incident_close import login
    from bot.notify.mutes import MuteStore
    from bot.runtime.paths import database_url
    from kb.errors import SignalboxError

    with MuteStore(database_url()) as store:
        mute = store.end_from_shell(tenant, number, login(), datetime.now(UTC))
    if mute is None:
        raise SignalboxError(f"no mute {number} is active; see signalbox mutes list")
    say(f"Automatic posts about {mute.kind} {mute.what} are on again.")


def _known(kind: str, what: str) -> None:
    """Refuse a kind that there is not, and a rule that does not exist: a mute of it would do nothing."""
    from difflib import get_close_matches

    from bot.rulebase.loader import knowledge
    from bot.runtime.paths import site_dir
    from kb.errors import SignalboxError

    if kind not in _KINDS:
        raise SignalboxError(f"{kind[:40]!r} cannot be muted; expected rule, job or node")
    if kind != "rule":
        return
    ids = [rule.id for rule in knowledge(None, site_dir()).rulebook.rules]
    if what not in ids:
        near = get_close_matches(what, ids, 1)
        raise SignalboxError(f"no rule has the id {what[:80]!r}{f'; did you mean {near[0]}?' if near else ''}")


def _row(number: int, mute: Mute) -> tuple[str, ...]:
    return str(number), mute.kind, mute.what, _minute(mute.until), mute.channel or "everywhere", mute.by, mute.why


def _minute(time: float) -> str:
    return f"{datetime.fromtimestamp(time, UTC):%Y-%m-%d %H:%M}Z"


def _json(number: int, mute: Mute) -> bytes:
    import msgspec

    return msgspec.json.encode({"id": number, **msgspec.to_builtins(mute)})
