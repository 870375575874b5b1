"""The use case behind `diagnose JOB`, shared by shell and Slack: find the job, collect its evidence, diagnose the bundle."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from bot.collection.collect import (
    CollectedBundle,
    ProtectedBundles,
    SharedSpool,
    Spare,
    collect,
    collected_anew,
    shared,
    spool_of,
)
from bot.collection.find_job import ConnectedCluster, LocatedJob, find, side_by_side
from bot.collection.window import ends_with_lines, window_gap, window_of
from bot.config.connectors import KINDS
from bot.config.settings import Cluster, Config, Connector
from bot.diagnosis.diagnose import ComparisonOptions, DiagnosisResult, Recall, diagnose_bundle
from bot.policy.job_end import as_of
from bot.rulebase.loader import Knowledge, prefilter_of
from connectors.base.contract import CheckResult, Deadline, JobQuery, SourceFailed
from connectors.base.secret import secret_digests
from kb.errors import SignalboxError
from kb.model import Prefilter, Window

DAY = 86400.0
LOOK_BACK = 30 * DAY  # jobs that ended longer ago are not searched


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A request to diagnose a job. `last`: use only this many seconds before its end; `save`: a new folder for the bundle.

    `deep`: fetch all lines of all logs, not only those that rules look for. `ended`: diagnose the run that had ended by this time
    (seconds since the epoch), even if the job is running again. `lost`: the unreachable bundle of a worker that died. `look_back`:
    the maximum number of seconds since the end of the job.
    """

    job: str
    tenant: str
    cluster: str | None = None
    namespace: str | None = None
    user: str | None = None
    last: float | None = None
    deadline: float | None = None
    save: Path | None = None
    deep: bool = False
    ended: float | None = None
    lost: Path | None = None
    look_back: float = LOOK_BACK


@dataclass(frozen=True, slots=True)
class JobAnswer:
    """The answer and its origin."""

    answer: DiagnosisResult
    located: LocatedJob
    collected: CollectedBundle


Tell = Callable[[str, str], None]
Meet = Callable[[LocatedJob], None]


def diagnose_job(
    knowledge: Knowledge,
    config: Config,
    request: JobRequest,
    *,
    workers: int | None = None,
    tell: Tell | None = None,
    spare: Spare = ProtectedBundles,
    compare: ComparisonOptions | None = None,
    recall: Callable[[LocatedJob], Recall | None] | None = None,
) -> JobAnswer:
    """Find, collect, diagnose. `spare`: returns what eviction must keep; called only if something must be removed.

    `compare` and `recall`: as in `bot.diagnosis.diagnose.diagnose_bundle`; `recall` gets the job that was found.

    Raises:
        SignalboxError: the job does not exist, nothing was collected, or a folder cannot be used. The text says what to do.
    """
    located, collected = gather(knowledge, config, request, tell=tell, spare=spare)
    remembered = recall(located) if recall is not None else None
    answer = diagnose_bundle(knowledge, collected.folder, workers=workers, compare=compare, recall=remembered)
    return JobAnswer(answer, located, collected)


def gather(
    knowledge: Knowledge,
    config: Config,
    request: JobRequest,
    *,
    tell: Tell | None = None,
    meet: Meet | None = None,
    spare: Spare = ProtectedBundles,
    located: LocatedJob | None = None,
) -> tuple[LocatedJob, CollectedBundle]:
    """Return the job and its bundle on disk. `meet` is called as soon as the job is found; for `spare`, see above.

    `located`: the job, if it was found before; it is not searched for again.
    """
    now = time.time()
    limits = config.collect
    deadline = Deadline.within(request.deadline or limits.deadline)
    clusters = {item.name: wire(item) for item in visible(config, request)}
    if located is None:
        query = JobQuery(request.job, Window(now - request.look_back, now), request.namespace, request.user)
        located = find(tuple(clusters.values()), query, deadline.sooner(limits.find))
    if request.ended is not None:
        located = replace(located, record=as_of(located.record, request.ended))
    if meet is not None:
        meet(located)
    if request.save is None:
        again = [collected_anew(request.lost)] if request.lost is not None else []
        located = replace(located, gaps=(*located.gaps, *spool_of(limits)[1], *again))
    window = window_of(located.record, limits, now, request.last)
    if ends_with_lines(located.record):
        located = replace(located, gaps=(*located.gaps, window_gap(located.record, window)))

    def make(folder: Path) -> CollectedBundle:
        return collect(
            clusters[located.cluster],
            located,
            limits,
            Prefilter() if request.deep else prefilter_of(knowledge),
            window=window,
            deadline=deadline,
            folder=folder,
            now=now,
            deep=request.deep,
            hide_emails=config.hide_emails,
            tell=tell,
        )

    if request.save is not None:
        return located, make(request.save)
    sharing = SharedSpool.of(request.tenant, limits, spare)
    origin = _origin(clusters[located.cluster].cluster, config)
    return located, shared(sharing, located, window, deadline, make, origin=origin, deep=request.deep)


def _origin(cluster: Cluster, config: Config) -> str:
    """A digest of everything that determines what a collection may contain: connectors with their settings, and what is masked.

    The values of secrets count too: a tenant or a token in an environment variable differs between two processes whose
    settings are equal.
    """
    connectors = [
        (item.name, item.type, repr(item.settings), secret_digests(item.settings)) for item in cluster.connectors
    ]
    return sha256(repr((connectors, config.hide_emails)).encode("utf-8", "surrogatepass")).hexdigest()


def visible(config: Config, request: JobRequest) -> tuple[Cluster, ...]:
    """Return the clusters that the request may and should use.

    Raises:
        SignalboxError: there is no such cluster; clusters of other tenants are not revealed.
    """
    own = config.of_tenant(request.tenant)
    if request.cluster is not None:
        own = tuple(cluster for cluster in own if cluster.name == request.cluster)
        if not own:
            raise SignalboxError(f"no cluster {request.cluster[:80]!r} is configured for you")
    if not any(cluster.connectors for cluster in own):
        raise SignalboxError("no connector is configured that could find the job; see `signalbox config example`")
    return own


def wire(cluster: Cluster) -> ConnectedCluster:
    """Return a cluster with its connectors. Each one is built once per process, so that all requests share its budget."""
    return ConnectedCluster(cluster, tuple((connector.name, built(connector)) for connector in cluster.connectors))


_BUILT: dict[tuple[str, str, str], object] = {}


def built(connector: Connector) -> object:
    """Return the connector."""
    key = (connector.name, connector.type, repr(connector.settings))
    if key not in _BUILT:
        _BUILT[key] = KINDS[connector.type].build(connector.settings)
    return _BUILT[key]


def check(clusters: Sequence[Cluster], deadline: Deadline) -> list[tuple[str, Connector, CheckResult]]:
    """Check all connectors in parallel and return cluster, connector and result of each."""
    known = [(cluster.name, item) for cluster in clusters for item in cluster.connectors]

    def task(connector: Connector) -> Callable[[], CheckResult]:
        return lambda: built(connector).check(deadline)  # type: ignore[attr-defined]

    results = side_by_side([task(item) for _, item in known], deadline)
    return [(cluster, item, _check_result(result)) for (cluster, item), result in zip(known, results, strict=True)]


def _check_result(result: CheckResult | SourceFailed) -> CheckResult:
    return CheckResult(False, str(result), result.asked, result.hint) if isinstance(result, SourceFailed) else result
