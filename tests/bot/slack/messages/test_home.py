"""The home tab: usage, recent incidents, connected sources."""

from __future__ import annotations

from random import Random

import pytest

from bot.slack.messages.home import home
from bot.slack.messages.lists import ClusterState, ConnectorState, ListedIncident
from tests.support.block_limits import faults_of_view
from tests.support.bot_samples import NOON
from tests.support.common.list_samples import CLUSTERS, FOUND
from tests.support.hostile_reports import text
from tests.support.slack_reading import read


def test_the_home_tab_lists_the_latest_and_what_it_sees():
    """Ten incidents at most, and the number of further ones."""
    view = home(FOUND[:1], CLUSTERS, now=NOON, total=40)
    told = read(view["blocks"])
    assert (
        told[told.index("# Recent incidents") :]
        == """\
# Recent incidents
llm-0: A GPU fell off the bus [Open]
  2026-03-01 12:00:00Z
  Not closed
(… 39 more: /signalbox incidents)
---
# Connected sources
*alpha*
✓ slurm: 3 jobs of today
*✗ logs (loki)*: 403: token is wrong
… metrics (prometheus)
(As of 2026-03-01 12:00:00Z)
[Refresh]
"""
    )


def test_an_empty_home_tab_says_so():
    """Before the first incident."""
    told = read(home([], [], now=NOON)["blocks"])
    assert ("No incidents yet.\n" in told, "No cluster is configured.\n" in told) == (True, True)


@pytest.mark.slow  # test_hostile_reports_break_no_limit_mention_nobody_and_keep_their_secrets
def test_home_tabs_of_hostile_texts_fit():
    """Any number of incidents, clusters and sources."""
    chance = Random(13)
    for _ in range(30):
        many = chance.choice((0, 1, 12, 150))
        found = [ListedIncident("h", text(chance), text(chance), NOON, text(chance)) for _ in range(many)]
        sources = tuple(ConnectorState(text(chance), text(chance), None, text(chance)) for _ in range(many))
        view = home(found, [ClusterState(text(chance), sources)] * min(many, 30), now=NOON)
        assert faults_of_view(view) == []


def test_the_page_with_all_incidents_is_linked():
    """If pages are served; nothing else links to it."""
    view = home([], [], now=NOON, overview="https://signalbox.example/pages/abc")
    assert "https://signalbox.example/pages/abc" in str(view)
    assert "All of them" not in str(home([], [], now=NOON))
