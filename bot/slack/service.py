"""Slack as part of `signalbox serve`. The app listens in the main process; the sender runs in a separate one."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from slack_bolt import App
from slack_bolt.error import BoltError
from slack_sdk import WebClient
from slack_sdk.errors import SlackApiError, SlackClientError

from bot.config.chat import Slack
from bot.config.settings import Config
from bot.incidents.grafana import annotate
from bot.incidents.ledger import Ledger
from bot.incidents.on_call import refresh_on_call
from bot.notify.outbox import OutboxItem
from bot.rulebase.loader import Knowledge
from bot.slack.app import SCOPES, THREADS, build
from bot.slack.delivery.cards import Page, no_page
from bot.slack.delivery.compose import Composer
from bot.slack.delivery.masked_client import MaskedClient
from bot.slack.delivery.sender import TIMEOUT, Sender
from bot.slack.groups import groups_of, members, read_names, refresh
from bot.slack.people import TIMEOUT as PEOPLE_TIMEOUT
from bot.slack.people import Directory
from bot.slack.use_cases.access import People
from bot.slack.use_cases.services import use_cases
from bot.store.database import StoreError
from connectors.base.contract import CheckResult, SourceFailed
from kb.errors import SignalboxError

PING = 2.0  # seconds between checks of the Socket Mode connection; commands fail while it is down
REFRESH = 60.0  # seconds between refreshes of the user groups
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Listening:
    """The listening app. `close`: ends the Socket Mode connection; `trouble`: why Slack cannot reach the app now, or None."""

    app: App
    close: Callable[[], None]
    trouble: Callable[[], str | None] = lambda: None


def client_of(slack: Slack, *, timeout: float = TIMEOUT) -> WebClient:
    """Return the client of Slack's API. `timeout`: in seconds.

    Raises:
        SignalboxError: the token is missing.
    """
    try:
        token = slack.bot_token.value()
    except SourceFailed as failed:
        raise SignalboxError(f"serve.slack.bot_token: {failed}") from None
    # no retries in the client: the ledger records what to send, and the sender retries from there
    return MaskedClient(token, base_url=slack.api, timeout=int(timeout), proxy=slack.proxy, retry_handlers=[])


@dataclass(frozen=True, slots=True)
class Workspace:
    """The workspace of the token: its address, and its id or the id of the organisation that installed the app."""

    url: str
    id: str


def workspace_of(client: WebClient) -> Workspace:
    """Return the workspace. This also verifies the token.

    Raises:
        SignalboxError: the token is invalid or Slack is unreachable; the text says what to do.
    """
    try:
        told = client.api_call("auth.test")
    except SlackApiError as error:
        said = error.response.get("error")
        raise SignalboxError(f"Slack rejected the bot token: {said}; see docs/slack-setup.md") from None
    except (SlackClientError, OSError) as error:
        raise SignalboxError(f"cannot reach Slack: {type(error).__name__}: {error}") from None
    installed = told.get("enterprise_id") if told.get("is_enterprise_install") else told.get("team_id")
    return Workspace(str(told.get("url") or ""), str(installed or ""))


def _check_tokens(slack: Slack) -> None:
    """Refuse a token of a different kind than its setting needs: Slack's answer would not name the setting.

    Raises:
        SignalboxError: a token is missing or of another kind.
    """
    bot = slack.bot_token.value()
    if not bot.startswith(("xoxb-", "xoxe.xoxb-")):
        swapped = ", but an app-level token (xapp-…), which belongs in app_token" if bot.startswith("xapp-") else ""
        raise SignalboxError(f"bot_token is not a bot token (xoxb-…){swapped}")
    if slack.mode == "socket" and slack.app_token is not None and not slack.app_token.value().startswith("xapp-"):
        raise SignalboxError("app_token is not an app-level token (xapp-…)")


def check(slack: Slack) -> CheckResult:
    """Check the tokens and report missing scopes. Posts nothing."""
    setup = "docs/slack-setup.md"
    try:
        _check_tokens(slack)
        client = client_of(slack)
        told = client.api_call("auth.test")
        if slack.mode == "socket" and slack.app_token is not None:
            client.apps_connections_open(app_token=slack.app_token.value())
        elif slack.signing_secret is not None:
            slack.signing_secret.value()
    except SlackApiError as error:
        return CheckResult(
            False, f"Slack rejected the token: {error.response.get('error')}", error.response.api_url, setup
        )
    except (SlackClientError, OSError) as error:
        return CheckResult(
            False, f"cannot reach Slack: {type(error).__name__}", slack.api, "check the network and `proxy`"
        )
    except SignalboxError as error:
        return CheckResult(False, str(error), "", setup)
    own = {str(told.get(name) or "") for name in ("team_id", "enterprise_id")}
    if slack.workspaces and own.isdisjoint(slack.workspaces):
        return CheckResult(
            False,
            f"`workspaces` does not list the workspace of the token, {told.get('team_id')}: nobody would be answered",
            "auth.test",
            "add it to serve: slack: workspaces",
        )
    granted = {text.strip() for text in str(told.headers.get("x-oauth-scopes") or "").split(",") if text.strip()}
    missing = sorted(set(SCOPES) - granted) if granted else []
    if missing:
        return CheckResult(
            False, f"missing scopes: {', '.join(missing)}", "auth.test", "reinstall the app from the manifest"
        )
    return CheckResult(True, f"{told.get('team')} as {told.get('user')}, over {slack.mode}", "auth.test")


def listen(config: Config, known: Knowledge, ledger: Ledger, page: Page = no_page) -> Listening:
    """Return the app. With Socket Mode, it starts listening; with HTTP, the web server passes requests to it.

    Raises:
        SignalboxError: Slack rejects the token, or a secret is missing.
    """
    slack = config.serve.slack
    if slack is None:
        raise SignalboxError("serve.slack is not configured")
    client = client_of(slack)
    own = workspace_of(client)
    people = People(
        lambda group: members(ledger.database, group),
        Directory(client_of(slack, timeout=PEOPLE_TIMEOUT)),
        frozenset(slack.workspaces or (own.id,)) - {""},
    )
    actions = use_cases(
        ledger,
        config,
        people,
        {fault.id: fault.title for fault in known.rulebook.faults.values()},
    )
    composer = Composer(ledger, known, config, page)
    try:
        signing = slack.signing_secret.value() if slack.mode == "http" and slack.signing_secret else None
        app_token = slack.app_token.value() if slack.mode == "socket" and slack.app_token else None
    except SourceFailed as failed:
        raise SignalboxError(f"serve.slack: {failed}") from None
    try:
        app = build(actions, composer, client, signing_secret=signing, team_url=own.url)
    except (BoltError, SlackClientError, OSError) as error:
        raise SignalboxError(f"cannot verify the bot token: {type(error).__name__}: {error}") from None
    if app_token is None:
        return Listening(app, lambda: None)
    from bot.slack.socket_client import client_for  # noqa: PLC0415 - not needed over HTTP

    socket = client_for(app, app_token, proxy=slack.proxy, ping_interval=PING, concurrency=THREADS)
    socket.web_client.base_url = slack.api
    socket.connect()

    def trouble() -> str | None:
        return None if socket.is_connected() else "the Socket Mode connection is down"

    return Listening(app, socket.close, trouble)


def send(
    config: Config, known: Callable[[], Knowledge], ledger: Ledger, stop: Callable[[], bool], page: Page = no_page
) -> None:
    """Send until stopped. In between, reload the rules from `known`; beside it, refresh user groups, names and rotas."""
    slack = config.serve.slack
    if slack is None:
        return
    client = client_of(slack)
    groups = groups_of(config)
    rotas = [tenant.on_call for tenant in config.tenants_of_chat.values() if tenant.on_call is not None]
    composer = Composer(ledger, known(), config, page)
    sender = Sender(
        ledger,
        client,
        composer,
        {"grafana": lambda item: _grafana(config, ledger, item)},
    )
    over = threading.Event()

    def refresh_all() -> None:
        while True:
            try:
                refresh(ledger.database, client, groups)
                read_names(ledger.database, client)
                refresh_on_call(ledger.database, rotas, datetime.now(UTC))
            except StoreError as error:
                _log.warning("cannot refresh user groups and names: %s", error)
            if over.wait(REFRESH):
                return

    def stopped() -> bool:
        composer.use_rules(known())
        return stop()

    threading.Thread(target=refresh_all, name="people", daemon=True).start()
    try:
        sender.run(stopped)
    finally:
        over.set()


def _grafana(config: Config, ledger: Ledger, item: OutboxItem) -> None:
    grafana = config.tenants_of_chat[item.tenant].grafana if item.tenant in config.tenants_of_chat else None
    if grafana is not None:
        annotate(grafana, ledger, int(item.payload["incident"]))
