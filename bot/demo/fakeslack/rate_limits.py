"""Rate limits per method: Slack's tiers as token buckets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

TIERS = {1: 1, 2: 20, 3: 50, 4: 100}  # calls a minute
POSTS = 1.0  # messages a second in a channel
BURST = 5  # messages that a channel accepts at once

METHOD_TIERS: Mapping[str, int] = MappingProxyType(
    {
        "apps.connections.open": 3,
        "chat.delete": 3,
        "chat.postEphemeral": 4,
        "chat.update": 3,
        "conversations.open": 3,
        "files.completeUploadExternal": 4,
        "files.getUploadURLExternal": 4,
        "files.info": 4,
        "reactions.add": 3,
        "team.info": 3,
        "usergroups.list": 2,
        "usergroups.users.list": 2,
        "users.info": 4,
        "views.open": 4,
        "views.publish": 4,
        "views.push": 4,
        "views.update": 4,
    }
)  # the others (auth.test, chat.getPermalink) have special limits of hundreds a minute


class RateLimits:
    """The active limits.

    Args:
        per_minute: Calls a minute by method, instead of its tier; None means no limit.
        posts: Messages a second in each channel; `burst` of them at once.
    """

    def __init__(
        self, per_minute: Mapping[str, float | None] | None = None, posts: float | None = POSTS, burst: int = BURST
    ) -> None:
        self._per_minute: dict[str, float | None] = {method: TIERS[tier] for method, tier in METHOD_TIERS.items()}
        self._per_minute.update(per_minute or {})
        self._posts = posts
        self._burst = burst
        self._buckets: dict[tuple[str, str], tuple[float, float]] = {}  # calls left, and as of when

    def wait(self, method: str, channel: str, now: float) -> int:
        """Return the whole seconds to wait before this call; 0 if it can go now, and then it is counted."""
        if method == "chat.postMessage":
            return self._take(("post", channel), self._posts, self._burst, now)
        limit = self._per_minute.get(method)
        return self._take((method, ""), None if limit is None else limit / 60, limit or 0, now)

    def _take(self, key: tuple[str, str], speed: float | None, most: float, now: float) -> int:
        if speed is None:
            return 0
        left, then = self._buckets.get(key, (most, now))
        left = min(most, left + max(0.0, now - then) * speed)
        if left >= 1:
            self._buckets[key] = (left - 1, now)
            return 0
        self._buckets[key] = (left, now)
        return max(1, math.ceil((1 - left) / speed))


def unlimited() -> RateLimits:
    """Return no limit for any method."""
    return RateLimits(dict.fromkeys(METHOD_TIERS), posts=None)
