"""Who is named as at fault, from small logs of whole jobs."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from kb.diagnosis.engine import diagnose
from kb.diagnosis.suspects.claims import SUSPECTS
from kb.facts.evidence import Evidence
from kb.model import Job, Resource, StreamRef
from kb.report import ONE_END, REPORTED, Suspect
from kb.rulebase.rule import DetectorTest, ExceptionTest, FaultClass, Pattern, Rulebook, StructureTest
from tests.support.kb_samples import ACTIONS, OWNERS, ref, rule, scanned

ALONE = "the only one to report it in these logs"

FAULTS = {
    fault_class.id: fault_class
    for fault_class in (
        FaultClass("rdma_link", "network", "A link is down", explains=("peer_failure",), advice="requeue_without"),
        FaultClass("host_oom", "platform", "Host memory", explains=("peer_failure",)),
        FaultClass("node_lost", "platform", "Node lost", explains=("peer_failure",)),
        FaultClass("time_limit", "platform", "Time limit", explains=("peer_failure",)),
        FaultClass("nvlink_fault", "hardware", "NVLink", advice="requeue_without"),
        FaultClass("collective_desync", "software", "Ranks disagree", explains=("peer_failure",)),
        FaultClass("collective_timeout", "none", "A collective timed out", symptom=True),
        FaultClass("peer_failure", "none", "A peer was lost", symptom=True),
        FaultClass("rendezvous", "software", "Ranks did not meet"),
        FaultClass("straggler", "training", "A slow rank"),
        FaultClass("code_bug", "software", "Error in the code", explains=("peer_failure",)),
        FaultClass("killed", "none", "A process was killed", explains=("peer_failure",)),
        FaultClass("segfault", "software", "Native crash"),
        FaultClass("loss_not_finite", "training", "The loss is NaN"),
        FaultClass("throughput_drop", "training", "The run is slower"),
    )
}
BOOK = Rulebook(
    "0",
    "digest",
    (
        rule("completion", "rdma_link", Pattern("c", structure=StructureTest("ib_completion"))),
        rule("port", "rdma_link", Pattern("p", regex=r"Got async event : port error")),
        rule("link", "rdma_link", Pattern("k", regex=r"mlx5_core \S+ \w+: Link down"), role="contributing"),
        rule("killed", "host_oom", Pattern("k", structure=StructureTest("oom_kill"))),
        rule(
            "ray",
            "host_oom",
            Pattern("r", regex=r"killed due to memory pressure \(OOM\)|killed due to the node running low on memory"),
        ),
        rule("slurm", "node_lost", Pattern("n", regex=r"DUE TO NODE FAILURE|Node failure on|Nodes \S+ not responding")),
        rule("limit", "time_limit", Pattern("s", structure=StructureTest("slurm_end", {"why": "TIME LIMIT"}))),
        rule("sxid", "nvlink_fault", Pattern("s", structure=StructureTest("sxid"))),
        rule("mismatch", "collective_desync", Pattern("m", regex="Detected mismatch between collectives on ranks")),
        rule("models", "collective_desync", Pattern("m", regex="DDP expects same model across all ranks")),
        rule("gloo", "collective_timeout", Pattern("t", regex=r"Timed out waiting \d+ms for"), role="symptom"),
        rule(
            "closed",
            "peer_failure",
            Pattern("c", regex="Connection closed by remote peer (?P<peer>\\S+)"),
            role="symptom",
        ),
        rule("waits", "collective_timeout", Pattern("w", structure=StructureTest("watchdog")), role="symptom"),
        rule("store", "rendezvous", Pattern("w", regex=r"waiting for clients\. \d+/\d+ clients joined")),
        rule("slow", "straggler", Pattern("s", regex=r"stragglers: \[(?P<ranks>[\d, ]+)\]")),
        rule("key", "code_bug", Pattern("k", exception=ExceptionTest(type="KeyError"))),
        rule("ended", "killed", Pattern("e", structure=StructureTest("elastic_failure", {"signal": "SIGKILL"}))),
        rule("noticed", "killed", Pattern("n", structure=StructureTest("launcher_exit", {"signal": "SIGKILL"}))),
        rule("nan", "loss_not_finite", Pattern("n", detect=DetectorTest("loss_not_finite"))),
        rule("pace", "throughput_drop", Pattern("p", detect=DetectorTest("throughput_drop"))),
        rule("native", "segfault", Pattern("f", structure=StructureTest("launcher_exit", {"signal": "SIGSEGV"}))),
    ),
    FAULTS,
    ACTIONS,
    OWNERS,
)
KEY = 'Traceback (most recent call last):\n  File "/srv/fit.py", line 8, in go\n    x = d["a"]\nKeyError: \'a\'\n'
STAMP = "2027-02-09 17:40:0{}"


def suspects_of(*texts: tuple[StreamRef, str] | str, job: Job | None = None) -> list[Suspect]:
    """The suspects of the first diagnosis on these logs."""
    pairs = [(ref(f"logs/part-{n}.log"), item) if isinstance(item, str) else item for n, item in enumerate(texts)]
    report = diagnose(Evidence(job or Job(), streams=tuple(scanned(text, BOOK, where) for where, text in pairs)), BOOK)
    return list(report.diagnoses[0].suspects)


def names(found: list[Suspect]) -> list[tuple[str, str | None, int | None]]:
    """Kind, node and rank of each suspect."""
    return [(suspect.kind, suspect.node, suspect.rank) for suspect in found]


def job(nodes: int, per_node: int) -> Job:
    """A job with nodes cn-a1, cn-a2 and so on."""
    placed = {f"cn-a{n + 1}": tuple(range(n * per_node, (n + 1) * per_node)) for n in range(nodes)}
    return Job(world_size=nodes * per_node, nodes=placed)


def start(rank: int, node: str, address: str, world: int = 8, local: int = 0) -> str:
    """What NCCL says of a rank at its start."""
    head = f"{node}:{700 + rank}:{900 + rank} [{local}] NCCL INFO"
    return (
        f"{head} Bootstrap : Using ens5:{address}<0>\n"
        f"{head} comm 0x7f10 rank {rank} nranks {world} cudaDev {local} busId {0x18 + rank:x}000 - Init COMPLETE\n"
    )


def completion(node: str, rank: int, peer: str, status: int = 12) -> str:
    """A work completion with an error, as a rank's NCCL complains of its peer."""
    text = f"NET/IB : Got completion from peer {peer}<41234> with error {status}, opcode 0, len 0, vendor err 129"
    return f"\n{node}:{700 + rank}:{950 + rank} [0] transport/net_ib.cc:1295 NCCL WARN {text}\n"


# Local evidence before what others say


def test_the_only_node_of_the_logs_is_not_accused_of_a_fault_of_the_program() -> None:
    """That its name stands before the message shows where it was; a second node would show that it stands out."""
    raised = "".join(f"cn-a1: {line}\n" for line in KEY.splitlines())
    (found,) = suspects_of(raised)
    assert (found.kind, found.node, found.why) == ("node", "cn-a1", REPORTED)
    (found,) = suspects_of(raised + "cn-a2: the corpus is ready\n", job=job(2, 1))
    assert (found.node, found.why) == ("cn-a1", ALONE)


def test_a_nodes_kernel_goes_before_the_peers_that_complain() -> None:
    """Link down in one node's kernel log; the three nodes that saw retries run out are not named."""
    logs = [(ref(f"cn-a{n}.log", node=f"cn-a{n}"), completion(f"cn-a{n}", n, "10.9.0.2")) for n in (1, 3, 4)]
    kernel = "[Tue Feb  9 17:40:08 2027] mlx5_core 0000:0c:00.0 ib2: Link down\n"

    found = suspects_of(*logs, (ref("dmesg-cn-a2.log", node="cn-a2", kind="kernel"), kernel), job=job(4, 1))

    assert names(found) == [("node", "cn-a2", None)]
    assert found[0].why == "reported by the kernel of its node"


def test_that_kernel_and_process_agree_is_reported() -> None:
    """The rank that sees its own port fail is named with the node whose kernel saw it too."""
    kernel = "[Tue Feb  9 17:40:08 2027] mlx5_core 0000:0c:00.0 ib2: Link down\n"
    own = "[rank5]: cn-a2:705:801 [1] transport/net_ib.cc:93 NCCL WARN NET/IB : Got async event : port error\n"

    (first,) = suspects_of((ref("dmesg.log", node="cn-a2", kind="kernel"), kernel), own, job=job(2, 4))

    assert (first.kind, first.node, first.rank) == ("rank", "cn-a2", 5)
    assert first.why == "reported by the kernel of its node, and by its own process"


def test_what_a_kernel_reported_long_before_is_old_news() -> None:
    """A port that lost its link at boot, hours ago, is not held against its node."""
    kernel = "[Tue Feb  9 09:40:08 2027] mlx5_core 0000:0c:00.0 ib2: Link down\n"
    own = f"[{STAMP.format(5)}] cn-a1:702:801 [1] net_ib.cc:93 NCCL WARN NET/IB : Got async event : port error\n"
    steps = f"[{STAMP.format(4)}] step\n"

    found = suspects_of((ref("dmesg.log", node="cn-a2", kind="kernel"), kernel), (ref("r", rank=2), steps + own))

    assert [item.rank for item in found] == [2]


@pytest.mark.parametrize(
    ("complaints", "named"),
    [
        ([(1, 2), (3, 2), (4, 2)], "cn-a2"),
        ([(2, 1), (2, 3), (2, 4)], "cn-a2"),
        ([(1, 2)], "cn-a2"),
        ([(1, 3), (4, 3), (3, 2)], "cn-a3"),
    ],
)
def test_the_end_of_most_failed_connections_is_named(complaints, named) -> None:
    """Many who complain of one, or one who complains of many; of a single pair it is the peer, who did not answer."""
    starts = "".join(start(n - 1, f"cn-a{n}", f"10.9.0.{n}", world=4) for n in range(1, 5))
    text = starts + "".join(completion(f"cn-a{item}", item - 1, f"10.9.0.{other}") for item, other in complaints)

    assert suspects_of(text)[0].node == named


def test_a_single_failed_connection_accuses_both_ends_and_excludes_none() -> None:
    """Which end is at fault shows only at the ports; a line that names no writer may give its own address."""
    starts = start(0, "cn-a1", "10.9.0.1", 2) + start(1, "cn-a2", "10.9.0.2", 2)
    report = diagnose(Evidence(Job(), streams=(scanned(starts + completion("cn-a1", 0, "10.9.0.2"), BOOK),)), BOOK)
    found = report.diagnoses[0].suspects
    bare = "Got completion from peer 10.9.0.2<41234> with error 12, opcode 0 localGid ::ffff:10.9.0.7 remoteGids::ffff:10.9.0.2"

    assert [(item.node, item.why) for item in found] == [("cn-a2", ONE_END), ("cn-a1", ONE_END)]
    assert (report.decision.advice, report.decision.exclude) == ("requeue_without", ())
    assert {item.node for item in suspects_of(f"NET/IB : {bare}\n")} == {"10.9.0.2", "10.9.0.7"}


def test_a_local_error_is_not_the_peers() -> None:
    """Status 4, a local protection error, is of the side that reports it."""
    text = start(0, "cn-a1", "10.9.0.1", 2) + start(1, "cn-a2", "10.9.0.2", 2) + completion("cn-a1", 0, "10.9.0.2", 4)

    assert suspects_of(text)[0].node == "cn-a1"


def test_the_driver_in_a_kernel_line_is_no_node() -> None:
    """`nvidia-nvswitch3:` behind the stamp is a driver; the node is the file's."""
    line = (
        "[Tue Feb  9 17:40:08 2027] nvidia-nvswitch3: SXid (PCI:0000:86:00.0): 20034, Fatal, Link 11 LTSSM Fault Up\n"
    )

    assert suspects_of((ref("dmesg-cn-a2.log", node="cn-a2", kind="kernel"), line))[0].node == "cn-a2"


def test_a_killed_process_is_a_rank_by_its_number() -> None:
    """The kernel names a process of the node; NCCL logged at the start which rank it is."""
    kernel = "[ 8123.456789] Out of memory: Killed process 706 (python3) total-vm:9kB, anon-rss:7kB\n"

    (first,) = suspects_of((ref("dmesg.log", node="cn-a2", kind="kernel"), kernel), start(6, "cn-a2", "10.9.0.2"))

    assert (first.node, first.rank) == ("cn-a2", 6)


# What launchers and schedulers say


def test_slurms_batch_host_is_no_suspect() -> None:
    """`ON cn-a1` says where the message comes from; the lost node is named in the other line."""
    text = (
        "slurmstepd: error: *** JOB 771 ON cn-a1 CANCELLED AT 2027-02-09T17:40:08 DUE TO NODE FAILURE, SEE LOG ***\n"
        "srun: error: Node failure on cn-a3\n"
    )

    assert names(suspects_of(text)) == [("node", "cn-a3", None)]


def test_a_list_of_nodes_is_taken_apart() -> None:
    """Slurm's bracket form names each of them."""
    text = "srun: error: Nodes cn-a[08-10] not responding\n"

    assert [item.node for item in suspects_of(text)] == ["cn-a08", "cn-a09", "cn-a10"]


def watchdogs(*sizes: int, seq: int = 40) -> str:
    """The lines of the watchdogs of ranks that wait in collectives of these sizes."""
    return "".join(
        f"[rank{rank}]:[E ProcessGroupNCCL.cpp:523] [Rank {rank}] Watchdog caught collective operation timeout: "
        f"WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn={size}, NumelOut={size}, Timeout(ms)=600000) "
        "ran for 600218 milliseconds before timing out.\n"
        for rank, size in enumerate(sizes)
    )


def test_the_rank_that_waits_in_another_collective_stands_out() -> None:
    """Under the same number; where two sides are as large, or all wait in the same one, nobody does."""
    odd = suspects_of(watchdogs(512, 512, 64, 512))
    assert [(item.rank, "ALLREDUCE of 64 elements" in item.why) for item in odd] == [(2, True)]
    assert not any("elements" in item.why for item in suspects_of(watchdogs(512, 512, 64, 64)))
    assert not any("elements" in item.why for item in suspects_of(watchdogs(512, 512, 512)))


def test_a_time_limit_is_the_jobs() -> None:
    """No node and no rank is at fault where the job's time is up."""
    text = "slurmstepd: error: *** JOB 771 ON cn-a1 CANCELLED AT 2027-02-09T17:40:08 DUE TO TIME LIMIT ***\n"

    assert names(suspects_of((ref("cn-a1.log", node="cn-a1"), text))) == [("job", None, None)]


def block(failed: list[tuple[int, int, str]]) -> str:
    """A failure block of torchrun: rank, exit code and host of each, the first seen first."""

    def item(number: int, rank: int, code: int, host: str) -> str:
        return (
            f"[{number}]:\n  time      : 2027-02-09_17:40:08\n  host      : {host}\n"
            f"  rank      : {rank} (local_rank: {rank % 4})\n  exitcode  : {code} (pid: {4000 + rank})\n"
        )

    others = "".join(item(n, *entry) for n, entry in enumerate(failed[1:], 1))
    line = "-" * 60 + "\n"
    return f"train.py FAILED\n{line}Failures:\n{others}{line}Root Cause (first observed failure):\n{item(0, *failed[0])}{'=' * 60}\n"


def test_the_launcher_tells_where_nothing_else_does() -> None:
    """A traceback without a rank, and one process that ended with an error."""
    (first,) = suspects_of(KEY + block([(3, 1, "cn-a1")]), job=Job(world_size=8))

    assert (first.rank, first.node, first.why) == (3, "cn-a1", "first to fail according to the launcher")


@pytest.mark.parametrize(("rank", "told"), [(23, []), (3, [3])])
def test_a_rank_of_another_job_has_no_suspect_in_this_ones_launcher(rank: int, told: list[int]) -> None:
    """The launcher's job has eight ranks; a log beside its own is of a larger job."""
    other = "".join(f"[rank{rank}]: {line}\n" for line in KEY.splitlines())
    launched = "> using world size: 8\n" + block([(3, 1, "cn-a1")])

    assert [item.rank for item in suspects_of(other, launched, job=Job(world_size=8))] == told


def test_the_launcher_tells_when_it_failed_where_no_line_does() -> None:
    """Its table has a time; a line with a time of its own keeps it, and a process that aborted did not raise."""

    def first_seen(text: str) -> tuple[float | None, bool, bool]:
        (first, *_) = diagnose(Evidence(streams=(scanned(text, BOOK, ref("logs/a.log")),)), BOOK).diagnoses
        return first.first_seen, first.first_seen_own, first.first_seen_reported

    told = datetime(2027, 2, 9, 17, 40, 8, tzinfo=UTC).timestamp()
    assert first_seen(KEY + block([(3, 1, "cn-a1")])) == (told, True, True)
    assert first_seen(KEY + block([(3, -6, "cn-a1")])) == (None, True, False)
    stamped = "".join(f"2027-02-09 17:39:00 {line}\n" for line in KEY.splitlines())
    assert first_seen(stamped + block([(3, 1, "cn-a1")])) == (told - 68, True, False)


def test_lsf_tells_when_it_ended_a_job() -> None:
    """In the report that it writes into the log, above the reason."""
    report = (
        "Started at Tue Feb  9 08:08:46 2027\nTerminated at Tue Feb  9 17:40:08 2027\n\nYour job looked like:\n"
        "python fit.py\n\nTERM_ADMIN: job killed by root.\n"
    )
    rules = (rule("lsf", "time_limit", Pattern("t", regex="^TERM_ADMIN: ")),)
    book = Rulebook("0", "digest", rules, FAULTS, ACTIONS, OWNERS)
    (first,) = diagnose(Evidence(streams=(scanned(report, book, ref("logs/lsf.log")),)), book).diagnoses
    assert first.first_seen == datetime(2027, 2, 9, 17, 40, 8, tzinfo=UTC).timestamp()


def test_a_process_that_ended_otherwise_did_not_print_the_traceback() -> None:
    """The launcher saw a victim abort first; it is the one with an exit code that raised."""
    victim, raised = (2, -6, "cn-a1"), (6, 1, "cn-a2")

    assert [item.rank for item in suspects_of(KEY + block([victim]) + block([raised]), job=Job(world_size=8))] == [6]


def test_where_all_processes_end_alike_it_is_the_job() -> None:
    """Every rank of the block has the same exit, and the traceback names none of them."""
    found = suspects_of(KEY + block([(n, 1, "cn-a1") for n in range(4)]), job=Job(world_size=4))

    assert [(item.kind, item.why) for item in found] == [("job", "4 of 4 ranks ended the same way")]


def test_two_of_at_least_eight_ranks_are_not_the_job() -> None:
    """If the size of the job is unknown, rank 7 shows that there are eight."""
    (first, *_) = suspects_of(KEY + block([(4, 1, "cn-a1"), (7, 1, "cn-a1")]))

    assert (first.kind, first.rank, first.why) == ("rank", 4, "first to fail according to the launcher")


def test_a_kill_is_of_the_process_that_ended_by_it() -> None:
    """A kernel line of an unknown node, and two nodes' blocks: one victim aborted, one process was killed."""
    kernel = "NVRM: Out of memory: Killed process 91 (python3) total-vm:9kB, anon-rss:7kB\n"

    found = suspects_of(kernel + block([(2, -6, "cn-a1")]) + block([(6, -9, "cn-a2")]), job=Job(world_size=8))

    assert names(found) == [("rank", "cn-a2", 6)]


def test_the_rank_that_mpirun_noticed_is_named() -> None:
    """Its message names rank and node, in one line or two."""
    line = "prterun noticed that process rank 5 with PID 411 on node cn-a1 exited on\nsignal 9 (Killed).\n"

    for log in (line, line.replace("\n", " ", 1)):
        assert names(suspects_of(log, job=Job(world_size=8))) == [("rank", "cn-a1", 5)]


def test_a_lost_node_that_nobody_names_is_the_silent_one() -> None:
    """Slurm says only that a node failed; the ranks of two nodes lost their peers, those of the third say nothing."""
    end = "slurmstepd: error: *** JOB 771 ON cn-a1 CANCELLED AT 2027-02-09T17:40:08 DUE TO NODE FAILURE ***\n"
    lost = "NCCL WARN Connection closed by remote peer 10.9.0.7<31>\n"
    logs = [(ref(f"rank-{n}.log", rank=n), lost if n not in (2, 3) else "step 3\n") for n in range(6)]

    found = suspects_of((ref("cn-a1.log", node="cn-a1"), end), *logs, job=job(3, 2))

    assert names(found) == [("node", "cn-a2", None)]


@pytest.mark.parametrize(("killed", "named"), [(4, 5), (5, 5)])
def test_who_lost_a_peer_before_it_was_killed_is_a_victim(killed, named) -> None:
    """Seven of eight lost a connection; the launcher saw one of them, or the eighth, be killed."""
    lost = "NCCL WARN Connection closed by remote peer 10.9.0.7<31>\n"
    logs = [(ref(f"rank-{n}.log", rank=n), lost if n != 5 else "step 3\n") for n in range(8)]

    assert suspects_of(*logs, block([(killed, -9, "cn-a2")]), job=job(2, 4))[0].rank == named


# All alike


def test_all_ranks_alike_without_a_job_file() -> None:
    """The number of ranks comes from the lines themselves."""
    text = "".join(f"[rank{n}]: {line}\n" for n in range(8) for line in KEY.splitlines())

    assert names(suspects_of(text)) == [("job", None, None)]


def test_all_nodes_alike_where_ranks_are_not_known() -> None:
    """A log a node and no rank in any line."""
    assert names(suspects_of(*[(ref(f"cn-a{n}.log", node=f"cn-a{n}"), KEY) for n in range(1, 4)])) == [
        ("job", None, None)
    ]


def test_all_logs_alike_where_neither_is_known() -> None:
    """Where file names are not informative, a line that is in all files belongs to the job."""
    (only,) = suspects_of(*[(ref(f"part-{n}.txt"), KEY) for n in range(4)])

    assert (only.kind, only.why) == ("job", "it is in all logs of the job")


def test_one_long_before_the_others_is_the_one() -> None:
    """All show it at last, the first of them ten minutes before."""
    logs = [(ref(f"rank-{n}.log", rank=n), f"2027-02-09 17:{50 if n != 2 else 40}:0{n} ERROR\n{KEY}") for n in range(4)]

    assert suspects_of(*logs)[0].rank == 2


# Who waits, and who does not

LATE = "RuntimeError: [gloo/unbound_buffer.cc:78] Timed out waiting 6000ms for recv operation to complete\n"


def test_the_one_that_does_not_wait_is_named() -> None:
    """Seven of eight gave up waiting; the eighth says nothing."""
    logs = [(ref(f"rank-{n}.log", rank=n), LATE if n != 5 else "step 3\n") for n in range(8)]

    (only,) = suspects_of(*logs)

    assert (only.rank, only.why) == (
        5,
        "7 of at least 8 ranks timed out, lost a peer or were stopped; this one reports none of that",
    )


def test_a_rank_that_only_names_the_work_it_waited_for_has_timed_out_too() -> None:
    """One watchdog prints the long line, the others only their counts; no line is of rank 0."""
    counts = "[rank{0}]:[E ProcessGroupNCCL.cpp:1537] [PG 0 Rank {0}] Timeout at NCCL work: 19, last enqueued NCCL work: 19, last completed NCCL work: 18.\n"
    text = "[rank2]: " + LATE + "".join(counts.format(rank) for rank in (2, 3, 1))

    assert [item.rank for item in suspects_of((ref("train.log"), text))] == [0]


def test_a_silent_process_is_found_by_its_place_on_the_node() -> None:
    """In a torchrun tree no line has the silent rank's number; its neighbours identify it."""
    logs = []
    for node in range(2):
        for local in range(4):
            rank = 4 * node + local
            where = StreamRef(f"cn-a{node}/{local}/stderr.log", Resource(node=f"cn-a{node}", local_rank=local))
            logs.append((where, f"[rank{rank}]: {LATE}" if rank != 6 else "hello\n"))

    assert names(suspects_of(*logs)) == [("rank", "cn-a1", 6)]


def test_a_node_of_which_nobody_waits_is_named_whole() -> None:
    """All ranks of one node are silent."""
    logs = [(ref(f"rank-{n}.log", rank=n), LATE if n // 2 != 1 else "step 3\n") for n in range(8)]

    assert names(suspects_of(*logs, job=job(4, 2))) == [("node", "cn-a2", None)]


def test_all_that_wait_are_the_job() -> None:
    """Where every rank waits, only the job as a whole is suspected."""
    assert names(suspects_of(*[(ref(f"rank-{n}.log", rank=n), LATE) for n in range(8)])) == [("job", None, None)]


def test_a_few_that_wait_are_not_reported_to_be_at_fault() -> None:
    """Two of eight tell of a wait: who they wait for is not known."""
    found = suspects_of(*[(ref(f"rank-{n}.log", rank=n), LATE if n < 2 else "step 3\n") for n in range(8)])

    assert {item.why for item in found} == {"waiting; blocker unknown"}


def test_those_that_wait_for_clients_point_at_the_one_that_never_came() -> None:
    """A store's timeout is not the fault of the ranks that print it."""
    text = "RuntimeError: Timed out after 601 seconds waiting for clients. 7/8 clients joined.\n"

    found = suspects_of(
        *[(ref(f"rank-{n}.log", rank=n), text if n != 3 else "KeyErr\n") for n in range(8)], job=job(2, 4)
    )

    assert names(found) == [("rank", "cn-a1", 3)]


def test_a_lost_peer_is_named_by_the_others() -> None:
    """Two nodes of the three lose a connection to the third, whose log is not there."""
    line = "misc/socket.cc:49 NCCL WARN Connection closed by remote peer cn-a3<34021>\n"
    logs = [(ref(f"cn-a{n}.log", node=f"cn-a{n}"), f"cn-a{n}:7:9 [0] {line}") for n in (1, 2)]

    assert suspects_of(*logs, job=job(3, 1))[0].node == "cn-a3"


def test_of_several_that_peers_name_it_is_the_one_that_does_not_wait_itself() -> None:
    """The rank that was lost first has lost no peer; those that lost a peer are later lost by others."""
    line = "{me}:7:9 [0] socket.cc:49 NCCL WARN Connection closed by remote peer {peer}<34021>\n"
    pairs = [("cn-a1", "cn-a2"), ("cn-a2", "cn-a3"), ("cn-a4", "cn-a2")]
    logs = [(ref(f"{me}.log", node=me), line.format(me=me, peer=peer)) for me, peer in pairs]

    assert suspects_of(start(0, "cn-a3", "10.9.0.3"), *logs)[0].node == "cn-a3"


def test_of_several_silent_ranks_the_one_that_peers_name_is_first() -> None:
    """Two of eight say nothing; the others lost a connection to the node of the second."""
    lost = "NCCL WARN Connection closed by remote peer cn-a3<31>\n"
    logs = [(ref(f"rank-{n}.log", rank=n), lost if n not in (1, 5) else "step 3\n") for n in range(8)]

    assert [item.rank for item in suspects_of(*logs, job=job(4, 2))] == [5, 1]


def test_silent_ranks_of_one_node_that_peers_name_are_reported_as_the_node() -> None:
    """The order in which the two were lost is unknown."""
    lost = "NCCL WARN Connection closed by remote peer cn-a2<31>\n"
    logs = [(ref(f"rank-{n}.log", rank=n), lost if n not in (1, 5, 6) else "step 3\n") for n in range(12)]

    assert names(suspects_of(*logs, job=job(3, 4))) == [("node", "cn-a2", None), ("rank", "cn-a1", 1)]


def test_most_nodes_silent_is_no_sign() -> None:
    """Only one of three nodes reports a wait."""
    found = suspects_of((ref("cn-a1.log", node="cn-a1"), LATE), job=job(3, 2))

    assert names(found) == [("node", "cn-a1", None)]


def test_ranks_that_a_line_lists_are_named_rather_than_its_speaker() -> None:
    """Rank 0 reports the stragglers."""
    found = suspects_of((ref("rank-0.log", rank=0), "stragglers: [3, 6]\n"), job=job(2, 4))

    assert names(found) == [("rank", "cn-a1", 3), ("rank", "cn-a2", 6)]


@pytest.mark.parametrize(
    ("groups", "named"),
    [
        (("[Rank 3]",), [3]),
        (("[PG ID 0 PG GUID 0(default_pg) Rank 3]",), [3]),
        (("[Rank 3]", "[Rank 5]"), []),
        (("[PG ID 2 PG GUID 9(tensor) Rank 1]",), []),
    ],
)
def test_a_number_in_a_process_group_is_a_rank_only_in_the_default_group(groups, named) -> None:
    """Each tensor-parallel group has a member 1."""
    lines = "".join(f"{KEY}{group} NCCL watchdog thread terminated with exception: KeyError: 'a'\n" for group in groups)
    book = replace(BOOK, rules=(rule("line", "code_bug", Pattern("w", regex="terminated with exception: KeyError")),))
    found = diagnose(Evidence(Job(world_size=8), streams=(scanned(lines, book, ref("logs/a.log")),)), book)

    assert [suspect.rank for suspect in found.diagnoses[0].suspects] == named


def test_a_message_that_starts_with_its_rank_is_that_ranks() -> None:
    """The program says who it is; the line has no prefix."""
    (first,) = suspects_of(KEY.replace("'a'", "Rank 13: a"), KEY, job=Job(world_size=16))

    assert first.rank == 13


# Who does otherwise


def mismatch(mine: int, shape: int, other: int, its: int) -> str:
    """What torch says on one rank of two collectives that differ."""

    def running(rank: int, size: int) -> str:
        what = f"SequenceNumber=41, OpType=ALLREDUCE, TensorShape=[{size}], TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float)"
        return f"Rank {rank} is running collective: CollectiveFingerPrint({what})"

    last = f"RuntimeError: Detected mismatch between collectives on ranks. {running(mine, shape)}, but {running(other, its)}."
    return f'[rank{mine}]: Traceback (most recent call last):\n[rank{mine}]:   File "/srv/fit.py", line 8, in go\n[rank{mine}]: {last}\n'


@pytest.mark.parametrize("odd", [0, 5])
def test_the_rank_that_runs_something_else_is_named(odd) -> None:
    """By majority over what all ranks tell, not all who tell it."""
    text = "".join(
        mismatch(n, 2048, odd, 512) if n != odd else mismatch(odd, 512, 1 if odd == 0 else 0, 2048) for n in range(8)
    )

    (only,) = suspects_of(text, job=job(2, 4))

    assert (only.rank, only.node, only.why) == (odd, f"cn-a{odd // 4 + 1}", "differs from 7 other ranks")


def test_a_model_that_differs_is_reported_by_the_number_of_its_parameters() -> None:
    """DDP's check: each rank names its own number and another's."""
    lines = [f"RuntimeError: DDP expects same model across all ranks, but Rank {n} has 30 params, while rank 2 has inconsistent 31 params." for n in (0, 1, 3)]  # fmt: skip

    assert [item.rank for item in suspects_of("\n".join(lines) + "\n", job=job(1, 4))] == [2]


# Ray


def test_an_address_is_a_node_by_what_nccl_reported_at_its_start() -> None:
    """Ray logs an address and a process; NCCL's start logs both with host and rank."""
    text = "".join(start(n, f"cn-a{n}", f"10.9.0.{n}", world=3) for n in range(3)) + (
        "(raylet, ip=10.9.0.2) node_manager.cc:3069: 1 Workers (tasks / actors) killed due to memory pressure (OOM)\n"
    )

    assert suspects_of(text)[0].node == "cn-a2"


def test_the_process_that_ray_killed_is_a_rank() -> None:
    """`IP: …` and `pid=…` in one line."""
    text = "".join(start(n, f"cn-a{n}", f"10.9.0.{n}", world=3) for n in range(3)) + (
        "Task was killed due to the node running low on memory (IP: 10.9.0.1, ID: 7f), where pid=701 was running.\n"
    )

    assert names(suspects_of(text)) == [("rank", "cn-a1", 1)]


# Bounds


@pytest.mark.parametrize(
    "line",
    [
        "srun: error: Nodes cn-a[09-01] not responding",
        "srun: error: Nodes cn-a[1-999999] not responding",
        "srun: error: Nodes cn-a[²] not responding",
        "stragglers: [9999999, 99999999999]",
        "stragglers: [, ]",
        "Node failure on " + "x" * 5000,
        "RuntimeError: Detected mismatch between collectives on ranks. Rank 9999999 is running collective: Rank",
        "NCCL WARN Connection closed by remote peer <<<[[[",
    ],
)
def test_odd_lines_name_at_most_so_many(line) -> None:
    """Any text in place of a name raises no error, and the list stays short."""
    report = diagnose(Evidence(Job(world_size=8), streams=(scanned(line + "\n", BOOK),)), BOOK)

    assert all(len(diagnosis.suspects) <= SUSPECTS for diagnosis in report.diagnoses)
    assert all(suspect.rank is None or 0 <= suspect.rank < 8 for two in report.diagnoses for suspect in two.suspects)


@pytest.mark.slow  # the other tests of the module
def test_thousands_of_ranks_take_no_long_time() -> None:
    """A log a rank; nearly all wait."""
    ranks = 4000
    waits, quiet = (scanned(text, BOOK, ref("rank-0.log", rank=0)) for text in (LATE, "step\n"))
    streams = tuple(replace(quiet if n == 3333 else waits, ref=ref(f"rank-{n}.log", rank=n)) for n in range(ranks))
    begun = time.process_time()
    report = diagnose(Evidence(Job(world_size=ranks), streams=streams), BOOK)

    assert time.process_time() - begun < 8
    assert len(report.diagnoses[0].suspects) <= SUSPECTS


# Lines that name no rank


CLOSED_BY = "[rank{0}]: Connection closed by remote peer cn-a9\n"


def test_a_line_without_a_rank_is_that_of_the_only_rank_that_lost_nobody() -> None:
    """All ranks announce themselves; all but one report a lost peer. With two silent ranks, none is named."""
    starts = "".join(f"worker {rank}/4 up\n" for rank in range(4))
    lost = [CLOSED_BY.format(rank) for rank in (0, 1, 3)]
    found = suspects_of(starts + KEY + "".join(lost))
    assert [(suspect.rank, suspect.why) for suspect in found] == [
        (2, "3 of 4 ranks timed out, lost a peer or were stopped; this one reports none of that")
    ]
    assert suspects_of(starts + KEY + "".join(lost[:2])) == []


def test_the_number_of_ranks_is_unknown_where_not_all_announce_themselves() -> None:
    """The workers of a data loader announce themselves too."""
    found = suspects_of("worker 0/4 up\n" + KEY + "".join(CLOSED_BY.format(rank) for rank in (0, 1, 3)))
    assert found == []


def test_all_ranks_but_one_make_it_the_jobs() -> None:
    """The last one was stopped before it could fail of the same; two of four are suspects of their own."""
    logs = [KEY.replace("\n", f"\n[rank{rank}]: ") for rank in range(3)]
    text = "".join(f"[rank{rank}]: {item}\n" for rank, item in enumerate(logs))
    found = suspects_of((ref("logs/all.log"), text), job=Job(world_size=4))
    assert [(suspect.kind, suspect.why) for suspect in found] == [("job", "seen on 3 of 4 ranks (0-2)")]


def test_a_receiver_that_gets_more_than_it_expects_is_not_the_culprit() -> None:
    """It reports the other rank's tensor; of two, that is the other one."""
    line = "[rank{0}]: Detected mismatch between collectives on ranks, op.preamble.length <= op.nbytes. 160 vs 64\n"
    text = "".join(line.format(rank) for rank in range(3))
    found = suspects_of((ref("logs/all.log"), "[rank3]: starts\n" + text), job=Job(world_size=4))
    assert [suspect.rank for suspect in found] == [3]
    assert suspects_of((ref("logs/all.log"), line.format(0)), job=Job(world_size=3)) == []  # which of two is unknown


# Only what is proven


def test_ranks_of_several_launchers_are_no_ranks_of_one_job() -> None:
    """Two launchers of four ranks each number them alike: eight processes, of which no rank is one."""
    both = block([(n, 1, "cn-a1") for n in range(4)]) + block([(n, 1, "cn-a2") for n in range(4)])
    one_short = block([(n, 1, "cn-a1") for n in range(4)]) + block(
        [(0, -15, "cn-a2"), *[(n, 1, "cn-a2") for n in (1, 2, 3)]]
    )

    why = "processes that the launchers report ended the same way"
    assert [(item.kind, item.why) for item in suspects_of(KEY + both)] == [("job", f"all 8 {why}")]
    assert [(item.kind, item.why) for item in suspects_of(KEY + one_short)] == [("job", f"7 of the 8 {why}")]


def test_the_host_of_a_rank_is_that_of_its_own_failure_block() -> None:
    """A job that was requeued in the same log: its rank 3 ran on another host before."""
    start_before = start(3, "cn-a1", "10.9.0.1")

    (first,) = suspects_of(start_before + KEY + block([(3, 1, "cn-a2")]))

    assert (first.rank, first.node) == (3, "cn-a2")


def test_the_size_of_a_job_is_only_stated_where_a_source_states_it() -> None:
    """Four ranks that raise are all that the log names, not all that the job has."""
    text = "".join(f"[rank{n}]: {line}\n" for n in range(4) for line in KEY.splitlines())
    unnamed = KEY * 3 + "[rank3]: ready\n" + KEY

    assert [item.why for item in suspects_of(text)] == ["seen on 4 ranks (0-3)"]
    assert [item.why for item in suspects_of(text, job=Job(world_size=4))] == ["seen on 4 of 4 ranks"]
    assert [item.why for item in suspects_of("[rank2]: ready\n" + unnamed)] == [
        "seen 4 times in a job of at least 4 ranks"
    ]


def test_logs_that_show_it_are_counted() -> None:
    """Four of five logs are not all of them."""
    logs = [(ref(f"part-{n}.txt"), KEY if n else "step 3\n") for n in range(5)]

    assert [(item.kind, item.why) for item in suspects_of(*logs)] == [("job", "it is in 4 of 5 logs of the job")]


@pytest.mark.parametrize(
    ("times", "leading", "rest"),
    [
        (("17:40:01", "17:40:09"), "first to report it", "reported it later"),
        (("17:40:01", "17:40:02"), "seen in own log", "seen in own log"),  # within the skew of two clocks
        (("", ""), "seen in own log", "seen in own log"),  # no common clock
    ],
)
def test_who_reports_first_in_separate_logs_is_only_known_by_the_clock(times, leading, rest) -> None:
    """Two of eight ranks report it, each in its own log."""
    logs = [(ref(f"rank-{n}.log", rank=n), "step 3\n") for n in range(2, 8)]
    said = "DDP expects same model across all ranks\n"
    both = [
        (ref(f"rank-{n}.log", rank=n), f"2027-02-09 {at} ERROR {said}" if at else said) for n, at in enumerate(times)
    ]

    assert [item.why for item in suspects_of(*both, *logs)] == [leading, rest]


@pytest.mark.parametrize(("second", "leading"), [("01", "seen in own log"), ("05", "first to report it")])
def test_the_same_second_of_one_log_shows_no_order(second: str, leading: str) -> None:
    """Two of eight ranks report it; their buffers may have been flushed in another order."""
    said = "ERROR DDP expects same model across all ranks\n"
    text = f"[rank6]: 2027-02-09 17:40:01 {said}[rank1]: 2027-02-09 17:40:{second} {said}"

    found = suspects_of("[rank7]: ready\n" + text, job=Job(world_size=8))

    assert (found[0].rank, found[0].why) == (6, leading)


def test_without_times_the_order_in_a_log_is_called_just_that() -> None:
    """Two of eight ranks raise in the log of the job: their buffers may have been flushed in another order."""
    text = "".join(f"[rank{n}]: {line}\n" for n in (6, 1) for line in KEY.splitlines())

    found = suspects_of("[rank7]: ready\n" + text, job=Job(world_size=8))

    assert [(item.rank, item.why) for item in found] == [(6, "first in the log"), (1, "later in the log")]


def test_a_survivor_of_a_process_that_died_is_no_suspect() -> None:
    """The controller reports that an actor died, without its rank; one rank reports that its store is gone."""
    died = "2027-02-09 17:40:01 ERROR controller: an actor died unexpectedly\n"
    lost = "[rank5]: store: Connection reset by peer\n"
    reset = rule("reset", "peer_failure", Pattern("r", regex="Connection reset by peer"), role="symptom")
    gone = rule("gone", "peer_failure", Pattern("g", regex="an actor died unexpectedly"), role="symptom")
    book = replace(BOOK, rules=(gone, reset, *BOOK.rules))

    def report_on(text: str) -> list[Suspect]:
        report = diagnose(
            Evidence(
                Job(),
                streams=(scanned("".join(f"[rank{n}]: ready\n" for n in range(8)) + text, book, ref("logs/main.log")),),
            ),
            book,
        )
        return list(report.diagnoses[0].suspects)

    assert report_on(died + lost) == []
    assert [(item.rank, item.why) for item in report_on(lost)] == [(5, "waiting; blocker unknown")]


def test_interleaved_lines_that_name_all_devices_are_the_jobs() -> None:
    """Four processes write over each other, and the launcher names the one that it saw end first."""
    memory = rule("memory", "code_bug", Pattern("m", regex="HIP out of memory"))
    line = "OutOfMemoryErrorOutOfMemoryError: : HIP out of memory. Tried to allocate 2.00 GiB. GPU {} has a total capacity of 63 GiB\n"
    book = replace(BOOK, rules=(memory, *BOOK.rules))

    def named(devices: tuple[int, ...]) -> list[tuple[str, str]]:
        text = "".join(line.format(device) for device in devices) + block([(3, 1, "cn-a1"), (1, 1, "cn-a1")])
        report = diagnose(Evidence(Job(world_size=4), streams=(scanned(text, book, ref("logs/main.log")),)), book)
        return [(item.kind, item.why) for item in report.diagnoses[0].suspects]

    assert named((2, 0, 3, 1)) == [("job", "its lines name 4 GPUs")]
    assert named((3,)) == [("rank", "first to fail according to the launcher")]


@pytest.mark.parametrize("wrong", ["loss", "pace"])
def test_the_figures_of_the_run_accuse_nobody(wrong):
    """One rank logs them for all ranks: that its log has the line says nothing about its node."""
    steps = "".join(
        f"[2027-02-09 17:40:{n:02}] iteration {n}/ 400 | elapsed time per iteration (ms): "
        f"{420.0 if wrong == 'pace' and n > 30 else 200.0} | lm loss: {'nan' if wrong == 'loss' and n > 20 else 3.0 - n / 50:.4} | grad norm: 1.0 |\n"
        for n in range(1, 60)
    )
    logs = [(ref(f"logs/rank-{rank}.log", rank=rank, node="node-b"), "ready\n") for rank in range(3)]

    assert suspects_of(*logs, (ref("logs/rank-3.log", rank=3, node="node-b"), steps), job=Job(world_size=4)) == []


@pytest.mark.parametrize(
    ("fault", "shared", "why"),
    [
        ("config_error", "always", REPORTED),
        ("code_bug", "usually", "seen in own log"),
        ("data_error", None, "seen in own log"),
    ],
)
def test_who_only_reports_what_all_share_is_not_accused(monkeypatch, fault, shared, why) -> None:
    """A setting or an environment belongs to the whole job; code that fails on one rank alone may well be that rank's."""
    faults = {**FAULTS, fault: FaultClass(fault, "software", "At fault", shared=shared)}
    own = replace(BOOK, faults=faults, rules=(rule("wrong", fault, Pattern("w", regex="cannot go on")), *BOOK.rules))
    monkeypatch.setattr(sys.modules[__name__], "BOOK", own)
    logs = [(ref(f"rank-{n}.log", rank=n), "cannot go on\n" if n in (2, 5) else "ready\n") for n in range(8)]

    assert [(item.rank, item.why) for item in suspects_of(*logs)] == [(2, why), (5, why)]


@pytest.mark.parametrize(
    ("peers", "why"),
    [("", REPORTED), ("[rank3]: Connection closed by remote peer 10.9.0.7<31>\n", ALONE)],
)
def test_code_that_one_rank_shows_is_that_ranks_only_if_others_lost_it(peers, why) -> None:
    """One log of all ranks does not tell whether the others would have failed alike, unless they report a lost peer."""
    faults = {
        **FAULTS,
        "code_bug": FaultClass("code_bug", "software", "Bug", shared="usually", lies_in="code of the run"),
    }
    own = replace(
        BOOK, faults=faults, rules=(rule("wrong", "code_bug", Pattern("w", regex="cannot go on")), *BOOK.rules)
    )
    text = f"[rank1]: cannot go on\n{peers}"
    (first, *_) = diagnose(Evidence(Job(world_size=4), streams=(scanned(text, own),)), own).diagnoses

    assert [(item.rank, item.why) for item in first.suspects] == [(1, why)]
    assert first.lies_in == "code of the run"  # the rank is where it was seen


def test_of_two_sides_that_differ_neither_is_right() -> None:
    """One report of a mismatch names two ranks, and shows what each of them runs."""
    first, second = suspects_of(mismatch(1, 2048, 0, 512), job=job(1, 2))

    assert (first.rank, second.rank) == (0, 1)
    assert (first.why.partition(";")[0], second.why.partition(";")[0]) == (
        "runs ALLREDUCE of shape [512], number 41",
        "runs ALLREDUCE of shape [2048], number 41",
    )


@pytest.mark.parametrize(
    ("domain", "acts", "own", "at_fault"),
    [
        ("network", None, "", "network"),
        ("network", "user", "", ""),
        ("network", "user", "launch settings", "launch settings"),
        ("software", "user", "", "network"),
    ],
)
def test_a_class_says_what_is_at_fault_only_where_the_rule_knows_no_better(domain, acts, own, at_fault) -> None:
    """The class of the network covers ranks that share a GPU; a rule for these says that the user must act."""
    faults = {**FAULTS, "late": FaultClass("late", domain, "Late", shared="always", lies_in="network")}
    late = replace(rule("late", "late", Pattern("w", regex="cannot go on")), owner=acts, lies_in=own)
    own_book = replace(BOOK, faults=faults, rules=(late, *BOOK.rules))
    (first, *_) = diagnose(Evidence(Job(), streams=(scanned("cannot go on\n", own_book),)), own_book).diagnoses

    assert first.lies_in == at_fault


def test_a_record_that_lost_its_line_break_names_no_machine_of_the_line_before() -> None:
    """Ray's prefix within a line is that of another process."""
    line = "slurmstepd: error: DUE TO NODE FAILURE: '/srv/state'head-0 (Worker pid=414, ip=10.2.8.57) 20250615-09:26:54 done"
    alone = "slurmstepd: error: DUE TO NODE FAILURE (node_ip=10.2.8.57)"
    found = [
        {suspect.node for suspect in diagnose(Evidence(streams=(scanned(text, BOOK),)), BOOK).diagnoses[0].suspects}
        for text in (line, alone)
    ]
    assert found == [set(), {"10.2.8.57"}]
