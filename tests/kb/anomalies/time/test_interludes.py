"""Evaluations and saves in words that nobody knows (kb.anomalies.time.interludes)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from kb.anomalies.core.run import LineRef, NodeEvent, RunEvent, RunProfile, StepLine
from kb.anomalies.time.interludes import interlude_at, interludes

TASTED, ROLLING, ROLLED = ("tasted", "tartness"), ("rolling", "barrel"), ("barrel", "rolled")


def _lines(rank: int, steps: int) -> list[tuple[str, str]]:
    """What a rank prints: each tenth step it tastes the cider, then rolls a barrel away."""
    lines = []
    for step in range(1, steps + 1):
        lines.append(("pressed <*> pulp <*>", f"pressed {step} pulp 0.{90 - step}"))
        if step % 7 == rank:
            lines.append(("belt <*> greased", f"belt {step} greased"))
        if step % 10 == 0:
            lines.append(("tasted, tartness <*>", f"tasted, tartness 0.{30 + step}"))
            lines.append(("rolling barrel <*>", f"rolling barrel {step // 10}"))
            lines.append(("barrel <*> rolled", f"barrel {step // 10} rolled"))
    return lines


def _run(*logs: Sequence[tuple[str, str]]) -> tuple[RunProfile, tuple[StepLine, ...]]:
    spots: dict[str, dict[str, list[LineRef]]] = defaultdict(lambda: defaultdict(list))
    steps = []
    for rank, lines in enumerate(logs):
        for at, (form, text) in enumerate(lines):
            spot = LineRef(f"{rank}.log", 30 * at, text, node=f"rank {rank}", rank=rank)
            spots[form][f"rank {rank}"].append(spot)
            if text.startswith("pressed"):
                steps.append(StepLine(spot, int(text.split()[1])))
    events = {
        form: RunEvent(form, form, None, {node: NodeEvent(len(own), tuple(own)) for node, own in nodes.items()})
        for form, nodes in spots.items()
    }
    return RunProfile(events), tuple(steps)


def test_a_value_ends_an_evaluation_and_a_save_follows_it() -> None:
    """By its words what is under way after each line; what each rank prints at another step belongs to none."""
    assert interludes(*_run(*(_lines(rank, 45) for rank in range(4)))) == {
        TASTED: "saving",
        ROLLING: "saving",
        ROLLED: "",
    }


def test_what_was_under_way_is_known_by_what_a_good_run_prints_next() -> None:
    """The run died in its first save; at the end of the save steps go on."""
    known = interludes(*_run(*(_lines(rank, 45) for rank in range(4))))
    whole = _lines(0, 10)
    for left, stage in ((whole, None), (whole[:-1], "saving"), (whole[:-2], "saving"), (whole[:-3], None)):
        run, steps = _run(left, left, left, whole)
        assert interlude_at(run, steps, known, None) == stage
        assert interlude_at(run, steps, known, LineRef("0.log", 9000, node="rank 0")) == stage
        assert interlude_at(run, steps, known, LineRef("3.log", 9000, node="rank 3")) is None


def test_a_line_that_begins_something_and_has_no_other_after_it() -> None:
    """Its words tell what; a line that reports an end does not begin it."""

    def told(text: str) -> str:
        lines = [line for line in _lines(9, 45) if not line[0].startswith(("tasted", "barrel"))]
        own = [
            (text if form.startswith("rolling") else form, text if form.startswith("rolling") else line)
            for form, line in lines
        ]
        return interludes(*_run(own, own))[tuple(text.split())]

    assert told("judging the cider") == "evaluating"
    assert told("storing the cider") == "saving"
    assert told("cider was stored") == ""


def test_a_run_that_begins_its_steps_anew_is_no_error() -> None:
    """Places between such lines go back, so that their intervals are nothing."""
    tasted = ("tasted, tartness <*>", "tasted, tartness 0.3")
    plain = [line for line in _lines(9, 25) if line[0].startswith("pressed")]
    lines = [*plain[:20], tasted, *plain[20:], *plain[:10], tasted, *plain[10:20], tasted, *plain[20:]]
    assert interludes(*_run(lines, lines)) == {}
