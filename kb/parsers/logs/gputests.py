"""Tables of GPU test tools: peer-to-peer bandwidth with peer access off and on."""

from __future__ import annotations

from kb.model import Scalar, Structure
from kb.parsers.logs.lines import line_start, lines_from, on_line, plain
from kb.parsers.logs.prefixes import peel
from kb.parsers.reader import Reader
from kb.regex.lazy import lazy_compile

_DISABLED = b"P2P=Disabled Bandwidth"
_ROW = lazy_compile(rb"[ \t]{0,16}(\d{1,3})((?:[ \t]{1,16}\d{1,7}\.\d{1,4}){2,64})[ \t]*$")
_MAX_ROWS = 68  # lines of one matrix, including its header and blank lines
_SLOW = 0.4  # of the bandwidth without peer access; below it, peer access is harmful


def _rows(window: bytes, header: int) -> dict[int, tuple[int, list[float]]]:
    """Return the rows of the matrix under the header that starts at `header`: GPU to offset and values, GB/s."""
    found: dict[int, tuple[int, list[float]]] = {}
    for place, (start, _, line) in enumerate(lines_from(window, header, _MAX_ROWS)):
        rest = plain(line[peel(line).end :]) if not _ROW.match(line) else line
        row = _ROW.match(rest)
        if row:
            found[int(row[1])] = (start, [float(value) for value in row[2].split()])
        elif place > 1 and found:
            break
    return found


def _read_bandwidth(window: bytes, at: int) -> tuple[Structure, ...]:
    """Return the slowest pair with and without peer access; nothing if either matrix is missing."""
    before = window.rfind(_DISABLED, 0, at)
    if before < 0:
        return ()
    off, on = _rows(window, line_start(window, before)), _rows(window, at)
    pairs = [
        (value / base, start, source, target, value, base)
        for source, (start, values) in on.items()
        for target, value in enumerate(values)
        if target != source and source in off and target < len(off[source][1]) and (base := off[source][1][target]) > 0
    ]
    if not pairs:
        return ()
    ratio, start, source, target, value, base = min(pairs)
    fields: dict[str, Scalar] = {
        "source": source,
        "target": target,
        "with_peer": value,
        "without_peer": base,
        "collapsed": "yes" if ratio < _SLOW else "no",
    }
    return (on_line("p2p_bandwidth", window, start, fields),)


READERS: tuple[Reader, ...] = (
    Reader(
        name="p2p_bandwidth",
        trigger=r"P2P=Enabled Bandwidth",
        read=_read_bandwidth,
        before=8 * 1024,
        after=8 * 1024,
        keep=16,
    ),
)
