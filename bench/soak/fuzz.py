"""Broken inputs for every reader, each in a process of its own: no traceback, no hang, no gigabyte.

    python bench/soak/fuzz.py [--count 10000] [--seed 1] [--keep DIR] [--only bundle,config]

Half of the inputs are bundles that a whole diagnosis reads (logs plain and compressed, job.yaml, stacks, flight recorder dumps, RAS, metrics,
events, eBPF), rendered as text, JSON and HTML. The others are configurations, rules, overlays, webhooks, hooks, links, reports, archives
and commands. A refusal (SignalboxError) is right; any other exception is a traceback. A hang is more than 10 s of processor time, or
60 s. Memory is the peak of the process, which starts at some 200 MB as a fork of one that has imported everything.
"""

from __future__ import annotations

import argparse
import copy
import io
import json
import os
import pickle
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import fuzz_seeds
import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
CPU, WALL = 10, 60.0  # seconds
MEMORY = 1 << 20  # kB of peak memory that count as too much
ADDRESS_SPACE = 6 << 30
REFUSED, BROKEN = 3, 9
WORDS = [
    b"NaN",
    b"-1",
    b"1e999",
    b"9" * 400,
    b"null",
    b"{}",
    b"[]",
    b'""',
    b"\x00",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"&a *a",
    b"!!python/object:os.system x",
    b"\x1b]0;x\x07",
    "\u202e".encode(),
    b"%s%n",
    b"../../../etc/passwd",
    b"2026-13-45T99:99:99Z",
    b"0x",
    b": ",
    b"- ",
    b"\r",
    b"\t",
]


ODD: tuple[Any, ...] = (
    *(
        None,
        True,
        0,
        -1,
        2**63,
        10**400,
        1e308,
        -0.5,
        "",
        " ",
        "\x00",
        "\ud800",
        "NaN",
        "9" * 5000,
        "x" * 100_000,
        "\u202e\x1b[31m",
    ),
    *(
        [],
        {},
        [[]],
        {"": {"": []}},
        [None] * 3000,
        {str(at): at for at in range(3000)},
        "2026-13-45T99:99:99Z",
        "../../x",
        "gpu-[1-99999999]",
    ),
)


def restructured(value: Any, rng: random.Random) -> Any:
    """Return a document in which some values are odd, missing, doubled or swapped: still valid JSON, so that it is read to the end."""
    for _ in range(rng.choice((1, 1, 3, 10))):
        places = list(_places(value, 400))
        if not places:
            return rng.choice(ODD)
        holder, key = rng.choice(places)
        do = rng.randrange(4)
        if do == 0:
            del holder[key]
        elif do == 1:
            other, from_key = rng.choice(places)
            holder[key] = copy.deepcopy(other[from_key]) if _has(other, from_key) else None
        elif do == 2 and isinstance(holder, list):
            holder.extend([holder[key]] * rng.choice((1, 2000)))
        else:
            holder[key] = copy.deepcopy(rng.choice(ODD))
    return value


def _has(holder: Any, key: Any) -> bool:
    return key in holder if isinstance(holder, dict) else key < len(holder)


def _places(value: Any, most: int) -> Iterator[tuple[Any, Any]]:
    """Yield containers with their keys, breadth first."""
    queue = [value]
    for holder in queue:
        keys = list(holder) if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else ()
        for key in keys:
            most -= 1
            if most < 0:
                return
            yield holder, key
            queue.append(holder[key])


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Return an input with some damage: of its values if it is JSON, YAML or a pickle, or of its bytes."""
    if rng.random() < 0.6:
        for load, dump in ((json.loads, json.dumps), (pickle.loads, pickle.dumps), (yaml.safe_load, yaml.safe_dump)):
            try:
                value = load(data)
                if isinstance(value, dict | list):
                    out = dump(restructured(value, rng))
                    return out if isinstance(out, bytes) else out.encode("utf-8", "surrogatepass")
            except Exception:  # noqa: BLE001 - it is something else
                continue
    return bytewise(data, rng)


def bytewise(data: bytes, rng: random.Random) -> bytes:
    """Return bytes with some damage."""
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        at = rng.randrange(len(data) + 1)
        end = min(len(data), at + rng.choice((1, 4, 40, 400)))
        damage = rng.randrange(9)
        if damage == 0:
            data = data[:at] + rng.randbytes(end - at) + data[end:]
        elif damage == 1:
            data = data[:at] + data[end:]
        elif damage == 2:
            data = data[:at]
        elif damage == 3:
            data = data[:at] + rng.choice(WORDS) + data[at:]
        elif damage == 4:
            data = data[:at] + rng.choice(WORDS) + data[end:]
        elif damage == 5:
            data = data[:at] + data[at:end] * rng.choice((2, 50, 2000)) + data[end:]
        elif damage == 6:
            data = data[:at] + rng.choice((b"[", b"{", b"(", b'{"a":', b"- ")) * rng.choice((5, 5000)) + data[at:]
        elif damage == 7:
            other = rng.randrange(len(data) + 1)
            data = data[:at] + data[other : other + 400] + data[end:]
        else:
            data = data.replace(data[at:end][:3] or b"a", rng.choice(WORDS), 50)
        data = data[: 4 << 20]
    return data


class Readers:
    """What is fuzzed. Everything is imported and loaded once, before the processes are forked."""

    def __init__(self) -> None:
        from bot.rulebase.loader import knowledge  # noqa: PLC0415

        self.known = knowledge()
        folder = ROOT / "rules"
        self.base = {path.name: path.read_text() for path in (folder / "faults.yaml", folder / "actions.yaml")}
        self.bundles, self.parts, self.texts = fuzz_seeds.bundles(), fuzz_seeds.parts(), fuzz_seeds.texts()
        self.kinds: dict[str, Callable[[random.Random, Path], None]] = {
            "bundle": self.bundle,
            **{kind: getattr(self, kind) for kind in self.texts},
        }
        self._warm()

    def _warm(self) -> None:
        """Import what readers import late."""
        for kind, run in self.kinds.items():
            with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):
                try:
                    run(random.Random(0), Path(folder))
                except Exception as error:  # noqa: BLE001 - it counts when it is fuzzed
                    print(f"{kind}: {type(error).__name__}", file=sys.stderr)

    def _text(self, kind: str, rng: random.Random) -> bytes:
        return mutated(rng.choice(self.texts[kind]), rng)

    def write(self, rng: random.Random, folder: Path) -> None:
        """Write a bundle in which some files are damaged."""
        files = dict(rng.choice(self.bundles)) if rng.random() < 0.5 else {}
        for name in rng.sample(sorted(self.parts), rng.randrange(5)):
            files[name] = self.parts[name]
        for at in range(rng.randrange(1, 4)):
            name, data = fuzz_seeds.packed(f"logs/rank-{at}.log", fuzz_seeds.log(rng), rng)
            files[name] = data
        for name in rng.sample(sorted(files), min(len(files), rng.randrange(1, 4))):
            files[name] = mutated(files[name], rng)
        for name, data in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def bundle(self, rng: random.Random, folder: Path) -> None:
        """Diagnose a bundle, and render the answer."""
        from bot.diagnosis.diagnose import diagnose_bundle  # noqa: PLC0415
        from bot.render.report_json import dumps, from_json  # noqa: PLC0415
        from bot.render.terminal import show  # noqa: PLC0415
        from bot.render.text_page import Reading  # noqa: PLC0415

        self.write(rng, folder)
        answer = diagnose_bundle(self.known, folder, workers=1)
        show(answer.report, Reading(verbose=True))
        from_json(dumps(answer.report, answer.timing))
        answer.timeline()

    def config(self, rng: random.Random, folder: Path) -> None:
        """Read a configuration."""
        from bot.config.file import read  # noqa: PLC0415

        path = folder / "signalbox.yaml"
        path.write_bytes(self._text("config", rng))
        read(path)

    def rule(self, rng: random.Random, folder: Path) -> None:
        """Load a rule."""
        from kb.rulebase.rulebook import load  # noqa: PLC0415

        del folder
        load({**self.base, "checkpoint/rule-x/rule.yaml": self._text("rule", rng).decode("utf-8", "replace")})

    def site(self, rng: random.Random, folder: Path) -> None:
        """Read an overlay."""
        from bot.rulebase.loader import site_files  # noqa: PLC0415
        from kb.rulebase.rulebook import load  # noqa: PLC0415

        (folder / "site.yaml").write_bytes(self._text("site", rng))
        found, _ = site_files(folder)
        load(self.base, found)

    def webhook(self, rng: random.Random, folder: Path) -> None:
        """Read an alert."""
        from bot.server.alert_payloads import read_webhook  # noqa: PLC0415

        del folder
        read_webhook(self._text("webhook", rng), ("run",))

    def hook(self, rng: random.Random, folder: Path) -> None:
        """Read the end of a job."""
        from bot.policy.job_end import read_ended  # noqa: PLC0415

        del folder
        read_ended(self._text("hook", rng), rng.choice(("", "application/json", "application/x-www-form-urlencoded")))

    def report(self, rng: random.Random, folder: Path) -> None:
        """Read a stored report."""
        from bot.render.report_json import from_json  # noqa: PLC0415

        del folder
        from_json(self._text("report", rng))

    def link(self, rng: random.Random, folder: Path) -> None:
        """Read a signed link."""
        from bot.pages.signed_links import read  # noqa: PLC0415

        del folder
        read("x" * 32, self._text("link", rng).decode("latin-1"), 0.0)

    def archive(self, rng: random.Random, folder: Path) -> None:
        """Unpack a pack."""
        from bot.retention.archive import is_sound, pack, unpack  # noqa: PLC0415

        self.write(rng, folder / "evidence")
        target = folder / "x.tar.zst"
        pack(folder / "evidence", target)
        target.write_bytes(bytewise(target.read_bytes(), rng))
        is_sound(target)
        unpack(target, folder / "again")

    def command(self, rng: random.Random, folder: Path) -> None:
        """Read a command of Slack."""
        from bot.slack.parsing.commands import read_diagnose  # noqa: PLC0415
        from bot.slack.parsing.job_names import jobs_named  # noqa: PLC0415

        del folder
        text = self._text("command", rng).decode("utf-8", "replace")
        read_diagnose(text)
        jobs_named({"text": text, "attachments": [{"fields": [{"value": text}]}]})


def _child(run: Callable[[random.Random, Path], None], seed: int, folder: Path) -> int:
    """Read one input. Returns the exit status."""
    from kb.errors import SignalboxError  # noqa: PLC0415

    resource.setrlimit(resource.RLIMIT_CPU, (CPU, CPU + 5))
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            run(random.Random(seed), folder)
    except SignalboxError:
        return REFUSED
    except BaseException:  # noqa: BLE001 - that is what is looked for
        (folder / "traceback.txt").write_text(traceback.format_exc(), errors="replace")
        return BROKEN
    return 0


def outcome(run: Callable[[random.Random, Path], None], seed: int, folder: Path) -> tuple[str, int]:
    """Return what became of one input, and the peak memory in kB."""
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        os._exit(_child(run, seed, folder))
    end = time.monotonic() + WALL
    nap = 0.001
    while True:
        ended, status, usage = os.wait4(child, os.WNOHANG)
        if ended:
            break
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.wait4(child, 0)
            _end_group(child)
            return "hang", 0
        time.sleep(nap)
        nap = min(0.05, nap * 1.5)
    _end_group(child)
    if os.WIFSIGNALED(status):
        return ("hang" if os.WTERMSIG(status) == signal.SIGXCPU else f"signal {os.WTERMSIG(status)}"), usage.ru_maxrss
    code = os.WEXITSTATUS(status)
    words = {0: "read", REFUSED: "refused", BROKEN: "traceback"}.get(code, f"status {code}")
    return ("memory" if usage.ru_maxrss > MEMORY else words), usage.ru_maxrss


def _end_group(child: int) -> None:
    with suppress(OSError):
        os.killpg(child, signal.SIGKILL)


def fuzz(count: int, seed: int, keep: Path, only: list[str], until: float) -> tuple[Counter[str], int]:
    """Read inputs until a count or a time of the monotonic clock. Returns the outcomes, and the largest peak memory in kB."""
    readers = Readers()
    kinds = [kind for kind in readers.kinds if not only or kind in only]
    found: Counter[str] = Counter()
    most = 0
    for number in range(count):
        if time.monotonic() > until:
            break
        rng = random.Random(seed * 1_000_003 + number)
        kind = "bundle" if "bundle" in kinds and rng.random() < 0.5 else rng.choice(kinds)
        folder = Path(tempfile.mkdtemp(prefix="signalbox-fuzz-"))
        try:
            what, memory = outcome(readers.kinds[kind], seed * 1_000_003 + number, folder)
            found[what] += 1
            most = max(most, memory)
            if what not in {"read", "refused"}:
                _report(kind, what, number, folder, keep)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if number % 500 == 499:
            print(f"{number + 1}: {dict(found)}, most memory {most >> 10} MB", flush=True)
    return found, most


def _report(kind: str, what: str, number: int, folder: Path, keep: Path) -> None:
    """Print a finding, and keep its input."""
    trace = folder / "traceback.txt"
    last = trace.read_text(errors="replace").strip().splitlines()[-1] if trace.exists() else ""
    print(f"{kind} {number}: {what} {last[:200]}", flush=True)
    keep.mkdir(parents=True, exist_ok=True)
    shutil.copytree(folder, keep / f"{kind}-{number}", dirs_exist_ok=True)


def main() -> int:
    """Return 1 if an input did harm."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--count", type=int, default=10_000)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--minutes", type=float, default=1e6, help="stop earlier")
    options.add_argument(
        "--keep", type=Path, default=ROOT / "bench" / "data" / "fuzz", help="folder of inputs that did harm"
    )
    options.add_argument("--only", default="", help="kinds of readers, with commas")
    given = options.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="signalbox-fuzz-") as state:
        os.environ |= {"SIGNALBOX_STATE": state, "TMPDIR": state}
        tempfile.tempdir = state
        only = [kind for kind in given.only.split(",") if kind]
        found, most = fuzz(given.count, given.seed, given.keep, only, began + 60 * given.minutes)
    bad = found.total() - found["read"] - found["refused"]
    print(
        f"{found.total()} inputs in {time.monotonic() - began:.0f} s: {dict(sorted(found.items()))}; "
        f"tracebacks {found['traceback']}, hangs {found['hang']}, over 1 GB {found['memory']}; most memory {most >> 10} MB"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
