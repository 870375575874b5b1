"""Output of bpftrace, of our own programs, and of bcc's tools."""

import json

import pytest

from kb.model import Resource
from kb.parsers.artefacts.ebpf.blocked import blocked_on
from kb.parsers.artefacts.ebpf.read import read_ebpf
from kb.parsers.artefacts.ebpf.reading import EbpfLimits

BOOT = 1_000_000_000_000  # nanoseconds since boot at the first tick
NOON = 1_790_942_400


def line(kind, data):
    """One line as bpftrace prints it."""
    return json.dumps({"type": kind, "data": data}) + "\n"


def tick(number, every=10):
    """Our programs' mark in time."""
    return line("printf", f"tick {NOON + number * every} {BOOT + number * every * 1_000_000_000}\n")


def program(name, *lines):
    """The output of one of our programs."""
    return (line("printf", f"signalbox {name} 1\n") + "".join(lines)).encode()


def good(data, **more):
    """What is read, with no gaps."""
    reading, gaps = read_ebpf(data, "ebpf/x.json", **more)
    assert gaps == ()
    return reading


def histogram(*rows):
    """Buckets as bpftrace prints them."""
    return [{"min": low, "max": high, "count": count} for low, high, count in rows]


STACK = "\n        __schedule+1203\n        schedule+41\n        rpc_wait_bit_killable+18\n        nfs_file_fsync+71\n"


def test_maps_histograms_and_statistics():
    """Maps become series with the unit of their name, keyed by process and call; statistics give their average."""
    reading = good(
        program(
            "cuda",
            tick(0),
            line("map", {"@polls": {"88": 7}}),
            line("hist", {"@cuda_us": {"88,uretprobe:/opt/l.so:cudaMalloc": histogram((4, 7, 3), (8, 15, 1))}}),
            line("stats", {"@wait_ms": {"count": 2, "average": 6, "total": 12}}),
            tick(1),
            line("map", {"@polls": {"88": 9}}),
            line("hist", {"@cuda_us": {"88,uretprobe:/opt/l.so:cudaMalloc": histogram((4, 7, 2))}}),
        )
    )
    assert (reading.tool, reading.seconds, reading.ticks) == ("cuda", 20.0, (NOON, NOON + 10))
    named = {series_item.name: series_item for series_item in reading.series}
    assert named["polls"].points == ((NOON, 7.0), (NOON + 10, 9.0))
    assert (named["cuda_us"].unit, named["cuda_us"].call, named["cuda_us"].resource.pid) == ("us", "cudaMalloc", 88)
    assert named["cuda_us"].buckets == ((4.0, 7.0, 5), (8.0, 15.0, 1))
    assert (named["wait_ms"].unit, named["wait_ms"].points) == ("ms", ((NOON, 6.0),))


def test_a_thread_that_stays_in_uninterruptible_sleep():
    """A thread that was in D state at a tick for 5 s or more is reported once, with its stack and what it waits for."""
    blocked = [
        part
        for at in (0, 1)
        for part in (
            tick(at, 5),
            line("map", {"@blocked_ns": {"88,91": BOOT - 4_000_000_000, "88,92": BOOT + at * 5_000_000_000 - 2_000}}),
            line("map", {"@blocked_stack": {"88,91": STACK, "88,92": STACK}}),
            line("map", {"@blocked_comm": {"88,91": "pt_data_worker", "88,92": "python3"}}),
        )
    ]
    (one,) = good(program("dstate", *blocked)).events
    assert (one.kind, one.reason, one.time, one.resource.pid) == ("d_state", "network storage", NOON + 5, 88)
    assert (one.fields["seconds"], one.fields["tid"], one.fields["comm"], one.fields["ended"]) == (
        9.0,
        91,
        "pt_data_worker",
        False,
    )
    assert one.fields["stack"].split("\n") == ["__schedule", "schedule", "rpc_wait_bit_killable", "nfs_file_fsync"]


def test_a_sleep_that_ended_is_reported_once():
    """The line at a sleep's end replaces what the ticks before had shown of it."""
    data = program(
        "dstate",
        tick(1, 5),
        line("map", {"@blocked_ns": {"88,91": BOOT - 1_000_000_000}}),
        line("printf", f"dstate 88 91 8000123 us python3\n{STACK}\n"),
    )
    (one,) = good(data).events
    assert (one.fields["seconds"], one.fields["ended"], one.fields["blocked_on"]) == (8.000123, True, "network storage")


@pytest.mark.parametrize(
    ("frames", "what"),
    [
        (["__schedule", "io_schedule", "folio_wait_bit", "ext4_sync_file"], "storage"),
        (["__schedule", "mutex_lock", "uvm_ioctl"], "gpu"),
        (["schedule", "_nv012345rm"], "gpu"),
        (["schedule", "request_wait_answer", "fuse_simple_request"], "network storage"),
        (["io_schedule", "ll_readpage"], "network storage"),
        (["schedule", "mlx5_cmd_exec"], "network"),
        (["schedule", "shrink_node", "try_to_free_pages"], "memory"),
        (["schedule", "rwsem_down_read_slowpath"], "lock"),
        (["wait_for_completion_state", "kernel_clone"], ""),
    ],
)
def test_what_a_stack_waits_for(frames, what):
    """The most telling frame wins: a driver over the lock that it holds, a file server over the page that it owes."""
    assert blocked_on(frames) == what


def test_calls_that_do_not_end():
    """A call, a collective or a pass that has not ended for half a minute is reported with its name and thread."""
    calls = [
        tick(6),
        line("map", {"@in_call_ns": {"88,91": BOOT + 5_000_000_000, "88,95": BOOT + 59_000_000_000}}),
        line(
            "map",
            {"@in_call": {"88,91": "uprobe:/opt/l.so:cudaStreamSynchronize", "88,95": "uprobe:/opt/l.so:cudaFree"}},
        ),
    ]
    (one,) = good(program("cuda", *calls)).events
    assert (one.kind, one.reason, one.fields["seconds"], one.fields["tid"]) == (
        "stuck_call",
        "cudaStreamSynchronize",
        55.0,
        91,
    )
    gloo = good(program("gloo", tick(6), line("map", {"@in_collective_ns": {"88,91": BOOT}})))
    assert [(event.reason, event.fields["seconds"]) for event in gloo.events] == [("collective", 60.0)]
    step = good(program("step", tick(6), line("map", {"@in_backward_ns": {"88": BOOT + 1_000_000_000}})))
    assert [(event.reason, event.resource.pid) for event in step.events] == [("backward", 88)]


def test_a_queue_with_no_completion():
    """Polls that find nothing for half a minute after the last completion are a stalled queue."""

    def turn(at, found):
        maps = [("@posted", 40), ("@polls", 9000), *([("@completions", 12)] if found else [])]
        return tick(at, 5) + "".join(line("map", {name: {"88": value}}) for name, value in maps)

    (one,) = good(program("verbs", *(turn(at, at < 3) for at in range(12)))).events
    assert (one.kind, one.time, one.resource.pid) == ("cq_stall", NOON + 55, 88)
    assert (one.fields["seconds"], one.fields["ever"], one.fields["posted"]) == (45.0, True, 360.0)
    assert good(program("verbs", *(turn(at, at < 8) for at in range(12)))).events == ()
    never = good(program("verbs", *(turn(at, found=False) for at in range(12)))).events
    assert [(event.fields["ever"], event.fields["seconds"]) for event in never] == [(False, 60.0)]


def test_whose_numbers_they_are():
    """The rank that the caller knows belongs to the pid that it knows, not to other processes of the host."""
    data = program("syscalls", tick(0), line("map", {"@syscalls": {"88": 5, "99": 6}}), tick(1))
    who = Resource(node="gpu-a", rank=3, pid=88)
    assert [series_item.resource for series_item in good(data, resource=who).series] == [
        who,
        Resource(node="gpu-a", pid=99),
    ]


@pytest.mark.parametrize("whole", [True, False])
def test_the_envelope(whole):
    """Host, process, rank and tool come from the envelope, around the records or above them."""
    head = {
        "schema": "signalbox.ebpf/1",
        "host": "gpu-a",
        "pid": 88,
        "rank": 3,
        "tool": "offcputime --state 2",
        "start": 10,
        "end": 40,
    }
    stack = "python3;main;write;-;do_syscall_64;nfs_file_fsync 6000000"
    text = json.dumps(head | {"records": [stack]}) if whole else json.dumps(head) + "\n" + stack + "\n"
    reading = good(text.encode())
    assert (reading.seconds, reading.resource) == (30.0, Resource(node="gpu-a", pid=88, rank=3))
    assert [(event.kind, event.reason, event.resource.rank) for event in reading.events] == [
        ("d_state", "network storage", 3)
    ]


def test_folded_stacks():
    """Folded stacks are turned innermost first, the mark between user and kernel left out, times in seconds."""
    reading = good(b"python3;_start;main;-;do_syscall_64;futex_wait;schedule 1500000\npt main;poll;[unknown] 500000\n")
    assert [(stack.command, stack.frames, stack.seconds) for stack in reading.stacks] == [
        ("python3", ("schedule", "futex_wait", "do_syscall_64", "main", "_start"), 1.5),
        ("pt main", ("[unknown]", "poll"), 0.5),
    ]
    assert reading.events == ()


def test_stacks_frame_by_frame():
    """The usual form of offcputime is read with the process of each stack."""
    text = """Tracing off-CPU time (us) of PID 88 by user + kernel stack for 10 secs.

    finish_task_switch.isra.0
    schedule
    futex_wait_queue
    --
    pthread_cond_wait
    -                python3 (88)
        2000000

    schedule
    b'io_schedule'
    -                pt_data_worker (97)
        9000000

"""
    reading = good(text.encode().replace(b"b'io_schedule'", b"io_schedule"), tool="offcputime --state 2")
    assert [(stack.command, stack.resource.pid, len(stack.frames), stack.seconds) for stack in reading.stacks] == [
        ("python3", 88, 4, 2.0),
        ("pt_data_worker", 97, 2, 9.0),
    ]
    assert [(event.kind, event.resource.pid) for event in reading.events] == [("d_state", 97)]


def test_bpftraces_text_form():
    """Maps and histograms as bpftrace prints them by default are read like its JSON."""
    text = """Attaching 3 probes...

@calls[88, uprobe:/lib/l.so:cudaFree]: 17
@runq_us[88]:
[2, 4)                 3 |@@@@@@        |
[4, 8)                10 |@@@@@@@@@@@@@@|
[1K, 2K)               2 |@@            |

@total: 4
"""
    named = {series_item.name: series_item for series_item in good(text.encode()).series}
    assert (named["calls"].call, named["calls"].resource.pid, named["calls"].points) == (
        "cudaFree",
        88,
        ((None, 17.0),),
    )
    assert named["runq_us"].buckets == ((2.0, 4.0, 3), (4.0, 8.0, 10), (1024.0, 2048.0, 2))
    assert named["total"].points == ((None, 4.0),)


def test_bccs_histograms_and_biosnoop():
    """A latency histogram of bcc is a series with its unit; slow requests of biosnoop are events."""
    text = """Tracing run queue latency... Hit Ctrl-C to end.

     usecs               : count     distribution
         0 -> 1          : 233      |***********                             |
         2 -> 3          : 742      |****************************************|
"""
    (one,) = good(text.encode()).series
    assert (one.unit, one.buckets) == ("us", ((0.0, 1.0, 233), (2.0, 3.0, 742)))
    rows = """TIME(s)     COMM           PID    DISK    T SECTOR     BYTES  LAT(ms)
0.000004    python3        88     nvme0n1 R 13092560   4096      0.31
4.120101    python3        88     nvme0n1 W 13092568   131072 4211.70
"""
    (event,) = good(rows.encode()).events
    assert (event.kind, event.resource.pid, event.fields["seconds"], event.fields["disk"]) == (
        "slow_io",
        88,
        4.2117,
        "nvme0n1",
    )


def test_lines_that_another_program_printed():
    """Lines of a user's own program are kept as events, and what the kernel lost is a gap."""
    reading, gaps = read_ebpf(
        (line("printf", "slow open /mnt/x 31 ms\n") + line("lost_events", {"events": 12})).encode(), "x"
    )
    assert [(event.kind, event.message) for event in reading.events] == [("ebpf_line", "slow open /mnt/x 31 ms")]
    assert [(gap.code, gap.got) for gap in gaps] == [("ebpf-lost", "12")]


def test_limits_are_the_callers():
    """The thresholds for reports can be set."""
    data = program("gloo", tick(6), line("map", {"@in_collective_ns": {"88,91": BOOT + 50_000_000_000}}))
    assert good(data).events == ()
    assert [event.fields["seconds"] for event in good(data, limits=EbpfLimits(call=5)).events] == [10.0]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n\n",
        b"hello\nworld\n",
        b"{" * 60_000,
        b"\xff\x00" * 900,
        b'{"type": 5}\n',
        b'{"a": 1}\n' * 50,
        b'{"schema": "signalbox.ebpf/1", "records": 7}',
    ],
)
def test_rubbish_is_a_gap(data):
    """Text that is not a tool's output gives no value and a gap."""
    reading, gaps = read_ebpf(data, "x")
    assert reading is None
    assert gaps[-1].code == "ebpf-unreadable"


def test_odd_values_do_no_harm():
    """Values of wrong types, times of the future, and numbers beyond all bounds are left out."""
    odd = program(
        "cuda",
        tick(0),
        line("map", {"@in_call_ns": {"88,91": "x", "88,92": BOOT * 9, "no,one": 1, "٣,٣": 5}}),
        line(
            "map", {"@polls": {"88": 10**400, "89": None, "90": [1, {"min": "x", "count": -5}], "91": {"average": {}}}}
        ),
        line("hist", {"@h_us": 3}),
        line("hist", {"@h_us": {"88": [{"min": 1, "max": 0, "count": 10**30}]}}),
        '{"type": "map", "data": [1]}\n',
    )
    reading, _ = read_ebpf(odd, "x")
    assert [event.kind for event in reading.events] == []
    assert all(not series_item.buckets for series_item in reading.series)


@pytest.mark.slow  # test_long_odd_lines_take_no_time
def test_output_without_end_is_bounded():
    """Too many lines, series or events are cut, and the gap says so."""
    many = "".join(f"p{at};a;b 5\n" for at in range(30_000)).encode()
    reading, gaps = read_ebpf(many, "x")
    assert len(reading.stacks) == 20_000
    assert [gap.code for gap in gaps] == ["ebpf-cut"]
    reading, gaps = read_ebpf(b"@a: 1\n" * 250_000, "x")
    assert reading is not None
    assert sum(len(series_item.points) for series_item in reading.series) == 100_000
    assert {gap.code for gap in gaps} == {"ebpf-cut"}


@pytest.mark.parametrize(
    "odd",
    ["    a" + " " * 16_000 + "!", "@x: a" + " " * 16_000 + "!", "a;" * 300 + "b", "tick 1 1" + " " * 16_000 + "!"],
)
def test_long_odd_lines_take_no_time(odd):
    """Lines made to be slow to match are read at once, and give a gap."""
    reading, gaps = read_ebpf((odd + "\n").encode() * 500 + b"@a: 1\n", "x")
    assert [series_item.name for series_item in reading.series] == ["a"]
    assert [gap.code for gap in gaps] == ["ebpf-odd-lines"]
