"""Our YAML loader: what it reads, what it refuses, and where it says so."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kb.rulebase.yaml_nodes import MAX_BYTES, nearest, parse

RULES = Path(__file__).parents[3] / "rules"


def faults(text: str) -> list[str]:
    """The faults of a text, each as "line:column: message (hint)"."""
    return [str(fault).removeprefix("f.yaml:") for fault in parse(text, "f.yaml")[1]]


def plain(text: str) -> object:
    """The plain value of a text that must have no faults."""
    node, wrong = parse(text, "f.yaml")
    assert wrong == ()
    assert node is not None
    return node.plain()


def test_values_keep_their_kind() -> None:
    """Numbers, booleans, nulls and texts are read as what they look like."""
    text = (
        "a: 12\nb: -3.5\nc: 1e3\nd: true\ne: ~\nf:\ng: null\nh: word\ni: '12'\nj: [x, {k: v}]\nk: 0\nl: 1.2.3\nm: 10m\n"
    )
    assert plain(text) == {
        "a": 12,
        "b": -3.5,
        "c": 1000.0,
        "d": True,
        "e": None,
        "f": None,
        "g": None,
        "h": "word",
        "i": "12",
        "j": ["x", {"k": "v"}],
        "k": 0,
        "l": "1.2.3",
        "m": "10m",
    }


def test_folded_and_literal_blocks() -> None:
    """Block texts are folded or kept as in YAML, for any content."""
    assert plain("a: >-\n  no\n  yes\nb: |\n  x\n  y\n") == {"a": "no yes", "b": "x\ny\n"}


def test_a_date_is_text() -> None:
    """A day written in full stays text."""
    assert plain("a: 2027-01-31") == {"a": "2027-01-31"}


@pytest.mark.parametrize(
    "word",
    [
        "no",
        "Yes",
        "on",
        "OFF",
        "y",
        "N",
        "True",
        "FALSE",
        "Null",
        "1:30",
        "190:20:30",
        "012",
        "0x1F",
        "0o17",
        "0b11",
        "1_000",
        *[
            "+5",
            ".5",
            "5.",
            ".inf",
            "-.INF",
            ".NaN",
            "2027-01-31 10:00:00",
            "2027-1-3T1:00:00Z",
            "00",
            "08",
            "=",
            "-012",
        ],
    ],
)
def test_surprises_must_be_quoted(word: str) -> None:
    """What other YAML readers take for a boolean, a number or a time is refused bare and read as text in quotes."""
    (fault,) = faults(f"key: {word}")
    assert fault.startswith("1:6: unquoted")
    assert f"quote it: '{word}'" in fault
    assert plain(f"key: '{word}'") == {"key": word}


def test_surprising_keys_must_be_quoted() -> None:
    """Keys are read by the same rules as values."""
    assert faults("no: 1")[0].startswith("1:1: unquoted 'no'")
    assert plain("48: a\n'no': b") == {"48": "a", "no": "b"}


@pytest.mark.parametrize("number", ["1" * 16, "1e999", "-" + "9" * 400, "1." + "0" * 50])
def test_numbers_out_of_range(number: str) -> None:
    """Implausible numbers are refused."""
    assert "number" in faults(f"a: {number}")[0]


def test_duplicate_keys_are_all_named() -> None:
    """Each repeated key is reported with the line of the first, at any depth."""
    text = "a: 1\nb:\n  c: 1\n  c: 2\na: 2\n"
    assert faults(text) == [
        "4:3: key 'c' is defined twice (first in line 3)",
        "5:1: key 'a' is defined twice (first in line 1)",
    ]


def test_a_number_and_its_text_are_one_key() -> None:
    """A bare number as key is its text, so both together are a duplicate."""
    assert len(faults("48: a\n'48': b")) == 1


def test_anchor_bomb_is_refused() -> None:
    """Anchors and aliases are refused one by one, and nothing is expanded."""
    lines = ["a0: &a0 [x, x, x]"] + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)]
    told = faults("\n".join(lines))
    assert len(told) == 9 + 8 * 9
    assert "anchor '&a0' is not allowed" in told[0]


def test_merge_keys_are_refused() -> None:
    """A bare << is not a key; a quoted one is."""
    assert faults("a: {<<: {x: 1}}") == ["1:5: merge key '<<' is not allowed (write the entries out)"]
    assert plain("'<<': 1") == {"<<": 1}


@pytest.mark.parametrize("value", ["!!python/object:os.system x", "!mine x", "!!str 5", "! x", "!!set {a}"])
def test_tags_are_refused(value: str) -> None:
    """No tag is followed, not even the plain ones."""
    assert "is not allowed" in faults(f"a: {value}")[0]


def test_several_documents_are_refused() -> None:
    """One document a file; a leading marker is fine."""
    assert plain("---\na: 1\n") == {"a": 1}
    assert faults("a: 1\n---\nb: 2\n")[0].startswith("2:1: more than one document")


def test_tabs_are_named() -> None:
    """A tab as indentation is reported in plain words, with its position."""
    assert faults("a:\n\tb: 1\n") == ["2:1: a tab where only spaces may stand (indent with spaces)"]


def test_syntax_error_ends_the_file_but_keeps_earlier_faults() -> None:
    """Faults before the syntax error are reported together with it."""
    told = faults("a: no\nb: 'open\n")
    assert len(told) == 2
    assert told[0].startswith("1:4: unquoted")
    assert "not YAML" in told[1]


def test_colon_in_a_text_gets_a_hint() -> None:
    """The commonest syntax error says how it is fixed."""
    assert "quote a text that contains ': '" in faults("a: one: two")[0]


def test_deep_nesting_is_refused() -> None:
    """Twenty levels may be; ten thousand cost nothing and are refused."""
    assert parse("[" * 20 + "]" * 20, "f")[1] == ()
    assert faults("[" * 10_000)[0] == "1:21: nested deeper than 20 levels"
    assert "deeper than 20" in faults("- " * 10_000)[0]


def test_huge_files_are_refused() -> None:
    """Size is counted in bytes, and so is the number of values."""
    assert "larger than 256 KiB" in faults("é" * (MAX_BYTES // 2 + 1))[0]
    assert "more than 20000 values" in faults("[" + "a," * 30_000 + "]")[0]


@pytest.mark.parametrize("text", ["a: b\0c", "a: b\x07c", 'a: "\\0"', 'a: "\\ud800"', "a: \ud800", 'a: "\\e[0m"'])
def test_control_characters_are_refused(text: str) -> None:
    """NUL bytes, control characters and half characters are refused, written out or escaped."""
    assert "character" in faults(text)[0]


def test_nul_is_placed() -> None:
    """A character that is not allowed in YAML is reported with its position."""
    assert faults("a: 1\nb: x\0") == ["2:5: character U+0000 is not allowed (remove it)"]


@pytest.mark.parametrize("text", ['"\\UFFFFFFFF"', "%YAML 1." + "9" * 9000 + "\n---\na"])
def test_numbers_that_break_the_scanner(text: str) -> None:
    """Escapes and directives that make PyYAML itself stumble are faults, not exceptions."""
    assert len(faults(text)) == 1


@pytest.mark.parametrize("text", ["? [a, b]\n: c", "{[a]: b}", "? {a: 1}\n: c"])
def test_keys_are_words(text: str) -> None:
    """A list or mapping cannot be a key."""
    assert "a key must be a plain word" in faults(text)[0]


def test_positions() -> None:
    """Every value and every key knows its line and column, counted from 1."""
    node, _ = parse("a: 1\nbb:\n  - x\n  -  {c: deep}\n", "some/f.yaml")
    assert node is not None
    assert node.keys["bb"] == (2, 1)
    inner = node.get("bb").get(1)
    assert (inner.line, inner.column) == (4, 6)
    assert str(inner.get("c").fault("bad", "hint")) == "some/f.yaml:4:10: bad (hint)"
    assert str(inner.key_fault("c", "bad")) == "some/f.yaml:4:7: bad"


def test_empty_file_has_no_root() -> None:
    """Nothing, or only comments, is nothing."""
    assert parse("", "f") == (None, ())
    assert parse("# only a comment\n", "f") == (None, ())


def test_nearest_word() -> None:
    """A hint is given only where a known word is near."""
    assert nearest("sevrity", ["severity", "status"]) == "did you mean 'severity'?"
    assert nearest("zzz", ["severity", "status"]) == ""
    assert nearest("x", []) == ""


@pytest.mark.parametrize(
    "text", ["[" * MAX_BYTES, '"' + "\n" * (MAX_BYTES - 2) + '"', "a " * (MAX_BYTES // 2), "k: v\n" * 50_000]
)
def test_hostile_files_are_read_in_bounded_time(text: str) -> None:
    """The largest file of the worst kind takes seconds at most, here with a wide margin."""
    start = time.process_time()
    parse(text, "f")
    assert time.process_time() - start < 10


YAMLISH = st.text(st.sampled_from(list("ab01:-,[]{}#&*!|>'\"%@`? \n\t\\.~<=+_\0xé\ud800")), max_size=60)


@settings(max_examples=60, deadline=None)
@given(st.one_of(YAMLISH, st.text(max_size=60)))
def test_never_raises(text: str) -> None:
    """Any text gives a tree or faults; a tree without faults has only plain values."""
    node, wrong = parse(text, "f")
    assert all(fault.line >= 1 and fault.column >= 1 for fault in wrong)
    if node is not None and not wrong:
        assert isinstance(node.plain(), dict | list | str | int | float | bool | None)


def test_both_parsers_read_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file without faults is read with libyaml where it is installed: the same nodes at the same places."""
    texts = {
        str(path): path.read_text("utf-8") for path in sorted(RULES.glob("*/*/rule.yaml"))[::4]
    }  # Python's is slow
    texts |= {str(path): path.read_text("utf-8") for path in RULES.glob("*.yaml")}
    parse.cache_clear()
    fast = [parse(text, name) for name, text in texts.items()]
    monkeypatch.setattr(yaml, "__with_libyaml__", False)
    parse.cache_clear()

    assert len(fast) > 75
    assert fast == [parse(text, name) for name, text in texts.items()]
