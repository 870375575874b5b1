"""How fast logs are read: the bare engine, a whole diagnosis, and other searchers over the same bytes and patterns.

Everything in one run and one table, so that no figure is set against one of another day. Start-up (an empty run of the
same command) is taken apart. The data are made by scan_data.py and kept in `--data`; they are read once before anything
is timed, so that all runs find them in the page cache, as far as memory goes.

    python bench/scan.py --size 600M
    python bench/scan.py --size 6G --json > scan.json
    python bench/scan.py --size 2G --quick --figures      # `make bench`: a few minutes; writes the README's figures
    python bench/scan.py --size 6G 16.92G --quick --deep --delete --figures      # `make bench-full`, after it
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))
import scan_data  # next to this script

from kb.parsers.logs.progress.formats import FORMATS
from kb.parsers.logs.registry import ALL_READERS
from kb.parsers.logs.stages import STAGES
from kb.rulebase.patterns import portable
from kb.scanning.matcher import HyperscanMatcher, ScanPattern

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kb.scanning.plan import ScanPlan


ROOT = Path(__file__).parent.parent
BLOCK = 4 * 1024 * 1024
PROCESSES = 2
SAMPLE = 20_000_000
SLOW_LIMIT = 30.0  # seconds after which slow searchers stop and report their progress
SYNTHETIC_RULES = 500
STARTS = 7
WRITTEN, SHORT, FROZEN = "rules as written", "our scan forms", "frozen patterns"
FROZEN_PATTERNS = Path(__file__).with_name("frozen_patterns.txt")  # the rules as written on 2026-11-23, one a line
README = ROOT / "README.md"
FIGURES = r"(?s)(<!-- {name}: [^>]* -->\n).*?(<!-- end of {name} -->)"
END_TO_END = "signalbox diagnose"
DEEP = END_TO_END + " --deep"
SMALL = 1_000_000_000  # bytes; below, one run is mostly noise
STORMS = (0.10, 0.70)  # shares of the lines that rules hit


@dataclass
class Row:
    """One measurement. `seconds` is the whole run; `start_up` what an empty run of the same takes; sizes in bytes.

    `cpu`: seconds of processor time of all processes of the run, start-up included.
    """

    what: str
    size: int = 0
    seconds: float = 0.0
    start_up: float = 0.0
    note: str = ""
    peak_rss_mb: dict[str, float] = field(default_factory=dict)
    cpu: float = 0.0

    @property
    def rate(self) -> float:
        """MB/s without start-up; 0 where nothing was measured."""
        spent = self.seconds - self.start_up
        return self.size / spent / 1e6 if self.size and spent > 0 else 0.0

    @property
    def cpu_rate(self) -> float:
        """MB for each second of processor time; 0 where nothing was measured."""
        return self.size / self.cpu / 1e6 if self.size and self.cpu > 0 else 0.0


# Patterns and rules


def scan_patterns(rules: Path) -> tuple[ScanPattern, ...]:
    """Return the patterns of the product's scan, from a folder of rules; print the rules refused."""
    from bot.rulebase.loader import knowledge  # noqa: PLC0415

    known = knowledge(rules)
    if known.faults:
        say(f"{rules}: {len(known.faults)} faults in rules, the first: {known.faults[0]}")
    return known.plan.patterns


def add_rules(folder: Path, count: int) -> None:
    """Add so many synthetic rules to a copy of the rulebook; none hits the data."""
    parts = ("lane", "bank", "queue", "mailbox", "ring", "arbiter", "doorbell", "scheduler")
    states = ("parity lost", "credit exhausted", "handshake refused", "epoch mismatch", "fence expired")
    from bot.rulebase.loader import knowledge  # noqa: PLC0415

    book = knowledge(ROOT / "rules").rulebook
    fault, action = next(iter(book.faults)), next(iter(book.actions))
    for number in range(count):
        name = f"made-up-{number:03d}"
        here = folder / "made-up" / name
        part, state = parts[number % len(parts)], states[number % len(states)]
        word = f"{part}{number:03d}"
        (here / "match").mkdir(parents=True)
        (here / "silent").mkdir()
        (here / "rule.yaml").write_text(
            f"format: 1\nid: {name}\ntitle: Made-up device fault {number}\nfault: {fault}\nrole: context\n"
            f'status: experimental\nseverity: low\nsummary: "Device {{device}}: {word}."\ncause: >-\n  None; it is made up.\n'
            f"impact: >-\n  None; it is made up.\nmatch:\n  line:\n"
            f"    regex: 'device (?P<device>\\S+): {word} {state} (?:at|after) \\d+ (?:cycles|us)'\n"
            f"remediation:\n  - action: {action}\n    text: Look at {{device}}.\n",
            "utf-8",
        )
        for side, unit in (("1", "cycles"), ("2", "us")):
            text = f"device d{side}: {word} {state} at {number + 7} {unit}\n"
            (here / "match" / f"{side}.log").write_text(text, "utf-8")
        (here / "silent" / "1.log").write_text(f"device d1: {word} healthy after {number} cycles\n", "utf-8")


# Data


def logs_of(folder: Path) -> list[Path]:
    """Return the log files of a data folder, largest first."""
    return sorted(folder.glob("*.log"), key=lambda path: (-path.stat().st_size, path.name))


def size_of(folder: Path) -> int:
    """Return the bytes of its logs."""
    return sum(path.stat().st_size for path in logs_of(folder))


def prepare(data: Path, size: int, storm: float) -> Path | None:
    """Return the folder with the logs of that recipe, created if missing; None, with a message, if the disk is full."""
    folder = data / f"{f'storm{storm * 100:.0f}' if storm else 'plain'}-{size // 10**6}M"
    recipe = scan_data.Recipe(size, storm=storm)
    if scan_data.is_made(recipe, folder):
        return folder
    if not scan_data.room_for(recipe, folder):
        say(f"SKIPPED: no room for {size / 1e9:.1f} GB at {folder}")
        return None
    say(f"making {folder} …")
    shutil.rmtree(folder, ignore_errors=True)
    scan_data.make(recipe, folder)
    return folder


def blocks(path: Path) -> Iterator[bytes]:
    """Yield a file in blocks that end with a line."""
    rest = b""
    with path.open("rb") as file:
        while chunk := file.read(BLOCK):
            cut = chunk.rfind(b"\n") + 1
            yield rest + chunk[:cut]
            rest = chunk[cut:]
    if rest:
        yield rest


def sample(folder: Path) -> bytes:
    """About SAMPLE bytes: the head and the end of each log, whole lines."""
    paths = logs_of(folder)
    half = SAMPLE // len(paths) // 2
    parts: list[bytes] = []
    for path in paths:
        data = path.read_bytes() if path.stat().st_size <= 2 * half else _ends(path, half)
        parts.append(data)
    return b"".join(parts)


def _ends(path: Path, half: int) -> bytes:
    with path.open("rb") as file:
        head = file.read(half)
        file.seek(-half, os.SEEK_END)
        tail = file.read()
    return head[: head.rfind(b"\n") + 1] + tail[tail.find(b"\n") + 1 :]


# The bare engine


def raw_engine(what: str, patterns: Sequence[ScanPattern], folder: Path) -> Row:
    """Hyperscan alone over all blocks, in as many processes as the product uses; compiling is its start-up."""
    began = time.perf_counter()
    compiled = HyperscanMatcher(patterns).dump()
    start_up = time.perf_counter() - began
    paths = logs_of(folder)
    context = multiprocessing.get_context("spawn")
    gate, answers = context.Barrier(PROCESSES), context.Queue()
    before = _cpu_of_children()
    shares = [paths[number::PROCESSES] for number in range(PROCESSES)]
    workers = [context.Process(target=_raw_worker, args=(compiled, share, gate, answers)) for share in shares]
    for worker in workers:
        worker.start()
    results = [answers.get(timeout=3600) for _ in workers]
    for worker in workers:
        worker.join()
    spent = max(end for _, end, _ in results) - min(begin for begin, _, _ in results)
    hits = sum(count for _, _, count in results)
    note = f"{len(patterns)} patterns, {PROCESSES} processes, {hits} hits; compiled in {start_up:.2f} s"
    return Row(what, size_of(folder), spent, 0.0, note, cpu=_cpu_of_children() - before)


def _cpu_of_children() -> float:
    """Return the processor time, in seconds, of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _raw_worker(compiled: bytes, paths: list[Path], gate: Any, answers: Any) -> None:
    matcher = HyperscanMatcher((), compiled)
    gate.wait()
    began = time.monotonic()
    hits = sum(len(matcher.hits(block)) for path in paths for block in blocks(path))
    answers.put((began, time.monotonic(), hits))


def plain_read(folder: Path) -> Row:
    """Reading the bytes and nothing else; also brings them into the page cache."""
    began = time.perf_counter()
    for path in logs_of(folder):
        with path.open("rb", buffering=0) as file:
            while file.read(BLOCK):
                pass
    return Row("read only (first time)", size_of(folder), time.perf_counter() - began, 0.0, "1 process")


# Other searchers


def as_written(plan: ScanPlan) -> list[ScanPattern]:
    """Everything that the pass looks for, as rules and readers have it, not in the shorter form that our engine gets."""
    wanted = [(line.regex, line.ignore_case) for line in plan.lines]
    wanted += [(reader.trigger, reader.ignore_case) for reader in ALL_READERS]
    wanted += [(form.detector, False) for form in FORMATS] + [(regex, False) for _, regex in STAGES]
    return [ScanPattern(portable(regex), ignore_case) for regex, ignore_case in dict.fromkeys(wanted)]


def ripgrep(patterns: Sequence[str], folder: Path, empty: Path, threads: int, name: str) -> Row:
    """Ripgrep counting the lines that any pattern matches."""
    what = f"ripgrep -j{threads}, {name}"
    program = shutil.which("rg")
    if program is None:
        return Row(what, note="rg is missing")
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.writelines(f"{pattern}\n" for pattern in patterns)
        file.flush()
        flags = ["--no-config", "--no-unicode", "-uu", "-c", "-a", "--regex-size-limit", "1G", "--dfa-size-limit", "1G"]
        command = [program, f"-j{threads}", *flags, "-f", file.name]
        start_up = min(_timed([*command, str(empty)])[0] for _ in range(3))
        before = _cpu_of_children()
        seconds, found = _timed([*command, str(folder)])
        cpu = _cpu_of_children() - before
    if found.returncode > 1:
        return Row(what, note=f"rg failed: {found.stderr[-200:]!r}")
    lines = sum(int(line.rpartition(b":")[2]) for line in found.stdout.splitlines())
    return Row(what, size_of(folder), seconds, start_up, f"{lines} lines hit; {len(patterns)} patterns", cpu=cpu)


def _folded(pattern: ScanPattern) -> str:
    return f"(?i:{pattern.expression})" if pattern.ignore_case else f"(?:{pattern.expression})"


def _timed(command: list[str]) -> tuple[float, subprocess.CompletedProcess[bytes]]:
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, check=False, timeout=3600)
    return time.perf_counter() - began, done


def slow(what: str, text: bytes, build: Callable[[], Callable[[bytes], int]]) -> Row:
    """Return a searcher too slow for all the data: over the sample, in pieces, until it ends or its time is up."""
    began = time.perf_counter()
    try:
        count = build()
    except ImportError as error:
        return Row(what, note=f"missing: {error}")
    start_up = time.perf_counter() - began
    began, done, hits, at = time.perf_counter(), 0, 0, 0
    while at < len(text) and time.perf_counter() - began < SLOW_LIMIT:
        stop = text.find(b"\n", at + 250_000) + 1 or len(text)
        hits += count(text[at:stop])
        done, at = stop, stop
    note = f"sample of {done / 1e6:.0f} MB, 1 process, {hits} hits; compiled in {start_up:.2f} s"
    return Row(what, done, time.perf_counter() - began, 0.0, note)


def re2_counter(patterns: Sequence[ScanPattern]) -> Callable[[bytes], int]:
    """google-re2's Set, line by line."""
    import re2  # noqa: PLC0415 - optional

    options = re2.Options()
    options.max_mem = 1 << 30  # out of memory a Set finds nothing
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors = False
    searched = re2.Set.SearchSet(options)
    for pattern in patterns:
        searched.Add(_folded(pattern))
    searched.Compile()
    return lambda block: sum(len(searched.Match(line) or ()) for line in block.split(b"\n"))


def re_counter(patterns: Sequence[ScanPattern]) -> Callable[[bytes], int]:
    """Python's `re`, one pattern after the other over each piece, which is faster than line by line."""
    found = [re.compile(_folded(pattern).encode()).finditer for pattern in patterns]
    return lambda block: sum(1 for find in found for _ in find(block))


def best(run: Callable[[], Row]) -> Row:
    """Return the fastest of three runs for less than SMALL bytes, else the single one."""
    first = run()
    again = 2 if first.rate and first.size < SMALL else 0
    return min([first, *(run() for _ in range(again))], key=lambda row: row.seconds or float("inf"))


# Whole diagnoses


def diagnose(
    what: str,
    folder: Path,
    *,
    rules: Path | None = None,
    start_up: float = 0.0,
    cache: Path | None = None,
    deep: bool = False,
) -> Row:
    """Return the command that a person would run, with the peak memory of each of its processes."""
    command = [
        str(Path(sys.executable).with_name("signalbox")),
        "diagnose",
        "--logs",
        str(folder),
        "--json",
        "--no-store",
    ]
    command += ["--rules", str(rules)] if rules else []
    command += ["--deep"] if deep else []
    env = dict(os.environ) | ({"SIGNALBOX_CACHE": str(cache)} if cache else {})
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its modules compiled
    began, before = time.perf_counter(), _cpu_of_children()
    try:
        running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, cwd=ROOT)
    except OSError as error:
        return Row(what, note=f"cannot run: {error}")
    peaks: dict[int, tuple[str, float]] = {}
    watcher = threading.Thread(target=_watch_memory, args=(running.pid, peaks), daemon=True)
    watcher.start()
    out, errors = running.communicate(timeout=3600)
    seconds = time.perf_counter() - began
    watcher.join()
    if running.returncode:
        return Row(what, note=f"exit {running.returncode}: {errors.decode(errors='replace')[-300:].strip()!r}")
    memory = {f"{name} {pid}": round(peak, 1) for pid, (name, peak) in peaks.items() if peak}
    return Row(what, size_of(folder), seconds, start_up, _answer(out), memory, _cpu_of_children() - before)


def _answer(out: bytes) -> str:
    try:
        report = json.loads(out)
        faults = [diagnosis["fault"] for diagnosis in report["diagnoses"]] or ["no diagnosis"]
        return f"{report['verdict']}: {faults[0]}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return "the answer is not a report"


def _watch_memory(root: int, peaks: dict[int, tuple[str, float]]) -> None:
    """Note VmHWM, in MB, of a process and all its descendants until it is gone. By number: the root is "main"."""
    while tree := _tree(root):
        for pid in tree:
            with contextlib.suppress(OSError, ValueError, IndexError):
                status = Path(f"/proc/{pid}/status").read_text("utf-8")
                peak = int(status.partition("VmHWM:")[2].split()[0]) / 1024
                peaks[pid] = ("main" if pid == root else "child", peak)
        time.sleep(0.02)


def _tree(root: int) -> list[int]:
    """Return the living processes at and under `root`; empty once it has ended."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError, ValueError, IndexError):
                state, parent = (entry / "stat").read_text("utf-8").rpartition(")")[2].split()[:2]
                if state != "Z":
                    parents[int(entry.name)] = int(parent)
    if root not in parents:
        return []
    tree = [root]
    for pid in tree:
        tree.extend(child for child, parent in parents.items() if parent == pid)
    return tree


def starts(empty: Path, cache: Path, rules: Path | None = None) -> tuple[Row, Row]:
    """Diagnoses of next to nothing: the first with an empty cache, and the median of STARTS more."""
    runs = [diagnose("start-up", empty, rules=rules, cache=cache) for _ in range(STARTS + 1)]
    cold, *warm = runs
    spread = sorted(run.seconds for run in warm)
    if not all(spread):
        return cold, warm[0]
    note = f"{spread[0]:.3f} to {spread[-1]:.3f} s"
    name = f"start-up, median of {STARTS}" + (f", {SYNTHETIC_RULES} more rules" if rules else "")
    cold_name = "start-up, nothing cached" + (f", {SYNTHETIC_RULES} more rules" if rules else "")
    return Row(cold_name, 0, cold.seconds, 0.0, "diagnosis of one line", cpu=cold.cpu), Row(
        name, 0, statistics.median(spread), 0.0, note, cpu=statistics.median(run.cpu for run in warm)
    )


# The run


def measure(args: argparse.Namespace, work: Path, size: int) -> list[Row]:
    """Return all measurements of a size, in order; a failed one is a row with the reason."""
    plain = prepare(args.data, size, 0.0)
    if plain is None:
        return [Row("everything", note="no room on the disk for the data")]
    empty, cache = work / "empty", work / "cache"
    os.environ["SIGNALBOX_CACHE"] = str(work / "own-cache")
    empty.mkdir(parents=True)
    (empty / "rank-0.log").write_bytes(b"2026-11-03 04:10:00,000 [INFO] starting\n")
    patterns = scan_patterns(ROOT / "rules")
    rows = [plain_read(plain)]
    rows.append(best(lambda: raw_engine("raw engine", patterns, plain)))
    cold, warm = starts(empty, cache)
    start_up = warm.seconds
    rows.extend((cold, warm))
    rows.append(best(lambda: diagnose(END_TO_END, plain, start_up=start_up, cache=cache)))
    # Before the storms are made: these may push the logs out of the page cache.
    if args.quick:
        frozen = FROZEN_PATTERNS.read_text("utf-8").splitlines()
        rows.append(best(lambda: ripgrep(frozen, plain, empty, 2, FROZEN)))
    elif not args.own_only:
        rows.extend(others(patterns, plain, empty))
    if args.deep:
        rows.append(diagnose(DEEP, plain, start_up=start_up, cache=cache, deep=True))
    else:
        rows.extend(more_rules(work, plain, empty))
    # What a byte costs in a storm, or with more rules, does not depend on the size.
    for share in () if args.deep else STORMS:
        storm = prepare(args.data, size, share)
        if storm is None:
            continue
        name = storm_name(share)
        plain_read(storm)
        rows.append(best(lambda n=name, d=storm: raw_engine(f"raw engine, {n}", patterns, d)))
        rows.append(best(lambda n=name, d=storm: diagnose(f"{END_TO_END}, {n}", d, start_up=start_up, cache=cache)))
        if args.delete:
            shutil.rmtree(storm)
    if args.delete:
        shutil.rmtree(plain)
    return rows


def storm_name(share: float) -> str:
    """Return what rows and ratios call the logs with such a share of lines that rules hit."""
    return f"storm {share:.0%}"


def more_rules(work: Path, plain: Path, empty: Path) -> list[Row]:
    """Return the same with SYNTHETIC_RULES more rules."""
    rules, cache = work / "rules", work / "cache-more"
    shutil.copytree(ROOT / "rules", rules)
    add_rules(rules, SYNTHETIC_RULES)
    added = len(scan_patterns(rules)) - len(scan_patterns(ROOT / "rules"))
    if added != SYNTHETIC_RULES:
        say(f"only {added} of {SYNTHETIC_RULES} made-up rules were taken")
    cold, warm = starts(empty, cache, rules)
    many, more = scan_patterns(rules), f"{SYNTHETIC_RULES} more"
    return [
        best(lambda: raw_engine(f"raw engine, {more} rules", many, plain)),
        cold,
        warm,
        best(lambda: diagnose(f"{END_TO_END}, {more}", plain, rules=rules, start_up=warm.seconds, cache=cache)),
    ]


def others(patterns: Sequence[ScanPattern], plain: Path, empty: Path) -> list[Row]:
    """The searchers that we are set against: with our engine's forms, and ripgrep also with the rules as written."""
    from bot.rulebase.loader import knowledge  # noqa: PLC0415

    text, written = sample(plain), [_folded(item) for item in as_written(knowledge(ROOT / "rules").plan)]
    short = [_folded(item) for item in patterns]
    return [
        *(best(lambda t=t: ripgrep(short, plain, empty, t, SHORT)) for t in (1, 2)),
        *(best(lambda t=t: ripgrep(written, plain, empty, t, WRITTEN)) for t in (1, 2)),
        slow("google-re2 Set", text, lambda: re2_counter(patterns)),
        slow("Python re", text, lambda: re_counter(patterns)),
    ]


def ratios(rows: list[Row]) -> dict[str, float]:
    """Return the target figures from the rates, without unmeasured ones."""
    rate = {row.what: row.rate for row in rows if row.rate}
    more = f", {SYNTHETIC_RULES} more"
    pairs = {
        "diagnosis : raw engine": (END_TO_END, "raw engine"),
        **{
            f"diagnosis : ripgrep -j{threads}, {name}": (END_TO_END, f"ripgrep -j{threads}, {name}")
            for name in (WRITTEN, SHORT, FROZEN)
            for threads in (1, 2)
        },
        "diagnosis : google-re2 Set": (END_TO_END, "google-re2 Set"),
        "diagnosis : Python re": (END_TO_END, "Python re"),
        f"diagnosis with {SYNTHETIC_RULES} more rules : without": (END_TO_END + more, END_TO_END),
        **{
            f"time a byte, {storm_name(share)} : plain": (END_TO_END, f"{END_TO_END}, {storm_name(share)}")
            for share in STORMS
        },
        "time a byte, --deep : plain": (END_TO_END, DEEP),
    }
    cpu = {row.what: row.cpu_rate for row in rows if row.cpu_rate}
    found = {name: rate[a] / rate[b] for name, (a, b) in pairs.items() if a in rate and b in rate}
    return found | {
        f"{name}, processor time": cpu[a] / cpu[b] for name, (a, b) in pairs.items() if a in cpu and b in cpu
    }


def figures(rows: list[Row]) -> str:
    """Return the figures of the README as a paragraph."""
    row = {row.what: row for row in rows}
    plain, timed = row[END_TO_END], {name: item.cpu for name, item in row.items()}
    rg = timed.get(f"ripgrep -j2, {FROZEN}")
    beside = f" and {rg / plain.cpu:.1f} times ripgrep's with the same patterns" if rg else ""
    parts = [
        f"Speed, on {plain.size / 1e9:.1f} GB of logs from 64 ranks in the page cache (`make bench`), in processor time:",
        f"{plain.cpu_rate:.0f} MB a second from the command to the answer. That is {timed['raw engine'] / plain.cpu:.2f} times the",
        f"speed of the bare engine with all patterns{beside}. A process takes at most {max(plain.peak_rss_mb.values()):.0f} MB of memory.",
        f"{SYNTHETIC_RULES} more rules take {timed[f'{END_TO_END}, {SYNTHETIC_RULES} more'] / plain.cpu:.2f} times as long, and rules that",
        f"match {' and '.join(f'{share:.0%}' for share in STORMS)} of the lines {' and '.join(_storm_times(timed, plain.cpu))} times. A log of",
        f"one line is diagnosed in {timed[f'start-up, median of {STARTS}']:.1f} s.",
    ]
    return textwrap.fill(" ".join(parts), 140, break_long_words=False, break_on_hyphens=False)


def _storm_times(timed: dict[str, float], plain: float) -> Iterator[str]:
    for share in STORMS:
        yield f"{timed[f'{END_TO_END}, {storm_name(share)}'] / plain:.1f}"


def large_figures(measured: list[list[Row]]) -> str:
    """Return the figures of the README on larger sizes as a paragraph."""
    rows = [{row.what: row for row in each} for each in measured]
    plain, deep = [row[END_TO_END] for row in rows], [row[DEEP] for row in rows]
    beside = [row.get(f"ripgrep -j2, {FROZEN}", Row("")) for row in rows]
    faster = _listed(f"{own.rate / rg.rate:.1f}" for own, rg in zip(plain, beside, strict=True) if rg.rate)
    compared = f", {faster} times as fast as `rg -j2`" if all(rg.rate for rg in beside) else ""
    parts = [
        f"Wall-clock time on a machine with {os.cpu_count()} processors (`make bench-full`):",
        f"{_listed(f'{row.size / 1e9:.1f} GB take {row.seconds:.0f} s' for row in plain)}{compared}.",
        f"With `--deep`, they take {_listed(f'{row.seconds:.0f} s' for row in deep)}.",
        f"A process uses at most {_listed(f'{_peak(row)} MB' for row in plain)} of memory, with `--deep` {_listed(f'{_peak(row)} MB' for row in deep)}.",
    ]
    return textwrap.fill(" ".join(parts), 140, break_long_words=False, break_on_hyphens=False)


def _peak(row: Row) -> str:
    return f"{max(row.peak_rss_mb.values()):.0f}"


def _listed(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def write_figures(measured: list[list[Row]], *, large: bool) -> None:
    """Put the figures into the README, unless one is missing."""
    needed = [END_TO_END, DEEP] if large else [END_TO_END, *(f"{END_TO_END}, {storm_name(share)}" for share in STORMS)]
    for rows in measured:
        if missing := set(needed) - {row.what for row in rows if row.rate}:
            say(f"the README keeps its figures: not measured: {', '.join(sorted(missing))}")
            return
    name, found = ("large logs", large_figures(measured)) if large else ("speed", figures(measured[0]))
    text = README.read_text("utf-8")
    README.write_text(re.sub(FIGURES.format(name=name), lambda match: f"{match[1]}{found}\n{match[2]}", text), "utf-8")


def table(rows: list[Row]) -> str:
    """Return the rows as text."""
    out = [
        f"{'what':46} {'MB':>7} {'s':>8} {'start-up':>8} {'MB/s':>8} {'CPU s':>7} {'MB/CPU s':>8} {'peak RSS (MB)':>16}  note"
    ]
    for row in rows:
        cells = (f"{row.size / 1e6:.0f}" if row.size else "", f"{row.seconds:.2f}" if row.seconds else "")
        rate = f"{row.rate:.1f}" if row.rate else ""
        cpu, cpu_rate = (f"{row.cpu:.2f}" if row.cpu else ""), (f"{row.cpu_rate:.0f}" if row.cpu_rate else "")
        memory = "+".join(f"{peak:.0f}" for peak in sorted(row.peak_rss_mb.values(), reverse=True)[:4])
        start_up = f"{row.start_up:.2f}" if row.start_up else ""
        out.append(
            f"{row.what:46} {cells[0]:>7} {cells[1]:>8} {start_up:>8} {rate:>8} {cpu:>7} {cpu_rate:>8} {memory:>16}  {row.note}"
        )
    return "\n".join(out)


def say(text: str) -> None:
    """Progress, on stderr."""
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--size", type=scan_data.byte_count, nargs="+", default=[scan_data.byte_count("600M")], help="600M, 6G, …"
    )
    parser.add_argument("--data", type=Path, default=ROOT / "bench" / "data")
    parser.add_argument("--own-only", action="store_true", help="leave out the searchers of others")
    parser.add_argument(
        "--quick", action="store_true", help="of others only ripgrep, with the patterns of frozen_patterns.txt"
    )
    parser.add_argument("--deep", action="store_true", help="a diagnosis with --deep, too")
    parser.add_argument(
        "--delete", action="store_true", help="delete the logs of this size when they have been measured"
    )
    parser.add_argument(
        "--figures", action="store_true", help="write the README's figures: with --deep, those of large logs"
    )
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    measured: list[list[Row]] = []
    for size in args.size:
        with tempfile.TemporaryDirectory(prefix="scan-bench-") as folder:
            measured.append(measure(args, Path(folder), size))
        shown = ratios(measured[-1])
        if args.json:
            listed = [asdict(row) | {"mb_per_s": round(row.rate, 1)} for row in measured[-1]]
            print(json.dumps({"cpus": os.cpu_count(), "rows": listed, "ratios": shown}, indent=1))
            continue
        print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}\n{table(measured[-1])}\n")
        for name, ratio in shown.items():
            print(f"{name:48} {ratio:8.2f}")
        print(flush=True)
    if args.figures:
        write_figures(measured, large=args.deep)


if __name__ == "__main__":
    main()
