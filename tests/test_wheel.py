"""The wheel: everything that is needed at run time is in it, and it works where no checkout is."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.paths import ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel of the working tree."""
    if find_spec("hatchling") is None:
        pytest.skip("hatchling is not installed: no wheel can be built")
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "--quiet"]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, "-w", str(folder), str(ROOT)], check=True)
    return next(folder.glob("*.whl"))


def files(folder):
    """All files under a folder of the checkout but Python's own leavings."""
    return {
        str(path.relative_to(ROOT))
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_nothing_is_left_out(wheel):
    """Packages, rules and the demo's logs are inside, to the last file, and tests are not."""
    inside = set(zipfile.ZipFile(wheel).namelist())

    wanted = {name for folder in ("bot", "connectors", "kb") for name in files(folder)}
    wanted |= {f"bot/_{name}" for name in files("rules")}
    assert wanted - inside == set()
    assert {Path(name).suffix for name in inside if name.startswith("bot/demo/incidents/")} >= {".log", ".err", ".yaml"}
    assert "signalbox_callback.py" in inside
    assert any(name.endswith("licenses/LICENSE") for name in inside)
    assert not [name for name in inside if name.startswith(("tests/", "bench/", "rules/"))]


@pytest.mark.slow  # test_nothing_is_left_out
def test_the_demo_works_from_the_wheel(wheel, tmp_path):
    """Unpacked on PYTHONPATH, far from the checkout, it diagnoses its own bundle with its own rules."""
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    # -S leaves out the editable install; the libraries come back by their folders
    libraries = [name for name in sys.path if name.endswith(("site-packages", "dist-packages"))]
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith(("SIGNALBOX_", "PYTHON"))},
        "PYTHONPATH": os.pathsep.join([str(site), *libraries]),
        "SIGNALBOX_STATE": str(tmp_path / "state"),
        "SIGNALBOX_CACHE": str(tmp_path / "cache"),
    }

    def run(*words):
        return subprocess.run(
            [sys.executable, "-S", *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        ).stdout

    places = run("-c", "import bot, kb, connectors; print(bot.__file__, kb.__file__, connectors.__file__)").split()
    assert all(Path(place).is_relative_to(site) for place in places)
    told = run("-m", "bot.cli.main", "demo")
    assert f"recorded in {site}" in told
    assert "[data_error]" in told
    assert run("-m", "bot.cli.main", "incidents", "list").startswith("No incidents yet")  # the steps make the tables
    assert len(run("-m", "bot.cli.main", "rules", "list").splitlines()) == len(
        list((ROOT / "rules").glob("*/*/rule.yaml"))
    )
