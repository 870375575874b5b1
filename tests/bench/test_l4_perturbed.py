"""The rewriting of sets: the truth moves with its lines, and everything is the same each time."""

from __future__ import annotations

import json

import pytest

from bench.l4_perturbed import PERTURBATIONS, rewrite

TRUTH = {
    "symptom": "crash",
    "events": [{"kind": "line", "lines": [["logs/rank-1.log", 3]]}],
    "neutral": {"logs/rank-1.log": [[4, 4]]},
    "cascade": {"logs/rank-0.log": [[3, 4]]},
}


@pytest.fixture
def case(tmp_path):
    """A failure of two ranks, a file each, and its good run."""
    for part, rows in (("logs", 4), ("baseline", 2)):
        (tmp_path / "case" / part).mkdir(parents=True)
        for rank in range(2):
            texts = ("step 1 is done", "DEBUG pulse", f"ERROR: sluice {rank} is shut", "bye")[:rows]
            lines = [f"2027-02-09 10:00:0{second} INFO {text}\n" for second, text in enumerate(texts)]
            (tmp_path / "case" / part / f"rank-{rank}.log").write_text("".join(lines))
    (tmp_path / "case" / "job.yaml").write_text("world_size: 2\n")
    return tmp_path / "case"


@pytest.mark.parametrize("name", list(PERTURBATIONS))
def test_the_truth_moves_with_its_lines(name: str, case, tmp_path) -> None:
    """Each place of it holds the words that were there."""
    told = rewrite(case, tmp_path / "out", TRUTH, name)
    (event,) = told["events"]
    ((source, number),) = event["lines"]
    lines = (tmp_path / "out" / source).read_text().splitlines()
    assert "sluice 1" in lines[number - 1]
    assert sum(last - first + 1 for spans in told["cascade"].values() for first, last in spans) == 2
    assert json.dumps(told) == json.dumps(rewrite(case, tmp_path / "again", TRUTH, name))
    assert (tmp_path / "again" / source).read_text().splitlines() == lines
