"""Reports and cards full of hostile text: markup, mentions, invisible and broken characters, secrets, endless lines."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from random import Random
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from bot.policy.resolution_codes import VERDICTS
from bot.slack.messages.card import Card, Chain, IncidentStatus, Opinion
from kb.report import Report

# Each is made up; `ghp_` and the like are forms that GitHub and others document.
SECRETS = (
    "ghp_" + "Zq3" * 12,
    "hf_" + "aB7" * 12,
    "AKIA" + "QZ7WXY34" * 2,
    "xoxb-" + "914-77-qK2" * 3,
    "glpat-" + "k9Jw" * 5,
    "hunter2hunter2",
)
_CARRIED = {SECRETS[-1]: "password={} "}  # what shows by its key alone
TRICKS = (
    "<!channel> <!here> <!everyone> <@U012ABCDEF> <#C0123|general> <!subteam^S0123|x>",
    "<https://evil.example|your bank> https://evil.example/`x`",
    "*bold* _it_ ~gone~ `code` ```\nfence\n``` > quote :boom: @channel @here",
    "&lt;!channel&gt; &amp; & < > &&&<<<>>>",
    "\u202egnp.exe\u202c \u200b\u200d\ufeff\u2066x\u2069 \u0000\u0007\u001b[31mred\u001b[0m \u009b31m",
    "\ud800 lone \udfff surrogates",
    "日本語のログ 🔥🔥 👩\u200d💻 e" + "\u0301" * 40,
    "a\r\nb\nc\x0bd\x0ce\u2028f",
    "   ",
    "",
    "{job} %s $HOME $(x) `x` <%= 1 %> ${jndi:ldap://x}",
    "x" * 300,
)
_OPTIONAL = 0.2


def text(chance: Random) -> str:
    """Return a hostile text, at times with a secret or an endless line."""
    return chance.choice(_texts())


@cache
def _texts() -> tuple[str, ...]:
    chance = Random(7)
    return tuple(_text(chance) for _ in range(3000))


def _text(chance: Random) -> str:
    kind = chance.random()
    if kind < 0.25:
        return chance.choice(("gpu-017", "rank 7", "llm-70b", "disk_full", "logs/rank-7.err", "stage"))
    if kind < 0.251:
        return chance.choice("x<&`🔥 ") * chance.choice((100_000, 3_000, 20_000))
    parts = [chance.choice(TRICKS) for _ in range(chance.randint(1, 3))]
    if kind < 0.5:
        secret = chance.choice(SECRETS)
        parts.insert(chance.randint(0, len(parts)), _CARRIED.get(secret, "{}").format(secret))
    return " ".join(parts)


def report(chance: Random) -> Report:
    """Return a report with random fields."""
    return _made(Report, chance, most=chance.choice((0, 1, 2, 2, 3, 3, 12)))


def card(chance: Random) -> Card:
    """Return a random card; only some ids of people and groups are valid Slack ids."""
    people = ("U012ABC", "W9", "S0GROUP", "<!channel>", text(chance))
    said = tuple(
        Opinion(
            chance.choice(people),
            text(chance),
            (text(chance), *chance.choice(((), ("n1",) * 300))),
            chance.choice((None, *VERDICTS)),
            text(chance),
        )
        for _ in range(chance.choice((0, 0, 0, 1, 2, 40)))
    )
    return Card(
        handle="h_" + "a1-" * 20,
        asked_by=chance.choice((None, *people)),
        why=text(chance),
        later=chance.choice((0, 1, 10**9)),
        times=chance.choice((1, 2, 10**9)),
        chain=chance.choice((None, Chain(chance.randint(0, 10**9), tuple((text(chance), 7) for _ in range(30))))),
        closings=said,
        weak={text(chance): text(chance), "gpu-017": text(chance)},
        owner=chance.choice((None, *people)),
        link=chance.choice(
            (None, "https://signalbox.example/i/7", "javascript:alert(1)", text(chance), "https://x/" + "y" * 4000)
        ),
        private=chance.random() < 0.5,
        muted=text(chance),
        life=life(chance),
    )


def life(chance: Random) -> IncidentStatus:
    """Return a random incident status, mostly empty."""
    if chance.random() < 0.5:
        return IncidentStatus()
    link = chance.choice((None, "https://signalbox.example/i/7", "javascript:alert(1)", "https://x/" + "y" * 4000))
    return IncidentStatus(
        acked=chance.random() < 0.5,
        assignee=chance.choice((None, "U012ABC", "<!channel>", text(chance))),
        snoozed=chance.choice((None, 1.8e9, 1e300)),
        whole=chance.choice((None, None, (10**15, text(chance), link))),
        parts=chance.choice(((), tuple((number, text(chance)) for number in range(300)))),
        reopened=chance.random() < 0.3,
    )


@cache
def _shape(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    return get_origin(kind), get_args(kind)


@cache
def _fields(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


def _made(kind: Any, chance: Random, most: int) -> Any:
    """Return a value of a type, by its annotations."""
    origin, inside = _shape(kind)
    if origin is Literal:
        return chance.choice(inside)
    if origin in (Union, UnionType):
        options = [item for item in inside if item is not type(None)]
        return None if chance.random() < _OPTIONAL else _made(chance.choice(options), chance, most)
    if origin is tuple:
        return _items(inside, chance, most)
    if isinstance(kind, type) and is_dataclass(kind):
        return kind(**{name: _made(hint, chance, min(most, 2)) for name, hint in _fields(kind).items()})
    return _plain(kind, chance)


def _items(inside: tuple[Any, ...], chance: Random, most: int) -> tuple[Any, ...]:
    if inside[-1:] != (Ellipsis,):
        return tuple(_made(item, chance, most) for item in inside)
    count = chance.randint(0, most) if chance.random() > 0.002 else 60
    return tuple(_made(inside[0], chance, most) for _ in range(count))


def _plain(kind: Any, chance: Random) -> Any:
    if kind is bool:
        return chance.random() < 0.5
    if kind is int:
        return chance.choice((0, 1, 7, -1, 2**40))
    if kind is float:
        return chance.choice((0.0, 1_772_366_400.0, 0.5, 1e30, float("nan"), float("inf"), -1e18))
    return text(chance)
