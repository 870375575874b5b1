"""Options that several commands have, each with its words once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RulesFolder = Annotated[Path | None, typer.Option("--rules", help="A rules folder in place of the one installed.")]
SiteFolder = Annotated[Path | None, typer.Option("--site", help="The site's overlay in place of the one configured.")]
Workers = Annotated[
    int | None, typer.Option("--workers", min=1, max=512, help="Processes to read with; all cores by default.")
]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="signalbox.yaml; else $SIGNALBOX_CONFIG or yours.")]

# of the commands that take a job, or with --logs its files
Targets = Annotated[list[str] | None, typer.Argument(metavar="JOB | PATH…", help="With --logs: files and folders.")]
JobOrPaths = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="PATH… | JOB", help="Logs, a folder of logs, a bundle, - for standard input; or a job's name."
    ),
]
BundleFolder = Annotated[Path | None, typer.Option("--bundle", help="A folder that holds the evidence of one job.")]
AreLogs = Annotated[bool, typer.Option("--logs", help="All positionals are log files or folders.")]
OfCluster = Annotated[str | None, typer.Option("--cluster", help="With JOB: look for it in this cluster only.")]
OfTenant = Annotated[str, typer.Option("--tenant", help="With JOB: whose clusters to look in.")]
OfNamespace = Annotated[str | None, typer.Option("--namespace", "-n", help="With JOB: of Kubernetes.")]
