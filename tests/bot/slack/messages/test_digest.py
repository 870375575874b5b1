"""The weekly digest in its channel: one message with files in the thread, whoever ticks and how often."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from bot.digest.schedule import tick
from tests.support.common.slack_actions import only, text_of
from tests.support.slack_stage import ADA, CHANNEL, stage

TENANT = f"    digest: {{channel: {CHANNEL}}}\n    zone: Europe/Berlin\n"


def monday():
    """Return the next Monday at ten in Berlin."""
    now = datetime.now(ZoneInfo("Europe/Berlin"))  # where Monday begins while it is Sunday by UTC
    return (now + timedelta(days=7 - now.weekday())).replace(hour=10, minute=0).astimezone(UTC)


def test_a_digest_is_posted_once_with_its_files(tmp_path, known, monkeypatch):
    """Two replicas tick repeatedly; the button lists open incidents."""
    with stage(tmp_path, known, f"sqlite:///{tmp_path / 'signalbox.db'}", monkeypatch.setenv, tenant=TENANT) as play:
        told = play.runs / "demo" / "job.yaml"  # it was recorded in 2026, and the digest is of the week that ends now
        told.write_text(re.sub(r"2026-11-20T13:47:\d\d", f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S}", told.read_text()))
        play.diagnose()
        faults = play.known.rulebook.faults
        made = [
            tick(play.ledger.database, play.config, faults, monday(), f"replica-{number % 2}") for number in range(4)
        ]
        assert [len(item) for item in made] == [1, 0, 0, 0]
        play.senders[0].clock = monday
        play.send()
        digest = only([answer for answer in play.answers() if "week" in answer.text.lower()])
        assert "1 failure" in text_of(digest)
        below = [message for message in play.workspace.thread(CHANNEL, digest.ts) if message.files]
        names = [file.name for file in play.workspace.files if file.id in only(below).files]
        assert any(name.endswith(".html") for name in names)
        assert any(name.endswith(".png") for name in names)

        play.workspace.click(ADA, CHANNEL, digest.ts, "digest_open")
        play.send()
        assert "lm-tiny" in text_of(play.workspace.ephemerals(CHANNEL, ADA)[-1])


def test_a_week_without_failures_says_so(tmp_path, known, monkeypatch):
    """A digest is always posted."""
    with stage(tmp_path, known, f"sqlite:///{tmp_path / 'signalbox.db'}", monkeypatch.setenv, tenant=TENANT) as play:
        tick(play.ledger.database, play.config, play.known.rulebook.faults, monday(), "one")
        play.senders[0].clock = monday
        play.send()
        posted = only(play.answers())
        assert "no failure" in posted.text.lower()
        assert 'Accuracy over 8 weeks: no feedback yet"' in text_of(posted)
