"""The footer of an answer: nodes to exclude, requester, page link, buttons and menus."""

from __future__ import annotations

from bot.render import phrases, text_format
from bot.render.text_format import few, many
from bot.slack.blocks.builders import (
    actions,
    button,
    channel,
    choice,
    confirmed,
    handled,
    link,
    mention,
    menu,
    moment,
    note,
    overflow,
    paragraph,
    rich,
    words,
)
from bot.slack.blocks.limits import Json
from bot.slack.messages.answer_header import _EXCLUDED
from bot.slack.messages.card import Card, ExcludedNode
from bot.slack.messages.text_limits import SENTENCE
from kb.model import NOT_FAILED
from kb.report import Report

_LABEL = 60  # characters of a node's name on a button


def context_notes(report: Report, card: Card) -> list[Json]:
    """Return the requester, the page link and the versions."""
    asked, page = _requester(card), link(card.link, "Incident page")
    for console in card.consoles:
        page += [*(words(" · ") if page else []), *link(console.url, console.name)]
    muted = words(f"Muted: {card.muted}" if card.muted else "", SENTENCE)
    if muted and card.muted_until is not None:
        muted += [*words(" until "), *moment(card.muted_until)]
    if muted and card.muted_by:
        muted += [*words(", by "), *mention(card.muted_by)]
    elsewhere: list[Json] = []
    if card.nowhere:
        elsewhere = [
            *words("Sent only to you: I can't post in "), *channel(card.nowhere), *words(". Invite me there with "),
            *words("/invite", code=True), *words("."),
        ]  # fmt: skip
    return [
        *rich(paragraph(elsewhere)),
        *rich(paragraph([*asked, *(words(" · ") if asked and page else []), *page], muted)),
        note("Only you see this" if card.private else "", _numbered(report, card)),
    ]


def _numbered(report: Report, card: Card) -> str:
    """Return the incident number, for the command line, and the versions."""
    number = "" if card.number is None else f"Incident {card.number}; "
    return text_format.cut(f"{number}{phrases.versions(report)}", SENTENCE)


def _requester(card: Card) -> list[Json]:
    if card.asked_by:
        return [*words("Asked by "), *mention(card.asked_by)]
    return words(f"Automatic: {card.why}", SENTENCE) if card.why else []


def answer_buttons(report: Report, card: Card) -> Json:
    """Return the row of buttons and menus under an answer."""
    handle = card.handle
    if report.verdict == "fault" or (report.verdict == "no_fault" and report.hang.lone is None):
        says = [button("right", "👍 Right", handle), button("wrong", "👎 Wrong", handle)]
    else:
        says = []
    unknown = card.can_propose and report.verdict == "no_match"
    propose = [button("propose_rule", "Propose a rule", handle)] if unknown else []
    free = not card.life.acked and card.life.snoozed is None
    failed = report.verdict not in NOT_FAILED
    return actions(
        *([button("ack", "Acknowledge", handle)] if free and failed else []),
        *says,
        button("evidence", "Evidence", handle),
        button("close_out", "Close out", handle),
        *propose,
        manage_menu(card, ack=free and not failed),
        more_menu(report, handle, propose=card.can_propose and not propose),
    )


def exclusion_blocks(card: Card) -> list[Json]:
    """Return the nodes to exclude with their state, and two buttons while a decision is open."""
    if not card.bars:
        return []
    told = [[*words(f"{bar.node}: {bar.told}", SENTENCE), *_decided_by(bar)] for bar in card.bars[:_EXCLUDED]]
    rest = len(card.bars) - _EXCLUDED
    blocks = rich(
        paragraph(
            words("Node exclusions", bold=True), *told, words(f"… and {many(rest, 'more node')}" if rest > 0 else "")
        )
    )
    open_ = [bar.node for bar in card.bars if bar.state == "proposed"]
    if not open_:
        return blocks
    names = few(open_)
    what = text_format.cut(open_[0], _LABEL) if len(open_) == 1 else f"{len(open_)} nodes"
    asks = (
        f"Signalbox will advise against using {names} and flag later jobs that run there. "
        "Nothing changes on the cluster."
    )
    pair = (
        confirmed(button("bar_confirm", f"Exclude {what}", card.handle), f"Exclude {what}?", asks, "Exclude"),
        button("bar_refuse", "Don't exclude", card.handle),
    )
    return [*blocks, actions(*pair)]


def _decided_by(excluded_node: ExcludedNode) -> list[Json]:
    return [*words(", by "), *mention(excluded_node.by)] if excluded_node.by else []


def manage_menu(card: Card, *, ack: bool = False) -> Json:
    """Return the menu of lifecycle steps that make sense now. `ack`: it can be acknowledged, and has no button for that."""
    life, handle = card.life, handled(card.handle)
    if life.whole is not None or card.closings:
        told = {"reopen": "Reopen", **({} if life.whole is not None else {"merge": "Merge into…"})}
    else:
        told = {
            "ack": "Acknowledge" if ack or life.snoozed is not None else "",
            "assign": "Assign…",
            "snooze": "Snooze…",
            "merge": "Merge into…",
            "reopen": "Unsnooze" if life.snoozed is not None else "",
        }
    return menu("life", "Manage…", [choice(f"{verb}:{handle}", label) for verb, label in told.items() if label])


def more_menu(report: Report, handle: str, *, propose: bool) -> Json:
    """Return the overflow menu: run again, mute, propose a rule."""
    first = report.diagnoses[0] if report.diagnoses else None
    nodes = first is not None and any(suspect.node for suspect in first.suspects)
    told = {
        "again": "Run again",
        "mute_rule": "Mute this rule…" if first is not None and first.known else "",
        "mute_job": "Mute this job…",
        "mute_node": "Mute this node…" if nodes else "",
        "propose_rule": "Propose a rule…" if propose else "",
    }
    return overflow("more", [choice(f"{verb}:{handled(handle)}", label) for verb, label in told.items() if label])
