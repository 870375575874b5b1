"""How answers fared, and what that advises to do with the rules."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta

import pytest

from bot.incidents.ledger import Ledger
from bot.incidents.resolution import Closing
from bot.learning.advice.advise import advise, as_json, render
from bot.learning.outcomes import outcomes_within, told_within
from bot.learning.replay.backtest import backtest
from bot.learning.replay.trial import base_of, trial
from bot.store.tables import IncidentRow, LookedRow
from kb.learning.precision import RuleOutcome
from tests.support.learning_views import FULL, GOOD, LEASE, NOW, OOM, STEPS, add, right, rule, wrong

QUOTA = FULL + "quota-daemon: project 41 is over its grant and writes are refused\n"
LATER = NOW + timedelta(days=400)


@pytest.fixture
def base(few_rules, cache, monkeypatch):
    """Two shipped rules with the shipped vocabulary."""
    monkeypatch.setenv("SIGNALBOX_CACHE", str(cache))
    return base_of(few_rules)


def seen(database, base, now=LATER, **given):
    """What the store advises."""
    with Ledger(database) as ledger, ledger.database.session() as session:
        return advise(session, base, now, **given)


def fared(database, base, tenant=None):
    """How the rules fared."""
    with Ledger(database) as ledger, ledger.database.session() as session:
        return outcomes_within(session, base.known.rulebook, tenant)


# --- outcomes --------------------------------------------------------------------------------------------------------


def test_each_rule_has_its_confirmed_refuted_unseen_and_missed(base, database):
    """Of a rule that never fired there are none; an incident whose cause another rule names is one that this missed."""
    known = base.known
    add(database, known, OOM, job="1", said=right("cuda_oom"))
    add(database, known, OOM, job="2", said=wrong("disk_full"))
    add(database, known, OOM, job="3")
    assert fared(database, base) == (RuleOutcome("cuda-out-of-memory", 1, 1, 1, 0), RuleOutcome("disk-full", missed=1))


def test_the_last_word_counts_and_disagreement_is_kept(base, database):
    """Of two people the last one holds; the other is not lost."""
    number = add(database, base.known, OOM, job="1", said=right("cuda_oom"))
    with Ledger(database) as ledger:
        ledger.closings.annotate(
            number, "default", "again", replace(wrong("storage_io"), who="eve"), NOW + timedelta(days=1)
        )
        with ledger.database.session() as session:
            told = told_within(session)[number]
    assert (told.truth, told.disputed, told.right, told.confirmed) == ("storage_io", True, False, False)


def test_what_was_reported_before_somebody_looked_counts_no_more(base, database):
    """A rule that was fixed starts again, for that tenant."""
    add(database, base.known, OOM, job="1", said=wrong("disk_full"))
    add(database, base.known, OOM, job="2", said=right("cuda_oom"), days=3)
    with Ledger(database) as ledger, ledger.database.session(write=True) as session:
        session.add(LookedRow(tenant="default", rule="cuda-out-of-memory", at=NOW + timedelta(days=1), who="ana"))
    assert fared(database, base)[0] == RuleOutcome("cuda-out-of-memory", 1, 0, 0, 0)


def test_reopened_and_merged_incidents_count_as_they_should(base, database):
    """Close-outs before a reopening are void; a merged incident is a part of the other one."""
    first = add(database, base.known, OOM, job="1", said=right("cuda_oom"))
    second = add(database, base.known, OOM, job="2", said=right("cuda_oom"))
    with Ledger(database) as ledger, ledger.database.session(write=True) as session:
        session.get_one(IncidentRow, first).reopened_at = NOW + timedelta(days=2)
        session.get_one(IncidentRow, second).merged_into = first
    assert fared(database, base)[0] == RuleOutcome("cuda-out-of-memory", 0, 0, 1, 0)


def test_a_tenant_sees_its_own_alone(base, database):
    """Other tenants' close-outs are not counted."""
    add(database, base.known, OOM, job="1", tenant="red", said=right("cuda_oom"))
    add(database, base.known, OOM, job="2", tenant="blue", said=wrong("disk_full"))
    assert fared(database, base, "red")[0] == RuleOutcome("cuda-out-of-memory", 1, 0, 0, 0)


# --- advice ----------------------------------------------------------------------------------------------------------


def test_a_rule_that_was_wrong_is_narrowed_by_what_the_wrong_ones_share(base, database):
    """The proposed rule is silent on them, speaks on the others, and hurts nothing."""
    wrongs = [
        add(database, base.known, QUOTA.replace("41", str(40 + at)), job=f"{at}", said=wrong("storage_io"))
        for at in (1, 2)
    ]
    for at in (3, 4, 5):
        add(database, base.known, FULL, job=f"{at}", said=right("disk_full"))

    (advice,) = [item for item in seen(database, base).advice if item.kind == "narrow"]

    assert (advice.rule, sorted(advice.incidents)) == ("disk-full", wrongs)
    assert sorted(name for name in advice.files if not re.search("reworded|healthy|below-error|overcome", name)) == [
        "storage/disk-full/rule.yaml",
        *(f"storage/disk-full/silent/advised-{number}.log" for number in wrongs),
    ]
    told = backtest(trial(base, advice.files), database, {"good": {"a.log": GOOD.encode()}}, workers=1)
    assert [(change.incident, change.kind) for change in told.changes] == [(number, "lost") for number in wrongs]
    assert told.hurts == ()


def test_a_rule_that_always_means_another_fault_is_corrected(base, database):
    """If people named the same fault each time; two different corrections are not enough."""
    for at in range(5):
        add(database, base.known, FULL, job=f"{at}", said=wrong("storage_io"))
    (advice,) = [item for item in seen(database, base).advice if item.rule == "disk-full" and item.kind != "widen"]
    assert (advice.kind, trial(base, advice.files).rules) == ("correct", ("disk-full",))
    told = backtest(trial(base, advice.files), database, {}, workers=1)
    assert (len(told.changes), all(change.better for change in told.changes), told.hurts) == (5, True, ())
    add(database, base.known, FULL, job="5", said=right("disk_full"))
    assert [item.kind for item in seen(database, base).advice if item.kind == "correct"] == []


def test_a_rule_that_missed_is_widened_or_reported_what_it_lacks(base, database):
    """The closest pattern is named with the words that kept it silent; the wider rule matches the missed cases."""
    text = STEPS + "writer: no space is left here on the volume, giving up\nfatal: writer ended\n"
    missed = [add(database, base.known, text, job=f"{at}", said=wrong("disk_full")) for at in (1, 2, 3)]
    add(database, base.known, OOM, job="4", said=right("cuda_oom"))

    (advice,) = [item for item in seen(database, base).advice if item.kind == "widen"]

    assert (advice.rule, sorted(advice.incidents)) == ("disk-full", missed)
    assert any("nearest to its pattern" in reason for reason in advice.reasons)
    told = backtest(trial(base, advice.files), database, {}, workers=1)
    assert ([change.incident for change in told.changes], told.hurts) == (missed, ())
    assert all(change.better for change in told.changes)


def test_two_faults_that_keep_coming_together_are_linked(base, database):
    """In the order in which they were seen, where nothing says so yet."""
    both = STEPS + "\n".join((FULL.removeprefix(STEPS), OOM.removeprefix(STEPS)))
    for at in range(6):
        add(database, base.known, both, job=f"{at}", said=right("disk_full") if at < 2 else None)

    found = [item for item in seen(database, base).advice if item.kind == "link"]

    assert [(item.rule, len(item.incidents)) for item in found] == [("disk-full", 6)]
    assert "explains:\n- cuda_oom\n" in found[0].files["storage/disk-full/rule.yaml"]
    assert trial(base, found[0].files).rules == ("disk-full",)


def test_rules_that_never_fire_are_reported_only_over_a_long_window(base, database):
    """Half a year and two hundred incidents; of rules written by hand only that it is so."""
    with Ledger(database) as ledger, ledger.database.session(write=True) as session:
        for at in range(200):
            session.add(_row(at))
    found = seen(database, base, NOW + timedelta(days=10)).advice
    assert [item for item in found if item.kind == "retire"] == []
    (advice,) = [item for item in seen(database, base).advice if item.kind == "retire"]
    assert (advice.rule, advice.files) == ("", {})
    assert advice.reasons[1] == "cuda-out-of-memory, disk-full"


@pytest.mark.usefixtures("base")
def test_a_learned_rule_that_never_fires_is_proposed_for_retirement(few_rules, database):
    """With its window and n, as a change of its file."""
    path = few_rules / "storage" / "lease-revoked" / "rule.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(rule(status="experimental") + "provenance: learned\n")
    with Ledger(database) as ledger, ledger.database.session(write=True) as session:
        for at in range(200):
            session.add(_row(at))
    own = base_of(few_rules)
    advice, _ = [item for item in seen(database, own).advice if item.kind == "retire"]
    assert advice.rule == "lease-revoked"
    assert advice.reasons == ("it was in none of the answers to 200 incidents in 400 days",)
    assert trial(own, advice.files).rules == ("lease-revoked",)


def _row(at):
    return IncidentRow(
        created_at=NOW,
        report_id=f"r{at}",
        fingerprint="f",
        rulebook_digest="d",
        verdict="no_fault",
        phase="completed",
        summary="",
    )


def test_unknown_failures_are_grouped_and_ordered_by_what_they_cost(base, database):
    """Similar ones count as one piece of work; unknown hours are not estimated."""
    lease = [add(database, base.known, LEASE.replace("volume 7", f"volume {at}"), job=f"{at}") for at in (1, 2)]
    other = add(database, base.known, STEPS + "codec: frame table is corrupt, cannot go on\n", job="3")
    with Ledger(database) as ledger:
        ledger.closings.annotate(
            other, "default", "lost", Closing("ada", "cli", "abstained_rightly", "no_rule", lost_hours=40.0), NOW
        )
    found = seen(database, base)
    assert [
        (unknown_failure.incidents, unknown_failure.hours, unknown_failure.known) for unknown_failure in found.unknown
    ] == [
        ((other,), 320.0, 1),
        (tuple(lease), 0.0, 0),
    ]
    assert "Failures without a rule, by GPU-hours lost:" in render(found)
    assert len(as_json(found)["unknown"]) == 2


def test_an_empty_store_advises_nothing(base, database):
    """And says so."""
    assert render(seen(database, base)) == "the resolved incidents suggest no rule changes"
