"""Listeners that continue after their acknowledgement, for example to open a form.

The app runs listeners in the thread that answers the delivery (`process_before_response`), because Bolt's other way has a second thread
look for the acknowledgement every 10 ms, and answers 404 if it takes more than three seconds. What a listener does after it would delay
the answer, so such listeners run in another thread, and the delivery is answered as soon as they acknowledge.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from slack_bolt import App


class EarlyAck:
    """Makes such listeners. `failed`: receives what they raise after the acknowledgement."""

    def __init__(self, app: App, failed: Callable[[Exception], None]) -> None:
        self._app, self._failed = app, failed

    def __call__(self, listener: Callable[..., None]) -> Callable[..., None]:
        """Return a listener that runs another one in the executor of the app, and returns once that has acknowledged or ended."""

        @functools.wraps(listener)  # Bolt passes the arguments that the listener names
        def started(**given: Any) -> None:
            ack, told, acknowledged = given["ack"], threading.Event(), False

            def acknowledge(*args: Any, **fields: Any) -> Any:
                nonlocal acknowledged
                answer = ack(*args, **fields)
                acknowledged = True
                told.set()
                return answer

            executor = self._app.listener_runner.listener_executor
            future = executor.submit(listener, **{**given, "ack": acknowledge})
            future.add_done_callback(lambda _: told.set())
            told.wait()
            if acknowledged:
                future.add_done_callback(self._ended)
            else:
                future.result()

        return started

    def _ended(self, future: Future[None]) -> None:
        error = future.exception()
        if isinstance(error, Exception):
            self._failed(error)
