"""Exceptions that a program caught and logged, as the usual lines after them show."""

from __future__ import annotations

import pytest

from kb.facts.log.stream_facts import StreamFacts
from kb.rulebase.rule import Pattern
from tests.support.kb_samples import ref, rule, rulebook, scanned

BOOK = rulebook(rule("oom", "cuda_oom", Pattern("line", literal="CUDA out of memory")))
PULSE = "the silo has {n} sacks left\n"
CAUGHT = "{p}Traceback (most recent call last):\n{p}  File \"/srv/yard.py\", line 9, in weigh\n{p}    scale[n]\n{p}KeyError: 'sack'\n"
UNCAUGHT = CAUGHT.replace("in weigh", "in <module>")
END = UNCAUGHT.replace("KeyError: 'sack'", "GateStuck: it did not open")


def spoken(text: str, *, rank: int | None = 3, succeeded: bool = False) -> bool:
    """Whether the first exception of a log was one that its program lived with."""
    stream = scanned(text, BOOK, ref("rank-3.log" if rank is not None else "all.log", rank=rank))
    facts = StreamFacts(stream, succeeded=succeeded)
    return facts.lived_with(facts.exceptions[0].offset)


def pulses(count: int, prefix: str = "") -> str:
    """Usual lines."""
    return "".join(prefix + PULSE.format(n=n) for n in range(count))


def test_a_process_that_goes_on_as_before_caught_its_exception() -> None:
    """Two lines of a form that it printed before show that, or one of the form that it prints all the time; lines that are new do not."""
    raised = CAUGHT.format(p="")
    assert spoken(pulses(2) + raised + pulses(2))
    assert spoken(pulses(3) + raised + pulses(1))
    assert not spoken(pulses(2) + raised + pulses(1))
    assert not spoken(pulses(9) + "the lid is open now\n" * 3 + raised + "the lid is open now\n")
    assert not spoken(raised + pulses(9))
    assert not spoken(pulses(9) + raised)


def test_lines_of_trouble_are_not_usual() -> None:
    """A long message goes on below its exception with lines that were logged as errors before."""
    said = "  Allocation type: heap of the yard {n}\n"
    logged = "".join(f"E0718 23:11:28.58070{n} 1100138 yard.cc:2465]" + said.format(n=n) for n in range(4))
    assert not spoken(logged + CAUGHT.format(p="") + "".join(said.format(n=n) for n in range(4)))


def test_what_ends_a_process_begins_where_it_began() -> None:
    """Whatever other threads print after it."""
    assert not spoken(pulses(5) + UNCAUGHT.format(p="") + pulses(9))


def test_a_later_exception_of_its_own_shows_that_it_lived() -> None:
    """Only with a line of its work between both, else one may follow from the other."""
    raised, end = CAUGHT.format(p=""), END.format(p="")
    assert spoken(pulses(2) + raised + pulses(1) + end)
    assert not spoken(pulses(2) + raised + end)


@pytest.mark.parametrize(("other", "lived"), [("[rank3]: ", True), ("[rank5]: ", False)])
def test_in_a_shared_log_only_its_own_lines_count(other: str, *, lived: bool) -> None:
    """That others go on says nothing."""
    text = pulses(2, "[rank3]: ") + pulses(2, "[rank5]: ") + CAUGHT.format(p="[rank3]: ") + pulses(4, other)
    assert spoken(text, rank=None) is lived


@pytest.mark.parametrize("succeeded", [True, False])
def test_a_closing_line_that_others_print_too_is_enough_in_a_run_that_succeeded(*, succeeded: bool) -> None:
    """A process prints such a line once; where nobody says that the run succeeded, it may be that of a failure."""
    closing = [f"[rank{rank}]: the yard of rank {rank} is shut after 130 loads\n" for rank in (3, 5)]
    before = pulses(2, "[rank3]: ") + pulses(2, "[rank5]: ") + CAUGHT.format(p="[rank3]: ")
    assert spoken(before + "".join(closing), rank=None, succeeded=succeeded) is succeeded
    assert not spoken(before + closing[1], rank=None, succeeded=succeeded)
    assert not spoken(before + closing[0], rank=None, succeeded=succeeded)


def test_where_nobody_is_named_all_must_go_on() -> None:
    """A traceback without a prefix may be of any of them."""
    before = pulses(2, "[rank3]: ") + pulses(2, "[rank5]: ") + "\n" * 450 + CAUGHT.format(p="")
    both = pulses(3, "[rank3]: ") + pulses(3, "[rank5]: ")
    assert spoken(before + both, rank=None)
    assert not spoken(before + pulses(9, "[rank3]: "), rank=None)


def test_where_every_rank_raises_later_whoever_raised_before_was_alive() -> None:
    """A traceback without a prefix may be of the rank that does not."""
    raised = pulses(2) + CAUGHT.format(p="") + pulses(1)
    ends = [END.format(p=f"[rank{rank}]: ") for rank in range(3)]
    assert spoken(raised + "".join(ends), rank=None)
    assert not spoken(raised + "".join(ends[1:]), rank=None)


def test_a_job_that_succeeded_needs_one_usual_line() -> None:
    """Its scheduler knows how its processes ended."""
    stream = scanned(pulses(2) + CAUGHT.format(p="") + pulses(1), BOOK, ref("rank-3.log", rank=3))
    for succeeded in (True, False):
        facts = StreamFacts(stream, succeeded=succeeded)
        assert facts.lived_with(facts.exceptions[0].offset) is succeeded


def lived(text: str) -> list[bool]:
    """Of each exception of a rank's log whether its program lived with it."""
    facts = StreamFacts(scanned(text, BOOK, ref("rank-3.log", rank=3)))
    return [facts.lived_with(item.offset) for item in facts.exceptions]


def test_what_was_caught_twice_at_one_place_is_caught_again_where_something_else_ended_the_program() -> None:
    """Nothing else did: then it may have been once too often."""
    raised, end, other = CAUGHT.format(p=""), END.format(p=""), CAUGHT.format(p="").replace("in weigh", "in unload")
    before = pulses(2) + raised + pulses(3) + raised + pulses(3)
    assert lived(before + raised + end) == [True, True, True, False]
    assert lived(before + raised) == [True, True, False]
    assert lived(before + other + end) == [True, True, False, False]


def test_what_is_caught_twice_at_one_place_was_caught_before() -> None:
    """The first one came before the process had printed anything."""
    raised = CAUGHT.format(p="")
    after = raised + pulses(3)
    assert lived(raised + "\n" * 2 + pulses(3) + after + after) == [True, True, True]
    assert lived(raised + "\n" * 2 + pulses(3) + after) == [False, True]


def test_a_cause_of_what_ended_the_process_was_not_caught() -> None:
    """Its handler raised another exception from it, which nobody caught, whatever is printed between that one and the launcher's."""
    link = "\nThe above exception was the direct cause of the following exception:\n\n"
    launcher = UNCAUGHT.format(p="").replace("KeyError: 'sack'", "ChildFailedError: it failed")
    text = pulses(2) + CAUGHT.format(p="") + link + END.format(p="") + pulses(1) + launcher
    assert not spoken(text)
    assert spoken(text.replace(link, pulses(1)))


def test_what_was_caught_twice_at_one_place_is_caught_again_at_the_end_of_a_log_without_trouble() -> None:
    """New lines show that its handler returned; two are too few."""
    raised, over = CAUGHT.format(p=""), "the last sack is on the cart\n"
    before = pulses(2) + raised + pulses(3) + raised + pulses(3)
    assert lived(before + raised + over * 3) == [True, True, True]
    assert lived(before + raised + over * 2) == [True, True, False]
    assert lived(before + raised + "ERROR the cart is stuck, giving up\n" + over * 3) == [True, True, False]
    assert lived(before + raised + over * 3 + "ERROR the cart is stuck\n") == [True, True, False]


def test_a_main_function_may_catch_an_exception_too() -> None:
    """Its rank then prints more lines, of several forms, that others print."""
    raised = CAUGHT.format(p="[rank3]: ").replace("in weigh", "in main")
    both = [pulses(8, f"[rank{rank}]: ") + f"[rank{rank}]: the yard is closed now\n" for rank in (3, 5)]
    assert spoken(raised + both[0] + both[1], rank=None)
    assert not spoken(raised + both[1] + pulses(8, "[rank3]: "), rank=None)
    assert not spoken(raised + both[0], rank=None)
    assert not spoken(raised.replace("in main", "in <module>") + both[0] + both[1], rank=None)


def test_a_process_that_prints_kinds_of_lines_again_and_again_below_lives() -> None:
    """Though it printed none of them before, or rows of a table only; a few closing lines alike are not enough."""
    raised = "Traceback (most recent call last):\n  File \"/srv/yard.py\", line 9, in weigh\n    scale[n]\nKeyError: 'sack'\n"
    below = "".join(f"the mill turns, sack {n} is full\nthe belt runs at {n}.5 m/s\n" for n in range(4))
    rows = "".join(f"| {n:4} |  2.{n}12 | 0.{n}9 |\n" for n in range(4))
    closing = "".join(f"gate {n} is shut now\n" for n in range(4))
    assert spoken(raised + below, rank=3)
    assert spoken(rows + raised + rows.replace("2.", "1."), rank=3)
    assert not spoken(raised + closing, rank=3)
