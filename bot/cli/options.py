"""Options shared by several commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RulesFolder = Annotated[Path | None, typer.Option("--rules", help="Rules folder; by default, the installed one.")]
SiteFolder = Annotated[Path | None, typer.Option("--site", help="Site overlay; by default, the configured one.")]
Workers = Annotated[
    int | None, typer.Option("--workers", min=1, max=512, help="Number of reader processes; by default, one per core.")
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config", help="Path of signalbox.yaml; by default $SIGNALBOX_CONFIG, or the one in your config folder."
    ),
]

Note = Annotated[str, typer.Option("--note", "--reason", "--why", help="A note for others, such as the reason.")]

# for commands that take a job, or with --logs its files
Targets = Annotated[list[str] | None, typer.Argument(metavar="JOB | PATH…", help="With --logs: files and folders.")]
JobOrPaths = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="PATH… | JOB", help="Logs, a folder of logs, a bundle, - for standard input, or a job's name."
    ),
]
BundleFolder = Annotated[Path | None, typer.Option("--bundle", help="A folder with the evidence of one job.")]
AreLogs = Annotated[bool, typer.Option("--logs", help="Treat all arguments as log files or folders.")]
OfCluster = Annotated[str | None, typer.Option("--cluster", help="With JOB: only look in this cluster.")]
OfTenant = Annotated[str, typer.Option("--tenant", help="With JOB: the tenant whose clusters to search.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=10_000, help="Maximum number, latest first.")]
OfNamespace = Annotated[str | None, typer.Option("--namespace", "-n", help="With JOB: its Kubernetes namespace.")]
