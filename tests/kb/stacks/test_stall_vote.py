"""The probe's vote on unchanged stacks."""

from dataclasses import replace

from kb.model import ProcessWork, ThreadStack
from kb.stacks.stall_vote import Stillness, probe_stillness
from tests.support.stack_samples import BACKWARD, NEXT, REDUCE, TRAIN, frames, rounds, stack


def test_unchanged():
    """Three identical rounds, far enough apart, are a vote, with the time since when."""
    vote = probe_stillness(rounds(range(4), [REDUCE] * 3))
    assert (vote.vote, vote.still, vote.observed, vote.since) == ("yes", 4, 4, 100.0)
    assert vote.detail == "4 of 4 ranks unchanged over 3 rounds"
    assert vote.ranks[0].seconds == 40.0


def test_moved():
    """A stack that changed is a vote against; so is one that has been unchanged only briefly."""
    vote = probe_stillness(rounds(range(4), [REDUCE, BACKWARD, REDUCE]))
    assert (vote.vote, vote.moving) == ("no", "0-3")
    assert probe_stillness(rounds(range(4), [BACKWARD, REDUCE, REDUCE])).vote == "no"


def test_too_few_rounds():
    """Fewer rounds than needed, or rounds too close together, cannot be judged: they are not a vote against a hang."""
    assert probe_stillness(rounds(range(4), [REDUCE] * 2)).vote == "not_observable"
    assert probe_stillness(rounds(range(4), [REDUCE] * 9, apart=1.0)).vote == "not_observable"
    assert probe_stillness(rounds(range(4), [REDUCE] * 9, apart=1.0), Stillness(apart=2.0)).vote == "yes"
    assert probe_stillness([]).vote == "not_observable"


def test_rounds_in_order_of_their_names():
    """Without times, rounds are put in order by the numbers in their names."""
    samples = [stack(0, BACKWARD if number == 2 else REDUCE, number) for number in (10, 11, 12, 2)]
    assert probe_stillness(samples).vote == "yes"


def test_what_does_not_count_as_a_change():
    """States, native addresses, helper threads and the lines of a polling loop differ at every look."""
    later = NEXT.replace("selectors.py:415", "selectors.py:418").replace("queues.py:113", "queues.py:120")
    samples = [
        stack(0, NEXT, 1, state="idle", tqdm_monitor="a (x.py:1)"),
        stack(0, f"0x7f01 (libc.so.6)\n{NEXT}", 2, state="active", tqdm_monitor="b (x.py:2)"),
        stack(0, later, 3, state="gil"),
    ]
    assert probe_stillness(samples).vote == "yes"


def test_loader_thread_counts():
    """A loader's thread that continues is a change, although the main thread is stuck."""
    pins = [
        "get (queue.py:1)\npin (torch/utils/data/_utils/pin_memory.py:30)",
        "copy (torch/utils/data/_utils/pin_memory.py:50)",
    ]
    samples = [stack(0, NEXT, number, pin=pins[number % 2]) for number in range(3)]
    assert probe_stillness(samples).vote == "no"


def test_all_but_one_wait():
    """A rank that runs in a loop while all others wait for it does not keep the job from standing still."""
    turns = (3, 4, 5)
    texts = [lambda rank, n=n: f"spin (fit.py:{n}){TRAIN}" if rank == 1 else REDUCE for n in turns]
    vote = probe_stillness(rounds(range(4), texts))
    assert (vote.vote, vote.still, vote.moving) == ("yes", 3, "1")
    texts = [lambda rank, n=n: f"spin (fit.py:{n if rank < 2 else 9}){TRAIN}" for n in turns]
    assert probe_stillness(rounds(range(4), texts)).vote == "no"


def test_ranks_that_could_not_be_seen():
    """Ranks without enough rounds are reported with the vote and do not count against it."""
    samples = [*rounds(range(4), [REDUCE] * 3), stack(4, REDUCE, 2, 140.0)]
    vote = probe_stillness(samples, expected=range(6))
    assert (vote.vote, vote.observed, vote.unseen) == ("yes", 4, "4-5")


def test_most_ranks_that_answer_must_be_judged():
    """If a third of the ranks was not seen often enough, the others do not speak for the job."""
    samples = [*rounds(range(4), [REDUCE] * 3), stack(4, REDUCE, 2, 140.0), stack(5, REDUCE, 2, 140.0)]
    vote = probe_stillness(samples)
    assert (vote.vote, vote.observed, vote.unseen) == ("not_observable", 4, "4-5")
    assert vote.detail == "4 of 6 ranks unchanged over 3 rounds, but the rest could not be judged"


def test_why_it_could_not_be_seen():
    """Too few rounds and rounds too close in time are distinguished, each with what would be needed."""
    needed = "needs 3 rounds of stacks, 20 s apart"
    assert probe_stillness(rounds(range(4), [REDUCE])).detail == f"{needed}; there is 1"
    assert probe_stillness(rounds(range(4), [REDUCE] * 2)).detail == f"{needed}; there are 2"
    assert probe_stillness(rounds(range(4), [REDUCE] * 9, apart=1.0)).detail == f"{needed}; there are 9, all within 8 s"
    two = (ThreadStack("8", frames(REDUCE)), ThreadStack("9", frames(REDUCE)))
    nameless = [replace(stack(0, REDUCE, number), threads=two) for number in range(3)]
    assert probe_stillness(nameless).detail == "no rank's stacks show a main thread"
    assert probe_stillness([]).detail == "no stacks were taken"


LOOP = f"tokenize (corpus.py:12){TRAIN}"
KERNEL = "futex_do_wait ([kernel])"


def working(text, *done, apart=20.0):
    """Rounds of one rank at one place, with what its processes had done by each."""
    samples = rounds([0], [text] * len(done), apart)
    return [replace(sample, work=work) for sample, work in zip(samples, done, strict=True)]


def work(seconds, io=0, switches=0, *, accelerator=False):
    """What a process has done so far."""
    return ProcessWork(seconds, io, switches, accelerator)


def test_a_rank_that_works_is_not_still_though_one_line_dominates():
    """CPU time or bytes that move are movement; a poll's few milliseconds are none."""
    assert probe_stillness(working(LOOP, work(10), work(14), work(18))).vote == "no"
    assert probe_stillness(working(LOOP, work(10), work(10), work(10, 4 << 20))).vote == "no"
    vote = probe_stillness(working(LOOP, work(10), work(10.1), work(10.2, 900)))
    assert (vote.vote, vote.ranks[0].works) == ("yes", False)


def test_on_a_crowded_host_who_computes_gets_little_cpu_time():
    """Its thread was runnable in each round, and got some time: it works. With an accelerator, it may be the driver's spin."""
    done = [work(10), work(10.2), work(10.5)]

    def state(samples, word):
        return [replace(each, threads=(replace(each.threads[0], state=word),)) for each in samples]

    vote = probe_stillness(state(working(LOOP, *done), "active"))
    assert (vote.vote, vote.ranks[0].works) == ("no", True)
    once = [*state(working(LOOP, *done), "active")[:1], *working(LOOP, *done)[1:]]
    assert probe_stillness(once).vote == "yes"
    spun = [replace(item, accelerator=True) for item in done]
    assert probe_stillness(state(working(LOOP, *spun), "active")).vote == "yes"


def test_a_rank_that_waits_for_others_may_spin():
    """In a collective, CPU time says nothing."""
    assert probe_stillness(working(REDUCE, work(10), work(30), work(50))).vote == "yes"


def test_with_an_accelerator_idle_processes_prove_nothing():
    """Its driver's spinning is not counted, so that no work is seen: whether there is none is unknown."""
    vote = probe_stillness(working(LOOP, *[work(10, accelerator=True)] * 3))
    assert (vote.vote, vote.ranks[0].works) == ("yes", None)


def test_without_frames_the_kernel_tells_whether_a_rank_stands_still():
    """Where py-spy may not look: a main thread that neither works nor wakes is still; of one that wakes nothing is known."""
    assert probe_stillness(working(KERNEL, work(10), work(10), work(10))).vote == "yes"
    assert probe_stillness(working(KERNEL, work(10), work(10, 0, 40), work(10, 0, 80))).vote == "not_observable"
    assert probe_stillness(working(KERNEL, work(10), work(15), work(20))).vote == "no"
    assert probe_stillness(rounds([0], [KERNEL] * 3)).vote == "not_observable"
