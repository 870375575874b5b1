"""HTTP calls to forges: no automatic retries, writes a second apart, and errors as sentences that say what to do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from bot.forges.base import HOUR, MINUTE, ForgeError, Kind, failed_of
from bot.forges.pull_request_body import hidden
from bot.render.text_format import shown
from connectors.base.contract import Deadline, SourceFailed
from connectors.base.http import Endpoint, HttpClient, HttpRequest
from connectors.base.http_response import HttpResponse

PATIENCE = 30.0  # seconds for one call
PACE = 1.0  # seconds between two writes, as GitHub asks
LARGEST = 8 << 20
PAGE, PAGES = 100, 20
LONGEST_PAUSE = 6 * HOUR
_SHOWN = 300


class ForgeApi:
    """The API of a forge.

    `token`: returns a header with the login, if it is not fixed; `clock`: seconds since the epoch.
    """

    def __init__(
        self,
        name: str,
        endpoint: Endpoint,
        headers: Mapping[str, str],
        *,
        token: Callable[[], Mapping[str, str]] = dict,
        pace: float = PACE,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.name = name
        self._client = HttpClient(endpoint)
        self._headers = headers
        self._token = token
        self._pace = pace
        self._clock = clock
        self._wrote = 0.0

    def ask(self, call: HttpRequest, *fine: int) -> HttpResponse:
        """Send a request. `fine`: statuses other than 2xx that the caller handles.

        Raises:
            ForgeError: any other status, or no response.
        """
        verb = call.method or ("GET" if call.body is None else "POST")
        if verb != "GET":
            self._slowly()
        try:
            headers = {**self._headers, **self._token(), **call.headers}
            made = HttpRequest(call.path, call.params, call.body, None, verb, headers)
            answer = self._client.once(made, Deadline.within(PATIENCE), largest=LARGEST)
        except SourceFailed as failed:
            raise failed_of(failed) from None
        if answer.cut:
            raise ForgeError(
                "bad_answer", f"{self.name}: {call.summary()}: the response is larger than {LARGEST:,} bytes"
            )
        if 200 <= answer.status < 300 or answer.status in fine:
            return answer
        raise self.refusal(answer, call)

    def json(self, call: HttpRequest, *fine: int) -> Any:
        """The JSON of a response; None for a status in `fine`."""
        answer = self.ask(call, *fine)
        return None if answer.status in fine else self.decoded(answer, call)

    def pages(self, call: HttpRequest) -> Iterator[Any]:
        """All entries of a list, page by page, up to a limit.

        Raises:
            ForgeError: A page is not a list.
        """
        for number in range(1, PAGES + 1):
            params = {**dict(call.params), "per_page": PAGE, "page": number}
            answer = self.ask(HttpRequest(call.path, params, headers=call.headers))
            listed = self.decoded(answer, call)
            if not isinstance(listed, list):
                raise self.strange(call, "not a list")
            yield from listed
            if 'rel="next"' not in answer.headers.get("link", ""):
                return

    def say_once(self, path: str, mark: str, text: str) -> None:
        """Add a comment unless one with this mark exists."""
        if not any(
            hidden(mark) in str(page.get("body")) for page in self.pages(HttpRequest(path)) if isinstance(page, dict)
        ):
            self.json(HttpRequest(path, body={"body": f"{text}\n\n{hidden(mark)}"}))

    def decoded(self, answer: HttpResponse, call: HttpRequest) -> Any:
        """The JSON of a response.

        Raises:
            ForgeError: it is not JSON.
        """
        try:
            return msgspec.json.decode(answer.body)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            raise self.strange(call, f"the response is not JSON: {_plain(answer.body)}") from None

    def strange(self, call: HttpRequest, why: str) -> ForgeError:
        """The error for a response that differs from the documentation."""
        return ForgeError("bad_answer", f"{self.name}: {call.summary()}: {why}")

    def refusal(self, answer: HttpResponse, call: HttpRequest) -> ForgeError:
        """The error for a status, with what to do and when to retry."""
        message = error_message(answer.body)
        where = f"{self.name} answered {answer.status} to {call.summary()}{f': {message}' if message else ''}"
        pause = self._asked_to_wait(answer, message)
        if pause is not None:
            return ForgeError("busy", where, "rate limited; no more requests until then", pause=pause)
        kind, hint = _meaning(answer.status, message)
        return ForgeError(kind, where, hint)

    def _asked_to_wait(self, answer: HttpResponse, said: str) -> float | None:
        """Seconds that a rate limit asks for; None where it is none."""
        headers = answer.headers
        limited = answer.status == 429 or (answer.status == 403 and "rate limit" in said.lower())
        spent = "0" in (headers.get("x-ratelimit-remaining"), headers.get("ratelimit-remaining"))
        if not limited and not (answer.status == 403 and spent):
            return None
        asked = headers.get("retry-after", "")
        if asked.isdecimal():
            return min(LONGEST_PAUSE, max(1.0, float(asked[:9])))
        reset = headers.get("x-ratelimit-reset") or headers.get("ratelimit-reset") or ""
        if spent and reset.isdecimal():
            return min(LONGEST_PAUSE, max(1.0, float(reset[:12]) - self._clock()))
        return MINUTE

    def _slowly(self) -> None:
        wait = self._wrote + self._pace - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        self._wrote = time.monotonic()


def _meaning(status: int, said: str) -> tuple[Kind, str]:
    words = said.lower()
    if status >= 500:
        return "busy", "a server error; it is retried"
    if "protected" in words or "rule violations" in words or "not allowed to push" in words:
        return "protected", "let this app or token create and update the branches signalbox/rule/*"
    if "archived" in words:
        return "forbidden", "the repository is read-only: configure another one under rules.pull_requests"
    known: Mapping[int, tuple[Kind, str]] = {
        401: ("unauthorised", "the token or the key of the app is wrong, revoked or expired: renew it; it is retried every hour"),
        403: ("forbidden", "a permission is missing: contents and pull requests, read and write (docs/rule-pull-requests.md)"),
        404: ("missing", "the repository does not exist, or this token has no access to it: check `repository` and where the app is installed"),
        409: ("moved", "it changed at the same time, or is empty; it is checked again"),
    }  # fmt: skip
    return known.get(status, ("refused", "the request was rejected: fix what it names, then propose the rule again"))


def error_message(body: bytes) -> str:
    """The error message in a response, on one line and cut.

    The message and errors of GitHub, the message or error of GitLab.
    """
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return _plain(body)
    if not isinstance(found, dict):
        return _plain(body)
    parts = [found.get("message"), found.get("error"), found.get("error_description"), found.get("errors")]
    return _cut(" ".join(shown("; ".join(_words(part) for part in parts if part)).split()))


def _words(part: Any) -> str:
    if isinstance(part, dict):
        if "message" in part:
            return str(part["message"])
        return ", ".join(f"{key}: {_words(value)}" for key, value in list(part.items())[:5])
    if isinstance(part, list):
        return ", ".join(_words(item) for item in part[:5])
    return str(part)


def _plain(body: bytes) -> str:
    return _cut(" ".join(shown(body[:4096].decode("utf-8", errors="replace")).split()))


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
