"""Ways to print that nobody chose: a number picks the columns before a message, how a line names its rank, the clock, and the words of progress."""

import logging
import os
import random
import time

import hooks

WORDS = ("rank", "worker", "proc", "replica", "task", "member", "learner", "trainer", "r", "W")
RANKS = (
    "[{w} {n}]",
    "[{w}{n}]",
    "{w}={n}",
    "{w}-{n}",
    "<{w}:{n}>",
    "({w} {n}/{size})",
    "{w}:{n}",
    "{w}#{n}",
    "{w}_{n}",
)
DATES = (
    "%Y-%m-%d %H:%M:%S",
    "%Y-%m-%dT%H:%M:%S",
    "%H:%M:%S",
    "%m/%d %H:%M:%S",
    "%Y/%m/%d %H:%M:%S",
    "%b %d %H:%M:%S",
    "",
)
PROGRESS = (
    "step {s}/{of} {v}",
    "[{s}/{of}] {v}",
    "it {s}: {v}",
    "update={s} {v}",
    "batch {s} of {of} | {v}",
    "global step {s} ({p:.0f} %) {v}",
    "done {s} steps, {v}",
)
SEPARATORS = (" ", " | ", " - ", "\t", ", ")


class Form(logging.Formatter):
    """A line as the number says."""

    def __init__(self, number):
        super().__init__()
        chance = random.Random(number)
        self.word, self.rank = chance.choice(WORDS), chance.choice(RANKS)
        self.width = chance.choice((1, 1, 2, 3))
        self.date, self.fraction = chance.choice(DATES), chance.choice((0, 3, 6))
        self.level = chance.choice(("{0}", "[{0}]", "{0:<8}", "{1}", "{2}", ""))
        self.order = chance.sample("tlrg", 4)
        self.order = self.order[: chance.choice((3, 4))] if "r" in self.order[:3] else self.order
        self.between = chance.choice(SEPARATORS)
        self.before = chance.choice((" ", ": ", " :: ", "> ")) if self.between == " " else self.between
        self.progress = chance.choice(PROGRESS)

    def format(self, record):
        stamp = time.strftime(self.date, time.localtime(record.created))
        if self.fraction and stamp:
            stamp += f".{int(record.created % 1 * 10**self.fraction):0{self.fraction}d}"
        level = record.levelname
        rank = self.rank.format(w=self.word, n=f"{hooks.rank():0{self.width}d}", size=os.environ.get("WORLD_SIZE", "8"))
        columns = {
            "t": stamp,
            "l": self.level.format(level, level.lower(), level[0]),
            "r": rank,
            "g": record.name,
        }
        head = self.between.join(columns[key] for key in self.order if columns[key])
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return f"{head}{self.before}{text}"

    def metrics(self, step, total, values):
        """A line of progress."""
        told = " ".join(f"{key}={float(value):.5g}" for key, value in values.items())
        return self.progress.format(s=step, of=total, v=told, p=100 * step / total)
