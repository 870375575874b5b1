"""`signalbox demo --chat`: a local chat in the browser, with the real app, real workers and recorded failures."""

from __future__ import annotations

import secrets
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bot.config.file import read
from bot.config.settings import Config
from bot.demo.fakeslack.ui.serve import serving as chatting
from bot.demo.fakeslack.values import App as ChatApp
from bot.demo.fakeslack.workspace import Workspace
from bot.server.serve import serve
from bot.slack.app import SCOPES
from kb.errors import SignalboxError

CHANNEL = "C0INCIDENTS"
QUIET = "C0ELSEWHERE"
PEOPLE = (("U0ADA", "ada", "Ada, who trains"), ("U0GRACE", "grace", "Grace, who is on call"))
EXAMPLES = (
    ("/diagnose demo", "a recorded failure: one rank met a damaged shard of the data"),
    ("/diagnose dmeo", "a name that is not quite right"),
    ("/diagnose demo private", "show the result only to you"),
    ("/signalbox help", "what else there is"),
)
_BUNDLES = Path(__file__).with_name("incidents")
_CONFIG = """\
# Made by `signalbox demo --chat`; gone when it ends.
version: 1
collect: {{spool: {state}/spool}}
clusters:
  demo:
    connectors:
      recorded: {{type: bundles, folder: {folder}}}
serve:
  listen: 127.0.0.1:0
  workers: 2
  slack:
    mode: http
    bot_token: {{file: {state}/bot-token}}
    signing_secret: {{file: {state}/signing-secret}}
    api: {api}/api/
tenants:
  default:
    channels: [{channel}]
    announce: {channel}
    people: {{users: {{ada: {ada}}}, groups: {{hardware: S0HARDWARE, storage: S0STORAGE}}}}
"""


@dataclass(frozen=True, slots=True)
class Demo:
    """A running chat. `address`: where to open it; `workspace`: the Slack double behind it."""

    address: str
    workspace: Workspace


@contextmanager
def chat(port: int, tell: Callable[[str], None], *, duplicate: bool = False) -> Iterator[Demo]:
    """Run a workspace with a channel, two people and the app until the block ends.

    Raises:
        SignalboxError: the port cannot be bound.
    """
    workspace = workspace_of(duplicate=duplicate)
    state = Path(tempfile.mkdtemp(prefix="signalbox-demo-"))
    over = threading.Event()
    try:
        with chatting(workspace, port=port) as address:
            config = _configured(state, workspace, address)
            ready = threading.Event()

            def relay(words: str) -> None:
                tell(words)
                if words.startswith("listening on "):
                    workspace.connect(f"http://{words.split()[2].rstrip(',')}/slack/events")
                    ready.set()

            problem: list[BaseException] = []
            service = threading.Thread(target=_serve, args=(config, state, relay, over, problem), daemon=True)
            service.start()
            while not ready.wait(0.1):
                if problem or not service.is_alive():
                    raise SignalboxError(f"the service failed to start: {problem[0] if problem else 'it exited'}")
            try:
                yield Demo(address, workspace)
            finally:
                over.set()
                service.join(20)
    except OSError as error:
        raise SignalboxError(f"cannot listen on 127.0.0.1:{port}: {error.strerror}") from error
    finally:
        shutil.rmtree(state, ignore_errors=True)


def workspace_of(*, duplicate: bool = False) -> Workspace:
    """Return a workspace with a channel, two people, two user groups, and the app with its scopes."""
    app = ChatApp(bot_token=f"xoxb-{secrets.token_hex(12)}", signing_secret=secrets.token_hex(16), scopes=SCOPES)
    workspace = Workspace(app, duplicate=duplicate)
    for user, name, real in PEOPLE:
        workspace.add_user(user, name, real)
    workspace.add_group("S0HARDWARE", "hardware-oncall", ["U0GRACE"])
    workspace.add_group("S0STORAGE", "storage-oncall", ["U0GRACE"])
    people = [item for item, _, _ in PEOPLE]
    workspace.add_channel(CHANNEL, "training-incidents", people)
    workspace.add_channel(QUIET, "random", people, app=False)
    return workspace


def _serve(
    config: Config, state: Path, tell: Callable[[str], None], over: threading.Event, problem: list[BaseException]
) -> None:
    try:
        serve(config, f"sqlite:///{state / 'signalbox.db'}", tell, until=over)
    except SignalboxError as error:
        problem.append(error)


def _configured(state: Path, workspace: Workspace, address: str) -> Config:
    for name, secret in (("bot-token", workspace.app.bot_token), ("signing-secret", workspace.app.signing_secret)):
        path = state / name
        path.touch(mode=0o600)
        path.write_text(secret)
    (state / "spool").mkdir()  # a configured folder is never created
    demo = state / "runs" / "demo"
    shutil.copytree(_BUNDLES / "shard-corrupt", demo)
    job = demo / "job.yaml"
    job.write_text(job.read_text().replace("name: lm-tiny\n", "name: demo\n"))
    path = state / "signalbox.yaml"
    path.write_text(_CONFIG.format(folder=state / "runs", state=state, api=address, channel=CHANNEL, ada=PEOPLE[0][0]))
    return read(path)
