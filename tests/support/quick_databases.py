"""Databases of the test process are made quickly and not synced to disk; nearly every test of the service makes one.

New databases get their tables by the statements that the first of their kind got from the migrations: alembic takes a tenth of
a second, nearly all of it outside the database. Tables that an older version left are migrated as always. SQLite does not
wait for the disk, which matters to a power cut only: a killed process loses nothing by that, and commands in processes of
their own sync as they always do. SQL statements are compiled once for all databases of a kind: SQLAlchemy would compile them
again for each.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Compiled, Connection, Engine, event

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
        with pytest.MonkeyPatch.context() as patch, statements_compiled_once():
            patch.setattr(database, "_upgrade", make)
            yield
    finally:
        event.remove(Engine, "connect", _unsynced)


@contextmanager
def statements_compiled_once() -> Iterator[None]:
    """Let all databases of a kind share the statements that SQLAlchemy compiles."""
    create = database._engine
    kept: dict[tuple[Any, ...], Compiled] = {}

    def created(url: str) -> Engine:
        engine = create(url)
        engine._compiled_cache = _Statements(engine.dialect.name, kept)  # type: ignore[assignment]  # what SQLAlchemy asks of it
        return engine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "_engine", created)
        yield


class _Statements:
    """The compiled statements of one kind of database. The first part of SQLAlchemy's keys is the dialect: one for each engine."""

    def __init__(self, kind: str, kept: dict[tuple[Any, ...], Compiled]) -> None:
        self._kind, self._kept = kind, kept

    def get(self, key: tuple[Any, ...]) -> Compiled | None:
        return self._kept.get((self._kind, *key[1:]))

    def __setitem__(self, key: tuple[Any, ...], compiled: Compiled) -> None:
        self._kept[self._kind, *key[1:]] = compiled


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
