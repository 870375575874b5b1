"""`signalbox config`: check signalbox.yaml and its connectors, and show what it can contain."""

from __future__ import annotations

from collections.abc import Sized
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bot.cli.console import say, say_json
from bot.cli.options import ConfigFile

if TYPE_CHECKING:
    from bot.config.settings import Config
    from connectors.base.contract import CheckResult

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.command()
def check(
    path: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="The file to check, the same as --config.")
    ] = None,
    config: ConfigFile = None,
    seconds: Annotated[float, typer.Option("--for", min=1, max=600, help="How long to wait for replies.")] = 20.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per connector.")] = False,
) -> None:
    """Check the file and try every connector. Prints what works, what was sent and what to change. Exits 1 if one fails.

    Without FILE, checks the file that other commands read; without such a file, the signalbox.yaml of the current folder.
    """
    from bot.config.file import read
    from bot.diagnosis.job import check as try_all
    from bot.render.text_format import shown
    from connectors.base.contract import Deadline

    known = read(_checked_file(path, config))
    found = [
        (cluster, item.name, item.type, result)
        for cluster, item, result in try_all(known.clusters, Deadline.within(seconds))
    ]
    connectors = tuple(found)
    if known.serve.slack is not None:
        from bot.slack.service import check as try_slack

        found.append(("serve", "slack", known.serve.slack.mode, try_slack(known.serve.slack)))
    from bot.server.credentials import check_secrets

    found += [("serve", *checked) for checked in check_secrets(known.serve)]
    found += _rotas(known)
    found += _rules(known)
    if not as_json:
        say(f"{shown(str(known.path))}: {_count(known.clusters, 'cluster')}, {_count(connectors, 'connector')}")
    for cluster, name, kind, result in found:
        if as_json:
            import msgspec

            body = {"cluster": cluster, "connector": name, "type": kind, "works": result.works}
            say_json(msgspec.json.encode({**body, "words": result.words, "sent": result.sent, "change": result.change}))
            continue
        say(f"{'works ' if result.works else 'FAILS '} {cluster}/{name} ({kind}): {shown(result.words)}")
        if result.sent:
            say(f"         sent: {shown(result.sent)}")
        if result.change and result.change not in result.words:
            say(f"         change: {shown(result.change)}")
    raise typer.Exit(0 if all(result.works for *_, result in found) else 1)


def _checked_file(path: Path | None, config: Path | None) -> Path | None:
    """Return the file to check; None for the one that other commands read by themselves.

    They do not read the current folder, because it may belong to somebody else, so the user is told how to name a file there.
    """
    from bot.cli.console import refuse
    from bot.runtime.paths import CONFIG, FILE_NAME, config_path, default_config

    if path is not None and config is not None and path != config:
        refuse("give the file once: as FILE or with --config")
    named, here = path or config, Path(FILE_NAME)
    if named is not None:
        return named
    used = config_path()
    if not here.is_file():
        if used is None:
            refuse(
                f"no configuration to check: neither {default_config()} nor ./{FILE_NAME} exists. Files and bundles work"
                " without one; `signalbox config example` prints one to start from."
            )
        return None
    if used is None:
        told = f"checks ./{FILE_NAME}; other commands read it with --config, ${CONFIG}, or as {default_config()}"
        say(f"signalbox: {told}", err=True)
        return here
    if used.resolve() != here.resolve():
        say(f"signalbox: checks {used}, not ./{FILE_NAME}; `config check {FILE_NAME}` checks that one", err=True)
    return None


def _rotas(known: Config) -> list[tuple[str, str, str, CheckResult]]:
    """Try the schedules of people on call."""
    found = []
    for name, tenant in known.tenants_of_chat.items():
        if tenant.on_call is not None and tenant.on_call.pagerduty is not None:
            from bot.incidents.on_call import check as try_schedule

            found.append(("tenants", f"{name}/on_call", "pagerduty", try_schedule(tenant.on_call.pagerduty)))
    return found


def _rules(known: Config) -> list[tuple[str, str, str, CheckResult]]:
    """Check the source of the rules and the forge for proposed rules, without writing to either."""
    found = []
    if known.rules.source is not None:
        from bot.rulebase.reload import check as try_source

        kind = "git" if known.rules.source.git is not None else "folder"
        found.append(("rules", "source", kind, try_source(known.rules.source)))
    if known.rules.pull_requests is not None:
        from bot.forges.registry import forge_of

        settings = known.rules.pull_requests
        found.append(("rules", "pull_requests", settings.backend, forge_of(settings).check()))
    return found


def _count(things: Sized, word: str) -> str:
    return f"{len(things)} {word}{'' if len(things) == 1 else 's'}"


@app.command()
def example(
    shipper: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="NAME",
            help="Only this connector type, such as folders or slurm; or a log store with the labels of this log shipper:"
            " alloy, docker, filebeat, fluent-bit, journal, otel, promtail or vector.",
        ),
    ] = None,
) -> None:
    """Print a commented signalbox.yaml with every connector type, or for one connector or log shipper."""
    from bot.config.docs import example_text
    from bot.config.single_examples import example_for

    say(example_text() if shipper is None else example_for(shipper), end="")


@app.command()
def schema() -> None:
    """Print the JSON Schema of signalbox.yaml, for editors."""
    from bot.config.docs import schema_text

    say(schema_text(), end="")
