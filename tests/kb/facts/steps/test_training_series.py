"""Which bars of a console count training steps, and the steps of lines that name none."""

from __future__ import annotations

from dataclasses import replace

from kb.facts.log.stream_facts import StreamFacts
from kb.facts.steps.training_series import steps_over_epochs, training_series
from kb.model import ProgressPoint, StreamRef
from kb.scanning.scanner import scan
from tests.support.kb_samples import BOOK, PLAN, matcher, scanned, stream

ENGINE = matcher()


def bar(step: int, total: int, label: str = "", tail: str = "") -> str:
    """One drawing of a progress bar without a label, as tqdm prints it."""
    return f"\r{label}{100 * step // total:3d}%|{'█' * (10 * step // total):10}| {step}/{total} [00:01<00:09, 12.30it/s{tail}]"


def losses(step: int, loss: str, epoch: float) -> str:
    """A line of the Hugging Face trainer, which clears its bar before and draws it again after."""
    return (
        f"\r{' ' * 48}\r{{'loss': '{loss}', 'grad_norm': '0.8', 'learning_rate': '4e-05', 'epoch': '{epoch:g}'}}\n"
        + bar(step, 120)
    )


def trained(*steps: int) -> str:
    """The bar of a training of 120 steps with a line of losses at each tenth."""
    return "".join(bar(step, 120) + (losses(step, "4.1", step / 40) if step % 10 == 0 else "") for step in steps)


def evaluated(*steps: int) -> str:
    """The bar of an evaluation below the training bar: on its own line, after which the cursor goes up again."""
    return "\n" + "".join(bar(step, 25) + "\x1b[A\n" for step in steps)


def read(text: str) -> StreamFacts:
    """The facts of a console."""
    return StreamFacts(scan(PLAN, ENGINE, StreamRef("train.log"), [text.encode()]))


def counted(facts: StreamFacts) -> set[tuple[int | None, int | None]]:
    """Steps and totals of the training."""
    return {(p.step, p.total) for p in facts.points}


def test_the_steps_of_mlperf_can_be_epochs() -> None:
    """A benchmark may report its figures once an epoch, and call that a step."""

    def lines(step: int) -> str:
        return "".join(
            f':::MLLOG {{"key": "epoch_stop", "value": null, "metadata": {{"epoch_num": {number}}}}}\n'
            f':::MLLOG {{"key": "tracked_stats", "value": {{"throughput": 9.5}}, "metadata": {{"step": {number * step}}}}}\n'
            for number in range(1, 5)
        )

    assert {point.step for point in training_series(scanned(lines(1), BOOK)).points} == {None}
    assert {point.step for point in training_series(scanned(lines(300), BOOK)).points} == {None, 300, 600, 900, 1200}


def test_the_bar_of_an_evaluation_counts_no_training_steps() -> None:
    """The trainer goes on at its own count after it; a last drawing of the evaluation's bar changes nothing."""
    text = (
        trained(7, 10, 20, 40)
        + evaluated(0, 6, 16, 23)
        + bar(40, 120)
        + "\n"
        + bar(25, 25)
        + "\x1b[A"
        + trained(42, 50)
    )
    facts = read(text)
    assert counted(facts) == {(step, 120) for step in (7, 10, 20, 40, 42, 50)}
    last = facts.last_step()
    assert last is not None
    assert (last.step, last.total, facts.stages.of_steps()) == (50, 120, "iterating")


def test_a_run_that_ends_inside_its_evaluation() -> None:
    """The last bar starts again from 0 while the training's is not at its end: the stage is the evaluation."""
    facts = read("".join(bar(step, 120) for step in (1, 20, 40, 80)) + evaluated(0, 6, 16))
    last = facts.last_step()
    assert last is not None
    assert (last.step, last.total, facts.stages.of_steps()) == (80, 120, "evaluating")
    assert facts.stage(facts.summary.size) == "evaluating"


def test_an_evaluation_without_losses_around_it_is_reported_by_how_bars_advance() -> None:
    """One bar stops while another one runs, and goes on where it stopped."""
    text = (
        "".join(bar(step, 500) for step in range(100, 130, 5))
        + evaluated(0, 9, 25)
        + "".join(bar(step, 500) for step in range(130, 160, 5))
    )
    assert {total for _, total in counted(read(text))} == {500}


def test_a_bar_of_epochs_around_the_training_counts_none_of_its_steps() -> None:
    """It advances only when an inner bar has run."""
    text = "".join(
        bar(epoch, 3, tail="") + "".join("\n" + bar(step, 40, tail=", loss=2.5") for step in (0, 13, 40))
        for epoch in range(3)
    )
    facts = read(text + bar(3, 3))
    assert {p.total for p in facts.points if p.step is not None} == {40}


def test_lengths_that_take_turns() -> None:
    """An epoch trains, then evaluates on fewer batches; a single pair of bars is left as it is."""
    epoch = "".join(bar(step, 90) for step in (0, 44, 90)) + "\n" + "".join(bar(step, 12) for step in (0, 6, 12)) + "\n"
    assert {total for _, total in counted(read(3 * epoch))} == {90}
    assert {total for _, total in counted(read(epoch))} == {90, 12}


def test_lengths_that_take_turns_often_although_some_turns_are_missing() -> None:
    """A long log keeps only some updates, so that a bar of one or the other length is missing; three turns prove nothing."""

    def run(order: str) -> StreamFacts:
        whole = {"t": (33, 132), "v": (7, 28)}
        return read("".join(bar(whole[each][0] * n, whole[each][1]) for each in order for n in range(1, 5)))

    often = run("ttvtvvtvvvttvtv")
    assert {total for _, total in counted(often)} == {132}
    assert often.stages.of_steps() == "evaluating"
    assert {total for _, total in counted(run("ttvvt"))} == {132, 28}


def test_a_bar_with_a_fraction_as_its_length_counts_whole_steps() -> None:
    """A program passes the quotient of samples and batch size."""
    text = "\r  2%|▏         | 5/312.5 [2:48:12<166:39:12, 1951.07s/it]"
    assert counted(read(text)) == {(5, 312)}


def test_a_shorter_bar_after_the_epochs_is_a_test() -> None:
    """Two epochs of 90 batches, then a test of 30; after one bar alone, another may be of a second phase."""
    epoch = "\n".join(bar(step, 90) for step in (0, 30, 60, 90)) + "\n"
    test = "\n".join(bar(step, 30) for step in (0, 15, 30)) + "\n"
    assert {total for _, total in counted(read(epoch + epoch + test))} == {90}
    assert {total for _, total in counted(read(epoch + test))} == {90, 30}
    assert {total for _, total in counted(read(test + test + epoch))} == {90, 30}


def test_bars_first_drawn_after_the_trainer_s_summary_count_no_training_steps() -> None:
    """An evaluation and a prediction follow the training, each with a bar of its own, longer or shorter."""
    done = "\n{'train_runtime': 81.2, 'train_loss': 3.1, 'epoch': 3.0}\n"
    after = "".join(bar(step, 300) for step in range(0, 301, 20))
    whole = "".join(bar(step, 120) for step in range(0, 121, 5)) + done + evaluated(*range(0, 26, 5)) + "\n" + after
    assert counted(read(whole)) == {(step, 120) for step in range(0, 121, 5)}


def test_another_attempt_in_the_file_is_no_evaluation() -> None:
    """Its first bar starts from 0 while that of the first attempt was not at its end, but the run was launched in between."""
    text = (
        "".join(bar(step, 500) for step in range(0, 80, 5))
        + "\nSetting OMP_NUM_THREADS environment variable for each process\n"
        + "".join(bar(step, 400) for step in (0, 5, 10))
    )
    last = read(text).last_step()
    assert last is not None
    assert (last.step, last.total) == (10, 400)


def test_a_line_without_a_step_gets_that_of_the_bar_drawn_after_it() -> None:
    """The bar is not drawn at every step, but it is redrawn right after this kind of line."""
    facts = read(bar(7, 120) + losses(10, "4.118", 0.25) + bar(17, 120) + losses(20, "nan", 0.5))
    measured = [(p.step, p.total, p.grad_norm) for p in facts.points if p.grad_norm is not None]
    assert measured == [(10, 120, 0.8), (20, 120, 0.8)]


def test_in_a_thinned_series_the_epoch_places_a_line() -> None:
    """The bars next to it are left out there; the last points are kept and say how many steps an epoch has."""
    dense = []
    for step in range(800, 1000, 10):
        dense += [
            ProgressPoint(100 * step, loss=2.0, epoch=step / 200, format="hf_dict"),
            ProgressPoint(100 * step + 50, step, 1000, format="tqdm"),
        ]
    early = [
        ProgressPoint(100, 2, 1000, format="tqdm"),
        ProgressPoint(30_000, loss=float("nan"), epoch=1.5, format="hf_dict"),
    ]
    summary = stream(points=[*early, *dense])
    thinned = training_series(replace(summary, series=replace(summary.series, mask=7)))
    assert [p.step for p in thinned.points if p.offset == 30_000] == [300]


def test_a_rounded_epoch_places_no_line_beyond_the_bars_around_it() -> None:
    """Epochs are logged with two digits, so a product with them may exceed the last step."""
    dense = []
    for step in range(800, 1001, 10):
        dense += [
            ProgressPoint(100 * step, loss=2.0, epoch=round(step / 990, 2), format="hf_dict"),
            ProgressPoint(100 * step + 50, step, 1000, format="tqdm"),
        ]
    summary = stream(points=dense)
    thinned = training_series(replace(summary, series=replace(summary.series, mask=7)))
    steps = [p.step or 0 for p in thinned.points]
    assert steps == sorted(steps)
    assert steps[-1] == 1000


def test_steps_count_on_over_epochs() -> None:
    """Lightning's bar starts again with each epoch, once more under its old label."""
    lines = [(0, 1), (0, 25), (0, 0), (1, 0), (1, 12), (1, 25), (2, 3)]
    points = [
        ProgressPoint(100 * at, step, 25, epoch=float(epoch), format="tqdm") for at, (epoch, step) in enumerate(lines)
    ]
    assert [p.step for p in steps_over_epochs(points)] == [1, 25, 25, 25, 37, 50, 53]
    assert {p.total for p in steps_over_epochs(points)} == {None}


def test_a_last_epoch_cut_short_by_a_limit_of_steps_counts_on() -> None:
    """With `max_steps`, the bar of the last epoch plans fewer steps; a shorter epoch before it proves another count."""
    lines = [(0, 1, 25), (0, 25, 25), (1, 10, 25), (1, 25, 25), (2, 5, 8), (2, 8, 8)]
    points = [
        ProgressPoint(100 * at, step, total, epoch=float(epoch), format="tqdm")
        for at, (epoch, step, total) in enumerate(lines)
    ]
    assert [p.step for p in steps_over_epochs(points)] == [1, 25, 35, 50, 55, 58]
    assert steps_over_epochs([*points[4:], *points[:4]]) == [*points[4:], *points[:4]]


def test_steps_that_do_not_start_again_are_left_as_they_are() -> None:
    """A line with an epoch can count over all of them; one that begins in a later epoch does not say from where it counts."""
    through = [
        ProgressPoint(100 * step, step, 500, epoch=float(step // 100), format="nemo") for step in range(0, 500, 50)
    ]
    assert steps_over_epochs(through) == through
    resumed = [ProgressPoint(100 * at, at % 5, 5, epoch=float(4 + at // 5), format="tqdm") for at in range(15)]
    assert steps_over_epochs(resumed) == resumed


def test_the_count_that_started_again_is_that_of_the_last_step() -> None:
    """Bars without an epoch: the furthest step is that of the bar that runs, not that of those before."""
    facts = read(
        "".join(bar(step, 1000) for step in (0, 500, 1000)) + "\n" + "".join(bar(step, 200) for step in (0, 40, 80))
    )
    last = facts.last_step()
    assert last is not None
    assert (last.step, last.total) == (80, 200)


def test_the_rows_of_a_table_of_results_are_of_one_step() -> None:
    """Ray prints a table for each result: the number of the result in one row, the loss in another."""
    rows = "".join(
        f"│ Training result               │\n│ training_iteration          {step} │\n│ loss                      {loss} │\n"
        for step, loss in ((1, "2.3"), (2, "2.2"), (3, "2.1"))
    )
    facts = read(rows)
    assert [(p.step, p.loss) for p in facts.points if p.loss is not None] == [(1, 2.3), (2, 2.2), (3, 2.1)]
    last = facts.last_step()
    assert last is not None
    assert last.step == 3


def test_the_time_since_the_start_is_no_duration_of_a_step() -> None:
    """A time that rises with every line is left out; one that falls once is the duration of a step."""

    def seconds(values: list[float]) -> list[float | None]:
        points = [ProgressPoint(at * 50, step=at, seconds=value, format="f") for at, value in enumerate(values)]
        return [point.seconds for point in training_series(stream(points=points)).points]

    rising = [9.3, 14.4, 18.4, 24.0, 29.0, 34.0, 38.6, 43.3]
    assert seconds(rising) == [None] * 8
    assert seconds([*rising, 40.0]) == [*rising, 40.0]
    assert seconds([1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7])[-1] == 1.7


def test_a_bar_that_gets_its_label_late_counts_what_the_label_says() -> None:
    """It is drawn once before; a bar that nothing names counts steps, even if it is still at the first."""
    named = "Capturing batches (bs=80): "
    assert counted(read(bar(0, 14) + bar(0, 14, named) + "\nRuntimeError: no kernel\n")) == set()
    assert counted(read(bar(0, 14) + bar(0, 14, "Training steps: ") + "\n")) == {(0, 14)}
    assert counted(read(bar(0, 14) + "\nRuntimeError: no kernel\n")) == {(0, 14)}


def test_a_bar_that_turns_out_to_be_faster_than_any_training_counts_no_steps() -> None:
    """Records are read; its first drawing has no pace."""
    start = "  0%|          | 0/900000 [00:00<?, ?it/s]"
    fast = "\r 28%|██▊       | 253390/900000 [00:00<00:00, 2533443.36it/s]\n"
    slow = "\r 28%|██▊       | 253390/900000 [99:00<00:00, 4.36it/s]\n"
    assert read(start + fast).points == []
    assert [point.step for point in read(start + slow).points] == [0, 253390]


def test_a_bar_of_one_step_counts_no_training() -> None:
    """Nothing is trained in a loop of one; that it ends still says that the program came so far."""
    start = "  0%|          | 0/1 [00:00<?, ?it/s]"
    assert read(start + "\n").points == []
    assert len(read(start + "\r100%|██████████| 1/1 [00:02<00:00,  2.36s/it]\n").points) == 2


def test_an_epoch_places_no_line_beyond_the_next_bar_of_its_length_behind_an_evaluation() -> None:
    """The bar of an evaluation in between counts something else, whether or not it is known as one."""
    points = [ProgressPoint(50, 2, 1000, format="tqdm")]
    points += [ProgressPoint(70_000, loss=2.0, epoch=0.28, format="hf_dict")]
    points += [ProgressPoint(70_000 + 100 * step, step, 40, format="tqdm") for step in range(1, 40, 6)]
    for step in range(280, 380, 10):
        offset = 80_000 + 100 * step
        points.append(ProgressPoint(offset, loss=2.0, epoch=round(step / 1100, 2), format="hf_dict"))
        points.append(ProgressPoint(offset + 50, step, 1000, format="tqdm"))
    summary = stream(points=points)
    thinned = training_series(replace(summary, series=replace(summary.series, mask=7)))
    assert [p.step for p in thinned.points if p.offset == 70_000] == [280]
