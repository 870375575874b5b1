"""A real Prometheus with series that promtool made: what the tests of metrics ask."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from tests.support.ports import kept_port


def needed() -> None:
    """Skip, saying so, where Prometheus is not installed."""
    for name in ("prometheus", "promtool"):
        if shutil.which(name) is None:
            pytest.skip(f"{name} is not installed here (Debian: apt-get install prometheus)")


def line(name: str, value: float, at: float, **labels: str) -> str:
    """One sample in the text form of OpenMetrics."""
    told = ",".join(f'{label}="{item}"' for label, item in labels.items())
    return f"{name}{{{told}}} {value:g} {at:.0f}"


@contextmanager
def serving(folder: Path, lines: list[str]) -> Iterator[str]:
    """The address of a server that has these samples."""
    folder.mkdir(parents=True, exist_ok=True)
    given = folder / "given.om"
    given.write_text("\n".join([*sorted(lines, key=lambda text: text.split("{")[0]), "# EOF", ""]))
    made = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(given), str(folder / "data")]
    subprocess.run(made, check=True, capture_output=True)
    (folder / "prometheus.yml").write_text("global: {scrape_interval: 1h}\n")
    with kept_port() as port:
        yield from _running(folder, port)


def _running(folder: Path, port: int) -> Iterator[str]:
    words = ["prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
    words += [f"--web.listen-address=127.0.0.1:{port}", "--storage.tsdb.retention.time=50y", "--log.level=error"]
    server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        address = f"http://127.0.0.1:{port}"
        _wait(f"{address}/-/ready", server)
        yield address
    finally:
        server.terminate()
        server.wait(20)


def _wait(address: str, server: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 90
    while time.monotonic() < end and server.poll() is None:
        try:
            with urlopen(address, timeout=5):  # noqa: S310 - our own server
                return
        except (URLError, OSError):
            time.sleep(0.1)
    raise AssertionError("Prometheus did not come up")
