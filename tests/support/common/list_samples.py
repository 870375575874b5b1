"""Clusters and jobs as the lists of Slack show them."""

from __future__ import annotations

from bot.slack.messages.lists import (
    ClusterState,
    ConnectorState,
    ListedIncident,
)
from tests.support.bot_samples import NOON

FOUND = [
    ListedIncident(f"h{n}", f"llm-{n}", "A GPU fell off the bus", NOON, "ECC error" if n else "") for n in range(5)
]
CLUSTERS = [
    ClusterState(
        "alpha",
        (
            ConnectorState("slurm", "slurm", True, "3 jobs of today"),
            ConnectorState("logs", "loki", False, "403: token is wrong"),
            ConnectorState("metrics", "prometheus"),
        ),
    )
]
