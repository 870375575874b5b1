"""The options of `signalbox diagnose`, as a single value."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bot.diagnosis.template_pool import Engine


@dataclass(frozen=True, slots=True)
class DiagnoseOptions:
    """The options of `signalbox diagnose`; `targets` are paths with `logs`, else a job's name. `job`: never read it as a path."""

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
    store: bool = True
    rules: Path | None = None
    site: Path | None = None
    workers: int | None = None

    @property
    def names_a_job(self) -> bool:
        """Whether to diagnose a job of the configured systems."""
        return bool(self.targets) and not self.logs and self.bundle is None
