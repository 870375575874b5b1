"""A pytest plugin: which tests are slow, and whether each test function has a quick variant.

`make test` runs the quick tests, `make test-all` all. Slow is:

- a test that is marked `slow`: a quicker one of the same module checks the same with fewer examples, rounds or sizes, or a quicker
  one elsewhere checks a part of which this one tries the whole, so that how the parts fit is checked by `make test-all` only;
- a variant that `quick` doesn't choose: `@pytest.mark.quick("local", "github")` chooses the variants of a parametrised test whose
  ids contain one of the words, `@pytest.mark.quick(2)` the first two;
- on PostgreSQL, a test that is tried on SQLite too, but for the first one of each module.
"""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest

QUICK: pytest.StashKey[Counter[str]] = pytest.StashKey()  # by module, and by function of a module: how many are quick
SLOW: pytest.StashKey[Counter[str]] = pytest.StashKey()
UNKNOWN: pytest.StashKey[list[str]] = pytest.StashKey()  # words of `quick` that choose no variant


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the variants and the second database, and count before options leave tests out."""
    config.stash[UNKNOWN] = _mark_variants(items)
    _mark_second_database(items)
    config.stash[QUICK], config.stash[SLOW] = Counter(), Counter()
    for item in items:
        counted = config.stash[QUICK if item.get_closest_marker("slow") is None else SLOW]
        counted.update((item.location[0], _function(item)))


def _mark_variants(items: list[pytest.Item]) -> list[str]:
    """Mark as slow what `quick` doesn't choose; gives the words that choose nothing."""
    unknown, variants = [], defaultdict(list)
    for item in items:
        if item.get_closest_marker("quick") is not None:
            variants[_function(item)].append(item)
    for function, its in variants.items():
        chosen = its[0].get_closest_marker("quick").args
        words = [word for word in chosen if isinstance(word, str)]
        first = sum(number for number in chosen if isinstance(number, int))
        unknown += [f"{function}: {word}" for word in words if not any(word in _variant(item) for item in its)]
        for number, item in enumerate(its):
            if number >= first and not any(word in _variant(item) for word in words):
                item.add_marker("slow")
    return unknown


def _mark_second_database(items: list[pytest.Item]) -> None:
    """Mark the variants on PostgreSQL, but for the first quick one of each module."""
    seen: set[str] = set()
    for item in sorted((item for item in items if _second_database(item)), key=lambda item: item.location[:2]):
        if item.location[0] in seen:
            item.add_marker("slow")
        elif item.get_closest_marker("slow") is None:
            seen.add(item.location[0])


def _second_database(item: pytest.Item) -> bool:
    """Whether it is the variant on PostgreSQL of a test that is tried on SQLite too."""
    if "postgresql" not in item.name or not isinstance(item, pytest.Function):
        return False
    alone = any(
        "postgresql" in mark.args[1] and "sqlite" not in mark.args[1]
        for mark in item.iter_markers("parametrize")
        if mark.kwargs.get("indirect")
    )
    return not alone and "postgresql" in item.callspec.params.values()


def _function(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _variant(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[2]
