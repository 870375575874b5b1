"""The rank of a line in the form that its log was seen to use; what reads it is loaded only where a log has such a form."""

from __future__ import annotations

import re


def rank_by(form: re.Pattern[bytes], line: bytes) -> int | None:
    """Return the rank that a line names in a form (kb.templates.named_ranks), or None if it does not."""
    from kb.templates.named_ranks import rank_by as read  # noqa: PLC0415 - a start must not wait for it

    return read(form, line)
