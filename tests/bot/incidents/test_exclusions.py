"""Node exclusions, on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlmodel import select

from bot.incidents.exclusions import (
    MOST_PROPOSED,
    AlreadyDecided,
    ExclusionNotFound,
    ExclusionRequest,
    NodeExclusion,
    command,
    in_force_within,
    in_words,
    propose_within,
)
from bot.incidents.ledger import Ledger
from bot.render.report_json import dumps
from bot.store.tables import AuditRow, PostingRow
from kb.errors import SignalboxError
from kb.report import Decision, Exclusion, Report
from tests.support.bot_samples import FALLEN_GPU

NOW = datetime(2026, 3, 2, 8, 30, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
def ledger(database: str) -> Iterator[Ledger]:
    """An incident whose decision leaves out gpu-017, not proposed yet."""
    with Ledger(database) as made:
        made.incidents.add(dumps(FALLEN_GPU), FALLEN_GPU, b"", None, NOW)
        yield made


def proposed(ledger: Ledger, report: Report = FALLEN_GPU, incident: int = 1, at: datetime = NOW) -> int:
    """Propose what a report's decision leaves out; how many are new."""
    return ledger.database.write(
        lambda session: propose_within(session, report, tenant="default", cluster="c1", incident=incident, now=at)
    )


def excluding(*nodes: str, scope: str = "cluster") -> Report:
    """A report whose decision leaves these out."""
    told = tuple(Exclusion(node, scope, "why") for node in nodes)  # type: ignore[arg-type]
    return replace(FALLEN_GPU, decision=Decision("requeue_without", told))


def in_force(
    ledger: Ledger, *nodes: str, at: datetime = NOW, cluster: str | None = "c1", job: str = "llm"
) -> list[str]:
    """Return which of these are excluded for a job."""
    with ledger.database.session() as session:
        found = in_force_within(session, "default", cluster, nodes=nodes, jobs=(job,), now=at)
    return sorted(f"{node_exclusion.node} {node_exclusion.scope}" for node_exclusion in found)


def test_a_diagnosis_proposes_and_bars_nothing_by_itself(ledger: Ledger) -> None:
    """Once, however often it is diagnosed, and whoever else names the node meanwhile."""
    assert [proposed(ledger), proposed(ledger), proposed(ledger, incident=2)] == [1, 0, 0]
    (one,) = ledger.exclusions.list("default")
    assert (one.node, one.scope, one.state, one.who, one.incident_id) == (
        "gpu-017",
        "cluster",
        "proposed",
        "signalbox",
        1,
    )
    assert in_words(one, NOW) == "exclusion proposed for the cluster on 2026-03-02"
    assert in_force(ledger, "gpu-017") == []


def test_who_confirms_bars_it_and_stands_in_the_audit(ledger: Ledger) -> None:
    """The messages about the incident say it; a second delivery of the click changes nothing."""
    proposed(ledger)
    with ledger.database.session(write=True) as session:
        session.add(
            PostingRow(
                handle="h", once="o", tenant="default", channel="C1", incident_id=1, created_at=NOW, ready_at=NOW
            )
        )
    assert ledger.exclusions.decide(1, "default", "barred", "ana", NOW)[1]
    assert not ledger.exclusions.decide(1, "default", "barred", "ana", NOW + DAY)[1]
    (one,) = ledger.exclusions.list("default")
    assert in_words(one, NOW) == "excluded for the cluster on 2026-03-02 by ana"
    assert in_force(ledger, "gpu-017", "gpu-018") == ["gpu-017 cluster"]
    with ledger.database.session() as session:
        assert [(row.who, row.verb, row.what) for row in session.exec(select(AuditRow))] == [
            ("ana", "bar", "excluded gpu-017")
        ]
        assert [row.version for row in session.exec(select(PostingRow))] == [2]


def test_of_two_people_the_second_is_reported_what_the_first_did(ledger: Ledger) -> None:
    """Refused and confirmed at once: one of both holds."""
    proposed(ledger)
    ledger.exclusions.decide(1, "default", "refused", "ana", NOW)
    with pytest.raises(AlreadyDecided, match=r"gpu-017 was refused by ana on 2026-03-02 08:30Z"):
        ledger.exclusions.decide(1, "default", "barred", "bob", NOW)
    with pytest.raises(AlreadyDecided, match="was refused by ana"):
        ledger.exclusions.decide(1, "default", "lifted", "bob", NOW)
    assert in_force(ledger, "gpu-017") == []


def test_several_who_decide_at_once_end_with_one_decision(ledger: Ledger) -> None:
    """Threads of one pool, half of them for it and half against."""
    proposed(ledger)
    told: list[str] = []

    def decide(number: int) -> None:
        to = "barred" if number % 2 else "refused"
        try:
            _, new = ledger.exclusions.decide(1, "default", to, f"p{number}", NOW)  # type: ignore[arg-type]
            told.append(f"new {to}" if new else f"same {to}")
        except AlreadyDecided:
            told.append("late")

    threads = [threading.Thread(target=decide, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(told) == 8
    assert [text for text in told if text.startswith("new")] in (["new barred"], ["new refused"])
    assert told.count("late") == 4


def test_what_was_refused_for_an_incident_is_not_proposed_by_it_again(ledger: Ledger) -> None:
    """Another incident may propose it."""
    proposed(ledger)
    ledger.exclusions.decide(1, "default", "refused", "ana", NOW)
    assert proposed(ledger, at=NOW + DAY) == 0
    assert proposed(ledger, incident=2, at=NOW + DAY) == 1


def test_a_bar_ends_with_its_time(ledger: Ledger) -> None:
    """It is in force until then; after that it makes room for the next one."""
    one = ledger.exclusions.add(ExclusionRequest("default", "c1", "gpu-1", until=NOW + DAY, why="ECC"), "ana", NOW)
    assert in_words(one, NOW) == "excluded for the cluster on 2026-03-02 by ana, until 2026-03-03 08:30Z"
    assert in_force(ledger, "gpu-1") == ["gpu-1 cluster"]
    assert in_force(ledger, "gpu-1", at=NOW + DAY) == []
    assert in_words(one, NOW + DAY) == "exclusion expired on 2026-03-03"
    with pytest.raises(AlreadyDecided, match="expired on 2026-03-03"):
        ledger.exclusions.decide(one.id, "default", "lifted", "bob", NOW + 2 * DAY)
    again = ledger.exclusions.add(ExclusionRequest("default", "c1", "gpu-1"), "bob", NOW + 2 * DAY)
    states = [
        (each.id, each.state, each.decided_by)
        for each in ledger.exclusions.list("default", node="gpu-1", states=("barred", "lifted"))
    ]
    assert states == [(again.id, "barred", "bob"), (one.id, "lifted", "signalbox")]


def test_a_person_bars_what_is_proposed_and_nothing_twice(ledger: Ledger) -> None:
    """The proposal becomes the exclusion; a second attempt raises an error that names the first person."""
    proposed(ledger)
    one = ledger.exclusions.add(ExclusionRequest("default", "c1", " gpu-017 ", why="seen it myself"), "ana", NOW)
    assert (one.id, one.state, one.why) == (1, "barred", "seen it myself")
    with pytest.raises(AlreadyDecided, match="gpu-017 is already excluded by ana"):
        ledger.exclusions.add(ExclusionRequest("default", "c1", "gpu-017"), "bob", NOW)
    ledger.exclusions.decide(1, "default", "lifted", "bob", NOW)
    assert ledger.exclusions.add(ExclusionRequest("default", "c1", "gpu-017"), "bob", NOW).id == 2


def test_for_one_job_for_one_cluster_for_one_tenant(ledger: Ledger) -> None:
    """An exclusion applies only to the jobs it was made for."""
    ledger.exclusions.add(ExclusionRequest("default", "c1", "gpu-1", "job", "llm"), "ana", NOW)
    ledger.exclusions.add(ExclusionRequest("default", "c2", "gpu-2"), "ana", NOW)
    ledger.exclusions.add(ExclusionRequest("other", "c1", "gpu-3"), "ana", NOW)
    ledger.exclusions.add(ExclusionRequest("default", "", "gpu-4"), "ana", NOW)
    names = ("gpu-1", "gpu-2", "gpu-3", "gpu-4")
    assert in_force(ledger, *names) == ["gpu-1 job", "gpu-4 cluster"]
    assert in_force(ledger, *names, job="else") == ["gpu-4 cluster"]
    assert in_force(ledger, *names, cluster=None, job="else") == ["gpu-2 cluster", "gpu-4 cluster"]
    assert [item.node for item in ledger.exclusions.list("other")] == ["gpu-3"]
    with pytest.raises(ExclusionNotFound):
        ledger.exclusions.decide(3, "default", "lifted", "mallory", NOW)


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "-x",
        "a b",
        "a\nb",
        "a;reboot",
        "$(id)",
        "a" * 254,
        "nöde",
        "a/b",
        "a,b",
        "\x1b[31mred",
        "a\u202eb",
        ".",
    ],
)
def test_hostile_names_are_no_names(ledger: Ledger, name: str) -> None:
    """A person gets an error; names from a report are left out, since its lines can contain anything."""
    with pytest.raises(SignalboxError, match="is not a valid node name"):
        ledger.exclusions.add(ExclusionRequest("default", "c1", name), "ana", NOW)
    assert proposed(ledger, excluding(name)) == 0


@pytest.mark.parametrize("number", [0, -1, 77, 2**31, 2**70])
def test_numbers_that_no_bar_has(ledger: Ledger, number: int) -> None:
    """As a person may type them."""
    with pytest.raises(ExclusionNotFound, match=r"does not exist"):
        ledger.exclusions.decide(number, "default", "barred", "ana", NOW)


def test_an_end_in_the_past_is_refused(ledger: Ledger) -> None:
    """It would exclude nothing."""
    with pytest.raises(SignalboxError, match="must lie in the future"):
        ledger.exclusions.add(ExclusionRequest("default", "c1", "gpu-1", until=NOW), "ana", NOW)


def test_hundreds_of_nodes_are_no_nodes_fault(ledger: Ledger) -> None:
    """The number of proposals is limited; a job without a name gets none, since the scope would be unclear."""
    assert proposed(ledger, excluding(*(f"gpu-{n}" for n in range(500)))) == MOST_PROPOSED
    nameless = replace(excluding("gpu-900", scope="job"), job=replace(FALLEN_GPU.job, id=None, name=None))
    assert proposed(ledger, nameless) == 0
    assert proposed(ledger, excluding("gpu-901", scope="job")) == 1
    assert ledger.exclusions.list("default")[0].job == "llm-70b"


def test_thousands_of_bars_are_listed_in_parts_and_asked_quickly(ledger: Ledger) -> None:
    """A job of many nodes asks for its own alone."""
    from bot.store.tables import BarRow

    with ledger.database.session(write=True) as session:
        for n in range(1200):
            session.add(
                BarRow(
                    key=f"k{n}", tenant="default", cluster="c1", node=f"n{n}", scope="cluster", job="", state="barred",
                    since=NOW + timedelta(seconds=n), who="ana", why="",
                )
            )  # fmt: skip
    assert [item.node for item in ledger.exclusions.list("default", limit=2)] == ["n1199", "n1198"]
    assert in_force(ledger, *(f"n{n}" for n in range(1190, 2700))) == [f"n{n} cluster" for n in range(1190, 1200)]


def test_several_are_decided_in_one_go(ledger: Ledger) -> None:
    """Proposals decided differently by others in the meantime are reported."""
    proposed(ledger, excluding("a1", "a2", "a3"))
    found = ledger.exclusions.of_incident(1)
    ledger.exclusions.decide(2, "default", "refused", "bob", NOW)
    done, late = ledger.exclusions.decide_all(found, "barred", "ana", NOW)
    assert [(item.node, item.state) for item in done] == [("a1", "barred"), ("a3", "barred")]
    assert late == ("a2 was refused by bob on 2026-03-02 08:30Z",)
    assert [(node_exclusion.node, node_exclusion.state) for node_exclusion in ledger.exclusions.of_incident(1)] == [
        ("a1", "barred"),
        ("a2", "refused"),
        ("a3", "barred"),
    ]


def bar(**parts: object) -> NodeExclusion:
    """Return a confirmed exclusion."""
    values = {
        "id": 1, "tenant": "default", "cluster": "c1", "node": "gpu-017", "scope": "cluster", "job": "", "state": "barred",
        "since": NOW, "until": None, "who": "ana", "why": "Xid 79", "incident_id": 42, "decided_at": NOW, "decided_by": "ana",
    }  # fmt: skip
    return NodeExclusion(**{**values, **parts})  # type: ignore[arg-type]


def test_the_command_that_drains_is_words_that_a_shell_reads_as_meant() -> None:
    """Whatever a rule or a person wrote as reason."""
    assert command(bar()) == ("scontrol update NodeName=gpu-017 State=DRAIN Reason='signalbox incident 42: Xid 79'")
    assert command(bar(), "kubernetes") == "kubectl cordon gpu-017"
    hostile = command(bar(why='\'; rm -rf / #\n$(id) `id` \\ "x" ' + "y" * 500, incident_id=None))
    assert hostile.startswith("scontrol update NodeName=gpu-017 State=DRAIN Reason='signalbox:")
    assert not set(hostile.partition("Reason='")[2].removesuffix("'")) & set("'\"`$\\\n")
    assert len(hostile) < 200
