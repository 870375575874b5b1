"""Judges from the words of a line how much harm it reports, and whether it only reports consequences of another's failure.

This is knowledge of the field's language, not of particular messages. Levels mislead in both directions (half of the deciding lines are
below error level, and healthy runs print errors), so a level is one indication among several.
"""

from __future__ import annotations

import re

from kb.regex.lazy import lazy_compile

LEVELS = {"fatal": 0.45, "critical": 0.45, "error": 0.35, "warning": 0.2, "info": 0.0, "debug": 0.0}
NO_LEVEL = 0.1
WORDS = {"grave": 0.5, "bad": 0.35, "uneasy": 0.2}

_GRAVE = lazy_compile(
    r"(?i)\b(?:uncorrectable|unrecoverable|panic|segmentation fault|core dumped|out of memory|oom|no space left|disk quota"
    r"|fallen off|corrupt(?:ed|ion)?|truncated|illegal (?:memory|instruction)|assert(?:ion)?|bus error|double bit|dbe|catastrophic"
    r"|machine check events|undefined symbol|unreachable|not responding|unresponsive|unspecified launch failure|cable error"
    r"|killed|aborted|exitcode|input/output error|stale file handle|permission denied|no such file|address already in use"
    r"|name resolution|name or service not known|connection refused|keep-alive|cannot be (?:split|laid|loaded|retrieved|divided)"
    r"|division by zero|fatal error|fatal event|internal error|hardware failure|lease .{0,40}lost|port down|link down)\b"
    r"|\bXid\b|\b[A-Z]\w*(?:Error|Exception)\b|\b[Ee]rrno\b|\bfailed to\b|\bcould not find\b"
)
_BAD = lazy_compile(
    r"(?i)\b(?:fail(?:s|ed|ure|ures|ing)?|cannot|can't|could not|couldn't|unable|not found|denied|refused|invalid|illegal|mismatch(?:ed)?"
    r"|tim(?:ed|es|e)[ -]?out|lost|stuck|hung|hang|stall(?:s|ed)?|dead|down|missing|errors?|exception|nan|inf|overflow|diverg\w*"
    r"|jump(?:s|ed)|spikes?|degraded|throttl\w*|slowdown|overheat\w*|exhausted|terminat(?:ed|ing|ion)|evict\w*|preempt\w*|drain\w*"
    r"|maintenance|shut(?:ting)? ?down|reboot\w*|incompatible|unsupported|too many|still waiting|no (?:traffic|progress|heartbeat)"
    r"|reject(?:s|ed)|expired|beyond|exceed(?:s|ed)?|gone|detrimental|unexpected|conflict\w*|does not match|not part of|is held by"
    r"|disconnected|unplugged|out of range|not mounted|no longer|stopped)\b|\b(?:9\d|100) ?% (?:full|used)"
)
_UNEASY = lazy_compile(
    r"(?i)\b(?:slow\w*|retr(?:y|ies|ying)|replay|retrans\w*|flush(?:es)?|pressure|ecc|rises?|rising|up by|pcs|crc|symbol errors?"
    r"|packet_seq_err|out_of_sequence|waits?|waited|waiting|behind|hot|temperature|takes \S+ m?s|took \S+ m?s|pending|backlog|flap\w*"
    r"|remap\w*|retired|queue ran empty|skipp(?:ed|ing))\b"
)
_MILD = lazy_compile(
    r"(?i)\b(?:deprecat\w*|ignor(?:ed|ing|es)|harmless|will be removed|future (?:version|release)s?|falling back|fall ?back|recovered"
    r"|succeed(?:s|ed)|successful(?:ly)?|correctable|corrected|all probes passed|retrying|no action (?:is )?(?:needed|required)|not critical"
    r"|experimental|beta|is disabled|disabling|optional|for best performance|please (?:install|consider|use|tune)"
    # that the speaker went on
    r"|switched off|dropped|skipped|trying (?:another|again)|will (?:retry|try)|attempt \S+|buffering|buffered|instead|resum(?:ed|es|ing)|restored"
    r"|carr(?:y|ies|ying) on|continu(?:e|es|ing)|still trying|already exists|already (?:been )?registered|unused|errors?(?: rate)?[:=]? \d{1,9}\.\d{1,12}"
    r"|(?:try|attempt|retry) (?!(\d{1,4}) of \1\b)\d{1,4} of \d{1,4}|(?:was|were|been|and) restarted|nothing (?:was |is )?lost|repaired|(?:was|were|been) re(?:peated|tried)|(?:go(?:ing)?|goes|went|doing) without"
    r"|us(?:e|es|ing) the (?:cached|last|old|previous)|known (?:to be )?(?:bad|broken|defective)|(?:second|third|next) (?:call|try|attempt))\b"
)
_CONSEQUENCE = lazy_compile(
    r"(?i)closing signal|killing subprocess|exits with return code|childfailederror|root cause \(first observed|failed \(exitcode"
    r"|send(?:ing)? (?:sig|signal)|sigterm|connection (?:was )?(?:reset|closed|aborted) by|connection reset|remote process exited|broken pipe"
    r"|watchdog thread terminated|watchdog caught collective|failure detected by watchdog|some nccl operations have failed"
    r"|terminate called (?:after throwing(?! an instance of '(?!std|c10|at|gloo|torch|nccl|tensorpipe|caffe2)\w{1,60}::)|without an active)|one or more process\w* .{0,40}terminated with|^job (?:has )?failed\W*$|\bcollectives? (?:was |were )?aborted|to avoid data inconsistency|ncclremoteerror|ncclsystemerror|socketprogress|misc/socket"
    r"|primary job +terminated|job to be terminated|first process to do so|non-?zero (?:exit|status)|job has been aborted|due to task failure|srun: (?:error|job step|terminating|got sig|forcing|interrupt)"
    r"|signalexception|keyboardinterrupt|processraisedexception|waiting for unfinished jobs|abort complete|exception raised from|\bframe #\d|process group (?:watchdog|has been|id)"
    r"|^failures:|^\W*(?:time|host|rank|exitcode|error_file|traceback) *:|^other failures|^<no other failures>|(?-i:\bFAILED)$|^(?:terminated|aborted|exiting|shutting down)\W*$"
    r"|heartbeat ?monitor|flight recorder|nccl work|aborting|worknccl|raytaskerror\(|coordination[_ ]service|preemption_sync|tcpstore|diststore|clients joined|waitforinput|recvvalue|sendbytes|failed to recv|cancelled (?:at|by)|slurmstepd"
    r"|socket closed|error received from peer|terminated with the following error"
    r"|rendezvous(?:closed|timeout|connection|state)|inner error is reported|exits for this inner error|task from \w+ run failed|exiting with|received signal|got signal|died unexpectedly|stopping (?:all )?(?:workers|container)|force[- ]?kill"
    r"|dist(?:ributed)?backenderror(?!.*(?:invalid usage|unhandled cuda|internal error|mismatch))|collective operations? time|hccl.*(?:notify|wait).*timeout"
    r"|\b(?:stream|socket|channel|pipe|link|line)s? (?:was |were )?(?:ended|closed|shut|hung up)\b|\bhung up (?:in|on)\b|\bunexpected (?:end of stream|eof on the)\b"
    r"|\b(?:peer|rank|worker|member|partner|neighbou?r|process|task)(?:s|(?:[ #:]{1,2}(?:\d{1,6}|<\*>)))? (?:is |are |was |were )?(?:gone|lost|left|hung up|vanished|went away|disconnected)\b"
    r"|(?-i:\b\w{0,40}(?:Peer|Rank|Worker|Member|Partner|Neighbou?r)s?(?:Gone|Lost|Left|Down|Dead|Died|Closed)\b)"
    r"|barrier timed out|tasks that reached the barrier|tasks (?:have crashed|are unhealthy)|^(?:\w{1,40}\.){0,4}(?:timeout|timeouterror): timed out(?: \[in |$)"
    r"|gloo.*(?:closed|timed out)|timed out waiting \S{1,12} ?m?s for (?:send|recv)"
)
# Programs that monitor the job or clean up the host; their own trouble does not end a run.
_ASIDE = lazy_compile(
    r"(?i)\b(?:metrics?|telemetry|scrap(?:e|er|ing)|prometheus|wandb|w&b|weights & biases|tensorboard|mlflow|exporter|log shipper|log forwarder"
    r"|syslog|ntp|chrony|logrotate|fwupd|motd|apt|snapd|cron|sshd|usb|audio|snd_\w+|bluetooth|git repository|deprecationwarning|futurewarning"
    r"|userwarning)\b"
)
_RAISED = lazy_compile(
    r"^(?:\[[\w:.-]{1,40}\]:? ?)*(?:[A-Za-z_]\w*\.)*(?:[A-Z]\w*)?(?:Error|Exception|Exit|Interrupt|Failure|Expired)(?:: |$)"
    r"|^(?:\[[\w:.-]{1,40}\]:? ?)*(?:[a-z_]\w*\.)+(?:error|timeout|gaierror|herror): "
    r"|^(?:\[[\w:.-]{1,40}\]:? ?)*thread '[^'\n]{1,60}'(?: \(\d{1,9}\))? panicked at \S"  # of Rust
)
_FRAMED = lazy_compile(r"\[in [^\[\]]{1,80} \([^()]{1,80}\)\]$")
_BODY = lazy_compile(
    r"^\W*$|^\s+\S|^(?:.{0,60}\W)?Traceback \(|^Traceback|^\s*File \"|^\^+|^During handling|^The above exception"
    r"|^.{0,60}\[rank(?:<\*>|\d+)\]:(?: {2,}\S|\s*[\^~]+\s*$)"  # below an unknown prefix
    r"|^.{0,60}\bException in thread [^\n:]{1,60}:\s*$"  # its traceback follows
    r"|^.{1,80}\bFile (?:\"|<\*>).{0,300}, line "
    r"|^.{0,80}\bat (?:[\w$.\[\] <>*]{1,120} \()?[^\s()]{1,200}:(?:\d+|<\*>):(?:\d+|<\*>)\)?$"  # a frame of JavaScript
    r"|^.{0,80}\bNode\.js v(?:\d|<\*>)\S{0,20}$|^.{0,80}[\w./-]+\.[cm]?[jt]s:(?:\d+|<\*>)$|^.{0,80}:? +throw new \w"
    r"|^(?:.{0,60}\W)?raise (?:[A-Za-z_]\w{0,80}\.){0,8}[A-Z]\w{1,80}\("  # the program's line above the exception that it raises
    r"|^note: run with `RUST_BACKTRACE"
    # dumps of native stacks and of threads, and how a command is used
    r"|^.{0,80}(?:@ {1,6}(?:0x[0-9a-f]{4,16}|<\*>) |\[ ?(?:\d{1,3}|<\*>)\] {1,4}\S{1,300}\[(?:0x[0-9a-f]{4,16}|<\*>)\]$)"
    r"|^.{0,80}\*\*\* (?:Check failure stack trace|End of error message)\b"
    r"|^.{0,60}(?:Current thread|Thread) (?:0x[0-9a-f]{4,16}|<\*>).{0,60} \(most recent call first\):|^.{0,60}\bExtension modules: "
    r"|^.{0,60}\busage: \S|^(?:\W{0,2}\[-{1,2}[\w-]+(?: [\w<*>.]+){0,3}\] ?)+$"
)
# What says why a scheduler, or a kernel, ended the job or one of its processes.
_ORDERED = lazy_compile(
    r"(?i)\bcancelled at .{0,40}\bdue to (?!task failure)\w|\boom[_-]?kill\w* event|\bexceeded (?:job|step|task) memory limit"
    r"|\boom_kill\W{1,3}[1-9]"
)
_ASKED = lazy_compile(r"(?i)\bcancelled at \d|\bkeyboardinterrupt\b")

# What ends a process that cannot report it: killed, a bad address, a bus error, an illegal instruction, a timer, a limit; not what launchers and watchdogs send.
_SIGNAL = lazy_compile(
    r"\bSIG(?:KILL|SEGV|BUS|ILL|FPE|TRAP|ALRM|XCPU|XFSZ|SYS)\b"
    r"|(?i:\bexit ?(?:code|status)\W{1,4}-(?:4|5|7|8|9|11|14|24|25|31)\b|\bsignal:? (?:4|5|7|8|9|11|14|24|25|31)\b"
    r"|\bexit(?:ed)? (?:with )?(?:code|status)\W{1,4}(?:132|135|136|137|139)\b|\bcode=(?:killed|dumped), status=(?:4|5|7|8|9|11|14|24|25|31)\b|(?<!aborted \()core dumped|segmentation fault|bus error)"
)
_STOPPED = lazy_compile(r"(?i)\bSIGTERM\b|\bsignal:? 15\b|signalexception|keyboardinterrupt|\bterminated\W*$")
_IGNORED = lazy_compile(
    r"(?i)^(?:\W|rank|\d)*exception (?:was )?ignored\b|^(?:\W|rank|\d)*exception in thread|handled|suppressed"
)
_MACHINE = lazy_compile(
    r"(?:^|\s)\[ {0,6}\d{1,9}\.\d{3,6}\]|\bkernel:|(?:^|\s)\[[A-Z][a-z]{2} [A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d \d{4}\]"
)

# the head of a table, such as "Group  Nodes  Ranks  Status  Errors", reports nothing by itself
_HEADER = lazy_compile(r"\s*(?:[A-Z][a-z]{1,15}(?:\s{2,}|\t)){3,12}[A-Z][a-z]{1,15}\s*")


def harm(text: str, level: str | None) -> float:
    """Return how much trouble the words and the level indicate, from 0 to 1."""
    score = LEVELS.get(level, NO_LEVEL) if level else NO_LEVEL
    score += WORDS.get(harm_of_words(text), 0.0)
    if _MILD.search(text):
        score -= 0.35
    if _ASIDE.search(text):
        score -= 0.25
    return min(1.0, max(0.0, score))


def harm_of_words(text: str) -> str:
    """Return how severe the words of a line are, whatever its level: `grave`, `bad`, `uneasy` or nothing."""
    if _GRAVE.search(text):
        return "grave"
    found = "bad" if _BAD.search(text) else "uneasy" if _UNEASY.search(text) else ""
    return "" if found and _HEADER.fullmatch(text) else found


def is_bad(word: str) -> bool:
    """Whether a word alone indicates that something is wrong."""
    return _GRAVE.search(word) is not None or _BAD.search(word) is not None


def is_consequence(text: str) -> bool:
    """Whether a line reports what another's failure, or the launcher, did to the speaker; a kernel speaks of its machine only."""
    return _CONSEQUENCE.search(text) is not None and not of_machine(text) and not is_ordered(text)


def is_raised(text: str) -> bool:
    """Whether a line is the last one of a traceback: an exception that nobody caught there.

    A template of such a line also names its innermost frame, whatever the class is called.
    """
    return _RAISED.match(text) is not None or _FRAMED.search(text) is not None


def is_grave(text: str) -> bool:
    """Whether its words report a problem that does not resolve itself."""
    return _GRAVE.search(text) is not None


def is_uneasy(text: str) -> bool:
    """Whether its words report something that may become a failure."""
    return _UNEASY.search(text) is not None


def is_mild(text: str) -> bool:
    """Whether its words say that the process continues."""
    return _MILD.search(text) is not None


def is_aside(text: str) -> bool:
    """Whether the line is about a program that only monitors the job or cleans up the host."""
    return _ASIDE.search(text) is not None


def by_signal(text: str) -> bool:
    """Whether the line reports a process that a signal ended, so it could not report the reason itself."""
    return _SIGNAL.search(text) is not None


def is_stopped(text: str) -> bool:
    """Whether the speaker says that it was asked to end, so what it reports from there on is not its own trouble."""
    return _STOPPED.search(text) is not None


def is_ordered(text: str) -> bool:
    """Whether the line says why a scheduler or a kernel ended the job or a process: a limit, memory, a job that goes first."""
    return _ORDERED.search(text) is not None


def is_asked(text: str) -> bool:
    """Whether the line says that somebody ended the job, without a reason; it may as well follow a failure."""
    return _ASKED.search(text) is not None


def is_ignored(text: str) -> bool:
    """Whether the line starts a traceback that does not end the process."""
    return _IGNORED.search(text) is not None


def of_machine(text: str) -> bool:
    """Whether the line comes from an operating system's kernel."""
    return _MACHINE.search(text) is not None


def is_body(text: str) -> bool:
    """Whether a line is only a part of another's: a frame, a ruler, a blank."""
    return _BODY.match(text) is not None


_WORD = lazy_compile(r"[^\W\d_]{2,}")


def skeleton(text: str) -> tuple[str, ...]:
    """The fixed words of a template, lower-cased and in their order. They stay the same across versions and paths."""
    return tuple(word.lower() for word in _WORD.findall(text.replace("<*>", " ")))


_STAGE_WORDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("saving", lazy_compile(r"(?i)\bsav(?:e|ing)_?\w*checkpoint|save_(?:state|pretrained|model)|inline_container|while saving|async_save|dist_checkpointing.*sav")),
    ("checkpoint_load", lazy_compile(r"(?i)load_\w*checkpoint|loading (?:the )?checkpoint|load_state_dict|resume from|size mismatch for|unpickl")),
    ("evaluating", lazy_compile(r"(?i)\bevaluat\w*|\beval_\w+|_eval\b|\bvalidat(?:e|ion)\b|eval(?:uation)? (?:loop|step|split)|\bheld[- _]?out\b")),
    ("data_load", lazy_compile(r"(?i)\btokeni[sz]er|\bdatasets?\b|\bdata (?:folder|path|file|prefix)|\bvocab|index(?:ed)? ?map|\.idx\b|shards?\b")),
    ("init", lazy_compile(r"(?i)init_process_group|\bnccl\b|processgroup|communicator|parallel (?:size|state)|\btp=|world[_ ]size|cuda driver|undefined symbol|importerror|modulenotfound")),
    ("launch", lazy_compile(r"(?i)rendezvous|\bstore\b|c10d|tcpstore|\bport\b|image|registry|container|prolog|torchrun|elastic|hostname|nodes have joined|gai ?error|socket")),
)  # fmt: skip


def stage_named(text: str, among: tuple[str, ...]) -> str | None:
    """The one of the given stages that a line's own words name."""
    return next((stage for stage, words in _STAGE_WORDS if stage in among and words.search(text)), None)
