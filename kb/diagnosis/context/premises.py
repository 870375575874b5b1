"""Which of a rule's steps apply to this run: none whose premise the logs refute, and no setting that is already in force.

The steps of a rule are written for all runs that its lines occur in. Which ranks, nodes, scheduler and devices a run has is
often known, and a sentence about others would send people to a place that does not exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kb.facts.circumstances import RunCircumstances
from kb.regex.lazy import lazy_compile
from kb.rulebase.rule import RemediationStep

MOST = 3  # steps that an answer shows: what can be done now, and what follows from it
_OTHER_DEVICES = frozenset({"amd", "npu", "gaudi", "tpu", "neuron", "xpu", "apple"})
# words that assume something of a run, a part of each of them, the circumstance that decides, and its values with which they are wrong
_PREMISES = (
    (
        lazy_compile(
            r"\b(?:other|another|all|every|each|two|both|missing|faulty) ranks?\b|\bof (?:the )?(?:other|every|all) processes\b"
            r"|\bthe (?:rank|process) that\b|\bpeers?\b|\bby local rank\b|\bbetween (?:the )?(?:ranks|processes)\b"
        ),
        ("rank", "process", "peer"),
        "processes",
        frozenset({"one"}),
    ),
    (
        lazy_compile(r"\b(?:other|all|every|each|both) nodes?\b|\bbetween (?:the )?nodes\b|\bpeer's node\b"),
        ("other node", "all node", "every node", "each node", "both node", "the nodes", "n nodes", "'s node"),
        "nodes",
        frozenset({"one"}),
    ),
    (
        lazy_compile(r"\bkubectl\b|\bKubernetes\b|\bpods?\b"),
        ("kubectl", "Kubernetes", "pod"),
        "scheduler",
        frozenset({"slurm"}),
    ),
    (
        lazy_compile(r"\bS(?:lurm|LURM_\w+)\b|\b(?:sacct|scontrol|srun|sbatch|sinfo|squeue)\b"),
        ("Slurm", "SLURM_", "sacct", "scontrol", "srun", "sbatch", "sinfo", "squeue"),
        "scheduler",
        frozenset({"kubernetes"}),
    ),
    (
        lazy_compile(r"\bXid\b|\bnvidia-smi\b|\bNVRM\b|\bCUDA_LAUNCH_BLOCKING\b"),
        ("Xid", "nvidia-smi", "NVRM", "CUDA_LAUNCH"),
        "device",
        _OTHER_DEVICES,
    ),
)
# checks that a run had passed by the time at which it failed, if it trained before
_FEW_STEPS = lazy_compile(
    r"^(?:one|two|three|ten|a few|the first) (?:training |forward |backward )?(?:batch(?:es)?|steps?|pass(?:es)?|iterations?) (?:in a row )?(?:pass|run|succeed)"
)
_PAST_IT = "the run gets past the step at which it failed"
_PARENTHESIS = lazy_compile(r" \([^()]{1,300}\)")
_SENTENCE = lazy_compile(r"(?<=[.!?])\s+(?=[A-Z`])")
_SETTING = lazy_compile(r"(?<![\w.$-])([A-Za-z]\w{4,60})=(\w[\w.]{0,40}\w|\w)")


def applicable(steps: Sequence[RemediationStep], run: RunCircumstances) -> tuple[RemediationStep, ...]:
    """Return the steps that apply to a run, at most `MOST`; all of them if none would be left."""
    fitting = (
        replace(
            step,
            text=_fitting(step.text, run),
            command=step.command if step.command and not _refuted(step.command, run) else None,
            verify=_check(step.verify, run) if step.verify and not _refuted(step.verify, run) else None,
        )
        for step in steps
    )
    return (tuple(step for step in fitting if step.text) or tuple(steps))[:MOST]


def _fitting(text: str, run: RunCircumstances) -> str:
    """Return a text without the parentheses and sentences that do not hold for a run."""
    if not _refuted(text, run) and not _is_set(text, run):
        return text
    short = _PARENTHESIS.sub(lambda found: "" if _refuted(found[0], run) else found[0], text)
    return " ".join(part for part in _SENTENCE.split(short) if not (_refuted(part, run) or _is_set(part, run)))


def _check(verify: str, run: RunCircumstances) -> str:
    """Return a check that the failed run had not passed itself: it may have made many steps before the one that failed."""
    return _PAST_IT if _FEW_STEPS.match(verify) and run.get("steps") == "some" else verify


def _refuted(text: str, run: RunCircumstances) -> bool:
    """Whether a text assumes something of a run that the logs refute."""
    return any(
        any(part in text for part in parts) and run.get(name) in wrong and words.search(text)
        for words, parts, name, wrong in _PREMISES
    )


def _is_set(sentence: str, run: RunCircumstances) -> bool:
    """Whether a sentence advises settings of which one is in force."""
    return "=" in sentence and any(run.in_force(found[1], found[2]) for found in _SETTING.finditer(sentence))
