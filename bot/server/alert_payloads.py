"""Webhook payloads of Alertmanager and Grafana, read into the jobs to diagnose.

Formats: Alertmanager's webhook payload version 4, and Grafana's superset of it. Values only. An alert without a job is reported,
not guessed: the Prometheus label `job` is the scrape job, not a training job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal

import msgspec

from connectors.base.contract import first_label
from kb.errors import SignalboxError

LARGEST = 1 << 20  # bytes of a request
MOST_ALERTS = 1000
MOST_JOBS = 50  # per request
LONGEST = 256  # characters of a job's name
JOB_LABELS = (
    "job_id", "slurm_job_id", "slurm_jobid", "slurmjobid", "hpc_job", "jobid", "training_job", "job_name", "pytorchjob",
    "training_kubeflow_org_job_name", "label_training_kubeflow_org_job_name", "label_jobset_sigs_k8s_io_jobset_name",
    "volcano_sh_job_name", "label_volcano_sh_job_name", "kube_job", "exported_job",
)  # fmt: skip
NAMESPACE_LABELS = ("exported_namespace", "namespace", "kubernetes_namespace")

Labels = Annotated[dict[str, str], msgspec.Meta(max_length=200)]


class WebhookRefused(SignalboxError):  # noqa: N818 - an outcome
    """The request is not a webhook payload; the text says why."""


@dataclass(frozen=True, slots=True)
class AlertedJob:
    """A job named by alerts: its id or name, its namespace, the alert names, and their earliest start."""

    job: str
    namespace: str | None
    alerts: tuple[str, ...]
    started: datetime | None


class _Alert(msgspec.Struct):
    status: Literal["firing", "resolved"]
    labels: Labels = msgspec.field(default_factory=dict)
    starts_at: datetime | None = msgspec.field(default=None, name="startsAt")


class _Payload(msgspec.Struct):
    alerts: list[_Alert]
    common_labels: Labels = msgspec.field(default_factory=dict, name="commonLabels")
    truncated: int = msgspec.field(default=0, name="truncatedAlerts")


def read_webhook(body: bytes, job_labels: Sequence[str] = ()) -> tuple[tuple[AlertedJob, ...], tuple[str, ...]]:
    """Return the jobs named by firing alerts, in order, and what was skipped, in words.

    `job_labels`: the labels that name a job here, tried before the usual ones.

    Raises:
        WebhookRefused: too large, not JSON, or of another form.
    """
    if len(body) > LARGEST:
        raise WebhookRefused(f"the request is larger than {LARGEST} bytes")
    try:
        payload = msgspec.json.decode(body, type=_Payload)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise WebhookRefused(f"not an Alertmanager or Grafana payload: {str(error)[:200]}") from None
    left_out = [f"the sender cut off {payload.truncated} alerts"] if payload.truncated > 0 else []
    if len(payload.alerts) > MOST_ALERTS:
        left_out.append(f"{len(payload.alerts) - MOST_ALERTS} alerts beyond the first {MOST_ALERTS}")
    found: dict[tuple[str, str | None], list[_Alert]] = {}
    nameless: dict[str, int] = {}
    for alert in payload.alerts[:MOST_ALERTS]:
        if alert.status != "firing":
            continue
        labels = {**payload.common_labels, **alert.labels}
        job = first_label(labels, *job_labels, *JOB_LABELS)
        if job is None or len(job) > LONGEST or not job.isprintable():
            name = _name(alert)
            nameless[name] = nameless.get(name, 0) + 1
        else:
            found.setdefault((job, first_label(labels, *NAMESPACE_LABELS)), []).append(alert)
    left_out += [f"{count} alerts {name!r} have no known job label" for name, count in nameless.items()][:20]
    if len(found) > MOST_JOBS:
        left_out.append(f"{len(found) - MOST_JOBS} jobs beyond the first {MOST_JOBS}")
    jobs = [_alerted(job, namespace, alerts) for (job, namespace), alerts in found.items()][:MOST_JOBS]
    return tuple(jobs), tuple(left_out)


def _alerted(job: str, namespace: str | None, alerts: Sequence[_Alert]) -> AlertedJob:
    starts = [alert.starts_at for alert in alerts if alert.starts_at is not None and alert.starts_at.tzinfo is not None]
    return AlertedJob(
        job, namespace, tuple(dict.fromkeys(_name(alert) for alert in alerts))[:20], min(starts, default=None)
    )


def _name(alert: _Alert) -> str:
    labels: Mapping[str, str] = alert.labels
    return labels.get("alertname", "unnamed")[:100]
