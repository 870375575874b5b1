"""The options of `signalbox diagnose`."""

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
    job: Annotated[
        bool, typer.Option("--job", help="Treat the argument as a job's name, even if a path has that name.")
    ] = False,
    config: ConfigFile = None,
    cluster: OfCluster = None,
    tenant: OfTenant = "default",
    namespace: OfNamespace = None,
    window: Annotated[
        str | None, typer.Option("--window", metavar="2h", help="With JOB: only this long before its end.")
    ] = None,
    deadline: Annotated[
        str | None, typer.Option("--deadline", metavar="60s", help="With JOB: time limit for collecting evidence.")
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option("--save-bundle", metavar="DIR", help="With JOB: save its evidence to this new folder."),
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(
            "--state",
            metavar="FAILED|COMPLETED|RUNNING|…",
            help="With logs or a bundle: the job's state, where no scheduler can be asked; any scheduler's word.",
        ),
    ] = None,
    exit_code: Annotated[
        int | None,
        typer.Option("--exit-code", min=0, max=255, metavar="N", help="With logs or a bundle: the job's exit code."),
    ] = None,
    gpus: Annotated[
        int | None,
        typer.Option(
            "--gpus",
            min=1,
            max=10_000_000,
            metavar="N",
            help="With logs or a bundle: how many GPUs the job had, for its cost in GPU-hours.",
        ),
    ] = None,
    deep: Annotated[
        bool,
        typer.Option("--deep", help="Always compare runs, nodes and steps; with JOB, fetch all log lines."),
    ] = False,
    baseline: Annotated[
        Path | None,
        typer.Option(
            "--baseline",
            metavar="PATH",
            help="With --bundle and --logs: logs of a good run of the same job to compare with.",
        ),
    ] = None,
    engine: Annotated[
        Literal["local", "ray"],
        typer.Option("--engine", help="Where to read lines for comparison: on this host, or on a Ray cluster."),
    ] = "local",
    each: Annotated[
        Path | None,
        typer.Option(
            "--each",
            help="Diagnose each subfolder as a bundle and print its cause and decision; with --json, one report per line. Stores them only with --store.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON (signalbox.report/1).")] = False,
    fail_on: Annotated[
        str | None, typer.Option("--fail-on", metavar="fault", help="Exit with 1 if a fault is found.")
    ] = None,
    exit_decision: Annotated[
        bool,
        typer.Option(
            "--exit-decision",
            help="Report the decision as the exit status, for requeue wrappers; see docs/diagnose.md.",
        ),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show more diagnoses, all reasons, and all missing evidence.")
    ] = False,
    picture: Annotated[
        Path | None,
        typer.Option(
            "--picture",
            metavar="FILE.png",
            help="Draw all ranks over time, showing which stopped first. PNG, or SVG for FILE.svg.",
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write the whole report as a single HTML page.")
    ] = None,
    store: Annotated[
        bool | None,
        typer.Option(
            "--store/--no-store", help="Whether to store the report as an incident; by default yes, with --each no."
        ),
    ] = None,
    rules: RulesFolder = None,
    site: SiteFolder = None,
    workers: Workers = None,
) -> None:
    """Find out why a job failed: the first cause, the suspects, the lines that prove it, and what to do."""
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
        state=state,
        exit_code=exit_code,
        gpus=gpus,
    )
    raise typer.Exit(run(options))
