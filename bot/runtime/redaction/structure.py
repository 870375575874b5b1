"""Masks the secrets in every text of a value: dataclasses, mappings and sequences, as deep as they are nested."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from hashlib import sha256
from typing import Any, TypeVar

from bot.runtime.redaction import redact
from bot.runtime.redaction.names import announces

_T = TypeVar("_T")


def redacted(value: _T) -> _T:
    """Return a value with the secrets in its texts masked. Parts without a secret are returned as they are, not copied.

    A text of a mapping is interpreted with its key, as `password=...` is in a line.
    """
    known: dict[str, str] = {}

    def text(item: str) -> str:
        if item not in known:
            masked = redact(item)
            known[item] = item if masked == item else masked
        return known[item]

    return _walked(value, text)  # type: ignore[no-any-return]


def _walked(value: Any, text: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return text(value) if type(value) is str else value  # not a word of an enumeration
    if is_dataclass(value) and not isinstance(value, type):
        found = ((item.name, getattr(value, item.name)) for item in fields(value))
        changed = {name: new for name, old in found if (new := _walked(old, text)) is not old}
        return replace(value, **changed) if changed else value
    if isinstance(value, Mapping):
        items = [(_walked(key, text), _named(key, item, text)) for key, item in value.items()]
        same = all(new is item and known is key for (known, new), (key, item) in zip(items, value.items(), strict=True))
        return value if same else dict(items)
    if isinstance(value, tuple | list | frozenset | set):
        parts = [_walked(item, text) for item in value]
        if all(new is old for new, old in zip(parts, value, strict=True)):
            return value
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def _named(key: object, item: Any, text: Callable[[str], str]) -> Any:
    """Return the value of a key, which may say that it is a secret."""
    plain = _walked(item, text)
    if type(plain) is not str or not isinstance(key, str) or not announces(key.encode("utf-8", "replace")):
        return plain
    line = f"{key}={plain}"
    masked = text(line)
    return masked[len(key) + 1 :] if masked != line else plain


def redacted_path(path: str) -> str:
    """Return the path of a file that is written, with secrets in it replaced by `x` and a digest that tells such files apart."""
    masked = "/".join(redact(part) for part in path.split("/"))
    if masked == path:
        return path
    folder, _, name = masked.replace("*", "x").rpartition("/")
    whole = f"{sha256(path.encode('utf-8', 'surrogateescape')).hexdigest()[:8]}-{name}"
    return f"{folder}/{whole}" if folder else whole
