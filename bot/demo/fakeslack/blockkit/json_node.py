"""JSON under validation. Each complaint has Slack's wording and the JSON pointer of its place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


def length(text: str) -> int:
    """Return the length as JavaScript counts it: UTF-16 units, never fewer than code points."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


@dataclass(frozen=True, slots=True)
class JsonNode:
    """A value, its place, and the complaints so far (shared by the whole tree)."""

    value: Any
    path: str
    said: list[str] = field(default_factory=list)

    def complain(self, words: str) -> None:
        """Add a complaint about this place."""
        self.said.append(f"{words} [json-pointer:{self.path or '/'}]")

    def __getitem__(self, key: str | int) -> JsonNode:
        value = self.value[key] if isinstance(key, int) else self.value.get(key)
        return JsonNode(value, f"{self.path}/{key}", self.said)

    def has(self, key: str) -> bool:
        """Whether the object has the field. null counts as missing."""
        return isinstance(self.value, dict) and self.value.get(key) is not None

    def children(self, *keys: str) -> Iterator[JsonNode]:
        """Return the given fields among `keys`."""
        return (self[key] for key in keys if self.has(key))

    def object(self, required: str, optional: str = "") -> bool:
        """Whether it is an object with only these fields; space-separated names. Complain about each wrong one."""
        if not isinstance(self.value, dict):
            self.complain("must be an object")
            return False
        needs, may = required.split(), optional.split()
        missing = [item for item in needs if not self.has(item)]
        for scope in missing:
            self.complain(f"missing required field: {scope}")
        for item in self.value:
            if item not in needs and item not in may:
                self.complain(f"invalid additional property: {item}")
        return not missing

    def string(self, most: int, least: int = 0) -> str:
        """Return the text; complain if its length is not allowed."""
        if not isinstance(self.value, str):
            self.complain("must be a string")
            return ""
        size = length(self.value)
        if size > most:
            self.complain(f"must be less than {most + 1} characters")
        if size < least:
            self.complain(f"must be more than {least - 1} characters")
        if any("\ud800" <= item <= "\udfff" for item in self.value):
            self.complain("must be valid Unicode")
        return self.value

    def boolean(self) -> None:
        """Complain unless it is a boolean."""
        if not isinstance(self.value, bool):
            self.complain("must be a boolean")

    def integer(self, least: int, most: int) -> None:
        """Complain unless it is an integer in this range."""
        if isinstance(self.value, bool) or not isinstance(self.value, int) or not least <= self.value <= most:
            self.complain(f"must be an integer from {least} to {most}")

    def one_of(self, *words: str) -> None:
        """Complain unless it is one of these words."""
        if self.value not in words:
            self.complain(f"must be one of: {', '.join(words)}")

    def items(self, least: int, most: int) -> list[JsonNode]:
        """Return the members of a list; complain if it is no list, or has too many or too few."""
        if not isinstance(self.value, list):
            self.complain("must be an array")
            return []
        if len(self.value) > most:
            self.complain(f"no more than {most} items allowed")
        if len(self.value) < least:
            self.complain(f"no fewer than {least} items allowed")
        return [self[index] for index in range(min(len(self.value), most))]

    def kind(self) -> str:
        """Return its `type`; complain and return an empty text if it has none."""
        kind = self.value.get("type") if isinstance(self.value, dict) else None
        if not isinstance(kind, str) or not kind:
            self.complain("missing required field: type")
            return ""
        return kind
