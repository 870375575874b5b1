"""Who people are according to Slack: their workspaces, and whether they are guests. Queried once an hour for each person."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from slack_sdk import WebClient
from slack_sdk.errors import SlackApiError, SlackClientError

from bot.policy.permissions import Profile

FRESH = 3600.0  # seconds until a person is looked up again
OLDEST = 86400.0  # seconds for which the last answer remains valid while Slack gives no new one
PAUSE = 10.0  # seconds after a failure: the next listeners must not wait for the same timeout
TIMEOUT = 2  # seconds; a listener has three
MOST = 20_000  # people remembered
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Directory:
    """Looks people up. `client` must have a timeout below three seconds. `now`: returns monotonic seconds."""

    client: WebClient
    now: Callable[[], float] = time.monotonic
    _known: dict[str, tuple[float, Profile | None]] = field(default_factory=dict)
    _failed: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, user: str) -> Profile | None:
        """Return who a person is; None if Slack does not say."""
        with self._lock:
            at, known = self._known.get(user, (-OLDEST, None))
            failed = self._failed.get(user, -PAUSE)
        age = self.now() - at
        if age < FRESH or self.now() - failed < PAUSE:
            return known if age < OLDEST else None
        try:
            found = profile_of(self.client.api_call("users.info", data={"user": user}).get("user"))
        except (SlackApiError, SlackClientError, OSError) as error:
            _log.warning("cannot look up user %s: %s", user, error)
            self._remember(self._failed, user, self.now())
            return known if age < OLDEST else None
        self._remember(self._known, user, (self.now(), found))
        return found

    def _remember(self, kept: dict[str, Any], user: str, value: Any) -> None:
        with self._lock:
            kept.pop(user, None)
            kept[user] = value
            while len(kept) > MOST:
                del kept[next(iter(kept))]


def profile_of(user: Any) -> Profile | None:
    """Return a user object of the Slack API as a profile; None if there is no account or it is deactivated.

    Fields: https://docs.slack.dev/reference/objects/user-object
    """
    if not isinstance(user, Mapping) or user.get("deleted"):
        return None
    guest = any(user.get(name) for name in ("is_restricted", "is_ultra_restricted", "is_stranger"))
    return Profile(frozenset(_teams(user)), guest)


def _teams(user: Mapping[str, Any]) -> Iterator[str]:
    organisation = user.get("enterprise_user")
    own = organisation if isinstance(organisation, Mapping) else {}
    for team in (user.get("team_id"), own.get("enterprise_id"), *(own.get("teams") or ())):
        if isinstance(team, str) and team:
            yield team
