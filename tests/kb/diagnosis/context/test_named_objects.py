"""What the lines of a fault name and its sentence does not is added to it, where there is one candidate."""

from __future__ import annotations

import pytest

from bot.authoring import selftest
from bot.rulebase.loader import Knowledge, knowledge
from kb.diagnosis.engine import diagnose
from kb.scanning.matcher import Matcher

SITE = "/opt/env/lib/python3.11/site-packages"
BROKEN = (
    "requests.exceptions.ChunkedEncodingError: ('Connection broken: IncompleteRead(12 bytes read, 90 more expected)')\n"
)


def _raised(*frames: str) -> str:
    """A traceback of frames `file:line:function`, outermost first."""
    parts = (frame.rsplit(":", 2) for frame in frames)
    shown = "".join(f'  File "{file}", line {line}, in {function}\n    call()\n' for file, line, function in parts)
    return f"Traceback (most recent call last):\n{shown}"


@pytest.fixture(scope="module")
def base() -> tuple[Knowledge, Matcher]:
    """The shipped rules."""
    known = knowledge()
    return known, known.matcher()


def summary(base: tuple[Knowledge, Matcher], **logs: str) -> str:
    """What the first diagnosis of logs says, given by the stems of their names."""
    known, matcher = base
    texts = {f"{name.replace('_', '-')}.log": text.encode() for name, text in logs.items()}
    return diagnose(selftest.evidence_of(known, matcher, texts), known.rulebook).diagnoses[0].summary


def test_a_failed_download_names_the_code_and_the_package_that_it_calls(base: tuple[Knowledge, Matcher]) -> None:
    """Not the library through which every service is called."""
    outer = ("/srv/fit/fetch.py:12:main", "/srv/fit/genes.py:40:annotate")
    asked = summary(
        base, train=_raised(*outer, f"{SITE}/genome/client.py:9:ask", f"{SITE}/requests/models.py:818:read") + BROKEN
    )
    plain = summary(base, train=_raised(*outer, f"{SITE}/requests/models.py:818:read") + BROKEN)

    deep = (f"{SITE}/genome/{part}.py:9:{part}" for part in ("client", "pages", "cache", "wire"))
    far = summary(base, train=_raised(*outer, *deep) + BROKEN)

    assert asked.endswith("The code was at srv/fit/genes.py:40 in annotate, calling genome.")
    assert far.endswith("The code was at site-packages/genome/wire.py:9 in wire.")
    assert plain.endswith("The code was at srv/fit/genes.py:40 in annotate.")


def test_ranks_that_fail_in_different_places_name_none(base: tuple[Knowledge, Matcher]) -> None:
    """One place of several would be a guess; what only libraries raised has no place of the run's own."""
    error = "RuntimeError: mat1 and mat2 must have the same dtype, but got Float and Double\n"
    one = _raised("/srv/fit/train.py:90:main", f"{SITE}/torch/nn/linear.py:125:forward") + error
    other = one.replace("train.py", "value.py")

    assert "train.py:90 in main" in summary(base, rank_0=one, rank_1=one)
    assert ".py" not in summary(base, rank_0=one, rank_1=other)
    assert ".py" not in summary(base, train=_raised(f"{SITE}/torch/nn/linear.py:125:forward") + error)


def test_the_adapter_of_a_line_beside_is_named(base: tuple[Knowledge, Matcher]) -> None:
    """One of two would be a guess."""
    error = "NET/IB: Got completion from peer with status=IBV_WC_REM_ACCESS_ERR(10)\n"
    beside = "NET/IB: {}:1 async fatal event on QP: local access violation work queue error\n"

    assert summary(base, nccl=error + beside.format("ibp7s0f1")).endswith("names the adapter ibp7s0f1:1.")
    assert "adapter" not in summary(base, nccl=error + beside.format("mlx5_0") + beside.format("mlx5_3"))


def test_a_device_that_fails_is_not_looked_for_in_the_code(base: tuple[Knowledge, Matcher]) -> None:
    """The frame only shows who noticed."""
    error = "RuntimeError: CUDA error: uncorrectable ECC error encountered\n"

    assert "train.py" not in summary(base, train=_raised("/srv/fit/train.py:90:main") + error)
