"""Measures by how much failure-indicating lines are found worse where the same logs are written another way.

    python bench/l4_perturbed.py --set DIR [--set DIR ...] [--only NAME ...] [--keep DIR] [--cases] [--failures] [--every N]

Each perturbation rewrites the logs of a set (`bench/runs/indicators.py`, `bench/l4set/build.py`), its good runs included, the way another
site, launcher or writer would; the truth moves with its lines. What a detector knows of one writer's words, prefixes, clocks and files is
lost there, what it knows of runs is not. The rewriting is deterministic. bench/README.md has the table.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE), str(HERE / "l4set")]

from score import MEASURES, Prediction, tally  # noqa: E402 - the paths are set above

from bot.diagnosis.event_model import event_model  # noqa: E402
from bot.diagnosis.evidence import from_bundle  # noqa: E402
from bot.diagnosis.rank_forms import found_streams  # noqa: E402
from bot.diagnosis.template_pool import tables  # noqa: E402
from bot.rulebase.loader import Knowledge, knowledge  # noqa: E402
from kb.anomalies.analyse import find_anomalies  # noqa: E402
from kb.anomalies.build_run import build_run  # noqa: E402
from kb.anomalies.runs.baseline_diff import baseline_of  # noqa: E402
from kb.parsers.logs.timestamps import STAMP, find_time  # noqa: E402
from kb.templates.masking import fold, shape_of  # noqa: E402
from kb.templates.rank_prefixes import rank_prefix_of  # noqa: E402

YEAR = 2026
_SECONDS = re.compile(rb"(?<![\w.])1[5-9]\d{8}(?:\.\d{1,9})?(?![\w.])")


@dataclass(frozen=True, slots=True)
class Line:
    """A line as written. `home`: its file and number before anything was rewritten, None for an added one."""

    text: str
    home: tuple[str, int] | None
    rank: int | None = None
    start: int = 0  # where its message begins
    time: float | None = None


Logs = dict[str, list[Line]]  # by file


@cache
def read(folder: Path, logs: Path) -> Logs:
    """Read the logs of a case, with the rank, the time and the message of each line."""
    found: Logs = {}
    for file in sorted(path for path in logs.rglob("*") if path.is_file()):
        name = str(file.relative_to(folder))
        data = file.read_bytes()
        form, time = rank_prefix_of(data), None
        numbered = re.search(r"(?:rank|worker)[-_.]?(\d+)|/(\d+)/std(?:out|err)", name)
        own = int(numbered[1] or numbered[2]) if numbered else None
        found[name] = []
        for number, raw in enumerate(data.split(b"\n")[: -1 if data.endswith(b"\n") else None], 1):
            shape = shape_of(fold(raw), dated=True, speaker=form)
            rank = int(raw[slice(*shape.rank)]) if shape.rank else own
            time = _time(raw) or time
            found[name].append(Line(raw.decode("utf-8", "surrogateescape"), (name, number), rank, shape.start, time))
    return found


def _time(raw: bytes) -> float | None:
    """When a line was written, also where it says so in seconds since the epoch."""
    seconds = _SECONDS.search(raw, 0, 200)
    return find_time(raw, YEAR) or (float(seconds[0]) if seconds else None)


def each(change: Callable[[str], str], logs: Logs, chance: Random) -> Logs:  # noqa: ARG001 - as all perturbations
    """Rewrite each line by itself."""
    return {name: [replace(line, text=change(line.text)) for line in lines] for name, lines in logs.items()}


def words(table: Mapping[str, str], text: str) -> str:
    """Replace words, in the case in which they are written; parts of longer words stay."""

    def other(match: re.Match[str]) -> str:
        new = table[match[0].lower()]
        return new.upper() if match[0].isupper() else new.capitalize() if match[0][0].isupper() else new

    return re.sub(rf"(?i)(?<![A-Za-z])(?:{'|'.join(sorted(table, key=len, reverse=True))})(?![A-Za-z])", other, text)


LEVELS = {"debug": "fine", "info": "config", "warning": "caution", "warn": "caution", "error": "severe", "critical": "alarm", "fatal": "alarm"}  # fmt: skip
STAGES = {
    "step": "tick", "steps": "ticks", "iteration": "turn", "iter": "turn", "epoch": "lap", "loss": "cost", "checkpoint": "snapshot",
    "saving": "storing", "saved": "stored", "save": "store", "loading": "fetching", "loaded": "fetched", "evaluating": "probing",
    "evaluation": "probe", "eval": "probe", "validation": "probe", "training": "fitting", "train": "fit", "heartbeat": "pulse",
    "started": "begun", "starting": "beginning", "finished": "concluded", "done": "over", "initialized": "prepared", "trainer": "fitter",
}  # fmt: skip
TROUBLE = {
    "failed": "came to grief", "failure": "mishap", "error": "trouble", "cannot": "may not", "unable": "not in a state", "lost": "strayed",
    "stuck": "wedged", "missing": "absent", "timeout": "lateness", "dead": "quiet", "corrupt": "mangled", "invalid": "unsound",
    "refused": "turned away", "killed": "felled", "aborted": "broken off", "aborting": "breaking off", "stopped": "halted", "empty": "bare",
    "warning": "notice", "retry": "another go", "retrying": "having another go", "skipped": "passed over", "slow": "sluggish",
}  # fmt: skip
_LEVEL = r"(?:DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)"
_NO_LEVEL = re.compile(
    rf"\[{_LEVEL}\] ?|\b{_LEVEL}\b ?[:|-]? ?|\blevel(?:name)?=\w+ |\"level\": ?(?:\d+|\"\w+\"), |\b[IWEFDC](?=\d{{4}} \d\d:)"
)
_OWN_CLASS = re.compile(r"\b((?:[A-Z][a-z]+){2,})(?:Error|Exception)\b")
_KNOWN_CLASS = re.compile(r"(?:Runtime|Value|Type|Key|Index|Attribute|Import|NotImplemented|Assertion|Memory|Connection\w*|ChildFailed|File\w+|ModuleNotFound|Dist\w+|Raytask|Timeout|Interrupted|Module\w+|Permission)")  # fmt: skip
_STAMP = re.compile(STAMP.decode())
_DATED = re.compile(r"(?<![\w.])(?:20\d\d-\d\d-\d\d[ T])(?=\d\d:\d\d:\d\d)")
_LAUNCHER = re.compile(
    r"(?i)exit ?code|exited|exit status|closing signal|root cause|ChildFailed|elastic|\bstatus\b|\bsignal\b|terminat|killing|primary job|mpirun|spawned|supervisor"
)


def other_exceptions(text: str) -> str:
    """End the names of the program's own exceptions in another word."""
    return _OWN_CLASS.sub(lambda item: item[0] if _KNOWN_CLASS.fullmatch(item[1]) else item[1] + "Mishap", text)


def epoch_times(text: str) -> str:
    """Write the first time of a line as seconds since the epoch."""
    time, match = find_time(text.encode("utf-8", "surrogateescape"), YEAR), _STAMP.search(text)
    return text if time is None or match is None else f"{text[: match.start()]}{time:.3f}{text[match.end() :]}"


def skewed(logs: Logs, chance: Random) -> Logs:
    """Set the clock of each rank ahead or behind by up to four seconds, as those of nodes without a time service are."""
    ahead: dict[int, float] = {}
    for rank in sorted({line.rank for lines in logs.values() for line in lines if line.rank is not None}):
        ahead[rank] = chance.uniform(-4, 4)

    def moved(line: Line) -> Line:
        time, match = find_time(line.text.encode("utf-8", "surrogateescape"), YEAR), _STAMP.search(line.text)
        if line.rank is None or time is None or match is None or match["name_m"] or match["glog_m"]:
            return line
        stamp = datetime.fromtimestamp(time + ahead[line.rank], UTC)
        told = stamp.strftime("%Y-%m-%d %H:%M:%S") + (f",{stamp.microsecond // 1000:03}" if match["fraction"] else "")
        return replace(line, text=line.text[: match.start()] + told + line.text[match.end() :])

    return {name: [moved(line) for line in lines] for name, lines in logs.items()}


def no_launcher(logs: Logs, chance: Random) -> Logs:  # noqa: ARG001 - as all perturbations
    """Drop what launchers report: lines of no rank that speak of members, statuses and signals."""
    return {
        name: [line for line in lines if line.rank is not None or not _LAUNCHER.search(line.text)]
        for name, lines in logs.items()
    }


def merged(form: str, logs: Logs, chance: Random) -> Logs:  # noqa: ARG001 - as all perturbations
    """Put all ranks in one log, in the order of their times, each line behind its rank."""
    known = [line.time for lines in logs.values() for line in lines if line.time is not None] or [0.0]
    order = sorted(
        (line.time or 0.0, name, place, line)
        for name, lines in logs.items()
        for place, line in enumerate(_timed(lines, min(known), max(known)))
    )
    alone = len(logs) == 1
    return {
        f"{next(iter(logs)).partition('/logs/')[0].partition('/')[0]}/{'logs/' if '/logs/' in next(iter(logs)) else ''}all.log": [
            line if alone or line.rank is None else replace(line, text=form.format(rank=line.rank) + line.text)
            for *_, line in order
        ]
    }


def _timed(lines: list[Line], begun: float = 0.0, over: float = 0.0) -> Iterator[Line]:
    """The lines with times that never go back; those of a file without any are spread over the run."""
    first = next((line.time for line in lines if line.time is not None), None)
    time = begun if first is None else first
    for place, line in enumerate(lines, 1):
        time = max(time, line.time or time) if first is not None else begun + (over - begun) * place / len(lines)
        yield replace(line, time=time)


def split(name: str, logs: Logs, chance: Random) -> Logs:  # noqa: ARG001 - as all perturbations
    """Give each rank a file of its own; what names no rank stays, what follows a line of a rank within a traceback goes with it."""
    found: Logs = {}
    for source, lines in logs.items():
        for line in lines:
            folder = source.rpartition("/")[0] if line.rank is None else source.partition("/")[0]
            place = source if line.rank is None else f"{folder}/{name.format(rank=line.rank)}"
            found.setdefault(place, []).append(line)
    return {place: sorted(lines, key=lambda line: line.time or 0.0) for place, lines in found.items()}


def quoted(form: str, logs: Logs, chance: Random) -> Logs:  # noqa: ARG001 - as all perturbations
    """Put each line in a JSON object, as container engines and shippers do."""
    return {
        name: [
            replace(line, text=form % (json.dumps(line.text), datetime.fromtimestamp(line.time or 0, UTC).isoformat()))
            for line in _timed(lines)
        ]
        for name, lines in logs.items()
    }


def prefixed(logs: Logs, chance: Random) -> Logs:
    """Put the time, the host and the process of a syslog before each line."""
    pids: dict[int | None, int] = {}

    def head(line: Line) -> str:
        pid = pids.setdefault(line.rank, chance.randrange(10_000, 99_999))
        stamp = datetime.fromtimestamp(line.time or 0, UTC).isoformat(timespec="microseconds")
        return f"{stamp} gpu-07 trainer[{pid}]: "

    return {
        name: [replace(line, text=head(line) + line.text) for line in _timed(lines)] for name, lines in logs.items()
    }


NOUNS = (
    "arena",
    "bucket",
    "cursor",
    "ledger",
    "lattice",
    "mirror",
    "needle",
    "parcel",
    "quiver",
    "ribbon",
    "tally",
    "vessel",
)
VERBS = ("rebuilt", "trimmed", "probed", "rotated", "compacted", "spilled", "hashed", "folded")


def chatter(share: float, logs: Logs, chance: Random) -> Logs:
    """Add debug lines that each rank prints at random, some kinds on few ranks, in the voice of the line before."""
    kinds = [f"{noun} {verb} at depth" for noun in NOUNS for verb in VERBS]  # most are in the good run too, not all
    found: Logs = {}
    for name, lines in logs.items():
        found[name] = []
        for line in lines:
            found[name].append(line)
            head = line.text[: line.start]
            spoken = line.rank is not None and line.start and _STAMP.search(head)
            if spoken and chance.random() < share:
                told = f"{chance.choice(kinds)} {chance.randrange(99)}, {chance.random():.3f} ms"
                found[name].append(replace(line, text=head + told, home=None))
    return found


def no_dates(text: str) -> str:
    """Leave only the time of day."""
    return _DATED.sub("", text)


PERTURBATIONS: Mapping[str, Callable[[Logs, Random], Logs]] = {
    "as it is": partial(each, str),
    "levels renamed": partial(each, partial(words, LEVELS)),
    "levels dropped": partial(each, lambda text: _NO_LEVEL.sub("", text)),
    "stages in other words": partial(each, partial(words, STAGES)),
    "trouble in other words": partial(each, partial(words, TROUBLE)),
    "own exceptions end in another word": partial(each, other_exceptions),
    "times since the epoch": partial(each, epoch_times),
    "times without a date": partial(each, no_dates),
    "clocks apart": skewed,
    "launcher's reports dropped": no_launcher,
    "one log, [member 3]": partial(merged, "[member {rank}] "),
    "one log, t3|": partial(merged, "t{rank}| "),
    "a file a rank": partial(split, "rank-{rank}.log"),
    "a numbered file a rank": partial(split, "task{rank}.out.log"),
    "JSON of containers": partial(quoted, '{"log":%s,"stream":"stderr","time":"%s"}'),
    "JSON of a shipper": partial(quoted, '{"body":%s,"ts":"%s"}'),
    "syslog's head": prefixed,
    "chatter": partial(chatter, 0.15),
}


def rewrite(case: Path, out: Path, truth: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Write a case in another way; its truth with the places that its lines then have."""
    change, chance = PERTURBATIONS[name], Random(case.name)
    out.mkdir(parents=True)
    for extra in (path for path in case.iterdir() if path.is_file()):
        shutil.copy(extra, out)
    places: dict[tuple[str, int], tuple[str, int]] = {}
    for part in ("logs", "baseline"):
        if (case / part).is_dir():
            for source, lines in change(read(case, case / part), chance).items():
                (out / source).parent.mkdir(parents=True, exist_ok=True)
                text = "".join(f"{line.text}\n" for line in lines)
                (out / source).write_bytes(text.encode("utf-8", "surrogateescape"))
                places |= {line.home: (source, number) for number, line in enumerate(lines, 1) if line.home}
    return moved(truth, places)


def moved(truth: Mapping[str, Any], places: Mapping[tuple[str, int], tuple[str, int]]) -> dict[str, Any]:
    """Move the truth of a case to other places; an event of which no line is left is none."""

    def spans(told: Mapping[str, Any]) -> dict[str, list[list[int]]]:
        found: dict[str, list[list[int]]] = {}
        for (source, number), (other, place) in places.items():
            if any(first <= number <= last for first, last in told.get(source, ())):
                found.setdefault(other, []).append([place, place])
        return found

    events = [
        event | {"lines": [list(places[one]) for line in event["lines"] if (one := (line[0], line[1])) in places]}
        for event in truth["events"]
    ]
    return {
        **truth,
        "events": [event for event in events if event["lines"]],
        "neutral": spans(truth["neutral"]),
        "cascade": spans(truth["cascade"]),
    }


def answer(known: Knowledge, case: Path) -> Prediction:
    """What the comparison with the good run finds in a case."""
    evidence = from_bundle(known, case, workers=1)
    refs = [stream.ref for stream in evidence.streams if stream.ref.group == "logs"]
    mined = tables([replace(ref, uri=str(case / ref.uri)) for ref in refs], year=YEAR, workers=1).tables
    ours = [replace(table, ref=ref) for table, ref in zip(mined, refs, strict=True)]
    good = None
    if (case / "baseline").is_dir():
        twin = tables(found_streams([case / "baseline"]).streams, year=YEAR, workers=1).tables
        good = baseline_of(build_run(twin))
    told = find_anomalies(build_run(ours, evidence.streams, evidence.job), good, model=event_model())
    spots = [item.beats[0].spot for item in (told.turn,) if item]
    spots += [event.spot for event in told.events]
    spots += [item.spot for item in (*told.absent, *told.drifted) if item.spot]
    lines = [(spot.source, (case / spot.source).read_bytes()[: spot.offset].count(b"\n") + 1) for spot in spots]
    return Prediction(tuple(lines), tuple(node.node for node in told.nodes), told.stage, told.step)


def measured(known: Knowledge, sets: list[Path], name: str, out: Path, args: argparse.Namespace) -> str:
    """A row of the table: F1 and the rest under one perturbation, over all sets."""
    counted, false, healthy = [], 0, 0
    for number, root in enumerate(sets):
        every = sorted(json.loads((root / "truth.json").read_text("utf-8"))["cases"].items())
        wanted = [item for item in every if not args.failures or item[1]["symptom"] != "healthy"]
        for case, truth in wanted[:: args.every]:
            folder = out / str(number) / case
            told = rewrite(root / "cases" / case, folder, truth, name)
            said = answer(known, folder)
            if told["symptom"] == "healthy":
                healthy, false = healthy + 1, false + len(said.lines) + len(said.nodes)
                if args.cases and said.lines:
                    print(f"  {number} {case} healthy: {said}")
                continue
            one = tally(case, told, said)
            counted.append(one)
            if args.cases:
                rest = f"of {one.events}, rank {one.top1}, stage {one.stage}, step {one.iteration}"
                print(
                    f"  {name} {number} {case} {truth['fault']} {one.events_found} {rest}, {one.said - one.hits} wrong"
                )
    shown = ("lines: precision", "lines: recall of events", "lines: F1", "node: top-1", "node: top-5", "stage", "iteration within the window")  # fmt: skip
    cells = " | ".join(f"{value:.2f}" for key in shown if (value := MEASURES[key](counted)) is not None)
    return f"| {name} | {cells} | {false / max(1, healthy):.2f} |"


def main() -> None:
    """Rewrite, answer, score and print, one perturbation after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", type=Path, action="append", required=True)
    parser.add_argument("--only", action="append", choices=tuple(PERTURBATIONS))
    parser.add_argument("--keep", type=Path, help="leave the rewritten sets there")
    parser.add_argument("--every", type=int, default=1, help="take only each such case")
    parser.add_argument("--failures", action="store_true", help="leave out the healthy runs")
    parser.add_argument("--cases", action="store_true", help="print each case too")
    args = parser.parse_args()
    known = knowledge()
    print(
        "| written so | P | R | F1 | rank first | in five | stage | step | false indicators, healthy run |", flush=True
    )
    for name in args.only or PERTURBATIONS:
        with tempfile.TemporaryDirectory() as scratch:
            out = (args.keep or Path(scratch)) / re.sub(r"\W+", "-", name)
            print(measured(known, args.set, name, out, args), flush=True)


if __name__ == "__main__":
    main()
