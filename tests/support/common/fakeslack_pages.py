"""Pages of the fake Slack."""

from __future__ import annotations

import httpx

from bot.demo.fakeslack.methods import call
from tests.support.fakeslack_apps import ALERTS, ANN, BO, modal, plain

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>{{7*7}}"


def everywhere(made):
    """Hostile text in every place of a page."""
    made.say(BO, ALERTS, HOSTILE)
    text = {"type": "mrkdwn", "text": HOSTILE}
    option = {"text": plain(HOSTILE), "value": HOSTILE, "description": plain(HOSTILE)}
    menu = {"type": "overflow", "action_id": "o", "options": [option]}
    select = {"type": "static_select", "action_id": "s", "options": [option], "placeholder": plain(HOSTILE)}
    ask = {"title": plain(HOSTILE), "text": text, "confirm": plain("<b>y"), "deny": plain("<b>n")}
    button = {"type": "button", "action_id": HOSTILE, "value": HOSTILE, "text": plain(HOSTILE[:75]), "confirm": ask}
    leaf = {"type": "text", "text": HOSTILE}
    blocks = [
        {"type": "header", "text": plain(HOSTILE), "block_id": HOSTILE},
        {"type": "section", "text": text, "fields": [text], "accessory": button},
        {"type": "context", "elements": [text, {"type": "image", "image_url": "https://x/y", "alt_text": HOSTILE}]},
        {"type": "actions", "elements": [menu, select, {**button, "url": "javascript:alert(1)"}]},
        {"type": "rich_text", "elements": [{"type": "rich_text_preformatted", "elements": [leaf]}]},
        {"type": "image", "image_url": "https://x/y.png", "alt_text": HOSTILE, "title": plain(HOSTILE)},
        {"type": "table", "rows": [[{"type": "raw_text", "text": HOSTILE}]]},
        {"type": "markdown", "text": HOSTILE},
    ]
    call(made.state, "chat.postMessage", {"channel": ALERTS, "text": HOSTILE, "blocks": blocks})
    view = {**modal(HOSTILE), "title": plain(HOSTILE[:24])}
    view["blocks"] = [
        {**block, "label": plain(HOSTILE), "hint": plain(HOSTILE), "block_id": HOSTILE + block["block_id"]}
        for block in view["blocks"]
    ]
    call(made.state, "views.open", {"trigger_id": made.state.trigger(ANN), "view": view})
    call(made.state, "views.publish", {"user_id": ANN, "view": {"type": "home", "blocks": blocks[:4]}})
    file = call(made.state, "files.getUploadURLExternal", {"filename": HOSTILE, "length": 9})
    httpx.post(file["upload_url"], content=b"<b>\xff\x00</b>"[:9])
    call(
        made.state,
        "files.completeUploadExternal",
        {"files": [{"id": file["file_id"], "title": HOSTILE}], "channel_id": ALERTS},
    )
    return file["file_id"]
