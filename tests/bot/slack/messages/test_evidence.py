"""The evidence of an answer in its thread: deciding lines marked, with what stands around them; any text fits and is safe."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from bot.pages.log_context import LogContext
from bot.slack.messages.evidence import evidence_message
from kb.report import EvidenceItem
from tests.support.block_limits import faults_of_message, texts
from tests.support.bot_samples import FALLEN_GPU
from tests.support.hostile_reports import SECRETS, text
from tests.support.slack_reading import read


def report_of(*items):
    """A report whose first diagnosis rests on these items."""
    (first, *rest) = FALLEN_GPU.diagnoses
    return replace(FALLEN_GPU, diagnoses=(replace(first, evidence=items), *rest))


def item(text, source="logs/rank-5.log", offset=100):
    """A line of a log."""
    return EvidenceItem("e", "line", source, text, 7, offset)


def test_the_deciding_line_stands_among_its_neighbours():
    """Marked, in the order of the log, with the indentation behind a prefix."""
    around = LogContext("logs/rank-5.log", 100, ("[r5]: Traceback:", "[r5]:   File 'a.py'"), ("exit 1",))
    told = read(evidence_message(report_of(item("[r5]: ValueError: no")), {("logs/rank-5.log", 100): around}).blocks)
    assert "  |   [r5]: Traceback:\n  |   [r5]:   File 'a.py'\n  | > [r5]: ValueError: no\n  |   exit 1\n" in told


def test_a_long_traceback_keeps_its_end():
    """Which names the exception; what is left out is counted."""
    told = read(evidence_message(report_of(item("\n".join(f"line {number}" for number in range(100)))), {}).blocks)
    assert "> line 0\n" in told
    assert "> … 70 lines left out …" in told
    assert "> line 99\n" in told
    assert "line 50\n" not in told


def test_an_answer_without_lines_says_so():
    """As one of a scheduler's states."""
    message = evidence_message(report_of(), {})
    assert "No log line supports this answer" in read(message.blocks)


def test_hostile_lines_fit_and_hold_no_secret():
    """Any text in the line and around it."""
    chance = Random(5)
    for _ in range(20):
        items = [item(text(chance), text(chance)[:80] or "x", number) for number in range(chance.randrange(7))]
        around = {
            (each.source.encode("utf-8", "replace").decode(), each.offset): LogContext(
                each.source, each.offset, tuple(text(chance) for _ in range(chance.randrange(70))), (text(chance),)
            )
            for each in items
        }
        message = evidence_message(report_of(*items), around)
        assert faults_of_message(message.text, message.blocks) == []
        assert [secret for secret in SECRETS if secret in "".join(texts(message.body))] == []
