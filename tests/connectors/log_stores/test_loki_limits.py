"""Limits of a Loki: as the real server words its refusals, and as it publishes them."""

from __future__ import annotations

import itertools

import pytest

from connectors.base.contract import SourceFailed
from connectors.log_stores.logql import with_words
from connectors.log_stores.loki_limits import NS, LokiLimits, duration, is_series, too_much
from kb.scanning.telling_words import TELLING_WORDS

SERIES = (
    "maximum number of series (20) reached for a single query; consider reducing query cardinality by adding more specific stream"
    " selectors, reducing the time range, or aggregating results with functions like sum(), count() or topk()"
)


@pytest.mark.parametrize(
    ("told", "learned"),
    [
        ("max entries limit per query exceeded, limit > max_entries_limit_per_query (5000 > 1000)", {"entries": 1000}),
        ("the query time range exceeds the limit (query length: 30d1h, limit: 12h)", {"length": 12 * 3600 * NS}),
        (SERIES, {"series": 20}),
        ("maximum of series (500) reached for a single query", {"series": 500}),
    ],
)
def test_a_refusal_names_its_limit(told: str, learned: dict[str, int]) -> None:
    """The limit is taken over; a higher one named later does not raise it."""
    limits = LokiLimits()
    assert limits.learn(SourceFailed("refused", f"the server returned 400: {told}"))
    assert {name: getattr(limits, name) for name in learned} == learned
    assert is_series(SourceFailed("refused", told)) == ("series" in learned)


@pytest.mark.parametrize(
    ("kind", "told", "share"),
    [
        ("refused", "the query would read too many bytes (query: 1.2GB, limit: 120MB); consider adding more", 0.08),
        ("refused", "query too large to execute on a single querier: (query: 300 GB, limit: 150 GB); consider", 0.4),
        ("timeout", "the server returned 504: request timed out, decrease the duration of the request", 0.5),
        ("server_error", "rpc error: code = ResourceExhausted desc = trying to send message larger than max", 0.5),
        ("refused", "parse error at line 1, col 3: syntax error", None),
        ("unauthorised", "no org id", None),
    ],
)
def test_what_a_smaller_window_helps(kind: str, told: str, share: float | None) -> None:
    """Bytes by their ratio with some room; time and size by halves; nothing for what stays wrong."""
    assert too_much(SourceFailed(kind, told)) == (None if share is None else pytest.approx(share))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30d1h", 30 * 86400 + 3600), ("1m0.5s", 60.5), ("0s", 0), ("", None), ("1x", None), ("h", None)],
)
def test_durations(text: str, seconds: float | None) -> None:
    """As Prometheus and Go write them."""
    assert duration(text) == (None if seconds is None else round(seconds * NS))


def test_neighbours_in_a_filter_begin_differently() -> None:
    """Go's parser joins neighbours with the same beginning into what Loki searches as a regular expression."""
    words = with_words(TELLING_WORDS).removeprefix(' |~ "').removesuffix('"').split("|")
    assert sorted(words) == sorted(TELLING_WORDS)
    assert all(first[0] != second[0] for first, second in itertools.pairwise(words))
    assert with_words(()) == ""
    assert with_words(("ab", "ac", "ad")).count("|") == 3
