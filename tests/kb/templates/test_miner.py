"""Mining a stream: tracebacks fold, bars split, ranks and steps are counted, hostile input stays bounded."""

from __future__ import annotations

import gc
import json
import weakref

from kb.model import StreamRef
from kb.templates.miner import LONGEST_LINE, Miner
from tests.support.template_samples import mined


def texts(text: bytes, **options) -> dict[str, int]:
    """How often each template came."""
    return {template.template.text: template.count for template in mined(text, **options).templates.values()}


def test_a_traceback_is_its_head_and_its_exception():
    """Frames and source lines are not templates; the exception names where it was raised."""
    text = b"""[rank1]: Traceback (most recent call last):
[rank1]:   File "/app/train.py", line 10, in main
[rank0]: all is well here
[rank1]:     save(7)
[rank1]:   File "/app/disk.py", line 5, in save
[rank1]:     raise OSError
[rank1]: OSError: [Errno 28] No space left on device: '/x'
"""
    assert texts(text) == {
        "Traceback (most recent call last):": 1,
        "all is well here": 1,
        "OSError: [Errno <*>] No space left on device: <*> [in save (disk.py)]": 1,
    }


def test_interleaved_tracebacks_of_ranks_are_reported_apart():
    """Each rank's exception has the frame of its own traceback."""
    lines = []
    for item, two in zip(
        ["Traceback (most recent call last):", '  File "a.py", line 1, in load', "ValueError: bad"],
        ["Traceback (most recent call last):", '  File "b.py", line 2, in store', "ValueError: bad"],
        strict=True,
    ):
        lines += [f"[rank0]: {item}\n", f"[rank1]: {two}\n"]
    assert texts("".join(lines).encode()) == {
        "Traceback (most recent call last):": 2,
        "ValueError: bad [in load (a.py)]": 1,
        "ValueError: bad [in store (b.py)]": 1,
    }


def test_the_traceback_of_a_failed_task_is_one_of_its_own():
    """Its last line has whatever name the program gave it, and the innermost frame of the task."""
    text = b"""Traceback (most recent call last):
  File "/ray/worker.py", line 9, in get
    raise value
ray.exceptions.RayTaskError(Adrift): ray::Diver.swim() (pid=90, ip=10.0.0.2)
           ^^^^^^^^^^^^
  File "/app/dive.py", line 5, in check
    raise Adrift(6)
core.Adrift: buoy 6 is loose
all is well here
"""
    assert texts(text) == {
        "Traceback (most recent call last):": 1,
        "ray.exceptions.RayTaskError(Adrift): ray::Diver.swim() (pid=<*>, ip=<*>)": 1,
        "core.Adrift: buoy <*> is loose [in check (dive.py)]": 1,
        "all is well here": 1,
    }


def test_a_traceback_in_json_lines_is_one():
    """Its quotes are escaped there."""
    lines = ["Traceback (most recent call last):", '  File "a.py", line 1, in load', "    run()", "ValueError: bad"]
    text = "".join(json.dumps({"UNIT": "lm@rank1.service", "MESSAGE": line}) + "\n" for line in lines)
    ranked = "".join(json.dumps({"pod": "lm-7", "log": f"[rank1]: {line}"}) + "\n" for line in lines)
    twice = "".join(
        json.dumps({"log": json.dumps({"rank": 1, "msg": line}), "stream": "stderr"}) + "\n" for line in lines
    )
    assert (
        texts(text.encode())
        == texts(ranked.encode())
        == texts(twice.encode())
        == {"Traceback (most recent call last):": 1, "ValueError: bad [in load (a.py)]": 1}
    )


def test_a_traceback_that_never_ends_swallows_nothing():
    """Lines of others behind a cut traceback count as what they are."""
    text = b'Traceback (most recent call last):\n  File "a.py", line 1, in load\n' + b"step is done\n" * 50
    assert texts(text)["step is done"] == 50


def test_progress_bars_are_split():
    """What a carriage return overwrites counts line by line, under one line number."""
    found = mined(
        b"begin\n" + b"".join(b"\r 5%%|#  | %d/90 [00:01<00:09,  3.2it/s]" % n for n in range(5)) + b"\nend\n"
    )
    assert sorted((template.count, template.last[-1].number) for template in found.templates.values()) == [
        (1, 1),
        (1, 3),
        (5, 2),
    ]
    assert found.lines == 3


def test_windows_are_of_ten_steps():
    """Lines count to the window of the last step that was named; what came before the first step stays apart."""
    lines = ["starting up now\n"]
    for step in range(1, 41):
        lines += [f"iteration {step:8d}/ 90 | lm loss: 1.5E+00 |\n", "a word between\n"]
    found = mined("".join(lines).encode())
    between = next(key for key, item in found.templates.items() if item.template.text == "a word between")
    assert {window: counts[between] for window, counts in found.steps.last.items()} == {0: 9, 1: 10, 2: 10, 3: 10, 4: 1}
    assert list(found.steps.heads) == [0]
    assert found.minutes.coarse == {}
    assert found.windows is found.steps
    assert found.templates[between].last[-1].step == 40


def test_without_steps_windows_are_minutes():
    """A line without a time belongs to the minute of the line before."""
    found = mined(b"2026-11-03 04:10:59 one thing\nmore of it\n2026-11-03 04:12:00 one thing\n")
    first = 1793679000 // 60
    assert {window - first: sum(counts.values()) for window, counts in found.minutes.last.items()} == {0: 2, 2: 1}
    assert found.windows is found.minutes


def test_ranks_and_nodes_are_counted():
    """The writers are reported if lines name them."""
    found = mined(
        b"[rank3]: ready\n[rank10]: ready\n[rank3]: ready\nnode-7: ready to serve\ncn-2:17:18 [0] NCCL INFO Using IB\n"
    )
    assert {
        template.template.text: (dict(template.ranks), dict(template.nodes)) for template in found.templates.values()
    } == {
        "ready": ({3: 2, 10: 1}, {}),
        "ready to serve": ({}, {"node-7": 1}),
        "NCCL INFO Using IB": ({}, {"cn-2": 1}),
    }


def test_first_and_last_places_are_kept():
    """Four of each, with line numbers and the lines as they were."""
    found = mined(b"".join(b"attempt %d of many\n" % n for n in range(20)))
    (one,) = found.templates.values()
    assert [place.number for place in one.first] == [1, 2, 3, 4]
    assert [place.line for place in one.last] == [f"attempt {n} of many" for n in (16, 17, 18, 19)]
    assert len(one.places) == 8


def test_a_line_without_end_is_cut():
    """Of a line of many megabytes its start counts, and those around it are whole."""
    found = mined(b"before\n" + b"x" * (5 * LONGEST_LINE) + b"\nbehind\n", block=100_000)
    assert sorted((template.first[0].number, len(template.template.text)) for template in found.templates.values()) == [
        (1, 6),
        (2, 320),
        (3, 6),
    ]
    assert found.lines == 3
    assert found.bytes == 5 * LONGEST_LINE + 15


def test_nothing_gives_an_empty_table():
    """No lines, blank lines and zeros give no templates."""
    assert texts(b"") == {}
    assert texts(b"\n\n  \n\0\0\0\n") == {}


def test_the_last_line_of_each_rank_is_kept() -> None:
    """By blocks and by parts, however the stream was cut; a launcher's prefix names ranks, too."""
    text = b"".join(b"[rank%d]: step %d is done\n" % (rank, step) for step in range(3000) for rank in range(3))
    text += b"[trainer3]:only once\n" + b"".join(b"[rank1]: step %d is done\n" % step for step in range(3000, 3200))
    table = mined(text)
    assert {rank: place.line.partition("]")[2].lstrip(": ") for rank, place in table.endings.items()} == {
        0: "step 2999 is done", 1: "step 3199 is done", 2: "step 2999 is done", 3: "only once",
    }  # fmt: skip
    assert table.endings[3].number == 9001


def test_a_miner_is_freed_without_the_garbage_collector() -> None:
    """Workers turn the collector off; a miner in a reference cycle would keep its last blocks, megabytes for each shard."""
    lines = b"".join(b"2026-11-03 04:12:07 INFO [rank %d] step %d loss 2.0\n" % (at % 4, at) for at in range(400))
    collecting = gc.isenabled()
    gc.disable()
    try:
        miner = Miner(StreamRef("rank-0.log"))
        miner.feed(lines)
        miner.feed(lines)
        miner.finish()
        gone = weakref.ref(miner)
        del miner
        assert gone() is None
    finally:
        if collecting:
            gc.enable()
