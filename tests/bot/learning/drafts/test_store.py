"""Drafts as rows: one per click, one request after another, and the stored draft equals the one made; on both databases."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from bot.incidents.ledger import Ledger
from bot.learning.drafts.store import (
    DRAFT,
    DraftContent,
    DraftEdits,
    DraftRequest,
    ask_draft_within,
    draft_of,
    handle_of,
    made_within,
    wish_draft_within,
)
from bot.render.report_json import dumps
from tests.support.bot_samples import UNKNOWN

NOW = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture
def ledger(database):
    """A store with one incident."""
    with Ledger(database) as one:
        one.incidents.add(dumps(UNKNOWN), UNKNOWN, b"x\n", None, NOW)
        yield one


def ask(ledger, key="k"):
    """Ask for a draft of the incident."""
    [incident] = ledger.incidents.list()
    return ledger.database.write(
        lambda session: ask_draft_within(
            session, key, "default", incident.id, who="U0ADA", channel="C1", parent=None, now=NOW
        )
    )


def test_two_deliveries_of_one_press_are_one_draft(ledger):
    """And one piece of work."""
    assert [ask(ledger), ask(ledger)] == [(handle_of("k"), True), (handle_of("k"), False)]
    work = ledger.tasks.claim("w", NOW)
    assert (work.kind, ledger.tasks.claim("w", NOW)) == (DRAFT, None)


def test_a_wish_is_for_what_the_person_saw(ledger):
    """Of two requests on one version the second is refused; so are those on another tenant's draft and on a proposed one."""
    handle, _ = ask(ledger)
    wish = DraftRequest("propose", DraftEdits("t", regexes=("a b",)))
    took = [
        ledger.database.write(lambda session, at=at, whose=whose: wish_draft_within(session, handle, whose, version=at, wish=wish, now=NOW))
        for at, whose in ((1, "other"), (1, "default"), (1, "default"), (2, "default"))
    ]  # fmt: skip
    assert took == [False, True, False, True]
    assert draft_of(ledger.database, handle).wish == wish
    made = DraftContent(rule="r", files={"a/r/rule.yaml": b"x"}, hurts=("h",))
    draft = draft_of(ledger.database, handle)
    assert draft is not None
    assert ledger.database.write(lambda session: made_within(session, draft, "proposed", made))
    late = ledger.database.write(
        lambda session: wish_draft_within(session, handle, "default", version=3, wish=wish, now=NOW)
    )
    assert (late, draft_of(ledger.database, handle).content) == (False, made)


def test_what_was_made_for_an_older_wish_is_dropped(ledger):
    """The person has gone on meanwhile."""
    handle, _ = ask(ledger)
    seen = draft_of(ledger.database, handle)
    assert seen is not None
    ledger.database.write(
        lambda session: wish_draft_within(session, handle, "default", version=1, wish=DraftRequest(), now=NOW)
    )
    assert not ledger.database.write(lambda session: made_within(session, seen, "drafted", DraftContent(rule="r")))
    assert draft_of(ledger.database, handle).content is None


def test_there_is_none(ledger):
    """An unknown handle gives none."""
    assert draft_of(ledger.database, "d" * 33) is None


def test_a_draft_stored_under_the_earlier_name_is_still_forced() -> None:
    """Its stored name stays, so that both versions read it."""
    assert msgspec.json.decode(b'{"title": "t", "all_the_same": true}', type=DraftEdits).force
    assert b'"all_the_same":true' in msgspec.json.encode(DraftEdits(force=True))
