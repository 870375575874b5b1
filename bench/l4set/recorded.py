"""Real torchrun runs (carriers/*.json) dressed anew: other hosts, days, processes and paths; every line is torch's or Python's own."""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random
from typing import Any

import yaml

from bench.l4set.jobs import FIRST_DAY, HOUR, ROOTS, USERS, ZONES, _hosts
from bench.l4set.plan import Planned
from bench.l4set.words import google, iso, millis, underlined

CARRIERS = Path(__file__).with_name("carriers")
_BODY = re.compile(r'File "|^\S*\s{3,}\S|Traceback|\^\^\^')  # of tracebacks
_CONSEQUENCE = re.compile(
    r"torch/distributed/elastic|torch\.distributed\.elastic|TCPStore|^frame #|^Exception raised|omitting python frames|[Cc]onnection closed|reset by peer"
    r"|DistNetworkError|Broken pipe|^[=-]{20,}$| FAILED$|^Failures:|^Root Cause|^\[\d\]:$|^  (?:time|host|rank|exitcode|error_file|traceback) *:|Timed out waiting"
)
_TOKEN = re.compile(r"⟦(\w+?)(\d?)(?: (-?[\d.]+))?⟧")


class _Dress:
    """What replaces the tokens of a recording."""

    def __init__(self, chance: Random, hosts: list[str], start: float) -> None:
        self.chance, self.hosts, self.start, self.zone = chance, hosts, start, chance.choice(ZONES)
        self.first_pid = chance.randint(900, 60000)
        self.home = chance.choice(ROOTS).format(u=chance.choice(USERS))
        self.run = f"{chance.choice(('lm', 'tiny', 'probe', 'sft'))}-{chance.getrandbits(20):05x}"

    def one(self, match: re.Match[str]) -> str:
        """The text for a token."""
        name, index, number = match[1], match[2], match[3]
        if name == "pid":
            return str(self.first_pid + 7 * int(float(number)))
        if name == "home":
            return self.home
        if name == "node":
            return self.hosts[int(index)]
        at = self.start + float(number)
        return {
            "log": lambda: millis(at, self.zone),
            "block": lambda: underlined(at, self.zone),
            "glog": lambda: google(at, self.zone),
        }[name]()

    def lines(self, lines: list[str]) -> list[str]:
        """Dressed lines."""
        addresses: dict[str, str] = {}

        def moved(match: re.Match[str]) -> str:
            return addresses.setdefault(
                match[0], f"0x{self.chance.getrandbits(4 * (len(match[0]) - 2)):0{len(match[0]) - 2}x}"
            )

        dressed = []
        for line in lines:
            line = re.sub(r"(?<=⟧ )\d{4,6}(?= torch/)", str(self.first_pid - 3), line)  # the agent's own  # noqa: PLW2901
            text = _TOKEN.sub(self.one, line).replace("lm-carrier", self.run)
            dressed.append(re.sub(r"0x7f[0-9a-f]{10}", moved, text))
        return dressed


def load(name: str) -> dict[str, Any]:
    """A recording."""
    found: dict[str, Any] = json.loads((CARRIERS / f"{name}.json").read_text("utf-8"))
    return found


def _put(recording: dict[str, Any], dress: _Dress, folder: Path) -> tuple[dict[str, Any], int, int]:
    folder.mkdir(parents=True, exist_ok=True)
    files, size, count = {}, 0, 0
    for index, lines in enumerate(recording["nodes"]):
        text = "\n".join(dress.lines(lines)) + "\n"
        path = folder / f"{dress.hosts[index]}.log"
        path.write_text(text, "utf-8", newline="\n")
        files[f"{folder.name}/{path.name}"] = {"node": dress.hosts[index]}
        size, count = size + len(text.encode()), count + len(lines)
    return files, size, count


def dress(planned: Planned, seed: int, folder: Path) -> dict[str, Any]:
    """Write the bundle of a recorded case; returns its truth."""
    chance = Random(f"{seed}/{planned.number}/recorded")
    recording, good = load(planned.recorded), load(chance.choice(("none", "none-small")))
    start = FIRST_DAY + chance.uniform(0, 120 * 24 * HOUR)
    hosts = [host for host, _ in _hosts(chance, 2)]
    clothes = _Dress(chance, hosts, start)
    files, size, count = _put(recording, clothes, folder / "logs")
    earlier = _Dress(chance, [host for host, _ in _hosts(chance, 2)], start - chance.uniform(1, 20) * 24 * HOUR)
    more, _, _ = _put(good, earlier, folder / "baseline")
    state = "COMPLETED" if set(recording["codes"]) == {"0"} else "FAILED"
    told = {
        "id": f"{clothes.run}-{chance.randint(100, 9999)}", "name": clothes.run, "framework": "pytorch", "world_size": 4, "state": state,
        "start": iso(start, 0, 0).replace(".", ""), "collected_at": iso(start + 600, 0, 0).replace(".", ""),
        "nodes": {hosts[0]: [0, 1], hosts[1]: [2, 3]}, "log_interval": 1, "checkpoint_interval": 20,
    }  # fmt: skip
    (folder / "job.yaml").write_text(yaml.safe_dump(told, sort_keys=False), "utf-8")
    (folder / "bundle.yaml").write_text(yaml.safe_dump({"format": 1, "files": files | more}, sort_keys=False), "utf-8")
    events: dict[str, dict[str, Any]] = {}
    for node, line, level in recording["decisive"]:
        shape = re.sub(r"\d+", "0", recording["nodes"][node][line - 1])[-60:]
        kind = "absence" if planned.recorded == "stuck" else "turn" if planned.recorded == "slow" else "line"
        event = events.setdefault(
            shape,
            {"level": level, "printed": "Error" not in shape, "kind": kind, "in_healthy": kind != "line", "lines": []},
        )
        event["lines"].append([f"logs/{hosts[node]}.log", line])
    neutral, cascade = {}, {}
    for node, lines in enumerate(recording["nodes"]):
        near = [number for number, line in enumerate(lines, 1) if _BODY.search(line)]
        after = [number for number, line in enumerate(lines, 1) if _CONSEQUENCE.search(line)]
        neutral[f"logs/{hosts[node]}.log"] = [[number, number] for number in near]
        cascade[f"logs/{hosts[node]}.log"] = [[number, number] for number in after]
    return {
        "symptom": planned.symptom, "carrier": f"recorded {planned.recorded}", "style": "recorded", "node_count": 2, "state": state,
        "lines_in_all": count, "bytes": size, "fault": planned.recorded, "cause": "user", "nodes": [hosts[i] for i in recording["faulty"]],
        "stage": recording["stage"], "iteration": recording["iteration"], "events": list(events.values()), "neutral": neutral, "cascade": cascade,
    }  # fmt: skip
