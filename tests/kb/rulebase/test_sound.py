"""The list of rule texts whose regexes were checked before."""

from __future__ import annotations

import pytest

from bot.authoring.lock import write_sound
from bot.rulebase.loader import default_folder, knowledge, read_files
from kb.rulebase.rulebook import load
from kb.rulebase.sound import NAME, read_sound, sound_list, text_digest

SHIPPED = read_files(default_folder())[0]
TEXTS = {path: text for path, text in SHIPPED.items() if path.endswith("/rule.yaml")}
FEW = {name: SHIPPED[name] for name in ("faults.yaml", "actions.yaml", "storage/disk-full/rule.yaml")}


def test_the_shipped_rules_are_sound_without_the_list():
    """What the list lets a start skip finds no fault, and the rules are the same."""
    whole, quick = load(SHIPPED), load(SHIPPED, sound=read_sound(SHIPPED[NAME]))
    assert whole.faults == quick.faults == ()
    assert whole.rulebook == quick.rulebook


def test_the_list_has_nearly_all_shipped_rules():
    """A missing one only costs time at a first start; `signalbox rules lock` adds it."""
    known = read_sound(SHIPPED[NAME])
    listed = sum(text_digest(text) in known for text in TEXTS.values())
    assert listed >= 0.9 * len(TEXTS)


def test_a_changed_rule_is_checked_again():
    """A text that is not in the list is checked, whatever stood there before."""
    path = "storage/disk-full/rule.yaml"
    known = read_sound(sound_list([FEW[path]]))
    bad = FEW[path].replace("match:\n", "match:\n  slow:\n    regex: '(?:[a-z]+)+ left on device'\n", 1)
    assert bad != FEW[path]
    assert load(FEW, sound=known).faults == ()
    assert "can read the same text in two ways" in str(load(FEW | {path: bad}, sound=known).faults)


def test_a_list_in_another_folder_is_not_believed(tmp_path, monkeypatch):
    """Only the rules that ship with the program are trusted to have been checked."""
    monkeypatch.setenv("SIGNALBOX_CACHE", str(tmp_path / "cache"))
    bad = FEW["storage/disk-full/rule.yaml"].replace(
        "match:\n", "match:\n  slow:\n    regex: '(?:[a-z]+)+ left on device'\n", 1
    )
    files = FEW | {"storage/disk-full/rule.yaml": bad}
    for path, text in files.items():
        (tmp_path / "rules" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "rules" / path).write_text(text, "utf-8")
    write_sound(tmp_path / "rules", files)
    assert "can read the same text in two ways" in str(knowledge(tmp_path / "rules").faults)


@pytest.mark.parametrize("listed", ["", "\n\n", "<<<<<<< ours\n", "0" * 31])
def test_a_damaged_list_lists_nothing(listed):
    """No line that is not a digest counts."""
    assert read_sound(listed) == frozenset()
