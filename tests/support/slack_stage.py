"""A whole service in one process: the Slack double, the real Bolt app, and a worker and sender that tests step manually."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from flask import Flask
from slack_sdk import WebClient

from bot.config.file import read
from bot.config.settings import Config
from bot.demo.fakeslack.rate_limits import RateLimits, unlimited
from bot.demo.fakeslack.ui.serve import serving
from bot.demo.fakeslack.values import App as ChatApp
from bot.demo.fakeslack.values import Message
from bot.demo.fakeslack.workspace import Workspace
from bot.handlers.diagnose import DiagnoseHandler
from bot.handlers.digest import compute_digest
from bot.handlers.keep_baseline import KeepBaselineHandler
from bot.handlers.recent_jobs import list_recent_jobs
from bot.incidents.ledger import Ledger
from bot.learning.drafts.service import DraftService
from bot.learning.drafts.store import DRAFT
from bot.learning.proposals.publish import ProposalWorker
from bot.learning.proposals.store import PROPOSE
from bot.queue.payloads import DIAGNOSE, DIGEST, GOOD_RUN, RECENT
from bot.queue.worker import step
from bot.rulebase.loader import Knowledge
from bot.server.serve import mount
from bot.slack.app import SCOPES
from bot.slack.delivery.compose import Composer
from bot.slack.delivery.sender import Sender
from bot.slack.service import Listening, listen
from tests.support.paths import DEMO, ROOT

BUNDLES = {
    "demo": DEMO,
    "fine": ROOT / "tests" / "bundles" / "healthy",
}
CHANNEL, OTHER, FOREIGN = "C0INCIDENTS", "C0SECOND", "C0FOREIGN"
ADA, GRACE, EVE = "U0ADA", "U0GRACE", "U0EVE"
ONCALL = "S0ONCALL"
CONFIG = """\
version: 1
collect: {{spool: {spool}}}
clusters:
  main:
    connectors:
      recorded: {{type: bundles, folder: {runs}}}
serve:
  slack: {{mode: http, bot_token: {{env: STAGE_TOKEN}}, signing_secret: {{env: STAGE_SECRET}}, api: "{api}/api/"}}
tenants:
  default:
    channels: [{channel}, {other}]
{tenant}
{more}
"""


@dataclass(slots=True)
class Stage:
    """What a test uses. `replicas`: the listening apps, in turn."""

    workspace: Workspace
    ledger: Ledger
    config: Config
    known: Knowledge
    replicas: list[Listening]
    senders: list[Sender]
    runs: Path
    url: str
    answering: DiagnoseHandler = field(init=False)
    drafter: DraftService = field(init=False)

    def __post_init__(self) -> None:
        self.answering = DiagnoseHandler(self.ledger, self.known, self.config)
        self.drafter = DraftService(self.url, self.config)

    def work(self, name: str = "worker") -> bool:
        """Run one task; whether there was one."""
        does = {
            DIAGNOSE: self.answering.do,
            GOOD_RUN: KeepBaselineHandler(self.ledger.database, self.known, self.config).do,
            RECENT: lambda work: list_recent_jobs(self.config, work),
            DRAFT: self.drafter.do,
            PROPOSE: ProposalWorker(self.ledger.database, self.config.rules.pull_requests).do,
            DIGEST: lambda work: compute_digest(self.ledger.database, self.config, self.known.rulebook.faults, work),
        }
        return step(self.ledger.tasks, does, name)

    def send(self, most: int = 200) -> None:
        """Send until nothing is left, beginning with the check of the tasks that a sender makes once a second."""
        for sender in self.senders:
            sender._settled = 0.0
        for _ in range(most):
            busy = [sender.step() for sender in self.senders]
            if not any(busy):
                return
        raise AssertionError("there is no end to what is sent")

    def settle(self) -> None:
        """Work and send until nothing is left."""
        while self.work():
            self.send()
        self.send()

    def diagnose(self, text: str = "demo", user: str = ADA, channel: str = CHANNEL) -> Any:
        """Type /diagnose, and run everything that follows."""
        delivery = self.workspace.command(user, channel, "/diagnose", text)
        self.settle()
        return delivery

    def answers(self, channel: str = CHANNEL) -> list[Message]:
        """Return the app's messages in a channel, without threads."""
        return [
            message
            for message in self.workspace.messages(channel)
            if message.by_app and message.thread_ts in (None, message.ts)
        ]

    def ephemerals(self, user: str = ADA, channel: str = CHANNEL) -> list[str]:
        """Return the messages that only this person sees."""
        return [ephemeral.text for ephemeral in self.workspace.ephemerals(channel, user)]

    def tell(self, wanted: Callable[[], Any]) -> Any:
        """Send, then return the messages."""
        self.send()
        return wanted()


@contextmanager
def stage(
    folder: Path,
    known: Knowledge,
    url: str,
    setenv: Callable[[str, str], None],
    *,
    tenant: str = "",
    more: str = "",
    bundles: Mapping[str, Path] = BUNDLES,
    replicas: int = 1,
    duplicate: bool = False,
    rates: RateLimits | None = None,
) -> Iterator[Stage]:
    """Run everything until the block ends. `tenant`: further lines for the configuration's tenant; `more`: other sections."""
    # patience: Slack's three seconds would say more about the machine than about the app
    workspace = Workspace(ChatApp(scopes=SCOPES), duplicate=duplicate, rates=rates or unlimited(), patience=60.0)
    for user, name in ((ADA, "ada"), (GRACE, "grace"), (EVE, "eve")):
        workspace.add_user(user, name)
    workspace.add_group(ONCALL, "oncall", [GRACE])
    for channel in (CHANNEL, OTHER, FOREIGN):
        workspace.add_channel(channel, channel.lower(), [ADA, GRACE, EVE])
    runs = folder / "runs"
    (folder / "spool").mkdir()
    for name, bundle in bundles.items():
        shutil.copytree(bundle, runs / name)
    setenv("STAGE_TOKEN", workspace.app.bot_token)
    setenv("STAGE_SECRET", workspace.app.signing_secret)
    with serving(workspace, pages=False) as address, Ledger(url) as ledger:
        text = CONFIG.format(
            spool=folder / "spool", runs=runs, api=address, channel=CHANNEL, other=OTHER, tenant=tenant, more=more
        )
        (folder / "signalbox.yaml").write_text(text)
        config = read(folder / "signalbox.yaml")
        listening = [listen(config, known, ledger) for _ in range(replicas)]
        ways = []
        for item in listening:
            web = Flask("replica")
            mount(web, item)
            ways.append(web)
        hosts = [f"http://replica-{number}/slack/events" for number in range(replicas)]
        workspace.connect(
            *hosts, transport=_Replicas(dict(zip((f"replica-{n}" for n in range(replicas)), ways, strict=True)))
        )
        client = WebClient(workspace.app.bot_token, base_url=config.serve.slack.api, retry_handlers=[])
        senders = [Sender(ledger, client, Composer(ledger, known, config), pace=0.0) for _ in range(replicas)]
        try:
            yield Stage(workspace, ledger, config, known, listening, senders, runs, url)
        finally:
            for item in listening:
                item.app._listener_runner.listener_executor.shutdown(wait=True)


class _Replicas(httpx.BaseTransport):
    """Passes requests directly to the app of the named host."""

    def __init__(self, apps: Mapping[str, Flask]) -> None:
        self._inner = {host: httpx.WSGITransport(app=app) for host, app in apps.items()}

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Pass a request."""
        return self._inner[request.url.host].handle_request(request)
