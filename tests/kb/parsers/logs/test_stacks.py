"""Stack dumps inside logs."""

from kb.parsers.logs.stacks import READERS
from tests.support.parsing import one, structures

SPY = (
    "Process 771: python fit.py\nPython v3.11.4 (/opt/py/bin/python3.11)\n\n"
    'Thread 771 (idle): "MainThread"\n'
    "    wait (threading.py:320)\n"
    "    Queue.get (queue.py:180)\n"
    "    <module> (fit.py:9)\n"
    'Thread 790 (active+gil): "pin"\n'
    "    poll (libc.so.6)\n"
    "    f (a (b).py:3)\n"
    "Thread 795 (idle)\n"
    "    g (c.py:7)\n"
)


def test_pyspy_threads():
    """Each thread of a py-spy dump is one structure, innermost frame first, with the process it belongs to."""
    main, named, bare = structures(READERS, SPY)
    assert main.fields == {
        "tool": "py-spy",
        "pid": 771,
        "thread": "MainThread",
        "frames": "threading.py:320 in wait\nqueue.py:180 in Queue.get\nfit.py:9 in <module>",
    }
    assert named.fields["frames"].splitlines()[0] == "libc.so.6 in poll"
    assert (named.fields["pid"], named.resource.pid) == (771, 771)
    assert (bare.fields["thread"], bare.fields["pid"]) == ("795", 771)


def test_pyspy_threads_put_together():
    """Main threads listed above one common stack each get it."""
    text = 'Thread 771 (active): "MainThread"\nThread 772 (active): "MainThread"\n    go (a.py:1)\n'
    assert [(each.fields["pid"], each.fields["frames"]) for each in structures(READERS, text)] == [
        (771, "a.py:1 in go"),
        (772, "a.py:1 in go"),
    ]


def test_pystack():
    """What pystack prints outermost first is turned round."""
    text = (
        "Traceback for thread 771 (worker) [Has the GIL] (most recent call last):\n"
        '    (Python) File "/opt/a.py", line 9, in <module>\n        main()\n'
        '    (Python) File "/opt/a.py", line 4, in main\n        wait()\n\n'
    )
    found = one(READERS, text)
    assert (found.fields["tool"], found.fields["thread"]) == ("pystack", "worker")
    assert found.fields["frames"] == "/opt/a.py:4 in main\n/opt/a.py:9 in <module>"


def test_faulthandler():
    """The threads of faulthandler are read behind a prefix too, others' lines in between left out."""
    text = (
        "[rank2]: Current thread 0x00007f10 (most recent call first):\n"
        "[rank3]: step 4\n"
        '[rank2]:   File "/opt/a.py", line 4 in main\n'
        '[rank2]:   File "/opt/a.py", line 9 in <module>\n'
        "[rank2]: \n"
        "[rank2]: Thread 0x00007f22 [pin] (most recent call first):\n"
        '[rank2]:   File "/opt/q.py", line 1 in get\n'
    )
    first, second = structures(READERS, text)
    assert first.fields["frames"] == "/opt/a.py:4 in main\n/opt/a.py:9 in <module>"
    assert first.resource.rank == 2
    assert (second.fields["thread"], second.fields["frames"]) == ("pin", "/opt/q.py:1 in get")


def test_header_without_frames():
    """A header alone is not a stack."""
    assert structures(READERS, 'Thread 771 (idle): "x"\nstep 3\n') == []
