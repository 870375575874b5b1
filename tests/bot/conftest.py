"""The command as its users run it, in a process of its own, and the rule base loaded once."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import typer
from sqlalchemy import create_engine

from bot.rulebase.loader import Knowledge, default_folder
from tests.support.chromium import chromium
from tests.support.databases import postgres, program
from tests.support.quick_databases import quick_databases
from tests.support.warm_start import Done, WarmStart

LIMIT = 240.0  # seconds for a command
TRACEBACK = "Traceback (most recent call last)"


@dataclass(frozen=True)
class Ran:
    """What came of a run of the command."""

    status: int
    out: bytes
    err: str

    @property
    def report(self) -> dict[str, Any]:
        """The one report on stdout."""
        return json.loads(self.out)

    @property
    def reports(self) -> list[dict[str, Any]]:
        """The reports on stdout, one a line."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def codes(self) -> set[str]:
        """The codes of the report's gaps, but for what every run without kernel logs lacks."""
        return {gap["code"] for gap in self.report["gaps"] if gap["source"] != "kernel"}


@dataclass(frozen=True)
class Command:
    """`signalbox` with its state and its cache in folders of the test. `without_rights`: not as root; only from a warm start."""

    state: Path
    cache: Path
    cwd: Path
    warm: WarmStart | None = None
    without_rights: bool = False

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment of a run."""
        known = {key: value for key, value in os.environ.items() if not key.startswith("SIGNALBOX_")}
        folders = {"SIGNALBOX_STATE": str(self.state), "SIGNALBOX_CACHE": str(self.cache)}
        return {**known, **folders, **(more or {})}

    def __call__(
        self,
        *words: str | Path,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        stdout: int | None = None,
        **options: Any,
    ) -> Ran:
        """Run it. No input may cause a traceback. `stdout`: a descriptor to write to, in place of `out`."""
        environment, folder = self.environment(env), options.pop("cwd", self.cwd)
        if self.warm is not None and not options and self.warm.can(environment):
            done: Done | subprocess.CompletedProcess[bytes] = self.warm.run(
                [*map(str, words)],
                stdin,
                folder,
                environment,
                LIMIT,
                stdout=stdout,
                without_rights=self.without_rights,
            )
        else:
            assert not self.without_rights
            done = subprocess.run(
                self.words(words),
                input=stdin,
                stdout=subprocess.PIPE if stdout is None else stdout,
                stderr=subprocess.PIPE,
                cwd=folder,
                env=environment,
                timeout=LIMIT,
                check=False,
                **options,
            )
        err = done.stderr.decode("utf-8", "replace")
        assert TRACEBACK not in err, err
        return Ran(done.returncode, done.stdout or b"", err)

    def words(self, words: Sequence[str | Path]) -> list[str]:
        """The whole command line."""
        return [sys.executable, "-m", "bot.cli", *map(str, words)]


@pytest.fixture(scope="session", autouse=True)
def databases_made_quickly() -> Iterator[None]:
    """Make the databases of this process quickly; commands in processes of their own make theirs as always."""
    with quick_databases():
        yield


@pytest.fixture(scope="session", autouse=True)
def commands_made_once() -> Iterator[None]:
    """Make the commands of the command line once, as a process does, and not for each one that is invoked here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.testing._get_command", functools.cache(typer.main.get_command))
        yield


@pytest.fixture(scope="session")
def warm_start(cache: Path, known: Knowledge) -> Iterator[WarmStart]:
    """A process from which commands are forked."""
    del known  # its loading fills the cache
    server = WarmStart(cache)
    yield server
    server.close()


@pytest.fixture
def cold_signalbox(cache, tmp_path_factory, known) -> Command:
    """The command, started as a shell starts it; its working folder is empty and is not the test's own."""
    del known  # its loading fills the cache
    home = tmp_path_factory.mktemp("home")
    return Command(home / "state", cache, home)


@pytest.fixture
def signalbox(cold_signalbox, warm_start) -> Command:
    """The command, forked from a process that has imported it."""
    return replace(cold_signalbox, warm=warm_start)


@pytest.fixture
def few_rules(tmp_path) -> Path:
    """A rules folder with the shipped vocabulary and two shipped rules."""
    shipped, folder = default_folder(), tmp_path / "rules"
    for name in ("VERSION", "faults.yaml", "actions.yaml", "memory/cuda-out-of-memory", "storage/disk-full"):
        source = shipped / name
        if source.is_dir():
            for file in (path for path in source.rglob("*") if path.is_file()):
                copy(file, folder / file.relative_to(shipped))
        else:
            copy(source, folder / name)
    return folder


def copy(source: Path, target: Path) -> None:
    """Copy a file's bytes, making its folder."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(source.read_bytes())


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The address of a database that is not there yet, in a folder that is not there yet."""
    return f"sqlite:///{tmp_path / 'state' / 'signalbox.db'}"


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A real PostgreSQL; skips, saying so, where it is not installed."""
    if program("postgres") is None or program("initdb") is None:
        pytest.skip("PostgreSQL is not installed (Debian: postgresql)")
    # not below pytest's own folder: whoever starts pytest closes that to other users, and the server is one
    with TemporaryDirectory(prefix="signalbox-postgres-") as folder, postgres(Path(folder)) as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database, of each kind in turn."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'state' / 'signalbox.db'}"
    url = request.getfixturevalue("postgres_url")
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql("DROP SCHEMA public CASCADE")
        connection.exec_driver_sql("CREATE SCHEMA public")
    engine.dispose()
    return url


@pytest.fixture(scope="session")
def one_chromium(tmp_path_factory):
    """A real Chromium, whose start takes seconds."""
    with chromium(tmp_path_factory.mktemp("chromium")) as one:
        yield one


@pytest.fixture(scope="module")
def browser(one_chromium):
    """The Chromium for the tests of one module, left as it was started."""
    yield one_chromium
    one_chromium.get("about:blank")
    one_chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    one_chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    one_chromium.get_log("browser")
