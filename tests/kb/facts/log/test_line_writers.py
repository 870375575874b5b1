"""Who wrote a line, in a known form or in the one that its log was seen to use (kb.facts.log.line_writers)."""

import re
from dataclasses import replace

from kb.facts.log.line_writers import writer_of
from kb.model import StreamRef
from kb.scanning.summary import StreamSummary

LEARNED = re.compile(rb"oar-(?P<rank>0{1,5})\|[ \t]")  # folded: digits are zeros


def test_a_form_that_was_learned_names_the_rank_where_no_known_one_does() -> None:
    """A known form goes first, and a line without either has no rank."""
    plain = StreamSummary(StreamRef("all.log"))
    learned = replace(plain, speaker=LEARNED)
    assert writer_of(learned, "oar-12| stroke 7").rank == 12
    assert writer_of(plain, "oar-12| stroke 7").rank is None
    assert writer_of(learned, "[rank3]: stroke 7").rank == 3
    assert writer_of(learned, "the boat is launched").rank is None
