"""The numbers of a digest as JSON (`signalbox.digest/1`).

They are stored, and everything else is generated from them.
"""

from __future__ import annotations

import msgspec

from kb.digest.digest import SCHEMA, Digest
from kb.errors import UnreadableInput


def dumps(digest: Digest) -> bytes:
    """The numbers as one line of JSON."""
    return msgspec.json.encode(digest)


def loads(text: bytes) -> Digest:
    """The digest that `dumps` wrote.

    Raises:
        UnreadableInput: the text is not a digest, or has a different schema version.
    """
    try:
        found = msgspec.json.decode(text, type=Digest)
    except (ValueError, RecursionError) as error:
        raise UnreadableInput(f"not a readable digest: {error}") from error
    if found.schema != SCHEMA:
        raise UnreadableInput(f"not a digest of schema {SCHEMA}")
    return found
