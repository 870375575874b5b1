"""Readers of formats that differ in more than the position of the step."""

from __future__ import annotations

import re

from kb.model import ProgressPoint
from kb.parsers.logs.progress.line_format import Read, changed, line_around, optional_group
from kb.parsers.logs.progress.quantities import HELD_OUT_WORD, find_loss, find_number, measure, parse_float, parse_int
from kb.regex.lazy import lazy_compile

# "Saved the checkpoint to a.pt (epoch 12, loss 0.3)": the loss of a step that its own line gives, or of the best one
_OF_A_CHECKPOINT = lazy_compile(rb"(?i)(?:sav(?:ed|ing)|wrote|checkpoint|ckpt|snapshot)[^\n]{0,300}\($")


def make_reader(name: str, *, needs_loss: bool = False, validation: bool = False, whole: bool = True) -> Read:
    """Make the reader of a format whose `find` captures step, total, epoch and mode, as far as present.

    `whole`: the line before the head counts, too. `needs_loss`: without a loss it is not an iteration line.
    """

    def read(match: re.Match[bytes]) -> ProgressPoint | None:
        before, after = line_around(match)
        point = measure(before + after if whole else after, name, match.start())
        if needs_loss and (point.loss is None or (before[-1:] == b"(" and _OF_A_CHECKPOINT.search(before))):
            return None
        mode = optional_group(match, "mode") or before[-40:]
        if needs_loss:  # "Step 400, val: loss = 2.1"
            mode += b" " + after[: max(0, after.find(b"loss"))]
        step, epoch = parse_int(optional_group(match, "step")), parse_float(optional_group(match, "epoch"))
        if step is None and point.step is None:
            step = parse_int(optional_group(match, "within"))
        return changed(
            point,
            step=point.step if step is None else step,
            total=parse_int(optional_group(match, "total")) or point.total,
            epoch=point.epoch if epoch is None else epoch,
            validation=point.validation or validation or HELD_OUT_WORD.search(mode) is not None,
        )

    return read


def read_grouped(match: re.Match[bytes]) -> ProgressPoint | None:
    """Read BasicSR's line, whose step has commas, and whose losses have names of their own instead of a total."""
    before, after = line_around(match)
    step, rate = int(match["step"].replace(b",", b"")), parse_float(match["value"])
    return changed(measure(before + after, "basicsr", match.start()), step=step, learning_rate=rate)


_GLOG = lazy_compile(rb"(?:^|[\s\]])[IWE]\d{4} \d\d:\d\d:\d\d[^\n]{0,80}$")
_READ_BRACKETED = make_reader("bracketed", needs_loss=True)


def read_bracketed(match: re.Match[bytes]) -> ProgressPoint | None:
    """Read a metrics line of absl's logger, with the step in brackets. Other loggers may put the rank in brackets."""
    before, _ = line_around(match)
    return _READ_BRACKETED(match) if _GLOG.search(before) else None


def read_validation(match: re.Match[bytes]) -> ProgressPoint | None:
    """Read a line that reports a validation loss at a step."""
    _, after = line_around(match)
    return ProgressPoint(
        offset=match.start(),
        step=parse_int(match["step"]),
        loss=parse_float(optional_group(match, "loss")) if optional_group(match, "loss") else find_loss(after)[0],
        format="validation",
        validation=True,
    )


def read_memory(match: re.Match[bytes]) -> ProgressPoint | None:
    """Read Megatron's memory report, which is in MiB."""
    value = parse_float(match["value"])
    memory = None if value is None else value * 2.0**20
    return ProgressPoint(offset=match.start(), step=int(match["step"]), memory=memory, format="megatron_memory")


def read_engine(match: re.Match[bytes]) -> ProgressPoint | None:
    """Read the step line of DeepSpeed's engine. Return None for step 0, which is printed once while the engine is built."""
    if int(match["step"]) == 0:  # printed once while the engine is made
        return None
    _, after = line_around(match)
    return changed(measure(after, "deepspeed_step", match.start()), step=int(match["step"]))


def read_timer(match: re.Match[bytes]) -> ProgressPoint | None:
    """Read DeepSpeed's throughput timer. The step precedes the head."""
    before, after = line_around(match)
    steps = re.search(rb"(?:global_step=|(?<!\d)\d{1,9}/)(?P<step>\d{1,12})$", before)
    if steps is None:
        return None
    return changed(measure(after, "deepspeed_timer", match.start()), step=int(steps["step"]))


def read_dict(match: re.Match[bytes]) -> ProgressPoint | None:
    """Read a Python dict printed on a line, as the Hugging Face trainer does."""
    before, after = line_around(match)
    opened = before.rfind(b"{")
    text = (before[opened:] if opened >= 0 else b"") + after
    point = measure(text[: text.find(b"}") + 1 or None], "hf_dict", match.start())
    validation = HELD_OUT_WORD.search(before[max(0, opened - 24) : max(0, opened)]) is not None
    step = _DICT_STEP.search(text) if point.step is None else None
    named = _EPOCH_BEFORE.search(before[max(0, opened - _BEFORE) : max(0, opened)]) if point.epoch is None else None
    return changed(
        point,
        step=int(step["step"]) if step else point.step,
        epoch=float(named["epoch"]) if named else point.epoch,
        validation=validation or match[0].startswith(b"'eval_"),
    )


_BEFORE = 40  # bytes before a dict in which its epoch is looked for
_EPOCH_BEFORE = lazy_compile(rb"(?i)\bepochs?[ #:=\[]{0,3}(?P<epoch>\d{1,6})(?: ?/ ?\d{1,6})?[\]\s:|,>=-]{0,6}$")

_DICT_STEP = lazy_compile(
    rb"['\"](?:train/)?(?:step|iter|iteration|training_iteration)['\"]: {0,2}(?P<step>\d{1,12})(?![\w.])"
)


def read_json_loss(match: re.Match[bytes]) -> ProgressPoint | None:
    """Read a JSON line with a loss, of a program with its own name for the step, or none."""
    point = read_dict(match)
    if point is None or (point.step is None and point.learning_rate is None and point.grad_norm is None):
        return None  # a settings file has a "loss" too
    return point


_COUNTED = lazy_compile(
    rb"(?P<step>\d{1,12})(?::[ ]{1,8}[^\s,]{1,24},)?[ \t]{1,8}(?P<value>-?(?:[\d.]{1,20}|nan|inf))?$"
)


def read_counted(match: re.Match[bytes]) -> ProgressPoint | None:
    """`100  images/sec: 700.1 … 7.9` and `100: 1.5, 1.4 avg loss, …`: the step comes first."""
    before, after = line_around(match)
    place = _COUNTED.match(before.lstrip())
    if place is None:
        return None
    named = match[0].startswith(b" avg")
    loss = parse_float(place["value"]) if named else find_number(_LAST_NUMBER, after)
    point = measure(after, "counted", match.start())
    return changed(point, step=int(place["step"]), loss=loss)


_LAST_NUMBER = lazy_compile(rb"[ \t)](?P<value>-?(?:\d{1,9}\.\d{1,12}|nan|inf))\s{0,4}$")


def read_espnet(match: re.Match[bytes]) -> ProgressPoint | None:
    """Read ESPnet's line; its iter_time is the wait for data, not the pace."""
    point = measure(line_around(match)[1], "espnet", match.start())
    return changed(point, step=int(match["step"]), seconds=find_number(_TRAIN_TIME, match[0]))


_TRAIN_TIME = lazy_compile(rb"train_time=(?P<value>\d{1,6}\.\d{1,6})")
_SECONDS_AT_END = lazy_compile(rb" (?P<value>\d{1,6}\.\d{1,6})s/it\b")


def read_stated(match: re.Match[bytes]) -> ProgressPoint | None:
    """Read a format with its own name for the loss; `find` captures it as `value`."""
    _, after = line_around(match)
    point = measure(after, "stated", match.start())
    seconds = find_number(_SECONDS_AT_END, after) or (None if point.throughput else point.seconds)
    return changed(point, step=int(match["step"]), loss=parse_float(match["value"]), seconds=seconds, validation=False)


_MLPERF_STEP = lazy_compile(rb'"(?P<unit>step|step_num|epoch_num|first_epoch_num)": (?P<value>\d{1,12})[,} ]')


def read_mlperf(match: re.Match[bytes]) -> ProgressPoint | None:
    """Read MLPerf's line of a training step or finished epoch; other counts have no fixed unit."""
    place = _MLPERF_STEP.search(match[0])
    if place is None:
        return None
    number, offset = int(place["value"]), match.start()
    if place["unit"] in (b"step", b"step_num"):
        return ProgressPoint(offset=offset, step=number, format="mlperf")
    return ProgressPoint(offset=offset, epoch=float(number), format="mlperf")
