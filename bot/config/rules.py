"""Settings of the rules: where a running service gets them, and where proposed ones go."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from connectors.base.contract import Seconds
from connectors.base.http import Endpoint, Login
from connectors.base.secret import Secret

_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}\Z")  # of a path in a repository: never hidden, never ".."
_REF = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/+-]{0,199}\Z")
_SSH = re.compile(
    r"(?:ssh://)?[A-Za-z0-9_][A-Za-z0-9_.-]*@[A-Za-z0-9][A-Za-z0-9.-]*(?::[0-9]+)?[:/][A-Za-z0-9_~./-]+\Z"
)
_ADDRESS = {"github": "https://api.github.com", "gitlab": "https://gitlab.com/api/v4"}
ROOT = "."
Backend = Literal["local", "github", "gitlab"]


@dataclass(frozen=True, slots=True)
class App:
    """A GitHub App. Prefer it to a person's token: it belongs to no person and has only two permissions, in one repository."""

    id: str
    """The client id or app id."""
    key: Secret
    """The private key (PEM)."""
    installation: int | None = None
    """The number of its installation; by default the one of the repository."""

    def __post_init__(self) -> None:
        if not _PART.match(self.id):
            raise ValueError(f"app.id: {self.id[:40]!r} is not a client id or app id")


@dataclass(frozen=True, slots=True)
class PullRequests:
    """Where proposed rules go; docs/rule-pull-requests.md."""

    backend: Backend
    """local, a branch in a clone on this machine, without any forge; github; gitlab."""
    repository: str
    """owner/name, group/project, or the path of the clone (bare or not; its work tree is not touched)."""
    base: str | None = None
    """The branch that rules are merged into; by default the repository's own."""
    folder: str = "rules"
    """The folder of the rules in the repository; nothing is ever written elsewhere."""
    url: str | None = None
    """The address of the API, for GitHub Enterprise (https://host/api/v3) or your own GitLab
    (https://host/api/v4)."""
    token: Secret | None = None
    """The token of a project or person; for GitHub, `app` is better."""
    app: App | None = None
    """A GitHub App, instead of a token."""
    ca_file: str | None = None
    """Certificates to trust instead of the system's."""
    labels: tuple[str, ...] = ("signalbox", "rule")
    """Labels that each pull request gets."""
    reviewers: tuple[str, ...] = ()
    """Reviewers that each pull request gets, by their names on the forge."""
    hourly: int = 2
    """The most pull requests opened in an hour."""
    at_once: int = 5
    """The most pull requests open at a time."""
    checks: bool = True
    """The forge's own checks must pass before a pull request is marked ready; if none is reported within `settle`,
    the replay alone decides."""
    settle: Seconds = 600.0
    """How long to wait for the forge to report its first check."""
    every: Seconds = 300.0
    """How often the state of open pull requests is read."""
    author: str = "Signalbox"
    """The author of commits, where the forge sets none."""
    email: str = "signalbox@localhost"
    """The e-mail address of that author."""
    patches: str | None = None
    """For local: a folder that gets each proposal as .patch."""

    def __post_init__(self) -> None:
        refuse_folder(self.folder)
        if self.base is not None:
            refuse_ref("base", self.base)
        if self.hourly < 1 or self.at_once < 1:
            raise ValueError("hourly and at_once are at least 1; without the section nothing is proposed")
        if not self.every >= 60.0:
            raise ValueError("every: at least a minute, to limit the load on the forge")
        for word in (self.author, self.email):
            if not word.strip() or any(char in word for char in "<>\n\0"):
                raise ValueError(f"author, email: {word[:40]!r} cannot be used in a commit")
        if self.backend == "local":
            self._refuse_local()
        else:
            self._refuse_remote()

    def _refuse_local(self) -> None:
        if not self.repository.startswith("/"):
            raise ValueError(f"repository: {self.repository[:200]!r} is not an absolute path: start with /")
        if self.patches is not None and not self.patches.startswith("/"):
            raise ValueError(f"patches: {self.patches[:200]!r} is not an absolute path: start with /")
        if self.token or self.app or self.url:
            raise ValueError("local needs no url, token or app")

    def _refuse_remote(self) -> None:
        parts = self.repository.split("/")
        if len(parts) < 2 or not all(map(_PART.match, parts)) or (self.backend == "github" and len(parts) > 2):
            raise ValueError(f"repository: {self.repository[:200]!r} is not owner/name")
        if self.backend == "gitlab" and self.app is not None:
            raise ValueError("app is for GitHub; for GitLab, give a project access token as token:")
        if (self.token is None) == (self.app is None):
            raise ValueError("give a token or, for GitHub, an app")
        if self.patches is not None:
            raise ValueError("patches is for the backend local")
        self.endpoint()

    def endpoint(self) -> Endpoint:
        """Return the API server. The login of an app is renewed every hour, elsewhere."""
        token = Login(token=self.token) if self.backend == "github" else Login(secret_headers=self._private())
        return Endpoint(self.url or _ADDRESS[self.backend], token, self.ca_file)

    def _private(self) -> dict[str, Secret]:
        return {} if self.token is None else {"private-token": self.token}

    @property
    def forge(self) -> str:
        """Return the location that proposals record: they stay there when the configuration changes."""
        where = "" if self.backend == "local" else (self.url or _ADDRESS[self.backend]).rstrip("/")
        return f"{self.backend}:{where}/{self.repository.lstrip('/')}"


@dataclass(frozen=True, slots=True)
class Source:
    """Where a running service gets its rules: `git` or `path`; docs/rule-pull-requests.md."""

    git: str | None = None
    """The address of a repository (https, ssh, or a path on this machine)."""
    ref: str = "main"
    """The branch or tag to use."""
    folder: str = "rules"
    """The folder of the rules in it."""
    path: str | None = None
    """A folder to watch, instead of a repository."""
    overlay: bool = False
    """Lay these rules over those of this installation, as a site's overlay (docs/site-overlay.md), instead of
    replacing them."""
    every: Seconds = 300.0
    """How often it is checked for changes."""
    token: Secret | None = None
    """The token for https."""
    user: str = "x-access-token"
    """The user name for the token."""
    ca_file: str | None = None
    """Certificates to trust instead of the system's."""

    def __post_init__(self) -> None:
        if (self.git is None) == (self.path is None):
            raise ValueError("give exactly one of git: and path:")
        if self.path is not None and not self.path.startswith("/"):
            raise ValueError(f"path: {self.path[:200]!r} is not an absolute path: start with /")
        if self.every < 1:
            raise ValueError("every: at least a second")
        if self.git is None:
            return
        refuse_folder(self.folder)
        refuse_ref("ref", self.ref)
        parts = urlsplit(self.git)
        if parts.password or (parts.username and parts.scheme in ("http", "https")):
            raise ValueError("git: the address contains a user or password: give token: by reference")
        web = parts.scheme in ("http", "https") and bool(parts.hostname)
        if not (web or self.git.startswith(("/", "file:///")) or _SSH.match(self.git)):
            raise ValueError(f"git: {self.git[:200]!r} is not an address: write https://…, user@host:path, or a path")
        if self.token is not None and not web:
            raise ValueError("token is for https; with ssh, the user's own keys are used")


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a running service."""

    source: Source | None = None
    """Where rules come from."""
    pull_requests: PullRequests | None = None
    """Where proposed rules go."""


def refuse_folder(folder: str) -> None:
    """Accept a folder inside a repository, "." for its root: never hidden (.git, .github), never outside.

    Raises:
        ValueError: it is not one.
    """
    if folder != ROOT and not all(map(_PART.match, folder.split("/"))):
        raise ValueError(
            f"folder: {folder[:80]!r} is not a folder of a repository: use letters, digits, . _ - and no hidden folder"
        )


def refuse_ref(what: str, ref: str) -> None:
    """Accept a branch or tag name that is valid in git.

    Raises:
        ValueError: it is not one.
    """
    if not _REF.match(ref) or ".." in ref or "//" in ref or ref.endswith(("/", ".", ".lock")) or "/." in ref:
        raise ValueError(f"{what}: {ref[:80]!r} is not a branch or tag")
