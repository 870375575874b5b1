"""Attachments of a page: bounded, masked and readable again; a broken one counts as missing."""

from __future__ import annotations

import gzip
from dataclasses import replace

import msgspec
import pytest

from bot.diagnosis.diagnose import diagnose_bundle, nothing_read
from bot.pages import attachments, comparisons, log_context
from bot.pages.log_context import AFTER, BEFORE, LONGEST, LogContext
from kb.errors import UnreadableInput
from kb.report import EvidenceItem
from tests.support.bot_samples import FALLEN_GPU
from tests.support.made_pages import curves
from tests.support.paths import ROOT

TOKEN = "ghp_" + "Zq3" * 12


def around(folder, text, at, *, name="rank-0.log", lines=1):
    """The passage around the line at which some text begins, of a report that shows it."""
    (folder / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    shown = "\n".join(text[at:].decode("utf-8", "replace").split("\n")[:lines])
    item = EvidenceItem("e1", "line", name, shown, offset=at)
    report = replace(FALLEN_GPU, diagnoses=(replace(FALLEN_GPU.diagnoses[0], evidence=(item,)),))
    found = log_context.passages(report, folder)
    return found[0] if found else None


@pytest.mark.parametrize("name", ["rank-0.log", "rank-0.log.gz"])
def test_the_lines_around_the_evidence_are_kept(tmp_path, name):
    """So many on each side, whole ones, of a compressed log too."""
    text = b"".join(b"line %d\n" % at for at in range(5000))
    at = text.index(b"line 4000\n")
    expected = (
        tuple(f"line {item}" for item in range(4000 - BEFORE, 4000)),
        tuple(f"line {item}" for item in range(4002, 4002 + AFTER)),
    )
    found = around(tmp_path, text, at, name=name, lines=2)
    assert expected == (found.before, found.after)


def test_the_ends_of_a_log_are_no_trouble(tmp_path):
    """The first line, the last one without its end, and a log that is one line."""
    assert around(tmp_path, b"a\nb\nc", 0) == LogContext("rank-0.log", 0, (), ("b", "c"))
    assert around(tmp_path, b"a\nb\nc", 4) == LogContext("rank-0.log", 4, ("a", "b"), ())
    assert around(tmp_path, b"a", 0) == LogContext("rank-0.log", 0, (), ())


def test_what_says_nothing_by_itself_is_left_out(tmp_path):
    """Empty lines and those that underline the one before."""
    text = b"one\n\n    ^^^^^^\n[rank5]:   ~~~^^\n=====\nshown\n\n---\ntwo\n"
    assert around(tmp_path, text, text.index(b"shown")) == LogContext(
        "rank-0.log", text.index(b"shown"), ("one",), ("two",)
    )


def test_secrets_are_masked_and_long_lines_cut(tmp_path):
    """Of a progress bar the last state is shown."""
    text = f"token {TOKEN}\nshown\n{'x' * 3000}\n1%\r50%\r99%\n".encode()
    found = around(tmp_path, text, text.index(b"shown"))
    assert TOKEN not in repr(found)
    assert (len(found.after[0]), found.after[1]) == (LONGEST, "99%")


def test_endless_lines_and_bytes_that_are_no_text_are_bounded(tmp_path):
    """A megabyte without a line end, and all bytes there are."""
    assert around(tmp_path, b"x" * 1_000_000, 500_000) == LogContext("rank-0.log", 500_000, (), ())
    found = around(tmp_path, bytes(range(256)) * 4 + b"\nshown\n" + bytes(range(128, 256)), 1025)
    assert log_context.loads(log_context.dumps([found])) == (found,)


def test_sources_that_are_gone_have_no_passage(tmp_path):
    """A file that is not there, a folder, an offset beyond the end."""
    items = tuple(
        EvidenceItem("e", "line", text, "x", offset=9) for text in ("gone.log", ".", "bad\udcff.log", "nul\0.log")
    )
    report = replace(FALLEN_GPU, diagnoses=(replace(FALLEN_GPU.diagnoses[0], evidence=items),))
    assert all(passage.before == passage.after == () for passage in log_context.passages(report, tmp_path))


@pytest.mark.parametrize("bundle", ["bot/demo/incidents/shard-corrupt", "tests/bundles/lab-nan"])
def test_an_answer_keeps_all_of_them_and_they_are_read_again(known, bundle):
    """Within their bounds."""
    answer = diagnose_bundle(known, ROOT / bundle, workers=1)
    small = attachments.small(answer)
    assert {name: len(data) < attachments.MOST_BYTES for name, data in small.items()} == dict.fromkeys(
        ("timeline", "curves", "passages", "compared", "observed"), True
    )
    found = attachments.read(small.get)
    assert found.timeline.rows
    assert [chart.metric for chart in found.curves.charts][:1] == ["loss"]
    first = answer.report.diagnoses[0].evidence[0]
    assert (first.source, first.offset) in found.passages


def test_an_answer_on_nothing_keeps_nothing_much(known, tmp_path):
    """No charts, no passages, a timeline without rows."""
    found = attachments.read(attachments.small(nothing_read(known, tmp_path, "no reason")).get)
    assert (found.curves.charts, found.passages, found.timeline.rows) == ((), {}, ())


@pytest.mark.parametrize(
    "broken", [b"", b"{}", b"[]", b"\xff", b'{"schema":"signalbox.curves/1","charts":7}', b"[" * 10_000]
)
def test_what_cannot_be_read_counts_as_missing(broken):
    """The page is shown without it."""
    assert attachments.read(lambda _: broken) == attachments.PageAttachments()
    for load in (attachments.loads, comparisons.loads, log_context.loads):
        with pytest.raises(UnreadableInput):
            load(broken)


def test_curves_come_back_as_they_were():
    """Value for value."""
    assert attachments.loads(attachments.dumps(curves())) == curves()
    assert msgspec.json.decode(attachments.dumps(curves()))["schema"] == attachments.SCHEMA


@pytest.mark.parametrize(
    ("head", "frame", "whole"),
    [
        ("Traceback (most recent call last):", "  File 'a.py', line 1", True),
        ("[rank5]: Traceback (most recent call last):", "[rank5]:   File 'a.py', line 1", True),
        ("[rank5]: Original Traceback (most recent call last):", "[rank5]:   File 'a.py', line 1", True),
        ("  Original Traceback (most recent call last):", "    File 'a.py', line 1", True),
        ("2026-11-23 ERROR Traceback (most recent call last):", "  File 'a.py', line 1", True),
        ("Traceback (most recent call last):", "step 7 loss 2.1", False),
    ],
)
def test_the_line_that_ends_a_traceback_has_all_of_it(head, frame, whole):
    """From its first line, whatever stands before each; lines that belong to no traceback are not added."""
    lines = ("step 1", head, *(frame,) * 9)
    assert log_context._before(lines) == (lines[1:] if whole else lines[-BEFORE:])
    assert log_context._before(lines[2:] * 10) == lines[-BEFORE:]


def test_comparisons_come_back_as_they_were(known):
    """Of a rank that is slower than the others, which is the suspect; and nothing of ranks without times."""
    slow = comparisons.compared(diagnose_bundle(known, ROOT / "tests/bundles/lab-slow-rank", workers=1))

    assert slow.heat.finding.startswith("Slow: rank 2 in all steps")
    assert [row.label for row in slow.heat.rows if row.suspect] == ["rank 2"]
    assert comparisons.loads(comparisons.dumps(slow)) == slow
    assert comparisons.loads(comparisons.dumps(comparisons.Comparisons())) == comparisons.Comparisons()
