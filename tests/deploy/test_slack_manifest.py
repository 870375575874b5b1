"""The manifest of the Slack app: what Slack documents, and exactly what the app listens to and calls."""

from __future__ import annotations

import re
from typing import Any

import jsonschema
import pytest
import yaml

from bot.slack.app import COMMANDS, EVENTS, SCOPES, SHORTCUTS, build
from tests.support.paths import ROOT

MANIFEST: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "slack" / "manifest.yaml").read_text())


def text(most: int, pattern: str = "") -> dict[str, Any]:
    """A text of at most so many characters."""
    return {"type": "string", "minLength": 1, "maxLength": most, **({"pattern": pattern} if pattern else {})}


def table(must: tuple[str, ...] = (), **fields: Any) -> dict[str, Any]:
    """A table with these fields and no other."""
    return {"type": "object", "properties": fields, "required": list(must), "additionalProperties": False}


# After https://docs.slack.dev/reference/app-manifest (2026): the parts that a bot with commands and a home tab may have.
SCHEMA = table(
    ("display_information", "features", "oauth_config", "settings"),
    _metadata=table(major_version={"enum": [1, 2]}, minor_version={"type": "integer"}),
    display_information=table(
        ("name",),
        name=text(35),
        description=text(140),
        long_description=text(4000),
        background_color=text(7, r"^#(?:[0-9a-fA-F]{3}){1,2}$"),
    ),
    features=table(
        app_home=table(
            home_tab_enabled={"type": "boolean"},
            messages_tab_enabled={"type": "boolean"},
            messages_tab_read_only_enabled={"type": "boolean"},
        ),
        bot_user=table(("display_name",), display_name=text(80, r"^[a-z0-9._-]+$"), always_online={"type": "boolean"}),
        shortcuts={
            "type": "array",
            "maxItems": 10,
            "items": table(
                ("name", "type", "callback_id", "description"),
                name=text(75),
                type={"enum": ["message", "global"]},
                callback_id=text(255),
                description=text(150),
            ),
        },
        slash_commands={
            "type": "array",
            "maxItems": 50,
            "items": table(
                ("command", "description"),
                command=text(32, "^/"),
                description=text(2000),
                usage_hint=text(1000),
                should_escape={"type": "boolean"},
                url=text(3000, "^https://"),
            ),
        },
    ),
    oauth_config=table(
        scopes=table(bot={"type": "array", "maxItems": 255, "uniqueItems": True, "items": text(255)}),
    ),
    settings=table(
        event_subscriptions=table(
            request_url=text(3000, "^https://"),
            bot_events={"type": "array", "maxItems": 100, "uniqueItems": True, "items": text(255)},
        ),
        interactivity=table(
            ("is_enabled",),
            is_enabled={"type": "boolean"},
            request_url=text(3000, "^https://"),
            message_menu_options_url=text(3000, "^https://"),
        ),
        org_deploy_enabled={"type": "boolean"},
        socket_mode_enabled={"type": "boolean"},
        token_rotation_enabled={"type": "boolean"},
    ),
)
# Which scope each call and event of ours needs: https://docs.slack.dev/reference/methods
NEEDS = {
    "chat.postMessage": "chat:write",
    "chat.update": "chat:write",
    "chat.delete": "chat:write",
    "chat.postEphemeral": "chat:write",
    "files.getUploadURLExternal": "files:write",
    "files.completeUploadExternal": "files:write",
    "usergroups.users.list": "usergroups:read",
    "users.info": "users:read",
    "views.open": None,
    "views.update": None,
    "views.publish": None,
    "auth.test": None,
    "apps.connections.open": None,  # by the app-level token
    "app_mention": "app_mentions:read",
    "app_home_opened": None,
    "message.im": "im:history",
}
WITH = {"usergroups:read": {"users:read"}}  # Slack grants the one with the other


def uncommented() -> dict[str, Any]:
    """The manifest for HTTP, with the addresses that are commented out enabled."""
    lines = (ROOT / "deploy" / "slack" / "manifest.yaml").read_text().splitlines()
    return yaml.safe_load(
        "\n".join(re.sub(r"# (url|request_url|message_menu_options_url):", r"\1:", line) for line in lines)
    )


@pytest.mark.parametrize("manifest", [MANIFEST, uncommented()], ids=["socket", "http"])
def test_it_is_what_slack_documents(manifest):
    """For Socket Mode unchanged, for HTTP with its addresses."""
    jsonschema.validate(manifest, SCHEMA)


def test_for_http_every_part_has_its_address():
    """A command without one goes nowhere."""
    http = uncommented()
    assert all("url" in slash_command for slash_command in http["features"]["slash_commands"])
    assert "request_url" in http["settings"]["event_subscriptions"]
    assert {"request_url", "message_menu_options_url"} <= set(http["settings"]["interactivity"])


def test_it_names_what_the_app_listens_to(monkeypatch):
    """Commands, shortcuts and events, as they are registered: none is dead, none is unheard."""
    heard: dict[str, list[str]] = {"command": [], "event": [], "shortcut": []}

    class Listening:
        def __init__(self, **_settings: Any) -> None:
            pass

        def __getattr__(self, kind: str) -> Any:
            def register(name: Any = None, **_more: Any) -> Any:
                heard.setdefault(kind, []).append(name)
                return lambda listener: listener

            return register

    monkeypatch.setattr("bot.slack.app.App", Listening)
    build(None, None, None, signing_secret=None)  # type: ignore[arg-type]
    features = MANIFEST["features"]
    assert (
        sorted(heard["command"])
        == sorted(slash_command["command"] for slash_command in features["slash_commands"])
        == sorted(COMMANDS)
    )
    assert heard["shortcut"] == [shortcut["callback_id"] for shortcut in features["shortcuts"]] == list(SHORTCUTS)
    events = MANIFEST["settings"]["event_subscriptions"]["bot_events"]
    assert sorted(heard["event"]) == sorted(event.removesuffix(".im") for event in events)
    assert sorted(events) == sorted(EVENTS)


def test_it_asks_for_the_scopes_that_are_used_and_no_other():
    """Every call in the code is known here with what it needs."""
    called = set()
    for path in (ROOT / "bot" / "slack").rglob("*.py"):
        code = path.read_text()
        called |= set(
            re.findall(r'"((?:chat|files|usergroups|users|views|auth|apps|conversations|reactions)\.[A-Za-z.]+)"', code)
        )
        called |= {f"views.{item}" for item in re.findall(r"\.views_(open|update|publish|push)\(", code)}
    assert called <= set(NEEDS)
    used = {need for item in (*called, *EVENTS) if (need := NEEDS[item]) is not None} | {"commands"}
    used |= {more for word in used for more in WITH.get(word, ())}
    assert set(MANIFEST["oauth_config"]["scopes"]["bot"]) == used == set(SCOPES)
