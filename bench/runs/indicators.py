"""Turns built failures and their healthy runs into a set that bench/l4.py scores: which lines tell each failure, where and when.

    python bench/runs/indicators.py OUT DIR [DIR ...]      # DIR: what build.py --twins N wrote

Two readings find the telling lines. The record is what the faulty process wrote down, outside its logs, of its own output
(scripts/witness.py), and the process that its launcher names as ended. The reader is the plan: the words of `needle`, searched in
whole logs, and for a process that fell silent the last line under its name. The truth is what either finds; how far they agree is
printed and stored. Neither knows what a detector says.

A healthy case is a second healthy run compared with the first; of a job that has only one, it is compared with none.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import yaml

Line = tuple[str, int]  # file, number from 1

SEED = 20261123
LAUNCHED = re.compile(r"(?i)exit ?code|signal|exited|died|dead|killed|returned")
BODY = re.compile(r"Traceback \(most recent|^\S*\s*(?:File \"|\^+|~+)|During handling|direct cause|^\S{0,30}\s{3,}\S")
CONSEQUENCE = re.compile(
    r"(?i)closed by (?:peer|remote)|reset by peer|broken pipe|timed out|torch[./]distributed[./]elastic|ChildFailedError|closing signal"
    r"|prterun|mpirun|Root Cause|^[=-]{20,}|exitcode|FAILED$|TCPStore|ProcessGroup|gloo|sigterm|signal 15|frame #|coordination|heartbeat timeout"
    r"|RayTaskError|WorkerGroupError|ActorDied|killing subprocess|exits with return code"
)
PULSE = re.compile(r"(?:heartbeat|prefetch depth|alive \||tick at=).*")
STEP = re.compile(r"(?i)\b(?:step|iteration|iter|update|it|at)\W{0,4}(\d+)")


@dataclass
class Logs:
    """The lines of a run, by file."""

    folder: Path
    files: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> Logs:
        """Read all files below a folder."""
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        texts = {
            str(path.relative_to(folder.parent)): path.read_bytes().decode("utf-8", "replace").split("\n")
            for path in paths
        }
        return cls(folder, texts)

    def all(self) -> Iterator[tuple[Line, str]]:
        """Each line with its place."""
        for name, lines in self.files.items():
            for number, text in enumerate(lines, 1):
                yield (name, number), text

    def holding(self, text: str, rank: int | None = None) -> list[Line]:
        """Lines with a text; of a rank only, if any of them can be told to be its own."""
        found = [(place, line) for place, line in self.all() if text in line]
        own = [place for place, line in found if rank is not None and is_of(place[0], line.partition(text)[0], rank)]
        return own or [place for place, _ in found]


def is_of(file: str, prefix: str, rank: int) -> bool:
    """Whether a line is a rank's, by its file's name or by what precedes its text."""
    named = re.search(r"(?:rank|worker)[-_.]?(\d+)(?:\.log|$|\.)|/(\d+)/std(?:err|out)|_rank_?(\d+)|(\d+)\.log$", file)
    if named:
        return int(next(group for group in named.groups() if group)) == rank
    told = re.search(
        r"default(\d+)|\[1,(\d+)\]|rank[ =]?(\d+)|<\S+:(\d+)>|^\S*?:? ?\[(\d+)\]|\br0?(\d+)\]|^\s*(\d+): |:\s?(\d+) \| ",
        prefix,
    )
    return told is not None and int(next(group for group in told.groups() if group)) == rank


@dataclass
class Reading:
    """What a reading finds: lines by what they tell, and lines that belong to them."""

    events: dict[str, set[Line]] = field(default_factory=dict)
    neutral: set[Line] = field(default_factory=set)

    def add(self, kind: str, lines: Iterable[Line]) -> None:
        """Add lines to an event."""
        if found := set(lines):
            same = next((other for other, known in self.events.items() if known & found), kind)
            self.events.setdefault(same, set()).update(found)

    @property
    def lines(self) -> set[Line]:
        """All telling lines."""
        return set().union(*self.events.values()) if self.events else set()


def masked(text: str) -> str:
    """A line without what varies, for grouping."""
    return re.sub(r"\d+(?:\.\d+)?", "0", text)[-70:]


def by_record(logs: Logs, record: dict[str, Any], case: dict[str, Any]) -> Reading:
    """Read by what the faulty processes recorded, and by the processes that launchers name."""
    found = Reading()
    for entry in record["lines"]:
        places = logs.holding(entry["text"].rstrip(), entry["rank"])
        if entry["kind"] in ("own", "told"):
            told = [
                place
                for place in places
                if entry["kind"] == "own" or not BODY.search(logs.files[place[0]][place[1] - 1])
            ]
            found.add("values" if case["kind"] == "value" and entry["kind"] == "own" else masked(entry["text"]), told)
        elif entry["kind"] == "after" or case["call"] == "dies":  # its last line is where it died
            found.neutral |= set(places)
    pids = {
        str(pid) for note in record["notes"] if note.get("fault") for pid in (note["pid"], note.get("launched")) if pid
    }
    named = [
        place
        for place, text in logs.all()
        if LAUNCHED.search(text) and pids & set(re.findall(r"\d+", text)) and not BODY.search(text)
    ]
    silent = not any(entry["kind"] in ("own", "told") for entry in record["lines"])
    died = [
        place
        for place in named
        if re.search(r"(?i)signal|sig[a-z]{3,4}\b|exitcode\W+-|died|dead", logs.files[place[0]][place[1] - 1])
    ]
    if died and case["place"] != "start" and case["call"] in ("dies", "crashes"):
        found.add("signal", died)
    elif named and silent and case["kind"] != "turn":
        found.add("ended", named)
    found.neutral |= set(named)
    if case["kind"] == "absence" and not {"signal", "ended"} & set(found.events):
        for entry in record["lines"]:
            if entry["kind"] == "last":
                found.add("absence", sorted(logs.holding(entry["text"].rstrip(), entry["rank"]))[-1:])
    if case["kind"] == "turn":
        found.add("turn", turned(logs, case["step"]))
    found.neutral -= found.lines
    return found


def turned(logs: Logs, step: int) -> list[Line]:
    """Step lines of the first three logged steps that show a slower run; for a loss that went wrong, where it is not a number."""
    nan = [place for place, text in logs.all() if re.search(r"(?i)loss\W+nan", text)]
    if nan:
        return nan[:3]
    named = [
        (int(match[1]), place)
        for place, text in logs.all()
        if "loss" in text and (match := STEP.search(text)) and int(match[1]) > step
    ]
    wanted = sorted({number for number, _ in named})[:3]
    return [place for number, place in named if number in wanted]


def by_reader(logs: Logs, case: dict[str, Any]) -> Reading:
    """Read as a person who knows the fault searches: for the words of the plan, or for the last line under a name."""
    found = Reading()
    for needle in case.get("needle", []):
        found.add(needle, [place for place, text in logs.all() if needle in text and not BODY.search(text)])
    if case["kind"] == "absence":
        for rank in case.get("ranks", []):
            own = [
                place
                for place, text in logs.all()
                if text.strip() and is_of(place[0], text[:60], rank) and not CONSEQUENCE.search(text)
            ]
            found.add("absence", own[-1:])
    if case["kind"] == "value":
        found.add("values", drifted(logs, case["ranks"]))
    return found


def drifted(logs: Logs, ranks: Sequence[int]) -> list[Line]:
    """Heartbeats of a rank with a number, other than their step, at most a third or at least 1.7 times of what it was at first."""
    shapes: dict[tuple[str, str], list[tuple[Line, list[float]]]] = {}
    for place, text in logs.all():
        tail = PULSE.search(text)
        if tail and any(is_of(place[0], text[: tail.start()], rank) for rank in ranks):
            numbers = [float(number) for number in re.findall(r"\d+(?:\.\d+)?", tail[0])]
            shapes.setdefault((place[0], re.sub(r"[\d.]+", "0", tail[0])), []).append((place, numbers))
    found = []
    for rows in shapes.values():
        columns = list(zip(*(numbers for _, numbers in rows), strict=False))
        steady = [column for column in columns if list(column) != sorted(set(column)) or column[-1] > 500]
        for index, (place, _) in enumerate(rows):
            shares = [column[index] / column[0] for column in steady if column[0]]
            if any(share < 0.34 or share > 1.7 for share in shares):
                found.append(place)
    return found


def spans(places: Iterable[Line]) -> dict[str, list[list[int]]]:
    """Lines by file, as spans."""
    found: dict[str, list[list[int]]] = {}
    for file, number in sorted(places):
        rows = found.setdefault(file, [])
        if rows and rows[-1][1] == number - 1:
            rows[-1][1] = number
        else:
            rows.append([number, number])
    return found


def truth(folder: Path, twin: Path) -> tuple[dict[str, Any], tuple[int, int, int]]:
    """The truth of a failure, and how many lines the record found, the reader found, and both."""
    case = yaml.safe_load((folder / "case.yaml").read_text("utf-8")) | {"call": ""}
    record = json.loads((folder / "record.json").read_text("utf-8"))
    job = yaml.safe_load((folder / "job.yaml").read_text("utf-8"))
    logs, good = Logs.read(folder / "logs"), Logs.read(twin / "logs")
    faults = [note for note in record["notes"] if note.get("fault")]
    case |= {"ranks": case.get("ranks", []), "step": case.get("step"), "call": faults[-1]["call"].partition(":")[2]}
    first, second = by_record(logs, record, case), by_reader(logs, case)
    if case["call"] == "dies" and set(second.events) - {
        "absence",
        "values",
    }:  # the launcher says so: nothing is missing
        first.events.pop("absence", None)
    extra = {place for place in second.lines - first.lines if not near(place, first.lines)}
    if case["kind"] in ("failure", "absence") and extra and not {"absence"} & set(first.events):
        first.add(
            "reader", {place for kind, lines in second.events.items() if kind != "absence" for place in lines} & extra
        )
    usual = {masked(text) for _, text in good.all()}
    told = []
    for kind, lines in sorted(first.events.items(), key=lambda item: min(item[1])):
        text = logs.files[min(lines)[0]][min(lines)[1] - 1]
        level = re.search(r"(?i)\b(debug|info|warn|error|critical)", text)
        told.append(
            {
                "level": level[1].lower() if level else "error",
                "printed": level is not None,
                "kind": kind if kind in ("absence", "turn") else "line",
                "in_healthy": masked(text) in usual,
                "lines": [list(place) for place in sorted(lines)],
            }
        )
    after = {place for place, text in logs.all() if CONSEQUENCE.search(text) or BODY.search(text)}
    steps = [note["step"] for note in faults if note["step"] is not None]
    step = (min if case["kind"] == "turn" else max)(steps, default=None)  # of a precursor and its failure, the failure
    stage = case["stage"]
    found = {
        "symptom": "launch" if stage in ("launch", "init", "data_load") else "abnormal" if case["kind"] == "turn" or job["state"] == "TIMEOUT" else "crash",
        "nodes": [f"rank {rank}" for rank in case["ranks"]] + hosts(logs, case["ranks"], job["world_size"]), "stage": stage, "iteration": step if stage not in ("launch", "init", "data_load") else None,
        "window": 5, "events": told, "neutral": spans(first.neutral - first.lines), "cascade": spans(after - first.lines - first.neutral),
        "fault": folder.name, "style": case["framework"], "node_count": job["world_size"], "state": job["state"], "kind": case["kind"],
    }  # fmt: skip
    checked = first.lines if second.lines else set()
    both = len({place for place in checked if near(place, second.lines)})
    return found, (len(checked), len(second.lines), both)


def hosts(logs: Logs, ranks: Sequence[int], world: int) -> list[str]:
    """The node of a rank, if each of two nodes has a log of its own: then nodes are compared."""
    names = sorted(name for name in logs.files if name.startswith("logs/node-"))
    return sorted({Path(names[rank * len(names) // world]).stem for rank in ranks}) if len(names) > 1 else []


def near(place: Line, others: set[Line]) -> bool:
    """Whether one of the other lines is this one, or its neighbour."""
    return any((place[0], place[1] + shift) in others for shift in (0, -1, 1))


def healthy(name: str, job: dict[str, Any]) -> dict[str, Any]:
    """The truth of a healthy case."""
    return {
        "symptom": "healthy", "nodes": [], "stage": None, "iteration": None, "events": [], "neutral": {}, "cascade": {}, "fault": name,
        "style": str(job.get("framework")), "node_count": job["world_size"], "state": job["state"],
    }  # fmt: skip


def put(case: Path, folder: Path, good: Path | None, name: str) -> dict[str, Any]:
    """Copy a case: its logs, a good run's, and what the scheduler knows."""
    shutil.copytree(folder / "logs", case / "logs")
    if good is not None:
        shutil.copytree(good / "logs", case / "baseline")
    job = yaml.safe_load((folder / "job.yaml").read_text("utf-8")) | {"id": name}
    (case / "job.yaml").write_text(yaml.safe_dump(job, sort_keys=False), "utf-8")
    return dict(job)


def main() -> None:
    """Convert, and print the agreement of the readings."""
    out, *folders = map(Path, sys.argv[1:])
    if (out / "cases").exists():
        sys.exit(f"{out}: it holds a set already")
    runs = {path.name: path for folder in folders for path in sorted(folder.iterdir()) if (path / "case.yaml").exists()}
    failures = [name for name in runs if ".twin" not in name and f"{name}.twin1" in runs]
    twins = [name for name in runs if name.endswith(".twin1")]
    pairs = [(name.replace(".twin1", ".twin2"), name) for name in twins if name.replace(".twin1", ".twin2") in runs]
    alone = [name for name in twins if name not in {good for _, good in pairs}]
    order = [*failures, *(first for first, _ in pairs), *alone]
    Random(SEED).shuffle(order)
    cases, found = {}, []
    good = dict(pairs) | {name: f"{name}.twin1" for name in failures}
    for number, name in enumerate(order, 1):
        short = f"case-{number:04d}"
        job = put(out / "cases" / short, runs[name], runs.get(good.get(name, "")), short)
        if name in failures:
            cases[short], counts = truth(runs[name], runs[good[name]])
            found.append(counts)
            if not cases[short]["events"]:
                print(f"{name}: no telling line found", file=sys.stderr)
        else:
            cases[short] = healthy(name, job)
    one, two, both = (sum(counts[place] for counts in found) for place in range(3))
    agreement = {"record": one, "reader": two, "both": both}
    (out / "truth.json").write_text(json.dumps({"agreement": agreement, "cases": cases}, indent=1) + "\n", "utf-8")
    print(
        f"{out}: {len(failures)} failures, {len(pairs) + len(alone)} healthy; telling lines by the record {one}, by the reader {two}, by both {both}"
    )


if __name__ == "__main__":
    main()
