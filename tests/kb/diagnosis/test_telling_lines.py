"""Which lines most likely say why a run failed, by their form and place alone."""

from __future__ import annotations

from kb.diagnosis.engine import diagnose
from kb.diagnosis.telling_lines import telling_lines
from kb.facts.evidence import Evidence
from kb.facts.job_facts import Facts
from kb.model import Resource, StreamRef
from kb.report import Report
from tests.support.kb_samples import rulebook, scanned

BOOK = rulebook()
STEPS = "".join(f"iteration {n}/ 90 | lm loss: 2.{n}\n" for n in range(1, 21))


def told(*texts: str, sure: bool = False) -> list[str]:
    """The telling lines of logs, one rank each if there are several."""
    refs = [
        StreamRef(f"rank-{n}.log", resource=Resource(rank=n)) if len(texts) > 1 else None for n in range(len(texts))
    ]
    streams = tuple(
        scanned(text, BOOK, ref) if ref else scanned(text, BOOK) for text, ref in zip(texts, refs, strict=True)
    )
    return [item.line for item in telling_lines(Facts(Evidence(streams=streams)), sure=sure)]


def report(text: str) -> Report:
    """The report on one log."""
    return diagnose(Evidence(streams=(scanned(text, BOOK),)), BOOK)


def test_what_reports_trouble_comes_before_what_does_not() -> None:
    """Whatever is nearer to the end."""
    lines = told("gate ready\nthe silo at 'b7' is corrupt\nfarewell note\nall lamps lit\n")
    assert lines[0] == "the silo at 'b7' is corrupt"


def test_lines_that_differ_in_numbers_are_told_once_where_they_began() -> None:
    """A number that is off says most where it began to be."""
    lines = told("".join(f"silo {n} failed\n" for n in range(30)))
    assert lines == ["silo 0 failed"]


def test_frames_and_their_source_are_not_told() -> None:
    """The exception is."""
    lines = told(
        'Traceback (most recent call last):\n  File "/srv/a.py", line 4, in take\n    raise failed("cannot")\nGateError: no permit\n'
    )
    assert lines == ["GateError: no permit"]


def test_what_a_line_announces_is_worth_more() -> None:
    """A ruler between both does not matter."""
    shown = telling_lines(
        Facts(Evidence(streams=(scanned("the silo says:\n-----\nlamp 7 of gate b\nlamp 8 at gate b c\n", BOOK),)))
    )
    assert [item.line for item in shown][:1] == ["lamp 7 of gate b"]
    assert shown[0].why == "the line above announces it"


def test_a_line_of_one_rank_is_worth_more_than_one_of_all() -> None:
    """What all ranks print is no rank's own failure."""
    shared = "the lamp is missing\n"
    lines = told(shared, shared, shared + "the gate is stuck\n", shared)
    assert lines == ["the gate is stuck", "the lamp is missing"]


def test_an_unknown_failure_shows_no_more_than_five_lines() -> None:
    """Those of the diagnosis included, and none twice."""
    kinds = "".join(f"ERROR: lamp '{'abcdefghijklmn'[n]}' is corrupt, code 4\n" for n in range(14))
    found = report(
        kinds
        + 'Traceback (most recent call last):\n  File "/srv/a.py", line 4, in take\n    go()\nGateError: no permit\n'
    )
    assert found.verdict == "no_match"
    shown = [*(item.text for item in found.diagnoses[0].evidence), *(item.what for item in found.indicators.events)]
    assert len(shown) == len(set(shown)) == 5


PEER = 'Traceback (most recent call last):\n  File "/srv/b.py", line 9, in pull\n    go()\nGateError: Connection closed by peer\n'
OWN = 'Traceback (most recent call last):\n  File "/srv/a.py", line 4, in take\n    go()\nGateError: silo 7 is empty\n'


def lines_of(*texts: str) -> list[str]:
    """The lines that are shown for logs of one rank each."""
    refs = [StreamRef(f"rank-{n}.log", resource=Resource(rank=n)) for n in range(len(texts))]
    streams = tuple(scanned(text, BOOK, ref) for text, ref in zip(texts, refs, strict=True))
    found = diagnose(Evidence(streams=streams), BOOK)
    quoted = found.diagnoses[0].evidence if found.diagnoses else ()
    shown = [*(item.text for item in quoted), *(item.what for item in found.indicators.events)]
    return [line for line in shown if "File" not in line]


def test_what_peers_report_is_left_out_beside_a_rank_s_own_failure() -> None:
    """They lost it; alone, that is all there is to show."""
    assert lines_of(PEER, OWN, PEER.replace("9", "8")) == ["GateError: silo 7 is empty"]
    assert any("closed by peer" in line for line in lines_of(PEER, STEPS, PEER.replace("9", "8")))


def test_lines_of_little_worth_are_shown_only_alone() -> None:
    """A bad word alone says little beside an exception."""
    assert lines_of(f"lamp failed\n{OWN}") == ["GateError: silo 7 is empty"]
    assert told("lamp failed\n") == ["lamp failed"]


def test_a_run_that_may_be_healthy_shows_only_what_is_surely_trouble() -> None:
    """A mild complaint is not shown."""
    mild = report(STEPS + "the lamp was slow\nlamps lit\n")
    grave = report(
        STEPS
        + "WARNING: could not find 'b7' of silo 4: no such file\n"
        + "".join(f"{word} is set\n" for word in ("lamp", "gate", "silo", "yard"))
    )
    assert mild.verdict == grave.verdict == "insufficient_evidence"
    assert [item.why for item in mild.indicators.events] == ["the last lines of this log"]
    assert told("the lamp was slow\n", sure=True) == []
    assert any("could not find" in item.what for item in grave.indicators.events)


def test_only_a_line_near_the_end_of_its_log_is_said_to_be() -> None:
    """The first line of a log is not, whatever else speaks for it."""
    first, last = "WARNING: the host file 'gates' is not here\n", "WARNING: the lamp of 'silo' is not lit\n"
    middle = "".join(f"opened gate {'abcdefgh'[n]}\n" for n in range(8))
    shown = telling_lines(Facts(Evidence(streams=(scanned(first + middle + last, BOOK),))))
    why = {item.line: item.why for item in shown}
    assert (why[first.strip()], why[last.strip()]) == ("", "near the end of its log")
