"""The rank that alone logged another size, where a message did not fit its receiver's buffer."""

import pytest

from kb.diagnosis.engine import diagnose
from kb.facts.evidence import Evidence
from kb.model import Job
from kb.report import Diagnosis
from kb.rulebase.rule import FaultClass, Pattern, Rulebook
from tests.support.kb_samples import ACTIONS, FAULTS, OWNERS, ref, rule, scanned

LONGER = rule("longer", "collective_desync", Pattern("line", regex="op.preamble.length <= op.nbytes"))
DESYNC = FaultClass("collective_desync", "software", "Ranks ran different collectives")
BOOK = Rulebook("0", "digest", (LONGER,), {**FAULTS, DESYNC.id: DESYNC}, ACTIONS, OWNERS)
THROWN = "terminate called: [enforce fail at pair.cc:456] op.preamble.length <= op.nbytes. 9600 vs 96. mismatch\n"


def first(sizes: list[int], label: str = "[p{}]") -> Diagnosis:
    """The diagnosis of a run each of whose ranks logs its size before a message does not fit."""
    said = "".join(f"{label.format(rank)} table of {size} cells\n" for rank, size in enumerate(sizes))
    job = Job(world_size=len(sizes))
    return diagnose(Evidence(job, streams=(scanned(said + THROWN, BOOK, ref("logs/a.log")),)), BOOK).diagnoses[0]


@pytest.mark.parametrize(("sizes", "odd"), [([12, 1200, 12], 1), ([1200, 1200, 12, 1200], 2)])
def test_the_rank_with_another_size_is_suspected_and_its_line_quoted(sizes: list[int], odd: int) -> None:
    """It sent too much, or it expects too little."""
    found = first(sizes)
    assert [item.rank for item in found.suspects] == [odd]
    assert f"alone logged {sizes[odd]} where the others logged" in found.suspects[0].why
    assert found.evidence[1].text.endswith(f"[p{odd}] table of {sizes[odd]} cells")


@pytest.mark.parametrize(
    "sizes",
    [
        [12, 600, 12],  # another factor
        [12, 1200],  # two ranks: either can be the odd one
        [12, 1200, 1200, 12],  # several
        [12, 12, 12],
    ],
)
def test_no_rank_is_suspected_where_the_sizes_do_not_show_it(sizes: list[int]) -> None:
    """The receiver's message alone does not say which side is wrong."""
    assert not [item for item in first(sizes).suspects if "alone logged" in item.why]


def test_labels_that_do_not_number_the_ranks_are_no_ranks() -> None:
    """They may be of threads, shards or nodes."""
    assert not first([12, 1200, 12], "[part7{}]").suspects
