"""Lists for one person: five items a page, and how to see more."""

from __future__ import annotations

from random import Random

import pytest

from bot.slack.messages.lists import (
    ClusterState,
    ConnectorState,
    ListedIncident,
    ListedMute,
    ListedNode,
    ListedRule,
    config,
    guide,
    incidents,
    mutes,
    nodes,
    rules,
)
from tests.support.block_limits import faults_of_message, texts
from tests.support.bot_samples import NOON
from tests.support.common.list_samples import CLUSTERS, FOUND
from tests.support.hostile_reports import SECRETS, text
from tests.support.slack_reading import read


def test_a_page_of_incidents():
    """Each with a button, and the command for the next page."""
    assert (
        read(incidents(FOUND[:2], 2, 12).blocks)
        == """\
*Incidents: 6 to 7 of 12*
llm-0: A GPU fell off the bus [Open]
  2026-03-01 12:00:00Z
  Not closed
llm-1: A GPU fell off the bus [Open]
  2026-03-01 12:00:00Z
  ECC error
(… 5 more: /signalbox incidents page 3)
"""
    )


def test_a_time_is_shown_in_the_zone_of_the_reader():
    """Slack formats it; the fallback says that it is UTC."""
    (row,) = incidents(FOUND[:1], 1, 1).blocks[1:]
    assert row["fields"][0] == {
        "type": "mrkdwn",
        "text": "<!date^1772366400^{date_short_pretty} {time}|2026-03-01 12:00:00Z>",
        "verbatim": True,
    }


@pytest.mark.parametrize("at", [-1.0, 1e300, float("nan"), float(1 << 40)])
def test_a_time_that_slack_cannot_format_is_text(at: float):
    """And breaks nothing."""
    message = incidents([ListedIncident("h", "llm", "said", at)], 1, 1)
    assert faults_of_message(message.text, message.blocks) == []
    assert "<!date" not in str(message.blocks)


def test_mutes_with_a_button_each():
    """What, where, until when, by whom and why."""
    found = [
        ListedMute("h1", "rule xid", "C0OPS", NOON, "U0ADA", "known <!channel>"),
        ListedMute("h2", "node n-7", None, NOON),
    ]
    message = mutes(found, 1, 7)
    assert faults_of_message(message.text, message.blocks) == []
    assert (
        read(message.blocks)
        == """\
*Muted: 1 to 2 of 7*
rule xid [Unmute]
  Until 2026-03-01 12:00:00Z
In #C0OPS, by @U0ADA: known <!channel>
node n-7 [Unmute]
  Until 2026-03-01 12:00:00Z
everywhere
(… 5 more: /signalbox mutes page 2)
"""
    )
    assert read(mutes([], 1, 0).blocks) == "*Muted: none*\n"


def test_nodes_to_leave_out():
    """With the state, who decided and why."""
    message = nodes([ListedNode("n-7 (alpha)", "excluded for the cluster on 2026-03-01", "U0ADA", "Xid 79")], 1, 1)
    assert faults_of_message(message.text, message.blocks) == []
    told = (
        "*Nodes to leave out: 1 to 1 of 1*\n*n-7 (alpha)*: excluded for the cluster on 2026-03-01, by @U0ADA: Xid 79\n"
    )
    assert read(message.blocks) == told


def test_a_page_holds_five():
    """Further items are counted."""
    told = read(incidents([*FOUND, *FOUND], 1, 10).blocks)
    assert (told.count("[Open]"), told.splitlines()[-1]) == (5, "(… 5 more: /signalbox incidents page 2)")


@pytest.mark.parametrize("page", [1, 0, -3])
def test_nothing_found_is_reported(page: int):
    """The message is never empty."""
    assert read(incidents([], page, 0).blocks) == "*Incidents: none*\n"


def test_rules_with_their_record():
    """A weak rule is marked; a rule without a record says so."""
    found = [
        ListedRule("xid", 3, "Xid in the kernel log", "gpu_fault", "right in 4 of 11", True),
        ListedRule("oom", 1, "Out of memory", "oom"),
    ]
    assert (
        read(rules(found, 1, 9, "gpu").blocks)
        == """\
*Rules for “gpu”: 1 to 2 of 9*
xid@3: Xid in the kernel log (gpu_fault); ⚠ weak: right in 4 of 11
oom@1: Out of memory (oom); no record yet
(… 7 more: /signalbox rules gpu page 2)
"""
    )


def test_clusters_with_what_their_sources_reported():
    """A failed source is marked."""
    assert (
        read(config(CLUSTERS).blocks)
        == """\
*alpha*
✓ slurm: 3 jobs of today
*✗ logs (loki)*: 403: token is wrong
… metrics (prometheus)
(To test all of them, run `signalbox config check`)
"""
    )


def test_lists_of_hostile_texts_fit():
    """Whatever the names and messages of jobs, rules and sources."""
    chance = Random(11)
    for _ in range(40):
        many = chance.choice((0, 1, 7, 200))
        found = [
            ListedIncident("h", text(chance), text(chance), chance.choice((None, 1e30)), text(chance))
            for _ in range(many)
        ]
        known = [ListedRule(text(chance), 1, text(chance), text(chance), text(chance), True) for _ in range(many)]
        sources = tuple(ConnectorState(text(chance), text(chance), False, text(chance)) for _ in range(many))
        clusters = [ClusterState(text(chance), sources) for _ in range(min(many, 20))]
        for message in (incidents(found, 1, many), rules(known, 2, many, text(chance)), config(clusters), guide()):
            assert faults_of_message(message.text, message.blocks) == []
            assert [secret for secret in SECRETS if secret in "".join(texts(message.body))] == []
