"""Answers in Slack: the decision first, within all limits, and nothing from logs is read as markup."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from bot.diagnosis.diagnose import diagnose_bundle
from bot.render.decisions import decided
from bot.render.headline import headline as cause_and_culprit
from bot.slack.blocks.limits import Message
from bot.slack.messages.answer import answer_message
from bot.slack.messages.card import Card, Chain, Opinion
from kb.model import Gap
from kb.report import Exclusion, Hang, Progress, Report, Vote
from tests.support.block_limits import faults_of_message, texts
from tests.support.bot_samples import EVERY, FALLEN_GPU, HEALTHY, KERNEL_LINE, TOO_LITTLE, UNKNOWN
from tests.support.hostile_reports import SECRETS, card, report
from tests.support.paths import BUNDLES
from tests.support.slack_reading import read

CARD = Card("h-7", asked_by="U012ABC")

FALLEN_TEXT = """\
# 🔴 llm-70b: failed
*GPU 3 on gpu-017: a GPU fell off the bus*
*Requeue without gpu-017, from checkpoint 1150. Lost: 48 steps (9.6 GPU-hours).* Who acts: hardware team. @S0GPU
GPU 3 of gpu-017 fell off the bus at iteration 1198; the other 63 ranks waited for rank 7 until they failed.
*Suspects* GPU 3 (0000:5d:00, GPU-1f0e) on gpu-017; rank 7 (local rank 3) on gpu-017 (its process drove that GPU) · *Confidence* likely
*Do first* Drain gpu-017 and reboot it.* (disruptive: affects other jobs)*
  | scontrol update NodeName=gpu-017 State=DRAIN Reason="Xid 79 on GPU 0000:5d:00, job 47110"
logs/dmesg-gpu-017.log:812 (gpu-017)
  | NVRM: Xid (PCI:0000:5d:00): 79, pid=88412, GPU has fallen off the bus.
*Check* `nvidia-smi -L` lists 8 GPUs
The fault stays with the node.
Exclude gpu-017 from all jobs: its GPU 3 left the bus twice within an hour
(job 47110, attempt 2, 8 nodes, 64 GPUs, owner ana, state FAILED)
(stage iterating, last iteration 1198 of 5000 at 2026-03-01 12:00:00Z, last checkpoint 1150)
(Failed 3 times in a row; before: 2 x rdma_link)
---
*1. A GPU fell off the bus* (gpu_fell_off_bus)
*Confidence* likely. The kernel names the GPU; it comes 31 s before any other failure (rule xid-catalogue@3)
*Where* stage iterating, last logged iteration 1198, first seen 2026-03-01 12:00:13Z
logs/dmesg-gpu-017.log:812 (gpu-017) 2026-03-01 12:00:13Z
  | NVRM: Xid (PCI:0000:5d:00): 79, pid=88412, GPU has fallen off the bus.
logs/rank-7.log:40213 (rank 7)
  | RuntimeError: CUDA error: unspecified launch failure
  |     Compile with `TORCH_USE_CUDA_DSA` to see more.
*Also explains* Collective timed out in the watchdog (ranks 0-6, 8-63); NCCL socket closed by a peer (ranks 0, 8, 16, 24, 32, 40, 48, 56)
---
*2. A collective timed out* (collective_timeout, symptom)
*Confidence* weak (rule nccl-watchdog@1)* ⚠ weak rule: right in 4 of 11*
*Suspects* ranks 0-6, 8-63
*Missing evidence:*
  • dmesg (gpu-018): permission denied, 7 nodes of 8 nodes; cannot tell: a second faulty GPU there
  • 2 rules skipped; missing: metrics (2)
Asked by @U012ABC · Incident page <https://signalbox.example/incidents/7>
(Report b7f3a91c02d8, rulebook 2026.3, 72 sources, 1.8 GB read)
[Acknowledge] [👍 Right] [👎 Wrong] [Evidence] [Close out] [Assign… / Snooze… / Merge into…] [Run again / Mute this rule… / Mute this job… / Mute this node… / Propose a rule…]
"""

UNKNOWN_TEXT = """\
# 🟡 vision-pretrain: hangs, cause unknown
*The run stopped making steps after iteration 310 and no rule says why.*
*Find the cause before you restart: no rule explains this failure.*
*Do first* Read logs/rank-12.log:5120 (rank 12), the line that stands out most, and the lines around it.
(last iteration 310)
(Hang: confirmed (seen in logs; no data on stacks))
---
*No rule explains this failure. What stands out:*
logs/rank-12.log:5120 (rank 12): on rank 12 alone, in no earlier run
  | shard reader: lease 8841 revoked
  • Node: node-b: last to write, 41 s after the rest
  • Step: iteration 310: nothing after it
*Missing evidence:*
  • stacks: none in the bundle; cannot tell: where each rank waits
  • 1 rule skipped; missing: stacks (1)
Asked by @U012ABC
(Report 0d55e2, rulebook 2026.3)
[Acknowledge] [Evidence] [Close out] [Propose a rule] [Assign… / Snooze… / Merge into…] [Run again / Mute this job…]
"""

TOO_LITTLE_TEXT = """\
# ❔ the job: not enough evidence
*Add what is listed under missing evidence, then diagnose again.*
Only the launcher's output was there, and it ends before the first step.
*Missing evidence:*
  • rank logs (ranks 0-31): none found; cannot tell: which rank failed
  • kernel log: not collected
  • 1 rule skipped; missing: kernel log (1)
Automatic: alerts JobFailed
(Report 31c4, rulebook 2026.3)
[Evidence] [Close out] [Acknowledge / Assign… / Snooze… / Merge into…] [Run again / Mute this job… / Propose a rule…]
"""


def test_hostile_reports_break_no_limit_mention_nobody_and_keep_their_secrets():
    """A hundred and twenty hostile reports and cards are valid by Slack's own rules."""
    chance = Random(20261122)
    broken, leaked = [], []
    for number in range(120):
        message = answer_message(report(chance), card(chance))
        broken += [(number, fault) for fault in faults_of_message(message.text, message.blocks)]
        told = "".join(texts(message.body))
        leaked += [(number, secret) for secret in SECRETS if secret in told]
    assert (broken, leaked) == ([], [])


def test_a_fault_reads_from_the_decision_to_what_was_not_seen():
    """The whole message of a report with a fault, as text."""
    card = replace(
        CARD,
        chain=Chain(3, (("rdma_link", 2),)),
        weak={"nccl-watchdog": "right in 4 of 11"},
        owner="S0GPU",
        link="https://signalbox.example/incidents/7",
    )
    assert read(answer_message(FALLEN_GPU, card).blocks) == FALLEN_TEXT


def test_times_of_logs_without_a_zone_have_no_z():
    """Neither the places of faults nor quoted lines claim UTC where the logs state no zone."""
    text = read(answer_message(replace(FALLEN_GPU, time_zone="unknown"), CARD).blocks)
    assert text.count("2026-03-01 12:00:13") == 2
    assert "12:00:13Z" not in text


def test_an_unknown_failure_shows_what_stands_out_and_offers_to_propose_a_rule():
    """The whole message of a report that no rule explains."""
    assert read(answer_message(UNKNOWN, CARD).blocks) == UNKNOWN_TEXT


def test_too_little_evidence_says_what_would_help():
    """The whole message without enough evidence, for an alert."""
    assert read(answer_message(TOO_LITTLE, Card("h-7", why="alerts JobFailed")).blocks) == TOO_LITTLE_TEXT


@pytest.mark.parametrize(
    ("report", "text"),
    [
        (
            FALLEN_GPU,
            (
                "🔴 llm-70b: failed. GPU 3 on gpu-017: a GPU fell off the bus. Requeue without gpu-017, from checkpoint 1150. Lost: 48 steps (9.6 GPU-hours). Who acts: hardware team. "
                "GPU 3 of gpu-017 fell off the bus at iteration 1198; the other 63 ranks waited for rank 7 until they failed."
            ),
        ),
        (
            HEALTHY,
            "🟢 the job: the run completed normally. The run reached iteration 5000 of 5000 and ended by itself.",
        ),
    ],
)
def test_the_notification_says_state_decision_and_cause(report: Report, text: str):
    """The fallback text alone is an answer."""
    assert text == answer_message(report, CARD).text


@pytest.mark.parametrize(
    ("phase", "mark"),
    [("failed", "🔴"), ("hung", "🔴"), ("stopped", "🔵"), ("degraded", "🟠"), ("completed", "🟠"), ("unknown", "🟠")],
)
def test_red_is_for_failures(phase, mark):
    """A job that was cancelled or preempted, and one that goes on or completed, did not fail."""
    assert read(answer_message(replace(FALLEN_GPU, phase=phase), CARD).blocks).startswith(f"# {mark} ")


def test_of_a_series_the_first_and_the_last_line_stand_under_the_first_step():
    """One line shows no growth."""
    lines = [
        replace(KERNEL_LINE, kind="series", text=f"step {n}: {n} GiB resident", line=n, source="logs/a.log")
        for n in (1, 5, 9)
    ]
    report = replace(FALLEN_GPU, diagnoses=(replace(FALLEN_GPU.diagnoses[0], evidence=tuple(lines)),))
    told = read(answer_message(report, CARD).blocks)
    head = told[: told.index("---")]

    assert "  | step 1: 1 GiB resident\n" in head
    assert "  | step 9: 9 GiB resident\n" in head
    assert "step 5" not in head


def test_an_unknown_end_says_how_to_settle_it():
    """The first step stands where the cause would."""
    gap = Gap("state_unknown", "scheduler", "the job's state is unknown", asked="4711")
    told = read(answer_message(replace(TOO_LITTLE, gaps=(gap,), not_evaluated=()), CARD).blocks)

    assert "*Do first* Ask Slurm: " in told
    assert "  | sacct -j 4711 --format=JobID,State,ExitCode,End\n" in told
    assert "Missing evidence" not in told


@pytest.mark.parametrize("report", EVERY, ids=lambda item: item.verdict)
def test_every_verdict_can_be_closed_looked_into_and_run_again(report: Report):
    """Close out, Evidence and the menu are in every answer."""
    row = answer_message(report, CARD).blocks[-1]["elements"]
    found = {item["action_id"] for item in row}
    again = row[-1]["options"][0]["value"]
    assert (found >= {"evidence", "close_out", "more"}, again) == (True, "again:h-7")


def test_right_and_wrong_are_asked_where_something_was_claimed():
    """An answer without a cause is neither right nor wrong."""
    asked = ["right" in _actions(answer_message(item, CARD)) for item in EVERY]
    assert asked == [True, False, True, False]


def test_a_mute_of_a_rule_or_node_is_offered_where_there_is_one():
    """An unknown failure has no rule and no node to mute."""
    assert (_more(answer_message(FALLEN_GPU, CARD)), _more(answer_message(UNKNOWN, CARD))) == (
        ["again", "mute_rule", "mute_job", "mute_node", "propose_rule"],
        ["again", "mute_job"],
    )


def test_a_running_job_shows_its_progress_and_the_votes():
    """Hang votes are shown even if nothing hangs."""
    votes = (Vote("silence", "no", ""), Vote("stacks", "not_observable", ""))
    going = replace(HEALTHY, phase="running", hang=Hang(votes=votes), progress=Progress(182, total_iterations=400))
    told = read(answer_message(going, CARD).blocks).splitlines()
    assert [told[0], told[3]] == ["# 🟢 the job: running, no failure so far", "(last iteration 182 of 400)"]
    assert told[4] == "(Hang: none detected (not in logs; no data on stacks))"


def test_a_suspected_hang_says_how_to_be_sure():
    """With a single probe: look closer, stop nothing, and what to enable."""
    hang = Hang(votes=(Vote("silence", "yes", ""),), suspected=True, advice=("switch on the flight recorder",))
    told = read(answer_message(replace(HEALTHY, phase="running", hang=hang), CARD).blocks)
    assert told.startswith(
        "# 🟠 the job: possible hang\n*Look closer, and don't stop anything yet: a hang is suspected but not confirmed.*\n"
    )
    assert "*To confirm, do one of these:*\n  • switch on the flight recorder\n" in told


def test_a_closed_incident_is_short_and_shows_who_does_not_agree():
    """The decisive close-out, then those that disagree."""
    said = (
        Opinion("U1", "ECC error", ("n12",), "right", "again", named=True, action="swapped the board"),
        Opinion("U2", "GPU fell off", ("n12",), "right_not_first"),
        Opinion("U3", "ECC error", ("n12",), "right"),
    )
    message = answer_message(FALLEN_GPU, replace(CARD, closings=said))
    assert read(message.blocks).splitlines()[:5] == [
        "# ⚪ llm-70b: failed, closed",
        "*Confirmed: ECC error, node n12*, by @U1 (bot: right)",
        "Done: swapped the board",
        "again",
        "@U2 disagrees: GPU fell off, node n12 (bot: right, but not first)",
    ]
    assert "@U3" not in read(message.blocks)
    assert "Requeue" not in read(message.blocks) + message.text
    assert _actions(message) == ["close_out", "evidence", "life", "more"]


def test_what_is_muted_or_private_is_reported():
    """A requester gets an answer despite a mute, and the mute is mentioned."""
    told = read(
        answer_message(HEALTHY, replace(CARD, private=True, muted="this rule until noon", muted_by="U9")).blocks
    )
    assert ("Muted: this rule until noon, by @U9\n" in told, "(Only you see this)" in told) == (True, True)


def test_long_lists_say_how_much_is_left_out():
    """Evidence, diagnoses, gaps, excluded nodes, lines and characters: each cut gives a count."""
    first = FALLEN_GPU.diagnoses[0]
    quote = replace(KERNEL_LINE, text="\n".join(["y" * 1000] * 9))
    report = replace(
        FALLEN_GPU,
        summary="s" * 1000,
        decision=replace(FALLEN_GPU.decision, exclude=tuple(Exclusion(f"n{n}", "job", "") for n in range(9))),
        diagnoses=(replace(first, evidence=(quote,) * 8), *(replace(first, rank=n, evidence=()) for n in range(2, 9))),
        gaps=tuple(Gap("absent", f"source {n}", f"reason {n}") for n in range(9)),
    )
    told = read(answer_message(report, CARD).blocks)
    wanted = [
        "Requeue without n0, n1, n2, n3 and 5 more",
        "Exclude n0, n1, n2, n3, n4, n5, n6, n7 and 1 more from this job only",
        "s … (625 more characters)",
        "more characters)",
        "| … 6 more lines",
        "… and 5 more in the evidence file",
        "(Also found: gpu_fell_off_bus (likely), gpu_fell_off_bus (likely), gpu_fell_off_bus (likely), gpu_fell_off_bus (likely) and 1 more)",
        "  • … and 7 more\n",
    ]
    assert [text for text in wanted if text not in told] == []


@pytest.mark.quick("lab-slow-rank", "healthy")
@pytest.mark.parametrize("bundle", ["lab-order", "lab-disk-full", "lab-well-paused", "lab-slow-rank", "healthy"])
def test_real_incidents_read_well(known, bundle: str):
    """Recorded runs: within the limits, the cause first and the decision under it, at most two screens."""
    report = diagnose_bundle(known, BUNDLES / bundle).report
    message = answer_message(report, CARD)
    rows = read(message.blocks).splitlines()
    assert faults_of_message(message.text, message.blocks) == []
    if report.verdict == "fault":
        assert rows.pop(1) == f"*{cause_and_culprit(report)}*"
    assert rows[1].startswith(f"*{decided(report)}*")
    assert len(rows) <= 45


def test_a_handle_that_is_none_is_refused():
    """A button carries only handles from the store."""
    with pytest.raises(ValueError, match="is no handle"):
        answer_message(HEALTHY, Card("job 7; rm -rf"))


def _actions(message: Message) -> list[str]:
    return [element["action_id"] for element in message.blocks[-1]["elements"]]


def _more(message: Message) -> list[str]:
    return [option["value"].partition(":")[0] for option in message.blocks[-1]["elements"][-1]["options"]]
