"""The stage and step of a failure, if a traceback or other ranks' steps say more than the line's position in its log."""

from __future__ import annotations

import re

from kb.diagnosis.context.own_frame import own_frame
from kb.diagnosis.findings import chain_span
from kb.diagnosis.ranking import Ranked, precedes
from kb.facts.chained_exceptions import structure_start
from kb.facts.job_facts import CLOCK_SKEW, LAUNCHER_KINDS, Facts
from kb.facts.signals import Signal
from kb.facts.stream_facts import PROGRESS_AFTER
from kb.model import Stage, Structure
from kb.regex.lazy import lazy_compile

_EVALUATES = lazy_compile(
    r" in (?:_?(?:evaluate|validate)"
    r"|estimate_loss(?:es)?|(?:eval|validation|val)_loss"
    r"|_?evaluate_(?:and_\w{1,40}|on_\w{1,40}|(?:one_)?epoch|core|model|tasks?|examples?|batch|dataset|loader|loop|all|split)"
    r"|(?:(?:non)?dist_)?validation|_?(?:run_)?test_(?:epoch|loop|step)|evaluation_(?:loop|step)|(?:validate|eval)_(?:one_)?(?:epoch|step|batch|model)"
    r"|validation_(?:epoch|loop|step)|prediction_(?:loop|step)|(?:run|do)_(?:eval|evaluation|validation))$"
)
_SAVES = lazy_compile(
    r" in _?save_(?:\w{1,40}_)?(?:checkpoint|ckpt|pretrained|model|weights|networks?|(?:training_)?state|state_dict|optimizer_and_scheduler)$"
    r"|(?:paddle/framework/io\w*|/\w{0,40}(?:model|trainer|saver))\.py:\d{1,6} in (?:_legacy_)?save$"
    r"|(?:serialization|checkpoint\w*|safetensors)\S{0,80}:\d{1,6} in (?:async_)?save$"
    r"|distributed/checkpoint/\S{1,80}:\d{1,6} in _?(?:save|write)\w{0,40}$"
    r"|numpy/lib/\S{1,40}:\d{1,6} in _?savez?(?:_compressed)?$"
)
_LOADS = lazy_compile(
    r" in _?(?:load_(?:\w{1,40}_)?(?:checkpoint|ckpt)|load_from_checkpoint|resume_from_checkpoint)$"
    r"|distributed/checkpoint/\S{1,80}:\d{1,6} in _?(?:load|read)\w{0,40}$"
)
# the system refuses a path that is a checkpoint's; what a loop does with one is to write it
_OF_CHECKPOINT = lazy_compile(
    r"(?:\[Errno \d{1,3}\]|\b(?:OS|IO|Permission|FileNotFound|FileExists|IsADirectory|NotADirectory)Error\b).{0,200}"
    r"['\"/](?:[\w.-]{0,40}(?:checkpoint|ckpt)[\w.-]{0,40}|iter_\d{4,}|global_step_?\d{1,9}|(?:step|epoch|snapshot)[_-]?\d{1,9})(?:/|['\"]|\.\w{1,12}['\"])"
)
_WRITES = lazy_compile(r"\bPytorchStreamWriter failed writing|\binline_container\.cc:\d{1,5}\] \. unexpected pos \d")
# The loop itself; only where no frame further inside shows what it was doing.
_TRAINS = lazy_compile(
    r" in (?:_?(?:run_)?train(?:ing)?_(?:step|batch|one_step|one_epoch|epoch|one_batch|iteration)|forward_backward_step|_?optimizer_step|_?run_optimization)$"
)
# The parts of a framework that are built before the first step: process groups, wrapped models, engines.
_INITIALISES = lazy_compile(
    r" in (?:get_model|build_model|model_provider|setup_model_and_optimizer|init_process_group|init_distributed|initialize_model_parallel|init_device_mesh|initialize_megatron)$"
    r"|deepspeed/__init__\.py:\d{1,6} in initialize$"
    # an engine for inference measures, compiles and captures before its first request
    r"|sglang/\S{1,120} in (?:init_(?:device|cuda)_graphs|capture|init_memory_pool|load_model)$"
    r"|vllm/\S{1,120} in (?:capture_model|profile_run|determine_(?:available_memory|num_available_blocks)|_?initialize_(?:kv_caches?|from_config)|compile_or_warm_up_model|load_model)$"
    r"|(?:nn/parallel/distributed|fully_sharded_data_parallel|deepspeed/runtime/(?:pipe/)?engine)\.py:\d{1,6} in __init__$"
)
_ACTIVITIES: tuple[tuple[re.Pattern[str], Stage], ...] = (
    (_SAVES, "saving"),
    (_EVALUATES, "evaluating"),
    (_LOADS, "checkpoint_load"),
    (_INITIALISES, "init"),
    (_TRAINS, "iterating"),
)


def place_of(ranked: Ranked, facts: Facts) -> tuple[Stage | None, int | None]:
    """Return stage and last logged step of the first line of a fault.

    A state that lasts, as a loss that is not finite, is reported again at the end; its place is where it was first seen.
    A traceback shows which activity was running. The event that ended the run came after every rank's last step, although
    their lines may follow it in the log because each process flushes its own buffer.
    """
    best, first = ranked.best, ranked.best.first
    if best.fault.outlives:
        earlier = (finding.first for finding in ranked.findings if precedes(finding.first, first) == 1.0)
        first = min(earlier, key=lambda signal: (signal.stream != first.stream, signal.offset), default=first)
    stage, step = first.stage, first.iteration
    lasts = best.fault.outlives and not facts.streams[first.stream].in_traceback(first.offset)
    if first.compared or first.kind == "series" or lasts:
        return "iterating" if stage == "teardown" and step is not None else stage, step  # a comparison covers the loop
    stream = facts.streams[first.stream]
    if stage == "teardown" and stream.completed is None and not stream.stages.over_before(first.offset):
        # a launcher stops the other ranks after what happened, although its lines may come first
        stage = facts.end[0] if facts.end is not None else stream.stages.without_launcher(first.offset)
        if first.kind in LAUNCHER_KINDS and facts.end is None:
            stage = None
    if stage == "launch" and own_frame(first, facts):
        stage = "init"  # the program that was launched raised it
    stage = _by_frames(first, facts) or stage
    if stage in (None, "iterating") and (best.fault.id == "checkpoint_save" or _WRITES.search(first.line)):
        stage = "saving"
    if stage == "iterating" and _OF_CHECKPOINT.search(first.line):
        stage = "saving"
    return stage, _last_step(first, step, facts)


def _by_frames(signal: Signal, facts: Facts) -> Stage | None:
    """Return the stage of the innermost frame with a known activity in the traceback that ends at a line.

    If its own frames have none, those of the exceptions raised while it was handled do: their outer frames are shared.
    """
    low, high = chain_span(signal, facts)
    near = [
        exception
        for exception in facts.streams[signal.stream].exceptions
        if low <= structure_start(exception) < high and exception.resource.rank == signal.resource.rank
    ]
    own = [item for item in near if structure_start(item) <= signal.offset < item.end]
    if not own:
        return _by_stack(signal, facts)
    linked = [item for item in near if item not in own and _is_linked(item)]
    for exception in (*own, *linked):
        for frame in reversed(str(exception.fields.get("frames") or "").splitlines()):
            for activity, stage in _ACTIVITIES:
                if activity.search(frame):
                    return stage
    return None


def _by_stack(signal: Signal, facts: Facts) -> Stage | None:
    """Return the stage of the innermost frame with a known activity in the stack of a thread that holds a line."""
    for index, dump in facts.structures("stack_dump"):
        if index == signal.stream and dump.offset <= signal.offset < dump.end:
            for frame in str(dump.fields.get("frames") or "").splitlines():  # innermost first
                for activity, stage in _ACTIVITIES:
                    if activity.search(frame):
                        return stage
    return None


def _is_linked(exception: Structure) -> bool:
    """Whether an exception is one of a chain."""
    return int(exception.fields.get("chain") or 0) > 0 or bool(exception.fields.get("chained"))


def _last_step(signal: Signal, step: int | None, facts: Facts) -> int | None:
    """Return the run's last step if the line ended the run, otherwise the step before the line."""
    last = facts.last_point()
    if last is None or last.step is None or step is None or signal.survived:
        return step
    known = signal.time is not None and last.time is not None
    later = known and (last.time or 0.0) > (signal.time or 0.0) + CLOCK_SKEW
    if later or facts.streams[signal.stream].steps_after(signal.offset) >= PROGRESS_AFTER:
        return step
    return max(step, last.step)
