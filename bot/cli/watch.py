"""`signalbox watch`: checks the options, and shows the events of the watch."""

from __future__ import annotations

import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TextIO

import msgspec

from bot.cli.console import complain, masked, printable_json, progress_line
from bot.cli.incident_store import IncidentMemory
from bot.cli.missing_paths import is_missing, missing
from bot.diagnosis.command_paths import runnable
from bot.live.bundle_writer import fresh_folder, name_of
from bot.live.metrics_poller import MetricsPoller
from bot.live.probe_cycle import ProbeSources
from bot.live.watch import Watch, WatchEvent, WatchOutcome, WatchPlan
from bot.render.report_json import dumps, iso
from bot.render.terminal import show
from bot.render.text_format import shown
from bot.render.text_page import Reading
from bot.rulebase.loader import Knowledge
from bot.runtime.redaction.structure import redacted
from connectors.host.ebpf import PROGRAMS, Probes
from connectors.host.flight_recorder import RecorderSource
from connectors.host.kernel_log import KernelLog
from connectors.host.nccl_ras import RasSource
from connectors.host.processes import Host, ProcessSelector
from kb.errors import UnreadableInput
from kb.hangs.votes import unknown_params
from kb.rulebase.checks import slow_regex, wrong_regex

_SPAN = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)\s*(s|m|h|d)?")
_PARAM = re.compile(r"(?P<rule>[a-z][a-z0-9-]{0,99})\.(?P<name>[a-z][a-z0-9_]{0,99})=(?P<number>\d{1,9}(?:\.\d{1,6})?)")
_SECONDS: Mapping[str, float] = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_VARIABLE = "SIGNALBOX_PROMETHEUS_TOKEN"
_LOUD = ("fault", "called")
_LOOK = 0.1  # seconds within which a wait notices a signal
UNTOLD = 16  # as of `diagnose --exit-decision`


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """The options of `signalbox watch`, unparsed."""

    job: str | None = None
    logs: Path | None = None
    pids: str = ""
    pattern: str = ""
    py_spy: str | None = None
    native: bool = True
    ras: str | None = None
    kernel: bool = True
    ebpf: bool = False
    dumps: str | None = None
    ask: bool = False
    prometheus: str | None = None
    series: Sequence[str] = ()
    every: float = 20.0
    limit: float | None = None
    save: Path | None = None
    params: Sequence[str] = ()


def params(told: Sequence[str]) -> dict[str, dict[str, float]]:
    """Parse `hang-called.silence_most=900` and the like, by rule and parameter.

    Raises:
        UnreadableInput: one has another form, or there is no such parameter.
    """
    found: dict[str, dict[str, float]] = {}
    for text in told:
        parts = _PARAM.fullmatch(text.strip())
        if parts is None:
            raise UnreadableInput(
                f"--param {text[:200]}: expected RULE.NAME=NUMBER, such as hang-called.silence_most=900"
            )
        found.setdefault(parts["rule"], {})[parts["name"]] = float(parts["number"])
    for wrong in unknown_params(found):
        raise UnreadableInput(f"--param: {wrong}")
    return found


def seconds(text: str) -> float:
    """`90`, `90s`, `10m`, `2h` in seconds.

    Raises:
        UnreadableInput: it is none of those.
    """
    found = _SPAN.fullmatch(text.strip())
    if found is None:
        raise UnreadableInput(f"{text!r} is not a duration; expected a form such as 90s, 10m or 2h")
    return float(found[1]) * _SECONDS[found[2] or "s"]


def watch(knowledge: Knowledge, asked: WatchOptions, *, as_json: bool) -> int:
    """Watch a job and show its events. Returns the exit status.

    Raises:
        UnreadableInput: the options are not valid.
    """
    wanted, numbers = _wanted(asked), params(asked.params)
    if asked.logs is None and not wanted and asked.ras is None and asked.dumps is None and asked.prometheus is None:
        raise UnreadableInput(
            "nothing to watch; give --logs DIR, --pids, --pids-of, --ras, --flight-recorder or --prometheus"
        )
    if asked.logs is not None and is_missing(str(asked.logs)):
        raise UnreadableInput(missing(str(asked.logs)))
    clock = WallClock()
    name = re.sub(r"[^\w.-]+", "-", asked.job)[:60] if asked.job else "job"
    save = fresh_folder(asked.save or Path(f"signalbox-watch-{name}-{name_of(clock.now())}"))
    if asked.logs is not None and save.resolve().is_relative_to(asked.logs.resolve()):
        raise UnreadableInput(f"{save}: it is inside the watched logs; choose another folder with --save")
    complain(f"what is found will be kept in {save}/ (--save names another folder)")
    screen = Screen(sys.stdout, as_json=as_json)
    with ExitStack() as stack:
        stack.enter_context(clock.interrupts())
        sources = ProbeSources(
            host=Host(py_spy=asked.py_spy, native=asked.native),
            logs=asked.logs,
            wanted=wanted,
            kernel=KernelLog(clock.now()) if asked.kernel else None,
            ras=RasSource(asked.ras) if asked.ras else None,
            ebpf=_probes(stack) if asked.ebpf else None,
            recorder=RecorderSource(clock.now(), {asked.dumps} if asked.dumps else set()),
            ask=asked.ask,
            metrics=_metrics(asked),
            job=asked.job,
            params=numbers,
        )
        memory = stack.enter_context(IncidentMemory("default"))
        plan = WatchPlan(save, asked.every, asked.limit)
        compare, recall = memory.compare(None, None, always=False), memory.recall(knowledge)
        outcome = Watch(knowledge, plan, clock, sources, screen.tell, compare=compare, recall=recall).run()
    screen.end(outcome, clock.now())
    return status(outcome, clock.caught)


def status(outcome: WatchOutcome, caught: int | None = None) -> int:
    """The exit status: 1 if a hang or fatal fault was called, 16 if it is unclear how the job ended or will end, else 0.

    128 + n after signal n.
    """
    if outcome.interrupted:
        return 128 + (caught or signal.SIGINT)
    return {"hang": 1, "fatal": 1, "ended": UNTOLD}.get(outcome.called, UNTOLD if outcome.pending else 0)


def _wanted(asked: WatchOptions) -> ProcessSelector:
    words = asked.pids.replace(",", " ").split()
    if not all(word.isdecimal() and 0 < int(word) < 1 << 31 for word in words):
        raise UnreadableInput(f"--pids {asked.pids}: expected process ids, such as 12,13")
    if asked.pattern and (message := wrong_regex(asked.pattern) or slow_regex(asked.pattern)):
        raise UnreadableInput(f"--pids-of {asked.pattern[:200]}: {message}")
    return ProcessSelector(tuple(int(word) for word in words), asked.pattern, asked.logs, asked.job)


def _metrics(asked: WatchOptions) -> MetricsPoller | None:
    """The source of metrics: only those that the spin probe needs, queried one after another."""
    if asked.prometheus is None:
        if asked.series:
            raise UnreadableInput("--series needs --prometheus URL")
        return None
    from connectors.base.http import Endpoint, HttpClient, Login
    from connectors.base.secret import Secret
    from connectors.metrics.prometheus import SPIN_GPU, SPIN_NODE, Prometheus

    series: dict[str, tuple[str, ...]] = {}
    for series_item in asked.series:
        label, equals, value = series_item.partition("=")
        if not (re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,99}", label) and equals and value):
            raise UnreadableInput(f"--series {series_item}: expected LABEL=VALUE, such as pod=trainer-0")
        series[label] = (*series.get(label, ()), value)
    login = Login(token=Secret(env=_VARIABLE)) if os.environ.get(_VARIABLE) else Login()
    try:
        endpoint = Endpoint(asked.prometheus, login)
    except ValueError as error:
        raise UnreadableInput(f"--prometheus: {error}") from None
    return MetricsPoller(
        Prometheus(HttpClient(endpoint), series=series, gpu=SPIN_GPU, node=SPIN_NODE, pod=(), side_by_side=1)
    )


def _probes(stack: ExitStack) -> Probes:
    spool = stack.enter_context(tempfile.TemporaryDirectory(prefix="signalbox-ebpf-"))
    return Probes(PROGRAMS, Path(spool))


@dataclass(slots=True)
class WallClock:
    """The real clock. An interrupt or SIGTERM ends a sleep; a second one ends the command at once."""

    caught: int | None = None
    _stopped: bool = False

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait that many seconds, or until a signal arrives.

        A handler runs between any two instructions of this thread, so it must not take a lock that waiting holds, as that of
        an Event is: it sets a flag, and the wait looks at it.
        """
        end = time.monotonic() + seconds
        while not self._stopped and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _LOOK))

    def stopping(self) -> bool:
        """Whether a signal has arrived."""
        return self._stopped

    @contextmanager
    def interrupts(self) -> Iterator[None]:
        """While the context is open, treat interrupts as requests to stop."""
        known = {number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in known.items():
                signal.signal(number, handler)

    def _stop(self, number: int, _frame: FrameType | None) -> None:
        self.caught = number
        self._stopped = True
        signal.signal(number, signal.SIG_DFL)


class Screen:
    """Shows events: one line that is updated on a terminal, a line per change elsewhere, or lines of JSON."""

    def __init__(self, out: TextIO, *, as_json: bool) -> None:
        self._out, self._as_json = out, as_json
        self._line = None if as_json else progress_line(out)
        self._told_fault = False

    def tell(self, news: WatchEvent) -> None:
        """Show one event."""
        news = redacted(news)
        if self._as_json:
            self._json({"event": news.event, "time": iso(news.time), "text": news.text, **news.fields})
        elif news.event == "votes" and self._line is not None:
            self._line.draw(f"{_clock(news)} {shown(news.text)}")
        elif news.event == "called" and news.fields.get("called") == "fatal" and self._told_fault:
            pass  # the fault is announced already, and the answer follows
        elif news.event != "votes" or news.fields.get("changed"):
            self._told_fault = self._told_fault or news.event == "fault"
            if self._line is not None:
                self._line.erase()
            mark = f"{news.event.upper()}: " if news.event in _LOUD else ""
            self._out.write(f"{_clock(news)} {mark}{shown(news.text)}\n")
            self._details(news)
        self._out.flush()

    def _details(self, news: WatchEvent) -> None:
        """Show the details of probes that vote yes."""
        votes = news.fields.get("votes")
        for vote in votes if isinstance(votes, list) else ():
            if vote["vote"] == "yes":
                self._out.write(f"         {vote['probe']}: {shown(vote['detail'])}\n")

    def end(self, outcome: WatchOutcome, now: float) -> None:
        """Show how the watch ended, with the answer if there is one."""
        outcome = replace(outcome, why=masked(outcome.why))
        folder = masked(str(outcome.folder)) if outcome.folder else None
        if self._as_json:
            if outcome.answer is not None:
                report = msgspec.Raw(dumps(outcome.answer.report, outcome.answer.timing))
                self._json({"event": "report", "time": iso(now), "report": report})
            self._json(
                {"event": "end", "time": iso(now), "called": outcome.called, "text": outcome.why, "folder": folder}
            )
        else:
            if self._line is not None:
                self._line.erase()
            self._out.write("\n" if outcome.called else f"{shown(outcome.why)}.\n")
            if outcome.answer is not None:
                self._out.flush()
                show(runnable(outcome.answer), Reading(heat=outcome.answer.heat()))
            if folder:
                self._out.write(
                    f"\nThe evidence is in {shown(folder)}. It is not stored as an incident; `signalbox diagnose --bundle {shown(folder)}` stores it.\n"
                )
        self._out.flush()

    def _json(self, body: Mapping[str, object]) -> None:
        line = printable_json(msgspec.json.encode(_plain(body)), self._out)
        self._out.write(line.decode("utf-8", "replace") + "\n")
        self._out.flush()


def _clock(news: WatchEvent) -> str:
    return (iso(news.time) or "")[11:19]


def _plain(value: object) -> object:
    """The value with text that UTF-8 can encode: file names can contain any bytes."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
