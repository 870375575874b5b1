"""The examples for log shippers and single connectors: valid configurations that fit the labels which the shippers make."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from bot.cli.commands.config import app
from bot.config.connectors import KINDS
from bot.config.file import load
from bot.config.single_examples import example_for, shippers
from kb.errors import UnreadableInput
from tests.support.shipped_layouts import LAYOUTS


@pytest.mark.parametrize("name", shippers())
def test_an_example_is_a_valid_configuration(name: str) -> None:
    """Each names a job's label for each of its stores, and no two roles share one."""
    (cluster,) = load(example_for(name), Path(f"{name}.yaml")).clusters
    assert cluster.connectors
    for connector in cluster.connectors:
        roles = connector.settings.labels if connector.type == "loki" else connector.settings.fields
        assert "job" in roles
        assert len(set(roles.values())) == len(roles)


def test_every_example_has_a_layout() -> None:
    """So that its labels are tried with lines as the shipper sends them."""
    assert {layout.example for layout in LAYOUTS.values()} == set(shippers())


def test_the_command_prints_it() -> None:
    """Whatever the spelling; the help names all of them."""
    found = CliRunner().invoke(app, ["example", "--for", "Fluent_Bit"])
    assert (found.exit_code, found.output) == (0, example_for("fluent-bit"))
    told = " ".join(CliRunner().invoke(app, ["example", "--help"], env={"COLUMNS": "400"}).output.split())
    assert all(name in told for name in shippers())


@pytest.mark.parametrize("name", ["nope", "", "../file", "alloy.yaml"])
def test_an_unknown_name_lists_those_that_there_are(name: str) -> None:
    """And reads no other file."""
    with pytest.raises(UnreadableInput, match=r"connectors: .*folders.*; log shippers: alloy, docker, .*vector"):
        example_for(name)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_connector_has_a_short_example(kind: str) -> None:
    """It is a valid configuration with this connector alone."""
    (cluster,) = load(example_for(kind), Path(f"{kind}.yaml")).clusters
    assert [connector.type for connector in cluster.connectors] == [kind]
