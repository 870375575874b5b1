"""The commands that the documentation shows: each runs here as it is written, or is listed with the reason why it cannot.

They run in a folder that has what the pages speak of: logs, bundles, a configuration, a store with incidents. Every word
`signalbox …`, in a block or within a sentence, is also read by the parser of the command line.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache as remembered
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer
from typer.main import get_command

from bot.cli.command_line import command_line
from bot.collection.collect import CollectionMark, mark_of
from bot.render.report_json import dumps
from bot.store.incidents import IncidentStore
from tests.bot.conftest import Command, copy
from tests.support.bot_samples import FALLEN_GPU
from tests.support.paths import BUNDLES, DEMO, ROOT

PAGES = sorted(
    path
    for path in (*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "SECURITY.md")
    if not path.is_relative_to(ROOT / "docs" / "rules")  # generated: what they quote are logs
)
SHELL = ("sh", "console")
FENCE = re.compile(r"^ *```(?P<language>\w*)[^\n]*\n(?P<body>.*?)^ *```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`(signalbox [^`\n]+)`")

INSTALLS = "installs from a package index"
DOCKER = "needs a container engine"
SERVER = "needs a PostgreSQL server"
NOT_RUN = {  # the beginning of a line → why it does not run here
    "$ curl --oauth2-bearer": "needs a service; tests/bot/server/test_webhooks.py sends the same request",
    "docker ": DOCKER,
    "make ": "sets up an environment; the Makefile has the target",
    "pip ": INSTALLS,
    "pipx ": INSTALLS,
    "python3 -m venv /opt/signalbox": "writes to /opt",
    "/opt/signalbox/bin/": INSTALLS,
    "pg_dump ": SERVER,
    "pg_restore ": SERVER,
    "signalbox demo --fill": "takes seconds; tests/bot/cli/test_digest.py fills a store",
    "signalbox demo --chat": "serves until it is stopped; tests/bot/demo starts it",
    "signalbox watch ": "watches processes of this machine; tests/bot/live does",
    "signalbox diagnose --logs /scratch/logs --deep --engine ray": "needs Ray",
    "signalbox --install-completion": "writes to the settings of the shell",
}
STORED = re.compile(r"\b17\b|/backup/|signalbox (?:digest|store|incidents)")  # lines that need a store with incidents
USAGE: Any = typer.BadParameter.__mro__[1]  # what the parser raises for unknown options and missing values
RULES = ("VERSION", "*.yaml", "memory/cuda-out-of-memory/**/*", "storage/disk-full/**/*")
OLD = datetime.now(UTC) - timedelta(days=20)
CASE = "id: one\nlabel: data_error\n"
KUBECTL = '#!/bin/sh\nexec cat "$FAILED_LOG"\n'
CONFIG = """\
version: 1
clusters:
  lab:
    connectors:
      files: {{type: folders, pattern: '{folder}/jobs/{{name}}-{{id}}'}}
"""


@dataclass(frozen=True)
class Block:
    """A fenced block: its page, the line at which it begins, its language and its lines."""

    page: str
    line: int
    language: str
    lines: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def _blocks() -> Iterator[Block]:
    for path in PAGES:
        text = path.read_text("utf-8")
        for fence in FENCE.finditer(text):
            lines = tuple(line.strip() for line in fence["body"].splitlines() if line.strip())
            at = text.count("\n", 0, fence.start()) + 1
            yield Block(path.relative_to(ROOT).as_posix(), at, fence["language"], lines)


BLOCKS = [block for block in _blocks() if block.language in SHELL]


def why_not(line: str) -> str | None:
    """Why a line does not run here; None if it runs."""
    return next((why for start, why in NOT_RUN.items() if line.startswith(start)), None)


def commands(block: Block) -> list[str]:
    """The lines of a block that a person types: all, or those behind a prompt, each without its comment."""
    return [line for line in block.lines if block.language != "console" or line.startswith("$ ")]


class Place:
    """A folder with what the pages speak of, and the command in it."""

    def __init__(self, signalbox: Command, folder: Path) -> None:
        self.signalbox, self.folder = signalbox, folder
        home = folder / "home"
        (home / ".config" / "signalbox").mkdir(parents=True)
        self.state = home / ".local" / "state" / "signalbox"
        shutil.copytree(DEMO, folder / "incident")
        shutil.copytree(DEMO / "logs", folder / "logs" / "job-4711")
        shutil.copytree(DEMO / "logs", folder / "jobs" / "llm-7b")
        shutil.copytree(BUNDLES / "rank-killed", folder / "incidents" / "one")
        shutil.copytree(DEMO, folder / "cases" / "one")
        (folder / "cases" / "one" / "case.yaml").write_text(CASE)
        shutil.copytree(BUNDLES / "healthy" / "logs", folder / "good" / "logs")
        shutil.copy(DEMO / "logs" / "rank-5.err", folder / "failed.log")
        for rules in (folder / "rules", folder / "BASE" / "rules"):
            for part in RULES:
                for path in (path for path in (ROOT / "rules").glob(part) if path.is_file()):
                    copy(path, rules / path.relative_to(ROOT / "rules"))
        (folder / "signalbox.yaml").write_text(CONFIG.format(folder=folder))
        (folder / "bin").mkdir()
        (folder / "bin" / "kubectl").write_text(KUBECTL)
        (folder / "bin" / "kubectl").chmod(0o755)
        self.env = {
            "HOME": str(home),
            "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "FAILED_LOG": str(folder / "failed.log"),
            "SIGNALBOX_STATE": str(self.state),
            "SIGNALBOX_CONFIG": str(folder / "signalbox.yaml"),  # the example is edited before it is used
        }

    def fill(self) -> None:
        """Put incidents in the store, number 17 with a bundle old enough to be packed; and a backup of it all."""
        spooled = self.state / "spool" / "default" / "run-17" / "run-1"
        shutil.copytree(DEMO, spooled)
        size = sum(path.stat().st_size for path in spooled.rglob("*") if path.is_file())
        mark_of(spooled).write_bytes(msgspec.json.encode(CollectionMark(OLD.timestamp(), (0.0, 1.0), size, {})))
        with IncidentStore(f"sqlite:///{self.state / 'signalbox.db'}") as store:
            for number in range(1, 18):
                report = replace(FALLEN_GPU, id=f"r{number}")
                store.add(dumps(report), report, b"", str(spooled) if number == 17 else None, OLD)
        (self.state / "archive").mkdir(exist_ok=True)
        (self.folder / "backup" / "archive").mkdir(parents=True)
        shutil.copy(self.state / "signalbox.db", self.folder / "backup")

    def run(self, line: str) -> None:
        """Run a line. It must succeed; a line in which the command has no part is the shell's."""
        for root in ("/logs/", "/backup/"):  # folders of the reader's machine
            line = re.sub(rf"(?<![\w./]){root}", f"{self.folder}{root}", line)
        line = line.replace("~/", f"{self.env['HOME']}/").replace("diagnose JOB", "diagnose llm-7b")
        words = shlex.split(line, comments=True)
        if "signalbox" not in words:
            subprocess.run(
                ["bash", "-euc", line], cwd=self.folder, env={**os.environ, **self.env}, check=True, timeout=60
            )
            return
        before, own = words[: words.index("signalbox")], words[words.index("signalbox") + 1 :]
        own, target = (own[: own.index(">")], own[own.index(">") + 1]) if ">" in own else (own, None)
        source = before[: before.index("|")] if before else ["true"]
        given = subprocess.run(source, env=self.env, capture_output=True, check=True, timeout=60).stdout
        ran = self.signalbox(*own, stdin=given, env=self.env)
        assert ran.status == 0, f"{line}\n{ran.err}"
        if target is not None:
            (self.folder / target).write_bytes(ran.out)


@pytest.fixture
def place(signalbox) -> Place:
    """The folder, the same as the command's working folder."""
    return Place(signalbox, signalbox.cwd)


@pytest.mark.quick("five-minutes", "diagnose.md", "incidents.md")
@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_runs(place, block):
    """Each line that is not listed succeeds."""
    if any(STORED.search(line) for line in block.lines):
        place.fill()
    if any("unpack" in line for line in block.lines):
        place.run("signalbox store tidy")  # packs the bundle, as the service does in time
    for line in commands(block):
        if why_not(line) is None:
            place.run(line)


def test_every_reason_is_needed():
    """An entry that no line of the pages begins with is gone from the list."""
    lines = [line for block in BLOCKS for line in commands(block)]

    assert [start for start in NOT_RUN if not any(line.startswith(start) for line in lines)] == []


def test_every_block_has_a_language():
    """Else it is neither highlighted nor, if it holds commands, run."""
    assert [str(block) for block in _blocks() if not block.language] == []
    assert {block.language for block in _blocks()} <= {
        *SHELL,
        "yaml",
        "json",
        "python",
        "toml",
        "ini",
        "mermaid",
        "text",
    }


def _shown() -> Iterator[tuple[str, list[str]]]:
    """Every command of the product in a block or a sentence: its page, and its words."""
    for block in BLOCKS:
        for line in commands(block):
            found = re.search(r"(?:^|[\s/])signalbox (?=[a-z-])(.*)", line)
            if found is not None and not line.startswith(("docker build", "docker run --rm --volume")):
                yield str(block), shlex.split(found[1], comments=True)
    for path in PAGES:
        for span in SPAN.findall(path.read_text("utf-8")):
            words = shlex.split(span)[1:]
            yield path.relative_to(ROOT).as_posix(), [*words, "VALUE"] if words[-1].startswith("--") else words


def test_every_command_and_option_exists():
    """Also of the lines that do not run here, and of those in sentences, which may name an option without its value."""
    unknown = [(page, fault) for page, words in _shown() if (fault := _fault(words)) is not None]

    assert unknown == []


@remembered
def _root() -> Any:
    return get_command(command_line())


def _fault(words: list[str]) -> str | None:
    """What the parser of the command line says of these words; None if it knows them all."""
    command = _root()
    context = command.context_class(command, info_name="signalbox")
    words = [word for word in (words[: words.index(">")] if ">" in words else words) if word != "…"]
    while hasattr(command, "get_command") and words and not words[0].startswith("-"):
        inner = command.get_command(context, words[0])
        if inner is None:
            return f"no command {words[0]}"
        context = inner.context_class(inner, info_name=inner.name, parent=context)
        command, words = inner, words[1:]
    try:
        command.make_parser(context).parse_args(list(words))
    except USAGE as error:
        return f"{command.name}: {error}"
    return None


@pytest.mark.parametrize(
    ("words", "known"),
    [
        ("diagnose --logs DIR --json", True),
        ("diagnose --no-such-option", False),
        ("incidents show 17", True),
        ("incidents shout 17", False),
        ("incidents show --state open", False),
        ("rule list", False),
    ],
)
def test_what_does_not_exist_is_noticed(words, known):
    """A command, a command of a group, or an option of another one."""
    assert (_fault(words.split()) is None) == known


def test_files_and_targets_that_lines_name_exist():
    """Those of the checkout: a path under deploy/ or a lock file, and the targets of make."""
    lines = [line.split("  #")[0] for block in BLOCKS for line in commands(block)]
    files = {
        name for line in lines for name in re.findall(r"(?<![\w/])(?:deploy/[\w./-]+|requirements[\w-]*\.lock)", line)
    }
    targets = {name for line in lines for name in re.findall(r"^make (\w+)", line)}
    makefile = (ROOT / "Makefile").read_text("utf-8")

    assert len(files) >= 3
    assert [name for name in sorted(files) if not (ROOT / name).is_file()] == []
    assert [name for name in sorted(targets) if not re.search(rf"^{name}:", makefile, re.MULTILINE)] == []
