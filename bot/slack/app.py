"""The Bolt app, which registers the listeners for everything Slack delivers. It is synchronous; Socket Mode and HTTP share listeners.

The manifest (deploy/slack/manifest.yaml) lists everything registered here. A test compares the two.
"""

from __future__ import annotations

import logging
import secrets
from concurrent.futures import ThreadPoolExecutor

from slack_bolt import App
from slack_sdk import WebClient

from bot.slack.delivery.compose import Composer
from bot.slack.early_ack import EarlyAck
from bot.slack.forms.lifecycle import LIFE
from bot.slack.listeners.base import ButtonAction
from bot.slack.listeners.close_out import CloseOutListeners
from bot.slack.listeners.commands import CommandListeners
from bot.slack.listeners.diagnose import DiagnoseListeners
from bot.slack.listeners.exclusions import ExclusionListeners
from bot.slack.listeners.gate import Gate
from bot.slack.listeners.home import HomeListeners
from bot.slack.listeners.incidents import IncidentListeners
from bot.slack.listeners.lifecycle import LifecycleListeners
from bot.slack.listeners.menus import MenuListeners
from bot.slack.listeners.mutes import MuteListeners
from bot.slack.listeners.rules import RuleListeners
from bot.slack.use_cases.services import UseCases

THREADS = 24  # listener threads; each writes a row and can open a form
COMMANDS = ("/diagnose", "/signalbox")
SHORTCUTS = ("diagnose_message",)
EVENTS = ("app_mention", "app_home_opened", "message.im")
SCOPES = ("app_mentions:read", "chat:write", "commands", "files:write", "im:history", "usergroups:read", "users:read")
_log = logging.getLogger(__name__)


def build(
    use_cases: UseCases, composer: Composer, client: WebClient, *, signing_secret: str | None, team_url: str = ""
) -> App:
    """Build the app with all its listeners. Without a signing secret, it works over Socket Mode only.

    `team_url`: the address of the workspace, for links to messages. The token is verified here (`auth.test`), or else the first
    deliveries would each do so before they are acknowledged.

    Raises:
        BoltError: Slack rejects the token.
    """
    app = App(
        client=client,
        signing_secret=signing_secret or secrets.token_hex(32),
        process_before_response=True,  # see bot.slack.early_ack
        listener_executor=ThreadPoolExecutor(THREADS, "slack"),
    )
    early = EarlyAck(app, _last_resort)
    app.use(Gate(use_cases, composer).admit)
    diagnose = DiagnoseListeners(use_cases, composer, team_url)
    commands = CommandListeners(use_cases, composer, diagnose)
    home = HomeListeners(use_cases, composer)
    rules = RuleListeners(use_cases, composer)
    close_out = CloseOutListeners(use_cases, composer, rules)
    mutes = MuteListeners(use_cases, composer)
    lifecycle = LifecycleListeners(use_cases, composer)
    app.command("/diagnose")(diagnose.diagnose)
    app.command("/signalbox")(commands.signalbox)
    # Bolt acknowledges an event before its listener runs but after its middleware, so the middleware does what must not be lost
    app.event("app_mention", middleware=[commands.mentioned])(_nothing_more)
    app.event("message", middleware=[commands.written])(_nothing_more)
    app.event("app_home_opened", middleware=[home.home_opened])(_nothing_more)
    app.shortcut("diagnose_message")(early(diagnose.diagnose_message))
    menus, incidents = MenuListeners(use_cases, composer, close_out, mutes), IncidentListeners(use_cases, composer)
    exclusions = ExclusionListeners(use_cases, composer)
    for action, do in _buttons(close_out, menus, incidents, exclusions, lifecycle).items():
        app.action(action)(early(close_out.pressed(do)))
    app.action("more")(early(menus.more))
    app.action("unmute")(mutes.unmute)
    app.action("digest_open")(incidents.list_open)
    app.action("life")(early(lifecycle.menu))
    app.action("pick_job")(diagnose.pick)
    app.action("home_refresh")(home.refresh)
    app.action("cause")(early(close_out.cause_chosen))
    app.action("try_rule")(early(rules.replay))
    app.options("other_fault")(close_out.search)
    app.view("close_out")(close_out.closed)
    app.view("mute")(mutes.muted)
    app.view("propose_rule")(rules.submitted_draft)
    app.view(LIFE)(lifecycle.submitted_step)
    app.view("diagnose_message")(diagnose.which)
    app.error(_last_resort)
    return app


def _buttons(
    close_out: CloseOutListeners,
    menus: MenuListeners,
    incidents: IncidentListeners,
    exclusions: ExclusionListeners,
    lifecycle: LifecycleListeners,
) -> dict[str, ButtonAction]:
    """Return what buttons under messages do. Messages already posted carry these action ids, so the ids must not change."""
    return {
        "ack": lifecycle.acknowledge,
        "right": close_out.right,
        "wrong": close_out.wrong,
        "close_out": close_out.open_form,
        "propose_rule": menus.propose,
        "bar_confirm": exclusions.confirm,
        "bar_refuse": exclusions.refuse,
        "evidence": incidents.evidence,
        "open_incident": incidents.show,
        "remind_later": incidents.remind_later,
        "remind_no": incidents.dismiss_reminder,
    }


def _nothing_more() -> None:
    """Do nothing: the middleware did the work before the acknowledgement."""


def _last_resort(error: Exception) -> None:
    _log.error("a listener failed", exc_info=error)
