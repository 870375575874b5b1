"""From an exception or a line as it was read to its class, or to no answer where the model is not sure enough."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from pkgutil import get_data

from kb.classifier.areas import DISPATCH, LIBRARY, STANDARD, Areas
from kb.classifier.model import Answer, Model, parse
from kb.classifier.stages import stage_of
from kb.classifier.traits import OWN, ErrorText, said, traits
from kb.regex.lazy import lazy_compile

WEIGHTS = "weights.tsv"
SURE = (
    0.95  # probability from which a class is as reliable as a rule's: on projects left out of training, 95 % are right
)
_FRAME = lazy_compile(r"(?P<path>[^\n]{1,400}):\d{1,9}(?: in (?P<function>.{1,200}))?")
_FRAMES = 60  # innermost ones that are looked at
_MESSAGE = 600  # characters of a message that are read
_CALLS_BY_STAGE = 6  # innermost frames whose names are asked for the stage; those further out hold the whole run
_OTHER = frozenset({OWN, LIBRARY, STANDARD})
_CALLS_THE_RUN = frozenset(
    {"", "launcher", "config", "trainer", "model"}
)  # areas that call whatever the run's own code does
# types whose own wording says what is missing, so that a second class would add nothing
_NAMES_WHAT_IS_MISSING = frozenset(
    {
        "AttributeError", "FileNotFoundError", "ImportError", "IsADirectoryError", "KeyError", "ModuleNotFoundError", "NameError",
        "NotADirectoryError", "UnboundLocalError",
    }
)  # fmt: skip
_CATCH_ALL = frozenset(
    {"Error", "Exception", "OSError", "RuntimeError", "SystemError", "ValueError"}
)  # types that alone tell nothing


@dataclass(frozen=True, slots=True)
class Around:
    """What the logs show around an error: the `stage` of the run, as they state it, what the other `ranks` did, and what was `handled`.

    All as in kb.classifier.traits.ErrorText.
    """

    stage: str = ""
    ranks: str = ""
    handled: tuple[str, ...] = ()


NOTHING_AROUND = Around()


@lru_cache(maxsize=1)
def model() -> Model:
    """Return the model that ships with this package, read when it is first needed."""
    return parse((get_data(__package__ or "", WEIGHTS) or b"").decode("utf-8"))


@lru_cache(maxsize=4096)
def classify(kind: str, message: str, frames: str = "", around: Around = NOTHING_AROUND) -> Answer | None:
    """Return the class of an error, or None if the model is not sure enough.

    An exception class that the model does not know, raised by the run's own code, is not judged: only its authors know what it means.
    The area of a library that called this code counts only if it says what the code was for, as a reader of data does.
    Nor is a catch-all type without message and frames, which is what interleaved output leaves of an exception.
    `kind`: class of the exception, empty for a line of a log; `frames`: its frames, one per line, the innermost last.
    """
    known = model()
    error = error_text(known.areas, kind, message, frames, around)
    if kind in _CATCH_ALL and not (error.words or error.codes or frames):
        return None
    if error.area in ("", OWN) and error.above in _CALLS_THE_RUN and kind and f"type {kind}" not in known.weights:
        return None
    answer = known.best(traits(error, known.concepts))
    if answer is None or answer.probability < known.least:
        return None
    return replace(answer, second="") if kind in _NAMES_WHAT_IS_MISSING else answer


def error_text(areas: Areas, kind: str, message: str, frames: str = "", around: Around = NOTHING_AROUND) -> ErrorText:
    """Return the text of an error that the model reads. The stage comes from its frames or, if they do not show it, from the log."""
    words, codes = said(message[:_MESSAGE])
    bare = ErrorText(kind, words, codes, handled=around.handled, stage=around.stage, ranks=around.ranks)
    calls = [found for frame in frames.split("\n")[-_FRAMES:] if (found := _FRAME.fullmatch(frame)) is not None]
    if not calls:
        return bare
    last = calls[-1]
    path, area = areas.place(last["path"])
    callers = tuple(dict.fromkeys(call["function"] or "" for call in calls))
    if area == DISPATCH:  # what the runtime says is all there is to go by
        return replace(bare, callers=callers)
    above = ""
    if area in _OTHER:
        known = (areas.place(call["path"])[1] for call in reversed(calls[:-1]))
        above = next((name for name in known if name not in _OTHER), "")
    stage = _stage(areas, calls) or around.stage
    importing = area != OWN and _imports_a_package(calls)
    return replace(
        bare,
        path=path,
        function=last["function"] or "",
        area=area,
        above=above,
        callers=callers,
        stage=stage,
        importing=importing,
        package=areas.kind(path),
    )


def _imports_a_package(calls: Sequence[re.Match[str]]) -> bool:
    """Whether a module of an installed package is being executed, other than as the program itself."""
    return any(
        call["function"] == "<module>"
        and Areas.installed(call["path"])
        and not (call["path"].endswith("/__main__.py") or before["path"].endswith("/runpy.py"))
        for before, call in pairwise(calls)
    )


def _stage(areas: Areas, calls: Sequence[re.Match[str]]) -> str:
    """Return the stage of the innermost frame whose name or area tells one."""
    near = reversed(calls[-_CALLS_BY_STAGE:])
    found = (stage_of(areas.place(call["path"])[1], call["function"] or "") for call in near)
    return next(filter(None, found), "")
