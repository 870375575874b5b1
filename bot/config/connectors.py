"""The one place that knows which connectors there are: the word of signalbox.yaml, its settings, its class.

Modules are imported when a configuration names them: a diagnosis of files must not wait for HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast


@dataclass(frozen=True, slots=True)
class Kind:
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


KINDS: Mapping[str, Kind] = {
    "bundles": Kind("connectors.bundles.connector", "BundlesSettings", "Bundles"),
    "kubernetes": Kind("connectors.kubernetes.connector", "KubernetesSettings", "Kubernetes", ends=True),
    "elasticsearch": Kind("connectors.log_stores.elasticsearch", "ElasticsearchSettings", "Elasticsearch"),
    "loki": Kind("connectors.log_stores.loki", "LokiSettings", "Loki"),
    "mlflow": Kind("connectors.metrics.mlflow", "MlflowSettings", "Mlflow"),
    "wandb": Kind("connectors.metrics.wandb", "WandbSettings", "Wandb"),
    "folders": Kind("connectors.files.job_folders", "FoldersSettings", "JobFolders"),
    "journals": Kind("connectors.nodes.journals", "JournalsSettings", "Journals"),
    "prometheus": Kind("connectors.metrics.prometheus", "PrometheusSettings", "from_settings"),
    "remote": Kind("connectors.nodes.remote", "RemoteSettings", "RemoteNodes"),
    "slurm": Kind("connectors.slurm.connector", "SlurmSettings", "Slurm", ends=True),
}
