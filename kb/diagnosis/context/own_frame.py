"""The place in the code that the traceback of a finding points at: the innermost frame of the run's own code, if it is near what failed."""

from __future__ import annotations

import re
from typing import NamedTuple

from kb.facts.job_facts import Facts
from kb.facts.log.chained_exceptions import structure_start
from kb.facts.patterns.signals import Signal
from kb.model import Structure
from kb.regex.lazy import lazy_compile

# what a compiler wrote for one run: nobody can open it afterwards, and no line of it is to be fixed
_GENERATED = r"[/\\]torchinductor_?[^/\\]{0,60}[/\\]|[/\\]\.?triton[/\\]cache[/\\]|[/\\](?:torch_compile_debug|inductor_cache)[/\\]"
LIBRARY = lazy_compile(
    r"(?:site|dist)-packages[/\\]|/lib(?:64)?/python3|\\[Ll]ib\\[^\\]{1,60}\.py:\d|^<|[/\\](?:bin|Scripts)[/\\][^/\\]{1,60}:\d|/opt/conda/lib/|\.(?:pyx|pxi|pxd):\d|^stringsource:\d"
    rf"|{_GENERATED}"
)
# without a function: where the source that a SyntaxError is about stands
_FRAME = lazy_compile(r"(?P<file>[^\n]{1,300}:\d{1,9})(?: in (?P<function>[^\n]{1,120}))?")
# libraries through which every service or loop is called
GENERAL = frozenset({"requests", "urllib3", "httpx", "httpcore", "aiohttp", "torch", "pip", "tqdm", "anyio"})
# frameworks that run what others define, general libraries, and the standard library: the place of an error is the code that called them
_RUNTIME = lazy_compile(
    rf"[/\\](?:{'|'.join(sorted(GENERAL))}|torch_\w{{1,20}}|numpy|jax|jaxlib|tensorflow|keras|triton|accelerate|lightning|lightning_fabric|pytorch_lightning|deepspeed|ray|multiprocess)[/\\]"
    rf"|/lib(?:64)?/python3\.\d{{1,2}}/(?!site-packages|dist-packages)|^<|{_GENERATED}"
)
# functions of libraries that run a whole loop or a whole dataset on behalf of the line that calls them
_LOOP = lazy_compile(
    r"_?(?:inner_)?(?:train(?:ing)?(?:_loop|_step)?|fit|evaluate|predict|map|_map_single|learn)|_inner_training_loop"
)
_LOOKS_UP = lazy_compile(r"__(?:getattr|getattribute|getitem|missing)__")
_FETCHES = lazy_compile(r"torch/utils/data/_utils/fetch\.py:\d{1,6} in fetch")
_IN_WORKER = lazy_compile(r"torch/utils/data/_utils/worker\.py|in DataLoader worker process")
_MESSAGE = lazy_compile(r", ?\(?[frb]{0,2}[\"'].*")  # of an assertion, behind what it checks
_MODULE_FILE = lazy_compile(r"\(([^()\n]{1,300}\.py)\)\s*$")
_STORE = lazy_compile(
    r"torch/distributed/rendezvous\.py:\d{1,6} in _(?:tcp|env)_rendezvous_handler|_create_c10d_store$"
)
_NO_MODULE = lazy_compile(r"No module named ['\"]?(\w{1,80})")
_DEEP = 4  # frames of other libraries below, from which on the run's own line does not show what failed
_NEAR = 400  # bytes between two exceptions of a chain
_SHOWN = 3  # parts of a path that are shown
_WHOLE = 60  # characters of a path of the program that is shown whole, so that it can be pasted
_INSTALLED = lazy_compile(r".*(?:site|dist)-packages[/\\](.+)")
_LONGER = range(_SHOWN, _SHOWN + 2)  # separators in the path of a package's file that would lose the package


class ParsedFrames(NamedTuple):
    """The run's own innermost frame, and those of libraries below it, with the groups `file` and `function`."""

    own: re.Match[str]
    below: list[re.Match[str]]

    @property
    def place(self) -> re.Match[str]:
        """The own frame; if that only starts a trainer's loop or is far from what failed, the library's frame that failed."""
        called = [frame for frame in self.below if not _RUNTIME.search(frame[0])]
        return called[-1] if called and (self.loops or len(called) >= _DEEP) else self.own

    @property
    def loops(self) -> bool:
        """Whether the own frame only starts a library's loop, so that its line does not show what failed."""
        return any(frame["function"] and _LOOP.fullmatch(frame["function"]) for frame in self.below)

    @property
    def calls(self) -> bool:
        """Whether there are frames below the place other than look-ups of its own line, so that it did not raise the exception."""
        under = self.below[self.below.index(self.place) + 1 :] if self.place in self.below else self.below
        return any(frame["function"] is None or not _LOOKS_UP.fullmatch(frame["function"]) for frame in under)


class CodePlace(NamedTuple):
    """A place in the code, as `folder/file.py:12 in function`, with the line of the program there, if the traceback shows it.

    `calls`: what failed lies in what it calls, not in its own line. `caller`: of a library's place, the run's own line
    that called the library. `in_library`: it is a line of a library, or no line of the run's own code is in the traceback.
    """

    frame: str = ""
    calls: bool = False
    source: str = ""
    caller: str = ""
    in_library: bool = False


def own_frame(signal: Signal, facts: Facts) -> CodePlace:
    """Return the place in the code that a traceback points at; without a frame if there is none."""
    raised = facts.streams[signal.stream].exceptions
    own = exceptions_at(signal, facts)
    if any(item.fields.get("chained") == "cause" for item in own):  # raised again; the first of the chain says where
        own = [*(item for item in raised if item.fields.get("chain") == 0 and _beside(item, own[0])), *own]
    found = next(((parts, item) for item in own if (parts := frames_of(item)) is not None), None)
    if found is None:
        return CodePlace(in_library=any(item.fields.get("frames") for item in own))
    parts, item = found
    caller = _shown(parts.own) if parts.place is not parts.own and not parts.loops else ""
    library = LIBRARY.search(parts.place[0]) is not None
    return CodePlace(_shown(parts.place), parts.calls, _source_of(parts.place, item), caller, library)


def first_frame(signal: Signal, facts: Facts) -> str:
    """Return the place in the code that the first exception of a chain points at; empty without a frame of the run."""
    own = exceptions_at(signal, facts)
    before = [item for item in facts.streams[signal.stream].exceptions if own and _beside(item, own[0])]
    first = [item for item in before if item.fields.get("chain") == 0 and int(own[0].fields.get("chain") or 0) == 1]
    return next(filter(None, map(innermost, (*first, *own))), "")


def raising_frame(signal: Signal, facts: Facts) -> str:
    """Return the innermost frame of the traceback with a line, of the run's code or a library; empty without one."""
    raised = (str(item.fields.get("frames") or "").splitlines() for item in exceptions_at(signal, facts))
    return next((shown_frame(frames[-1]) for frames in raised if frames), "")


def asks_itself(signal: Signal, facts: Facts) -> str:
    """Return whether the import that failed is in the very module that lacks the name: a "package" or a "file"; else empty."""
    for item in exceptions_at(signal, facts):
        lacks = _MODULE_FILE.search(str(item.fields.get("message") or ""))
        frames = str(item.fields.get("frames") or "").splitlines()
        at = _FRAME.fullmatch(frames[-1]) if frames else None
        if lacks is not None and at is not None and at["file"].rpartition(":")[0] == lacks[1]:
            return "package" if lacks[1].endswith("__init__.py") else "file"
    return ""


def shakes_hands(signal: Signal, facts: Facts) -> bool:
    """Whether a traceback ends in the handshake of TLS: the connection itself was made."""
    frames = (str(item.fields.get("frames") or "") for item in exceptions_at(signal, facts))
    return any(found.endswith(" in do_handshake") for found in frames)


def opens_store(signal: Signal, facts: Facts) -> str:
    """Return "yes" if a traceback ends in the store at which the ranks of torch.distributed meet; else empty."""
    frames = (str(item.fields.get("frames") or "") for item in exceptions_at(signal, facts))
    return "yes" if any(_STORE.search(found.rpartition("\n")[2]) for found in frames) else ""


def own_folder(signal: Signal, facts: Facts) -> str:
    """Return the folder with the name of the module that was not found, if the run's own code that asked for it lies below it; else empty."""
    for item in exceptions_at(signal, facts):
        module = _NO_MODULE.search(str(item.fields.get("message") or ""))
        parts = frames_of(item) if module is not None else None
        if (
            module is not None
            and parts is not None
            and (lies := re.search(rf"^(?:.*[/\\\\])?{module[1]}(?=[/\\\\])", parts.own["file"]))
        ):
            return lies[0]
    return ""


def loading_process(signal: Signal, facts: Facts) -> str:
    """Return the process in which a data loader fetched, "main" or "worker", by the frames of a traceback; empty without them."""
    raised = exceptions_at(signal, facts)
    frames = "\n".join(str(item.fields.get("frames") or "") for item in raised)
    if _IN_WORKER.search(frames) or any(_IN_WORKER.search(str(item.fields.get("message") or "")) for item in raised):
        return "worker"
    return "main" if _FETCHES.search(frames) else ""


def exceptions_at(signal: Signal, facts: Facts) -> list[Structure]:
    """Return the exceptions whose tracebacks hold the line of a signal."""
    raised = facts.streams[signal.stream].exceptions
    return [item for item in raised if structure_start(item) <= signal.offset < item.end]


def _beside(first: Structure, last: Structure) -> bool:
    """Whether two exceptions of a chain follow each other directly."""
    gaps = structure_start(first) - last.end, structure_start(last) - first.end
    return first.resource.rank == last.resource.rank and any(0 <= gap < _NEAR for gap in gaps)


def innermost(exception: Structure) -> str:
    """Return the place in the code that one exception points at; empty if all its frames belong to libraries."""
    parts = frames_of(exception)
    return "" if parts is None else _shown(parts.place)


def frames_of(exception: Structure) -> ParsedFrames | None:
    """Return the frames of one exception, starting at the innermost one of the run's own code; None if all belong to libraries."""
    lines = str(exception.fields.get("frames") or "").splitlines()
    frames = [frame for line in lines if (frame := _FRAME.fullmatch(line))]
    own = next((at for at in reversed(range(len(frames))) if not LIBRARY.search(frames[at][0])), None)
    return None if own is None else ParsedFrames(frames[own], frames[own + 1 :])


def _source_of(frame: re.Match[str], exception: Structure) -> str:
    """Return the line of the program that a traceback shows below a frame, without its message; empty if that is all."""
    shown = (line.partition("\t") for line in str(exception.fields.get("sources") or "").splitlines())
    source = next((source for place, _, source in shown if place == frame[0]), "")
    if source.startswith("raise"):
        return ""
    return _MESSAGE.sub("", source) if source.startswith("assert ") else source


def shown_frame(frame: str) -> str:
    """Return a frame as `file:line in function`, with only the last parts of a long or library path; empty if it is not a frame."""
    found = _FRAME.fullmatch(frame)
    return "" if found is None else _shown(found)


def _shown(frame: re.Match[str]) -> str:
    between = "/" if "/" in frame["file"] else "\\"  # the latter on Windows
    package = _INSTALLED.search(frame["file"])
    whole = package is not None and package[1].count(between) in _LONGER
    file = frame["file"]
    if package is not None and whole:
        file = package[1]
    elif package is not None or len(file) > _WHOLE:
        file = between.join(file.split(between)[-_SHOWN:])
    return file if frame["function"] in (None, "<module>") else f"{file} in {frame['function']}"
