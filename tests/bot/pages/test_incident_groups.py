"""Like incidents together, and the way from one incident to the next."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest
from flask import Flask

from bot.incidents.ledger import Ledger
from bot.incidents.lifecycle import LifecycleStep
from bot.incidents.resolution import Closing
from bot.pages.incident_groups import groups
from bot.pages.incident_list import IncidentQuery, find
from bot.pages.routes import pages
from bot.pages.signed_links import PageLinks
from bot.render.report_json import dumps
from tests.support.bot_samples import FALLEN_GPU, HEALTHY, UNKNOWN

NOW = datetime(2026, 3, 2, 8, 30, tzinfo=UTC)
LINKS = PageLinks("https://bot.example", "k" * 40, 3600.0)


@pytest.fixture
def ledger(tmp_path):
    """Three failures of one cause, the first closed, one without a known cause, a healthy run, and one of another tenant."""
    number = count()
    with Ledger(f"sqlite:///{tmp_path / 'x.db'}") as found:
        for day, report in ((27, FALLEN_GPU), (1, FALLEN_GPU), (1, FALLEN_GPU), (2, UNKNOWN), (0, HEALTHY)):
            named = replace(report, id=f"report-{next(number)}")
            found.incidents.add(dumps(named), named, b"", None, NOW - timedelta(days=day))
        found.closings.annotate(1, "default", "k", Closing("ana", "cli", "right", "shown", "gpu_fell_off_bus"), NOW)
        yield found


def test_a_cause_has_its_count_cost_and_trend(ledger):
    """The healthy run is in no group; what is closed is not open; the trend has the oldest first."""
    fallen, unknown = groups(ledger.database, "default", 4, NOW)

    assert (fallen.fault, fallen.count, fallen.open) == ("gpu_fell_off_bus", 3, 2)
    assert fallen.trend == (1, 0, 0, 0, 0, 0, 0, 2)
    assert fallen.gpu_hours == pytest.approx(3 * 9.6, rel=0.01)
    assert [height for _, height in fallen.bars] == [8, 0, 0, 0, 0, 0, 0, 16]
    assert (unknown.fault, unknown.count, unknown.gpu_hours) == ("unknown", 1, None)
    assert groups(ledger.database, "other", 4, NOW) == ()
    assert [group.count for group in groups(ledger.database, "default", 1, NOW)] == [2, 1]


def test_a_cause_counts_as_people_confirmed_it(ledger):
    """In the groups, in the choices and in the filter; no longer once the incident is open again."""

    def counts():
        found = {group.fault: group.count for group in groups(ledger.database, "default", 4, NOW)}
        listed = find(ledger.database, "default", IncidentQuery(), NOW).faults
        assert {fault: number for fault, number in listed.items() if fault} == found
        return found

    def close(incident, fault, cause="fault"):
        ledger.closings.annotate(
            incident, "default", f"{incident}-{fault}", Closing("eve", "cli", "wrong", cause, fault), NOW
        )

    close(2, "host_oom")
    close(4, "host_oom")
    assert counts() == {"gpu_fell_off_bus": 2, "host_oom": 2}
    only = find(ledger.database, "default", IncidentQuery(fault="host_oom"), NOW)
    assert {item.id for item in only.incidents} == {2, 4}
    close(2, None, "no_rule")
    assert counts() == {"gpu_fell_off_bus": 2, "host_oom": 1, "unknown": 1}
    ledger.lifecycle.step(4, "default", "again", LifecycleStep("reopen", "eve", "cli"), NOW + timedelta(hours=1))
    assert counts() == {"gpu_fell_off_bus": 2, "unknown": 2}


def test_a_run_failed_if_people_say_so(ledger):
    """A fault where the bot saw none counts; a failure that was none does not; that a run was cancelled overlooks no failure."""

    def close(incident, cause, fault=None):
        ledger.closings.annotate(
            incident, "default", f"{incident} {cause} {fault}", Closing("eve", "cli", "wrong", cause, fault), NOW
        )

    def failed():
        return {item.id for item in find(ledger.database, "default", IncidentQuery(), NOW).incidents if item.failed}

    def counted():
        return sum(group.count for group in groups(ledger.database, "default", 4, NOW))

    assert failed() == {1, 2, 3, 4}
    close(5, "fault", "cancelled")
    assert failed() == {1, 2, 3, 4}
    close(5, "fault", "host_oom")
    assert failed() == {1, 2, 3, 4, 5}
    assert counted() == 5
    close(2, "no_failure")
    assert failed() == {1, 3, 4, 5}
    assert counted() == 4


def test_what_needs_attention_comes_first(ledger):
    """Open failures, then closed ones, then runs that did not fail; or by time, or by cost."""
    by = {sort: find(ledger.database, "default", IncidentQuery(sort=sort), NOW) for sort in ("open", "newest", "cost")}

    assert [item.id for item in by["open"].incidents] == [3, 2, 4, 1, 5]
    assert [item.id for item in by["newest"].incidents] == [5, 3, 2, 4, 1]
    assert {item.id for item in by["cost"].incidents[:3]} == {1, 2, 3}


def test_a_search_looks_in_summary_cause_job_and_node(ledger):
    """Without regard to case; what looks like a pattern is looked for as it is."""

    def found(text):
        return {item.id for item in find(ledger.database, "default", IncidentQuery(text=text), NOW).incidents}

    assert found("FELL_OFF") == {1, 2, 3}
    assert found("gpu-017") == {1, 2, 3}
    assert found("vision") == {4}
    assert found("%") == set() or "%" in FALLEN_GPU.summary


@pytest.fixture
def get(ledger, known):
    """The page at an address."""
    web = Flask("test")
    web.register_blueprint(pages(ledger, known, LINKS, now=NOW.timestamp))
    return lambda address: web.test_client().get(address.removeprefix("https://bot.example")).text


def hrefs(page, words):
    """The addresses of the links with these words."""
    return [part.rsplit('href="', 1)[1].split('"')[0] for part in page.split(f">{words}<")[:-1]]


def test_from_the_overview_one_can_go_back_and_on(get):
    """To the incidents before and after, and back to the list."""
    overview = get(LINKS.overview("default", NOW.timestamp()))
    first = get(hrefs(overview, "llm-70b")[0])
    [back], [older] = hrefs(first, "All incidents"), hrefs(first, "Previous")

    assert "<h1>Incidents" in get(back)
    assert "Incident 2" in get(older)
    assert [("Incident 1" in get(address)) for address in hrefs(get(older), "Previous")] == [True]


def test_the_link_to_one_incident_opens_no_other(get):
    """Links that were posted do not lead to the list of all."""
    page = get(LINKS.incident("default", 2, NOW.timestamp()))

    assert "Incident 2" in page
    assert hrefs(page, "All incidents") + hrefs(page, "Previous") + hrefs(page, "Next") == []
