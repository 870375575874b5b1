"""What the lines near a fault name and its own line does not: adapter, host, parameter, file, address of a port, model.

A name is only returned where the lines near the fault, of the same process, agree on one; of missing files, the first is
an example.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from kb.diagnosis.context.line_words import missing_in
from kb.diagnosis.context.own_frame import exceptions_at
from kb.diagnosis.findings import chain_span
from kb.diagnosis.ranking import Ranked
from kb.facts.job_facts import Facts
from kb.facts.log.chained_exceptions import structure_start
from kb.facts.patterns.signals import Signal
from kb.parsers.logs.lines import plain
from kb.parsers.logs.prefixes import peel
from kb.regex.lazy import lazy_compile
from kb.scanning.summary import head_lines, kept_lines

_NEAR = 2048  # bytes between a line and those of the same event
_SHOWN = 240  # characters of a message that people see at once
_MESSAGE = 4000  # characters of a message that are searched
_LINE = 512  # characters of a line that are searched
_OF_SERVICES = frozenset({"external_network", "access_denied"})
_ADAPTER = lazy_compile(
    r"(?<![\w/.])((?:mlx[45]_(?:bond_)?\d{1,2}|ib[ps]\d\w{1,12}|roce\w{2,12}|rdmap\w{2,12}|bnxt_re\d{1,2}|irdma\d{1,2}|ionic_\d{1,2}|hns_\d{1,2})(?::\d{1,2})?)(?![\w.])"
)
# a host that was asked, and none of an address at which to read more
_HOST = lazy_compile(
    r"(?:\bhttps?://|\bhost=['\"])(?!docs\.|[\w.-]{0,60}\.readthedocs\.|github\.com/[\w./-]{1,120}/(?:issues|wiki|blob)\b)([\w-]{1,60}(?:\.[\w-]{1,60}){1,6})(?![\w@.-])"
)
# a module path of at least three parts behind the word, as in `Parameter at index 8 with name h.3.mlp.weight`
_PARAMETER = lazy_compile(
    r"\b(?i:param(?:eter)?|weight|buffer|layer|module)s?\b(?: at index \d{1,9})?(?: with)?(?: name| named| called)?[ :=]{1,3}"
    r"['\"`]?(?!torch\.|numpy\.|transformers\.|self\.)((?=[A-Za-z_])(?:\w{1,80}\.){2,20}\w{1,80})(?![\w(/]|\.\w)"
)
_DATA_FILE = lazy_compile(
    r"(?<![\w:/.*@-])([~.]{0,2}/?(?:[\w.@+=-]{1,80}/){0,16}[\w.@+=-]{1,120}\.(?:jsonl|parquet|tar|csv|tsv|arrow|h5|hdf5|npy|npz|tfrecord|mds|jpe?g|png|mp4|wav|flac)(?:\.(?:gz|zst|xz))?)(?![\w./*-])"
)
_CHECKPOINT_FILE = lazy_compile(
    r"(?<![\w:/.*@-])([~.]{0,2}/?(?:[\w.@+=-]{1,80}/){1,16}[\w.@+=-]{1,120}\.(?:pt|pth|ckpt|safetensors|distcp))(?![\w./*-])"
)
# a model or dataset of a hub: the value of a setting, or the part of an address
_REPOSITORY = lazy_compile(
    r"(?:\b\w{0,30}(?:model|pretrained|tokenizer|repo|dataset)\w{0,30}['\"]?(?:=|: ?| )['\"]?(?=[A-Za-z0-9])"
    r"|\b(?:huggingface\.co|hf-mirror\.com)/(?:api/)?(?:models/|datasets/)?)"
    r"([A-Za-z0-9][\w.-]{1,60}/[A-Za-z0-9][\w.-]{1,90})(?=[\s,'\")\]}]|/(?:resolve|tree|raw|blob)/|$)"
)
_FOLDERS = frozenset(
    re.findall(
        r"\w+",
        "api cache checkpoint checkpoints ckpt ckpts conf config configs data dataset datasets exp experiments log logs model models"
        " out output outputs result results run runs save saved scripts src tmp weights work",
    )
)  # as the first part, a path and no owner
_SUFFIX = lazy_compile(r"\.(?:json|jsonl|ya?ml|py|sh|txt|md|bin|pt|pth|ckpt|csv|log|git)$")
_TRACKERS = lazy_compile(r"(?i)\b(?:wandb|mlflow|comet_ml|comet|neptune|clearml)\b")
_TRACKER = lazy_compile(r"(?i)\W{0,8}(?:wandb|mlflow|comet|neptune|clearml)\b")
_ANY_HOST = frozenset({"0.0.0.0", "127.0.0.1", "localhost"})  # noqa: S104 - compared, not bound to


class _Named(NamedTuple):
    """Classes of faults, what their lines may name, and the word for it."""

    faults: frozenset[str]
    shape: re.Pattern[str]
    words: str
    warned: bool = True  # whether lines that warn or skip count, too


_SHAPES = (
    _Named(frozenset({"rdma_link", "rdma_setup"}), _ADAPTER, "the adapter "),
    _Named(_OF_SERVICES, _HOST, ""),
    _Named(frozenset({"autograd_misuse", "shape_or_dtype", "checkpoint_load"}), _PARAMETER, "the parameter "),
    _Named(frozenset({"data_error"}), _DATA_FILE, "the file ", warned=False),
    _Named(frozenset({"checkpoint_load", "checkpoint_save"}), _CHECKPOINT_FILE, "the file ", warned=False),
)
_OF_FILES = frozenset({"data_error", "checkpoint_load", "external_network"})
_WARNS = lazy_compile(r"(?i)\bwarn|\bskip|\bignor")
_LOCAL = lazy_compile(r"\[Errno (?:1|2|13)\]|os error 13")  # what the file system of the node refuses, not a hub
_OF_HUBS = frozenset({"external_network", "access_denied", "checkpoint_load"})


def named_beside(ranked: Ranked, facts: Facts, told: str) -> Iterator[str]:
    """Yield a sentence for each kind of object that lines near a fault name; `told`: what the diagnosis already says."""
    best = ranked.best
    fault, first = best.fault.id, best.first
    message = f"{first.line}\n{first.captures.get('message', '')}"[:_MESSAGE]
    own = f"{told}\n{message[:_SHOWN]}"
    lines = [line[:_LINE] for line in _beside(ranked, facts)]
    if not _of_tracker(ranked, facts, message):
        lines = [line for line in lines if not _TRACKER.match(line)]
    asked_hub = fault in _OF_HUBS and not _LOCAL.search(message)
    models = list(_repository(ranked, facts, message, lines)) if asked_hub and not _repositories([own]) else []
    for kind in _SHAPES:
        if fault in kind.faults and not (models and kind.shape is _HOST):
            yield from _only(kind, told, own, message, lines if kind.warned else _calm(lines))
    yield from models
    if fault in _OF_FILES and not missing_in(own):
        chain = fault in _OF_SERVICES  # a local file that is missing is why something was asked of a service
        yield from _missing_files(message, list(_chain(ranked, facts)) if chain else lines)
    if fault == "port_in_use" and (port := best.captures.get("to_port") or best.captures.get("port")):
        yield from _address(port, own, lines)


def _of_tracker(ranked: Ranked, facts: Facts, message: str) -> bool:
    """Whether a fault is one of an experiment tracker, by its message or its traceback: else the tracker's lines are about other things."""
    first = ranked.best.first
    frames = (str(item.fields.get("frames") or "") for item in exceptions_at(first, facts))
    return any(_TRACKERS.search(text) is not None for text in (message, *frames))


def _only(kind: _Named, told: str, own: str, message: str, lines: Iterable[str]) -> Iterator[str]:
    """Yield the one name of a kind in the message of a fault or in the lines around it; none if it is shown, or others differ."""
    if kind.shape.search(own):
        return
    for where, texts in (("Its message", [message]), ("A line beside it", lines)):
        names = {found[1] for text in texts for found in kind.shape.finditer(text)}
        if names:
            name = names.pop()
            if not names and name not in told:
                yield f"{where} names {kind.words}{name}."
            return


def _calm(lines: Iterable[str]) -> list[str]:
    """Return the lines that neither warn nor say that something is skipped."""
    return [line for line in lines if not _WARNS.search(line)]


def _missing_files(message: str, lines: Iterable[str]) -> Iterator[str]:
    names = list(dict.fromkeys(filter(None, map(missing_in, (message, *_calm(lines))))))
    if len(names) == 1:
        yield f"A line beside it says that {names[0]} is missing."
    elif names and len({name.rpartition("/")[0] for name in names}) == 1:
        yield f"Lines beside it say that files are missing, such as {names[0]}."


def _address(port: str, own: str, lines: Iterable[str]) -> Iterator[str]:
    shape = re.compile(rf"(?<![\w.:-])([A-Za-z][\w.-]{{1,80}}|(?:\d{{1,3}}\.){{3}}\d{{1,3}}):{re.escape(port)}\b")
    names = {found[1] for line in (own, *lines) for found in shape.finditer(line)} - _ANY_HOST
    if len(names) == 1 and (host := names.pop()) not in own:
        yield f"A line beside it names the address {host}:{port}."


def _repositories(lines: Iterable[str]) -> set[str]:
    found = {match[1].rstrip(".") for line in lines for match in _REPOSITORY.finditer(line)}
    return {name for name in found if name.partition("/")[0].lower() not in _FOLDERS and not _SUFFIX.search(name)}


def _repository(ranked: Ranked, facts: Facts, message: str, lines: Sequence[str]) -> Iterator[str]:
    """Yield the one model or dataset of a hub that the message names, else the lines beside it and the start of the log."""
    names = _repositories([message]) or _repositories([*lines, *_start(ranked, facts)])
    if len(names) == 1:
        yield f"The log names {names.pop()}."


def _start(ranked: Ranked, facts: Facts) -> Iterator[str]:
    """Yield the lines at the start of the log, where programs print their settings."""
    summary = facts.streams[ranked.best.first.stream].summary
    yield from (line[:_LINE] for _, line in head_lines(summary))


def _beside(ranked: Ranked, facts: Facts) -> Iterator[str]:
    """Yield the lines of the same log and process near the first line of a fault, as far as they were kept."""
    first = ranked.best.first
    stream, (low, high) = facts.streams[first.stream], chain_span(first, facts)
    for signal in (item for finding in (*ranked.findings, *ranked.folded) for item in finding.signals):
        if signal.stream == first.stream and _close(signal.offset, low, high) and _same(signal, first):
            yield signal.line
    yield from _chain(ranked, facts)
    of_file = stream.summary.ref.resource.rank
    for offset, line in kept_lines(stream.summary):
        if _close(offset, low, high) and first.resource.rank in (of_file, peel(line[:_LINE].encode()).rank):
            yield plain(line[:_LINE].encode()).decode(errors="replace")


def _chain(ranked: Ranked, facts: Facts) -> Iterator[str]:
    """Yield the messages of the exceptions that were being handled when a fault was raised, and of its own, last first."""
    first = ranked.best.first
    before = [item for item in facts.streams[first.stream].exceptions if structure_start(item) <= first.offset]
    place: int | None = None
    for item in reversed(before):
        number = int(item.fields.get("chain") or 0)
        if place is not None and (number != place - 1 or item.resource.rank != first.resource.rank):
            return
        yield f"{item.line}\n{item.fields.get('message') or ''}"
        place = number


def _close(offset: int, low: int, high: int) -> bool:
    return low - _NEAR <= offset <= high + _NEAR


def _same(signal: Signal, first: Signal) -> bool:
    return signal.resource.rank == first.resource.rank and signal.resource.node == first.resource.node
