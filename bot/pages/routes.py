"""Serves the pages over HTTP at signed URLs, one for each incident and one for the overview. Read-only."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from flask import Blueprint, Response, request

from bot.incidents.ledger import Ledger
from bot.pages import attachments
from bot.pages.digests import DigestPages, WeekPage
from bot.pages.incident import RuleTexts, incident_page, words_of
from bot.pages.incident_groups import neighbours
from bot.pages.incident_status import about_of
from bot.pages.overview import DigestPreview, overview_page
from bot.pages.signed_links import PREFIX, LinkGrant, LinkRefused, PageLinks, read, signed
from bot.pages.templates import policy, render
from bot.policy.console_links import console_links
from bot.policy.permissions import may_see
from bot.render.report_json import from_json
from bot.retention.evidence import evidence
from bot.rulebase.loader import Knowledge
from kb.errors import SignalboxError

_HEADINGS = {403: "This link is not valid", 404: "Not found", 410: "This link has expired"}
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


DIGEST_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
To = Callable[..., str]  # an incident's number (None: the overview) and a digest's week → a URL

Consoles = Callable[[str, str | None], Mapping[str, str]]  # a tenant and a cluster → templates of links by name


def no_consoles(_tenant: str, _cluster: str | None) -> Mapping[str, str]:
    """Return no links."""
    return {}


def pages(
    ledger: Ledger,
    known: Knowledge,
    settings: PageLinks,
    *,
    consoles: Consoles = no_consoles,
    digests: DigestPages | None = None,
    now: Callable[[], float] = time.time,
) -> Blueprint:
    """Return the routes.

    `consoles`: returns the templates of links to consoles; `digests`: by default, the stored ones; `now`: returns seconds
    since the epoch.
    """
    served = Blueprint("incident_pages", __name__)
    words, weeks = words_of(known), digests or DigestPages(ledger.database)

    @served.get("/")
    def home() -> Response:
        """Say where the pages are: nobody sees an incident without a link to it."""
        return _html(200, render("home.html"))

    @served.get(f"{PREFIX}/<token>")
    def page(token: str) -> Response:
        """Serve the page of a signed URL."""
        try:
            allowed = read(settings.secret, token, now())
        except LinkRefused as refused:
            return _refused(410 if refused.expired else 403, str(refused))

        def to(incident: int | None, week: str | None = None) -> str:
            """Return a URL that expires with the one that led here."""
            listed = incident is not None and (allowed.incident is None or allowed.listed)
            last = signed(settings.secret, LinkGrant(allowed.tenant, incident, allowed.until, week, listed=listed))
            return f"{settings.base_url.rstrip('/')}{PREFIX}/{last}"

        when = datetime.fromtimestamp(now(), UTC)
        if allowed.week is not None:
            return _digest(weeks, allowed, to)
        if allowed.incident is not None:
            return _incident(ledger, words, allowed, to=to, now=when, consoles=consoles)
        week = _pictured(weeks.last(allowed.tenant), to)
        shown = overview_page(
            ledger.database, allowed.tenant, request.args.to_dict(), when, words=words, to=to, week=week
        )
        return _html(200, shown)

    @served.get(f"{PREFIX}/<token>/<picture>")
    def drawn(token: str, picture: str) -> Response:
        """Serve a picture of the digest of a signed URL."""
        try:
            allowed = read(settings.secret, token, now())
        except LinkRefused as refused:
            return _refused(410 if refused.expired else 403, str(refused))
        found = weeks.picture(allowed.tenant, allowed.week, picture) if allowed.week is not None else None
        if found is None:
            return _refused(404, "no such picture")
        return Response(
            found, 200, headers=HEADERS | {"Cache-Control": "private, max-age=600"}, content_type="image/svg+xml"
        )

    return served


def _pictured(week: WeekPage | None, to: To) -> DigestPreview | None:
    """Return the pictures of a digest with their URLs."""
    if week is None:
        return None
    address = to(None, week.kept_as)
    pictures = tuple(
        (caption, f"{address}/{caption.name}-light.svg", f"{address}/{caption.name}-dark.svg")
        for caption in week.captions
    )
    return DigestPreview(week.name, address, pictures)


def _digest(weeks: DigestPages, allowed: LinkGrant, to: To) -> Response:
    """Serve the page of a digest, with a content security policy for its own style sheet."""
    found = weeks.page(allowed.tenant, allowed.week or "", to)
    if found is None:
        return _refused(404, "this digest is no longer stored")
    headers = HEADERS | {"Content-Security-Policy": DIGEST_POLICY}
    return Response(found, 200, headers=headers, content_type="text/html; charset=utf-8")


def _incident(
    ledger: Ledger, words: RuleTexts, allowed: LinkGrant, *, to: To, now: datetime, consoles: Consoles
) -> Response:
    """Serve the page of an incident if it exists, belongs to this tenant, and is not private to somebody else."""
    record = ledger.incidents.answer(allowed.incident or 0)
    if (
        record is None
        or record.incident.tenant != allowed.tenant
        or not may_see(record.incident.private_to, allowed.private_to)
    ):
        return _refused(404, "this incident is no longer stored")
    incident = record.incident
    try:
        report = from_json(record.report_json)
    except SignalboxError as error:
        return _refused(404, f"the report of this incident cannot be read: {error}")
    where = evidence(ledger.database, incident.id)
    about = about_of(ledger, incident, where.words if where is not None else "", now, to)
    templates = consoles(incident.tenant, incident.cluster)
    about = replace(about, consoles=console_links(templates, report, incident.cluster))
    if allowed.listed:  # a link to one incident opens no other
        older, newer = neighbours(ledger.database, allowed.tenant, incident.id)
        about = replace(about, back=to(None), older=to(older) if older else None, newer=to(newer) if newer else None)
    return _html(
        200,
        incident_page(report, attachments.read(lambda name: ledger.incidents.kept(incident.id, name)), about, words),
    )


def not_found(_error: object) -> Response:
    """Answer a request for an address that has no page, as `Flask.register_error_handler` asks for it."""
    return _refused(404, "this address has no page")


def _refused(status: int, why: str) -> Response:
    return _html(status, render("refused.html", heading=_HEADINGS[status], why=why))


def _html(status: int, text: str) -> Response:
    return Response(text, status, headers=HEADERS, content_type="text/html; charset=utf-8")
