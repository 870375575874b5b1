"""Which early ends of processes count, by the order of their report and the symptoms."""

from __future__ import annotations

import pytest

from kb.diagnosis.bad_events import BadEvents
from kb.diagnosis.early_ends import early_ends
from kb.diagnosis.findings import find
from kb.diagnosis.symptoms import Symptoms
from kb.facts.evidence import Evidence
from kb.facts.history import History
from kb.facts.job_facts import Facts
from kb.facts.topology import Places
from tests.support.kb_samples import BOOK, ref, scanned

LAUNCHER = """\
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-03-01_12:00:{second:02d}
  host      : node-a
  rank      : 2 (local_rank: 2)
  exitcode  : {code} (pid: 4711)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""
LOST = "2026-03-01 12:00:10 Connection closed by peer 10.0.0.3\n"


@pytest.mark.parametrize(("second", "code", "counts"), [(11, 1, True), (30, 1, False), (30, 33, True)])
def test_a_bare_exit_after_a_symptom_is_not_the_first(second: int, code: int, counts: bool) -> None:
    """Status 1 without a word, long after another rank's trouble, is an effect; a status of its own is not."""
    streams = (
        scanned("2026-03-01 12:00:00 data: opened part-3.bin\n", BOOK, ref("logs/rank-2.log", 2)),
        scanned(LOST, BOOK, ref("logs/rank-0.log", 0)),
        scanned(LAUNCHER.format(second=second, code=code), BOOK),
    )
    known = Facts(Evidence(streams=streams))
    places = Places(known)
    symptoms = Symptoms(find(BOOK, known, History()).findings, known, places)
    ends = list(early_ends(BadEvents(known, places), symptoms, [2]))
    assert bool(ends) is counts
