"""The end that the line of the last epoch and what follows it show."""

from __future__ import annotations

import pytest

from kb.facts.completion.last_epochs import (
    closed_last_epoch,
    ended_last_epoch,
    last_evaluation,
    whole_last_epoch,
)


def lines(*texts: str) -> list[tuple[int, str]]:
    """Offset and text of lines."""
    return [(100 * at, text) for at, text in enumerate(texts)]


def epochs(first: int, last: int, total: int, form: str = "[ check | {}/{} ] loss = 0.4{}, acc = 0.8") -> list[str]:
    """The lines of epochs, each with the bar of its batches."""
    return [
        text for n in range(first, last + 1) for text in (" 100%|####| 40/40 [00:09<00:00]", form.format(n, total, n))
    ]


def test_scores_or_a_save_after_the_last_epoch_close_the_run() -> None:
    """Scores that no earlier epoch had, or a save, follow the line that ends the last of all epochs."""
    found = closed_last_epoch(lines(*epochs(27, 30, 30), "F1: 0.91", "recall: 0.9"))
    assert found is not None
    assert (found.count, "30/30" in found.line) == (30, True)
    assert closed_last_epoch(lines(*epochs(27, 30, 30), "Saved model at runs/a/epoch-30.pt"))


def test_epochs_that_count_from_zero_end_one_below_their_number() -> None:
    """Only the log's start shows whether the last epoch is 29 or 30 of 30."""
    end = lines(*epochs(26, 29, 30), "Saved model at runs/a/epoch-30.pt")
    assert closed_last_epoch(end) is None
    assert closed_last_epoch(end, lines(*epochs(0, 1, 30))) is not None


@pytest.mark.parametrize(
    "said",
    [
        [*epochs(27, 30, 30)],  # the log stops there
        [*epochs(26, 29, 30), "Saved model at runs/a/epoch-29.pt"],
        ["F1: 0.9", *epochs(27, 30, 30), "F1: 0.91"],  # scores of each epoch
        [*epochs(30, 30, 30), "Saved model at runs/a"],  # a single line of this form
        ["epoch 30/30 step 9/400 loss 0.2"] * 4 + ["Saved model at runs/a"],
        ["epoch 30/30 loss 0.2"] * 4 + ["Saved model at runs/a"],  # of each step in the last epoch
        [*epochs(27, 30, 30), "[ check | 1/30 ] loss = 2.9, acc = 0.1", "Saved model at runs/b"],  # the next run
    ],
)
def test_other_ends_prove_nothing(said: list[str]) -> None:
    """A log that stops, an epoch before the last, what each epoch prints, and lines of steps show no end."""
    assert closed_last_epoch(lines(*said)) is None


def steps(epoch: int, total: int, *at: int, of: int = 90) -> list[str]:
    """The lines of steps of one epoch."""
    return [f"Epoch {epoch}/{total}, step {step}/{of}, loss = 0.1{step}" for step in at]


def test_scores_after_the_last_step_of_the_last_epoch_close_the_run() -> None:
    """The last step is the one after which the next line would be beyond the epoch."""
    found = closed_last_epoch(lines(*steps(1, 2, 60, 70, 80), *steps(2, 2, 60, 70, 80, of=85), "RMSE 3.1, MAPE 0.4"))
    assert found is not None
    assert found.count == 2
    assert closed_last_epoch(lines(*steps(2, 2, 70, 80, 90), "Best BER: 1.5 at epoch 1"))


@pytest.mark.parametrize(
    "said",
    [
        [*steps(2, 2, 40, 50, 60), "RMSE 3.1"],  # within the epoch
        [*steps(1, 2, 70, 80, 90), "RMSE 3.1"],  # an earlier epoch
        steps(2, 2, 70, 80, 90),  # the log stops there
        [*steps(2, 2, 90), "RMSE 3.1"],  # nothing tells how often steps are logged
    ],
)
def test_steps_before_the_last_prove_nothing(said: list[str]) -> None:
    """Neither do those of an earlier epoch, nor the last one without what follows it."""
    assert closed_last_epoch(lines(*said)) is None


SUMMARY = "Epoch {}/{} - train loss 0.4{}, val loss 0.5"


def test_a_log_ends_with_all_that_each_epoch_prints() -> None:
    """After the line of figures, an epoch may print more; lines that name the next epoch are of that one."""
    assert whole_last_epoch(lines(*epochs(26, 30, 30, SUMMARY)))
    saved = [text for line in epochs(26, 30, 30, SUMMARY)[1::2] for text in (line, "  saved the best model")]
    assert whole_last_epoch(lines(*saved))
    begun = [text for n in range(26, 31) for text in (f"starting epoch {n}", SUMMARY.format(n, 30, n))]
    assert whole_last_epoch(lines(*begun))


def test_what_comes_before_the_first_epoch_comes_before_each() -> None:
    """A line between the figures of two epochs is of the next one, if it also precedes those of the first."""
    rate = "learning rate 0.01"
    said = [text for line in epochs(26, 30, 30, SUMMARY)[1::2] for text in (line, rate)][:-1]
    assert whole_last_epoch(lines(*said)) is None
    assert whole_last_epoch(lines(*said), lines(rate, SUMMARY.format(1, 30, 1)))
    assert whole_last_epoch(lines(*said), lines(SUMMARY.format(1, 30, 1), rate)) is None


def headed(first: int, last: int, total: int, *under: str) -> list[str]:
    """Epochs under a header each."""
    return [text for n in range(first, last + 1) for text in (f"INFO: Epoch {n}/{total}", *under)]


def test_the_last_epoch_under_its_header_is_whole() -> None:
    """It has printed all that the epochs before it did."""
    under = ("INFO: - Train metrics: loss: 0.4", "INFO: - Eval metrics: loss: 0.5")
    assert whole_last_epoch(lines(*headed(5, 10, 10, *under)))
    assert whole_last_epoch(lines(*headed(5, 9, 10, *under)), lines("INFO: Epoch 0/10"))


@pytest.mark.parametrize(
    "said",
    [
        headed(5, 10, 10, "train loss: 0.4", "eval loss: 0.5")[:-1],
        headed(5, 9, 10, "train loss: 0.4", "eval loss: 0.5"),
        headed(9, 10, 10, "train loss: 0.4"),
        headed(5, 10, 10),
        [*headed(5, 9, 10, "train loss: 0.4", "eval loss: 0.5"), "Epoch 10/10", "train loss: 0.4"],
        [*headed(5, 8, 10, "train loss: 0.4"), "val loss: 0.5", *headed(9, 10, 10, "train loss: 0.4")],
    ],
    ids=["cut", "before", "few", "bare", "not evaluated", "evaluated at times"],
)
def test_an_epoch_under_its_header_that_lacks_a_line_is_not_whole(said: list[str]) -> None:
    """The log may have stopped within it."""
    assert whole_last_epoch(lines(*said)) is None


def test_any_figures_of_a_line_that_counts_epochs_are_those_of_the_epoch() -> None:
    """A loss need not have that name."""
    said = [f"Epoch [{n}/30] - Total: 0.0{n} | Recon: 0.01" for n in range(26, 31)]
    assert closed_last_epoch(lines(*said, "Saved checkpoint: out/epoch_30.pt"))
    assert closed_last_epoch(lines(*said[:-1], "Saved checkpoint: out/epoch_29.pt")) is None


@pytest.mark.parametrize(
    "said",
    [
        [*epochs(26, 29, 30, SUMMARY)],
        [*epochs(28, 30, 30, SUMMARY)],  # too few to know what an epoch prints
        [text for line in epochs(26, 30, 30, SUMMARY)[1::2] for text in (line, "gradients are averaged")][:-1],
        [text for n in range(26, 31) for text in (f"epoch {n}/30 loss 0.4{n}", f"validation acc 0.{n}")][:-1],
        [
            text
            for n in range(22, 31)
            for text in (f"epoch {n}/30 loss 0.4{n}", *([f"validation acc 0.{n}"] if n % 5 == 0 else []))
        ][:-1],
        [*epochs(26, 30, 30, SUMMARY), "loading the test set"],
        [*epochs(26, 30, 30, SUMMARY), *epochs(1, 1, 30, SUMMARY)],
    ],
    ids=["before", "few", "rest missing", "not evaluated", "evaluated at times", "more work", "next run"],
)
def test_a_log_that_ends_within_an_epoch_proves_nothing(said: list[str]) -> None:
    """What each epoch prints, or an evaluation that is made at times only, may be missing."""
    assert whole_last_epoch(lines(*said)) is None


def evaluations(*steps: int, form: str = "{} val 3.2{}") -> list[str]:
    """Lines of evaluations, each after the line of its step."""
    return [text for step in steps for text in (f"{step} train 3.1{step}", form.format(step, step))]


def test_an_evaluation_one_step_before_it_is_due_is_that_of_the_last_step() -> None:
    """A program that counts from 0 evaluates at its last step, whatever the number."""
    found = last_evaluation(lines(*evaluations(0, 250, 500, 750, 999), "best 3.20 at step 999"))
    assert found is not None
    assert found[1].startswith("999 val")
    named = evaluations(0, 100, 200, 299, form="step {}: val_loss 3.{}")
    assert last_evaluation(lines(*named))


@pytest.mark.parametrize(
    "texts",
    [
        evaluations(0, 250, 500, 750, 1000),
        [*evaluations(0, 250, 500, 750, 999), "1000 train 3.15"],
        evaluations(250, 500, 749),
        evaluations(0, 250, 500, 750, 980),
        evaluations(0, 1, 2, 3, 4),
        ["999 train 3.1"],
    ],
    ids=["due", "goes on", "few", "early", "each step", "none"],
)
def test_other_evaluations_prove_no_end(texts: list[str]) -> None:
    """Evaluations on schedule, too few, or followed by steps."""
    assert last_evaluation(lines(*texts)) is None


def closed_epochs(first: int, last: int, total: int, *after: str) -> list[str]:
    """Epochs with a header and a line at their end, and further lines behind each end."""
    return [
        text
        for n in range(first, last + 1)
        for text in (f"=== Epoch {n}/{total} ===", f"loss 0.{n}", f"==end-of-epoch {n}==", *after)
    ]


def test_the_end_of_the_last_epoch_is_the_last_line() -> None:
    """Each earlier epoch ended with such a line, right above the header of the next."""
    found = ended_last_epoch(lines(*closed_epochs(2, 4, 4)))
    assert found is not None
    assert (found.count, found.line) == (4, "==end-of-epoch 4==")


@pytest.mark.parametrize(
    "said",
    [
        closed_epochs(1, 3, 4),
        closed_epochs(2, 4, 4, "checking the epoch"),
        closed_epochs(2, 4, 4, "checking the epoch")[:-1],  # what each epoch still does is missing
        closed_epochs(4, 4, 4),  # no earlier epoch shows what follows an end
        ["end of epoch 3", "end of epoch 4"],
        [*closed_epochs(1, 2, 2), *closed_epochs(2, 4, 4)],  # of two trainings
        [*closed_epochs(2, 4, 4)[:-1], "epoch 4/4 loss: 0.2 done"],
    ],
)
def test_the_end_of_an_epoch_alone_proves_nothing(said: list[str]) -> None:
    """An earlier epoch, one after whose end more is due, and ends without headers."""
    assert ended_last_epoch(lines(*said)) is None
