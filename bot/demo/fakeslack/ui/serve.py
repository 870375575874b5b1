"""Serves a workspace on this machine: the Web API and the page, in a thread of this process.

Uses werkzeug's server instead of waitress: it has a thread per connection, so stalled calls do not block others, and connections
can be cut.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import tzinfo

from flask import Flask
from werkzeug.serving import WSGIRequestHandler, make_server

from bot.demo.fakeslack.state import MOST_FILE_BYTES
from bot.demo.fakeslack.web_api import web_api
from bot.demo.fakeslack.workspace import Workspace

LOOK = 0.02  # seconds between checks for shutdown
TICK = 0.5  # seconds between checks for due retries


def create_app(
    workspace: Workspace, *, pages: bool = True, zone: tzinfo | None = None, examples: tuple[str, ...] = ()
) -> Flask:
    """Return the Web API under /api/, response_urls and uploads; with `pages` also the page."""
    web = Flask("bot.demo.fakeslack", static_folder=None)
    web.config["MAX_CONTENT_LENGTH"] = MOST_FILE_BYTES + 100_000
    web.config["MAX_FORM_MEMORY_SIZE"] = 2_000_000
    web.register_blueprint(web_api(workspace))
    if pages:
        from bot.demo.fakeslack.ui.routes import create_pages  # noqa: PLC0415 - tests of the API need no page

        web.register_blueprint(create_pages(workspace, zone=zone, examples=examples))
    return web


@contextmanager
def serving(
    workspace: Workspace,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    pages: bool = True,
    zone: tzinfo | None = None,
    examples: tuple[str, ...] = (),
) -> Iterator[str]:
    """Serve until the block ends; yields the address, http://host:port. Due events are retried.

    Args:
        workspace: What to serve.
        host: Where to listen.
        port: 0 for any free port.
        pages: Whether to serve the page.
        zone: Time zone of the page; UTC by default.
        examples: Suggestions of the composer; it shows the first one.

    Raises:
        OSError: the port cannot be bound.
    """
    web = create_app(workspace, pages=pages, zone=zone, examples=examples)
    with socket.create_server((host, port)) as listener:  # werkzeug exits the process if it cannot bind itself
        server = make_server(host, port, web, threaded=True, request_handler=_Quiet, fd=listener.fileno())
        workspace.state.base_url = f"http://{host}:{listener.getsockname()[1]}"
        over = threading.Event()
        runs = threading.Thread(target=server.serve_forever, args=(LOOK,), daemon=True)
        ticks = threading.Thread(target=_tick, args=(workspace, over), daemon=True)
        runs.start()
        ticks.start()
        try:
            yield workspace.state.base_url
        finally:
            over.set()
            server.shutdown()
            server.server_close()
            runs.join()
            ticks.join()
            workspace.deliver_by(())


class _Quiet(WSGIRequestHandler):
    """Logs no requests: the workspace records them itself."""

    def log(self, type: str, message: str, *args: object) -> None:  # noqa: A002 - the parameter name in werkzeug
        """Do nothing."""


def _tick(workspace: Workspace, over: threading.Event) -> None:
    while not over.wait(TICK):
        workspace.tick()
