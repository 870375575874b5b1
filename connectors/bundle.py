"""The descriptive part of a bundle: job.yaml."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from kb.model import Gap, Job

LARGEST = 1 << 20


class _NoAliases(yaml.SafeLoader):
    """Plain YAML without anchors: a bundle comes from anywhere."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            raise yaml.constructor.ConstructorError(None, None, "aliases are not allowed", event.start_mark)
        return super().compose_node(parent, index)


def read_job(folder: Path) -> tuple[Job, tuple[Gap, ...]]:
    """Read job.yaml of a bundle; an empty job where there is none, a gap where it cannot be used."""
    path = folder / "job.yaml"
    if not path.is_file():
        return Job(), ()
    try:
        if path.stat().st_size > LARGEST:
            return Job(), (Gap("job_unreadable", str(path), f"larger than {LARGEST} bytes; not read"),)
        raw = yaml.load(path.read_text("utf-8", errors="replace"), Loader=_NoAliases)  # noqa: S506 - a safe loader
    except (OSError, yaml.YAMLError, RecursionError, ValueError) as error:
        return Job(), (Gap("job_unreadable", str(path), f"not usable: {' '.join(str(error).split())}"),)
    if not isinstance(raw, dict):
        return Job(), (Gap("job_unreadable", str(path), "not a mapping of names to values"),)
    return _job(raw), ()


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
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _time(value: object) -> float | None:
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        try:
            parsed = datetime.fromisoformat(value)
        except ValueError:
            return None
        return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
    return None


def _nodes(value: object) -> dict[str, tuple[int, ...]]:
    if not isinstance(value, dict):
        return {}
    return {
        str(node)[:200]: tuple(rank for rank in ranks if isinstance(rank, int))
        for node, ranks in value.items()
        if isinstance(ranks, list)
    }
