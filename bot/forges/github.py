"""GitHub and GitHub Enterprise.

Refs, trees, commits and pull requests over the REST API, and one mutation that only GraphQL offers.

Authenticates as an App (a signed token of ten minutes, exchanged for a one-hour token limited to the repository) or
with a token. Commits made by an App set no author, so that GitHub signs them.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from bot.config.rules import App, PullRequests
from bot.forges.base import CommitChecks, Decoration, ForgeError, PullRequest, PullRequestPlan, failed_of
from bot.forges.http import PACE, ForgeApi
from bot.forges.pull_request_body import hidden, renewed
from connectors.base.contract import CheckResult, SourceFailed
from connectors.base.http import Endpoint, HttpRequest, url_path

HEADERS = {"accept": "application/vnd.github+json", "x-github-api-version": "2022-11-28"}
EARLY = 300.0  # seconds before its end that a token is renewed
SIGNED_FOR = 540.0  # seconds; GitHub takes ten minutes at most
NO_DRAFTS = "draft pull requests are not supported"
READY = "mutation($id: ID!) { markPullRequestReadyForReview(input: {pullRequestId: $id}) { pullRequest { isDraft } } }"


class GitHub:
    """One repository on GitHub."""

    def __init__(self, settings: PullRequests, *, pace: float = PACE, clock: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._owner, _, self._repo = settings.repository.partition("/")
        self._clock = clock
        self._token: tuple[str, float] | None = None
        endpoint = settings.endpoint()
        token = self._login if settings.app is not None else dict[str, str]
        self._api = ForgeApi("GitHub", endpoint, HEADERS, token=token, pace=pace, clock=clock)
        # Enterprise has it beside the REST API, not below it
        url = endpoint.url.rstrip("/").removesuffix("/v3")
        self._graph = ForgeApi(
            "GitHub", Endpoint(url, endpoint.login, endpoint.ca_file), HEADERS, token=token, pace=pace, clock=clock
        )
        self._signed = ForgeApi(
            "GitHub", Endpoint(endpoint.url, ca_file=endpoint.ca_file), HEADERS, pace=0.0, clock=clock
        )

    def tip(self, branch: str) -> str | None:
        """See Forge."""
        call = HttpRequest(self._path("git", "ref", "heads", *branch.split("/")))
        found = self._api.json(call, 404)
        if found is None:
            self._repository()  # a repository that cannot be seen answers 404 too
            return None
        if not isinstance(found, dict) or found.get("ref") != f"refs/heads/{branch}":
            raise self._api.strange(call, "it names another branch")
        return _sha(self._api, call, found.get("object"))

    def base(self, plan: PullRequestPlan) -> str:
        """See Forge."""
        return self._base(plan)[1]

    def ours(self, commit: str, plan: PullRequestPlan) -> bool:
        """Never: commits are recorded before they are visible."""
        del commit, plan
        return False

    def commit(self, plan: PullRequestPlan, tip: str | None, noted: Callable[[str], None]) -> str:
        """See Forge."""
        parent = tip or self._base(plan)[1]
        call = HttpRequest(self._path("git", "commits", parent))
        under = _sha(self._api, call, (self._api.json(call) or {}).get("tree"))
        entries = [self._entry(path, data) for path, data in plan.files.items()]
        entries += [{"path": path, "mode": "100644", "type": "blob", "sha": None} for path in plan.gone]
        call = HttpRequest(self._path("git", "trees"), body={"base_tree": under, "tree": entries})
        tree = _sha(self._api, call, self._api.json(call))
        if tree == under:
            if tip is None:
                raise ForgeError("nothing", f"the branch {self._base(plan)[0]} already has this rule")
            return tip
        body: dict[str, Any] = {"message": plan.message, "tree": tree, "parents": [parent]}
        if self._settings.app is None:
            when = plan.at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            person = {"name": self._settings.author, "email": self._settings.email, "date": when}
            body |= {"author": person, "committer": person}
        call = HttpRequest(self._path("git", "commits"), body=body)
        made = _sha(self._api, call, self._api.json(call))
        noted(made)
        if tip is None:
            self._created(plan.branch, made)
        else:
            self._moved(plan.branch, made)
        return made

    def find(self, plan: PullRequestPlan) -> PullRequest | None:
        """See Forge."""
        params = {"head": f"{self._owner}:{plan.branch}", "state": "all", "sort": "created", "direction": "desc"}
        call = HttpRequest(self._path("pulls"), params)
        found = [
            page
            for page in self._api.pages(call)
            if isinstance(page, dict) and _text(page, "head", "ref") == plan.branch and self._is_here(page)
        ]
        marked = [item for item in found if hidden(plan.mark) in str(item.get("body"))]
        standing = [item for item in found if item.get("state") == "open"]
        best = next(iter([*marked, *standing]), None)
        return None if best is None else _pull(self._api, call, best)

    def open(self, plan: PullRequestPlan) -> PullRequest:
        """See Forge. If the repository does not support drafts, it is opened ready for review."""
        base = plan.base or self._base(plan)[0]
        body = {
            "title": plan.title,
            "head": plan.branch,
            "base": base,
            "body": plan.body,
            "draft": plan.draft,
            "maintainer_can_modify": True,
        }
        call = HttpRequest(self._path("pulls"), body=body)
        try:
            return _pull(self._api, call, self._api.json(call))
        except ForgeError as failed:
            error = str(failed).lower()
            if failed.kind == "refused" and NO_DRAFTS in error:
                call = HttpRequest(self._path("pulls"), body={**body, "draft": False})
                return _pull(self._api, call, self._api.json(call))
            if failed.kind == "refused" and "already exists" in error:
                found = self.find(plan)
                if found is not None:
                    return found
            if failed.kind == "refused" and "field: head, code: invalid" in error:
                raise ForgeError("moved", f"GitHub does not see the branch {plan.branch} yet") from None
            raise

    def look(self, number: int | None, branch: str, head: str | None, etag: str | None) -> PullRequest | None:
        """See Forge."""
        del branch, head
        call = HttpRequest(self._path("pulls", str(number)), headers={"if-none-match": etag} if etag else {})
        answer = self._api.ask(call, 304)
        if answer.status == 304:
            return None
        return _pull(self._api, call, self._api.decoded(answer, call), answer.headers.get("etag"))

    def edit(self, pull: PullRequest, plan: PullRequestPlan) -> None:
        """See Forge. A title changed by a person and text around ours are kept."""
        body = renewed(pull.body, plan.body)
        if body != pull.body:
            self._api.json(HttpRequest(self._path("pulls", str(pull.number)), body={"body": body}, method="PATCH"))

    def dress(self, pull: PullRequest, plan: PullRequestPlan) -> Decoration:
        """See Forge."""
        lacking = []
        if plan.labels:
            try:
                call = HttpRequest(self._path("issues", str(pull.number), "labels"), body={"labels": list(plan.labels)})
                self._api.json(call)
            except ForgeError as failed:
                lacking.append(_light(failed, "labels"))
        for name in plan.reviewers:  # one that may not review must not keep the others off
            kind = "team_reviewers" if "/" in name else "reviewers"
            body = {kind: [name.rpartition("/")[2]]}
            try:
                self._api.json(HttpRequest(self._path("pulls", str(pull.number), "requested_reviewers"), body=body))
            except ForgeError as failed:
                lacking.append(_light(failed, f"reviewer {name}"))
        return Decoration(tuple(lacking))

    def checks(self, pull: PullRequest) -> CommitChecks:
        """Check runs and statuses of the newest commit."""
        if pull.head is None:
            return CommitChecks()
        call = HttpRequest(self._path("commits", pull.head, "check-runs"), {"per_page": 100})
        runs = _list(self._api, call, self._api.json(call), "check_runs")
        call = HttpRequest(self._path("commits", pull.head, "status"), {"per_page": 100})
        states = _list(self._api, call, self._api.json(call), "statuses")
        pending = sum(run.get("status") != "completed" for run in runs)
        pending += sum(state.get("state") == "pending" for state in states)
        fine = ("success", "neutral", "skipped", None)
        failed = [str(run.get("name")) for run in runs if run.get("conclusion") not in fine]
        failed += [str(state.get("context")) for state in states if state.get("state") in ("failure", "error")]
        return CommitChecks(len(runs) + len(states), pending, tuple(failed))

    def ready(self, pull: PullRequest, plan: PullRequestPlan) -> None:
        """See Forge. Only GraphQL offers it, and it answers 200 to rejected requests."""
        del plan
        call = HttpRequest("/graphql", body={"query": READY, "variables": {"id": pull.handle}})
        told = self._graph.json(call)
        errors = told.get("errors") if isinstance(told, dict) else [{"message": "its response has an unexpected form"}]
        if not errors:
            return
        first = errors[0] if isinstance(errors, list) and errors and isinstance(errors[0], dict) else {}
        reason = f"GitHub did not mark #{pull.number} ready: {str(first.get('message'))[:200]}"
        if first.get("type") in ("FORBIDDEN", "INSUFFICIENT_SCOPES"):
            raise ForgeError("forbidden", reason, "the app or token needs pull requests: write")
        kind: Literal["busy", "refused"] = "busy" if first.get("type") == "RATE_LIMITED" else "refused"
        raise ForgeError(kind, reason)

    def comment(self, pull: PullRequest, mark: str, text: str) -> None:
        """See Forge."""
        path = self._path("issues", str(pull.number), "comments")
        self._api.say_once(path, mark, text)

    def check(self) -> CheckResult:
        """See Forge."""
        sent = self._path()
        try:
            found = self._repository()
            base = self._settings.base or str(found.get("default_branch"))
            tip = self.tip(base)
        except ForgeError as failed:
            return CheckResult(False, str(failed), sent)
        rights = found.get("permissions")
        if self._settings.app is None and isinstance(rights, dict) and rights.get("push") is not True:
            return CheckResult(False, "this token can read the repository but not write to it", sent, "contents: write")
        if found.get("archived") is True:
            return CheckResult(False, "the repository is archived and read-only", sent, "name another one")
        if tip is None:
            return CheckResult(False, f"there is no branch {base}", sent, "name one: rules.pull_requests.base")
        by = "as an app" if self._settings.app is not None else "by a token"
        return CheckResult(
            True, f"{self._settings.repository}, base {base} at {tip[:12]}, {by}; nothing was written", sent
        )

    # -- how -------------------------------------------------------------------------------------------------------

    def _path(self, *more: str) -> str:
        return url_path("repos", self._owner, self._repo, *more)

    def _repository(self) -> dict[str, Any]:
        call = HttpRequest(self._path())
        found = self._api.json(call)
        if not isinstance(found, dict) or not isinstance(found.get("default_branch"), str):
            raise self._api.strange(call, "not a repository")
        return found

    def _base(self, plan: PullRequestPlan) -> tuple[str, str]:
        """The base's name and its newest commit."""
        name = plan.base or self._settings.base or str(self._repository()["default_branch"])
        tip = self.tip(name)
        if tip is None:
            raise ForgeError(
                "missing", f"{self._settings.repository} has no branch {name}", "see rules.pull_requests.base"
            )
        return name, tip

    def _entry(self, path: str, data: bytes) -> dict[str, Any]:
        """A file of a tree: text in line, anything else as a blob of its own."""
        entry = {"path": path, "mode": "100644", "type": "blob"}
        try:
            return {**entry, "content": data.decode("utf-8")}
        except UnicodeDecodeError:
            blob = {"content": base64.b64encode(data).decode(), "encoding": "base64"}
            call = HttpRequest(self._path("git", "blobs"), body=blob)
            return {**entry, "sha": _sha(self._api, call, self._api.json(call))}

    def _created(self, branch: str, commit: str) -> None:
        try:
            self._api.json(HttpRequest(self._path("git", "refs"), body={"ref": f"refs/heads/{branch}", "sha": commit}))
        except ForgeError as failed:
            if failed.kind == "refused" and "already exists" in str(failed).lower():
                raise ForgeError("moved", f"GitHub: the branch {branch} was created at the same time") from None
            raise

    def _moved(self, branch: str, commit: str) -> None:
        path = self._path("git", "refs", "heads", *branch.split("/"))
        try:
            self._api.json(HttpRequest(path, body={"sha": commit, "force": False}, method="PATCH"))
        except ForgeError as failed:
            said = str(failed).lower()
            if failed.kind == "refused" and ("fast forward" in said or "does not exist" in said):
                raise ForgeError("moved", f"GitHub: the branch {branch} was updated at the same time") from None
            raise

    def _is_here(self, mapping: Mapping[str, Any]) -> bool:
        """Whether the branch is one of this repository and not of a fork."""
        return _text(mapping, "head", "repo", "full_name").lower() == self._settings.repository.lower()

    def _login(self) -> Mapping[str, str]:
        """The header of an app: its token for this repository, made again some minutes before it ends."""
        if self._token is None or self._token[1] - EARLY < self._clock():
            app = self._settings.app
            assert app is not None  # noqa: S101 - the only caller
            self._token = self._installed(app)
        return {"authorization": f"Bearer {self._token[0]}"}

    def _installed(self, app: App) -> tuple[str, float]:
        headers = {"authorization": f"Bearer {_signed(app, self._clock())}"}
        number = app.installation
        if number is None:
            call = HttpRequest(self._path("installation"), headers=headers)
            reply = self._signed.json(call)
            number = reply.get("id") if isinstance(reply, dict) else None
        path = url_path("app", "installations", str(number), "access_tokens")
        call = HttpRequest(path, body={"repositories": [self._repo]}, headers=headers)
        reply = self._signed.json(call)
        try:
            token, ends = str(reply["token"]), datetime.fromisoformat(reply["expires_at"])
        except (KeyError, TypeError, ValueError):
            raise self._signed.strange(call, "it holds no token") from None
        return token, ends.timestamp()


def _signed(app: App, now: float) -> str:
    """The app's own token, signed with its key. Begun a minute ago, for clocks differ."""
    try:
        import jwt  # noqa: PLC0415 - an extra: not needed with a token
    except ImportError:
        raise ForgeError("not_configured", "a GitHub App needs more: pip install 'signalbox[github]'") from None
    try:
        key = app.key.block()
    except SourceFailed as failed:
        raise failed_of(failed) from None
    claims = {"iat": int(now) - 60, "exp": int(now + SIGNED_FOR) - 60, "iss": app.id}
    try:
        return str(jwt.encode(claims, key, algorithm="RS256"))
    except (jwt.PyJWTError, ValueError, TypeError):  # what it says may hold a part of the key
        raise ForgeError("not_configured", "rules.pull_requests.app.key is not a private key (PEM, RSA)") from None


def _pull(api: ForgeApi, call: HttpRequest, found: Any, etag: str | None = None) -> PullRequest:
    if not isinstance(found, dict) or not isinstance(found.get("number"), int):
        raise api.strange(call, "not a pull request")
    merged = bool(found.get("merged_at")) or found.get("merged") is True
    standing: Literal["open", "merged", "closed"] = "open" if found.get("state") == "open" else "closed"
    return PullRequest(
        number=found["number"],
        url=_text(found, "html_url") or None,
        state="merged" if merged else standing,
        head=_text(found, "head", "sha") or None,
        draft=found.get("draft") is True,
        title=_text(found, "title"),
        body=_text(found, "body"),
        handle=_text(found, "node_id"),
        etag=etag,
        conflict=found.get("mergeable_state") == "dirty",
    )


def _sha(api: ForgeApi, call: HttpRequest, found: Any) -> str:
    sha = found.get("sha") if isinstance(found, dict) else None
    if not isinstance(sha, str) or len(sha) not in (40, 64) or not all(char in "0123456789abcdef" for char in sha):
        raise api.strange(call, "it names no commit")
    return sha


def _list(api: ForgeApi, call: HttpRequest, found: Any, name: str) -> list[dict[str, Any]]:
    listed = found.get(name) if isinstance(found, dict) else None
    if not isinstance(listed, list):
        raise api.strange(call, f"it holds no {name}")
    return [item for item in listed if isinstance(item, dict)]


def _text(found: Any, *keys: str) -> str:
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, str) else ""


def _light(failed: ForgeError, what: str) -> str:
    """What could not be had and holds nothing up; what concerns more than that is raised again."""
    if failed.kind in ("refused", "missing", "forbidden"):
        return f"{what}: {failed}"
    raise failed
