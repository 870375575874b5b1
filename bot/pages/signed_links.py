"""Signed URLs of pages: whoever has one can open that page of that tenant until it expires, and nobody can forge one.

A URL contains the tenant, the incident and its expiry, signed with HMAC-SHA256. Everybody in a channel sees the links
posted there, so they are short-lived, and browsers do not send them to other sites.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from itsdangerous import BadData, URLSafeSerializer

from bot.config.settings import Config
from connectors.base.contract import SourceFailed
from kb.errors import SignalboxError

PREFIX = "/pages"
EXPIRES = 14 * 86400.0  # seconds
LEAST_SECRET = 32  # characters: whoever sees a link can try secrets against it without asking us
PRIVATE_EXPIRES = 86400.0  # seconds; a link works for whoever has it, and this one is for one person
LONGEST = 2048  # characters of a token


class LinkRefused(SignalboxError):  # noqa: N818 - an outcome
    """The URL is not ours, was changed, or is too old (`expired`)."""

    def __init__(self, text: str, *, expired: bool = False) -> None:
        super().__init__(text)
        self.expired = expired


@dataclass(frozen=True, slots=True)
class PageLinks:
    """How pages are served: their base URL, the key that signs links, and for how many seconds links are valid."""

    base_url: str
    secret: str
    expires: float = EXPIRES

    def __post_init__(self) -> None:
        """Refuse settings that cannot work or would not protect."""
        if not self.base_url.startswith(("https://", "http://")) or any(item in self.base_url for item in "?# "):
            raise SignalboxError(f"pages: base_url must be an address like https://host/path, not {self.base_url!r}")
        if len(self.secret) < LEAST_SECRET:
            raise SignalboxError(
                f"pages: the secret has {len(self.secret)} characters, and at least {LEAST_SECRET} are needed; "
                'generate one: python -c "import secrets; print(secrets.token_urlsafe(32))"'
            )
        if not self.expires > 0:
            raise SignalboxError("pages: links must hold for some seconds at least")

    def __repr__(self) -> str:
        return f"Pages({self.base_url!r}, expires={self.expires:g})"

    def incident(self, tenant: str, incident: int, now: float, private_to: str | None = None) -> str:
        """Return the URL of an incident's page, valid from now on. `private_to`: the only person who gets it."""
        expires = self.expires if private_to is None else min(self.expires, PRIVATE_EXPIRES)
        return link(self.base_url, self.secret, tenant, incident, now, expires=expires, private_to=private_to)

    def address(self, tenant: str, incident: int | None, now: float, private_to: str | None = None) -> str:
        """Return the URL of an incident's page, or of the overview."""
        return self.overview(tenant, now) if incident is None else self.incident(tenant, incident, now, private_to)

    def overview(self, tenant: str, now: float) -> str:
        """Return the URL of the overview, valid from now on."""
        return f"{self.base_url.rstrip('/')}{PREFIX}/{signed(self.secret, LinkGrant(tenant, None, int(now + self.expires)))}"


def page_of(pages: PageLinks | None) -> Callable[[str, int | None, str | None], str | None]:
    """Return a function from tenant, incident (None: the overview) and to whom it is private to a URL valid from now on.

    It returns None without pages.
    """

    def address(tenant: str, incident: int | None, private_to: str | None) -> str | None:
        return None if pages is None else pages.address(tenant, incident, time.time(), private_to)

    return address


def linked_by(config: Config) -> PageLinks | None:
    """Return how a configuration serves pages, or None if it does not.

    Raises:
        SignalboxError: the secret is missing or too short.
    """
    settings = config.serve.pages
    if settings is None:
        return None
    try:
        return PageLinks(settings.base_url, settings.secret.value(), settings.expires)
    except SourceFailed as failed:
        raise SignalboxError(f"serve.pages.secret: {failed}") from None


@dataclass(frozen=True, slots=True)
class LinkGrant:
    """What a URL grants: an incident, the digest of a week, or without either the overview; until it expires.

    `until`: seconds since the epoch. `week`: the key of the digest's stored figures. `private_to`: the person to whom the
    incident is private and who got the URL; without it, a private incident has no page. `listed`: the URL was made by the overview, so
    whoever has it came from there and may go back.
    """

    tenant: str
    incident: int | None
    until: int
    week: str | None = None
    private_to: str | None = None
    listed: bool = False


def link(
    base_url: str,
    secret: str,
    tenant: str,
    incident: int,
    now: float,
    *,
    expires: float = EXPIRES,
    private_to: str | None = None,
) -> str:
    """The address of an incident's page. Times in seconds since the epoch; `private_to`: see `LinkGrant`."""
    grant = LinkGrant(tenant, incident, int(now + expires), private_to=private_to)
    return f"{base_url.rstrip('/')}{PREFIX}/{signed(secret, grant)}"


def signed(secret: str, allowed: LinkGrant) -> str:
    """The last part of an address."""
    more = [] if allowed.week is None else [allowed.week]
    if allowed.private_to is not None:
        more = [allowed.week or "", allowed.private_to]
    if allowed.listed:
        more = [allowed.week or "", allowed.private_to or "", "listed"]
    return str(_signer(secret).dumps([allowed.tenant, allowed.incident, allowed.until, *more]))


def read(secret: str, token: str, now: float) -> LinkGrant:
    """What the last part of an address allows.

    Raises:
        LinkRefused: nothing: it is not ours, was changed, or its time is over.
    """
    if len(token) > LONGEST:
        raise LinkRefused("it is not from Signalbox")
    try:
        told: Any = _signer(secret).loads(token)
        tenant, incident, until, *more = told
        number = None if incident is None else int(incident)
        week, private_to, listed = (*(str(item) for item in more[:3]), "", "", "")[:3]
        allowed = LinkGrant(str(tenant), number, int(until), week or None, private_to or None, listed == "listed")
    except (BadData, ValueError, TypeError) as error:
        raise LinkRefused("it was changed, or is not from Signalbox") from error
    if now > allowed.until:
        raise LinkRefused("diagnose the job again, or open the link of a newer message", expired=True)
    return allowed


def _signer(secret: str) -> URLSafeSerializer:
    return URLSafeSerializer(
        secret, salt="signalbox.pages/1", signer_kwargs={"digest_method": hashlib.sha256, "key_derivation": "hmac"}
    )
