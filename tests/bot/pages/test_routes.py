"""The pages over HTTP: who has a link sees its page and no other; nothing may be loaded, framed or kept by others."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import zstandard
from flask import Flask

from bot.digest.codec import dumps as numbers_of
from bot.incidents.ledger import Ledger
from bot.incidents.lifecycle import LifecycleStep
from bot.incidents.resolution import Closing
from bot.pages.attachments import dumps as curves_of
from bot.pages.routes import pages
from bot.pages.signed_links import LinkGrant, PageLinks, signed
from bot.pages.templates import policy
from bot.render.pictures.timeline import dumps as timeline_of
from bot.render.report_json import dumps
from bot.store.digest_rows import compute
from bot.store.packed_reports import Origin
from bot.store.tables import DigestRow
from kb.digest.weeks import Week
from tests.support.bot_samples import FALLEN_GPU, HEALTHY
from tests.support.common.hostile_page import hostile_report
from tests.support.made_pages import ATTACKS, Read, curves, timeline

SECRET = "0123456789abcdef" * 2
SETTINGS = PageLinks("https://bot.example", SECRET, 3600.0)
AT = datetime(2026, 3, 2, 8, 30, tzinfo=UTC)
WEEK = Week(2026, 10)


class Served:
    """A client of the pages, with a clock of its own."""

    def __init__(self, ledger, known):
        self.ledger, self.now = ledger, AT.timestamp() + 60.0
        web = Flask("test")
        web.register_blueprint(pages(ledger, known, SETTINGS, now=lambda: self.now))
        self.client = web.test_client()

    def get(self, address, **query):
        """The answer at an address that was given."""
        return self.client.get(address.removeprefix(SETTINGS.base_url), query_string=query)

    def add(self, report, tenant="default"):
        """An incident of a tenant, with a picture and curves."""
        small = {"timeline": timeline_of(timeline()), "curves": curves_of(curves())}
        found = self.ledger.incidents.add(
            dumps(report), report, b"", None, AT, origin=Origin(tenant=tenant, kept=small)
        )
        return getattr(found, "id", found)


@pytest.fixture
def served(tmp_path, known):
    """The pages of an empty ledger."""
    with Ledger(f"sqlite:///{tmp_path / 'x.db'}") as ledger:
        yield Served(ledger, known)


def test_a_link_leads_to_its_incident(served):
    """With all that is kept of it."""
    number = served.add(FALLEN_GPU)
    served.ledger.closings.annotate(
        number, "default", "k", Closing("ana", "cli", "right", "shown", "gpu_fell_off_bus"), AT
    )
    answer = served.get(SETTINGS.incident("default", number, served.now))
    page = Read(answer.text)
    assert (answer.status_code, page.faults) == (200, [])
    assert (
        page.missing(f"Incident {number}", "2026-03-02 08:30Z", "Requeue without", "Who wrote when", "Curves", "ana")
        == []
    )


@pytest.mark.parametrize("path", ["incident", "overview", "forged"])
def test_every_answer_is_guarded(served, path):
    """Refusals too: no script, no frame, no referrer, nothing kept by proxies, nothing guessed from content."""
    number = served.add(FALLEN_GPU)
    address = {
        "incident": SETTINGS.incident("default", number, served.now),
        "overview": SETTINGS.overview("default", served.now),
    }
    answer = served.get(address.get(path, "/pages/forged"))
    assert answer.headers["Content-Security-Policy"] == policy()
    assert "frame-ancestors 'none'" in policy()
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert answer.headers["Cache-Control"] == "private, no-store"
    assert "Set-Cookie" not in answer.headers


def test_links_end_and_cannot_be_made_up(served):
    """Expired and forged links get different answers; neither reveals the target."""
    number = served.add(FALLEN_GPU)
    address = SETTINGS.incident("default", number, served.now)
    forged = address[:-3] + ("abc" if not address.endswith("abc") else "xyz")
    assert served.get(forged).status_code == 403
    assert served.get(f"/pages/{signed('f' * 32, LinkGrant('default', number, 10**12))}").status_code == 403
    served.now += 3601.0
    gone = served.get(address)
    assert (gone.status_code, "expired" in gone.text, "gpu-017" in gone.text) == (410, True, False)


def test_a_private_incident_has_a_page_only_for_the_link_of_its_owner(served):
    """Other links, and those of others, say what they say of an incident that was never there; lists do not have it."""
    shared = served.add(FALLEN_GPU)
    report = replace(FALLEN_GPU, id="mine", job=replace(FALLEN_GPU.job, name="secret-job"))
    origin = Origin(private_to="U0ADA")
    mine = served.ledger.incidents.add(dumps(report), report, b"", None, AT, origin=origin)
    own = SETTINGS.incident("default", mine, served.now, "U0ADA")
    assert "secret-job" in served.get(own).text
    nothing = served.get(SETTINGS.incident("default", 10**6, served.now))
    for owner in (None, "U0BO"):
        answer = served.get(SETTINGS.incident("default", mine, served.now, owner))
        assert (answer.status_code, answer.text) == (404, nothing.text)
    assert "secret-job" not in served.get(SETTINGS.overview("default", served.now)).text
    assert served.get(SETTINGS.incident("default", shared, served.now)).status_code == 200
    served.now += 86_401.0
    assert served.get(own).status_code == 410


def test_tenants_are_apart(served):
    """A link of one tenant shows nothing of another's, neither by number nor in the list."""
    own, other = served.add(FALLEN_GPU, "a"), served.add(replace(HEALTHY, summary="told to b alone"), "b")
    assert served.get(SETTINGS.incident("a", own, served.now)).status_code == 200
    assert served.get(SETTINGS.incident("a", other, served.now)).status_code == 404
    listed = served.get(SETTINGS.overview("a", served.now), weeks="0").text
    assert ("fell off the bus" in listed, "told to b alone" in listed) == (True, False)


@pytest.mark.parametrize("number", [0, -1, 99, 2**63, 2**200])
def test_incidents_that_are_not_there_are_refused(served, number):
    """Whatever the number."""
    assert served.get(SETTINGS.incident("default", number, served.now)).status_code == 404


def test_the_overview_leads_to_each_page_and_filters(served):
    """Its links hold as long as its own and no longer; its form comes back as it was filled in."""
    served.add(FALLEN_GPU)
    served.add(HEALTHY)
    address = SETTINGS.overview("default", served.now)
    served.now += 3000.0
    page = Read(served.get(address).text)
    assert page.faults == []
    linked = [link for link in page.links if link != address and "?" not in link]  # the others filter this page
    assert [served.get(item).status_code for item in linked] == [200, 200]
    filtered = Read(served.get(address, fault="gpu_fell_off_bus", node="gpu-017", state="open", weeks="0").text)
    assert filtered.missing("1 matching, all time", "llm-70b", "gpu-017", "9.6", "open") == []
    served.now += 601.0
    assert [served.get(item).status_code for item in linked] == [410, 410]


def test_nothing_hostile_comes_through_the_list(served):
    """Neither reports nor query parameters."""
    for text in ATTACKS:
        served.add(replace(hostile_report(text), id=str(abs(hash(text)))))
    address = SETTINGS.overview("default", served.now)
    for query in (
        {},
        *({"node": attack, "job": attack, "fault": attack} for attack in ATTACKS if "\ud800" not in attack),
    ):
        page = Read(served.get(address, **query).text)
        assert page.faults == []
        assert all(link.startswith(SETTINGS.base_url) for link in page.links)


def test_a_report_that_cannot_be_read_is_reported_so(served):
    """By a later version, or damaged."""
    number = served.ledger.incidents.add(b'{"schema":"other"}', FALLEN_GPU, b"", None, AT)
    answer = served.get(SETTINGS.incident("default", getattr(number, "id", number), served.now))
    assert (answer.status_code, "cannot be read" in answer.text) == (404, True)


def test_the_digest_and_its_pictures(served):
    """The overview shows the latest pictures, at addresses that end with their own names; other names and tenants get none."""
    served.add(FALLEN_GPU)
    assert "in pictures" not in served.get(SETTINGS.overview("default", served.now)).text
    with served.ledger.database.session(write=True) as session:
        digest = compute(
            served.ledger.database, "default", WEEK, UTC, until=AT + timedelta(hours=1), faults={}, by_hand=True
        )
        row = DigestRow(tenant="default", week=str(WEEK), at=AT, numbers_zstd=zstandard.compress(numbers_of(digest)))
        session.add_all([row, DigestRow(tenant="b", week=str(WEEK), at=AT, error="broken")])
    page = Read(served.get(SETTINGS.overview("default", served.now)).text, pictures=f"{SETTINGS.base_url}/pages/")
    assert page.missing(f"Week {WEEK} in pictures", "Failures by class", "Eight weeks") == []
    assert page.faults == []
    address = next(link for link in page.links if link.count("/") == 4 and "?" not in link and served.get(link).text.startswith("<!doctype html>")
                   and "Failures of training jobs" in served.get(link).text)  # fmt: skip
    names = {name: served.get(f"{address}/{name}") for name in ("pareto-light.svg", "trend-dark.svg")}
    assert {(item.status_code, item.content_type, item.data[:4]) for item in names.values()} == {
        (200, "image/svg+xml", b"<svg")
    }
    for name in ("nodes-dark.svg", "pareto-blue.svg", "other-light.svg", "..", "pareto-light.svg%00"):
        assert served.get(f"{address}/{name}").status_code == 404
    assert served.get(f"{SETTINGS.incident('default', 1, served.now)}/pareto-light.svg").status_code == 404
    assert "in pictures" not in served.get(SETTINGS.overview("b", served.now)).text
    foreign = signed(SECRET, LinkGrant("b", None, int(served.now + 99), str(WEEK)))
    assert served.get(f"/pages/{foreign}").status_code == 404
    assert served.get(f"/pages/{foreign}/pareto-light.svg").status_code == 404
    served.now += 3601.0
    assert [served.get(text).status_code for text in (address, f"{address}/pareto-light.svg")] == [410, 410]


def test_a_merged_incident_and_its_whole_lead_to_each_other(served):
    """Both pages link to each other and show who merged them."""
    first, second = served.add(FALLEN_GPU), served.add(HEALTHY)
    served.ledger.lifecycle.step(
        second, "default", "k", LifecycleStep("merge", "ana", "cli", other=first, note="one switch"), AT
    )
    whole, part = (Read(served.get(SETTINGS.incident("default", item, served.now)).text) for item in (first, second))
    assert whole.missing("With", f"incident {second}", "merged into it: one switch", "ana") == []
    assert (
        part.missing("merged", "Counts as a part of", f"incident {first}", f"merged into incident {first}", "ana") == []
    )
    for page, title in ((whole, "healthy"), (part, "Requeue without")):
        linked = [served.get(link).text for link in page.links if link.startswith(SETTINGS.base_url)]
        assert any(title in text or HEALTHY.summary in text for text in linked)


def test_nothing_can_be_changed(served):
    """Only reading is there."""
    address = SETTINGS.overview("default", served.now).removeprefix(SETTINGS.base_url)
    assert [served.client.open(address, method=text).status_code for text in ("POST", "PUT", "DELETE")] == [
        405,
        405,
        405,
    ]
