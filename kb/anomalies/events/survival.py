"""Finds out whether the writer of a line, or the job, continued after it: then an exception was caught, and a complaint was not fatal.

An exception that nobody catches ends its process. What the process prints afterwards, in words that were used before, here and in good
runs, shows that it did not; so does a separate exception about a lost peer, which only a living process can lose. What first comes after it may be its end.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping

from kb.anomalies.core.blocks import is_part
from kb.anomalies.core.run import LineRef, NodeEvent, RunEvent, RunProfile
from kb.anomalies.core.severity_words import is_body, is_consequence, is_raised
from kb.anomalies.runs.baseline_diff import NEW, EventComparison
from kb.anomalies.time.run_end import JUST_BEFORE, LineTimes, RunEnding

STEPS_BEHIND = 2  # step lines after an exception that show that it was caught
EARLIER = 0.5  # seconds by which words were used before
_CHAINED = re.compile(r"(?i)^\W*(?:during handling of|the above exception was)")
_Speaker = tuple[str, int | None]  # source and rank


class Survival:
    """Examines the lines of one run. `nodes`: how many it has; `compared`: each event with the good run."""

    def __init__(
        self,
        run: RunProfile,
        compared: Mapping[str, EventComparison],
        ending: RunEnding,
        times: LineTimes,
        nodes: int,
    ) -> None:
        self._run, self._compared, self._ending, self._times, self._nodes = run, compared, ending, times, nodes
        self._beats = self._step_places()
        lasts = [voice.last for voice in run.voices if voice.last is not None]
        self._ends: Mapping[_Speaker, int] = {
            (spot.source, spot.rank): spot.offset for spot in lasts if spot.rank is not None
        }
        self.routine, self._own_routine = self._last_routine()
        self._words = self._by_speaker()
        self._losses, self._chains = self._lost_peers()
        self._others_did_not = self._has_last()

    def most_went_on(self, where: Mapping[str, NodeEvent]) -> bool:
        """Whether most speakers of an exception continued after it, and no rank's log ends with it: what one survived may end another."""
        spots = [spot for seen in where.values() for spot in seen.spots]
        went_on = [self.went_on(spot, self.time(spot)) for spot in spots]
        ended = any(
            not survived and self._ends.get((spot.source, spot.rank)) == spot.offset
            for spot, survived in zip(spots, went_on, strict=True)
        )
        return sum(went_on) * 2 >= len(spots) and not ended

    def all_went_on(self, where: Mapping[str, NodeEvent]) -> bool:
        """Whether each rank that wrote an event wrote something usual after it."""
        spots = [spot for seen in where.values() for spot in seen.spots]
        return all(spot.rank is not None and self._spoke_usually(spot, self.time(spot)) for spot in spots)

    def went_on(self, spot: LineRef, when: float | None) -> bool:
        """Whether the job, or the speaker, continued long after a line."""
        return self._was_caught(when) or self._spoke_on(spot, when) or (not spot.dated and self._steps_behind(spot))

    def time(self, spot: LineRef) -> float | None:
        """When a line was written. A line without a time that follows all usual lines of its source was not written before the job's last step."""
        when, at = self._times.time(spot), self._ending.at
        if when is None or at is None or when >= at or not self._ending.crashed or not self._times.is_open(spot):
            return when
        return when if self.routine.get(spot.source, -1) > spot.offset else at

    def _was_caught(self, when: float | None) -> bool:
        """Whether the job continued with its steps long after an exception: then something handled it."""
        ending = self._ending
        room = max(JUST_BEFORE, STEPS_BEHIND * ending.interval)
        return when is not None and ending.at is not None and ending.at - when > room

    def _spoke_on(self, spot: LineRef, when: float | None) -> bool:
        """Whether the rank that wrote a line wrote usual lines after it, words that were used before, or of a peer that it lost."""
        if spot.rank is None:
            return False
        return self._spoke_usually(spot, when) or (self._others_did_not and self._lost_later(spot))

    def _spoke_usually(self, spot: LineRef, when: float | None) -> bool:
        """Whether the rank that wrote a line wrote usual lines after it, or words that were used before."""
        speaker = spot.source, spot.rank
        if self._own_routine.get(speaker, -1) > spot.offset:
            return True
        later = self._words.get(speaker, [])
        return when is not None and any(first < when - EARLIER for at, first in later if at > spot.offset)

    def _lost_later(self, spot: LineRef) -> bool:
        """Whether the speaker lost a peer after a line, in an exception of its own."""
        lost = [at for at in self._losses.get((spot.source, spot.rank), ()) if at > spot.offset]
        return bool(lost) and not any(spot.offset < at < lost[0] for at in self._chains.get(spot.source, ()))

    def _has_last(self) -> bool:
        """Whether any rank raised an exception after which it lost no peer: then those that did were alive, else all of it is one end."""
        return any(
            spot.rank is not None and not self._lost_later(spot)
            for event in self._run.events.values()
            if is_raised(event.text) and not is_consequence(event.text) and not self._is_known(event)
            for seen in event.nodes.values()
            for spot in seen.spots[-1:]
        )

    def _is_known(self, event: RunEvent) -> bool:
        return event.id in self._compared and not self._is_new(event)

    def _is_new(self, event: RunEvent) -> bool:
        one = self._compared.get(event.id)
        return one is not None and one.fresh >= 0.5

    def _is_unlike(self, event: RunEvent) -> bool:
        """Whether a good run is known, and has nothing of it: such a last line may belong to the end."""
        one = self._compared.get(event.id)
        return one is not None and one.fresh >= NEW

    def _steps_behind(self, spot: LineRef) -> bool:
        """Whether the job's steps continued in the source of a line after it."""
        places = self._beats.get(spot.source, ())
        return len({step for offset, step in places[bisect_right(places, (spot.offset, math.inf)) :]}) > STEPS_BEHIND

    # What is known of the run

    def _step_places(self) -> Mapping[str, list[tuple[int, float]]]:
        """By source the places of step lines in order, with their steps."""
        found: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for beat in self._run.beats:
            found[beat.spot.source].append((beat.spot.offset, beat.step))
        return {source: sorted(places) for source, places in found.items()}

    def _last_routine(self) -> tuple[Mapping[str, int], Mapping[_Speaker, int]]:
        """By source, and by source and rank, the offset of the last line of an event that most nodes print, and the good run, too."""
        last: dict[str, int] = {}
        own: dict[_Speaker, int] = {}
        for event in filter(self._is_usual, self._run.events.values()):
            for seen in event.nodes.values():
                for spot in seen.spots:
                    last[spot.source] = max(last.get(spot.source, -1), spot.offset)
                    if not is_raised(event.text):
                        own[spot.source, spot.rank] = max(own.get((spot.source, spot.rank), -1), spot.offset)
        ends = [voice.last for voice in self._run.voices if voice.last is not None and voice.last.rank is not None]
        new = {
            (spot.source, spot.offset)
            for event in filter(self._is_unlike, self._run.events.values())
            for seen in event.nodes.values()
            for spot in seen.spots[-1:]
        }
        for spot in ends:
            if (spot.source, spot.offset) not in new and not (
                is_consequence(spot.text) or is_raised(spot.text) or is_body(spot.text)
            ):
                own[spot.source, spot.rank] = max(own.get((spot.source, spot.rank), -1), spot.offset)
        for beat in self._run.beats:
            spot = beat.spot
            last[spot.source] = max(last.get(spot.source, -1), spot.offset)
            own[spot.source, spot.rank] = max(own.get((spot.source, spot.rank), -1), spot.offset)
        return last, own

    def _is_usual(self, event: RunEvent) -> bool:
        one = self._compared.get(event.id)
        often = len(event.nodes) * 2 > self._nodes and event.count > len(event.nodes)
        return often and (one is None or one.fresh < 0.5) and not is_consequence(event.text) and not is_part(event)

    def _by_speaker(self) -> Mapping[_Speaker, list[tuple[int, float]]]:
        """By speaker the places of lines that report no failure, each with when its words were first used by anybody."""
        found: dict[_Speaker, list[tuple[int, float]]] = defaultdict(list)
        for event in self._run.events.values():
            if self._is_new(event) or is_consequence(event.text) or is_raised(event.text) or is_part(event):
                continue  # what is new may belong to the end
            spots = [spot for seen in event.nodes.values() for spot in seen.spots]
            first = min((time for spot in spots if (time := self._times.time(spot)) is not None), default=math.inf)
            for spot in spots:
                found[spot.source, spot.rank].append((spot.offset, first))
        return found

    def _lost_peers(self) -> tuple[Mapping[_Speaker, list[int]], Mapping[str, list[int]]]:
        """By speaker the places of exceptions about a lost peer, in order; by source those of the words that chain two exceptions."""
        lost: dict[_Speaker, list[int]] = defaultdict(list)
        chained: dict[str, list[int]] = defaultdict(list)
        for event in self._run.events.values():
            raised = is_consequence(event.text) and is_raised(event.text)
            if raised or _CHAINED.search(event.text):
                for spot in (spot for seen in event.nodes.values() for spot in seen.spots):
                    if raised:
                        lost[spot.source, spot.rank].append(spot.offset)
                    else:
                        chained[spot.source].append(spot.offset)
        return {speaker: sorted(places) for speaker, places in lost.items()}, chained
