"""`signalbox nodes` and `signalbox baselines`, and what `signalbox diagnose` remembers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bot.cli.command_line import command_line
from bot.cli.commands.nodes import app as nodes
from tests.support.paths import BUNDLES, DEMO

app = command_line()


pytestmark = pytest.mark.usefixtures("own_store")


def run(*words: str | Path, which: object = nodes) -> str:
    """What it prints; an error's words where it is one that a person can fix."""
    done = CliRunner().invoke(which, [str(word) for word in words])  # type: ignore[arg-type]
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        return f"{type(done.exception).__name__}: {done.exception}"
    return done.output


def test_a_node_is_excluded_listed_and_lifted() -> None:
    """With the drain command, which Signalbox does not run."""
    told = run("exclude", "gpu-017", "--note", "ECC twice", "--for", "7d")
    assert told.startswith("gpu-017: excluded for the cluster on ")
    assert "$ scontrol update NodeName=gpu-017 State=DRAIN Reason='signalbox: ECC twice'" in told
    assert "    1  gpu-017  excluded for the cluster on" in run("excluded", "--commands", "--system", "kubernetes")
    assert "$ kubectl cordon gpu-017" in run("excluded", "--commands", "--system", "kubernetes")
    (line,) = run("excluded", "--json").splitlines()
    told_json = json.loads(line)
    assert (told_json["node"], told_json["state"], told_json["in_force"], told_json["who"]) == (
        "gpu-017",
        "barred",
        True,
        "ana",
    )
    assert run("lift", "1").startswith("gpu-017: exclusion lifted on")
    assert run("excluded") == run("barred") == "No node exclusions.\n"
    assert "lifted" in run("excluded", "--node", "gpu-017")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("exclude", "a;b"), "is not a valid node name"),
        (("exclude", "n1", "--for", "soon"), "expected a duration of at most ten years"),
        (("exclude", "n1", "--for", "0d"), "expected a duration of at most ten years"),
        (("exclude", "n1", "--for", "99999w"), "expected a duration of at most ten years"),
        (("confirm", "77"), "exclusion 77 does not exist"),
        (("excluded", "--system", "pbs"), "slurm or kubernetes"),
    ],
)
def test_what_is_wrong_is_reported(words: tuple[str, ...], error: str) -> None:
    """In a sentence."""
    assert error in run(*words)


def test_for_one_job_only() -> None:
    """Then no command drains the node: others may use it."""
    told = run("bar", "n1", "--job", "llm")
    assert told.startswith("n1: excluded for llm on")
    assert "scontrol" not in told


def test_lemons_come_with_their_definition() -> None:
    """The same one as the digest's."""
    from kb.digest.definitions import DEFINITIONS

    assert DEFINITIONS["lemon"] in run("lemons")
    assert json.loads(run("lemons", "--json")) == {
        "weeks": 8,
        "definition": DEFINITIONS["lemon"],
        "nodes": [],
        "named": 0,
        "fleet": 0,
        "namings": 0,
        "lemons": 0,
    }


@pytest.mark.slow  # test_lemons_come_with_their_definition
def test_a_node_of_many_failed_jobs_is_a_lemon() -> None:
    """As made-up incidents have them."""
    run("demo", "--fill", "--days", "60", which=app)
    found = json.loads(run("lemons", "--json"))
    assert found["lemons"] == sum(node["lemon"] for node in found["nodes"]) > 0
    assert found["nodes"][0]["score"] == max(node["score"] for node in found["nodes"])
    table = run("lemons").splitlines()
    assert table[1].startswith(found["nodes"][0]["name"])
    assert table[1].endswith("lemon")


def test_good_runs_are_kept_listed_and_forgotten() -> None:
    """One that failed is refused."""
    assert "No baselines yet" in run("baselines", "list", which=app)
    assert "not kept: its logs show that it did not complete" in run(
        "baselines", "keep", BUNDLES / "rank-killed", which=app
    )
    assert "there is no such folder" in run("baselines", "keep", "/nowhere", which=app)
    assert run("baselines", "keep", BUNDLES / "healthy", which=app).startswith("Kept as the baseline of lm-tiny:")
    (line,) = run("baselines", "list", "--json", which=app).splitlines()
    assert json.loads(line)["family"] == "lm-tiny|pytorch-ddp|"
    assert "lm-tiny|pytorch-ddp|" in run("baselines", "list", which=app)
    assert run("baselines", "drop", "lm-tiny|pytorch-ddp|", which=app) == "Deleted: lm-tiny|pytorch-ddp|\n"
    assert "no baseline for 'x'" in run("baselines", "drop", "x", which=app)


def test_diagnose_remembers_earlier_answers_and_feedback(tmp_path: Path) -> None:
    """A run that completed becomes the good one of its family; a failed one is recognised when it comes again."""
    run("diagnose", "--bundle", BUNDLES / "healthy", which=app)
    assert "lm-tiny|pytorch-ddp|" in run("baselines", "list", which=app)
    bundle = tmp_path / "again"
    shutil.copytree(DEMO, bundle)
    first = json.loads(run("diagnose", "--bundle", bundle, "--json", which=app))
    assert first["memory"] == {"alike": [], "recalled": [], "outcomes": [], "digest": ""}
    run("incidents", "close", "2", "--cause", "right", "--action", "took the node out", which=app)
    job = bundle / "job.yaml"
    job.write_text(job.read_text().replace("shard-corrupt", "next").replace("T13:", "T15:"))
    told = run("diagnose", "--bundle", bundle, which=app)
    assert "From past runs (hints only):" in told
    assert "It looks the same as incident 2, closed as:" in " ".join(told.split())
    assert "what helped: took the node out" in " ".join(told.split())
    bare = json.loads(run("diagnose", "--bundle", bundle, "--json", "--no-store", which=app))
    assert bare["memory"] == first["memory"]
