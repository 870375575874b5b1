"""`signalbox diagnose`: what was asked for, where the evidence comes from, and what becomes of the answer."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from bot.cli.console import ProgressBar, complain, load_rules, must_be_configured, must_be_folder, refuse, until_closed
from bot.cli.diagnose_options import DiagnoseOptions
from bot.cli.incident_store import IncidentMemory
from bot.cli.targets import STDIN, resolve_targets

if TYPE_CHECKING:
    from bot.collection.collect import ProtectedBundles, Spare
    from bot.config.file import Config
    from bot.diagnosis.diagnose import ComparisonOptions, DiagnosisResult
    from bot.rulebase.loader import Knowledge


def run(options: DiagnoseOptions) -> int:
    """Diagnose, print, keep; the exit status.

    Raises:
        SignalboxError: nothing could be read, or the rule base cannot be used.
    """
    _check(options)
    options = resolve_targets(options)
    known = load_rules(options.rules, options.site)
    if options.each is not None:
        if options.picture is not None or options.html is not None:
            refuse("--picture and --html go with one run, and not with --each")
        failed = _diagnose_each(known, options.each, options.workers)
        return 1 if options.fail_on and failed else 0
    if options.engine == "ray" and find_spec("ray") is None:
        refuse("--engine ray needs Ray: pip install 'signalbox[ray]'")
    with ExitStack() as stack:
        piped = options.logs and options.targets == (STDIN,)
        folder = stack.enter_context(_standard_input()) if piped else None
        memory = stack.enter_context(IncidentMemory(options.tenant, on=options.store))
        answer, bundle = _diagnose(known, options, memory, folder)
        _deliver(known, options, answer, bundle, memory)
    if options.exit_decision:
        from bot.runtime.errors import decision_status

        return decision_status(answer.report)
    return 1 if options.fail_on and answer.report.verdict == "fault" else 0


def print_answer(answer: DiagnosisResult, *, as_json: bool, verbose: bool) -> None:
    """Print the report, for a person or as JSON."""
    with until_closed():
        if as_json:
            from bot.render.report_json import dumps

            sys.stdout.buffer.write(dumps(answer.report, answer.timing) + b"\n")
        else:
            from bot.render.terminal import show

            show(answer.report, verbose=verbose)
        sys.stdout.flush()


# -- what was asked ------------------------------------------------------------------------------------------------------


def _check(options: DiagnoseOptions) -> None:
    """Refuse options that contradict each other."""
    if options.fail_on not in (None, "fault"):
        refuse("--fail-on knows one word: fault")
    if options.exit_decision and (options.fail_on or options.each is not None):
        refuse("--exit-decision goes with one run, and not with --fail-on")
    if sum((options.bundle is not None, options.logs, options.each is not None)) > 1:
        refuse("give one of --bundle, --logs and --each")
    if options.targets and not options.logs and (options.bundle is not None or options.each is not None):
        refuse("with --bundle and --each there is no JOB")


# -- where the evidence comes from ---------------------------------------------------------------------------------------


def _standard_input() -> AbstractContextManager[Path]:
    from bot.cli.standard_input import spooled_stdin

    return spooled_stdin()


def _diagnose(
    known: Knowledge, options: DiagnoseOptions, memory: IncidentMemory, piped: Path | None
) -> tuple[DiagnosisResult, Path | None]:
    """The answer, and the bundle that it is of. `piped`: the folder with what came by standard input."""
    if options.names_a_job:
        if options.baseline is not None:
            refuse("--baseline goes with --bundle and --logs")
        return _diagnose_job(known, options, memory)
    if options.save is not None or options.window is not None:
        refuse("--save-bundle and --window go with a JOB")
    return _diagnose_files(known, options, memory, piped), options.bundle


def _diagnose_files(
    known: Knowledge, options: DiagnoseOptions, memory: IncidentMemory, piped: Path | None
) -> DiagnosisResult:
    """The answer on a bundle, or on log files and folders."""
    compare = _compare(options, memory)
    recall = memory.recall(known, options.cluster)
    from bot.diagnosis.diagnose import diagnose_bundle, diagnose_paths

    with ProgressBar() as bar:
        compare = replace(compare, tell=bar.compared)
        if options.bundle is not None:
            must_be_folder(options.bundle)
            return diagnose_bundle(
                known, options.bundle, workers=options.workers, tell=bar.tell, compare=compare, recall=recall
            )
        if not options.targets:
            refuse("say what to diagnose: a path (log, folder of logs, bundle), --logs - for standard input, or a JOB")
        paths = [piped] if piped is not None else [Path(target) for target in options.targets]
        return diagnose_paths(
            known, paths, root=piped, workers=options.workers, tell=bar.tell, compare=compare, recall=recall
        )


def _diagnose_job(known: Knowledge, options: DiagnoseOptions, memory: IncidentMemory) -> tuple[DiagnosisResult, Path]:
    """The answer on a job that the configured systems know, and the folder of its evidence."""
    [job, *more] = options.targets
    if more:
        refuse("name one JOB; with --logs all names are paths")
    must_be_configured(job, options.config, "diagnose")
    from bot.cli.watch import seconds
    from bot.config.file import read
    from bot.diagnosis.job import JobRequest, diagnose_job
    from bot.live.bundle_writer import fresh_folder

    request = JobRequest(
        job,
        options.tenant,
        options.cluster,
        options.namespace,
        last=seconds(options.window) if options.window else None,
        deadline=seconds(options.deadline) if options.deadline else None,
        save=fresh_folder(options.save) if options.save else None,
        deep=options.deep,
    )
    configured = read(options.config)
    with ProgressBar() as bar:
        found = diagnose_job(
            known,
            configured,
            request,
            workers=options.workers,
            tell=_source_progress(),
            spare=_sparing(configured),
            compare=replace(_compare(options, memory), tell=bar.compared),
            recall=lambda located: memory.recall_of(known, located),
        )
    if options.save:
        complain(f"the evidence is kept in {options.save}")
    return found.answer, found.collected.folder


def _compare(options: DiagnoseOptions, memory: IncidentMemory) -> ComparisonOptions:
    """How to look at what no rule knows."""
    return replace(memory.compare(options.baseline, options.workers, always=options.deep), engine=options.engine)


def _sparing(config: Config) -> Spare:
    """What eviction must leave; the store is opened only where something must go."""

    def ask() -> ProtectedBundles:
        from bot.retention.evidence import sparing
        from bot.runtime.paths import database_url

        return sparing(database_url(), config.retention)()

    return ask


def _source_progress() -> Callable[[str, str], None]:
    """What each source says while it is collected, on stderr where a person sees it."""
    shown = sys.stderr.isatty()

    def tell(name: str, words: str) -> None:
        if shown:
            complain(f"{name}: {words}")

    return tell


def _diagnose_each(known: Knowledge, folder: Path, workers: int | None) -> bool:
    """One line of JSON a bundle; whether there was a fault in any."""
    from bot.diagnosis.batch import bundles, reports
    from bot.render.report_json import dumps
    from bot.runtime.errors import NothingCollected

    must_be_folder(folder)
    folders = bundles(folder)
    if not folders:
        raise NothingCollected(f"{folder}: there is no subfolder in it")
    failed = False
    with until_closed(), closing(reports(known, folders, workers)) as found:
        for report, timing in found:
            failed = failed or report.verdict == "fault"
            sys.stdout.buffer.write(dumps(report, timing) + b"\n")
            sys.stdout.flush()
    return failed


# -- what becomes of the answer ------------------------------------------------------------------------------------------


def _deliver(
    known: Knowledge, options: DiagnoseOptions, answer: DiagnosisResult, bundle: Path | None, memory: IncidentMemory
) -> None:
    """Print the answer, draw and write what was asked for, and keep it."""
    print_answer(answer, as_json=options.as_json, verbose=options.verbose)
    if options.picture is not None:
        _draw(answer, options.picture)
    kept = _attachments(answer) if options.html is not None or memory.on else {}
    if options.html is not None:
        from bot.cli.html import write_answer

        write_answer(known, answer.report, kept, options.html)
    if memory.on:
        warning = memory.keep(answer, bundle, kept)
        if warning:
            complain(warning)
        whole = (
            options.deep or not options.targets
        )  # of a job's logs in a store only the lines that rules want are fetched
        told = memory.keep_good(known, answer, bundle if whole else None)
        if told is not None and sys.stderr.isatty():
            complain(f"this run is {told}")


def _draw(answer: DiagnosisResult, file: Path) -> None:
    from bot.render.raster import png
    from bot.render.timeline import loads
    from bot.render.timeline_svg import draw

    try:
        svg = draw(loads(answer.timeline()))
        file.write_bytes(svg.encode() if file.suffix.lower() == ".svg" else png(svg))
    except (OSError, ValueError) as error:
        refuse(f"{file}: the picture cannot be written: {getattr(error, 'strerror', None) or error}")


def _attachments(answer: DiagnosisResult) -> dict[str, bytes]:
    """What the page of an incident shows besides the report."""
    from bot.pages.attachments import small

    return small(answer)
