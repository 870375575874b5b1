"""What a pull request says, for a reviewer in a hurry. Everything in it that comes from an incident is text and nothing else.

A forge reads more than Markdown: it mentions people, links and closes issues, runs quick actions and skips checks. So words of
others stand in code, or are taken apart where a forge would act on them (`quiet`); titles and messages of commits, which are
read by more readers still, are of letters, digits and a few marks (`plain`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from bot.render.markdown import block, cell, code, prose, table
from bot.runtime.redaction import redact

BEGIN, END = "<!-- signalbox: from here -->", "<!-- signalbox: to here -->"
LONGEST = 60_000  # characters; GitHub takes 65,536
MOST_QUOTED = 5  # lines of evidence: a reviewer reads no more
MOST_LINES, LONGEST_LINE, LONGEST_TITLE, LONGEST_WORDS = 20, 400, 100, 2000
_GAP = "&#8203;"  # seen by nobody, and no name, number or address goes on behind it
_ACTS = re.compile(r"(?<=[@!~%$^:/])(?=\S)|(?<!&#)(?<=#)(?=\S)|(?<=\b[Gg][Hh]-)(?=\d)|(?<=&)(?=\d)|(?<=\bwww)(?=\.)")
_COMMIT = re.compile(r"\b[0-9a-f]{7,64}\b")
_SAFE = re.compile(r"[^A-Za-z0-9 .,;()'+=_-]+")
_CLOSES = re.compile(r"\b([Gg][Hh])-(?=\d)")
_DRAFT = re.compile(r"\A(?:\W*\b(?:draft|wip)\b\W*)+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class BodyContent:
    """The content of a body.

    `why`: what people wrote; `lines`: the evidence, which the rule matches; `silent`: lines that it must not match, with comments; `figures`: results of
    tests and backtest, in order.

    `notes`: what a reviewer must know, as that one incident alone supports it; `questions`: what only a reviewer can add. `incidents`:
    their numbers. `mark`: see Plan. `switch`: the command that checks its branch out; `folder`: the folder of the rules in the repository.
    """

    mark: str
    rule: str
    title: str
    fault: str
    who: str
    why: str = ""
    patterns: Sequence[str] = ()
    lines: Sequence[str] = ()
    silent: Sequence[str] = ()
    figures: Sequence[tuple[str, str]] = ()
    notes: Sequence[str] = ()
    incidents: Sequence[int] = ()
    passed: bool = False
    questions: Sequence[str] = ()
    switch: str = ""
    folder: str = "rules"


def body_of(content: BodyContent, note: str = "") -> str:
    """The body, bounded. `note`: the state of things, in our own words."""
    text = _template().render(
        content=content,
        note=note,
        lines=_block(content.lines[:MOST_QUOTED]),
        silent=_block(content.silent[: 2 * MOST_QUOTED]),
        patterns=_block(content.patterns),
        figures="\n".join(table(["Figure", ""], [[_cell(name), _cell(value)] for name, value in content.figures])),
        tries=_block(_tries(content)),
        incidents=", ".join(str(number) for number in content.incidents[:20]),
    )
    if len(text) > LONGEST:
        text = _template().render(
            content=content, note=note, lines="", silent="", patterns="", figures="", incidents="", tries=_block(_tries(content)),
        )  # fmt: skip
    return f"{BEGIN}\n{text.strip()}\n\n{hidden(content.mark)}\n{END}"


def _tries(content: BodyContent) -> list[str]:
    """The commands by which a reviewer tries the rule."""
    test = f"signalbox rules test {content.rule} --drafts --rules {content.folder}"
    return [*([content.switch] if content.switch else []), test, f"{test} --on failed.log"]


def hidden(mark: str) -> str:
    """A mark that readers do not see. It is of letters, digits and : - alone."""
    return f"<!-- {re.sub(r'[^a-z0-9:-]+', '', mark.lower())} -->"


def renewed(old: str, new: str) -> str:
    """A body with our part of it replaced: what people wrote around it stays."""
    start, end = old.find(BEGIN), old.rfind(END)
    if start < 0 or end < start:
        return new
    return f"{old[:start]}{new}{old[end + len(END) :]}"


def title_of(rule: str, title: str) -> str:
    """The title of a pull request, also of the commits that a merge makes of it."""
    words = plain(title.replace(": ", ", "), LONGEST_TITLE)
    return f"Rule {rule}: {words}" if words else f"Rule {rule}"


def plain(text: str, limit: int) -> str:
    """A text of letters, digits and marks that mean nothing to a forge."""
    line = " ".join(_SAFE.sub(" ", redact(text)).split())
    return _CLOSES.sub(r"\1 ", _DRAFT.sub("", line))[:limit].rstrip()


def one_line(text: str, limit: int = LONGEST_WORDS) -> str:
    """Words of people as one line of Markdown on which no forge acts."""
    return quiet(prose(redact(text)[:limit]))


def quiet(markdown: str) -> str:
    """Markdown without what forges act on: mentions, references, addresses, quick actions."""
    return _COMMIT.sub(lambda hit: _GAP.join(re.findall(".{1,6}", hit[0])), _ACTS.sub(_GAP, markdown))


def _cell(text: str) -> str:
    return quiet(cell(redact(text)[:LONGEST_LINE]))


def _code(text: str) -> str:
    return code(redact(text)[:LONGEST_LINE])


def _block(lines: Sequence[str]) -> str:
    kept = [redact(line)[:LONGEST_LINE] for line in lines[:MOST_LINES]]
    if len(lines) > MOST_LINES:
        kept.append(f"… and {len(lines) - MOST_LINES} more")
    return "\n".join(block(kept)) if kept else ""


@cache
def _template() -> Template:
    environment = Environment(  # noqa: S701 - it makes Markdown; every value goes through one of the filters
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["one_line"] = one_line
    environment.filters["code"] = _code
    return environment.get_template("pull_request.md")
