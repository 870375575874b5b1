"""The settings of the Loki connector, and the origin of lines according to their labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from connectors.base.contract import SourceFailed
from connectors.base.http import Endpoint
from connectors.log_stores.line_buffer import LogOrigin, usual_names

PAGE = 5000  # max_entries_limit_per_query by default
ROLES = ("rank", "node", "pod", "container")  # labels that identify the origin of a line, most specific first


@dataclass(frozen=True, slots=True)
class LokiSettings:
    """The lines of a job in Loki, selected by stream labels."""

    endpoint: Endpoint
    """The server, including any path before /loki/api/v1. Set a tenant's X-Scope-OrgID under `login:
    headers:`.
    """
    labels: Mapping[str, str] = field(default_factory=usual_names)
    """The names of the labels: role → label. The role `job` names the job, `namespace` its namespace,
    `rank`, `node`, `pod` and `container` the origin of a line. Without `job`, the pods known to the cluster are
    used.
    """
    job_is: tuple[str, ...] = ("id", "name")
    """Whether the label contains the job's id, its name, or either."""
    also: Mapping[str, str] = field(default_factory=dict)
    """What every stream must also match, such as {cluster: east}."""
    folder: str = "loki"
    """The folder under logs/ of the bundle for its lines."""
    page: int = PAGE
    """Lines per response."""


def fixed_labels(settings: LokiSettings) -> dict[str, Sequence[str]]:
    """Return what every stream must match."""
    return {label: (value,) for label, value in settings.also.items()}


def speaker_of(settings: LokiSettings, labels: object) -> LogOrigin:
    """Return the origin that labels identify.

    Raises:
        SourceFailed: There are no labels.
    """
    if not isinstance(labels, Mapping):
        raise SourceFailed("bad_answer", "the response has a stream without labels")
    return LogOrigin(*(str(labels.get(settings.labels.get(role, ""), "")) for role in ROLES))
