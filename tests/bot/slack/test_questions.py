"""What people write to the app: in direct messages and after a mention, as commands and as questions."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from bot.queue.payloads import DiagnosePayload
from bot.render.report_json import dumps
from bot.slack.parsing.commands import read_diagnose
from bot.slack.parsing.questions import command_in, request_in
from bot.store.packed_reports import Origin
from tests.support.bot_samples import HEALTHY
from tests.support.common.slack_actions import only
from tests.support.slack_reading import read
from tests.support.slack_stage import ADA, CHANNEL


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("llm-7b", "llm-7b"),
        ("llm-7b last 2h", "llm-7b last 2h"),
        ("why did llm-7b fail?", "llm-7b"),
        ("llm-7b state FAILED", "llm-7b state FAILED"),
        ("why did llm-7b fail? check its state now", "llm-7b"),
        ("What happened to job 47110 last night?", "47110"),
        ("is `nightly` hanging", "nightly"),
        ("please look at train_70b.", "train_70b"),
        ("why is everything slow", ""),
        ("why did it fail?", ""),
        ("why did demo fail?", "demo"),
        ("Why has the job nightly died?", "nightly"),
        ("what happened to nightly", "nightly"),
        ("what's wrong with my run nightly?", "nightly"),
        ("is nightly hanging?", "nightly"),
        ("is anybody there", ""),
        ("please look into nightly.", "nightly"),
        ("how are you", ""),
        ("thanks, that was helpful", ""),
        ("did job llm-7b die of the out-of-memory bug?", "llm-7b"),
        ("compare llm-7b with llm-70b", ""),
        ("", ""),
    ],
)
def test_a_question_names_its_job(text, wanted):
    """As typed, labelled, quoted, where a question names it, or the only word like a name; nothing else is guessed."""
    assert request_in(text) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("what failed today?", "handover 24h"),
        ("Which jobs crashed yesterday", "handover 2d"),
        ("any failures this week?", "handover 7d"),
        ("what hung in the last 3 hours?", "handover 3 hours"),
        ("what failed?", "handover"),
        ("who is on call?", "oncall"),
        ("which nodes are excluded?", "nodes"),
        ("what can you do", ""),
        ("thanks", ""),
        ("how are you", ""),
    ],
)
def test_a_question_about_no_job_is_a_command(text, wanted):
    """What failed is a handover over that time."""
    assert command_in(text) == wanted


@pytest.mark.parametrize(
    ("text", "job", "state", "last"),
    [
        ("llm-7b --state completed", "llm-7b", "COMPLETED", None),
        ("llm-7b \u2014state FAILED last 2h", "llm-7b", "FAILED", 7200.0),
        ("llm-7b last 2h state=TIMEOUT private", "llm-7b", "TIMEOUT", 7200.0),
        ("state", "state", None, None),
    ],
)
def test_the_state_of_a_job_can_be_given(text, job, state, last):
    """As an option of the terminal or as words, in any order; Slack may have made one dash of two."""
    asked = read_diagnose(text)

    assert (asked.job, asked.state, asked.last) == (job, state, last)


def test_a_state_that_no_scheduler_has_is_refused():
    """With the words that are understood; and a given state is a task of its own."""
    assert "FAILED, COMPLETED" in read_diagnose("llm-7b --state FINE").problem
    plain, given = DiagnosePayload("llm-7b", "t"), DiagnosePayload("llm-7b", "t", state="FAILED")
    assert plain.key() != given.key()


TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ"


def direct(play, text):
    """Write to the app, and return what it answers there: messages, and those that only the person sees."""
    play.workspace.command(ADA, CHANNEL, "/signalbox", "help")  # who uses the channel may use direct messages
    play.workspace.command(ADA, CHANNEL, "/signalbox", "incidents")
    where = play.workspace.state.direct(ADA).id
    _, delivery = play.workspace.say(ADA, where, text)
    assert delivery is not None
    play.settle()
    return [message for message in play.workspace.messages(where) if message.by_app]


@pytest.mark.slow  # test_a_question_names_its_job
def test_a_question_in_a_direct_message_is_answered(play):
    """In the same place; the channel sees nothing."""
    answers = direct(play, "why did lm-tiny fail?")
    assert "# 🟢 lm-tiny: the run completed" in read(answers[0].blocks)  # the last of its runs
    assert play.answers() == []


def test_a_command_in_a_direct_message_is_answered(play):
    """Without a slash."""
    assert read(only(direct(play, "incidents")).blocks).startswith("*Incidents: none*")


def test_what_failed_today_is_answered_as_a_handover(play):
    """By its title; nothing is collected."""
    told = read(only(direct(play, "what failed today?")).blocks)
    same = read(only(direct(play, "handover 24h")[1:]).blocks)
    assert re.sub(TIME, "", told) == re.sub(TIME, "", same)  # the second span is that of a later moment
    assert play.ledger.tasks.counts() == {}


def test_a_plain_word_is_a_job_only_if_an_incident_knows_it(play):
    """A greeting gets the commands and collects nothing; what looks like an id is looked for."""
    told = read(only(direct(play, "hello")).blocks)
    assert told.startswith("I know no job “hello”.")
    assert "/diagnose JOB" in told
    assert play.ledger.tasks.counts() == {}
    report = replace(HEALTHY, job=replace(HEALTHY.job, name="nightly"))
    play.ledger.incidents.add(dumps(report), report, b"", None, datetime.now(UTC), origin=Origin("default"))
    assert "No job “nightly” found" in read(direct(play, "nightly")[1].blocks)
    assert "No job “lm-7” found" in read(direct(play, "lm-7")[2].blocks)


def test_small_talk_gets_the_commands(play):
    """Nothing is collected."""
    told = read(only(direct(play, "hello, how are you")).blocks)
    assert told.startswith("I couldn't find a job in your message.")
    assert "/diagnose JOB" in told
    assert play.ledger.tasks.counts() == {}
