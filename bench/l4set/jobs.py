"""Jobs: where they run, how they are laid out, how their logs are kept; and the successful twin of a job at a smaller scale."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from random import Random
from typing import Any

from bench.l4set.styles import STYLES, Style

HOUR = 3600.0
FIRST_DAY = 1_783_000_000.0  # July 2026; jobs start within four months of it

HOSTS = (
    "gpu-{a}{n:03d}", "node{n:04d}", "{z}-worker-{n}", "hgx-{z}-{n:02d}.cluster.local", "dgx{n:02d}", "cn-{z}{n:04d}",
    "{z}-r{r:02d}-s{n:02d}", "ip-10-{r}-{q}-{n}", "pretrain-{z}-worker-{n}", "{z}rack{r}u{n}", "nid{n:06d}",
)  # fmt: skip
ZONES = (0, 0, 0, 8, 8, 1, -7, 2, 9)
ROOTS = (
    "/mnt/lustre/{u}",
    "/data/{u}/runs",
    "/workspace",
    "/fsx/{u}",
    "/gpfs/proj/{u}",
    "/home/{u}/exp",
    "/cache/{u}",
    "/pfs/{u}/train",
)
USERS = ("mlteam", "lchen", "akumar", "llm-base", "vega", "research7", "osk", "pretrain", "yanli", "alignment")
MODELS = (
    ("7b", 32, 4096), ("13b", 40, 5120), ("34b", 48, 7168), ("70b", 80, 8192), ("3b", 28, 3072), ("8x7b", 32, 4096),
    ("72b", 80, 8192), ("130b", 88, 10240),
)  # fmt: skip
NODE_COUNTS = {1: 4, 2: 6, 3: 3, 4: 10, 6: 7, 8: 18, 12: 10, 16: 20, 24: 8, 32: 9, 48: 3, 64: 4}


@dataclass(frozen=True, slots=True)
class Node:
    """One machine of a job. `skew`: seconds its clock is ahead; `zone`: hours its processes print ahead of UTC."""

    index: int
    host: str
    ip: str
    skew: float
    zone: int
    boot: float
    ranks: tuple[int, ...]
    pids: tuple[int, ...]


@dataclass(frozen=True)
class Job:
    """One run. `voices`: ranks a node that write at all; `length`: steps; `log_every`, `eval_every`, `save_every` in steps.

    `layout` is how logs are kept: "node" (one file a node, ranks merged), "rank" (one a rank and one a node for its agent
    and kernel). `family` seeds what two runs of the same job share, `seed` what is this run's alone.
    """

    id: str
    name: str
    family: str
    seed: str
    style: Style
    nodes: tuple[Node, ...]
    per_node: int
    start: float
    tp: int
    pp: int
    length: int
    first_step: int
    log_every: int
    eval_every: int
    save_every: int
    step_seconds: float
    layout: str
    prefix: str
    agent_form: str
    kernel_form: str
    kernel_apart: bool
    root: str
    model: tuple[str, int, int]
    launcher: str
    progress_bar: bool
    wrap: int
    verbose: bool
    interleaved: bool
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def world(self) -> int:
        """How many ranks it has."""
        return len(self.nodes) * self.per_node

    @cached_property
    def values(self) -> dict[str, Any]:
        """What templates may name of a job."""
        label, layers, hidden = self.model
        return {
            "job": self.name, "root": self.root, "ckpt": f"{self.root}/{self.name}/checkpoints", "world": self.world,
            "data": f"{self.root}/datasets/{self.versions['corpus']}", "nodes": len(self.nodes), "model": label,
            "layers": layers, "hidden": hidden, "tp": self.tp, "pp": self.pp, "dp": max(1, self.world // (self.tp * self.pp)),
            "total": self.first_step + self.length, "per_node": self.per_node, "master": self.nodes[0].host,
            "masterip": self.nodes[0].ip, "port": self.versions["port"], "runid": self.versions["runid"],
            "hca": self.versions["hca"], "nic": self.versions["nic"], "batch": 4 * self.world, "first": self.first_step,
            "site": f"{self.versions['python']}/site-packages", **{f"v_{key}": value for key, value in self.versions.items()},
        }  # fmt: skip

    def node_of(self, rank: int) -> Node:
        """The node on which a rank runs."""
        return self.nodes[rank // self.per_node]


def _pick(chance: Random, weighted: dict[Any, int]) -> Any:
    return chance.choices(list(weighted), list(weighted.values()))[0]


def _hosts(chance: Random, count: int) -> list[tuple[str, str]]:
    pattern = chance.choice(HOSTS)
    letter, zone, rack, subnet = (
        chance.choice("abcdef"),
        chance.choice(("eu1", "az2", "bj5", "iad", "gy1")),
        chance.randint(1, 40),
        chance.randint(0, 200),
    )
    base = chance.randint(1, 120)
    spread = chance.random() < 0.5
    numbers = sorted(chance.sample(range(base, base + 3 * count), count)) if spread else list(range(base, base + count))
    if "worker-{n}" in pattern:
        numbers = list(range(count))
    elif chance.random() < 0.15:
        chance.shuffle(numbers)  # ranks do not follow the names
    second = chance.randint(0, 250)
    return [
        (
            pattern.format(a=letter, n=number, z=zone, r=rack + number // 16, q=subnet),
            f"10.{second}.{number // 200}.{number % 200 + 11}",
        )
        for number in numbers
    ]


def _nodes(chance: Random, count: int, per_node: int, start: float, zone: int) -> tuple[Node, ...]:
    wild = chance.random() < 0.12
    strange = chance.randrange(count) if chance.random() < 0.08 else -1
    found = []
    for index, (host, ip) in enumerate(_hosts(chance, count)):
        skew = chance.gauss(0, 0.08) + (chance.uniform(-45, 45) if wild and chance.random() < 0.2 else 0)
        pids = chance.randrange(900, 90000)
        ranks = tuple(range(index * per_node, (index + 1) * per_node))
        here = 0 if index == strange and zone else zone
        boot = start - chance.uniform(0.2, 90) * 24 * HOUR
        found.append(
            Node(index, host, ip, skew, here, boot, ranks, tuple(pids + 1 + local for local in range(per_node)))
        )
    return tuple(found)


def _versions(chance: Random) -> dict[str, str]:
    return {
        "torch": chance.choice(("2.4.1", "2.5.1", "2.6.0", "2.7.1", "2.8.0")),
        "nccl": chance.choice(("2.20.5", "2.21.5", "2.23.4", "2.26.2", "2.27.3")),
        "driver": chance.choice(("535.161.08", "550.90.07", "550.127.05", "565.57.01", "570.86.15")),
        "cann": chance.choice(("8.0.RC2", "8.0.RC3", "8.1.RC1")),
        "python": chance.choice(("/usr/local/lib/python3.10", "/opt/conda/lib/python3.11", "/opt/venv/lib/python3.12", "/usr/lib/python3.10")),
        "commit": f"{chance.getrandbits(40):010x}",
        "corpus": chance.choice(("mix-v3", "web-2025q4", "code_en_zh", "slim-627b", "sft_mix_0912", "pile-dedup")),
        "port": str(chance.choice((29500, 6000, 23456, 12355, 8118))),
        "runid": f"{chance.getrandbits(36):09x}",
        "hca": chance.choice(("mlx5_0", "mlx5_2", "mlx5_4", "mlx5_bond_1", "irdma3", "hrn0_2")),
        "nic": chance.choice(("eth0", "ens3f0", "bond0", "ibs106", "eno1np0")),
    }  # fmt: skip


def make_job(seed: str, number: int, style: str, nodes: int | None, scale: float) -> Job:
    """A job of a style; `nodes` where the plan asks for a count. `scale` stretches its length."""
    chance = Random(f"{seed}/{number}/job")
    form = STYLES[style]
    count = nodes or _pick(chance, NODE_COUNTS)
    per_node = chance.choice((8, 8, 8, 4)) if count < 24 else chance.choice((8, 8, 4, 4))
    if count <= 2:
        per_node = chance.choice((8, 4, 2))
    start = FIRST_DAY + chance.uniform(0, 120 * 24 * HOUR)
    tp = chance.choice([one for one in (1, 2, 4, 8) if one <= per_node])
    pp = chance.choice([one for one in (1, 2, 4, 8) if one <= count and count % one == 0]) if form.pipelines else 1
    log_every = chance.choice(form.log_every)
    records = int(
        chance.choice((70, 90, 120, 160, 220, 300, 500, 900))
        * (1.0 if count <= 16 else 0.6 if count <= 32 else 0.4)
        * scale
    )
    length = max(40, records * log_every)
    eval_every = chance.choice((0, 1, 1, 1)) * log_every * chance.choice((10, 20, 25, 50))
    save_every = log_every * chance.choice((15, 20, 25, 40, 50))
    user = chance.choice(USERS)
    model = chance.choice(MODELS)
    layout = "rank" if count * per_node <= 64 and chance.random() < form.by_rank else "node"
    return Job(
        id=f"{chance.choice(('job', 'run', 'pt', 'train'))}-{chance.randint(10000, 999999)}",
        name=f"{chance.choice(('llm', 'base', 'pretrain', 'sft', 'moe', 'cpt'))}-{model[0]}-{chance.choice(('a', 'stage2', 'long', 'v4', 'exp12', 'r3'))}",
        family=f"{seed}/{number}", seed=f"{seed}/{number}/failed", style=form,
        nodes=_nodes(chance, count, per_node, start, chance.choice(ZONES)), per_node=per_node, start=start, tp=tp, pp=pp,
        length=length, first_step=chance.choice((0, 0, 0, 500, 4000, 18200, 90000)), log_every=log_every,
        eval_every=eval_every, save_every=save_every, step_seconds=chance.choice((0.7, 1.9, 3.4, 6.1, 11.8, 24.0)),
        layout=layout, prefix=chance.choice(form.prefixes) if layout == "node" else "",
        agent_form=chance.choice(("klog", "json", "logfmt", "slash")), kernel_form=chance.choice(("seconds", "syslog", "human")),
        kernel_apart=chance.random() < 0.25, root=chance.choice(ROOTS).format(u=user), model=model,
        launcher=chance.choice(("torchrun", "torchrun", "torchrun", "srun", "mpi")) if form.accelerator == "cuda" else chance.choice(("torchrun", "msrun")),
        progress_bar=form.bar and chance.random() < 0.75, wrap=chance.choice((140, 180)) if chance.random() < 0.05 else 0,
        verbose=chance.random() < 0.45, interleaved=chance.random() < 0.6, versions=_versions(chance),
    )  # fmt: skip


def twin_of(job: Job, *, healthy_pair: bool = False) -> Job:
    """An earlier run of the same job that went well: fewer nodes, other hosts, paths, dates and seeds, slightly other settings."""
    chance = Random(f"{job.family}/twin")
    count = (
        max(1, len(job.nodes) // chance.choice((2, 4, 4, 8)))
        if not healthy_pair or chance.random() < 0.7
        else len(job.nodes)
    )
    per_node = job.per_node if count > 1 or job.per_node <= 4 or chance.random() < 0.6 else 4
    start = job.start - chance.uniform(0.5, 21) * 24 * HOUR
    zone = job.nodes[0].zone
    pp = max(one for one in (1, 2, 4, 8) if one <= min(job.pp, count) and count % one == 0)
    versions = dict(job.versions) | {
        "commit": f"{chance.getrandbits(40):010x}",
        "runid": f"{chance.getrandbits(36):09x}",
    }
    if chance.random() < 0.25:
        fresh = _versions(chance)
        versions |= {
            key: fresh[key]
            for key in chance.sample(["torch", "nccl", "driver", "corpus", "port"], chance.randint(1, 2))
        }
    records = max(30, int(job.length / job.log_every * chance.uniform(0.25, 0.8)))
    log_every = job.log_every if chance.random() < 0.8 else chance.choice(job.style.log_every)
    return replace(
        job, id=f"{job.id.split('-')[0]}-{chance.randint(10000, 999999)}", name=job.name if chance.random() < 0.5 else f"{job.name}-small",
        seed=f"{job.family}/good", nodes=_nodes(chance, count, per_node, start, zone if chance.random() < 0.85 else 0),
        per_node=per_node, start=start, tp=min(job.tp, per_node), pp=pp, length=records * log_every,
        first_step=job.first_step if chance.random() < 0.4 else 0, log_every=log_every,
        eval_every=job.eval_every if chance.random() < 0.8 else 0,
        save_every=max(log_every, int(job.save_every * chance.choice((0.5, 1, 1, 1)))),
        step_seconds=job.step_seconds * chance.uniform(0.6, 1.3),
        root=job.root if chance.random() < 0.4 else chance.choice(ROOTS).format(u=chance.choice(USERS)),
        verbose=job.verbose if chance.random() < 0.85 else not job.verbose, versions=versions,
    )  # fmt: skip
