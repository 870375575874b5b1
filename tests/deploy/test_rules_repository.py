"""The workflows of a repository of rules: what they may do, and their very command lines run on a small one."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from bot.rulebase.loader import default_folder
from tests.doubles.gitlab import GitLabDouble, MergeRequest
from tests.support.forge_repository import Repository
from tests.support.forge_server import serving
from tests.support.paths import DEMO, ROOT
from tests.support.staged_proposals import git

FILES = ROOT / "deploy" / "rules-repository"
WORKFLOWS = FILES / ".github" / "workflows"
BASH = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c"]  # as GitHub runs `shell: bash`
MARK = "<!-- signalbox rules report -->"


def workflow(name: str) -> dict:
    """A workflow; YAML 1.1 reads its key `on` as true."""
    return yaml.safe_load((WORKFLOWS / name).read_text())


def steps(name: str) -> list[dict]:
    """The steps of its only job."""
    [job] = workflow(name)["jobs"].values()
    return job["steps"]


def run(command: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a command line of a workflow."""
    path = f"{folder.parent / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    given = {**os.environ, "PATH": path, "SIGNALBOX_CACHE": str(folder.parent / "cache"), **env}
    return subprocess.run([*BASH, command], cwd=folder, env=given, capture_output=True, text=True, check=False)


@pytest.fixture
def repository(tmp_path):
    """A pull request as it is checked out: a small rule base, a recorded case, and a draft that speaks on it."""
    home = tmp_path / "repository"
    for name in ("VERSION", "faults.yaml", "actions.yaml", "memory/cuda-out-of-memory"):
        source, target = default_folder() / name, home / "rules" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    logs = home / "cases" / "full-disk" / "logs"
    logs.mkdir(parents=True)
    (logs / "rank-0.err").write_text("OSError: [Errno 28] No space left on device: '/scratch/out/step_40'\n")
    shutil.copy(DEMO / "job.yaml", home / "cases" / "full-disk")
    git(home, "init", "-q", "-b", "main")
    git(home, "add", "-A")
    git(home, "commit", "-q", "-m", "the rules")
    git(home, "checkout", "-q", "-b", "signalbox/rule/disk-full")
    shutil.copytree(default_folder() / "storage" / "disk-full", home / "rules" / "storage" / "disk-full")
    rule = home / "rules" / "storage" / "disk-full" / "rule.yaml"
    rule.write_text(rule.read_text().replace("status: experimental", "status: draft"))
    git(home, "add", "-A")
    git(home, "commit", "-q", "-m", "a rule")
    return home


DIFF = "1 bundles: 1 new, 0 lost, 0 changed, 0 same\n\n| What | Bundle | Old | New |\n| --- | --- | --- | --- |\n| new | full-disk |"


def test_what_the_workflows_may_do():
    """Steps that run code of a pull request may only read; steps that write run none of it; no untrusted text gets into a shell."""
    check, comment = workflow("rules.yml"), workflow("rules-comment.yml")
    assert (check[True], check["permissions"]) == ({"pull_request": None}, {"contents": "read"})
    assert comment[True] == {"workflow_run": {"workflows": ["rules"], "types": ["completed"]}}
    assert comment["permissions"] == {"actions": "read", "pull-requests": "write"}
    assert [step for step in steps("rules-comment.yml") if "uses" in step] == []
    [checkout] = [step for step in steps("rules.yml") if step.get("uses", "").startswith("actions/checkout@")]
    assert checkout["with"]["persist-credentials"] is False
    for path in WORKFLOWS.iterdir():
        assert "pull_request_target" not in path.read_text()
        assert "secrets." not in path.read_text()
        for step in steps(path.name):
            assert "${{" not in step.get("run", ""), (path.name, step)
    assert all("permissions" not in job for path in WORKFLOWS.iterdir() for job in workflow(path.name)["jobs"].values())


def test_github_looks_at_a_pull_request(repository, tmp_path):
    """Lint, the test logs of the rules, and the first answers that would change; the summary contains all of it."""
    summary, temp = tmp_path / "summary", tmp_path / "temp"
    temp.mkdir()
    env = {
        "RUNNER_TEMP": str(temp),
        "GITHUB_STEP_SUMMARY": str(summary),
        "BASE": git(repository, "rev-parse", "main").decode().strip(),
    }
    ran = {
        step["name"]: run(step["run"], repository, **env)
        for step in steps("rules.yml")
        if "run" in step and step["name"] != "install"
    }
    assert {name: item.returncode for name, item in ran.items()} == dict.fromkeys(
        ("lint", "test", "diff", "summary"), 0
    ), ran
    told = summary.read_text()
    assert "2 rules, " in told
    assert re.search(r"\n[0-9]+ passed, 0 failed\n```\n", told)
    assert DIFF in told
    assert told == (temp / "report.md").read_text()


def test_github_fails_a_broken_rule(repository, tmp_path):
    """The step fails and the report says where; later steps still run."""
    rule = repository / "rules" / "storage" / "disk-full" / "rule.yaml"
    rule.write_text(rule.read_text().replace("role: root_cause", "role: culprit"))
    env = {"RUNNER_TEMP": str(tmp_path), "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"), "BASE": "main"}
    lint = next(step for step in steps("rules.yml") if step.get("name") == "lint")
    assert run(lint["run"], repository, **env).returncode == 1
    assert "storage/disk-full/rule.yaml:5:7: " in (tmp_path / "report.md").read_text()
    assert all(
        step["if"] == "${{ !cancelled() }}"
        for step in steps("rules.yml")
        if step.get("name") in ("test", "diff", "summary")
    )


def test_github_without_recorded_cases(repository, tmp_path):
    """It says so."""
    shutil.rmtree(repository / "cases")
    diff = next(step for step in steps("rules.yml") if step.get("name") == "diff")
    assert run(diff["run"], repository, RUNNER_TEMP=str(tmp_path), BASE="main").returncode == 0
    assert "There is no folder `cases`" in (tmp_path / "report.md").read_text()


GH = """#!{python}
import json, os, subprocess, sys
words, state = sys.argv[1:], json.load(open(os.environ["GH_STATE"]))
if words[:2] == ["run", "download"]:
    folder = words[words.index("--dir") + 1]
    os.makedirs(folder)
    open(folder + "/report.md", "w").write(state["report"])
    sys.exit()
method = words[words.index("--method") + 1] if "--method" in words else "GET"
place = next(one for one in words[1:] if one.startswith("repos/"))
if method == "GET":
    told = json.dumps(state[place]).encode()
    sys.stdout.write(subprocess.run(["jq", "-r", words[words.index("--jq") + 1]], input=told, capture_output=True, check=True).stdout.decode())
    sys.exit()
body = next(one for one in words if one.startswith("body=@"))
state["written"].append([method, place, open(body[6:]).read()])
json.dump(state, open(os.environ["GH_STATE"], "w"))
"""


@pytest.mark.skipif(shutil.which("jq") is None, reason="needs Debian's jq")
@pytest.mark.parametrize(
    "before",
    [
        [],
        [
            {"id": 5, "user": {"login": "eve"}, "body": MARK},
            {"id": 6, "user": {"login": "github-actions[bot]"}, "body": f"{MARK} old"},
        ],
    ],
)
def test_github_writes_one_comment(tmp_path, before):
    """A second report edits the first comment; GitHub gives the author of the pull request; a stranger's text mentions nobody."""
    folder, state = tmp_path / "work", tmp_path / "state.json"
    folder.mkdir()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "gh").write_text(GH.replace("{python}", sys.executable))
    (tmp_path / "bin" / "gh").chmod(0o755)
    pulls = [
        {"number": 3, "state": "closed", "head": {"sha": "abc"}},
        {"number": 4, "state": "open", "head": {"sha": "abc"}},
    ]
    report = f"### Lint\n@everyone {MARK}\n" + "x" * 90_000
    state.write_text(
        json.dumps(
            {
                "report": report,
                "written": [],
                "repos/acme/rules/commits/abc/pulls": pulls,
                "repos/acme/rules/issues/4/comments": before,
            }
        )
    )
    env = {
        "GH_STATE": str(state),
        "RUNNER_TEMP": str(tmp_path / "temp"),
        "REPO": "acme/rules",
        "RUN": "9",
        "HEAD": "abc",
        "GH_TOKEN": "x",
    }
    (tmp_path / "temp").mkdir()
    for step in steps("rules-comment.yml"):
        ran = run(step["run"], folder, **env)
        assert ran.returncode == 0, (step["name"], ran)
    [[method, place, body]] = json.loads(state.read_text())["written"]
    wanted = (
        ("PATCH", "repos/acme/rules/issues/comments/6") if before else ("POST", "repos/acme/rules/issues/4/comments")
    )
    assert (method, place) == wanted
    assert (body.startswith(f"{MARK}\n### Lint\n@\u200beveryone &lt;!-- "), len(body) < 62_000) == (True, True)


def gitlab(job: str) -> dict:
    """A job of the pipeline."""
    return yaml.safe_load((FILES / ".gitlab-ci.yml").read_text())[job]


@pytest.mark.slow  # test_github_looks_at_a_pull_request, test_gitlab_writes_one_note
def test_gitlab_looks_at_a_merge_request(repository):
    """The same three; the token is of the other job alone."""
    check, comment = gitlab("check"), gitlab("comment")
    assert (comment["variables"]["GIT_STRATEGY"], comment["environment"]["name"], "environment" in check) == (
        "none",
        "rules-comment",
        False,
    )
    base = git(repository, "rev-parse", "main").decode().strip()
    ran = run(
        "\n".join(check["script"]), repository, CI_PROJECT_DIR=str(repository), CI_MERGE_REQUEST_DIFF_BASE_SHA=base
    )
    assert ran.returncode == 0, ran
    assert DIFF in (repository / "report.md").read_text()
    rule = repository / "rules" / "storage" / "disk-full" / "rule.yaml"
    rule.write_text(rule.read_text().replace("role: root_cause", "role: culprit"))
    assert (
        run(
            "\n".join(check["script"]), repository, CI_PROJECT_DIR=str(repository), CI_MERGE_REQUEST_DIFF_BASE_SHA=base
        ).returncode
        == 1
    )


@pytest.mark.skipif(shutil.which("jq") is None or shutil.which("curl") is None, reason="needs Debian's jq and curl")
def test_gitlab_writes_one_note(tmp_path):
    """A second report edits the first one; nothing in it is a command or a mention."""
    folder = tmp_path / "work"
    folder.mkdir()
    double = GitLabDouble(Repository(), token="t0ken")  # noqa: S106 - of the double
    double.merges.append(MergeRequest(1, "Rule", "", "branch", "main", notes=["a person's"]))
    script = "\n".join(gitlab("comment")["script"])
    with serving(double) as url:
        env = {
            "CI_API_V4_URL": url,
            "CI_PROJECT_ID": "7",
            "CI_MERGE_REQUEST_IID": "1",
            "RULES_TOKEN": "t0ken",
            "NO_PROXY": "127.0.0.1",
        }
        for report in ("### Lint\n/merge\n@everyone", "### Lint\nfine\n"):
            (folder / "report.md").write_text(report)
            ran = run(script, folder, **env)
            assert ran.returncode == 0, ran
            seen = double.merges[0].notes[1]
        assert (
            run(script, folder, **{**env, "RULES_TOKEN": ""}).stdout
            == "there is no RULES_TOKEN: the report stays an artifact\n"
        )
    assert (double.merges[0].notes, double.strange) == (["a person's", f"{MARK}\n### Lint\nfine\n"], [])
    posted = next(item.body["body"] for item in double.seen if item.method == "POST")
    assert (posted, seen) == (f"{MARK}\n### Lint\n&#47;merge\n@\u200beveryone", f"{MARK}\n### Lint\nfine\n")
