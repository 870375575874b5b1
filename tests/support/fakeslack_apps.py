"""Apps for the double: a tiny real Bolt app, and a listener that records requests."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from flask import Flask, Request, Response, request
from slack_bolt import App
from slack_bolt.adapter.flask import SlackRequestHandler
from slack_sdk import WebClient
from werkzeug.serving import make_server

from bot.demo.fakeslack.ui.serve import serving
from bot.demo.fakeslack.workspace import Workspace

ANN, BO = "U0ANN", "U0BO"
ALERTS, OPS, RANDOM = "C0ALERTS", "C0OPS", "C0RANDOM"


@dataclass
class Clock:
    """A manual clock."""

    time: float = 1_780_000_000.0

    def __call__(self):
        """Seconds since the epoch."""
        return self.time


def workspace(**more):
    """Ann and Bo in #alerts; Ann in #ops, which is private; #random, to which the app was not invited."""
    made = Workspace(**{"patience": 60.0, **more})
    made.add_user(ANN, "ann", "Ann Lee")
    made.add_user(BO, "bo", "Bo Ek")
    made.add_group("S0ONCALL", "hw-oncall", [BO])
    made.add_channel(ALERTS, "alerts", [ANN, BO])
    made.add_channel(OPS, "ops", [ANN], private=True, app=False)
    made.add_channel(RANDOM, "random", [ANN, BO], app=False)
    return made


@contextmanager
def listening(web: Flask) -> Iterator[str]:
    """Serve a WSGI app; yield the address."""
    server = make_server("127.0.0.1", 0, web, threaded=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/slack/events"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass
class Listener:
    """A request URL that records requests and responds with the result of `answer`."""

    answer: Callable[[Request], Response] = lambda _: Response("")
    seen: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    def web(self):
        """The WSGI app."""
        app = Flask("listener")

        @app.post("/slack/events")
        def heard():
            self.seen.append(({key.lower(): item for key, item in request.headers.items()}, request.get_data()))
            return self.answer(request)

        return app


@contextmanager
def heard(made: Workspace, *listeners: Listener) -> Iterator[str]:
    """Serve a workspace with listeners; yield its address."""
    with serving(made, pages=False) as address:
        urls = []
        stack = [listening(listener.web()) for listener in listeners]
        try:
            urls = [group.__enter__() for group in stack]
            made.connect(*urls)
            yield address
        finally:
            made.connect()
            for group in stack[: len(urls)]:
                group.__exit__(None, None, None)


def bolt_app(made: Workspace, address: str) -> App:  # noqa: C901 - a list of listeners
    """A Bolt app with a command, buttons, a modal with an external select, a shortcut, mentions and a Home tab."""
    quiet = logging.getLogger("tests.bolt")
    quiet.setLevel(logging.CRITICAL)
    client = WebClient(made.app.bot_token, base_url=f"{address}/api/", logger=quiet)
    app = App(client=client, signing_secret=made.app.signing_secret, logger=quiet)

    @app.command("/diagnose")
    def diagnose(ack, body, client):
        ack(f"looking at {body['text']}")
        client.chat_postMessage(channel=body["channel_id"], text=f"{body['text']} failed", blocks=answer(body["text"]))

    @app.action("close_out")
    def close_out(ack, body, client):
        ack()
        client.views_open(trigger_id=body["trigger_id"], view=modal(body["actions"][0]["value"]))

    @app.action("right")
    def right(ack, body, respond):
        ack()
        respond(f"thanks, {body['user']['username']}")

    @app.action("more")
    def more(ack, body, respond):
        ack()
        respond(text=body["actions"][0]["selected_option"]["value"], replace_original=True)

    @app.options("other_fault")
    def faults(ack, payload):
        known = ("gpu-ecc", "nccl-timeout", "host-oom")
        ack(options=[{"text": plain(text), "value": text} for text in known if payload["value"] in text])

    @app.view("close_out")
    def closed(ack, view, client):
        told = view["state"]["values"]
        if told["cause"]["cause"]["selected_option"]["value"] == "other" and not told["note"]["note"]["value"]:
            ack(response_action="errors", errors={"note": "Say what it was"})
            return
        ack()
        client.chat_postMessage(channel=ALERTS, text=f"closed: {told['cause']['cause']['selected_option']['value']}")

    @app.view_closed("close_out")
    def left(ack, client):
        ack()
        client.chat_postMessage(channel=ALERTS, text="left open")

    @app.shortcut("diagnose_message")
    def which(ack, body, client):
        ack()
        client.views_open(
            trigger_id=body["trigger_id"],
            view={"type": "modal", "title": plain("Which job"), "blocks": [section(body["message"]["text"])]},
        )

    @app.event("app_mention")
    def mentioned(event, say):
        say(text=f"you said {event['text']}", thread_ts=event.get("thread_ts") or event["ts"])

    @app.event("app_home_opened")
    def home(event, client):
        button = {"type": "actions", "block_id": "refresh", "elements": [pressed("Refresh", "home_refresh", "h")]}
        client.views_publish(user_id=event["user"], view={"type": "home", "blocks": [section("At home"), button]})

    @app.action("home_refresh")
    def refresh(ack, body, client):
        ack()
        client.views_update(view_id=body["view"]["id"], view={"type": "home", "blocks": [section("Refreshed")]})

    return app


@contextmanager
def running(made: Workspace, *, pages: bool = False) -> Iterator[str]:
    """Serve a workspace with a Bolt app over HTTP; yield its address."""
    with serving(made, pages=pages) as address:
        handler = SlackRequestHandler(bolt_app(made, address))
        web = Flask("bolt")
        web.post("/slack/events")(lambda: handler.handle(request))
        with listening(web) as url:
            made.connect(url)
            try:
                yield address
            finally:
                made.connect()


def plain(text):
    """Return a plain_text object."""
    return {"type": "plain_text", "text": text}


def section(text):
    """Return a mrkdwn section."""
    return {"type": "section", "text": {"type": "mrkdwn", "text": text}}


def pressed(text, action_id, value):
    """Return a button."""
    return {"type": "button", "text": plain(text), "action_id": action_id, "value": value}


def answer(job):
    """Return the blocks of an answer."""
    menu = {"type": "overflow", "action_id": "more", "options": [{"text": plain("Run again"), "value": "again:h1"}]}
    return [
        {"type": "header", "text": plain(f"{job} failed")},
        section(f"*Requeue* without `n12`, says <@{ANN}> <!channel>"),
        {
            "type": "actions",
            "block_id": "verdict",
            "elements": [pressed("Right", "right", "h1"), pressed("Close out", "close_out", "h1"), menu],
        },
    ]


def modal(handle):
    """Return a close-out modal."""
    causes = [{"text": plain("ECC error"), "value": "d1"}, {"text": plain("Another fault"), "value": "other"}]
    return {
        "type": "modal",
        "callback_id": "close_out",
        "private_metadata": handle,
        "notify_on_close": True,
        "title": plain("Close out"),
        "submit": plain("Close"),
        "blocks": [
            asked("cause", "Cause", {"type": "static_select", "options": causes}),
            asked("other_fault", "Which", {"type": "external_select", "min_query_length": 1}, optional=True),
            asked("note", "Note", {"type": "plain_text_input", "multiline": True, "max_length": 200}, optional=True),
        ],
    }


def asked(name, label, element, **more):
    """Return an input whose block_id is its action_id."""
    return {
        "type": "input",
        "block_id": name,
        "label": plain(label),
        "element": {**element, "action_id": name},
        **more,
    }
