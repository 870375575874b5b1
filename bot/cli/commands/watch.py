"""`signalbox watch`: what it takes from the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bot.cli.console import load_rules
from bot.cli.options import RulesFolder, SiteFolder


def watch(
    job: Annotated[str | None, typer.Argument(metavar="[JOB]", help="The job's id, for the report.")] = None,
    logs: Annotated[
        Path | None, typer.Option("--logs", help="The folder of the ranks' logs: torchrun --log-dir, or any.")
    ] = None,
    pids: Annotated[str, typer.Option("--pids", help="Processes of the ranks on this host, as 12,13.")] = "",
    pids_of: Annotated[str, typer.Option("--pids-of", metavar="REGEX", help="Likewise, by command line.")] = "",
    py_spy: Annotated[str | None, typer.Option("--py-spy", metavar="PATH", help="The py-spy to use.")] = None,
    native: Annotated[bool, typer.Option("--native/--no-native", help="Stacks with C frames too.")] = True,
    ras: Annotated[
        str | None, typer.Option("--ras", metavar="CMD|DIR", help="`ncclras -f json`, or a folder of its answers.")
    ] = None,
    dumps: Annotated[
        str | None,
        typer.Option(
            "--flight-recorder",
            metavar="PREFIX",
            help="Where Flight Recorder dumps appear; else as the processes' environment says.",
        ),
    ] = None,
    ask: Annotated[
        bool,
        typer.Option("--dump-pipes", help="Ask silent ranks for dumps, by TORCH_NCCL_DEBUG_INFO_PIPE_FILE."),
    ] = False,
    prometheus: Annotated[
        str | None,
        typer.Option("--prometheus", metavar="URL", help="GPU and RDMA metrics; $SIGNALBOX_PROMETHEUS_TOKEN is sent."),
    ] = None,
    series: Annotated[
        list[str] | None,
        typer.Option("--series", metavar="LABEL=VALUE", help="The job's series there; else those of this host."),
    ] = None,
    every: Annotated[str, typer.Option("--every", help="Time between looks.")] = "20s",
    limit: Annotated[str, typer.Option("--for", help="How long to watch.")] = "10m",
    until_hang: Annotated[
        bool, typer.Option("--until-hang", help="No limit: until something is called or the job ends.")
    ] = False,
    save: Annotated[Path | None, typer.Option("--save", help="A new folder for the evidence.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    kernel: Annotated[bool, typer.Option("--kernel/--no-kernel", help="Read this host's kernel log.")] = True,
    ebpf: Annotated[bool, typer.Option("--ebpf", help="Run the bpftrace programs too; needs root.")] = False,
    param: Annotated[
        list[str] | None,
        typer.Option("--param", metavar="RULE.NAME=NUMBER", help="For this job: hang-called.silence_most=900."),
    ] = None,
    rules: RulesFolder = None,
    site: SiteFolder = None,
) -> None:
    """Watch a job while it runs: the hang probes' votes, faults as they appear, and the answer. Exit 1 where one is called."""
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
