"""Masks what varies from run to run in the text of a log line: paths, addresses, ids, numbers."""

from __future__ import annotations

import re
from functools import lru_cache

SHOWN = 320  # characters of a template's text
_SOURCE = rb"(?:py|pyx|cc|cpp|cxx|c|cu|cuh|h|hpp|go|rs|java|sh|js)"
_BAR = re.compile(rb"%\|[^|\n]{0,300}\|")
_PORTS = re.compile(
    rb"\[0{1,3}\][A-Za-z]\w{1,40}:0{1,3}/[A-Za-z]{2,6}(?: \[0{1,3}\]\w{2,40}:0{1,3}/[A-Za-z]{2,6}){0,64}"
)
_BUS = re.compile(rb"(?<=busId )[0a-f]{1,8}(?!\w)")
_SUSPECT = re.compile(
    rb"(?<!\S)[^\s0/'\"\xe2]{0,400}[0/'\"\xe2]\S{0,1024}"
)  # a word that may be, or contain, a variable
_MASKS = re.compile(
    rb"(?P<url>[A-Za-z][A-Za-z0+.-]{1,9}://[^\s'\"<>)\],;]{1,400})"
    # a file of a program keeps its name, other paths keep nothing
    rb"|(?P<path>(?<![\w.])(?:~|\.{1,2})?/?(?:[\w.@+=%-]{1,120}/){1,30}(?P<file>[\w-]{1,80}\." + _SOURCE + rb")?"
    rb"(?(file)(?!\w)|[\w.@+=%-]{0,120}))"
    rb"|(?<![\w-])[0A-Fa-f]{8}-(?:[0A-Fa-f]{4}-){3}[0A-Fa-f]{12}(?![\w-])"
    rb"|(?<![\w:])(?:[0A-Fa-f]{2}:){5,19}[0A-Fa-f]{2}(?![\w:])"
    rb"|(?<![\w:])(?:[0A-Fa-f]{4,8}:)?[0A-Fa-f]{2}:[0A-Fa-f]{2}\.0(?!\w)|(?<![\w:])[0A-Fa-f]{4,8}:[0A-Fa-f]{2}:[0A-Fa-f]{2}(?![\w:])"
    rb"|(?<![\w.])0{1,3}(?:\.0{1,3}){3}(?::0{1,5}|/0{1,2})?(?!\w)"
    rb"|(?<![\w:])(?:[0a-f]{0,4}:){2,7}[0a-f]{1,4}(?![\w:])"
    rb"|0x[0A-Fa-f]{1,64}"
    rb"|(?<!\w)(?=[a-f]{0,63}0)[0a-f]{7,64}(?!\w)|(?<!\w)(?=[A-F]{0,63}0)[0A-F]{7,64}(?!\w)"
    # names with a number and a hyphen: hosts, pods, jobs, models
    rb"|(?<![\w-])(?=[A-Za-z.-]{0,80}0)[A-Za-z0]{1,60}(?:-[A-Za-z0]{1,60}){1,12}(?:\.[a-z][a-z0-]{1,40}){0,6}(?![\w-])"
    rb"|(?<![\w-])(?:node|host|nid|worker|master|compute|dgx|hgx|cn|gpu)[a-z]{0,10}0{1,8}(?:\.[a-z][a-z0-]{1,40}){0,6}(?!\w)"
    rb"|(?<!\w)(?=[A-Za-z]{0,80}0)[A-Za-z0+/]{16,400}={0,2}(?!\w)"
    rb"|(?<!\w)(?=\w{6})[A-Za-z]{0,20}(?:0{1,20}[a-z]{1,20}){2,40}0{0,20}(?!\w)"
    rb"|'(?=[^'\s]{1,80}'(?! {0,2}[:=]))[^'\s]{1,80}'|\"(?=[^\"\s]{1,80}\"(?! {0,2}[:=]))[^\"\s]{1,80}\""
    rb"|(?:(?<![\w)\].])[-+])?0{1,40}(?:,000(?!0)){0,10}(?:\.0{1,40}){0,5}(?:[eE][-+]?0{1,4}(?!\w)|:00(?::00(?:[.,]0{1,9})?)?(?!\w))?(?:%(?!\|))?"
    rb"|0{1,40}(?:\.0{1,40}){0,5}"
    rb"|(?:\xe2[\x94-\x97][\x80-\xbf]){2,400}"
)
_SEVERAL = re.compile(rb"(?<=[\[({])<\*>(?:(?:, ?| )<\*>){1,400}|<\*>(?:,?<\*>){1,400}")
_SPACES = re.compile(rb"[\s\0]{1,1024}")
_ANSI = re.compile(rb"\x1b\[[0-9;?]{0,16}[A-Za-z]|\[[0-9;]{1,9}m|[\x01-\x08\x0b-\x1a\x1c-\x1f]")


def masked(folded: bytes) -> str:
    """The folded bytes as text with its variables masked and single spaces. With 60 % undecodable bytes it is `<binary>`."""
    plain = _ANSI.sub(b"", folded)
    if _is_noise(plain):
        return "<binary>"
    if b"%|" in plain:
        plain = _BAR.sub(b"%|<*>|", plain)
    if b"]" in plain and b"/" in plain:
        plain = _PORTS.sub(b"<*>", plain)
    if b"busId " in plain:
        plain = _BUS.sub(b"<*>", plain)
    text = _SEVERAL.sub(b"<*>", words_masked(plain))
    return _SPACES.sub(b" ", text).decode("utf-8", "replace").strip()[:SHOWN].rstrip()


def words_masked(plain: bytes) -> bytes:
    """The text with its words masked, each by itself."""
    return _SUSPECT.sub(_suspect, plain)


def is_simple(folded: bytes) -> bool:
    """Whether masking single words suffices for a text: it is ASCII, and no variable in it spans several words."""
    if folded.translate(None, _SIMPLE) or b"%|" in folded or b"busId " in folded:
        return False
    if b"]" in folded and b"/" in folded and _PORTS.search(folded) is not None:
        return False
    return b"[0" not in folded or _ANSI.search(folded) is None


def _suspect(match: re.Match[bytes]) -> bytes:
    return _word(match[0])


@lru_cache(65536)
def _word(word: bytes) -> bytes:
    return _MASKS.sub(_variable, word)


def _variable(match: re.Match[bytes]) -> bytes:
    if match["path"]:
        return _path(match)
    return b"<*>"


def _path(match: re.Match[bytes]) -> bytes:
    if match["file"]:
        return ZEROS.sub(b"<*>", match["file"])
    path = match["path"]
    if path[:1] in b"/~." or (path.count(b"/") > 1 and any(item in path for item in (b"0", b".", b"_"))):
        return b"<*>"
    return b"/".join(_MASKS.sub(_variable, part) for part in path.split(b"/"))  # words with a slash between: tokens/s


ZEROS = re.compile(rb"0{1,80}")
_SIMPLE = bytes(range(0x20, 0x7F))
_PRINTED = bytes(range(0x20, 0x7F)) + b"\t\r\n\x1b"


def _is_noise(text: bytes) -> bool:
    """Whether most bytes are not text: neither ASCII nor complete UTF-8 characters."""
    if not text.translate(None, _PRINTED):
        return False
    broken = text.decode("utf-8", "replace")
    return sum(1 for item in broken if item == "\ufffd" or not item.isprintable()) * 5 > len(broken) * 2
