"""The use cases of the chat, wired to one ledger and one configuration."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bot.config.settings import Config
from bot.incidents.ledger import Ledger
from bot.slack.presence import Presence
from bot.slack.use_cases.access import AccessControl, People
from bot.slack.use_cases.diagnoses import DiagnosisRequests
from bot.slack.use_cases.exclusions import Exclusions
from bot.slack.use_cases.form_context import FormContexts
from bot.slack.use_cases.incidents import IncidentActions
from bot.slack.use_cases.mutes import Mutes
from bot.slack.use_cases.replies import Replies
from bot.slack.use_cases.rules import RuleDrafts


@dataclass(frozen=True, slots=True)
class UseCases:
    """What listeners may call. Nothing here calls Slack."""

    ledger: Ledger
    access: AccessControl
    diagnoses: DiagnosisRequests
    forms: FormContexts
    incidents: IncidentActions
    rules: RuleDrafts
    mutes: Mutes
    exclusions: Exclusions
    replies: Replies


def use_cases(
    ledger: Ledger,
    config: Config,
    people: People,
    faults: Mapping[str, str],
    now: Callable[[], float] = time.time,
) -> UseCases:
    """Wire the use cases. `people`: what is known about people; `faults`: titles of fault classes by id."""
    access = AccessControl(ledger, config, people, Presence(ledger.database), now)
    return UseCases(
        ledger,
        access,
        DiagnosisRequests(ledger, access),
        FormContexts(ledger, access),
        IncidentActions(ledger, access, faults),
        RuleDrafts(ledger, access),
        Mutes(ledger, access),
        Exclusions(ledger, access),
        Replies(ledger, access),
    )
