"""The options of `signalbox logs`."""

from __future__ import annotations

from typing import Annotated

import typer

from bot.cli.console import complain, load_rules, must_be_configured, must_be_folder, refuse, until_closed
from bot.cli.options import AreLogs, BundleFolder, ConfigFile, OfCluster, OfNamespace, OfTenant, Targets


def logs(
    targets: Targets = None,
    rank: Annotated[str | None, typer.Option("--rank", "-r", metavar="7 | 0-3,8", help="Only these ranks.")] = None,
    node: Annotated[str | None, typer.Option("--node", metavar="NAME", help="Only this node.")] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="10m | TIME", help="Start this long before the end of the logs, or at this time."
        ),
    ] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="5m | TIME", help="Likewise, the end.")] = None,
    grep: Annotated[
        str | None,
        typer.Option("--grep", "-g", metavar="REGEX", help="Only lines that match this regular expression (RE2)."),
    ] = None,
    ignore_case: Annotated[bool, typer.Option("--ignore-case", "-i", help="With --grep.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing new lines until Ctrl-C.")] = False,
    bundle: BundleFolder = None,
    paths: AreLogs = False,
    config: ConfigFile = None,
    cluster: OfCluster = None,
    tenant: OfTenant = "default",
    namespace: OfNamespace = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
) -> None:
    """Show a job's logs: the lines of all ranks merged by time, with rank and time, secrets masked."""
    from bot.cli.logs import LogsOptions, request_of
    from bot.cli.logs import run as show_logs

    if sum((bundle is not None, paths)) > 1 or (bundle is not None and targets):
        refuse("give exactly one of JOB, --bundle DIR and --logs PATH…")
    if bundle is not None:
        must_be_folder(bundle)
    elif not targets:
        refuse("nothing to read; give a JOB, --bundle DIR, or --logs PATH…")
    elif not paths and len(targets) > 1:
        refuse("give a single JOB; several arguments are only valid with --logs")
    elif not paths:
        must_be_configured(targets[0], config, "logs")
    request = None if paths or not targets else request_of(targets[0], tenant, cluster, namespace, since)
    asked = LogsOptions(
        tuple(targets or ()), bundle, paths, config, request, rank, node, since, until, grep, ignore_case, follow
    )
    with until_closed():
        try:
            show_logs(lambda: load_rules(None), asked, as_json=as_json, complain=complain)
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
