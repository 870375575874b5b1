"""`signalbox demo --chat` as a person uses it: the real service in its processes, the page in a real Chromium."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("selenium", reason="the demo's browser test needs selenium")

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

from tests.support.chromium import by_text, complaints, pressed

SHOTS = os.environ.get("SIGNALBOX_SHOTS")  # a folder: what the page looked like at each step is kept there


@pytest.fixture
def demo(signalbox):
    """Run the command; yield its address."""
    words = [sys.executable, "-m", "bot.cli.main", "demo", "--chat", "--port", "0"]
    running = subprocess.Popen(
        words,
        env=signalbox.environment(),
        cwd=signalbox.cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        said = running.stdout.readline()
        yield re.search(r"http://127\.0\.0\.1:\d+/", said)[0]
    finally:
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 0
        running.stdout.close()


def shot(browser, name):
    """Save a screenshot if requested."""
    if SHOTS:
        Path(SHOTS).mkdir(exist_ok=True, parents=True)
        browser.save_screenshot(f"{SHOTS}/{name}.png")


def test_from_the_question_to_the_closed_incident(demo, browser):
    """Ask, read the answer with evidence and timeline, press "Wrong", name another cause, see the message change."""
    browser.get(demo)
    patient = WebDriverWait(browser, 120)
    browser.find_element(By.ID, "say").send_keys("/diagnose demo", Keys.ENTER)
    assert "Diagnosing demo" in browser.find_element(By.CSS_SELECTOR, ".message.mine").text
    shot(browser, "1-asked")
    answer = "//main//article[.//*[contains(@class, 'header') and contains(., 'demo: failed')]]"
    told = patient.until(lambda item: item.find_element(By.XPATH, answer)).text
    assert "Don't requeue yet. Fix the cause, then resume from checkpoint 30" in told
    assert "rank 5 on node-b" in told
    assert "mmap length is greater than file size" in told
    shot(browser, "2-answered")
    patient.until(
        lambda item: item.find_element(By.XPATH, "//main//a[contains(., '2 replies') or contains(., '1 reply')]")
    ).click()
    patient.until(lambda item: item.find_element(By.CSS_SELECTOR, "aside img"))
    shot(browser, "3-thread")
    pressed(browser, "👎 Wrong", "main")
    patient.until(lambda item: item.find_element(By.CSS_SELECTOR, "[role=dialog]"))
    shot(browser, "4-form")
    Select(browser.find_element(By.NAME, "f.cause")).select_by_visible_text("Another fault…")
    search = patient.until(lambda item: item.find_element(By.NAME, "q.other_fault"))
    search.send_keys("disk full")
    patient.until(lambda item: item.find_element(By.CSS_SELECTOR, "[data-offers] input")).click()
    nodes = browser.find_element(By.NAME, "f.nodes")
    nodes.clear()
    nodes.send_keys("node-a")
    shot(browser, "5-filled")
    pressed(browser, "Close out", "footer")
    closed = "//main//article[.//*[contains(@class, 'header') and contains(., 'demo: failed, closed')]]"
    told = patient.until(lambda item: item.find_element(By.XPATH, closed)).text
    assert "node-a" in told
    assert "(bot: wrong)" in told
    assert by_text(browser, "Edit close-out", "main")
    shot(browser, "6-closed")
    assert complaints(browser) == []
