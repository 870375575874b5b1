"""A real Chromium for tests of pages, and how a person finds and presses things in it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
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
    running = _lasting(webdriver)(options=options, service=webdriver.ChromeService(driver))
    running.set_script_timeout(120)  # seconds; axe-core takes half of the usual 30 on a busy machine
    running.implicitly_wait(PATIENCE)
    try:
        yield running
    finally:
        running.quit()


def _lasting(webdriver: Any) -> type[Any]:
    """The driver whose elements are found again where the page replaced them since, as a person would find them.

    Pages replace their parts as news come. A command to an element that is gone has done nothing.
    """
    from selenium.common.exceptions import StaleElementReferenceException
    from selenium.webdriver.remote.webelement import WebElement

    class Lasting(WebElement):
        place: tuple[str, str] | None = None

        def _execute(self, command: str, params: Any = None) -> Any:
            end = time.monotonic() + PATIENCE
            while True:
                try:
                    return super()._execute(command, params)
                except StaleElementReferenceException:
                    if self.place is None or time.monotonic() > end:
                        raise
                    self._id = self._parent.find_element(*self.place).id

    class Chrome(webdriver.Chrome):  # type: ignore[misc] # of a module that may be missing
        _web_element_cls = Lasting

        def find_element(self, by: str = "id", value: str | None = None) -> Any:
            found = super().find_element(by, value)
            found.place = (by, value)
            return found

    return Chrome


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
    moved(browser, link.click)


def moved(browser: Any, act: Callable[[], object]) -> None:
    """Do what leads to another page, and wait until that page is there."""
    from selenium.webdriver.support.ui import WebDriverWait

    browser.execute_script("window.isLeft = true")
    act()
    there = "return !window.isLeft && document.readyState === 'complete'"
    WebDriverWait(browser, PATIENCE).until(lambda item: item.execute_script(there))


def complaints(browser: Any) -> list[str]:
    """What the console complains of."""
    return [item["message"] for item in browser.get_log("browser") if item["level"] in {"SEVERE", "WARNING"}]
