"""Small runs in which one rank fails in a way that no rule knows, and the others lose it: logs by path, and the truth.

The symptoms are worded as torch, gloo, torchrun and srun print them; the failures are of programs that do not exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

START = datetime(2026, 11, 3, 4, 12, 0, tzinfo=UTC)
RANKS = 8
VICTIM = 5
HANG = 620  # seconds from the failure to the timeouts


@dataclass(frozen=True, slots=True)
class Scene:
    """Logs by path, the rank that failed first (None: unknown), and texts of its own lines that an answer must quote."""

    logs: Mapping[str, str]
    rank: int | None
    needles: tuple[str, ...] = ()
    extra: Mapping[str, str] = field(default_factory=dict)


def at(seconds: float) -> datetime:
    """The time this many seconds after the start."""
    return START + timedelta(seconds=seconds)


def iso(seconds: float) -> str:
    """A time as Python's logging prints it."""
    moment = at(seconds)
    return f"{moment:%Y-%m-%d %H:%M:%S},{moment.microsecond // 1000:03d}"


def steps(rank: int, last: int = 40, every: float = 2.0) -> str:
    """The log of a rank that works."""
    return f"{iso(0)} INFO train: rank {rank} of {RANKS} starts\n" + "".join(
        f"{iso(5 + n * every)} INFO train: step {n}/5000 | loss {3.0 - n / 100:.4f} | lr 1.0e-4 | step_time 2.01 s\n"
        for n in range(1, last + 1)
    )


DIED = 5 + 40 * 2.0 + 1.0


def watchdog(rank: int, seconds: float = DIED + HANG, seq: int = 1201) -> str:
    """What c10d's watchdog prints on a rank that waited for another."""
    stamp = at(seconds)
    head = f"[rank{rank}]:[E{stamp:%m%d %H:%M:%S}.{100000 + rank:06d}123 ProcessGroupNCCL.cpp:"
    return (
        f"{head}632] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, "
        "NumelIn=67108864, NumelOut=67108864, Timeout(ms)=600000) ran for 600029 milliseconds before timing out.\n"
        f"{head}2268] [PG ID 0 PG GUID 0(default_pg) Rank {rank}]  failure detected by watchdog at work sequence id: {seq} "
        f"PG status: last enqueued work: {seq}, last completed work: {seq - 1}\n"
        f"{head}670] Stack trace of the failed collective not found, potentially because FlightRecorder is disabled.\n"
        f"{head}684] [Rank {rank}] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, "
        "subsequent GPU operations might run on corrupted/incomplete data.\n"
        f"{head}698] [Rank {rank}] To avoid data inconsistency, we are taking the entire process down.\n"
        f"{head}1896] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Process group watchdog thread terminated with exception: "
        f"[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn=67108864, "
        "NumelOut=67108864, Timeout(ms)=600000) ran for 600029 milliseconds before timing out.\n"
        "Exception raised from checkTimeout at /pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:635 (most recent call first):\n"
        "frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x98 (0x7f2f0c7785e8 in /venv/lib/python3.11/site-packages/torch/lib/libc10.so)\n"
        "frame #1: c10d::ProcessGroupNCCL::WorkNCCL::checkTimeout(std::optional<std::chrono::duration<long, std::ratio<1l, 1000l> > >) + 0x23d\n"
        "terminate called after throwing an instance of 'c10::DistBackendError'\n"
        f"  what():  [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Process group watchdog thread terminated with exception: "
        f"[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq})\n"
    )


def gloo(rank: int) -> str:
    """What a rank prints whose peer closed the connection."""
    tag = f"[rank{rank}]: "
    return (
        f"{tag}Traceback (most recent call last):\n"
        f'{tag}  File "/work/train.py", line 210, in <module>\n{tag}    main()\n'
        f'{tag}  File "/work/train.py", line 188, in main\n{tag}    dist.all_reduce(flat)\n'
        f'{tag}  File "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 3252, in all_reduce\n'
        f"{tag}    work.wait()\n"
        f"{tag}RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer "
        "[10.0.0.6]:27302. This is typically caused by a remote worker crashing. Check the logs of the remote worker before reporting an error.\n"
    )


def traceback(last: str, tag: str = "") -> str:
    """A traceback of the run's own code that ends with this line."""
    return (
        f"{tag}Traceback (most recent call last):\n"
        f'{tag}  File "/work/train.py", line 210, in <module>\n{tag}    main()\n'
        f'{tag}  File "/work/train.py", line 181, in main\n{tag}    batch = next(batches)\n'
        f'{tag}  File "/work/acme/mixer.py", line 77, in __next__\n{tag}    raise self._failed(shard)\n'
        f"{tag}{last}\n"
    )


def torchrun(rank: int = VICTIM, code: int = 1, signal: str = "", seconds: float = DIED + 2) -> str:
    """The launcher's log of a node whose first failed process is this rank."""
    stamp = at(seconds)
    shown = f"{-6 if signal == 'SIGABRT' else code}"
    others = "".join(
        f"W{stamp:%m%d %H:%M:%S}.000000 4100 site-packages/torch/distributed/elastic/multiprocessing/api.py:900] "
        f"Sending process {4200 + n} closing signal SIGTERM\n"
        for n in range(RANKS)
        if n != rank
    )
    why = (
        f"Signal 6 ({signal}) received by PID {4200 + rank}"
        if signal
        else ("To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html")
    )
    return (
        f"{others}"
        f"E{stamp:%m%d %H:%M:%S}.100000 4100 site-packages/torch/distributed/elastic/multiprocessing/api.py:874] failed "
        f"(exitcode: {shown}) local_rank: {rank} (pid: {4200 + rank}) of binary: /venv/bin/python\n"
        "Traceback (most recent call last):\n"
        '  File "/venv/bin/torchrun", line 8, in <module>\n    sys.exit(main())\n'
        '  File "/venv/lib/python3.11/site-packages/torch/distributed/launcher/api.py", line 277, in launch_agent\n'
        "    raise ChildFailedError(\n"
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        "============================================================\n"
        "/work/train.py FAILED\n"
        "------------------------------------------------------------\n"
        "Failures:\n  <NO_OTHER_FAILURES>\n"
        "------------------------------------------------------------\n"
        "Root Cause (first observed failure):\n[0]:\n"
        f"  time      : {stamp:%Y-%m-%d_%H:%M:%S}\n  host      : node-a\n  rank      : {rank} (local_rank: {rank})\n"
        f"  exitcode  : {shown} (pid: {4200 + rank})\n  error_file: <N/A>\n  traceback : {why}\n"
        "============================================================\n"
    )


def others(lost: str, victim: int = VICTIM) -> dict[str, str]:
    """The logs of all ranks but one: they work, then time out (`watchdog`) or lose their peer (`gloo`)."""
    after = {"watchdog": watchdog, "gloo": gloo}[lost]
    return {f"logs/rank-{n}.log": steps(n, 41) + after(n) for n in range(RANKS) if n != victim}


def scene(own: str, *needles: str, lost: str = "watchdog", launcher: str = "", victim: int = VICTIM) -> Scene:
    """A run whose victim's log ends with these lines."""
    logs = {**others(lost, victim), f"logs/rank-{victim}.log": steps(victim) + own}
    if launcher:
        logs["logs/node-a.log"] = launcher
    return Scene(logs, victim, needles)


def merged(own: str, *needles: str, lost: str = "watchdog") -> Scene:
    """The same run in one file, each line behind its rank."""
    text = "".join(f"[rank{n}]:{line}\n" for step in (steps(0),) for line in step.splitlines() for n in (0,))
    after = {"watchdog": watchdog, "gloo": gloo}[lost]
    text += own + "".join(after(n) for n in range(RANKS) if n != VICTIM)
    return Scene({"logs/train.log": text}, VICTIM, needles)


def json_line(seconds: float, level: str, message: str, rank: int = VICTIM, key: str = "level") -> str:
    """A line of a structured logger."""
    return f'{{"ts": "{at(seconds):%Y-%m-%dT%H:%M:%S.%f}Z", "{key}": "{level}", "rank": {rank}, "logger": "mixer", "msg": "{message}"}}\n'


NATIVE = (
    f"F{at(DIED):%m%d %H:%M:%S}.418213  4205 shard_reader.cc:212] Check failed: header.crc == crc (0x9f3a11 vs. 0x03b2c7) shard 0413\n"
    "*** Check failure stack trace: ***\n"
    "    @     0x7f1c2b3d2f00  google::LogMessage::Fail()\n"
    "    @     0x7f1c2b3d2e44  google::LogMessage::SendToLog()\n"
    "    @     0x7f1c2b3d27d8  google::LogMessage::Flush()\n"
    "    @     0x7f1c2c0011aa  acme::ShardReader::Next()\n"
    "Fatal Python error: Aborted\n\n"
    "Current thread 0x00007f1d2b3d2f00 (most recent call first):\n"
    '  File "/work/acme/mixer.py", line 77 in __next__\n'
    '  File "/work/train.py", line 181 in main\n'
)
RUST = (
    "thread '<unnamed>' panicked at src/mixer/window.rs:88:14:\n"
    "window 17 has no offset table\n"
    "note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace\n"
)
GO = (
    "panic: runtime error: slice bounds out of range [:4096] with capacity 1024\n\n"
    "goroutine 41 [running]:\nacme.io/feeder/mixer.(*Window).Next(0xc000112000)\n\t/src/feeder/mixer/window.go:88 +0x1d5\nexit status 2\n"
)
JAVA = (
    'Exception in thread "feeder-3" io.acme.feeder.ShardGoneException: shard 0413 left the catalogue\n'
    "\tat io.acme.feeder.Catalogue.open(Catalogue.java:188)\n\tat io.acme.feeder.Feeder.run(Feeder.java:61)\n"
    "Caused by: java.util.NoSuchElementException: 0413\n\t... 2 more\n"
)


def scenes() -> dict[str, Scene]:
    """All scenes by name."""
    return {
        "own-exception": scene(
            traceback("acme.errors.ShardCorrupted: shard 0413 fails its checksum"), "ShardCorrupted: shard 0413"
        ),
        "own-exception-gloo": scene(
            traceback("ShardCorrupted: shard 0413 fails its checksum", f"[rank{VICTIM}]: "),
            "ShardCorrupted: shard 0413",
            lost="gloo",
            launcher=torchrun(),
        ),
        "bare-class": scene(traceback("acme.errors.MixerStopped"), "acme.errors.MixerStopped"),
        "bare-class-no-module": scene(traceback("MixerStopped"), "MixerStopped"),
        "no-traceback": scene(
            "acme.mixer.ShardCorrupted: shard 0413 fails its checksum\n", "ShardCorrupted: shard 0413"
        ),
        "critical-exit": scene(
            f"{iso(DIED)} CRITICAL mixer: offset table of window 17 is inconsistent, giving up\n",
            "offset table of window 17",
            launcher=torchrun(code=3),
        ),
        "error-exit": scene(
            f"{iso(DIED)} ERROR mixer: window 17 cannot be placed: 3 owners\n",
            "window 17 cannot be placed",
            lost="gloo",
            launcher=torchrun(code=2),
        ),
        "json-error": scene(
            json_line(DIED, "error", "window 17 rejected by placement, leaving"), "window 17 rejected by placement"
        ),
        "json-critical-severity": scene(
            json_line(DIED, "CRITICAL", "placement lost window 17", key="severity"),
            "placement lost window 17",
            lost="gloo",
        ),
        "native-check": scene(NATIVE, "Check failed: header.crc", launcher=torchrun(signal="SIGABRT")),
        "native-check-gloo": scene(NATIVE, "Check failed: header.crc", lost="gloo"),
        "assertion": scene(
            "python: /src/acme/mixer/window.cpp:88: void acme::Window::open(size_t): Assertion `slots_ > used_' failed.\nAborted (core dumped)\n",
            "Assertion `slots_ > used_' failed",
        ),
        "terminate": scene(
            "terminate called after throwing an instance of 'acme::WindowError'\n  what():  window 17: slot map is not monotone\n",
            "acme::WindowError",
        ),
        "rust": scene(RUST, "panicked at src/mixer/window.rs"),
        "go": scene(GO, "panic: runtime error: slice bounds"),
        "java": scene(JAVA, "ShardGoneException: shard 0413"),
        "exit-only": scene("placing window 17\n", "placing window 17", lost="gloo", launcher=torchrun(code=3)),
        "merged-json": merged(json_line(DIED, "critical", "placement lost window 17"), "placement lost window 17"),
        "merged-exception": merged(
            traceback("acme.errors.ShardCorrupted: shard 0413 fails its checksum", f"[rank{VICTIM}]: "),
            "ShardCorrupted: shard 0413",
        ),
        "merged-native": merged(
            "".join(f"[rank{VICTIM}]:{line}\n" for line in NATIVE.splitlines()), "Check failed: header.crc", lost="gloo"
        ),
        "hangs-after-its-error": Scene(
            {
                **others("watchdog"),
                f"logs/rank-{VICTIM}.log": steps(VICTIM)
                + f"{iso(DIED)} ERROR mixer: feeder thread stopped: window 17 has no owner\n"
                + watchdog(VICTIM),
            },
            VICTIM,
            ("feeder thread stopped",),
        ),
    }


BENIGN = (
    f"{iso(20)} ERROR tracker: could not send metrics, will retry\n",
    f"{iso(30)} WARNING data: sample 8812 is too long, truncated\n",
    f"{iso(40)} ERROR mixer: prefetch queue ran dry\n",
)


def symptom_only() -> dict[str, Scene]:
    """Runs that only time out, with errors in their logs that ended nothing."""
    caught = traceback("acme.errors.CacheMiss: shard 0007")
    noisy = steps(2, 10) + BENIGN[2] + "".join(steps(2, 41).splitlines(keepends=True)[11:])
    early = steps(3, 5) + caught + "".join(steps(3, 41).splitlines(keepends=True)[6:])
    everyone = {f"logs/rank-{n}.log": steps(n, 40) + watchdog(n) for n in range(RANKS)}
    last = {
        f"logs/rank-{n}.log": steps(n, 40)
        + f"{iso(DIED)} ERROR tracker: could not send metrics, will retry\n"
        + watchdog(n)
        for n in range(RANKS)
    }
    return {
        "plain": Scene(everyone, None),
        "errors-before": Scene(
            {**everyone, "logs/rank-2.log": noisy + watchdog(2), "logs/rank-3.log": early + watchdog(3)}, None
        ),
        "same-error-everywhere": Scene(last, None),
        "teardown": Scene(
            {
                **everyone,
                "logs/rank-1.log": everyone["logs/rank-1.log"] + traceback("acme.errors.FlushLost: 3 records"),
            },
            None,
        ),
        "missing-rank": Scene({**others("watchdog"), f"logs/rank-{VICTIM}.log": steps(VICTIM)}, None),
    }
