"""Output of eBPF programs: bpftrace (JSON lines and text), bcc's offcputime, and bcc's histograms.

The output contains neither host, process nor time. Our own programs print ticks and key their maps by process; for
others the caller passes what it knows, or the file starts with an envelope: one line or one document

    {"schema": "signalbox.ebpf/1", "host": …, "pid": …, "rank": …, "tool": …, "start": …, "end": …, "unit": "us",
    "records": […]}

with the raw output in `records` (objects or lines) or below it. Event kinds: `d_state` (a thread in
uninterruptible sleep for 5 s or more), `stuck_call` (a CUDA or NCCL call, a collective or a pass that has not ended),
`cq_stall` (completion queues polled without a completion), `slow_io`, and `ebpf_line` (any other output).
"""
