"""Slack forms, and how submissions are read."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.slack.forms.close_out import (
    CloseOut,
    CloseOutForm,
    DiagnosisOption,
    JobChoice,
    MuteForm,
    close_out,
    done_view,
    error_view,
    fault_options,
    mute_view,
    read_close_out,
    read_mute,
    read_which_job,
    which_job,
)
from tests.support.block_limits import faults_of_view
from tests.support.hostile_reports import text
from tests.support.slack_reading import read

SHOWN = (
    DiagnosisOption(1, "gpu_fell_off_bus", "xid-catalogue", "A GPU fell off the bus"),
    DiagnosisOption(2, "collective_timeout", "nccl-watchdog", "A collective timed out"),
)
KNOWN = CloseOut("shown", "gpu_fell_off_bus", "xid-catalogue", "right", ("gpu-017",), lost_hours=2.5)


def chosen(name: str, value: str) -> dict[str, Any]:
    """Return a select state as Slack sends it."""
    return {name: {name: {"type": "static_select", "selected_option": {"value": value, "text": {}}}}}


def typed(name: str, value: str | None) -> dict[str, Any]:
    """Return a text state as Slack sends it."""
    return {name: {name: {"type": "plain_text_input", "value": value}}}


def test_the_close_out_form_asks_five_things_and_fills_in_what_is_known():
    """Cause, verdict, nodes, action, lost time, and a check box."""
    view = close_out(CloseOutForm("h-7", "llm-70b failed", SHOWN, KNOWN))
    assert read(view["blocks"]) == CLOSE_OUT
    assert (view["callback_id"], view["private_metadata"]) == ("close_out", "h-7")
    assert all(block["optional"] for block in view["blocks"][1:])
    assert all(block["block_id"] == block["element"]["action_id"] for block in view["blocks"][1:])


CLOSE_OUT = """\
llm-70b failed
cause: What was it? [*A GPU fell off the bus / A collective timed out / Another fault… / No rule fits / Nothing failed / Unknown cause]
verdict: Was the answer right? [*Right / Right, but not first / Wrong / Correctly gave no cause / Not reviewed]
nodes: Nodes at fault [gpu-017]
action: What was done []
lost: Hours lost [2.50]
propose_rule: Rule [Propose a rule for this]
"""


def test_another_fault_has_a_field_and_a_note_stands_where_no_time_is_known():
    """Six fields at most."""
    view = close_out(CloseOutForm("h-7", "llm-70b failed", SHOWN, CloseOut("fault", "rdma_link")))
    fields = [block["block_id"] for block in view["blocks"] if block["type"] == "input"]
    assert fields == ["cause", "other_fault", "verdict", "nodes", "action", "note", "propose_rule"]
    assert view["blocks"][2]["element"]["initial_option"]["value"] == "rdma_link"


def test_forms_of_hostile_texts_fit():
    """Whatever the names of jobs, faults and nodes."""
    chance = Random(5)
    faults = []
    for _ in range(40):
        shown = tuple(
            DiagnosisOption(n, text(chance), text(chance), text(chance)) for n in range(chance.randint(0, 40))
        )
        known = CloseOut(
            chance.choice((None, "shown", "fault", "no_rule", "unknown")),
            text(chance),
            text(chance),
            nodes=tuple(text(chance) for _ in range(chance.choice((0, 1, 300)))),
            action=text(chance),
            lost_hours=chance.choice((None, 0.0, 1e12, -1.0)),
            note=text(chance),
            propose_rule=chance.random() < 0.5,
        )
        options = fault_options([(text(chance), text(chance)) for _ in range(300)])["options"]
        assert len(options) <= 100
        for view in (
            close_out(CloseOutForm("h", text(chance), shown, known)),
            mute_view("h", text(chance)),
            which_job("h", [(f"h{n}", text(chance)) for n in range(chance.choice((0, 1, 300)))]),
            error_view("Close out", text(chance), "e7"),
            done_view("Muted", text(chance)),
        ):
            faults += faults_of_view(view)
    assert faults == []


def test_what_was_filled_in_is_read():
    """A diagnosis from the report gives its fault and rule."""
    state = (
        chosen("cause", "shown:1")
        | chosen("verdict", "right_not_first")
        | typed("nodes", "gpu-017, gpu-018;gpu-017\ngpu-019")
        | typed("action", " swapped the board ")
        | typed("lost", "2.5")
        | typed("note", "first\nsecond token=ghp_" + "Zq3" * 12)
        | {"propose_rule": {"propose_rule": {"selected_options": [{"value": "propose_rule"}]}}}
    )
    expected = CloseOut(
        "shown",
        "gpu_fell_off_bus",
        "xid-catalogue",
        "right_not_first",
        ("gpu-017", "gpu-018", "gpu-019"),
        "swapped the board",
        2.5,
        "first\nsecond token=" + "*" * 40,
        propose_rule=True,
    )
    assert read_close_out({"values": state}, SHOWN) == (expected, {})


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (chosen("cause", "fault"), {"cause": "Choose a fault"}),
        (chosen("cause", "fault") | chosen("other_fault", "<!x>"), {"other_fault": "Choose a fault"}),
        (chosen("cause", "shown:9"), {"cause": "This option is no longer available. Choose again."}),
        (typed("lost", "-1"), {"lost": "Enter hours as a number, such as 2.5"}),
        (typed("lost", "nan"), {"lost": "Enter hours as a number, such as 2.5"}),
        (typed("nodes", " ".join(map(str, range(201)))), {"nodes": "At most 200 nodes. You entered 201."}),
        (typed("nodes", "n1\u202e"), {"nodes": "Enter node names, separated by commas"}),
        (typed("action", "a" * 501), {"action": "At most 500 characters. You entered 501."}),
        (chosen("cause", "fault") | chosen("other_fault", "rdma_link"), {}),
        ({}, {}),
    ],
)
def test_errors_stand_beside_their_fields(state: dict, expected: dict):
    """An empty form is valid: nothing is required."""
    assert read_close_out(state, SHOWN)[1] == expected


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=8) | st.integers(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ("values", "cause", "nodes", "lost", "note", "until", "value", "selected_option", "selected_options")
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=25,
)


@given(JSON)
def test_whatever_comes_back_is_read_without_a_crash(state: Any):
    """A client can send anything."""
    said, _ = read_close_out(state, SHOWN)
    assert said.cause in (None, "shown", "fault", "no_rule", "unknown")
    assert isinstance(read_mute(state)[1], dict)
    assert isinstance(read_which_job(state)[0], JobChoice)


def test_a_mute_is_read():
    """Duration, scope and reason."""
    state = chosen("until", "7d") | chosen("where", "everywhere") | typed("why", "known flake")
    assert read_mute({"values": state}) == (MuteForm(604_800, True, "known flake"), {})
    assert read_mute({})[1] == {"until": "Choose a duration", "where": "Choose a scope"}


def test_the_job_of_a_message_is_picked_or_typed():
    """Typed text wins."""
    assert read_which_job(chosen("job", "h2")) == (JobChoice("h2"), {})
    assert read_which_job(chosen("job", "h2") | typed("name", "llm-7b")) == (JobChoice(None, "llm-7b"), {})
    assert read_which_job(typed("name", None)) == (JobChoice(), {"name": "Enter a job"})


def test_a_search_for_a_fault_gives_options():
    """Its id is the value."""
    (option,) = fault_options([("rdma_link", "An InfiniBand link went down")])["options"]
    assert (option["value"], option["text"]["text"]) == ("rdma_link", "An InfiniBand link went down")
