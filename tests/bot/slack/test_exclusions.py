"""Node exclusions in Slack: proposed under the answer, confirmed or refused with two buttons."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.common.slack_actions import only, text_of
from tests.support.paths import BUNDLES as BUNDLE_FOLDERS
from tests.support.slack_stage import ADA, BUNDLES, CHANNEL, EVE, GRACE, Stage, stage

XID = "[ 1234.567890] NVRM: Xid (PCI:0000:5d:00): 79, pid=4242, name=python3, GPU has fallen off the bus.\n"


@pytest.fixture(scope="module")
def fallen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose kernel log on node-b says that a GPU fell off the bus."""
    folder = tmp_path_factory.mktemp("fallen") / "fallen"
    shutil.copytree(BUNDLE_FOLDERS / "rank-killed", folder)
    (folder / "logs" / "dmesg-node-b.log").write_text(XID)
    return folder


@pytest.fixture
def play(tmp_path, known, fallen, monkeypatch) -> Iterator[Stage]:
    """A service with this run; two replicas, and each delivery arrives twice."""
    url = f"sqlite:///{tmp_path / 'signalbox.db'}"
    with stage(
        tmp_path, known, url, monkeypatch.setenv, bundles={**BUNDLES, "fallen": fallen}, replicas=2, duplicate=True
    ) as made:
        yield made


def buttons(message) -> dict[str, dict]:
    """Return the two buttons by action."""
    return {
        element["action_id"]: element
        for block in message.blocks
        if block["type"] == "actions"
        for element in block["elements"]
        if element["action_id"].startswith("bar_")
    }


def press(play, what, user=ADA):
    """Press one of the buttons."""
    message = only(play.answers())
    delivery = play.workspace.click(user, CHANNEL, message.ts, what, None)
    play.settle()
    return delivery


def test_proposed_and_confirmed(play):
    """The button asks for confirmation; then the message says who excluded the node, and that person gets the drain command."""
    play.diagnose("fallen")
    message = only(play.answers())
    assert "node-b: exclusion proposed for the cluster" in text_of(message)
    found = buttons(message)
    assert found["bar_confirm"]["confirm"]["title"]["text"] == "Exclude node-b?"
    assert "Nothing changes on the cluster" in found["bar_confirm"]["confirm"]["text"]["text"]
    assert press(play, "bar_confirm").acknowledged
    told = text_of(only(play.answers()))
    assert "node-b: excluded for the cluster on" in told
    assert f'"user_id": "{ADA}"' in told
    assert buttons(only(play.answers())) == {}
    assert [text for text in play.ephemerals() if text.startswith("Excluded:")] == ["Excluded: node-b."]
    ephemeral = str(play.workspace.ephemerals(CHANNEL, ADA)[-1].blocks)
    assert "scontrol update NodeName=node-b State=DRAIN" in ephemeral
    assert [(bar.node, bar.state, bar.decided_by) for bar in play.ledger.exclusions.list("default")] == [
        ("node-b", "barred", ADA)
    ]


@pytest.mark.slow  # test_proposed_and_confirmed, incidents/test_exclusions.py
def test_refused_and_not_proposed_again_by_the_same_end(play):
    """Run again, it is the same incident and stays refused."""
    play.diagnose("fallen")
    press(play, "bar_refuse", GRACE)
    assert "node-b: exclusion refused on" in text_of(only(play.answers()))
    play.diagnose("fallen")
    assert [bar.state for bar in play.ledger.exclusions.list("default", states=("proposed", "barred", "refused"))] == [
        "refused"
    ]


def test_two_people_press_at_once(play):
    """The second person learns what the first one did."""
    play.diagnose("fallen")
    message = only(play.answers())
    play.workspace.click(ADA, CHANNEL, message.ts, "bar_refuse", None)
    play.workspace.click(GRACE, CHANNEL, message.ts, "bar_confirm", None)
    play.settle()
    assert "node-b was refused by U0ADA" in play.ephemerals(GRACE)[-1]
    assert play.ledger.exclusions.list("default") == ()


@pytest.mark.slow  # test_rights.py
def test_who_may_not_is_reported_so(tmp_path, known, fallen, monkeypatch):
    """The permission has its own verb; the proposal stays."""
    url, only_ada = f"sqlite:///{tmp_path / 'signalbox.db'}", "    verbs: {bar: [U0ADA]}"
    with stage(tmp_path, known, url, monkeypatch.setenv, tenant=only_ada, bundles={"fallen": fallen}) as play:
        play.diagnose("fallen")
        press(play, "bar_confirm", EVE)
        assert "You don't have permission" in play.ephemerals(EVE)[-1]
        assert [bar.state for bar in play.ledger.exclusions.list("default")] == ["proposed"]


@pytest.mark.slow  # messages/test_answer.py
def test_an_answer_that_leaves_out_no_node_has_no_buttons(play):
    """Nothing is proposed."""
    play.diagnose("demo")
    assert buttons(only(play.answers())) == {}
    assert "Node exclusions" not in text_of(only(play.answers()))


@pytest.mark.slow  # incidents/test_exclusions.py
def test_the_next_end_of_the_job_says_that_the_excluded_node_was_used_again(play):
    """And the cause of the previous close-out."""
    play.diagnose("fallen")
    press(play, "bar_confirm")
    play.workspace.click(ADA, CHANNEL, only(play.answers()).ts, "right", None)
    play.settle()
    job = play.runs / "fallen" / "job.yaml"
    job.write_text(job.read_text().replace("rank-killed", "again").replace("13:48:06", "15:48:06"))
    play.diagnose("lm-tiny-again")
    told = text_of(play.answers()[-1])
    assert "node-b was excluded for the cluster on" in told
    assert "It looks the same as incident 1, closed as" in told
    assert "exclusion proposed" not in told
