"""Iteration lines: what step a run is at, and what it measured there, in the forms that training programs print.

`FORMATS` is ordered: where several formats read the same line, the first one is right and the others are to be dropped.
A format is found by a literal head and read from its whole line (up to a bound), because most programs print the same
few quantities under a few names each; only the step's place differs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from kb.model import OWN, RESIZED, ProgressPoint
from kb.parsers.logs.prefixes import peel
from kb.parsers.logs.structured import completed

_FIELDS = tuple(ProgressPoint.__dataclass_fields__)
_ALL = attrgetter(*_FIELDS)
Read = Callable[[re.Match[bytes]], ProgressPoint | None]

BEFORE = 1024  # a line is read at most so far back from the head …
AFTER = 2048  # … and so far on


@dataclass(frozen=True, slots=True)
class ProgressFormat:
    """How one form of iteration line is noticed, found and read.

    `detector` is a safe-subset regex that tells that a block has such lines; `find` starts with the literal `head`, never
    crosses a line and is linear; `read` gives the point, with the match's start as its offset, or None for a false find.
    """

    name: str
    detector: str
    head: bytes
    find: re.Pattern[bytes]
    read: Read


def read_line(line: bytes) -> ProgressPoint | None:
    """Read one line by the first format that knows it; offsets count from the line's start."""
    for form in FORMATS:
        for match in form.find.finditer(line):
            point = form.read(match)
            if point is not None:
                return point
    return None


_NUMBER = rb"[-+]?(?:\d[\d,]*(?:\.\d*)?(?:[eE][-+]?\d{1,4})?|\.\d+|(?i:nan|inf(?:inity)?)(?:\.0)?)"
_TO = rb"['\"]?\]?[ \t]{0,2}(?:[:=][ \t]{0,12}|[ \t]{1,8})['\"]?(?:tensor\()?[ \t]{0,2}"
_REST = rb"[^\r\n]{0,1500}"

_LOSS = re.compile(
    rb"(?:(?:loss|Loss|LOSS)(?: value|_step|/train(?:/total)?|/total|_train|, overall)?|(?<!\w)xent|(?i:cross-?entropy))(?:"
    + _TO
    + rb"| is |_(?=(?:-?\d{1,12}\.\d{1,20}|nan|inf)(?:[\s,;|]|$)))(?P<value>"
    + _NUMBER
    + rb")(?![\w/%]|\.\d)"
)
_OWNER = re.compile(rb"(?P<word>[A-Za-z][\w/-]{0,40})(?P<joint>[_/-]| )$")
_TRAIN_OWNERS = frozenset(
    b"lm train training reduced_train total train/total avg average mean running smooth batch step global_avg"
    b" tr ce mlm pg actor actor/pg policy sft".split()
)
_HELD_OUT_NAMES = rb"(?i:val|valid|validation|validate|validating|eval|evaluation|evaluating|test|testing|dev)"
_HELD_OUT = re.compile(_HELD_OUT_NAMES)
_HELD_OUT_WORD = re.compile(rb"(?<![\w/.])" + _HELD_OUT_NAMES + rb"(?![\w/.])")
_GRAD_NORM = re.compile(
    rb"(?:(?:[Gg]rad(?:ient)?[_ -]?[Nn]orm|gnorm|global_norm|\| norm)(?:/\w{1,20})?)"
    + _TO
    + rb"\[?(?P<value>"
    + _NUMBER
    + rb")"
)
_RATE = re.compile(
    rb"(?:[Ll]earning[_ ][Rr]ate|(?<![A-Za-z_])(?:lr|LR))" + _TO + rb"\[?['\"]?(?P<value>" + _NUMBER + rb")"
)
_EPOCH = re.compile(
    rb"(?<![A-Za-z_])[Ee]poch['\"]?(?::? ?\[ {0,6}|[:=# \t]{1,4})['\"]?(?P<value>\d{1,9}(?:\.\d+)?)(?![\w])"
)
_SCALE = re.compile(rb"loss[_ ]scale" + _TO + rb"(?P<value>" + _NUMBER + rb")")
_SKIPPED = re.compile(rb"skipped(?: iterations)?" + _TO + rb"(?P<value>\d{1,12})")
_NAN_ITERATIONS = re.compile(rb"nan iterations:[ ]{0,8}0*[1-9]")
_NAMED_SECONDS = re.compile(
    rb"(?:elapsed[_ ]time[_ ]per[_ ]iteration[_ (]{1,2}(?P<elapsed>ms|s)\)?|iter time \(s\)|train_step_timing in s"
    rb"|train_speed\((?P<speed>s/it|iter/s)\)|timing_s/step|time_per_step|time_iter|(?:step|iter)_time|(?<!\w)(?:avg_)?batch_cost|(?P<per>per_step_time))"
    + _TO
    + rb"(?P<value>"
    + _NUMBER
    + rb")(?P<unit> ?ms)?"
)
_PLAIN_SECONDS = re.compile(
    rb"(?:(?<![\w])dt|(?<![\w/])(?<![a-z] )[Tt]ime|(?<![\w])seconds)"
    + _TO
    + rb"(?P<value>"
    + _NUMBER
    + rb")(?![\d.:])(?:(?P<unit> ?ms|s)(?!\w)|(?![\w/-]))"
)
_MILLISECONDS = re.compile(rb"\| (?P<value>\d{1,9}\.\d+) ms \|")
# Tokens, operations, samples a second, or the share of the peak that is used: what longer sequences leave as it is comes first.
_TOKENS = (
    rb"(?:tok(?:ens)?/s(?:ec)?(?:/device|/gpu)?|Tokens/s/device|tokens_per_sec(?:ond)?(?:_per_(?:device|gpu))?"
    rb"|tokens per gpu per second(?: \(tgs\))?|(?<!\w)tps|(?<!\w)wps|perf/throughput)"
)
_FLOPS = rb"(?:throughput per GPU \(TFLOP/s/GPU\)|TFLOPs|tflops|TFLOP/s/device|model_tflops_per_gpu|train_throughput_per_npu)"
_SAMPLES = (
    rb"(?:samples[ _/]per[ _]second|samples/sec|CurrSamplesPerSec|train_samples_per_second|images/sec|steps/sec"
    rb"|steps_per_sec(?:ond)?|(?<!\w)ips)"
)
_THROUGHPUT = tuple(
    re.compile(key + _TO + rb"(?P<value>" + _NUMBER + rb")(?P<unit>[KMG](?![A-Za-z]))?")
    for key in (_TOKENS, _FLOPS, _SAMPLES, rb"(?<!\w)mfu")
)
_GLOBAL_BATCH = re.compile(rb"global[_ ]batch[_ ]size" + _TO + rb"(?P<value>\d{1,9})")
_LENGTH = re.compile(rb"(?:actual seqlen|seq(?:uence)?[_ ]len(?:gth)?)" + _TO + rb"(?P<value>\d{1,9})")
_RATE_BEHIND = re.compile(
    rb"(?P<value>\d[\d,.]{0,20}) ?(?:tok|(?:samples?|examples?|images?|imgs?|sequences|sentences|words|iter)(?=/s(?:ec(?:ond)?)?(?!\w)))/s"
    rb"|(?<!\w)FPS: \d[\d.]{0,12} \((?P<frames>\d[\d.]{0,12})\)"
)
_MEMORY = re.compile(
    rb"(?:(?<![\w])memory(?:\((?P<named>GiB)\))?|MaxMemAllocated|max[_ ]mem|(?<![\w])mem)"
    + _TO
    + rb"(?P<value>\d{1,15}(?:\.\d+)?) ?(?P<unit>GiB|GB|MiB|MB|G|M)?"
)
_GLOBAL_STEP = re.compile(
    rb"(?:global_step(?P<pair>/max_steps)?|num_updates|current_steps)"
    + _TO
    + rb"(?P<step>\d{1,12})(?:/(?P<total>\d{1,12}))?"
)
_TOTAL = re.compile(rb"(?:total_steps|max_steps)" + _TO + rb"(?P<value>\d{1,12})")
_COLOURS = re.compile(rb"\x1b\[[0-9;]{0,20}[A-Za-z]")
_PACE_WORDS = (b"/s", b"per", b"tps", b"wps", b"ips", b"flop", b"fps", b"throughput", b"speed", b"mfu")
_OWN_WORDS = (b"compute", b"ward", b"fwd", b"data")
_SIZE_WORDS = (b"shape", b"seq", b"tokens")
_UNITS = {b"K": 1e3, b"M": 1e6, b"G": 1e9}
_BYTES = {b"GiB": 2.0**30, b"GB": 2.0**30, b"G": 2.0**30}


def _float(raw: bytes | None) -> float | None:
    if not raw:
        return None
    if raw.endswith(b".0") and raw[-3:-2].isalpha():
        raw = raw[:-2]  # progress bars print "nan.0"
    try:
        return float(raw.replace(b",", b""))
    except ValueError:
        return None


def _int(raw: bytes | None) -> int | None:
    return int(raw) if raw else None


def _value(pattern: re.Pattern[bytes], text: bytes) -> float | None:
    match = pattern.search(text)
    return None if match is None else _float(match["value"])


def _around(match: re.Match[bytes]) -> tuple[bytes, bytes]:
    """Give the match's line before the match and from it on, bounded and without colours; returns end a line too."""
    start = match.start()
    before = bytes(match.string[max(0, start - BEFORE) : start])
    after = bytes(match.string[start : start + AFTER])
    before = before[max(before.rfind(b"\n"), before.rfind(b"\r")) + 1 :]
    ends = [end for end in (after.find(b"\n"), after.find(b"\r")) if end >= 0]
    after = after[: min(ends)] if ends else after
    if b"\x1b" in before or b"\x1b" in after:
        return _COLOURS.sub(b"", before), _COLOURS.sub(b"", after)
    return before, after


def _losses(text: bytes) -> Iterator[tuple[bool, float]]:
    """Give each loss in a line with whether it is one of held-out data; losses of some part of the model are left out."""
    for match in _LOSS.finditer(text):
        value = _float(match["value"])
        owner = _OWNER.search(text, max(0, match.start() - 42), match.start())
        if value is None:
            continue
        word = owner["word"].lower() if owner else b""
        joined = text[match.start() - 1 : match.start()] in (b"_", b"/")
        if owner and _HELD_OUT.fullmatch(word):
            yield True, value
        elif word in _TRAIN_OWNERS if owner and owner["joint"] != b" " else owner or not joined:
            yield False, value


def _loss(text: bytes) -> tuple[float | None, bool]:
    """Give the line's loss, and whether it is a validation loss because no other one stands there."""
    held_out = None
    for validation, value in _losses(text):
        if not validation:
            return value, False
        held_out = value if held_out is None else held_out
    return held_out, held_out is not None


_ROUNDED = re.compile(rb"0?\.0{2,7}")


def _learning_rate(text: bytes) -> float | None:
    """Give the learning rate; one that few decimals round to zero is not known. `0.0` is how Python prints a true zero."""
    match = _RATE.search(text)
    return None if match is None or _ROUNDED.fullmatch(match["value"]) else _float(match["value"])


def _seconds(text: bytes) -> float | None:
    match = _NAMED_SECONDS.search(text)
    if match is not None:
        value = _float(match["value"])
        if value is None or match["speed"] == b"iter/s":
            return 1 / value if value else None
        return value / 1000 if match["elapsed"] == b"ms" or (match["per"] and match["unit"]) else value
    match = _PLAIN_SECONDS.search(text)
    if match is None:
        value = _value(_MILLISECONDS, text)
        return None if value is None else value / 1000
    value = _float(match["value"])
    return value if value is None or (match["unit"] or b"").strip() != b"ms" else value / 1000


def _throughput(text: bytes) -> float | None:
    for pattern in _THROUGHPUT:
        match = pattern.search(text)
        if match is not None:
            value = _float(match["value"])
            return None if value is None else value * _UNITS.get(match["unit"] or b"", 1.0)
    behind = _RATE_BEHIND.search(text)
    return None if behind is None else _float((behind["value"] or behind["frames"]).rstrip(b"."))


def _pace(text: bytes, low: bytes, seconds: float | None) -> float | None:
    """What is done a second: as the line says, or else its own sizes by its time."""
    said = _throughput(text) if any(word in low for word in _PACE_WORDS) else None
    batch = _value(_GLOBAL_BATCH, text) if said is None and seconds and b"batch" in low else None
    return said if batch is None or not seconds else batch * (_value(_LENGTH, text) or 1.0) / seconds


def _memory(text: bytes) -> float | None:
    match = _MEMORY.search(text)
    if match is None:
        return None
    return float(match["value"]) * _BYTES.get(match["named"] or match["unit"] or b"M", 2.0**20)


_OWN_TIME = re.compile(
    rb"(?i)(?<![A-Za-z_-])(?P<name>data(?:[ _-]?(?:load(?:ing|er)?|wait|fetch))?|(?:forward|fwd)[ _-]?(?:backward|bwd)"
    rb"|forward|backward|fwd|bwd|compute)(?:[ _-]?time)?[ \t]{0,2}[:=]?[ \t]{0,4}(?P<value>\d{1,9}(?:\.\d{1,9})?) ?"
    rb"(?P<unit>ms|us|s)(?!\w)"
)
_OWN_UNITS = {b"us": 1e-6, b"ms": 1e-3, b"s": 1.0}
_OWN_STEP = re.compile(
    rb"(?i)(?<![A-Za-z])(?:global[ _])?(?:step|iter(?:ation)?)[ \t]{0,2}[:=#\[]?[ \t]{0,8}(?P<step>\d{1,12})(?![\w.])"
)
_OWN_MEMORY = re.compile(
    rb"(?i)(?<![A-Za-z])rss[ \t]{0,2}[:=]?[ \t]{0,4}(?P<value>\d{1,9}(?:\.\d{1,6})?) ?(?P<unit>[KMGT])i?B"
)
_SIZE_OF_STEP = re.compile(
    rb"(?i)(?<![A-Za-z])(?:(?:input|batch|seq(?:uence)?)[ _]shape['\"]?[ \t]{0,2}[:=]?[ \t]{0,2}(?:torch\.Size\()?[(\[](?P<shape>\d{1,9}"
    rb"(?:, ?\d{1,9}){0,5})[)\]]|(?:max[ _])?seq(?:uence)?[ _]?len(?:gth)?s?|tokens[ _]in[ _]batch"
    rb")(?:['\"]?[ \t]{0,2}[:=][ \t]{0,4}(?P<value>\d{1,12})(?![\d.]))?"
)


def _own(text: bytes) -> tuple[float | None, float | None]:
    """Seconds that the rank itself computed, and that it waited for data; those of forward and backward are added up."""
    whole = data = None
    parts: dict[bytes, float] = {}
    for match in _OWN_TIME.finditer(text):
        name, seconds = match["name"].lower(), float(match["value"]) * _OWN_UNITS[match["unit"].lower()]
        if name.startswith(b"data"):
            data = seconds
        elif name in (b"forward", b"fwd", b"backward", b"bwd"):
            parts[name[:1]] = seconds
        else:
            whole = seconds
    return (sum(parts.values()) if whole is None and len(parts) == 2 else whole), data


def _size(text: bytes) -> float | None:
    """How large the step's input was: the product of a shape, a length, or a count of tokens."""
    match = _SIZE_OF_STEP.search(text)
    if match is None:
        return None
    if match["shape"] is None:
        return _float(match["value"])
    return float(math.prod(int(part) for part in match["shape"].split(b",")))


def _measure(text: bytes, name: str, offset: int) -> ProgressPoint:
    """Read every quantity that a line names. The step is the caller's matter, but for a global step named as such."""
    low = text.lower()  # a look for a word is a hundred times cheaper than a search for a form that is not there
    loss, validation = _loss(text)
    skipped = _SKIPPED.search(text) if b"skipped" in low else None
    if loss is None and b"nan iterations" in low and _NAN_ITERATIONS.search(text):
        loss = math.nan  # Megatron leaves the loss out where no step was taken because it was not finite
    total = _TOTAL.search(text) if b"_steps" in low else None
    step = _GLOBAL_STEP.search(text) if b"_step" in low or b"num_updates" in low else None
    seconds = _seconds(text)
    compute, data = _own(text) if any(word in low for word in _OWN_WORDS) else (None, None)
    return ProgressPoint(
        offset=offset,
        step=int(step["step"]) if step else None,
        total=_int(step["total"]) if step and step["total"] else _int(total["value"]) if total else None,
        loss=loss,
        grad_norm=_value(_GRAD_NORM, text) if b"norm" in low else None,
        learning_rate=_learning_rate(text) if b"lr" in low or b"rate" in low else None,
        seconds=seconds,
        throughput=_pace(text, low, seconds),
        memory=_memory(text) if b"mem" in low else None,
        loss_scale=_value(_SCALE, text) if b"scale" in low else None,
        skipped=int(skipped["value"]) if skipped else None,
        epoch=_value(_EPOCH, text) if b"epoch" in low else None,
        format=name,
        compute=compute,
        data=data,
        size=_size(text) if any(word in low for word in _SIZE_WORDS) else None,
        validation=validation,
    )


def changed(point: ProgressPoint, **values: Any) -> ProgressPoint:
    """The point with other values. It is done for every iteration line, and four times as fast as dataclasses.replace."""
    return ProgressPoint(**(dict(zip(_FIELDS, _ALL(point), strict=True)) | values))


def _named(match: re.Match[bytes], group: str) -> bytes | None:
    return match[group] if group in match.re.groupindex else None


def _reader(name: str, *, needs_loss: bool = False, validation: bool = False, whole: bool = True) -> Read:
    """Make the reader of a form whose `find` captures step, total, epoch and mode as far as it has them.

    `whole`: the line before the head counts too. `needs_loss`: without a loss it is no iteration line.
    """

    def read(match: re.Match[bytes]) -> ProgressPoint | None:
        before, after = _around(match)
        point = _measure(before + after if whole else after, name, match.start())
        if needs_loss and point.loss is None:
            return None
        mode = _named(match, "mode") or before[-40:]
        step, epoch = _int(_named(match, "step")), _float(_named(match, "epoch"))
        if step is None and point.step is None:
            step = _int(_named(match, "within"))
        return changed(
            point,
            step=point.step if step is None else step,
            total=_int(_named(match, "total")) or point.total,
            epoch=point.epoch if epoch is None else epoch,
            validation=point.validation or validation or _HELD_OUT_WORD.search(mode) is not None,
        )

    return read


def _read_validation(match: re.Match[bytes]) -> ProgressPoint | None:
    _, after = _around(match)
    return ProgressPoint(
        offset=match.start(),
        step=_int(match["step"]),
        loss=_float(_named(match, "loss")) if _named(match, "loss") else _loss(after)[0],
        format="validation",
        validation=True,
    )


def _read_memory(match: re.Match[bytes]) -> ProgressPoint | None:
    value = _float(match["value"])
    memory = None if value is None else value * 2.0**20
    return ProgressPoint(offset=match.start(), step=int(match["step"]), memory=memory, format="megatron_memory")


def _read_engine(match: re.Match[bytes]) -> ProgressPoint | None:
    if int(match["step"]) == 0:  # printed once while the engine is made
        return None
    _, after = _around(match)
    return changed(_measure(after, "deepspeed_step", match.start()), step=int(match["step"]))


def _read_timer(match: re.Match[bytes]) -> ProgressPoint | None:
    before, after = _around(match)
    steps = re.search(rb"(?:global_step=|(?<!\d)\d{1,9}/)(?P<step>\d{1,12})$", before)
    if steps is None:
        return None
    return changed(_measure(after, "deepspeed_timer", match.start()), step=int(steps["step"]))


def _read_dict(match: re.Match[bytes]) -> ProgressPoint | None:
    before, after = _around(match)
    opened = before.rfind(b"{")
    text = (before[opened:] if opened >= 0 else b"") + after
    point = _measure(text[: text.find(b"}") + 1 or None], "hf_dict", match.start())
    validation = _HELD_OUT_WORD.search(before[max(0, opened - 24) : max(0, opened)]) is not None
    step = _DICT_STEP.search(text) if point.step is None else None
    return changed(
        point,
        step=int(step["step"]) if step else point.step,
        validation=validation or match[0].startswith(b"'eval_"),
    )


_DICT_STEP = re.compile(
    rb"['\"](?:train/)?(?:step|iter|iteration|training_iteration)['\"]: {0,2}(?P<step>\d{1,12})(?![\w.])"
)


def _read_json_loss(match: re.Match[bytes]) -> ProgressPoint | None:
    """A JSON line with a loss, of a program that names its step in words of its own or not at all."""
    point = _read_dict(match)
    if point is None or (point.step is None and point.learning_rate is None and point.grad_norm is None):
        return None  # a settings file has a "loss" too
    return point


_COUNTED = re.compile(rb"(?P<step>\d{1,12})(?::[ ]{1,8}[^\s,]{1,24},)?[ \t]{1,8}(?P<value>-?(?:[\d.]{1,20}|nan|inf))?$")


def _read_counted(match: re.Match[bytes]) -> ProgressPoint | None:
    """`100  images/sec: 700.1 … 7.9` and `100: 1.5, 1.4 avg loss, …`: the step stands first on the line."""
    before, after = _around(match)
    place = _COUNTED.match(before.lstrip())
    if place is None:
        return None
    named = match[0].startswith(b" avg loss")
    loss = _float(place["value"]) if named else _value(_LAST_NUMBER, after)
    point = _measure(after, "counted", match.start())
    return changed(point, step=int(place["step"]), loss=loss)


_LAST_NUMBER = re.compile(rb"[ \t)](?P<value>-?(?:\d{1,9}\.\d{1,12}|nan|inf))\s{0,4}$")


def _read_espnet(match: re.Match[bytes]) -> ProgressPoint | None:
    """Of ESPnet's lines: its iter_time is the wait for data, which says nothing of the pace."""
    point = _measure(_around(match)[1], "espnet", match.start())
    return changed(point, step=int(match["step"]), seconds=_value(_TRAIN_TIME, match[0]))


_TRAIN_TIME = re.compile(rb"train_time=(?P<value>\d{1,6}\.\d{1,6})")
_SECONDS_AT_END = re.compile(rb" (?P<value>\d{1,6}\.\d{1,6})s/it\b")


def _read_stated(match: re.Match[bytes]) -> ProgressPoint | None:
    """A form that names its loss in words of its own; `find` captures it as `value`."""
    _, after = _around(match)
    point = _measure(after, "stated", match.start())
    seconds = _value(_SECONDS_AT_END, after) or (None if point.throughput else point.seconds)
    return changed(point, step=int(match["step"]), loss=_float(match["value"]), seconds=seconds, validation=False)


# What stands beside the iteration lines, on lines of its own: such points count as no steps, so they are marked as
# validation. The form of a memory line is named after its words, which keeps device and host, free and used apart.


def _read_beside(match: re.Match[bytes]) -> ProgressPoint | None:
    value = _float(match["value"])
    if "scale" in match.re.groupindex:
        return ProgressPoint(match.start(), loss_scale=value, format="loss_scale", validation=True)
    return ProgressPoint(match.start(), throughput=value, format="rate", validation=True)


def _read_own(match: re.Match[bytes]) -> ProgressPoint | None:
    """A line in which a rank tells of its own step, without a loss."""
    before, after = _around(match)
    text = before[peel(before).end :] + after
    step = _OWN_STEP.search(text)
    if step is None:
        return None
    used = _OWN_MEMORY.search(text)
    memory = None if used is None else float(used["value"]) * _SIZES[used["unit"].lower()]
    compute, data = _own(text)
    size = _size(text)
    if compute is None and data is None and memory is None and size is None:
        return None
    return ProgressPoint(
        match.start(),
        int(step["step"]),
        memory=memory,
        format=OWN,
        compute=compute,
        data=data,
        size=size,
        validation=True,
    )


def _read_below(match: re.Match[bytes]) -> ProgressPoint | None:
    """A loss on a line of its own, without a step."""
    return ProgressPoint(match.start(), loss=_float(match["value"]), format="below")


def _read_resized(match: re.Match[bytes]) -> ProgressPoint | None:
    return ProgressPoint(match.start(), format=RESIZED, validation=True)


_DIGITS = re.compile(rb"[^A-Za-z]{1,200}")
_SIZES = {b"k": 2.0**10, b"m": 2.0**20, b"g": 2.0**30, b"t": 2.0**40}


def _read_used(match: re.Match[bytes]) -> ProgressPoint | None:
    value, unit = _float(match["value"]), (match["unit"] or b"").lower()
    before, after = _around(match)
    words = _DIGITS.sub(b" ", (before[peel(before).end :] + after[: match.end("value") - match.start()])[-80:])
    memory = None if value is None else value * _SIZES.get(unit[:1], 1.0)
    return ProgressPoint(match.start(), memory=memory, format=f"used {words.decode('ascii')}", validation=True)


_MLPERF_STEP = re.compile(rb'"(?P<unit>step|step_num|epoch_num|first_epoch_num)": (?P<value>\d{1,12})[,} ]')


def _read_mlperf(match: re.Match[bytes]) -> ProgressPoint | None:
    """MLPerf's lines of a training step or a finished epoch; other counts (samples) are of no one unit, so not read."""
    place = _MLPERF_STEP.search(match[0])
    if place is None:
        return None
    number, offset = int(place["value"]), match.start()
    if place["unit"] in (b"step", b"step_num"):
        return ProgressPoint(offset=offset, step=number, format="mlperf")
    return ProgressPoint(offset=offset, epoch=float(number), format="mlperf")


# A bar's label says what it counts; only those that end in one of these words, and bars without one, count training steps.
_TRAINING_WORDS = frozenset(
    b"epoch epochs train training step steps iter iters iteration iterations global_step batch batches progress update"
    b" updates fit fitting optimizing optimizer pretraining pre-training finetuning fine-tuning loop loss sft dpo grpo ppo"
    b" trainer".split()
)
_NO_WORDS = frozenset((b"info", b"warning", b"it"))
_WORD = re.compile(rb"[A-Za-z][A-Za-z_-]*")
_NO_TRAINING = re.compile(
    rb"(?i)load|download|fetch|generat|token|map(?![a-z])|filter|convert|extract|process(?!\w*\))|comput|captur|shard|resolv|saving|cache|sampling|concat"
)
_BAR = re.compile(
    rb"(?:(?:(?P<percent>\d{1,3})%\|[^|\r\n]{0,900}\| {0,8}(?P<step>\d{1,12})/(?P<total>\d{1,12})"
    rb"|(?:(?<=[\s:\r])|^)(?P<free>\d{1,12})(?:it|step|batch)s?) \[\d[\d:]{3,16}(?:<[^,\]\r\n]{1,20})?, {0,8}"
    rb"|(?<!\d)\d{1,3}% (?:\xe2[\x94\x95][\x80-\xbf]){1,40} (?P<at>\d{1,12})/(?P<of>\d{1,12}) )(?P<rate>\?|[\d.]{1,12})$"
)
# Ultralytics' row in front of its bar: epoch, memory, the parts of the loss, the number of objects, the image size.
_YOLO = re.compile(
    rb"(?P<epoch>\d{1,6})/\d{1,6} {1,16}(?P<memory>\d[\d.]{0,8})G {1,16}(?P<losses>(?:(?:\d[\d.e+]{0,12}|nan|inf) {1,16}){1,12})\d{1,6}$"
)
_LABEL_EPOCH = re.compile(rb"(?i)epoch[ :=\[#(]{0,3}(?P<epoch>\d{1,9})")


def _read_bar(match: re.Match[bytes]) -> ProgressPoint | None:
    before, after = _around(match)
    bar = _BAR.search(before)
    if bar is None:
        return None
    label = before[max(0, bar.start() - 120) : bar.start()]
    label = label[peel(label).end :].strip(b" :\t")
    row = _YOLO.search(label)
    validation = _HELD_OUT_WORD.search(label) is not None or b"anity Checking" in label
    if not validation and label and row is None and not _is_training(label):
        return None
    end = after.find(b"]")
    point = _row(row, match.start()) if row else _measure(after[: end if end >= 0 else 300], "tqdm", match.start())
    rate, epoch = _float(bar["rate"].replace(b"?", b"")), row or _LABEL_EPOCH.search(label)
    per_second = match[0].endswith(b"/s")
    return changed(
        point,
        step=_int(bar["step"] or bar["free"] or bar["at"]) if point.step is None else point.step,
        total=_int(bar["total"] or bar["of"]),
        seconds=point.seconds or (None if not rate else 1 / rate if per_second else rate),
        epoch=_float(epoch["epoch"]) if epoch else point.epoch,
        validation=validation,
    )


def _row(row: re.Match[bytes], offset: int) -> ProgressPoint:
    """The loss of a row is the sum of its parts; whole numbers there are counts."""
    parts = [_float(part) or 0.0 for part in row["losses"].split() if b"." in part or part in (b"nan", b"inf")]
    memory = _float(row["memory"])
    return ProgressPoint(
        offset, loss=sum(parts) if parts else None, memory=None if memory is None else memory * 2.0**30, format="tqdm"
    )


def _is_training(label: bytes) -> bool:
    if label.endswith((b"]", b"}")):  # the end of another bar or dict, so this bar has no label
        return True
    words = [word for word in _WORD.findall(label.lower()) if word not in _NO_WORDS]
    return not words or (words[-1] in _TRAINING_WORDS and _NO_TRAINING.search(label) is None)


_KERAS = re.compile(rb"[\x08 \t]{0,400}(?P<step>\d{1,12})/(?P<total>\d{1,12}) (?:\[[=>.]{1,80}\]|\xe2\x94)")


def _read_keras(match: re.Match[bytes]) -> ProgressPoint | None:
    before, after = _around(match)
    bar = _KERAS.match(before) or _KERAS.match(before, peel(before).end)
    if bar is None:
        return None
    point = _measure(after, "keras", match.start())
    each = re.search(rb" (?P<value>\d{1,9})(?P<unit>ms|s)/step", before)
    seconds = None if each is None else int(each["value"]) / (1000 if each["unit"] == b"ms" else 1)
    return changed(point, step=int(bar["step"]), total=int(bar["total"]), seconds=seconds)


def _form(name: str, detector: str, head: bytes, tail: bytes, read: Read) -> ProgressFormat:
    return ProgressFormat(name, detector, head, re.compile(re.escape(head) + tail), read)


_STEP = rb"[ ]{0,12}(?P<step>\d{1,12})"
_OF = rb"[ ]{0,12}/[ ]{0,12}(?P<total>\d{1,12})"
_MAYBE_OF = rb"(?:[ ]{0,2}/[ ]{0,12}(?P<total>\d{1,12}))?"
# Between a general word and its number; what may not follow the number (3.5, 3x, 3-4).
_IS = rb"['\"]?[ \t]{0,2}[:=#\[]?[ \t]{0,12}"
_IS_TOO = rb"['\"]?[ \t]{0,2}[:=#\[_]?[ \t]{0,12}"
_NO_MORE = rb"(?![\w.%-]{1,2}\w)" + _REST


# "iteration", but not Megatron's own lines, which are read by their own formats.
_ITERATION = rb"(?<!loss at iter)(?:ation(?! {1,12}\d{1,12}/ {0,12}\d{1,12} \|))?"


GENERAL = "_loss"  # ends the name of the forms of last resort, which a block needs only where no other form is at home
# One detector for them all: "step" and "loss" on one line would keep an automaton busy on every line that has a step.
_LOSS_LINE = r"""[Ll]oss(?:\x1b\[[0-9;]{0,8}m)?(?:['"]?[ \t]{0,3}[:=]?[ \t(]{0,3}[-0-9iInN]|/total|, overall: |_-?[0-9]+\.[0-9]|_nan)|; xent: [-0-9n]"""


def _general(word: str, *, capture: bytes = b"step") -> ProgressFormat:
    """Make the form `<word> 12 … loss: 3.4`, the word in any spelling that names a counter."""
    head = word.encode()
    tail = (
        rb"(?:(?<![A-Za-z]"
        + head
        + rb")|(?<=[0-9\[]m"
        + head
        + rb"))(?<!micro_"
        + head
        + rb")(?<!per_"
        + head
        + rb")(?<!max_"
        + head
        + rb")"
    )
    # not the function's name and line of loguru (`loop:step:462 - step 5090 …`)
    tail += rb"(?!(?<=[\w>]:" + head + rb"):\d{1,6} - [^\n]{0,80}?\b" + head + rb"\b)"
    tail += _ITERATION if word in {"iter", "Iter"} else b""
    tail += (
        (_IS_TOO if word == "step" else _IS)
        + rb"(?P<"
        + capture
        + rb">\d{1,12})"
        + _MAYBE_OF.replace(b"total", b"total" if capture == b"step" else b"last")
    )
    return _form(
        f"{word.lower()}{GENERAL}",
        _LOSS_LINE,
        head,
        tail + _NO_MORE,
        _reader(f"{word.lower()}{GENERAL}", needs_loss=True),
    )


# A counter in words that we do not know: "12/300" somewhere before the loss, or a number behind a word for "step".
_FRACTION = re.compile(
    rb"(?P<word>[^\s\d\[\](){}:=/]{0,24})[\s\[(:=#]{0,4}(?<![\w/.:-])(?P<step>\d{1,12}) ?/ ?(?P<total>\d{1,12})(?![\w/:.-])"
)
_OTHER_STEP = re.compile(
    "(?:[Ss]chritt|[ée]tape|[ÉE]tape|[Pp]asso?|[Шш]аг|[Kk]rok|步数?|迭代|ステップ|스텝)[ :=#]{0,3}(?P<step>\\d{1,12})"  # noqa: RUF001 - Russian
    "|第 ?(?P<counted>\\d{1,12}) ?步".encode()
)
_OTHER_COUNTS = re.compile(
    rb"(?i)(?:rank|fold|worker|node|gpu|attempt|retry|try|trial|seed|part|shard|stage|phase|task|file|"
    + _HELD_OUT_NAMES
    + rb")s?$"
)
_EPOCH_WORD = re.compile("(?i)(?:e|é|É|э)(?:po|по)".encode())


def _read_fraction(match: re.Match[bytes]) -> ProgressPoint | None:
    before, after = _around(match)
    text = before[peel(before).end :][-300:]
    place = next((one for one in _FRACTION.finditer(text) if int(one["step"]) <= int(one["total"])), None)
    named = _OTHER_STEP.search(text) if place is None else None
    found = place or named
    if found is None or (place and _OTHER_COUNTS.search(place["word"])):
        return None
    point = _measure(before + after, f"fraction{GENERAL}", match.start())
    if point.loss is None:
        return None
    point = changed(point, validation=point.validation or _HELD_OUT_WORD.search(text) is not None)
    if place and _EPOCH_WORD.match(place["word"]):
        return changed(point, epoch=float(place["step"]))
    if named:
        return changed(point, step=int(named["step"] or named["counted"]))
    return changed(point, step=int(found["step"]), total=int(found["total"]))


def _fraction(head: bytes) -> ProgressFormat:
    tail = rb"(?:\x1b\[[\d;]{0,8}m)?['\"]?[ \t]{0,3}[:=][ \t]{0,3}[-0-9nNiI]"
    return _form(f"fraction{GENERAL}", _LOSS_LINE, head, tail, _read_fraction)


_JSON = _reader("json", needs_loss=True)


def _read_json(match: re.Match[bytes]) -> ProgressPoint | None:
    point = _JSON(match)
    return None if point is None else completed(point, b"".join(_around(match)))


def _json(key: str) -> ProgressFormat:
    """Make the form of a JSON line that has this key and, anywhere, a loss."""
    head = f'"{key}":'.encode()
    return _form(
        "json",
        f'"{key}": *"?[0-9]',
        head,
        rb' ?"?(?P<step>\d{1,12})(?![.\d])' + _REST,
        _read_json,
    )


_SIZE = rb"(?P<value>\d{1,15}(?:\.\d{1,12})?) ?(?P<unit>%|[KMGTkmgt]i?[Bb]?(?![A-Za-z]))?"


def _used(head: bytes, words: str) -> ProgressFormat:
    """Make the form of a line that says how much memory is in use."""
    found = rb"[^\r\n]{0,60}?(?:" + words.encode() + rb")\)?['\"]?[^\w\r\n]{1,6}" + _SIZE
    return _form("used", rf"{head.decode()}.{{0,60}}(?:{words}).{{1,7}}[0-9]", head, found, _read_used)


_SIZED = r"(?:[Ss]eq(?:uence)?|[Cc]ontext|[Mm]ax)[ _-]?(?:[Ll]en(?:gth)?|[Ww]indow)|[Ii]mage[ _-]size|[Rr]esolution|[Cc]rop[ _]size|[Bb]atch[ _-]?size"
_TURNED = r"(?:now|changed|increased|raised|grown|doubled|halved|reduced|decreased|lowered|switched)"


def _own_line(head: bytes, rest: str = "") -> ProgressFormat:
    """Make the form of a line in which a rank tells how long its own part of a step took; the head ends a word for it."""
    tail = rest + r"(?:[ _-]?time)?[ \t]{0,2}[:=]?[ \t]{0,4}[0-9][0-9.]{0,11} ?[mu]?s\b"
    return _form(OWN, head.decode() + tail, head, tail.encode(), _read_own)


def _resized(head: bytes) -> ProgressFormat:
    """Make the form `sequence length is now 4096`, `batch size halved to 2`; the head ends the word for the size."""
    tail = r"(?: (?:is|was|has been|gets))? " + _TURNED + r"(?: from [0-9]+)?(?: to| by)? [0-9]"
    return _form(RESIZED, rf"(?:{_SIZED}){tail}", head, tail.encode(), _read_resized)


def _resizing(head: bytes) -> ProgressFormat:
    """Make the form `Increasing the batch size from 256 to 512`; the head is the verb."""
    tail = (
        rf"(?:the |global |micro |local |per-device |train(?:ing)? )*(?:{_SIZED})(?: from [0-9]+)?(?: to| by):? [0-9]"
    )
    return _form(RESIZED, head.decode() + tail, head, tail.encode(), _read_resized)


def _scale(head: str) -> ProgressFormat:
    return _form(
        "loss_scale", head + "[0-9.e-]", head.encode(), rb"(?P<scale>)(?P<value>" + _NUMBER + rb")", _read_beside
    )


def _bar(unit: str) -> ProgressFormat:
    return _form("tqdm", rf"[0-9?]{unit}", unit.encode(), b"", _read_bar)


FORMATS: tuple[ProgressFormat, ...] = (
    _form(
        "nemo",
        r"Training epoch [0-9]+, iteration ",
        b"Training epoch ",
        rb"(?P<epoch>\d{1,9}), iteration" + _STEP + _OF + _REST,
        _reader("nemo"),
    ),
    _form(
        "megatron",
        r"iteration +[0-9]+/ *[0-9]+ \|",
        b"iteration ",
        _STEP + _OF + rb" \|" + _REST,
        _reader("megatron", whole=False),
    ),
    _form(
        "nanotron",
        r"iteration: [0-9]+ / [0-9]+ \|",
        b"iteration: ",
        _STEP + _OF + rb" \|" + _REST,
        _reader("nanotron", whole=False),
    ),
    _form("validation", r"loss at iteration +[0-9]", b"loss at iteration ", _STEP + _REST, _read_validation),
    _form(
        "validation",
        r"Step [0-9]+ \| Validation bpb",
        b"Step ",
        rb"(?P<step>\d{1,12}) \| Validation bpb: (?P<loss>" + _NUMBER + rb")",
        _read_validation,
    ),
    _form(
        "validation",
        r": train loss [0-9]",
        b"step ",
        rb"(?P<step>\d{1,12}): train loss [^\s,]{1,24}, val loss (?P<loss>" + _NUMBER + rb")",
        _read_validation,
    ),
    _form(
        "megatron_memory",
        r"\(after [0-9]+ iterations\) memory \(MB\)",
        b"(after ",
        rb"(?P<step>\d{1,12}) iterations\) memory \(MB\) \| allocated: [\d.]{1,20} \| max allocated: (?P<value>[\d.]{1,20})",
        _read_memory,
    ),
    _form(
        "deepspeed_step",
        r"step=[0-9]+, skipped=[0-9]+, lr=\[",
        b"step=",
        rb"(?P<step>\d{1,12}), skipped=\d{1,12}, lr=\[" + _REST,
        _read_engine,
    ),
    _form("deepspeed_timer", r", RunningAvgSamplesPerSec=", b", RunningAvgSamplesPerSec=", _REST, _read_timer),
    _form(
        "deepspeed_pipe",
        r"steps: [0-9]+ loss: .*iter time \(s\): ",
        b"steps: ",
        rb"(?P<step>\d{1,12}) loss: " + _REST,
        _reader("deepspeed_pipe", whole=False),
    ),
    _form("hf_dict", r"'loss': '?[-0-9nNiI]", b"'loss': ", rb"'?" + _NUMBER + rb"[^\r\n}]{0,1500}", _read_dict),
    _form(
        "hf_eval", r"'eval_loss': '?[-0-9nNiI]", b"'eval_loss': ", rb"'?" + _NUMBER + rb"[^\r\n}]{0,1500}", _read_dict
    ),
    _form(
        "fairseq",
        r"epoch [0-9]+: +[0-9]+ / [0-9]+ .*loss=",
        b"epoch ",
        rb"(?P<epoch>\d{1,9}):[ ]{0,12}(?P<within>\d{1,12}) / (?P<last>\d{1,12}) " + _REST,
        _reader("fairseq", needs_loss=True),
    ),
    _json("num_updates"),
    _json("global_step"),
    _json("current_steps"),
    _json("step"),
    _json("iteration"),
    _json("iter"),
    _form("hf_dict", r'"loss": "?[-0-9nNiI]', b'"loss": ', rb'"?' + _NUMBER + rb"[^\r\n}]{0,1500}", _read_json_loss),
    _form(
        "verl",
        r"step:[0-9]+ - [a-z_]+/",
        b"step:",
        rb"(?P<step>\d{1,12}) - [a-z_]{1,40}/" + _REST,
        _reader("verl", whole=False),
    ),
    _form(
        "composer",
        r"\[batch=[0-9]+/[0-9]+\]",
        b"[batch=",
        rb"(?P<step>\d{1,12})/(?P<total>\d{1,12})\]" + _REST,
        _reader("composer", whole=False),
    ),
    # OLMo and Composer print what was measured on lines of its own, below that of the step.
    _form(
        "olmo",
        r"\[step=[0-9]+/[0-9]+[,\]]",
        b"[step=",
        rb"(?P<step>\d{1,12})/(?P<total>\d{1,12})(?:,epoch=(?P<epoch>\d{1,9})(?:/\d{1,9})?)?\]",
        _reader("olmo", whole=False),
    ),
    _form(
        "below",
        r"train/C(?:rossEntropyL| ?E l)oss ?=|loss/train/total: ",
        b"train/",
        rb"(?:CrossEntropyLoss|CE loss|total)(?:=|: )(?P<value>" + _NUMBER + rb")\s{0,4}$",
        _read_below,
    ),
    _form(
        "clu",
        r"logging_writer\.py:[0-9]+\] \[[0-9]+\] ",
        b"logging_writer.py:",
        rb"\d{1,6}\] \[(?P<step>\d{1,12})\] (?P<mode>eval|valid|val|test)?" + _REST,
        _reader("clu", whole=False),
    ),
    _form(
        "mindformers",
        r"step:\[ *[0-9]+/ *[0-9]+\], loss",
        b"step:[",
        _STEP + _OF + rb"\]" + _REST,
        _reader("mindformers"),
    ),
    _form(
        "epoch_brackets",
        r"Epoch(?:\((?:train|val|test)\))?:? *\[ *[0-9]+(?:/[0-9]+)?\] *\[ *[0-9]+ */",
        b"Epoch",
        rb"(?:\((?P<mode>train|val|test)\))?:?[ \t]{0,4}\[ {0,6}(?P<epoch>\d{1,9})(?:/\d{1,9})?\][ \t]{0,4}\["
        + _STEP
        + _OF
        + _REST,
        _reader("epoch_brackets"),
    ),
    _form(
        "iter_brackets",
        r"Iter(?:\((?:train|val|test)\))? *\[ *[0-9]+/",
        b"Iter",
        rb"(?:\((?P<mode>train|val|test)\))?[ \t]{0,4}\[" + _STEP + _OF + rb"\]" + _REST,
        _reader("iter_brackets"),
    ),
    _form(
        "train_brackets",
        r"Train(?: Epoch)?: *(?:\[[0-9]+/[0-9]+\]|[0-9]+) *\[ *[0-9]+/",
        b"Train",
        rb"(?: Epoch)?: {0,4}(?:\[{0,1}(?P<epoch>\d{1,9})(?:/\d{1,9}\])?) {0,2}\["
        + _STEP
        + _OF
        + rb"[^\r\n\]]{0,16}\]"
        + _REST,
        _reader("train_brackets"),
    ),
    _form(
        "training_brackets",
        r"Training +\[ *[0-9]+/[0-9]+\] +eta: ",
        b"Training ",
        rb" {0,4}\[" + _STEP + _OF + rb"\]" + _REST,
        _reader("training_brackets"),
    ),
    _form(
        "test_brackets",
        r"Test:.{0,8}\[ *[0-9]+/ *[0-9]+.*\].*[Ll]oss",
        b"Test:",
        rb"[ \d]{0,8}\[" + _STEP + _OF + rb"[^\r\n\]]{0,16}\]" + _REST,
        _reader("test_brackets", needs_loss=True, validation=True),
    ),
    _form(
        "batch_brackets",
        r"Epoch[ \[][0-9]+\]? ?\[?Batch \[?[0-9]",
        b"Epoch",
        rb"[ \[](?P<epoch>\d{1,9})\]? ?\[?Batch \[?(?:\d{1,12}-)?(?P<step>\d{1,12})(?:/(?P<total>\d{1,12}))?\]" + _REST,
        _reader("batch_brackets"),
    ),
    _form(
        "ltr",
        r"train: [0-9]+, [0-9]+ / [0-9]+\] FPS: ",
        b"train: ",
        rb"(?P<epoch>\d{1,9}), (?P<step>\d{1,12}) / (?P<total>\d{1,12})\] FPS: " + _REST,
        _reader("ltr", whole=False),
    ),
    _form(
        "stated",
        r" : Up\. [0-9]+ : Sen\. ",
        b" : Up. ",
        rb"(?P<step>\d{1,12}) : Sen\. [\d,]{1,20} : Cost (?P<value>" + _NUMBER + rb")" + _REST,
        _read_stated,
    ),
    _form(
        "espnet",
        r"[0-9]epoch:train:[0-9]+-[0-9]+batch: ",
        b"epoch:train:",
        rb"\d{1,12}-(?P<step>\d{1,12})batch: " + _REST,
        _read_espnet,
    ),
    _form(
        "stated",
        r"Train loss [0-9]+ [-0-9.n]",
        b"Train loss ",
        rb"(?P<step>\d{1,12}) (?P<value>" + _NUMBER + rb") Grad Norm " + _REST,
        _read_stated,
    ),
    _form("counted", r"[0-9]\timages/sec: [0-9]", b"images/sec: ", _REST, _read_counted),
    _form("counted", r" avg loss, [0-9.]+ rate", b" avg loss, ", rb"[\d.]{1,20} rate" + _REST, _read_counted),
    _form(
        "step_train_time",
        r"step:[0-9]+/[0-9]+ (?:train|val)_",
        b"step:",
        rb"(?P<step>\d{1,12})/(?P<total>\d{1,12}) (?:train|val)_" + _REST,
        _reader("step_train_time"),
    ),
    _form(
        "dllogger",
        r"DLL [0-9-]+ [0-9:.]+ - (?:\(|Epoch: )[0-9]+(?:, | Iteration: )[0-9]",
        b"DLL ",
        rb"[\d-]{10} [\d:.]{8,16} - (?:\(|Epoch: )(?P<epoch>\d{1,9})(?:, | Iteration: )(?P<step>\d{1,12})(?![\d.])"
        + _REST,
        _reader("dllogger", whole=False),
    ),
    _form(
        "mlperf",
        r'"key": "(?:tracked_stats|train_loss|epoch_stop|block_stop)"',
        b'"key": "',
        rb'(?:tracked_stats|train_loss|epoch_stop|block_stop)"[^\r\n]{0,1500}',
        _read_mlperf,
    ),
    _form(
        "lightning_callback",
        r", global step [0-9]+: ",
        b", global step ",
        rb"(?P<step>\d{1,12}): " + _REST,
        _reader("lightning_callback"),
    ),
    _bar("it/s"),
    _bar("s/it"),
    _bar("step/s"),
    _bar("s/step"),
    _bar("batch/s"),
    _bar("s/batch"),
    _form("keras", r" - loss: [0-9ni]", b"loss: ", rb"(?<= - loss: )" + _NUMBER + rb"[^\r\n]{0,600}", _read_keras),
    _form("keras", r" - \x1b\[[0-9;]+mloss\x1b\[", b"loss\x1b[", rb"[\d;]{0,8}m: " + _NUMBER + _REST, _read_keras),
    _general("global_step"),
    _general("step"),
    _general("Step"),
    _general("iter"),
    _general("Iter"),
    _general("Epoch", capture=b"epoch"),
    _general("epoch", capture=b"epoch"),
    _fraction(b"loss"),
    _fraction(b"Loss"),
    _form("rate", r"global_step/sec: [0-9]", b"global_step/sec: ", rb"(?P<value>" + _NUMBER + rb")", _read_beside),
    _scale("setting loss scale to: "),
    _scale("reducing loss scale to "),
    _scale(", reducing to "),
    _form(
        "used",
        r"Mem: +[0-9]+[A-Za-z]* +[0-9]",
        b"Mem:",
        rb"[ ]{1,20}\d[\d.]{0,14}(?:[KMGT]i?B?)?[ ]{1,20}" + _SIZE + rb"[ ]{1,20}\d",
        _read_used,
    ),
    _own_line(b"ompute"),
    _own_line(b"ackward"),
    _own_line(b"forward"),
    _own_line(b"data", r"(?:[ _-](?:load(?:ing|er)?|wait|fetch))?"),
    _form(OWN, r"shape['\"]?[ :=]{0,3}(?:torch\.Size\()?[\[(][0-9]", b"shape", rb"[^\r\n]{0,200}", _read_own),
    _form(OWN, r"seq_len(?:gth)?['\"]?[ ]?[:=][ ]{0,4}[0-9]", b"seq_len", rb"[^\r\n]{0,200}", _read_own),
    _form(OWN, r"rss [0-9][0-9.]{0,11} ?[KMG]i?B", b"rss ", rb"[0-9][0-9.]{0,11} ?[KMG]i?B", _read_own),
    _used(b"emory", "current|[Uu]sed|[Uu]sage|[Aa]llocated|in use|RSS|rss|percent"),
    _used(b"RAM ", "used|Used|usage|Usage|in use|percent"),
    _form("used", r"[Rr][Ss][Ss]: [0-9]", b"RSS: ", _SIZE, _read_used),
    _form("used", r"rss=[0-9]", b"rss=", _SIZE, _read_used),
    _resized(b"ength"),
    _resized(b"size"),
    _resized(b"esolution"),
    _resizing(b"creasing "),
    _resizing(b"educing "),
    _resizing(b"hanging "),
    _resizing(b"amping up "),
)
