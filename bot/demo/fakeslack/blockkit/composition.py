"""Block Kit composition objects: text, options, option groups, confirmations. Limits from the Slack documentation."""

from __future__ import annotations

from typing import Any

from bot.demo.fakeslack.blockkit.json_node import JsonNode

TEXT = 3000
CHOICES = 100  # options of a select, and its groups
OPTION_TEXT = 75
OPTION_VALUE = 150
OPTION_WORDS = 75  # its description


def text(node: JsonNode, most: int = TEXT, *, plain: bool = False) -> None:
    """Check a text object: plain_text or mrkdwn, at least one character."""
    if not node.object("type text", "emoji verbatim"):
        return
    if plain:
        node["type"].one_of("plain_text")
    else:
        node["type"].one_of("plain_text", "mrkdwn")
    node["text"].string(most, 1)
    if node.has("emoji"):
        node["emoji"].boolean()
        if node.value["type"] != "plain_text":
            node["emoji"].complain("only allowed in plain_text")
    if node.has("verbatim"):
        node["verbatim"].boolean()
        if node.value["type"] != "mrkdwn":
            node["verbatim"].complain("only allowed in mrkdwn")


def confirm(node: JsonNode) -> None:
    """Check a confirmation dialog."""
    if node.object("title text confirm deny", "style"):
        text(node["title"], 100, plain=True)
        text(node["text"], 300)
        text(node["confirm"], 30, plain=True)
        text(node["deny"], 30, plain=True)
        for style in node.children("style"):
            style.one_of("primary", "danger")


def option(node: JsonNode, *, plain: bool = True, url: bool = False) -> None:
    """Check an option. `plain`: its text must be plain_text (only checkboxes and radio buttons take mrkdwn)."""
    if node.object("text value", "description url" if url else "description"):
        text(node["text"], OPTION_TEXT, plain=plain)
        node["value"].string(OPTION_VALUE, 1)
        for words in node.children("description"):
            text(words, OPTION_WORDS, plain=plain)
        for address in node.children("url"):
            address.string(3000, 1)


def options(node: JsonNode, least: int, most: int, *, plain: bool = True, url: bool = False) -> None:
    """Check a list of options with distinct values."""
    members = node.items(least, most)
    for member in members:
        option(member, plain=plain, url=url)
    values = [member.value.get("value") for member in members if isinstance(member.value, dict)]
    if len(set(map(repr, values))) < len(values):
        node.complain("options must have unique values")


def choices(node: JsonNode) -> None:
    """Check `options` or `option_groups` of a select; also the response to a block_suggestion, which may be empty."""
    if node.has("options") == node.has("option_groups"):
        node.complain("must define either `options` or `option_groups`")
        return
    for child in node.children("options"):
        options(child, 0, CHOICES)
    for groups in node.children("option_groups"):
        for group in groups.items(0, CHOICES):
            if group.object("label options"):
                text(group["label"], 75, plain=True)
                options(group["options"], 0, CHOICES)


def offered(select: dict[str, Any]) -> list[Any]:
    """Return all options of a select, grouped or not."""
    found: list[Any] = []
    if isinstance(select.get("options"), list):
        found += select["options"]
    groups = select.get("option_groups")
    for group in groups if isinstance(groups, list) else ():
        if isinstance(group, dict) and isinstance(group.get("options"), list):
            found += group["options"]
    return found


def initial(node: JsonNode, key: str, *, among: list[Any] | None) -> None:
    """Check an initial option: it must equal an offered one."""
    if node.has(key):
        if among is None:
            option(node[key])
        elif node.value[key] not in among:
            node[key].complain("must exactly match one of the provided options")


def initials(node: JsonNode, *, among: list[Any] | None, plain: bool = True) -> None:
    """Check `initial_options`: at least one, each equal to an offered one."""
    if node.has("initial_options"):
        for initial_option in node["initial_options"].items(1, CHOICES):
            if among is None:
                option(initial_option, plain=plain)
            elif initial_option.value not in among:
                initial_option.complain("must exactly match one of the provided options")
