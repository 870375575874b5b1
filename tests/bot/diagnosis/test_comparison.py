"""What no rule knows is looked at by comparison (bot.diagnosis.comparison), with good runs that are kept (bot.store.baselines)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from bot.diagnosis.comparison import read_baseline, with_lines_of, without_bare, without_estimates
from bot.diagnosis.diagnose import ComparisonOptions, diagnose_bundle, diagnose_paths
from bot.rulebase.loader import knowledge
from bot.store.baselines import drop, family_of, find, keep, listed, packed, unpacked
from bot.store.database import Database, StoreError
from bot.store.healthy_baseline import healthy
from kb.anomalies.analyse import RunFindings
from kb.anomalies.core.run import LineRef, RunEvent
from kb.anomalies.core.severity_words import skeleton
from kb.anomalies.events.ranking import RankedEvent
from kb.anomalies.runs.baseline_diff import Baseline, Lookup
from kb.model import Job
from kb.report import EvidenceItem, Indicator, Indicators, Report, leaves_open

KNOWN = knowledge()
GOOD = Baseline(
    {("loss", "is", "fine"): (20, 4, 5), ("done",): (4, 4, 1)},
    4,
    900,
    "run-1",
    (("done",),),
    {"lr": "1e-4"},
    steps={("loss", "is", "fine"): 1},
    interludes={("wine", "racked"): "saving", ("wine", "tasted"): ""},
)


def test_of_a_known_failure_without_a_logged_step_none_is_estimated(tmp_path: Path) -> None:
    """A number that rises may be a layer's width; the stage of the failure's own lines counts more than an estimate."""
    (tmp_path / "train.log").write_text("ModuleNotFoundError: No module named 'tools'\n", "utf-8")
    report = diagnose_paths(KNOWN, [tmp_path]).report
    guessed = Indicators(stages=(Indicator("iterating", "estimated"),), iterations=(Indicator("512", "estimated"),))
    assert report.verdict == "fault"
    assert without_estimates(guessed, report) == Indicators()
    known = replace(report, diagnoses=(replace(report.diagnoses[0], stage="init"),))
    assert [item.what for item in without_estimates(guessed, known).stages] == ["init"]
    assert without_estimates(guessed, replace(report, verdict="no_match", diagnoses=())) == guessed


def written(folder: Path, nodes: int, *, broken: bool) -> Path:
    """Logs of a small run, a file a node, on one of which something unheard-of ends it."""
    folder.mkdir(parents=True)
    for node in range(nodes):
        lines = [f"2026-03-01 10:00:{second:02d} worker ready, phase {second} of the warm-up" for second in range(30)]
        lines += [
            f"2026-03-01 10:{1 + step // 6:02d}:{step % 6 * 10:02d} step {step}/600 loss 2.{step:03d}"
            for step in range(1, 61)
        ]
        if broken and node == 1:
            lines.append("2026-03-01 10:11:05 frobnicator: phase lock is gone, giving up")
        (folder / f"node{node}.log").write_text("\n".join(lines) + "\n", "utf-8")
    return folder


def diagnose_text(text: str) -> Report:
    """The report on one log."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "train.log")
        path.write_text(text, "utf-8")
        return diagnose_paths(KNOWN, [path]).report


def a_bundle(folder: Path, *, baseline: bool = True) -> Path:
    """A failed run that matches no rule, with a good run for comparison."""
    written(folder / "logs", 4, broken=True)
    if baseline:
        written(folder / "baseline", 2, broken=False)
    (folder / "job.yaml").write_text("name: llm\nstate: FAILED\n", "utf-8")
    return folder


def test_the_line_that_no_rule_knows_is_reported_with_its_place(tmp_path: Path) -> None:
    """Asked to compare, the answer names the line, by its number, and the node."""
    report = diagnose_bundle(KNOWN, a_bundle(tmp_path / "b"), workers=1, compare=ComparisonOptions(always=True)).report
    first = report.indicators.events[0]
    assert "frobnicator" in first.what
    assert first.evidence is not None
    assert (first.evidence.source, first.evidence.line) == ("logs/node1.log", 91)
    assert "not_compared" not in {gap.code for gap in report.gaps}


def test_where_only_a_scheduler_speaks_the_logs_are_compared(tmp_path: Path) -> None:
    """That a job reached its limit does not say what it waited for."""
    folder = a_bundle(tmp_path)
    (folder / "job.yaml").write_text("name: llm\nstate: TIMEOUT\n", "utf-8")
    report = diagnose_bundle(KNOWN, folder).report
    assert [item.fault for item in report.diagnoses[:1]] == ["time_limit"]
    assert leaves_open(report)
    assert any("phase lock is gone" in event.what for event in report.indicators.events)


def test_lines_of_the_report_fill_what_a_comparison_leaves() -> None:
    """Up to five with those that the diagnosis quotes, each once; none where a good run filtered the lines."""

    def line(number: int) -> EvidenceItem:
        return EvidenceItem(f"e{number}", "line", "a.log", f"{'abcdefgh'[number]} failed", offset=number)

    def indicators(*numbers: int) -> Indicators:
        return Indicators(tuple(Indicator(line(number).text, "", line(number)) for number in numbers))

    report = diagnose_text("GateError: it did not open\n")
    first = replace(report.diagnoses[0], evidence=(line(0), line(1)))
    known = replace(report, diagnoses=(first,), indicators=indicators(1, 3, 4, 5, 6))
    shown = with_lines_of(indicators(1, 2), known, filtered=False)
    assert [item.evidence.offset for item in shown.events if item.evidence] == [1, 2, 3, 4]
    assert with_lines_of(indicators(1, 2), known, filtered=True) == indicators(1, 2)


def test_without_a_good_run_a_gap_says_so(tmp_path: Path) -> None:
    """Lines of common healthy runs are excluded instead, and the report says so."""
    bundle = a_bundle(tmp_path / "b", baseline=False)
    report = diagnose_bundle(KNOWN, bundle, workers=1, compare=ComparisonOptions(always=True)).report
    [gap] = [gap for gap in report.gaps if gap.code == "not_compared"]
    assert gap.reason.startswith("there was no good run of this job to compare with. ")
    assert "of lines could not be filtered" in gap.reason


@pytest.mark.parametrize(
    ("baseline", "told"), [(True, "the good run in baseline/"), (False, "what healthy runs of common frameworks print")]
)
def test_the_report_says_what_it_was_compared_with(tmp_path: Path, told: str, *, baseline: bool) -> None:
    """The good run of the bundle, or lines of healthy runs of other jobs; and the nodes with one another."""
    bundle = a_bundle(tmp_path / "b", baseline=baseline)
    found = diagnose_bundle(KNOWN, bundle, workers=1, compare=ComparisonOptions(always=True)).report.indicators
    assert found.compared_with.startswith(told)
    assert found.compared_with.endswith("nodes with one another")


def test_a_good_run_without_logs_is_a_gap(tmp_path: Path) -> None:
    """An empty folder and one with a few lines do not count as a run."""
    (tmp_path / "empty").mkdir()
    good, gaps = read_baseline([tmp_path / "empty"])
    assert (good, [gap.code for gap in gaps]) == (None, ["no_baseline"])
    (tmp_path / "short").mkdir()
    (tmp_path / "short" / "a.log").write_text("one\ntwo\n", "utf-8")
    good, gaps = read_baseline([tmp_path / "short"])
    assert (good, [gap.code for gap in gaps]) == (None, ["no_baseline"])


def test_a_good_run_that_failed_or_is_of_another_job_is_reported(tmp_path: Path) -> None:
    """Limits of the comparison are gaps of the report."""
    bundle = a_bundle(tmp_path / "b", baseline=False)
    wrong = tmp_path / "wrong"
    wrong.mkdir()
    ends = ["Traceback (most recent call last):", '  File "a.py", line 1, in f', "ValueError: no"]
    stop = ["W0301 10:20:00 1 api.py:897] Sending process 7 closing signal SIGTERM"]
    trades = ("baking", "sewing", "mining", "sailing", "fishing", "riding", "mowing", "rowing", "skiing")
    for log in (bundle / "logs").iterdir():
        usual = [f"2026-03-01 09:59:0{n} begin of {word} with all its tools" for n, word in enumerate(trades)]
        log.write_text("\n".join((*usual, log.read_text("utf-8"))), "utf-8")
    other = [f"2026-03-01 10:00:{n:02d} quite {word}: nothing like that, part {n}" for n in range(9) for word in trades]
    (wrong / "x.log").write_text("\n".join((*other, "")), "utf-8")
    told = _reasons(bundle, wrong)
    assert "the good run seems to belong to another job, so it was not used" in told
    failed = written(tmp_path / "failed", 2, broken=False)
    with (failed / "node1.log").open("a", encoding="utf-8") as file:
        file.write("\n".join((*ends, *stop, "")))
    assert any(
        item.startswith("the good run seems to have failed as well ('ValueError: no")
        for item in _reasons(bundle, failed)
    )


def _reasons(bundle: Path, good: Path) -> list[str]:
    report = diagnose_bundle(KNOWN, bundle, workers=1, compare=ComparisonOptions(baseline=good)).report
    return [gap.reason for gap in report.gaps if gap.code == "not_compared"]


@pytest.mark.parametrize(("state", "looked"), [("FAILED", True), ("COMPLETED", False), ("CANCELLED", False)])
def test_a_failed_job_in_which_no_rule_sees_a_fault_is_compared(tmp_path: Path, state: str, *, looked: bool) -> None:
    """The scheduler says that it failed, the rules that nothing is wrong: then the lines are looked at without being asked."""
    bundle = a_bundle(tmp_path / "b")
    (bundle / "job.yaml").write_text(f"name: llm\nstate: {state}\n", "utf-8")
    report = diagnose_bundle(KNOWN, bundle, workers=1).report
    compared = [event.what for event in report.indicators.events if "last good run" in event.why]
    assert any("frobnicator" in what for what in compared) is looked


def test_the_pool_of_healthy_runs_ships_and_knows_common_lines() -> None:
    """Its lines are words of healthy runs; what ends a run is not among them."""
    known = Lookup(healthy().counts)
    assert known.find(skeleton("saving checkpoint at iteration <*> to <*> in torch_dist format")) is not None
    assert known.find(skeleton("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate <*> GiB")) is None


def test_all_last_lines_that_a_named_good_run_lacks_are_shown(tmp_path: Path) -> None:
    """Up to five, in their order, with the ranks that printed them, although nothing says that the run failed."""
    good, bad = written(tmp_path / "good", 2, broken=False), written(tmp_path / "bad", 2, broken=False)
    for node in range(2):
        with (bad / f"node{node}.log").open("a", encoding="utf-8") as log:
            log.write("2026-03-01 10:11:05 widget cache rebuilt from peer 3\n")
            log.write("2026-03-01 10:11:06 widget tenancy withdrawn, leaving\n" * (node == 1))
    report = diagnose_paths(KNOWN, [bad], compare=ComparisonOptions(baseline=good, workers=1)).report
    new = [(item.what[20:], item.why) for item in report.indicators.events if "not in the last good run" in item.why]
    assert new == [
        ("widget cache rebuilt from peer 3", "not in the last good run, printed by node0, node1"),
        ("widget tenancy withdrawn, leaving", "not in the last good run"),
    ]
    assert "the good run" in report.indicators.compared_with


def test_the_same_bundle_gives_the_same_report(tmp_path: Path) -> None:
    """Ids are digests of the report's content, including the comparison."""
    bundle = a_bundle(tmp_path / "b")
    first, second = (
        diagnose_bundle(KNOWN, bundle, workers=workers, compare=ComparisonOptions(always=True)).report
        for workers in (1, 2)
    )
    assert first == second


def test_a_good_run_is_kept_by_family_and_found_again(tmp_path: Path) -> None:
    """The last one kept counts; another family has none."""
    with Database(f"sqlite:///{tmp_path}/s.db") as database:
        keep(database, "llm|", Baseline({}), datetime(2026, 1, 1, tzinfo=UTC))
        keep(database, "llm|", GOOD, datetime(2026, 1, 2, tzinfo=UTC))
        assert find(database, "llm|") == GOOD
        assert find(database, "vision|") is None
        assert find(database, "llm|", tenant="other") is None


def test_what_is_kept_comes_back_as_it_was() -> None:
    """Packing and unpacking a good run gives it again."""
    assert unpacked(packed(GOOD), "run-1") == GOOD


def test_a_damaged_row_is_an_error_of_the_store(tmp_path: Path) -> None:
    """Bytes that are not a good run are reported as such."""
    from bot.store.tables import BaselineRow
    from kb.templates.template import VERSION

    with Database(f"sqlite:///{tmp_path}/s.db") as database:
        row = BaselineRow(
            tenant="default",
            family="f",
            at=datetime(2026, 1, 1, tzinfo=UTC),
            label="",
            version=VERSION,
            events_zstd=b"x",
        )
        database.write(lambda session: session.add(row))
        with pytest.raises(StoreError, match="the baseline of 'f' cannot be read"):
            find(database, "f")


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("llm-70b-run12", "llm-70b|x|"),
        ("llm-70b-20260301-2", "llm-70b|x|"),
        ("llm", "llm|x|"),
        ("exp-deadbeef", "exp|x|"),
        ("a|b", "a_b|x|"),
    ],
)
def test_the_family_of_a_job_leaves_out_what_changes(name: str, family: str) -> None:
    """Run numbers, dates and digests at the end of a name are not part of it."""
    assert family_of(Job(name=name, framework="x")) == family


def test_a_run_in_another_image_is_compared_with_where_there_is_none_of_the_same(tmp_path: Path) -> None:
    """Runs with the same image are preferred; a name with the same beginning is another family, whatever characters follow."""
    old, new, other = (Baseline({("a", "b", name): (1, 1, 1)}, label=name) for name in ("old", "new", "other"))
    with Database(f"sqlite:///{tmp_path}/s.db") as database:
        first = family_of(Job(name="llm%", framework="x", image="img:1"))
        assert first is not None
        keep(database, first, old, datetime(2026, 1, 1, tzinfo=UTC))
        keep(database, "llmX|x|img:1", other, datetime(2026, 1, 3, tzinfo=UTC))
        second = family_of(Job(name="llm%", framework="x", image="img:2"))
        assert second is not None
        assert find(database, second).label == "old"
        keep(database, second, new, datetime(2026, 1, 2, tzinfo=UTC))
        assert [find(database, item).label for item in (first, second)] == ["old", "new"]
        assert find(database, "llm%|y|img:2") is None
        assert find(database, second, tenant="another") is None


def test_the_oldest_families_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A site that names every run again fills the store with no more than so many."""
    monkeypatch.setattr("bot.store.baselines.MOST_FAMILIES", 3)
    with Database(f"sqlite:///{tmp_path}/s.db") as database:
        for day in range(1, 6):
            keep(database, f"f{day}|x|", Baseline({("a",): (1, 1, 1)}), datetime(2026, 1, day, tzinfo=UTC))
        assert [item.family for item in listed(database, "default")] == ["f5|x|", "f4|x|", "f3|x|"]
        assert drop(database, "f4|x|")
        assert not drop(database, "f4|x|")
        assert [item.family for item in listed(database, "default")] == ["f5|x|", "f3|x|"]


def test_a_job_without_a_name_has_no_family() -> None:
    """Nothing is kept for it."""
    assert family_of(Job()) is None


def test_a_comparison_that_fails_costs_no_answer(known, tmp_path, monkeypatch, caplog):
    """By itself it is a gap, and the log has more; who asked for it sees the error."""
    (tmp_path / "run.log").write_text("iteration 1 loss 2\nERROR flux capacitor lost its phase, giving up\n")

    def lost(*_: object, **__: object) -> None:
        raise KeyError("no such feature")

    monkeypatch.setattr("bot.diagnosis.comparison.compared", lost)
    report = diagnose_paths(known, [tmp_path]).report
    assert (report.verdict, [gap.code for gap in report.gaps if gap.code == "not_compared"]) == (
        "no_match",
        ["not_compared"],
    )
    assert "KeyError" in caplog.text
    with pytest.raises(KeyError):
        diagnose_paths(known, [tmp_path], compare=ComparisonOptions(always=True))


def ranked(text: str, *why: str) -> RankedEvent:
    """An event that stands out, and why."""
    return RankedEvent(RunEvent(text, text, None, {}), 0.6, LineRef("a.log", 0, text), 0.7, 0.2, 0.5, False, why)


def test_beside_a_cause_lines_without_a_reason_are_left_out_where_ranks_were_compared() -> None:
    """Without a good run nothing but their words speaks for them; in one log, that is all there is."""
    report = diagnose_text("GateError: it did not open\n")
    found = RunFindings(
        (ranked("audit hook failed once"), ranked("lamp 4 is lit", "only rank 5 printed this")), peers=8
    )
    assert [event.spot.text for event in without_bare(found, report).events] == ["lamp 4 is lit"]
    assert without_bare(replace(found, peers=1), report).events == found.events
    symptom = replace(report, diagnoses=(replace(report.diagnoses[0], role="symptom"),))
    assert without_bare(found, symptom).events == found.events
