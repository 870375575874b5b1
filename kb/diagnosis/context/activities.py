"""The stage that the frames of a traceback or stack show: a save, an evaluation, a start, or the training loop."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from kb.diagnosis.context.own_frame import LIBRARY
from kb.model import Stage
from kb.regex.lazy import lazy_compile

_EVALUATES = lazy_compile(
    r" in (?:_?(?:(?:model|net|network)_)?(?:evaluate|validate|val|valid)"
    r"|estimate_loss(?:es)?|(?:eval|validation|val)_loss"
    r"|_?evaluate_(?:and_\w{1,40}|on_\w{1,40}|(?:one_)?epoch|core|model|tasks?|examples?|batch|dataset|loader|loop|all|split)"
    r"|(?:(?:non)?dist_)?validation|_?(?:run_)?test_(?:epoch|loop|step)|evaluation_(?:loop|step)|(?:validate|eval)_(?:one_)?(?:epoch|step|batch|model)"
    r"|validation_(?:epoch|loop|step)|prediction_(?:loop|step)|(?:run|do)_(?:eval|evaluation|validation)|_run_sanity_check"
    r"|compute_metrics|calc(?:ulate)?_(?:psnr|ssim|fid|metrics))$"
    r"|lightning\S{0,80}/loops/(?:\w{1,40}/)?(?:evaluation|prediction)_\w{1,40}\.py:\d{1,6} in "
)
# of the run's own code; libraries switch a model's mode, or compute an expression, with it
_OWN_EVALUATION = lazy_compile(r" in (?:(?!(?:set|to|switch|safe|literal|lazy|pre|post)_)[a-z]\w{0,30}_)?eval$")
# what validates settings and records evaluates nothing
_OF_SETTINGS = lazy_compile(
    r"(?i)(?:config|cfg|schema|settings|arguments|pydantic|omegaconf|hydra|marshmallow|attrs?/)[^:]{0,60}:\d"
)
_SAVES = lazy_compile(
    r" in _?save_(?:\w{1,40}_)?(?:checkpoint|ckpt|pretrained|model|weights|networks?|(?:training_)?state|state_dict|optimizer_and_scheduler)$"
    r"|(?:paddle/framework/io\w*|/\w{0,40}(?:model|trainer|saver))\.py:\d{1,6} in (?:_legacy_)?save$"
    r"|(?:serialization|checkpoint\w*|safetensors)\S{0,80}:\d{1,6} in (?:async_)?save$"
    r"|distributed/checkpoint/\S{1,80}:\d{1,6} in _?(?:save|write)\w{0,40}$"
    r"|numpy/lib/\S{1,40}:\d{1,6} in _?savez?(?:_compressed)?$"
)
# a bare `save` may write a plot or a table: what its caller passes says what it saves
_SAVE = lazy_compile(r" in _?save$")
_PASSES_STATE = lazy_compile(
    r"\bsave\([^\n]{0,120}?(?:\b(?:\w{1,30}_)?(?:model|optimizer|optim|opt|state_dict|train_state)\b|check_?point|ckpt)"
)
_LOADS = lazy_compile(
    r" in _?(?:load_(?:\w{1,40}_)?(?:checkpoint|ckpt)|load_from_checkpoint|resume_from_checkpoint)$"
    r"|distributed/checkpoint/\S{1,80}:\d{1,6} in _?(?:load|read)\w{0,40}$"
)
# The loop itself; only where no frame further inside shows what it was doing.
_TRAINS = lazy_compile(
    r" in (?:_?(?:run_)?train(?:ing)?_(?:step|batch|one_step|one_epoch|epoch|one_batch|iteration)|forward_backward_step|_?optimizer_step|_?run_optimization"
    r"|fwd_?bwd_(?:\w{1,20}_)?step)$"
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
# What only a training step does; no evaluation computes gradients or changes weights.
_LEARNS = lazy_compile(
    r"torch/(?:autograd/__init__|_tensor|tensor|optim/\w{1,40}|optim/lr_scheduler|amp/grad_scaler|cuda/amp/grad_scaler)\.py:\d{1,6} in (?:backward|step|_maybe_opt_step)$"
    r"|(?:deepspeed/runtime/\S{0,40}|accelerate/(?:accelerator|optimizer))\.py:\d{1,6} in (?:backward|step)$"
    r"|paddle/\S{0,80}\.py:\d{1,6} in (?:backward|minimize)$|keras/\S{0,80}\.py:\d{1,6} in (?:apply_gradients|apply_grads|minimize)$"
    r"|lightning\S{0,80}/loops/\S{0,60}(?:training_epoch_loop|optimi[sz]ation|optimizer_loop|automatic|manual)\w{0,20}\.py:\d{1,6} in "
)
_ACTIVITIES: tuple[tuple[re.Pattern[str], Stage], ...] = (
    (_SAVES, "saving"),
    (_EVALUATES, "evaluating"),
    (_LOADS, "checkpoint_load"),
    (_INITIALISES, "init"),
    (_TRAINS, "iterating"),
    (_LEARNS, "iterating"),
)
# A model that is called, which a training function and an evaluation do alike.
_COMPUTES = lazy_compile(
    r"torch/nn/modules/module\.py:\d{1,6} in (?:_call_impl|_wrapped_call_impl|__call__)$"
    r"|(?:paddle/\S{0,60}layers?|mindspore/nn/cell|keras/\S{0,60}(?:base_layer|layer|training\w{0,12}|trainer))\.py:\d{1,6} in (?:__call__|construct|call|train_function)$"
    r"|tensorflow/python/\S{0,60}\.py:\d{1,6} in (?:run|_run|_do_run|quick_execute)$|flax/\S{0,60}\.py:\d{1,6} in apply$"
)
_PREDICTS = lazy_compile(r" in _?(?:predict|inference|test)(?:_\w{1,30})?$")
_TRAINING = lazy_compile(
    r" in _?(?:\w{1,30}_)?(?:train|fit|training|finetune|fine_tune|pretrain)(?:_(?:model|loop|net|network|one|worker|func|function|fn|process|impl|gan|\d))?$"
)

# Steps of a start. They can come again later, so they count only where no step was logged before.
_PLACES_MODEL = lazy_compile(
    r"torch/nn/modules/module\.py:\d{1,6} in (?:to|cuda|npu|half|bfloat16|float)$|torch/cuda/__init__\.py:\d{1,6} in (?:set_device|_lazy_init|init|get_device_properties)$"
    r"|transformers/\S{0,80}\.py:\d{1,6} in (?:from_pretrained|_from_pretrained|_move_model_to_device|_setup_devices|__post_init__)$"
    r"|(?:trainer|training_args|accelerator|state|strategies/\w{1,40})\.py:\d{1,6} in (?:__init__|prepare|prepare_model|setup_environment)$"
    r"|torch/optim/\w{1,40}\.py:\d{1,6} in __init__$|argparse\.py:\d{1,6} in (?:parse_args|parse_known_args|error)$"
    r"|(?:hydra|omegaconf)/\S{1,80}\.py:\d{1,6} in |ctypes/__init__\.py:\d{1,6} in __init__$|jax/_src/xla_bridge\.py:\d{1,6} in "
)
_READS_DATA = lazy_compile(
    r"/datasets/(?:load|builder|arrow_dataset|arrow_reader|dataset_dict)\.py:\d{1,6} in (?:load_dataset\w{0,8}|load_from_disk|from_file|map|download_and_prepare|as_dataset|_read_files|select)$"
    r"|torch/utils/data/(?:dataloader|sampler|distributed)\.py:\d{1,6} in __init__$"
    r"| in (?:build|get|make|create|prepare|load|setup)_(?:\w{1,30}_)?(?:data_?sets?|data_?loaders?|datamodule|dataset_\w{1,20}|data)$"
)
_PARSES = lazy_compile(r"/(?:yaml|ruamel|json5?|hjson|tomli?|tomllib|configparser)(?:/\S{1,60})?\.py:\d")  # of settings
_BUILDS = lazy_compile(r":\d{1,6} in __init__$")
_OF_DATA = lazy_compile(r"(?i)data_?(?:set|loader|module)|/data/")
_READS_ARRAY = lazy_compile(r"/numpy/lib/\w{1,20}\.py:\d{1,6} in (?:load|loadtxt|genfromtxt|read_array)$")
_READS_FILE = lazy_compile(
    r"\bh5py[/.]|/(?:pandas|pyarrow|PIL|cv2|webdataset|soundfile|torchaudio|tensorflow_datasets)/|/(?:csv|gzip|tarfile|zipfile|pickle)\.py:\d"
)
_IMPORTS = lazy_compile(r":\d{1,6} in <module>$|^<frozen importlib|importlib/__init__\.py:\d")
_LOOPS = lazy_compile(r"torch/utils/data/dataloader\.py:\d{1,6} in (?:__next__|_next_data|_process_data)$")


def activity(frames: Sequence[str], *, evaluates: bool = False) -> Stage | None:
    """Return the stage of the innermost frame whose activity is known, and of what a training function does with its model.

    `frames`: as `path:line in function`, innermost first. `evaluates`: whether the bar of an evaluation runs; a function that
    trains calls its model there, too.
    """
    called = predicts = False
    for frame in frames:
        for known, stage in _ACTIVITIES:
            if known.search(frame) and not (stage == "evaluating" and _OF_SETTINGS.search(frame)):
                return stage
        if _OWN_EVALUATION.search(frame) and not LIBRARY.search(frame):
            return "evaluating"
        if (called or predicts) and _TRAINING.search(frame):
            return "evaluating" if predicts or evaluates else "iterating"
        called = called or _COMPUTES.search(frame) is not None
        predicts = predicts or _PREDICTS.search(frame) is not None
    return None


def saves_named(frames: Sequence[str], sources: Mapping[str, str]) -> list[str]:
    """Return frames in which a bare `save` that is given a model, its state or a checkpoint's name is `save_checkpoint`.

    `frames`: as for `activity`. `sources`: the line of source of each frame, if known.
    """
    called = zip(frames, [*frames[1:], ""], strict=False)
    return [
        f"{frame.rpartition(' in ')[0]} in save_checkpoint"
        if _SAVE.search(frame) and _PASSES_STATE.search(sources.get(caller, ""))
        else frame
        for frame, caller in called
    ]


def computes(frames: Sequence[str]) -> bool:
    """Whether frames show that a model is called."""
    return any(_COMPUTES.search(frame) for frame in frames)


def start_activity(frames: Sequence[str]) -> Stage | None:
    """Return the stage of a start that frames show, for a program that has made no step; None if they may be of a step.

    `frames`: as for `activity`, of a whole traceback: its outermost frame is that of a module.
    """
    if not frames or not _IMPORTS.search(frames[-1]):
        return None
    if computes(frames) or any(_LOOPS.search(frame) for frame in frames):
        return None
    if all(_IMPORTS.search(frame) for frame in frames):
        return "init" if len(frames) > 1 else None
    array = any(map(_READS_ARRAY.search, frames))
    reads = array
    for frame in frames:
        reads = reads or _READS_FILE.search(frame) is not None
        if (stage := _started(frame, reads=reads)) is not None:
            return stage
    return "data_load" if array else None


def is_of_own_start(frames: Sequence[str]) -> bool:
    """Whether frames belong to the start of a program: it did not call its model, train or read batches, if it has made no step."""
    own = bool(frames) and _IMPORTS.search(frames[-1]) is not None and not LIBRARY.search(frames[-1])
    works = (_COMPUTES, _LEARNS, _LOOPS, _TRAINING)
    return own and not any(known.search(frame) for known in works for frame in frames)


def _started(frame: str, *, reads: bool) -> Stage | None:
    """Return the stage of a start that a frame shows; None if it is no part of one. `reads`: a frame inside reads a file of data."""
    if _READS_DATA.search(frame) and not _PARSES.search(frame):
        return "data_load"
    if _PLACES_MODEL.search(frame):
        return "init"
    if _BUILDS.search(frame) and not LIBRARY.search(frame):
        return "data_load" if reads or _OF_DATA.search(frame) else "init"
    return None
