"""The values of signalbox.yaml: what the service is set to, as frozen dataclasses with their defaults."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from bot.config.chat import Linked, Slack, Tenant
from bot.config.http import HttpLimits
from bot.config.learning import Learning
from bot.config.rules import Rules
from bot.policy.job_end import JobWatcherSettings
from bot.runtime.paths import DEFAULT_TENANT
from connectors.base.contract import Seconds, Size
from connectors.base.secret import Secret


@dataclass(frozen=True, slots=True)
class Collect:
    """Limits of one collection, for all sources together."""

    deadline: Seconds = 60.0
    """The time limit of the whole collection."""
    find: Seconds = 15.0
    """The time limit for finding the job, within the whole deadline."""
    before: Seconds = 1800.0
    """How far back from the end of the job (or from now, while it runs) evidence is collected."""
    after: Seconds = 300.0
    """How long after the end of the job evidence is collected."""
    longest: Seconds = 21600.0
    """The longest time range that is collected."""
    bytes: Size = 256 << 20
    """The most bytes that one source may return; all sources together may return four times that."""
    share: Seconds = 60.0
    """How long a collection is reused for others who ask for the same job."""
    keep: Size = 20 << 30
    """The most bytes of collected bundles that are kept; the oldest are removed first."""
    spool: str | None = None
    """The folder of the bundles, shared by all hosts of a service; by default each host uses its own state
    folder."""

    def __post_init__(self) -> None:
        if self.spool is not None and not os.path.isabs(self.spool):  # noqa: PTH117 - of a text
            raise ValueError(f"{self.spool[:200]!r} is not an absolute path: start with /")


@dataclass(frozen=True, slots=True)
class Retention:
    """How long evidence and answers are kept, counted from the answer."""

    hot: Seconds = 14 * 86400.0
    """How long bundles are kept as folders before they are packed."""
    archive: Seconds = 180 * 86400.0
    """How long packed bundles are kept."""
    reports: Seconds = 730 * 86400.0
    """How long reports are kept, and the texts on which later rules are tested."""
    pinned: Literal["kept"] = "kept"
    """Pinned incidents keep everything."""
    packs: str | None = None
    """The folder of packed bundles; by default `archive` in the state folder."""

    def __post_init__(self) -> None:
        if not self.hot <= self.archive <= self.reports:
            raise ValueError("hot, archive and reports follow each other: each is at least as long as the one before")
        if self.packs is not None and not os.path.isabs(self.packs):  # noqa: PTH117 - of a text
            raise ValueError(f"{self.packs[:200]!r} is not an absolute path: start with /")


@dataclass(frozen=True, slots=True)
class Connector:
    """One configured connector: its name in the file, its type, its settings."""

    name: str
    type: str
    settings: Any


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster: its tenant, its connectors in the order of the file, and the topology of its nodes.

    `topology`: node → {rack, leaf, rail, nvlink_domain}. `links`: name → template of a link to a console (bot.policy.console_links).
    """

    name: str
    tenant: str = DEFAULT_TENANT
    connectors: tuple[Connector, ...] = ()
    topology: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Webhook:
    """An enabled webhook: its tenant, the secret that the caller must present, and the labels that name a job.

    `cluster`: search for jobs in this cluster only. `fold`: seconds during which further alerts for a diagnosed job are added to
    that diagnosis.
    """

    tenant: str
    secret: Secret
    cluster: str | None = None
    job_labels: tuple[str, ...] = ()
    fold: float = 3600.0


@dataclass(frozen=True, slots=True)
class Metrics:
    """Prometheus metrics of the service, at /metrics."""

    on: bool = True
    """Whether metrics are served."""
    secret: Secret | None = None
    """The bearer token that the caller must present. Without it, anyone who reaches the address can read the metrics:
    counts and times, no names of jobs, nodes or people."""


@dataclass(frozen=True, slots=True)
class Serve:
    """Settings of `signalbox serve`: its address, the number of worker processes, its webhooks.

    `endings`: whether and how it polls for jobs that ended badly. `pages`: pages of incidents, linked from messages. `log`: the
    format of its own log. `limits`: of the HTTP server.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    workers: int = 2
    webhooks: Mapping[str, Webhook] = field(default_factory=dict)
    slack: Slack | None = None
    endings: JobWatcherSettings = field(default_factory=JobWatcherSettings)
    pages: Linked | None = None
    metrics: Metrics = field(default_factory=Metrics)
    log: Literal["text", "json"] = "text"
    limits: HttpLimits = field(default_factory=HttpLimits)


@dataclass(frozen=True, slots=True)
class Config:
    """The configuration. `path`: its file; None if there is none. `hide_emails`: mask e-mail addresses too.

    `tenants_of_chat`: name → its permissions in Slack and its automatic posts.
    """

    clusters: tuple[Cluster, ...] = ()
    collect: Collect = field(default_factory=Collect)
    hide_emails: bool = False
    path: Path | None = None
    serve: Serve = field(default_factory=Serve)
    tenants_of_chat: Mapping[str, Tenant] = field(default_factory=dict)
    retention: Retention = field(default_factory=Retention)
    rules: Rules = field(default_factory=Rules)
    learning: Learning = field(default_factory=Learning)

    def links_of(self, tenant: str, cluster: str | None) -> Mapping[str, str]:
        """Return the templates of links to the consoles of a tenant's cluster; empty if it has none."""
        return next((item.links for item in self.of_tenant(tenant) if item.name == cluster), {})

    def of_tenant(self, tenant: str) -> tuple[Cluster, ...]:
        """Return the clusters of a tenant. It sees no others."""
        return tuple(cluster for cluster in self.clusters if cluster.tenant == tenant)

    @property
    def tenants(self) -> tuple[str, ...]:
        """Return all tenants, sorted."""
        return tuple(sorted({cluster.tenant for cluster in self.clusters}))
