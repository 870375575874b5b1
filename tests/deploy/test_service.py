"""What runs the service: the image's recipe, Compose, Kubernetes, systemd; checked as far as that goes without running them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from flask import Flask

from bot.config.file import load
from bot.config.settings import Metrics
from bot.incidents.ledger import Ledger
from bot.server.health import operations
from tests.support.paths import ROOT

DEPLOY = ROOT / "deploy"
DOCKERFILE = (DEPLOY / "container" / "Dockerfile").read_text()
UNIT = (DEPLOY / "systemd" / "signalbox.service").read_text()
COMPOSE = yaml.safe_load((DEPLOY / "container" / "compose.yaml").read_text())
OBJECTS = [item for item in yaml.safe_load_all((DEPLOY / "kubernetes" / "service.yaml").read_text()) if item]
[POD] = [item["spec"]["template"]["spec"] for item in OBJECTS if item["kind"] == "Deployment"]


@pytest.mark.parametrize("name", ["service.yaml", "cluster.yaml", "namespaced.yaml"])
def test_the_api_takes_the_objects(name):
    """By the schemas of Kubernetes, strictly: no key that it does not know."""
    validate = pytest.importorskip("kubernetes_validate")
    for item in yaml.safe_load_all((DEPLOY / "kubernetes" / name).read_text()):
        if item:
            assert validate.validate(item, "1.31", strict=True) == "1.31"


@pytest.fixture
def paths(tmp_path):
    """What an operator may ask over HTTP."""
    web = Flask("test")
    with Ledger(f"sqlite:///{tmp_path / 'signalbox.db'}") as ledger:
        web.register_blueprint(operations(ledger.database, {}, Metrics(), dict))
        yield {str(iter_rule) for iter_rule in web.url_map.iter_rules()}


def test_who_asks_asks_for_what_is_there(paths):
    """Probes, the scraper and the image's own check; liveness never depends on the database."""
    [box] = POD["containers"]
    asked = {name: box[name]["httpGet"]["path"] for name in ("livenessProbe", "readinessProbe", "startupProbe")}
    assert asked == {"livenessProbe": "/livez", "readinessProbe": "/readyz", "startupProbe": "/livez"}
    [deployment] = [item for item in OBJECTS if item["kind"] == "Deployment"]
    scraped = deployment["spec"]["template"]["metadata"]["annotations"]["prometheus.io/path"]
    health = re.search(r"127\.0\.0\.1:8080(/\w+)", DOCKERFILE)[1]
    assert {*asked.values(), scraped, health} <= paths


def test_nothing_runs_as_root():
    """Nor can become it, nor write where it need not."""
    assert re.search(r"^USER (\d+):\1$", DOCKERFILE, re.MULTILINE)[1] == str(POD["securityContext"]["runAsUser"])
    [box] = POD["containers"]
    assert box["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    service = COMPOSE["services"]["signalbox"]
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    assert "\nUser=signalbox\n" in UNIT


def test_they_agree_on_folders():
    """What the image calls its state is where the volumes are."""
    state = re.search(r"SIGNALBOX_STATE=(\S+)", DOCKERFILE)[1]
    [mounted] = [
        volumemount["mountPath"]
        for volumemount in POD["containers"][0]["volumeMounts"]
        if volumemount["name"] == "state"
    ]
    [composed] = [
        volume.split(":")[1] for volume in COMPOSE["services"]["signalbox"]["volumes"] if volume.startswith("state:")
    ]
    assert {mounted, composed} == {str(Path(state).parent)}
    assert f"VOLUME {mounted}" in DOCKERFILE


def test_the_image_gets_what_it_is_built_of():
    """Everything that the wheel is made of passes .dockerignore, and every file that is copied is there."""
    let = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    project = (ROOT / "pyproject.toml").read_text()
    packages = re.search(r"^packages = \[(.*)\]$", project, re.MULTILINE)[1].replace('"', "").split(", ")
    assert {*packages, "rules", "callbacks", "README.md", "LICENSE", "pyproject.toml"} <= let
    assert [name for name in let if not (ROOT / name).exists()] == []


def test_systemd_takes_the_unit(tmp_path):
    """As systemd-analyze reads it."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze (Debian: systemd)")
    unit = tmp_path / "signalbox.service"
    unit.write_text(UNIT.replace("/opt/signalbox/bin/signalbox", sys.executable))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (done.returncode, [line for line in done.stderr.splitlines() if "signalbox.service" in line]) == (0, [])


def test_the_settings_that_the_files_speak_of_are_taken(tmp_path):
    """The settings named in the headers of the files exist."""
    found = load(
        "version: 1\nserve:\n  listen: 0.0.0.0:8080\n  slack:\n    bot_token: {file: /run/secrets/slack_bot_token}\n"
        "    app_token: {env: SLACK_APP_TOKEN}\ncollect: {spool: /var/lib/signalbox/spool}\n",
        tmp_path / "signalbox.yaml",
    )
    assert (found.serve.host, found.collect.spool) == ("0.0.0.0", "/var/lib/signalbox/spool")  # noqa: S104 - of a container
