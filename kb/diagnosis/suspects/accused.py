"""Suspects from what they report themselves, and from what others report of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from kb.diagnosis.suspects.claims import SUSPECTS, EvidenceWeight, SuspectClaim, has_place
from kb.diagnosis.suspects.ranking import first_in_time, to_suspect, whole_job, with_scores
from kb.diagnosis.suspects.sighting import BY_CHECK, BY_KERNEL, BY_LAUNCHER, BY_LINES, BY_RANK, BY_SLURM
from kb.facts.topology import Place, Places
from kb.regex.lazy import lazy_compile
from kb.report import ONE_END, EvidenceItem, Suspect

ALL_ALIKE = 0.8  # share of ranks (nodes) that show it, from which on it concerns the whole job
MANY_NODES = 4  # nodes whose kernels report it, from which on it no longer concerns single nodes
_SLURM = lazy_compile(r"(?:\d{1,6}: )?(?:srun|slurmstepd|slurmctld|slurmd|salloc|sbatch): ")
MANY_GPUS = 4  # of one node that report it, from which on the node is named instead
FIRST_ALONE = 60.0  # seconds by which a process must precede all others to be a case of its own


# Which suspects stand out


def shared_by_job(
    claims: Sequence[SuspectClaim], ranks: frozenset[int], places: Places, quoted: Sequence[EvidenceItem]
) -> tuple[Suspect, ...]:
    """Return the job where nearly all ranks (or nodes, if ranks are unknown) show it at about the same time."""
    if _one_before_all(claims):
        return ()
    seen = frozenset(claim.place.rank for claim in claims if claim.place.rank is not None) | ranks
    of_kernels = bool(claims) and claims[0].weight is EvidenceWeight.HARDWARE
    if 1 < len(seen) >= ALL_ALIKE * places.world and claims and not of_kernels:
        return whole_job(quoted, f"seen on {places.shared_by(seen)}")
    nodes = {claim.place.node for claim in claims} & set(places.nodes)
    if 1 < places.world - 1 <= len(seen) and not of_kernels and nodes >= set(places.nodes):
        return whole_job(quoted, f"seen on {places.shared_by(seen)}")  # the last one was stopped before
    fewest = MANY_NODES if of_kernels else 2
    if len(nodes) >= max(fewest, ALL_ALIKE * len(places.nodes)) and len(seen) < len(nodes):
        return whole_job(quoted, f"seen on {len(nodes)} of {len(places.nodes)} nodes")
    return ()


def _one_before_all(claims: Sequence[SuspectClaim]) -> bool:
    """Whether one process shows it clearly before any other does."""
    first: dict[tuple[int | None, str | None, int | None], float] = {}
    for claim in claims:
        if claim.signal.time is None:
            return False
        unit = claim.place.unit
        first[unit] = min(first.get(unit, claim.signal.time), claim.signal.time)
    times = sorted(first.values())
    return len(times) > 1 and times[1] - times[0] > FIRST_ALONE


def hardware_suspects(
    hardware: Sequence[SuspectClaim], own: Sequence[SuspectClaim], places: Places
) -> tuple[Suspect, ...]:
    """Return the nodes that kernels and checks report, with those of their ranks that report it themselves."""
    speaking: dict[str | None, list[SuspectClaim]] = {}
    for suspect_claim in own:
        speaking.setdefault(suspect_claim.place.node, []).append(suspect_claim)
    found: dict[tuple[str | None, int | None, str], Suspect] = {}
    for suspect_claim in _of_whole_nodes(hardware):
        node, rank = suspect_claim.place.node, suspect_claim.place.rank
        if not has_place(suspect_claim.place):
            continue
        beside = {other.place.rank for other in speaking.get(node, ())} - {None} if node is not None else set()
        if rank is None and len(beside) == 1:
            (rank,) = beside
        why = _reporter(suspect_claim)
        if beside:
            why = f"{why}, and by its own process"
        pci = suspect_claim.pci if rank is None else ""
        found.setdefault(
            (node, rank, pci), to_suspect(replace(suspect_claim, place=replace(suspect_claim.place, rank=rank)), why)
        )
    told = {suspect.node for suspect in found.values() if suspect.rank is not None or suspect.gpu is not None}
    kept = [suspect for suspect in found.values() if suspect.kind != "node" or suspect.node not in told]
    nodes = {suspect.node for suspect in kept}
    others = [suspect for suspect in first_in_time(own) if suspect.node not in nodes]
    if kept:
        return with_scores((*kept, *others))
    return first_in_time(own) or _node_of_unplaced(hardware, places)


def _of_whole_nodes(hardware: Sequence[SuspectClaim]) -> Iterator[SuspectClaim]:
    """Yield the claims, those about many GPUs of one node as claims about the node: what they share fails, or all do."""
    devices: dict[str | None, set[str]] = {}
    for claim in hardware:
        devices.setdefault(claim.place.node, set()).update([claim.pci] if claim.pci else [])
    for claim in hardware:
        node = claim.place.node
        many = node is not None and claim.place.rank is None and len(devices[node]) >= MANY_GPUS
        yield replace(claim, pci="") if many else claim


def _reporter(claim: SuspectClaim) -> str:
    return BY_CHECK if claim.checked else BY_KERNEL


def _node_of_unplaced(hardware: Sequence[SuspectClaim], places: Places) -> tuple[Suspect, ...]:
    """Place a kernel log of unknown origin: on the node where the job has only one, else on its GPUs by their addresses."""
    if len(places.nodes) == 1:
        place = Place(None, places.nodes[0])
        return with_scores(
            to_suspect(replace(suspect_claim, place=place), _reporter(suspect_claim)) for suspect_claim in hardware[:1]
        )
    by_address: dict[str, SuspectClaim] = {}
    for claim in hardware:
        if claim.pci:
            by_address.setdefault(claim.pci, replace(claim, place=Place()))
    logs = {claim.signal.stream for claim in hardware}
    if len(by_address) == 1 or len(logs) == 1:  # on another node, the same address is another GPU
        return with_scores(to_suspect(claim, _reporter(claim)) for claim in by_address.values())
    return ()


def named_by_others(claims: Sequence[SuspectClaim]) -> tuple[Suspect, ...]:
    """Return those that launchers, schedulers and lists recently ranks name, else the ends that fail most."""
    plain = [claim for claim in claims if not claim.peer]
    tellers = {_teller(claim) for claim in plain}
    return most_named(plain, tellers.pop() if len(tellers) == 1 else BY_LINES) or _failing_connections(claims)


def _teller(claim: SuspectClaim) -> str:
    """Return who reports what a claim rests on, as far as its line shows."""
    if _SLURM.match(claim.signal.line):
        return BY_SLURM
    if claim.signal.captures.get("launcher"):
        return BY_LAUNCHER
    return BY_RANK if claim.teller is not None and claim.teller.rank is not None else BY_LINES


def most_named(claims: Sequence[SuspectClaim], why: str, waits: Sequence[SuspectClaim] = ()) -> tuple[Suspect, ...]:
    """Return the places named most often, those that do not wait first. If a line names a rank, its node alone does not count."""
    ranked = {
        (claim.signal.stream, claim.signal.offset, claim.place.node) for claim in claims if claim.place.rank is not None
    }
    claims = [
        claim
        for claim in claims
        if claim.place.rank is not None or (claim.signal.stream, claim.signal.offset, claim.place.node) not in ranked
    ]
    votes = Counter((claim.place.rank, claim.place.node) for claim in claims)
    waiting = {wait.place.node for wait in waits}
    first: dict[tuple[int | None, str | None], SuspectClaim] = {}
    for claim in claims:
        first.setdefault((claim.place.rank, claim.place.node), claim)
    ordered = sorted(first, key=lambda key: (key[1] in waiting, -votes[key]))
    return with_scores(to_suspect(first[key], why) for key in ordered[:SUSPECTS])


def _failing_connections(claims: Sequence[SuspectClaim]) -> tuple[Suspect, ...]:
    """Return the ends that take part in most failed connections, on either side."""
    edges: dict[tuple[Place, Place], SuspectClaim] = {}
    for suspect_claim in claims:
        mine, its = _connection_end(suspect_claim.teller) or Place(), _connection_end(suspect_claim.place)
        if its is not None and mine != its:
            edges.setdefault((mine, its), suspect_claim)
    chosen: list[Suspect] = []
    while edges and len(chosen) < SUSPECTS:
        ends = Counter(its for _, its in edges) + Counter(mine for mine, _ in edges if has_place(mine))
        accused = Counter(its for _, its in edges)
        worst = max(ends, key=lambda place: (ends[place], accused[place]))
        if ends[worst] < 2 and chosen:
            break
        claim = next(item for pair, item in edges.items() if worst in pair)
        if ends[worst] > 1:
            chosen.append(to_suspect(replace(claim, place=worst), f"part of {ends[worst]} of the failed connections"))
        else:  # one connection accuses neither end
            both = sorted(next(pair for pair in edges if worst in pair), key=lambda end: end != worst)
            chosen += [to_suspect(replace(claim, place=end), ONE_END) for end in both if has_place(end)]
        edges = {pair: item for pair, item in edges.items() if worst not in pair}
    return with_scores(chosen)


def _connection_end(place: Place | None) -> Place | None:
    """Return one side of a connection: the node, or the rank where the node is unknown."""
    if place is None or not has_place(place):
        return None
    return Place(None, place.node) if place.node is not None else Place(place.rank)
