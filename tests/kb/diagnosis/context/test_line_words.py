"""What a decisive line states, whatever its rule."""

from __future__ import annotations

import pytest

from kb.diagnosis.context.line_words import of_lines, with_end, with_worker
from kb.facts.patterns.signals import Signal
from kb.model import Resource
from kb.rulebase.circumstances import OF_FINDING

ALL = frozenset(OF_FINDING)


@pytest.mark.parametrize(
    ("line", "stated"),
    [
        ("timed out while trying to connect to (cn-1, 29400).", {"to_host": "cn-1", "to_port": "29400", "connection": "timed_out"}),
        ("failed to bind to [::]:6000 (errno: 98)", {"to_port": "6000"}),
        ("403 Client Error for url: https://huggingface.co/org/m-7b/resolve/main/x", {"service": "huggingface.co", "repository": "org/m-7b"}),
        ("\x1b[0;31mRuntimeError\x1b[0m: The size of tensor a (4) must match the size of tensor b (2)", {"shapes": "4 and 2"}),
        ("ValueError: Unknown optimizer: adamww", {"named": "adamww"}),
        ("HTTPSConnectionPool(host='hub.example', port=443): Connection refused", {"to_host": "hub.example", "connection": "refused"}),
        ("[Errno 28] No space left on device: '/a/model.bin' -> '/b/staging'", {"path": "/b/staging"}),
        ("OSError: [Errno 28] No space left on device: 'out/step-4.pt'", {"path": "out/step-4.pt"}),
        ("mkdir: cannot create directory \u2018/srv/out\u2019: No space left on device", {"path": "/srv/out"}),
        ("write /var/lib/cache/layer-7: no space left on device", {"path": "/var/lib/cache/layer-7"}),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'lists/train.txt'", {"missing": "lists/train.txt"}),
        ("ValueError: /data/shards/7.tar does not exist", {"missing": "/data/shards/7.tar"}),
        ("OSError: /srv/model does not appear to have a file named config.json. Checkout", {"missing": "config.json"}),
        ("Tried to allocate 3.00 GiB (GPU 0; 15.90 GiB total capacity; 8.00 GiB already allocated; 2.00 GiB free; 10.50 GiB reserved in total by PyTorch)", {"memory": "fragmented", "unused": "2.50 GiB"}),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/scratch/tmpa1b2c3d4/ckpt/x.pt'", {"missing": "/scratch/tmpa1b2c3d4/ckpt/x.pt", "temp": "yes"}),
        ("Tried to allocate 72 MiB. A total capacity of 40 GiB, 9 MiB is free. Process has 39.99 GiB memory in use; 380 MiB is reserved by PyTorch but unallocated", {"memory": "full", "holder": "own"}),
        ("Tried to allocate 9 GiB. A total capacity of 80 GiB of which 4 GiB is free. this process has 75.5 GiB memory in use. and 7 GiB is reserved by PyTorch but unallocated", {"memory": "fragmented", "holder": "own"}),
        ("Tried to allocate 9 GiB. A total capacity of 80 GiB of which 4 GiB is free. this process has 45.5 GiB memory in use. and 7 GiB is reserved by PyTorch but unallocated", {"memory": "fragmented", "holder": "others"}),
        ("Tried to allocate 12.63 GiB (GPU 3; 79.17 GiB total capacity; 63.77 GiB already allocated; 11.35 GiB free; 65.52 GiB reserved in total by PyTorch)", {"memory_of": "gpu", "free": "11.35 GiB"}),
        ("Tried to allocate 20.00 MiB (GPU 0; 80.00 GiB total capacity; 230 MiB already allocated; 19 MiB free; 270.00 MiB reserved in total by PyTorch)", {"memory": "others", "foreign": "79.72 GiB"}),
        ("Tried to allocate 2.00 GiB (GPU 0; 80.00 GiB total capacity; 50 GiB already allocated; 1.00 GiB free; 50.1 GiB reserved in total by PyTorch)", {"memory": "others", "foreign": "28.90 GiB"}),
        ("Tried to allocate 80 MiB. A total capacity of 40 GiB of which 17 MiB is free. Process 39 has 17.5 GiB memory in use. Including non-PyTorch memory, this process has 22.4 GiB memory in use. Of the allocated memory 19.3 GiB is allocated by PyTorch, and 29 MiB is reserved by PyTorch but unallocated", {"memory": "others", "holder": "others", "foreign": "17.58 GiB"}),
        ("Tried to allocate 80 MiB. A total capacity of 40 GiB of which 17 MiB is free. Process 39 has 39.9 GiB memory in use. Of the allocated memory 38 GiB is allocated by PyTorch, and 29 MiB is reserved by PyTorch but unallocated", {"memory": "full", "holder": "own"}),
        ("Tried to allocate 2.00 MiB (GPU 0; 7.79 GiB total capacity; 6.81 GiB already allocated; 2.19 MiB free; 6.83 GiB reserved in total by PyTorch)", {"memory": "pieces"}),
        ("Tried to allocate 128.00 MiB. GPU 0 has a total capacity of 23.65 GiB of which 36.6 MiB is free. Process 71 has 17.7 GiB memory in use. Process 72 has 5.88 GiB memory in use. Of the allocated memory 5.4 GiB is allocated by PyTorch, and 2.1 MiB is reserved by PyTorch but unallocated", {"memory": "others", "holder": "others", "foreign": "17.73 GiB"}),
        ("Tried to allocate 4.00 GiB. GPU 0 has a total capacity of 24.00 GiB of which 0 bytes is free. Including non-PyTorch memory, this process has 23.9 GiB memory in use. and 298 MiB is reserved by PyTorch but unallocated", {"memory": "full", "holder": "own"}),
        ("ImportError: it requires `fastmap`. Try `pip install fastmap`", {"package": "fastmap"}),
        ("Key 'alpha' was not looked for", {}),
        ("[rank2]: hydra.errors.ConfigAttributeError: Key 'lr' is not in struct.", {"says": "Key 'lr' is not in struct"}),
        ("train.py: error: unrecognized arguments: --keep-last 5", {"says": "unrecognized arguments: --keep-last 5"}),
        ("Loss.cu:10: block: [6,0,0], thread: [0,0,0] Assertion `x >= zero && x <= one` failed.", {"says": "x >= zero && x <= one"}),
        (f"ValueError: {'word ' * 50}", {"says": f"{'word ' * 31}word ..."}),
        ("Out of memory error on GPU 0. Cannot allocate 5.3GB memory on GPU 0, available memory is only 4.2GB.", {"free": "4.2GB"}),
        ("Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.94 GiB is free.", {"free": "1.94 GiB"}),
        ("failed initializing StreamExecutor for CUDA device ordinal 3: Internal: failed call", {"device_name": "GPU 3 as its process counts them"}),
        ("amdgpu 0000:1c:00.0: {1}uncorrectable hardware error", {"device_name": "GPU 0000:1c:00.0"}),
        ("NVRM: GPU6 _kgspIsHeartbeatTimedOut: Heartbeat", {"device_name": "GPU 6"}),
        ("OSError: We couldn't connect to 'http://127.0.0.1:9' to load the files", {"service": "127.0.0.1:9", "endpoint": "loopback"}),
        ("ConnectTimeout: HTTPConnectionPool(host='localhost', port=8118): Max retries", {"endpoint": "loopback"}),
        ("couldn't connect to 'https://localhost.example.org' to load", {"service": "localhost.example.org", "endpoint": ""}),
        ("Duplicate GPU detected : rank 2 and rank 0 both on CUDA device 4000", {"memory_of": "gpu"}),
        ("HTTPError: 404 Client Error: Not Found for url: https://files.example.org/v3/vocab.json?rev=2", {"url": "https://files.example.org/v3/vocab.json"}),
        ("NotFound: 404 GET https://storage.example.org/b/x: No such object: b/x", {"url": "https://storage.example.org/b/x"}),
        ("HTTPError: 403 Client Error: Forbidden for url: https://files.example.org/404/vocab.json", {"service": "files.example.org", "url": ""}),
        ("Worker IP address: 10.0.0.8 Worker port: 4 Worker PID: 26109", {"worker_ip": "10.0.0.8", "worker_pid": "26109"}),
        ("The object's owner has exited. Check cluster logs (`*01*` at IP address 10.0.0.8) for more", {"worker_ip": "10.0.0.8", "worker_pid": ""}),
        ("The actor died.\n\tclass_name: Sampler\n\tpid: 77\n\tip: 10.0.0.8", {"worker_class": "Sampler", "worker_ip": "10.0.0.8", "worker_pid": "77"}),
        ("RayTaskError(KeyError): ray::Sampler.draw() (pid=77, ip=10.0.0.8)", {"worker_class": "Sampler", "worker_pid": "77"}),
        ("Tried to allocate .... GiB. GPU 0; ... GiB free", {"memory_of": "gpu", "device_name": "GPU 0"}),
        ("Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 63.42 GiB of which 1.20 GiB is free. 60.25 GiB allowed; Of the allocated memory 59.76 GiB is allocated by PyTorch", {"memory": "capped", "cap": "60.25 GiB"}),
    ],
)  # fmt: skip
def test_only_what_the_line_states_is_told(line: str, stated: dict[str, str]) -> None:
    """An address of all interfaces is no host, and of a copy the target counts."""
    found = of_lines((Signal("rule#line", 0, 0, line, "line", Resource()),), ALL)

    assert {name: found.get(name, "") for name in stated} == stated
    assert bool(stated) or not any(found.values())


def test_memory_outside_an_allocator_is_not_said_to_be_anothers() -> None:
    """Releases before 2.1 do not count what the context and the libraries of the process hold."""
    line = "Tried to allocate 12.6 GiB (GPU 3; 79.2 GiB total capacity; 63.8 GiB already allocated; 11.3 GiB free; 65.5 GiB reserved in total by PyTorch)"

    assert of_lines((Signal("rule#line", 0, 0, line, "line", Resource()),), frozenset({"memory", "holder"})) == {}


def test_an_exception_that_is_passed_on_says_what_the_worker_said() -> None:
    """The line of the reader names the worker only."""
    said = {0: "Caught KeyError in DataLoader worker process 3.", 9: "'label of row 8'"}
    signals = tuple(
        Signal(
            "rule#line",
            0,
            at,
            f"KeyError: {text}",
            "exception",
            Resource(),
            captures={"type": "KeyError", "message": text},
        )
        for at, text in said.items()
    )

    assert of_lines(signals, frozenset({"says"})) == {"says": "'label of row 8'"}
    assert "worker process 3" in of_lines(signals[:1], frozenset({"says"}))["says"]


def test_of_a_raise_in_a_traceback_the_exceptions_own_line_says_what_failed() -> None:
    """A rule may match the source line, which holds the same words."""
    lines = {0: '    raise ValueError("no half gradients")', 60: "ValueError: no half gradients"}
    signals = tuple(Signal("rule#line", 0, at, line, "line", Resource()) for at, line in lines.items())

    assert of_lines(signals, frozenset({"says"})) == {"says": "no half gradients"}


def test_figures_of_memory_are_those_of_the_first_line_that_has_them() -> None:
    """A data-parallel replica's exception is announced by a line without figures."""
    lines = (
        "Caught OutOfMemoryError in replica 0 on device 0.",
        "Tried to allocate 512 MiB. GPU 0 has a total capacity of 63 GiB of which 1.20 GiB is free. 60.25 GiB allowed",
    )
    signals = tuple(Signal("rule#line", 0, at, line, "line", Resource()) for at, line in enumerate(lines))

    assert of_lines(signals, frozenset({"memory"})) == {"memory": "capped", "cap": "60.25 GiB"}


def test_what_is_not_asked_for_is_not_looked_for() -> None:
    """Expressions are compiled when they are first used."""
    line = "connect to (cn-1, 29400): Connection refused"

    assert of_lines((Signal("rule#line", 0, 0, line, "line", Resource()),), frozenset({"to_port", "frame"})) == {
        "to_host": "cn-1",
        "to_port": "29400",
    }


def test_all_devices_that_lines_name_are_named() -> None:
    """One of several is not the one at fault; a line that names none says nothing of the others."""
    lines = ("habanalabs hl2: CPU-CP timeout", "the node is drained", "habanalabs hl6: CPU-CP timeout")
    signals = [Signal("rule#line", 0, at, line, "line", Resource()) for at, line in enumerate(lines)]

    assert of_lines(signals, frozenset({"device_name"})) == {"device_name": "Gaudi hl2 and Gaudi hl6"}


def test_the_other_end_is_taken_from_other_lines_where_they_agree() -> None:
    """What the first line states counts more."""
    told = {"to_host": "", "to_port": ""}
    lines = ("failed to connect to (cn-1, 29400)", "trying to connect to (cn-1, 29400).", "connect to (cn-2, 29400)")
    signals = [Signal("rule#line", 0, at, line, "line", Resource()) for at, line in enumerate(lines)]

    assert with_end(told, signals[:2]) == {"to_host": "cn-1", "to_port": "29400"}
    assert with_end(told, signals) == told
    assert with_end({"to_host": "cn-9", "to_port": "1"}, signals[:2])["to_host"] == "cn-9"
    assert with_end({}, signals[:2]) == {}


def test_the_daemon_of_a_node_tells_which_process_of_ray_ended() -> None:
    """Where the first line names none, and all lines that tell agree."""
    told = [
        f"Worker IP address: 10.0.0.{n} Worker port: 4 Worker PID: 26109 Worker exit type: SYSTEM_ERROR" for n in (8, 9)
    ]
    one, other = (Signal("rule#line", 0, 0, line, "line", Resource()) for line in told)
    asked = frozenset({"worker_pid"})

    assert with_worker({}, [one, one], asked) == {"worker_ip": "10.0.0.8", "worker_pid": "26109"}
    assert with_worker({}, [one, other], asked) == {}
    assert with_worker({"worker_pid": "5"}, [one], asked) == {"worker_pid": "5"}
    assert with_worker({}, [one], frozenset()) == {}
