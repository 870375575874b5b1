"""What one process does, determined from its stacks."""

from dataclasses import replace

import pytest

from kb.model import Frame, ThreadStack
from kb.stacks.activity import doing
from tests.support.stack_samples import BACKWARD, C10D, FORKED, LOADER, NEXT, POLL, TRAIN, frames, stack


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
    """What a single stack says: the library's own function decides, frames further in refine it."""
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
        == "is in the run's own code, idle: it sleeps, or waits for a lock, a file or the device in probe (fit.py:7)"
    )
    assert busy.reason == "is in the run's own code, busy in probe (fit.py:7)"
    assert busy.caller == Frame("probe", "fit.py", 7)


def test_stuck_worker():
    """A waiting loader is explained by its stuck worker, not by one that waits for work."""
    stuck = stack(0, "pread64 (libc.so.6)\nread_shard (shards.py:5)" + FORKED, child=True, pid=71)
    idle = stack(0, POLL.rstrip() + FORKED, child=True, pid=70)
    told = doing(stack(0, NEXT), [idle, stuck])
    assert (told.activity, told.fault, told.alternatives[0]) == ("loader", "storage_io", "dataloader_fault")
    assert told.reason == "waits for its data loader, whose worker (pid 71) is stuck in read_shard (shards.py:5)"
    assert doing(stack(0, NEXT), [idle]).fault == "dataloader_fault"


def test_forked_worker_is_not_where_its_parent_was():
    """Frames below the start of a forked process are its parent's past."""
    assert doing(stack(0, "read_shard (shards.py:5)" + FORKED, child=True)).context == ""


def test_thread_behind_main():
    """A main thread that waits for a thread is explained by what that does; helpers that always wait do not count."""
    main = f"Condition.wait (threading.py:327)\nFuture.result (concurrent/futures/_base.py:451){TRAIN}"
    writer = "_save (torch/serialization.py:1200)\nrun (threading.py:982)"
    beat = "post (requests/api.py:9)\nrun (threading.py:982)"
    told = doing(stack(0, main, heartbeat=beat, writer=writer))
    assert (told.activity, told.fault) == ("saving", "checkpoint_save")
    assert "its thread writer is writing a checkpoint" in told.reason


def test_autograd_thread_behind_backward():
    """What the engine's own thread does explains what backward waits for."""
    sample = stack(0, BACKWARD)
    hook = ThreadStack("4079", frames(f"all_gather_into_tensor ({C10D}:2709)\nhook (zero.py:3)"), "active")
    told = doing(replace(sample, threads=(*sample.threads, hook)))
    assert (told.activity, told.frame.function) == ("collective", "all_gather_into_tensor")


def test_two_threads_idle_in_the_same_code():
    """Two idle threads of the run's own code are rather a deadlock than a sleep."""
    told = doing(stack(0, f"take (pool.py:7){TRAIN}", other="give (fit.py:9)\nrun (threading.py:982)"))
    assert told.fault == "straggler"
    told = doing(stack(0, f"take (pool.py:7){TRAIN}", other="give (pool.py:9)\nrun (threading.py:982)"))
    assert (told.fault, told.alternatives[0]) == ("deadlock", "straggler")


def test_host_process_of_ray():
    """If the main thread is a host's loop, the thread that trains is examined."""
    host = "main_loop (ray/_private/worker.py:900)\n<module> (ray/_private/workers/default_worker.py:300)"
    assert doing(stack(0, host, trainer=NEXT)).activity == "loader"


def test_no_main_thread():
    """Without a main thread the result is unknown."""
    told = doing(replace(stack(0, NEXT), threads=()))
    assert (told.activity, told.fault) == ("unknown", "")


def test_who_keeps_the_interpreters_lock_and_does_not_run():
    """A lock held by an idle thread is held by blocking native code, or by a stopped process."""
    told = doing(stack(0, f"tokenize (fit.py:7){TRAIN}", state="gil_idle"))
    assert (told.activity, told.fault, told.alternatives) == ("user", "deadlock", ("straggler", "code_bug"))
    assert told.reason == (
        "is in the run's own code, holds the interpreter's lock but does not run: it blocks in native code, or the process "
        "is stopped, in tokenize (fit.py:7)"
    )
    sample = stack(0, f"step (fit.py:3){TRAIN}")
    keeper = ThreadStack("writer", frames("encode (codec.py:9)\nrun (threading.py:982)"), "gil_idle")
    told = doing(replace(sample, threads=(*sample.threads, keeper)))
    assert (told.activity, told.fault) == ("gil", "deadlock")
    assert told.reason == (
        "waits for the interpreter's lock; its thread writer holds that lock but does not run in encode (codec.py:9)"
    )
    busy = replace(keeper, state="gil")
    assert doing(replace(sample, threads=(*sample.threads, busy))).fault == "straggler"


def test_frames_of_the_interpreter_are_native():
    """py-spy names a frame of a statically linked interpreter after the program: it is not the run's own code."""
    told = doing(stack(0, f"__libc_recv (libc.so.6)\nsock_recv (python3.11)\nread_message (comm.py:9){TRAIN}"))
    assert (told.activity, told.fault, told.alternatives[0]) == ("network", "external_network", "deadlock")
    assert told.reason == "waits on a socket for a peer or a service in read_message (comm.py:9)"
