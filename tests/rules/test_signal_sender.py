"""Who sent a signal, where its line says so: the owner of the answer follows from it."""

from __future__ import annotations

import pytest

from bot.authoring.selftest import evidence_of
from bot.rulebase.loader import knowledge
from kb.diagnosis.engine import diagnose
from kb.report import Report
from kb.scanning.matcher import Matcher

KNOWN = knowledge()
PADDLE = (
    "----------------------\nError Message Summary:\n----------------------\n"
    "FatalError: `Termination signal` is detected by the operating system.\n"
    '  [TimeInfo: *** Aborted at 1714648820 (unix time) try "date -d @1714648820" if you are using GNU date ***]\n'
    "  [SignalInfo: *** SIGTERM ({}) received by PID 41022 (TID 0x7fd1119b0700) from PID 43025 ***]\n"
)
GLOG = "I0502 11:20:20.104422 41022 worker.cc:80] step 110\n*** SIGTERM ({}) received by PID 41022 (TID 0x7fd1) from PID 43025; stack trace: ***\n"


@pytest.fixture(scope="module")
def engine() -> Matcher:
    """The whole base's patterns, compiled once."""
    return KNOWN.matcher()


def diagnosed(engine: Matcher, text: str) -> Report:
    """The report on one log."""
    return diagnose(evidence_of(KNOWN, engine, {"train.log": text.encode()}), KNOWN.rulebook)


@pytest.mark.parametrize("form", [PADDLE, GLOG])
@pytest.mark.parametrize(
    ("address", "owner", "user"),
    [("@0x3e80000a811", "user", "user 1000"), ("@0x30d400000a811", "user", "user 200000"), ("@0xa811", "platform", "")],
)
def test_the_user_of_the_sender_decides_who_acts(
    engine: Matcher, form: str, address: str, owner: str, user: str
) -> None:
    """Daemons of a scheduler run as root, whose id is 0; the id stands above that of the process in the address."""
    report = diagnosed(engine, form.format(address))
    assert report.decision.owner == owner
    assert "from process 43025" in report.diagnoses[0].summary
    assert ("user" in report.diagnoses[0].summary) == bool(user)
    assert user in report.diagnoses[0].summary


def test_process_0_is_one_that_the_container_does_not_see(engine: Matcher) -> None:
    """The kernel gives 0 for a sender outside the receiver's process name space."""
    text = "I0502 11:20:20.104422 41022 worker.cc:80] step 110\n*** SIGTERM received by PID 14 (TID 14) on cpu 3 from PID 0; stack trace: ***\n"
    assert "outside its container" in diagnosed(engine, text).diagnoses[0].summary
