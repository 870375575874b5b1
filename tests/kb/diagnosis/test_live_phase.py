"""The phase of a run while it is watched."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kb.diagnosis.live_phase import RUNNING, WAITS, is_state, while_running
from kb.facts.evidence import Evidence
from kb.facts.job_facts import Facts
from kb.model import Job, Phase
from kb.report import Hang, Vote
from kb.rulebase.rule import Pattern, Rule, StructureTest
from tests.support.kb_samples import rule

LOOKED_AT = Hang(votes=(Vote("silence", "no", "the last line is 3 s old", None),))


def facts(state: str | None, hang: Hang = LOOKED_AT) -> Facts:
    """A job in a state, with the votes of the probes."""
    return Facts(Evidence(Job(state=state), hang=hang))


@pytest.mark.parametrize(("hang", "expected"), [(LOOKED_AT, "degraded"), (replace(LOOKED_AT, suspected=True), "hung")])
@pytest.mark.parametrize("phase", ["failed", "stopped"])
def test_a_job_whose_processes_run_has_not_failed(phase: Phase, hang: Hang, expected: Phase) -> None:
    """Trouble degrades it, or stalls it where a probe agrees; once it has ended, the phase is what it is."""
    assert while_running(phase, facts(RUNNING, hang), None) == expected
    assert while_running(phase, facts(None, hang), None) == phase
    assert while_running(phase, facts(RUNNING, Hang()), None) == phase


def test_a_job_of_which_nothing_else_is_known_runs() -> None:
    """Its processes were seen."""
    assert while_running("unknown", facts(RUNNING), None) == "running"
    assert while_running("unknown", facts(None), None) == "unknown"
    assert while_running("completed", facts(RUNNING), None) == "completed"


def looks_at(*kinds: str, **more: str) -> Rule:
    """A rule with patterns for structures of these kinds, and others by their field."""
    patterns = [Pattern(kind, structure=StructureTest(kind)) for kind in kinds]
    patterns += [Pattern(name, **{name: value}) for name, value in more.items()]  # type: ignore[arg-type]
    return rule("looks", "code_bug", *patterns)


def test_a_slow_save_and_a_slow_rank_are_states_and_an_exception_is_none() -> None:
    """A state does not end a run, whether its processes were seen or not."""
    assert is_state(looks_at("slow_phase"))
    assert is_state(looks_at("peer_outlier", "stack_outlier"))
    assert not is_state(looks_at("peer_outlier", "stack_outlier"), WAITS)
    assert is_state(looks_at("stack_outlier"), WAITS)
    assert not is_state(looks_at("platform_event"))
    assert not is_state(looks_at("slow_phase", literal="Killed"))
    assert while_running("failed", facts(None), looks_at("slow_phase")) == "degraded"
    assert while_running("failed", facts(None), looks_at("exception")) == "failed"
