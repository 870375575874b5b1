"""The service's own log: one line per event, as text or JSON, with its context and without secrets.

`about` sets the context of this thread's lines for a while: an HTTP request, a task. Both formats include it, so that an id in a
Slack message leads to the matching lines.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import IO, Literal

from bot.runtime.redaction import redact

Form = Literal["text", "json"]
LONGEST = 16_384  # characters of a message; the middle of a longer traceback is cut
_about: ContextVar[dict[str, str]] = ContextVar("about", default={})  # noqa: B039 - never changed in place
_GIVEN = re.compile(r"[A-Za-z0-9._-]{8,64}\Z")
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")


@contextmanager
def about(**what: object) -> Iterator[None]:
    """Set the context of this thread's lines while it is open: a request, or a task and its kind."""
    token = _about.set({**_about.get(), **{key: str(value) for key, value in what.items() if value is not None}})
    try:
        yield
    finally:
        _about.reset(token)


def request_id(given: str | None) -> str:
    """Return the id of a request: the caller's if it is safe to log, otherwise a new one."""
    return given if given and _GIVEN.match(given) else uuid.uuid4().hex[:16]


def begin(form: Form, post: str, into: IO[str] | None = None) -> None:
    """Start logging. `post`: the name of this process; `into`: a stream instead of stderr."""
    handler = logging.StreamHandler(into or sys.stderr)
    handler.setFormatter(_JsonFormatter(post) if form == "json" else _TextFormatter(post))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    # the first ones log addresses, some of which are secret; the last one logs itself
    for name in ("httpx", "httpcore", "slack_sdk", "slack_bolt", "alembic.runtime.plugins"):
        logging.getLogger(name).setLevel(logging.WARNING)


class _TextFormatter(logging.Formatter):
    def __init__(self, post: str) -> None:
        super().__init__()
        self._post = post

    def format(self, record: logging.LogRecord) -> str:
        told = _about.get()
        where = f" [{' '.join(f'{key}={value}' for key, value in told.items())}]" if told else ""
        words = f"{_at(record)} {record.levelname} {self._post} {record.name}:{redact(where)} {_words(record)}"
        return _UNPRINTABLE.sub("?", words).replace("\n", "\n  ")  # marks continuation lines


class _JsonFormatter(logging.Formatter):
    def __init__(self, post: str) -> None:
        super().__init__()
        self._post = post

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": _at(record),
            "level": record.levelname.lower(),
            "process": self._post,
            "logger": record.name,
            **{key: redact(value) for key, value in _about.get().items()},
            "message": _words(record),
        }
        return json.dumps(line, ensure_ascii=False).replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _at(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _words(record: logging.LogRecord) -> str:
    try:
        words = record.getMessage()
    except (TypeError, ValueError):  # a library passed wrong arguments: log the message as it is
        words = f"{record.msg} {record.args}"
    if record.exc_info:
        words += "\n" + logging.Formatter().formatException(record.exc_info)
    words = redact(words.encode("utf-8", "replace").decode())
    return words if len(words) <= LONGEST else f"{words[: LONGEST // 2]}\n…\n{words[-LONGEST // 2 :]}"
