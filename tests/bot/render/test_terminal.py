"""The report on a terminal: the advice first, wrapped, and safe for any log content."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from bot.render.headline import headline
from bot.render.hyperlinks import shows_links
from bot.render.terminal import lines, plain, render, show
from bot.render.text_format import shown
from bot.render.text_page import Reading
from kb.model import Gap
from kb.report import Decision, EvidenceItem, Exclusion, GpuRef, Hang, RemedyStep, StackBranch, Suspect, ranges
from tests.support.bot_samples import EVERY, FALLEN_GPU, HEALTHY, KERNEL_LINE, TOO_LITTLE, UNKNOWN

ALL = Reading(verbose=True)

FALLEN_GPU_TEXT = """\
GPU 3 on gpu-017: a GPU fell off the bus [gpu_fell_off_bus]
GPU 3 of gpu-017 fell off the bus at iteration 1198; the other 63 ranks waited
for rank 7 until they failed.
Requeue without gpu-017, from checkpoint 1150. Lost: 48 steps (9.6 GPU-hours).
Who acts: hardware team.
The fault stays with the node.
   Exclude gpu-017 from all jobs: its GPU 3 left the bus twice within an hour

   Do first   Drain gpu-017 and reboot it. (disruptive: affects other jobs)
              $ scontrol update NodeName=gpu-017 State=DRAIN \\
                  Reason="Xid 79 on GPU 0000:5d:00, job 47110"
              Check: `nvidia-smi -L` lists 8 GPUs
   Suspects   GPU 3 (0000:5d:00, GPU-1f0e) on gpu-017; rank 7 (local rank 3) on
              gpu-017 (its process drove that GPU)
   Confidence likely
              The kernel names the GPU; it comes 31 s before any other failure;
              rule right in 41 of 44
   Where      stage iterating, last logged iteration 1198, first seen 2026-03-01
              12:00:13Z
   Evidence   logs/dmesg-gpu-017.log:812 (gpu-017)
                NVRM: Xid (PCI:0000:5d:00): 79, pid=88412, GPU has fallen off
                  the bus.
              logs/rank-7.log:40213 (rank 7)
                RuntimeError: CUDA error: unspecified launch failure
                    Compile with `TORCH_USE_CUDA_DSA` to see more.
   Explains   Collective timed out in the watchdog (ranks 0-6, 8-63); NCCL
              socket closed by a peer (ranks 0, 8, 16, 24, 32, 40, 48, 56)
   Job        llm-70b, job 47110, attempt 2, 8 nodes, 64 GPUs, owner ana, state
              FAILED
   Phase      failed, stage iterating, last iteration 1198 of 5000 at 2026-03-01
              12:00:00Z, last checkpoint 1150

2. A collective timed out (collective_timeout, symptom)
   Suspects   ranks 0-6, 8-63
   Confidence weak

Missing evidence: dmesg; 2 rules skipped (-v says what it would show)
Report b7f3a91c02d8, rulebook 2026.3, 72 sources, 1.8 GB read
"""

UNKNOWN_TEXT = """\
The run stopped making steps after iteration 310 and no rule says why.
Find the cause before you restart: no rule explains this failure.

   Do first   Read logs/rank-12.log:5120 (rank 12), the line that stands out
              most, and the lines around it.
   Job        vision-pretrain
   Phase      hung, last iteration 310
   Hang       confirmed (seen in logs; no data on stacks)

No rule explains this failure. What stands out:
   Lines      logs/rank-12.log:5120 (rank 12): on rank 12 alone, in no earlier
              run
                shard reader: lease 8841 revoked
   Nodes      node-b: last to write, 41 s after the rest
   Steps      iteration 310: nothing after it

Missing evidence: stacks; 1 rule skipped (-v says what it would show)
Report 0d55e2, rulebook 2026.3
"""


def columns(text: str) -> int:
    """How many columns a line takes on a terminal."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def quoting(text: str, verbose: bool = False, width: int = 80) -> str:
    """A report whose evidence, title, nodes and reasons are all this text."""
    first = replace(
        FALLEN_GPU.diagnoses[0],
        title=text,
        reasons=(text,),
        suspects=(Suspect("rank", text, rank=1, pod=text, why=text), Suspect("gpu", text, gpu=GpuRef(pci=text))),
        evidence=(replace(KERNEL_LINE, text=text, source=text),),
    )
    decision = Decision("requeue_without", (Exclusion(text, "job", text),), owner=text)
    return plain(replace(FALLEN_GPU, summary=text, diagnoses=(first,), decision=decision), width, Reading(verbose))


def test_a_fault_is_reported_from_the_decision_to_what_was_not_seen():
    """The whole text of a report with a fault."""
    assert plain(FALLEN_GPU) == FALLEN_GPU_TEXT


def test_times_of_logs_without_a_zone_have_no_z():
    """The zone is not known; where other logs state theirs, the last line says so once."""
    unknown = plain(replace(FALLEN_GPU, time_zone="unknown"))
    assert "first seen 2026-03-01\n              12:00:13\n" in unknown
    assert "12:00:00Z" not in unknown
    mixed = plain(replace(FALLEN_GPU, time_zone="mixed"))
    assert mixed.replace("\n", " ").count("some logs state no time zone") == 1
    assert "12:00:13Z" not in mixed


def test_an_unknown_failure_shows_what_stands_out():
    """The whole text of a report that no rule explains."""
    assert plain(UNKNOWN) == UNKNOWN_TEXT


STACKS = (
    StackBranch(0, ("<module> (fit.py:90)", "wrap.<locals>.wrapper (errors.py:367)", "main (fit.py:80)"), 64, "0-63"),
    StackBranch(
        1,
        ("train (fit.py:40)", "f (a.py:1)", "g (a.py:2)", "h (a.py:3)", "i (a.py:4)", "all_reduce (c10d.py:3)"),
        63,
        "0-16,18-63",
        "17",
    ),
    StackBranch(1, ("train (fit.py:38)", "take (cache.py:44)"), 1, "17", "0-16,18-63", folded=2),
)


def test_merged_stacks_say_who_is_where():
    """A line a branch: who is in it at the left, where it begins and ends, its frames without the wrappers."""
    text = plain(replace(UNKNOWN, hang=Hang(called=True, stacks=STACKS)))
    start = text.index("Where the 64 ranks are")
    assert (
        text[start:].split("\n\n")[0]
        == """\
Where the 64 ranks are (merged stacks, outermost frame first):
   all 64     <module> (fit.py:90) > main (fit.py:80)
   not 17       train (fit.py:40) > ... > g > h > i > all_reduce (c10d.py:3)
   rank 17      train (fit.py:38) > take (cache.py:44) ... and 2 nested branches"""
    )


def test_many_branches_are_cut():
    """Eight branches are shown, all of them where more is asked for; many ranks are counted and named behind."""
    ways = tuple(StackBranch(0, (f"way{at} (fit.py:{at})",), 2, f"{at},{at + 100}", "0") for at in range(1, 12))
    report = replace(UNKNOWN, hang=Hang(called=True, stacks=ways))
    assert "   not 0      way8 (fit.py:8)\n              ... and 3 more branches\n" in plain(report)
    assert "way11 (fit.py:11)" in plain(report, reading=ALL)
    wide = (StackBranch(0, ("a (fit.py:1)",), 4, "1,3,5,700", "0,2,4,800"),)
    assert "   4 ranks    1,3,5,700: a (fit.py:1)\n" in plain(replace(report, hang=Hang(called=True, stacks=wide)))


@pytest.mark.parametrize(
    ("decision", "first"),
    [
        (Decision("requeue"), "Requeue unchanged."),
        (Decision("requeue", from_checkpoint=0, steps_lost=1), "Requeue unchanged, from checkpoint 0. Lost: 1 step."),
        (Decision("restart_in_place", owner="user"), "Restart in place, on the same nodes. Who acts: the job's user."),
        (Decision("resubmit", owner="user"), "Resubmit with a change. Who acts: the job's user."),
        (
            Decision("requeue", steps_lost=0, steps_lost_at_most=9),
            "Requeue unchanged. Lost: up to 9 steps.",
        ),
        (
            Decision("requeue", steps_lost=40, steps_lost_at_most=49),
            "Requeue unchanged. Lost: 40 to 49 steps.",
        ),
        (Decision("fix_first", gpu_hours_lost=2.0), "Don't requeue yet. Fix the cause first. Lost: 2.0 GPU-hours."),
        (
            Decision("wait", owner="storage"),
            "Don't requeue yet. Wait for the external problem to clear. Who acts: storage team.",
        ),
        (Decision("none"), "No restart needed."),
        (Decision("none", from_checkpoint=50), "No restart needed; to go on, resume from checkpoint 50."),
        (Decision("none", steps_lost=6, gpu_hours_lost=0.01), "No restart needed. Lost: 6 steps (a few GPU-minutes)."),
        (Decision("requeue_without", (Exclusion("a", "job", ""), Exclusion("b", "job", ""))), "Requeue without a, b."),
        (Decision("requeue_without"), "Find the faulty node, then requeue without it."),
        (Decision("fix_first", find_cause=True), "Find the cause before you restart."),
        (
            Decision("fix_first", from_checkpoint=400, find_cause=True),
            "Find the cause before you restart from checkpoint 400.",
        ),
        (
            Decision("requeue_without", tuple(Exclusion(f"n{number}", "job", "") for number in range(6))),
            "Requeue without n0, n1, n2, n3 and 2 more.",
        ),
        (
            Decision("fix_first", (Exclusion("n1", "cluster", "bad"),)),
            "Don't requeue yet. Fix the cause, then requeue without n1.",
        ),
        (
            Decision("fix_first", from_checkpoint=30),
            "Don't requeue yet. Fix the cause, then resume from checkpoint 30.",
        ),
    ],
)
def test_the_decision_follows_the_cause(decision, first):
    """Requeue or not, without whom, from where, at what price, and whose it is: in plain words, under what happened."""
    text = plain(replace(FALLEN_GPU, decision=decision))

    assert " ".join(text.splitlines()[3:5]).startswith(first)


@pytest.mark.parametrize(
    ("report", "first"),
    [
        (HEALTHY, "Nothing to do."),
        (UNKNOWN, "Find the cause before you restart: no rule explains this failure."),
        (TOO_LITTLE, "Add what is listed under missing evidence, then diagnose again."),
    ],
)
def test_the_second_line_says_why_there_is_no_advice(report, first):
    """The summary and the line under it distinguish the three verdicts without a fault."""
    assert plain(report).splitlines()[:2] == [report.summary, first]


@pytest.mark.parametrize(
    ("suspects", "title", "line"),
    [
        ((Suspect("rank", "node-b", rank=5),), "Data file damaged", "Rank 5 on node-b: Data file damaged"),
        ((Suspect("rank", "node-b", rank=5),), "Rank computes longer", "Rank 5 on node-b computes longer"),
        ((Suspect("rank"),), "Native crash", "Native crash"),
        ((Suspect("job"),), "Native crash", "Native crash"),
        ((), "Native crash", "Native crash"),
        ((Suspect("node", "a"), Suspect("node", "b")), "The kernel panicked", "a, b: the kernel panicked"),
        ((Suspect("rank", rank=1), Suspect("rank", rank=2)), "Native crash", "Ranks 1-2: Native crash"),
        ((Suspect("gpu", "a", gpu=GpuRef(uuid="GPU-1")),), "Native crash", "GPU GPU-1 on a: Native crash"),
        ((Suspect("gpu"),), "Native crash", "Native crash"),
    ],
)
def test_the_headline_has_the_culprit_and_the_cause(suspects, title, line):
    """A rank, node or GPU is named where the report has it, and nothing is named where it has not."""
    first = replace(FALLEN_GPU.diagnoses[0], suspects=suspects, title=title, evidence=())

    assert headline(replace(FALLEN_GPU, diagnoses=(first,))) == line


def test_a_rank_that_only_others_name_is_called_a_suspect():
    """If all quoted lines are those of other ranks, the headline does not sound sure."""
    first = replace(
        FALLEN_GPU.diagnoses[1], suspects=(Suspect("rank", rank=3),), evidence=FALLEN_GPU.diagnoses[0].evidence
    )

    assert headline(replace(FALLEN_GPU, diagnoses=(first,))) == "A collective timed out (suspect rank 3)"


def test_the_telling_words_are_underlined():
    """Carets stand under the words that the rule matched, also where the line is wrapped."""
    text = plain(
        FALLEN_GPU, reading=Reading(telling=lambda _, line: (line.index("GPU"), len(line)) if "Xid" in line else None)
    )

    assert (
        "                NVRM: Xid (PCI:0000:5d:00): 79, pid=88412, GPU has fallen off\n"
        "                                                           ^^^^^^^^^^^^^^^^^^\n"
        "                  the bus.\n"
        "                  ^^^^^^^^\n"
    ) in text


def test_a_line_that_a_launcher_repeats_is_quoted_once():
    """Of two lines, one of which is part of the other, the longer one is quoted, and the other one counted."""
    twice = (KERNEL_LINE, replace(KERNEL_LINE, source="launcher.log", text=f"0: {KERNEL_LINE.text}"))
    report = replace(FALLEN_GPU, diagnoses=(replace(FALLEN_GPU.diagnoses[0], evidence=twice),))

    assert plain(report).count("NVRM") == 1
    assert "... and 1 more" in plain(report)
    assert plain(report, reading=ALL).count("NVRM") == 2


def test_missing_evidence_is_one_line_of_a_fault():
    """Sources of one kind are counted, and all is listed if asked for."""
    gaps = tuple(replace(FALLEN_GPU.gaps[0], source=f"stacks/{rank}") for rank in range(3))
    report = replace(FALLEN_GPU, gaps=gaps, not_evaluated=())

    assert "Missing evidence: stacks (3) (-v says what it would show)\n" in plain(report)
    assert "stacks/2" in plain(report, reading=ALL)


def test_files_are_links_where_the_terminal_shows_them(monkeypatch, tmp_path):
    """A quoted source that is a file leads to it, with its name escaped; other terminals get the bare name."""
    (tmp_path / "a b.log").write_text("x")
    item = replace(KERNEL_LINE, source="a b.log")
    report = replace(FALLEN_GPU, diagnoses=(replace(FALLEN_GPU.diagnoses[0], evidence=(item,)),))

    def printed(forced):
        monkeypatch.setenv("FORCE_HYPERLINK", forced)
        stream = io.StringIO()
        render(report, Console(file=stream, width=80, force_terminal=True), Reading(root=tmp_path))
        return stream.getvalue()

    assert f"{tmp_path.as_uri()}/a%20b.log" in printed("1")
    assert "file://" not in printed("0")


@pytest.mark.parametrize(
    ("environment", "shown_there"),
    [
        ({}, False),
        ({"TERM": "xterm-256color"}, False),
        ({"TERM": "xterm-256color", "VTE_VERSION": "7200"}, True),
        ({"TERM": "xterm-256color", "VTE_VERSION": "4600"}, False),
        ({"TERM": "xterm-kitty"}, True),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "vscode"}, True),
        ({"TERM": "tmux-256color", "TERM_PROGRAM": "tmux", "VTE_VERSION": "7200"}, False),
        ({"TERM": "dumb", "FORCE_HYPERLINK": "1"}, True),
    ],
)
def test_terminals_that_show_links_are_known(environment, shown_there):
    """Others could print the address as text."""
    assert shows_links(environment) is shown_there


def test_missing_evidence_is_reported_with_what_it_hides():
    """A report on too little evidence lists what was missing, what cannot be told without it, and what the rules needed."""
    text = plain(TOO_LITTLE)

    assert "   - rank logs (ranks 0-31): none found; cannot tell: which rank failed\n" in text
    assert "   - 1 rule skipped; missing: kernel log (1)\n" in text


def test_an_unknown_end_says_how_to_settle_it():
    """The command for the job's number in Slurm, or the ways of other schedulers; that gap is not listed again."""
    gap = Gap(
        "state_unknown", "scheduler", "the job's state is unknown", asked="4711", rules_out="whether it completed"
    )
    known = plain(replace(TOO_LITTLE, gaps=(gap,), not_evaluated=()))
    other = plain(replace(TOO_LITTLE, gaps=(replace(gap, asked=""),), not_evaluated=()))

    assert "\nCheck how the job ended.\n" in known
    assert "   Do first   Ask Slurm: " in known
    assert "              $ sacct -j 4711 --format=JobID,State,ExitCode,End\n" in known
    assert "Missing evidence" not in known
    assert "$ sacct" not in other
    assert "kubectl get job" in other


def test_verbose_adds_the_rest():
    """Cause, impact, every step, the rule and the figure of the confidence are shown when all is asked for."""
    text = plain(FALLEN_GPU, reading=ALL)

    for part in ("A power, link or board fault.", "Hand it to hardware support", "xid-catalogue, version 3", "0.93"):
        assert part in text
        assert part not in plain(FALLEN_GPU)


def test_more_than_three_diagnoses_are_named_only():
    """The fourth and later diagnoses are one line, unless all is asked for."""
    weak = FALLEN_GPU.diagnoses[1]
    many = replace(FALLEN_GPU, diagnoses=tuple(replace(weak, rank=rank, fault=f"fault_{rank}") for rank in range(1, 6)))

    assert "Also found: fault_4 (weak), fault_5 (weak)\n" in plain(many)
    assert "5. A collective timed out (fault_5, symptom)\n" in plain(many, reading=ALL)


def test_ranks_are_ranges():
    """Ten thousand suspects are a few characters."""
    suspects = tuple(Suspect("rank", rank=rank) for rank in range(10_000) if rank != 7)
    first = replace(FALLEN_GPU.diagnoses[0], suspects=suspects)

    assert "   Suspects   ranks 0-6, 8-9999\n" in plain(replace(FALLEN_GPU, diagnoses=(first,)))


def test_a_reason_is_only_that_of_its_suspects():
    """Ranks that are suspects for another reason are listed apart."""
    suspects = (
        Suspect("rank", rank=4, why="first to report it"),
        *(Suspect("rank", rank=rank, why="reported it later") for rank in (0, 1, 2)),
    )
    first = replace(FALLEN_GPU.diagnoses[0], suspects=suspects)

    page = plain(replace(FALLEN_GPU, diagnoses=(first,)))

    assert "   Suspects   rank 4 (first to report it); ranks 0-2 (reported it later)\n" in page


@pytest.mark.parametrize(
    ("numbers", "text"), [([], ""), ([3], "3"), ([2, 1, 0, 5], "0-2,5"), ([4, 4, 6], "4,6"), (range(8, 64), "8-63")]
)
def test_numbers_become_ranges(numbers, text):
    """Adjacent numbers are joined, for any order and count."""
    assert ranges(numbers) == text


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[4A\x1b[Kred", "red"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x1b[2J\x1b[1;1H", "\\x1b[2J\\x1b[1;1H"),
        ("100%\rdone\r\n", "100%\\x0ddone"),
        ("a\u202egpj.exe", "a\\u202egpj.exe"),
        ("a\u2066b\u200bc\ufeff", "a\\u2066b\\u200bc\\ufeff"),
        ("tab\there\u00a0too", "tab here too"),
        ("nul\x00 c1\x9b31m", "nul\\x00 c1\\x9b31m"),
        ("bad\udcff tag\U000e0041", "bad\\udcff tag\\U000e0041"),
        ("naïve 日本 ✓", "naïve 日本 ✓"),
    ],
)
def test_what_is_not_seen_as_it_is_is_escaped(line, seen):
    """Controls, bidi marks and zero-width characters are spelled out; colours go; the rest stays."""
    assert shown(line) == seen


@pytest.mark.parametrize("verbose", [False, True])
@given(text=st.text(min_size=1, max_size=200))
def test_no_text_moves_the_cursor_or_breaks_the_width(text, verbose):
    """For any text in a report, the output consists of printable lines of at most 80 columns, except for commands."""
    for line in quoting(text, verbose).split("\n"):
        assert line == "" or line.isprintable()
        assert columns(line) <= 80 or line.lstrip().startswith("$ ")


@pytest.mark.parametrize("width", [1, 40, 57, 80, 100, 400])
@pytest.mark.parametrize("report", EVERY, ids=lambda report: report.verdict)
def test_lines_fit_the_width(report, width):
    """Lines are as wide as the terminal, within 40 and 100 columns, and none ends in a space."""
    room = min(max(width, 40), 100)

    above = ""
    for line in map(str, lines(report, width, reading=ALL)):
        quoted = above.endswith("\\") and '"' in line  # a command is not broken within quotes
        assert columns(line) <= room or "$ " in line or quoted
        assert line == line.rstrip()
        above = line


def test_a_word_too_long_is_broken_by_columns():
    """A path without spaces is broken at the width, and wide characters count twice."""
    text = quoting("界" * 120)

    assert all(columns(line) <= 80 for line in text.splitlines() if "$ " not in line)
    assert "界" * 33 + "\n" in text


def test_a_long_line_is_cut_and_says_so():
    """Of a line of 64 kB the head is shown and how much is left out; all of it when all is asked for."""
    line = "x" * 65_536

    assert re.search(r"\.\.\.\s+\(65,\d{3}\s+more\s+characters\)", quoting(line))
    assert len(re.findall("x", quoting(line, verbose=True))) > len(line)


def test_telling_words_far_into_a_line_are_shown():
    """Of a long line the part around the telling words is quoted, underlined, with a mark where it was cut."""
    line = "iteration 7 | " + "speed: 1.0 | " * 60 + "lm loss: 9.1E+00 | " + "speed: 1.0 | " * 60
    item = replace(KERNEL_LINE, text=line)
    report = replace(FALLEN_GPU, diagnoses=(replace(FALLEN_GPU.diagnoses[0], evidence=(item,)),))
    told = plain(report, reading=Reading(telling=lambda _, text: (text.index("lm"), text.index("lm") + 16)))
    rows = told[told.index("Evidence") : told.index("Explains")].splitlines()

    assert rows[1].strip().startswith("... ")
    place = rows[1].index("lm loss: 9.1E+00")
    assert rows[2] == " " * place + "^" * 16
    assert len(rows) <= 7


@pytest.mark.parametrize("rows", [9, 12, 16, 20])
def test_an_answer_fits_the_screen(rows):
    """What is needed least is left out, never cause, decision, first step or confidence; the last row names what is."""
    report = replace(FALLEN_GPU, decision=replace(FALLEN_GPU.decision, exclude=()))
    whole, told = lines(report), lines(report, reading=Reading(rows=rows))
    texts = [str(line) for line in told]

    assert len(told) <= rows
    assert texts[0] == str(whole[0])
    assert any("Do first" in text for text in texts)
    assert "   Confidence likely" in texts
    assert texts[-1].startswith("-v also shows: ")
    assert ("what happened" in texts[-1]) == (str(whole[1]) not in texts)
    assert lines(report, reading=Reading(rows=len(whole) + 1)) == whole  # the command takes two rows


def test_a_block_of_many_lines_is_cut_and_says_so():
    """Of a long stack the first lines are shown, with their indentation."""
    text = plain(
        replace(
            FALLEN_GPU,
            diagnoses=(
                replace(
                    FALLEN_GPU.diagnoses[0],
                    evidence=(
                        EvidenceItem(
                            "e1", "stack", "stacks/1/rank-0.txt", "\n".join(f"  frame {n}" for n in range(40))
                        ),
                    ),
                ),
            ),
        )
    )

    assert " " * 18 + "frame 5\n" + " " * 16 + "... 34 more lines\n" in text


def test_commands_are_never_broken():
    """A shell reads a long command as one: it goes on after a backslash, and never within quotes."""
    command = FALLEN_GPU.diagnoses[0].remediation[0].command
    text = plain(FALLEN_GPU, width=40)

    assert f"$ {command}\n" in re.sub(r" \\\n +", " ", text)


def test_markup_of_the_terminal_library_is_plain_text():
    """Square brackets and emoji codes of a log line come out unchanged."""
    stream = io.StringIO()
    line = "[red]x[/red] [link=http://evil]y :warning: [/]"
    report = replace(FALLEN_GPU, summary=line)

    render(report, Console(file=stream, width=80, force_terminal=True, color_system="truecolor"))

    assert line in stream.getvalue()


@pytest.mark.parametrize("report", EVERY, ids=lambda report: report.verdict)
def test_styles_change_no_character(report):
    """With its styles taken away the output for a terminal is the plain text."""
    stream = io.StringIO()

    render(report, Console(file=stream, width=80, force_terminal=True, color_system="truecolor", no_color=False))

    assert "\x1b[" in stream.getvalue()
    assert re.sub("\x1b\\[[0-9;]*m", "", stream.getvalue()) == plain(report)


def test_without_a_terminal_there_are_no_styles(monkeypatch, capsys):
    """In a pipe the plain text comes out, and with NO_COLOR no colour."""
    show(FALLEN_GPU)
    stream = io.StringIO()
    monkeypatch.setenv("NO_COLOR", "1")
    render(FALLEN_GPU, Console(file=stream, width=80, force_terminal=True))

    assert capsys.readouterr().out == plain(FALLEN_GPU)
    assert not re.search("\x1b\\[[0-9;]*3[0-9]", stream.getvalue())


def test_a_poor_encoding_is_no_obstacle():
    """Where the reader takes ASCII only, other characters are spelled out."""
    text = plain(replace(HEALTHY, summary="größer ✓"), encoding="ascii")

    assert "gr\\xf6\\xdfer \\u2713" in text
    assert text.isascii()
    assert plain(replace(HEALTHY, summary="größer"), encoding="no-such-encoding").isascii()


def test_the_plain_text_needs_no_terminal_library():
    """The module starts without rich, which is slow to import."""
    code = "import sys, bot.render.terminal; sys.exit('rich' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("grade", "command", "told"),
    [
        ("safe", None, "Lower the batch size."),
        ("safe", "pip check", "Lower the batch size. (affects only this job)"),
        ("look", None, "Lower the batch size."),
        ("look", "pip check", "Lower the batch size. (read-only)"),
        ("disruptive", None, "Lower the batch size. (disruptive: affects other jobs)"),
    ],
)
def test_a_change_of_the_job_itself_has_no_warning(grade, command, told):
    """What a step affects matters where a person runs a command or disturbs others."""
    step = RemedyStep("change_config", grade, "Lower the batch size.", "job", command)
    page = plain(replace(FALLEN_GPU, diagnoses=(replace(FALLEN_GPU.diagnoses[0], remediation=(step,)),)))

    assert f"   Do first   {told}\n" in page


def test_what_was_read_and_what_the_site_excepts_is_not_called_missing():
    """A dump that was read with less in it is there; a rule that the site excepts cannot be added."""
    gaps = (
        Gap("no_kernel_log", "kernel", "no kernel log was collected"),
        Gap("groups_inferred", "flight_recorder", "the members were inferred", scope="job"),
        Gap("rule_excepted", "nvidia-xid", "2 of 3 signals excepted by the site until 2026-12-05: soak test"),
    )
    told = {count: plain(replace(FALLEN_GPU, gaps=gaps[count:], not_evaluated=())) for count in (0, 1)}

    assert (
        "Read with limits: flight_recorder (-v says which). Excepted by your site: nvidia-xid (2 of 3 signals until"
        in told[1].replace("\n  ", " ").replace("Flight Recorder", "flight_recorder")
    )
    assert "Missing evidence: kernel log (-v says what it would show)." in told[0]
    assert "Missing evidence:" not in told[1]
    verbose = plain(replace(FALLEN_GPU, gaps=gaps), reading=ALL)
    assert "\nMissing or incomplete evidence:\n" in verbose
    assert "   - flight_recorder (job): read, but the members were inferred\n" in verbose


def test_a_source_that_contradicts_the_logs_is_not_called_missing():
    """It was read; the reader must know that one of the two is wrong, in short and at length."""
    gap = Gap("contradiction", "job.yaml", "the scheduler reports COMPLETED, but the logs report a failure")
    both = (gap, Gap("no_kernel_log", "kernel", "no kernel log was collected"))
    said = "\nContradiction: the scheduler reports COMPLETED, but the logs report a failure\n"

    for reading in (None, ALL):
        alone = plain(replace(FALLEN_GPU, gaps=(gap,), not_evaluated=()), reading=reading)
        assert said in alone
        assert "Missing" not in alone
        beside = plain(replace(FALLEN_GPU, gaps=both, not_evaluated=()), reading=reading)
        assert said in beside
        assert "job.yaml" not in beside


def test_a_folder_whose_evidence_is_missing_is_named_by_its_path():
    """Not by what stands before its first slash, which is nothing."""
    gaps = (Gap("no_processes", "/scratch/run7/logs", "no process is seen to write these logs"),)
    assert "Missing evidence: /scratch/run7/logs (-v" in plain(replace(FALLEN_GPU, gaps=gaps, not_evaluated=()))


def test_a_line_that_the_answer_quotes_does_not_stand_out_again() -> None:
    """It would take the room of who is at fault; with a reason of its own, or with -v, it is listed."""
    [event] = UNKNOWN.indicators.events
    assert event.evidence is not None
    quoted = replace(FALLEN_GPU.diagnoses[0], evidence=(event.evidence,), band="weak")
    same = replace(UNKNOWN.indicators, events=(replace(event, why=""),))
    line = event.evidence.text.strip()

    assert plain(replace(UNKNOWN, diagnoses=(quoted,), indicators=same)).count(line) == 1
    assert plain(replace(UNKNOWN, diagnoses=(quoted,))).count(line) == 2
    assert plain(replace(UNKNOWN, diagnoses=(quoted,), indicators=same), reading=ALL).count(line) == 2
