"""What the stacks of a job's ranks say together: whether they stand still, who is not where the others are, and at what.

Three questions, each a pure function over `StackSample`s: `probe_stillness` votes on whether stacks are unchanged over
some rounds; `compare` groups ranks by where their main threads stand, tells the crowd that waits from who does not, and
names a fault class with its reason; `merged` is the tree of frames with the ranks inside and outside each.

Frames are known by function and file (the tables below), over frameworks and their versions. Names are compared bare:
`Queue.get` is `get`, and `f.<locals>.g` is `g`. Files are compared by their end, so that a full path and a short one
agree. Native frames help to tell what a thread does and are left out where ranks are compared: addresses differ.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from heapq import heappop, heappush
from typing import Literal

from kb.model import Frame, Resource, StackSample, ThreadStack
from kb.report import ranges

Activity = Literal[
    "collective",  # inside an operation that all ranks of a group must join
    "p2p",  # sends to or receives from one rank
    "backward",  # inside the autograd engine, whose own threads wait for the device or for others
    "device",  # waits for the accelerator
    "rendezvous",  # meets the other ranks to form a group
    "loader",  # waits for, or makes, a batch
    "storage",  # inside a file system or object store
    "filelock",  # waits for a lock file
    "saving",  # writes a checkpoint
    "loading",  # reads a checkpoint
    "compile",  # builds a kernel, graph or extension
    "lock",  # waits for a lock
    "gil",  # waits for the interpreter's lock
    "fork",  # starts a process
    "imports",  # imports a module
    "network",  # talks to an outside service, or a socket
    "queue",  # waits for another thread or process to hand something over
    "thread",  # waits for another thread or process to end
    "subprocess",  # waits for a program
    "events",  # an event loop with nothing to do
    "sleep",
    "debugger",  # a person stands here
    "teardown",  # the process is ending
    "user",  # the run's own code, or code that no table knows
    "unknown",  # no stack of a main thread
]
Context = Literal["", "evaluating", "saving", "loading", "starting"]
Ballot = Literal["yes", "no", "not_observable"]

MAIN = "MainThread"
MOST_GROUPS = 32  # shown
MOST_OUTLIERS = 64  # shown
GROUP_FRAMES = 48  # shown of a group's stack
ALL_ALIKE = 0.8  # of the ranks stand outside the crowd, alike: it is the job's, not theirs
WAITING: frozenset[Activity] = frozenset({"collective", "p2p", "backward", "device", "rendezvous", "filelock"})

# --- the tables: what a frame says. Files are parts of a path that starts with "/"; no functions means any ---

_Row = tuple[Activity, str, str]
_Place = tuple[tuple[str, str, int | None], ...]  # a stack as function, file's name and line, innermost first

_COLLECTIVES = (
    "all_reduce all_reduce_coalesced all_gather all_gather_into_tensor all_gather_coalesced all_gather_object "
    "_all_gather_base reduce reduce_scatter reduce_scatter_tensor _reduce_scatter_base reduce_scatter_multigpu "
    "broadcast broadcast_object_list broadcast_multigpu gather gather_object scatter scatter_object_list all_to_all "
    "all_to_all_single barrier monitored_barrier wait _coalescing_manager all_reduce_multigpu all_gather_multigpu"
)
# What stands in a library's own function: the innermost frame that one of these knows decides.
STRONG: tuple[_Row, ...] = (
    ("debugger", "/pdb.py /bdb.py /ipdb/ /IPython/core/debugger.py /IPython/terminal/debugger.py /debugpy/ /pudb/ /rpdb", ""),
    ("debugger", "/code.py", "interact raw_input"),
    ("p2p", "/torch/distributed/distributed_c10d.py", "send recv isend irecv batch_isend_irecv send_object_list recv_object_list"),
    ("p2p", "/pipeline_parallel/p2p_communication.py /runtime/pipe/p2p.py /torch/distributed/pipelining/ /p2p_comm.py", ""),
    ("p2p", "/pipeline_parallel/schedules.py", "recv_forward recv_backward send_forward send_backward send_forward_recv_backward send_backward_recv_forward"),
    ("collective", "/torch/distributed/distributed_c10d.py /torch/distributed/checkpoint/utils.py", _COLLECTIVES),
    ("rendezvous", "/torch/distributed/distributed_c10d.py", "init_process_group new_group split_group new_subgroups new_subgroups_by_enumeration _new_group_with_tag _store_based_barrier _new_process_group_helper"),
    ("teardown", "/torch/distributed/distributed_c10d.py", "destroy_process_group _abort_process_group _shutdown_backend"),
    ("rendezvous", "/torch/distributed/rendezvous.py /torch/distributed/elastic/rendezvous/ /torch/distributed/elastic/utils/store.py /jax/_src/distributed.py /horovod/common/basics.py", ""),
    ("collective", "/torch/distributed/_functional_collectives.py /torch/distributed/_functional_collectives_impl.py /torch/distributed/nn/functional.py /_fsdp_collectives.py /torch/distributed/algorithms/", ""),
    ("collective", "/torch/nn/parallel/distributed.py /torch/distributed/utils.py", "_sync_params_and_buffers _sync_module_states _sync_buffers _verify_param_shape_across_processes _distributed_broadcast_coalesced _broadcast_coalesced _default_broadcast_coalesced"),
    ("collective", "/torch/distributed/_composable_state.py /torch/distributed/fsdp/_limiter_utils.py /torch/distributed/_symmetric_memory/", ""),
    ("collective", "/deepspeed/comm/ /deepspeed/runtime/comm/", ""),
    ("collective", "/megatron/core/distributed/ /megatron/model/distributed.py", "finish_grad_sync start_grad_sync start_param_sync finish_param_sync allreduce_gradients finalize_model_grads"),
    ("collective", "/tensor_parallel/mappings.py /megatron/core/utils.py", "_reduce _gather_along_first_dim _gather_along_last_dim _reduce_scatter_along_first_dim _all_to_all all_reduce"),
    ("collective", "/accelerate/utils/operations.py /accelerate/accelerator.py /accelerate/state.py", "gather gather_object reduce broadcast broadcast_object_list wait_for_everyone _gpu_gather _gpu_gather_object _gpu_broadcast"),
    ("collective", "/strategies/ddp.py /strategies/fsdp.py /strategies/deepspeed.py /strategies/parallel.py /strategies/model_parallel.py /fabric/utilities/distributed.py", "barrier reduce broadcast all_gather all_reduce reduce_boolean_decision _all_gather_ddp_if_available _sync_ddp"),
    ("collective", "/horovod/torch/ /horovod/tensorflow/ /horovod/mxnet/", ""),
    ("collective", "/jax/experimental/multihost_utils.py", ""),
    ("collective", "/tensorflow/python/ops/collective_ops.py /tensorflow/python/ops/gen_collective_ops.py /tensorflow/python/distribute/cross_device_", ""),
    ("collective", "/torch_xla/core/xla_model.py", "rendezvous mesh_reduce all_reduce all_gather all_to_all reduce_scatter broadcast_master_param"),
    ("collective", "/paddle/distributed/communication/ /paddle/distributed/collective.py /mindspore/communication/ /ray/util/collective/ /vllm/distributed/ /sglang/srt/distributed/ /mpi4py/ /cupyx/distributed/ /oneccl_bindings_for_pytorch/ /fairscale/nn/ /apex/parallel/distributed.py /bagua/", ""),
    ("loader", "/torch/utils/data/ /torch/utils/data.py /torchdata/ /webdataset/ /wids/ /litdata/ /streaming/base/ /nvidia/dali/ /grain/ /petastorm/ /lhotse/dataset/ /lhotse/cut/ /megatron/energon/ /ffcv/", ""),
    ("loader", "/datasets/iterable_dataset.py /datasets/arrow_dataset.py /datasets/arrow_reader.py /datasets/formatting/ /datasets/table.py /datasets/packaged_modules/ /datasets/builder.py", ""),
    ("loader", "/megatron/core/datasets/ /megatron/legacy/data/ /megatron/data/ /deepspeed/runtime/dataloader.py /fairseq/data/ /accelerate/data_loader.py /loops/fetchers.py /lightning/pytorch/utilities/combined_loader.py", ""),
    ("loader", "/ray/data/ /ray/train/_internal/data /paddle/io/ /paddle/fluid/dataloader/ /mindspore/dataset/ /mxnet/gluon/data/ /detectron2/data/ /mmengine/dataset/ /timm/data/ /torchvision/datasets/ /keras/utils/data_utils.py /keras/src/trainers/data_adapters/", ""),
    ("loader", "/tensorflow/python/data/ops/ /tensorflow/python/ops/gen_dataset_ops.py /tensorflow_datasets/ /seqio/ /t5/data/", ""),
    ("loader", "/PIL/ /cv2/ /decord/ /torchaudio/ /torchvision/io/ /turbojpeg.py /soundfile.py", ""),
    ("device", "/torch/cuda/__init__.py /torch/cuda/streams.py /torch/accelerator/__init__.py /torch_npu/npu/ /torch/xpu/ /torch/mps/ /deepspeed/accelerator/ /habana_frameworks/torch/", "synchronize wait wait_event wait_stream current_stream_synchronize"),
    ("device", "/jax/_src/array.py /jax/_src/api.py /jax/_src/dispatch.py", "_value block_until_ready try_to_block device_get __array__ __float__ __int__ __bool__ __str__ __index__ item tolist"),
    ("device", "/tensorflow/python/framework/ops.py /tensorflow/python/eager/context.py /tensorflow/python/eager/execute.py /tensorflow/python/client/session.py", "numpy _numpy sync_executors async_wait quick_execute _call_tf_sessionrun"),
    ("device", "/torch_xla/core/xla_model.py /torch_xla/torch_xla.py", "mark_step wait_device_ops sync"),
    ("backward", "/torch/autograd/graph.py /torch/autograd/__init__.py /torch/_tensor.py /torch/tensor.py", "_engine_run_backward backward grad"),
    ("filelock", "/filelock/ /fasteners/ /portalocker/ /torch/utils/_filelock.py /torch/utils/file_baton.py /lockfile/ /datasets/utils/_filelock.py", ""),
    ("storage", "/fsspec/ /s3fs/ /gcsfs/ /adlfs/ /ossfs/ /boto3/ /botocore/ /aiobotocore/ /s3transfer/ /s3torchconnector /smart_open/ /google/cloud/storage/ /azure/storage/ /multistorageclient/ /petrel_client/ /oss2/ /minio/ /pyarrow/ /h5py/ /zarr/ /lmdb/ /tensorstore/ /hdfs/ /indexed_dataset.py", ""),
    ("storage", "/tensorflow/python/lib/io/ /tensorflow/python/platform/gfile.py /etils/epath/ /numpy/lib/npyio.py /numpy/lib/format.py /numpy/lib/_npyio_impl.py /numpy/lib/_format_impl.py /numpy/core/memmap.py /numpy/_core/memmap.py", ""),
    ("saving", "/torch/serialization.py", "save _save _legacy_save __exit__ _open_zipfile_writer"),
    ("loading", "/torch/serialization.py", "load _load _legacy_load load_tensor persistent_load"),
    ("saving", "/safetensors/torch.py /safetensors/numpy.py /safetensors/flax.py", "save_file save_model save"),
    ("loading", "/safetensors/torch.py /safetensors/numpy.py /safetensors/flax.py", "load_file load_model load"),
    ("saving", "/torch/distributed/checkpoint/state_dict_saver.py /torch/distributed/checkpoint/filesystem.py /torch/distributed/checkpoint/_async /async_utils.py /filesystem_async.py /checkpoint/filesystem_async", "save _save_state_dict save_state_dict async_save write_data write_metadata _write_item _write_files_from_queue _write_files_per_proc_pipe write_preloaded_data write_preloaded_data_multiproc write_preloaded_data_multithread finish maybe_finalize_async_calls schedule_async_call is_current_async_call_done"),
    ("loading", "/torch/distributed/checkpoint/state_dict_loader.py /torch/distributed/checkpoint/filesystem.py", "load load_state_dict _load_state_dict read_data read_metadata"),
    ("compile", "/torch/_dynamo/convert_frame.py /torch/_dynamo/symbolic_convert.py /torch/_dynamo/output_graph.py /torch/_inductor/compile_fx.py /torch/_inductor/async_compile.py /torch/_inductor/scheduler.py /torch/_inductor/graph.py /torch/_inductor/select_algorithm.py /torch/_inductor/cpp_builder.py /torch/_inductor/compile_worker/", ""),
    ("compile", "/torch/utils/cpp_extension.py /torch/utils/_cpp_extension_versioner.py /triton/compiler/ /triton/runtime/autotuner.py /triton/runtime/build.py /deepspeed/ops/op_builder/ /megatron/fused_kernels/ /megatron/legacy/fused_kernels/ /jax/_src/compiler.py /jax/_src/compilation_cache.py /jax/_src/interpreters/mlir.py /numba/core/ /cupy/cuda/compiler.py /tilelang/ /cutlass/ /nvrtc", ""),
    ("compile", "/torch/_inductor/codecache.py /triton/runtime/jit.py /jax/_src/interpreters/pxla.py", "compile _compile load _do_compile compile_fx_graph write_atomic _hlo_compile _cached_compilation from_hlo"),
    ("network", "/huggingface_hub/ /wandb/ /mlflow/ /comet_ml/ /neptune/ /clearml/ /swanlab/ /datasets/load.py /datasets/download/ /datasets/utils/file_utils.py /modelscope/hub/ /paramiko/ /redis/ /pymongo/ /psycopg2/ /pymysql/ /kubernetes/client/", ""),
    ("fork", "/multiprocessing/popen_fork.py /multiprocessing/popen_spawn_posix.py /multiprocessing/popen_forkserver.py /multiprocessing/forkserver.py", "_launch __init__ ensure_running connect_to_new_process"),
    ("fork", "/subprocess.py", "_execute_child _fork_exec _posix_spawn"),
    ("imports", "<frozen importlib._bootstrap> /importlib/_bootstrap.py", "acquire _lock_unlock_module _acquire_restore __enter__"),
    ("lock", "/logging/__init__.py", "acquire"),
    ("teardown", "/threading.py", "_shutdown"),
    ("teardown", "/multiprocessing/util.py", "_exit_function"),
    ("teardown", "/concurrent/futures/thread.py /concurrent/futures/process.py", "_python_exit"),
)  # fmt: skip
# What stands in Python's own library, and counts only where nothing but such frames is further in.
WEAK: tuple[_Row, ...] = (
    ("thread", "/threading.py", "join _wait_for_tstate_lock _join_os_thread"),
    ("thread", "/multiprocessing/process.py /multiprocessing/popen_fork.py /multiprocessing/pool.py /multiprocessing/spawn.py", "join poll wait get"),
    ("thread", "/concurrent/futures/_base.py /concurrent/futures/thread.py /concurrent/futures/process.py", "result exception wait as_completed shutdown result_iterator _result_or_cancel"),
    ("queue", "/queue.py /multiprocessing/queues.py /multiprocessing/connection.py /multiprocessing/managers.py /selectors.py /select.py", ""),
    ("queue", "/threading.py", "wait wait_for"),
    ("lock", "/threading.py /multiprocessing/synchronize.py /asyncio/locks.py", ""),
    ("subprocess", "/subprocess.py /pexpect/ /sh.py /plumbum/", ""),
    ("events", "/asyncio/base_events.py /asyncio/runners.py /uvloop/ /tornado/platform/asyncio.py", ""),
    ("network", "/socket.py /ssl.py /http/client.py /urllib/request.py /urllib3/ /requests/ /httpx/ /httpcore/ /aiohttp/ /grpc/ /h11/ /h2/ /anyio/ /websocket /ftplib.py /smtplib.py /dns/", ""),
    ("storage", "/pathlib.py /pathlib/ /genericpath.py /posixpath.py /shutil.py /tempfile.py /glob.py /fnmatch.py /gzip.py /bz2.py /lzma.py /zipfile.py /zipfile/ /tarfile.py /mmap.py /fileinput.py /_pyio.py /codecs.py /linecache.py <frozen genericpath> <frozen posixpath>", ""),
    ("storage", "/os.py <frozen os>", "walk makedirs fwalk _walk removedirs scandir"),
)  # fmt: skip
# Native functions, where frames of the C side were taken too.
NATIVE: tuple[tuple[Activity, re.Pattern[str]], ...] = (
    ("gil", re.compile(r"\b(?:take_gil|PyEval_RestoreThread|PyEval_AcquireThread|PyGILState_Ensure)\b")),
    ("rendezvous", re.compile(r"ncclCommInit|ncclGetUniqueId|c10d::(?:TCPStore|FileStore|PrefixStore|Store)\b|TCPClient::|gloo::rendezvous|bootstrap(?:Init|AllGather|Barrier)|hcclCommInit|HcclCommInit")),
    ("collective", re.compile(r"\bp?nccl[A-Z]\w|ProcessGroup(?:NCCL|Gloo|UCC|MPI|HCCL|XCCL|Wrapper)|c10d::Work\b|c10d::Reducer::|\bgloo::|\bMPI_(?:Wait|All|Bcast|Barrier|Reduce|Gather|Scatter|Recv|Send)|\bucp_\w|\b[hH]ccl[A-Z]\w|AllReduceThunk|xla::gpu::Nccl")),
    ("device", re.compile(r"\b(?:cuda|cu|hip)(?:Stream|Device|Event|Ctx)(?:Synchronize|Query|WaitEvent)|\b(?:cuda|cu|hip)Memcpy|\baclrtSynchronize|BlockUntilReady|BlockHostUntilDone|at::native::_local_scalar_dense")),
    ("fork", re.compile(r"^(?:__libc_fork|_?fork|vfork|os_fork\w*|__run_fork_handlers|__malloc_fork_lock_parent)$")),
    ("sleep", re.compile(r"^(?:clock_nanosleep|__clock_nanosleep\w*|nanosleep|usleep|time_sleep|pysleep|sleep)\b")),
    ("filelock", re.compile(r"^(?:flock|fcntl_flock\w*|lockf)\b")),
    ("storage", re.compile(r"^(?:__(?:libc_)?)?(?:open|openat|creat|pread|pwrite|preadv|pwritev|fsync|fdatasync|sync_file_range|sync|syncfs|stat|fstat|lstat|statx|newfstatat|fstatat|getdents|readdir|opendir|rename|renameat\w*|unlink|unlinkat|mkdir|access|truncate|ftruncate|fallocate|msync|io_getevents|io_submit|readlink|statfs|close)(?:64)?(?:_nocancel|_2)?(?:@\S+)?$|\b(?:os_(?:stat|fsync|scandir|listdir|open|rename)\w*|_io_FileIO_\w+|_io_open\w*)")),
    ("lock", re.compile(r"\bPyThread_acquire_lock|\block_PyThread_acquire_lock|\b(?:__)?pthread_mutex_(?:lock|timedlock)|__lll_lock_wait|^(?:__new_)?sem_(?:timed|clock)?wait|pthread_rwlock_\w*lock")),
    ("network", re.compile(r"\b(?:sock_(?:recv|connect|accept|call)\w*|getaddrinfo|gethostbyname\w*|SSL_(?:read|write|do_handshake|connect)|__res_\w+|_ssl__SSLSocket_\w+|curl_\w+)\b")),
    ("subprocess", re.compile(r"^(?:__)?(?:wait4|waitpid|waitid|os_waitpid\w*|do_system|system)\b")),
)  # fmt: skip
_CONTEXTS: tuple[tuple[Context, re.Pattern[str]], ...] = (
    ("saving", re.compile(r"(?i)^_*(?:maybe_|async_|do_|trainer_|finalize_|run_)*(?:save$|(?:save|saving|dump|write|persist|export)_\w*(?:check_?point|ckpt|state|model|weights|pretrained|snapshot))|^_*checkpoint_(?:save|step)|^on_save_checkpoint$")),
    ("loading", re.compile(r"(?i)^_*(?:maybe_|try_|do_)*(?:load|restore|resume|read)_\w*(?:check_?point|ckpt|state_dict|weights|pretrained|snapshot)|^from_pretrained$|^resume(?:_from\w*)?$")),
    ("evaluating", re.compile(r"(?i)(?:^|_)(?:eval|evaluate|evaluation|evaluating|validate|validation|valid|val|inference)(?:_(?:\w*(?:loop|step|epoch|run|model|print|dataset|loader|iter|metrics?|end|start|fn|results?|batch|one\w*|all|and\w*)))?$")),
    ("starting", re.compile(r"^(?:init_process_group|init_distributed|initialize_megatron|_initialize_distributed|setup_distributed|init_dist\w*|initialize_model_parallel|setup_model_and_optimizer)$")),
)  # fmt: skip
_NOT_EVALUATING = re.compile(r"/(?:torch/_dynamo|pydantic|omegaconf|hydra|jsonschema|torch/distributed)/")
_LOADING_NAMES = re.compile(r"(?i)data|loader|fetch|iter(?!ation)|batch|sampler|reader|prefetch|corpus|tokeniz")
_HELPER_THREADS = re.compile(
    r"(?i)QueueFeeder|tqdm|monitor|heartbeat|tensorboard|wandb|SummaryWriter|QueueManager|AsyncHook|ResourceSharer|watchdog|Dummy"
)
_WATCHED_THREADS = re.compile(
    r"(?i)pin_memory|loader|prefetch|autograd|fetch|pt_data|data_?(?:worker|thread|queue)|reader|producer"
)
_WATCHED_FRAMES = re.compile(r"/torch/utils/data/|/torch/autograd/|/prefetch|/data_?loader")
_HOST_LOOPS = re.compile(r"/ray/_private/workers?|/ray/worker\.py|/ray/workers/")
_NATIVE_FILE = re.compile(r"\.so(?:\.[\d.]+)?$|\.(?:c|cc|cpp|cxx|h|hpp|cu|cuh|S|s|pyx)$|^\?\?\?$|^\[|^linux-vdso")
_ADDRESS = re.compile(r"^0x[0-9a-fA-F]+$")
_LIBRARIES = re.compile(
    r"(?:site|dist)-packages/|/lib/python3|^<frozen|^/?(?:torch|threading|queue|multiprocessing|concurrent|selectors|asyncio|socket|ssl"
    r"|contextlib|runpy|importlib|functools|subprocess|logging|accelerate|transformers|datasets|lightning|pytorch_lightning|deepspeed"
    r"|jax|jaxlib|flax|orbax|tensorflow|keras|numpy|webdataset|fsspec|urllib3?|http|requests|ray|horovod)(?:/|\.py$)"
)  # fmt: skip

# Activity → the fault class that it speaks for, the classes that it may be besides, and the words for it.
VERDICTS: Mapping[Activity, tuple[str, tuple[str, ...], str]] = {
    "collective": ("collective_timeout", ("collective_desync",), "waits inside a collective"),
    "p2p": ("collective_timeout", ("collective_desync",), "waits for a send or receive"),
    "backward": ("collective_timeout", ("collective_desync", "gpu_fault"), "waits inside the backward pass"),
    "device": ("collective_timeout", ("collective_desync", "gpu_fault"), "waits for the accelerator"),
    "rendezvous": ("rendezvous", ("nccl_bootstrap", "collective_desync"), "waits to form a group with the other ranks"),
    "loader": ("dataloader_fault", ("storage_io", "data_error"), "waits for its data loader"),
    "storage": ("storage_io", ("disk_full",), "is inside file or object storage"),
    "filelock": ("storage_io", ("deadlock",), "waits for a lock file"),
    "saving": ("checkpoint_save", ("storage_io", "disk_full"), "is writing a checkpoint"),
    "loading": ("checkpoint_load", ("storage_io",), "is reading a checkpoint"),
    "compile": ("deadlock", ("gpu_library",), "is compiling"),
    "lock": ("deadlock", (), "waits for a lock"),
    "gil": ("deadlock", (), "waits for the interpreter's lock"),
    "fork": ("deadlock", ("resource_limit",), "is starting a process"),
    "imports": ("deadlock", ("storage_io",), "is importing a module"),
    "network": ("external_network", ("storage_io",), "waits for a network service"),
    "queue": ("deadlock", ("dataloader_fault",), "waits for another thread or process to hand something over"),
    "thread": ("deadlock", (), "waits for another thread or process to end"),
    "subprocess": ("deadlock", ("external_network",), "waits for a program that it started"),
    "events": ("deadlock", ("external_network",), "waits in an event loop"),
    "sleep": ("straggler", ("collective_desync", "deadlock"), "sleeps"),
    "debugger": ("", (), "stands in a debugger: a person paused it, or a breakpoint was left in"),
    "teardown": ("collective_desync", ("deadlock",), "is ending"),
    "user": ("straggler", ("deadlock", "code_bug"), "is in code of the run"),
    "unknown": ("", (), "has no stack of a main thread"),
}
# Of several who stand outside the crowd, whose activity tells most.
_TELLING: tuple[Activity, ...] = (
    *("gil", "lock", "fork", "imports", "saving", "storage", "loading", "loader", "network", "compile", "subprocess", "queue"),
    *("thread", "sleep", "teardown", "events", "user", "rendezvous", "collective", "p2p", "backward", "device", "filelock"),
    *("debugger", "unknown"),
)  # fmt: skip


# --- values ---


@dataclass(frozen=True, slots=True)
class Stillness:
    """When stacks count as unchanged: over how many rounds, how far apart (seconds), by what share of the ranks."""

    samples: int = 3
    apart: float = 20.0
    share: float = 0.9


@dataclass(frozen=True, slots=True)
class RankStillness:
    """One rank's vote. `rounds`: rounds in a row with the same stacks; `seconds`: the span of them, where times are known."""

    rank: int
    vote: Ballot
    rounds: int
    seconds: float | None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class StackVote:
    """The job's vote, with its numbers. `moving` and `unseen` are ranks as ranges; `since`: still at least since then."""

    vote: Ballot
    detail: str
    still: int = 0
    moving: str = ""
    unseen: str = ""
    observed: int = 0
    since: float | None = None
    ranks: tuple[RankStillness, ...] = ()


@dataclass(frozen=True, slots=True)
class Doing:
    """What a process does, by its stack. `frame`: the frame that tells; `caller`: the nearest frame of the run's own code.

    `fault`: the class that it would be, were it what holds the job up; empty for none. `waiting`: others are waited for.
    """

    activity: Activity
    fault: str
    alternatives: tuple[str, ...]
    reason: str
    frame: Frame | None = None
    caller: Frame | None = None
    context: Context = ""
    waiting: bool = False
    thread: str = MAIN


@dataclass(frozen=True, slots=True)
class StackGroup:
    """Ranks whose main threads stand alike. `ranks` as ranges; `frames` innermost first, native ones left out."""

    ranks: str
    count: int
    first: int
    doing: Doing
    frames: tuple[Frame, ...] = ()


@dataclass(frozen=True, slots=True)
class Outlier:
    """A rank that is not where the crowd is. `sure` is false where it may be there for a good reason."""

    rank: int
    resource: Resource
    doing: Doing
    why: str
    group: int | None = None
    sure: bool = True
    moving: bool | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Ranks beside each other. `crowd` is the index in `groups` of the largest that waits; None where nobody does.

    `outliers` are shown up to a bound, the likeliest first; `outlier_ranks` (ranges) and `outlier_count` are of all.
    `unseen`: expected ranks of which there is no stack. `shared`: most ranks stand outside alike, so no rank is at fault.
    """

    seen: int
    groups: tuple[StackGroup, ...] = ()
    crowd: int | None = None
    outliers: tuple[Outlier, ...] = ()
    outlier_ranks: str = ""
    outlier_count: int = 0
    fault: str = ""
    alternatives: tuple[str, ...] = ()
    reason: str = ""
    unseen: str = ""
    unseen_count: int = 0
    shared: bool = False


@dataclass(frozen=True, slots=True)
class MergedFrame:
    """One line of the merged view. `depth` from 0; `inside` and `outside` are ranks as ranges, cut after some."""

    depth: int
    frame: Frame
    count: int
    inside: str
    outside: str
    folded: int = 0  # frames further in that the bound left out


# --- what a frame is ---


def bare(function: str) -> str:
    """The function's own name: `Queue.get` → `get`; a native one (`c10d::Work::wait`) stays whole."""
    return function if "::" in function else function.rpartition(".")[2]


def _path(file: str) -> str:
    return file if file.startswith(("/", "<")) else "/" + file


@lru_cache(maxsize=65_536)
def _is_native(frame: Frame) -> bool:
    return bool(_NATIVE_FILE.search(frame.file) or _ADDRESS.match(frame.function)) or (
        not frame.file and frame.function == "take_gil"
    )


@dataclass(frozen=True, slots=True)
class _Known:
    """What the tables know of one frame."""

    strong: Activity | None = None
    weak: Activity | None = None
    native: bool = False
    context: Context = ""
    library: bool = False


@lru_cache(maxsize=65_536)
def _known(frame: Frame) -> _Known:
    if _is_native(frame):
        return _Known(strong=_native(frame, strong=True), weak=_native(frame, strong=False), native=True)
    name, path = bare(frame.function), _path(frame.file)
    strong_rows, weak_rows, library = _of_file(frame.file)
    strong = _named(strong_rows, name)
    weak = None if strong else _named(weak_rows, name)
    context = _context(name[:80])
    if context == "evaluating" and _NOT_EVALUATING.search(path):
        context = ""
    return _Known(strong, weak, context=context, library=bool(strong or weak or library))


@lru_cache(maxsize=16_384)
def _context(name: str) -> Context:
    return next((word for word, form in _CONTEXTS if form.search(name)), "")


_DECISIVE_NATIVE: frozenset[Activity] = frozenset({"gil", "rendezvous", "collective", "device"})


def _native(frame: Frame, *, strong: bool) -> Activity | None:
    name = frame.function[:300]
    return next((a for a, form in NATIVE if (a in _DECISIVE_NATIVE) is strong and form.search(name)), None)


_Rows = tuple[tuple[Activity, tuple[str, ...], frozenset[str]], ...]


def _rows(table: tuple[_Row, ...]) -> _Rows:
    return tuple((activity, tuple(files.split()), frozenset(functions.split())) for activity, files, functions in table)


_STRONG_ROWS = _rows(STRONG)
_WEAK_ROWS = _rows(WEAK)


_FileRows = tuple[tuple[Activity, frozenset[str]], ...]


@lru_cache(maxsize=16_384)
def _of_file(file: str) -> tuple[_FileRows, _FileRows, bool]:
    """The rows of both tables that are about this file, and whether it is a library's."""
    path = _path(file[-1000:])
    strong, weak = (
        tuple((activity, functions) for activity, files, functions in rows if any(part in path for part in files))
        for rows in (_STRONG_ROWS, _WEAK_ROWS)
    )
    return strong, weak, bool(_LIBRARIES.search(file))


def _named(rows: _FileRows, name: str) -> Activity | None:
    return next((activity for activity, functions in rows if not functions or name in functions), None)


# --- what one process does ---


@dataclass(frozen=True, slots=True)
class _Read:
    """What one stack says by itself. `place`: it without native frames and without the waiting machinery further in."""

    activity: Activity
    frame: Frame | None
    inner: Frame | None  # the innermost that is neither native nor Python's own waiting
    caller: Frame | None
    context: Context
    leaf: Activity | None  # what its innermost frames do, where a library's frame further out decides
    place: _Place
    loading_data: bool
    idle_worker: bool


@lru_cache(maxsize=16_384)
def _read(frames: tuple[Frame, ...], child: bool) -> _Read:
    frames = _own_part(frames) if child else frames
    leaf, leaf_frame = _leaf(frames)
    at = next((index for index, frame in enumerate(frames) if _known(frame).strong), None)
    strong = None if at is None else _known(frames[at]).strong
    activity: Activity = strong or leaf or "user"
    if leaf == "gil":
        activity, at = "gil", None
    elif strong and leaf in {"fork", "imports"}:
        activity, at = leaf, None
    if at is not None and _is_native(frames[at]):  # its Python caller says more to a reader than a mangled name
        at = next((index for index in range(at, len(frames)) if not _is_native(frames[index])), at)
    frame = frames[at] if at is not None else leaf_frame or next((one for one in frames if not _is_native(one)), None)
    outside = frames[0 if frame is None else frames.index(frame) :]
    context: Context = next((_known(one).context for one in frames if _known(one).context), "")
    return _Read(
        activity,
        frame,
        next((one for one in frames if not (_is_native(one) or _known(one).weak)), None),
        next((one for one in outside if not _known(one).library and not _is_native(one)), None),
        context,
        leaf,
        _place(frames),
        _hands_over_data(outside),
        child and _idle_worker(frames),
    )


def _hands_over_data(frames: Sequence[Frame]) -> bool:
    """Whether the nearest frames that are not Python's own are about data, by their names and their files'."""
    near = [one for one in frames if not (_known(one).weak or _is_native(one))][:3]
    return any(_LOADING_NAMES.search(f"{bare(one.function)[:80]} {one.file.rpartition('/')[2][:80]}") for one in near)


def _own_part(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """A forked child's stack goes on into its parent's: only what is further in than the start of the process is its own."""
    for index, frame in enumerate(frames):
        if bare(frame.function) == "_bootstrap" and _path(frame.file).endswith("/multiprocessing/process.py"):
            return frames[: index + 1]
    return frames


def _leaf(frames: tuple[Frame, ...]) -> tuple[Activity | None, Frame | None]:
    """What the innermost frames do, as far as they are native or Python's own: the outermost of them names it best."""
    found: tuple[Activity | None, Frame | None] = (None, None)
    python = False
    for frame in frames:
        known = _known(frame)
        if known.native:
            kind = known.strong or known.weak
            if kind == "gil":
                return "gil", frame
            if kind and not python and found[0] is None:
                found = (kind, frame)
        elif known.weak:
            better = not python or not (found[0] in {"network", "thread"} and known.weak in {"queue", "lock"})
            found = (known.weak, frame) if better else found
            python = True
        else:
            break
    return found


def _place(frames: tuple[Frame, ...]) -> _Place:
    """Where a thread stands: no native frames, and none of a loop that polls, whose lines differ from look to look."""
    own = [frame for frame in frames if not _is_native(frame)]
    start = next((index for index, frame in enumerate(own) if _known(frame).weak is None), 0)
    return tuple((bare(frame.function), frame.file.rpartition("/")[2], frame.line) for frame in own[start:])


def _idle_worker(frames: tuple[Frame, ...]) -> bool:
    """Whether a loader's worker waits for work: its loop asks its queue, with nothing in between."""
    for frame in frames:
        known = _known(frame)
        if known.native or known.weak:
            continue
        return bool(re.search(r"worker_?loop|_worker$|^worker", bare(frame.function)))
    return True


def doing(sample: StackSample, children: Sequence[StackSample] = ()) -> Doing:
    """What a process does: its main thread, or the thread or child process that this waits for, by their stacks."""
    main = _principal(sample)
    if main is None:
        return _doing("unknown", None, "it has no stack of a main thread")
    read = _read(main.frames, sample.child)
    if read.activity in {"queue", "thread", "events", "loader", "backward", "user"}:
        behind = _behind(sample, main, read, children)
        if behind is not None:
            return behind
    return _said(read, main)


def _principal(sample: StackSample) -> ThreadStack | None:
    """The thread that trains: the main one, unless a host's loop sits there and the run's code is in another."""
    main = next((one for one in sample.threads if one.thread == MAIN and one.frames), None)
    if main is None:
        named = [one for one in sample.threads if one.frames]
        return named[0] if len(named) == 1 else None
    own = next((frame for frame in main.frames if not (_known(frame).native or _known(frame).weak)), None)
    if own is None or not _HOST_LOOPS.search(_path(own.file)):
        return main
    others = [one for one in sample.threads if one is not main and one.frames and not _is_helper(one)]
    return max(others, key=_depth, default=main)


def _depth(thread: ThreadStack) -> tuple[bool, int, str]:
    return _read(thread.frames, child=False).caller is not None, len(thread.frames), thread.thread


def _is_helper(thread: ThreadStack) -> bool:
    return bool(_HELPER_THREADS.search(thread.thread))


def _behind(sample: StackSample, main: ThreadStack, read: _Read, children: Sequence[StackSample]) -> Doing | None:
    """What stands behind a main thread that waits: a stuck child of its loader, or another thread of the process."""
    if read.activity in {"loader", "queue", "thread"}:
        for each in children:
            worker = _principal(each)
            own = _read(worker.frames, child=True) if worker else None
            if worker and own and not own.idle_worker and own.activity not in {"queue", "thread", "events", "fork"}:
                return _of_worker(own, worker, each, read)
    if read.activity == "user":
        return _crossed(sample, main, read)
    found = [
        (other, one)
        for one in sample.threads
        if one is not main and one.frames and not _is_helper(one)
        for other in (_read(one.frames, child=False),)
        if other.activity not in {"queue", "thread", "events", "lock", "user", "unknown"}
    ]
    if read.activity == "loader":
        found = [(other, one) for other, one in found if other.activity in {"storage", "network", "filelock"}]
    if read.activity == "backward":  # the engine's own threads run what backward does
        found = [
            (other, one) for other, one in found if one.thread[:1].isdigit() or _WATCHED_THREADS.search(one.thread)
        ]
    best = min(found, key=lambda pair: (_TELLING.index(pair[0].activity), pair[1].thread), default=None)
    if best is None:
        return None
    told = _said(best[0], best[1])
    words = VERDICTS[read.activity][2]
    return replace(
        told, reason=f"{words}; its thread {best[1].thread or '?'} {told.reason}", caller=read.caller or told.caller
    )


def _of_worker(own: _Read, worker: ThreadStack, sample: StackSample, main: _Read) -> Doing:
    beneath = own.leaf if own.activity == "loader" else own.activity
    told = _said(replace(own, activity="loader"), worker, stuck_in=beneath)
    pid = f" (pid {sample.resource.pid})" if sample.resource.pid is not None else ""
    where = _where(own.inner or own.frame)
    reason = f"waits for its data loader, whose worker{pid} is stuck{where}"
    return replace(told, reason=reason, frame=own.inner or own.frame, caller=main.caller, context=main.context)


def _crossed(sample: StackSample, main: ThreadStack, read: _Read) -> Doing | None:
    """Two threads of the run's own code that both stand idle: likelier a deadlock than a sleep."""
    if main.state != "idle" or read.caller is None:
        return None
    for one in sample.threads:
        if one is main or one.state != "idle" or _is_helper(one) or not one.frames:
            continue
        other = _read(one.frames, child=False)
        if other.activity == "user" and other.caller is not None and other.caller.file == read.caller.file:
            told = _said(read, main)
            reason = f"{told.reason}, idle, and so does its thread {one.thread}{_where(other.caller)}"
            return replace(told, fault="deadlock", alternatives=("straggler", "code_bug"), reason=reason)
    return None


def _where(frame: Frame | None) -> str:
    if frame is None:
        return ""
    line = f":{frame.line}" if frame.line else ""
    file = f" ({frame.file.rpartition('/')[2]}{line})" if frame.file else ""
    return f" in {frame.function[:120]}{file}"


def _doing(activity: Activity, frame: Frame | None, reason: str) -> Doing:
    fault, others, _ = VERDICTS[activity]
    return Doing(activity, fault, others, reason, frame, waiting=activity in WAITING)


def _said(read: _Read, thread: ThreadStack, stuck_in: Activity | None = None) -> Doing:
    """The verdict on one stack by itself."""
    activity = read.activity
    fault, others, words = VERDICTS[activity]
    leaf = stuck_in or read.leaf
    if activity in {"loader", "loading", "saving"} and leaf in {"storage", "filelock", "network"}:
        beneath = "external_network" if leaf == "network" else "storage_io"
        fault, others = beneath, (fault, *(one for one in others if one != beneath))
        words += ", inside file input or output" if leaf != "network" else ", at a network service"
    elif activity in {"storage", "queue", "thread", "user", "sleep", "network"} and read.context in {
        "saving",
        "loading",
    }:
        above: Activity = "saving" if read.context == "saving" else "loading"
        first, rest, said = VERDICTS[above]
        order: tuple[str, ...] = (
            (fault, first) if activity == "storage" else (first, *(one for one in (fault,) if one != "straggler"))
        )
        fault, others, words = order[0], (*order[1:], *(one for one in rest if one not in order)), f"{said}: {words}"
    elif activity == "queue" and read.loading_data:
        fault, others, words = "dataloader_fault", ("deadlock",), "waits for the next batch"
    elif activity == "user" and thread.state == "idle":
        words += ", idle: it sleeps, or waits for a lock, a file or the device"
    elif activity == "user" and thread.state in {"active", "gil"}:
        words += ", at work"
        others = ("code_bug", "deadlock")
    where = read.caller if activity in {"user", "sleep", "lock", "gil"} and read.caller else read.frame
    if activity in {"loader", "saving", "loading"} and read.inner and not _known(read.inner).library:
        where = read.inner
    return Doing(
        activity,
        fault,
        others,
        words + _where(where),
        read.frame,
        read.caller,
        read.context,
        activity in WAITING,
        thread.thread,
    )


# --- probe: do the stacks stand still? ---


def probe_stillness(
    samples: Iterable[StackSample], limits: Stillness | None = None, expected: Iterable[int] = ()
) -> StackVote:
    """Vote on "stacks unchanged over n rounds", for each rank and for the job.

    Only main threads and the threads of loaders and autograd are compared; ids, addresses, states and the lines of loops
    that poll are not. A rank is still when its last n rounds, each at least `apart` seconds after the one before (0.8 of
    that will do; times that are not known count as far enough), are alike. The job is still when the share of ranks is,
    or when all but a few are and these few are what the others wait for.
    """
    limits = limits or Stillness()
    by_rank = _by_rank(samples)
    memo: _Memo = {}
    ranks = tuple(_rank_vote(rank, rounds, limits, memo) for rank, rounds in sorted(by_rank.items()))
    missing = sorted(set(expected) - set(by_rank))
    votes = Counter(one.vote for one in ranks)
    still, moving = votes["yes"], [one.rank for one in ranks if one.vote == "no"]
    observed = still + len(moving)
    unseen = _cut_ranges([*missing, *(one.rank for one in ranks if one.vote == "not_observable")])
    if not observed:
        most = max((one.rounds for one in ranks), default=0)
        why = (
            f"at most {most} rounds of stacks a rank; {limits.samples} are needed" if ranks else "no stacks were taken"
        )
        return StackVote("not_observable", why, unseen=unseen, ranks=ranks)
    few = len(moving) <= max(1, observed // 10) and still >= 2 and _all_wait(by_rank, moving)
    yes = still >= limits.share * observed or few
    detail = f"{still} of {observed} ranks unchanged over {limits.samples} rounds"
    if moving:
        detail += f"; moving: {_cut_ranges(moving)}"
    starts = [one.seconds for one in ranks if one.vote == "yes" and one.seconds is not None]
    ends = [last for rank in by_rank if (last := by_rank[rank][-1].time) is not None]
    since = max(ends) - min(starts) if yes and starts and ends else None
    return StackVote("yes" if yes else "no", detail, still, _cut_ranges(moving), unseen, observed, since, ranks)


def _all_wait(by_rank: Mapping[int, list[StackSample]], moving: Sequence[int]) -> bool:
    """Whether all but those that move wait for others."""
    out = set(moving)
    return all(doing(rounds[-1]).waiting for rank, rounds in by_rank.items() if rank not in out)


def _by_rank(samples: Iterable[StackSample]) -> dict[int, list[StackSample]]:
    """Each rank's main processes, oldest first. A stack whose rank is not known can be set beside no other."""
    found: dict[int, dict[str, StackSample]] = {}
    for each in samples:
        if not each.child and each.resource.rank is not None and each.threads:
            rounds = found.setdefault(each.resource.rank, {})
            known = rounds.get(each.sample)
            if known is None or (each.time, each.source) > (known.time, known.source):  # a round told twice
                rounds[each.sample] = each
    return {rank: sorted(rounds.values(), key=_when) for rank, rounds in found.items()}


def _when(sample: StackSample) -> tuple[bool, float, tuple[tuple[int, str], ...]]:
    """By time where it is known, then by the round's name, numbers in it as numbers."""
    parts = re.findall(r"\d{1,18}|\D+", sample.sample[:120])
    name = tuple((int(part), "") if part.isdigit() else (-1, part) for part in parts)
    return sample.time is not None, sample.time or 0.0, name


def _rank_vote(rank: int, rounds: Sequence[StackSample], limits: Stillness, memo: _Memo) -> RankStillness:
    """Walk back from the newest round for as long as the stacks are those of the newest."""
    places = [_watched(each, memo) for each in rounds]
    if not places[-1]:
        return RankStillness(rank, "not_observable", 0, None, "no main thread in its stacks")
    same = 1
    while same < len(rounds) and places[-1 - same] == places[-1]:
        same += 1
    alike = rounds[len(rounds) - same :]
    counted, seconds = _spaced(alike, limits.apart)
    if counted >= limits.samples:
        return RankStillness(rank, "yes", counted, seconds)
    if same < len(rounds):
        return RankStillness(rank, "no", counted, seconds, "its stack changed")
    return RankStillness(rank, "not_observable", counted, seconds, f"{counted} rounds far enough apart")


def _spaced(alike: Sequence[StackSample], apart: float) -> tuple[int, float | None]:
    """How many of the rounds are far enough from the one counted before, and the seconds between the first and last."""
    counted, last = 0, None
    for each in alike:
        if last is None or each.time is None or each.time - last >= 0.8 * apart:
            counted += 1
            last = each.time
    first, newest = alike[0].time, alike[-1].time
    return counted, newest - first if first is not None and newest is not None else None


_Memo = dict[
    int, tuple[bool, _Place]
]  # by the identity of frames that are kept alive; equal stacks are mostly one value


def _watched(sample: StackSample, memo: _Memo) -> frozenset[tuple[tuple[str, _Place], int]]:
    """Where the threads that matter stand; empty where the main one is not among them."""
    main = _principal(sample)
    if main is None:
        return frozenset()
    found = [(MAIN, _looked_at(main.frames, memo)[1])]
    for one in sample.threads:
        if one is main or not one.frames or _is_helper(one):
            continue
        loads, place = _looked_at(one.frames, memo)
        if loads or _WATCHED_THREADS.search(one.thread):
            found.append(("" if one.thread[:1].isdigit() else one.thread, place))
    return frozenset(Counter(found).items())  # tools list threads in no order that holds


def _looked_at(frames: tuple[Frame, ...], memo: _Memo) -> tuple[bool, _Place]:
    """Whether the stack is one of a loader or of autograd, whatever its thread is called, and where it stands."""
    found = memo.get(id(frames))
    if found is None:
        loads = any(_WATCHED_FRAMES.search(_path(each.file)) for each in frames)
        found = memo[id(frames)] = (loads, _place(frames))
    return found


# --- ranks beside each other ---


@dataclass(frozen=True, slots=True)
class _Stand:
    """Where one rank stands."""

    rank: int
    sample: StackSample
    doing: Doing
    place: _Place


def compare(samples: Iterable[StackSample], expected: Iterable[int] = ()) -> Comparison:
    """Group ranks by where their main threads stand in their newest round, and tell who is not where the crowd is.

    Ranks that wait for others (collectives, device, backward) are the crowd; a rank that does something else is the
    suspect. Where all wait, those that wait at another place than most may be: they ran another collective. Where none
    waits, the job as a whole does one thing, and that is the answer.
    """
    samples = list(samples)
    by_rank = _by_rank(samples)
    unseen = sorted(set(expected) - set(by_rank))
    stands = _stands(by_rank, _children(samples))
    base = Comparison(len(stands), unseen=_cut_ranges(unseen), unseen_count=len(unseen))
    if not stands:
        return replace(base, reason="no stacks with a rank")
    members = _grouped(stands)
    groups = tuple(_group(each) for each in members[:MOST_GROUPS])
    crowd = _crowd(members, len(stands))
    base = replace(base, groups=groups, crowd=crowd if crowd is not None and crowd < len(groups) else None)
    waiting = [index for index, each in enumerate(members) if each[0].doing.waiting or index == crowd]
    outside = [index for index in range(len(members)) if index not in set(waiting)]
    told = _Told(members, by_rank, len(stands))
    if len(stands) == 1 or not waiting or _alike(outside, told):
        return _shared(base, told, outside or waiting)
    if outside:
        return _with_outsiders(base, told, outside, waiting)
    return _all_waiting(base, told, crowd)


@dataclass(frozen=True, slots=True)
class _Told:
    """The groups, largest first, with the rounds of every rank."""

    members: list[list[_Stand]]
    rounds: Mapping[int, list[StackSample]]
    seen: int


def _children(samples: Iterable[StackSample]) -> dict[int, list[StackSample]]:
    found: dict[int, list[StackSample]] = {}
    for each in samples:
        if each.child and each.resource.rank is not None and each.threads:
            found.setdefault(each.resource.rank, []).append(each)
    return found


def _stands(by_rank: Mapping[int, list[StackSample]], children: Mapping[int, list[StackSample]]) -> list[_Stand]:
    found = []
    for rank, rounds in sorted(by_rank.items()):
        newest = rounds[-1]
        main = _principal(newest)
        if main is None:
            continue
        own = sorted(children.get(rank, ()), key=lambda one: (one.resource.pid or 0, one.source))
        latest = [one for one in own if one.sample == newest.sample] or own
        found.append(_Stand(rank, newest, doing(newest, latest), _read(main.frames, child=False).place))
    return found


def _grouped(stands: Iterable[_Stand]) -> list[list[_Stand]]:
    """Ranks that do the same at the same place, the largest group first."""
    groups: dict[object, list[_Stand]] = {}
    for each in stands:
        groups.setdefault((each.place, each.doing.activity, each.doing.fault), []).append(each)
    return sorted(groups.values(), key=lambda group: (-len(group), group[0].rank))


def _group(members: list[_Stand]) -> StackGroup:
    first = members[0]
    main = _principal(first.sample)
    frames = tuple(one for one in (main.frames if main else ()) if not _is_native(one))[:GROUP_FRAMES]
    return StackGroup(_cut_ranges(one.rank for one in members), len(members), first.rank, first.doing, frames)


def _crowd(members: list[list[_Stand]], seen: int) -> int | None:
    """The largest group that waits, by its index.

    Where most ranks stand at one place of the run's code they wait there: a call that ends on the device (`loss.item()`)
    shows nothing of it.
    """
    best = next((index for index, each in enumerate(members) if each[0].doing.waiting), None)
    if len(members[0]) * 2 > seen >= 3 and members[0][0].doing.activity == "user" and len(members) > 1:
        return 0
    return best


def _alike(outside: Sequence[int], told: _Told) -> bool:
    """Whether nearly all ranks stand outside the crowd and do the same."""
    kinds = Counter[Activity]()
    for index in outside:
        kinds[told.members[index][0].doing.activity] += len(told.members[index])
    return bool(kinds) and max(kinds.values()) >= ALL_ALIKE * told.seen


def _shared(base: Comparison, told: _Told, indices: Sequence[int]) -> Comparison:
    """What most ranks do is the job's matter."""
    kinds = Counter[tuple[Activity, str]]()
    for index in indices:
        one = told.members[index][0].doing
        kinds[one.activity, one.fault] += len(told.members[index])
    best = max(kinds, key=lambda kind: (kinds[kind], -_TELLING.index(kind[0]), kind[1]))
    first = next(
        told.members[i][0]
        for i in indices
        if (told.members[i][0].doing.activity, told.members[i][0].doing.fault) == best
    )
    who = f"rank {first.rank}" if told.seen == 1 else f"{kinds[best]} of {told.seen} ranks alike: rank {first.rank}"
    return replace(
        base,
        fault=first.doing.fault,
        alternatives=first.doing.alternatives,
        reason=f"{who} {first.doing.reason}",
        shared=told.seen > 1,
    )


def _with_outsiders(base: Comparison, told: _Told, outside: Sequence[int], waiting: Sequence[int]) -> Comparison:
    order = sorted(outside, key=lambda i: (_TELLING.index(told.members[i][0].doing.activity), -len(told.members[i]), i))
    crowd = told.members[base.crowd if base.crowd is not None else waiting[0]][0]
    count = sum(len(told.members[index]) for index in waiting)
    words = f"{count} of {told.seen} ranks wait (rank {crowd.rank} {crowd.doing.reason})"
    found = [_outlier(told, index, one, words) for index in order for one in told.members[index]]
    first = told.members[order[0]][0]
    fault, others = first.doing.fault, first.doing.alternatives
    moving = found[0].moving
    if moving and first.doing.activity in {"user", "loader", "sleep"} and "straggler" not in (fault, *others):
        others = (*others, "straggler")
    return _outlying(base, found, fault, others, f"rank {first.rank} {first.doing.reason}, while {words}")


def _outlier(told: _Told, index: int, one: _Stand, words: str, *, sure: bool = True) -> Outlier:
    rounds, memo = told.rounds[one.rank], _Memo()
    moving = None if len(rounds) < 2 else len({_watched(each, memo) for each in rounds}) > 1
    group = index if index < MOST_GROUPS else None
    why = f"{one.doing.reason}, while {words}"
    return Outlier(one.rank, one.sample.resource, one.doing, why, group, sure, moving)


def _outlying(
    base: Comparison, found: Sequence[Outlier], fault: str, others: tuple[str, ...], reason: str
) -> Comparison:
    return replace(
        base,
        outliers=tuple(found[:MOST_OUTLIERS]),
        outlier_ranks=_cut_ranges(one.rank for one in found),
        outlier_count=len(found),
        fault=fault,
        alternatives=others,
        reason=reason,
    )


def _all_waiting(base: Comparison, told: _Told, crowd: int | None) -> Comparison:
    """All wait, but perhaps not for the same."""
    crowd = crowd or 0
    main = told.members[crowd][0]
    words = f"{len(told.members[crowd])} of {told.seen} ranks stand elsewhere (rank {main.rank} {main.doing.reason})"
    odd = [
        (index, sure)
        for index, each in enumerate(told.members)
        if index != crowd and (sure := _odd(each, told, crowd)) is not None
    ]
    half = 2 * len(told.members[crowd]) <= told.seen
    if odd and (not half or any(told.members[i][0].doing.context != main.doing.context for i, _ in odd)):
        odd.sort(key=lambda pair: (not pair[1], -len(told.members[pair[0]]), pair[0]))
        sure = any(pair[1] for pair in odd) and not half
        found = [_outlier(told, i, one, words, sure=ok and not half) for i, ok in odd for one in told.members[i]]
        first = told.members[odd[0][0]][0]
        rest: tuple[str, ...] = ("collective_timeout",) if sure else ("collective_timeout", "gpu_fault")
        context = f" ({first.doing.context})" if first.doing.context else ""
        reason = f"rank {first.rank}{context} {first.doing.reason}, while {words}"
        return _outlying(base, found, "collective_desync", rest, reason)
    fault, others, said = main.doing.fault, main.doing.alternatives, main.doing.reason
    if main.doing.context in {"saving", "loading"} and main.doing.activity == "collective":
        above: Activity = "saving" if main.doing.context == "saving" else "loading"
        fault, others = VERDICTS[above][0], (fault, *VERDICTS[above][1])
    if odd:
        fault, others = "collective_desync", ("collective_timeout",)
        said += f"; rank {told.members[odd[0][0]][0].rank} {told.members[odd[0][0]][0].doing.reason}"
    elif base.unseen_count and 2 * base.unseen_count <= told.seen:
        others = ("node_lost", "killed", *others)
        said += f"; of ranks {base.unseen} there is no stack"
    return replace(
        base, fault=fault, alternatives=others, reason=f"all {told.seen} ranks wait: rank {main.rank} {said}"
    )


def _odd(group: list[_Stand], told: _Told, crowd: int) -> bool | None:
    """Whether a group that waits is out of step with the crowd: surely, perhaps, or (None) not.

    Stages of a pipeline wait at different places by design; a wait inside backward or for the device says little.
    """
    one, main = group[0].doing, told.members[crowd][0].doing
    if one.context != main.context and (one.context or main.context):
        return True
    if "p2p" in {one.activity, main.activity}:
        return None
    if one.activity == "rendezvous" or main.activity == "rendezvous":
        return one.activity != main.activity or None
    if one.activity == "collective":
        return len(group) * 3 <= told.seen
    return False if main.activity == "collective" and len(group) * 3 <= told.seen else None


# --- the merged view ---


@dataclass(slots=True)
class _Node:
    """A frame of the tree while it grows. `paths`: the stacks (their numbers) that go through it."""

    frame: Frame
    depth: int
    paths: list[int]
    count: int
    order: tuple[int, ...]
    children: list[_Node]
    folded: int = 0


def merged(samples: Iterable[StackSample], most: int = 200) -> tuple[MergedFrame, ...]:
    """The main threads of all ranks as one tree, outermost frame first, at most `most` lines, largest branches first.

    Each line says which ranks are inside the frame and which are outside, of those with a stack.
    """
    ranks, stacks = _unique(samples)
    every = sorted(rank for each in ranks for rank in each)
    root = _Node(Frame(""), -1, list(range(len(stacks))), len(every), (), [])
    _grow(root, ranks, stacks, most)
    lines: list[MergedFrame] = []
    cache: dict[tuple[int, ...], tuple[str, str]] = {}
    stack = root.children[::-1]
    while stack:
        node = stack.pop()
        key = tuple(node.paths)
        if key not in cache:
            inside = {rank for path in node.paths for rank in ranks[path]}
            cache[key] = (_cut_ranges(inside), _cut_ranges(rank for rank in every if rank not in inside))
        lines.append(MergedFrame(node.depth, node.frame, node.count, *cache[key], folded=node.folded))
        stack.extend(node.children[::-1])
    return tuple(lines)


def _unique(samples: Iterable[StackSample]) -> tuple[list[list[int]], list[tuple[Frame, ...]]]:
    """The different stacks, outermost frame first, each with its ranks; in the order of their lowest rank."""
    found: dict[object, tuple[list[int], tuple[Frame, ...]]] = {}
    for rank, rounds in sorted(_by_rank(samples).items()):
        main = _principal(rounds[-1])
        if main is not None:
            own = tuple(one for one in main.frames if not _is_native(one))[::-1]
            key = tuple(_key(one) for one in own)
            found.setdefault(key, ([], own))[0].append(rank)
    return [ranks for ranks, _ in found.values()], [own for _, own in found.values()]


@lru_cache(maxsize=65_536)
def _key(frame: Frame) -> tuple[str, str, int | None]:
    return bare(frame.function), frame.file.rpartition("/")[2], frame.line


def _grow(root: _Node, ranks: list[list[int]], stacks: list[tuple[Frame, ...]], most: int) -> None:
    """Take the frame with most ranks next until the tree has `most`; what is left over is counted where it hangs."""
    heap: list[tuple[int, tuple[int, ...], _Node, _Node]] = []
    _offer(root, ranks, stacks, heap)
    for _ in range(most):
        if not heap:
            return
        _, _, parent, node = heappop(heap)
        parent.children.append(node)
        parent.folded -= 1
        _offer(node, ranks, stacks, heap)


def _offer(
    node: _Node,
    ranks: list[list[int]],
    stacks: list[tuple[Frame, ...]],
    heap: list[tuple[int, tuple[int, ...], _Node, _Node]],
) -> None:
    """Put the frames further in than this one among those that may be taken next."""
    branches: dict[object, list[int]] = {}
    for path in node.paths:
        if node.depth + 1 < len(stacks[path]):
            branches.setdefault(_key(stacks[path][node.depth + 1]), []).append(path)
    for number, paths in enumerate(branches.values()):
        count = sum(len(ranks[path]) for path in paths)
        child = _Node(stacks[paths[0]][node.depth + 1], node.depth + 1, paths, count, (*node.order, number), [])
        heappush(heap, (-count, child.order, node, child))
    node.folded = len(branches)


_MOST_SPANS = 24


def _cut_ranges(ranks: Iterable[int]) -> str:
    """Ranks as ranges, cut after some, with the number left out."""
    said = ranges(ranks).split(",")
    return (
        ",".join(said)
        if len(said) <= _MOST_SPANS
        else ",".join(said[:_MOST_SPANS]) + f",+{len(said) - _MOST_SPANS} more"
    )
