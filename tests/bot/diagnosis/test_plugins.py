"""Detectors that users programmed: run in a process of their own, which may do what it likes."""

from __future__ import annotations

import re
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from bot.authoring import selftest
from bot.diagnosis.diagnose import diagnose_paths
from bot.diagnosis.plugins import observe, with_plugins
from bot.rulebase.loader import default_folder, knowledge, read_files, site_files
from kb.facts.evidence import Evidence
from kb.model import Job, ProgressPoint, Resource
from kb.plugin import Observed, Plugged, Stream, plugin_key
from kb.rulebase.rule import PluginTest
from kb.rulebase.rulebook import load
from tests.support.ended import gone
from tests.support.paths import ROOT

EXAMPLES = ROOT / "docs" / "examples"
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts a package with detectors where the interpreter finds it."""

    def put(source: str, **names: str) -> None:
        where = tmp_path / "site-packages"
        about = where / "acme_detectors-1.0.dist-info"
        about.mkdir(parents=True, exist_ok=True)
        (where / "acme_detectors.py").write_text(source)
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-detectors\nVersion: 1.0\n")
        points = [f"{name} = acme_detectors:{function}\n" for name, function in names.items()]
        (about / "entry_points.txt").write_text("[signalbox.detectors]\n" + "".join(points))
        monkeypatch.setattr(sys, "path", [*sys.path, str(where)])

    return put


@pytest.fixture
def example(install: Install) -> Path:
    """The example of the documentation, installed as its pyproject.toml says; gives its overlay's folder."""
    points = tomllib.loads((EXAMPLES / "detector" / "pyproject.toml").read_text())["project"]["entry-points"]
    (group,) = points
    assert group == "signalbox.detectors"
    source = (EXAMPLES / "detector" / "acme_detectors.py").read_text()
    install(source, **{name: value.partition(":")[2] for name, value in points[group].items()})
    return EXAMPLES / "site"


def gave(source: str, install: Install, **params: float) -> Plugged:
    """What one detector says of two streams."""
    head = "from kb.plugin import Observed\nimport os, sys, time\n"
    install(head + source, probe="probe")
    test = PluginTest("probe", params)
    streams = (
        Stream("rank-0.log", "job", Resource(rank=0), (ProgressPoint(10, 1, loss=2.5),)),
        Stream("rank-1.log", "job", Resource(rank=1)),
    )
    return observe({plugin_key(test): test}, Job(name="tide"), streams)[plugin_key(test)]


def test_a_detector_sees_job_streams_and_numbers_and_yields_signals(install: Install) -> None:
    """Its output is not part of the answer."""
    source = (
        "def probe(job, streams, params):\n"
        "    print('hello')\n"
        "    point = streams[0].points[0]\n"
        "    yield Observed(f'{job.name} {point.loss} {params[\"share\"]}', stream=1, offset=point.offset, rank=3,\n"
        "                   captures={'what': 'x' * 2000})\n"
    )
    (one,) = gave(source, install, share=0.5).observed
    assert one == Observed("tide 2.5 0.5", 1, 10, 3, captures={"what": "x" * 512})


@pytest.mark.quick(4)
@pytest.mark.parametrize(
    ("source", "told"),
    [
        (
            "def probe(job, streams, params):\n    raise ValueError('no tide')\n",
            "ValueError: no tide at .*acme_detectors.py:4",
        ),
        ("def probe(job, streams, params):\n    sys.exit(3)\n", "SystemExit: 3"),
        ("def probe(job, streams, params):\n    os._exit(0)\n", "its process died"),
        ("def probe(job, streams, params):\n    os.kill(os.getpid(), 9)\n", "its process died"),
        (
            "def probe(job, streams, params):\n    return (Observed('x') for _ in iter(int, 1))\n",
            "more than 1000 signals",
        ),
        ("def probe(job, streams, params):\n    return ['x']\n", "returned 'str'"),
        ("def probe(job, streams, params):\n    return [Observed('x', stream='one')]\n", "wrong type"),
        ("def probe(job, streams, params):\n    return 3\n", "TypeError"),
        ("def probe(job, streams, params):\n    return [bytearray(3 << 30)]\n", "more than 2048 MB"),
        ("def probe(job, streams, params):\n    open('FLOOD', 'wb').write(b'x' * (5 << 20))\n", "raised|died"),
        ("raise RuntimeError('at import')\n", "RuntimeError: at import"),
        ("other = 1\n", "AttributeError"),
    ],
)
def test_a_detector_that_goes_wrong_gives_words_and_nothing_else(
    source: str, told: str, install: Install, tmp_path: Path
) -> None:
    """It may raise, exit, die, flood, use up memory or yield garbage; the caller continues."""
    came = gave(source.replace("FLOOD", str(tmp_path / "flood")), install)
    assert came.observed == ()
    assert re.search(told, came.failure), came.failure


@pytest.mark.parametrize("body", ["while True: pass", "time.sleep(60)"])
def test_a_detector_that_takes_too_long_is_stopped(
    body: str, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it works or only waits."""
    monkeypatch.setattr("bot.diagnosis.plugins.WALL", 1.0)
    came = gave(f"def probe(job, streams, params):\n    {body}\n", install)
    assert came == Plugged(failure="it took more than 10 s")


FORKS = """
def probe(job, streams, params):
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    {then}
"""


def test_nothing_waits_for_the_child_of_a_detector(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds the detector's output open; the answer is complete without it, and it is gone with the detector."""
    monkeypatch.setattr("bot.diagnosis.plugins.WALL", 45.0)
    began = time.monotonic()
    (one,) = gave(FORKS.format(then="yield Observed(str(child))"), install).observed
    assert time.monotonic() - began < 50
    assert gone(int(one.text))


def test_a_detector_and_its_child_that_both_hang_are_stopped(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the time that a detector has."""
    monkeypatch.setattr("bot.diagnosis.plugins.WALL", 1.0)
    began = time.monotonic()
    assert gave(FORKS.format(then="time.sleep(60)"), install) == Plugged(failure="it took more than 10 s")
    assert time.monotonic() - began < 50


def test_a_detector_has_no_secret_of_the_environment(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens of the bot are none of its business."""
    monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-not-for-you")
    (one,) = gave("def probe(*_):\n    yield Observed(' '.join(sorted(os.environ)))\n", install).observed
    assert "PATH" in one.text
    assert "SLACK" not in one.text


def test_one_that_is_not_installed_is_a_gap_and_its_rules_are_not_evaluated() -> None:
    """The report says so, and by which entry point it was looked for."""
    site, _ = site_files(EXAMPLES / "site")
    book = load(read_files(default_folder())[0], site).rulebook
    evidence = with_plugins(Evidence(), book)
    (gap,) = evidence.gaps
    assert (gap.code, gap.source) == ("detector_failed", "slow_rank")
    assert "signalbox.detectors" in gap.reason


def test_the_example_of_the_documentation_works(example: Path) -> None:
    """Its rule speaks on its logs, its overlay has no fault, and a diagnosis names the slow rank."""
    known = knowledge(site=example)
    assert known.faults == ()
    rules = [rule for rule in known.rulebook.rules if rule.id == "one-rank-steps-slowly"]
    tests = selftest.tests_of(default_folder(), rules)
    assert [selftest.run(known, known.matcher(), test).passed for test in tests] == [True, True, True]
    report = diagnose_paths(known, [example / "rules/training/one-rank-steps-slowly/match/six-ranks"]).report
    assert (report.diagnoses[0].fault, report.diagnoses[0].suspects[0].rank) == ("straggler", 4)
    assert report.versions.rulebook.endswith("+site")


@pytest.mark.slow  # test_the_example_of_the_documentation_works
def test_lint_runs_the_detectors_on_the_rules_own_tests(example: Path, install: Install) -> None:
    """An exception is reported with the rule's file and line."""
    install("def slow_rank(*_):\n    raise KeyError('tide')\n", slow_rank="slow_rank")
    known = knowledge(site=example)
    site, _ = site_files(example)
    loaded = load(read_files(default_folder())[0], site)
    tests = selftest.tests_of(default_folder(), loaded.rulebook.rules)
    (fault,) = selftest.detector_faults(known, tests, loaded.positions)
    assert fault.file.endswith("one-rank-steps-slowly/rule.yaml")
    assert fault.line == 13
    assert "KeyError" in fault.message


def test_the_examples_package_is_as_pip_would_install_it() -> None:
    """The module that its entry point names is there."""
    project = tomllib.loads((EXAMPLES / "detector" / "pyproject.toml").read_text())["project"]
    module, _, function = project["entry-points"]["signalbox.detectors"]["slow_rank"].partition(":")
    assert f"def {function}(" in (EXAMPLES / "detector" / f"{module}.py").read_text()
