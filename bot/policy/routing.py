"""Where an automatic answer goes: subscriptions, owner of the fault, owner of the job, and which thread.

Pure functions of values. The caller gets only channels, people and reasons.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Final, Literal

from kb.model import JobRecord
from kb.parsers.schedulers.workloads import stem
from kb.report import Report
from kb.rulebase.checks import OWNERS

DAY: Final = 86400.0
CHAIN: Final = DAY  # seconds in which a job of the same name and user counts as another attempt
MOST_DESTINATIONS: Final = 20  # of one answer
_CHANNEL: Final = re.compile(r"[CGD][A-Z0-9]{2,40}")
_USER: Final = re.compile(r"[UW][A-Z0-9]{2,40}")
_OWNERS: Final = tuple(sorted(OWNERS - {"none"}))
_GROUP: Final = re.compile(r"S[A-Z0-9]{2,40}")
NAMELESS: Final = frozenset({"", "wrap", "sbatch", "bash", "sh", "interactive", "job", "test", "python"})


@dataclass(frozen=True, slots=True)
class Subscription:
    """Who wants to hear about which failed jobs. All set fields must match; in a field with several values, one match is enough."""

    to: str
    """The id of a channel (C…, G…) or of a user (U…, W…), who gets a direct message."""
    tenant: str = "default"
    """Users whose jobs match."""
    users: tuple[str, ...] = ()
    """Of the scheduler."""
    partitions: tuple[str, ...] = ()
    """Slurm partitions or Kubernetes namespaces."""
    names: tuple[str, ...] = ()
    """Job name patterns such as `llm-*`."""
    clusters: tuple[str, ...] = ()
    """Cluster names from this configuration."""
    min_gpus: int = 0
    """The minimum number of GPUs."""
    faults: tuple[str, ...] = ()
    """Patterns of the top fault, such as `nccl_*`."""
    owners: tuple[str, ...] = ()
    """Owners of the fault, such as `hardware`."""

    def __post_init__(self) -> None:
        if not (_CHANNEL.fullmatch(self.to) or _USER.fullmatch(self.to)):
            raise ValueError(
                f"to: {self.to[:80]!r} is not a channel ID (C…) or user ID (U…). Slack shows the ID under About."
            )
        if self.min_gpus < 0:
            raise ValueError("min_gpus: must not be negative")


@dataclass(frozen=True, slots=True)
class People:
    """Who is who in Slack."""

    users: Mapping[str, str] = field(default_factory=dict)
    """User of the scheduler → user id (U…)."""
    groups: Mapping[str, str] = field(default_factory=dict)
    """Owner of a fault → user group id (S…). Owners are `user`, `hardware`, `network`, `storage` and `platform`."""

    def __post_init__(self) -> None:
        for owner in self.groups:
            if owner not in _OWNERS:
                raise ValueError(f"groups: there is no owner {owner[:40]!r}; they are {', '.join(_OWNERS)}")
        wrong = [user for user in self.users.values() if not _USER.fullmatch(user)]
        wrong += [group for group in self.groups.values() if not _GROUP.fullmatch(group)]
        if wrong:
            raise ValueError(f"{wrong[0][:80]!r} is not an ID: users start with U, user groups with S")


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What routing needs to know about a job. `id`: as its scheduler shows it."""

    tenant: str
    cluster: str
    id: str
    name: str = ""
    user: str | None = None
    partition: str | None = None
    namespace: str | None = None
    gpus: int | None = None


@dataclass(frozen=True, slots=True)
class Mention:
    """A user or user group to mention, and why."""

    kind: Literal["user", "group"]
    id: str
    why: str


@dataclass(frozen=True, slots=True)
class Destination:
    """Where an answer goes. `to`: a channel id, or with `direct` a user id; `mentions`: whom to mention there; `why`: reasons."""

    to: str
    direct: bool
    why: tuple[str, ...]
    mentions: tuple[Mention, ...] = ()


@dataclass(frozen=True, slots=True)
class Link:
    """What ties the attempts of a job together: the job itself, and its name and user; None if they are not specific."""

    job: str
    name: str | None


def facts_of(tenant: str, cluster: str, record: JobRecord) -> JobFacts:
    """Return the facts of a job."""
    job = record.job
    return JobFacts(
        tenant,
        cluster,
        job.id or "",
        job.name or "",
        job.owner,
        record.partition,
        record.namespace,
        job.gpus,
    )


def destinations(
    report: Report,
    job: JobFacts,
    subscriptions: Iterable[Subscription],
    people: People | None = None,
    *,
    announce: str | None = None,
    only: str | None = None,
) -> tuple[Destination, ...]:
    """Return where this answer goes, in the order of the subscriptions, each place once, at most 20.

    `announce`: the tenant's channel for answers without a subscription. `only`: during the rollout (bot.policy.notifications)
    everything goes to this channel, and nobody is mentioned.
    """
    if only is not None:
        return (Destination(only, direct=False, why=("everything goes here until the answers are confirmed",)),)
    found: dict[str, list[str]] = {}
    for subscription in subscriptions:
        why = wanted(subscription, report, job)
        if why is not None:
            found.setdefault(subscription.to, []).append(why)
    if not found and announce is not None:
        found[announce] = ["no subscription matches"]
    calls = mentions(report, job, people or People())
    made = []
    for to, reasons in list(found.items())[:MOST_DESTINATIONS]:
        direct = _USER.fullmatch(to) is not None
        made.append(Destination(to, direct, tuple(dict.fromkeys(reasons)), () if direct else calls))
    return tuple(made)


def wanted(subscription: Subscription, report: Report, job: JobFacts) -> str | None:
    """Return why a subscription wants this answer, in words; None if it does not."""
    if subscription.tenant != job.tenant:
        return None
    first = report.diagnoses[0].fault if report.diagnoses else ""
    places = [place for place in (job.partition, job.namespace) if place]
    checks: Sequence[tuple[Sequence[str], Sequence[str], str]] = (
        (subscription.users, [job.user] if job.user else [], "user {}"),
        (subscription.partitions, places, "partition {}"),
        (subscription.names, [text for text in (job.name, job.id) if text], "job name {}"),
        (subscription.clusters, [job.cluster], "cluster {}"),
        (subscription.faults, [first] if first else [], "fault {}"),
        (subscription.owners, [report.decision.owner], "owner {}"),
    )
    why = []
    for patterns, values, words in checks:
        hit = next((two for two in patterns if any(fnmatchcase(value, two) for value in values)), None)
        if hit is None and patterns:
            return None
        why += [words.format(hit)] if hit is not None else []
    if subscription.min_gpus:
        if job.gpus is None or job.gpus < subscription.min_gpus:
            return None
        why.append(f"at least {subscription.min_gpus} GPUs")
    return "subscribed: " + (", ".join(why) or "all jobs")


def mentions(report: Report, job: JobFacts, people: People) -> tuple[Mention, ...]:
    """Return whom to mention in a channel: the group that owns the fault, else the owner of the job.

    A weak diagnosis mentions no group, so a guess pages nobody.
    """
    owner = report.decision.owner
    sure = bool(report.diagnoses) and report.diagnoses[0].band != "weak"
    group = people.groups.get(owner) if sure and report.verdict == "fault" else None
    if group is not None:
        return (Mention("group", group, f"owner {owner}"),)
    user = people.users.get(job.user or "")
    return (Mention("user", user, "owner of the job"),) if user is not None else ()


def link_of(job: JobFacts) -> Link:
    """Return what ties a job to its other attempts.

    Array tasks and job components belong together. Names of Kubernetes jobs are compared without trailing numbers.
    """
    head = (job.tenant, job.cluster, job.namespace)
    name = stem(job.name) if job.namespace else job.name
    said = job.user is not None and name.strip().lower() not in NAMELESS
    whole = re.fullmatch(r"(\d+)[_+]\d+", job.id)
    return Link(
        _digest("job", *head, whole[1] if whole else job.id), _digest("name", *head, name, job.user) if said else None
    )


def continues(link: Link, at: float, earlier: Link, earlier_at: float) -> bool:
    """Whether a job that ended at `at` is a later attempt of an earlier one: requeued, or resubmitted within a day."""
    if link.job == earlier.job:
        return True
    return link.name is not None and link.name == earlier.name and abs(at - earlier_at) <= CHAIN


def _digest(*words: str | None) -> str:
    return sha256(repr(words).encode("utf-8", "surrogatepass")).hexdigest()[:32]
