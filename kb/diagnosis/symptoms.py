"""The places, times and reporting ranks of a run's symptoms, used to find what came before them."""

from __future__ import annotations

from collections.abc import Sequence

from kb.diagnosis.findings import Finding, chain_span
from kb.facts.job_facts import Facts
from kb.facts.patterns.signals import Signal
from kb.facts.topology import Places

PEER_LOST = "peer_failure"  # id of the fault class for a remote process that is gone rather than merely waiting


class Symptoms:
    """The findings of one run that are symptoms, and the bytes that any finding accounts for."""

    def __init__(self, findings: Sequence[Finding], facts: Facts, places: Places) -> None:
        self._places = places
        self.findings = tuple(finding for finding in findings if finding.is_symptom)
        self.covered: dict[int, list[tuple[int, int]]] = {}
        for finding in findings:
            for signal in finding.signals:
                span = signal.span if finding.is_symptom else chain_span(signal, facts)
                self.covered.setdefault(signal.stream, []).append((span[0], max(span[1], signal.offset + 1)))
                self.covered[signal.stream].append((signal.offset, signal.offset + 1))
        launched = {(index, item.offset) for index, item in facts.structures("elastic_failure")}
        ranks = (self.rank(item) for item in self.signals if (item.stream, item.offset) not in launched)
        # a launcher's message about a rank is not the rank's own report
        self.ranks = frozenset(rank for rank in ranks if rank is not None)

    @property
    def signals(self) -> tuple[Signal, ...]:
        """The signals of all symptoms."""
        return tuple(signal for finding in self.findings for signal in finding.signals)

    @property
    def lost_peer(self) -> bool:
        """Whether a process reports that another process is gone."""
        return any(finding.fault.id == PEER_LOST for finding in self.findings)

    def rank(self, signal: Signal) -> int | None:
        """Return the rank that reports a symptom."""
        return self._places.place(signal.stream, signal.resource).rank

    def covers(self, stream: int, offset: int) -> bool:
        """Whether a finding accounts for the line at a byte offset of a stream."""
        return any(low <= offset < high for low, high in self.covered.get(stream, ()))

    def begin(self, stream: int) -> int | None:
        """Return the byte offset at which a stream's first symptom, including its traceback, begins; None without symptoms."""
        return min((item.span[0] for item in self.signals if item.stream == stream), default=None)

    def lead(self, time: float | None) -> float | None:
        """Return the seconds from a time to the first symptom; None if that is unknown or the symptom came earlier."""
        times = [signal.time for signal in self.signals if signal.time is not None]
        return min(times) - time if times and time is not None and min(times) >= time else None

    @property
    def dated(self) -> bool:
        """Whether every symptom has a time, so that it is known which came first."""
        return all(signal.time is not None for signal in self.signals)
