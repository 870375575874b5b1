"""Reports packed for the store: the columns of an incident, and its report and text compressed.

Packing happens before the transaction, so that the transaction is short.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec
import zstandard

from bot.runtime.paths import DEFAULT_TENANT
from bot.runtime.redaction.structure import redacted
from kb.digest.rows import AttemptTimes
from kb.model import Attempt
from kb.report import Diagnosis, Report

REPLAY_BYTES = 256 * 1024  # bytes of an incident's text that are kept, before compression
MOST_NODES = 64  # nodes at fault that are kept
MOST_RUNS = 16  # last attempts of a job that are kept; earlier reports have the others


@dataclass(frozen=True, slots=True)
class Origin:
    """Context of a report: tenant, cluster, end of the job. `kept`: small attachments to store with the report, by name.

    `partition`, `framework`, `image`: the environment of the job; `saving`: seconds spent writing checkpoints;
    `backfilled`: found in the past, and announced to nobody. `private_to`: the only person who sees it. `logs`: the digest of the
    logs (kb.facts.evidence.logs_digest); `source`: the path of logs that are no bundle.
    """

    tenant: str = DEFAULT_TENANT
    cluster: str | None = None
    ended_at: datetime | None = None
    kept: Mapping[str, bytes] = field(default_factory=dict)
    partition: str | None = None
    framework: str | None = None
    image: str | None = None
    saving: float | None = None
    backfilled: bool = False
    private_to: str | None = None
    logs: str = ""
    source: str | None = None


@dataclass(frozen=True, slots=True)
class PackedReport:
    """A report compressed and ready to insert, so that the transaction is short."""

    row: Mapping[str, Any]
    json_zstd: bytes
    text_zstd: bytes
    size: int
    cut: bool
    kept: Mapping[str, bytes]


def file(
    report_json: bytes,
    report: Report,
    replay: bytes,
    bundle: str | None,
    now: datetime,
    *,
    origin: Origin | None = None,
) -> PackedReport:
    """A report prepared for `add_within`; see `IncidentStore.add`."""
    origin = origin or Origin()
    text = _whole_lines(replay, REPLAY_BYTES)
    return PackedReport(
        row=_masked(_row(report, bundle, now, origin)),
        json_zstd=_packed(report_json),
        text_zstd=_packed(text),
        size=len(replay),
        cut=len(text) < len(replay),
        kept={name: _packed(data) for name, data in origin.kept.items()},
    )


def _masked(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The columns with secrets masked, because they may also be saved beside the database. Only the path of the evidence stays exact."""
    return {**redacted(row), "bundle": row["bundle"]}


def _row(report: Report, bundle: str | None, now: datetime, origin: Origin) -> Mapping[str, Any]:
    """The column values of an incident."""
    first = report.diagnoses[0] if report.diagnoses else None
    return {
        "created_at": now,
        "report_id": _report_id(report, origin),
        "fingerprint": report.fingerprint,
        "rulebook_digest": report.versions.digest,
        "job_id": _storable(report.job.id),
        "job_name": _storable(report.job.name),
        "bundle": _storable(bundle),
        "verdict": report.verdict,
        "phase": report.phase,
        "fault": first.fault if first else None,
        "rule": (first.rule or None) if first else None,
        "summary": _storable(report.summary) or "",
        "tenant": origin.tenant,
        "cluster": origin.cluster,
        "owner": _storable(report.job.owner),
        "gpus": report.job.gpus,
        "gpu_hours_lost": report.decision.gpu_hours_lost,
        "ended_at": origin.ended_at,
        "attempt": report.job.attempts[-1].number if report.job.attempts else report.job.attempt,
        "width": report.job.nodes,
        "nodes": _at_fault(first),
        "runs": _runs(report.job.attempts),
        "saving": origin.saving,
        "partition": _storable(origin.partition),
        "framework": _storable(origin.framework),
        "image": _storable(origin.image),
        "advice": report.decision.advice,
        "reached": _small_number(report.progress.last_iteration),
        "backfilled": origin.backfilled,
        "private_to": origin.private_to,
        "logs": origin.logs or None,
        "source": _storable(origin.source),
    }


def _report_id(report: Report, origin: Origin) -> str:
    """The id of a stored report.

    If two tenants have the same logs, each gets a separate incident; so does a person who asks privately.
    """
    name = report.id if origin.tenant == DEFAULT_TENANT else f"{origin.tenant}:{report.id}"
    return name if origin.private_to is None else f"private:{origin.private_to}:{name}"


def _small_number(number: int | None) -> int | None:
    """The number, or None if some database cannot store it."""
    return number if number is not None and abs(number) < 2**31 else None


def _at_fault(first: Diagnosis | None) -> str:
    """The nodes at fault by the first diagnosis, without those on which the fault was only seen, as JSON."""
    named = (_storable(node) for node in first.nodes_at_fault) if first else ()
    return msgspec.json.encode(list(dict.fromkeys(text for text in named if text))[:MOST_NODES]).decode()


def _runs(attempts: Sequence[Attempt]) -> str:
    """The times of the last attempts, as JSON."""
    runs = [
        AttemptTimes(
            attempt.number,
            attempt.queued,
            attempt.scheduled,
            attempt.initialised,
            attempt.first_iterated,
            attempt.last_iterated,
            attempt.stopped,
        )
        for attempt in attempts[-MOST_RUNS:]
    ]
    return msgspec.json.encode(runs).decode()


def _storable(text: str | None) -> str | None:
    """The text without characters that some databases reject: lone surrogates (as in file names) and NUL."""
    return None if text is None else text.encode("utf-8", "replace").decode().replace("\0", "?")


def _whole_lines(text: bytes, limit: int) -> bytes:
    """The first lines of the text, at most `limit` bytes; a longer first line is cut."""
    if len(text) <= limit:
        return text
    end = text.rfind(b"\n", 0, limit) + 1
    return text[: end or limit]


def _packed(data: bytes) -> bytes:
    return zstandard.compress(data, 9)
