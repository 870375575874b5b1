"""The Slack API client that sends everything. It masks the secrets in every text that people read.

Values that Slack or this service reads stay unchanged: ids, button values, addresses, form metadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slack_sdk import WebClient

from bot.runtime.redaction import redact
from bot.slack.blocks.limits import Json

# Text for people, by its key in a message, a view or a call.
READ = frozenset(
    ("text", "fallback", "alt_text", "alt_txt", "title", "label", "hint", "placeholder", "description", "initial_value")
) | frozenset(("accessibility_label", "confirm", "deny", "submit", "close", "filename", "initial_comment"))


class MaskedClient(WebClient):
    """A client that masks secrets in the texts of its calls."""

    def api_call(self, api_method: str, **given: Any) -> Any:
        """Call a method of the API."""
        sent = {
            key: masked_texts(value) if key in ("json", "data", "params") else value for key, value in given.items()
        }
        return super().api_call(api_method, **sent)


def masked_texts(body: Any, *, read: bool = False) -> Any:
    """Return a message, a view or call arguments with the secrets in all texts masked. `read`: whether people read every text in it."""
    if isinstance(body, str):
        return redact(body) if read else body
    if isinstance(body, Mapping):
        made: Json = {
            key: _errors(value) if key == "errors" else masked_texts(value, read=key in READ)
            for key, value in body.items()
        }
        return made
    if isinstance(body, list | tuple):
        return [masked_texts(item) for item in body]
    return body


def _errors(by_field: Any) -> Any:
    """Return the errors of a form, which map field ids to texts, with secrets masked."""
    return (
        {key: masked_texts(value, read=True) for key, value in by_field.items()}
        if isinstance(by_field, Mapping)
        else by_field
    )
