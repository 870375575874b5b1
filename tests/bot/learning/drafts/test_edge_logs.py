"""A drafted rule at the edge of its event: what passes becomes its logs, what fails a question."""

from __future__ import annotations

from bot.learning.drafts.anonymise import Anonymiser
from bot.learning.drafts.edge_logs import MOST_WRITTEN, EdgeLogs, edge_logs_of
from kb.learning.rewordings import EventWords
from kb.regex.pattern import compiled
from kb.rulebase import levels

EVENTS = {at: EventWords(f"lease of part {at} was refused by the depot") for at in (3, 5)}
SAFE = Anonymiser(frozenset(["lease", "of", "part", "was", "refused", "by", "the", "depot"]))


def drawn(speaks, events=EVENTS):
    """The edge with a rule that fires where `speaks` says so of the text."""

    def fires(streams):
        return any(speaks(data.decode()) for data in streams.values())

    return edge_logs_of(events, SAFE, frozenset(), fires, numbers=False, frame="main")


def harmless(text):
    """Whether a line is below error level, or tells what the program did about it."""
    return any(compiled(regex).find(text) for regex in (levels.LOWER, levels.RECOVERED))


def test_a_rule_that_passes_gets_its_logs_and_no_question():
    """Logs of the forms that differ most, and one for each thing in which near misses differ. The interval is that of two incidents, not of their texts."""
    edge = drawn(lambda text: any("was refused" in line and not harmless(line) for line in text.split("\n")))
    assert edge.questions == ()
    assert len(edge.match) == MOST_WRITTEN
    assert list(edge.silent) == ["silent/healthy.log", "silent/below-error.log", "silent/overcome.log"]
    assert edge.against == ()
    assert edge.match["match/reworded-prefix-of-torchrun.log"] == b"[rank7]: lease of part 8 was refused by the depot\n"
    assert edge.figures == (
        ("Variations of the event that it matches", "52 of 52; 2 of 2 incidents without exception (95 %: 34% to 100%)"),
        (
            "Lines that differ from the event in one thing only, on which it is silent",
            (
                "20 of 20; 2 of 2 incidents without exception (95 %: 34% to 100%): "
                "4 the opposite of the event, 8 said below error level, 8 overcome by the program"
            ),
        ),
    )


def test_what_fails_is_asked_and_is_no_log():
    """Each kind once, whatever the number of incidents."""
    edge = drawn(lambda text: "was refused" in text and "{" not in text)
    missed, alarm = edge.questions
    forms = "JSON, JSON, message first, Docker's JSON, journal's JSON, JSON, as the error of a record"
    assert missed == f"It does not match the event in these forms: {forms}. Do they occur here?"
    assert all(
        kind in alarm for kind in ("(a retry with the same words", "a level in brackets", "a recovery at error level")
    )
    assert [name for name in edge.match if "json" in name] == []
    assert not any(b"retrying (attempt" in data for data in edge.silent.values())
    assert "lines that are no failure" in edge.against[0]
    assert edge.near.incidents.hits == 0


def test_what_must_not_leave_is_in_no_log():
    """Neither a name in the message nor the class of an exception with one."""
    events = {1: EventWords("lease of part 3 was refused by the zephyrion depot", "qwzrtpl.errors.QwzrtplError")}
    edge = drawn(lambda text: "refused" in text, events)
    told = b"".join([*edge.match.values(), *edge.silent.values()]).lower()
    assert [name for name in (b"zephyrion", b"qwzrtpl") if name in told] == []
    assert b"error: lease of part" in told


def test_no_event_no_figures():
    """As for a rule on stacks."""
    assert (drawn(lambda _: True, {}).figures, EdgeLogs().questions) == ((), ())
