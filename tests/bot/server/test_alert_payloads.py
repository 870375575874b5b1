"""Webhook payloads of Alertmanager and Grafana, and invalid requests."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.server.alert_payloads import LARGEST, MOST_JOBS, AlertedJob, WebhookRefused, read_webhook
from tests.support.common.alert_samples import alert, payload

STARTED = datetime(2026, 3, 4, 5, 6, 7, 123457, tzinfo=UTC)


def test_alerts_are_grouped_by_job() -> None:
    """Each job has one entry, in order, with its alert names; resolved alerts are ignored."""
    body = payload(
        alert(slurm_job_id="4711", job="dcgm"),
        alert(slurm_job_id="4711", alertname="XidErrors"),
        alert(job_name="llm-7b", namespace="ml"),
        alert("resolved", slurm_job_id="9"),
    )
    jobs = (
        AlertedJob("4711", None, ("GPUHang", "XidErrors"), STARTED),
        AlertedJob("llm-7b", "ml", ("GPUHang",), STARTED),
    )
    assert read_webhook(body) == (jobs, ())


def test_labels_of_the_site_come_first() -> None:
    """Labels shared by all alerts count, too."""
    body = payload(alert(run="r1", job_id="2"), commonLabels={"exported_namespace": "ml"})
    [job], _ = read_webhook(body, ("run",))
    assert (job.job, job.namespace) == ("r1", "ml")


def test_an_alert_that_names_no_job_is_reported() -> None:
    """The Prometheus label `job` is the scrape job; no job is guessed from it."""
    jobs, left_out = read_webhook(
        payload(alert(job="node"), alert(job="node"), alert(job_id="a\nb"), truncatedAlerts=3)
    )
    assert jobs == ()
    assert left_out == (
        "the sender cut off 3 alerts",
        "3 alerts 'GPUHang' have no known job label",
    )


def test_grafana_sends_more() -> None:
    """Extra keys are ignored."""
    body = payload(alert(job_id="1", grafana_folder="x"), title="[FIRING:1]", state="alerting", orgId=1, message="m")
    assert [job.job for job in read_webhook(body)[0]] == ["1"]


def test_storms_are_bounded() -> None:
    """Of a thousand jobs the first are used and the rest are reported."""
    jobs, left_out = read_webhook(payload(*(alert(job_id=str(number)) for number in range(1100))))
    assert [job.job for job in jobs] == [str(number) for number in range(MOST_JOBS)]
    assert left_out == ("100 alerts beyond the first 1000", "950 jobs beyond the first 50")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b'{"alerts": 1}',
        b'{"alerts": [1]}',
        b'{"alerts": [{"status": "burning"}]}',
        b'{"alerts": [{"status": "firing", "labels": {"job_id": 1}}]}',
        b'{"alerts": [{"status": "firing", "startsAt": "soon"}]}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"alerts": []}' + b" " * LARGEST,
    ],
)
def test_what_is_no_payload_is_refused(body: bytes) -> None:
    """The error does not echo the request."""
    with pytest.raises(WebhookRefused) as caught:
        read_webhook(body)
    assert str(caught.value)


@given(st.binary(max_size=300))
def test_nothing_else_is_raised(body: bytes) -> None:
    """Whatever arrives."""
    with contextlib.suppress(WebhookRefused):
        read_webhook(body)
