"""The home tab."""

from __future__ import annotations

from collections.abc import Callable

from slack_bolt import Ack, BoltResponse

from bot.slack.listeners.base import Body, ListenerBase, delivery_key, person_of, person_of_event


class HomeListeners(ListenerBase):
    """Listeners of the home tab."""

    def home_opened(self, event: Body, body: Body, next_: Callable[[], BoltResponse]) -> BoltResponse:
        """Refresh the home tab when somebody opens it."""
        if event.get("tab", "home") == "home":
            self._use_cases.replies.refresh_home(person_of_event(event, body), body["event_id"])
        return next_()

    def refresh(self, ack: Ack, body: Body) -> None:
        """Handle the refresh button of the home tab."""
        self._use_cases.replies.refresh_home(person_of(body), delivery_key("action", body))
        ack()
