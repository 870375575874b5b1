"""Settings of learning: the effect of close-outs on answers, what candidates are tested on, when shadow rules are promoted."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Learning:
    """Learning from closed incidents."""

    calibrate: bool = False
    """Let the confidence of an answer follow how often its rule was right here, and say so in the answer; otherwise
    close-outs change no answer."""
    clean: tuple[str, ...] = ()
    """Folders with logs of good runs, each file or subfolder one run; a proposed rule that matches there is
    rejected."""
    judged: int = 1500
    """The most incidents that a candidate is tested on."""
    right: int = 5
    """The number of closed incidents in which a shadow rule must have been right before it may be promoted."""
    precision: float = 0.7
    """The share of closed incidents in which a rule in status shadow must have been right, with 95 % certainty,
    before it may be promoted."""

    def __post_init__(self) -> None:
        if not 0 <= self.precision < 1:
            raise ValueError("precision: a share from 0 to below 1; no number of incidents confirms 1")
        if self.judged < 1 or self.right < 1:
            raise ValueError("judged, right: less than one")
