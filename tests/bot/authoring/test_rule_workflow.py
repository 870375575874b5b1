"""What a change of the rules asks for: the lock, the pages, a new rule's folder, two rule bases compared, the numbers."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from bot.authoring import selftest
from bot.authoring.docs import MARK, differences, pages
from bot.authoring.lock import locked_in, step
from bot.authoring.stats import costs, render
from bot.cli.commands.rules import app
from bot.render.markdown import block, cell, code, link, prose
from bot.rulebase.loader import default_folder, knowledge, read_files
from kb.diagnosis.engine import diagnose
from kb.errors import UnreadableInput
from kb.facts.evidence import Evidence
from kb.rulebase.codec import decode, encode, meaning
from kb.rulebase.rule import Deprecation, Pattern, RemediationStep, Table, TableRow, Where
from kb.rulebase.rulebook import load
from tests.support.paths import BUNDLES, ROOT

OOM = b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.25 GiB. GPU 2 has 1.00 GiB free.\n"
FULL = b"OSError: [Errno 28] No space left on device: '/scratch/out/step_40'\n"


def rules(*words: str | Path) -> Result:
    """`signalbox rules …` in this process."""
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    """Caches of rule bases stay in the test's folder."""
    monkeypatch.setenv("SIGNALBOX_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def book(few_rules):
    """The rulebook of the few rules."""
    return load(read_files(few_rules)[0]).rulebook


def edit(folder: Path, rule: str, old: str, new: str) -> None:
    """Change a rule file; the text must be there."""
    path = folder / rule / "rule.yaml"
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")


# -- lock ----------------------------------------------------------------------------------------------------------------


def test_the_shipped_lock_is_current(known):
    """Nobody changed a rule's meaning without `signalbox rules lock`."""
    files, unread = read_files(default_folder())
    after = step(known.rulebook, locked_in(files, unread))

    assert after.differences() == []
    assert files["lock.json"] == after.text
    assert set(known.rulebook.versions) == {rule.id for rule in known.rulebook.rules}


def test_versions_begin_at_one_and_rise_with_the_meaning(few_rules):
    """A new rule is 1, a changed one the next number, a change of words none."""
    first = rules("lock", "--rules", few_rules)
    edit(few_rules, "storage/disk-full", "role: root_cause", "role: contributing")
    edit(few_rules, "memory/cuda-out-of-memory", "title: GPU memory exhausted", "title: No GPU memory left")
    checked = rules("lock", "--check", "--rules", few_rules)
    second = rules("lock", "--rules", few_rules)

    assert (first.exit_code, first.stdout) == (0, "cuda-out-of-memory: new\ndisk-full: new\n")
    assert (checked.exit_code, checked.stdout) == (1, "disk-full: changed, now version 2\n")
    assert second.exit_code == rules("lock", "--check", "--rules", few_rules).exit_code == 0
    lock = json.loads((few_rules / "lock.json").read_text())
    assert {name: item["version"] for name, item in lock.items()} == {"cuda-out-of-memory": 1, "disk-full": 2}


def test_a_locked_rule_cannot_be_removed(few_rules):
    """It is named, and the lock stays as it was; deprecating it is the way."""
    rules("lock", "--rules", few_rules)
    before = (few_rules / "lock.json").read_bytes()
    (few_rules / "storage/disk-full/rule.yaml").rename(few_rules / "away")

    removed = rules("lock", "--rules", few_rules)
    assert (removed.exit_code, removed.stdout.startswith("disk-full: removed")) == (1, True)
    assert (few_rules / "lock.json").read_bytes() == before

    (few_rules / "away").rename(few_rules / "storage/disk-full/rule.yaml")
    retired = "status: deprecated\ndeprecated: {date: 2026-10-02, reason: not needed}"
    edit(few_rules, "storage/disk-full", "status: experimental", retired)
    assert rules("lock", "--rules", few_rules).stdout == "disk-full: changed, now version 2\n"


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"disk-full": 3}', '{"x": {"version": 0, "sha256": "00"}}', "<<<<<<<"]
)
def test_a_damaged_lock_is_not_written_over(few_rules, text):
    """Versions would be lost; the rules themselves still load."""
    (few_rules / "lock.json").write_text(text)

    ran = rules("lock", "--rules", few_rules)
    known = knowledge(few_rules)

    assert isinstance(ran.exception, UnreadableInput)
    assert (few_rules / "lock.json").read_text() == text
    assert len(known.rulebook.rules) == 2
    assert known.rulebook.versions == {}
    assert [fault.file for fault in known.faults] == ["lock.json"]


def test_a_lock_written_by_hand_in_another_form_is_not_current(few_rules):
    """The file has one form, so that differences are those of rules."""
    rules("lock", "--rules", few_rules)
    path = few_rules / "lock.json"
    path.write_text(json.dumps(json.loads(path.read_text())))

    checked = rules("lock", "--check", "--rules", few_rules)

    assert (checked.exit_code, "out of date; run `signalbox rules lock`" in checked.stdout) == (1, True)


def test_nothing_is_locked_while_rules_have_faults(few_rules):
    """A rule that does not load must not look as if it were removed."""
    edit(few_rules, "storage/disk-full", "role: root_cause", "role: villain")

    ran = rules("lock", "--rules", few_rules)

    assert (ran.exit_code, "'role' is 'villain'" in ran.stderr) == (2, True)
    assert not (few_rules / "lock.json").exists()


def test_the_version_is_in_the_report_and_not_in_the_digest(few_rules, tmp_path):
    """`rule_version` comes from the lock, on the first start and from the cache; the digest is of the rules alone."""
    digest = knowledge(few_rules).rulebook.digest
    rules("lock", "--rules", few_rules)
    path = few_rules / "lock.json"
    path.write_text(path.read_text().replace('"disk-full": {"version": 1', '"disk-full": {"version": 7'))

    for _ in range(2):
        known = knowledge(few_rules)
        summaries = _scanned(known, tmp_path)
        report = diagnose(Evidence(streams=summaries), known.rulebook)
        assert (report.diagnoses[0].rule, report.diagnoses[0].rule_version) == ("disk-full", 7)
        assert known.rulebook.digest == digest


def _scanned(known, tmp_path):
    (tmp_path / "a.log").write_bytes(FULL)
    return selftest.streams_at(known, tmp_path / "a.log")[0]


@pytest.mark.parametrize(
    "change",
    [
        {"fault": "cuda_oom"},
        {"role": "symptom"},
        {"status": "stable"},
        {"fallback": True},
        {"patterns": (Pattern("a", literal="text"),)},
        {"patterns": (Pattern("a", literal="text", where=Where(in_traceback=False)),)},
        {"explains": ("killed",)},
        {"params": {"hits": 3.0}},
        {"table": Table("key", {"1": TableRow("1", "one")})},
        {"table": Table("key", {"1": TableRow("1", "one", role="symptom")})},
        {"table": Table("key", {"1": TableRow("1", "one", ignore=True)})},
        {"table": Table("key", {"1": TableRow("1", "one")}, default=TableRow("", "other"))},
    ],
    ids=repr,
)
def test_what_can_change_an_answer_is_meaning(book, change):
    """Each such part moves the hash, and differently."""
    rule = next(item for item in book.rules if item.id == "disk-full")
    others = {meaning(rule), meaning(replace(rule, patterns=())), meaning(replace(rule, table=Table("other", {})))}

    assert meaning(replace(rule, **change)) not in others


@pytest.mark.parametrize(
    "change",
    [
        {"title": "other"},
        {"summary": "other"},
        {"cause": "other"},
        {"severity": "low"},
        {"remediation": ()},
        {"file": "x/y/rule.yaml", "family": "x"},
        {"known_problems": ("one",)},
        {"deprecated": Deprecation("2026-01-01", "why")},
    ],
    ids=repr,
)
def test_texts_and_places_are_no_meaning(book, change):
    """They may be bettered with no new version."""
    rule = book.rules[0]

    assert meaning(replace(rule, **change)) == meaning(rule)


def test_meaning_survives_the_cache(known):
    """Every shipped rule means the same read from YAML or from bytes, and no two rules mean the same."""
    back = decode(encode(known.rulebook))

    assert back.versions == known.rulebook.versions
    assert [meaning(rule) for rule in back.rules] == [meaning(rule) for rule in known.rulebook.rules]
    assert len({meaning(rule) for rule in back.rules}) == len(back.rules)


# -- docs ----------------------------------------------------------------------------------------------------------------


def test_the_pages_of_the_shipped_rules_are_current(known):
    """docs/rules is what `signalbox rules docs` writes."""
    assert differences(pages(known.rulebook, default_folder()), ROOT / "docs" / "rules") == []


def test_pages_are_written_checked_and_taken_away(few_rules, tmp_path):
    """Beside the rules by default; a page of a rule that is gone goes, a person's own file stays."""
    target = tmp_path / "docs" / "rules"
    first = rules("docs", "--rules", few_rules)
    (target / "storage/notes.md").write_text("mine\n")
    (target / "storage/gone.md").write_text(f"{MARK} from rules/storage/gone/rule.yaml -->\n")
    (target / "memory/cuda-out-of-memory.md").unlink()
    edit(few_rules, "storage/disk-full", "No space left on the file system", "The file system is full")

    checked = rules("docs", "--check", "--rules", few_rules)
    second = rules("docs", "--rules", few_rules)

    assert (first.exit_code, second.exit_code) == (0, 0)
    assert checked.exit_code == 1
    assert checked.stdout.splitlines() == [
        "README.md: changed",
        "memory/cuda-out-of-memory.md: missing",
        "storage/disk-full.md: changed",
        "storage/gone.md: stale",
    ]
    assert rules("docs", "--check", "--rules", few_rules).exit_code == 0
    assert {path.name for path in (target / "storage").iterdir()} == {"disk-full.md", "notes.md"}


def test_pages_can_go_elsewhere(few_rules, tmp_path):
    """An installed rule base has no docs/ folder next to it, so `--to` is required."""
    installed = few_rules.rename(tmp_path / "_rules")

    refused = rules("docs", "--rules", installed)
    written = rules("docs", "--rules", installed, "--to", tmp_path / "pages")

    assert (refused.exit_code, refused.stderr) == (2, "signalbox: give a folder with --to\n")
    assert written.exit_code == 0
    assert sorted(path.name for path in (tmp_path / "pages").rglob("*.md")) == [
        "README.md",
        "advice.md",
        "cuda-out-of-memory.md",
        "disk-full.md",
    ]


def test_a_page_answers_what_a_reader_of_a_report_asks(book, few_rules):
    """Sections, the step with grade and command, the source, the logs."""
    page = pages(book, few_rules)["memory/cuda-out-of-memory.md"]
    index = pages(book, few_rules)["README.md"]

    assert page.startswith(MARK)
    heads = [line[3:] for line in page.splitlines() if line.startswith("## ")]
    assert heads[:4] == ["Summary", "Cause", "Impact", "Remediation"]
    assert heads[-3:] == ["References", "Examples", "Near misses"]
    assert "1. **Check memory usage** (read-only): " in page
    assert "   Command: `nvidia-smi --query-compute-apps=pid,used_memory --format=csv`" in page
    assert "[cuda-out-of-memory](memory/cuda-out-of-memory.md)" in index
    row = next(line for line in index.splitlines() if line.startswith("| disk_full |"))
    assert row.endswith("| [disk-full](storage/disk-full.md) |")


def test_an_example_shows_few_lines_around_the_decisive_one(book, few_rules):
    """Eight lines, with what was left out marked; carriage returns, colours and fences in logs stay text."""
    log = few_rules / "storage/disk-full/match/long.log"
    lines = [f"step {n} \x1b[31mred\x1b[0m" for n in range(40)]
    log.write_bytes("\n".join([*lines, "````", FULL.decode().strip(), "\x00 after\u202e", *["end"] * 9]).encode())

    page = pages(book, few_rules)["storage/disk-full.md"]
    part = page.split("`long.log`:\n\n")[1].split("\n\n")[0].splitlines()

    assert part[0] == "`````text"
    assert part[1:-1] == [
        "…",
        *(f"step {n} red" for n in range(36, 40)),
        "````",
        FULL.decode().strip(),
        "\\x00 after\\u202e",
        "end",
        "…",
    ]


def test_a_test_of_many_streams_shows_a_few_of_each(book, few_rules):
    """A folder is one test; of its files four are shown."""
    folder = few_rules / "storage/disk-full/match/job"
    folder.mkdir()
    for rank in range(6):
        (folder / f"rank-{rank}.log").write_bytes(b"hello\n" * 5 + FULL)
    os.mkfifo(folder / "pipe.log")

    page = pages(book, few_rules)["storage/disk-full.md"]

    assert page.count("`job/rank-") == 4
    assert "2 more files in `job`." in page


HOSTILE = "a | b `c` <img src=x> [x](javascript:1) **d** \\| &amp; # e\n| --- | --- |\n<!-- ~~f~~ $g$ _h_"


def test_hostile_texts_stay_texts_on_a_page(book, few_rules):
    """No text of a rule makes a row, a link, a heading or HTML, and a reader sees it as it was written."""
    markdown = pytest.importorskip("markdown_it").MarkdownIt("commonmark").enable(["table", "strikethrough"])
    step_ = RemediationStep("look_at_logs", HOSTILE, "look", None, HOSTILE, HOSTILE, HOSTILE)
    table = Table("key", {HOSTILE: TableRow(HOSTILE, HOSTILE)})
    parts = {"title": HOSTILE, "summary": HOSTILE, "cause": f"1. {HOSTILE}", "impact": f"- {HOSTILE}"}
    hostile = replace(book.rules[0], **parts, remediation=(step_,), table=table, known_problems=(HOSTILE,))
    page = pages(replace(book, rules=(hostile,)), few_rules)[f"{hostile.family}/{hostile.id}.md"]

    tokens = markdown.parse(page)
    inline = [child for token in tokens for child in token.children or ()]
    kinds = [token.type for token in tokens]
    words = " ".join(HOSTILE.split())

    assert kinds.count("html_block") == 1  # our own first line
    assert not {child.type for child in inline} & {"html_inline", "image", "em_open", "s_open"}
    assert all(str(child.attrs["href"]).startswith("https://") for child in inline if child.type == "link_open")
    assert kinds.count("table_open") == 2
    assert kinds.count("tr_open") == 1 + 7 + 1 + 1
    assert kinds.count("th_open") + kinds.count("td_open") == 2 * 8 + 4 * 2
    seen = ["".join(child.content for child in token.children or ()) for token in tokens if token.type == "inline"]
    assert seen[0] == words
    assert {f"1. {words}", f"- {words}", f"Command: {words}"} <= set(seen)
    assert seen.count(words) >= 5


@pytest.mark.parametrize("text", ["", "`", "``a`", " a ", "a``b```", "|", "\x00\x1b[0m\u2028"])
def test_any_text_can_be_code(text):
    """Spans and blocks end where they should."""
    markdown = pytest.importorskip("markdown_it").MarkdownIt("commonmark")
    tokens = markdown.parse(f"x {code(text)} y\n\n" + "\n".join(block([text, "last"])) + "\n\nend\n")

    assert [token.type for token in tokens if token.type in ("fence", "paragraph_open")] == [
        "paragraph_open",
        "fence",
        "paragraph_open",
    ]
    assert tokens[1].content.endswith(" y")


def test_addresses_are_links_only_on_the_web():
    """Anything else is shown, not followed."""
    assert link("https://example.org/a?b=1#c") == "<https://example.org/a?b=1#c>"
    assert link("javascript:alert(1)") == "`javascript:alert(1)`"
    assert link("https://example.org/><b>") == "`https://example.org/><b>`"
    assert (cell("a|b"), prose("- a"), prose("snake_case")) == ("a&#124;b", "\\- a", "snake_case")


# -- new -----------------------------------------------------------------------------------------------------------------

WORDS = ("--family", "storage", "--fault", "storage_io", "--title", "Tape robot's arm: stuck")


def test_a_new_rule_loads_and_its_logs_do_what_they_say(few_rules, tmp_path):
    """Secrets are masked, the pattern's lines are left out of silent/; made active, it speaks and is silent."""
    log = tmp_path / "failed.log"
    log.write_bytes(b"[rank2]: tape robot arm stuck at slot 9\npassword=hunter2hunter2 for slot 9\n\xff\n")

    regex = r"^tape robot arm stuck at slot (?P<slot>\d+)"
    ran = rules("new", "tape-arm-stuck", *WORDS, "--regex", regex, "--log", log, "--rules", few_rules)
    folder = few_rules / "storage/tape-arm-stuck"

    assert ran.exit_code == 0, ran.output
    assert ran.stdout == f"{folder}\n"
    assert "still missing: match: 1 more log\n" in ran.stderr
    assert "what to do, a reference; then" in ran.stderr
    assert "silent: " not in ran.stderr.replace("match, silent:", "")
    loaded = load(read_files(few_rules)[0])
    assert loaded.faults == ()
    rule = next(item for item in loaded.rulebook.rules if item.id == "tape-arm-stuck")
    assert (rule.status, rule.title, rule.patterns[0].regex) == ("draft", "Tape robot's arm: stuck", regex)
    assert "TODO" not in (folder / "rule.yaml").read_text()
    assert b"hunter2" not in (folder / "match/1.log").read_bytes()
    assert (folder / "match/1.log").read_bytes().count(b"\n") == 3
    assert (folder / "silent/1.log").read_bytes().startswith(b"password=")

    early = rules("test", "tape-arm-stuck", "--rules", few_rules)
    assert early.stdout == "2 passed, 0 failed\n"
    assert "tape-arm-stuck is tested as if active: its status is draft" in early.stderr
    edit(few_rules, "storage/tape-arm-stuck", "status: draft", "status: experimental")
    tried = rules("test", "tape-arm-stuck", "--rules", few_rules)
    assert (tried.stdout, tried.stderr) == ("2 passed, 0 failed\n", "")


def test_a_new_rule_of_which_little_is_known_says_so(few_rules):
    """Without a pattern or a log, two empty folders, a pattern that matches nothing, and a list of what is missing are written."""
    ran = rules("new", "tape-arm-stuck", *WORDS, "--rules", few_rules)
    folder = few_rules / "storage/tape-arm-stuck"

    assert ran.exit_code == 0, ran.output
    assert load(read_files(few_rules)[0]).faults == ()
    assert [list((folder / name).iterdir()) for name in ("match", "silent")] == [[], []]
    assert "a pattern; the one in it finds nothing" in ran.stderr
    assert "match: 2 more logs" in ran.stderr
    edit(few_rules, "storage/tape-arm-stuck", "status: draft", "status: experimental")
    known = knowledge(few_rules)
    assert selftest.findings_on(known, known.matcher(), {"a.log": b"some text\n"}) == []


def test_a_log_that_the_pattern_does_not_find_is_reported(few_rules, tmp_path):
    """A kernel log keeps the name by which it is known as one."""
    log = tmp_path / "dmesg-of-yesterday.txt"
    log.write_bytes(b"all is well\n")

    ran = rules("new", "arm-stuck", *WORDS, "--regex", "arm stuck at", "--log", log, "--rules", few_rules)

    assert "the pattern finds no line of the log" in ran.stderr
    folder = few_rules / "storage/arm-stuck"
    assert [path.name for path in folder.rglob("*.log")] == ["dmesg-1.log"]


@pytest.mark.parametrize(
    ("name", "options", "told"),
    [
        ("Arm_Stuck", (), "lower-case"),
        ("../arm", (), "lower-case"),
        ("arm-", (), "lower-case"),
        ("arm\n", (), "lower-case"),
        ("a" * 61, (), "lower-case"),
        ("arm", ("--family", "../x"), "family '../x'"),
        ("disk-full", ("--family", "memory"), "there is a rule disk-full already: storage/disk-full/rule.yaml"),
        ("arm", ("--fault", "storage_oi"), "did you mean 'storage_io'?"),
        ("arm", ("--fault", "x: y"), "'fault'"),
        ("arm", ("--action", "look_at_log"), "did you mean 'look_at_logs'?"),
        ("arm", ("--role", "villain"), "'role' is 'villain'"),
        ("arm", ("--regex", "(arm"), "not a regular expression"),
        ("arm", ("--regex", ""), "regex"),
        ("arm", ("--regex", "arm stuck\nat"), "regex"),
        ("arm", ("--title", "x" * 81), "81 characters"),
        ("arm", ("--title", "of {nobody}"), "nothing captures {nobody}"),
        ("arm", ("--title", "a\x07b"), "U+0007"),
        ("arm", ("--title", "a\udcffb"), "U+DCFF"),
    ],
)
def test_a_rule_that_cannot_be_is_refused(few_rules, name, options, told):
    """Exits with 2 and a message, and writes nothing."""
    before = sorted(few_rules.rglob("*"))

    ran = rules("new", name, *WORDS, *options, "--rules", few_rules)

    assert ran.exit_code == 2, ran.output
    assert told in ran.stderr
    assert sorted(few_rules.rglob("*")) == before


@pytest.mark.parametrize("kind", ["gone", "folder", "empty", "large"])
def test_a_log_that_cannot_be_a_test_is_refused(few_rules, tmp_path, kind):
    """Before anything is written."""
    log = tmp_path / "x.log"
    if kind == "folder":
        log.mkdir()
    elif kind != "gone":
        log.write_bytes(b"\n" if kind == "empty" else b"x\n" * (1 << 20))

    ran = rules("new", "arm", *WORDS, "--log", log, "--rules", few_rules)

    assert isinstance(ran.exception, UnreadableInput)
    assert not (few_rules / "storage/arm").exists()


def test_nothing_is_overwritten(few_rules):
    """An existing folder is not changed, even if it holds no rule."""
    own = few_rules / "storage/arm/notes.txt"
    own.parent.mkdir()
    own.write_text("mine\n")

    ran = rules("new", "arm", *WORDS, "--rules", few_rules)

    assert isinstance(ran.exception, UnreadableInput)
    assert [path.name for path in own.parent.iterdir()] == ["notes.txt"]


# -- diff and stats ------------------------------------------------------------------------------------------------------


def test_two_rule_bases_are_compared_by_their_first_answers(few_rules, tmp_path):
    """New, lost and changed answers in a table with their counts; hostile names of bundles stay in their cells."""
    old, new = few_rules, tmp_path / "new"
    for path in [path for path in old.rglob("*") if path.is_file()]:
        copy = new / path.relative_to(old)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    edit(new, "storage/disk-full", "status: experimental", "status: draft")
    edit(new, "memory/cuda-out-of-memory", "fault: cuda_oom", "fault: host_oom")
    edit(old, "memory/cuda-out-of-memory", "    not_line: 'running low on memory'", "    not_line: 'sixteen times'")
    for name, text in (("full", FULL), ("oom | <b>", OOM), ("well", b"hello\n")):
        (tmp_path / "cases" / name).mkdir(parents=True)
        (tmp_path / "cases" / name / "a.log").write_bytes(text)

    ran = rules("diff", old, new, "--on", tmp_path / "cases", "--workers", "1")
    back = rules("diff", new, old, "--on", tmp_path / "cases", "--workers", "1")

    assert (ran.exit_code, back.exit_code) == (0, 0)
    lines = ran.stdout.splitlines()
    assert lines[0] == "3 bundles: 0 new, 1 lost, 1 changed, 1 same"
    assert lines[2:4] == ["| What | Bundle | Old | New |", "| --- | --- | --- | --- |"]
    assert lines[4].startswith("| lost | full | disk_full (disk-full) | no_")
    changed = "cuda_oom (cuda-out-of-memory) | host_oom (cuda-out-of-memory)"
    assert lines[5] == f"| changed | oom &#124; &lt;b> | {changed} |"
    assert back.stdout.splitlines()[0] == "3 bundles: 1 new, 0 lost, 1 changed, 1 same"


def test_a_comparison_wants_bundles(few_rules, tmp_path):
    """An empty folder is an error, equal rule bases are a line of counts."""
    (tmp_path / "cases").mkdir()
    assert isinstance(rules("diff", few_rules, few_rules, "--on", tmp_path / "cases").exception, UnreadableInput)

    (tmp_path / "cases/full").mkdir()
    (tmp_path / "cases/full/a.log").write_bytes(FULL)
    ran = rules("diff", few_rules, few_rules, "--on", tmp_path / "cases", "--workers", "1")

    assert ran.stdout == "1 bundles: 0 new, 0 lost, 0 changed, 1 same\n"


def test_the_rule_base_in_numbers(few_rules, book):
    """What there is by family, status, role and class, and what there is none of."""
    for index in range(2):
        (few_rules / f"storage/disk-full/match/more-{index}.log").write_bytes(FULL)
    counts = {name: len(tests) for name, tests in selftest.names_of(selftest.tests_of(few_rules, book.rules)).items()}

    lines = rules("stats", "--rules", few_rules).stdout.splitlines()

    fewest = min(counts.values())
    assert lines[0].startswith("2 rules, ")
    assert lines[0].endswith(f" 0 fallbacks, 2 tables, {sum(counts.values())} tests")
    assert f"at least {fewest} (" in lines[1]
    assert lines[1].endswith(f"median {sum(counts.values()) / 2:g}")
    assert {"     1  storage", "     2  experimental", "     2  root_cause", "     1  disk_full"} <= set(lines)
    assert "     0  rdma_link" in lines
    assert "rdma_link" in lines[-1]
    assert "disk_full" not in lines[-1]


def test_an_empty_rule_base_has_numbers(book):
    """None of anything."""
    assert render(replace(book, rules=()), {}).startswith("0 rules, 0 patterns, 0 fallbacks, 0 tables, 0 tests\n")


def test_the_command_tells_a_damaged_lock_in_one_line(signalbox, few_rules):
    """Status 2, as for any input that was asked for and cannot be read."""
    (few_rules / "lock.json").write_text("<<<<<<< ours\n")

    ran = signalbox("rules", "lock", "--rules", few_rules)

    assert (ran.status, ran.out, ran.err.count("\n")) == (2, b"", 1)
    assert ran.err.startswith("signalbox: not a rule lock file: ")


def test_stats_on_logs_say_what_each_rule_costs(few_rules, tmp_path):
    """Lines that the engine points a rule to, and those that it means, over all blocks; dearest first."""
    log = tmp_path / "train.log"
    log.write_bytes(b"step 1 loss 2.0\n" * 50 + OOM * 3 + FULL)
    found, size = costs(knowledge(few_rules), [log])
    assert size == log.stat().st_size
    assert [(item.asked, item.meant) for item in found[:1]] == [(3, 3)]
    assert sum(item.asked for item in found) >= sum(item.meant for item in found) >= 3
    told = rules("stats", "--rules", few_rules, "--on", log).stdout
    assert found[0].rule in told
    assert "lines asked" in told


@pytest.mark.benchmark
def test_no_rule_is_dear_on_clean_logs(known):
    """On healthy runs' logs no rule is asked of more than 200 lines a MB: each costs microseconds."""
    clean = ROOT.parent / "shared" / "benchmark" / "clean"
    if not clean.is_dir():
        pytest.skip(f"there is no benchmark at {clean}")
    found, size = costs(known, [clean, BUNDLES / "healthy"])
    assert size > 100_000
    assert not [item for item in found if item.asked > 200 * size / 1e6]
