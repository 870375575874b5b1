"""Many bundles in a pool: order, and what happens when one of them kills its worker."""

from __future__ import annotations

import os
import signal

import pytest

from bot.diagnosis import batch
from bot.diagnosis.batch import bundles, reports
from bot.diagnosis.diagnose import diagnose_bundle
from kb.errors import UnreadableInput
from tests.support.paths import ROOT

KILLED = ROOT / "tests" / "bundles/rank-killed"
HEALTHY = KILLED.with_name("healthy")


def test_subfolders_are_bundles_by_name(tmp_path):
    """Files are not bundles; links to folders are."""
    (tmp_path / "b").mkdir()
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "c").write_text("")
    (tmp_path / "d").symlink_to("nowhere")

    assert [path.name for path in bundles(tmp_path)] == ["a", "b"]
    with pytest.raises(UnreadableInput, match="cannot be read"):
        bundles(tmp_path / "c")


@pytest.mark.quick(2)
@pytest.mark.parametrize("workers", [1, 2, 9])
def test_reports_come_in_the_order_asked_for(known, workers):
    """Each is what the bundle alone gives, whoever is ready first."""
    found = [report for report, _ in reports(known, [KILLED, HEALTHY, KILLED], workers)]

    alone = [diagnose_bundle(known, folder, workers=1).report for folder in (KILLED, HEALTHY)]
    assert found == [alone[0], alone[1], alone[0]]


def test_no_bundles_are_no_reports(known):
    """An empty list starts nothing that would have to be waited for."""
    assert list(reports(known, [])) == []


def test_a_bundle_that_cannot_be_read_has_a_report(known, tmp_path):
    """A folder that vanished is reported as such, between the others."""
    found = [report for report, _ in reports(known, [HEALTHY, tmp_path / "gone", KILLED], 1)]

    assert [report.verdict for report in found] == ["no_fault", "insufficient_evidence", "fault"]
    assert found[1].bundle == "gone"
    assert found[1].gaps[0].code == "unreadable"


_diagnose = diagnose_bundle


def _deadly(knowledge, folder, **options):
    """A diagnosis that one bundle does not survive."""
    if folder.name == "deadly":
        os.kill(os.getpid(), signal.SIGKILL)
    return _diagnose(knowledge, folder, **options)


def test_a_bundle_that_kills_its_worker_costs_itself_only(known, monkeypatch, tmp_path):
    """What the dead worker's pool had still to do is done elsewhere."""
    monkeypatch.setattr(batch, "diagnose_bundle", _deadly)

    found = [report for report, _ in reports(known, [HEALTHY, tmp_path / "deadly", KILLED, HEALTHY], 2)]

    assert [report.verdict for report in found] == ["no_fault", "insufficient_evidence", "fault", "no_fault"]
    assert found[1].gaps[0].reason == "the process that read it died"


def test_who_stops_early_waits_for_little(known):
    """After the first report the rest is not diagnosed."""
    found = reports(known, [HEALTHY] * 500, 1)

    assert next(found)[0].verdict == "no_fault"
    found.close()
    assert list(found) == []
