"""Settings of the Kubernetes connector for a double of its API."""

from __future__ import annotations

from connectors.base.budget import Load
from connectors.base.http import Endpoint, Login
from connectors.base.secret import Secret
from connectors.kubernetes.connector import KubernetesSettings
from tests.support.paths import ROOT

DEPLOY = ROOT / "deploy" / "kubernetes"


def settings(url, *, ca_file=None, **more):
    """Settings for a server at this address."""
    login = Login(token=Secret(env="KUBE_TOKEN"))
    endpoint = Endpoint(url, login=login, ca_file=ca_file, load=Load(requests=10_000))
    return KubernetesSettings(endpoint=endpoint, **more)
