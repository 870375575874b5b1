"""The numbers of a digest as JSON (`signalbox.digest/1`) and back: what is kept, and what everything else is drawn from."""

from __future__ import annotations

import msgspec

from kb.digest.digest import SCHEMA, Digest
from kb.errors import UnreadableInput


def dumps(digest: Digest) -> bytes:
    """One line of JSON."""
    return msgspec.json.encode(digest)


def loads(text: bytes) -> Digest:
    """The digest that `dumps` wrote.

    Raises:
        UnreadableInput: it is none, or of another version.
    """
    try:
        found = msgspec.json.decode(text, type=Digest)
    except (ValueError, RecursionError) as error:
        raise UnreadableInput(f"not a readable digest: {error}") from error
    if found.schema != SCHEMA:
        raise UnreadableInput(f"not a digest of schema {SCHEMA}")
    return found
