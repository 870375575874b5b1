"""Measures large pages: a synthetic hang of 1,024 ranks as an incident page, and the overview of 100,000 incidents.

    python bench/pages.py [--ranks 1024] [--incidents 100000] [--keep DIR]

0 leaves a part out. Prints the page's bytes, the seconds to make it and to open it in Chromium (where there is one),
and the milliseconds that the overview takes, with and without filters. The hang is made up: all ranks log, one stands
in its data loader, the others wait in an all-reduce; three rounds of stacks, six metrics of 128 nodes for half an hour.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import insert

from bot.diagnosis.diagnose import diagnose_bundle
from bot.incidents.ledger import Ledger
from bot.pages.attachments import read, small
from bot.pages.incident import incident_page, words_of
from bot.pages.overview import overview_page
from bot.rulebase.loader import knowledge
from bot.store.tables import IncidentRow

BEGUN = 1_794_000_000.0
EIGHT = 8  # GPUs of a node
STUCK = 517
SITE = "/opt/venv/lib/python3.11/site-packages"
METRICS = {
    "DCGM_FI_DEV_GPU_UTIL": 97.0,
    "DCGM_FI_DEV_POWER_USAGE": 610.0,
    "DCGM_FI_DEV_GPU_TEMP": 61.0,
    "DCGM_FI_DEV_FB_USED": 70000.0,
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.5,
    "DCGM_FI_DEV_SM_CLOCK": 1755.0,
}


def clock(seconds: float) -> str:
    """Return a time as logs write it."""
    return datetime.fromtimestamp(BEGUN + seconds, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")


def frames(*calls: tuple[str, str, int]) -> list[dict[str, object]]:
    """Frames as py-spy writes them, innermost first."""
    return [{"name": name, "filename": file, "line": line} for name, file, line in calls]


def make(folder: Path, ranks: int) -> Path:
    """Return the bundle of a hang."""
    chance = random.Random(20261122)
    (folder / "logs").mkdir(parents=True)
    steps = 200
    loss = [2.1 + 4.0 * 0.99**step for step in range(steps)]
    for rank in range(ranks):
        stop = steps - 1 if rank == STUCK % ranks else steps
        lines = [
            f" [{clock(10 * step + chance.random() / 5)}] iteration {step + 1:8d}/   90000 | elapsed time per iteration (ms): "
            f"{10000 + chance.gauss(0, 60):.1f} | learning rate: 3.000000E-04 | global batch size:  4096 | lm loss: "
            f"{loss[step] + chance.gauss(0, 0.004):.6E} | grad norm: {0.5 + chance.random() / 10:.3f} | number of nan iterations:   0 |"
            for step in range(stop)
        ]
        (folder / "logs" / f"rank-{rank}.log").write_text("\n".join(lines) + "\n")
    main = (
        ("train_step", "/srv/lm/train.py", 120),
        ("main", "/srv/lm/train.py", 210),
        ("<module>", "/srv/lm/train.py", 240),
    )
    waits = frames(
        ("all_reduce", f"{SITE}/torch/distributed/distributed_c10d.py", 2806),
        ("wrapper", f"{SITE}/torch/distributed/c10d_logger.py", 83),
        *main,
    )
    loads = frames(
        ("wait", "/usr/lib/python3.11/threading.py", 327),
        ("get", "/usr/lib/python3.11/queue.py", 180),
        ("_try_get_data", f"{SITE}/torch/utils/data/dataloader.py", 1243),
        ("__next__", f"{SITE}/torch/utils/data/dataloader.py", 708),
        *main[1:],
    )
    for sample in (1, 2, 3):
        (folder / "stacks" / str(sample)).mkdir(parents=True)
        for rank in range(ranks):
            own = {"pid": 1000 + rank, "thread_id": 1, "thread_name": "MainThread", "active": False, "owns_gil": False}
            stack = [{**own, "frames": loads if rank == STUCK % ranks else waits}]
            (folder / "stacks" / str(sample) / f"rank-{rank}.json").write_text(json.dumps(stack))
    (folder / "metrics").mkdir()
    end = 10 * steps + 600
    for name, usual in METRICS.items():
        result = []
        for rank in range(ranks):
            labels = {
                "__name__": name,
                "Hostname": f"gpu-{rank // EIGHT:03d}",
                "gpu": str(rank % EIGHT),
                "rank": str(rank),
            }
            values = [
                [
                    BEGUN + at,
                    f"{usual * (0.1 if at > 10 * steps - 10 and rank == STUCK % ranks else 1) + chance.gauss(0, usual / 100):.4f}",
                ]
                for at in range(end - 1800, end, 60)
            ]
            result.append({"metric": labels, "values": values})
        body = {"status": "success", "data": {"resultType": "matrix", "result": result}}
        (folder / "metrics" / f"{name}.json").write_text(json.dumps(body))
    nodes = {f"gpu-{node:03d}": list(range(EIGHT * node, EIGHT * node + EIGHT)) for node in range(ranks // EIGHT)}
    job = {
        "id": "90210", "name": "llm-405b-pretrain", "framework": "megatron-lm", "world_size": ranks, "state": "RUNNING",
        "start": f"{clock(-120)[:19].replace(' ', 'T')}Z", "collected_at": f"{clock(end)[:19].replace(' ', 'T')}Z",
        "nodes": nodes, "log_interval": 1,
        "samples": {str(item): f"{clock(end - 60 + 20 * item)[:19].replace(' ', 'T')}Z" for item in (1, 2, 3)},
    }  # fmt: skip
    (folder / "job.yaml").write_text(json.dumps(job))  # JSON is YAML
    return folder


def opened(page: Path) -> list[float] | None:
    """Return the seconds to open a page in Chromium; None without Chromium."""
    try:
        from selenium import webdriver  # noqa: PLC0415
    except ImportError:
        return None
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not driver:
        return None
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    with tempfile.TemporaryDirectory() as profile:
        for flag in (
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            f"--user-data-dir={profile}",
        ):
            options.add_argument(flag)
        browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
        try:
            found = []
            for _ in range(5):
                browser.get("about:blank")
                begun = time.perf_counter()
                browser.get(page.as_uri())
                browser.execute_script("return document.body.offsetHeight")
                found.append(time.perf_counter() - begun)
            return found
        finally:
            browser.quit()


def page_of(folder: Path, ranks: int) -> None:
    """The figures of the incident page."""
    bundle = make(folder / "hang", ranks)
    known = knowledge()
    answer = diagnose_bundle(known, bundle, workers=2)
    report = answer.report
    print(
        f"{ranks:,} ranks: {report.verdict}, hang {'called' if report.hang.called else 'not called'}: {report.summary}"
    )
    begun = time.perf_counter()
    kept = small(answer)
    looked = time.perf_counter() - begun
    begun = time.perf_counter()
    page = folder / "hang.html"
    page.write_text(incident_page(report, read(kept.get), words=words_of(known)), encoding="utf-8")
    took = time.perf_counter() - begun
    sizes = ", ".join(f"{name} {len(data) / 1e3:.0f} kB" for name, data in kept.items())
    print(f"kept: {sizes}, made in {looked:.1f} s after a diagnosis of {answer.timing['total_s']:.1f} s")
    print(f"page: {page.stat().st_size / 1e6:.2f} MB, made in {took:.2f} s")
    seconds = opened(page)
    print(
        "no Chromium to open it in"
        if seconds is None
        else f"opened in {statistics.median(seconds):.2f} s ({max(seconds):.2f} at most of 5)"
    )


ASKED: tuple[dict[str, str], ...] = (
    {},
    {"weeks": "0"},
    {"weeks": "0", "page": "200"},
    {"weeks": "0", "fault": "gpu_memory_ecc"},
    {"weeks": "0", "node": "gpu-0042"},
    {"weeks": "0", "job": "no such job"},
    {"weeks": "0", "state": "pinned"},
    {"weeks": "0", "state": "open"},
    {"weeks": "0", "state": "snoozed"},
)


def overview_of(folder: Path, count: int) -> None:
    """Return the figures of the overview: a year of incidents, each query seven times."""
    chance = random.Random(20261122)
    known = knowledge()
    faults = [str(fault) for fault in known.rulebook.faults]
    now = datetime.fromtimestamp(BEGUN, UTC)
    ages = sorted((chance.random() * 365 * 86400 for _ in range(count)), reverse=True)
    with Ledger(f"sqlite:///{folder / 'incidents.db'}") as ledger:
        for first in range(0, count, 5000):
            rows = [
                _row(chance, at, now - timedelta(seconds=ages[at]), faults)
                for at in range(first, min(count, first + 5000))
            ]
            with ledger.database.session(write=True) as session:
                session.execute(insert(IncidentRow), rows)
        words = words_of(known)
        for asked in ASKED:
            taken = []
            for _ in range(7):
                begun = time.perf_counter()
                page = overview_page(
                    ledger.database, "default", asked, now, words=words, to=lambda item: f"https://bot.example/{item}"
                )
                taken.append(1e3 * (time.perf_counter() - begun))
            told = ", ".join(f"{name} {value}" for name, value in asked.items()) or "the last 4 weeks"
            print(
                f"overview of {count:,}, {told}: {statistics.median(taken):.0f} ms ({max(taken):.0f} at most), {len(page) / 1e3:.0f} kB"
            )


def _row(chance: random.Random, at: int, when: datetime, faults: list[str]) -> dict[str, object]:
    """Return an incident."""
    node = f"gpu-{chance.randrange(2000):04d}"
    fault = chance.choice(faults) if chance.random() < 0.9 else None
    return {
        "created_at": when, "report_id": f"r{at}", "fingerprint": f"f{at % 997}", "rulebook_digest": "d", "phase": "failed",
        "job_id": str(40_000 + at // 3), "job_name": f"llm-{chance.choice((7, 13, 70, 405))}b", "bundle": f"/spool/{at}",
        "verdict": "fault" if fault else "no_match", "fault": fault, "rule": "a-rule", "tenant": "default", "gpus": 64,
        "summary": f"What happened on {node}, told as reports do: GPU 3 fell off the bus while rank 17 waited in an all-reduce.",
        "gpu_hours_lost": 40 * chance.random(), "closed_at": when if chance.random() < 0.4 else None, "pinned": False,
        "nodes": f'["{node}"]',
    }  # fmt: skip


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--incidents", type=int, default=100_000)
    parser.add_argument("--keep", type=Path)
    asked = parser.parse_args()
    folder = asked.keep or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    try:
        if asked.incidents:
            overview_of(folder, asked.incidents)
        if asked.ranks:
            page_of(folder, asked.ranks)
    finally:
        if asked.keep is None:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
