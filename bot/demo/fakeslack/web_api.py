"""The Web API over HTTP, with response_urls and uploads: authorization, rate limits, injected faults."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Any

import msgspec
from flask import Blueprint, Response, request

from bot.demo.fakeslack.faults import Fault
from bot.demo.fakeslack.files_api import receive
from bot.demo.fakeslack.methods import METHODS, call
from bot.demo.fakeslack.responses import to_url
from bot.demo.fakeslack.values import ApiCall, ApiError, App, Json
from bot.demo.fakeslack.workspace import Workspace

SOCKET = "apps.connections.open"


def web_api(workspace: Workspace) -> Blueprint:
    """Return the routes."""
    routes = Blueprint("web_api", __name__)
    state = workspace.state

    @routes.route("/api/<name>", methods=["GET", "POST"])
    def method(name: str) -> Response:
        """A method of the Web API."""
        try:
            given = _arguments()
        except ApiError as refused:
            return _json(200, refused.body())
        return _call_with_fault(workspace, name, given, lambda: _call_method(workspace, name, given))

    @routes.post("/respond/<team>/<name>")
    def respond(team: str, name: str) -> Response:
        """A response_url."""
        given = _decoded()

        def do() -> tuple[int, Json]:
            try:
                return 200, to_url(state, name if team == state.team else "", given)
            except ApiError as refused:
                return (404 if refused.error in {"used_url", "expired_url"} else 400), refused.body()

        return _call_with_fault(workspace, "response_url", given if isinstance(given, dict) else {}, do)

    @routes.post("/upload/v1/<name>")
    def upload(name: str) -> Response:
        """The bytes of a file: raw, or the first file of a form."""
        form = request.mimetype == "multipart/form-data"  # only then: the SDK sends raw bytes with a form content type
        data = b"".join(file.read() for file in request.files.values()) if form else request.get_data()

        def do() -> tuple[int, Json]:
            status, words = receive(state, name, data)
            return status, {"ok": status == 200, "words": words}

        answer = _call_with_fault(workspace, "upload", {"bytes": len(data)}, do)
        if answer.is_json and answer.status_code < 429:
            return Response(answer.get_json()["words"], answer.status_code, content_type="text/plain")
        return answer

    return routes


def _arguments() -> Json:
    """Return the arguments of a call.

    Raises:
        ApiError: the body cannot be read.
    """
    if (
        request.mimetype != "application/json" or not request.get_data()
    ):  # the SDK sends calls without arguments this way
        return {**request.args.to_dict(), **request.form.to_dict()}
    given = _decoded()
    if given is None:
        raise ApiError("invalid_json")
    if not isinstance(given, dict):
        raise ApiError("json_not_object")
    return {**request.args.to_dict(), **{key: value for key, value in given.items() if value is not None}}


def _decoded() -> Any:
    try:
        return msgspec.json.decode(request.get_data())
    except (msgspec.DecodeError, RecursionError):
        return None


def _call_method(workspace: Workspace, name: str, given: Json) -> tuple[int, Json]:
    state = workspace.state
    try:
        _authorise(workspace.app, name, given)
        with state.lock:
            wait = workspace.rates.wait(name, str(given.get("channel", "")), state.clock())
        if wait:
            return 429, {"ok": False, "error": "ratelimited", "retry_after": wait}
        if name == SOCKET:
            return 200, {"ok": True, "url": workspace.socket_url()}
        return 200, call(state, name, given)
    except ApiError as refused:
        return 200, refused.body()


def _authorise(app: App, name: str, given: Json) -> None:
    """Check the token for the method.

    Raises:
        ApiError: it is missing, not ours, or of the wrong kind.
    """
    login = request.authorization
    token = (login.token if login is not None and login.type == "bearer" else None) or given.get("token")
    if not token:
        raise ApiError("not_authed")
    if token not in {app.bot_token, app.app_token}:
        raise ApiError("invalid_auth")
    if (name == SOCKET or name in METHODS) and (token == app.app_token) != (name == SOCKET):
        raise ApiError("not_allowed_token_type")


def _call_with_fault(workspace: Workspace, name: str, given: Json, do: Any) -> Response:
    """Run the call unless a fault was injected; record everything."""
    trouble = workspace.troubles.next(name)
    if trouble is None or trouble.after:
        status, reply = do()
    else:
        status, reply = 0, {"ok": False, "error": f"trouble: {trouble.kind}"}
    state = workspace.state
    shown = {key: value for key, value in given.items() if key != "token"}
    with state.lock:
        state.traffic.append(ApiCall(state.clock(), name, shown, status, reply))
        state.touch()
    return _fault_response(trouble) if trouble else _json(status, reply)


def _fault_response(trouble: Fault) -> Response:
    if trouble.kind in {"500", "503"}:
        return Response("server error", int(trouble.kind), content_type="text/plain")
    if trouble.kind == "ratelimited":
        return _json(429, {"ok": False, "error": "ratelimited", "retry_after": int(trouble.seconds)})
    if trouble.kind == "error":
        return _json(200, {"ok": False, "error": trouble.error})
    if trouble.kind == "timeout":
        threading.Event().wait(trouble.seconds)
    _close_connection()
    return Response(b"", 500)


def _close_connection() -> None:
    """Close the connection without a response."""
    wire = request.environ.get("werkzeug.socket")
    if isinstance(wire, socket.socket):
        with contextlib.suppress(OSError):  # the caller may be gone
            wire.shutdown(socket.SHUT_RDWR)


def _json(status: int, told: Json) -> Response:
    answer = Response(msgspec.json.encode(told), status, content_type="application/json; charset=utf-8")
    if status == 429:
        answer.headers["Retry-After"] = str(told["retry_after"])
    return answer
