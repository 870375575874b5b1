"""The lock files: one resolution, of which `make demo` and the image install only what they need, and its installer."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCKS = ("requirements.lock", "requirements-dev.lock", "requirements-service.lock", "requirements-uv.lock")
TOOLS = {"mypy", "pytest", "pytest-xdist", "ruff", "import-linter", "hypothesis", "codespell"}
HEAVY = {"ray", "playwright", "boto3", "botocore", "moto", "selenium", "kubernetes-validate", "s3fs"}


def pins(name):
    """Package → all versions of it that a lock has, one for each Python."""
    found = {}
    for package, version in re.findall(r"^([a-z0-9._-]+)==(\S+)", (ROOT / name).read_text(), re.MULTILINE):
        found.setdefault(package, []).append(version)
    return found


def name_of(requirement):
    """The package that a requirement names, as locks write it."""
    return re.match(r"[A-Za-z0-9._-]+", requirement)[0].lower().replace("_", "-")


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-service.lock"])
def test_what_runs_is_what_was_tested(name):
    """Each smaller lock has the versions of the lock that the tests install."""
    tested = pins("requirements-dev.lock")

    assert {package: found for package, found in pins(name).items() if tested.get(package) != found} == {}


def test_the_demo_installs_only_what_running_needs():
    """All run-time dependencies, the build backend for the checkout, no tool and no optional part."""
    demo = set(pins("requirements.lock"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())

    assert {name_of(dependency) for dependency in project["project"]["dependencies"]} <= demo
    assert {name_of(require) for require in project["build-system"]["requires"]} <= demo
    assert demo & (TOOLS | HEAVY | {"matplotlib", "pillow"}) == set()
    assert set(pins("requirements-dev.lock")) > TOOLS | HEAVY


def test_the_image_gets_the_optional_parts_of_a_service_and_no_tool():
    """PostgreSQL's driver and the like; nothing that builds or tests."""
    service = set(pins("requirements-service.lock"))

    assert {"psycopg-binary", "hyperscan", "slack-bolt", "google-re2", "s3fs", "pyjwt"} <= service
    assert service & (TOOLS | {"hatchling", "editables", "ray", "playwright", "moto"}) == set()


@pytest.mark.parametrize("name", LOCKS)
def test_every_pin_has_hashes_and_no_index(name):
    """A lock works with any index, and takes nothing but the files that were resolved."""
    text = (ROOT / name).read_text()
    entries = re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)[1:]

    assert entries
    assert [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry] == []
    assert "index-url" not in text.replace("--no-emit-index-url", "")
    assert "://" not in text


def test_make_demo_leaves_the_development_stack_to_make_test(tmp_path):
    """What each of the two commands would install in a fresh checkout."""
    make = shutil.which("make")
    if make is None:
        pytest.skip("needs make")
    for name in ("Makefile", "pyproject.toml", *LOCKS):
        shutil.copy(ROOT / name, tmp_path)

    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}

    def dry(goal):
        return subprocess.run(
            [make, "-n", goal], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        ).stdout

    assert "--require-hashes -r requirements-uv.lock" in dry("demo")
    assert "--require-hashes -r requirements.lock" in dry("demo")
    assert "requirements-dev.lock" not in dry("demo")
    assert "--require-hashes -r requirements-dev.lock" in dry("test")
