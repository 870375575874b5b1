"""Resolved incidents out of the store: the one asked about first, those closed alike, the others to hold a rule against."""

from __future__ import annotations

from dataclasses import replace

from bot.incidents.resolution import Closing, Closings
from bot.learning.drafts.cases import case_of, gathered, logs_of
from bot.render.report_json import dumps, from_json
from bot.store.incidents import IncidentStore
from kb.diagnosis.engine import identified
from kb.report import Alike, Indicator
from tests.support.learning_views import FULL, GOOD, LEASE, NOW, OOM, add, wrong

LOST_RANK = "[rank2]: CRITICAL census: 3 of 40 shards unaccounted for, leaving\n" + "".join(
    f"[rank{rank}]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.3]:7000\n"
    for rank in (0, 1, 3)
)


def test_the_asked_incident_comes_first_then_those_closed_alike(url, known):
    """The newest of these first; all others and good runs are the background."""
    one = add(url, known, LEASE, job="1", said=wrong("storage_io"))
    two = add(url, known, LEASE.replace("7", "8"), job="2", said=wrong("storage_io"), days=1)
    add(url, known, OOM, job="3", said=wrong("cuda_oom"))
    add(url, known, FULL, job="4")
    add(url, known, GOOD, job="5")
    found = gathered(url, one, "default")
    assert [case.id for case in found.cases] == [one, two]
    assert sorted((other.fault or "", other.id) for other in found.background.others) == [
        ("", 4),
        ("cuda_oom", 3),
        ("healthy", 5),
    ]


def test_alone_leaves_out_those_closed_alike(url, known):
    """For where they are of another signature."""
    one = add(url, known, LEASE, job="1", said=wrong("storage_io"))
    add(url, known, FULL, job="2", said=wrong("storage_io"))
    assert [case.id for case in gathered(url, one, "default", alone=True).cases] == [one]


def test_incidents_of_other_tenants_are_not_seen(url, known):
    """Neither asked about nor among what a rule is held against."""
    mine = add(url, known, LEASE, job="1", said=wrong("storage_io"))
    theirs = add(url, known, LEASE, job="2", said=wrong("storage_io"), tenant="other")
    assert gathered(url, theirs, "default") is None
    found = gathered(url, mine, "default")
    assert ([case.id for case in found.cases], found.background.others) == ([mine], ())


def test_one_that_is_not_there_is_none(url, known):
    """Nor one beyond any number."""
    add(url, known, LEASE)
    assert [gathered(url, number, "default") for number in (99, 2**70, -1)] == [None, None, None]


def test_a_case_has_what_people_reported_and_who_disagreed(url, known):
    """The last word holds; the names of people, jobs and nodes are known as such."""
    number = add(url, known, LEASE, said=wrong("storage_io"))
    said = Closing(
        "ada.lovelace", "cli", "wrong", "fault", "data_error", nodes=("gpu-b07",), action="moved it", note="twice"
    )
    with Closings(url) as closings:
        closings.annotate(number, "default", "second", said, NOW)
    found = gathered(url, number, "default").cases[0]
    assert (found.fault, found.against, found.action, found.note) == (
        "data_error",
        ("storage_io",),
        "moved it",
        "twice",
    )
    assert {"ada.lovelace", "lovelace", "gpu-b07", "tim", "ana", "llm-4711", "4711"} <= found.names


def test_an_incident_whose_report_or_text_is_gone_is_a_case_all_the_same(url, known):
    """There is nothing in it to learn from, and the miner says so."""
    number = add(url, known, LEASE, said=wrong("storage_io"))
    with IncidentStore(url) as store:
        record = store.get(number)
    assert record is not None
    found = case_of(replace(record, report_json=b"{broken", replay=b""), ())
    assert (found.id, found.fault, found.empty, found.told) == (number, None, True, ())


def test_what_comparisons_reported_is_no_log():
    """A rule is tried on logs; secrets are masked in them once more."""
    text = b"#! source: logs/rank-0.log\npassword=hunter2hunter2 lost\n#! source: stacks/3/rank-2.json\nrank 2: idle\n"
    assert logs_of(text) == {"logs/rank-0.log": "password=************** lost\n"}


def test_logs_of_good_runs_are_good_runs(url, known):
    """Those that the configuration names, too."""
    one = add(url, known, LEASE, said=wrong("storage_io"))
    found = gathered(url, one, "default", clean={"run": {"a.log": GOOD.encode()}})
    assert [(other.fault, other.sections) for other in found.background.others] == [("healthy", (GOOD,))]


def test_the_lines_of_an_unknown_failure_are_pointed_at(url, known):
    """The first unexplained event is what a rule of it would have to find."""
    number = add(url, known, LOST_RANK)
    with IncidentStore(url) as store:
        record = store.get(number)
    assert record is not None
    assert any("census" in line for line in case_of(record, ()).told)


def test_an_unknown_failure_that_nobody_closed_is_the_seed_of_a_rule(url, known):
    """Its class is a guess, so incidents closed with that class are no examples of it; the place names no host."""
    number = add(url, known, LOST_RANK, job="1")
    other = add(url, known, LEASE, job="2", said=wrong("storage_io"))
    asked = []

    def nearest(lines):
        asked.extend(lines)
        return "storage_io"

    found = gathered(url, number, "default", nearest=nearest)
    assert any("census" in line for line in asked)
    assert [(case.id, case.fault) for case in found.cases] == [(number, "storage_io")]
    assert [case.id for case in found.background.others] == [other]
    assert found.seed is not None
    assert found.seed.seen.startswith("rank 2")


def test_what_was_closed_or_explained_is_no_guess(url, known):
    """What people said holds, and an answer that names a cause is closed before it is learned from."""
    closed = add(url, known, LOST_RANK, job="1", said=wrong("data_error"))
    explained = add(url, known, OOM, job="2")
    found = [gathered(url, number, "default", nearest=lambda _: "storage_io") for number in (closed, explained)]
    assert [(each.cases[0].fault, each.seed) for each in found] == [("data_error", None), (None, None)]


def test_a_failure_like_one_that_was_closed_is_drafted_with_its_class(url, known):
    """The incidents of that class are examples then, and no evidence against it."""
    number = add(url, known, LOST_RANK, job="1")
    other = add(url, known, LOST_RANK, job="2", said=wrong("storage_io"))
    with IncidentStore(url) as store:
        record = store.get(number)
    report = from_json(record.report_json)
    alike = (Alike(other, 0.9, "storage_io", "storage_io"),)
    near = replace(report.indicators, iterations=(Indicator("37", "estimated"),))
    again = identified(replace(report, indicators=near, memory=replace(report.memory, alike=alike)))
    with IncidentStore(url) as store:
        newest = store.add(dumps(again), again, record.replay, None, NOW)
    found = gathered(url, newest, "default", nearest=lambda _: "data_error")
    assert [(case.id, case.fault) for case in found.cases] == [(newest, "storage_io"), (other, "storage_io")]
    assert found.seed is not None
    assert found.seed.like == other
    assert found.seed.seen.endswith("near iteration 37")
