"""The page: channels, threads, modals and the Home tab, rendered here and driven by plain forms. Scripts only save clicks.

All message content is untrusted: templates escape it, only web addresses become links, nothing is loaded from elsewhere, and
files are never shown as pages. Other sites cannot post here.
"""

from __future__ import annotations

import contextlib
import ipaddress
from dataclasses import replace
from datetime import tzinfo
from typing import Any
from urllib.parse import urlencode, urlsplit

from flask import Blueprint, Response, abort, redirect, render_template, request, url_for
from werkzeug.wrappers import Response as Sent

from bot.demo.fakeslack import responses
from bot.demo.fakeslack.ui.mrkdwn import EMOJI, Names, mrkdwn, rich_text
from bot.demo.fakeslack.ui.views import Page, days, dialog, draw, home, preview, size
from bot.demo.fakeslack.values import Json, NotPossible, UploadedFile, User, View
from bot.demo.fakeslack.views import elements
from bot.demo.fakeslack.workspace import Workspace

POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
MOST_SHOWN = 300  # messages of a channel, threads included


def create_pages(workspace: Workspace, *, zone: tzinfo | None = None, examples: tuple[str, ...] = ()) -> Blueprint:
    """Return the routes of the page.

    Args:
        workspace: What to show.
        zone: Time zone of the times; UTC by default.
        examples: Suggestions of the composer; it shows the first one.
    """
    pages = Blueprint("pages", __name__, template_folder="templates", static_folder="static", static_url_path="/-")
    _filters(pages, workspace)
    _guards(pages, workspace)
    _page_routes(pages, workspace, zone, examples)
    _channel_acts(pages, workspace)
    _view_acts(pages, workspace)
    return pages


def _filters(pages: Blueprint, workspace: Workspace) -> None:
    state = workspace.state

    def file_of(image: Json) -> UploadedFile | None:
        """Return the uploaded file that an image shows; None for remote images."""
        wanted = image.get("slack_file") or {}
        address = str(wanted.get("url") or image.get("image_url") or "")
        inside = address.removeprefix(f"{state.base_url}/files/") if state.base_url else address
        file = state.files.get(str(wanted.get("id") or inside))
        return file if file and file.mimetype == "image/png" else None

    def emoji(text: str) -> str:
        parts = text.split(":")
        for index in range(1, len(parts) - 1):
            if parts[index] in EMOJI:
                parts[index - 1 : index + 2] = [parts[index - 1] + EMOJI[parts[index]] + parts[index + 1]]
                return emoji(":".join(parts))
        return text

    def web_only(address: str) -> str:
        return address if address.startswith(("https://", "http://")) else "#"

    for item in (mrkdwn, rich_text, file_of, emoji, web_only, preview, size):
        pages.app_template_filter(item.__name__)(item)


def _guards(pages: Blueprint, workspace: Workspace) -> None:
    @pages.before_request
    def at_home() -> None:
        """Reject requests from other sites: other host names (DNS rebinding), and posts from elsewhere."""
        name = urlsplit(f"//{request.host}").hostname or ""
        own = urlsplit(workspace.state.base_url).hostname
        if name not in {"localhost", own} and not _is_address(name):
            abort(403)
        if request.method == "POST":
            origin = request.headers.get("Origin")
            site = request.headers.get("Sec-Fetch-Site", "same-origin")
            if site not in {"same-origin", "none"} or (origin and origin != request.host_url.rstrip("/")):
                abort(403)

    @pages.after_request
    def safely(answer: Response) -> Response:
        answer.headers["Content-Security-Policy"] = POLICY
        answer.headers["X-Content-Type-Options"] = "nosniff"
        answer.headers["Referrer-Policy"] = "same-origin"
        answer.headers["Cache-Control"] = "no-store"
        return answer


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _page_routes(pages: Blueprint, workspace: Workspace, zone: tzinfo | None, examples: tuple[str, ...]) -> None:  # noqa: C901 - a list of routes
    state = workspace.state
    proposed = examples or tuple(f"{command} help" for command in workspace.app.commands)

    def page(user: User, title: str, path: str, **more: Any) -> str:
        with state.lock:
            mine = [item for item in state.channels.values() if user.id in item.members]
            back = {key[2:]: value for key, value in request.args.items() if key.startswith("q.")}
            shown = Page(
                title=title,
                domain=state.domain,
                version=state.version,
                path=path,
                app=workspace.app,
                user=user,
                people=tuple(item for item in state.users.values() if not item.is_bot),
                channels=tuple(item for item in mine if not item.direct),
                directs=tuple(item for item in mine if item.direct),
                names=Names(state.users, state.channels, state.groups, zone),
                commands=(*proposed, *(f"@{workspace.app.name} {text.partition(' ')[2]}" for text in proposed[:1])),
                example=proposed[0] if proposed else "hello",
                dialog=dialog(user, workspace.modal(user.id), path, back),
                **more,
            )
            return render_template("chat/page.html", page=shown)

    @pages.get("/")
    def index() -> Sent:
        people = [item for item in state.users.values() if not item.is_bot]
        for user in people:
            for item in state.channels.values():
                if user.id in item.members and not item.direct:
                    return redirect(url_for("pages.channel", user=user.id, channel=item.id))
        return abort(404)

    @pages.get("/switch")
    def switch() -> Sent:
        """Switch to another user, in the same channel if possible."""
        user, where = _user(workspace, request.args.get("user", "")), request.args.get("channel", "")
        mine = [item.id for item in state.channels.values() if user.id in item.members]
        if not mine:
            return redirect(url_for("pages.home_tab", user=user.id))
        return redirect(url_for("pages.channel", user=user.id, channel=where if where in mine else mine[0]))

    @pages.get("/at/<user>/<channel>")
    def channel(user: str, channel: str) -> str:
        who, where = _user(workspace, user), state.channels.get(channel)
        if where is None or who.id not in where.members:
            abort(404)
        messages = workspace.visible(user, channel)
        thread = request.args.get("thread", "")
        first = [message for message in messages if message.ts == thread]
        replies = [*first, *(message for message in messages if message.thread_ts == thread)] if first else []
        drawn = tuple(draw(state, who, reply, thread, zone, aside=True) for reply in replies)
        path = url_for("pages.channel", user=user, channel=channel, thread=thread or None)
        title = workspace.app.name if where.direct else where.name
        listed = days(state, who, messages[-MOST_SHOWN:], thread, zone)
        older = max(0, len(messages) - MOST_SHOWN)
        return page(
            who, title, path, channel=where, days=listed, older=older, thread=thread if first else "", replies=drawn
        )

    @pages.get("/at/<user>/home")
    def home_tab(user: str) -> str:
        who = _user(workspace, user)
        path = url_for("pages.home_tab", user=user)
        return page(who, workspace.app.name, path, home=home(who, workspace.home(user)))

    @pages.get("/archives/<channel>/p<ts>")
    def archive(channel: str, ts: str) -> Sent:
        """Open the target of chat.getPermalink, as seen by the first member."""
        where = state.channels.get(channel)
        members = [item for item in state.users.values() if where and item.id in where.members and not item.is_bot]
        if not members:
            abort(404)
        thread = request.args.get("thread_ts")
        to = url_for("pages.channel", user=members[0].id, channel=channel, thread=thread)
        return redirect(f"{to}#m{ts[:-6]}.{ts[-6:]}")

    @pages.get("/files/<name>")
    def file(name: str) -> Response:
        """Serve a file: a PNG as an image, everything else as plain text."""
        found = state.files.get(name)
        if found is None or found.data is None:
            abort(404)
        kind = "image/png" if found.mimetype == "image/png" else "text/plain; charset=utf-8"
        return Response(found.data, content_type=kind, headers={"Content-Disposition": "inline"})

    @pages.get("/version")
    def version() -> Json:
        return {"version": state.version}


def _user(workspace: Workspace, name: str) -> User:
    user = workspace.state.users.get(name)
    if user is None or user.is_bot:
        abort(404)
    return user


def _back(user: str, channel: str) -> Sent:
    thread = request.form.get("thread") or None
    return redirect(url_for("pages.channel", user=user, channel=channel, thread=thread), 303)


def _channel_acts(pages: Blueprint, workspace: Workspace) -> None:  # noqa: C901 - a list of routes
    state = workspace.state

    def tried(user: str, channel: str, act: Any) -> Sent:
        """Run an action. If it is not possible, Slack's own notice says so."""
        _user(workspace, user)
        if channel not in state.channels:
            abort(404)
        try:
            act()
        except NotPossible as error:
            responses.notice(state, user, channel, str(error), request.form.get("thread") or None)
        return _back(user, channel)

    @pages.post("/at/<user>/<channel>/say")
    def say(user: str, channel: str) -> Sent:
        text = request.form.get("text", "").strip()
        thread = request.form.get("thread") or None

        def act() -> None:
            if text.startswith("/"):
                if thread:
                    raise NotPossible("app slash commands do not work in threads; mention the app instead")
                name, _, rest = text.partition(" ")
                workspace.command(user, channel, name, rest.strip())
            elif text:
                workspace.say(user, channel, _typed(workspace, text), thread)

        return tried(user, channel, act)

    @pages.post("/at/<user>/<channel>/act")
    def act(user: str, channel: str) -> Sent:
        form = request.form
        return tried(
            user,
            channel,
            lambda: workspace.click(
                user, channel, form.get("ts", ""), form.get("action_id", ""), _value(), block_id=form.get("block_id")
            ),
        )

    @pages.post("/at/<user>/<channel>/shortcut")
    def shortcut(user: str, channel: str) -> Sent:
        form = request.form
        return tried(
            user,
            channel,
            lambda: workspace.shortcut(user, channel, form.get("ts", ""), form.get("callback_id", "")),
        )

    @pages.post("/at/<user>/<channel>/dismiss")
    def dismiss(user: str, channel: str) -> Sent:
        """Dismiss an ephemeral message."""

        def away() -> None:
            message = workspace.seen(user, channel, request.form.get("ts", ""))
            if message.only_for == user:
                state.drop(message)

        return tried(user, channel, away)


def _value() -> Any:
    """Return the chosen value, or values."""
    given = request.form.getlist("value")
    return given if len(given) > 1 else (given[0] if given else None)


def _typed(workspace: Workspace, text: str) -> str:
    """Return a message as Slack's client sends it: escaped, with user ids instead of names."""
    words = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    for user in sorted(workspace.state.users.values(), key=lambda item: -len(item.name)):
        words = words.replace(f"@{user.name}", f"<@{user.id}>")
    return words


def _view_acts(pages: Blueprint, workspace: Workspace) -> None:  # noqa: C901 - a list of routes
    state = workspace.state

    def back(**asked: str) -> Sent:
        to = request.form.get("back", "/")
        if not to.startswith("/") or to.startswith("//") or "\\" in to:
            abort(400)
        more = ("&" if "?" in to else "?") + urlencode(asked) if asked else ""
        return redirect(to + more, 303)

    @pages.post("/at/<user>/home/open")
    def open_home(user: str) -> Sent:
        workspace.open_home(_user(workspace, user).id)
        return redirect(url_for("pages.home_tab", user=user), 303)

    @pages.post("/at/<user>/home/act")
    def home_act(user: str) -> Sent:
        _user(workspace, user)
        with contextlib.suppress(NotPossible):
            workspace.act_at_home(user, request.form.get("action_id", ""), _value(), request.form.get("block_id"))
        return redirect(url_for("pages.home_tab", user=user), 303)

    @pages.post("/at/<user>/modal/act")
    def modal_act(user: str) -> Sent:
        _user(workspace, user)
        with contextlib.suppress(NotPossible):
            workspace.act(user, request.form.get("action_id", ""), _value(), request.form.get("block_id"))
        return back()

    @pages.post("/at/<user>/modal")
    def modal(user: str) -> Sent | str:
        """Submit, close, or search in the modal. Does nothing if another one has replaced it."""
        view = workspace.modal(_user(workspace, user).id)
        if view is None or view.id != request.form.get("view"):
            return back()
        do, _, block = request.form.get("do", "").partition(":")
        if do in {"close", "shut"}:
            workspace.close(user, everything=do == "shut")
            return back()
        errors = _entered(workspace, user, view)
        asked = {key: value for key, value in request.form.items() if key.startswith("q.") and value}
        try:
            if do == "act" and block not in errors:
                _dispatch_input(workspace, user, block)
            elif do == "search":
                workspace.suggest(user, block, request.form.get(f"q.{block}", ""))
            elif do == "submit" and not errors:
                workspace.submit(user)
        except NotPossible as error:
            errors = {error.block or block: str(error)}
        now = workspace.modal(user)
        if errors and now is not None and now.id == view.id:
            state.show(replace(now, errors=errors))
        return back(**asked)


def _dispatch_input(workspace: Workspace, user: str, block: str) -> None:
    """Send the app a choice in an input that dispatches actions."""
    view = workspace.modal(user)
    for pair, element in elements(view.blocks) if view is not None else ():
        if pair["block_id"] == block and pair.get("dispatch_action"):
            workspace.act(user, element["action_id"], request.form.get(f"f.{block}"), block)


def _entered(workspace: Workspace, user: str, view: View) -> dict[str, str]:
    """Store the values of the form; return the invalid ones, by block."""
    errors = {}
    for block, element in elements(view.blocks):
        if block["type"] != "input":
            continue
        name = block["block_id"]
        given = request.form.getlist(f"f.{name}")
        many = element["type"].startswith("multi_") or element["type"] == "checkboxes"
        try:
            workspace.fill(user, {name: given if many else (given[0] if given else None)})
        except NotPossible as error:
            errors[name] = str(error)
    return errors
