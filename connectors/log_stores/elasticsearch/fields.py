"""The fields of the indices: their types, which determine how values are compared, counted and searched.

Shippers map the same thing differently: Filebeat a line as `match_only_text` and names as `keyword`, Fluentd and fluent-bit
all as `text` with a sub-field `.keyword`, OpenTelemetry a line as `body.text` and attributes as `keyword` or `flattened`.
Indices of one pattern may differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from connectors.base.contract import SourceFailed
from connectors.base.http import HttpRequest, url_path
from connectors.log_stores.elasticsearch.calls import ElasticCalls, ElasticRefusal
from connectors.log_stores.elasticsearch.documents import field_text
from connectors.log_stores.elasticsearch.settings import ElasticsearchSettings
from connectors.log_stores.elasticsearch.words import KEYWORDS, TEXTS
from kb.model import Gap

ROLES = ("rank", "node", "pod", "container")
MESSAGES = (
    "message",
    "log",
    "body.text",
    "body",
    "Body",
    "msg",
    "MESSAGE",
    "event.original",
)  # where shippers put the line
_OBJECTS = frozenset({"flattened", "flat_object", "object", "nested", "passthrough"})


class FieldTypes:
    """The types of the fields: field → types, after `learn`. `index`: the indices that may be read."""

    def __init__(self, settings: ElasticsearchSettings) -> None:
        self.index = settings.index
        self.gaps: dict[str, Gap] = {}
        self._settings = settings
        self._kinds: dict[str, frozenset[str]] = {}
        self._known = False

    # -- learning ----------------------------------------------------------------------------------------------------

    def request(self, index: str | None = None) -> HttpRequest:
        """Return the request for the types of the fields. It only needs read permission."""
        settings = self._settings
        named = (*settings.fields.values(), *settings.also, settings.message, settings.time, self.searched)
        names = dict.fromkeys(text for name in named if name for text in (name, f"{name}.keyword", *_parents(name)))
        names |= dict.fromkeys((*MESSAGES, *([settings.order] if settings.order else [])))
        params = {"fields": ",".join(names), "ignore_unavailable": "true", "allow_no_indices": "true"}
        return HttpRequest(url_path(index or self.index, "_field_caps"), params=params)

    def learn(self, calls: ElasticCalls) -> None:
        """Fetch the types of the fields once. Indices that may not be read are left out, with a gap.

        Raises:
            SourceFailed: No response, a refusal, or there is no index.
        """
        if self._known:
            return
        found: dict[str, set[str]] = {}
        readable: list[str] = []
        refusals: list[tuple[str, SourceFailed]] = []
        for index in self._parts(calls, found, readable, refusals):
            try:
                self._take(calls.json(self.request(index)), found, readable, index)
            except ElasticRefusal as refused:
                if refused.kind not in ("forbidden", "missing", "server_error", "timeout"):
                    raise
                refusals.append((index, refused))
        if refusals:
            if not readable:
                raise refusals[0][1]
            names = ", ".join(index for index, _ in refusals)
            self.gaps["indices"] = Gap(
                "indices_left_out",
                self._settings.flavour,
                f"not searched: {names[:200]} ({str(refusals[0][1])[:200]})",
                rules_out="the lines in these indices",
            )
        self._kinds = {name: frozenset(kinds) for name, kinds in found.items()}
        self.index = ",".join(readable)
        self._known = True

    def _parts(
        self,
        calls: ElasticCalls,
        found: dict[str, set[str]],
        readable: list[str],
        refusals: list[tuple[str, SourceFailed]],
    ) -> Iterator[str]:
        """Query all indices together. If that is refused because of some of them, yield the parts of the expression."""
        parts = _separate(self.index)
        try:
            self._take(calls.json(self.request()), found, readable, self.index)
        except ElasticRefusal as refused:
            if len(parts) < 2 or refused.kind not in ("forbidden", "missing", "server_error"):
                raise
            del refusals[:]
            yield from parts

    def _take(self, answer: Mapping[str, Any], found: dict[str, set[str]], readable: list[str], index: str) -> None:
        fields = answer.get("fields")
        if not isinstance(fields, dict):
            raise SourceFailed("bad_answer", "the response has no fields", hint="is this address an Elasticsearch?")
        if answer.get("indices") == []:
            raise SourceFailed(
                "missing", f"no such index, alias or data stream: {index}", hint="check index: of this connector"
            )
        for name, kinds in fields.items():
            if isinstance(kinds, dict):
                found.setdefault(name, set()).update(kind for kind in kinds if kind != "unmapped")
        readable.append(index)

    # -- meaning of the fields ----------------------------------------------------------------------------------------------

    @property
    def searched(self) -> str:
        """The field that is searched for words."""
        return self._settings.search_in or self._settings.message

    @property
    def coarse(self) -> bool:
        """Whether some times are stored in milliseconds: bounds are cut to that, so the last one must be rounded up."""
        return self.kinds(self._settings.time) != {"date_nanos"}

    def kinds(self, name: str) -> frozenset[str]:
        """Return the types of a field; empty if no index has it."""
        found = self._kinds.get(name)
        if found:
            return found - _OBJECTS or (frozenset({"flattened"}) if "flattened" in found else frozenset())
        for parent in _parents(name):  # a key of a flattened object has no entry of its own
            if self._kinds.get(parent, frozenset()) & {"flattened", "flat_object"}:
                return frozenset({"flattened"})
        return frozenset()

    def missing(self) -> list[str]:
        """Return the configured fields that no index has."""
        settings = self._settings
        wanted = (settings.fields.get("job") or "", settings.message, settings.time)
        return [name for name in wanted if name and not self.kinds(name)]

    def messages(self) -> list[str]:
        """Return other fields that may hold the line."""
        return [name for name in MESSAGES if self.kinds(name) & (TEXTS | KEYWORDS)]

    def roles(self) -> dict[str, str]:
        """Return the existing fields that identify the origin of a line: role → field."""
        named = self._settings.fields
        return {role: name for role in ROLES if (name := named.get(role)) and self.kinds(name)}

    def counted(self) -> dict[str, str]:
        """Return the fields by which lines can be counted: role → field."""
        found: dict[str, str] = {}
        for role, name in self.roles().items():
            kinds = self.kinds(name)
            if not kinds & TEXTS:
                found[role] = name
            elif kinds <= TEXTS and self.kinds(f"{name}.keyword") and self.kinds(f"{name}.keyword") <= KEYWORDS:
                found[role] = f"{name}.keyword"
        return found

    def value(self, role: str, values: object, source: Mapping[str, Any]) -> str:
        """Return who wrote a line, from its indexed values or else from its source."""
        name = self.counted().get(role)
        if name is None:
            return field_text(source, self.roles().get(role, ""))
        found = values.get(name) if isinstance(values, dict) else None
        if isinstance(found, list) and found:
            return str(found[0])
        return ""

    def compared(self, name: str) -> tuple[str, ...]:
        """Return the fields for comparing whole values: itself, its sub-field .keyword, or both if indices differ.

        Raises:
            SourceFailed: There is none.
        """
        kinds = self.kinds(name)
        if not kinds & TEXTS:
            return (name,)
        whole = self.kinds(f"{name}.keyword")
        if whole and whole <= KEYWORDS:
            return (f"{name}.keyword",) if kinds <= TEXTS else (name, f"{name}.keyword")
        if kinds <= TEXTS:
            kind = " and ".join(sorted(kinds))
            raise SourceFailed(
                "refused",
                f"the field {name} is of type {kind} and cannot be compared as a whole",
                hint="name a keyword field",
            )
        return (name,)

    def exact(self, name: str) -> str:
        """Return the field by whose whole values documents can be counted.

        Raises:
            SourceFailed: There is none.
        """
        return self.compared(name)[-1]

    def searchable(self, name: str) -> bool:
        """Return whether words can be searched in a field."""
        kinds = self.kinds(name)
        return bool(kinds) and kinds <= TEXTS | KEYWORDS

    def how(self) -> str:
        """Describe how words are searched."""
        name = self.searched
        kinds = self.kinds(name)
        kind = " and ".join(sorted(kinds)) or "unknown"
        if not self.searchable(name):
            return f"{name} is of type {kind} and cannot be searched for words"
        if kinds & TEXTS:
            return (
                f"words are searched among the terms of {name} ({kind}); an analyser that stems or drops words hides lines."
                " If it does, set search_in to a sub-field of type wildcard"
            )
        return f"words are searched as substrings of {name} ({kind})"


def _parents(name: str) -> Iterator[str]:
    """The objects that hold a field with a dotted name."""
    at = name.find(".")
    while at > 0:
        yield name[:at]
        at = name.find(".", at + 1)


def _separate(index: str) -> list[str]:
    """The parts of an index expression that can be asked for alone: names and patterns, each with the exclusions."""
    parts = [part for part in index.split(",") if part]
    without = [part for part in parts if part.startswith("-")]
    return [",".join([part, *without]) for part in parts if not part.startswith("-")]
