"""What an earlier version wrote still works: its configuration, rules, site overlay, plug-in and stored report.

tests/support/earlier_version holds these files as the version before the packages were rearranged shipped or wrote them: do not
update them. Stores of earlier versions are in tests/bot/store/test_migrations.py; the bundles of tests/bundles are as old.
"""

from __future__ import annotations

from types import ModuleType

import pytest

from bot.config.file import read
from bot.render.report_json import from_json
from bot.render.terminal import plain
from bot.rulebase.loader import knowledge
from kb.model import Job, ProgressPoint, Resource
from kb.plugin import Observed, Stream
from tests.support.paths import ROOT

EARLIER = ROOT / "tests" / "support" / "earlier_version"


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """The compiled rule base of a test is written to its own folder."""
    monkeypatch.setenv("SIGNALBOX_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_its_configuration_is_read():
    """All sections of the example that it shipped are still valid, with the same clusters and connectors."""
    config = read(EARLIER / "signalbox.yaml")

    assert [cluster.name for cluster in config.clusters] == ["my-cluster"]
    assert {connector.type for connector in config.clusters[0].connectors} >= {"slurm", "loki", "prometheus"}


def test_its_rules_and_overlay_are_loaded():
    """Its rule folder has no faults; of its overlay, only exceptions for rules that this folder lacks are reported."""
    known = knowledge(EARLIER / "rules", EARLIER / "site")

    assert [rule.id for rule in known.rulebook.rules] == ["disk-full", "one-rank-steps-slowly"]
    assert {fault.file.rpartition("/")[2] for fault in known.faults} <= {"site.yaml"}


def test_its_plug_in_runs():
    """A detector imports kb.plugin and kb.model as before, and its signals are values of today."""
    module = ModuleType("acme_detectors")
    exec((EARLIER / "acme_detectors.txt").read_text("utf-8"), module.__dict__)  # noqa: S102 - our own file
    streams = [
        Stream(
            f"rank-{rank}.log",
            "job",
            Resource(rank=rank),
            tuple(ProgressPoint(step, step=step, seconds=seconds) for step in range(20)),
        )
        for rank, seconds in enumerate((1.0, 1.0, 1.0, 2.0))
    ]
    (found,) = module.slow_rank(Job(), streams, {})

    assert isinstance(found, Observed)
    assert (found.stream, found.captures) == (3, {"mine": "2.00", "level": "1.00"})


def test_its_report_is_read_and_shown():
    """A stored report keeps its answer."""
    report = from_json((EARLIER / "report.json").read_bytes())

    assert (report.verdict, report.diagnoses[0].fault, report.diagnoses[0].rule) == (
        "fault",
        "segfault",
        "native-crash",
    )
    assert "Native crash" in plain(report)
