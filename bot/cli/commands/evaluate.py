"""The options of `signalbox evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bot.cli.console import load_rules, must_be_folder, say, say_json
from bot.cli.options import RulesFolder, SiteFolder, Workers


def evaluate(
    cases: Annotated[Path, typer.Argument(help="A folder of cases: <case>/case.yaml and <case>/logs/.")],
    as_json: Annotated[bool, typer.Option("--json")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Also list each case that was wrong.")] = False,
    labels: Annotated[
        Path | None,
        typer.Option(
            help="A YAML file that lists, for each case id, the accepted advice and whether the run is known to have completed."
        ),
    ] = None,
    rules: RulesFolder = None,
    site: SiteFolder = None,
    workers: Workers = None,
) -> None:
    """Measure accuracy on cases with known causes: top-1, top-3, false alarms, quoted needles, harmful answers."""
    from bot.authoring.accuracy import evaluate_cases, render, to_json

    must_be_folder(cases)
    result = evaluate_cases(load_rules(rules, site), cases, workers, labels)
    if as_json:
        say_json(to_json(result).encode())
    else:
        say(render(result, verbose=verbose))
