"""`signalbox config check` tries the source of the rules and the forge, and writes to neither."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from bot.cli.commands.config import app
from bot.config.file import ConfigError, load
from bot.config.rules import App, PullRequests, Rules, Source
from connectors.base.secret import Secret
from tests.support.staged_proposals import git, staged


def test_both_are_tried(tmp_path, few_rules, monkeypatch):
    """What works and what does not, with what to change."""
    monkeypatch.setenv("SIGNALBOX_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("SIGNALBOX_CACHE", str(tmp_path / "cache"))
    with staged("github", tmp_path, monkeypatch) as stage:
        path = tmp_path / "signalbox.yaml"
        path.write_text(
            f"version: 1\nrules:\n  source: {{path: {few_rules}}}\n"
            f"  pull_requests: {{backend: github, repository: acme/rules, url: '{stage.settings.url}', token: {{env: FORGE_TOKEN}}}}\n"
        )
        works = CliRunner().invoke(app, ["check", "--config", str(path)])
        (few_rules / "faults.yaml").unlink()
        stage.double.tokens.clear()
        fails = CliRunner().invoke(app, ["check", "--config", str(path)])
        assert {item.method for item in stage.double.seen} == {"GET"}
    assert (works.exit_code, fails.exit_code) == (0, 1)
    assert "works  rules/source (folder): version " in works.stdout
    assert "works  rules/pull_requests (github): acme/rules, base main at " in works.stdout
    assert "FAILS  rules/source (folder): the version " in fails.stdout
    assert "FAILS  rules/pull_requests (github): GitHub answered 401" in fails.stdout
    assert "t0ken" not in works.stdout + fails.stdout


def test_a_clone_is_tried(tmp_path):
    """By reading."""
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "x")
    path = tmp_path / "signalbox.yaml"
    path.write_text(f"version: 1\nrules:\n  pull_requests: {{backend: local, repository: {tmp_path}}}\n")
    ran = CliRunner().invoke(app, ["check", "--config", str(path)])
    assert (ran.exit_code, "works  rules/pull_requests (local): branches are made in " in ran.stdout) == (0, True)
    assert git(tmp_path, "for-each-ref", "--format=%(refname)").decode().split() == ["refs/heads/main"]


def test_the_section_of_the_configuration():
    """Durations are written as everywhere else; a value that is not valid is reported with its position."""
    text = (
        "version: 1\nrules:\n  source: {git: 'https://h/rules.git', every: 1m, token: {env: T}}\n"
        "  pull_requests:\n    backend: github\n    repository: acme/rules\n    settle: 5m\n"
        "    app: {id: Iv23li, key: {file: /k.pem}}\n"
    )
    wanted = PullRequests("github", "acme/rules", app=App("Iv23li", Secret(file="/k.pem")), settle=300.0)
    source = Source(git="https://h/rules.git", every=60.0, token=Secret(env="T"))
    assert load(text, Path("signalbox.yaml")).rules == Rules(source, wanted)
    assert load("version: 1\n", Path("signalbox.yaml")).rules == Rules()
    with pytest.raises(ConfigError) as caught:
        load(text.replace("acme/rules", "acme"), Path("signalbox.yaml"))
    assert str(caught.value) == "signalbox.yaml:3:3: repository: 'acme' is not owner/name"
