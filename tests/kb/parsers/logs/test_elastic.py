"""torchrun's failure block and its agent's line."""

import pytest

from kb.parsers.logs.elastic import READERS
from tests.support.parsing import one, structures

TAIL = "  error_file: <N/A>\n  traceback : To enable traceback see: https://example.org/errors.html\n"


def item(index, rank, code, extra="", *, tail=TAIL):
    """One item of the block."""
    return (
        f"[{index}]:\n  time      : 2026-05-02_03:04:0{index}\n  host      : cn-b7\n"
        f"  rank      : {rank} (local_rank: {rank % 8})\n  exitcode  : {code} (pid: {4000 + rank}){extra}\n{tail}"
    )


def block(others, root, name="/opt/run/fit.py"):
    """A whole block."""
    line, rule = "=" * 60, "-" * 60
    return (
        f"{line}\n{name} FAILED\n{rule}\nFailures:\n{others}{rule}\n"
        f"Root Cause (first observed failure):\n{root}{line}\nValueError: next\n"
    )


def test_items_of_a_block():
    """Each item gives its fields; the first observed failure is distinguished from the others."""
    text = block(item(1, 11, -15, "  (SIGTERM)"), item(0, 9, 1))
    other, root = structures(READERS, text)
    assert (other.fields["root"], root.fields["root"]) == ("no", "yes")
    assert other.fields["signal"] == "SIGTERM"
    assert root.fields == {
        "name": "/opt/run/fit.py",
        "root": "yes",
        "time": "2026-05-02_03:04:00",
        "host": "cn-b7",
        "rank": 9,
        "local_rank": 1,
        "exitcode": 1,
        "pid": 4009,
        "error_file": "<N/A>",
        "traceback": "To enable traceback see: https://example.org/errors.html",
    }
    assert text[root.offset :].startswith("  exitcode  : 1")
    assert text[: root.end].endswith("errors.html\n")


@pytest.mark.parametrize(
    "above", ["", "fit.py FAILED\n", "  error_file: <N/A>\n  traceback : Signal 15 (SIGTERM) received by PID 7\n---\n"]
)
def test_the_root_cause_is_read_where_the_rest_is_cut_off(above):
    """A log that begins within the block, or a report that quotes only its end, names rank and host all the same."""
    found = one(READERS, f"{above}Root Cause (first observed failure):\n{item(0, 11, -11)}{'=' * 60}\n")
    assert (found.fields["root"], found.fields["signal"]) == ("yes", "SIGSEGV")
    assert (found.resource.node, found.resource.rank, found.resource.local_rank) == ("cn-b7", 11, 3)


def test_who_failed():
    """The resource is the process of the item, not the launcher."""
    found = one(READERS, block("  <NO_OTHER_FAILURES>\n", item(0, 9, 1)))
    assert (found.resource.node, found.resource.rank, found.resource.local_rank) == ("cn-b7", 9, 1)
    assert found.resource.pid == 4009


@pytest.mark.parametrize(
    ("code", "extra", "tail", "signal"),
    [
        (-9, "  (SIGKILL)", TAIL, "SIGKILL"),
        (-11, "", "  traceback : Signal 11 (SIGSEGV) received by PID 4009\n", "SIGSEGV"),
        (-6, "", "", "SIGABRT"),
    ],
)
def test_signal(code, extra, tail, signal):
    """A signal's name is read from either of its places, else follows from the exit code."""
    found = one(READERS, block("  <NO_OTHER_FAILURES>\n", item(0, 9, code, extra, tail=tail)))
    assert found.fields["signal"] == signal


def test_recorded_traceback():
    """A recorded traceback of several lines belongs to its item."""
    tail = (
        "  error_file: /scratch/e/error.json\n  traceback : Traceback (most recent call last):\n"
        '    File "/opt/a.py", line 3, in main\n      go()\n  ValueError: short\n  \n'
    )
    found = one(READERS, block("  <NO_OTHER_FAILURES>\n", item(0, 2, 1, tail=tail)))
    assert found.fields["traceback"].endswith("ValueError: short")
    assert found.fields["error_file"] == "/scratch/e/error.json"


def test_prefixed_blocks():
    """Blocks that two nodes print at once, each with its prefix, are kept apart."""
    texts = [
        "".join(f"worker-{node}: {line}\n" for line in block("  <NO_OTHER_FAILURES>\n", item(0, node, 1)).splitlines())
        for node in (3, 4)
    ]
    pairs = zip(*(text.splitlines() for text in texts), strict=True)
    found = structures(READERS, "".join(f"{line}\n" for pair in pairs for line in pair))
    assert [each.fields["rank"] for each in found] == [3, 4]


def test_cut_block():
    """The last item of a block that is cut off keeps the fields that were read."""
    text = block("", item(0, 5, 1)).split("  error_file")[0]
    assert one(READERS, text).fields["exitcode"] == 1


@pytest.mark.parametrize("text", ["Failures: 3 of 20 tests\n" + "line\n" * 50, "Failures:\nnothing here\n"])
def test_no_block(text):
    """The word alone is not a block."""
    assert structures(READERS, text) == []


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        (
            "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -9) local_rank: 3 (pid: 99) of binary: /usr/bin/python",
            {"exitcode": -9, "signal": "SIGKILL", "local_rank": 3, "pid": 99, "binary": "/usr/bin/python"},
        ),
        (
            "E0502 03:04:05.220000 771 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) local_rank: 6 (pid: 812) of binary: /opt/py/bin/python3.11",
            {"exitcode": 1, "local_rank": 6, "pid": 812, "binary": "/opt/py/bin/python3.11"},
        ),
        ("[default0]:failed (exitcode: 2)", {"exitcode": 2}),
    ],
)
def test_agent_line(line, fields):
    """The agent's line is read in its older and newer forms."""
    found = one(READERS, line + "\n", "elastic_exit")
    assert found.fields == fields
    assert found.resource.pid == fields.get("pid")
