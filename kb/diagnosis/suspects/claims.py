"""For each signal, the places that it accuses or clears, and the weight of each statement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import IntEnum

from kb.diagnosis.conditions import by_time
from kb.diagnosis.findings import Finding
from kb.facts.job_facts import LAUNCHER_KINDS, Facts
from kb.facts.patterns.signals import Signal
from kb.facts.topology import Place, Places
from kb.regex.lazy import lazy_compile
from kb.values import dataclass

# of a GPU: the kernel writes it with the function, the driver without
_ADDRESS = lazy_compile(r"(?i)[0-9a-f]{4,8}(?::[0-9a-f]{2}){2}(?:\.0)?")
SUSPECTS = 16
LONG_BEFORE = 3600.0  # seconds; kernel messages that much older than the failure are ignored
WAITING_FAULTS = frozenset({"rendezvous", "collective_timeout", "peer_failure", "deadlock"})
_KERNEL = lazy_compile(
    r"\d\d:\d\d:\d\d\S{0,24} [\w.-]{1,64} kernel: |NVRM: |\bSXid \(|\bEDAC |\bmce: \[|\boom-kill:|Out of memory: Kill|\bpcieport |\bAER: "
    r"|\bmlx[45]_(?:core|ib) \S{4,20}[ :]"
)
_TOOL = lazy_compile(r"Unable to determine the device handle for|\bnvidia-smi\b")
_WAITS = lazy_compile(
    r"(?i)timed? ?-?out|waiting for|clients joined|store_based_barrier|still waiting|connection (?:was )?(?:closed|reset|refused|aborted)"
    r"|closed by (?:remote )?peer|reset by peer|remote process exited|broken pipe|deadline[ _]exceeded"
)
# of a timeout of any fault: that of a barrier, or of a wait for others
_FOR_OTHERS = lazy_compile(
    r"(?i)\bbarrier\b.{0,40}tim(?:ed|e) ?out|timed out.{0,60}(?:\bbarrier\b|waiting for (?:all|other|the other|its peers|ranks|workers|tasks|processes))"
)
_RECEIVED = lazy_compile(r"op\.preamble\.length <= op\.nbytes")  # Gloo: another rank sent more than this one expects
_OF_PEER = lazy_compile(r"Got completion|retry counter exceeded|RETRY_EXC_ERR")
_LOCAL_GID = lazy_compile(r"\blocalGid (?:::ffff:)?((?:\d{1,3}\.){3}\d{1,3})\b")
_LOCAL_STATUS = frozenset({"1", "2", "4", "5", "6", "8"})  # of a work completion: the fault is on this side
_LAUNCHER = lazy_compile(
    r"\*\*\* (?:JOB|STEP) |\b(?:srun|salloc|sbatch|slurmstepd|slurmctld|mpirun|mpiexec|pdsh@\S{1,64}): |\bORTE\b|\bPRTE\b|\(raylet\b"
)
_STEP_DAEMON = lazy_compile(r"^\s{0,6}\d{1,6}: slurmstepd: (?!error: \*\*\*)")
_HOST = r"[\w][\w.-]{1,63}"
_NUMBERED = r"(?=[\w.-]{0,60}[\d-])[\w][\w.-]{1,63}"  # where a common word could follow instead
_NAMED = lazy_compile(
    rf"Node failure on ({_HOST})|\b[Nn]odes? ({_NUMBERED}) (?:not responding|unexpectedly rebooted|is (?:down|not ready))"
    rf"|RUNNING AT ({_HOST})|node-name=({_HOST})|\bon failed node ({_HOST})|failure of node ({_HOST})"
    r"|[Nn]odes? ([A-Za-z][\w.-]{0,62}\[[\d,-]{1,120}\]) (?:not responding|are|is)\b"
    rf"|error: ({_HOST}): tasks? [\d,\[\]-]{{1,200}}: |[lL]ost connection to (?:node|slurmstepd|slurmd) ?({_HOST})?"
    r"|\((?:IP|node_ip)[:=] ?([0-9.]{7,15})|\bIP: ([0-9.]{7,15})|\bip=([0-9.]{7,15})|NodeName=([\w.-]{2,63})"
    rf"|\bpeer \[?({_NUMBERED})\]?[:<]|from peer ([0-9.]{{7,15}})|from ([0-9.]{{7,15}})<"
)
# Ray's prefix within a line: the record of another process, which a lost line break joined to this one
_JOINED = lazy_compile(  # with a level or a time of its own behind it
    r"(?<=[\w'\").\]])(?<!\dZ) ?\([A-Za-z][\w.:]{0,80} pid=\d{1,9}(?:, ip=[0-9A-Fa-f.:]{3,45})?\) (?=.{0,40}(?:INFO|WARN|ERROR|DEBUG|\d\d:\d\d:\d\d))"
)
_PID = lazy_compile(r"\bpid[=: ]{1,2}(\d{1,9})\b")
_NAMES_RANKS = ("mpirun", "pals", "own")  # launchers whose messages name the rank that ended
_NAMING = ("failed", "peer", "host", "ip")  # captures that name a machine
_MACHINE = lazy_compile(r"(?:\d{1,3}\.){3}\d{1,3}|[A-Za-z][\w-]{0,62}(?:\.[\w-]{1,62}){0,6}")
_LIST = lazy_compile(r"([A-Za-z][\w.-]{0,62})\[(\d{1,6}(?:-\d{1,6})?(?:,\d{1,6}(?:-\d{1,6})?){0,15})\]")
_DIGITS = lazy_compile(r"\d{1,7}")
_RANKS = r"[Rr]anks?[ :=#]{0,2}\[?(\d{1,6})\b"
# a line that says of another rank that it failed, is lost or is late
_ACCUSED = lazy_compile(
    rf"(?:[Rr]emote|[Pp]eer|[Ff]aulty|[Ff]ailed|[Ff]ailing|[Dd]ead|[Ll]ost|[Mm]issing|[Uu]nhealthy|[Ss]talled|[Hh]ung|[Cc]rashed) {_RANKS}"
    rf"|(?:(?:lost|losing) (?:the )?connection (?:to|with)|no (?:reply|response|answer|heartbeat) from|check|send/recv from|(?:recv|receive|read) from"
    rf"|waiting (?:for|on)|heard from) {_RANKS}(?! of \d)"
    rf"|\b{_RANKS}\]?,? (?:has |have |is |was |did )?(?:died|dead|failed|crashed|exited|lost|unreachable|disconnected|not (?:respond|reply|answer)\w{{0,3}}"
    rf"|stopped responding|missing|hung|stalled|gone|reported (?:an? )?(?:NaN|nan|inf|error|non-finite))\b"
)
# a line of no known process that says where it happened
_AT = lazy_compile(rf"\b(?:on|in|at|by) (?:global )?{_RANKS}(?! of \d)|\((?:global )?{_RANKS}\)")
# Which counts its members from 0, as HCCL does in its messages about a wait.
_IN_SUBGROUP = lazy_compile(r"(?i)\bgroup|communicator|\bPG\b|\bE[IJ]\d{4}\b|\bnotify (?:wait|register|record)")


class EvidenceWeight(IntEnum):
    """The weight of a piece of evidence against a suspect, the strongest first."""

    HARDWARE = 0
    OWN = 1
    TOLD = 2
    RUMOUR = 3  # about a peer, by a process that waits
    WAITS = 4


@dataclass(frozen=True, slots=True)
class SuspectClaim:
    """One signal as evidence against a place.

    `pci`: the GPU that it names; `teller`: who reports it, if that is another; `checked`: a check on the node does.
    """

    weight: EvidenceWeight
    place: Place
    signal: Signal
    pci: str = ""
    teller: Place | None = None
    peer: bool = False
    checked: bool = False


# Claims


def claims_of(finding: Finding, places: Places, facts: Facts) -> Iterator[SuspectClaim]:
    """Return the claims of a finding's signals."""
    for signal in by_time(finding.signals):
        if signal.kind == "checkpoint":  # that a rank logs a save accuses nobody
            continue
        speaker = places.place(signal.stream, signal.resource)
        weight = _weight_of(finding, signal, facts)
        if weight is EvidenceWeight.HARDWARE:
            health = facts.streams[signal.stream].summary.ref.kind == "health"
            checked = (health or _TOOL.search(signal.line) is not None) and not _KERNEL.search(signal.line)
            yield replace(_hardware_claim(signal, speaker, places), checked=checked)
        elif late := _ranks_named(signal, places):
            yield from (SuspectClaim(EvidenceWeight.TOLD, place, signal) for place in late)
        elif others := [place for place in _accused(signal, places) if place.rank != speaker.rank]:
            told = EvidenceWeight.RUMOUR if weight is EvidenceWeight.WAITS else EvidenceWeight.TOLD
            yield from (SuspectClaim(told, place, signal, teller=speaker) for place in others)
            if weight is EvidenceWeight.WAITS:
                yield SuspectClaim(weight, speaker, signal)
        else:
            at = (
                speaker
                if speaker.rank is not None or weight is not EvidenceWeight.OWN
                else _told_place(signal, places, speaker)
            )
            yield from _claims_of_line(SuspectClaim(weight, at, signal), _machines_named(finding, signal, places))


def _claims_of_line(own: SuspectClaim, named: Sequence[Place]) -> Iterator[SuspectClaim]:
    """Return the claims of a line of the job: about itself, or about the machines that it names."""
    line, placed = own.signal.line, has_place(own.place)
    of_peer = _OF_PEER.search(line) is not None
    if own.signal.captures.get("status", "") in _LOCAL_STATUS:
        yield replace(own, weight=EvidenceWeight.OWN)
    elif own.weight is EvidenceWeight.OWN and placed:
        yield own
    elif named:
        weight = EvidenceWeight.RUMOUR if own.weight is EvidenceWeight.WAITS else EvidenceWeight.TOLD
        peer = of_peer and own.weight is EvidenceWeight.TOLD
        teller = own.place if placed else _local_end(line)
        yield from (SuspectClaim(weight, place, own.signal, teller=teller, peer=peer) for place in named)
        if own.weight is EvidenceWeight.WAITS:
            yield own
    elif placed and (
        own.weight is not EvidenceWeight.TOLD or of_peer or _of_own_task(own) or not _LAUNCHER.search(line)
    ):
        yield replace(own, weight=EvidenceWeight.OWN) if own.weight is EvidenceWeight.TOLD else own


def _of_own_task(claim: SuspectClaim) -> bool:
    """Whether a line is of the step daemon of the one task that its label names."""
    return claim.place.rank is not None and _STEP_DAEMON.search(claim.signal.line) is not None


def _local_end(line: str) -> Place:
    """Return the end of a connection that prints a line, by the address that the line gives for it."""
    found = _LOCAL_GID.search(line)
    return Place(None, found[1]) if found else Place()


def waits_for_others(signal: Signal) -> bool:
    """Whether a line reports that its rank waits for another one, or has lost it."""
    return _WAITS.search(signal.line) is not None


def of_launcher(signal: Signal) -> bool:
    """Whether a launcher or scheduler wrote a line, also if its prefix names a rank."""
    return bool(signal.captures.get("launcher")) or _LAUNCHER.search(signal.line) is not None


def has_place(place: Place) -> bool:
    """Whether a rank or a node is known."""
    return place.rank is not None or place.node is not None


def _weight_of(finding: Finding, signal: Signal, facts: Facts) -> EvidenceWeight:
    line = signal.line
    if facts.streams[signal.stream].summary.ref.kind in ("kernel", "health") or _KERNEL.search(line):
        return EvidenceWeight.HARDWARE
    if (
        finding.is_symptom
        or signal.kind == "watchdog"
        or (finding.fault.id in WAITING_FAULTS and _WAITS.search(line))
        or _RECEIVED.search(line)
        or _FOR_OTHERS.search(line)
    ):
        return EvidenceWeight.WAITS
    if _OF_PEER.search(line) or of_launcher(signal):
        return EvidenceWeight.TOLD
    return EvidenceWeight.OWN


def _hardware_claim(signal: Signal, speaker: Place, places: Places) -> SuspectClaim:
    node = speaker.node
    pci = signal.captures.get("pci", "") or (signal.resource.gpu or "")
    pci = pci.lower().removesuffix(".0") if _ADDRESS.fullmatch(pci) else pci
    pid = signal.captures.get("pid", "")
    rank = speaker.rank if speaker.rank is not None else places.rank_at(node, pid=pid, pci=pci)
    return SuspectClaim(EvidenceWeight.HARDWARE, Place(rank, node or places.node_of(rank), speaker.local), signal, pci)


def _machines_named(finding: Finding, signal: Signal, places: Places) -> list[Place]:
    """Return the machines that a line names, other than by its prefix.

    Unknown ones count only from launchers and schedulers.
    """
    captures = signal.captures
    names = [captures.get(name, "") for name in _NAMING]
    stated = signal.kind == "line" and captures.get("node", "")  # what a rule reads as the node that its line is about
    if captures.get("launcher") or stated:
        names.append(captures.get("node", ""))
    told = [host for name in names for host in _expand_hosts(name)]
    found = [node for node in map(places.known, told) if node is not None]
    if not found and (finding.fault.id == "node_lost" or stated):
        found = told
    joined = _JOINED.search(signal.line)
    line = signal.line[: joined.start()] if joined else signal.line
    if not found and (match := _NAMED.search(line)):
        name = next((part for part in match.groups() if part), "")
        found = [node for host in _expand_hosts(name) if (node := places.node(host))]
    launcher = captures.get("launcher")
    rank = places.rank_of_task(captures.get("task", "")) if launcher == "srun" else None
    if launcher in _NAMES_RANKS:
        rank = signal.resource.rank
    if rank is not None:
        return [Place(rank, places.node_of(rank) or next(iter(found), None))]
    pid = _PID.search(line)
    number = captures.get("pid", "") or (pid[1] if pid else "")
    return [Place(places.rank_at(node, pid=number), node) for node in dict.fromkeys(found)]


def _expand_hosts(name: str) -> list[str]:
    """Return the hosts of a name in a line, without port and brackets; a short Slurm list is expanded."""
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
    """Return the ranks that a line reports as late, absent or slow."""
    numbers = [int(found) for found in _DIGITS.findall(signal.captures.get("ranks", ""))[:SUSPECTS]]
    return [Place(rank, places.node_of(rank)) for rank in dict.fromkeys(numbers) if places.allows(rank)]


def _accused(signal: Signal, places: Places) -> list[Place]:
    """Return the ranks of which a line says that they failed, are lost or are late."""
    line = signal.line
    if signal.kind in LAUNCHER_KINDS or _IN_SUBGROUP.search(line):
        return []
    numbers = [int(number) for found in _ACCUSED.findall(line)[:SUSPECTS] for number in found if number]
    return [Place(rank, places.node_of(rank)) for rank in dict.fromkeys(numbers) if places.allows(rank)]


def _told_place(signal: Signal, places: Places, speaker: Place) -> Place:
    """Return the one rank on which a line says that it happened; the speaker if it names none or several."""
    found = {int(number) for pair in _AT.findall(signal.line) for number in pair if number}
    if len(found) != 1 or _IN_SUBGROUP.search(signal.line):
        return speaker
    (rank,) = found
    return Place(rank, places.node_of(rank) or speaker.node) if places.allows(rank) else speaker


def recent_claims(claims: Sequence[SuspectClaim], best: Finding) -> list[SuspectClaim]:
    """Drop what a kernel reported long before the failure, such as at boot."""
    when = min((signal.time for signal in best.signals if signal.time is not None), default=None)
    if when is None:
        return list(claims)
    return [claim for claim in claims if claim.signal.time is None or claim.signal.time > when - LONG_BEFORE]
