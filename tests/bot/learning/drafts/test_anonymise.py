"""What must not leave becomes a stand-in, and what a reader needs stays."""

from __future__ import annotations

import pytest

from bot.learning.drafts.anonymise import Anonymiser, is_word, words_of


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("Set RING_DEPTH=512 in the job environment", "Set RING_DEPTH=512 in the job environment"),
        ("set QWZRTPL_DEPTH=512 there", "set QWZRTPL_DEPTH=512 there"),
        ("set ATLAS_KEY=5 there", "set (name)=5 there"),  # a name of the incident
        ("QWZRTPL_DEPTH was wrong", "(name) was wrong"),  # no value, so it may be anything
        ("restored it from backup", "restored it from backup"),
        ("the compressor of the writer was old", "the compressor of the writer was old"),
        ("worker-3 and shard12 were moved off wenda-12", "worker-3 and shard12 were moved off name-a"),
    ],
)
def test_settings_and_things_of_the_program_stay_and_names_do_not(known, said, kept):
    """A remedy without the name of its setting is none."""
    assert Anonymiser(words_of(known.rulebook), frozenset({"atlas"})).words(said) == kept


def test_a_class_keeps_the_words_that_the_rule_looks_for(known):
    """In whatever case: else the evidence shows a name where the event stands."""
    cleaner = Anonymiser(words_of(known.rulebook))
    assert cleaner.line("SnapshotQwzrtpledException: gone", ["qwzrtpled"]) == "SnapshotQwzrtpledException: gone"
    assert cleaner.line("SnapshotQwzrtpledException: gone") == "name: gone"


def test_different_ids_stay_different(known):
    """An error may be just that two ids are not the same."""
    cleaner = Anonymiser(words_of(known.rulebook))
    first = cleaner.line("plan 3fa9c1d2 expects 77b0e4aa")
    assert first.split()[1] != first.split()[3]
    assert cleaner.line("plan 77b0e4aa").split()[1] == first.split()[3]
    assert "3fa9" not in first


def test_a_thread_is_no_host(known):
    """What stands in quotes is a thing of the program, unless it is known as a host."""
    cleaner = Anonymiser(words_of(known.rulebook), frozenset({"gpu-b07"}))
    assert cleaner.line("thread 'decode-3x' failed on 'gpu-b07'") == "thread 'name' failed on 'node-a'"


def test_the_number_of_a_machine_goes_with_its_name(known):
    """It tells one from another."""
    cleaner = Anonymiser(words_of(known.rulebook))
    assert cleaner.line("64 processes on basaltic21") == "64 processes on name-a"


def test_long_numbers_stay_different_and_of_one_length(known):
    """Counts of up to seven digits stay as they are; a longer number may be an id."""
    cleaner = Anonymiser(words_of(known.rulebook))
    assert cleaner.line("1004301 of 1000000 used") == "1004301 of 1000000 used"
    assert cleaner.line("123456789 of 123400000 used") == "123000000 of 123000001 used"


def test_a_name_of_several_words_goes_as_a_whole(known):
    """Such as that of a job, each word of which is one of the language."""
    cleaner = Anonymiser(words_of(known.rulebook), frozenset({"moe-tundra", "node"}))
    assert cleaner.line("launch: moe-tundra starting, step 3") == "launch: name-a starting, step 3"
    assert cleaner.words("moved moe-tundra to the other queue") == "moved (name) to the other queue"


@pytest.mark.parametrize(
    ("word", "known"),
    [
        ("backfill", True),
        ("synchronisation", True),
        ("outage", True),
        ("retimers", True),
        ("cowell", False),
        ("underwood", False),
    ],
)
def test_ordinary_words_stay(word, known):
    """Also where the list has only another spelling or a part of them; what may name somebody does not."""
    assert is_word(word) is known


@pytest.mark.parametrize(
    "line", ["cairn08:4288:7346 [0] NCCL INFO ready", "user=x nodes=cairn08", "hosts=cairn08,cairn09 start"]
)
def test_a_host_that_is_called_a_word_is_removed_where_hosts_stand(line):
    """Nothing but its place tells it from a word and a number."""
    told = Anonymiser(frozenset(["cairn"])).line(line)
    assert "cairn0" not in told
    assert "node-a" in told
