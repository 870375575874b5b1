"""Arguments of a Web API call, sent as JSON, as a form, or in the URL."""

from __future__ import annotations

import json
from typing import Any

from bot.demo.fakeslack.values import ApiError, Json


class Arguments:
    """Arguments by name. In forms all values are text, and structures are JSON text. A wrong argument raises ApiError, as Slack answers it."""

    def __init__(self, given: Json) -> None:
        self.given = given

    def text(self, name: str) -> str:
        """Return a text; empty if it is not given."""
        value = self.given.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise ApiError("invalid_arguments", f"must be a string [json-pointer:/{name}]")
        return value

    def required(self, name: str, error: str = "invalid_arguments") -> str:
        """Return a text that must be given."""
        value = self.text(name)
        if not value:
            raise ApiError(error, *([f"missing required field: {name}"] if error == "invalid_arguments" else []))
        return value

    def flag(self, name: str) -> bool:
        """Return a boolean, also from text."""
        return self.given.get(name) in (True, "true", "1")

    def number(self, name: str) -> int:
        """Return an integer, also from text."""
        try:
            return int(self.given.get(name, ""))
        except (TypeError, ValueError):
            raise ApiError("invalid_arguments", f"must be an integer [json-pointer:/{name}]") from None

    def structure(self, name: str, error: str = "invalid_arguments") -> Any:
        """Return a list or object, also from JSON text; None if it is not given."""
        value = self.given.get(name)
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value)
        except ValueError:
            raise ApiError(error, f"must be JSON [json-pointer:/{name}]") from None
