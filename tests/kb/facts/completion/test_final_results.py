"""The end that a program's results show."""

from __future__ import annotations

import pytest

from kb.facts.completion.final_results import last_results


def proves(*texts: str) -> bool:
    """Whether these last lines of a log show that all results are known."""
    return last_results([(100 * at, text) for at, text in enumerate(texts)]) is not None


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["All outputs saved to: out/a", "", "Done."], True),
        (["[Elapsed time = 2.7 h]", "Done!"], True),
        (["Total time: 3:20:11", "done"], True),
        (["Elapsed: 0.3 s", "Done."], False),  # of any part of the work
        (["step 3", "Done."], False),
        (["Could not save: results were not saved to out/a", "Done."], False),
        (["Results written to out/a", "Done.", "next"], False),
    ],
)
def test_the_last_word_after_the_results(lines: list[str], expected: bool) -> None:
    """A bare "Done." ends the program only right after its results, or the time of all its work."""
    assert proves(*lines) == expected


@pytest.mark.parametrize(
    "line",
    [
        "2025-04-01 INFO - Final eval_acc: 0.7431",
        "Final Results: Loss=0.41, PPL=1.5",
        "final_quantized_roundtrip val_loss:2.0412 val_bpb:1.2091",
        "[main] final test accuracy = 91.3%",
    ],
)
def test_a_final_figure_ends_the_work(line: str) -> None:
    """Only the whole run has final figures."""
    assert proves("epoch 9: loss 0.4", line, "best loss 0.39")


@pytest.mark.parametrize(
    "lines",
    [
        ["Final accuracy of task 2: 0.71"],
        ["fold 3 final score: 0.8"],
        ["Final accuracy: 0.71", "epoch 1: loss 2.0", "Final accuracy: 0.74"],  # of each run or fold
        ["**Final answer:** 42"],
        ["the final loss will be printed here: 1"],
        ["Final accuracy: 0.7", *["batch of another kind"] * 12],  # far from the end
        ["final layer of size 10"],
    ],
)
def test_final_figures_of_parts_prove_nothing(lines: list[str]) -> None:
    """A fold's, a task's or a repeated figure is not that of the run, and an answer of a model is no figure."""
    assert not proves(*lines)


TRAINED = ["epoch 1: train loss :: 1.2", "epoch 2: train loss :: 0.9"]
TESTED = ["load model from out/sst-2.pt", "load 2210 samples", "dev acc :: 0.52", "test acc :: 0.51"]


def test_the_best_model_is_loaded_and_tested_when_the_training_is_over() -> None:
    """The test must be the last line, come after the training, and be the only one."""
    assert proves(*TRAINED, *TESTED)
    assert not proves(*TESTED)  # a test before the training
    assert not proves(*TRAINED, *TESTED, "epoch 3: train loss :: 0.8")
    assert not proves(*TRAINED, TESTED[0], *TRAINED, *TESTED)  # at each epoch
    assert not proves(*TRAINED, "test acc :: 0.51")


def test_the_score_over_all_folds() -> None:
    """It follows the last fold; the score of one fold does not."""
    assert proves("-----", "   CV   ", "-----", "Score: 0.9712")
    assert not proves("-----", "Fold: 2 result", "-----", "Score: 0.9712")
    assert not proves("-----", "   CV   ", "-----", "Score: 0.9712", "Training fold: 3")


def test_the_table_of_a_test() -> None:
    """Lightning prints it when the test is over; more than one of them are of parts."""
    table = ["Testing DataLoader 0: 100%|##| 4/4", "| Test metric | DataLoader 0 |", "| acc | 0.71 |"]
    assert proves(*table)
    assert not proves(*table, *table)


def test_few_lines_may_follow_the_test_of_the_best_model() -> None:
    """What the program does with the results, but no further epoch."""
    tested = [*TRAINED, "Loaded checkpoint: out/best.pt", "TEST | loss 0.02 | psnr 31.0"]
    assert proves(*tested, "Saving 9 comparisons", "comparisons are in out")
    assert not proves(*tested, "Saving 9 comparisons", "Epoch 3 starts")
    assert not proves(*tested, *["another line of work"] * 8)
