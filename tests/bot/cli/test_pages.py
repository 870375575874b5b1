"""`signalbox pages`: one's own incidents in a browser, on this machine only, for who has the link."""

from __future__ import annotations

import re
import socket
from datetime import UTC, datetime
from urllib.parse import urlsplit

import httpx
import pytest

from bot.cli.pages import served
from bot.demo.sample_incidents import fill_store
from bot.incidents.ledger import Ledger
from bot.render.report_json import dumps
from bot.runtime.paths import database_url
from bot.store.database import Database
from kb.errors import SignalboxError
from tests.support.bot_samples import FALLEN_GPU


@pytest.fixture(autouse=True)
def _state(tmp_path, monkeypatch, known):
    """A store of one's own; the rules are there."""
    monkeypatch.setenv("SIGNALBOX_STATE", str(tmp_path))
    monkeypatch.delenv("SIGNALBOX_DATABASE", raising=False)
    monkeypatch.setattr("bot.cli.pages.knowledge", lambda: known)


def test_the_link_opens_the_overview_and_nothing_else_does():
    """Whoever has the link sees the incidents; the bare address says how to get one, and a made-up one is refused."""
    with Ledger(database_url()) as ledger:
        ledger.incidents.add(dumps(FALLEN_GPU), FALLEN_GPU, b"", None, datetime.now(UTC))
    with served(0, "default") as address:
        page, home = httpx.get(address, timeout=60), httpx.get(str(httpx.URL(address).copy_with(path="/")), timeout=60)
        forged = httpx.get(f"{address}x", timeout=60)
        nowhere = httpx.get(str(httpx.URL(address).copy_with(path="/nowhere")), timeout=60)

    assert urlsplit(address).hostname == "127.0.0.1"
    assert (page.status_code, "llm-70b" in page.text) == (200, True)
    assert (home.status_code, "signalbox pages" in home.text, "llm-70b" in home.text) == (200, True, False)
    assert (forged.status_code, forged.text.count("This link is not valid")) == (403, 2)  # title and heading
    assert (nowhere.status_code, "This address has no page" in nowhere.text) == (404, True)


def test_the_digest_of_the_last_week_is_a_page(known):
    """Where no service stores one, it is computed; a store without failures in that week has none."""
    with Database(database_url()) as store, served(0, "default") as address:
        without = httpx.get(address, timeout=60)
        fill_store(store, known.rulebook, datetime.now(UTC), days=16, seed=3)
        overview = httpx.get(address, timeout=60)
        link = re.search(r'href="([^"]+)" rel="noreferrer">the digest of', overview.text)
        assert link is not None
        page = httpx.get(link[1], timeout=60)
        picture = httpx.get(re.search(r'src="([^"]+pareto-light[.]svg)"', overview.text)[1], timeout=60)

    assert "the digest of" not in without.text
    assert (page.status_code, "What to do" in page.text) == (200, True)
    assert (picture.status_code, picture.headers["content-type"].partition(";")[0]) == (200, "image/svg+xml")


def test_a_port_that_is_taken_is_reported():
    """With what to do."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(SignalboxError, match=f"cannot listen on 127.0.0.1:{port}: .*choose another --port"),
            served(port, "default"),
        ):
            pass
