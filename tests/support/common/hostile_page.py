"""A report whose texts attack the pages."""

from __future__ import annotations

from dataclasses import replace

from kb.report import Hang, StackBranch
from tests.support.bot_samples import FALLEN_GPU


def hostile_report(text):
    """The report of a lost GPU with the text wherever others can write."""
    best = FALLEN_GPU.diagnoses[0]
    items = tuple(
        replace(item, text=text, source=f"{item.source}", url="javascript:alert(1)") for item in best.evidence
    )
    who = tuple(replace(suspect, node=text, why=text) for suspect in best.suspects)
    steps = tuple(replace(item, text=text, command=text, verify=text) for item in best.remediation)
    worst = replace(
        best, title=text, summary=text, evidence=items, suspects=who, remediation=steps, cause=text, stage=text
    )
    job = replace(FALLEN_GPU.job, name=text, id=text, owner=text, state=text)
    exclude = tuple(replace(item, node=text, why=text) for item in FALLEN_GPU.decision.exclude)
    decision = replace(FALLEN_GPU.decision, exclude=exclude, why=text, owner=text)
    votes = tuple(replace(vote, detail=text) for vote in FALLEN_GPU.hang.votes)
    stacks = (StackBranch(0, (text, text), 3, text[:200], text[:200]),)
    return replace(
        FALLEN_GPU, summary=text, bundle=text, job=job, decision=decision, diagnoses=(worst,), hang=Hang(votes=votes, stacks=stacks)
    )  # fmt: skip
