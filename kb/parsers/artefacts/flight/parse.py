"""Decodes a dump into typed structures; the typed conversion bounds the nesting depth."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, TypeVar

import msgspec

from kb.parsers.artefacts.flight.dump import LIMITS, Dump, DumpEntry, DumpReading, GroupConfig, GroupStatus
from kb.parsers.artefacts.flight.plain_pickle import load_plain, refusal

_NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError, MemoryError)
_PartT = TypeVar("_PartT")


# --- bytes to a typed dump -------------------------------------------------------------------------------------------


def parse_dump(data: bytes, work: DumpReading) -> Dump | None:
    """Decode a dump from JSON or a pickle; None if nothing can be read. Gaps are recorded in the reading."""
    if len(data) > work.limits.size:
        size = f"{len(data) >> 20} MiB"
        work.gap("dump_too_large", f"larger than the read limit of {work.limits.size >> 20} MiB", got=size)
        return None
    head = data[:64].lstrip()
    if head[:1] == b"{":
        return _from_json(data, work)
    if head[:1] == b"\x80":
        return _from_pickle(data, work)
    work.gap("dump_unreadable", "neither a JSON object nor a pickle of protocol 2 or later" if data else "empty file")
    return None


def _from_json(data: bytes, work: DumpReading) -> Dump | None:
    try:
        return _DECODER.decode(data)
    except msgspec.ValidationError:
        pass  # a part is malformed: read the rest
    except _NOT_JSON as error:
        work.gap("dump_unreadable", f"incomplete JSON: {one_line(error)}")
        return None
    try:
        return _tolerant(msgspec.json.decode(data), work)
    except _NOT_JSON as error:
        work.gap("dump_unreadable", f"incomplete JSON: {one_line(error)}")
        return None


def _from_pickle(data: bytes, work: DumpReading) -> Dump | None:
    refused = refusal(data, work.limits.containers)
    if refused:
        work.gap("dump_refused", refused, rules_out="what this rank recorded; the file was not loaded")
        return None
    try:
        built = load_plain(data)
    except (
        pickle.UnpicklingError,
        EOFError,
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        AttributeError,
        OverflowError,
        RecursionError,
        MemoryError,
    ) as error:
        work.gap("dump_unreadable", f"incomplete pickle: {one_line(error)}")
        return None
    try:
        return msgspec.convert(built, Dump, strict=False)
    except (msgspec.ValidationError, RecursionError, ValueError):
        return _tolerant(built, work)


def _tolerant(built: Any, work: DumpReading) -> Dump | None:
    """Return the well-formed parts of a malformed dump, and record how much was dropped."""
    if not isinstance(built, dict) or not ("entries" in built or "pg_status" in built or "pg_config" in built):
        work.gap("dump_unreadable", "not a Flight Recorder dump: it has neither entries nor process groups")
        return None
    entries, bad = _convert_each(_parts(built.get("entries")), DumpEntry, work.limits.entries * 4)
    configs, bad_configs = _convert_named(built.get("pg_config"), GroupConfig)
    status, bad_status = _convert_named(built.get("pg_status"), GroupStatus)
    dropped = bad + bad_configs + bad_status
    dropped += sum(
        built.get(name) is not None and not isinstance(built[name], kinds)
        for name, kinds in (("entries", (list, tuple)), ("pg_config", dict), ("pg_status", dict))
    )
    if dropped:
        work.gap("dump_partial", f"{dropped} parts have an unknown form", got=f"{len(entries)} entries")
    version, rank = built.get("version"), built.get("rank")
    return Dump(
        version=version if isinstance(version, str | float) else "",
        rank=rank if isinstance(rank, int) else None,
        pg_config=configs,
        pg_status=status,
        entries=entries,
    )


def _parts(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _convert_each(parts: Iterable[Any], kind: type[_PartT], most: int) -> tuple[list[_PartT], int]:
    """Return the parts of the expected type, and the number of others or excess ones."""
    good: list[_PartT] = []
    bad = 0
    for part in parts:
        if len(good) >= most:
            bad += 1
            continue
        try:
            good.append(msgspec.convert(part, kind, strict=False))
        except (msgspec.ValidationError, RecursionError, ValueError):
            bad += 1
    return good, bad


def _convert_named(value: Any, kind: type[_PartT]) -> tuple[dict[str, _PartT], int]:
    items = list(islice(value.items(), LIMITS.groups)) if isinstance(value, dict) else []
    good: dict[str, _PartT] = {}
    for name, part in items:
        one, _ = _convert_each((part,), kind, 1)
        if one and isinstance(name, str | int):
            good[str(name)[:200]] = one[0]
    return good, len(items) - len(good)


def one_line(error: Exception) -> str:
    """Return an error's message on one line of at most 160 characters."""
    return " ".join(str(error).split())[:160]


_DECODER = msgspec.json.Decoder(Dump, strict=False)
