"""A double of GitHub's API, written from its documentation: what it checks, how it refuses, in which words.

docs.github.com/rest: git database, pulls, issues, checks, apps, rate limits; version 2022-11-28. Only one mutation of GraphQL.
Each request and answer is checked against GitHub's OpenAPI document (github_openapi.json).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatch
from typing import Any

from tests.doubles.openapi import faults
from tests.support.forge_repository import Refused, Repository
from tests.support.forge_server import Asked, Double, Said

SHA = re.compile(r"[0-9a-f]{40}\Z")
DOCS = "https://docs.github.com/rest"
MODES = ("100644", "100755", "040000", "160000", "120000")


@dataclass
class PullRequest:
    """A pull request. `ready`: how often it was marked so."""

    number: int
    title: str
    body: str
    head: str
    base: str
    draft: bool
    state: str = "open"
    merged: bool = False
    labels: list[str] = field(default_factory=list)
    reviewers: list[str] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)
    conflict: bool = False


class GitHubDouble(Double):
    """github.com with one private repository, acme/rules."""

    def __init__(self, repository: Repository, *, token: str = "", key: str = "", drafts: bool = True) -> None:
        super().__init__()
        self.repository = repository
        self.tokens = {token} if token else set()
        self.app_key = key  # public, of the app 77
        self.drafts = drafts
        self.pulls: list[PullRequest] = []
        self.protected = ""  # a pattern of branches that nobody may create or move
        self.archived = False
        self.collaborators = {"ada", "bob"}
        self.runs: dict[str, list[dict[str, Any]]] = {}
        self.statuses: dict[str, list[dict[str, Any]]] = {}
        self.rights = {"pull": True, "push": True, "admin": False}
        self.tokens_made = 0

    def limits(self) -> dict[str, str]:
        """See Double."""
        told = {
            "limit": "5000",
            "remaining": str(self.remaining),
            "reset": "1799999999",
            "used": "1",
            "resource": "core",
        }
        return {
            "X-GitHub-Request-Id": "C0DE:1",
            **{f"X-RateLimit-{name.capitalize()}": value for name, value in told.items()},
        }

    def undocumented(self, asked: Asked, said: Said) -> Iterator[str]:
        """See Double. GraphQL has a document of its own."""
        if asked.parts != ("graphql",):
            yield from faults("github_openapi.json", asked, said)

    def answer(self, asked: Asked) -> Said:  # noqa: C901, PLR0911 - one route after the other
        """See Double."""
        if not asked.headers.get("user-agent"):
            return self.refuse(
                403, "Request forbidden by administrative rules. Please make sure your request has a User-Agent header"
            )
        if (
            "application/vnd.github+json" not in asked.headers.get("accept", "")
            or asked.headers.get("x-github-api-version") != "2022-11-28"
        ):
            self.strange.append(f"{asked.words}: without the version")
        if self.app_key and asked.parts[:1] == ("app",):
            return self._tokens(asked)
        if self.app_key and asked.parts[3:] == ("installation",):
            return self._installation(asked)
        login = asked.headers.get("authorization", "")
        if not login:
            return self.missing()
        if login.removeprefix("Bearer ") not in self.tokens:
            return self.refuse(401, "Bad credentials")
        if asked.parts == ("graphql",):
            return self._graph(asked)
        if asked.parts[:3] != ("repos", "acme", "rules"):
            return self.missing()
        if self.archived and asked.method != "GET":
            return self.refuse(403, "Repository was archived so is read-only.")
        if not self.rights["push"] and asked.method != "GET":
            return self.refuse(403, "Resource not accessible by integration")
        if not self.repository.branches and asked.parts[3:4] == ("git",):
            return self.refuse(409, "Git Repository is empty.")
        try:
            return self._routed(asked)
        except Refused as refused:
            return self.refuse(422, str(refused))

    def _routed(self, asked: Asked) -> Said:  # noqa: C901, PLR0911, PLR0912 - one route after the other
        match asked.method, asked.parts[3:]:
            case "GET", ():
                body = {
                    "id": 9,
                    "full_name": "acme/rules",
                    "private": True,
                    "archived": self.archived,
                    "permissions": self.rights,
                }
                return Said(200, {**body, "default_branch": "main"})
            case "GET", ("git", "ref", "heads", *branch):
                return self._ref("/".join(branch))
            case "GET", ("git", "commits", sha):
                return self._commit(sha)
            case "POST", ("git", "blobs"):
                return self._blob(asked.body)
            case "POST", ("git", "trees"):
                return self._tree(asked.body)
            case "POST", ("git", "commits"):
                return self._committed(asked.body)
            case "POST", ("git", "refs"):
                return self._ref_made(asked.body)
            case "PATCH", ("git", "refs", "heads", *branch):
                return self._ref_moved("/".join(branch), asked.body)
            case "GET", ("pulls",):
                return self._pulls(asked)
            case "POST", ("pulls",):
                return self._pull_made(asked.body)
            case _, ("pulls", number, *rest) if number.isdecimal():
                return self._pull(asked, int(number), tuple(rest))
            case _, ("issues", number, rest) if number.isdecimal():
                return self._issue(asked, int(number), rest)
            case "GET", ("commits", sha, "check-runs"):
                runs = self.runs.get(sha, [])
                return Said(200, {"total_count": len(runs), "check_runs": runs})
            case "GET", ("commits", sha, "status"):
                states = self.statuses.get(sha, [])
                return Said(200, {"state": "pending", "total_count": len(states), "statuses": states})
            case _:
                return Said(501)

    # -- git --------------------------------------------------------------------------------------------------------

    def _ref(self, branch: str) -> Said:
        sha = self.repository.branches.get(branch)
        if sha is None:
            return self.missing()
        return Said(200, {"ref": f"refs/heads/{branch}", "node_id": "R", "object": {"type": "commit", "sha": sha}})

    def _commit(self, sha: str) -> Said:
        if not SHA.match(sha):
            return self.refuse(422, "The SHA parameter must be exactly 40 characters and contain only [0-9a-f].")
        one = self.repository.commits.get(sha)
        if one is None:
            return self.missing()
        parents = [{"sha": parent} for parent in one.parents]
        told = {"sha": sha, "tree": {"sha": one.tree}, "parents": parents, "message": one.message}
        return Said(200, {**told, "author": one.author, "committer": one.committer})

    def _blob(self, body: Mapping[str, Any]) -> Said:
        if body.get("encoding", "utf-8") not in ("utf-8", "base64") or not isinstance(body.get("content"), str):
            raise Refused("Invalid request.")
        try:
            data = (
                base64.b64decode(body["content"], validate=True)
                if body.get("encoding") == "base64"
                else body["content"].encode()
            )
        except binascii.Error:
            raise Refused("content is not valid Base64") from None
        return Said(201, {"sha": self.repository.blob(data)})

    def _tree(self, body: Mapping[str, Any]) -> Said:  # noqa: C901 - one route after the other
        under = body.get("base_tree")
        if under is not None and under not in self.repository.trees:
            raise Refused("base_tree is not a valid tree oid")
        if not isinstance(body.get("tree"), list) or not body["tree"]:
            raise Refused("Invalid tree info")
        files = dict(self.repository.trees[under]) if under else {}
        for entry in body["tree"]:
            path = entry.get("path", "")
            if not path or path.startswith("/") or any(part in ("", ".", "..", ".git") for part in path.split("/")):
                raise Refused("tree.path contains a malformed path component")
            if entry.get("mode") not in MODES or entry.get("type") not in ("blob", "tree", "commit"):
                raise Refused("tree.mode must be one of 040000, 100644, 100755, 120000 or 160000")
            if ("sha" in entry) == ("content" in entry):
                raise Refused("Must supply either tree.sha or tree.content, and not both")
            if "content" in entry:
                files[path] = self.repository.blob(entry["content"].encode("utf-8"))
            elif entry["sha"] is None:
                if files.pop(path, None) is None:
                    raise Refused("GitRPC::BadObjectState")
            elif entry["sha"] not in self.repository.blobs:
                raise Refused(f"tree.sha {entry['sha']} is not a valid blob")
            else:
                files[path] = entry["sha"]
        return Said(201, {"sha": self.repository.tree(files), "tree": [], "truncated": False})

    def _committed(self, body: Mapping[str, Any]) -> Said:
        if not body.get("message") or not SHA.match(str(body.get("tree"))):
            raise Refused('Invalid request.\n\n"message", "tree" weren\'t supplied.')
        now = {
            "name": "signalbox[bot]",
            "email": "bot@users.noreply.github.com",
            "date": f"2026-11-22T10:00:{len(self.repository.commits):02}Z",
        }
        author = body.get("author") or now
        if not re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\Z", author.get("date", "2026-01-01T00:00:00Z")):
            raise Refused("Invalid request. date is not a timestamp")
        sha = self.repository.commit(
            body["tree"], tuple(body.get("parents", ())), body["message"], author, body.get("committer") or author
        )
        return Said(201, {"sha": sha, "tree": {"sha": body["tree"]}})

    def _ref_made(self, body: Mapping[str, Any]) -> Said:
        ref, sha = str(body.get("ref")), str(body.get("sha"))
        if not ref.startswith("refs/") or ref.count("/") < 2:
            raise Refused(
                "Reference name must start with 'refs/' and contain at least three slash delimited components."
            )
        branch = ref.removeprefix("refs/heads/")
        self._refuse_protected(branch)
        if sha not in self.repository.commits:
            raise Refused("Object does not exist")
        if branch in self.repository.branches:
            raise Refused("Reference already exists")
        self.repository.branches[branch] = sha
        return Said(201, {"ref": ref, "object": {"sha": sha, "type": "commit"}})

    def _ref_moved(self, branch: str, body: Mapping[str, Any]) -> Said:
        tip, sha = self.repository.branches.get(branch), str(body.get("sha"))
        if tip is None:
            raise Refused("Reference does not exist")
        self._refuse_protected(branch)
        if sha not in self.repository.commits:
            raise Refused("Object does not exist")
        if not body.get("force", False) and tip not in self.repository.behind(sha):
            raise Refused("Update is not a fast forward")
        self.repository.branches[branch] = sha
        return Said(200, {"ref": f"refs/heads/{branch}", "object": {"sha": sha, "type": "commit"}})

    def _refuse_protected(self, branch: str) -> None:
        if self.protected and fnmatch(branch, self.protected):
            raise Refused("Repository rule violations found\n\nCannot create ref due to creations being restricted.")

    # -- pull requests ------------------------------------------------------------------------------------------------

    def as_json(self, pull: PullRequest) -> dict[str, Any]:
        """A pull request as JSON."""
        here = {"full_name": "acme/rules"}
        return {
            "number": pull.number,
            "node_id": f"PR_{pull.number}",
            "html_url": f"https://github.example/acme/rules/pull/{pull.number}",
            "title": pull.title,
            "body": pull.body,
            "state": pull.state,
            "draft": pull.draft,
            "merged_at": "2026-11-22T11:00:00Z" if pull.merged else None,
            "head": {"ref": pull.head, "sha": self.repository.branches.get(pull.head, "0" * 40), "repo": here},
            "base": {"ref": pull.base, "repo": here},
        }

    def _pulls(self, asked: Asked) -> Said:
        head, state = asked.query.get("head", ""), asked.query.get("state", "open")
        found = [
            self.as_json(pull)
            for pull in reversed(self.pulls)
            if state in ("all", pull.state) and (not head or head == f"acme:{pull.head}")
        ]
        return self.page(asked, found)

    def _pull_made(self, body: Mapping[str, Any]) -> Said:  # noqa: PLR0911 - one route after the other
        head, base = str(body.get("head")).removeprefix("acme:"), str(body.get("base"))
        wrong = [name for name, branch in (("head", head), ("base", base)) if branch not in self.repository.branches]
        if wrong:
            return self.invalid({"resource": "PullRequest", "field": wrong[0], "code": "invalid"})
        if any(item.state == "open" and (item.head, item.base) == (head, base) for item in self.pulls):
            return self.invalid(
                {
                    "resource": "PullRequest",
                    "code": "custom",
                    "message": f"A pull request already exists for acme:{head}.",
                }
            )
        if not self.repository.only(self.repository.branches[head], self.repository.branches[base]):
            return self.invalid(
                {"resource": "PullRequest", "code": "custom", "message": f"No commits between {base} and {head}"}
            )
        if len(str(body.get("body") or "")) > 65536:
            return self.invalid(
                {
                    "resource": "PullRequest",
                    "code": "custom",
                    "message": "body is too long (maximum is 65536 characters)",
                }
            )
        if not body.get("title") or len(body["title"]) > 256:
            return self.invalid({"resource": "PullRequest", "field": "title", "code": "missing_field"})
        if body.get("draft") and not self.drafts:
            return self.refuse(422, "Draft pull requests are not supported in this repository.")
        pull = PullRequest(
            len(self.pulls) + 1, body["title"], body.get("body") or "", head, base, bool(body.get("draft"))
        )
        self.pulls.append(pull)
        return Said(201, self.as_json(pull))

    def _pull(self, asked: Asked, number: int, rest: tuple[str, ...]) -> Said:
        if number > len(self.pulls):
            return self.missing()
        pull = self.pulls[number - 1]
        match asked.method, rest:
            case "GET", ():  # lists do not say it
                state = "dirty" if pull.conflict else "clean"
                return Said(200, {**self.as_json(pull), "mergeable_state": state})
            case "PATCH", ():
                if set(asked.body) - {"title", "body", "state", "base", "maintainer_can_modify"}:
                    self.strange.append(f"{asked.words}: {sorted(asked.body)}")
                pull.title, pull.body = asked.body.get("title", pull.title), asked.body.get("body", pull.body)
                return Said(200, self.as_json(pull))
            case "POST", ("requested_reviewers",):
                names = asked.body.get("reviewers", []) + asked.body.get("team_reviewers", [])
                if set(names) - self.collaborators:
                    return self.refuse(
                        422,
                        "Reviews may only be requested from collaborators. One or more of the users or teams you specified is not a collaborator of the acme/rules repository.",
                    )
                pull.reviewers += [name for name in names if name not in pull.reviewers]
                return Said(201, self.as_json(pull))
            case _:
                return Said(501)

    def _issue(self, asked: Asked, number: int, rest: str) -> Said:
        if number > len(self.pulls):
            return self.missing()
        pull = self.pulls[number - 1]
        match asked.method, rest:
            case "POST", "labels":
                pull.labels += [label for label in asked.body["labels"] if label not in pull.labels]
                return Said(200, [{"name": label} for label in pull.labels])
            case "GET", "comments":
                return self.page(asked, [{"id": at, "body": item} for at, item in enumerate(pull.comments)])
            case "POST", "comments":
                pull.comments.append(asked.body["body"])
                return Said(201, {"id": len(pull.comments)})
            case _:
                return Said(501)

    def _graph(self, asked: Asked) -> Said:
        if "markPullRequestReadyForReview" not in asked.body["query"]:
            return Said(501)
        number = asked.body["variables"]["id"].removeprefix("PR_")
        if not number.isdecimal() or int(number) > len(self.pulls):
            error = {
                "type": "NOT_FOUND",
                "path": ["x"],
                "message": f"Could not resolve to a node with the global id of '{number}'.",
            }
            return Said(200, {"data": None, "errors": [error]})
        if not self.rights["push"]:
            return Said(
                200,
                {"data": None, "errors": [{"type": "FORBIDDEN", "message": "Resource not accessible by integration"}]},
            )
        self.pulls[int(number) - 1].draft = False
        return Said(200, {"data": {"markPullRequestReadyForReview": {"pullRequest": {"isDraft": False}}}})

    # -- apps ---------------------------------------------------------------------------------------------------------

    def _app(self, asked: Asked) -> Said | None:
        import jwt

        try:
            claims = jwt.decode(
                asked.headers.get("authorization", "").removeprefix("Bearer "), self.app_key, algorithms=["RS256"]
            )
        except jwt.ExpiredSignatureError:
            return self.refuse(
                401,
                "'Expiration time' claim ('exp') must be a numeric value representing the future time at which the assertion expires",
            )
        except jwt.PyJWTError:
            return self.refuse(401, "A JSON web token could not be decoded")
        if claims["exp"] - claims["iat"] > 600:
            return self.refuse(401, "'Expiration time' claim ('exp') is too far in the future")
        return None if claims["iss"] == "77" else self.refuse(404, "Integration not found")

    def _installation(self, asked: Asked) -> Said:
        refused = self._app(asked)
        if refused is not None:
            return refused
        return Said(200, {"id": 4242, "app_id": 77}) if asked.parts[1:3] == ("acme", "rules") else self.missing()

    def _tokens(self, asked: Asked) -> Said:
        refused = self._app(asked)
        if refused is not None:
            return refused
        if asked.parts != ("app", "installations", "4242", "access_tokens"):
            return self.missing()
        if set(asked.body.get("repositories", ["rules"])) != {"rules"}:
            return self.refuse(
                422,
                "There is at least one repository that does not exist or is not accessible to the parent installation.",
            )
        self.tokens_made += 1
        token = f"ghs_{self.tokens_made}"
        self.tokens.add(token)
        ends = datetime.now(UTC) + timedelta(hours=1)
        return Said(
            201,
            {"token": token, "expires_at": ends.strftime("%Y-%m-%dT%H:%M:%SZ"), "permissions": {"contents": "write"}},
        )

    # -- refusals -----------------------------------------------------------------------------------------------------

    def refuse(self, status: int, message: str) -> Said:
        """A refusal as GitHub words it."""
        return Said(status, {"message": message, "documentation_url": DOCS, "status": str(status)})

    def missing(self) -> Said:
        """A resource that does not exist, or is not visible."""
        return self.refuse(404, "Not Found")

    def invalid(self, *errors: Mapping[str, str]) -> Said:
        """422 with the error's details."""
        return Said(
            422, {"message": "Validation Failed", "errors": list(errors), "documentation_url": DOCS, "status": "422"}
        )


def secondary(after: int | None) -> Said:
    """A secondary rate limit, in GitHub's words."""
    message = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
    headers = {} if after is None else {"Retry-After": str(after)}
    return Said(
        403,
        {
            "message": message,
            "documentation_url": f"{DOCS}/overview/rate-limits-for-the-rest-api#about-secondary-rate-limits",
        },
        headers,
    )


def primary(reset: float) -> Said:
    """The rate limit of the hour is used up."""
    body = {"message": "API rate limit exceeded for installation ID 4242.", "documentation_url": DOCS}
    return Said(403, body, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(reset))})
