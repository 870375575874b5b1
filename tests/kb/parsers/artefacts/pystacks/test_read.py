"""Stacks of processes, as py-spy, pystack, faulthandler and torch's debug server write them."""

import faulthandler
import json
import os
import queue
import random
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from kb.model import Frame, Resource
from kb.parsers.artefacts.pystacks.frames import MOST_FRAMES
from kb.parsers.artefacts.pystacks.read import read_all_stacks, read_stacks

SPY = """Process 4410: /opt/py/bin/python fit.py --steps 9
Python v3.12.1 (/opt/py/bin/python3.12)

Thread 4410 (idle): "MainThread"
    _PollLikeSelector.select (selectors.py:415)
    Queue.get (multiprocessing/queues.py:113)
        Arguments:
            self: <Queue at 0x7f11> (secret.py:1)
            block: True
    <module> (fit.py:12)
Thread 4433 (active+gil): "odd "name" (x)"
    spin.<locals>.<genexpr> (fit.py:31)
Thread 4434 (active)
    0x7f22aa (libc.so.6)
    all_gather (torch/distributed/distributed_c10d.py:88)

--------------------------------------------------------------------------------
Process 4500: /opt/py/bin/python fit.py --steps 9
Python v3.12.1 (/opt/py/bin/python3.12)
Parent Process 4410: /opt/py/bin/python fit.py --steps 9

Thread 4500 (idle): "MainThread"
    read_shard (shards.py:7)
"""


def read(text, **values):
    """The one process of a text."""
    data = text if isinstance(text, bytes) else text.encode()
    return read_stacks(data, "stacks/1/rank-3", Resource(rank=3, node="n7"), "1", 50.0, **values)


def read_all(text):
    """All processes of a text."""
    return read_all_stacks(text.encode(), "stacks/1/all", Resource(), "1", None)


def thread(name, frames, **more):
    """One thread of a py-spy JSON dump."""
    told = [{"name": f, "filename": p, "line": n, "module": None, "locals": None} for f, p, n in frames]
    return {"pid": 91, "thread_id": 7000, "thread_name": name, "os_thread_id": 95, "frames": told, **more}


def test_json():
    """Threads of a JSON dump keep their order of frames, their state, and the process; what variables held is dropped."""
    frames = [("Queue.get", "/lib/queue.py", 3), ("<module>", "/w/fit.py", 12)]
    main = thread("MainThread", frames, active=False, owns_gil=False)
    main["frames"][0]["locals"] = [{"name": "token", "repr": "'hunter2'"}]
    spin = thread(None, [("0x7f", "/lib/libc.so.6", 0)], active=True, owns_gil=True)
    sample, gaps = read(json.dumps([main, spin]))
    assert gaps == ()
    assert (sample.sample, sample.time, sample.resource) == ("1", 50.0, Resource(rank=3, node="n7", pid=91))
    assert sample.threads[0].frames == (Frame("Queue.get", "/lib/queue.py", 3), Frame("<module>", "/w/fit.py", 12))
    assert [(item.thread, item.state) for item in sample.threads] == [("MainThread", "idle"), ("95", "gil")]
    assert sample.threads[1].frames == (Frame("0x7f", "/lib/libc.so.6", None),)
    assert "hunter2" not in repr(sample)


def test_a_lock_that_is_held_and_not_used():
    """py-spy's JSON shows a thread that holds the interpreter's lock and does not run: stopped, or blocked in native code."""
    kept = [("tokenize", "/w/fit.py", 7)]
    states = {
        (True, True): "gil",
        (False, True): "gil_idle",
        (None, True): "gil",
        (False, False): "idle",
        (None, None): "",
    }
    for (active, owns), state in states.items():
        sample, _ = read(json.dumps([thread("MainThread", kept, active=active, owns_gil=owns)]))
        assert sample.threads[0].state == state


def test_equal_stacks_are_one_value():
    """Two ranks at the same place share their frames, so that ten thousand of them fit in memory."""
    text = json.dumps([thread("MainThread", [("f", "/a.py", 1), ("g", "/a.py", 9)])])
    assert read(text)[0].threads[0].frames is read(text)[0].threads[0].frames


def test_cut_json():
    """Of a dump cut in half the whole threads are read, and a gap says so."""
    text = json.dumps([thread("MainThread", [("f", "/a.py", 1)]), thread("late", [("g", "/a.py", 2)])], indent=2)
    sample, (gap,) = read(text[:-60])
    assert [item.thread for item in sample.threads] == ["MainThread"]
    assert gap.code == "stacks_cut"


def test_pyspy_text():
    """A text dump gives the same as JSON does: qualified names, states, threads with odd names and without."""
    sample, (gap,) = read(SPY)
    main, odd, bare = sample.threads
    assert [frame.function for frame in main.frames] == ["_PollLikeSelector.select", "Queue.get", "<module>"]
    assert main.frames[1] == Frame("Queue.get", "multiprocessing/queues.py", 113)
    assert (odd.thread, odd.state) == ('odd "name" (x)', "gil")
    assert (bare.thread, bare.state, bare.frames[0]) == ("4434", "active", Frame("0x7f22aa", "libc.so.6", None))
    assert (sample.resource.pid, sample.resource.rank, sample.child) == (4410, 3, False)
    assert gap.code == "stacks_more_processes"


def test_pyspy_subprocesses():
    """Each process below the first is a child."""
    first, second = read_all(SPY)[0]
    assert (first.resource.pid, first.child, second.resource.pid, second.child) == (4410, False, 4500, True)
    assert second.threads[0].frames[0] == Frame("read_shard", "shards.py", 7)


def test_pystack():
    """Pystack's frames are reversed; source lines and variables are skipped; its main thread is found."""
    text = (
        "Traceback for thread 33 (pt_main) [Waiting for the GIL] (most recent call last):\n"
        '    (Python) File "/w/pin.py", line 5, in loop\n        get()\n\n'
        "Traceback for thread 31 (python) [Has the GIL,Garbage collecting] (most recent call last):\n"
        '    (C) File "???", line 0, in _start (/opt/py/bin/python3.12)\n'
        '    (Python) File "/w/fit.py", line 9, in <module>\n        main()\n      Arguments:\n        x: 3\n'
        '    (Python) File "/w/fit.py", line 4, in main\n        step()\n'
        '    (C) File "./x.c", line 57, in futex_wait (inlined) (/usr/lib/libc.so.6)\n\n'
    )
    pin, main = read(text)[0].threads
    assert main.thread == "MainThread"
    assert main.state == "gil"
    assert main.frames[0] == Frame("futex_wait", "./x.c", 57)
    assert [frame.function for frame in main.frames[1:]] == ["main", "<module>", "_start"]
    assert main.frames[3].file == "/opt/py/bin/python3.12"
    assert [frame.function for frame in pin.frames] == ["take_gil", "loop"]


def test_faulthandler():
    """Faulthandler names no main thread: the last that starts at a module is it."""
    text = (
        "Timeout (0:00:05)!\n"
        'Thread 0x00007f02 [reader] (most recent call first):\n  File "/w/a.py", line 6 in run\n\n'
        "Current thread 0x00007f01 (most recent call first):\n"
        '  File "/w/a.py", line 2 in step\n  File "/w/a.py", line 8 in <module>\n'
    )
    reader, main = read(text)[0].threads
    assert (reader.thread, main.thread, main.state) == ("reader", "MainThread", "")
    assert main.frames == (Frame("step", "/w/a.py", 2), Frame("<module>", "/w/a.py", 8))


def test_faulthandler_of_several_ranks():
    """Lines with ranks before them that ran into each other are put apart."""
    text = (
        "[rank4]: Thread 0x01 (most recent call first):\n"
        "[rank5]: Thread 0x01 (most recent call first):\n"
        '[rank4]:   File "/w/a.py", line 2 in four\n'
        '[rank5]:   File "/w/a.py", line 3 in five\n'
    )
    found = read_all(text)[0]
    assert [(item.resource.rank, item.threads[0].frames[0].function) for item in found] == [(4, "four"), (5, "five")]


def test_debug_server_text():
    """The debug server's file holds every rank; one that did not answer is a gap."""
    text = (
        "PARTIAL DATA: 2/3 workers responded\n  Rank 1: gone\n\n"
        "=== Rank 0: http://h1:4040/handler/dump_traceback? ===\n"
        'Thread 0x01 (most recent call first):\n  File "/w/a.py", line 2 in zero\n\n'
        "=== Rank 1: http://h2:4040/handler/dump_traceback? ===\nError: 503\n"
        "=== Rank 2: http://h2:4041/handler/dump_traceback? ===\n"
        'Thread 0x01 (most recent call first):\n  File "/w/a.py", line 4 in two\n'
    )
    found, (gap,) = read_all(text)
    assert [(item.resource.rank, item.resource.node, item.threads[0].frames[0].function) for item in found] == [
        (0, "h1", "zero"),
        (2, "h2", "two"),
    ]
    assert (gap.code, gap.scope) == ("stacks_refused", "rank 1")


def test_debug_server_page():
    """So does its page, with quotes and brackets escaped."""
    text = (
        "<html>\n        <h2>Rank 6: http://h1:1/handler/x?</h2>\n"
        "            <pre>Thread 0x01 (most recent call first):\n"
        "  File &#34;/w/a.py&#34;, line 2 in &lt;module&gt;\n</pre>\n"
        "        <h2>Rank 7: http://h1:2/handler/x?</h2>\n"
        "            <p>Failed to fetch: status=500</p>\n            <pre>no</pre>\n"
    )
    found, (gap,) = read_all(text)
    assert [(item.resource.rank, item.threads[0].frames) for item in found] == [(6, (Frame("<module>", "/w/a.py", 2),))]
    assert gap.scope == "rank 7"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b"", "stacks_empty"),
        (b"[]", "stacks_unreadable"),
        (b'[{"frames": []}]', "stacks_empty"),
        (b'[{"frames": [{"line": "x"}]}]', "stacks_unreadable"),
        (b"step 3 loss 2.0\n", "stacks_unreadable"),
        (b"Error: Failed to open\n\nCaused by:\n    0: No such process (os error 3)\n", "stacks_process_gone"),
        (b"Error: Failed to open\n\nCaused by:\n    0: Permission denied (os error 13)\n", "stacks_not_permitted"),
        (b"Error: Failed to get\n\nCaused by:\n    0: Failed to suspend process\n", "stacks_not_suspended"),
        (b"Error: Failed to find python version from target process\n", "stacks_no_python"),
        ("💀 Engine error: Could not read the contents of /proc/77/task 💀\n".encode(), "stacks_process_gone"),
    ],
)
def test_nothing_to_read(text, code):
    """A file without a stack is a gap that says why."""
    sample, (gap,) = read(text)
    assert (sample, gap.code) == (None, code)


def test_bounds():
    """Of a very deep stack the innermost and the outermost frames are kept."""
    frames = "".join(f"    f{n} (a.py:{n + 1})\n" for n in range(5000))
    (kept,) = read(f'Thread 5 (idle): "MainThread"\n{frames}')[0].threads
    assert len(kept.frames) == MOST_FRAMES
    assert (kept.frames[0].function, kept.frames[-1].function) == ("f0", "f4999")


def test_hostile_bytes():
    """Whatever the bytes are, the answer is a sample or a gap, never an exception."""
    chance = random.Random(7)
    nested = b'[{"frames": ' + b"[" * 100_000
    shapes = [SPY.encode(), json.dumps([thread("MainThread", [("f", "/a.py", 1)])]).encode(), nested]
    for _ in range(300):
        data = bytearray(chance.choice(shapes)[: chance.randrange(1, 2000)])
        for _ in range(chance.randrange(12)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        sample, gaps = read(bytes(data))
        assert sample is not None or gaps


def test_real_faulthandler(tmp_path):
    """What this Python's own faulthandler writes of a thread that waits for a queue is read."""
    jobs = queue.Queue()
    waiting = threading.Thread(target=jobs.get, name="waits", daemon=True)
    waiting.start()
    # other threads of the process may wait too, so this one is known by its name, or by its number before Python 3.14
    names = {"waits", f"0x{waiting.ident:016x}"}
    deadline = time.monotonic() + 60
    out = tmp_path / "dump.txt"
    stack = None
    while time.monotonic() < deadline and (stack is None or [frame.function for frame in stack.frames[:1]] != ["wait"]):
        with out.open("w") as file:
            faulthandler.dump_traceback(file, all_threads=True)
        sample, gaps = read(out.read_bytes())
        stack = next(item for item in sample.threads if item.thread in names)
    jobs.put(None)
    waiting.join()
    assert gaps == ()
    assert [frame.function for frame in stack.frames[:2]] == ["wait", "get"]
    assert [item.thread for item in sample.threads].count("MainThread") == 1


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_real_pyspy(form):
    """What py-spy says of a process that sleeps is read, as text and as JSON."""
    tool = shutil.which("py-spy", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
    if tool is None:
        pytest.skip("py-spy is not installed: its output is not read from the tool itself")
    code = "import time\ndef nap():\n    print('up', flush=True) or time.sleep(60)\nnap()\n"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as asleep:
        asleep.stdout.readline()
        told = subprocess.run([tool, "dump", *form, "--pid", str(asleep.pid)], capture_output=True, check=False)
        asleep.kill()
    if told.returncode:
        pytest.skip("py-spy may not trace processes here: " + told.stderr.decode()[:80])
    sample, gaps = read(told.stdout)
    (main,) = sample.threads
    assert gaps == ()
    assert (main.thread, [frame.function for frame in main.frames]) == ("MainThread", ["nap", "<module>"])
    assert (sample.resource.pid, main.frames[0].line) == (asleep.pid, 3)
