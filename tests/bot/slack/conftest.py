"""The stage for tests of the whole Slack app."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path

import pytest

from bot.diagnosis import scan_pool
from bot.diagnosis.scan_pool import ScanTask
from bot.render.pictures.raster import png
from bot.rulebase.loader import Knowledge
from bot.runtime import redaction
from bot.slack.delivery import attachments
from kb.scanning.matcher import Matcher
from kb.scanning.summary import StreamSummary
from tests.support.slack_stage import stage


@pytest.fixture
def play(tmp_path, known, monkeypatch):
    """A stage on SQLite with the built-in rules."""
    with stage(tmp_path, known, f"sqlite:///{tmp_path / 'signalbox.db'}", monkeypatch.setenv) as one:
        yield one


@pytest.fixture(scope="session", autouse=True)
def each_text_searched_once() -> Iterator[None]:
    """Search each text for secrets once: messages of hostile texts are made of the same three thousand again and again."""
    search = redaction._whole
    kept = lru_cache(maxsize=8192)(lambda text: tuple(search(text)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(redaction, "_whole", lambda text: [*kept(text)])
        yield


@pytest.fixture(scope="session", autouse=True)
def each_log_scanned_once() -> Iterator[None]:
    """Scan each log and draw each picture once: nearly every test has the same two jobs diagnosed, in folders of its own."""
    scan, kept = scan_pool._scan, dict[object, StreamSummary]()

    def scanned(knowledge: Knowledge, matcher: Matcher, task: ScanTask) -> StreamSummary:
        path = Path(task.ref.uri)
        if not path.is_file():
            return scan(knowledge, matcher, task)
        named = replace(task, index=0, ref=replace(task.ref, uri=path.name))
        key = (knowledge.rulebook.digest, named, path.read_bytes())
        if key not in kept:
            found = scan(knowledge, matcher, task)
            if found.gaps:
                return found
            kept[key] = found
        return replace(kept[key], ref=task.ref)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan_pool, "_scan", scanned)
        patch.setattr(attachments, "png", cache(png))
        yield
