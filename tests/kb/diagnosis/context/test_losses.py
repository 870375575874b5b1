"""Between which steps the loss broke, as a report words it."""

from __future__ import annotations

from unittest.mock import Mock

from kb.diagnosis.context.losses import of_losses
from kb.facts.evidence import Evidence
from kb.facts.job_facts import Facts
from tests.support.kb_samples import OOM, ref, rulebook, scanned

BOOK = rulebook(OOM)


def bars(*shown: tuple[int, str]) -> str:
    """The bar of an epoch, redrawn with a step and a loss."""
    return (
        "".join(
            f"Epoch 0:  19%|█▉        | {step}/26 [00:03<00:12,  1.64it/s, train_loss={loss}]\r" for step, loss in shown
        )
        + "\n"
    )


def test_a_bar_that_is_redrawn_with_the_loss_before_shows_no_loss_of_its_step() -> None:
    """The last finite value belongs to the step at which it was first shown."""
    text = bars((5, "0.647"), (10, "0.647"), (10, "0.502"), (15, "0.502"), (15, "0.338"), (20, "0.338"), (20, "nan"))
    found = of_losses(Mock(stream=0), Facts(Evidence(streams=(scanned(text, BOOK, ref("logs/train.log")),))))
    assert (found["loss"], found["good_at"], found["nan_at"]) == ("broke", "step 15", "step 20")
    assert found["loss_course"] == "0.338 at step 15, nan at step 20"


def test_a_loss_that_an_evaluation_showed_finite_was_so_before() -> None:
    """The first one logged of the training need not be the first that was computed."""
    nan = "".join(f"iteration {step}/ 20 | lm loss: nan\n" for step in (1, 2, 3))
    told = " validation loss at iteration 0 | lm loss value: 6.91E+00 |\n"
    logs = (Facts(Evidence(streams=(scanned(text, BOOK, ref("logs/train.log")),))) for text in (nan, told + nan))
    assert [of_losses(Mock(stream=0), facts).get("loss") for facts in logs] == ["never_finite", None]
