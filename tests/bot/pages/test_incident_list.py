"""The incidents by fault, node, job and state: those asked for and no others, of one tenant, on both kinds of databases."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bot.incidents.ledger import Ledger
from bot.incidents.lifecycle import LifecycleStep
from bot.incidents.resolution import Closing
from bot.pages.incident_list import MOST_PAGES, SIZE, STATES, USUAL_WEEKS, IncidentQuery, find
from bot.store.tables import IncidentRow

NOW = datetime(2026, 11, 22, 8, 0, tzinfo=UTC)


def fill(ledger):
    """Five incidents of two tenants; their numbers by name."""
    rows: dict[str, dict[str, Any]] = {
        "ecc": {
            "fault": "gpu_memory_ecc",
            "nodes": '["gpu-1","gpu-10"]',
            "job_name": "LLM-70b",
            "job_id": "4711",
            "age": 1,
        },
        "nccl": {"fault": "collective_timeout", "nodes": '["gpu-10"]', "job_name": "llm-7b", "job_id": "12", "age": 2},
        "none": {"fault": None, "nodes": "broken", "job_name": None, "job_id": "x%_y", "age": 3, "pinned": True},
        "old": {"fault": "gpu_memory_ecc", "nodes": None, "job_name": "llm-70b", "job_id": "9", "age": 40},
        "other": {
            "fault": "gpu_memory_ecc",
            "nodes": '["gpu-1"]',
            "job_name": "llm-70b",
            "age": 1,
            "tenant": "b",
            "job_id": "1",
        },
    }
    with ledger.database.session(write=True) as session:
        made = {
            name: IncidentRow(
                created_at=NOW - timedelta(days=item.pop("age")), report_id=name, fingerprint="f", rulebook_digest="d",
                verdict="fault" if item["fault"] else "no_match", phase="failed", summary=name, **item,
            )
            for name, item in rows.items()
        }  # fmt: skip
        session.add_all(made.values())
        session.flush()
        return {name: row.id for name, row in made.items()}


@pytest.fixture
def filled(database):
    """A ledger with five incidents, and their numbers."""
    with Ledger(database) as ledger:
        yield ledger, fill(ledger)


@pytest.mark.quick(8)
@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, ["ecc", "nccl", "none"]),
        ({"weeks": "0"}, ["ecc", "nccl", "none", "old"]),
        ({"weeks": "12", "fault": "gpu_memory_ecc"}, ["ecc", "old"]),
        ({"fault": "unknown"}, ["none"]),
        ({"fault": "none"}, ["none"]),
        ({"node": "gpu-1"}, ["ecc"]),
        ({"node": "gpu-10"}, ["ecc", "nccl"]),
        ({"node": "gpu%"}, []),
        ({"node": '","'}, []),
        ({"job": "llm-70B"}, ["ecc"]),
        ({"job": "%_"}, ["none"]),
        ({"job": "' OR 1=1 --"}, []),
        ({"state": "pinned"}, ["none"]),
        ({"state": "open"}, ["nccl", "none"]),
        ({"state": "closed"}, ["ecc"]),
        ({"state": "closed", "fault": "collective_timeout"}, []),
        ({"state": "snoozed"}, []),
        ({"state": "merged"}, []),
        ({"state": "asleep"}, ["ecc", "nccl", "none"]),
        ({"page": "2"}, []),
    ],
)
def test_those_asked_for_come_the_newest_first(filled, asked, expected):
    """By each filter and by several; what looks like a pattern or like SQL is looked for as it is."""
    ledger, numbers = filled
    ledger.closings.annotate(
        numbers["ecc"], "default", "k", Closing("ana", "cli", "right", "shown", "gpu_memory_ecc"), NOW
    )
    found = find(ledger.database, "default", IncidentQuery.of(asked | {"sort": "newest"}), NOW)
    assert expected == [incident.summary for incident in found.incidents]
    assert found.count == (3 if "page" in asked else len(expected))


def test_each_state_has_its_own(filled):
    """Those that are taken, put off, merged: with who has them, until when, and into which."""
    ledger, numbers = filled
    until = NOW + timedelta(hours=8)
    ledger.lifecycle.step(numbers["ecc"], "default", "1", LifecycleStep("ack", "ana", "cli"), NOW)
    ledger.lifecycle.step(numbers["nccl"], "default", "2", LifecycleStep("snooze", "ana", "cli", until=until), NOW)
    ledger.lifecycle.step(
        numbers["none"], "default", "3", LifecycleStep("merge", "ana", "cli", other=numbers["ecc"]), NOW
    )
    found = {
        state: find(ledger.database, "default", IncidentQuery.of({"state": state, "sort": "newest"}), NOW).incidents
        for state in STATES
    }
    assert {item: [each.summary for each in listed] for item, listed in found.items()} == {
        "any": ["ecc", "nccl", "none"],
        "open": [],
        "acknowledged": ["ecc"],
        "snoozed": ["nccl"],
        "closed": [],
        "merged": ["none"],
        "pinned": ["none"],
    }
    told = [(item.state, item.assignee, item.snoozed_until, item.merged_into) for item in found["any"]]
    assert told == [
        ("acknowledged", "ana", None, None),
        ("snoozed", None, until, None),
        ("merged", None, None, numbers["ecc"]),
    ]
    later = find(ledger.database, "default", IncidentQuery.of({"state": "open"}), until)
    assert [incident.summary for incident in later.incidents] == ["nccl"]


def test_what_is_known_of_an_incident_is_listed(filled):
    """Its confirmed cause, and no nodes of the answer that it refutes; the counts of each fault in these weeks do not depend on the filter."""
    ledger, numbers = filled
    ledger.closings.annotate(numbers["nccl"], "default", "k", Closing("ana", "cli", "wrong", "fault", "rdma_link"), NOW)
    found = find(ledger.database, "default", IncidentQuery(fault="rdma_link"), NOW)
    (one,) = found.incidents
    assert (one.id, one.job, one.nodes, one.state) == (numbers["nccl"], "llm-7b", (), "closed")
    assert one.word.last.said.fault == "rdma_link"
    assert found.faults == {"gpu_memory_ecc": 1, "rdma_link": 1, "unknown": 1}


def test_what_people_said_and_read_is_found(filled):
    """The nodes that they named take the place of the suspects; their words, the number and the path of the logs are searched."""
    ledger, numbers = filled
    told = Closing(
        "ana", "cli", "wrong", "fault", "node_lost", None, ("gpu-n09",), "squeezed the plug", None, "riser loose"
    )
    ledger.closings.annotate(numbers["nccl"], "default", "k", told, NOW)
    with ledger.database.session(write=True) as session:
        session.get_one(IncidentRow, numbers["ecc"]).job_id = f"{numbers['old']}711"  # newer, and has the number too
        row = session.get_one(IncidentRow, numbers["none"])
        row.job_id, row.source = None, "/work/read/56/logs"
        session.add(row)

    def found(**asked: str) -> list[tuple[str, str, tuple[str, ...]]]:
        page = find(ledger.database, "default", IncidentQuery.of(asked), NOW)
        return [(item.summary, item.job, item.nodes) for item in page.incidents]

    named = [("nccl", "llm-7b", ("gpu-n09",))]
    assert found(node="gpu-n09") == found(text="Squeezed") == found(text="riser loose") == found(text="n09") == named
    assert found(text=f"#{numbers['nccl']}") == named
    assert found(text=str(numbers["nccl"]))[0] == named[0]
    assert next(name for name, *_ in found(text=str(numbers["old"]), weeks="0")) == "old"
    assert [name for name, *_ in found(node="gpu-10")] == ["ecc"]
    assert found(text="/work/read/56") == found(job="read/56/logs") == [("none", ".../read/56/logs", ())]
    assert found(text="9" * 40) == []


def test_pages_go_on_where_the_last_one_ended(tmp_path):
    """None is left out, none comes twice, though many have the same time."""
    with Ledger(f"sqlite:///{tmp_path / 'x.db'}") as ledger:
        with ledger.database.session(write=True) as session:
            session.add_all(
                IncidentRow(
                    created_at=NOW - timedelta(seconds=at // 7), report_id=str(at), fingerprint="f", rulebook_digest="d",
                    verdict="fault", phase="failed", summary="",
                )
                for at in range(SIZE * 2 + 7)
            )  # fmt: skip
        found = [find(ledger.database, "default", IncidentQuery(page=page), NOW) for page in (1, 2, 3)]
        assert [len(item.incidents) for item in found] == [SIZE, SIZE, 7]
        assert len({incident.id for page in found for incident in page.incidents}) == 2 * SIZE + 7
        assert [item.pages for item in found] == [3, 3, 3]


def test_a_form_that_nobody_filled_in_is_the_usual_list():
    """Values that are not valid choices are ignored; every list is bounded."""
    assert IncidentQuery.of({"state": "x", "weeks": "-1", "page": "0", "fault": "", "what": "x"}) == IncidentQuery()
    assert IncidentQuery.of({"weeks": "٣", "page": "9" * 30}) == IncidentQuery(weeks=USUAL_WEEKS)
    assert IncidentQuery.of({"page": "999999"}).page == MOST_PAGES
    assert IncidentQuery.of({"node": "\0" + "x" * 999, "job": " a\udcff "}) == IncidentQuery(node="x" * 128, job="a?")
