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

COLLECTORS = Path(__file__).parents[2] / "deploy" / "collectors"
RSYSLOGD = shutil.which("rsyslogd") or shutil.which("rsyslogd", path="/usr/sbin:/sbin")
PLUGINS = ("omelasticsearch.so", "imfile.so", "fmhash.so")
needs_rsyslog = pytest.mark.skipif(
    RSYSLOGD is None or not all(list(Path("/usr/lib").glob(f"*/rsyslog/{one}")) for one in PLUGINS),
    reason="needs rsyslogd with omelasticsearch (Debian: rsyslog, rsyslog-elasticsearch)",
)


@dataclass
class Sink:
    """What Elasticsearch's bulk endpoint was sent: documents by index and id, and how many arrived in all."""

    port: int
    documents: dict = field(default_factory=dict)
    arrived: int = 0
    lose: int = 0  # so many answers are lost after the documents were taken

    def take(self, body):
        """Take a bulk request; gives the answer."""
        rows = body.decode().splitlines()
        items = []
        for action, document in zip(rows[::2], rows[1::2], strict=True):
            (verb, about), *_ = json.loads(action).items()
            assert verb == "index", action
            self.documents[about["_index"], about["_id"]] = json.loads(document)
            self.arrived += 1
            items.append({verb: {"_index": about["_index"], "_id": about["_id"], "status": 201}})
        return {"took": 1, "errors": False, "items": items}


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
    sink.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def collecting(config, pid):
    """Run rsyslogd in the foreground; ended as a service manager ends it."""
    with subprocess.Popen([RSYSLOGD, "-n", "-f", str(config), "-i", str(pid)], stderr=subprocess.DEVNULL) as child:
        try:
            yield
        finally:
            child.terminate()
            child.wait(20)


def configured(folder, port):
    """The shipped configuration with other paths, a small queue, so that the disk is used, and a short pause."""
    text = (COLLECTORS / "rsyslog.conf").read_text()
    changes = {
        "/var/spool/rsyslog": str(folder / "spool"),
        "/var/log/training/": f"{folder}/training/",
        'serverport="9200"': f'serverport="{port}"',
        'action.resumeInterval="5"': 'action.resumeInterval="1"',
        'queue.size="100000"': 'queue.size="300"',
        'queue.dequeueBatchSize="1000"': 'queue.dequeueBatchSize="100"',
        'queue.timeoutShutdown="5000"': 'queue.timeoutShutdown="500"',
    }
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    config = folder / "rsyslog.conf"
    config.write_text(text)
    return config


def write(folder, numbers):
    """Append numbered lines to the logs of two ranks."""
    job = folder / "training" / "llm-7b"
    job.mkdir(parents=True, exist_ok=True)
    for rank in (0, 1):
        with (job / f"rank-{rank}.log").open("a") as log:
            log.writelines(f'step {number} of rank {rank} says "x\\y"\n' for number in numbers)


def wait_for(sink, count, seconds=30.0):
    """Wait until so many documents are there."""
    end = time.monotonic() + seconds
    while len(sink.documents) < count and time.monotonic() < end:
        time.sleep(0.05)


@needs_rsyslog
def test_rsyslog_knows_its_configuration():
    """The shipped file is one that rsyslogd takes as it is."""
    ran = subprocess.run(
        [RSYSLOGD, "-N1", "-f", str(COLLECTORS / "rsyslog.conf")], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, [line for line in ran.stderr.splitlines() if "error" in line]) == (0, [])


@needs_rsyslog
def test_a_sink_that_is_down_loses_and_doubles_no_line(tmp_path):
    """Lines written while the sink is down, and the collector is started again meanwhile, arrive once each, labelled."""
    (tmp_path / "spool").mkdir()
    sink = Sink(0)
    with serving(sink):
        config = configured(tmp_path, sink.port)
        write(tmp_path, range(100))
        with collecting(config, tmp_path / "pid"):
            wait_for(sink, 200)
            assert len(sink.documents) == 200
    with collecting(config, tmp_path / "pid"):
        write(tmp_path, range(100, 1100))
        time.sleep(2.0)
    assert list((tmp_path / "spool").glob("training.*")), "nothing was kept on disk"
    sink.lose = 1
    with collecting(config, tmp_path / "pid"):
        write(tmp_path, range(1100, 1500))
        with serving(sink):
            wait_for(sink, 3000)
            time.sleep(1.0)  # for what might come twice
    told = sorted((one["rank"], int(one["message"].split()[1])) for one in sink.documents.values())
    assert told == [(str(rank), number) for rank in (0, 1) for number in range(1500)]
    assert sink.arrived > len(sink.documents), "no answer was lost: the test shows less than it says"
    assert {one["job"] for one in sink.documents.values()} == {"llm-7b"}
    first = next(one for one in sink.documents.values() if one["rank"] == "1")
    assert set(first) == {"@timestamp", "message", "job", "rank", "node", "file", "offset"}
    assert first["message"].endswith('says "x\\y"')


def test_the_others_are_read_as_what_they_are():
    """The YAML files are YAML, and each says that it is unchecked."""
    for name in ("fluent-bit.yaml", "vector.yaml"):
        assert isinstance(yaml.safe_load((COLLECTORS / name).read_text()), dict)
    for name in ("fluent-bit.yaml", "vector.yaml", "alloy.alloy"):
        assert "Unchecked" in (COLLECTORS / name).read_text()
