"""Settings of the Elasticsearch and OpenSearch connector."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from connectors.base.http import Endpoint
from connectors.base.secret import Secret
from connectors.log_stores.line_buffer import usual_names

PAGE = 5000
Flavour = Literal["elasticsearch", "opensearch"]


@dataclass(frozen=True, slots=True)
class ElasticsearchSettings:
    """The lines of a job in Elasticsearch or OpenSearch, selected by document fields."""

    endpoint: Endpoint
    """The server."""
    index: str = "logs-*"
    """Indices, data streams or patterns, joined by commas."""
    flavour: Flavour = "elasticsearch"
    """elasticsearch or opensearch; they differ in points in time. If it is the other one, that is noticed."""
    api_key: Secret | None = None
    """An encoded API key, instead of a user."""
    message: str = "message"
    """The field that holds the line."""
    search_in: str | None = None
    """The field that is searched for words, if it is not `message`: a sub-field of type wildcard, for example."""
    time: str = "@timestamp"
    """The field that holds the time."""
    order: str | None = None
    """A field that orders lines with equal times, such as log.offset."""
    tie: str = "_id"
    """OpenSearch only: a field that no two documents share."""
    tiers: tuple[Literal["hot", "warm", "cold", "frozen", "content"], ...] = ()
    """Elasticsearch only: the data tiers that are searched, such as [hot, warm] to spare frozen indices. Empty for all."""
    fields: Mapping[str, str] = field(default_factory=usual_names)
    """The names of the other fields: role → field. The role `job` names the job, `namespace` its namespace,
    `rank`, `node`, `pod` and `container` the origin of a line.
    """
    job_is: tuple[str, ...] = ("id", "name")
    """Whether the field contains the job's id, its name, or either."""
    also: Mapping[str, str] = field(default_factory=dict)
    """What every document must also match, such as {cluster: east}."""
    folder: str = "elasticsearch"
    """The folder under logs/ of the bundle for its lines."""
    page: int = PAGE
    """Lines per response."""
