"""How sure it is that a run completed."""

from __future__ import annotations

from dataclasses import replace

from bot.render.completion import certainty
from bot.render.report_json import to_json
from bot.render.terminal import plain
from kb.report import EvidenceItem, Indicator, Indicators
from tests.support.bot_samples import FALLEN_GPU, HEALTHY

ENDS = Indicators(
    tuple(
        Indicator("done", "the run reports its end", EvidenceItem("e", "line", f"{name}.log", "done")) for name in "ab"
    )
)


def test_a_completed_run_says_how_sure_that_is_and_from_what():
    """The scheduler's state, the logs that show the end, the last step, and what speaks against it."""
    run = replace(HEALTHY, verdict="no_fault", phase="completed", indicators=ENDS)
    job = replace(run.job, state="COMPLETED")
    steps = replace(run.progress, last_iteration=100, total_iterations=100)
    whole = replace(run, job=job, progress=steps, summary="The run completed; errors were reported before its end.")
    assert certainty(whole) == (
        "likely. The scheduler reports COMPLETED; 2 logs show the end; the last of its 100 steps is logged. "
        "But errors were reported before its end"
    )
    assert "Confidence likely. " in plain(whole)
    bare = replace(
        run, indicators=Indicators(), job=replace(job, state=None), progress=replace(steps, last_iteration=7)
    )
    assert certainty(bare) == "possible"
    assert certainty(FALLEN_GPU) == ""
    assert to_json(bare)["completion"] == {"level": "possible", "reason": ""}
    assert to_json(whole)["completion"]["reason"].startswith("The scheduler reports COMPLETED; 2 logs show the end")
    assert to_json(FALLEN_GPU)["completion"] is None
    assert certainty(replace(run, phase="running")) == ""
