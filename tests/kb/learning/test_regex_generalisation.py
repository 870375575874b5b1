"""Messages that say the same become regexes that find them all."""

from __future__ import annotations

import re

import pytest

from kb.learning.clauses import freed
from kb.learning.regex_generalisation import escaped, regexes, with_fields
from kb.learning.tokenizer import WordWeights, aligned, tokens
from kb.rulebase.patterns import check

FEW = WordWeights()
MESSAGES = [
    ["lease of volume 7 was refused by its owner", "lease of volume 12 was refused by its owner"],
    ["Call to ibv_reg_mr failed with error Cannot allocate memory", "Call to ibv_reg_dm failed with error Cannot allocate memory"],
    ["[PG 0 (default_pg) Rank 7] watchdog (a+b)*c? ^x$ {3} \\d | terminated", "[PG 1 (tp) Rank 9] watchdog (a+b)*c? ^x$ {3} \\d | terminated"],
    ["größer als erlaubt: shard unreadable at /data/a/b.idx", "größer als erlaubt: shard unreadable at /mnt/c.idx"],
    ["Xid (PCI:0000:3b:00): 48, pid=311, name=python3, engine halted", "Xid (PCI:0000:af:00): 48, pid=9, name=python3, engine halted"],
]  # fmt: skip


@pytest.mark.parametrize("messages", MESSAGES)
@pytest.mark.parametrize("numbers", [False, True])
def test_each_regex_finds_each_message_and_is_safe(messages, numbers):
    """For all special characters; no regex is outside the safe subset."""
    found = list(regexes(aligned(messages), FEW, numbers=numbers))
    assert found
    assert [regex.text for regex in found for message in messages if not re.search(regex.text, message)] == []
    assert [fault for regex in found for fault in check(regex.text)] == []


@pytest.mark.parametrize("messages", MESSAGES)
def test_each_later_regex_keeps_more_words(messages):
    """The most general regex comes first."""
    counts = [len(regex.words) for regex in regexes(aligned(messages), FEW)]
    assert counts == sorted(set(counts))


def test_a_stretch_in_which_they_differ_may_be_anything():
    """What is common before and behind it stays."""
    messages = [
        "handshake with broker failed: certificate was revoked",
        "handshake with the old store failed: certificate was revoked",
    ]
    last = list(regexes(aligned(messages), FEW))[-1]
    assert last.text == "[Hh]andshake with .{0,120} failed: certificate was revoked"


@pytest.mark.parametrize("names", [("a", "b", "c"), ("a", "b", "b"), ("geo", "click", "click"), ("c", "c", "c")])
def test_a_word_in_the_place_of_another_is_a_value(names):
    """Also a letter that all incidents share by chance: the next one has another."""
    told = [f"volume sits in zone {name} but {at} pods were placed in zone {names[0]}" for at, name in enumerate(names)]
    first = next(iter(regexes(aligned(told), FEW, firm=True))).text
    assert re.search(first, "volume sits in zone east-1d but 9 pods were placed in zone f")


def test_a_line_may_be_wrapped_behind_what_is_wrong():
    """A line that goes on in another way is another one, and so is one that ends before it says what is wrong."""
    told = [f"gradient relay refused the frames of part {at}, {at}7 of the whole window are pending" for at in (2, 3)]
    first = next(iter(regexes(aligned(told), FEW, firm=True))).text
    assert re.search(first, "gradient relay refused the frames of")
    assert re.search(first, "gradient relay refused the frames of another job") is None
    assert re.search(first, "gradient relay") is None


def test_none_of_something_is_what_the_line_reports():
    """Some of it is health."""
    told = [f"send credits spent: 0 of {many} credits left" for many in (256, 512)]
    first = next(iter(regexes(aligned(told), FEW, firm=True))).text
    assert re.search(first, "send credits spent: 0 of 64 credits left")
    assert re.search(first, "send credits spent: 10 of 64 credits left") is None


def test_an_error_number_is_kept():
    """It says what failed, as words do; other numbers vary."""
    messages = [f"[Errno 61] No data available in block {number} of the layout" for number in (3, 12)]
    last = list(regexes(aligned(messages), FEW))[-1]
    assert last.text == r"Errno 61\b\] No data available in block (?P<value_1>[\d.]+) of the layout"


def test_words_that_all_texts_have_tell_nothing():
    """The run of words moves to those that are rare."""
    weights = WordWeights(400, {"handshake": 400, "with": 400, "certificate": 1, "revoked": 0, "authority": 2})
    found = next(iter(regexes(aligned(["handshake with: certificate revoked authority"]), weights)))
    assert found.words == ("certificate", "revoked", "authority")


def test_a_message_of_common_words_gives_none():
    """It would not distinguish any failure."""
    assert list(regexes(aligned(["step 7 of 9", "step 8 of 9"]), FEW)) == []


def test_what_is_no_printable_ascii_may_be_anything():
    """So that one encoding is as good as another."""
    assert re.fullmatch(escaped("größe (a)").encode(), "größe (a)".encode()) is not None


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("see https://x.example/a?b=1 now", [("https://x.example/a?b=1", "url")]),
        ("read /data/run/part-1.idx twice", [("/data/run/part-1.idx", "path")]),
        ("tokens/s fell", []),
        ("NVRM: Xid (PCI:0000:3b:00): 48", [("0000:3b:00", "pci")]),
        ("from 10.1.2.3<4011>", [("10.1.2.3<4011>", "ip")]),
        ("at 0x7f3b6d41 in abc1234f", [("0x7f3b6d41", "hex"), ("abc1234f", "hex")]),
        ("key 'lease_of' lost", [("'lease_of'", "quoted")]),
        ("on gpu-b07.cluster: lost", [("gpu-b07.cluster", "name")]),
        ("host hopper failed", [("hopper", "name")]),
        ("user=jdoe quota", [("jdoe", "name")]),
        ("host unreachable", []),
        ("asked by Marguerite", [("Marguerite", "name")]),
        ("2026-11-20 09:00:01,123 at 10:11:12", [("2026-11-20 09:00:01,123", "time"), ("10:11:12", "time")]),
        ("jane@corp.example wrote", [("jane@corp.example", "email")]),
    ],
)
def test_what_varies_is_reported_by_its_form(message, expected):
    """Addresses, paths, ids, times and names never become words of a rule."""
    assert [(token.text, token.form) for token in tokens(message) if token.kind == "varying"] == expected


def test_names_of_the_incident_vary_wherever_they_stand():
    """In any case of letters."""
    assert [token.text for token in tokens("lost Hopper again", {"hopper"}) if token.form == "name"] == ["Hopper"]


def test_a_line_without_end_is_cut():
    """However long it is."""
    assert sum(len(token.text) for token in tokens("lease " * 100_000)) == 600


def test_words_that_do_not_say_what_is_wrong_come_with_their_verb():
    """Else the same words behind another verb, in health, are found too."""
    told = [f"slot table was trimmed to {number} seats by the fairness pass" for number in (3, 12)]
    first = next(iter(regexes(aligned(told), FEW, firm=True))).text
    assert re.search(first, "slot table was trimmed to 4 seats by the fairness pass")
    assert re.search(first, "slot table was extended to 4 seats by the fairness pass") is None


def test_the_fields_behind_a_message_are_all_captured():
    """Those that stand side by side need no wide gap, of which a regex may have few."""
    lines = [
        f'{{"event":"stages differ here","time":"9:0{at}","stage":{at},"here":{at}2,"first":{at}4}}' for at in (1, 2)
    ]
    bare = next(iter(regexes(aligned(["stages differ here"]), FEW)))
    found = with_fields(bare, ("stage", "here", "first"), lines)
    hit = re.search(found.text, lines[1])
    assert hit is not None
    assert hit.groupdict() == {"stage": "2", "here": "22", "first": "24"}


def test_lines_that_all_incidents_share_keep_their_verbs():
    """A word behind "job" is a name only where it differs; a name of several parts is one value; a time of day is no device."""
    told = [f"job wants {at} stripes of pool {pool} at 09:1{at}, too many" for at, pool in ((4, "fa3"), (6, "bulk"))]
    first = next(iter(regexes(aligned(told), FEW, firm=True))).text
    assert re.search(first, "job wants 9 stripes of pool rope_k at 21:40, too many")
    assert re.search(first, "job gets 9 stripes of pool rope_k at 21:40, too many") is None
    assert aligned(["job wants 64 stripes"] * 2)[2].word == "wants"


def test_a_letter_behind_a_number_is_its_unit():
    """And what is left of a thing is no name of it."""
    told = [f"shelf capped to {at}800 W, {at} GiB of memory left" for at in (1, 2)]
    pieces = freed(aligned(told), ["1 GiB of memory free"])
    assert [piece.token.form for piece in pieces if piece.token is not None and piece.token.text == "W"] == ["unit"]
    assert pieces[-1].word == "left"


def test_a_single_incident_tells_the_whole_clause():
    """Half of it says nothing."""
    said = "stage 3 holds 24 layers while the lightest stage holds 5"
    first = next(iter(regexes(aligned([said]), FEW))).text
    assert first.startswith("[Ss]tage ")


@pytest.mark.parametrize(
    ("said", "other", "free"),
    [
        ("column views has scale {} in part 3", "column age read from part 9", True),
        ("column views has scale {} in part 3", "each column has a scale", False),
        ("column views has scale {} in part 3", "column views read from part 9", False),
        ("key index lookup {} failed", "key table loaded", False),
    ],
)
def test_the_own_name_of_a_column_is_a_value_where_other_lines_have_another(said, other, free):
    """All incidents had it by chance; a word that goes on with the sentence is no name."""
    pieces = freed(aligned([said.format(at) for at in (2, 4)]), [other])
    assert (pieces[2].token is not None and pieces[2].token.form == "name") is free
