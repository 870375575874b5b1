"""The HTTP client of all connectors, with limits on time, size, retries and load, no redirects to other hosts, and TLS verification.

Responses are untrusted. Bodies are read in pieces up to a limit, and the deadline is checked after each piece, so that a
slow server blocks nobody. Redirects to other hosts are refused. Every failure is a SourceFailed that says what was
requested and what to change.
"""

from __future__ import annotations

import random
import ssl
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import msgspec

from connectors.base.budget import Budget, Load
from connectors.base.contract import Deadline, SourceFailed
from connectors.base.http_response import (
    AGAIN,
    MEANING_OF_STATUS,
    SHOWN,
    HttpResponse,
    StreamedResponse,
    error_text,
    failure,
    printable,
    retry_after,
    shortened,
)
from connectors.base.secret import Secret

LARGEST = 64 << 20  # bytes of a response, unless the caller says otherwise
TRIES = 4
HOPS = 3  # redirects within the same host
PAUSE = 0.25  # seconds before the first retry; doubled for each further one
LONGEST_WAIT = 30.0  # seconds for a connection or for the next piece of a response

Params = Mapping[str, str | int | float | None] | tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Login:
    """How to log in: a bearer token, a user with a password, or headers of the system. Secrets are references."""

    token: Secret | None = None
    """A bearer token."""
    user: str | None = None
    """The user, with `password`."""
    password: Secret | None = None
    """The password of `user`."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers sent with each request, such as {X-Scope-OrgID: team}."""
    secret_headers: Mapping[str, Secret] = field(default_factory=dict)
    """Headers with secret values: name → secret."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a server and how to reach it."""

    url: str
    """The address, including any path prefix."""
    login: Login = field(default_factory=Login)
    """How to log in."""
    ca_file: str | None = None
    """Certificates to trust instead of the system's."""
    client_cert: str | None = None
    """A PEM file with the client certificate and key."""
    load: Load = field(default_factory=Load)
    """Maximum load on the server."""

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{self.url!r} is not a server address: use http://host or https://host")
        if parts.username or parts.password:
            raise ValueError("the address contains a user or password: put a reference to them under login:")
        if parts.query or parts.fragment:
            raise ValueError("the address contains a query or a fragment: give only scheme, host, port and path")


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request. Build `path` with url_path if parts of it are untrusted. `params` are quoted here; None values are omitted.

    The method is POST with a `body` (bytes, or values sent as JSON) or a `form`, otherwise GET, unless `method` is set.
    """

    path: str
    params: Params = ()
    body: Any = None
    form: Mapping[str, str] | None = None
    method: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Yield the parameters as text."""
        given = self.params.items() if isinstance(self.params, Mapping) else self.params
        yield from ((key, str(value)) for key, value in given if value is not None)

    def summary(self) -> str:
        """Return the request for people, shortened. It contains no headers and so no secrets."""
        query = "&".join(f"{key}={value}" for key, value in (*self.pairs(), *(self.form or {}).items()))
        return shortened(f"{self.path}?{query}" if query else self.path)


@dataclass(frozen=True, slots=True)
class Handshake:
    """The start of a connection: address, headers with the login, and the certificates to trust."""

    url: str
    headers: Mapping[str, str] = field(repr=False)
    certificates: ssl.SSLContext


def url_path(*parts: str) -> str:
    """Return a path made of untrusted parts. Each part is quoted, and none can lead to a parent folder.

    Raises:
        SourceFailed: A part is empty or consists of dots ("refused").
    """
    if any(part in ("", ".", "..") for part in parts):
        raise SourceFailed(
            "refused", f"{'/'.join(parts)[:SHOWN]!r} is not a path: one of its parts is empty or consists of dots"
        )
    return "/" + "/".join(quote(part, safe="") for part in parts)


class HttpClient:
    """Sends requests to one server. Thread-safe; clients of one server may share a `budget`."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        budget: Budget | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.endpoint = endpoint
        self.budget = budget or Budget(endpoint.load)
        self._sleep = sleep
        self._base = endpoint.url.rstrip("/")
        self._inner: httpx.Client | None = None

    # -- what connectors call --------------------------------------------------------------------------------------

    def json(self, call: HttpRequest, deadline: Deadline, *, largest: int = LARGEST) -> Any:
        """Return the JSON of a response as plain values.

        Raises:
            SourceFailed: No response, a refusal, a response larger than `largest` bytes, or invalid JSON.
        """
        answer = self.get(call, deadline, largest=largest)
        if answer.cut:
            raise SourceFailed("too_large", f"the response is larger than {largest:,} bytes", asked=call.summary())
        try:
            return msgspec.json.decode(answer.body)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            told = f"{str(error)[:100]}); it starts with {printable(answer.body[:80])!r}"
            raise SourceFailed("bad_answer", f"the response is not JSON ({told}", asked=call.summary()) from None

    def get(self, call: HttpRequest, deadline: Deadline, *, largest: int = LARGEST) -> HttpResponse:
        """Return a successful response (2xx), its body cut at `largest` bytes.

        Raises:
            SourceFailed: No response, or a refusal.
        """
        with self.stream(call, deadline) as response:
            return response.whole(largest)

    def once(self, call: HttpRequest, deadline: Deadline, *, largest: int = LARGEST) -> HttpResponse:
        """Send a request once and return the response, whatever its status. For requests that must not be repeated.

        Raises:
            SourceFailed: No response, a truncated one, or a redirect to another host.
        """
        asked = call.summary()
        with self.budget.call(deadline, asked):
            try:
                response = self._sent(self._request(call), deadline, asked)
            except httpx.HTTPError as error:
                raise failure(error, asked) from None
            try:
                return StreamedResponse(response, deadline, asked, self.budget).whole(largest)
            finally:
                response.close()

    @contextmanager
    def stream(self, call: HttpRequest, deadline: Deadline) -> Iterator[StreamedResponse]:
        """Yield a response that is read piece by piece. It is only retried before any of the body was returned."""
        asked = call.summary()
        with self.budget.call(deadline, asked):
            response = self._tried(self._request(call), deadline, asked)
            try:
                yield StreamedResponse(response, deadline, asked, self.budget)
            finally:
                response.close()

    def handshake(self, call: HttpRequest) -> Handshake:
        """Return what another protocol on the same server needs to open a connection with a request."""
        request = self._request(call)
        return Handshake(str(request.url), {**self._login(), **call.headers}, _ssl_context(self.endpoint))

    def pause(self, seconds: float) -> None:
        """Wait before a request is repeated by the caller."""
        self._sleep(seconds)

    # -- how -------------------------------------------------------------------------------------------------------

    def _request(self, call: HttpRequest) -> httpx.Request:
        headers = {**self._login(), **{name.lower(): value for name, value in call.headers.items()}}
        content: bytes | None = None
        if call.body is not None:
            content = call.body if isinstance(call.body, bytes) else msgspec.json.encode(call.body)
            headers.setdefault("content-type", "application/json")
        verb = call.method or ("GET" if content is None and call.form is None else "POST")
        form = None if call.form is None else dict(call.form)
        pairs = httpx.QueryParams(list(call.pairs())) if call.params else None
        return self._client().build_request(
            verb, self._base + call.path, params=pairs, headers=headers, content=content, data=form
        )

    def _client(self) -> httpx.Client:
        if self._inner is None:
            inner = httpx.Client(
                verify=_ssl_context(self.endpoint),
                follow_redirects=False,
                limits=httpx.Limits(max_connections=self.endpoint.load.calls + 2),
                headers={"user-agent": "signalbox"},
            )
            weakref.finalize(self, inner.close)  # a connector is never closed explicitly
            self._inner = inner
        return self._inner

    def _login(self) -> dict[str, str]:
        login = self.endpoint.login
        headers = {name.lower(): value for name, value in login.headers.items()}
        headers |= {name.lower(): secret.value() for name, secret in login.secret_headers.items()}
        if login.token is not None:
            headers["authorization"] = f"Bearer {login.token.value()}"
        elif login.user is not None and login.password is not None:
            pair = httpx.BasicAuth(login.user, login.password.value())
            headers["authorization"] = pair._auth_header  # noqa: SLF001 - the library's own encoding
        return headers

    def _tried(self, request: httpx.Request, deadline: Deadline, asked: str) -> httpx.Response:
        """Send a request, retried while that may help and time is left, and return the successful response."""
        for count in range(1, TRIES + 1):
            deadline.check(asked)
            try:
                response = self._sent(request, deadline, asked)
            except httpx.HTTPError as error:
                failed = failure(error, asked)
                pause = PAUSE * 2 ** (count - 1)
            else:
                if response.is_success:
                    return response
                failed, pause = self._refused(response, deadline, asked, count)
            if pause is None or count == TRIES or pause >= deadline.left():
                raise failed
            self._sleep(
                pause * random.uniform(1.0, 1.25)
            )  # so that clients that were refused together do not all retry at the same time
        raise AssertionError("unreachable")

    def _sent(self, request: httpx.Request, deadline: Deadline, asked: str) -> httpx.Response:
        """Send a request and follow redirects within the same host."""
        inner = self._client()
        for _ in range(HOPS + 1):
            wait = max(0.05, min(LONGEST_WAIT, deadline.left()))
            request.extensions = {**request.extensions, "timeout": httpx.Timeout(wait).as_dict()}
            response = inner.send(request, stream=True)
            following = response.next_request
            if not response.has_redirect_location or following is None:
                return response
            response.close()
            if _origin(following.url) != _origin(request.url) or following.method != request.method:
                raise SourceFailed(
                    "redirected",
                    f"the server redirects to another host, {following.url.scheme}://{following.url.host}",
                    asked=asked,
                    hint="configure the final address",
                )
            request = following
        raise SourceFailed("redirected", f"the server redirected more than {HOPS} times", asked=asked)

    def _refused(
        self, response: httpx.Response, deadline: Deadline, asked: str, count: int
    ) -> tuple[SourceFailed, float | None]:
        """Return the failure that a status means, and the seconds to wait before a retry; None if it is final."""
        status = response.status_code
        body = error_text(response, deadline)
        response.close()
        kind, hint = MEANING_OF_STATUS.get(status, ("server_error" if status >= 500 else "refused", ""))
        failed = SourceFailed(
            kind, f"the server returned {status}{f': {body}' if body else ''}", asked=asked, hint=hint
        )
        if status not in AGAIN:
            return failed, None
        asked_for = retry_after(response.headers)
        return failed, asked_for if asked_for is not None else PAUSE * 2 ** (count - 1)


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


@cache
def _default_context() -> ssl.SSLContext:
    """The certificates that this machine trusts, loaded once because that takes 0.1 s."""
    return ssl.create_default_context()


def _ssl_context(endpoint: Endpoint) -> ssl.SSLContext:
    if not endpoint.ca_file and not endpoint.client_cert:
        return _default_context()
    try:
        context = ssl.create_default_context(cafile=endpoint.ca_file)
        if endpoint.client_cert:
            context.load_cert_chain(endpoint.client_cert)
    except OSError as error:
        raise SourceFailed(
            "not_configured",
            f"the certificates cannot be loaded: {error.strerror or error}",
            hint="see ca_file, client_cert",
        ) from None
    return context
