"""What must not leave becomes a stand-in, and what a reader needs stays."""

from __future__ import annotations

import pytest

from bot.learning.drafts.anonymise import Anonymiser, words_of


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("Set RING_DEPTH=512 in the job environment", "Set RING_DEPTH=512 in the job environment"),
        ("set QWZRTPL_DEPTH=512 there", "set QWZRTPL_DEPTH=512 there"),
        ("set ATLAS_KEY=5 there", "set (name)=5 there"),  # a name of the incident
        ("QWZRTPL_DEPTH was wrong", "(name) was wrong"),  # no value, so it may be anything
        ("restored it from backup", "restored it from backup"),
        ("the compressor of the writer was old", "the compressor of the writer was old"),
        ("worker-3 and shard12 were moved off wenda-12", "worker-3 and shard12 were moved off node-a"),
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
