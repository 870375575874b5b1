"""Readers of progress bars: tqdm's, Keras' and Ultralytics'."""

from __future__ import annotations

import re

from kb.model import ProgressPoint
from kb.parsers.logs.prefixes import peel
from kb.parsers.logs.progress.line_format import changed, line_around
from kb.parsers.logs.progress.quantities import (
    HELD_OUT_NAMES,
    HELD_OUT_WORD,
    find_loss,
    measure,
    parse_float,
    parse_int,
)
from kb.regex.lazy import lazy_compile

# A bar's label says what it counts; only bars without a label, or with one that ends in such a word, count steps.
_TRAINING_WORDS = frozenset(
    b"epoch epochs train training step steps iter iters iteration iterations global_step batch batches progress update"
    b" updates fit fitting optimizing optimizer pretraining pre-training finetuning fine-tuning loop loss sft dpo grpo ppo"
    b" trainer".split()
)
_NO_WORDS = frozenset((b"info", b"warning", b"it"))
_WORD = lazy_compile(rb"[A-Za-z][A-Za-z_-]*")
_NO_TRAINING = lazy_compile(
    rb"(?i)load|download|fetch|generat|token|map(?![a-z])|filter|convert|extract|process(?!\w*\))|comput|captur|shard|resolv|saving|cache|sampling|concat"
    rb"|compil|profil|calibrat|quanti[sz]|auto-?tun|warm-?up (?:step|iter|batch|run)|embedding|encod|packing|infer(?:ence|ring)|decod|scor(?:e|ing)|denois|predict|verify|indexing"
)
_IN_BRACKETS = lazy_compile(
    rb"\[([A-Za-z_-]{2,40}(?: [A-Za-z_-]{1,40}){1,6})\]$"
)  # words alone, not what ends another bar
# A metric in a label, such as "gen: -0.42;" or "lr 3.85e-05,"; a counter is a whole number.
_METRIC = lazy_compile(
    rb"(?<![\w/-])(?P<name>[A-Za-z][\w/-]{0,40})(?:[:=] {0,4}| )[-+]?(?:\d{1,12}\.\d{1,12}(?:[eE][-+]?\d{1,4})?|\d{1,4}[eE]-\d{1,4}|nan|inf)(?![\w.%/])[,;| ]{0,8}"
)
_OF_EVALUATION = lazy_compile(
    rb"(?i)(?:^|[_/-])(?:"
    + HELD_OUT_NAMES
    + rb"|m?ap|m?iou|psnr|ssim|lpips|fid|bleu|rouge|[cw]er|auc|f1|acc|accuracy|precision|recall|dice|time|speed|fps)(?:$|[\d@_/-])"
)
_LEAST_METRICS = 2  # that a label of metrics alone has for its bar to count steps
_COUNTS_EPOCHS = lazy_compile(rb"(?i)(?:^|\s)(?:train(?:ing)? )?epochs$")  # the label of a loop over epochs
_NO_STEPS = 5000.0  # per second; what a bar without a label counts so fast are records
_BAR = lazy_compile(
    rb"(?:(?:(?P<percent>\d{1,3})%\|[^|\r\n]{0,900}\| {0,8}(?P<step>\d{1,12})/(?P<total>\d{1,12})(?:\.\d{1,6})?"
    rb"|(?:(?<=[\s:\r])|^)(?P<free>\d{1,12})(?:it|step|batch)s?) \[\d[\d:]{3,16}(?:<[^,\]\r\n]{1,20})?, {0,8}"
    rb"|(?<!\d)\d{1,3}% (?:\xe2[\x94\x95][\x80-\xbf]){1,40} (?P<at>\d{1,12})/(?P<of>\d{1,12}) "
    rb"|(?:\xe2[\x94\x95][\x80-\xbf]){1,200} {1,200}(?P<drawn>\d{1,12})/(?P<whole>\d{1,12}) {1,8}[\d:]{4,16} \xe2\x80\xa2 [\d:-]{4,16} {1,8}"
    rb")(?P<rate>\?|[\d.]{1,12})$"
)
# Ultralytics' row in front of its bar: epoch, memory, the parts of the loss, the number of objects, the image size.
_YOLO = lazy_compile(
    rb"(?P<epoch>\d{1,6})/\d{1,6} {1,16}(?P<memory>\d[\d.]{0,8})G {1,16}(?P<losses>(?:(?:\d[\d.e+]{0,12}|nan|inf) {1,16}){1,12})\d{1,6}$"
)
# Lightning's Rich bar: the number of the epoch and of the last one, both from 0; negative if unknown.
_RICH_EPOCH = lazy_compile(rb"Epoch (?P<epoch>\d{1,6})/(?:(?P<last>\d{1,6})|-\d)$")
_LABEL_EPOCH = lazy_compile(rb"(?i)epoch[ :=\[#(]{0,3}(?P<epoch>\d{1,9})")


def read_bar(match: re.Match[bytes]) -> ProgressPoint | None:
    """Read the line of a tqdm-style progress bar. Return None for a bar that counts something other than training steps."""
    before, after = line_around(match)
    bar = _BAR.search(before)
    if bar is None:
        return None
    label = before[max(0, bar.start() - 120) : bar.start()]
    label = label[peel(label).end :].strip(b" :\t")
    row = _YOLO.search(label)
    validation = HELD_OUT_WORD.search(label) is not None or b"anity Checking" in label
    if not validation and label and row is None and not _is_training(label):
        return None
    end = after.find(b"]")
    point = (
        _yolo_point(row, match.start()) if row else measure(after[: end if end >= 0 else 300], "tqdm", match.start())
    )
    if point.validation:  # the only loss in its brackets is of held-out data
        point = changed(point, loss=None)
    step, total = (
        parse_int(bar["step"] or bar["free"] or bar["at"] or bar["drawn"]),
        parse_int(bar["total"] or bar["of"] or bar["whole"]),
    )
    if bar["drawn"] and (numbered := _RICH_EPOCH.search(label)) and step is not None and total is not None:
        step += int(numbered["epoch"]) * total
        total = total * (int(numbered["last"]) + 1) if numbered["last"] else None
    if point.loss is None and not validation and row is None:
        point = changed(point, loss=_loss_of_label(label, step))
    rate, epoch = parse_float(bar["rate"].replace(b"?", b"")), row or _LABEL_EPOCH.search(label)
    per_second = match[0].endswith(b"/s")
    if rate and per_second and rate >= _NO_STEPS and not label and point.loss is None:
        return None
    if _COUNTS_EPOCHS.search(label) and point.step is None and point.loss is None:
        return changed(point, epoch=float(step or 0), seconds=None)
    return changed(
        point,
        step=step if point.step is None else point.step,
        total=total,
        seconds=point.seconds or (None if not rate else 1 / rate if per_second else rate),
        epoch=parse_float(epoch["epoch"]) if epoch else point.epoch,
        validation=validation,
    )


# The first redraw of a bar that was drawn before its label was set: "0/14 [00:00<?, ?it/s]", then "Capturing: 0%| | 0/14".
_NAMED = lazy_compile(
    r"[^\r\n]{0,400}[\r\n]{1,2}(?P<label>[^\r\n%|]{1,160}?):? {1,6}\d{1,3}%\|[^|\r\n]{0,300}\| {0,8}0/(?P<total>\d{1,12}) "
)


_FAST = lazy_compile(
    r"[^\r\n]{0,400}[\r\n]{1,2} {0,4}\d{1,3}%\|[^|\r\n]{0,300}\| {0,8}\d{1,12}/(?P<total>\d{1,12}) \[[^\]\r\n,]{1,40}, {0,8}(?P<rate>[\d.]{1,16})it/s\]"
)


def counts_otherwise(text: str, total: int | None) -> bool:
    """Whether a bar at the start of a text, drawn at 0 without a label, turns out to count no training steps.

    It is redrawn with a label that says so, or faster than any training.
    """
    found = _NAMED.match(text)
    if found is not None and int(found["total"]) == total and not _is_training(found["label"].encode()):
        return True
    drawn = _FAST.match(text)
    rate = parse_float(drawn["rate"].encode()) if drawn is not None and int(drawn["total"]) == total else None
    return rate is not None and rate >= _NO_STEPS


def _yolo_point(row: re.Match[bytes], offset: int) -> ProgressPoint:
    """Read a row, whose loss is the sum of its parts; whole numbers there are counts."""
    parts = [parse_float(part) or 0.0 for part in row["losses"].split() if b"." in part or part in (b"nan", b"inf")]
    memory = parse_float(row["memory"])
    return ProgressPoint(
        offset, loss=sum(parts) if parts else None, memory=None if memory is None else memory * 2.0**30, format="tqdm"
    )


def _is_training(label: bytes) -> bool:
    named = _IN_BRACKETS.search(label)
    if named is not None:
        return _is_training(named[1])
    if label.endswith((b"]", b"}")):  # the end of another bar or dict, so this bar has no label
        return True
    metrics = [metric["name"] for metric in _METRIC.finditer(label)]
    if len(metrics) >= _LEAST_METRICS and not any(map(_OF_EVALUATION.search, metrics)):
        label = _METRIC.sub(b"", label)
    words = [word for word in _WORD.findall(label.lower()) if word not in _NO_WORDS]
    return not words or (words[-1] in _TRAINING_WORDS and _NO_TRAINING.search(label) is None)


def _loss_of_label(label: bytes, step: int | None) -> float | None:
    """Return the training loss that a label tells. A zero is the placeholder before the first step, also in the next redraw."""
    loss, held_out = find_loss(label) if step and b"oss" in label else (None, False)
    return None if held_out or loss == 0.0 else loss


_KERAS = lazy_compile(
    rb"[\x08 \t]{0,400}(?P<step>\d{1,12})/(?P<total>\d{1,12}) (?:\[[=>.]{1,80}\]|\xe2\x94|- \d{1,7}s - )"
)


def read_keras(match: re.Match[bytes]) -> ProgressPoint | None:
    """Read the line of a Keras progress bar, whose step and total precede the bar, or of an epoch that it logs without one."""
    before, after = line_around(match)
    bar = _KERAS.match(before) or _KERAS.match(before, peel(before).end)
    if bar is None:
        return None
    point = measure(after, "keras", match.start())
    each = re.search(rb" (?P<value>\d{1,9})(?P<unit>ms|s)/step", before)
    seconds = None if each is None else int(each["value"]) / (1000 if each["unit"] == b"ms" else 1)
    return changed(point, step=int(bar["step"]), total=int(bar["total"]), seconds=seconds)
