"""What a failure looked like, and how alike two of them are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kb.precedents.signature import (
    MOST_EVENTS,
    FaultLibrary,
    Signature,
    SignatureEvent,
    signature_of,
    similarity,
    words_of,
)
from tests.support.common.precedent_samples import LOST, known, report

SHARD = "ValueError: mmap length is greater than file size of /data/shard-00012.bin"
CLOSED = "[rank3]: RuntimeError: [/pytorch/gloo/pair.cc:534] Connection closed by peer [10.0.0.4]:21034"


def test_a_pattern_has_the_words_and_not_what_varies() -> None:
    """Another node, another number, another path: the same pattern."""
    other = LOST.replace("gpu-017", "gpu-233").replace("812", "9")
    assert signature_of(report(LOST)) == signature_of(report(other))
    assert signature_of(report(LOST)).stage == "iterating"
    assert [event.words for event in signature_of(report(LOST)).events] == [
        ("frobnicator", "on", "gpu", "phase", "lock", "is", "gone", "after", "giving", "up")
    ]


def test_what_a_peer_heard_counts_for_less_than_what_failed() -> None:
    """All failures end with lost connections, which do not show the cause."""
    first, last = signature_of(report(SHARD, CLOSED, verdict="fault")).events
    assert first.words[:9] == ("valueerror", "mmap", "length", "is", "greater", "than", "file", "size", "of")
    assert last.weight < first.weight / 2


def test_a_rule_and_its_absence_give_the_same_events() -> None:
    """An incident that no rule knew is found again when a rule speaks of the same line, and the other way round."""
    assert signature_of(report(SHARD)).events == signature_of(report(SHARD, verdict="fault")).events


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("KeyError: 'MASTER_ADDR'", ("keyerror", "master", "addr")),
        (
            "No such file or directory: '/data/a1/run-3/vocab.json'",
            ("no", "such", "file", "or", "directory", "vocab", "json"),
        ),
        ("NVRM: Xid (PCI:0000:5d:00): 79, pid=4242", ("nvrm", "xid", "pci", "pid", "xid79")),
        ("exitcode: -9 (pid 812) of host gpu-017", ("exitcode", "pid", "of", "host", "gpu", "exitcode-9")),
        ("got 0x7f3a9c from 10.0.0.4:29500 in job 3f2b9c1d7a at 12:31", ("got", "from", "in", "job", "at")),
        ("see https://example.org/a/b for more", ("see", "for", "more")),
    ],
)
def test_names_and_codes_stay_and_what_varies_goes(line: str, words: tuple[str, ...]) -> None:
    """What distinguishes failures is kept: the key, the file, the Xid."""
    assert words_of(line) == words


@pytest.mark.parametrize("verdict", ["no_fault", "insufficient_evidence"])
def test_where_nothing_failed_there_is_no_pattern(verdict: str) -> None:
    """A good run looks like no failure."""
    assert signature_of(report(LOST, verdict=verdict)).events == ()


def test_the_same_failure_is_found_again() -> None:
    """The match is complete, with feedback and remedy."""
    library = FaultLibrary([known(42, LOST), known(43, SHARD)])
    (found,) = library.alike(signature_of(report(LOST.replace("812", "70"))))
    assert (found.known.incident, found.similarity, found.known.helped) == (42, 1.0, "reseated it")
    assert found.shared == (("frobnicator", "on", "gpu", "phase", "lock", "is", "gone", "after", "giving", "up"),)


def test_a_near_miss_is_found_too() -> None:
    """A version later the words are a little others."""
    library = FaultLibrary([known(42, LOST)])
    (found,) = library.alike(signature_of(report("frobnicator on gpu-2: phase lock is gone after 81 s, now giving up")))
    assert found.known.incident == 42
    assert 0.9 < found.similarity < 1.0


def test_the_same_error_of_another_framework_is_found() -> None:
    """Its line decides, though all other lines of the two frameworks differ."""
    full = "safetensors_rust.SafetensorError: I/O error: No space left on device (os error 28)"
    other = "OSError: [Errno 28] No space left on device: '/tmp/md.step-400.ckpt'"
    library = FaultLibrary(
        [known(42, full, "Trainer.save_model failed after the last step", "wandb: run stopped early")]
    )
    (found,) = library.alike(signature_of(report(other, "lightning.pytorch callbacks cannot write any further state")))
    assert found.known.incident == 42
    assert 0.35 <= found.similarity < 0.9
    assert found.shared[0][:5] == ("oserror", "errno", "no", "space", "left")


@pytest.mark.parametrize(
    ("line", "other"),
    [
        (
            "FileNotFoundError: [Errno 2] No such file or directory: 'conf/large.yaml'",
            "FileNotFoundError: [Errno 2] No such file or directory: 'step-20/.metadata'",
        ),
        (
            "requests.exceptions.HTTPError: 403 Client Error: Forbidden for url: https://example.org/a",
            "requests.exceptions.HTTPError: 404 Client Error: Not Found for url: https://example.org/b",
        ),
        ("RuntimeError: CUDA error on rank 3 of this process", "RuntimeError: NCCL error on rank 5 of this process"),
    ],
)
def test_a_common_form_is_no_likeness(line: str, other: str) -> None:
    """Two failures of which only the form of the message is the same: nothing is known of the one by the other."""
    assert FaultLibrary([known(42, line)]).alike(signature_of(report(other))) == []


def test_what_only_ends_alike_is_not_alike() -> None:
    """Two failures whose peers lost their connections have nothing else in common."""
    library = FaultLibrary([known(42, SHARD, CLOSED)])
    assert library.alike(signature_of(report(LOST, CLOSED))) == []
    assert library.alike(signature_of(report(CLOSED))) == []


def test_another_code_is_another_failure() -> None:
    """Xid 79 and Xid 94 are worded alike, and so are signals."""
    xid = "NVRM: Xid (PCI:0000:5d:00): {}, pid=4242, name=python3, GPU has a problem that is told here"
    library = FaultLibrary([known(42, xid.format(79))])
    assert library.alike(signature_of(report(xid.format(94)))) == []
    assert [
        similar_incident.known.incident for similar_incident in library.alike(signature_of(report(xid.format(79))))
    ] == [42]


@pytest.mark.parametrize("line", ["AssertionError", "KeyboardInterrupt", CLOSED, "Killed"])
def test_a_word_that_ends_many_failures_is_no_likeness(line: str) -> None:
    """Two runs that say nothing else have nothing in common."""
    assert FaultLibrary([known(42, line)]).alike(signature_of(report(line))) == []


def test_of_one_cause_the_most_alike_is_reported_and_of_equals_the_newest() -> None:
    """Ten incidents with one cause are one lead."""
    library = FaultLibrary([known(n, LOST, at=float(n)) for n in range(1, 11)])
    assert [similar_incident.known.incident for similar_incident in library.alike(signature_of(report(LOST)))] == [10]
    assert [
        similar_incident.known.incident
        for similar_incident in library.alike(signature_of(report(LOST)), but=frozenset({10}))
    ] == [9]


def test_different_causes_of_one_look_are_all_reported() -> None:
    """The same lines were two things before: the reader decides."""
    library = FaultLibrary([known(1, LOST, fault="a"), known(2, LOST, fault="b"), known(3, LOST, fault=None)])
    assert [similar_incident.known.incident for similar_incident in library.alike(signature_of(report(LOST)))] == [
        3,
        2,
        1,
    ]


def test_an_empty_library_and_an_empty_pattern() -> None:
    """Nothing is like nothing."""
    assert FaultLibrary(()).alike(signature_of(report(LOST))) == []
    assert FaultLibrary([known(1, LOST)]).alike(Signature()) == []


def test_thousands_of_lines_give_a_pattern_of_bounded_size() -> None:
    """A report that somebody made up does not fill the store."""
    lines = [
        f"{'abcdefghij'[n % 10]}{'klmnopqrst'[n // 10 % 10]}{'uvwxyz'[n % 6]} failed to open word" for n in range(600)
    ]
    assert len(signature_of(report("\n".join(lines), *lines)).events) == MOST_EVENTS
    assert signature_of(report("x" * 100_000, "\x00\x01\x02", "\ud800 lone", "")).verdict == "no_match"


words = st.lists(
    st.sampled_from(["lock", "gone", "phase", "shard", "lost", "node", "error", "disk", "link"]), min_size=1, max_size=6
)
patterns = st.lists(words, max_size=5).map(
    lambda told: Signature(tuple(SignatureEvent(item, 1.0) for item in sorted({tuple(line) for line in told})))
)


@given(patterns, patterns)
def test_likeness_is_mutual_and_between_nothing_and_all(signature: Signature, other: Signature) -> None:
    """It is symmetric, and complete only for identical failures."""
    here, there = similarity(signature, other)[0], similarity(other, signature)[0]
    assert here == pytest.approx(there)
    assert 0.0 <= here <= 1.0
    assert (similarity(signature, signature)[0] == pytest.approx(1.0)) is bool(signature.events)
