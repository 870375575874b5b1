"""What goes first where an answer is too long for the screen, and how long lines and telling words are cut."""

from __future__ import annotations

from bot.render.excerpt import _ALIKE, code_in, condensed, excerpt
from bot.render.text_fit import fitted
from bot.render.text_page import OutputLine, Reading, TextPage, Weight
from kb.regex.hazards import exponential_parts


def test_the_beginning_of_the_evidence_stays_where_not_all_of_it_fits():
    """Its place and its first rows; nothing of it where only its place would fit."""
    lead = [OutputLine(f"lead {n}") for n in range(5)]
    evidence = [OutputLine(f"evidence {n}", weight=Weight.EVIDENCE) for n in range(6)]

    def shown(rows: int) -> list[str]:
        return [line.text for line in fitted([*lead, *evidence], rows, 80)[0]]

    assert shown(9) == [*(f"lead {n}" for n in range(5)), "evidence 0", "evidence 1", "evidence 2"]
    assert shown(7) == [f"lead {n}" for n in range(5)]
    assert len(shown(11)) == 11


def test_evidence_is_shortened_before_the_cause_and_the_culprit_go() -> None:
    """The reason of the decision goes first, and the place of the evidence with its first row stays."""
    lines = [
        OutputLine("lead"),
        OutputLine("what happened", weight=Weight.FINDING),
        OutputLine("reason", weight=Weight.REASON),
        OutputLine("who", weight=Weight.SUSPECTS),
        *(OutputLine(f"evidence {n}", weight=Weight.EVIDENCE) for n in range(4)),
    ]

    def shown(rows: int) -> list[str]:
        return [line.text for line in fitted(lines, rows, 80)[0]]

    assert "reason" not in shown(7)
    assert shown(6) == ["lead", "what happened", "who", "evidence 0", "evidence 1"]
    assert shown(5) == ["lead", "what happened", "evidence 0", "evidence 1"]
    assert fitted(lines, 6, 80)[1] == [Weight.EVIDENCE, Weight.REASON]


def test_of_long_telling_words_both_ends_are_kept():
    """Messages name what failed at their beginning and why at their end."""
    line = f"warning: {'beginning ' * 20}{'middle ' * 40}{'end ' * 40}tail"
    cut, span = excerpt(line, (9, len(line) - 5), 120)

    assert cut.startswith("warning: beginning")
    assert cut.endswith("end end ...")
    assert "middle" not in cut
    assert len(cut) < 140
    assert span is None


def test_words_longer_than_a_row_are_not_underlined():
    """Carets below every row would say nothing and double the height."""
    short, long = TextPage(80, Reading()), TextPage(80, Reading())
    short.underlined("a telling word", 2, (2, 9))
    long.underlined("telling " * 20, 2, (0, 160))

    assert [line.text for line in short.lines] == ["  a telling word", "    ^^^^^^^"]
    assert not any("^" in line.text for line in long.lines)


def test_the_collectives_of_both_ranks_stay_together():
    """What PyTorch prints of every tensor stands between them, and says nothing."""
    device = (
        "TensorOptions(dtype=float (default), device=cuda, layout=Strided (default), requires_grad=false (default))"
    )
    line = (
        f"Rank 1 is running collective: Print(SequenceNumber=7, OpType=GATHER, TensorShape=[1], TensorDtypes=Long, TensorDeviceTypes={device}), "
        "but Rank 0 is running collective: Print(SequenceNumber=3OpType=REDUCE)."
    )

    assert condensed(line) == (
        "Rank 1 is running collective: Print(SequenceNumber=7, OpType=GATHER, TensorShape=[1], ...), "
        "but Rank 0 is running collective: Print(SequenceNumber=3OpType=REDUCE)."
    )


def test_a_line_that_is_cut_within_its_tensors_is_read_in_few_steps():
    """Nothing closes the parentheses: it stays as it is, at once."""
    line = (
        "TensorShape=[1], TensorDtypes=Long, TensorDeviceTypes=TensorOptions(dtype=float (default"
        + ", device=cuda" * 30
    )

    assert condensed(line) == line
    assert exponential_parts(_ALIKE.pattern) == ()


def test_a_code_at_the_end_of_a_long_line_is_found():
    """It names the error; one that the beginning has already needs no search."""
    line = f"worker 0 caught {'internal ' * 30}exception, code: ZE_RESULT_ERROR_UNKNOWN"

    assert line[slice(*(code_in(line, 100) or (0, 0)))] == "ZE_RESULT_ERROR_UNKNOWN"
    assert code_in("worker 0 caught ZE_RESULT_ERROR_UNKNOWN", 100) is None
    assert code_in(f"{line}. {'See the manual. ' * 30}", 100) is None


def test_a_bar_before_a_message_is_cut():
    """It takes the room of the message; a bar alone stays."""
    bar = " 41%|####5     | 366/903 [5:15:39<6:53:09, 46.16s/it]"

    assert condensed(f"{bar}HW Exception by GPU node-9") == "... HW Exception by GPU node-9"
    assert condensed(bar) == bar
    assert condensed(f"{bar}, loss=0.3") == f"{bar}, loss=0.3"
