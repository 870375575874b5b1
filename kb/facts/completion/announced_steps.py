"""The number of steps of the whole run, as a program announces it at its start: `Total optimization steps = 5,000`.

Many programs announce it once and then print the number of each step alone.
"""

from __future__ import annotations

from collections.abc import Iterable

from kb.regex.lazy import lazy_compile

_CUT = 400  # characters of a line that are searched
_ANNOUNCED = lazy_compile(
    r"(?i)\btotal (?:number of )?(?:optimi[sz]ation |train(?:ing)? |gradient )?(?:steps|iterations|iters|updates)\b ?[:=]{1,2} ?(\d[\d,]{1,12})(?![\d.])"
    r"|(?<![\d,.])(\d[\d,]{1,12}) max iterations\b"
)
_WORDS = ("total ", "max iterations")  # one of them is in each such line


def announced_steps(lines: Iterable[tuple[int, str]]) -> int | None:
    """Return the number of steps that lines announce; None if they announce none, or several numbers."""
    found = set()
    for _, line in lines:
        low = line[:_CUT].lower()
        for told in _ANNOUNCED.finditer(line[:_CUT]) if any(word in low for word in _WORDS) else ():
            found.add(int((told[1] or told[2]).replace(",", "")))
    return found.pop() if len(found) == 1 else None
