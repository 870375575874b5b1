"""Reads the descriptions of a bundle: job.yaml, and bundle.yaml, which describes the files."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from connectors.base.untrusted import read
from kb.model import Attempt, Gap, Job, JobRecord, Resource
from kb.regex.lazy import lazy_compile
from kb.values import dataclass

LARGEST = 256 * 1024  # ten thousand ranks by node are 60 KB
LARGEST_DESCRIPTION = 4 << 20  # of bundle.yaml: ten thousand files are 1 MB
MOST_GAPS = 1000
MOST_ATTEMPTS = 200
MOST_RULES = 100  # rules with parameters in a job.yaml, and parameters of one rule
MOST_WRONG = 20
LONGEST_TEXT = 2000
LAST = datetime(9999, 1, 1, tzinfo=UTC).timestamp()
LONGEST_ARGS = 16_384
MOST = 10**12  # larger counts are typing errors
_EXIT = lazy_compile(r"(-?\d{1,6})(?::(\d{1,3}))?")
_NO_YAML = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)  # raised for unusual tags and values


class _NoAliases(yaml.SafeLoader):
    """Plain YAML without anchors, because bundles are untrusted."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.constructor.ConstructorError(None, None, "aliases are not allowed", event.start_mark)
        return super().compose_node(parent, index)


def read_job(folder: Path) -> tuple[Job, tuple[Gap, ...]]:
    """Read job.yaml of a bundle. Return an empty job if there is none, and a gap if it is unusable."""
    record, gaps = read_record(folder, "bundle")
    return record.job, gaps


def read_record(folder: Path, system: str) -> tuple[JobRecord, tuple[Gap, ...]]:
    """Like read_job, with what schedulers add: namespace, partition, topology. `system` is the system that knows the job."""
    path = folder / "job.yaml"
    try:
        raw = _load_yaml(path)
    except FileNotFoundError:
        return JobRecord(Job(), system), ()
    except OSError as error:
        reason = f"cannot be read: {error.strerror or error}"
    except (yaml.YAMLError, *_NO_YAML) as error:
        reason = f"invalid: {' '.join(str(error).split())[:300]}"
    else:
        params, gaps = _params(raw.get("params"), str(path))
        return _record(raw, replace(_job(raw), params=params), system), gaps
    return JobRecord(Job(), system), (Gap("job_unreadable", str(path), reason),)


@dataclass(frozen=True, slots=True)
class BundleDescription:
    """The content of bundle.yaml, by the files' paths in the bundle.

    `written`: when each file was last modified at its source (seconds since the epoch). `speakers`: who wrote a file, if its
    name does not tell. `gaps`: what could not be collected.
    """

    written: Mapping[str, float] = field(default_factory=dict)
    speakers: Mapping[str, Resource] = field(default_factory=dict)
    gaps: tuple[Gap, ...] = ()


def read_description(folder: Path) -> tuple[BundleDescription, tuple[Gap, ...]]:
    """Read bundle.yaml of a bundle. Return an empty description if there is none, and a gap if it is unusable."""
    path = folder / "bundle.yaml"
    try:
        raw = _load_yaml(path, LARGEST_DESCRIPTION)
    except FileNotFoundError:
        return BundleDescription(), ()
    except OSError as error:
        reason = f"cannot be read: {error.strerror or error}"
    except (yaml.YAMLError, *_NO_YAML) as error:
        reason = f"invalid: {' '.join(str(error).split())[:300]}"
    else:
        told = raw.get("files")
        files = {
            str(name): one for name, one in (told.items() if isinstance(told, dict) else ()) if isinstance(one, dict)
        }
        times = {name: _time(one.get("written")) for name, one in files.items()}
        speakers = {name: _speaker(one) for name, one in files.items()}
        return BundleDescription(
            {name: time for name, time in times.items() if time is not None},
            {name: who for name, who in speakers.items() if who != Resource()},
            _collection_gaps(raw.get("gaps")),
        ), ()
    rules_out = "when logs without timestamps went silent, how old dumps are, and what could not be collected"
    return BundleDescription(), (Gap("bundle_unreadable", str(path), reason, rules_out=rules_out),)


def _speaker(told: Mapping[Any, Any]) -> Resource:
    return Resource(
        cluster=_text(told.get("cluster")),
        node=_text(told.get("node")),
        rank=_whole(told.get("rank")),
        local_rank=_whole(told.get("local_rank")),
        gpu=_text(told.get("gpu")),
        container=_text(told.get("container")),
    )


def _collection_gaps(told: object) -> tuple[Gap, ...]:
    names = ("code", "source", "reason", "scope", "asked", "got", "rules_out")
    found = (
        {name: str(one[name])[:LONGEST_TEXT] for name in names if one.get(name)}
        for one in (told[:MOST_GAPS] if isinstance(told, list) else ())
        if isinstance(one, dict)
    )
    return tuple(Gap(**one) for one in found if {"code", "source", "reason"} <= one.keys())


def _load_yaml(path: Path, largest: int = LARGEST) -> dict[Any, Any]:
    data = read(path, largest + 1, path.parent)
    if len(data) > largest:
        raise ValueError(f"it is larger than {largest} bytes")
    text = data.decode("utf-8", errors="replace")
    raw = _parse_yaml(text)
    if raw is not None and not isinstance(raw, dict):
        raise TypeError("it is not a mapping of names to values")
    return raw or {}


def _parse_yaml(text: str) -> Any:
    """Parse YAML. Large texts use the C parser, which is ten times faster but would accept aliases."""
    fast = getattr(yaml, "CSafeLoader", None)
    if fast is None or len(text) <= LARGEST:
        return yaml.load(text, Loader=_NoAliases)  # noqa: S506 - a safe loader
    if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=fast)):
        raise ValueError("aliases are not allowed")
    return yaml.load(text, Loader=fast)  # noqa: S506 - a safe loader


def _job(raw: dict[Any, Any]) -> Job:
    return Job(
        id=_text(raw.get("id")),
        name=_text(raw.get("name")),
        cluster=_text(raw.get("cluster")),
        framework=_text(raw.get("framework")),
        world_size=_whole(raw.get("world_size")),
        attempt=_whole(raw.get("attempt")),
        state=_text(raw.get("state")),
        start=_time(raw.get("start")),
        end=_time(raw.get("end")),
        collected_at=_time(raw.get("collected_at")),
        nodes=_nodes(raw.get("nodes")),
        owner=_text(raw.get("owner")),
        log_interval=_whole(raw.get("log_interval")),
        checkpoint_interval=_whole(raw.get("checkpoint_interval")),
        gpus=_whole(raw.get("gpus")),
        args=_text(raw.get("args"), LONGEST_ARGS),
        attempts=_attempts(raw.get("attempts")),
        last_good=_text(raw.get("last_good")),
        image=_text(raw.get("image"), 400),
        topology=_topology(raw.get("topology")),
        exit_code=_exit(raw.get("exit_code"))[0],
        signal=_whole(raw.get("signal")) or _exit(raw.get("exit_code"))[1],
    )


def _exit(value: object) -> tuple[int | None, int | None]:
    """Exit code and signal: a number, negative for a signal as in Python's subprocess, or Slurm's `1:0`."""
    found = _EXIT.fullmatch(str(value).strip()) if not isinstance(value, bool) else None
    if found is None:
        return None, None
    code, signal = int(found[1]), int(found[2] or 0)
    return (0, -code) if code < 0 else (code, signal or None)


def _record(raw: dict[Any, Any], job: Job, system: str) -> JobRecord:
    return JobRecord(
        job,
        system,
        namespace=_text(raw.get("namespace")),
        partition=_text(raw.get("partition")),
        attempts=job.attempts,
        topology=job.topology,
        last_good=job.last_good,
    )


def _topology(told: object) -> dict[str, dict[str, str]]:
    """Topology of nodes (rack, leaf, rail, nvlink_domain); entries of another form are ignored."""
    listed = told.items() if isinstance(told, dict) else ()
    places = {str(node)[:200]: places for node, places in listed if isinstance(places, dict)}
    return {
        node: {str(key)[:200]: text for key, value in told.items() if (text := _text(value)) is not None}
        for node, told in places.items()
    }


def _params(told: object, source: str) -> tuple[dict[str, dict[str, float]], tuple[Gap, ...]]:
    """Parameters of this job by rule and name, as in site.yaml. Entries of another form are ignored and reported."""
    rules = list(told.items())[:MOST_RULES] if isinstance(told, dict) else []
    params: dict[str, dict[str, float]] = {}
    wrong = [] if told is None or isinstance(told, dict) else ["params"]
    for rule, given in rules:
        if not isinstance(given, dict):
            wrong.append(f"params.{rule}")
            continue
        for name, value in list(given.items())[:MOST_RULES]:
            number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MOST
            if number:
                params.setdefault(str(rule)[:200], {})[str(name)[:200]] = float(value)
            else:
                wrong.append(f"params.{rule}.{name}")
    asked = "use rule: {parameter: number} with numbers of 0 or more; ignored"
    return params, tuple(Gap("job_params", source, f"{one[:200]}: {asked}", scope="job") for one in wrong[:MOST_WRONG])


def _attempts(told: object) -> tuple[Attempt, ...]:
    """The runs of the job according to its scheduler; entries without a number are ignored."""
    listed = told[:MOST_ATTEMPTS] if isinstance(told, list) else ()
    found = [_attempt(one) for one in listed if isinstance(one, dict)]
    return tuple(sorted((one for one in found if one is not None), key=lambda one: one.number))


def _attempt(told: Mapping[Any, Any]) -> Attempt | None:
    number, nodes = _whole(told.get("number")), told.get("nodes")
    if number is None:
        return None
    return Attempt(
        number,
        state=_text(told.get("state")),
        reason=_text(told.get("reason")) or "",
        exit_code=_whole(told.get("exit_code")),
        signal=_whole(told.get("signal")),
        queued=_time(told.get("queued")),
        scheduled=_time(told.get("scheduled")),
        initialised=_time(told.get("initialised")),
        first_iterated=_time(told.get("first_iterated")),
        last_iterated=_time(told.get("last_iterated")),
        stopped=_time(told.get("stopped")),
        nodes=tuple(str(node)[:200] for node in nodes) if isinstance(nodes, list) else (),
    )


def _text(value: object, most: int = 200) -> str | None:
    return str(value)[:most] if isinstance(value, str | int | float) and not isinstance(value, bool) else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST else None


def _time(value: object) -> float | None:
    """Seconds since the epoch, None if it is not a valid time."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if isinstance(value, datetime):
        value = (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < LAST and math.isfinite(value):
        return float(value)
    return None


def _nodes(value: object) -> dict[str, tuple[int, ...]]:
    if not isinstance(value, dict):
        return {}
    return {
        str(node)[:200]: tuple(rank for rank in ranks if _whole(rank) is not None)
        for node, ranks in value.items()
        if isinstance(ranks, list)
    }
