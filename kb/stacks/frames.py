"""Classifies frames: tables of functions and files across frameworks and their versions, and the lookup of a frame in them.

Names are compared without qualifiers: `Queue.get` is `get`, and `f.<locals>.g` is `g`. Files are compared by their end,
so that a full path and a short one agree. Native frames help to classify a thread, but are skipped when ranks are
compared, because addresses differ.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from kb.model import Frame

Activity = Literal[
    "collective",  # inside an operation that all ranks of a group must join
    "p2p",  # sends to or receives from one rank
    "backward",  # inside the autograd engine, whose own threads wait for the device or for others
    "device",  # waits for the accelerator
    "rendezvous",  # joins the other ranks to form a group
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
    "queue",  # waits for another thread or process to pass something on
    "thread",  # waits for another thread or process to end
    "subprocess",  # waits for a program
    "events",  # an event loop with nothing to do
    "sleep",
    "debugger",  # a debugger waits for a person
    "teardown",  # the process is ending
    "user",  # the run's own code, or code that no table knows
    "unknown",  # no stack of a main thread
]
Context = Literal["", "evaluating", "saving", "loading", "starting"]

StackPlace = tuple[tuple[str, str, int | None], ...]  # a stack as function, file's name and line, innermost first

# --- the tables. Files are parts of a path that starts with "/"; no functions means any ---

_Row = tuple[Activity, str, str]

_COLLECTIVES = (
    "all_reduce all_reduce_coalesced all_gather all_gather_into_tensor all_gather_coalesced all_gather_object "
    "_all_gather_base reduce reduce_scatter reduce_scatter_tensor _reduce_scatter_base reduce_scatter_multigpu "
    "broadcast broadcast_object_list broadcast_multigpu gather gather_object scatter scatter_object_list all_to_all "
    "all_to_all_single barrier monitored_barrier wait _coalescing_manager all_reduce_multigpu all_gather_multigpu"
)
# Frames of a library's own functions: the innermost frame in one of these rows decides.
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
    ("compile", "/torch/utils/cpp_extension.py /torch/utils/_cpp_extension_versioner.py /triton/compiler/ /triton/backends/ /flashinfer/jit/ /torch/_inductor/runtime/triton_heuristics.py /triton/runtime/autotuner.py /triton/runtime/build.py /deepspeed/ops/op_builder/ /megatron/fused_kernels/ /megatron/legacy/fused_kernels/ /jax/_src/compiler.py /jax/_src/compilation_cache.py /jax/_src/interpreters/mlir.py /numba/core/ /cupy/cuda/compiler.py /tilelang/ /cutlass/ /nvrtc", ""),
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
# Frames of Python's own library, which count only if nothing but such frames is further in.
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
# Native functions, if native frames were taken too.
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
    ("network", re.compile(r"\b(?:sock_(?:recv|connect|accept|call)\w*|getaddrinfo|gethostbyname\w*|SSL_(?:read|write|do_handshake|connect)|__res_\w+|_ssl__SSLSocket_\w+|curl_\w+)\b|^(?:__)?(?:libc_)?(?:recv|recvfrom|recvmsg|accept4?)(?:_nocancel)?(?:@\S+)?$")),
    ("subprocess", re.compile(r"^(?:__)?(?:wait4|waitpid|waitid|os_waitpid\w*|do_system|system)\b")),
)  # fmt: skip
_CONTEXTS: tuple[tuple[Context, re.Pattern[str]], ...] = (
    ("saving", re.compile(r"(?i)^_*(?:maybe_|async_|do_|trainer_|finalize_|run_)*(?:save$|(?:save|saving|dump|write|persist|export)_\w*(?:check_?point|ckpt|state|model|weights|pretrained|snapshot))|^_*checkpoint_(?:save|step)|^on_save_checkpoint$")),
    ("loading", re.compile(r"(?i)^_*(?:maybe_|try_|do_)*(?:load|restore|resume|read)_\w*(?:check_?point|ckpt|state_dict|weights|pretrained|snapshot)|^from_pretrained$|^resume(?:_from\w*)?$")),
    ("evaluating", re.compile(r"(?i)(?:^|_)(?:eval|evaluate|evaluation|evaluating|validate|validation|valid|val|inference)(?:_(?:\w*(?:loop|step|epoch|run|model|print|dataset|loader|iter|metrics?|end|start|fn|results?|batch|one\w*|all|and\w*)))?$")),
    ("starting", re.compile(r"^(?:init_process_group|init_distributed|initialize_megatron|_initialize_distributed|setup_distributed|init_dist\w*|initialize_model_parallel|setup_model_and_optimizer)$")),
)  # fmt: skip
_NOT_EVALUATING = re.compile(r"/(?:torch/_dynamo|pydantic|omegaconf|hydra|jsonschema|torch/distributed)/")
_NATIVE_FILE = re.compile(
    r"(?:^|/)python[\d.]*$|\.so(?:\.[\d.]+)?$|\.(?:c|cc|cpp|cxx|h|hpp|cu|cuh|S|s|pyx)$|^\?\?\?$|^\[|^linux-vdso"
)
_ADDRESS = re.compile(r"^0x[0-9a-fA-F]+$")
_LIBRARIES = re.compile(
    r"(?:site|dist)-packages/|/lib/python3|^<frozen|^/?(?:torch|threading|queue|multiprocessing|concurrent|selectors|asyncio|socket|ssl"
    r"|contextlib|runpy|importlib|functools|subprocess|logging|accelerate|transformers|datasets|lightning|pytorch_lightning|deepspeed"
    r"|jax|jaxlib|flax|orbax|tensorflow|keras|numpy|webdataset|fsspec|urllib3?|http|requests|ray|horovod)(?:/|\.py$)"
)  # fmt: skip


# --- classification of a frame ---


def bare(function: str) -> str:
    """Return the function's own name: `Queue.get` → `get`; a native one (`c10d::Work::wait`) stays whole."""
    return function if "::" in function else function.rpartition(".")[2]


def path_of(file: str) -> str:
    """Return the file as a path for looking up the tables' parts."""
    return file if file.startswith(("/", "<")) else "/" + file


@lru_cache(maxsize=65_536)
def is_native(frame: Frame) -> bool:
    """Whether the frame is native: of a shared library, of the interpreter itself, or a bare address."""
    return bool(_NATIVE_FILE.search(frame.file) or _ADDRESS.match(frame.function)) or (
        not frame.file and frame.function == "take_gil"
    )


@dataclass(frozen=True, slots=True)
class FrameTraits:
    """The classification of one frame."""

    strong: Activity | None = None
    weak: Activity | None = None
    native: bool = False
    context: Context = ""
    library: bool = False


@lru_cache(maxsize=65_536)
def traits_of(frame: Frame) -> FrameTraits:
    """Look the frame up in the tables."""
    if is_native(frame):
        return FrameTraits(strong=_native(frame, strong=True), weak=_native(frame, strong=False), native=True)
    name, path = bare(frame.function), path_of(frame.file)
    strong_rows, weak_rows, library = _of_file(frame.file)
    strong = _named(strong_rows, name)
    weak = None if strong else _named(weak_rows, name)
    context = _context(name[:80])
    if context == "evaluating" and _NOT_EVALUATING.search(path):
        context = ""
    return FrameTraits(strong, weak, context=context, library=bool(strong or weak or library))


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
    """Return the rows of both tables that concern this file, and whether it is a library's."""
    path = path_of(file[-1000:])
    strong, weak = (
        tuple((activity, functions) for activity, files, functions in rows if any(part in path for part in files))
        for rows in (_STRONG_ROWS, _WEAK_ROWS)
    )
    return strong, weak, bool(_LIBRARIES.search(file))


def _named(rows: _FileRows, name: str) -> Activity | None:
    return next((activity for activity, functions in rows if not functions or name in functions), None)
