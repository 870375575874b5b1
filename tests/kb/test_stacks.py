"""Ranks beside each other by their stacks. Stacks are written as py-spy writes them, innermost frame first."""

import re
import time
from dataclasses import replace

import pytest

from kb.model import Frame, Resource, StackSample, ThreadStack
from kb.stacks import Stillness, compare, doing, merged, probe_stillness

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
    told = (ThreadStack("MainThread", frames(text), state),)
    told += tuple(ThreadStack(name, frames(each), "idle") for name, each in threads.items())
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


# --- what one process does ---


@pytest.mark.parametrize(
    ("text", "activity", "fault"),
    [
        (NEXT, "loader", "dataloader_fault"),
        (f"get (multiprocessing/queues.py:91)\n_get_batch ({LOADER}:330)\n__next__ ({LOADER}:350){TRAIN}", "loader", "dataloader_fault"),
        (f"__getitem__ (shards.py:8)\nfetch (torch/utils/data/_utils/fetch.py:51)\n_next_data ({LOADER}:670){TRAIN}", "loader", "dataloader_fault"),
        (f"pread64 (libc.so.6)\n__getitem__ (shards.py:8)\nfetch (torch/utils/data/_utils/fetch.py:51){TRAIN}", "loader", "storage_io"),
        (f"SSLSocket.read (ssl.py:1107)\n_read_status (http/client.py:287)\nurl_opener (webdataset/tariterators.py:30){TRAIN}", "loader", "external_network"),
        (f"_iter_arrow (datasets/iterable_dataset.py:299){TRAIN}", "loader", "dataloader_fault"),
        (f"iterator_get_next (tensorflow/python/ops/gen_dataset_ops.py:3028){TRAIN}", "loader", "dataloader_fault"),
        (f"Condition.wait (threading.py:327)\nQueue.get (queue.py:171)\n__next__ (prefetch.py:20){TRAIN}", "queue", "dataloader_fault"),
        (f"Condition.wait (threading.py:327)\nQueue.get (queue.py:171)\nsend_all (hub.py:20){TRAIN}", "queue", "deadlock"),
        (f"exists (genericpath.py:19)\nready (fit.py:3){TRAIN}", "storage", "storage_io"),
        (f"fsync (libc.so.6)\nflush_log (fit.py:3){TRAIN}", "storage", "storage_io"),
        (f"_save (torch/serialization.py:1200)\nsave (torch/serialization.py:944)\nstore (fit.py:3){TRAIN}", "saving", "checkpoint_save"),
        (f"write (libc.so.6)\npwrite64 (libc.so.6)\n_save (torch/serialization.py:1200){TRAIN}", "saving", "storage_io"),
        (f"dump_it (fit.py:3)\nsave_checkpoint (megatron/training/checkpointing.py:400){TRAIN}", "user", "checkpoint_save"),
        (f"open (s3fs/core.py:400)\nsave_checkpoint (fit.py:3){TRAIN}", "storage", "storage_io"),
        (f"_load (torch/serialization.py:1400)\nload (torch/serialization.py:1025){TRAIN}", "loading", "checkpoint_load"),
        (f"PyThread_acquire_lock_timed (libpython3.11.so.1.0)\nenter (fit.py:3){TRAIN}", "lock", "deadlock"),
        (f"acquire (logging/__init__.py:921)\nhandle (logging/__init__.py:978){TRAIN}", "lock", "deadlock"),
        (f"take_gil ()\nget (queue.py:5)\nstep (fit.py:3){TRAIN}", "gil", "deadlock"),
        (f"Popen._launch (multiprocessing/popen_fork.py:66)\nDataLoader.__iter__ ({LOADER}:440){TRAIN}", "fork", "deadlock"),
        (f"wait (torch/utils/file_baton.py:42)\n_jit_compile (torch/utils/cpp_extension.py:1522){TRAIN}", "filelock", "storage_io"),
        (f"compile_inner (torch/_dynamo/convert_frame.py:700){TRAIN}", "compile", "deadlock"),
        (f"backend_compile_and_load (jax/_src/compiler.py:375){TRAIN}", "compile", "deadlock"),
        (f"getaddrinfo (socket.py:962)\ncreate_connection (socket.py:827)\npost (fit.py:3){TRAIN}", "network", "external_network"),
        (f"wait (threading.py:331)\nget (wandb/sdk/mailbox.py:80)\nlog (fit.py:3){TRAIN}", "network", "external_network"),
        (f"clock_nanosleep (libc.so.6)\ntime_sleep (libpython3.11.so.1.0){TRAIN}", "sleep", "straggler"),
        (f"Popen._try_wait (subprocess.py:2004)\nrun (subprocess.py:550){TRAIN}", "subprocess", "deadlock"),
        (f"_wait_for_tstate_lock (threading.py:1139)\njoin (threading.py:1119){TRAIN}", "thread", "deadlock"),
        (f"interaction (pdb.py:360)\ntrace_dispatch (bdb.py:90){TRAIN}", "debugger", ""),
        (f"_store_based_barrier ({C10D}:1000)\ninit_process_group ({C10D}:1700){TRAIN}", "rendezvous", "rendezvous"),
        (f"c10d::Work::wait (libtorch_cpu.so){TRAIN}", "collective", "collective_timeout"),
        (f"ncclAllReduce (libnccl.so.2){TRAIN}", "collective", "collective_timeout"),
        (f"cudaStreamSynchronize (libcudart.so.12){TRAIN}", "device", "collective_timeout"),
        (f"synchronize (torch/cuda/streams.py:95)\nfetch_sub_module (deepspeed/runtime/zero/stage3.py:406){TRAIN}", "device", "collective_timeout"),
        (f"_value (jax/_src/array.py:642){TRAIN}", "device", "collective_timeout"),
        (f"sync_global_devices (jax/experimental/multihost_utils.py:90){TRAIN}", "collective", "collective_timeout"),
        (f"synchronize (horovod/torch/mpi_ops.py:1000){TRAIN}", "collective", "collective_timeout"),
        (f"recv ({C10D}:2200)\nrecv_forward (megatron/core/pipeline_parallel/schedules.py:900){TRAIN}", "p2p", "collective_timeout"),
        (BACKWARD, "backward", "collective_timeout"),
        (f"step (fit.py:3){TRAIN}", "user", "straggler"),
    ],
)  # fmt: skip
def test_one_stack(text, activity, fault):
    """What a stack says by itself: the library's own function decides, what is further in refines."""
    told = doing(stack(0, text))
    assert (told.activity, told.fault) == (activity, fault)


def test_full_paths_and_qualified_names_agree():
    """JSON's full paths and old names say the same as text's short paths and new names."""
    old = f"_try_get_data (/opt/venv/lib/python3.10/site-packages/{LOADER}:1131)\n__next__ (/x/site-packages/{LOADER}:630)"
    assert doing(stack(0, old + TRAIN)).activity == doing(stack(0, NEXT)).activity == "loader"


def test_words():
    """The reason names the frame of the run's own code, and whether it works or is idle there."""
    idle = doing(stack(0, f"probe (fit.py:7){TRAIN}"))
    busy = doing(stack(0, f"probe (fit.py:7){TRAIN}", state="gil"))
    assert (
        idle.reason
        == "is in code of the run, idle: it sleeps, or waits for a lock, a file or the device in probe (fit.py:7)"
    )
    assert busy.reason == "is in code of the run, at work in probe (fit.py:7)"
    assert busy.caller == Frame("probe", "fit.py", 7)


def test_stuck_worker():
    """A loader that waits is told by the worker that is stuck, not by one that waits for work."""
    stuck = stack(0, "pread64 (libc.so.6)\nread_shard (shards.py:5)" + FORKED, child=True, pid=71)
    idle = stack(0, POLL.rstrip() + FORKED, child=True, pid=70)
    told = doing(stack(0, NEXT), [idle, stuck])
    assert (told.activity, told.fault, told.alternatives[0]) == ("loader", "storage_io", "dataloader_fault")
    assert told.reason == "waits for its data loader, whose worker (pid 71) is stuck in read_shard (shards.py:5)"
    assert doing(stack(0, NEXT), [idle]).fault == "dataloader_fault"


def test_forked_worker_is_not_where_its_parent_was():
    """What stands below the start of a forked process is its parent's past."""
    assert doing(stack(0, "read_shard (shards.py:5)" + FORKED, child=True)).context == ""


def test_thread_behind_main():
    """A main thread that waits for a thread is told by what that does; helpers that always wait are none."""
    main = f"Condition.wait (threading.py:327)\nFuture.result (concurrent/futures/_base.py:451){TRAIN}"
    writer = "_save (torch/serialization.py:1200)\nrun (threading.py:982)"
    beat = "post (requests/api.py:9)\nrun (threading.py:982)"
    told = doing(stack(0, main, heartbeat=beat, writer=writer))
    assert (told.activity, told.fault) == ("saving", "checkpoint_save")
    assert "its thread writer is writing a checkpoint" in told.reason


def test_autograd_thread_behind_backward():
    """What the engine's own thread does tells what backward waits for."""
    sample = stack(0, BACKWARD)
    hook = ThreadStack("4079", frames(f"all_gather_into_tensor ({C10D}:2709)\nhook (zero.py:3)"), "active")
    told = doing(replace(sample, threads=(*sample.threads, hook)))
    assert (told.activity, told.frame.function) == ("collective", "all_gather_into_tensor")


def test_two_threads_idle_in_the_same_code():
    """Two threads of the run's own code that stand idle are a deadlock before they are a sleep."""
    told = doing(stack(0, f"take (pool.py:7){TRAIN}", other="give (fit.py:9)\nrun (threading.py:982)"))
    assert told.fault == "straggler"
    told = doing(stack(0, f"take (pool.py:7){TRAIN}", other="give (pool.py:9)\nrun (threading.py:982)"))
    assert (told.fault, told.alternatives[0]) == ("deadlock", "straggler")


def test_host_process_of_ray():
    """Where the main thread is a host's loop, the thread that trains is looked at."""
    host = "main_loop (ray/_private/worker.py:900)\n<module> (ray/_private/workers/default_worker.py:300)"
    assert doing(stack(0, host, trainer=NEXT)).activity == "loader"


def test_no_main_thread():
    """Without a main thread nothing is said."""
    told = doing(replace(stack(0, NEXT), threads=()))
    assert (told.activity, told.fault) == ("unknown", "")


# --- ranks beside each other ---


def test_rank_outside_the_crowd():
    """The rank that does not wait is the suspect, with the frame it is in; who waits is none."""
    found = compare(crowd(16, REDUCE, {5: NEXT}))
    assert (found.fault, found.outlier_ranks, found.outlier_count) == ("dataloader_fault", "5", 1)
    (odd,) = found.outliers
    assert (odd.rank, odd.resource.node, odd.sure, odd.doing.frame.function) == (
        5,
        "n0",
        True,
        "_MultiProcessingDataLoaderIter._try_get_data",
    )
    assert [(one.ranks, one.count) for one in found.groups] == [("0-4,6-15", 15), ("5", 1)]
    assert found.crowd == 0
    assert found.reason.startswith("rank 5 waits for its data loader")
    assert "15 of 16 ranks wait (rank 0 waits inside a collective in all_reduce" in found.reason


def test_waiters_at_several_places():
    """Ranks of other groups wait at other places for the same rank: all of them are the crowd."""
    odd = dict.fromkeys(range(4, 8), BACKWARD) | {2: f"open64 (libc.so.6)\nput (fit.py:3){TRAIN}"}
    found = compare(crowd(16, REDUCE, odd))
    assert (found.fault, found.outlier_ranks) == ("storage_io", "2")


def test_several_outsiders():
    """Of several outside, the one whose stack tells most comes first."""
    found = compare(crowd(16, REDUCE, {1: f"step (fit.py:3){TRAIN}", 9: NEXT}))
    assert ([one.rank for one in found.outliers], found.fault) == ([9, 1], "dataloader_fault")


def test_all_in_one_collective():
    """All at one place in a collective: no rank is odd, and the answer is the wait itself."""
    found = compare(crowd(8, REDUCE))
    assert (found.fault, found.outliers, found.crowd) == ("collective_timeout", (), 0)


def test_only_some_evaluate():
    """Ranks in another collective, inside evaluation, ran another program than the rest."""
    other = f"all_gather ({C10D}:3000)\ngather_metrics (fit.py:60)\nevaluate (fit.py:70){TRAIN}"
    found = compare(crowd(8, BACKWARD, {0: other}))
    assert (found.fault, found.outlier_ranks, found.outliers[0].sure) == ("collective_desync", "0", True)
    assert "rank 0 (evaluating) waits inside a collective in all_gather" in found.reason


def test_few_in_another_collective():
    """A minority in another collective is out of step; halves are, but nobody can say which."""
    other = f"barrier ({C10D}:4100){TRAIN}"
    found = compare(crowd(9, REDUCE, {4: other}))
    assert (found.fault, found.outlier_ranks) == ("collective_desync", "4")
    found = compare(crowd(4, REDUCE, {0: other, 1: other}))
    assert (found.fault, found.outlier_ranks) == ("collective_desync", "")


def test_pipeline_stages():
    """Stages of a pipeline wait at different places by design: none of them is odd."""
    stage = f"recv ({C10D}:2200)\n_communicate (megatron/core/pipeline_parallel/p2p_communication.py:"
    found = compare(crowd(16, stage + f"300){TRAIN}", dict.fromkeys((8, 9, 10), stage + f"400){TRAIN}")))
    assert (found.fault, found.outlier_ranks) == ("collective_timeout", "")


def test_crowd_without_a_sign_of_waiting():
    """Most ranks at one line of the run's code wait there for the device, though no frame says so."""
    found = compare(crowd(8, f"step (fit.py:33){TRAIN}", {6: NEXT}))
    assert (found.fault, found.outlier_ranks) == ("dataloader_fault", "6")


def test_all_alike_outside():
    """Where nearly all ranks stand in storage, it is the job's matter and no rank is at fault."""
    read = f"stat64 (libc.so.6)\nready (fit.py:3){TRAIN}"
    found = compare(crowd(20, read, {3: REDUCE}))
    assert (found.fault, found.outliers, found.shared) == ("storage_io", (), True)
    assert found.reason.startswith("19 of 20 ranks alike: rank 0 is inside file or object storage")


def test_saving_together():
    """All ranks in a barrier of a checkpoint: the checkpoint is named before the wait."""
    found = compare(crowd(4, f"barrier ({C10D}:4100)\nsave_checkpoint (fit.py:20){TRAIN}"))
    assert (found.fault, found.alternatives[0]) == ("checkpoint_save", "collective_timeout")


def test_one_rank_alone():
    """A single rank is told by its own stack."""
    found = compare([stack(3, NEXT)])
    assert (found.fault, found.shared, found.seen) == ("dataloader_fault", False, 1)


def test_ranks_without_a_stack():
    """Expected ranks of which there is no stack are told; where all others wait, they may be what is waited for."""
    found = compare(crowd(7, REDUCE), expected=range(8))
    assert (found.unseen, found.unseen_count, found.alternatives[:2]) == ("7", 1, ("node_lost", "killed"))


def test_no_stacks():
    """Nothing in, nothing said."""
    found = compare([], expected=[0, 1])
    assert (found.fault, found.groups, found.unseen) == ("", (), "0-1")


def test_newest_round_counts():
    """The newest round is compared; whether a rank moved between rounds is told beside."""
    texts = [REDUCE, lambda rank: f"step (fit.py:3){TRAIN}" if rank == 2 else REDUCE]
    (odd,) = compare(rounds(range(4), texts)).outliers
    assert (odd.rank, odd.moving) == (2, True)
    still = rounds(range(4), [lambda rank: NEXT if rank == 2 else REDUCE] * 2)
    assert compare(still).outliers[0].moving is False


def test_order_of_samples_does_not_matter():
    """The same stacks in another order give the same answer."""
    odd = {1: NEXT, 5: f"step (fit.py:3){TRAIN}", 6: BACKWARD}
    samples = crowd(12, REDUCE, odd)
    assert compare(samples) == compare(samples[::-1])
    assert merged(samples) == merged(samples[::-1])


# --- probe ---


def test_unchanged():
    """Three rounds alike, far enough apart, are a vote, with the time since when."""
    vote = probe_stillness(rounds(range(4), [REDUCE] * 3))
    assert (vote.vote, vote.still, vote.observed, vote.since) == ("yes", 4, 4, 100.0)
    assert vote.detail == "4 of 4 ranks unchanged over 3 rounds"
    assert vote.ranks[0].seconds == 40.0


def test_moved():
    """A stack that changed is a vote against; so is one that stands still only since a short while."""
    vote = probe_stillness(rounds(range(4), [REDUCE, BACKWARD, REDUCE]))
    assert (vote.vote, vote.moving) == ("no", "0-3")
    assert probe_stillness(rounds(range(4), [BACKWARD, REDUCE, REDUCE])).vote == "no"


def test_too_few_rounds():
    """Fewer rounds than needed, or too close together, cannot be judged: that is no vote against."""
    assert probe_stillness(rounds(range(4), [REDUCE] * 2)).vote == "not_observable"
    assert probe_stillness(rounds(range(4), [REDUCE] * 9, apart=1.0)).vote == "not_observable"
    assert probe_stillness(rounds(range(4), [REDUCE] * 9, apart=1.0), Stillness(apart=2.0)).vote == "yes"
    assert probe_stillness([]).vote == "not_observable"


def test_rounds_in_order_of_their_names():
    """Without times, rounds are put in order by the numbers in their names."""
    samples = [stack(0, BACKWARD if number == 2 else REDUCE, number) for number in (10, 11, 12, 2)]
    assert probe_stillness(samples).vote == "yes"


def test_what_does_not_count_as_a_change():
    """States, native addresses, helper threads and the lines of a polling loop differ from look to look."""
    later = NEXT.replace("selectors.py:415", "selectors.py:418").replace("queues.py:113", "queues.py:120")
    samples = [
        stack(0, NEXT, 1, state="idle", tqdm_monitor="a (x.py:1)"),
        stack(0, f"0x7f01 (libc.so.6)\n{NEXT}", 2, state="active", tqdm_monitor="b (x.py:2)"),
        stack(0, later, 3, state="gil"),
    ]
    assert probe_stillness(samples).vote == "yes"


def test_loader_thread_counts():
    """A loader's thread that goes on is a change, though the main thread stands."""
    pins = [
        "get (queue.py:1)\npin (torch/utils/data/_utils/pin_memory.py:30)",
        "copy (torch/utils/data/_utils/pin_memory.py:50)",
    ]
    samples = [stack(0, NEXT, number, pin=pins[number % 2]) for number in range(3)]
    assert probe_stillness(samples).vote == "no"


def test_all_but_one_wait():
    """A rank that runs on in a loop while all others wait for it does not keep the job from standing still."""
    turns = (3, 4, 5)
    texts = [lambda rank, n=n: f"spin (fit.py:{n}){TRAIN}" if rank == 1 else REDUCE for n in turns]
    vote = probe_stillness(rounds(range(4), texts))
    assert (vote.vote, vote.still, vote.moving) == ("yes", 3, "1")
    texts = [lambda rank, n=n: f"spin (fit.py:{n if rank < 2 else 9}){TRAIN}" for n in turns]
    assert probe_stillness(rounds(range(4), texts)).vote == "no"


def test_ranks_that_could_not_be_seen():
    """Ranks without enough rounds are told beside the vote and do not count against it."""
    samples = [*rounds(range(4), [REDUCE] * 3), stack(4, REDUCE, 2, 140.0)]
    vote = probe_stillness(samples, expected=range(6))
    assert (vote.vote, vote.observed, vote.unseen) == ("yes", 4, "4-5")


# --- merged view ---


def test_merged_view():
    """Each frame says who is inside and who is outside."""
    lines = merged(crowd(4, REDUCE, {2: NEXT}))
    said = {one.frame.function: (one.depth, one.inside, one.outside) for one in lines}
    assert said["train"] == (1, "0-3", "")
    assert said["all_reduce"] == (3, "0-1,3", "2")
    assert said["_BaseDataLoaderIter.__next__"] == (2, "2", "0-1,3")
    assert [one.frame.function for one in lines[:4]] == ["<module>", "train", "wrapper", "all_reduce"]


def test_merged_view_is_bounded():
    """However many ways ranks go, the view has a bound, shows the largest branches, and counts what it left out."""
    odd = {rank: f"way{rank} (fit.py:{rank + 1}){TRAIN}" for rank in range(3, 60)}
    lines = merged(crowd(80, REDUCE, odd), most=12)
    assert len(lines) == 12
    assert "all_reduce" in {one.frame.function for one in lines}
    assert sum(one.folded for one in lines) == 80 - 23 - (12 - 4)


def test_long_lists_of_ranks_are_cut():
    """Ranks that do not make ranges are cut, with how many were left out."""
    lines = merged(crowd(200, REDUCE, dict.fromkeys(range(0, 200, 2), NEXT)))
    inside = next(one.inside for one in lines if one.frame.function == "all_reduce")
    assert inside.endswith(",+76 more")


# --- size and hostility ---


def test_ten_thousand_ranks():
    """Ten thousand ranks over three rounds are compared in seconds, with the one that is odd."""
    start = time.process_time()
    samples = rounds(range(10_240), [lambda rank: NEXT if rank == 7001 else REDUCE] * 3)
    built = time.process_time()
    vote = probe_stillness(samples, expected=range(10_240))
    found = compare(samples, expected=range(10_240))
    lines = merged(samples)
    assert (vote.vote, vote.still) == ("yes", 10_240)
    assert (found.outlier_ranks, found.fault) == ("7001", "dataloader_fault")
    assert lines[0].inside == "0-10239"
    assert time.process_time() - built < 20, f"{built - start:.1f} s to build"


def test_odd_values():
    """Stacks with empty names, no frames, very long names and no ranks are lived with."""
    odd = ThreadStack("", (Frame("", "", None), Frame("x" * 10_000, "/" * 1000, 0)))
    samples = [
        StackSample("a", Resource(), threads=(odd,)),
        StackSample("b", Resource(rank=0), threads=(odd, odd)),
        StackSample("c", Resource(rank=1), threads=(replace(odd, thread="MainThread"),)),
        StackSample("d", Resource(rank=1), sample="9" * 500, threads=(ThreadStack("MainThread", ()),)),
    ]
    assert compare(samples).seen <= 2
    assert probe_stillness(samples).vote == "not_observable"
    assert all(one.count == 1 for one in merged(samples))
