"""What the message of a failure names: settings, options, keys, packages, variables and shapes."""

from __future__ import annotations

from collections.abc import Sequence

from kb.regex.lazy import lazy_compile

_LONGEST = 1000  # characters of a message that are searched
_MOST = 3  # more names are a list of what is allowed, not what is at fault
_SHAPES = 4
_BEGIN = 12  # characters: a message that begins with such a word goes on with what it wants
_SAY_NOTHING = frozenset({"NoneType", "None", "True", "False", "state_dict", "__main__", "self"})
# what a message says of types and of choices, and the addresses that it refers to: not what is at fault
_ASIDE = lazy_compile(
    r"<class '[^'\n]{1,80}'>|\[[^\[\]\n]{0,400},[^\[\]\n]{0,400}\]|\{[^{}\n]{0,400}\}|https?://\S{1,300}"
)
_CHOICES = lazy_compile(
    r"(?i)\b(?:one of|did you mean|available|allowed|supported|choose from|possible|expected|valid|but there (?:is|are))\b"
)
_VALUE = lazy_compile(r"(--[a-z][\w-]{1,60})=([\"'`])[^\s\"'`]{1,60}\2")  # the option is named, not its value
_SENTENCE = lazy_compile(r"[.!?]\s{1,3}[A-Z]")
_QUOTED = lazy_compile(
    r"(?<!\w)(?:`([^`\s]{1,60})`|'([^'\s]{1,60})'|\"([^\"\s]{1,60})\"|`([^`\s']{1,60})'|\u2018([^\u2019\s]{1,60})\u2019)(?!\w)"
    r"|(?<![\w`'\"-])(--[a-z][\w-]{1,60})"
)
_LAST = lazy_compile(r":\s{1,3}(?:- )?([\w./@+-]{0,80}[A-Za-z_][\w./@+-]{0,80}?)(?:[.,]?\s{0,3}$|[.,] )")
_PLAIN = lazy_compile(
    r"(?<![\w./=-])([a-z][a-z0-9]{0,30}(?:_[a-z0-9]{1,30}){1,8}|[A-Z][A-Z0-9]{1,30}(?:_[A-Z0-9]{1,30}){1,8})"
    r"(?![\w/-]|\.\w|\((?!=?\d))"
)
_SETTING = lazy_compile(r"`\w{1,60}` (?:is set |set )?to `\w{1,40}`")  # of the call, not what its data names
_SHAPE = lazy_compile(
    r"(?<![\d.])([\[(](?:\d{1,12}|None), ?(?:(?:\d{1,12}|None)(?:, ?)?){0,12}[\])])|(?<![\w.])(\[\d{1,12}\]|\d{1,9}x\d{1,9})(?![\w.])"
)
_SIZE = lazy_compile(r"\b(?:tensor \w|size|got|have|length|expected|mask)(?: of)? \(?(\d{1,12})\b")


def listed(words: Sequence[str]) -> str:
    """Return words as a list in a sentence: `a, b and c`."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def message_names(message: str) -> str:
    """Return the names in a message, such as `--rdzv_id` or `num_heads and num_layers`; empty if there are none, or too many.

    Names are in quotes or options, else after a final colon, else variables. The first sentence takes precedence, and
    what follows words such as "one of" counts only if the message begins with them.
    """
    whole = message[:_LONGEST].strip()
    if whole[:1] in "'\"" and whole[-1:] == whole[:1] and " " in whole:  # a KeyError quotes its message
        whole = whole[1:-1]
    text = _VALUE.sub(r"\1", _ASIDE.sub(" ", _SETTING.sub(" ", whole)))
    choices = _CHOICES.search(text, _BEGIN)
    text = text[: choices.start()] if choices is not None else text
    sentence = _SENTENCE.search(text)
    found = (_names(text[: sentence.start()]) if sentence is not None else []) or _names(text)
    return listed(found) if len(found) <= _MOST else ""


def message_shapes(message: str) -> str:
    """Return the shapes that a message states, else its sizes, such as `4096x1152 and 1024x256`; empty unless there are two to four."""
    text = message[:_LONGEST]
    found = list(dict.fromkeys(match[1] or match[2] for match in _SHAPE.finditer(text)))
    found = found if len(found) > 1 else list(dict.fromkeys(match[1] for match in _SIZE.finditer(text)))
    return listed(found) if 2 <= len(found) <= _SHAPES else ""


def _names(text: str) -> list[str]:
    for form in (_QUOTED, _LAST, _PLAIN):
        words = (next(filter(None, match.groups())).strip(".,:;") for match in form.finditer(text))
        told = [word for word in words if word not in _SAY_NOTHING and any(letter.isalpha() for letter in word)]
        if told:
            return list(dict.fromkeys(told))
    return []
