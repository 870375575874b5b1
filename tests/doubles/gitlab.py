"""A double of GitLab's API, written from its documentation: commits with actions, merge requests, notes, pipelines, users.

docs.gitlab.com/api: projects, branches, commits, repository files, merge_requests, notes; version 4.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import Any

from tests.support.forge_repository import Commit, Repository
from tests.support.forge_server import Asked, Double, Said

DRAFTS = ("draft:", "[draft]", "(draft)")


@dataclass
class MergeRequest:
    """A merge request."""

    iid: int
    title: str
    description: str
    source: str
    target: str
    state: str = "opened"
    labels: list[str] = field(default_factory=list)
    reviewers: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    conflict: bool = False

    @property
    def draft(self) -> bool:
        """By its title."""
        return self.title.lower().startswith(DRAFTS)


class GitLabDouble(Double):
    """A GitLab with one project, acme/tools/rules, number 7."""

    def __init__(self, repository: Repository, *, token: str) -> None:
        super().__init__()
        self.repository = repository
        self.token = token
        self.merges: list[MergeRequest] = []
        self.protected = ""
        self.archived = False
        self.level = 30
        self.scopes = True
        self.pipelines: dict[str, str] = {}
        self.between: Any = None  # what a person does while a commit is made

    def limits(self) -> dict[str, str]:
        """See Double."""
        return {"RateLimit-Limit": "2000", "RateLimit-Remaining": str(self.remaining), "RateLimit-Reset": "1799999999"}

    def answer(self, asked: Asked) -> Said:  # noqa: C901, PLR0911, PLR0912 - one route after the other
        """See Double."""
        if asked.headers.get("private-token") != self.token:
            return Said(401, {"message": "401 Unauthorized"})
        if not self.scopes:
            told = "The request requires higher privileges than provided by the access token."
            return Said(403, {"error": "insufficient_scope", "error_description": told, "scope": "api"})
        if asked.parts == ("users",):
            known = {"ada": 1, "bob": 2}
            name = asked.query.get("username", "")
            return Said(200, [{"id": known[name], "username": name}] if name in known else [])
        if asked.parts[:2] not in (("projects", "acme/tools/rules"), ("projects", "7")):
            return Said(404, {"message": "404 Project Not Found"})
        if asked.method != "GET" and (self.archived or self.level < 30):
            return Said(403, {"message": "403 Forbidden"})
        match asked.method, asked.parts[2:]:
            case "GET", ():
                rights = {"project_access": {"access_level": self.level}, "group_access": None}
                return Said(200, {"id": 7, "default_branch": "main", "archived": self.archived, "permissions": rights})
            case "GET", ("repository", "branches", branch):
                sha = self.repository.branches.get(branch)
                if sha is None:
                    return Said(404, {"message": "404 Branch Not Found"})
                return Said(
                    200, {"name": branch, "protected": False, "commit": self.commit(self.repository.commits[sha])}
                )
            case "GET", ("repository", "files", path):
                return self._file(path, asked.query["ref"])
            case "GET", ("repository", "compare"):
                return self._compare(asked.query["from"], asked.query["to"])
            case "POST", ("repository", "commits"):
                return self._committed(asked.body)
            case "GET", ("merge_requests",):
                return self._merges(asked)
            case "POST", ("merge_requests",):
                return self._merge_made(asked.body)
            case _, ("merge_requests", number, *rest) if number.isdecimal():
                return self._merge(asked, int(number), tuple(rest))
            case _:
                return Said(501)

    # -- repository ---------------------------------------------------------------------------------------------------

    def commit(self, commit: Commit) -> dict[str, Any]:
        """A commit as JSON."""
        return {
            "id": commit.sha,
            "parent_ids": list(commit.parents),
            "message": commit.message,
            "title": commit.message.splitlines()[0],
            "author_name": commit.author["name"],
            "author_email": commit.author["email"],
            "authored_date": commit.author["date"],
            "committer_email": commit.committer["email"],
            "committed_date": commit.committer["date"],
        }

    def _sha(self, ref: str) -> str | None:
        return self.repository.branches.get(ref) or (ref if ref in self.repository.commits else None)

    def _file(self, path: str, ref: str) -> Said:
        sha = self._sha(ref)
        if sha is None:
            return Said(404, {"message": "404 Commit Not Found"})
        blob = self.repository.trees[self.repository.commits[sha].tree].get(path)
        if blob is None:
            return Said(404, {"message": "404 File Not Found"})
        content = base64.b64encode(self.repository.blobs[blob]).decode()
        return Said(200, {"file_path": path, "encoding": "base64", "content": content, "blob_id": blob})

    def _compare(self, start: str, end: str) -> Said:
        old, new = self._sha(start), self._sha(end)
        if old is None or new is None:
            return Said(404, {"message": "404 Ref Not Found"})
        return Said(200, {"commits": [self.commit(commit) for commit in self.repository.only(new, old)], "diffs": []})

    def _committed(self, body: Mapping[str, Any]) -> Said:  # noqa: C901, PLR0911 - one route after the other
        branch = body.get("branch")
        lacking = [name for name in ("branch", "commit_message", "actions") if not body.get(name)]
        if lacking:
            return Said(400, {"error": ", ".join(f"{name} is missing" for name in lacking)})
        if self.between is not None:
            self.between()
        tip, start = self.repository.branches.get(str(branch)), body.get("start_sha")
        if start is not None and tip is not None:
            return Said(
                400,
                {
                    "message": f"A branch called '{branch}' already exists. Switch to that branch in order to make changes"
                },
            )
        if start is None and tip is None:
            return Said(400, {"message": "You can only create or edit files when you are on a branch"})
        if self.protected and fnmatch(branch, self.protected):
            return Said(403, {"message": "You are not allowed to push into this branch"})
        parent = tip or start
        if parent not in self.repository.commits:
            return Said(400, {"message": "Invalid start_sha"})
        files = dict(self.repository.trees[self.repository.commits[parent].tree])
        for action in body["actions"]:
            path = action["file_path"]
            if path.startswith("/") or ".." in path.split("/"):
                return Said(400, {"message": "Path cannot include directory traversal"})
            if action["action"] == "create" and path in files:
                return Said(400, {"message": "A file with this name already exists"})
            if action["action"] in ("update", "delete") and path not in files:
                return Said(400, {"message": "A file with this name doesn't exist"})
            if action["action"] == "delete":
                del files[path]
                continue
            assert action["encoding"] == "base64"
            files[path] = self.repository.blob(base64.b64decode(action["content"], validate=True))
        date = f"2026-11-22T10:00:{len(self.repository.commits):02}.000+00:00"
        author = {"name": body["author_name"], "email": body["author_email"], "date": date}
        bot = {"name": "project_7_bot", "email": "project_7_bot@noreply.example", "date": date}
        sha = self.repository.commit(self.repository.tree(files), (parent,), body["commit_message"], author, bot)
        self.repository.branches[branch] = sha
        return Said(201, self.commit(self.repository.commits[sha]))

    # -- merge requests -----------------------------------------------------------------------------------------------

    def as_json(self, merge_request: MergeRequest) -> dict[str, Any]:
        """A merge request as JSON."""
        sha = self.repository.branches.get(merge_request.source)
        state = self.pipelines.get(sha or "")
        return {
            "iid": merge_request.iid,
            "title": merge_request.title,
            "description": merge_request.description,
            "state": merge_request.state,
            "draft": merge_request.draft,
            "sha": sha,
            "source_branch": merge_request.source,
            "target_branch": merge_request.target,
            "source_project_id": 7,
            "target_project_id": 7,
            "labels": merge_request.labels,
            "has_conflicts": merge_request.conflict,
            "web_url": f"https://gitlab.example/acme/tools/rules/-/merge_requests/{merge_request.iid}",
            "head_pipeline": {"id": 1, "sha": sha, "status": state} if state else None,
        }

    def _merges(self, asked: Asked) -> Said:
        state, source = asked.query.get("state", "all"), asked.query.get("source_branch")
        found = [
            merge for merge in reversed(self.merges) if state in ("all", merge.state) and source in (None, merge.source)
        ]
        return self.page(asked, [self.as_json(item) for item in found])

    def _merge_made(self, body: Mapping[str, Any]) -> Said:
        source, target = body.get("source_branch"), body.get("target_branch")
        if not all((source, target, body.get("title"))):
            return Said(400, {"error": "title is missing, source_branch is missing, target_branch is missing"})
        other = next((merge for merge in self.merges if merge.state == "opened" and merge.source == source), None)
        if other is not None:
            return Said(
                409, {"message": [f"Another open merge request already exists for this source branch: !{other.iid}"]}
            )
        if source not in self.repository.branches or target not in self.repository.branches:
            return Said(400, {"message": {"base": ["Source branch does not exist"]}})
        description = body.get("description", "")
        self._quick_actions(description)
        labels = [text for text in body.get("labels", "").split(",") if text]
        made = MergeRequest(len(self.merges) + 1, body["title"], description, source, target, labels=labels)
        self.merges.append(made)
        return Said(201, self.as_json(made))

    def _merge(self, asked: Asked, number: int, rest: tuple[str, ...]) -> Said:  # noqa: PLR0911 - one route after the other
        if number > len(self.merges):
            return Said(404, {"message": "404 Not found"})
        one = self.merges[number - 1]
        match asked.method, rest:
            case "GET", ():
                return Said(200, self.as_json(one))
            case "PUT", ():
                known = {"title", "description", "add_labels", "reviewer_ids"}
                if not asked.body or set(asked.body) - known:
                    return Said(400, {"error": "at least one parameter must be provided"})
                one.title = asked.body.get("title", one.title)
                one.description = asked.body.get("description", one.description)
                self._quick_actions(one.description)
                one.labels += [
                    name for name in asked.body.get("add_labels", "").split(",") if name and name not in one.labels
                ]
                one.reviewers = asked.body.get("reviewer_ids", one.reviewers)
                return Said(200, self.as_json(one))
            case "GET", ("notes",):
                return self.page(asked, [{"id": at, "body": note} for at, note in enumerate(one.notes)])
            case "PUT", ("notes", place):
                one.notes[int(place)] = asked.body["body"]
                return Said(200, {"id": int(place)})
            case "POST", ("notes",):
                self._quick_actions(asked.body["body"])
                one.notes.append(asked.body["body"])
                return Said(201, {"id": len(one.notes)})
            case _:
                return Said(501)

    def _quick_actions(self, text: str) -> None:
        """A line that begins with / is a command, unless it is in a code block."""
        fence = ""
        for line in text.splitlines():
            ticks = line[: len(line) - len(line.lstrip("`"))]
            if len(ticks) >= 3 and (not fence or ticks == fence):
                fence = "" if fence else ticks
            elif not fence and line.startswith("/"):
                self.strange.append(f"the quick action {line!r}")
