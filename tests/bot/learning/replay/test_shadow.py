"""Rules in status shadow: counted on live incidents, never shown, promoted by people's close-outs."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlmodel import select

from bot.authoring.selftest import evidence_of
from bot.incidents.ledger import Ledger
from bot.learning.advice.advise import advise
from bot.learning.replay.shadow import (
    PromotionThreshold,
    ShadowHit,
    ShadowStats,
    count_within,
    promoted,
    render,
    shadowed,
    shadows_within,
)
from bot.learning.replay.trial import base_of, trial
from bot.store.tables import ShadowHitRow
from kb.diagnosis.engine import diagnose
from kb.learning.precision import HitRate
from kb.rulebase.codec import meaning
from tests.support.learning_views import GOOD, LEASE, NOW, OOM, add, right, rule, wrong


@pytest.fixture
def base(few_rules, cache, monkeypatch):
    """Two shipped rules, and a shadow on revoked leases."""
    monkeypatch.setenv("SIGNALBOX_CACHE", str(cache))
    return with_rule(few_rules, rule(status="shadow"))


def with_rule(folder, text):
    """The base with this rule on revoked leases."""
    path = folder / "storage" / "lease-revoked" / "rule.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return base_of(folder)


def of(base, text):
    """A log as evidence."""
    return evidence_of(base.known, base.known.matcher(), {"rank-0.log": text.encode()})


def hit(base, fault="storage_io", *, leads=True):
    """What the shadow finds."""
    own = next(item for item in base.known.rulebook.rules if item.id == "lease-revoked")
    return ShadowHit("lease-revoked", 1, meaning(own), fault, leads)


def live(database, base, text, job, said=None, *, tenant="default"):
    """An incident as a worker keeps it."""
    number = add(database, base.known, text, job=job, said=said, tenant=tenant)
    with Ledger(database) as ledger, ledger.database.session(write=True) as session:
        count_within(session, number, tenant, shadowed(base.known, of(base, text)))
    return number


def standing(database, base, **given):
    """How the shadows fared."""
    with Ledger(database) as ledger, ledger.database.session() as session:
        return shadows_within(session, base.known.rulebook, **given)


def test_a_shadow_is_counted_and_not_shown(base):
    """The answer is as if the rule did not exist; its would-be result is recorded separately."""
    report = diagnose(of(base, LEASE), base.known.rulebook)
    assert (report.verdict, [item.rule for item in report.diagnoses]) == ("no_match", [""])
    assert shadowed(base.known, of(base, LEASE)) == (hit(base),)


def test_a_shadow_behind_another_answer_does_not_lead(base):
    """A rule without a match is not counted; a draft is never counted."""
    line = "lease-agent: lease of volume 7 was revoked by its owner\n"
    assert shadowed(base.known, of(base, OOM + line)) == (hit(base, leads=False),)
    assert shadowed(base.known, of(base, OOM)) == ()
    assert shadowed(base.known, of(base, GOOD)) == ()


def test_what_the_run_lived_with_is_no_hit(base):
    """As for rules that are shown."""
    after = "".join(f"step {at} | loss: 2.{at}000 | lr: 3.0e-4\n" for at in range(20, 60))
    line = "lease-agent: lease of volume 7 was revoked by its owner\n"
    assert shadowed(base.known, of(base, line + after + GOOD)) == ()


def test_hits_are_kept_once_with_the_incident(base, database):
    """Two deliveries of one piece of work count once."""
    number = live(database, base, LEASE, "1")
    live(database, base, LEASE, "1")
    with Ledger(database) as ledger, ledger.database.session() as session:
        rows = [row.model_dump() for row in session.exec(select(ShadowHitRow))]
    found = hit(base)
    assert rows == [
        {"incident_id": number, "rule": "lease-revoked", "tenant": "default", "version": 1, "meaning": found.meaning, "fault": "storage_io", "leads": True}
    ]  # fmt: skip


def test_promotion_is_earned_by_evidence(base, database):
    """Promotion needs enough right answers with a high lower bound; incidents without a close-out do not count."""
    for at in range(9):
        live(database, base, LEASE, f"{at}", wrong("storage_io"))
    live(database, base, LEASE, "9")
    earned = ShadowStats("lease-revoked", 10, 10, HitRate(9, 9))
    assert standing(database, base) == (earned,)
    assert earned.earned
    assert standing(database, base, bar=PromotionThreshold(right=20)) == (
        ShadowStats("lease-revoked", 10, 10, HitRate(9, 9), "correct in 9 resolved incidents; 20 are needed"),
    )
    assert "it can be promoted" in render(standing(database, base))


def test_a_shadow_that_is_wrong_earns_nothing(base, database):
    """However many hits it has."""
    for at in range(8):
        live(database, base, LEASE, f"{at}", wrong("storage_io" if at < 5 else "disk_full"))
    assert standing(database, base) == (
        ShadowStats(
            "lease-revoked", 8, 8, HitRate(5, 8), "correct in at least 31% with 95 % certainty; 70% are needed"
        ),
    )


def test_a_rule_that_was_changed_begins_anew(base, few_rules, database):
    """Hits of what it meant before do not count; other tenants' only where all are asked for."""
    live(database, base, LEASE, "1", wrong("storage_io"))
    live(database, base, LEASE, "2", wrong("storage_io"), tenant="red")
    assert [item.hits for item in standing(database, base)] == [2]
    assert [item.hits for item in standing(database, base, tenant="red")] == [1]
    changed = with_rule(few_rules, rule(status="shadow", regex="lease of volume .{1,9} was revoked by"))
    assert [item.hits for item in standing(database, changed)] == [0]
    shown = with_rule(few_rules, rule(status="experimental"))
    assert standing(database, shown) == ()
    assert render(()) == "no rules in status shadow"


def test_a_promotion_is_a_change_like_any_other(base, database):
    """Its file differs in one line; tried, it gives the answers that it was right in."""
    for at in range(9):
        live(database, base, LEASE, f"{at}", wrong("storage_io"))
    add(database, base.known, OOM, job="9", said=right("cuda_oom"))
    with Ledger(database) as ledger, ledger.database.session() as session:
        found = advise(session, base, NOW + timedelta(days=9))
    (advice,) = [item for item in found.advice if item.kind == "promote"]
    path = "storage/lease-revoked/rule.yaml"
    assert advice.files == {path: rule(status="experimental")}
    assert promoted(rule(status="shadow")) == rule(status="experimental")
    assert trial(base, advice.files).rules == ("lease-revoked",)
