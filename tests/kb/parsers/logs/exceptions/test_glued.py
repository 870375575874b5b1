"""Tracebacks whose line breaks were lost."""

import pytest

from kb.parsers.logs.exceptions.readers import READERS
from tests.support.parsing import one, structures

FRAMES = (
    'File "/srv/fit.py", line 8, in <module> main() File "/srv/net.py", line 3, in forward y = self.proj(x) ^^^^^^^^^ '
)
HEADED = f"Traceback (most recent call last): {FRAMES}"


@pytest.mark.parametrize(
    ("line", "reader"),
    [
        (f"{HEADED}KeyError: 'width'\n", "traceback"),
        (f"[rank2]: {HEADED}KeyError: 'width'\n", "traceback"),
        (f"it) {FRAMES}KeyError: 'width'\n", "exception_line"),
    ],
    ids=["with_header", "of_a_rank", "cut_at_its_start"],
)
def test_frames_and_exception_of_one_line(line, reader):
    """All frames are read, and only the exception is shown of the line."""
    found = one(READERS, line, reader)
    assert (found.fields["type"], found.fields["message"]) == ("KeyError", "'width'")
    assert found.fields["frames"].splitlines() == ["/srv/fit.py:8 in <module>", "/srv/net.py:3 in forward"]
    assert found.line == "KeyError: 'width'"
    assert found.resource.rank == (2 if "rank2" in line else None)


def test_the_last_of_a_chain_counts_and_its_message_ends_there():
    """What was raised before stands in the same line, with words between."""
    first = f"{HEADED}KeyError: 'width' During handling of the above exception, another exception occurred: "
    found = one(READERS, f"{first}{HEADED}RuntimeError: no width\n", "traceback")
    assert (found.fields["type"], found.fields["message"]) == ("RuntimeError", "no width")
    cut = one(READERS, first.rstrip().removesuffix(" another exception occurred:") + "\n", "traceback")
    assert cut.fields["message"] == "'width'"


def test_a_long_line_is_read_to_its_exception():
    """A whole traceback is longer than other lines."""
    line = "Traceback (most recent call last): " + 60 * FRAMES + "ValueError: 7 columns\n"
    assert one(READERS, line, "traceback").fields["message"] == "7 columns"


@pytest.mark.parametrize(
    "line",
    [
        'File "/srv/fit.py", line 8, in main: is ValueError: expected\n',
        f"{FRAMES}except OSError: \n",
        f"{HEADED}\n",
    ],
    ids=["one_place", "a_handler", "no_exception"],
)
def test_other_lines_that_name_places_are_no_exceptions(line):
    """A single place is quoted by other text, too, and a source line names classes."""
    assert structures(READERS, line, "exception_line") + structures(READERS, line, "traceback") == []


def test_what_a_log_level_calls_mild_is_no_failure():
    """If lines follow, the program went on."""
    found = one(READERS, f"2026-03-01 10:00:00 WARNING {HEADED}OSError: busy\n" + 8 * "step 4\n", "traceback")
    assert found.fields["lived_with"] == "yes"
