"""Databases of the test process are made quickly and not synced to disk; nearly every test of the service makes one.

New databases get their tables by the statements that the first of their kind got from the migrations: alembic takes a tenth of
a second, nearly all of it outside the database. Tables that an older version left are migrated as always. SQLite does not
wait for the disk, which matters to a power cut only: a killed process loses nothing by that, and commands in processes of
their own sync as they always do.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event

from bot.store import database

_READS = ("SELECT", "PRAGMA MAIN.", "PRAGMA TEMP.")  # what alembic asks of the database
Statements = list[tuple[str, Any]]
migrate = database._upgrade  # the real thing


@contextmanager
def quick_databases() -> Iterator[None]:
    """Make databases from recorded statements, and let SQLite not wait for the disk."""
    recorded: dict[str, Statements] = {}

    def make(connection: Connection, found: int | None) -> None:
        kind = connection.dialect.name
        if found is not None:
            migrate(connection, found)
        elif kind not in recorded:
            recorded[kind] = _recorded(connection, lambda: migrate(connection, None))
        else:
            for statement, parameters in recorded[kind]:
                connection.exec_driver_sql(statement, parameters or None)

    event.listen(Engine, "connect", _unsynced)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(database, "_upgrade", make)
            yield
    finally:
        event.remove(Engine, "connect", _unsynced)


def _recorded(connection: Connection, do: Callable[[], None]) -> Statements:
    """Do it, and return the statements that changed something."""
    found: Statements = []

    def keep(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_more: Any) -> None:
        if not statement.lstrip().upper().startswith(_READS):
            found.append((statement, parameters))

    event.listen(connection, "after_cursor_execute", keep)
    try:
        do()
    finally:
        event.remove(connection, "after_cursor_execute", keep)
    return found


def _unsynced(connection: Any, _record: Any) -> None:
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous = OFF").close()
