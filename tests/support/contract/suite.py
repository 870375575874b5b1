"""The contract itself: a class of tests that each connector's test module inherits, with its own `subject`."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from connectors.base.contract import Bounds, Deadline
from tests.support.contract.hostile import Fault, Hostile, hostile
from tests.support.contract.subject import Subject, collect

SOON = 1.5  # seconds: the deadline if a server never ends
GRACE = 15.0  # seconds by which a busy machine may exceed it: far less than such a server continues

INJECTIONS = (
    'llm"} or {job=~".+',
    "llm' OR '1'='1",
    "llm\\",
    "llm\nX-Scope-OrgID: other",
    "llm\r\n\r\nGET /other HTTP/1.1",
    "*",
    ".*",
    "llm-7b|.*",
    "../../../../etc/passwd",
    "..",
    "%2e%2e%2f",
    "llm,other=1",
    "llm in (a,b)",
    "--help",
    "$(id)",
    "`id`",
    "llm;id",
    "llm&query=other",
    "llm#",
    "llm?limit=1",
    "l\x00m",
    "{{job}}",
    "${jndi:ldap://x}",
    "\u202ellm",
    "l" * 5000,
)


class Contract:
    """What every connector over HTTP does when its system misbehaves."""

    subject: Subject

    @pytest.fixture(scope="class")
    @classmethod
    def double(cls) -> Iterator[str]:
        """The double's address."""
        with cls.subject.double() as url:
            yield url

    @pytest.fixture
    def server(self, double: str) -> Iterator[Hostile]:
        """The hostile server in front of it."""
        with hostile(double) as server:
            yield server

    def test_well(self, server: Hostile) -> None:
        """Without a fault there is evidence, and `check` says that the connector works and what the system sent."""
        got = collect(self.subject, server.url)
        assert got.failed is None
        assert not got.nothing, got.missing
        checked = self.subject.build(server.url).check(Deadline.within(60))
        assert checked.works, checked
        assert checked.sent
        assert checked.words

    def test_nothing_there(self, server: Hostile) -> None:
        """An unknown job yields no evidence, and a gap says so."""
        got = collect(self.subject, server.url, job="no-such-job-0")
        assert got.nothing
        assert got.missing.strip()

    @pytest.mark.parametrize(
        ("fault", "code"),
        [
            ("refuse_401", "source_unauthorised"),
            ("refuse_403", "source_forbidden"),
            ("refuse_404", "source_missing"),
            ("limit_always", "source_rate_limited"),
            ("error_always", "source_server_error"),
            ("broken_json", "source_bad_answer"),
            ("cut", "source_bad_answer"),
            ("elsewhere", "source_redirected"),
            ("no_http", "source_bad_answer"),
        ],
    )
    def test_faults_become_gaps(self, server: Hostile, fault: Fault, code: str) -> None:
        """Each failure is reported with its kind, with a message for people, and by `check` with what to change."""
        if fault in self.subject.skips:
            pytest.skip(self.subject.skips[fault])
        server.fault = fault
        got = collect(self.subject, server.url)
        codes = {gap.code for gap in got.gaps} | ({got.failed.gap("x").code} if got.failed else set())
        assert code in codes, got.missing
        assert got.nothing
        assert "\x1b" not in got.missing
        checked = self.subject.build(server.url).check(Deadline.within(60))
        assert not checked.works
        assert checked.words

    @pytest.mark.parametrize("fault", ["silent", "drip", "huge"])
    def test_a_server_that_never_ends_is_left_in_time(self, server: Hostile, fault: Fault) -> None:
        """Silence, a drip and an endless answer end with the deadline, or at the limit on bytes, as a gap."""
        server.fault = fault
        began = time.monotonic()
        got = collect(self.subject, server.url, seconds=SOON, bounds=Bounds(log_bytes=1 << 20, part_bytes=1 << 20))
        assert time.monotonic() - began < SOON + GRACE
        codes = {gap.code for gap in got.gaps} | ({got.failed.gap("x").code} if got.failed else set())
        assert codes & {"source_timeout", "source_too_large", "source_bad_answer"}, got.missing

    @pytest.mark.parametrize("fault", ["limit_then_well", "error_then_well", "wrong_clock"])
    def test_what_passes_is_waited_for(self, server: Hostile, fault: Fault) -> None:
        """After 429 with Retry-After and after 500 the request is repeated; a server's wrong clock changes nothing."""
        well = collect(self.subject, server.url)
        server.seen.clear()
        server.fault = fault
        again = collect(self.subject, server.url)
        assert again.failed is None
        assert again.spool.logs == well.spool.logs
        assert again.spool.parts.keys() == well.spool.parts.keys()

    def test_nothing_listens(self) -> None:
        """An address where nothing listens is a gap at once."""
        began = time.monotonic()
        got = collect(self.subject, "http://127.0.0.1:9", seconds=SOON)
        codes = {gap.code for gap in got.gaps} | ({got.failed.gap("x").code} if got.failed else set())
        assert codes & {"source_unreachable", "source_timeout"}
        assert time.monotonic() - began < SOON + GRACE

    @pytest.mark.parametrize("name", INJECTIONS, ids=range(len(INJECTIONS)))
    def test_names_never_become_queries(self, server: Hostile, name: str) -> None:
        """A hostile name does not reach another job's evidence, another header or another path."""
        got = collect(self.subject, server.url, job=name, seconds=5)
        assert got.nothing, got.spool.logs.keys() | got.spool.parts.keys()
        assert not [target for _, target, _ in server.seen if "/../" in target or "\n" in target or "\r" in target]
