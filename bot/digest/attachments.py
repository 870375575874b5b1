"""The files of a digest: charts, page, numbers."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from bot.digest.charts import pictures
from bot.digest.codec import dumps, loads
from bot.digest.html import page


@dataclass(frozen=True, slots=True)
class DigestFile:
    """A file to upload. `alt`: a description of the image."""

    name: str
    title: str
    content: bytes
    alt: str = ""


def files_of(numbers: bytes) -> list[DigestFile]:
    """The files of a digest, from its stored numbers.

    Raises:
        UnreadableInput: the numbers have a different schema version.
    """
    digest = loads(numbers)
    stem = f"failures-{digest.week}"
    drawn = [
        DigestFile(f"{stem}-{picture.name}.png", picture.title, picture.png, picture.alt)
        for picture in pictures(digest)
    ]
    readable = msgspec.json.format(dumps(digest), indent=1)
    return [
        *drawn,
        DigestFile(f"{stem}.html", f"Full report of {digest.week}", page(digest)),
        DigestFile(f"{stem}.json", f"The numbers of {digest.week}", readable),
    ]
