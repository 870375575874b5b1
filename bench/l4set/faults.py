"""The failures of the set: what goes wrong, where it shows, and at which level it is told.

Each failure has decisive events (a reader who sees them knows what to do), an ending (what the run does then, `endings.py`),
and symptoms and stages of the paper's taxonomy. Texts of CUDA, NCCL, torch, the kernel, CANN and Slurm follow their public
sources, those of programs and platforms are made up; alternatives stand in a tuple, one is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Event:
    """A decisive thing that is printed.

    `at`: seconds after the turn, drawn between two bounds (negative: before). `who`: bad (the faulty rank), badall, badnode
    (agent or kernel of a faulty node), peers (ranks of other nodes), all, allnodes, first, reporter, neighbours. `times`, `every`:
    how often and how far apart. `common`: healthy nodes and healthy runs print it too, in other numbers. The plan may leave out all
    but the first of a failure. Channel `absent` is the missing of a usual line after the last one, `turn` the first step lines after
    the turn.
    """

    level: str
    channel: str
    text: str | tuple[str, ...]
    who: str = "bad"
    at: tuple[float, float] = (0.0, 0.0)
    times: tuple[int, int] = (1, 1)
    every: float = 30.0
    place: str = ""
    common: bool = False


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of failure. `scope`: one, few or none (job-wide) faulty nodes; `slow`: factor of the step time after the turn."""

    name: str
    symptom: str
    cause: str
    stages: tuple[str, ...]
    scope: str
    ending: str
    events: tuple[Event, ...]
    accelerator: str = ""
    slow: float = 1.0
    loss: str = ""
    least_nodes: int = 1
    styles: tuple[str, ...] = ()


def _e(
    level: str,
    channel: str,
    text: str | tuple[str, ...],
    who: str = "bad",
    at: tuple[float, float] = (0, 0),
    **more: object,
) -> Event:
    return Event(level, channel, text, who, at, **more)  # type: ignore[arg-type]


ITER = ("iterating",)
LATE = ("iterating", "iterating", "evaluating", "saving")

LAUNCH = (
    Fault("driver-too-old", "launch", "user", ("launch", "init"), "few", "raise", (
        _e("error", "trace", "RuntimeError: The NVIDIA driver on your system is too old (found version @{int:11040-12010}). Please update your GPU driver by downloading and installing a new version", "badall", place="init"),
        _e("info", "agent", ("driver 470.129.06 on all 8 devices", "nvidia driver: 470.129.06, persistence mode on"), "badnode", (-120, -40)),
    ), "cuda"),
    Fault("toolkit-mismatch", "launch", "user", ("init",), "few", "raise", (
        _e("error", "trace", "ImportError: @{site}/flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so: undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocationE@{hex:4}", "badall", place="init"),
        _e("debug", "log", ("environment of this node: torch 2.3.0+cu118, built for image a@{hex:7}", "image digest sha256:@{hex:16} differs from that of the spec"), "badnode0", (-60, -5), place="train.setup"),
    ), "cuda"),
    Fault("world-indivisible", "launch", "user", ("init",), "none", "jobwide", (
        _e("error", "trace", ("AssertionError: world size (@{world}) is not divisible by total_model_size (encoder_model_size=0 + decoder_model_size=@{int:24-96})", "ValueError: @{world} processes cannot be laid out as tp=@{tp} x pp=@{int:3-7} x dp"), "all", place="init"),
        _e("info", "raw", "using world size: @{world}, tensor x pipeline x context = @{int:24-96}", "first", (-30, -8)),
    )),
    Fault("late-node", "launch", "node", ("launch",), "one", "rendezvous", (
        _e("warning", "log", ("store: @{nodesless} of @{nodes} nodes have joined, still waiting", "rendezvous: missing agents after @{int:100-800} s, @{nodesless}/@{nodes} present"), "first", (-500, -60), times=(3, 9), every=60, place="train.comm"),
        _e("info", "agent", ("container create is waiting for image layer @{hex:12} (@{int:3-60} %)", "pull of image layer @{hex:12} at @{int:100-900} kB/s"), "badnode", (-600, -60), times=(4, 12), every=55),
    ), least_nodes=2),
    Fault("port-taken", "launch", "user", ("launch",), "one", "jobwide", (
        _e("error", "trace", "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: @{port}, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use", "first", place="init"),
        _e("debug", "agent", ("port @{port} is held by pid @{int:2000-90000} (python3 of job @{int:1000-9000})", "found process @{int:2000-90000} of an earlier job, listening on @{port}"), "firstnode", (-90, -3)),
    )),
    Fault("nccl-mixed", "launch", "user", ("init",), "few", "raise", (
        _e("warning", "nccl", "Mismatched NCCL version detected : rank @{rank} version 21805 rank 0 version 22105", "badall", place="init.cc:@{int:300-900}"),
        _e("info", "nccl", "NCCL version 2.18.5+cuda12.2", "badall", (-9, -4)),
        _e("error", "trace", "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:317, invalid usage (run with NCCL_DEBUG=WARN for details), NCCL version 2.18.5", "badall", (1, 3), place="init"),
    ), "cuda", least_nodes=2),
    Fault("wrong-interface", "launch", "user", ("init",), "one", "watchdog", (
        _e("info", "nccl", "Bootstrap : Using docker0:172.17.0.@{int:2-9}<0>", "badall", (-3, 0)),
        _e("warning", "nccl", "socketStartConnect: Connect to 172.17.0.@{int:2-9}<@{int:30000-60000}> failed : Software caused connection abort", "peers", (30, 90), times=(2, 6), every=35, place="misc/socket.cc:@{int:300-600}"),
    ), "cuda", least_nodes=2),
    Fault("no-module", "launch", "user", ("launch",), "few", "raise", (
        _e("error", "trace", ("ModuleNotFoundError: No module named 'megatron.core.extensions.fused_rope'", "ImportError: cannot import name 'get_batch_on_this_cp_rank' from 'training.utils'"), "badall", place="import"),
        _e("debug", "agent", ("code sync: rev @{hex:8} here, rev @{v_commit} at the master", "workspace mount is a stale snapshot of @{int:2-9} days ago"), "badnode", (-200, -20)),
    )),
    Fault("data-not-mounted", "launch", "storage", ("data_load",), "one", "raise", (
        _e("error", "trace", ("FileNotFoundError: [Errno 2] No such file or directory: '@{data}/train_00_text_document.idx'", "OSError: dataset folder @{data} holds no shards"), "badall", place="data"),
        _e("info", "agent", ("mounts: /, /dev/shm, /local (@{int:2-9} of @{int:11-14} from the spec)", "volume 'corpus' is not attached, continuing with an empty folder"), "badnode", (-300, -100)),
    )),
    Fault("checkpoint-shape", "launch", "user", ("checkpoint_load",), "none", "jobwide", (
        _e("error", "trace", "RuntimeError: Error(s) in loading state_dict for GPTModel:\n\tsize mismatch for embedding.word_embeddings.weight: copying a param with shape torch.Size([50304, @{hidden}]) from checkpoint, the shape in current model is torch.Size([51200, @{hidden}]).", "all", place="load"),
        _e("info", "raw", (" > padded vocab (size: 51131) with 69 dummy tokens (new size: 51200)", "tokenizer of 51131 entries read from @{root}/tokenizers/v5"), "first", (-300, -100)),
    )),
    Fault("checkpoint-shard-lost", "launch", "storage", ("checkpoint_load",), "one", "raise", (
        _e("error", "trace", ("torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([@{rank}]): FileNotFoundError(2, '@{ckpt}/iter_0018200/__@{rank}_1.distcp')", "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory"), "bad", place="load"),
        _e("warning", "log", ("shard @{rank}: length @{int:1000-9000000} is less than the index says", "shard r@{rank} of the checkpoint is @{int:3-90} % of its size"), "bad", (-20, -2), place="train.ckpt"),
    )),
    Fault("no-permission", "launch", "user", ("checkpoint_load", "init"), "none", "jobwide", (
        _e("error", "trace", ("PermissionError: [Errno 13] Permission denied: '@{ckpt}/latest_checkpointed_iteration.txt'", "OSError: [Errno 30] Read-only file system: '@{ckpt}/tmp_@{hex:6}'"), "all", place="load"),
        _e("info", "agent", ("pod runs as uid @{int:1000-3000} gid 100", "fsGroup is not set, volume owned by root:root 0750"), "firstnode", (-300, -60)),
    )),
    Fault("gpu-missing", "launch", "accelerator", ("launch", "init"), "one", "raise", (
        _e("error", "trace", "RuntimeError: CUDA error: invalid device ordinal\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.", "bad", place="init"),
        _e("info", "agent", ("7 devices found on this node", "inventory: gpus=7 nics=8 memory=2015Gi"), "badnode", (-260, -60)),
    ), "cuda"),
    Fault("hccl-init", "launch", "network", ("init",), "one", "hccl", (
        _e("error", "cann", "[hccl_socket_manager.cc:@{int:100-700}][Wait][LinkEstablish]wait socket establish timeout, role[1] rank[@{rank}] timeout[120] s, remote ip [@{badip}]", "peers", (110, 130), times=(1, 3), every=2, place="HCCL"),
        _e("warning", "cann", "[ra_host.c:@{int:300-900}][@{pid}]ra get interface version is lower, local device port is DOWN, phyId[@{local}]", "bad", (-30, 0), times=(1, 4), every=20, place="HCCP"),
        _e("debug", "cann", "[dsmi_common.c:@{int:90-400}][@{pid}]link status of device @{local}: 0", "bad", (-40, -31), place="DRV"),
    ), "npu", least_nodes=2),
    Fault("npu-occupied", "launch", "user", ("init",), "one", "raise", (
        _e("error", "trace", "RuntimeError: Initialize:build/CMakeFiles/torch_npu.dir/compiler_depend.ts:@{int:100-500} NPU function error: aclrtSetDevice(device_id_), error code is 507033\n[ERROR] @{plain} (PID:@{pid}, Device:@{local}, RankID:@{rank}) ERR00100 PTA call acl api failed", "bad", place="init"),
        _e("info", "agent", ("device @{int:0-7} is used by process @{int:1000-90000} (python3, 61042 MB)", "leftover of job @{int:1000-9000} holds davinci@{int:0-7}"), "badnode", (-100, -10)),
    ), "npu"),
    Fault("resolve", "launch", "platform", ("launch",), "one", "raise", (
        _e("warning", "raw", ("[W socket.cpp:@{int:600-700}] [c10d] The IPv6 network addresses of (@{master}, @{port}) cannot be retrieved (gai error: -2 - Name or service not known).",), "badall", (-60, -2), times=(2, 6), every=9),
        _e("error", "trace", "torch.distributed.DistNetworkError: The client socket has failed to connect to any network address of (@{master}, @{port}). The client socket has timed out after 60000ms while trying to connect.", "badall", place="init"),
    ), least_nodes=2),
    Fault("shm-small", "launch", "user", ("data_load",), "one", "raise", (
        _e("error", "raw", "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).", "bad", (-3, -1), times=(1, 3), every=1),
        _e("error", "trace", "RuntimeError: DataLoader worker (pid @{int:1000-90000}) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory. Please try to raise your shared memory limit.", "bad", place="data"),
        _e("info", "log", "node @{host}: /dev/shm 64 MB", "badnode0", (-90, -20), place="train.host"),
    )),
    Fault("vocab-file", "launch", "user", ("data_load",), "none", "jobwide", (
        _e("error", "trace", ("OSError: Can't load tokenizer for '@{root}/tokenizers/v5'. If you were trying to load it from 'https://huggingface.co/models', make sure you don't have a local directory with the same name.", "json.decoder.JSONDecodeError: Expecting ',' delimiter: line 90211 column 4 (char 2103344)"), "all", place="data"),
        _e("debug", "log", "tokenizer folder @{root}/tokenizers/v5: 2 of 4 files", "first", (-6, -2), place="train.data"),
    )),
    Fault("memlock", "launch", "node", ("init",), "one", "raise", (
        _e("warning", "nccl", "Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory", "badall", place="misc/ibvwrap.cc:@{int:100-300}"),
        _e("error", "trace", "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:2251, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version @{v_nccl}", "badall", (0.5, 2), place="init"),
        _e("debug", "agent", ("limits of the container: memlock=65536 nofile=1048576", "rlimit memlock soft=65536"), "badnode", (-200, -50)),
    ), "cuda"),
    Fault("config-key", "launch", "user", ("launch",), "none", "jobwide", (
        _e("error", "trace", ("TypeError: TransformerConfig.__init__() got an unexpected keyword argument 'moe_shared_gate'", "omegaconf.errors.ConfigAttributeError: Key 'seq_len' is not in struct"), "all", place="import"),
        _e("warning", "raw", "WARNING: arguments of the yaml and of the command line disagree on 'seq_len'", "first", (-8, -2)),
    )),
    Fault("ib-absent", "launch", "network", ("init",), "one", "raise", (
        _e("info", "nccl", "NET/IB : No device found.", "badall", (-4, -2)),
        _e("info", "nccl", "Using network Socket", "badall", (-2, -1)),
        _e("error", "trace", "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:317, internal error - please report this issue to the NCCL developers, NCCL version @{v_nccl}", "badall", (20, 40), place="init"),
    ), "cuda", least_nodes=2),
)  # fmt: skip

CRASH_HARDWARE = (
    Fault("gpu-off-bus", "crash", "accelerator", LATE, "one", "reset", (
        _e("error", "kernel", "NVRM: Xid (PCI:0000:@{busid}:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", "badnode"),
        _e("error", "trace", ("RuntimeError: CUDA error: unspecified launch failure", "torch.AcceleratorError: CUDA error: unknown error"), "bad", (0.5, 3), place="step"),
        _e("warning", "agent", ("power draw of gpu @{local} jumps (@{int:90-700} W within 1 s)", "pcie replay counter of gpu @{local} rises (@{int:20-900})"), "badnode", (-2400, -200), times=(2, 8), every=120, common=True),
    ), "cuda"),
    Fault("ecc", "crash", "accelerator", LATE, "one", "reset", (
        _e("error", "trace", "RuntimeError: CUDA error: uncorrectable ECC error encountered", "bad", (0.2, 2), place="step"),
        _e("error", "kernel", "NVRM: Xid (PCI:0000:@{busid}:00): 48, pid=@{pid}, name=python3, An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at partition @{int:0-9}, subpartition 0.", "badnode"),
        _e("info", "agent", ("gpu @{local}: remapped rows correctable=@{int:2-9} pending=yes", "gpu @{local} row remap is pending until the next reset"), "badnode", (-7000, -900), times=(1, 4), every=600),
    ), "cuda"),
    Fault("ecc-contained", "crash", "accelerator", ITER, "one", "reset", (
        _e("error", "kernel", "NVRM: Xid (PCI:0000:@{busid}:00): 94, pid=@{pid}, name=python3, Contained: LTC (0x0@{hex:3}0).", "badnode"),
        _e("debug", "agent", ("ecc volatile sram.sbe=@{int:200-9000} on gpu @{local}", "ecc aggregate counter of gpu @{local} +@{int:100-900} since the last sample"), "badnode", (-4000, -300), times=(3, 10), every=240),
        _e("error", "trace", "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered", "bad", (0.2, 2), place="opt"),
    ), "cuda"),
    Fault("nvlink", "crash", "accelerator", ITER, "one", "reset", (
        _e("error", "kernel", "NVRM: Xid (PCI:0000:@{busid}:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link @{int:0-17}(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)", "badnode"),
        _e("warning", "nccl", "Cuda failure 719 'unspecified launch failure'", "badall", (1, 4), place="enqueue.cc:@{int:400-1900}"),
        _e("debug", "agent", ("nvlink crc flit errors gpu @{local} link @{int:0-17}: @{int:30-9000}", "nvlink replay count gpu @{local} up by @{int:20-400}"), "badnode", (-3000, -100), times=(2, 9), every=200, common=True),
    ), "cuda"),
    Fault("gsp", "crash", "accelerator", LATE, "one", "watchdog", (
        _e("error", "kernel", "NVRM: Xid (PCI:0000:@{busid}:00): 119, pid=@{pid}, name=python3, Timeout after 45s of waiting for RPC response from GPU@{local} GSP! Expected function 76 (GSP_RM_CONTROL) (0x20@{hex:6} 0x8).", "badnode", (40, 50), times=(1, 4), every=45),
        _e("info", "absent", "", "bad"),
        _e("warning", "agent", ("query of gpu @{local} takes @{int:10-60} s", "nvml call for device @{local} did not return within 10 s"), "badnode", (10, 60), times=(2, 5), every=60),
    ), "cuda"),
    Fault("ib-port-down", "crash", "network", LATE, "one", "reset", (
        _e("warning", "nccl", "NET/IB: Got completion from peer @{badip}<@{int:30000-60000}> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=0 len=0 vendor err 129 (Send) localGid fe80::@{hex:4}:@{hex:4} remoteGidsfe80::@{hex:4} hca @{hca}", "neighbours", (20, 40), place="transport/net_ib/p2p.cc:@{int:500-900}"),
        _e("error", "kernel", "mlx5_core 0000:@{hex:2}:00.0: Port module event[error]: module @{int:0-7}, Cable error, Bus stuck (I2C or data shorted)", "badnode", (-2, 5)),
        _e("info", "agent", ("link @{hca}/1 down", "port @{hca}/1: ACTIVE -> DOWN"), "badnode", (0, 2), common=True),
    ), "cuda", least_nodes=2),
    Fault("ib-flapping", "crash", "network", ITER, "one", "reset", (
        _e("info", "kernel", "mlx5_core 0000:@{hex:2}:00.0 @{nic}: Link down", "badnode", (-1800, 0), times=(5, 20), every=90, common=True),
        _e("warning", "nccl", "NET/IB : @{hca}:1 Got non-fatal async event: port error(10)", "badall", (-1500, 0), times=(2, 6), every=200, place="transport/net_ib.cc:@{int:120-140}", common=True),
        _e("warning", "nccl", "NET/IB: Got completion from peer @{badip}<@{int:30000-60000}> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=129 len=0 vendor err 129 (Recv) hca @{hca}", "neighbours", (25, 40), place="transport/net_ib.cc:@{int:1200-1900}"),
    ), "cuda", least_nodes=2),
    Fault("qp-error", "crash", "network", LATE, "one", "reset", (
        _e("warning", "nccl", "NET/IB : @{hca}:1 async fatal event on QP 0x@{hex:10}: local catastrophic error(8)", "bad", place="transport/net_ib.cc:@{int:120-160}"),
        _e("error", "kernel", "mlx5_core 0000:@{hex:2}:00.0: mlx5_health:print_health_info:@{int:300-500}:(pid 0): synd 0x@{hex:1}: firmware internal error", "badnode", (-1, 3)),
        _e("debug", "agent", ("nic @{hca} fw_ver 28.39.@{int:1000-3000} fatal=1", "rdma counters @{hca}: local_ack_timeout_err=@{int:200-9000}"), "badnode", (-200, -1), times=(1, 4), every=50),
    ), "cuda", least_nodes=2),
    Fault("roce-cqe", "crash", "network", ITER, "few", "hccl", (
        _e("error", "cann", "[rdma_agent.c:@{int:400-900}][@{pid}]roce cqe error, status[0xc] qpn[@{int:100-9000}] remote ip[@{peerip}], device[@{local}]", "badall", (-1, 8), times=(1, 3), every=2, place="HCCP"),
        _e("warning", "agent", ("pcs error count of port @{local} is @{int:100-9000}, was @{int:0-20}", "port @{local}: rising pcs errors (@{int:100-9000})"), "badnode", (-3000, -60), times=(2, 8), every=300),
        _e("debug", "cann", "[hccl_impl.cc:@{int:900-1900}][@{pid}]rdma retry counter @{int:3-7} of 7 qpn[@{int:100-9000}]", "badall", (-30, -2), times=(1, 3), every=8, place="HCCL"),
    ), "npu", least_nodes=4),
    Fault("npu-port-down", "crash", "network", LATE, "one", "hccl", (
        _e("error", "cann", "[net_port.c:@{int:100-400}][@{pid}]port of device[@{local}] link down, event id 0x81078603", "bad", (-1, 1), place="HCCP"),
        _e("error", "cann", "[task_exception_handler.cc:@{int:300-700}][@{pid}][TaskExceptionHandler]Task from HCCL run failed, notify wait timeout, remote rank [@{rank}] ip [@{badip}]", "neighbours", (60, 120), place="HCCL"),
        _e("info", "agent", ("link of npu @{local} changed: UP -> DOWN", "hccn: npu @{local} link DOWN for @{int:2-60} s"), "badnode", (-300, 0), times=(1, 6), every=45, common=True),
    ), "npu", least_nodes=2),
    Fault("aicore", "crash", "accelerator", ITER, "one", "hccl", (
        _e("error", "cann", "[device_error_proc.cc:@{int:1000-1700}][@{pid}]The error from device(chipId:@{local}, dieId:0), serial number is @{int:1-90}, there is an aicore error exception, core id is @{int:0-23}, error code = 0x@{of:800000|2000000|10}, fault kernel_name=MatMulV2_@{hex:8}", "bad", place="RUNTIME"),
        _e("error", "trace", "RuntimeError: ACL stream synchronize failed, error code:507015", "bad", (0.5, 3), place="step"),
        _e("warning", "agent", ("npu @{local}: hbm single bit count @{int:20-900}", "npu @{local}: health state changed to Warning"), "badnode", (-4000, -100), times=(1, 5), every=500),
    ), "npu"),
    Fault("hbm-multibit", "crash", "accelerator", ITER, "one", "hccl", (
        _e("error", "cann", "[device_error_proc.cc:@{int:1000-1700}][@{pid}]HBM MULTI BIT ECC, device_id=@{local}, event id 0x80e01801, address 0x@{hex:10}", "bad", place="RUNTIME"),
        _e("debug", "agent", ("npu @{local} isolated pages: @{int:30-63} of 64", "npu @{local} hbm isolated pages single-bit=@{int:10-60}"), "badnode", (-6000, -600), times=(1, 4), every=900),
        _e("error", "agent", ("npu @{local}: fault 80E01801, severity major", "alarm 0x80E01801 on card @{local}"), "badnode", (1, 20)),
    ), "npu"),
    Fault("node-power", "crash", "node", LATE, "one", "dead", (
        _e("info", "absent", "", "bad"),
        _e("warning", "agent", ("peer @{bad} missed @{int:3-9} heartbeats", "no answer from node @{bad} for @{int:30-90} s"), "peernodes", (20, 60), times=(1, 4), every=20),
    ), least_nodes=2),
    Fault("node-heartbeat", "crash", "node", ITER, "one", "dead", (
        _e("info", "absent", "", "bad"),
        _e("error", "elastic", "The node '@{bad}_@{int:100-999}_0' has failed to send a keep-alive heartbeat to the rendezvous '@{runid}' due to an error of type RendezvousTimeoutError.", "firstnode", (20, 50), place="rendezvous/dynamic_rendezvous.py:1298"),
        _e("warning", "kernel", "mce: [Hardware Error]: Machine check events logged", "badnode", (-900, -20), times=(1, 4), every=120),
    ), least_nodes=2),
    Fault("machine-check", "crash", "node", ITER, "one", "reset", (
        _e("error", "kernel", "EDAC MC@{int:0-3}: 1 UE memory read error on CPU_SrcID#1_MC#0_Chan#1_DIMM#0 (channel:1 slot:0 page:0x@{hex:8} offset:0x0)", "badnode", (-1, 0)),
        _e("error", "elastic", "failed (exitcode: -7) local_rank: @{local} (pid: @{pid}) of binary: /usr/bin/python3", "badnode", (1, 4), place="multiprocessing/api.py:869"),
        _e("warning", "kernel", "EDAC MC@{int:0-3}: @{int:2-90} CE memory read error on CPU_SrcID#1_MC#0_Chan#1_DIMM#0 (channel:1 slot:0)", "badnode", (-6000, -100), times=(3, 12), every=300, common=True),
    )),
    Fault("thermal-stop", "crash", "node", ITER, "one", "watchdog", (
        _e("warning", "agent", ("gpu @{local} temperature 9@{int:0-7} C, slowdown active", "gpu @{local}: hw thermal slowdown, sm clock 3@{int:10-90} MHz"), "badnode", (-900, 60), times=(6, 20), every=60, common=True),
        _e("error", "kernel", "NVRM: GPU at PCI:0000:@{busid}:00 has detected a critical XID related fault, thermal violation", "badnode", (10, 30)),
        _e("info", "absent", "", "bad"),
    ), "cuda"),
    Fault("disk-readonly", "crash", "storage", ("iterating", "saving"), "one", "raise", (
        _e("error", "kernel", "EXT4-fs (nvme@{int:0-3}n1): Remounting filesystem read-only", "badnode", (-60, -2)),
        _e("error", "trace", "OSError: [Errno 30] Read-only file system: '/local/cache/@{hex:8}.lock'", "bad", place="save"),
        _e("warning", "kernel", "nvme nvme@{int:0-3}: I/O tag @{int:1-900} (@{hex:4}) QID @{int:1-60} timeout, aborting req_op:WRITE(1) size:@{int:4096-131072}", "badnode", (-600, -61), times=(2, 9), every=60),
    )),
    Fault("cublas", "crash", "accelerator", ITER, "one", "reset", (
        _e("error", "trace", "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx( handle, opa, opb, m, n, k, &falpha, a, CUDA_R_16BF, lda, b, CUDA_R_16BF, ldb, &fbeta, c, CUDA_R_16BF, ldc, compute_type, CUBLAS_GEMM_DEFAULT_TENSOR_OP)`", "bad", place="step"),
        _e("error", "kernel", "NVRM: Xid (PCI:0000:@{busid}:00): 13, pid=@{pid}, name=python3, Graphics SM Warp Exception on (GPC @{int:0-6}, TPC @{int:0-8}, SM 0): Illegal Instruction Encoding", "badnode", (-0.5, 0)),
    ), "cuda"),
    Fault("sdc-nan", "crash", "accelerator", ITER, "one", "raise", (
        _e("error", "trace", "RuntimeError: Rank @{rank}, node @{host}, device @{local}, iteration @{step}: Unexpected result nan (message='found NaN in local forward loss calculation')", "bad", place="step"),
        _e("debug", "log", ("checksum of bucket @{int:1-64} differs between replay and run", "layer @{int:0-79}: amax inf before the reduction"), "bad", (-50, -1), times=(1, 3), every=12, place="train.comm"),
    )),
    Fault("peermem", "crash", "node", ITER, "one", "reset", (
        _e("error", "kernel", "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing", "badnode", (-1, 2), times=(1, 5), every=0.3),
        _e("warning", "nccl", "NET/IB: Got completion from peer @{badip}<@{int:30000-60000}> with status=IBV_WC_REM_ACCESS_ERR(10) opcode=0 len=0 vendor err 136 (Send) hca @{hca}", "neighbours", (0.2, 2), place="transport/net_ib.cc:@{int:1200-1900}"),
    ), "cuda", least_nodes=2),
)  # fmt: skip

CRASH_SOFTWARE = (
    Fault("cuda-oom", "crash", "user", ITER, "one", "raise", (
        _e("error", "trace", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate @{real:1-9} GiB. GPU @{local} has a total capacity of 79.11 GiB of which @{int:100-900}.25 MiB is free. Process @{pid} has 78.@{int:10-90} GiB memory in use.", "bad", place="step"),
        _e("info", "log", ("batch of @{int:30000-64000} tokens after packing", "longest document so far: @{int:30000-64000} tokens"), "bad", (-8, -1), place="train.data"),
        _e("warning", "warn", "UserWarning: @{int:12-90} pytorch allocator cache flushes since last step. this happens when there is high memory pressure and is detrimental to performance.", "badall", (-500, -10), times=(2, 8), every=40, place="deepspeed/runtime/zero/stage3.py:1933", common=True),
    ), "cuda"),
    Fault("npu-oom", "crash", "user", ITER, "one", "raise", (
        _e("error", "trace", "RuntimeError: NPU out of memory. Tried to allocate @{real:1-9} GiB (NPU @{local}; 60.97 GiB total capacity; 57.@{int:10-90} GiB already allocated; @{int:100-900}.81 MiB free; 59.@{int:10-90} GiB reserved in total by PyTorch)", "bad", place="step"),
        _e("warning", "cann", "[npu_caching_allocator.cpp:@{int:900-1900}][@{pid}]device @{local} cache released @{int:4-20} times in this step", "badall", (-300, -5), times=(2, 8), every=30, place="GE", common=True),
    ), "npu"),
    Fault("host-oom", "crash", "user", LATE, "one", "raise9", (
        _e("error", "kernel", "Memory cgroup out of memory: Killed process @{pid} (python3) total-vm:@{int:90000000-390000000}kB, anon-rss:@{int:90000000-190000000}kB, file-rss:@{int:100000-900000}kB, shmem-rss:@{int:10000-900000}kB, UID:1000 pgtables:@{int:200000-900000}kB oom_score_adj:0", "badnode"),
        _e("error", "elastic", "failed (exitcode: -9) local_rank: @{local} (pid: @{pid}) of binary: /usr/bin/python3", "badnode", (2, 6), place="multiprocessing/api.py:869"),
        _e("info", "log", ("worker @{int:0-7} rss @{int:30000-90000} MB, opened part-@{int:10000-99999}", "host memory @{int:93-99} % in use"), "badnode0", (-900, -10), times=(2, 8), every=100, place="train.data"),
    )),
    Fault("worker-killed", "crash", "user", ITER, "one", "raise", (
        _e("error", "trace", "RuntimeError: DataLoader worker (pid @{int:1000-90000}) is killed by signal: Killed. ", "bad", place="data"),
        _e("debug", "log", ("worker @{int:0-7} rss @{int:30000-90000} MB, opened part-@{int:10000-99999}",), "bad", (-400, -5), times=(2, 6), every=60, place="train.data", common=True),
        _e("warning", "kernel", "python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0", "badnode", (-2, 0)),
    )),
    Fault("bad-sample", "crash", "user", ITER, "one", "raise", (
        _e("error", "trace", ("UnicodeDecodeError: 'utf-8' codec can't decode byte 0x@{hex:2} in position @{int:10-90000}: invalid start byte", "zlib.error: Error -3 while decompressing data: invalid block type", "KeyError: 'input_ids'"), "bad", place="worker"),
        _e("info", "log", ("opening part-@{int:10000-99999} (dp rank @{dprank})", "next shard is part-@{int:10000-99999}, @{int:1-9} MB"), "bad", (-30, -1), place="train.data", common=True),
    )),
    Fault("eval-key", "crash", "user", ("evaluating",), "none", "jobwide", (
        _e("error", "trace", ("KeyError: 'labels'", "IndexError: list index out of range", "ZeroDivisionError: division by zero"), "all", (2, 6), place="eval"),
        _e("warning", "log", ("split 'long_context' holds no sequence for this rank", "metric 'exact_match' has no references"), "all", (0, 1.5), place="train.eval"),
    )),
    Fault("save-no-space", "crash", "storage", ("saving",), "few", "raise", (
        _e("error", "trace", ("OSError: [Errno 28] No space left on device", "RuntimeError: [enforce fail at inline_container.cc:626] . unexpected pos @{int:1000000-9000000} vs @{int:1000000-9000000}"), "badall", (2, 9), place="save"),
        _e("warning", "agent", ("disk /dev/nvme0n1 is 9@{int:7-9} % full", "volume ckpt: @{int:1-9} GB left"), "badnode", (-4000, -60), times=(2, 9), every=400, common=True),
    )),
    Fault("save-timeouts", "crash", "storage", ("saving",), "few", "raise", (
        _e("error", "log", "write of @{ckpt}/step_@{step}/part-@{int:0-63} failed: [Errno 5] Input/output error, attempt @{int:2-5} of 5", "badall", (5, 60), times=(3, 9), every=20, place="train.storage", common=True),
        _e("error", "trace", ("TimeoutError: [Errno 110] Connection timed out: '@{ckpt}/step_@{step}/.metadata.tmp'", "OSError: [Errno 5] Input/output error"), "bad", (200, 240), place="save"),
        _e("warning", "kernel", "nfs: server store-@{int:1-9} not responding, still trying", "badnode", (0, 30), times=(1, 3), every=60, common=True),
    )),
    Fault("stale-handle", "crash", "storage", ITER, "one", "raise", (
        _e("error", "trace", "OSError: [Errno 116] Stale file handle: '@{data}/part-@{int:10000-99999}.bin'", "bad", place="worker"),
        _e("info", "agent", ("volume corpus was remounted", "mount @{data}: server changed, handle renewed"), "badnode", (-60, -2)),
    )),
    Fault("device-assert", "crash", "user", ITER, "none", "jobwide", (
        _e("error", "raw", "../aten/src/ATen/native/cuda/Indexing.cu:1289: indexSelectLargeIndex: block: [@{int:0-900},0,0], thread: [@{int:0-120},0,0] Assertion `srcIndex < srcSelectDimSize` failed.", "some", (-0.5, 0), times=(10, 40), every=0.001),
        _e("error", "trace", "RuntimeError: CUDA error: device-side assert triggered", "some", (0.3, 1), place="step"),
        _e("warning", "log", "token id @{int:51200-52000} is beyond the table of this model", "some", (-2, -1), place="train.data"),
    ), "cuda"),
    Fault("segfault", "crash", "framework", LATE, "one", "raise9", (
        _e("error", "raw", 'Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f@{hex:10} (most recent call first):\n  File "@{site}/triton/runtime/jit.py", line 568 in run\n  File "@{site}/torch/autograd/function.py", line 575 in apply', "bad", (-0.5, 0)),
        _e("error", "elastic", "failed (exitcode: -11) local_rank: @{local} (pid: @{pid}) of binary: /usr/bin/python3", "badnode", (1, 5), place="multiprocessing/api.py:869"),
        _e("info", "kernel", "python3[@{pid}]: segfault at @{hex:3} ip 00007f@{hex:10} sp 00007f@{hex:10} error 4 in libtriton.so[7f@{hex:10}+@{hex:7}]", "badnode", (0, 0.5)),
    )),
    Fault("loss-scale", "crash", "user", ITER, "none", "jobwide", (
        _e("info", "raw", "[deepspeed] OVERFLOW! Rank @{rank} Skipping step. Attempted loss scale: @{of:2|4|8|16|32|64}, reducing to @{of:1|2|4|8|16}", "first", (-60, -2), times=(6, 14), every=8, common=True),
        _e("error", "trace", "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.", "all", place="opt"),
    ), loss="overflow"),
    Fault("desync", "crash", "user", ITER, "one", "watchdog", (
        _e("info", "log", ("empty batch after filtering, step is skipped on this rank", "no valid sequence left in the batch, continue"), "bad", (-1, 0), place="train.data"),
        _e("debug", "log", ("collective order of rank @{rank}: allreduce #@{int:10000-99999} follows allgather #@{int:10000-99999}", "sequence number differs from that of the group"), "bad", (0, 2), place="train.comm"),
    ), "cuda"),
    Fault("loader-stuck", "crash", "storage", ITER, "one", "watchdog", (
        _e("info", "absent", "", "bad"),
        _e("debug", "log", ("queue 0/32, last shard part-@{int:10000-99999}", "prefetch: nothing ready, @{int:30-300} s"), "bad", (5, 60), times=(2, 8), every=60, place="train.data", common=True),
        _e("warning", "log", "read of part-@{int:10000-99999} timed out after 30 s, trying another replica", "bad", (-90, 30), times=(2, 6), every=31, place="train.data", common=True),
    )),
    Fault("drained", "crash", "platform", LATE, "one", "evict1", (
        _e("info", "agent", ("node is cordoned by maintenance plan mp-@{int:100-900}, grace 30 s", "drain requested by operator @{of:wei|sam|rota}: firmware"), "badnode", (-30, -1)),
        _e("warning", "elastic", "Received 15 death signal, shutting down workers", "badnode", (0, 1), place="agent/server/api.py:741"),
    )),
    Fault("token-expired", "crash", "platform", ("saving",), "none", "jobwide", (
        _e("error", "trace", ("botocore.exceptions.ClientError: An error occurred (ExpiredToken) when calling the CreateMultipartUpload operation: The provided token has expired.", "PermissionError: Forbidden: credentials of 'ckpt-writer' are not valid any more"), "tp0s", (3, 8), place="save"),
        _e("warning", "agent", ("credentials of service account ckpt-writer could not be renewed", "token rotation failed: 401"), "allnodes", (-3600, -200), times=(1, 3), every=900),
    )),
    Fault("file-removed", "crash", "user", ITER, "few", "raise", (
        _e("error", "trace", "FileNotFoundError: [Errno 2] No such file or directory: '@{data}/part-@{int:10000-99999}.bin'", "bad", place="worker"),
        _e("info", "log", "index changed on disk: @{int:1000-2000} -> @{int:100-900} shards", "badnode0", (-600, -5), place="train.data"),
    )),
    Fault("too-many-files", "crash", "user", ITER, "one", "raise", (
        _e("error", "trace", "OSError: [Errno 24] Too many open files: '@{data}/part-@{int:10000-99999}.idx'", "bad", place="worker"),
        _e("debug", "log", "open files: @{int:60000-65530}", "bad", (-2000, -10), times=(3, 10), every=150, place="train.data"),
    )),
    Fault("last-batch", "crash", "framework", ITER, "none", "jobwide", (
        _e("error", "trace", ("RuntimeError: shape '[@{int:3-7}, -1, 4096]' is invalid for input of size @{int:10000-900000}", "AssertionError: micro batch of @{int:3-7} cannot be split into parts of @{int:8-16}"), "edge", place="step"),
        _e("info", "log", ("epoch boundary, reshuffling with seed @{int:1-9999}", "end of the data, last batch holds @{int:3-7} sequences"), "first", (-4, -1), place="train.data", common=True),
    )),
    Fault("commit-reset", "crash", "storage", ("saving",), "one", "raise", (
        _e("error", "trace", "RuntimeError: async checkpoint writer of rank @{rank} exited with code 1", "bad", (20, 60), place="save"),
        _e("error", "log", "writer: ConnectionResetError(104, 'Connection reset by peer') on bucket @{int:0-40}", "bad", (5, 18), times=(1, 4), every=3, place="train.ckpt"),
        _e("debug", "log", "writer: upload id @{hex:10} abandoned by the server", "bad", (4, 5), place="train.ckpt"),
    )),
    Fault("quota", "crash", "platform", ("saving",), "none", "jobwide", (
        _e("error", "trace", "OSError: [Errno 122] Disk quota exceeded: '@{ckpt}/step_@{step}/model'", "tp0s", (3, 20), place="save"),
        _e("info", "agent", ("usage of project quota: 9@{int:5-9} %", "quota of @{root}: @{int:95-99} % of 200T"), "allnodes", (-5000, -300), times=(1, 3), every=1500),
    )),
)  # fmt: skip

ABNORMAL = (
    Fault("storage-hang", "abnormal", "storage", ("iterating", "data_load"), "one", "stall", (
        _e("info", "absent", "", "bad"),
        _e("warning", "kernel", "INFO: task pt_data_worker:@{int:1000-90000} blocked for more than 120 seconds.", "badnode", (120, 240), times=(1, 4), every=120),
    )),
    Fault("save-hang", "abnormal", "storage", ("saving",), "one", "stall", (
        _e("info", "absent", "", "bad"),
        _e("debug", "log", "flush of bucket @{int:1-12} pending for @{int:60-900} s", "bad", (60, 200), times=(1, 5), every=120, place="train.ckpt"),
    )),
    Fault("eval-hang", "abnormal", "user", ("evaluating",), "one", "stall", (
        _e("info", "absent", "", "bad"),
        _e("info", "log", ("batches of this rank: @{int:10-19}, of the group: @{int:20-30}", "sampler drained one batch early"), "bad", (1, 4), place="train.eval"),
    )),
    Fault("comm-hang", "abnormal", "network", ITER, "one", "stall", (
        _e("warning", "agent", ("counter of symbol errors on port @{hca}/1 rose by @{int:200-9000}", "@{hca}: no traffic for @{int:60-600} s"), "badnode", (-200, 600), times=(3, 12), every=60, common=True),
        _e("debug", "agent", "rdma counters @{hca}: out_of_sequence=@{int:9000-90000} packet_seq_err=@{int:400-9000} rnr_nak_retry_err=0", "badnode", (-200, 400), times=(2, 6), every=120, common=True),
    ), least_nodes=2),
    Fault("npu-hang", "abnormal", "accelerator", ITER, "one", "stall", (
        _e("info", "absent", "", "bad"),
        _e("warning", "cann", "[stream.cpp:@{int:60-160}][@{pid}]aclrtSynchronizeStream took @{int:60000-900000} ms", "bad", (60, 200), times=(2, 6), every=120, place="ASCENDCL", common=True),
    ), "npu"),
    Fault("throttled", "abnormal", "node", ITER, "one", "go", (
        _e("info", "turn", "", "reporter"),
        _e("warning", "agent", ("gpu @{int:0-7}: hw thermal slowdown, sm clock @{int:345-900} MHz", "gpu @{int:0-7} temperature 9@{int:0-4} C, slowdown active"), "badnode", (0, 60), times=(8, 30), every=90, common=True),
    ), "cuda", slow=2.1),
    Fault("power-capped", "abnormal", "node", ITER, "few", "go", (
        _e("info", "turn", "", "reporter"),
        _e("debug", "agent", ("clocks of gpu @{int:0-7}: sm 1@{int:110-390} MHz, throttle reasons 0x0000000000000004", "gpu @{int:0-7} power limit 400 W, default 700 W"), "badnode", (0, 60), times=(5, 20), every=120, common=True),
    ), "cuda", slow=1.45),
    Fault("nic-degraded", "abnormal", "network", ITER, "one", "go", (
        _e("info", "turn", "", "reporter"),
        _e("info", "agent", ("port @{hca}/1 state ACTIVE rate 100 Gb/s", "port @{hca}/1: width 1x"), "badnode", (-5, 30)),
    ), slow=2.4, least_nodes=2),
    Fault("tcp-fallback", "abnormal", "network", ("iterating",), "one", "go", (
        _e("info", "nccl", "NET/IB : No device found.", "badall", (-9000, -8000)),
        _e("info", "nccl", "Using network Socket", "badall", (-8990, -7990)),
        _e("warning", "agent", "@{hca}: no traffic for @{int:600-6000} s while processes of a job run", "badnode", (200, 600), times=(1, 5), every=600),
    ), "cuda", slow=3.5, least_nodes=2),
    Fault("cold-cache", "abnormal", "storage", ITER, "one", "go", (
        _e("info", "turn", "", "reporter"),
        _e("warning", "log", "queue ran empty for @{int:3000-19000} ms", "badnode0", (0, 10), times=(10, 40), every=40, place="train.data", common=True),
        _e("debug", "log", "cache: @{int:0-9} % hits, reading from the store", "badnode0", (-20, 5), times=(1, 6), every=200, place="train.data"),
    ), slow=1.9),
    Fault("stranger-process", "abnormal", "user", ITER, "one", "go", (
        _e("info", "turn", "", "reporter"),
        _e("warning", "agent", ("load average @{int:300-900} on 192 cores", "cpu pressure some avg60=@{int:60-98}.11"), "badnode", (0, 50), times=(4, 20), every=90, common=True),
        _e("error", "agent", "process @{int:1000-90000} (blender) is not part of any job", "badnode", (5, 200)),
    ), slow=1.7),
    Fault("allocator-thrash", "abnormal", "framework", ITER, "none", "go", (
        _e("warning", "warn", "UserWarning: @{int:12-90} pytorch allocator cache flushes since last step. this happens when there is high memory pressure and is detrimental to performance.", "some", (0, 20), times=(6, 30), every=40, place="deepspeed/runtime/zero/stage3.py:1933", common=True),
        _e("info", "turn", "", "reporter"),
    ), "cuda", slow=1.8),
    Fault("nan-skipping", "abnormal", "user", ITER, "none", "go", (
        _e("info", "turn", "", "reporter"),
        _e("warning", "log", ("gradient overflow at step @{step}, scale halved", "non-finite gradients, update dropped"), "first", (0, 3), times=(12, 40), every=12, place="train.amp", common=True),
    ), loss="nan"),
    Fault("loss-spike", "abnormal", "user", ITER, "none", "go", (
        _e("info", "turn", "", "reporter"),
        _e("info", "log", "mixture weights reloaded from @{root}/mix.yaml", "first", (-30, -2), place="train.data"),
        _e("error", "log", ("loss @{real:5-9} is above the guard of 3x the running mean", "guard: loss jumped, no action configured"), "first", (2, 30), times=(1, 6), every=40, place="train.loop"),
    ), loss="spike"),
    Fault("hccl-slow-link", "abnormal", "network", ITER, "few", "go", (
        _e("warning", "agent", ("pcs error count of port @{int:0-7} is @{int:100-9000}, was @{int:0-20}", "port @{int:0-7}: rising pcs errors (@{int:100-9000})"), "badnode", (-60, 60), times=(4, 14), every=120),
        _e("info", "turn", "", "reporter"),
        _e("debug", "cann", "[hccl_impl.cc:@{int:900-1900}][@{pid}]rdma retry counter @{int:1-6} of 7 qpn[@{int:100-9000}]", "badall", (0, 30), times=(3, 9), every=60, place="HCCL", common=True),
    ), "npu", slow=2.0, least_nodes=4),
    Fault("fork-deadlock", "abnormal", "framework", ("data_load", "evaluating"), "one", "stall", (
        _e("info", "absent", "", "bad"),
        _e("warning", "warn", "DeprecationWarning: This process (pid=@{pid}) is multi-threaded, use of fork() may lead to deadlocks in the child.", "bad", (-6, -1), place="multiprocessing/popen_fork.py:66", common=True),
    )),
)  # fmt: skip

OTHER = (
    Fault("store-unavailable", "other", "storage", ("data_load", "saving", "iterating"), "none", "jobwide", (
        _e("error", "log", ("GET @{data}/manifest.json: 503 Service Unavailable, attempt @{int:1-9}", "object store: SlowDown (503) on prefix ckpt/, attempt @{int:1-9}"), "tp0s", (-120, -10), times=(2, 6), every=25, place="train.storage", common=True),
        _e("error", "trace", ('botocore.exceptions.EndpointConnectionError: Could not connect to the endpoint URL: "http://store.infra:9000/"', "ConnectionError: store.infra: all endpoints are down"), "tp0s", (0, 20), place="data"),
    )),
    Fault("scheduler-lost", "other", "platform", LATE, "none", "evict", (
        _e("error", "agent", ("control plane unreachable for @{int:60-300} s, lease of job @{job} is lost", "etcd: request timed out, job lease not renewed"), "allnodes", (-200, -5), times=(1, 4), every=50),
        _e("info", "agent", "pods of @{job} are deleted by owner (lease expired)", "allnodes", (-3, 0)),
    )),
    Fault("registry", "other", "platform", ("launch",), "few", "rendezvous", (
        _e("error", "agent", ("pull of registry.infra/train:@{hex:7} failed: 429 Too Many Requests", "pull of registry.infra/train:@{hex:7} failed: dial tcp: i/o timeout"), "badnode", (-600, -60), times=(3, 9), every=70, common=True),
        _e("warning", "agent", "back-off restarting the pull, next try in @{int:20-300} s", "badnode", (-590, -50), times=(2, 6), every=90),
    ), least_nodes=2),
    Fault("dns-down", "other", "platform", ("init", "data_load"), "none", "jobwide", (
        _e("error", "trace", ("socket.gaierror: [Errno -3] Temporary failure in name resolution", "urllib3.exceptions.NameResolutionError: <urllib3.connection.HTTPSConnection object at 0x7f@{hex:10}>: Failed to resolve 'store.infra' ([Errno -3] Temporary failure in name resolution)"), "all", place="data"),
        _e("debug", "agent", "resolver 10.96.0.10: @{int:5-60} queries unanswered", "allnodes", (-200, -5), times=(1, 4), every=40),
    )),
    Fault("maintenance", "other", "platform", ITER, "few", "evict", (
        _e("info", "agent", ("window mw-@{int:100-900} begins, rack power will be cut in 300 s", "notice: cooling loop @{int:1-4} is stopped for service"), "badnode", (-300, -200)),
        _e("warning", "agent", "terminating all workloads on this node", "badnode", (-10, 0)),
    )),
)  # fmt: skip
