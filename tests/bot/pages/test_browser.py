"""The pages in a real Chromium: nothing hostile runs, nothing is asked of others, everybody can read them, on any screen."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import pytest
import zstandard
from flask import Flask
from waitress.server import create_server

from bot.digest.codec import dumps as numbers_of
from bot.incidents.ledger import Ledger
from bot.incidents.lifecycle import LifecycleStep
from bot.pages.attachments import PageAttachments
from bot.pages.attachments import dumps as curves_of
from bot.pages.incident import IncidentStatus, incident_page, words_of
from bot.pages.routes import pages
from bot.pages.signed_links import PREFIX, LinkGrant, PageLinks, signed
from bot.pages.templates import script
from bot.render.pictures.timeline import dumps as timeline_of
from bot.render.report_json import dumps
from bot.store.digest_rows import compute
from bot.store.packed_reports import Origin
from bot.store.tables import DigestRow, ReportRow
from kb.digest.weeks import week_named
from kb.model import Attempt
from kb.report import Hang, StackBranch, Vote
from tests.support import hostile_store
from tests.support.bot_samples import FALLEN_GPU, NOON, UNKNOWN
from tests.support.chromium import PATIENCE, complaints, followed, moved
from tests.support.common.hostile_page import hostile_report
from tests.support.filled_store import FAULTS
from tests.support.filled_store import NOW as LATER
from tests.support.hostile_store import SCRIPTS
from tests.support.made_pages import ATTACKS, EVERYTHING, curves, folded, kept, timeline

AT = datetime(2026, 3, 2, 8, 30, tzinfo=UTC)
PLACE = ("logs/dmesg-gpu-017.log", 90_112)
HUNG = replace(
    FALLEN_GPU,
    hang=Hang(
        called=True,
        votes=(
            Vote("silence", "yes", "all silent", NOON),
            Vote("spin", "no", "idle"),
            Vote("stacks", "not_observable", "none"),
        ),
        stacks=(
            StackBranch(0, ("<module> (train.py:240)", "main (train.py:210)"), 64, "0-63"),
            StackBranch(1, ("all_reduce (distributed_c10d.py:2806)",), 63, "0-6,8-63", "7"),
            StackBranch(1, ("get (queue.py:180)",), 1, "7", "0-6,8-63", 2),
        ),
    ),
)


@pytest.mark.parametrize("permitted", [True, False], ids=["clipboard", "no permission"])
def test_commands_are_copied_by_keyboard(browser, served, permitted):
    """Each block of commands has a button that copies it and says so; without the clipboard, the commands are selected for Ctrl+C."""
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import WebDriverWait

    browser.get(served["incident"])
    browser.execute_script(OPEN)
    if not permitted:
        browser.execute_script(
            "navigator.clipboard.writeText = () => Promise.reject(); document.execCommand = () => false"
        )
    else:
        browser.execute_script(
            "navigator.clipboard.writeText = (text) => { window.copied = text; return Promise.resolve() }"
        )
    browser.execute_script("document.querySelector('.commands pre').focus()")
    keys = ActionChains(browser).send_keys(Keys.TAB)
    keys.send_keys(Keys.ENTER).perform()
    wanted = browser.execute_script(
        "return [...document.querySelectorAll('.commands pre')[0].querySelectorAll('code')].map(one => one.textContent).join('\\n')"
    )
    said = "Copied" if permitted else "Selected: press Ctrl+C to copy"
    WebDriverWait(browser, 10).until(
        lambda item: item.execute_script("return document.querySelector('.commands [role=status]').textContent") == said
    )
    if permitted:
        assert browser.execute_script("return window.copied") == wanted
    else:
        assert browser.execute_script("return getSelection().toString().trim()") == wanted


REPEATED = replace(
    FALLEN_GPU,
    job=replace(
        FALLEN_GPU.job,
        attempts=tuple(
            Attempt(number, "FAILED", queued=begin, scheduled=begin + 3600, stopped=begin + 7200)
            for number, begin in enumerate((NOON - 30_000, NOON - 20_000, NOON - 10_000))
        ),
    ),
)


@pytest.fixture(scope="module")
def served(tmp_path_factory, known):
    """The addresses of a full incident, of a hostile one and of the overview, and the folder of standalone pages."""
    folder = tmp_path_factory.mktemp("pages")
    with Ledger(f"sqlite:///{folder / 'x.db'}") as ledger:
        web = Flask("test")
        server = create_server(web, host="127.0.0.1", port=0)
        settings = PageLinks(f"http://127.0.0.1:{server.effective_port}", "0123456789abcdef" * 2)
        web.register_blueprint(pages(ledger, known, settings, now=AT.timestamp))
        reports = (
            HUNG,
            hostile_report(EVERYTHING),
            *(replace(hostile_report(item), id=f"r{at}") for at, item in enumerate(ATTACKS)),
        )
        for item, text in zip(reports, ("Boom", EVERYTHING, *ATTACKS), strict=True):
            small = {"curves": curves_of(curves(text.encode("utf-8", "replace").decode()))}
            small["timeline"] = timeline_of(timeline(text.encode("utf-8", "replace").decode()))
            ledger.incidents.add(dumps(replace(item, id=item.id + text[:9])), replace(item, id=f"{item.id}{hash(text)}"), b"", None, AT,
                       origin=Origin(kept=small))  # fmt: skip
        threading.Thread(target=server.run, daemon=True).start()
        about = IncidentStatus(12, AT, (), "its evidence is in /var/spool/x")
        alone = {
            "alone": incident_page(HUNG, kept(place=PLACE), about, words_of(known)),
            "alone-hostile": incident_page(hostile_report(EVERYTHING), kept(EVERYTHING, PLACE), about, words_of(known)),
            "unknown": incident_page(UNKNOWN, PageAttachments(), about),
            "folded": incident_page(REPEATED, folded(), about, words_of(known)),
        }
        addresses = {
            "incident": settings.incident("default", 1, AT.timestamp()),
            "hostile": settings.incident("default", 2, AT.timestamp()),
            "overview": settings.overview("default", AT.timestamp()),
            "home": f"{settings.base_url}/",
            "refused": f"{settings.base_url}{PREFIX}/nonsense",
            "expired": settings.overview("default", AT.timestamp() - 400 * 86_400),
        }
        for name, page in alone.items():
            (folder / f"{name}.html").write_text(page, encoding="utf-8")
            addresses[name] = (folder / f"{name}.html").as_uri()
        addresses |= weekly(ledger, settings)
        yield addresses
        server.close()


def weekly(ledger: Ledger, settings: PageLinks) -> dict[str, str]:
    """The overview with the pictures of a digest, the digest's page, and a merged incident: all names and words are hostile."""
    hostile_store.fill(ledger, 12)
    digest = compute(ledger.database, "default", week_named("2026-W47"), UTC, until=LATER, faults=FAULTS)
    with ledger.database.session(write=True) as session:
        session.add(
            DigestRow(tenant="default", week="2026-W47", at=LATER, numbers_zstd=zstandard.compress(numbers_of(digest)))
        )
    first, second, third, fourth, *_ = (
        item.id for item in ledger.incidents.list(90) if item.verdict != "no_fault" and item.closed_at is None
    )
    bad = SCRIPTS[0] + SCRIPTS[1]
    steps = (
        (first, LifecycleStep("assign", bad, "cli", assignee=bad, note=bad)),
        (second, LifecycleStep("merge", bad, "cli", other=first, note=bad)),
        (third, LifecycleStep("snooze", bad, "cli", until=LATER + timedelta(days=1), note=bad)),
        (fourth, LifecycleStep("ack", bad, "cli")),
    )
    for number, step in steps:
        ledger.lifecycle.step(number, "default", f"{number}", step, LATER)
    whole = replace(hostile_report(EVERYTHING), id="whole")
    with ledger.database.session(write=True) as session:
        session.get_one(ReportRow, first).json_zstd = zstandard.compress(dumps(whole))
    until = int(AT.timestamp() + 9e8)
    address = f"{settings.base_url}{PREFIX}/{signed(settings.secret, LinkGrant('default', None, until, '2026-W47'))}"
    return {
        "weekly": settings.overview("default", AT.timestamp()) + "?weeks=0",
        "digest": address,
        "lived": settings.incident("default", first, AT.timestamp()),
    }


OPEN = "for (const one of document.querySelectorAll('details')) one.open = true"
PLAIN = ("incident", "hostile", "alone", "alone-hostile", "unknown", "folded", "lived")
PICTURED = ("overview", "weekly", "digest")  # with the digest's pictures
EVERY = (*PLAIN, *PICTURED)
SAYING = ("home", "refused", "expired")  # pages without an incident


@pytest.fixture
def screen(browser):
    """Set the window's width and the colours that its user likes."""

    def become(width=1280, scheme="light"):
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        liked = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", liked)

    yield become
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@pytest.mark.parametrize("name", EVERY)
def test_nothing_runs_and_nothing_is_asked_of_others(browser, served, name):
    """The page has no handlers and no script but the one that copies commands, violates no policy, and requests nothing but itself."""
    browser.get_log("browser")
    browser.get(served[name])
    browser.execute_script(OPEN)
    browser.execute_script("for (const one of document.querySelectorAll('input, a, pre, [tabindex]')) one.focus()")
    assert "owned" not in browser.title.replace("document.title='owned'", "")
    asked = browser.execute_script("return performance.getEntriesByType('resource').map(one => one.name)")
    own = "/pages/" if name in PICTURED else None
    assert [item for item in asked if not item.endswith("/favicon.ico") and not _ours(item, own)] == []
    assert browser.execute_script("return [...document.scripts].map(one => one.textContent)") == (
        [] if name == "digest" else [script()]
    )
    assert browser.execute_script("return document.images.length") == (3 if name in PICTURED else 0)
    assert browser.execute_script("return document.querySelectorAll('[onerror], [onload], [onmouseover]').length") == 0
    assert [complaint for complaint in complaints(browser) if "favicon.ico" not in complaint] == []


def _ours(address: str, own: str | None) -> bool:
    """Whether it is a picture that the page itself has, or one of the service's."""
    return address.startswith("data:image/svg+xml") or (own is not None and own in address and address.endswith(".svg"))


@pytest.mark.parametrize("name", ["weekly", "digest"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_pictures_are_there(browser, served, screen, name, scheme):
    """Drawn for the scheme, each with words for those who cannot see it; the overview leads to the digest, and that to incidents."""
    screen(1280, scheme)
    browser.get(served[name])
    from selenium.webdriver.support.ui import WebDriverWait

    browser.execute_script("for (const one of document.images) one.loading = 'eager'")
    WebDriverWait(browser, PATIENCE).until(
        lambda item: item.execute_script(
            "return [...document.images].every(each => each.complete && each.naturalWidth === 1200)"
        )
    )
    alts = browser.execute_script("return [...document.images].map(one => one.alt.length > 40)")
    assert alts == [True, True, True]
    links = [
        find_element.get_attribute("href")
        for find_element in browser.find_elements("css selector", "main a[href*='/pages/']")
    ]
    if name == "weekly":
        assert served["digest"].partition("/pages/")[0] + "/pages/" in links[0]
        used = browser.execute_script("return [...document.images].map(one => one.currentSrc)")
        assert [item.rpartition("-")[2] for item in used] == [f"{scheme}.svg"] * 3
    else:
        followed(browser, browser.find_element("css selector", "#open ~ .scroll a"))
        assert "of this incident" in browser.find_element("tag name", "body").text  # it has no report that can be read


@pytest.mark.quick("overview", "incident", "hostile", "weekly", "digest")
@pytest.mark.parametrize("name", EVERY)
def test_it_fits(browser, served, screen, name):
    """For any text, nothing overflows the window horizontally; the background follows the colour scheme."""
    browser.get(served[name])
    browser.execute_script(OPEN)
    dark = "rgb(26, 29, 33)" if name == "digest" else "rgb(20, 23, 26)"
    for width, scheme in product((1280, 360), ("light", "dark")):
        screen(width, scheme)
        over, ground = browser.execute_script(
            "return [document.documentElement.scrollWidth - window.innerWidth,"
            " getComputedStyle(document.body).backgroundColor]"
        )
        assert over <= 0, width
        assert ground == {"light": "rgb(255, 255, 255)", "dark": dark}[scheme]


@pytest.mark.quick("390")
@pytest.mark.parametrize("width", [1280, 390, 360])
def test_no_label_of_a_picture_is_cut(browser, served, screen, width):
    """Names end before the activity, and what is written on a row before the picture ends; half a badge may stand out."""
    screen(width)
    browser.get(served["folded"])
    shown = browser.execute_script(
        "return [...document.querySelectorAll('.lanes .names text, .lanes .cells text')].map(one => "
        "[one.textContent, one.getBoundingClientRect().right, one.closest('.lanes > svg').getBoundingClientRect().right])"
    )
    assert {"rank 5", "A", "step 20"} <= {words for words, *_ in shown}
    nodes = [words for words, right, _ in shown if right and words.startswith("train")]
    assert len(nodes) == 3  # below the suspect, and as a row of both pictures
    assert all("-000" in words for words in nodes)
    assert [words for words, right, end in shown if right > end + 6] == []


@pytest.mark.parametrize("width", [1280, 390])
def test_the_bars_of_attempts_are_seen_without_scrolling(browser, served, screen, width):
    """All three, at their full length."""
    screen(width)
    browser.get(served["folded"])
    ends = browser.execute_script(
        "return [...document.querySelectorAll('.runs .bars svg')].map(one => one.getBoundingClientRect().right)"
    )
    assert len(ends) == 3
    assert max(ends) <= width


def test_only_the_overview_is_as_wide_as_the_window(browser, served, screen):
    """Bars of scores and shares on the page of an incident do not widen it."""
    screen(1900)
    wide = {}
    for name in ("incident", "overview"):
        browser.get(served[name])
        wide[name] = browser.execute_script("return document.body.getBoundingClientRect().width")
    assert wide == {"incident": 1040, "overview": 1680}


def axe() -> str | None:
    """The script of axe-core, from the package that contains it; the package is not imported, since it starts its own browser."""
    package = find_spec("axe_playwright_python")
    folders = package.submodule_search_locations if package is not None else None
    file = Path(folders[0]) / "axe.min.js" if folders else None
    return file.read_text(encoding="utf-8") if file is not None and file.is_file() else None


# what colours and widths can change: names and the like are in the page, which has no scripts
OF_A_SCREEN = [
    "color-contrast", "link-in-text-block", "scrollable-region-focusable", "region", "bypass", "heading-order",
    "page-has-heading-one", "landmark-one-main", "skip-link",
]  # fmt: skip


@pytest.mark.quick("1280-light")
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_everybody_can_read_them(browser, served, screen, width, scheme):
    """axe-core finds no violation: contrast, names, order of headings, keyboard access."""
    program = axe()
    if program is None:
        pytest.skip("the accessibility check needs axe-core (pip install axe-playwright-python)")
    screen(width, scheme)
    for name in (*EVERY, *SAYING):
        browser.get(served[name])
        browser.execute_script(OPEN)
        # a tool of the browser's, not of the page: its policy does not stop it
        browser.execute_cdp_cmd("Runtime.evaluate", {"expression": program})
        found = browser.execute_async_script(
            "const [rules, done] = arguments, options = {resultTypes: ['violations'], preload: false};"
            "if (rules.length) options.runOnly = {type: 'rule', values: rules};"
            "axe.run(options).then(all => done(all.violations.map(one => "
            "`${one.impact} ${one.id}: ${one.nodes.slice(0, 3).map(node => node.html.slice(0, 160)).join(' | ')}`)))",
            OF_A_SCREEN if scheme == "dark" else [],
        )
        assert found == [], name


def test_the_form_asks_for_what_is_chosen(browser, served):
    """By plain means; each row leads to its page."""
    browser.get(served["overview"])
    browser.find_element("name", "node").send_keys("gpu-017")
    followed(browser, browser.find_element("css selector", ".filters button"))
    assert "node=gpu-017" in browser.current_url
    rows = browser.find_elements("css selector", ".incidents tbody tr")
    assert len(rows) == 1
    followed(browser, rows[0].find_element("tag name", "a"))
    assert browser.find_element("tag name", "h1").text == "GPU 3 on gpu-017: a GPU fell off the bus"


MOST_TABS = 60  # stops until a link is given up


def typed(browser, *keys):
    """Press keys, wherever the focus is."""
    from selenium.webdriver.common.action_chains import ActionChains

    ActionChains(browser).send_keys(*keys).perform()


def tabbed(browser, place):
    """Press Tab until a link at this place has the focus, then Enter; return its address."""
    from selenium.webdriver.common.keys import Keys

    address = focused(browser, place)
    moved(browser, lambda: typed(browser, Keys.ENTER))
    return address


def focused(browser, place):
    """Press Tab until something at this place has the focus, visibly as every stop before it; return its address, if it has one."""
    from selenium.webdriver.common.keys import Keys

    for _ in range(MOST_TABS):
        typed(browser, Keys.TAB)
        found, address, outline, words = browser.execute_script(
            "const one = document.activeElement;"
            "return [one.matches(arguments[0]), one.href, getComputedStyle(one).outlineStyle, one.textContent]",
            place,
        )
        assert outline != "none", words
        if found:
            return address
    pytest.fail(f"no link {place} in {MOST_TABS} stops")


def test_an_incident_is_read_and_left_by_keyboard(browser, served):
    """From the overview to its first incident and back, with Tab and Enter, and the focus always visible."""
    browser.get(served["overview"])
    overview = browser.find_element("tag name", "h1").text
    first = browser.find_element("css selector", ".incidents tbody th a").get_attribute("href")

    assert tabbed(browser, ".incidents th a") == first
    assert browser.current_url == first
    assert browser.find_element("tag name", "h1").text != overview
    tabbed(browser, "nav[aria-label=Incidents] a")
    assert browser.find_element("tag name", "h1").text == overview


def test_the_list_is_searched_and_filtered_by_keyboard(browser, served):
    """Enter in the search field, a choice by its first letters, and from one incident to the one before it."""
    from selenium.webdriver.common.keys import Keys

    browser.get(served["overview"])
    focused(browser, "input[name=text]")
    typed(browser, "gpu-017")
    moved(browser, lambda: typed(browser, Keys.ENTER))
    assert "text=gpu-017" in browser.current_url
    focused(browser, "input[name=node]")
    typed(browser, "gpu-017")
    focused(browser, "select[name=sort]")
    typed(browser, "new")
    focused(browser, ".filters button")
    moved(browser, lambda: typed(browser, Keys.ENTER))
    assert all(chosen in browser.current_url for chosen in ("text=gpu-017", "node=gpu-017", "sort=newest"))
    opened = tabbed(browser, ".incidents th a")
    around = tabbed(browser, "nav[aria-label=Incidents] a[rel~=prev], nav[aria-label=Incidents] a[rel~=next]")
    assert browser.current_url == around != opened
