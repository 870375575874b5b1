"""The pages over HTTP: one address for each incident and one for the overview, both signed; nothing can be changed here."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

from flask import Blueprint, Response, request

from bot.keeping import evidence
from bot.ledger import Ledger
from bot.pages import kept
from bot.pages.drawing import policy, render
from bot.pages.incident import About, Words, incident_page, words_of
from bot.pages.links import PREFIX, Allowed, LinkRefused, Pages, read, signed
from bot.pages.overview import overview_page
from bot.reportjson import from_json
from bot.rulefiles import Knowledge
from kb.errors import SignalboxError

HEADERS = {
    "Content-Security-Policy": policy(),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "private, no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "X-Robots-Tag": "noindex, nofollow",
}


def pages(ledger: Ledger, known: Knowledge, settings: Pages, *, now: Callable[[], float] = time.time) -> Blueprint:
    """The routes. `now`: seconds since the epoch."""
    served = Blueprint("incident_pages", __name__)
    words = words_of(known)

    @served.get(f"{PREFIX}/<token>")
    def page(token: str) -> Response:
        """The page that a signed address is of."""
        try:
            allowed = read(settings.secret, token, now())
        except LinkRefused as refused:
            return _refused(410 if refused.expired else 403, str(refused))
        if allowed.incident is not None:
            return _incident(ledger, words, allowed)

        def to(incident: int | None) -> str:
            """An address that lives as long as the one that led here."""
            last = signed(settings.secret, Allowed(allowed.tenant, incident, allowed.until))
            return f"{settings.base_url.rstrip('/')}{PREFIX}/{last}"

        when = datetime.fromtimestamp(now(), UTC)
        return _html(200, overview_page(ledger, allowed.tenant, request.args.to_dict(), when, words=words, to=to))

    return served


def _incident(ledger: Ledger, words: Words, allowed: Allowed) -> Response:
    """The page of one incident, if it is there and this tenant's."""
    record = ledger.answer(allowed.incident or 0)
    if record is None or record.incident.tenant != allowed.tenant:
        return _refused(404, "this incident is not kept any more")
    incident = record.incident
    try:
        report = from_json(record.report_json)
    except SignalboxError as error:
        return _refused(404, f"the report of this incident cannot be read: {error}")
    where = evidence(ledger, incident.id)
    about = About(
        number=incident.id,
        at=incident.created_at,
        said=ledger.said(incident.id),
        evidence=where.words if where is not None else "",
        pinned=incident.pinned,
    )
    return _html(200, incident_page(report, kept.read(lambda name: ledger.kept(incident.id, name)), about, words))


def _refused(status: int, why: str) -> Response:
    return _html(status, render("refused.html", why=why))


def _html(status: int, text: str) -> Response:
    return Response(text, status, headers=HEADERS, content_type="text/html; charset=utf-8")
