"""What is configured of learning: what close-outs may do to answers, what candidates are tried on, what a shadow must show."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Learning:
    """What is learned from incidents that people closed.

    `calibrate`: how sure an answer is follows how often its rule was right here, and the answer says so; else close-outs change no
    answer. `clean`: folders of logs of good runs, each file or subfolder one run, on which no proposed rule may speak. `judged`: so
    many incidents a candidate is judged on at the most. `right`, `precision`: a rule in status shadow may be promoted when it
    was right in so many closed incidents and, with 95 % certainty, in that share.
    """

    calibrate: bool = False
    clean: tuple[str, ...] = ()
    judged: int = 1500
    right: int = 5
    precision: float = 0.7

    def __post_init__(self) -> None:
        if not 0 <= self.precision < 1:
            raise ValueError("precision: a share from 0 to below 1; no number of incidents confirms 1")
        if self.judged < 1 or self.right < 1:
            raise ValueError("judged, right: less than one")
