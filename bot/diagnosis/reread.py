"""Reads parts of logs once more, for what the summary of a long log leaves out."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from connectors.bundles.streams import StreamReader, is_plain
from kb.model import StreamRef


def bytes_of(root: Path | None, uri: str, start: int, stop: int) -> bytes:
    """Return the bytes [start, stop) of a log; empty if it is compressed or cannot be read. `root`: the folder of the logs."""
    ref = StreamRef(str(root / uri if root else Path(uri)))
    with suppress(OSError, ValueError):  # the name may not be a valid file name
        if is_plain(ref):
            return b"".join(StreamReader(ref, start, stop))
    return b""
