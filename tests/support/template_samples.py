"""Logs of lines as training jobs print them, and mining them in parts."""

from __future__ import annotations

import random

from kb.model import StreamRef
from kb.templates.miner import AFTER, Miner
from kb.templates.table import TemplateTable

REF = StreamRef("node-1.log")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def log(lines: int, seed: int = 1, *, variety: int = 40) -> bytes:
    """A log of mixed lines of several ranks: iterations, tracebacks, progress bars, rare words, blank lines."""
    chance = random.Random(seed)
    parts: list[str] = []
    for number in range(lines):
        rank = chance.randint(0, 3)
        clock = f"2026-11-03 04:{number // 60 % 60:02d}:{number % 60:02d}"
        word = (
            "".join(chance.choice(_LETTERS) for _ in range(6)) if chance.random() < 0.5 else f"part{number % variety}"
        )
        parts.append(
            chance.choice(
                [
                    f"[rank{rank}]: [{clock},{number % 1000:03d}] [INFO] [loop.py:{number % 90}:step] wait {number * 7} ms\n",
                    f" iteration {number * 3:8d}/ 90000 | consumed samples: {number} | lm loss: 1.{number}E+00 |\n",
                    f"module {word} is ready to go\n",
                    f"{word} went away, error {number}\n",
                    f"{clock} WARNING reading {word}\r\n",
                    f"  7%|{'#' * (number % 9)}   | 7/100 [00:0{number % 9}<00:12,  3.6it/s]\r",
                    "\n",
                    f'[rank{rank}]: Traceback (most recent call last):\n[rank{rank}]:   File "/app/train.py", line {number}, in step{rank}\n',
                    f"[rank{rank}]:     run({word})\n",
                    f"[rank{rank}]: KeyError: 'k{number}'\n",
                    (
                        "Traceback (most recent call last):\n"
                        f'  File "/app/train.py", line {number}, in load\n    read()\nOSError: [Errno 5] {word}\n'
                    ),
                    f"node-{number % 5}: kernel talks of {word}\n",
                    f'{{"level": "warn", "time": "2026-11-03T04:10:{number % 60:02d}Z", "msg": "queue {word} is full"}}\n',
                ]
            )
        )
    return "".join(parts).encode()


def mined(text: bytes, *, block: int = 1 << 20, year: int | None = None) -> TemplateTable:
    """The table of a text given whole."""
    return part(text, 0, None, warm=0, block=block, year=year)


def part(
    text: bytes, start: int, stop: int | None, *, warm: int, block: int = 1 << 20, year: int | None = None
) -> TemplateTable:
    """The table of the lines that start in a range of a text."""
    origin = max(0, start - warm)
    end = len(text) if stop is None else min(len(text), stop + AFTER)
    miner = Miner(REF, origin=origin, own_start=start, own_stop=stop, year=year, windowed=True)
    for at in range(origin, end, block):
        miner.feed(text[at : min(at + block, end)])
    return miner.finish()
