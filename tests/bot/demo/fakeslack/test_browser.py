"""The page in a real Chromium: used as a person would, with and without scripts, light and dark, wide and narrow."""

from __future__ import annotations

import pytest

pytest.importorskip("selenium", reason="the page's browser tests need selenium")

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from bot.demo.fakeslack.rate_limits import unlimited
from tests.support.chromium import PATIENCE, complaints, pressed
from tests.support.common.fakeslack_pages import everywhere
from tests.support.fakeslack_apps import ALERTS, ANN, BO, RANDOM, running, workspace


@pytest.fixture
def page(browser):
    """A workspace with a Bolt app, shown in the browser."""
    made = workspace(rates=unlimited())
    with running(made, pages=True) as address:
        browser.get_log("browser")
        browser.get(address)
        yield made, browser, address
        browser.get("about:blank")


def test_a_job_is_diagnosed_and_closed_out(page):
    """A command, its answer without a reload, the modal, a search while typing, an error from the app, and the end."""
    made, browser, _ = page
    browser.find_element(By.ID, "say").send_keys("/diagnose job 7", Keys.ENTER)
    assert browser.find_element(By.CSS_SELECTOR, ".message.mine .t").text == "looking at job 7"
    assert browser.find_element(By.CSS_SELECTOR, ".header").text == "job 7 failed"
    assert browser.find_element(By.CSS_SELECTOR, ".section b").text == "Requeue"
    pressed(browser, "Close out")
    assert browser.find_element(By.CSS_SELECTOR, "[role=dialog] h2").text == "Close out"
    Select(browser.find_element(By.NAME, "f.cause")).select_by_visible_text("Another fault")
    browser.find_element(By.NAME, "q.other_fault").send_keys("ecc")
    browser.find_element(By.CSS_SELECTOR, "[data-offers] input").click()
    pressed(browser, "Close", "footer")
    assert browser.find_element(By.CSS_SELECTOR, ".error").text == "Say what it was"
    assert browser.find_element(By.CSS_SELECTOR, "[data-offers] input").is_selected()
    browser.find_element(By.NAME, "f.note").send_keys("a switch")
    pressed(browser, "Close", "footer")
    assert browser.find_element(By.XPATH, "//article[last()]//*[text()='closed: other']")
    assert made.modal(ANN) is None
    assert complaints(browser) == []


def test_news_come_without_a_reload_and_what_one_types_stays(page):
    """Another person's message appears while a text is half typed."""
    made, browser, _ = page
    field = browser.find_element(By.ID, "say")
    field.send_keys("half a sen")
    made.say(BO, ALERTS, "look at *this*")
    assert browser.find_element(By.XPATH, "//article//b[text()='this']")
    assert field.get_attribute("value") == "half a sen"


def test_threads_menus_shortcuts_and_the_home_tab_work(page):
    """An overflow option, a reply, a mention in a thread, a message shortcut, the button of the Home tab."""
    made, browser, _ = page
    browser.find_element(By.ID, "say").send_keys("/diagnose 7", Keys.ENTER)
    browser.find_element(By.CSS_SELECTOR, ".actions summary").click()
    pressed(browser, "Run again")
    assert made.until(lambda: made.messages(ALERTS)[0].text == "again:h1")
    message = "//main//article[.//*[text()='again:h1']]"
    browser.find_element(By.XPATH, f"{message}//summary[@aria-label='message actions']").click()
    browser.find_element(By.XPATH, f"{message}//a[text()='Reply in thread']").click()
    browser.find_element(By.CSS_SELECTOR, "aside [name=text]").send_keys(f"@{made.app.name} why?", Keys.ENTER)
    assert browser.find_element(By.XPATH, "//aside//article[3]//*[contains(., 'you said')]")
    browser.find_element(By.XPATH, f"{message}//summary[@aria-label='message actions']").click()
    browser.find_element(By.XPATH, f"{message}//button[contains(., 'Diagnose job in this message')]").click()
    assert browser.find_element(By.CSS_SELECTOR, "[role=dialog] .section .t").text == "again:h1"
    browser.find_element(By.TAG_NAME, "body").send_keys(Keys.ESCAPE)
    assert made.until(lambda: made.modal(ANN) is None)
    # the page that shows it closed must be there first: it would replace the one that the click opens
    assert made.until(lambda: browser.execute_script("return !document.querySelector('[role=dialog]')"))
    browser.find_element(By.CSS_SELECTOR, "nav form .place").click()
    assert browser.find_element(By.CSS_SELECTOR, "#home .t").text == "At home"
    pressed(browser, "Refresh")
    assert browser.find_element(By.XPATH, "//*[@id='home']//*[text()='Refreshed']")
    assert complaints(browser) == []


def test_one_can_be_another_user(page):
    """The user is selected below the channels; ephemeral messages of one user are invisible to the other."""
    made, browser, address = page
    made.command(ANN, ALERTS, "/diagnose", "7")
    Select(browser.find_element(By.ID, "who")).select_by_visible_text("Bo Ek")
    assert made.until(lambda: browser.current_url == f"{address}/at/{BO}/{ALERTS}")
    assert browser.find_element(By.XPATH, "//article//*[text()='7 failed']")
    browser.implicitly_wait(0)
    assert browser.find_elements(By.CSS_SELECTOR, ".message.mine") == []
    browser.implicitly_wait(PATIENCE)


def test_it_works_with_scripts_off(page):
    """The same with plain forms, with buttons in place of scripts."""
    made, browser, address = page
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get(address)
        browser.find_element(By.ID, "say").send_keys("/diagnose 7", Keys.ENTER)
        assert made.until(lambda: made.messages(ALERTS))
        browser.get(f"{address}/at/{ANN}/{ALERTS}")
        pressed(browser, "Close out")
        assert made.until(lambda: made.modal(ANN))
        browser.get(f"{address}/at/{ANN}/{ALERTS}")
        Select(browser.find_element(By.NAME, "f.cause")).select_by_visible_text("ECC error")
        browser.find_element(By.NAME, "q.other_fault").send_keys("nccl")
        pressed(browser, "Search")
        browser.find_element(By.XPATH, "//label[contains(., 'nccl-timeout')]/input").click()
        pressed(browser, "Close", "footer")
        assert made.until(lambda: made.messages(ALERTS)[-1].text == "closed: d1")
        browser.find_element(By.CSS_SELECTOR, ".who .go").click()
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_hostile_words_do_nothing(page):
    """No alert, no remote request, nothing for the browser's policy to block."""
    made, browser, address = page
    everywhere(made)
    for path in (f"/at/{ANN}/{ALERTS}", f"/at/{ANN}/home"):
        browser.get(f"{address}{path}")
        assert browser.find_element(By.CSS_SELECTOR, ".header").text.startswith("<script>alert(1)</script>")
        asked = browser.execute_script("return performance.getEntriesByType('resource').map(one => one.name)")
        assert [item for item in asked if not item.startswith(address)] == []
    assert complaints(browser) == []


@pytest.mark.quick("light-390")
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_and_can_be_read(page, width, scheme):
    """Nothing overflows horizontally, and text has a contrast of 4.5 to 1, as WCAG requires."""
    made, browser, address = page
    made.command(ANN, ALERTS, "/diagnose", "a-job-with-a-very-long-name-" * 4)
    made.say(BO, ALERTS, "x" * 300)
    made.say(BO, RANDOM, "elsewhere")
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    )
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    try:
        ts = made.until(lambda: [message.ts for message in made.messages(ALERTS) if message.by_app])[0]
        for path in ("", f"?thread={ts}"):
            browser.get(f"{address}/at/{ANN}/{ALERTS}{path}")
            assert browser.execute_script("return document.documentElement.scrollWidth - window.innerWidth") <= 0
            assert browser.execute_script(FAINT) == []
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


FAINT = r"""
const light = text => {
  const [r, g, b] = text.match(/[\d.]+/g).slice(0, 3).map(one => one / 255).map(one => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const ground = one => {
  for (; one; one = one.parentElement) {
    const back = getComputedStyle(one).backgroundColor, alpha = back.match(/[\d.]+/g)[3];
    if (alpha === undefined || alpha === "1") return back;
  }
  return "rgb(255, 255, 255)";
};
const faint = [];
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walk.nextNode()) {
  const one = walk.currentNode.parentElement;
  if (!walk.currentNode.data.trim() || !one.checkVisibility({ checkOpacity: true }) || one.closest("option, datalist, .unseen")) continue;
  const [a, b] = [light(getComputedStyle(one).color), light(ground(one))].sort((x, y) => y - x);
  const contrast = (a + 0.05) / (b + 0.05);
  if (contrast < 4.5) faint.push(`${walk.currentNode.data.trim().slice(0, 30)}: ${contrast.toFixed(2)}`);
}
return faint;
"""
