"""The pattern of a site's job folders: parsed, and used to find the folders of one job. Untrusted input cannot add wildcards.

In `/shared/logs/{user}/{name}-{id}`, fields match part of one folder name and `*` matches any part of it. In
`{name}-{id}`, the id follows the last dash. A folder is read in one way only, and its fields are compared with the job.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from connectors.base.contract import Deadline, SourceFailed
from connectors.files.local import FileEntry, FileStore

FIELDS = ("id", "name", "user")
MOST_LISTED = 200_000  # folder entries in one search
_PIECE = re.compile(r"\{(\w{1,20})\}|(\*)|([^{}*]+)")
Values = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PatternPart:
    """A variable component of the path. `fields`: its fields; `wild`: it also contains a `*`."""

    text: str
    form: re.Pattern[str]
    fields: tuple[str, ...]
    wild: bool

    def read(self, name: str, known: Values) -> Values | None:
        """Return the field values in a name, None if it does not match or contradicts known values."""
        match = self.form.fullmatch(name)
        if match is None or any(known.get(key, value) != value for key, value in match.groupdict().items()):
            return None
        return {**known, **match.groupdict()}

    def filled(self, known: Values) -> str | None:
        """Return the only name that it can match; None if there are several."""
        if self.wild or any(item not in known for item in self.fields):
            return None
        return re.sub(r"\{(\w+)\}", lambda hit: known[hit[1]], self.text)


@dataclass(frozen=True, slots=True)
class FolderPattern:
    """A parsed pattern. `root`: the folder that contains all job folders; `scheme`: "file" or "s3"."""

    scheme: str
    root: str
    parts: tuple[PatternPart, ...]

    @property
    def fields(self) -> frozenset[str]:
        """Its fields."""
        return frozenset(name for part in self.parts for name in part.fields)


def parse_pattern(text: str) -> FolderPattern:
    """Parse a pattern.

    Raises:
        ValueError: The pattern is invalid; the message says why.
    """
    scheme, place = ("s3", text.removeprefix("s3://")) if text.startswith("s3://") else ("file", text)
    if scheme == "file" and not text.startswith(("/", "~/")):
        raise ValueError(f"{text[:80]!r} is not a folder pattern: start it with / or s3://bucket/")
    names = [name for name in place.split("/") if name]
    if any(name in (".", "..") for name in names):
        raise ValueError("the pattern contains `.` or `..`: write the real path")
    parts = [_part(name) for name in names]
    first = next((place for place, part in enumerate(parts) if part.fields or part.wild), len(parts))
    found = {name for part in parts for name in part.fields}
    if not found & {"id", "name"}:
        raise ValueError("the pattern has neither {id} nor {name}, so it cannot tell one job from another")
    if first == 0:
        raise ValueError("the pattern starts with a field: name the bucket or the folder that contains all jobs")
    root = "/".join(names[:first])
    return FolderPattern(scheme, root if scheme == "s3" or text.startswith("~") else f"/{root}", tuple(parts[first:]))


def _part(text: str) -> PatternPart:
    form, fields, wild = "", [], False
    end = 0
    for hit in _PIECE.finditer(text):
        if hit.start() != end:
            break
        end = hit.end()
        if hit[1]:
            if hit[1] not in FIELDS:
                raise ValueError(f"the pattern has an unknown field {{{hit[1]}}}: use {{id}}, {{name}} or {{user}}")
            greedy = "+" if hit[1] == "name" else "+?"
            form += f"(?P={hit[1]})" if hit[1] in fields else f"(?P<{hit[1]}>.{greedy})"
            fields.append(hit[1])
        elif hit[2]:
            form += ".*?"
            wild = True
        else:
            form += re.escape(hit[3])
    if end != len(text):
        raise ValueError(f"the part {text[:60]!r} of the pattern has an unclosed brace")
    return PatternPart(text, re.compile(form, re.DOTALL), tuple(dict.fromkeys(fields)), wild)


@dataclass(slots=True)
class FolderSearch:
    """Searches a store for job folders. `listed`: entries seen so far, up to a limit; `cut`: the limit was exceeded.

    `quick`: do not look up what follows the last field.
    """

    store: FileStore
    pattern: FolderPattern
    deadline: Deadline
    quick: bool = False
    listed: int = 0
    cut: bool = field(default=False)

    def of(self, known: Values) -> Iterator[tuple[Values, FileEntry]]:
        """Yield the folders and files whose fields have these values, with all their fields."""
        if all(is_plain_name(value) for value in known.values()):
            yield from self._below(self.pattern.root, 0, dict(known))

    def named(self, own: str, known: Values) -> Iterator[tuple[Values, FileEntry]]:
        """Yield those whose own name, in the last component with a field, is exactly this."""
        last = max(place for place, part in enumerate(self.pattern.parts) if part.fields)
        values = self.pattern.parts[last].read(own, known) if is_plain_name(own) else None
        if values is not None and self.pattern.parts[last].filled(values) == own:
            yield from self.of(values)

    def _below(self, folder: str, place: int, known: Values) -> Iterator[tuple[Values, FileEntry]]:
        part = self.pattern.parts[place]
        only = part.filled(known)
        last = place == len(self.pattern.parts) - 1 or (
            self.quick and not any(item.fields or item.wild for item in self.pattern.parts[place + 1 :])
        )
        if only is not None:
            path = f"{folder}/{only}"
            if not last:
                yield from self._below(path, place + 1, known)
            elif (found := self.store.looked_up(path, self.deadline)) is not None and part.read(
                only, known
            ) is not None:
                yield known, found
            return
        for entry in self.store.listed(folder, self.deadline):
            self.listed += 1
            if self.listed > MOST_LISTED:
                self.cut = True
                return
            values = part.read(entry.name, known)
            if values is None:
                continue
            if last:
                yield values, entry
            elif entry.folder:
                yield from self._further(entry, place, values)

    def _further(self, entry: FileEntry, place: int, known: Values) -> Iterator[tuple[Values, FileEntry]]:
        try:
            yield from self._below(entry.path, place + 1, known)
        except SourceFailed as failed:
            if failed.kind not in ("forbidden", "missing"):
                raise  # nothing is known about a user's folder that others may not list


def is_plain_name(text: str) -> bool:
    """Return whether a text can be one folder name: no separator, no `..`, no special meaning for a store."""
    return (
        bool(text)
        and len(text) <= 255
        and text.isprintable()
        and "/" not in text
        and text not in (".", "..")
        and "?versionId=" not in text
    )
