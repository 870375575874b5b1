"""What holds for every reader."""

import random
import re

import pytest

from kb.parsers.logs.registry import ALL_READERS, KINDS
from tests.support.paths import ROOT

SAMPLES = (
    b'[rank3]: Traceback (most recent call last):\n[rank3]:   File "a.py", line 1, in f\n[rank3]:     f()\n[rank3]: ValueError: x\n',
    b"Failures:\n[1]:\n  rank      : 9 (local_rank: 1)\n  exitcode  : 1 (pid: 5)\n  traceback : t\n-----\nRoot Cause\n[0]:\n====\n",
    b"[rank3]:[E1 a.cpp:1] [PG 0 Rank 3] WorkNCCL(SeqNum=1, OpType=X) ran for 9 milliseconds last enqueued work: 9, last completed work: 8\n",
    b"h:1:2 [0] a.cc:3 NCCL WARN NET/IB : Got completion from peer 1.1.1.1<9> with error 12, opcode 0, len 0, vendor err 129\n",
    b"NVRM: Xid (PCI:0000:9a:00): 79, pid=1, name=a, GPU has fallen off the bus.\nNVRM: The NVIDIA GPU 0000:9a:00.0\nfallen off the bus\n",
    b"oom-kill:constraint=CONSTRAINT_MEMCG,task=a,pid=1\nOut of memory: Killed process 1 (a) anon-rss:1kB\n",
    b"srun: error: n: task 1: Killed\nKilled\n*** JOB 1 ON n CANCELLED AT t DUE TO TIME LIMIT ***\nCaught signal 11 (x)\n",
    b"[n:1] *** Process received signal ***\n[n:1] Signal: Aborted (6)\nterminate called after throwing an instance of 'e'\n  what():  w\n",
    b'Thread 1 (idle): "MainThread"\n    f (a.py:1)\nTraceback for thread 1 (n) [] (most recent call last):\n    (Python) File "a", line 1, in f\n',
    "╭─ Traceback (most recent call last) ─╮\n│ /a.py:1 in f │\n╰──╯\nKeyError: 1\n".encode(),
    b'  + Exception Group Traceback (most recent call last):\n  |   File "a", line 1, in f\n  | ExceptionGroup: x\n',
    b'ray.exceptions.RayTaskError(KeyError): ray::a.b() (pid=1)\n  File "a", line 1, in f\nKeyError: 1\n',
)


def broken(seed):
    """Windows cut out of spoiled samples, with a place in each where a line may start."""
    dice = random.Random(seed)
    for _ in range(40):
        data = bytearray(b"".join(dice.choice(SAMPLES) for _ in range(dice.randint(1, 6))))
        for _ in range(dice.randint(0, 30)):
            data[dice.randrange(len(data))] = dice.choice([0, 10, 13, 27, 32, 46, 58, 255, dice.randrange(256)])
        window = bytes(data[dice.randrange(len(data)) :])[: dice.randint(1, 4000)] or b"\n"
        yield window, dice.randrange(len(window))
        yield dice.randbytes(400), dice.randrange(400)


@pytest.mark.parametrize("reader", ALL_READERS, ids=lambda reader: reader.name)
def test_garbage(reader):
    """Random bytes and cut windows raise nothing, and every result lies within the window."""
    for window, at in broken(20261103):
        for place in (at, window.rfind(b"\n", 0, at) + 1, 0):
            for found in reader.read(window, place):
                assert found.kind in KINDS
                assert 0 <= found.offset < found.end <= len(window)
                assert len(found.line) <= 512


@pytest.mark.parametrize("reader", ALL_READERS, ids=lambda reader: reader.name)
def test_end_of_window(reader):
    """A place at the very end of a window, or an empty window, gives nothing and raises nothing."""
    assert reader.read(b"", 0) == ()
    assert reader.read(b"line\n", 5) == ()


@pytest.mark.parametrize("reader", ALL_READERS, ids=lambda reader: reader.name)
def test_trigger_is_safe(reader):
    """Triggers compile and use neither look-around nor back-references."""
    re.compile(reader.trigger.encode())
    assert not re.search(r"\(\?[=!<>]|\\[1-9]|\(\?P[=<]|[*+?}]\+", reader.trigger)


def test_names_differ():
    """No two readers share a name."""
    names = [reader.name for reader in ALL_READERS]
    assert len(names) == len(set(names))


def test_kinds_are_the_documented_ones():
    """The kinds are those of docs/structures.md, but for lines that become the progress series."""
    table = (ROOT / "docs" / "structures.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) - {"metrics_line"} == KINDS


@pytest.mark.parametrize("reader", ALL_READERS, ids=lambda reader: reader.name)
def test_hostile_windows_are_bounded(reader):
    """Long runs of one byte or one opening, in the largest window, take no more than a fraction of a second."""
    import time

    size = reader.before + reader.after
    for piece in (
        b" ",
        b"a",
        b"A",
        b"(",
        b"a.",
        b": ",
        b"x (",
        b"=",
        b"0",
        b"Traceback (most recent call last):\n",
        b"  x\n",
    ):
        window = (b"Thread 1 (idle)\n" + piece * (size // len(piece)))[:size]
        started = time.process_time()
        reader.read(window, 0)
        reader.read(window, min(len(window) - 1, reader.before))
        assert time.process_time() - started < 0.5
