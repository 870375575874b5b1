"""signalbox.yaml: clusters, their connectors, whose they are, and the limits of collecting. All faults at once, with lines.

The file is named by a flag, by SIGNALBOX_CONFIG, or lies in the user's configuration folder. Without one, files and bundles
work. Secrets are never in it: they are named by environment variable or file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from bot.config.chat import Linked, Slack, Tenant
from bot.config.connectors import KINDS
from bot.config.http import HttpLimits
from bot.config.learning import Learning
from bot.config.rules import Rules
from bot.config.schema import SECONDS, Part, build, model_of
from bot.config.settings import Cluster, Collect, Config, Connector, Metrics, Retention, Serve, Webhook
from bot.policy.console_links import MOST as MOST_LINKS
from bot.policy.console_links import PLACEHOLDERS, template_problem
from bot.policy.job_end import JobWatcherSettings
from bot.runtime.paths import CONFIG, DEFAULT_TENANT, config_path
from connectors.base.secret import Secret
from kb.errors import Fault, SignalboxError
from kb.rulebase.schema.validation import check
from kb.rulebase.yaml_nodes import Node, nearest, parse

LARGEST = 1 << 20
NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$"


class ConfigError(SignalboxError):
    """A configuration that cannot be used: everything that is wrong with it."""

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        self.faults = tuple(sorted(faults))
        super().__init__("\n".join(str(fault) for fault in self.faults))


class RedactFile(Part):
    """What to mask besides secrets."""

    emails: bool = Field(default=False, description="Mask e-mail addresses too.")


class ClusterFile(Part):
    """One cluster."""

    tenant: str = Field(
        default=DEFAULT_TENANT, pattern=NAME, description="The tenant that owns it; others do not see it."
    )
    connectors: dict[str, dict[str, Any]] = Field(
        default={}, max_length=50, description="Name → connector. Logs are taken from the first one that has any."
    )
    topology: dict[str, dict[str, str]] = Field(
        default={}, description="Node → rack, leaf, rail, nvlink_domain: the report says if suspects share one."
    )
    links: dict[str, str] = Field(
        default={},
        max_length=MOST_LINKS,
        description="Name → https address of a dashboard, log search or console, shown with each answer. Placeholders: "
        f"{', '.join(f'{{{name}}}' for name in PLACEHOLDERS)}.",
    )


class WebhookFile(Part):
    """A webhook for Alertmanager or Grafana: POST /webhooks/<its name>."""

    tenant: str = Field(default=DEFAULT_TENANT, pattern=NAME, description="The tenant whose jobs the alerts concern.")
    secret: model_of(Secret) = Field(  # type: ignore[valid-type]
        description="The secret of the caller, sent as bearer token, password or signature."
    )
    cluster: str | None = Field(default=None, description="Search for jobs in this cluster only.")
    job_labels: list[str] = Field(default=[], max_length=50, description="Labels that name a job.")
    fold: SECONDS = Field(
        default=3600.0, description="Alerts for a job that was diagnosed within this time start no new diagnosis."
    )


class ServeFile(Part):
    """`signalbox serve`."""

    listen: str = Field(default="127.0.0.1:8080", description="host:port; put a TLS proxy in front for other hosts.")
    workers: int = Field(default=2, ge=1, le=64, description="Number of worker processes.")
    webhooks: dict[str, WebhookFile] = Field(default={}, max_length=100, description="Name → webhook.")
    slack: model_of(Slack) | None = Field(default=None, description="The Slack app; docs/slack-setup.md.")  # type: ignore[valid-type]
    endings: model_of(JobWatcherSettings) = Field(  # type: ignore[valid-type]
        default=model_of(JobWatcherSettings)(), description="Jobs that ended badly; docs/automatic-diagnosis.md."
    )
    pages: model_of(Linked) | None = Field(default=None, description="Pages of incidents, behind signed links.")  # type: ignore[valid-type]
    metrics: model_of(Metrics) = Field(default=model_of(Metrics)(), description="Metrics of the service, at /metrics.")  # type: ignore[valid-type]
    log: Literal["text", "json"] = Field(default="text", description="Format of the service's own log, on stderr.")
    limits: model_of(HttpLimits) = Field(default=model_of(HttpLimits)(), description="Limits of the HTTP server.")  # type: ignore[valid-type]


class ConfigFile(Part):
    """signalbox.yaml."""

    version: Literal[1]
    clusters: dict[str, ClusterFile] = Field(default={}, max_length=100)
    collect: model_of(Collect) = Field(default=model_of(Collect)(), description="Limits of one collection.")  # type: ignore[valid-type]
    retention: model_of(Retention) = Field(  # type: ignore[valid-type]
        default=model_of(Retention)(), description="How long evidence and answers are kept."
    )
    redact: RedactFile = RedactFile()
    learning: model_of(Learning) = Field(  # type: ignore[valid-type]
        default=model_of(Learning)(), description="Learning from close-outs; docs/learning.md."
    )
    rules: model_of(Rules) = Field(  # type: ignore[valid-type]
        default=model_of(Rules)(),
        description="Where rules come from and where proposed ones go; docs/rule-pull-requests.md.",
    )
    serve: ServeFile = ServeFile()
    tenants: dict[str, model_of(Tenant)] = Field(  # type: ignore[valid-type]
        default={}, max_length=100, description="Name → its permissions in Slack and its automatic posts."
    )


def _missing(path: Path | None) -> str:
    """Return what to do about a file that does not exist. Without a path, only the environment can have named it."""
    made = "`signalbox config example` prints one to start from"
    return made if path is not None else f"{CONFIG} names it; unset that to go without, or create it ({made})"


def read(path: Path | None = None) -> Config:
    """Read a configuration file: the given one, or the one in the default place. Without any, return an empty configuration.

    Raises:
        ConfigError: the file cannot be read or is not valid.
    """
    named = path or config_path()
    if named is None:
        return Config()
    try:
        if not os.path.isfile(named):  # noqa: PTH113 - never raises
            raise ConfigError((Fault(str(named), 1, 1, "no such file", _missing(path)),))
        with named.open("rb") as handle:
            text = handle.read(LARGEST + 1).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError((Fault(str(named), 1, 1, f"not UTF-8 text (byte {error.start})"),)) from None
    except OSError as error:
        raise ConfigError((Fault(str(named), 1, 1, f"cannot be read: {error.strerror or error}"),)) from None
    return load(text, named)


def load(text: str, path: Path) -> Config:
    """Parse the text of a configuration file.

    Raises:
        ConfigError: with all errors, each with its position.
    """
    node, wrong = parse(text, str(path))
    if node is None:
        raise ConfigError(wrong or (Fault(str(path), 1, 1, "the file is empty", "begin with `version: 1`"),))
    model, more = check(ConfigFile, node)
    faults = [*wrong, *more]
    clusters = tuple(_clusters(node, faults))
    serve = _serve(model.serve, node, faults) if model is not None else Serve()
    tenants = _tenants(model.tenants, node, faults) if model is not None else {}
    collect = _built(Collect, "collect", model, node, faults)
    retention = _built(Retention, "retention", model, node, faults)
    rules = _built(Rules, "rules", model, node, faults)
    learning = _built(Learning, "learning", model, node, faults)
    if faults or model is None:
        raise ConfigError(tuple(set(faults)))
    return Config(clusters, collect, model.redact.emails, path, serve, tenants, retention, rules, learning)


def _built(settings: type, name: str, model: Any, root: Node, faults: list[Fault]) -> Any:
    """Build a settings dataclass; if the settings contradict each other, return its defaults and record an error."""
    if model is None:
        return settings()
    try:
        return build(settings, getattr(model, name).model_dump(exclude_unset=True))
    except ValueError as error:
        faults.append((root.get(name) or root).fault(str(error)))
        return settings()


def _tenants(models: Mapping[str, Any], root: Node, faults: list[Fault]) -> dict[str, Tenant]:
    place = root.get("tenants") or root
    found: dict[str, Tenant] = {}
    whose: dict[str, str] = {}
    for name, item in models.items():
        at = place.get(name) or place
        try:
            made: Tenant = build(Tenant, item.model_dump(exclude_unset=True))
            found[name] = replace(made, subscriptions=tuple(replace(each, tenant=name) for each in made.subscriptions))
        except ValueError as error:
            faults.append(at.fault(str(error)))
            continue
        if len(models) > 1 and not found[name].channels:
            faults.append(at.fault("with several tenants each must name its channels", "channels: [C0123456789]"))
        for channel in found[name].channels:
            other = whose.setdefault(channel, name)
            if other != name:
                faults.append(at.fault(f"the channel {channel[:40]!r} is tenant {other!r}'s already"))
    return found


def _serve(model: ServeFile, root: Node, faults: list[Fault]) -> Serve:
    place = root.get("serve") or root
    host, _, port = model.listen.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        faults.append(
            (place.get("listen") or place).fault(f"{model.listen[:80]!r} is not an address", "write host:port")
        )
        host, port = "", "0"
    hooks = {}
    for name, item in model.webhooks.items():
        try:
            secret = build(Secret, item.secret.model_dump(exclude_unset=True))
        except ValueError as error:
            faults.append(((place.get("webhooks") or place).get(name) or place).fault(str(error)))
            continue
        hooks[name] = Webhook(item.tenant, secret, item.cluster, tuple(item.job_labels), item.fold)
    return Serve(
        host.strip("[]"),
        int(port),
        model.workers,
        hooks,
        _section(Slack, "slack", model, place, faults),
        _section(JobWatcherSettings, "endings", model, place, faults) or JobWatcherSettings(),
        _section(Linked, "pages", model, place, faults),
        _section(Metrics, "metrics", model, place, faults) or Metrics(),
        model.log,
        _section(HttpLimits, "limits", model, place, faults) or HttpLimits(),
    )


def _section(settings: type, name: str, model: Any, place: Node, faults: list[Fault]) -> Any:
    """Build a settings dataclass; return None if it is not given or its settings contradict each other, which is recorded."""
    checked = getattr(model, name)
    if checked is None:
        return None
    try:
        return build(settings, checked.model_dump(exclude_unset=True))
    except ValueError as error:
        faults.append((place.get(name) or place).fault(str(error)))
        return None


def _clusters(root: Node, faults: list[Fault]) -> list[Cluster]:
    found = []
    for name, node in _items(root.get("clusters")):
        connectors = []
        for own, part in _items(node.get("connectors")):
            one = _connector(own, part, faults)
            connectors += [one] if one is not None else []
        tenant, topology = node.get("tenant"), node.get("topology")
        links = {label: link.text() or "" for label, link in _items(node.get("links"))}
        for label, link in _items(node.get("links")):
            if problem := template_problem(label, links[label]):
                faults.append(link.fault(problem))
        found.append(
            Cluster(
                name,
                (tenant.text() if tenant else None) or DEFAULT_TENANT,
                tuple(connectors),
                topology.plain() if topology else {},
                links,
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
        faults.append(kind.fault(f"unknown connector type {str(word)[:40]!r}", hint))
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
