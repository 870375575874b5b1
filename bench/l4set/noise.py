"""What logs carry though nothing is wrong with the run: warnings, retries that recover, error lines that nobody needs to act on.

Texts of known programs follow their public sources, the others are made up. `where`: boot, steps, eval, save or end;
`who` as in styles.Say, or `one` (some rank of some node), `node` (its agent or kernel), `few` (three nodes at most).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Noise:
    """One kind of noise. `times`: how often at most where it is drawn; `then`: printed a little later, when it has healed."""

    level: str
    channel: str
    place: str
    text: str
    who: str = "one"
    where: str = "steps"
    times: int = 1
    then: str = ""
    accelerator: str = ""


def _rows(*rows: tuple[object, ...]) -> tuple[Noise, ...]:
    return tuple(Noise(*row) for row in rows)  # type: ignore[arg-type]


ERRORS = _rows(
    ("error", "log", "train.storage", "write of @{ckpt}/step_@{step}/part-@{int:0-63} failed: [Errno 5] Input/output error, attempt 1 of 5", "few", "save", 3, "part rewritten after @{int:1-3} attempts"),
    ("error", "log", "metrics.push", "could not push metrics to http://pushgateway:9091: HTTPConnectionPool(host='pushgateway', port=9091): Max retries exceeded with url: /metrics/job/@{job}", "one", "steps", 4),
    ("error", "agent", "", "exec probe /opt/probe/nvme.sh: exit status 127", "node", "steps", 6),
    ("error", "agent", "", "failed to scrape http://127.0.0.1:9400/metrics: context deadline exceeded (Client.Timeout exceeded while awaiting headers)", "node", "steps", 5),
    ("error", "raw", "", "wandb: ERROR Error while calling W&B API: context deadline exceeded (<Response [500]>)", "first", "steps", 3, "wandb: Network error resolved after @{int:1-9}:@{int:10-59}, resuming normal operation."),
    ("error", "raw", "", "E0000 00:00:@{int:1000000000-1799999999}.@{int:100000-999999}   @{int:1000-9999} cuda_dnn.cc:8310] Unable to register cuDNN factory: Attempting to register factory for plugin cuDNN when one has already been registered", "local0", "boot", 1, "", "cuda"),
    ("error", "kernel", "", "nvidia-nvlink: IOCTL error on probe of unused link 17: error -22", "node", "steps", 2),
    ("error", "kernel", "", "mlx5_core 0000:@{hex:2}:00.0: mlx5_cmd_out_err:@{int:700-900}:(pid @{int:1000-9999}): ACCESS_REG(0x805) op_mod(0x1) failed, status bad resource(0x5), syndrome (0x305684), err(-22)", "node", "steps", 9),
    ("error", "kernel", "", "ACPI Error: No handler for Region [POWS] (0000000@{hex:8}) [IPMI] (20210730/evregion-130)", "few", "steps", 4),
    ("error", "kernel", "", "EDAC skx MC@{int:0-3}: HANDLING MCE MEMORY ERROR: 1 CE memory read error on CPU_SrcID#0_MC#1_Chan#0_DIMM#0", "node", "steps", 2),
    ("error", "log", "train.eval", "eval worker @{int:0-7}: sample @{int:1000-99999} skipped, ValueError('empty completion')", "tp0", "eval", 4),
    ("error", "log", "train.data", "shard part-@{int:10000-99999}: crc mismatch in record @{int:1-9000}, record dropped", "one", "steps", 5),
    ("error", "raw", "", 'Exception ignored in: <function _MultiProcessingDataLoaderIter.__del__ at 0x7f@{hex:10}>\nTraceback (most recent call last):\n  File "@{site}/torch/utils/data/dataloader.py", line 1590, in __del__\n    self._shutdown_workers()\nAssertionError: can only test a child process', "one", "eval", 2),
    ("error", "agent", "", "ntp: reach 0 of 3 servers, last offset @{int:1-9} ms", "few", "steps", 2, "ntp: reach 3 of 3 servers"),
    ("error", "raw", "", "ERROR: ld.so: object 'libjemalloc.so.2' from LD_PRELOAD cannot be preloaded (cannot open shared object file): ignored.", "each", "boot"),
    ("error", "log", "profiler", "trace upload failed with 503, will be retried at the next window", "first", "steps", 2),
    ("error", "raw", "", "fatal: not a git repository (or any parent up to mount point /)", "local0", "boot"),
    ("error", "log", "train.ckpt", "old checkpoint step_@{int:100-900} could not be removed: [Errno 39] Directory not empty", "first", "save", 2),
    ("error", "cann", "DRV", "[devdrv_manager.c:@{int:100-900}][@{pid}]get board info failed, dev @{local}, ret 46, not supported on this board", "each", "boot", 1, "", "npu"),
    ("error", "cann", "IDEDH", "[adx_connect.cpp:@{int:40-90}][@{pid}]socket of the profiling service is not there, errno 2", "local0", "steps", 2, "", "npu"),
)  # fmt: skip

WARNINGS = _rows(
    ("warning", "warn", "torch/utils/checkpoint.py:87", "UserWarning: None of the inputs have requires_grad=True. Gradients will be None", "each", "steps"),
    ("warning", "warn", "torch/nn/modules/module.py:1830", "FutureWarning: Using a non-full backward hook when the forward contains multiple autograd Nodes is deprecated and will be removed in future versions.", "one", "steps", 2),
    ("warning", "warn", "torch/distributed/fsdp/_state_dict_utils.py:773", "UserWarning: When using ``NO_SHARD`` for ``ShardingStrategy``, full_state_dict will be returned.", "each", "save"),
    ("warning", "warn", "numpy/core/fromnumeric.py:3504", "RuntimeWarning: Mean of empty slice.", "one", "eval", 3),
    ("warning", "glog", "ProcessGroupNCCL.cpp:4561", "[PG ID 0 PG GUID 0 Rank @{rank}]  using GPU @{local} to perform barrier as devices used by this process are currently unknown. This can potentially cause a hang if this rank to GPU mapping is incorrect. Specify device_id in init_process_group() to force use of a particular device.", "each", "boot", 1, "", "cuda"),
    ("warning", "elastic", "run.py:792", "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default", "node", "boot"),
    ("warning", "raw", "", "huggingface/tokenizers: The current process just got forked, after parallelism has already been used. Disabling parallelism to avoid deadlocks...\nTo disable this warning, you can either:\n\t- Avoid using `tokenizers` before the fork if possible\n\t- Explicitly set the environment variable TOKENIZERS_PARALLELISM=(true | false)", "each", "boot"),
    ("warning", "raw", "", "Token indices sequence length is longer than the specified maximum sequence length for this model (@{int:4100-9000} > 4096). Running this sequence through the model will result in indexing errors", "one", "steps", 3),
    ("warning", "log", "train.loop", "step @{step} took @{real:1-3}x the median, garbage collection was due", "one", "steps", 5),
    ("warning", "log", "train.data", "queue ran empty for @{int:20-900} ms", "tp0", "steps", 8),
    ("warning", "log", "train.data", "read of part-@{int:10000-99999} timed out after 30 s, trying another replica", "one", "steps", 5, "part read from replica @{int:1-3}"),
    ("warning", "log", "train.storage", "slow write: @{real:30-90} s for @{real:2-9} GB", "few", "save", 4),
    ("warning", "agent", "", "gpu @{int:0-7} temperature 8@{int:0-4} C above the soft limit 80 C", "node", "steps", 5, "gpu temperatures back below the soft limit"),
    ("warning", "agent", "", "disk /dev/nvme@{int:0-3}n1 is @{int:85-92} % full", "node", "steps", 4),
    ("warning", "agent", "", "lease renewal took @{int:2-9} s", "node", "steps", 4),
    ("warning", "agent", "", "counter of symbol errors on port @{hca}/1 rose by @{int:1-6}", "node", "steps", 3),
    ("warning", "kernel", "", "perf: interrupt took too long (@{int:2500-9900} > 2500), lowering kernel.perf_event_max_sample_rate to @{int:20-79}000", "node", "steps", 2),
    ("warning", "kernel", "", "TCP: request_sock_TCP: Possible SYN flooding on port @{port}. Sending cookies.  Check SNMP counters.", "node", "boot"),
    ("warning", "kernel", "", "nfs: server store-@{int:1-9} not responding, still trying", "node", "steps", 2, "nfs: server store OK"),
    ("warning", "kernel", "", "NVRM: Xid (PCI:0000:@{hex:2}:00): 63, pid='<unknown>', name=<unknown>, Row Remapper: New row marked for remapping, reset gpu to activate.", "node", "steps", 1, "", "cuda"),
    ("warning", "kernel", "", "workqueue: drm_fb_helper_damage_work hogged CPU for >10000us 4 times, consider switching to WQ_UNBOUND", "few", "steps", 2),
    ("warning", "nccl", "transport/net_ib.cc:@{int:120-140}", "NET/IB : @{hca}:1 Got non-fatal async event: client reregistration(15)", "one", "steps", 2, "", "cuda"),
    ("warning", "nccl", "misc/nvmlwrap.cc:181", "nvmlDeviceGetHandleByPciBusId failed: Not Supported", "one", "boot", 1, "", "cuda"),
    ("warning", "nccl", "graph/xml.cc:@{int:300-500}", "Could not find real path of /sys/class/pci_bus/0000:@{hex:2}/../../0000:@{hex:2}:00.0", "each", "boot", 1, "", "cuda"),
    ("warning", "cann", "HCCL", "[hccl_socket_manager.cc:@{int:100-400}][@{pid}]connect to remote is not done, wait, used @{int:5-60} s of 120 s", "few", "boot", 2, "", "npu"),
    ("warning", "cann", "GE", "[graph_var_manager.cc:@{int:100-900}][@{pid}]variable memory of session @{int:0-3} close to its limit", "one", "steps", 3, "", "npu"),
    ("warning", "cann", "ASCENDCL", "[stream.cpp:@{int:60-160}][@{pid}]aclrtSynchronizeStream took @{int:3000-9000} ms", "one", "steps", 4, "", "npu"),
    ("warning", "warn", "torch_npu/utils/storage.py:38", "UserWarning: TypedStorage is deprecated. It will be removed in the future and UntypedStorage will be the only storage class.", "each", "save", 1, "", "npu"),
    ("warning", "raw", "", "WARNING: destination checkpoint folder exists, files with the same name will be replaced", "first", "save", 2),
    ("warning", "log", "train.amp", "gradient overflow at step @{step}, scale halved", "first", "steps", 3),
    ("warning", "log", "train.eval", "@{int:1-9} sequences were longer than the window and have been cut", "tp0", "eval", 3),
    ("warning", "raw", "", "/bin/sh: warning: setlocale: LC_ALL: cannot change locale (en_US.UTF-8)", "local0", "boot"),
    ("warning", "agent", "", "image pull took @{int:60-400} s", "node", "boot"),
    ("warning", "log", "train.comm", "store: get of key 'barrier/@{int:1-90}' took @{real:3-20} s", "few", "boot", 2),
    ("warning", "raw", "", "pynvml is deprecated, please install nvidia-ml-py", "each", "boot"),
)  # fmt: skip

QUIET = _rows(
    ("info", "log", "train.gc", "collected @{int:1000-99000} objects in @{int:20-400} ms", "each", "steps", 1),
    ("info", "log", "train.data", "epoch boundary, reshuffling with seed @{int:1-9999}", "tp0", "steps", 2),
    ("info", "agent", "", "all probes passed (@{int:12-40} checks, @{int:100-900} ms)", "node", "steps", 9),
    ("info", "agent", "", "port @{hca}/1 state ACTIVE rate @{of:200|400} Gb/s", "node", "boot"),
    ("info", "agent", "", "link @{hca}/1 down", "node", "steps", 1, "link @{hca}/1 up after @{int:1-4} s"),
    ("info", "agent", "", "clocks of gpu @{int:0-7}: sm 1@{int:755-980} MHz, throttle reasons 0x0000000000000000", "node", "steps", 3),
    ("info", "kernel", "", 'audit: type=1400 audit(@{int:1783000000-1793000000}.@{int:100-999}:@{int:100-9000}): apparmor="STATUS" operation="profile_replace" name="cri-containerd.apparmor.d"', "node", "steps", 4),
    ("info", "kernel", "", "python3[@{int:1000-90000}]: segfault handler registered for perf map", "few", "steps", 1),
    ("info", "kernel", "", "mlx5_core 0000:@{hex:2}:00.0 @{nic}: Link up", "node", "boot"),
    ("info", "nccl", "", "comm 0x@{hex:12} rank @{rank} nranks @{dp} - Abort COMPLETE", "each", "end", 1, "", "cuda"),
    ("info", "nccl", "", "@{int:24-32} coll channels, 0 collnet channels, 0 nvls channels, @{int:16-32} p2p channels, 2 p2p channels per peer", "each", "boot", 1, "", "cuda"),
    ("info", "log", "train.storage", "lease of @{ckpt} renewed", "first", "save", 2),
    ("info", "log", "train.storage", "write retried once on @{of:ost12|ost31|ost07}, done", "few", "save", 4),
    ("info", "raw", "", "Connection from monitoring-@{int:1-9}.infra accepted on port 9101", "one", "steps", 4),
    ("info", "log", "train.eval", "cache of prompts warmed in @{real:1-30} s", "first", "eval", 1),
    ("info", "elastic", "agent/server/api.py:710", "[default] Rendezvous complete for workers. restart_count=0", "node", "boot"),
    ("info", "raw", "", "[W&B] heartbeat ok", "first", "steps", 3),
    ("info", "cann", "HCCP", "[rdma_agent.c:@{int:100-700}][@{pid}]qp @{int:10-4000} state RTS, path mtu 4096", "each", "boot", 1, "", "npu"),
    ("debug", "log", "train.alloc", "allocator: reserved @{real:40-70} GiB, largest free block @{real:1-9} GiB", "each", "steps", 1),
    ("debug", "log", "train.comm", "bucket @{int:1-64} flushed in @{real:1-9} ms", "one", "steps", 6),
    ("debug", "log", "train.data", "worker @{int:0-7} rss @{int:900-4000} MB, opened part-@{int:10000-99999}", "tp0", "steps", 4),
    ("debug", "agent", "", "rdma counters @{hca}: out_of_sequence=@{int:0-40} packet_seq_err=@{int:0-3} rnr_nak_retry_err=0", "node", "steps", 6),
    ("debug", "agent", "", "pcie @{hex:2}:00.0 replay=@{int:0-4} width x16 speed 32GT/s", "node", "steps", 4),
    ("debug", "log", "train.ckpt", "planner: @{int:400-9000} write items over @{int:4-64} ranks", "first", "save", 2),
    ("debug", "cann", "HCCL", "[task_exception_handler.cc:@{int:10-90}][@{pid}]register callback, stream @{int:2-90}", "one", "boot", 1, "", "npu"),
    ("debug", "raw", "", 'DEBUG:urllib3.connectionpool:http://10.@{int:0-99}.0.9:9000 "HEAD /ckpt/@{hex:8} HTTP/1.1" 200 0', "tp0", "save", 3),
)  # fmt: skip

ALL = ERRORS + WARNINGS + QUIET

# What a new version or another image brings: harmless, and unknown to the run that it is compared with.
DRIFT = _rows(
    ("warning", "warn", "torch/library.py:357", "UserWarning: Overriding a previously registered kernel for the same operator and the same dispatch key\n  operator: flash_attn::_flash_attn_backward", "each", "boot"),
    ("warning", "raw", "", "DeprecationWarning: pkg_resources is deprecated as an API. See https://setuptools.pypa.io/en/latest/pkg_resources.html", "each", "boot"),
    ("warning", "log", "train.config", "key 'optimizer.foreach' is unknown to this version and ignored", "first", "boot"),
    ("error", "log", "train.config", "schema check: 'data.legacy_mix' should not be set together with 'data.mix'; the latter is used", "first", "boot"),
    ("info", "log", "train.setup", "using the new collective scheduler (beta)", "each", "boot"),
    ("warning", "log", "train.compile", "graph break in block @{int:0-40}: torch.compiler does not support aten._local_scalar_dense.default", "each", "steps"),
    ("warning", "log", "train.compile", "recompiled after a change of shape [@{int:1000-8000}]", "few", "steps", 6),
    ("error", "raw", "", "libibverbs: Warning: couldn't open config directory '/etc/libibverbs.d'.", "each", "boot"),
    ("info", "log", "train.moe", "expert load: max/mean @{real:1-3}", "tp0", "steps", 4),
    ("warning", "log", "train.moe", "capacity exceeded for expert @{int:0-63}, @{int:1-400} tokens dropped", "tp0", "steps", 5),
    ("error", "agent", "", "dcgm: field 1004 is not supported on this device", "node", "steps", 4),
    ("error", "agent", "", "policy engine: rule 'net-quota' could not be evaluated: unknown field", "few", "steps", 5),
    ("warning", "agent", "", "cgroup v1 is deprecated and will be dropped", "node", "boot"),
    ("info", "agent", "", "node label topology.rack changed", "few", "steps", 1),
    ("debug", "log", "train.rope", "yarn factor @{real:1-8} applied up to position @{int:8000-128000}", "first", "boot"),
    ("warning", "log", "train.tokens", "@{int:1-90} unknown bytes in document @{hex:10}", "one", "steps", 6),
    ("error", "log", "train.hooks", "callback 'throughput_to_sheet' raised KeyError('tps') and was switched off", "first", "steps"),
    ("warning", "log", "train.fp8", "amax history of layer @{int:0-60} was reset", "one", "steps", 5),
    ("info", "log", "train.fp8", "scaling factors synchronised over @{dp} ranks", "tp0", "steps", 2),
    ("error", "raw", "", "[libprotobuf ERROR google/protobuf/descriptor_database.cc:642] File already exists in database: caffe2.proto", "local0", "boot"),
    ("warning", "kernel", "", "nvme nvme@{int:0-7}: using unchecked data buffer", "few", "steps", 2),
    ("error", "kernel", "", "snd_hda_intel 0000:00:1f.3: no codecs found!", "few", "boot"),
    ("warning", "log", "train.watch", "heartbeat file is older than @{int:60-120} s", "first", "save", 2),
    ("error", "cann", "PROFILING", "[prof_acl_mgr.cpp:@{int:300-900}][@{pid}]msprof option invalid, profiling is off", "each", "boot", 1, "", "npu"),
    ("warning", "cann", "TBE", "[te_fusion.py:@{int:100-900}][@{pid}]compile cache of op MatMulV2 is missed", "few", "steps", 5, "", "npu"),
    ("info", "raw", "", "[rank@{rank}] tuned gemm table loaded (@{int:20-900} shapes)", "each", "boot"),
)  # fmt: skip


# What single machines say now and then: each kind on few nodes of a job, so that every node has words that no other has.
CHATTER = tuple(
    Noise(level, channel, "", text, "node")
    for level, channel, text in (
        ("info", "kernel", "usb 1-@{int:1-9}: new high-speed USB device number @{int:2-40} using xhci_hcd"),
        ("info", "kernel", "usb 1-@{int:1-9}: USB disconnect, device number @{int:2-40}"),
        (
            "warning",
            "kernel",
            "IPv4: martian source 10.@{int:0-99}.0.255 from 10.@{int:0-99}.0.@{int:2-90}, on dev @{nic}",
        ),
        ("info", "kernel", "systemd[1]: Starting Daily apt download activities..."),
        ("info", "kernel", "systemd[1]: logrotate.service: Deactivated successfully."),
        ("warning", "kernel", "systemd[1]: fwupd-refresh.service: Main process exited, code=exited, status=1/FAILURE"),
        ("error", "kernel", "systemd[1]: Failed to start Refresh fwupd metadata and update motd."),
        (
            "info",
            "kernel",
            "sshd[@{int:1000-90000}]: Accepted publickey for ops from 10.@{int:0-99}.1.@{int:2-90} port @{int:30000-60000} ssh2",
        ),
        (
            "error",
            "kernel",
            "sshd[@{int:1000-90000}]: error: kex_exchange_identification: Connection closed by remote host",
        ),
        ("warning", "kernel", "megaraid_sas 0000:@{hex:2}:00.0: @{int:1000-9000} (battery learn cycle requested)"),
        ("info", "kernel", "md: data-check of RAID array md0"),
        ("info", "kernel", "md: md0: data-check done."),
        ("warning", "kernel", "hrtimer: interrupt took @{int:10000-90000} ns"),
        (
            "warning",
            "kernel",
            "clocksource: timekeeping watchdog on CPU@{int:0-190}: Marking clocksource 'tsc-early' as unstable because the skew is too large:",
        ),
        ("info", "kernel", "perf: AMD IBS detected (0x0000@{hex:4})"),
        ("warning", "kernel", "nf_conntrack: nf_conntrack: table full, dropping packet"),
        (
            "error",
            "kernel",
            "pcieport 0000:@{hex:2}:01.0: AER: Correctable error message received from 0000:@{hex:2}:00.0",
        ),
        ("info", "kernel", "docker0: port @{int:1-9}(veth@{hex:7}) entered disabled state"),
        ("info", "kernel", "overlayfs: idmapped layers are currently not supported"),
        ("warning", "kernel", "process 'usr/bin/node_exporter' started with executable stack"),
        ("error", "kernel", "ipmi_si IPI0001:00: IPMI message handler: Unable to get the device id: -5"),
        ("warning", "kernel", "EDAC amd64: F17h: node @{int:0-7} unganged mode is assumed"),
        ("info", "kernel", "Loading iSCSI transport class v2.0-870."),
        (
            "warning",
            "kernel",
            "mlx5_core 0000:@{hex:2}:00.1: temp_warn:@{int:200-300}:(pid 0): High temperature on sensors with bit set 0x1",
        ),
        ("info", "agent", "log shipper caught up, @{int:1-90} MB behind before"),
        ("warning", "agent", "log shipper is @{int:20-900} s behind"),
        ("info", "agent", "garbage collection of images freed @{int:1-90} GB"),
        ("warning", "agent", "image garbage collection freed nothing, usage stays at @{int:80-89} %"),
        ("error", "agent", "could not read the fan speed of psu @{int:0-5}: i2c timeout"),
        ("error", "agent", "lost connection to the event bus, buffering"),
        ("info", "agent", "event bus connected, @{int:2-90} events flushed"),
        ("info", "agent", "config generation @{int:100-900} applied"),
        ("warning", "agent", "secret rotation is postponed while a job runs"),
        ("error", "agent", "probe 'ib-loopback' is skipped: device busy"),
        ("warning", "agent", "node_exporter was restarted (exit status 2)"),
        ("info", "agent", "maintenance window of next week is announced"),
        ("debug", "agent", "sampler jitter @{int:10-900} ms"),
        ("warning", "agent", "psu @{int:0-5} reports input voltage 19@{int:0-9} V"),
        ("error", "agent", "syslog forwarder: disk queue rotated, @{int:1-90} messages dropped"),
        ("info", "agent", "inlet temperature 2@{int:2-9} C"),
    )
)
