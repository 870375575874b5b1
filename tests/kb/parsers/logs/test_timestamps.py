"""Time stamps of the loggers, collectors and kernels that write training logs."""

from calendar import timegm

import pytest

from kb.parsers.logs.timestamps import find_time, states_zone


def at(*parts: int, fraction: float = 0.0) -> float:
    """Return a UTC time as seconds since the epoch."""
    return timegm((*parts, 0, 0, 0)) + fraction


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"2027-02-09T17:40:08Z stdout F hello", at(2027, 2, 9, 17, 40, 8)),
        (b"2027-02-09T17:40:08.250000000Z hello", at(2027, 2, 9, 17, 40, 8, fraction=0.25)),
        (b"2027-02-09T17:40:08+0100 node-b kernel: x", at(2027, 2, 9, 16, 40, 8)),
        (b"2027-02-09 17:40:08.5-05:30 x", at(2027, 2, 9, 23, 10, 8, fraction=0.5)),
        (b"2027-02-09 17:40:08 +0200 x", at(2027, 2, 9, 15, 40, 8)),
        (b"[2027-02-09 17:40:08,125] [INFO] x", at(2027, 2, 9, 17, 40, 8, fraction=0.125)),
        (b"2027-02-09\t17:40:08.5\trank 4\tINFO", at(2027, 2, 9, 17, 40, 8, fraction=0.5)),
        (b"09.02.2027 17:40:08,125 [worker-3] INFO x", at(2027, 2, 9, 17, 40, 8, fraction=0.125)),
        (b"2027/02/09 17:40:08 x", at(2027, 2, 9, 17, 40, 8)),
        (b"  time      : 2027-02-09_17:40:08", at(2027, 2, 9, 17, 40, 8)),
        (b"20270209-17:40:08 x", at(2027, 2, 9, 17, 40, 8)),
        (b"I20270209 17:40:08 3444 dinov2 main.py:60] x", at(2027, 2, 9, 17, 40, 8)),
        (b"02/09/2027 17:40:08 - INFO - x", at(2027, 2, 9, 17, 40, 8)),
        (b"02/09/2027 05:40:08 PM x", at(2027, 2, 9, 17, 40, 8)),
        (b"09/Feb/2027:17:40:08 rank 3 info x", at(2027, 2, 9, 17, 40, 8)),
        (b"[09-Feb-2027 17:40:08 +0100] x", at(2027, 2, 9, 16, 40, 8)),
        (b"27-02-09 17:40:08.125 - INFO: x", at(2027, 2, 9, 17, 40, 8, fraction=0.125)),
        (b"[Tue Feb  9 17:40:08 2027] NVRM: x", at(2027, 2, 9, 17, 40, 8)),
        (b"Tue Feb  9 17:40:08 UTC 2027", at(2027, 2, 9, 17, 40, 8)),
        (b"1802194808.250 3 I step", at(2027, 2, 9, 17, 40, 8, fraction=0.25)),
        (b"[1802194808] INFO step", at(2027, 2, 9, 17, 40, 8)),
        (b'{"rank": 3, "ts": 1802194808.5, "msg": "x"}', at(2027, 2, 9, 17, 40, 8, fraction=0.5)),
        (b"level=info ts=1802194808 msg=x", at(2027, 2, 9, 17, 40, 8)),
        (b"INFO|trainer.py:1203] 2027-02-09 17:40:08,500 >> x", at(2027, 2, 9, 17, 40, 8, fraction=0.5)),
    ],
)
def test_a_stamp_with_a_year_needs_nothing_else(line: bytes, expected: float) -> None:
    """Stamps that name their year are read with no help, zones counted."""
    assert find_time(line) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"[rank4]:[E0209 17:40:08.125000000 ProcessGroupNCCL.cpp:684] x", at(2027, 2, 9, 17, 40, 8, fraction=0.125)),
        (b"E0209 17:40:08.125000 2098 torch/distributed/api.py:874] x", at(2027, 2, 9, 17, 40, 8, fraction=0.125)),
        (b"E209 17:40:08 x", at(2027, 2, 9, 17, 40, 8)),
        (b"ERROR 02-09 17:40:08 worker.py:9] x", at(2027, 2, 9, 17, 40, 8)),
        (b"[02/09 17:40:08 d2.utils.events]: x", at(2027, 2, 9, 17, 40, 8)),
        (b"Feb  9 17:40:08 node-b kernel: x", at(2027, 2, 9, 17, 40, 8)),
    ],
)
def test_a_stamp_without_a_year_takes_the_callers(line: bytes, expected: float) -> None:
    """Stamps without a year give a time with the caller's year and none without it."""
    assert find_time(line, 2027) == pytest.approx(expected, abs=1e-5)
    assert find_time(line) is None


@pytest.mark.parametrize(
    "line",
    [
        b"[17:40:08] step 3",
        b"17:40:08 step 3",
        b"2027-13-41 17:40:08 x",
        b"2027-02-09 27:40:08 x",
        b"eta: 1 day, 17:40:08 loss: 2.1",
        b"nothing here",
        b"seen 1802194808 tokens so far",
        b"id=1802194808 0.5",
        b"",
        b"\xff\xfe:11:11",
        b" " * 130 + b"2027-02-09 17:40:08",
    ],
)
def test_what_is_no_stamp_gives_none(line: bytes) -> None:
    """Bare hours, days that do not exist, garbage and timestamps far into the line are ignored."""
    assert find_time(line, 2027) is None


def test_a_leap_day_needs_a_leap_year() -> None:
    """A day that the caller's year lacks gives no time rather than an error."""
    assert find_time(b"E0229 17:40:08.1 x.cpp:1] y", 2027) is None
    assert find_time(b"E0229 17:40:08.1 x.cpp:1] y", 2028) is not None


def test_the_first_stamp_wins() -> None:
    """Of two stamps in a line the first is the line's time."""
    assert find_time(b"2027-02-09T17:40:08Z x 2027-02-09T18:40:08Z") == at(2027, 2, 9, 17, 40, 8)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"2027-02-09T17:40:08Z stdout F 2027-02-09 17:40:08 step 4", True),
        (b"2027-02-09 17:40:08 +0200 x", True),
        (b"[2027-02-09 17:40:08,125] [INFO] x", False),
        (b"W0209 17:40:08.174000 6228 api.py:1028] x", False),
        (b"step 4 of 10", None),
    ],
)
def test_a_stamp_states_its_zone_or_not(line: bytes, expected: bool | None) -> None:
    """A collector's stamp with a zone before the program's own counts."""
    assert states_zone(line) is expected
