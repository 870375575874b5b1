"""Stacks as py-spy writes them, innermost frame first, and jobs of ranks with these stacks."""

import re

from kb.model import Frame, Resource, StackSample, ThreadStack

LINE = re.compile(r"(\S.*) \(([^()]*?)(?::(\d+))?\)")
C10D = "torch/distributed/distributed_c10d.py"
LOADER = "torch/utils/data/dataloader.py"
TRAIN = "\ntrain (fit.py:40)\n<module> (fit.py:90)"
REDUCE = f"all_reduce ({C10D}:2800)\nwrapper (torch/distributed/c10d_logger.py:81){TRAIN}"
BACKWARD = f"_engine_run_backward (torch/autograd/graph.py:744)\nTensor.backward (torch/_tensor.py:581){TRAIN}"
POLL = (
    "_PollLikeSelector.select (selectors.py:415)\nwait (multiprocessing/connection.py:947)\n"
    "Queue.get (multiprocessing/queues.py:113)\n"
)
BATCH = (
    POLL + f"_MultiProcessingDataLoaderIter._try_get_data ({LOADER}:1131)\n_BaseDataLoaderIter.__next__ ({LOADER}:630)"
)
NEXT = BATCH + TRAIN
FORKED = (
    "\n_worker_loop (torch/utils/data/_utils/worker.py:309)\nBaseProcess.run (multiprocessing/process.py:108)\n"
    "BaseProcess._bootstrap (multiprocessing/process.py:314)\nPopen._launch (multiprocessing/popen_fork.py:71)\n"
    f"DataLoader.__iter__ ({LOADER}:440)\nevaluate (fit.py:77)\n<module> (fit.py:90)"
)


def frames(text):
    """The frames of lines `function (file:line)`."""
    return tuple(
        Frame(f, p, int(n) if n else None) for f, p, n in (LINE.fullmatch(x).groups() for x in text.split("\n"))
    )


def stack(rank, text, round_=1, at=None, *, state="idle", child=False, pid=None, **threads):
    """One sample: the main thread by its text, further threads by name."""
    others = (ThreadStack(name, frames(each), "idle") for name, each in threads.items())
    told = (ThreadStack("MainThread", frames(text), state), *others)
    who = Resource(rank=rank, node=f"n{rank // 8}", pid=pid)
    return StackSample(f"stacks/{round_}/rank-{rank}", who, str(round_), at, told, child)


def crowd(size, text, odd=None):
    """A job of `size` ranks at one place, but for those in `odd` (rank → text)."""
    return [stack(rank, (odd or {}).get(rank, text)) for rank in range(size)]


def rounds(ranks, texts, apart=20.0):
    """Rounds of stacks `apart` seconds apart; each round's text for all ranks, or a function of the rank."""
    return [
        stack(rank, text(rank) if callable(text) else text, number, 100.0 + apart * number)
        for number, text in enumerate(texts)
        for rank in ranks
    ]
