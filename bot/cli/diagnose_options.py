"""The options of `signalbox diagnose`, as a single value, and the plain ones read from arguments."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kb.values import dataclass

if TYPE_CHECKING:
    from bot.diagnosis.template_pool import Engine


@dataclass(frozen=True, slots=True)
class DiagnoseOptions:
    """The options of `signalbox diagnose`; `targets` are paths with `logs`, else a job's name. `job`: never read it as a path.

    `store`: None stores a single answer, and none of those of `each`.
    """

    targets: tuple[str, ...] = ()
    job: bool = False
    bundle: Path | None = None
    logs: bool = False
    each: Path | None = None
    config: Path | None = None
    cluster: str | None = None
    tenant: str = "default"
    namespace: str | None = None
    window: str | None = None
    deadline: str | None = None
    save: Path | None = None
    deep: bool = False
    baseline: Path | None = None
    engine: Engine = "local"
    as_json: bool = False
    fail_on: str | None = None
    exit_decision: bool = False
    verbose: bool = False
    picture: Path | None = None
    html: Path | None = None
    store: bool | None = None
    rules: Path | None = None
    site: Path | None = None
    workers: int | None = None
    state: str | None = None
    exit_code: int | None = None
    gpus: int | None = None

    @property
    def names_a_job(self) -> bool:
        """Whether to diagnose a job of the configured systems."""
        return bool(self.targets) and not self.logs and self.bundle is None


_FLAGS = {
    "--logs": ("logs", True),
    "--job": ("job", True),
    "--deep": ("deep", True),
    "--json": ("as_json", True),
    "--exit-decision": ("exit_decision", True),
    "--verbose": ("verbose", True),
    "-v": ("verbose", True),
    "--store": ("store", True),
    "--no-store": ("store", False),
}
_FOLDERS = {"--bundle": "bundle", "--rules": "rules", "--site": "site"}


def plain_options(arguments: list[str]) -> DiagnoseOptions | None:
    """Return the options of a plain `diagnose` command; None for another command, other options and anything unclear.

    typer (bot.cli.commands.diagnose) reads those. It gives the same options, but takes a quarter of a start.
    """
    if arguments[:1] != ["diagnose"]:
        return None
    given: dict[str, Any] = {}
    targets: list[str] = []
    rest = iter(arguments[1:])
    for argument in rest:
        if argument in _FLAGS:
            name, value = _FLAGS[argument]
            given[name] = value
        elif argument in _FOLDERS:
            folder = next(rest, "-")
            if folder.startswith("-"):
                return None
            given[_FOLDERS[argument]] = Path(folder)
        elif argument.startswith("-") and argument != "-":
            return None
        else:
            targets.append(argument)
    return DiagnoseOptions(targets=tuple(targets), **given)
