"""The rank that a line names in a form that was learned from its stream (kb.templates.rank_prefixes)."""

from __future__ import annotations

import re

from kb.templates.structured_lines import message_of

LONGEST = 1024  # bytes of a line in which its rank is looked for
_FOLD = bytes.maketrans(b"0123456789", b"0" * 10)


def rank_by(form: re.Pattern[bytes], line: bytes) -> int | None:
    """Return the rank that a line names in a form, None if it does not."""
    keyed = "key" in form.groupindex
    text = line[:LONGEST] if keyed else message_of(line[:LONGEST])
    folded = text.translate(_FOLD)
    match = form.search(folded) if keyed else form.match(folded)
    return None if match is None else int(text[slice(*match.span("rank"))])
