"""A report whose texts attack the pages."""

from __future__ import annotations

from dataclasses import replace

from kb.report import Hang, StackBranch
from tests.support.bot_samples import FALLEN_GPU


def hostile_report(text):
    """The report of a lost GPU with the text wherever others can write."""
    best = FALLEN_GPU.diagnoses[0]
    items = tuple(replace(one, text=text, source=f"{one.source}", url="javascript:alert(1)") for one in best.evidence)
    who = tuple(replace(one, node=text, why=text) for one in best.suspects)
    steps = tuple(replace(one, text=text, command=text, verify=text) for one in best.remediation)
    worst = replace(
        best, title=text, summary=text, evidence=items, suspects=who, remediation=steps, cause=text, stage=text
    )
    job = replace(FALLEN_GPU.job, name=text, id=text, owner=text, state=text)
    exclude = tuple(replace(one, node=text, why=text) for one in FALLEN_GPU.decision.exclude)
    decision = replace(FALLEN_GPU.decision, exclude=exclude, why=text, owner=text)
    votes = tuple(replace(one, detail=text) for one in FALLEN_GPU.hang.votes)
    stacks = (StackBranch(0, (text, text), 3, text[:200], text[:200]),)
    return replace(
        FALLEN_GPU, summary=text, bundle=text, job=job, decision=decision, diagnoses=(worst,), hang=Hang(votes=votes, stacks=stacks)
    )  # fmt: skip
