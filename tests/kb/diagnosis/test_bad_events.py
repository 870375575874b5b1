"""What processes report as wrong, by the form of their lines alone."""

from __future__ import annotations

import pytest

from kb.diagnosis.bad_events import BadEvent, BadEvents, is_harmless, is_stack, passed_on, tells_of_others
from kb.facts.evidence import Evidence
from kb.facts.job_facts import Facts
from kb.facts.topology import Place, Places
from kb.model import Job, Resource, StreamRef
from tests.support.kb_samples import BOOK, ref, scanned


def events(text: str, where: StreamRef | None = None) -> list[BadEvent]:
    """The bad events of one log."""
    facts = Facts(Evidence(Job(), streams=(scanned(text, BOOK, where),)))
    return list(BadEvents(facts, Places(facts)).all())


def raised(name: str, line: str) -> BadEvent:
    """An exception of this class."""
    return BadEvent("exception", 0, 0, line, Place(), Resource(), name=name)


def test_of_a_traceback_that_the_end_of_a_log_cuts_off_the_innermost_line_is_an_event() -> None:
    """The line that raises the exception, or else the frame; of a whole one, or of a call stack, neither."""
    frames = 'Traceback (most recent call last):\n  File "/srv/fit.py", line 3, in fit\n    turn(gate)\n  File "/srv/gates.py", line 9, in turn\n'
    raising = frames + '    raise gates.GateStuck(f"gate {gate} did not open")\n'
    own = "".join(f"[rank3]: {line}\n" for line in raising.splitlines())

    (cut,) = [item for item in events(f"step 3\n{raising}") if item.kind == "exception"]
    assert (cut.line.strip(), cut.name, cut.offset) == (
        'raise gates.GateStuck(f"gate {gate} did not open")',
        "GateStuck",
        7 + len(frames),
    )
    (frame,) = [item for item in events(f"step 3\n{frames}") if item.kind == "exception"]
    assert frame.line.strip() == 'File "/srv/gates.py", line 9, in turn'
    (ranked,) = [item for item in events(own) if item.kind == "exception"]
    assert ranked.place.rank == 3
    assert [
        item.name for item in events(raising + "gates.GateStuck: gate 4 did not open\n") if item.kind == "exception"
    ] == ["GateStuck"]
    assert events("step 3\n" + frames.replace("Traceback (most recent call last)", "Stack of thread 4")) == []


@pytest.mark.parametrize(
    ("text", "kind", "rank"),
    [
        ("[rank3]: gates.GateStuck: gate 'distill' did not open\n", "exception", 3),
        ("ShelfEmpty: nothing left on shelf 7\n", "exception", None),
        ('{"level": "error", "rank": 2, "msg": "window 17 rejected"}\n', "error", 2),
        ("11/22/2026 21:26:08 - CRITICAL - census - 3 of 40 shards unaccounted for\n", "fatal", None),
        ("[rank1]: F1122 21:20:08.862653 17916 store.cc:80] Check failed: n == 4 (3 vs. 4)\n", "fatal", 1),
        (
            " 47%|####7     | 28/60 [00:25<00:10,  3.05it/s]11/22/2026 21:26:08 - ERROR - census - bailing out\n",
            "error",
            None,
        ),
    ],
)
def test_a_line_is_an_event_by_its_form(text, kind, rank) -> None:
    """Level, class name or the words of a runtime that gives up, whatever the prefix."""
    (found,) = {(item.offset, item.kind): item for item in events(text)}.values()
    assert (found.kind, found.place.rank) == (kind, rank)


@pytest.mark.parametrize(
    "text",
    [
        "step 10/60 | loss 2.1\n",
        "11/22/2026 21:26:08 - WARNING - census - slow\n",
        '{"level": "info", "msg": "error"}\n',
    ],
)
def test_lines_below_error_are_no_events(text) -> None:
    """A warning, a step and an informational line report no trouble."""
    assert events(text) == []


def test_the_log_of_a_rank_gives_the_place() -> None:
    """A line without a prefix is of the rank that its file belongs to."""
    (found,) = events("ShelfEmpty: nothing left on shelf 7\n", ref("logs/rank-5.log", rank=5, node="cn-1"))
    assert (found.place.rank, found.place.node) == (5, "cn-1")


@pytest.mark.parametrize(
    "event",
    [
        raised("ChildFailedError", "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: "),
        raised("WorkerGroupError", "ray.train.WorkerGroupError: Training failed due to worker errors:"),
        raised("RuntimeError", "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.1]:1"),
        raised("ValueError", '{"prompt": "ValueError: x"}'),
        BadEvent("crash", 0, 0, "terminate called after throwing 'c10::DistBackendError'", Place(), Resource()),
    ],
)
def test_what_others_caused_is_passed_on(event) -> None:
    """A launcher's summary, a lost peer and a quoted sample are not failures of the rank that prints them."""
    assert passed_on(event)


def test_an_own_exception_is_not_passed_on() -> None:
    """Whatever its class is called."""
    assert not passed_on(raised("GateStuck", "gates.GateStuck: gate 'distill' did not open after 7 polls"))


def test_words_that_say_that_the_speaker_goes_on_are_harmless() -> None:
    """Unless it also gives up."""
    assert is_harmless("upload failed, retrying in 5 s")
    assert not is_harmless("upload failed, retrying is pointless, giving up")
    assert tells_of_others("rendezvous closed by another node")
    assert tells_of_others("Missing ranks:")
    assert is_stack("#3  0x00007f main.cc:12")


@pytest.mark.parametrize(
    ("line", "passes"),
    [
        ("BrokenPipeError: [Errno 32] Broken pipe", True),
        ("ConnectionError: HTTPSConnectionPool(host='hub.example', port=443): Max retries exceeded", True),
        ("EOFError", True),
        ("EOFError: Ran out of input", True),
        ("BrokenPipeError: shard 12: four attempts, all of them short", False),
        ("ConnectionError: the scale of layer 7 could not be read twice in a row", False),
    ],
)
def test_a_class_of_lost_connections_with_other_words_is_its_programs_own(line, passes) -> None:
    """The operating system and the network libraries speak of pipes, hosts and sockets; a program may raise the class for its own."""
    assert passed_on(raised(line.partition(":")[0], line)) is passes
