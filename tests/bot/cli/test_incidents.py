"""`signalbox incidents` on a real store."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bot.cli.commands.incidents import app
from bot.cli.commands.rules import app as rules_app
from bot.cli.incident_close import login
from bot.cli.incident_rows import age
from bot.config.settings import Retention
from bot.render.report_json import dumps
from bot.render.terminal import plain
from bot.render.text_page import Reading
from bot.retention.sweep import tidy
from bot.runtime.paths import database_url
from bot.store.incidents import IncidentStore
from bot.store.packed_reports import Origin
from bot.store.tables import IncidentRow
from kb.errors import SignalboxError
from tests.support.bot_samples import FALLEN_GPU, HEALTHY, UNKNOWN

NOW = datetime(2026, 3, 2, 8, 30, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _state(tmp_path, monkeypatch):
    """Each test has its own state folder."""
    monkeypatch.setenv("SIGNALBOX_STATE", str(tmp_path))
    monkeypatch.delenv("SIGNALBOX_DATABASE", raising=False)


@pytest.fixture
def _three():
    """Three incidents, an hour apart."""
    with IncidentStore(database_url()) as store:
        for hour, report in enumerate((HEALTHY, UNKNOWN, FALLEN_GPU)):
            store.add(dumps(report), report, b"", "night-run" if hour == 2 else None, NOW + timedelta(hours=hour))


def run(*words):
    """The command with these words."""
    return CliRunner().invoke(app, list(words), catch_exceptions=False)


def run_refused(*words):
    """What the command says when it refuses these words."""
    with pytest.raises(SignalboxError) as refused:
        run(*words)
    return str(refused.value)


def test_an_empty_store_says_so():
    """Before the first report the list says that there is none, and gives no JSON."""
    assert "No incidents yet" in run("list").stdout
    assert run("list", "--json").stdout == ""


@pytest.mark.usefixtures("_three")
def test_the_list_is_a_line_an_incident_under_a_header(monkeypatch):
    """Number, age, state, lost GPU-hours, cause, node and job, newest first; the assignee where there is one."""
    monkeypatch.setattr("bot.cli.commands.incidents.datetime", Clock)
    expected = """\
ID  AGE  STATE  REDO GPU-H  CAUSE             NODE     JOB
 3   1d  open          9.6  gpu_fell_off_bus  gpu-017  llm-70b
 2   1d  open            ?  unknown cause     -        vision-pretrain
"""
    assert run("list", "--limit", "2").stdout == expected
    run("assign", "3", "grace")
    assert [line.split()[-1] for line in run("list", "--limit", "2").stdout.splitlines()][:2] == ["ASSIGNEE", "grace"]


@pytest.mark.usefixtures("_three")
def test_the_list_can_begin_with_the_most_costly():
    """Those of unknown cost come last, the newest of them first; a job without a name has that of its folder."""
    with IncidentStore(database_url()) as store:
        costly = replace(
            UNKNOWN,
            id="costly",
            job=replace(UNKNOWN.job, id=None, name=None),
            decision=replace(UNKNOWN.decision, gpu_hours_lost=40.0),
        )
        store.add(dumps(costly), costly, b"", "runs/night/logs", NOW - timedelta(days=1))
    rows = [line.split() for line in run("list", "--sort", "gpu-hours").stdout.splitlines()[1:]]
    assert [row[0] for row in rows] == ["4", "3", "2", "1"]
    assert rows[0][-1] == "night"


class Clock(datetime):
    """A clock that stands a day after the incidents."""

    @classmethod
    def now(cls, tz=None):  # noqa: D102
        return datetime(2026, 3, 3, 11, 0, tzinfo=tz)


@pytest.mark.usefixtures("_three")
def test_the_list_can_be_filtered(monkeypatch):
    """By cause, node and age; a filter that fits nothing says so, a wrong one is refused."""

    def found(*words):
        return [row["id"] for row in map(json.loads, run("list", "--json", *words).stdout.splitlines())]

    assert found("--fault", "gpu_fell_off_bus") == [3]
    assert found("--fault", "none") == [2]
    assert found("--node", "gpu-017") == [3]
    assert found("--node", "gpu-01") == []
    monkeypatch.setattr("bot.cli.commands.incidents.datetime", Clock)
    assert found("--since", "25h") == [3]
    assert run("list", "--node", "gpu-01").stdout.startswith("No matching incidents.")
    with pytest.raises(SignalboxError, match="--since: "):
        run("list", "--since", "soon")


def test_ages_are_in_the_largest_whole_unit():
    """A minute is the least that is told; a clock that is ahead gives no negative age."""
    since = (
        timedelta(seconds=-5),
        timedelta(seconds=59),
        timedelta(minutes=61),
        timedelta(hours=25),
        timedelta(days=400),
    )
    assert [age(NOW - span, NOW) for span in since] == ["now", "now", "1h", "1d", "400d"]
    assert age(NOW - timedelta(minutes=5), NOW) == "5m"


@pytest.mark.usefixtures("_three")
def test_the_list_as_json_is_one_object_a_line():
    """For programs each incident is a JSON object with its time in UTC."""
    rows = [json.loads(line) for line in run("list", "--json").stdout.splitlines()]

    assert [row["id"] for row in rows] == [3, 2, 1]
    assert (rows[0]["fault"], rows[0]["created_at"]) == ("gpu_fell_off_bus", "2026-03-02T10:30:00Z")


@pytest.mark.usefixtures("_three")
def test_an_incident_is_shown_as_it_was_reported():
    """`show` gives the report's text under a line that names the incident."""
    assert run("show", "3").stdout == f"Incident 3, 2026-03-02 10:30Z, bundle night-run\n\n{plain(FALLEN_GPU)}"
    assert run("show", "1", "--verbose").stdout.endswith(plain(HEALTHY, reading=Reading(verbose=True)))


def test_an_incident_has_the_links_of_its_cluster(tmp_path, monkeypatch):
    """To the site's consoles, as the first answer had them; an unreadable configuration hides nothing else."""
    config = tmp_path / "signalbox.yaml"
    config.write_text(
        "version: 1\nclusters:\n  east:\n    links: {Logs: 'https://logs.example/{name}'}\n"
        f"    connectors: {{files: {{type: folders, pattern: '{tmp_path}/{{name}}'}}}}\n"
    )
    monkeypatch.setenv("SIGNALBOX_CONFIG", str(config))
    with IncidentStore(database_url()) as store:
        for cluster in ("east", "west"):
            report = replace(FALLEN_GPU, id=cluster)
            store.add(dumps(report), report, b"", None, NOW, origin=Origin("default", cluster))

    assert f"https://logs.example/{FALLEN_GPU.job.name}" in run("show", "1").stdout
    assert "logs.example" not in run("show", "2").stdout
    config.write_text("version: 7\n")
    shown = run("show", "1")
    assert (shown.exit_code, "logs.example" in shown.stdout) == (0, False)


@pytest.mark.usefixtures("_three")
def test_an_incident_says_where_its_evidence_is(tmp_path):
    """Packed, out of reach, or gone, under the first line; and that it is pinned."""
    with IncidentStore(database_url()) as store, store.database.session(write=True) as session:
        row = session.get(IncidentRow, 3)
        row.bundle, row.archive, row.pinned = "/spool/a", str(tmp_path / "a.tar.zst"), True
    (tmp_path / "a.tar.zst").touch()
    head = "Incident 3, 2026-03-02 10:30Z, bundle /spool/a, pinned\nIts evidence is packed in "
    assert run("show", "3").stdout == f"{head}{tmp_path}/a.tar.zst.\n\n{plain(FALLEN_GPU)}"
    (tmp_path / "a.tar.zst").unlink()
    assert run("show", "3").stdout.startswith(f"{head}{tmp_path}/a.tar.zst, which is not reachable from this host.\n\n")


@pytest.mark.usefixtures("_three")
def test_a_report_whose_time_is_over_is_reported():
    """The error does not claim that the incident does not exist."""
    with IncidentStore(database_url()) as store:
        tidy(store.database, Path("/nowhere"), NOW + timedelta(days=800), Retention(packs="/nowhere"))
    result = run("show", "3")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "the report of incident 3 has expired and was removed" in result.stderr


@pytest.mark.usefixtures("_three")
def test_an_incident_as_json_is_the_report_as_it_was():
    """`show --json` gives the bytes that were stored."""
    assert run("show", "2", "--json").stdout_bytes == dumps(UNKNOWN) + b"\n"


@pytest.mark.usefixtures("_three")
def test_a_number_that_is_not_there_is_bad_usage():
    """An unknown number is one line on stderr and status 2."""
    result = run("show", "77")

    assert result.exit_code == 2
    assert "there is no incident 77" in result.stderr
    assert result.stdout == ""


def test_a_hostile_summary_does_not_move_the_cursor():
    """Names and summaries in the list are escaped as everywhere."""
    odd = replace(HEALTHY, summary="\x1b[2Jgone \u202eback", job=replace(HEALTHY.job, name="a\rb"))
    with IncidentStore(database_url()) as store:
        store.add(dumps(odd), odd, b"", None, NOW)

    text = run("list").stdout

    assert text.splitlines()[1].endswith("a\\x0db")


@pytest.mark.usefixtures("_three")
def test_a_life_from_the_shell():
    """Each step prints the incident's new state; the list and the incident show it, the history has all steps."""
    with IncidentStore(database_url()) as store:
        store.add(dumps(replace(UNKNOWN, id="more")), UNKNOWN, b"", None, NOW)
    assert run("ack", "3").stdout.startswith("Incident 3: acknowledged (state: acknowledged)")
    assert run("assign", "3", "grace", "--note", "knows it").stdout == (
        "Incident 3: assigned to grace: knows it (state: acknowledged)\n"
    )
    assert "snoozed until" in run("snooze", "2", "--for", "8h").stdout
    [_, mine, *more] = run("list", "--assignee", "grace").stdout.splitlines()
    assert (mine.split()[2], mine.split()[-1], more) == ("acknowledged", "grace", [])
    assert " snoozed " in run("list", "--state", "snoozed").stdout
    assert run("list", "--state", "merged").stdout == "No matching incidents.\n"
    assert run("merge", "2", "3").stdout == "Incident 2: merged into incident 3 (state: merged)\n"
    shown = run("show", "3").stdout
    assert "Incident 3, 2026-03-02 10:30Z, bundle night-run, acknowledged, assigned to grace" in shown
    assert [line.split(": ", 1)[1] for line in shown.split("\n")[-4:-1]] == [
        "acknowledged",
        "assigned to grace: knows it",
        "incident 2 merged into it",
    ]
    assert run("reopen", "2").stdout == "Incident 2: reopened (state: open)\n"
    assert "Open: 2" in run("handover", "--since", "90d").stdout
    assert json.loads(run("handover", "--json").stdout)["schema"] == "signalbox.handover/1"


@pytest.mark.usefixtures("_three")
@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("list", "--state", "asleep"), "unknown state 'asleep'"),
        (("snooze", "3"), "either --for"),
        (("snooze", "3", "--for", "soon"), "--for"),
        (("snooze", "3", "--until", "tomorrow"), "is not a time"),
        (("snooze", "3", "--until", "2020-01-01"), "must lie in the future"),
        (("handover", "--since", "0h"), "--since"),
        (("merge", "3", "99"), "no incident 99"),
        (("ack", "99"), "no incident 99"),
    ],
)
def test_words_that_make_no_sense_are_explained(words, why):
    """In one line."""
    with pytest.raises(SignalboxError) as refused:
        run(*words)
    assert why in str(refused.value)


@pytest.mark.usefixtures("_three")
def test_the_list_says_what_it_leaves_out_and_which_node_was_meant():
    """The number of all, and the closest name of a node that an incident suspects."""
    short = run("list", "--limit", "2")
    assert len(short.stdout.splitlines()) == 3
    assert short.stderr == "The newest 2 of 3; --limit N shows more.\n"
    assert run("list", "--limit", "3").stderr == ""
    assert run("list", "--node", "gpu-17").stdout == (
        "No matching incidents. In no incident is 'gpu-17' at fault; did you mean 'gpu-017'?\n"
    )
    assert run("list", "--node", "gpu-017", "--state", "closed").stdout == "No matching incidents.\n"
    assert '"7d"' in str(run_refused("list", "--since", "last week"))


@pytest.mark.usefixtures("_three")
@pytest.mark.parametrize("cause", ["no-rule", "unknown"])
def test_a_rule_is_asked_for_only_with_a_cause(cause):
    """It is refused at once, and not when the rule is drafted."""
    assert "--propose-rule needs the cause" in run_refused("close", "2", "--cause", cause, "--propose-rule")
    assert " closed" not in run("list").stdout


@pytest.mark.usefixtures("_three")
def test_the_list_has_the_confirmed_cause():
    """And what Signalbox said, where that was something else."""
    run("close", "3", "--cause", "host_oom", "--action", "halved the batch")
    run("close", "2", "--cause", "unknown")
    assert "host_oom (not gpu_fell_off_bus)" in run("list").stdout
    assert " unknown cause (people) " in run("list").stdout
    refuted = run("list").stdout.splitlines()[1].split()
    assert refuted[refuted.index("gpu_fell_off_bus)") + 1] == "-"
    assert run("list", "--node", "gpu-017").stdout.startswith("No matching incidents.")
    assert run("list", "--fault", "host_oom").stdout.count("host_oom") == 1
    shown = run("show", "3").stdout
    head, done = shown.splitlines()[1:3]
    assert head.startswith("Confirmed: Host memory exhausted")
    assert f"[host_oom], by {login()}" in head
    assert done == "Done: halved the batch"
    assert "Signalbox said first (wrong): " in shown
    assert "Do first" not in shown
    assert "Do first" in run("show", "3", "-v").stdout
    assert "Confirmed: " not in run("show", "1").stdout
    run("close", "3", "--cause", "right")
    assert " gpu_fell_off_bus " in run("list").stdout


@pytest.mark.usefixtures("_three")
def test_a_failure_closed_as_unknown_is_listed_as_one():
    """With what Signalbox said, which nobody confirmed or refuted; the filter finds it there and not under its class."""
    run("close", "3", "--cause", "unknown")
    assert " unknown cause (people; said gpu_fell_off_bus) " in run("list").stdout
    assert [line.split()[0] for line in run("list", "--fault", "unknown").stdout.splitlines()] == ["ID", "3", "2"]
    rows = [json.loads(line) for line in run("list", "--json").stdout.splitlines()]
    assert [(row["id"], row["cause"], row["cause_by"]) for row in rows] == [
        (3, "unknown", "people"),
        (2, "unknown", "signalbox"),
        (1, None, "signalbox"),
    ]
    assert run("list", "--fault", "gpu_fell_off_bus").stdout == "No matching incidents.\n"


@pytest.mark.usefixtures("_three")
def test_a_healthy_run_is_confirmed_as_one():
    """That nothing failed is a cause of its own: right of a healthy run, wrong of a fault."""
    assert [line.split()[0] for line in run("list", "--state", "healthy").stdout.splitlines()] == ["ID", "1"]
    assert run("list", "--state", "unclear").stdout == "No matching incidents.\n"
    assert run("close", "1", "--cause", "right").stdout == "Incident 1 closed: nothing failed\n"
    assert "(bot: right)" in run("show", "1").stdout
    run("close", "3", "--cause", "no-failure")
    assert "nothing failed (not gpu_fell_off_bus)" in run("list").stdout
    assert "(bot: wrong)" in run("show", "3").stdout
    assert "3" not in [line.split()[0] for line in run("list", "--fault", "gpu_fell_off_bus").stdout.splitlines()]


@pytest.mark.usefixtures("_three")
def test_hours_without_gpus_are_not_taken_for_gpu_hours():
    """The digest multiplies them by the number of GPUs, which nothing gave here."""
    assert "its GPU-hours stay unknown" in run("close", "2", "--cause", "host_oom", "--lost", "1.5").stdout
    assert "stay unknown" not in run("close", "3", "--cause", "right", "--lost", "1.5").stdout


def test_a_run_without_a_job_is_listed_by_what_was_read():
    """By the folder of its bundle, or the end of the path of its logs."""
    with IncidentStore(database_url()) as store:
        read = (
            {"source": "/data/team/runs/0/train.log"},
            {"bundle": "/data/runs/1/logs"},
            {"source": "standard input"},
            {},
        )
        for number, told in enumerate(read):
            report = replace(FALLEN_GPU, id=f"r{number}", job=replace(FALLEN_GPU.job, id=None, name=None))
            origin = Origin(source=told.get("source"))
            store.add(dumps(report), report, b"", told.get("bundle"), NOW + timedelta(hours=number), origin=origin)
    listed = run("list").stdout.splitlines()
    assert [line.split()[-1] for line in listed] == ["JOB", "-", "input", "1", ".../runs/0/train.log"]


@pytest.mark.usefixtures("_three")
def test_the_nodes_that_people_named_are_those_of_the_incident():
    """In the list, and for its filter, which no longer finds it by the node that was suspected."""
    before = run("list", "--node", "gpu-017").stdout
    number = before.splitlines()[1].split()[0]
    run("close", number, "--cause", "node_lost", "--nodes", "gpu-n09")
    assert "gpu-n09" in run("list").stdout
    assert run("list", "--node", "gpu-n09").stdout.splitlines()[1].split()[0] == number
    assert number not in [line.split()[0] for line in run("list", "--node", "gpu-017").stdout.splitlines()]


@pytest.mark.usefixtures("_three")
@pytest.mark.parametrize(
    ("cause", "told"),
    [
        ("host memory", "did you mean host_oom (Host memory exhausted) or memory_leak (Memory leak)?"),
        ("Host-Memory", "did you mean host_oom (Host memory exhausted) or memory_leak (Memory leak)?"),
        ("host_omo", "did you mean 'host_oom'?"),
        ("cuda_leak", "or memory_leak (Memory leak)?"),
        ("shapes", "did you mean shape_or_dtype ("),
        ("out_of_memory", "host_oom (Host memory exhausted)"),
        ("xylophone", "signalbox rules faults"),
    ],
)
def test_a_class_is_found_by_the_words_of_its_title(cause, told):
    """People know what happened, not how the class is called."""
    assert told in run_refused("close", "3", "--cause", cause)


@pytest.mark.usefixtures("_three")
def test_a_mistyped_class_is_named():
    """`--cause` is the same filter, as `close` has it."""
    assert run("list", "--cause", "host_oom").stdout == run("list", "--fault", "host_oom").stdout
    told = run("list", "--fault", "gpu_fell_of_bus").stdout
    assert told.startswith("No matching incidents. There is no fault class 'gpu_fell_of_bus'; did you mean")
    assert "gpu_fell_off_bus" in told


def test_fault_classes_are_listed():
    """All, or those with all the words."""
    every, few = (CliRunner().invoke(rules_app, ["faults", *words]) for words in ((), ("host", "Memory")))
    assert few.stdout.split()[:2] == ["host_oom", "platform"]
    assert len(few.stdout.splitlines()) == 2 < len(every.stdout.splitlines())
    assert CliRunner().invoke(rules_app, ["faults", "xylophone"]).exit_code == 2


def test_actions_are_listed():
    """All, or those with all the words; whoever writes a rule has to name one."""
    every, few = (CliRunner().invoke(rules_app, ["actions", *words]) for words in ((), ("ticket", "Storage")))
    assert few.stdout.split() == ["storage_ticket", "look", "Escalate", "to", "the", "storage", "team"]
    assert len(every.stdout.splitlines()) > 10
    assert CliRunner().invoke(rules_app, ["actions", "xylophone"]).exit_code == 2


def test_one_row_of_a_rule_is_explained():
    """A person asks about one Xid, not about a hundred."""
    one = CliRunner().invoke(rules_app, ["show", "nvidia-xid", "79"]).stdout
    assert one.startswith("Xid 79: GPU has fallen off the bus\nrow 79 of nvidia-xid, gpu_fell_off_bus, root_cause\n")
    assert "Xid 48" not in one
    wrong = CliRunner().invoke(rules_app, ["show", "nvidia-xid", "7"])
    assert (wrong.exit_code, "nvidia-xid has no row '7'; did you mean '37'?" in wrong.output) == (2, True)
    assert CliRunner().invoke(rules_app, ["show", "disk-quota-exceeded", "7"]).exit_code == 2
