"""Links of a terminal (OSC 8): only where the terminal is known to show them, and only to files that exist."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

_PROGRAMS = ("iTerm.app", "WezTerm", "vscode", "ghostty", "Hyper", "rio")  # values of TERM_PROGRAM
_TERMS = ("xterm-kitty", "xterm-ghostty", "alacritty", "foot")  # beginnings of TERM
_VARIABLES = ("WT_SESSION", "KONSOLE_VERSION", "KITTY_WINDOW_ID")  # set by terminals that show links
_VTE = 5000  # version of VTE from which on its terminals show links


def shows_links(environment: Mapping[str, str]) -> bool:
    """Return whether the terminal of these environment variables shows links. FORCE_HYPERLINK=1 or 0 decides."""
    forced = environment.get("FORCE_HYPERLINK")
    if forced is not None:
        return forced != "0"
    term = environment.get("TERM", "")
    if term in ("", "dumb") or term.startswith(("screen", "tmux")):
        return False
    vte = environment.get("VTE_VERSION", "")
    return (
        environment.get("TERM_PROGRAM") in _PROGRAMS
        or term.startswith(_TERMS)
        or any(environment.get(name) for name in _VARIABLES)
        or (vte.isascii() and vte.isdigit() and int(vte[:9]) >= _VTE)
    )


def file_address(root: Path | None, source: str) -> str:
    """Return the `file:` address of a source below a folder; empty if it is not a file there."""
    try:
        file = (root or Path()) / source
        return file.resolve().as_uri() if file.is_file() else ""
    except (OSError, ValueError):  # a source is a name from outside
        return ""
