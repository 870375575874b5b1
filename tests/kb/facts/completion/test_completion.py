"""What proves that a job completed or goes on, and what speaks against it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kb.facts.completion.completion import Completion, completion
from kb.model import Job, ProgressPoint, Structure
from kb.report import Hang, Vote
from kb.scanning.summary import StageMark, StreamSummary
from tests.support.kb_samples import facts, ref, steps, stream

DONE = "Training completed\n"


def structure(kind: str, offset: int = 9000, **fields: str) -> Structure:
    """A structure with these fields."""
    return Structure(kind, offset, offset + 50, kind, fields)


def ended(*, how: str = "completed", offset: int = 9000) -> Structure:
    """The end that a run reports itself."""
    return structure("run_end", offset, how=how)


def tailed(summary: StreamSummary, text: str, offset: int = 8000) -> StreamSummary:
    """The summary with these last lines, from a byte offset on."""
    return replace(summary, tail=text, tail_offset=offset)


def of(*streams: StreamSummary, job: Job | None = None) -> Completion:
    """How a job with these logs ended."""
    return completion(facts(*streams, job=job))


# ends that are reported


@pytest.mark.parametrize(
    ("how", "expected"), [("completed", "completed"), ("duration_limit", "stopped"), ("exit_interval", "stopped")]
)
def test_an_end_that_the_run_reports(how: str, expected: str) -> None:
    """Its last step, or a limit that it sets itself."""
    found = of(stream(points=steps(1, 20), structures=[ended(how=how)]))
    assert (found.how, found.proven) == (expected, True)
    assert [sign.offset for sign in found.proof] == [9000]


@pytest.mark.parametrize("how", ["signal", "given_up"])
def test_an_end_on_a_signal_or_of_a_wrapper_proves_nothing(how: str) -> None:
    """The run did not end by its own will."""
    assert not of(stream(points=steps(1, 20), structures=[ended(how=how)])).proven


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("Training is stopped because the held-out loss is too high: 80.5", "unknown"),
        ("run aborted since the loss diverged at step 20", "unknown"),
        ("Training stopped because the patience of 5 epochs is used up", "completed"),
        ("Training was stopped because the learning rate is too low", "completed"),
    ],
)
def test_a_program_that_gives_up_on_its_figures_did_not_complete(said: str, expected: str) -> None:
    """An early stop that was planned is an end like any other."""
    log = stream(points=steps(1, 20))
    assert of(tailed(log, f"{said}\nexperiment finished\n")).how == expected


def test_an_end_in_the_last_lines() -> None:
    """It need not be a structure, but it must follow the last step."""
    log = stream(points=steps(1, 20))
    assert of(tailed(log, "fine\nexperiment finished\n")).how == "completed"
    assert of(tailed(log, "experiment finished\n", offset=100)).how == "unknown"


def test_lines_of_workers_after_the_end_of_their_driver() -> None:
    """A driver forwards what its workers print, and may do so after its own last line."""
    late = "(Actor pid=71) [actor 3] it=60 loss=0.5\n"
    log = stream(points=[*steps(1, 20), ProgressPoint(8030, step=60)])
    assert of(tailed(log, "all actors returned, best 0.5\n" + late)).how == "completed"
    assert of(tailed(log, "all actors returned, best 0.5\n" + "it=60 loss=0.5\n")).how == "unknown"


def test_a_stop_that_was_asked_for() -> None:
    """Steps that end early are not failures if the run was asked to stop and its scheduler reports success."""
    points = [replace(point, total=4000) for point in steps(1, 20)]
    asked = tailed(stream(points=points), "asked to stop: checkpoint of step 20 is saved, leaving\n")
    assert of(asked, job=Job(state="COMPLETED")).how == "stopped"
    assert not of(asked).proven
    assert not of(tailed(stream(points=points), "all quiet\n"), job=Job(state="COMPLETED")).proven


def test_a_program_that_the_platform_asked_to_end_did_not_complete() -> None:
    """It saves and leaves with success when it is preempted; a request to others of the log's past proves nothing."""
    success = "Trial 7 was terminated: command exited successfully\n"
    assert of(tailed(stream(points=steps(1, 20)), success)).proven
    asked = f"Trial 7 (Experiment 3) was requested to terminate\n{success}"
    assert not of(tailed(stream(points=steps(1, 20)), asked)).proven


def test_the_last_of_two_attempts_in_a_file_decides() -> None:
    """An end that a new start or further steps follow is not the end of what runs now."""
    assert not of(stream(points=steps(1, 20), structures=[ended(offset=500)])).proven
    again = stream(points=steps(1, 20), structures=[ended()], marks=[StageMark(9500, "launch")])
    assert not of(again).proven
    twice = stream(points=steps(1, 20), structures=[ended(), ended(offset=9900)], marks=[StageMark(9500, "launch")])
    assert of(twice).how == "completed"


def test_a_line_of_the_scheduler_about_another_job_proves_nothing() -> None:
    """Its log names many jobs."""
    log = ref("slurmctld.log", kind="scheduler")
    line = "slurmctld: JobId=77 JobState=COMPLETED"
    said = stream(log, structures=[Structure("run_end", 9000, 9050, line, {"how": "completed"})])
    assert not of(said).proven
    assert not of(said, job=Job(id="12")).proven
    assert of(said, job=Job(id="77")).how == "completed"


def test_all_ranks_at_their_last_step_with_a_normal_end() -> None:
    """The last step alone is not enough, and one rank that stops before it is too many."""
    full, part = steps(1, 20, total=20), steps(1, 15, total=20)
    assert not of(stream(points=full)).proven
    closed = tailed(stream(points=full), "model saved to out\n")
    assert of(closed).how == "completed"
    assert not of(closed, stream(ref("rank-1.log", 1), points=part)).proven


def test_the_last_step_of_as_many_as_the_log_announces() -> None:
    """The lines of steps need not repeat the total; a number that is announced and not reached proves the contrary."""
    log = replace(stream(points=steps(1, 20)), head="Total optimization steps = 20\n")
    assert of(tailed(log, "model saved to out\n")).how == "completed"
    assert not of(tailed(replace(log, head="Total optimization steps = 40\n"), "model saved to out\n")).proven
    assert not of(tailed(log, "Segmentation fault (core dumped)\n")).proven


def test_results_prove_no_end_beside_a_failure() -> None:
    """The same final figures, with a fatal error after them, or in a log of steps that end half way."""
    log = stream(points=steps(1, 20))
    assert of(tailed(log, "Final test accuracy: 0.91\n")).how == "completed"
    assert not of(tailed(log, "Final test accuracy: 0.91\nSegmentation fault (core dumped)\n")).proven
    assert not of(tailed(stream(points=steps(1, 20, total=100)), "Final test accuracy: 0.91\n")).proven


# the scheduler


def test_the_success_of_the_scheduler() -> None:
    """It proves the end of logs that show none; not of logs that stop half way."""
    done = Job(state="COMPLETED")
    assert of(stream(), job=done).how == "completed"
    assert of(stream(points=steps(1, 20, total=20)), job=done).how == "completed"
    half = of(stream(points=steps(1, 20, total=100)), job=done)
    assert (half.how, half.proven) == ("unknown", False)


@pytest.mark.parametrize(
    ("state", "how"), [("FAILED", "failed"), ("NODE_FAIL", "failed"), ("CANCELLED by 7", "stopped")]
)
def test_a_bad_state_outweighs_the_end_in_the_logs(state: str, how: str) -> None:
    """What the logs report is kept, to show the contradiction."""
    found = of(stream(structures=[ended()]), job=Job(state=state))
    assert (found.how, found.proven) == (how, False)
    assert found.bad_state is not None
    assert found.reported


# what speaks against it


def test_a_save_that_did_not_end() -> None:
    """After the last step or the reported end; a save that other lines follow is over."""
    begun = structure("checkpoint", 9500, event="save_begin")
    open_ = of(stream(points=steps(1, 20), structures=[ended(), begun]), job=Job(state="COMPLETED"))
    assert not open_.proven
    assert [sign.offset for sign in open_.against] == [9500]
    over = structure("checkpoint", 9600, event="save_end")
    assert of(stream(points=steps(1, 20), structures=[ended(), begun, over])).proven
    log = stream(points=steps(1, 20), structures=[ended(), begun])
    assert of(tailed(log, "x\nConfiguration saved in out/config.json\n", offset=9600)).proven


def test_a_program_that_never_reports_the_end_of_a_save() -> None:
    """Its earlier saves were over too: steps followed them."""
    saves = [structure("checkpoint", at, event="save_begin") for at in (500, 9500)]
    assert of(stream(points=steps(1, 20), structures=[ended(), *saves])).proven


@pytest.mark.parametrize(
    "line", ["F0311 12:00:00.000 9 x.cc:5] Check failed: a == b\n", "child exited with status 139\n"]
)
def test_a_fatal_line_on_another_rank(line: str) -> None:
    """Rank 0 may report the end before another one dies."""
    good = stream(ref("rank-0.log", 0), structures=[ended()])
    assert of(good).proven
    bad = of(good, tailed(stream(ref("rank-3.log", 3)), line))
    assert not bad.proven
    assert [sign.stream for sign in bad.against] == [1]


def test_a_rank_that_stays_behind() -> None:
    """The others could not have gone on without it, unless they do not work together."""
    good = stream(ref("rank-0.log", 0), points=steps(1, 90, total=90), structures=[ended(offset=9999)])
    assert of(good, stream(ref("rank-1.log", 1), points=steps(1, 89, total=90))).proven
    assert not of(good, stream(ref("rank-1.log", 1), points=steps(1, 40, total=90))).proven


# a job that goes on


def timed(every: float = 10.0, count: int = 20, start: float = 1000.0) -> list[ProgressPoint]:
    """Step lines at regular times."""
    return [ProgressPoint(100 * n, n, time=start + every * n) for n in range(count)]


@pytest.mark.parametrize(
    ("collected", "expected"),
    [(1192.0, "running"), (1225.0, "running"), (1400.0, "unknown"), (1100.0, "unknown"), (None, "unknown")],
)
def test_steps_that_go_on(collected: float | None, expected: str) -> None:
    """Until the logs were collected, by the job's own pace; a clock that is ahead of the collector's shows nothing."""
    assert of(stream(points=timed()), job=Job(collected_at=collected)).how == expected


def test_a_clock_that_jumps_shows_nothing() -> None:
    """Neither back nor forth."""
    back = [*timed(start=5000.0), *(replace(p, offset=p.offset + 5000) for p in timed())]
    assert not of(stream(points=back), job=Job(collected_at=1191.0)).proven
    forth = [*timed(), ProgressPoint(2100, 21, time=90_000.0)]
    assert not of(stream(points=forth), job=Job(collected_at=91_000.0)).proven


def test_every_rank_goes_on() -> None:
    """One that logs no more is not well."""
    late = [point for point in timed() if (point.step or 0) < 9]
    assert not of(stream(points=timed()), stream("b.log", points=late), job=Job(collected_at=1191.0)).proven


def test_the_scheduler_reports_that_it_runs() -> None:
    """Unless a probe suspects a hang; a job that has just reported its end completed."""
    running = Job(state="RUNNING")
    known = facts(stream(points=steps(1, 9)), job=running)
    assert completion(known).how == "running"
    vote = Hang(votes=(Vote("silence", "yes", "silent for 900 s"),), suspected=True)
    known.evidence = replace(known.evidence, hang=vote)
    assert not completion(known).proven
    assert of(stream(structures=[ended()]), job=running).how == "completed"


def test_nothing_is_proven_by_nothing() -> None:
    """A job without logs, or with calm ones."""
    assert of() == Completion()
    assert of(tailed(stream(points=steps(1, 20)), "all is well\n")).how == "unknown"


def test_a_bar_that_is_drawn_again_after_the_end() -> None:
    """The end follows the line that first reached the last step, also where both are glued together."""
    drawn = [*steps(1, 20), *(ProgressPoint(at, 20) for at in (8000, 8900))]
    log = tailed(stream(points=drawn), " 20/30 it/s Signaling Trainer to stop.\nfine\n 20/30 it/s\n", offset=1900)
    assert of(log).how == "completed"
    begun = structure("checkpoint", 8500, event="save_begin")
    assert not of(stream(points=drawn, structures=[begun]), job=Job(state="COMPLETED")).proven


def test_processes_that_answer_go_on() -> None:
    """Their stacks were taken and no probe suspects a hang: a long save is not an end."""
    known = facts(stream(points=steps(1, 9)))
    known.evidence = replace(known.evidence, hang=Hang(votes=(Vote("stacks", "no", "they change"),)))
    assert completion(known).how == "running"
    known.evidence = replace(known.evidence, hang=Hang(votes=(Vote("stacks", "not_observable", "none taken"),)))
    assert not completion(known).proven


@pytest.mark.parametrize(
    ("line", "later", "lost"),
    [
        ("upload failed, attempt 1 of 3, retry_in_s 1", "upload done, attempt 3", False),
        ("upload failed, attempt 1 of 3, retry_in_s 1", "checkpoint cleanup done", True),
        ("upload failed", "upload done", True),  # of another file: nobody said that it would be tried again
        ("could not write shard 3, retrying", "", True),
    ],
)
def test_a_write_that_is_tried_again_and_done_is_not_lost(line: str, later: str, lost: bool) -> None:
    """It says so itself, and a later line reports the same write as done."""
    found = of(tailed(stream(points=steps(1, 20)), f"{line}\n{later}\n{DONE}"))
    assert bool(found.against) is lost


@pytest.mark.parametrize(
    ("head", "tail", "expected"),
    [
        ("", "BLEU: 31.2\nROUGE-L: 40.8\n", "completed"),
        ("", "BLEU: 31.2\nloading the next part\n", "unknown"),
        ("Epoch 1\n", "BLEU: 31.2\n", "unknown"),  # the bar may be that of one epoch, which ends with scores
        ("", "loading the scores\n", "unknown"),
    ],
)
def test_scores_after_the_last_step_close_the_run(head: str, tail: str, expected: str) -> None:
    """Only as the last line, and only where the steps are not those of an epoch."""
    points = [replace(point, total=20) for point in steps(1, 20)]
    found = of(replace(tailed(stream(points=points), tail, points[-1].offset + 10), head=head))
    assert found.how == expected
