"""What all tests share: generated examples are not timed, since a busy machine is no defect; nor is it told as one."""

from __future__ import annotations

import pytest
from hypothesis import settings

from tests.support.paths import ROOT

settings.register_profile("signalbox", deadline=None)
settings.load_profile("signalbox")

OUTSIDE = ("bot", "callbacks", "connectors", "deploy")  # folders of tests that speak to servers, browsers, processes


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In the whole suite, side by side, a test with other processes in it may try again: a starved machine lets them wait.

    The summary tells of each. Pure code gets one try, and so does everything that somebody runs by itself.
    """
    if not hasattr(config, "workerinput"):  # of xdist
        return
    here = ROOT / "tests"
    for item in items:
        if item.path.is_relative_to(here) and item.path.relative_to(here).parts[0] in OUTSIDE:
            item.add_marker(pytest.mark.flaky(reruns=2, reruns_delay=3))
