"""What the problem of a node is about, from the name and message of its condition, event or taint.

Compared on 2026-11-30 with the conditions of node-problem-detector (config of 2026-08-22), of the node monitoring agent of
EKS (docs/node-health-issues.adoc of 2026-08-18), of AKS (the page on its node problem detector) and of NVSentinel (its
checks of the kernel log, of DCGM and of adapters, which name the code in the message).
"""

from __future__ import annotations

import re
from typing import Final

from kb.model import Scalar
from kb.parsers.schedulers.jsondocs import integer

_PROBLEMS: Final = (  # subject of a node's condition or reason; the first match counts
    (
        "corrected",
        re.compile(r"(?i)(?<!un)corrected|(?<!un)correctable|\bCE memory|\bMemoryReadError\b|ext4.{0,4}warning"),
    ),  # nothing is lost
    ("nvlink", re.compile(r"S(?:XID|Xid)")),  # of a switch
    ("xid", re.compile(r"(?i)xid")),
    # services that watch or offer the devices; DCGMError of EKS is a lost connection to the host engine
    ("agent", re.compile(r"(?i)device.?plugin|dcgm.{0,3}(?:service|host|engine|connect)|\bDCGMError\b|overlay2")),
    (
        "throttled",
        re.compile(r"(?i)(?:gpu|nvidia|dcgm|clock).{0,40}(?:throttl|thermal|power)|(?:throttl|thermal).{0,40}gpu"),
    ),
    ("pcie", re.compile(r"(?i)gpu.?pcie|PCIe?.?replay")),  # transfers that were repeated
    (
        "gpu_lost",
        re.compile(r"(?i)(?:gpu|(?:neuron|accelerator|nvidia).{0,3}device).{0,3}(?:missing|lost|count)|fall?en.?off"),
    ),
    ("nvlink", re.compile(r"(?i)nvlink|nvswitch|fabric.?(?:manager|error)")),
    (
        "gpu_memory",
        re.compile(
            r"(?i)(?:gpu|dcgm|nvidia|dbe).{0,20}(?:ecc|remap|retire|mem(?:ory)?watch)|double.?bit|DBE\b|(?:hbm|sram|nc)uncorrect"
        ),
    ),
    ("gpu", re.compile(r"(?i)gpu|nvidia|dcgm|accelerat")),
    ("rdma", re.compile(r"\bIB|(?i:infiniband|rdma|roce|mlx5)|\bEFA|NICDriver")),
    ("disk", re.compile(r"(?i)read-?only|ext4|xfs|bad.?block|ioerror|filesystem|nvme|storage")),
    ("hardware", re.compile(r"(?i)mce|memory.?(?:read)?.?error|\becc|hardware|cper")),
    ("pids", re.compile(r"(?i)out.?of.?pids")),
    ("agent", re.compile(r"(?i)frequent\w{0,20}restart|runtime|kubelet")),
    ("blocked", re.compile(r"TaskHung")),
    ("oops", re.compile(r"(?i)oops")),
    ("kernel", re.compile(r"(?i)kernel|deadlock|hung|lockup")),
    ("network", re.compile(r"(?i)network|ipamd")),
)
_XID: Final = re.compile(r"(?i)xid \(pci:([^)\n]{1,40})\)\D{0,40}?(\d{1,3})\b")
_XID_ALONE: Final = re.compile(r"(?i)(?:xid\D{0,12}?|\bErrorCode:)(\d{1,3})(?!\d)")


def node_problem(name: str, message: str) -> dict[str, Scalar]:
    """Return the subject of a node problem, from its name or else its message, and the number of an Xid."""
    found = (problem for text in (name, message) for problem, pattern in _PROBLEMS if pattern.search(text))
    problem = next(found, "other")
    if problem != "xid":
        return {"problem": problem}
    if whole := _XID.search(message):
        return {"problem": problem, "pci": whole[1], "xid": integer(whole[2])}
    alone = _XID_ALONE.search(name) or _XID_ALONE.search(message)
    return {"problem": problem, "xid": integer(alone[1])} if alone else {"problem": "gpu"}
