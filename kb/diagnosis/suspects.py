"""Who is at fault, said of a fault that is known: nodes, ranks and GPUs, the likeliest first, or the job as a whole.

Evidence is not all alike. What a node's kernel or a check on it says goes before a process's own error; that goes before
what peers, launchers and schedulers say of somebody else; and who merely waits is no suspect: whoever does not is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from kb.diagnosis.conditions import by_time
from kb.diagnosis.findings import Finding
from kb.diagnosis.ranking import Ranked
from kb.facts.evidence import Facts, Signal
from kb.facts.topology import Place, Places
from kb.model import Structure
from kb.report import EvidenceItem, GpuRef, Suspect

SUSPECTS = 16
SHOWN = 5  # pieces of evidence a suspect
ALL_ALIKE = 0.8  # of the ranks (nodes) show it: it is the job's
FEW_QUIET = 1 / 3  # of the ranks (nodes) at most, while all others wait: they are suspects
MANY_NODES = 4  # whose kernels say so, and it is no longer a matter of nodes
FIRST_ALONE = 60.0  # seconds by which one must be before all others to be another case than they
LONG_BEFORE = 3600.0  # seconds; what a kernel said earlier than that before the failure is old news
_JOBS_OWN = frozenset({"time_limit", "cancelled", "unschedulable"})  # what comes over a job as a whole
_WAITING = frozenset({"rendezvous", "collective_timeout", "peer_failure", "deadlock"})
_KERNEL = re.compile(
    r"\d\d:\d\d:\d\d\S{0,24} [\w.-]{1,64} kernel: |NVRM: |\bSXid \(|\bEDAC |\bmce: \[|\boom-kill:|Out of memory: Kill|\bpcieport |\bAER: "
    r"|\bmlx[45]_(?:core|ib) \S{4,20}[ :]"
)
_WAITS = re.compile(
    r"(?i)timed? ?-?out|waiting for|clients joined|store_based_barrier|still waiting|connection (?:was )?(?:closed|reset|refused|aborted)"
    r"|closed by (?:remote )?peer|reset by peer|remote process exited|broken pipe"
)
_OF_PEER = re.compile(r"Got completion|retry counter exceeded|RETRY_EXC_ERR")
_LOCAL_STATUS = frozenset({"1", "2", "4", "5", "6", "8"})  # of a work completion: the fault lies on this side
_LAUNCHER = re.compile(
    r"\*\*\* (?:JOB|STEP) |\b(?:srun|salloc|sbatch|slurmstepd|slurmctld|mpirun|mpiexec|pdsh@\S{1,64}): |\bORTE\b|\bPRTE\b|\(raylet\b"
)
_CANCELLED = re.compile(r"\*\*\* (?:JOB|STEP) \S{1,80} ON \S{1,80} CANCELLED AT ")
_HOST = r"[\w][\w.-]{1,63}"
_NAMED = re.compile(
    rf"Node failure on ({_HOST})|\b[Nn]odes? ({_HOST}) (?:not responding|unexpectedly rebooted|is (?:down|not ready))"
    rf"|RUNNING AT ({_HOST})|node-name=({_HOST})|\bon failed node ({_HOST})|failure of node ({_HOST})"
    r"|[Nn]odes? ([A-Za-z][\w.-]{0,62}\[[\d,-]{1,120}\]) (?:not responding|are|is)\b"
    rf"|error: ({_HOST}): tasks? [\d,\[\]-]{{1,200}}: |[lL]ost connection to (?:node|slurmstepd|slurmd) ?({_HOST})?"
    r"|\((?:IP|node_ip)[:=] ?([0-9.]{7,15})|\bIP: ([0-9.]{7,15})|\bip=([0-9.]{7,15})|NodeName=([\w.-]{2,63})"
    rf"|\bpeer \[?({_HOST})\]?[:<]|from peer ([0-9.]{{7,15}})|from ([0-9.]{{7,15}})<"
)
_PID = re.compile(r"\bpid[=: ]{1,2}(\d{1,9})\b")
_NAMING = ("failed", "peer", "host", "ip")  # captures that name a machine
_MACHINE = re.compile(r"(?:\d{1,3}\.){3}\d{1,3}|[A-Za-z][\w-]{0,62}(?:\.[\w-]{1,62}){0,6}")
_LIST = re.compile(r"([A-Za-z][\w.-]{0,62})\[(\d{1,6}(?:-\d{1,6})?(?:,\d{1,6}(?:-\d{1,6})?){0,15})\]")
_DIGITS = re.compile(r"\d{1,7}")
_RUNNING = re.compile(
    r"Rank (\d{1,7}) is running (?:\w{1,20} )?collective: CollectiveFingerPrint\((.{0,120}?)(?:, TensorDtypes|, TensorDeviceTypes|\)|$)"
)
_PARAMS = re.compile(r"[Rr]ank (\d{1,7}) has (?:inconsistent )?(\d{1,9}) params")
_EXITS: Mapping[str, frozenset[str]] = {
    "host_oom": frozenset({"SIGKILL"}),
    "killed": frozenset({"SIGKILL"}),
    "segfault": frozenset({"SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT"}),
}


class Weight(IntEnum):
    """What a piece of evidence is worth against a suspect, the best first."""

    HARDWARE = 0
    OWN = 1
    TOLD = 2
    RUMOUR = 3  # of a peer, by one that waits
    WAITS = 4


@dataclass(frozen=True, slots=True)
class Claim:
    """One signal as evidence against a place. `pci`: the GPU that it names; `teller`: who says it, where that is another."""

    weight: Weight
    place: Place
    signal: Signal
    pci: str = ""
    teller: Place | None = None
    peer: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """What a job's suspects are looked for in: its facts, who ran where, and all findings that stand."""

    facts: Facts
    places: Places
    findings: tuple[Finding, ...]


def at_fault(ranked: Ranked, layout: Layout, quoted: Sequence[EvidenceItem]) -> tuple[Suspect, ...]:
    """Name who is at fault, at most so many; nobody where nothing tells."""
    best, facts, places = ranked.best, layout.facts, layout.places
    found = _job(quoted, "it ends the whole job") if best.fault.id in _JOBS_OWN else _compared(best, places)
    if not found and not best.ranks:  # that the job hangs is of no rank; who is missing stands in a finding beside it
        found = next(filter(None, (_compared(one, places) for one in ranked.findings)), ())
    found = found or _odd_ones(ranked, facts, places)
    if not found:
        claims = _fresh([claim for one in ranked.findings for claim in _claims(one, places, facts)], best)
        found = _judged(claims, ranked, layout, quoted)
    return tuple(_evidenced(one, place, quoted) for place, one in enumerate(found[:SUSPECTS]))


def _compared(best: Finding, places: Places) -> tuple[Suspect, ...]:
    """Those whom a comparison of all ranks singled out (kb.hangs.observe), in its own order."""
    chosen = [one for one in best.signals if one.compared]
    chosen = [one for one in chosen if one.resource.rank is not None or one.resource.node is not None]
    chosen.sort(key=lambda one: int(one.captures.get("place") or 0))
    return tuple(
        Suspect(
            kind="rank" if one.resource.rank is not None else "gpu" if one.resource.gpu is not None else "node",
            node=one.resource.node or places.node_of(one.resource.rank),
            rank=one.resource.rank,
            local_rank=one.resource.local_rank,
            pod=one.resource.container,
            gpu=GpuRef(index=int(one.resource.gpu)) if one.resource.gpu and one.resource.gpu.isdigit() else None,
            score=round(1.0 / (at + 1), 3),
            why="it stands apart from all others" if at == 0 else "it stands apart too",
        )
        for at, one in enumerate(chosen[:SUSPECTS])
    )


def _judged(
    claims: Sequence[Claim], ranked: Ranked, layout: Layout, quoted: Sequence[EvidenceItem]
) -> tuple[Suspect, ...]:
    """The best evidence there is, by its weight."""
    places = layout.places
    by = {weight: [one for one in claims if one.weight is weight] for weight in Weight}
    own, waits = by[Weight.OWN], by[Weight.WAITS]
    hardware = by[Weight.HARDWARE]
    found = _shared(hardware, frozenset(), places, quoted) or _agreed(hardware, own, places) if hardware else ()
    if found:
        return found
    if own:
        if ranked.best.fault.id == "killed" and (first := _lost_before(own, ranked, layout)):
            return first
        return _shared(own, ranked.best.ranks, places, quoted) or _ordered(own)
    if by[Weight.TOLD]:
        return _named_by_others(by[Weight.TOLD])
    if waits or ranked.best.is_symptom:
        rumours = Counter(one.place.node for one in by[Weight.RUMOUR])
        return (
            _silent(waits, ranked, layout, rumours)
            or _named_most(by[Weight.RUMOUR], "its peers name it", waits)
            or _shared(waits, ranked.best.ranks, places, quoted)
            or tuple(replace(one, why="one of those that wait; for whom is not told") for one in _ordered(waits))
        )
    return _untold(ranked, layout, quoted)


def _lost_before(own: Sequence[Claim], ranked: Ranked, layout: Layout) -> tuple[Suspect, ...]:
    """Where all that were killed had lost a peer before: the one that says nothing."""
    symptoms = [finding.ranks for finding in layout.findings if finding.is_symptom]
    victims = frozenset[int]().union(*symptoms)
    return _silent((), ranked, layout, {}) if all(one.place.rank in victims for one in own) else ()


def _untold(ranked: Ranked, layout: Layout, quoted: Sequence[EvidenceItem]) -> tuple[Suspect, ...]:
    """Where no line tells whose it is."""
    if ranked.best.fault.id == "node_lost":
        return _silent((), ranked, layout, {})
    if any(_CANCELLED.search(signal.line) for signal in ranked.best.signals):  # `ON` names where the message comes from
        return _job(quoted, "the scheduler ended the whole job")
    return _from_launcher(ranked.best, layout, quoted)


# What the signals say of whom


def _claims(finding: Finding, places: Places, facts: Facts) -> Iterator[Claim]:
    """What each signal says of whom."""
    for signal in by_time(finding.signals):
        speaker = places.place(signal.stream, signal.resource)
        weight = _weight(finding, signal, facts)
        if weight is Weight.HARDWARE:
            yield _hardware(signal, speaker, places)
        elif late := _ranks_named(signal, places):
            yield from (Claim(Weight.TOLD, place, signal) for place in late)
        else:
            yield from _spoken(Claim(weight, speaker, signal), _named(finding, signal, places))


def _spoken(own: Claim, named: Sequence[Place]) -> Iterator[Claim]:
    """What a line of a job's process says: of itself, or of the machines that it names."""
    line, placed = own.signal.line, _placed(own.place)
    of_peer = _OF_PEER.search(line) is not None
    if own.signal.captures.get("status", "") in _LOCAL_STATUS:
        yield replace(own, weight=Weight.OWN)
    elif own.weight is Weight.OWN and placed:
        yield own
    elif named:
        weight = Weight.RUMOUR if own.weight is Weight.WAITS else Weight.TOLD
        peer = of_peer and own.weight is Weight.TOLD
        yield from (Claim(weight, place, own.signal, teller=own.place, peer=peer) for place in named)
        if own.weight is Weight.WAITS:
            yield own
    elif placed and (own.weight is not Weight.TOLD or of_peer or not _LAUNCHER.search(line)):
        yield replace(own, weight=Weight.OWN) if own.weight is Weight.TOLD else own


def _placed(place: Place) -> bool:
    return place.rank is not None or place.node is not None


def _weight(finding: Finding, signal: Signal, facts: Facts) -> Weight:
    line = signal.line
    if facts.streams[signal.stream].summary.ref.kind in ("kernel", "health") or _KERNEL.search(line):
        return Weight.HARDWARE
    if finding.is_symptom or (finding.fault.id in _WAITING and _WAITS.search(line)):
        return Weight.WAITS
    if _OF_PEER.search(line) or _LAUNCHER.search(line) or signal.captures.get("launcher"):
        return Weight.TOLD
    return Weight.OWN


def _hardware(signal: Signal, speaker: Place, places: Places) -> Claim:
    node = speaker.node
    pci = signal.captures.get("pci", "") or (signal.resource.gpu or "")
    pid = signal.captures.get("pid", "")
    rank = speaker.rank if speaker.rank is not None else places.rank_at(node, pid=pid, pci=pci)
    return Claim(Weight.HARDWARE, Place(rank, node or places.node_of(rank), speaker.local), signal, pci)


def _named(finding: Finding, signal: Signal, places: Places) -> list[Place]:
    """The machines that a line names, other than by its prefix; unknown ones only where launchers and schedulers say so."""
    captures = signal.captures
    names = [captures.get(name, "") for name in _NAMING]
    if captures.get("launcher"):
        names.append(captures.get("node", ""))
    told = [one for name in names for one in _expanded(name)]
    found = [node for node in map(places.known, told) if node is not None]
    if not found and finding.fault.id == "node_lost":
        found = told
    if not found and (match := _NAMED.search(signal.line)):
        name = next((part for part in match.groups() if part), "")
        found = [node for one in _expanded(name) if (node := places.node(one))]
    pid = _PID.search(signal.line)
    number = captures.get("pid", "") or (pid[1] if pid else "")
    return [Place(places.rank_at(node, pid=number), node) for node in dict.fromkeys(found)]


def _expanded(name: str) -> list[str]:
    """The hosts of a name as it stands in a line: without port and brackets, a short Slurm list one by one."""
    listed = _LIST.match(name)
    if listed is None:
        found = _MACHINE.search(name)
        return [found[0]] if found else []
    hosts = []
    for part in listed[2].split(","):
        low, _, high = part.partition("-")
        numbers = range(int(low), int(high or low) + 1)[:SUSPECTS]
        hosts += [f"{listed[1]}{number:0{len(low)}d}" for number in numbers]
    return hosts[:SUSPECTS]


def _ranks_named(signal: Signal, places: Places) -> list[Place]:
    """The ranks that a line says are late, absent or slow."""
    numbers = [int(found) for found in _DIGITS.findall(signal.captures.get("ranks", ""))[:SUSPECTS]]
    return [Place(rank, places.node_of(rank)) for rank in dict.fromkeys(numbers) if rank < places.world]


def _fresh(claims: Sequence[Claim], best: Finding) -> list[Claim]:
    """Without what a kernel said long before the failure, as at boot."""
    when = min((signal.time for signal in best.signals if signal.time is not None), default=None)
    if when is None:
        return list(claims)
    return [one for one in claims if one.signal.time is None or one.signal.time > when - LONG_BEFORE]


# Who stands out


def _shared(
    claims: Sequence[Claim], ranks: frozenset[int], places: Places, quoted: Sequence[EvidenceItem]
) -> tuple[Suspect, ...]:
    """The job, where nearly all ranks, or nodes where ranks are not known, show it at about the same time."""
    if _one_before_all(claims):
        return ()
    seen = frozenset(one.place.rank for one in claims if one.place.rank is not None) | ranks
    of_kernels = bool(claims) and claims[0].weight is Weight.HARDWARE
    if 1 < len(seen) >= ALL_ALIKE * places.world and claims and not of_kernels:
        return _job(quoted, f"seen on {len(seen)} of {places.world} ranks")
    nodes = {one.place.node for one in claims} & set(places.nodes)
    fewest = MANY_NODES if of_kernels else 2
    if len(nodes) >= max(fewest, ALL_ALIKE * len(places.nodes)) and len(seen) < len(nodes):
        return _job(quoted, f"seen on {len(nodes)} of {len(places.nodes)} nodes")
    return ()


def _one_before_all(claims: Sequence[Claim]) -> bool:
    """Whether one process shows it a good while before any other does."""
    first: dict[tuple[int | None, str | None, int | None], float] = {}
    for one in claims:
        if one.signal.time is None:
            return False
        unit = one.place.unit
        first[unit] = min(first.get(unit, one.signal.time), one.signal.time)
    times = sorted(first.values())
    return len(times) > 1 and times[1] - times[0] > FIRST_ALONE


def _job(quoted: Sequence[EvidenceItem], why: str) -> tuple[Suspect, ...]:
    return (Suspect("job", why=why, evidence=tuple(one.id for one in quoted)),)


def _agreed(hardware: Sequence[Claim], own: Sequence[Claim], places: Places) -> tuple[Suspect, ...]:
    """What kernels and checks say of nodes, with the ranks of those nodes that show it themselves."""
    speaking: dict[str | None, list[Claim]] = {}
    for one in own:
        speaking.setdefault(one.place.node, []).append(one)
    found: dict[tuple[str | None, int | None], Suspect] = {}
    for one in hardware:
        node, rank = one.place.node, one.place.rank
        if not _placed(one.place):
            continue
        beside = {other.place.rank for other in speaking.get(node, ())} - {None} if node is not None else set()
        if rank is None and len(beside) == 1:
            (rank,) = beside
        why = "the kernel or a check on its node says so"
        if beside:
            why = "the kernel or a check on its node says so, and its own process too"
        found.setdefault((node, rank), _suspect(replace(one, place=replace(one.place, rank=rank)), why))
    told = {one.node for one in found.values() if one.rank is not None or one.gpu is not None}
    kept = [one for one in found.values() if one.kind != "node" or one.node not in told]
    nodes = {one.node for one in kept}
    others = [one for one in _ordered(own) if one.node not in nodes]
    if kept:
        return _scored((*kept, *others))
    return _ordered(own) or _unplaced(hardware, places)


def _unplaced(hardware: Sequence[Claim], places: Places) -> tuple[Suspect, ...]:
    """A kernel log of nobody knows where: of the node, where the job has but one; else a GPU by its address."""
    if len(places.nodes) == 1:
        place = Place(None, places.nodes[0])
        return _scored(_suspect(replace(one, place=place), "the kernel of its node says so") for one in hardware[:1])
    return ()


def _ordered(claims: Sequence[Claim]) -> tuple[Suspect, ...]:
    """Those who show it, the first in time first; a node only where none of its ranks is told."""
    first: dict[tuple[int | None, str | None, int | None], Claim] = {}
    for one in claims:
        if _placed(one.place):
            first.setdefault(one.place.unit, one)
    ranked = {one.place.node for one in first.values() if one.place.rank is not None}
    chosen = [one for one in first.values() if one.place.rank is not None or one.place.node not in ranked]
    by_place = {(one.place.rank, one.place.node): one for one in reversed(chosen)}
    found = [one for one in chosen if by_place[one.place.rank, one.place.node] is one]
    return _scored(_suspect(one, "the first to show it" if at == 0 else "shows it too") for at, one in enumerate(found))


def _suspect(claim: Claim, why: str) -> Suspect:
    place, resource = claim.place, claim.signal.resource
    return Suspect(
        kind="gpu" if claim.pci else "rank" if place.rank is not None else "node",
        node=place.node,
        rank=place.rank,
        local_rank=place.local if place.rank is not None else None,
        pod=resource.container,
        gpu=GpuRef(pci=claim.pci) if claim.pci else None,
        why=why,
    )


def _scored(found: Iterable[Suspect]) -> tuple[Suspect, ...]:
    return tuple(replace(one, score=round(1.0 / (at + 1), 3)) for at, one in enumerate(found))


def _evidenced(one: Suspect, place: int, quoted: Sequence[EvidenceItem]) -> Suspect:
    if one.evidence or one.kind == "job":
        return one
    same = [item for item in quoted if item.rank == one.rank and (one.rank is not None or item.node == one.node)]
    same = same or ([item for item in quoted if item.node == one.node] if one.node is not None else [])
    same = same or (list(quoted) if place == 0 else [])
    return replace(one, evidence=tuple(item.id for item in same[:SHOWN]))


def _named_by_others(claims: Sequence[Claim]) -> tuple[Suspect, ...]:
    """Whom launchers, schedulers and lists of late ranks name; else the side of failed connections that fails most."""
    plain = [one for one in claims if not one.peer]
    return _named_most(plain, "the launcher, the scheduler or another rank names it") or _failing_most(claims)


def _named_most(claims: Sequence[Claim], why: str, waits: Sequence[Claim] = ()) -> tuple[Suspect, ...]:
    """Whom most name, and before others those who do not wait themselves."""
    votes = Counter((one.place.rank, one.place.node) for one in claims)
    waiting = {one.place.node for one in waits}
    first: dict[tuple[int | None, str | None], Claim] = {}
    for one in claims:
        first.setdefault((one.place.rank, one.place.node), one)
    ordered = sorted(first, key=lambda key: (key[1] in waiting, -votes[key]))
    return _scored(_suspect(first[key], why) for key in ordered[:SUSPECTS])


def _failing_most(claims: Sequence[Claim]) -> tuple[Suspect, ...]:
    """Of failed connections the ends that stand in most of them, whether they complain or are complained of."""
    edges: dict[tuple[Place, Place], Claim] = {}
    for one in claims:
        mine, its = _end(one.teller) or Place(), _end(one.place)
        if its is not None and mine != its:
            edges.setdefault((mine, its), one)
    chosen: list[Suspect] = []
    while edges and len(chosen) < SUSPECTS:
        ends = Counter(its for _, its in edges) + Counter(mine for mine, _ in edges if _placed(mine))
        accused = Counter(its for _, its in edges)
        worst = max(ends, key=lambda place: (ends[place], accused[place]))
        if ends[worst] < 2 and chosen:
            break
        claim = next(one for pair, one in edges.items() if worst in pair)
        why = f"it stands in {ends[worst]} of the failed connections" if ends[worst] > 1 else "its peer names it"
        chosen.append(_suspect(replace(claim, place=worst), why))
        edges = {pair: one for pair, one in edges.items() if worst not in pair}
    return _scored(chosen)


def _end(place: Place | None) -> Place | None:
    """One side of a connection: the node, or the rank where no node is known."""
    if place is None or not _placed(place):
        return None
    return Place(None, place.node) if place.node is not None else Place(place.rank)


# Who is missing among those that wait


def _silent(
    waits: Sequence[Claim], ranked: Ranked, layout: Layout, rumours: Mapping[str | None, int]
) -> tuple[Suspect, ...]:
    """Those who do not wait, where most of the others do; `rumours`: how often peers name a node."""
    units = layout.places.units
    waiting = {one.place.unit for one in waits} | {(rank, None, None) for rank in ranked.best.ranks}
    for finding in layout.findings:
        if finding.is_symptom or finding.fault.id in _WAITING:
            waiting |= {(rank, None, None) for rank in finding.ranks}
    quiet = [place for place in units if place.unit not in waiting]
    if not quiet or len(quiet) > max(1, FEW_QUIET * len(units)):
        return _silent_nodes(waits, layout.places)
    why = f"{len(units) - len(quiet)} of {len(units)} ranks wait, and this one does not"
    quiet.sort(key=lambda place: -rumours.get(place.node, 0))  # of several the one that peers name
    return _quiet(_whole_nodes(quiet, units, rumours), why)


def _silent_nodes(waits: Sequence[Claim], places: Places) -> tuple[Suspect, ...]:
    """Nodes of which no log tells of a wait, where ranks are not known."""
    nodes = {one.place.node for one in waits} - {None}
    absent = [Place(None, node) for node in places.nodes if node not in nodes]
    if any(one.place.rank is not None for one in waits) or len(absent) > FEW_QUIET * len(places.nodes):
        return ()
    return _quiet(absent, f"{len(nodes)} of {len(places.nodes)} nodes wait, and this one does not")


def _whole_nodes(quiet: Sequence[Place], units: Sequence[Place], rumours: Mapping[str | None, int]) -> list[Place]:
    """Silent ranks, or their node: where all its ranks are silent, and where peers name it and it cannot be told which rank."""
    here, all_here = Counter(place.node for place in quiet), Counter(place.node for place in units)
    shown: dict[Place, None] = {}
    for place in quiet:
        whole = here[place.node] > 1 and (here[place.node] == all_here[place.node] or rumours.get(place.node, 0) > 0)
        shown.setdefault(Place(None, place.node) if whole and place.node is not None else place)
    return list(shown)


def _quiet(places: Sequence[Place], why: str) -> tuple[Suspect, ...]:
    return _scored(
        Suspect(
            "rank" if place.rank is not None else "node",
            place.node,
            place.rank,
            place.local,
            why=why,
        )
        for place in places[:SUSPECTS]
    )


# Who does otherwise than the rest


def _odd_ones(ranked: Ranked, facts: Facts, places: Places) -> tuple[Suspect, ...]:
    """Of ranks that tell what each runs: those who run something else than most."""
    if ranked.best.fault.id != "collective_desync":
        return ()
    prints: dict[int, str] = {}
    named: Counter[int] = Counter()
    for text in _texts(ranked, facts):
        told = [(int(rank), what) for rank, what in (*_RUNNING.findall(text), *_PARAMS.findall(text))]
        for rank, what in told:
            prints.setdefault(rank, what)
        named.update(rank for rank, _ in told[1:2])
    ((usual, often),) = Counter(prints.values()).most_common(1) or (("", 0),)
    odd = [rank for rank, what in prints.items() if what != usual]
    if odd and often > len(prints) / 2:
        why = f"it differs from {often} other rank{'s' if often > 1 else ''}"
    elif named and named.most_common(1)[0][1] > 1:
        odd, why = [named.most_common(1)[0][0]], "most of the others name it as the one that differs"
    else:
        return ()
    return _scored(Suspect("rank", places.node_of(rank), rank, why=why) for rank in sorted(odd)[:SUSPECTS])


def _texts(ranked: Ranked, facts: Facts) -> Iterator[str]:
    """The whole messages of the exceptions that show it; their lines are cut."""
    streams = {signal.stream: None for finding in ranked.findings for signal in finding.signals}
    for stream in streams:
        for one in facts.streams[stream].exceptions:
            message = str(one.fields.get("message") or "")
            if "mismatch" in message or "same model" in message:
                yield message
    for finding in ranked.findings:
        for signal in finding.signals:
            if signal.kind == "line":
                yield signal.line


# What launchers saw


def _from_launcher(best: Finding, layout: Layout, quoted: Sequence[EvidenceItem]) -> tuple[Suspect, ...]:
    """Where no line names its rank: what the launchers' failure blocks say, as far as it fits how the deciding line ends."""
    places = layout.places
    items = [one for _, one in layout.facts.structures("elastic_failure") if _ends_so(one, best)]
    ranks = {rank for one in items if isinstance(rank := one.fields.get("rank"), int)}
    if len(ranks) > 1 and len(ranks) >= ALL_ALIKE * places.world:
        return _job(quoted, f"{len(ranks)} of {places.world} ranks ended alike")
    if best.first.kind == "exception" and places.world > 1 and best.count >= ALL_ALIKE * places.world:
        return _job(quoted, f"seen {best.count} times on {places.world} ranks")
    if _in_all_logs(best, layout.facts):
        return _job(quoted, "it stands in all logs of the job")
    items = [one for one in items if one.fields.get("root") == "yes"]
    items.sort(key=lambda one: (str(one.fields.get("time") or "~"), one.offset))
    found: dict[int, Suspect] = {}
    for one in items[:SUSPECTS]:
        number = one.fields.get("rank")
        if isinstance(number, int) and number >= 0:
            host = places.node_of(number) or str(one.fields.get("host") or "") or None
            found.setdefault(number, Suspect("rank", host, number, why="the launcher saw it fail first"))
    return _scored(found.values())


def _in_all_logs(best: Finding, facts: Facts) -> bool:
    """Whether nearly all of several logs show it: nobody stands out, whoever wrote them."""
    logs = sum(1 for _ in facts.of_kind("job"))
    shown = {signal.stream for signal in best.signals}
    return len(shown) > 1 and len(shown) >= ALL_ALIKE * logs


def _ends_so(one: Structure, best: Finding) -> bool:
    """Whether a process of the launcher's block may be the one that printed the deciding line."""
    signal = str(one.fields.get("signal") or "")
    wanted = _EXITS.get(best.fault.id)
    if signal == "SIGTERM":
        return False
    if wanted is not None and (best.first.kind != "exception" or signal):
        return signal in wanted
    return not signal or best.first.kind != "exception"
