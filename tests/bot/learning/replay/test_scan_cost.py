"""The cost of a changed rule on logs of good runs, compared with the other rules."""

from __future__ import annotations

import pytest

from bot.learning.replay.backtest import backtest
from bot.learning.replay.scan_cost import LEAST_BYTES, dearer
from bot.learning.replay.trial import base_of, trial
from bot.rulebase.loader import default_folder
from kb.learning.yaml_edits import with_pattern
from tests.support.learning_views import GOOD, rule

FILE = "storage/lease-revoked/rule.yaml"
LONG = {"long": {"a.log": GOOD.encode() * (LEAST_BYTES // len(GOOD) + 1)}}


@pytest.fixture(scope="module")
def base(cache):
    """The rules that ship."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SIGNALBOX_CACHE", str(cache))
        return base_of(default_folder())


def test_a_rule_that_asks_for_many_lines_is_reported(base):
    """In lines a MB, the same on each machine; one that asks for few is not."""
    many = list(dearer(trial(base, {FILE: rule(regex="loss: .{1,9} [|]")}), LONG))
    each = GOOD.count("loss:") / len(GOOD) * 1e6
    assert many == [
        f"lease-revoked checks {each:.1f} lines per MB of clean logs; 95 % of the rules check at most 10.0",
    ]
    assert list(dearer(trial(base, {FILE: rule()}), LONG)) == []


def test_little_text_or_few_rules_compare_with_nothing(base, few_rules, monkeypatch, cache):
    """A few lines and rules are not enough to compare costs."""
    dear = {FILE: rule(regex="loss: .{1,9} [|]")}
    assert list(dearer(trial(base, dear), {"short": {"a.log": GOOD.encode()}})) == []
    monkeypatch.setenv("SIGNALBOX_CACHE", str(cache))
    assert list(dearer(trial(base_of(few_rules), dear), LONG)) == []


def test_a_rule_that_was_dear_before_may_be_changed(base):
    """Unless it costs more than it did."""
    (path,) = [file for file in base.files if file.endswith("/loss-not-finite-stated/rule.yaml")]
    text = {"long": {"a.log": b"step 7 | loss: nan | lr: 3.0e-4\n" * (LEAST_BYTES // 30)}}
    fewer, more = (with_pattern(base.files[path], "more", {"regex": word}) for word in ("gone astray", r"lr: 3\.0e"))
    assert [len(list(dearer(trial(base, {path: item}), text))) for item in (fewer, more)] == [0, 1]


def test_a_backtest_tells_it_and_lets_it_pass(base, url):
    """A high cost alone does not fail the backtest."""
    told = backtest(trial(base, {FILE: rule(regex="loss: .{1,9} [|]", fault="storage_io")}), url, LONG, workers=1)
    assert [text.partition(" checks")[0] for text in told.dear] == ["lease-revoked"]
    assert [hurt.partition(" of")[0] for hurt in told.hurts] == ["it matches 1"]
