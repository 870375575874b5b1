"""The command `signalbox`. Heavy modules are imported where they are needed: the answer must not wait for them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bot.cli_incidents import app as incidents
from bot.cli_rules import app as rules
from kb.errors import RuleError, SignalboxError

if TYPE_CHECKING:
    from bot.diagnosing import Answer
    from bot.rulefiles import Knowledge

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Finds the first cause of failed and hung large-model training runs, from their logs.",
)
app.add_typer(rules, name="rules", help="The rule base: list, show, lint, test.")
app.add_typer(incidents, name="incidents", help="Past reports: list, show.")

RulesFolder = Annotated[Path | None, typer.Option("--rules", help="A rules folder in place of the one installed.")]
Workers = Annotated[int | None, typer.Option("--workers", min=1, help="Processes to read with; all cores by default.")]


@app.command()
def diagnose(
    targets: Annotated[
        list[str] | None, typer.Argument(metavar="JOB | PATH…", help="With --logs: files and folders.")
    ] = None,
    bundle: Annotated[
        Path | None, typer.Option("--bundle", help="A folder that holds the evidence of one job.")
    ] = None,
    logs: Annotated[bool, typer.Option("--logs", help="All positionals are log files or folders.")] = False,
    each: Annotated[
        Path | None, typer.Option("--each", help="Every subfolder is a bundle; one JSON report a line.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON (signalbox.report/1).")] = False,
    fail_on: Annotated[
        str | None, typer.Option("--fail-on", metavar="fault", help="Exit 1 where a fault is found.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="More diagnoses, all reasons, all gaps.")] = False,
    store: Annotated[bool, typer.Option("--store/--no-store", help="Keep the report among the incidents.")] = True,
    rules: RulesFolder = None,
    workers: Workers = None,
) -> None:
    """Say why a job failed: the first cause, who is at fault, the lines that show it, what to do."""
    if fail_on not in (None, "fault"):
        _usage("--fail-on knows one word: fault")
    if sum((bundle is not None, logs, each is not None)) > 1:
        _usage("give one of --bundle, --logs and --each")
    known = _knowledge(rules)
    if each is not None:
        _each(known, each, workers)
        return
    answer = _one(known, targets or [], bundle, logs=logs, workers=workers)
    _print(answer, as_json=as_json, verbose=verbose)
    if store:
        _keep(answer, bundle)
    if fail_on and answer.report.verdict == "fault":
        raise typer.Exit(1)


def _one(known: Knowledge, targets: list[str], bundle: Path | None, *, logs: bool, workers: int | None) -> Answer:
    from bot.diagnosing import diagnose_bundle, diagnose_paths

    if bundle is not None:
        if targets:
            _usage("with --bundle there is no JOB")
        if not bundle.is_dir():
            _usage(f"{bundle}: there is no such folder")
        with _Bar(bundle) as bar:
            return diagnose_bundle(known, bundle, workers=workers, tell=bar.tell)
    if not targets:
        _usage("say what to diagnose: --logs PATH…, --bundle DIR, or a JOB")
    if not logs:
        hint = f"; did you mean `signalbox diagnose --logs {targets[0]}`?" if Path(targets[0]).exists() else ""
        _usage(f"no connector is configured that could find the job {targets[0]!r}{hint}")
    paths = [Path(target) for target in targets]
    with _Bar(*paths) as bar:
        return diagnose_paths(known, paths, workers=workers, tell=bar.tell)


class _Bar:
    """Progress on stderr while there is much to read and a person to see it."""

    def __init__(self, *paths: Path) -> None:
        self._paths, self._done = paths, 0
        self._shown = sys.stderr.isatty()

    def __enter__(self) -> _Bar:
        return self

    def tell(self, size: int) -> None:
        self._done += size
        if self._shown:
            sys.stderr.write(f"\r{self._done / 1e6:,.0f} MB read ")
            sys.stderr.flush()

    def __exit__(self, *_: object) -> None:
        if self._shown and self._done:
            sys.stderr.write("\r\x1b[K")


def _print(answer: Answer, *, as_json: bool, verbose: bool) -> None:
    if as_json:
        from bot.reportjson import dumps

        sys.stdout.buffer.write(dumps(answer.report, answer.timing) + b"\n")
        sys.stdout.buffer.flush()
        return
    from bot.terminal import show

    show(answer.report, verbose=verbose)
    sys.stdout.flush()


def _keep(answer: Answer, bundle: Path | None) -> None:
    from bot.store import remember

    warning = remember(answer.report, answer.replay, str(bundle) if bundle else None)
    if warning:
        typer.echo(f"signalbox: {warning}", err=True)


def _each(known: Knowledge, folder: Path, workers: int | None) -> None:
    from bot.batch import diagnose_each

    if not folder.is_dir():
        _usage(f"{folder}: there is no such folder")
    for line in diagnose_each(known, folder, workers):
        sys.stdout.buffer.write(line + b"\n")
        sys.stdout.buffer.flush()


@app.command()
def evaluate(
    cases: Annotated[Path, typer.Argument(help="A folder of cases: <case>/case.yaml and <case>/logs/.")],
    as_json: Annotated[bool, typer.Option("--json")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Also each case that was not right.")] = False,
    rules: RulesFolder = None,
    workers: Workers = None,
) -> None:
    """Measure: top-1, top-3, false alarms, needles, over cases with known causes."""
    from bot.accuracy import evaluate_cases, render, to_json

    if not cases.is_dir():
        _usage(f"{cases}: there is no such folder")
    result = evaluate_cases(_knowledge(rules), cases, workers)
    typer.echo(to_json(result) if as_json else render(result, verbose=verbose))


@app.command()
def demo(
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Diagnose an incident that ships with Signalbox: nothing to configure."""
    from bot.diagnosing import diagnose_bundle

    folder = Path(__file__).with_name("_demo") / "shard-corrupt"
    if not as_json:
        typer.echo(f"A real failure of 8 ranks on 2 nodes, recorded in {folder}\n")
    _print(diagnose_bundle(_knowledge(None), folder), as_json=as_json, verbose=False)


def _knowledge(folder: Path | None) -> Knowledge:
    from bot.rulefiles import knowledge

    known = knowledge(folder)
    for fault in known.faults[:5]:
        typer.echo(f"signalbox: rule left out: {fault}", err=True)
    if len(known.faults) > 5:
        typer.echo(f"signalbox: {len(known.faults) - 5} more; see `signalbox rules lint`", err=True)
    return known


def _usage(message: str) -> None:
    typer.echo(f"signalbox: {message}", err=True)
    raise typer.Exit(2)


def main() -> None:
    """Run the command; errors that a person can mend are told in one line."""
    from bot.errors import exit_status

    try:
        app(standalone_mode=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except (SignalboxError, RuleError) as error:
        typer.echo(f"signalbox: {error}", err=True)
        sys.exit(exit_status(error))


if __name__ == "__main__":
    main()
