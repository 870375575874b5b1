"""`signalbox diagnose`: what it takes from the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from bot.cli.options import (
    AreLogs,
    BundleFolder,
    ConfigFile,
    JobOrPaths,
    OfCluster,
    OfNamespace,
    OfTenant,
    RulesFolder,
    SiteFolder,
    Workers,
)


def diagnose(
    targets: JobOrPaths = None,
    bundle: BundleFolder = None,
    logs: AreLogs = False,
    job: Annotated[bool, typer.Option("--job", help="It is a job's name, though a path has the same.")] = False,
    config: ConfigFile = None,
    cluster: OfCluster = None,
    tenant: OfTenant = "default",
    namespace: OfNamespace = None,
    window: Annotated[
        str | None, typer.Option("--window", metavar="2h", help="With JOB: only so long before its end.")
    ] = None,
    deadline: Annotated[str | None, typer.Option("--deadline", metavar="60s", help="With JOB: to collect by.")] = None,
    save: Annotated[
        Path | None,
        typer.Option("--save-bundle", metavar="DIR", help="With JOB: keep its evidence here, a new folder."),
    ] = None,
    deep: Annotated[
        bool,
        typer.Option("--deep", help="Compare runs, nodes and steps in any case; with JOB: fetch all log lines for it."),
    ] = False,
    baseline: Annotated[
        Path | None,
        typer.Option(
            "--baseline",
            metavar="PATH",
            help="With --bundle and --logs: logs of a good run of the same job, to compare with.",
        ),
    ] = None,
    engine: Annotated[
        Literal["local", "ray"],
        typer.Option("--engine", help="Where lines are read to be compared: on this host, or on a cluster by Ray."),
    ] = "local",
    each: Annotated[
        Path | None, typer.Option("--each", help="Every subfolder is a bundle; one JSON report a line.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON (signalbox.report/1).")] = False,
    fail_on: Annotated[
        str | None, typer.Option("--fail-on", metavar="fault", help="Exit 1 where a fault is found.")
    ] = None,
    exit_decision: Annotated[
        bool, typer.Option("--exit-decision", help="Exit with the decision, for requeue wrappers; see the README.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="More diagnoses, all reasons, all gaps.")] = False,
    picture: Annotated[
        Path | None,
        typer.Option(
            "--picture", metavar="FILE.png", help="Draw all ranks over time: who stopped first. FILE.svg for SVG."
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write the whole report as one page for browsers.")
    ] = None,
    store: Annotated[bool, typer.Option("--store/--no-store", help="Keep the report among the incidents.")] = True,
    rules: RulesFolder = None,
    site: SiteFolder = None,
    workers: Workers = None,
) -> None:
    """Say why a job failed: the first cause, who is at fault, the lines that show it, what to do."""
    from bot.cli.diagnose import run
    from bot.cli.diagnose_options import DiagnoseOptions

    options = DiagnoseOptions(
        targets=tuple(targets or ()),
        job=job,
        bundle=bundle,
        logs=logs,
        each=each,
        config=config,
        cluster=cluster,
        tenant=tenant,
        namespace=namespace,
        window=window,
        deadline=deadline,
        save=save,
        deep=deep,
        baseline=baseline,
        engine=engine,
        as_json=as_json,
        fail_on=fail_on,
        exit_decision=exit_decision,
        verbose=verbose,
        picture=picture,
        html=html,
        store=store,
        rules=rules,
        site=site,
        workers=workers,
    )
    raise typer.Exit(run(options))
