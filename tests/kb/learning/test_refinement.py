"""What would have kept a rule silent, what kept it silent, and which faults come together."""

from __future__ import annotations

from kb.learning.cases import Case
from kb.learning.negative_corpus import background, negative_case
from kb.learning.refinement import Cluster, FaultPair, NearestLine, clusters, exclusion, nearest, pairs, widening
from kb.rulebase.rule import ExceptionTest, Name, Pattern, Rule

STEPS = "step 1 | loss: 2.9\nstep 2 | loss: 2.8\n"
FULL = "OSError: [Errno 28] No space left on device\n"
QUOTA = "quota daemon: project {} is over its grant, writes are refused\n"


def case(number, text, fault=None):
    """A case of one log."""
    return Case(number, fault, texts={"rank-0.log": STEPS + text})


def rule(*patterns):
    """A rule of these patterns."""
    return Rule(
        "a-rule",
        "A rule",
        "disk_full",
        "root_cause",
        "stable",
        "high",
        "",
        "",
        "",
        patterns,
        Name(patterns[0].name),
        (),
    )


def test_what_all_wrong_ones_have_and_no_right_one_is_found():
    """The pattern matches each wrong incident, for any numbers, and no right one."""
    wrong = [case(at, FULL + QUOTA.format(at * 17)) for at in (1, 2, 3)]
    right = [case(at, FULL) for at in (4, 5)]
    found = exclusion(wrong, right)
    assert found is not None
    assert found.support == {1, 2, 3}
    assert "quota" in found.search or "grant" in found.search
    assert "17" not in found.search


def test_few_incidents_prove_nothing():
    """One wrong or one right one is not enough, nor is a line that some right one has too."""
    wrong = [case(at, FULL + QUOTA.format(at)) for at in (1, 2)]
    right = [case(at, FULL) for at in (4, 5)]
    assert exclusion(wrong[:1], right) is None
    assert exclusion(wrong, right[:1]) is None
    assert exclusion(wrong, [*right, case(6, FULL + QUOTA.format(9))]) is None


def test_a_line_that_a_rule_missed_gives_a_pattern_that_others_lack():
    """Lines near the one shown, in the missed incidents, and in none of another fault."""
    missed = [case(at, f"fatal: device out of blocks, wrote {at} of 90\n", "disk_full") for at in (1, 2)]
    others = background(negative_case(case(9, "fatal: device removed\n", "storage_io")) for _ in range(3))
    found = widening(missed, "fatal: device out of blocks, wrote 1 of 90", others, "disk_full")
    assert found is not None
    assert found.support == {1, 2}
    assert widening(missed, "something else altogether", others, "disk_full") is None


def test_the_nearest_line_tells_which_words_it_lacks():
    """Of literals, regexes and exceptions; where no line is near there is none."""
    literal = Pattern("full", literal="no space left on device")
    assert nearest(rule(literal), ["[rank3]: no space on device sda\n"]) == NearestLine(
        "full", "no space on device sda", nearest(rule(literal), ["[rank3]: no space on device sda\n"]).score, ("left",)
    )
    raised = Pattern("raised", exception=ExceptionTest(type="OSError", message="[Nn]o space left"))
    assert nearest(rule(raised), ["OSError: no blocks left"]).lacks == ("space",)
    assert nearest(rule(literal), ["an unlike line of text"]) is None
    assert nearest(rule(literal), []) is None


def test_pairs_need_one_order_and_enough_incidents():
    """Nine of ten times the same comes first, five times at least."""
    always = dict.fromkeys(range(1, 7), ("a", "b"))
    assert pairs(always) == (FaultPair("a", "b", 6, 6, (1, 2, 3, 4, 5, 6)),)
    assert pairs({**always, 7: ("b", "a")}) == ()
    assert pairs(dict.fromkeys(range(4), ("a", "b"))) == ()


def test_like_texts_are_one_cluster():
    """Equal ones and like ones; the largest first."""
    texts = {
        1: "lease <*> was revoked by its owner",
        2: "bus error on <*>",
        3: "lease <*> was revoked by owner",
        4: "bus error on <*>",
        5: "lease <*> was revoked by its owner",
    }
    assert clusters(texts) == (
        Cluster("lease <*> was revoked by its owner", (1, 3, 5)),
        Cluster("bus error on <*>", (2, 4)),
    )
    assert clusters({}) == ()
