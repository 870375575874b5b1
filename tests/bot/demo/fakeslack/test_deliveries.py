"""Deliveries to the app: signed, complete, in time; and the effect of responses. Driven by a real Bolt app and plain listeners."""

from __future__ import annotations

import json
import threading
from urllib.parse import parse_qs

import pytest
from flask import Response, request
from slack_sdk.signature import SignatureVerifier

from bot.demo.fakeslack.rate_limits import unlimited
from bot.demo.fakeslack.values import NotPossible
from tests.support.fakeslack_apps import (
    ALERTS,
    ANN,
    BO,
    OPS,
    RANDOM,
    Clock,
    Listener,
    heard,
    modal,
    running,
    section,
    workspace,
)


@pytest.fixture
def slack():
    """A workspace with a running Bolt app."""
    made = workspace(rates=unlimited())
    with running(made):
        yield made


def answering(body, status=200):
    """Return a listener that always responds with this JSON or text."""
    kind = "text/plain" if isinstance(body, str) else "application/json"
    text = body if isinstance(body, str) else json.dumps(body)
    return Listener(lambda _: Response(text, status, content_type=kind))


def posted(made, count=1):
    """Return the app's messages in #alerts, once there are this many."""
    assert made.until(lambda: len([message for message in made.messages(ALERTS) if message.by_app]) >= count)
    return [message for message in made.messages(ALERTS) if message.by_app]


def test_a_command_is_acknowledged_and_its_answer_seen_by_its_user_only(slack):
    """The acknowledgement's text is ephemeral; the app can also post."""
    told = slack.command(ANN, ALERTS, "/diagnose", "job 7")
    assert (told.status, told.acknowledged, told.trouble, told.body) == (200, True, None, b"looking at job 7")
    assert [text.text for text in posted(slack)] == ["job 7 failed"]
    assert (
        [ephemeral.text for ephemeral in slack.ephemerals(ALERTS, ANN)],
        slack.ephemerals(ALERTS, BO),
    ) == (["looking at job 7"], [])


def test_commands_are_forms_signed_as_slack_signs():
    """All documented fields; the SDK's verifier accepts the signature, but not for another body."""
    made, listener = workspace(), Listener()
    with heard(made, listener):
        made.command(ANN, ALERTS, "/diagnose", "a b&c")
    headers, body = listener.seen[0]
    verifier = SignatureVerifier(made.app.signing_secret)
    assert verifier.is_valid_request(body, headers)
    assert not verifier.is_valid_request(body + b"x", headers)
    fields = {key: values[0] for key, values in parse_qs(body.decode()).items()}
    assert fields.pop("response_url").startswith(f"{made.state.base_url}/respond/T0LOCAL/")
    assert made.state.spend(fields.pop("trigger_id")).user == ANN
    assert {
        "token": made.app.token,
        "team_id": "T0LOCAL",
        "team_domain": "local",
        "channel_id": ALERTS,
        "channel_name": "alerts",
        "user_id": ANN,
        "user_name": "ann",
        "command": "/diagnose",
        "text": "a b&c",
        "api_app_id": made.app.id,
        "is_enterprise_install": "false",
    } == fields


@pytest.mark.parametrize(
    ("listener", "words"),
    [
        (answering("no", 404), '/diagnose failed with the error "http_client_error"'),
        (answering("no", 500), '/diagnose failed with the error "http_service_error"'),
        (
            answering({"text": "x", "colour": "red"}),
            '/diagnose failed with the error "invalid_command_response: invalid_arguments: no such field: colour"',
        ),
        (
            answering({"text": "x", "blocks": [section("")]}),
            '/diagnose failed with the error "invalid_command_response: invalid_blocks: must be more than 0 characters [json-pointer:/blocks/0/text/text]"',
        ),
    ],
)
def test_a_command_that_fails_says_so_to_its_user(listener, words):
    """With a notice by Slack itself; nothing is retried."""
    made = workspace()
    with heard(made, listener):
        assert words == made.command(ANN, ALERTS, "/diagnose").trouble
    assert [(words, True)] == [(ephemeral.text, ephemeral.by_slack) for ephemeral in made.ephemerals(ALERTS, ANN)]
    assert len(listener.seen) == 1


def test_an_acknowledgement_after_the_time_is_a_timeout():
    """The user sees operation_timeout; the record has the duration."""
    over = threading.Event()
    listener = Listener(lambda _: Response(str(over.wait(60))))
    made = workspace(patience=0.2)
    with heard(made, listener):
        told = made.command(ANN, ALERTS, "/diagnose")
        over.set()
    assert (told.trouble, told.status) == ('/diagnose failed with the error "operation_timeout"', None)
    assert 0.2 <= told.seconds < 40


def test_nobody_listening_is_a_failed_dispatch():
    """If the app is down, or was never configured."""
    made = workspace()
    assert made.command(ANN, ALERTS, "/diagnose").counted.error == "dispatch_failed"
    made.connect("http://127.0.0.1:1/slack/events")
    assert made.command(ANN, ALERTS, "/diagnose").counted.error == "dispatch_failed"
    made.connect()


def test_an_answer_in_the_channel_is_seen_by_all():
    """response_type in_channel, with blocks."""
    made = workspace()
    with heard(made, answering({"response_type": "in_channel", "text": "hi", "blocks": [section("hi")]})):
        made.command(ANN, ALERTS, "/diagnose")
    assert [(message.text, message.only_for) for message in made.messages(ALERTS)] == [("hi", None)]


@pytest.mark.parametrize(
    "act",
    [
        lambda made: made.command(ANN, ALERTS, "/other"),
        lambda made: made.command(BO, OPS, "/diagnose"),
        lambda made: made.say(BO, OPS, "hello"),
        lambda made: made.mention(ANN, RANDOM, "diagnose 7"),
        lambda made: made.submit(ANN),
        lambda made: made.click(ANN, ALERTS, "1.2", "right"),
        lambda made: made.shortcut(ANN, ALERTS, made.say(ANN, ALERTS, "x")[0].ts, "other"),
        lambda made: made.act_at_home(ANN, "refresh"),
    ],
)
def test_what_slacks_client_would_not_let_one_do_is_refused(act):
    """And nothing is sent."""
    made = workspace()
    with pytest.raises(NotPossible):
        act(made)
    assert made.deliveries == []


def test_a_click_comes_with_the_message_and_a_trigger(slack):
    """The payload has who, where, the whole message, and the action with its value."""
    slack.command(ANN, ALERTS, "/diagnose", "7")
    message = posted(slack)[0]
    told = slack.click(BO, ALERTS, message.ts, "right").payload
    assert ("block_actions", BO, ALERTS, message.ts, False, list(message.blocks)) == (
        told["type"],
        told["user"]["id"],
        told["channel"]["id"],
        told["container"]["message_ts"],
        told["container"]["is_ephemeral"],
        told["message"]["blocks"],
    )
    action = {key: value for key, value in told["actions"][0].items() if key != "action_ts"}
    text = {"type": "plain_text", "text": "Right"}
    assert {"type": "button", "block_id": "verdict", "action_id": "right", "value": "h1", "text": text} == action
    assert slack.until(lambda: [ephemeral.text for ephemeral in slack.ephemerals(ALERTS, BO)] == ["thanks, bo"])


def test_an_overflow_menu_sends_its_option_and_the_message_can_be_replaced(slack):
    """Through the response_url of the click."""
    slack.command(ANN, ALERTS, "/diagnose", "7")
    message = posted(slack)[0]
    with pytest.raises(NotPossible, match="no option has the value"):
        slack.click(ANN, ALERTS, message.ts, "more", "mute")
    slack.click(ANN, ALERTS, message.ts, "more", "again:h1")
    assert slack.until(lambda: slack.messages(ALERTS)[0].text == "again:h1")


def test_a_click_on_an_ephemeral_message_comes_without_the_message():
    """It has only its place, as with Slack; others cannot click it."""
    button = {"type": "button", "action_id": "a", "text": {"type": "plain_text", "text": "x"}}
    made = workspace()
    blocks = [{"type": "actions", "elements": [button]}]
    with heard(made, answering({"text": "which?", "blocks": blocks})):
        made.command(ANN, ALERTS, "/diagnose")
        ts = made.ephemerals(ALERTS, ANN)[0].ts
        told = made.click(ANN, ALERTS, ts, "a").payload
        with pytest.raises(NotPossible):
            made.click(BO, ALERTS, ts, "a")
    assert ("message" not in told, True) == (True, told["container"]["is_ephemeral"])


def opened(slack):
    """Ann's close-out modal."""
    slack.command(ANN, ALERTS, "/diagnose", "7")
    message = posted(slack)[-1]
    slack.click(ANN, ALERTS, message.ts, "close_out")
    assert slack.until(lambda: slack.modal(ANN))
    return slack.modal(ANN)


def test_a_modal_is_filled_and_sent(slack):
    """The app gets the full state.values; an empty response closes the modal."""
    opened(slack)
    told = slack.submit(ANN, {"cause": "d1", "note": "drained"}).payload
    option = {"text": {"type": "plain_text", "text": "ECC error"}, "value": "d1"}
    assert {
        "cause": {"cause": {"type": "static_select", "selected_option": option}},
        "other_fault": {"other_fault": {"type": "external_select", "selected_option": None}},
        "note": {"note": {"type": "plain_text_input", "value": "drained"}},
    } == told["view"]["state"]["values"]
    assert (
        told["type"],
        told["view"]["callback_id"],
        told["view"]["private_metadata"],
    ) == ("view_submission", "close_out", "h1")
    assert (slack.modal(ANN), posted(slack, 2)[-1].text) == (None, "closed: d1")


def test_errors_of_the_app_are_shown_in_the_modal(slack):
    """With response_action errors the modal stays open with its values."""
    opened(slack)
    assert slack.submit(ANN, {"cause": "other"}).acknowledged
    assert slack.modal(ANN).errors == {"note": "Say what it was"}
    slack.submit(ANN, {"note": "a switch"})
    assert slack.modal(ANN) is None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "Please complete this required field"),
        ({"cause": "x"}, "no option has the value 'x'"),
        ({"cause": "d1", "note": "x" * 201}, "at most 200 characters can be entered"),
        ({"cause": "d1", "other_fault": "gpu-ecc"}, "no option has the value 'gpu-ecc'"),  # not suggested before
        ({"weather": "fine"}, "no input has the block_id weather"),
    ],
)
def test_a_modal_is_not_sent_with_what_does_not_fit(slack, given, words):
    """Slack's client validates before it submits."""
    opened(slack)
    before = len(slack.deliveries)
    with pytest.raises(NotPossible, match=words):
        slack.submit(ANN, given)
    assert before == len(slack.deliveries)


def test_an_external_select_is_answered_by_the_app(slack):
    """Its suggestions can then be chosen."""
    opened(slack)
    told = slack.suggest(ANN, "other_fault", "t")
    assert [option["value"] for option in told.options] == ["nccl-timeout", "host-oom"]
    assert tuple(told.payload[key] for key in ("type", "action_id", "value")) == (
        "block_suggestion",
        "other_fault",
        "t",
    )
    with pytest.raises(NotPossible, match="at least 1 characters"):
        slack.suggest(ANN, "other_fault", "")
    slack.submit(ANN, {"cause": "d1", "other_fault": "nccl-timeout"})
    assert slack.modal(ANN) is None


def test_the_app_hears_of_a_closed_modal_where_it_asked_to(slack):
    """view_closed, and then the modal is gone."""
    opened(slack)
    told = slack.close(ANN)
    assert (told.kind, told.payload["is_cleared"], told.acknowledged) == ("view_closed", False, True)
    assert (slack.modal(ANN), posted(slack, 2)[-1].text) == (None, "left open")


ANSWERS = {
    "update": ({"response_action": "update", "view": {**modal("new"), "blocks": [section("x")]}}, None, "new"),
    "push": ({"response_action": "push", "view": modal("above")}, None, "above"),
    "clear": ({"response_action": "clear"}, None, None),
    "no such action": ({"response_action": "explode"}, "invalid_response", "h"),
    "a text": ({"text": "thanks"}, "invalid_response", "h"),
    "errors of no input": ({"response_action": "errors", "errors": {"x": "y"}}, "invalid_response", "h"),
    "errors without words": ({"response_action": "errors", "errors": {"note": ""}}, "invalid_response", "h"),
    "an unsound view": ({"response_action": "update", "view": modal("x" * 3001)}, "invalid_arguments", "h"),
    "a server error": (Response("x", 500), "http_service_error", "h"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_to_a_sent_modal_do_what_they_say(name):
    """Valid responses are applied; invalid ones leave the modal open with Slack's error."""
    answer, trouble, shown = ANSWERS[name]
    made = workspace()
    listener = Listener(lambda _: answer) if isinstance(answer, Response) else answering(answer)
    with heard(made, listener) as address:
        made.state.base_url = address
        _open(made)
        told = made.submit(ANN, {"cause": "d1"})
    view = made.modal(ANN)
    assert shown == (view.source["private_metadata"] if view else None)
    assert trouble == (told.trouble.partition(":")[0] if told.trouble else None)
    assert ("We had some trouble connecting. Try again?" if trouble else None) == (view.trouble if view else None)


def _open(made):
    """Ann's modal, as if the app had opened it."""
    from bot.demo.fakeslack.methods import call

    call(made.state, "views.open", {"trigger_id": made.state.trigger(ANN), "view": modal("h")})


def test_a_shortcut_on_a_message_brings_the_message(slack):
    """message_action, with a trigger good for a modal."""
    message, _ = slack.say(BO, ALERTS, "job 7 hangs")
    told = slack.shortcut(ANN, ALERTS, message.ts, "diagnose_message").payload
    assert ("message_action", "job 7 hangs", BO, message.ts) == (
        told["type"],
        told["message"]["text"],
        told["message"]["user"],
        told["message_ts"],
    )
    assert slack.until(lambda: slack.modal(ANN))


def test_a_mention_is_an_event_also_in_a_thread(slack):
    """The app responds in the thread of the message."""
    told = slack.mention(ANN, ALERTS, "diagnose 7")
    event = told.payload["event"]
    assert ("app_mention", f"<@{slack.app.user}> diagnose 7", ANN, ALERTS) == tuple(
        event[key] for key in ("type", "text", "user", "channel")
    )
    assert (told.payload["type"], told.payload["event_id"].startswith("Ev")) == ("event_callback", True)
    assert slack.until(lambda: slack.thread(ALERTS, event["ts"]))
    slack.mention(ANN, ALERTS, "again", thread_ts=event["ts"])
    assert slack.until(lambda: len(slack.thread(ALERTS, event["ts"])) == 3)


def test_the_home_tab_is_opened_and_worked(slack):
    """The event contains the view once there is one; its buttons send it."""
    assert "view" not in slack.open_home(ANN).payload["event"]
    assert slack.until(lambda: slack.home(ANN))
    told = slack.act_at_home(ANN, "home_refresh").payload
    assert ({"type": "view", "view_id": slack.home(ANN).id}, "home") == (told["container"], told["view"]["type"])
    assert slack.until(lambda: slack.home(ANN).blocks[0]["text"]["text"] == "Refreshed")
    assert slack.open_home(ANN).payload["event"]["view"]["type"] == "home"


def test_events_are_sent_again_at_once_after_a_minute_and_after_five():
    """With the number and the reason; the third is the last."""
    listener = answering("no", 500)
    made = workspace(clock=(clock := Clock()))
    with heard(made, listener):
        told = made.mention(ANN, ALERTS, "hello")
        assert (len(told.answers), made.post.owed(), told.acknowledged) == (2, 1, False)
        clock.time += 59
        assert made.tick() == []
        for seconds, seen, owed in ((1, 3, 1), (300, 4, 0), (3000, 4, 0)):
            clock.time += seconds
            made.tick()  # the server's own look may have been first
            assert made.until(lambda seen=seen, owed=owed: (len(listener.seen), made.post.owed()) == (seen, owed))
    headers = [(item.get("x-slack-retry-num"), item.get("x-slack-retry-reason")) for item, _ in listener.seen]
    assert headers == [(None, None), ("1", "http_error"), ("2", "http_error"), ("3", "http_error")]
    assert len({json.loads(body)["event_id"] for _, body in listener.seen}) == 1


def test_an_event_acknowledged_at_the_second_try_is_not_sent_again():
    """A successful retry is the last."""
    answers = iter([500, 200])
    listener = Listener(lambda _: Response("", next(answers)))
    made = workspace()
    with heard(made, listener):
        assert (made.mention(ANN, ALERTS, "hello").acknowledged, made.post.owed()) == (True, 0)


def test_an_app_can_ask_for_no_retry():
    """With a header of its response."""
    listener = Listener(lambda _: Response("", 500, {"X-Slack-No-Retry": "1"}))
    made = workspace()
    with heard(made, listener):
        assert (len(made.mention(ANN, ALERTS, "hello").answers), made.post.owed()) == (1, 0)


def test_deliveries_go_to_replicas_in_turn():
    """One each."""
    first, second = Listener(), Listener()
    made = workspace()
    with heard(made, first, second):
        for _ in range(4):
            made.command(ANN, ALERTS, "/diagnose")
    assert (len(first.seen), len(second.seen)) == (2, 2)


def test_everything_can_come_twice_at_the_same_time_to_two_replicas():
    """Both get the same body at once, before either responds."""
    both = threading.Barrier(2, timeout=60)
    first, second = (Listener(lambda _: Response(f"{both.wait() >= 0}")) for _ in range(2))
    made = workspace(duplicate=True)
    with heard(made, first, second):
        told = made.command(ANN, ALERTS, "/diagnose", "7")
        made.mention(ANN, ALERTS, "hello")
    assert (len(told.answers), told.acknowledged) == (2, True)
    assert [body for _, body in first.seen] == [body for _, body in second.seen]
    assert sorted((item[1][0].get("x-slack-retry-num") for item in (first.seen, second.seen)), key=str) == ["1", None]
    assert len(made.ephemerals(ALERTS, ANN)) == 1  # the first answer counts


def test_requests_of_the_app_to_slack_may_come_while_it_is_called():
    """No lock is held during a delivery."""
    made = workspace()

    def calls_back(_):
        assert made.until(lambda: True, 5)
        return Response(made.state.users[request.form["user_id"]].name)

    with heard(made, Listener(calls_back)):
        assert made.command(ANN, ALERTS, "/diagnose").body == b"ann"
