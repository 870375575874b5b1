"""The site's overlay from the command line: named by option, by environment, or not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.rulebase.loader import knowledge

FULL = b"OSError: [Errno 28] No space left on device: '/scratch/out/step_40'\n"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """An overlay that knows of one full disk."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "site.yaml").write_text(
        "version: 1\nexceptions:\n"
        "  - {rule: disk-full, reason: the scratch drill, lines: '/scratch/out', expires: 2999-01-01}\n"
    )
    return folder


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of that disk."""
    path = tmp_path / "train.log"
    path.write_bytes(b"step 1 loss 2.0\n" * 5 + FULL)
    return path


def test_an_overlay_is_named_by_option_or_environment(signalbox, site: Path, log: Path) -> None:
    """Either way the rule is excepted, the report says so, and its version shows that an overlay was at work."""
    words = ("diagnose", "--json", "--no-store", "--logs", log)
    bare = signalbox(*words).report
    assert bare["diagnoses"][0]["rule"] == "disk-full"
    assert not bare["versions"]["rulebook"]["version"].endswith("+site")
    for ran in (signalbox(*words, "--site", site), signalbox(*words, env={"SIGNALBOX_SITE": str(site)})):
        assert ran.status == 0
        told = [diagnosis["rule"] for diagnosis in ran.report["diagnoses"]]
        assert told in ([], [""]), "a generic rule reports the excepted line"
        (gap,) = [item for item in ran.report["gaps"] if item["code"] == "rule_excepted"]
        assert gap["source"] == "disk-full"
        assert "the scratch drill" in gap["reason"]
        assert "1 of 1 signals" in gap["reason"]
        assert ran.report["versions"]["rulebook"]["version"].endswith("+site")


def test_an_overlay_that_was_named_and_is_not_there_is_an_error(signalbox, tmp_path: Path, log: Path) -> None:
    """Silently going on without somebody's exceptions would be worse."""
    for ran in (
        signalbox("diagnose", "--no-store", "--logs", log, "--site", tmp_path / "none"),
        signalbox("diagnose", "--no-store", "--logs", log, env={"SIGNALBOX_SITE": str(tmp_path / "none")}),
    ):
        assert ran.status == 2
        assert "none" in ran.err


def test_lint_and_show_see_the_overlay(signalbox, site: Path, few_rules: Path) -> None:
    """An exception for an unknown rule is reported with file and line; `show` lists the exceptions."""
    shown = signalbox("rules", "show", "disk-full", "--site", site)
    assert b"Exception of this site" in shown.out
    assert b"until 2999-01-01: the scratch drill" in shown.out
    (site / "site.yaml").write_text(
        "version: 1\nexceptions:\n  - {rule: disk-ful, reason: r, lines: x, expires: 2999-01-01}\n"
    )
    ran = signalbox("rules", "lint", "--rules", few_rules, "--site", site)
    assert ran.status == 1
    assert b"site.yaml:3:6: no rule 'disk-ful' (did you mean 'disk-full'?)" in ran.out


def test_an_exception_expires_with_the_day_though_no_file_changes(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache does not keep yesterday's rules."""
    monkeypatch.setenv("SIGNALBOX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("bot.rulebase.loader.today", lambda: "2998-12-31")
    before = knowledge(site=site)
    monkeypatch.setattr("bot.rulebase.loader.today", lambda: "2999-01-02")
    after = knowledge(site=site)
    assert [bool(rule.site) for rule in before.rulebook.rules if rule.id == "disk-full"] == [True]
    assert [bool(rule.site) for rule in after.rulebook.rules if rule.id == "disk-full"] == [False]
    assert ["expired on 2999-01-01" in fault.message for fault in after.faults] == [True]
