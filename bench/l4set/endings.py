"""What a run does after its failure: how peers, launchers and schedulers go down, or that nothing more is said.

All of it is consequence, marked "cascade". Frames of torch follow recordings of torch 2.13 (carriers/).
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from bench.l4set.course import Course
from bench.l4set.jobs import Job, Node
from bench.l4set.words import underlined

if TYPE_CHECKING:
    from bench.l4set.happenings import Incident, Stage

_SPOTS = {
    "init": (("{script}", "main", "initialize(args)"), ("training/initialize.py", "_init_process_group", "torch.distributed.init_process_group(backend=args.backend, timeout=args.timeout)"),
             ("{site}/torch/distributed/c10d_logger.py", "wrapper", "return func(*args, **kwargs)")),
    "import": (("{script}", "<module>", "from training import pretrain"), ("training/__init__.py", "<module>", "from .arguments import core_config")),
    "data": (("{script}", "main", "train_iterator = build_iterators(args)"), ("training/data.py", "build_iterators", "dataset = open_corpus(args.data_path)")),
    "worker": (("{script}", "main", "train(model, optimizer, iterator)"), ("training/loop.py", "train", "batch = next(iterator)"),
               ("{site}/torch/utils/data/dataloader.py", "__next__", "data = self._next_data()"), ("{site}/torch/utils/data/_utils/fetch.py", "fetch", "data = [self.dataset[idx] for idx in possibly_batched_index]"),
               ("training/data.py", "__getitem__", "return self.decode(self.read(index))")),
    "load": (("{script}", "main", "iteration = load_checkpoint(model, optimizer)"), ("training/checkpointing.py", "load_checkpoint", "state = _load_base(path, strict=strict)"),
             ("{site}/torch/nn/modules/module.py", "load_state_dict", "raise RuntimeError(")),
    "step": (("{script}", "main", "train(model, optimizer, iterator)"), ("training/loop.py", "train", "loss = train_step(model, batch)"),
             ("training/loop.py", "train_step", "losses = forward_backward(model, batch)"), ("{site}/torch/autograd/__init__.py", "backward", "_engine_run_backward(")),
    "opt": (("{script}", "main", "train(model, optimizer, iterator)"), ("training/loop.py", "train_step", "optimizer.step()"), ("training/optimizer.py", "step", "self.unscale_and_check()")),
    "save": (("{script}", "main", "train(model, optimizer, iterator)"), ("training/loop.py", "train", "save_checkpoint(step, model, optimizer)"), ("training/checkpointing.py", "save_checkpoint", "writer.write(state, path)")),
    "eval": (("{script}", "main", "train(model, optimizer, iterator)"), ("training/loop.py", "train", "evaluate(step, model)"), ("training/evaluation.py", "evaluate", "scores = [metric(batch) for batch in split]")),
    "comm": (("{script}", "main", "train(model, optimizer, iterator)"), ("training/loop.py", "train_step", "dist.all_reduce(total, group=group)"),
             ("{site}/torch/distributed/c10d_logger.py", "wrapper", "return func(*args, **kwargs)"), ("{site}/torch/distributed/distributed_c10d.py", "all_reduce", "work = group.allreduce([tensor], opts)")),
}  # fmt: skip


def frames(job: Job, spot: str, chance: Random) -> list[str]:
    """The lines of a traceback above its exception."""
    lines = ["Traceback (most recent call last):"]
    for file, function, code in _SPOTS[spot]:
        path = file.format(script=job.style.script, site=job.values["site"])
        path = path if path.startswith("/") else f"{job.root}/code/{path}"
        lines += [
            f'  File "{path}", line {Random(f"{job.family}{path}{code}").randint(20, 1900)}, in {function}',
            f"    {code}",
        ]
    if chance.random() < 0.2:
        lines += ["    ^^^^^^^^^^^^^^^^^^^^"]
    return lines


def finish(stage: Stage, course: Course, incident: Incident) -> str:
    """Play the ending; sets when ranks fall silent and when the logs end. Returns the state that the scheduler shows."""
    at, chance, job = incident.at, stage.chance, stage.job
    ending = incident.fault.ending
    for node in job.nodes:
        for rank in node.ranks:
            bad = rank in incident.ranks or (node in incident.nodes and ending in ("raise9", "dead", "evict1"))
            incident.stops[rank] = at if bad else at + chance.uniform(0.05, 1.5)
    if incident.absent is not None:
        for rank in incident.ranks:
            incident.stops[rank] = at - chance.uniform(0.0, 0.5)
    return _go(stage, incident, course) if ending == "go" else _ENDINGS[ending](stage, incident)


def _others(job: Job, incident: Incident) -> list[Node]:
    return [node for node in job.nodes if node not in incident.nodes]


def _raise(stage: Stage, incident: Incident) -> str:
    at, chance, job = incident.down, stage.chance, stage.job
    for node in incident.nodes:
        _launcher_down(stage, node, at + chance.uniform(3, 9), incident, code=1)
    if _others(job, incident):
        if chance.random() < 0.6:
            _peers_reset(stage, at + chance.uniform(1, 12), incident)
        else:
            _peers_time_out(stage, at, incident, siblings=False)
    return _close(stage, incident, "FAILED")


def _killed(stage: Stage, incident: Incident) -> str:
    for node in incident.nodes:
        _launcher_down(stage, node, incident.down + stage.chance.uniform(4, 9), incident, code=-9)
    _peers_reset(stage, incident.down + stage.chance.uniform(1, 12), incident)
    return _close(stage, incident, "FAILED")


def _reset(stage: Stage, incident: Incident) -> str:
    _peers_reset(stage, incident.down + stage.chance.uniform(2, 45), incident)
    for node in incident.nodes:
        _launcher_down(stage, node, incident.down + stage.chance.uniform(6, 50), incident, code=1)
    return _close(stage, incident, "FAILED")


def _watchdog(stage: Stage, incident: Incident) -> str:
    _peers_time_out(stage, incident.at, incident, siblings=True)
    for node in incident.nodes:
        _launcher_down(stage, node, max(_latest(stage), incident.at) + stage.chance.uniform(1, 9), incident, code=-6)
    return _close(stage, incident, "FAILED")


def _dead(stage: Stage, incident: Incident) -> str:
    incident.lost = frozenset(node.index for node in incident.nodes)
    if stage.chance.random() < 0.5:
        _peers_reset(stage, incident.at + stage.chance.uniform(20, 90), incident)
    else:
        _peers_time_out(stage, incident.at, incident, siblings=True)
    if stage.job.launcher == "srun":
        first = stage.job.nodes[0]
        stage.put(
            first,
            0,
            "node",
            "error",
            "",
            "srun: error: Node failure on @{bad}",
            _latest(stage) + 1,
            "cascade",
            {"bad": incident.nodes[0].host},
        )
    return _close(stage, incident, stage.chance.choice(("FAILED", "NODE_FAIL")))


def _jobwide(stage: Stage, incident: Incident) -> str:
    for node in stage.job.nodes:
        _launcher_down(stage, node, incident.down + stage.chance.uniform(6, 30), incident, code=1)
    return _close(stage, incident, "FAILED")


def _stall(stage: Stage, incident: Incident) -> str:
    chance, job = stage.chance, stage.job
    incident.end = incident.at + chance.uniform(1500, 9000)
    if chance.random() < 0.4:
        return "RUNNING"
    for node in job.nodes:
        _terminated(stage, node, incident.end + chance.uniform(0, 2))
    incident.end += 10
    return chance.choice(("CANCELLED", "TIMEOUT"))


def _go(stage: Stage, incident: Incident, course: Course) -> str:
    incident.stops.clear()
    if stage.chance.random() < 0.4:
        return "COMPLETED"
    left = course.segments[-1].end - incident.at
    incident.end = incident.at + left * stage.chance.uniform(0.5, 0.9)
    for node in stage.job.nodes:
        for rank in node.ranks:
            incident.stops[rank] = incident.end
        _terminated(stage, node, incident.end + stage.chance.uniform(0, 2))
    incident.end += 10
    return "CANCELLED"


def _evicted(stage: Stage, incident: Incident) -> str:
    for node in stage.job.nodes:
        _terminated(stage, node, incident.at + stage.chance.uniform(0, 4))
    return _close(stage, incident, stage.chance.choice(("PREEMPTED", "CANCELLED", "FAILED")))


def _evicted_one(stage: Stage, incident: Incident) -> str:
    _peers_reset(stage, incident.at + stage.chance.uniform(2, 30), incident)
    return _close(stage, incident, "FAILED")


def _rendezvous(stage: Stage, incident: Incident) -> str:
    at, chance = incident.at + chance_wait(stage), stage.chance
    for node in _others(stage.job, incident):
        when = at + chance.uniform(0, 2)
        stage.trace(
            node,
            node.ranks[0],
            "init",
            "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError",
            when,
            "cascade",
            {},
        )
    return _close(stage, incident, "FAILED")


def chance_wait(stage: Stage) -> float:
    """How long a rendezvous waits, seconds."""
    return stage.chance.uniform(5, 60)


_ENDINGS = {
    "raise": _raise, "raise9": _killed, "reset": _reset, "watchdog": _watchdog, "dead": _dead, "jobwide": _jobwide,
    "stall": _stall, "evict": _evicted, "evict1": _evicted_one, "rendezvous": _rendezvous, "hccl": _watchdog,
}  # fmt: skip


def _latest(stage: Stage) -> float:
    return max(
        (text.at for texts in stage.texts.values() for text in texts if text.lines[0][1] == "cascade"), default=0.0
    )


def _close(stage: Stage, incident: Incident, state: str) -> str:
    incident.end = max(_latest(stage), incident.down) + stage.chance.uniform(1, 20)
    return state


def _terminated(stage: Stage, node: Node, at: float) -> None:
    job, chance = stage.job, stage.chance
    if job.launcher == "srun":
        if node.index == 0 or chance.random() < 0.5:
            stage.put(
                node,
                node.ranks[0],
                "node",
                "error",
                "",
                "slurmstepd: error: *** STEP @{int:1000-99999}.0 ON @{host} CANCELLED AT @{plain} ***",
                at,
                "cascade",
            )
        return
    for rank in node.ranks:
        stage.put(
            node,
            rank,
            "elastic",
            "warning",
            "multiprocessing/api.py:900",
            "Sending process @{pid} closing signal SIGTERM",
            at,
            "cascade",
        )


def _shouting(stage: Stage, incident: Incident, most: int, *, siblings: bool) -> list[tuple[Node, list[int]]]:
    """Who feels the failure, by node: peers, and on faulty nodes the ranks beside the faulty ones (which may, too)."""
    found = []
    for node in stage.job.nodes:
        ranks = list(node.ranks[: 8 if len(stage.job.nodes) <= 16 else most])
        if node in incident.nodes:
            loud = siblings and node.index not in incident.lost
            ranks = [rank for rank in ranks if loud and (rank not in incident.ranks or stage.chance.random() < 0.4)]
        found.append((node, ranks))
    return found


def _peers_reset(stage: Stage, at: float, incident: Incident) -> None:
    """Peers lose their connections: soon, in a wave."""
    chance, job = stage.chance, stage.job
    bad = incident.nodes[0] if incident.nodes else job.nodes[0]
    more = {"badip": bad.ip, "bad": bad.host}
    cuda = job.style.accelerator == "cuda"
    for node, ranks in _shouting(stage, incident, 3, siblings=chance.random() < 0.75):
        begin = at + chance.uniform(0, 6) * (0.3 + abs(node.index - bad.index) / len(job.nodes))
        for rank in ranks:
            when = begin + chance.uniform(0, 2)
            if not cuda:
                _hccl_down(stage, node, rank, when + 40)
                continue
            if chance.random() < 0.5:
                stage.put(
                    node,
                    rank,
                    "nccl",
                    "warning",
                    "misc/socket.cc:@{int:40-80}",
                    "socketProgress: Connection closed by remote peer @{badip}<@{int:30000-60000}>",
                    when,
                    "cascade",
                    more,
                )
                stage.put(node, rank, "nccl", "info", "", "misc/socket.cc:749 -> 6", when + 0.01, "cascade", more)
            stage.put(
                node,
                rank,
                "glog",
                "error",
                "ProcessGroupNCCL.cpp:@{int:500-2100}",
                "[PG ID 2 PG GUID 3 Rank @{int:0-15}] Process group watchdog thread terminated with exception: NCCL error: remote process exited or there was a network error, NCCL version @{v_nccl}",
                when + 0.3,
                "cascade",
                more,
            )
            if chance.random() < 0.6:
                stage.trace(
                    node,
                    rank,
                    "comm",
                    "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:317, remote process exited or there was a network error, NCCL version @{v_nccl}\nncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
                    when + 0.6,
                    "cascade",
                    more,
                )
        if node not in incident.nodes:
            _launcher_down(stage, node, begin + chance.uniform(4, 12), incident, code=1)


def _peers_time_out(stage: Stage, at: float, incident: Incident, *, siblings: bool) -> None:
    """Peers wait for the collective to time out; then all of them shout at once, the faulty ones often not."""
    chance, job = stage.chance, stage.job
    limit = chance.choice((600, 600, 1800))
    sequence = chance.randint(10000, 900000)
    moan = at + limit
    for node, ranks in _shouting(stage, incident, 4, siblings=siblings):
        for rank in ranks:
            when = moan + chance.uniform(0, 3)
            if job.style.accelerator == "npu":
                _hccl_down(stage, node, rank, when)
                continue
            op = chance.choice(("ALLREDUCE", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE"))
            more = {
                "seq": sequence,
                "op": op,
                "limit": 1000 * limit,
                "ran": 1000 * limit + chance.randint(5, 900),
                "before": sequence - 1,
            }
            stage.put(
                node,
                rank,
                "glog",
                "error",
                "ProcessGroupNCCL.cpp:@{of:607|632|683}",
                "[Rank @{int:0-15}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=@{seq}, OpType=@{op}, NumelIn=@{int:1000000-90000000}, NumelOut=@{int:1000000-90000000}, Timeout(ms)=@{limit}) ran for @{ran} milliseconds before timing out.",
                when,
                "cascade",
                more,
            )
            stage.put(
                node,
                rank,
                "glog",
                "error",
                "ProcessGroupNCCL.cpp:2271",
                "[PG ID 1 PG GUID 1 Rank @{int:0-15}]  failure detected by watchdog at work sequence id: @{seq} PG status: last enqueued work: @{seq}, last completed work: @{before}",
                when + 0.02,
                "cascade",
                more,
            )
            stage.put(
                node,
                rank,
                "glog",
                "error",
                "ProcessGroupNCCL.cpp:684",
                "[Rank @{int:0-15}] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data.",
                when + 0.4,
                "cascade",
                more,
            )
            stage.put(
                node,
                rank,
                "raw",
                "error",
                "",
                "terminate called after throwing an instance of 'c10::DistBackendError'\n  what():  [PG ID 1 PG GUID 1 Rank @{int:0-15}] Process group watchdog thread terminated with exception: [Rank @{int:0-15}] Watchdog caught collective operation timeout",
                when + 0.6,
                "cascade",
                more,
            )
        if node not in incident.nodes:
            _launcher_down(stage, node, moan + chance.uniform(4, 15), incident, code=-6)


def _hccl_down(stage: Stage, node: Node, rank: int, when: float) -> None:
    stage.put(
        node,
        rank,
        "cann",
        "error",
        "HCCL",
        "[task_exception_handler.cc:@{int:300-700}][@{pid}][TaskExceptionHandler]Task from HCCL run failed, base information is streamID:[@{int:2-90}], taskID[@{int:1-9000}], taskType[Notify Wait], tag[AllReduce_@{ip}]",
        when,
        "cascade",
    )
    stage.put(
        node,
        rank,
        "raw",
        "error",
        "",
        "EI0002: @{plain} The wait execution of the Notify register times out. Reason: The Notify register has not received the Notify record from remote rank.",
        when + 0.2,
        "cascade",
    )
    if stage.chance.random() < 0.4:
        stage.trace(
            node,
            rank,
            "comm",
            "RuntimeError: The Inner error is reported as above. The process exits for this inner error, and the current working operator name is HcclAllreduce.",
            when + 0.4,
            "cascade",
            {},
        )


def _launcher_down(stage: Stage, node: Node, at: float, incident: Incident, code: int) -> None:
    """The launcher on a node ends what is left and says who failed first, as far as it saw."""
    job, chance = stage.job, stage.chance
    if node.index in incident.lost:
        return
    first = next((rank for rank in incident.ranks if rank in node.ranks), chance.choice(node.ranks))
    local = first - node.ranks[0]
    if job.style.name == "deepspeed" and job.launcher == "torchrun":
        for rank in node.ranks:
            stage.put(node, rank, "log", "info", "launcher.launch", "Killing subprocess @{pid}", at, "cascade")
        stage.put(
            node,
            first,
            "log",
            "error",
            "launcher.launch",
            f"['/usr/bin/python3', '-u', '{job.style.script}', '--local_rank={local}'] exits with return code = {code}",
            at + 0.1,
            "cascade",
        )
        return
    if job.launcher == "srun":
        said = "Exited with exit code 1" if code == 1 else {-9: "Killed", -6: "Aborted (core dumped)"}[code]
        stage.put(node, first, "node", "error", "", f"srun: error: @{{host}}: task @{{rank}}: {said}", at, "cascade")
        return
    if job.launcher == "mpi":
        if node.index == 0:
            stage.put(
                node,
                first,
                "node",
                "error",
                "",
                "--------------------------------------------------------------------------\nPrimary job  terminated normally, but @{int:1-9} process returned\na non-zero exit code. Per user-direction, the job has been aborted.\n--------------------------------------------------------------------------",
                at,
                "cascade",
            )
        return
    for rank in node.ranks:
        if rank != first:
            stage.put(
                node,
                rank,
                "elastic",
                "warning",
                "multiprocessing/api.py:900",
                "Sending process @{pid} closing signal SIGTERM",
                at - 0.4,
                "cascade",
            )
    told = any(event.channel == "elastic" and "failed (exitcode" in str(event.text) for event in incident.events)
    if not (told and node in incident.nodes):  # the event itself says it there
        stage.put(
            node,
            first,
            "elastic",
            "error",
            "multiprocessing/api.py:874",
            f"failed (exitcode: {code}) local_rank: {local} (pid: @{{pid}}) of binary: /usr/bin/python3",
            at,
            "cascade",
        )
    stamp = underlined(at + node.skew, node.zone)
    rule, thin = "=" * 60, "-" * 60
    signals = {-9: " (SIGKILL)", -6: " (SIGABRT)"}
    block = [
        "Traceback (most recent call last):",
        f'  File "{job.values["site"]}/torch/distributed/launcher/api.py", line 270, in launch_agent',
        "    raise ChildFailedError(",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ", rule, f"{job.style.script} FAILED", thin,
        "Failures:", "  <NO_OTHER_FAILURES>", thin, "Root Cause (first observed failure):", "[0]:", f"  time      : {stamp}",
        f"  host      : {node.host}", f"  rank      : {first} (local_rank: {local})",
        f"  exitcode  : {code} (pid: {node.pids[local]}){signals.get(code, '')}", "  error_file: <N/A>",
        "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html", rule,
    ]  # fmt: skip
    stage.put(node, first, "node", "error", "", "\n".join(block), at + 0.3, "cascade")
