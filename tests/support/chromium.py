"""A real Chromium for tests of pages, and how a person finds and presses things in it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

PATIENCE = 90  # seconds for what a person would wait for: a machine may be busy
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1280,900",
)  # fmt: skip


@contextmanager
def chromium(profile: Path, *more: str) -> Iterator[Any]:
    """A Chromium with a fresh profile; skips, saying so, where there is none."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="tests in a browser need selenium")
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (program and driver):
        pytest.skip("tests in a browser need chromium and chromedriver (Debian: chromium, chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in (*FLAGS, *more, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    running = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    running.implicitly_wait(PATIENCE)
    try:
        yield running
    finally:
        running.quit()


def by_text(browser: Any, text: str, within: str = "body") -> Any:
    """The button, link or menu that says this."""
    return browser.find_element(
        "xpath", f"//{within}//*[self::button or self::a or self::summary][normalize-space()='{text}']"
    )


def pressed(browser: Any, text: str, within: str = "body") -> None:
    """Press it."""
    by_text(browser, text, within).click()


def followed(browser: Any, link: Any) -> None:
    """Press a link or a form's button, and wait until the page that it leads to is there."""
    from selenium.webdriver.support.expected_conditions import staleness_of
    from selenium.webdriver.support.ui import WebDriverWait

    before = browser.find_element("tag name", "html")
    link.click()
    wait = WebDriverWait(browser, PATIENCE)
    wait.until(staleness_of(before))
    wait.until(lambda item: item.execute_script("return document.readyState") == "complete")


def complaints(browser: Any) -> list[str]:
    """What the console complains of."""
    return [item["message"] for item in browser.get_log("browser") if item["level"] in {"SEVERE", "WARNING"}]
