"""Exceptions of ranks that closed their logs as all other ranks did: whoever printed the closing line had gone on."""

from __future__ import annotations

from collections.abc import Sequence

from kb.anomalies.core.severity_words import is_consequence, skeleton
from kb.facts.log.line_writers import writer_of
from kb.model import Structure
from kb.parsers.logs.error_lines import error_level, message_of
from kb.regex.lazy import lazy_compile
from kb.scanning.summary import StreamSummary, tail_lines

FEWEST_RANKS = 2
_CUT = 1024  # bytes of a line
# "finished" and its like, in the languages in which training scripts were seen to print it: words between spaces, and others
OVER = r"finished|completed?|done|ended|fertig|beendet|abgeschlossen|terminad[oa]|complet(?:ad)?[oa]|finalizad[oa]|termin[ée]e?|concluíd[oa]"
OVER_WITHOUT_SPACES = r"完成|结束|結束|終了|完了|завершено|окончено|완료"
_OVER = lazy_compile(rf"(?i)(?<![\w'-])(?:{OVER}|finie?)\b|{OVER_WITHOUT_SPACES}")
_NOT_WELL = lazy_compile(
    r"(?i)\b(?:not|never|no|nicht|nie|sin|pas|abort\w*|fail\w*|errors?|kill\w*|cancel\w*|interrupt\w*|early)\b"
)


def before_a_common_end(summary: StreamSummary, exceptions: Sequence[Structure]) -> list[Structure]:
    """Return the exceptions of ranks whose last line says that the work is over, in the words of the last line of every other rank.

    At least one of the ranks must have raised nothing: ranks that all fail can all say that they leave. Only in a log in which
    each exception names its rank; a process's output at its end may be written late, but not before it is printed.
    """
    raised = {item.resource.rank for item in exceptions if not item.fields.get("lived_with")}
    if not raised or None in raised or not _closes(summary.tail.rstrip().rpartition("\n")[2][:_CUT]):
        return []
    last: dict[int, tuple[int, str]] = {}
    for at, line in tail_lines(summary):
        if line.strip():
            rank = writer_of(summary, line[:_CUT]).rank
            if rank is None:  # a launcher's or scheduler's report: the processes alone do not decide
                return []
            last[rank] = at, line[:_CUT]
    said = {skeleton(message_of(line)) for _, line in last.values()}
    if len(last) < FEWEST_RANKS or not raised < set(last) or len(said) != 1:
        return []
    return [item for item in exceptions if last[item.resource.rank or 0][0] > item.offset]


def _closes(line: str) -> bool:
    """Whether a line says that the work is over, and reports no trouble."""
    said = message_of(line)
    if _OVER.search(said) is None or _NOT_WELL.search(said) is not None:
        return False
    return not (is_consequence(line) or error_level(line.encode("utf-8", "replace")))
