"""A few words that keep the deciding lines of nearly all failures."""

from __future__ import annotations

from kb.scanning.telling_words import MOST, TELLING_WORDS, choose, has_telling_word, kept, may_be_found

FAILURES = (
    ("cuda_oom", "torch.OutOfMemoryError: CUDA out of memory"),
    ("cuda_oom", "RuntimeError: CUDA error: out of memory"),
    ("killed", "exitcode  : -9 (pid: 11347)  (SIGKILL)"),
    ("dependency", "ModuleNotFoundError: No module named 'apex'"),
    ("peer_failure", "NCCL WARN socketProgress: Connection closed by remote peer"),
    ("gpu_fault", "NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus."),
)


def test_the_words_keep_failures_and_no_iteration_lines() -> None:
    """Not more than a store can search for; none is within another; lines of each step have none."""
    assert len(TELLING_WORDS) == len(set(TELLING_WORDS)) <= MOST
    assert not [word for word in TELLING_WORDS for other in TELLING_WORDS if word != other and word in other]
    assert set(kept(TELLING_WORDS, FAILURES).values()) == {1.0}
    assert not has_telling_word(
        " iteration 12/ 500 | elapsed time per iteration (ms): 5.1 | lm loss: 1.9e+00 | loss scale: 1.0"
    )
    assert not has_telling_word("{'loss': 2.1, 'grad_norm': 0.3, 'learning_rate': 5e-05, 'epoch': 0.1}")


def test_words_are_chosen_by_what_they_keep_and_cost() -> None:
    """The word that keeps most comes first; one that healthy lines have too is shunned; nothing needless is taken."""
    pool = ("rror", "o", "NVRM", "SIG", "NCCL", "zzz")
    usual = ["step 12 loss 2.0", "NCCL INFO Connected all rings", "NCCL INFO comm"]
    assert choose(pool, FAILURES, usual) == ("rror", "NVRM", "SIG", "NCCL")
    assert choose(pool, FAILURES, usual, most=1) == ("rror",)
    assert kept(("rror",), FAILURES)["killed"] == 0.0


def test_patterns_whose_runs_have_a_word_may_be_found() -> None:
    """Case is judged generously: runs are in lower case."""
    assert may_be_found({"traceback (most recent"})
    assert may_be_found({"abc", "nvrm: "})
    assert not may_be_found({"iteration", "loss"})
