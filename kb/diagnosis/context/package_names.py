"""The package that the message of an error names as missing or too old."""

from __future__ import annotations

from collections.abc import Iterable

from kb.regex.lazy import lazy_compile

_LINE = 600  # characters of a line that are searched
# How messages name a package that is missing or too old; the first of these forms that a line has counts.
_PACKAGES = (
    lazy_compile(
        r"\bpip3? install (?:-{1,2}[A-Za-z][\w-]{0,20} )*[\"'`]?(?P<name>[A-Za-z][\w-]{0,60})(?=[\s\"'`.,;:)=<>!~\[]|$)"
    ),
    lazy_compile(r"\b[Rr]equires? (?:the )?[\"'`](?P<name>[A-Za-z][\w-]{0,60})[\"'`]"),
    lazy_compile(r"\b[Rr]equires? the (?P<name>[A-Za-z][\w-]{0,60}) (?:library|package) but it was not found"),
    lazy_compile(r"(?:^|[:(] )[Tt]he [\"'`](?P<name>[A-Za-z][\w-]{0,60})[\"'`] (?:distribution|package) was not found"),
    lazy_compile(r"(?:^|[:(] |\b[Pp]ackage )[\"'`]?(?P<name>[A-Za-z][\w-]{0,60})[\"'`]? is not installed\b"),
)
_IMPORTED = lazy_compile(
    r"cannot import name .{1,120}? from '(?P<name>[A-Za-z]\w{0,60})[\w.]{0,120}' \(.{0,300}?\b(?:site|dist)-packages[/\\]"
)
_DISTRIBUTED_AS = {
    "cv2": "opencv-python",
    "PIL": "Pillow",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "PyYAML",
}
_NO_PACKAGES = frozenset({"it", "package", "library", "module", "requirements", "this", "that", "which", "pip"})


def package_of(lines: Iterable[str]) -> str | None:
    """Return the package that the lines of an error name as missing or too old, if they agree on one."""
    named = {_package_in(line[:_LINE]) for line in lines} - {""}
    return named.pop() if len(named) == 1 else None


def _package_in(line: str) -> str:
    """Return the package that a line names in the first of the forms that it has; empty without one."""
    found = next((found for form in _PACKAGES if (found := form.search(line))), None)
    name = found["name"] if found is not None else ""
    if found is None and (imported := _IMPORTED.search(line)) is not None:
        name = _DISTRIBUTED_AS.get(imported["name"], imported["name"])
    return "" if name.lower() in _NO_PACKAGES else name
