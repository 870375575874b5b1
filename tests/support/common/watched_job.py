"""A simulated job, and a watch over it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bot.live.probe_cycle import ProbeSources
from bot.live.watch import Watch, WatchEvent, WatchOutcome, WatchPlan
from connectors.host.process_table import Process
from connectors.host.processes import ProcessSelector, RankProcess, StackDump
from kb.model import Gap

START = 1_780_000_000.0
WANTED = ProcessSelector(pattern="train")


@dataclass
class Steered:
    """A clock that jumps; whenever somebody sleeps, the job lives on."""

    live: Callable[[float], None]
    time: float = START
    stop_at: float | None = None

    def now(self):
        """Seconds since the epoch."""
        return self.time

    def sleep(self, seconds):
        """Let the job live for so long, a second at a time."""
        end = self.time + seconds
        while self.time < end and not self.stopping():
            self.time = min(end, self.time + 1.0)
            self.live(self.time)

    def stopping(self):
        """Whether a person wants to stop."""
        return self.stop_at is not None and self.time >= self.stop_at


def frames(*functions):
    """A py-spy dump of one process, innermost function first."""
    listed = [{"name": name, "filename": f"/opt/{name}.py", "line": 7} for name in functions]
    thread = {
        "pid": 1,
        "thread_id": 1,
        "thread_name": "MainThread",
        "active": False,
        "owns_gil": False,
        "frames": listed,
    }
    return json.dumps([thread]).encode()


@dataclass
class Job:
    """A job of some ranks in a folder of logs: it writes one step per second until it is changed."""

    logs: Path
    name: str = "gpu-a07"
    world: int = 4
    hangs_at: float = float("inf")
    ends_at: float = float("inf")
    lines: dict[float, tuple[int, bytes]] = field(default_factory=dict)
    others: frozenset[int] = frozenset()
    ours: frozenset[int] = frozenset()
    stamped: bool = True
    spy: bool = True
    quiet: tuple[float, float] = (float("inf"), float("inf"))
    launcher_ends_at: float = float("-inf")

    def __post_init__(self):
        self.time = START - 60
        self.logs.mkdir(exist_ok=True)
        while self.time < START:
            self.live(self.time + 1)

    def live(self, now):
        """One second of its life."""
        self.time = now
        for rank in range(self.world):
            text = b""
            if now < min(self.hangs_at, self.ends_at) and not self.quiet[0] <= now < self.quiet[1]:
                stamp = time.strftime("%Y-%m-%d %H:%M:%S ", time.gmtime(now)) if self.stamped else ""
                number = int(now - START) + 100
                text = f"{stamp}INFO step {number} | loss: {8 / number:.4f} | lr: 2.0e-4\n".encode()
            text += next((line for at, (who, line) in self.lines.items() if who == rank and now - 1 < at <= now), b"")
            if text and self.logs.is_dir():
                path = self.logs / f"rank-{rank}.log"
                with path.open("ab") as handle:
                    handle.write(text)
                os.utime(path, (now, now))

    def ranks(self, _wanted):
        """As connectors.host.processes.Host."""
        if self.time >= self.ends_at:
            return (), (Gap("no_processes", "processes", "no such process is running on this host"),)
        mains = (Process(100 + rank, 1, "sleeping", rank=rank, world_size=self.world) for rank in range(self.world))
        launcher = Process(99, 1, "sleeping")
        return tuple(RankProcess(rank, main, launcher=launcher) for rank, main in enumerate(mains)), ()

    def alive(self, process):
        """Likewise."""
        return self.time < (self.ends_at if process.pid != 99 else self.launcher_ends_at)

    def ended(self, _process):
        """Likewise unknown."""
        return ""

    def stacks(self, ranks, _stopping, **_how):
        """All wait in a collective once it hangs, but for rank 2, which waits for a lock."""
        if not self.spy:
            return (), (Gap("py_spy_missing", "stacks", "py-spy is not installed here: `pip install py-spy`"),)
        if self.time < self.hangs_at:
            return tuple(
                StackDump(rank.rank, rank.main.pid, False, frames(f"work{self.time:.0f}", "main")) for rank in ranks
            ), ()
        told = {2: frames("acquire", "take_the_lock", "<module>")}
        waits = frames("all_reduce", "reduce_gradients", "<module>")
        return tuple(StackDump(rank.rank, rank.main.pid, False, told.get(rank.rank, waits)) for rank in ranks), ()

    def library(self, _pid, _name):
        """Likewise."""
        return


@dataclass
class Watched:
    """A watch that has ended."""

    outcome: WatchOutcome
    news: list[WatchEvent]
    clock: Steered

    def first(self, event):
        """The first news of a kind."""
        return next(news_item for news_item in self.news if news_item.event == event)

    def events(self):
        """The kinds of news but for the votes, in order."""
        return [news_item.event for news_item in self.news if news_item.event != "votes"]


def watched(known, job, save, *, limit=900.0, every=20.0, stop_at=None, also=lambda _now: None, **sources):
    """Watch a job to the end."""
    news: list[WatchEvent] = []

    def live(now):
        job.live(now)
        also(now)

    clock = Steered(live, stop_at=stop_at)
    looked_at = {"host": job, "logs": job.logs, "wanted": WANTED, **sources}
    outcome = Watch(known, WatchPlan(save, every, limit), clock, ProbeSources(**looked_at), news.append).run()
    return Watched(outcome, news, clock)


def news(event="votes", text="step 3: silence no", **fields):
    """Something to show."""
    return WatchEvent(event, START, text, fields)
