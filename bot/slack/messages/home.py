"""The App Home tab: usage, recent incidents, connected sources."""

from __future__ import annotations

from collections.abc import Sequence

from bot.slack.blocks.builders import actions, clocked, divider, header, note, paragraph, plain, rich, words
from bot.slack.blocks.limits import Json, fit_view
from bot.slack.messages.lists import ClusterState, ListedIncident, all_of_them, cluster, how_to, incident
from bot.slack.messages.notices import not_here

_INCIDENTS = 10
_CLUSTERS = 10


def home(
    incidents: Sequence[ListedIncident],
    clusters: Sequence[ClusterState],
    *,
    now: float,
    total: int | None = None,
    overview: str | None = None,
) -> Json:
    """Return the view for views.publish. `incidents`: the tenant's newest; `total`: their total number; `now`: epoch seconds.

    `overview`: address of the page with all incidents.
    """
    more = max(total or 0, len(incidents)) - min(len(incidents), _INCIDENTS)
    unseen = len(clusters) - _CLUSTERS
    blocks = [
        header("What happened to my job?"),
        *how_to(),
        divider(),
        header("Recent incidents"),
        *(
            [incident(listed_incident) for listed_incident in incidents[:_INCIDENTS]]
            or _placeholder("No incidents yet.")
        ),
        *([note(f"… {more} more: /signalbox incidents")] if more > 0 else []),
        *all_of_them(overview),
        divider(),
        header("Connected sources"),
        *(
            [part for cluster_state in clusters[:_CLUSTERS] for part in cluster(cluster_state)]
            or _placeholder("No cluster is configured.")
        ),
        *([note(f"… {unseen} more clusters: /signalbox config")] if unseen > 0 else []),
        note(clocked("As of", now)),
        actions({"type": "button", "action_id": "home_refresh", "text": plain("Refresh", 75)}),
    ]
    return fit_view({"type": "home", "callback_id": "home", "blocks": blocks})


def no_home(channels: Sequence[str]) -> Json:
    """Return the view for somebody who is not known to use Signalbox. `channels`: where they can use it."""
    blocks = [
        header("What happened to my job?"),
        *how_to(),
        divider(),
        *not_here(channels, direct=True).blocks,
        actions({"type": "button", "action_id": "home_refresh", "text": plain("Refresh", 75)}),
    ]
    return fit_view({"type": "home", "callback_id": "home", "blocks": blocks})


def _placeholder(told: str) -> list[Json]:
    return rich(paragraph(words(told, italic=True)))
