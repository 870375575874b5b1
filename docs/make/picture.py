"""Draws docs/answer.svg: what `signalbox demo` answers, as a terminal shows it.

Run as: python docs/make/picture.py
"""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

from bot.diagnosis.diagnose import diagnose_bundle
from bot.render.telling_words import telling_words
from bot.render.terminal import render
from bot.render.text_page import Reading
from bot.rulebase.loader import knowledge

ROOT = Path(__file__).resolve().parent.parent.parent


def main() -> None:
    """Render the demo's report and write the picture."""
    console = Console(record=True, width=92, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print("[bold]$ signalbox diagnose --bundle shard-corrupt[/bold]\n", highlight=False)
    known = knowledge()
    answer = diagnose_bundle(known, ROOT / "bot" / "demo" / "incidents" / "shard-corrupt")
    render(answer.report, console, Reading(telling=telling_words(known.rulebook)))
    svg = console.export_svg(title="signalbox", theme=MONOKAI, unique_id="answer")
    svg = re.sub(r"@font-face \{[^}]*\}", "", svg)  # no outside resource
    text = "\n".join(line.rstrip() for line in svg.splitlines() if line.strip())
    (ROOT / "docs" / "answer.svg").write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main()
