"""The collector configurations that we ship: a sink that is down loses no line and doubles none."""

import json
import shutil
import subprocess
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from tests.support.paths import ROOT
from tests.support.ports import kept_port

COLLECTORS = ROOT / "deploy" / "collectors"
RSYSLOGD = shutil.which("rsyslogd") or shutil.which("rsyslogd", path="/usr/sbin:/sbin")
PLUGINS = ("omelasticsearch.so", "imfile.so", "fmhash.so")
needs_rsyslog = pytest.mark.skipif(
    RSYSLOGD is None or not all(list(Path("/usr/lib").glob(f"*/rsyslog/{plugin}")) for plugin in PLUGINS),
    reason="needs rsyslogd with omelasticsearch (Debian: rsyslog, rsyslog-elasticsearch)",
)
RANKS = 4


@dataclass
class Sink:
    """What Elasticsearch's bulk endpoint was sent: documents by index and id, and how many arrived in all."""

    port: int
    documents: dict = field(default_factory=dict)
    arrived: int = 0
    down: bool = False  # connections that are still open are hung up
    lose: int = 0  # so many answers are lost after the documents were taken
    refuse: int = 0  # so many documents are refused as too many
    sick: bool = False  # all that is asked is answered with 503, as a proxy does that stands before a sink that is down
    turned_away: int = 0  # so many requests were
    lock: threading.Lock = field(default_factory=threading.Lock)  # two queues may send at once

    def take(self, body):
        """Take a bulk request; gives the answer."""
        rows = body.decode().splitlines()
        with self.lock:
            items = [self.create(*pair) for pair in zip(rows[::2], rows[1::2], strict=True)]
        return {"took": 1, "errors": any("error" in item["create"] for item in items), "items": items}

    def create(self, action, document):
        """Take one document unless it is there or is refused; gives its item of the answer."""
        told = json.loads(action)
        assert set(told) == {"create"}, action
        about = told["create"]
        key = about["_index"], about["_id"]
        self.arrived += 1
        if key in self.documents:
            return {
                "create": about
                | {"status": 409, "error": {"type": "version_conflict_engine_exception", "reason": "exists"}}
            }
        if self.refuse:
            self.refuse -= 1
            return {
                "create": about
                | {"status": 429, "error": {"type": "es_rejected_execution_exception", "reason": "full"}}
            }
        self.documents[key] = json.loads(document)
        return {"create": about | {"status": 201}}


@pytest.fixture
def sink():
    """A sink that is down, and keeps its port."""
    with kept_port() as port:
        yield Sink(port)


@contextmanager
def serving(sink):
    """Serve the sink on its port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 1 << 16

        def log_message(self, *_):
            pass

        def do_GET(self):
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            if sink.down:
                self.close_connection = True
                return
            if sink.sick:
                sink.turned_away += 1
                self.send_error(503)
                return
            answer = json.dumps(sink.take(body) if self.path.startswith("/_bulk") else {"status": "green"}).encode()
            if self.path.startswith("/_bulk") and sink.lose:
                sink.lose -= 1
                self.close_connection = True
                return
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_POST = do_HEAD = do_GET  # noqa: N815 - the server's own names

    class Server(ThreadingHTTPServer):
        allow_reuse_address = True
        daemon_threads = True

    server = Server(("127.0.0.1", sink.port), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    sink.down = False
    try:
        yield
    finally:
        sink.down = True
        server.shutdown()
        server.server_close()


@contextmanager
def collecting(config):
    """Run rsyslogd in the foreground; it is ended as a service manager ends it: asked, and killed when it takes too long."""
    pid = config.with_suffix(".pid")
    pid.unlink(missing_ok=True)
    with subprocess.Popen([str(RSYSLOGD), "-n", "-f", str(config), "-i", str(pid)], stderr=subprocess.DEVNULL) as child:
        try:
            yield child
        finally:
            child.terminate()
            try:
                child.wait(2)
            except subprocess.TimeoutExpired:
                child.kill()


def configured(folder, port, changed=()):
    """The shipped configuration with other paths and a short pause."""
    (folder / "spool").mkdir()
    text = (COLLECTORS / "rsyslog.conf").read_text()
    changes = {
        "/var/spool/rsyslog": str(folder / "spool"),
        "/var/log/training-refused.log": str(folder / "refused.log"),
        "/var/log/training/": f"{folder}/training/",
        'serverport="9200"': f'serverport="{port}"',
        'action.resumeInterval="5"': 'action.resumeInterval="1"',
    } | dict(changed)
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    config = folder / "rsyslog.conf"
    config.write_text(text)
    return config


def write(folder, numbers):
    """Append numbered lines to the logs of all ranks."""
    job = folder / "training" / "llm-7b"
    job.mkdir(parents=True, exist_ok=True)
    for rank in range(RANKS):
        with (job / f"rank-{rank}.log").open("a") as log:
            log.writelines(f'step {number} of rank {rank} says "x\\y"\n' for number in numbers)


def queued(folder):
    """The bytes of the queue's files on disk, without its book."""
    return sum(path.stat().st_size for path in (folder / "spool").glob("training.0*"))


def wait_until(true, seconds=90.0):
    """Wait until the condition holds or time is up; the caller asserts the condition."""
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.05)


def received(sink):
    """Rank and number of each document."""
    return sorted((document["rank"], int(document["message"].split()[1])) for document in sink.documents.values())


def written(count):
    """Rank and number of each line when so many were written for each rank."""
    return [(str(rank), number) for rank in range(RANKS) for number in range(count)]


@needs_rsyslog
def test_rsyslog_knows_its_configuration():
    """The shipped file is one that rsyslogd takes as it is."""
    ran = subprocess.run(
        [str(RSYSLOGD), "-N1", "-f", str(COLLECTORS / "rsyslog.conf")], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, [line for line in ran.stderr.splitlines() if "error" in line]) == (0, [])


@needs_rsyslog
def test_an_outage_with_a_restart_and_a_crash_loses_and_doubles_no_line(sink, tmp_path):
    """Lines written while the sink is down wait on disk, also over a restart and a crash, and arrive once each, labelled."""
    config = configured(tmp_path, sink.port)
    with collecting(config) as stopped:
        with serving(sink):
            write(tmp_path, range(100))
            wait_until(lambda: len(sink.documents) == 100 * RANKS)
        assert received(sink) == written(100)
        write(tmp_path, range(100, 2100))
        wait_until(lambda: queued(tmp_path) > 2000 * RANKS * 100)
        assert queued(tmp_path) > 2000 * RANKS * 100, "the lines of the outage are not on disk"
        time.sleep(4.0)  # the sink is tried again and again
    assert stopped.returncode == -9, "it ended by itself: then it drops the batch under way"
    with collecting(config) as crashed:
        write(tmp_path, range(2100, 4100))
        wait_until(lambda: queued(tmp_path) > 3000 * RANKS * 100)
        crashed.kill()
    with collecting(config):
        write(tmp_path, range(4100, 4300))
        time.sleep(4.0)
        sink.lose, sink.refuse = 1, 50
        with serving(sink):
            wait_until(lambda: len(sink.documents) == 4300 * RANKS)
            write(tmp_path, range(4300, 4500))
            wait_until(lambda: len(sink.documents) == 4500 * RANKS)
            time.sleep(1.0)  # for what might come twice
    assert received(sink) == written(4500)
    assert (sink.lose, sink.refuse) == (0, 0), (
        "no answer was lost, or nothing refused: the test shows less than it says"
    )
    assert {document["job"] for document in sink.documents.values()} == {"llm-7b"}
    first = next(document for document in sink.documents.values() if document["rank"] == "1")
    assert set(first) == {"@timestamp", "message", "job", "rank", "node", "file", "offset"}
    assert all(document["message"].endswith('says "x\\y"') for document in sink.documents.values())
    assert not (tmp_path / "refused.log").exists()


# Not smaller: rsyslog puts up to 1,024 lines at once into a queue, and stands still if these alone fill it.
SMALL = {'queue.maxDiskSpace="10g"': 'queue.maxDiskSpace="1m" queue.maxFileSize="100k"'}


def fill(folder):
    """Write 1,500 lines for each rank: more than a small queue holds; the first few get its sender going."""
    write(folder, range(10))
    wait_until(lambda: queued(folder) > 0)
    write(folder, range(10, 1500))
    wait_until(lambda: queued(folder) > 1_000_000)
    assert 1_000_000 < queued(folder) < 1_200_000, "the queue is not full, or takes more than it may"


@needs_rsyslog
def test_a_queue_that_is_full_stops_the_reading_and_drops_no_line(sink, tmp_path):
    """Lines that find no space in the queue wait in their files, and arrive once each."""
    config = configured(tmp_path, sink.port, SMALL)
    with collecting(config):
        fill(tmp_path)
        time.sleep(3.0)  # longer than rsyslog waits for space if it is not told to wait for ever
        with serving(sink):
            wait_until(lambda: len(sink.documents) == 1500 * RANKS)
            time.sleep(0.5)
    assert received(sink) == written(1500)


@pytest.mark.slow  # test_an_outage_with_a_restart_and_a_crash_loses_and_doubles_no_line
@needs_rsyslog
def test_files_that_are_read_again_bring_back_what_was_lost_and_double_nothing(sink, tmp_path):
    """What a proxy's 503 and a kill with a full queue cost comes back when the files are read from their beginning."""
    config = configured(tmp_path, sink.port, SMALL)
    with collecting(config):
        with serving(sink):
            sink.sick = True
            write(tmp_path, range(1500, 1600))
            wait_until(lambda: sink.turned_away > 0)
            time.sleep(1.0)
            sink.sick = False
            write(tmp_path, range(1600, 1700))
            wait_until(lambda: len(sink.documents) >= 100 * RANKS)
        fill(tmp_path)
    for pattern in ("imfile-state*", "training.*", "refused.*"):  # as docs/collecting-logs.md says it
        for path in (tmp_path / "spool").glob(pattern):
            path.unlink()
    with collecting(config), serving(sink):
        wait_until(lambda: len(sink.documents) == 1700 * RANKS)
        time.sleep(0.5)
    assert received(sink) == written(1700)


def test_the_others_are_read_as_what_they_are():
    """The YAML files are YAML, and each says that it is untested."""
    for name in ("fluent-bit.yaml", "vector.yaml"):
        assert isinstance(yaml.safe_load((COLLECTORS / name).read_text()), dict)
    for name in ("fluent-bit.yaml", "vector.yaml", "alloy.alloy"):
        assert "Untested" in (COLLECTORS / name).read_text()
