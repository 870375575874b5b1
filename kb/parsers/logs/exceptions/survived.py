"""Exceptions after which the program itself reports that it continues.

A word such as "retrying" above a traceback is not enough: the last attempt looks the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from kb.parsers.logs.error_lines import is_calm
from kb.parsers.logs.exceptions.exception_line import HEADER
from kb.parsers.logs.exceptions.frames import MAX_FRAMES
from kb.parsers.logs.lines import line_at, line_start, lines_from
from kb.regex.lazy import lazy_compile

# Headers that report a handled exception. A word such as "retrying" is not enough: the last attempt looks the same.
_IGNORED = lazy_compile(rb"Exception ignored (?:in|on)\b|Error in atexit\._run_exitfuncs:|--- Logging error ---")
_CARRIES_ON = lazy_compile(
    rb"(?i)(?:fail(?:ed|ure)|error|could not|cannot|can't|unable|exception|corrupt|broken|damaged|bad sample|did not work).{0,160}"
    rb"(?:\b(?:left in place|set aside|passed over|left out|skipping|skipped|ignoring|ignored|continuing|falling back|going on|carrying on|doing without)\b|will try again at the next)"
)
# a decision that holds for the rest of the run, unlike a retry
_DOES_WITHOUT = lazy_compile(
    rb"(?i)(?:fail(?:ed|ure)|error|exception).{0,160}\b(?:disabling|turning off|switching off) (?!all\b)\w"
)
_GUARDED = lazy_compile(rb"[Ii]mport of .{1,200} failed with: ?$")
TRAILING = lazy_compile(
    rb"(?:--|[;,(]) ?(?:(?:we are |is )?(?:falling back|skipping|skipped|retrying|retry #?\d|ignored|ignoring|continuing)|will (?:be )?retr)"
    rb"|\b(?:batch|sample|step) skipped\b|[,;] [\w ]{1,40} (?:disabled|off)$"
)
_TROUBLE_WORDS = lazy_compile(
    rb"(?i)error|fail|traceback|exception|kill|abort|signal|srun|slurm|wandb|elastic|launch|terminat|process.?group|exit|dumped"
)
_RETRIES = lazy_compile(
    rb"(?i)\b(?:will (?:be )?retr(?:y|ied)|retrying)\b.{0,40}(?:\bin \d|\d ?/ ?\d|\battempt|\bthe (?:batch|step|request|sample)\b)|\battempting to recover from\b|\bretry(?:ing)? \d+ ?(?:/|of) ?\d"
)
_SANDBOX = lazy_compile(
    rb"(?i)\[(?:reward|sandbox|verifier|judge|executor|(?:code.?)?exec)\w*\].{0,80}\b(?:stderr|stdout|output|raised|trace\w*)\b.{0,60}:\s*$"
)
_CALM_LINES = 3
_FENCE = lazy_compile(rb"(?:^|[\s\]:|])(?:```|~~~)\w{0,16}\s*$")
# cleanup at exit, and the thread that hands file descriptors of tensors to other processes: both print an error and go on
_HELPERS = lazy_compile(r"multiprocessing/(?:util\.py:\d+ in _run_finalizers|resource_sharer\.py:\d+ in _serve)$")
# conda's hint to a script's shell, whose commands then run in the environment that it has
_SHELL = lazy_compile(rb"^Your shell has not been properly configured to use 'conda (?:de)?activate'")
# what NumPy prints while a package that was built for another release of it is imported; if that fails, an ImportError follows
_NOTICE = lazy_compile(rb"^module compiled against (?:API|ABI) version ")
_COMMAND = "<string>:1 in <module>"
# how a program that tests generated code announces what the code raised
_TESTED = lazy_compile(
    rb"(?i)\b(?:completions?|candidates?|generations?|responses?|rollouts?|solutions?|snippets?|submissions?|rewards?|sandbox\w*|unit.?tests?|humaneval|mbpp|problem|prompt)\b"
    rb".{0,160}(?:\b(?:fail|error|rais|wrong|incorrect|traceback|stderr|output)|\bnot pass|:\s*$)"
)
_SHUTDOWN = lazy_compile(
    rb"(?:at|after) interpreter shutdown|Python is likely shutting down|^import of \S{1,80} halted; None in sys\.modules"
)
_DESTRUCTOR = lazy_compile(r":\d+ in (?:\w+\.)?__del__$")


# clients of plot and tracking servers: they report their own errors and go on
_TRACKER = lazy_compile(
    r"\S{0,300}(?:site|dist)-packages/(?:visdom|tensorboard\w{0,12}|wandb|mlflow|comet_ml|aim|clearml|neptune\w{0,12}|swanlab|trackio)/"
)
_UNREACHED = lazy_compile(
    rb"(?i)connect|timed? ?out|max retries|unreachable|network|broken ?pipe|unavailable|\b50[0234]\b"
)
_REFUSED = lazy_compile(rb"(?i)\b40[0134]\b|permission|denied|unauthori[sz]ed|forbidden|api.?key")
_THREAD_FRAME = lazy_compile(r"\S{0,300}/(?:threading|concurrent/futures/thread)\.py:\d")


def survived_by_program(window: bytes, start: int, last: int) -> bool:
    """Whether the header at `start` or the line above it says that the program continues, and what follows agrees.

    `last` is where the exception's own line starts.
    """
    own = line_at(window, start)[0]
    own = own[: max(0, own.find(HEADER))]
    above = line_at(window, line_start(window, start - 1))[0][-1000:] if start > 0 else b""
    if _GUARDED.search(own) or _IGNORED.search(above) or (_FENCE.search(above) and _fenced(window, last)):
        return True
    below = line_at(window, last)[1]
    if _SANDBOX.search(above) or _retries_below(window, below) or _carries_on_below(window, below):
        return True
    if _DOES_WITHOUT.search(above) and not above[:1].isspace():
        return _calm_after(window, below, least=1)
    return _carries_on(own, above) and _calm_after(window, below)


def of_the_shell(message: bytes) -> bool:
    """Whether a message is one of a tool of the job's script, which continues after it."""
    return _SHELL.search(message) is not None


def printed_on_import(message: bytes, *, alone: bool) -> bool:
    """Whether a message without a traceback (`alone`) is a notice that NumPy prints and continues."""
    return alone and _NOTICE.search(message) is not None


def ignored_by_python(window: bytes, at: int) -> bool:
    """Whether the line above the exception line at `at` says that Python ignores it, as for output that nobody reads at exit."""
    return at > 0 and _IGNORED.search(line_at(window, line_start(window, at - 1))[0][-1000:]) is not None


def _fenced(window: bytes, last: int) -> bool:
    """Whether a code fence closes right after an exception: the traceback is text that the program shows, such as a sample."""
    following = (line for _, _, line in lines_from(window, line_at(window, last)[1], _CALM_LINES))
    return any(_FENCE.search(line) for line in following)


def reported_as_skipped(window: bytes, start: int) -> bool:
    """Whether the header at `start` or the line above it reports that the program continues, whatever follows.

    It proves nothing alone: the last attempt looks the same. The caller knows how the job ended.
    """
    own = line_at(window, start)[0]
    own = own[: max(0, own.find(HEADER))]
    above = line_at(window, line_start(window, start - 1))[0][-1000:] if start > 0 else b""
    return _carries_on(own, above)


def _carries_on(own: bytes, above: bytes) -> bool:
    return bool(_CARRIES_ON.search(own)) or (bool(_CARRIES_ON.search(above)) and not above[:1].isspace())


def _retries_below(window: bytes, position: int) -> bool:
    """Whether the line below an exception says that its program tries again, and further lines show that it lived on."""
    following = [line for _, _, line in lines_from(window, position, 2 * _CALM_LINES) if line.strip()][
        : 1 + _CALM_LINES
    ]
    return len(following) > _CALM_LINES and _RETRIES.search(following[0]) is not None


def _carries_on_below(window: bytes, position: int) -> bool:
    """Whether the line below an exception warns that its program does without what failed, and calm lines follow."""
    following = [line for _, _, line in lines_from(window, position, 2 * _CALM_LINES) if line.strip()]
    warned, rest = following[:1], following[1 : 1 + _CALM_LINES]
    told = any(is_calm(line) and _CARRIES_ON.search(line) for line in warned)
    return told and len(rest) == _CALM_LINES and not any(_TROUBLE_WORDS.search(line) for line in rest)


def lines_follow(window: bytes, position: int) -> bool:
    """Whether a few further lines follow: what a program logged below the level of an error did not end it."""
    return sum(bool(line.strip()) for _, _, line in lines_from(window, position, 2 * _CALM_LINES)) >= _CALM_LINES


def _calm_after(window: bytes, position: int, least: int = _CALM_LINES) -> bool:
    """Whether there are `least` further lines and none reports trouble, or the first reports that the program continues."""
    following = [line for _, _, line in lines_from(window, position, 2 * _CALM_LINES) if line.strip()][:_CALM_LINES]
    if following and _CARRIES_ON.search(following[0]):
        return True
    return len(following) >= least and not any(_TROUBLE_WORDS.search(line) for line in following)


def in_generated_code(window: bytes, start: int, last: int, frames: tuple[str, ...]) -> bool:
    """Whether an exception came from code that a program ran from a string, such as a model's answer under test, and survived.

    All its frames are then of that string, as are those of a failed `python -c` or `exec`. So either the line above tells
    of a test, or what follows shows that the program continues. `start`, `last`: as of `survived_by_program`.
    """
    if not frames or not all(frame.startswith("<string>:") for frame in frames) or frames[0].startswith(_COMMAND):
        return False
    above = line_at(window, line_start(window, start - 1))[0][-1000:] if start > 0 else b""
    own = line_at(window, start)[0]
    told = own[: max(0, own.find(HEADER))] + b" " + (b"" if above[:1].isspace() else above)
    return _TESTED.search(told) is not None or _calm_after_traces(window, line_at(window, last)[1])


def _calm_after_traces(window: bytes, position: int) -> bool:
    """Whether lines without trouble follow, right away or after further tracebacks."""
    found: list[bytes] = []
    in_trace = False
    for _, _, line in lines_from(window, position, 8 * _CALM_LINES):
        indented = line[:1].isspace()
        if HEADER in line:
            in_trace = True
        elif in_trace:
            in_trace = indented
        elif line.strip():
            found.append(line)
    return len(found) >= _CALM_LINES and not any(_TROUBLE_WORDS.search(line) for line in found[:_CALM_LINES])


def at_shutdown(message: bytes) -> bool:
    """Whether an exception says that the interpreter shuts down: the program's end came before it, and set its status."""
    return _SHUTDOWN.search(message[:300]) is not None


def caught_by_tracker(frames: tuple[str, ...], said: bytes) -> bool:
    """Whether a plot or tracking client caught a failed connection and printed it: the traceback starts in its code or thread.

    A traceback starts where the exception is caught; one that nothing catches starts in the program. `said`: class and
    message. A server that refuses the account does so in the program, too.
    """
    outer = _outermost(frames)
    # what init raises reaches the program that calls it
    own = len(frames) < MAX_FRAMES and _TRACKER.match(outer) is not None and not outer.endswith(" in init")
    return own and _UNREACHED.search(said[:600]) is not None and _REFUSED.search(said[:600]) is None


def thread_of_tracker(frames: Sequence[str]) -> bool:
    """Whether a traceback belongs to a thread of a plotting or tracking client, whose exceptions do not end the program."""
    return (
        bool(frames) and _THREAD_FRAME.match(frames[0]) is not None and _TRACKER.match(_outermost(frames)) is not None
    )


def _outermost(frames: Sequence[str]) -> str:
    """Return the first frame that is not the threading library's; empty without one."""
    return next((frame for frame in frames if not _THREAD_FRAME.match(frame)), "")


def printed_and_ignored(frames: tuple[str, ...]) -> bool:
    """Whether it comes from a part of multiprocessing, or from a destructor, whose errors are printed and ignored."""
    return any(_HELPERS.search(frame) for frame in frames[:2]) or any(_DESTRUCTOR.search(frame) for frame in frames)
