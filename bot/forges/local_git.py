"""A branch in a local clone, for clusters without internet access.

It uses plumbing commands and touches no work tree.

There is no pull request: merging the branch into the base accepts the proposal, deleting it rejects it. Optionally,
each proposal is also written to a folder as a .patch file.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from bot.config.rules import PullRequests
from bot.forges.base import CommitChecks, Decoration, ForgeError, PullRequest, PullRequestPlan
from bot.render.text_format import shown
from bot.runtime.git import PATIENCE, run_git
from connectors.base.contract import CheckResult

NOBODY = "0" * 40
_MOVED = ("but expected", "cannot lock ref", "reference already exists", "unable to resolve reference")


class LocalGit:
    """A local repository, bare or not."""

    def __init__(self, settings: PullRequests) -> None:
        self._settings = settings
        self._home = Path(settings.repository)

    def tip(self, branch: str) -> str | None:
        """See Forge."""
        return self._commit(f"refs/heads/{branch}")

    def base(self, plan: PullRequestPlan) -> str:
        """See Forge."""
        return self._base(plan)

    def ours(self, commit: str, plan: PullRequestPlan) -> bool:
        """Never: commits are recorded before they are visible."""
        del commit, plan
        return False

    def commit(self, plan: PullRequestPlan, tip: str | None, noted: Callable[[str], None]) -> str:
        """See Forge. Written objects that no branch holds are harmless; git tidies them away."""
        self._refuse_checked_out(plan.branch)
        parent = tip or self._base(plan)
        with tempfile.TemporaryDirectory(prefix="signalbox-") as folder:
            index = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
            self.git("read-tree", f"{parent}^{{tree}}", env=index)
            entries = [f"0 {NOBODY}\t{path}" for path in plan.gone]
            for path, data in plan.files.items():
                blob = self.git("hash-object", "-w", "--stdin", given=data)
                entries.append(f"100644 {blob}\t{path}")
            self.git("update-index", "--add", "-z", "--index-info", given="\0".join([*entries, ""]).encode(), env=index)
            tree = self.git("write-tree", env=index)
        if tree == self.git("rev-parse", f"{parent}^{{tree}}"):
            if tip is None:
                raise ForgeError("nothing", f"the branch {self._base_name(plan)} already has this rule")
            return tip
        when = f"{int(plan.at.timestamp())} +0000"
        people = {
            f"GIT_{role}_{what}": value
            for role in ("AUTHOR", "COMMITTER")
            for what, value in (("NAME", self._settings.author), ("EMAIL", self._settings.email), ("DATE", when))
        }
        made = self.git("commit-tree", tree, "-p", parent, given=plan.message.encode(), env=people)
        noted(made)
        self.git("update-ref", "-m", "signalbox", f"refs/heads/{plan.branch}", made, tip or NOBODY)
        return made

    def find(self, plan: PullRequestPlan) -> PullRequest | None:
        """See Forge. The branch is the request; whether it is ours, and merged, is seen later."""
        tip = self.tip(plan.branch)
        return None if tip is None else PullRequest(None, None, "open", tip, False)

    def open(self, plan: PullRequestPlan) -> PullRequest:
        """Write the patch, where a folder is named; the branch is there already."""
        self._patch(plan)
        return PullRequest(None, None, "open", self.tip(plan.branch), False)

    def look(self, number: int | None, branch: str, head: str | None, etag: str | None) -> PullRequest | None:
        """How it stands: merged where the base holds its commit or its files, else closed where the branch is gone."""
        del number
        tip = self.tip(branch)
        base = self._named_base(self._settings.base)
        seen = f"{tip} {base}"
        if seen == etag:
            return None
        known = tip or (self._commit(head) if head else None)
        if base is not None and known is not None and self._holds(base, known):
            return PullRequest(None, None, "merged", known, False, etag=seen)
        conflict = tip is not None and base is not None and self._conflicts(base, tip)
        return PullRequest(None, None, "closed" if tip is None else "open", tip, False, etag=seen, conflict=conflict)

    def edit(self, pull: PullRequest, plan: PullRequestPlan) -> None:
        """See Forge."""
        del pull
        self._patch(plan)

    def dress(self, pull: PullRequest, plan: PullRequestPlan) -> Decoration:
        """A branch has no labels and no reviewers."""
        del pull, plan
        return Decoration()

    def checks(self, pull: PullRequest) -> CommitChecks:
        """There are none."""
        del pull
        return CommitChecks()

    def ready(self, pull: PullRequest, plan: PullRequestPlan) -> None:
        """A branch is no draft."""

    def comment(self, pull: PullRequest, mark: str, text: str) -> None:
        """There is nowhere to say it; the proposal keeps it."""

    def check(self) -> CheckResult:
        """See Forge."""
        sent = f"git -C {self._home} rev-parse"
        try:
            self.git("rev-parse", "--git-dir")
            base = self._named_base(self._settings.base)
        except ForgeError as failed:
            return CheckResult(False, str(failed), sent)
        if base is None:
            wanted = self._settings.base or "main, master"
            return CheckResult(False, f"there is no branch {wanted}", sent, "name one: rules.pull_requests.base")
        if not os.access(self.git("rev-parse", "--absolute-git-dir"), os.W_OK):
            return CheckResult(False, f"{self._home} is not writable", sent, "let the service's user write there")
        return CheckResult(True, f"branches are made in {self._home} from {base[:12]}", sent)

    # -- how -------------------------------------------------------------------------------------------------------

    def git(self, *words: str, given: bytes = b"", env: Mapping[str, str] | None = None) -> str:
        """What git says, as a text without white space around it; see `raw`."""
        return self.raw(*words, given=given, env=env).decode("utf-8", errors="replace").strip()

    def raw(self, *words: str, given: bytes = b"", env: Mapping[str, str] | None = None) -> bytes:
        """What git says, in this repository whatever the environment names.

        Raises:
            ForgeError: it does not do it.
        """
        try:
            ran = run_git([*words], self._home, given=given, env=env)
        except subprocess.TimeoutExpired:
            raise ForgeError("unreachable", f"git {words[0]} in {self._home} took more than {PATIENCE:g} s") from None
        except OSError as error:
            why = "git is not installed on this machine" if error.filename == "git" else f"{error.strerror or error}"
            raise ForgeError("not_configured", f"{self._home}: {why}") from None
        if ran.returncode != 0:
            raise self._refusal(words[0], ran.stderr)
        return ran.stdout

    def _refusal(self, verb: str, said: bytes) -> ForgeError:
        words = " ".join(shown(said[-2000:].decode("utf-8", errors="replace")).split())
        message = f"git {verb} in {self._home}: {words[:300]}"
        if verb == "update-ref" and any(text in words for text in _MOVED):
            return ForgeError("moved", message, "the branch moved; it is checked again")
        if "dubious ownership" in words:
            return ForgeError(
                "not_configured", message, f"own it, or allow it: git config --global --add safe.directory {self._home}"
            )
        if "not a git repository" in words or "cannot change to" in words:
            return ForgeError(
                "missing", f"{self._home} is not a git repository", "name a clone under rules.pull_requests.repository"
            )
        if any(text in words for text in ("Permission denied", "insufficient permission", "Read-only file system")):
            return ForgeError("forbidden", message, "let the service's user write there")
        if "No space left" in words:
            return ForgeError("busy", message)
        return ForgeError("refused", message)

    def _commit(self, name: str) -> str | None:
        try:
            return self.git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        except ForgeError as failed:
            if failed.kind == "refused":  # it says nothing where there is none
                return None
            raise

    def _base_name(self, plan: PullRequestPlan) -> str:
        return plan.base or self._settings.base or "of the base"

    def _base(self, plan: PullRequestPlan) -> str:
        found = self._named_base(plan.base)
        if found is None:
            raise ForgeError(
                "missing", f"{self._home} has no branch {plan.base or 'main'}", "name one: rules.pull_requests.base"
            )
        return found

    def _named_base(self, base: str | None) -> str | None:
        """The newest commit of the base: of the branch here, else as it was last fetched."""
        names = (base,) if base is not None else ("main", "master")
        if base is None and (pointed := self._commit("refs/remotes/origin/HEAD")) is not None:
            return pointed
        places = ("refs/heads", "refs/remotes/origin")
        return next((found for name in names for place in places if (found := self._commit(f"{place}/{name}"))), None)

    def _refuse_checked_out(self, branch: str) -> None:
        """Somebody who has the branch in a work tree would find it changed under their feet."""
        trees = self.git("worktree", "list", "--porcelain").splitlines()
        if f"branch refs/heads/{branch}" in trees:
            raise ForgeError(
                "foreign", f"somebody has {branch} checked out in {self._home}", "it waits until they left it"
            )

    def _holds(self, base: str, tip: str) -> bool:
        """Whether the base holds a commit, or all that it changed: a squash makes another commit of it."""
        ran = run_git(["merge-base", "--is-ancestor", tip, base], self._home)
        if ran.returncode == 0:
            return True
        fork = self.git("merge-base", base, tip)
        changed = self.git("diff-tree", "-r", "-z", "--name-only", "--no-renames", fork, tip).split("\0")
        return all(
            self.git("ls-tree", base, "--", text) == self.git("ls-tree", tip, "--", text) for text in changed if text
        )

    def _conflicts(self, base: str, tip: str) -> bool:
        """Whether the base and a branch changed the same file in different ways, so that a person must merge them."""
        fork = self.git("merge-base", base, tip)
        changed = (
            set(self.git("diff-tree", "-r", "-z", "--name-only", "--no-renames", fork, commit).split("\0"))
            for commit in (base, tip)
        )
        both = set.intersection(*changed) - {""}
        return any(self.git("ls-tree", base, "--", text) != self.git("ls-tree", tip, "--", text) for text in both)

    def _patch(self, plan: PullRequestPlan) -> None:
        if self._settings.patches is None:
            return
        folder, name = Path(self._settings.patches), plan.branch.rpartition("/")[2]
        base = self.git("merge-base", self._base(plan), f"refs/heads/{plan.branch}")
        text = self.raw("format-patch", "--binary", "--stdout", f"{base}..refs/heads/{plan.branch}")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=folder, prefix=".new-", delete=False) as handle:
                new = Path(handle.name)
            try:
                new.write_bytes(text)
                new.chmod(0o644)
                new.replace(folder / f"{name}.patch")
            finally:
                with contextlib.suppress(FileNotFoundError):
                    new.unlink()
        except OSError as error:
            raise ForgeError(
                "forbidden", f"{folder}: {error.strerror or error}", "see rules.pull_requests.patches"
            ) from None
