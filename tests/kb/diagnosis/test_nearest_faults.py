"""Known faults that share words with a line."""

from __future__ import annotations

from kb.diagnosis.nearest_faults import MOST, nearest_faults
from kb.rulebase.rule import ExceptionTest, Pattern
from tests.support.kb_samples import rule

LEASE = rule(
    "lease", "link_down", Pattern("p", regex=r"lease (?P<id>\w+) of the shard server (?:was )?lost"), title="Lease lost"
)
PROBE = rule("probe", "deadlock", Pattern("p", literal="Liveness probe failed"), title="Probes of the container failed")
TOKEN = rule(
    "token", "code_bug", Pattern("p", exception=ExceptionTest(type="TokenizerMismatch", message="merges differ"))
)
GENERIC = rule("any", "preempted", Pattern("p", literal="liveness probe gave up"), fallback=True)
OTHERS = [rule(f"other{n}", "storage_io", Pattern("p", literal=f"text number {n}")) for n in range(60)]
RULES = (LEASE, PROBE, TOKEN, GENERIC, *OTHERS)


def test_rules_with_most_words_in_common_are_near() -> None:
    """Of patterns, exceptions and titles alike, with the words that they share."""
    (found,) = nearest_faults(["liveness_probe_gave_up"], RULES)
    assert (found.fault, found.rule, set(found.shared)) == ("deadlock", "probe", {"liveness", "probe"})
    (found,) = nearest_faults(["merges.Drift: 3 merges differ from the tokenizer"], RULES)
    assert found.fault == "code_bug"


def test_a_word_in_common_is_not_near() -> None:
    """Nor are the words of every failure, nor a generic rule."""
    assert nearest_faults(["the shard is green"], RULES) == ()
    assert nearest_faults(["fatal error: failed with exception"], RULES) == ()
    assert nearest_faults([], RULES) == ()


def test_words_of_several_alternatives_are_not_near() -> None:
    """Of what a rule looks for in different lines, each may share a word with any line."""
    apart = rule("apart", "deadlock", Pattern("p", regex=r"liveness gone|probe (?:failed|refused)|lease lost"))
    assert nearest_faults(["recipe of the liveness probe lease"], [apart, *OTHERS]) == ()
    assert nearest_faults(["the lease was lost"], [apart, *OTHERS])


def test_words_that_many_rules_have_are_not_near() -> None:
    """Two words of many rules say little."""
    assert nearest_faults(["this text has a number"], RULES) == ()


def test_one_rule_for_each_class_and_few_of_them() -> None:
    """The nearest of a class speaks for it."""
    rules = [rule(f"r{n}", f"class{n // 2}", Pattern("p", literal="sealed block range wide")) for n in range(8)]
    found = nearest_faults(["sealed block range wide"], [*rules, *RULES])
    assert [item.rule for item in found] == ["r0", "r2", "r4"]
    assert len(found) == MOST
