"""Which events are reported (kb.anomalies.events.ranking)."""

from __future__ import annotations

from dataclasses import replace

from kb.anomalies.core.run import LineRef, NodeEvent, RunEvent
from kb.anomalies.events.ranking import RankedEvent, choose_events


def an_event(text: str, at: float, score: float = 0.6) -> RankedEvent:
    """An event of one line of a launcher."""
    spot = LineRef("train.log", int(at * 100), text, None, at)
    return RankedEvent(
        RunEvent(text, text, "error", {"": NodeEvent(1, (spot,))}), score, spot, 1.0, 0.5, 1.0, False, ()
    )


def test_words_on_a_process_of_each_host_are_one_event_shown_by_its_first_line() -> None:
    """The first that a launcher saw end is the one to look at."""
    late, early = (
        an_event("member <*> on node-a left with status <*>", 9.0, 0.8),
        an_event("member <*> on node-b left with status <*>", 8.0),
    )
    (told,) = choose_events((late, early))
    assert (told.spot, told.score) == (early.spot, 0.8)
    other = an_event("chute map of this member lists <*> mouths", 7.0)
    assert choose_events((late, other)) == (late, other)


def test_of_a_launchers_reports_the_first_is_told_and_none_beside_a_cause() -> None:
    """The others report what came of it."""
    late = replace(an_event("members that are left: <*>", 9.0, 0.8), consequence=True, launched=True)
    early = replace(an_event("member <*> left with status <*>", 8.0, 0.3), consequence=True, launched=True)
    (told,) = choose_events((late, early))
    assert (told.spot, told.score) == (early.spot, 0.8)
    cause = an_event("chute map of this member lists <*> mouths", 7.0)
    assert choose_events((late, early, cause)) == (cause,)


def test_a_signal_that_a_launcher_reports_is_told_only_where_nothing_explains_it() -> None:
    """A last word that is sure enough explains it, a guess does not."""
    launcher = replace(an_event("failed (exitcode: <*>) local_rank: <*>", 9.0, 0.9), consequence=True)
    launcher = replace(launcher, spot=replace(launcher.spot, text="exitcode  : -9 (pid: 71)  (SIGKILL)"))
    word = an_event("sluice <*> is shut, leaving", 8.0, 0.5)
    assert choose_events((launcher, word)) == (word,)
    guess = replace(word, score=0.4)
    assert choose_events((launcher, guess)) == (launcher, guess)


def test_where_only_consequences_are_likely_new_trouble_is_told_if_it_is_likely_at_all() -> None:
    """What healthy runs print, or what says nothing bad, is not."""
    lost = replace(an_event("srun: error: mill: task <*>: Exited", 9.0, 0.8), consequence=True)
    cause = replace(an_event("cannot open the sluice", 8.0, 0.3), harm=0.6)
    assert choose_events((lost, cause)) == (cause,)
    assert choose_events((lost, replace(cause, fresh=0.5))) == (lost,)
    assert choose_events((lost, replace(cause, harm=0.1))) == (lost,)


def test_of_consequences_that_somebody_ended_the_job_is_told_first() -> None:
    """Then what launchers report, then the loss of peers."""
    lost = replace(an_event("lost a peer", 9.0, 0.9), consequence=True)
    report = replace(an_event("member <*> left with status <*>", 9.0, 0.5), consequence=True, launched=True)
    asked = replace(an_event("KeyboardInterrupt", 9.0, 0.4), consequence=True)
    assert choose_events((lost, report, asked)) == (asked,)
    assert choose_events((lost, report)) == (report,)


def test_of_a_launchers_lines_on_a_signal_the_one_that_names_it_is_told() -> None:
    """They are one report."""

    def line(text: str, at: float, score: float) -> RankedEvent:
        return replace(an_event(text, at, score), consequence=True)

    code = line("failed (exitcode: -9) local_rank: 2", 8.0, 0.9)
    named = line("exitcode  : -9 (pid: 71)  (SIGKILL)", 9.0, 0.6)
    assert choose_events((code, named)) == (named,)
    assert choose_events((code,)) == (code,)
