"""The context of an exception: earlier exceptions of its chain, and the thread that raised it."""

from __future__ import annotations

from kb.model import Scalar, Structure
from kb.parsers.logs.exceptions.exception_line import HEADER, MAX_MESSAGE, RaisedException
from kb.parsers.logs.exceptions.voice import Voice
from kb.parsers.logs.lines import line_at, line_start, plain, resource, text
from kb.parsers.logs.prefixes import Prefix, peel
from kb.regex.lazy import lazy_compile

_MAX_LINKS = 16  # of a chain, counted backwards
_PHRASES = (
    (b"direct cause of the following exception", "cause"),
    (b"During handling of the above exception, another exception occurred", "context"),
)
# what torch_npu adds below its errors; -1 is an unknown rank
_OF_NPU = lazy_compile(rb"\s{0,4}\[ERROR\] \S{10,40} \(PID:\d{1,9}, Device:-?\d{1,4}, RankID:(\d{1,6})\)")
# a program that names its rank at the start of its message, as Megatron does
_OF_MESSAGE = lazy_compile(rb"\[?[Rr]ank[ :=]?(\d{1,6})\]?: ")
_SPAWNED = lazy_compile(rb"-- Process (\d{1,4}) terminated with the following error:")
_REMOTE = lazy_compile(rb"ray::[^\n]{1,300}? \(pid=(\d{1,9})(?:, ip=([0-9A-Fa-f.:]{3,45}))?")
# of an actor of Ray that died, in what the driver's exception says about it
_ACTOR = lazy_compile(
    rb"\n[ \t]{0,8}pid: (\d{1,9})\n(?:[^\n]{0,200}\n){0,4}?[ \t]{0,8}ip: ([0-9A-Fa-f.:]{3,45})(?:\n|$)"
)
_DEAD_ACTOR = (b"ActorDiedError", b"RayActorError")
_THREAD = lazy_compile(rb"(?:.{0,200}\b)?Exception in thread (.{1,120}?):?$|Process ([\w.-]{1,80}):$")


def _phrase_before(window: bytes, start: int, voice: Voice) -> tuple[int, str] | None:
    """Return the position and text of the words that link the traceback at `start` to an earlier one."""
    near = window[max(0, start - 4096) : start]
    if not any(words in near for words, _ in _PHRASES):
        return None  # the common case, without a search over lines
    for _ in range(12):
        if start <= 0:
            return None
        start = line_start(window, start - 1)
        line = line_at(window, start)[0]
        kind = next((kind for words, kind in _PHRASES if words in line), "")
        if kind:
            return start, kind
        rest = voice.rest(line)
        if rest is not None and rest.strip(b" \t|"):
            return None
    return None


def links_before(window: bytes, start: int, voice: Voice) -> tuple[int, str]:
    """Return the number of earlier exceptions in the chain, and the relation to the last of them."""
    count, relation = 0, ""
    while count < _MAX_LINKS:
        phrase = _phrase_before(window, start, voice)
        if phrase is None:
            break
        count, relation = count + 1, relation or phrase[1]
        head = window.rfind(HEADER, 0, phrase[0])
        if head < 0:
            break
        start = line_start(window, head)
    return count, relation


def thread_before(window: bytes, start: int, voice: Voice) -> str:
    """Return the thread or child process that the line before the header names."""
    if start <= 0:
        return ""
    line = line_at(window, line_start(window, start - 1))[0]
    said = _THREAD.match((voice.rest(line) or b"")[:400].rstrip())
    return text(said[1] or said[2], 120) if said else ""


def spawned_before(window: bytes, start: int) -> int | None:
    """Return the local rank that the line above a traceback names, as `torch.multiprocessing.spawn` prints it."""
    if start <= 0:
        return None
    found = _SPAWNED.search(line_at(window, line_start(window, start - 1))[0])
    return int(found[1]) if found else None


def to_structures(
    window: bytes, found: list[RaisedException], prefix: Prefix, links: tuple[int, str], shared: dict[str, Scalar]
) -> tuple[Structure, ...]:
    """Return the structures of exceptions, given outermost first."""
    result = []
    inner_of_last = int(found[-1].original_follows)
    for index, item in enumerate(found):
        below = len(found) - 1 - index + inner_of_last
        relation = "cause" if below else links[1]
        line, _ = line_at(window, item.offset)
        own = peel(line)
        fields: dict[str, Scalar] = {
            "type": text(item.name, 200),
            "module": text(item.module, 200),
            "message": text(item.message, MAX_MESSAGE),
            "frames": "\n".join(item.frames),
            "last_frame": item.frames[-1] if item.frames else "",
            "chain": below + links[0],
            "chained": relation,
            "has_traceback": "yes" if item.frames else "no",
        }
        if item.sources:
            fields["sources"] = "\n".join("\t".join(pair) for pair in item.sources)
        when = prefix.time if own.time is None else own.time
        said = text(plain(line))
        own_words = _OF_NPU.match(window, item.end) or _OF_MESSAGE.match(item.message)
        rank = own_words if prefix.rank is None else None
        who = resource(prefix, rank=int(rank[1])) if rank else resource(prefix)
        remote = _REMOTE.search(found[index - 1].message[:1024]) if index else None
        if remote:  # the task of Ray in which the nested exception was raised
            who = resource(prefix, node=text(remote[2]) or None, pid=int(remote[1]))
        actor = _ACTOR.search(item.message[:1024]) if item.name in _DEAD_ACTOR else None
        if actor:  # the process that died, not the driver that reports it
            who = resource(prefix, node=text(actor[2]), pid=int(actor[1]))
        result.append(Structure("exception", item.offset, item.end, said, fields | shared, who, when))
    return tuple(result)
