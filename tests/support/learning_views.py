"""Stores of incidents for the tests of learning: small made-up logs, answered by the rules at hand, closed by made-up people."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from bot.authoring.selftest import evidence_of
from bot.diagnosis.replay_text import replay_text
from bot.incidents.ledger import Ledger
from bot.incidents.resolution import Closing
from bot.render.report_json import dumps
from bot.rulebase.loader import Knowledge
from bot.store.packed_reports import Origin
from kb.diagnosis.engine import diagnose
from kb.report import JobView

NOW = datetime(2026, 11, 20, 9, tzinfo=UTC)
STEPS = "".join(f"step {at} | loss: {3 - at / 50:.4f} | lr: 3.0e-4\n" for at in range(1, 12))
OOM = STEPS + (
    "Traceback (most recent call last):\n"
    '  File "/opt/llm/train.py", line 88, in step\n    loss.backward()\n'
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB\n"
)
FULL = STEPS + (
    "Traceback (most recent call last):\n"
    '  File "/opt/llm/save.py", line 12, in save\n    handle.write(block)\n'
    "OSError: [Errno 28] No space left on device\n"
)
LEASE = (
    STEPS
    + "lease-agent: lease of volume 7 was revoked by its owner\n"
    + (
        "Traceback (most recent call last):\n"
        '  File "/opt/llm/data.py", line 5, in read\n    return volume.read()\n'
        "VolumeGoneError: volume 7 is gone\n"
    )
)
GOOD = STEPS + "training finished, exiting\n"

RULE = """format: 1
id: {id}
title: A volume's lease was revoked
fault: {fault}
role: {role}
status: {status}
severity: high
summary: A lease was revoked.
cause: Another owner took it.
impact: The volume is gone.
match:
  line:
    regex: '{regex}'
remediation:
  - action: look_at_logs
    text: Ask the other owner.
"""


def rule(
    name="lease-revoked",
    fault="storage_io",
    role="root_cause",
    status="draft",
    regex="lease of volume .{1,20} was revoked",
):
    """The text of a rule."""
    return RULE.format(id=name, fault=fault, role=role, status=status, regex=regex)


def add(
    url: str, known: Knowledge, text: str, *, job="4711", tenant="default", said: Closing | None = None, days=0
) -> int:
    """Keep an incident as it would be answered; its number."""
    evidence = evidence_of(known, known.matcher(), {"rank-0.log": text.encode()})
    report = diagnose(evidence, known.rulebook)
    report = replace(report, id=f"{report.id}-{job}", job=JobView(job, f"llm-{job}", 1, "FAILED", 1, 8, "ana"))
    with Ledger(url) as ledger:
        at = NOW + timedelta(days=days)
        number = ledger.incidents.add(
            dumps(report), report, replay_text(evidence), None, at, origin=Origin(tenant=tenant)
        )
        if said is not None:
            ledger.closings.annotate(number, tenant, f"{number}", said, at + timedelta(hours=1))
    return number


def right(fault: str, name: str | None = None) -> Closing:
    """A person who says that the answer was right."""
    return Closing("ada", "cli", "right", "shown", fault, name)


def wrong(fault: str) -> Closing:
    """A person who says that it was another fault."""
    return Closing("tim", "cli", "wrong", "fault", fault)
