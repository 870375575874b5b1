"""Notification limits: properties for any stream of failures, and each decision on its own."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.policy.notifications import (
    DAY,
    HOUR,
    Cap,
    Decision,
    Flap,
    Flapping,
    Mute,
    RolloutChannel,
    RuleRecord,
    Subject,
    Verdict,
    WeakRuleThreshold,
    decide,
    matching_mute,
    rollout_channels,
    room,
    rule_records,
)
from kb.digest.statistics import wilson

NOW = 1_763_000_000.0
XID = Subject("red", "f1", "c1", "4711", "llm-7b", "gpu/xid-79", ("n1", "n2"))
streams = st.lists(
    st.tuples(st.floats(0, 3 * HOUR), st.sampled_from(["f1", "f2", "f3", "f4"]), st.sampled_from(["c1", "c2", "c3"])),
    max_size=60,
)


def decided(stream, cap, mutes=()):
    """Return the decisions for a stream of failures (seconds since the previous one, fingerprint, chain) in one channel."""
    at, posted, flaps, found = NOW, [], {}, []
    for pause, fingerprint, chain in stream:
        at += pause
        subject = replace(XID, fingerprint=fingerprint, chain=chain)
        one = decide(subject, "C1", at, mutes=mutes, before=flaps.get((fingerprint, chain)), posted=posted, cap=cap)
        flaps[fingerprint, chain] = one.flap
        posted += [at] if one.do == "post" else []
        found.append((at, (fingerprint, chain), one))
    return found


@settings(max_examples=20, deadline=None)
@given(streams, st.integers(1, 4))
def test_no_stream_gets_past_the_cap(stream, most):
    """The hourly limit holds, and nothing vanishes: each failure is posted, counted or listed."""
    found = decided(stream, Cap(most))
    posts = [at for at, _, item in found if item.do == "post"]
    assert all(sum(start <= at < start + HOUR for at in posts) <= most for start in posts)
    assert {item.do for _, _, item in found} <= {"post", "count", "hold"}


@settings(max_examples=20, deadline=None)
@given(streams)
def test_the_same_again_is_counted_and_its_pauses_grow(stream):
    """Two messages about the same failure are at least the pause apart, the pause never shrinks, and every repeat is counted."""
    last: dict = {}
    counts: dict = {}
    for at, key, item in decided(stream, Cap(1000)):
        counts[key] = counts.get(key, 0) + 1
        assert item.flap.count == counts[key]
        if item.do == "post":
            before = last.get(key)
            if before is not None:
                assert at - before[0] >= before[1]
                assert item.flap.pause >= before[1]
            last[key] = (at, item.flap.pause)
        else:
            assert at < last[key][0] + last[key][1]


@settings(max_examples=12, deadline=None)
@given(streams)
def test_what_is_muted_is_never_reported(stream):
    """Nothing is posted until the mute ends, counting continues, and other failures are unaffected."""
    mute = Mute("rule", "gpu/xid-79", NOW + 5 * HOUR, "red")
    for at, _, item in decided(stream, Cap(1000), (mute,)):
        assert (item.do == "drop") == (at < mute.until)
    other = replace(mute, what="gpu/xid-48")
    assert decided(stream, Cap(2), (other,)) == decided(stream, Cap(2))


def test_a_failure_that_flaps():
    """Posted, counted, posted again after one hour and then two, new after a week without it."""
    first = decide(XID, "C1", NOW)
    assert first == Decision("post", "the first of its kind", Flap(1, NOW, HOUR, NOW))
    second = decide(XID, "C1", NOW + 60, before=first.flap)
    assert second == Decision("count", "the same failure for the 2nd time", Flap(2, NOW, HOUR, NOW + 60))
    third = decide(XID, "C1", NOW + HOUR, before=second.flap)
    assert (third.do, third.flap) == ("post", Flap(3, NOW + HOUR, 2 * HOUR, NOW + HOUR))
    fourth = decide(XID, "C1", NOW + 2.9 * HOUR, before=third.flap)
    assert (fourth.do, fourth.flap.count) == ("count", 4)
    late = NOW + 8 * DAY + 3 * HOUR
    assert decide(XID, "C1", late, before=fourth.flap) == Decision(
        "post", "the first of its kind", Flap(1, late, HOUR, late)
    )


def test_what_was_held_back_is_news_later():
    """A failure that was only listed is posted the next time."""
    held = decide(XID, "C1", NOW, posted=[NOW - 1], cap=Cap(1))
    assert (held.do, held.flap) == ("hold", Flap(1, NOW, 0.0, NOW))
    assert decide(XID, "C1", NOW + 60, before=held.flap).do == "post"


@pytest.mark.parametrize(
    ("mute", "holds"),
    [
        (Mute("rule", "gpu/xid-79", NOW + 1, "red"), True),
        (Mute("rule", "gpu/xid-79", NOW, "red"), False),
        (Mute("rule", "gpu/xid-79", NOW + 1, "blue"), False),
        (Mute("rule", "gpu/*", NOW + 1, "red"), False),
        (Mute("rule", "gpu/xid-79", NOW + 1, "red", channel="C1"), True),
        (Mute("rule", "gpu/xid-79", NOW + 1, "red", channel="C2"), False),
        (Mute("job", "llm-*", NOW + 1, "red"), True),
        (Mute("job", "4711", NOW + 1, "red"), True),
        (Mute("job", "vision-*", NOW + 1, "red"), False),
        (Mute("node", "n1", NOW + 1, "red"), False),
    ],
)
def test_mutes(mute, holds):
    """A mute applies to its rule, job or nodes, in its channel or everywhere, for its tenant, until its end."""
    assert matching_mute([mute], XID, "C1", NOW) == (mute if holds else None)


def test_all_nodes_must_be_muted():
    """A node mute applies only if all suspected nodes are muted."""
    mutes = [Mute("node", node, NOW + 1, "red") for node in ("n1", "n2")]
    assert matching_mute(mutes, XID, "C1", NOW) == mutes[0]
    assert matching_mute(mutes, replace(XID, nodes=("n1", "n3")), "C1", NOW) is None
    assert matching_mute(mutes, replace(XID, nodes=()), "C1", NOW) is None


def test_a_name_is_itself():
    """A job whose name looks like a pattern is muted by its name."""
    odd = replace(XID, name="run[1]*")
    mute = Mute("job", "run[1]*", NOW + 1, "red", by="ada")
    assert decide(odd, "C1", NOW, mutes=[mute]).why == "job run[1]* is muted by ada"


def test_room():
    """Messages of the last hour count; older and future ones do not."""
    assert not room([NOW - 10, NOW - 3599], NOW, Cap(2))
    assert room([NOW - 10, NOW - 3600], NOW, Cap(2))
    assert room([NOW + 10, NOW - 10], NOW, Cap(2))


@pytest.mark.parametrize(
    ("right", "n", "low", "high"),
    [(0, 0, 0.0, 1.0), (0, 10, 0.0, 0.2775), (5, 10, 0.2366, 0.7634), (10, 10, 0.7225, 1.0), (81, 263, 0.2553, 0.3662)],
)
def test_wilson(right, n, low, high):
    """The interval matches the literature (Newcombe 1998 has 81 of 263)."""
    assert wilson(right, n) == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))


def test_weak_rules():
    """A rule is weak if it cannot reach the precision, until somebody reviews it."""
    verdicts = [Verdict("a", right=at < 2, at=NOW + at) for at in range(8)]  # 2 of 8
    verdicts += [Verdict("b", right=at < 9, at=NOW) for at in range(10)]
    verdicts += [Verdict("c", right=False, at=NOW)]
    assert [
        (rule_record.rule, rule_record.right, rule_record.n, rule_record.weak) for rule_record in rule_records(verdicts)
    ] == [
        ("a", 2, 8, True),
        ("c", 0, 1, False),
        ("b", 9, 10, False),
    ]
    worst = rule_records(verdicts)[0]
    assert worst.words == "right in 2 of 8 close-outs (95 %: 7% to 59%)"
    assert [rule_record.rule for rule_record in rule_records(verdicts, {"a": NOW + 8}) if rule_record.rule == "a"] == []
    record = rule_records(verdicts, {"a": NOW + 5}, WeakRuleThreshold(0.9, 2))[0]
    assert record == RuleRecord("a", 0, 2, 0.0, record.high, True)
    assert record.high == pytest.approx(0.6576, abs=1e-4)


def test_a_quiet_start():
    """The rollout ends when enough close-outs confirm the precision, not by their number alone."""
    start = RolloutChannel("C9", 20, 0.7)
    assert rollout_channels(None, 0, 0) is None
    assert [rollout_channels(start, right, n) for right, n in ((0, 0), (19, 19), (16, 20), (19, 20), (80, 100))] == [
        "C9",
        "C9",
        "C9",
        None,
        None,
    ]


@pytest.mark.parametrize(
    "make", [lambda: RolloutChannel("C", precision=1.0), lambda: RolloutChannel("C", close_outs=0), lambda: Cap(0)]
)
def test_settings_that_cannot_be(make):
    """Invalid settings are rejected with a message."""
    with pytest.raises(ValueError, match=r"\w+: "):
        make()


def test_the_longest_pause():
    """Pauses grow up to a limit."""
    flap = Flap(9, NOW, 20 * HOUR, NOW)
    assert decide(XID, "C1", NOW + 21 * HOUR, before=flap, flapping=Flapping()).flap.pause == DAY
