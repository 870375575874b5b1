"""The starts of a program in one log."""

from __future__ import annotations

import pytest

from kb.facts.log.stream_facts import StreamFacts
from kb.rulebase.rule import Pattern
from tests.support.kb_samples import ref, rule, rulebook, scanned

BOOK = rulebook(rule("oom", "cuda_oom", Pattern("line", literal="CUDA out of memory")))
ERROR = 'Traceback (most recent call last):\n  File "/srv/fit.py", line 9, in <module>\n    fit()\nRuntimeError: CUDA out of memory\n'
LAUNCH = "W0503 23:17:25.004 4719 torch/distributed/run.py:757] Setting OMP_NUM_THREADS environment variable for each process\n"
EXIT = "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 1) local_rank: 0 (pid: 4720) of binary: /usr/bin/python\n"
RESTART = "INFO:torch.distributed.elastic.agent.server.api:[default] Worker group FAILED. 2/3 attempts left; will restart worker group\n"
DOMAIN = "started by the queue at ten o'clock\nfolder of the results: first\nsubject to train on: numbers\n"
OTHER_DOMAIN = "subject to train on: letters\n"
ENDED = "{'train_runtime': 12.5, 'train_loss': 2.5}\n"


def banner(clock: str, *, name: str = "first_try") -> str:
    """What this program prints when it starts."""
    return (
        f"2024-05-03 {clock}:01,100 reading the settings of the run\n2024-05-03 {clock}:01,200 name of the run: {name}\n"
        f"2024-05-03 {clock}:02,100 corpus with 4000 documents\n2024-05-03 {clock}:02,200 building the tower of layers\n"
    )


def steps(first: int, last: int) -> str:
    """Steps that count over the run."""
    return "".join(f"step {number}/900 | loss 2.5\n" for number in range(first, last + 1))


def starts(text: str) -> list[int]:
    """The lines, from 1, at which the program starts again."""
    facts = StreamFacts(scanned(text, BOOK, ref("logs/train.log")))
    return [text.encode()[:at].count(b"\n") + 1 for at in facts.later_starts]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (banner("10:00") + steps(1, 5) + banner("10:07") + steps(1, 2), [10]),
        (banner("10:00") + steps(1, 5) + ERROR + banner("10:07", name="second_try"), [14]),
        (banner("10:00") + ERROR + banner("10:07") + ERROR, [9]),
        (banner("10:00") + ERROR + banner("10:00") + ERROR, []),
        (banner("10:00") + steps(1, 5) + ERROR + (banner("10:00") + ERROR) * 2, [14, 22]),
        (DOMAIN + banner("10:00") + steps(1, 5) + ENDED + OTHER_DOMAIN + banner("10:00") + ERROR, [15]),
        (DOMAIN + banner("10:00") + steps(1, 5) + OTHER_DOMAIN + banner("10:00") + steps(6, 9), []),
        (banner("10:00") * 2 + steps(1, 5), []),
        (banner("10:00") + steps(1, 5) + banner("10:07") + steps(6, 9), []),
        (banner("10:00") + steps(1, 5) + "".join(banner("10:07").splitlines(keepends=True)[2:]), []),
        (LAUNCH + steps(1, 5) + ERROR + LAUNCH, [11]),
        (LAUNCH + banner("10:00") + steps(1, 5) + ERROR + LAUNCH + banner("10:07") + steps(1, 5), [15]),
        (steps(1, 5) + "loading checkpoint from /ckpt\n" + steps(3, 8), [6]),
        (steps(1, 5) + "loading checkpoint from /ckpt\n" + steps(6, 8), []),
        (steps(1, 5) + steps(1, 5), []),
        (steps(1, 5) + ERROR + EXIT + steps(1, 5) + ERROR + EXIT, [11]),
        (steps(1, 5) + ERROR + EXIT + steps(6, 8), []),
        (ERROR + EXIT + RESTART + ERROR + EXIT, [6]),
    ],
    ids=[
        "after steps",
        "after a failure, with another name",
        "after a pause",
        "of two ranks that fail alike",
        "after failures, without a pause",
        "after a reported end, with other first lines",
        "of a part, where no end is reported",
        "of two ranks",
        "each epoch",
        "a part of the start",
        "a launcher",
        "a launcher and the program",
        "the count falls back",
        "the count goes on",
        "two ranks count",
        "the count falls back behind a launcher's report",
        "the count goes on behind a launcher's report",
        "the launcher says that it restarts",
    ],
)
def test_a_start_follows_what_ended(text: str, expected: list[int]) -> None:
    """Ranks print the same lines, and a program loads parts twice."""
    assert starts(text) == expected


def test_in_the_log_of_one_rank_no_other_prints_its_start() -> None:
    """A failure before the first lines again is enough there; a part of them may be printed at any time."""
    twice = banner("10:00") + ERROR + banner("10:00") + ERROR
    assert again(twice, rank=3) == 9
    assert again(twice, rank=None) is None
    assert again(banner("10:00") + ERROR + banner("10:00").splitlines(keepends=True)[2] + ERROR, rank=3) is None


def again(text: str, rank: int | None) -> int | None:
    """The line, from 1, at which the program starts again after its first error; `rank`: whose log it is."""
    at = StreamFacts(scanned(text, BOOK, ref("logs/train.log", rank))).started_again(text.index("RuntimeError"))
    return None if at is None else text.encode()[:at].count(b"\n") + 1


def test_the_stage_before_a_start_is_not_that_behind_it() -> None:
    """Nothing shows a stage of the second run yet."""
    text = banner("10:00") + "Training starts at step 1\n" + steps(1, 5) + banner("10:07") + "RuntimeError: it broke\n"
    facts = StreamFacts(scanned(text, BOOK, ref("logs/train.log")))
    assert facts.stage(text.index("step 5")) == "iterating"
    assert facts.stage(text.index("RuntimeError")) is None
