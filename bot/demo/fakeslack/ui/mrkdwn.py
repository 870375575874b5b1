"""Slack markup as HTML: mrkdwn and rich text. All text is untrusted: escaped first, and only known markup becomes HTML."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import tzinfo
from types import MappingProxyType

from markupsafe import Markup, escape

from bot.demo.fakeslack.ui.dates import dated
from bot.demo.fakeslack.values import Channel, Json, User, UserGroup

EMOJI: Mapping[str, str] = MappingProxyType(
    {
        "+1": "👍", "thumbsup": "👍", "-1": "👎", "thumbsdown": "👎", "white_check_mark": "✅", "heavy_check_mark": "✔️",
        "x": "❌", "warning": "⚠️", "rotating_light": "🚨", "hourglass": "⌛", "hourglass_flowing_sand": "⏳",
        "mag": "🔍", "eyes": "👀", "question": "❓", "grey_question": "❔", "bulb": "💡", "wrench": "🔧", "fire": "🔥",
        "lock": "🔒", "bell": "🔔", "no_bell": "🔕", "page_facing_up": "📄", "bar_chart": "📊", "link": "🔗", "stopwatch": "⏱️",
        "arrows_counterclockwise": "🔄", "large_green_circle": "🟢", "large_yellow_circle": "🟡", "red_circle": "🔴",
        "large_orange_circle": "🟠", "white_circle": "⚪", "black_circle": "⚫", "information_source": "\u2139\ufe0f", "memo": "📝",
        "speech_balloon": "💬", "checkered_flag": "🏁", "zzz": "💤", "package": "📦", "gear": "⚙️", "tada": "🎉", "no_entry": "⛔", "no_entry_sign": "🚫", "octagonal_sign": "🛑", "exclamation": "❗",
        "mute": "🔇", "repeat": "🔁", "pushpin": "📌", "calendar": "📅", "computer": "💻", "electric_plug": "🔌", "skull": "💀",
        "ghost": "👻", "arrow_right": "➡️", "large_blue_circle": "🔵", "clock3": "🕒", "scroll": "📜",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Names:
    """Names for ids, and the time zone of the reader, UTC if None."""

    users: Mapping[str, User]
    channels: Mapping[str, Channel]
    groups: Mapping[str, UserGroup]
    zone: tzinfo | None = None

    def user(self, name: str) -> str:
        """@name of a user."""
        known = self.users.get(name)
        return f"@{known.name}" if known else "@unknown user"

    def channel(self, name: str, label: str = "") -> str:
        """#name of a channel."""
        known = self.channels.get(name)
        return f"#{known.name}" if known else f"#{label or 'unknown channel'}"

    def group(self, name: str, label: str = "") -> str:
        """@handle of a user group."""
        known = self.groups.get(name)
        return f"@{known.handle}" if known else (label or "@unknown group")


_OPEN, _SHUT = "\ue000", "\ue001"  # enclose the number of a finished piece
_PIECES = re.compile(
    r"```(?P<pre>.+?)```|`(?P<code>[^`\n]+)`|<(?P<ref>[^<>\n]+)>|:(?P<emoji>[a-z0-9_+'-]+):", re.DOTALL
)
_DONE = re.compile(f"{_OPEN}([0-9]+){_SHUT}")
_STYLES = tuple(
    (re.compile(rf"(?<![\w{mark}]){mark}(?=\S)([^{mark}\n]*?[^\s{mark}]){mark}(?![\w{mark}])"), tag)
    for mark, tag in ((r"\*", "b"), ("_", "i"), ("~", "s"))
)
_QUOTE = re.compile(r"^(?:&gt;|&amp;gt;) ?", re.MULTILINE)


def mrkdwn(text: str, names: Names) -> Markup:
    """Return mrkdwn as HTML."""
    done: list[Markup] = []

    def kept(html: Markup) -> str:
        done.append(html)
        return f"{_OPEN}{len(done) - 1}{_SHUT}"

    def piece(match: re.Match[str]) -> str:
        if match["pre"] is not None:
            return kept(Markup("<pre>{}</pre>").format(_plain(match["pre"].strip("\n"))))
        if match["code"] is not None:
            return kept(Markup("<code>{}</code>").format(_plain(match["code"])))
        if match["ref"] is not None:
            return kept(_reference(match["ref"], names))
        return kept(escape(EMOJI.get(match["emoji"], match[0])))

    def styled(words: str) -> str:
        """Apply styles. They nest and never overlap: inner ones come first."""
        for pattern, tag in _STYLES:
            words = pattern.sub(lambda word, tag=tag: kept(Markup(f"<{tag}>{styled(word[1])}</{tag}>")), words)  # type: ignore[misc]  # noqa: S704 - escaped before
        return words

    words = _PIECES.sub(piece, text.replace(_OPEN, "").replace(_SHUT, ""))
    html = "".join(_lines(styled(str(escape(_plain(words, keep_quotes=True))))))
    while _OPEN in html:
        html = _DONE.sub(lambda json: str(done[int(json[1])]), html)
    return Markup(html)  # noqa: S704 - escaped above


def _plain(words: str, *, keep_quotes: bool = False) -> str:
    """Undo Slack's three entities. `keep_quotes`: keep those at the start of a line, which mark a quote."""
    if keep_quotes:
        words = re.sub(r"^&gt;", "\ue002", words, flags=re.MULTILINE)
    words = words.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    return words.replace("\ue002", ">")


def _lines(html: str) -> list[str]:
    """Return the lines, with runs of quoted ones as a quote."""
    parts: list[str] = []
    quoted: list[str] = []
    plain: list[str] = []

    def end() -> None:
        if quoted:
            parts.append(f"<blockquote>{'<br>'.join(quoted)}</blockquote>")
        if plain:
            parts.append("<br>".join(plain))
        quoted.clear()
        plain.clear()

    for line in html.split("\n"):
        match = _QUOTE.match(line)
        if bool(match) != bool(quoted):
            end()
        if match:
            quoted.append(line[match.end() :])
        else:
            plain.append(line)
    end()
    return parts


def _reference(inside: str, names: Names) -> Markup:
    """Return what is between < and >."""
    target, _, label = inside.partition("|")
    label = _plain(label)
    if target.startswith("@"):
        return _mention_markup("mention", names.user(target[1:]))
    if target.startswith("#"):
        return _mention_markup("mention", names.channel(target[1:], label))
    if target.startswith("!subteam^"):
        return _mention_markup("mention", names.group(target[9:], label))
    if target.startswith("!date^"):
        _, timestamp, form, *_ = [*target.split("^"), "", ""]
        return Markup("<time>{}</time>").format(dated(timestamp, _plain(form), label, names.zone))
    if target in {"!here", "!channel", "!everyone"}:
        return _mention_markup("mention loud", f"@{target[1:]}")
    return link(_plain(target), label)


def _mention_markup(kind: str, words: str) -> Markup:
    return Markup('<span class="{}">{}</span>').format(kind, words)


def link(address: str, label: str = "") -> Markup:
    """Return a link if the address is a web address; else its text."""
    if not address.startswith(("https://", "http://", "mailto:")):
        return escape(label or f"<{address}>")
    return Markup('<a href="{}" rel="noopener noreferrer nofollow" target="_blank">{}</a>').format(
        address, label or address
    )


def rich_text(block: Json, names: Names) -> Markup:
    """Return a rich_text block as HTML."""
    return Markup("").join(_piece(element, names) for element in block["elements"])


def _piece(piece: Json, names: Names) -> Markup:
    kind = piece["type"]
    inside = Markup("").join(
        Markup("<li>{}</li>").format(_piece(element, names)) if kind == "rich_text_list" else _leaf(element, names)
        for element in piece["elements"]
    )
    if kind == "rich_text_list":
        tag = "ol" if piece["style"] == "ordered" else "ul"
        return Markup('<{} class="indent{}">{}</{}>').format(tag, piece.get("indent") or 0, inside, tag)
    tag = {"rich_text_preformatted": "pre", "rich_text_quote": "blockquote"}.get(kind, "p")
    return Markup("<{}>{}</{}>").format(tag, inside, tag)


def _leaf(leaf: Json, names: Names) -> Markup:
    kind = leaf["type"]
    if kind == "text":
        html = escape(leaf["text"])
    elif kind == "link":
        html = link(leaf["url"], leaf.get("text") or "")
    elif kind == "emoji":
        html = escape(EMOJI.get(leaf["name"], f":{leaf['name']}:"))
    elif kind == "date":
        shown = dated(leaf["timestamp"], leaf["format"], leaf.get("fallback") or leaf["format"], names.zone)
        html = Markup("<time>{}</time>").format(shown)
    elif kind == "color":
        html = escape(leaf["value"])
    else:
        shown = {
            "user": lambda: names.user(leaf["user_id"]),
            "usergroup": lambda: names.group(leaf["usergroup_id"]),
            "channel": lambda: names.channel(leaf["channel_id"]),
            "broadcast": lambda: f"@{leaf['range']}",
        }[kind]()
        html = _mention_markup("mention loud" if kind == "broadcast" else "mention", shown)
    for style, tag in (("code", "code"), ("bold", "b"), ("italic", "i"), ("strike", "s"), ("underline", "u")):
        if (leaf.get("style") or {}).get(style):
            html = Markup("<{}>{}</{}>").format(tag, html, tag)
    return html
