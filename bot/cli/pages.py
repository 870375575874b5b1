"""`signalbox pages`: the pages of this user's incidents on this machine, without Slack and without configuration.

Only this machine can connect, and only who has the link that is printed sees anything: other users of the machine have none.
"""

from __future__ import annotations

import secrets
import signal
import socket
import threading
import time
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

from flask import Flask
from waitress import wasyncore
from waitress.server import create_server

from bot.cli.console import say
from bot.cli.digest import digest_zone
from bot.digest.phrases import zone_named
from bot.incidents.ledger import Ledger
from bot.pages.digests import ComputedDigests, DigestPages
from bot.pages.routes import not_found, pages
from bot.pages.signed_links import PageLinks
from bot.rulebase.loader import Knowledge, knowledge
from bot.runtime.paths import database_url
from bot.runtime.signals import set_on_signal
from bot.store.digest_rows import compute
from kb.digest.digest import Digest
from kb.digest.weeks import Week, week_of
from kb.errors import SignalboxError

HOST = "127.0.0.1"
EXPIRES = 86400.0  # seconds; the key of the links ends with the process in any case
THREADS = 4
TICK = 0.2  # seconds after which the server sees that it is to stop


def run(port: int, tenant: str, *, browser: bool) -> None:
    """Serve until Ctrl-C, and print the link to the overview.

    Raises:
        SignalboxError: the port is taken, or the store cannot be used.
    """
    over = threading.Event()
    set_on_signal(over, signal.SIGINT, signal.SIGTERM)
    with served(port, tenant) as address:
        say(f"Your incidents: {address}")
        say("Anyone with this link can open it on this machine. Ctrl-C stops it.", err=True)
        if browser:
            webbrowser.open(address)
        over.wait()


@contextmanager
def served(port: int, tenant: str) -> Iterator[str]:
    """Serve the pages in a thread; yields the URL of the overview.

    Raises:
        SignalboxError: the port is taken, or the store cannot be used.
    """
    with Ledger(database_url()) as ledger:
        try:
            listener = socket.create_server((HOST, port))
        except OSError as error:
            raise SignalboxError(f"cannot listen on {HOST}:{port}: {error.strerror}; choose another --port") from error
        links = PageLinks(f"http://{HOST}:{listener.getsockname()[1]}", secrets.token_urlsafe(32), EXPIRES)
        web = Flask("bot.cli.pages", static_folder=None)
        known = knowledge()
        web.register_blueprint(pages(ledger, known, links, digests=_digests(ledger, known, tenant)))
        web.register_error_handler(404, not_found)
        sockets: dict[int, Any] = {}
        server = create_server(web, map=sockets, sockets=[listener], threads=THREADS, ident=None)
        over = threading.Event()
        thread = threading.Thread(target=_serve, args=(server, sockets, over), daemon=True)
        thread.start()
        try:
            yield links.overview(tenant, time.time())
        finally:
            over.set()
            thread.join()


def _digests(ledger: Ledger, known: Knowledge, tenant: str) -> DigestPages:
    """The digest of the last full week, with the figures of `signalbox digest`."""
    zone = zone_named(digest_zone(tenant))

    def computed(tenant: str, week: Week, until: datetime) -> Digest:
        return compute(ledger.database, tenant, week, zone, until=until, faults=known.rulebook.faults)

    def last_full_week(now: datetime) -> Week:
        return week_of(now, zone).shifted(-1)

    return ComputedDigests(ledger.database, computed, last_full_week, partial(datetime.now, UTC))


def _serve(server: Any, sockets: dict[int, Any], over: threading.Event) -> None:
    """Answer requests until `over`. The loop and the threads of requests use the sockets, so both end before these are closed."""
    while not over.is_set():
        wasyncore.loop(timeout=TICK, map=sockets, count=1)
    server.task_dispatcher.shutdown()
    wasyncore.close_all(sockets)
