"""The slow tier sees the harm that it looks for."""

from __future__ import annotations

import json
import math
import os
import random
import resource
import signal
import sys

import pytest

from kb.errors import SignalboxError
from tests.support.paths import ROOT

sys.path.insert(0, str(ROOT / "bench" / "soak"))  # scripts beside each other, no package
import fuzz
import soak
import writers


def _refuse(*_):
    raise SignalboxError("no")


def _fail(*_):
    raise KeyError("x")


def _over_time(*_):
    os.kill(os.getpid(), signal.SIGXCPU)


def _crash(*_):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (lambda *_: None, "read"),
        (_refuse, "refused"),
        (_fail, "traceback"),
        (_over_time, "hang"),
        (_crash, "signal 9"),
    ],
)
def test_what_becomes_of_an_input(tmp_path, monkeypatch, run, expected):
    """An input must be read or refused; a traceback is a failure and is kept."""
    # an input is read in a fork, which begins with the memory of this process: of all tests before
    monkeypatch.setattr(fuzz, "MEMORY", math.inf)
    monkeypatch.setattr(fuzz, "ADDRESS_SPACE", resource.RLIM_INFINITY)
    assert fuzz.outcome(run, 1, tmp_path)[0] == expected
    assert (tmp_path / "traceback.txt").exists() == (expected == "traceback")


def test_damage_depends_on_the_seed_alone_and_keeps_documents_valid():
    """A finding can be repeated, and readers get beyond the syntax."""
    seed = json.dumps({"a": [1, {"b": "c"}], "d": None}).encode()
    made = [fuzz.mutated(seed, random.Random(number)) for number in range(60)]
    assert made == [fuzz.mutated(seed, random.Random(number)) for number in range(60)]
    valid = 0
    for data in made:
        try:
            json.loads(data)
        except (ValueError, RecursionError):
            continue
        valid += data != seed
    assert valid > 15


def test_an_answer_that_was_cut_short_does_not_count_as_printed(tmp_path):
    """Only whole ones must have been kept."""
    (tmp_path / "whole").write_text('{"id": "a"}')
    (tmp_path / "cut").write_text('{"id": "b"')
    assert writers.printed([tmp_path / "whole", tmp_path / "cut", tmp_path / "none"]) == {"a"}


def test_counts_shrink_with_the_minutes():
    """An hour is meant for the figures of the targets."""
    hour, short = soak.commands(60, "/none"), soak.commands(5, "/none")
    assert hour["fuzz"][hour["fuzz"].index("--count") + 1] == "10000"
    assert hour["kills"][-1] == "100"
    assert short["kills"][-1] == "8"
    assert "live" not in hour
