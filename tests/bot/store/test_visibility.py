"""The condition on the table says the same as the decision, and old private answers become private."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from sqlalchemy import create_engine, text

from bot.render.report_json import dumps
from bot.store.incidents import IncidentFilter, IncidentStore
from bot.store.packed_reports import Origin
from bot.store.tables import PostingRow, RequestRow, WorkRow
from bot.store.visibility import OPERATOR, PUBLIC, Viewer
from tests.support.bot_samples import FALLEN_GPU

NOW = datetime(2026, 3, 2, 8, 30, tzinfo=UTC)


def add(store, name, private_to=None):
    """Store an incident."""
    report = replace(FALLEN_GPU, id=name)
    return store.add(dumps(report), report, b"", None, NOW, origin=Origin(private_to=private_to))


@pytest.mark.parametrize("viewer", [PUBLIC, OPERATOR, Viewer("U0ADA"), Viewer("U0BO"), Viewer("U0BO", everything=True)])
def test_lists_show_what_the_viewer_sees(database, viewer):
    """The same report asked for publicly and by two people privately is three incidents."""
    with IncidentStore(database) as store:
        for private_to in (None, "U0ADA", "U0BO"):
            add(store, "same", private_to)
        assert len({add(store, "same", private_to) for private_to in (None, "U0ADA", "U0BO")}) == 3
        listed = [item.private_to for item in store.list(10, IncidentFilter(viewer=viewer))]
        assert sorted(listed, key=str) == sorted(
            (item for item in (None, "U0ADA", "U0BO") if viewer.sees(item)), key=str
        )
        assert store.count(IncidentFilter(viewer=viewer)) == len(listed)


def test_private_answers_do_not_count_in_chains(database):
    """The number of attempts is the same whether somebody asked privately or not."""
    with IncidentStore(database) as store:
        first, second, third = add(store, "a"), add(store, "b", "U0ADA"), add(store, "c")
        with store.database.session(write=True) as session:
            session.connection().execute(text("UPDATE incident SET chain = 'x'"))
        found = {item.id: item for item in store.list(10, IncidentFilter(viewer=OPERATOR))}
        assert store.chain(found[third])[0] == 1
        assert store.tried_after(found[first]) == 1
        assert store.chain(found[second])[0] == 1


def test_private_answers_of_earlier_versions_become_private(database):
    """Where one person alone asked, privately, and no channel shows it."""
    asked = ((1, "U0ADA", True), (1, "U0ADA", True), (2, "U0ADA", False), (3, "U0ADA", True), (3, "U0BO", True),
             (4, "U0ADA", True), (4, "", False), (5, "U0ADA", True))  # fmt: skip
    with IncidentStore(database) as store:
        for number in range(1, 6):
            add(store, f"report-{number}")
        with store.database.session(write=True) as session:
            for number in range(1, 6):
                session.add(WorkRow(id=number, kind="diagnose", key="k", tenant="default", payload="{}", state="done",
                                    created_at=NOW, asked_at=NOW, result=str(number)))  # fmt: skip
            for key, (number, who, private) in enumerate(asked):
                session.add(RequestRow(key=str(key), tenant="default", work_id=number, channel="C0", who=who,
                                       private=private, settled=True, created_at=NOW))  # fmt: skip
            session.add(PostingRow(handle="h", once="h", tenant="default", channel="C0SHARED", incident_id=5,
                                   created_at=NOW, ready_at=NOW))  # fmt: skip
    engine = create_engine(database)
    with engine.begin() as connection:
        for name in (
            f"digest_day_{table}_{kind}"
            for table in ("incident", "annotation")
            for kind in ("insert", "update", "delete")
        ):
            trigger = f"FUNCTION {name} CASCADE" if engine.dialect.name == "postgresql" else f"TRIGGER {name}"
            connection.execute(text(f"DROP {trigger}"))
        connection.execute(text("DROP TABLE digest_day"))
        connection.execute(text("DROP TABLE presence"))
        connection.execute(text("DROP INDEX ix_incident_logs"))
        for column in ("logs", "source", "private_to"):
            connection.execute(text(f"ALTER TABLE incident DROP COLUMN {column}"))
        connection.execute(text("UPDATE schema_version SET version = 10"))
        connection.execute(text("UPDATE alembic_version SET version_num = '0010'"))
    engine.dispose()
    with IncidentStore(database) as store:
        found = {item.id: item.private_to for item in store.list(10, IncidentFilter(viewer=OPERATOR))}
        assert found == {1: "U0ADA", 2: None, 3: None, 4: None, 5: None}
        assert add(store, "report-1") == 6
        assert add(store, "report-1", "U0ADA") == 1
        assert add(store, "report-2") == 2
