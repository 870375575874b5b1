"""What the message of a Python exception names as absent: a key, an attribute, a name, an argument."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kb.regex.lazy import lazy_compile

_MESSAGE = 1000  # characters of a message that are searched
# the message of a KeyError is the key itself; of several words with one of these, it is a sentence of the program
_KEY = lazy_compile(r"(?:'(?P<single>[^'\n]{1,60})'|\"(?P<double>[^\"\n]{1,60})\"|(?P<number>-?\d{1,12}))\s*")
_SENTENCE = lazy_compile(
    r"(?i)\b(?:not|no|is|are|was|must|unknown|missing|invalid|unexpected|unsupported|expected|could|cannot|found)\b"
)
_ATTRIBUTE = lazy_compile(
    r"(?:type object |(?P<module>module ))?'(?P<holder>[\w.\[\]]{1,80})'(?: object)? has no attribute '(?P<attribute>\w{1,80})'"
)
_NAME = lazy_compile(
    r"(?:global )?name '(?P<name>\w{1,80})' is not defined|(?:cannot access )?(?:local|free) variable '(?P<local>\w{1,80})' (?:referenced before assignment|where it is not associated|is not associated)"
)
_ARGUMENT = lazy_compile(
    r"(?P<function>[\w.<>]{1,120})\(\) got an unexpected keyword argument '(?P<argument>\w{1,80})'"
    r"|(?P<short>[\w.<>]{1,120})\(\) missing \d{1,3} required (?:positional|keyword-only) arguments?: (?P<needed>'[^\n]{1,160})"
)


def of_error(kind: str, message: str) -> Mapping[str, str]:
    """Return what an exception of a kind names as absent; empty if its message has none of Python's own forms.

    `absent` is the sort of thing, `absent_name` its name, and `absent_from` what lacks it, where the message says so: a
    "key", an "attribute" of a type or module, one of "none", a "name" without a value, an "argument" that a function does
    not take, or those that it "needs". "message" stands for an exception that has no message at all.
    """
    text = message[:_MESSAGE].strip()
    if not text:
        return {"absent": "message"} if kind else {}
    if kind == "KeyError":
        return _words("key", _key(text))
    if found := _ATTRIBUTE.search(text):
        sort = "none" if found["holder"] == "NoneType" else "module" if found["module"] else "attribute"
        return _words(sort, found["attribute"], found["holder"])
    if found := _NAME.search(text):
        return _words("name", found["name"] or found["local"])
    if found := _ARGUMENT.search(text):
        sort = "argument" if found["argument"] else "needs"
        return _words(sort, found["argument"] or found["needed"], found["function"] or found["short"])
    return {}


def _key(message: str) -> str:
    found: re.Match[str] | None = _KEY.fullmatch(message.strip())
    if found is None:
        return ""
    key = found["single"] or found["double"] or found["number"]
    return "" if " " in key.strip() and _SENTENCE.search(key) else str(key)


def _words(sort: str, name: str, holder: str = "") -> Mapping[str, str]:
    words = {"absent": sort, "absent_name": name, "absent_from": holder}
    return {key: word for key, word in words.items() if word} if name else {}
