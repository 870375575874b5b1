"""The one place that knows which connectors there are: the word of signalbox.yaml, its settings, its class.

Modules are imported when a configuration names them: a diagnosis of files must not wait for HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast


@dataclass(frozen=True, slots=True)
class ConnectorType:
    """Where a type of connector lies: module, the settings' class, and what makes a connector of them.

    `ends`: its list of recent jobs tells how they ended.
    """

    module: str
    settings: str
    connector: str
    ends: bool = False

    def settings_class(self) -> type:
        """The dataclass of its settings."""
        return cast("type", getattr(import_module(self.module), self.settings))

    def build(self, settings: Any) -> Any:
        """The connector with these settings: a Source, a Finder or both."""
        return getattr(import_module(self.module), self.connector)(settings)


KINDS: Mapping[str, ConnectorType] = {
    "bundles": ConnectorType("connectors.bundles.connector", "BundlesSettings", "Bundles"),
    "kubernetes": ConnectorType("connectors.kubernetes.connector", "KubernetesSettings", "Kubernetes", ends=True),
    "elasticsearch": ConnectorType(
        "connectors.log_stores.elasticsearch.connector", "ElasticsearchSettings", "Elasticsearch"
    ),
    "loki": ConnectorType("connectors.log_stores.loki", "LokiSettings", "Loki"),
    "mlflow": ConnectorType("connectors.metrics.mlflow", "MlflowSettings", "Mlflow"),
    "wandb": ConnectorType("connectors.metrics.wandb", "WandbSettings", "Wandb"),
    "folders": ConnectorType("connectors.files.job_folders", "FoldersSettings", "JobFolders"),
    "journals": ConnectorType("connectors.nodes.journals", "JournalsSettings", "Journals"),
    "prometheus": ConnectorType("connectors.metrics.prometheus", "PrometheusSettings", "from_settings"),
    "remote": ConnectorType("connectors.nodes.remote", "RemoteSettings", "RemoteNodes"),
    "slurm": ConnectorType("connectors.slurm.connector", "SlurmSettings", "Slurm", ends=True),
}
