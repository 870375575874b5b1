"""The hang probes' count, silence with its phases, and the limits that a site may set."""

from __future__ import annotations

import time
from dataclasses import asdict, replace

import pytest

from bot.rulebase.loader import knowledge
from kb.facts.evidence import Evidence
from kb.facts.job_facts import Facts
from kb.hangs.votes import RULE, HangLimits, Phase, Probe, count_votes, limits_of, phase_of, silence, unknown_params
from kb.model import Job, ProgressPoint, Resource, Stage, StreamRef, Structure
from kb.rulebase.rule import Pattern, SiteFiles
from kb.rulebase.rulebook import load
from kb.scanning.summary import Series, StageMark, StreamSummary
from tests.support.kb_samples import rule, rulebook

START = 1_790_000_000.0
LIMITS = HangLimits()


def log(
    times: list[float | None],
    *marks: tuple[int, Stage],
    rank: int = 0,
    last: float | None = None,
    every: int = 1,
    ends: tuple[tuple[int, str], ...] = (),
) -> StreamSummary:
    """A rank's log: an iteration line at each time (seconds from START, byte 100 each), marks and checkpoint ends."""
    points = tuple(
        ProgressPoint(100 * at, at * every, None, None if when is None else START + when, 2.0)
        for at, when in enumerate(times, 1)
    )
    known = [when for when in (*times, last) if when is not None]
    structures = tuple(Structure("checkpoint", at, at + 9, "done", {"event": event}) for at, event in ends)
    return StreamSummary(
        StreamRef(f"logs/rank-{rank}.log", Resource(rank=rank)),
        size=100_000,
        series=Series(points, len(points), 0, points[0] if points else None, points[-1] if points else None),
        marks=tuple(StageMark(at, stage) for at, stage in marks),
        structures=structures,
        first_time=START,
        last_time=START + max(known) if known else None,
    )


def facts(*streams: StreamSummary, **job: object) -> Facts:
    """Facts of these logs."""
    return Facts(Evidence(Job(**job), streams=streams))  # type: ignore[arg-type]


def steady(count: int = 40, every: float = 6.0) -> list[float | None]:
    """Times of steps."""
    return [every * at for at in range(1, count + 1)]


def probe(name: str, vote: str = "yes", at: float | None = START) -> Probe:
    """A probe that votes so."""
    return Probe(name, vote, "told", START, at)  # type: ignore[arg-type]


# -- the count -------------------------------------------------------------------------------------------------------------


def test_two_votes_in_one_window_are_a_hang() -> None:
    """Two probes that agree call it, and no advice is needed."""
    hang = count_votes([probe("silence"), probe("stacks", at=START + 299), probe("spin", "not_observable")], LIMITS)
    assert (hang.called, hang.suspected, hang.advice) == (True, False, ())


def test_one_vote_suspects_and_says_what_to_switch_on() -> None:
    """One probe alone calls no hang, and the report says how to enable each probe without data."""
    hang = count_votes(
        [probe("silence"), probe("stacks", "no"), *(probe(n, "not_observable") for n in ("spin", "collective"))], LIMITS
    )
    assert (hang.called, hang.suspected) == (False, True)
    assert len(hang.advice) == 2
    assert "DCGM_FI_PROF_SM_ACTIVE" in hang.advice[0]
    assert "Flight Recorder" in hang.advice[1]


def test_votes_apart_in_time_do_not_add_up() -> None:
    """Two probes that saw it more than five minutes apart only suspect."""
    hang = count_votes([probe("silence"), probe("stacks", at=START + 301)], LIMITS)
    assert (hang.called, hang.suspected) == (False, True)


def test_a_vote_of_unknown_time_counts_with_any() -> None:
    """Where the time of a look is not known it is taken to be the same."""
    assert count_votes([probe("silence"), probe("collective", at=None)], LIMITS).called


@pytest.mark.parametrize("votes", [(), ("no", "no"), ("not_observable",) * 4, ("no", "not_observable")])
def test_no_vote_suspects_nothing(votes: tuple[str, ...]) -> None:
    """Without a yes there is neither a hang nor advice."""
    hang = count_votes([probe(f"p{at}", vote) for at, vote in enumerate(votes)], LIMITS)
    assert (hang.called, hang.suspected, hang.advice) == (False, False, ())


def test_a_phase_within_its_ceiling_holds_the_votes() -> None:
    """What the run does explains that nothing moves: votes are shown, nothing is called; past the ceiling it is."""
    votes = [probe("stacks"), probe("collective")]
    held = count_votes(votes, LIMITS, Phase("saving", 300.0, 150.0, 299.0))
    assert (held.called, held.suspected, len(held.votes)) == (False, False, 2)
    assert count_votes(votes, LIMITS, Phase("saving", 300.0, 150.0, 301.0)).called


def test_a_phase_of_unknown_age_only_suspects() -> None:
    """If the duration of a save is unknown, no hang is called, and the report asks for timestamps in the logs."""
    hang = count_votes([probe("stacks"), probe("spin")], LIMITS, Phase("saving", 300.0))
    assert (hang.called, hang.suspected) == (False, True)
    assert "timestamp" in hang.advice[0]


# -- silence ---------------------------------------------------------------------------------------------------------------


def test_silence_votes_with_its_numbers() -> None:
    """A log that stops for longer than two minutes of 6 s steps votes, and says age, limit and usual gap."""
    vote = silence(facts(log(steady())), START + 240 + 130, LIMITS)
    assert vote.vote == "yes"
    assert "130 s old" in vote.detail
    assert "the limit is 120 s" in vote.detail
    assert "6.0 s" in vote.detail
    assert vote.since == START + 240


@pytest.mark.parametrize(("gap", "limit"), [(6.0, 120.0), (60.0, 180.0), (300.0, 480.0)])
def test_the_limit_follows_the_jobs_own_gap(gap: float, limit: float) -> None:
    """Three times the usual gap, at least two minutes and at most eight."""
    run = facts(log(steady(20, gap)))
    end = START + 20 * gap
    assert silence(run, end + limit - 1, LIMITS).vote == "no"
    assert silence(run, end + limit + 1, LIMITS).vote == "yes"


def test_silence_is_reported_before_the_collectives_time_out() -> None:
    """With a timeout of 100 s the vote comes at 80 s, in any phase."""
    run = facts(log(steady(), (5000, "evaluating")))
    assert silence(run, START + 240 + 81, LIMITS, timeout=100.0).vote == "yes"
    assert silence(run, START + 240 + 79, LIMITS, timeout=100.0).vote == "no"


@pytest.mark.parametrize(
    ("stage", "name"),
    [
        ("evaluating", "evaluating"),
        ("saving", "saving"),
        ("checkpoint_load", "loading"),
        ("data_load", "loading"),
        ("init", "starting"),
    ],
)
def test_phases_have_their_ceilings(stage: Stage, name: str) -> None:
    """In a phase silence is nothing special for half an hour, and the vote names the phase."""
    run = facts(log(steady(), (5000, stage)))
    early, late = (silence(run, START + 240 + age, LIMITS) for age in (1700, 1900))
    assert (early.vote, late.vote) == ("no", "yes")
    assert f"it is {name}" in early.detail


def test_before_the_first_step_it_is_the_start() -> None:
    """A run without steps compiles and meets for as long as a start may take, also behind `training ...`."""
    run = facts(log([], (10, "iterating"), last=30.0))
    assert phase_of(run, START + 600, LIMITS).name == "starting"
    assert silence(run, START + 30 + 1700, LIMITS).vote == "no"
    assert silence(run, START + 30 + 1900, LIMITS).vote == "yes"


def test_a_phase_that_ended_has_no_ceiling() -> None:
    """Behind `saved checkpoint` the usual limit holds again."""
    run = facts(log(steady(), (5000, "saving"), ends=((5100, "save_end"),)))
    assert silence(run, START + 240 + 130, LIMITS).vote == "yes"
    again = facts(log(steady(), (5000, "saving"), (5200, "saving"), ends=((5100, "save_end"),)))
    assert silence(again, START + 240 + 130, LIMITS).vote == "no"
    other = log([], rank=1, last=100.0, ends=((5100, "save_end"),))  # of an earlier checkpoint, in another log
    assert silence(facts(log(steady(), (5000, "saving")), other), START + 240 + 130, LIMITS).vote == "no"


def paused(seconds: float, stage: Stage | None = "saving") -> StreamSummary:
    """Twenty steps, a pause (marked as a stage, or not), twenty more, and the same stage again at the end."""
    times = [*steady(20), *(120.0 + seconds + 6.0 * at for at in range(1, 21))]
    marks = ((2050, stage), (5000, stage)) if stage else ()
    return log(times, *marks)


@pytest.mark.parametrize(("earlier", "ceiling"), [(40.0, 300.0), (400.0, 2000.0), (1500.0, 7500.0)])
def test_ceilings_are_learned_from_the_job_itself(earlier: float, ceiling: float) -> None:
    """The longest checkpoint before counts five times, five minutes at least, instead of the default."""
    phase = phase_of(facts(paused(earlier)), START, LIMITS)
    assert phase.name == "saving"
    assert phase.longest == pytest.approx(earlier, abs=7.0)
    assert phase.ceiling == pytest.approx(ceiling, abs=35.0)


def test_one_phase_teaches_nothing_of_another() -> None:
    """Earlier checkpoints do not shorten what an evaluation may take."""
    one = paused(40.0)
    run = log([p.time - START for p in one.series.points], (2050, "saving"), (5000, "evaluating"))
    assert phase_of(facts(run), START, LIMITS).ceiling == LIMITS.evaluating


def test_a_pause_that_no_phase_explains_is_known_but_excuses_nothing() -> None:
    """The longest pause is reported, and does not raise a ceiling."""
    phase = phase_of(facts(paused(90.0, None)), START, LIMITS)
    assert (phase.name, phase.ceiling) == ("", 0.0)
    assert phase.longest == pytest.approx(90.0, abs=7.0)


def test_lines_far_apart_are_no_pauses() -> None:
    """Where iteration lines were thinned out, the time between them is steps, not a pause."""
    whole = log(steady(400))
    kept = tuple(p for at, p in enumerate(whole.series.points) if at % 7 in (0, 1) or at > 380)
    thinned = StreamSummary(
        whole.ref, size=whole.size, series=Series(kept, 400, 1, kept[0], kept[-1]), marks=(StageMark(50_000, "saving"),)
    )
    assert phase_of(facts(thinned), START, LIMITS).longest in (None, pytest.approx(0.0, abs=1.0))


def test_time_without_progress_counts_where_lines_come_on() -> None:
    """A heartbeat does not make a phase young: since the next step was due it has been quiet."""
    run = facts(log(steady(), (5000, "saving"), last=900.0))
    assert phase_of(run, START + 905, LIMITS).quiet == pytest.approx(905 - 240 - 6)
    assert phase_of(facts(log(steady())), START + 250, LIMITS).quiet == pytest.approx(10)


def test_silence_needs_times_and_a_now() -> None:
    """Without time stamps, without the time of collection or without logs it could not look, and says why."""
    untimed = facts(log([None] * 20))
    for run, now, why in (
        (untimed, START, "no log has timestamps"),
        (facts(log(steady())), None, "collected_at"),
        (facts(), START, "no log"),
    ):
        vote = silence(run, now, LIMITS)
        assert vote.vote == "not_observable"
        assert why in vote.detail


def test_a_clock_that_runs_ahead_is_left_out() -> None:
    """A node with a clock an hour ahead does not hide a silence or shift the vote; alone it cannot be judged."""
    ahead = log([3600.0 + 240.0], rank=1)
    vote = silence(facts(log(steady()), ahead), START + 400, LIMITS)
    assert vote.vote == "yes"
    assert "1 of 2 logs" in vote.detail
    alone = silence(facts(ahead), START + 400, LIMITS)
    assert alone.vote == "not_observable"
    assert "ahead" in alone.detail


def test_other_sources_do_not_break_the_silence() -> None:
    """The kernel log continues while the job hangs, and does not belong to the job."""
    kernel = StreamSummary(StreamRef("logs/dmesg.log", kind="kernel"), last_time=START + 399)
    assert silence(facts(log(steady()), kernel), START + 400, LIMITS).vote == "yes"


@pytest.mark.slow  # the other tests of the module
def test_ten_thousand_logs_are_judged_by_a_few() -> None:
    """Logs of ten thousand ranks cost little more than a few of them, and say the same."""
    one = log(steady(64))
    many = tuple(replace(one, ref=StreamRef(f"logs/rank-{rank}.log", Resource(rank=rank))) for rank in range(10_240))
    run = facts(*many)
    begun = time.process_time()
    vote = silence(run, START + 64 * 6 + 130, LIMITS)
    assert time.process_time() - begun < 1.0
    assert vote.vote == "yes"
    assert "6.0 s" in vote.detail


# -- limits ----------------------------------------------------------------------------------------------------------------


def test_limits_are_parameters_of_the_rule() -> None:
    """What the rule gives counts, what it does not know stays as it is, other names are ignored."""
    book = rulebook(
        rule("hang-called", "code_bug", Pattern("line", literal="x"), params={"pending": 10.0, "moon": 3.0})
    )
    assert limits_of(book) == HangLimits(pending=10.0)
    assert limits_of(rulebook()) == HangLimits()
    own = {RULE: {"pending": 20.0, "retries": 3.0}, "disk-full": {"pending": 1.0}}
    assert limits_of(book, own) == HangLimits(pending=20.0)
    assert list(unknown_params(own)) == [
        "params.hang-called.retries: hang-called has no such parameter; did you mean 'retry'?",
        "params.disk-full: only rule hang-called takes parameters from a job; for other rules use site.yaml",
    ]


BASE = {
    "VERSION": "1.0",
    "faults.yaml": "version: 1\nfaults:\n  - {id: stands_still, domain: software, title: Still}\n",
    "actions.yaml": (
        "version: 1\nadvice: {requeue: a, requeue_without: b, restart_in_place: c, resubmit: d, fix_first: e, wait: f, none: g}\n"
        "owners: {hardware: hardware, network: network, platform: platform, software: user, training: user, none: none}\n"
        "actions:\n  - {id: look_at_logs, grade: look, title: Look}\n"
    ),
    "hang/hang-called/rule.yaml": (
        "format: 1\nid: hang-called\ntitle: Still\nfault: stands_still\nrole: symptom\nstatus: experimental\nseverity: high\n"
        "summary: s\ncause: c\nimpact: i\nmatch:\n  seen: {structure: {kind: hang, fields: {state: called}}}\n"
        "params: {silence_least: 120, evaluating: 1800}\n"
    ),
}


@pytest.mark.parametrize(("late", "expected"), [(0.0, "yes"), (59.0, "yes"), (300.0, "no")])
def test_lines_that_come_in_blocks_make_no_silence(late: float, expected: str) -> None:
    """Where lines are seen to come five minutes late the last one is of five minutes ago; seconds are nothing."""
    vote = silence(facts(log(steady())), START + 240 + 200, LIMITS, late=late)
    assert vote.vote == expected
    assert ("its lines arrive up to 300 s late" in vote.detail) is (late == 300.0)


def test_the_shipped_rule_gives_every_limit_its_default() -> None:
    """The rule's parameters are the limits, one by one: what a site reads there is what holds."""
    shipped = next(item for item in knowledge().rulebook.rules if item.id == RULE)
    assert dict(shipped.params) == asdict(LIMITS)


def test_a_site_sets_limits_in_its_overlay() -> None:
    """site.yaml's numbers for hang-called reach the probes, and change a vote."""
    site = "version: 1\nparams:\n  hang-called: {evaluating: 600}\n"
    loaded = load(BASE, SiteFiles("/site", {"site.yaml": site}), "2026-11-20")
    assert not loaded.faults
    limits = limits_of(loaded.rulebook)
    assert (limits.evaluating, limits.silence_least) == (600.0, 120.0)
    run = facts(log(steady(), (5000, "evaluating")))
    assert silence(run, START + 240 + 700, limits).vote == "yes"
    assert silence(run, START + 240 + 700, LIMITS).vote == "no"
