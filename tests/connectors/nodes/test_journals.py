"""Files of a job's nodes: journals, kernel logs and checks, of the job's time only."""

import json
import os

import pytest

from connectors.base.contract import CollectionRequest, Deadline
from connectors.bundles.parts import read_parts
from connectors.nodes.journals import MOST_CHECK, MOST_LINES, Journals, JournalsSettings
from kb.model import Job, JobRecord, Prefilter, Resource, Window
from tests.support.contract.subject import Memory

START, END = 1_763_000_000.0, 1_763_003_600.0


def entry(at, message, **more):
    """A line of `journalctl -o json`."""
    told = {"__REALTIME_TIMESTAMP": str(int(at * 1e6)), "_HOSTNAME": "gpu-1", "MESSAGE": message} | more
    return json.dumps(told) + "\n"


def write(path, text):
    """A file with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def collected(root, nodes=("gpu-1",), **more):
    """What is taken of the files below a folder."""
    settings = JournalsSettings(
        journals=(f"{root}/{{node}}/journal*.json",),
        kernel=(f"{root}/{{node}}/kern.log",),
        checks=(f"{root}/health/{{node}}/*",),
    )
    deadline = Deadline.within(60)
    shelf = Memory(deadline)
    record = JobRecord(Job(id="7", nodes=dict.fromkeys(nodes, ())), "slurm")
    asked = CollectionRequest(record, Window(START, END), deadline, Prefilter(("fallen off",)), **more)
    return shelf, tuple(Journals(settings).collect(asked, shelf))


def test_of_a_journal(tmp_path):
    """The kernel's word, warnings and what a rule looks for, within ten minutes of the job; `deep` takes all of it."""
    lines = [
        entry(START - 700, "too early", _TRANSPORT="kernel"),
        entry(START - 500, "NVRM: Xid", _TRANSPORT="kernel", PRIORITY="6"),
        entry(START, "a link went down", SYSLOG_IDENTIFIER="opensm", PRIORITY="3"),
        entry(START + 1, "session opened", SYSLOG_IDENTIFIER="sshd", PRIORITY="6"),
        entry(START + 2, "it has Fallen Off the bus", SYSLOG_IDENTIFIER="gpud", PRIORITY="6"),
        entry(END + 601, "too late", _TRANSPORT="kernel"),
    ]
    write(tmp_path / "gpu-1" / "journal-1.json", "".join(lines))
    shelf, gaps = collected(tmp_path)
    assert (gaps, list(shelf.logs)) == ((), ["logs/kernel/journal-gpu-1.log"])
    text = shelf.logs["logs/kernel/journal-gpu-1.log"].decode()
    assert [line.split(" ", 2)[2] for line in text.splitlines()] == [
        *("kernel: NVRM: Xid", "opensm: a link went down", "gpud: it has Fallen Off the bus")
    ]
    assert shelf.told["logs/kernel/journal-gpu-1.log"]["resource"] == Resource(node="gpu-1")
    assert len(collected(tmp_path, deep=True)[0].logs["logs/kernel/journal-gpu-1.log"].splitlines()) == 4


def test_of_a_kernel_log(tmp_path):
    """Lines of the job's time, and those without a stamp that follow one."""
    text = "2025-11-13T01:00:00Z kernel: early\n call trace of it\n2025-11-13T02:20:00Z kernel: BUG\n call trace\n"
    write(tmp_path / "gpu-1" / "kern.log", text)
    shelf, gaps = collected(tmp_path)
    assert (gaps, shelf.logs) == (
        (),
        {"logs/kernel/dmesg-gpu-1.log": b"2025-11-13T02:20:00Z kernel: BUG\n call trace\n"},
    )


def test_checks_are_kept_whole(tmp_path):
    """Results of checks are filed under the node; one that is too large is left out, with a gap."""
    write(tmp_path / "health" / "gpu-1" / "dcgmi diag.json", "{}")
    write(tmp_path / "health" / "gpu-1" / "dump", "x" * (MOST_CHECK + 1))
    shelf, gaps = collected(tmp_path)
    ((path, data),) = shelf.parts.items()
    assert (path.startswith("hardware/gpu-1/dcgmi_diag.json-"), data) == (True, b"{}")
    assert [gap.code for gap in gaps] == ["too_large"]


def test_a_failed_check_is_an_event_of_its_node(tmp_path):
    """What is collected of the checks is read from the bundle, with the node that it is about."""
    row = "|  Memory   | Fail - GPU: 3  |\n"
    write(tmp_path / "health" / "gpu-1" / "diag.txt", f"| Diagnostic | Result |\n{row}")
    shelf, _ = collected(tmp_path)
    for path, data in shelf.parts.items():
        write(tmp_path / "bundle" / path, data.decode())
    events = read_parts(tmp_path / "bundle").events
    assert [(event.kind, event.reason, event.resource.node, event.resource.gpu) for event in events] == [
        ("health_check", "memory", "gpu-1", "3")
    ]


def test_too_many_lines_are_cut_and_reported(tmp_path):
    """The last lines are kept."""
    lines = [entry(START + at / 100, f"line {at}", _TRANSPORT="kernel") for at in range(MOST_LINES + 5)]
    write(tmp_path / "gpu-1" / "journal.json", "".join(lines))
    shelf, gaps = collected(tmp_path)
    (log,) = shelf.logs.values()
    assert (len(log.splitlines()), log.splitlines()[0].endswith(b"line 5")) == (MOST_LINES, True)
    assert [(gap.code, gap.asked, gap.got) for gap in gaps] == [("lines_cut", str(MOST_LINES + 5), str(MOST_LINES))]


def test_nodes_without_files_are_reported(tmp_path):
    """One gap names the nodes and what stays unknown without their files."""
    write(tmp_path / "gpu-1" / "kern.log", "2025-11-13T02:20:00Z kernel: BUG\n")
    _, gaps = collected(tmp_path, ("gpu-1", "gpu-2", "gpu-3"))
    assert [(gap.code, gap.reason, gap.got) for gap in gaps] == [("no_files", "no files of gpu-2, gpu-3", "1")]
    assert [gap.code for gap in collected(tmp_path, ())[1]] == ["no_files"]


@pytest.mark.parametrize("name", ["..", "../gpu-1", "*", "gpu-[1]", "", "a/b", "gpu-1\n", "?pu-1", "."])
def test_odd_names_of_nodes_reach_no_file(tmp_path, name):
    """A node's name is neither a path nor a pattern."""
    write(tmp_path / "gpu-1" / "kern.log", "2025-11-13T02:20:00Z kernel: BUG\n")
    shelf, gaps = collected(tmp_path, (name,))
    assert (shelf.logs, [gap.code for gap in gaps]) == ({}, ["odd_name"])


def test_what_is_no_file_is_left(tmp_path):
    """Pipes, folders and links that lead nowhere hold nothing up."""
    write(tmp_path / "gpu-1" / "journal-a.json", "")
    os.mkfifo(tmp_path / "gpu-1" / "kern.log")
    (tmp_path / "gpu-1" / "journal-b.json").mkdir()
    (tmp_path / "gpu-1" / "journal-c.json").symlink_to(tmp_path / "gone")
    shelf, gaps = collected(tmp_path)
    assert (shelf.logs, [gap.code for gap in gaps]) == ({}, ["unreadable"])


def test_it_can_be_tried(tmp_path):
    """A try says whether the folders are there."""
    for patterns, works in (
        ((), False),
        ((f"{tmp_path}/{{node}}/x",), True),
        (("x/{node}",), False),
        (("/no/{node}/x",), False),
    ):
        assert Journals(JournalsSettings(kernel=patterns)).check(Deadline.within(60)).works is works
