"""Database access for SQLite and PostgreSQL: connections, transactions, migrations, one-line errors.

Importing SQLAlchemy is slow, so this module is imported after the answer is printed.
"""

from __future__ import annotations

import contextlib
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, Self, TypeVar

import zstandard
from sqlalchemy import Connection, Engine, Executable, event, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlmodel import Session, SQLModel, create_engine, select

from bot.runtime.paths import sqlite_file
from bot.store.group_commit import GroupCommit, GroupedWrite
from bot.store.tables import SchemaVersion
from kb.errors import SignalboxError

SCHEMA_VERSION = 13  # version of the tables: the number of steps in `migrations/versions`
_STEPS = Path(__file__).parent / "migrations"
_LOCK = 0x5163616C  # PostgreSQL advisory lock: processes that start at the same time migrate one after the other
_BUSY_SECONDS = 5.0
_PAUSES = (0.02, 0.1, 0.5, 1.0, 2.0)  # approximate seconds before a transaction that the database aborted is retried
_GIVEN_UP = ("40001", "40P01")  # PostgreSQL error codes: one of two conflicting transactions was aborted
T = TypeVar("T")


class StoreError(SignalboxError):
    """The store cannot be read or written. The message is one line and names the store."""


class Database:
    """A database with its tables. Close it, or use it in a `with` statement. `file`: of SQLite; None for another kind, or in memory."""

    file: Path | None = None

    def __init__(self, url: str) -> None:
        """Open the database and create missing tables.

        Raises:
            StoreError: the database cannot be opened or written, or was created by a newer version of Signalbox.
        """
        self._engine: Engine | None = None
        self._turn = threading.Lock()
        self._group = GroupCommit(self._commit_group)
        self._name = url
        with self.errors():
            parsed = make_url(url)
            self.file = sqlite_file(url)
            self._name = parsed.database or parsed.render_as_string(hide_password=True)
            self._engine = _engine(url)
            try:
                _retried(self._prepare)  # of many processes that start on a new store, all but one wait
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
                    f"{self._name} has tables of version {found}; this version of Signalbox supports version {SCHEMA_VERSION}"
                )
            if found != SCHEMA_VERSION:
                _upgrade(connection, found)

    @contextlib.contextmanager
    def session(self, *, write: bool = False) -> Iterator[Session]:
        """A transaction: committed at the end, rolled back on an error.

        Raises:
            StoreError: the database is not open.
        """
        if self._engine is None:
            raise StoreError(f"{self._name} is not open")
        with (
            self._in_turn() if write else contextlib.nullcontext(),
            Session(self._engine.execution_options(signalbox_write=write)) as session,
            session.begin(),
        ):
            yield session

    @contextlib.contextmanager
    def _in_turn(self) -> Iterator[None]:
        """Serialise this process's writers on SQLite, because SQLite itself waits by sleeping and serves writers in no order."""
        held = self._one_writer and self._turn.acquire(timeout=_BUSY_SECONDS)
        try:
            yield
        finally:
            if held:
                self._turn.release()

    def write(self, do: Callable[[Session], T]) -> T:
        """Run `do` in a write transaction and return its result. Retry if the database or the connection aborts it.

        A connection may break after the commit and before the confirmation, so `do` must be idempotent. On SQLite, writes of several
        threads share a transaction, each in a savepoint, so `do` may run on another thread.

        Raises:
            StoreError: the store cannot be used.
        """
        with self.errors():
            return self._group.write(do) if self._one_writer else _retried(lambda: self._in_transaction(do))

    @property
    def _one_writer(self) -> bool:
        return self._engine is not None and self._engine.dialect.name == "sqlite"

    def _in_transaction(self, do: Callable[[Session], T]) -> T:
        with self.session(write=True) as session:
            return do(session)

    def _commit_group(self, group: Sequence[GroupedWrite]) -> None:
        """Commit a group in one transaction. If the database refuses one of them, each gets its own transaction."""
        if len(group) > 1:
            try:
                return _retried(lambda: self._together(group))
            except DBAPIError:  # the transaction may be gone, so nothing says which of the writes is to blame
                pass
        for write in group:
            write.error = None
            try:
                write.result = _retried(partial(self._in_transaction, write.do))
            except Exception as error:  # noqa: BLE001 - raised by the thread that requested the write
                write.error = error
        return None

    def _together(self, group: Sequence[GroupedWrite]) -> None:
        if self._engine is None:
            raise StoreError(f"{self._name} is not open")
        writing = self._engine.execution_options(signalbox_write=True)
        with self._in_turn(), writing.begin() as connection:
            for write in group:
                write.error = None
                try:
                    with (
                        Session(connection, join_transaction_mode="create_savepoint") as session,
                        session.begin(),
                    ):
                        write.result = write.do(session)
                except DBAPIError:
                    raise
                except Exception as error:  # noqa: BLE001 - raised by the thread that requested the write
                    write.error = error

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Turn errors of the database and the file system into a one-line `StoreError` that names the store.

        Raises:
            StoreError: the body failed; its reason is the first line of the original error.
        """
        try:
            yield
        except (SQLAlchemyError, OSError, ImportError, ValueError, zstandard.ZstdError) as error:
            reason = str(getattr(error, "orig", None) or error).splitlines() or [type(error).__name__]
            raise StoreError(f"{self._name} cannot be used: {reason[0]}") from error


class Repository:
    """Queries over one part of a database. Share the connections of a `Database`, or give a URL to own them."""

    def __init__(self, database: Database | str) -> None:
        """Use an open database, or open one.

        Raises:
            StoreError: the database cannot be opened or written, or was created by a newer version of Signalbox.
        """
        self.database = Database(database) if isinstance(database, str) else database

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections of the database."""
        self.database.close()


def insert_new(session: Session, table: type[SQLModel], values: Mapping[str, Any]) -> int | None:
    """Insert a row and return its id; None if a row with one of its unique keys exists or is being written."""
    connection = session.connection()
    found: int | None = connection.execute(_insertion(table, connection.dialect.name), values).scalar_one_or_none()
    return found


@cache
def _insertion(table: type[SQLModel], dialect: str) -> Executable:
    insert = sqlite.insert if dialect == "sqlite" else postgresql.insert
    return insert(table).on_conflict_do_nothing().returning(table.__table__.c.id)  # type: ignore[attr-defined]


# --- the database ----------------------------------------------------------------------------------------------------


def _retried(do: Callable[[], T]) -> T:
    """Return the result of a transaction. Retry it if the database or the connection aborts it."""
    for pause in _PAUSES:
        try:
            return do()
        except DBAPIError as error:
            if not _passes(error):
                raise
            time.sleep(pause * random.uniform(0.5, 1.5))  # writers that collided once do not collide again
    return do()


def _passes(error: DBAPIError) -> bool:
    """Whether a retry may succeed."""
    return (
        error.connection_invalidated
        or getattr(error.orig, "sqlstate", None) in _GIVEN_UP
        or getattr(error.orig, "sqlite_errorname", "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))
    )


def _version(connection: Connection) -> int | None:
    """The version of the tables; None if there are none."""
    if not connection.dialect.has_table(connection, "schema_version"):
        return None
    found: Sequence[Any] = connection.execute(select(SchemaVersion.version)).all()
    return int(found[0][0]) if found else None


def _upgrade(connection: Connection, found: int | None) -> None:
    """Run the missing migrations in the transaction of `connection`. `found`: the current version of the tables."""
    from alembic import command  # noqa: PLC0415 - slow to import, and needed once in the life of a version
    from alembic.config import Config  # noqa: PLC0415
    from alembic.runtime.migration import MigrationContext  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(_STEPS).replace("%", "%%"))
    config.attributes["connection"] = connection
    if found is not None and MigrationContext.configure(connection).get_current_revision() is None:
        command.stamp(config, f"{found:04}")  # versions 1 and 2 were created without migrations
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
    """Create the database file and its folder for this user only: it contains log lines."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not path.exists():
        path.touch(mode=0o600)


def _on_connect(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # `_on_begin` starts transactions, which also cover the creation of tables
    cursor = connection.cursor()
    try:
        cursor.execute(f"PRAGMA busy_timeout = {int(_BUSY_SECONDS * 1000)}")
        cursor.execute("PRAGMA foreign_keys = ON")
        # A file system without shared memory, a read-only folder, or another process that is switching right now: the
        # journal mode stays as it is, and the store still works.
        with contextlib.suppress(sqlite3.OperationalError):
            cursor.execute("PRAGMA journal_mode = WAL").fetchall()
    finally:
        cursor.close()


def _on_begin(connection: Connection) -> None:
    # A writer takes its lock immediately: SQLite may reject one that reads first and writes later, without waiting.
    write = connection.get_execution_options().get("signalbox_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")
