"""Detects the begin and end of checkpoint saves and loads, and messages that a run completed.

Many programs log only one of begin and end; a begin without an end is no sign of trouble unless nothing follows it.
"""

from __future__ import annotations

import re

from kb.model import Scalar, Structure
from kb.parsers.logs.lines import line_at, line_start, on_line, plain, text
from kb.parsers.logs.recoveries import quoted
from kb.parsers.reader import Reader
from kb.regex.lazy import lazy_compile
from kb.values import dataclass


@dataclass(frozen=True, slots=True)
class _Form:
    """One wording: its event, the scanner's trigger (safe subset), and the regex that reads the line."""

    says: str
    trigger: str
    find: re.Pattern[bytes]


# A path ends at a blank or quote; a closing dot or comma belongs to the sentence. Numbers may be padded.
_PATH = rb"['\"]?(?P<path>[^\s'\",]{1,400}?)['\"]?(?=[.,:;]{0,3}(?:\s|['\"]|$))"
_TO = rb"(?: (?:to|at|in|from)(?: path| folder)?:? {1,3}" + _PATH + rb")?"
_AT = rb"(?:at |from |for )?(?:the )?(?:last )?(?:iteration|step|global step) {0,12}(?P<iteration>\d{1,12})"


# A file or folder; and one that is a process's own part of a checkpoint.
_NAMED_PATH = rb"['\"]?(?P<path>[^\s'\",]{0,200}[/.\d][^\s'\",]{0,200}?)['\"]?"
_PART_PATH = (
    rb"['\"]?(?P<path>[^\s'\",]{0,200}(?:iter_|step[_-]?|checkpoint-|snap\w{0,6}[_-])\d{1,12}/"
    rb"[^\s'\",]{0,100}?(?:rank|shard|part)[_-]?(?P<part>\d{1,6})[^\s'\",/]{0,60})"
)

# Two wordings share a trigger: beside each other, two that begin alike take the engine half a second to compile.
_WRITTEN = (
    r"(?:[Ss]tored|[Ww]rote|[Pp]ersisted|[Ss]aved) .{0,60}"
    r"(?:(?:check|ckpt|snap|iter_|step)\S*/\S|(?:checkpoint|ckpt).{1,300}\((?:at )?(?:update|step|iter))"
)


def _form(says: str, trigger: str, find: bytes) -> _Form:
    return _Form(says, trigger, lazy_compile(find))


# Ordered: the first one that reads the line decides.
_CHECKPOINTS = (
    _form("save_end", "successfully saved checkpoint", rb"[Ss]uccessfully saved checkpoint " + _AT + _TO),
    _form("save_end", "saved checkpoint (?:from|at) iteration", rb"[Ss]aved checkpoint " + _AT + _TO),
    _form("save_end", "saved a checkpoint at step", rb"saved a checkpoint at step {0,12}(?P<iteration>\d{1,12})"),
    _form(
        "save_end",
        "Async checkpoint save for step ",
        rb"Async checkpoint save for step (?P<iteration>\d{1,12}) \((?P<path>[^)\n]{1,400})\) finalized",
    ),
    _form(
        "save_end",
        "Finished saving (?:the )?checkpoint",
        rb"Finished saving (?:the )?checkpoint(?: \([^()\n]{1,80}\) to `\S{1,300}/(?P<iteration>\d{1,12})`|"
        + _TO
        + rb")",
    ),
    _form(
        "save_end",
        r"[Cc]heckpoint (?:of|for|at) step [0-9]+ (?:is|was|has been) ",
        rb"[Cc]heckpoint (?:of|for|at) step (?P<iteration>\d{1,12}) (?:is|was|has been) (?:committed|written|saved|stored|durable|complete)",
    ),
    _form(
        "save_end",
        r"(?:[Ss]napshot|[Cc]heckpoint|ckpt) \S{1,300} (?:is |was |has been )?(?:written|saved|stored|committed|persisted)",
        rb"(?:[Ss]napshot|[Cc]heckpoint|ckpt) "
        + _NAMED_PATH
        + rb" (?:is |was |has been )?(?:written|saved|stored|committed|persisted)(?! (?:by|if|when|every|only|after)\b)",
    ),
    _form(
        "save_end",
        _WRITTEN,
        rb"(?:[Ss]tored|[Ww]rote|[Pp]ersisted|[Ss]aved) (?:(?:the|its|model|optim\w{0,12}|extra_state|weights|shard|state|parameters) ){0,3}"
        rb"(?:to |in |at )?" + _PART_PATH,
    ),
    _form("save_end", r"Checkpoint .{1,120} is ready now!", rb"Checkpoint (?P<path>\S{1,200}) is ready now!"),
    _form("save_end", r"\[Torch\] Saved ", rb"\[Torch\] Saved " + _PATH),
    _form("save_end", "zero checkpoint saved ", rb"zero checkpoint saved " + _PATH),
    _form(
        "save_end",
        r"Saved checkpoint .*\(epoch ",
        rb"Saved checkpoint " + _PATH + rb".{0,3}\(epoch \d{1,9} @ (?P<iteration>\d{1,12}) updates",
    ),
    _form("save_end", r"Saved checkpoint (?:to|at) ", rb"[Ss]aved checkpoint(?= (?:to|at) )" + _TO),
    _form("save_end", r"[Cc]heckpoint saved (?:to|at|in) ", rb"[Cc]heckpoint saved" + _TO),
    _form("save_end", r"[Ss]aved checkpoint \S*[/.]", rb"[Ss]aved checkpoint (?P<path>[^\s:]{0,150}[/.][^\s:]{1,150})"),
    _form(
        "save_end",
        _WRITTEN,
        rb"(?:[Ww]rote|[Ss]aved|[Ss]tored) (?:\w{1,9} ){0,2}"
        + _PATH
        + rb" {1,3}\((?:at )?(?:update|(?:global )?step|iter(?:ation)?) {0,12}(?P<iteration>\d{1,12})\)",
    ),
    _form("save_end", "Random states saved in ", rb"Random states saved in " + _PATH),
    _form(
        "save_end",
        r"Saved (?:model parameters|model file|metadata|optimizer state|optimizer file) to: ",
        rb"Saved (?:model parameters|model file|metadata|optimizer state|optimizer file) to: " + _PATH,
    ),
    _form(
        "load_end",
        "successfully loaded checkpoint from ",
        rb"[Ss]uccessfully loaded checkpoint from "
        + _PATH
        + rb"(?:.{0,80}?at iteration {0,12}(?P<iteration>\d{1,12}))?",
    ),
    _form("load_end", r"successfully loaded /", rb"successfully loaded (?P<path>/\S{1,400})"),
    _form("load_end", r"\[Torch\] Loaded checkpoint from ", rb"\[Torch\] Loaded checkpoint from " + _PATH),
    _form("load_end", "Finished loading the checkpoint", rb"Finished loading the checkpoint"),
    _form(
        "load_end",
        "Restored all states from the checkpoint",
        rb"Restored all states from the checkpoint(?: file)?" + _TO,
    ),
    _form("load_end", "All states loaded successfully", rb"All states loaded successfully"),
    _form(
        "load_end",
        r"Loaded checkpoint .*\(epoch ",
        rb"Loaded checkpoint " + _PATH + rb".{0,3}\(epoch \d{1,9} @ (?P<iteration>\d{1,12}) updates",
    ),
    _form("load_end", r"resumed epoch: [0-9]+, iter: [0-9]", rb"resumed epoch: \d{1,9}, iter: (?P<iteration>\d{1,12})"),
    _form("save_begin", "saving checkpoint at iteration ", rb"saving checkpoint " + _AT + _TO),
    _form("save_begin", "Saving model checkpoint", rb"Saving model checkpoint(?: to|:) " + _PATH),
    _form(
        "save_begin",
        r"Saving the checkpoint|Saving a (?:full|model only) checkpoint",
        rb"Saving (?:the|a full|a model only) checkpoint(?:.{0,60}?[ (,]step[ =:]{0,4}(?P<iteration>\d{1,12}))?",
    ),
    _form("save_begin", "Saving current state to ", rb"Saving current state to " + _PATH),
    _form("save_begin", r"\[Torch\] Saving ", rb"\[Torch\] Saving (?P<path>\S{1,400}?)(?:\.\.\.)?(?:\s|$)"),
    _form(
        "save_begin",
        r"Checkpoint .{1,120} is about to be saved",
        rb"Checkpoint (?P<path>\S{1,200}) is about to be saved",
    ),
    _form(
        "save_begin",
        "Preparing to save checkpoint for epoch ",
        rb"Preparing to save checkpoint for epoch \d{1,9} @ (?P<iteration>\d{1,12}) updates",
    ),
    _form("save_begin", "Scheduled async checkpoint save for ", rb"Scheduled async checkpoint save for " + _PATH),
    _form(
        "save_begin",
        r"Global Checkpoint Save *: ",
        rb"Global Checkpoint Save ?: .{0,40}?Iteration ?: ?(?P<iteration>\d{1,12})",
    ),
    _form(
        "save_begin",
        r"saving model to .* as top [0-9]",
        rb"(?:global step (?P<iteration>\d{1,12}): .{0,200}?)?saving model to '(?P<path>[^'\n]{1,400})' as top \d",
    ),
    _form(
        "save_begin",
        r"[Ss]aving checkpoint at [0-9]+ (?:iterations|epochs)",
        rb"[Ss]aving checkpoint at (?:(?P<iteration>\d{1,12}) iterations|\d{1,9} epochs)",
    ),
    _form(
        "save_begin",
        r"[Ss]aving (?:a )?checkpoint (?:at|for) (?:global )?step ",
        rb"[Ss]aving (?:a )?checkpoint " + _AT + _TO,
    ),
    _form(
        "save_begin",
        r"[Ss]aving (?:a |the )?checkpoint (?:to|at|in) ['\"]?[/a-zA-Z0-9_.]",
        rb"[Ss]aving (?:a |the )?checkpoint (?:to|at|in) " + _PATH,
    ),
    _form("save_begin", r"Saving checkpoint\. This may take some time", rb"Saving checkpoint\."),
    _form(
        "save_begin",
        r"[Ss]aving (?:the )?(?:latest|last|best|final|new|current|periodic|sharded|full) (?:model )?checkpoint",
        rb"[Ss]aving (?:the )?(?:latest|last|best|final|new|current|periodic|sharded|full) (?:model )?checkpoint" + _TO,
    ),
    _form(
        "delete",
        r"[Dd]elet(?:ing|ed) (?:the )?(?:old|older|oldest|stale) (?:check|ckpt|snap)",
        rb"[Dd]elet(?:ing|ed) (?:the )?(?:old|older|oldest|stale) (?:checkpoint|ckpt|snapshot):? (?:directory |folder )?\[?"
        rb"(?P<path>[^\s\],]{1,400})",
    ),
    _form(
        "load_begin",
        r"loading (?:distributed |release )?checkpoint from ",
        rb"[Ll]oading (?:distributed |release )?checkpoint from (?P<path>\S{1,400}?)(?:\.\.\.)?(?=\s|$)(?: at iteration {0,12}(?P<iteration>\d{1,12}))?",
    ),
    _form(
        "load_begin",
        r"Loading (?:the )?checkpoint (?:from|at step) ",
        rb"Loading (?:the )?checkpoint (?:at step (?P<iteration>\d{1,12})|from (?P<path>\S{1,400}?)(?=[.,]{0,3}(?:\s|$)))",
    ),
    _form("load_begin", r"is loading checkpoint /", rb"is loading checkpoint (?P<path>/\S{1,400}?\.pt)"),
    _form(
        "load_begin", "Restoring states from the checkpoint", rb"Restoring states from the checkpoint(?: path)?" + _TO
    ),
    _form("load_begin", "Attempting to resume from ", rb"Attempting to resume from " + _PATH),
    _form(
        "load_begin",
        r"[Rr]esum(?:ing|e) (?:training )?from (?:the )?checkpoint",
        rb"[Rr]esum(?:ing|e) (?:training )?from (?:the )?checkpoint:? " + _PATH,
    ),
    _form("load_begin", r"Resuming training from ", rb"Resuming training from " + _PATH),
    _form("load_begin", "Loading states from ", rb"Loading states from " + _PATH),
    _form(
        "load_begin",
        r"Loading model from .*checkpoint-[0-9]",
        rb"Loading model from (?P<path>\S{1,400}checkpoint-\d{1,12})",
    ),
    _form(
        "load_begin",
        r"[Ll]oad(?:s)? (?:from )?checkpoint (?:from local path|folder): ",
        rb"[Ll]oads? (?:from )?checkpoint (?:from local path|folder): " + _PATH,
    ),
)
# "checkpoint-500", "global_step500", "iter_0000500", "step=500": a path may name the iteration.
_PATH_ITERATION = lazy_compile(
    r"(?:checkpoint-|global_step_?|iter_|step[=_-]|meta_|model_|snap(?:shot)?[_-])0*(\d{1,12})(?!_(?:of|world)_)"
)

# What may follow "training finished": nothing, a step, a time, or the outcome.
_DONE = (
    rb"(?: successfully)?(?:[.! ]{0,3}$| (?:at|after|in) (?:step |epoch |iteration )?\d[\w.:,]{0,20}(?: \w{1,12})?[.!]?$"
    rb"|[.,;:!] {1,3}(?i:sav|model|pipeline|final|best|test|total|time|elapsed|took)\w{0,12}[ :=])"
)
_ENDS = (
    _form("signal", "exiting program after receiving", rb"exiting program after receiving"),
    _form("duration_limit", "exiting program after [0-9.]+ minutes", rb"exiting program after [\d.]{1,12} minutes"),
    _form("duration_limit", r"Time limit reached\. Elapsed time is ", rb"Time limit reached\. Elapsed time is "),
    _form("duration_limit", r"`Trainer\.fit` stopped: `max_time", rb"`Trainer\.fit` stopped: `max_time"),
    _form("exit_interval", "exiting program at iteration ", rb"exiting program at iteration {0,12}(?P<iteration>\d{1,12})"),
    _form("completed", r"`?Trainer\.fit`? stopped: `?max_steps=", rb"Trainer\.fit`? stopped: `?max_steps=(?P<iteration>\d{1,12})`? reached"),
    _form("completed", r"`?Trainer\.fit`? stopped: `?max_epochs=", rb"Trainer\.fit`? stopped: `?max_epochs=\d{1,9}`? reached"),
    _form("completed", r"'train_runtime': ", rb"^.{0,200}\{(?:'\w{1,40}': [^{}]{1,300})?'train_runtime': "),
    _form("completed", "Training completed", rb"Training completed(?:\.|!| after \d| in |\s*$)"),
    _form("completed", r"\[after training is done\]", rb"\[after training is done\]"),
    _form(
        "completed",
        r"[Tt]raining (?:is |has |run |loop )?(?:complete|done|finished)|[Ff]inished training|Finished Training|Training Finished",
        rb"(?:^|[\s\]\-:>*])(?:(?:[Pp]re-?|[Ff]ine-?)?(?:[Tt]raining|tuning) (?:is |has |run |loop )?(?:completed?|done|[Ff]inished)|[Ff]inished [Tt]raining)" + _DONE,
    ),
    _form("completed", r'"key": "run_stop"', rb'"key": "run_stop".{1,300}"status": "success"'),
    _form("completed", r"\*\*\*\*\* train metrics \*\*\*\*\*", rb"\*\*\*\*\* train metrics \*\*\*\*\*"),
    _form("completed", "End time of running main: ", rb"\[INFO:swift\] End time of running main: \d"),
    _form("completed", r"llmfoundry\..*: Done\.", rb"llmfoundry\.[\w.]{0,40}train: Done\.\s*$"),
    _form("completed", "after_train in EvaluateChatHook", rb"after_train in EvaluateChatHook\."),
    _form("completed", r"\.\.Training Over!", rb"\.\.Training Over!\.\."),
    _form("completed", "Final validation metrics: ", rb"Final validation metrics: [{']"),
    _form("completed", "Training abgeschlossen", rb"Training (?:erfolgreich )?abgeschlossen[.! ]{0,3}$"),
    _form("completed", "done training in [0-9]", rb"done training in [\d.]{1,20} seconds"),
    _form("completed", r"Total training time: [0-9.]+m", rb"Total training time: [\d.]{1,20}m\s*$"),
    _form("completed", r"Training time [0-9]+:[0-9]", rb"Training time (?:\d{1,6} days?, )?\d{1,6}:\d\d:\d\d\s*$"),
    _form("completed", "worker group successfully finished", rb"worker group successfully finished"),
    _form("completed", "Local worker group finished .WorkerState.SUCCEEDED", rb"worker group finished \(WorkerState\.SUCCEEDED\)"),
    _form("completed", r"Process [0-9]+ exits successfully", rb"Process \d{1,9} exits successfully"),
    _form(
        "completed",
        r"(?:run|training|experiment|simulation) (?:finished|completed) (?:after |all )?[0-9]+ (?:round|epoch|step|iteration)",
        rb"(?i)\b(?:run|training|experiment|simulation) (?:finished|completed) (?:after |all )?\d{1,9} (?:round|epoch|step|iteration)(?:s|\(s\))?"
        rb"(?: in \d[\d.:]{0,20} ?(?:[hms]\b|sec|min|hour)|[.! ]{0,3}$)",
    ),
    _form("completed", r"epochs completed in [0-9.]+ hours", rb"\d epochs completed in [\d.]{1,12} hours"),
    _form("completed", r"Task done, results saved in ", rb"Task done, results saved in "),
    _form("completed", r"\[\*\] All done: ", rb"\[\*\] All done: "),
    _form("completed", r"\*\*\* Best metric: ", rb"\*\*\* Best metric: [\d.]{1,20} \(epoch \d"),
    _form("completed", r"JobState=COMPLETED", rb"JobState=COMPLETED\b"),
    _form("completed", r"Ended, Run time .*, COMPLETED", rb"Ended, Run time \S{1,20}, COMPLETED\b"),
    _form("completed", r"[Jj]ob .{1,80} (?:succeeded|completed successfully)", rb"\b[Jj]ob '?[\w.-]{1,80}'? (?:has )?(?:succeeded|completed successfully)\b"),
    _form("completed", r"[Ss]lurm:? .*[Jj]ob .*completed", rb"(?i)slurm:? .{0,40}job (?:\d{1,12} )?completed\b"),
)  # fmt: skip
# A line of source code, configuration or a shell trace is not an event.
_CODE = lazy_compile(
    rb"(?:print\w{0,20}|log\w{0,10}(?:\.\w{1,20})?|echo|info|warning|raise \w{1,40}) ?\(|^\s*\+ |\bf['\"]|\{\w{1,40}\}|\becho "
)


def _first(forms: tuple[_Form, ...], line: bytes) -> tuple[str, re.Match[bytes]] | None:
    if _CODE.search(line):
        return None
    for form in forms:
        match = form.find.search(line)
        if match is not None:
            return form.says, match
    return None


def _captured(match: re.Match[bytes]) -> dict[str, Scalar]:
    groups = match.groupdict()
    path = text(groups.get("path"))
    iteration = int(groups["iteration"]) if groups.get("iteration") else None
    if iteration is None and (named := _PATH_ITERATION.findall(path)):
        iteration = int(named[-1])
    found: dict[str, Scalar] = {"iteration": iteration, "path": path}
    if part := groups.get("part"):
        found["part"] = int(part)
    return found


def _read_checkpoint(window: bytes, at: int) -> tuple[Structure, ...]:
    found = _first(_CHECKPOINTS, plain(line_at(window, at)[0]))
    if found is None:
        return ()
    event, match = found
    return (on_line("checkpoint", window, at, {"event": event, **_captured(match)}),)


# Lines right above that show that "finished" comes from a wrapper that got an error, not from the run.
_GAVE_UP = lazy_compile(
    rb"(?im)^.{0,80}(?:training (?:crashed|failed|aborted)\b|ChildFailedError|srun: error: .{1,200}: (?:task|Exited|Killed|Segm|Abort)"
    rb"|exits with return code = -?[1-9]|(?:Segmentation fault|Aborted|Killed|Bus error) {1,8}\(core dumped\)"
    # somebody stopped it, and the program goes the same way out as after its last step
    rb"|(?:^|[\s\]>:])(?:training|run|experiment|optimi[sz]ation|loop|program|process) (?:was |has been |is )?(?:interrupted|cancell?ed|stopped by (?:the )?user)\b"
    rb"|\bkeyboard ?interrupt\b(?:[\W]{0,4}$|.{0,40}\b(?:sav|stop|exit|quit|leav)))"
)
LINES_ABOVE = 24


def gave_up(above: bytes) -> bool:
    """Whether the lines above an end say that the run failed or was interrupted."""
    return any(
        not quoted(line_at(above, line_start(above, failure.start()))[0]) for failure in _GAVE_UP.finditer(above)
    )


def _read_end(window: bytes, at: int) -> tuple[Structure, ...]:
    found = _first(_ENDS, plain(line_at(window, at)[0]))
    if found is None:
        return ()
    how, match = found
    if how == "completed" and gave_up(b"\n".join(window[:at].split(b"\n")[-LINES_ABOVE:])):
        how = "given_up"
    return (on_line("run_end", window, at, {"how": how, "iteration": _captured(match)["iteration"]}),)


def _trigger(forms: tuple[_Form, ...]) -> str:
    return "|".join(dict.fromkeys(form.trigger for form in forms))


READERS: tuple[Reader, ...] = (
    Reader(name="checkpoint", trigger=_trigger(_CHECKPOINTS), read=_read_checkpoint, ignore_case=True),
    Reader(name="run_end", trigger=_trigger(_ENDS), read=_read_end, before=4096, ignore_case=True, keep=32),
)
