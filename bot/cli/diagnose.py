"""`signalbox diagnose`: check the options, collect the evidence, deliver the answer."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from bot.cli.console import (
    STDOUT,
    Progress,
    ReadProgress,
    complain,
    load_rules,
    masked,
    must_be_configured,
    must_be_folder,
    refuse,
    say,
    until_closed,
)
from bot.cli.diagnose_options import DiagnoseOptions
from bot.cli.incident_store import IncidentMemory, counted_stored, stored_as
from bot.cli.missing_paths import is_missing
from bot.cli.targets import STDIN, resolve_targets, source_of

if TYPE_CHECKING:
    from bot.collection.collect import ProtectedBundles, Spare
    from bot.config.settings import Config
    from bot.diagnosis.diagnose import ComparisonOptions, DiagnosisResult
    from bot.rulebase.loader import Knowledge
    from bot.store.report_writes import Stored
    from kb.facts.given_job import GivenJob
    from kb.report import Report


def run(options: DiagnoseOptions) -> int:
    """Diagnose, print and store. Returns the exit status.

    Raises:
        SignalboxError: nothing could be read, or the rule base cannot be used.
    """
    _check(options)
    options = resolve_targets(options)
    known = load_rules(options.rules, options.site)
    if options.each is not None:
        if options.picture is not None or options.html is not None:
            refuse("--picture and --html cannot be combined with --each")
        if _given(options) is not None:
            refuse("--state, --exit-code and --gpus are of one job, and cannot be combined with --each")
        failed = _diagnose_each(known, options, options.each)
        return 1 if options.fail_on and failed else 0
    if options.engine == "ray" and find_spec("ray") is None:
        refuse("--engine ray needs Ray: pip install 'signalbox[ray]'")
    with ExitStack() as stack:
        piped = options.logs and options.targets == (STDIN,)
        folder = stack.enter_context(_standard_input()) if piped else None
        memory = stack.enter_context(IncidentMemory(options.tenant, on=options.store is not False))
        memory.source = source_of(options)
        answer, bundle = _diagnose(known, options, memory, folder)
        _deliver(known, options, answer, bundle, memory)
    if options.exit_decision:
        from bot.runtime.errors import decision_status

        return decision_status(answer.report)
    return 1 if options.fail_on and answer.report.verdict == "fault" else 0


def print_answer(
    known: Knowledge,
    answer: DiagnosisResult,
    *,
    as_json: bool,
    verbose: bool,
    consoles: tuple[tuple[str, str], ...] = (),
    above: int = 0,
) -> None:
    """Print the report, for a person or as JSON.

    `consoles`: names and addresses of dashboards and logs; `above`: rows printed before it.
    """
    from bot.diagnosis.command_paths import runnable

    report = runnable(answer)
    with until_closed():
        if as_json:
            from bot.cli.console import say_masked_json
            from bot.render.report_json import dumps

            say_masked_json(dumps(report, answer.timing))
        else:
            from bot.render.telling_words import telling_words
            from bot.render.terminal import show
            from bot.render.text_page import Reading

            telling = telling_words(known.rulebook)
            show(report, Reading(verbose, telling, answer.root, consoles, heat=answer.heat()), above)
        sys.stdout.flush()


# -- the options ---------------------------------------------------------------------------------------------------------


def _check(options: DiagnoseOptions) -> None:
    """Refuse options that contradict each other."""
    if options.fail_on not in (None, "fault"):
        refuse("--fail-on accepts only: fault")
    if options.exit_decision and (options.fail_on or options.each is not None):
        refuse("--exit-decision cannot be combined with --fail-on or --each")
    if sum((options.bundle is not None, options.logs, options.each is not None)) > 1:
        refuse("give only one of --bundle, --logs and --each")
    if options.html == STDOUT:
        refuse("--html needs a file: the answer itself goes to standard output")
    if options.targets and not options.logs and (options.bundle is not None or options.each is not None):
        refuse("--bundle and --each take no JOB")


# -- where the evidence comes from ---------------------------------------------------------------------------------------


def _given(options: DiagnoseOptions) -> GivenJob | None:
    """Return what the options say of the job; None if they say nothing."""
    if options.state is None and options.exit_code is None and options.gpus is None:
        return None
    from kb.facts.given_job import GivenJob
    from kb.facts.scheduler_state import outcome_of

    if options.state is not None and outcome_of(options.state) is None:
        refuse(f"--state {options.state}: no scheduler's word; give FAILED, COMPLETED, RUNNING, CANCELLED or TIMEOUT")
    return GivenJob(options.state.upper() if options.state else None, options.exit_code, options.gpus)


def _standard_input() -> AbstractContextManager[Path]:
    from bot.cli.standard_input import spooled_stdin

    return spooled_stdin()


def _diagnose(
    known: Knowledge, options: DiagnoseOptions, memory: IncidentMemory, piped: Path | None
) -> tuple[DiagnosisResult, Path | None]:
    """The answer and its bundle. `piped`: the folder with the copy of standard input."""
    if options.names_a_job:
        if options.baseline is not None:
            refuse("--baseline needs --bundle or --logs")
        if _given(options) is not None:
            refuse("--state, --exit-code and --gpus need logs or a bundle: a JOB's scheduler is asked")
        return _diagnose_job(known, options, memory)
    if options.save is not None or options.window is not None:
        refuse("--save-bundle and --window need a JOB")
    return _diagnose_files(known, options, memory, piped), options.bundle


def _diagnose_files(
    known: Knowledge, options: DiagnoseOptions, memory: IncidentMemory, piped: Path | None
) -> DiagnosisResult:
    """Diagnose a bundle, or log files and folders."""
    given = _given(options)
    compare = _compare(options, memory)
    recall = memory.recall(known, options.cluster)
    from bot.diagnosis.diagnose import diagnose_bundle, diagnose_paths

    read = [options.bundle] if options.bundle is not None else [piped or Path(target) for target in options.targets]
    with ReadProgress(read) as bar:
        compare = replace(compare, tell=bar.compared)
        if options.bundle is not None:
            must_be_folder(options.bundle)
            return diagnose_bundle(
                known,
                options.bundle,
                workers=options.workers,
                tell=bar.tell,
                compare=compare,
                recall=recall,
                given=given,
            )
        if not options.targets:
            refuse(
                "nothing to diagnose; give a path (log, folder of logs, bundle), --logs - for standard input, or a JOB"
            )
        paths = [piped] if piped is not None else [Path(target) for target in options.targets]
        return diagnose_paths(
            known,
            paths,
            root=piped,
            workers=options.workers,
            tell=bar.tell,
            compare=compare,
            recall=recall,
            given=given,
        )


def _diagnose_job(known: Knowledge, options: DiagnoseOptions, memory: IncidentMemory) -> tuple[DiagnosisResult, Path]:
    """Diagnose a job of the configured systems. Returns the answer and the folder of its evidence."""
    [job, *more] = options.targets
    if more:
        refuse("give a single JOB; several arguments are only valid with --logs")
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
    memory.config = configured = read(options.config)
    with ReadProgress() as bar, _no_such_path(job):
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
        complain(f"evidence saved to {options.save}")
    return found.answer, found.collected.folder


@contextmanager
def _no_such_path(job: str) -> Iterator[None]:
    """Say with an unknown job that it is no path either: the word may be a mistyped folder; and how to wait longer for sources."""
    from bot.collection.find_job import JobNotFound
    from bot.runtime.errors import NothingCollected
    from connectors.base.contract import OUT_OF_TIME

    try:
        yield
    except NothingCollected as error:
        if OUT_OF_TIME in str(error):
            error.args = (f"{error}; `--deadline 3m` waits longer",)
        raise
    except JobNotFound as error:
        if is_missing(job):
            error.args = (f"{error}; there is no file or folder of that name either",)
        raise


def _compare(options: DiagnoseOptions, memory: IncidentMemory) -> ComparisonOptions:
    """How to compare failures that no rule matches."""
    return replace(memory.compare(options.baseline, options.workers, always=options.deep), engine=options.engine)


def _sparing(config: Config) -> Spare:
    """Which bundles eviction must keep; the store is opened only if something must be evicted."""

    def ask() -> ProtectedBundles:
        from bot.retention.evidence import sparing
        from bot.runtime.paths import database_url

        return sparing(database_url(), config.retention)()

    return ask


def _source_progress() -> Callable[[str, str], None]:
    """Show the progress of each source on stderr, if it is a terminal."""
    shown = sys.stderr.isatty()

    def tell(name: str, words: str) -> None:
        if shown:
            complain(f"{name}: {words}")

    return tell


def _diagnose_each(known: Knowledge, options: DiagnoseOptions, folder: Path) -> bool:
    """Print the cause and the decision of each bundle, or one line of JSON. Returns whether any has a fault.

    Stores them only with --store: such a folder is often an archive, whose failures are no news.
    """
    from bot.cli.console import say_masked_json
    from bot.cli.incident_store import storable
    from bot.diagnosis.batch import bundles, reports_and
    from bot.render.report_json import dumps
    from bot.runtime.errors import NothingCollected

    must_be_folder(folder)
    folders = bundles(folder)
    if not folders:
        raise NothingCollected(f"{folder}: it has no subfolders")
    failed, warnings = False, dict[str, None]()
    stored: dict[int, Stored] = {}
    made = partial(storable, tenant=options.tenant) if options.store else None
    found = reports_and(made, known, folders, options.workers)
    with Progress("bundles", len(folders)) as bar, until_closed(), closing(found):
        for number, ((report, timing), answer) in enumerate(found, 1):
            bar.tell(number)
            failed = failed or report.verdict == "fault"
            if options.as_json:
                say_masked_json(dumps(report, timing))
            else:
                _say_short(report)
            if answer is not None:
                warning = answer.keep(partial(stored.__setitem__, number))
                warnings |= {warning: None} if warning else {}
    for warning in warnings:
        complain(warning)
    if options.store:
        complain(f"{counted_stored(tuple(stored.values()), len(folders))}; `signalbox incidents list` shows them")
    elif sys.stdout.isatty() and not options.as_json:
        complain("nothing was stored; --store saves each as an incident")
    return failed


def _say_short(report: Report) -> None:
    """Print the cause and the decision of one of several reports."""
    from bot.render.decisions import decided
    from bot.render.headline import headline
    from bot.render.text_format import shown

    say(shown(masked(f"{report.bundle}: {headline(report)}")))
    say(shown(masked(f"    {decided(report)}")))


# -- delivering the answer -----------------------------------------------------------------------------------------------


def _deliver(
    known: Knowledge, options: DiagnoseOptions, answer: DiagnosisResult, bundle: Path | None, memory: IncidentMemory
) -> None:
    """Print the answer, write the requested picture and page, and store it."""
    from bot.diagnosis.command_paths import runnable

    lasting = replace(answer, report=runnable(answer, anywhere=True))
    memory.promise(lasting, bundle)
    brief = not (options.as_json or options.verbose)
    to_learn = brief and answer.report.verdict == "no_match"
    unsettled = any(gap.code == "state_unknown" for gap in answer.report.gaps) and not options.names_a_job
    to_settle = brief and unsettled
    print_answer(
        known,
        answer,
        as_json=options.as_json,
        verbose=options.verbose,
        consoles=memory.consoles(answer.report),
        above=int(to_learn or to_settle),
    )
    if to_settle and sys.stdout.isatty():
        say("Once you know how it ended: diagnose again with --state COMPLETED, FAILED or RUNNING.")
    if to_learn and sys.stdout.isatty():
        say("Once you know the cause: -v shows a command that makes a rule of it.")
    if brief and options.baseline is not None:
        _say_compared(answer.report)
    if options.picture is not None:
        from bot.cli.picture import draw_picture

        draw_picture(answer, options.picture)
    kept = _attachments(answer) if options.html is not None or memory.on else {}
    if options.html is not None:
        from bot.cli.html import write_answer

        write_answer(known, lasting.report, kept, options.html)
    if memory.on:
        warning = memory.keep(lasting, bundle, kept)
        if warning:
            complain(warning)
        elif not options.as_json:  # in a pipe, too: whoever reads it later finds the incident by its number
            kind = "incident" if answer.report.verdict != "no_fault" else "run"
            say(stored_as(kind, memory.number, memory.stored))
        # without --deep, only the lines that rules need are fetched from a job's log store
        whole = options.deep or not options.targets
        told = memory.keep_good(known, answer, bundle if whole else None)
        if told is not None and sys.stderr.isatty():
            complain(f"this run is {told}")


def _say_compared(report: Report) -> None:
    """Say where to see the comparison that was asked for, if the answer does not show it."""
    from bot.render.indicators_text import comparison_not_shown

    if told := comparison_not_shown(report):
        complain(told)


def _attachments(answer: DiagnosisResult) -> dict[str, bytes]:
    """What the page of an incident shows in addition to the report."""
    from bot.pages.attachments import small

    return small(answer)
