"""What a report says of a run whose end nothing proves: how far it came, and the last lines that say something."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kb.diagnosis.engine import diagnose
from kb.facts.evidence import Evidence
from kb.model import Gap, Job
from kb.report import Report
from tests.support.kb_samples import OOM, ref, rulebook, scanned

BOOK = rulebook(OOM)


def report(text: str, job: Job | None = None) -> Report:
    """The report on one log."""
    return diagnose(Evidence(job or Job(), streams=(scanned(text, BOOK, ref("logs/train.log")),)), BOOK)


def steps(last: int, total: int) -> str:
    """Iteration lines, a second apart."""
    return "".join(
        f" [2026-11-03 04:12:{n % 60:02d}] iteration {n:8d}/{total:8d} | consumed samples: {n * 8:12d} | "
        f"elapsed time per iteration (ms): 900.0 | learning rate: 1.0E-04 | global batch size:     8 | lm loss: 1.5E+00 |\n"
        for n in range(1, last + 1)
    )


def paddle(last: int, total: int) -> str:
    """Iteration lines that do not look like the end of anything."""
    return "".join(
        f"2026-11-03 04:12:{n % 60:02d} [INFO]\t[TRAIN] epoch: 1, iter: {n}/{total}, loss: 0.3, lr: 0.1, batch_cost: 0.3\n"
        for n in range(1, last + 1)
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (steps(20, 500), "its steps end at 20 of 500 without an error, so it is still running, or was stopped"),
        (
            steps(20, 500).rpartition("1.5E+00")[0] + "nan |\n",
            "its steps end at 20 of 500, with a loss of nan but without an error",
        ),
        (paddle(20, 20), "it reached its last step, 20 of 20, and no error follows, but its own end is not logged"),
        (steps(20, 500) + "saving model to out/last.pt\n", "its logs end with a save after step 20"),
        ("epoch 1/9 loss 0.3\nepoch 9/9 loss 0.2\n", "its logs end in the last epoch, 9 of 9"),
        (
            "[ Valid | 40/40 ] loss = 0.1, acc = 0.97\n100%|#####| 7/7 [00:02<00:00, 10.7it/s]\naccuracy: 0.9\nF1: 0.8\nrecall: 0.7\n",
            "its logs end in the last epoch, 40 of 40",
        ),
        ("Epoch 9/9\nEpoch 2/9\nstep 5/5 loss 0.2\n", "it reached its last step, 5 of 5"),
    ],
)
def test_how_far_the_run_came_is_said(text: str, told: str) -> None:
    """No end is claimed: the run may still go on, and a killed process writes nothing."""
    found = report(text)

    assert found.verdict == "insufficient_evidence"
    assert f"unclear whether the run completed: {told}" in found.summary


@pytest.mark.parametrize("line", ["could not save the model to out/last.pt", "saving a checkpoint every 50 steps"])
def test_a_save_that_is_not_made_is_no_end_in_a_save(line: str) -> None:
    """Neither a failed one nor a setting."""
    assert "end with a save" not in report(f"{steps(20, 500)}{line}\n").summary


def test_logs_without_steps_end_in_a_save_only_if_all_do() -> None:
    """Where no log has steps, each of them counts."""
    texts = ("saving model to out/0.pt\n", "top-1 0.1, top-5 0.5\n", "top-1 0.2, top-5 0.6\n")
    streams = tuple(scanned(text, BOOK, ref(f"logs/rank-{n}.log")) for n, text in enumerate(texts))

    assert "end with a save" in diagnose(Evidence(Job(), streams=streams[:1]), BOOK).summary
    assert "end with a save" not in diagnose(Evidence(Job(), streams=streams[1:]), BOOK).summary
    assert "end with a save" not in diagnose(Evidence(Job(), streams=streams), BOOK).summary


def test_lines_that_say_nothing_are_not_the_last_ones() -> None:
    """Lines with only a level or a writer are skipped, and one of several alike is shown."""
    (event,) = report(
        "INFO : round 3, accuracy 0.7\nINFO : history saved\nINFO : history saved\nINFO :\n\n"
    ).indicators.events

    assert event.why == "the last lines of this log"
    assert event.what == "INFO : round 3, accuracy 0.7\nINFO : history saved"


def test_the_job_of_slurm_is_kept_for_the_command_that_settles_it() -> None:
    """The number that the log prints; none if two are printed."""
    first = "SLURM_JOB_ID=4711\n"
    (gap,) = (gap for gap in report(first + steps(20, 500)).gaps if gap.code == "state_unknown")
    (other,) = (
        gap for gap in report(first + "SLURM_JOB_ID=4712\n" + steps(20, 500)).gaps if gap.code == "state_unknown"
    )

    assert (gap.asked, other.asked) == ("4711", "")


def test_a_log_that_shrank_while_it_was_read_has_no_known_end() -> None:
    """Where its steps end here tells nothing of the run."""
    whole = scanned(steps(5, 9), BOOK, ref("logs/train.log"))
    cut = replace(whole, gaps=(Gap("shrunk", "logs/train.log", "the file shrank while it was read"),))

    assert "its steps end at 5" in diagnose(Evidence(Job(), streams=(whole,)), BOOK).summary
    assert "shrank while it was read" in diagnose(Evidence(Job(), streams=(cut,)), BOOK).summary


def test_the_end_of_the_rank_that_fell_behind_is_shown_among_many() -> None:
    """What it says last is the best hint there is, however many logs come before it."""
    ranks = [
        scanned(
            steps(60, 500) if rank < 11 else steps(30, 500) + "tenancy withdrawn, leaving\n",
            BOOK,
            ref(f"r{rank}.log", rank),
        )
        for rank in range(12)
    ]
    found = diagnose(Evidence(Job(), streams=tuple(ranks)), BOOK)

    assert found.verdict == "insufficient_evidence"
    assert any(
        "tenancy withdrawn, leaving" in event.evidence.text for event in found.indicators.events if event.evidence
    )
