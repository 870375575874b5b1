"""The Web API over HTTP, called with Slack's own SDK: what it does, what it rejects, and rate limits."""

from __future__ import annotations

import json
import logging
from http.client import HTTPException

import httpx
import pytest
from slack_sdk import WebClient
from slack_sdk.errors import SlackApiError
from slack_sdk.webhook import WebhookClient

from bot.demo.fakeslack.rate_limits import RateLimits, unlimited
from bot.demo.fakeslack.state import URL_LIFE
from bot.demo.fakeslack.ui.serve import serving
from bot.demo.fakeslack.values import SCOPES, App
from tests.support.fakeslack_apps import ALERTS, ANN, BO, OPS, RANDOM, Clock, modal, plain, section, workspace

logging.getLogger("tests.sdk").setLevel(logging.CRITICAL)


def client_of(made, address, **more):
    """Return Slack's client for the app's token, without retries."""
    return WebClient(
        made.app.bot_token,
        base_url=f"{address}/api/",
        retry_handlers=[],
        logger=logging.getLogger("tests.sdk"),
        **more,
    )


@pytest.fixture
def slack():
    """A workspace with a fixed clock and no rate limits, and the SDK's client."""
    made = workspace(clock=Clock(), rates=unlimited())
    with serving(made, pages=False) as address:
        yield made, client_of(made, address)


def error_of(act):
    """Return Slack's error code of a rejected call."""
    with pytest.raises(SlackApiError) as caught:
        act()
    return caught.value.response["error"]


def test_a_message_is_posted_edited_and_deleted(slack):
    """The three calls of a message."""
    made, client = slack
    ts = client.chat_postMessage(channel=ALERTS, text="one", blocks=[section("one")])["ts"]
    assert [(message.text, message.thread_ts) for message in made.messages(ALERTS)] == [("one", None)]
    told = client.chat_update(channel=ALERTS, ts=ts, text="two")
    assert (told["text"], made.messages(ALERTS)[0].text) == ("two", "two")
    assert [section("one")["text"]] == [
        block["text"] for block in told["message"]["blocks"]
    ]  # they stay where none are given
    client.chat_update(channel=ALERTS, ts=ts, text="two", blocks=[])
    assert made.messages(ALERTS)[0].blocks == ()
    client.chat_delete(channel=ALERTS, ts=ts)
    assert made.messages(ALERTS) == []


def test_the_answer_to_a_post_has_the_message_as_slack_gives_it(slack):
    """Author, app, and an id for each block that had none."""
    made, client = slack
    told = client.chat_postMessage(channel=ALERTS, text="x", blocks=[section("x")])
    block = told["message"]["blocks"][0]
    assert {**section("x"), "block_id": block["block_id"]} == block
    assert ("message", made.app.user, made.app.bot, made.app.id, "T0LOCAL") == tuple(
        told["message"][key] for key in ("type", "user", "bot_id", "app_id", "team")
    )


def test_replies_stay_in_their_thread(slack):
    """A reply is listed only under its parent, and cannot start a thread."""
    made, client = slack
    ts = client.chat_postMessage(channel=ALERTS, text="one")["ts"]
    reply = client.chat_postMessage(channel=ALERTS, text="reply", thread_ts=ts)["ts"]
    assert (
        [message.text for message in made.messages(ALERTS)],
        [message.text for message in made.thread(ALERTS, ts)],
    ) == (["one"], ["reply"])
    assert (
        error_of(lambda: client.chat_postMessage(channel=ALERTS, text="x", thread_ts=reply))
        == "cannot_reply_to_message"
    )
    assert error_of(lambda: client.chat_postMessage(channel=ALERTS, text="x", thread_ts="1.2")) == "thread_not_found"


REFUSED = {
    "no such channel": ("channel_not_found", lambda client: client.chat_postMessage(channel="C404", text="x")),
    "not invited": ("not_in_channel", lambda client: client.chat_postMessage(channel=RANDOM, text="x")),
    "private and not invited": ("channel_not_found", lambda client: client.chat_postMessage(channel=OPS, text="x")),
    "nothing to say": ("no_text", lambda client: client.api_call("chat.postMessage", json={"channel": ALERTS})),
    "blocks without fallback": (
        "no_text",
        lambda client: client.api_call("chat.postMessage", json={"channel": ALERTS, "blocks": [section("x")]}),
    ),
    "40,001 characters": ("msg_too_long", lambda client: client.chat_postMessage(channel=ALERTS, text="x" * 40_001)),
    "unsound blocks": (
        "invalid_blocks",
        lambda client: client.chat_postMessage(channel=ALERTS, text="x", blocks=[section("")]),
    ),
    "blocks that are no JSON": (
        "invalid_blocks_format",
        lambda client: client.chat_postMessage(channel=ALERTS, text="x", blocks="[{"),
    ),
    "metadata without a type": (
        "invalid_metadata_format",
        lambda client: client.chat_postMessage(channel=ALERTS, text="x", metadata={"event_payload": {}}),
    ),
    "metadata of 5 kB": (
        "metadata_too_large",
        lambda client: client.chat_postMessage(
            channel=ALERTS, text="x", metadata={"event_type": "a", "event_payload": {"x": "x" * 5000}}
        ),
    ),
    "no such message": ("message_not_found", lambda client: client.chat_update(channel=ALERTS, ts="1.2", text="x")),
    "no such message to delete": ("message_not_found", lambda client: client.chat_delete(channel=ALERTS, ts="1.2")),
    "a user elsewhere": (
        "user_not_in_channel",
        lambda client: client.chat_postEphemeral(channel=ALERTS, user="U0CY", text="x"),
    ),
    "nobody": ("user_not_found", lambda client: client.users_info(user="U404")),
    "no such group": ("no_such_subteam", lambda client: client.usergroups_users_list(usergroup="S404")),
    "unknown method": ("unknown_method", lambda client: client.api_call("chat.scheduleMessage", json={"a": 1})),
    "unknown argument": (
        "invalid_arguments",
        lambda client: client.chat_postMessage(channel=ALERTS, text="x", colour="red"),
    ),
    "another team": (
        "invalid_arguments",
        lambda client: client.api_call("auth.test", params={"team_id": "T404"}),
    ),
    "a trigger from nowhere": (
        "invalid_trigger_id",
        lambda client: client.views_open(trigger_id="1.2.3", view=modal("h")),
    ),
    "an unsound view": (
        "invalid_arguments",
        lambda client: client.views_open(trigger_id="1.2.3", view={**modal("h"), "title": plain("x" * 25)}),
    ),
    "no such view": ("not_found", lambda client: client.views_update(view_id="V404", view=modal("h"))),
    "files of no length": (
        "invalid_arguments",
        lambda client: client.files_getUploadURLExternal(filename="a", length=0),
    ),
    "a file of 2 GB": (
        "file_upload_size_restricted",
        lambda client: client.files_getUploadURLExternal(filename="a", length=2_000_000_000),
    ),
    "a file never announced": (
        "file_not_found",
        lambda client: client.files_completeUploadExternal(files=[{"id": "F404", "title": "a"}]),
    ),
    "reactions": ("missing_scope", lambda client: client.reactions_add(channel=ALERTS, timestamp="1.2", name="x")),
    "conversations": ("missing_scope", lambda client: client.conversations_open(users=[ANN])),
    "file details": ("missing_scope", lambda client: client.files_info(file="F1")),
}


@pytest.mark.parametrize("name", REFUSED)
def test_calls_are_refused_in_slacks_words(slack, name):
    """Each documented error that our app can meet."""
    made, client = slack
    made.add_user("U0CY", "cy")
    error, act = REFUSED[name]
    assert error == error_of(lambda: act(client))
    assert not made.traffic[-1].ok


def test_an_unsound_message_is_refused_with_the_reason(slack):
    """The reason is in `response_metadata`, as the SDK shows it."""
    _, client = slack
    with pytest.raises(SlackApiError) as caught:
        client.chat_postMessage(channel=ALERTS, text="x", blocks=[section("x" * 3001)])
    assert (caught.value.response["response_metadata"]) == {
        "messages": ["[ERROR] must be less than 3001 characters [json-pointer:/blocks/0/text/text]"]
    }


def test_messages_of_others_cannot_be_changed(slack):
    """The app edits and deletes only its own messages."""
    made, client = slack
    message, _ = made.say(ANN, ALERTS, "hello")
    assert error_of(lambda: client.chat_update(channel=ALERTS, ts=message.ts, text="x")) == "cant_update_message"
    assert error_of(lambda: client.chat_delete(channel=ALERTS, ts=message.ts)) == "cant_delete_message"


def test_an_ephemeral_message_is_seen_by_one_and_cannot_be_edited(slack):
    """Others do not see it, and chat.update does not find it."""
    made, client = slack
    ts = client.chat_postEphemeral(channel=ALERTS, user=ANN, text="psst")["message_ts"]
    assert (
        [ephemeral.text for ephemeral in made.ephemerals(ALERTS, ANN)],
        made.ephemerals(ALERTS, BO),
        made.messages(ALERTS),
    ) == (["psst"], [], [])
    assert error_of(lambda: client.chat_update(channel=ALERTS, ts=ts, text="x")) == "message_not_found"


def test_people_and_groups_are_read(slack):
    """Members of a group, groups, and a user's name, without an e-mail address."""
    _, client = slack
    assert client.usergroups_users_list(usergroup="S0ONCALL")["users"] == [BO]
    assert [usergroup["handle"] for usergroup in client.usergroups_list()["usergroups"]] == ["hw-oncall"]
    assert client.users_info(user=ANN)["user"]["profile"] == {"real_name": "Ann Lee", "display_name": "ann"}


def test_a_message_to_a_user_goes_to_the_direct_conversation(slack):
    """The user's id is accepted as the channel and needs no scope."""
    made, client = slack
    channel = client.chat_postMessage(channel=ANN, text="hello")["channel"]
    assert (made.state.channels[channel].direct, [message.text for message in made.messages(channel)]) == (
        True,
        ["hello"],
    )


def test_a_permalink_names_the_message(slack):
    """In a thread also the thread."""
    _, client = slack
    ts = client.chat_postMessage(channel=ALERTS, text="x")["ts"]
    reply = client.chat_postMessage(channel=ALERTS, text="y", thread_ts=ts)["ts"]
    link = client.chat_getPermalink(channel=ALERTS, message_ts=reply)["permalink"]
    assert link.endswith(f"/archives/{ALERTS}/p{reply.replace('.', '')}?thread_ts={ts}&cid={ALERTS}")


def test_forms_do_what_json_does(slack):
    """Structures are JSON text in forms."""
    made, client = slack
    form = {"token": made.app.bot_token, "channel": ALERTS, "text": "x", "blocks": json.dumps([section("x")])}
    told = httpx.post(f"{client.base_url}chat.postMessage", data=form).json()
    assert (told["ok"], made.messages(ALERTS)[0].blocks[0]["type"]) == (True, "section")


@pytest.mark.parametrize(
    ("headers", "body", "error"),
    [
        ({}, b"{}", "not_authed"),
        ({"Authorization": "Bearer xoxb-other"}, b"{}", "invalid_auth"),
        ({"Authorization": "Bearer xapp-local-double"}, b"{}", "not_allowed_token_type"),
        ({"Authorization": "Bearer xoxb-local-double"}, b"{", "invalid_json"),
        ({"Authorization": "Bearer xoxb-local-double"}, b"[]", "json_not_object"),
    ],
)
def test_tokens_and_bodies_are_looked_at_first(slack, headers, body, error):
    """A wrong token, the app-level token for a bot method, and broken JSON give different errors."""
    _, client = slack
    sent = httpx.post(
        f"{client.base_url}auth.test", content=body, headers={**headers, "Content-Type": "application/json"}
    )
    assert {"ok": False, "error": error} == sent.json()


def test_scopes_decide(slack):
    """A missing scope is named, together with the granted ones; with the scope the call works."""
    _, client = slack
    with pytest.raises(SlackApiError) as caught:
        client.files_info(file="F1")
    assert ("files:read", ",".join(SCOPES)) == tuple(caught.value.response[key] for key in ("needed", "provided"))
    wider = workspace(app=App(scopes=(*SCOPES, "im:write", "reactions:write", "team:read")))
    with serving(wider, pages=False) as address:
        other = client_of(wider, address)
        assert other.conversations_open(users=[ANN])["channel"]["id"].startswith("D")
        assert other.team_info()["team"]["name"] == "local"
        assert other.reactions_add(channel=ALERTS, timestamp="1.2", name="eyes")["ok"]


def test_a_file_is_uploaded_into_a_thread(slack):
    """The SDK's three steps; the response names the file, but not its message."""
    made, client = slack
    ts = client.chat_postMessage(channel=ALERTS, text="x")["ts"]
    told = client.files_upload_v2(
        channel=ALERTS, thread_ts=ts, content=b"a\nb", filename="e.txt", title="Evidence", initial_comment="see"
    )
    assert {"id": told["file"]["id"], "title": "Evidence"} == told["file"]
    (reply,) = made.thread(ALERTS, ts)
    (file,) = made.files
    assert ("see", (file.id,), b"a\nb", "text/plain") == (reply.text, reply.files, file.data, file.mimetype)


def test_an_upload_of_another_length_is_refused(slack):
    """The length must match the announcement; completing a missing or completed upload fails."""
    _, client = slack
    told = client.files_getUploadURLExternal(filename="a.txt", length=3)
    files = [{"id": told["file_id"], "title": "a"}]
    assert httpx.post(told["upload_url"], content=b"four").status_code == 400
    assert error_of(lambda: client.files_completeUploadExternal(files=files)) == "file_update_failed"
    assert (
        (sent := httpx.post(told["upload_url"], files={"file": b"abc"})).status_code,
        sent.text,
    ) == (200, "OK - 3")
    client.files_completeUploadExternal(files=files)
    assert error_of(lambda: client.files_completeUploadExternal(files=files)) == "file_update_failed"
    assert httpx.post(told["upload_url"], content=b"abc").status_code == 404


def test_where_a_file_was_shared_is_reported_by_its_details():
    """`shares` has the message's ts, which the completing call does not return."""
    made = workspace(app=App(scopes=(*SCOPES, "files:read")))
    with serving(made, pages=False) as address:
        client = client_of(made, address)
        told = client.files_upload_v2(channel=ALERTS, content="x", filename="p.png", title="P")
        file = client.files_info(file=told["file"]["id"])["file"]
        assert {"public": {ALERTS: [{"ts": made.messages(ALERTS)[0].ts}]}} == file["shares"]
        assert file["mimetype"] == "image/png"


def test_a_modal_opens_once_within_three_seconds(slack):
    """A trigger_id is valid for one modal, and for three seconds."""
    made, client = slack
    trigger = made.state.trigger(ANN)
    view = client.views_open(trigger_id=trigger, view=modal("h"))["view"]
    assert (view["id"], "h") == (made.modal(ANN).id, view["private_metadata"])
    assert error_of(lambda: client.views_open(trigger_id=trigger, view=modal("h"))) == "exchanged_trigger_id"
    late = made.state.trigger(ANN)
    made.state.clock.time += 3.1
    assert error_of(lambda: client.views_open(trigger_id=late, view=modal("h"))) == "expired_trigger_id"


def test_three_modals_stand_upon_each_other_at_most(slack):
    """views.push needs a trigger from a modal; the fourth is rejected."""
    made, client = slack
    client.views_open(trigger_id=made.state.trigger(ANN), view=modal("1"))
    for text in ("2", "3"):
        client.views_push(trigger_id=made.state.trigger(ANN, made.modal(ANN).id), view=modal(text))
    assert (made.modal(ANN).source["private_metadata"], len(made.state.stacks[ANN])) == ("3", 3)
    trigger = made.state.trigger(ANN, made.modal(ANN).id)
    assert error_of(lambda: client.views_push(trigger_id=trigger, view=modal("4"))) == "push_limit_reached"
    assert (
        error_of(lambda: client.views_push(trigger_id=made.state.trigger(ANN), view=modal("from a message")))
        == "not_found"
    )


def test_a_view_is_updated_only_as_it_was_seen(slack):
    """The hash prevents races; the external_id is unique."""
    made, client = slack
    view = client.views_open(trigger_id=made.state.trigger(ANN), view={**modal("1"), "external_id": "x"})["view"]
    client.views_update(external_id="x", hash=view["hash"], view={**modal("2"), "external_id": "x"})
    assert made.modal(ANN).source["private_metadata"] == "2"
    assert (
        error_of(lambda: client.views_update(view_id=view["id"], hash=view["hash"], view=modal("3"))) == "hash_conflict"
    )
    assert (
        error_of(lambda: client.views_open(trigger_id=made.state.trigger(BO), view={**modal("1"), "external_id": "x"}))
        == "duplicate_external_id"
    )


def test_what_was_typed_stays_when_a_modal_is_updated(slack):
    """If block_id and action_id are the same."""
    made, client = slack
    view = client.views_open(trigger_id=made.state.trigger(ANN), view=modal("1"))["view"]
    made.fill(ANN, {"note": "typed", "cause": "other"})
    told = client.views_update(view_id=view["id"], view={**modal("2"), "blocks": modal("2")["blocks"][1:]})["view"]
    assert told["state"]["values"] == {
        "other_fault": {"other_fault": {"type": "external_select", "selected_option": None}},
        "note": {"note": {"type": "plain_text_input", "value": "typed"}},
    }


def test_the_home_tab_is_published_for_one(slack):
    """Each user has one; a modal cannot be published."""
    made, client = slack
    client.views_publish(user_id=ANN, view={"type": "home", "blocks": [section("ann's")]})
    assert ([block["text"]["text"] for block in made.home(ANN).blocks], made.home(BO)) == (["ann's"], None)
    assert error_of(lambda: client.views_publish(user_id=ANN, view=modal("h"))) == "invalid_arguments"


def test_a_response_url_is_good_for_five_answers_in_half_an_hour(slack):
    """The sixth is rejected as used_url, a late one as expired_url."""
    made, _ = slack
    hook = WebhookClient(made.state.response_url(ANN, ALERTS), retry_handlers=[])
    assert [hook.send(text=f"{number}").status_code for number in range(6)] == [200] * 5 + [404]
    assert json.loads(hook.send(text="x").body)["error"] == "used_url"
    assert [ephemeral.text for ephemeral in made.ephemerals(ALERTS, ANN)] == ["0", "1", "2", "3", "4"]
    late = WebhookClient(made.state.response_url(ANN, ALERTS), retry_handlers=[])
    made.state.clock.time += URL_LIFE + 1
    assert ((sent := late.send(text="x")).status_code, json.loads(sent.body)["error"]) == (404, "expired_url")


def test_a_response_url_speaks_to_all_replaces_and_deletes(slack):
    """Even in a channel that the app is not in."""
    made, client = slack
    WebhookClient(made.state.response_url(ANN, RANDOM)).send(text="all", response_type="in_channel")
    assert [message.text for message in made.messages(RANDOM)] == ["all"]
    ts = client.chat_postMessage(channel=ALERTS, text="one")["ts"]
    hook = WebhookClient(made.state.response_url(ANN, ALERTS, (ALERTS, ts)))
    hook.send(text="two", replace_original=True)
    assert [message.text for message in made.messages(ALERTS)] == ["two"]
    hook.send(text="", delete_original=True)
    assert made.messages(ALERTS) == []
    assert hook.send(text="x", blocks=[section("")]).status_code == 400


def test_a_channel_takes_a_small_burst_then_one_message_a_second():
    """The sixth at once is rejected with Retry-After, only in this channel."""
    made = workspace(clock=Clock())
    with serving(made, pages=False) as address:
        client = client_of(made, address)
        for number in range(5):
            client.chat_postMessage(channel=ALERTS, text=f"{number}")
        with pytest.raises(SlackApiError) as caught:
            client.chat_postMessage(channel=ALERTS, text="5")
        told = caught.value.response
        assert (told.status_code, told["error"], told.headers["Retry-After"]) == (429, "ratelimited", "1")
        client.chat_postMessage(channel=ANN, text="elsewhere")
        made.state.clock.time += 1
        client.chat_postMessage(channel=ALERTS, text="5")


def test_methods_are_limited_by_their_tier():
    """chat.update is tier 3, fifty a minute; limits are configurable."""
    rates = RateLimits({"views.open": 2})
    assert [rates.wait("chat.update", ALERTS, 0.0) for _ in range(51)] == [0] * 50 + [2]
    assert [rates.wait("views.open", "", 0.0) for _ in range(3)] == [0, 0, 30]
    assert [rates.wait("auth.test", "", 0.0) for _ in range(500)] == [0] * 500


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("kind", ["500", "503", "reset", "timeout", "ratelimited", "error"])
def test_ordered_trouble_hits_one_call_before_or_after_it_is_done(slack, kind, after):
    """The caller sees the failure in both cases; the message exists only if the call took effect. The next call succeeds."""
    made, client = slack
    seconds = 0.3 if kind == "timeout" else 2.0
    made.trouble("chat.postMessage", kind, after=after, seconds=seconds)
    patient = client_of(made, made.state.base_url, timeout=0.1) if kind == "timeout" else client
    with pytest.raises((SlackApiError, OSError, HTTPException)) as caught:
        patient.chat_postMessage(channel=ALERTS, text="x")
    if kind == "ratelimited":
        assert isinstance(caught.value, SlackApiError)
        assert caught.value.response.headers["Retry-After"] == "2"
    assert ["x"] * after == [message.text for message in made.messages(ALERTS)]
    client.chat_postMessage(channel=ALERTS, text="y")
    assert made.messages(ALERTS)[-1].text == "y"


def test_the_traffic_is_written_down_without_the_token(slack):
    """Method, arguments, status and response of each call."""
    made, client = slack
    client.chat_postMessage(channel=ALERTS, text="x")
    call = made.traffic[-1]
    assert (
        call.method,
        call.arguments,
        call.status,
        call.ok,
    ) == ("chat.postMessage", {"channel": ALERTS, "text": "x"}, 200, True)
