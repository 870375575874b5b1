"""The two tiers of tests: `make test` leaves the slow ones out, and each module is tested by quick ones all the same."""

from __future__ import annotations

import pytest

from tests.support.tiers import QUICK, SLOW, UNKNOWN

TESTS = """
import pytest

def test_quick():
    pass

@pytest.mark.slow
def test_slow():
    pass

@pytest.mark.quick("second", 1)
@pytest.mark.parametrize("given", ["first", "second", "third"])
def test_variants(given):
    pass

@pytest.fixture(params=["sqlite", "postgresql"])
def database(request):
    return request.param

def test_both(database):
    pass

def test_both_again(database):
    pass

@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_one_database(database):
    pass
"""


def test_every_module_has_a_quick_test(request):
    """Of the modules that this run has found."""
    quick, slow = request.config.stash[QUICK], request.config.stash[SLOW]

    assert not [module for module in slow if "::" not in module and not quick[module]]


def test_chosen_variants_are_there(request):
    """A word of `quick` that chooses nothing is a misspelling, or outlived its variant."""
    assert not request.config.stash[UNKNOWN]


def test_what_is_slow(pytester: pytest.Pytester):
    """Marked tests, the variants that `quick` leaves, and PostgreSQL after the first test of a module."""
    pytester.makeini("[pytest]\nmarkers =\n  slow\n  quick")
    path = pytester.makepyfile(TESTS)

    found = pytester.inline_run(path, "-p", "tests.support.tiers", "-p", "no:randomly", "-m", "not slow")

    passed = [report.nodeid.partition("::")[2] for report in found.listoutcomes()[0]]
    assert passed == [
        "test_quick",
        "test_variants[first]",
        "test_variants[second]",
        "test_both[sqlite]",
        "test_both[postgresql]",
        "test_both_again[sqlite]",
        "test_one_database[postgresql]",
    ]
