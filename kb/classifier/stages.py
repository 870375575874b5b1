"""The stage of a run that a function belongs to, as its name and its library's area say it."""

from __future__ import annotations

from typing import Final

from kb.regex.lazy import lazy_compile

_LOADS = lazy_compile(r"(?:^|_)(?:load|read|get|from)(?:_|$)")
# The first that fits counts: what saves a checkpoint of a step saves, and does not train.
_STAGES: Final = (
    ("saving", lazy_compile(r"(?:^|_)(?:save|saved|saving|checkpointing|export|dump|upload|write|persist|serialize)(?:_|$)")),
    ("evaluating", lazy_compile(r"(?:^|_)(?:eval|evaluate|evaluation|validation|predict|prediction|inference|metrics?)(?:_|$)|^validate$")),
    (
        "checkpoint_load",
        lazy_compile(
            r"(?:^|_)(?:load|restore|resume|from)_(?:\w{1,40}_)?(?:checkpoint|ckpt|state_dict|state|weights|pretrained|model|adapter|safetensors|file)"
            r"|(?:^|_)(?:restore|resume)(?:_|$)"
        ),
    ),
    (
        "iterating",
        lazy_compile(
            r"^(?:forward|backward|step|fit|train|compute_loss|training_step|__next__|all_reduce|unscale_|zero_grad|clip_grad_\w{1,20}|reduce|update)$"
            r"|(?:^|_)(?:forward|backward|train|training|optimizer|loss|step)_?(?:step|batch|epoch|iteration|loop)?$"
        ),
    ),
    ("launch", lazy_compile(r"(?:^|_)(?:launch|launcher|spawn|submit)(?:_|$)")),
    ("teardown", lazy_compile(r"^(?:close|shutdown|destroy\w{0,40}|finalize|teardown|__exit__|__del__|stop|terminate|cleanup)$")),
    ("data_load", lazy_compile(r"(?:^|_)(?:datasets?|dataloaders?|collate|collator|tokenize|preprocess|__getitem__)(?:_|$)")),
    (
        "init",
        lazy_compile(
            r"^(?:__init__|__post_init__|__new__|prepare)$"
            r"|(?:^|_)(?:init|setup|initiali[sz]e|configs?|configure|args|arguments|parse|validate|build|create|register|prepare|make|check)(?:_|$)"
        ),
    ),
)  # fmt: skip
_OF_AREA: Final = {"launcher": "launch", "data": "data_load", "tokenizer": "data_load"}


def stage_of(area: str, function: str) -> str:
    """Return the stage that a function belongs to, in the words of kb.model.Stage; empty if neither its name nor its area shows it.

    `area`: of the file that the function is in (kb.classifier.areas). `function`: its name without its class.
    """
    name = function.lower()
    if area == "checkpoint" and _LOADS.search(name):
        return "checkpoint_load"
    return next((stage for stage, named in _STAGES if named.search(name)), _OF_AREA.get(area, ""))
