"""Learns how a job's logs name their ranks, from the first lines of several of them (kb.templates.rank_prefixes)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from connectors.bundles.streams import DiscoveredStreams, StreamReader, discover
from kb.model import StreamRef

HEAD = 64 * 1024  # bytes of a log by which its forms are judged
FEWEST_LINES = 12  # fewer show no form
MOST_MIXED = 64  # logs of several ranks each whose first lines are examined together
MOST_OWN = 8  # logs of one rank each, likewise


@dataclass(frozen=True, slots=True)
class SharedForms:
    """How the lines of a job's logs name their ranks, where several logs show it together.

    `mixed`: in logs of several ranks; `own`: in logs of one rank; `several`: there are some of the latter, so that none learns a form alone.
    `journals`: in journals of nodes, which may hold the lines of the job's ranks.
    """

    mixed: re.Pattern[bytes] | None = None
    journals: re.Pattern[bytes] | None = None
    own: re.Pattern[bytes] | None = None
    several: bool = False


NO_FORMS = SharedForms()


def head_of(ref: StreamRef) -> bytes:
    """Return the first bytes of a stream, by which its forms are judged."""
    head = b""
    for block in StreamReader(ref, block=HEAD):
        head += block
        if len(head) >= HEAD:
            break
    return head


def found_streams(paths: Sequence[Path], *, bundle: bool = False, within: Path | None = None) -> DiscoveredStreams:
    """List the streams under the paths, as `discover` does, without ranks that the lines of the streams contradict."""
    found = discover(paths, bundle=bundle, within=within)
    return replace(found, streams=without_node_numbers(found.streams))


def without_node_numbers(streams: Sequence[StreamRef]) -> tuple[StreamRef, ...]:
    """The streams without the ranks by which their files are numbered, if the numbers are those of nodes.

    It is so if the lines of each log name several ranks, none of which another log names.
    """
    logs = [ref for ref in streams if ref.group == "logs" and ref.kind == "job" and ref.resource.rank is not None]
    numbers = sorted({ref.resource.rank or 0 for ref in logs})[:MOST_OWN]
    if len(numbers) < 2:
        return tuple(streams)
    from kb.templates.rank_prefixes import names_several_each  # noqa: PLC0415 - few jobs need it

    heads = [b"".join(head_of(ref) for ref in logs if ref.resource.rank == number) for number in numbers]
    if not names_several_each(heads):
        return tuple(streams)
    ours = {ref.uri for ref in logs}
    return tuple(replace(ref, resource=replace(ref.resource, rank=None)) if ref.uri in ours else ref for ref in streams)


def shared_forms(streams: Sequence[StreamRef]) -> SharedForms:
    """How the lines of several logs name their ranks: one alone shows it only of the first ones, or only if it has lines of many kinds."""
    logs = [ref for ref in streams if ref.group == "logs" and ref.kind == "job"]
    mixed = [ref for ref in logs if ref.resource.rank is None]
    own = [(ref, rank) for ref in logs if (rank := ref.resource.rank) is not None]
    several = len({rank for _, rank in own}) > 1
    journals = [ref for ref in streams if ref.group == "logs" and ref.kind == "kernel" and ref.resource.rank is None]
    some = own[:: -(-len(own) // MOST_OWN)] if several else []
    return SharedForms(_shared(mixed), _shared(journals), _shared_own(some), several)


def _shared_own(logs: Sequence[tuple[StreamRef, int]]) -> re.Pattern[bytes] | None:
    """How the lines of several logs of one rank each name it."""
    if not logs:
        return None
    from kb.templates.rank_prefixes import shared_own_prefix_of  # noqa: PLC0415 - few jobs need it

    return shared_own_prefix_of([(head_of(ref), rank) for ref, rank in logs])


def _shared(logs: Sequence[StreamRef]) -> re.Pattern[bytes] | None:
    """How the lines of several logs of several ranks name them."""
    if not 1 < len(logs) <= MOST_MIXED:
        return None
    from kb.templates.rank_prefixes import shared_prefix_of  # noqa: PLC0415 - few jobs need it

    return shared_prefix_of([head_of(ref) for ref in logs])


def speaker_of(ref: StreamRef, head: bytes, forms: SharedForms) -> re.Pattern[bytes] | None:
    """Return how the lines of a stream name its ranks, or its one rank, if in a form of their own."""
    known = _form_of_several(ref, forms)
    if known is not None or ref.kind not in ("job", "kernel") or head.count(b"\n") < FEWEST_LINES:
        return known
    from kb.templates.rank_prefixes import own_prefix_of, rank_prefix_of  # noqa: PLC0415 - short logs do not need it

    if ref.resource.rank is None:  # a journal may be that of the job's units
        return rank_prefix_of(head)
    return None if forms.several or ref.kind == "kernel" else own_prefix_of(head, ref.resource.rank)


def _form_of_several(ref: StreamRef, forms: SharedForms) -> re.Pattern[bytes] | None:
    """The form that several logs like a stream show together."""
    if ref.kind == "kernel":
        return forms.journals if ref.resource.rank is None else None
    if ref.kind != "job":
        return None
    return forms.mixed if ref.resource.rank is None else forms.own if forms.several else None


def form_of_ranks(speaker: re.Pattern[bytes] | None, ref: StreamRef) -> re.Pattern[bytes] | None:
    """The form in which the lines of a log of several ranks name them; None if they name processes, as those of Ray's actors do."""
    if speaker is None or ref.resource.rank is not None:
        return None
    from kb.templates.rank_prefixes import ACTOR  # noqa: PLC0415 - few logs need it

    return None if speaker == ACTOR else speaker
