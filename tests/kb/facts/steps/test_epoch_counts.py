"""Steps that count from the start of each epoch are not told as those of the run."""

from __future__ import annotations

import pytest

from kb.diagnosis.engine import diagnose
from kb.facts.evidence import Evidence
from kb.facts.log.stream_facts import StreamFacts
from kb.model import Job
from kb.report import Report
from kb.rulebase.rule import ExceptionTest, Pattern
from tests.support.kb_samples import ref, rule, rulebook, scanned

BOOK = rulebook(rule("key", "code_bug", Pattern("k", exception=ExceptionTest("KeyError"))))
ERROR = 'Traceback (most recent call last):\n  File "/srv/fit.py", line 8, in go\n    x = d["a"]\nKeyError: \'a\'\n'


def bar(step: int, total: int, label: str = "") -> str:
    """A redraw of a progress bar."""
    done = 100 * step // total
    return f"\r{label}{done:3d}%|{'█' * (done // 10):10}| {step}/{total} [00:{step:02d}<00:09,  2.41it/s, loss=1.{step:02d}]"


def epochs(*lengths: int, label: str = "") -> str:
    """Bars of epochs, one after the other, each of ten steps of which the last may be cut short."""
    return "".join(
        "".join(bar(step, 10, label.format(number)) for step in range(length + 1)) + "\n"
        for number, length in enumerate(lengths, 4)
    )


def report_on(text: str) -> Report:
    """The report on a log that ends with an error."""
    return diagnose(Evidence(Job(), streams=(scanned(text + ERROR, BOOK, ref("logs/train.log")),)), BOOK)


def told(text: str) -> tuple[int | None, int | None, int | None, int | None, int | None, int | None]:
    """The iteration of the run, its total, the place in the epoch, and the iteration of the failure."""
    report = report_on(text)
    done = report.progress
    return (
        done.last_iteration,
        done.total_iterations,
        done.epoch,
        done.epoch_iteration,
        done.epoch_iterations,
        report.diagnoses[0].iteration,
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (epochs(10, 10, 7), (None, None, None, 7, 10, None)),  # bars without a number
        ("".join(f"iter {n:06}/000283 | nll loss: 9.1\n" for n in (10, 280) * 3), (None, None, None, 280, 283, None)),
        ("".join(f"iter {n:06}/000283 | nll loss: 9.1\n" for n in (10, 280) * 2), (280, 283, None, None, None, 280)),
        (epochs(10, 10, 7, label="Epoch {}: "), (None, None, 6, 7, 10, None)),  # the log begins with epoch 4
        (
            "".join(f"Epoch {n}/9: 200it [03:20,  1.00it/s, loss=2.{n}]\n" for n in (1, 2, 3))
            + "Epoch 4/9: 61it [01:01,  1.00it/s, loss=2.4]\n",
            (None, None, 4, 61, None, None),
        ),
        (
            "".join(f"Epoch: [{n}][{step:3d}/500]  Loss 2.{step}\n" for n in (7, 8) for step in (0, 100, 200)),
            (None, None, 8, 200, 500, None),
        ),
        (  # each epoch is followed by the bar of its validation
            "".join(
                "".join(f"Epoch: [{n}][{step:2d}/32]  Loss 2.{step}\n" for step in (8, 16, 24, 32)) + epochs(10)
                for n in (7, 8)
            ),
            (None, None, 8, 32, 32, None),
        ),
        (
            "".join(
                f"Epoch {n}/5\n"
                + "".join(f"{s:2d}/20 [{'=' * s}>....] - ETA: 1s - loss: 0.{s:02d}\n" for s in range(1, 21))
                for n in (3, 4)
            ),
            (None, None, None, 20, 20, None),
        ),
    ],
    ids=["bars", "lines", "lines_once", "numbered", "without_total", "brackets", "validated", "keras"],
)
def test_a_place_within_an_epoch_is_no_step_of_the_run(text: str, expected: tuple[int | None, ...]) -> None:
    """The count restarts with each epoch, and nothing says how many steps the epochs before had."""
    assert told(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (epochs(10), (10, 10, None, None, None, 10)),  # one bar
        (
            epochs(6) + "torch.distributed: init_process_group: rank 0\n" + epochs(3),
            (3, 10, None, None, None, 3),
        ),  # not complete
        (
            "".join(f"step {n:5d}/ 9000 | epoch: {n // 100} | loss: 2.{n}\n" for n in range(95, 105)),
            (104, 9000, None, None, None, 104),
        ),
    ],
    ids=["one", "again", "over_the_run"],
)
def test_a_count_over_the_run_stays(text: str, expected: tuple[int | None, ...]) -> None:
    """Nothing restarts, or the program does."""
    assert told(text) == expected


def test_a_line_that_counts_from_zero_beside_a_bar_is_no_restart() -> None:
    """The bar's redraws are one line, which the terminal wrote before the log's other lines."""
    text = bar(48, 900) + "\n" + "".join(f"iter={n} loss=3.{n} lr=0.01\n" for n in range(0, 50, 10))
    assert told(text)[:2] == (48, 900)


def test_a_checkpoint_without_a_step_is_not_that_of_an_epochs_bar() -> None:
    """Its step would be the place in the epoch."""
    saved = "Saving model checkpoint to /out/last\nCheckpoint saved: /out/last\n"
    assert report_on(epochs(10, 10) + saved + epochs(10, 3)).progress.last_checkpoint is None


def test_all_epochs_end_at_the_same_step() -> None:
    """If only complete bars were kept, the same number of steps at each is a count of each."""
    text = "".join(bar(10, 10, f"Epoch {n}: ") + "\n" for n in range(5, 9))
    assert StreamFacts(scanned(text, BOOK, ref("logs/train.log"))).in_epochs == {"tqdm"}
    relabelled = (
        bar(10, 40, "Epoch 5: ") + bar(10, 40, "Epoch 6: ") + bar(20, 40, "Epoch 6: ") + bar(20, 40, "Epoch 7: ")
    )
    assert StreamFacts(scanned(relabelled, BOOK, ref("logs/train.log"))).in_epochs == frozenset()
