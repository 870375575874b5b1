"""An incident's life, on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bot.incidents.ledger import Ledger
from bot.incidents.lifecycle import LifecycleStep, MergedIncidents, RecordedStep, StepNotAllowed, step_text
from bot.incidents.resolution import Closing, IncidentNotFound, word
from bot.render.report_json import dumps
from bot.store.incident_state import LISTED_STATES, State, state_of
from bot.store.incidents import Incident, IncidentFilter
from bot.store.tables import PostingRow
from tests.support.bot_samples import FALLEN_GPU

NOW = datetime(2026, 3, 2, 8, 30, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def ledger(database: str) -> Iterator[Ledger]:
    """Four incidents of one tenant, an hour apart, and one of another tenant."""
    with Ledger(database) as made:
        for hour in range(4):
            report = replace(FALLEN_GPU, id=f"r{hour}")
            made.incidents.add(dumps(report), report, b"", None, NOW + hour * HOUR)
        foreign = replace(FALLEN_GPU, id="foreign")
        number = made.incidents.add(dumps(foreign), foreign, b"", None, NOW)
        with made.database.session(write=True) as session:
            session.connection().exec_driver_sql(f"UPDATE incident SET tenant = 'other' WHERE id = {number}")  # noqa: S608
        yield made


def step(
    ledger: Ledger, incident: int, verb: str, *, who: str = "ana", at: datetime = NOW, key: str = "", **more: object
) -> bool:
    """Take a step."""
    taken = LifecycleStep(verb, who, "cli", **more)  # type: ignore[arg-type]
    return ledger.lifecycle.step(incident, "default", key or f"{incident} {verb} {who} {at} {more}"[:180], taken, at)


def incident(ledger: Ledger, number: int) -> Incident:
    """It, as it is now."""
    found = ledger.incidents.answer(number)
    assert found is not None
    return found.incident


def state(ledger: Ledger, number: int, at: datetime = NOW) -> State:
    """Its state."""
    return state_of(incident(ledger, number), at)


def close(ledger: Ledger, number: int, at: datetime = NOW) -> None:
    """Return what it was."""
    ledger.closings.annotate(
        number, "default", f"close {number} {at}", Closing("ana", "cli", "right", "shown", "gpu_fell_off_bus"), at
    )


def test_who_acknowledges_has_it(ledger: Ledger) -> None:
    """Unless it is already assigned: then it stays so."""
    step(ledger, 1, "ack")
    step(ledger, 2, "assign", assignee="U0GRACE")
    assert state(ledger, 2) == "open"
    step(ledger, 2, "ack")
    assert [(state(ledger, item), incident(ledger, item).assignee) for item in (1, 2)] == [
        ("acknowledged", "ana"),
        ("acknowledged", "U0GRACE"),
    ]
    step(ledger, 2, "assign", assignee=None)
    assert incident(ledger, 2).assignee is None


def test_a_second_delivery_changes_nothing(ledger: Ledger) -> None:
    """Also where the first one has made the step senseless."""
    close(ledger, 1)
    assert step(ledger, 1, "reopen", key="one")
    assert not step(ledger, 1, "reopen", key="one", at=NOW + HOUR)
    assert incident(ledger, 1).reopened_at == NOW
    assert len(ledger.lifecycle.steps(1)) == 1


def test_two_deliveries_at_one_moment_are_one_step(ledger: Ledger) -> None:
    """Eight threads with one key: one of them is new."""
    found: list[bool] = []
    threads = [threading.Thread(target=lambda: found.append(step(ledger, 1, "ack", key="one press"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(found) == [False] * 7 + [True]
    assert len(ledger.lifecycle.steps(1)) == 1


def test_snoozed_it_is_in_no_list_until_then(ledger: Ledger) -> None:
    """It returns at the set time; acknowledging it ends the snooze."""
    step(ledger, 1, "snooze", until=NOW + HOUR)
    before, then = (IncidentFilter("default", NOW, to_do=True), IncidentFilter("default", NOW + HOUR, to_do=True))
    assert [item.id for item in ledger.incidents.list(10, before)] == [4, 3, 2]
    assert [item.id for item in ledger.incidents.list(10, then)] == [4, 3, 2, 1]
    assert (ledger.incidents.count(before), ledger.incidents.count(then)) == (3, 4)
    step(ledger, 1, "ack")
    assert [item.id for item in ledger.incidents.list(10, before)] == [4, 3, 2, 1]


def test_a_reminder_waits_for_the_snooze(ledger: Ledger) -> None:
    """It is not asked what it was while it sleeps."""
    with ledger.database.session(write=True) as session:
        session.add(
            PostingRow(
                handle="h", once="remind:1", tenant="default", channel="U0ADA", incident_id=1, asked_by="U0ADA",
                state="reminder", created_at=NOW, ready_at=NOW + HOUR,
            )
        )  # fmt: skip
    step(ledger, 1, "snooze", until=NOW + 3 * HOUR)
    assert ledger.messages.claim_message(NOW + 2 * HOUR) is None
    waking = ledger.messages.claim_message(NOW + 3 * HOUR)
    assert waking is not None
    assert waking.state == "reminder"


def test_merged_it_is_a_part_of_another_one(ledger: Ledger) -> None:
    """Both incidents record it; its own parts move along; a merge into a part goes to the whole."""
    step(ledger, 2, "merge", other=1)
    step(ledger, 3, "merge", other=2)
    step(ledger, 1, "merge", other=4)
    assert [incident(ledger, item).merged_into for item in (1, 2, 3, 4)] == [4, 4, 4, None]
    assert ledger.lifecycle.family(4) == MergedIncidents(None, ((1, "llm-70b"), (2, "llm-70b"), (3, "llm-70b")))
    assert ledger.lifecycle.family(2) == MergedIncidents((4, "llm-70b"))
    assert [item.id for item in ledger.incidents.list(10, IncidentFilter("default", NOW, awake=True))] == [4]
    assert [step_text(item, 1) for item in ledger.lifecycle.steps(1)] == [
        "incident 2 merged into it",
        "incident 3 merged into it",
        "merged into incident 4",
    ]


def test_two_that_are_merged_into_each_other_at_once(ledger: Ledger) -> None:
    """One of the two becomes the whole, and no thread waits forever."""
    errors: list[Exception] = []

    def merge(item: int, other: int) -> None:
        try:
            step(ledger, item, "merge", other=other)
        except StepNotAllowed as error:
            errors.append(error)

    threads = [threading.Thread(target=merge, args=pair) for pair in ((1, 2), (2, 1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert min([incident(ledger, 1).merged_into or 0, incident(ledger, 2).merged_into or 0]) == 0
    assert len(errors) == 1


def test_reopened_what_was_reported_holds_no_more(ledger: Ledger) -> None:
    """It is kept; the next close-out holds again, and one who still has it keeps it."""
    step(ledger, 1, "assign", assignee="grace")
    close(ledger, 1)
    step(ledger, 1, "reopen", at=NOW + HOUR, note="it came again")
    assert (state(ledger, 1), incident(ledger, 1).assignee, word(ledger.closings.annotations(1))) == (
        "open",
        "grace",
        None,
    )
    assert [annotation.void for annotation in ledger.closings.annotations(1)] == [True]
    close(ledger, 1, NOW + 2 * HOUR)
    last = word(ledger.closings.annotations(1))
    assert last is not None
    assert (last.last.version, state(ledger, 1)) == (2, "closed")


def test_reopened_a_part_is_on_its_own(ledger: Ledger) -> None:
    """It is open if it was not closed; a snoozed one is unsnoozed and stays acknowledged."""
    step(ledger, 2, "merge", other=1)
    step(ledger, 2, "reopen")
    assert (state(ledger, 2), ledger.lifecycle.family(1)) == ("open", MergedIncidents())
    step(ledger, 3, "ack")
    step(ledger, 3, "snooze", until=NOW + HOUR)
    step(ledger, 3, "reopen")
    assert state(ledger, 3) == "acknowledged"


@pytest.mark.parametrize(
    ("number", "verb", "more", "why"),
    [
        (1, "reopen", {}, "incident 1 is open"),
        (2, "ack", {}, "incident 2 is closed: reopen it first"),
        (2, "snooze", {"until": NOW + HOUR}, "incident 2 is closed: reopen it first"),
        (3, "assign", {"assignee": "bob"}, "incident 3 is merged into incident 1: reopen it first"),
        (1, "snooze", {"until": NOW}, "the end of the snooze must lie in the future"),
        (1, "snooze", {"until": NOW + timedelta(days=91)}, "an incident can be snoozed for at most 90 days; close it if nobody is going to look at it"),
        (1, "merge", {"other": 1}, "an incident cannot be merged into itself"),
        (1, "merge", {"other": 3}, "incident 3 is already merged into it"),
        (3, "merge", {"other": 1, "note": "again"}, "incident 3 is already merged into incident 1"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(ledger: Ledger, number: int, verb: str, more: dict[str, Any], why: str) -> None:
    """With words that say what to do; nothing is written."""
    close(ledger, 2)
    step(ledger, 3, "merge", other=1)
    before = [incident(ledger, item) for item in (1, 2, 3)]
    with pytest.raises(StepNotAllowed) as refused:
        step(ledger, number, verb, **more)
    assert str(refused.value) == why
    assert [incident(ledger, item) for item in (1, 2, 3)] == before


@pytest.mark.parametrize("number", [99, 5, 0, -1, 2**63])
def test_of_other_tenants_there_is_nothing(ledger: Ledger, number: int) -> None:
    """Incidents of other tenants cannot be changed or merged into; ids out of range are not database errors."""
    with pytest.raises(IncidentNotFound):
        step(ledger, number, "ack")
    with pytest.raises(IncidentNotFound):
        step(ledger, 1, "merge", other=number)


def test_the_state_is_the_same_on_the_table(ledger: Ledger) -> None:
    """Each incident is in the list of its state and in no other."""
    step(ledger, 1, "ack")
    close(ledger, 2)
    step(ledger, 3, "snooze", until=NOW + HOUR)
    step(ledger, 4, "merge", other=1)
    lists = {
        item: [found.id for found in ledger.incidents.list(10, IncidentFilter("default", NOW, state=item))]
        for item in LISTED_STATES
    }
    kept = {"open": [], "acknowledged": [1], "snoozed": [3], "closed": [2], "merged": [4]}
    assert lists == {**kept, "healthy": [], "unclear": []}


def test_hostile_words_are_kept_as_one_line(ledger: Ledger) -> None:
    """NULs, lone surrogates and line breaks of a note; and not without end."""
    step(ledger, 1, "assign", assignee="a\0b\ud800\nc" + "x" * 9999, note="one\ntwo " * 999)
    (kept,) = ledger.lifecycle.steps(1)
    assert isinstance(kept, RecordedStep)
    assert (kept.step.assignee or "").startswith("a?b? cxxx")
    assert (len(kept.step.assignee or ""), len(kept.step.note)) == (200, 500)
