"""The parts of Loki's JSON answers, checked: data, lists, and pairs of time and value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from connectors.base.contract import SourceFailed
from connectors.base.http import HttpRequest


def data_of(answer: Any, call: HttpRequest) -> Any:
    """Return the data of a response.

    Raises:
        SourceFailed: Its status is not success.
    """
    if not isinstance(answer, dict) or answer.get("status") != "success":
        raise unexpected_answer(call, "status: success")
    return answer.get("data")


def strings_of(data: Any, call: HttpRequest) -> list[str]:
    """Return a list of strings, which may be null.

    Raises:
        SourceFailed: The value is not such a list.
    """
    if data is None:  # Loki returns null for an empty list
        return []
    if not isinstance(data, list) or not all(isinstance(datum, str) for datum in data):
        raise unexpected_answer(call, "a list of strings")
    return data


def unexpected_answer(call: HttpRequest, wanted: str) -> SourceFailed:
    """Return the failure for a response that is not as documented."""
    return SourceFailed(
        "bad_answer", f"the response has no {wanted}", asked=call.summary(), hint="is this address a Loki?"
    )


def pairs_of(mapping: Mapping[str, Any]) -> Iterator[list[Any]]:
    """Yield the values of a stream or a series: time and text.

    Raises:
        SourceFailed: The values have a different structure.
    """
    values = mapping.get("values")
    if not isinstance(values, list):
        raise SourceFailed("bad_answer", "the response has a stream without values")
    for entry in values:
        if not (isinstance(entry, list) and len(entry) >= 2 and isinstance(entry[1], str)):
            raise SourceFailed("bad_answer", "the response has an entry that is not a pair of time and text")
        try:
            float(entry[0]), entry[0].isdigit() if isinstance(entry[0], str) else None
        except (TypeError, ValueError):
            raise SourceFailed("bad_answer", "the response has an entry without a time") from None
        yield entry
