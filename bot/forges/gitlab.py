"""GitLab, hosted or self-managed: one commit with several actions, and merge requests, with a project access token.

GitLab creates branch and commit in one call and returns the id afterwards. An unrecorded commit of ours is recognised
by the mark in its message, by its author, and by equal author and commit times.
"""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from bot.config.rules import PullRequests
from bot.forges.base import CommitChecks, Decoration, ForgeError, PullRequest, PullRequestPlan
from bot.forges.http import PACE, ForgeApi
from bot.forges.pull_request_body import hidden, renewed
from connectors.base.contract import CheckResult
from connectors.base.http import HttpRequest, url_path

HEADERS = {"accept": "application/json"}
DEVELOPER = 30  # the access level that pushes branches
RUNNING = ("created", "waiting_for_resource", "preparing", "pending", "running", "scheduled", "manual")
_DRAFT = re.compile(r"\A\s*(?:draft:|\[draft\]|\(draft\))\s*", re.IGNORECASE)
_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?\Z")


class GitLab:
    """One project on GitLab."""

    def __init__(self, settings: PullRequests, *, pace: float = PACE, clock: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._api = ForgeApi("GitLab", settings.endpoint(), HEADERS, pace=pace, clock=clock)
        self._known: dict[str, Any] | None = None

    def tip(self, branch: str) -> str | None:
        """See Forge."""
        call = HttpRequest(self._path("repository", "branches", branch))
        found = self._api.json(call, 404)
        if found is None:
            self._project()  # a project that cannot be seen answers 404 too
            return None
        if not isinstance(found, dict) or found.get("name") != branch:
            raise self._api.strange(call, "it names another branch")
        return self._sha(call, found.get("commit"))

    def base(self, plan: PullRequestPlan) -> str:
        """See Forge."""
        return self._base(plan)[1]

    def ours(self, commit: str, plan: PullRequestPlan) -> bool:
        """See Forge. Every commit of the branch must be ours: somebody may have pushed below our newest one."""
        base = plan.base or self._base(plan)[0]
        call = HttpRequest(self._path("repository", "compare"), {"from": base, "to": commit})
        found = self._api.json(call)
        commits = found.get("commits") if isinstance(found, dict) else None
        if not isinstance(commits, list):
            raise self._api.strange(call, "it compares nothing")
        return bool(commits) and all(isinstance(item, dict) and self._is_ours(item, plan) for item in commits)

    def _is_ours(self, commit: Mapping[str, Any], plan: PullRequestPlan) -> bool:
        untouched = commit.get("authored_date") == commit.get("committed_date")
        by_us = commit.get("author_email") == self._settings.email
        return by_us and untouched and _trailer(plan.mark) in str(commit.get("message")).splitlines()

    def commit(self, plan: PullRequestPlan, tip: str | None, noted: Callable[[str], None]) -> str:
        """See Forge. `noted` is called after the commit exists, because its id is unknown before."""
        base = None if tip is not None else self._base(plan)
        parent = tip or (base[1] if base else "")
        there = {path: self._blob(path, parent) for path in [*plan.files, *plan.gone]}
        actions = [
            {
                "action": "create" if there[path] is None else "update",
                "file_path": path,
                "content": base64.b64encode(data).decode(),
                "encoding": "base64",
            }
            for path, data in plan.files.items()
            if there[path] != data
        ]
        actions += [{"action": "delete", "file_path": path} for path in plan.gone if there[path] is not None]
        if not actions:
            if tip is None:
                raise ForgeError("nothing", f"the branch {base[0] if base else ''} already has this rule")
            return tip
        body: dict[str, Any] = {
            "branch": plan.branch,
            "commit_message": f"{plan.message}\n\n{_trailer(plan.mark)}",
            "author_name": self._settings.author,
            "author_email": self._settings.email,
            "actions": actions,
        }
        if tip is None:
            body["start_sha"] = parent
        call = HttpRequest(self._path("repository", "commits"), body=body)
        try:
            found = self._api.json(call)
        except ForgeError as failed:
            if failed.kind == "refused" and "already exists" in str(failed):
                raise ForgeError("moved", f"GitLab: the branch {plan.branch} was created at the same time") from None
            raise
        made = self._sha(call, found)
        if isinstance(found, dict) and found.get("parent_ids") != [parent]:
            # somebody pushed in between: theirs stands below ours, nothing is lost, and the branch is theirs now
            raise ForgeError("moved", f"GitLab: the branch {plan.branch} was updated at the same time")
        noted(made)
        return made

    def find(self, plan: PullRequestPlan) -> PullRequest | None:
        """See Forge."""
        project = self._project().get("id")
        params = {"source_branch": plan.branch, "state": "all", "order_by": "created_at", "sort": "desc"}
        call = HttpRequest(self._path("merge_requests"), params)
        found = [
            page
            for page in self._api.pages(call)
            if isinstance(page, dict)
            and page.get("source_branch") == plan.branch
            and page.get("source_project_id") == project
        ]
        marked = [item for item in found if hidden(plan.mark) in str(item.get("description"))]
        standing = [item for item in found if item.get("state") == "opened"]
        best = next(iter([*marked, *standing]), None)
        return None if best is None else self._pull(call, best)

    def open(self, plan: PullRequestPlan) -> PullRequest:
        """See Forge."""
        body = {
            "source_branch": plan.branch,
            "target_branch": plan.base or self._base(plan)[0],
            "title": f"Draft: {plan.title}" if plan.draft else plan.title,
            "description": plan.body,
            "labels": ",".join(plan.labels),
            "remove_source_branch": True,
        }
        call = HttpRequest(self._path("merge_requests"), body=body)
        try:
            return self._pull(call, self._api.json(call))
        except ForgeError as failed:
            if failed.kind == "moved":  # 409: there is one
                found = self.find(plan)
                if found is not None:
                    return found
            raise

    def look(self, number: int | None, branch: str, head: str | None, etag: str | None) -> PullRequest | None:
        """See Forge."""
        del branch, head
        call = HttpRequest(self._path("merge_requests", str(number)), headers={"if-none-match": etag} if etag else {})
        answer = self._api.ask(call, 304)
        if answer.status == 304:
            return None
        return self._pull(call, self._api.decoded(answer, call), answer.headers.get("etag"))

    def edit(self, pull: PullRequest, plan: PullRequestPlan) -> None:
        """See Forge. Text that people wrote around ours is kept."""
        body = renewed(pull.body, plan.body)
        if body != pull.body:
            self._put(pull, {"description": body})

    def dress(self, pull: PullRequest, plan: PullRequestPlan) -> Decoration:
        """See Forge."""
        lacking: list[str] = []
        change: dict[str, Any] = {"add_labels": ",".join(plan.labels)} if plan.labels else {}
        ids = []
        for name in plan.reviewers:
            found = next((user for user in self._users(name) if user.get("username") == name), None)
            if found is None or not isinstance(found.get("id"), int):
                lacking.append(f"reviewer {name}: no such user")
            else:
                ids.append(found["id"])
        if ids:
            change["reviewer_ids"] = ids
        if change:
            try:
                self._put(pull, change)
            except ForgeError as failed:
                if failed.kind not in ("refused", "missing", "forbidden"):
                    raise
                lacking.append(f"labels and reviewers: {failed}")
        return Decoration(tuple(lacking))

    def checks(self, pull: PullRequest) -> CommitChecks:
        """The newest pipeline of the merge request, if it is for its newest commit."""
        call = HttpRequest(self._path("merge_requests", str(pull.number)))
        found = self._api.json(call)
        pipeline = found.get("head_pipeline") if isinstance(found, dict) else None
        if not isinstance(pipeline, dict) or pipeline.get("sha") not in (None, pull.head):
            return CommitChecks()
        state = str(pipeline.get("status"))
        if state in ("success", "skipped"):
            return CommitChecks(1)
        return CommitChecks(1, 1) if state in RUNNING else CommitChecks(1, 0, (f"pipeline {state}",))

    def ready(self, pull: PullRequest, plan: PullRequestPlan) -> None:
        """See Forge. Drafts are marked by their title; other changes to the title are kept."""
        self._put(pull, {"title": _DRAFT.sub("", pull.title) or plan.title})

    def comment(self, pull: PullRequest, mark: str, text: str) -> None:
        """See Forge."""
        path = self._path("merge_requests", str(pull.number), "notes")
        self._api.say_once(path, mark, text)

    def check(self) -> CheckResult:
        """See Forge."""
        sent = self._path()
        try:
            found = self._project()
            base = self._settings.base or str(found.get("default_branch"))
            tip = self.tip(base)
        except ForgeError as failed:
            return CheckResult(False, str(failed), sent)
        if found.get("archived") is True:
            return CheckResult(False, "the project is archived and read-only", sent, "name another one")
        if (level := _level(found)) is not None and level < DEVELOPER:
            return CheckResult(False, "this token may not push branches", sent, "give it the role Developer, scope api")
        if tip is None:
            return CheckResult(False, f"there is no branch {base}", sent, "name one: rules.pull_requests.base")
        return CheckResult(True, f"{self._settings.repository}, base {base} at {tip[:12]}; nothing was written", sent)

    # -- how -------------------------------------------------------------------------------------------------------

    def _path(self, *more: str) -> str:
        return url_path("projects", self._settings.repository, *more)

    def _project(self) -> dict[str, Any]:
        if self._known is None:
            call = HttpRequest(self._path())
            found = self._api.json(call)
            if not isinstance(found, dict) or not isinstance(found.get("id"), int):
                raise self._api.strange(call, "not a project")
            self._known = found
        return self._known

    def _base(self, plan: PullRequestPlan) -> tuple[str, str]:
        name = plan.base or self._settings.base or str(self._project().get("default_branch") or "main")
        tip = self.tip(name)
        if tip is None:
            raise ForgeError(
                "missing", f"{self._settings.repository} has no branch {name}", "see rules.pull_requests.base"
            )
        return name, tip

    def _blob(self, path: str, commit: str) -> bytes | None:
        """A file as it is in a commit; None where there is none."""
        call = HttpRequest(self._path("repository", "files", path), {"ref": commit})
        found = self._api.json(call, 404)
        if found is None:
            return None
        try:
            return base64.b64decode(found["content"], validate=True)
        except (KeyError, TypeError, ValueError):
            raise self._api.strange(call, "not a file") from None

    def _users(self, name: str) -> Iterator[dict[str, Any]]:
        found = self._api.json(HttpRequest("/users", {"username": name}))
        yield from (item for item in found if isinstance(item, dict)) if isinstance(found, list) else ()

    def _put(self, pull: PullRequest, change: Mapping[str, Any]) -> None:
        path = self._path("merge_requests", str(pull.number))
        self._api.json(HttpRequest(path, body=dict(change), method="PUT"))

    def _pull(self, call: HttpRequest, found: Any, etag: str | None = None) -> PullRequest:
        if not isinstance(found, dict) or not isinstance(found.get("iid"), int):
            raise self._api.strange(call, "not a merge request")
        states: Mapping[str, Literal["open", "merged", "closed"]] = {
            "opened": "open",
            "locked": "open",
            "merged": "merged",
        }
        title = str(found.get("title") or "")
        return PullRequest(
            number=found["iid"],
            url=str(found.get("web_url") or "") or None,
            state=states.get(str(found.get("state")), "closed"),
            head=str(found.get("sha") or "") or None,
            draft=bool(found.get("draft")) or _DRAFT.match(title) is not None,
            title=title,
            body=str(found.get("description") or ""),
            etag=etag,
            conflict=found.get("has_conflicts") is True,
        )

    def _sha(self, call: HttpRequest, found: Any) -> str:
        sha = found.get("id") if isinstance(found, dict) else None
        if not isinstance(sha, str) or not _SHA.match(sha):
            raise self._api.strange(call, "it names no commit")
        return sha


def _trailer(mark: str) -> str:
    return f"Signalbox-Proposal: {mark}"


def _level(project: Mapping[str, Any]) -> int | None:
    """The higher of the rights in the project and in its group; None where neither is told."""
    rights = project.get("permissions")
    if not isinstance(rights, dict):
        return None
    levels = [access.get("access_level") for access in rights.values() if isinstance(access, dict)]
    return max((level for level in levels if isinstance(level, int)), default=None)
