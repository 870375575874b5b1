"""The descriptive part of a bundle: job.yaml."""

from __future__ import annotations

import math
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from kb.model import Gap, Job

LARGEST = 256 * 1024  # ten thousand ranks by node are 60 KB
LAST = datetime(9999, 1, 1, tzinfo=UTC).timestamp()
MOST = 10**12  # counts beyond this are typing errors
_NO_YAML = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)  # of odd tags and values


class _NoAliases(yaml.SafeLoader):
    """Plain YAML without anchors: a bundle comes from anywhere."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.constructor.ConstructorError(None, None, "aliases are not allowed", event.start_mark)
        return super().compose_node(parent, index)


def read_job(folder: Path) -> tuple[Job, tuple[Gap, ...]]:
    """Read job.yaml of a bundle; an empty job where there is none, a gap where it cannot be used."""
    path = folder / "job.yaml"
    try:
        raw = _loaded(path)
    except FileNotFoundError:
        return Job(), ()
    except OSError as error:
        reason = f"cannot be read: {error.strerror or error}"
    except (yaml.YAMLError, *_NO_YAML) as error:
        reason = f"not usable: {' '.join(str(error).split())[:300]}"
    else:
        return _job(raw), ()
    return Job(), (Gap("job_unreadable", str(path), reason),)


def _loaded(path: Path) -> dict[Any, Any]:
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("it is no file")
    if status.st_size > LARGEST:
        raise ValueError(f"it is larger than {LARGEST} bytes")
    with path.open("rb") as handle:
        text = handle.read(LARGEST).decode("utf-8", errors="replace")
    raw = yaml.load(text, Loader=_NoAliases)  # noqa: S506 - a safe loader
    if raw is not None and not isinstance(raw, dict):
        raise TypeError("it is not a mapping of names to values")
    return raw or {}


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
    )


def _text(value: object) -> str | None:
    return str(value)[:200] if isinstance(value, str | int | float) and not isinstance(value, bool) else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST else None


def _time(value: object) -> float | None:
    """Seconds since the epoch; None for what is no time of the calendar."""
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
