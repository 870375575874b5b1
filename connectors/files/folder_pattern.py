"""The pattern by which a site names its jobs' folders: read, and used to find those of one job, without a wildcard from outside.

`/shared/logs/{user}/{name}-{id}`: fields take part of one folder's name, `*` any part of it. Of `{name}-{id}` the id is what
stands behind the last dash. A folder is read in one way only, and its fields are compared with what is looked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from connectors.base.contract import Deadline, SourceFailed
from connectors.files.local import FileEntry, FileStore

FIELDS = ("id", "name", "user")
MOST_LISTED = 200_000  # entries of folders, in one search
_PIECE = re.compile(r"\{(\w{1,20})\}|(\*)|([^{}*]+)")
Values = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PatternPart:
    """One part of the path that is not always the same. `fields`: those in it; `wild`: it has a `*` too."""

    text: str
    form: re.Pattern[str]
    fields: tuple[str, ...]
    wild: bool

    def read(self, name: str, known: Values) -> Values | None:
        """The fields' values by a name; None where it is another form, or says otherwise than is known."""
        match = self.form.fullmatch(name)
        if match is None or any(known.get(key, value) != value for key, value in match.groupdict().items()):
            return None
        return {**known, **match.groupdict()}

    def filled(self, known: Values) -> str | None:
        """The one name that it can have; None where there are several."""
        if self.wild or any(item not in known for item in self.fields):
            return None
        return re.sub(r"\{(\w+)\}", lambda hit: known[hit[1]], self.text)


@dataclass(frozen=True, slots=True)
class FolderPattern:
    """A pattern, taken apart. `root`: the folder that all job folders lie in; `scheme`: "file" or "s3"."""

    scheme: str
    root: str
    parts: tuple[PatternPart, ...]

    @property
    def fields(self) -> frozenset[str]:
        """The fields that it has."""
        return frozenset(name for part in self.parts for name in part.fields)


def parse_pattern(text: str) -> FolderPattern:
    """Read a pattern.

    Raises:
        ValueError: in words, what is wrong with it.
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
    """Looks for job folders in a store. `listed`: entries seen so far, by which it is bounded; `cut`: that they were too many.

    `quick`: what stands behind the last field is not looked up.
    """

    store: FileStore
    pattern: FolderPattern
    deadline: Deadline
    quick: bool = False
    listed: int = 0
    cut: bool = field(default=False)

    def of(self, known: Values) -> Iterator[tuple[Values, FileEntry]]:
        """The folders and files of the pattern whose fields have these values, each with all its fields."""
        if all(is_plain_name(value) for value in known.values()):
            yield from self._below(self.pattern.root, 0, dict(known))

    def named(self, own: str, known: Values) -> Iterator[tuple[Values, FileEntry]]:
        """Likewise those whose own name, of the last part with a field, is exactly this."""
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
                raise  # of one user's folder that others may not list, nothing is known


def is_plain_name(text: str) -> bool:
    """Whether a text can be one folder's name: no separator, no `..`, nothing that a store reads as more than a name."""
    return (
        bool(text)
        and len(text) <= 255
        and text.isprintable()
        and "/" not in text
        and text not in (".", "..")
        and "?versionId=" not in text
    )
