"""Lines at the end of a log that show how a program ended: normally, as planned, or not.

Only the last lines are searched, which the summary keeps, so this costs nothing while a log is scanned. Ends anywhere
in a log are structures (`run_end`, kb.parsers.logs.checkpoints).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from kb.model import Structure
from kb.parsers.logs.checkpoints import LINES_ABOVE, gave_up
from kb.parsers.logs.recoveries import quoted
from kb.regex.lazy import lazy_compile
from kb.values import dataclass

LAST = 40  # lines at the end of a log that are searched
_CUT = 600  # characters of a line that are searched

_COMPLETED = lazy_compile(
    r"(?i)"
    # messages of completed programs: trainers, launchers, job wrappers, trackers
    r"\b(?:pre-?|fine-?)?(?:train(?:ing|er)?|tuning|run|experiment|trial|pipeline|epochs|steps|rollouts?)"
    r"(?: \S{1,40})? (?:is |are |has |have |was |were )?(?:now )?(?:all )?(?:successfully )?(?:complete[d]?|finished|done|ended|succeeded)"
    r"(?: successfully| normally| cleanly| at step \d+)?(?=[\s.!,;:)\"'}@]|$)"
    r"|\b(?:finished|completed|done) (?:with )?(?:all )?(?:the )?(?:pre-?|fine-?)?(?:training|tuning|experiment|run|job|epochs|steps)\b"
    r"|\bend of (?:the )?(?:training|experiment|run)[.:,;!]{1,2} {0,2}(?:total |overall )?time (?:consumed|elapsed|taken|used|spent)\b"
    r"|\btraining of (?!.{0,80}\b(?:epoch|fold|stage|phase|round|task|model|step|batch) ?#?\d)(?:[^\s:;,.]{1,40} ){1,10}(?:is |has |was )?(?:now )?(?:complete[d]?|finished|done)(?=[.!\s]{0,3}$|[.!] )"
    r"|(?:^|\s)\[(?:pre-?)?train(?:ing|er)?\] (?:is )?(?:complete[d]?|finished|done)\b[.!]"
    # a function or script that trains
    r"|(?:^|[\s\]:>-])(?:run|train|pretrain|finetune|fit)_(?!\w{0,20}(?:epoch|step|batch|iter|eval|valid|test|one|loop))\w{1,20} (?:is |has )?(?:done|finished|completed)\W{0,4}$"
    r"|^\W{0,8}(?:the )?end (?:of )?(?:the )?(?:training|experiment|run)\W{0,8}$|\btraining (?:is|was) over\b|\bfinish (?:the )?training\W{0,8}$"
    r"|\*{6} ?end (?:of )?(?:the )?(?:training|evaluation|testing)\b|\bfinal eval(?:uation)? (?:is |has |was )?(?:finished|done|completed?)\b"
    # the last batch of a test run: the test follows the training, or is all that the program does
    r"|\bEpoch\(test\) ?\[(?P<batch>\d{1,9})/(?P=batch)\]"
    r"|\b(?:saved?|wrote|written) (?:\S{1,40} ){0,4}(?:to|in|as|at) \S{0,200}?\b(?:model[_-]final|final[_-](?:model|checkpoint|weights))\b"
    r"|\bsave[ds]? (?:the )?(?:model|checkpoint|weights) (?:to|in|at):? \S{0,200}/final[/.\s]{0,3}$"
    # a file of the whole run by its name, and the table of figures that is printed when a whole phase is over
    r"|\bsaved?(?: to| in| as| at)?:? \S{0,200}?[-_./]final\.(?:pth?(?:\.tar)?|ckpt|bin|safetensors|h5|keras|pkl|npz|pdparams|onnx)\b"
    r"|^\s{0,4}(?:train|eval|test|predict)_runtime  *= *\d"
    # a wrapper may write "job finished" after a failure, too: there only success counts
    r"|\b(?:job|script|task|program|workflow|process)\b.{0,60}\b(?:succeeded|(?:completed|finished|ended|exited) (?:successfully|normally|cleanly))"
    r"|\bcompleted successfully\b|\bsuccessfully (?:completed|finished)\b|\bexit(?:ed|ing)? (?:normally|cleanly|successfully)\b"
    r"|\bexit(?:ed|s)?(?: with)?(?:[ _](?:code|status))[\"']?(?: of)?[ =:]{1,3}0(?:\b(?!\.)|:0\b)|\breturn(?:ed)?[ _]code[ =:]{1,3}0\b"
    r"|[\"'](?:status|state|result|outcome)[\"'] ?: ?[\"'](?:success|succeeded|completed?|finished|ok)[\"']"
    r"|\bstat(?:us|e)[ =:]{1,3}(?:succeeded|completed|success|finished)\b|worker group successfully finished|WorkerState\.SUCCEEDED"
    r"|Reporting training SUCCESS|finished with no errors|all (?:\w+ ){0,2}(?:epochs|steps|iterations|updates|batches|rounds|workers|ranks|processes|actors|learners|trials)"
    r" (?:are |have |were )?(?:finished|completed?|done|returned)\b|\b(?:ended|exited|finished|completed),? (?:with )?(?:exit )?(?:code|status) 0\b"
    r"|\ball (?:\d{1,7} )?(?:\w{1,30} )?(?:returned|exited|ended)(?: with)?(?: code| status)? 0\b"
    r"|\bfinal (?:checkpoint|model|weights|state)s? (?:is |are |was |were |has been |have been )?(?:saved|stored|written|committed|durable|complete)\b"
    r"|\bsaved (?:the )?trained model\b|^\W{0,4}done solving\W{0,4}$|\bOptimization Done\.$"
    r"|\bdone[.!] (?:the )?(?:final )?(?:model|weights|checkpoints?|results?|output) (?:is|are|was|were|saved|written)\b"
    r"|\btraining time: [\d.]{1,20} ?(?:s(?:ec(?:onds?)?)?|m(?:in(?:ute)?s?)?|h(?:ours?|rs?)?)\.?\s*$"
    # the time that all of it took, which a program knows only at its end
    r"|\b(?:total|overall|whole) (?:pre-?|fine-?)?(?:train(?:ing)?|tuning) time(?: taken| elapsed| used)?(?: is| was)?[ :=]{1,3}\d"
    r"|\btraining time ?[:=] ?(?:\d{1,4} ?days?,? )?\d{1,6}:\d\d:\d\d\b|\btime ell?apsed in training\b"
    r"|\boptimi[sz]ation (?:is )?(?:complete|finished|done)\b|\bcode\b.{0,80} ran for \d"
    r"|\b(?:pre-?|fine-?)?(?:trai|tu)ning took \d{1,9}(?:\.\d{1,9})?(?: ?[hms]| ?(?:sec|min|hour)\w{0,4})?\b"
    r"|\btime (?:taken|used|spent|needed) (?:for|by|in) (?:the )?training ?[:=] ?\d"
    # the last of N, and it ended
    r"|\b(?:end of|finished|completed|done with) (?:epoch|iteration|step|round) (?P<last>\d{1,9}) ?(?:/|of) ?(?P=last)\b"
    # the records of MLPerf, a validation that is named the last one, and what an editor reports of a program without error
    r"|[\"']key[\"']: ?[\"']run_stop[\"'].{0,160}[\"'](?:value|status)[\"']: ?[\"']succ|\bfinal validation metrics\b"
    r"|^\[finished in [\d.]{1,12} ?s\]\s*$"
    r"|Number of trials: \d+/\d+ \(\d+ TERMINATED\)|\bTrial status: \d+ TERMINATED\s*$|W&B process to finish\.{3} ?\(success\)|^wandb: (?:Run summary:|Synced \d|.{0,4}View run .{1,200} at:)"
    r"|\bLoss for final step: |\b[Oo]verall training speed: |\bSaved final model\b|\bFinished (?:training|experiment|fitting)\b"
    r"|# Avg bus bandwidth +: [\d.]+|# Collective test concluded"
    r"|(?:训练|微调)(?:任务|过程|流程)?(?:已经|已|全部|圆满|顺利|成功|正常){0,2}(?:完成|结束|完毕)|学習(?:が)?(?:完了|終了)|훈련(?:이)? 완료|Обучение (?:завершено|окончено)|Entra[iî]nement termin|Entrenamiento (?:finalizado|completado|terminado)"
    r"|Training (?:erfolgreich )?(?:abgeschlossen|beendet)"
)
_EARLY = lazy_compile(
    r"(?i)\bearly[ -]?stopp?(?:ing|ed)?\b.{0,80}\b(?:stop|trigger|reached|restor|improv|exit)|: early stopping\b|\bearly stop and exit\b|\bearly stop!|\bearly[ -]?stopping at (?:epoch|step|iter\w*)\b"
    r"|\bearly[ -]?stop count (\d{1,6})/\1\b"
    r"|signaling trainer to stop|\bstopp(?:ed|ing) early\b|\bstopping_early: (?!true|false|none|null|\d)\w"
    r"|\b(?:reached|hit) (?:the )?(?:configured |specified |given )?(?:max(?:imum)?[ _]?(?:number of )?|final |last |total )(?:training |train )?[ _]?"
    r"(?:steps?|iterations?|iters?|epochs?|tokens|samples|updates)\b"
    r"|\bmax(?:imum)?[ _](?:number of )?(?:steps?|iterations?|iters?|epochs?|tokens|updates)\b.{0,20}\breached\b"
)
_SETTING = lazy_compile(
    r"(?i)\b(?:patience|enabled?|disabled?|callback|config(?:uration)?|if|when|until|unless|would|will|won't|not finite|nan|inf|diverged)\b|early_stopping ?[=:]"
)
_PLANNED = lazy_compile(
    r"(?i)\b(?:reached|hit) (?:the )?(?:configured |specified |given )?max(?:imum)?[ _]?(?:training |train |run |wall )?[ _]?(?:run|time|duration|hours)"
    r"|stopping (?:as (?:configured|planned)|training due to)|cumulative_training_time|exiting program at iteration|\[exiting program after [\d.]+ minutes"
)
_ASKED_TO_STOP = lazy_compile(
    r"(?i)\b(?:asked|told|requested) to (?:stop|leave|exit|terminate)\b|\b(?:stop|shutdown|termination) (?:was |is )?requested\b"
)
_PLATFORM_ASKED = lazy_compile(
    r"(?i)\b(?:trial|job|task|pod|container|allocation|workload|experiment)\b.{0,80}\b(?:was|is|has been) (?:requested|asked|told) to "
    r"(?:stop|terminate|exit|leave)\b"
)
_LEAVES = lazy_compile(r"(?i)\b(?:safe|saved|written|leaving|exiting|stopping)\b")
COLOUR = lazy_compile(r"\x1b\[[\d;]{0,12}m")
_ONE_PROCESS = lazy_compile(r"\bProcess \d{1,9} exits successfully")
_FORWARDED = lazy_compile(r"(?:\x1b\[[\d;]{0,8}m)?\((?:[^()\n]{1,80} )?pid=\d{1,9}\b")
# A sentence about the future, a condition, a part, another job or a failure is not an end.
_NO_END = lazy_compile(
    r"(?i)\b(?:if|when|until|once|unless|estimat\w{1,4}|expected|remaining|before|after it|will|would|can|should|not|never|n't|cannot|wait(?:ing)? for (?!W&B)|failed|failure|error|exception|abort(?:ed)?"
    r"|unsuccessful|incomplete|partial(?:ly)?|patience|enabled?|disabled?|callback|config(?:uration)?[:=]|with (?:\d+ )?errors"
    r"|killed|signal|crash(?:ed)?|timed? ?out|early_stopping ?[=:]|(?:exit|return)(?:ed)?.{0,12}(?:code|status)[ =:]{1,3}-?[1-9])\b(?!s? ?[:=] ?0\b)"
)
_FATAL = lazy_compile(
    r"\bFATAL\b|\bFatal\b|\bfatal(?: error)?:|\bpanic:|\bthread '[^']{1,200}' (?:\(\d{1,19}\) )?panicked at |\(core dumped\)|\bSegmentation fault\b|\bBus error\b|\bIllegal instruction\b|\bterminate called\b"
    r"|\bterminating (?:with|due to) |\b[Cc]heck fail(?:ed|ure)\b|\bAssertion .{1,200} failed\b|\*\*\* Aborted at \d|\*\*\* SIG[A-Z]{3,4}\b"
    r"|\*\*\* stack smashing|\bdouble free\b|\bfree\(\): invalid|\bmalloc\(\): |\bmunmap_chunk\(\)|\binvalid pointer\b|\bCHECK(?:_[A-Z]{2})? ?\("
    r"|^\s*(?:Aborted|Killed|Terminated)\s*$|\bOut of memory: Killed\b|\bsymbol lookup error\b|\berror while loading shared libraries\b"
    r"|[\"'](?:level|severity|levelname)[\"'] ?: ?[\"'](?:fatal|critical|panic|emerg\w*|FATAL|CRITICAL)[\"']"
    r"|\bexit(?:ed|s|ing)?(?: with)?(?:[ _](?:code|status|value))[\"']?(?: of)?[ =:]{1,3}-?[1-9]\d{0,2}\b|\breturn(?:ed)?[ _]code[ =:]{1,3}-?[1-9]"
    r"|W&B process to finish\.{3} ?\(failed"
)
_SAVE_LOST = lazy_compile(
    r"(?i)\b(?:fail(?:ed|ure|s)?|error(?![-\w/.])|unable|could not|cannot|can't|couldn't)\b.{0,80}\b(?:sav(?:e|ing)|writ(?:e|ing)|checkpoint|upload|commit|flush|export)"
    r"|\b(?:sav(?:e|ing)|writ(?:e|ing)|checkpoint|upload|export)\w*\b.{0,60}\b(?:fail(?:ed|ure)|error(?![-\w/.])|aborted|no space|denied"
    # a limit of time that is named is not reached yet
    r"|timed out|time-?out(?! ?(?:in|of|is|=|:) ?\d))"
)
_NOT_SAVED = lazy_compile(
    r"(?i)\b(?:did not|didn't|does not|will not|won't|was not|were not|not) (?:be )?sav(?:e|ed|ing) (?:the )?(?:final |last |full )?(?:model|weights|checkpoint)\b"
    r"|\b(?:model|weights|checkpoint)s? (?:was|were|is|are|has been|have been) not (?:been )?saved\b"
)
_AGAIN = lazy_compile(r"(?i)\bretr(?:y|ies|ying)\b|\bretry_|\battempt\b")
_WRITES = lazy_compile(r"(?i)sav|writ|checkpoint|upload|commit|flush|export")
_MADE = lazy_compile(r"(?i)\b(?:done|ok|succe\w+|completed?|finished|written|saved|uploaded|committed|exported)\b")
_CLOSING = lazy_compile(
    r"(?i)\b(?:saved|saving (?:took|done|finished)|wrote|written|exported|uploaded|pushed|synced|finali[sz]ed)\b"
    r"|\bsave[ds]? (?:the )?(?:best |final |last )?(?:model|checkpoint|weights) (?:to|at|in)\b"
    r"|\b(?:destroy(?:ed|ing)|clean(?:ed|ing)? ?up|shut(?:ting)? ?down|closed|closing|tear(?:ing)? ?down|exiting|finished|completed?|done)\b"
    r"|\b(?:final|total|best|elapsed|average|test)\b.{0,40}[:=] ?[\d.]|\btook [\d.]"
)
_FRAME = lazy_compile(
    r"^\s*(?:#\d{1,3}\s|@\s+0x|\[?<?0x[0-9a-f]{6,}|frame #\d|\*\*\* (?:Check failure|End|PC)|/\S+\(\S*\+0x[0-9a-f]+\)|\S+\.so[.\d]*\(|at \S+:\d+|[0-9a-f]{8,16}-[0-9a-f]{8,16} )"
    r"|\[0x[0-9a-f]{6,}\]\s*$|^note: (?:run with `RUST_BACKTRACE|[Ss]ome details are omitted)|^stack backtrace:$|^\s*(?:File \"|\*+\s*$|[-=]{8,}\s*$)"
)

# programs that run beside a training, whose end leaves its result alone; and the training's own, in the same line
_HELPER = lazy_compile(
    r"(?i)\b(?:tensor-?board|visdom|mlflow|wandb(?:-\w{1,12})?|aim|comet|clearml|jupyter\w*|grafana|prometheus|(?:\w{1,20}[-_ ])?exporter|dcgm\w*|dcgmi"
    r"|side-?cars?|(?:\w{1,12}[-_ ])?monitor|nvidia-smi|nvtop|htop|(?:ray )?dashboard|profiler|telemetry|(?:metrics?|logs?|stats?)[-_ ](?:agent|collector|shipper|server|writer)"
    r"|fluent-?(?:bit|d)|promtail|filebeat|rsync|rclone|uploader|tail -f|watch -n|(?:data|cache|eval(?:uation)?|reward|file)[-_ ]?(?:server|service)|prefetcher|port-forward|cloudflared|ngrok)(?![\w])"
)
# the step daemon of Slurm about its own control groups, at the end of a step
_STEP_DAEMON = lazy_compile(r"^slurmstepd: error: .{0,200}\bcgroup")
_TRACKERS = lazy_compile(
    r"(?i)\b(?:wandb|w&b|weights & biases|tensorboard\w{0,12}|mlflow|comet_ml|comet (?:error|warning)|aim\.\w{1,12}|clearml|neptune|visdom|swanlab|trackio)\b"
)
_SPEAKER = lazy_compile(r"^\W{0,4}\[[\w .:/-]{1,40}\] ?:?")  # who reports it
_TRAINING = lazy_compile(
    r"(?i)(?<!cons)(?<!res)train|tune|\brank\b|\btorchrun\b|\btorch\.distributed|\baccelerate launch|\bdeepspeed\b|\bsrun\b|\bmpirun\b|\bmain\.py\b|\bjob\b"
)
_REPLACED = lazy_compile(r"(?i)\b(?:restarted|respawned|relaunched|replaced|started again)\b(?! from\b)")
_NOT_REPLACED = lazy_compile(r"(?i)\b(?:not|never|cannot|can't|fail\w*|giv\w+ up|unable|too often)\b")

# Every line that matches the expressions above has one of these words; this test is much faster. `ends` are those of
# _COMPLETED, _EARLY and _PLANNED together.
_END_WORDS = (
    *(
        "complet",
        "finish",
        "done",
        "ended",
        "end ",
        "succe",
        "ok",
        "exit",
        "return",
        "wandb: ",
        "loss for final step",
        "training speed",
        " ran for ",
        "apsed in training",
        "ning took",
        " time",
        "time ",
        "epoch(test)",
        "final",
        " over",
        "trial status",
        "run_stop",
    ),
    *(
        "saved final model",
        "trained model",
        "avg bus bandwidth",
        "collective test concluded",
        "trials: ",
        "early",
        "reached",
        "hit",
        "stopping",
        "signaling",
    ),
    *("max", "cumulative_training_time", "训练", "微调", "学習", "훈련", "обучение", "nement termin", "entrenamiento"),
    *("abgeschlossen", "beendet"),
)
_FATAL_WORDS = (
    *(
        "fatal",
        "panic",
        "core dumped",
        "segmentation fault",
        "bus error",
        "illegal instruction",
        "terminat",
        "check",
        "assertion",
    ),
    *(
        "***",
        "double free",
        "free()",
        "malloc()",
        "munmap_chunk()",
        "invalid pointer",
        "aborted",
        "killed",
        "symbol lookup",
    ),
    *("loading shared", "critical", "emerg", "exit", "return", "process to finish"),
)
_GLOG_FATAL = lazy_compile(r"(?:\[?rank ?\d+\]?:? ?)?F\d{4} \d\d:\d\d:\d\d")

End = Literal["completed", "planned"]


@dataclass(frozen=True, slots=True)
class EndLine:
    """A line at the end of a log that reports the program's end: the kind of end, its byte offset, its text."""

    how: End
    offset: int
    line: str


def end_lines(lines: list[tuple[int, str]]) -> Iterator[EndLine]:
    """Yield the lines that report a normal or planned end, the last first. `lines`: offset and text, in order."""
    last = lines[-LAST:]
    for place, (offset, line) in reversed(list(enumerate(last))):
        text = COLOUR.sub("", line[:_CUT])
        if not has_word(text, _END_WORDS) or quoted(text.encode()):
            continue
        settled = _NO_END.search(text) is None
        if (settled and _COMPLETED.search(text)) or (_EARLY.search(text) and not _SETTING.search(text)):
            if not gave_up("\n".join(item[:_CUT] for _, item in last[max(0, place - LINES_ABOVE) : place]).encode()):
                yield EndLine("completed", offset, line)
        elif settled and _PLANNED.search(text):
            yield EndLine("planned", offset, line)


def stops_as_planned(line: str) -> bool:
    """Whether a line reports that the training stops early or at a limit, as its settings ask."""
    text = line[:_CUT]
    if not has_word(text, _END_WORDS) or quoted(text.encode()):
        return False
    early = _EARLY.search(text) is not None and _SETTING.search(text) is None
    return early or (_PLANNED.search(text) is not None and _NO_END.search(text) is None)


def stops_as_asked(line: str) -> bool:
    """Whether a line reports that the program was asked to stop, and saved its state or leaves."""
    text = line[:_CUT]
    return _ASKED_TO_STOP.search(text) is not None and _LEAVES.search(text) is not None and not is_fatal(text)


def asked_by_platform(line: str) -> bool:
    """Whether a platform reports that it asked a job to end; a program that saves and leaves then ends with success."""
    return _PLATFORM_ASKED.search(line[:_CUT]) is not None


def is_of_tracker(line: str) -> bool:
    """Whether a tracker reports that it is done, as it does after a failure, too."""
    return COLOUR.sub("", line[:_CUT]).startswith("wandb: ") and "success" not in line


def of_one_process(line: str) -> bool:
    """Whether an end is that of one process of several, as a launcher reports it."""
    return _ONE_PROCESS.search(line[-_CUT:]) is not None


def is_forwarded(line: str) -> bool:
    """Whether a driver forwarded the line from one of its workers, as Ray does. Such a line may arrive late."""
    return _FORWARDED.match(line) is not None


_ON_FIGURES = lazy_compile(
    r"(?i)\b(?:training|run|loop|experiment)\b.{0,40}\b(?:stopp?(?:ed|ing)|abort(?:ed|ing)|terminat(?:ed|ing)|halt(?:ed|ing))\b.{0,20}"
    r"\b(?:because|since|as|due to)\b.{0,80}(?:\btoo (?:high|large)\b|\bdiverg|\bexplod|\b(?:not |non-?)finite\b|\bnan\b)"
)


def stopped_on_figures(line: str) -> bool:
    """Whether a program says that it stopped its training because of what it computed."""
    return _ON_FIGURES.search(line[:_CUT]) is not None


def is_fatal(line: str) -> bool:
    """Whether a line reports that an error ended the program."""
    text = line[:_CUT]
    return (has_word(text, _FATAL_WORDS) and _FATAL.search(text) is not None) or _GLOG_FATAL.match(text) is not None


def has_word(text: str, words: Iterable[str]) -> bool:
    """Whether a text has one of the words without which an expression matches nothing: most logs need none of them."""
    low = text.lower()
    return any(map(low.__contains__, words))


def of_helper(line: str) -> bool:
    """Whether what a line reports concerns a process beside the training: one of a helper's name, or one that was replaced.

    In a run that provably completed, the end of such a process is no failure; elsewhere it proves nothing.
    """
    text = line[:_CUT]
    if _STEP_DAEMON.match(text):
        return True
    own = text[speaker.end() :] if (speaker := _SPEAKER.match(text)) else text
    if _TRAINING.search(own):
        return False
    return _HELPER.search(own) is not None or (_REPLACED.search(own) is not None and not _NOT_REPLACED.search(own))


def from_tracker(line: str) -> bool:
    """Whether a plot or tracking client wrote a line, or another program wrote it about one: such errors end no step."""
    return _TRACKERS.search(line[:_CUT]) is not None and not is_fatal(line)


def save_lost(line: str) -> bool:
    """Whether a line reports a failed write."""
    return _SAVE_LOST.search(line[:_CUT]) is not None


def not_saved(line: str) -> bool:
    """Whether a line says that the model, its weights or a checkpoint were not saved, whatever the reason."""
    return _NOT_SAVED.search(line[:_CUT]) is not None and not quoted(line[:_CUT].encode())


def save_repeated(line: str, later: Iterable[str]) -> bool:
    """Whether a line says that a failed write is tried again, and a later line that this write is done."""
    found = _SAVE_LOST.search(line[:_CUT])
    if found is None or _AGAIN.search(line[:_CUT]) is None:
        return False
    what = [word.lower() for word in _WRITES.findall(line[:_CUT])]
    return any(_MADE.search(text[:_CUT]) and any(word in text.lower() for word in what) for text in later)


def closes(line: str) -> bool:
    """Whether a line reports an activity after the last step: saving, evaluating or cleaning up."""
    return _CLOSING.search(line[:_CUT]) is not None


def is_frame(line: str) -> bool:
    """Whether a line is part of a native stack trace, which follows the message that matters."""
    return _FRAME.search(line[:_CUT]) is not None


def is_stopped_helper(item: Structure) -> bool:
    """Whether a shell names the process that got SIGTERM, or a helper that was killed: one of several that it started."""
    signal = item.fields.get("signal")
    return item.resource.pid is not None and (signal == "SIGTERM" or (signal == "SIGKILL" and of_helper(item.line)))
