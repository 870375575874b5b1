"""Block Kit rich text: sections, lists, quotes and preformatted elements, in which nothing is parsed."""

from __future__ import annotations

from bot.demo.fakeslack.blockkit.json_node import JsonNode

LONGEST = 12_000  # of one piece; undocumented: the sum over all blocks ends it
_INSIDE = frozenset({"text", "link", "emoji", "user", "usergroup", "channel", "broadcast", "date", "color"})
_VERBATIM = frozenset({"text", "link"})
_PIECES = {  # kind: allowed fields, allowed children
    "rich_text_section": ("", _INSIDE),
    "rich_text_preformatted": ("border language", _VERBATIM),
    "rich_text_quote": ("border", _INSIDE),
}
_STYLES = "bold italic strike code underline highlight client_highlight unlink"


def rich_text(node: JsonNode) -> None:
    """Check the elements of a rich_text block."""
    for element in node["elements"].items(1, 1000):
        _piece(element, lists=True)


def _piece(node: JsonNode, *, lists: bool) -> None:
    kind = node.kind()
    if kind == "rich_text_list" and lists:
        _list(node)
    elif kind in _PIECES:
        more, allowed = _PIECES[kind]
        if node.object("type elements", more):
            _check_children(node["elements"], allowed)
            _border(node)
    elif kind:
        node.complain(f"unsupported type: {kind}")


def _list(node: JsonNode) -> None:
    if node.object("type style elements", "indent offset border"):
        node["style"].one_of("bullet", "ordered")
        for element in node["elements"].items(1, 1000):
            _piece(element, lists=False)
        for child in node.children("indent"):
            child.integer(0, 8)
        for item in node.children("offset"):
            item.integer(0, 10_000)
        _border(node)


def _border(node: JsonNode) -> None:
    for child in node.children("border"):
        child.integer(0, 1)


def _check_children(node: JsonNode, allowed: frozenset[str]) -> None:
    for element in node.items(1, 5000):
        kind = element.kind()
        if kind and kind not in allowed:
            element.complain(f"unsupported type: {kind}")
        elif kind:
            _leaf(element, kind)


def _leaf(node: JsonNode, kind: str) -> None:
    required, optional, texts = _LEAVES[kind]
    if not node.object(f"type {required}", optional):
        return
    for key in texts.split():
        for child in node.children(key):
            child.string(LONGEST, 1)
    for style in node.children("style"):
        if style.object("", _STYLES):
            for item in style.value:
                style[item].boolean()
    if kind == "broadcast":
        node["range"].one_of("here", "channel", "everyone")
    if kind == "date":
        node["timestamp"].integer(0, 1 << 40)


_LEAVES = {  # kind: required fields, optional fields, non-empty text fields
    "text": ("text", "style", "text"),
    "link": ("url", "text unsafe style", "url text"),
    "emoji": ("name", "unicode skin_tone style", "name"),
    "user": ("user_id", "style", "user_id"),
    "usergroup": ("usergroup_id", "style", "usergroup_id"),
    "channel": ("channel_id", "style", "channel_id"),
    "broadcast": ("range", "style", ""),
    "date": ("timestamp format", "url fallback style", "format url fallback"),
    "color": ("value", "style", "value"),
}
