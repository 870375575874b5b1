"""Who ran where, from what logs and a job's description tell."""

from __future__ import annotations

import pytest

from kb.facts.evidence import Evidence
from kb.facts.job_facts import Facts
from kb.facts.topology import Place, Places, names_a_node
from kb.model import Job, Resource, StreamRef, Structure
from kb.scanning.summary import StreamSummary
from tests.support.kb_samples import BOOK, scanned, stream


def places(*streams: StreamSummary, job: Job | None = None) -> Places:
    """The places of a job with these streams."""
    return Places(Facts(Evidence(job or Job(), streams=streams)))


def start(host: str, rank: int, size: int, bus: str = "18000") -> Structure:
    """What NCCL's line on a communicator comes to."""
    fields: dict[str, str | int | float | bool | None] = {
        "host": host,
        "pid": 500 + rank,
        "comm_rank": rank,
        "nranks": size,
        "device": 0,
        "bus": bus,
    }
    return Structure("nccl_init", rank, rank + 1, "", fields, Resource(node=host))


def test_the_jobs_description_places_ranks() -> None:
    """Node, number within the node, and how many there are."""
    known = places(job=Job(world_size=4, nodes={"cn-1": (0, 1), "cn-2": (2, 3)}))

    assert (known.node_of(3), known.nodes, known.world, known.ranks) == ("cn-2", ("cn-1", "cn-2"), 4, {0, 1, 2, 3})


def test_nodes_may_be_known_by_their_addresses_only() -> None:
    """As those of Ray's clusters are."""
    known = places(job=Job(world_size=2, nodes={"10.4.0.86": (0,), "10.4.0.87": (1,)}))
    assert (known.nodes, known.node_of(1)) == (("10.4.0.86", "10.4.0.87"), "10.4.0.87")


def test_nccl_places_ranks_processes_and_gpus() -> None:
    """Only the communicator of all ranks: in a smaller one the number is another."""
    known = places(stream(structures=[start("cn-1", 0, 2), start("cn-2", 1, 2, bus="9b000"), start("cn-7", 0, 1)]))

    assert [known.node_of(rank) for rank in (0, 1)] == ["cn-1", "cn-2"]
    assert known.rank_at("cn-2", pid="501") == 1
    assert known.rank_at("cn-2", pci="0000:9b:00") == 1
    assert known.rank_at("cn-2", pci="PCI:0000:9a:00.0") is None
    assert known.rank_at(None, pid="501") == 1


def test_a_number_that_two_processes_have_tells_nothing_without_a_node() -> None:
    """Process numbers repeat from node to node."""
    one, two = start("cn-1", 0, 2), start("cn-2", 1, 2)
    known = places(stream(structures=[one, Structure(two.kind, 9, 10, "", {**two.fields, "pid": 500}, two.resource)]))

    assert (known.rank_at("cn-2", pid="500"), known.rank_at(None, pid="500")) == (1, None)


@pytest.mark.parametrize(
    ("uri", "hint", "node"),
    [
        ("logs/team-x-worker-1.log", "worker-1", "team-x-worker-1"),
        ("logs/out_of.team-x-worker-1.v2.txt", None, "team-x-worker-1"),
        ("logs/team-x-worker-11.log", "worker-11", "worker-11"),
        ("hw/team-x-worker-1/dmesg.log", None, "team-x-worker-1"),
        ("logs/other.log", "cn-9", "cn-9"),
    ],
)
def test_a_known_name_in_a_path_goes_before_a_part_of_it(uri, hint, node) -> None:
    """What the job calls its nodes is looked for in names of files."""
    known = places(stream(StreamRef(uri, Resource(node=hint))), job=Job(nodes={"team-x-worker-1": (0,)}))

    assert known.place(0, Resource(node=hint)).node == node


def test_a_files_name_is_no_node_where_a_shorter_one_is() -> None:
    """Of two names of which one ends with the other, the longer has what the file holds in it."""
    known = places(
        stream(StreamRef("node-a.log", Resource(node="node-a"))),
        stream(StreamRef("worker-node-a.log", Resource(node="worker-node-a"))),
        stream(StreamRef("banode-a.log", Resource(node="banode-a"))),
    )

    assert [known.place(at, Resource()).node for at in range(3)] == ["node-a", "node-a", "banode-a"]


def test_short_and_full_names_are_one_machine() -> None:
    """The job's own name for it is shown."""
    known = places(job=Job(nodes={"cn-1.example.org": (0,)}))

    assert [known.node(name) for name in ("cn-1", "cn-1.example.org", "cn-2")] == ["cn-1.example.org"] * 2 + ["cn-2"]


def test_addresses_are_those_that_nccl_printed() -> None:
    """An address that was never printed is not a node of the job."""
    known = places(scanned("cn-4:77:77 [0] NCCL INFO Bootstrap : Using ib0:10.8.0.4<0>\n", BOOK))

    assert (known.known("10.8.0.4"), known.known("10.8.0.5"), known.node("10.8.0.5")) == ("cn-4", None, "10.8.0.5")


def test_ranks_of_a_node_follow_the_order_of_local_ones() -> None:
    """A line gives rank 5, so local rank 3 of the node is rank 7."""
    refs = [StreamRef(f"cn-2/{local}/stderr.log", Resource(node="cn-2", local_rank=local)) for local in (1, 3)]
    known = places(
        stream(refs[0], structures=[Structure("exception", 0, 9, "", {}, Resource(rank=5))]), stream(refs[1])
    )

    assert known.place(1, refs[1].resource) == Place(7, "cn-2", 3)
    assert known.ranks == {5, 7}


@pytest.mark.parametrize("pid", ["", "x", "²", "-1", "9" * 40])
def test_what_is_no_process_number_is_no_rank(pid) -> None:
    """Lines can contain any text in place of a number."""
    assert places(stream(structures=[start("cn-1", 0, 1)])).rank_at("cn-1", pid=pid, pci="²²:zz") is None


def test_a_number_beyond_the_job_is_no_rank() -> None:
    """`2027: …` looks like a task's prefix."""
    known = places(stream(), job=Job(world_size=8))

    assert known.place(0, Resource(rank=2027)).rank is None


def test_localhost_is_no_name_of_a_node() -> None:
    """Each machine calls itself that."""
    names = (
        "localhost",
        "localhost.localdomain",
        "127.0.0.1",
        "::1",
        "ip6-localhost",
        "localhost4",
        "cn-1",
        "10.0.0.1",
        "local-3",
    )

    assert [name for name in names if names_a_node(name)] == ["cn-1", "10.0.0.1", "local-3"]


def launched(rank: int, local: int, pid: int, node: str = "192.0.2.2") -> Structure:
    """What a launcher's line on a process that it started comes to."""
    who = Resource(node=node, rank=rank, local_rank=local, pid=pid)
    fields: dict[str, str | int | float | bool | None] = {"rank": rank, "local_rank": local, "pid": pid, "node": node}
    return Structure("process_start", rank, rank + 1, "", fields, who)


def test_a_launcher_names_the_rank_of_a_process() -> None:
    """A line that only gives the process is of the rank that the launcher gave it."""
    known = places(stream(structures=[launched(0, 0, 4764), launched(1, 1, 5039)]))

    assert known.place(0, Resource(pid=5039)).rank == 1
    assert known.place(0, Resource(pid=3718)).rank is None


def test_local_ranks_are_ranks_where_all_is_on_one_node() -> None:
    """With two nodes, a local rank without a node can be either."""
    block: dict[str, str | int | float | bool | None] = {"host": "localhost", "rank": 1, "local_rank": 1, "pid": 12}
    here = places(stream(structures=[Structure("elastic_failure", 3, 4, "", block)]))
    there = places(stream(structures=[launched(0, 0, 7, "cn-1"), launched(8, 0, 8, "cn-2")]))

    assert here.place(0, Resource(local_rank=1)).rank == 1
    assert there.place(0, Resource(local_rank=0)).rank is None


def ended(task: int | str, node: str) -> Structure:
    """What srun's line on a task comes to."""
    return Structure("launcher_exit", 5, 6, "", {"task": task, "node": node, "launcher": "srun"}, Resource(node=node))


def test_tasks_of_srun_are_ranks_where_a_node_has_several() -> None:
    """With one task per node, each is a launcher, and its number is the node's."""
    ranks = places(stream(structures=[ended("0,2", "cn-1"), ended(1, "cn-1")]), job=Job(world_size=4))
    nodes = places(stream(structures=[ended(0, "cn-1"), ended(1, "cn-2")]), job=Job(world_size=16))
    elastic = Structure("elastic_exit", 9, 10, "", {"local_rank": 1})
    agents = places(stream(structures=[ended("0,2", "cn-1"), elastic]))

    assert ranks.rank_of_task("1") == 1
    assert nodes.rank_of_task("1") is None
    assert agents.rank_of_task("0") is None
    assert ranks.rank_of_task("0-2") is None


def test_ranks_that_only_report_progress_are_known() -> None:
    """A rank whose lines are steps, or a start, counts among those of the job."""
    text = "[rank0]: starting\n[rank1]: starting\n[RANK 2] step 10: loss 3.3401 lr 1.20e-03\n"

    assert places(scanned(text, BOOK)).ranks == {0, 1, 2}


def test_the_start_of_a_log_states_how_many_ranks_there_are() -> None:
    """PyTorch and Megatron say so; two numbers contradict each other, and a rank that announces itself within a line counts."""
    barrier = "[INFO] - Rank 1: Completed store-based barrier for key:store_based_barrier_key:1 with 4 nodes.\n"
    assert places(scanned(barrier, BOOK)).world == 4
    assert places(scanned("using world size: 16, data-parallel size: 4\n", BOOK)).world == 16
    both = places(scanned(barrier + "using world size: 16\n", BOOK))
    assert (both.world, both.ranks) == (1, {1})
    started = "WARNING - __main__ - Process rank: 2, device: cuda:2, n_gpu: 1 distributed training: True\n"
    assert places(scanned(started, BOOK)).ranks == {2}


@pytest.mark.parametrize(
    ("prompts", "node"),
    [
        (("root@node1:~# nvidia-smi", "(venv) root@node1:~/x# dmesg -T"), "node1"),
        (("[root@node1 ~]# dmesg",), "node1"),
        (("root@node1:~# ls",), None),
        (("root@c0ffee12ab34:/workspace# nvidia-smi",), None),
        (("root@node1:~# dmesg", "me@login:~$ ls"), None),
    ],
)
def test_a_prompt_at_which_the_kernels_messages_were_asked_for_names_their_node(
    prompts: tuple[str, ...], node: str | None
) -> None:
    """Where all prompts of the text name one host; a prompt at which something else ran may be on a login node."""
    shown = scanned("\n".join(prompts) + "\nNVRM: loading\n", BOOK, StreamRef("dmesg.log", kind="kernel"))
    assert Places(Facts(Evidence(streams=(shown,)))).place(0, Resource()).node == node
