"""The class of each result of NCCL: a general error is one of the start only where the stage or its words prove it."""

from __future__ import annotations

import pytest

from bot.authoring.selftest import evidence_of
from bot.rulebase.loader import knowledge
from kb.diagnosis.engine import diagnose
from kb.scanning.matcher import Matcher

KNOWN = knowledge()
ERROR = "torch.distributed.DistBackendError: NCCL error in: /pytorch/c10d/NCCLUtils.cpp:94, {}, NCCL version 2.30.7\n"
SYSTEM = "unhandled system error (run with NCCL_DEBUG=INFO for details)"
INTERNAL = "internal error - please report this issue to the NCCL developers"
STEPS = "".join(
    f"2025-04-02 11:{at:02d}:00,101 - INFO - step {at * 10} | loss: {3 - at / 50:.4f}\n" for at in range(20)
)
WRAPPING = (
    "Traceback (most recent call last):\n"
    '  File "/opt/e/torch/nn/parallel/distributed.py", line 838, in __init__\n'
    "    _verify_param_shape_across_processes(self.process_group, parameters)\n"
    '  File "/opt/e/torch/distributed/utils.py", line 294, in _verify_param_shape_across_processes\n'
    "    return dist._verify_params_across_processes(process_group, tensors, logger)\n"
)
REDUCING = (
    "Traceback (most recent call last):\n"
    '  File "/opt/e/torch/distributed/distributed_c10d.py", line 2810, in all_reduce\n'
    "    work = group.allreduce([tensor], opts)\n"
)


@pytest.fixture(scope="module")
def engine() -> Matcher:
    """The whole base's patterns, compiled once."""
    return KNOWN.matcher()


def answer(engine: Matcher, text: str) -> tuple[str, str]:
    """Verdict and first class of one rank's log."""
    report = diagnose(evidence_of(KNOWN, engine, {"rank-0.log": text.encode()}), KNOWN.rulebook)
    return report.verdict, report.diagnoses[0].fault if report.diagnoses else ""


@pytest.mark.parametrize("result", [SYSTEM, INTERNAL, "invalid usage (run with NCCL_DEBUG=WARN for details)"])
def test_a_general_error_below_the_wrapping_of_a_model_is_one_of_the_start(engine: Matcher, result: str) -> None:
    """The frames prove that the communicator was new."""
    assert answer(engine, WRAPPING + ERROR.format(result)) == ("fault", "nccl_bootstrap")


@pytest.mark.parametrize("result", [SYSTEM, INTERNAL])
def test_a_general_error_in_the_stage_init_is_one_of_the_start(engine: Matcher, result: str) -> None:
    """A line of that stage came before, and no step."""
    text = "2025-04-02 11:00:00 initializing torch distributed\n" + REDUCING + ERROR.format(result)
    assert answer(engine, text) == ("fault", "nccl_bootstrap")


@pytest.mark.parametrize("result", [SYSTEM, INTERNAL])
def test_a_general_error_after_steps_is_none_of_the_start(engine: Matcher, result: str) -> None:
    """The ranks had been connected."""
    assert answer(engine, STEPS + REDUCING + ERROR.format(result)) == ("fault", "peer_failure")


@pytest.mark.parametrize(
    "result",
    [
        SYSTEM,
        INTERNAL,
        "invalid argument (run with NCCL_DEBUG=WARN for details)",
        "invalid usage (run with NCCL_DEBUG=WARN for details)",
        "unknown result code",
    ],
)
def test_a_general_error_at_an_unknown_stage_names_no_cause(engine: Matcher, result: str) -> None:
    """A collective and a text without a reason prove nothing about the start."""
    assert answer(engine, REDUCING + ERROR.format(result)) == ("no_match", "unknown")


@pytest.mark.parametrize(
    ("result", "fault"),
    [
        ("remote process exited or there was a network error", "peer_failure"),
        ("timeout", "collective_timeout"),
        ("NCCL operation in progress", "config_error"),
        ("unhandled cuda error (run with NCCL_DEBUG=INFO for details)", "gpu_library"),
    ],
)
def test_the_other_results_have_classes_of_their_own(engine: Matcher, result: str, fault: str) -> None:
    """At any stage."""
    assert answer(engine, REDUCING + ERROR.format(result)) == ("fault", fault)
