"""Fills the names that are known into the commands of a remedy: `ssh <node> uptime` for the suspect node.

Names come from logs and people copy commands into shells, so only names of harmless characters are filled in.
"""

from __future__ import annotations

from collections.abc import Sequence

from kb.regex.lazy import lazy_compile
from kb.report import Suspect

_HARMLESS = lazy_compile(r"[A-Za-z0-9](?:[A-Za-z0-9._:-]{0,251}[A-Za-z0-9])?")


def filled(command: str | None, suspects: Sequence[Suspect], job: str | None) -> str | None:
    """Return a command with the node and pod of the first suspect that has one, and the job's id, in the place of `<node>` and so on."""
    if command is None or "<" not in command:
        return command
    known = {
        "<node>": next((suspect.node for suspect in suspects if suspect.node), None),
        "<pod>": next((suspect.pod for suspect in suspects if suspect.pod), None),
        "<job>": job,
    }
    for place, name in known.items():
        if name is not None and _HARMLESS.fullmatch(name) is not None:
            command = command.replace(place, name)
    return command
