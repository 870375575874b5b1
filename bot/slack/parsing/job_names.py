"""Finds candidate job names in a message, such as an alert, a scheduler mail or a question; the most certain first."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from bot.slack.parsing.commands import plain, unquoted

MOST = 10
_TEXT = 20_000
_LABELS = (
    "job_id|slurm_job_id|slurm_jobid|slurmjobid|hpc_job|jobid|training_job|job_name|pytorchjob|exported_job|"
    "training_kubeflow_org_job_name|volcano_sh_job_name|jobset_name|mpijob|rayjob"
)
_NAME = r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,127}"
_FORMS = (
    re.compile(rf"\b(?:{_LABELS})\s*[=:]\s*[\"'`]?({_NAME})", re.IGNORECASE),
    re.compile(rf"\b(?:pytorchjob|mpijob|jobset|rayjob|tfjob|vcjob|job)(?:\.[a-z.]+)?/({_NAME})", re.IGNORECASE),
    re.compile(r"\bslurm-([0-9]+(?:_[0-9]+)?)\.(?:out|err)\b"),
    re.compile(r"\b(?:slurm\s+)?job[ _-]?(?:id)?\s*[#=: ]\s*([0-9]{2,12}(?:[_+][0-9]{1,6})?)\b", re.IGNORECASE),
    re.compile(rf"\bjob\s+[\"'`“]({_NAME})", re.IGNORECASE),
    re.compile(rf"`({_NAME})`"),
    re.compile(r"\b([0-9]{4,12}(?:[_+][0-9]{1,6})?)\b"),
)
_NO_NAMES = frozenset({"id", "name", "failed", "the", "is", "has", "was", "and", "for", "true", "false", "none"})


def jobs_named(message: Mapping[str, Any]) -> tuple[str, ...]:
    """Return job names and ids in a message's text, blocks and attachments, at most ten."""
    text = "\n".join(plain(line) for part in _texts(message, 0) for line in part.splitlines())[:_TEXT]
    found: dict[str, None] = {}
    for number, form in enumerate(_FORMS):
        if found and number >= len(_FORMS) - 2:
            break  # bare numbers and words count only if nothing is labelled as a job
        for hit in form.finditer(text):
            name = unquoted(hit[1]).rstrip(".,-")
            if name and name.lower() not in _NO_NAMES:
                found.setdefault(name)
    return tuple(found)[:MOST]


def _texts(part: object, depth: int) -> Iterator[str]:
    """Return all texts of a message, from every kind of block."""
    if depth > 8:
        return
    if isinstance(part, Mapping):
        for key in ("text", "fallback", "title", "pretext", "value"):
            value = part.get(key)
            if isinstance(value, str):
                yield value[:_TEXT]
        for key in ("text", "blocks", "attachments", "fields", "elements", "title"):
            yield from _texts(part.get(key), depth + 1)
    elif isinstance(part, list):
        for item in part[:200]:
            yield from _texts(item, depth + 1)
