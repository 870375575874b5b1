"""Lines like known ones get the shape that a full look would give them, at once, and as one of a group where the group folds."""

from __future__ import annotations

import random
from itertools import cycle

import pytest

from kb.templates import miner as templates_miner
from kb.templates import shape_index
from kb.templates.lookup_budget import LookupBudget
from kb.templates.masking import LineShape, fold, shape_of
from kb.templates.miner import Miner
from kb.templates.shape_index import ShapeIndex
from kb.templates.similarity import BlockGroups, FoldedGroups, ShapeCache
from kb.templates.table import TemplateTable
from kb.templates.template import KEEP
from tests.support.template_samples import REF

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_HEADS = (
    "",
    "2026-11-03 04:12:07 INFO ",
    "[rank3]: 2026-11-03 04:12:07,120 [WARNING] ",
    "Sep 08 23:13:19 node-7 kernel: ",
)
_FORMS = (
    "store: object {} was moved in 17 ms",
    "{} went away to {}",
    "level={} then {} more",
    "local rank 3 {} done",
    "saw {}: {}",
    "step 12 {} loss 3.5",
    "KeyError: {}",
    " {} indented",
    '{{"level": "warn", "msg": "{} is full"}}',
    'Traceback (most recent call last):\n  File "/a/b.py", line 7, in {}\n    x()\nValueError: {} was {} bad',
)
_TELLING = ("error", "warning", "info", "local", "rank", "step", "timeout", "kernel", "validation", "iteration")


class Full(ShapeCache):
    """Looks at each line separately."""

    def shape(self, folded: bytes, block: BlockGroups | None, looks: LookupBudget) -> tuple[LineShape, bool]:  # noqa: ARG002 - as its base has it
        """Return the shape, independent of what was cached."""
        return shape_of(folded, dated=False), True


def random_log(seed: int, lines: int = 1200) -> bytes:
    """Lines of a few forms with words by chance: names, ids, paths, and those that decide on levels."""
    chance = random.Random(seed)

    def word() -> str:
        name = "".join(chance.choices(_LETTERS, k=chance.randint(4, 9)))
        number = f"{chance.getrandbits(40):x}"
        return chance.choice(
            [name, name, name, name, number, f"0x{number}", f"/data/{name}", f"'{name}'", chance.choice(_TELLING)]
        )

    heads, forms = chance.sample(_HEADS, 2), chance.sample(_FORMS, 3)
    return "".join(
        chance.choice(heads)
        + chance.choice(forms).format(word(), word(), word())
        + chance.choice(["\n"] * 9 + ["\r\n"])
        for _ in range(lines)
    ).encode()


def table(text: bytes, shapes: ShapeIndex | None = None) -> TemplateTable:
    """The table of a log."""
    miner = Miner(REF, shapes=shapes)
    miner.feed(text)
    return miner.finish()


@pytest.mark.quick(1)
@pytest.mark.parametrize("seed", [0, 5])
def test_what_is_learned_changes_no_table(seed, monkeypatch):
    """The table is the same as if each line were looked at, whatever was learned from other streams."""
    text, shapes = random_log(seed), ShapeIndex(dated=False)
    table(random_log(seed + 100), shapes)
    known, fresh = table(text, shapes), table(text)
    monkeypatch.setattr(shape_index, "ShapeCache", Full)
    assert [table(text)] * 2 == [fresh, known]


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    "forms",
    [
        ["{} went away to the store"],
        ["the store has {}"],
        ["{}"],
        ["saw '{}' in {} of it"],
        ["request {} went away"] * 9 + ["answer {} went away"],
        ["saw a {} of these"] * 9 + ["saw a {} of many"],
        ["saw /data/{} there"] * 9 + ["saw /ERROR/{} there"],
    ],
)
def test_lines_of_few_forms_are_what_a_full_look_says(forms, monkeypatch):
    """The position of the word makes no difference, nor does whether its lines fold as a group, as a family or not yet."""
    monkeypatch.setattr(templates_miner, "FEWEST", 2000)  # what is learned helps soon
    chance = random.Random(7)
    words = ["".join(chance.choices(_LETTERS, k=8)) for _ in range(1400)]
    lines = zip(cycle(forms), [*words, "error", "warning"], strict=False)
    text = "".join(form.format(word, word[::-1]) + "\n" for form, word in lines).encode()
    shapes = [table(text[: len(text) * part // 7]) for part in (1, 7)]
    monkeypatch.setattr(shape_index, "ShapeCache", Full)
    assert [table(text[: len(text) * part // 7]) for part in (1, 7)] == shapes


def test_a_line_that_differs_by_an_id_has_the_same_shape():
    """It is found by its prefix and its masked rest."""
    likeness = ShapeCache(dated=False)
    first, second, third = (
        likeness.shape(fold(f"2026-11-03 04:12:07 INFO run {name} began".encode()), None, LookupBudget())[0]
        for name in ("3f2504e0-4f89-11d3-9a0c-0305e82c3301", "a1b2c3d4e5f6", "twice")
    )
    assert first is second
    assert third is not first


def test_a_line_of_a_folded_group_is_one_more_of_it():
    """Once a group has more templates than are kept apart, a line with another word is given the group, for this stream only."""
    likeness, loose = ShapeCache(dated=False), FoldedGroups()

    def met(word: str) -> tuple[LineShape, bool]:
        return likeness.shape(f"the object {word} was moved".encode(), BlockGroups(b"", loose), LookupBudget())

    for number in range(KEEP + 1):
        shape, lasting = met("x" * (number + 4))
        assert lasting
        assert shape.template is not None
        loose.count(shape.template)
    shape, lasting = met("unheard")
    assert shape.template is not None
    assert (shape.template.folded, lasting) == (True, False)
    named, lasting = met("timeout")  # a word that tells of trouble makes another family
    assert named.template is not None
    assert (named.template.folded, lasting) == (False, True)
