"""The step from which a rank was slow is the true one, also where the summary of its log leaves that step out."""

from __future__ import annotations

import gzip

import pytest

from bot.diagnosis import onset_lines
from bot.diagnosis.evidence import from_paths
from bot.diagnosis.onset_lines import with_onsets
from bot.rulebase.loader import knowledge
from kb.timeline.heat import heat_map
from kb.timeline.per_step import points_by_origin
from tests.kb.timeline.test_heat import report


def lines(rank: int, steps: int, slow: frozenset[int], since: int, form: str) -> bytes:
    """A log whose steps take half a second, those of slow ranks a second from a step on."""
    told = []
    for step in range(1, steps + 1):
        at = f"2026-11-21 {step // 3600:02d}:{step // 60 % 60:02d}:{step % 60:02d},000"
        taken = 1000.0 if rank in slow and step >= since else 500.0
        told.append(f"{at} {form.format(rank=rank, step=step, ms=taken, s=taken / 1000)}\n")
    return "".join(told).encode()


OWN = "INFO train: rank {rank} | step {step} | data 1.0 ms | forward-backward {ms:.1f} ms | rss 400 MB"


def run(folder, rules, *, ranks=4, steps=500, slow=frozenset({1}), since=430, form=OWN, pack=bytes):
    """Evidence of a run on disk, one log per rank."""
    folder = folder / "logs"
    folder.mkdir()
    for rank in range(ranks):
        (folder / f"rank-{rank}.log").write_bytes(pack(lines(rank, steps, slow, since, form)))
    return from_paths(knowledge(rules), [folder], workers=1)


@pytest.mark.parametrize("since", [258, 430, 431, 467])
def test_the_first_slow_step_is_the_true_one(tmp_path, few_rules, since):
    """Of 500 steps a quarter is kept; the steps around the onset are read again."""
    found = run(tmp_path, few_rules, since=since)

    made = heat_map(with_onsets(found, report(), None), report())

    assert f"rank 1 from step {since} on" in made.finding
    assert made.finding.count("rank") == 1


def test_the_first_slow_step_of_a_long_log_is_the_true_one(tmp_path, few_rules, monkeypatch):
    """The part between two kept lines is halved until it is small; all slow ranks tell the same step."""
    monkeypatch.setattr(onset_lines, "WHOLE", 2048)
    monkeypatch.setattr(onset_lines, "BLOCK", 512)
    found = run(tmp_path, few_rules, ranks=5, steps=4500, slow=frozenset({1, 3}), since=3334)
    before = {point.step for points in points_by_origin(found).values() for point in points}

    finer = with_onsets(found, report(), None)

    assert 3334 not in before  # or the test shows nothing
    assert "ranks 1,3 from step 3,334 on" in heat_map(finer, report()).finding
    after = {point.step for points in points_by_origin(finer).values() for point in points}
    assert len(after - before) < 100


def test_packed_and_missing_logs_keep_what_is_known(tmp_path, few_rules):
    """Nothing is read of them, and nothing is lost."""
    found = run(tmp_path, few_rules, pack=gzip.compress)
    assert with_onsets(found, report(), None) == found

    for log in (tmp_path / "logs").iterdir():
        log.unlink()
    assert with_onsets(found, report(), None) == found


def test_a_run_without_slow_ranks_reads_nothing(tmp_path, few_rules, monkeypatch):
    """Pictures of other failures cost no reading."""
    found = run(tmp_path, few_rules, slow=frozenset(), steps=60)
    monkeypatch.setattr(onset_lines, "StreamReader", None)

    assert with_onsets(found, report(), None) is found
