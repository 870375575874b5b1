"""Which forge a configuration names. Each is imported where it is chosen."""

from __future__ import annotations

from bot.config.rules import PullRequests
from bot.forges.base import Forge


def forge_of(settings: PullRequests) -> Forge:
    """The back end."""
    if settings.backend == "local":
        from bot.forges.local_git import LocalGit  # noqa: PLC0415 - one of three

        return LocalGit(settings)
    if settings.backend == "github":
        from bot.forges.github import GitHub  # noqa: PLC0415 - one of three

        return GitHub(settings)
    from bot.forges.gitlab import GitLab  # noqa: PLC0415 - one of three

    return GitLab(settings)
