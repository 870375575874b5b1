"""The app as people use it: commands, mentions, menus, buttons and forms, from the delivery to the channel."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from bot.handlers.diagnose import next_working_day
from bot.slack.service import check
from tests.support.common.slack_actions import form, only, option, press, text_of
from tests.support.slack_reading import read
from tests.support.slack_stage import ADA, CHANNEL, EVE, FOREIGN, GRACE, ONCALL, OTHER, stage


def test_a_diagnosis(play):
    """It is acknowledged at once, answered by one edited message, and the thread has the file and the image."""
    delivery = play.workspace.command(ADA, CHANNEL, "/diagnose", "demo")
    assert delivery.acknowledged
    assert play.ephemerals() == ["Diagnosing demo. I'll post the result here."]
    assert play.answers() == []

    play.settle()
    answer = only(play.answers())
    assert answer.edited is not None
    assert "lm-tiny" in answer.text
    told = text_of(answer)
    assert "rank 5" in told
    assert "Asked by" in told
    assert [file.name for file in play.workspace.files] == ["lm-tiny-timeline.png", "lm-tiny-evidence.txt"]
    assert all(file.shared for file in play.workspace.files)
    assert {message.thread_ts for message in play.workspace.thread(CHANNEL, answer.ts)} <= {answer.ts, None}
    posted = [call.arguments for call in play.workspace.traffic if call.method == "chat.postMessage"]
    assert [call.get("thread_ts") for call in posted] == [None, answer.ts]


@pytest.mark.slow  # test_the_state_of_a_job_can_be_given
def test_a_state_that_the_asker_gives_counts(play):
    """As `--state` of the terminal does: the answer tells that it was given."""
    play.diagnose("demo --state RUNNING")
    [kept] = [file for file in play.workspace.files if file.name.endswith("evidence.txt")]
    assert "state is given as RUNNING" in (kept.data or b"").decode()


def test_an_unknown_job_gives_candidates(play):
    """Nothing is posted in the channel; the requester gets buttons, and one press diagnoses the job."""
    play.diagnose("lm-tny")
    assert play.answers() == []
    offered = play.workspace.ephemerals(CHANNEL, ADA)[-1]
    assert "No job" in offered.text
    press(play, offered.ts, "pick_job")
    assert "lm-tiny" in only(play.answers()).text


@pytest.mark.slow  # test_an_unknown_job_gives_candidates
def test_an_unknown_job_is_looked_for_again(play):
    """An unknown job is not cached."""
    play.diagnose("nightly")
    assert "No job" in play.ephemerals()[-1]
    play.workspace.command(GRACE, CHANNEL, "/diagnose", "nightly")
    play.settle()
    assert "No job" in play.ephemerals(GRACE)[-1]


def test_the_same_job_is_linked_and_not_looked_at_twice(play):
    """A second request within minutes links to the answer; "Run again" makes a new one."""
    play.diagnose("demo")
    play.diagnose("demo", user=GRACE)
    answer = only(play.answers())
    assert "see" in only(play.ephemerals(GRACE))
    assert answer.ts.replace(".", "") in json.dumps(play.workspace.ephemerals(CHANNEL, GRACE)[0].blocks)

    press(play, answer.ts, "more", value=option(answer, "again"))
    assert len(play.answers()) == 2


@pytest.mark.slow  # test_the_same_job_is_linked_and_not_looked_at_twice
def test_the_same_job_in_another_channel_is_answered_there_at_once(play):
    """Nothing is collected again."""
    play.diagnose("demo")
    play.workspace.command(GRACE, OTHER, "/diagnose", "demo")
    assert not play.work()
    play.send()
    assert "lm-tiny" in only(play.answers(OTHER)).text
    assert len(play.ledger.incidents.list()) == 1


def test_private_goes_to_the_person(play):
    """The channel sees nothing."""
    play.diagnose("demo private")
    assert play.answers() == []
    direct = only([channel for channel in play.workspace.state.channels.values() if channel.direct])
    assert "Only you see this" in text_of(only(play.answers(direct.id)))


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("text", "told"),
    [("demo last long", "no job"), ("demo last 0h", "not a time span"), ("x" * 300, "at most 256 characters")],
)
def test_what_cannot_be_read_is_explained(play, text, told):
    """Only to the requester."""
    play.diagnose(text)
    assert told in play.ephemerals()[-1].lower()
    assert play.answers() == []


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("command", "text", "told"),
    [
        ("/diagnose", "help", "/diagnose JOB private"),
        ("/diagnose", "--help", "/diagnose JOB private"),
        ("/signalbox", "help", "/signalbox digest"),
        ("/signalbox", "handover help", "/signalbox handover"),
        ("/signalbox", "incidents help", "/signalbox incidents"),
    ],
)
def test_every_command_explains_itself(play, command, text, told):
    """At once, and only what was asked about; nothing is looked for."""
    play.workspace.command(ADA, CHANNEL, command, text)
    play.settle()
    shown = read(only(play.workspace.ephemerals(CHANNEL, ADA)).blocks)
    assert shown.startswith("*How to use ")
    assert told in shown
    whole = text in ("help", "--help")
    assert ("/diagnose JOB private" in shown) is whole


def test_a_job_called_help_is_meant_by_quotes(play):
    """As any other name."""
    play.diagnose('"help"')
    assert "No job “help”" in play.ephemerals()[-1]


@pytest.mark.slow  # test_proposing.py
def test_no_rule_is_proposed_where_none_can_be(play):
    """Neither the answer nor the form offers it; both do where pull requests are configured."""
    play.diagnose()
    answer = only(play.answers())
    assert "propose_rule" not in text_of(answer)
    press(play, answer.ts, "close_out")
    assert "propose_rule" not in json.dumps(form(play).blocks)


@pytest.mark.slow  # test_wrong_and_another_cause, forms/test_close_out.py
def test_wrong_starts_without_the_cause_of_the_answer(play):
    """It is what was wrong; Close out starts with it, and without the node: a damaged file is no fault of the node that read it."""
    play.diagnose()
    answer = only(play.answers())
    press(play, answer.ts, "close_out")
    offered = read(form(play).blocks)
    assert "Nodes at fault []" in offered
    assert "*" in offered.split("Was the answer right?")[0].split("What was it?")[1]
    play.workspace.close(ADA)
    press(play, answer.ts, "wrong")
    offered = read(form(play).blocks)
    assert "Nodes at fault []" in offered
    assert "*" not in offered.split("Was the answer right?")[0].split("What was it?")[1]


def test_right_closes_with_one_press(play):
    """The message shows it to everyone; a second press changes nothing."""
    play.diagnose()
    answer = only(play.answers())
    press(play, answer.ts, "right")
    closed = only(play.answers())
    assert "closed" in text_of(closed)
    assert f'"user_id": "{ADA}"' in text_of(closed)
    incident = only(play.ledger.incidents.list())
    assert incident.closed_at is not None
    assert [annotation.said.verdict for annotation in play.ledger.closings.annotations(incident.id)] == ["right"]


def test_wrong_and_another_cause(play):
    """Wrong is recorded at once; the form asks for the cause and searches all faults; the message changes."""
    play.diagnose()
    answer = only(play.answers())
    press(play, answer.ts, "wrong")
    incident = only(play.ledger.incidents.list())
    assert [
        (annotation.said.verdict, annotation.said.cause) for annotation in play.ledger.closings.annotations(incident.id)
    ] == [("wrong", None)]
    assert play.ledger.incidents.get(incident.id).incident.closed_at is None

    form(play)
    play.workspace.act(ADA, "cause", "fault")
    play.workspace.until(lambda: any(block.get("block_id") == "other_fault" for block in form(play).blocks))
    found = play.workspace.suggest(ADA, "other_fault", "disk ful")
    assert found.options[0]["value"] == "disk_full"
    play.workspace.submit(
        ADA, {"cause": "fault", "other_fault": "disk_full", "nodes": "node-b", "note": "quota of the project"}
    )
    play.settle()
    assert play.workspace.modal(ADA) is None
    told = text_of(only(play.answers()))
    assert play.known.rulebook.faults["disk_full"].title in told
    assert "node-b" in told
    assert "quota of the project" in told
    last = play.ledger.closings.annotations(incident.id)[-1].said
    assert (last.verdict, last.cause, last.fault, last.nodes) == ("wrong", "fault", "disk_full", ("node-b",))


@pytest.mark.slow  # test_wrong_and_another_cause
def test_disagreement_is_shown(play):
    """The last close-out counts, and the other one is shown."""
    play.diagnose()
    answer = only(play.answers())
    press(play, answer.ts, "right")
    press(play, answer.ts, "close_out", user=GRACE)
    form(play, GRACE)
    play.workspace.submit(GRACE, {"cause": "no_rule"})
    play.settle()
    told = text_of(only(play.answers()))
    assert "disagrees" in told
    assert told.index(GRACE) < told.index(ADA)


@pytest.mark.slow  # forms/test_close_out.py
def test_a_form_with_faults_says_so_beside_the_fields(play):
    """The form stays open."""
    play.diagnose()
    answer = only(play.answers())
    press(play, answer.ts, "close_out")
    form(play)
    play.workspace.submit(ADA, {"nodes": " ".join(f"n{number}" for number in range(201))})
    view = play.workspace.modal(ADA)
    assert "At most 200 nodes" in view.errors["nodes"]


@pytest.mark.slow  # cli/test_mutes.py, test_automatic.py
def test_mute(play):
    """A rule is muted in this channel for a day; the message says so."""
    play.diagnose()
    answer = only(play.answers())
    press(play, answer.ts, "more", value=option(answer, "mute_rule"))
    form(play)
    play.workspace.submit(ADA, {"until": "1d", "where": "channel", "why": "known"})
    play.settle()
    assert "Muted: rule" in text_of(only(play.answers()))
    assert press(play, answer.ts, "more", value=option(only(play.answers()), "mute_job")).acknowledged


def below(play, answer):
    """Return what stands in the thread of an answer besides files, as text."""
    posts = play.workspace.thread(CHANNEL, answer.ts)
    return [read(message.blocks) for message in posts if message.ts != answer.ts and not message.files]


def test_evidence_brings_the_lines_once(play):
    """The traceback and the lines around it, in the thread; the files are there already, and a second press repeats nothing."""
    play.diagnose()
    answer = only(play.answers())
    before = len(below(play, answer))
    press(play, answer.ts, "evidence")
    told = below(play, answer)[-1]
    assert "Evidence of lm-tiny" in told
    lines = told.splitlines()
    start = next(number for number, line in enumerate(lines) if "Traceback (most recent call last):" in line)
    end = next(number for number, line in enumerate(lines) if line.startswith("  | > "))
    assert "ValueError: mmap length is greater than file size" in lines[end]
    assert sum("File " in line for line in lines[start:end]) > 4
    press(play, answer.ts, "evidence", GRACE)
    assert len(below(play, answer)) == before + 1
    assert len(play.workspace.files) == 2
    assert "already in the thread" in play.ephemerals(GRACE)[-1]


@pytest.mark.slow  # test_evidence_brings_the_lines_once
def test_evidence_of_a_listed_incident_comes_to_the_person(play):
    """There is no message whose thread could have it."""
    play.diagnose()
    play.workspace.command(GRACE, CHANNEL, "/signalbox", "incidents")
    play.send()
    press(play, play.workspace.ephemerals(CHANNEL, GRACE)[-1].ts, "open_incident", GRACE)
    press(play, play.workspace.ephemerals(CHANNEL, GRACE)[-1].ts, "evidence", GRACE)
    assert "Evidence of lm-tiny" in play.ephemerals(GRACE)[-1]


@pytest.mark.slow  # test_a_diagnosis
def test_who_asked_is_told_that_the_answer_is_there(play):
    """With a mention, because an edit notifies nobody; everybody who waited, once."""
    play.workspace.command(ADA, CHANNEL, "/diagnose", "demo")
    play.workspace.command(GRACE, CHANNEL, "/diagnose", "demo")
    play.settle()
    (told,) = below(play, only(play.answers()))
    assert told.startswith(f"@{ADA} @{GRACE} ")
    assert "lm-tiny: failed" in told


def test_an_answer_that_cannot_be_posted_says_where(play):
    """It comes as a direct message, which says why."""
    play.workspace.trouble("chat.postMessage", "error", error="not_in_channel")
    play.diagnose()
    direct = only([channel for channel in play.workspace.state.channels.values() if channel.direct])
    answer = only(play.answers(direct.id))
    assert f"I can't post in #{CHANNEL}" in read(answer.blocks)


def test_a_direct_message_that_is_refused_says_why(play):
    """Where the command was typed, only to who typed it."""
    play.workspace.trouble("chat.postMessage", "error", error="messages_tab_disabled")
    play.diagnose("demo private")
    assert "messages_tab_disabled" in play.ephemerals()[-1]
    assert play.answers() == []


def test_mutes_are_listed_and_ended(play):
    """With a button for each; a second press says that it has ended."""
    play.diagnose()
    answer = only(play.answers())
    press(play, answer.ts, "more", value=option(answer, "mute_job"))
    form(play)
    play.workspace.submit(ADA, {"until": "1d", "where": "everywhere", "why": "known"})
    play.settle()
    play.workspace.command(GRACE, CHANNEL, "/signalbox", "mutes")
    play.send()
    listed = play.workspace.ephemerals(CHANNEL, GRACE)[-1]
    assert f"everywhere, by @{ADA}: known" in read(listed.blocks)
    press(play, listed.ts, "unmute", GRACE)
    assert "are on again" in play.ephemerals(GRACE)[-1]
    assert play.ledger.mutes.active("default", datetime.now(UTC)) == ()
    press(play, listed.ts, "unmute", GRACE)
    assert "already ended" in play.ephemerals(GRACE)[-1]


@pytest.mark.slow  # cli/test_nodes.py, messages/test_lists.py
def test_nodes_to_leave_out_are_listed(play):
    """Those that an answer proposed, with their state."""
    play.diagnose()
    play.workspace.command(ADA, CHANNEL, "/signalbox", "nodes")
    play.send()
    assert "Nodes to leave out" in play.ephemerals()[-1]


def test_lists(play):
    """Help, incidents with an open button, rule search, configuration."""
    play.diagnose()
    for text, told in (
        ("", "/diagnose JOB"),
        ("incidents", "lm-tiny"),
        ("rules disk full", "disk"),
        ("config", "recorded"),
        ("nonsense", "Usage"),
        ("incidents page 9", "none"),
    ):
        play.workspace.command(ADA, CHANNEL, "/signalbox", text)
        assert told in text_of(play.workspace.ephemerals(CHANNEL, ADA)[-1]), text
    play.workspace.command(ADA, CHANNEL, "/signalbox", "incidents")
    press(play, play.workspace.ephemerals(CHANNEL, ADA)[-1].ts, "open_incident")
    shown = play.workspace.ephemerals(CHANNEL, ADA)[-1]
    assert "rank 5" in text_of(shown)
    press(play, shown.ts, "right")
    assert "closed" in text_of(only(play.answers()))


def test_mentions_work_in_threads(play):
    """The answer goes to the thread; help only to the requester."""
    head, _ = play.workspace.say(ADA, CHANNEL, "what is with demo?")
    play.workspace.mention(ADA, CHANNEL, "diagnose `demo`", head.ts)
    play.settle()
    answer = only([message for message in play.workspace.thread(CHANNEL, head.ts) if message.by_app and message.edited])
    assert "lm-tiny" in answer.text
    play.workspace.mention(ADA, CHANNEL, "help")
    play.send()
    assert "/diagnose JOB" in text_of(play.workspace.ephemerals(CHANNEL, ADA)[-1])


def test_the_shortcut_finds_the_job_in_a_message(play):
    """One name: at once. None: a form asks."""
    alert, _ = play.workspace.say(GRACE, CHANNEL, "GPUHang: job_name=demo is silent")
    play.workspace.shortcut(ADA, CHANNEL, alert.ts, "diagnose_message")
    play.settle()
    assert "lm-tiny" in next(message for message in play.workspace.thread(CHANNEL, alert.ts) if message.by_app).text

    chat, _ = play.workspace.say(GRACE, CHANNEL, "who broke it?")
    play.workspace.shortcut(ADA, CHANNEL, chat.ts, "diagnose_message")
    form(play)
    play.workspace.submit(ADA, {"name": "fine"})
    play.settle()
    assert [message for message in play.workspace.thread(CHANNEL, chat.ts) if message.by_app]


@pytest.mark.slow  # messages/test_home.py
def test_home(play):
    """It shows recent incidents and sources to people who used a channel of the tenant, and refreshes on demand."""
    play.diagnose(user=GRACE)
    play.workspace.open_home(ADA)
    play.send()
    told = json.dumps(play.workspace.home(ADA).source)
    assert CHANNEL in told
    assert "lm-tiny" not in told
    assert "recorded" not in told
    play.workspace.command(ADA, CHANNEL, "/signalbox", "help")
    play.workspace.act_at_home(ADA, "home_refresh")
    play.send()
    assert "lm-tiny" not in json.dumps(play.workspace.home(ADA).source)  # everybody gets help
    play.workspace.command(ADA, CHANNEL, "/signalbox", "incidents")
    play.workspace.act_at_home(ADA, "home_refresh")
    play.send()
    told = json.dumps(play.workspace.home(ADA).source)
    assert "lm-tiny" in told
    assert "recorded" in told


def test_no_job_named(play):
    """The person's recent failed jobs are offered."""
    play.diagnose("")
    assert play.ephemerals()[-1].startswith(("Your recent failed jobs", "None of your jobs"))


@pytest.mark.slow  # test_what_is_proven.py, messages/test_answer.py
def test_nothing_failed(play):
    """A healthy run has its own message, and no files unless requested."""
    play.diagnose("fine")
    assert "the run completed normally" in only(play.answers()).text
    assert play.workspace.files == []


def test_a_job_without_any_data_is_named(play):
    """The message names the job, says what each source returned, and what to search for in the log."""
    (play.runs / "void").mkdir()
    (play.runs / "void" / "job.yaml").write_text("id: '7'\nname: void\n")
    play.diagnose("void")
    told = text_of(only(play.answers()))
    assert "void: no data could be collected" in told
    assert "No source returned data of job 7: recorded (nothing)" in told, told
    assert "search for “work 1” in the log" in told


@pytest.mark.slow  # test_an_answer_that_cannot_be_posted_says_where
def test_where_the_bot_is_not_the_answer_goes_to_who_asked(play):
    """In a channel that the bot was not invited to."""
    play.workspace.add_channel(OTHER, "second", [ADA], app=False)
    play.diagnose("demo", channel=OTHER)
    assert play.answers(OTHER) == []
    direct = only([channel for channel in play.workspace.state.channels.values() if channel.direct])
    assert "lm-tiny" in only(play.answers(direct.id)).text


def test_the_check_says_when_nobody_would_be_answered(play):
    """An allow-list without the workspace of the token is most likely a mistake."""
    slack = play.config.serve.slack
    assert check(slack).works
    told = check(replace(slack, workspaces=("T0OTHER",)))
    assert not told.works
    assert "nobody would be answered" in told.words
    assert check(replace(slack, workspaces=("T0OTHER", "T0LOCAL"))).works


def test_guests_and_people_of_other_organisations(play):
    """Guests are refused with a reason, unless they are named; others before any listener, wherever they are."""
    for user, more in (("U0GUEST", {"guest": True}), ("U0OTHER", {"team": "T0OTHER"})):
        play.workspace.add_user(user, user.lower(), **more)
        play.workspace.add_channel(CHANNEL, "incidents", [ADA, GRACE, EVE, "U0GUEST", "U0OTHER"])
    for user, words in (("U0GUEST", "You don't have permission to diagnose"), ("U0OTHER", "does not answer people")):
        play.diagnose(user=user)
        assert words in only(play.ephemerals(user))
        play.workspace.open_home(user)
        play.send()
    assert play.workspace.home("U0OTHER") is None
    assert "recorded" not in json.dumps(play.workspace.home("U0GUEST").source)
    assert play.ledger.incidents.list() == ()
    play.diagnose()
    press(play, only(play.answers()).ts, "right", user="U0OTHER")
    assert "does not answer people" in play.ephemerals("U0OTHER")[-1]
    assert play.ledger.closings.annotations(1) == ()


def test_deliveries_for_another_workspace_are_refused(play):
    """Signed by Slack, for another workspace that installed the app."""
    play.workspace.state.team = "T0OTHER"
    delivery = play.workspace.command(ADA, CHANNEL, "/diagnose", "demo")
    assert delivery.acknowledged
    play.settle()
    assert "does not answer people from this workspace" in only(play.ephemerals())
    assert play.ledger.tasks.counts() == {}


VERBS = f"    verbs: {{annotate: [{ONCALL}], mute: [{ADA}]}}"


def test_rights(tmp_path, known, monkeypatch):
    """A refusal goes only to the requester, with whom to ask; the audit log has both; other channels are refused."""
    with stage(tmp_path, known, f"sqlite:///{tmp_path / 'signalbox.db'}", monkeypatch.setenv, tenant=VERBS) as play:
        from bot.slack.groups import groups_of, refresh

        refresh(play.ledger.database, play.senders[0].client, groups_of(play.config))
        play.diagnose()
        answer = only(play.answers())
        press(play, answer.ts, "right", user=EVE)
        assert ONCALL in text_of(play.workspace.ephemerals(CHANNEL, EVE)[-1])
        assert play.ledger.closings.annotations(1) == ()
        press(play, answer.ts, "right", user=GRACE)
        assert [annotation.said.who for annotation in play.ledger.closings.annotations(1)] == [GRACE]
        press(play, answer.ts, "more", user=EVE, value=option(only(play.answers()), "mute_job"))
        assert play.workspace.modal(EVE) is None
        play.workspace.command(ADA, FOREIGN, "/diagnose", "demo")
        assert "isn't enabled in this channel" in play.ephemerals(channel=FOREIGN)[-1]

        with play.ledger.database.session() as session:
            from sqlmodel import select

            from bot.store.tables import AuditRow

            rows = [(row.who, row.verb, row.allowed) for row in session.exec(select(AuditRow))]
        assert rows == [
            (ADA, "diagnose", True),
            (EVE, "annotate", False),
            (GRACE, "annotate", True),
            (EVE, "mute", False),
            (ADA, "diagnose", False),
        ]


def test_a_reminder(play):
    """The requester is asked once, the next working day at ten. The reminder can be postponed, dismissed, or made moot by a close-out."""
    from datetime import timedelta

    play.diagnose()
    [sender] = play.senders
    sender.clock = lambda: datetime.now(UTC) + timedelta(days=4)
    play.send()
    direct = only([channel for channel in play.workspace.state.channels.values() if channel.direct])
    asked = only(play.answers(direct.id))
    assert "What was the cause of the failure" in asked.text
    play.workspace.click(ADA, direct.id, asked.ts, "remind_later")
    play.send()
    again = play.answers(direct.id)[-1]
    assert "What was the cause of the failure" in again.text
    play.workspace.click(ADA, direct.id, again.ts, "remind_no")
    play.send()
    assert "No more questions" in play.answers(direct.id)[-1].text


@pytest.mark.parametrize(
    ("now", "zone", "at"),
    [
        ("2026-11-20T23:30+00:00", "UTC", "2026-11-23T10:00+00:00"),
        ("2026-11-22T23:30+00:00", "Europe/Berlin", "2026-11-24T10:00+01:00"),
        ("2026-10-24T12:00+00:00", "Europe/Berlin", "2026-10-26T10:00+01:00"),
    ],
)
def test_the_next_working_day(now, zone, at):
    """At ten in the team's time zone, across weekends and daylight saving."""
    assert next_working_day(datetime.fromisoformat(now), zone) == datetime.fromisoformat(at)
