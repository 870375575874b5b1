"""Settings of the Elasticsearch and OpenSearch connector."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from connectors.base.http import Endpoint
from connectors.base.secret import Secret
from connectors.log_stores.line_buffer import usual_names

PAGE = 2000
Flavour = Literal["elasticsearch", "opensearch"]


@dataclass(frozen=True, slots=True)
class ElasticsearchSettings:
    """The lines of a job in Elasticsearch or OpenSearch, by fields of their documents."""

    endpoint: Endpoint
    """The server."""
    index: str = "logs-*"
    """Indices, data streams or patterns, joined by commas."""
    flavour: Flavour = "elasticsearch"
    """elasticsearch or opensearch, which open and close a point in time by other paths."""
    api_key: Secret | None = None
    """An encoded API key, instead of a user."""
    message: str = "message"
    """The field that holds the line."""
    search_in: str | None = None
    """The field that is searched for words, if it is not `message`: a subfield of type wildcard, for example."""
    time: str = "@timestamp"
    """The field that holds the time."""
    order: str | None = None
    """A field that orders lines with equal times, as log.offset."""
    tie: str = "_id"
    """OpenSearch only: a field that no two documents share."""
    fields: Mapping[str, str] = field(default_factory=usual_names)
    """What other fields are called here: role → field. The role `job` names the job, `namespace` its namespace,
    `rank`, `node`, `pod` and `container` who speaks."""
    job_is: tuple[str, ...] = ("id", "name")
    """Which of the job's words the field holds, id or name."""
    also: Mapping[str, str] = field(default_factory=dict)
    """What every document must match besides, as {cluster: east}."""
    folder: str = "elasticsearch"
    """The folder under logs/ of the bundle that its lines go to."""
    page: int = PAGE
    """The number of lines in one answer."""
