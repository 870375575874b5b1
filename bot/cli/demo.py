"""`signalbox demo --chat`: a chat in the browser, until Ctrl-C."""

from __future__ import annotations

import signal
import threading

from bot.cli.console import say
from bot.demo.chat import EXAMPLES, chat
from bot.runtime.signals import set_on_signal


def run(port: int) -> None:
    """Start the chat, print its address, and wait for Ctrl-C."""
    over = threading.Event()
    set_on_signal(over, signal.SIGINT, signal.SIGTERM)
    say("Starting a local Slack, the app and two workers…", err=True)
    with chat(port, lambda _words: None) as demo:
        say(f"Open {demo.address}/ and type one of these:\n")
        for text, why in EXAMPLES:
            say(f"  {text:<32} {why}")
        say("\nTry the buttons, close the incident, ask again. Ctrl-C stops the demo and deletes its data.")
        over.wait()
    say("Stopped.", err=True)
