"""Secrets of a dozen kinds, each in the text around it, to be planted in every source of text; and how to find them in an output.

They are put together here, so that the file contains no token.
"""

from __future__ import annotations

import base64

_BODY = "aB3dE5gH7jK9mN1pQ2rS4tU6vW8xY0zA"
_HEX = "0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c"
TOKEN = "gh" + "p_" + _BODY + "q9Zw"  # shows by itself: in the name of a job, a node or a file

# What is written, and the part of it that must not come out.
PLANTS: dict[str, tuple[str, str]] = {
    "token": (f"remote: {TOKEN} is not valid", TOKEN[4:]),
    "key id": ("using AK" + "IAQ3ZR7XKM2NPL5TVW", "Q3ZR7XKM2NPL5TVW"),
    "jwt": ("session " + ".".join(("ey" + "JhbGciOiJIUzI1NiJ9", "ey" + "JzdWIiOiJydW4tNyJ9", _BODY)), _BODY),
    "password": ("password=Meridian-nutmeg50", "Meridian-nutmeg50"),
    "environment": ("WANDB_API_KEY=" + _HEX, _HEX),
    "json": ('{"client_secret": "Zq7-kk-91-abcdef"}', "Zq7-kk-91-abcdef"),
    "address": ("postgresql://train:Gherkin_Tundra7@db-1:5432/runs", "Gherkin_Tundra7"),
    "header": ("Authorization: Bearer " + _BODY[::-1], _BODY[::-1]),
    "webhook": ("https://hooks.slack" + ".com/services/T0AB12/B0CD34/" + _BODY[:24], _BODY[:24]),
    "command": ("mysql -u root -pPapaya.3165x runs", "Papaya.3165x"),
    "cookie": ("Cookie: session=8f3c1d7e9a_KLMnop; path=/", "8f3c1d7e9a_KLMnop"),
    "base64": ("auth: " + base64.b64encode(b"elastic:k3Dd3PjepjBaMj").decode(), base64.b64encode(b"elastic:k3Dd3Pjepj").decode()[:20]),
}  # fmt: skip
EVERYTHING = " | ".join(words for words, _ in PLANTS.values())
_RUN = 8


def come_out(output: str) -> list[str]:
    """Return the kinds of secrets of which eight characters in a row are in an output."""
    return [
        kind
        for kind, (_, secret) in PLANTS.items()
        if any(secret[place : place + _RUN] in output for place in range(len(secret) - _RUN + 1))
    ]
