"""Signed links: they state what they allow, expire, and cannot be forged or changed."""

from __future__ import annotations

import pytest

from bot.pages.signed_links import LinkGrant, LinkRefused, PageLinks, _signer, link, read, signed
from kb.errors import SignalboxError

SECRET = "0123456789abcdef" * 2
NOW = 1_800_000_000.0


def token(address):
    """The last part of an address."""
    return address.rpartition("/")[2]


def test_an_address_allows_one_incident_of_one_tenant_for_a_time():
    """Until its last second."""
    address = link("https://bot.example/signalbox/", SECRET, "team-a", 12, NOW, expires=60.0)
    assert address.startswith("https://bot.example/signalbox/pages/")
    assert read(SECRET, token(address), NOW + 60.0) == LinkGrant("team-a", 12, int(NOW) + 60)
    with pytest.raises(LinkRefused, match="newer message") as refused:
        read(SECRET, token(address), NOW + 61.0)
    assert refused.value.expired


def test_the_overview_has_an_address_of_its_own():
    """One that allows no single incident."""
    settings = PageLinks("https://bot.example", SECRET, 3600.0)
    assert read(SECRET, token(settings.overview("team-a", NOW)), NOW).incident is None
    assert read(SECRET, token(settings.incident("team-a", 7, NOW)), NOW).incident == 7


def test_no_changed_or_strange_address_is_taken():
    """Each character changed, another secret, another order of bytes, too long, empty."""
    good = signed(SECRET, LinkGrant("team-a", 12, int(NOW)))
    bad = [good[:at] + ("A" if item != "A" else "B") + good[at + 1 :] for at, item in enumerate(good[:-1])]
    bad += ["", ".", "x", "é", good + "x", good[:-1], good * 40, signed("f" * 32, LinkGrant("team-a", 12, int(NOW)))]
    bad += [good.replace(".", "", 1), f".{good}", "..", "null", "W10.x"]
    for item in bad:
        with pytest.raises(LinkRefused) as refused:
            read(SECRET, item, NOW)
        assert not refused.value.expired


@pytest.mark.parametrize("body", [[1], ["a", "b", "c"], {"t": 1}, None, ["a", 1, "x"], ["a", 1, 2, 3]])
def test_what_is_signed_and_no_address_is_refused_too(body):
    """They are never generated, and cause no crash."""
    with pytest.raises(LinkRefused):
        read(SECRET, str(_signer(SECRET).dumps(body)), NOW)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (("ftp://x", SECRET), "base_url"),
        (("https://x?y", SECRET), "base_url"),
        (("https://x", "short"), "secret"),
        (("https://x", SECRET, 0.0), "seconds"),
    ],
)
def test_settings_that_cannot_work_or_protect_nothing_are_refused(settings, why):
    """The error names what is wrong."""
    with pytest.raises(SignalboxError, match=why):
        PageLinks(*settings)


def test_the_secret_is_not_shown():
    """Not in what a log would print."""
    assert SECRET not in repr(PageLinks("https://x", SECRET))
