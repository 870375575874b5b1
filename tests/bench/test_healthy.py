"""The healthy logs that the bench makes, and how it counts alarms on them."""

from __future__ import annotations

import random

import pytest

from bench.healthy import Outcome, by_kind, make, render, write
from bench.healthy_text import FRAMES, NOISES, fill


def _outcome(name, kinds, *, alarm):
    verdict = "fault" if alarm else "no_fault"
    return Outcome(name, kinds, verdict, ("cuda_oom",) * alarm, ("r",) * alarm, ("a line",) * alarm, alarm)


@pytest.fixture(scope="module")
def made():
    """The logs of two rounds over all frames."""
    return [make(1, number) for number in range(2 * len(FRAMES))]


def test_a_template_is_filled_with_values_and_chance():
    """Values take Python's formats, drawn numbers lie within their bounds, and each line comes by itself."""
    lines = fill("a @{step:4d}\nb @{int:3-5} @{real:0-1}", {"step": 7}, random.Random(1))

    number, share = lines[1].split()[1:]
    assert lines[0] == "a    7"
    assert 3 <= int(number) <= 5
    assert 0 <= float(share) <= 1


def test_a_template_that_names_an_unknown_value_is_refused():
    """An unknown placeholder in a template raises an error instead of being printed."""
    with pytest.raises(KeyError):
        fill("@{nothing}", {}, random.Random(1))


def test_the_same_seed_and_number_give_the_same_log():
    """Logs are made by seed and number alone, and another seed gives another log."""
    assert make(4, 11) == make(4, 11)
    assert make(4, 11).files != make(5, 11).files


def test_the_made_logs_are_varied(made):
    """A few rounds over all frames have each ending, several prefixes, logs of several files and most noises."""
    kinds = {kind for item in made for kind in item.kinds}

    assert {f"frame {frame.name}" for frame in FRAMES} <= kinds
    assert {f"ending {name}" for name in ("completed", "running", "cut", "early_stop", "max_time")} <= kinds
    assert sum(kind.startswith("prefix ") for kind in kinds) >= 6
    assert sum(kind.startswith("noise ") for kind in kinds) > 0.8 * len(NOISES)
    assert any(len(item.files) > 1 for item in made)


def test_no_template_is_left_unfilled(made):
    """What is made has no trace of the templates."""
    assert not [item.name for item in made for text in item.files.values() if "@{" in text]


def test_a_cut_log_ends_within_a_line(made):
    """A log that is cut has no newline at its end, any other has."""
    for item in made:
        cut = "ending cut" in item.kinds
        assert any(not text.endswith("\n") for text in item.files.values()) == cut


def test_noises_have_names_of_their_own_and_known_places():
    """Counting by kind needs one name a noise; a place that is not known would never be printed."""
    assert len({noise.name for noise in NOISES}) == len(NOISES)
    assert {noise.where for noise in NOISES} == {"start", "middle", "any", "end"}


@pytest.mark.slow  # test_the_same_seed_and_number_give_the_same_log
def test_logs_are_written_as_a_file_or_a_folder(made, tmp_path):
    """A log of one file is a file, one of several a folder of them."""
    single = next(item for item in made if list(item.files) == ["train.log"])
    several = next(item for item in made if len(item.files) > 1)

    assert write(single, tmp_path).read_text("utf-8") == single.files["train.log"].replace("\r", "\n")
    assert {path.name for path in write(several, tmp_path).iterdir()} == set(several.files)


def test_alarms_are_counted_by_kind():
    """Each kind is listed with its alarms and logs, the highest share first; kinds without an alarm are left out."""
    said = [
        _outcome("a", ("frame x", "noise n"), alarm=True),
        _outcome("b", ("frame x",), alarm=False),
        _outcome("c", ("frame y",), alarm=False),
    ]

    assert by_kind(said) == [("noise n", 1, 1), ("frame x", 1, 2)]
    assert "1 of 3 got fault or no_match" in render("made", said, verbose=False)
    assert "| a line" in render("made", said, verbose=True)
    assert "by kind" not in render("made", said[1:], verbose=False)
