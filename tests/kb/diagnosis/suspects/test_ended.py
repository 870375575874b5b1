"""The process that a launcher reports to have ended first."""

from __future__ import annotations

import pytest

from kb.diagnosis.engine import diagnose
from kb.facts.evidence import Evidence
from kb.model import Job
from kb.report import Suspect
from kb.rulebase.rule import ExceptionTest, FaultClass, Pattern, Rulebook, StructureTest
from kb.scanning.summary import StreamSummary
from tests.support.kb_samples import ACTIONS, OWNERS, ref, rule, scanned

FAULTS = {
    item.id: item
    for item in (
        FaultClass("code_bug", "software", "Error in the code", explains=("peer_failure",)),
        FaultClass("killed", "none", "A process was killed", symptom=True),
        FaultClass("peer_failure", "none", "A peer was lost", symptom=True),
        FaultClass("gpu_fault", "hardware", "A GPU fails"),
    )
}
BOOK = Rulebook(
    "0",
    "digest",
    (
        rule("key", "code_bug", Pattern("k", exception=ExceptionTest(type="KeyError"))),
        rule(
            "exit", "killed", Pattern("e", structure=StructureTest("elastic_exit", {"exitcode": "-9"})), role="symptom"
        ),
        rule("spawned", "killed", Pattern("s", regex=r"terminated with signal SIGKILL"), role="symptom"),
        rule("worker", "code_bug", Pattern("w", regex="worker .pid .{3,9} is killed by signal")),
        rule("closed", "peer_failure", Pattern("c", regex="Connection closed by remote peer"), role="symptom"),
        rule("cannot", "gpu_fault", Pattern("g", regex="cannot use its GPU|NCCL WARN Cuda failure")),
        rule("xid", "gpu_fault", Pattern("x", structure=StructureTest("xid"))),
    ),
    FAULTS,
    ACTIONS,
    OWNERS,
)
KEY = 'Traceback (most recent call last):\n  File "/srv/fit.py", line 8, in go\n    x = d["a"]\nKeyError: \'a\'\n'
FAILED = "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: {}) local_rank: {} (pid: 71) of binary: /bin/py\n"
SPAWN = 'Traceback (most recent call last):\n  File "/srv/run.py", line 2, in main\n    mp.spawn(go)\n'


def named(*texts: str, world: int | None = None) -> list[tuple[str | None, int | str | None]]:
    """Node and rank (`local 3` where only that is known) of the suspects of the first diagnosis on logs with these texts."""
    streams = tuple(scanned(text, BOOK, ref(f"logs/part-{n}.log")) for n, text in enumerate(texts))
    return [(item.node, _number(item)) for item in suspects_of(Evidence(Job(world_size=world), streams=streams))]


def test_workers_of_several_processes_are_not_those_of_the_first_to_end() -> None:
    """The launcher names one process, and the lines are of others too."""
    killed = "RuntimeError: DataLoader worker (pid {}) is killed by signal: Hangup.\n"
    assert named(killed.format(71) + FAILED.format(-1, 2)) == [(None, "local 2")]
    assert named(killed.format(71) + killed.format(74) + FAILED.format(-1, 2)) == []


def test_the_process_that_mpirun_names_first_leads_over_those_that_lost_it() -> None:
    """It says nothing more, or its own lines are not there; one that itself lost a peer is not named."""
    ended = "  Process name: [[50371,1],0]\n  Exit code:    1\n"
    lost = "[1,1]<stderr>:Connection closed by remote peer\n"
    first = "mpirun detected that one or more processes exited with non-zero status\n\n"

    assert named(lost + first + ended) == [(None, 0)]
    assert named(lost + first + ended.replace("],0]", "],1]")) != [(None, 0)]


def _number(item: Suspect) -> int | str | None:
    return f"local {item.local_rank}" if item.rank is None and item.local_rank is not None else item.rank


def _evidence(text: str) -> Evidence:
    return Evidence(Job(), streams=(scanned(text, BOOK, ref("logs/train.log")),))


def suspects_of(evidence: Evidence) -> tuple[Suspect, ...]:
    """The suspects of the first diagnosis."""
    return diagnose(evidence, BOOK).diagnoses[0].suspects


def test_the_task_that_the_launcher_did_not_stop_is_named() -> None:
    """Of srun's tasks on one node and of PALS' ranks."""
    srun = "srun: error: cn-a1: task 3: Exited with exit code 1\nsrun: error: cn-a1: tasks 0-2: Terminated\n"
    pals = "cn-a2: rank 14 exited with code 1\ncn-a3: rank 20 died from signal 15\n"

    assert named(KEY + srun) == [("cn-a1", 3)]
    assert named(KEY + pals) == [("cn-a2", 14)]


@pytest.mark.parametrize(
    "ends",
    [
        "srun: error: cn-a1: task 0: Exited with exit code 1\n",  # a lone task may be a launcher's
        "srun: error: cn-a1: task 0: Exited with exit code 1\nsrun: error: cn-a2: task 1: Terminated\n",  # one per node
        "srun: error: cn-a1: tasks 0-3: Exited with exit code 1\nsrun: error: cn-a1: task 4: Terminated\n",
        "cn-a2: rank 14 exited with code 1\ncn-a3: rank 20 exited with code 1\ncn-a3: rank 21 died from signal 15\n",
    ],
)
def test_several_or_unclear_tasks_name_nobody(ends) -> None:
    """Neither a task that may have started several ranks, nor one of many that ended by themselves."""
    assert named(KEY + ends) == []


def test_mpirun_names_the_rank_that_ended_the_others() -> None:
    """By its call, or as the first with a status other than 0; that it noticed a signal does not show who was first."""
    abort = "MPI_ABORT was invoked on rank {} in communicator MPI_COMM_WORLD\nwith errorcode 1.\n"
    first = "the job to be terminated. One or more processes exited with non-zero status. The first process to do so was:\n\n"
    first += "  Process name: [[41234,1],6]\n  Exit code:    1\n"
    assert named(KEY + abort.format(6)) == [(None, 6)]
    assert named(KEY + first) == [(None, 6)]
    assert named(KEY + abort.format(6) + abort.format(2)) == []
    assert named(KEY + KEY + abort.format(6)) == []


def test_a_local_rank_is_the_rank_only_on_the_only_node() -> None:
    """The agent's line alone names only the number on its node, and none says whether there are others."""
    assert named(FAILED.format(-9, 2)) == [(None, "local 2")]
    assert named("+ torchrun --standalone --nproc_per_node 4 fit.py\n" + FAILED.format(-9, 2)) == [(None, 2)]
    assert named(KEY + FAILED.format(1, 3)) == []  # the others may have raised the same


@pytest.mark.parametrize(
    "text",
    [
        "+ torchrun --nnodes=2 --nproc_per_node 4 fit.py\n" + FAILED.format(-9, 3),
        "node_rank: 1\n" + FAILED.format(-9, 3),
        FAILED.format(-9, 3) + FAILED.format(-9, 2),  # two agents
        KEY + KEY + FAILED.format(1, 3),  # several processes show it
        KEY + FAILED.format(-15, 3),  # stopped by the launcher
        "Connection closed by remote peer\n" + FAILED.format(-9, 3),  # ended after a peer
    ],
)
def test_a_local_rank_that_says_little_is_not_named(text) -> None:
    """On one of several nodes, by one of several processes, or of a victim."""
    assert named(text) == []


def test_a_launcher_that_stopped_the_others_tells_who_failed() -> None:
    """One traceback, one process that ended by itself, and others that were stopped; or a launcher's word for the first."""
    stopped = "WARNING:torch.distributed.elastic.multiprocessing.api:Sending process 70 closing signal SIGTERM\n"
    first = "ERROR:composer.cli.launcher:Rank 3 crashed with exit code 1.\n"

    assert named(KEY + stopped + FAILED.format(1, 3)) == [(None, "local 3")]
    assert named(KEY + first) == [(None, 3)]
    assert named(KEY + KEY + first) == []
    assert named(KEY + first + first.replace("3", "5")) == []


def test_a_large_job_has_more_than_one_node() -> None:
    """With 32 ranks, a local rank is that of any node."""
    assert named(FAILED.format(-9, 3), world=32) == []
    assert named(FAILED.format(-9, 3), world=8) == [(None, "local 3")]
    assert named(FAILED.format(-9, 3), world=4) == [(None, 3)]


def test_the_process_that_spawn_found_is_named() -> None:
    """Above a traceback, or in its own exception."""
    above = "\n\n-- Process 2 terminated with the following error:\n" + KEY
    own = SPAWN + "torch.multiprocessing.spawn.ProcessExitedException: process 3 terminated with signal SIGKILL\n"

    assert named(SPAWN + "torch.multiprocessing.spawn.ProcessRaisedException: " + above) == [(None, "local 2")]
    assert named(own) == [(None, "local 3")]


def test_the_number_of_a_gpu_names_the_process_of_a_node() -> None:
    """Index 0 may be the only one that each process sees."""
    line = "cn-a1:71:90 [{}] init.cc:9 NCCL WARN Cuda failure 'oops'\n"

    assert named(line.format(3)) == [("cn-a1", "local 3")]
    assert named(line.format(0)) == [("cn-a1", None)]
    assert named(line.format(2) + line.format(3)) == [("cn-a1", None)]


def test_what_names_a_process_is_its_gpu_or_the_prefix_of_its_lines() -> None:
    """A launcher's prefix holds the local rank, whatever GPU the process uses."""
    by_gpu = suspects_of(_evidence("cn-a1:71:90 [3] init.cc:9 NCCL WARN Cuda failure 'oops'\n"))
    by_prefix = suspects_of(_evidence("[default3]: cannot use its GPU\n"))

    assert [item.why for item in by_gpu] == ["its lines name the GPU with this number"]
    assert [item.why for item in by_prefix] == ["the number that its own line gives"]


def test_a_line_that_accuses_another_rank_names_it() -> None:
    """Not its own writer; where a line of no known process says where it happened, that rank."""
    assert named("[rank0]: cannot use its GPU: rank 3 died\n") == [(None, 3)]
    assert named("cannot use its GPU on rank 3\n") == [(None, 3)]
    assert named("cannot use its GPU on rank 3 of process group 7\n") == []


def test_gpus_of_an_unknown_node_are_named_by_their_addresses() -> None:
    """One log is that of one node; the same address in the log of another one is another GPU."""
    xid = "[ 12.5{}] NVRM: Xid (PCI:0000:{}:00): 79, GPU has fallen off the bus.\n"
    first, second = (
        scanned(xid.format(number, bus), BOOK, ref(f"dmesg-{number}.log", kind="kernel"))
        for number, bus in ((1, "cb"), (2, "1a"))
    )
    both = scanned(xid.format(1, "cb") + xid.format(2, "1a"), BOOK, ref("dmesg.log", kind="kernel"))

    assert _addresses(first) == ["0000:cb:00"]
    assert _addresses(both) == ["0000:cb:00", "0000:1a:00"]
    assert _addresses(first, second) == []


def test_one_gpu_is_one_suspect_however_its_address_is_written() -> None:
    """The driver's message leaves out the function, and tools write the digits in capitals."""
    xid = "[Tue Mar  3 04:12:0{0} 2026] NVRM: Xid (PCI:{1}): 79, pid=1, name=python, GPU has fallen off the bus.\n"
    log = scanned(xid.format(1, "0000:cb:00") + xid.format(2, "0000:CB:00.0"), BOOK, ref("dmesg.log", kind="kernel"))

    assert _addresses(log) == ["0000:cb:00"]


def _addresses(*logs: StreamSummary) -> list[str]:
    return [item.gpu.pci or "" for item in suspects_of(Evidence(Job(), streams=logs)) if item.gpu]


def test_nobody_is_said_to_have_been_stopped_if_the_launcher_stopped_nobody() -> None:
    """The launcher may report one process of a thousand."""
    alone = suspects_of(_evidence("srun: error: cn-a1: task 3: Exited with exit code 1\n" + KEY))
    stopped = "srun: error: cn-a1: task 3: Exited with exit code 1\nsrun: error: cn-a1: tasks 0-2: Terminated\n"

    assert not any("did not stop" in item.why for item in alone)
    assert [item.why for item in suspects_of(_evidence(stopped + KEY))] == [
        "the only one that the launcher did not stop"
    ]
