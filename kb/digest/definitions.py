"""The definition of each figure of the digest, in the words shown beside it everywhere."""

from __future__ import annotations

from collections.abc import Mapping

DEFINITIONS: Mapping[str, str] = {
    "failures": (
        "Job ends of the week that Signalbox was asked about and in which something failed: the verdicts fault and no_match, "
        "unless the run completed or was stopped (as planned, cancelled, preempted, at its time limit) or people closed it as 'nothing failed', "
        "and those that people closed with a fault though Signalbox had seen none. A job end that was diagnosed several times counts once, and "
        "failures that people merged count as one. Jobs that nobody asked about are not stored and do not count."
    ),
    "week": (
        "An ISO 8601 week, from Monday 00:00 to Monday 00:00 in the team's time zone, so it has 167 or 169 hours when clocks change. "
        "A failure belongs to the week in which its job ended or, if that is unknown, in which it was reported."
    ),
    "class": "The cause recorded when the failure was closed; otherwise the fault of the first diagnosis; otherwise unknown.",
    "gpu_hours": (
        "The number of GPUs of the job multiplied by the time lost, including failures merged into it. The time lost is taken from the close-out or, without one, is the sum of the known times of detection, scheduling, "
        "initialisation and recomputation. Unknown times count as nothing, so sums are lower bounds; n is the number of failures "
        "with a known time. A report and the list of incidents show a smaller figure: only the steps to repeat."
    ),
    "ran_well": (
        "Jobs of the week that completed or were stopped (as planned, cancelled, preempted, at their time limit), or that people closed as 'nothing failed': GPUs times the time from the "
        "start to the end of the last attempt, where both are known."
    ),
    "between": "Mean time between failures: hours of the week so far, divided by the failures of all jobs.",
    "to_failure": (
        "Mean time to failure by size: hours from start to stop of the attempts that stopped in the week, divided by the failures among "
        "them (n). Jobs that never failed are not known here, so the true value is higher."
    ),
    "detection": "From the last iteration line of the failed attempt until it stopped.",
    "scheduling": "From then until the next attempt had its nodes.",
    "initialisation": "From then until the first iteration line of that attempt.",
    "recomputation": "Steps since the last checkpoint times the length of a step, which is the work to repeat.",
    "recovery": (
        "Recovery time: the sum of all four, for failures whose job ran again and for which all four are known. Median, and the "
        "90th percentile (p90)."
    ),
    "ineffective": (
        "Ineffective training time: interruptions x mean recovery time + time spent writing checkpoints. An interruption is a "
        "failure whose job ran again. Unknown recovery times are assumed to be the mean of the known ones. Checkpoint time "
        "is that of the failed attempts, where known."
    ),
    "effective": (
        "Effective ratio: 1 - ineffective time / wall time. The wall time of an interrupted job runs from its first start to its last stop "
        "within the week. Jobs that never failed are not included."
    ),
    "offenders": (
        "Jobs with a hardware or network failure that names the node, or whose close-out names it, by week; a job counts once however "
        "often it was tried. A node named by a person takes precedence over the diagnosis."
    ),
    "lemon": (
        "Lemon score: -log10 of the expected number of nodes named by this many jobs or more in eight weeks if all namings were spread "
        "at random (Poisson) over all known nodes: the named ones, or as many as the widest job used. Nodes named by more jobs are "
        "excluded first, so that one does not hide the next. A score of 2 is expected in one of a hundred such periods. A lemon has a score of 2 or more and at least 3 jobs."
    ),
    "unknown": "Share of failures for which Signalbox named no cause, whatever people closed them as.",
    "closed": "Share of failures whose cause a person has confirmed.",
    "top1": "Share of diagnoses whose first fault was the cause, of those that people judged right or wrong. 'Nothing failed' counts "
    "as a wrong one if people named a fault, and a fault as a wrong one if people say that nothing failed. 'Unknown cause' is not a judgement.",
    "top3": "The same, counting any of the diagnoses shown.",
    "abstained": "Share of failures without a named cause where people confirmed that no class fits, of those that they judged.",
    "wrong": (
        "Of the answers judged by people in eight weeks, those whose first diagnosis came from the rule and was not the cause. "
        "Rules judged fewer than five times are left out."
    ),
    "open": (
        "Failures of eight weeks without a confirmed cause, except those that are snoozed and those that a backfill "
        "found; most expensive first. Here and in all shares, feedback given before an incident was reopened does not count."
    ),
    "new": "Classes, rules and nodes of this week's failures that did not occur in the seven weeks before.",
    "share": "Each share is shown with n and its 95 % Wilson interval.",
    "few": "Shares, means and medians of fewer than 5 cases are left out.",
}

LABELS: Mapping[str, str] = {
    "gpu_hours": "GPU-hours lost",
    "ran_well": "completed or stopped",
    "between": "between failures",
    "to_failure": "mean time to failure by size",
    "recovery": "time to recover",
    "ineffective": "ineffective training time",
    "effective": "effective ratio",
    "offenders": "nodes",
    "lemon": "score",
    "unknown": "no cause named",
    "closed": "closed by people",
    "top1": "correct, top answer",
    "top3": "correct, top three",
    "abstained": "correctly none",
    "wrong": "rules most often wrong",
    "open": "unresolved",
    "few": "left out",
}  # a figure's name where it is shown; the others are shown by the name of their definition
