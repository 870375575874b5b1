"""Settings of the Kubernetes connector for a double of its API."""

from __future__ import annotations

from connectors.base.budget import Load
from connectors.base.http import Endpoint, Login
from connectors.base.secret import Secret
from connectors.kubernetes.connector import KubernetesSettings
from tests.support.paths import ROOT

DEPLOY = ROOT / "deploy" / "kubernetes"


def settings(url, **more):
    """Settings for a server at this address."""
    endpoint = Endpoint(url, login=Login(token=Secret(env="KUBE_TOKEN")), load=Load(requests=10_000))
    return KubernetesSettings(endpoint=endpoint, **more)
