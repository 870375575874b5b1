"""The options of `signalbox watch`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bot.cli.console import load_rules
from bot.cli.options import RulesFolder, SiteFolder


def watch(
    job: Annotated[str | None, typer.Argument(metavar="[JOB]", help="The job's id, for the report.")] = None,
    logs: Annotated[
        Path | None,
        typer.Option(
            "--logs", help="The folder of the ranks' logs, such as torchrun's --log-dir; finds the processes."
        ),
    ] = None,
    pids: Annotated[str, typer.Option("--pids", help="Process ids of the ranks on this host, such as 12,13.")] = "",
    pids_of: Annotated[
        str,
        typer.Option(
            "--pids-of",
            metavar="REGEX",
            help="Find the ranks' processes by a regular expression that matches the command line or one of its words.",
        ),
    ] = "",
    py_spy: Annotated[
        str | None, typer.Option("--py-spy", metavar="PATH", help="The py-spy executable to use.")
    ] = None,
    native: Annotated[bool, typer.Option("--native/--no-native", help="Include C frames in stacks.")] = True,
    ras: Annotated[
        str | None, typer.Option("--ras", metavar="CMD|DIR", help="`ncclras -f json`, or a folder with its output.")
    ] = None,
    dumps: Annotated[
        str | None,
        typer.Option(
            "--flight-recorder",
            metavar="PREFIX",
            help="Where Flight Recorder dumps appear; by default, read from the processes' environment.",
        ),
    ] = None,
    ask: Annotated[
        bool,
        typer.Option("--dump-pipes", help="Request dumps from silent ranks, through TORCH_NCCL_DEBUG_INFO_PIPE_FILE."),
    ] = False,
    prometheus: Annotated[
        str | None,
        typer.Option(
            "--prometheus",
            metavar="URL",
            help="Prometheus with GPU and RDMA metrics; $SIGNALBOX_PROMETHEUS_TOKEN is sent if set.",
        ),
    ] = None,
    series: Annotated[
        list[str] | None,
        typer.Option("--series", metavar="LABEL=VALUE", help="The job's series there; by default, those of this host."),
    ] = None,
    every: Annotated[str, typer.Option("--every", help="Time between polls.")] = "20s",
    limit: Annotated[str, typer.Option("--for", help="How long to watch.")] = "10m",
    until_hang: Annotated[
        bool,
        typer.Option("--until-hang", help="No time limit: watch until a hang or fault is called, or the job ends."),
    ] = False,
    save: Annotated[Path | None, typer.Option("--save", help="Save the evidence to this new folder.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
    kernel: Annotated[bool, typer.Option("--kernel/--no-kernel", help="Read this host's kernel log.")] = True,
    ebpf: Annotated[bool, typer.Option("--ebpf", help="Also run the bpftrace programs; needs root.")] = False,
    param: Annotated[
        list[str] | None,
        typer.Option(
            "--param",
            metavar="RULE.NAME=NUMBER",
            help="Override a rule parameter for this job, such as hang-called.silence_most=900.",
        ),
    ] = None,
    rules: RulesFolder = None,
    site: SiteFolder = None,
) -> None:
    """Watch a running job: hang probes, faults as they appear, and the final diagnosis.

    Exits 1 if a hang or fault is called, 16 if the job ended and whether it completed cannot be told, or if the time
    was up before a fault in the logs or a sign of a hang was called.
    """
    from bot.cli.watch import WatchOptions, seconds
    from bot.cli.watch import watch as run

    asked = WatchOptions(
        job=job,
        logs=logs,
        pids=pids,
        pattern=pids_of,
        py_spy=py_spy,
        native=native,
        ras=ras,
        kernel=kernel,
        ebpf=ebpf,
        dumps=dumps,
        ask=ask,
        prometheus=prometheus,
        series=tuple(series or ()),
        every=max(1.0, seconds(every)),
        limit=None if until_hang else seconds(limit),
        save=save,
        params=tuple(param or ()),
    )
    raise typer.Exit(run(load_rules(rules, site), asked, as_json=as_json))
