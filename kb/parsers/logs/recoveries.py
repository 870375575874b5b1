"""Lines that report a recovery: a retry that worked, a link that came back, a component that is not needed.

Also `quoted`: whether a line shows data (a sample, a generation), in which error words mean nothing.
"""

from __future__ import annotations

from kb.model import Structure
from kb.parsers.logs.lines import line_at, on_line, plain
from kb.parsers.logs.prefixes import peel
from kb.parsers.reader import Reader
from kb.regex.lazy import lazy_compile

# For lower-case text: an expression that ignores case tries every alternative at every byte.
_OVER = lazy_compile(
    rb"(?:attempt|retry|try|request) ?#?\d* ?(?:of \d+ )?(?:was |has )?(?:succeeded|successful|worked)"
    rb"|succe(?:eded|ssful(?:ly)?) (?:on|at|after|in) (?:the )?(?:\d+(?:st|nd|rd|th)? |second |third |next )?(?:attempts?|retry|retries|try|tries)"
    rb"|after \d+ (?:retry|retries|attempts|tries)\b(?!.{0,40}(?:giv|fail|error|exhaust))"
    rb"|(?:error|outage|issue|problem|failure|connection|link|session|network|mount|stream|service)s? (?:\w+ ){0,4}(?:is |was |are |has been |have been )?"
    rb"(?:resolved|recovered|re-?established|restored|re-?connected|is back|came back|back up)\b"
    rb"|\b(?:re-?connected|re-?opened|re-?mounted|recovered)\b(?: to\b| from\b| after\b|,| /\S{1,200}\s*$| .{0,60}(?:going on|continu|resum)|$)"
    rb"|\b(?:saved|written|wrote|uploaded|done|completed?|ok|loaded)\b.{0,160}(?:\b(?:on|at|in) (?:the )?(?:second|third|next|last) (?:attempt|try)\b|\(attempt #?[2-9]\b|\b\d+ retried\b)"
    rb"|\bresized to \d+ cpus\b"
    rb"|resum(?:ed|ing) normal|resumed (?:the )?(?:upload|download|sync|stream)"
    rb"|(?:going|carrying) on(?: without|$)|(?:continuing|proceeding) (?:without|anyway)"
    rb"|\bstart(?:ing|ed) over (?:at|from) (?:\w+[ =]){0,2}\d"
    rb"|silently ignoring the lookup\b|handled by warn_and_continue|found a (?:batch size|micro.?batch) that fits|left in place\b|setting tmpdir to /"
)
_LOST = lazy_compile(
    rb"(?:fail(?:ed|ure|ing|s)?|error|exceeded|exhausted|timed out|unable|could not|refused)\b(?!.{0,120}\b(?:resolved|recovered|restored|re-?established|re-?connected|re-?opened|succeeded|is back|came back)).{0,200}\bafter \d+|giv(?:ing|en) up|\bfatal|abort|not (?:be )?(?:resolved|recovered|restored)|could not be|never"
    rb"|from (?:the )?(?:last )?checkpoint|unrecover"
    rb"|memory failure: 0x|recovery action (?:for|changed|required)|not recovered|(?:was|is|being) restarted from"  # a page that is given up is a loss
)
_QUOTED = lazy_compile(
    rb"(?i)\s*(?:<doc>|```|(?:=+ ?)?\[?(?:decoded |training |eval(?:uation)? |generated )*(?:sample|example|prompt|completion(?! queue)|response|generation"
    rb"|prediction|question|answer|instruction|reference|rollout)s?\b[ #:=/\w]{0,24}[\]:>]"
    rb"|[{,]?[\"'](?:text|prompt|content|completion|instruction|output|input|response|question|answer|messages|problem|solution)[\"'] ?: ?[\"'\[])"
    rb"|\[(?:reward|sandbox|verifier|judge|executor|code.?exec)\w*\]"
    rb"|.{0,60}\b(?:HumanEval|MBPP|LiveCodeBench|SWE-?bench)[/ _-]?\d"
    # a program's help, or an option of a command over several lines; a member of a pretty-printed configuration
    rb"|\s{1,8}--?[A-Za-z][\w-]*(?:[ ,=]|$)"
    rb"|\s{1,16}\"(?!(?:\w*(?:message|msg|error|reason|stat(?:e|us)|except|trace|stack|log|std|output|detail|event|cause|exit|terminat|descr|fail|last)\w*)\")"
    rb"[\w.-]{1,60}\": ?[\[{\"].*[\]}\"],?\s*$"
    # a turn of a conversation; trouble that the line itself calls ignored or expected
    rb"|<\|\w{1,30}\|>|(?:assistant|human) ?:|.{0,360}\((?:[^()]{0,60}[,;] ?)?(?:ignored|expected)\)(?: ok)?[. ]*$"
    rb"|.{0,360}[,:;] (?:ignored|ignoring it)(?: \([^()]{1,40}\))?[. ]*$"
    # a program that tests itself before it starts
    rb"|\[(?:self|unit|smoke)[ _-]?test\w*\]|.{0,60}\b(?:simulat(?:ing|ed) (?:an? )?(?:fault|failure|error|crash)|caught as expected)\b"
)


def quoted(line: bytes) -> bool:
    """Whether the message of a line is data that the run prints, not an event."""
    return _QUOTED.match(plain(line[peel(line).end :])[:400]) is not None


def _read_over(window: bytes, at: int) -> tuple[Structure, ...]:
    line = line_at(window, at)[0]
    low = line.lower()
    if _OVER.search(low) is None or _LOST.search(low) or quoted(line):
        return ()
    return (on_line("recovery", window, at, {}),)


READERS: tuple[Reader, ...] = (
    Reader(
        name="recovery",
        trigger=r"succeeded (?:on|after|at) |retry (?:was |has )?succe|(?:attempt|retry|try) #?\d+ .{0,12}succe|re-?connected|re-?opened"
        r"|re-?mounted|re-?established|recovered|(?:is|was|are|been|error|outage|issue) resolved|restored|going on|carrying on|start(?:ing|ed) over (?:at|from) "
        r"|silently ignoring|continuing (?:without|anyway)|proceeding without|after \d+ (?:retr|attempts|tries)|came back|back up|resum(?:ed|ing) normal"
        r"|Resized to \d|second attempt|third attempt|next attempt|\(attempt #?[2-9]|\d retried|warn_and_continue|size that fits|left in place|TMPDIR to /",
        read=_read_over,
        after=2048,
        keep=64,
        ignore_case=True,
    ),
)
