"""Nodes reached by configured commands: real processes of this host, all in parallel, none of which delays the others."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from connectors.base.contract import CollectionRequest, Deadline
from connectors.nodes.remote import RemoteNodes, RemoteSettings
from kb.model import Job, JobRecord, Member, Resource, Window
from kb.parsers.artefacts.pystacks.read import read_stacks
from tests.support.contract.subject import Memory
from tests.support.paths import ROOT

PY_SPY = shutil.which("py-spy") or str(Path(sys.executable).with_name("py-spy"))


def job(nodes=2, per_node=2):
    """A job with ranks on nodes node-0, node-1 and so on."""
    members = tuple(
        Member(f"7.{rank}", f"node-{rank // per_node}", rank, rank % per_node) for rank in range(nodes * per_node)
    )
    places = {f"node-{at}": tuple(range(at * per_node, (at + 1) * per_node)) for at in range(nodes)}
    return JobRecord(Job(id="7", nodes=places), "slurm", members=members)


def collected(record, within=20.0, **settings):
    """What commands give: the spool, and the gaps."""
    deadline = Deadline.within(within)
    shelf = Memory(deadline)
    gaps = tuple(
        RemoteNodes(RemoteSettings(**settings)).collect(CollectionRequest(record, Window(0, 1), deadline), shelf)
    )
    return shelf, gaps


def test_stacks_of_each_rank():
    """One command per rank: its output is filed under the sample, the node and the rank, and nothing is missing."""
    shelf, gaps = collected(
        job(), stacks=("printf", "%s", '[{"pid": 1, "thread_id": 2, "frames": [], "thread_name": "{rank}"}]')
    )
    assert gaps == ()
    assert sorted(path.split("/", 2)[2] for path in shelf.parts) == [
        *("node-0/rank-0.json", "node-0/rank-1.json", "node-1/rank-2.json", "node-1/rank-3.json"),
    ]
    assert [json.loads(data)[0]["thread_name"] for _, data in sorted(shelf.parts.items())] == ["0", "1", "2", "3"]


def test_real_stacks():
    """py-spy on a process of this host, as a site's command would call it, gives stacks that are read."""
    if not os.access(PY_SPY, os.X_OK):
        pytest.skip("no py-spy: pip install py-spy")
    child = subprocess.Popen(
        [sys.executable, "-c", "import time\ndef wait():\n    print(1, flush=True)\n    time.sleep(60)\nwait()"],
        stdout=-1,
    )
    try:
        child.stdout.readline()
        shelf, gaps = collected(job(1, 1), stacks=(PY_SPY, "dump", "--json", "--pid", str(child.pid)))
        if gaps and "ermission" in gaps[0].reason:
            pytest.skip("py-spy may not attach here")
        # no place for a rank is in the command, so it is one a node, and must name its ranks itself
        assert [gap.reason for gap in gaps] == ["node-0: the output names no rank"]
        script = f"printf '===signalbox 0===\\n'; {PY_SPY} dump --json --pid {child.pid}"
        shelf, gaps = collected(job(1, 1), stacks=("sh", "-c", script))
        ((path, data),) = shelf.parts.items()
        assert (gaps, path.split("/")[2:]) == ((), ["node-0", "rank-0.json"])
        found, _ = read_stacks(data, path, Resource(rank=0), "", None)
        assert "wait" in [frame.function for thread in found.threads for frame in thread.frames]
    finally:
        child.kill()
        child.communicate()


def test_the_script_of_the_documentation():
    """It prints the stacks of each rank on this node, which it finds by the environment, and not those of a rank's children."""
    if not os.access(PY_SPY, os.X_OK):
        pytest.skip("no py-spy: pip install py-spy")
    program = "import os, time\nos.fork()\nprint(1, flush=True)\ntime.sleep(60)"
    environments = [{**os.environ, "RANK": str(rank), "SLURM_JOB_ID": "7700123"} for rank in (41, 42)]
    words = [sys.executable, "-c", program]
    children = [
        subprocess.Popen(words, env=environment, stdout=-1, start_new_session=True) for environment in environments
    ]
    try:
        for child in children:
            child.stdout.readline()
        script = str(ROOT / "docs" / "examples" / "signalbox-stacks")
        path = f"PATH={Path(PY_SPY).parent}:{os.environ['PATH']}"
        shelf, gaps = collected(job(1, 1), stacks=("env", path, script, "7700123"))
        if not shelf.parts and gaps:
            pytest.skip("py-spy may not attach here")
        assert sorted(name.rsplit("/", 1)[1] for name in shelf.parts) == ["rank-41.json", "rank-42.json"]
        assert gaps == ()
    finally:
        for child in children:
            os.killpg(child.pid, 9)
            child.communicate()


@pytest.mark.slow  # the other tests of the module
def test_many_nodes_side_by_side():
    """1,280 nodes, of which some hang and one refuses: all others come, within the time of those that hang."""
    record = job(1280, 1)
    script = (
        'case $1 in node-7|node-900) exec sleep 60;; node-8) echo "no route to host" >&2; exit 255;; esac; echo "[{}]"'
    )
    began = time.monotonic()
    shelf, gaps = collected(record, 60.0, stacks=("sh", "-c", script, "{rank}", "{node}"), seconds=3.0, side_by_side=64)
    assert time.monotonic() - began < 60
    assert len(shelf.parts) == 1277
    assert sorted((gap.code, gap.reason, gap.got) for gap in gaps) == [
        ("not_reached", "node-7 rank 7, node-900 rank 900: timed out after 3 s", "1278"),
        ("not_reached", "node-8 rank 8: no route to host", "1279"),
    ]


def test_the_deadline_ends_it():
    """Nothing is started when the time is over, and what hangs is left behind."""
    began = time.monotonic()
    shelf, gaps = collected(job(4, 1), 2.5, stacks=("sleep", "60", "{rank}"), side_by_side=1)
    assert time.monotonic() - began < 40
    assert shelf.parts == {}
    assert {gap.reason.rpartition(": ")[2] for gap in gaps} >= {"out of time"}


@pytest.mark.parametrize("name", ["-oProxyCommand=id", "$(id)", "a;id", "../x", "a b", "", "a\nb", "ü", "a" * 300])
def test_odd_names_of_nodes_reach_no_command(name, tmp_path):
    """A node is not queried if its name is not a plain name; a gap says so."""
    record = JobRecord(Job(id="7", nodes={name: ()}), "slurm")
    shelf, gaps = collected(record, kernel=("sh", "-c", f'touch {tmp_path}/ran; echo "$0"', "{node}"))
    assert shelf.logs == {}
    assert [gap.code for gap in gaps] == ["not_reached"]
    assert list(tmp_path.iterdir()) == []


def test_kernel_logs_dumps_and_ras():
    """A node's kernel log is a log of that node; dumps lie by rank; RAS is asked once."""
    shelf, gaps = collected(
        job(),
        kernel=("echo", "[Thu] NVRM: Xid (PCI:0000:18:00): 79 on {node}"),
        dumps=("sh", "-c", 'for r in 0 1; do echo "===signalbox $(($0 * 2 + r))==="; echo dump; done', "{local_rank}"),
        ras=("echo", '{"communicators": []}'),
    )
    assert shelf.logs == {
        f"logs/kernel/dmesg-node-{at}.log": f"[Thu] NVRM: Xid (PCI:0000:18:00): 79 on node-{at}\n".encode()
        for at in range(2)
    }
    assert {path.split("/")[0] for path in shelf.parts} == {"flight_recorder", "ras"}
    assert shelf.parts["flight_recorder/rank_0"] == b"dump\n"
    assert {gap.source for gap in gaps} == {"remote dumps"}  # this command gives rank 0 of both nodes: it is said


def test_json_that_breaks_off_is_reported():
    """Half a dump is not a dump."""
    shelf, gaps = collected(job(1, 1), stacks=("echo", '[{"pid": 1, "x', "{rank}"))
    assert shelf.parts == {}
    assert [gap.reason for gap in gaps] == ["node-0 rank 0: the output is truncated JSON"]


def test_no_nodes_and_no_commands():
    """A job without nodes and settings without commands result in gaps."""
    assert [gap.code for gap in collected(JobRecord(Job(id="7"), "slurm"), kernel=("echo", "{node}"))[1]] == [
        "not_reached"
    ]
    assert [gap.code for gap in collected(job())[1]] == ["not_reached"]


@pytest.mark.parametrize(
    ("settings", "works", "words"),
    [
        ({}, False, "no command is configured"),
        ({"kernel": ("echo", "{node}")}, True, "the programs are installed; nodes are only reached for a job"),
        ({"kernel": ("no-such-program", "{node}")}, False, "no-such-program cannot be run: No such file or directory"),
        ({"stacks": ("echo", "{host}")}, False, "stacks has the unknown placeholder {host}"),
    ],
)
def test_it_can_be_tried(settings, works, words):
    """A try says whether the programs are there and whether all places are known."""
    checked = RemoteNodes(RemoteSettings(**settings)).check(Deadline.within(60))
    assert (checked.works, checked.words) == (works, words)
