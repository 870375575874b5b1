"""`signalbox rules stats --outcomes`, `advise` and `backtest`, as they are typed."""

from __future__ import annotations

import json

import pytest

from bot.learning.replay.trial import base_of
from tests.support.learning_views import FULL, GOOD, LEASE, OOM, add, right, rule, wrong


@pytest.fixture
def filled(few_rules, signalbox, monkeypatch):
    """A store with a shadow's incidents, and the command that reads it."""
    monkeypatch.setenv("SIGNALBOX_CACHE", str(signalbox.cache))
    base = base_of(few_rules)
    url = f"sqlite:///{signalbox.state / 'signalbox.db'}"
    for at in (1, 2):
        add(url, base.known, LEASE, job=f"{at}", said=wrong("storage_io"))
    add(url, base.known, OOM, job="3", said=right("cuda_oom"))
    add(url, base.known, FULL, job="4")
    return signalbox


def changed(few_rules, tmp_path, text):
    """The rules with one more."""
    folder = tmp_path / "new"
    for file in (path for path in few_rules.rglob("*") if path.is_file()):
        target = folder / file.relative_to(few_rules)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.read_bytes())
    path = folder / "storage" / "lease-revoked" / "rule.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return folder


def test_outcomes_as_text_and_as_json(filled, few_rules):
    """Lists each rule with its n, followed by the shadow rules."""
    text = filled("rules", "stats", "--outcomes", "--rules", few_rules)
    told = json.loads(filled("rules", "stats", "--outcomes", "--json", "--rules", few_rules).out)
    assert b"2 first answers of 2 rules; correct: 1 of 1" in text.out
    assert b"no rules in status shadow" in text.out
    assert {item["rule"]: (item["confirmed"], item["unseen"], item["n"]) for item in told["rules"]} == {
        "cuda-out-of-memory": (1, 0, 1),
        "disk-full": (0, 1, 0),
    }
    assert told["shadows"] == []
    assert filled("rules", "stats", "--json", "--rules", few_rules).status == 2


def test_a_sound_change_passes_and_a_harmful_one_does_not(filled, few_rules, tmp_path):
    """The exit status says so, for whoever runs it on a pull request; folders of clean logs can be named."""
    runs = tmp_path / "runs"
    runs.mkdir()
    (runs / "good.log").write_text(GOOD)
    sound = changed(few_rules, tmp_path / "a", rule())
    harmful = changed(few_rules, tmp_path / "b", rule(regex="training finished"))
    passed = filled("rules", "backtest", sound, "--rules", few_rules, "--clean", runs)
    failed = filled("rules", "backtest", harmful, "--rules", few_rules, "--clean", runs, "--json")
    assert passed.status == 0, passed.err
    assert b"changed rules: lease-revoked\n" in passed.out
    assert b"2 new, 0 lost, 0 changed first answers; 2 better, 0 worse" in passed.out
    assert (failed.status, json.loads(failed.out)["clean_hits"]) == (1, [str(runs / "good.log")])


def test_what_cannot_be_tried_is_reported_in_a_line(filled, few_rules, tmp_path):
    """Faults of the new rules with their place; a folder that is not there."""
    broken = changed(few_rules, tmp_path, rule(fault="no_such"))
    told = filled("rules", "backtest", broken, "--rules", few_rules)
    assert told.status == 2
    assert "storage/lease-revoked/rule.yaml" in told.err
    gone = filled("rules", "backtest", tmp_path / "none", "--rules", few_rules)
    assert (gone.status, "cannot be read" in gone.err) == (2, True)


def test_advice_on_the_store(filled, few_rules):
    """Includes failures that no rule explains; also as JSON."""
    text = filled("rules", "advise", "--rules", few_rules)
    told = json.loads(filled("rules", "advise", "--quick", "--json", "--rules", few_rules).out)
    assert text.status == 0, text.err
    assert b"Failures without a rule, by GPU-hours lost:" in text.out
    assert [item["incidents"] for item in told["unknown"]] == [[1, 2]]
    none = filled("rules", "advise", "--rules", few_rules, "--propose", "1")
    assert (none.status, "there is no advice 1" in none.err) == (2, True)
