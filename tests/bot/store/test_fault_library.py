"""The fault library: it follows what people say of incidents. On SQLite and on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlmodel import select

from bot.incidents.ledger import Ledger
from bot.incidents.lifecycle import LifecycleStep
from bot.incidents.resolution import Closing
from bot.render.report_json import dumps
from bot.store.fault_library import known_within
from bot.store.packed_reports import Origin
from bot.store.tables import PatternRow, ReportRow
from bot.store.visibility import Viewer
from kb.precedents.signature import FaultLibrary, signature_of
from tests.support.bot_samples import FALLEN_GPU, HEALTHY, UNKNOWN

NOW = datetime(2026, 3, 2, 8, 30, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def ledger(database: str) -> Iterator[Ledger]:
    """One known failure, one unknown, a good run, and the known one as another tenant has it."""
    with Ledger(database) as made:
        for number, report in enumerate((FALLEN_GPU, UNKNOWN, HEALTHY)):
            made.incidents.add(dumps(report), replace(report, id=f"r{number}"), b"", None, NOW)
        made.incidents.add(dumps(FALLEN_GPU), FALLEN_GPU, b"", None, NOW, origin=Origin("other"))
        yield made


def close(
    ledger: Ledger, incident: int, at: datetime = NOW, *, who: str = "ana", tenant: str = "default", **said: object
) -> None:
    """Return what an incident was."""
    closing = Closing(who, "cli", **{"verdict": "right", **said})  # type: ignore[arg-type]
    ledger.closings.annotate(incident, tenant, f"{incident} {who} {at} {said}"[:200], closing, at)


def library_of(ledger: Ledger, tenant: str) -> FaultLibrary:
    """The library of a tenant."""
    with ledger.database.session() as session:
        return FaultLibrary(known_within(session, tenant))


def entries(ledger: Ledger, tenant: str = "default") -> list[tuple[int, str | None, str, str]]:
    """What the library knows."""
    return [
        (entry.incident, entry.fault, entry.closed_as, entry.helped) for entry in library_of(ledger, tenant).entries
    ]


@pytest.mark.quick("sqlite")
def test_a_confirmed_diagnosis_is_an_entry(ledger: Ledger) -> None:
    """Each entry has the remedy and the signature of the failure."""
    close(ledger, 1, cause="shown", fault="gpu_fell_off_bus", rule="xid-catalogue", action="reseated the board")
    assert entries(ledger) == [(1, "gpu_fell_off_bus", "gpu_fell_off_bus", "reseated the board")]
    (found,) = library_of(ledger, "default").alike(signature_of(FALLEN_GPU))
    assert (found.known.incident, found.similarity) == (1, 1.0)


def test_a_failure_that_no_rule_knew_is_an_entry_with_its_note(ledger: Ledger) -> None:
    """That is what the library is for."""
    close(ledger, 2, verdict="abstained_rightly", cause="no_rule", note="the PSU\nof rack 7", action="swapped it")
    assert entries(ledger) == [(2, None, "no rule fits: the PSU of rack 7", "swapped it")]


@pytest.mark.parametrize(
    "said", [{"cause": "unknown", "verdict": "not_looked_at"}, {"verdict": "wrong"}], ids=["unknown", "only wrong"]
)
def test_what_names_no_cause_teaches_nothing(ledger: Ledger, said: dict[str, Any]) -> None:
    """Neither a puzzle nor a thumb down."""
    close(ledger, 1, **said)
    assert entries(ledger) == []


def test_a_good_run_teaches_nothing(ledger: Ledger) -> None:
    """It looks like no failure."""
    close(ledger, 3, cause="fault", fault="cuda_oom")
    assert entries(ledger) == []


def test_it_changes_and_goes_with_the_close_out(ledger: Ledger) -> None:
    """The last word counts, whoever's."""
    close(ledger, 1, cause="shown", fault="gpu_fell_off_bus")
    close(ledger, 1, NOW + HOUR, who="bob", cause="fault", fault="power_loss", action="called the electrician")
    assert entries(ledger) == [(1, "power_loss", "power_loss", "called the electrician")]
    close(ledger, 1, NOW + 2 * HOUR, who="bob", cause="unknown", verdict="not_looked_at")
    assert entries(ledger) == []


def test_of_an_incident_that_was_reopened_or_merged_nothing_holds(ledger: Ledger) -> None:
    """Until it is closed again."""
    close(ledger, 1, cause="shown", fault="gpu_fell_off_bus")
    ledger.lifecycle.step(1, "default", "k1", LifecycleStep("reopen", "bob", "cli"), NOW + HOUR)
    assert entries(ledger) == []
    close(ledger, 1, NOW + 2 * HOUR, cause="shown", fault="gpu_fell_off_bus")
    assert [entry[0] for entry in entries(ledger)] == [1]
    ledger.lifecycle.step(1, "default", "k2", LifecycleStep("merge", "bob", "cli", other=2), NOW + 3 * HOUR)
    assert entries(ledger) == []


def test_tenants_see_their_own_alone(ledger: Ledger) -> None:
    """However alike they are."""
    close(ledger, 1, cause="shown", fault="gpu_fell_off_bus")
    assert entries(ledger, "other") == []
    close(ledger, 4, tenant="other", cause="shown", fault="power_loss")
    assert [entry[0] for entry in entries(ledger, "other")] == [4]
    assert [entry[0] for entry in entries(ledger)] == [1]


def test_words_of_people_are_kept_short_and_without_secrets(ledger: Ledger) -> None:
    """They are shown to whoever has the next one."""
    close(
        ledger, 1, cause="shown", fault="f", action="set AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
    )
    ((*_, helped),) = entries(ledger)
    assert "wJalr" not in helped
    close(ledger, 1, NOW + HOUR, cause="shown", fault="f", action="x " * 240 + "\x00\ud800")
    ((*_, helped),) = entries(ledger)
    assert len(helped) == 300


def test_an_incident_whose_report_is_gone_teaches_nothing_new(ledger: Ledger) -> None:
    """Its entry goes with the next word on it; one that cannot be read is left out."""
    close(ledger, 1, cause="shown", fault="f")
    close(ledger, 2, cause="no_rule", verdict="abstained_rightly")
    with ledger.database.session(write=True) as session:
        session.delete(session.get_one(ReportRow, 1))
        session.get_one(PatternRow, 2).events_zstd = b"x"
    assert [entry[0] for entry in entries(ledger)] == [1]
    close(ledger, 1, NOW + HOUR, cause="shown", fault="g")
    assert entries(ledger) == []
    with ledger.database.session() as session:
        assert [row.incident_id for row in session.exec(select(PatternRow))] == [2]


def test_what_is_private_is_known_only_to_its_owner(ledger: Ledger) -> None:
    """It is visible to nobody else, and appears in no answer that others see."""
    report = replace(FALLEN_GPU, id="private")
    number = ledger.incidents.add(dumps(report), report, b"", None, NOW, origin=Origin(private_to="U0ADA"))
    close(ledger, number, cause="shown", fault="gpu_fell_off_bus")
    with ledger.database.session() as session:
        known = {
            user: [item.incident for item in known_within(session, "default", viewer=Viewer(user))]
            for user in (None, "U0BO", "U0ADA")
        }
    assert known == {None: [], "U0BO": [], "U0ADA": [number]}
