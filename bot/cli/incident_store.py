"""The store as used by one command: past runs to look up before an answer, and the answer to store after it, as in the service.

The store is opened only if it could hold something, so that a first run does not wait for it.
"""

from __future__ import annotations

from contextlib import ExitStack, closing, suppress
from dataclasses import field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Self

from kb.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlmodel import Session

    from bot.collection.find_job import LocatedJob
    from bot.config.settings import Config
    from bot.diagnosis.diagnose import ComparisonOptions, DiagnosisResult, Recall
    from bot.policy.routing import JobFacts
    from bot.rulebase.loader import Knowledge
    from bot.store.database import Database
    from bot.store.packed_reports import Origin
    from bot.store.report_writes import Stored
    from kb.report import Report


@dataclass(slots=True)
class IncidentMemory:
    """The store for one command. `on`: whether to use it; `facts`: of the job, if one was found.

    `config`: the configuration, if it was read. `source`: the path of logs that are no bundle. `promised`: the file that keeps the
    answer until it is stored; `number`, `stored`: the incident that it was stored as, and what became of it.
    """

    tenant: str
    on: bool = True
    facts: JobFacts | None = None
    promised: Path | None = None
    number: int | None = None
    stored: Stored | None = None
    source: str | None = None
    config: Config | None = None
    _open: ExitStack = field(default_factory=ExitStack)
    _database: Database | None = None
    _replay: tuple[DiagnosisResult, bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def database(self) -> Database:
        """The store, opened on first use.

        Raises:
            StoreError: it cannot be opened.
        """
        from bot.runtime.paths import database_url
        from bot.store.database import Database

        if self._database is None:
            self._database = self._open.enter_context(Database(database_url()))
        return self._database

    def compare(self, baseline: Path | None, workers: int | None, *, always: bool) -> ComparisonOptions:
        """How to compare failures that no rule matches; a good run is looked up in the store only if needed."""
        from bot.diagnosis.diagnose import ComparisonOptions

        if not self.on:
            return ComparisonOptions(always, baseline, None, workers)
        from bot.store.baselines import finder

        return ComparisonOptions(always, baseline, finder(self.database, self.tenant), workers)

    def recall(self, known: Knowledge, cluster: str | None = None) -> Recall | None:
        """Look up past runs; None if there is nothing to look up."""
        if not self.on or not _knows():
            return None
        from bot.incidents.precedents import PrecedentScope, recaller, whose

        who = whose(self.facts) if self.facts is not None else PrecedentScope(self.tenant, cluster)
        return recaller(self.database, who, known.rulebook.faults)

    def recall_of(self, known: Knowledge, located: LocatedJob) -> Recall | None:
        """The same for a job that was found."""
        from bot.policy.routing import facts_of

        self.facts = facts_of(self.tenant, located.cluster, located.record)
        return self.recall(known)

    def consoles(self, report: Report) -> tuple[tuple[str, str], ...]:
        """Names and addresses of dashboards and logs of the job's cluster, as configured."""
        if self.config is None or self.facts is None:
            return ()
        from bot.policy.console_links import console_links

        templates = self.config.links_of(self.tenant, self.facts.cluster)
        return tuple((item.name, item.url) for item in console_links(templates, report, self.facts.cluster))

    def promise(self, answer: DiagnosisResult, bundle: Path | None) -> None:
        """Write the answer beside the store before it is printed, without attachments: a signal may end this process in between."""
        import msgspec

        from bot.render.report_json import dumps
        from bot.runtime.paths import database_url
        from bot.store import unsaved
        from kb.facts.evidence import logs_digest

        if not self.on:
            return
        packed = {
            "report": dumps(answer.report),
            "replay": self._replay_of(answer),
            "bundle": _absolute(bundle),
            "now": datetime.now(UTC).isoformat(),
            "tenant": self.tenant,
            "cluster": self.facts.cluster if self.facts is not None else answer.evidence.job.cluster,
            "logs": logs_digest(answer.evidence),
            "source": self.source,
        }
        with suppress(OSError, RuntimeError):  # no home folder
            self.promised = unsaved.promise(database_url(), msgspec.msgpack.encode(packed))

    def keep(self, answer: DiagnosisResult, bundle: Path | None, kept: dict[str, bytes]) -> str | None:
        """Store the answer as an incident. Returns a warning if that fails."""
        from bot.store.incidents import remember

        now = datetime.now(UTC)
        origin = replace(_origin(answer, self.tenant, self.facts, kept, now), source=self.source)
        return remember(
            answer.report,
            self._replay_of(answer),
            _absolute(bundle),
            now=now,
            origin=origin,
            within=self._within(answer, now),
            promised=self.promised,
        )

    def _replay_of(self, answer: DiagnosisResult) -> bytes:
        """The text kept for replay, made once: masking it may take as long as the diagnosis."""
        if self._replay is None or self._replay[0] is not answer:
            self._replay = answer, answer.replay
        return self._replay[1]

    def _within(self, answer: DiagnosisResult, now: datetime) -> Callable[[Session, int, Stored], None]:
        """What is stored with the incident of a scheduler's job."""
        facts = self.facts

        def within(session: Session, number: int, stored: Stored) -> None:
            self.number, self.stored = number, stored
            if facts is None or stored == "closed":
                return
            from bot.incidents.exclusions import propose_within
            from bot.notify.announce import assign_chain
            from bot.policy.routing import link_of
            from bot.store.tables import IncidentRow

            row = session.get_one(IncidentRow, number)
            assign_chain(session, row, link_of(facts), row.ended_at or now)
            propose_within(session, answer.report, tenant=self.tenant, cluster=facts.cluster, incident=number, now=now)

        return within

    def keep_good(self, known: Knowledge, answer: DiagnosisResult, folder: Path | None) -> str | None:
        """Store a successful run as a baseline. Returns the outcome in words; None if it was not considered."""
        if not self.on or folder is None:
            return None
        from bot.handlers.keep_baseline import keep_bundle
        from bot.handlers.successful_runs import unsuitable_reason

        if unsuitable_reason(answer.report) is not None:
            return None
        label = answer.report.job.name or folder.name
        return keep_bundle(self.database(), known, folder, tenant=self.tenant, label=label, answer=answer)


@dataclass(frozen=True, slots=True)
class StorableAnswer:
    """What is stored of an answer that a worker process made."""

    report: Report
    replay: bytes
    bundle: str
    origin: Origin
    now: datetime

    def keep(self, tell: Callable[[Stored], None]) -> str | None:
        """Store it as an incident and say what became of it. Returns a warning if that fails."""
        from bot.store.incidents import remember

        return remember(
            self.report,
            self.replay,
            self.bundle,
            now=self.now,
            origin=self.origin,
            within=lambda _session, _number, stored: tell(stored),
        )


def storable(answer: DiagnosisResult, bundle: Path, *, tenant: str) -> StorableAnswer:
    """What to store of the answer on one of several bundles."""
    from bot.diagnosis.command_paths import runnable
    from bot.pages.attachments import small

    now = datetime.now(UTC)
    origin = _origin(answer, tenant, None, small(answer), now)
    return StorableAnswer(runnable(answer, anywhere=True), answer.replay, str(bundle.absolute()), origin, now)


def stored_as(kind: str, number: int | None, stored: Stored | None) -> str:
    """What became of the answer in the store, and how to see it again."""
    show = f"`signalbox incidents show {number}` shows it"
    if stored == "updated":
        return f"These logs were {kind} {number} already, which now has this answer; {show}."
    if stored == "closed":
        return f"These logs were {kind} {number}, which is closed and keeps its answer; {show}, `signalbox incidents reopen {number}` opens it."
    if stored == "from cluster":
        return f"These logs were {kind} {number}, which keeps the answer on the evidence from its cluster; {show}."
    return f"{'Already saved' if stored == 'known' else 'Saved'} as {kind} {number}; {show} again."


def counted_stored(stored: Sequence[Stored], folders: int) -> str:
    """How many of several bundles became incidents, and how many had one already."""
    new, updated = stored.count("new"), stored.count("updated")
    parts = [f"{new} of {folders} stored as new incidents"]
    parts += [f"{updated} had an incident, which now has the new answer"] * bool(updated)
    same = len(stored) - new - updated
    parts += [f"{same} were stored before"] * bool(same)
    return ", ".join(parts)


def _absolute(bundle: Path | None) -> str | None:
    """The path of a bundle, whatever the folder of the next command."""
    return None if bundle is None else str(bundle.absolute())


def _origin(
    answer: DiagnosisResult, tenant: str, facts: JobFacts | None, kept: dict[str, bytes], now: datetime
) -> Origin:
    """Where an answer comes from, with its attachments."""
    from bot.incidents.precedents import moment, traced
    from bot.store.packed_reports import Origin
    from kb.facts.evidence import logs_digest
    from kb.hangs.checkpoint_saves import time_saving

    job = answer.evidence.job
    return Origin(
        tenant,
        facts.cluster if facts is not None else job.cluster,
        moment(answer.evidence, now),
        {**kept, **traced(answer)},
        facts.partition if facts is not None else None,
        job.framework,
        job.image,
        time_saving(answer.evidence),
        logs=logs_digest(answer.evidence),
    )


def _knows() -> bool:
    """Whether the store could hold anything: a cheap check of its file, if it is one."""
    import sqlite3

    from bot.runtime.paths import database_url, sqlite_file

    try:
        path = sqlite_file(database_url())
    except (OSError, RuntimeError):  # no home folder
        return False
    if path is None:
        return True
    with suppress(sqlite3.Error), closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as store:
        return store.execute("SELECT 1 FROM incident LIMIT 1").fetchone() is not None
    return False
