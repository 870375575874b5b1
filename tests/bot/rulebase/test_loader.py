"""Rule folders and the cache of the compiled rule base."""

from __future__ import annotations

from typing import Any

import pytest

from bot.rulebase import cache, loader
from bot.rulebase.loader import Knowledge, default_folder, engine, knowledge, read_files
from kb.errors import RuleError, UnreadableInput
from kb.scanning import matcher
from kb.scanning.matcher import Re2Matcher
from kb.scanning.staged_matcher import StagedMatcher


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """A cache folder of the test's own, and nothing kept in the process by an earlier test."""
    monkeypatch.setenv("SIGNALBOX_CACHE", str(tmp_path / "kept"))
    loader._compiled_engine.cache_clear()
    return tmp_path / "kept"


@pytest.fixture
def builds(monkeypatch):
    """How often the rule base was built, as the length of a list."""
    built: list[None] = []
    build = loader._build

    def counted(*arguments: Any, **named: Any) -> Knowledge:
        built.append(None)
        return build(*arguments, **named)

    monkeypatch.setattr(loader, "_build", counted)
    return built


def test_the_shipped_rules_load_whole(known):
    """Every rule that ships is sound."""
    assert known.faults == ()
    assert len(known.rulebook.rules) > 100


def test_a_folder_gives_its_rule_files_only(few_rules):
    """Test logs and other files in the folders of rules are not read."""
    files, faults = read_files(few_rules)

    rules = {"memory/cuda-out-of-memory/rule.yaml", "storage/disk-full/rule.yaml"}
    assert set(files) == {"VERSION", "actions.yaml", "faults.yaml", *rules}
    assert faults == ()


def test_the_second_start_comes_from_the_cache(few_rules, kept, builds):
    """What was built once is read again, and is the same."""
    first, second = knowledge(few_rules), knowledge(few_rules)

    assert len(builds) == 1
    assert len(list(kept.glob("knowledge-*"))) == 1
    assert (second.rulebook, second.plan, second.faults) == (first.rulebook, first.plan, first.faults)
    assert second.matcher().hits(b"OSError: [Errno 28] No space left on device") == first.matcher().hits(
        b"OSError: [Errno 28] No space left on device"
    )


@pytest.mark.parametrize("change", ["rule", "engine", "format"])
def test_a_change_makes_the_cache_stale(few_rules, kept, builds, monkeypatch, change):
    """Other rules, another engine or another version of the format never meet an old cache."""
    knowledge(few_rules)
    if change == "rule":
        path = few_rules / "storage/disk-full/rule.yaml"
        path.write_text(path.read_text().replace("severity: high", "severity: low") + "# changed\n")
    elif change == "engine":
        monkeypatch.setenv("SIGNALBOX_ENGINE", "re2")
        pytest.importorskip("re2")
    else:
        monkeypatch.setattr(loader, "CACHE_FORMAT", 99)

    knowledge(few_rules)

    assert len(builds) == 2
    assert len(list(kept.glob("knowledge-*"))) == 2


@pytest.mark.parametrize("damage", ["cut", "empty", "flipped", "text", "folder"])
def test_a_damaged_cache_is_built_anew(few_rules, kept, builds, damage):
    """A damaged cache never reaches the pattern engine and causes no message."""
    first = knowledge(few_rules)
    path = next(kept.glob("knowledge-*"))
    data = path.read_bytes()
    if damage == "folder":
        path.unlink()
        path.mkdir()
    else:
        flipped = bytearray(data)
        flipped[len(data) // 2] ^= 1
        path.write_bytes({"cut": data[:-9], "empty": b"", "flipped": flipped, "text": b"no cache at all"}[damage])

    second = knowledge(few_rules)

    assert len(builds) == 2
    assert second.rulebook == first.rulebook
    assert [item.name for item in kept.glob("knowledge-*")] == [path.name]
    assert damage == "folder" or path.read_bytes() == data


def test_old_caches_are_thrown_away(few_rules, kept):
    """Of many rule bases the last few stay."""
    for index in range(12):
        (few_rules / "VERSION").write_text(f"1.{index}\n")
        knowledge(few_rules)

    assert len(list(kept.glob("knowledge-*"))) == 8


def test_a_cache_in_use_outlives_others(few_rules, kept, builds):
    """A rule base that is loaded between many others is built once."""
    version = few_rules / "VERSION"
    for index in range(12):
        for text in ("1.0", f"2.{index}"):
            version.write_text(f"{text}\n")
            knowledge(few_rules)

    assert len(builds) == 1 + 12
    assert len(list(kept.glob("knowledge-*"))) == 8


def test_both_engines_find_the_same(few_rules, kept, monkeypatch):
    """RE2, asked for by the environment, hits the same patterns at the same lines."""
    pytest.importorskip("re2")
    del kept
    text = b"a line\nOSError: [Errno 28] No space left on device\nCUDA out of memory. Tried to allocate 2.00 GiB\n"
    assert engine() is StagedMatcher
    first = {pattern for pattern, _ in knowledge(few_rules).matcher().hits(text)}
    monkeypatch.setenv("SIGNALBOX_ENGINE", "re2")
    assert engine() is Re2Matcher

    assert {pattern for pattern, _ in knowledge(few_rules).matcher().hits(text)} == first != set()


def test_faults_of_rules_stay_with_the_cached(few_rules, kept, builds):
    """A bad rule is reported on the second start too."""
    del kept
    path = few_rules / "storage/disk-full/rule.yaml"
    path.write_text(path.read_text() + "colour: red\n")

    faults = [knowledge(few_rules).faults for _ in range(2)]

    assert len(builds) == 1
    assert faults[0] == faults[1]
    assert "unknown key 'colour'" in str(faults[0][0])


def test_the_engine_with_all_patterns_has_its_own_entry(few_rules, kept, monkeypatch):
    """It is compiled when it is needed, and loaded by the next process."""
    known = knowledge(few_rules)
    known.matcher().hits(b"OSError: [Errno 28] No space left on device")
    assert not list(kept.glob("engine-*"))
    many = b"OSError: [Errno 28] No space left on device\n" * 10_000
    assert len(known.matcher().hits(many)) >= 10_000
    assert len(list(kept.glob("engine-*"))) == 1

    loader._compiled_engine.cache_clear()
    monkeypatch.setattr(matcher, "_compile", lambda *_: pytest.fail("compiled again"))
    assert len(knowledge(few_rules).matcher().hits(many)) >= 10_000


def test_names_that_are_no_utf8_do_no_harm(few_rules, kept, monkeypatch):
    """A folder whose name is not UTF-8 is reported as a fault, and cached."""
    del kept
    monkeypatch.setattr(cache, "_SETTLED", 0)  # as if nothing had changed for a while
    folder = few_rules / "moon\udcff" / "odd"
    folder.mkdir(parents=True)
    (folder / "rule.yaml").write_text("")

    assert any(fault.file.startswith("moon\\udcff/odd") for fault in knowledge(few_rules).faults)


def test_no_folder_and_no_vocabulary_are_errors(tmp_path, kept):
    """A folder that is not there, or holds no rule base, cannot be used."""
    del kept
    with pytest.raises(UnreadableInput, match="nowhere"):
        read_files(tmp_path / "nowhere")
    with pytest.raises(RuleError, match=r"faults\.yaml:1:1: the file is missing"):
        knowledge(tmp_path)


def test_the_shipped_folder_is_in_the_checkout():
    """Without a wheel the rules are those of the checkout."""
    assert (default_folder() / "faults.yaml").is_file()
