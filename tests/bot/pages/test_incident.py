"""The incident page as text: its content, and that no text of a report becomes markup."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from random import Random

import pytest
from markupsafe import escape

from bot.incidents.resolution import Annotation, Closing
from bot.pages import templates
from bot.pages.incident import IncidentStatus, incident_page, words_of
from bot.pages.templates import lines, policy, style, web
from bot.render.report_json import dumps, from_json
from kb.report import Diagnosis, Hang, StackBranch, Suspect
from tests.support import hostile_reports
from tests.support.bot_samples import FALLEN_GPU, HEALTHY, UNKNOWN
from tests.support.common.hostile_page import hostile_report
from tests.support.made_pages import ATTACKS, EVERYTHING, Read, folded, kept

WHEN = datetime(2026, 3, 1, 14, 30, tzinfo=UTC)


def test_the_culprit_and_the_cause_come_first_then_all_that_supports_them(known):
    """Culprit, cause, decision, summary, first step, timeline, diagnosis with evidence and remedy, rule texts, curves, gaps: in this order."""
    place = ("logs/dmesg-gpu-017.log", 90_112)
    page = Read(incident_page(FALLEN_GPU, kept(place=place), IncidentStatus(12, WHEN), words_of(known)))
    assert page.faults == []
    wanted = (
        "Incident 12", "GPU 3 on gpu-017: a GPU fell off the bus", "Requeue without gpu-017", "fell off the bus at iteration 1198",
        "Exclude gpu-017", "Do first", "Drain gpu-017 and reboot it.", "llm-70b", "1,198 of 5,000", "9.6", "Who wrote when",
        "end of the job 12:03:59", "GPU fell off the bus", "Suspects",
        "GPU 3 (0000:5d:00, GPU-1f0e) on gpu-017", "logs/dmesg-gpu-017.log:812", "before", "Xid (PCI:0000:5d:00): 79", "after",
        "Drain gpu-017 and reboot it.", "disruptive", "scontrol update", "Check: `nvidia-smi -L`", "Also explains",
        "A power, link or board fault.", "dies, and all who wait", "xid-catalogue", "A collective timed out", "Hang: none detected",
        "Curves", "step 390", "leaves the others", "No confirmed cause yet", "rulebook 2026.3",
    )  # fmt: skip
    assert page.missing(*wanted) == []


@pytest.mark.parametrize("report", [FALLEN_GPU, HEALTHY, UNKNOWN], ids=lambda item: item.verdict)
def test_a_report_alone_is_a_page_too(report):
    """Without anything kept, without a number, and after a way through the store."""
    page = incident_page(from_json(dumps(report)))
    assert Read(page).faults == []
    assert "Who wrote when" not in page


def test_what_people_reported_is_shown_the_last_word_first(known):
    """All annotations, with their authors."""
    first = Closing("ana", "slack", "right", "shown", "gpu_fell_off_bus", "xid-catalogue", nodes=("gpu-017",))
    last = Closing("bo", "cli", "wrong", "no_rule", action="swapped the riser", lost_hours=1.5, note="twice this week")
    said = (Annotation(12, 1, WHEN, first), Annotation(12, 2, WHEN, last))
    page = Read(incident_page(FALLEN_GPU, about=IncidentStatus(12, WHEN, said), words=words_of(known)))
    wanted = (
        "no rule fits",
        "bo, 2026-03-01 14:30Z",
        "the answer was wrong",
        "swapped the riser",
        "1.5 hours",
        "twice this week",
        "ana",
        "Nodes: gpu-017",
    )
    assert page.missing(*wanted) == []


def test_times_of_logs_without_a_zone_are_not_called_utc():
    """The footer says what is known about the zone."""
    assert "Times are UTC." in Read(incident_page(FALLEN_GPU)).text
    text = Read(incident_page(replace(FALLEN_GPU, time_zone="unknown"))).text
    assert "Times with Z are UTC. The logs state no time zone." in text
    assert "12:00:13" in text
    assert "12:00:13Z" not in text


def test_stacks_show_who_is_inside_and_outside():
    """Each branch with its frames, its ranks and the others."""
    stacks = (
        StackBranch(0, ("<module> (train.py:240)",), 1024, "0-1023"),
        StackBranch(1, ("all_reduce (distributed_c10d.py:2806)",), 1023, "0-516,518-1023", "517", folded=2),
    )
    text = Read(incident_page(replace(HEALTHY, hang=Hang(called=True, stacks=stacks)))).text
    assert "Where 1024 ranks are" in text
    assert "1023 ranks 0-516,518-1023, not 517" in text.replace("\n", " ")
    assert "2 branches deeper" in text


def test_no_attack_becomes_markup(known):
    """All of them in each text that comes from outside: as many elements as without, of the known kinds, and no link is added."""
    broken = hostile_report(EVERYTHING)
    said = (
        Annotation(
            12, 1, WHEN, Closing(EVERYTHING, "slack", "wrong", "fault", EVERYTHING, note=EVERYTHING, nodes=ATTACKS)
        ),
    )
    around = kept(EVERYTHING, ("logs/dmesg-gpu-017.log", 90_112))
    page = incident_page(broken, around, IncidentStatus(12, WHEN, said, EVERYTHING), words_of(known))
    seen = Read(page)
    assert seen.faults == []
    assert [link for link in seen.links if not link.startswith("https://")] == []
    assert page.encode()
    assert "{{ 7 * 7 }}" in seen.text
    assert "\\u202egnp.exe" in seen.text
    assert seen.styles == [style()]


def test_no_report_at_all_breaks_the_page():
    """Reports with every field at random, hostile ones among them: always a page, and of known elements only."""
    chance = Random(20261122)
    for _ in range(40):
        page = incident_page(hostile_reports.report(chance), about=IncidentStatus(1, WHEN))
        assert Read(page).faults == []
        assert page.encode()


def test_only_addresses_of_the_web_are_links():
    """Others are not shown as links, however they begin."""
    assert web("https://logs.example/x?y=1#z") == "https://logs.example/x?y=1#z"
    for text in (
        "javascript:alert(1)", " https://x", "data:text/html,x", "//x", "https:x", "http://", 'https://x/"onclick=', "https://[",
        "https://x/\u202e", "JaVaScRiPt:alert(1)", "", None,
    ):  # fmt: skip
        assert web(text) is None


def test_endless_evidence_is_cut_and_says_so():
    """Long lines and many of them."""
    assert [len(line) for line in lines("x" * 5_000)] == [len("x" * 600 + " ... (4400 more characters)")]
    assert lines("a\n\n" * 100)[-1] == "... 60 more lines"


def test_the_policy_allows_the_page_its_style_and_script_and_nothing_else():
    """No address, and no script but the one that copies commands; both by their digests."""
    assert policy().startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy()
    assert policy().count("script-src") == policy().count("script") == 1
    assert "script-src 'sha256-" in policy()


def test_no_mask_changes_the_policy(monkeypatch):
    """The digest of the style is random letters, as tokens are. Masked, it would leave the pages without style."""
    monkeypatch.setattr(templates, "redact_once", lambda value: "*" * len(value))
    templates._environment.cache_clear()
    try:
        page = templates.render("refused.html", heading="This link has expired", why="it is old")
    finally:
        templates._environment.cache_clear()
    assert escape(templates.policy(framed=True)) in page


def test_the_collectives_of_a_group_are_drawn_with_who_is_where():
    """A row for ranks in the same place; what a rank queued instead stands in its cell."""
    page = incident_page(HEALTHY, folded())
    table = page[
        page.index('<table class="sequence">') : page.index("</table>", page.index('<table class="sequence">'))
    ]

    assert "Who is in which collective" in page
    assert '<th scope="row" class="suspect">5</th>' in table
    assert table.count('class="call absent"') == 3
    assert '<td class="call queued other">all_gather</td>' in table
    assert '0-4 <span class="faint">(5)</span>' in table
    assert '7 <span class="faint">no dump</span>' in table
    assert 'class="at">109' in table


def test_the_branch_of_the_suspects_is_marked_in_the_stacks():
    """Only a branch that all of its ranks are suspected in is tinted."""
    first = replace(FALLEN_GPU.diagnoses[0], suspects=(Suspect("rank", rank=7),))
    branches = (StackBranch(0, ("main (train.py:1)",), 8, "0-7"), StackBranch(1, ("get (queue.py:1)",), 1, "7", "0-6"),
                StackBranch(1, ("all_reduce (c10d.py:1)",), 7, "0-6", "7"))  # fmt: skip
    page = incident_page(replace(FALLEN_GPU, diagnoses=(first,), hang=Hang(called=True, stacks=branches)))

    assert page.count('<li class="d1 suspect">') == 1
    assert "<strong>Rank 7</strong>" in page
    assert '<li class="d1">' in page


def test_the_line_that_shows_the_cause_stands_in_the_head():
    """With where it is; of a report without a cause, none does."""
    head = incident_page(FALLEN_GPU).partition('<dl class="facts">')[0]

    assert (
        'NVRM: Xid (PCI:0000:5d:00): 79, pid=88412, GPU has fallen off the bus.</code> <span class="faint">logs/dmesg-gpu-017.log:812 (gpu-017)'
        in head
    )
    assert '<p class="key">' not in incident_page(UNKNOWN)


@pytest.mark.parametrize("verdict", ["wrong", "right_not_first"])
def test_the_confirmed_cause_is_the_headline(verdict):
    """The first answer is folded below it, with its decision, which is past; an open incident shows the answer."""
    at = datetime(2026, 3, 2, 8, 30, tzinfo=UTC)
    said = (Annotation(3, 1, at, Closing("ana", "cli", verdict, "fault", "storage_io", action="moved the job")),)
    page = incident_page(FALLEN_GPU, about=IncidentStatus(3, at, said, state="closed"))
    lead, _, fold = page.partition('<details class="first-said">')

    assert "<h1>Confirmed: storage io, by ana</h1>" in lead
    assert "<strong>Done:</strong> moved the job" in lead
    for text in ('class="decision', "Requeue without gpu-017", "Drain gpu-017", "a GPU fell off the bus"):
        assert text not in lead[lead.index("<h1>") :]
    assert f"Signalbox said first{' (wrong)' if verdict == 'wrong' else ''}: GPU 3 on gpu-017" in fold
    assert "Requeue without gpu-017" in fold.partition("</details>")[0]
    assert page.count("<details") == page.count("</details>")
    assert "Confirmed" not in incident_page(FALLEN_GPU, about=IncidentStatus(3, at, said, state="open"))


def test_the_steps_are_those_of_the_confirmed_cause():
    """If the answer has it, although not first: with its lines, and its section is the open one."""
    at = datetime(2026, 3, 2, 8, 30, tzinfo=UTC)
    first = FALLEN_GPU.diagnoses[0]
    step = replace(first.remediation[0], text="Ask the storage team.", command=None)
    second = replace(first, rank=2, fault="storage_io", title="A write failed", remediation=(step,), evidence=())
    said = (Annotation(3, 1, at, Closing("ana", "cli", "right_not_first", "shown", "storage_io")),)
    report = replace(FALLEN_GPU, diagnoses=(first, second))
    page = incident_page(report, about=IncidentStatus(3, at, said, state="closed"))
    lead = page.partition('<details class="first-said">')[0]

    assert "Steps for this cause" in lead
    assert "Ask the storage team." in lead
    assert "Drain gpu-017" not in lead
    assert page.count('<details class="diagnosis" open>') == 1
    assert page.index('<details class="diagnosis" open>') > page.index('<details class="diagnosis">')


def test_a_run_that_did_not_fail_needs_no_confirmation():
    """Only a failure lacks a confirmed cause."""
    about = IncidentStatus(3, datetime(2026, 3, 2, 8, 30, tzinfo=UTC))
    assert "No confirmed cause yet" in incident_page(FALLEN_GPU, about=about)
    assert "No confirmed cause yet" not in incident_page(HEALTHY, about=about)


def test_a_confirmed_cause_is_not_written_twice():
    """The headline says it; that people confirmed it stands above."""
    at = datetime(2026, 3, 2, 8, 30, tzinfo=UTC)
    said = (Annotation(3, 1, at, Closing("ana", "cli", "right", "shown", FALLEN_GPU.diagnoses[0].fault)),)
    above = incident_page(FALLEN_GPU, about=IncidentStatus(3, at, said, state="closed")).partition("<h1>")[0]

    assert "Confirmed by ana" in above
    assert "Closed as" not in above


def test_commands_stand_one_below_the_other_with_the_host_that_they_are_for():
    """As in the terminal, whose prompt names the host; a command that reads files of anywhere names none."""
    first = FALLEN_GPU.diagnoses[0]
    local, anywhere = "dmesg -T | tail; nvidia-smi -q", "grep -n Xid logs/a.log"
    steps = tuple(replace(first.remediation[0], command=command) for command in (local, anywhere))
    page = incident_page(replace(FALLEN_GPU, diagnoses=(replace(first, remediation=steps),)))

    assert (
        page.count("<code>dmesg -T | tail</code>\n<code>nvidia-smi -q</code>") == 2
    )  # in the head, and among the steps
    assert page.count("On gpu-017:") == 2
    assert page.count("Copy the commands") == 2


def test_a_line_that_is_quoted_as_evidence_is_not_quoted_again_as_what_stands_out():
    """Its place is enough: the same lines twice hide what else there is to read."""
    event = UNKNOWN.indicators.events[0]
    assert event.evidence is not None
    line = replace(event.evidence, offset=17, text="the shelf is unwell")
    found = Diagnosis(1, "unknown", "", 0, "t", "s", 0.5, "possible", "root_cause", evidence=(line,))
    again = replace(UNKNOWN.indicators, events=(replace(event, evidence=line),))

    once = incident_page(replace(UNKNOWN, diagnoses=(found,), indicators=again))
    assert once.count("<mark>the shelf is unwell</mark>") == 1
    assert "quoted above" in once
    alone = incident_page(replace(UNKNOWN, diagnoses=(), indicators=again))
    assert "<mark>the shelf is unwell</mark>" in alone
    assert "quoted above" not in alone
