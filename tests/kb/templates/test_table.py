"""Tables of templates: however a stream is cut, and in whatever order its parts are merged, the table is the same."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import reduce
from itertools import zip_longest

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kb.model import Resource, StreamRef
from kb.templates import miner, multiline, template, windows
from kb.templates.masking import template_of
from kb.templates.table import TableSpan, TemplateTable, bounded, fold_alike, merge
from kb.templates.template import RANKED_ALONE, VARIABLE, Occurrence, TemplatePlace
from tests.support.template_samples import REF, log, mined, part

WARM = 2048


@pytest.fixture
def tight(monkeypatch):
    """Bounds so narrow that small logs meet them."""
    monkeypatch.setattr(template, "MOST", 60)
    monkeypatch.setattr(windows, "LAST_WINDOWS", 6)
    monkeypatch.setattr(windows, "COARSE_WINDOWS", 8)
    monkeypatch.setattr(template, "MOST_VOICES", 2)
    monkeypatch.setattr(miner, "PART", 9000)
    monkeypatch.setattr(miner, "FEWEST", 300)
    monkeypatch.setattr(multiline, "LONGEST_TRACEBACK", 500)


def in_parts(text: bytes, cuts: list[int], order: random.Random, warm: int = miner.WARM) -> TemplateTable:
    """The table of a text mined in parts, joined in any order and any grouping."""
    edges = [0, *sorted({cut % (len(text) + 1) for cut in cuts} - {0, len(text)})]
    block = order.choice([300, 5000, 1 << 20])
    parts = [part(text, a, b, warm=warm, block=block) for a, b in zip_longest(edges, edges[1:])]
    while len(parts) > 1:
        order.shuffle(parts)
        parts.append(merge(parts.pop(), parts.pop()))
    return parts[0]


@settings(max_examples=12)
@given(st.integers(0, 10**6), st.lists(st.integers(0, 10**6), max_size=6), st.randoms(use_true_random=False))
def test_cuts_do_not_change_the_table(seed, cuts, order):
    """Parts of a log joined in any order give the table of one pass."""
    text = log(120, seed)
    assert mined(text) == in_parts(text, cuts, order)


@pytest.mark.quick(1)
@pytest.mark.usefixtures("tight")
@pytest.mark.parametrize("seed", range(5))
def test_cuts_do_not_change_a_table_that_is_full(seed):
    """Folding and leaving out do not depend on cuts either."""
    text = log(400, seed)
    whole = mined(text)
    assert whole.keep < template.KEEP
    order = random.Random(seed)
    for _ in range(4):
        assert whole == in_parts(text, [order.randrange(len(text)) for _ in range(5)], order, WARM)


@pytest.mark.usefixtures("tight")
def test_a_full_table_stays_small_and_counts_what_it_left_out():
    """The number of templates is limited; the other lines are only counted."""
    found = mined(log(4000, 5))
    assert len(found.templates) <= 60
    assert sum(occurrence.count for occurrence in found.templates.values()) + found.other == found.events
    assert len(found.steps.last) == 6
    assert len(found.steps.coarse) <= 8


def made(*texts: str, level: str | None = None) -> TemplateTable:
    """A table of lines, one of each text."""
    templates = {}
    for at, text in enumerate(texts):
        place = TemplatePlace(at * 100, at + 1, text)
        template = template_of(text, level)
        templates[template.id] = Occurrence(template, 1, (place,), (place,))
    return bounded(TemplateTable(REF, len(texts), templates, spans=(TableSpan(0, 100 * len(texts), len(texts)),)))


def test_random_words_fold_into_what_their_lines_have_in_common():
    """A thousand lines that differ by one word are one template, and other lines are left as they are."""
    words = [f"{a}{b}{c}xyz" for a in "abcdefghij" for b in "abcdefghij" for c in "abcdefghij"]
    found = made(*(f"request {word} went away to the store" for word in words), "the store is closed")
    assert sorted(occurrence.template.text for occurrence in found.templates.values()) == [
        f"request {VARIABLE} went away to the store",
        "the store is closed",
    ]
    assert found.other == 0


def test_a_random_first_word_folds_too():
    """Where the variable word comes first, groups are many, and their family folds."""
    words = [f"{a}{b}{c}{d}xyz" for a in "abcdef" for b in "abcdef" for c in "abcdef" for d in "abcdefgh"]
    found = made(*(f"{word} went away to the store" for word in words))
    assert [occurrence.template.text for occurrence in found.templates.values()] == [
        f"{VARIABLE} went away to the store"
    ]


def test_few_variants_are_kept_apart():
    """Up to 64 templates of a group stay what they are."""
    assert (
        len(made(*(f"the {chr(97 + n)}{chr(97 + n)}{chr(97 + n)}{chr(97 + n)} word" for n in range(26))).templates)
        == 26
    )


def test_trouble_is_left_out_last(monkeypatch):
    """If there are too many folded families, those with errors stay."""
    monkeypatch.setattr(template, "MOST", 40)
    calm = [" ".join(["word"] * width) for width in range(1, 200)]
    found = made(*calm, "disk failed at last")
    assert "disk failed at last" in {occurrence.template.text for occurrence in found.templates.values()}
    assert found.other > 0
    assert found.limit is not None


def test_tables_are_made_alike_before_they_are_compared():
    """What is folded in one is folded in the other, so that its ids are found there."""
    words = [f"{a}{b}xyz" for a in "abcdefghij" for b in "abcdefghij"]
    many = made(*(f"request {word} went away" for word in words))
    few = made("request unheard went away")
    assert not set(many.templates) & set(few.templates)
    one, other = fold_alike([many, few])
    assert set(other.templates) == set(one.templates)


def test_versions_do_not_mix():
    """Tables of different miners are refused, with what to do."""
    with pytest.raises(ValueError, match="mine both again"):
        merge(made("one"), replace(made("one"), version=0))


def test_line_numbers_are_known_when_the_parts_before_are_there():
    """Numbers count from the start of the part, and from the stream's start once all parts are merged."""
    text = b"".join(b"line of kind %c\n" % (97 + n) for n in range(10))
    second = part(text, 80, None, warm=WARM)
    assert not second.numbered
    whole = reduce(merge, [second, part(text, 0, 80, warm=0)])
    assert whole.numbered
    assert [
        occurrence.first[0].number for occurrence in sorted(whole.templates.values(), key=lambda o: o.first[0].offset)
    ] == list(range(1, 11))


def test_of_a_stream_of_one_rank_few_lines_that_name_it_are_kept_however_it_is_cut() -> None:
    """Its ranks need not be compared; the parts give what one pass gives."""
    text = b"".join(b"[rank3]: step %d of 900 done\n" % step for step in range(900))
    ref = StreamRef("rank-3.log", Resource(rank=3))

    def table(start: int, stop: int | None) -> TemplateTable:
        one = miner.Miner(ref, own_start=start, own_stop=stop)
        one.feed(text)
        return one.finish()

    cut = text.index(b"[rank3]: step 400")
    whole = table(0, None)
    ((_, seen),) = whole.templates.items()
    assert len(seen.ranked_first) == len(seen.ranked_last) == RANKED_ALONE
    assert merge(table(0, cut), table(cut, None)) == whole
