"""Infers from a file name who wrote the file (rank, node, kind of source), and which files are not logs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from kb.model import SourceKind, StreamRef
from kb.regex.lazy import lazy_compile

NO_LOG = lazy_compile(
    r"\.(?:py|pyc|so|pt|pth|bin|ckpt|safetensors|npy|npz|png|jpe?g|svg|pdf|zip|tar|tgz|whl|parquet|arrow|sqlite|db)$"
)
ARCHIVE = lazy_compile(r"\.(?:zip|tar|tgz)$")
_RANK = lazy_compile(r"(?<!local)(?:^|[/_.\-])(?:global[_-]?)?rank[-_.]?(\d{1,7})(?=[._\-/]|$)", re.IGNORECASE)
# a file per process of one node, named by its local rank: torchrun's tree, Paddle's launcher, MindSpore's msrun (with
# an underscore, which a pod's name cannot have), torch.distributed.launch with --logdir
TREE = lazy_compile(
    r"(?:(?:^|/)(?:(\d{1,5})/(?:stdout|stderr)\.log|workerlog\.(\d{1,5})(?:\.log)?|worker_(\d{1,5})\.log)"
    r"|(?<![A-Za-z])local_rank_(\d{1,5})(?:_std(?:out|err))?(?:\.log)?)(?:\.\w+)?$"
)
ATTEMPT = lazy_compile(r"(?:^|/)attempt_(\d+)/")
# what a file name contains besides the node name: the kind of text, the rank
_BESIDE = lazy_compile(
    r"(?:^|(?<=[._\-]))(?:dmesg|kern(?:el)?|kmsg|journal\w{0,8}|syslog|messages|slurm(?:[a-z]{0,6}d)?|srun|sbatch|nhc|health|dcgmi?|gpud"
    r"|ibstat|kubelet|containerd|dockerd|systemd|sshd|torchrun|mpirun|console|serial"
    r"|nvidia-smi|py-?spy|pystack|std(?:out|err)|out|err|logs?|(?:global[_-]?)?rank[-_.]?\d{1,7})(?=[._\-]|$)",
    re.IGNORECASE,
)
_ENDING = lazy_compile(r"(?:\.(?:log|txt|out|err|gz|bz2|zst|xz|json)|(?<=[a-z])\.\d{1,3})+$", re.IGNORECASE)
# names as clusters and clouds assign them: whole pods, cloud hosts, addresses, numbered machines
_NODE = lazy_compile(
    r"ip-\d{1,3}(?:-\d{1,3}){3}(?:\.[\w.-]{1,80})?|(?:\d{1,3}\.){3}\d{1,3}"
    r"|(?:[a-z0-9]{1,30}[-_]){0,8}(?:worker|master|chief|node|host)[-_]?\d{1,5}(?:[-_]\d{1,5}){0,3}"
    r"(?:-[bcdfghjklmnpqrstvwxz2456789]{5})?"  # the suffix that Kubernetes gives to a pod
    r"|(?:[a-z0-9]{1,30}-){0,8}(?:node|host)[-_][a-z]"
    r"|(?:node|host|nid|dgx|hgx|compute|cn|server)[a-z0-9-]{0,40}\d{1,6}(?:\.[\w.-]{1,80})?"
    r"|gpu-?(?:[a-z][a-z0-9-]{0,20}\d{1,5}|0\d{1,4}|\d{3,5})(?:\.[\w.-]{1,80})?",
    re.IGNORECASE,
)
# in the name of a kernel or check file, any word with a number is a machine unless it is one of these
_MACHINE = lazy_compile(
    r"(?!(?:xid|gpu|rank|boot|part|attempt|job|run|step|try|log|v|ib|eth|mlx|nic|report|check|diag|test|result|sample|dump|day|page)[-_]?\d)(?=[\w.-]{0,62}[a-z])(?=[\w.-]{0,62}\d)"
    r"[a-z0-9][\w.-]{1,62}",
    re.IGNORECASE,
)
_NODE_PART = lazy_compile(
    r"(?:^|[_.\-])((?:node|host)(?:[-_]?[a-z]?\d\w{0,20}|[-_][a-z])|gpu-?[a-z]\d+|(?:worker|master)[-_]?\d+)(?=[._\-]|$)",
    re.IGNORECASE,
)
_KERNEL = lazy_compile(r"(?:^|[._\-/])(?:dmesg|kern(?:el)?|kmsg|journal\w*|syslog|messages)(?=[._\-]|$)", re.IGNORECASE)
_SCHEDULER = lazy_compile(r"(?:^|[._\-/])(?:slurmd|slurmctld|sacct|scontrol|squeue|pbs_mom)(?=[._\-]|$)", re.IGNORECASE)
_HEALTH = lazy_compile(r"(?:^|[._\-/])(?:nhc|health|dcgmi?|gpud|ibstat|nvidia-smi)(?=[._\-]|$)", re.IGNORECASE)


def name_hints(ref: StreamRef, name: str) -> StreamRef:
    """Return the stream with the information in its file name: rank, node, kind of source."""
    kind: SourceKind = ref.kind
    base = name.rsplit("/", 1)[-1]
    if _KERNEL.search(base):
        kind = "kernel"
    elif _SCHEDULER.search(base):
        kind = "scheduler"
    elif _HEALTH.search(base):
        kind = "health"
    rank, tree = _RANK.search(name), TREE.search(name)
    resource = replace(
        ref.resource,
        rank=int(rank[1]) if rank else None,
        local_rank=int(tree[tree.lastindex]) if tree and tree.lastindex else None,
        node=_node_of(TREE.sub("", name) if tree else name, kind),
    )
    return replace(ref, kind=kind, resource=resource)


def _node_of(name: str, kind: SourceKind) -> str | None:
    """Return the node named by the file name or a parent folder. A whole name is preferred to part of one."""
    *folders, base = name[-1000:].split("/")
    stem = _once(_bare(_ENDING.sub("", base)))
    if not stem:  # as of `rank-0.log`, for which no expression needs to be compiled
        return _node_among(folders)
    if _NODE.fullmatch(stem) or (kind in ("kernel", "health") and _MACHINE.fullmatch(stem)):
        return stem
    part = _NODE_PART.search(stem)
    if part:
        return part[1]
    return _node_among(folders)


def _node_among(folders: Sequence[str]) -> str | None:
    return next((folder for folder in reversed(folders) if _NODE.fullmatch(folder)), None)


def _once(stem: str) -> str:
    """Return a name that its tools wrote twice, such as `node-1_node-1`, once."""
    half = len(stem) // 2
    return stem[:half] if stem[:half] == stem[half + 1 :] and stem[half : half + 1] in tuple("_-.") else stem


def _bare(stem: str) -> str:
    """Return a file's stem without the words that describe its kind."""
    return re.sub(r"(?<=[._\-])[._\-]+", "", _BESIDE.sub("", stem)).strip("._-")
