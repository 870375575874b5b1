"""From an exception or a line as it was read to its class, or to no answer where the model is not sure enough."""

from __future__ import annotations

from functools import lru_cache
from pkgutil import get_data

from kb.classifier.areas import DISPATCH, LIBRARY, STANDARD, Areas
from kb.classifier.model import Answer, Model, parse
from kb.classifier.traits import OWN, ErrorText, said, traits
from kb.regex.lazy import lazy_compile

WEIGHTS = "weights.tsv"
SURE = 0.9  # probability from which a class is as reliable as a rule's: on known sets, all 18 such answers were right
_FRAME = lazy_compile(r"(?P<path>[^\n]{1,400}):\d{1,9}(?: in (?P<function>.{1,200}))?")
_FRAMES = 60  # innermost ones that are looked at
_MESSAGE = 600  # characters of a message that are read
_OTHER = frozenset({OWN, LIBRARY, STANDARD})
_CATCH_ALL = frozenset(
    {"Error", "Exception", "OSError", "RuntimeError", "SystemError", "ValueError"}
)  # types that alone tell nothing


@lru_cache(maxsize=1)
def model() -> Model:
    """Return the model that ships with this package, read when it is first needed."""
    return parse((get_data(__package__ or "", WEIGHTS) or b"").decode("utf-8"))


@lru_cache(maxsize=4096)
def classify(kind: str, message: str, frames: str = "", handled: tuple[str, ...] = ()) -> Answer | None:
    """Return the class of an error, or None if the model is not sure enough.

    An exception class that the model does not know, raised by the run's own code, is not judged: only its authors know what it means.
    Nor is a catch-all type without message and frames, which is what interleaved output leaves of an exception.
    `kind`: class of the exception, empty for a line of a log; `frames`: its frames, one per line, the innermost last;
    `handled`: classes of the exceptions from which it followed.
    """
    known = model()
    error = error_text(known.areas, kind, message, frames, handled)
    if kind in _CATCH_ALL and not (error.words or error.codes or frames):
        return None
    if error.area in ("", OWN) and not error.above and kind and f"type {kind}" not in known.weights:
        return None
    answer = known.best(traits(error))
    return answer if answer is not None and answer.probability >= known.least else None


def error_text(areas: Areas, kind: str, message: str, frames: str = "", handled: tuple[str, ...] = ()) -> ErrorText:
    """Return what the model reads of an error."""
    words, codes = said(message[:_MESSAGE])
    calls = [found for frame in frames.split("\n")[-_FRAMES:] if (found := _FRAME.fullmatch(frame)) is not None]
    if not calls:
        return ErrorText(kind, words, codes, handled=handled)
    last = calls[-1]
    path, area = areas.place(last["path"])
    callers = tuple(dict.fromkeys(call["function"] or "" for call in calls))
    if area == DISPATCH:  # what the runtime says is all there is to go by
        return ErrorText(kind, words, codes, callers=callers, handled=handled)
    above = ""
    if area in _OTHER:
        known = (areas.place(call["path"])[1] for call in reversed(calls[:-1]))
        above = next((name for name in known if name not in _OTHER), "")
    return ErrorText(kind, words, codes, path, last["function"] or "", area, above, callers, handled)
