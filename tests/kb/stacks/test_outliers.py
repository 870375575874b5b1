"""Ranks compared by their stacks."""

from dataclasses import replace

import pytest

from kb.model import Frame, Resource, StackSample, ThreadStack
from kb.stacks.call_tree import merged
from kb.stacks.outliers import compare
from kb.stacks.stall_vote import Stillness, probe_stillness
from tests.support.stack_samples import BACKWARD, C10D, NEXT, REDUCE, TRAIN, crowd, rounds, stack


def test_rank_outside_the_crowd():
    """The rank that does not wait is the suspect, with the frame it is in; waiting ranks are not."""
    found = compare(crowd(16, REDUCE, {5: NEXT}))
    assert (found.fault, found.outlier_ranks, found.outlier_count) == ("dataloader_fault", "5", 1)
    (odd,) = found.outliers
    assert (odd.rank, odd.resource.node, odd.sure, odd.doing.frame.function) == (
        5,
        "n0",
        True,
        "_MultiProcessingDataLoaderIter._try_get_data",
    )
    assert [(group.ranks, group.count) for group in found.groups] == [("0-4,6-15", 15), ("5", 1)]
    assert found.crowd == 0
    assert found.reason.startswith("rank 5 waits for its data loader")
    assert "15 of 16 ranks wait (rank 0 waits inside a collective in all_reduce" in found.reason


def test_waiters_at_several_places():
    """Ranks of other groups wait at other places for the same rank: all of them are the crowd."""
    odd = dict.fromkeys(range(4, 8), BACKWARD) | {2: f"open64 (libc.so.6)\nput (fit.py:3){TRAIN}"}
    found = compare(crowd(16, REDUCE, odd))
    assert (found.fault, found.outlier_ranks) == ("storage_io", "2")


def test_several_outsiders():
    """Of several outside, the one whose stack says most comes first."""
    found = compare(crowd(16, REDUCE, {1: f"step (fit.py:3){TRAIN}", 9: NEXT}))
    assert ([outlier.rank for outlier in found.outliers], found.fault) == ([9, 1], "dataloader_fault")


def test_all_in_one_collective():
    """All at one place in a collective: no rank is odd, and the answer is the wait itself."""
    found = compare(crowd(8, REDUCE))
    assert (found.fault, found.outliers, found.crowd) == ("collective_timeout", (), 0)


def test_only_some_evaluate():
    """Ranks in another collective, inside evaluation, ran a different program from the rest."""
    other = f"all_gather ({C10D}:3000)\ngather_metrics (fit.py:60)\nevaluate (fit.py:70){TRAIN}"
    found = compare(crowd(8, BACKWARD, {0: other}))
    assert (found.fault, found.outlier_ranks, found.outliers[0].sure) == ("collective_desync", "0", True)
    assert "rank 0 (evaluating) waits inside a collective in all_gather" in found.reason


def test_few_in_another_collective():
    """A minority in another collective is out of step; so are halves, but it is unknown which one."""
    other = f"barrier ({C10D}:4100){TRAIN}"
    found = compare(crowd(9, REDUCE, {4: other}))
    assert (found.fault, found.outlier_ranks) == ("collective_desync", "4")
    assert (
        found.outliers[0].doing.fault == "collective_desync"
    )  # what its rule goes by, not that a collective takes long
    found = compare(crowd(4, REDUCE, {0: other, 1: other}))
    assert (found.fault, found.outlier_ranks) == ("collective_desync", "")


def test_pipeline_stages():
    """Stages of a pipeline wait at different places by design: none of them is odd."""
    stage = f"recv ({C10D}:2200)\n_communicate (megatron/core/pipeline_parallel/p2p_communication.py:"
    found = compare(crowd(16, stage + f"300){TRAIN}", dict.fromkeys((8, 9, 10), stage + f"400){TRAIN}")))
    assert (found.fault, found.outlier_ranks) == ("collective_timeout", "")


def test_crowd_without_a_sign_of_waiting():
    """Most ranks at one line of the run's code wait there for the device, though no frame says so."""
    found = compare(crowd(8, f"step (fit.py:33){TRAIN}", {6: NEXT}))
    assert (found.fault, found.outlier_ranks) == ("dataloader_fault", "6")


def test_all_alike_outside():
    """If nearly all ranks are in storage, it concerns the job and no rank is at fault."""
    read = f"stat64 (libc.so.6)\nready (fit.py:3){TRAIN}"
    found = compare(crowd(20, read, {3: REDUCE}))
    assert (found.fault, found.outliers, found.shared) == ("storage_io", (), True)
    assert found.reason.startswith("19 of 20 ranks do the same: rank 0 is inside file or object storage")


def test_saving_together():
    """All ranks in a barrier of a checkpoint: the checkpoint is named before the wait."""
    found = compare(crowd(4, f"barrier ({C10D}:4100)\nsave_checkpoint (fit.py:20){TRAIN}"))
    assert (found.fault, found.alternatives[0]) == ("checkpoint_save", "collective_timeout")


def test_one_rank_alone():
    """A single rank is judged by its own stack."""
    found = compare([stack(3, NEXT)])
    assert (found.fault, found.shared, found.seen) == ("dataloader_fault", False, 1)


def test_the_only_rank_is_no_straggler_of_others():
    """Asleep or at work in the run's own code, it is held up by its own program."""
    asleep, busy = f"wait_for_more (train.py:10){TRAIN}", f"spin (train.py:12){TRAIN}"
    for text, state, fault in ((asleep, "idle", "deadlock"), (busy, "active", "code_bug")):
        found = compare([stack(0, text, at, state=state) for at in range(1, 5)])
        assert (found.fault, found.shared, found.seen) == (fault, False, 1)
        assert not {"straggler", "collective_desync"} & set(found.alternatives)


def test_ranks_that_all_do_the_same_are_no_stragglers():
    """Two ranks that both sleep, or both work, are late for nobody."""
    asleep, busy = f"wait_for_more (train.py:10){TRAIN}", f"spin (train.py:12){TRAIN}"
    for text, state, fault in ((asleep, "idle", "deadlock"), (busy, "active", "code_bug")):
        found = compare([stack(rank, text, at, state=state) for rank in (0, 1) for at in range(1, 5)])
        assert (found.fault, found.shared, found.seen) == (fault, True, 2)
        assert not {"straggler", "collective_desync"} & set(found.alternatives)


def test_ranks_without_a_stack():
    """Expected ranks without a stack are reported; if all others wait, they may be waiting for these."""
    found = compare(crowd(7, REDUCE), expected=range(8))
    assert (found.unseen, found.unseen_count, found.alternatives[:2]) == ("7", 1, ("node_lost", "killed"))


def test_no_stacks():
    """No input gives no findings."""
    found = compare([], expected=[0, 1])
    assert (found.fault, found.groups, found.unseen) == ("", (), "0-1")


def test_newest_round_counts():
    """The newest round is compared; whether a rank moved between rounds is reported in addition."""
    texts = [REDUCE, lambda rank: f"step (fit.py:3){TRAIN}" if rank == 2 else REDUCE]
    (odd,) = compare(rounds(range(4), texts)).outliers
    assert (odd.rank, odd.moving) == (2, True)
    still = rounds(range(4), [lambda rank: NEXT if rank == 2 else REDUCE] * 2)
    assert compare(still).outliers[0].moving is False


def test_order_of_samples_does_not_matter():
    """The same stacks in another order give the same answer."""
    odd = {1: NEXT, 5: f"step (fit.py:3){TRAIN}", 6: BACKWARD}
    samples = crowd(12, REDUCE, odd)
    assert compare(samples) == compare(samples[::-1])
    assert merged(samples) == merged(samples[::-1])


@pytest.mark.slow  # the other tests of the module
def test_thousands_of_ranks():
    """Of thousands of ranks over three rounds the odd one is reported."""
    samples = rounds(range(4096), [lambda rank: NEXT if rank == 3001 else REDUCE] * 3)
    vote = probe_stillness(samples, expected=range(4096))
    found = compare(samples, expected=range(4096))
    lines = merged(samples)
    assert (vote.vote, vote.still) == ("yes", 4096)
    assert (found.outlier_ranks, found.fault) == ("3001", "dataloader_fault")
    assert lines[0].inside == "0-4095"


def test_odd_values():
    """Stacks with empty names, no frames, very long names and no ranks are handled."""
    odd = ThreadStack("", (Frame("", "", None), Frame("x" * 10_000, "/" * 1000, 0)))
    samples = [
        StackSample("a", Resource(), threads=(odd,)),
        StackSample("b", Resource(rank=0), threads=(odd, odd)),
        StackSample("c", Resource(rank=1), threads=(replace(odd, thread="MainThread"),)),
        StackSample("d", Resource(rank=1), sample="9" * 500, threads=(ThreadStack("MainThread", ()),)),
    ]
    assert compare(samples).seen <= 2
    assert probe_stillness(samples).vote == "not_observable"
    assert all(merged_frame.count == 1 for merged_frame in merged(samples))


def still(rank, text, state="idle", number=3):
    """Rounds in which all of four ranks reduce but this one."""
    return [
        stack(each, text if each == rank else REDUCE, at, 100.0 + 20 * at, state=state if each == rank else "idle")
        for at in range(number)
        for each in range(4)
    ]


def test_a_rank_that_does_not_move_is_no_straggler():
    """Idle at one place in every round, while the others wait, is a deadlock; a slow rank moves on or is at work."""
    wait = f"wait_for_list (fit.py:93){TRAIN}"
    found = compare(still(2, wait))
    assert (found.fault, found.outlier_ranks, found.alternatives) == ("deadlock", "2", ("straggler", "code_bug"))
    assert found.outliers[0].doing.reason == (
        "is in the run's own code, idle: it sleeps, or waits for a lock, a file or the device in wait_for_list (fit.py:93), "
        "unchanged for 3 rounds and 40 s"
    )
    asleep = f"clock_nanosleep (libc.so.6)\ntime_sleep (python3.11)\n{wait}"
    assert (compare(still(2, asleep)).fault, compare(still(2, asleep)).outliers[0].doing.activity) == (
        "deadlock",
        "sleep",
    )
    assert compare(still(2, wait, state="")).fault == "deadlock"
    assert compare(still(2, wait, state="active")).fault == "straggler"
    assert compare(still(2, wait, state="gil")).fault == "straggler"
    assert compare(still(2, wait, number=2)).fault == "straggler"
    assert compare(still(2, wait, number=2), limits=Stillness(samples=2)).fault == "deadlock"


def test_a_rank_that_moves_is_slow():
    """A rank that is at a different line in each round makes progress, however slow."""
    texts = [lambda rank, n=n: f"step (fit.py:{n}){TRAIN}" if rank == 2 else REDUCE for n in (3, 4, 5)]
    assert compare(rounds(range(4), texts)).fault == "straggler"


def test_peers_that_wait_outside_any_collective():
    """Ranks at a plain receive, or on a queue, wait for the one whose stack says more; alone they are reported as before."""
    locked = f"PyThread_acquire_lock_timed (libpython3.11.so.1.0)\nenter (fit.py:3){TRAIN}"
    for wait in (
        f"SocketIO.readinto (socket.py:706)\nread_message (comm.py:9){TRAIN}",
        f"__libc_recv (libc.so.6)\nsock_recv (python3.11)\nread_message (comm.py:9){TRAIN}",
        f"recv (multiprocessing/connection.py:250)\nread_message (comm.py:9){TRAIN}",
    ):
        found = compare(crowd(4, wait, {2: locked}))
        assert (found.fault, found.outlier_ranks, found.shared) == ("deadlock", "2", False)
        assert "3 of 4 ranks wait" in found.reason
    post = f"post (requests/api.py:115)\nreport (fit.py:9){TRAIN}"
    found = compare(crowd(4, post, {2: locked}))
    assert (found.fault, found.outlier_ranks, found.shared) == ("external_network", "", True)
    found = compare(crowd(4, wait, {2: f"step (fit.py:3){TRAIN}"}))
    assert (found.outlier_ranks, found.shared) == ("", True)
