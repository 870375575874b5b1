"""Values that a key announces: assignments, pairs of name and value, XML, tables, blocks of YAML and TOML, sentences.

The name decides how much the value must look like a secret (bot.runtime.redaction.names).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain

from bot.runtime.redaction.names import Announces, announces
from bot.runtime.redaction.search import Search, Span
from bot.runtime.redaction.values import CODE, PATH, PLAIN, PROSE, is_hash, is_random, mixes
from kb.regex.lazy import lazy_compile

_NAME = rb"(?<![\w.-])(?P<name>[\w.-]++(?:[ ](?i:key|token|secret|password))?)"
_ASSIGNED = lazy_compile(_NAME + rb"[\\\"'\])]{0,4}[ \t]{0,8}(?P<sep>:=|:|=>|->|[?+]?={1,2}>?|\.{3,})[ \t]{0,8}")
# A bare value ends at white space, at `&`, and at a comma or bracket that closes something.
_VALUE = lazy_compile(
    rb"(?:\\\"(?P<escaped>[^\"\\\r\n]{1,4096})"
    rb"|[bBfFrRuU]{0,2}\"(?P<double>(?:[^\"\\\r\n]|\\[^\r\n])+)"
    rb"|[bBfFrRuU]{0,2}'(?P<single>(?:[^'\\\r\n]|\\[^\r\n])+)"
    rb"|`(?P<tick>[^`\r\n]{1,4096})"
    rb"|\[(?P<square>[^\s\[\](){}<>,;=\"'`]{4,256})\]|\((?P<round>[^\s\[\](){}<>,;=\"'`]{4,256})\)"
    rb"|\{(?P<curly>[^\s\[\](){}<>,;=\"'`]{4,256})\}|<(?P<angle>[^\s\[\](){}<>,;=\"'`/]{4,256})>"
    rb"|(?P<bare>(?:[^\s\"'`\\,;&)}\]<]|\\(?![\"'nrtu\\])|[,;)}\]](?![\s,;)}\]\"'<]|\Z|[\w.-]{1,64}[=:])"
    rb"|<(?!/)){1,1024}))"
)
_PAIR = lazy_compile(
    rb"(?:name|key|property|param|variable|setting)[\\\"']{0,3}[ ]?[:=][ ]?[\\\"']{0,3}(?P<name>[A-Za-z_][\w.-]*+)[\\\"']{0,3}"
    rb"[\s,;]{1,60}[\\\"']{0,3}(?:value|val|default|content)[\\\"']{0,3}[ ]?[:=][ ]?",
    re.IGNORECASE,
)
_ELEMENT = lazy_compile(
    rb"<(?P<tag>[\w.:-]{1,80})(?P<attributes>[^<>\n]{0,200})>\s{0,80}(?P<value>[^<>]{1,4096}?)\s{0,80}</"
)
_NAMED_ELEMENT = lazy_compile(
    rb"<(?:name|key)>\s{0,20}(?P<name>[\w.-]{1,80})\s{0,20}</(?:name|key)>\s{0,80}<\w{1,20}>(?P<value>[^<>]{1,4096})<",
    re.IGNORECASE,
)
_ATTRIBUTE = lazy_compile(rb"(?:name|key|id)=[\"']([\w.-]{1,80})[\"']", re.IGNORECASE)
_CELL = lazy_compile(
    rb"(?<![\w.-])(?P<name>[A-Za-z_][\w.-]*+(?:[ ](?:key|token|password))?)[\"']?"
    rb"(?=(?:[ ]{0,60}\|[ ]?|\t{1,8}|[ ]{2,60}|[ ]?[,;][ ]?)[\"']?(?P<value>[^\s|,;\"']{3,512}))"
)
_AT_START = lazy_compile(rb"(?:\A|[|,;\t\n\"']|[ ]{2})[ ]?[\"']?\Z")
_SHELL = lazy_compile(
    rb"(?<![\w-])(?:ENV|ARG|setenv|set -[a-zA-Z]{1,4}|config set|export)[ \t]{1,4}(?P<name>[\w.-]++)[ \t]{1,8}[\"']?(?P<value>[^\s\"'=][^\s\"']{0,512})"
)
_DEFINE = lazy_compile(rb"define\([ ]?[\"'](?P<name>[\w.-]{1,80})[\"'][ ]?,[ ]?[\"'](?P<value>[^\"'\r\n]{1,512})[\"']")
_BLOCK = lazy_compile(
    rb"(?:^(?P<indent>[ \t]*)|(?<=[\"'=]))(?:- )?[\"']?(?P<name>[A-Za-z_][\w.-]*+)[\"']?[ ]?:[ ]{0,4}(?:[|>][0-9+-]{0,2})?[ ]*\r?\n"
    rb"(?P<body>(?:[ \t]+[^\r\n]{1,4096}(?:\r?\n|\Z)){1,200})",
    re.MULTILINE,
)
_QUOTED_BLOCK = lazy_compile(
    rb"(?<![\w.-])(?P<name>[A-Za-z_][\w.-]*+)[ ]{0,8}=[ ]{0,8}(?P<quote>\"\"\"|''')\r?\n?(?P<body>(?:(?!(?P=quote))[\s\S]){1,16384})(?P=quote)"
)
_SENTENCE = lazy_compile(
    rb"(?P<name>pass(?:word|phrase|wd|code)|pwd|(?:api|secret|access|private|auth|license)[ _-]?(?:key|token)|token|secret|credentials?)"
    rb"(?:[ ](?>(?:is|was|are|set|changed|equals|provided|used|for|of|user|to|as)(?![a-z])|[a-z]{1,12}(?=[ ]is)))*[ :]{1,3}(?P<value>[\"'`]?[^\s\"'`]{3,512})",
    re.IGNORECASE,
)
_STEM = lazy_compile(rb"pass|secret|token|key|pwd|cred", re.IGNORECASE)
_COLUMNS = (
    lazy_compile(rb"[^|\n]+"),
    lazy_compile(rb"[^,\n]+"),
    lazy_compile(rb"[^\t\n]+"),
    lazy_compile(rb"\S+(?:[ ]\S+)*"),
)
_AROUND = b" \"'\r\\{}[]"
_QUOTED = lazy_compile(rb"[\"'=]\s*")
_LEAST_CELLS = 2
_MOST_ROWS = 40


def _assigned(text: bytes) -> Iterator[Span]:
    until = 0
    for hit in _ASSIGNED.finditer(text):
        strength = announces(hit["name"]) if hit.start() >= until else Announces.NOTHING
        if strength and (value := _VALUE.match(text, hit.end())):
            group = value.lastindex or 0
            bare = value["bare"] is not None or text[value.start()] in b"[({<"
            colon = bare and hit["sep"] == b":"
            if _accepted(strength, hit["name"], value[group], colon=colon, equals=bare and hit["sep"] in (b"=", b":=")):
                until = value.end()
                yield value.span(group)


def _paired(text: bytes) -> Iterator[Span]:
    for hit in _PAIR.finditer(text):
        strength = announces(hit["name"])
        if strength and (value := _VALUE.match(text, hit.end())):
            group = value.lastindex or 0
            if _accepted(strength, hit["name"], value[group]):
                yield value.span(group)
    if b"</" not in text:
        return
    for hit in _ELEMENT.finditer(text):
        named = _ATTRIBUTE.search(hit["attributes"])
        for name in (hit["tag"], named[1] if named else b""):
            if _accepted(announces(name), name, hit["value"]):
                yield hit.span("value")
    for hit in _NAMED_ELEMENT.finditer(text):
        if _accepted(announces(hit["name"]), hit["name"], hit["value"]):
            yield hit.span("value")


def _cells(text: bytes) -> Iterator[Span]:
    for hit in _CELL.finditer(text):
        strength, value = announces(hit["name"]), hit["value"]
        if strength < Announces.OPAQUE or announces(value) or not _accepted(strength, hit["name"], value):
            continue
        if mixes(value) or (
            strength is Announces.SECRET
            and _AT_START.search(text, max(0, hit.start() - 4), hit.start())
            and not value.endswith(b":")
        ):
            yield hit.span("value")
    for hit in chain(_SHELL.finditer(text), _DEFINE.finditer(text)):
        if _accepted(announces(hit["name"]), hit["name"], hit["value"]):
            yield hit.span("value")


def _columns(text: bytes) -> Iterator[Span]:
    """Tables with a header: the cells below a name that announces a secret."""
    for stem in _header_lines(text):
        start = text.rfind(b"\n", 0, stem) + 1
        stop = _line_end(text, stem)
        header = text[start:stop]
        for cells, mark in zip(_COLUMNS, (b"|", b",", b"\t", b"  "), strict=True):
            if mark not in header:
                continue
            names = [_QUOTED.split(cell.group().strip(_AROUND))[-1] for cell in cells.finditer(header)]
            while names and not _HEADING.fullmatch(names[0]):
                names.pop(0)
            names = [name for name in names if name]
            places = [n - len(names) for n, name in enumerate(names) if announces(name) >= Announces.OPAQUE]
            if len(names) >= _LEAST_CELLS and places and all(_HEADING.fullmatch(name) for name in names):
                yield from _below(text, stop, cells, names, places)
                break


_HEADING = lazy_compile(rb"[A-Za-z_][\w .-]{0,40}")


def _header_lines(text: bytes) -> Iterator[int]:
    line = -1
    for stem in _STEM.finditer(text):
        if stem.start() >= line:
            line = _line_end(text, stem.start())
            if line - text.rfind(b"\n", 0, stem.start()) < 400:
                yield stem.start()


def _line_end(text: bytes, place: int) -> int:
    stop = text.find(b"\n", place)
    return len(text) if stop < 0 else stop


def _below(text: bytes, stop: int, cells: re.Pattern[bytes], names: list[bytes], places: list[int]) -> Iterator[Span]:
    for _ in range(_MOST_ROWS):
        start, stop = stop + 1, _line_end(text, stop + 1)
        if start >= len(text):
            return
        row = [cell for cell in cells.finditer(text, start, stop) if cell.group().strip(_AROUND)]
        if row and all(not cell.group().strip(b" -=+:|") for cell in row):
            continue
        if len(row) not in (len(names), len(names) + 1):
            return
        for place in places:
            value = row[place].group()
            bare = value.strip(_AROUND)
            if bare and _accepted(announces(names[place]), names[place], bare):
                begin = row[place].start() + value.index(bare)
                yield begin, begin + len(bare)


def _blocks(text: bytes) -> Iterator[Span]:
    for hit in _BLOCK.finditer(text):
        strength = announces(hit["name"])
        if strength >= Announces.OPAQUE:
            for line in re.finditer(rb"[^\s#][^\r\n]*", hit["body"]):
                value = line.group().strip(_AROUND)
                if b": " in value or value.endswith(b":") or value.startswith(b"- "):
                    break
                if _accepted(strength, hit["name"], value) or (strength is Announces.OPAQUE and mixes(value)):
                    begin = hit.start("body") + line.start() + line.group().index(value)
                    yield begin, begin + len(value)
    for hit in _QUOTED_BLOCK.finditer(text):
        if announces(hit["name"]) >= Announces.OPAQUE:
            for line in re.finditer(rb"\S[^\r\n]*", hit["body"]):
                yield hit.start("body") + line.start(), hit.start("body") + line.end()


def _sentences(text: bytes) -> Iterator[Span]:
    for hit in _SENTENCE.finditer(text):
        value = hit["value"].strip(b"\"'`.,;)")
        quoted = hit["value"][:1] in b"\"'`"
        whose = text[hit.end("name") : hit.start("value")].rstrip().endswith((b" for", b" of", b" user"))
        secret = hit["name"].lower().startswith(b"pass") and not whose
        if is_hash(value) and not quoted:
            if len(value) >= 32 and hit["name"].lower().endswith(b"key"):
                begin = hit.start("value") + hit["value"].index(value)
                yield begin, begin + len(value)
            continue
        if is_random(value) or (
            secret and not PLAIN.fullmatch(value) and (quoted or (mixes(value) and not PATH.match(value)))
        ):
            head = _HEAD.match(value)  # says whose token it is
            shown = head.end() if head and is_random(value[head.end() :]) else 0
            begin = hit.start("value") + hit["value"].index(value)
            yield begin + shown, begin + len(value)


_HEAD = lazy_compile(rb"[a-z]{2,12}[_-](?:[a-z]{1,5}[0-9]{0,2}[_-]){0,2}")


def _accepted(strength: Announces, name: bytes, value: bytes, *, colon: bool = False, equals: bool = False) -> bool:
    """Whether a value looks as its name announces. `colon`: bare after a colon, as in prose; `equals`: bare after `=`."""
    if strength is Announces.NOTHING:
        return False
    if strength is Announces.SECRET:
        folder = name.lower().endswith((b"pwd", b"pass")) and PATH.match(value)
        return value.isdigit() or not (PLAIN.fullmatch(value) or folder)
    if not _opaque(value, colon=colon):
        return False
    if strength is Announces.OPAQUE:
        return not PATH.match(value) or is_random(value)
    return _token(name, value, equals=equals) if strength is Announces.TOKEN else _generated(name, value)


def _generated(name: bytes, value: bytes) -> bool:
    """Whether the value of a name that rarely announces a secret looks generated."""
    if len(value) >= _MIXED_LEAST and all(kind.search(value) for kind in _KINDS):
        return len(value) >= 2 * _MIXED_LEAST or name.lower() == b"pass"
    if name.isupper() and name.endswith(b"KEY") and not PATH.match(value):
        return mixes(value) and not is_hash(value) if name == b"KEY" else mixes(value)
    return is_random(value) and not PATH.match(value) and not (is_hash(value) and name.lower().endswith(b"key"))


_MIXED_LEAST = 12
_KINDS = (lazy_compile(rb"[a-z]"), lazy_compile(rb"[A-Z]"), lazy_compile(rb"[0-9]"), lazy_compile(rb"[!@#$%^&*~?+]"))


def _opaque(value: bytes, *, colon: bool) -> bool:
    """Whether a value is a word of some length that is neither code nor, after a colon, prose."""
    lowered = value.lower()
    return (
        len(value) >= 6
        and b" " not in value
        and not PLAIN.fullmatch(value)
        and not CODE.fullmatch(lowered)
        and not (colon and PROSE.fullmatch(lowered))
    )


def _token(name: bytes, value: bytes, *, equals: bool) -> bool:
    """For `token`, the most common word in a language model's log: judged by what precedes it and by the form of the value."""
    if len(value) < 8:
        return False
    prefix = name[:-5].strip(b"-_. ")
    if not prefix:
        return mixes(value) or equals
    if (is_hash(value) and len(value) >= 32 and not value.isdigit()) or _LETTERS_ALONE.fullmatch(value):
        return True
    return (prefix.isupper() and mixes(value) and len(value) >= 16) or (is_random(value) and not is_hash(value))


_LETTERS_ALONE = lazy_compile(rb"[a-z]{24,}|[A-Z]{24,}")
_WRAP = rb"(?:[\"'\]\)\\ \t]|%22|&quot;|\\u0022)"
_RARE = rb"passw|pass[ _-]?phrase|passcode|passwort|kennwort|contrase|senha|secret|credential|creds\b|mnemonic|api[ _-]?key|authtok"
_COMMON = (
    rb"(?:key|token|auth|pass|pwd|pw|sid|jwt|dsn|otp|sas|pat|psk|session|session_?id|sessid|signature|sig|hmac|csrf|xsrf|bearer|nonce|salt"
    rb"|webhook|licen[sc]e)(?:[_.-]?(?:value|val|data|base64|b64|raw|text|string|old|new|prod|dev|[0-9]{1,3}))?"
)
# Every name that announces something has one of these.
_STEMS = (
    b"pass", b"pw", b"secret", b"key", b"token", b"auth", b"cred", b"sid", b"jwt", b"dsn", b"otp", b"sas", b"pat", b"psk", b"sess", b"sig",
    b"hmac", b"csrf", b"xsrf", b"bearer", b"nonce", b"salt", b"webhook", b"licen", b"kennwort", b"contrase", b"senha", b"mnemonic", b"cookie",
    b"entitlement", b"_sk", b"sk=", b"sk =", b"sk:", b'sk"',
)  # fmt: skip
SEARCHES: tuple[Search, ...] = tuple(
    Search(marks, _STEMS, find, after)
    for find, after, marks in (
        (
            _assigned,
            1,
            (_RARE, rb"(?:^|[^a-z])sk[\"\x27 ]{0,4}[=:]", _COMMON + _WRAP + rb"{0,12}(?:[=:<,%&]|->|\\u00|\.\.\.)"),
        ),
        (_paired, 4, (_RARE, rb"[_-](?:key|token|pwd|pass|auth|pw)[\"'<]", rb"(?:key|token|pwd|pw)[\"']?[ ]{0,4}[>/]")),
        (_cells, 0, (_RARE, _COMMON + rb"[\"' ]{0,40}(?:\||\t| {2}|,|;)")),
        (_columns, _MOST_ROWS, (_RARE, _COMMON + rb"[\"' ]{0,40}(?:\||\t|,|$)")),
        (_blocks, 12, (_RARE, _COMMON + rb"[\"']{0,2}[ ]?(?::[ |>0-9+-]{0,8}|=[ ]{0,4}(?:\"\"\"|\x27\x27\x27))\s*$")),
        (_sentences, 0, (_RARE, rb"(?:key|token)[a-z ]{0,24}[\"'` :]{1,3}[A-Za-z0-9./+_-]{12}")),
    )
)
