"""All database tables. Importing any of them loads all, since they refer to each other by name.

A change here needs a migration in `bot/store/migrations/versions`; a test compares the result of the migrations with these
definitions.
"""

from bot.store.tables.columns import MaskedText, UtcDateTime
from bot.store.tables.incidents import (
    OPEN,
    AnnotationRow,
    BaselineRow,
    GoodEndRow,
    IncidentRow,
    KeptRow,
    ReplayRow,
    ReportRow,
    StepRow,
)
from bot.store.tables.learning import DraftRow, LookedRow, PatternRow, ProposalRow, ShadowHitRow
from bot.store.tables.messages import (
    DUE,
    WAITING,
    ChoiceRow,
    FlapRow,
    MembersRow,
    MuteRow,
    OutboxRow,
    PostingRow,
    PresenceRow,
    RequestRow,
)
from bot.store.tables.nodes import BAR_OPEN, BarRow
from bot.store.tables.service import AuditRow, ClaimRow, DigestDayRow, DigestRow, SchemaVersion, SeenRow, WorkRow

__all__ = [
    "BAR_OPEN",
    "DUE",
    "OPEN",
    "WAITING",
    "AnnotationRow",
    "AuditRow",
    "BarRow",
    "BaselineRow",
    "ChoiceRow",
    "ClaimRow",
    "DigestDayRow",
    "DigestRow",
    "DraftRow",
    "FlapRow",
    "GoodEndRow",
    "IncidentRow",
    "KeptRow",
    "LookedRow",
    "MaskedText",
    "MembersRow",
    "MuteRow",
    "OutboxRow",
    "PatternRow",
    "PostingRow",
    "PresenceRow",
    "ProposalRow",
    "ReplayRow",
    "ReportRow",
    "RequestRow",
    "SchemaVersion",
    "SeenRow",
    "ShadowHitRow",
    "StepRow",
    "UtcDateTime",
    "WorkRow",
]
