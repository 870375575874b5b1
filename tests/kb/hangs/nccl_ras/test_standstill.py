"""What several answers of NCCL RAS show together: which communicators are stuck, and on which ranks."""

import pytest

from kb.hangs.nccl_ras.standstill import ras_vote
from kb.parsers.nccl_ras.answers import read_ras
from kb.parsers.nccl_ras.values import RasReport
from tests.support.nccl_ras_samples import MISMATCH, START, communicator, four, gone, rank, report


def test_one_answer_is_not_enough():
    """One answer, answers without times, or answers close together decide nothing, and say so."""
    assert ras_vote([report(four([5, 4, 5, 5]))]).vote == "not_observable"
    assert ras_vote([RasReport("a"), RasReport("b")]).vote == "not_observable"
    close = ras_vote([report(four([5, 4, 5, 5]), at=0), report(four([5, 4, 5, 5]), at=8)])
    assert (close.vote, close.span) == ("not_observable", 8.0)


def test_ranks_apart_that_do_not_move_are_pending():
    """Counts that differ and do not change for half a minute are a pending collective, and the rank behind is named."""
    polls = [
        report(four(counts), at=at)
        for at, counts in ((0, [4, 4, 4, 4]), (10, [5, 4, 5, 5]), (45, [5, 4, 5, 5]), (60, [5, 4, 5, 5]))
    ]
    vote = ras_vote(polls, world_size=4)
    assert (vote.vote, vote.age, vote.span, vote.polls) == ("yes", 50.0, 60.0, 4)
    (one,) = vote.pending
    assert (one.kind, one.op, one.since, one.waiting, one.ahead) == ("behind", "AllReduce", START + 10, 3, False)
    assert [(place.rank, place.world_rank, place.pid, place.lag) for place in one.odd] == [(1, 1, 501, 1)]
    assert [(suspect.place.world_rank, suspect.state, suspect.lacks, suspect.waits) for suspect in vote.suspects] == [
        (1, "behind", 1, 0)
    ]
    assert vote == ras_vote(polls[::-1], world_size=4)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([5, 4, 5, 5], [6, 5, 6, 6]),
        ([5, 5, 5, 5], [5, 5, 5, 5]),
        ([5, 4, 5, 5], [5, 5, 5, 5]),
        ([9, 8, 9, 9], [1, 0, 1, 1]),
    ],
    ids=["moves", "even", "caught up", "made again"],
)
def test_what_moves_or_is_even_is_not_pending(first, second):
    """A mismatch that changes is progress, and ranks that are level wait for none that RAS knows."""
    assert ras_vote([report(four(first)), report(four(second), at=60)]).vote == "no"


def test_a_communicator_that_is_torn_down_is_not_pending():
    """Ranks that leave a communicator at different times are not a hang."""
    leaving = communicator("0xa1", 2, [rank(0, 500), rank(1, 501, finalize_called="true", counts=(0, 0, 0, 0, 8))])
    assert ras_vote([report(leaving), report(leaving, at=90)]).vote == "no"


def test_missing_and_dead_ranks():
    """A rank that does not answer while the others are stuck is pending; its earlier launches make it certain."""
    before = report(four([7, 7, 7, 7]))
    ranks = [rank(at, 500 + at, (0, 0, 0, 0, 8)) for at in (0, 1, 3)]
    stuck = [report(communicator("0xa1", 4, ranks, [gone(2, 502, dead=at > 50)]), at=at) for at in (20, 60)]
    vote = ras_vote([before, *stuck])
    (one,) = vote.pending
    assert (vote.vote, one.kind, one.certain, one.age) == ("yes", "missing", True, 40.0)
    assert [place.rank for place in one.dead] == [2]
    assert [(suspect.state, suspect.place.pid) for suspect in vote.suspects] == [("dead", 502)]
    assert not ras_vote(stuck).pending[0].certain


def test_the_rank_missing_in_several_is_the_source():
    """A rank missing in two communicators and waiting in none comes before one that is behind only because it waits."""
    data = communicator("0x1", 2, [rank(0, 500, (0, 0, 0, 0, 5)), rank(1, 501, (0, 0, 0, 0, 4))])
    # 501 waits for 503 here, and 502 too in the third
    tensor = communicator("0x2", 2, [rank(0, 501, (0, 0, 3, 0, 0)), rank(1, 503, (0, 0, 2, 0, 0))])
    other = communicator("0x3", 2, [rank(0, 502, (0, 0, 0, 3, 0)), rank(1, 503, (0, 0, 0, 2, 0))])
    vote = ras_vote([report(data, tensor, other), report(data, tensor, other, at=31)])
    assert [(suspect.place.pid, suspect.lacks, suspect.waits) for suspect in vote.suspects] == [
        (503, 2, 0),
        (501, 1, 1),
    ]
    assert "process 503 on 10.7.0.1" in vote.detail


def test_one_rank_ahead_of_all_others_is_the_odd_one():
    """A rank that launched what no other did is named, not the many that did not."""
    vote = ras_vote([report(four([9, 8, 8, 8])), report(four([9, 8, 8, 8]), at=60)])
    assert (vote.pending[0].ahead, [place.rank for place in vote.pending[0].odd]) == (True, [0])


def test_other_operations_in_the_same_number_disagree():
    """Ranks that launched as many operations, but others, disagree; the fewer are odd."""
    ranks = [rank(at, 500 + at, (0, 0, 2, 0, 6)) for at in (0, 1, 2)]
    torn = communicator("0xa1", 4, [*ranks, rank(3, 503, (0, 0, 3, 0, 5))])
    vote = ras_vote([report(torn), report(torn, at=60)])
    assert vote.pending[0].kind == "disagree"
    assert [place.rank for place in vote.pending[0].odd] == [3]


def test_a_communicator_that_does_not_come_up():
    """A communicator that initializes is given two minutes; then those that have not joined are missing."""
    rising = communicator("0xa1", 3, [rank(0, 500, init=7), rank(1, 501, init=7)], [gone(2, 502, unresponsive=False)])
    assert ras_vote([report(rising), report(rising, at=60)]).vote == "no"
    vote = ras_vote([report(rising), report(rising, at=130)])
    assert (vote.pending[0].kind, [place.rank for place in vote.pending[0].missing]) == ("init", [2])


def test_text_answers_vote_too():
    """Two text answers that say the same name the ranks furthest behind."""
    polls = [read_ras(MISMATCH.encode(), f"ras/{at}.txt", START + at)[0] for at in (0, 40)]
    assert None not in polls
    vote = ras_vote([poll for poll in polls if poll], world_size=16)
    assert (vote.vote, vote.pending[0].op) == ("yes", "AllReduce")
    assert [(suspect.place.world_rank, suspect.place.pid) for suspect in vote.suspects] == [(9, 7209)]


def test_a_process_that_works_elsewhere_is_marked():
    """A rank that is behind here and still launches operations elsewhere is reported so."""
    polls = [report(four([5, 4, 5, 5]), four([at, at], key="0xb", first=501), at=at) for at in (0, 40)]
    assert [place.moves for place in ras_vote(polls).pending[0].odd] == [True]
