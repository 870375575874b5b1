"""The process that ended first by a launcher's report, where no line of the failure names its writer."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from kb.diagnosis.findings import Finding
from kb.diagnosis.suspects.claims import WAITING_FAULTS, waits_for_others
from kb.diagnosis.suspects.launcher import EXIT_SIGNALS, of_device
from kb.diagnosis.suspects.missing import JobLayout
from kb.diagnosis.suspects.ranking import with_scores
from kb.diagnosis.suspects.sighting import BY_LAUNCHER, FIRST_ENDED, NOT_STOPPED, OWN_GPU, OWN_NUMBER
from kb.facts.circumstances import RunCircumstances
from kb.facts.topology import Place
from kb.model import Resource, Scalar
from kb.parsers.logs.launchers import signal_name
from kb.regex.lazy import lazy_compile
from kb.report import Suspect

_NODE_SIZE = 16  # most processes of a job that may all be on one node
_EITHER_SIDE = frozenset(
    {"collective_desync"}
)  # who receives what does not fit ends first, and the sender may be wrong
_STOPPED = frozenset({"SIGTERM", "SIGKILL"})  # how launchers end the other processes
# torch.multiprocessing.spawn: the process that it found ended first
_SPAWNED = lazy_compile(r"process (\d{1,4}) terminated with (?:signal (SIG\w{1,8})|exit code (-?\d{1,6}))")
# mpirun names the rank that ended the others by its call, or the first that ended with a status other than 0.
_NAMES_FIRST = lazy_compile(r"MPI_Abort\(|MPI_ABORT was invoked on rank|exited with non-zero status")
_OF_ROLE = lazy_compile(r"\s{0,8}\[[A-Za-z_][\w-]{0,40}\d{1,4}\]:")  # torchrun's prefix: the role and the local rank
_WORKER = lazy_compile(r"\bworker \(pid(?:\(s\))?:? ?(\d{1,9})")
_SEVERAL_NODES = lazy_compile(
    r"(?i)(?:nnodes|num[_-]?nodes|num[_-]?machines)[\"']?[=: ]{1,3}(?:[2-9]|1\d|\d{1,4}:[2-9]|\d{1,4}:\d\d)"
    r"|(?:node|machine)[_-]?rank[\"']?[=: ]{1,3}[1-9]"
)


def first_ended(best: Finding, layout: JobLayout) -> tuple[Suspect, ...]:
    """Return the one process that ended by itself, as srun, mpirun, PALS, torchrun or `spawn` report it.

    None where several show the failure, or where it is that of a peer: which process ends first then says nothing.
    """
    waiting = any(waits_for_others(signal) for finding in layout.findings for signal in finding.signals)
    if best.fault.id in WAITING_FAULTS | _EITHER_SIDE or (waiting and best.is_symptom) or len(best.ranks) > 1:
        return ()
    if len({(signal.stream, signal.offset) for signal in best.signals if signal.kind == "exception"}) > 1:
        return ()
    if len({found[1] for signal in best.signals for found in _WORKER.finditer(signal.line)}) > 1:
        return ()  # workers of several processes
    if len({(who.node, who.pid) for who in (item.resource for item in best.signals) if who.pid is not None}) > 1:
        return ()
    ended = _task(best, layout) or _local(_numbered(best, layout), layout)
    why = NOT_STOPPED if _others_stopped(layout) else BY_LAUNCHER
    if ended is not None and ended.local is not None:
        why = FIRST_ENDED if _names(ended.local, layout) else OWN_NUMBER
    elif ended is None:
        ended = _local(_of_devices(best, layout), layout)
        why = OWN_NUMBER if all(_OF_ROLE.match(signal.line) for signal in best.signals) else OWN_GPU
    if ended is None or (ended.rank is None and ended.local is None):
        return ()
    node = ended.node or layout.places.node_of(ended.rank)
    return with_scores([Suspect("rank", node, ended.rank, ended.local, why=why)])


def first_beside_waiting(waiting: Collection[int], layout: JobLayout) -> tuple[Suspect, ...]:
    """Return the one rank that mpirun reports as the first to fail, if all that is known of the others is that they wait or lost a peer."""
    ranks = {
        item.resource.rank
        for _, item in layout.facts.structures("launcher_exit")
        if item.fields.get("launcher") in ("mpirun", "first")
        and item.fields.get("exitcode") != 0
        and str(item.fields.get("signal") or "") not in _STOPPED
    }
    if len(ranks) != 1 or None in ranks or ranks & set(waiting):
        return ()
    (rank,) = ranks
    return with_scores([Suspect("rank", layout.places.node_of(rank), rank, why=BY_LAUNCHER)])


def _task(best: Finding, layout: JobLayout) -> Place | None:
    """Return the only rank that ended in a way of its own by srun, mpirun, PALS or a launcher that names the first."""
    found: dict[int, Place] = {}
    others = 0
    for _, item in layout.facts.structures("launcher_exit"):
        fields, launcher = item.fields, item.fields.get("launcher")
        task = str(fields.get("task"))
        if launcher not in ("srun", "mpirun", "pals", "first") or fields.get("exitcode") == 0:
            continue
        others += launcher == "first" or (launcher == "mpirun" and _NAMES_FIRST.search(item.line) is not None)
        rank = layout.places.rank_of_task(task) if launcher == "srun" else item.resource.rank
        signal = str(fields.get("signal") or "")
        if signal in _STOPPED and signal not in EXIT_SIGNALS.get(best.fault.id, ()):
            others += 1
        elif rank is None:  # a list of tasks
            return None
        else:
            found.setdefault(rank, Place(rank, str(fields.get("node") or "") or None))
    return next(iter(found.values())) if len(found) == 1 and others else None


def _local(numbered: Iterator[Place], layout: JobLayout) -> Place | None:
    """Return the only process that is named by its number on the node, where nothing shows another node.

    That number is its rank only where the job is known to run on one node.
    """
    told = {place.unit: place for place in numbered}
    if len(told) != 1:
        return None
    (place,) = told.values()
    if place.rank is not None or place.local is None:
        return place
    heads = [stream.summary.head for stream in layout.facts.of_kind("job")]
    places = layout.places
    if len(places.nodes) > 1 or len(heads) != 1 or places.world > _NODE_SIZE or _SEVERAL_NODES.search(heads[0]):
        return None
    if not places.allows(place.local):
        return None
    alone = places.is_all_of_a_node(place.local) or RunCircumstances(layout.facts, places).get("nodes") == "one"
    return Place(place.local if alone else None, place.node, place.local)


def _numbered(best: Finding, layout: JobLayout) -> Iterator[Place]:
    facts, places = layout.facts, layout.places
    raised = best.first.kind == "exception" or facts.streams[best.first.stream].in_traceback(best.first.offset)
    alone = raised and _others_stopped(layout)
    for index, item in facts.structures("elastic_exit"):
        code = item.fields.get("exitcode")
        signal = _signal(code)
        if (item.resource.local_rank or 0) < 0 or not (_could_be(best, signal) if signal else alone and code == 1):
            continue  # a status may be that of all
        yield places.place(index, item.resource)
    for index, item in facts.structures("exception"):
        found = _SPAWNED.search(str(item.fields.get("message") or ""))
        signal = (found[2] or _signal(int(found[3]))) if found else ""
        if found and signal and _could_be(best, signal):
            yield places.place(index, Resource(node=item.resource.node, local_rank=int(found[1])))
        elif item.resource.local_rank is not None and not item.fields.get("lived_with"):
            yield places.place(index, item.resource)


def _names(local: int, layout: JobLayout) -> bool:
    """Whether a launcher, and not only the process itself, gives the number of the process that ended."""
    told = (_SPAWNED.search(str(item.fields.get("message") or "")) for _, item in layout.facts.structures("exception"))
    ends = layout.facts.structures("elastic_exit")
    return any(item.resource.local_rank == local for _, item in ends) or any(
        found is not None and int(found[1]) == local for found in told
    )


def _of_devices(best: Finding, layout: JobLayout) -> Iterator[Place]:
    """Yield the processes of the GPUs that the finding's lines name by their index on the node, all but the first one's.

    Index 0 may be the only GPU that each process sees.
    """
    for signal in best.signals:
        who, device = signal.resource, of_device(signal.line)
        local = who.local_rank if who.local_rank is not None else device
        if who.rank is None and local is not None and (local > 0 or device is None):
            yield layout.places.place(signal.stream, replace(who, local_rank=local))


def _others_stopped(layout: JobLayout) -> bool:
    """Whether the launcher stopped processes that had not failed."""
    facts = layout.facts
    return any(item.fields.get("from") == "agent" for _, item in facts.structures("signal")) or any(
        item.fields.get("signal") in _STOPPED for _, item in facts.structures("launcher_exit")
    )


def _signal(code: Scalar) -> str:
    return signal_name(value=code) if isinstance(code, int) and code < 0 else ""


def _could_be(best: Finding, signal: str) -> bool:
    """Whether a process that ended so could show the failure: it was not stopped, and died of a fitting signal."""
    wanted = EXIT_SIGNALS.get(best.fault.id)
    if signal == "SIGTERM" or (wanted is not None and signal and signal not in wanted):
        return False
    return signal != "SIGKILL" or wanted is not None
