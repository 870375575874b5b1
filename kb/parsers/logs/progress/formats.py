"""Every format of iteration line, in order.

`FORMATS` is ordered: if several formats read the same line, the first one counts and the others are dropped. A format
is found by a literal head and read from its whole line (up to a limit), because most programs print the same few
quantities under a few names each; only the position of the step differs.
"""

from __future__ import annotations

from kb.model import OWN, ProgressPoint
from kb.parsers.logs.progress.bars import read_keras
from kb.parsers.logs.progress.form_families import (
    BYTE_COUNT,
    bar_form,
    counter_form,
    fraction_form,
    json_form,
    memory_form,
    own_step_form,
    resident_form,
    resized_form,
    resizing_form,
    scale_form,
)
from kb.parsers.logs.progress.line_format import REST_OF_LINE, ProgressFormat, make_format
from kb.parsers.logs.progress.line_readers import (
    make_reader,
    read_bracketed,
    read_counted,
    read_dict,
    read_engine,
    read_espnet,
    read_grouped,
    read_json_loss,
    read_memory,
    read_mlperf,
    read_stated,
    read_timer,
    read_validation,
)
from kb.parsers.logs.progress.quantities import NUMBER
from kb.parsers.logs.progress.side_lines import read_below, read_beside, read_own, read_used


def read_line(line: bytes) -> ProgressPoint | None:
    """Read one line with the first format that matches; offsets count from the line's start."""
    for form in FORMATS:
        for match in form.find.finditer(line) if form.head in line else ():
            point = form.read(match)
            if point is not None:
                return point
    return None


TABLE_EDGE = "│".encode()
STEP = rb"[ ]{0,12}(?P<step>\d{1,12})"
OF_TOTAL = rb"[ ]{0,12}/[ ]{0,12}(?P<total>\d{1,12})"
FORMATS: tuple[ProgressFormat, ...] = (
    make_format(
        "nemo",
        r"Training epoch [0-9]+, iteration ",
        b"Training epoch ",
        rb"(?P<epoch>\d{1,9}), iteration" + STEP + OF_TOTAL + REST_OF_LINE,
        make_reader("nemo"),
    ),
    make_format(
        "megatron",
        r"iteration +[0-9]+/ *[0-9]+ \|",
        b"iteration ",
        STEP + OF_TOTAL + rb" \|" + REST_OF_LINE,
        make_reader("megatron", whole=False),
    ),
    make_format(
        "nanotron",
        r"iteration: [0-9]+ / [0-9]+ \|",
        b"iteration: ",
        STEP + OF_TOTAL + rb" \|" + REST_OF_LINE,
        make_reader("nanotron", whole=False),
    ),
    make_format("validation", r"loss at iteration +[0-9]", b"loss at iteration ", STEP + REST_OF_LINE, read_validation),
    make_format(
        "validation",
        r"Step [0-9]+ \| Validation bpb",
        b"Step ",
        rb"(?P<step>\d{1,12}) \| Validation bpb: (?P<loss>" + NUMBER + rb")",
        read_validation,
    ),
    make_format(
        "validation",
        r": train loss -?(?:[0-9]|nan|inf)",
        b"step ",
        rb"(?P<step>\d{1,12}): train loss [^\s,]{1,24}, val loss (?P<loss>" + NUMBER + rb")",
        read_validation,
    ),
    make_format(
        "megatron_memory",
        r"\(after [0-9]+ iterations\) memory \(MB\)",
        b"(after ",
        rb"(?P<step>\d{1,12}) iterations\) memory \(MB\) \| allocated: [\d.]{1,20} \| max allocated: (?P<value>[\d.]{1,20})",
        read_memory,
    ),
    make_format(
        "deepspeed_step",
        r"step=[0-9]+, skipped=[0-9]+, lr=\[",
        b"step=",
        rb"(?P<step>\d{1,12}), skipped=\d{1,12}, lr=\[" + REST_OF_LINE,
        read_engine,
    ),
    make_format(
        "dit",
        r"\(step=[0-9]+\) Train Loss",
        b"(step=",
        rb"(?P<step>\d{1,12})\) Train Loss" + REST_OF_LINE,
        make_reader("dit", whole=False),
    ),
    make_format(
        "basicsr",
        r"iter: *[0-9,]+, lr:\(?[0-9]",
        b"iter:",
        rb" {0,12}(?P<step>\d{1,3}(?:,\d{3}){0,4}), lr:\(?(?P<value>" + NUMBER + rb")" + REST_OF_LINE,
        read_grouped,
    ),
    make_format(
        "deepspeed_timer", r", RunningAvgSamplesPerSec=", b", RunningAvgSamplesPerSec=", REST_OF_LINE, read_timer
    ),
    make_format(
        "deepspeed_pipe",
        r"steps: [0-9]+ loss: .*iter time \(s\): ",
        b"steps: ",
        rb"(?P<step>\d{1,12}) loss: " + REST_OF_LINE,
        make_reader("deepspeed_pipe", whole=False),
    ),
    make_format("hf_dict", r"'loss': '?[-0-9nNiI]", b"'loss': ", rb"'?" + NUMBER + rb"[^\r\n}]{0,1500}", read_dict),
    make_format(
        "hf_eval", r"'eval_loss': '?[-0-9nNiI]", b"'eval_loss': ", rb"'?" + NUMBER + rb"[^\r\n}]{0,1500}", read_dict
    ),
    make_format(
        "fairseq",
        r"epoch [0-9]+: +[0-9]+ / [0-9]+ .*loss=",
        b"epoch ",
        rb"(?P<epoch>\d{1,9}):[ ]{0,12}(?P<within>\d{1,12}) / (?P<last>\d{1,12}) " + REST_OF_LINE,
        make_reader("fairseq", needs_loss=True),
    ),
    json_form("num_updates"),
    json_form("global_step"),
    json_form("current_steps"),
    json_form("step"),
    json_form("iteration"),
    json_form("iter"),
    make_format(
        "hf_dict", r'"loss": "?[-0-9nNiI]', b'"loss": ', rb'"?' + NUMBER + rb"[^\r\n}]{0,1500}", read_json_loss
    ),
    make_format(
        "verl",
        r"step:[0-9]+ - [a-z_]+/",
        b"step:",
        rb"(?P<step>\d{1,12}) - [a-z_]{1,40}/" + REST_OF_LINE,
        make_reader("verl", whole=False),
    ),
    make_format(
        "composer",
        r"\[batch=[0-9]+/[0-9]+\]",
        b"[batch=",
        rb"(?P<step>\d{1,12})/(?P<total>\d{1,12})\]" + REST_OF_LINE,
        make_reader("composer", whole=False),
    ),
    # OLMo and Composer print metrics on separate lines below that of the step.
    make_format(
        "olmo",
        r"\[step=[0-9]+/[0-9]+[,\]]",
        b"[step=",
        rb"(?P<step>\d{1,12})/(?P<total>\d{1,12})(?:,epoch=(?P<epoch>\d{1,9})(?:/\d{1,9})?)?\]",
        make_reader("olmo", whole=False),
    ),
    make_format(
        "below",
        r"train/C(?:rossEntropyL| ?E l)oss ?=|loss/train/total: ",
        b"train/",
        rb"(?:CrossEntropyLoss|CE loss|total)(?:=|: )(?P<value>" + NUMBER + rb")\s{0,4}$",
        read_below,
    ),
    # Ray Train and Tune print a table for each result, a row for each metric.
    make_format(
        "ray_table",
        r"\xe2\x94\x82 training_iteration +[0-9]",
        TABLE_EDGE + b" training_iteration ",
        rb"{0,80}(?P<step>\d{1,12}) {0,80}" + TABLE_EDGE,
        make_reader("ray_table"),
    ),
    make_format(
        "below",
        r"\xe2\x94\x82 (?:train[_/])?loss +[-0-9nNiI]",
        TABLE_EDGE + b" ",
        rb"(?:train[_/])?loss {1,80}(?P<value>" + NUMBER + rb") {0,80}" + TABLE_EDGE,
        read_below,
    ),
    make_format(
        "clu",
        r"logging_writer\.py:[0-9]+\] \[[0-9]+\] ",
        b"logging_writer.py:",
        rb"\d{1,6}\] \[(?P<step>\d{1,12})\] (?P<mode>eval|valid|val|test)?" + REST_OF_LINE,
        make_reader("clu", whole=False),
    ),
    make_format(
        "bracketed",
        r"\.py:[0-9]+\] \[[0-9]+\] [a-z_/]{0,24}loss",
        b".py:",
        rb"\d{1,6}\] \[(?P<step>\d{1,12})\] " + REST_OF_LINE,
        read_bracketed,
    ),
    make_format(
        "mindformers",
        r"step:\[ *[0-9]+/ *[0-9]+\], loss",
        b"step:[",
        STEP + OF_TOTAL + rb"\]" + REST_OF_LINE,
        make_reader("mindformers"),
    ),
    make_format(
        "epoch_brackets",
        r"Epoch(?:\((?:train|val|test)\)| is)?:? *\[ *[0-9]+(?:/[0-9]+)?\](?:, mini-?batch(?: is)?:?)? *\[ *[0-9]+ */",
        b"Epoch",
        rb"(?:\((?P<mode>train|val|test)\)| is)?:?[ \t]{0,4}\[ {0,6}(?P<epoch>\d{1,9})(?:/\d{1,9})?\]"
        rb"(?:, mini-?batch(?: is)?:?)?[ \t]{0,4}\[" + STEP + OF_TOTAL + REST_OF_LINE,
        make_reader("epoch_brackets"),
    ),
    make_format(
        "iter_brackets",
        r"Iter(?:\((?:train|val|test)\))? *\[ *[0-9]+/",
        b"Iter",
        rb"(?:\((?P<mode>train|val|test)\))?[ \t]{0,4}\[" + STEP + OF_TOTAL + rb"\]" + REST_OF_LINE,
        make_reader("iter_brackets"),
    ),
    make_format(
        "train_brackets",
        r"Train(?: Epoch)?: *(?:\[[0-9]+/[0-9]+\]|[0-9]+) *\[ *[0-9]+/",
        b"Train",
        rb"(?: Epoch)?: {0,4}(?:\[{0,1}(?P<epoch>\d{1,9})(?:/\d{1,9}\])?) {0,2}\["
        + STEP
        + OF_TOTAL
        + rb"[^\r\n\]]{0,16}\]"
        + REST_OF_LINE,
        make_reader("train_brackets"),
    ),
    make_format(
        "training_brackets",
        r"Training +\[ *[0-9]+/[0-9]+\] +eta: ",
        b"Training ",
        rb" {0,4}\[" + STEP + OF_TOTAL + rb"\]" + REST_OF_LINE,
        make_reader("training_brackets"),
    ),
    make_format(
        "test_brackets",
        r"Test:.{0,8}\[ *[0-9]+/ *[0-9]+.*\].*[Ll]oss",
        b"Test:",
        rb"[ \d]{0,8}\[" + STEP + OF_TOTAL + rb"[^\r\n\]]{0,16}\]" + REST_OF_LINE,
        make_reader("test_brackets", needs_loss=True, validation=True),
    ),
    make_format(
        "batch_brackets",
        r"Epoch[ \[][0-9]+\]? ?\[?Batch \[?[0-9]",
        b"Epoch",
        rb"[ \[](?P<epoch>\d{1,9})\]? ?\[?Batch \[?(?:\d{1,12}-)?(?P<step>\d{1,12})(?:/(?P<total>\d{1,12}))?\]"
        + REST_OF_LINE,
        make_reader("batch_brackets"),
    ),
    make_format(
        "ltr",
        r"train: [0-9]+, [0-9]+ / [0-9]+\] FPS: ",
        b"train: ",
        rb"(?P<epoch>\d{1,9}), (?P<step>\d{1,12}) / (?P<total>\d{1,12})\] FPS: " + REST_OF_LINE,
        make_reader("ltr", whole=False),
    ),
    make_format(
        "stated",
        r" : Up\. [0-9]+ : Sen\. ",
        b" : Up. ",
        rb"(?P<step>\d{1,12}) : Sen\. [\d,]{1,20} : Cost (?P<value>" + NUMBER + rb")" + REST_OF_LINE,
        read_stated,
    ),
    make_format(
        "espnet",
        r"[0-9]epoch:train:[0-9]+-[0-9]+batch: ",
        b"epoch:train:",
        rb"\d{1,12}-(?P<step>\d{1,12})batch: " + REST_OF_LINE,
        read_espnet,
    ),
    make_format(
        "stated",
        r"Train loss [0-9]+ [-0-9.n]",
        b"Train loss ",
        rb"(?P<step>\d{1,12}) (?P<value>" + NUMBER + rb") Grad Norm " + REST_OF_LINE,
        read_stated,
    ),
    make_format("counted", r"[0-9]\timages/sec: [0-9]", b"images/sec: ", REST_OF_LINE, read_counted),
    make_format(
        "counted",
        r" avg(?: loss)?, [0-9.]+ rate",
        b" avg",
        rb"(?: loss)?, [\d.]{1,20} rate" + REST_OF_LINE,
        read_counted,
    ),
    make_format(
        "step_train_time",
        r"step:[0-9]+/[0-9]+ (?:avg_)?(?:train|val)_",
        b"step:",
        rb"(?P<step>\d{1,12})/(?P<total>\d{1,12}) (?:avg_)?(?:train|val)_" + REST_OF_LINE,
        make_reader("step_train_time"),
    ),
    make_format(
        "dllogger",
        r"DLL [0-9-]+ [0-9:.]+ - (?:\(|Epoch: )[0-9]+(?:, | Iteration: )[0-9]",
        b"DLL ",
        rb"[\d-]{10} [\d:.]{8,16} - (?:\(|Epoch: )(?P<epoch>\d{1,9})(?:, | Iteration: )(?P<step>\d{1,12})(?![\d.])"
        + REST_OF_LINE,
        make_reader("dllogger", whole=False),
    ),
    make_format(
        "mlperf",
        r'"key": "(?:tracked_stats|train_loss|epoch_stop|block_stop)"',
        b'"key": "',
        rb'(?:tracked_stats|train_loss|epoch_stop|block_stop)"[^\r\n]{0,1500}',
        read_mlperf,
    ),
    make_format(
        "lightning_callback",
        r", global step [0-9]+: ",
        b", global step ",
        rb"(?P<step>\d{1,12}): " + REST_OF_LINE,
        make_reader("lightning_callback"),
    ),
    bar_form("it/s"),
    bar_form("s/it"),
    bar_form("step/s"),
    bar_form("s/step"),
    bar_form("batch/s"),
    bar_form("s/batch"),
    make_format("keras", r" - loss: [0-9ni]", b"loss: ", rb"(?<= - loss: )" + NUMBER + rb"[^\r\n]{0,600}", read_keras),
    make_format(
        "keras", r" - \x1b\[[0-9;]+mloss\x1b\[", b"loss\x1b[", rb"[\d;]{0,8}m: " + NUMBER + REST_OF_LINE, read_keras
    ),
    counter_form("global_step"),
    counter_form("step"),
    counter_form("Step"),
    counter_form("iter"),
    counter_form("Iter"),
    counter_form("Epoch", capture=b"epoch"),
    counter_form("epoch", capture=b"epoch"),
    fraction_form(b"loss"),
    fraction_form(b"Loss"),
    make_format("rate", r"global_step/sec: [0-9]", b"global_step/sec: ", rb"(?P<value>" + NUMBER + rb")", read_beside),
    scale_form("setting loss scale to: "),
    scale_form("reducing loss scale to "),
    scale_form(", reducing to "),
    make_format(
        "used",
        r"Mem: +[0-9]+[A-Za-z]* +[0-9]",
        b"Mem:",
        rb"[ ]{1,20}\d[\d.]{0,14}(?:[KMGT]i?B?)?[ ]{1,20}" + BYTE_COUNT + rb"[ ]{1,20}\d",
        read_used,
    ),
    own_step_form(b"ompute"),
    own_step_form(b"ackward"),
    own_step_form(b"forward"),
    own_step_form(b"data", r"(?:[ _-](?:load(?:ing|er)?|wait|fetch))?"),
    make_format(OWN, r"shape['\"]?[ :=]{0,3}(?:torch\.Size\()?[\[(][0-9]", b"shape", rb"[^\r\n]{0,200}", read_own),
    make_format(OWN, r"seq_len(?:gth)?['\"]?[ ]?[:=][ ]{0,4}[0-9]", b"seq_len", rb"[^\r\n]{0,200}", read_own),
    make_format(OWN, r"rss [0-9][0-9.]{0,11} ?[KMG]i?B", b"rss ", rb"[0-9][0-9.]{0,11} ?[KMG]i?B", read_own),
    memory_form(b"emory", "current|[Uu]sed|[Uu]sage|[Aa]llocated|in use|RSS|rss|percent"),
    memory_form(b"RAM ", "used|Used|usage|Usage|in use|percent"),
    resident_form("resident"),
    resident_form("in use"),
    resident_form("used"),
    resident_form("RSS"),
    make_format("used", r"[Rr][Ss][Ss]: [0-9]", b"RSS: ", BYTE_COUNT, read_used),
    make_format("used", r"rss=[0-9]", b"rss=", BYTE_COUNT, read_used),
    resized_form(b"ength"),
    resized_form(b"size"),
    resized_form(b"esolution"),
    resizing_form(b"creasing "),
    resizing_form(b"educing "),
    resizing_form(b"hanging "),
    resizing_form(b"amping up "),
)
