"""Running the test logs of rules, and trying rules on other logs."""

from __future__ import annotations

import io

import pytest

from bot.authoring import selftest
from bot.authoring.selftest import RuleTest, empty, findings_in, names_of, pasted, read_streams, run, streams_at
from kb.errors import UnreadableInput

FULL = b"OSError: [Errno 28] No space left on device: '/scratch/p/c-3'\n"


@pytest.fixture
def disk_full(known):
    """One shipped rule."""
    return next(rule for rule in known.rulebook.rules if rule.id == "disk-full")


def test_tests_are_found_beside_their_rules(few_rules, disk_full):
    """Each file or folder under match/ and silent/ is a test."""
    (few_rules / "storage/disk-full/match/two-ranks").mkdir()

    tests = selftest.tests_of(few_rules, [disk_full])

    assert all(test.rule == "disk-full" for test in tests)
    assert "match/two-ranks" in names_of(tests)["disk-full"]
    assert {test.speaks for test in tests} == {True, False}


def test_a_test_passes_where_the_rule_does_as_it_should(known, tmp_path):
    """Speaking where it should be silent fails as silence where it should speak."""
    log = tmp_path / "rank-1.log"
    log.write_bytes(FULL)
    matcher = known.matcher()

    passed = [run(known, matcher, RuleTest("disk-full", log, speaks)).passed for speaks in (True, False)]

    assert passed == [True, False]
    assert [finding.rule.id for finding in run(known, matcher, RuleTest("x", log, speaks=True)).heard] == ["disk-full"]


def test_a_folder_is_the_streams_of_one_job(tmp_path):
    """Its files are named as they lie in it."""
    (tmp_path / "node-a").mkdir()
    (tmp_path / "node-a" / "rank-0.log").write_bytes(b"x")
    (tmp_path / "b.log").write_bytes(b"y")

    assert read_streams(tmp_path) == {"b.log": b"y", "node-a/rank-0.log": b"x"}


def test_an_empty_log_is_no_test(tmp_path):
    """Blank files are reported as such; subfolders are not searched."""
    (tmp_path / "a.log").write_bytes(b" \n")
    (tmp_path / "b.log").write_bytes(b"x\n")

    paths = [tmp_path / "a.log", tmp_path / "b.log", tmp_path]
    assert [empty(RuleTest("x", path, speaks=True)) for path in paths] == [True, False, False]


def test_a_pasted_log_is_read_to_its_end(known):
    """Standard input is one stream."""
    summaries, gaps = pasted(known, io.BytesIO(b"x\n" * 5_000_000 + FULL))

    assert gaps == ()
    assert summaries[0].size == 10_000_000 + len(FULL)
    assert [finding.rule.id for finding in findings_in(known, summaries)] == ["disk-full"]


def test_logs_at_a_path_are_read_with_their_gaps(known, tmp_path):
    """Bad files are gaps; no path is an error."""
    (tmp_path / "a.log").write_bytes(FULL)
    (tmp_path / "b.log").write_bytes(b"")

    summaries, gaps = streams_at(known, tmp_path)

    assert len(summaries) == 1
    assert [gap.code for gap in gaps] == ["empty"]
    with pytest.raises(UnreadableInput):
        streams_at(known, tmp_path / "gone")
