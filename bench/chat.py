"""Fifty commands at once while diagnoses run: how long Slack waits for the acknowledgement.

The real `signalbox serve` on SQLite and, where it is installed, on PostgreSQL, against the double of Slack, and in the same run a bare
Bolt app that only acknowledges, as the lower bound. All of them share the machine with whatever else runs there, so the
table shows its load. With --kills, the worker and the sender are killed at every point of a diagnosis.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from sqlmodel import col, func, select

from bot.demo.fakeslack.rate_limits import unlimited
from bot.demo.fakeslack.ui.serve import serving
from bot.demo.fakeslack.values import App as ChatApp
from bot.demo.fakeslack.workspace import Workspace
from bot.queue.tasks import TaskQueue
from bot.slack.app import SCOPES, THREADS
from bot.store.tables import WorkRow
from tests.support.databases import postgres, program

ROOT = Path(__file__).parents[1]
CHANNEL, USER = "C0BENCH", "U0BENCH"
RUNNING = 8  # workers, each running a diagnosis while commands arrive
AT_ONCE = 50
STARTED = 900  # seconds within which the service listens, and its workers work; a machine under load takes minutes
PEER = "bare Bolt app"
CONFIG = """\
version: 1
collect: {{spool: {folder}/spool}}
clusters:
  main:
    connectors:
      recorded: {{type: bundles, folder: {folder}/runs}}
serve:
  listen: 127.0.0.1:0
  workers: {workers}
  slack:
    mode: {mode}
    bot_token: {{env: BENCH_BOT}}
    app_token: {{env: BENCH_APP}}
    signing_secret: {{env: BENCH_SECRET}}
    api: {api}/api/
tenants:
  default:
    channels: [{channel}]
"""


class Jobs:
    """Recorded failures under unused names."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._bundles = sorted(path for path in (ROOT / "tests" / "bundles").iterdir() if (path / "job.yaml").exists())
        self._lock = threading.Lock()
        self._own = secrets.token_hex(3)  # unknown even to a reused store
        self._count = 0

    def next(self) -> str:
        """One more."""
        with self._lock:
            self._count += 1
            name, bundle = f"run-{self._own}-{self._count}", self._bundles[self._count % len(self._bundles)]
        shutil.copytree(bundle, self._folder / "runs" / name)
        job = self._folder / "runs" / name / "job.yaml"
        lines = [text for text in job.read_text().splitlines() if not text.startswith(("id:", "name:"))]
        job.write_text("\n".join([f"id: {name}", f"name: {name}", *lines]) + "\n")
        return name


@contextmanager
def process(words: Sequence[str], env: dict[str, str], until: str) -> Iterator[str]:
    """Run a process until the block ends; yield the line that contains `until`."""
    one = subprocess.Popen(
        words, cwd=ROOT, env={**os.environ, **env}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert one.stdout is not None
    said: list[str] = []
    ready = threading.Event()

    def read() -> None:
        assert one.stdout is not None
        for line in one.stdout:
            said.append(line)
            if until in line:
                ready.set()

    reading = threading.Thread(target=read, daemon=True)
    reading.start()
    try:
        if not ready.wait(STARTED) or one.poll() is not None:
            raise SystemExit("it did not start:\n" + "".join(said))
        yield next(line for line in said if until in line)
    finally:
        one.terminate()
        try:
            one.wait(30)
        except subprocess.TimeoutExpired:
            one.kill()
            one.wait()
        reading.join(5)
        bad = [line for line in said if "ERROR" in line or "Traceback" in line]
        if bad:
            print(f"   {len(bad)} lines of errors in its log; the first: {bad[0].strip()[:200]}")


def workspace_of() -> Workspace:
    """Return a workspace with one person in one channel."""
    app = ChatApp(bot_token=f"xoxb-{secrets.token_hex(8)}", signing_secret=secrets.token_hex(16), scopes=SCOPES)
    made = Workspace(app, rates=unlimited(), patience=10.0)
    made.add_user(USER, "bench")
    made.add_channel(CHANNEL, "bench", [USER])
    return made


def burst(workspace: Workspace, jobs: Sequence[str], pool: ThreadPoolExecutor) -> list[float]:
    """Send all at once; return the seconds until each was acknowledged, as seen by Slack."""
    gate = threading.Barrier(len(jobs))

    def one(job: str) -> float:
        gate.wait()
        delivery = workspace.command(USER, CHANNEL, "/diagnose", job)
        return delivery.answers[0].seconds if delivery.acknowledged else 99.0

    return list(pool.map(one, jobs))


def running(url: str) -> tuple[int, int]:
    """Diagnoses that run, and those that wait."""
    with TaskQueue(url) as works:
        counts = works.counts()
    return counts.get("running", 0), counts.get("waiting", 0)


def hold(url: str, workspace: Workspace, jobs: Jobs) -> None:
    """Send commands until so many diagnoses run, and as many wait."""
    end = time.monotonic() + STARTED
    while time.monotonic() < end:
        busy, waiting = running(url)
        if busy >= RUNNING and waiting >= RUNNING:
            return
        if waiting < 2 * RUNNING:
            workspace.command(USER, CHANNEL, "/diagnose", jobs.next())
        else:
            time.sleep(0.1)
    raise SystemExit("the workers do not get to work")


def served(url: str, mode: str, rounds: int, folder: Path) -> list[float]:
    """Return the service itself."""
    workspace = workspace_of()
    (folder / "runs").mkdir(parents=True)
    jobs, config = Jobs(folder), folder / "signalbox.yaml"
    with ExitStack() as ends:
        api = ends.enter_context(serving(workspace, pages=False))
        if mode == "socket":
            from tests.doubles.slack_socket_mode import socket_mode  # noqa: PLC0415 - needs websockets

            link = ends.enter_context(socket_mode(workspace))
        config.write_text(CONFIG.format(folder=folder, workers=RUNNING, mode=mode, api=api, channel=CHANNEL))
        env = {"BENCH_BOT": workspace.app.bot_token, "BENCH_APP": workspace.app.app_token}
        env |= {"BENCH_SECRET": workspace.app.signing_secret, "SIGNALBOX_DATABASE": url}
        words = [sys.executable, "-m", "bot.cli.main", "serve", "--config", str(config)]
        said = ends.enter_context(process(words, env, "listening on "))
        if mode == "http":
            workspace.connect(f"http://{said.split('listening on ')[1].split()[0].rstrip(',')}/slack/events")
        else:
            workspace.until(lambda: link.connections)
        return measured(workspace, url, jobs, rounds)


def measured(workspace: Workspace, url: str, jobs: Jobs, rounds: int) -> list[float]:
    """Send rounds of commands, each all at once."""
    found: list[float] = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        hold(url, workspace, jobs)
        for _ in range(rounds):
            names = [jobs.next() for _ in range(AT_ONCE)]
            hold(url, workspace, jobs)
            before = running(url)[0]
            found += burst(workspace, names, pool)
            print(f"      {before} diagnoses ran, {running(url)[0]} after; load {os.getloadavg()[0]:.1f}", flush=True)
            # their diagnoses wait until the end of the measurement: those that run are what slows the next round down
    with TaskQueue(url) as works, works.database.session() as session:
        asked = session.exec(select(func.count()).where(col(WorkRow.kind) == "diagnose")).one()
        failed = session.exec(select(func.count()).where(col(WorkRow.state) == "failed")).one()
    print(f"      {asked} pieces of work of {len(workspace.deliveries)} commands, {failed} failed")
    return found


def bare(mode: str, rounds: int) -> list[float]:
    """Measure the peer: the same commands, answered by an app that does nothing else."""
    workspace = workspace_of()
    with ExitStack() as ends:
        api = ends.enter_context(serving(workspace, pages=False))
        if mode == "socket":
            from tests.doubles.slack_socket_mode import socket_mode  # noqa: PLC0415 - needs websockets

            link = ends.enter_context(socket_mode(workspace))
        env = {"BENCH_BOT": workspace.app.bot_token, "BENCH_APP": workspace.app.app_token, "BENCH_API": f"{api}/api/"}
        env |= {"BENCH_SECRET": workspace.app.signing_secret}
        words = [sys.executable, "-m", "bench.chat", "--bare", mode]
        said = ends.enter_context(process(words, env, "listening on "))
        if mode == "http":
            workspace.connect(f"http://{said.split()[-1]}/slack/events")
        else:
            workspace.until(lambda: link.connections)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            burst(workspace, ["warm"] * AT_ONCE, pool)
            return [value for _ in range(rounds) for value in burst(workspace, ["x"] * AT_ONCE, pool)]


def only_acknowledge(mode: str) -> None:
    """A Bolt app behind the same server with as many threads, or over Socket Mode."""
    from flask import Flask, request  # noqa: PLC0415 - of this process only
    from slack_bolt import App  # noqa: PLC0415
    from slack_bolt.adapter.flask import SlackRequestHandler  # noqa: PLC0415
    from slack_bolt.adapter.socket_mode import SocketModeHandler  # noqa: PLC0415
    from slack_sdk import WebClient  # noqa: PLC0415
    from waitress.server import create_server  # noqa: PLC0415

    client = WebClient(os.environ["BENCH_BOT"], base_url=os.environ["BENCH_API"])
    app = App(
        client=client,
        signing_secret=os.environ["BENCH_SECRET"],
        token_verification_enabled=False,
        listener_executor=ThreadPoolExecutor(THREADS),
    )
    app.command("/diagnose")(lambda ack: ack(text="Looking."))
    if mode == "socket":
        handler = SocketModeHandler(app, os.environ["BENCH_APP"])
        handler.client.web_client.base_url = os.environ["BENCH_API"]
        handler.connect()  # type: ignore[no-untyped-call]
        print("listening on Socket Mode", flush=True)
        threading.Event().wait()
    web, bolt = Flask("bare"), SlackRequestHandler(app)
    web.add_url_rule("/slack/events", "slack", lambda: bolt.handle(request), methods=["POST"])
    server = create_server(web, host="127.0.0.1", port=0, threads=THREADS)
    print(f"listening on 127.0.0.1:{server.effective_port}", flush=True)
    server.run()


def at(found: Sequence[float], share: float) -> float:
    """Return a quantile in milliseconds."""
    return sorted(found)[min(len(found) - 1, int(share * len(found)))] * 1000


def line(name: str, found: Sequence[float], floor: Sequence[float]) -> str:
    """Return a row of the table."""
    told = f"{name:24}{len(found):6}{at(found, 0.5):8.0f}{at(found, 0.99):8.0f}{max(found) * 1000:8.0f}"
    return f"{told}{at(found, 0.99) / at(floor, 0.99):10.1f}{os.getloadavg()[0]:8.1f}"


def kills() -> None:
    """A kill at every point of a diagnosis, each with a job of its own."""
    from _pytest.monkeypatch import MonkeyPatch  # noqa: PLC0415 - for environment variables alone

    from bot.rulebase.loader import knowledge  # noqa: PLC0415
    from tests.support.kill_points import WHOLE, expected, killed  # noqa: PLC0415
    from tests.support.mortal_worker import Lives  # noqa: PLC0415
    from tests.support.slack_stage import stage  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as name, MonkeyPatch.context() as patch:
        folder = Path(name)
        patch.setenv("SIGNALBOX_CACHE", str(folder / "cache"))
        url, known = f"sqlite:///{folder / 'signalbox.db'}", knowledge()
        lives = Lives(folder / "cache")
        with stage(folder, known, url, patch.setenv, bundles={}) as play:
            killed(play, lives, url, folder, "whole", [])
            points = lives.last.points
            left = [killed(play, lives, url, folder, f"job-{number}", [number]) for number in range(1, len(points) + 1)]
        lives.close()
    rest = [(where, pair) for where, pair in left if pair != WHOLE]
    print(f"killed at {len(points)} points of a diagnosis, SQLite")
    print(
        f"   answers lost {sum(pair.answers < 1 for _, pair in left)}, doubled {sum(pair.answers > 1 for _, pair in left)}"
    )
    print(
        f"   incidents lost {sum(pair.incidents < 1 for _, pair in left)}, doubled {sum(pair.incidents > 1 for _, pair in left)}"
    )
    print(f"   opening words left over {sum(pair.opened for _, pair in left)}")
    print(f"   files lost {sum(pair.texts < 1 for _, pair in left)}, doubled {sum(pair.texts > 1 for _, pair in left)}")
    print(f"   not as expected {sum(pair not in expected(where) for where, pair in left)}")
    for (where, item), count in Counter(rest).items():
        print(f"   {count} x {where}: {item}")


def main() -> None:
    """Measure, print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--socket", action="store_true", help="over Socket Mode too")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--kills", action="store_true", help="kill at every point, and measure nothing")
    parser.add_argument("--bare", help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    if wanted.bare:
        only_acknowledge(wanted.bare)
        return
    if wanted.kills:
        kills()
        return
    rows = []
    with tempfile.TemporaryDirectory(prefix="bench-chat-") as name, ExitStack() as ends:
        folder = Path(name)
        stores = {"SQLite": lambda part: f"sqlite:///{folder / part / 'signalbox.db'}"}
        if program("postgres") is None or program("initdb") is None:
            print("PostgreSQL is not installed, so only SQLite is measured")
        else:
            address = ends.enter_context(postgres(folder / "postgres"))
            stores["PostgreSQL"] = lambda _: address
        for mode in ("http", "socket") if wanted.socket else ("http",):
            floor = bare(mode, wanted.rounds)
            rows.append(line(f"{PEER}, {mode}", floor, floor))
            for store, url in stores.items():
                print(f"   {store}, {mode}", flush=True)
                part = f"{store}-{mode}"
                rows.append(line(f"{store}, {mode}", served(url(part), mode, wanted.rounds, folder / part), floor))
    print(f"{'milliseconds':24}{'n':>6}{'p50':>8}{'p99':>8}{'max':>8}{'p99/bare':>10}{'load':>8}")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
