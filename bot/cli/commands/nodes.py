"""`signalbox nodes`: node exclusions, proposed and confirmed, who decided, and nodes that fail repeatedly."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from bot.cli.console import say, say_json, say_table
from bot.cli.options import Limit, Note
from kb.regex.lazy import lazy_compile

if TYPE_CHECKING:
    from bot.incidents.exclusions import ExclusionList, NodeExclusion, State
    from kb.digest.repeat_offenders import OffenderNode

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

Tenant = Annotated[str, typer.Option("--tenant", help="Whose nodes.")]
Cluster = Annotated[str | None, typer.Option("--cluster", help="Only this cluster.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Number = Annotated[int, typer.Argument(metavar="ID", help="The number, as shown by `nodes excluded`.")]
Until = Annotated[
    str | None, typer.Option("--for", metavar="7d", help="How long, such as 12h or 7d; by default, until it is lifted.")
]
System = Annotated[
    str, typer.Option("--system", metavar="slurm|kubernetes", help="The system whose drain command is shown.")
]
_LONGEST = timedelta(days=3650)
_SPAN = lazy_compile(r"(\d{1,5})([mhdw])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
WEEKS = 8  # in the definition of a lemon


@app.command("barred", hidden=True)  # its former name
@app.command("excluded")
def list_excluded(
    tenant: Tenant = "default",
    cluster: Cluster = None,
    node: Annotated[str | None, typer.Option("--node", help="Only this node, with past decisions.")] = None,
    limit: Limit = 50,
    commands: Annotated[
        bool, typer.Option("--commands", help="Also show the drain command. Signalbox never runs it.")
    ] = False,
    system: System = "slurm",
    as_json: AsJson = False,
) -> None:
    """List node exclusions, proposed and confirmed; with --json, one object per line."""
    _known_system(system)
    now = _now()
    states: tuple[State, ...] = ("proposed", "barred") if node is None else ("proposed", "barred", "refused", "lifted")
    with _bars() as store:
        found = store.list(tenant, cluster=cluster, node=node, states=states, limit=limit)
    if as_json:
        for item in found:
            say_json(_json(item, now))
    elif not found:
        say("No node exclusions.")
    for item in () if as_json else found:
        _say(_line(item, now))
        if commands and item.state != "refused":
            from bot.incidents.exclusions import command

            _say(f"       $ {command(item, system)}")


@app.command("bar", hidden=True)  # its former name
@app.command()
def exclude(
    node: Annotated[str, typer.Argument(metavar="NODE")],
    note: Note = "",
    until: Until = None,
    job: Annotated[str, typer.Option("--job", help="Only for the job with this name or id.")] = "",
    cluster: Cluster = None,
    tenant: Tenant = "default",
    system: System = "slurm",
    as_json: AsJson = False,
) -> None:
    """Exclude a node, for all jobs or for one. Confirms a pending proposal. Changes nothing on the cluster."""
    from bot.cli.incident_close import login
    from bot.incidents.exclusions import ExclusionRequest

    _known_system(system)
    now = _now()
    scope: Literal["cluster", "job"] = "job" if job else "cluster"
    wanted = ExclusionRequest(tenant, cluster or "", node, scope, job, _end(until, now), note)
    with _bars() as store:
        added = store.add(wanted, login(), now)
    _decided(added, now, system, as_json=as_json)


@app.command()
def confirm(
    number: Number, until: Until = None, tenant: Tenant = "default", system: System = "slurm", as_json: AsJson = False
) -> None:
    """Confirm an exclusion that a diagnosis proposed."""
    _known_system(system)
    _decide(number, "barred", tenant, until=until, system=system, as_json=as_json)


@app.command()
def refuse(number: Number, tenant: Tenant = "default", as_json: AsJson = False) -> None:
    """Refuse an exclusion that a diagnosis proposed; this incident does not propose it again."""
    _decide(number, "refused", tenant, as_json=as_json)


@app.command()
def lift(number: Number, tenant: Tenant = "default", as_json: AsJson = False) -> None:
    """Lift an exclusion, so that the node can be used again."""
    _decide(number, "lifted", tenant, as_json=as_json)


@app.command()
def lemons(
    tenant: Tenant = "default",
    as_json: AsJson = False,
) -> None:
    """List nodes that failed repeatedly in eight weeks, scored by how unlikely that is by chance."""
    from dataclasses import asdict

    import msgspec

    from bot.render.columns import Column
    from bot.rulebase.loader import knowledge
    from bot.runtime.paths import database_url
    from bot.store.database import Database
    from bot.store.digest_rows import lemons as counted
    from kb.digest.definitions import DEFINITIONS

    with Database(database_url()) as store:
        found = counted(store, tenant, WEEKS, _now(), knowledge().rulebook.faults)
    if as_json:
        say_json(msgspec.json.encode({"weeks": WEEKS, "definition": DEFINITIONS["lemon"], **asdict(found)}))
        return
    if not found.nodes:
        say(f"No hardware or network failures on a known node in the last {WEEKS} weeks.")
    else:
        columns = (
            Column("node"), Column("jobs", right=True), Column("score", right=True), Column("jobs by week, oldest first"),
        )  # fmt: skip
        say_table(columns, [_offender(node) for node in found.nodes])
    say(f"\n{DEFINITIONS['offenders']}\n{DEFINITIONS['lemon']}")


def _offender(node: OffenderNode) -> tuple[str, ...]:
    weeks = " ".join(str(count) for count in node.weeks)
    return node.name, str(node.jobs), f"{node.score:.1f}", f"{weeks}{'  lemon' if node.lemon else ''}"


def _decide(
    number: int, to: State, tenant: str, *, as_json: bool, until: str | None = None, system: str = "slurm"
) -> None:
    from bot.cli.incident_close import login

    now = _now()
    with _bars() as store:
        changed, _ = store.decide(number, tenant, to, login(), now, until=_end(until, now))
    _decided(changed, now, system, as_json=as_json)


def _decided(decided: NodeExclusion, now: datetime, system: str, *, as_json: bool) -> None:
    from bot.incidents.exclusions import command, in_words

    if as_json:
        say_json(_json(decided, now))
        return
    _say(f"{decided.node}: {in_words(decided, now)}.")
    if decided.state == "barred" and decided.scope == "cluster":
        _say(f"Signalbox runs nothing on the cluster. To drain the node:\n  $ {command(decided, system)}")


def _line(node_exclusion: NodeExclusion, now: datetime) -> str:
    from bot.incidents.exclusions import in_words

    incident = f", incident {node_exclusion.incident_id}" if node_exclusion.incident_id is not None else ""
    where = f" ({node_exclusion.cluster})" if node_exclusion.cluster else ""
    why = f"\n       {node_exclusion.why}" if node_exclusion.why else ""
    return f"{node_exclusion.id:>5}  {node_exclusion.node}{where}  {in_words(node_exclusion, now)}{incident}{why}"


def _json(node_exclusion: NodeExclusion, now: datetime) -> bytes:
    import msgspec

    body = msgspec.to_builtins(node_exclusion)
    body["in_force"] = node_exclusion.state == "barred" and not node_exclusion.over(now)
    return msgspec.json.encode(body)


def _end(until: str | None, now: datetime) -> datetime | None:
    from kb.errors import SignalboxError

    if until is None:
        return None
    found = _SPAN.fullmatch(until.strip())
    span = timedelta(**{_UNITS[found[2]]: int(found[1])}) if found else timedelta()
    if not timedelta() < span <= _LONGEST:
        raise SignalboxError(f"--for {until[:40]}: expected a duration of at most ten years, such as 12h or 7d")
    return now + span


def _known_system(system: str) -> None:
    from kb.errors import SignalboxError

    if system not in ("slurm", "kubernetes"):
        raise SignalboxError(f"--system {system[:40]!r}: expected slurm or kubernetes")


def _bars() -> ExclusionList:
    from bot.incidents.exclusions import ExclusionList
    from bot.runtime.paths import database_url

    return ExclusionList(database_url())


def _now() -> datetime:
    return datetime.now(UTC)


def _say(text: str) -> None:
    from bot.render.text_format import shown

    say("\n".join(shown(line) for line in text.split("\n")))
