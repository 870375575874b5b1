"""The whole diagnosis, from small texts to a report."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.render.phrases import place
from kb.diagnosis.engine import diagnose, headline_place
from kb.diagnosis.quotes import SHOWN_LINES, SHOWN_TEXT
from kb.diagnosis.ranking import CAME_FIRST
from kb.diagnosis.said import as_far_as_likely
from kb.facts.evidence import Evidence
from kb.model import Gap, Job, StreamRef
from kb.report import Diagnosis, EvidenceItem, Report, Suspect, ranges
from kb.rulebase.rule import (
    Absent,
    All,
    DetectorTest,
    ExceptionTest,
    Name,
    Pattern,
    RemediationStep,
    Sequence,
    Span,
    StructureTest,
    Table,
    TableRow,
)
from kb.scanning.matcher import Hit, Matcher
from kb.scanning.scanner import scan
from tests.support.kb_samples import CLOSED, OOM, prepared, ref, rule, rulebook, scanned

ECC = rule(
    "xid",
    "gpu_memory_ecc",
    Pattern("line", structure=StructureTest("xid")),
    table=Table("xid", {"48": TableRow("48", "Double-bit error"), "43": TableRow("43", "Channel reset", ignore=True)}),
    remediation=(
        RemediationStep("look_at_logs", "Look at {pci} on {node|a node}.", "look", command="nvidia-smi -i {pci}"),
    ),
)
KEY = rule("key", "code_bug", Pattern("line", exception=ExceptionTest(type="KeyError")), summary="No key {message}.")
SPIKE = rule("nan", "loss_spike", Pattern("line", detect=DetectorTest("loss_not_finite")))
PAIR = rule(
    "pair",
    "link_down",
    Pattern("down", literal="port went down"),
    Pattern("lost", literal="heartbeat lost"),
    when=All((Name("down"), Name("lost"))),
)
ORDER = rule(
    "order",
    "preempted",
    Pattern("notice", literal="notice of eviction"),
    Pattern("stop", literal="node is draining"),
    when=Sequence(("notice", "stop")),
)
SILENCE = rule(
    "silence",
    "link_down",
    Pattern("ask", literal="asking the store"),
    Pattern("reply", literal="the store replied"),
    when=Absent("reply", "after", "ask", Span(seconds=60)),
)
BOOK = rulebook(OOM, CLOSED, ECC, KEY, SPIKE, PAIR, ORDER, SILENCE)


def report(*texts: tuple[StreamRef, str | bytes] | str, job: Job | None = None) -> Report:
    """The report on these texts."""
    pairs = [(ref(f"logs/part-{n}.log"), item) if isinstance(item, str) else item for n, item in enumerate(texts)]
    return diagnose(Evidence(job or Job(), streams=tuple(scanned(text, BOOK, where) for where, text in pairs)), BOOK)


def rows(first: int, last: int, minute: int = 12, loss: str = "1.5E+00") -> str:
    """Iteration lines, a second apart."""
    return "".join(
        f" [2026-11-03 04:{minute:02d}:{n % 60:02d}] iteration {n:8d}/     500 | consumed samples: {n * 8:12d} | "
        f"elapsed time per iteration (ms): 900.0 | learning rate: 1.0E-04 | global batch size:     8 | lm loss: {loss} |\n"
        for n in range(first, last + 1)
    )


TRACEBACK = (
    "[rank{rank}]: Traceback (most recent call last):\n"
    '[rank{rank}]:   File "/srv/llm/pretrain.py", line 88, in <module>\n'
    "[rank{rank}]:     step(batch)\n"
    '[rank{rank}]:   File "/srv/llm/pretrain.py", line 41, in step\n'
    '[rank{rank}]:     return batch["labels"]\n'
    "[rank{rank}]: {error}\n"
)
MISSING_KEY = TRACEBACK.format(rank=3, error="KeyError: 'labels'")
UNKNOWN = TRACEBACK.format(rank=5, error="ZeroDivisionError: float division by zero")
OUT_OF_MEMORY = "[rank2]: CUDA out of memory. Tried to allocate 7.25 GiB on device 2\n"


# verdicts


def test_a_fault_is_reported_with_its_place() -> None:
    """Who, where in the run, the deciding line, and its place in the log."""
    text = rows(1, 20) + MISSING_KEY
    found = report(text)
    assert (found.verdict, found.phase) == ("fault", "failed")
    best = found.diagnoses[0]
    assert (best.rank, best.fault, best.rule, best.band) == (1, "code_bug", "key", "likely")
    assert (best.stage, best.iteration) == ("iterating", 20)
    assert [(suspect.kind, suspect.rank) for suspect in best.suspects] == [("rank", 3)]
    assert best.summary == "No key 'labels'."
    assert found.summary == "key (rank 3): No key 'labels'."
    quoted = best.evidence[0]
    assert quoted.id == "e1"
    assert "KeyError: 'labels'" in quoted.text
    assert quoted.offset is not None
    assert text.encode()[quoted.offset :].startswith(quoted.text.encode())
    assert found.progress.last_iteration == 20


@pytest.mark.parametrize(
    "text", [rows(1, 20), MISSING_KEY + rows(1, 20), "all is well and nothing happens\n" * 20, "short\n"]
)
def test_a_log_without_an_end_proves_nothing(text: str) -> None:
    """Steps that stop, also behind an error that the run survived, and calm text may be a process that was killed."""
    found = report(text)
    assert (found.verdict, found.phase) == ("insufficient_evidence", "unknown")
    assert found.summary.startswith("No failure found in 1 log, but it is unclear whether the run completed")
    assert [event.what for event in found.indicators.events] == [text.splitlines()[-1].strip()[:200]]
    assert "state_unknown" in {gap.code for gap in found.gaps}
    assert found.diagnoses == ()
    assert found.decision.advice == "none"


def test_a_run_that_reports_its_end_completed() -> None:
    """The line that proves it is shown, and errors before it are not failures."""
    end = "[after training is done] datetime: 2024-03-01 10:00:00\n"
    found = report(MISSING_KEY + rows(1, 20) + end)
    assert (found.verdict, found.phase) == ("no_fault", "completed")
    assert found.summary == "The run completed normally, last step 20."
    assert [event.what for event in found.indicators.events] == [end.strip()]
    assert found.gaps == report(rows(1, 20) + end).gaps


def test_an_unknown_failure_gives_indicators() -> None:
    """The lines that ended the run, the stage and the last step replace a diagnosis."""
    found = report((ref("rank-5.log", node="node-b"), rows(1, 20) + "something is invalid here\n" + UNKNOWN))
    assert (found.verdict, found.phase) == ("no_match", "failed")
    assert any("ZeroDivisionError" in item.text for item in found.diagnoses[0].evidence)
    assert [event.what for event in found.indicators.events] == ["something is invalid here"]
    assert [stage.what for stage in found.indicators.stages] == ["iterating"]
    assert [iteration.what for iteration in found.indicators.iterations] == ["20"]
    assert [node.what for node in found.indicators.nodes] == ["node-b"]
    assert all(
        event.evidence is not None and event.evidence.source == "rank-5.log" for event in found.indicators.events
    )
    assert found.summary == "Unknown failure on rank 5: ZeroDivisionError: float division by zero"


def test_indicators_are_few_and_of_different_shapes() -> None:
    """A thousand like lines are one indicator."""
    noise = "".join(f"ERROR worker {n} cannot open file '{n}'\n" for n in range(100))
    kinds = "".join(f"ERROR kind-{'abcdefghijklmn'[n]} failed again\n" for n in range(14))
    found = report(noise + kinds + UNKNOWN)
    events = [event.what for event in found.indicators.events]
    assert len(events) + len(found.diagnoses[0].evidence) == SHOWN_LINES
    assert sum("cannot open" in event for event in events) == 1


@pytest.mark.parametrize("texts", [(), ("",), ("", "\n")])
def test_too_little_is_not_enough(texts: tuple[str, ...]) -> None:
    """Nothing is neither a failure nor a good run."""
    found = report(*texts)
    assert (found.verdict, found.phase) == ("insufficient_evidence", "unknown")
    assert found.summary == "Not enough evidence to reach a verdict."


# the parts of a report


def test_symptoms_are_folded_under_their_cause() -> None:
    """With how many and on which ranks."""
    peers = "".join(f"[rank{n}]: Connection closed by peer [10.0.0.7]\n" for n in range(8) if n != 2)
    found = report(rows(1, 9) + OUT_OF_MEMORY + peers)
    (only,) = found.diagnoses
    assert only.fault == "cuda_oom"
    assert [(explained.fault, explained.count, explained.ranks) for explained in only.explains] == [
        ("peer_failure", 7, "0-1,3-7")
    ]


def test_a_kernel_log_names_gpu_and_node_and_what_to_do() -> None:
    """A row of a table, its texts filled in, and the node left out."""
    kernel = "[ 8123.456789] NVRM: Xid (PCI:0000:3b:00): 48, pid=4711, name=python, DBE (double bit error)\n"
    found = report((ref("dmesg-node-a.log", node="node-a", kind="kernel"), kernel), rows(1, 5) + OUT_OF_MEMORY)
    best = found.diagnoses[0]
    assert (best.fault, best.title, best.owner) == ("gpu_memory_ecc", "Double-bit error", "hardware")
    (suspect,) = best.suspects
    assert (suspect.kind, suspect.node) == ("gpu", "node-a")
    assert suspect.gpu is not None
    assert suspect.gpu.pci is not None
    step = best.remediation[0]
    assert step.text == f"Look at {suspect.gpu.pci} on node-a."
    assert step.command == f"nvidia-smi -i {suspect.gpu.pci}"
    assert found.decision.advice == "requeue_without"
    assert [(item.node, item.scope) for item in found.decision.exclude] == [("node-a", "cluster")]
    assert [gap.code for gap in found.gaps] == []


def test_a_loss_that_becomes_nan_is_reported_from_the_series() -> None:
    """The run goes on in a degraded state."""
    found = report(rows(1, 20) + rows(21, 30, loss="NaN"))
    assert (found.verdict, found.phase) == ("fault", "degraded")
    best = found.diagnoses[0]
    assert (best.rule, best.iteration) == ("nan", 21)
    assert best.evidence[0].kind == "series"


def test_a_fault_of_nearly_all_ranks_is_the_jobs() -> None:
    """No rank is suspected where all show the fault."""
    found = report("".join(OUT_OF_MEMORY.replace("rank2", f"rank{n}") for n in range(8)), job=Job(world_size=8))
    assert [(suspect.kind, suspect.why) for suspect in found.diagnoses[0].suspects] == [("job", "seen on 8 of 8 ranks")]


def test_what_is_missing_is_reported() -> None:
    """Ranks without a log; gaps of the evidence come first. A kernel log says nothing about a device that is full."""
    one = scanned(OUT_OF_MEMORY, BOOK, ref("rank-2.log", rank=2))
    gap = Gap("timeout", "loki", "it did not answer")
    found = diagnose(Evidence(Job(world_size=10**12), streams=(one,), gaps=(gap,)), BOOK)
    assert found.gaps[0] == gap
    reasons = {item.code: item.reason for item in found.gaps}
    assert reasons["ranks_missing"] == "no log of rank 0-1,3-999999999999"
    assert "no_kernel_log" not in reasons


@pytest.mark.parametrize(
    ("line", "ranks", "missing"),
    [
        ("iteration {step}/200 loss 2.5\n", 4, True),
        ("iteration {step}/200 loss 2.5\n", 1, False),
        ("iteration {step}/200 | elapsed time per iteration (ms): 1500.0 | loss 2.5\n", 4, False),
        ("2026-11-20 08:00:{step:02} INFO iteration {step}/200 loss 2.5\n", 4, False),
    ],
)
def test_ranks_without_times_of_steps_are_not_compared(line: str, ranks: int, missing: bool) -> None:
    """Which of them lags cannot be told by the number of lines each has written; the report says so and names no rank."""
    logs = [
        scanned("".join(line.format(step=n) for n in range(1, 55 if rank == 2 else 60)), BOOK, ref(f"{rank}.log", rank))
        for rank in range(ranks)
    ]
    found = diagnose(Evidence(streams=tuple(logs)), BOOK)
    assert (found.verdict, found.diagnoses) == ("insufficient_evidence", ())
    assert ("step_times_unknown" in {gap.code for gap in found.gaps}) is missing


def test_a_rule_that_could_not_be_judged_is_listed() -> None:
    """With what it would need."""
    found = report("asking the store\nnothing\nthe store replied\n" * 9)
    assert [(not_evaluated.rule, not_evaluated.needs) for not_evaluated in found.not_evaluated] == [
        ("silence", "times of the lines")
    ]


def test_the_fingerprint_is_the_same_for_the_like() -> None:
    """Other numbers, same fingerprint; another fault, another one."""
    first, again = report(OUT_OF_MEMORY), report("\n" + OUT_OF_MEMORY.replace("7.25", "1.50").replace("2", "6"))
    assert first.fingerprint == again.fingerprint
    assert first.id != again.id
    assert first.fingerprint != report(MISSING_KEY).fingerprint


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [([], ""), ([3], "3"), ([1, 0, 2, 2], "0-2"), ([0, 1, 3, 5, 6, 7], "0-1,3,5-7"), (range(8), "0-7")],
)
def test_numbers_as_ranges(numbers: Iterable[int], expected: str) -> None:
    """Sorted, none twice."""
    assert ranges(numbers) == expected


# what is quoted


@settings(deadline=None, max_examples=12)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.text("abcde äß漢🙂", max_size=600)), min_size=1, max_size=12),
)
def test_five_lines_and_two_kilobytes_are_quoted_at_most(lines: list[tuple[int, str]]) -> None:
    """However many and however long the lines are, for all characters."""
    text = "".join(
        f"[rank{rank}]: CUDA out of memory. Tried to allocate {rank}.00 GiB {words}\n" for rank, words in lines
    )
    quoted = report(text).diagnoses[0].evidence
    assert 1 <= len(quoted) <= SHOWN_LINES
    assert sum(len(item.text.encode()) for item in quoted) <= SHOWN_TEXT
    assert all(item.text.encode() in text.encode() for item in quoted)


def test_like_lines_are_quoted_once() -> None:
    """Sixty ranks that say the same are one line; each pattern of the rule is among them."""
    many = "".join(f"[rank{n}]: port went down on hca {n}\n" for n in range(60))
    found = report(many + "[rank7]: heartbeat lost\n")
    assert [item.text for item in found.diagnoses[0].evidence] == [
        "[rank0]: port went down on hca 0",
        "[rank7]: heartbeat lost",
    ]


# the same input, the same answer


class Shuffled:
    """An engine that reports its hits in another order, and some of them twice."""

    name = "shuffled"

    def __init__(self, inner: Matcher, seed: int) -> None:
        self._inner, self._chance = inner, random.Random(seed)

    def hits(self, block: bytes) -> list[Hit]:
        """The hits of the engine inside, shuffled."""
        found = self._inner.hits(block)
        found += found[::3]
        self._chance.shuffle(found)
        return found

    def lines(self, block: bytes) -> tuple[list[Hit], dict[int, list[int]]]:
        """The same, none of them by line."""
        return self.hits(block), {}

    def dump(self) -> None:
        """It cannot be kept."""


MIXED = rows(1, 9) + OUT_OF_MEMORY + UNKNOWN + MISSING_KEY + "[rank1]: Connection closed by peer\n" * 30


def test_the_same_input_gives_the_same_report() -> None:
    """Byte for byte, also where the engine reports its hits in another order."""
    expected = repr(report(MIXED, UNKNOWN))
    assert repr(report(MIXED, UNKNOWN)) == expected
    what, inner = prepared(BOOK)
    for seed in range(5):
        streams = [
            scan(what, Shuffled(inner, seed), ref(f"logs/part-{n}.log"), [text.encode()])
            for n, text in enumerate((MIXED, UNKNOWN))
        ]
        assert repr(diagnose(Evidence(streams=tuple(streams)), BOOK)) == expected


def test_blocks_do_not_change_the_report() -> None:
    """A text read in pieces gives the report of the whole."""
    what, inner = prepared(BOOK)
    data = MIXED.encode()
    pieces = [data[n : n + 97] for n in range(0, len(data), 97)]
    one = scan(what, inner, ref("logs/part-0.log"), pieces)
    assert diagnose(Evidence(streams=(one,)), BOOK) == report(MIXED)


WORD = re.compile(
    rb"[A-Za-z]{5}"
)  # bytes with words can report the end of a run, after which other lines count differently


@settings(deadline=None, max_examples=15)
@given(
    st.binary(max_size=3000).filter(lambda raw: WORD.search(raw) is None),
    st.lists(st.integers(128, 255), max_size=500).map(bytes),
)
def test_any_bytes_give_a_report(before: bytes, behind: bytes) -> None:
    """Garbage before and after the relevant lines is not an error, and these are still found."""
    found = report((ref("logs/a.log"), before + b"\n" + OUT_OF_MEMORY.encode() + behind))
    assert found.verdict == "fault"
    assert "cuda_oom" in {diagnosis.fault for diagnosis in found.diagnoses}


CALM = (
    "the weather is fine",
    "[rank1]: compiled kernels: 512 of 512",
    "INFO cache warm, 0 errors",
    "[rank0]: saw 7 of 7 peers",
    "",
    "2026-11-03 04:00:01 heartbeat ok",
    "ranks: 8, gpus: 8",
)
BLOCKS = (
    OUT_OF_MEMORY,
    MISSING_KEY,
    "[rank4]: Connection closed by peer\n",
    "port went down\n",
    "heartbeat lost\n",
    "notice of eviction\n",
    "node is draining\n",
)


@settings(deadline=None, max_examples=20)
@given(
    st.lists(st.sampled_from(BLOCKS), min_size=1, max_size=6),
    st.lists(st.lists(st.sampled_from(CALM), max_size=6), min_size=7, max_size=7),
)
def test_unrelated_lines_remove_no_diagnosis(blocks: list[str], calm: list[list[str]]) -> None:
    """Healthy lines anywhere between leave every diagnosis of rules that ask for no absence, and the leading one.

    Not the order of the others: which of them are among the last lines of the log depends on what follows them.
    """
    bare = report("".join(blocks))
    wide = "".join("".join(f"{line}\n" for line in lines) + block for lines, block in zip(calm, blocks, strict=False))
    full = report(wide + "".join(f"{line}\n" for line in calm[-1]))
    told = [(diagnosis.fault, diagnosis.rule, diagnosis.explains) for diagnosis in bare.diagnoses]
    found = [(diagnosis.fault, diagnosis.rule, diagnosis.explains) for diagnosis in full.diagnoses]
    assert found[:1] == told[:1]
    assert sorted(found) == sorted(told)


def test_a_suspect_that_did_not_show_the_symptom_is_called_one() -> None:
    """The headline's place is otherwise that of the ranks whose lines are quoted."""
    lines = tuple(EvidenceItem(f"e{rank}", "line", "logs/train.log", "timed out", rank=rank) for rank in (1, 3))
    best = Diagnosis(1, "collective_timeout", "timeout", 1, "Timeout", "", 0.5, "possible", "symptom", evidence=lines)
    of = {rank: replace(best, suspects=(Suspect("rank", rank=rank),)) for rank in (1, 2)}
    assert (headline_place(of[2]), headline_place(of[1])) == (" (suspect: rank 2)", " (rank 1)")
    several = replace(best, suspects=tuple(Suspect("rank", rank=rank) for rank in (4, 5)))
    assert headline_place(several) == " (suspects: ranks 4-5)"
    assert headline_place(replace(of[2], evidence=())) == " (rank 2)"


@pytest.mark.parametrize(("start", "own"), [("2026-03-01 12:00:20 ", True), ("", False)])
def test_a_time_that_is_not_the_lines_own(start, own):
    """The time of an earlier line only bounds when a fault was first seen, and the answer says so."""
    text = f"2026-03-01 12:00:00 INFO step 1\n{start}notice of eviction\n{start}node is draining\n"
    (found,) = report(text).diagnoses
    assert (found.first_seen is not None, found.first_seen_own) == (True, own)
    assert [word for word in place(found) if "2026" in word] == [
        "first seen 2026-03-01 12:00:20Z" if own else "no earlier than 2026-03-01 12:00:00Z"
    ]


def test_no_bound_where_an_older_line_may_exist():
    """A line above the first time of a log has none; the time before a later one bounds nothing."""
    text = (
        "notice of eviction\nnode is draining\n2026-03-01 12:00:00 INFO step 1\nnotice of eviction\nnode is draining\n"
    )
    (found,) = report(text).diagnoses
    assert (found.first_seen, list(place(found))) == (None, [])


def test_a_finding_that_stands_alone_came_before_nothing() -> None:
    """What is not shown is no partner of a comparison."""
    book = rulebook(
        rule("first", "cuda_oom", Pattern("a", literal="memory is gone")),
        rule("then", "loss_spike", Pattern("b", literal="loss is high")),
    )
    text = "2024-05-03 10:00:01,100 memory is gone\n2024-05-03 10:00:09,100 loss is high\n"
    both = diagnose(Evidence(streams=(scanned(text, book),)), book).diagnoses
    assert CAME_FIRST in both[0].reasons
    (alone,) = as_far_as_likely(both[:1])
    assert CAME_FIRST not in alone.reasons
    assert as_far_as_likely(both)[0].reasons == both[0].reasons
