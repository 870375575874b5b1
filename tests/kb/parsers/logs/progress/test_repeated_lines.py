"""Steps by the structure of lines that no format knows (kb.parsers.logs.progress.repeated_lines)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kb.parsers.logs.progress.repeated_lines import counted, last_counted, states_value


def lines(form: Callable[[int], str], steps: tuple[int, ...] = (10, 20, 30)) -> list[str]:
    """Return a line of a form for each step."""
    return [form(step) for step in steps]


@pytest.mark.parametrize(
    "form",
    [
        lambda n: f"12:00:{n} lap {n} residue {9 - n / 7:.3f}",
        lambda n: f"[node1][4711] krok {n}/400: strata {9 - n / 7:.3f}, tempo 1.2e-03",
        lambda n: f"2: [12:00:{n}][R02] residue={9 - n / 7:.3f} lap={n}",
        lambda n: f"{1_795_981_356 + n}.25\tr0\tSTP\t{n}\t{9 - n / 7:.4f}\t{3 * n}ms",
        lambda n: f"<info> round {n} relayed, {9 - n / 7:.1f} rounds/s",
    ],
)
def test_an_even_count_beside_a_value_is_the_step(form: Callable[[int], str]) -> None:
    """Whatever the words, their order, and what stands before them."""
    assert counted(lines(form)) == [10, 20, 30]


@pytest.mark.parametrize(
    "form",
    [
        lambda n: f"lap {n // 10} residue {9 - n / 7:.3f}",  # one more each time: a shard, a file, an attempt
        lambda n: f"lap {n}",  # no value
        lambda n: f"lap {n} took {9 - n / 7:.3f} s",  # nothing but a duration
        lambda n: f"lap {n} residue 0.500",  # the value is a setting
        lambda n: f"{n} GiB in use, residue {9 - n / 7:.3f}",
        lambda n: f"worker[{n}] residue {9 - n / 7:.3f}",  # a process id
        lambda n: f"{n}: residue {9 - n / 7:.3f}",  # a launcher's number of the rank
        lambda n: f"retry {n}: residue {9 - n / 7:.3f}",
        lambda n: f"valid | lap {n} | residue {9 - n / 7:.3f}",  # what follows the step, not the step
    ],
)
def test_what_counts_something_else_is_no_step(form: Callable[[int], str]) -> None:
    """A count that rises by one, one with a unit, and numbers of processes and retries."""
    assert counted(lines(form)) is None


def test_few_counts_need_a_total_or_several_lines() -> None:
    """Two different counts alone may be chance; so are counts that do not rise evenly, or fall."""
    assert counted(lines(lambda n: f"lap {n} residue {n / 7:.3f}", (10, 20))) is None
    assert counted(lines(lambda n: f"lap {n} residue {n / 7:.3f}", (10, 10, 10, 20, 20, 20)))
    assert counted(lines(lambda n: f"lap {n} of 50, residue {n / 7:.3f}", (10, 10, 20)))
    assert counted(lines(lambda n: f"lap {n} residue {n / 7:.3f}", (2, 4, 8, 16))) is None
    assert counted(lines(lambda n: f"lap {n} residue {n / 7:.3f}", (30, 20, 10))) is None
    assert counted(lines(lambda n: f"lap {n} residue {n / 7:.3f}", (13, 26, 40))) is None


def test_the_last_line_of_the_form_with_most_lines_counts() -> None:
    """Lines in between do not matter, nor how wide a number is printed; lines of no form give nothing."""
    told = [*lines(lambda n: f"lap {n:>5} residue {9 - n / 70:.3f}", (80, 90, 100, 110)), "saved", "score 0.25"]
    assert last_counted(enumerate(told)) == (3, 110)
    assert last_counted(enumerate(["saved", "score 0.25"])) is None


def test_a_value_has_no_unit_and_is_no_time() -> None:
    """Times and durations are in every log."""
    assert states_value("residue 0.25")
    assert not any(map(states_value, ("took 1.5 s", "12:00:01.250 ready", "1795981356.25 ready", "10.0.0.1 ready")))


def test_counts_of_which_those_in_between_were_not_kept_still_count() -> None:
    """The first few and the last few lines of several ranks: 10 and 50 of 10, 20, 30 and so on."""
    kept = [f"<{rank}> furlong {step}: loss 0.{step}{rank}" for step in (10, 50) for rank in range(4)]
    assert counted(kept) == [10] * 4 + [50] * 4
    assert counted([line.replace("furlong 10", "furlong 3") for line in kept]) is None
