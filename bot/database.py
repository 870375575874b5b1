"""The database under all that Signalbox remembers: one set of tables for SQLite and others, errors as one line.

Slow to import (SQLAlchemy), so it is imported after the answer is printed.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import zstandard
from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import Session, create_engine, select

from bot.tables import SchemaVersion
from kb.errors import SignalboxError

SCHEMA_VERSION = 3  # of the tables: as many as there are steps in `_migrations/versions`
_STEPS = Path(__file__).parent / "_migrations"
_LOCK = 0x5163616C  # of PostgreSQL: two that start at once take the steps one after the other
_BUSY_SECONDS = 5.0


class StoreError(SignalboxError):
    """The store cannot be read or written. The text is one line and says which store."""


class Database:
    """The tables in one database, whoever's. Close it, or use it in a `with`."""

    def __init__(self, url: str) -> None:
        """Open the database and make its tables where they are missing.

        Raises:
            StoreError: it cannot be opened or written, or a newer Signalbox made it.
        """
        self._engine: Engine | None = None
        self._name = url
        with self.errors():
            parsed = make_url(url)
            self._name = parsed.database or parsed.render_as_string(hide_password=True)
            self._engine = _engine(url)
            try:
                self._prepare()
            except BaseException:
                self.close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        if self._engine is not None:
            self._engine.dispose()

    def _prepare(self) -> None:
        with self.session() as session:
            if _version(session.connection()) == SCHEMA_VERSION:
                return
        with self.session(write=True) as session:
            connection = session.connection()
            if connection.dialect.name == "postgresql":
                connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
            found = _version(connection)
            if found is not None and found > SCHEMA_VERSION:
                raise StoreError(
                    f"{self._name} has tables of version {found}; this Signalbox knows version {SCHEMA_VERSION}"
                )
            if found != SCHEMA_VERSION:
                _upgrade(connection, found)

    @contextlib.contextmanager
    def session(self, *, write: bool = False) -> Iterator[Session]:
        """A transaction: kept at the end, rolled back on an error."""
        if self._engine is None:
            raise StoreError(f"{self._name} is not open")
        with Session(self._engine.execution_options(signalbox_write=write)) as session, session.begin():
            yield session

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Whatever the database or the file system says, as one line that names the store."""
        try:
            yield
        except (SQLAlchemyError, OSError, ImportError, ValueError, zstandard.ZstdError) as error:
            reason = str(getattr(error, "orig", None) or error).splitlines() or [type(error).__name__]
            raise StoreError(f"{self._name} cannot be used: {reason[0]}") from error


# --- the database ----------------------------------------------------------------------------------------------------


def _version(connection: Connection) -> int | None:
    """The version of the tables; None where there are none."""
    if not connection.dialect.has_table(connection, "schema_version"):
        return None
    found: Sequence[Any] = connection.execute(select(SchemaVersion.version)).all()
    return int(found[0][0]) if found else None


def _upgrade(connection: Connection, found: int | None) -> None:
    """Take the steps that are missing, all in the transaction of `connection`; `found`: the version that is there."""
    from alembic import command  # noqa: PLC0415 - slow to import, and needed once in the life of a version
    from alembic.config import Config  # noqa: PLC0415
    from alembic.runtime.migration import MigrationContext  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(_STEPS).replace("%", "%%"))
    config.attributes["connection"] = connection
    if found is not None and MigrationContext.configure(connection).get_current_revision() is None:
        command.stamp(config, f"{found:04}")  # versions 1 and 2 were made without steps
    command.upgrade(config, "head")


def _engine(url: str) -> Engine:
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite":
        return create_engine(parsed)
    if parsed.database and parsed.database != ":memory:":
        _private_file(Path(parsed.database))
    engine = create_engine(parsed, connect_args={"timeout": _BUSY_SECONDS})
    event.listen(engine, "connect", _on_connect)
    event.listen(engine, "begin", _on_begin)
    return engine


def _private_file(path: Path) -> None:
    """The database's file and folder, for this user alone: it holds lines of logs."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not path.exists():
        path.touch(mode=0o600)


def _on_connect(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # transactions begin where `_on_begin` says, and hold the making of tables too
    cursor = connection.cursor()
    try:
        cursor.execute(f"PRAGMA busy_timeout = {int(_BUSY_SECONDS * 1000)}")
        cursor.execute("PRAGMA foreign_keys = ON")
        # A file system without shared memory, a folder that is read only, or another who is just switching: the
        # journal stays as it is, and the store works all the same.
        with contextlib.suppress(sqlite3.OperationalError):
            cursor.execute("PRAGMA journal_mode = WAL").fetchall()
    finally:
        cursor.close()


def _on_begin(connection: Connection) -> None:
    # A writer takes its lock at once: one that reads first and writes later can be refused without waiting.
    write = connection.get_execution_options().get("signalbox_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")
