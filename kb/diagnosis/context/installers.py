"""What a package installer prints near the line with which it gives up: the package it was processing, and its first error.

pip and conda end with lines that only say that something failed; what failed is above them, or in the lines below.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kb.facts.job_facts import Facts
from kb.facts.patterns.signals import Signal
from kb.regex.lazy import lazy_compile
from kb.scanning.summary import lines_between

_BEFORE = 16384  # bytes of the output of one installation above its last line
_AFTER = 4096
_LINE = 512  # characters of a line that are searched
_SHORT = 140  # characters of an error within a sentence
_NAME = r"(?P<name>[A-Za-z0-9][\w.+-]{0,80}(?:(?:\[[\w,]{1,40}\])?(?:[=<>~!]=?=?[\w.*+!-]{1,40})?))"
# the package that a line of failure names
_FAILED = lazy_compile(
    rf"No matching distribution found for {_NAME}|Failed building wheel for {_NAME.replace('name', 'wheel')}"
    rf"|Building wheel for {_NAME.replace('name', 'built')} \(|Package '{_NAME.replace('name', 'package')}' requires a different Python"
)
# the package that an installer begins with; of a folder, its last part
_BEGUN = lazy_compile(
    rf"^\s*(?:Collecting {_NAME}|Processing (?:file://)?(?P<path>[\w./~@%+-]{{2,300}})|Obtaining (?:file://)?(?P<local>/[\w./~@%+-]{{1,300}})$)"
)
_LISTED = lazy_compile(rf"^\s+-? ?{_NAME}\s*$")  # as conda lists what it did not find
_ENDING = lazy_compile(r"(?:-\d[\w.]{0,40})?(?:\.tar\.(?:gz|bz2|xz)|\.zip|\.whl)$|/+$")
_ERROR = lazy_compile(
    r"^[\s|>\u2502\u2570\u2500-]{0,12}(?:\S{1,160}:(?:\d{1,6}:){0,2} )?(?P<error>(?:(?:fatal )?error: |ERROR: |(?:\w{1,60}\.)?\w{1,60}(?:Error|Exception): |CMake Error)[^\n]{2,400})"
)
# how pip says that installed packages do not fit
_CONFLICT = lazy_compile(
    r"(?<![\w.-])([A-Za-z][\w-]{0,60}) \d[\w.+!]{0,40} requires ([A-Za-z][\w-]{0,60})[^\s,]{0,80}(?:,[^\s,]{1,40}){0,4}, but you have [A-Za-z][\w-]{0,60} \d[\w.+!]{0,40}"
)
# lines that only pass on that a step failed
_WRAPS = lazy_compile(
    r"subprocess-exited-with-error|metadata-generation-failed|failed-wheel-build|Failed building|Failed to build|did not run successfully|originates from a subprocess"
    r"|Command errored out|legacy-install-failure|Could not build wheels|Encountered error while|ResolutionImpossible: for help|ERROR: Exception:|build stopped|retrying"
)


def of_installer(first: Signal, facts: Facts) -> Mapping[str, str]:
    """Return `installing`, the package, and `install_error`, the first error beside the line of a failed installation.

    Each is left out if it is not stated. An error that only passes on another one does not count.
    """
    lines = [line[:_LINE] for line in _around(first, facts)]
    at = next((place for place, line in enumerate(lines) if line.strip() and line.strip() in first.line), len(lines))
    package = _package(first.line, lines[:at], lines[at + 1 :])
    own = [first.line, *lines[at + 1 :]] if at < len(lines) else [first.line]
    found = {"installing": package, "install_error": _error([*_since(lines[:at]), *own])}
    return {name: value for name, value in found.items() if value}


def of_conflict(first: Signal, facts: Facts, package: str) -> str:
    """Return what pip said above a line of a package that does not fit: `a 1.2 requires b==3, but you have b 2`; empty without it."""
    above = lines_between(facts.streams[first.stream].summary, 0, first.offset)
    said = (_CONFLICT.search(line[:_LINE]) for _, line in above)
    own = (found[0] for found in said if found is not None and package.lower() in (found[1].lower(), found[2].lower()))
    return next(own, "") if package else ""


def _package(line: str, before: Sequence[str], after: Sequence[str]) -> str:
    """Return the package that a line of failure names, that is listed below it, or that was begun last."""
    if named := _FAILED.search(line):
        return str(next(filter(None, named.groups())))
    if line.rstrip().endswith((":", "channels:")) and after and (listed := _LISTED.match(after[0])):
        return listed["name"]
    begun = next((found for text in reversed(before) if (found := _BEGUN.match(text))), None)
    if begun is None:
        return ""
    return begun["name"] or _ENDING.sub("", begun["path"] or begun["local"]).rpartition("/")[2]


def _since(lines: Sequence[str]) -> Sequence[str]:
    """Return the lines since the last package was begun, and the message about it; all if none was."""
    begun = next((place for place in reversed(range(len(lines))) if _BEGUN.match(lines[place])), -1)
    return lines[begun + 1 :]


def _error(lines: Sequence[str]) -> str:
    """Return the first error that passes on no other one, cut at a word."""
    found = (match["error"].strip() for line in lines if (match := _ERROR.match(line)) and not _WRAPS.search(line))
    said = next(found, "")
    return said if len(said) <= _SHORT else f"{said[:_SHORT].rpartition(' ')[0]} ..."


def _around(first: Signal, facts: Facts) -> Iterator[str]:
    """Yield the kept lines of the log around a line, in order."""
    near = lines_between(facts.streams[first.stream].summary, first.offset - _BEFORE, first.offset + _AFTER + 1)
    yield from (line for _, line in near)
