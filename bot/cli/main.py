"""The command `signalbox`. Heavy modules are imported where they are needed: the answer must not wait for them."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, NoReturn, Self

import typer

from bot.cli.baselines import app as baselines
from bot.cli.config import app as config_commands
from bot.cli.incident_store import Remembering
from bot.cli.incidents import app as incidents
from bot.cli.nodes import app as nodes
from bot.cli.options import AreLogs, BundleFolder, ConfigFile, OfCluster, OfNamespace, OfTenant, RulesFolder, Targets
from bot.cli.rules import app as rules
from bot.cli.store import app as store_commands
from kb.errors import RuleError, SignalboxError

if TYPE_CHECKING:
    from bot.collection.collect import Spare, Spared
    from bot.config.file import Config
    from bot.diagnosis.diagnose import Answer
    from bot.diagnosis.template_pool import Engine
    from bot.rulebase.loader import Knowledge

FEW = 5  # messages of one kind on stderr
LONGEST = 1000  # characters of such a message; what is left out is in the middle

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain text: quick to import, an error is one line
    help="Finds the first cause of failed and hung large-model training runs, from their logs.",
)
app.add_typer(rules, name="rules", help="The rule base: look at it, test it, change it.")
app.add_typer(incidents, name="incidents", help="Past reports: list, show, close.")

app.add_typer(nodes, name="nodes", help="Nodes that are barred, or fail again and again.")
app.add_typer(baselines, name="baselines", help="Good runs that failed ones are compared with.")
app.add_typer(store_commands, name="store", help="What is kept, for how long: tidy it, pin, take a bundle out.")
app.add_typer(config_commands, name="config", help="signalbox.yaml: check it, see an example.")

SiteFolder = Annotated[Path | None, typer.Option("--site", help="The site's overlay in place of the one configured.")]
Workers = Annotated[
    int | None, typer.Option("--workers", min=1, max=512, help="Processes to read with; all cores by default.")
]


@app.command()
def diagnose(
    targets: Targets = None,
    bundle: BundleFolder = None,
    logs: AreLogs = False,
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
        Path | None, typer.Option("--picture", metavar="FILE.png", help="Draw all ranks over time: who stopped first.")
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
    _sensible(targets, bundle, each, logs=logs, fail_on=fail_on, exit_decision=exit_decision)
    known = _knowledge(rules, site)
    if each is not None:
        if picture is not None or html is not None:
            _usage("--picture and --html go with one run, and not with --each")
        failed = _each(known, each, workers)
        raise typer.Exit(1 if fail_on and failed else 0)
    if engine == "ray" and find_spec("ray") is None:
        _usage("--engine ray needs Ray: pip install 'signalbox[ray]'")
    asked = _Asked(targets or [], config, cluster, tenant, namespace, window, deadline, save, deep, baseline, engine)
    with Remembering(tenant, on=store) as memory:
        answer, bundle = _answered(known, asked, bundle, memory, logs=logs, workers=workers)
        _shown(known, asked, answer, bundle, memory, as_json=as_json, verbose=verbose, picture=picture, html=html)
    if exit_decision:
        from bot.runtime.errors import decision_status

        raise typer.Exit(decision_status(answer.report))
    if fail_on and answer.report.verdict == "fault":
        raise typer.Exit(1)


def _shown(
    known: Knowledge,
    asked: _Asked,
    answer: Answer,
    bundle: Path | None,
    memory: Remembering,
    *,
    as_json: bool,
    verbose: bool,
    picture: Path | None,
    html: Path | None,
) -> None:
    """Print the answer, draw and write what was asked for, and keep it."""
    _print(answer, as_json=as_json, verbose=verbose)
    if picture is not None:
        _draw(answer, picture)
    kept = _small(answer) if html is not None or memory.on else {}
    if html is not None:
        from bot.cli.html import write_answer

        write_answer(known, answer.report, kept, html)
    if memory.on:
        warning = memory.keep(answer, bundle, kept)
        if warning:
            _complain(warning)
        whole = asked.deep or not asked.targets  # of a job's logs in a store only the lines that rules want are fetched
        told = memory.keep_good(known, answer, bundle if whole else None)
        if told is not None and sys.stderr.isatty():
            _complain(f"this run is {told}")


def _sensible(
    targets: list[str] | None,
    bundle: Path | None,
    each: Path | None,
    *,
    logs: bool,
    fail_on: str | None,
    exit_decision: bool,
) -> None:
    """Refuse options that contradict each other."""
    if fail_on not in (None, "fault"):
        _usage("--fail-on knows one word: fault")
    if exit_decision and (fail_on or each is not None):
        _usage("--exit-decision goes with one run, and not with --fail-on")
    if sum((bundle is not None, logs, each is not None)) > 1:
        _usage("give one of --bundle, --logs and --each")
    if targets and not logs and (bundle is not None or each is not None):
        _usage("with --bundle and --each there is no JOB")


def _answered(
    known: Knowledge, asked: _Asked, bundle: Path | None, memory: Remembering, *, logs: bool, workers: int | None
) -> tuple[Answer, Path | None]:
    """The answer, and the bundle that it is of."""
    if asked.targets and not logs and bundle is None:
        if asked.baseline is not None:
            _usage("--baseline goes with --bundle and --logs")
        return _job(known, asked, memory, workers)
    if asked.save is not None or asked.window is not None:
        _usage("--save-bundle and --window go with a JOB")
    return _one(known, asked, bundle, memory, workers=workers), bundle


def _one(known: Knowledge, asked: _Asked, bundle: Path | None, memory: Remembering, *, workers: int | None) -> Answer:
    targets, compare = asked.targets, memory.compare(asked.baseline, workers, always=asked.deep)
    compare = replace(compare, engine=asked.engine)
    recall = memory.recall(known, asked.cluster)
    from bot.diagnosis.diagnose import diagnose_bundle, diagnose_paths

    if bundle is not None:
        _must_be_folder(bundle)
        with _Bar() as bar:
            compare = replace(compare, tell=bar.compared)
            return diagnose_bundle(known, bundle, workers=workers, tell=bar.tell, compare=compare, recall=recall)
    if not targets:
        _usage("say what to diagnose: --logs PATH…, --bundle DIR, or a JOB")
    paths = [Path(target) for target in targets]
    with _Bar() as bar:
        compare = replace(compare, tell=bar.compared)
        return diagnose_paths(known, paths, workers=workers, tell=bar.tell, compare=compare, recall=recall)


class _Asked(NamedTuple):
    """What was said of a JOB."""

    targets: list[str]
    config: Path | None
    cluster: str | None
    tenant: str
    namespace: str | None
    window: str | None
    deadline: str | None
    save: Path | None
    deep: bool
    baseline: Path | None
    engine: Engine


def _job(known: Knowledge, asked: _Asked, memory: Remembering, workers: int | None) -> tuple[Answer, Path]:
    """The answer on a job that the configured systems know, and the folder of its evidence."""
    [job, *more] = asked.targets
    if more:
        _usage("name one JOB; with --logs all names are paths")
    _must_be_configured(job, asked.config, "diagnose")
    from bot.cli.watch import seconds
    from bot.config.file import read
    from bot.diagnosis.job import JobRequest, diagnose_job
    from bot.live.bundle_writer import fresh_folder

    request = JobRequest(
        job,
        asked.tenant,
        asked.cluster,
        asked.namespace,
        last=seconds(asked.window) if asked.window else None,
        deadline=seconds(asked.deadline) if asked.deadline else None,
        save=fresh_folder(asked.save) if asked.save else None,
        deep=asked.deep,
    )
    configured = read(asked.config)
    compare = memory.compare(None, workers, always=asked.deep)
    with _Sources() as tell, _Bar() as bar:
        found = diagnose_job(
            known,
            configured,
            request,
            workers=workers,
            tell=tell,
            spare=_sparing(configured),
            compare=replace(compare, engine=asked.engine, tell=bar.compared),
            recall=lambda located: memory.recall_of(known, located),
        )
    if asked.save:
        _complain(f"the evidence is kept in {asked.save}")
    return found.answer, found.collected.folder


def _sparing(config: Config) -> Spare:
    """What eviction must leave; the store is opened only where something must go."""

    def ask() -> Spared:
        from bot.retention.evidence import sparing
        from bot.runtime.paths import database_url

        return sparing(database_url(), config.retention)()

    return ask


def _must_be_configured(job: str, config: Path | None, command: str) -> None:
    from bot.runtime.paths import config_path

    if config is None and config_path() is None:
        hint = f"; did you mean `signalbox {command} --logs {job}`?" if os.path.exists(job) else ""  # noqa: PTH110 - never raises
        _usage(
            f"no connector is configured that could find the job {job!r}{hint or '; see `signalbox config example`'}"
        )


class _Sources:
    """What each source says while it is collected, on stderr where a person sees it."""

    def __enter__(self) -> Callable[[str, str], None]:
        shown = sys.stderr.isatty()

        def tell(name: str, words: str) -> None:
            if shown:
                _complain(f"{name}: {words}")

        return tell

    def __exit__(self, *_: object) -> None:
        """Nothing is left to tidy."""


class _Bar:
    """Progress on stderr while there is much to read and a person to see it."""

    def __init__(self) -> None:
        self._done = self._compared = 0
        self._shown = sys.stderr.isatty()

    def __enter__(self) -> Self:
        return self

    def tell(self, size: int) -> None:
        self._done += size
        self._show()

    def compared(self, size: int) -> None:
        self._compared += size
        self._show()

    def _show(self) -> None:
        if self._shown:
            more = f", {self._compared / 1e6:,.0f} MB compared" if self._compared else ""
            sys.stderr.write(f"\r{self._done / 1e6:,.0f} MB read{more} ")
            sys.stderr.flush()

    def __exit__(self, *_: object) -> None:
        if self._shown and (self._done or self._compared):
            sys.stderr.write("\r\x1b[K")


def _print(answer: Answer, *, as_json: bool, verbose: bool) -> None:
    with _until_closed():
        if as_json:
            from bot.render.report_json import dumps

            sys.stdout.buffer.write(dumps(answer.report, answer.timing) + b"\n")
        else:
            from bot.render.terminal import show

            show(answer.report, verbose=verbose)
        sys.stdout.flush()


def _draw(answer: Answer, file: Path) -> None:
    from bot.render.timeline import loads
    from bot.render.timeline_png import draw

    try:
        file.write_bytes(draw(loads(answer.timeline())))
    except (OSError, ValueError) as error:
        _usage(f"{file}: the picture cannot be written: {getattr(error, 'strerror', None) or error}")


@contextmanager
def _until_closed() -> Iterator[None]:
    """Write as long as somebody reads: `| head` has seen enough; the report was made, and is kept."""
    try:
        yield
    except BrokenPipeError:
        _to_nowhere()


def _to_nowhere() -> None:
    """Let what is still in the buffers of stdout go nowhere, so that the interpreter's end does not complain of it."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _small(answer: Answer) -> dict[str, bytes]:
    """What the page of an incident shows besides the report."""
    from bot.pages.attachments import small

    return small(answer)


def _each(known: Knowledge, folder: Path, workers: int | None) -> bool:
    """One line of JSON a bundle; whether there was a fault in any."""
    from bot.diagnosis.batch import bundles, reports
    from bot.render.report_json import dumps
    from bot.runtime.errors import NothingCollected

    _must_be_folder(folder)
    folders = bundles(folder)
    if not folders:
        raise NothingCollected(f"{folder}: there is no subfolder in it")
    failed = False
    with _until_closed(), closing(reports(known, folders, workers)) as found:
        for report, timing in found:
            failed = failed or report.verdict == "fault"
            sys.stdout.buffer.write(dumps(report, timing) + b"\n")
            sys.stdout.flush()
    return failed


def _must_be_folder(folder: Path) -> None:
    if not os.path.isdir(folder):  # noqa: PTH112 - never raises
        _usage(f"{folder}: there is no such folder")


@app.command()
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
    from bot.cli.watch import Asked, seconds
    from bot.cli.watch import watch as run

    asked = Asked(
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
    raise typer.Exit(run(_knowledge(rules, site), asked, as_json=as_json))


@app.command()
def serve(
    config: ConfigFile = None,
) -> None:
    """Listen to alerts of Alertmanager and Grafana, and diagnose the jobs that they name, until stopped."""
    from bot.cli.serve import run

    run(config)


@app.command()
def logs(
    targets: Targets = None,
    rank: Annotated[str | None, typer.Option("--rank", "-r", metavar="7 | 0-3,8", help="Of these ranks only.")] = None,
    node: Annotated[str | None, typer.Option("--node", metavar="NAME", help="Of this node only.")] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="10m | TIME", help="So long before the end of the logs, or from a time on."),
    ] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="5m | TIME", help="Likewise, up to there.")] = None,
    grep: Annotated[str | None, typer.Option("--grep", "-g", metavar="REGEX", help="Lines that match (RE2).")] = None,
    ignore_case: Annotated[bool, typer.Option("--ignore-case", "-i", help="With --grep.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what is written; end it with Ctrl-C.")
    ] = False,
    bundle: BundleFolder = None,
    paths: AreLogs = False,
    config: ConfigFile = None,
    cluster: OfCluster = None,
    tenant: OfTenant = "default",
    namespace: OfNamespace = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Show a job's logs: all ranks' lines in order of time, with rank and time beside them, secrets masked."""
    from bot.cli.logs import AskedLogs, request_of
    from bot.cli.logs import run as show_logs

    if sum((bundle is not None, paths)) > 1 or (bundle is not None and targets):
        _usage("give one of JOB, --bundle DIR and --logs PATH…")
    if bundle is not None:
        _must_be_folder(bundle)
    elif not targets:
        _usage("say whose logs: a JOB, --bundle DIR, or --logs PATH…")
    elif not paths and len(targets) > 1:
        _usage("name one JOB; with --logs all names are paths")
    elif not paths:
        _must_be_configured(targets[0], config, "logs")
    request = None if paths or not targets else request_of(targets[0], tenant, cluster, namespace, since)
    asked = AskedLogs(
        tuple(targets or ()), bundle, paths, config, request, rank, node, since, until, grep, ignore_case, follow
    )
    with _until_closed():
        try:
            show_logs(lambda: _knowledge(None), asked, as_json=as_json, complain=_complain)
        except KeyboardInterrupt:
            raise typer.Exit(130) from None


@app.command()
def evaluate(
    cases: Annotated[Path, typer.Argument(help="A folder of cases: <case>/case.yaml and <case>/logs/.")],
    as_json: Annotated[bool, typer.Option("--json")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Also each case that was not right.")] = False,
    rules: RulesFolder = None,
    site: SiteFolder = None,
    workers: Workers = None,
) -> None:
    """Measure: top-1, top-3, false alarms, needles, over cases with known causes."""
    from bot.authoring.accuracy import evaluate_cases, render, to_json

    _must_be_folder(cases)
    result = evaluate_cases(_knowledge(rules, site), cases, workers)
    typer.echo(to_json(result) if as_json else render(result, verbose=verbose))


@app.command()
def backfill(
    last: Annotated[str, typer.Option("--last", metavar="SPAN", help="How far back, as 30d.")] = "30d",
    job: Annotated[
        str, typer.Option("--job", metavar="PATTERN", help="Jobs of this name or id alone, as llm-*.")
    ] = "*",
    limit: Annotated[int, typer.Option("--limit", min=1, max=20_000, help="Failures looked at, the newest.")] = 500,
    tenant: OfTenant = "default",
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures (signalbox.backfill/1).")] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the last one, which was stopped or killed.")
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the reports among the incidents, as backfilled.")] = False,
    config: ConfigFile = None,
    workers: Workers = None,
) -> None:
    """Past jobs of the connected systems: what it would have said of them, how often, how many a day. Nothing is posted."""
    from bot.cli.backfill import run as run_backfill

    status = run_backfill(last, job, limit, tenant, config, as_json=as_json, resume=resume, keep=keep, workers=workers)
    if status:
        raise typer.Exit(status)


@app.command()
def digest(
    week: Annotated[
        str | None, typer.Option("--week", metavar="2026-W47", help="An ISO week; else the last whole one.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write one page that needs no other file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers (signalbox.digest/1).")] = False,
    tenant: Annotated[str, typer.Option("--tenant", help="Whose failures.")] = "default",
    zone: Annotated[
        str | None,
        typer.Option("--zone", metavar="Europe/Berlin", help="Time zone of the week; else the tenant's, or UTC."),
    ] = None,
    meanings: Annotated[bool, typer.Option("--meanings", help="Print what each figure means.")] = False,
) -> None:
    """The failures of a week in figures: by class, trend, time to recover, nodes, own record."""
    from bot.cli.digest import run as run_digest

    with _until_closed():
        run_digest(week, tenant, zone, html, as_json=as_json, meanings=meanings)


@app.command()
def demo(
    as_json: Annotated[bool, typer.Option("--json")] = False,
    fill: Annotated[
        bool, typer.Option("--fill", help="Put made-up incidents into an empty store, to try the digest and the pages.")
    ] = False,
    days: Annotated[int, typer.Option("--days", min=1, max=730, help="With --fill: how many days of them.")] = 140,
    seed: Annotated[int, typer.Option("--seed", help="With --fill: another number makes other incidents.")] = 7,
    chat: Annotated[
        bool, typer.Option("--chat", help="Open a chat of your own in the browser, with the Slack app in it.")
    ] = False,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="With --chat: where it listens.")] = 8780,
) -> None:
    """Diagnose an incident that ships with Signalbox: nothing to configure."""
    if chat:
        from bot.cli.demo import run as run_chat

        run_chat(port)
        return
    if fill:
        from bot.cli.digest import fill as fill_store

        fill_store(days, seed)
        return
    from bot.diagnosis.diagnose import diagnose_bundle

    folder = Path(__file__).parents[1] / "demo" / "incidents" / "shard-corrupt"
    with _until_closed():
        if not as_json:
            typer.echo(f"A real failure of 8 ranks on 2 nodes, recorded in {folder}\n")
    _print(diagnose_bundle(_knowledge(None), folder), as_json=as_json, verbose=False)


def _knowledge(folder: Path | None, site: Path | None = None) -> Knowledge:
    from bot.rulebase.loader import knowledge

    known = knowledge(folder, site)
    first = {fault.file: fault for fault in reversed(known.faults)}  # of each file its first one
    for file in sorted(first)[:FEW]:
        _complain(f"left out of the rules: {first[file]}")
    if len(first) > FEW:
        _complain(f"{len(first) - FEW} more rule files left out; see `signalbox rules lint`")
    return known


def _usage(message: str) -> NoReturn:
    _complain(message)
    raise typer.Exit(2)


def _complain(message: str) -> None:
    """One line on stderr, whatever names and bytes are in it."""
    from bot.render.phrases import shown

    text = shown(message)
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}"
    typer.echo(f"signalbox: {text}", err=True)


def main() -> None:
    """Run the command; errors that a person can mend are told in one line."""
    from bot.runtime.errors import exit_status

    if sys.stdout is None or sys.stderr is None:  # closed by whoever started us
        nowhere = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - until the end
        sys.stdout, sys.stderr = sys.stdout or nowhere, sys.stderr or nowhere
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names of files may hold anything
    try:
        app(standalone_mode=True)
    except RuleError as error:
        for fault in error.faults[:FEW]:
            _complain(str(fault))
        sys.exit(exit_status(error))
    except SignalboxError as error:
        _complain(str(error))
        sys.exit(exit_status(error))
    except OSError as error:  # of the output, most likely: what a source lacks is a gap
        _complain(str(error))
        _to_nowhere()
        sys.exit(2)


if __name__ == "__main__":
    main()
