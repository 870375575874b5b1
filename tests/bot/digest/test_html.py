"""The digest as page, text and pictures: complete, and safe for any name; the page in a real Chromium."""

from __future__ import annotations

import html
import json
import re
from functools import cache
from zoneinfo import ZoneInfo

import pytest

from bot.digest.charts import pictures
from bot.digest.codec import dumps, loads
from bot.digest.html import page
from bot.digest.phrases import dearest_first
from bot.digest.terminal import text
from bot.incidents.ledger import Ledger
from bot.store.digest_rows import compute
from kb.digest.definitions import DEFINITIONS
from kb.digest.figures import figures
from kb.digest.weeks import Week
from kb.errors import UnreadableInput
from tests.support import hostile_store
from tests.support.chromium import complaints
from tests.support.filled_store import FAULTS, NOW, filled
from tests.support.hostile_reports import SECRETS

BERLIN, WEEK = ZoneInfo("Europe/Berlin"), Week(2026, 47)


def digest_of(ledger):
    """The digest of a store."""
    return compute(ledger.database, "default", WEEK, BERLIN, until=NOW, faults=FAULTS)


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    """A digest as they usually are."""
    with Ledger(filled(tmp_path_factory, 11, pace=0.8)) as ledger:
        return digest_of(ledger)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """One whose every name is hostile."""
    with Ledger(f"sqlite:///{tmp_path_factory.mktemp('hostile') / 'signalbox.db'}") as ledger:
        hostile_store.fill(ledger, 12)
        return digest_of(ledger)


@pytest.fixture(scope="module")
def empty():
    """One of a week without anything."""
    return figures([], WEEK, BERLIN, until=NOW.timestamp())


def test_the_page_is_whole_and_alone(usual):
    """It has every class, rule, node and cut, each figure's definition, and names no other resource."""
    made = made_page(usual).decode()
    told = html.unescape(made)
    for words in (fault_class.title for fault_class in usual.classes):
        assert words in told
    for words in (*(rule_line.rule for rule_line in usual.fired), *(node.name for node in usual.offenders.nodes)):
        assert words in told
    for words in DEFINITIONS.values():
        assert words in told
    assert re.findall(r"(?:src|srcset|href|action)=\"(?!data:image/svg\+xml;base64,)", made) == []
    assert "http" not in re.sub(r"data:image/svg\+xml;base64,[A-Za-z0-9+/=]+|http-equiv", "", made)
    assert "<script" not in made


def test_the_text_has_all_figures(usual):
    """The terminal gets the same figures; with the meanings every definition."""
    told = text(usual)
    assert f"week {usual.week}" in told
    for fault_class in usual.classes:
        assert fault_class.title in told
    assert all(cut.lines[0].value in told for cut in usual.cuts if cut.lines)
    unfolded = " ".join(text(usual, meanings=True).split())
    assert all(" ".join(definition.split()) in unfolded for definition in DEFINITIONS.values())


def test_a_week_without_failures_says_so(empty):
    """An empty digest says so on the page and in the text, without a picture."""
    words = f"No failures are known in {empty.week}: no jobs were diagnosed."
    assert words in page(empty).decode()
    assert words in text(empty)
    assert pictures(empty) == []


def test_no_secret_leaves_the_store(hostile):
    """Names of jobs, nodes and owners may contain secrets: none gets into the numbers, so none gets into the drawings."""
    numbers = dumps(hostile).decode()
    assert not [secret for secret in SECRETS if secret in numbers]
    assert hostile.failures > 5


def test_pictures_of_hostile_names(hostile):
    """They are drawn in both themes; their alternative text stays within Slack's limit and on one line."""
    for theme in ("light", "dark"):
        drawn = pictures(hostile, theme)
        assert [picture.name for picture in drawn] == ["pareto", "trend", "nodes"]
        assert all(
            picture.png.startswith(b"\x89PNG") and len(picture.alt) <= 2000 and picture.alt.isprintable()
            for picture in drawn
        )


@pytest.mark.slow  # test_pictures_of_hostile_names, test_hostile_names_run_nothing
def test_text_of_hostile_names(hostile):
    """Nothing reaches the terminal that is not seen as it is."""
    assert all(line.isprintable() for line in text(hostile).splitlines())


@pytest.mark.parametrize("numbers", [b"", b"{}", b"[]", b"\xff", b'{"schema":"signalbox.digest/9"}'])
def test_numbers_that_are_none(numbers):
    """A file that is not a digest, or of another version, raises a named error."""
    with pytest.raises(UnreadableInput):
        loads(numbers)


def test_numbers_of_a_later_version(usual):
    """They are refused by their schema."""
    later = json.loads(dumps(usual)) | {"schema": "signalbox.digest/2"}
    with pytest.raises(UnreadableInput, match="digest/1"):
        loads(json.dumps(later).encode())


@cache
def made_page(digest):
    """The page, drawn once."""
    return page(digest)


def opened(browser, tmp_path, digest, width, *, dark=False):
    """The page in the browser, as wide as a screen is."""
    file = tmp_path / "digest.html"
    file.write_bytes(made_page(digest))
    scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(f"file://{file}")
    return browser


@pytest.mark.quick("390")
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_fits_the_screen(browser, tmp_path, usual, width):
    """On a phone and on a desk nothing is wider than the screen, light and dark; wide things scroll by themselves."""
    grounds = set()
    for dark in (False, True):
        opened(browser, tmp_path, usual, width, dark=dark)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        grounds.add(browser.execute_script("return getComputedStyle(document.body).backgroundColor"))
        seen = browser.execute_script(
            "return [...document.images].map(one => [one.currentSrc.length, one.naturalWidth])"
        )
        assert [size for _, size in seen] == [1200, 1200, 1200]
    assert len(grounds) == 2
    assert complaints(browser) == []


def test_hostile_names_run_nothing(browser, tmp_path, hostile):
    """Markup in names is text: no script ran, no element of theirs is there, nothing was asked for."""
    opened(browser, tmp_path, hostile, 390)
    assert browser.title.startswith("Failures of 2026-W47")
    assert (
        browser.execute_script(
            "return document.querySelectorAll('script, svg, img:not([alt]), [onerror], [onload]').length"
        )
        == 0
    )
    assert (
        browser.execute_script(
            "return performance.getEntriesByType('resource').filter(e => !e.name.startsWith('data:')).length"
        )
        == 0
    )
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
    assert "onerror" in browser.find_element("tag name", "main").text
    assert complaints(browser) == []


def test_classes_stand_in_the_same_order_on_the_page_and_in_the_terminal(usual):
    """The most expensive first; sorted in two ways, the same week looks like two."""
    titles = [line.title for line in dearest_first(usual.classes)]
    told = html.unescape(page(usual).decode())
    told = told[told.index('id="classes"') :]
    rows = text(usual)[text(usual).index("By class") :]
    assert len(titles) > 2
    for shown, around in ((told, 'class="name">{}</th>'), (rows, " {}\n")):
        places = [shown.index(around.format(title)) for title in titles]
        assert places == sorted(places)
