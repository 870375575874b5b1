"""One bundle diagnosed from its own logs and from what a log store gave of them: the first diagnosis and its suspects."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import yaml

from bot.collection.bundle_writer import BundleWriter
from bot.diagnosis.diagnose import diagnose_bundle
from bot.rulebase.loader import Knowledge, knowledge, prefilter_of
from connectors.base.contract import Bounds, CollectionRequest, Deadline, Spool
from connectors.log_stores.query_plan import fetch_lines
from connectors.log_stores.store_queries import LogStore
from kb.model import Gap, Prefilter
from tests.support import stored_logs


@cache
def known() -> tuple[Knowledge, Prefilter]:
    """The rulebook, and its words."""
    found = knowledge()
    return found, prefilter_of(found)


def first(folder: Path) -> tuple[object, ...]:
    """What a report says first: verdict, phase, fault, suspects."""
    report = diagnose_bundle(known()[0], folder, workers=1).report
    top = report.diagnoses[:1]
    suspects = [
        sorted(
            (suspect.kind, suspect.node or "", -1 if suspect.rank is None else suspect.rank) for suspect in it.suspects
        )
        for it in top
    ]
    return (report.verdict, report.phase, [item.fault for item in top], suspects)


def asked_of(held: list[tuple[dict[str, str], list[tuple[int, str]]]], *, deep: bool = False) -> CollectionRequest:
    """The request for a bundle's job."""
    return CollectionRequest(
        stored_logs.record(), stored_logs.window(held), Deadline.within(60), known()[1], Bounds(), deep=deep
    )


def refilled(
    bundle: Path, target: Path, store: LogStore, request: CollectionRequest, all_lines: int
) -> tuple[Gap, ...]:
    """A copy of a bundle with the logs that a store returned in place of its own."""
    return refilled_by(
        bundle, target, lambda share: fetch_lines(store, request, share, "store", source="store", all_lines=all_lines)
    )


def refilled_by(bundle: Path, target: Path, collect: Callable[[Spool], Iterable[Gap]]) -> tuple[Gap, ...]:
    """A copy of a bundle with logs that a source wrote in place of its own."""
    shutil.copytree(bundle, target)
    shutil.rmtree(target / "logs")
    spool = BundleWriter(target, 1 << 30)
    gaps = tuple(collect(spool.share("store", 1 << 30)))
    told = {name: {key: value for key, value in item.items() if key != "query"} for name, item in spool._files.items()}
    (target / "bundle.yaml").write_text(yaml.safe_dump({"format": 1, "files": told}), "utf-8")
    return gaps
