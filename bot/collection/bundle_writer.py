"""Writes the bundle of a collection: shared by parallel sources, bounded, masked, closed at the deadline.

After `close`, nothing is added: a source that is still running finds its share closed, and the bundle does not change.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from bot.render.report_json import iso
from bot.runtime.redaction import redact, redact_bytes
from bot.runtime.redaction.structure import redacted, redacted_path
from connectors.base.contract import SourceFailed, safe_name
from kb.model import Attempt, Gap, JobRecord, Resource, Window

FORMAT = 1
MOST_FILES = 60_000
MOST_GAPS = 1000
_PART = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,120}\Z")
_DEEPEST = 8
_BETWEEN = b"\n\n"  # logs that are masked together: no secret spans an empty line
Mask = Callable[[bytes], bytes]


@dataclass(slots=True)
class BundleWriter:
    """An evidence bundle being collected in `folder`. `most`: the byte limit of all sources together."""

    folder: Path
    most: int
    mask: Mask = redact_bytes
    written: int = 0
    _files: dict[str, dict[str, Any]] = field(default_factory=dict)
    _sizes: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _closed: bool = False

    def share(self, source: str, most: int) -> SourceSpool:
        """Return the share of one source."""
        return SourceSpool(self, source, most)

    def close(self) -> None:
        """Accept nothing more."""
        with self._lock:
            self._closed = True

    def finish(
        self, record: JobRecord, window: Window, now: float, sources: Mapping[str, str], gaps: Iterable[Gap]
    ) -> None:
        """Write job.yaml and bundle.yaml. `sources`: the outcome of each one, in words."""
        self.close()
        _dump(self.folder / "job.yaml", job_document(record, now))
        body = {
            "format": FORMAT,
            "made_by": "signalbox diagnose",
            "asked": {"job": record.job.id, "system": record.system, **_span(window)},
            "sources": dict(sources),
            "gaps": [
                {key: value for key, value in asdict(gap).items() if value}
                for gap in dict.fromkeys(gaps)  # each once, in order
            ][:MOST_GAPS],
            **self._file_descriptions(),
        }
        _dump(self.folder / "bundle.yaml", body)

    def _file_descriptions(self) -> dict[str, Any]:
        """Return the descriptions of the files; a query shared by many files is written once and referenced by number."""
        queries: dict[str, int] = {}
        files = {}
        for name, description in sorted(self._files.items()):
            query = description.get("query")
            number = {"query": queries.setdefault(query, len(queries) + 1)} if query else {}
            files[name] = {**description, **number}
        return {"queries": {number: query for query, number in queries.items()}, "files": files}

    def _place(self, path: str) -> str:
        """The path of a file in the bundle, with secrets masked."""
        if path in self._files:  # it was masked, and masking it again changes nothing
            return path
        return _checked(redacted_path(path))

    # -- for the shares --------------------------------------------------------------------------------------------

    def put(self, source: str, path: str, data: bytes, *, more: bool) -> None:
        """Write a file of a source, or add to it if there is `more`.

        Raises:
            SourceFailed: the deadline has passed, the bundle is too large or cannot be written, or another source wrote the file.
        """
        path = self._place(path)
        target = self.folder / path
        with self._lock:
            if self._closed:
                raise SourceFailed("timeout", "the deadline for collecting had passed", asked=path)
            before = 0 if more else self._sizes.get(path, 0)
            if self.written - before + len(data) > self.most:
                raise SourceFailed(
                    "too_large", f"all sources together returned more than {self.most:,} bytes", asked=path
                )
            known = self._files.get(path)
            if known is None and len(self._files) >= MOST_FILES:
                raise SourceFailed("too_large", f"more than {MOST_FILES:,} files", asked=path)
            if known is not None and known.get("source") not in (None, source):
                raise SourceFailed("bad_answer", f"{path} was already written by {known['source']}", asked=path)
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                with target.open("ab" if more and known else "wb") as handle:
                    handle.write(data)
            except OSError as error:
                raise SourceFailed("not_configured", f"the bundle cannot be written: {error.strerror}") from error
            self.written += len(data) - before
            self._sizes[path] = self._sizes.get(path, 0) + len(data) - before
            self._files.setdefault(path, {})["source"] = source

    def tell(self, path: str, told: Mapping[str, Any]) -> None:
        """Record the description of a file."""
        path = self._place(path)
        with self._lock:
            if not self._closed and len(self._files) < MOST_FILES:
                self._files.setdefault(path, {}).update(told)


@dataclass(slots=True)
class SourceSpool:
    """The share of one source in the bundle (connectors.base.contract.Spool)."""

    bundle: BundleWriter
    source: str
    most: int
    taken: int = 0
    shut: bool = False
    _sizes: dict[str, int] = field(default_factory=dict)

    def close(self) -> None:
        """Accept nothing more from this source."""
        self.shut = True

    def append(self, path: str, lines: bytes) -> None:
        """Append whole lines to a log, with secrets masked."""
        self._take(path, len(lines))
        self.bundle.put(self.source, path, self.bundle.mask(lines), more=True)

    def replace(self, logs: Mapping[str, bytes]) -> None:
        """Write whole logs in place of what was written there before, with secrets masked.

        They are masked together, which is much faster for many small ones. Masking keeps lengths, so they can be divided again.
        """
        masked = self.bundle.mask(_BETWEEN.join(logs.values()))
        start = 0
        for path, lines in logs.items():
            self._take(path, len(lines), self._sizes.get(path, 0))
            self._sizes[path] = len(lines)
            self.bundle.put(self.source, path, masked[start : start + len(lines)], more=False)
            start += len(lines) + len(_BETWEEN)

    def write(self, path: str, data: bytes) -> None:
        """Write a part that is not a log. Masking keeps lengths, so binary data stays valid."""
        self._take(path, len(data))
        self.bundle.put(self.source, path, self.bundle.mask(data), more=False)

    def describe(
        self,
        path: str,
        *,
        resource: Resource | None = None,
        query: str = "",
        unit: str = "",
        written: float | None = None,
    ) -> None:
        """Record the origin of a file, its query, and when it was last written."""
        who = {key: value for key, value in asdict(resource).items() if value is not None} if resource else {}
        told = {**who, "query": query[:4000], "unit": unit, "written": iso(written)}
        self.bundle.tell(path, {key: value for key, value in told.items() if value not in (None, "")})

    def _take(self, path: str, size: int, before: int = 0) -> None:
        if self.shut:
            raise SourceFailed("timeout", "another source returned the same in the meantime", asked=path)
        if self.taken - before + size > self.most:
            raise SourceFailed(
                "too_large", f"it returned more than {self.most:,} bytes; the rest is missing", asked=path
            )
        self.taken += size - before


def job_document(record: JobRecord, now: float) -> dict[str, Any]:
    """Return job.yaml for a job as its scheduler describes it. `now`: when the evidence was collected, unless the job itself says so."""
    job = record.job
    document: dict[str, Any] = {
        "id": job.id,
        "name": job.name,
        "cluster": job.cluster,
        "framework": job.framework,
        "image": job.image,
        "world_size": job.world_size,
        "gpus": job.gpus,
        "attempt": job.attempt,
        "state": job.state,
        "start": iso(job.start),
        "end": iso(job.end),
        "collected_at": iso(now if job.collected_at is None else job.collected_at),
        "owner": job.owner,
        "log_interval": job.log_interval,
        "checkpoint_interval": job.checkpoint_interval,
        "args": redact(job.args) if job.args else None,
        "params": {rule: dict(numbers) for rule, numbers in job.params.items()},
        "nodes": {node: list(ranks) for node, ranks in job.nodes.items()},
        "topology": {node: dict(places) for node, places in record.topology.items()},
        "namespace": record.namespace,
        "partition": record.partition,
        "last_good": record.last_good,
        "attempts": [_attempt(attempt) for attempt in record.attempts],
    }
    return {key: value for key, value in document.items() if value not in (None, {}, [])}


def _attempt(attempt: Attempt) -> dict[str, Any]:
    document = asdict(attempt)
    for key in ("queued", "scheduled", "initialised", "first_iterated", "last_iterated", "stopped"):
        document[key] = iso(document[key])
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in document.items()
        if value not in (None, "", ())
    }


def _checked(path: str) -> str:
    parts = path.split("/")
    if len(parts) > _DEEPEST or not all(_PART.match(part) and not part.startswith(".") for part in parts):
        raise SourceFailed("bad_answer", f"{path[:100]!r} is not a valid name for a part of a bundle")
    return path


def folder_name(record: JobRecord, now: float) -> str:
    """Return the folder name of a collection: job and time."""
    when = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H-%M-%SZ")
    return f"{safe_name(record.job.id or record.job.name or 'job')}-{when}"


def _span(window: Window) -> dict[str, str | None]:
    return {"start": iso(window.start), "end": iso(window.end)}


def _dump(path: Path, body: Mapping[str, Any]) -> None:
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    path.parent.mkdir(parents=True, exist_ok=True)
    clean = redacted(dict(body))
    path.write_text(yaml.dump(clean, Dumper=dumper, sort_keys=False, allow_unicode=True, width=120), "utf-8")
