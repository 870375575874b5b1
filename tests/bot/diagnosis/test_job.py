"""The whole way of `diagnose JOB`: configuration, finding, collecting, diagnosis; and tenants that do not see each other."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest
from typer.testing import CliRunner

from bot.cli.command_line import command_line
from bot.collection.collect import ProtectedBundles
from bot.collection.find_job import JobNotFound
from bot.config.connectors import KINDS, ConnectorType
from bot.config.settings import Cluster, Collect, Config, Connector
from bot.diagnosis import job as module
from bot.diagnosis.job import JobRequest, diagnose_job, gather
from bot.rulebase.loader import Knowledge
from connectors.base.contract import CheckResult, CollectionRequest, Deadline, EvidenceKind, JobQuery, JobSummary, Spool
from connectors.base.secret import Secret
from kb.errors import SignalboxError
from kb.model import Gap, Job, JobRecord, Window
from tests.support.common.collection_samples import END, OOM, START

app = command_line()


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """A store of one job's log. `job`: its name; `words`: the log."""

    job: str
    words: str = ""


@dataclass(frozen=True, slots=True)
class OneJob:
    """Knows one job and its log."""

    settings: StoreSettings

    @property
    def provides(self) -> frozenset[EvidenceKind]:
        """Jobs and logs."""
        return frozenset({"jobs", "logs"})

    def find(self, query: JobQuery, deadline: Deadline) -> tuple[JobRecord, ...]:
        """The job, by its name."""
        assert deadline.left() > 0
        if query.text != self.settings.job:
            return ()
        return (JobRecord(Job(id=f"id-of-{query.text}", name=query.text, start=START, end=END, state="FAILED"), "one"),)

    def recent(self, window: Window, deadline: Deadline) -> tuple[JobSummary, ...]:
        """The job."""
        assert window.end is not None
        assert deadline.left() > 0
        return (JobSummary(f"id-of-{self.settings.job}", self.settings.job),)

    def collect(self, request: CollectionRequest, spool: Spool) -> Iterable[Gap]:
        """The log; only of this job."""
        assert request.record.job.name == self.settings.job
        spool.append("logs/one/rank-3.log", self.settings.words.encode())
        return ()

    def check(self, deadline: Deadline) -> CheckResult:
        """Work."""
        return CheckResult(deadline.left() > 0, "works", "/")


@pytest.fixture(autouse=True)
def _one_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(
        cast("dict[str, ConnectorType]", KINDS), "one", ConnectorType(__name__, "StoreSettings", "OneJob")
    )
    monkeypatch.setenv("SIGNALBOX_STATE", str(tmp_path / "state"))


def config() -> Config:
    """Two tenants, each with its own cluster and job."""
    clusters = [
        Cluster(place, tenant, (Connector("logs", "one", StoreSettings(job, OOM.decode())),))
        for place, tenant, job in (("east", "red", "llm-red"), ("west", "blue", "llm-blue"))
    ]
    return Config(tuple(clusters))


def test_a_job_is_found_collected_and_diagnosed(known: Knowledge, tmp_path: Path) -> None:
    """From a name to the answer; the bundle is in the spool of the tenant."""
    found = diagnose_job(known, config(), JobRequest("llm-red", "red"))
    report = found.answer.report
    assert (report.diagnoses[0].fault, report.job.id, report.job.state) == ("cuda_oom", "id-of-llm-red", "FAILED")
    assert found.collected.folder.is_relative_to(tmp_path / "state" / "spool" / "red")
    again = diagnose_job(known, config(), JobRequest("llm-red", "red"))
    assert again.collected.again
    assert again.answer.report == report


def test_what_is_out_of_reach_is_reported(known: Knowledge, tmp_path: Path) -> None:
    """A shared spool that is not mounted, and the bundle of a worker that died elsewhere: gaps of the bundle, and an answer."""
    limits = Collect(spool=str(tmp_path / "not mounted"))
    lost = Path("/other/host/run-1")
    found = diagnose_job(known, replace(config(), collect=limits), JobRequest("llm-red", "red", lost=lost))
    assert {"spool_missing", "collected_again"} <= {gap.code for gap in found.answer.report.gaps}
    assert found.answer.report.diagnoses[0].fault == "cuda_oom"
    assert found.collected.folder.is_relative_to(tmp_path / "state" / "spool" / "red")


def test_eviction_asks_what_must_stay(known: Knowledge) -> None:
    """If the spool is full, pinned bundles stay although they are older."""
    full = replace(config(), collect=Collect(keep=1, share=0.0))
    first = diagnose_job(known, full, JobRequest("llm-red", "red")).collected.folder
    pinned = ProtectedBundles(pinned=frozenset({str(first)}))
    second = diagnose_job(known, full, JobRequest("llm-red", "red", last=60.0), spare=lambda: pinned).collected.folder
    assert (second != first, first.is_dir()) == (True, True)
    diagnose_job(known, full, JobRequest("llm-red", "red", last=70.0))
    assert not first.is_dir()


def test_tenants_do_not_see_each_other(known: Knowledge, tmp_path: Path) -> None:
    """Neither the job, nor its name among the candidates, nor the cluster, nor that there is another tenant."""
    for request in (
        JobRequest("llm-blue", "red"),
        JobRequest("id-of-llm-blue", "red"),
        JobRequest("llm-blue", "red", cluster="west"),
        JobRequest("llm-blue", "nobody"),
        JobRequest("llm-blue", "red", namespace="blue"),
    ):
        with pytest.raises(SignalboxError) as caught:
            gather(known, config(), request)
        told = str(caught.value).replace(repr(request.job), "").replace(repr(request.cluster), "")
        assert "blue" not in told
        assert "west" not in told
    with pytest.raises(JobNotFound) as caught:
        gather(known, config(), JobRequest("llm", "red"))
    assert [item.name for _, item in caught.value.candidates] == ["llm-red"]
    gather(known, config(), JobRequest("llm-blue", "blue"))
    assert sorted(path.name for path in (tmp_path / "state" / "spool").iterdir()) == ["blue"]


@dataclass(frozen=True, slots=True)
class TenantSettings:
    """A store that shows the job of the tenant in its header."""

    tenant: Secret
    job: str = "llm"
    header: str = ""

    @property
    def words(self) -> str:
        """The log of the tenant."""
        return f"{OOM.decode()}tenant {self.header or self.tenant.value()}\n"


def test_other_settings_get_other_bundles(known: Knowledge, monkeypatch: pytest.MonkeyPatch) -> None:
    """Job name, cluster and connector are equal; a header, or only the secret behind it, differs: no bundle is shared."""
    monkeypatch.setitem(
        cast("dict[str, ConnectorType]", KINDS), "one", ConnectorType(__name__, "TenantSettings", "OneJob")
    )

    def tenant_of(value: str, header: str = "", **more: Any) -> tuple[str, bool]:
        monkeypatch.setenv("LOKI_TENANT", value)
        settings = TenantSettings(Secret(env="LOKI_TENANT"), header=header)
        wired = Config((Cluster("east", "red", (Connector("logs", "one", settings),)),), **more)
        bundle = gather(known, wired, JobRequest("llm", "red"))[1]
        return (bundle.folder / "logs/one/rank-3.log").read_text().split()[-1], bundle.again

    assert tenant_of("a") == ("a", False)
    assert tenant_of("b") == ("b", False)
    assert tenant_of("a", header="c") == ("c", False)
    assert tenant_of("a") == ("a", True)
    assert tenant_of("a", hide_emails=True) == ("a", False)


def test_the_command(known: Knowledge, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`diagnose JOB` with a configuration; --save-bundle keeps the evidence, and the same report comes from it."""
    del known  # fills the cache
    monkeypatch.setenv("SIGNALBOX_CACHE", str(cache))
    path = tmp_path / "signalbox.yaml"
    log = json.dumps(OOM.decode())
    path.write_text(
        f"version: 1\nclusters: {{east: {{connectors: {{logs: {{type: one, job: llm-red, words: {log}}}}}}}}}\n"
    )
    words = ["diagnose", "llm-red", "--config", str(path), "--json"]
    told = CliRunner().invoke(app, [*words, "--save-bundle", str(tmp_path / "kept")])
    assert told.exit_code == 0, told.output
    report = json.loads(told.stdout)
    assert report["diagnoses"][0]["suspects"][0]["rank"] == 3
    again = json.loads(CliRunner().invoke(app, ["diagnose", "--bundle", str(tmp_path / "kept"), "--json"]).stdout)
    assert {**again, "timing": {}} == {**report, "timing": {}}
    for arguments, said in (
        (["diagnose", "llm-rde", "--config", str(path)], "did you mean llm-red"),
        (["diagnose", "llm-red", "b", "--config", str(path)], "give a single JOB"),
        (["diagnose", "llm-red", "--config", str(path), "--save-bundle", str(tmp_path / "kept")], "not empty"),
        (["diagnose", "llm-red", "--config", str(path), "--cluster", "north"], "no cluster 'north'"),
        (["diagnose", "llm-red", "--config", str(path), "--window", "soon"], "soon"),
        (["diagnose", "--window", "2h", "--bundle", str(tmp_path / "kept")], "need a JOB"),
    ):
        told = CliRunner().invoke(app, arguments)
        assert said in f"{told.exception} {told.output}", arguments
        assert told.exit_code != 0


def test_connectors_are_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All requests of a process share a connector, and so its budget."""
    monkeypatch.setattr(module, "_BUILT", {})
    [first] = [item for _, item in module.wire(config().clusters[0]).connectors]
    [again] = [item for _, item in module.wire(config().clusters[0]).connectors]
    assert first is again
