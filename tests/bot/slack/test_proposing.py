"""A rule from the close-out to the pull request in Slack: the form opens at once and is filled later; one reply is edited."""

from __future__ import annotations

import random
import subprocess
import time
from datetime import UTC, datetime

import pytest

from bot.authoring import selftest
from bot.diagnosis.diagnose import diagnose_bundle
from bot.incidents.resolution import Closing
from bot.learning.drafts import service
from bot.learning.proposals.store import proposals, tick
from bot.learning.replay import clean_corpus
from bot.learning.replay.clean_corpus import clean_logs
from bot.render.report_json import dumps
from bot.slack.groups import refresh
from tests.support.common.slack_actions import form, only, text_of
from tests.support.slack_stage import ADA, CHANNEL, EVE, GRACE, ONCALL, stage

RUNS = 4
NOW = datetime(2026, 3, 1, tzinfo=UTC)
NEEDLE = "fabricd: partition key table of hca"


def fields(view):
    """Return the element of each field of a form by block_id."""
    return {block["block_id"]: block["element"] for block in view.source["blocks"] if block["type"] == "input"}


def words(view):
    """Return the text of a view."""
    return str(view.source["blocks"])


def made(folder, number):
    """A run that no rule knows: the fabric of one rank loses its partition, the others stop."""
    chance = random.Random(number)
    logs = folder / f"fabric-{number}" / "logs"
    logs.mkdir(parents=True)
    bad, last, begun = chance.randrange(4), chance.randrange(200, 900), 1_760_000_000 + number * 90_000
    for rank in range(4):
        lines = [(begun, f"INFO launching rank {rank} on gpu{number}{rank // 4:02d} world 8")]
        for step in range(last - 20, last):
            loss, took = 2.5 - step / 1000 + chance.random() / 10, 900 + chance.random() * 20
            lines.append((begun + step, f"INFO iteration {step}/ 5000 | loss {loss:.4f} | step time {took:.1f} ms"))
        if rank == bad:
            stale = f"{NEEDLE} mlx5_{chance.randrange(4)} went stale (epoch {chance.randrange(9999)})"
            lines.append((begun + last, f"ERROR {stale}, port left the partition 0x{chance.randrange(65536):04x}"))
            lines.append((begun + last + 1, "ERROR trainer: collective backend gave up, exiting with 77"))
        else:
            lines.append((begun + last + 2, "WARN trainer: peer went away, stopping"))
        told = [f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(at))} {text}" for at, text in lines]
        (logs / f"rank{rank}.log").write_text("\n".join(told) + "\n")
    job = f"job: {{id: '{100 + number}', name: fabric-{number}, state: FAILED, exit_code: 77}}\n"
    (logs.parent / "job.yaml").write_text(job)
    return logs.parent


def git(folder, *words_):
    """Run git; return its output."""
    done = subprocess.run(["git", "-C", str(folder), *words_], capture_output=True, text=True, check=True)
    return done.stdout


@pytest.fixture
def clone(tmp_path):
    """A rules repository with one commit."""
    folder = tmp_path / "rules-repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    git(folder, "config", "user.email", "a@example.org")
    git(folder, "config", "user.name", "A")
    (folder / "README.md").write_text("rules\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "begun")
    return folder


@pytest.fixture(scope="module")
def past(tmp_path_factory, known):
    """The rules, and the reports of three runs with an unknown failure."""
    folder = tmp_path_factory.mktemp("past")
    return known, [diagnose_bundle(known, made(folder, number), workers=1) for number in range(RUNS - 1)]


@pytest.fixture(scope="module", autouse=True)
def clean_logs_found_once():
    """Logs are evaluated, to find those without a failure: once for all tests, and of hundreds, each eighth."""
    found = {}

    def shared(known, rules, folders):
        key = (known.rulebook.digest, rules, *folders)
        if key not in found:
            found[key] = clean_logs(known, rules, folders)
        return found[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service, "clean_logs", shared)
        patch.setattr(clean_corpus, "tests_of", lambda *given: selftest.tests_of(*given)[::8])
        yield


@pytest.fixture
def play(tmp_path, url, monkeypatch, clone, past):
    """A stage with these three closed and a fourth just diagnosed."""
    known, answers = past
    bundles = {"fabric": made(tmp_path / "made", RUNS - 1)}
    more = f"rules:\n  pull_requests: {{backend: local, repository: {clone}}}\n"
    tenant = f"    verbs: {{propose_rule: [{ADA}, {ONCALL}]}}\n"
    with stage(tmp_path, known, url, monkeypatch.setenv, tenant=tenant, more=more, bundles=bundles) as one:
        for number, answer in enumerate(answers):
            incident = one.ledger.incidents.add(dumps(answer.report), answer.report, answer.replay, None, NOW)
            said = Closing(ADA, "slack", "abstained_rightly", "fault", "rdma_link", None, action="reset the partition")
            one.ledger.closings.annotate(incident, "default", f"closed:{number}", said, NOW)
        one.diagnose("fabric")
        yield one


def asked(play, user=ADA):
    """Close the last incident and ask for a rule; return the form that follows."""
    answer = play.answers()[-1]
    play.workspace.click(user, CHANNEL, answer.ts, "close_out")
    form(play, user)
    play.workspace.act(user, "cause", "fault", "cause")
    play.workspace.until(lambda: "other_fault" in fields(play.workspace.modal(user)))
    play.workspace.suggest(user, "other_fault", "rdma link")
    play.workspace.submit(
        user,
        {
            "cause": "fault",
            "other_fault": "rdma_link",
            "action": "reset the partition",
            "propose_rule": ["propose_rule"],
        },
    )
    return answer


def closed(play, fault):
    """Close the last incident."""
    incident = max(item.id for item in play.ledger.incidents.list())
    play.ledger.closings.annotate(incident, "default", "said", Closing(ADA, "slack", "wrong", "fault", fault), NOW)
    play.settle()


def pressed(play):
    """Choose "Propose a rule" from the menu."""
    [answer] = play.answers()
    elements = [element for block in answer.blocks if block["type"] == "actions" for element in block["elements"]]
    [wanted] = [option["value"] for element in elements if element["type"] == "overflow" for option in element["options"]
                if option["value"].startswith("propose_rule")]  # fmt: skip
    play.workspace.click(ADA, CHANNEL, answer.ts, "more", wanted)


def test_from_the_close_out_to_the_branch(play, clone):
    """The form opens at once and is filled later; the proposal becomes a branch of the repository."""
    answer = asked(play)
    assert "Looking for a pattern that only" in words(form(play))
    assert "submit" not in form(play).source
    play.settle()

    filled = form(play)
    assert "went stale" in fields(filled)["patterns"]["initial_value"]
    assert fields(filled)["other_fault"]["initial_option"]["value"] == "rdma_link"
    assert "Incidents searched" in words(filled)
    assert "4" in words(filled)

    play.workspace.submit(ADA, {"patterns": "fabricd: (partition"})
    assert set(form(play).errors) == {"patterns"}

    play.workspace.submit(
        ADA, {"patterns": fields(filled)["patterns"]["initial_value"], "title": "HCA lost its partition"}
    )
    assert "Saved. Signalbox replays" in words(form(play))
    play.settle()
    reply = only([message for message in play.workspace.thread(CHANNEL, answer.ts) if "Rule " in message.text])
    assert "HCA lost its partition" in reply.text
    assert "is proposed" in text_of(reply)

    proposal = only(proposals(play.ledger.database))
    files = git(clone, "ls-tree", "-r", "--name-only", proposal.branch).split()
    assert sum(name.endswith(f"/{proposal.rule}/rule.yaml") for name in files) == 1
    assert sum("/match/" in name for name in files) >= 2
    assert "HCA lost its partition" in git(
        clone, "show", f"{proposal.branch}:{next(file for file in files if file.endswith('rule.yaml'))}"
    )
    assert git(clone, "status", "--porcelain") == ""

    git(clone, "merge", "-q", "--no-edit", proposal.branch)
    tick(play.ledger.database, datetime(2100, 1, 1, tzinfo=UTC))
    play.settle()
    merged = only([message for message in play.workspace.thread(CHANNEL, answer.ts) if "Rule " in message.text])
    assert "was merged" in text_of(merged)
    assert merged.ts == reply.ts


@pytest.mark.slow  # test_from_the_close_out_to_the_branch
def test_the_draft_is_tried_again_as_it_was_mended(play):
    """The button replays the edited form; typed text stays."""
    asked(play)
    play.settle()
    play.workspace.fill(ADA, {"patterns": "iteration \\d+/ 5000", "title": "Every step"})
    play.workspace.act(ADA, "try_rule")
    assert play.workspace.until(lambda: "Replaying it on past incidents" in words(form(play)))
    play.settle()
    filled = form(play)
    assert fields(filled)["patterns"]["initial_value"] == "iteration \\d+/ 5000"
    assert fields(filled)["title"]["initial_value"] == "Every step"


@pytest.mark.slow  # test_from_the_close_out_to_the_branch
def test_pressed_on_a_closed_incident_the_form_comes_at_once(play):
    """The cause is known, so no close-out is asked for first."""
    closed(play, "rdma_link")
    pressed(play)
    assert "Looking for a pattern that only" in words(form(play))
    play.settle()
    assert "patterns" in fields(form(play))


@pytest.mark.slow  # test_cases.py, test_from_the_close_out_to_the_branch
def test_an_unknown_failure_is_the_seed_of_a_rule_with_one_press(play, clone):
    """Nobody has closed it: the form has its lines, the class of the incidents like it, and where it was seen."""
    [answer] = play.answers()
    play.workspace.click(ADA, CHANNEL, answer.ts, "propose_rule")
    assert "Looking for a pattern that only" in words(form(play))
    play.settle()

    filled = form(play)
    assert "went stale" in fields(filled)["patterns"]["initial_value"]
    assert "initial_option" in fields(filled)["other_fault"]
    assert "Nobody has confirmed the cause of incident 4" in words(filled)
    assert "Seen: rank" in words(filled)

    play.workspace.suggest(ADA, "other_fault", "rdma link")
    sent = {"other_fault": "rdma_link", "title": "HCA lost its partition"}
    play.workspace.submit(ADA, {"patterns": fields(filled)["patterns"]["initial_value"], **sent})
    play.settle()
    proposal = only(proposals(play.ledger.database))
    rule = next(
        file for file in git(clone, "ls-tree", "-r", "--name-only", proposal.branch).split() if "rule.yaml" in file
    )
    text = git(clone, "show", f"{proposal.branch}:{rule}")
    assert "fault: rdma_link" in text
    assert "role: root_cause" in text
    assert [incident.closed_at for incident in play.ledger.incidents.list() if incident.id == 4] == [None]


def test_who_may_not_is_reported_whom_to_ask(play):
    """The close-out is stored; no rule is drafted."""
    asked(play, EVE)
    assert "The incident is closed. You don't have permission to propose rules here" in words(form(play, EVE))
    play.settle()
    assert proposals(play.ledger.database) == ()
    assert all(incident.closed_at is not None for incident in play.ledger.incidents.list())


@pytest.mark.slow  # test_who_may_not_is_reported_whom_to_ask
def test_another_person_of_the_group_may_go_on(play):
    """A form shared in a channel belongs to everyone there."""
    refresh(play.ledger.database, play.senders[0].client, [ONCALL])
    asked(play, GRACE)
    play.settle()
    assert "patterns" in fields(form(play, GRACE))


@pytest.mark.slow  # learning/drafts
def test_an_incident_that_nothing_tells_apart_gives_no_rule(play):
    """The form says why, and cannot be submitted."""
    closed(play, "code_bug")
    pressed(play)
    play.settle()
    assert "Cannot draft a rule" in words(form(play))
    assert "submit" not in form(play).source
