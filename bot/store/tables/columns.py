"""Column types of the tables: times with a zone, and texts whose secrets are masked."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import DateTime, Dialect, TypeDecorator
from sqlmodel import AutoString

from bot.runtime.redaction import redact


class UtcDateTime(TypeDecorator[datetime]):
    """A time with a zone, stored as UTC without a zone and returned as UTC, so that every database behaves the same."""

    impl = DateTime
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """The value to store: UTC without a zone.

        Raises:
            ValueError: The time has no zone.
        """
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a time without a zone")
        return value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """The value to return: UTC with a zone."""
        return None if value is None else value.replace(tzinfo=UTC)


class MaskedText(TypeDecorator[str]):
    """A text from a log, a cluster or a person. Secrets are masked when it is stored, and in values that it is compared with.

    All other text columns hold values that the service itself writes and must keep unchanged: keys, states, ids, digests, addresses.
    """

    impl = AutoString
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        """The value to store."""
        return None if value is None else redact(value)
