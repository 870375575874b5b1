"""The page without a browser: forms do everything, other sites can do nothing, hostile text stays text."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import httpx
import pytest

from bot.demo.fakeslack.methods import call
from bot.demo.fakeslack.rate_limits import unlimited
from bot.demo.fakeslack.ui.serve import create_app, serving
from tests.support.common.fakeslack_pages import everywhere
from tests.support.fakeslack_apps import ALERTS, ANN, BO, OPS, RANDOM, modal, running, section, workspace


class Forms(HTMLParser):
    """The forms of a page, with the fields and buttons that belong to each."""

    def __init__(self, text):
        super().__init__()
        self.forms, self.named, self.here = [], {}, None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        """A form, a field of it, or a button."""
        told = dict(attrs)
        if tag == "form":
            self.here = {"action": told.get("action"), "fields": {}, "buttons": []}
            self.forms.append(self.here)
            self.named[told.get("id")] = self.here
        form = self.named.get(told.get("form"), self.here)
        if form is None or "name" not in told:
            return
        if tag == "button":
            form["buttons"].append((told["name"], told.get("value")))
        elif tag in {"input", "textarea", "select"} and told.get("type") not in {"radio", "checkbox"}:
            form["fields"][told["name"]] = told.get("value", "")

    def handle_endtag(self, tag):
        """Forms end."""
        if tag == "form":
            self.here = None


def form_of(page, action, **fields):
    """Return the form for `action` with these fields."""
    for form in Forms(page.text).forms:
        if form["action"].endswith(action) and all(form["fields"].get(key) == value for key, value in fields.items()):
            return form
    raise AssertionError(f"no form is sent to {action} with {fields}")


@pytest.fixture
def page():
    """A browser without scripts, on a workspace with a running Bolt app."""
    made = workspace(rates=unlimited())
    with running(made, pages=True) as address, httpx.Client(base_url=address, follow_redirects=True) as client:
        yield made, client


def test_a_channel_is_used_by_forms_alone(page):
    """Command, answer, modal with a search, errors, and the close-out, without scripts."""
    made, client = page
    first = client.get("/")
    assert first.url.path == f"/at/{ANN}/{ALERTS}"
    shown = client.post(form_of(first, "/say")["action"], data={"text": "/diagnose job 7"})
    assert "looking at job 7" in shown.text
    assert "Only visible to you" in shown.text
    assert made.until(lambda: made.messages(ALERTS))
    shown = client.get(shown.url)
    click = form_of(shown, "/act", action_id="close_out")
    client.post(click["action"], data=click["fields"])
    assert made.until(lambda: made.modal(ANN))
    shown = client.get(first.url)
    sent = form_of(shown, "/modal")
    assert sent["buttons"] == [("do", "shut"), ("do", "search:other_fault"), ("do", "close"), ("do", "submit")]
    fields = {**sent["fields"], "q.other_fault": "ecc", "f.note": "kept"}
    shown = client.post(sent["action"], data={**fields, "do": "search:other_fault"})
    assert "gpu-ecc" in shown.text
    assert ">\nkept</textarea>" in shown.text
    shown = client.post(sent["action"], data={**fields, "do": "submit"})
    assert "Please complete this required field" in shown.text
    shown = client.post(
        sent["action"], data={**fields, "f.cause": "other", "f.other_fault": "gpu-ecc", "f.note": "", "do": "submit"}
    )
    assert "Say what it was" in shown.text
    shown = client.post(sent["action"], data={**fields, "f.cause": "d1", "do": "submit"})
    assert 'role="dialog"' not in shown.text
    assert made.until(lambda: made.messages(ALERTS)[-1].text == "closed: d1")


def test_threads_mentions_shortcuts_and_the_home_tab_are_used_by_forms(page):
    """Each is a form, too."""
    made, client = page
    at = f"/at/{ANN}/{ALERTS}"
    client.post(f"{at}/say", data={"text": f"@{made.app.name} diagnose <7>"})
    ts = made.messages(ALERTS)[0].ts
    assert made.messages(ALERTS)[0].text == f"<@{made.app.user}> diagnose &lt;7&gt;"
    assert made.until(lambda: made.thread(ALERTS, ts))
    assert "1 reply" in client.get(at).text
    shown = client.post(f"{at}/say", data={"text": "thanks", "thread": ts})
    assert (shown.url.params["thread"], [message.text for message in made.thread(ALERTS, ts)][-1]) == (ts, "thanks")
    shown = client.post(f"{at}/say", data={"text": "/diagnose 7", "thread": ts})
    assert "do not work in threads" in shown.text
    client.post(f"{at}/shortcut", data={"ts": ts, "callback_id": "diagnose_message"})
    assert made.until(lambda: made.modal(ANN))
    made.close(ANN)
    client.post(f"/at/{ANN}/home/open")
    assert made.until(lambda: made.home(ANN))
    shown = client.get(f"/at/{ANN}/home")
    click = form_of(shown, "/home/act", action_id="home_refresh")
    client.post(click["action"], data=click["fields"])
    assert made.until(lambda: "Refreshed" in client.get(f"/at/{ANN}/home").text)


def test_what_is_not_possible_is_reported_on_the_page(page):
    """An unknown command gives a notice by Slack itself; an ephemeral message can be dismissed."""
    made, client = page
    shown = client.post(f"/at/{ANN}/{ALERTS}/say", data={"text": "/explode now"})
    assert "/explode is not a valid command" in shown.text
    made.command(ANN, ALERTS, "/diagnose", "7")
    ts = next(ephemeral.ts for ephemeral in made.ephemerals(ALERTS, ANN) if ephemeral.by_app)
    shown = client.post(f"/at/{ANN}/{ALERTS}/dismiss", data={"ts": ts})
    assert "looking at 7" not in shown.text


def test_each_user_sees_only_what_is_theirs(page):
    """Other channels and other people's ephemeral messages are not shown."""
    made, client = page
    made.command(ANN, ALERTS, "/diagnose", "7")
    assert "Only visible to you" not in client.get(f"/at/{BO}/{ALERTS}").text
    assert [
        client.get(path).status_code for path in (f"/at/{BO}/{OPS}", "/at/U404/home", f"/at/{made.app.user}/home")
    ] == [404] * 3
    assert client.get("/switch", params={"user": BO, "channel": OPS}).url.path == f"/at/{BO}/{ALERTS}"


def test_a_permalink_leads_to_the_message(page):
    """To its channel and thread."""
    made, client = page
    message, _ = made.say(ANN, ALERTS, "hello")
    link = call(made.state, "chat.getPermalink", {"channel": ALERTS, "message_ts": message.ts})["permalink"]
    answer = client.get(link, follow_redirects=False)
    assert answer.headers["location"].endswith(f"/{ALERTS}#m{message.ts}")


class Marks(HTMLParser):
    """Collects whatever could run or lead away."""

    def __init__(self, text):
        super().__init__()
        self.found, self.tags = [], 0
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        """Note scripts that are not ours, handlers, and strange addresses."""
        self.tags += 1
        for name, value in attrs:
            if name.startswith("on") or (
                name in {"href", "src", "action"} and value and not value.startswith(("/", "#", "https://"))
            ):
                self.found.append((tag, name, value))
            if name == "src" and not value.startswith(("/-/", "/files/")):
                self.found.append((tag, name, value))
        if tag in {"iframe", "object", "embed", "base", "style"} or (
            tag == "script" and ("src", "/-/chat.js") not in attrs
        ):
            self.found.append((tag, attrs))


def test_hostile_words_stay_words_everywhere():
    """In blocks, modals, the Home tab and files: no script, no handler, nothing loaded from elsewhere."""
    made = workspace(rates=unlimited())
    with serving(made) as address, httpx.Client(base_url=address) as client:
        file = everywhere(made)
        for path in (f"/at/{ANN}/{ALERTS}", f"/at/{ANN}/home"):
            shown = client.get(path)
            marks = Marks(shown.text)
            assert (shown.status_code, marks.found) == (200, [])
            assert marks.tags > 50
            assert "{{7*7}}" in shown.text
            assert "default-src 'none'" in shown.headers["content-security-policy"]
        raw = client.get(f"/files/{file}")
        assert (raw.headers["content-type"], raw.headers["x-content-type-options"]) == (
            "text/plain; charset=utf-8",
            "nosniff",
        )


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Host": "evil.example"},
    ],
)
def test_other_sites_cannot_post(headers):
    """Neither with a form nor with a host name that points here."""
    made = workspace()
    client = create_app(made).test_client()
    at = f"/at/{ANN}/{ALERTS}/say"
    assert client.post(at, data={"text": "hello"}, headers=headers).status_code == 403
    assert made.messages(ALERTS) == []
    assert client.post(at, data={"text": "hello"}, headers={"Origin": "http://localhost"}).status_code == 303


@pytest.mark.parametrize("back", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:1"])
def test_nobody_is_led_away(back):
    """The return address is on this page."""
    made = workspace()
    call(made.state, "views.open", {"trigger_id": made.state.trigger(ANN), "view": modal("h")})
    answer = create_app(made).test_client().post(f"/at/{ANN}/modal", data={"back": back, "do": "close"})
    assert answer.status_code == 400


def test_a_modal_that_was_replaced_meanwhile_is_not_sent():
    """The form names its view."""
    made = workspace()
    call(made.state, "views.open", {"trigger_id": made.state.trigger(ANN), "view": modal("new")})
    create_app(made).test_client().post(f"/at/{ANN}/modal", data={"back": "/", "do": "close", "view": "V404"})
    assert made.modal(ANN).source["private_metadata"] == "new"


def test_uploaded_pictures_are_shown_and_others_are_not_fetched():
    """An image block with a workspace file, by id or address, is shown; for others only the text."""
    made = workspace()
    client = create_app(made).test_client()
    file = call(made.state, "files.getUploadURLExternal", {"filename": "p.png", "length": 4})["file_id"]
    blocks = [
        {"type": "image", "slack_file": {"id": file}, "alt_text": "ranks"},
        {"type": "image", "image_url": "https://x/y.png", "alt_text": "from afar"},
    ]
    call(made.state, "chat.postMessage", {"channel": ALERTS, "text": "x", "blocks": blocks})
    shown = client.get(f"/at/{ANN}/{ALERTS}").text
    assert re.findall(r'<img[^>]* src="([^"]*)"', shown) == [f"/files/{file}"]
    assert "from afar" in shown
    assert client.get("/files/F404").status_code == 404


def test_a_page_of_a_channel_with_thousands_of_messages_is_bounded():
    """The newest are shown."""
    made = workspace()
    for number in range(700):
        made.say(ANN, RANDOM, f"message {number}.")
    shown = create_app(made).test_client().get(f"/at/{ANN}/{RANDOM}").text
    assert shown.count("<article") == 300
    assert "message 699." in shown
    assert "400 older messages" in shown


def test_sections_are_drawn_as_they_were_posted():
    """Text, fields and accessory; options of a menu."""
    made = workspace()
    made.say(ANN, ALERTS, "*bold* &amp; <https://x.org|link>")
    call(made.state, "chat.postMessage", {"channel": ALERTS, "text": "x", "blocks": [section("*b* <@U0ANN>")]})
    shown = create_app(made).test_client().get(f"/at/{ANN}/{ALERTS}").text
    assert '<b>bold</b> &amp; <a href="https://x.org"' in shown
    assert '<b>b</b> <span class="mention">@ann</span>' in shown
