"""signalbox.yaml: clusters, their connectors, whose they are, and the limits of collecting. All faults at once, with lines.

The file is named by a flag, by SIGNALBOX_CONFIG, or lies in the user's configuration folder. Without one, files and bundles
work. Secrets are never in it: they are named by environment variable or file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from bot.configmodel import SECONDS, Part, build, model_of
from bot.settings import config_path
from bot.wiring import KINDS
from connectors.asking import Seconds, Size
from connectors.secret import Secret
from kb.errors import Fault, SignalboxError
from kb.ruleschema import check
from kb.yamltree import Node, nearest, parse

LARGEST = 1 << 20
NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$"
DEFAULT_TENANT = "default"


class ConfigError(SignalboxError):
    """A configuration that cannot be used: everything that is wrong with it."""

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        self.faults = tuple(sorted(faults))
        super().__init__("\n".join(str(fault) for fault in self.faults))


@dataclass(frozen=True, slots=True)
class Collect:
    """Limits of one collection, for all sources together.

    `deadline`: by when everything must have come. `find`: of it, how long looking for the job may take. `before`, `after`:
    how much around the end of the job (or now, while it runs) is looked at. `longest`: the longest span of time.
    `bytes`: what one source may give; all together may give four times that. `share`: for so long a collection is used
    again by others who ask for the same job. `keep`: bytes of collected bundles that are kept, the oldest go first.
    """

    deadline: Seconds = 60.0
    find: Seconds = 15.0
    before: Seconds = 1800.0
    after: Seconds = 300.0
    longest: Seconds = 21600.0
    bytes: Size = 256 << 20
    share: Seconds = 60.0
    keep: Size = 20 << 30


@dataclass(frozen=True, slots=True)
class Connector:
    """One configured connector: its name in the file, its type, its settings."""

    name: str
    type: str
    settings: Any


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster: whose it is, its connectors in the order of the file, and where its nodes stand.

    `topology`: node → {rack, leaf, rail, nvlink_domain}.
    """

    name: str
    tenant: str = DEFAULT_TENANT
    connectors: tuple[Connector, ...] = ()
    topology: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Webhook:
    """A webhook that is open: whose it is, the secret that its caller must know, and which labels name a job there.

    `cluster`: the jobs are looked for in this one only. `fold`: seconds for which alerts about a job that was diagnosed
    already are folded into that.
    """

    tenant: str
    secret: Secret
    cluster: str | None = None
    job_labels: tuple[str, ...] = ()
    fold: float = 3600.0


@dataclass(frozen=True, slots=True)
class Serve:
    """What `signalbox serve` does: where it listens, how many processes diagnose, which webhooks are open."""

    host: str = "127.0.0.1"
    port: int = 8080
    workers: int = 2
    webhooks: Mapping[str, Webhook] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Config:
    """What is configured. `path`: the file, None where there is none. `hide_emails`: e-mail addresses are masked too."""

    clusters: tuple[Cluster, ...] = ()
    collect: Collect = field(default_factory=Collect)
    hide_emails: bool = False
    path: Path | None = None
    serve: Serve = field(default_factory=Serve)

    def of_tenant(self, tenant: str) -> tuple[Cluster, ...]:
        """The clusters that a tenant may see; to it there are no others."""
        return tuple(one for one in self.clusters if one.tenant == tenant)

    @property
    def tenants(self) -> tuple[str, ...]:
        """All tenants, in order."""
        return tuple(sorted({one.tenant for one in self.clusters}))


class RedactFile(Part):
    """What is masked beyond secrets."""

    emails: bool = Field(default=False, description="Mask e-mail addresses too.")


class ClusterFile(Part):
    """One cluster."""

    tenant: str = Field(default=DEFAULT_TENANT, pattern=NAME, description="Whose it is; others do not see it.")
    connectors: dict[str, dict[str, Any]] = Field(
        default={}, max_length=50, description="Name → connector. Logs are taken from the first one that has any."
    )
    topology: dict[str, dict[str, str]] = Field(
        default={}, description="Node → rack, leaf, rail, nvlink_domain: suspects that share one are told."
    )


class WebhookFile(Part):
    """A webhook for Alertmanager or Grafana: POST /webhooks/<its name>."""

    tenant: str = Field(default=DEFAULT_TENANT, pattern=NAME, description="Whose jobs its alerts are about.")
    secret: model_of(Secret) = Field(description="What the caller must know, as bearer token, password or signature.")  # type: ignore[valid-type]
    cluster: str | None = Field(default=None, description="Look for the jobs in this cluster only.")
    job_labels: list[str] = Field(default=[], max_length=50, description="Labels that name a job here.")
    fold: SECONDS = Field(default=3600.0, description="Alerts on a job that was diagnosed so lately start nothing new.")


class ServeFile(Part):
    """`signalbox serve`."""

    listen: str = Field(default="127.0.0.1:8080", description="host:port; put a proxy with TLS before other hosts.")
    workers: int = Field(default=2, ge=1, le=64, description="Processes that diagnose.")
    webhooks: dict[str, WebhookFile] = Field(default={}, max_length=100, description="Name → webhook.")


class ConfigFile(Part):
    """signalbox.yaml."""

    version: Literal[1]
    clusters: dict[str, ClusterFile] = Field(default={}, max_length=100)
    collect: model_of(Collect) = Field(default=model_of(Collect)(), description="Limits of one collection.")  # type: ignore[valid-type]
    redact: RedactFile = RedactFile()
    serve: ServeFile = ServeFile()


def read(path: Path | None = None) -> Config:
    """The configuration of a file; of the usual places where none is named, and an empty one where none is there.

    Raises:
        ConfigError: it cannot be read or used.
    """
    named = path or config_path()
    if named is None:
        return Config()
    try:
        if not os.path.isfile(named):  # noqa: PTH113 - never raises
            raise ConfigError((Fault(str(named), 1, 1, "there is no such file"),))
        with named.open("rb") as handle:
            text = handle.read(LARGEST + 1).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError((Fault(str(named), 1, 1, f"it is no UTF-8 text (byte {error.start})"),)) from None
    except OSError as error:
        raise ConfigError((Fault(str(named), 1, 1, f"cannot be read: {error.strerror or error}"),)) from None
    return load(text, named)


def load(text: str, path: Path) -> Config:
    """The configuration that a text holds.

    Raises:
        ConfigError: with everything that is wrong, each where it stands.
    """
    node, wrong = parse(text, str(path))
    if node is None:
        raise ConfigError(wrong or (Fault(str(path), 1, 1, "the file is empty", "begin with `version: 1`"),))
    model, more = check(ConfigFile, node)
    faults = [*wrong, *more]
    clusters = tuple(_clusters(node, faults))
    serve = _serve(model.serve, node, faults) if model is not None else Serve()
    if faults or model is None:
        raise ConfigError(tuple(set(faults)))
    collect = build(Collect, model.collect.model_dump(exclude_unset=True))
    return Config(clusters, collect, model.redact.emails, path, serve)


def _serve(model: ServeFile, root: Node, faults: list[Fault]) -> Serve:
    place = root.get("serve") or root
    host, _, port = model.listen.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        faults.append((place.get("listen") or place).fault(f"{model.listen[:80]!r} is no address", "write host:port"))
        host, port = "", "0"
    hooks = {}
    for name, one in model.webhooks.items():
        try:
            secret = build(Secret, one.secret.model_dump(exclude_unset=True))
        except ValueError as error:
            faults.append(((place.get("webhooks") or place).get(name) or place).fault(str(error)))
            continue
        hooks[name] = Webhook(one.tenant, secret, one.cluster, tuple(one.job_labels), one.fold)
    return Serve(host.strip("[]"), int(port), model.workers, hooks)


def _clusters(root: Node, faults: list[Fault]) -> list[Cluster]:
    found = []
    for name, node in _items(root.get("clusters")):
        connectors = []
        for own, part in _items(node.get("connectors")):
            one = _connector(own, part, faults)
            connectors += [one] if one is not None else []
        tenant, topology = node.get("tenant"), node.get("topology")
        found.append(
            Cluster(
                name,
                (tenant.text() if tenant else None) or DEFAULT_TENANT,
                tuple(connectors),
                topology.plain() if topology else {},
            )
        )
    return found


def _connector(name: str, node: Node, faults: list[Fault]) -> Connector | None:
    kind = node.get("type")
    word = kind.text() if kind is not None else None
    if kind is None:
        faults.append(node.fault(f"connector {name!r} has no `type`", f"one of: {', '.join(sorted(KINDS))}"))
        return None
    if word is None or word not in KINDS:
        hint = nearest(str(word), KINDS) or f"one of: {', '.join(sorted(KINDS))}"
        faults.append(kind.fault(f"there is no type of connector {str(word)[:40]!r}", hint))
        return None
    settings = KINDS[word].settings_class()
    model, wrong = check(model_of(settings, word), node)
    faults += wrong
    if model is None:
        return None
    try:
        built = build(settings, model.model_dump(exclude_unset=True, exclude={"type"}))
    except ValueError as error:
        faults.append(node.fault(str(error)))
        return None
    return Connector(name, word, built)


def _items(node: Node | None) -> list[tuple[str, Node]]:
    return list(node.items()) if node is not None else []
