"""What each figure of the digest means, in words that stand beside it wherever it is shown."""

from __future__ import annotations

from collections.abc import Mapping

DEFINITIONS: Mapping[str, str] = {
    "failures": (
        "Ends of jobs in the week that Signalbox was asked about and in which something failed: every verdict but no_fault, "
        "unless the run completed or was stopped on purpose. A job's end that was diagnosed again counts once, and "
        "failures that people merged count as one. Jobs that nobody asked about are not in the store and not in here."
    ),
    "week": (
        "A week by ISO 8601, from Monday 00:00 to Monday 00:00 by the team's clock, so 167 or 169 hours long when clocks change. "
        "A failure belongs to the week in which its job ended; where that is not known, in which it was reported."
    ),
    "class": "The cause that people closed the failure as; else the fault of the first diagnosis; else no diagnosis.",
    "gpu_hours": (
        "GPUs of the job times the time lost, those of failures merged into it too: the hours that the close-out says; else the known ones of detection, scheduling, "
        "initialisation and recomputation. What is not known counts nothing, so sums are lower bounds; n says of how many "
        "failures anything is known."
    ),
    "between": "Mean time between failures: hours of the week so far, by failures, over all jobs together.",
    "to_failure": (
        "Mean time to failure by size: hours from start to stop of the attempts that stopped in the week, by the failures among "
        "them (n). Jobs that never failed are not known here, so the true value is larger."
    ),
    "detection": "From the last iteration line of the attempt that failed until it stopped.",
    "scheduling": "From there until the next attempt had its nodes.",
    "initialisation": "From there until the first iteration line of that attempt.",
    "recomputation": "Steps since the last checkpoint times the length of a step: what is done again.",
    "recovery": (
        "Recovery time: the four together, of failures whose job ran again and of which all four are known. Median, and the "
        "time that nine tenths do not exceed (p90)."
    ),
    "ineffective": (
        "Ineffective training time: interruptions x mean recovery time + time spent writing checkpoints. An interruption is a "
        "failure whose job ran again; those of unknown recovery time are taken at the mean of the known ones; checkpoint time "
        "is that of the attempts that failed, as far as known."
    ),
    "effective": (
        "Effective ratio: 1 - ineffective time / wall time, the wall time from first start to last stop, within the week, of "
        "the jobs that were interrupted. Jobs that never failed are not in it."
    ),
    "offenders": (
        "Jobs with a hardware or network failure that names the node, by week; a job counts once however often it was tried. "
        "People's word on the node goes before the diagnosis's."
    ),
    "lemon": (
        "Lemon score: -log10 of how many nodes would be named by so many jobs or more in eight weeks if all namings were spread "
        "by chance (Poisson) over all nodes known: those named, or as many as the widest job had; nodes named by more jobs are left "
        "out first, so that one does not hide the next. At 2, one in a hundred such periods. A lemon has a score of 2 or more and at least 3 jobs."
    ),
    "unknown": "Failures for which no rule gave a diagnosis, of all failures.",
    "closed": "Failures of which a person has said the cause, of all failures.",
    "top1": "Diagnoses whose first fault was the cause, of those that people judged right or wrong. Still unknown is not judged.",
    "top3": "The same where the cause was among the diagnoses shown.",
    "abstained": "Failures without a diagnosis where people say that none fitted, of those that they judged.",
    "wrong": (
        "Answers of eight weeks whose first diagnosis came from the rule and was not the cause, of those that people judged. "
        "Rules judged fewer than five times are left out."
    ),
    "open": (
        "Failures of eight weeks of which nobody has said the cause, but for those that are snoozed and those that a backfill "
        "found; the dearest first. What was said of an incident before it was reopened does not count, here and in all shares."
    ),
    "new": "Classes, rules and nodes of this week's failures that the seven weeks before had not.",
    "share": "Behind each share: n, and the ends of Wilson's interval of 95 %.",
    "few": "Shares, means and medians of fewer than 5 cases are left out.",
}
