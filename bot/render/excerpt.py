"""The part of a long log line that a reader needs: the telling words with what stands around them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kb.regex.lazy import lazy_compile

if TYPE_CHECKING:
    from bot.render.telling_words import Span

CUT = "..."
# What frameworks print of every tensor, the same in all of them: it parts what differs.
_ALIKE = lazy_compile(
    r", TensorDtypes=[^()\n]{1,80}, TensorDeviceTypes=TensorOptions\([^()\n]{0,80}(?:\([^()\n]{0,40}\)[^()\n]{0,80}){0,12}\)+"
)
_CODE = lazy_compile(r"\b[A-Z][A-Z0-9]{0,30}(?:_[A-Z0-9]{1,30}){2,12}\b")
# A bar of tqdm that another message follows on its line.
_BAR = lazy_compile(
    r"^[^|\n]{0,60}\d%?\|[^|\n]{0,200}\| {0,3}\d{1,9}/\d{1,9} \[[^\]\n]{3,60}\](?:(?:\^\[|ESC|\\x1b)\[A)?(?=[^\s,|].{7})"
)
# What PyTorch writes between the figures of memory, and the part of the line up to the last of them.
_BETWEEN_FIGURES = lazy_compile(
    r"(?<=free\. )Including non-PyTorch memory, (?=this process has )|(?<=in use\. )Of the allocated memory [\d.]{1,9} [KMGT]iB is allocated by PyTorch, and "
)
_FIGURES = lazy_compile(
    r"Tried to allocate [^\n]{1,400}(?:is reserved by PyTorch but unallocated|reserved in total by PyTorch)"
)
_SLACK = 4 / 3  # of the limit: telling words of this length stay whole
_MUCH = 1000
_LEAD = 40  # characters kept before the telling words


def condensed(line: str) -> str:
    """Return a line without a bar before its message, properties of tensors and words between figures; `...` marks each cut."""
    line = _ALIKE.sub(f", {CUT})", line) if "TensorDeviceTypes" in line else line
    line = _BETWEEN_FIGURES.sub(f"{CUT} ", line) if "PyTorch" in line else line
    return _BAR.sub(f"{CUT} ", line) if "|" in line else line


def code_in(line: str, limit: int) -> Span | None:
    """Return where the error code at the end of a line (`ZE_RESULT_ERROR_UNKNOWN`) is, if that is beyond `limit`."""
    found = _CODE.search(line, max(0, len(line) - 2 * _LEAD))
    return found.span() if found is not None and found.end() > limit else None


def excerpt(line: str, span: Span | None, limit: int) -> tuple[str, Span | None]:
    """Return at most about `limit` characters of a line, cut at spaces, and where the telling words are in them.

    The start is kept while the telling words fit behind it, since it says who wrote the line. Of longer telling words, the
    beginning and the end are kept: that is where messages name the fault. `...` marks each cut.
    """
    if len(line) <= limit:
        return line, span
    low, high = span if span is not None else (0, 0)
    if high - low > _SLACK * limit:
        return _both_ends(line, low, high, limit), None
    start = 0 if high <= limit or low <= _LEAD else _word_at(line, low - _LEAD)
    whole = min(high + _LEAD, len(line)) if high - start <= 2 * limit else 0  # what they speak of often follows
    end = max(_end_of_word(line, start, start + limit), whole, _end_of_figures(line, start, limit))
    end = len(line) if len(line) - end <= _LEAD else end  # the last words often say why
    head = f"{CUT} " if start else ""
    shift = len(head) - start
    tail = f" {_left_out(line, end)}" if end < len(line) else ""
    return f"{head}{line[start:end]}{tail}", None if span is None else (low + shift, min(high, end) + shift)


def _end_of_figures(line: str, start: int, limit: int) -> int:
    """Return where the figures of a failed allocation end, if they almost fit: advice rests on the last of them."""
    found = _FIGURES.search(line, start)
    return found.end() if found is not None and found.end() - start <= _SLACK * limit else 0


def _both_ends(line: str, low: int, high: int, limit: int) -> str:
    """Return the beginning of the telling words and their end, of half the limit each."""
    start = 0 if low <= _LEAD else _word_at(line, low)
    first = _end_of_word(line, start, start + limit // 2)
    last = _word_at(line, high - limit // 2)
    head, tail = f"{CUT} " if start else "", f" {_left_out(line, high)}" if high < len(line) else ""
    return f"{head}{line[start:first].rstrip()} {CUT} {line[last:high]}{tail}"


def _left_out(line: str, end: int) -> str:
    """Return the mark of a cut, with how much is behind it if that is much."""
    rest = len(line) - end
    return CUT if rest < _MUCH else f"{CUT} ({rest:,} more characters)"


def _word_at(line: str, place: int) -> int:
    """Return where the word that follows a place begins; the place itself in a line without spaces near it."""
    space = line.find(" ", place, place + _LEAD)
    return place if space < 0 else space + 1


def _end_of_word(line: str, start: int, place: int) -> int:
    """Return where the last word before a place ends; the place itself if the cut would lose half of the text."""
    if place >= len(line):
        return len(line)
    space = line.rfind(" ", start, place + 1)
    return space if space > (start + place) // 2 else place
