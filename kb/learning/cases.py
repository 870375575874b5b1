"""Resolved incidents as the rule miner sees them, and its results. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kb.learning.rewordings import EventWords
from kb.model import Role

MINER = "7"  # raised whenever the same incidents give another rule


@dataclass(frozen=True, slots=True)
class Observation:
    """Something that no log line says: a structure from a comparison of ranks, or a change in a series.

    `kind` is one of docs/structures.md with its fields as text, or "series" with `metric` and `change`.
    """

    kind: str
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Case:
    """One past incident and what people said of it.

    `fault`: the class that it was closed with, None if nobody named one; `against`: classes that others named. `note`, `action`: what
    the close-out says about the cause, and about what people did. `decisive`: the line of the first event that no known symptom
    explains. `texts`: source → the lines kept of it, secrets masked; none if the logs are gone. `names`: hosts, people, jobs and
    the like that must not appear in rules. `told`: lines that a comparison or a person pointed at. `usual`: the words of each event of
    a good run of the job (kb.anomalies.core.severity_words.skeleton). `when`: seconds since the epoch; `state`: of the job, as the scheduler
    reports it.
    """

    id: int
    fault: str | None = None
    against: tuple[str, ...] = ()
    note: str = ""
    action: str = ""
    decisive: str = ""
    texts: Mapping[str, str] = field(default_factory=dict)
    names: frozenset[str] = frozenset()
    told: tuple[str, ...] = ()
    usual: frozenset[tuple[str, ...]] = frozenset()
    observed: tuple[Observation, ...] = ()
    stage: str | None = None
    job: str | None = None
    family: str | None = None
    when: float | None = None
    gpu_hours: float | None = None
    state: str | None = None

    @property
    def empty(self) -> bool:
        """Whether there is nothing to learn from: no text and nothing observed."""
        return not any(text.strip() for text in self.texts.values()) and not self.observed


@dataclass(frozen=True, slots=True)
class Candidate:
    """A rule that incidents support. `match` and `when` are the values of rule.yaml; `alone`: it rests on a single incident.

    `support`: the incidents that it finds, `asked` those that it should find, `counter` those of other faults in which it fires
    nevertheless, out of `tried`. `lines`: incident → its deciding lines, by source. `near`: similar lines that it must not match.
    `notes`, `actions`: what people said about the cause, and did, of each of `support`, empty where they said nothing. `remarks`: what a reviewer should know; `questions`: what a reviewer
    should add, because no incident tells. Each is a sentence. `events`: incident → what its decisive line says, by which the rule is tested;
    none for structures and conditions. `numbers`: the rule asks for numbers of the event. `said`: what its line says, with holes for the
    values that the rule captures.
    `ended`, `failed`: after how many of their lines the program ended, and how many jobs failed. `spread`: how many jobs and days they are. `before`: the line before the deciding one, if all
    incidents have it and no good run does, and `said_before` what all of them say there.
    """

    id: str
    family: str
    fault: str
    title: str
    role: Role
    match: Mapping[str, Mapping[str, Any]]
    when: Any
    support: tuple[int, ...]
    asked: tuple[int, ...]
    counter: tuple[int, ...] = ()
    tried: int = 0
    alone: bool = False
    lines: Mapping[int, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    near: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()
    events: Mapping[int, EventWords] = field(default_factory=dict)
    numbers: bool = False
    said: str = ""
    ended: int = 0
    failed: int = 0
    spread: str = ""
    before: str = ""
    said_before: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why no rule is proposed, each reason a sentence. `code`: gone, unnamed, disputed, plain_bug, explained, no_support."""

    code: str
    reasons: tuple[str, ...]
