"""What a line says of its level, and of a failure that the program overcame."""

from __future__ import annotations

import pytest

from kb.regex.pattern import compiled
from kb.rulebase.levels import ERROR, LOWER, RECOVERED, excluded, recoveries_beside


@pytest.mark.parametrize(
    "line",
    [
        "2026-03-11 10:31:12,104 INFO broker: lease lost",
        "[info] lease lost",
        "[2026-03-11 10:31:12] [warning] lease lost",
        "warning: lease lost",
        "slurmstepd: debug: lease lost",
        "2026-03-11 | Info | lease lost",
        "ts=1 lvl=info msg=lost",
        'level=trace msg="lease lost"',
        '{"level":"trace","msg":"lease lost"}',
        '{"level": 30, "msg": "lease lost"}',
        '{"levelname": "WARNING", "message": "lease lost"}',
        "<6>lease lost",
        "[W311 10:31:12.104 worker.cpp:93] lease lost",
        "[rank7]: W0311 10:31:12 lease lost",
        "I0311 10:31:12.104000 811 worker.cc:93] lease lost",
        "2026-03-11 10:31:12 UTC - pkg.broker - DEBUG - lease lost",
        "2026-03-11T10:31:12.104Z WARN lease lost",
        "host-1:88:91 [0] NCCL INFO lease lost",
        "10:31:12 info: lease lost",
    ],
)
def test_levels_below_error(line: str) -> None:
    """As logging frameworks, shells, syslog and glog write them."""
    assert compiled(LOWER).find(line) is not None
    assert compiled(ERROR).find(line) is None


@pytest.mark.parametrize(
    "line",
    [
        "2026-03-11 10:31:12,104 ERROR broker: lease of the INFO channel lost",
        '{"channel":"info","level":"error","msg":"lease lost"}',
        "slurmstepd: error: lease lost",
        "[ERROR] lease lost",
        '{"level": 50, "msg": "lease lost"}',
        "E0311 10:31:12.104000 811 worker.cc:93] lease lost",
        "<3>lease lost",
        "FATAL: for more info: lease lost",
    ],
)
def test_levels_of_failures(line: str) -> None:
    """A word of the message is no level, nor is another field of a record."""
    assert compiled(ERROR).find(line) is not None
    assert compiled(LOWER).find(line) is None


@pytest.mark.parametrize(
    "line",
    [
        "lease lost; will retry (1 of 3)",
        "recovered from: lease lost",
        "lease lost, skipping",
        "lease lost, falling back",
    ],
)
def test_what_a_program_did_about_it(line: str) -> None:
    """It went on."""
    assert compiled(RECOVERED).find(line) is not None


def test_a_failure_is_no_recovery() -> None:
    """Words of the failure itself do not count."""
    assert compiled(RECOVERED).find("lease lost after all attempts, giving up") is None


def test_what_a_line_must_not_match() -> None:
    """The rule's own regex, and what level and recovered ask for."""
    assert excluded(None, None, None) is None
    assert excluded(None, None, "a|b") == "a|b"
    assert excluded("error", None, None) is None
    both = excluded("error_if_stated", False, "dry run|test")
    assert both is not None
    assert all(compiled(both).find(text) for text in ("[info] x", "x, skipping", "dry run", "test"))
    assert compiled(both).find("lease lost") is None


def test_a_line_that_fails_in_words_of_a_recovery_has_the_others_excluded():
    """Its own would exclude itself."""
    beside = compiled(recoveries_beside(["depot sent a page instead of a part"]))
    assert beside.find("depot sent a page instead of a part") is None
    assert beside.find("depot sent a page instead of a part; will retry") is not None
