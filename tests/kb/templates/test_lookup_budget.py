"""A stream of lines that are all unlike costs so many full looks and no more, and its decisive lines are not lost."""

from __future__ import annotations

import pytest

from kb.templates.lookup_budget import LOOKS, LookupBudget
from kb.templates.miner import Miner
from kb.templates.table import TemplateTable, merge
from kb.templates.template import MOST, OTHER, OTHER_TROUBLE
from tests.support.common.template_noise import noise
from tests.support.template_samples import REF, log

_FEW = 400


def mined(text: bytes, looks: int = _FEW, block: int = 1 << 20) -> tuple[TemplateTable, LookupBudget]:
    """The table of a text, and the looks that it took."""
    miner = Miner(REF, looks=looks)
    for at in range(0, len(text), block):
        miner.feed(text[at : at + block])
    return miner.finish(), miner.looks


def counts(table: TemplateTable) -> dict[str, int]:
    """How often each template came."""
    return {template.template.text: template.count for template in table.templates.values()}


def test_many_unlike_lines_take_no_more_looks_than_they_may():
    """What is behind the budget is counted, with its first and last places, and the table stays small."""
    lines, looks = 100_000, 2000
    table, taken = mined(noise(lines), looks)
    other = table.templates[OTHER.id]
    assert looks <= taken.made <= looks + looks // 4
    assert len(table.templates) <= MOST
    assert (table.lines, table.events) == (lines, lines)
    assert other.count == table.unlike > lines - 10 * looks
    assert [place.number for place in other.last] == sorted(place.number for place in other.last)
    assert other.last[-1].number == lines
    assert len(other.first) == 4


def test_what_tells_of_trouble_behind_the_noise_is_its_own_event():
    """Levels from warning on and exceptions with their tracebacks have looks of their own."""
    text = noise(20 * _FEW) + (
        b"2026-11-03 04:12:07 ERROR the disk of this node went away\n"
        b"[rank1]: Traceback (most recent call last):\n"
        b'[rank1]:   File "/app/disk.py", line 5, in save\n'
        b"[rank1]:     Store(one=2).keep()\n"
        b"[rank1]: DiskError: nothing can be kept\n"
        b"2026-11-03 04:12:08 WARNING rank 3 waits\n"
    )
    found = counts(mined(text)[0])
    assert {
        name: found.get(name)
        for name in (
            "ERROR the disk of this node went away",
            "Traceback (most recent call last):",
            "DiskError: nothing can be kept [in save (disk.py)]",
            "WARNING rank <*> waits",
        )
    } == {
        "ERROR the disk of this node went away": 1,
        "Traceback (most recent call last):": 1,
        "DiskError: nothing can be kept [in save (disk.py)]": 1,
        "WARNING rank <*> waits": 1,
    }


def test_a_line_that_comes_again_behind_the_noise_is_its_own_event():
    """Its first time it was counted among the unlike, unless it came again at once."""
    apart = b"the store closed door 7\n" + noise(20 * _FEW, 2) + b"the store closed door 8\n"
    at_once = b"a port fell silent on 12\n" * 20
    found = counts(mined(noise(20 * _FEW) + apart + at_once, block=1 << 16)[0])
    assert (found["the store closed door <*>"], found["a port fell silent on <*>"]) == (1, 20)


def test_too_many_unlike_errors_are_counted_as_errors():
    """They end within their own looks, and what counts them has their level."""
    text = b"".join(b"ERROR: " + line + b"\n" for line in noise(20 * _FEW).splitlines())
    table, taken = mined(text)
    assert taken.made <= 2 * _FEW + _FEW // 4
    assert table.templates[OTHER_TROUBLE.id].count == table.unlike > 0
    assert table.templates[OTHER_TROUBLE.id].template.level == "error"


@pytest.mark.slow  # test_many_unlike_lines_take_no_more_looks_than_they_may
def test_logs_with_random_words_in_known_lines_keep_within_their_looks():
    """The table of a mixed log is that without a budget, and lines like known ones take no looks."""
    text = log(10_000)
    table, taken = mined(text, LOOKS)
    assert (table, table.unlike) == (mined(text, 100 * LOOKS)[0], 0)
    assert taken.made < LOOKS // 4


def test_parts_merge_in_any_order_and_keep_what_was_only_counted():
    """No line is lost: what each part only counted is summed."""
    text = noise(8 * _FEW)
    cut = text.index(b"\n", len(text) // 2) + 1
    parts = []
    for start, stop in ((0, cut), (cut, None)):
        miner = Miner(REF, origin=start, own_start=start, own_stop=stop, looks=_FEW)
        miner.feed(text[start:stop])
        parts.append(miner.finish())
    left, right = parts
    joined = merge(left, right)
    assert joined == merge(right, left)
    assert joined.unlike == left.unlike + right.unlike > 0
    assert joined.events == left.events + right.events
