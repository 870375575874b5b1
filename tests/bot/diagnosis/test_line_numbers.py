"""Line numbers and texts of quoted lines."""

from __future__ import annotations

import gzip
from dataclasses import replace

import pytest

from bot.diagnosis import line_numbers as module
from bot.diagnosis.line_numbers import resolve
from connectors.bundles.streams import StreamReader
from kb.report import EvidenceItem
from tests.support.bot_samples import FALLEN_GPU

TEXT = b"".join(b"line %d of the log\n" % number for number in range(1, 5001))


def report(*items):
    """A report that shows these."""
    return replace(FALLEN_GPU, diagnoses=(replace(FALLEN_GPU.diagnoses[0], evidence=items),))


def item(number, source="a.log", **parts):
    """A line of the log as evidence, by its number, which it does not know yet."""
    offset = TEXT.index(b"line %d of" % number)
    return EvidenceItem("e1", parts.pop("kind", "line"), source, parts.pop("text", "x"), offset=offset, **parts)


def shown(found):
    """The evidence of the first diagnosis."""
    return found.diagnoses[0].evidence


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("block", [7, 1000, 1 << 20])
def test_line_numbers_are_counted(tmp_path, monkeypatch, pack, block):
    """First, last and any line between, in any order, in a plain and a packed file."""
    monkeypatch.setattr(module, "BLOCK", block)
    (tmp_path / "a.log").write_bytes(pack(TEXT))

    found = shown(resolve(report(item(4711), item(1), item(5000), item(4711), item(2)), tmp_path))

    assert [structure.line for structure in found] == [4711, 1, 5000, 4711, 2]


def test_each_source_is_read_once(tmp_path, monkeypatch):
    """Many lines of a file cost one pass, as far as the last of them."""
    opened = []

    def reader(ref, **how):
        opened.append(ref.uri)
        return StreamReader(ref, **how)

    monkeypatch.setattr(module, "StreamReader", reader)
    (tmp_path / "a.log").write_bytes(TEXT)

    resolve(report(*(item(number) for number in range(1, 400))), tmp_path)

    assert opened == [str(tmp_path / "a.log")]


def test_what_is_gone_has_no_number(tmp_path, monkeypatch):
    """A line of a source that vanished, shrank or is too large to count keeps its text and has no number."""
    (tmp_path / "short.log").write_bytes(TEXT[:50])
    (tmp_path / "a.log").write_bytes(TEXT)
    monkeypatch.setattr(module, "MOST", len(TEXT) - 1000)

    found = shown(resolve(report(item(9, "gone.log"), item(4000, "short.log"), item(5000), item(3)), tmp_path))

    assert [(structure.line, structure.text) for structure in found] == [
        (None, "x"),
        (None, "x"),
        (None, "x"),
        (3, "x"),
    ]


def test_a_series_is_shown_by_its_line(tmp_path):
    """Where a value is the evidence, the line that holds it is quoted; else the finding in words."""
    (tmp_path / "a.log").write_bytes(TEXT)
    (tmp_path / "b.log").write_bytes(gzip.compress(TEXT))

    found = shown(resolve(report(item(17, kind="series"), item(17, "b.log", kind="series")), tmp_path))

    assert [structure.text for structure in found] == ["line 17 of the log", "x"]


def test_secrets_are_masked(tmp_path):
    """No text of a report leaves here with a token in it."""
    token = "hf_" + "abcdEFGH1234" * 3
    found = resolve(replace(report(item(1, text=f"login with {token}")), summary=f"with {token}"), tmp_path)

    assert token not in repr(found)
