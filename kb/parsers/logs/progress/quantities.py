"""The quantities in an iteration line: loss, rates, times, memory and sizes, under the names that programs use."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from kb.model import ProgressPoint
from kb.regex.lazy import lazy_compile

NUMBER = (
    rb"[-+]?(?:\d[\d,]*(?:\.\d*)?(?:[eE][-+]?\d{1,4})?(?!0*(?i:nan|inf))|\.\d+|0{0,12}(?i:nan|inf(?:inity)?)(?:\.0)?)"
)
_TO = rb"['\"]?\]?[ \t]{0,2}(?:[:=][ \t]{0,12}|[ \t]{1,8})['\"]?(?:tensor\()?[ \t]{0,2}\*{0,2}"
_LOSS = lazy_compile(
    rb"(?:(?:loss|Loss|LOSS)(?: value|_step|/train(?:/total)?|/total|_train|, overall| train)?|(?<!\w)xent|(?i:cross-?entropy)|(?<=Train-)(?:SmoothL1|r?mse|mae))(?:"
    + _TO
    + rb"| is |_(?=(?:-?\d{1,12}\.\d{1,20}|nan|inf)(?:[\s,;|]|$)))(?P<value>"
    + NUMBER
    + rb")(?![\w/%]|\.\d)"
)
_OWNER = lazy_compile(rb"(?P<word>[A-Za-z][\w/-]{0,40})(?P<joint>[_/-]| )$")
_TRAIN_OWNERS = frozenset(
    b"lm train training reduced_train total train/total avg average mean running smooth batch step global_avg"
    b" avg_train mean_train tr ce mlm pg actor actor/pg policy sft".split()
)
HELD_OUT_NAMES = rb"(?i:val|valid|validation|validate|validating|eval|evaluation|evaluating|test|testing|dev)"
_HELD_OUT = lazy_compile(HELD_OUT_NAMES)
HELD_OUT_WORD = lazy_compile(rb"(?<![\w/.])" + HELD_OUT_NAMES + rb"(?![\w/.])")
_GRAD_NORM = lazy_compile(
    rb"(?:(?:[Gg]rad(?:ient)?[_ -]?[Nn]orm|gnorm|global_norm|\| norm)(?:/\w{1,20})?)"
    + _TO
    + rb"\[?(?P<value>"
    + NUMBER
    + rb")"
)
_RATE = lazy_compile(
    rb"(?:[Ll]earning[_ ][Rr]ate|(?<![A-Za-z_])(?:lr|LR))" + _TO + rb"\[?['\"]?(?P<value>" + NUMBER + rb")"
)
_EPOCH = lazy_compile(
    rb"(?<![A-Za-z_])[Ee]poch['\"]?(?::? ?\[ {0,6}|[:=# \t]{1,4})['\"]?(?P<value>\d{1,9}(?:\.\d+)?)(?![\w])"
)
_SCALE = lazy_compile(rb"loss[_ ]scale" + _TO + rb"(?P<value>" + NUMBER + rb")")
_SKIPPED = lazy_compile(rb"skipped(?: iterations)?" + _TO + rb"(?P<value>\d{1,12})")
_NAN_ITERATIONS = lazy_compile(rb"nan iterations:[ ]{0,8}0*[1-9]")
_NAMED_SECONDS = lazy_compile(
    rb"(?:elapsed[_ ]time[_ ]per[_ ]iteration[_ (]{1,2}(?P<elapsed>ms|s)\)?|iter time \(s\)|train_step_timing in s"
    rb"|train_speed\((?P<speed>s/it|iter/s)\)|timing_s/step|time_per_step|time_iter|(?:step|iter)_time|(?<!\w)(?:avg_)?batch_cost|(?P<per>per_step_time)"
    rb"|(?<![\w/])(?:took|duration|dt|(?:step|iter|batch)(?:_time|_duration)?)_(?P<named>ms|s|secs?|seconds))"
    + _TO
    + rb"(?P<value>"
    + NUMBER
    + rb")(?P<unit> ?ms)?"
)
_PLAIN_SECONDS = lazy_compile(
    rb"(?:(?<![\w])dt|(?<![\w/])(?<![a-z] )[Tt]ime|(?<![\w])seconds)"
    + _TO
    + rb"(?P<value>"
    + NUMBER
    + rb")(?![\d.:])(?:(?P<unit> ?ms|s)(?!\w)|(?![\w/-]))"
)
_MILLISECONDS = lazy_compile(rb"\| (?P<value>\d{1,9}\.\d+) ms \|")
# a time without a name of its own: that of the line's step if it ends the line, is one of a step, or is named by its unit alone
_UNNAMED_TIME = lazy_compile(
    rb"(?<![\w.,:-])(?:(?P<open>\()?(?P<value>\d{1,9}(?:\.\d{1,9})?) ?(?P<unit>ms|s)(?:(?(open)\))['\"}]{0,2}\s{0,2}\Z|/(?:it(?:er(?:ation)?)?|step|batch)\b)"
    rb"|ms['\"]?[:=][ ]?(?P<named>\d{1,9}(?:\.\d{1,9})?)(?![\w.]))"
)
# Tokens, operations or samples per second, or utilization; those independent of the sequence length come first.
_TOKENS = (
    rb"(?:tok(?:ens)?/s(?:ec)?(?:/device|/gpu)?|Tokens/s/device|tokens_per_sec(?:ond)?(?:_per_(?:device|gpu))?"
    rb"|tokens per gpu per second(?: \(tgs\))?|(?<!\w)tps|(?<!\w)wps|perf/throughput)"
)
_FLOPS = rb"(?:throughput per GPU \(TFLOP/s/GPU\)|TFLOPs|tflops|TFLOP/s/device|model_tflops_per_gpu|train_throughput_per_npu)"
_SAMPLES = (
    rb"(?:samples[ _/]per[ _]second|(?:samples|examples|sequences|images|imgs)/sec|CurrSamplesPerSec|train_samples_per_second|steps/sec"
    rb"|steps_per_sec(?:ond)?|(?<!\w)ips)"
)
_THROUGHPUT = tuple(
    lazy_compile(key + _TO + rb"(?P<value>" + NUMBER + rb")(?P<unit>[KMG](?![A-Za-z]))?")
    for key in (_TOKENS, _FLOPS, _SAMPLES, rb"(?<!\w)mfu")
)
_GLOBAL_BATCH = lazy_compile(rb"global[_ ]batch[_ ]size" + _TO + rb"(?P<value>\d{1,9})")
_LENGTH = lazy_compile(rb"(?:actual seqlen|seq(?:uence)?[_ ]len(?:gth)?)" + _TO + rb"(?P<value>\d{1,9})")
_RATE_BEHIND = lazy_compile(
    rb"(?P<value>\d[\d,.]{0,20}) ?(?:tok|(?:samples?|examples?|images?|imgs?|sequences|sentences|words|iter)(?=/s(?:ec(?:ond)?)?(?!\w)))/s(?!(?:ec(?:ond)?)? ?[:=])"
    rb"|(?<!\w)FPS: \d[\d.]{0,12} \((?P<frames>\d[\d.]{0,12})\)"
)
_MEMORY = lazy_compile(
    rb"(?:(?<![\w])memory(?:\((?P<named>GiB)\))?|MaxMemAllocated|max[_ ]mem|(?<![\w])mem)"
    + _TO
    + rb"(?P<value>\d{1,15}(?:\.\d+)?) ?(?P<unit>GiB|GB|MiB|MB|G|M)?"
)
_GLOBAL_STEP = lazy_compile(
    rb"(?:global_step(?P<pair>/max_steps)?|num_updates|current_steps)"
    + _TO
    + rb"(?P<step>\d{1,12})(?!\d|\.\d{0,12}[1-9]|\.?\d{0,12}[eE][-+]?\d)(?:/(?P<total>\d{1,12}))?"  # 3.2e+4 is rounded
)
_STATED = {"grad_norm": _GRAD_NORM, "learning_rate": _RATE, "loss_scale": _SCALE, "memory": _MEMORY}
_TOTAL = lazy_compile(rb"(?:total_steps|max_steps)" + _TO + rb"(?P<value>\d{1,12})")
_PACE_WORDS = (b"/s", b"per", b"tps", b"wps", b"ips", b"flop", b"fps", b"throughput", b"speed", b"mfu")
_OWN_WORDS = (b"compute", b"ward", b"fwd", b"data", b"own")
_UNITS = {b"K": 1e3, b"M": 1e6, b"G": 1e9}
_BYTES = {b"GiB": 2.0**30, b"GB": 2.0**30, b"G": 2.0**30}


def parse_float(raw: bytes | None) -> float | None:
    """Parse a number as programs print it, with thousands separators, `nan.0` or `0000nan`; None if it is not a number."""
    if not raw:
        return None
    if raw[-1:].isalpha():
        raw = raw.lstrip(b"0")  # a width filled with zeros
    if raw.endswith(b".0") and raw[-3:-2].isalpha():
        raw = raw[:-2]  # progress bars print "nan.0"
    try:
        return float(raw.replace(b",", b""))
    except ValueError:
        return None


def parse_int(raw: bytes | None) -> int | None:
    """Parse a whole number, or return None for an empty group."""
    return int(raw) if raw else None


def find_number(pattern: re.Pattern[bytes], text: bytes) -> float | None:
    """Return the group `value` of the first match of a pattern, as a number."""
    match = pattern.search(text)
    return None if match is None else parse_float(match["value"])


def _losses(text: bytes) -> Iterator[tuple[bool, re.Match[bytes]]]:
    """Yield each loss in a line, and whether it is of held-out data; losses of parts of the model are skipped."""
    for match in _LOSS.finditer(text):
        owner = _OWNER.search(text, max(0, match.start() - 42), match.start())
        if parse_float(match["value"]) is None:
            continue
        word = owner["word"].lower() if owner else b""
        joined = text[match.start() - 1 : match.start()] in (b"_", b"/")
        if owner and _HELD_OUT.fullmatch(word):
            yield True, match
        elif word in _TRAIN_OWNERS if owner and owner["joint"] != b" " else owner or not joined:
            yield False, match


def find_loss(text: bytes) -> tuple[float | None, bool]:
    """Return the line's loss, and whether it is a validation loss because there is no other."""
    held_out = None
    for validation, match in _losses(text):
        value = parse_float(match["value"])
        if not validation:
            return value, False
        held_out = value if held_out is None else held_out
    return held_out, held_out is not None


def stated(metric: str, line: str) -> tuple[int, int] | None:
    """Return where a line states a metric, from its word to its number; None for metrics that are not read by one pattern."""
    text = line.encode("latin-1", "replace")  # a byte for each character
    if metric == "loss":
        match = next((match for validation, match in _losses(text) if not validation), None)
    else:
        pattern = _STATED.get(metric)
        match = None if pattern is None else pattern.search(text)
    return None if match is None else match.span()


_ROUNDED = lazy_compile(rb"0?\.0{2,7}")


def _learning_rate(text: bytes) -> float | None:
    """Return the learning rate; None if it is rounded to zero. `0.0` is how Python prints a true zero."""
    match = _RATE.search(text)
    return None if match is None or _ROUNDED.fullmatch(match["value"]) else parse_float(match["value"])


def find_seconds(text: bytes) -> float | None:
    """Return how many seconds a step took, from a time or a speed in the text."""
    match = _NAMED_SECONDS.search(text)
    if match is not None:
        value = parse_float(match["value"])
        if value is None or match["speed"] == b"iter/s":
            return 1 / value if value else None
        milliseconds = b"ms" in (match["elapsed"], match["named"]) or (match["per"] and match["unit"])
        return value / 1000 if milliseconds else value
    match = _PLAIN_SECONDS.search(text)
    if match is None:
        value = find_number(_MILLISECONDS, text)
        return _unnamed_time(text) if value is None else value / 1000
    value = parse_float(match["value"])
    return value if value is None or (match["unit"] or b"").strip() != b"ms" else value / 1000


def _unnamed_time(text: bytes) -> float | None:
    match = _UNNAMED_TIME.search(text)
    if match is None:
        return None
    value = float(match["named"] or match["value"])
    return value / 1000 if match["named"] or match["unit"] == b"ms" else value


def _throughput(text: bytes) -> float | None:
    for pattern in _THROUGHPUT:
        match = pattern.search(text)
        if match is not None:
            value = parse_float(match["value"])
            return None if value is None else value * _UNITS.get(match["unit"] or b"", 1.0)
    behind = _RATE_BEHIND.search(text)
    return None if behind is None else parse_float((behind["value"] or behind["frames"]).rstrip(b"."))


def _rate_of_work(text: bytes, low: bytes, seconds: float | None) -> float | None:
    """Return the throughput per second: as printed, else from the line's sizes and time."""
    said = _throughput(text) if any(word in low for word in _PACE_WORDS) else None
    batch = find_number(_GLOBAL_BATCH, text) if said is None and seconds and b"batch" in low else None
    return said if batch is None or not seconds else batch * (find_number(_LENGTH, text) or 1.0) / seconds


def _memory(text: bytes) -> float | None:
    match = _MEMORY.search(text)
    if match is None:
        return None
    return float(match["value"]) * _BYTES.get(match["named"] or match["unit"] or b"M", 2.0**20)


# For lower-case text: without flags and with a leading letter, `re` skips quickly to possible names.
_OWN_TIME = lazy_compile(
    rb"(?P<name>(?:d(?<![a-z_-].)ata(?:[ _-]?(?:load(?:ing|er)?|wait|fetch))?|f(?<![a-z_-].)(?:orward|wd)(?:[ _-]?(?:backward|bwd))?"
    rb"|b(?<![a-z_-].)(?:ackward|wd)|c(?<![a-z_-].)ompute|o(?<![a-z_-].)wn))(?:[ _-]?time)?"
    rb"(?:[ \t]{0,2}[:=]?[ \t]{0,4}(?P<value>\d{1,9}(?:\.\d{1,9})?) ?(?P<unit>ms|us|s)(?!\w)"
    rb"|_(?P<named>ms|us|s(?:ecs?)?)['\"]?[:=][ ]?(?P<number>\d{1,9}(?:\.\d{1,9})?)(?![\w.]))",
    re.DOTALL,
)
_OWN_UNITS = {b"us": 1e-6, b"ms": 1e-3}  # others are seconds
_SIZE_OF_STEP = lazy_compile(
    rb"(?i)(?<![A-Za-z])(?:(?:input|batch|seq(?:uence)?)[ _]shape['\"]?[ \t]{0,2}[:=]?[ \t]{0,2}(?:torch\.Size\()?[(\[](?P<shape>\d{1,9}"
    rb"(?:, ?\d{1,9}){0,5})[)\]]|(?:max[ _])?seq(?:uence)?[ _]?len(?:gth)?s?|tokens[ _]in[ _]batch"
    rb")(?:['\"]?[ \t]{0,2}[:=][ \t]{0,4}(?P<value>\d{1,12})(?![\d.]))?"
)


def own_times(text: bytes) -> tuple[float | None, float | None]:
    """Return the seconds that the rank computed (forward plus backward), and that it waited for data."""
    whole = data = None
    parts: dict[bytes, float] = {}
    for name, value, unit, named, number in _OWN_TIME.findall(text.lower()):
        seconds = float(value or number) * _OWN_UNITS.get(unit or named, 1.0)
        if name.startswith(b"data"):
            data = seconds
        elif name in (b"forward", b"fwd", b"backward", b"bwd"):
            parts[name[:1]] = seconds
        else:
            whole = seconds
    return (sum(parts.values()) if whole is None and len(parts) == 2 else whole), data


def input_size(text: bytes, low: bytes) -> float | None:
    """Return how large the step's input was: the product of a shape, a length, or a count of tokens. `low`: in lower case."""
    if not (b"shape" in low or b"seq" in low or b"tokens" in low):
        return None
    match = _SIZE_OF_STEP.search(text)
    if match is None:
        return None
    if match["shape"] is None:
        return parse_float(match["value"])
    return float(math.prod(int(part) for part in match["shape"].split(b",")))


def measure(text: bytes, name: str, offset: int) -> ProgressPoint:
    """Read every quantity in a line. The step is left to the caller, except for an explicit global step."""
    low = text.lower()  # a substring test is a hundred times cheaper than a failing regex search
    loss, validation = find_loss(text)
    skipped = _SKIPPED.search(text) if b"skipped" in low else None
    if loss is None and b"nan iterations" in low and _NAN_ITERATIONS.search(text):
        loss = math.nan  # Megatron omits the loss if a step was skipped because it was not finite
    total = _TOTAL.search(text) if b"_steps" in low else None
    step = _GLOBAL_STEP.search(text) if b"_step" in low or b"num_updates" in low else None
    seconds = find_seconds(text)
    compute, data = own_times(text) if any(word in low for word in _OWN_WORDS) else (None, None)
    return ProgressPoint(
        offset=offset,
        step=int(step["step"]) if step else None,
        total=parse_int(step["total"]) if step and step["total"] else parse_int(total["value"]) if total else None,
        loss=loss,
        grad_norm=find_number(_GRAD_NORM, text) if b"norm" in low else None,
        learning_rate=_learning_rate(text) if b"lr" in low or b"rate" in low else None,
        seconds=seconds,
        throughput=_rate_of_work(text, low, seconds),
        memory=_memory(text) if b"mem" in low else None,
        loss_scale=find_number(_SCALE, text) if b"scale" in low else None,
        skipped=int(skipped["value"]) if skipped else None,
        epoch=find_number(_EPOCH, text) if b"epoch" in low else None,
        format=name,
        compute=compute,
        data=data,
        size=input_size(text, low),
        validation=validation,
    )


_OF_GPU = lazy_compile(
    r"(?i)\b(?:v?gpu|cuda|hbm|hip|xpu|npu|vram|device|(?:max_?)?mem_?allocated)\b|gpu_|_gpu\b|\bmemory: ?[\d.]+ ?GiB\("
)
_OF_HOST = lazy_compile(
    r"(?i)\b(?:host|cpu|rss|resident|ram|maxrss)\b|_rss\b|\brss_|^Mem: |^used mem\s*$"
)  # the last two of `free`


def memory_of(text: str) -> str:
    """Return whose memory a text speaks of, `host` or `gpu`; empty if it says neither, or both."""
    host, gpu = _OF_HOST.search(text) is not None, _OF_GPU.search(text) is not None
    return "" if host == gpu else "host" if host else "gpu"
