"""`signalbox serve`: what listens in this process. The other processes are in bot.server.supervisor."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from importlib.metadata import version

from flask import Flask, Response, request

from bot.config.settings import Config
from bot.incidents.ledger import Ledger
from bot.pages.routes import pages
from bot.pages.signed_links import linked_by, page_of
from bot.rulebase.reload import CurrentRules, state_of
from bot.runtime import metrics
from bot.runtime.signals import set_on_signal
from bot.server.alert_payloads import LARGEST
from bot.server.credentials import admission
from bot.server.health import operations, watched
from bot.server.http_server import Door
from bot.server.supervisor import Supervisor, process_specs
from bot.server.webhooks import app
from bot.slack.service import Listening, listen
from kb.errors import SignalboxError

THREADS = 24  # request threads; each only writes a row
DIES_AGAIN = 1.0  # seconds between checks for dead processes


def serve(config: Config, url: str, tell: Callable[[str], None], *, until: threading.Event | None = None) -> None:
    """Serve until SIGTERM or SIGINT, or until `until` is set (then no signal is caught).

    Raises:
        SignalboxError: the address cannot be bound, the store is unavailable, or Slack rejects the tokens.
    """
    served, source = config.serve, config.rules.source
    over = until or threading.Event()
    with metrics.collected(), Ledger(url) as ledger:  # created and verified before anything is accepted
        web = app(
            lambda: nullcontext(ledger),
            served.webhooks,
            lambda tenant: [cluster.name for cluster in config.of_tenant(tenant)],
            timeouts=served.endings.timeouts,
            rules=None if source is None else lambda: state_of(source).words(),
        )
        watched(web)
        current = CurrentRules(config.rules.source)
        known = current.known()
        linked = linked_by(config)
        if linked is not None:
            web.register_blueprint(pages(ledger, known, linked, consoles=config.links_of))
        chat = listen(config, known, ledger, page_of(linked)) if served.slack is not None else None
        if chat is not None and served.slack is not None and served.slack.mode == "http":
            mount(web, chat)
        supervisors: list[Supervisor] = []
        checks = _checks(supervisors, chat)
        web.register_blueprint(operations(ledger.database, checks, served.metrics, lambda: _running(current)))
        try:
            server = Door(
                web,
                served.host,
                served.port,
                threads=THREADS,
                largest=LARGEST,
                admission=admission(served.webhooks, LARGEST, slack=chat is not None),
                limits=served.limits,
            )
        except OSError as error:
            raise SignalboxError(f"cannot listen on {served.host}:{served.port}: {error.strerror}") from error
        if until is None:
            set_on_signal(over, signal.SIGTERM, signal.SIGINT)
        threading.Thread(target=server.run, daemon=True).start()
        tell(_listening(config, server.port))
        supervisors.append(Supervisor(url, config.path, process_specs(config), ledger.tasks))
        try:
            while not over.wait(DIES_AGAIN):
                for words in supervisors[0].restart_dead():
                    tell(words)
        finally:
            server.close()
            if chat is not None:
                chat.close()
            supervisors[0].stop()
    tell("stopped")


def _checks(supervisors: Sequence[Supervisor], chat: Listening | None) -> dict[str, Callable[[], str | None]]:
    """Return the readiness checks."""
    checks: dict[str, Callable[[], str | None]] = {
        "processes": lambda: supervisors[0].missing() if supervisors else "not started yet"
    }
    return checks if chat is None else checks | {"slack": chat.trouble}


def _running(current: CurrentRules) -> Mapping[str, str]:
    """Return the running versions."""
    book = current.known().rulebook
    return {"version": version("signalbox"), "rulebook": book.version, "digest": book.digest}


def mount(web: Flask, chat: Listening) -> None:
    """Mount the endpoint for Slack deliveries over HTTP at /slack/events."""
    from slack_bolt.adapter.flask import SlackRequestHandler  # noqa: PLC0415 - not needed over Socket Mode

    handler = SlackRequestHandler(chat.app)

    def delivered() -> Response:
        answer: Response = handler.handle(request)
        return answer

    web.add_url_rule("/slack/events", "slack", delivered, methods=["POST"])


def _listening(config: Config, port: int) -> str:
    served = config.serve
    hooks = ", ".join(sorted(served.webhooks)) or "none"
    slack = "no Slack" if served.slack is None else f"Slack over {served.slack.mode}"
    return f"listening on {served.host}:{port}, {served.workers} workers, webhooks: {hooks}, {slack}"
