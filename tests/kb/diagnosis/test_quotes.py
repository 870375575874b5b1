"""Which lines a report quotes."""

from __future__ import annotations

from kb.diagnosis.engine import diagnose
from kb.facts.evidence import Evidence
from kb.rulebase.rule import ExceptionTest, Pattern
from tests.support.kb_samples import rule, rulebook, scanned

BOOK = rulebook(rule("lookup", "code_bug", Pattern("line", exception=ExceptionTest(type="LookupError"))))
FIRST = 'Traceback (most recent call last):\n  File "/srv/a.py", line 4, in take\n    raise LookupError(n)\nLookupError: no permit\n'
CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
LAST = 'Traceback (most recent call last):\n  File "/srv/a.py", line 9, in go\n    raise GateStuck(n)\ngates.GateStuck: it did not open\n'


def quoted(text: str) -> list[str]:
    """The lines of the first diagnosis."""
    report = diagnose(Evidence(streams=(scanned(text, BOOK),)), BOOK)
    return [item.text for item in report.diagnoses[0].evidence]


def test_the_exception_that_ended_the_process_is_quoted_with_its_cause() -> None:
    """The rule matches the first of a chain; people see the last one."""
    assert quoted(FIRST + CAUSE + LAST) == ["LookupError: no permit", "gates.GateStuck: it did not open"]


def test_an_exception_of_its_own_is_no_part_of_the_chain() -> None:
    """What is raised later without a link belongs to something else."""
    assert quoted(FIRST + "step 1\n" * 80 + LAST) == ["LookupError: no permit"]


def test_a_message_that_its_first_line_only_announces_is_quoted_with_it() -> None:
    """What does not end in a colon stands alone."""
    announced = FIRST.replace(
        "no permit", "Error(s) in loading gates:\n\tMissing key: a.b\n\tUnexpected key: c.d\n\tthird"
    )

    assert quoted(announced) == ["LookupError: Error(s) in loading gates:\nMissing key: a.b\nUnexpected key: c.d"]
    assert quoted(announced.replace("gates:", "gates")) == ["LookupError: Error(s) in loading gates"]


def test_a_path_that_a_terminal_wrapped_belongs_to_the_message() -> None:
    """Of errors whose message has one line, too."""
    book = rulebook(rule("there", "code_bug", Pattern("line", exception=ExceptionTest(type="FileExistsError"))))
    text = "FileExistsError: [Errno 17] File exists:\n'/srv/shards/a'\nsrun: error\n"
    report = diagnose(Evidence(streams=(scanned(text, book),)), book)

    assert [item.text for item in report.diagnoses[0].evidence] == [
        "FileExistsError: [Errno 17] File exists:\n'/srv/shards/a'"
    ]
