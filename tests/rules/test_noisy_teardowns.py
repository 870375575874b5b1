"""Alarming lines of fabrics, file systems and compilers around a run that goes on or has ended: no failure."""

from __future__ import annotations

import pytest

from bot.authoring.selftest import evidence_of
from bot.rulebase.loader import knowledge
from kb.diagnosis.engine import diagnose
from kb.scanning.matcher import Matcher

KNOWN = knowledge()
STEPS = "".join(f"step {n}/100 | loss {3 - n / 60:.3f} | 412 ms/step\n" for n in range(1, 30))
LATER = "".join(f"step {n}/100 | loss {3 - n / 60:.3f} | 412 ms/step\n" for n in range(30, 40))
END = "Training completed\n"
NOISE = {
    "efa-ofi": """\
node-1:812:901 [2] NCCL WARN NET/OFI Error deregistering memory region: 16 (Device or resource busy)
node-1:812:901 [2] NCCL WARN NET/OFI Unable to de-register memory region. RC: -16 (Device or resource busy)
""",
    "efa-libfabric": """\
libfabric:812:1706000000::efa:mr:efa_mr_dereg_impl():512<warn> Unable to deregister memory registration
libfabric:812:1706000000::efa:ep_ctrl:efa_rdm_ep_close():901<warn> Unable to close base endpoint
""",
    "daos": """\
06/03-10:02:12.31 node12 DAOS[812/812/4] object WARN src/object/cli_shard.c:889 dc_rw_cb() DER_TIMEDOUT(-1011): 'Time out', retrying
06/03-10:02:14.31 node12 DAOS[812/812/4] object ERR  src/object/cli_obj.c:4602 obj_comp_cb() retry: DER_STALE(-1029)
""",
    "neuron": """\
2025-06-03 10:02:12.000123:  8123  INFO ||NEURON_CACHE||: Another process must be compiling /var/tmp/m, been waiting for: 1.2 minutes
2025-06-03 10:04:12.000123:  8123  ERROR ||NEURON_CC_WRAPPER||: Compilation failed for /tmp/m.hlo_module.pb after 2 retries.
2025-06-03 10:04:13.000123:  8123  INFO ||NEURON_CC_WRAPPER||: Retrying compilation
Compiler status PASS
""",
}


@pytest.fixture(scope="module")
def engine() -> Matcher:
    """The whole base's patterns, compiled once."""
    return KNOWN.matcher()


def verdict(engine: Matcher, text: str) -> str:
    """The verdict on one log."""
    return diagnose(evidence_of(KNOWN, engine, {"train.log": text.encode()}), KNOWN.rulebook).verdict


@pytest.mark.parametrize("noise", NOISE)
def test_noise_is_no_failure(engine: Matcher, noise: str) -> None:
    """Between steps, after the end, and before the first step."""
    lines = NOISE[noise]
    assert verdict(engine, STEPS + lines + LATER) == "insufficient_evidence"
    assert verdict(engine, STEPS + END + lines) == "no_fault"
    assert verdict(engine, lines + STEPS + END) == "no_fault"


def test_a_compilation_that_fails_is_one(engine: Matcher) -> None:
    """Without a later success or steps, the same line of the compiler is a failure."""
    assert verdict(engine, NOISE["neuron"].partition("2025-06-03 10:04:13")[0]) in ("fault", "no_match")
