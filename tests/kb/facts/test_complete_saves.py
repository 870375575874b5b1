"""The checkpoint that a report says to resume from."""

from __future__ import annotations

import pytest

from tests.kb.diagnosis.test_place import LAST, STEPS, raised, report_of

ENGINE = "[Torch] Saving out/global_step{0}/mp_rank_00.pt...\n[Torch] Saved out/global_step{0}/mp_rank_00.pt.\n"
READY = "[Torch] Checkpoint global_step{0} is ready now!\n"
PLANNED = "Scheduled async checkpoint save for /out/lm--step={0}-last\n"
WRITTEN = "Async checkpoint save for step {0} (/out/lm--step={0}-last) finalized successfully.\n"
MORE = "".join(f"iteration {step:6d}/   60 | lm loss: 2.{step:03}E+00\n" for step in range(41, 44))
TRAINER = "Saving model checkpoint to out/checkpoint-{0}\n"
REMOVED = "Deleting older checkpoint [out/checkpoint-{0}] due to args.save_total_limit\n"


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (ENGINE + READY, ENGINE, 35),  # the optimizer's files may still be missing
        (ENGINE + READY, ENGINE + READY, 40),
        (ENGINE + READY, ENGINE + MORE, 40),
        (PLANNED + WRITTEN, PLANNED + MORE, 35),  # steps go on while it is written
        (PLANNED + WRITTEN, PLANNED + MORE + WRITTEN, 40),
        (TRAINER, TRAINER, 35),
        (TRAINER, TRAINER + REMOVED.format(35), 40),  # removed to make room for the new one
        (TRAINER + REMOVED.format(30), TRAINER + MORE + REMOVED.format(35), 40),
    ],
)
def test_the_last_complete_save(first: str, second: str, expected: int) -> None:
    """One that is complete, whatever the framework logs of a save."""
    between = "iteration     38/   60 | lm loss: 2.0\n" + LAST
    text = STEPS + first.format(35) + between + second.format(40) + raised("go")
    assert expected == report_of(text).progress.last_checkpoint


def test_a_removed_checkpoint_is_no_place_to_resume_from() -> None:
    """The only one that is known to be complete was deleted, and the later one is not known to be."""
    text = STEPS + TRAINER.format(30) + LAST + MORE + TRAINER.format(43) + "Deleting old checkpoint out/checkpoint-30\n"
    assert report_of(text + raised("go")).progress.last_checkpoint == 43
    assert report_of(text.replace(TRAINER.format(43), "") + raised("go")).progress.last_checkpoint is None


def test_the_end_of_a_save_has_the_step_of_its_begin() -> None:
    """Steps are logged less often than one is saved, and the line of the end states none."""
    begin, end = "Saving the checkpoint (or staging). step=37\n", "Finished saving the checkpoint in 0.43 seconds.\n"
    twice = STEPS + begin + begin + end + end + LAST + MORE + raised("go")
    assert report_of(twice).progress.last_checkpoint == 37
    assert report_of(STEPS + begin.replace(" step=37", "") + end + LAST + raised("go")).progress.last_checkpoint == 35
