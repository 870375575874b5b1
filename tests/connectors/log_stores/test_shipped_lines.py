"""Lines as log shippers wrap them, without the wrapping."""

from __future__ import annotations

import json

import pytest

from connectors.log_stores.line_buffer import LineBuffer, LogOrigin, StoredLine
from connectors.log_stores.shipped_lines import timed, unwrapped

ERROR = "[rank3]: RuntimeError: CUDA error: an illegal memory access was encountered"
OWN = '{"level": "error", "msg": "shard 7 refused", "rank": 3}'


def only(*texts: str) -> list[str]:
    """The lines of one origin, a nanosecond apart."""
    return [text for _, text in unwrapped(enumerate(texts))]


@pytest.mark.parametrize(
    "wrapped",
    [
        json.dumps({"log": ERROR + "\n", "stream": "stderr", "time": "2026-05-28T20:30:00.1Z"}),
        f"2026-05-28T20:30:00.123456789Z stderr F {ERROR}",
        f"2026-05-28T20:30:00.123456789+02:00 stderr F {ERROR}",
        json.dumps({"MESSAGE": ERROR, "PRIORITY": "3", "_HOSTNAME": "gpu-7", "_PID": "411"}),
        json.dumps({"MESSAGE": list(ERROR.encode()), "_HOSTNAME": "gpu-7"}),
        json.dumps({"log": ERROR, "stream": "stderr", "logtag": "F", "kubernetes": {"pod_name": "fit-0"}}),
        json.dumps({"message": ERROR, "source_type": "kubernetes_logs", "kubernetes": {"pod_name": "fit-0"}}),
        json.dumps({"message": ERROR, "agent": {"type": "filebeat"}, "log": {"file": {"path": "/x"}}, "input": {"type": "container"}})
        .replace('"log": {"file": {"path": "/x"}}, ', ""),
        json.dumps({"body": {"stringValue": ERROR}, "resource": {}, "attributes": {}}),
        f"2026-05-28T20:30:00Z stderr F {json.dumps({'log': ERROR + chr(10), 'stream': 'stderr', 'time': 'x'})}",
    ],
)  # fmt: skip
def test_a_shipped_line_is_the_line_of_the_program(wrapped: str) -> None:
    """Docker, CRI, journal, fluent-bit, Vector, Filebeat, OpenTelemetry; one in the other."""
    assert only(wrapped) == [ERROR]


@pytest.mark.parametrize(
    "text",
    [
        ERROR,
        OWN,
        '{"message": "loss 2.1", "step": 3}',
        '{"log": "x", "step": 3}',
        '{"level": "error", "message": "shard 7 refused", "kubernetes": {"pod_name": "fit-0"}}',
        '{"loss": 2.1',
        "[1, 2]",
        "{}",
        '{"stream": "stderr"}',
        '{"log": 7, "stream": "stderr", "time": "x"}',
        "{" * 5000,
        "",
    ],
)
def test_a_line_of_the_program_stays(text: str) -> None:
    """Its own JSON too, and what only looks wrapped."""
    assert only(text) == [text]


def test_pieces_of_a_cut_line_are_joined() -> None:
    """The runtime cuts lines at 16 KB; lines of the other stream can come between the pieces."""
    head = "2026-05-28T20:30:00Z"
    given = (
        f"{head} stderr P one ",
        f"{head} stdout F other",
        f"{head} stderr P two ",
        f"{head} stderr F three",
        f"{head} stderr P end",
    )
    assert only(*given) == ["other", "one two three", "end"]
    docker = [json.dumps({"log": text, "stream": "stdout", "time": "t"}) for text in ("one ", "two\n", "three\n")]
    assert only(*docker) == ["one two", "three"]


def test_pieces_without_an_end_do_not_pile_up() -> None:
    """A line has at most so many pieces."""
    assert len(only(*["2026-05-28T20:30:00Z stderr P x"] * 1000)) > 10


def test_json_stays_json_with_the_time_of_the_store() -> None:
    """Its own time is kept; other lines have the store's in front."""
    stamp = "2026-05-28T20:30:00.000000000Z"
    assert json.loads(timed(stamp, OWN)) == {"time": stamp, **json.loads(OWN)}
    assert timed(stamp, "{}") == f'{{"time":"{stamp}"}}'
    assert timed(stamp, '{"ts": 1, "a": 2}') == '{"ts": 1, "a": 2}'
    assert timed(stamp, ERROR) == f"{stamp} {ERROR}"
    assert timed(stamp, "{'loss': 2.1, 'epoch': 0.1") == f"{stamp} {{'loss': 2.1, 'epoch': 0.1"


def test_the_buffer_writes_them_so() -> None:
    """With the store's time where they have none."""
    buffer = LineBuffer(1 << 20, 1000)
    who = LogOrigin(rank="3")
    docker = json.dumps({"log": ERROR + "\n", "stream": "stderr", "time": "2026-05-28T20:30:00Z"})
    buffer.add(
        [StoredLine(1_780_000_200_000_000_000, who, docker, 1), StoredLine(1_780_000_201_000_000_000, who, OWN, 2)]
    )
    ((_, body, _),) = buffer.logs()
    first, second = body.decode().splitlines()
    assert first == f"2026-05-28T20:30:00.000000000Z {ERROR}"
    assert json.loads(second) == {"time": "2026-05-28T20:30:01.000000000Z", **json.loads(OWN)}
