"""Which event comes first, of those that no rule explains."""

from __future__ import annotations

from kb.diagnosis.findings import find
from kb.diagnosis.first_unexplained import LINES, Unexplained, first_unexplained
from kb.facts.evidence import Evidence
from kb.facts.history import History
from kb.facts.job_facts import Facts
from kb.facts.topology import Places
from kb.model import Job, StreamRef
from tests.support.kb_samples import CLOSED, OOM, ref, rulebook, scanned

BOOK = rulebook(OOM, CLOSED)
STEPS = "".join(f"2026-11-03 04:12:{n:02d} INFO step {n}/900 loss 2.{n}\n" for n in range(1, 30))


def lost(rank: int, second: int = 40) -> str:
    """What a rank of a merged log prints when its peer is gone."""
    return f"[rank{rank}]: 2026-11-03 04:12:{second} RuntimeError: Connection closed by peer [10.0.0.1]:7000\n"


def first(
    *texts: tuple[StreamRef, str] | str, world: int = 3, accused: dict[int, str] | None = None
) -> Unexplained | None:
    """The first unexplained event of these logs."""
    pairs = [(ref(f"logs/part-{n}.log"), item) if isinstance(item, str) else item for n, item in enumerate(texts)]
    streams = tuple(scanned(text, BOOK, where) for where, text in pairs)
    facts = Facts(Evidence(Job(world_size=world), streams=streams))
    return first_unexplained(find(BOOK, facts, History()).findings, facts, Places(facts), accused)


def test_an_error_before_the_symptom_is_first() -> None:
    """Its rank, its line and the seconds to the first symptom."""
    found = first("[rank2]: 2026-11-03 04:12:30 CRITICAL census: 3 of 40 shards unaccounted for\n" + lost(0) + lost(1))
    assert found is not None
    assert (found.event.place.rank, found.event.kind, found.lead) == (2, "fatal", 10.0)
    assert "3 of 40 shards" in found.lines[0][1]


def test_a_line_that_only_announces_the_end_yields_to_the_error_above() -> None:
    """Which says why the process stops."""
    error = "[rank2]: 2026-11-03 04:12:30 ERROR tape: TapeRevoked: reel 7 belongs to another reader\n"
    found = first(error + "[rank2]: 2026-11-03 04:12:30 CRITICAL loop: shutting down\n" + lost(0) + lost(1))
    assert found is not None
    assert "TapeRevoked" in found.lines[0][1]
    told = first(
        error + "[rank2]: 2026-11-03 04:12:30 CRITICAL loop: leaving, as 3 of 40 shards unaccounted for\n" + lost(0)
    )
    assert told is not None
    assert "3 of 40 shards" in told.lines[0][1]


def test_an_error_after_the_symptom_is_none() -> None:
    """What a rank prints once its peer is gone is a consequence."""
    assert (
        first(lost(0) + lost(1) + "[rank1]: 2026-11-03 04:12:50 ERROR census: 3 of 40 shards unaccounted for\n") is None
    )


def test_an_error_that_the_run_survived_is_none() -> None:
    """Steps of the same rank follow it."""
    own = "2026-11-03 04:12:00 ERROR census: 3 of 40 shards unaccounted for\n" + STEPS
    assert first((ref("logs/rank-2.log", rank=2), own), lost(0) + lost(1)) is None


def test_an_exception_that_is_tried_again_is_none() -> None:
    """Its rank lived to lose a peer; without a later word of the rank, or of another try, it may have ended there."""
    raised = (
        "[rank2]: 2026-11-03 04:12:30 WARNING push of census failed{}\n"
        "[rank2]: Traceback (most recent call last):\n"
        '[rank2]:   File "/home/user/lm/gates.py", line 13, in push\n'
        '[rank2]:     raise GateShut("gate 4")\n'
        "[rank2]: gates.GateShut: gate 4\n"
    )
    again, once = raised.format(", will retry (1/5)"), raised.format("")
    assert first(again + lost(0) + lost(2)) is None
    for text in (again + lost(0) + lost(1), once + lost(0) + lost(2)):
        found = first(text)
        assert found is not None
        assert "GateShut" in found.event.line


def test_threads_left_at_exit_do_not_lead_over_an_error() -> None:
    """Such a line has no time of its own and says nothing; if it is all there is, it still counts."""
    ended = (ref("logs/rank-1.log", rank=1), STEPS[:200] + "terminate called without an active exception\n")
    error = "2026-11-03 04:12:50 CRITICAL census: 3 of 40 shards unaccounted for\n"
    found = first((ref("logs/rank-0.log", rank=0), STEPS[:200] + error), ended)
    assert found is not None
    assert found.event.place.rank == 0
    alone = first(ended)
    assert alone is not None
    assert alone.event.place.rank == 1


def test_a_known_cause_covers_its_line() -> None:
    """A line that a rule explains is not an unexplained one."""
    text = "[rank2]: ERROR torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    assert first(text + lost(0) + lost(1)) is None


def test_a_header_is_explained_with_the_line_below_it() -> None:
    """torch_npu announces the error of the library on a line of its own, which says nothing else."""
    header = "[ERROR] 2026-11-03-04:12:30 (PID:71, Device:0, RankID:2) ERR00100 PTA call acl api failed.\n"
    known = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    assert first(header + known) is None
    assert first(header + "EX9999: the part is not there\n" + lost(0)) is not None


def test_what_many_ranks_print_is_nobodys_own() -> None:
    """An error of the same form on all ranks does not single one out."""
    text = "".join(f"[rank{rank}]: ERROR census: shard {rank} unaccounted for\n" for rank in range(3))
    assert first(text + lost(0) + lost(1)) is None


def test_a_line_without_a_rank_is_of_the_accused() -> None:
    """Where one rank alone shows no symptom and others point at it."""
    text = STEPS + "CRITICAL census: 3 of 40 shards unaccounted for\n" + lost(0) + lost(1)
    found = first(
        text, accused={2: "2 of 3 ranks timed out, lost a peer or were stopped; this one reports none of that"}
    )
    assert found is not None
    assert (found.event.place.rank, found.named) == (
        2,
        "2 of 3 ranks timed out, lost a peer or were stopped; this one reports none of that",
    )


def test_the_last_words_of_a_rank_that_left() -> None:
    """A message like no other line, of a rank that the others lost, is its end; a step is not."""
    text = "".join(f"{rank}: 2026-11-03 04:12:{n} INFO step {n}/900 loss 2.1\n" for n in (10, 11) for rank in range(3))
    died = text + "2: mixture spec v14 went away while in use, nothing left to do\n"
    accused = {2: "the others wait"}
    found = first(died + lost(0) + lost(1), accused=accused)
    assert found is not None
    assert (found.event.kind, found.event.place.rank) == ("end", 2)
    assert found.lines[0][1].startswith("2: mixture spec v14")
    assert first(text + lost(0) + lost(1), accused=accused) is None


def test_a_message_of_another_rank_decides_nothing() -> None:
    """Each rank prints the same line when it begins to wait."""
    waiting = "".join(f"{rank}: waiting at the gate for everybody else\n" for rank in range(3))
    assert first(waiting + lost(0) + lost(1), accused={2: "the others wait"}) is None


def test_a_controller_is_no_rank() -> None:
    """An error of the process that started the ranks is not put on the rank that others accuse."""
    text = (
        "(Controller pid=7) - (ip=10.0.0.1, pid=11) world_rank=0, local_rank=0, node_rank=0\n"
        "(Controller pid=7) - (ip=10.0.0.1, pid=12) world_rank=1, local_rank=1, node_rank=0\n"
        "(Controller pid=7) plans.PlanStale: the plan is 40 s old\n"
        "(Worker pid=12) RuntimeError: Connection closed by peer [10.0.0.1]:7000\n"
    )
    found = first(text, world=2, accused={0: "1 of 2 ranks waits, this one does not"})
    assert found is None or found.event.place.rank is None


def test_a_process_number_gives_the_rank() -> None:
    """The launcher's list says which rank a worker's process is."""
    text = (
        "(Controller pid=7) - (ip=10.0.0.1, pid=11) world_rank=0, local_rank=0, node_rank=0\n"
        "(Controller pid=7) - (ip=10.0.0.1, pid=12) world_rank=1, local_rank=1, node_rank=0\n"
        "(Worker pid=12) buckets.BucketDry: bucket 512 has no documents left\n"
        "(Worker pid=11) RuntimeError: Connection closed by peer [10.0.0.1]:7000\n"
    )
    found = first(text, world=2)
    assert found is not None
    assert (found.event.place.rank, found.event.name) == (1, "BucketDry")


def test_at_most_a_few_lines_are_quoted() -> None:
    """The event's line first, then the other bad lines of its process."""
    text = "".join(f"[rank2]: CRITICAL census: part {'abcdefghij'[n]} unaccounted for\n" for n in range(9))
    found = first(text + lost(0) + lost(1))
    assert found is not None
    assert len(found.lines) == LINES
    assert found.lines[0][0] == found.event.offset


def test_the_rank_with_its_own_exit_status_is_accused() -> None:
    """Where a launcher reports how each ended, the one with another status is first, by its last words."""
    lines = "".join(f"[rank{n}]: 2026-11-03 04:12:20 INFO reading part {n}\n" for n in range(4))
    words = "[rank2]: ledger 3 was cut by another hand, no further\n"
    ends = "".join(f"boss: rank {n} left with status {21 if n == 2 else 1}\n" for n in (0, 1, 2, 3))
    found = first(lines + words + lost(0) + lost(1) + lost(3) + ends, world=4)
    assert found is not None
    assert (found.event.place.rank, found.event.name) == (2, "21")
    assert "ledger 3" in found.event.line


def test_of_equal_exit_statuses_the_first_report_accuses() -> None:
    """All ranks end with status 1; the first to be reported gave the others no reason to end before it."""
    words = "[rank1]: 2026-11-03 04:12:39 ledger 3 failed: cut by another hand\n"
    ends = "".join(f"boss: rank {n} left with status 1\n" for n in (1, 0, 2))
    found = first(words + lost(0) + lost(2) + ends)
    assert found is not None
    assert found.named == "the launcher reports its exit before those of the others"
